//! Situ: the hash store without a table, for drives that compress.
//!
//! Keys hash straight to 4 KB buckets on a sparse address space. No index is in memory: the hash of a key and two numbers say
//! where the key lies. `docs/formats/hash.md` has every byte.
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
//!  put ──> writes.rs: the pipeline's log ──> pending.rs ──> worker.rs ──> rewrite.rs: overflow, images, buckets
//!  get ──> read.rs: pending, one bucket, the overflow if the bucket has a mark ──> large.rs: a value of the value log
//!          keeper.rs: checkpoints; resize.rs: splits and merges; collect.rs: garbage of the value log; purge.rs: what is dead
//! ```
//!
//! * `shortage.rs`: what the store does when a disk takes no more.
//! * `core.rs` has the invariants that all parts share. `opening.rs` recovers a store after a crash.
//! * [`HashBatch`]: changes that happen together. [`HashStore::compare_and_set`]: changes under a condition (`conditions.rs`).
//! * [`HashSnapshot`]: the state of a moment, with scans (`snapshots.rs`, `scan.rs`). [`HashReport`]: a check of everything.
//!
//! **Promises.** They are the engine's, for one map without an order: what was acknowledged as synced survives any crash, and a crash
//! leaves a prefix of the writes. Batches are whole. Counts are exact after a crash, too.

#![forbid(unsafe_code)]

pub mod address;
mod batch;
pub mod bucket;
mod builder;
mod clock_file;
mod collect;
mod conditions;
mod core;
pub mod entry;
mod error;
mod events;
mod fields;
#[cfg(test)]
mod format_page;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod geometry;
pub mod image;
mod images;
mod io;
mod keeper;
mod large;
mod logs;
pub mod model;
mod opening;
mod options;
mod overflow;
mod pending;
mod properties;
mod purge;
mod purges;
mod read;
mod read_queue;
mod readers;
mod rebuild;
pub mod record;
mod repair;
mod resize;
mod retry;
mod rewrite;
mod scan;
mod shortage;
mod snapshots;
pub mod space;
mod store;
mod store_id;
pub mod superblock;
#[cfg(test)]
mod tests;
mod verify;
mod worker;
mod writes;

pub use batch::HashBatch;
pub use builder::HashStoreBuilder;
pub use conditions::Expected;
pub use error::{Error, Result};
pub use events::{HashEvent, OnEvent};
pub use options::HashOptions;
pub use properties::HashProperties;
pub use purges::IsDead;
pub use read_queue::OnValue;
pub use repair::HashRepair;
pub use scan::{Expiring, HashScan, HashSnapshot, Pair, SortedScan};
pub use situ_log::Durability;
pub use situ_pipeline::{SpaceChange, SpaceLevel, SpaceProperties, SpaceShortage};
pub use store::{HashStore, HashWrite};
pub use store_id::StoreId;
pub use verify::HashReport;

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;
