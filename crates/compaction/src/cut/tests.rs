//! Decisions as text: `testdata/cut/*.txt`.
//!
//! ```text
//! case: what it shows
//! samples: a=10 b=10        bytes up to each key
//! shares: 1 0 3             or parts: 4
//! min: 5                    0 unless it is said
//! ----
//! share 0: ..b, 10 bytes, 50.0% (25.0%)
//! ```

use super::*;
use crate::testing::{Contents, Entry, MemoryHost, golden, numbered, plain_rules, task};
use situ_table::KeyKind;

fn sampled(text: &str) -> Vec<Sample> {
    let sample = |word: &str| {
        let (key, bytes) = word.split_once('=').unwrap();
        Sample { user_key: key.into(), bytes: bytes.parse().unwrap() }
    };
    text.split_whitespace().map(sample).collect()
}

fn answer(question: &str) -> String {
    let (mut samples, mut shares, mut min_bytes) = (Vec::new(), Vec::new(), 0);
    for line in question.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim())).unwrap() {
            ("samples", value) => samples = sampled(value),
            ("shares", value) => shares = value.split_whitespace().map(|share| share.parse().unwrap()).collect(),
            ("parts", value) => shares = vec![1.0; value.parse().unwrap()],
            ("min", value) => min_bytes = value.parse().unwrap(),
            ("case", _) => {}
            (other, _) => panic!("{other}"),
        }
    }
    let (shares, total) = (proportions(&shares), samples.iter().map(|sample| sample.bytes).sum::<u64>());
    let parts = cut_samples(samples, &shares, min_bytes);
    check(&parts, total, min_bytes);
    let percent = |of_one: f64| format!("{:.1}%", of_one * 100.0);
    let line = |part: &Cut| {
        let (found, wanted) = (percent(part.bytes as f64 / total.max(1) as f64), percent(shares[part.share]));
        format!("share {}: {:?}, {} bytes, {found} ({wanted})\n", part.share, part.range, part.bytes)
    };
    parts.iter().map(line).collect()
}

/// What holds of any cut.
fn check(parts: &[Cut], total: u64, min_bytes: u64) {
    assert!(parts[0].range.lower.is_none() && parts[parts.len() - 1].range.upper.is_none());
    assert!(parts.windows(2).all(|pair| pair[0].range.upper.is_some() && pair[0].range.upper == pair[1].range.lower));
    assert!(parts.windows(2).all(|pair| pair[0].share < pair[1].share));
    assert!(parts.len() == 1 || parts.iter().all(|part| part.bytes > 0 && part.bytes * 2 >= min_bytes));
    assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), total);
}

#[test]
fn cuts_are_those_of_the_golden_files() {
    golden("cut", answer);
}

#[test]
fn any_samples_and_shares_give_ranges_without_gaps() {
    crate::testing::with_seeds(300, |rng| {
        let mut sample = |_| {
            let (key, scale) = (rng.below(30) as u8, 1 + rng.below(12));
            Sample { user_key: vec![key], bytes: 1 + rng.below(1 << scale) }
        };
        let samples: Vec<Sample> = (0..30).map(&mut sample).collect();
        let shares: Vec<f64> = (0..1 + rng.below(6)).map(|_| rng.below(5) as f64).collect();
        let total = samples.iter().map(|sample| sample.bytes).sum();
        let min_bytes = rng.below(200);
        let parts = cut_samples(samples, &proportions(&shares), min_bytes);
        check(&parts, total, min_bytes);
    });
}

#[test]
fn parts_are_no_smaller_than_asked() {
    assert_eq!(part_count(1000, 8, 100), 8);
    assert_eq!(part_count(1000, 8, 300), 3);
    assert_eq!(part_count(1000, 8, 5000), 1);
    assert_eq!(part_count(1000, 0, 0), 1);
}

#[test]
fn parts_of_tables_have_about_equal_bytes() {
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(20_000, 2, 9), numbered(10_000, 1, 5)], plain_rules());
    let ranges = cut(&task.inputs, 4, 1000).unwrap();
    assert_eq!(ranges.len(), 4);
    assert!(ranges[0].lower.is_none() && ranges[3].upper.is_none());
    assert!(ranges.windows(2).all(|pair| pair[0].upper.is_some() && pair[0].upper == pair[1].lower));
    for range in &ranges {
        assert!(entries_in(range).abs_diff(5000) < 600, "{} entries in {range:?}", entries_in(range));
    }
}

fn entries_in(range: &KeyRange) -> usize {
    let all = numbered(20_000, 2, 9).entries.into_iter().chain(numbered(10_000, 1, 5).entries);
    all.filter(|entry| range.contains(&entry.key)).count()
}

#[test]
fn parts_of_tables_have_the_shares_that_were_asked_for() {
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(20_000, 2, 9), numbered(10_000, 1, 5)], plain_rules());
    for shares in [vec![0.5, 0.5], vec![0.9, 0.1], vec![0.03, 0.97], vec![0.2, 0.0, 0.3, 0.5]] {
        let parts = cut_shares(&task.inputs, &shares, 1000).unwrap();
        assert_eq!(parts.len(), shares.iter().filter(|share| **share > 0.0).count());
        for part in parts {
            let (found, wanted) = (entries_in(&part.range) as f64 / 20_000.0, shares[part.share]);
            assert!((found - wanted).abs() < 0.01, "{found} of {shares:?} in {:?}", part.range);
        }
    }
    let whole = cut_shares(&task.inputs, &[0.0, 1.0], 1000).unwrap();
    assert_eq!((whole.len(), whole[0].share, &whole[0].range), (1, 1, &KeyRange::all()));
    assert_eq!(cut_shares(&task.inputs, &[0.0, f64::NAN], 1000).unwrap().len(), 1);
}

#[test]
fn one_key_with_many_versions_is_one_part() {
    let host = MemoryHost::new();
    let entries = (0..5000).rev().map(|s| Entry::new("key", s, KeyKind::Put, "value")).collect();
    let task = task(&host, &[Contents { entries, tombstones: Vec::new() }], plain_rules());
    let ranges = cut(&task.inputs, 4, 1).unwrap();
    assert!(ranges.len() <= 2, "{ranges:?}");
}
