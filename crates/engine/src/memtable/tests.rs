use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use situ_table::{Cursor, KeyKind, KeyRef, MAX_SEQUENCE, Trailer, hash_key};

use super::*;

/// What a memtable must equal: entries by key ascending, trailer descending.
type Model = BTreeMap<ModelKey, Vec<u8>>;
type ModelKey = (Vec<u8>, Reverse<u64>);

const CASES: u32 = if cfg!(miri) { 2 } else { 128 };

/// Entries, and movements, in a case at most. Miri is some thousand times slower.
const CASE_ENTRIES: usize = if cfg!(miri) { 8 } else { 60 };

fn put(sequence: u64) -> Trailer {
    Trailer::new(sequence, KeyKind::Put)
}

/// Keys that are hard to order: short ones, zeros, equal beginnings around the lengths where the comparison changes.
fn hard_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        prop::collection::vec(prop_oneof![9 => Just(b'k'), 1 => Just(0u8), 1 => any::<u8>()], 6..27),
    ]
}

fn entry() -> impl Strategy<Value = (Vec<u8>, KeyKind, Vec<u8>)> {
    let kind = prop_oneof![4 => Just(KeyKind::Put), 1 => Just(KeyKind::Delete), 1 => Just(KeyKind::ValueHandle)];
    (hard_key(), kind, prop::collection::vec(any::<u8>(), 0..20))
}

/// A memtable and its model, holding the same entries with ascending sequence numbers from 1.
fn both(entries: &[(Vec<u8>, KeyKind, Vec<u8>)], seed: u64) -> (Arc<Memtable>, Model) {
    let memtable = Memtable::new(1, seed, 1 << 20, &Arc::default());
    let mut model = Model::new();
    for (sequence, (key, kind, value)) in (1..).zip(entries) {
        let trailer = Trailer::new(sequence, *kind);
        memtable.insert(key, trailer, value);
        model.insert((key.clone(), Reverse(trailer.0)), value.clone());
    }
    (memtable, model)
}

/// Where a cursor stands, in the model's terms.
fn position(cursor: &MemtableCursor) -> Option<(ModelKey, Vec<u8>)> {
    cursor.valid().then(|| {
        let key = cursor.key();
        ((key.user.to_vec(), Reverse(key.trailer.0)), cursor.value().to_vec())
    })
}

