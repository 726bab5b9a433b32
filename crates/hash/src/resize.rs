//! Splitting and merging buckets while the store runs: linear hashing, a group of buckets at a time.
//!
//! The gate is closed for a group. Readers go on, with the old state or with the new one.
//!
//! **Split** of low buckets, each into itself and a high one:
//!
//! 1. Read the low buckets and their overflow. Write the high ones with what moves there. No reader looks at these yet.
//! 2. Flush the device. The new state begins an epoch with the superblock, durably. Then readers see it.
//! 3. Write the low buckets without what has moved. Delete from the overflow what has gone back into a bucket.
//!
//! **Merge** of high buckets into low ones:
//!
//! 1. Begin an epoch. So no bucket has been changed in the epoch when a crash interrupts step 2.
//! 2. Add to the overflow what does not fit. Write the low buckets with what both have, and with the number of the next
//!    epoch. Readers ignore the entries that do not belong there yet.
//! 3. Flush, and begin the next epoch with the new state. Then readers see it.
//! 4. Delete from the overflow what has gone back. Discard the high buckets.
//!
//! **After a crash** ([`Core::tidy_group`]). A crash before the superblock leaves high buckets of a split that no
//! reader looks at, or low buckets of a merge with entries of other buckets. A crash behind it leaves low buckets of a
//! split with entries that have moved. Both are among the last [`GROUP_MAX`] low buckets. Opening writes them again.
//!
//! **Counts.** The totals of an epoch are those after the group. Buckets of the group say of themselves that they began
//! the epoch as they are. So a merge or a split keeps expired entries. The next write of their bucket drops them.
//! **Want of space** before the first bucket that readers look at is written: the group is given up, and tried again
//! later. From then on a group cannot be given up, so the keeper waits for space.
//! **Keeping up.** When writers are faster than splits, several groups follow each other before the gate opens. So the
//! workers wait, then the writers do, and the load of buckets stays near what it should be.
//! **Rejected.** Moving a bucket without closing the gate: a worker and the keeper would have to agree on each bucket.
//! A group takes as long as a few durable writes; writers do not notice while there is room for their writes in memory.

use crate::disk::io::BUCKETS_MAX;
use crate::disk::overflow::Stored;
use crate::format::address::{State, Step, hash_of};
use crate::format::bucket::{Bucket, Header, Tally, USABLE_BYTES};
use crate::format::entry::Entry;
use crate::format::rebuild::{Before, Contents, rebuild};
use crate::live::core::{Core, LogBound};
use crate::live::rewrite::{Place, Rewrites, decode_all, entries_of};
use crate::writing::shortage::Patience;
use crate::{Error, Result};
use situ_device::Buffer;
use situ_pipeline::SpaceLevel;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Low buckets of a group at most, which opening looks at after a crash.
pub(crate) const GROUP_MAX: u64 = 1024;
/// Low buckets of a group that is begun, at most, unless the options ask for more: three pages of memory for each.
const GROUP_WANTED: u64 = 256;
/// The time for which the gate is closed for groups that are due. A short time would let the workers fill buckets
/// faster than the keeper splits them. Between two closings each worker applies a batch, and the keeper waits for its
/// turn on a processor.
const CLOSED_FOR: Duration = Duration::from_millis(20);

/// A change of the count of buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resize {
    Split(Step),
    Merge(Step),
}

/// Returns the change that is due when buckets hold `filled_bytes` together: they are to be filled to `load_percent`,
/// and not to less than half of it.
pub(crate) fn resize_for(
    state: &State,
    filled_bytes: u64,
    load_percent: u32,
    group: std::ops::RangeInclusive<u64>,
    buckets_max: u64,
) -> Option<Resize> {
    let buckets = state.buckets();
    let holds = USABLE_BYTES as u64 * u64::from(load_percent);
    let most = (filled_bytes.saturating_mul(100)).div_ceil(holds);
    let least = (filled_bytes.saturating_mul(200)) / holds;
    if most > buckets {
        let count = (most - buckets).clamp(*group.start(), *group.end()).min(buckets_max.saturating_sub(buckets));
        return (count > 0).then(|| state.grow(count)).flatten().map(Resize::Split);
    }
    // The whole group is to be too many: otherwise the next write would split it again.
    let spare = buckets.saturating_sub(least.max(1));
    if spare >= *group.start() {
        return state.shrink(spare.min(*group.end())).map(Resize::Merge);
    }
    None
}

