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
pub mod bucket;
pub mod entry;
mod error;
mod fields;
#[cfg(test)]
mod format_page;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
pub mod image;
pub mod model;
pub mod record;
pub mod space;
mod store_id;
pub mod superblock;

pub use error::{Error, Result};
pub use store_id::StoreId;
