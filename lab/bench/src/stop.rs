//! Ending a run early, from another thread: what an interrupt needs.
//!
//! 1. [`Stop::stop`] is remembered. Lanes look at it between two requests, and pauses end.
//! 2. The store that is open is interrupted ([`Store::interrupt`]): a call that waits in it (for room, for a
//!    compaction) returns with an error.
//! 3. The run sees that it was stopped, removes what it has made, and returns
//!    [`Error::Stopped`](crate::Error::Stopped).
//!
//! **Threads.** The lock orders the interrupt and the end of the store: the run waits until the interrupt is over
//! before it removes files.

use situ_base::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Store;

/// Ends one run early. Clones stop the same run.
#[derive(Clone, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Default)]
struct Shared {
    asked: AtomicBool,
    store: Mutex<Option<Arc<dyn Store>>>,
    changed: Condvar,
}

impl Stop {
    /// Ends the run. Returns when the store is interrupted, which may take as long as one of its tasks. The run itself
    /// may take a little longer. Nothing happens if there is no run, or if it has ended.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Release);
        let store = self.store();
        self.0.changed.notify_all();
        if let Some(store) = store.as_ref() {
            store.interrupt();
        }
    }

    /// Returns true if the run was asked to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Makes this store, or none, the one to interrupt. Waits for an interrupt that is under way. A store that
    /// comes after the interrupt is interrupted at once.
    pub(crate) fn watch(&self, store: Option<&Arc<dyn Store>>) {
        let mut watched = self.store();
        *watched = store.map(Arc::clone);
        if let Some(store) = watched.as_ref()
            && self.is_asked()
        {
            store.interrupt();
        }
    }

    /// Sleeps for `time`, or until the run is asked to end.
    pub(crate) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut store = self.store();
        while !self.is_asked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.0.changed.wait_timeout(store, left);
            store = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn store(&self) -> MutexGuard<'_, Option<Arc<dyn Store>>> {
        lock(&self.0.store)
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stop").field("asked", &self.is_asked()).finish_non_exhaustive()
    }
}
