//! One connection: requests in a row, and their answers in the same order.
//!
//! [`Connection::advance`] sends what it can, waits for either direction, and reads what has come. A thread that
//! calls it again and again until [`Progress::is_over`] exchanges any number of requests and answers. Requests and
//! answers may be longer than all buffers on the way: sending never keeps the connection from reading.
//!
//! **Invariant.** A connection is used again only in step: everything was sent, every answer has come, and no byte is
//! left.

use crate::answer::{Garbled, LINE_BYTES_MAX, garbled};
use crate::options::{TransportChoice, TransportKind};
use crate::request::Request;
use crate::stream::{self, Stream};
use std::io::{self, ErrorKind, IoSlice};
use std::time::Instant;

/// The bytes read ahead of their use. A line has room in it.
const INBOX_BYTES: usize = 16 << 10;
const _: () = assert!(INBOX_BYTES >= LINE_BYTES_MAX);

/// Reads, and writes, between two looks at the clock.
const CALLS_MAX: usize = 64;

/// Pieces sent in one call.
const PIECES_MAX: usize = 32;

/// Ends every value.
const VALUE_END: &[u8] = b"\r\n";

/// The reason for which a connection cannot be used any longer.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Garbled(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

impl From<Garbled> for Fault {
    fn from(Garbled(text): Garbled) -> Fault {
        Fault::Garbled(text)
    }
}

/// How far an exchange of requests has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The request that is being sent, and the bytes of it that were sent.
    sending: usize,
    sent_bytes: usize,
    /// The number of requests that were answered.
    pub(crate) answered: usize,
}

impl Progress {
    /// Returns true if bytes of this request were sent.
    pub(crate) fn has_begun(&self, request: usize) -> bool {
        request < self.sending || (request == self.sending && self.sent_bytes > 0)
    }

    /// Returns true if all of `count` requests were sent and answered.
    pub(crate) fn is_over(&self, count: usize) -> bool {
        self.sending == count && self.answered == count
    }
}

/// A connection to a server, with the bytes that were read ahead.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    inbox: Box<[u8]>,
    /// The part of `inbox` that no answer has taken.
    start: usize,
    end: usize,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Stream>) -> Connection {
        Connection { stream, inbox: vec![0; INBOX_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Returns true if the server has neither closed the idle connection nor said anything.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.start == self.end && self.stream.is_quiet()
    }

    pub(crate) fn transport(&self) -> TransportKind {
        self.stream.kind()
    }

    /// Returns the connection over the best transport that both sides have and `choice` allows.
    ///
    /// # Errors
    /// As [`stream::upgrade`].
    pub(crate) fn upgrade(self, choice: TransportChoice, deadline: Instant) -> io::Result<Connection> {
        Ok(Connection { stream: stream::upgrade(self.stream, choice, deadline)?, ..self })
    }

    /// Sends and receives until at least one more request was answered, or `until` has passed.
    ///
    /// # Errors
    /// The connection broke or lost its step. The first `progress.answered` requests have their answers all the same.
    pub(crate) fn advance(
        &mut self,
        requests: &mut [Request<'_>],
        progress: &mut Progress,
        until: Instant,
    ) -> Result<(), Fault> {
        let answered_before = progress.answered;
        while progress.answered == answered_before && !progress.is_over(requests.len()) {
            self.send(requests, progress)?;
            if progress.is_over(requests.len()) {
                // The answer came before the end of the command.
                break;
            }
            // An answer takes longer than a call to the system, so looking for it at once would be in vain.
            let to_write = progress.sending < requests.len();
            if !self.stream.wait(to_write, until)? {
                break;
            }
            self.receive(requests, progress)?;
            // A server that always has more to say is no reason to stay.
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Sends until there is no room, or for a bounded number of times.
    fn send(&mut self, requests: &[Request<'_>], progress: &mut Progress) -> Result<(), Fault> {
        for _ in 0..CALLS_MAX {
            let rest = requests.get(progress.sending..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            let mut skip = progress.sent_bytes;
            'fill: for request in rest {
                let value = request.value.as_deref().unwrap_or_default();
                let end = if request.value.is_some() { VALUE_END } else { &[] };
                for piece in [&request.line, value, end] {
                    let skipped = skip.min(piece.len());
                    skip -= skipped;
                    if skipped == piece.len() {
                        continue;
                    }
                    if count == PIECES_MAX {
                        break 'fill;
                    }
                    pieces[count] = IoSlice::new(&piece[skipped..]);
                    count += 1;
                }
            }
            let sent = match self.stream.write(&pieces[..count]) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            progress.sent_bytes += sent;
            while let Some(request) = requests.get(progress.sending)
                && progress.sent_bytes >= request.bytes()
            {
                progress.sent_bytes -= request.bytes();
                progress.sending += 1;
            }
        }
        Ok(())
    }

    /// Reads until there is nothing more, or all answers are there, or for a bounded number of times.
    fn receive(&mut self, requests: &mut [Request<'_>], progress: &mut Progress) -> Result<(), Fault> {
        let mut reads = 0;
        loop {
            self.take(requests, progress)?;
            if reads == CALLS_MAX {
                return Ok(());
            }
            reads += 1;
            let Some(request) = requests.get_mut(progress.answered) else {
                if progress.is_over(requests.len()) {
                    return Ok(());
                }
                // The server has refused a long value early. It may take the rest, or hang up.
                match self.stream.read(&mut self.inbox) {
                    Ok(0) => return Err(hung_up().into()),
                    Ok(count) => return Err(garbled("bytes after the last answer", &self.inbox[..count]).into()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            };
            // The rest of a value goes to its place. What no line has taken waits for its end.
            let is_empty = self.start == self.end;
            let read = match request.answer.gap()? {
                Some(gap) if is_empty && gap.len() >= self.stream.line_read_bytes() => {
                    let read = self.stream.read(gap);
                    if let Ok(count) = &read {
                        request.answer.fill(*count);
                    }
                    read
                }
                _ => {
                    self.inbox.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    let room_end = self.inbox.len().min(self.end + self.stream.line_read_bytes());
                    let read = self.stream.read(&mut self.inbox[self.end..room_end]);
                    self.end += read.as_ref().copied().unwrap_or(0);
                    read
                }
            };
            match read {
                Ok(0) => return Err(hung_up().into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives the bytes in the inbox to the answers.
    fn take(&mut self, requests: &mut [Request<'_>], progress: &mut Progress) -> Result<(), Fault> {
        loop {
            let bytes = &self.inbox[self.start..self.end];
            let Some(request) = requests.get_mut(progress.answered) else {
                return match bytes {
                    [] => Ok(()),
                    _ => Err(garbled("bytes after the last answer", bytes).into()),
                };
            };
            if !bytes.is_empty() && !progress.has_begun(progress.answered) {
                return Err(garbled("an answer before its command", bytes).into());
            }
            let Request { line, value, answer, .. } = request;
            let taken = answer.take(line, bytes)?;
            self.start += taken;
            if answer.is_done() {
                progress.answered += 1;
                if answer.loses_step(value.is_some()) {
                    return Err(Fault::Garbled("the server may read a refused value as commands".to_owned()));
                }
            } else if taken == 0 {
                return Ok(());
            }
        }
    }
}

fn hung_up() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

#[cfg(test)]
mod tests;
