//! The tier on flash: the [log](super::FlashLog), the rules of what goes there, and what a restart may trust.
//!
//! **Failure.** A read that fails costs its item. A write that fails, or [`FAILURES_MAX`] reads in a row, take the tier
//! out of service: the cache goes on in memory.

use super::journal::{Journal, Past, Snapshot};
use super::{Content, FlashLog, Found, Going};
use crate::counters::{Counters, add, count};
use crate::index::{Index, KeyHash, SAME_HASH_MAX};
use crate::item::{Evicted, Item, OnEvicted};
use crate::options::{Admission, FlashRules};
use crate::slot::{FREQUENCY_MAX, LengthClass, Place, Slot, Tier};
use situ_base::Event;
use situ_device::{Device, DeviceLock, PAGE_BYTES};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of failed reads in a row that takes the tier out of service.
const FAILURES_MAX: u32 = 8;

/// The tier on flash: see the module.
pub(crate) struct FlashTier {
    pub(crate) log: FlashLog,
    journal: Option<Journal>,
    rules: FlashRules,
    memory_bytes_max: usize,
    has_failed: AtomicBool,
    /// Reads have failed so often that the tier goes out of service: the flusher sees to it.
    is_failing: AtomicBool,
    /// The device has another id than its files, which cannot be written any more.
    is_disowned: AtomicBool,
    /// Nothing is written again: the cache is being stopped.
    stops: AtomicBool,
    failures: AtomicU32,
    now: AtomicU64,
    /// Wakes the thread that writes to the device.
    pub(crate) flusher: Arc<dyn Event>,
    _lock: Box<dyn DeviceLock>,
}

/// The state of the device when the cache was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// Nothing that is trusted: the tier begins empty.
    Empty,
    /// The items that a clean stop left.
    Resumed,
    /// The items that the death of the process left: all that are whole and had not died.
    Recovered,
}

/// Returns the most that the index may take of the memory: three eighths.
fn index_bytes_max(memory_bytes: usize) -> usize {
    memory_bytes / 8 * 3
}

/// Notes that all items of segments have died.
fn note_deaths(segments: &[Going], journal: Option<&Journal>) {
    for going in segments {
        journal.iter().for_each(|journal| journal.segment_died(going.sequence));
    }
}

/// Removes the slots of segments that go.
fn retire(segments: &[Going], index: &Index) {
    let numbers: HashSet<u32> = segments.iter().map(|going| going.number).collect();
    index.remove_all(|slot| slot.tier == Tier::Flash && numbers.contains(&slot.place.segment));
}

fn busy(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(error.kind(), "it is in use: mounted, or another process has it open")
        }
        _ => error,
    }
}

