//! Situ: a cache in memory and, if there is a device for it, on flash.
//!
//! ```text
//!   Cache ──► Core: threads that write to flash and read there
//!               │
//!             Memory ──► Index: where the item of a key lies      shards of buckets of 12-byte slots
//!               │
//!               ├─────► Segments: items in the order in which they came, 1 MiB each
//!               ├─────► Ghosts: keys that have lately gone, 2 bytes each
//!               └─────► FlashTier ──► FlashLog: items that have left memory, in the order in which they did
//!                          └────────► Journal: which items on flash have died, for restarts
//! ```
//!
//! * **Memory.** In addition to its key and its value, an item takes 8 bytes, up to 3 bytes of padding, a slot of about
//!   15 bytes and 2 bytes of ghosts. A time to live, flags, or a cas id of the client's take 4, 4 and 8 bytes more,
//!   where there are any. An item on flash takes a slot. The [limit](Options::memory_bytes) includes the index and all
//!   tables.
//! * **Flash.** All of the index is in memory, so a miss costs no I/O. A hit costs one read. An item on flash is known
//!   by the hash of its key alone, of which two keys have the same in one of 2^50 cases.
//! * **What goes.** Segments leave in the order in which they came, as in Segcache (Yang et al., NSDI'21). S3-FIFO
//!   (Yang et al., SOSP'23) decides which of their items stay: see `memory.rs`.
//! * **Times to live.** Items that expire at about the same time share segments, which go as a whole.
//! * **Threads.** Any number. A read locks a shard of the index and a segment for a moment. Each writing thread appends
//!   to segments of its own.
//!
//! **Invariants.** A read never returns a wrong byte, an older value of the key, or an item that was deleted or has
//! expired. Only absence tells the cache from a map.
//!
//! **Debts.** Dead items are bounded by design, so an idle cache does nothing about them. Memory and flash are rings of
//! fixed size, and the dead take no space from the living: the oldest segment makes way, whatever lies in it.
//!
//! | debt | bound |
//! |---|---|
//! | expired, deleted, flushed items in memory | [`Options::memory_bytes`]; segments of expired items go first, whole |
//! | the same on flash | the device; they go when their segment is written again |
//! | notes of deaths in the journal | 16 bytes for each item written to flash in the last two rounds over the device |
//! | ghosts | 2 bytes each, within [`Options::memory_bytes`] |
//!
//! **Clocks.** The caller says what time it is, in Unix seconds. So the cache has no clock, and tests choose the time.

#![forbid(unsafe_code)]

mod cache;
mod core;
mod counters;
mod flash;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod ghost;
mod index;
mod item;
mod memory;
mod options;
mod reader;
mod reads;
mod segment;
mod slot;
mod survey;
#[cfg(test)]
mod tests;

pub use cache::{Cache, Flash, FlashProperties, Properties, Refused};
pub use flash::Record;
pub use flash::tier::Start;
pub use item::{Evicted, Hit, Item, KEY_BYTES_MAX, Meta, OnEvicted, VALUE_BYTES_MAX};
pub use memory::{Lookup, OwnerMemory};
pub use options::{Admission, FlashRules, MEMORY_BYTES_MIN, Options};
pub use reader::FlashReader;
pub use reads::OnItem;
pub use survey::{Survey, Surveyed};

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;
