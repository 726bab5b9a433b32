//! Options: few, with units in their names and defaults that are right for a newcomer.

mod texts;

use crate::base::listener::Listener;
use crate::base::places::{MakePlaces, Plain};
use rustix::process::{Resource, getrlimit};
use situ_compaction::{CompactionFilter, Local, MakeCompactor};
use situ_table::{Compression, TableOptions};
use situ_values::{Trim, Victims};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// The longest value, in bytes: a record with its key and headers fits into 1 GiB.
pub const VALUE_BYTES_MAX: usize = (1 << 30) - KEY_BYTES_MAX - 1024;

/// The largest write batch, in encoded bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// The number of levels of a keyspace.
pub const LEVELS: usize = 7;

/// The keyspace that every store has.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";
pub(crate) const DEFAULT_KEYSPACE_ID: u32 = 0;

/// The moment at which a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Once the operating system has the write: it survives this process, but power failure may take the latest writes.
    #[default]
    Buffered,
    /// Once the disk has the write: it survives power failure.
    Synced,
}

/// Writes `buffered` or `synced`, as properties show it.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Buffered => "buffered",
            Durability::Synced => "synced",
        })
    }
}

impl From<Durability> for situ_log::Durability {
    fn from(durability: Durability) -> situ_log::Durability {
        match durability {
            Durability::Buffered => situ_log::Durability::Buffered,
            Durability::Synced => situ_log::Durability::Synced,
        }
    }
}

/// Parts of the design that can be switched off, to measure the worth of each. No store is better off without them, so
/// this type is not for users, and may change at any time.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ablation {
    /// The log has one write in flight at a time, and one logger carries all asynchronous writes.
    pub serial_log: bool,
}

/// A setter for each field: `Options::default().cache_bytes(1 << 30).compaction_threads(2)`. The field has the
/// contract.
macro_rules! setters {
    ($options:ident { $($field:ident: $type:ty $(=> $value:expr)?),* $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@", stringify!($options), "::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> $options {
                    self.$field = setters!(@value $field $($value)?);
                    self
                }
            )*
        }
    };
    (@value $field:ident) => { $field };
    (@value $field:ident $value:expr) => { $value };
}

pub(crate) use setters;

