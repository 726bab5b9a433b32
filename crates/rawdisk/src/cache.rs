//! The cache of files written once, in units of 64 KiB over aligned buffers.
//!
//! # Algorithm
//!
//! [S3-FIFO](situ_base::s3_fifo), in up to 16 parts by hash. The cache remembers keys of units that were thrown
//! out, as many as there are units of full length in the room.
//!
//! Written units go in as they are written. A read that misses takes only the pages it needs, and the whole unit if it
//! begins where the last one that missed this unit ended. That is a scan, which wants the rest as well. **Rejected:**
//! the whole unit for a reader that misses it twice within the memory's length. The store's cache of blocks is above
//! this one, and what is read again and again at random is there. A get that misses both has no use for the other
//! blocks of its unit.
//!
//! The buffers are ordinary memory. The system decides if huge pages back them. A request for them (`madvise`) is
//! `unsafe` in Rust, and this crate has no `unsafe` code.
//!
//! **Invariants.** The bytes of all units and their entries are at most what was configured, unless a single unit is
//! more than its part's share. Then nothing is kept. [`Cache::bytes`] is exact.
//! **Threads.** One lock a part, held for a few map operations; bytes are copied outside.

use super::transfer::SMALL_PIECE_BYTES;
use situ_base::lock;
use situ_base::s3_fifo::S3Fifo;
use situ_device::Buffer;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The length of a unit; the last one of a file is shorter.
pub(super) const UNIT_BYTES: usize = SMALL_PIECE_BYTES;
/// The cost of a unit in addition to its buffer: entry, queue place, allocation.
const ENTRY_BYTES: usize = 160;
const PARTS_MAX: usize = 16;
/// The minimum number of units in a part.
const UNITS_PER_PART_MIN: usize = 32;
/// The small queue's part of the room: one in this many bytes.
const SMALL_PART: u64 = 10;

/// A file's number in this run, and the unit's in the file.
type Key = (u64, u64);

#[derive(Default)]
struct Part {
    units: S3Fifo<Key, Arc<Buffer>>,
    /// The end of the last short read that missed a unit, for as many units as are remembered.
    missed: HashMap<Key, u64>,
    missed_in_turn: VecDeque<Key>,
}

/// Counts since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheUse {
    /// Bytes held, with what it costs to hold them.
    pub bytes: u64,
    /// Units held.
    pub units: u64,
    /// Units found.
    pub hits: u64,
    /// Units looked for and not found.
    pub misses: u64,
}

