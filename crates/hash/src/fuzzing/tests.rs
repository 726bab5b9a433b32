//! The fuzzers' bodies on mutations of real inputs, seeded: what runs without a fuzzer.

use super::*;
use situ_sim::{Rng, for_each_seed};

/// Small damage of the kinds that find bugs. Most of a page is zeros, so changes fall on its front.
fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs[rng.index(inputs.len())].clone();
    for _ in 0..1 + rng.below(4) {
        let page = rng.index(bytes.len().div_ceil(4096)) * 4096;
        let within = if rng.chance(0.8) { 100 } else { 4096 };
        let at = (page + rng.index(within)).min(bytes.len() - 1);
        match rng.below(5) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
            2 => bytes[at] = rng.next_u64() as u8,
            3 => bytes[at] = bytes[rng.index(bytes.len())],
            _ if rng.chance(0.1) => bytes.truncate(at + 1),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    bytes
}

#[test]
fn promise_6_no_bytes_break_a_decoder_of_the_hash_store() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        inputs.iter().for_each(|input| target(input));
        target(&[]);
        for_each_seed(0, 6000, |seed| target(&mutate(&mut Rng::new(seed), &inputs)));
    }
}

/// If sealing missed a checksum, the fuzzers would not get past it.
#[test]
fn sealed_buckets_get_past_the_checksum() {
    let mut rng = Rng::new(1);
    let sound = block(4);
    let opened = (0..200).filter(|_| {
        let mut damaged = sound.clone();
        damaged[8 + rng.index(4)] ^= 1 << rng.below(8);
        assert!(codec().open(NUMBER, &damaged).is_err(), "a flipped bit of the sequence number is found");
        seal_bucket(&mut damaged);
        codec().open(NUMBER, &damaged).is_ok()
    });
    assert_eq!(opened.count(), 200);
}
