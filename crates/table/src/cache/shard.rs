//! One shard: S3-FIFO over slots. The module page of the cache has the algorithm.

use super::{BlockKey, ByHash, CacheStats, HashesOnly};
use crate::block::Block;
use std::collections::VecDeque;
use std::sync::Arc;

/// More hits than this do not earn more rounds.
const FREQUENCY_MAX: u8 = 3;
/// The small queue's part of the shard: one in this many bytes.
const SMALL_PART: u64 = 10;

/// A block and what is known about it.
#[derive(Debug)]
pub(super) struct Slot {
    key: BlockKey,
    hash: u64,
    block: Arc<Block>,
    charge: u64,
    /// Hits since it entered its queue or last came to the front.
    frequency: u8,
}

/// Blocks are found by the hash of their key: of two keys with the same 64-bit hash only one can be here, and the slot's
/// key decides which.
#[derive(Debug, Default)]
pub(super) struct Shard {
    by_hash: ByHash<u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    small_bytes: u64,
    main_bytes: u64,
    /// Hashes of blocks that left the small queue, oldest first; as many as there are blocks here, at most.
    ghosts: VecDeque<u64>,
    ghost_set: HashesOnly,
    hits: u64,
    misses: u64,
    insertions: u64,
    evictions: u64,
}

impl Shard {
    #[inline]
    pub(super) fn get(&mut self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        let found = self.by_hash.get(&hash).and_then(|at| self.slots.get_mut(*at as usize)?.as_mut());
        match found {
            Some(slot) if slot.key == key => {
                slot.frequency = (slot.frequency + 1).min(FREQUENCY_MAX);
                self.hits += 1;
                Some(Arc::clone(&slot.block))
            }
            _ => {
                self.misses += 1;
                None
            }
        }
    }

    pub(super) fn insert(
        &mut self,
        key: BlockKey,
        hash: u64,
        block: Arc<Block>,
        charge: u64,
        limit: u64,
        evicted: &mut Vec<Slot>,
    ) -> Arc<Block> {
        if let Some(at) = self.by_hash.get(&hash) {
            return match self.slots.get(*at as usize) {
                Some(Some(slot)) if slot.key == key => Arc::clone(&slot.block),
                _ => block,
            };
        }
        let Some(room) = limit.checked_sub(charge) else { return block };
        self.make_room(room, limit, evicted);
        let slot = Slot { key, hash, block: Arc::clone(&block), charge, frequency: 0 };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        self.by_hash.insert(hash, at);
        if self.ghost_set.remove(&hash) {
            self.main.push_back(at);
            self.main_bytes += charge;
        } else {
            self.small.push_back(at);
            self.small_bytes += charge;
        }
        self.insertions += 1;
        block
    }

    /// Throws blocks out until `limit` holds.
    pub(super) fn shrink(&mut self, limit: u64, evicted: &mut Vec<Slot>) {
        self.make_room(limit, limit, evicted);
    }

    fn make_room(&mut self, room: u64, limit: u64, evicted: &mut Vec<Slot>) {
        while self.small_bytes + self.main_bytes > room {
            if self.small_bytes > limit / SMALL_PART || self.main.is_empty() {
                self.advance_small(evicted);
            } else {
                self.advance_main(evicted);
            }
        }
    }

    /// Moves the front of the small queue to the main queue, or out.
    fn advance_small(&mut self, evicted: &mut Vec<Slot>) {
        let Some(at) = self.small.pop_front() else { return };
        let Some(Some(slot)) = self.slots.get_mut(at as usize) else { return };
        self.small_bytes -= slot.charge;
        if slot.frequency > 0 {
            slot.frequency = 0;
            self.main_bytes += slot.charge;
            self.main.push_back(at);
            return;
        }
        let hash = slot.hash;
        self.evict(at, evicted);
        if self.ghost_set.insert(hash) {
            self.ghosts.push_back(hash);
        }
        while self.ghosts.len() > self.by_hash.len().max(1) {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
            }
        }
    }

    /// Sends the front of the main queue round again, or out. Ends, since each round lowers a frequency.
    fn advance_main(&mut self, evicted: &mut Vec<Slot>) {
        let Some(at) = self.main.pop_front() else { return };
        let Some(Some(slot)) = self.slots.get_mut(at as usize) else { return };
        if slot.frequency > 0 {
            slot.frequency -= 1;
            self.main.push_back(at);
            return;
        }
        self.main_bytes -= slot.charge;
        self.evict(at, evicted);
    }

    fn evict(&mut self, at: u32, evicted: &mut Vec<Slot>) {
        if let Some(slot) = self.slots.get_mut(at as usize).and_then(Option::take) {
            self.by_hash.remove(&slot.hash);
            self.free.push(at);
            self.evictions += 1;
            evicted.push(slot);
        }
    }

    pub(super) fn add_to(&self, stats: &mut CacheStats) {
        stats.hits += self.hits;
        stats.misses += self.misses;
        stats.insertions += self.insertions;
        stats.evictions += self.evictions;
        stats.blocks += self.by_hash.len() as u64;
        stats.block_bytes += self.small_bytes + self.main_bytes;
    }

    /// The sum of charges, counted anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> (u64, u64) {
        let charges = self.slots.iter().flatten().map(|slot| {
            assert_eq!(slot.charge as usize, slot.block.memory_bytes() + super::ENTRY_OVERHEAD_BYTES);
            slot.charge
        });
        assert_eq!(self.slots.iter().flatten().count(), self.small.len() + self.main.len());
        assert!(self.ghost_set.len() <= self.ghosts.len() && self.ghosts.len() <= self.slots.len() + 1);
        (charges.sum(), self.small_bytes + self.main_bytes)
    }
}
