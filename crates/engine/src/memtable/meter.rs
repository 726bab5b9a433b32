//! The memory of all memtables of a store, counted as it is taken from the system.
//!
//! # How it works
//!
//! Every memtable has a [`Share`], which its arena, its filter and its range tombstones add to when they grow, and which
//! takes all of it off the store's [`Meter`] when the memtable goes. So the sum costs a short lock for each chunk of
//! memory, none for an entry, and one load to read.
//!
//! A memtable is *active*, then *sealed*, and *let go* when a table has its entries. Readers may hold it still; that memory
//! is counted apart, because no flush gives it back, and writers must not wait for it.
//!
//! # Threads
//!
//! Any thread may count at any time. An insert that is under way while its memtable is sealed may count what it takes as
//! active: the parts are exact when no insert is under way, the sum always.

use crate::base::sync::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What all memtables may take together unless options say otherwise, at least.
const BYTES_MAX_MIN: u64 = 512 << 20;

/// The memory of all memtables of a store, and its limit. See the [module](self).
#[derive(Debug)]
pub struct Meter {
    bytes_max: AtomicU64,
    /// The limit does not follow the options of keyspaces.
    is_fixed: bool,
    /// Of memtables that were not let go.
    bytes: AtomicU64,
    /// The part of `bytes` that flushes are going to give back.
    sealed: AtomicU64,
    /// Of memtables that only readers hold.
    held: AtomicU64,
}

impl Default for Meter {
    fn default() -> Meter {
        Meter::new(None)
    }
}

impl Meter {
    /// A meter with a limit; with `None`, one that follows the keyspaces.
    pub fn new(bytes_max: Option<u64>) -> Meter {
        Meter {
            bytes_max: AtomicU64::new(bytes_max.unwrap_or(BYTES_MAX_MIN)),
            is_fixed: bytes_max.is_some(),
            bytes: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// Raises a limit that follows the keyspaces to twice what one of them may take.
    pub fn follow(&self, keyspace_bytes_max: u64) {
        if !self.is_fixed {
            self.bytes_max.fetch_max(keyspace_bytes_max.saturating_mul(2), Ordering::Relaxed);
        }
    }

    /// What all memtables may take together.
    #[inline]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// What memtables take that were not let go.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The part of [`bytes`](Meter::bytes) that flushes are going to give back.
    #[inline]
    pub fn sealed_bytes(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    /// What memtables take that only readers hold.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one memtable takes. See the [module](self).
#[derive(Default)]
pub(super) struct Share {
    meter: Arc<Meter>,
    counted: Mutex<Counted>,
}

/// What the meter counts of a memtable.
#[derive(Default)]
struct Counted {
    bytes: u64,
    /// The part that is counted as sealed.
    sealed: u64,
    is_let_go: bool,
}

impl Share {
    pub(super) fn new(meter: &Arc<Meter>) -> Share {
        Share { meter: Arc::clone(meter), counted: Mutex::default() }
    }

    /// The memtable has taken so much more from the system.
    pub(super) fn grew(&self, bytes: usize) {
        let mut counted = lock(&self.counted);
        counted.bytes += bytes as u64;
        // An insert may go on in a memtable whose keyspace is dropped.
        let counter = if counted.is_let_go { &self.meter.held } else { &self.meter.bytes };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.counted).bytes
    }

    /// A flush is going to give back what the memtable takes.
    pub(super) fn seal(&self) {
        let mut counted = lock(&self.counted);
        // The exchange of a view may be tried several times.
        if counted.sealed == 0 && !counted.is_let_go {
            counted.sealed = counted.bytes;
            self.meter.sealed.fetch_add(counted.bytes, Ordering::Relaxed);
        }
    }

    /// From now on only readers hold the memtable.
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
