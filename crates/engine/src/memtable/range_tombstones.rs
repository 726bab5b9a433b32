//! The range tombstones of a memtable.
//!
//! They are few, and a reader wants all of them, so they lie in a vector under a lock. Readers do not touch the lock:
//! they share a snapshot of the vector, which the first reader behind a change makes anew. Many inserts in a row thus
//! cost one snapshot, and a memtable without range tombstones costs its readers one atomic load.
//!
//! **Invariant**: the snapshot is a prefix of the vector, so its length says whether it is current.

use std::sync::Arc;

use arc_swap::ArcSwap;
use situ_table::range_del::RangeTombstone;

use super::sync::{AtomicUsize, Mutex, Ordering};

/// The range tombstones of a memtable, in the order of their insertion. Copies of the list share the keys.
pub(super) struct RangeTombstones {
    all: Mutex<Vec<Arc<RangeTombstone>>>,
    /// How many there are in `all`.
    count: AtomicUsize,
    bytes: AtomicUsize,
    snapshot: ArcSwap<Vec<Arc<RangeTombstone>>>,
}

impl RangeTombstones {
    pub(super) fn new() -> RangeTombstones {
        RangeTombstones {
            all: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            snapshot: ArcSwap::from_pointee(Vec::new()),
        }
    }

    /// Adds one. Amortised constant time.
    pub(super) fn insert(&self, tombstone: RangeTombstone) {
        let bytes = size_of::<RangeTombstone>() + tombstone.begin.len() + tombstone.end.len();
        let mut all = self.all.lock().expect("no code that holds this lock panics");
        all.push(Arc::new(tombstone));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Release: a reader that sees the new count has to find the tombstone.
        self.count.store(all.len(), Ordering::Release);
    }

    /// Whether there are any. One atomic load.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Bytes of keys and bookkeeping.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All whose insert has returned. Costs a reference count, and a copy of the list behind a change.
    pub(super) fn all(&self) -> Arc<Vec<Arc<RangeTombstone>>> {
        let snapshot = self.snapshot.load();
        if snapshot.len() >= self.count.load(Ordering::Acquire) {
            return Arc::clone(&snapshot);
        }
        // The copy is made and stored under the lock, so that an older one never replaces a newer one.
        let all = self.all.lock().expect("no code that holds this lock panics");
        let snapshot = self.snapshot.load();
        if snapshot.len() == all.len() {
            return Arc::clone(&snapshot);
        }
        let current = Arc::new(all.clone());
        self.snapshot.store(Arc::clone(&current));
        current
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
