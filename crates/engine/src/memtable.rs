//! The memtable: the newest entries of a keyspace, in memory, sorted.
//!
//! # How it works
//!
//! Point entries (puts, tombstones, value handles) are nodes of a concurrent, insert-only skiplist
//! (`skiplist.rs`) in an arena (`arena.rs`); a node holds its key and value itself (`node.rs`). A filter
//! spares most searches for keys that are not there (`filter.rs`). Range tombstones have a list of their own
//! (`range_tombstones.rs`).
//!
//! A memtable only grows. It does not refuse entries: its owner watches [`Memtable::used_bytes`] and turns to a new
//! one. All memory is given back when the last reference, a cursor's included, is dropped.
//!
//! # Invariants
//!
//! * No two point entries have the same key and trailer.
//! * An entry, once inserted, never changes or moves, so readers hold plain references into the memtable.
//! * The structure is a function of the seed and the order of the inserts: one seed replays exactly.
//!
//! # Threads
//!
//! Any thread may insert and read at any time; readers never wait, and point inserts wait only while the arena takes a
//! new chunk from the system. An insert that returned before a read began is seen by it. *Which* sequence numbers a
//! reader may use is the engine's business.
//!
//! # Rejected
//!
//! `crossbeam-skiplist`: it reclaims removed nodes by epochs and counts references, none of which a memtable needs, and
//! every entry is an allocation of its own with key and value behind further pointers.

#![allow(unexpected_cfgs, reason = "cfg(loom) is set by hand to explore the model")]

mod arena;
mod cursor;
mod estimate;
mod filter;
mod meter;
mod node;
mod range_tombstones;
mod skiplist;
mod sync;

use std::sync::Arc;

use situ_table::range_del::{RangeTombstone, TombstoneIndex};
use situ_table::{KeyKind, KeyRef, SequenceNumber, Trailer, hash_key};

use filter::Filter;
use meter::Share;
use node::{HEIGHT_MAX, Target};
use range_tombstones::RangeTombstones;
use skiplist::SkipList;
use sync::{AtomicU64, AtomicUsize, Ordering, OwnCacheLine};

pub use cursor::MemtableCursor;
pub use meter::Meter;

/// Minimum total size of key and value of a large entry. Its node is always a large piece of the arena.
pub const LARGE_ENTRY_BYTES: usize = arena::LARGE_BYTES;

/// The newest entries of a keyspace, in memory, sorted. See the [module](self).
pub struct Memtable {
    id: u64,
    seed: u64,
    list: SkipList,
    filter: Filter,
    range_tombstones: RangeTombstones,
    counters: OwnCacheLine<Counters>,
}

/// What every insert writes.
struct Counters {
    /// Also the ordinal from which the next node's height is drawn.
    entries: AtomicUsize,
    deletions: AtomicUsize,
    /// Entries less [keys](Memtable::keys).
    surplus: AtomicUsize,
    /// `u64::MAX` before the first entry.
    smallest_sequence: AtomicU64,
    largest_sequence: AtomicU64,
}

impl Memtable {
    /// Creates an empty memtable, which takes about three kilobytes. `id` is for the owner (a number in creation order,
    /// say). `seed` decides the shape of the skiplist, and changes no result. `expected_bytes` is about the size to
    /// which the owner lets it grow, and sizes the filter. `meter` counts the memory of the memtable.
    pub fn new(id: u64, seed: u64, expected_bytes: u64, meter: &Arc<Meter>) -> Arc<Memtable> {
        Arc::new(Memtable {
            id,
            seed,
            list: SkipList::new(Share::new(meter)),
            filter: Filter::new(expected_bytes),
            range_tombstones: RangeTombstones::new(),
            counters: OwnCacheLine(Counters {
                entries: AtomicUsize::new(0),
                deletions: AtomicUsize::new(0),
                surplus: AtomicUsize::new(0),
                smallest_sequence: AtomicU64::new(u64::MAX),
                largest_sequence: AtomicU64::new(0),
            }),
        })
    }

