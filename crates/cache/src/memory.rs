//! The memory tier: two queues of segments, and what leaves them.
//!
//! **Coming in.** A new item goes to the small queue, or to the main queue if its [ghost](crate::ghost) is there. Each
//! *lane* has a writer with open segments, one for each queue and class of times to live. A full segment is sealed and
//! joins its queue.
//!
//! **Going out** (S3-FIFO, with segments in the place of items):
//!
//! 1. When memory asks for room, the oldest segment of a queue becomes the *victim*: of the small queue if that has
//!    more than its share.
//! 2. Each item of the victim that the index still knows is looked at. One of the small queue that was read often
//!    enough moves to the main queue; any other one goes, and leaves a ghost. One of the main queue that was read moves
//!    to the end of its queue, with half of its reads; any other one goes. (S3-FIFO takes one read away. Where
//!    popularity changes, half is better by 0.5 points, and elsewhere equal: what was popular once goes sooner.)
//! 3. The empty victim gives its memory back.
//!
//! A put pays for the room that it takes: it looks at about twice as many bytes of the victim as it has stored. So no
//! put waits for a whole segment, unless reads keep so much alive that nothing goes. After [`PATIENCE`] segments in a
//! row without room, items go whatever was read.
//!
//! **Times to live.** Segments of one class expire at about the same time. A segment whose last item has expired goes
//! at once, and nothing of it is copied.
//!
//! **An overwrite** of the same length goes over the old item in place: it takes no room, and counts as a read.
//!
//! **Flash.** Items that go are offered to the [tier on flash](crate::flash::tier). An item that comes back from there
//! keeps its slot on flash. As long as it is not changed, it leaves memory without being written again, and the death
//! of the process does not lose it.
//!
//! **Rejected**: copying the survivors of several segments into one, as Segcache does. S3-FIFO's queues do the same
//! with fewer rules.
//!
//! **Locks**, in this order: a lane's writer, the reclaimer, a shard of the index, a segment; then the log's and the
//! journal's, and those of the listener that is [told of evictions](crate::OnEvicted).

mod overflow;

use crate::counters::{Counters, count};
use crate::flash::tier::FlashTier;
use crate::ghost::Ghosts;
use crate::index::{Index, KeyHash, Position, SAME_HASH_MAX, ShardGuard};
use crate::item::{Evicted, Hit, Item, NewItem, OnEvicted};
use crate::options::Options;
use crate::segment::Segments;
use crate::slot::{FREQUENCY_MAX, LengthClass, Place, Slot, Tier};
use situ_base::lock;
use situ_device::PAGE_BYTES;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub(crate) use overflow::{Arrived, OnFlash};

/// Segments that may be looked at in vain before items go whatever was read.
const PATIENCE: usize = 64;
/// The number of other segments that a put looks at when it needs a segment, unless there is room before.
const WORK_SEGMENTS: usize = 16;
/// Items of the victim that are found at a time.
const LOOK_ITEMS: usize = 32;
/// Bounds of the classes of times to live, in seconds. An item that lives longer is in the class of items that do not
/// expire.
const CLASS_SECONDS: [u64; 7] = [15, 60, 300, 1800, 4 * 3600, 24 * 3600, 7 * 24 * 3600];
const CLASSES: usize = CLASS_SECONDS.len() + 1;
/// With fewer segments than this for each open one, there is one class for all.
const SEGMENTS_FOR_CLASSES: usize = 16;

/// The memory of a cache: see the module.
pub(crate) struct Memory {
    pub(crate) segments: Segments,
    pub(crate) index: Index,
    pub(crate) flash: Option<FlashTier>,
    ghosts: Ghosts,
    writers: Box<[Mutex<Writer>]>,
    reclaimer: Mutex<Reclaimer>,
    limit_bytes: usize,
    /// Memory that the owner takes in addition to the cache, out of the same limit.
    beside_bytes: Arc<AtomicUsize>,
    /// The listener for items that go.
    pub(crate) on_evicted: OnceLock<OnEvicted>,
    has_classes: bool,
    small_percent: usize,
    move_at: u8,
}

