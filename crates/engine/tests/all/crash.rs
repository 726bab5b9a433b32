//! Promises 1 to 4 on a simulated disk that crashes at every change: what was acknowledged as synced survives, the rest
//! survives as a prefix, batches are whole across keyspaces, versions are before or after an edit.

use crate::common::prefix::{self, Told};
use crate::common::*;
use situ_base::Env;
use situ_engine::{Durability, Error, Options, Store, StoreBuilder, WriteBatch};
use situ_sim::{CrashPoints, FaultPlan, Rng, SimExecutor, SimVolume, crash_everywhere, for_each_seed, wait};
use situ_storage::{FileName, Volume};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn open(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    StoreBuilder::new(small_options(&mut Rng::new(seed))).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn workload(env: &Env, volume: &SimVolume, seed: u64, steps: usize) -> Told {
    prefix::workload(env, &|seed| open(env, volume, seed), seed, steps)
}

fn check(env: &Env, volume: &SimVolume, told: &Told, least: usize, seed: u64) {
    prefix::check(&|seed| open(env, volume, seed), told, least, seed);
}

#[test]
fn promise_1_3_4_a_power_failure_anywhere_leaves_a_whole_prefix_with_all_that_was_synced() {
    for_each_seed(1, 12, |seed| {
        let points = CrashPoints { points_max: 60, images_per_point: 3, faults: FaultPlan::none() };
        let images = crash_everywhere(
            seed,
            &points,
            |env, volume| workload(env, volume, seed, 60),
            |env, volume, told| check(env, &volume, told, told.synced, seed),
        );
        assert!(images > 100, "only {images} images");
    });
}

/// A sector torn inside is more than a disk may do (docs/formats/log.md): what was durable in it can be lost. Even then
/// the store says so or shows the state after some whole number of operations.
#[test]
fn promise_3_6_a_sector_torn_inside_gives_no_wrong_data() {
    for_each_seed(100, 6, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 4, faults: FaultPlan::none().tear_sectors() };
        crash_everywhere(
            seed,
            &points,
            |env, volume| workload(env, volume, seed, 50),
            |env, volume, told| match open(env, &volume, seed) {
                Err(error) => assert!(error.is_corruption(), "{error}"),
                Ok(store) => {
                    store.close().unwrap();
                    check(env, &volume, told, 0, seed);
                }
            },
        );
    });
}

/// Process death takes nothing that was acknowledged, synced or not.
#[test]
fn promise_1_process_death_anywhere_takes_nothing_acknowledged() {
    for_each_seed(200, 8, |seed| {
        let start = |crash_at: Option<u64>| {
            let sim = SimExecutor::new(seed);
            let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
            crash_at.into_iter().for_each(|at| volume.crash_at(at));
            let told = sim.run(|| workload(&sim.env(), &volume, seed, 50));
            (volume, told)
        };
        let total = start(None).0.changes();
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            let (volume, told) = start(Some(rng.below(total)));
            let sim = SimExecutor::new(seed + 1);
            let after = volume.crash_keep_all().on(&sim.env());
            sim.run(|| check(&sim.env(), &after, &told, told.acknowledged, seed));
        }
    });
}

const WRITERS: usize = 4;

/// What each writer was told, and what it knew of the others before each write.
struct Threads {
    acknowledged: [AtomicU64; WRITERS],
    synced: [AtomicU64; WRITERS],
}

/// Several threads write at once. Each write says how many writes of every thread had been acknowledged before it
/// began: a surviving write must find them all.
#[test]
fn promise_1_2_no_write_survives_without_those_acknowledged_before_it_began() {
    for_each_seed(300, 12, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 3, faults: FaultPlan::none() };
        crash_everywhere(
            seed,
            &points,
            |env, volume| {
                let threads = Arc::new(Threads { acknowledged: Default::default(), synced: Default::default() });
                let Ok(store) = open(env, volume, seed) else { return threads };
                let jobs: Vec<_> = (0..WRITERS)
                    .map(|writer| {
                        let (env_of_job, store, threads) = (env.clone(), store.clone(), Arc::clone(&threads));
                        let job = move || write_thread(&env_of_job, &store, &threads, writer, seed);
                        env.executor.spawn(&format!("writer {writer}"), Box::new(job)).unwrap()
                    })
                    .collect();
                jobs.iter().for_each(|job| job.join().unwrap());
                let _ = store.close();
                threads
            },
            |env, volume, threads| {
                let store = open(env, &volume, seed).unwrap();
                let count = |writer: usize| {
                    let found = store.get(format!("writer {writer}").as_bytes()).unwrap();
                    found.map(|v| String::from_utf8(v.to_vec()).unwrap())
                };
                let counts: Vec<(u64, Vec<u64>)> = (0..WRITERS)
                    .map(|writer| match count(writer) {
                        None => (0, vec![0; WRITERS]),
                        Some(text) => {
                            let mut numbers = text.split(' ').map(|n| n.parse::<u64>().unwrap());
                            (numbers.next().unwrap(), numbers.collect())
                        }
                    })
                    .collect();
                for (writer, (survived, knew)) in counts.iter().enumerate() {
                    let synced = threads.synced[writer].load(Ordering::SeqCst);
                    assert!(*survived >= synced, "writer {writer}: {survived} of {synced} synced writes survived");
                    for (other, knew) in knew.iter().enumerate() {
                        assert!(
                            counts[other].0 >= *knew,
                            "write {survived} of writer {writer} began after write {knew} of writer {other} was \
                             acknowledged; it survived, and only {} of those did",
                            counts[other].0
                        );
                    }
                }
                store.close().unwrap();
            },
        );
    });
}