    /// The number given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds a point entry; key and value are copied. Logarithmic time, constant when keys come in order.
    ///
    /// # Panics
    /// If the trailer's kind is none of a point entry, if an entry with the same key and trailer is there already, if
    /// the key has 16 MiB or more, or the value 4 GiB or more.
    pub fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let counters = &self.counters.0;
        match trailer.kind() {
            Some(KeyKind::Put | KeyKind::ValueHandle) => {}
            Some(KeyKind::Delete) => {
                counters.deletions.fetch_add(1, Ordering::Relaxed);
            }
            Some(KeyKind::RangeDelete) | None => panic!("{trailer:?} is no trailer of a point entry"),
        }
        let ordinal = counters.entries.fetch_add(1, Ordering::Relaxed);
        counters.include(trailer.sequence());
        let hash = hash_key(key);
        let filter = self.filter.part(ordinal, |bytes| self.share().grew(bytes));
        if let Some(filter) = filter {
            filter.prefetch(hash);
        }
        let surplus = self.list.insert(KeyRef::new(key, trailer), value, height_of(self.seed, ordinal));
        if surplus > 0 {
            counters.surplus.fetch_add(surplus, Ordering::Relaxed);
        }
        if let Some(filter) = filter {
            filter.insert(hash);
        }
    }

    /// Reserves memory for the large entries of one write, given the lengths of keys and values. A second call for the
    /// same `write` does nothing. Returns false if memory runs out.
    #[must_use]
    pub fn prepare(&self, write: usize, entries: impl Iterator<Item = (usize, usize)>) -> bool {
        let nodes = entries.map(|(key, value)| (key + value, node::bytes_max(key, value)));
        let bytes = nodes.filter(|(entry, _)| *entry >= LARGE_ENTRY_BYTES).map(|(_, node)| node).sum();
        bytes == 0 || self.list.arena().prepare(write, bytes)
    }

    /// Takes memory ahead for a point entry of these lengths of key and value, which is going to be inserted by the
    /// only thread that inserts. False if the system has no memory for it.
    #[must_use]
    pub fn ensure(&self, key: usize, value: usize) -> bool {
        match key + value >= LARGE_ENTRY_BYTES {
            true => self.prepare(self.entries(), std::iter::once((key, value))),
            false => self.list.arena().ensure(node::bytes_max(key, value)),
        }
    }

    /// Adds a range tombstone: versions below `sequence` of the keys in `begin..end` are deleted. An empty range adds
    /// nothing. Amortised logarithmic time.
    pub fn insert_range_tombstone(&self, begin: &[u8], end: &[u8], sequence: SequenceNumber) {
        if begin >= end {
            return;
        }
        self.counters.0.include(sequence);
        let tombstone = RangeTombstone { begin: begin.into(), end: end.into(), sequence };
        self.range_tombstones.insert(tombstone, self.share());
    }

    /// The newest point version of `key` at or below `snapshot`: its trailer and value. A tombstone is a version.
    /// `key_hash` is [`hash_key`] of `key`. Logarithmic time, no allocation; mostly one cache miss if the key is not
    /// there.
    #[inline]
    pub fn get(&self, key: &[u8], key_hash: u64, snapshot: SequenceNumber) -> Option<(Trailer, &[u8])> {
        if !self.filter.may_contain(key_hash) {
            return None;
        }
        let target = Target::new(KeyRef::new(key, Trailer::seek(snapshot)));
        let node = self.list.first_at_or_behind(&target)?;
        let found = node.key();
        (found.user == key).then(|| (found.trailer, node.value()))
    }

    /// A cursor over the point entries, standing nowhere. It keeps the memtable alive.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(Arc::clone(self))
    }

    /// Returns true if there are range tombstones. One atomic load.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones.any()
    }

    /// The range tombstones, ready for lookup. Costs a reference count, and a few tens of them when there are more than
    /// at the last call.
    pub fn range_tombstones(&self) -> Arc<TombstoneIndex> {
        self.range_tombstones.all()
    }

    /// Point entries inserted or being inserted, deletions included.
    pub fn entries(&self) -> usize {
        self.counters.0.entries.load(Ordering::Relaxed)
    }

    /// Point tombstones inserted or being inserted.
    pub fn deletions(&self) -> usize {
        self.counters.0.deletions.load(Ordering::Relaxed)
    }

    /// Returns the number by which the memtable changes the keys of its keyspace: keys whose newest version is no
    /// tombstone, less keys whose oldest version is one. A key counts as new if its oldest version here is no
    /// tombstone. Exact whenever no insert is under way and none was at the same time as another one of its key.
    pub fn keys(&self) -> i64 {
        let surplus = self.counters.0.surplus.load(Ordering::Relaxed);
        self.entries() as i64 - surplus as i64
    }

    /// Returns true if there is nothing to flush: neither a point entry nor a range tombstone.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_range_tombstones()
    }

    /// The smallest sequence number of an entry or range tombstone; `None` while there is none.
    pub fn smallest_sequence(&self) -> Option<SequenceNumber> {
        let smallest = self.counters.0.smallest_sequence.load(Ordering::Relaxed);
        (smallest != u64::MAX).then_some(smallest)
    }

    /// The largest sequence number of an entry or range tombstone; `None` while there is none.
    pub fn largest_sequence(&self) -> Option<SequenceNumber> {
        self.smallest_sequence().map(|_| self.counters.0.largest_sequence.load(Ordering::Relaxed))
    }

    /// About how many bytes the point entries with keys in `begin..end` take, bookkeeping included. Logarithmic time.
    pub fn approximate_bytes(&self, begin: &[u8], end: &[u8]) -> u64 {
        let entries = self.entries();
        if begin >= end || entries == 0 {
            return 0;
        }
        let target = |key| Target::new(KeyRef::new(key, Trailer::NEWEST));
        let inside = self.list.estimate_entries(&target(begin), &target(end)).min(entries);
        (self.list.arena().used_bytes() as u128 * inside as u128 / entries as u128) as u64
    }

    /// Bytes that the entries take: keys, values, and some 36 bytes of bookkeeping each. Two atomic loads.
    pub fn used_bytes(&self) -> usize {
        self.list.arena().used_bytes() + self.range_tombstones.bytes()
    }

    /// Returns the bytes allocated: `used_bytes`, the free rest of the arena's chunks, and the filter. Pages of the
    /// filter take no memory until keys touch them. Takes a lock for a short time.
    pub fn allocated_bytes(&self) -> usize {
        self.share().bytes() as usize
    }

    /// Notes that the memtable gets no more writes, and that a flush will free its memory.
    pub fn seal(&self) {
        self.share().seal();
    }

    /// Notes that its owner no longer needs the memtable. It lives on while readers hold it.
    pub fn let_go(&self) {
        self.share().let_go();
    }

    fn share(&self) -> &Share {
        self.list.arena().share()
    }
}

impl Counters {
    /// Widens the range of sequence numbers.
    #[inline]
    fn include(&self, sequence: SequenceNumber) {
        // The load first: most inserts change only one of the two, and an atomic maximum costs more than a load.
        if sequence > self.largest_sequence.load(Ordering::Relaxed) {
            self.largest_sequence.fetch_max(sequence, Ordering::Relaxed);
        }
        if sequence < self.smallest_sequence.load(Ordering::Relaxed) {
            self.smallest_sequence.fetch_min(sequence, Ordering::Relaxed);
        }
    }
}

/// The height of the node that is inserted as number `ordinal`: each further level with a probability of one in two.
/// That costs 5 bytes per entry more than one in four, and in `measure.rs` random gets and inserts took a fifth less
/// time.
#[inline]
fn height_of(seed: u64, ordinal: usize) -> usize {
    // SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    let mut bits = seed.wrapping_add((ordinal as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (1 + bits.trailing_zeros() as usize).min(HEIGHT_MAX)
}

#[cfg(all(test, not(loom), not(miri)))]
mod measure;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
