//! Readers and dead entries: only the first reader steps over a run of them, and pops of a queue have a constant cost. The
//! tests count steps, not time.

use crate::common::*;
use situ_engine::{Durability, Options, ReadOptions, Snapshot, Store, StoreBuilder, WriteBatch};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum steps of a read that leaves a gap: over entries that died since the last read, and a few around the gap.
const STEPS_MAX: u64 = 12;

fn name(n: u64) -> Vec<u8> {
    format!("job {n:08}").into_bytes()
}

fn open(memtable_bytes: u64) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.memtable_bytes = memtable_bytes;
    options.keyspace.table_bytes = 64 << 10;
    let store = Store::open_with(directory.path(), options).unwrap();
    (directory, store)
}

fn fill(store: &Store, keys: u64) {
    for from in (0..keys).step_by(1000) {
        let mut batch = WriteBatch::new();
        (from..keys.min(from + 1000)).for_each(|n| batch.put(name(n), b"what to do").unwrap());
        store.write(batch).unwrap();
    }
}

/// Returns the steps that `read` makes over invisible entries.
fn steps(store: &Store, read: impl FnOnce()) -> u64 {
    let before = store.default_keyspace().properties().dead_steps;
    read();
    store.default_keyspace().properties().dead_steps - before
}

/// Each pop of a queue stepped over all entries popped before, so a million entries could not be popped in a minute. The
/// test covers memory, and tables that are flushed and compacted meanwhile, each with and without a snapshot.
#[test]
fn a_pop_costs_the_same_at_the_end_of_a_queue_as_at_its_beginning() {
    const JOBS: u64 = 2000;
    for (memtable_bytes, held) in [(64 << 20, false), (64 << 10, false), (64 << 10, true)] {
        let (_directory, store) = open(memtable_bytes);
        fill(&store, JOBS);
        let snapshot: Option<Snapshot> = held.then(|| store.snapshot().unwrap());
        for n in 0..JOBS / 2 {
            let (front, back) = (name(n), name(JOBS - 1 - n));
            let mut all = 0;
            all += steps(&store, || assert_eq!(store.first().unwrap().unwrap().0, front));
            store.delete(&front).unwrap();
            all += steps(&store, || assert_eq!(store.pop_last().unwrap().unwrap().0, back));
            // The first pops at each end find the gap. The others extend it.
            assert!(n < 16 || all <= 2 * STEPS_MAX, "pop {n}: {all} steps, held: {held}, {memtable_bytes}");
            if n % 400 == 399 && memtable_bytes < 1 << 20 {
                store.flush().unwrap();
            }
        }
        assert!(
            store.is_empty().unwrap() && store.pop_first().unwrap().is_none() && store.last_key().unwrap().is_none()
        );
        if let Some(snapshot) = snapshot {
            let then = ReadOptions::default().at(&snapshot);
            assert_eq!(store.iter_with(&then).unwrap().count() as u64, JOBS);
        }
        store.close().unwrap();
    }
}

/// After millions of puts and deletes, in a flushed and idle store, each `first` stepped over all tombstones again. So did
/// readers of a snapshot, whose dead entries may differ from those of the present.
#[test]
fn a_run_of_dead_entries_is_stepped_over_once() {
    const KEYS: u64 = 3000;
    let (_directory, store) = open(64 << 20);
    fill(&store, KEYS);
    let full = store.snapshot().unwrap();
    (0..KEYS - 1).for_each(|n| store.delete(name(n)).unwrap());
    let nearly_empty = store.snapshot().unwrap();
    fill(&store, KEYS);
    (0..KEYS).for_each(|n| store.delete(name(n)).unwrap());
    for flushed in [false, true] {
        if flushed {
            store.flush().unwrap();
        }
        let read = |what: &str, options: &ReadOptions, is_first_time: bool, expected: Option<(u64, u64)>| {
            let walks: [(&str, &dyn Fn()); 3] = [
                ("first", &|| {
                    let found = store.iter_with(options).unwrap().next().map(|pair| pair.unwrap().0);
                    assert_eq!(found.as_deref().map(<[u8]>::to_vec), expected.map(|(first, _)| name(first)));
                }),
                ("last", &|| {
                    let found = store.iter_with(options).unwrap().next_back().map(|pair| pair.unwrap().0);
                    assert_eq!(found.as_deref().map(<[u8]>::to_vec), expected.map(|(_, last)| name(last)));
                }),
                ("seek", &|| {
                    let mut cursor = store.cursor_with(options).unwrap();
                    cursor.seek(&name(KEYS / 2)).unwrap();
                    cursor.seek_for_prev(&name(KEYS / 2)).unwrap();
                }),
            ];
            for (walk, run) in walks {
                let first = steps(&store, run);
                let again = steps(&store, run);
                assert!(again <= STEPS_MAX, "{what}, {walk}, flushed: {flushed}: {again} steps after {first}");
                let wanted = if is_first_time { u64::MAX } else { STEPS_MAX };
                assert!(first <= wanted, "{what}, {walk}, flushed: {flushed}: {first} steps of the first read");
            }
        };
        read("now", &ReadOptions::default(), !flushed, None);
        read("nearly empty", &ReadOptions::default().at(&nearly_empty), !flushed, Some((KEYS - 1, KEYS - 1)));
        read("full", &ReadOptions::default().at(&full), true, Some((0, KEYS - 1)));
        read("a new snapshot", &ReadOptions::default().at(&store.snapshot().unwrap()), false, None);
    }
    store.close().unwrap();
}

