//! Files of the host's store, as a node that only computes uses them: over the connection, from the host.
//!
//! Reads are asked for again over the next connection, for the session's time at most. Appends are not: a table that
//! the host was sent a part of is lost with the connection, and the task with it. The host then has another unit do the
//! task. A host may be connected and answer nothing. So each wait for an answer ends when the attempt is given up; a
//! wait for credit, after 30 s.
//!
//! **Threads.** A task's own. Answers to appends come on the connection's. **Bounds.** 4 MiB of appends are under way
//! for a table.

use crate::error::CallError;
use crate::fields::Rest;
use crate::host_connection::HostConnection;
use crate::message::{
    Append, Call, Close, Create, Message, Open, Operation, Read, WriterDrop, WriterFinish, WriterSync,
};
use crate::peer::Peer;
use crate::task_files::{GivenUp, TaskFiles};
use situ_base::lock;
use situ_storage::{Error, FileName, Reader, Result, Writer};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Within this time the host answers, or is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// The maximum number of bytes of a file in a message.
const PIECE_BYTES: usize = 512 << 10;
/// The maximum number of bytes of a table that are under way.
const AHEAD_BYTES: usize = 4 << 20;

/// The host's answer to a request.
type Answer = std::result::Result<Vec<u8>, CallError>;

/// A volume that the host serves.
pub(crate) struct HostFiles {
    connection: Arc<HostConnection>,
    volume: u32,
}

impl HostFiles {
    pub(crate) fn new(connection: Arc<HostConnection>, volume: u32) -> HostFiles {
        HostFiles { connection, volume }
    }

    fn asked(&self, given_up: &GivenUp) -> Asked {
        Asked { connection: Arc::clone(&self.connection), given_up: given_up.clone() }
    }
}

/// The host, as an attempt asks it for files.
#[derive(Clone)]
struct Asked {
    connection: Arc<HostConnection>,
    given_up: GivenUp,
}

impl Asked {
    fn check(&self) -> Result<()> {
        match self.given_up.is_set() {
            true => Err(Error::Invalid("the host has given the task up".to_owned())),
            false if self.connection.is_over() => Err(away()),
            false => Ok(()),
        }
    }

    /// Asks the host, again over each new connection.
    fn ask<C: Call>(&self, request: &C) -> Result<C::Answer> {
        let payload = request.encode();
        loop {
            let seen = self.connection.changed.generation();
            self.check()?;
            let Some(peer) = self.connection.peer() else {
                self.connection.wait(seen);
                continue;
            };
            match self.answer(&peer, C::OPERATION, payload.clone())? {
                Err(error) if error.is_lost() => {}
                answer => return C::Answer::decode(&answer?),
            }
        }
    }

    /// Waits for the answer over one connection.
    fn answer(&self, peer: &Peer, asked: Operation, payload: Vec<u8>) -> Result<Answer> {
        let landed = Arc::new(Mutex::new(None));
        let (slot, connection) = (Arc::clone(&landed), Arc::clone(&self.connection));
        peer.call_later(asked as u16, payload, Some(ANSWERS_WITHIN), move |answer| {
            *lock(&slot) = Some(answer);
            connection.changed.notify();
        });
        loop {
            let seen = self.connection.changed.generation();
            if let Some(answer) = lock(&landed).take() {
                return Ok(answer);
            }
            self.check()?;
            self.connection.wait(seen);
        }
    }
}

fn away() -> Error {
    Error::Invalid("the host that serves the files is away".to_owned())
}

/// Tells the host what it may know or not.
fn tell(connection: &HostConnection, operation: Operation, payload: Vec<u8>) {
    if let Some(peer) = connection.peer() {
        // The host drops what an attempt has open when the attempt ends.
        let _ = peer.notify(operation, payload, Duration::from_secs(1));
    }
}

impl TaskFiles for HostFiles {
    fn open(&self, number: u64, given_up: &GivenUp) -> Result<Arc<dyn Reader>> {
        let (host, handle) = (self.asked(given_up), self.connection.new_handle());
        let opened = host.ask(&Open { volume: self.volume, handle, name: FileName::Table(number) })?;
        Ok(Arc::new(HostReader { host, handle, bytes: opened.bytes, path: opened.path }))
    }

