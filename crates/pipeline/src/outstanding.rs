//! The number of asynchronous requests under way, so that callers can keep it where the store works best instead of
//! finding out by waiting.
//!
//! A request counts from the call that hands it to the store until its outcome is there. The outcome of a write is
//! there when it is published or refused, that of a read when a thread of the store has read. What is answered on the
//! caller's thread never counts.
//!
//! **Threads.** An atomic number; the list of wakers has a lock of its own, held across nothing that blocks or
//! notifies. A waiter leaves its waker, then looks again. A thread that lowers the number, or empties the waiting room,
//! looks for wakers after that. One of the two sees the other. Both have to look: a write can be published before the
//! thread that took it out of the room has said so.
//!
//! **Bounded.** A waiter that is dropped takes its waker with it.

use situ_base::{lock, wake};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// The number, and who waits for it to fall.
#[derive(Debug)]
pub(crate) struct Outstanding {
    count: AtomicUsize,
    max: usize,
    /// As many as there are in the list; written under its lock.
    waiters: AtomicUsize,
    wakers: Mutex<Wakers>,
}

/// By the number of the future that left them.
#[derive(Debug, Default)]
struct Wakers {
    left: BTreeMap<u64, Waker>,
    next: u64,
}

impl Outstanding {
    pub(crate) fn new(max: usize) -> Outstanding {
        Outstanding { count: AtomicUsize::new(0), max, waiters: AtomicUsize::new(0), wakers: Mutex::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns true if at least as many requests are under way as callers are to keep.
    pub(crate) fn is_full(&self) -> bool {
        self.count() >= self.max
    }

    /// Returns true if a caller waits for the number to fall.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Counts a request under way.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that `ended` requests have their outcomes. To be called without a lock: a woken waker may do anything.
    pub(crate) fn end(&self, ended: usize) {
        if ended == 0 {
            return;
        }
        let before = self.count.fetch_sub(ended, Ordering::SeqCst);
        debug_assert!(before >= ended, "{ended} requests ended of {before}");
        if before.saturating_sub(ended) < self.max && self.has_waiters() {
            self.wake();
        }
    }

    /// Lets all that wait look again.
    pub(crate) fn wake(&self) {
        let left = {
            let mut wakers = lock(&self.wakers);
            self.waiters.store(0, Ordering::SeqCst);
            std::mem::take(&mut wakers.left)
        };
        for waker in left.into_values() {
            wake(waker);
        }
    }

    /// Leaves a waker, in place of the one that this future left before.
    pub(crate) fn wake_with(&self, number: &mut Option<u64>, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        let number = *number.get_or_insert_with(|| {
            wakers.next += 1;
            wakers.next
        });
        wakers.left.insert(number, waker.clone());
        self.waiters.store(wakers.left.len(), Ordering::SeqCst);
    }

    pub(crate) fn forget(&self, number: u64) {
        let forgotten = {
            let mut wakers = lock(&self.wakers);
            let forgotten = wakers.left.remove(&number);
            self.waiters.store(wakers.left.len(), Ordering::SeqCst);
            forgotten
        };
        // A waker's drop may do as it likes, too.
        drop(forgotten);
    }
}

/// A request under way, which ends when this is dropped.
pub struct UnderWay {
    outstanding: Arc<Outstanding>,
}

impl UnderWay {
    /// Counts a request.
    pub(crate) fn begin(outstanding: &Arc<Outstanding>) -> UnderWay {
        outstanding.begin();
        UnderWay { outstanding: Arc::clone(outstanding) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.outstanding.end(1);
    }
}

#[cfg(test)]
mod tests;
