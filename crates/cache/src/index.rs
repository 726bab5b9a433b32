//! The index: where the item of a key lies. In memory, all of it.
//!
//! The hash of a key names a *shard* and, in the shard, two buckets of five [slots](crate::slot); its slot lies in one
//! of the two. A bucket is a line of the processor's cache.
//!
//! 1. A look-up compares the hashes in both buckets. The caller compares keys.
//! 2. An insertion takes a free slot in either bucket. If there is none, a slot moves to its other bucket, and so on
//!    (cuckoo hashing).
//! 3. If that is of no help, or the shard is 93% full, the shard grows by a sixteenth. Its slots have all that is
//!    needed for that.
//! 4. A shard that is less than 81% full shrinks by a sixteenth. So it neither keeps the size of its fullest day, nor
//!    changes its size often.
//!
//! **Why so.** Steps of a sixteenth keep a shard between 0.87 and 0.93 full while it grows, so a slot takes about 15
//! bytes. Doubling would take 24 at times. Many small shards make each step short: a shard of 400 buckets moves 1,800
//! slots, one of the longest 18,000.
//!
//! **Invariants.** Slots of one shard may have equal hashes, but no two of them name the same place.
//!
//! **Threads.** A mutex a shard. The number of shards is large, so two threads hardly meet. The holder of a shard may
//! lock segments, and no other shard.
//!
//! **Rejected**: one table, doubled at once. It stops all threads while it grows, and needs three times its size then.
//! **Rejected**: chains of items through memory, as memcached has them. They cost a pointer an item, and an item on
//! flash has no memory for it.

use crate::slot::{HASH_BITS, LengthClass, PackedSlot, Slot, hash_of, is_free};
use situ_base::lock;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most keys with the same 44-bit hash that are kept at a time. If they filled more than two buckets, the shard
/// would grow without end.
pub(crate) const SAME_HASH_MAX: usize = 4;

