//! Tells most keys that a memtable does not have, for one cache line instead of a search.
//!
//! # How it works
//!
//! A search in a full memtable waits for memory some ten times, and most reads search the memtable in vain, because what
//! they look for is in a table. So every insert sets five bits, all in one line of 512, chosen by the key's hash (a blocked
//! Bloom filter, as tables have; the hash is the one that they need anyway), and a read asks for them first.
//!
//! The filter is sized by what the memtable may hold, [`BYTES_PER_FILTER_BYTE`] to one: with entries of 128 bytes that
//! is 8 bits per key, and one search in forty is in vain. Smaller entries make it worse, larger ones better.
//!
//! # Invariants
//!
//! * No false negative: an insert has set its bits when it returns. The line is asked for before the node's place is
//!   searched, and is there when it is needed.
//! * Memory is untouched, and so costs nothing, until bits in it are set.
//!
//! # Threads
//!
//! Bits are set and read Relaxed. A read that must see an entry is told of it by something that the inserting thread
//! released after the insert (a visible sequence number, a joined thread), and that brings the bits along.
//!
//! # Rejected
//!
//! A hash index over the nodes (RocksDB's hash memtables) would find keys that are there, too, but costs as many bytes as
//! entries have pointers and must be ordered against the list for readers at old snapshots.

use std::sync::atomic::{AtomicU64, Ordering};

use situ_table::{filter_bits, filter_line};

use super::sync::prefetch;

/// How many bytes of entries there are to a byte of filter.
const BYTES_PER_FILTER_BYTE: u64 = 128;

/// The largest filter: four gigabytes of entries.
const BYTES_MAX: u64 = 32 << 20;

/// Words of a line, the unit that a key's bits are in: a cache line of most processors.
const LINE_WORDS: usize = 8;

/// How many bits a key sets: near the best for 6 to 10 bits per key.
const PROBES: u32 = 5;

/// See the [module](self).
pub(super) struct Filter {
    words: Box<[Word]>,
    /// The first word that lies at the beginning of a cache line.
    first: usize,
    lines: usize,
}

/// Of the standard library in a model, too: the filter's order is made by others (see the module), and loom would explore
/// every order of setting bits.
type Word = AtomicU64;

impl Filter {
    /// A filter for a memtable of about `memtable_bytes`.
    pub(super) fn new(memtable_bytes: u64) -> Filter {
        let bytes = (memtable_bytes / BYTES_PER_FILTER_BYTE).min(BYTES_MAX) as usize;
        let lines = (bytes / (LINE_WORDS * size_of::<Word>())).max(1);
        let words = zeroed((lines + 1) * LINE_WORDS);
        let address = words.as_ptr().addr();
        let line_bytes = LINE_WORDS * size_of::<Word>();
        let first = (address.next_multiple_of(line_bytes) - address) / size_of::<Word>();
        Filter { words, first, lines }
    }

    /// The memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * size_of::<Word>()
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> &[Word] {
        let line = filter_line(hash, self.lines);
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

    /// False if no key with this hash was inserted.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let line = self.line(hash);
        filter_bits(hash, PROBES).all(|(word, bit)| line[word].load(Ordering::Relaxed) & bit != 0)
    }
}

/// Words that are all zero, from pages that the system has not given yet if there are many.
fn zeroed(count: usize) -> Box<[Word]> {
    let words: Box<[u64]> = vec![0; count].into_boxed_slice();
    // SAFETY: an `AtomicU64` has the size and the valid values of a `u64`, and its alignment is checked below; the slice
    // and its allocation are passed on whole.
    unsafe { Box::from_raw(Box::into_raw(words) as *mut [Word]) }
}

const _: () = assert!(align_of::<Word>() == align_of::<u64>() && size_of::<Word>() == size_of::<u64>());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use situ_table::hash_key;

    fn hash(number: u64) -> u64 {
        hash_key(&number.to_be_bytes())
    }

    #[test]
    fn no_key_is_denied_and_few_are_taken_for_others() {
        let keys = if cfg!(miri) { 200 } else { 100_000 };
        // Eight bits per key.
        let filter = Filter::new(keys * BYTES_PER_FILTER_BYTE);
        (0..keys).for_each(|number| filter.insert(hash(number)));
        assert!((0..keys).all(|number| filter.may_contain(hash(number))));
        let wrong = (keys..2 * keys).filter(|number| filter.may_contain(hash(*number))).count() as u64;
        assert!(wrong * 25 < keys.max(2500), "{wrong} of {keys}");
    }

    #[test]
    fn lines_are_cache_lines_inside_the_memory_for_every_size() {
        for memtable_bytes in (0..100_000).step_by(if cfg!(miri) { 33_333 } else { 777 }) {
            let filter = Filter::new(memtable_bytes);
            for hash in [0, 0x7fff_ffff, u64::from(u32::MAX), u64::MAX] {
                assert_eq!(filter.line(hash).len(), LINE_WORDS);
                assert!(filter.line(hash).as_ptr().addr().is_multiple_of(64));
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
                scope.spawn(move || (0..50).for_each(|number| filter.insert(hash(thread * 1000 + number))));
            }
        });
        assert!((0..4).all(|thread| (0..50).all(|number| filter.may_contain(hash(thread * 1000 + number)))));
    }
}