/// Under a range deletion, `last` took a step for each entry in tables, because only forward scans jumped over deleted ranges.
#[test]
fn a_deleted_range_of_older_tables_is_skipped_in_both_directions() {
    const KEYS: u64 = 5000;
    let (_directory, store) = open(64 << 20);
    fill(&store, KEYS);
    store.flush().unwrap();
    store.delete_range(name(1), name(KEYS - 1)).unwrap();
    for flushed in [false, true] {
        if flushed {
            store.flush().unwrap();
        }
        let forward = steps(&store, || {
            let mut cursor = store.cursor().unwrap();
            cursor.seek_to_first().unwrap();
            cursor.next().unwrap();
            assert_eq!(cursor.key(), Some(&name(KEYS - 1)[..]));
        });
        let backward = steps(&store, || {
            let mut cursor = store.cursor().unwrap();
            cursor.seek_to_last().unwrap();
            cursor.prev().unwrap();
            assert_eq!(cursor.key(), Some(&name(0)[..]));
        });
        assert!(forward <= STEPS_MAX && backward <= STEPS_MAX, "{forward} and {backward} steps, flushed: {flushed}");
    }
    store.close().unwrap();
}

/// With a hundred thousand adjoining range deletions, each `first` and `last` took seconds.
#[test]
fn many_deleted_ranges_are_one_gap() {
    const KEYS: u64 = 5000;
    for flushed in [false, true] {
        let (_directory, store) = open(64 << 20);
        fill(&store, KEYS);
        if flushed {
            store.flush().unwrap();
        }
        (0..KEYS).step_by(10).for_each(|n| store.delete_range(name(n), name(n + 10)).unwrap());
        // Older sources jump over adjoining ranges, with one step for each range.
        let first = steps(&store, || assert!(store.first().unwrap().is_none()));
        assert!(!flushed || first <= 3 * KEYS / 10, "{first} steps forward");
        let others = steps(&store, || {
            assert!(store.first().unwrap().is_none());
            assert!(store.last().unwrap().is_none());
        });
        assert!(others <= STEPS_MAX, "{others} steps, flushed: {flushed}");
        store.close().unwrap();
    }
}

/// A counter that was set a thousand times cost each scan over it a thousand steps, in memory or with a snapshot held.
#[test]
fn versions_of_a_key_cost_a_few_steps() {
    let (_directory, store) = open(64 << 20);
    store.put("a", "1").unwrap();
    let before = store.snapshot().unwrap();
    for n in 0..2000u32 {
        store.put("counter", n.to_be_bytes()).unwrap();
    }
    let between = store.snapshot().unwrap();
    for n in 0..2000u32 {
        store.put("counter", n.to_be_bytes()).unwrap();
    }
    store.put("z", "2").unwrap();
    for options in
        [&before, &between].map(|snapshot| ReadOptions::default().at(snapshot)).iter().chain([&ReadOptions::default()])
    {
        let taken = steps(&store, || {
            let forward: Vec<_> = store.iter_with(options).unwrap().map(|pair| pair.unwrap()).collect();
            let mut backward: Vec<_> = store.iter_with(options).unwrap().rev().map(|pair| pair.unwrap()).collect();
            backward.reverse();
            assert_eq!(forward, backward);
        });
        assert!(taken <= 40, "{taken} steps");
    }
    store.close().unwrap();
}