pub(super) struct Cache {
    parts: Vec<Mutex<Part>>,
    part_bytes_max: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Returns the cost of holding a unit; `None` if it is no unit but something far longer.
fn cost(unit: &Buffer) -> Option<u32> {
    u32::try_from(unit.len() + ENTRY_BYTES).ok()
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Cache {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let parts = (bytes_max / (UNIT_BYTES * UNITS_PER_PART_MIN)).clamp(1, PARTS_MAX);
        Cache {
            parts: (0..parts).map(|_| Mutex::default()).collect(),
            part_bytes_max: bytes_max / parts,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns true if anything is ever kept.
    pub(super) fn is_on(&self) -> bool {
        self.part_bytes_max >= UNIT_BYTES + ENTRY_BYTES
    }

    fn part(&self, key: Key) -> MutexGuard<'_, Part> {
        let hash = (key.0 ^ key.1.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let part = &self.parts[(hash >> 32) as usize % self.parts.len()];
        lock(part)
    }

    pub(super) fn get(&self, file: u64, unit: u64) -> Option<Arc<Buffer>> {
        let mut part = self.part((file, unit));
        let found = part.units.get_mut(&(file, unit)).map(|held| {
            held.hit();
            Arc::clone(&held.value)
        });
        drop(part);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns true if all of these units are here. Not counted as a use of them.
    pub(super) fn has(&self, file: u64, units: Range<u64>) -> bool {
        self.is_on() && units.into_iter().all(|unit| self.part((file, unit)).units.peek(&(file, unit)).is_some())
    }

    /// Returns true if a unit that a read of these bytes missed should be read whole: the read before ended where this
    /// one begins.
    pub(super) fn is_worth_reading(&self, file: u64, unit: u64, bytes: Range<u64>) -> bool {
        self.is_on() && self.part((file, unit)).goes_on((file, unit), bytes, self.part_bytes_max)
    }

    pub(super) fn put(&self, file: u64, unit: u64, buffer: Buffer) {
        if self.is_on() {
            self.part((file, unit)).put((file, unit), Arc::new(buffer), self.part_bytes_max);
        }
    }

    /// Drops the units of a file that has gone.
    pub(super) fn forget(&self, file: u64, units: u64) {
        if !self.is_on() {
            return;
        }
        for unit in 0..units {
            self.part((file, unit)).forget((file, unit));
        }
    }

    pub(super) fn usage(&self) -> CacheUse {
        let mut usage = CacheUse {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            ..CacheUse::default()
        };
        for part in &self.parts {
            let part = lock(part);
            usage.bytes += part.units.bytes();
            usage.units += part.units.len() as u64;
        }
        usage
    }
}

impl Part {
    fn put(&mut self, key: Key, unit: Arc<Buffer>, bytes_max: usize) {
        let Some(cost) = cost(&unit).filter(|cost| *cost as usize <= bytes_max) else { return };
        if self.units.peek(&key).is_some() {
            return;
        }
        let comes_back = self.units.recall(&key);
        let room = bytes_max as u64 - u64::from(cost);
        while self.units.bytes() > room && self.units.evict(bytes_max as u64 / SMALL_PART).is_some() {
            self.units.limit_ghosts(bytes_max / UNIT_BYTES);
        }
        self.units.insert(key, unit, cost, 0, comes_back);
    }

    /// Returns true if a read begins where the last one of this unit ended; it is the last one from now on.
    fn goes_on(&mut self, key: Key, bytes: Range<u64>, bytes_max: usize) -> bool {
        let before = self.missed.insert(key, bytes.end);
        if before.is_none() {
            self.missed_in_turn.push_back(key);
        }
        while self.missed_in_turn.len() > bytes_max / UNIT_BYTES {
            let Some(oldest) = self.missed_in_turn.pop_front() else { break };
            self.missed.remove(&oldest);
        }
        before == Some(bytes.start)
    }

    fn forget(&mut self, key: Key) {
        self.units.recall(&key);
        self.units.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(byte: u8) -> Buffer {
        let mut buffer = Buffer::new(UNIT_BYTES);
        buffer.fill(byte);
        buffer
    }

    #[test]
    fn the_bound_holds_and_the_count_is_exact() {
        let bound = 20 * (UNIT_BYTES + ENTRY_BYTES) as u64;
        let cache = Cache::new(bound);
        for number in 0..200 {
            cache.put(number % 7, number, unit(number as u8));
            let usage = cache.usage();
            assert!(usage.bytes <= bound, "{usage:?}");
            assert_eq!(usage.bytes, usage.units * (UNIT_BYTES + ENTRY_BYTES) as u64);
        }
        assert_eq!(cache.usage().units, 20);
        (0..7).for_each(|file| cache.forget(file, 200));
        assert_eq!((cache.usage().units, cache.usage().bytes), (0, 0));
    }

    #[test]
    fn what_is_read_again_outlives_what_passes_through() {
        let cache = Cache::new(20 * (UNIT_BYTES + ENTRY_BYTES) as u64);
        (0..10).for_each(|number| cache.put(1, number, unit(1)));
        (0..10).for_each(|number| assert!(cache.get(1, number).is_some()));
        (0..500).for_each(|number| cache.put(2, number, unit(2)));
        let left = (0..10).filter(|number| cache.get(1, *number).is_some()).count();
        assert_eq!(left, 10);
        assert_eq!(cache.get(1, 3).unwrap()[0], 1);
    }

    #[test]
    fn a_unit_is_read_whole_by_who_reads_on() {
        let cache = Cache::new(20 * (UNIT_BYTES + ENTRY_BYTES) as u64);
        assert!(!cache.is_worth_reading(1, 1, 100..200) && cache.is_worth_reading(1, 1, 200..300));
        // Again and again, but not one behind the other.
        assert!(!cache.is_worth_reading(1, 2, 100..200) && !cache.is_worth_reading(1, 2, 100..200));
        assert!(!cache.is_worth_reading(1, 2, 300..400) && !cache.is_worth_reading(1, 2, 200..300));
        // The memory ends, and has an end.
        (0..100).for_each(|number| assert!(!cache.is_worth_reading(2, number, 0..100)));
        assert!(!cache.is_worth_reading(1, 1, 300..400));
        let part = cache.part((2, 0));
        assert!(part.missed.len() <= 20 && part.missed.len() == part.missed_in_turn.len());
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let cache = Cache::new(1000);
        cache.put(1, 1, unit(1));
        assert!(cache.get(1, 1).is_none() && !cache.is_worth_reading(1, 1, 0..1) && !cache.is_on());
    }
}
