//! The value log: where large values go, and how the space of dead ones comes back.

use crate::common::*;
use situ_base::Env;
use situ_engine::{
    CompactionFilter, Decision, Error, FilterContext, Keyspace, KeyspaceProperties, Options, ReadOptions,
    RepairOptions, Store, StoreBuilder, Trim, Victims, repair, verify,
};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, crash_everywhere,
    for_each_seed,
};
use situ_storage::{FileName, Volume};
use std::sync::Arc;
use std::time::Duration;

const MIN_BYTES: u64 = 200;

pub(crate) fn options() -> Options {
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
pub(crate) fn in_simulator(seed: u64, test: impl Fn(&SimExecutor, &SimVolume) + Sync) {
    let executor = SimExecutor::new(seed);
    executor.run(|| test(&executor, &SimVolume::new(&executor.env(), FaultPlan::none(), seed)));
}

pub(crate) fn open(executor: &SimExecutor, volume: &SimVolume, options: Options) -> Store {
    StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap()
}

pub(crate) fn assert_sound(executor: &SimExecutor, volume: &SimVolume) {
    let report = verify(&(Arc::new(volume.clone()) as Arc<dyn Volume>), &executor.env(), &mut |_| {}).unwrap();
    let has_segment = report.orphans.iter().any(|name| matches!(name, FileName::Values(_)));
    assert!(report.is_sound() && report.warnings.is_empty() && !has_segment, "{report}");
}

/// After a repair, which leaves what it has set aside.
fn assert_no_damage(executor: &SimExecutor, volume: &SimVolume) {
    let report = verify(&(Arc::new(volume.clone()) as Arc<dyn Volume>), &executor.env(), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report}");
}

fn segments(volume: &SimVolume) -> usize {
    volume.list().unwrap().iter().filter(|file| matches!(file.name, FileName::Values(_))).count()
}

pub(crate) fn properties(store: &Store) -> KeyspaceProperties {
    store.default_keyspace().properties()
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

pub(crate) fn long_value(n: u64, round: u64) -> Vec<u8> {
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
        let mut cursor = store.cursor_with(&ReadOptions::default().values_on_demand(true)).unwrap();
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
            let mut cursor = store.cursor().unwrap();
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
            // What lies in the deepest level alone is not compacted.
            write(9, KEYS);
            store.compact(None, None).unwrap();
            store.wait_idle().unwrap();
            let properties = properties(&store);
            let live: u64 = (0..KEYS).map(|n| long_value(n, 9).len() as u64 + 70).sum();
            assert!(
                properties.value_bytes < live * 3 / 2,
                "{live} bytes are alive: {properties:?}, {:?}",
                store.properties().value_log
            );
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

/// A collection has written handles, and they are overwritten before they are in a table. The flush alone knows of these deaths.
#[test]
fn values_whose_handles_die_in_a_memtable_are_trimmed_when_no_reader_has_the_memtable() {
    const KEYS: u64 = 400;
    in_simulator(11, |executor, volume| {
        let mut patient = options();
        patient.keyspace.memtable_bytes = 4 << 20;
        patient.keyspace.level0_tables = 100;
        patient.value_trim = Some(Trim::Full);
        let store = open(executor, volume, patient);
        // An idle store would flush the memtable.
        let other = store.keyspace_with("other", situ_engine::KeyspaceOptions::default()).unwrap();
        let settle = || {
            for _ in 0..30 {
                other.put(b"not idle", b"").unwrap();
                executor.env().clock.sleep(Duration::from_secs(1));
            }
        };
        let log = || store.properties().value_log.unwrap();
        (0..KEYS).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        store.flush().unwrap();
        // While a snapshot sees the old handles, the memtable with the new ones stays in memory.
        let snapshot = store.snapshot().unwrap();
        (0..KEYS).step_by(2).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        drop(snapshot);
        let snapshot = store.snapshot().unwrap();
        // Trimming would leave nothing to collect. It waits for this reader, which has the tables from before.
        let reader = store.cursor().unwrap();
        store.compact(None, None).unwrap();
        settle();
        assert!(log().collected_bytes > 100_000, "{:?}", log());
        drop(reader);
        settle();
        // A half of what has moved, so that the segments stay.
        (1..KEYS).step_by(4).for_each(|n| store.put(key(n), long_value(n, 1)).unwrap());
        let mut cursor = store.cursor_with(&ReadOptions::default().at(&snapshot)).unwrap();
        let before = log().dead_bytes;
        store.flush().unwrap();
        settle();
        assert!(log().dead_bytes > before + 30_000, "{before}: {:?}", log());
        assert!(log().trimmed_bytes <= before, "the cursor has the memtable: {:?}", log());
        cursor.seek_to_first().unwrap();
        for n in 0..KEYS {
            assert_eq!(cursor.value(), Some(&long_value(n, 0)[..]), "key {n}");
            cursor.next().unwrap();
        }
        drop(cursor);
        settle();
        assert!(log().trimmed_bytes > before + 20_000, "{before}: {:?}", log());
        holds(store.default_keyspace(), KEYS, 0, &ReadOptions::default().at(&snapshot));
        drop(snapshot);
        for n in 0..KEYS {
            let found = store.get(key(n)).unwrap();
            assert_eq!(found.as_deref(), Some(&long_value(n, u64::from(n % 4 == 1))[..]), "key {n}");
        }
        store.close().unwrap();
        assert_sound(executor, volume);
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
        let mut cursor = other.cursor().unwrap();
        store.drop_keyspace("other").unwrap();
        cursor.seek_to_first().unwrap();
        (0..100).for_each(|_| {
            assert!(cursor.value().is_some());
            cursor.next().unwrap();
        });
        drop((cursor, other));
        store.wait_idle().unwrap();
        assert_eq!(segments(volume), 0, "a caller that waited for quiet finds nothing to be deleted");
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// A store in which values die, and segments are collected, all the time.
fn busy_options(seed: u64) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.keyspace.value_log_min_bytes = Some(seed % 3 * 10);
    options.value_segment_bytes = 16 << 10;
    options.value_inflation_percent_max = 110;
    options.value_trim = [None, Some(Trim::Off), Some(Trim::Full)][seed as usize % 3];
    options.value_victims = [Victims::Garbage, Victims::Fifo, Victims::GarbageAndAge][seed as usize / 3 % 3];
    options
}

fn open_busy(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    StoreBuilder::new(busy_options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

#[test]
fn promise_1_3_4_a_power_failure_in_a_flush_a_collection_or_trimming_loses_nothing() {
    for_each_seed(100, 6, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 2, faults: FaultPlan::none() };
        let images = crash_everywhere(
            seed,
            &points,
            |env, volume| prefix::workload(env, &|_| open_busy(env, volume, seed), seed, 80),
            |env, volume, told| {
                prefix::check(&|_| open_busy(env, &volume, seed), told, told.synced, seed);
                let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
                let report = verify(&home, env, &mut |_| {}).unwrap();
                assert!(report.is_sound(), "{report}");
            },
        );
        assert!(images > 50, "only {images} images");
    });
}

/// Collections write handles while others write values of the same keys.
#[test]
fn writers_and_collections_of_the_same_keys_do_not_lose_each_others_writes() {
    for_each_seed(200, 6, |seed| {
        in_simulator(seed, |executor, volume| {
            let store = open_busy(&executor.env(), volume, seed).unwrap();
            let jobs: Vec<_> = (0..3u64)
                .map(|writer| {
                    let store = store.clone();
                    let write = move || {
                        for round in 0..60 {
                            let n = writer * 8 + round % 8;
                            store.put(key(n), long_value(n, round / 8)).unwrap();
                            if round % 16 == 15 {
                                store.flush().unwrap();
                            }
                        }
                    };
                    executor.env().executor.spawn(&format!("writer {writer}"), Box::new(write)).unwrap()
                })
                .collect();
            jobs.iter().for_each(|job| job.join().unwrap());
            let check = |store: &Store| {
                for n in 0..24 {
                    let last = (0..60).rfind(|round| round % 8 == n % 8).unwrap() / 8;
                    assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&long_value(n, last)[..]), "key {n}");
                }
            };
            check(&store);
            store.compact(None, None).unwrap();
            store.wait_idle().unwrap();
            check(&store);
            store.close().unwrap();
            assert_sound(executor, volume);
            let store = open_busy(&executor.env(), volume, seed).unwrap();
            check(&store);
            store.close().unwrap();
        });
    });
}

/// A value of the only segment, rotten, and where it lies.
fn rotten_store(executor: &SimExecutor, volume: &SimVolume) -> FileName {
    let store = open(executor, volume, options());
    (0..20).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
    store.flush().unwrap();
    store.close().unwrap();
    let names = volume.list().unwrap().into_iter().map(|file| file.name);
    let name = names.rev().find(|name| matches!(name, FileName::Values(_))).unwrap();
    let at = volume.contents(name).unwrap().windows(100).position(|part| part == &long_value(7, 0)[..100]).unwrap();
    assert!(volume.rot(name, at as u64 + 50, 3));
    name
}

#[test]
fn promise_6_rot_in_a_segment_is_found_and_named_and_repaired() {
    in_simulator(40, |executor, volume| {
        let name = rotten_store(executor, volume).to_string();
        let store = open(executor, volume, options());
        for n in (0..20).filter(|n| *n != 7) {
            assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&long_value(n, 0)[..]));
        }
        let error = store.get(key(7)).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(&name), "{error}");
        assert!(store.properties().damaged_files[0].file.contains(&name));
        store.close().unwrap();
        let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
        let report = verify(&home, &executor.env(), &mut |_| {}).unwrap();
        assert!(report.damages.len() == 1 && report.damages[0].file.contains(&name), "{report}");
        let repaired = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
        assert!(
            repaired.lost_ranges.iter().any(|lost| lost.contains(&key(7)) && !lost.contains(&key(8))),
            "{repaired}"
        );
        assert_no_damage(executor, volume);
        let store = open(executor, volume, options());
        for n in 0..20 {
            let expected = (n != 7).then(|| long_value(n, 0));
            assert_eq!(store.get(key(n)).unwrap().as_deref(), expected.as_deref(), "key {n}");
        }
        store.close().unwrap();
    });
}

