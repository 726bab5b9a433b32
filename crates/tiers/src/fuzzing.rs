//! The files that tie two disks together, of arbitrary bytes, for fuzzers (`fuzz/`) and the seeded test below. Only there
//! with the feature `fuzzing` and in tests.

use crate::members::{decode_any, samples};

/// Decodes a DISKS or MEMBER. The first byte asks for a right checksum behind the rest.
///
/// # Panics
/// The decoder does.
pub fn members(bytes: &[u8]) {
    let Some((control, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest).into_owned();
    decode_any(text, control & 1 == 1);
}

/// Returns inputs to begin with: files as they are written, and without their checksums.
pub fn corpus() -> Vec<Vec<u8>> {
    let with_control = |control: u8, text: &str| [&[control], text.as_bytes()].concat();
    let inputs = |text: &String| {
        let end = text.find("checksum ").unwrap_or(text.len());
        [with_control(0, text), with_control(1, &text[..end])]
    };
    samples().iter().flat_map(inputs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::{Rng, for_each_seed};

    /// Small damage: flips, pieces moved, doubled or cut out.
    fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[rng.index(inputs.len())].clone();
        for _ in 0..rng.below(6) {
            if bytes.is_empty() {
                break;
            }
            let (at, other) = (rng.index(bytes.len()), rng.index(bytes.len()));
            let length = (1 + rng.index(32)).min(bytes.len() - at.max(other));
            match rng.below(7) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
                2 => bytes.copy_within(at..at + length, other),
                3 => drop(bytes.drain(at..at + length)),
                4 => {
                    let piece = bytes[at..at + length].to_vec();
                    bytes.splice(other..other, piece);
                }
                5 => bytes.truncate(at),
                _ => rng.fill(&mut bytes[at..at + length]),
            }
        }
        bytes
    }

    #[test]
    fn promise_6_no_bytes_break_the_decoder() {
        let inputs = corpus();
        inputs.iter().for_each(|input| members(input));
        members(&[]);
        for_each_seed(0, 20_000, |seed| members(&mutate(&mut Rng::new(seed), &inputs)));
    }
}
