//! The sink of frames: the stream, and the bytes that it has not taken yet.
//!
//! 1. A thread that has queued a frame calls [`Shared::send_now`]. If no other thread writes, it takes the next frames
//!    and offers them to the stream. What the stream does not take at once is kept, in front of everything else, for
//!    the writer thread.
//! 2. The writer thread writes what is kept, then what is queued, and waits for the stream if it must.
//!
//! **Invariants.** Frames leave in the order in which they are taken from the queue: they are taken under the sink's
//! lock, which is held until they are written or kept. Urgent frames are taken before the bulk, each kind in its order
//! (`peer/state.rs`). Only the writer thread waits for the stream. What is kept is no more than was taken at once.
//! **Threads.** Who finds the sink locked wakes the writer thread, which waits for the lock. So no frame is left
//! behind.
//! **Failure.** An error that a caller meets is left to the writer thread, which meets it, too, and ends the
//! connection.

use super::Shared;
use super::state::Outgoing;
use super::stream::TryWrite;
use crate::frame::flag;
use crate::message::Operation;
use situ_base::lock;
use std::io::{self, Write};
use std::time::Duration;

/// The maximum number of bytes of short frames that are gathered for one write.
const GATHER_BYTES: usize = 64 << 10;

/// See the module.
pub(super) struct Sink {
    writer: Box<dyn Write + Send>,
    try_write: Option<TryWrite>,
    gathered: Vec<u8>,
    /// Bytes that were taken from the queue, and not by the stream yet.
    unsent: Vec<u8>,
}

/// The last act of the writer thread, or its next one.
pub(super) enum Turn {
    /// It has written.
    Wrote,
    /// There is nothing for this long.
    Wait(Duration),
    /// The connection is lost.
    End,
}

impl Sink {
    pub(super) fn new(writer: Box<dyn Write + Send>, try_write: Option<TryWrite>) -> Sink {
        Sink { writer, try_write, gathered: Vec::with_capacity(GATHER_BYTES), unsent: Vec::new() }
    }

    /// Writes the next frames. For the writer thread: waits for the stream.
    pub(super) fn write_next(&mut self, shared: &Shared) -> io::Result<Turn> {
        if !self.unsent.is_empty() {
            self.writer.write_all(&std::mem::take(&mut self.unsent))?;
        }
        match next(shared, &mut self.gathered, true) {
            Next::Write(long) => {
                self.writer.write_all(&self.gathered)?;
                self.writer.write_all(&long)?;
                self.writer.flush()?;
                Ok(Turn::Wrote)
            }
            Next::Wait(timeout) => Ok(Turn::Wait(timeout)),
            Next::End => Ok(Turn::End),
        }
    }

    /// Offers the next frames to the stream; whether nothing is left for the writer thread.
    fn offer_next(&mut self, shared: &Shared) -> bool {
        let Some(try_write) = self.try_write.as_mut().filter(|_| self.unsent.is_empty()) else { return false };
        {
            let state = lock(&shared.state);
            let is_full = state.queued_bytes >= shared.options.queue_bytes_max;
            // Long frames, and those that others wait behind, are the writer thread's.
            if state.queued_bytes > GATHER_BYTES || is_full {
                return false;
            }
        }
        let Next::Write(long) = next(shared, &mut self.gathered, false) else { return true };
        let taken = try_write(&self.gathered).unwrap_or(0);
        self.unsent.extend_from_slice(&self.gathered[taken..]);
        self.unsent.extend_from_slice(&long);
        self.unsent.is_empty()
    }
}

impl Shared {
    /// Writes the queued frames if that makes no thread wait. Wakes the writer thread if something is left for it, or
    /// if it `must_wake`.
    pub(super) fn send_now(&self, must_wake: bool) {
        let is_sent = self.sink.try_lock().is_ok_and(|mut sink| sink.offer_next(self));
        if !is_sent || must_wake {
            self.work.notify();
        }
    }
}

enum Next {
    /// The payload to write after the gathered frames.
    Write(Vec<u8>),
    /// Nothing for this long.
    Wait(Duration),
    End,
}

/// Gathers the next frames, short ones together.
fn next(shared: &Shared, gathered: &mut Vec<u8>, is_writer: bool) -> Next {
    gathered.clear();
    let now = shared.now();
    let mut state = lock(&shared.state);
    if state.lost.is_some() {
        return Next::End;
    }
    let silent_since = now.saturating_sub(state.sent_at);
    let is_due = silent_since >= shared.options.heartbeat || state.owed >= u64::from(shared.options.window_bytes / 4);
    while gathered.len() < GATHER_BYTES {
        let Some((frame, grant)) = state.next_frame() else { break };
        state.sent_at = now;
        gathered.extend_from_slice(&frame.header(shared.side, grant).encode());
        shared.traffic.add_sent(frame.operation(), frame.payload.len());
        if gathered.len() + frame.payload.len() > GATHER_BYTES {
            return Next::Write(frame.payload);
        }
        gathered.extend_from_slice(&frame.payload);
    }
    if gathered.is_empty() && is_due {
        let frame = Outgoing::new(Operation::Heartbeat as u16, flag::ONE_WAY, 0, 0, Vec::new());
        let grant = state.take_grant();
        state.sent_at = now;
        gathered.extend_from_slice(&frame.header(shared.side, grant).encode());
        shared.traffic.add_sent(frame.operation(), 0);
    }
    if !gathered.is_empty() {
        return Next::Write(Vec::new());
    }
    let until_heartbeat = shared.options.heartbeat.saturating_sub(silent_since);
    let until_deadline = state.next_deadline().map_or(Duration::MAX, |deadline| deadline.saturating_sub(now));
    let until_silence = shared.options.silence_max.saturating_sub(shared.silent_for());
    let wait = until_heartbeat.min(until_deadline).min(until_silence);
    if is_writer {
        state.writer_wakes_at = now + wait;
    }
    Next::Wait(wait)
}