impl FlashTier {
    /// Opens the tier on a device, with an index that holds what is on it.
    ///
    /// # Errors
    /// The device holds something else than a cache, is in use, too small, or fails; or its files cannot be written.
    pub(crate) fn open(
        device: Arc<dyn Device>,
        prefix: Option<&Path>,
        rules: FlashRules,
        flusher: Arc<dyn Event>,
        (fresh_id, fresh_seed): ([u8; 16], u64),
        memory_bytes: usize,
        now: impl FnOnce(&dyn Fn(&[u8]) -> Option<Vec<u8>>) -> u64,
    ) -> io::Result<(FlashTier, Index, Start)> {
        let device_lock = device.lock().map_err(busy)?;
        let past = match (FlashLog::content(&device)?, prefix) {
            (Content::Other, _) => {
                let why = "it holds something else than a cache; nothing was changed. `wipefs --all` or `blkdiscard` empties a device";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            (Content::Cache { id }, Some(prefix)) => {
                // A device that has become too small is refused before anything is changed.
                FlashLog::open(Arc::clone(&device))?;
                Journal::open(prefix, id)?
            }
            (Content::Cache { .. } | Content::Nothing, _) => None,
        };
        let now = now(&|key| past.as_ref()?.journal.record(key));
        let tier = |log: FlashLog, journal: Option<Journal>| FlashTier {
            log,
            journal,
            rules,
            memory_bytes_max: memory_bytes,
            has_failed: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            is_disowned: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            now: AtomicU64::new(now),
            flusher,
            _lock: device_lock,
        };
        let Some(Past { journal: past_journal, mut dead, index: past_index }) = past else {
            let log = FlashLog::create(device, fresh_id, fresh_seed)?;
            let journal = prefix.map(|prefix| Journal::create(prefix, fresh_id)).transpose()?;
            let index = Index::new(memory_bytes, fresh_seed);
            return Ok((tier(log, journal), index, Start::Empty));
        };
        let log = FlashLog::open(device)?;
        let index = Index::new(memory_bytes, log.seed());
        if past_index.is_some_and(|snapshot| resume(&log, &index, &snapshot, memory_bytes)) {
            return Ok((tier(log, Some(past_journal)), index, Start::Resumed));
        }
        let mut seen: Vec<Going> = Vec::new();
        let next = log.scan(dead.newest, |Found { sequence, place, item, bytes, .. }| {
            if !dead.has(sequence, place.offset) && !item.has_expired(now) {
                if seen.last().is_none_or(|last| last.sequence != sequence) {
                    while index.bytes() > index_bytes_max(memory_bytes) && !seen.is_empty() {
                        let oldest: Vec<Going> = seen.drain(..seen.len().div_ceil(8)).collect();
                        note_deaths(&oldest, Some(&past_journal));
                        retire(&oldest, &index);
                    }
                    seen.push(Going { sequence, number: place.segment });
                }
                let length = LengthClass::of(bytes);
                let hash = index.hash(item.key);
                let slot = Slot { hash: hash.hash, place, tier: Tier::Flash, frequency: 0, length };
                let mut shard = index.shard(hash);
                // A later copy of the same key counts.
                match shard.matches(hash).next() {
                    Some((position, old)) => {
                        if let Some(sequence) = log.sequence_of(old.place.segment) {
                            past_journal.item_died(sequence, old.place.offset);
                        }
                        shard.replace(position, slot);
                    }
                    None => shard.insert(slot),
                }
            }
        })?;
        // Each life has numbers of its own, also one that dies before it has written anything.
        past_journal.segment_died(next);
        Ok((tier(log, Some(past_journal)), index, Start::Recovered))
    }

    /// Returns the memory of its buffers and tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        if self.works() { self.log.memory_bytes() } else { 0 }
    }