/// Puts split gaps, their number is bounded, and snapshots have their own. The test compares all reads with maps.
#[test]
fn readers_that_use_gaps_see_what_is_there() {
    const KEYS: u64 = 150;
    for_each_seed(0, 60, |seed| {
        let mut rng = Rng::new(seed);
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            let options = small_options(&mut rng);
            let store = StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap();
            let keyspace = store.default_keyspace();
            let mut model = Model::new();
            let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
            let number = |n: u64| format!("{n:04}").into_bytes();
            let deletions = rng.below(20);
            for round in 0..400 {
                let one = number(rng.below(KEYS));
                match rng.below(40) {
                    n if n < 8 + deletions => {
                        keyspace.delete(&one).unwrap();
                        model.remove(&one);
                    }
                    0..30 => {
                        keyspace.put(&one, round.to_string()).unwrap();
                        model.insert(one.clone(), round.to_string().into_bytes());
                    }
                    30..32 => {
                        let end = number(rng.below(KEYS));
                        keyspace.delete_range(&one, &end).unwrap();
                        model.retain(|key, _| *key < one || *key >= end);
                    }
                    32 => snapshots.push((store.snapshot().unwrap(), model.clone())),
                    33 if !snapshots.is_empty() => drop(snapshots.swap_remove(rng.index(snapshots.len()))),
                    34 if rng.chance(0.2) => keyspace.flush().unwrap(),
                    35 if rng.chance(0.1) => keyspace.compact(None, None).unwrap(),
                    _ => {
                        let (popped, expected) = match rng.chance(0.5) {
                            true => (keyspace.pop_first().unwrap(), model.pop_first()),
                            false => (keyspace.pop_last().unwrap(), model.pop_last()),
                        };
                        let popped = popped.map(|(key, value)| (Vec::from(key), Vec::from(value)));
                        assert_eq!(popped, expected, "seed {seed}, round {round}");
                    }
                }
                let then = rng.index(snapshots.len() + 1);
                let (snapshot, seen) =
                    snapshots.get(then).map_or((None, &model), |(snapshot, seen)| (Some(snapshot), seen));
                let what = format!("seed {seed}, round {round}, snapshot {snapshot:?}");
                let options =
                    snapshot.map_or_else(ReadOptions::default, |snapshot| ReadOptions::default().at(snapshot));
                let mut cursor = keyspace.cursor_with(&options).unwrap();
                let target = number(rng.below(KEYS));
                cursor.seek_to_first().unwrap();
                assert_eq!(cursor.key(), seen.keys().next().map(|key| &key[..]), "first, {what}");
                cursor.seek_to_last().unwrap();
                assert_eq!(cursor.key(), seen.keys().next_back().map(|key| &key[..]), "last, {what}");
                cursor.seek(&target).unwrap();
                assert_eq!(cursor.key(), seen.range(target.clone()..).next().map(|(key, _)| &key[..]), "seek, {what}");
                cursor.seek_for_prev(&target).unwrap();
                let expected = seen.range(..=target.clone()).next_back().map(|(key, _)| &key[..]);
                assert_eq!(cursor.key(), expected, "seek_for_prev, {what}");
                if round % 20 == 0 {
                    compare(keyspace, seen, snapshot, &what);
                }
            }
            drop(snapshots);
            store.close().unwrap();
        });
    });
}

