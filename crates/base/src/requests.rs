//! Requests that wait for one of a few threads, which are started when they are needed.
//!
//! **Invariants.** What was pushed is taken once. After the close nothing is pushed; what waits is still taken.
//! **Threads.** One short lock. A thread that finds nothing sleeps on the event.

use crate::{Env, Event, JobHandle, lock};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Requests that wait for a thread. The owner starts the threads, and each takes requests until it is told to end.
pub struct Requests<T> {
    state: Mutex<State<T>>,
    event: Arc<dyn Event>,
    threads_max: usize,
    waiting_max: usize,
}

struct State<T> {
    requests: VecDeque<T>,
    threads: Vec<Box<dyn JobHandle>>,
    /// Threads that run or are being started.
    running: usize,
    idle: usize,
    closed: bool,
}

/// What a thread is to do.
#[derive(Debug)]
pub enum Next<T> {
    /// Serve these requests.
    Serve(Vec<T>),
    /// [Sleep](Requests::sleep), then ask again.
    Sleep,
    /// End.
    End,
}

impl<T> Requests<T> {
    /// No requests. At most `waiting_max` of them wait for at most `threads_max` threads.
    pub fn new(env: &Env, threads_max: usize, waiting_max: usize) -> Requests<T> {
        let state = State { requests: VecDeque::new(), threads: Vec::new(), running: 0, idle: 0, closed: false };
        Requests { state: Mutex::new(state), event: env.executor.event(), threads_max, waiting_max }
    }

    /// Lets a request wait. True if the caller is to start a thread and say [so](Requests::started).
    ///
    /// # Errors
    /// The request comes back if it cannot wait: too many do, or nothing is taken any more.
    pub fn push(&self, request: T) -> Result<bool, T> {
        let starts = {
            let mut state = lock(&self.state);
            if state.closed || state.requests.len() >= self.waiting_max {
                return Err(request);
            }
            state.requests.push_back(request);
            let starts = state.idle == 0 && state.running < self.threads_max;
            state.running += usize::from(starts);
            starts
        };
        self.event.notify();
        Ok(starts)
    }

    /// A thread that the caller was to start runs; none: it could not be started. True if no thread is left for what waits.
    pub fn started(&self, thread: Option<Box<dyn JobHandle>>) -> bool {
        let mut state = lock(&self.state);
        match thread {
            Some(thread) => state.threads.push(thread),
            None => state.running -= 1,
        }
        state.running == 0
    }

    /// At most `count` requests that wait.
    pub fn take(&self, count: usize) -> Vec<T> {
        let mut state = lock(&self.state);
        let count = state.requests.len().min(count);
        state.requests.drain(..count).collect()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).requests.is_empty()
    }

    /// Whether nothing waits, and nothing more is taken: a thread that does not ask for the [next](Requests::next) requests ends then.
    pub fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.closed && state.requests.is_empty()
    }

    /// What changes when something is pushed; for [`sleep`](Requests::sleep), to be read before [`next`](Requests::next).
    pub fn generation(&self) -> u64 {
        self.event.generation()
    }

    /// What a thread does next: at most `count` requests at a time.
    pub fn next(&self, count: usize) -> Next<T> {
        let requests = self.take(count);
        if !requests.is_empty() {
            return Next::Serve(requests);
        }
        let mut state = lock(&self.state);
        if state.closed && state.requests.is_empty() {
            return Next::End;
        }
        state.idle += 1;
        Next::Sleep
    }

    /// Waits until something has been pushed since `seen`.
    pub fn sleep(&self, seen: u64) {
        self.event.wait(seen, None);
        lock(&self.state).idle -= 1;
    }

    /// Takes no more. The threads end when all that waits has been served; the caller joins them.
    pub fn close(&self) -> Vec<Box<dyn JobHandle>> {
        let threads = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.event.notify();
        threads
    }
}

impl<T> fmt::Debug for Requests<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}