/// Damage of a segment that was in nobody's way stayed after a repair: `verify` told of it again and again, and collections failed.
#[test]
fn promise_6_after_a_repair_no_segment_is_damaged_and_sound_values_are_there() {
    const KEYS: u64 = 60;
    // What rots: the trailer, its whole page, the header, the half of the file, a key, the header of a record, a value.
    for case in 0..7 {
        in_simulator(60 + case, |executor, volume| {
            let store = open(executor, volume, options());
            (0..KEYS).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
            store.flush().unwrap();
            store.close().unwrap();
            let names = volume.list().unwrap().into_iter().map(|file| file.name);
            let holds = |name: &FileName| {
                let contents = volume.contents(*name).unwrap();
                contents.windows(100).position(|part| part == &long_value(7, 0)[..100]).map(|at| at as u64)
            };
            let mut found = names.filter(|name| matches!(name, FileName::Values(_)));
            let (name, at) = found.find_map(|name| Some((name, holds(&name)?))).unwrap();
            let mut contents = volume.contents(name).unwrap();
            let last_page = contents.len() as u64 - 4096;
            let mut rot = |offsets: std::ops::Range<u64>| offsets.for_each(|offset| contents[offset as usize] ^= 0x55);
            match case {
                0 => rot(last_page + 8..last_page + 10),
                1 => rot(last_page..last_page + 4096),
                2 => rot(8..10),
                3 => contents.truncate(contents.len() / 8192 * 4096),
                4 => rot(at - 2..at),
                5 => rot(at - 15..at - 13),
                _ => rot(at + 50..at + 52),
            }
            volume.set_contents(name, &contents);
            let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
            let sound = verify(&home, &executor.env(), &mut |_| {}).unwrap().is_sound();
            assert!(!sound || case == 2, "case {case}: the damage is found");
            let repaired = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
            assert_eq!(repaired.was_sound, sound, "case {case}: {repaired}");
            assert_no_damage(executor, volume);
            let again = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
            assert!(again.was_sound, "case {case}: {again}");
            // Everything is collected that can be.
            let mut eager = options();
            eager.value_inflation_percent_max = 105;
            let store = open(executor, volume, eager);
            let is_lost = |n| repaired.lost_ranges.iter().any(|lost| lost.contains(&key(n)));
            let lost = (0..KEYS).filter(|n| is_lost(*n)).count();
            assert!(lost == 0 || (3..).contains(&case), "case {case}: {lost} lost");
            assert!(lost <= 1 || case == 3, "case {case}: {lost} lost");
            for n in 0..KEYS {
                let expected = (!is_lost(n)).then(|| long_value(n, 0));
                assert_eq!(store.get(key(n)).unwrap().as_deref(), expected.as_deref(), "case {case}: key {n}");
            }
            (0..KEYS).step_by(2).for_each(|n| store.put(key(n), long_value(n, 1)).unwrap());
            store.flush().unwrap();
            store.compact(None, None).unwrap();
            store.wait_idle().unwrap();
            let properties = store.properties();
            assert!(properties.damaged_files.is_empty(), "case {case}: {properties:?}");
            assert_eq!(properties.value_log.map_or(0, |log| log.segments_set_aside), 0, "case {case}");
            store.close().unwrap();
            assert_no_damage(executor, volume);
        });
    }
}