/// Writers put keys into ranges while readers find them empty. Readers must find each acknowledged put.
#[test]
fn a_put_into_a_gap_is_found_by_every_later_reader() {
    const SLOTS: u64 = 200;
    const ROUNDS: u64 = 1500;
    let (_directory, store) = open(256 << 10);
    fill(&store, SLOTS);
    (0..SLOTS).for_each(|n| store.delete(name(n)).unwrap());
    let stop = AtomicBool::new(false);
    let checked = AtomicU64::new(0);
    let write = |writer: u64| {
        let mut rng = Rng::new(writer);
        for _ in 0..ROUNDS {
            // Each writer has its own keys, all over the range.
            let key = [name(rng.below(SLOTS)), vec![b'0' + writer as u8]].concat();
            store.put(&key, b"here").unwrap();
            let mut cursor = store.cursor().unwrap();
            cursor.seek_to_first().unwrap();
            assert!(cursor.key().is_some_and(|first| first <= &key[..]), "first");
            cursor.seek_to_last().unwrap();
            assert!(cursor.key().is_some_and(|last| last >= &key[..]), "last");
            cursor.seek(&key[..key.len() - 1]).unwrap();
            while cursor.key().is_some_and(|at| at < &key[..]) {
                cursor.next().unwrap();
            }
            assert_eq!(cursor.key(), Some(&key[..]));
            store.delete(&key).unwrap();
            checked.fetch_add(1, Ordering::Relaxed);
        }
    };
    let read = |from_back: bool| {
        while !stop.load(Ordering::Relaxed) {
            let found = if from_back { store.last() } else { store.first() };
            found.unwrap();
        }
    };
    std::thread::scope(|scope| {
        let readers = [false, true].map(|from_back| scope.spawn(move || read(from_back)));
        let writers: Vec<_> = (0..3).map(|writer| scope.spawn(move || write(writer))).collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    assert_eq!(checked.load(Ordering::Relaxed), 3 * ROUNDS);
    store.close().unwrap();
}

/// With `first` and `delete`, two threads took the same job.
#[test]
fn two_threads_never_pop_the_same_entry() {
    const JOBS: u64 = 600;
    let (_directory, store) = open(64 << 10);
    let store = &store;
    let popped: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..4)
            .map(|consumer| {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    loop {
                        let popped = match consumer % 2 {
                            0 => store.pop_first().unwrap(),
                            _ => store.pop_last_with("job".., Durability::Buffered).unwrap(),
                        };
                        match popped {
                            Some((_, value)) if &value[..] == b"stop" => return mine,
                            Some((key, _)) => mine.push(key.to_vec()),
                            None => std::thread::yield_now(),
                        }
                    }
                })
            })
            .collect();
        (0..JOBS).for_each(|n| store.put(name(n), b"what to do").unwrap());
        (JOBS..JOBS + 4).for_each(|n| store.put(name(n), b"stop").unwrap());
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    // A consumer at the back may stop before the others are done.
    let left: Vec<Vec<u8>> = store.iter().unwrap().map(|pair| pair.unwrap().0.to_vec()).collect();
    let all: BTreeSet<Vec<u8>> = popped.iter().chain(&left).cloned().collect();
    assert_eq!(all, (0..JOBS).map(name).collect());
    assert_eq!(popped.len() + left.len(), JOBS as usize, "an entry was popped twice");
    store.close().unwrap();
}

#[test]
fn a_pop_stays_in_its_range_and_knows_both_ends() {
    let (_directory, store) = open(1 << 20);
    for key in ["a/1", "a/2", "b/1", "b/2"] {
        store.put(key, key).unwrap();
    }
    let buffered = Durability::Buffered;
    assert_eq!(store.first_key().unwrap().unwrap(), "a/1");
    assert_eq!(store.last_key().unwrap().unwrap(), "b/2");
    assert_eq!(store.pop_first_with("b/".., buffered).unwrap().unwrap().0, "b/1");
    assert_eq!(store.pop_last_with(.."b/", buffered).unwrap().unwrap().0, "a/2");
    assert_eq!(store.pop_last_with("a/".."b/", buffered).unwrap().unwrap().1, "a/1");
    assert_eq!(store.pop_last_with("a/".."b/", buffered).unwrap(), None);
    assert_eq!(store.pop_first().unwrap().unwrap().0, "b/2");
    assert_eq!(store.first_key().unwrap(), None);
    store.close().unwrap();
}

/// Returns the processor time that this thread has used.
#[cfg(target_os = "linux")]
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "a measurement: the processor time of a pop, in each tenth of a queue of SITU_JOBS entries"]
fn measure_pops() {
    let jobs: u64 = std::env::var("SITU_JOBS").map_or(1_000_000, |jobs| jobs.parse().unwrap());
    for (what, memtable_bytes, held) in
        [("memory", 1 << 30, false), ("disk", 4 << 20, false), ("snapshot", 4 << 20, true)]
    {
        for from_back in [false, true] {
            let (_directory, store) = open(memtable_bytes);
            fill(&store, jobs);
            if what != "memory" {
                store.flush().unwrap();
            }
            let _snapshot = held.then(|| store.snapshot().unwrap());
            let mut tenths = Vec::new();
            for _ in 0..10 {
                let (before, steps_before) = (processor_ns(), store.default_keyspace().properties().dead_steps);
                for _ in 0..jobs / 10 {
                    let found = if from_back { store.last_key() } else { store.first_key() };
                    store.delete(found.unwrap().unwrap()).unwrap();
                }
                let spent = (processor_ns() - before) as f64 / 1000.0 / (jobs / 10) as f64;
                let steps = store.default_keyspace().properties().dead_steps - steps_before;
                tenths.push(format!("{spent:.1} us/{:.1}", steps as f64 / (jobs / 10) as f64));
            }
            assert!(store.is_empty().unwrap());
            eprintln!("{what}, from the back: {from_back}: {}", tenths.join(" "));
            store.close().unwrap();
        }
    }
}