/// Options of a whole store.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{Durability, Options, Store};
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let options = Options::default().cache_bytes(1 << 30).durability(Durability::Synced);
/// let store = Store::open_with(directory.path(), options)?;
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// True if opening creates the store when the directory holds none. Default: true.
    pub create_if_missing: bool,
    /// True if opening refuses a store that exists. Default: false.
    pub error_if_exists: bool,
    /// The durability of writes that do not name their own. Default: [`Durability::Buffered`].
    pub durability: Durability,
    /// Room for blocks, indexes, filters and range tombstones of tables, shared by all keyspaces. Default: 256 MiB.
    /// More makes reads faster until the working set fits. Blocks make room for the rest, which open tables pin. If the
    /// pinned parts alone exceed this size, the cache keeps no block. The memory is then that of
    /// [`open_tables_max`](Options::open_tables_max) tables
    /// ([`StoreProperties::cache_pinned_bytes`](crate::StoreProperties::cache_pinned_bytes)).
    pub cache_bytes: u64,
    /// The maximum number of open tables. An open table takes a descriptor and memory, which counts as cache: about 1.3
    /// bytes a key for its filter and top index, and some 150 bytes and both keys for each range tombstone. Beyond the
    /// maximum, the store closes tables that were not used of late. It opens them again when they are read, which costs
    /// a read or two. Iterators and compactions can go over any number of tables. They need no further descriptors, but
    /// the tables that they still have to read stay in memory. Default: a quarter of the files that the process may
    /// have open (`ulimit -n`), at least 16, so that a store that grows never runs into that limit. Raise it for a
    /// large store on a machine with much memory; lower it to bound memory.
    pub open_tables_max: usize,
    /// The size of the log files at which the store flushes the keyspace that holds back the oldest. Default: 1 GiB. A
    /// lower value shortens recovery; a higher one lets rarely written keyspaces keep their memtables.
    pub log_bytes_max: u64,
    /// The size up to which finished log files stay for [change feeds](crate::Store::changes) when no memtable needs
    /// them. At most half of [`log_bytes_max`](Options::log_bytes_max) counts, and a quarter of the area that the log
    /// has to itself. A disk with little space keeps none. Whole files count: each flush ends one, and a file is a
    /// little longer than the largest memtable. The store remembers the value. Default: `None`, which is the remembered
    /// value, and 0 in a new store. With 0, a feed can lose its place with each flush.
    pub changes_kept_bytes: Option<u64>,
    /// Memory limit for the memtables of all keyspaces together. When the active memtables reach half of the limit, the
    /// store flushes the largest. When all memtables reach the limit, writers wait for a flush. A single write may
    /// exceed the limit. So may memtables of less than 64 KiB, because they are not sealed for it. Memtables that only
    /// iterators hold do not count.
    ///
    /// Default: `None`. The limit is then 512 MiB, or twice the memory that the largest keyspace may take if that is
    /// more ([`memtable_bytes`](KeyspaceOptions::memtable_bytes) times
    /// [`memtables_max`](KeyspaceOptions::memtables_max)). The minimum is 1 MiB. A lower limit saves memory if many
    /// keyspaces are written to, but makes smaller tables.
    /// [`StoreProperties::memtable_bytes_max`](crate::StoreProperties::memtable_bytes_max) is the limit in force. A
    /// store that is open read-only holds the whole log in memory, whatever the limit.
    pub memtables_bytes_max: Option<u64>,
    /// The number of threads that compact, in addition to one that flushes. Default: the number of cores, at least one,
    /// at most eight.
    pub compaction_threads: usize,
    /// The maximum write rate of compactions, in bytes a second; 0 for none. Default: 0. Within the bound the pace
    /// follows the debt by itself.
    pub compaction_bytes_per_s_max: u64,
    /// The number of asynchronous requests under way from which on [`Store::is_busy`](crate::Store::is_busy) is true.
    /// Default: 1,024, enough to keep a disk with deep queues at work. A lower number shortens the time of each
    /// request.
    pub requests_outstanding_max: usize,
    /// The maximum number of locks that pessimistic transactions hold together. Default: 1,048,576; each takes some 200
    /// bytes and its key.
    pub transaction_locks_max: u64,
    /// Options of the keyspace `default`, and of keyspaces found at open whose options are not given.
    pub keyspace: KeyspaceOptions,
    /// Length of a segment of the value log, a multiple of 4 KiB. Default: 64 MiB. Shorter segments are collected with
    /// less work at a time; each takes a file. The option counts for keyspaces with a [value
    /// log](KeyspaceOptions::value_log_min_bytes) only, as do the next three.
    pub value_segment_bytes: u64,
    /// The treatment of the dead parts of a segment before it is collected. Default: `None`, the program picks by the
    /// nature of the disk. Discarding takes nothing but a call to the disk; zeroing pays on drives that compress, and
    /// costs writes elsewhere.
    pub value_trim: Option<Trim>,
    /// The choice of the segment that is collected next. Default: the one with the greatest share of garbage.
    pub value_victims: Victims,
    /// The maximum size of live and dead values together, without the trimmed parts, as a percentage of the live ones.
    /// Above it, segments are collected. Default: 125. A lower value saves space, a higher one saves writes.
    pub value_inflation_percent_max: u32,
    /// The time from which on an operation of a caller counts as slow. The store counts slow operations
    /// ([`Statistics::slow_operations`](crate::Statistics)), keeps the last ones
    /// ([`Store::slow_operations`](crate::Store::slow_operations)), and sends each to the listener
    /// ([`StoreEvent::Slow`](crate::StoreEvent)), with the parts of the store that took the time. Default: `None`; no
    /// operation is watched. A watched operation that reads no disk and waits for nothing costs a nanosecond or two
    /// more. One that does costs a look at the clock for each such step. Operations that wait for nothing but the
    /// processor are found in a sample, one in sixteen.
    pub slow_operation: Option<Duration>,
    /// The listener that gets flushes, compactions, stalls and failures. Default: none.
    pub listener: Option<Arc<dyn Listener>>,
    /// The maker of the store's compactor. Default: [`Local`], which runs compactions on this machine's processors.
    pub compactor: Arc<dyn MakeCompactor>,
    /// Finds the store's volumes, and decides where its files go. Default: [`Plain`], which keeps everything on the
    /// volume that the caller opens.
    pub places: Arc<dyn MakePlaces>,
    /// The parts that are switched off. Default: none.
    #[doc(hidden)]
    pub ablation: Ablation,
}

