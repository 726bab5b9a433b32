//! Buckets for numbers that span many powers of two.
//!
//! Each power has 2^`BITS` buckets, so a number is known within 1/2^`BITS`.

/// The mapping from numbers to buckets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buckets<const BITS: u32>;

impl<const BITS: u32> Buckets<BITS> {
    /// Returns how many buckets there are for numbers of at most `bits` bits.
    pub const fn count(bits: u32) -> usize {
        ((bits - BITS + 1) as usize) << BITS
    }

    /// Returns the bucket of a number: its highest `BITS` + 1 bits and where they are.
    #[inline]
    pub const fn of(number: u64) -> usize {
        if number < 1 << BITS {
            return number as usize;
        }
        let shift = 63 - number.leading_zeros() - BITS;
        (((shift + 1) as usize) << BITS) + ((number >> shift) as usize & ((1 << BITS) - 1))
    }

    const fn shift(bucket: usize) -> u32 {
        ((bucket >> BITS) as u32).saturating_sub(1)
    }

    /// Returns the smallest number of a bucket.
    pub const fn begin(bucket: usize) -> u64 {
        match bucket < 1 << BITS {
            true => bucket as u64,
            false => ((1 << BITS) + (bucket as u64 & ((1 << BITS) - 1))) << Self::shift(bucket),
        }
    }

    /// Returns the largest number of a bucket.
    pub const fn end(bucket: usize) -> u64 {
        Self::begin(bucket) + ((1 << Self::shift(bucket)) - 1)
    }
}

/// Returns the bucket that has the number of this rank, from 1 on, or none if fewer were counted.
pub fn bucket_at(counts: &[u64], rank: u64) -> Option<usize> {
    let mut seen = 0;
    counts.iter().position(|count| {
        seen += count;
        seen >= rank
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_numbers_and_are_narrow() {
        type Fine = Buckets<5>;
        assert_eq!(
            (Fine::of(0), Fine::of(u64::MAX), Fine::end(Fine::count(64) - 1)),
            (0, Fine::count(64) - 1, u64::MAX)
        );
        assert_eq!(Fine::of((1 << 36) - 1), Fine::count(36) - 1);
        for bucket in 0..Fine::count(64) - 1 {
            let (begin, end) = (Fine::begin(bucket), Fine::end(bucket));
            assert_eq!((Fine::of(begin), Fine::of(end), Fine::begin(bucket + 1)), (bucket, bucket, end + 1));
            assert!(end - begin <= begin / 32);
        }
    }

    #[test]
    fn a_rank_lies_in_the_bucket_that_reaches_it() {
        let at = [1, 3, 4, 5].map(|rank| bucket_at(&[0, 2, 0, 2], rank));
        assert_eq!(at, [Some(1), Some(3), Some(3), None]);
    }
}
