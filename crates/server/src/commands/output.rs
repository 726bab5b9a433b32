//! The unsent output of a connection, in order: bytes, values that the engine holds, and places kept for answers that
//! wait for a write.
//!
//! A command whose write is under way leaves an [`Await`] behind and the connection goes on with its next command.
//! Sending stops at the first `Await`; when the engine answers, it becomes the prepared reply or an error, and what
//! lies behind it can go. So answers keep the order of the commands however the writes finish.
//!
//! **Answers of parts.** The answer to `gat` has a place for each item that it touches. The first of them whose write
//! fails becomes the error that ends the answer; the rest of the answer, which may still grow, is dropped with its end.
//!
//! Small values are copied next to their header line, which is cheaper than a vector element; values from
//! [`COPY_BYTES_MAX`] are sent from where the engine holds them.
//!
//! **Bounded.** Three sums tell when to run nothing more: the bytes to be sent, those that still wait for a write
//! included; the answers that wait for the engine; and the bytes of their writes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use crate::admin::metrics::{Command, Counter, Counters};
use crate::admin::trace::{Begun, Tracer};
use crate::engine::{COPY_BYTES_MAX, EngineError, StoredValue};
use situ_trace::Outcome;

/// Elements per send.
const SLICES_MAX: usize = 64;

/// A prepared answer.
#[derive(Debug)]
pub(crate) enum Reply<V> {
    Static(&'static [u8]),
    Bytes(Vec<u8>),
    /// A line, then the data of the engine's value, which has a header of this many bytes, and the end of its line. The
    /// value is not copied, so that many of them waiting share what the engine holds.
    Value(Vec<u8>, V, usize),
}

impl<V: StoredValue> Reply<V> {
    fn byte_len(&self) -> usize {
        match self {
            Reply::Static(text) => text.len(),
            Reply::Bytes(text) => text.len(),
            Reply::Value(line, value, header_bytes) => line.len() + value.data(*header_bytes).len() + 2,
        }
    }
}

/// The form of a failed write to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// `SERVER_ERROR` with the reason.
    Report,
    /// `SERVER_ERROR` with the reason in place of the rest of the answer, up to what [`Output::append_end`] appended.
    EndAnswer,
    /// Nothing: the client asked for no reply.
    Silence,
}

/// A place kept for the answer of a command whose write is under way.
#[derive(Debug)]
pub(crate) struct Await<V> {
    pub(crate) batch: u64,
    pub(crate) reply: Reply<V>,
    /// The bytes that the command put into the batch.
    pub(crate) write_bytes: usize,
    pub(crate) on_failure: OnFailure,
    /// The command that is counted when the answer comes; `None` for a part of an answer.
    pub(crate) command: Option<Command>,
    pub(crate) started: Instant,
    /// The request, if a trace is recorded.
    pub(crate) traced: Option<Box<Begun>>,
}

enum Segment<V> {
    Bytes(Vec<u8>),
    /// The data of the engine's value, which has a header of this many bytes.
    Value(V, usize),
    Await(Await<V>),
    /// The end of an answer of which parts may wait.
    End(Vec<u8>),
}

impl<V: StoredValue> Segment<V> {
    /// Returns the bytes to send; `None` for a place.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Segment::Bytes(bytes) | Segment::End(bytes) => Some(bytes),
            Segment::Value(value, header_bytes) => Some(value.data(*header_bytes)),
            Segment::Await(_) => None,
        }
    }
}

/// The progress of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is left.
    Empty,
    /// The next thing to send waits for the engine.
    Waiting,
    /// The socket takes no more for now.
    Blocked,
}

/// See the module.
pub(crate) struct Output<V> {
    segments: VecDeque<Segment<V>>,
    /// Bytes of the first segment already sent.
    sent: usize,
    /// Bytes that could not be sent yet, replies in places included.
    pending_bytes: usize,
    /// Places kept.
    awaiting: usize,
    /// Bytes of the writes that places wait for.
    writing_bytes: usize,
    /// An answer was ended by an error before all of its parts were appended.
    cut_short: bool,
}

impl<V: StoredValue> Output<V> {
    pub(crate) fn new() -> Output<V> {
        Output { segments: VecDeque::new(), sent: 0, pending_bytes: 0, awaiting: 0, writing_bytes: 0, cut_short: false }
    }

    /// Returns the bytes held, sent or not yet allowed to be.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Answers that wait for the engine.
    pub(crate) fn awaiting(&self) -> usize {
        self.awaiting
    }