setters!(Options {
    create_if_missing: bool,
    error_if_exists: bool,
    durability: Durability,
    cache_bytes: u64,
    open_tables_max: usize,
    log_bytes_max: u64,
    changes_kept_bytes: u64 => Some(changes_kept_bytes),
    memtables_bytes_max: u64 => Some(memtables_bytes_max),
    compaction_threads: usize,
    compaction_bytes_per_s_max: u64,
    requests_outstanding_max: usize,
    transaction_locks_max: u64,
    keyspace: KeyspaceOptions,
    value_segment_bytes: u64,
    value_trim: Trim => Some(value_trim),
    value_victims: Victims,
    value_inflation_percent_max: u32,
    slow_operation: Duration => Some(slow_operation),
    listener: Arc<dyn Listener> => Some(listener),
    compactor: Arc<dyn MakeCompactor>,
    places: Arc<dyn MakePlaces>,
});

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            durability: Durability::default(),
            cache_bytes: 256 << 20,
            open_tables_max: open_tables_max(),
            log_bytes_max: 1 << 30,
            changes_kept_bytes: None,
            memtables_bytes_max: None,
            compaction_threads: std::thread::available_parallelism().map_or(1, |n| n.get()).clamp(1, 8),
            compaction_bytes_per_s_max: 0,
            requests_outstanding_max: 1024,
            transaction_locks_max: 1 << 20,
            keyspace: KeyspaceOptions::default(),
            value_segment_bytes: 64 << 20,
            value_trim: None,
            value_victims: Victims::default(),
            value_inflation_percent_max: 125,
            slow_operation: None,
            listener: None,
            compactor: Arc::new(Local),
            places: Arc::new(Plain),
            ablation: Ablation::default(),
        }
    }
}

/// Returns the default number of open tables: a quarter of the process's limit. The rest is for its other files and
/// connections.
pub(crate) fn open_tables_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX).max(16))
}

impl Options {
    /// Puts values that cannot work into their bounds.
    pub(crate) fn bounded(mut self) -> Options {
        self.keyspace = self.keyspace.bounded();
        self.compaction_threads = self.compaction_threads.clamp(1, 64);
        self.requests_outstanding_max = self.requests_outstanding_max.max(1);
        self.open_tables_max = self.open_tables_max.max(1);
        self.memtables_bytes_max = self.memtables_bytes_max.map(|bytes| bytes.max(1 << 20));
        self.value_segment_bytes = self.value_segment_bytes.clamp(16 << 10, 1 << 30).next_multiple_of(4 << 10);
        self.value_inflation_percent_max = self.value_inflation_percent_max.max(101);
        self
    }
}

