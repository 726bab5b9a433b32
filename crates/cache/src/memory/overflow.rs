//! Items that go from memory to flash, and those that come back.
//!
//! * *Demotion.* An item that leaves memory is appended to the log; its slot then names the place there.
//! * *Promotion.* An item that is read often enough on flash gets a slot in memory as well, marked as a copy. There are
//!   two slots then. If the item leaves memory unchanged, the slot in memory goes and nothing is written.
//! * *Death.* A change of the key kills both: the death on flash is noted before the change can be seen.
//!
//! **Invariant.** A hash has one slot on flash at most, and an item in memory is marked as a copy only while that slot
//! exists.

use super::Memory;
use crate::counters::{Counters, count};
use crate::flash::Record;
use crate::flash::tier::FlashTier;
use crate::index::{KeyHash, Position, SAME_HASH_MAX, ShardGuard};
use crate::item::Item;
use crate::slot::{FREQUENCY_MAX, LengthClass, Place, Slot, Tier};

/// The place of an item on flash, as the index has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnFlash {
    pub(crate) hash: KeyHash,
    pub(crate) place: Place,
    pub(crate) length: LengthClass,
}

/// The outcome of a read of flash.
pub(crate) enum Arrived {
    /// The key's item, or none.
    Answer(Option<Record>),
    /// The index has changed meanwhile: look again.
    Changed,
}

impl Memory {
    /// Returns the outcome of a read of flash for a key: its item, if it is still the one that the index names.
    pub(crate) fn arrived(
        &self,
        lane: usize,
        key: &[u8],
        at: OnFlash,
        record: Option<Record>,
        now: u64,
        counters: &Counters,
    ) -> Arrived {
        let Some(flash) = &self.flash else { return Arrived::Answer(None) };
        let mut shard = self.index.shard(at.hash);
        let is_it = |slot: &Slot| slot.tier == Tier::Flash && slot.place == at.place;
        let Some((position, slot)) = shard.matches(at.hash).find(|(_, slot)| is_it(slot)) else {
            return Arrived::Changed;
        };
        // Numbers of segments come again: while it was read, the place may have become that of another item.
        let sequence = record.as_ref().map(|record| record.sequence);
        if sequence.is_some_and(|sequence| flash.log.sequence_of(at.place.segment) != Some(sequence)) {
            return Arrived::Changed;
        }
        let Some(record) = record else {
            // An item that cannot be read does not come back.
            self.kill_flash(&mut shard, at.hash);
            count(&counters.flash_misses);
            return Arrived::Answer(None);
        };
        let item = record.item();
        if item.key != key {
            count(&counters.flash_misses);
            return Arrived::Answer(None);
        }
        if item.has_expired(now) {
            self.kill_flash(&mut shard, at.hash);
            count(&counters.reclaimed);
            return Arrived::Answer(None);
        }
        count(&counters.flash_hits);
        shard.replace(position, Slot { frequency: (slot.frequency + 1).min(FREQUENCY_MAX), ..slot });
        drop(shard);
        if flash.is_promoted(slot.frequency) {
            self.promote(lane, at, &record, now, counters);
        }
        Arrived::Answer(Some(record))
    }

    /// Takes an item from flash to memory as well, if the index still names it there and only there.
    fn promote(&self, lane: usize, at: OnFlash, record: &Record, now: u64, counters: &Counters) {
        self.store_and(lane, Tier::Main, &record.item().again(), now, counters, |place, bytes| {
            let mut shard = self.index.shard(at.hash);
            let is_it = |slot: &Slot| slot.tier == Tier::Flash && slot.place == at.place;
            let is_same = |flash: &FlashTier| flash.log.sequence_of(at.place.segment) == Some(record.sequence);
            let is_there =
                shard.matches(at.hash).any(|(_, slot)| is_it(&slot)) && self.flash.as_ref().is_some_and(is_same);
            let is_copied = shard.matches(at.hash).any(|(_, slot)| slot.is_copied());
            if !is_there || is_copied || shard.matches(at.hash).count() >= SAME_HASH_MAX {
                return;
            }
            self.segments.add_live(place.segment, bytes);
            let length = LengthClass::COPIED;
            shard.insert(Slot { hash: at.hash.hash, place, tier: Tier::Main, frequency: 0, length });
            count(&counters.promoted);
        });
    }

    /// Lets the item on flash of a hash die, and removes its slot. An item in memory is no copy of it any more.
    pub(super) fn kill_flash(&self, shard: &mut ShardGuard<'_>, hash: KeyHash) {
        let copied = shard.matches(hash).find(|(_, slot)| slot.is_copied());
        if let Some((position, slot)) = copied {
            shard.replace(position, Slot { length: LengthClass::default(), ..slot });
        }
        let on_flash = shard.matches(hash).find(|(_, slot)| !slot.tier.is_memory());
        if let Some((position, slot)) = on_flash {
            self.dies(&slot);
            shard.remove(position);
        }
    }

    /// Moves all items in memory to flash that have not expired. Calls `wait` while the device is behind.
    pub(crate) fn demote_all(&self, flash: &FlashTier, now: u64, counters: &Counters, wait: impl Fn()) {
        // The log keeps longest what comes last: items that were read.
        for tier in [Tier::Small, Tier::Main] {
            for shard in 0..1 << self.index.shard_bits() {
                let mut all = Vec::new();
                self.index.for_each_in(shard, |slot| {
                    if slot.tier == tier {
                        all.extend(self.index.hash_in(shard, &slot).map(|hash| (slot.place, hash)));
                    }
                });
                for (place, hash) in all {
                    while flash.works() && flash.log.is_waiting() {
                        wait();
                    }
                    self.demote_now(flash, hash, place, now, counters);
                }
            }
        }
    }

    fn demote_now(&self, flash: &FlashTier, hash: KeyHash, place: Place, now: u64, counters: &Counters) {
        let mut shard = self.index.shard(hash);
        let is_it = |slot: &Slot| slot.tier.is_memory() && slot.place == place;
        let Some((position, slot)) = shard.matches(hash).find(|(_, slot)| is_it(slot)) else { return };
        let has_copy = slot.is_copied() && shard.matches(hash).any(|(_, slot)| !slot.tier.is_memory());
        let content = self.segments.read(place.segment);
        let Some(item) = Item::decode(content.from(place.offset), content.base) else {
            unreachable!("an item in memory has lost its form")
        };
        let bytes = item.stored_bytes(content.base);
        let goes_to_flash = !has_copy && !item.has_expired(now);
        let demoted = if goes_to_flash { flash.take(&item, &slot, counters) } else { None };
        drop(content);
        self.segments.remove_live(place.segment, bytes);
        match demoted {
            Some(demoted) => self.demoted(&mut shard, hash, position, demoted, counters),
            None => shard.remove(position),
        }
    }

    /// Puts the slot of an item on flash in the place of its slot in memory.
    pub(super) fn demoted(
        &self,
        shard: &mut ShardGuard<'_>,
        hash: KeyHash,
        position: Position,
        demoted: Slot,
        counters: &Counters,
    ) {
        // There is one slot on flash for each hash: a key is not compared there.
        shard.replace(position, demoted);
        let other = shard.matches(hash).find(|(_, slot)| slot.tier == Tier::Flash && slot.place != demoted.place);
        if let Some((other, old)) = other {
            self.dies(&old);
            let copied = shard.matches(hash).find(|(_, slot)| slot.is_copied());
            if let Some((position, slot)) = copied {
                shard.replace(position, Slot { length: LengthClass::default(), ..slot });
            }
            shard.remove(other);
            count(&counters.flash_evicted);
        }
    }
}
