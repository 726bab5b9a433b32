//! Futures of asynchronous calls. They belong to no runtime: they keep the waker they are polled with, and whichever
//! thread of the store finishes the work wakes it.

use crate::base::store_id::StoreId;
use crate::base::sync::{lock, panic_text, wake};
use crate::base::value::Value;
use crate::{Error, Result};
use situ_base::{Env, Event};
use situ_storage::Error as StorageError;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

/// An asynchronous read on its way; see [`Keyspace::get_async`](crate::Keyspace::get_async) and
/// [`multi_get_async`](crate::Keyspace::multi_get_async).
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct ReadFuture<T = Option<Value>> {
    cell: Arc<ReadCell<T>>,
}

struct ReadCell<T> {
    outcome: OnceLock<Result<T>>,
    waker: Mutex<Option<Waker>>,
}

impl<T> ReadCell<T> {
    fn new() -> Arc<ReadCell<T>> {
        Arc::new(ReadCell { outcome: OnceLock::new(), waker: Mutex::new(None) })
    }

    fn fill(&self, outcome: Result<T>) {
        let _ = self.outcome.set(outcome);
        // Taken out first: what is woken may poll, and must not find the lock held.
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

impl<T> fmt::Debug for ReadFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadFuture(done: {})", self.cell.outcome.get().is_some())
    }
}

impl<T> ReadFuture<T> {
    pub(crate) fn ready(outcome: Result<T>) -> ReadFuture<T> {
        let cell = ReadCell::new();
        cell.fill(outcome);
        ReadFuture { cell }
    }
}

impl<T: Clone> Future for ReadFuture<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.cell.outcome.get().is_none() {
            *lock(&self.cell.waker) = Some(context.waker().clone());
        }
        match self.cell.outcome.get() {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => Poll::Pending,
        }
    }
}

/// Reads that may wait at once for a thread; beyond, `get_async` reads on the caller's thread.
const WAITING_READS_MAX: usize = 4096;
/// Threads that read for asynchronous calls: enough in flight to keep an SSD busy.
const READ_THREADS_MAX: usize = 16;

/// Reads, and fills a future's cell. Does not panic.
type ReadJob = Box<dyn FnOnce() + Send>;

/// Threads that read for [`ReadFuture`]s; started when first needed.
pub(crate) struct Readers {
    store: StoreId,
    state: Arc<Mutex<ReadersState>>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct ReadersState {
    waiting: VecDeque<ReadJob>,
    threads: Vec<Box<dyn situ_base::JobHandle>>,
    idle: usize,
    closed: bool,
}

impl Readers {
    pub(crate) fn new(store: StoreId, env: &Env) -> Readers {
        Readers { store, state: Arc::default(), event: env.executor.event() }
    }

    pub(crate) fn submit<T: Send + Sync + 'static>(
        &self,
        env: &Env,
        read: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<ReadFuture<T>> {
        let cell = ReadCell::new();
        let future = ReadFuture { cell: Arc::clone(&cell) };
        let job: ReadJob = Box::new(move || cell.fill(answer(read)));
        let (run_here, start_thread) = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(Error::Closed);
            }
            if state.waiting.len() >= WAITING_READS_MAX {
                (Some(job), false)
            } else {
                state.waiting.push_back(job);
                let wanted = state.idle < state.waiting.len() && state.threads.len() < READ_THREADS_MAX;
                (None, wanted)
            }
        };
        if let Some(job) = run_here {
            job();
            return Ok(future);
        }
        if start_thread {
            self.start_thread(env);
        }
        self.event.notify();
        Ok(future)
    }

    fn start_thread(&self, env: &Env) {
        let (store, state, event) = (self.store, Arc::clone(&self.state), Arc::clone(&self.event));
        let job = Box::new(move || {
            crate::base::store_id::belong_to(store);
            serve(&state, &*event);
        });
        match env.executor.spawn("situ-read", job) {
            Ok(handle) => lock(&self.state).threads.push(handle),
            // No thread to be had: if there is none at all, the caller's thread does the work.
            Err(_) => {
                let job = {
                    let mut state = lock(&self.state);
                    if state.threads.is_empty() { state.waiting.pop_front() } else { None }
                };
                if let Some(job) = job {
                    job();
                }
            }
        }
    }

    /// Finishes what was submitted and ends the threads.
    pub(crate) fn close(&self) {
        let threads = {
            let mut state = lock(&self.state);
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.event.notify();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// What a read answers. A panic in it is the answer to whoever awaits it, and harms nobody else: reads change nothing, so
/// the thread and the store go on.
fn answer<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = format!("a bug: the read panicked: {}; other reads are not affected", panic_text(&*panic));
        Err(StorageError::Invalid(text).into())
    })
}

fn serve(state: &Mutex<ReadersState>, event: &dyn Event) {
    loop {
        let seen = event.generation();
        let job = {
            let mut state = lock(state);
            match state.waiting.pop_front() {
                None if state.closed => return,
                None => {
                    state.idle += 1;
                    None
                }
                job => job,
            }
        };
        match job {
            Some(job) => job(),
            None => {
                event.wait(seen, None);
                lock(state).idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
