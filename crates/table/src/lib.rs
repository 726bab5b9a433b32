//! Immutable sorted tables: how entries lie in a file, and how they get there and back.
//!
//! ```text
//! TableWriter -> file: header | data blocks | index blocks | filter | range tombstones | properties | top index | footer
//! Table       <- footer, properties, top index, filter, range tombstones at open; blocks through the BlockCache
//! TableCursor <- blocks in order; in compactions, past the cache
//! PieceCursor <- blocks in order that another thread has read
//! ```
//!
//! A caller that wants the steps on several threads takes them apart: [`TableBuilder`], [`BlockEncoder`] and
//! [`TableAppender`] write, [`Table::read_stored`], [`Table::decode_stored`] and [`Table::entries`] read.
//!
//! The bytes are described in `docs/formats/table.md`. A block stands alone: its bytes suffice to decode it.

#![forbid(unsafe_code)]

pub mod cache;
pub mod cursor;
pub mod format;
pub mod key;
pub mod range_del;

mod block;
mod compress;
mod filter;
mod lifetimes;
mod lone;
mod meter;
mod options;
mod piece;
mod properties;
mod salvage;
mod table;
mod value_lengths;
mod warmth;
mod writer;

pub use block::{Block, EncodedBlock, RawBlock, ValueRef};
pub use cache::{BlockCache, CacheStats, Warming};
pub use compress::BlockEncoder;
pub use cursor::Cursor;
pub use filter::{FILTER_BLOCKED_BLOOM, FILTER_HEADER_BYTES, FILTER_LINE_BYTES, filter_bits, filter_line, hash_key};
pub use format::BlockHandle;
pub use key::{KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Trailer};
pub use lifetimes::{DeadBefore, Lifetime, Lifetimes};
pub use lone::LoneBlock;
pub use meter::ReadMeter;
pub use options::{Compression, Reach, ReadOptions, TableOptions};
pub use piece::{Piece, PieceCursor};
pub use properties::{Properties, WRITER_VERSION, property_names};
pub use salvage::{LostKeys, Salvaged, salvage};
pub use table::cursor::TableCursor;
pub use table::{BlockBoundaries, BlockBoundary, BlockEntries, Table, TableEntry};
pub use value_lengths::{VALUE_LENGTH_CLASSES, ValueLengths};
pub use warmth::WarmBytes;
pub use writer::{BuiltBlock, TableAppender, TableBuilder, TableEnd, TableSummary, TableWriter};

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;

#[cfg(test)]
mod testing;