/// A table cannot say which of its values are alive. Their segments stay, and the others are collected.
#[test]
fn promise_6_segments_that_cannot_be_collected_are_told_and_the_others_go_on() {
    in_simulator(45, |executor, volume| {
        const KEYS: u64 = 400;
        let mut patient = options();
        patient.value_inflation_percent_max = 1000;
        let store = open(executor, volume, patient);
        let write = |every: usize, round| {
            (0..KEYS).step_by(every).for_each(|n| store.put(key(n), long_value(n, round)).unwrap());
            store.flush().unwrap();
        };
        write(1, 0);
        write(2, 1);
        store.compact(None, None).unwrap();
        store.wait_idle().unwrap();
        store.close().unwrap();
        let tables = volume.list().unwrap().into_iter().map(|file| file.name);
        let table = tables.filter(|name| matches!(name, FileName::Table(_))).max().unwrap();
        assert!(volume.rot(table, 100, 3));
        let before = segments(volume);
        let mut eager = options();
        eager.value_inflation_percent_max = 105;
        let store = open(executor, volume, eager);
        store.wait_idle().unwrap();
        let found = store.properties();
        let log = found.value_log.unwrap();
        let stuck = log.segments_set_aside;
        assert!(stuck > 0 && log.segments_removed as usize > before / 3, "{before} segments, {log:?}");
        assert!(found.damaged_files.iter().any(|damage| damage.file.contains(&table.to_string())), "{found:?}");
        let mut readable = 0;
        for n in 0..KEYS {
            match store.get(key(n)) {
                Ok(value) => {
                    readable += 1;
                    assert_eq!(value.as_deref(), Some(&long_value(n, 1 - n % 2)[..]), "key {n}");
                }
                Err(error) => assert!(error.is_corruption(), "{error}"),
            }
        }
        assert!(readable > KEYS / 2 && readable < KEYS, "{readable}");
        store.close().unwrap();
    });
}