/// The contents of a bucket that was read.
struct Read<'a> {
    number: u64,
    bucket: Bucket<'a>,
    stored: &'a Stored,
}

impl Core {
    fn group(&self) -> std::ops::RangeInclusive<u64> {
        let by_images = match &self.images {
            None => GROUP_MAX,
            // Half of the journal: images of a group, and no arithmetic about the last page.
            Some(_) => self.options.image_bytes_max / (2 * 4200),
        };
        let most = GROUP_MAX.min(by_images).max(1);
        let least = self.options.resize_buckets.min(most);
        least..=most.min(GROUP_WANTED.max(least))
    }

    /// Splits or merges buckets if that is due: one group after the other while the gate is closed, until nothing is
    /// due or [`CLOSED_FOR`] is over. True if it did.
    pub(crate) fn resize_if_due(&self) -> Result<bool> {
        if self.next_resize().is_none() {
            return Ok(false);
        }
        self.with_gate_closed(|| {
            let until = self.env.clock.now() + CLOSED_FOR;
            let mut did = false;
            while let Some(resize) = self.next_resize() {
                if !self.is_applied_up_to_snapshots() {
                    break;
                }
                match &resize {
                    Resize::Split(step) => self.split(step)?,
                    Resize::Merge(step) => self.merge(step)?,
                }
                did = true;
                if self.env.clock.now() >= until {
                    break;
                }
            }
            Ok(did)
        })
    }

    /// Returns the next group that is to be split or merged.
    fn next_resize(&self) -> Option<Resize> {
        if self.keeper.resizing_is_off.load(Ordering::Acquire) {
            return None;
        }
        let totals = self.totals();
        let filled = totals.bytes + totals.overflow_bytes;
        let resize = resize_for(&self.state(), filled, self.options.load_percent, self.group(), self.io.buckets_max)?;
        let level = self.writes.shortage.space.level();
        let takes_puts = matches!(level, SpaceLevel::Plenty | SpaceLevel::Low);
        // More buckets take more physical space. When it is nearly used up, what is left is for the changes that wait.
        (takes_puts || matches!(resize, Resize::Merge(_))).then_some(resize)
    }

    /// Returns true if all changes up to the newest snapshot are in their buckets; otherwise the workers are asked to
    /// apply them.
    fn is_applied_up_to_snapshots(&self) -> bool {
        let Some(newest) = self.snapshots.list().last().copied() else { return true };
        let is_applied = self.writes.pending.drained() >= newest.sequence;
        if !is_applied {
            self.writes.pending.want(newest.sequence);
        }
        is_applied
    }

    /// Saves what a bucket holds for the newest snapshot, before the bucket is split or merged.
    fn save_whole(&self, number: u64, header: &Header, held: &Before<'_>, rewrites: &mut Rewrites) -> Result<()> {
        let Some(newest) = self.snapshots.list().last().copied() else { return Ok(()) };
        if header.sequence > newest.sequence || self.overflow.is_saved(number, newest.number)? {
            return Ok(());
        }
        let contents = rebuild(held.clone(), std::iter::empty(), 0);
        let entries = contents.all().map(|entry| (hash_of(entry.key, self.seed), entry));
        rewrites.saves.add(number, newest.number, entries);
        Ok(())
    }

    /// Returns the overflow of buckets that have a mark, as it is stored.
    fn overflow_of(&self, numbers: &[u64], blocks: &[Buffer], state: &State) -> Result<Vec<Stored>> {
        let of = |(number, block): (&u64, &Buffer)| {
            let bucket = self.codec.open(*number, block)?;
            self.marked_overflow(*number, state, bucket.header())
        };
        numbers.iter().zip(blocks).map(of).collect()
    }