impl Options {
    /// Returns the options by name, but for those that only count at opening and those of keyspaces.
    pub(crate) fn named(&self) -> Vec<(&'static str, String)> {
        let mut named = vec![
            ("durability", self.durability.to_string()),
            ("cache_bytes", self.cache_bytes.to_string()),
            ("open_tables_max", self.open_tables_max.to_string()),
            ("log_bytes_max", self.log_bytes_max.to_string()),
            ("changes_kept_bytes", self.changes_kept_bytes.unwrap_or(0).to_string()),
            (
                "memtables_bytes_max",
                self.memtables_bytes_max.map_or("by the keyspaces".to_owned(), |bytes| bytes.to_string()),
            ),
            ("compaction_threads", self.compaction_threads.to_string()),
            ("compaction_bytes_per_s_max", self.compaction_bytes_per_s_max.to_string()),
            ("requests_outstanding_max", self.requests_outstanding_max.to_string()),
            ("transaction_locks_max", self.transaction_locks_max.to_string()),
            ("value_segment_bytes", self.value_segment_bytes.to_string()),
            ("value_trim", self.value_trim.map_or("by the disk".to_owned(), |trim| format!("{trim:?}"))),
            ("value_victims", format!("{:?}", self.value_victims)),
            ("value_inflation_percent_max", self.value_inflation_percent_max.to_string()),
            ("slow_operation", self.slow_operation.map_or("off".to_owned(), |limit| format!("{limit:?}"))),
            ("compaction", self.compactor.name()),
            ("places", self.places.name()),
        ];
        if self.ablation.serial_log {
            named.push(("serial_log", "true".to_owned()));
        }
        named
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Options");
        for (name, value) in self.named() {
            debug.field(name, &format_args!("{value}"));
        }
        debug.field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

/// Options of one keyspace.
///
/// The store does not save them, and they may differ from one opening to the next. None of them bears on the meaning of
/// the data, every table records its own options, and compactions bring older tables in line. So the caller that opens
/// a store has to name the options that are not the defaults each time;
/// [`KeyspaceProperties::options`](crate::KeyspaceProperties) shows those in force.
#[derive(Clone)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// The size at which a memtable is flushed. Its memory comes in chunks of up to 2 MiB, and the last chunk may be
    /// only begun. Default: 64 MiB.
    pub memtable_bytes: u64,
    /// The maximum number of memtables in memory, the active one included; writers wait when all are full. Default: 4.
    /// If the log has its own area of a disk, the number is limited to the memtables whose log files fit there.
    /// [`KeyspaceProperties::memtables_max`](crate::KeyspaceProperties) is the number in force.
    pub memtables_max: usize,
    /// The compression of the blocks of each level; the last entry holds for all deeper levels. Default: LZ4
    /// everywhere.
    pub compression: Vec<Compression>,
    /// Uncompressed size of a data block. Default: 4 KiB. Larger blocks compress better, and each lookup reads more.
    pub block_bytes: usize,
    /// Bloom filter bits a key, at most 1,000; 0 for no filter. Default: 10 (1% of absent keys cost a read).
    pub filter_bits_per_key: u32,
    /// The number of tables at which level 0 is compacted. Default: 4.
    pub level0_tables: usize,
    /// The maximum number of tables in level 0. Writers are slowed from half of it on, and wait at it until compactions
    /// have made room. While compactions fail, writes answer [`Error::Level0Full`](crate::Error::Level0Full). Every
    /// table of level 0 costs each read of an absent key a look at its filter. The minimum is twice `level0_tables`. A
    /// memtable that holds back the oldest log file becomes a table even beyond the maximum. Default: 40.
    pub level0_tables_max: usize,
    /// Target size of the first level below level 0 that is in use. Default: 256 MiB.
    pub level_base_bytes: u64,
    /// The ratio of each level's target to that of the level above. Default: 10.
    pub level_multiplier: u64,
    /// Size at which a table is ended. Default: 64 MiB.
    pub table_bytes: u64,
    /// The length from which on values go to the value log when a memtable is flushed. Tables keep short handles for
    /// them. So compactions do not copy large values, and a read of one costs one more access. `None`: all values stay
    /// in tables. Default: `None`, as tasks with handles run in this process only.
    /// [`with_value_log`](KeyspaceOptions::with_value_log) sets the length from which on the value log pays. A
    /// [filter](KeyspaceOptions::compaction_filter) that needs whole values keeps them in tables, too.
    pub value_log_min_bytes: Option<u64>,
    /// The filter that decides at compaction whether old entries stay. Default: none.
    pub compaction_filter: Option<Arc<dyn CompactionFilter>>,
    /// True if writes to this keyspace may use the space that is kept for deletions, when the store refuses other puts
    /// because a disk is full. Meant for a few short records without which a program cannot free space. Default: false.
    pub uses_reserve: bool,
}

setters!(KeyspaceOptions {
    memtable_bytes: u64,
    memtables_max: usize,
    compression: Vec<Compression>,
    block_bytes: usize,
    filter_bits_per_key: u32,
    level0_tables: usize,
    level0_tables_max: usize,
    level_base_bytes: u64,
    level_multiplier: u64,
    table_bytes: u64,
    value_log_min_bytes: u64 => Some(value_log_min_bytes),
    compaction_filter: Arc<dyn CompactionFilter> => Some(compaction_filter),
    uses_reserve: bool,
});

/// The length, 4 KiB, from which on values in the value log made each measured workload faster: loading, overwriting,
/// reading and scanning. Values of 1 KiB gain in all of these but scans
/// ([measured](../../../../docs/evidence/large-values.md)).
pub const VALUE_LOG_MIN_BYTES: u64 = 4 << 10;

impl KeyspaceOptions {
    /// Puts values of [`VALUE_LOG_MIN_BYTES`] and more into the value log.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::{KeyspaceOptions, VALUE_LOG_MIN_BYTES};
    ///
    /// let options = KeyspaceOptions::default().with_value_log();
    /// assert_eq!(options.value_log_min_bytes, Some(VALUE_LOG_MIN_BYTES));
    /// ```
    #[must_use]
    pub fn with_value_log(self) -> KeyspaceOptions {
        self.value_log_min_bytes(VALUE_LOG_MIN_BYTES)
    }
}

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions {
            memtable_bytes: 64 << 20,
            memtables_max: 4,
            compression: vec![Compression::Lz4],
            block_bytes: 4 << 10,
            filter_bits_per_key: 10,
            level0_tables: 4,
            level0_tables_max: 40,
            level_base_bytes: 256 << 20,
            level_multiplier: 10,
            table_bytes: 64 << 20,
            value_log_min_bytes: None,
            compaction_filter: None,
            uses_reserve: false,
        }
    }
}

