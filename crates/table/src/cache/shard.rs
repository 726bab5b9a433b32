//! One shard: blocks kept by S3-FIFO, and the memory of blocks that are gone.
//!
//! The policy is [`s3_fifo`](situ_base::s3_fifo)'s. The shard adds what a cache of blocks needs: keys behind hashes,
//! warmth, spare buffers, counters. The module page of the cache has the whole.

use super::{BlockKey, CacheStats, Identity};
use crate::block::Block;
use situ_base::s3_fifo::{Held, S3Fifo};
use std::collections::BTreeMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// The number of merges that a block's contents go through, from block to block, after the last reader asked for them.
pub(super) const WARMTH_MAX: u8 = 3;
/// The small queue's part of the shard: one in this many bytes.
const SMALL_PART: u64 = 10;

/// A block and what is known about it.
#[derive(Debug)]
pub(super) struct CachedBlock {
    key: BlockKey,
    block: Arc<Block>,
    /// The number of merges that it may go through before a reader asks for it again.
    warmth: u8,
}

/// The bytes that a block takes in the shard's map.
pub(super) const SLOT_BYTES: usize = size_of::<Held<CachedBlock>>();

/// Buffers are kept for further blocks if their capacity is a multiple of this, and at most [`SPARE_BYTES_MAX`].
pub(super) const SPARE_STEP_BYTES: usize = 128;
/// The longest buffer that is kept.
pub(super) const SPARE_BYTES_MAX: usize = 64 << 10;
/// The number of steps by which a buffer may be longer than the requested length.
const SPARE_STEPS_OVER: usize = 2;
/// The share of a full shard that spare buffers may take: one in this many bytes.
const SPARE_PART: u64 = 32;
/// The share that they may take of a shard that is not full.
const SPARE_PART_MAX: u64 = 8;

/// The memory to free after the lock is released.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Blocks that still have readers.
    blocks: Vec<Arc<Block>>,
    buffers: Vec<Vec<u8>>,
}

/// Blocks are found by the hash of their key. Of two keys with the same 64-bit hash, only one can be here, and the
/// block's key decides which.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// The blocks, by hash.
    blocks: S3Fifo<u64, CachedBlock, BuildHasherDefault<Identity>>,
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

    /// Like `get`, but only a hit is counted.
    #[inline]
    pub(super) fn probe(&mut self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        let held = self.blocks.get_mut(&hash).filter(|held| held.value.key == key)?;
        held.hit();
        held.value.warmth = WARMTH_MAX;
        self.hits += 1;
        Some(Arc::clone(&held.value.block))
    }

    pub(super) fn missed(&mut self) {
        self.misses += 1;
    }

    /// Returns the block, if it is here. Not counted as a lookup.
    pub(super) fn peek(&self, key: BlockKey, hash: u64) -> Option<Arc<Block>> {
        self.find(key, hash).map(|cached| Arc::clone(&cached.block))
    }

    /// Returns the number of merges that a block may go through; 0 if it is not here. This does not count as a lookup.
    pub(super) fn warmth(&self, key: BlockKey, hash: u64) -> u8 {
        self.find(key, hash).map_or(0, |cached| cached.warmth)
    }

    fn find(&self, key: BlockKey, hash: u64) -> Option<&CachedBlock> {
        self.blocks.peek(&hash).filter(|cached| cached.key == key)
    }

    /// Returns a buffer for a block of `bytes` that may be too long, with whatever was in it; `None` if there is none.
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

    /// Keeps the memory of a block that is gone for the next one. It keeps at most half of the room that blocks leave,
    /// and a small part of the shard, a smaller one if they leave none.
    fn recycle(&mut self, block: Arc<Block>, limit: u64, garbage: &mut Garbage) {
        let buffer = match Arc::try_unwrap(block) {
            Ok(block) => block.into_bytes(),
            Err(block) => return garbage.blocks.push(block),
        };
        let capacity = buffer.capacity();
        let unused = limit.saturating_sub(self.blocks.bytes());
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

    /// Inserts a block that may go through `warmth` merges. A block that comes from a merge itself counts as hit if a
    /// reader asked for its source since the merge before.
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
        if let Some(cached) = self.blocks.peek(&hash) {
            return if cached.key == key { Arc::clone(&cached.block) } else { block };
        }
        let (Some(room), Ok(weight)) = (limit.checked_sub(charge), u32::try_from(charge)) else { return block };
        self.make_room(room, limit, garbage);
        let is_main = self.blocks.recall(&hash);
        let hits = u8::from(warmth + 1 == WARMTH_MAX);
        self.blocks.insert(hash, CachedBlock { key, block: Arc::clone(&block), warmth }, weight, hits, is_main);
        self.insertions += 1;
        block
    }

    /// Takes a block out; false if it is not here.
    pub(super) fn remove(&mut self, key: BlockKey, hash: u64, limit: u64, garbage: &mut Garbage) -> bool {
        if self.find(key, hash).is_none() {
            return false;
        }
        let Some(cached) = self.blocks.remove(&hash) else { return false };
        self.evictions += 1;
        self.limit_ghosts();
        self.recycle(cached.block, limit, garbage);
        true
    }

    /// Throws blocks out until `limit` holds.
    pub(super) fn shrink(&mut self, limit: u64, garbage: &mut Garbage) {
        self.make_room(limit, limit, garbage);
    }

    fn make_room(&mut self, room: u64, limit: u64, garbage: &mut Garbage) {
        while self.blocks.bytes() + self.spare_bytes > room {
            if self.spare_bytes > limit / SPARE_PART || self.blocks.is_empty() {
                self.drop_spare(garbage);
            } else if let Some(gone) = self.blocks.evict(limit / SMALL_PART) {
                self.evictions += 1;
                self.recycle(gone.block, limit, garbage);
            }
        }
        self.limit_ghosts();
    }

    /// Limits the ghosts to at most as many as there are blocks.
    fn limit_ghosts(&mut self) {
        self.blocks.limit_ghosts(self.blocks.len().max(1));
    }

    pub(super) fn add_to(&self, stats: &mut CacheStats) {
        stats.hits += self.hits;
        stats.misses += self.misses;
        stats.insertions += self.insertions;
        stats.evictions += self.evictions;
        stats.blocks += self.blocks.len() as u64;
        stats.block_bytes += self.blocks.bytes();
        stats.spare_bytes += self.spare_bytes;
    }

    /// Recounts the sum of charges.
    #[cfg(test)]
    pub(super) fn recount(&self) -> (u64, u64) {
        self.blocks.check();
        let charges = self.blocks.values().map(|held| {
            assert_eq!(held.weight() as usize, held.value.block.memory_bytes() + super::ENTRY_OVERHEAD_BYTES);
            u64::from(held.weight())
        });
        let spares: usize = self.spares.values().flatten().map(Vec::capacity).sum();
        assert_eq!(spares as u64, self.spare_bytes);
        assert!(
            self.spares.iter().all(|(capacity, all)| !all.is_empty() && all.iter().all(|b| b.capacity() == *capacity))
        );
        (charges.sum(), self.blocks.bytes())
    }
}
