//! The value log: where large values go, and how the space of dead ones comes back.

use crate::common::*;
use situ_engine::{Keyspace, KeyspaceProperties, Options, ReadOptions, Store, StoreBuilder, verify};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{FileName, Volume};
use std::sync::Arc;

const MIN_BYTES: u64 = 200;

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 32 << 10;
    options.keyspace.level_base_bytes = 8 << 10;
    options.keyspace.table_bytes = 4 << 10;
    options.keyspace.value_log_min_bytes = Some(MIN_BYTES);
    options.value_segment_bytes = 64 << 10;
    options.compaction_threads = 1;
    options
}

/// Runs a test in the simulator.
fn in_simulator(seed: u64, test: impl Fn(&SimExecutor, &SimVolume) + Sync) {
    let executor = SimExecutor::new(seed);
    executor.run(|| test(&executor, &SimVolume::new(&executor.env(), FaultPlan::none(), seed)));
}

fn open(executor: &SimExecutor, volume: &SimVolume, options: Options) -> Store {
    StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap()
}

fn assert_sound(executor: &SimExecutor, volume: &SimVolume) {
    let report = verify(&(Arc::new(volume.clone()) as Arc<dyn Volume>), &executor.env(), &mut |_| {}).unwrap();
    let has_segment = report.orphans.iter().any(|name| matches!(name, FileName::Values(_)));
    assert!(report.is_sound() && report.warnings.is_empty() && !has_segment, "{report}");
}

fn segments(volume: &SimVolume) -> usize {
    volume.list().unwrap().iter().filter(|file| matches!(file.name, FileName::Values(_))).count()
}

fn properties(store: &Store) -> KeyspaceProperties {
    store.default_keyspace().properties()
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

fn long_value(n: u64, round: u64) -> Vec<u8> {
    let mut value = vec![0; 200 + (n as usize * 37) % 2000];
    Rng::new(n << 8 | round).fill(&mut value);
    value
}

fn holds(keyspace: &Keyspace, keys: u64, round: u64, read: &ReadOptions) {
    for n in 0..keys {
        let found = keyspace.get_with(key(n), read).unwrap();
        assert_eq!(found.as_deref(), Some(&long_value(n, round)[..]), "key {n} of round {round}");
    }
}

#[test]
fn large_values_leave_the_tables_and_all_reads_find_them() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let mut model = Model::new();
        for n in 0..300 {
            let value = if n % 3 == 0 { vec![7; n as usize % MIN_BYTES as usize] } else { long_value(n, 0) };
            store.put(key(n), &value).unwrap();
            model.insert(key(n), value);
        }
        store.flush().unwrap();
        let properties = properties(&store);
        let (large, small) =
            model.values().map(|v| v.len() as u64).partition::<Vec<u64>, _>(|bytes| *bytes >= MIN_BYTES);
        let (large, small): (u64, u64) = (large.iter().sum(), small.iter().sum());
        assert!(properties.value_bytes > large && properties.table_bytes < 2 * small + 300 * 100, "{properties:?}");
        let keyspace = store.default_keyspace();
        compare(keyspace, &model, None, "after the flush");
        let keys: Vec<_> = model.keys().collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!(found.iter().zip(model.values()).all(|(found, value)| found.as_deref() == Some(&value[..])));
        assert!(keyspace.contains(keys[5]).unwrap() && !keyspace.contains("none").unwrap());
        store.close().unwrap();
        assert_sound(executor, volume);
        // Without the option, what was separated stays where it is.
        let mut plain = options();
        plain.keyspace.value_log_min_bytes = None;
        let store = open(executor, volume, plain);
        compare(store.default_keyspace(), &model, None, "after reopening");
        store.compact(None, None).unwrap();
        compare(store.default_keyspace(), &model, None, "after a compaction");
        store.close().unwrap();
    });
}

#[test]
fn a_cursor_reads_values_on_demand_if_it_is_asked_to() {
    in_simulator(2, |executor, volume| {
        let store = open(executor, volume, options());
        store.put("a", long_value(1, 0)).unwrap();
        store.put("b", "short").unwrap();
        store.flush().unwrap();
        let mut cursor = store.cursor(ReadOptions::default().values_on_demand(true)).unwrap();
        cursor.seek_to_first().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (Some(&b"a"[..]), None));
        assert_eq!(cursor.read_value().unwrap(), Some(&long_value(1, 0)[..]));
        assert_eq!(cursor.value(), Some(&long_value(1, 0)[..]));
        cursor.next().unwrap();
        assert_eq!(cursor.value(), Some(&b"short"[..]));
        cursor.prev().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (Some(&b"a"[..]), None));
        assert_eq!(cursor.read_value().unwrap(), Some(&long_value(1, 0)[..]));
        drop(cursor);
        store.close().unwrap();
    });
}

/// Every value is written ten times. What is dead comes back without any call, but for what a snapshot holds.
#[test]
fn space_of_dead_values_comes_back_and_snapshots_keep_theirs() {
    const KEYS: u64 = 150;
    for_each_seed(10, 6, |seed| {
        in_simulator(seed, |executor, volume| {
            let store = open(executor, volume, options());
            let write = |round: u64, keys: u64| {
                (0..keys).for_each(|n| store.put(key(n), long_value(n, round)).unwrap());
            };
            write(0, KEYS);
            let snapshot = store.snapshot().unwrap();
            let mut cursor = store.cursor(ReadOptions::default()).unwrap();
            (1..10).for_each(|round| write(round, KEYS));
            store.compact(None, None).unwrap();
            store.wait_idle().unwrap();
            holds(store.default_keyspace(), KEYS, 0, &ReadOptions::default().at(&snapshot));
            holds(store.default_keyspace(), KEYS, 9, &ReadOptions::default());
            cursor.seek_to_first().unwrap();
            for _ in 0..KEYS {
                assert!(cursor.valid() && cursor.value().is_some());
                cursor.next().unwrap();
            }
            drop((snapshot, cursor));
            store.compact(None, None).unwrap();
            store.wait_idle().unwrap();
            let properties = properties(&store);
            let live: u64 = (0..KEYS).map(|n| long_value(n, 9).len() as u64 + 70).sum();
            assert!(properties.value_bytes < live * 3 / 2, "{live} bytes are alive: {properties:?}");
            holds(store.default_keyspace(), KEYS, 9, &ReadOptions::default());
            assert!(store.properties().value_log.unwrap().segments_removed > 0);
            store.close().unwrap();
            assert_sound(executor, volume);
            let store = open(executor, volume, options());
            holds(store.default_keyspace(), KEYS, 9, &ReadOptions::default());
            store.close().unwrap();
        });
    });
}

#[test]
fn a_dropped_keyspace_takes_its_segments_with_it() {
    in_simulator(30, |executor, volume| {
        let store = open(executor, volume, options());
        let other = store.keyspace("other").unwrap();
        (0..100).for_each(|n| other.put(key(n), long_value(n, 0)).unwrap());
        other.flush().unwrap();
        assert!(segments(volume) > 0);
        let mut cursor = other.cursor(ReadOptions::default()).unwrap();
        store.drop_keyspace("other").unwrap();
        cursor.seek_to_first().unwrap();
        (0..100).for_each(|_| {
            assert!(cursor.value().is_some());
            cursor.next().unwrap();
        });
        drop((cursor, other));
        store.wait_idle().unwrap();
        store.close().unwrap();
        assert_eq!(segments(volume), 0);
        assert_sound(executor, volume);
    });
}
