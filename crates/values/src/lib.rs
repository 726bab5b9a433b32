//! Situ: the value log for large values.
//!
//! Large values lie outside of the structures that point at them: tables of the engine, buckets of the hash store.
//! These structures keep a [`Handle`] of 16 bytes. So rewriting a table moves handles, not values. The price is garbage
//! in the log, and this crate is mostly about getting rid of garbage cheaply.
//!
//! ```text
//!   owner ── append ──> ValueWriter ──> segment (open)                          writer.rs
//!     │                                    │ full: index, trailer               seal.rs
//!     │── read ───────> ValueLog ─────> segment (sealed)                        log.rs, files.rs, ahead.rs
//!     │── died ───────> dead ranges                                             deaths.rs, dead.rs
//!     │── tidy ───────> discard dead sectors, zero half-dead ones               trim.rs
//!     │── victim, collect ──> walk, ask the owner, move what is alive           victim.rs, collect.rs, walk.rs
//!     └── remove ─────> the file goes
//! ```
//!
//! 1. Writers append records to segments: page files `NNNNNN.values` in a volume. A record has a header, the key and
//!    the value. `docs/formats/values.md` has every byte.
//! 2. A read is one I/O. It checks the record, its key, and that it is this record of this segment. [`ReadAhead`] has
//!    many in flight, and reads neighbours with one I/O.
//! 3. The owner knows which values are alive, and reports deaths: sums to choose victims by, exact handles to trim by.
//! 4. [`ValueLog::tidy`] trims. Dead sectors are discarded. On a drive that compresses, dead bytes of other sectors
//!    become zeros, and the drive takes no space for zeros.
//! 5. [`ValueLog::victim`] names a segment that is worth collecting, and [`ValueLog::collect`] moves what is alive in
//!    it. The owner [removes](ValueLog::remove) the segment when no reader can have a handle into it.
//! 6. Opening gets the owner's durable list of segments. It removes orphans and cuts torn tails (`open.rs`).
//!
//! # What the owner does
//! - It makes a handle durable only after [`ValueWriter::sync`] or [`finish`](ValueWriter::finish), and lists the
//!   handle's segment no later than the handle.
//! - It calls a value dead only when nothing can ask for the value any more: no snapshot, no reader, and no state that
//!   a crash would bring back.
//! - It takes a segment off its list, durably, before it removes the segment.
//! - It has a thread that calls [`tidy`](ValueLog::tidy), [`victim`](ValueLog::victim) and
//!   [`collect`](ValueLog::collect). The log has no thread.
//!
//! # What the log promises
//! - A synced record reads back, or its damage is named. It never reads as something else.
//! - No live byte is changed, by no trimming and no crash (`trim.rs` has the argument).
//! - Memory: 1 MiB for each writer, its index of about 3 bytes for each record of its open segment, and dead ranges up
//!   to a limit. A sealed segment takes about 300 bytes. Files open for reads have a limit, too.
//! - After a crash, exact deaths are forgotten. Their space comes back by collection: sums are the owner's, and come
//!   with [`KnownSegment`].
//!
//! **Locks**: the map of segments, then the state of one segment. No lock is held across I/O.
//!
//! **Rejected**: a table of all live records in memory, as Bitcask has. It takes more memory than an index of the keys.
//! **Rejected**: a persistent map of dead bytes. Every death would be a write; what a crash forgets costs one
//! collection.
//!
//! ```
//! use situ_base::Env;
//! use situ_storage::DirectoryVolume;
//! use situ_values::{Options, ValueLog, numbers_from};
//! use std::sync::Arc;
//!
//! # fn main() -> situ_values::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! let volume = Arc::new(DirectoryVolume::open(directory.path())?);
//! let log = ValueLog::open(volume, &Env::system(), Options::for_drive(true), numbers_from(1), &[])?;
//! let mut writer = log.writer();
//! let handle = writer.append(0, b"key", &[7; 3000])?;
//! writer.sync()?;
//! assert_eq!(*log.read(&handle, b"key")?, [7; 3000]);
//!
//! log.died(handle.segment, &[handle])?;
//! assert_eq!(log.inflation().dead_bytes, handle.footprint());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod ahead;
mod collect;
mod counters;
mod dead;
mod deaths;
mod error;
mod files;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod log;
mod open;
mod options;
mod record;
mod scan;
mod seal;
mod segment;
mod trim;
mod value;
mod victim;
mod walk;
mod window;
mod writer;

pub use ahead::ReadAhead;
pub use collect::{Collected, Moved, Owner};
pub use counters::Counters;
pub use handle::Handle;
pub use log::ValueLog;
pub use options::{KnownSegment, Layout, Numbers, Options, Trim, Victims, numbers_from};
pub use segment::{Phase, SegmentInfo};
pub use situ_storage::Result;
pub use value::Value;
pub use victim::Inflation;
pub use walk::{Walk, Walked};
pub use writer::{ValueWriter, Written};
