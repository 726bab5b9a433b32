use super::*;
use crate::testing::{Contents, Entry, MemoryHost, numbered, plain_rules, task};
use situ_table::KeyKind;

fn sampled(text: &str) -> Vec<Sample> {
    let sample = |word: &str| {
        let (key, bytes) = word.split_once('=').unwrap();
        Sample { user_key: key.into(), bytes: bytes.parse().unwrap() }
    };
    text.split_whitespace().map(sample).collect()
}

/// What a person reviews: samples, the number of parts wanted, the cuts made.
const GOLDEN: &str = "
a=10 b=10 c=10 d=10            | 1 | ..(end)
a=10 b=10 c=10 d=10            | 2 | ..b b..(end)
a=10 b=10 c=10 d=10            | 4 | ..a a..b b..c c..(end)
a=10 b=10 c=10 d=10            | 9 | ..a a..b b..c c..(end)
a=10 c=10 e=10 b=10 d=10 f=10  | 3 | ..b b..d d..(end)
a=70 b=10 c=10 d=10            | 2 | ..a a..(end)
a=10 b=10 c=10 d=70            | 2 | ..(end)
m=10 m=10 m=10 m=10            | 4 | ..(end)
a=10 m=10 m=10 m=10 z=10       | 3 | ..m m..(end)
                               | 3 | ..(end)
";

#[test]
fn cuts_are_those_of_the_golden_text() {
    for line in GOLDEN.lines().filter(|line| !line.is_empty()) {
        let [samples, parts, expected] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let ranges = cut_samples(sampled(samples), parts.parse().unwrap());
        let shown = ranges.iter().map(|range| format!("{range:?}")).collect::<Vec<_>>().join(" ");
        assert_eq!(shown, expected, "{line}");
    }
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
    let entries_in = |range: &KeyRange| {
        let all = numbered(20_000, 2, 9).entries.into_iter().chain(numbered(10_000, 1, 5).entries);
        all.filter(|entry| range.contains(&entry.key)).count()
    };
    for range in &ranges {
        assert!(entries_in(range).abs_diff(5000) < 600, "{} entries in {range:?}", entries_in(range));
    }
}

#[test]
fn one_key_with_many_versions_is_one_part() {
    let host = MemoryHost::new();
    let entries = (0..5000).rev().map(|s| Entry::new("key", s, KeyKind::Put, "value")).collect();
    let task = task(&host, &[Contents { entries, tombstones: Vec::new() }], plain_rules());
    let ranges = cut(&task.inputs, 4, 1).unwrap();
    assert!(ranges.len() <= 2, "{ranges:?}");
}
