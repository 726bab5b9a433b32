//! Snapshots: a sequence number that compactions respect.

use crate::core::{Core, lock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state of a store at one moment, over all keyspaces. Costs nothing to take; while it lives, compactions keep the
/// versions that it sees. Clones share it.
#[derive(Clone)]
pub struct Snapshot {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    sequence: u64,
}

impl Snapshot {
    pub(crate) fn take(core: &Arc<Core>) -> Snapshot {
        // The number is read under the lock: a compaction that has read the list before sees only entries that are
        // visible to this snapshot too.
        let mut live = lock(&core.snapshots);
        let sequence = core.visible.load(Ordering::Acquire);
        *live.entry(sequence).or_insert(0) += 1;
        drop(live);
        Snapshot { inner: Arc::new(Inner { core: Arc::clone(core), sequence }) }
    }

    /// The last sequence number it sees.
    pub fn sequence(&self) -> u64 {
        self.inner.sequence
    }

    pub(crate) fn belongs_to(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.inner.core, core)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut live = lock(&self.core.snapshots);
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.inner.sequence)
    }
}