#[test]
fn a_repair_finds_the_segments_of_a_store_that_has_lost_its_manifest() {
    in_simulator(41, |executor, volume| {
        let store = open(executor, volume, options());
        for round in 0..3 {
            (0..60).for_each(|n| store.put(key(n), long_value(n, round)).unwrap());
            store.flush().unwrap();
        }
        store.compact(None, None).unwrap();
        store.wait_idle().unwrap();
        store.close().unwrap();
        for file in volume.list().unwrap() {
            if matches!(file.name, FileName::Manifest(_) | FileName::ManifestCopy(_) | FileName::Current) {
                volume.remove(file.name).unwrap();
            }
        }
        let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
        let repaired = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
        assert!(repaired.without_manifest, "{repaired}");
        let store = open(executor, volume, options());
        holds(store.default_keyspace(), 60, 2, &ReadOptions::default());
        store.close().unwrap();
        assert_no_damage(executor, volume);
    });
}

/// Nobody knows then which segments there were. What leads to a missing one is damage, with its name, when it is read and when the
/// store is verified.
#[test]
fn promise_6_after_a_repair_without_a_manifest_a_value_of_a_missing_segment_is_named_damage() {
    in_simulator(46, |executor, volume| {
        let store = open(executor, volume, options());
        (0..200).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        store.flush().unwrap();
        store.close().unwrap();
        let names: Vec<FileName> = volume.list().unwrap().into_iter().map(|file| file.name).collect();
        let gone = *names.iter().find(|name| matches!(name, FileName::Values(_))).unwrap();
        let is_manifest =
            |name: &FileName| matches!(name, FileName::Manifest(_) | FileName::ManifestCopy(_) | FileName::Current);
        names.iter().filter(|name| is_manifest(name)).for_each(|name| volume.remove(*name).unwrap());
        volume.remove(gone).unwrap();
        let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
        let repaired = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
        assert!(repaired.without_manifest, "{repaired}");
        let told = repaired.damages.iter().any(|damage| damage.file.contains(&gone.to_string()));
        assert!(told && !repaired.nothing_lost(), "{repaired}");
        let store = open(executor, volume, options());
        let mut cursor = store.cursor().unwrap();
        let (mut lost, mut read) = (0, 0);
        for n in 0..200 {
            let is_lost = repaired.lost_ranges.iter().any(|range| range.contains(&key(n)));
            cursor.seek(&key(n)).unwrap_or_default();
            assert_eq!(cursor.valid(), !is_lost);
            match store.get(key(n)) {
                Ok(value) => {
                    assert!(!is_lost);
                    assert_eq!(value.as_deref(), Some(&long_value(n, 0)[..]));
                    read += 1;
                }
                Err(error) => {
                    assert!(is_lost && error.is_corruption(), "{error}");
                    assert!(error.to_string().contains(&gone.to_string()), "{error}");
                    lost += 1;
                }
            }
        }
        assert!(lost > 10 && read > 10, "{lost} lost, {read} read");
        drop(cursor);
        store.close().unwrap();
        let report = verify(&home, &executor.env(), &mut |_| {}).unwrap();
        assert!(report.damages.iter().any(|damage| damage.file.contains(&gone.to_string())), "{report}");
    });
}

