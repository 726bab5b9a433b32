//! Situ: an ordered, durable key-value store, as a library.
//!
//! A store is a directory. One process at a time writes to it; any number of its threads do, blocking or not.
//!
//! # A program keeps data on a local disk
//!
//! ```
//! use situ::{Durability, Store, WriteBatch};
//!
//! # fn main() -> situ::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path();
//! let store = Store::open(path)?;
//!
//! // Buffered: survives this process. Synced: survives power failure.
//! store.put("ada", "1815")?;
//! store.put_with("grace", "1906", Durability::Synced)?;
//! assert_eq!(store.get("ada")?.unwrap(), "1815");
//!
//! // Keys are in order: ranges and prefixes are iterators.
//! for pair in store.range("a".."h")? {
//!     let (name, born) = pair?;
//!     println!("{name:?} {born:?}");
//! }
//!
//! // Several changes at once, across keyspaces.
//! let languages = store.keyspace("languages")?;
//! let mut batch = WriteBatch::new();
//! batch.put("grace", "1906-1992")?;
//! batch.put_in(&languages, "cobol", "grace")?;
//! store.write(batch)?;
//! store.close()
//! # }
//! ```
//!
//! # Threads read and write at the same time
//!
//! ```
//! use situ::Store;
//!
//! # fn main() -> situ::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path();
//! let store = Store::open(path)?;
//! store.put("ada", "1815")?;
//!
//! // A snapshot never changes, whatever is written after it.
//! let snapshot = store.snapshot()?;
//! store.delete("ada")?;
//! assert_eq!(snapshot.get("ada")?.unwrap(), "1815");
//! assert_eq!(snapshot.iter()?.count(), 1);
//!
//! // Reads and writes that belong together. The closure runs again if another thread was in the way.
//! let visits = store.transact(|transaction| {
//!     let seen = transaction.get("visits")?;
//!     let visits = 1 + seen.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
//!     transaction.put("visits", visits.to_be_bytes())?;
//!     Ok(visits)
//! })?;
//! assert_eq!(visits, 1);
//! store.close()
//! # }
//! ```
//!
//! # Names
//!
//! One action has one name, and its arguments one order, on a store, a keyspace, a batch, a transaction and a snapshot:
//! `put(key, value)`, `delete(key)`, `delete_range(begin, end)`, `get(key)`, `range(range)`. Three endings vary it, in
//! this order:
//!
//! | ending | adds |
//! |---|---|
//! | `_in` | the keyspace, as first argument; without it, the keyspace is `default` |
//! | `_with` | a choice, as last argument: a [`Durability`] for a write, [`ReadOptions`] for a read |
//! | `_async` | a future in the place of a wait; all errors come from the future |
//!
//! ```
//! # use situ::{Durability, ReadOptions, Store};
//! # async fn example(store: &Store) -> situ::Result<()> {
//! store.put_async("ada", "1815").await?;
//! store.put_with_async("grace", "1906", Durability::Synced).await?;
//! let born = store.get_async("ada").await?;
//! let cached = store.get_with("grace", &ReadOptions::default().memory_only(true))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening, reading, writing, keyspaces, properties | [`Store`]; [`StoreBuilder`] has other ways to open |
//! | the operations on one ordered map, blocking and asynchronous | [`Keyspace`] |
//! | choices, with units and defaults | [`Options`], [`KeyspaceOptions`], [`ReadOptions`] |
//! | walks over keys | [`Iter`]; [`Cursor`] moves back and forth and copies nothing |
//! | reads and writes that take effect together | [`Transaction`]; `docs/guide/transactions.md` compares the kinds |
//! | errors and their cures | [`Error`] |
//! | damage | [`verify_directory`], [`repair_directory`] |
//! | other clocks, threads, devices and volumes | [`env`](mod@env), [`device`], [`storage`] |
//!
//! # Features
//!
//! None is on by default: the ordered store stands alone.
//!
//! | feature | adds |
//! |---|---|
//! | `backup` | `situ::backup`: incremental backups in a directory |
//! | `hash` | `situ::hash`: a store for drives that compress, without an order of keys |
//! | `cache` | `situ::cache`: a cache in memory and on flash |
//! | `rawdisk` | `situ::rawdisk`: volumes on disks without a file system |
//! | `tiers` | `situ::tiers`: a fast disk for the log and the upper levels |
//! | `offload` | `situ::offload`: compactions divided between the processor and other units |
//! | `tracing` | `TracingListener`: the events of a store for the subscribers of a program |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// The store.
pub use situ_engine::{
    AtOnce, CheckpointReport, Cursor, DiskRead, DiskUse, Durability, Error, Iter, Key, KeyRange, Keyspace, ReadFuture,
    ReadyFuture, Result, ScanEntry, ScanPage, SequenceNumber, Snapshot, Store, StoreBuilder, Value, WriteBatch,
    WriteFuture,
};
// Transactions.
pub use situ_engine::{
    CommitFuture, ForUpdateFuture, Isolation, LockFuture, LockMode, LockWait, Transaction, TransactionCursor,
    TransactionIter, TransactionKind, TransactionOptions,
};
// Options and bounds.
pub use situ_engine::{
    BATCH_BYTES_MAX, Compression, KEY_BYTES_MAX, KeyspaceOptions, LEVELS, Options, ReadOptions, ScanOptions,
    SizeOptions, Trim, VALUE_BYTES_MAX, VALUE_LOG_MIN_BYTES, Victims,
};
// What a store tells of itself.
#[cfg(feature = "tracing")]
pub use situ_engine::TracingListener;
pub use situ_engine::{
    Damage, DebtProperties, KeyspaceProperties, LatencySummary, LevelProperties, Listener, SegmentProperties, SlowKind,
    SlowOperation, SlowPart, SpaceChange, SpaceKind, SpaceLevel, SpaceProperties, SpaceShortage, Statistics,
    StoreEvent, StoreProperties, TableProperties, ValueLogProperties,
};
// Filters of compactions.
pub use situ_engine::{CompactionFilter, DeadBefore, Decision, FilterContext, Lifetime};
// Changes as they are committed.
pub use situ_engine::{Change, ChangeBatch, ChangeFeed, ChangeKind, ChangePosition};
// Checks and repairs.
pub use situ_engine::{
    DAMAGES_MAX, LossKind, LostName, LostRange, LostWrites, RepairOptions, RepairReport, VerifyProgress, VerifyReport,
    repair, repair_directory, repair_home, verify, verify_directory, verify_home,
};