    /// Returns the length of the longest transfer of a read where several are in flight.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        let piece = self.rules.piece_bytes.max(1).next_multiple_of(PAGE_BYTES);
        piece.min(self.log.transfer_bytes_max())
    }

    /// Returns true if the tier is in service.
    pub(crate) fn works(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed) && !self.is_failing.load(Ordering::Relaxed)
    }

    /// Returns the journal with the owner's records, if there is a place for them that outlives the process.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub(crate) fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
        if let Some(journal) = self.journal.as_ref().filter(|journal| !journal.works()) {
            // The file system may not have let go of the files when the trust ended. The device can end it as well.
            journal.abandon();
            if self.works() && !self.is_disowned.load(Ordering::Relaxed) && self.log.disown().is_ok() {
                self.is_disowned.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes an item that leaves memory, if the rules admit it. `None`: it goes.
    pub(crate) fn demote(&self, item: &Item<'_>, slot: &Slot, counters: &Counters) -> Option<Slot> {
        let is_admitted = match self.rules.admission {
            Admission::All => true,
            Admission::Read => slot.tier == Tier::Main || slot.frequency > 0,
        };
        if !is_admitted || item.stored_bytes(item.meta.id) < self.rules.item_bytes_min {
            count(&counters.not_admitted);
            return None;
        }
        self.take(item, slot, counters)
    }

    /// Takes an item. `None` if the device is behind, or out of service.
    pub(crate) fn take(&self, item: &Item<'_>, slot: &Slot, counters: &Counters) -> Option<Slot> {
        let Some((place, bytes)) = self.log.append(&item.again()) else {
            count(&counters.behind);
            return None;
        };
        count(&counters.demoted);
        add(&counters.demoted_bytes, bytes);
        Some(Slot { hash: slot.hash, place, tier: Tier::Flash, frequency: 0, length: LengthClass::of(bytes) })
    }

    /// Wakes the thread that writes to the device, if there is something to be written. The caller holds no lock.
    pub(crate) fn wake(&self) {
        if self.log.is_waiting() {
            self.flusher.notify();
        }
    }

    /// Notes that the item at a place has died: its slot is about to go. The caller holds its shard.
    pub(crate) fn dies(&self, place: Place) {
        if let Some(journal) = &self.journal
            && let Some(sequence) = self.log.sequence_of(place.segment)
        {
            journal.item_died(sequence, place.offset);
        }
    }

    /// Writes a sealed segment, if there is one. The items of the segment in its place go, or are written again. False:
    /// none was sealed, or the tier is out of service.
    pub(crate) fn flush(&self, index: &Index, counters: &Counters, on_evicted: Option<&OnEvicted>) -> bool {
        if !self.works() {
            return false;
        }
        let goes = |going: Going| {
            if let Some(journal) = &self.journal {
                journal.segment_died(going.sequence);
                journal.turn(|| self.log.reach());
            }
        };
        let leaves = |found: Found<'_>| {
            if self.leaves(index, &found, counters)
                && let Some(tell) = on_evicted
            {
                let Found { item, value_bytes, .. } = found;
                tell(Evicted { key: item.key, meta: item.meta, value_bytes, was_read: false });
            }
        };
        let left = |going: Going| {
            let before = index.len();
            index.remove_all(|slot| slot.tier == Tier::Flash && slot.place.segment == going.number);
            add(&counters.flash_evicted, before.saturating_sub(index.len()));
        };
        match self.log.flush(goes, leaves, left) {
            Ok(has_flushed) => has_flushed,
            Err(_) => {
                self.fail(index, counters);
                false
            }
        }
    }

    /// Gives up the oldest items on flash while the index takes more than its share of the memory.
    pub(crate) fn bound_index(&self, index: &Index, counters: &Counters) {
        while self.works() && index.bytes() > index_bytes_max(self.memory_bytes_max) {
            let oldest = self.log.oldest();
            if oldest.is_empty() {
                return;
            }
            let before = index.len();
            // The order counts: the death of an item is not noted when its segment is forgotten.
            note_deaths(&oldest, self.journal.as_ref());
            self.log.forget(&oldest);
            retire(&oldest, index);
            add(&counters.flash_evicted, before.saturating_sub(index.len()));
        }
    }

    /// Decides the fate of an item whose segment on flash goes. True if it is evicted.
    fn leaves(&self, index: &Index, found: &Found<'_>, counters: &Counters) -> bool {
        let hash = index.hash(found.item.key);
        let mut shard = index.shard(hash);
        let is_it = |slot: &Slot| slot.tier == Tier::Flash && slot.place == found.place;
        let Some((position, slot)) = shard.matches(hash).find(|(_, slot)| is_it(slot)) else { return false };
        if found.item.has_expired(self.now.load(Ordering::Relaxed)) {
            shard.remove(position);
            count(&counters.reclaimed);
            return false;
        }
        let copied = shard.matches(hash).find(|(_, slot)| slot.is_copied());
        if let Some((of_memory, slot)) = copied {
            shard.replace(of_memory, Slot { length: LengthClass::default(), ..slot });
            shard.remove(position);
            return false;
        }
        if self.rules.reinserts
            && !self.stops.load(Ordering::Relaxed)
            && !found.is_part
            && slot.frequency > 0
            && let Some((place, bytes)) = self.log.append(&found.item.again())
        {
            let length = LengthClass::of(bytes);
            shard.replace(position, Slot { place, frequency: 0, length, ..slot });
            count(&counters.reinserted);
            add(&counters.reinserted_bytes, bytes);
            return false;
        }
        shard.remove(position);
        count(&counters.flash_evicted);
        true
    }

    /// Notes the outcome of a read of the device. The tier may go out of service with it. That is work for the flusher,
    /// as files go, too, and the reading thread may be an event loop.
    pub(crate) fn note_read(&self, result: &io::Result<()>, counters: &Counters) {
        if result.is_ok() {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.store(0, Ordering::Relaxed);
            }
            return;
        }
        count(&counters.flash_errors);
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.is_failing.store(true, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Takes the tier out of service if too many reads have failed.
    pub(crate) fn fail_if_due(&self, index: &Index, counters: &Counters) {
        if self.is_failing.load(Ordering::Relaxed) {
            self.fail(index, counters);
        }
    }

    /// Takes the tier out of service: its items go.
    pub(crate) fn fail(&self, index: &Index, counters: &Counters) {
        if self.has_failed.swap(true, Ordering::Relaxed) {
            return;
        }
        count(&counters.flash_errors);
        self.log.close();
        // Deaths are not noted any more.
        self.journal.iter().for_each(Journal::abandon);
        index.remove_all(|slot| slot.tier == Tier::Flash);
    }

    /// Returns true if an item that is read on flash goes back to memory now.
    pub(crate) fn is_promoted(&self, frequency_before: u8) -> bool {
        let promote_at = self.rules.promote_at.min(FREQUENCY_MAX + 1);
        promote_at > 0 && frequency_before + 1 >= promote_at
    }

    /// Writes all that waits, and leaves what the next start trusts. The caller makes no other change from now on.
    ///
    /// # Errors
    /// The device or the file system fails; then the next start begins with an empty flash, or scans the log.
    pub(crate) fn stop(&self, index: &Index, counters: &Counters) -> io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        self.fail_if_due(index, counters);
        self.stops.store(true, Ordering::Relaxed);
        self.log.seal();
        while self.flush(index, counters, None) {}
        // An item that is appended now would be in the index and not on the device.
        self.log.close();
        if !self.works() {
            return Err(io::Error::other("the device of the cache has failed"));
        }
        self.log.sync()?;
        let (next_sequence, spots) = self.log.spots();
        let snapshot = Snapshot { next_sequence, shard_bits: index.shard_bits(), spots, ..Snapshot::default() };
        journal.stop(&snapshot, |each| {
            index.for_each(|shard, slot| {
                if slot.tier == Tier::Flash {
                    let [first, second, third] = slot.pack();
                    each([shard, first, second, third]);
                }
            });
        })
    }
}

/// Fills the index from a snapshot. False, and an empty index, if it does not fit.
pub(super) fn resume(log: &FlashLog, index: &Index, snapshot: &Snapshot, memory_bytes: usize) -> bool {
    // A slot takes up to 16 bytes in the index.
    if snapshot.slots.len() * 16 > index_bytes_max(memory_bytes) {
        return false;
    }
    if snapshot.shard_bits != index.shard_bits() || !log.resume(snapshot.next_sequence, &snapshot.spots) {
        return false;
    }
    for [shard, first, second, third] in &snapshot.slots {
        let slot = Slot::unpack([*first, *second, *third]).filter(|slot| slot.tier == Tier::Flash);
        let hash = slot.and_then(|slot| index.hash_in(*shard, &slot));
        if let (Some(slot), Some::<KeyHash>(hash)) = (slot, hash) {
            let mut shard = index.shard(hash);
            if shard.matches(hash).count() < SAME_HASH_MAX {
                shard.insert(slot);
            }
        }
    }
    true
}
