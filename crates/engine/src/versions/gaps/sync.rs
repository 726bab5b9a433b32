//! The atomics and locks of gaps: those of `std` and `arc_swap`, or loom's in a model.

use std::sync::Arc;

#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(not(loom))]
pub(super) use crate::base::sync::lock;

#[cfg(loom)]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// A value that is replaced as a whole and read without a lock.
#[cfg(not(loom))]
pub(super) struct Shared<T>(arc_swap::ArcSwapOption<T>);

#[cfg(not(loom))]
impl<T> Shared<T> {
    pub(super) fn empty() -> Shared<T> {
        Shared(arc_swap::ArcSwapOption::empty())
    }

    pub(super) fn load(&self) -> Option<Arc<T>> {
        self.0.load_full()
    }

    pub(super) fn store(&self, value: Option<Arc<T>>) {
        self.0.store(value);
    }
}

/// The loom version. Loom tracks the number of the value, so a reader may get an old value unless a fence prevents it.
#[cfg(loom)]
pub(super) struct Shared<T> {
    latest: AtomicUsize,
    all: Mutex<Vec<Option<Arc<T>>>>,
}

#[cfg(loom)]
impl<T> Shared<T> {
    pub(super) fn empty() -> Shared<T> {
        Shared { latest: AtomicUsize::new(0), all: Mutex::new(vec![None]) }
    }

    pub(super) fn load(&self) -> Option<Arc<T>> {
        let latest = self.latest.load(Ordering::Acquire);
        lock(&self.all)[latest].clone()
    }

    pub(super) fn store(&self, value: Option<Arc<T>>) {
        let mut all = lock(&self.all);
        all.push(value);
        self.latest.store(all.len() - 1, Ordering::Release);
    }
}