/// The index's facts of an item that is to be replaced.
struct Old {
    tier: Tier,
    frequency: u8,
}

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The item is in memory; this is the caller's result for it.
    Hit(T),
    /// There is no item.
    Miss,
    /// The item is on flash, unless another key has the same hash.
    OnFlash,
}

impl<T> Lookup<T> {
    /// Returns the caller's result for an item in memory.
    pub fn hit(self) -> Option<T> {
        match self {
            Lookup::Hit(made) => Some(made),
            Lookup::Miss | Lookup::OnFlash => None,
        }
    }
}

/// Memory that a cache's owner takes in addition to the cache, out of the same limit: for connections, say. It does not
/// keep the cache alive.
#[derive(Debug, Clone)]
pub struct OwnerMemory(Arc<AtomicUsize>);

impl OwnerMemory {
    /// Sets the bytes that the owner takes from now on. The cache gives memory back with the next put,
    /// [`tidy`](crate::Cache::tidy) or [`shrink`](crate::Cache::shrink), or when it has answered a read of flash.
    pub fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// Open segments by class of times to live.
type Open = [Option<u32>; CLASSES];

#[derive(Default)]
struct Writer {
    small: Open,
    main: Open,
}

impl Writer {
    fn open(&mut self, tier: Tier) -> &mut Open {
        if tier == Tier::Small { &mut self.small } else { &mut self.main }
    }
}

#[derive(Default)]
struct Reclaimer {
    small: Queue,
    main: Queue,
    victim: Option<Victim>,
    /// Segments whose items have all expired. They go before others.
    expired: VecDeque<Victim>,
    /// The last time at which expired segments were looked for, Unix seconds.
    swept: u64,
    /// The open segment that survivors go to.
    survivors: Open,
    /// Segments looked at since there was room.
    in_vain: usize,
}

/// Sealed segments of one tier, the oldest first.
#[derive(Default)]
struct Queue {
    segments: VecDeque<Sealed>,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Sealed {
    number: u32,
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Victim {
    number: u32,
    bytes: usize,
    tier: Tier,
    offset: u32,
}

/// The facts of an item of the victim, before its shard is locked.
struct Found {
    hash: KeyHash,
    place: Place,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(options: &Options, index: Index, flash: Option<FlashTier>) -> Memory {
        let Options { memory_bytes, segment_bytes, lanes, small_percent, move_at, .. } = *options;
        let ghosts = Ghosts::new(memory_bytes / options.item_bytes_about);
        let longest_shared = segment_bytes / 8;
        let segments = Segments::new(memory_bytes / longest_shared + 64, segment_bytes);
        let count = memory_bytes / segment_bytes;
        Memory {
            segments,
            index,
            flash,
            ghosts,
            writers: (0..lanes.max(1)).map(|_| Mutex::default()).collect(),
            reclaimer: Mutex::default(),
            limit_bytes: memory_bytes,
            beside_bytes: Arc::default(),
            on_evicted: OnceLock::new(),
            has_classes: options.ttl_classes && count >= (lanes + 1) * CLASSES * SEGMENTS_FOR_CLASSES,
            small_percent,
            move_at,
        }
    }

    /// Returns the memory that the cache takes now, all included.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.bytes() + self.fixed_bytes()
    }

    fn fixed_bytes(&self) -> usize {
        let flash = self.flash.as_ref().map_or(0, FlashTier::memory_bytes);
        self.index.bytes() + self.ghosts.bytes() + self.segments.table_bytes() + flash
    }

    /// Returns the account of memory that the owner takes in addition to the cache, out of the same limit.
    pub(crate) fn beside(&self) -> OwnerMemory {
        OwnerMemory(Arc::clone(&self.beside_bytes))
    }

    /// Returns the number of bytes that segments may take.
    fn room(&self) -> usize {
        self.limit_bytes.saturating_sub(self.fixed_bytes() + self.beside_bytes.load(Ordering::Relaxed))
    }

    /// Returns the length of the longest item that is taken.
    pub(crate) fn longest(&self) -> usize {
        self.room() / 4
    }

    fn is_long(&self, bytes: usize) -> bool {
        bytes > self.segments.segment_bytes() / 8
    }

    /// Returns true if the item is longer than the longest that is taken.
    pub(crate) fn is_too_long(&self, item: &NewItem<'_>) -> bool {
        self.is_long(item.stored_bytes(0)) && item.stored_bytes(item.meta.id) > self.longest()
    }

    fn class_of(&self, expires: u64, now: u64) -> usize {
        if expires == 0 || !self.has_classes {
            return CLASSES - 1;
        }
        let left = expires.saturating_sub(now);
        CLASS_SECONDS.iter().position(|bound| left <= *bound).unwrap_or(CLASSES - 1)
    }

    /// Stores an item in the place of the one that its key has. False if there is no room for an item of its length.
    pub(crate) fn put(&self, lane: usize, item: &NewItem<'_>, now: u64, counters: &Counters) -> bool {
        let hash = self.index.hash(item.key);
        let (old, is_done) = self.put_over(hash, item, now);
        if is_done {
            return true;
        }
        let (tier, frequency) = match old {
            Some(Old { tier, frequency }) => (tier, frequency),
            None if self.ghosts.take(hash) => {
                count(&counters.ghost_hits);
                (Tier::Main, 0)
            }
            None => (Tier::Small, 0),
        };
        self.store_and(lane, tier, item, now, counters, |place, bytes| {
            let slot = Slot { hash: hash.hash, place, tier, frequency, length: LengthClass::default() };
            self.link(hash, item, slot, bytes);
        })
    }

    /// Stores an item, lets the caller make the index name it, and pays. False if there is no room for an item of its
    /// length.
    fn store_and(
        &self,
        lane: usize,
        tier: Tier,
        item: &NewItem<'_>,
        now: u64,
        counters: &Counters,
        link: impl FnOnce(Place, usize),
    ) -> bool {
        let mut writer = lock(&self.writers[lane % self.writers.len()]);
        let is_long = self.is_long(item.stored_bytes(0));
        let stored = match is_long {
            true => self.hold(item, now, counters),
            false => self.store(&mut writer, tier, item, now, counters),
        };
        let Some((place, bytes)) = stored else { return false };
        link(place, bytes);
        if is_long {
            // Not before: the reclaimer gives back what the index does not know.
            lock(&self.reclaimer).seal(tier, place.segment, self.segments.capacity(place.segment));
        }
        drop(writer);
        self.pay(bytes * 2, now, counters);
        self.flash.iter().for_each(FlashTier::wake);
        true
    }

    /// Shows the item of `key` to `read`, if it is in memory.
    pub(crate) fn get<T>(&self, key: &[u8], now: u64, read: impl FnOnce(Hit<'_>) -> T) -> Result<Option<T>, OnFlash> {
        let hash = self.index.hash(key);
        let mut shard = self.index.shard(hash);
        let mut on_flash = None;
        for (position, slot) in shard.matches(hash) {
            if !slot.tier.is_memory() {
                on_flash = Some(OnFlash { hash, place: slot.place, length: slot.length });
                continue;
            }
            let content = self.segments.read(slot.place.segment);
            let Some(item) = Item::decode(content.from(slot.place.offset), content.base) else { continue };
            if item.key != key {
                continue;
            }
            if item.has_expired(now) {
                return Ok(None);
            }
            let answer = read(Hit { item, whole: content.whole() });
            drop(content);
            if slot.frequency < FREQUENCY_MAX {
                shard.replace(position, Slot { frequency: slot.frequency + 1, ..slot });
            }
            return Ok(Some(answer));
        }
        on_flash.map_or(Ok(None), Err)
    }

    /// Removes the item of `key`. An item on flash is known by its hash alone.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let hash = self.index.hash(key);
        let mut shard = self.index.shard(hash);
        let Some((position, slot)) = self.find(&shard, hash, key) else { return false };
        if slot.tier.is_memory() {
            shard.remove(position);
            self.dies(&slot);
        }
        if !slot.tier.is_memory() || slot.is_copied() {
            self.kill_flash(&mut shard, hash);
        }
        true
    }

    /// Returns the slot of a key: of its item in memory, or the one on flash that has its hash.
    fn find(&self, shard: &ShardGuard<'_>, hash: KeyHash, key: &[u8]) -> Option<(Position, Slot)> {
        let mut on_flash = None;
        for (position, slot) in shard.matches(hash) {
            match slot.tier.is_memory() {
                true if self.is_key(slot.place, key) => return Some((position, slot)),
                true => {}
                false => on_flash = Some((position, slot)),
            }
        }
        on_flash
    }

    /// Lets the item of a slot die. The caller holds its shard.
    fn dies(&self, slot: &Slot) {
        if slot.tier.is_memory() {
            self.segments.remove_live(slot.place.segment, self.stored_at(slot.place));
        } else if let Some(flash) = &self.flash {
            flash.dies(slot.place);
        }
    }

    /// Removes expired segments, and gives back memory beyond the limit.
    pub(crate) fn tidy(&self, now: u64, counters: &Counters) {
        if let Some(flash) = &self.flash {
            flash.set_now(now);
            flash.bound_index(&self.index, counters);
        }
        while !self.reclaim_expired(now, counters) {}
        // There is a thread for this: it pays for all.
        self.make_room(usize::MAX / 4, now, counters);
        self.flash.iter().for_each(FlashTier::wake);
    }

    /// Frees a part of what expired segments hold. True if nothing is left.
    fn reclaim_expired(&self, now: u64, counters: &Counters) -> bool {
        let mut reclaimer = lock(&self.reclaimer);
        reclaimer.sweep_once(now, |number| self.segments.has_expired(number, now));
        if reclaimer.expired.is_empty() {
            return true;
        }
        self.reclaim(&mut reclaimer, self.segments.segment_bytes(), now, counters);
        false
    }

    /// Puts an item over the one of its key, if that has the same length and class. Otherwise the old one, if there is
    /// one.
    fn put_over(&self, hash: KeyHash, item: &NewItem<'_>, now: u64) -> (Option<Old>, bool) {
        let mut shard = self.index.shard(hash);
        let mut on_flash = None;
        for (position, slot) in shard.matches(hash) {
            if !slot.tier.is_memory() {
                let tier = if slot.frequency > 0 { Tier::Main } else { Tier::Small };
                on_flash = Some(Old { tier, frequency: 0 });
                continue;
            }
            let content = self.segments.read(slot.place.segment);
            let Some(old) = Item::decode(content.from(slot.place.offset), content.base) else { continue };
            if old.key != item.key {
                continue;
            }
            let fits = content.whole().is_none()
                && old.stored_bytes(content.base) == item.stored_bytes(content.base)
                && self.class_of(old.meta.expires, now) == self.class_of(item.meta.expires, now);
            drop(content);
            // A writer that writes a key again asks for it.
            let frequency = (slot.frequency + 1).min(FREQUENCY_MAX);
            if fits {
                self.segments.put_over(slot.place.segment, slot.place.offset, item);
                shard.replace(position, Slot { frequency, length: LengthClass::default(), ..slot });
                if slot.is_copied() {
                    self.kill_flash(&mut shard, hash);
                }
            }
            return (Some(Old { tier: slot.tier, frequency }), fits);
        }
        (on_flash, false)
    }

    /// Gives an item a segment of its own.
    fn hold(&self, item: &NewItem<'_>, now: u64, counters: &Counters) -> Option<(Place, usize)> {
        let bytes = item.stored_bytes(item.meta.id);
        if bytes > self.longest() {
            return None;
        }
        self.claim(bytes.next_multiple_of(PAGE_BYTES), now, counters);
        Some((Place { segment: self.segments.hold(item)?, offset: 0 }, bytes))
    }

    /// Writes an item to an open segment.
    fn store(
        &self,
        writer: &mut Writer,
        tier: Tier,
        item: &NewItem<'_>,
        now: u64,
        counters: &Counters,
    ) -> Option<(Place, usize)> {
        let open = &mut writer.open(tier)[self.class_of(item.meta.expires, now)];
        if let Some(place) = self.append(*open, item) {
            return Some(place);
        }
        self.claim(self.segments.segment_bytes(), now, counters);
        self.append_to_next(open, item, |full, bytes| lock(&self.reclaimer).seal(tier, full, bytes))
    }

    fn append(&self, segment: Option<u32>, item: &NewItem<'_>) -> Option<(Place, usize)> {
        let segment = segment?;
        let (offset, bytes) = self.segments.append(segment, item)?;
        Some((Place { segment, offset }, bytes))
    }

    /// Begins another segment, whose memory was claimed, and seals the one that is full.
    fn append_to_next(
        &self,
        open: &mut Option<u32>,
        item: &NewItem<'_>,
        seal: impl FnOnce(u32, usize),
    ) -> Option<(Place, usize)> {
        let next = self.segments.share(item.meta.id)?;
        if let Some(full) = open.replace(next) {
            seal(full, self.segments.capacity(full));
        }
        self.append(Some(next), item)
    }

    /// Makes the index name the place of an item that takes `bytes` bytes there. The earlier item of the key is dead.
    fn link(&self, hash: KeyHash, item: &NewItem<'_>, slot: Slot, bytes: usize) {
        let mut shard = self.index.shard(hash);
        self.segments.add_live(slot.place.segment, bytes);
        // A hash has two buckets: many keys of one hash would find no place there, however large the shard is. One of
        // them goes.
        let crowded = || shard.matches(hash).nth(SAME_HASH_MAX - 1);
        match self.find(&shard, hash, item.key).or_else(crowded) {
            Some((position, old)) if old.tier.is_memory() => {
                self.dies(&old);
                shard.replace(position, slot);
                if old.is_copied() {
                    self.kill_flash(&mut shard, hash);
                }
            }
            Some(_) => {
                self.kill_flash(&mut shard, hash);
                shard.insert(slot);
            }
            None => shard.insert(slot),
        }
    }

    fn is_key(&self, place: Place, key: &[u8]) -> bool {
        let content = self.segments.read(place.segment);
        Item::decode(content.from(place.offset), content.base).is_some_and(|item| item.key == key)
    }

    fn stored_at(&self, place: Place) -> usize {
        let content = self.segments.read(place.segment);
        let item = Item::decode(content.from(place.offset), content.base);
        item.map_or(0, |item| item.stored_bytes(content.base))
    }

    /// Does the work that a put owes, unless another thread is at it.
    fn pay(&self, bytes: usize, now: u64, counters: &Counters) {
        if self.segments.bytes() + self.segments.segment_bytes() * 2 <= self.room() {
            return;
        }
        if let Ok(mut reclaimer) = self.reclaimer.try_lock() {
            self.reclaim(&mut reclaimer, bytes, now, counters);
        }
    }

    /// Gives memory back that is beyond the limit.
    pub(crate) fn shrink(&self, now: u64, counters: &Counters) {
        if self.segments.bytes() > self.room() {
            self.make_room(self.segments.segment_bytes(), now, counters);
            self.flash.iter().for_each(FlashTier::wake);
        }
    }

    /// Takes memory for a segment, and makes room for it.
    fn claim(&self, bytes: usize, now: u64, counters: &Counters) {
        self.segments.claim(bytes);
        self.make_room(bytes, now, counters);
    }

    /// Gives back what is beyond the limit. When the limit falls by gigabytes, no put pays for all of it. The work ends
    /// when `least` bytes have been given back, and twice as many and [`WORK_SEGMENTS`] have been looked at.
    fn make_room(&self, least: usize, now: u64, counters: &Counters) {
        let segment = self.segments.segment_bytes();
        let (before, mut looked) = (self.segments.bytes(), 0usize);
        loop {
            let bytes = self.segments.bytes();
            if bytes <= self.room() {
                break;
            }
            let is_paid =
                before.saturating_sub(bytes) >= least && looked >= least.saturating_mul(2) + WORK_SEGMENTS * segment;
            if is_paid {
                return;
            }
            let mut reclaimer = lock(&self.reclaimer);
            let more = self.reclaim(&mut reclaimer, segment, now, counters);
            if more == 0 {
                // All that is left is open.
                return;
            }
            looked += more;
        }
        lock(&self.reclaimer).in_vain = 0;
    }

    /// Looks at about `bytes` bytes of victims. Returns the number of bytes that it has looked at.
    fn reclaim(&self, reclaimer: &mut Reclaimer, bytes: usize, now: u64, counters: &Counters) -> usize {
        reclaimer.sweep_once(now, |number| self.segments.has_expired(number, now));
        let mut looked = 0;
        while looked < bytes {
            let Some(victim) = reclaimer.next_victim(self.small_percent) else { break };
            let (found, next) = self.look(victim.number, victim.offset);
            let kept = found.iter().filter(|found| self.judge(reclaimer, victim.tier, found, now, counters)).count();
            if let Some(offset) = next {
                looked += (offset - victim.offset) as usize;
                reclaimer.victim = Some(Victim { offset, ..victim });
                continue;
            }
            looked += victim.bytes.saturating_sub(victim.offset as usize);
            if kept > 0 && self.segments.read(victim.number).whole().is_some() {
                reclaimer.seal(Tier::Main, victim.number, victim.bytes);
            } else {
                self.segments.release(victim.number);
            }
        }
        looked
    }

    /// Returns the next items of a victim, and where the ones behind them begin.
    fn look(&self, number: u32, mut offset: u32) -> (Vec<Found>, Option<u32>) {
        let mut found = Vec::with_capacity(LOOK_ITEMS);
        let content = self.segments.read(number);
        while found.len() < LOOK_ITEMS {
            let Some(item) = Item::decode(content.from(offset), content.base) else { return (found, None) };
            let bytes = item.stored_bytes(content.base);
            let place = Place { segment: number, offset };
            found.push(Found { hash: self.index.hash(item.key), place, bytes });
            offset += bytes as u32;
        }
        (found, Some(offset))
    }

    /// Decides the fate of an item of the victim, if the index knows it. True if it is kept.
    fn judge(&self, reclaimer: &mut Reclaimer, tier: Tier, found: &Found, now: u64, counters: &Counters) -> bool {
        let mut shard = self.index.shard(found.hash);
        let is_it = |slot: &Slot| slot.tier.is_memory() && slot.place == found.place;
        let Some((position, slot)) = shard.matches(found.hash).find(|(_, slot)| is_it(slot)) else {
            return false;
        };
        let content = self.segments.read(found.place.segment);
        let Some(item) = Item::decode(content.from(found.place.offset), content.base) else {
            unreachable!("an item of a victim has lost its form")
        };
        // It may have been put over since it was found, by one of the same length.
        let has_expired = item.has_expired(now);
        let was_read = slot.frequency >= if tier == Tier::Small { self.move_at } else { 1 };
        let is_kept = was_read && !has_expired && reclaimer.in_vain < PATIENCE;
        let place = match is_kept {
            true if content.whole().is_some() => Some((found.place, found.bytes)),
            true => self.keep(reclaimer, &item, now),
            false => None,
        };
        let has_copy = slot.is_copied() && shard.matches(found.hash).any(|(_, slot)| !slot.tier.is_memory());
        let demoted = match (&self.flash, place) {
            (Some(flash), None) if !has_expired && !has_copy => flash.demote(&item, &slot, counters),
            _ => None,
        };
        let goes = place.is_none() && demoted.is_none() && !has_expired && !has_copy;
        if let Some(tell) = self.on_evicted.get().filter(|_| goes) {
            let was_read = slot.frequency > 0 || tier == Tier::Main;
            tell(Evicted { key: item.key, meta: item.meta, value_bytes: item.value.len(), was_read });
        }
        drop(content);
        if let Some((place, bytes)) = place {
            if place != found.place {
                self.segments.add_live(place.segment, bytes);
                self.segments.remove_live(found.place.segment, found.bytes);
            }
            let frequency = if tier == Tier::Small { 0 } else { slot.frequency / 2 };
            shard.replace(position, Slot { place, tier: Tier::Main, frequency, ..slot });
            count(&counters.moved);
            return true;
        }
        self.segments.remove_live(found.place.segment, found.bytes);
        if has_copy && !has_expired {
            shard.remove(position);
            return false;
        }
        if let Some(demoted) = demoted {
            self.demoted(&mut shard, found.hash, position, demoted, counters);
            return false;
        }
        shard.remove(position);
        if has_expired {
            if has_copy {
                self.kill_flash(&mut shard, found.hash);
            }
            count(&counters.reclaimed);
        } else {
            count(&counters.evicted);
            if tier == Tier::Small {
                self.ghosts.add(found.hash);
            }
        }
        false
    }

    /// Copies an item of the victim to the end of the main queue. The copy may take a segment more than there is room
    /// for; the victim gives it back.
    fn keep(&self, reclaimer: &mut Reclaimer, item: &Item<'_>, now: u64) -> Option<(Place, usize)> {
        let again = item.again();
        let class = self.class_of(item.meta.expires, now);
        if let Some(place) = self.append(reclaimer.survivors[class], &again) {
            return Some(place);
        }
        let mut open = reclaimer.survivors[class];
        self.segments.claim(self.segments.segment_bytes());
        let place = self.append_to_next(&mut open, &again, |full, bytes| reclaimer.seal(Tier::Main, full, bytes));
        reclaimer.survivors[class] = open;
        place
    }
}

impl Reclaimer {
    fn seal(&mut self, tier: Tier, number: u32, bytes: usize) {
        let queue = if tier == Tier::Small { &mut self.small } else { &mut self.main };
        queue.segments.push_back(Sealed { number, bytes });
        queue.bytes += bytes;
    }

