//! Reads of a finished file on the node.
//!
//! A submitted read is completed by the thread that receives its answer. One that is lost with its connection goes to
//! the thread for second tries, which may wait for the next connection.

use super::open::{OpenFile, fit};
use crate::client::{NodeClient, Shared};
use crate::error::CallError;
use crate::message::{Call, Message, Operation, Prefetch, Read};
use situ_base::lock;
use situ_storage::{Error, ReadCompletion, ReadRequest, Reader, Result};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct NodeReader {
    /// Keeps the connection while the file is open.
    client: Arc<NodeClient>,
    file: Arc<OpenFile>,
}

impl NodeReader {
    pub(super) fn new(client: Arc<NodeClient>, file: Arc<OpenFile>) -> NodeReader {
        NodeReader { client, file }
    }
}

impl OpenFile {
    fn check_range(&self, offset: u64, bytes: usize) -> Result<()> {
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => {
                let found = format!("the end of the file at {}", self.bytes);
                Err(Error::corruption(&self.path, offset, "file length", format!("{bytes} bytes"), found))
            }
        }
    }

    /// Reads in pieces that fit into frames, with all tries that there is time for.
    fn read_until(&self, deadline: Duration, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < into.len() {
            let read = self.shared.retry_until(deadline, |attempt| {
                let bytes = (into.len() - done).min(attempt.peer.payload_bytes_max());
                let ranges = vec![(offset + done as u64, bytes as u32)];
                self.read(attempt, &Read { handle: self.handle, ranges }, bytes)
            });
            let read = read.map_err(|error| error.about("read", &self.path))?;
            into[done..done + read.len()].copy_from_slice(&read);
            done += read.len();
        }
        Ok(())
    }
}

impl Reader for NodeReader {
    fn path(&self) -> &str {
        &self.file.path
    }

    fn bytes(&self) -> u64 {
        self.file.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.check_range(offset, into.len())?;
        let deadline = self.file.shared.now() + self.file.shared.options.read_patience;
        self.file.read_until(deadline, offset, into)
    }

    fn submit(&self, request: ReadRequest) {
        let ReadRequest { offset, buffer, completion } = request;
        if let Err(error) = self.file.check_range(offset, buffer.len()) {
            return completion.complete(buffer, Err(error));
        }
        if buffer.is_empty() {
            return completion.complete(buffer, Ok(()));
        }
        let patience = self.file.shared.options.read_patience;
        let deadline = self.file.shared.now() + patience;
        let submitted = Submitted { file: Arc::clone(&self.file), offset, deadline, buffer, completion };
        match self.client.peer() {
            Some(peer) => submitted.send(&peer, patience),
            None => submitted.again(),
        }
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        let Some(peer) = self.client.peer() else { return };
        // A hint that cannot go at once is not worth a wait.
        let prefetch = Prefetch { handle: self.file.handle, offset, bytes }.encode();
        let _ = peer.notify(Operation::Prefetch, prefetch, Duration::ZERO);
    }
}

/// A read that was submitted.
struct Submitted {
    file: Arc<OpenFile>,
    offset: u64,
    deadline: Duration,
    buffer: Vec<u8>,
    completion: ReadCompletion,
}

/// A read of which pieces are under way.
struct InFlight {
    submitted: Option<Submitted>,
    pieces: usize,
    failed: Option<CallError>,
}

impl Submitted {
    fn send(self, peer: &crate::Peer, patience: Duration) {
        let (handle, offset, bytes) = (self.file.handle, self.offset, self.buffer.len());
        let most = peer.payload_bytes_max();
        let starts = (0..bytes).step_by(most);
        let flight = InFlight { pieces: starts.len(), submitted: Some(self), failed: None };
        let flight = Arc::new(Mutex::new(flight));
        for start in starts {
            let length = most.min(bytes - start);
            let read = Read { handle, ranges: vec![(offset + start as u64, length as u32)] };
            let flight = Arc::clone(&flight);
            peer.call_later(Read::OPERATION as u16, read.encode(), Some(patience), move |answer| {
                landed(&flight, start, length, answer);
            });
        }
    }

    /// Tries again where waiting is allowed.
    fn again(self) {
        let shared = Arc::clone(&self.file.shared);
        shared.try_again(move |_: &Shared| {
            let Submitted { file, offset, deadline, mut buffer, completion } = self;
            let result = file.read_until(deadline, offset, &mut buffer);
            completion.complete(buffer, result);
        });
    }

    fn finish(self, failed: Option<CallError>) {
        match failed {
            None => self.completion.complete(self.buffer, Ok(())),
            Some(CallError::Lost { .. } | CallError::Busy(_) | CallError::Unknown(_)) => self.again(),
            Some(error) => {
                let error = error.about("read", &self.file.path);
                self.completion.complete(self.buffer, Err(error));
            }
        }
    }
}

/// A piece has an answer; the last one finishes the read.
fn landed(flight: &Mutex<InFlight>, start: usize, length: usize, answer: Result<Vec<u8>, CallError>) {
    let mut flight = lock(flight);
    let answer = answer.and_then(|bytes| fit(&bytes, length).map(|()| bytes));
    match (answer, &mut flight.submitted) {
        (Ok(bytes), Some(submitted)) => submitted.buffer[start..start + length].copy_from_slice(&bytes),
        (Err(error), _) => flight.failed = Some(error),
        (Ok(_), None) => {}
    }
    flight.pieces -= 1;
    let done = if flight.pieces == 0 { flight.submitted.take() } else { None };
    let failed = if done.is_some() { flight.failed.take() } else { None };
    drop(flight);
    if let Some(submitted) = done {
        submitted.finish(failed);
    }
}