/// Time, threads and events: the parts of the operating system that [`StoreBuilder::env`] replaces.
pub mod env {
    pub use situ_base::{
        Clock, ClockKeeper, ClockRecord, Env, Event, Executor, JobHandle, StoreClock, SystemClock, ThreadExecutor,
    };
}

/// Block devices, and the drives below them.
pub mod device {
    pub use situ_device::{
        Backend, Buffer, Completion, Compresses, Counts, Device, DeviceLock, Drive, FileDevice, Geometry, Nature, Op,
        OpenOptions, PAGE_BYTES, Queue, Space, Ticket, open,
    };
}

/// Volumes: the places of a store's files. [`StoreBuilder::open_volume`] takes one.
pub mod storage {
    pub use situ_storage::{
        Corruption, DirectoryVolume, Error, FileMeta, FileName, FinishedRead, Lock, PageFile, ReadCompletion,
        ReadQueue, ReadRequest, Reader, Result, Volume, Writer,
    };
}

/// A disk without a file system as a volume.
#[cfg(feature = "rawdisk")]
#[cfg_attr(docsrs, doc(cfg(feature = "rawdisk")))]
pub mod rawdisk {
    pub use situ_rawdisk::{AreaUse, CacheUse, DiskId, FormatOptions, RawCheck, RawOptions, RawReport, RawVolume};
}

/// Compactions: tasks, their runs, and the seam to [compactors](compaction::Compactor).
pub mod compaction {
    pub use situ_compaction::{
        AttemptHost, Compactor, CompactorParts, Destination, Division, DroppedValues, Elsewhere, Encoder, FinishedJob,
        FrozenFilter, Grandparent, InputTable, JobNotes, JobOrder, JobShape, KeyRange, KeySpan, Local, LocalCompactor,
        MakeCompactor, Measure, MergeRules, OutputRules, OutputTable, Part, PipelineRun, Pipelines, Priority, ReadTail,
        Result, Run, RunMode, RunReport, Stage, Stages, TableInput, TablePlace, Task, TaskError, TaskHost, TaskOutput,
        TaskStats, ValueHandles, ValueLocation, check_output, cut, run, run_with,
    };
}