impl fmt::Debug for KeyspaceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("KeyspaceOptions");
        for (name, value) in self.named() {
            debug.field(name, &format_args!("{value}"));
        }
        debug.finish()
    }
}

impl KeyspaceOptions {
    /// Returns the options by name.
    pub(crate) fn named(&self) -> Vec<(&'static str, String)> {
        let filter = self.compaction_filter.as_ref().map_or("none".to_owned(), |filter| filter.name().to_owned());
        let compression: Vec<String> = self.compression.iter().map(ToString::to_string).collect();
        vec![
            ("memtable_bytes", self.memtable_bytes.to_string()),
            ("memtables_max", self.memtables_max.to_string()),
            ("compression", compression.join(", ")),
            ("block_bytes", self.block_bytes.to_string()),
            ("filter_bits_per_key", self.filter_bits_per_key.to_string()),
            ("level0_tables", self.level0_tables.to_string()),
            ("level0_tables_max", self.level0_tables_max.to_string()),
            ("level_base_bytes", self.level_base_bytes.to_string()),
            ("level_multiplier", self.level_multiplier.to_string()),
            ("table_bytes", self.table_bytes.to_string()),
            ("value_log_min_bytes", self.value_log_min_bytes.map_or("none".to_owned(), |bytes| bytes.to_string())),
            ("compaction_filter", filter),
            ("uses_reserve", self.uses_reserve.to_string()),
        ]
    }

    /// Puts values that cannot work into their bounds.
    pub(crate) fn bounded(mut self) -> KeyspaceOptions {
        self.memtable_bytes = self.memtable_bytes.clamp(4 << 10, 64 << 30);
        self.memtables_max = self.memtables_max.clamp(2, 64);
        self.filter_bits_per_key = self.filter_bits_per_key.min(1000);
        self.level0_tables = self.level0_tables.clamp(1, 1000);
        self.level0_tables_max = self.level0_tables_max.max(2 * self.level0_tables);
        self.level_multiplier = self.level_multiplier.clamp(2, 1000);
        self.level_base_bytes = self.level_base_bytes.max(4 << 10);
        self.table_bytes = self.table_bytes.max(1 << 10);
        if self.compression.is_empty() {
            self.compression.push(Compression::None);
        }
        self
    }

    pub(crate) fn compression_at(&self, level: usize) -> Compression {
        self.compression.get(level).or(self.compression.last()).copied().unwrap_or(Compression::None)
    }

    /// Returns the options for tables of `level`. A repair without a manifest knows the tables by the keyspace's id and
    /// name.
    pub(crate) fn table_options(&self, keyspace_id: u32, name: &str, level: usize) -> TableOptions {
        TableOptions {
            block_bytes: self.block_bytes,
            compression: self.compression_at(level),
            filter_bits_per_key: self.filter_bits_per_key,
            keyspace_id,
            keyspace_name: name.to_owned(),
            ..TableOptions::default()
        }
    }
}

