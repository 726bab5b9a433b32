//! One shard: S3-FIFO over slots. The module page of the cache has the algorithm.
//!
//! A slot lies in the map itself, so that a lookup waits for memory twice (the map's group, the slot) before it has the
//! block. The queues name blocks by hash; an entry whose block is gone, or in the other queue by now, is *stale* and is
//! passed over when it comes to the front.

use super::{BlockKey, ByHash, CacheStats, HashesOnly};
use crate::block::Block;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// More hits than this do not earn more rounds.
const FREQUENCY_MAX: u8 = 3;
/// How many merges a block's contents go through, from block to block, after somebody last asked for them.
pub(super) const WARMTH_MAX: u8 = 3;
/// The small queue's part of the shard: one in this many bytes.
const SMALL_PART: u64 = 10;
/// Stale entries of queues that are not worth cleaning up.
const STALE_MIN: usize = 64;

/// A block and what is known about it.
#[derive(Debug)]
pub(super) struct Slot {
    key: BlockKey,
    block: Arc<Block>,
    charge: u64,
    /// Hits since it entered its queue or last came to the front.
    frequency: u8,
    /// How many merges it may go through before somebody asks for it again.
    warmth: u8,
    /// Which queue it is in.
    in_main: bool,
}

/// Buffers are kept for further blocks if their capacity is a multiple of this, and at most [`SPARE_BYTES_MAX`].
pub(super) const SPARE_STEP_BYTES: usize = 128;
/// The longest buffer that is kept.
pub(super) const SPARE_BYTES_MAX: usize = 64 << 10;
/// A buffer may be so many steps longer than what is asked for.
const SPARE_STEPS_OVER: usize = 2;
/// What spare buffers may take of a shard that is full: one in this many bytes.
const SPARE_PART: u64 = 32;
/// What they may take of one that is not.
const SPARE_PART_MAX: u64 = 8;

/// What is to be freed when the lock is not held any more.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Blocks that somebody still reads.
    blocks: Vec<Arc<Block>>,
    buffers: Vec<Vec<u8>>,
}

/// Blocks are found by the hash of their key: of two keys with the same 64-bit hash only one can be here, and the slot's
/// key decides which.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: ByHash<Slot>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    small_bytes: u64,
    main_bytes: u64,
    /// Entries of queues that removed blocks have left behind.
    stale: usize,
    /// Hashes of blocks that left the small queue, oldest first; as many as there are blocks here, at most.
    ghosts: VecDeque<u64>,
    ghost_set: HashesOnly,
    /// Buffers of blocks that are gone, by capacity.
    spares: BTreeMap<usize, Vec<Vec<u8>>>,
    spare_bytes: u64,
    hits: u64,
    misses: u64,
    insertions: u64,
    evictions: u64,
}

impl Shard {
    #[inline]
    pub(super) fn get(&mut self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        let found = self.probe(key, hash);
        self.misses += u64::from(found.is_none());
        found
    }

    /// As `get`, but only a hit is counted.
    #[inline]
    pub(super) fn probe(&mut self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        let slot = self.slots.get_mut(&hash).filter(|slot| slot.key == key)?;
        slot.frequency = (slot.frequency + 1).min(FREQUENCY_MAX);
        slot.warmth = WARMTH_MAX;
        self.hits += 1;
        Some(Arc::clone(&slot.block))
    }

    pub(super) fn missed(&mut self) {
        self.misses += 1;
    }

    /// The block, if it is here. Not counted as a lookup.
    pub(super) fn peek(&self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        self.slots.get(&hash).filter(|slot| slot.key == key).map(|slot| Arc::clone(&slot.block))
    }

    /// How many merges a block may go through; 0 if it is not here. Not counted as a lookup.
    pub(super) fn warmth(&self, key: BlockKey, hash: u64) -> u8 {
        self.slots.get(&hash).filter(|slot| slot.key == key).map_or(0, |slot| slot.warmth)
    }

