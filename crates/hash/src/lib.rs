//! Situ: the hash store without a table, for drives that compress.
//!
//! Keys hash straight to 4 KB buckets on a sparse address space. No index is in memory: the hash of a key and two
//! numbers say where the key lies. `docs/formats/hash.md` has every byte.
//!
//! Parts without I/O, from the ground up:
//!
//! * [`address`]: which bucket a hash belongs to while the count of buckets changes one by one.
//! * [`bucket`]: the 4096 bytes of a bucket; [`entry`]: what lies in it, and in the overflow.
//! * [`image`]: compact copies of buckets, to repair torn ones.
//! * [`record`]: the log record of a batch.
//! * [`superblock`]: the state of a store; [`space`]: the mark at the beginning of its bucket space.
//!
//! The live store, [`HashStore`]:
//!
//! ```text
//!  put ──> writing/writes.rs: the pipeline's log ──> writing/pending.rs ──> live/worker.rs ──> live/rewrite.rs: overflow, images, buckets
//!  get ──> live/read.rs: pending, one bucket, the overflow if the bucket has a mark ──> disk/large.rs: a value of the value log
//!          live/keeper.rs: checkpoints; resize.rs: splits and merges; live/collect.rs: garbage of the value log; api/purge.rs: what is dead
//! ```
//!
//! * `writing/shortage.rs`: what the store does when a disk takes no more.
//! * `live/core.rs` has the invariants that all parts share. `opening.rs` recovers a store after a crash.
//! * [`HashBatch`]: changes that happen together. [`HashStore::compare_and_set`]: changes under a condition
//!   (`api/conditions.rs`).
//! * [`HashSnapshot`]: the state of a moment, with scans (`live/snapshots.rs`, `api/scan.rs`). [`HashReport`]: a check
//!   of everything.
//!
//! **Promises.** They are the engine's, for one map without an order. Writes that were acknowledged as synced survive
//! any crash. A crash leaves a prefix of the writes. Batches are whole. Counts are exact after a crash, too.

#![forbid(unsafe_code)]

mod api;
mod base;
mod check;
mod disk;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod live;
mod opening;
mod resize;
#[cfg(test)]
mod tests;
mod writing;

pub use check::model;
pub use format::{address, bucket, entry, image, record, space, superblock};

pub use api::builder::HashStoreBuilder;
pub use api::conditions::Expected;
pub use api::properties::HashProperties;
pub use api::scan::{Expiring, HashScan, HashSnapshot, Pair, SortedScan};
pub use api::store::{HashStore, HashWrite};
pub use base::error::{Error, Result};
pub use base::events::{HashEvent, OnEvent};
pub use base::store_id::StoreId;
pub use check::verify::HashReport;
pub use disk::options::HashOptions;
pub use live::read_queue::OnValue;
pub use opening::repair::HashRepair;
pub use opening::superblock_of;
pub use situ_log::Durability;
pub use situ_pipeline::{SpaceChange, SpaceLevel, SpaceProperties, SpaceShortage};
pub use writing::batch::HashBatch;
pub use writing::purges::IsDead;

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;
