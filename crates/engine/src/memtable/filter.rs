//! A filter that rules out most keys that a memtable does not have, for one cache line instead of a search.
//!
//! # How it works
//!
//! A search in a full memtable waits for memory some ten times, and most reads search the memtable in vain, because
//! their key is in a table. So every insert sets five bits, all in one line of 512, chosen by the key's hash, and a
//! read checks them first. This is a blocked Bloom filter, as tables have; tables need the same hash anyway.
//!
//! The size of the filter follows the size that the memtable may have, [`BYTES_PER_FILTER_BYTE`] to one: with entries
//! of 128 bytes that is 8 bits per key, and one search in forty is in vain. Smaller entries make it worse, larger ones
//! better.
//!
//! A store may have ten thousand nearly empty keyspaces, so the filter has two parts. The first [`FIRST_KEYS`] keys go
//! into a part of [`FIRST_BYTES_MAX`], all others into the rest. Each part is allocated for its first key. A read
//! probes both. The first part is small, and stays in the processor's cache.
//!
//! # Invariants
//!
//! * No false negative: an insert has set its bits when it returns. The line is asked for before the node's place is
//!   searched, and is there when it is needed.
//! * An empty memtable has no filter. Untouched pages of the large part cost no memory until bits in them are set.
//!
//! # Threads
//!
//! Bits are set and read Relaxed. A read that must see an entry learns of it from a value that the inserting thread
//! released after the insert (a visible sequence number, a joined thread). The acquire of that value brings the bits
//! along.
//!
//! # Failure
//!
//! If a part cannot be allocated, the memtable does without it, and reads search for every key.
//!
//! # Rejected
//!
//! One part that grows: all keys would have to be hashed again, with inserts going to both tables meanwhile.
//!
//! A hash index over the nodes (RocksDB's hash memtables) would find keys that are there, too, but costs as many bytes
//! as entries have pointers and must be ordered against the list for readers at old snapshots.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use situ_table::{filter_bits, filter_line};

use super::sync::prefetch;

/// The bytes of entries for each byte of filter.
const BYTES_PER_FILTER_BYTE: u64 = 128;

/// The largest filter: four gigabytes of entries.
const BYTES_MAX: u64 = 32 << 20;

/// Words of a line, the unit that a key's bits are in: a cache line of most processors.
const LINE_WORDS: usize = 8;

/// The number of bits that a key sets: near the best for 6 to 10 bits per key.
const PROBES: u32 = 5;

/// Number of keys that go into the first part.
const FIRST_KEYS: usize = 2048;

/// Maximum size of the first part: 16 bits for each of its keys.
const FIRST_BYTES_MAX: usize = FIRST_KEYS * 2;

/// See the [module](self).
pub(super) struct Filter {
    first: Part,
    rest: Part,
}

/// One of the two parts. It has no memory before its first key, or if the allocation failed.
struct Part {
    bytes: usize,
    lines: OnceLock<Option<Lines>>,
}

/// The memory of a part.
pub(super) struct Lines {
    words: Box<[Word]>,
    /// The first word that lies at the beginning of a cache line.
    first: usize,
    count: usize,
}

/// The type is the standard library's in a model, too. Other values order the filter (see the module), and loom would
/// explore every order of setting bits.
type Word = AtomicU64;

const LINE_BYTES: usize = LINE_WORDS * size_of::<Word>();

impl Filter {
    /// Returns a filter for a memtable of about `memtable_bytes`.
    pub(super) fn new(memtable_bytes: u64) -> Filter {
        let bytes = ((memtable_bytes / BYTES_PER_FILTER_BYTE).min(BYTES_MAX) as usize).max(LINE_BYTES);
        let part = |bytes| Part { bytes, lines: OnceLock::new() };
        // A small memtable has all its keys in the first part.
        let rest = if bytes > FIRST_BYTES_MAX { bytes } else { 0 };
        Filter { first: part(bytes.min(FIRST_BYTES_MAX)), rest: part(rest) }
    }

    /// Returns the memory that the filter takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.first.allocated_bytes() + self.rest.allocated_bytes()
    }

    /// Returns the memory of the part for the key that is inserted as number `ordinal`, if there is any. Calls `grown`
    /// with the size of memory allocated here.
    #[inline(always)]
    pub(super) fn part(&self, ordinal: usize, grown: impl FnOnce(usize)) -> Option<&Lines> {
        let part = if ordinal < FIRST_KEYS || self.rest.bytes == 0 { &self.first } else { &self.rest };
        match part.lines.get() {
            Some(lines) => lines.as_ref(),
            None => part.allocate(grown),
        }
    }

    /// Returns false if no key with this hash was inserted.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        // The rest comes first: a full memtable has most of its keys there.
        self.rest.may_contain(hash) || self.first.may_contain(hash)
    }
}

