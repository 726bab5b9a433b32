//! A small seeded generator: the only source of chance in a simulation.
//!
//! xoshiro256++ (Blackman and Vigna, 2019), its state filled from the seed by splitmix64, as its authors advise. It is
//! written out here because a replay must give the same numbers in ten years: a library is free to change its stream.

/// A deterministic stream of numbers. Equal seeds give equal streams, on every machine and in every version.
///
/// ```
/// let mut a = situ_sim::Rng::new(7);
/// let mut b = situ_sim::Rng::new(7);
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(6) < 6);
/// ```
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Creates a generator at the start of the stream of `seed`.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        let mut splitmix = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Rng { state: [splitmix(), splitmix(), splitmix(), splitmix()] }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number in `0..n`. The bias, below `n / 2^64`, does not matter for tests.
    ///
    /// # Panics
    /// `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns an index in `0..n`: [`below`](Rng::below) for slices.
    ///
    /// # Panics
    /// `n` is zero.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns true with probability `p` (0.0 never, 1.0 always).
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 random bits fill a double's mantissa; the result is below 1.
        ((self.next_u64() >> 11) as f64) * (1.0 / (1u64 << 53) as f64) < p
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }

    /// Overwrites `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&random[..piece.len()]);
        }
    }

    /// Returns a generator of its own, so that what one part draws does not move the stream of another.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_fixed_for_ever() {
        let mut rng = Rng::new(0);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [5_987_356_902_031_041_503, 7_051_070_477_665_621_255, 6_633_766_593_972_829_180]);
    }

    #[test]
    fn numbers_spread_over_their_range() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.index(10)] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| rng.chance(0.25)).count();
        assert!((2200..2800).contains(&hits), "{hits}");
        assert!(!rng.chance(0.0));
        assert!(rng.chance(1.0));
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut rng = Rng::new(4);
        let mut items: Vec<u32> = (0..100).collect();
        rng.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