fn owned(found: Option<(&ModelKey, &Vec<u8>)>) -> Option<(ModelKey, Vec<u8>)> {
    found.map(|(key, value)| (key.clone(), value.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn get_finds_the_newest_version_at_or_below_the_snapshot(
        entries in prop::collection::vec(entry(), 0..CASE_ENTRIES), absent in hard_key(), seed in any::<u64>(),
    ) {
        let (memtable, model) = both(&entries, seed);
        for key in entries.iter().map(|entry| &entry.0).chain([&absent]) {
            for snapshot in (0..=entries.len() as u64).chain([MAX_SEQUENCE]) {
                let expected = model
                    .range((key.clone(), Reverse(Trailer::seek(snapshot).0))..=(key.clone(), Reverse(0)))
                    .next()
                    .map(|((_, trailer), value)| (Trailer(trailer.0), value.as_slice()));
                prop_assert_eq!(memtable.get(key, hash_key(key), snapshot), expected);
            }
        }
    }

    #[test]
    fn a_cursor_moves_like_one_over_a_sorted_map(
        entries in prop::collection::vec(entry(), 0..CASE_ENTRIES),
        moves in prop::collection::vec((0..10u8, hard_key(), 0..60u64), 0..CASE_ENTRIES),
        seed in any::<u64>(),
    ) {
        let (memtable, model) = both(&entries, seed);
        let mut cursor = memtable.cursor();
        let mut expected = None;
        for (movement, key, sequence) in moves {
            let target = KeyRef::new(&key, Trailer::seek(sequence));
            let place = (key.clone(), Reverse(target.trailer.0));
            match (movement, &expected) {
                (0, _) => {
                    cursor.first().unwrap();
                    expected = owned(model.iter().next());
                }
                (1, _) => {
                    cursor.last().unwrap();
                    expected = owned(model.iter().next_back());
                }
                (2, _) => {
                    cursor.seek(target).unwrap();
                    expected = owned(model.range(place..).next());
                }
                (3, _) => {
                    cursor.seek_before(target).unwrap();
                    expected = owned(model.range(..=place).next_back());
                }
                (4, Some((here, _))) => {
                    cursor.seek_before(KeyRef::new(&here.0, Trailer(here.1.0))).unwrap();
                }
                (5..=6, Some((here, _))) => {
                    cursor.next().unwrap();
                    expected = owned(model.range(here.clone()..).nth(1));
                }
                (_, Some((here, _))) => {
                    cursor.prev().unwrap();
                    expected = owned(model.range(..here.clone()).next_back());
                }
                (_, None) => {}
            }
            prop_assert_eq!(position(&cursor), expected.clone());
        }
    }

    #[test]
    fn counts_and_bounds_are_those_of_the_entries(
        entries in prop::collection::vec(entry(), 0..CASE_ENTRIES), first_sequence in 0..1000u64,
    ) {
        let memtable = Memtable::new(7, 1, 1 << 20, &Arc::default());
        prop_assert!(memtable.is_empty());
        let empty = memtable.used_bytes();
        let mut payload = 0;
        for (sequence, (key, kind, value)) in (first_sequence..).zip(&entries) {
            memtable.insert(key, Trailer::new(sequence, *kind), value);
            payload += key.len() + value.len();
        }
        prop_assert_eq!(memtable.id(), 7);
        prop_assert_eq!(memtable.entries(), entries.len());
        prop_assert_eq!(memtable.deletions(), entries.iter().filter(|entry| entry.1 == KeyKind::Delete).count());
        prop_assert_eq!(memtable.is_empty(), entries.is_empty());
        prop_assert_eq!(memtable.smallest_sequence(), (!entries.is_empty()).then_some(first_sequence));
        prop_assert_eq!(
            memtable.largest_sequence(), (!entries.is_empty()).then(|| first_sequence + entries.len() as u64 - 1)
        );
        // 24 bytes of header, a tower of links, of which the header has one, zeros behind a short key, and rounding.
        let used = memtable.used_bytes() - empty;
        prop_assert!(used >= payload + 24 * entries.len() && used <= payload + (24 + 8 * HEIGHT_MAX + 7) * entries.len());
        prop_assert!(memtable.allocated_bytes() >= memtable.used_bytes());
    }
}

/// The step back reuses the path of the step before it; entries that come in between must not be missed.
#[test]
fn stepping_back_sees_what_was_inserted_behind_the_last_step() {
    let memtable = Memtable::new(1, 3, 1 << 20, &Arc::default());
    let count = if cfg!(miri) { 20 } else { 300u32 };
    for number in 0..count {
        memtable.insert(&(number * 2).to_be_bytes(), put(1), b"even");
    }
    let mut cursor = memtable.cursor();
    cursor.last().unwrap();
    for number in (0..count).rev() {
        assert_eq!(cursor.key().user, (number * 2).to_be_bytes());
        if number > 0 {
            memtable.insert(&(number * 2 - 1).to_be_bytes(), put(1), b"odd");
            cursor.prev().unwrap();
            assert_eq!(cursor.key().user, (number * 2 - 1).to_be_bytes());
        }
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn the_order_of_insertion_does_not_matter() {
    let count = if cfg!(miri) { 60 } else { 3000u64 };
    let ascending: Vec<u64> = (0..count).collect();
    let descending: Vec<u64> = (0..count).rev().collect();
    let scattered: Vec<u64> = (0..count).map(|number| number * 7 % count).collect();
    // Four ascending runs in turn: the finger is near, and not on, the place of the next one.
    let runs: Vec<u64> = (0..count).map(|number| number % 4 * (count / 4) + number / 4).collect();
    for order in [ascending, descending, scattered, runs] {
        let memtable = Memtable::new(1, 9, 1 << 20, &Arc::default());
        for number in &order {
            memtable.insert(&number.to_be_bytes(), put(number + 1), &number.to_le_bytes());
        }
        let mut cursor = memtable.cursor();
        cursor.first().unwrap();
        for number in 0..count {
            assert_eq!(cursor.key().user, number.to_be_bytes());
            assert_eq!(cursor.value(), number.to_le_bytes());
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
    }
}

#[test]
#[should_panic(expected = "inserted twice")]
fn an_entry_inserted_twice_is_refused() {
    let memtable = Memtable::new(1, 1, 1 << 20, &Arc::default());
    memtable.insert(b"key", put(5), b"one");
    memtable.insert(b"key", put(5), b"two");
}

#[test]
#[should_panic(expected = "no trailer of a point entry")]
fn a_range_tombstone_among_the_points_is_refused() {
    Memtable::new(1, 1, 1 << 20, &Arc::default()).insert(b"key", Trailer::new(1, KeyKind::RangeDelete), b"z");
}

#[test]
fn a_cursor_keeps_the_memtable_alive() {
    let memtable = Memtable::new(1, 1, 1 << 20, &Arc::default());
    memtable.insert(b"key", put(1), b"value");
    let mut cursor = memtable.cursor();
    drop(memtable);
    cursor.first().unwrap();
    assert_eq!((cursor.key().user, cursor.value()), (&b"key"[..], &b"value"[..]));
}

#[test]
fn range_tombstones_count_in_bytes_and_bounds() {
    let memtable = Memtable::new(1, 1, 1 << 20, &Arc::default());
    memtable.insert(b"key", put(5), b"value");
    assert!(!memtable.has_range_tombstones() && memtable.range_tombstones().is_empty());
    let used = memtable.used_bytes();
    memtable.insert_range_tombstone(b"b", b"a", 99);
    memtable.insert_range_tombstone(b"a", b"a", 99);
    assert!(!memtable.has_range_tombstones());
    memtable.insert_range_tombstone(b"a", b"m", 9);
    memtable.insert_range_tombstone(b"c", b"d", 3);
    assert!(memtable.has_range_tombstones() && memtable.used_bytes() > used);
    assert_eq!((memtable.smallest_sequence(), memtable.largest_sequence()), (Some(3), Some(9)));
    let sequences: Vec<u64> = memtable.range_tombstones().iter().map(|tombstone| tombstone.sequence).collect();
    assert_eq!(sequences, [9, 3]);
    assert_eq!(memtable.entries(), 1);

    let only_a_tombstone = Memtable::new(2, 1, 1 << 20, &Arc::default());
    only_a_tombstone.insert_range_tombstone(b"a", b"b", 1);
    assert!(!only_a_tombstone.is_empty());
}

/// Writers insert into the same places, some in order and some not; readers scan both ways and read back whatever a
/// writer says it has inserted.
#[test]
fn readers_see_an_ordered_and_growing_memtable_while_many_threads_insert() {
    const WRITERS: u64 = 3;
    let per_writer: u64 = if cfg!(miri) { 25 } else { 8000 };
    let key = |writer: u64, number: u64| {
        let spread = if writer == 0 { number } else { number * 7919 % per_writer };
        let mut key = spread.to_be_bytes().to_vec();
        key.extend_from_slice(&[b'w', writer as u8]);
        key
    };
    let memtable = Memtable::new(1, 11, 1 << 20, &Arc::default());
    let done: [AtomicU64; WRITERS as usize] = Default::default();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (memtable, done) = (&memtable, &done[writer as usize]);
                scope.spawn(move || {
                    for number in 0..per_writer {
                        let sequence = number * WRITERS + writer + 1;
                        memtable.insert(&key(writer, number), put(sequence), &sequence.to_le_bytes());
                        done.store(number + 1, Ordering::Release);
                    }
                })
            })
            .collect();
        for backward in [false, true] {
            let (memtable, done, finished) = (&memtable, &done, &finished);
            scope.spawn(move || {
                let mut seen = 0;
                loop {
                    let last_round = finished.load(Ordering::Acquire);
                    let promised: Vec<u64> = done.iter().map(|done| done.load(Ordering::Acquire)).collect();
                    for (writer, promised) in (0..WRITERS).zip(&promised) {
                        for number in promised.saturating_sub(3)..*promised {
                            let key = key(writer, number);
                            let found = memtable.get(&key, hash_key(&key), MAX_SEQUENCE);
                            let sequence = number * WRITERS + writer + 1;
                            assert_eq!(found, Some((put(sequence), &sequence.to_le_bytes()[..])));
                        }
                    }
                    let mut cursor = memtable.cursor();
                    let mut count = 0;
                    let mut previous: Option<Vec<u8>> = None;
                    if backward {
                        cursor.last().unwrap()
                    } else {
                        cursor.first().unwrap()
                    }
                    while cursor.valid() {
                        let here = cursor.key().user;
                        assert_eq!(cursor.value(), cursor.key().trailer.sequence().to_le_bytes());
                        assert!(previous.is_none_or(|previous| (previous.as_slice() < here) != backward));
                        previous = Some(here.to_vec());
                        count += 1;
                        if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
                    }
                    assert!(count >= promised.iter().sum::<u64>() && count >= seen);
                    seen = count;
                    if last_round {
                        assert_eq!(count, WRITERS * per_writer);
                        break;
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        finished.store(true, Ordering::Release);
    });
    assert_eq!(memtable.entries() as u64, WRITERS * per_writer);
    assert_eq!(memtable.largest_sequence(), Some(WRITERS * per_writer));
}

/// A skiplist with a bad distribution of heights is still right, only slow, so nothing else would notice.
#[test]
#[cfg_attr(miri, ignore = "draws too many heights for Miri, and touches no memory")]
fn half_of_the_nodes_reaches_the_next_level() {
    for seed in [0, 1, u64::MAX] {
        let mut reached = [0u32; HEIGHT_MAX + 1];
        for ordinal in 0..1 << 16 {
            reached[..=height_of(seed, ordinal)].iter_mut().for_each(|count| *count += 1);
        }
        assert_eq!(reached[1], 1 << 16);
        for level in 2..9 {
            let ratio = f64::from(reached[level]) / f64::from(reached[level - 1]);
            assert!((0.4..0.6).contains(&ratio), "seed {seed}: {ratio} of level {level} reach the next");
        }
    }
}

/// Of each key, the newest version counts if it is no tombstone, and the oldest one is taken back if it is one.
fn keys_of(model: &Model) -> i64 {
    let is_tombstone = |trailer: u64| Trailer(trailer).kind() == Some(KeyKind::Delete);
    let mut versions: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
    model.keys().for_each(|(key, Reverse(trailer))| versions.entry(key).or_default().push(*trailer));
    let ends = versions.values().map(|versions| (versions[0], versions[versions.len() - 1]));
    ends.map(|(newest, oldest)| i64::from(!is_tombstone(newest)) - i64::from(is_tombstone(oldest))).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// An overwritten key counted as often as it was written.
    #[test]
    fn keys_are_counted_once_in_whatever_order_their_versions_come(
        entries in prop::collection::vec((0u8..6, any::<bool>()), 0..CASE_ENTRIES),
        backwards in any::<bool>(),
    ) {
        let memtable = Memtable::new(1, 7, 1 << 20, &Arc::default());
        let mut model = Model::new();
        let mut numbered: Vec<_> = (1..).zip(entries).collect();
        if backwards {
            numbered.reverse();
        }
        for (sequence, (key, is_put)) in numbered {
            let trailer = Trailer::new(sequence, if is_put { KeyKind::Put } else { KeyKind::Delete });
            memtable.insert(&[key], trailer, b"");
            model.insert((vec![key], Reverse(trailer.0)), Vec::new());
            prop_assert_eq!(memtable.keys(), keys_of(&model));
        }
    }
}