/// Incremental backups of a store, in a directory.
#[cfg(feature = "backup")]
#[cfg_attr(docsrs, doc(cfg(feature = "backup")))]
pub mod backup {
    pub use situ_backup::{
        Backup, BackupDamage, BackupReport, Backups, Depth, Listing, OnBytes, Progress, PruneReport, RestoreReport,
        VerifyReport,
    };
}

/// A cache in memory and on flash: items go when there is no room for them.
#[cfg(feature = "cache")]
#[cfg_attr(docsrs, doc(cfg(feature = "cache")))]
pub mod cache {
    pub use situ_cache::{
        Admission, Cache, Evicted, Flash, FlashProperties, FlashReader, FlashRules, Hit, Item, KEY_BYTES_MAX, Lookup,
        MEMORY_BYTES_MIN, Meta, OnEvicted, OnItem, Options, OwnerMemory, Properties, Record, Refused, Start, Survey,
        Surveyed, VALUE_BYTES_MAX,
    };
}

/// A store for drives that compress: keys hash straight to blocks, and no index is in memory.
///
/// ```
/// use situ::hash::{Durability, HashBatch, HashOptions, HashStore};
///
/// # fn main() -> situ::hash::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path();
/// let store = HashStore::open(path, HashOptions::default())?;
/// store.put("ada", "1815")?;
///
/// // All of it or nothing, durable on return.
/// let mut batch = HashBatch::new();
/// batch.put("grace", "1906")?;
/// batch.delete("ada")?;
/// store.write_with(batch, Durability::Synced)?;
/// assert_eq!(store.multi_get(&["ada", "grace"])?, [None, Some(b"1906".to_vec())]);
///
/// // All entries as of one moment.
/// let snapshot = store.snapshot()?;
/// store.put("ada", "1815")?;
/// assert_eq!(snapshot.scan().count(), 1);
/// drop(snapshot);
/// store.close()
/// # }
/// ```
#[cfg(feature = "hash")]
#[cfg_attr(docsrs, doc(cfg(feature = "hash")))]
pub mod hash {
    pub use situ_hash::entry::KEY_BYTES_MAX;
    pub use situ_hash::record::VALUE_BYTES_MAX;
    pub use situ_hash::{
        Durability, Error, Expected, Expiring, HashBatch, HashEvent, HashOptions, HashProperties, HashRepair,
        HashReport, HashScan, HashSnapshot, HashStore, HashStoreBuilder, HashWrite, IsDead, OnEvent, OnValue, Pair,
        Result, SortedScan, SpaceChange, SpaceLevel, SpaceProperties, SpaceShortage, StoreId,
    };
}

/// Compactions divided between the processors and other units: near-data nodes, other processes, accelerators.
/// [`StoreBuilder::compactor`] takes an [`Offload`](offload::Offload).
#[cfg(feature = "offload")]
#[cfg_attr(docsrs, doc(cfg(feature = "offload")))]
pub mod offload {
    pub use situ_offload::{
        Arm, Assignment, Calibrated, ClassReport, Cost, CpuUnit, Decider, DecisionRecord, DecisionReport,
        DecisionRules, Finished, Held, KnownFilters, LargeValues, Limits, Load, MEASURE_AGE_MAX, MachineSampler,
        ModeRule, Offer, Offload, OutOfService, Patience, Policy, READ_AGE_MAX, Ran, ReadInputs, Refused, Resources,
        RunTask, Sampler, Scheduler, SharePoint, Side, Split, Surroundings, TaskClass, TaskOutcome, TaskRecord,
        TaskRunner, TaskThreads, Term, Unit, UnitEvent, UnitReport, ValuePoint, ValueSize, calibrate, decode_output,
        decode_task, encode_output, encode_task, growth_ratio, rules_of,
    };
}

/// A fast disk for the log and the upper levels of a store. Its functions know both disks; those of the same names in
/// [`situ`](crate) know one.
#[cfg(feature = "tiers")]
#[cfg_attr(docsrs, doc(cfg(feature = "tiers")))]
pub mod tiers {
    pub use situ_tiers::{
        CAPACITY, FAST, PlacementDecision, PlacementProperties, PlacementRule, TieredBuilder, TieredRepair,
        TieredStore, Tiers, destroy, destroy_home, files_of, files_of_home, repair_directory, repair_home,
        repair_volumes, verify_directory, verify_home, verify_volumes,
    };
}

/// The examples of the guide are compiled and run.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/transactions.md")]
    struct Transactions;

    #[cfg(feature = "hash")]
    #[doc = include_str!("../../../docs/guide/compressing-drives.md")]
    struct CompressingDrives;
}
