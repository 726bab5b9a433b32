//! A read that completes later; see [`ReadQueue`](crate::ReadQueue).

use crate::{Error, Result};
use std::fmt;
use std::io;

/// A read on its way to a [`Reader`](crate::Reader), with all that is needed to answer it.
#[derive(Debug)]
pub struct ReadRequest {
    /// First byte in the file.
    pub offset: u64,
    /// The buffer, which the read fills whole.
    pub buffer: Vec<u8>,
    /// The receiver of the outcome.
    pub completion: ReadCompletion,
}

impl ReadRequest {
    /// Creates a read whose outcome goes to `answer`, once, with the buffer. `answer` runs on the thread that has the
    /// outcome; it neither blocks nor panics. If the read is given up, it gets an error and perhaps an empty buffer.
    pub fn new(offset: u64, buffer: Vec<u8>, answer: impl FnOnce(Vec<u8>, Result<()>) + Send + 'static) -> ReadRequest {
        ReadRequest { offset, buffer, completion: ReadCompletion { answer: Some(Box::new(answer)) } }
    }

    /// Reads now, on this thread, and completes.
    pub fn run(self, read: impl FnOnce(u64, &mut [u8]) -> Result<()>) {
        let ReadRequest { offset, mut buffer, completion } = self;
        let result = read(offset, &mut buffer);
        completion.complete(buffer, result);
    }
}

type Answer = Box<dyn FnOnce(Vec<u8>, Result<()>) + Send>;

/// The right and the duty to complete one read, once.
///
/// Dropped, it completes the read with an error: a thread that panics or a connection that is lost leaves no caller
/// waiting.
#[must_use = "dropping it tells the caller that the read was given up"]
pub struct ReadCompletion {
    answer: Option<Answer>,
}

impl ReadCompletion {
    /// Gives the buffer back with the outcome. Called with no lock held.
    pub fn complete(mut self, buffer: Vec<u8>, result: Result<()>) {
        if let Some(answer) = self.answer.take() {
            answer(buffer, result);
        }
    }
}

impl Drop for ReadCompletion {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            let why = "whatever was to answer it has ended; try again";
            answer(Vec::new(), Err(Error::io("complete", "a read", io::Error::new(io::ErrorKind::Interrupted, why))));
        }
    }
}

impl fmt::Debug for ReadCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadCompletion")
    }
}
