use super::*;
use crate::testing::{MemoryReader, Random, build};
use crate::{Compression, TableOptions, Trailer};

struct Sample {
    bytes: Vec<u8>,
    entries: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    tombstones: usize,
}

/// A table of several data blocks; with `index_block_bytes` small, with several index blocks too.
fn sample(seed: u64, index_block_bytes: usize, tombstones: usize) -> Sample {
    let mut random = Random(seed);
    let options = TableOptions {
        block_bytes: 120,
        index_block_bytes,
        restart_interval: 1 + random.below(4),
        compression: [Compression::None, Compression::Lz4][random.below(2)],
        ..TableOptions::default()
    };
    let mut entries = Vec::new();
    for n in 0..60 {
        for version in (0..1 + random.below(2) as u64).rev() {
            let kind = [KeyKind::Put, KeyKind::Delete][usize::from(random.below(5) == 0)];
            // Values of twelve bytes look like handles.
            let bytes = [0, 12, random.below(60)][random.below(3)];
            let value = if kind == KeyKind::Put { vec![random.below(3) as u8; bytes] } else { Vec::new() };
            entries.push((format!("key{n:03}").into_bytes(), Trailer::new(10 + version, kind), value));
        }
    }
    let list = entries.iter().map(|(key, trailer, value)| (KeyRef::new(key, *trailer), &value[..]));
    let ranges: [(&[u8], u64, &[u8]); 2] = [(b"key010", 5, b"key020"), (b"key030", 7, b"key031")];
    let (bytes, _) = build(&options, list, &ranges[..tombstones]);
    Sample { bytes, entries, tombstones }
}

/// Salvages and checks what holds for every damage: nothing is invented, and what is missing is reported.
fn check(sample: &Sample, bytes: Vec<u8>, what: &str) -> (Salvaged, usize) {
    let reader = MemoryReader::new(bytes);
    let mut found = Vec::new();
    let salvaged = salvage(&*reader, &mut |key, value| {
        found.push((key.user.to_vec(), key.trailer, value.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(found.len() as u64, salvaged.entries);
    let mut rest = found.iter().peekable();
    let mut missing = 0;
    for entry in &sample.entries {
        if rest.peek() == Some(&entry) {
            rest.next();
            continue;
        }
        missing += 1;
        let inside = |lost: &&LostKeys| {
            lost.after.as_ref().is_none_or(|after| *after <= entry.0)
                && lost.before.as_ref().is_none_or(|before| entry.0 <= *before)
        };
        assert!(salvaged.lost.iter().any(|lost| inside(&lost)), "{what}: {entry:?} is lost in silence: {salvaged:?}");
    }
    assert_eq!(rest.next(), None, "{what}: invented or out of order");
    if let Some(tombstones) = &salvaged.range_tombstones {
        assert_eq!(tombstones.len(), sample.tombstones, "{what}: {salvaged:?}");
    }
    (salvaged, missing)
}

fn samples() -> impl Iterator<Item = Sample> {
    [(1, 4096, 0), (2, 4096, 2), (3, 100, 0), (4, 100, 2), (5, 100, 1)].into_iter().map(|(s, i, t)| sample(s, i, t))
}

#[test]
fn a_sound_table_is_handed_out_whole() {
    for sample in samples() {
        let (salvaged, missing) = check(&sample, sample.bytes.clone(), "sound");
        assert!(salvaged.damages.is_empty() && salvaged.lost.is_empty(), "{salvaged:?}");
        assert_eq!(missing, 0);
        assert!(salvaged.properties.is_some() && salvaged.range_tombstones.is_some());
    }
}

/// Promise 6, and what a repair relies on: one damaged place costs one block at most.
#[test]
fn promise_6_any_flipped_bit_is_found_and_costs_one_block_at_most() {
    for (number, sample) in samples().enumerate() {
        for at in 0..sample.bytes.len() {
            let mut bytes = sample.bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            let what = format!("sample {number}, bit at {at}");
            let (salvaged, missing) = check(&sample, bytes, &what);
            assert!(!salvaged.damages.is_empty(), "{what}: not found");
            assert!(missing <= 30, "{what}: {missing} entries lost, {salvaged:?}");
            assert!(salvaged.lost.len() <= 1, "{what}: {salvaged:?}");
        }
    }
}

#[test]
fn a_table_cut_off_anywhere_gives_what_is_before_the_cut() {
    for sample in samples() {
        let mut before = usize::MAX;
        for cut in 0..sample.bytes.len() {
            let (salvaged, missing) = check(&sample, sample.bytes[..cut].to_vec(), &format!("cut at {cut}"));
            assert!(!salvaged.damages.is_empty(), "cut at {cut}");
            assert!(missing <= before, "cut at {cut}: fewer entries than from a shorter file");
            before = missing;
        }
        assert_eq!(before, 0);
    }
}

#[test]
fn arbitrary_bytes_do_no_harm() {
    let mut random = Random::seeded(9);
    for _ in 0..300 {
        let length = random.below(400);
        let reader = MemoryReader::new(random.bytes(length));
        let salvaged = salvage(&*reader, &mut |_, _| Ok(())).unwrap();
        assert_eq!(salvaged.entries, 0);
        assert!(!salvaged.damages.is_empty() && !salvaged.lost.is_empty());
    }
    for sample in samples() {
        for _ in 0..300 {
            let mut bytes = sample.bytes.clone();
            for _ in 0..1 + random.below(6) {
                let (at, length) = (random.below(bytes.len()), 1 + random.below(100));
                let end = (at + length).min(bytes.len());
                bytes[at..end].fill(random.next() as u8);
            }
            check(&sample, bytes, "several damages");
        }
    }
}
