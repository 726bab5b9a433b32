//! Fuzz targets for everything that the cache reads back, for fuzzers (`fuzz/`) and the seeded tests below. Compiled
//! only in tests and with the feature `fuzzing`.
//!
//! A target encodes again what a decoder accepted, and expects the same bytes. So every value has one encoding, and
//! every byte counts.

pub use crate::flash::fuzzing::flash;
pub use crate::flash::journal::fuzzing::journal;

/// A fuzz target and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 2] = [("cache_flash", flash), ("cache_journal", journal)];

/// Returns the seed corpus of a target, made by the real encoders.
///
/// # Panics
/// There is no such target.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    match target {
        "cache_flash" => crate::flash::fuzzing::corpus(),
        "cache_journal" => crate::flash::journal::fuzzing::corpus(),
        _ => panic!("no target {target}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::{Rng, for_each_seed};

    /// Small damage of the kinds that find bugs.
    fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[rng.index(inputs.len())].clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.index(bytes.len());
            match rng.below(6) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
                2 => bytes[at] = rng.next_u64() as u8,
                3 => bytes[at] = bytes[rng.index(bytes.len())],
                4 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                _ if rng.chance(0.1) => bytes.truncate(at + 1),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
        }
        bytes
    }

    #[test]
    fn promise_6_no_bytes_break_a_decoder_of_the_cache() {
        for ((name, target), count) in TARGETS.into_iter().zip([300, 6000]) {
            let inputs = corpus(name);
            inputs.iter().for_each(|input| target(input));
            target(&[]);
            for_each_seed(0, count, |seed| target(&mutate(&mut Rng::new(seed), &inputs)));
        }
    }
}
