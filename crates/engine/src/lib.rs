//! The LSM engine: an ordered, durable map that outlives crashes.
//!
//! ```text
//!  put ──> commit.rs: prologue │ log │ epilogue ──> memtable/          get ──> read.rs: memtables, then tables
//!                │                                   │ sealed          iter ─> cursor.rs over merge.rs
//!                v                                   v
//!           situ-log                 flush.rs ──> level 0 ──> picker.rs, compact.rs ──> deeper levels
//!                                                    └──────────────┬──────────────────────┘
//!                                       version.rs, edit.rs, manifest.rs: what is where, atomically
//! ```
//!
//! * [`Store`] is what a program opens, [`Keyspace`] an ordered map in it, [`WriteBatch`] an atomic change across
//!   keyspaces, [`Snapshot`] a moment to read at, [`Cursor`] a walk over keys.
//! * [`Transaction`]: reads and writes that take effect together and in nobody's way; `transaction.rs` says how.
//! * `admission.rs` says when a write may begin and where it waits until then.
//! * `core.rs` says which locks exist and in which order they are taken; `background.rs` which threads exist.
//! * `docs/architecture.md` has the promises, `docs/formats/` the bytes.

mod admission;
mod async_read;
mod background;
mod batch;
mod carry;
mod closing;
mod commit;
mod compact;
mod core;
mod courtesy;
mod cursor;
mod damage;
mod disk_use;
mod disks;
mod drain;
mod edit;
mod error;
mod flush;
mod future;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gathering;
mod heat;
mod iter;
mod joining;
mod keyspace;
mod listener;
mod locks;
mod log_area;
mod loggers;
mod manifest;
mod members;
pub mod memtable;
mod merge;
mod meter;
mod open;
mod open_tables;
mod options;
mod outstanding;
mod pacer;
mod picker;
mod placement;
mod places;
mod placing;
mod postpone;
mod promoting;
mod promotion;
mod range;
mod read;
mod relocate;
mod repair;
mod replay;
mod snapshot;
mod stall;
mod stats;
mod store;
mod transaction;
mod value;
mod varint;
mod verify;
mod version;
mod view;

pub use async_read::{ScanEntry, ScanOptions, ScanPage};
pub use batch::WriteBatch;
pub use cursor::Cursor;
pub use disk_use::DiskUse;
pub use error::{Error, Result};
pub use future::{ReadFuture, WriteFuture};
pub use iter::Iter;
pub use joining::files_of;
pub use keyspace::{Keyspace, KeyspaceProperties, LevelProperties, TableProperties};
pub use listener::{Listener, StoreEvent};
#[doc(hidden)]
pub use options::Ablation;
pub use options::{
    BATCH_BYTES_MAX, Durability, KEY_BYTES_MAX, KeyspaceOptions, LEVELS, Options, ReadOptions, SizeOptions,
    VALUE_BYTES_MAX,
};
pub use outstanding::ReadyFuture;
pub use placement::PlacementRule;
pub use placing::{PlacementDecision, PlacementProperties};
pub use range::KeyRange;
pub use repair::{
    LossKind, LostName, LostRange, LostWrites, RepairOptions, RepairReport, repair, repair_directory, repair_volumes,
};
pub use situ_compaction::{CompactionFilter, Decision, FilterContext};
pub use situ_table::{Compression, SequenceNumber};
pub use snapshot::Snapshot;
pub use stats::{LatencySummary, Statistics};
pub use store::{Store, StoreBuilder, StoreProperties};
pub use transaction::{
    CommitFuture, ForUpdateFuture, Isolation, LockFuture, LockMode, LockWait, Transaction, TransactionCursor,
    TransactionIter, TransactionKind, TransactionOptions,
};
pub use value::{Key, Value};
pub use verify::{DAMAGES_MAX, Damage, VerifyProgress, VerifyReport, verify, verify_directory, verify_volumes};
