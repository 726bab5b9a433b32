//! Threads that start on demand, with a bounded queue of requests.
//!
//! 1. A caller [submits](Workers::submit) a request. If more requests wait than threads sleep, one more thread starts,
//!    up to a bound.
//! 2. Each thread runs a *body*. The body takes requests from the [queue](Queue), and sleeps while none waits.
//! 3. After the [close](Workers::close), the threads serve what still waits, and end.
//!
//! **Invariants.** An accepted request is taken once. A closed queue accepts nothing.
//! **Threads.** There is one short lock, and no thread holds it while it serves. A thread sleeps on the event alone.
//! **Failure.** A request that cannot wait comes back. If the system gives no first thread, all waiting requests come
//! back: their callers count on each other's thread. A request that panics ends nothing else. A body that panics ends
//! its own thread only, and a later request starts the next one.

use crate::{Env, Event, Executor, JobHandle, lock};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// A request that is a function.
pub type Job = Box<dyn FnOnce() + Send>;

/// The owner of a queue and its threads. When it is dropped, the queue closes, and the threads end by themselves.
///
/// # Example
/// ```
/// use situ_base::{Env, Workers};
/// let (workers, (sender, receiver)) = (Workers::new(&Env::system(), "example", 2, 100), std::sync::mpsc::channel());
/// assert!(workers.run(Box::new(move || sender.send(7).unwrap())).is_ok());
/// workers.close();
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
pub struct Workers<T> {
    executor: Arc<dyn Executor>,
    name: &'static str,
    threads_max: usize,
    waiting_max: usize,
    queue: Arc<Queue<T>>,
}

/// Requests that wait for a thread.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Arc<dyn Event>,
}

struct State<T> {
    waiting: VecDeque<T>,
    threads: Vec<Box<dyn JobHandle>>,
    /// Threads that run or are being started.
    running: usize,
    /// Threads that sleep, or have been woken and have not looked yet.
    idle: usize,
    is_closed: bool,
}

impl<T: Send + 'static> Workers<T> {
    /// Creates an empty queue for at most `waiting_max` requests and `threads_max` threads, one at least, called
    /// `name`.
    pub fn new(env: &Env, name: &'static str, threads_max: usize, waiting_max: usize) -> Workers<T> {
        let state = State { waiting: VecDeque::new(), threads: Vec::new(), running: 0, idle: 0, is_closed: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), changed: env.executor.event() });
        Workers { executor: Arc::clone(&env.executor), name, threads_max: threads_max.max(1), waiting_max, queue }
    }

    /// Adds a request to the queue. If that takes another thread, `body` makes what the thread runs.
    ///
    /// # Errors
    /// Requests that no thread will serve: this one if the queue is full or closed, all waiting ones if there is no
    /// thread.
    pub fn submit<B>(&self, request: T, body: impl FnOnce() -> B) -> Result<(), Vec<T>>
    where
        B: FnOnce(&Queue<T>) + Send + 'static,
    {
        let starts = {
            let mut state = lock(&self.queue.state);
            if state.is_closed || state.waiting.len() >= self.waiting_max {
                return Err(vec![request]);
            }
            state.waiting.push_back(request);
            let starts = state.idle < state.waiting.len() && state.running < self.threads_max;
            state.running += usize::from(starts);
            starts
        };
        self.queue.changed.notify();
        if starts { self.start(body()) } else { Ok(()) }
    }

    fn start(&self, body: impl FnOnce(&Queue<T>) + Send + 'static) -> Result<(), Vec<T>> {
        // It counts the thread out when the thread ends, and also when the thread does not start.
        let running = Running(Arc::clone(&self.queue));
        let spawned = self.executor.spawn(self.name, Box::new(move || body(&running.0)));
        let mut state = lock(&self.queue.state);
        match spawned {
            Ok(thread) => state.threads.push(thread),
            Err(_) if state.running == 0 => return Err(state.waiting.drain(..).collect()),
            Err(_) => {}
        }
        Ok(())
    }

    /// Takes the first waiting request that `is_it` accepts out of the queue.
    pub fn remove(&self, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let mut state = lock(&self.queue.state);
        let at = state.waiting.iter().position(is_it)?;
        state.waiting.remove(at)
    }
}

impl<T> Workers<T> {
    /// Returns true after the close.
    pub fn is_closed(&self) -> bool {
        lock(&self.queue.state).is_closed
    }

    /// Closes the queue, and returns at once.
    pub fn end(&self) {
        lock(&self.queue.state).is_closed = true;
        self.queue.changed.notify();
    }

    /// Closes the queue, and returns when the threads have served what waits.
    pub fn close(&self) {
        self.end();
        let threads = std::mem::take(&mut lock(&self.queue.state).threads);
        threads.iter().for_each(|thread| _ = thread.join());
    }
}

impl Workers<Job> {
    /// Has a thread run a job.
    ///
    /// # Errors
    /// Jobs that no thread will run, as for [`submit`](Workers::submit).
    pub fn run(&self, job: Job) -> Result<(), Vec<Job>> {
        self.submit(job, || |queue: &Queue<Job>| queue.serve(|job| job()))
    }
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T> Queue<T> {
    /// Serves requests one at a time until the queue is closed and empty.
    pub fn serve(&self, mut each: impl FnMut(T)) {
        while let Some(request) = self.next() {
            _ = catch_unwind(AssertUnwindSafe(|| each(request)));
        }
    }

    /// Serves up to `count` requests at a time until the queue is closed and empty.
    pub fn serve_batches(&self, count: usize, mut each: impl FnMut(Vec<T>)) {
        while let Some(requests) = self.wait_for(|waiting| drain(waiting, count)) {
            _ = catch_unwind(AssertUnwindSafe(|| each(requests)));
        }
    }

    /// Waits for a request. Returns none when the queue is closed and empty.
    pub fn next(&self) -> Option<T> {
        self.wait_for(VecDeque::pop_front)?
    }

    fn wait_for<R>(&self, take: impl Fn(&mut VecDeque<T>) -> R) -> Option<R> {
        loop {
            let seen = self.changed.generation();
            {
                let mut state = lock(&self.state);
                if !state.waiting.is_empty() {
                    return Some(take(&mut state.waiting));
                }
                if state.is_closed {
                    return None;
                }
                state.idle += 1;
            }
            self.changed.wait(seen, None);
            lock(&self.state).idle -= 1;
        }
    }

    /// Takes a request if one waits.
    pub fn take(&self) -> Option<T> {
        lock(&self.state).waiting.pop_front()
    }

    /// Returns true if no request waits.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).waiting.is_empty()
    }

    /// Returns true if the queue is closed and empty.
    pub fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.is_closed && state.waiting.is_empty()
    }
}

fn drain<T>(waiting: &mut VecDeque<T>, count: usize) -> Vec<T> {
    let count = waiting.len().min(count);
    waiting.drain(..count).collect()
}

/// A thread that runs or is being started.
struct Running<T>(Arc<Queue<T>>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
    }
}

impl<T> fmt::Debug for Workers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
