//! An unfinished file of a session, to which any of the node's threads may append in turn.

use super::open_files::Place;
use situ_base::{Env, Event, lock};
use situ_storage::{Error, FileName, Result, Writer};
use std::sync::{Arc, Mutex};

pub(super) struct Unfinished {
    pub(super) name: FileName,
    state: Mutex<State>,
    put_back: Arc<dyn Event>,
    _place: Place,
}

enum State {
    /// A thread has it.
    Taken,
    Open(Box<dyn Writer>),
    /// With this many bytes.
    Finished(u64),
    Failed(Error),
}

impl Unfinished {
    pub(super) fn new(env: &Env, name: FileName, writer: Box<dyn Writer>, place: Place) -> Unfinished {
        Unfinished { name, state: Mutex::new(State::Open(writer)), put_back: env.executor.event(), _place: place }
    }

    pub(super) fn is_finished(&self) -> bool {
        matches!(*lock(&self.state), State::Finished(_))
    }

    fn take(&self) -> State {
        loop {
            let seen = self.put_back.generation();
            match std::mem::replace(&mut *lock(&self.state), State::Taken) {
                State::Taken => self.put_back.wait(seen, None),
                state => return state,
            };
        }
    }

    /// Does `work` with the writer; of one that has failed or is finished, `otherwise` decides.
    fn turn<T>(
        &self,
        work: impl FnOnce(Box<dyn Writer>) -> (State, Result<T>),
        finished: impl FnOnce(u64) -> Result<T>,
    ) -> Result<T> {
        let (state, outcome) = match self.take() {
            State::Open(writer) => work(writer),
            State::Finished(bytes) => (State::Finished(bytes), finished(bytes)),
            State::Failed(error) => (State::Failed(error.clone()), Err(error)),
            State::Taken => unreachable!("a state that was taken is waited for"),
        };
        let taken = std::mem::replace(&mut *lock(&self.state), state);
        assert!(matches!(taken, State::Taken), "two threads have the writer of {}", self.name);
        self.put_back.notify();
        outcome
    }

    /// Appends what the file does not have yet; how many bytes it has then.
    pub(super) fn append(&self, offset: u64, bytes: &[u8]) -> Result<u64> {
        let end = offset + bytes.len() as u64;
        let path = self.name;
        self.turn(
            |mut writer| {
                let has = writer.written();
                if offset > has {
                    let gap = format!("{path} has {has} bytes, and an append begins at {offset}");
                    return (State::Open(writer), Err(Error::Invalid(gap)));
                }
                let new = bytes.get((has - offset) as usize..).unwrap_or_default();
                let outcome = if new.is_empty() { Ok(()) } else { writer.append(new) };
                let length = writer.written();
                assert!(outcome.is_err() || length == has.max(end), "{path} has {length} bytes: {has}, then to {end}");
                kept(writer, outcome)
            },
            |has| if end <= has { Ok(has) } else { Err(finished(path, has)) },
        )
    }

    /// Hands the appended bytes to the system; with `durable`, makes them durable, and the name. The file has `bytes`.
    pub(super) fn sync(&self, bytes: u64, durable: bool) -> Result<u64> {
        let path = self.name;
        self.turn(
            |mut writer| {
                let outcome = match writer.written() {
                    has if has != bytes => return (State::Open(writer), Err(other_length(path, has, bytes))),
                    _ if durable => writer.sync(),
                    _ => writer.flush(),
                };
                kept(writer, outcome)
            },
            |has| if has == bytes { Ok(has) } else { Err(other_length(path, has, bytes)) },
        )
    }

    /// Finishes the file, which has `bytes`.
    pub(super) fn finish(&self, bytes: u64) -> Result<u64> {
        let path = self.name;
        self.turn(
            |writer| match writer.written() {
                has if has != bytes => (State::Open(writer), Err(other_length(path, has, bytes))),
                has => match writer.finish() {
                    Ok(()) => (State::Finished(has), Ok(has)),
                    Err(error) => (State::Failed(error.clone()), Err(error)),
                },
            },
            |has| if has == bytes { Ok(has) } else { Err(other_length(path, has, bytes)) },
        )
    }
}

/// After an error the file takes nothing more.
fn kept(writer: Box<dyn Writer>, outcome: Result<()>) -> (State, Result<u64>) {
    let has = writer.written();
    match outcome {
        Ok(()) => (State::Open(writer), Ok(has)),
        Err(error) => (State::Failed(error.clone()), Err(error)),
    }
}

fn finished(name: FileName, has: u64) -> Error {
    Error::Invalid(format!("{name} is finished with {has} bytes, and takes no more"))
}

fn other_length(name: FileName, has: u64, expected: u64) -> Error {
    Error::Invalid(format!("{name} has {has} bytes here, and {expected} bytes for the client"))
}
