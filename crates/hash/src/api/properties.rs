//! Facts that a store states of itself.

use crate::api::store::HashStore;
use crate::format::address::State;
use crate::format::bucket::USABLE_BYTES;
use crate::format::superblock::Totals;
use crate::live::core::Core;
use crate::{Error, StoreId};
use situ_device::Space;
use situ_engine::DebtProperties;
use situ_pipeline::SpaceProperties;
use std::sync::atomic::{AtomicU64, Ordering};

/// The resources that a store uses, and its condition. Counts of operations begin when the store is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HashProperties {
    /// The identity of the store.
    pub store: StoreId,
    /// The device or the file with the buckets.
    pub device: String,
    /// The number of buckets, and the mapping of hashes to them.
    pub state: State,
    /// The number of buckets that have room on the device.
    pub buckets_max: u64,
    /// The contents of all buckets. Writes that are pending do not count yet.
    pub totals: Totals,
    /// Average load of buckets, the overflow included: 1 if all were full.
    pub load: f64,
    /// Share of entries in the overflow.
    pub overflow_share: f64,
    /// Writes that are logged and not yet in their buckets, in bytes.
    pub pending_bytes: u64,
    /// Writes that wait for room.
    pub writes_waiting: usize,
    /// The last sequence number that readers see.
    pub last_sequence: u64,
    /// Log that is kept, in bytes.
    pub log_bytes: u64,
    /// Log that may be kept while clients write ([`HashOptions::log_bytes_max`](crate::HashOptions::log_bytes_max)). An
    /// idle store keeps one file.
    pub log_bytes_max: u64,
    /// The approximate number of entries that have expired and still take space, as of the last look for them.
    pub dead_entries: u64,
    /// Bytes of the overflow store on its disk.
    pub overflow_disk_bytes: u64,
    /// Keys looked up.
    pub gets: u64,
    /// Buckets that were read, by readers and by workers.
    pub bucket_reads: u64,
    /// Buckets written.
    pub bucket_writes: u64,
    /// Buckets discarded on the device.
    pub bucket_discards: u64,
    /// Reads that searched the overflow.
    pub overflow_reads: u64,
    /// Buckets split.
    pub splits: u64,
    /// Buckets merged into others.
    pub merges: u64,
    /// Bytes of large values in the value log, with their keys, that are alive as far as the store knows.
    pub value_live_bytes: u64,
    /// Bytes of large values that are dead and not yet trimmed or collected.
    pub value_garbage_bytes: u64,
    /// Bytes of large values that have died since the last checkpoint, which lets the value log reclaim them.
    pub value_dying_bytes: u64,
    /// The debts of the overflow store.
    pub overflow_debts: DebtProperties,
    /// Segments of the value log that were collected.
    pub value_collections: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Writes of the superblock.
    pub superblock_writes: u64,
    /// Images of buckets are written before the buckets, because the device can tear or lose a write.
    pub writes_images: bool,
    /// Room on the device, with what it says of its hardware.
    pub space: Space,
    /// The known physical space that the store may still use; none on drives that do not compress or do not say, and
    /// before the first write.
    pub watched_space: Option<SpaceProperties>,
    /// The reason why the store takes no puts for now: a disk is out of space.
    pub out_of_space: Option<Error>,
    /// A slot of the superblock was damaged when the store was opened; the store rewrote it.
    pub superblock_damage: Option<Error>,
    /// The reason why the store takes no writes any more.
    pub failure: Option<Error>,
}

impl HashStore {
    /// Returns the resources that the store uses, and its condition.
    pub fn properties(&self) -> HashProperties {
        self.inner.core.properties()
    }
}

impl Core {
    fn properties(&self) -> HashProperties {
        let (state, totals) = (self.state(), self.totals());
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let filled = (totals.bytes + totals.overflow_bytes) as f64;
        let entries = totals.entries + totals.overflow_entries;
        let (values, overflow) = (self.large.log.inflation(), self.overflow.properties());
        HashProperties {
            store: self.store,
            device: self.io.path.clone(),
            state,
            buckets_max: self.io.buckets_max,
            load: filled / (state.buckets() as f64 * USABLE_BYTES as f64),
            overflow_share: totals.overflow_entries as f64 / entries.max(1) as f64,
            totals,
            pending_bytes: self.writes.pending.bytes(),
            writes_waiting: self.pipeline.waiting().0,
            last_sequence: self.writes.visible(),
            log_bytes: self.writes.log.held_bytes(),
            log_bytes_max: self.options.log_bytes_max,
            dead_entries: self.writes.purges.dead_entries(),
            overflow_disk_bytes: overflow.table_bytes + overflow.log_bytes,
            overflow_debts: overflow.debts,
            gets: number(&self.counters.gets),
            bucket_reads: number(&self.io.reads),
            bucket_writes: number(&self.io.writes),
            bucket_discards: number(&self.io.discards),
            overflow_reads: number(&self.counters.overflow_reads),
            splits: number(&self.counters.splits),
            merges: number(&self.counters.merges),
            value_live_bytes: values.live_bytes,
            value_garbage_bytes: values.dead_bytes.saturating_sub(values.trimmed_bytes),
            value_dying_bytes: self.large.dying_bytes(),
            value_collections: number(&self.counters.collections),
            checkpoints: number(&self.counters.checkpoints),
            superblock_writes: number(&self.counters.superblocks),
            writes_images: self.images.is_some(),
            space: self.io.device().space(),
            watched_space: self.writes.shortage.space.properties(),
            out_of_space: self.writes.shortage.cause(),
            superblock_damage: self.superblock.damage().cloned(),
            failure: self.writes.failed(),
        }
    }
}