    /// A buffer for a block of `bytes` that may be too long, with whatever was in it; `None` if there is none.
    pub(super) fn take_spare(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let (_, buffers) =
            self.spares.range_mut(bytes..bytes.saturating_add((SPARE_STEPS_OVER + 1) * SPARE_STEP_BYTES)).next()?;
        let buffer = buffers.pop()?;
        let capacity = buffer.capacity();
        if buffers.is_empty() {
            self.spares.remove(&capacity);
        }
        self.spare_bytes -= capacity as u64;
        Some(buffer)
    }

    /// Keeps the memory of a block that is gone for the next one: at most half of the room that blocks leave, and a small part
    /// of the shard, a smaller one if they leave none.
    fn recycle(&mut self, block: Arc<Block>, limit: u64, garbage: &mut Garbage) {
        let buffer = match Arc::try_unwrap(block) {
            Ok(block) => block.into_bytes(),
            Err(block) => return garbage.blocks.push(block),
        };
        let capacity = buffer.capacity();
        let unused = limit.saturating_sub(self.small_bytes + self.main_bytes);
        if !capacity.is_multiple_of(SPARE_STEP_BYTES)
            || !(1..=SPARE_BYTES_MAX).contains(&capacity)
            || self.spare_bytes + capacity as u64 > (unused / 2).clamp(limit / SPARE_PART, limit / SPARE_PART_MAX)
        {
            return garbage.buffers.push(buffer);
        }
        self.spare_bytes += capacity as u64;
        self.spares.entry(capacity).or_default().push(buffer);
    }

    /// Drops a spare buffer, of the largest there are.
    fn drop_spare(&mut self, garbage: &mut Garbage) {
        let Some(mut buffers) = self.spares.last_entry() else { return };
        if let Some(buffer) = buffers.get_mut().pop() {
            self.spare_bytes -= buffer.capacity() as u64;
            garbage.buffers.push(buffer);
        }
        if buffers.get().is_empty() {
            buffers.remove();
        }
    }

    /// Puts a block in that may go through so many merges. One that comes from a merge itself counts as hit if what it is
    /// made of was asked for since the merge before.
    #[expect(clippy::too_many_arguments, reason = "what the cache knows and the shard needs; one caller")]
    pub(super) fn insert(
        &mut self,
        key: BlockKey,
        hash: u64,
        block: Arc<Block>,
        warmth: u8,
        charge: u64,
        limit: u64,
        garbage: &mut Garbage,
    ) -> Arc<Block> {
        if let Some(slot) = self.slots.get(&hash) {
            return if slot.key == key { Arc::clone(&slot.block) } else { block };
        }
        let Some(room) = limit.checked_sub(charge) else { return block };
        self.make_room(room, limit, garbage);
        let in_main = self.ghost_set.remove(&hash);
        let frequency = u8::from(warmth + 1 == WARMTH_MAX);
        self.slots.insert(hash, Slot { key, block: Arc::clone(&block), charge, frequency, warmth, in_main });
        if in_main {
            self.main.push_back(hash);
            self.main_bytes += charge;
        } else {
            self.small.push_back(hash);
            self.small_bytes += charge;
        }
        self.insertions += 1;
        block
    }

    /// Takes a block out; false if it is not here. Its entry stays in its queue until it comes to the front, or until most
    /// are stale.
    pub(super) fn remove(&mut self, key: BlockKey, hash: u64, limit: u64, garbage: &mut Garbage) -> bool {
        if self.slots.get(&hash).is_none_or(|slot| slot.key != key) {
            return false;
        }
        let Some(slot) = self.slots.remove(&hash) else { return false };
        *(if slot.in_main { &mut self.main_bytes } else { &mut self.small_bytes }) -= slot.charge;
        self.evictions += 1;
        self.stale += 1;
        if self.stale > STALE_MIN && self.stale > self.slots.len() {
            let slots = &self.slots;
            self.small.retain(|hash| slots.get(hash).is_some_and(|slot| !slot.in_main));
            self.main.retain(|hash| slots.get(hash).is_some_and(|slot| slot.in_main));
            self.stale = 0;
        }
        self.limit_ghosts();
        self.recycle(slot.block, limit, garbage);
        true
    }