const BUCKET_SLOTS: usize = 5;
/// Shards at most.
const SHARD_BITS_MAX: u32 = u64::BITS - HASH_BITS;
const SHARD_BITS_MIN: u32 = 6;
/// The maximum number of buckets of a shard. A shard has more only if keys collide on purpose.
const SHARD_BUCKETS: usize = 4096;
const BUCKETS_MIN: usize = 4;
/// Moves that an insertion makes before the shard grows instead.
const MOVES_MAX: usize = 64;
/// Half of a hash, which says where a slot may lie.
const HALF_BITS: u32 = HASH_BITS / 2;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    slots: [PackedSlot; BUCKET_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The hash of a key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash {
    shard: u32,
    /// The part of the hash that slots keep.
    pub(crate) hash: u64,
}

impl KeyHash {
    /// Returns another hash of the same key, all of whose bits are good.
    pub(crate) fn mixed(self) -> u64 {
        let all = (u64::from(self.shard) << HASH_BITS | self.hash).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (all ^ all >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

/// The index of a cache: see the module.
pub(crate) struct Index {
    shards: Box<[Line<Mutex<Shard>>]>,
    shard_bits: u32,
    seed: u64,
    spares: Spares,
    slots: AtomicUsize,
    /// Slots of memory whose item has a copy on flash, with a slot of its own.
    copies: AtomicUsize,
}

/// Something with a line of the processor's cache of its own: threads that use its neighbours do not take the line from
/// each other.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// A part of the index. See the module.
#[derive(Default)]
pub(crate) struct Shard {
    buckets: Buckets,
    used: usize,
}

/// Buckets of a piece: 1 KiB.
const PIECE: usize = 16;

type Piece = [Bucket; PIECE];

/// Memory of a piece, with its pointer.
const PIECE_BYTES: usize = size_of::<Piece>() + size_of::<Box<Piece>>();

/// Buckets in pieces of equal length, which are used again: see [`Spares`].
#[derive(Default)]
struct Buckets {
    #[expect(clippy::vec_box, reason = "pieces go from one shard to another")]
    pieces: Vec<Box<Piece>>,
    count: usize,
}

impl Buckets {
    fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.pieces.iter_mut().flat_map(|piece| piece.iter_mut())
    }
}

/// Pieces that no shard uses. Shards grow in one thread and shrink in others. The heap of the system has a part for
/// each thread, and each part keeps what was once taken from it. Without spares the index took three times its memory.
#[derive(Default)]
struct Spares {
    #[expect(clippy::vec_box, reason = "pieces go from one shard to another")]
    pieces: Mutex<Vec<Box<Piece>>>,
    /// Memory of all pieces, spare or not.
    bytes: AtomicUsize,
}

/// Spare pieces that are kept, in addition to a 64th of all.
const SPARES_MIN: usize = 8;

impl Spares {
    /// Returns `count` empty buckets.
    fn take(&self, count: usize) -> Buckets {
        let wanted = count.div_ceil(PIECE);
        let mut spares = lock(&self.pieces);
        let rest = spares.len().saturating_sub(wanted);
        let mut pieces = spares.split_off(rest);
        drop(spares);
        pieces.iter_mut().for_each(|piece| **piece = [Bucket::default(); PIECE]);
        self.bytes.fetch_add((wanted - pieces.len()) * PIECE_BYTES, Ordering::Relaxed);
        pieces.resize_with(wanted, || Box::new([Bucket::default(); PIECE]));
        pieces.shrink_to_fit();
        Buckets { pieces, count }
    }

    fn give(&self, buckets: Buckets) {
        let most = SPARES_MIN + self.bytes.load(Ordering::Relaxed) / PIECE_BYTES / 64;
        let mut spares = lock(&self.pieces);
        spares.extend(buckets.pieces);
        let kept = spares.len().min(most);
        self.bytes.fetch_sub((spares.len() - kept) * PIECE_BYTES, Ordering::Relaxed);
        spares.truncate(kept);
    }
}

impl std::ops::Index<usize> for Buckets {
    type Output = Bucket;

    fn index(&self, bucket: usize) -> &Bucket {
        &self.pieces[bucket / PIECE][bucket % PIECE]
    }
}

impl std::ops::IndexMut<usize> for Buckets {
    fn index_mut(&mut self, bucket: usize) -> &mut Bucket {
        &mut self.pieces[bucket / PIECE][bucket % PIECE]
    }
}

/// The slots of a hash. There is hardly ever more than one, so they need no memory of their own.
struct Matches {
    first: Option<(Position, Slot)>,
    more: Vec<(Position, Slot)>,
}

/// The position of a slot in its shard, until the next insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    bucket: u32,
    slot: u32,
}

impl Index {
    /// Returns an index that takes a share of `memory_bytes` when it is full. The seed keeps clients from aiming at one
    /// shard.
    pub(crate) fn new(memory_bytes: usize, seed: u64) -> Index {
        let buckets = memory_bytes / size_of::<Bucket>();
        let shard_bits = (buckets / SHARD_BUCKETS).max(1).ilog2().clamp(SHARD_BITS_MIN, SHARD_BITS_MAX);
        let shards: Box<[_]> = (0..1usize << shard_bits).map(|_| Line(Mutex::new(Shard::default()))).collect();
        Index {
            shards,
            shard_bits,
            seed,
            spares: Spares::default(),
            slots: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
        }
    }

    /// Returns the hash of `key`.
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let all = xxh3_64_with_seed(key, self.seed);
        KeyHash { shard: (all >> (u64::BITS - self.shard_bits)) as u32, hash: all & ((1 << HASH_BITS) - 1) }
    }

    /// Returns the shard that the slots of a hash lie in.
    pub(crate) fn shard(&self, hash: KeyHash) -> ShardGuard<'_> {
        ShardGuard { shard: lock(&self.shards[hash.shard as usize].0), index: self }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.shards) + self.spares.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// Returns the number of items: an item that is in memory and on flash has two slots.
    pub(crate) fn items(&self) -> usize {
        self.len().saturating_sub(self.copies.load(Ordering::Relaxed))
    }

    /// Removes the slots of flash that `goes` says so of. An item in memory loses its copy with the copy's slot. A
    /// shard is locked at a time.
    pub(crate) fn remove_all(&self, mut goes: impl FnMut(&Slot) -> bool) {
        for shard in &self.shards {
            let mut guard = ShardGuard { shard: lock(&shard.0), index: self };
            let mut removed = HashSet::new();
            let mut count = 0;
            for packed in guard.shard.buckets.iter_mut().flat_map(|bucket| &mut bucket.slots) {
                if let Some(slot) = Slot::unpack(*packed).filter(|slot| !slot.tier.is_memory() && goes(slot)) {
                    *packed = PackedSlot::default();
                    removed.insert(slot.hash);
                    count += 1;
                }
            }
            if count > 0 {
                let has_lost_its_copy = |slot: &Slot| slot.is_copied() && removed.contains(&slot.hash);
                for packed in guard.shard.buckets.iter_mut().flat_map(|bucket| &mut bucket.slots) {
                    if let Some(slot) = Slot::unpack(*packed).filter(has_lost_its_copy) {
                        *packed = Slot { length: LengthClass::default(), ..slot }.pack();
                        self.copies.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
            guard.removed(count);
        }
    }

    /// Passes the slots of each shard in turn to `each`, with the shard's number; a shard is locked meanwhile.
    pub(crate) fn for_each(&self, mut each: impl FnMut(u32, Slot)) {
        for number in 0..self.shards.len() as u32 {
            self.for_each_in(number, |slot| each(number, slot));
        }
    }

    /// Passes the slots of a shard to `each`; the shard is locked meanwhile.
    pub(crate) fn for_each_in(&self, number: u32, mut each: impl FnMut(Slot)) {
        let shard = lock(&self.shards[number as usize].0);
        for packed in shard.buckets.iter().flat_map(|bucket| bucket.slots) {
            Slot::unpack(packed).into_iter().for_each(&mut each);
        }
    }

    /// Returns the number of shards, as a power of two. Together with the seed it gives a slot its meaning.
    pub(crate) fn shard_bits(&self) -> u32 {
        self.shard_bits
    }

    /// Returns the hash of a slot in a shard.
    pub(crate) fn hash_in(&self, shard: u32, slot: &Slot) -> Option<KeyHash> {
        ((shard as usize) < self.shards.len()).then_some(KeyHash { shard, hash: slot.hash })
    }
}

/// Returns true if a slot is one of memory whose item has a copy on flash.
fn is_copy(packed: PackedSlot) -> bool {
    Slot::unpack(packed).is_some_and(|slot| slot.is_copied())
}

/// A locked shard.
pub(crate) struct ShardGuard<'a> {
    shard: MutexGuard<'a, Shard>,
    index: &'a Index,
}

impl ShardGuard<'_> {
    /// Returns the slots with this hash.
    pub(crate) fn matches(&self, hash: KeyHash) -> impl Iterator<Item = (Position, Slot)> + use<> {
        let Matches { first, more } = self.shard.matches(hash.hash);
        first.into_iter().chain(more)
    }

    /// Puts another slot of the same hash in the place of one.
    pub(crate) fn replace(&mut self, position: Position, slot: Slot) {
        let place = &mut self.shard.buckets[position.bucket as usize].slots[position.slot as usize];
        assert!(!is_free(*place) && hash_of(*place) == slot.hash, "a slot is replaced by one of another hash");
        let was_copied = is_copy(*place);
        *place = slot.pack();
        match (was_copied, slot.is_copied()) {
            (false, true) => _ = self.index.copies.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.index.copies.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Frees a slot.
    pub(crate) fn remove(&mut self, position: Position) {
        let place = &mut self.shard.buckets[position.bucket as usize].slots[position.slot as usize];
        assert!(!is_free(*place), "a slot is freed twice");
        if is_copy(*place) {
            self.index.copies.fetch_sub(1, Ordering::Relaxed);
        }
        *place = PackedSlot::default();
        self.removed(1);
    }

    /// Notes that `count` slots were freed: the shard may shrink.
    fn removed(&mut self, count: usize) {
        self.shard.used -= count;
        self.index.slots.fetch_sub(count, Ordering::Relaxed);
        let before = self.shard.buckets.len();
        let mut buckets = before;
        while buckets > BUCKETS_MIN && self.shard.used * 100 < buckets * BUCKET_SLOTS * 81 {
            buckets = (buckets - (buckets / 16).max(1)).max(BUCKETS_MIN);
        }
        if self.shard.used == 0 {
            buckets = 0;
        }
        if buckets < before {
            self.resize(buckets);
        }
    }

    /// Adds a slot. Positions are void afterwards.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let buckets = self.shard.buckets.len();
        if (self.shard.used + 1) * 100 > buckets * BUCKET_SLOTS * 93 {
            self.resize(grown(buckets));
        }
        self.shard.used += 1;
        if let Some(homeless) = self.shard.put(slot.pack()) {
            self.resize_for(grown(self.shard.buckets.len()), Some(homeless));
        }
        self.index.slots.fetch_add(1, Ordering::Relaxed);
        if slot.is_copied() {
            self.index.copies.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn resize(&mut self, buckets: usize) {
        self.resize_for(buckets, None);
    }

    /// Gives the shard `buckets` buckets, or more if its slots and the one that has no place need them.
    fn resize_for(&mut self, mut buckets: usize, homeless: Option<PackedSlot>) {
        let spares = &self.index.spares;
        let next = loop {
            let mut next = Shard { buckets: spares.take(buckets), used: self.shard.used };
            let slots = self.shard.buckets.iter().flat_map(|bucket| bucket.slots);
            if slots.chain(homeless).all(|slot| is_free(slot) || next.put(slot).is_none()) {
                break next;
            }
            spares.give(next.buckets);
            buckets = grown(buckets);
        };
        let before = std::mem::replace(&mut *self.shard, next);
        spares.give(before.buckets);
    }
}

fn grown(buckets: usize) -> usize {
    (buckets + buckets / 16 + 1).max(BUCKETS_MIN)
}

impl Shard {
    fn matches(&self, hash: u64) -> Matches {
        let mut found = Matches { first: None, more: Vec::new() };
        if self.buckets.len() == 0 {
            return found;
        }
        for bucket in self.homes(hash) {
            for (slot, packed) in self.buckets[bucket].slots.iter().enumerate() {
                if hash_of(*packed) == hash
                    && let Some(unpacked) = Slot::unpack(*packed)
                {
                    let position = Position { bucket: bucket as u32, slot: slot as u32 };
                    match found.first {
                        None => found.first = Some((position, unpacked)),
                        Some(_) => found.more.push((position, unpacked)),
                    }
                }
            }
        }
        found
    }

    /// Returns the two buckets of a hash. They differ.
    fn homes(&self, hash: u64) -> [usize; 2] {
        let count = self.buckets.len() as u64;
        let high = hash >> HALF_BITS;
        // The low half alone would send neighbours of one bucket to few others.
        let low = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) & ((1 << HALF_BITS) - 1);
        let first = (high * count) >> HALF_BITS;
        let second = (low * count) >> HALF_BITS;
        let second = if second == first { (first + 1) % count } else { second };
        [first as usize, second as usize]
    }

    fn free_slot(&mut self, bucket: usize) -> Option<&mut PackedSlot> {
        self.buckets[bucket].slots.iter_mut().find(|slot| is_free(**slot))
    }

    /// Puts a slot into one of its buckets. A slot that found no place after `MOVES_MAX` moves is returned: this one,
    /// or another.
    fn put(&mut self, mut packed: PackedSlot) -> Option<PackedSlot> {
        let homes = self.homes(hash_of(packed));
        for bucket in homes {
            if let Some(free) = self.free_slot(bucket) {
                *free = packed;
                return None;
            }
        }
        let mut bucket = homes[hash_of(packed) as usize % 2];
        for moves in 0..MOVES_MAX {
            let victim = (hash_of(packed) as usize + moves) % BUCKET_SLOTS;
            std::mem::swap(&mut packed, &mut self.buckets[bucket].slots[victim]);
            bucket = self.other_home(bucket, packed);
            if let Some(free) = self.free_slot(bucket) {
                *free = packed;
                return None;
            }
        }
        Some(packed)
    }

    fn other_home(&self, bucket: usize, packed: PackedSlot) -> usize {
        let [first, second] = self.homes(hash_of(packed));
        if bucket == first { second } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{Place, Tier};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slot(hash: KeyHash, number: u32) -> Slot {
        let place = Place { segment: number, offset: 0 };
        Slot { hash: hash.hash, place, tier: Tier::Small, frequency: 0, length: LengthClass::default() }
    }

    fn find(index: &Index, hash: KeyHash, number: u32) -> Option<Position> {
        let found = index.shard(hash).matches(hash).find(|(_, slot)| slot.place.segment == number);
        found.map(|(position, _)| position)
    }

    proptest! {
        #[test]
        fn it_holds_what_was_inserted_and_not_removed(
            steps in prop::collection::vec((0..2000u32, 0..3u8), 0..3000),
        ) {
            let index = Index::new(1 << 16, 3);
            let mut model = BTreeMap::new();
            for (key, step) in steps {
                let hash = index.hash(&(key % 700).to_le_bytes());
                let number = key % 700;
                match (step, model.contains_key(&number)) {
                    (0 | 1, false) => {
                        index.shard(hash).insert(slot(hash, number));
                        model.insert(number, hash);
                    }
                    (2, true) => {
                        let position = find(&index, hash, number).unwrap();
                        index.shard(hash).remove(position);
                        model.remove(&number);
                    }
                    (_, is_there) => prop_assert_eq!(find(&index, hash, number).is_some(), is_there),
                }
            }
            prop_assert_eq!(index.len(), model.len());
            let mut all = Vec::new();
            index.for_each(|_, slot| all.push(slot.place.segment));
            all.sort_unstable();
            prop_assert_eq!(all, model.keys().copied().collect::<Vec<_>>());
            for (number, hash) in model {
                prop_assert!(find(&index, hash, number).is_some());
            }
        }
    }

    /// `curr_items` of a cache on flash counted an item twice that had come back to memory.
    #[test]
    fn an_item_in_memory_and_on_flash_is_one_item() {
        let index = Index::new(1 << 16, 3);
        let hashes: Vec<_> = (0..10u32).map(|key| index.hash(&key.to_le_bytes())).collect();
        for (number, hash) in (0..).zip(&hashes) {
            index.shard(*hash).insert(Slot { tier: Tier::Flash, ..slot(*hash, number) });
            index.shard(*hash).insert(Slot { length: LengthClass::COPIED, ..slot(*hash, 100 + number) });
        }
        assert_eq!((index.len(), index.items()), (20, 10));
        // It is no copy any more, and then again; its slot goes.
        let position = find(&index, hashes[0], 100).unwrap();
        index.shard(hashes[0]).replace(position, slot(hashes[0], 100));
        assert_eq!((index.len(), index.items()), (20, 11));
        index.shard(hashes[0]).replace(position, Slot { length: LengthClass::COPIED, ..slot(hashes[0], 100) });
        index.shard(hashes[0]).remove(position);
        assert_eq!((index.len(), index.items()), (19, 10));
        // The segments of some go from flash.
        index.remove_all(|slot| slot.place.segment < 5);
        assert_eq!((index.len(), index.items()), (14, 9));
        let mut copies = 0;
        index.for_each(|_, slot| copies += usize::from(slot.is_copied()));
        assert_eq!(copies, 5, "those whose copy is still there");
    }

    #[test]
    fn a_slot_takes_16_bytes_at_most_while_the_index_grows() {
        let index = Index::new(8 << 20, 1);
        let mut worst = 0.0f64;
        for number in 0..400_000u32 {
            let hash = index.hash(&number.to_le_bytes());
            index.shard(hash).insert(slot(hash, number % 1000));
            if number > 50_000 {
                worst = worst.max(index.bytes() as f64 / index.len() as f64);
            }
        }
        assert!(worst < 16.0, "{worst} bytes a slot");
    }

    #[test]
    fn an_index_that_empties_gives_memory_back() {
        let index = Index::new(8 << 20, 1);
        let empty = index.bytes();
        let hashes: Vec<_> = (0..100_000u32).map(|number| (index.hash(&number.to_le_bytes()), number)).collect();
        hashes.iter().for_each(|(hash, number)| index.shard(*hash).insert(slot(*hash, *number)));
        let full = index.bytes() - empty;
        for (hash, number) in hashes {
            let position = find(&index, hash, number).unwrap();
            index.shard(hash).remove(position);
        }
        assert_eq!(index.len(), 0);
        assert!(index.bytes() - empty < full / 20, "{} of {full} bytes are left", index.bytes() - empty);
    }

    #[test]
    fn many_equal_hashes_find_a_place() {
        let index = Index::new(1 << 20, 1);
        let hash = index.hash(b"key");
        (0..10).for_each(|number| index.shard(hash).insert(slot(hash, number)));
        assert!((0..10).all(|number| find(&index, hash, number).is_some()));
    }
}
