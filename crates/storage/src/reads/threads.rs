//! A bounded set of threads, each with one read at a time: for what can be read only by a call that blocks.
//!
//! Threads start while reads wait and fewer than [`THREADS_MAX`] run. They end when the last handle is dropped and no
//! read waits.
//!
//! **Failure.** A read that panics completes with an error, and its thread goes on. If the system gives no thread at
//! all, the caller does all reads that wait.

use super::{QueuedRead, WAITING_READS_MAX};
use situ_device::{Env, Event, lock};
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

    /// Hands a read over; gives it back if too many wait. If no thread can be had at all, the caller runs what waits.
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
            let mut state = lock(&self.shared.state);
            state.threads -= 1;
            // With no thread at all, nobody else would take what other callers have put here meanwhile.
            let left = if state.threads == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
            drop(state);
            left.into_iter().for_each(contained);
        }
        Ok(())
    }

    fn start_thread(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        self.env.executor.spawn("situ-reads", Box::new(move || serve(&shared))).is_ok()
    }
}

/// A read that panics has completed by then, as its completion is dropped; reads change nothing.
fn contained<R: QueuedRead>(read: R) {
    drop(catch_unwind(AssertUnwindSafe(|| read.run())));
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
            Some(read) => contained(read),
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
