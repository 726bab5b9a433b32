//! Events that a program may want to hear of.

use crate::Error;
use std::time::Duration;

/// Something that happened inside a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A memtable was written as a level-0 table.
    Flushed {
        /// The keyspace's name.
        keyspace: String,
        /// The new table's file number; `None` if everything in the memtable had been deleted again.
        table: Option<u64>,
        /// Its size.
        bytes: u64,
        /// How long it took.
        duration: Duration,
    },
    /// A compaction was installed.
    Compacted {
        /// The keyspace's name.
        keyspace: String,
        /// The level compacted.
        from_level: usize,
        /// The level of the new tables.
        to_level: usize,
        /// Why it was picked.
        reason: String,
        /// Bytes of the input tables.
        bytes_read: u64,
        /// Bytes of the new tables.
        bytes_written: u64,
        /// How long it took.
        duration: Duration,
    },
    /// Writers began (or ceased, at zero) to be slowed down.
    Slowed {
        /// Allowed bytes a second; zero if there is no limit any more.
        bytes_per_s: u64,
        /// What asked for it.
        reason: String,
    },
    /// A background job failed and will be tried again.
    JobFailed {
        /// Which job.
        job: String,
        /// Why.
        error: Error,
    },
    /// A compaction failed for a reason of its own, such as a table that cannot be read; it rests, and others go on. Told
    /// beside [`JobFailed`](StoreEvent::JobFailed).
    CompactionPostponed {
        /// The keyspace's name.
        keyspace: String,
        /// The level compacted.
        from_level: usize,
        /// The level of the new tables.
        to_level: usize,
        /// File numbers of the tables that take part in it.
        tables: Vec<u64>,
        /// It is tried again after this time.
        rest: Duration,
        /// Why it failed.
        error: Error,
    },
    /// The store has become read-only.
    Failed {
        /// Why.
        error: Error,
    },
}

/// Hears of events. Called on the store's own threads with no lock held; it should return quickly and must not wait
/// for the store. A panic in it is caught and counted ([`Statistics::listener_panics`](crate::Statistics)).
pub trait Listener: Send + Sync {
    /// Something happened.
    fn event(&self, event: &StoreEvent);
}
