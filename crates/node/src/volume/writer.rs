//! A file on its way to the node.
//!
//! 1. Appended bytes gather to a piece, and the piece is sent with its offset. Several pieces are under way, up to a
//!    bound.
//! 2. A piece is kept until it is answered. On another connection than the one it was sent on, all that are kept are
//!    sent again, in their order: the node knows by the offset what it has.
//! 3. A sync, a flush and the end wait for an answer. The node does a writer's requests in order, so that answer covers
//!    all pieces.
//!
//! 4. What was appended since the last sync is kept, too, up to [`RESUME_BYTES_MAX`]. A daemon that was restarted does
//!    not know the writer. Then the file goes on behind what was synced ([`Resume`]), and what is kept is appended
//!    again. So a manifest outlives the daemon. Should the connection be lost in between, the next one begins with that
//!    again.
//!
//! **Failure.** After an error, all later calls get that error. A file of which more was not synced is lost with the
//! daemon.

use crate::client::{Attempt, NodeClient};
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{Append, Call, Message, Resume, WriterDrop, WriterFinish, WriterFlush, WriterSync};
use situ_base::{Event, lock};
use situ_storage::{FileName, Result, Writer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum number of bytes without a sync that are kept for a daemon that was restarted.
const RESUME_BYTES_MAX: usize = 1 << 20;

pub(super) struct NodeWriter {
    client: Arc<NodeClient>,
    handle: u64,
    token: u64,
    name: FileName,
    path: String,
    unsynced: Unsynced,
    /// Bytes that are not sent yet.
    buffer: Vec<u8>,
    /// Bytes that were sent: where the buffer begins in the file.
    sent: u64,
    /// The connection on which all pieces that are kept were sent.
    epoch: u64,
    /// The file may lack bytes behind what was synced: a daemon goes on with it, and has not got all of them again.
    is_resuming: bool,
    pieces: Arc<Pieces>,
}

/// The bytes that a restarted daemon would not have.
struct Unsynced {
    /// Bytes that were synced.
    from: u64,
    /// The bytes that were appended behind them; `None` since they became too many.
    bytes: Option<Vec<u8>>,
}

impl Unsynced {
    fn append(&mut self, bytes: &[u8]) {
        let fits = |kept: &Vec<u8>| kept.len() + bytes.len() <= RESUME_BYTES_MAX;
        match self.bytes.as_mut().filter(|kept| fits(kept)) {
            Some(kept) => kept.extend_from_slice(bytes),
            None => self.bytes = None,
        }
    }

    fn synced(&mut self, written: u64) {
        *self = Unsynced { from: written, bytes: Some(Vec::new()) };
    }
}

/// Pieces that are not answered yet.
struct Pieces {
    kept: Mutex<Kept>,
    answered: Arc<dyn Event>,
}

#[derive(Default)]
struct Kept {
    /// Each with its offset.
    pieces: VecDeque<(u64, Arc<Vec<u8>>)>,
    bytes: usize,
    failed: Option<CallError>,
}

impl Pieces {
    /// A piece is answered. What the connection lost is sent again by the writer.
    fn landed(&self, offset: u64, answer: Result<Vec<u8>, CallError>) {
        let mut kept = lock(&self.kept);
        match answer {
            Ok(_) => kept.forget(offset),
            // The node refuses what comes over a connection that has a successor.
            Err(CallError::Lost { .. } | CallError::Busy(_)) => {}
            Err(error) => {
                kept.failed.get_or_insert(error);
            }
        }
        drop(kept);
        self.answered.notify();
    }
}

impl Kept {
    fn forget(&mut self, offset: u64) {
        if let Some(index) = self.pieces.iter().position(|(at, _)| *at == offset) {
            self.bytes -= self.pieces.remove(index).map_or(0, |(_, bytes)| bytes.len());
        }
    }
}

impl NodeWriter {
    pub(super) fn new(
        client: Arc<NodeClient>,
        handle: u64,
        token: u64,
        (name, path): (FileName, String),
        epoch: u64,
    ) -> NodeWriter {
        let unsynced = Unsynced { from: 0, bytes: Some(Vec::new()) };
        let answered = client.shared().options.env.executor.event();
        let pieces = Arc::new(Pieces { kept: Mutex::default(), answered });
        let (buffer, sent, is_resuming) = (Vec::new(), 0, false);
        NodeWriter { client, handle, token, name, path, unsynced, buffer, sent, epoch, is_resuming, pieces }
    }

    fn piece_bytes(&self) -> usize {
        let shared = self.client.shared();
        shared.options.append_bytes.clamp(1, shared.payload_bytes_max() / 2)
    }

    fn fail(&self, op: &'static str, error: CallError) -> situ_storage::Error {
        self.client.shared().note_fenced(&error);
        lock(&self.pieces.kept).failed.get_or_insert_with(|| error.clone());
        error.about(op, &self.path)
    }

    /// Sends what is in the buffer, when there is room for it among what is under way.
    fn send(&mut self) -> Result<(), CallError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.wait_for_room()?;
        let bytes = Arc::new(std::mem::take(&mut self.buffer));
        let offset = self.sent;
        self.sent += bytes.len() as u64;
        let mut kept = lock(&self.pieces.kept);
        kept.bytes += bytes.len();
        kept.pieces.push_back((offset, Arc::clone(&bytes)));
        drop(kept);
        match self.client.shared().alive() {
            Some(attempt) if attempt.epoch == self.epoch => self.send_piece(&attempt, offset, &bytes),
            // The piece is sent with all others when a caller waits.
            _ => {}
        }
        Ok(())
    }

    fn send_piece(&self, attempt: &Attempt, offset: u64, bytes: &Arc<Vec<u8>>) {
        let pieces = Arc::clone(&self.pieces);
        let append = self.append_of(offset, bytes).encode();
        let timeout = self.client.shared().options.write_patience;
        attempt.peer.call_later(Append::OPERATION as u16, append, Some(timeout), move |answer| {
            pieces.landed(offset, answer);
        });
    }

    fn append_of(&self, offset: u64, bytes: &[u8]) -> Append {
        Append { token: self.token, handle: self.handle, offset, data: Rest(bytes.to_vec()) }
    }

    /// Waits until few enough bytes are under way.
    fn wait_for_room(&mut self) -> Result<(), CallError> {
        let shared = Arc::clone(self.client.shared());
        let deadline = shared.now() + shared.options.write_patience;
        loop {
            let seen = self.pieces.answered.generation();
            let bytes = {
                let kept = lock(&self.pieces.kept);
                if let Some(error) = &kept.failed {
                    return Err(error.clone());
                }
                kept.bytes
            };
            if bytes < shared.options.append_bytes_in_flight {
                return Ok(());
            }
            if shared.alive().is_none_or(|attempt| attempt.epoch != self.epoch) {
                self.send_again(deadline)?;
                continue;
            }
            let left = deadline.saturating_sub(shared.now());
            if left.is_zero() {
                return Err(CallError::TimedOut { node: shared.node(), after: shared.options.write_patience });
            }
            // A lost connection completes what is under way, and so notifies.
            self.pieces.answered.wait(seen, Some(left.min(Duration::from_secs(1))));
        }
    }

    /// Waits for a connection, and sends on a new one all pieces that are kept.
    fn send_again(&mut self, deadline: Duration) -> Result<(), CallError> {
        let epoch = self.epoch;
        let shared = Arc::clone(self.client.shared());
        self.epoch = shared.retry_until(deadline, |attempt| {
            if attempt.epoch != epoch {
                self.resend(attempt)?;
            }
            Ok(attempt.epoch)
        })?;
        Ok(())
    }

    /// Puts the writer in order on a new connection: sends all pieces that are kept, in their order.
    fn resend(&mut self, attempt: &Attempt) -> Result<(), CallError> {
        if self.is_resuming {
            return self.resume(attempt, "the file was not resumed to its end".to_owned());
        }
        let kept: Vec<(u64, Arc<Vec<u8>>)> = lock(&self.pieces.kept).pieces.iter().cloned().collect();
        // Without pieces, an append of nothing asks whether the daemon knows the writer.
        let nothing = || (self.sent, Arc::new(Vec::new()));
        for (offset, bytes) in if kept.is_empty() { vec![nothing()] } else { kept } {
            match attempt.ask(&self.append_of(offset, &bytes)) {
                Err(CallError::Unknown(why)) => return self.resume(attempt, why),
                answer => answer.map(|_| ())?,
            }
            lock(&self.pieces.kept).forget(offset);
        }
        Ok(())
    }

    /// Goes on behind what was synced, on a daemon that does not know the writer.
    fn resume(&mut self, attempt: &Attempt, why: String) -> Result<(), CallError> {
        let Unsynced { from, bytes: Some(bytes) } = &self.unsynced else { return Err(CallError::Unknown(why)) };
        self.is_resuming = true;
        let (token, handle, name) = (self.token, self.handle, self.name);
        attempt.ask(&Resume { token, volume: 0, handle, name, written: *from })?;
        // What is in the buffer was not sent, and is sent later.
        let sent = &bytes[..bytes.len() - self.buffer.len()];
        for (index, piece) in sent.chunks(self.piece_bytes()).enumerate() {
            let offset = from + (index * self.piece_bytes()) as u64;
            attempt.ask(&self.append_of(offset, piece))?;
        }
        self.is_resuming = false;
        let mut kept = lock(&self.pieces.kept);
        kept.pieces.clear();
        kept.bytes = 0;
        Ok(())
    }

    /// Sends what is left, and then a request whose answer covers everything before it.
    fn settle<C: Call>(&mut self, call: impl Fn(u64) -> C) -> Result<(), CallError> {
        self.send()?;
        let call = call(self.sent);
        let shared = Arc::clone(self.client.shared());
        let mut epoch = self.epoch;
        let done = shared.retry(shared.options.write_patience, |attempt| {
            if let Some(error) = &lock(&self.pieces.kept).failed {
                return Err(error.clone());
            }
            if attempt.epoch != epoch {
                self.resend(attempt)?;
                epoch = attempt.epoch;
            }
            attempt.ask(&call)
        });
        self.epoch = epoch;
        done?;
        let mut kept = lock(&self.pieces.kept);
        kept.pieces.clear();
        kept.bytes = 0;
        kept.failed.clone().map_or(Ok(()), Err)
    }
}

