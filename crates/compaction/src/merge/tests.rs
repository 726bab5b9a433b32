use super::*;
use crate::testing::{Entry, Rng, VecSource, sort, with_seeds};
use situ_table::{KeyKind, Trailer};

fn drain(mut merge: Merge<VecSource>) -> Vec<Entry> {
    let mut all = Vec::new();
    while merge.valid() {
        let key = merge.key();
        all.push(Entry { key: key.user.to_vec(), trailer: key.trailer, value: merge.value().to_vec() });
        merge.advance().unwrap();
    }
    all
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let mut key = b"pre".to_vec();
    // Around the 8 bytes of the cached prefix: shorter, equal, longer, zeros and 0xff at the end.
    for _ in 0..rng.below(12) {
        key.push([0, 1, b'x', 0xff, 0xff][rng.below(5) as usize]);
    }
    key
}

#[test]
fn any_number_of_sources_come_out_sorted() {
    with_seeds(400, |rng| {
        let sources = rng.below(10) as usize;
        let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); sources];
        let mut all = Vec::new();
        for sequence in 0..rng.below(80) {
            if sources == 0 {
                break;
            }
            let key = random_key(rng);
            let entry =
                Entry { key, trailer: Trailer::new(sequence, KeyKind::Put), value: sequence.to_le_bytes().to_vec() };
            lists[rng.below(sources as u64) as usize].push(entry.clone());
            all.push(entry);
        }
        sort(&mut all);
        let shared = rng.below(4) as usize;
        let sources = lists.into_iter().map(|mut list| {
            sort(&mut list);
            VecSource::new(list)
        });
        assert_eq!(drain(Merge::new(sources.collect(), shared)), all);
    });
}

#[test]
fn equal_internal_keys_come_from_the_newer_run_first() {
    for count in 1..9usize {
        let source = |i: usize| VecSource::new(vec![Entry::new("same", 7, KeyKind::Put, &i.to_string())]);
        let values: Vec<String> = drain(Merge::new((0..count).map(source).collect(), 0))
            .into_iter()
            .map(|e| String::from_utf8(e.value).unwrap())
            .collect();
        assert_eq!(values, (0..count).map(|i| i.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn prefixes_never_contradict_keys() {
    with_seeds(2000, |rng| {
        let (a, b) = (random_key(rng), random_key(rng));
        let skip = rng.below(4) as usize;
        if prefix(&a, skip) != prefix(&b, skip) {
            assert_eq!(prefix(&a, skip).cmp(&prefix(&b, skip)), a.cmp(&b));
        }
    });
}