/// The data that an approximate size counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeOptions {
    /// True if entries in memtables count. They are not compressed and take some 45 bytes of bookkeeping each. Default:
    /// false.
    pub include_memtables: bool,
    /// True if tables on disk count. Default: true.
    pub include_tables: bool,
}

setters!(SizeOptions { include_memtables: bool, include_tables: bool });

impl Default for SizeOptions {
    fn default() -> SizeOptions {
        SizeOptions { include_memtables: false, include_tables: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of a few keys had a filter of 2 GiB.
    #[test]
    fn a_filter_has_a_bound() {
        let options = KeyspaceOptions::default().filter_bits_per_key(u32::MAX);
        assert_eq!(options.bounded().filter_bits_per_key, 1000);
    }

    /// A field without a setter does not compile here: the compiler wants all fields, and each is set by its name.
    #[test]
    fn every_field_has_its_setter() {
        let KeyspaceOptions {
            memtable_bytes,
            memtables_max,
            compression,
            block_bytes,
            filter_bits_per_key,
            level0_tables,
            level0_tables_max,
            level_base_bytes,
            level_multiplier,
            table_bytes,
            value_log_min_bytes,
            compaction_filter: _,
            uses_reserve,
        } = KeyspaceOptions::default()
            .memtable_bytes(1)
            .memtables_max(2)
            .compression(vec![Compression::None])
            .block_bytes(4)
            .filter_bits_per_key(5)
            .level0_tables(6)
            .level0_tables_max(7)
            .level_base_bytes(8)
            .level_multiplier(9)
            .table_bytes(10)
            .value_log_min_bytes(11)
            .uses_reserve(true);
        assert!(uses_reserve);
        assert_eq!((memtable_bytes, memtables_max, block_bytes, filter_bits_per_key), (1, 2, 4, 5));
        assert_eq!((level0_tables, level0_tables_max, level_base_bytes), (6, 7, 8));
        assert_eq!((level_multiplier, table_bytes, compression), (9, 10, vec![Compression::None]));
        assert_eq!(value_log_min_bytes, Some(11));
        let Options {
            create_if_missing,
            error_if_exists,
            durability,
            cache_bytes,
            open_tables_max,
            log_bytes_max,
            changes_kept_bytes,
            memtables_bytes_max,
            compaction_threads,
            compaction_bytes_per_s_max,
            requests_outstanding_max,
            transaction_locks_max,
            keyspace,
            value_segment_bytes,
            value_trim,
            value_victims,
            value_inflation_percent_max,
            slow_operation,
            listener: _,
            compactor: _,
            places: _,
            ablation: _,
        } = Options::default()
            .create_if_missing(false)
            .error_if_exists(true)
            .durability(Durability::Synced)
            .cache_bytes(1)
            .open_tables_max(2)
            .log_bytes_max(3)
            .changes_kept_bytes(16)
            .memtables_bytes_max(15)
            .compaction_threads(4)
            .compaction_bytes_per_s_max(5)
            .requests_outstanding_max(6)
            .transaction_locks_max(9)
            .value_segment_bytes(13)
            .value_trim(Trim::Full)
            .value_victims(Victims::Fifo)
            .value_inflation_percent_max(14)
            .slow_operation(Duration::from_millis(17))
            .keyspace(KeyspaceOptions::default().table_bytes(10));
        assert_eq!(slow_operation, Some(Duration::from_millis(17)));
        assert_eq!((create_if_missing, error_if_exists, durability), (false, true, Durability::Synced));
        assert_eq!((cache_bytes, open_tables_max, log_bytes_max, compaction_threads), (1, 2, 3, 4));
        assert_eq!((compaction_bytes_per_s_max, requests_outstanding_max, changes_kept_bytes), (5, 6, Some(16)));
        assert_eq!((transaction_locks_max, keyspace.table_bytes), (9, 10));
        assert_eq!((value_segment_bytes, value_trim, value_inflation_percent_max), (13, Some(Trim::Full), 14));
        assert_eq!((value_victims, memtables_bytes_max), (Victims::Fifo, Some(15)));
        let SizeOptions { include_memtables, include_tables } =
            SizeOptions::default().include_memtables(true).include_tables(false);
        assert_eq!((include_memtables, include_tables), (true, false));
    }
}
