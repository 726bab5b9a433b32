//! Writes that are logged and not yet in their buckets.
//!
//! 1. The epilogue of a write [inserts](Pending::insert) each change into the table of its partition.
//! 2. Readers [look](Pending::find) there first.
//! 3. The partition's worker [takes](Pending::take) changes, a few buckets at a time, and applies them.
//! 4. The changes [leave](Pending::remove) the table when bucket and overflow have them. Until then readers find them
//!    here.
//!
//! A table is ordered by hashes with their bits reversed, as the overflow is. So the changes of one bucket lie next to
//! each other however many buckets there are, and a split needs nothing of the tables.
//!
//! **Invariants.** The changes of a hash are in the order of their sequence numbers. A worker takes a bucket with all
//! of its changes up to its limit. Bytes are counted before a write is logged, and until its changes leave.
//! **Threads.** One short lock for each partition. The low bits of a hash choose it, and they are the low bits of the
//! bucket's number. So a bucket belongs to the same partition before and after its split.
//! **Rejected.** A hash map by bucket: a split would have to move changes while readers look.

use crate::format::address::State;
use crate::format::rebuild::Change;
use crate::writing::batch::Changes;
use situ_base::{Env, Event, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One change that waits.
#[derive(Clone)]
pub(crate) struct PendingChange {
    pub(crate) sequence: u64,
    changes: Arc<Changes>,
    index: usize,
}

impl PendingChange {
    pub(crate) fn new(sequence: u64, changes: &Arc<Changes>, index: usize) -> PendingChange {
        PendingChange { sequence, changes: Arc::clone(changes), index }
    }

    pub(crate) fn change(&self) -> Change<'_> {
        self.changes.change(self.index)
    }

    pub(crate) fn hash(&self) -> u64 {
        self.changes.hash(self.index)
    }

    fn bytes(&self) -> u64 {
        self.changes.bytes_of(self.index)
    }
}

/// The changes of one bucket, as a worker takes them.
pub(crate) struct BucketChanges {
    pub(crate) bucket: u64,
    /// The changes, by hash, and by sequence number among those of one hash.
    pub(crate) changes: Vec<PendingChange>,
}

impl BucketChanges {
    /// Returns the last sequence number among the changes.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.changes.iter().map(|change| change.sequence).max().unwrap_or(0)
    }
}

/// Changes by reversed hash, then by sequence number.
type Table = BTreeMap<(u64, u64), PendingChange>;

pub(crate) struct Partition {
    table: Mutex<Table>,
    bytes: AtomicU64,
    /// All changes up to this sequence number have left.
    drained: AtomicU64,
    /// The partition's worker sleeps on it.
    pub(crate) work: Arc<dyn Event>,
}

pub(crate) struct Pending {
    partitions: Box<[Partition]>,
    bytes: AtomicU64,
    bytes_max: u64,
    /// Workers are to apply all changes up to this one.
    wanted: AtomicU64,
    /// The bytes that waited already when the store was opened, for want of space.
    replayed_bytes: AtomicU64,
}

