//! A file that is open on the node.

use super::VOLUME;
use super::names::{Named, Names};
use crate::client::{Attempt, Shared};
use crate::error::CallError;
use crate::message::{Call, Close, Message, Open, OpenPages, ReadBytes};
use situ_storage::{Error, FileName};
use std::sync::Arc;

/// An open file or page file. Dropped, it is closed on the node.
pub(super) struct OpenFile {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: u64,
    name: Arc<Named>,
    /// For messages: the name that it had when it was opened.
    pub(super) path: String,
    pub(super) bytes: u64,
    is_pages: bool,
    names: Arc<Names>,
}

impl OpenFile {
    /// The file that a client has opened under this number; a page file if `is_pages`.
    pub(super) fn new(
        shared: &Arc<Shared>,
        names: &Arc<Names>,
        (handle, name): (u64, FileName),
        bytes: u64,
        is_pages: bool,
    ) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            shared: Arc::clone(shared),
            handle,
            name: names.opened(name),
            path: format!("{}/{name}", shared.address),
            bytes,
            is_pages,
            names: Arc::clone(names),
        })
    }

    /// The name that it has by now.
    pub(super) fn name(&self) -> Option<FileName> {
        self.name.get()
    }

    /// Asks something of the file; opens it again if the node does not know it any more.
    pub(super) fn ask<C: Call>(&self, attempt: &Attempt, call: &C) -> Result<C::Answer, CallError> {
        self.known(attempt, || attempt.ask(call))
    }

    /// Asks for bytes of the file, exactly `bytes` of them. All of the answer's payload is bytes, which are not copied
    /// here.
    pub(super) fn read<C: Call<Answer = ReadBytes>>(
        &self,
        attempt: &Attempt,
        call: &C,
        bytes: usize,
    ) -> Result<Vec<u8>, CallError> {
        let ask = || attempt.peer.call(C::OPERATION as u16, call.encode(), attempt.left());
        let answer = self.known(attempt, ask)?;
        fit(&answer, bytes).map(|()| answer)
    }

    fn known<T>(&self, attempt: &Attempt, ask: impl Fn() -> Result<T, CallError>) -> Result<T, CallError> {
        match ask() {
            Err(CallError::Unknown(_)) => {
                self.open_again(attempt)?;
                ask()
            }
            answer => answer,
        }
    }

    fn open_again(&self, attempt: &Attempt) -> Result<(), CallError> {
        let Some(name) = self.name() else {
            return Err(CallError::Storage(Error::NotFound { path: self.path.clone() }));
        };
        let handle = self.handle;
        let opened = match self.is_pages {
            true => attempt.ask(&OpenPages { volume: VOLUME, handle, name })?,
            false => attempt.ask(&Open { volume: VOLUME, handle, name })?,
        };
        if opened.bytes == self.bytes {
            return Ok(());
        }
        let (expected, found) = (format!("{} bytes", self.bytes), format!("{} bytes", opened.bytes));
        let found = format!("{found} after the node was restarted");
        Err(CallError::Storage(Error::corruption(&self.path, opened.bytes, "file length", expected, found)))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.let_go(self.handle);
        self.names.closed(&self.name);
        if let Some(attempt) = self.shared.alive() {
            let close = Close { handle: self.handle }.encode();
            // Where it does not arrive, the next connection says what stays open.
            let timeout = Some(self.shared.options.read_patience);
            attempt.peer.call_later(Close::OPERATION as u16, close, timeout, drop);
        }
    }
}

/// An answer that is too short or too long is no answer.
pub(super) fn fit(answer: &[u8], bytes: usize) -> Result<(), CallError> {
    match answer.len() == bytes {
        true => Ok(()),
        false => {
            let found = format!("{} bytes", answer.len());
            let error = Error::corruption("an answer of a node", 0, "bytes", format!("{bytes} bytes"), found);
            Err(CallError::Storage(error))
        }
    }
}
