//! Asynchronous calls.
//!
//! A call polls its future once, on the caller's thread: mostly that is all. A future that is not ready is polled again
//! by the thread `situ-complete`, one for the process, when the store has woken it. A waker must not wait for the
//! store, and a poll may: so the store's own threads do not poll.
//!
//! A program that begins each call in the completion of the one before needs a stack for all of them, as long as memory
//! has the answers. Where the stack is short, the call leaves its future to `situ-complete`, and frees the stack.

use crate::arguments::{bytes, durability, handle, handle_mut};
use crate::batch::situ_batch;
use crate::error::{Failure, SITU_MISS, SITU_OK, no_thread, panicked, situ_error, situ_status, wrong};
use crate::keyspace::situ_keyspace;
use crate::read::{read_options, situ_read};
use crate::stack::is_short;
use crate::store::situ_store;
use crate::transaction::{ended, situ_transaction};
use crate::value::situ_value;
use std::ffi::{c_int, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Builder;
use store::Value;

#[cfg(test)]
mod tests;

/// The function that an asynchronous call calls when it is done: exactly once, before the call returns on its thread,
/// or later on a thread of the library.
///
/// The function owns value and error, and frees both. They are NULL if there is none; value belongs to reads only, and
/// lies in memory that lives as long as the function runs: copy the struct to keep it. Later completions wait while
/// the function runs, so it must neither take long nor wait for another asynchronous call.
pub type situ_done = Option<
    unsafe extern "C" fn(context: *mut c_void, status: situ_status, value: *mut situ_value, error: *mut situ_error),
>;

/// Reads the value of a key as situ_keyspace_get does, without waiting for a disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_get_async(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    read: *const situ_read,
    done: situ_done,
    context: *mut c_void,
) {
    let begin = || {
        // SAFETY: as the header says.
        let (keyspace, key, options) =
            unsafe { (handle(keyspace, "keyspace")?, bytes(key, key_bytes)?, read_options(read)?.unwrap_or_default()) };
        let found = keyspace.0.get_with_async(key, &options);
        Ok(async move { Ok(Answer::Found(found.await?)) })
    };
    start(Completion { done, context }, begin);
}

/// Sets the value of a key as situ_keyspace_put does, without waiting for the disk. The call copies key and value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_put_async(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    durable: c_int,
    done: situ_done,
    context: *mut c_void,
) {
    let begin = || {
        // SAFETY: as the header says.
        let (keyspace, key, value) =
            unsafe { (handle(keyspace, "keyspace")?, bytes(key, key_bytes)?, bytes(value, value_bytes)?) };
        let written = match durability(durable)? {
            Some(durability) => keyspace.0.put_with_async(key, value, durability),
            None => keyspace.0.put_async(key, value),
        };
        Ok(async move { Ok(written.await.map(|()| Answer::Done)?) })
    };
    start(Completion { done, context }, begin);
}

/// Deletes a key as situ_keyspace_delete does, without waiting for the disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_delete_async(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    durable: c_int,
    done: situ_done,
    context: *mut c_void,
) {
    let begin = || {
        // SAFETY: as the header says.
        let (keyspace, key) = unsafe { (handle(keyspace, "keyspace")?, bytes(key, key_bytes)?) };
        let written = match durability(durable)? {
            Some(durability) => keyspace.0.delete_with_async(key, durability),
            None => keyspace.0.delete_async(key),
        };
        Ok(async move { Ok(written.await.map(|()| Answer::Done)?) })
    };
    start(Completion { done, context }, begin);
}

/// Writes a batch as situ_store_write does, without waiting for the disk. The batch is empty when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_write_async(
    store: *const situ_store,
    batch: *mut situ_batch,
    durable: c_int,
    done: situ_done,
    context: *mut c_void,
) {
    let begin = || {
        // SAFETY: as the header says.
        let (store, batch) = unsafe { (handle(store, "store")?, handle_mut(batch, "batch")?) };
        let batch = std::mem::take(&mut batch.0);
        let written = match durability(durable)? {
            Some(durability) => store.0.write_with_async(batch, durability),
            None => store.0.write_async(batch),
        };
        Ok(async move { Ok(written.await.map(|()| Answer::Done)?) })
    };
    start(Completion { done, context }, begin);
}

/// Commits a transaction as situ_transaction_commit does, without waiting for the disk. The transaction has ended when
/// the call returns, and may be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_commit_async(
    transaction: *mut situ_transaction,
    done: situ_done,
    context: *mut c_void,
) {
    let begin = || {
        // SAFETY: as the header says.
        let committed = unsafe { ended(transaction)? }.commit_async();
        Ok(async move { Ok(committed.await.map(|_| Answer::Done)?) })
    };
    start(Completion { done, context }, begin);
}

