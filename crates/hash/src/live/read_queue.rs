//! Reads that wait for a thread of the store.

use crate::Result;
use situ_base::{Env, Requests};

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

/// No reads.
pub(crate) fn read_queue(env: &Env) -> Requests<Request> {
    Requests::new(env, THREADS_MAX, WAITING_MAX)
}
