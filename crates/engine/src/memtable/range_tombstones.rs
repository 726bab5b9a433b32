//! The range tombstones of a memtable.
//!
//! They lie in an index under a lock. Readers do not touch the lock: they share a snapshot of the index. The first
//! reader after a change makes a new one. A snapshot shares all of the index but for a few tens of tombstones, so its
//! cost does not depend on the number of tombstones. Many inserts in a row cost one snapshot, and a memtable without
//! range tombstones costs its readers one atomic load.
//!
//! **Invariant**: the snapshot is a prefix of the index, so its length says whether it is current.

use std::sync::Arc;

use arc_swap::ArcSwap;
use situ_table::range_del::{RangeTombstone, TombstoneIndex};

use super::meter::Share;
use super::sync::{AtomicUsize, Mutex, Ordering};

/// The range tombstones of a memtable, in the order of their insertion.
pub(super) struct RangeTombstones {
    all: Mutex<TombstoneIndex>,
    /// The number of tombstones in `all`.
    count: AtomicUsize,
    bytes: AtomicUsize,
    snapshot: ArcSwap<TombstoneIndex>,
}

impl RangeTombstones {
    pub(super) fn new() -> RangeTombstones {
        RangeTombstones {
            all: Mutex::new(TombstoneIndex::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            snapshot: ArcSwap::from_pointee(TombstoneIndex::new()),
        }
    }

    /// Adds a tombstone, and counts its memory. Amortised logarithmic time.
    pub(super) fn insert(&self, tombstone: RangeTombstone, share: &Share) {
        let tombstone = Arc::new(tombstone);
        let mut all = self.all.lock().expect("no code that holds this lock panics");
        all.push(tombstone);
        let bytes = all.tombstone_bytes() + all.index_bytes();
        let before = self.bytes.fetch_max(bytes, Ordering::Relaxed);
        share.grew(bytes.saturating_sub(before));
        // Release: a reader that sees the new count has to find the tombstone.
        self.count.store(all.len(), Ordering::Release);
    }

    /// Returns true if there are any. Costs one atomic load.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns the bytes of keys, bookkeeping and the index.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns all tombstones whose insert has returned. Costs a reference count, and after a change some tens of them.
    pub(super) fn all(&self) -> Arc<TombstoneIndex> {
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