/// The answer of a call: a value, or the word that a call without one ends with.
enum Answer {
    Found(Option<Value>),
    Done,
}

/// The function of C, and its argument. It is called exactly once: when the completion is dropped, at the latest. A
/// call that panicked has no other end.
struct Completion {
    done: situ_done,
    context: *mut c_void,
}

// SAFETY: the header says that the function may run on another thread. The context is only handed to it.
unsafe impl Send for Completion {}

impl Completion {
    fn call(&mut self, outcome: Result<Answer, Failure>) {
        let Some(done) = self.done.take() else { return };
        let (mut value, mut error) = (None, ptr::null_mut());
        let status = match outcome {
            Ok(Answer::Found(Some(found))) => {
                value = Some(situ_value::from(found));
                SITU_OK
            }
            Ok(Answer::Found(None)) => SITU_MISS,
            Ok(Answer::Done) => SITU_OK,
            Err(failure) => {
                let status;
                (status, error) = failure.into_c();
                status
            }
        };
        let value = value.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: the caller gives a function of this type, and a context that it can take.
        unsafe { done(self.context, status, value, error) };
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.call(Err(panicked()));
    }
}

/// A call that is not done yet.
struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queue: &'static Sender<Arc<Task>>,
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        // The thread at the other end never leaves.
        let _ = self.queue.send(self);
    }
}

impl Task {
    /// Polls the future, and drops it when it is done or has panicked. A task that was woken twice has no future the
    /// second time.
    fn poll(self: Arc<Task>) {
        let waker = Waker::from(self.clone());
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pinned) = &mut *future else { return };
        // A panic is one of the store's, and its message is on standard error. The other calls go on.
        let polled = catch_unwind(AssertUnwindSafe(|| pinned.as_mut().poll(&mut Context::from_waker(&waker))));
        if !matches!(polled, Ok(Poll::Pending)) {
            *future = None;
        }
    }
}

/// The thread `situ-complete` of this process, by the way to it.
struct Worker {
    queue: Sender<Arc<Task>>,
    /// The value of [`FORKS`] when the thread began.
    forks: usize,
}

/// The forks that led to this process since the first thread began. A child has no threads of its parent.
static FORKS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the way to the thread `situ-complete`, which the first call of a process starts.
fn queue() -> Result<&'static Sender<Arc<Task>>, Failure> {
    static WORKER: AtomicPtr<Worker> = AtomicPtr::new(ptr::null_mut());
    static START: Mutex<()> = Mutex::new(());
    let running = || {
        // SAFETY: NULL, or a worker that is never freed.
        let worker = unsafe { WORKER.load(Ordering::Acquire).as_ref() };
        worker.filter(|worker| worker.forks == FORKS.load(Ordering::Relaxed))
    };
    if let Some(worker) = running() {
        return Ok(&worker.queue);
    }
    let _start = START.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(worker) = running() {
        return Ok(&worker.queue);
    }
    if WORKER.load(Ordering::Relaxed).is_null() {
        // SAFETY: the function only counts.
        let status = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        if status != 0 {
            return Err(no_thread(&io::Error::from_raw_os_error(status)));
        }
    }
    let (queue, tasks) = channel::<Arc<Task>>();
    let work = move || {
        tasks.into_iter().for_each(Task::poll);
    };
    Builder::new().name("situ-complete".to_owned()).spawn(work).map_err(|error| no_thread(&error))?;
    let worker = Box::leak(Box::new(Worker { queue, forks: FORKS.load(Ordering::Relaxed) }));
    WORKER.store(worker, Ordering::Release);
    Ok(&worker.queue)
}

/// Begins a call, and sees to it that its function is called.
fn start<F>(mut completion: Completion, begin: impl FnOnce() -> Result<F, Failure>)
where
    F: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    let begun = catch_unwind(AssertUnwindSafe(|| {
        completion.done.ok_or_else(|| wrong("the function is NULL"))?;
        let queue = queue()?;
        Ok((begin()?, queue))
    }));
    match begun.unwrap_or_else(|_| Err(panicked())) {
        Ok((outcome, queue)) => {
            let future = async move {
                // Captured as a whole: its parts are not Send.
                let mut completion = completion;
                completion.call(outcome.await);
            };
            let task = Arc::new(Task { future: Mutex::new(Some(Box::pin(future))), queue });
            if is_short() { task.wake() } else { task.poll() }
        }
        Err(failure) => completion.call(Err(failure)),
    }
}
