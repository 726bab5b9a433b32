//! Counts of the log's work so far, in bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums since the log was opened. Write amplification is
/// `(appended + collected + overhead + zeroed_written) / appended`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Records that owners appended: footprints.
    pub appended_bytes: u64,
    /// Records that collection appended again.
    pub collected_bytes: u64,
    /// Pages handed to files for appends, collection, headers, indexes and trailers. A page may be written twice.
    pub page_bytes_written: u64,
    /// Sectors that were written to zero a part of them.
    pub zeroed_sector_bytes: u64,
    /// Sectors that were read for that.
    pub zeroing_read_bytes: u64,
    /// Sectors that were discarded, or written as zeros where the disk cannot discard.
    pub discarded_bytes: u64,
    /// The bytes that collections have read.
    pub collection_read_bytes: u64,
    /// Segments that were removed.
    pub segments_removed: u64,
    /// Segments whose dead ranges were forgotten for want of memory.
    pub ranges_forgotten: u64,
}

#[derive(Default)]
pub(crate) struct Meters {
    pub(crate) appended: AtomicU64,
    pub(crate) collected: AtomicU64,
    pub(crate) pages_written: AtomicU64,
    pub(crate) zeroed: AtomicU64,
    pub(crate) zeroing_read: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) collection_read: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) forgotten: AtomicU64,
}

pub(crate) fn add(meter: &AtomicU64, bytes: u64) {
    meter.fetch_add(bytes, Ordering::Relaxed);
}

impl Meters {
    pub(crate) fn counters(&self) -> Counters {
        let of = |meter: &AtomicU64| meter.load(Ordering::Relaxed);
        Counters {
            appended_bytes: of(&self.appended),
            collected_bytes: of(&self.collected),
            page_bytes_written: of(&self.pages_written),
            zeroed_sector_bytes: of(&self.zeroed),
            zeroing_read_bytes: of(&self.zeroing_read),
            discarded_bytes: of(&self.discarded),
            collection_read_bytes: of(&self.collection_read),
            segments_removed: of(&self.removed),
            ranges_forgotten: of(&self.forgotten),
        }
    }
}