    /// Takes segments out of their queues whose items have all expired; once for each second.
    fn sweep_once(&mut self, now: u64, has_expired: impl Fn(u32) -> bool) {
        if self.swept >= now {
            return;
        }
        self.swept = now;
        for (queue, tier) in [(&mut self.small, Tier::Small), (&mut self.main, Tier::Main)] {
            queue.segments.retain(|Sealed { number, bytes }| {
                let goes = has_expired(*number);
                if goes {
                    queue.bytes -= bytes;
                    self.expired.push_back(Victim { number: *number, bytes: *bytes, tier, offset: 0 });
                }
                !goes
            });
        }
    }

    /// Returns the segment that is at hand, or the next one.
    fn next_victim(&mut self, small_percent: usize) -> Option<Victim> {
        if let Some(victim) = self.victim.take().or_else(|| self.expired.pop_front()) {
            return Some(victim);
        }
        self.in_vain += 1;
        let takes_small = self.small.bytes * 100 > (self.small.bytes + self.main.bytes) * small_percent;
        let (first, second) = match takes_small {
            true => ((&mut self.small, Tier::Small), (&mut self.main, Tier::Main)),
            false => ((&mut self.main, Tier::Main), (&mut self.small, Tier::Small)),
        };
        [first, second].into_iter().find_map(|(queue, tier)| {
            let Sealed { number, bytes } = queue.segments.pop_front()?;
            queue.bytes -= bytes;
            Some(Victim { number, bytes, tier, offset: 0 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Meta;

    /// A shard once grew without end when it had more slots of one hash than two buckets have.
    #[test]
    fn keys_of_one_hash_push_each_other_out() {
        let memory = Memory::new(&Options::of_memory(8 << 20), Index::new(8 << 20, 1), None);
        let counters = Counters::default();
        let hash = memory.index.hash(b"the hash of all");
        let before = memory.index.bytes();
        for number in 0..100u32 {
            let key = number.to_le_bytes();
            let item = NewItem { meta: Meta::default(), key: &key, parts: [b"value", b""] };
            let mut writer = lock(&memory.writers[0]);
            let (place, bytes) = memory.store(&mut writer, Tier::Small, &item, 0, &counters).unwrap();
            let length = LengthClass::default();
            let slot = Slot { hash: hash.hash, place, tier: Tier::Small, frequency: 0, length };
            memory.link(hash, &item, slot, bytes);
            assert!(memory.index.shard(hash).matches(hash).any(|(_, slot)| slot.place == place));
        }
        assert_eq!(memory.index.len(), SAME_HASH_MAX);
        assert!(memory.index.bytes() - before < 2 << 10);
    }
}