#[test]
fn promise_7_a_missing_segment_refuses_the_opening_and_a_repair_names_its_keys() {
    in_simulator(42, |executor, volume| {
        let name = rotten_store(executor, volume);
        volume.remove(name).unwrap();
        let home = Arc::new(volume.clone()) as Arc<dyn Volume>;
        let builder = StoreBuilder::new(options()).env(executor.env());
        let error = builder.open_volume(Arc::clone(&home)).map(drop).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(&name.to_string()), "{error}");
        let repaired = repair(&home, &executor.env(), RepairOptions::default()).unwrap();
        assert!((0..20).any(|n| repaired.lost_ranges.iter().any(|lost| lost.contains(&key(n)))), "{repaired}");
        assert_no_damage(executor, volume);
        let store = open(executor, volume, options());
        for n in 0..20 {
            let lost = repaired.lost_ranges.iter().any(|lost| lost.contains(&key(n)));
            let expected = (!lost).then(|| long_value(n, 0));
            assert_eq!(store.get(key(n)).unwrap().as_deref(), expected.as_deref(), "key {n}");
        }
        store.close().unwrap();
    });
}

#[test]
fn promise_7_a_full_disk_refuses_writes_and_the_store_goes_on_when_there_is_room() {
    in_simulator(43, |executor, volume| {
        let store = open(executor, volume, options());
        let used: u64 = volume.list().unwrap().iter().map(|file| file.bytes).sum();
        volume.set_faults(FaultPlan::none().capacity(used + (600 << 10)));
        let mut acknowledged = Vec::new();
        let refused = (0..5000).find_map(|n| match store.put(key(n), long_value(n, 0)) {
            Ok(()) => {
                acknowledged.push(n);
                None
            }
            Err(error) => Some(error),
        });
        assert!(refused.expect("the disk is full").is_no_space());
        volume.set_faults(FaultPlan::none());
        // The flusher tries again after a pause.
        while store.flush().is_err() {
            executor.env().clock.sleep(Duration::from_secs(1));
        }
        store.put("more", "room").unwrap();
        for n in acknowledged {
            assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&long_value(n, 0)[..]), "key {n}");
        }
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// A full disk takes no copies of what is alive. Trimming goes on, and gives space back.
#[test]
fn promise_7_dead_values_are_trimmed_while_collections_find_no_space() {
    const KEYS: u64 = 400;
    in_simulator(44, |executor, volume| {
        let mut patient = options();
        patient.keyspace.memtable_bytes = 4 << 20;
        patient.keyspace.level0_tables = 100;
        patient.value_trim = Some(Trim::Full);
        let store = open(executor, volume, patient);
        let log = || store.properties().value_log.unwrap();
        (0..KEYS).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        store.flush().unwrap();
        (0..KEYS).filter(|n| n % 4 != 0).for_each(|n| store.put(key(n), long_value(n, 1)).unwrap());
        store.flush().unwrap();
        let full = Rule::new(Fault::NoSpace).on(&[Operation::CreatePages]).files(&[FileKind::Values]);
        volume.set_faults(FaultPlan::none().with(full));
        store.compact(None, None).unwrap();
        executor.env().clock.sleep(Duration::from_secs(30));
        assert!(store.statistics().job_failures > 0, "collections have failed");
        assert_eq!(log().collected_bytes, 0, "{:?}", log());
        assert!(log().dead_bytes > 200_000 && log().trimmed_bytes > 150_000, "{:?}", log());
        volume.set_faults(FaultPlan::none());
        for n in 0..KEYS {
            let found = store.get(key(n)).unwrap();
            assert_eq!(found.as_deref(), Some(&long_value(n, u64::from(n % 4 != 0))[..]), "key {n}");
        }
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// The copies are durable and their segment is listed, and then the log has no space for their handles. Nothing leads to the copies:
/// they are dead, and each attempt goes on in the segment of the one before.
#[test]
fn promise_7_copies_whose_handles_find_no_space_count_as_dead() {
    const KEYS: u64 = 400;
    in_simulator(45, |executor, volume| {
        let mut patient = options();
        patient.keyspace.memtable_bytes = 1 << 20;
        patient.keyspace.level0_tables = 100;
        patient.value_trim = Some(Trim::Off);
        let store = open(executor, volume, patient);
        (0..KEYS).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        store.flush().unwrap();
        (0..KEYS).filter(|n| n % 2 != 0).for_each(|n| store.put(key(n), long_value(n, 1)).unwrap());
        store.flush().unwrap();
        let no_space = |kinds: &[FileKind]| {
            let rule = Rule::new(Fault::NoSpace).on(&[Operation::CreatePages, Operation::Create]).files(kinds);
            volume.set_faults(FaultPlan::none().with(rule));
        };
        // No collection begins before the log is full.
        no_space(&[FileKind::Values]);
        store.compact(None, None).unwrap();
        no_space(&[FileKind::Values, FileKind::Log, FileKind::Spare]);
        let refused = (0..100_000).find_map(|n| store.put(key(KEYS + n), [1; 150]).err());
        assert!(refused.expect("the log is full").is_no_space());
        no_space(&[FileKind::Log, FileKind::Spare]);
        let before = segments(volume);
        executor.env().clock.sleep(Duration::from_secs(60));
        let collected = store.properties().value_log.unwrap().collected_bytes;
        assert!(collected > 10_000, "copies were made: {collected}");
        let KeyspaceProperties { value_bytes, value_dead_bytes, .. } = properties(&store);
        let live: u64 = (0..KEYS).map(|n| long_value(n, 0).len() as u64 + 50).sum();
        assert!(value_bytes - value_dead_bytes < live * 11 / 10, "{live}: {value_bytes} - {value_dead_bytes}");
        assert!(
            segments(volume) as u64 <= before as u64 + 1 + collected / (48 << 10),
            "{before}: {}",
            segments(volume)
        );
        volume.set_faults(FaultPlan::none());
        executor.env().clock.sleep(Duration::from_secs(60));
        (0..KEYS).for_each(|n| {
            let found = store.get(key(n)).unwrap();
            assert_eq!(found.as_deref(), Some(&long_value(n, n % 2)[..]), "key {n}");
        });
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// A flush fails after it has filled the segment of an earlier flush. No edit names these values, and the next attempt writes them anew.
#[test]
fn values_of_a_failed_flush_count_as_dead_also_after_another_opening() {
    in_simulator(46, |executor, volume| {
        let patient = || {
            let mut options = options();
            options.keyspace.memtable_bytes = 4 << 20;
            options.value_inflation_percent_max = 10_000;
            options.value_trim = Some(Trim::Off);
            options
        };
        let store = open(executor, volume, patient());
        let dead = |store: &Store| store.properties().value_log.unwrap().dead_bytes;
        (0..80).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        store.flush().unwrap();
        (80..200).for_each(|n| store.put(key(n), long_value(n, 0)).unwrap());
        let full = Rule::new(Fault::NoSpace).on(&[Operation::Append, Operation::Sync]).files(&[FileKind::Table]);
        volume.set_faults(FaultPlan::none().with(full));
        assert!(store.flush().is_err());
        volume.set_faults(FaultPlan::none());
        while store.flush().is_err() {
            executor.env().clock.sleep(Duration::from_secs(1));
        }
        let counted = dead(&store);
        assert!(counted > 1000, "{:?}", store.properties().value_log);
        store.close().unwrap();
        let store = open(executor, volume, patient());
        assert_eq!(dead(&store), counted);
        (0..200).for_each(|n| {
            assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&long_value(n, 0)[..]), "key {n}");
        });
        store.close().unwrap();
    });
}

/// Removes what begins with this byte.
struct FirstByte;

impl CompactionFilter for FirstByte {
    fn name(&self) -> &str {
        "first byte"
    }

    fn value_prefix_bytes(&self) -> Option<usize> {
        Some(4)
    }

    fn decide(&self, _context: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        if value[0] == 1 { Decision::Remove } else { Decision::Keep }
    }
}

/// As a server's filter does, which needs the header of an item.
#[test]
fn a_filter_sees_the_first_bytes_of_a_value_in_the_value_log() {
    in_simulator(44, |executor, volume| {
        let mut filtered = options();
        filtered.keyspace.compaction_filter = Some(Arc::new(FirstByte));
        let store = open(executor, volume, filtered);
        for n in 0..100u64 {
            store.put(key(n), vec![(n % 2) as u8; 1000]).unwrap();
        }
        store.flush().unwrap();
        assert!(properties(&store).value_bytes > 100_000);
        store.compact(None, None).unwrap();
        for n in 0..100 {
            assert_eq!(store.get(key(n)).unwrap().is_some(), n % 2 == 0, "key {n}");
        }
        store.wait_idle().unwrap();
        assert!(properties(&store).value_bytes < 80_000, "{:?}", properties(&store));
        // A collection keeps the first bytes with the handle.
        store.compact(None, None).unwrap();
        assert_eq!(store.get(key(2)).unwrap().as_deref(), Some(&[0; 1000][..]));
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// The writer erases values that a reader of another process could still ask for. Once, the reader was told of damage.
#[test]
fn a_reader_beside_the_writer_is_told_that_the_store_has_changed() {
    in_simulator(77, |executor, volume| {
        let mut erasing = options();
        erasing.value_trim = Some(Trim::Full);
        let store = open(executor, volume, erasing);
        let rewrite = |round: u8| {
            (0..60).for_each(|n| store.put(key(n), vec![round; 1000]).unwrap());
            store.flush().unwrap();
        };
        rewrite(1);
        let reader = StoreBuilder::new(options()).env(executor.env()).read_only();
        let reader = reader.open_volume(Arc::new(volume.clone())).unwrap();
        (0..60).for_each(|n| assert_eq!(reader.get(key(n)).unwrap().unwrap()[..], [1; 1000]));
        (2..6).for_each(rewrite);
        store.default_keyspace().compact(None, None).unwrap();
        store.wait_idle().unwrap();
        let answers: Vec<_> = (0..60).map(|n| reader.get(key(n))).collect();
        let is_right = |answer: &Result<Option<_>, Error>| match answer {
            Ok(value) => value.as_deref() == Some(&[1; 1000][..]),
            Err(error) => matches!(error, Error::Changed { .. }),
        };
        assert!(answers.iter().all(is_right), "{answers:?}");
        assert!(answers.iter().any(Result::is_err), "nothing was erased");
        let scanned = reader.iter().unwrap().find_map(Result::err);
        assert!(matches!(scanned, Some(Error::Changed { .. })), "{scanned:?}");
        store.close().unwrap();
    });
}