impl Part {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        match self.lines.get() {
            None => false,
            Some(None) => true,
            Some(Some(lines)) => lines.may_contain(hash),
        }
    }

    #[cfg(test)]
    fn allocated_bytes(&self) -> usize {
        self.lines.get().and_then(Option::as_ref).map_or(0, |lines| lines.words.len() * size_of::<Word>())
    }

    #[cold]
    #[inline(never)]
    fn allocate(&self, grown: impl FnOnce(usize)) -> Option<&Lines> {
        self.lines
            .get_or_init(|| {
                let lines = Lines::new(self.bytes)?;
                grown(lines.words.len() * size_of::<Word>());
                Some(lines)
            })
            .as_ref()
    }
}

impl Lines {
    fn new(bytes: usize) -> Option<Lines> {
        let count = (bytes / LINE_BYTES).max(1);
        let words = zeroed((count + 1) * LINE_WORDS)?;
        let address = words.as_ptr().addr();
        let first = (address.next_multiple_of(LINE_BYTES) - address) / size_of::<Word>();
        Some(Lines { words, first, count })
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> &[Word] {
        let line = filter_line(hash, self.count);
        &self.words[self.first + line * LINE_WORDS..][..LINE_WORDS]
    }

    /// Asks for the line of a key that is about to be inserted.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(self.line(hash).as_ptr());
    }

    /// Notes a key with this hash.
    #[inline]
    pub(super) fn insert(&self, hash: u64) {
        let line = self.line(hash);
        for (word, bit) in filter_bits(hash, PROBES) {
            // The load first: most bits of a well-filled filter, and all of a key that comes again, are set already.
            if line[word].load(Ordering::Relaxed) & bit == 0 {
                line[word].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        filter_bits(hash, PROBES).all(|(word, bit)| line[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// Allocates zero words; `None` if memory runs out. A large block consists of untouched pages.
fn zeroed(count: usize) -> Option<Box<[Word]>> {
    let layout = Layout::array::<Word>(count).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not empty.
    let words = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<Word>();
    // SAFETY: the memory is fresh and has the layout of a box of `count` words, and zero is a valid word.
    Some(unsafe { Box::from_raw(NonNull::slice_from_raw_parts(words, count).as_ptr()) })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use situ_table::hash_key;

    fn hash(number: u64) -> u64 {
        hash_key(&number.to_be_bytes())
    }

    fn insert(filter: &Filter, ordinal: usize, hash: u64) {
        filter.part(ordinal, |_| {}).unwrap().insert(hash);
    }

    #[test]
    fn no_key_is_denied_and_few_are_taken_for_others() {
        let keys = if cfg!(miri) { 200 } else { 100_000 };
        // Eight bits per key.
        let filter = Filter::new(keys * BYTES_PER_FILTER_BYTE);
        (0..keys).for_each(|number| insert(&filter, number as usize, hash(number)));
        assert!((0..keys).all(|number| filter.may_contain(hash(number))));
        let wrong = (keys..2 * keys).filter(|number| filter.may_contain(hash(*number))).count() as u64;
        assert!(wrong * 25 < keys.max(2500), "{wrong} of {keys}");
    }

    /// The filter of a memtable of 64 MiB took 512 KiB from the first key on.
    #[test]
    fn a_filter_grows_with_its_keys() {
        let filter = Filter::new(64 << 20);
        assert_eq!(filter.bytes(), 0);
        assert!(!filter.may_contain(hash(1)));
        let mut grown = Vec::new();
        for ordinal in 0..FIRST_KEYS + 1 {
            filter.part(ordinal, |bytes| grown.push(bytes)).unwrap().insert(hash(ordinal as u64));
            let bytes_max = if ordinal < FIRST_KEYS { FIRST_BYTES_MAX + LINE_BYTES } else { 520 << 10 };
            assert!(filter.bytes() <= bytes_max, "{} bytes for {ordinal} keys", filter.bytes());
        }
        assert_eq!((grown.len(), grown.iter().sum()), (2, filter.bytes()));
        assert!((0..=FIRST_KEYS as u64).all(|number| filter.may_contain(hash(number))));
    }

    #[test]
    fn lines_are_cache_lines_inside_the_memory_for_every_size() {
        for memtable_bytes in (0..2_000_000).step_by(if cfg!(miri) { 777_777 } else { 15_777 }) {
            let filter = Filter::new(memtable_bytes);
            for hash in [0, 0x7fff_ffff, u64::from(u32::MAX), u64::MAX] {
                assert!(!filter.may_contain(hash));
                for ordinal in [0, FIRST_KEYS] {
                    let lines = filter.part(ordinal, |_| {}).unwrap();
                    assert_eq!(lines.line(hash).len(), LINE_WORDS);
                    assert!(lines.line(hash).as_ptr().addr().is_multiple_of(64));
                }
                assert!(!filter.may_contain(hash));
            }
        }
    }

    #[test]
    fn threads_set_bits_side_by_side() {
        let filter = Filter::new(1 << 14);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let filter = &filter;
                scope.spawn(move || {
                    (0..50).for_each(|number| insert(filter, number as usize, hash(thread * 1000 + number)));
                });
            }
        });
        assert!((0..4).all(|thread| (0..50).all(|number| filter.may_contain(hash(thread * 1000 + number)))));
    }
}
