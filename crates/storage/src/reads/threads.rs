//! A bounded set of threads, each with one read at a time: for what can be read only by a call that blocks.
//!
//! Threads start while reads wait and fewer than [`THREADS_MAX`] run. They end when the last handle is dropped and no
//! read waits.
//!
//! **Failure.** A read that panics completes with an error, and its thread goes on. If the system gives no thread at
//! all, the read is given back.

use super::{QueuedRead, WAITING_READS_MAX};
use situ_base::{Env, Event, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Threads of one volume: enough in flight to keep an SSD busy.
pub(crate) const THREADS_MAX: usize = 16;

struct State<R> {
    waiting: VecDeque<R>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

struct Shared<R> {
    state: Mutex<State<R>>,
    changed: Arc<dyn Event>,
}

/// The handle of the threads.
pub(crate) struct ReadThreads<R> {
    shared: Arc<Shared<R>>,
    env: Env,
}

impl<R: QueuedRead> ReadThreads<R> {
    pub(crate) fn new(env: &Env) -> ReadThreads<R> {
        let state = State { waiting: VecDeque::new(), threads: 0, idle: 0, is_closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: env.executor.event() });
        ReadThreads { shared, env: env.clone() }
    }

    /// Hands a read over; gives one back if too many wait, or if there is no thread at all.
    pub(crate) fn submit(&self, read: R) -> Result<(), R> {
        let mut state = lock(&self.shared.state);
        if state.waiting.len() >= WAITING_READS_MAX {
            return Err(read);
        }
        state.waiting.push_back(read);
        let starts = state.idle < state.waiting.len() && state.threads < THREADS_MAX;
        state.threads += usize::from(starts);
        drop(state);
        self.shared.changed.notify();
        if starts && !self.start_thread() {
            return self.without_thread();
        }
        Ok(())
    }

    /// A thread that was counted is not to be had. If there is no other, what waits is done here: also reads of callers that were
    /// refused a thread at the same time, and counted on this one.
    fn without_thread(&self) -> Result<(), R> {
        let mut left = {
            let mut state = lock(&self.shared.state);
            state.threads -= 1;
            if state.threads > 0 {
                return Ok(());
            }
            std::mem::take(&mut state.waiting)
        };
        let last = left.pop_back();
        left.into_iter().for_each(QueuedRead::run);
        last.map_or(Ok(()), Err)
    }

    fn start_thread(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        self.env.executor.spawn("situ-reads", Box::new(move || serve(&shared))).is_ok()
    }
}

fn serve<R: QueuedRead>(shared: &Shared<R>) {
    loop {
        let seen = shared.changed.generation();
        let read = {
            let mut state = lock(&shared.state);
            let read = state.waiting.pop_front();
            if read.is_none() && state.is_closed {
                return;
            }
            state.idle += usize::from(read.is_none());
            read
        };
        match read {
            // A read that panics has completed by then, as its completion is dropped; reads change nothing.
            Some(read) => drop(catch_unwind(AssertUnwindSafe(|| read.run()))),
            None => {
                shared.changed.wait(seen, None);
                lock(&shared.state).idle -= 1;
            }
        }
    }
}

impl<R> Drop for ReadThreads<R> {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.changed.notify();
    }
}
