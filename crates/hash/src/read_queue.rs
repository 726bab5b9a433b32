//! Reads that wait for a thread of the store.
//!
//! **Invariants.** What was pushed is taken once. After the close nothing is pushed; what waits is still taken.
//! **Threads.** One short lock. A thread that finds nothing sleeps on the event.

use crate::Result;
use situ_device::{Env, Event, JobHandle, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Called once with the value of a key, or none. It does not wait.
pub type OnValue = Box<dyn FnOnce(Result<Option<Vec<u8>>>) + Send>;

/// Threads that read.
const THREADS_MAX: usize = 4;
/// Reads that may wait for a thread; beyond, the caller's thread reads.
const WAITING_MAX: usize = 4096;

/// A read that somebody waits for.
pub(crate) struct Request {
    pub(crate) key: Box<[u8]>,
    pub(crate) done: OnValue,
}

/// See the module's documentation.
pub(crate) struct ReadQueue {
    state: Mutex<State>,
    pub(crate) event: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    threads: Vec<Box<dyn JobHandle>>,
    /// Threads that run or are being started.
    running: usize,
    idle: usize,
    closed: bool,
}

/// What a thread is to do.
pub(crate) enum Next {
    Read(Vec<Request>),
    Sleep,
    End,
}

impl ReadQueue {
    pub(crate) fn new(env: &Env) -> ReadQueue {
        ReadQueue { state: Mutex::default(), event: env.executor.event() }
    }

    /// Lets a read wait. True if the caller is to start a thread. The request comes back if it cannot wait.
    pub(crate) fn push(&self, request: Request) -> Result<bool, Request> {
        let starts = {
            let mut state = lock(&self.state);
            if state.closed || state.requests.len() >= WAITING_MAX {
                return Err(request);
            }
            state.requests.push_back(request);
            let starts = state.idle == 0 && state.running < THREADS_MAX;
            state.running += usize::from(starts);
            starts
        };
        self.event.notify();
        Ok(starts)
    }

    /// A thread that the caller was to start runs; none: it could not be started. True if no thread is left for what waits.
    pub(crate) fn started(&self, thread: Option<Box<dyn JobHandle>>) -> bool {
        let mut state = lock(&self.state);
        match thread {
            Some(thread) => state.threads.push(thread),
            None => state.running -= 1,
        }
        state.running == 0
    }

    /// At most `count` reads that wait.
    pub(crate) fn take(&self, count: usize) -> Vec<Request> {
        let mut state = lock(&self.state);
        let count = state.requests.len().min(count);
        state.requests.drain(..count).collect()
    }

    /// What a thread does next; it says when it has slept ([`woken`](ReadQueue::woken)).
    pub(crate) fn next(&self, count: usize) -> Next {
        let requests = self.take(count);
        if !requests.is_empty() {
            return Next::Read(requests);
        }
        let mut state = lock(&self.state);
        if state.closed && state.requests.is_empty() {
            return Next::End;
        }
        state.idle += 1;
        Next::Sleep
    }

    pub(crate) fn woken(&self) {
        lock(&self.state).idle -= 1;
    }

    /// Takes no more. The threads end when all that waits has been answered.
    pub(crate) fn close(&self) -> Vec<Box<dyn JobHandle>> {
        let threads = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.event.notify();
        threads
    }
}
