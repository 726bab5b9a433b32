//! Events for a program that listens to a store.

use crate::Error;
use crate::base::slow::SlowOperation;
use situ_pipeline::SpaceChange;
use std::fmt;
use std::time::Duration;

/// Something that happened inside a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreEvent {
    /// The store is open, and its log has been recovered. The first event of a store, but for faults of its volumes.
    Opened {
        /// The last sequence number.
        last_sequence: u64,
        /// Its tables.
        tables: usize,
        /// The time that the opening took.
        duration: Duration,
    },
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
        /// The time that the job took.
        duration: Duration,
    },
    /// A compaction has begun. [`Compacted`](StoreEvent::Compacted) follows, or [`JobFailed`](StoreEvent::JobFailed);
    /// if a caller asked for the compaction, the caller gets the error.
    CompactionBegun {
        /// The keyspace's name.
        keyspace: String,
        /// The level compacted.
        from_level: usize,
        /// The level of the new tables. Output that a compaction of level 0 writes through the base level goes one
        /// deeper.
        to_level: usize,
        /// The reason why it was picked.
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
        /// The reason why it was picked.
        reason: String,
        /// Bytes of the input tables.
        bytes_read: u64,
        /// Bytes of the new tables.
        bytes_written: u64,
        /// The time that the job took.
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
    /// The store began to slow down writers, or stopped doing so (zero).
    Slowed {
        /// Allowed bytes a second; zero if there is no limit any more.
        bytes_per_s: u64,
        /// The part of the store that asked for the limit.
        reason: String,
    },
    /// Writes to a keyspace wait from now on, until there is room for them.
    WritersStopped {
        /// The keyspace's name.
        keyspace: String,
        /// The place that has no room.
        reason: String,
    },
    /// There is room again after [`WritersStopped`](StoreEvent::WritersStopped).
    WritersResumed {
        /// The keyspace's name.
        keyspace: String,
    },
    /// A background job failed and will be tried again.
    JobFailed {
        /// The name of the job.
        job: String,
        /// The reason.
        error: Error,
    },
    /// The manifest, or its copy, was found damaged when the store was opened. The other file is whole there, so
    /// nothing is lost. A store that is open for writing has a new manifest and a new copy then. The disk may be
    /// failing.
    ManifestMended {
        /// The place, and the damage found.
        damage: Error,
    },
    /// A background job that had failed has succeeded.
    JobRecovered {
        /// The name of the job.
        job: String,
    },
    /// A compaction failed for a reason of its own, such as a table that cannot be read; it rests, and others go on.
    /// The listener gets it in addition to [`JobFailed`](StoreEvent::JobFailed).
    CompactionPostponed {
        /// The keyspace's name.
        keyspace: String,
        /// The level compacted.
        from_level: usize,
        /// The level of the new tables.
        to_level: usize,
        /// File numbers of the tables that take part in it.
        tables: Vec<u64>,
        /// The time after which it is tried again.
        rest: Duration,
        /// The error of the compaction.
        error: Error,
    },
    /// Data on disk is damaged: a read or a background job of this store met it. The listener gets it once for each
    /// file, for 256 files. Reads of damaged data fail, others go on. The listener is called on the thread that met the
    /// damage, which may be that of a caller.
    DamageFound {
        /// The file.
        file: String,
        /// The offset of the damaged part in the file.
        offset: u64,
        /// The damage.
        error: Error,
    },
    /// New tables of levels below `after` go to another volume than the home from now on.
    PlacementChanged {
        /// The volume, in words.
        to: String,
        /// The number of levels before.
        before: usize,
        /// The number of levels now.
        after: usize,
        /// The reason.
        reason: String,
    },
    /// A flush or a compaction for which the home has no room is done again on any volume with room.
    HomeFull {
        /// The message of the home.
        reason: String,
    },
    /// A table that was meant for another volume goes home.
    TableSpilled {
        /// Its level.
        level: usize,
        /// The reason.
        reason: String,
    },
    /// A table was copied to another volume because of the rate of its reads.
    TableRelocated {
        /// The keyspace's name.
        keyspace: String,
        /// The number of the table that was copied; the copy has another.
        table: u64,
        /// Its level.
        level: usize,
        /// The volume that it was copied to, in words.
        to: String,
        /// The reason.
        reason: String,
    },
    /// The level of free space of a disk has changed.
    Space(SpaceChange),
    /// While a volume is being emptied: a file that a repair had set aside there is at home now.
    DamagedFileMoved {
        /// Its name there.
        file: String,
    },
    /// A volume has a fault, for now or for good; the store goes on without the function. The listener gets each fault
    /// once, within seconds, while the volumes are used.
    VolumeDegraded {
        /// The volume, in words.
        volume: String,
        /// The fault, and its reason.
        trouble: String,
    },
    /// An operation of a caller took longer than [`Options::slow_operation`](crate::Options::slow_operation). The
    /// listener is called on the caller's thread, or on that of the store which ended the operation.
    Slow(SlowOperation),
    /// The store has become read-only.
    Failed {
        /// The reason.
        error: Error,
    },
}

