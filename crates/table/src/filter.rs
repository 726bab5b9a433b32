//! A Bloom filter in cache lines: a probe touches one.
//!
//! 1. A user key is hashed once per read, for all tables ([`hash_key`]).
//! 2. The hash's low half chooses a line of 512 bits by multiplication, without a division.
//! 3. The high half, multiplied by a constant again and again, gives the bits within the line.
//!
//! A line that happens to get many keys answers "maybe" more often. At 10 bits per key that raises the false positives
//! from 0.8 to 0.98 in a hundred (test `false_positives_stay_below_what_is_promised`), for one cache miss instead of
//! six.
//!
//! A table has one filter, read and pinned when the table is opened, in proportion to its keys (1 % of 100-byte
//! entries). Rejected: filters in partitions with an index of their own, which cost a second search and one more cache
//! lookup per probe. Tables are tens of megabytes, their filters at most some hundred kilobytes.
//!
//! **Invariants**: no false negative. **Failure**: a filter of unknown kind is corruption (the format's version would
//! have changed), never "no filter".

use crate::format::{BLOCK_TRAILER_BYTES, Damage};
use situ_base::bytes::{u32_at, u64_at};
use situ_storage::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// The kind of filter that this code writes.
pub const FILTER_BLOCKED_BLOOM: u8 = 1;
/// Bytes before a filter's lines: kind (1), probes (1), zeros (2), lines (4).
pub const FILTER_HEADER_BYTES: usize = 8;
/// Bytes of a line.
pub const FILTER_LINE_BYTES: usize = 64;
const LINE_WORDS: usize = FILTER_LINE_BYTES / 8;
/// More would not lower the false positives of a 512-bit line.
const PROBES_MAX: u8 = 16;
const GOLDEN: u32 = 0x9e37_79b9;
const FOR: &str = "the filter of a table";

/// Returns the hash for lookups in filters: XXH3, 64 bits, of the user key.
#[inline]
pub fn hash_key(user_key: &[u8]) -> u64 {
    xxh3_64(user_key)
}

/// A cache line of the filter.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

/// Returns the probes that give the fewest false positives in 512-bit lines (RocksDB's `FastLocalBloomImpl` measured
/// them).
fn probes_for(bits_per_key: u32) -> u8 {
    match bits_per_key {
        0..=2 => 1,
        3 => 2,
        4..=5 => 3,
        6 => 4,
        7..=8 => 5,
        9..=10 => 6,
        11 => 7,
        12..=14 => 8,
        15..=16 => 9,
        17..=20 => 11,
        21..=25 => 12,
        _ => PROBES_MAX,
    }
}

/// Words and bits within a line that a key with this hash sets, `probes` of them. Memtables' filters use them, too.
#[inline(always)]
pub fn filter_bits(hash: u64, probes: u32) -> impl Iterator<Item = (usize, u64)> {
    let mut bits = (hash >> 32) as u32;
    (0..probes).map(move |_| {
        let word_and_bit = ((bits >> 29) as usize, 1 << (bits >> 23 & 63));
        bits = bits.wrapping_mul(GOLDEN);
        word_and_bit
    })
}

/// Returns the line of `hash` among `lines`, which are fewer than 2^32.
#[inline]
pub fn filter_line(hash: u64, lines: usize) -> usize {
    (((hash & 0xffff_ffff) * lines as u64) >> 32) as usize
}

/// Collects the hashes of a table's keys: 8 bytes per key until the table is finished.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    hashes: Vec<u64>,
    bits_per_key: u32,
}

