//! Read points: sequence numbers that compactions respect.
//!
//! **Invariants.** The visible sequence number only grows. A compaction that has read the list of live snapshots before
//! one is taken sees only entries that are visible to that one, too.

use crate::base::sync::lock;
use crate::versions::gaps::SnapshotGaps;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The last visible write of the store, and the moments at which readers read.
#[derive(Debug)]
pub(crate) struct Snapshots {
    visible: AtomicU64,
    /// The number of snapshots of each sequence number.
    live: Mutex<BTreeMap<u64, usize>>,
}

impl Snapshots {
    pub(crate) fn new(visible: u64) -> Arc<Snapshots> {
        Arc::new(Snapshots { visible: AtomicU64::new(visible), live: Mutex::default() })
    }

    /// Returns the sequence number up to which all writes can be seen.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Lets readers see the writes `first` to `last`, which follow those that they see. One thread at a time calls
    /// this.
    #[inline]
    pub(crate) fn advance(&self, first: u64, last: u64) {
        let visible = self.visible.load(Ordering::Relaxed);
        assert!(first == visible + 1 && last >= first, "writes {first} to {last} are published behind {visible}");
        self.visible.store(last, Ordering::Release);
    }

    /// Sets where the sequence numbers of a store begin that was just opened. The store has no readers yet.
    pub(crate) fn begin_at(&self, visible: u64) {
        self.visible.store(visible, Ordering::Release);
    }

    /// Returns the sequence numbers of live snapshots, ascending.
    pub(crate) fn sequences(&self) -> Vec<u64> {
        lock(&self.live).keys().copied().collect()
    }

    /// Returns the oldest live snapshot.
    pub(crate) fn oldest(&self) -> Option<u64> {
        lock(&self.live).keys().next().copied()
    }

    /// Returns the number of live snapshots.
    pub(crate) fn count(&self) -> usize {
        lock(&self.live).values().sum()
    }
}

/// A moment that readers read at. While it lives, compactions keep the versions that are visible then. Clones share it.
#[derive(Clone)]
pub(crate) struct ReadPoint {
    inner: Arc<Inner>,
}

struct Inner {
    snapshots: Arc<Snapshots>,
    sequence: u64,
    gaps: OnceLock<Arc<SnapshotGaps>>,
}

impl ReadPoint {
    pub(crate) fn take(snapshots: &Arc<Snapshots>) -> ReadPoint {
        // The number is read under the lock: a compaction that has read the list before sees only entries that are
        // visible to this snapshot too.
        let mut live = lock(&snapshots.live);
        let sequence = snapshots.visible();
        *live.entry(sequence).or_insert(0) += 1;
        drop(live);
        ReadPoint { inner: Arc::new(Inner { snapshots: Arc::clone(snapshots), sequence, gaps: OnceLock::new() }) }
    }

    /// Returns the last sequence number that is visible.
    pub(crate) fn sequence(&self) -> u64 {
        self.inner.sequence
    }

    /// Returns the gaps that its readers have found.
    pub(crate) fn gaps(&self) -> Arc<SnapshotGaps> {
        Arc::clone(self.inner.gaps.get_or_init(Arc::default))
    }

    pub(crate) fn belongs_to(&self, snapshots: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.inner.snapshots, snapshots)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut live = lock(&self.snapshots.live);
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}

impl fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.inner.sequence)
    }
}
