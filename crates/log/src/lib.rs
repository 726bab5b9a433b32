//! Situ: the parallel write-ahead log.
//!
//! A log is a sequence of preallocated files of 4 KB pages; `docs/formats/log.md` has every byte of it. Several writes
//! are in flight at once, each carrying all records that waited, and records are acknowledged by a *contiguous*
//! watermark.
//!
//! 1. [`Log::append`] copies a record into the page buffer and names its position, an [`Lsn`].
//! 2. [`Log::commit`] has it written ([`Durability::Buffered`]) or made durable ([`Durability::Synced`]). The calling
//!    thread does the work for all, as long as fewer than `in_flight_max` writes are in flight; the rest wait.
//! 3. A page that is not full is written again with later records when no write to it is in flight. Otherwise later
//!    records begin a fresh page, so that no caller waits for the page in flight.
//! 4. [`Log::prepare_next`] and [`Log::rotate`] go on in the next file, [`Log::release`] gives up old ones.
//! 5. After a crash, [`recover()`] hands out the records that are there: a prefix of what was appended.
//! 6. A [`FileFollower`] reads the records of a file while others are appended.
//!
//! **Promises.** A record acknowledged as synced is recovered, and so is every record before it. A record acknowledged
//! as buffered is recovered if the machine stayed up. The recovered records are a prefix, without holes. Rot in what
//! was known durable is an error that names the place; only a torn tail is dropped.
//!
//! **Threads.** Everything may be called from any thread. One short lock guards the state; none is held across a call
//! to the volume. There are no background threads.
//!
//! **Failure.** The first write or sync that fails is final: every later append and commit gives its error, until the
//! log is recovered and restarted. Acknowledged records stay acknowledged.
//!
//! **Rejected.** One logger thread that syncs (two thread switches for every lone writer, and one write in flight where
//! disks need several); `O_APPEND` with `fdatasync` (a journal commit per write, because the file grows); fresh pages
//! for every commit (a lone synced writer of small records would fill the disk thirty times faster).

#![forbid(unsafe_code)]

mod chunk;
mod files;
mod flights;
mod follow;
mod inspect;
mod log;
mod options;
mod page;
mod recover;
mod state;

pub use flights::{Flights, Submitted};
pub use follow::FileFollower;
pub use inspect::{Page, Pages, inspect};
pub use log::Log;
pub use options::{AppendError, Durability, FILE_BYTES_MIN, LogMetrics, LogOptions, Lsn};
pub use page::{
    Damage, HEADER_BYTES, Header, PAYLOAD_BYTES, PageState, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, VERSION,
};
pub use recover::{Loss, RecordPosition, RecoveryMode, RecoveryReport, Tail, recover};

#[cfg(test)]
mod shadow;
#[cfg(test)]
mod tests;