    /// Throws blocks out until `limit` holds.
    pub(super) fn shrink(&mut self, limit: u64, garbage: &mut Garbage) {
        self.make_room(limit, limit, garbage);
    }

    fn make_room(&mut self, room: u64, limit: u64, garbage: &mut Garbage) {
        while self.small_bytes + self.main_bytes + self.spare_bytes > room {
            if self.spare_bytes > limit / SPARE_PART || self.slots.is_empty() {
                self.drop_spare(garbage);
            } else if self.small_bytes > limit / SMALL_PART || self.main.is_empty() {
                self.advance_small(limit, garbage);
            } else {
                self.advance_main(limit, garbage);
            }
        }
        self.limit_ghosts();
    }

    /// Moves the front of the small queue to the main queue, or out.
    fn advance_small(&mut self, limit: u64, garbage: &mut Garbage) {
        let Some(hash) = self.small.pop_front() else { return };
        let Some(slot) = self.slots.get_mut(&hash).filter(|slot| !slot.in_main) else { return self.pass_over() };
        self.small_bytes -= slot.charge;
        if slot.frequency > 0 {
            slot.frequency = 0;
            slot.in_main = true;
            self.main_bytes += slot.charge;
            self.main.push_back(hash);
            return;
        }
        self.evict(hash, limit, garbage);
        if self.ghost_set.insert(hash) {
            self.ghosts.push_back(hash);
        }
    }

    fn limit_ghosts(&mut self) {
        while self.ghosts.len() > self.slots.len().max(1) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
            }
        }
    }

    /// Sends the front of the main queue round again, or out. Ends, since each round lowers a frequency.
    fn advance_main(&mut self, limit: u64, garbage: &mut Garbage) {
        let Some(hash) = self.main.pop_front() else { return };
        let Some(slot) = self.slots.get_mut(&hash).filter(|slot| slot.in_main) else { return self.pass_over() };
        if slot.frequency > 0 {
            slot.frequency -= 1;
            self.main.push_back(hash);
            return;
        }
        self.main_bytes -= slot.charge;
        self.evict(hash, limit, garbage);
    }

    /// A stale entry has left its queue.
    fn pass_over(&mut self) {
        // A block that was removed and put in again has two entries: which of them is the stale one shows only later.
        self.stale = self.stale.saturating_sub(1);
    }

    fn evict(&mut self, hash: u64, limit: u64, garbage: &mut Garbage) {
        if let Some(slot) = self.slots.remove(&hash) {
            self.evictions += 1;
            self.recycle(slot.block, limit, garbage);
        }
    }

    pub(super) fn add_to(&self, stats: &mut CacheStats) {
        stats.hits += self.hits;
        stats.misses += self.misses;
        stats.insertions += self.insertions;
        stats.evictions += self.evictions;
        stats.blocks += self.slots.len() as u64;
        stats.block_bytes += self.small_bytes + self.main_bytes;
        stats.spare_bytes += self.spare_bytes;
    }

    /// The sum of charges, counted anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> (u64, u64) {
        let charges = self.slots.values().map(|slot| {
            assert_eq!(slot.charge as usize, slot.block.memory_bytes() + super::ENTRY_OVERHEAD_BYTES);
            slot.charge
        });
        let spares: usize = self.spares.values().flatten().map(Vec::capacity).sum();
        assert_eq!(spares as u64, self.spare_bytes);
        assert!(
            self.spares.iter().all(|(capacity, all)| !all.is_empty() && all.iter().all(|b| b.capacity() == *capacity))
        );
        let queued = self.small.len() + self.main.len();
        assert!((self.slots.len()..=2 * self.slots.len() + STALE_MIN + 1).contains(&queued), "{queued} entries");
        assert!(self.ghost_set.len() <= self.ghosts.len() && self.ghosts.len() <= (self.slots.len() + 1).max(2));
        (charges.sum(), self.small_bytes + self.main_bytes)
    }
}
