//! Events that a program may want to hear of.

use crate::Error;
use std::time::Duration;

/// Something that happened inside a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A memtable is being written as a level-0 table. [`Flushed`](StoreEvent::Flushed) follows, or
    /// [`JobFailed`](StoreEvent::JobFailed).
    FlushBegun {
        /// The keyspace's name.
        keyspace: String,
        /// Entries in the memtable.
        entries: u64,
        /// Memory that they take.
        bytes: u64,
    },
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
    /// A compaction has begun. [`Compacted`](StoreEvent::Compacted) follows, or [`JobFailed`](StoreEvent::JobFailed); of one
    /// that was asked for, its caller has the error.
    CompactionBegun {
        /// The keyspace's name.
        keyspace: String,
        /// The level compacted.
        from_level: usize,
        /// The level of the new tables.
        to_level: usize,
        /// Why it was picked.
        reason: String,
        /// File numbers of the tables that take part.
        tables: Vec<u64>,
        /// Their size.
        bytes: u64,
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
    /// A new table is part of a keyspace, on disk and for readers.
    TableCreated {
        /// The keyspace's name.
        keyspace: String,
        /// Its file number.
        table: u64,
        /// Its level.
        level: usize,
        /// Its size.
        bytes: u64,
        /// Entries, tombstones included.
        entries: u64,
    },
    /// The file of a table that no version and no reader needs has been removed.
    TableDeleted {
        /// Its file number.
        table: u64,
    },
    /// Writers began (or ceased, at zero) to be slowed down.
    Slowed {
        /// Allowed bytes a second; zero if there is no limit any more.
        bytes_per_s: u64,
        /// What asked for it.
        reason: String,
    },
    /// Writes to a keyspace wait from now on, until there is room for what they write.
    WritersStopped {
        /// The keyspace's name.
        keyspace: String,
        /// What there is no room in.
        reason: String,
    },
    /// There is room again after [`WritersStopped`](StoreEvent::WritersStopped).
    WritersResumed {
        /// The keyspace's name.
        keyspace: String,
    },
    /// A background job failed and will be tried again.
    JobFailed {
        /// Which job.
        job: String,
        /// Why.
        error: Error,
    },
    /// A background job that had failed has succeeded.
    JobRecovered {
        /// Which job.
        job: String,
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