    fn create(&self, token: u64, number: u64, bound: u64, given_up: &GivenUp) -> Result<Box<dyn Writer>> {
        let (host, handle) = (self.asked(given_up), self.connection.new_handle());
        let name = FileName::Table(number);
        host.ask(&Create { token, volume: self.volume, handle, name, bound })?;
        let Some(peer) = self.connection.peer() else { return Err(away()) };
        let way = Arc::new(Way { host: host.clone(), state: Mutex::default() });
        let writer = HostWriter { host, peer, token, handle, gathered: Vec::new(), sent: 0, way, is_over: false };
        Ok(Box::new(writer))
    }

    fn remove(&self, _token: u64, _number: u64) -> Result<()> {
        // The host has made it, and clears its places.
        Ok(())
    }
}

struct HostReader {
    host: Asked,
    handle: u64,
    bytes: u64,
    path: String,
}

impl Reader for HostReader {
    fn path(&self) -> &str {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            let expected = format!("{} bytes from {offset}", into.len());
            return Err(Error::corruption(&self.path, offset, "file length", expected, self.bytes));
        }
        let mut at = offset;
        for piece in into.chunks_mut(PIECE_BYTES) {
            // A piece is shorter than the bound.
            let ranges = vec![(at, u32::try_from(piece.len()).unwrap_or(0))];
            let Rest(data) = self.host.ask(&Read { handle: self.handle, ranges })?.data;
            if data.len() != piece.len() {
                return Err(Error::corruption(&self.path, at, "answer of the host", piece.len(), data.len()));
            }
            piece.copy_from_slice(&data);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl Drop for HostReader {
    fn drop(&mut self) {
        tell(&self.host.connection, Operation::Close, Close { handle: self.handle }.encode());
    }
}

/// Appends that are under way.
struct Way {
    host: Asked,
    state: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    bytes: usize,
    failed: Option<Error>,
}

impl Way {
    fn arrived(&self, bytes: usize, answer: Answer) {
        let mut state = lock(&self.state);
        assert!(bytes <= state.bytes, "{bytes} bytes have arrived of {} that were under way", state.bytes);
        state.bytes -= bytes;
        if let Err(error) = answer {
            state.failed.get_or_insert(error.into());
        }
        drop(state);
        self.host.connection.changed.notify();
    }

    /// Waits until at most `bytes_max` bytes are under way.
    fn wait(&self, bytes_max: usize) -> Result<()> {
        loop {
            let seen = self.host.connection.changed.generation();
            let state = lock(&self.state);
            match &state.failed {
                Some(error) => return Err(error.clone()),
                None if state.bytes <= bytes_max => return Ok(()),
                None => drop(state),
            }
            self.host.check()?;
            self.host.connection.wait(seen);
        }
    }
}

struct HostWriter {
    host: Asked,
    /// The connection that all of it goes over.
    peer: Peer,
    token: u64,
    handle: u64,
    gathered: Vec<u8>,
    /// Bytes that the host was sent.
    sent: u64,
    way: Arc<Way>,
    is_over: bool,
}

impl HostWriter {
    fn send(&mut self) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.way.wait(AHEAD_BYTES)?;
        let data = std::mem::take(&mut self.gathered);
        let bytes = data.len();
        let append = Append { token: self.token, handle: self.handle, offset: self.sent, data: Rest(data) };
        self.sent += bytes as u64;
        {
            let mut state = lock(&self.way.state);
            state.bytes += bytes;
            assert!(state.bytes <= AHEAD_BYTES + PIECE_BYTES, "{} bytes are under way", state.bytes);
        }
        let way = Arc::clone(&self.way);
        let arrived = move |answer| way.arrived(bytes, answer);
        self.peer.call_later(Append::OPERATION as u16, append.encode(), Some(ANSWERS_WITHIN), arrived);
        Ok(())
    }
}

impl Writer for HostWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.gathered.len() + piece.len() > PIECE_BYTES {
                self.send()?;
            }
            self.gathered.extend_from_slice(piece);
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.sent + self.gathered.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.host.ask(&WriterSync { token: self.token, handle: self.handle, written: self.sent }).map(drop)
    }

    fn flush(&mut self) -> Result<()> {
        self.send()?;
        self.way.wait(0)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()?;
        let (written, under_way) = (self.written(), lock(&self.way.state).bytes);
        assert!(written == self.sent && under_way == 0, "{written} bytes, {} sent, {under_way} under way", self.sent);
        self.is_over = true;
        let request = WriterFinish { token: self.token, handle: self.handle, written: self.sent };
        self.host.ask(&request).map(drop)
    }
}

impl Drop for HostWriter {
    fn drop(&mut self) {
        if !self.is_over {
            let drop = WriterDrop { token: self.token, handle: self.handle };
            tell(&self.host.connection, Operation::WriterDrop, drop.encode());
        }
    }
}