    /// Splits the low buckets of `step`. The gate is closed.
    fn split(&self, step: &Step) -> Result<()> {
        assert_eq!(step.fewer, self.state(), "a split begins at the state in force");
        assert!(step.more.buckets() <= self.io.buckets_max, "buckets have room on the device");
        self.io.settle()?;
        let numbers: Vec<u64> = step.low.clone().collect();
        let blocks = self.io.read_many(&numbers)?;
        let stored = self.overflow_of(&numbers, &blocks, &step.fewer)?;
        let (mut lows, mut highs) = (Rewrites::default(), Rewrites::default());
        for (((low, high), block), stored) in step.pairs().zip(&blocks).zip(&stored) {
            let read = Read { number: low, bucket: self.codec.open(low, block)?, stored };
            self.split_one(&read, high, &step.more, &mut lows, &mut highs)?;
        }
        lows.save(self)?;
        self.io.write_many(highs.take_images())?;
        // Entries that have left the overflow stay away. The totals of the new epoch rest on it, and so does tidying of
        // these buckets after a crash.
        self.overflow.sync()?;
        lows.add_to_totals(self);
        highs.add_to_totals(self);
        self.begin_epoch(step.more, LogBound::Same)?;
        let room = self.reserve_images(lows.len())?;
        // Half a split is none.
        lows.write_buckets(self, room, Patience::UntilSpace)?;
        lows.remove_from_overflow(self, Patience::UntilSpace)?;
        highs.remove_from_overflow(self, Patience::UntilSpace)?;
        self.io.give_back(blocks);
        self.counters.splits.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn split_one(
        &self,
        low: &Read<'_>,
        high: u64,
        more: &State,
        lows: &mut Rewrites,
        highs: &mut Rewrites,
    ) -> Result<()> {
        let overflow = decode_all(self, low.stored)?;
        let header = low.bucket.header();
        self.require_age(low.number, header)?;
        let epoch = self.epoch() + 1;
        let next = |number| rebuild(entries_of(self, number, more, &low.bucket, &overflow), std::iter::empty(), 0);
        let place = |bucket, counted| Place { bucket, sequence: header.sequence, epoch, before: None, counted };
        let whole = self.state();
        self.save_whole(low.number, header, &entries_of(self, low.number, &whole, &low.bucket, &overflow), lows)?;
        let (stays, moves) = (next(low.number), next(high));
        for contents in [&stays, &moves] {
            assert!(contents.overflow_puts.is_empty(), "nothing overflows where two buckets take what one had");
        }
        highs.add(self, &place(high, Tally::default()), &moves, &Stored::new())?;
        if stays.is_changed {
            lows.add(self, &place(low.number, header.now), &stays, &Stored::new())?;
        }
        Ok(())
    }

    /// Merges the high buckets of `step` into the low ones. The gate is closed.
    fn merge(&self, step: &Step) -> Result<()> {
        assert_eq!(step.more, self.state(), "a merge begins at the state in force");
        self.begin_epoch(step.more, LogBound::Same)?;
        let numbers: Vec<u64> = step.low.clone().chain(step.high()).collect();
        let blocks = self.io.read_many(&numbers)?;
        let stored = self.overflow_of(&numbers, &blocks, &step.more)?;
        let read = |at: usize| {
            let bucket = self.codec.open(numbers[at], &blocks[at])?;
            Ok::<Read<'_>, Error>(Read { number: numbers[at], bucket, stored: &stored[at] })
        };
        let count = numbers.len() / 2;
        let mut rewrites = Rewrites::default();
        for at in 0..count {
            self.merge_one(&read(at)?, &read(count + at)?, &step.more, &mut rewrites)?;
        }
        rewrites.save(self)?;
        rewrites.add_to_overflow(self)?;
        let room = self.reserve_images(rewrites.len())?;
        // Half a merge is none.
        rewrites.write_buckets(self, room, Patience::UntilSpace)?;
        rewrites.add_to_totals(self);
        self.begin_epoch(step.fewer, LogBound::Same)?;
        rewrites.remove_from_overflow(self, Patience::UntilSpace)?;
        // Advice to the drive: the high buckets have no readers any more, and take room until they are discarded.
        _ = self.io.discard(step.high());
        self.io.give_back(blocks);
        self.counters.merges.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    fn merge_one(&self, low: &Read<'_>, high: &Read<'_>, more: &State, rewrites: &mut Rewrites) -> Result<()> {
        for part in [low, high] {
            self.require_age(part.number, part.bucket.header())?;
        }
        let (low_overflow, high_overflow) = (decode_all(self, low.stored)?, decode_all(self, high.stored)?);
        let mut before = entries_of(self, low.number, more, &low.bucket, &low_overflow);
        let other = entries_of(self, high.number, more, &high.bucket, &high_overflow);
        self.save_whole(low.number, low.bucket.header(), &before, rewrites)?;
        self.save_whole(high.number, high.bucket.header(), &other, rewrites)?;
        let (low_now, high_now) = (low.bucket.header().now, high.bucket.header().now);
        before.is_untidy |= high_now != Tally::default();
        before.inline.extend(other.inline);
        before.overflow.extend(other.overflow);
        let contents: Contents<'_> = rebuild(before, std::iter::empty(), 0);
        if !contents.is_changed {
            return Ok(());
        }
        let mut dead = Stored::new();
        for part in [low, high] {
            dead.extend(self.dead_overflow(part.number, more, part.bucket.header(), &contents)?);
        }
        let place = Place {
            bucket: low.number,
            sequence: low.bucket.header().sequence.max(high.bucket.header().sequence),
            epoch: self.epoch() + 1,
            before: None,
            counted: low_now,
        };
        rewrites.add(self, &place, &contents, &dead)?;
        rewrites.uncount(self, high.number, &high_now);
        Ok(())
    }

    /// Writes the low buckets again that a crash has left in the middle of a group. Workers do not run yet.
    pub(crate) fn tidy_group(&self) -> Result<u64> {
        let state = self.state();
        let Some(step) = state.shrink(GROUP_MAX) else { return Ok(0) };
        let numbers: Vec<u64> = step.low.clone().collect();
        let mut tidied = 0;
        for numbers in numbers.chunks(BUCKETS_MAX) {
            let blocks = self.io.read_many(numbers)?;
            let stored = self.overflow_of(numbers, &blocks, &state)?;
            let mut rewrites = Rewrites::default();
            for ((number, block), stored) in numbers.iter().zip(&blocks).zip(&stored) {
                let read = Read { number: *number, bucket: self.codec.open(*number, block)?, stored };
                self.tidy_one(&read, &state, &mut rewrites)?;
            }
            tidied += rewrites.len() as u64;
            if !rewrites.is_empty() {
                self.restart_images()?;
                let room = self.reserve_images(rewrites.len())?;
                rewrites.add_to_overflow(self)?;
                rewrites.write_buckets(self, room, Patience::None)?;
                rewrites.remove_from_overflow(self, Patience::None)?;
            }
        }
        Ok(tidied)
    }

    fn tidy_one(&self, read: &Read<'_>, state: &State, rewrites: &mut Rewrites) -> Result<()> {
        let overflow = decode_all(self, read.stored)?;
        let header = read.bucket.header();
        let before = entries_of(self, read.number, state, &read.bucket, &overflow);
        let strangers = usize::from(header.now.entries) - before.inline.len();
        let is_shadowed = |entry: &Entry<'_>| before.inline.iter().any(|other| other.key == entry.key);
        let alive = before.overflow.iter().filter(|entry| !is_shadowed(entry)).count();
        let has_moved = strangers > 0 || alive < header.now.overflow_entries as usize;
        let (epoch, merged) = (self.epoch(), header.epoch > self.epoch());
        if !merged && (header.epoch == epoch || !has_moved) {
            return Ok(());
        }
        let before = Before { is_untidy: true, ..before };
        let contents = rebuild(before, std::iter::empty(), 0);
        let dead = self.dead_overflow(read.number, state, header, &contents)?;
        let place = Place { bucket: read.number, sequence: header.sequence, epoch, before: None, counted: header.now };
        rewrites.add(self, &place, &contents, &dead).map(drop)
    }
}

#[cfg(test)]
mod tests;
