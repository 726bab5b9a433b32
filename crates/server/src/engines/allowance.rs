//! The memory that a cache's process uses apart from the cache.
//!
//! * The *rest* is measured: what the process has resident, less the cache and the long values. It is a maximum that
//!   decays.
//! * *Long values* that wait to be sent, or that arrive, are counted one by one. Each kind may take a quarter of the
//!   memory, and both three eighths.
//!
//! The cache takes as much less, down to half of the limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use situ::cache::OwnerMemory;
use situ_base::lock;

use crate::engine::cache::Reserved;

/// Eighths of the memory that long values of a kind may take, and all of them.
const KIND_EIGHTHS: u64 = 2;
const ALL_EIGHTHS: u64 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory_bytes_max: u64,
    /// The limit now; less than the greatest one if it follows the machine's memory.
    limit_bytes: AtomicU64,
    rest_bytes: AtomicU64,
    held_bytes: Arc<AtomicU64>,
    arriving_bytes: Arc<AtomicU64>,
    beside: OwnerMemory,
    telling: Mutex<()>,
}

impl Allowance {
    pub(crate) fn new(memory_bytes_max: u64, beside: OwnerMemory) -> Allowance {
        Allowance {
            memory_bytes_max,
            limit_bytes: AtomicU64::new(memory_bytes_max),
            rest_bytes: AtomicU64::new(0),
            held_bytes: Arc::default(),
            arriving_bytes: Arc::default(),
            beside,
            telling: Mutex::default(),
        }
    }

    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn rest_bytes(&self) -> u64 {
        self.rest_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of long values waiting to be sent.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of long values being received.
    pub(crate) fn arriving_bytes(&self) -> u64 {
        self.arriving_bytes.load(Ordering::Relaxed)
    }

    /// Returns all that the cache leaves.
    pub(crate) fn beside_bytes(&self) -> u64 {
        let long = self.held_bytes() + self.arriving_bytes();
        (self.rest_bytes() + long).min(self.limit_bytes() / 2)
    }

    /// Takes note of what the process has resident and the cache takes of that. The rest is taken to need `least`.
    pub(crate) fn note(&self, limit: u64, resident: u64, cache_bytes: u64, least: u64) {
        let rest = resident.saturating_sub(cache_bytes + self.held_bytes() + self.arriving_bytes());
        self.limit_bytes.store(limit, Ordering::Relaxed);
        self.rest_bytes.store(rest.max(least).max(limit / 16), Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        // One at a time, so that an older sum does not come after a newer one.
        let _turn = lock(&self.telling);
        self.beside.set((self.beside_bytes() + self.memory_bytes_max - self.limit_bytes()) as usize);
    }

    /// Counts `bytes` bytes of a long value that waits to be sent. Returns false if there is no room.
    pub(crate) fn hold(&self, reserved: &mut Reserved, bytes: usize) -> bool {
        self.reserve(reserved, bytes, &self.held_bytes, &self.arriving_bytes)
    }

    /// Counts `bytes` bytes of a long value that arrives. Returns false if there is no room.
    pub(crate) fn arrive(&self, reserved: &mut Reserved, bytes: usize) -> bool {
        self.reserve(reserved, bytes, &self.arriving_bytes, &self.held_bytes)
    }

    fn reserve(&self, reserved: &mut Reserved, bytes: usize, sum: &Arc<AtomicU64>, other: &AtomicU64) -> bool {
        let eighth = self.limit_bytes() / 8;
        let left = (ALL_EIGHTHS * eighth).saturating_sub(other.load(Ordering::Relaxed));
        let has_room = reserved.grow(sum, bytes as u64, left.min(KIND_EIGHTHS * eighth));
        if has_room {
            self.tell();
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ::cache::{Cache, Options};

    #[test]
    fn long_values_are_counted_until_they_go() {
        let cache = Cache::new(&Options::default());
        let allowance = Allowance::new(800, cache.beside());
        let (mut first, mut second, mut other) = (Reserved::default(), Reserved::default(), Reserved::default());
        assert!(allowance.hold(&mut first, 150) && allowance.hold(&mut first, 50));
        assert!(!allowance.hold(&mut second, 1), "a quarter is taken");
        assert!(allowance.arrive(&mut other, 100) && !allowance.arrive(&mut second, 1), "three eighths are taken");
        allowance.note(800, 500, 100, 0);
        assert_eq!((allowance.rest_bytes(), allowance.beside_bytes()), (100, 400));
        drop((first, other));
        assert_eq!((allowance.held_bytes(), allowance.arriving_bytes(), allowance.beside_bytes()), (0, 0, 100));
        assert!(allowance.hold(&mut second, 700), "one alone may be longer");
        allowance.note(800, 100, 100, 0);
        assert_eq!(allowance.rest_bytes(), 50, "a sixteenth at least");
    }
}
