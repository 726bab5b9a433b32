//! The counters of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of the cache.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) evicted: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) ghost_hits: AtomicU64,
    /// Items that went from memory to the log on flash, and their bytes there.
    pub(crate) demoted: AtomicU64,
    pub(crate) demoted_bytes: AtomicU64,
    /// Items that the rules of admission kept from flash.
    pub(crate) not_admitted: AtomicU64,
    /// Items that did not go to flash because the device was behind.
    pub(crate) behind: AtomicU64,
    /// Reads of flash that found the item; those that found another key, or none.
    pub(crate) flash_hits: AtomicU64,
    pub(crate) flash_misses: AtomicU64,
    /// Items that went back to memory.
    pub(crate) promoted: AtomicU64,
    /// Items that were appended again when their segment went, and their bytes.
    pub(crate) reinserted: AtomicU64,
    pub(crate) reinserted_bytes: AtomicU64,
    /// Items that went because their segment on flash went.
    pub(crate) flash_evicted: AtomicU64,
    /// Operations of the device that failed.
    pub(crate) flash_errors: AtomicU64,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `more` to a counter.
pub(crate) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}
