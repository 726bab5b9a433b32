//! What does the submitted reads of one volume, started when the first is submitted.

use super::{Pump, ReadThreads};
use situ_base::lock;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

/// A read that waits in a volume.
pub(crate) trait QueuedRead: Send + 'static {
    /// Does the read on this thread, and completes it.
    fn run(self);
}

/// What does the reads.
pub(crate) enum Served<R: QueuedRead> {
    /// One thread with a queue.
    Pump(Pump<R>),
    /// Several threads, each with one read at a time.
    Threads(ReadThreads<R>),
}

impl<R: QueuedRead> Served<R> {
    fn submit(&self, read: R) -> Result<(), R> {
        match self {
            Served::Pump(pump) => pump.submit(read),
            Served::Threads(threads) => threads.submit(read),
        }
    }
}

struct State<R: QueuedRead> {
    started: Option<Arc<Served<R>>>,
    /// Why it could not be started when it was tried last.
    refused: Option<String>,
}

/// The reads of one volume.
pub(crate) struct ReadService<R: QueuedRead> {
    state: Mutex<State<R>>,
}

impl<R: QueuedRead> Default for ReadService<R> {
    fn default() -> ReadService<R> {
        ReadService { state: Mutex::new(State { started: None, refused: None }) }
    }
}

impl<R: QueuedRead> ReadService<R> {
    /// Hands a read over. It is done here if nothing can be started, or if too many wait.
    pub(crate) fn submit(&self, read: R, start: impl FnOnce() -> io::Result<Served<R>>) {
        let started = lock(&self.state).started.clone();
        let refused = match started.or_else(|| self.start(start)) {
            Some(served) => served.submit(read).err(),
            None => Some(read),
        };
        if let Some(read) = refused {
            read.run();
        }
    }

    /// Why reads are done on their callers' threads: the system refused what would do them.
    pub(crate) fn refused(&self) -> Option<String> {
        lock(&self.state).refused.clone()
    }

    /// Starts without the lock, as that may wait. Of two that start at once, one is dropped.
    fn start(&self, start: impl FnOnce() -> io::Result<Served<R>>) -> Option<Arc<Served<R>>> {
        let started = start();
        let mut state = lock(&self.state);
        state.refused = started.as_ref().err().map(ToString::to_string);
        let mut spare = started.ok().map(Arc::new);
        if state.started.is_none() {
            state.started = spare.take();
        }
        let found = state.started.clone();
        drop(state);
        drop(spare);
        found
    }
}

impl<R: QueuedRead> fmt::Debug for ReadService<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match lock(&self.state).started.as_deref() {
            None => "not started",
            Some(Served::Pump(_)) => "a queue",
            Some(Served::Threads(_)) => "threads",
        };
        write!(f, "ReadService({what})")
    }
}
