//! A walk over all items of a cache, for callers that want to see its contents.
//!
//! 1. Items in memory, one shard of the index at a time. Its hashes are listed first, then each is looked up: no lock
//!    is held for longer than an item takes.
//! 2. Items on flash, one segment at a time, the oldest first: the index has no keys of them, so the segments are read.
//!
//! Items of segments that were written meanwhile come last: the flusher writes items again, also those that the survey
//! has yet to come to.
//!
//! An item that no caller reads or changes meanwhile is shown, and mostly once. One that goes from memory to flash, or
//! is written again, can be shown twice. An item that is read or changed meanwhile may be left out: it may go to a
//! place that the survey has passed.

use crate::core::Core;
use crate::flash::FlashLog;
use crate::item::{Item, Meta};
use crate::memory::Memory;
use std::sync::Arc;

/// An item that a survey shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surveyed<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The other fields of the item.
    pub meta: Meta,
    /// Length of its value.
    pub value_bytes: usize,
}

impl<'a> Surveyed<'a> {
    pub(crate) fn of(item: &Item<'a>, value_bytes: usize) -> Surveyed<'a> {
        Surveyed { key: item.key, meta: item.meta, value_bytes }
    }
}

/// Segments on flash to be shown.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The next one, and one behind the last one.
    next: u64,
    last: u64,
    /// The beginning and the end of the log for this round: the number of a segment, and the offset.
    begin: (u64, u32),
    end: (u64, u32),
    /// The part behind the end is left to another round.
    is_first: bool,
}

impl Round {
    /// Returns the segments that a log has now, from a place on.
    fn of(log: &FlashLog, begin: Option<(u64, u32)>) -> Round {
        let end = log.end();
        let (oldest, last) = log.reach();
        let begin_or_all = begin.unwrap_or((0, 0));
        Round {
            next: oldest.max(begin_or_all.0),
            last,
            begin: begin_or_all,
            end: end.unwrap_or((last, 0)),
            is_first: begin.is_none(),
        }
    }

    fn covers(&self, sequence: u64, offset: u32) -> bool {
        (sequence, offset) >= self.begin && (sequence, offset) < self.end
    }
}

/// A walk over all items of a cache: see the module.
pub struct Survey {
    core: Arc<Core>,
    shard: u32,
    /// The part of the flash that is to be shown, when the items in memory have been shown.
    round: Option<Round>,
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("shard", &self.shard).field("round", &self.round).finish_non_exhaustive()
    }
}

impl Survey {
    pub(crate) fn new(core: Arc<Core>) -> Survey {
        Survey { core, shard: 0, round: None }
    }

    /// Shows the next items that have not expired at `now`, Unix seconds: those of a shard, or of a segment on flash.
    /// False at the end. Waits for the device. `each` is called with a lock held: it must be quick and must not call
    /// the cache.
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
        let mut round = *self.round.get_or_insert_with(|| Round::of(&flash.log, None));
        if round.next >= round.last {
            if !round.is_first {
                return false;
            }
            round = Round::of(&flash.log, Some(round.end));
        }
        // A segment that cannot be read, or has gone, has nothing to show.
        _ = flash.log.show(round.next, |found| {
            if !round.covers(found.sequence, found.place.offset) {
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
        round.next += 1;
        self.round = Some(round);
        true
    }
}

/// Shows the items in memory of a shard.
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