    /// Returns the bytes of the writes that answers wait for.
    pub(crate) fn writing_bytes(&self) -> usize {
        self.writing_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Appends what `fill` writes.
    pub(crate) fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.segments.back(), Some(Segment::Bytes(_))) {
            self.segments.push_back(Segment::Bytes(Vec::new()));
        }
        if let Some(Segment::Bytes(bytes)) = self.segments.back_mut() {
            let before = bytes.len();
            fill(bytes);
            self.pending_bytes += bytes.len() - before;
            // An empty segment would look like something to send.
            if bytes.is_empty() {
                self.segments.pop_back();
            }
        }
    }

    /// Appends the data of the engine's `value`, which has a header of `header_bytes` bytes.
    pub(crate) fn append_value(&mut self, value: V, header_bytes: usize) {
        let length = value.data(header_bytes).len();
        if length < COPY_BYTES_MAX {
            self.append(|bytes| bytes.extend_from_slice(value.data(header_bytes)));
        } else {
            self.pending_bytes += length;
            self.segments.push_back(Segment::Value(value, header_bytes));
        }
    }

    /// Appends a prepared answer.
    pub(crate) fn append_reply(&mut self, reply: Reply<V>) {
        match reply {
            Reply::Static(text) => self.append(|bytes| bytes.extend_from_slice(text)),
            Reply::Bytes(text) => self.append(|bytes| bytes.extend_from_slice(&text)),
            Reply::Value(line, value, header_bytes) => {
                self.append(|bytes| bytes.extend_from_slice(&line));
                self.append_value(value, header_bytes);
                self.append(|bytes| bytes.extend_from_slice(b"\r\n"));
            }
        }
    }

    /// Appends the end of an answer of parts. Each answer with a part that is [`OnFailure::EndAnswer`] has one, unless
    /// [`Output::take_cut_short`] says that it has ended.
    pub(crate) fn append_end(&mut self, end: Vec<u8>) {
        self.pending_bytes += end.len();
        self.push_end(end, self.awaiting > 0);
    }

    /// Ends the answer that is being given in parts with an error.
    pub(crate) fn cut_short(&mut self, error: &EngineError) {
        let mut end = Vec::new();
        push_server_error(&mut end, error);
        self.append_end(end);
        self.cut_short = true;
    }

    /// True, once, if an error has ended the answer that is being given in parts: nothing more of it may be appended.
    pub(crate) fn take_cut_short(&mut self) -> bool {
        std::mem::take(&mut self.cut_short)
    }

    /// Keeps `end` apart if a part before it may still fail. The count does not change.
    fn push_end(&mut self, end: Vec<u8>, parts_wait: bool) {
        if parts_wait {
            self.segments.push_back(Segment::End(end));
        } else {
            self.push_bytes(end);
        }
    }

    /// Joins, so that a long pipeline of small answers stays one element. The count does not change.
    fn push_bytes(&mut self, more: Vec<u8>) {
        match self.segments.back_mut() {
            Some(Segment::Bytes(bytes)) => bytes.extend_from_slice(&more),
            _ => self.segments.push_back(Segment::Bytes(more)),
        }
    }

    /// Keeps a place.
    pub(crate) fn append_await(&mut self, place: Await<V>) {
        self.awaiting += 1;
        self.writing_bytes += place.write_bytes;
        self.pending_bytes += place.reply.byte_len();
        self.segments.push_back(Segment::Await(place));
    }

    /// Has the last place that was kept record its request, when the place is filled.
    pub(crate) fn trace_last(&mut self, request: Begun) {
        let mut places = self.segments.iter_mut().rev();
        let last = places.find_map(|segment| if let Segment::Await(place) = segment { Some(place) } else { None });
        if let Some(place) = last {
            place.traced = Some(Box::new(request));
        }
    }

    /// Fills the places that waited for `batch`.
    pub(crate) fn resolve(
        &mut self,
        batch: u64,
        result: &Result<(), EngineError>,
        (counters, tracer): (&Counters, &Tracer),
        now: Instant,
    ) {
        let sent = self.sent;
        // A part of the answer at hand waits.
        let mut parts_wait = false;
        // The answer at hand has ended with an error.
        let mut dropping = false;
        for mut segment in std::mem::take(&mut self.segments) {
            if dropping {
                match &mut segment {
                    // The engine has yet to answer, but the client does not get that answer.
                    Segment::Await(place) => {
                        self.pending_bytes = self.pending_bytes.saturating_sub(place.reply.byte_len());
                        (place.reply, place.on_failure) = (Reply::Static(b""), OnFailure::Silence);
                    }
                    other => {
                        let length = other.bytes().map_or(0, <[u8]>::len);
                        self.pending_bytes = self.pending_bytes.saturating_sub(length);
                        dropping = !matches!(other, Segment::End(_));
                        continue;
                    }
                }
            }
            match segment {
                Segment::Await(place) if place.batch == batch => {
                    self.awaiting -= 1;
                    self.writing_bytes -= place.write_bytes;
                    self.pending_bytes = self.pending_bytes.saturating_sub(place.reply.byte_len());
                    if let Some(command) = place.command {
                        counters.answered(command, now.saturating_duration_since(place.started));
                    }
                    if let Some(mut request) = place.traced {
                        if result.is_err() {
                            request.outcome = Outcome::Failed;
                        }
                        tracer.end(&request, now);
                    }
                    match (result, place.on_failure) {
                        (Ok(()), _) => self.append_reply(place.reply),
                        (Err(_), OnFailure::Silence) => counters.add(Counter::WriteFailures, 1),
                        (Err(error), OnFailure::Report) => {
                            counters.add(Counter::WriteFailures, 1);
                            self.append(|bytes| push_server_error(bytes, error));
                        }
                        (Err(error), OnFailure::EndAnswer) => {
                            counters.add(Counter::WriteFailures, 1);
                            let mut end = Vec::new();
                            push_server_error(&mut end, error);
                            self.pending_bytes += end.len();
                            self.push_end(end, parts_wait);
                            (parts_wait, dropping) = (false, true);
                        }
                    }
                }
                Segment::Await(place) => {
                    parts_wait |= place.on_failure == OnFailure::EndAnswer;
                    self.segments.push_back(Segment::Await(place));
                }
                Segment::Bytes(more) => self.push_bytes(more),
                Segment::End(end) => {
                    self.push_end(end, parts_wait);
                    parts_wait = false;
                }
                value @ Segment::Value(..) => self.segments.push_back(value),
            }
        }
        self.cut_short |= dropping;
        self.sent = sent;
    }

    /// Sends as much as `send` takes; `sent_bytes` is increased by it.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(
        &mut self,
        mut send: impl FnMut(&[IoSlice<'_>]) -> rustix::io::Result<usize>,
        sent_bytes: &mut u64,
    ) -> rustix::io::Result<Progress> {
        loop {
            let mut slices: [IoSlice<'_>; SLICES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
            let mut count = 0;
            let mut skip = self.sent;
            for (slice, segment) in slices.iter_mut().zip(&self.segments) {
                let Some(bytes) = segment.bytes() else { break };
                *slice = IoSlice::new(bytes.get(skip..).unwrap_or_default());
                skip = 0;
                count += 1;
            }
            if count == 0 {
                return Ok(if self.segments.is_empty() { Progress::Empty } else { Progress::Waiting });
            }
            match send(&slices[..count]) {
                Ok(bytes) => {
                    *sent_bytes += bytes as u64;
                    self.advance(bytes);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(Progress::Blocked),
                Err(error) => return Err(error),
            }
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        self.pending_bytes = self.pending_bytes.saturating_sub(bytes);
        bytes += self.sent;
        self.sent = 0;
        while let Some(segment) = self.segments.front() {
            let Some(length) = segment.bytes().map(<[u8]>::len) else { break };
            if bytes < length {
                self.sent = bytes;
                return;
            }
            bytes -= length;
            self.segments.pop_front();
        }
    }

    /// Drops the answers that could be sent, because they have no reader. Places stay, so that they are counted when
    /// the engine answers.
    pub(crate) fn discard(&mut self) -> Progress {
        self.segments.retain_mut(|segment| match segment {
            Segment::Await(place) => {
                place.reply = Reply::Static(b"");
                true
            }
            _ => false,
        });
        self.sent = 0;
        self.pending_bytes = 0;
        if self.segments.is_empty() { Progress::Empty } else { Progress::Waiting }
    }

    /// Gives back memory that an idle connection has no use for.
    pub(crate) fn shrink(&mut self) {
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
    }
}

/// Appends the line that reports `error`.
pub(crate) fn push_server_error(out: &mut Vec<u8>, error: &EngineError) {
    out.extend_from_slice(b"SERVER_ERROR ");
    out.extend_from_slice(error.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
