//! Iterators against `BTreeMap::range`: both ends in any order, all forms of bounds, with range tombstones, snapshots, flushes
//! and compactions, and writes while an iterator is used. On a simulated disk under a seeded schedule.

use crate::common::*;
use situ_engine::{
    Error, Key, KeyRange, Keyspace, ReadOptions, Result, Store, StoreBuilder, TransactionOptions, Value,
};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::ops::Bound;
use std::sync::Arc;

const KEYS: u64 = 120;

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(rng, KEYS)),
        _ => Bound::Excluded(key(rng, KEYS)),
    }
}

/// The entries in a range, where `BTreeMap::range` would panic at an end before the beginning, too.
fn within(model: &Model, (begin, end): &Bounds) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_behind = |key: &Vec<u8>| match begin {
        Bound::Included(begin) => key >= begin,
        Bound::Excluded(begin) => key > begin,
        Bound::Unbounded => true,
    };
    let is_before = |key: &Vec<u8>| match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    };
    let inside = model.iter().filter(|(key, _)| is_behind(key) && is_before(key));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn change(rng: &mut Rng, keyspace: &Keyspace, model: &mut Model) {
    let one = key(rng, KEYS);
    match rng.below(20) {
        0..12 => {
            let value = value(rng);
            keyspace.put(&one, &value).unwrap();
            model.insert(one, value);
        }
        12..16 => {
            keyspace.delete(&one).unwrap();
            model.remove(&one);
        }
        16..19 => {
            let end = key(rng, KEYS);
            keyspace.delete_range(&one, &end).unwrap();
            model.retain(|key, _| *key < one || *key >= end);
        }
        _ if rng.chance(0.7) => keyspace.flush().unwrap(),
        _ => keyspace.compact(None, None).unwrap(),
    }
}

/// Takes from both ends at random until the iterator has ended, and compares with what is expected. `meanwhile` is called
/// between the steps.
fn take_from_both_ends(
    rng: &mut Rng,
    mut iterator: impl DoubleEndedIterator<Item = Result<(Key, Value)>>,
    expected: Vec<(Vec<u8>, Vec<u8>)>,
    what: &str,
    mut meanwhile: impl FnMut(&mut Rng),
) {
    let from_behind = [0.0, 1.0, 0.5, 0.1, 0.9][rng.index(5)];
    let mut expected = expected.into_iter();
    loop {
        let (found, wanted) = match rng.chance(from_behind) {
            true => (iterator.next_back(), expected.next_back()),
            false => (iterator.next(), expected.next()),
        };
        let found = found.map(|pair| pair.unwrap()).map(|(key, value)| (Vec::from(key), Vec::from(value)));
        assert_eq!(found, wanted, "{what}");
        if found.is_none() {
            break;
        }
        meanwhile(rng);
    }
    // Ended is ended, from both ends.
    assert!(iterator.next().is_none() && iterator.next_back().is_none() && iterator.next().is_none(), "{what}");
}

fn store(rng: &mut Rng, executor: &SimExecutor, volume: &SimVolume) -> Store {
    StoreBuilder::new(small_options(rng)).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap()
}

#[test]
fn an_iterator_gives_each_entry_once_from_both_ends() {
    for_each_seed(0, 60, |seed| {
        let mut rng = Rng::new(seed);
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            let store = store(&mut rng, &executor, &volume);
            let keyspace = store.default_keyspace();
            let mut model = Model::new();
            for round in 0..40 {
                (0..rng.below(30)).for_each(|_| change(&mut rng, keyspace, &mut model));
                let bounds = (bound(&mut rng), bound(&mut rng));
                let what = format!("round {round}, {bounds:?}");
                let expected = within(&model, &bounds);
                let snapshot = store.snapshot().unwrap();
                let iterator = match rng.chance(0.5) {
                    true => keyspace.range(&bounds).unwrap(),
                    // The same moment, read later.
                    false => {
                        (0..rng.below(10)).for_each(|_| change(&mut rng, keyspace, &mut model));
                        store.range_with(&bounds, &ReadOptions::default().at(&snapshot)).unwrap()
                    }
                };
                // While the iterator is used, only it keeps what it sees.
                drop(snapshot);
                let busy = rng.chance(0.5);
                take_from_both_ends(&mut rng, iterator, expected, &what, |rng| {
                    if busy && rng.chance(0.3) {
                        change(rng, keyspace, &mut model);
                    }
                });
            }
            let first = model.first_key_value().map(|(key, value)| (key.clone(), value.clone()));
            let last = model.last_key_value().map(|(key, value)| (key.clone(), value.clone()));
            let plain = |pair: Option<(Key, Value)>| pair.map(|(key, value)| (Vec::from(key), Vec::from(value)));
            assert_eq!(plain(store.first().unwrap()), first);
            assert_eq!(plain(store.last().unwrap()), last);
            assert_eq!(store.is_empty().unwrap(), model.is_empty());
            store.close().unwrap();
        });
    });
}

