//! The queue of memtables that wait to be flushed: the sealed ones of all keyspaces, the oldest first.
//!
//! **Invariant.** A flush counts as [releasing](Releasing) from before its memtable leaves the queue until its log
//! files are given back. So a thread that looks at the queue first, and then at what is releasing, misses no flush.

use crate::Result;
use crate::base::sync::lock;
use crate::pipeline::troubles::Troubles;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use crate::versions::view::MemtableSlot;
use situ_base::Event;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// See the module's documentation.
pub(crate) struct FlushQueue {
    versions: Arc<Versions>,
    progress: Arc<dyn Event>,
    /// The failures of background jobs that are being tried again.
    pub(crate) troubles: Mutex<Troubles>,
    /// Flushes whose memtables are gone, or about to go, and that have not given back their log files yet.
    releasing: AtomicUsize,
}

impl FlushQueue {
    pub(crate) fn new(versions: &Arc<Versions>, progress: &Arc<dyn Event>) -> Arc<FlushQueue> {
        let (versions, progress) = (Arc::clone(versions), Arc::clone(progress));
        Arc::new(FlushQueue { versions, progress, troubles: Mutex::default(), releasing: AtomicUsize::new(0) })
    }

    /// Returns the memtable to flush next, and its keyspace.
    pub(crate) fn oldest(&self) -> Option<(Arc<KeyspaceCore>, Arc<MemtableSlot>)> {
        let oldest = |k: &Arc<KeyspaceCore>| Some((Arc::clone(k), k.view.load().sealed.last().cloned()?));
        let keyspaces = self.versions.keyspaces();
        keyspaces.iter().filter_map(oldest).min_by_key(|(_, slot)| slot.first_log().unwrap_or(0))
    }

    /// Returns the error that keeps memtables from being flushed, if there is one.
    pub(crate) fn check(&self) -> Result<()> {
        let troubles = lock(&self.troubles);
        troubles.flush.error.clone().filter(|_| !troubles.only_log_fails).map_or(Ok(()), Err)
    }

    /// Returns true if a memtable waits to be flushed, or has been and its log files are not given back yet.
    pub(crate) fn is_busy(&self) -> bool {
        let keyspaces = self.versions.keyspaces();
        keyspaces.iter().any(|keyspace| !keyspace.view.load().sealed.is_empty())
            || self.releasing.load(Ordering::SeqCst) > 0
    }

    /// Returns true if a flush gives log files back soon, as far as is known.
    pub(crate) fn gives_log_back(&self) -> bool {
        let due = self.holds_oldest_log() || self.releasing.load(Ordering::SeqCst) > 0;
        due && self.check().is_ok()
    }

    /// Returns true if the oldest log file is held back by a memtable that is going to be flushed, and not by one that
    /// is written to.
    fn holds_oldest_log(&self) -> bool {
        let (mut sealed, mut active) = (u64::MAX, u64::MAX);
        for keyspace in self.versions.keyspaces() {
            let view = keyspace.view.load();
            let oldest = view.sealed.iter().filter_map(|slot| slot.first_log()).min();
            sealed = sealed.min(oldest.unwrap_or(u64::MAX));
            active = active.min(view.active.first_log().unwrap_or(u64::MAX));
        }
        sealed < active
    }

    /// Begins to release the log files of a memtable.
    pub(crate) fn begin_release(&self) -> Releasing<'_> {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(self)
    }
}

/// The time from before a memtable goes until its log files are given back, counted for writers that wait for room for
/// a log file.
pub(crate) struct Releasing<'a>(&'a FlushQueue);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        let before = self.0.releasing.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a release ends that has not begun");
        // A writer that waits for this release must not wait for another.
        self.0.progress.notify();
    }
}