impl Pending {
    pub(crate) fn new(env: &Env, partitions: usize, bytes_max: u64, last_sequence: u64) -> Pending {
        assert!(partitions.is_power_of_two(), "the low bits of a hash choose a partition");
        let partition = |_| Partition {
            table: Mutex::default(),
            bytes: AtomicU64::new(0),
            drained: AtomicU64::new(last_sequence),
            work: env.executor.event(),
        };
        let partitions = (0..partitions).map(partition).collect();
        let (bytes, wanted, replayed_bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Pending { partitions, bytes, bytes_max, wanted, replayed_bytes }
    }

    pub(crate) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    fn partition_of(&self, hash: u64) -> &Partition {
        &self.partitions[self.partition_number(hash)]
    }

    /// Returns the number of the partition of a hash, and of its bucket.
    pub(crate) fn partition_number(&self, hash: u64) -> usize {
        hash as usize & (self.partitions.len() - 1)
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that may wait.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns true if there is room for a write of `bytes` bytes. One write is always let in.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let waiting = self.bytes();
        waiting == 0 || waiting + bytes <= self.bytes_max
    }

    /// Returns true if enough room is free to wake the writers that wait for room. Woken at each little room,
    /// each of many writers would wake for one write.
    pub(crate) fn has_much_room(&self) -> bool {
        self.bytes() <= self.bytes_max / 4 * 3
    }

    /// Returns true if there is room for a write that only deletes, while a disk is out of space. Deletes are to find
    /// room then: as much again, in addition to the changes that an opening has left here.
    pub(crate) fn has_room_for_deletes(&self, bytes: u64) -> bool {
        let others = self.replayed_bytes.load(Ordering::Acquire).max(self.bytes_max);
        self.bytes() + bytes <= others.saturating_add(self.bytes_max)
    }

    /// Notes that the store opens while changes behind `applied` wait for space. Workers are to apply those up to
    /// `sequence`.
    pub(crate) fn replayed(&self, applied: u64, sequence: u64) {
        self.replayed_bytes.store(self.bytes(), Ordering::Release);
        self.partitions.iter().for_each(|partition| partition.drained.store(applied, Ordering::Release));
        self.want(sequence);
    }

    /// Takes room for a write whose record is in the log.
    pub(crate) fn reserve(&self, changes: &Changes) {
        self.bytes.fetch_add(changes.pending_bytes(), Ordering::AcqRel);
    }

    /// Puts a change into its table, and wakes the worker if there is enough to do, or if this is the first change.
    pub(crate) fn insert(&self, change: PendingChange) {
        let partition = self.partition_of(change.hash());
        let bytes = change.bytes();
        {
            let place = (change.hash().reverse_bits(), change.sequence);
            let before = lock(&partition.table).insert(place, change);
            assert!(before.is_none(), "a change is applied once");
        }
        let before = partition.bytes.fetch_add(bytes, Ordering::AcqRel);
        let enough = self.enough_bytes();
        if before == 0 || before < enough && before + bytes >= enough {
            partition.work.notify();
        }
    }

    /// Returns true if partition `number` has changes.
    pub(crate) fn has_some(&self, number: usize) -> bool {
        self.partitions[number].bytes.load(Ordering::Acquire) > 0
    }

    /// Returns the number of pending bytes with which a worker begins on its partition.
    fn enough_bytes(&self) -> u64 {
        self.bytes_max / (2 * self.partitions.len() as u64)
    }

    /// Returns the newest change of `key` up to `visible`.
    pub(crate) fn find(&self, hash: u64, key: &[u8], visible: u64) -> Option<PendingChange> {
        let partition = self.partition_of(hash);
        if partition.bytes.load(Ordering::Acquire) == 0 {
            return None;
        }
        let reversed = hash.reverse_bits();
        let table = lock(&partition.table);
        let mut changes = table.range((reversed, 0)..=(reversed, visible));
        changes.rfind(|(_, change)| change.change().key() == key).map(|(_, change)| change.clone())
    }

    /// Asks workers to apply all changes up to `sequence`.
    pub(crate) fn want(&self, sequence: u64) {
        self.wanted.fetch_max(sequence, Ordering::AcqRel);
        self.wake();
    }

    /// Returns the sequence number up to which all changes are to be applied.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Wakes all workers.
    pub(crate) fn wake(&self) {
        self.partitions.iter().for_each(|partition| partition.work.notify());
    }

    /// Returns true if partition `number` is to be worked on.
    pub(crate) fn is_due(&self, number: usize) -> bool {
        let partition = &self.partitions[number];
        let is_wanted = partition.drained.load(Ordering::Acquire) < self.wanted.load(Ordering::Acquire);
        is_wanted || partition.bytes.load(Ordering::Acquire) >= self.enough_bytes()
    }

    /// Notes that partition `number` has no change up to `sequence` any more.
    pub(crate) fn set_drained(&self, number: usize, sequence: u64) {
        self.partitions[number].drained.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Returns the sequence number up to which all changes have left.
    pub(crate) fn drained(&self) -> u64 {
        let drained = self.partitions.iter().map(|partition| partition.drained.load(Ordering::Acquire));
        drained.min().unwrap_or(0)
    }

    /// Returns the changes up to `limit` of the next buckets of a partition, from the reversed hash `from` on: at most
    /// `buckets_max` buckets. Also returns the place where the next call goes on.
    pub(crate) fn take(
        &self,
        number: usize,
        from: u64,
        limit: u64,
        buckets_max: usize,
        state: &State,
    ) -> (Vec<BucketChanges>, Option<u64>) {
        let table = lock(&self.partitions[number].table);
        let mut taken: Vec<BucketChanges> = Vec::new();
        for ((reversed, sequence), change) in table.range((from, 0)..) {
            if *sequence > limit {
                continue;
            }
            let bucket = state.bucket_of(reversed.reverse_bits());
            let is_full = taken.len() >= buckets_max;
            match taken.last_mut() {
                Some(last) if last.bucket == bucket => last.changes.push(change.clone()),
                _ if is_full => return (taken, Some(*reversed)),
                _ => taken.push(BucketChanges { bucket, changes: vec![change.clone()] }),
            }
        }
        (taken, None)
    }

    /// Lets go of changes that bucket and overflow have.
    pub(crate) fn remove(&self, number: usize, applied: &[BucketChanges]) {
        let partition = &self.partitions[number];
        let mut bytes = 0;
        let mut dropped = Vec::new();
        {
            let mut table = lock(&partition.table);
            for change in applied.iter().flat_map(|bucket| &bucket.changes) {
                let gone = table.remove(&(change.hash().reverse_bits(), change.sequence));
                dropped.push(gone.expect("a change stays until it is removed, once"));
                bytes += change.bytes();
            }
        }
        partition.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