impl FilterBuilder {
    /// Creates a builder. With `bits_per_key` 0, it collects nothing and builds no filter.
    pub(crate) fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { hashes: Vec::new(), bits_per_key }
    }

    /// Adds a key; versions of one key come one after the other and are counted once.
    ///
    /// # Errors
    /// There is no memory for its hash. Nothing was added then.
    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8]) -> Result<()> {
        if self.bits_per_key > 0 {
            if self.hashes.try_reserve(1).is_err() {
                return Err(Error::out_of_memory(16 * self.hashes.len(), FOR));
            }
            self.hashes.push(hash_key(user_key));
        }
        Ok(())
    }

    /// Adds keys by their hashes, as [`add`](FilterBuilder::add) does by their bytes.
    ///
    /// # Errors
    /// There is no memory for them. Nothing was added then.
    pub(crate) fn add_hashes(&mut self, hashes: &[u64]) -> Result<()> {
        if self.bits_per_key > 0 {
            if self.hashes.try_reserve(hashes.len()).is_err() {
                return Err(Error::out_of_memory(8 * (self.hashes.len() + hashes.len()), FOR));
            }
            self.hashes.extend_from_slice(hashes);
        }
        Ok(())
    }

    fn lines_with(&self, more: usize) -> usize {
        let bits = (self.hashes.len() + more) as u64 * u64::from(self.bits_per_key);
        // Lines are chosen with 32 bits of the hash: more could not all be reached. 2^26 lines are 4 GiB.
        (bits.div_ceil(FILTER_LINE_BYTES as u64 * 8) as usize).min(1 << 25)
    }

    /// Returns the filter block's size if it were finished after this number of further keys; 0 if there will be none.
    pub(crate) fn finished_bytes_with(&self, more: usize) -> usize {
        match self.lines_with(more) {
            0 => 0,
            lines => FILTER_HEADER_BYTES + lines * FILTER_LINE_BYTES,
        }
    }

    /// Returns the filter block; `None` if there is nothing to filter.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn finish(&self) -> Result<Option<Vec<u8>>> {
        let count = self.lines_with(0);
        if count == 0 {
            return Ok(None);
        }
        let probes = probes_for(self.bits_per_key);
        let bytes = FILTER_HEADER_BYTES + count * FILTER_LINE_BYTES + BLOCK_TRAILER_BYTES;
        let (mut lines, mut block) = (Vec::new(), Vec::new());
        if lines.try_reserve_exact(count).is_err() || block.try_reserve_exact(bytes).is_err() {
            return Err(Error::out_of_memory(bytes, FOR));
        }
        lines.resize(count, Line([0; LINE_WORDS]));
        for hash in &self.hashes {
            let at = filter_line(*hash, lines.len());
            let line = &mut lines[at].0;
            filter_bits(*hash, u32::from(probes)).for_each(|(word, bit)| line[word] |= bit);
        }
        block.extend_from_slice(&[FILTER_BLOCKED_BLOOM, probes, 0, 0]);
        block.extend_from_slice(&(lines.len() as u32).to_le_bytes());
        for line in &lines {
            for word in line.0 {
                block.extend_from_slice(&word.to_le_bytes());
            }
        }
        Ok(Some(block))
    }
}

/// A table's filter, in memory.
#[derive(Debug)]
pub(crate) struct Filter {
    lines: Vec<Line>,
    probes: u8,
}

impl Filter {
    /// Takes a filter block apart.
    pub(crate) fn decode(block: &[u8]) -> Result<Filter, Damage> {
        let (Some(&[kind, probes, 0, 0]), Some(lines)) = (block.first_chunk::<4>(), block.get(FILTER_HEADER_BYTES..))
        else {
            return Err(Damage::new("a filter's header", format!("{:02x?}", &block[..block.len().min(8)])));
        };
        if kind != FILTER_BLOCKED_BLOOM || !(1..=PROBES_MAX).contains(&probes) {
            let expected = format!("a filter of kind {FILTER_BLOCKED_BLOOM} with 1 to {PROBES_MAX} probes");
            return Err(Damage::new(expected, format!("kind {kind} with {probes}")));
        }
        let count = u32_at(block, 4);
        if count == 0 || lines.len() as u64 != u64::from(count) * FILTER_LINE_BYTES as u64 {
            return Err(Damage::new(format!("{count} lines"), format!("{} bytes", lines.len())));
        }
        let lines = lines.chunks_exact(FILTER_LINE_BYTES).map(|line| {
            let mut words = [0; LINE_WORDS];
            words.iter_mut().enumerate().for_each(|(i, word)| *word = u64_at(line, 8 * i));
            Line(words)
        });
        Ok(Filter { lines: lines.collect(), probes })
    }

    /// Returns false if no key with this hash is in the table.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(Line(line)) = self.lines.get(filter_line(hash, self.lines.len())) else { return true };
        filter_bits(hash, u32::from(self.probes)).all(|(word, bit)| line[word] & bit != 0)
    }

    /// Returns the memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines.capacity() * FILTER_LINE_BYTES
    }
}

#[cfg(test)]
mod tests;
