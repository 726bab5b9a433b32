//! The block cache: uncompressed blocks of all tables, bounded in bytes.
//!
//! Each shard keeps blocks by [S3-FIFO](situ_base::s3_fifo): a scan washes through a small queue, and what is read
//! again stays. There are as many ghosts as blocks, at most.
//!
//! A merge of tables replaces blocks that were hit by others with the same entries. So that readers do not notice, it
//! inserts new blocks for those that were read since the third merge before
//! ([`RawBlock::mark_warm`](crate::RawBlock::mark_warm)). The blocks of a deleted table are taken out
//! ([`Table::forget`](crate::Table::forget)). Without either, each compaction would cool the cache, and fill it with
//! blocks that no reader can ask for. (X-Engine does the same: Huang et al., "X-Engine: An Optimized Storage Engine for
//! Large-scale E-commerce Transaction Processing", SIGMOD 2019.)
//!
//! A hit is a map lookup and a saturating addition under the shard's mutex, which is never held across anything that
//! blocks.
//!
//! The memory of blocks that go is used again for those that come ([`BlockCache::buffer`]). They are allocated by one
//! thread and freed by another, and allocators with a heap for each thread would let the process grow.
//!
//! **Invariants**: `pinned + blocks + spare buffers <= capacity`, or nothing at all is held; room is made before a
//! block enters. A block larger than its shard's part of the capacity is not kept. Charges are what the memory really
//! is: the block's allocation and its place in map, queues and ghost list ([`ENTRY_OVERHEAD_BYTES`]).
//! **Threads**: all; shards are chosen by the key's hash.
//! **Failure**: none; a cache without room keeps nothing.

use crate::block::Block;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod shard;
use shard::{Garbage, SPARE_BYTES_MAX, SPARE_STEP_BYTES, Shard, WARMTH_MAX};

/// The charge for a block in addition to its own memory: its hash, slot and control byte in a map at a load of one
/// half, its places in the queue and in the ghost list.
pub const ENTRY_OVERHEAD_BYTES: usize = 2 * (8 + shard::SLOT_BYTES + 1) + 8 + 48;
/// A shard is not made smaller than this, so that small caches can still hold large blocks.
const SHARD_BYTES_MIN: u64 = 512 << 10;
const SHARDS_MAX: usize = 64;
/// A merge may fill one in this many bytes of the cache.
const WARMING_PART: u64 = 8;

/// Names a block: the table's process-wide number and the block's offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    table_id: u64,
    offset: u64,
}