/// Every other thread writes asynchronously, with several of its writes under way.
fn write_thread(env: &Env, store: &Store, threads: &Threads, writer: usize, seed: u64) {
    let mut rng = Rng::new(seed + 1000 * writer as u64);
    let acknowledge = |n: u64, synced: bool| {
        threads.acknowledged[writer].store(n, Ordering::SeqCst);
        if synced {
            threads.synced[writer].store(n, Ordering::SeqCst);
        }
    };
    let mut under_way = VecDeque::new();
    for n in 1..=25 {
        let knew: Vec<String> = threads.acknowledged.iter().map(|n| n.load(Ordering::SeqCst).to_string()).collect();
        let mut batch = WriteBatch::new();
        let text = format!("{n} {}", knew.join(" "));
        let keyspace = store.default_keyspace();
        batch.put_in(keyspace, format!("writer {writer}").as_bytes(), text.as_bytes()).unwrap();
        batch.put_in(keyspace, format!("{writer}/{n}").as_bytes(), value(&mut rng)).unwrap();
        let synced = rng.chance(0.4);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        if writer.is_multiple_of(2) {
            if store.write_with(batch, durability).is_err() {
                return;
            }
            acknowledge(n, synced);
            continue;
        }
        let Ok(write) = taken(store.write_with_async(batch, durability)) else { break };
        under_way.push_back((n, synced, write));
        let may_stay = rng.index(5);
        while under_way.len() > may_stay {
            let Some((n, synced, write)) = under_way.pop_front() else { break };
            if wait(env, write).is_err() {
                return;
            }
            acknowledge(n, synced);
        }
    }
    for (n, synced, write) in under_way {
        if wait(env, write).is_err() {
            return;
        }
        acknowledge(n, synced);
    }
}

/// Readers never see a write before all that were numbered before it, and a snapshot does not change.
#[test]
fn promise_2_nothing_appears_early() {
    for_each_seed(400, 30, |seed| {
        let sim = SimExecutor::new(seed);
        sim.run(|| {
            let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
            let store = open(&sim.env(), &volume, seed).unwrap();
            let env = sim.env();
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let store = store.clone();
                    let job = move || {
                        let mut rng = Rng::new(seed + writer as u64);
                        for n in 0..30u64 {
                            // Both keys belong together: a reader must see them equal.
                            let mut batch = WriteBatch::new();
                            let text = format!("{writer} {n}");
                            batch.put_in(store.default_keyspace(), b"left", text.as_bytes()).unwrap();
                            batch.put_in(store.default_keyspace(), b"right", text.as_bytes()).unwrap();
                            let synced = rng.chance(0.5);
                            let durability = if synced { Durability::Synced } else { Durability::Buffered };
                            store.write_with(batch, durability).unwrap();
                        }
                    };
                    env.executor.spawn("writer", Box::new(job)).unwrap()
                })
                .collect();
            for _ in 0..60 {
                let snapshot = store.snapshot().unwrap();
                let read = || {
                    let options = situ_engine::ReadOptions::default().at(&snapshot);
                    let keyspace = store.default_keyspace();
                    (keyspace.get_with(b"left", &options).unwrap(), keyspace.get_with(b"right", &options).unwrap())
                };
                let (left, right) = read();
                assert_eq!(left.as_deref(), right.as_deref());
                sim.env().clock.sleep(std::time::Duration::from_micros(50));
                let (left_again, right_again) = read();
                assert_eq!((left.as_deref(), right.as_deref()), (left_again.as_deref(), right_again.as_deref()));
            }
            writers.iter().for_each(|job| job.join().unwrap());
            store.close().unwrap();
        });
    });
}

/// A log file that was prepared and never used lies between one that is ended and one that a killed process was making. Were it
/// removed before that one, the next opening would miss what seems to have been in it.
#[test]
fn promise_1_an_opening_that_removes_log_files_without_a_record_can_end_anywhere() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let open = |volume: &SimVolume| {
            let mut options = Options::default();
            options.keyspace.memtable_bytes = 64 << 10;
            StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
        };
        let store = open(&volume).unwrap();
        let other = store.create_keyspace("other", Default::default()).unwrap();
        other.put(b"key", b"value").unwrap();
        store.put(b"key", b"value").unwrap();
        // It ends the log file, which the other keyspace needs on.
        store.default_keyspace().flush().unwrap();
        store.sync().unwrap();
        let image = volume.crash_keep_all();
        let logs = |volume: &SimVolume| {
            let names = volume.list().unwrap().into_iter().map(|file| file.name);
            names.filter(|name| matches!(name, FileName::Log(_))).collect::<Vec<_>>()
        };
        assert!(logs(&image).len() >= 2, "{:?}", logs(&image));
        image.create_pages(FileName::Log(900), 2 * 4096).unwrap();
        image.sync_names().unwrap();
        let whole = image.crash_keep_all();
        drop(open(&whole).unwrap());
        assert!(!logs(&whole).contains(&FileName::Log(900)));
        for change in 0..whole.changes() {
            let crashing = image.crash_keep_all();
            crashing.crash_at(change);
            drop(open(&crashing));
            for seed in 0..8 {
                let left = if seed == 0 { crashing.crash_keep_all() } else { crashing.crash(seed) };
                let names = logs(&left);
                let store =
                    open(&left).unwrap_or_else(|error| panic!("change {change}, seed {seed}, {names:?}: {error}"));
                assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
                let other = store.existing_keyspace("other").unwrap();
                assert_eq!(other.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
        }
    });
}
