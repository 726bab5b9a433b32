//! What a cache counts.

use std::sync::atomic::AtomicU64;

/// What the cache counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) evicted: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) ghost_hits: AtomicU64,
}
