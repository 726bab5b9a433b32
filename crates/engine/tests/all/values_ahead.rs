//! Cursors over the value log read ahead.

use crate::value_log::{in_simulator, key, long_value, open, options};
use situ_engine::{Cursor, ReadOptions, ScanOptions, Store};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use situ_storage::{FileName, Volume};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Values have 1,000 bytes and keys 10, so a segment of 64 KiB has about 60 of them.
const KEYS: u64 = 200;

fn value(n: u64, round: u64) -> Vec<u8> {
    let mut value = long_value(n, round);
    value.resize(1000, 7);
    value
}

/// Puts the keys in an order in which neighbours lie apart, or in their own.
fn fill(store: &Store, round: u64, is_scattered: bool) {
    let order = |n: u64| if is_scattered { n * 77 % KEYS } else { n };
    for n in 0..KEYS {
        store.put(key(order(n)), value(order(n), round)).unwrap();
        // Values are in the order of their keys within one flush.
        if is_scattered && n % 20 == 19 {
            store.flush().unwrap();
        }
    }
    store.flush().unwrap();
    store.wait_idle().unwrap();
}

fn walk(cursor: &mut Cursor, is_forward: bool, entries: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    if is_forward {
        cursor.seek_to_first().unwrap()
    } else {
        cursor.seek_to_last().unwrap()
    }
    let mut seen = Vec::new();
    while seen.len() < entries && cursor.valid() {
        seen.push((cursor.key().unwrap().to_vec(), cursor.read_value().unwrap().unwrap().to_vec()));
        if is_forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
    seen
}

/// What a walk sees, and how many times it asks the disk. Blocks of tables are in the cache.
fn reads(
    disk: (&SimExecutor, &SimVolume),
    store: &Store,
    read: &ReadOptions,
    is_forward: bool,
    entries: usize,
) -> (usize, u64) {
    let (executor, volume) = disk;
    let mut on_demand = store.cursor_with(&read.clone().values_on_demand(true)).unwrap();
    let expected = walk(&mut on_demand, is_forward, entries);
    let mut cursor = store.cursor_with(read).unwrap();
    let before = volume.operations();
    assert_eq!(walk(&mut cursor, is_forward, entries), expected);
    drop(cursor);
    // What it has begun and did not wait for.
    executor.env().clock.sleep(Duration::from_secs(1));
    (expected.len(), volume.operations() - before)
}

#[test]
fn neighbours_in_a_segment_are_read_together_both_ways_and_in_snapshots() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        fill(&store, 0, false);
        let snapshot = store.snapshot().unwrap();
        for read in [ReadOptions::default(), ReadOptions::default().at(&snapshot)] {
            for is_forward in [true, false] {
                let (seen, asked) = reads((executor, volume), &store, &read, is_forward, usize::MAX);
                assert_eq!(seen, KEYS as usize);
                assert!(asked <= 30, "{asked} reads of {seen} values");
            }
            fill(&store, 1, false);
        }
        store.close().unwrap();
    });
}

#[test]
fn a_scan_that_stops_early_has_read_little() {
    in_simulator(2, |executor, volume| {
        let store = open(executor, volume, options());
        fill(&store, 0, true);
        // The store's idle work must end before reads are counted.
        executor.env().clock.sleep(Duration::from_secs(120));
        store.wait_idle().unwrap();
        let read = ReadOptions::default();
        let (seen, asked) = reads((executor, volume), &store, &read, true, usize::MAX);
        assert!(seen == KEYS as usize && asked > 100, "neighbours lie apart: {asked} reads");
        // The first value is read with the position, and the cursor makes a step beyond the last one.
        for entries in [1, 2, 3, 5, 10, 20] {
            let (_, asked) = reads((executor, volume), &store, &read, true, entries);
            assert!(asked <= 2 * entries as u64 + 2, "{asked} reads for {entries} values");
        }
        let mut cursor = store.cursor_with(&read).unwrap();
        let before = volume.operations();
        for n in [3, 150, 17, 80] {
            cursor.seek(&key(n)).unwrap();
            assert_eq!(cursor.value(), Some(&value(n, 0)[..]));
        }
        assert_eq!(volume.operations() - before, 4, "a position asks for one value");
        drop(cursor);
        store.close().unwrap();
    });
}

