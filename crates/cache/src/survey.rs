//! A walk over all items of a cache, for those who want to see what it holds.
//!
//! 1. Items in memory, one shard of the index at a time. Its hashes are listed first, then each is looked up: no lock is held for longer
//!    than an item takes.
//! 2. Items on flash, one segment at a time, the oldest first: the index has no keys of them, so the segments are read.
//!
//! An item that is there all the time is shown, and mostly once: one that goes from memory to flash meanwhile is shown twice. An item that is read or changed meanwhile may be
//! left out: it may go to a place that the survey has passed.

use crate::core::Core;
use crate::item::{Item, Meta};
use crate::memory::Memory;
use std::sync::Arc;

/// An item that a survey shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surveyed<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// What belongs to it.
    pub meta: Meta,
    /// Length of its value.
    pub value_bytes: usize,
}

impl<'a> Surveyed<'a> {
    pub(crate) fn of(item: &Item<'a>, value_bytes: usize) -> Surveyed<'a> {
        Surveyed { key: item.key, meta: item.meta, value_bytes }
    }
}

/// See the module.
pub struct Survey {
    core: Arc<Core>,
    shard: u32,
    /// Segments on flash that were there when those in memory had been shown, from the first to before the second.
    segments: Option<(u64, u64)>,
    /// Where the last one of them ended then.
    end: Option<(u64, u32)>,
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("shard", &self.shard).field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl Survey {
    pub(crate) fn new(core: Arc<Core>) -> Survey {
        Survey { core, shard: 0, segments: None, end: None }
    }

    /// Shows the next items that have not expired at `now`, Unix seconds: those of a shard, or of a segment on flash. False at the end. Waits for the device.
    /// `each` is called with a lock held: it must be quick and must not call the cache.
    pub fn next(&mut self, now: u64, mut each: impl FnMut(Surveyed<'_>)) -> bool {
        let Core { memory, .. } = &*self.core;
        let mut each = |item: Surveyed<'_>| {
            if item.meta.expires == 0 || item.meta.expires > now {
                each(item);
            }
        };
        if self.shard < 1 << memory.index.shard_bits() {
            in_memory(memory, self.shard, &mut each);
            self.shard += 1;
            return true;
        }
        let Some(flash) = memory.flash.as_ref().filter(|flash| flash.works()) else { return false };
        let (next, last) = *self.segments.get_or_insert_with(|| {
            self.end = flash.log.end();
            flash.log.reach()
        });
        if next >= last {
            return false;
        }
        // A segment that cannot be read, or has gone, has nothing to show.
        _ = flash.log.show(next, |found| {
            if self.end.is_some_and(|(sequence, offset)| found.sequence == sequence && found.place.offset >= offset) {
                return;
            }
            let hash = memory.index.hash(found.item.key);
            let shard = memory.index.shard(hash);
            let is_it = |slot: &crate::slot::Slot| !slot.tier.is_memory() && slot.place == found.place;
            // Its copy in memory has been shown.
            let has_copy = || shard.matches(hash).any(|(_, slot)| slot.is_copied());
            if shard.matches(hash).any(|(_, slot)| is_it(&slot)) && !has_copy() {
                each(Surveyed::of(&found.item, found.value_bytes));
            }
        });
        self.segments = Some((next + 1, last));
        true
    }
}

/// The items in memory of a shard.
fn in_memory(memory: &Memory, shard: u32, each: &mut impl FnMut(Surveyed<'_>)) {
    let mut hashes = Vec::new();
    memory.index.for_each_in(shard, |slot| {
        if slot.tier.is_memory() {
            hashes.extend(memory.index.hash_in(shard, &slot));
        }
    });
    hashes.sort_unstable_by_key(|hash| hash.hash);
    hashes.dedup();
    for hash in hashes {
        let guard = memory.index.shard(hash);
        for (_, slot) in guard.matches(hash).filter(|(_, slot)| slot.tier.is_memory()) {
            let content = memory.segments.read(slot.place.segment);
            if let Some(item) = Item::decode(content.from(slot.place.offset), content.base) {
                each(Surveyed::of(&item, item.value.len()));
            }
        }
    }
}
