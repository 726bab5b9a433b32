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

#![forbid(unsafe_code)]

pub mod address;
mod batch;
pub mod bucket;
mod collect;
mod conditions;
mod core;
pub mod entry;
mod error;
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
mod read;
mod read_queue;
mod readers;
mod rebuild;
pub mod record;
mod resize;
mod rewrite;
mod scan;
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
pub use conditions::Expected;
pub use error::{Error, Result};
pub use options::HashOptions;
pub use properties::HashProperties;
pub use read_queue::OnValue;
pub use scan::{HashScan, HashSnapshot, Pair, SortedScan};
pub use situ_log::Durability;
pub use store::{HashStore, HashStoreBuilder, HashWrite};
pub use store_id::StoreId;
pub use verify::HashReport;