impl BlockKey {
    /// Mixes both numbers; all bits of the result are good.
    #[inline]
    fn hash(self) -> u64 {
        let mixed = (self.table_id ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.offset;
        let product = u128::from(mixed) * 0xe703_7ed1_a0b4_28db_u128;
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Counters of a cache since it was made, and what it holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Lookups that found their block.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Blocks put in.
    pub insertions: u64,
    /// Blocks thrown out, or taken out with their table.
    pub evictions: u64,
    /// Blocks held.
    pub blocks: u64,
    /// Bytes of blocks held, with overhead.
    pub block_bytes: u64,
    /// Bytes of buffers kept for further blocks.
    pub spare_bytes: u64,
    /// Bytes of pinned indexes, filters and range tombstones of open tables.
    pub pinned_bytes: u64,
    /// The bound on `block_bytes + spare_bytes + pinned_bytes`.
    pub capacity_bytes: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct BlockCache {
    shards: Box<[Mutex<Shard>]>,
    capacity_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
}

impl BlockCache {
    /// Creates a cache of at most `capacity_bytes`, pinned parts of open tables included; 0 keeps nothing.
    pub fn new(capacity_bytes: u64) -> Arc<BlockCache> {
        let wanted = usize::try_from(capacity_bytes / SHARD_BYTES_MIN).unwrap_or(SHARDS_MAX).clamp(1, SHARDS_MAX);
        // A power of two, so that the hash's upper bits choose.
        let count = if wanted.is_power_of_two() { wanted } else { wanted.next_power_of_two() / 2 };
        Arc::new(BlockCache {
            shards: (0..count).map(|_| Mutex::default()).collect(),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            pinned_bytes: AtomicU64::new(0),
        })
    }

    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let at = (hash >> 32) as usize & (self.shards.len() - 1);
        // Only an allocation can have panicked while the lock was held. The shard's books are still consistent enough
        // to go on, and each use checks what it finds.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that each shard may hold now.
    fn shard_limit(&self) -> u64 {
        let capacity = self.capacity_bytes.load(Ordering::SeqCst);
        capacity.saturating_sub(self.pinned_bytes.load(Ordering::SeqCst)) / self.shards.len() as u64
    }

    /// Returns the block of `table_id` at `offset`, if it is here.
    #[inline]
    pub fn get(&self, table_id: u64, offset: u64) -> Option<Arc<Block>> {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        self.shard(hash).get(key, hash)
    }

    /// Like [`get`](BlockCache::get), for a caller that goes elsewhere when it is not here: only a hit is counted.
    #[inline]
    pub(crate) fn probe(&self, table_id: u64, offset: u64) -> Option<Arc<Block>> {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        self.shard(hash).probe(key, hash)
    }

    /// Counts a lookup by [`probe`](BlockCache::probe) that ended here after all: the block was read at once.
    pub(crate) fn missed(&self, table_id: u64, offset: u64) {
        self.shard(BlockKey { table_id, offset }.hash()).missed();
    }

    /// Keeps `block` if there is room for it, and returns the block to use: if another thread was faster, that one's.
    pub fn insert(&self, table_id: u64, offset: u64, block: Arc<Block>) -> Arc<Block> {
        self.insert_warm(table_id, offset, block, WARMTH_MAX)
    }

    /// Like [`get`](BlockCache::get), for a caller that does not use the block. It does not count as a lookup.
    pub(crate) fn peek(&self, table_id: u64, offset: u64) -> Option<Arc<Block>> {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        self.shard(hash).peek(key, hash)
    }

    /// Returns the number of merges that the block of `table_id` at `offset` may go through before a reader asks for it
    /// again, up to 3; 0 if it is not here. This does not count as a lookup.
    pub(crate) fn warmth(&self, table_id: u64, offset: u64) -> u8 {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        self.shard(hash).warmth(key, hash)
    }

    /// Takes out the block of `table_id` at `offset`, which no reader will ask for again. Returns true if it was here.
    pub(crate) fn remove(&self, table_id: u64, offset: u64) -> bool {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        let mut garbage = Garbage::default();
        let mut shard = self.shard(hash);
        let removed = shard.remove(key, hash, self.shard_limit(), &mut garbage);
        drop(shard);
        // Freed outside the lock.
        drop(garbage);
        removed
    }

    /// Returns memory for the block of `table_id` at `offset`, `bytes` long, with arbitrary contents. It is the memory
    /// of a block that is gone, if there is one of about this length. Only blocks in such memory leave it to others.
    /// Empty if `bytes` is more than is ever kept.
    pub(crate) fn buffer(&self, table_id: u64, offset: u64, bytes: usize) -> Vec<u8> {
        if bytes > SPARE_BYTES_MAX {
            return Vec::new();
        }
        let spare = self.shard(BlockKey { table_id, offset }.hash()).take_spare(bytes);
        let mut buffer = spare.unwrap_or_else(|| Vec::with_capacity(bytes.next_multiple_of(SPARE_STEP_BYTES)));
        // No zeros for what is there already.
        buffer.resize(bytes, 0);
        buffer
    }

    /// Like [`insert`](BlockCache::insert), for a block that may go through `warmth` merges.
    pub(crate) fn insert_warm(&self, table_id: u64, offset: u64, block: Arc<Block>, warmth: u8) -> Arc<Block> {
        let key = BlockKey { table_id, offset };
        let hash = key.hash();
        let charge = (block.memory_bytes() + ENTRY_OVERHEAD_BYTES) as u64;
        let mut garbage = Garbage::default();
        let mut shard = self.shard(hash);
        // Read under the lock: a thread that lowers the limit then shrinks each shard, under its lock.
        let kept = shard.insert(key, hash, block, warmth, charge, self.shard_limit(), &mut garbage);
        drop(shard);
        // Freed outside the lock.
        drop(garbage);
        kept
    }

    /// Changes the capacity; shrinks at once if need be.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.capacity_bytes.store(capacity_bytes, Ordering::SeqCst);
        self.shrink();
    }

    /// Charges `bytes` that cannot be thrown out until the result is dropped. Blocks make room for them at once.
    pub(crate) fn pin(self: &Arc<Self>, bytes: u64) -> Pinned {
        self.pinned_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.shrink();
        Pinned { cache: Arc::clone(self), bytes }
    }

    fn shrink(&self) {
        for shard in &self.shards {
            let mut garbage = Garbage::default();
            shard.lock().unwrap_or_else(PoisonError::into_inner).shrink(self.shard_limit(), &mut garbage);
        }
    }

    /// Counters and sizes, each shard's at a slightly different moment.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            pinned_bytes: self.pinned_bytes.load(Ordering::SeqCst),
            capacity_bytes: self.capacity_bytes.load(Ordering::SeqCst),
            ..CacheStats::default()
        };
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).add_to(&mut stats);
        }
        stats
    }

    /// Returns the bytes held now: blocks with overhead, spare buffers, and pinned parts of open tables.
    pub fn used_bytes(&self) -> u64 {
        let stats = self.stats();
        stats.block_bytes + stats.spare_bytes + stats.pinned_bytes
    }
}

/// Memory charged to a cache until it is dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.cache.pinned_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// The right to put blocks into a cache before a reader asks for them, for the tables of one merge together. It is an
/// eighth of the cache, since no reader finds these blocks before the merge is done. Until then the blocks that they
/// replace are there, too.
#[derive(Debug)]
pub struct Warming {
    cache: Arc<BlockCache>,
    bytes_left: AtomicU64,
    /// Table and offset of what was put in.
    blocks: Mutex<Vec<(u64, u64)>>,
}

impl Warming {
    /// Creates the right for one merge.
    pub fn new(cache: Arc<BlockCache>) -> Warming {
        let bytes_left = AtomicU64::new(cache.capacity_bytes.load(Ordering::SeqCst) / WARMING_PART);
        Warming { cache, bytes_left, blocks: Mutex::default() }
    }

    /// Takes out what was put in for tables that come to nothing.
    pub fn forget_tables(&self, is_kept: impl Fn(u64) -> bool) {
        let blocks = std::mem::take(&mut *self.blocks.lock().unwrap_or_else(PoisonError::into_inner));
        for (table_id, offset) in blocks {
            if !is_kept(table_id) {
                self.cache.remove(table_id, offset);
            }
        }
    }

    pub(crate) fn insert(&self, table_id: u64, offset: u64, block: Block, warmth: u8) {
        self.cache.insert_warm(table_id, offset, Arc::new(block), warmth);
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push((table_id, offset));
    }

    /// Returns the cache, for a block of `bytes`, if there is something left of the right.
    pub(crate) fn take(&self, bytes: usize) -> Option<&BlockCache> {
        let less = |left: u64| left.checked_sub(bytes as u64);
        self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok().then_some(&*self.cache)
    }
}

/// Passes on the hash that a [`BlockKey`] already is.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
