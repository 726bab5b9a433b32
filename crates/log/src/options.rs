//! The words of the log's interface.

use situ_device::PAGE_BYTES;
use situ_storage::Error;
use std::fmt;

/// The fewest pages that a log file has.
pub(crate) const FILE_PAGES_MIN: u32 = 4;

/// The shortest log file, in bytes: one that is shorter was cut, or was never used.
pub const FILE_BYTES_MIN: u64 = FILE_PAGES_MIN as u64 * PAGE_BYTES as u64;

/// A position in the stream of one open log: right behind a record. Later records have higher positions, over all
/// files of the log. It means nothing to another opening of the log.
///
/// It counts payload bytes including padding, so that it names a page: the file's base + page number * payload bytes +
/// offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// The events that an acknowledged record survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The end of this process, however it comes: the pages were handed to the operating system.
    Buffered,
    /// Power failure.
    Synced,
}

/// The layout of a log and the limits of its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of a new log file, in bytes, rounded up to whole pages; at least 4 pages. Default 64 MiB. A file for a
    /// longer record is made as long as it needs. Smaller files cost more rotations, larger ones more room on the disk.
    pub file_bytes: u64,
    /// The size of the very first file, if there is no spare to take, in bytes: at most `file_bytes`, and less on a
    /// disk that has no room for it. Default 4 MiB: a store that is hardly written to stays small and opens at once.
    pub first_file_bytes: u64,
    /// Size of a file that [`Log::prepare_short`](crate::Log::prepare_short) makes, in bytes; at most `file_bytes`.
    /// Default 4 MiB.
    pub short_file_bytes: u64,
    /// Appended pages that may wait to be written, in bytes. Default 8 MiB. When they are reached,
    /// [`Log::append`](crate::Log::append) refuses until some are written; so at most this and one record wait. Raise
    /// it for many large asynchronous writes.
    pub buffer_bytes_max: usize,
    /// Writes that may be in flight at once, at least 1. Default 8. Disks reach their rate of durable writes only with
    /// several in flight.
    pub in_flight_max: usize,
    /// Files kept to be written over instead of new ones being made, which saves filling them with zeros. Default 2.
    pub spare_files_max: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            file_bytes: 64 << 20,
            first_file_bytes: 4 << 20,
            short_file_bytes: 4 << 20,
            buffer_bytes_max: 8 << 20,
            in_flight_max: 8,
            spare_files_max: 2,
        }
    }
}

/// The part of a disk's free room that the first log file takes at most.
const FIRST_FILE_SHARE: u64 = 8;

impl LogOptions {
    /// Limits the first file to an eighth of `free_bytes`: on a nearly full disk, most of what is left is for the data.
    /// Later files are as long as ever when there is room for them.
    pub fn limit_first_file(&mut self, free_bytes: Option<u64>) {
        self.first_file_bytes = self.first_file_bytes.min(free_bytes.unwrap_or(u64::MAX) / FIRST_FILE_SHARE);
    }
}

/// The reason why a record was not taken, or a rotation not made. Nothing was changed.
#[derive(Debug, Clone)]
pub enum AppendError {
    /// `buffer_bytes_max` bytes wait to be written. Commit some, then append again.
    BufferFull,
    /// The current file has no room for the record. Prepare the next one and rotate, then append again.
    FileFull,
    /// No next file is prepared to rotate to.
    NotPrepared,
    /// The record is longer than [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX).
    TooLarge,
    /// The system has no memory for the record.
    OutOfMemory {
        /// The length of the record.
        bytes: usize,
    },
    /// The log failed, or was closed; it takes no records until reopened.
    Failed(Error),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::BufferFull => f.write_str("the log's buffer is full; commit what was appended"),
            AppendError::FileFull => f.write_str("the log file is full; rotate to the next one"),
            AppendError::NotPrepared => f.write_str("no next log file is prepared"),
            AppendError::TooLarge => f.write_str("a log record is limited to 1 GiB; write in smaller batches"),
            AppendError::OutOfMemory { bytes } => Error::out_of_memory(*bytes, "a log record").fmt(f),
            AppendError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AppendError {}

/// Counters of one open log, and two gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMetrics {
    /// Records appended.
    pub records: u64,
    /// Bytes of their bodies.
    pub appended_bytes: u64,
    /// Writes handed to the volume.
    pub writes: u64,
    /// The number of durable writes among these.
    pub durable_writes: u64,
    /// Pages written, rewrites included.
    pub pages_written: u64,
    /// The number of these pages that had been written before with fewer records.
    pub pages_rewritten: u64,
    /// File syncs.
    pub syncs: u64,
    /// Writes in flight now.
    pub in_flight: u64,
    /// The most writes that were in flight at once.
    pub in_flight_peak: u64,
    /// Bytes of all log files and spares that the log knows of.
    pub file_bytes: u64,
}
