//! Which bucket a key lies in: linear hashing.
//!
//! The hash of a key is the XXH3-64 of the key with the store's seed. A [`State`] says how many buckets there are:
//!
//! ```text
//!  buckets   0 ..... split ........ round ........ round + split        round = base * 2^level
//!           | split  |  not split   |  the new ones  |
//!             one more bit of the hash decides between bucket b and bucket b + round
//! ```
//!
//! 1. The lowest `log2(round)` bits of the hash name a bucket.
//! 2. If that bucket is split already (its number is below `split`), one more bit decides: it stays, or it is `round`
//!    further.
//! 3. A [`Step`] splits the buckets from `split` on, one by one. At the end of a round, `level` grows and `split` is 0
//!    again. Shrinking is the reverse.
//!
//! **Overflow keys** begin with the hash, its bits reversed, big-endian. So keys of one bucket lie next to each other,
//! in one contiguous range, whatever the level is: the bits that decide about the bucket come first.
//!
//! **Rejected.** Partial expansions keep buckets fuller, but the entries of one bucket come from two or three others,
//! and the overflow would have no contiguous ranges. [`partial`] has them for comparison only.

pub mod partial;

use std::fmt;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most bits of a hash that name a bucket: 2^48 buckets are 2^60 bytes.
pub const BUCKET_BITS_MAX: u32 = 48;

/// Bytes of the hash before the key in an overflow key.
pub const OVERFLOW_PREFIX_BYTES: usize = 8;

/// Returns the hash of a key in a store that has this seed.
#[inline]
pub fn hash_of(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The number of buckets, and the mapping of hashes to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    base_bits: u8,
    level: u8,
    split: u64,
}

impl State {
    /// Makes a state of 2^`base_bits` buckets, of which none is split. A store never has fewer.
    ///
    /// # Panics
    /// More than [`BUCKET_BITS_MAX`] bits.
    pub fn new(base_bits: u8) -> State {
        State::from_parts(base_bits, 0, 0).expect("as many bits as a state may have")
    }

    /// Returns the state with these parts; none if they do not fit together.
    pub fn from_parts(base_bits: u8, level: u8, split: u64) -> Option<State> {
        let bits = u32::from(base_bits) + u32::from(level);
        let fits = bits <= BUCKET_BITS_MAX && split < 1 << bits && (split == 0 || bits < BUCKET_BITS_MAX);
        fits.then_some(State { base_bits, level, split })
    }

    /// Returns log2 of the fewest buckets that the store ever has.
    pub fn base_bits(&self) -> u8 {
        self.base_bits
    }

    /// Returns the number of times that the count of buckets has doubled.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns the first bucket that is not split in this round.
    pub fn split(&self) -> u64 {
        self.split
    }

    /// Returns log2 of the buckets at the beginning of this round.
    fn bits(&self) -> u32 {
        u32::from(self.base_bits) + u32::from(self.level)
    }

    /// Returns the number of buckets at the beginning of this round.
    pub fn round(&self) -> u64 {
        1 << self.bits()
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        self.round() + self.split
    }

    /// Returns the bucket of a hash.
    #[inline]
    pub fn bucket_of(&self, hash: u64) -> u64 {
        let round = self.round();
        let bucket = hash & (round - 1);
        if bucket < self.split { hash & (2 * round - 1) } else { bucket }
    }

    /// Returns the number of bits of a hash that decide that it belongs to `bucket`.
    ///
    /// # Panics
    /// There is no such bucket.
    pub fn bits_of(&self, bucket: u64) -> u32 {
        assert!(bucket < self.buckets(), "bucket {bucket} of {self}");
        let is_split = bucket < self.split || bucket >= self.round();
        self.bits() + u32::from(is_split)
    }