impl Writer for NodeWriter {
    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        let piece_bytes = self.piece_bytes();
        while !bytes.is_empty() {
            // Pieces may have become shorter with another connection.
            let room = piece_bytes.saturating_sub(self.buffer.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            self.unsynced.append(now);
            bytes = later;
            if self.buffer.len() >= piece_bytes {
                self.send().map_err(|error| self.fail("write", error))?;
            }
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        let (token, handle) = (self.token, self.handle);
        let done = self.settle(|written| WriterSync { token, handle, written });
        done.map_err(|error| self.fail("sync", error))?;
        self.unsynced.synced(self.sent);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let (token, handle) = (self.token, self.handle);
        let done = self.settle(|written| WriterFlush { token, handle, written });
        done.map_err(|error| self.fail("write", error))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let (token, handle) = (self.token, self.handle);
        let done = self.settle(|written| WriterFinish { token, handle, written });
        done.map_err(|error| self.fail("sync", error))
    }
}

impl Drop for NodeWriter {
    fn drop(&mut self) {
        if let Some(peer) = self.client.peer() {
            // The node keeps a finished writer, too, for a client that asks again. Where this does not arrive, the node
            // forgets finished writers when the session has many, and unfinished ones with the session.
            let give_up = WriterDrop { token: self.token, handle: self.handle }.encode();
            let timeout = self.client.shared().options.read_patience;
            peer.call_later(WriterDrop::OPERATION as u16, give_up, Some(timeout), drop);
        }
    }
}
