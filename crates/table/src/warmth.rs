//! The way of warmth from the input blocks of a merge to its output blocks.
//!
//! 1. A sequential cursor asks the cache how warm a block is when it enters the block.
//! 2. When an output block ends, the merge asks its inputs how many bytes of warm blocks they have read. The bytes read
//!    up to the end of the block before are taken off.
//! 3. The output block is warm if warm input bytes are a quarter of it. Its warmth is the mean of theirs, less one:
//!    entries that are not read any more do not go from table to table for ever.
//!
//! So warmth costs something for each block, and nothing for an entry. Entries that the merge drops count, too: a
//! version that hides a warm one is likely to be read as well.

use std::iter::Sum;
use std::ops::{Add, Sub};

/// A block goes into the cache if one in this many of its bytes is warm.
const WARM_PART: u64 = 4;

/// The number of bytes that a reader has read of blocks that are warm in the cache. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmBytes {
    bytes: u64,
    /// Each byte times the warmth of its block.
    weighted: u64,
}

impl WarmBytes {
    /// Counts `bytes` bytes of a block of this [warmth](crate::TableCursor::warmth).
    #[inline]
    pub fn of_block(bytes: u64, warmth: u8) -> WarmBytes {
        let bytes = if warmth > 0 { bytes } else { 0 };
        WarmBytes { bytes, weighted: bytes * u64::from(warmth) }
    }

    /// Returns the warmth of an output block of this length that was made meanwhile, if it is to be in the cache.
    pub(crate) fn of_output(self, block_bytes: usize) -> Option<u8> {
        let is_warm = self.bytes > 0 && self.bytes >= block_bytes as u64 / WARM_PART;
        is_warm.then(|| (self.weighted.div_ceil(self.bytes) as u8).saturating_sub(1))
    }
}

impl Add for WarmBytes {
    type Output = WarmBytes;

    fn add(self, other: WarmBytes) -> WarmBytes {
        WarmBytes { bytes: self.bytes + other.bytes, weighted: self.weighted + other.weighted }
    }
}

impl Sub for WarmBytes {
    type Output = WarmBytes;

    /// Returns the bytes read since `earlier`, which is never ahead.
    fn sub(self, earlier: WarmBytes) -> WarmBytes {
        WarmBytes {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            weighted: self.weighted.saturating_sub(earlier.weighted),
        }
    }
}

impl Sum for WarmBytes {
    fn sum<I: Iterator<Item = WarmBytes>>(all: I) -> WarmBytes {
        all.fold(WarmBytes::default(), WarmBytes::add)
    }
}

#[cfg(test)]
mod tests {
    use super::WarmBytes;

    #[test]
    fn a_quarter_makes_a_block_warm_with_the_mean_less_one() {
        let read = |parts: &[(u64, u8)]| parts.iter().map(|(bytes, warmth)| WarmBytes::of_block(*bytes, *warmth)).sum();
        let warmth = |parts: &[(u64, u8)]| WarmBytes::of_output(read(parts), 4000);
        assert_eq!(warmth(&[(4000, 0)]), None);
        assert_eq!((warmth(&[(999, 3)]), warmth(&[(1000, 3)])), (None, Some(2)));
        assert_eq!((warmth(&[(4000, 1)]), warmth(&[(4000, 2)])), (Some(0), Some(1)));
        assert_eq!(warmth(&[(2000, 3), (2000, 1), (9000, 0)]), Some(1));
        assert_eq!(warmth(&[(1000, 3), (3000, 2)]), Some(2), "the mean is rounded up");
        assert_eq!(
            (read(&[(5, 3)]) - read(&[(2, 3)]), read(&[(2, 3)]) - read(&[(5, 3)])),
            (read(&[(3, 3)]), read(&[]))
        );
    }
}
