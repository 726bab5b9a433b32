//! The fuzzers' bodies on mutations of real inputs, seeded: what runs without a fuzzer.

use super::*;
use situ_sim::{Rng, for_each_seed};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Small damage of the kinds that find bugs: flips, extreme numbers, pieces moved, doubled, cut out or from elsewhere.
fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = inputs[rng.index(inputs.len())].clone();
    for _ in 0..rng.below(6) {
        if bytes.is_empty() {
            break;
        }
        let (at, other) = (rng.index(bytes.len()), rng.index(bytes.len()));
        let length = (1 + rng.index(32)).min(bytes.len() - at.max(other));
        match rng.below(9) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
            2 => {
                let number = [0, 1, u32::MAX, 1 << 31, 4096][rng.index(5)].to_le_bytes();
                bytes.iter_mut().skip(at).zip(number).for_each(|(byte, new)| *byte = new);
            }
            3 => bytes.copy_within(at..at + length, other),
            4 => drop(bytes.drain(at..at + length)),
            5 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(other..other, piece);
            }
            6 => {
                let from = &inputs[rng.index(inputs.len())];
                let start = rng.index(from.len() + 1);
                let piece = from[start..from.len().min(start + 32)].to_vec();
                bytes.splice(at..at, piece);
            }
            7 => bytes.truncate(at),
            _ => rng.fill(&mut bytes[at..at + length]),
        }
    }
    bytes
}

fn hammer(name: &str, target: fn(&[u8]), rounds: u64) {
    let inputs = corpus(name);
    assert!(!inputs.is_empty());
    inputs.iter().for_each(|input| target(input));
    target(&[]);
    for_each_seed(0, rounds, |seed| {
        let input = mutate(&mut Rng::new(seed), &inputs);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!("target {name}, seed {seed}");
            resume_unwind(panic);
        }
    });
}

#[test]
fn promise_6_no_bytes_break_a_decoder() {
    for (name, target) in TARGETS {
        let rounds = match name {
            "log" | "table" => 2000,
            _ => 6000,
        };
        hammer(name, target, rounds);
    }
}

/// If sealing missed a checksum, the fuzzers would not get past it.
#[test]
fn sealed_inputs_get_past_the_checksums() {
    let mut rng = Rng::new(1);
    let opened = |name: &str, open: fn(&[u8]) -> bool, rng: &mut Rng| {
        let inputs: Vec<Vec<u8>> = corpus(name).into_iter().filter(|input| input[0] & 1 == 1).collect();
        (0..200)
            .filter(|_| {
                let mut input = inputs[rng.index(inputs.len())].clone();
                // A change behind the control byte, anywhere.
                let at = 1 + rng.index(input.len() - 1);
                input[at] ^= 1 << rng.below(8);
                open(&input)
            })
            .count()
    };
    let table = |input: &[u8]| {
        let mut bytes = input[1..].to_vec();
        seal_table(&mut bytes);
        let volume = volume();
        volume.set_contents(FileName::Table(1), &bytes);
        Table::open(volume.open(FileName::Table(1)).unwrap(), 1, BlockCache::new(0)).is_ok()
    };
    let page = |input: &[u8]| {
        let mut bytes = input[1..].to_vec();
        bytes.chunks_mut(PAGE_BYTES).for_each(seal_page);
        let volume = volume();
        volume.set_contents(FileName::Log(5), &bytes);
        let pages = inspect(&volume, 5).unwrap();
        pages.into_iter().all(|page| !matches!(page.unwrap().state, situ_log::PageState::Rotten(..)))
    };
    let (tables, pages) = (opened("table", table, &mut rng), opened("log", page, &mut rng));
    assert!(tables > 100, "only {tables} of 200 sealed tables open");
    assert!(pages > 190, "{} of 200 sealed logs have a page with a wrong checksum", 200 - pages);
}

/// The inputs used to come from a store with threads of its own: a failing seed met other bytes in the next run.
#[test]
fn the_inputs_are_the_same_in_each_run() {
    for (name, _) in TARGETS {
        let inputs = corpus(name);
        for _ in 0..5 {
            assert!(inputs == corpus(name), "{name}");
        }
    }
}