/// A line for people, without an end of line.
impl fmt::Display for StoreEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreEvent::Opened { last_sequence, tables, duration } => {
                write!(f, "opened in {duration:.1?}: {tables} tables, last sequence number {last_sequence}")
            }
            StoreEvent::FlushBegun { keyspace, entries, bytes } => {
                write!(f, "{keyspace}: flushing {entries} entries, {bytes} bytes in memory")
            }
            StoreEvent::Flushed { keyspace, table: Some(table), bytes, duration } => {
                write!(f, "{keyspace}: flushed into table {table}, {bytes} bytes, in {duration:.1?}")
            }
            StoreEvent::Flushed { keyspace, duration, .. } => {
                write!(f, "{keyspace}: flushed in {duration:.1?}, and nothing was left to be written")
            }
            StoreEvent::CompactionBegun { keyspace, from_level, to_level, reason, tables, bytes } => write!(
                f,
                "{keyspace}: compacting level {from_level} into {to_level} ({reason}): {} tables, {bytes} bytes",
                tables.len()
            ),
            StoreEvent::Compacted { keyspace, from_level, to_level, reason, bytes_read, bytes_written, duration } => {
                write!(
                    f,
                    "{keyspace}: compacted level {from_level} into {to_level} ({reason}): read {bytes_read} bytes, \
                     wrote {bytes_written}, in {duration:.1?}"
                )
            }
            StoreEvent::TableCreated { keyspace, table, level, bytes, entries } => {
                write!(f, "{keyspace}: new table {table} in level {level}, {entries} entries, {bytes} bytes")
            }
            StoreEvent::TableDeleted { table } => write!(f, "table {table} was removed"),
            StoreEvent::Slowed { bytes_per_s: 0, reason } => write!(f, "writers are free again ({reason})"),
            StoreEvent::Slowed { bytes_per_s, reason } => {
                write!(f, "writers are held to {bytes_per_s} bytes/s: {reason}")
            }
            StoreEvent::WritersStopped { keyspace, reason } => write!(f, "{keyspace}: writers wait, {reason}"),
            StoreEvent::WritersResumed { keyspace } => write!(f, "{keyspace}: writers go on"),
            StoreEvent::JobFailed { job, error } => write!(f, "{job} failed and will be tried again: {error}"),
            StoreEvent::ManifestMended { damage } => {
                write!(f, "one of the two copies of the manifest is damaged, and nothing is lost by it: {damage}")
            }
            StoreEvent::JobRecovered { job } => write!(f, "{job} works again"),
            StoreEvent::CompactionPostponed { keyspace, from_level, to_level, rest, error, .. } => write!(
                f,
                "{keyspace}: compacting level {from_level} into {to_level} failed and waits {rest:.0?} before the next attempt: {error}"
            ),
            StoreEvent::DamageFound { error, .. } => write!(
                f,
                "damage found: {error}. Reads of damaged data fail; all other operations work. Close the store and run `situ \
                 repair`, or restore a backup"
            ),
            StoreEvent::PlacementChanged { to, before, after, reason } => {
                write!(f, "new tables of levels below {after} go to {to} (before, below {before}): {reason}")
            }
            StoreEvent::HomeFull { reason } => {
                write!(f, "tables go to whichever disk has room: {reason}")
            }
            StoreEvent::TableSpilled { level, reason } => {
                write!(f, "a new table of level {level} goes home: {reason}")
            }
            StoreEvent::TableRelocated { keyspace, table, level, to, reason } => {
                write!(f, "{keyspace}: table {table} of level {level} was copied to {to}: {reason}")
            }
            StoreEvent::Space(change) => change.fmt(f),
            StoreEvent::DamagedFileMoved { file } => {
                write!(f, "{file}, which a repair had set aside, was moved home")
            }
            StoreEvent::VolumeDegraded { volume, trouble } => write!(f, "{volume}: {trouble}"),
            StoreEvent::Slow(operation) => operation.fmt(f),
            StoreEvent::Failed { error } => write!(f, "the store takes no more writes: {error}"),
        }
    }
}

/// A listener for events. The store calls it with no lock held, on the store's own threads. For events that callers
/// meet themselves (waiting for room, damage), it is called on the callers' threads. It should return quickly and must
/// not wait for the store. A panic in it is caught and counted ([`Statistics::listener_panics`](crate::Statistics)).
pub trait Listener: Send + Sync {
    /// Handles an event.
    fn event(&self, event: &StoreEvent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_as_lines() {
        let events = [
            StoreEvent::FlushBegun { keyspace: "k".into(), entries: 2, bytes: 300 },
            StoreEvent::WritersStopped { keyspace: "k".into(), reason: "all 4 memtables are full".into() },
            StoreEvent::CompactionPostponed {
                keyspace: "k".into(),
                from_level: 0,
                to_level: 6,
                tables: vec![7],
                rest: Duration::from_secs(8),
                error: Error::Closed,
            },
            StoreEvent::Space(SpaceChange {
                location: "/data".to_owned(),
                kind: situ_pipeline::SpaceKind::Physical,
                free_bytes: 5,
                total_bytes: 100,
                before: situ_pipeline::SpaceLevel::Plenty,
                after: situ_pipeline::SpaceLevel::DeletionsOnly,
            }),
        ];
        let lines: Vec<String> = events.iter().map(StoreEvent::to_string).collect();
        assert_eq!(
            lines,
            [
                "k: flushing 2 entries, 300 bytes in memory",
                "k: writers wait, all 4 memtables are full",
                "k: compacting level 0 into 6 failed and waits 8s before the next attempt: the store is closed",
                "writes that do not only delete are refused: the drive below /data has 5 of 100 bytes of physical space left",
            ]
        );
    }
}