    /// Returns the next buckets to split: at most `buckets_max` of them, and none of another round. None if the store
    /// has as many buckets as it can have.
    pub fn grow(&self, buckets_max: u64) -> Option<Step> {
        if self.bits() >= BUCKET_BITS_MAX {
            return None;
        }
        let round = self.round();
        let end = self.split.saturating_add(buckets_max.max(1)).min(round);
        let after = if end == round {
            State { level: self.level + 1, split: 0, ..*self }
        } else {
            State { split: end, ..*self }
        };
        Some(Step { low: self.split..end, distance: round, fewer: *self, more: after })
    }

    /// Returns the last buckets to be split, which can be merged again: at most `buckets_max` of them, and none of
    /// another round. None if the store has as few buckets as it can have.
    pub fn shrink(&self, buckets_max: u64) -> Option<Step> {
        let (level, end) = match (self.level, self.split) {
            (0, 0) => return None,
            (level, 0) => (level - 1, self.round() / 2),
            (level, split) => (level, split),
        };
        let before = State { level, split: end.saturating_sub(buckets_max.max(1)), ..*self };
        Some(Step { low: before.split..end, distance: before.round(), fewer: before, more: *self })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { base_bits, level, split } = self;
        write!(f, "2^{base_bits} buckets at level {level}, split up to bucket {split}")
    }
}

/// Some buckets, next to each other, that are split or merged together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The buckets that are split, or that others are merged into.
    pub low: Range<u64>,
    /// The other half of bucket b is bucket b + `distance`.
    pub distance: u64,
    /// The state with these buckets whole: before a split, after a merge.
    pub fewer: State,
    /// The state with these buckets split: after a split, before a merge.
    pub more: State,
}

impl Step {
    /// Returns the buckets that are new in a split, and gone after a merge.
    pub fn high(&self) -> Range<u64> {
        self.low.start + self.distance..self.low.end + self.distance
    }

    /// Returns each bucket with the one that it is split into, or merged with.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let distance = self.distance;
        self.low.clone().map(move |low| (low, low + distance))
    }

    /// Returns true if `bucket` is one of those that change.
    pub fn touches(&self, bucket: u64) -> bool {
        self.low.contains(&bucket) || self.high().contains(&bucket)
    }
}

/// Returns the first bytes of the overflow key of any key with this hash.
#[inline]
pub fn overflow_prefix(hash: u64) -> [u8; OVERFLOW_PREFIX_BYTES] {
    hash.reverse_bits().to_be_bytes()
}

/// Returns the key of an entry in the overflow.
pub fn overflow_key(hash: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OVERFLOW_PREFIX_BYTES + key.len());
    bytes.extend_from_slice(&overflow_prefix(hash));
    bytes.extend_from_slice(key);
    bytes
}

/// Returns the hash and the key that make up an overflow key; none if the bytes are too few.
pub fn split_overflow_key(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (prefix, key) = bytes.split_first_chunk::<OVERFLOW_PREFIX_BYTES>()?;
    Some((u64::from_be_bytes(*prefix).reverse_bits(), key))
}

/// The range of the overflow keys of one bucket: from `begin` on, and before `end` if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverflowRange {
    /// The first possible key.
    pub begin: [u8; OVERFLOW_PREFIX_BYTES],
    /// Behind every possible key; none: the range goes to the end of all keys.
    pub end: Option<[u8; OVERFLOW_PREFIX_BYTES]>,
}

impl OverflowRange {
    /// Returns true if an overflow key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.begin[..] && self.end.is_none_or(|end| key < &end[..])
    }
}

/// Returns the range of the overflow keys of `bucket`.
///
/// # Panics
/// There is no such bucket.
pub fn overflow_range(bucket: u64, state: &State) -> OverflowRange {
    let bits = state.bits_of(bucket);
    let begin = bucket.reverse_bits();
    let end = 1u64.checked_shl(u64::BITS - bits).and_then(|length| begin.checked_add(length));
    OverflowRange { begin: begin.to_be_bytes(), end: end.map(u64::to_be_bytes) }
}

#[cfg(test)]
mod tests;
