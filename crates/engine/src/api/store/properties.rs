//! The resources that a store uses, and its state.

use super::Store;
use crate::Error;
use crate::base::damage::Damage;
#[cfg(doc)]
use crate::base::options::Options;
use crate::base::stats::DebtProperties;
use crate::base::sync::lock;
use crate::pipeline::space::SpaceProperties;
use situ_storage::Space;
use situ_values::ValueLog;

impl Store {
    /// Returns the resources that the store uses, and its state.
    pub fn properties(&self) -> StoreProperties {
        let core = self.core();
        let cache = &core.versions.source.cache;
        let views = core.versions.keyspaces().iter().map(|k| k.view.load_full()).collect::<Vec<_>>();
        let stats = cache.stats();
        let log = core.memory.log().map(|log| log.metrics()).unwrap_or_default();
        let (writes_waiting, waiting_bytes) = core.pipeline.waiting();
        let (tables_open, table_descriptors) = core.versions.source.open();
        StoreProperties {
            location: core.versions.volume.location(),
            keyspaces: views.len(),
            memtable_bytes: core.memory.budget.meter.bytes(),
            memtable_bytes_max: core.memory.budget.meter.bytes_max(),
            memtable_held_bytes: core.memory.budget.meter.held_bytes(),
            cache_bytes: stats.block_bytes + stats.pinned_bytes,
            cache_pinned_bytes: stats.pinned_bytes,
            cache_bytes_max: core.options.cache_bytes,
            cache_hits: stats.hits,
            cache_misses: stats.misses,
            tables_open,
            table_descriptors,
            table_bytes: views.iter().map(|v| v.version.bytes()).sum(),
            log_bytes: log.file_bytes,
            log_pages_written: log.pages_written,
            log_syncs: log.syncs + log.durable_writes,
            last_sequence: core.versions.snapshots.visible(),
            snapshots: core.versions.snapshots.count(),
            transactions: core.transactions.live(),
            locks: core.transactions.locks.count(),
            write_limit_bytes_per_s: core.pipeline.budget().limit_bytes_per_s(),
            damaged_files: core.versions.source.damaged.list(),
            failure: core.health.failure(),
            background_failure: core.work.trouble(),
            lossy_repair_unix_ms: core.versions.lossy_repair,
            mended: lock(&core.versions.mended).iter().map(ToString::to_string).collect(),
            compactions_paused: core.work.compactions_are_paused(),
            requests_outstanding: core.pipeline.outstanding(),
            writes_waiting,
            waiting_bytes,
            options: core.options.named(),
            space: core.versions.volume.space(),
            watched_space: core.memory.space.properties(),
            value_log: core.versions.source.values.log_if_open().map(|log| ValueLogProperties::of(log)),
            debts: core.work.debts.properties(),
        }
    }
}

