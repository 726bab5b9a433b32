//! Counts the memory of all memtables of a store, as it is allocated.
//!
//! # How it works
//!
//! Every memtable has a [`Share`]. Its arena, its filter and its range tombstones add to the share when they grow. When
//! the memtable is dropped, the share subtracts everything from the store's [`Meter`]. Counting costs a short lock for
//! each chunk of memory and none for an entry. Reading the sum costs one load.
//!
//! A memtable is *active*, then *sealed*, and *let go* when a table has its entries. Readers may still hold it. That
//! memory is counted separately, because no flush frees it, and writers must not wait for it.
//!
//! # Threads
//!
//! Any thread may count at any time. An insert that overlaps the seal of its memtable may count its memory as active.
//! So the parts are exact only while no insert is running. The sum is always exact.

use crate::base::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Minimum of the limit that follows the keyspaces.
const BYTES_MAX_MIN: u64 = 512 << 20;

/// The memory of all memtables of a store, and its limit. See the [module](self).
#[derive(Debug)]
pub struct Meter {
    bytes_max: AtomicU64,
    /// True if the limit is fixed and does not follow the keyspaces.
    is_fixed: bool,
    /// Memory of memtables that were not let go.
    bytes: AtomicU64,
    /// The part of `bytes` that flushes will free.
    sealed: AtomicU64,
    /// Memory of memtables that only readers hold.
    held: AtomicU64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter::new(None)
    }
}

impl Meter {
    /// Creates a meter with a fixed limit, or with `None`, a limit that follows the keyspaces.
    pub fn new(bytes_max: Option<u64>) -> Meter {
        Meter {
            bytes_max: AtomicU64::new(bytes_max.unwrap_or(BYTES_MAX_MIN)),
            is_fixed: bytes_max.is_some(),
            bytes: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Raises a limit that follows the keyspaces to twice the memory that one keyspace may take.
    pub fn follow(&self, keyspace_bytes_max: u64) {
        if !self.is_fixed {
            self.bytes_max.fetch_max(keyspace_bytes_max.saturating_mul(2), Ordering::Relaxed);
        }
    }

    /// Returns the limit for all memtables together.
    #[inline]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the memory of memtables that were not let go.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the part of [`bytes`](Meter::bytes) that flushes will free.
    #[inline]
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Returns the memory of memtables that only readers hold.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// The memory of one memtable. See the [module](self).
#[derive(Default)]
pub(super) struct Share {
    meter: Arc<Meter>,
    counted: Mutex<Counted>,
}

/// The part of the meter's counts that belongs to one memtable.
#[derive(Default)]
struct Counted {
    bytes: u64,
    /// Bytes counted as sealed.
    sealed: u64,
    is_let_go: bool,
}

impl Share {
    pub(super) fn new(meter: &Arc<Meter>) -> Share {
        Share { meter: Arc::clone(meter), counted: Mutex::default() }
    }

    /// Counts `bytes` that the memtable has allocated.
    pub(super) fn grew(&self, bytes: usize) {
        let mut counted = lock(&self.counted);
        counted.bytes += bytes as u64;
        // An insert may continue in a memtable whose keyspace was dropped.
        let counter = if counted.is_let_go { &self.meter.held } else { &self.meter.bytes };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.counted).bytes
    }

    /// Counts the memtable's memory as sealed: a flush will free it.
    pub(super) fn seal(&self) {
        let mut counted = lock(&self.counted);
        // The swap of a view may be retried.
        if counted.sealed == 0 && !counted.is_let_go {
            counted.sealed = counted.bytes;
            self.meter.sealed.fetch_add(counted.bytes, Ordering::Relaxed);
        }
    }

    /// Counts the memtable's memory as held by readers alone.
    pub(super) fn let_go(&self) {
        let mut counted = lock(&self.counted);
        if !counted.is_let_go {
            counted.is_let_go = true;
            self.meter.take_off(&counted);
            self.meter.held.fetch_add(counted.bytes, Ordering::Relaxed);
        }
    }
}

impl Meter {
    fn take_off(&self, counted: &Counted) {
        self.bytes.fetch_sub(counted.bytes, Ordering::Relaxed);
        self.sealed.fetch_sub(counted.sealed, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let counted = lock(&self.counted);
        if counted.is_let_go {
            self.meter.held.fetch_sub(counted.bytes, Ordering::Relaxed);
        } else {
            self.meter.take_off(&counted);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_off_when_it_is_let_go_and_when_it_is_dropped() {
        let meter = Arc::new(Meter::new(Some(100)));
        let counted = || (meter.bytes(), meter.sealed_bytes(), meter.held_bytes());
        let (first, second) = (Share::new(&meter), Share::new(&meter));
        first.grew(10);
        second.grew(5);
        assert_eq!(counted(), (15, 0, 0));
        first.seal();
        first.seal();
        first.grew(1);
        assert_eq!(counted(), (16, 10, 0));
        first.let_go();
        first.let_go();
        assert_eq!(counted(), (5, 0, 11));
        second.seal();
        drop(second);
        assert_eq!(counted(), (0, 0, 11));
        drop(first);
        assert_eq!(counted(), (0, 0, 0));
    }

    #[test]
    fn a_limit_follows_the_keyspaces_unless_it_was_given() {
        let (given, following) = (Meter::new(Some(100)), Meter::new(None));
        for meter in [&given, &following] {
            meter.follow(1 << 20);
        }
        assert_eq!((given.bytes_max(), following.bytes_max()), (100, BYTES_MAX_MIN));
        following.follow(1 << 30);
        assert_eq!(following.bytes_max(), 2 << 30);
    }
}
