//! The mechanism for the submitted reads of one volume, started when the first is submitted.

use super::{Pump, WAITING_READS_MAX};
use situ_base::{Env, Queue, Workers, lock};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

/// A read that waits in a volume.
pub trait QueuedRead: Send + 'static {
    /// Does the read on this thread, and completes it.
    fn run(self);
}

/// The mechanism that does the reads.
pub enum Served<R: QueuedRead> {
    /// One thread with a queue.
    Pump(Pump<R>),
    /// Several threads, each with one read at a time.
    Threads(Workers<R>),
}

/// Threads of one volume that read by calls that block: enough in flight to keep an SSD busy.
pub(crate) const THREADS_MAX: usize = 16;

impl<R: QueuedRead> Served<R> {
    /// Threads for what can be read only by a call that blocks. They end when the last handle is dropped and no read
    /// waits.
    pub fn threads(env: &Env) -> Served<R> {
        Served::Threads(Workers::new(env, "situ-reads", THREADS_MAX, WAITING_READS_MAX))
    }

    /// Hands a read over. Reads that are not done by another thread come back.
    pub fn submit(&self, read: R) -> Result<(), Vec<R>> {
        match self {
            Served::Pump(pump) => pump.submit(read).map_err(|read| vec![read]),
            // A read that panics has completed by then, as its completion is dropped; reads change nothing.
            Served::Threads(workers) => workers.submit(read, || |queue: &Queue<R>| queue.serve(R::run)),
        }
    }
}

struct State<R: QueuedRead> {
    started: Option<Arc<Served<R>>>,
    /// The reason why it could not be started when it was tried last.
    refused: Option<String>,
}

/// The reads of one volume.
pub struct ReadService<R: QueuedRead> {
    state: Mutex<State<R>>,
}

impl<R: QueuedRead> Default for ReadService<R> {
    fn default() -> ReadService<R> {
        ReadService { state: Mutex::new(State { started: None, refused: None }) }
    }
}

impl<R: QueuedRead> ReadService<R> {
    /// Hands a read over. It is done here if nothing can be started, or if too many wait.
    pub fn submit(&self, read: R, start: impl FnOnce() -> io::Result<Served<R>>) {
        let started = lock(&self.state).started.clone();
        let done = match started.or_else(|| self.start(start)) {
            Some(served) => served.submit(read),
            None => Err(vec![read]),
        };
        done.err().into_iter().flatten().for_each(R::run);
    }

    /// Returns the reason why reads are done on their callers' threads: the system refused the mechanism for them.
    pub fn refused(&self) -> Option<String> {
        lock(&self.state).refused.clone()
    }

    /// Starts without the lock, as that may wait. If two start at once, one is dropped.
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