/// The resources that a store uses, and its state. Sizes are in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreProperties {
    /// The location of the store.
    pub location: String,
    /// The number of keyspaces.
    pub keyspaces: usize,
    /// Memory of the memtables of all keyspaces, in bytes.
    pub memtable_bytes: u64,
    /// The limit of `memtable_bytes` ([`Options::memtables_bytes_max`]).
    pub memtable_bytes_max: u64,
    /// Memory of flushed memtables that iterators still hold, in bytes.
    pub memtable_held_bytes: u64,
    /// The bytes in the block cache: blocks, and the parts that open tables pin. Together with the buffers that wait
    /// for further blocks they are at most `cache_bytes_max`. If the pinned parts alone exceed `cache_bytes_max`, the
    /// cache keeps no block.
    pub cache_bytes: u64,
    /// The part of `cache_bytes` that open tables pin: their top indexes, filters and range tombstones. Reads cannot do
    /// without them, so `cache_bytes_max` is no bound for them. The bound is the number of tables that may be open
    /// ([`Options::open_tables_max`]), and the blocks that iterators and merges are at.
    pub cache_pinned_bytes: u64,
    /// The maximum size of the cache ([`Options::cache_bytes`]).
    pub cache_bytes_max: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// Tables that are kept open: their indexes and filters are in memory.
    pub tables_open: usize,
    /// Descriptors of tables, at most [`Options::open_tables_max`].
    pub table_descriptors: usize,
    /// Bytes of tables on disk.
    pub table_bytes: u64,
    /// Bytes of log files on disk, spares included.
    pub log_bytes: u64,
    /// Pages of 4 KiB written to the log since the store was opened.
    pub log_pages_written: u64,
    /// Durable writes and syncs of the log since the store was opened.
    pub log_syncs: u64,
    /// The last visible sequence number.
    pub last_sequence: u64,
    /// Live snapshots.
    pub snapshots: usize,
    /// Transactions that are neither committed nor rolled back.
    pub transactions: usize,
    /// Locks that transactions hold or wait for.
    pub locks: u64,
    /// The present limit of writers, in bytes a second; `None` if there is no limit.
    pub write_limit_bytes_per_s: Option<u64>,
    /// Files in which reads met damage since the store was opened, 256 at most, with the first damage met in each.
    /// Reads of damaged data fail, other reads go on. Damage in data that has not been read is not in the list:
    /// [`verify`](crate::verify()) reads all data. The list is empty if the store is open read-only.
    pub damaged_files: Vec<Damage>,
    /// The reason why the store takes no more writes, if it takes none.
    pub failure: Option<Error>,
    /// The failure of a background job that is being tried again.
    pub background_failure: Option<Error>,
    /// Damage that the store found when it was opened and repaired from a second copy. Nothing is lost.
    pub mended: Vec<String>,
    /// The time at which a repair of this store last lost something, in milliseconds since 1970; `None` if none ever
    /// did. An application that keeps notes in the store about its contents compares this value with the one that held
    /// when the note was written.
    pub lossy_repair_unix_ms: Option<u64>,
    /// True if a manual compaction holds back the others.
    pub compactions_paused: bool,
    /// Asynchronous requests that the store has and whose futures have no outcome yet: writes, and reads that memory
    /// could not answer.
    pub requests_outstanding: usize,
    /// Asynchronous writes that wait for the store to take them.
    pub writes_waiting: usize,
    /// The memory of these writes, 64 MiB at most unless a single one is larger.
    pub waiting_bytes: u64,
    /// The options in force, by name, in their bounds; those of keyspaces are in
    /// [`KeyspaceProperties`](crate::KeyspaceProperties).
    pub options: Vec<(&'static str, String)>,
    /// The space on the volume; on the home, if there are several. It includes the physical space that the drive
    /// below counts.
    pub space: Space,
    /// The known physical space that the store may still use. `None` on disks that do not compress or do not report it,
    /// and before the first write.
    pub watched_space: Option<SpaceProperties>,
    /// The value log, if the store has one.
    pub value_log: Option<ValueLogProperties>,
    /// Debts of the store: dead entries and files that still take space.
    pub debts: DebtProperties,
}

/// The contents of a value log, and its work since the store was opened. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueLogProperties {
    /// Live values, with keys and headers.
    pub live_bytes: u64,
    /// Dead values.
    pub dead_bytes: u64,
    /// The part of the dead values that was zeroed or given back to the disk.
    pub trimmed_bytes: u64,
    /// Values that flushes have appended.
    pub appended_bytes: u64,
    /// Values that collections have appended again.
    pub collected_bytes: u64,
    /// Pages written for all this.
    pub written_bytes: u64,
    /// Bytes that trimming has written and read to zero parts of sectors.
    pub zeroed_bytes: u64,
    /// Bytes that trimming has given back to the disk.
    pub discarded_bytes: u64,
    /// Segments that were removed.
    pub segments_removed: u64,
    /// Segments that could not be collected, as they or the tables that lead there are damaged. They keep their garbage
    /// until the store is opened again; [`damaged_files`](StoreProperties::damaged_files) has the reason.
    pub segments_set_aside: usize,
}

impl ValueLogProperties {
    fn of(log: &ValueLog) -> ValueLogProperties {
        let (inflation, counters) = (log.inflation(), log.counters());
        ValueLogProperties {
            live_bytes: inflation.live_bytes,
            dead_bytes: inflation.dead_bytes,
            trimmed_bytes: inflation.trimmed_bytes,
            appended_bytes: counters.appended_bytes,
            collected_bytes: counters.collected_bytes,
            written_bytes: counters.page_bytes_written,
            zeroed_bytes: counters.zeroed_sector_bytes,
            discarded_bytes: counters.discarded_bytes,
            segments_removed: counters.segments_removed,
            segments_set_aside: log.segments().iter().filter(|segment| segment.is_stuck()).count(),
        }
    }
}