#[test]
fn an_iterator_of_a_transaction_shows_its_own_writes_from_both_ends() {
    for_each_seed(0, 40, |seed| {
        let mut rng = Rng::new(seed);
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            let store = store(&mut rng, &executor, &volume);
            let keyspace = store.default_keyspace();
            let mut committed = Model::new();
            for round in 0..15 {
                (0..rng.below(40)).for_each(|_| change(&mut rng, keyspace, &mut committed));
                let mut options = TransactionOptions::optimistic();
                let is_read_committed = rng.chance(0.3);
                if is_read_committed {
                    options = options.read_committed();
                }
                let mut transaction = store.begin_with(&options).unwrap();
                transaction.snapshot();
                let mut model = committed.clone();
                for _ in 0..rng.below(20) {
                    let one = key(&mut rng, KEYS);
                    if rng.chance(0.7) {
                        let value = value(&mut rng);
                        transaction.put(&one, &value).unwrap();
                        model.insert(one, value);
                    } else {
                        transaction.delete(&one).unwrap();
                        model.remove(&one);
                    }
                }
                let bounds = (bound(&mut rng), bound(&mut rng));
                let what = format!("round {round}, {bounds:?}");
                let iterator = transaction.range(&bounds).unwrap();
                take_from_both_ends(&mut rng, iterator, within(&model, &bounds), &what, |rng| {
                    if rng.chance(0.2) {
                        change(rng, keyspace, &mut committed);
                    } else if rng.chance(0.2) {
                        transaction.put(key(rng, KEYS), "later").unwrap();
                    }
                });
                transaction.rollback();
            }
            store.close().unwrap();
        });
    });
}

#[test]
fn ranges_are_written_as_rust_writes_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for key in ["a", "ab", "b", "ba", "c"] {
        store.put(key, "").unwrap();
    }
    fn keys(store: &Store, range: impl KeyRange) -> Vec<String> {
        let pairs = store.range(range).unwrap();
        pairs.map(|pair| String::from_utf8(pair.unwrap().0.into()).unwrap()).collect()
    }
    assert_eq!(keys(&store, ..), ["a", "ab", "b", "ba", "c"]);
    assert_eq!(keys(&store, "ab".."c"), ["ab", "b", "ba"]);
    assert_eq!(keys(&store, "ab"..="c"), ["ab", "b", "ba", "c"]);
    assert_eq!(keys(&store, b"b"..), ["b", "ba", "c"]);
    assert_eq!(keys(&store, ..vec![b'b']), ["a", "ab"]);
    assert_eq!(keys(&store, ..=*b"b"), ["a", "ab", "b"]);
    assert_eq!(keys(&store, (Bound::Excluded("a"), Bound::<&str>::Unbounded)), ["ab", "b", "ba", "c"]);
    assert_eq!(keys(&store, "c".."a"), [""; 0], "an end before the beginning");
    assert_eq!(keys(&store, "".."".to_owned().as_str()), [""; 0]);
    let from_behind: Vec<Key> = store.prefix("b").unwrap().rev().map(|pair| pair.unwrap().0).collect();
    assert_eq!(from_behind, ["ba", "b"]);
    assert_eq!(store.prefix("").unwrap().count(), 5);
    assert_eq!(store.prefix_with("b", &ReadOptions::default().upper_bound("ba")).unwrap().count(), 1);
    store.close().unwrap();
}

/// The error is given once, and then the iterator has ended, whichever end met it.
#[test]
fn an_iterator_ends_after_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for n in 0..2000u32 {
        store.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
    }
    store.flush().unwrap();
    // The table is open, and none of its blocks is in memory.
    store.get_with(7u32.to_be_bytes(), &ReadOptions::default().bypass_cache(true)).unwrap();
    let options = || ReadOptions::default().memory_only(true);
    let mut forward = store.iter_with(&options()).unwrap();
    assert!(forward.next().unwrap().is_err_and(|error| error.is_not_in_memory()));
    assert!(forward.next().is_none() && forward.next_back().is_none());
    let mut both = store.iter_with(&options()).unwrap();
    assert!(both.next_back().unwrap().is_err());
    assert!(both.next().is_none() && both.next_back().is_none());
    store.close().unwrap();
    assert!(matches!(store.iter(), Err(Error::Closed)));
}

/// Between the first step from one end and the first from the other, everything may have become tables and moved.
#[test]
fn the_second_end_sees_what_the_first_one_did() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for n in 0..100u8 {
        store.put([n], "before").unwrap();
    }
    let mut iterator = store.iter().unwrap();
    assert_eq!(iterator.next().unwrap().unwrap().0, [0]);
    for n in 0..200u8 {
        store.put([n], "after").unwrap();
    }
    store.delete_range([50], [60]).unwrap();
    store.compact(None, None).unwrap();
    let rest: Vec<(Key, Value)> = iterator.by_ref().rev().map(|pair| pair.unwrap()).collect();
    assert_eq!(rest.len(), 99);
    assert!(rest.iter().zip((1..100u8).rev()).all(|((key, value), n)| *key == [n] && *value == "before"));
    assert!(iterator.next().is_none());
    store.close().unwrap();
}