fn wait<F: Future>(executor: &SimExecutor, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        executor.env().clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_page_of_a_scan_reads_no_more_than_its_entries_and_one() {
    in_simulator(3, |executor, volume| {
        let store = open(executor, volume, options());
        fill(&store, 0, true);
        let mut next = Some(ScanOptions::default().entries_max(40));
        let mut entries = 0;
        let mut pages = Vec::new();
        // The first round fills the cache with blocks of tables.
        for round in 0..2 {
            next = next.or_else(|| Some(ScanOptions::default().entries_max(40)));
            while let Some(options) = next {
                let before = volume.operations();
                let page = wait(executor, store.scan_async(&options)).unwrap();
                pages.push((round, volume.operations() - before));
                entries += page.len();
                next = options.after(&page);
            }
        }
        assert_eq!(entries as u64, 2 * KEYS);
        // An attempt on the caller's thread comes first, and reads what is in memory.
        assert!(pages.iter().all(|(round, asked)| *round == 0 || *asked <= 2 * 41), "{pages:?}");
        store.close().unwrap();
    });
}

/// Turns, positions and steps, in any order: as a cursor that reads each value when it is asked for it.
#[test]
fn a_cursor_that_reads_ahead_sees_what_one_sees_that_does_not() {
    situ_sim::for_each_seed(10, 8, |seed| {
        in_simulator(seed, |executor, volume| {
            let mut rng = situ_sim::Rng::new(seed);
            let store = open(executor, volume, options());
            for n in 0..400 {
                let at = key(rng.below(KEYS));
                match rng.below(10) {
                    0 => store.delete(&at).unwrap(),
                    1 => store.delete_range(&at, key(rng.below(KEYS)).max(at.clone())).unwrap(),
                    2 | 3 => store.put(&at, "short").unwrap(),
                    _ => store.put(&at, long_value(n, seed)).unwrap(),
                }
                if rng.chance(0.02) {
                    store.flush().unwrap();
                }
            }
            let read = ReadOptions::default().range(key(5), key(KEYS - 5));
            let mut plain = store.cursor_with(&read.clone().values_on_demand(true)).unwrap();
            let mut ahead = store.cursor_with(&read).unwrap();
            for _ in 0..300 {
                let (what, at, steps) = (rng.below(8), key(rng.below(KEYS)), rng.below(40));
                for cursor in [&mut plain, &mut ahead] {
                    match what {
                        0 => cursor.seek_to_first().unwrap(),
                        1 => cursor.seek_to_last().unwrap(),
                        2 => cursor.seek(&at).unwrap(),
                        3 => cursor.seek_for_prev(&at).unwrap(),
                        4 | 5 => (0..steps).for_each(|_| cursor.next().unwrap()),
                        _ => (0..steps).for_each(|_| cursor.prev().unwrap()),
                    }
                }
                assert_eq!(plain.key(), ahead.key());
                assert_eq!(plain.read_value().unwrap(), ahead.value());
            }
            drop((plain, ahead));
            store.close().unwrap();
        });
    });
}

fn segment_with(volume: &SimVolume, bytes: &[u8]) -> (FileName, u64) {
    let names = volume.list().unwrap().into_iter().map(|file| file.name);
    let at = |name| volume.contents(name)?.windows(bytes.len()).position(|part| part == bytes);
    let mut segments = names.filter(|name| matches!(name, FileName::Values(_)));
    segments.find_map(|name| Some((name, at(name)? as u64))).unwrap()
}

#[test]
fn promise_6_a_damaged_value_is_told_at_its_entry_and_not_before() {
    in_simulator(5, |executor, volume| {
        let store = open(executor, volume, options());
        fill(&store, 0, false);
        store.close().unwrap();
        let (name, offset) = segment_with(volume, &value(50, 0)[..100]);
        assert!(volume.rot(name, offset + 50, 3));
        let store = open(executor, volume, options());
        let mut cursor = store.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        for n in 0..50 {
            assert_eq!((cursor.key(), cursor.value()), (Some(&key(n)[..]), Some(&value(n, 0)[..])));
            assert!(store.properties().damaged_files.is_empty(), "nobody has asked for the value");
            if n < 49 {
                cursor.next().unwrap();
            }
        }
        let error = cursor.next().unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(&name.to_string()), "{error}");
        assert!(!cursor.valid() && store.properties().damaged_files.len() == 1);
        for n in (51..KEYS).rev() {
            if n == KEYS - 1 {
                cursor.seek_to_last().unwrap()
            } else {
                cursor.prev().unwrap()
            }
            assert_eq!((cursor.key(), cursor.value()), (Some(&key(n)[..]), Some(&value(n, 0)[..])));
        }
        assert!(cursor.prev().is_err());
        drop(cursor);
        store.close().unwrap();
    });
}

/// The disk cannot read one value. Its neighbours, which were to come with the same read, are read alone.
#[test]
fn promise_7_a_read_that_fails_costs_its_own_value_only() {
    in_simulator(6, |executor, volume| {
        let store = open(executor, volume, options());
        fill(&store, 0, false);
        let (_, offset) = segment_with(volume, &value(50, 0)[..100]);
        let mut cursor = store.cursor().unwrap();
        walk(&mut cursor, true, usize::MAX);
        let rule = Rule::new(Fault::Io).on(&[Operation::Read]).files(&[FileKind::Values]);
        volume.set_faults(FaultPlan::none().with(rule.within(offset + 100..offset + 101)));
        let mut failed = 0;
        for n in 0..KEYS {
            if n == 0 || !cursor.valid() { cursor.seek(&key(n)) } else { cursor.next() }
                .unwrap_or_else(|_| failed += 1);
            assert!(cursor.valid() && cursor.value() == Some(&value(n, 0)[..]) || !cursor.valid(), "key {n}");
        }
        assert!((1..=4).contains(&failed), "{failed} values of as many segments lie there");
        volume.set_faults(FaultPlan::none());
        drop(cursor);
        store.close().unwrap();
    });
}
