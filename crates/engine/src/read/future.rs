//! Futures of asynchronous calls. They belong to no runtime: they keep the waker that they are polled with, and the
//! thread of the store that finishes the work wakes it.

use crate::base::store_id::StoreId;
use crate::base::sync::{lock, panic_text, wake};
use crate::base::value::Value;
use crate::{Error, Result};
use situ_base::{Env, Job, Queue, Workers};
use situ_storage::Error as StorageError;
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
        // Taken out first: the woken task may poll, and must not find the lock held.
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

    /// Returns the read that has begun; a future of the error if it could not begin.
    pub(crate) fn begun(begun: Result<ReadFuture<T>>) -> ReadFuture<T> {
        begun.unwrap_or_else(|error| ReadFuture::ready(Err(error)))
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

/// The maximum number of reads that wait for a thread. Beyond it, `get_async` reads on the caller's thread.
const WAITING_READS_MAX: usize = 4096;
/// The maximum number of threads that read for asynchronous calls: enough reads in flight to keep an SSD busy.
const READ_THREADS_MAX: usize = 16;

/// Threads that read for [`ReadFuture`]s.
pub(crate) struct Readers {
    store: StoreId,
    workers: Workers<Job>,
}

impl Readers {
    pub(crate) fn new(store: StoreId, env: &Env) -> Readers {
        Readers { store, workers: Workers::new(env, "situ-read", READ_THREADS_MAX, WAITING_READS_MAX) }
    }

    /// Submits a read to a thread. The caller's thread reads if too many reads wait, or if there is no thread.
    pub(crate) fn submit<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<ReadFuture<T>> {
        if self.workers.is_closed() {
            return Err(Error::Closed);
        }
        let cell = ReadCell::new();
        let future = ReadFuture { cell: Arc::clone(&cell) };
        let store = self.store;
        let body = move |queue: &Queue<Job>| {
            crate::base::store_id::belong_to(store);
            queue.serve(|read| read());
        };
        if let Err(reads) = self.workers.submit(Box::new(move || cell.fill(answer(read))), || body) {
            reads.into_iter().for_each(|read| read());
        }
        Ok(future)
    }

    /// Finishes the submitted reads and ends the threads.
    pub(crate) fn close(&self) {
        self.workers.close();
    }
}

/// Returns the answer of a read. A panic in the read becomes the answer to the task that awaits it, and harms no other
/// task. Reads change nothing, so the thread and the store go on.
fn answer<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = format!("a bug: the read panicked: {}; other reads are not affected", panic_text(&*panic));
        Err(StorageError::Invalid(text).into())
    })
}

#[cfg(test)]
mod tests;
