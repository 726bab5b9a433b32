//! The LSM engine: an ordered, durable map that outlives crashes.
//!
//! ```text
//!  put ──> situ-pipeline: prologue │ log │ epilogue ──> memtable/      get ──> read/get.rs: memtables, then tables
//!                │                                   │ sealed          iter ─> cursor.rs over merge.rs
//!                v                                   v
//!           situ-log                 flush.rs ──> level 0 ──> picker.rs, compact.rs ──> deeper levels
//!                                                    └──────────────┬──────────────────────┘
//!                                       version.rs, edit.rs, manifest.rs: what is where, atomically
//! ```
//!
//! * [`Store`] is the store that a program opens, [`Keyspace`] an ordered map in it, [`WriteBatch`] an atomic change
//!   across keyspaces, [`Snapshot`] a moment to read at, [`Cursor`] a walk over keys.
//! * [`Transaction`]: reads and writes that take effect together, isolated from those of others; `transaction.rs` says
//!   how.
//! * `situ-pipeline` carries writes through their stages; `pipeline.rs` is the engine's side of the stages: memtables
//!   and log files.
//! * `core.rs` lists the locks, in the order in which they are taken; `background.rs` lists the threads.
//! * `docs/architecture.md` has the promises, `docs/formats/` has the byte formats.

mod api;
mod base;
mod check;
mod core;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod memtable;
mod opening;
mod pipeline;
mod read;
mod rows;
mod versions;
mod work;

/// The seam between a store and the volumes that it lies on.
///
/// A store on one volume needs none of it. `situ-tiers` implements it for a store on two disks.
pub mod places {
    pub use crate::base::places::*;
    pub use crate::opening::known::{KnownStore, manifest_has_copy, tables_of_youngest_manifest};
}

pub use api::async_read::{AtOnce, DiskRead, ScanEntry, ScanOptions, ScanPage};
pub use api::changes::{Change, ChangeBatch, ChangeFeed, ChangeKind, ChangePosition};
pub use api::checkpoint::CheckpointReport;
pub use api::disk_use::DiskUse;
pub use api::iter::Iter;
pub use api::keyspace::{Keyspace, KeyspaceProperties, LevelProperties, SegmentProperties, TableProperties};
pub use api::snapshot::Snapshot;
pub use api::store::properties::{StoreProperties, ValueLogProperties};
pub use api::store::{Store, StoreBuilder};
pub use api::transaction::cursor::TransactionCursor;
pub use api::transaction::future::{CommitFuture, ForUpdateFuture, LockFuture};
pub use api::transaction::iter::TransactionIter;
pub use api::transaction::{Isolation, Transaction, TransactionKind, TransactionOptions};
pub use base::batch::WriteBatch;
pub use base::damage::Damage;
pub use base::error::{Error, Result};
pub use base::listener::{Listener, StoreEvent};
pub use base::lock_wait::LockWait;
#[doc(hidden)]
pub use base::options::Ablation;
pub use base::options::{
    BATCH_BYTES_MAX, Durability, KEY_BYTES_MAX, KeyspaceOptions, LEVELS, Options, SizeOptions, VALUE_BYTES_MAX,
    VALUE_LOG_MIN_BYTES,
};
pub use base::range::KeyRange;
pub use base::slow::{SlowKind, SlowOperation, SlowPart};
pub use base::stats::{DebtProperties, LatencySummary, Statistics};
#[cfg(feature = "tracing")]
pub use base::tracing_listener::TracingListener;
pub use base::value::{Key, Value};
pub use check::repair::{
    LossKind, LostName, LostRange, LostWrites, RepairOptions, RepairReport, repair, repair_directory, repair_home,
    repair_store,
};
pub use check::verify::{
    DAMAGES_MAX, VerifyProgress, VerifyReport, verify, verify_directory, verify_home, verify_store,
};
pub use pipeline::future::{ReadyFuture, WriteFuture};
pub use pipeline::space::{SpaceChange, SpaceKind, SpaceLevel, SpaceProperties, SpaceShortage};
pub use read::cursor::Cursor;
pub use read::future::ReadFuture;
pub use read::options::ReadOptions;
pub use rows::locks::LockMode;
pub use situ_compaction::{CompactionFilter, Decision, FilterContext};
pub use situ_table::{Compression, DeadBefore, Lifetime, SequenceNumber};
pub use situ_values::{Trim, Victims};
