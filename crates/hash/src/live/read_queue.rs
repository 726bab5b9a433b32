//! Reads that wait for a thread of the store.

use crate::Result;
use situ_base::{Env, Workers};

/// A callback that is called once with the value of a key, or none. It does not wait.
pub type OnValue = Box<dyn FnOnce(Result<Option<Vec<u8>>>) + Send>;

/// Threads that read.
const THREADS_MAX: usize = 4;
/// Reads that may wait for a thread; beyond, the caller's thread reads.
const WAITING_MAX: usize = 4096;

/// A read that has a waiting caller.
pub(crate) struct Request {
    pub(crate) key: Box<[u8]>,
    pub(crate) done: OnValue,
}

/// Returns an empty queue of reads.
pub(crate) fn read_queue(env: &Env) -> Workers<Request> {
    Workers::new(env, "hash-read", THREADS_MAX, WAITING_MAX)
}
