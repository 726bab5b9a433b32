//! A store that runs.

use super::model::{Nature, Shape, Told, apply, batch_of, check, check_sound, contents, device, draw, open, small};
use crate::{Durability, Error, HashBatch, HashOptions, HashStore, HashStoreBuilder, StoreId};
use situ_base::Env;
use situ_sim::{Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume};
use situ_storage::{FileName, Volume};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn a_store_in_a_directory_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { bucket_space_bytes: 1 << 26, ..HashOptions::default() };
    let store = HashStore::open(directory.path(), options.clone()).unwrap();
    for number in 0..200_u32 {
        store.put(number.to_le_bytes(), vec![number as u8; 300]).unwrap();
    }
    store.delete(7_u32.to_le_bytes()).unwrap();
    store.put_with("synced", "yes", Durability::Synced, None).unwrap();
    assert_eq!(store.count().unwrap(), 200);
    store.close().unwrap();
    assert!(matches!(store.get("synced"), Err(Error::Closed)));
    let store = HashStore::open(directory.path(), options).unwrap();
    assert_eq!(store.get("synced").unwrap().unwrap(), b"yes");
    assert_eq!(store.get(7_u32.to_le_bytes()).unwrap(), None);
    assert_eq!(store.get(9_u32.to_le_bytes()).unwrap().unwrap(), vec![9; 300]);
    assert_eq!(store.count().unwrap(), 200);
    check_sound(&store);
}

/// A backup of the home alone, put back with newer buckets, once made a thread panic that asked for the count.
#[test]
fn a_home_that_is_older_than_its_buckets_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (home, old) = (directory.path().join("home"), directory.path().join("old"));
    let buckets = directory.path().join("buckets");
    std::fs::File::create(&buckets).unwrap().set_len(1 << 26).unwrap();
    let open = || crate::HashStoreBuilder::new(HashOptions::default()).device(&buckets).open(&home);
    open().unwrap().close().unwrap();
    copy_tree(&home, &old);
    let store = open().unwrap();
    (0..50_u32).for_each(|number| store.put(number.to_le_bytes(), "a value").unwrap());
    store.close().unwrap();
    std::fs::remove_dir_all(&home).unwrap();
    copy_tree(&old, &home);
    let store = open().unwrap();
    (0..50_u32).for_each(|number| store.delete(number.to_le_bytes()).unwrap());
    let error = store.checkpoint().unwrap_err();
    assert!(error.to_string().contains("older than the bucket space"), "{error}");
    assert_eq!(store.properties().totals.entries, 0);
}

/// The file with the buckets was replaced by a copy of it under an open store. Puts were acknowledged and went into the
/// renamed file, and the next opening took the copy.
#[test]
fn buckets_that_are_replaced_under_an_open_store_fail_it_soon() {
    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { bucket_space_bytes: 1 << 24, base_bits: 4, ..HashOptions::default() };
    let outside = directory.path().join("buckets");
    std::fs::File::create(&outside).unwrap().set_len(1 << 24).unwrap();
    let (home, other) = (directory.path().join("home"), directory.path().join("other"));
    for (home, buckets, device) in [(&home, outside.clone(), Some(&outside)), (&other, other.join("buckets"), None)] {
        let builder = HashStoreBuilder::new(options.clone());
        let builder = device.iter().fold(builder, |builder, path| builder.device(path));
        let store = builder.clone().open(home).unwrap();
        let put = |number: u32| store.put_with(number.to_le_bytes(), "a value", Durability::Synced, None);
        (0..100).for_each(|number| put(number).unwrap());
        let (copy, renamed) = (buckets.with_extension("copy"), buckets.with_extension("renamed"));
        std::fs::copy(&buckets, &copy).unwrap();
        std::fs::rename(&buckets, &renamed).unwrap();
        std::fs::rename(&copy, &buckets).unwrap();
        let replaced = std::time::Instant::now();
        let (acknowledged, refused) = (100..).find_map(|number| Some((number, put(number).err()?))).unwrap();
        // The store looks each 100 ms. A busy machine takes its time.
        assert!(replaced.elapsed() < std::time::Duration::from_secs(20), "{:?}", replaced.elapsed());
        let says = |error: Error| error.to_string().contains("buckets was removed, renamed or replaced");
        assert!(says(refused.clone()), "{refused}");
        assert!(says(store.close().unwrap_err()));
        std::fs::rename(&renamed, &buckets).unwrap();
        let store = builder.open(home).unwrap();
        for number in 0..acknowledged {
            assert_eq!(store.get(number.to_le_bytes()).unwrap().as_deref(), Some(&b"a value"[..]), "{number}");
        }
        check_sound(&store);
        store.close().unwrap();
    }
}

/// A directory may be renamed while its store is open, with the buckets in it.
#[test]
fn a_home_may_be_renamed_while_its_store_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { bucket_space_bytes: 1 << 24, base_bits: 4, ..HashOptions::default() };
    let (before, after) = (directory.path().join("before"), directory.path().join("after"));
    let store = HashStore::open(&before, options.clone()).unwrap();
    std::fs::rename(&before, &after).unwrap();
    store.put_with("a", "1", Durability::Synced, None).unwrap();
    store.close().unwrap();
    assert_eq!(HashStore::open(&after, options).unwrap().get("a").unwrap().unwrap(), b"1");
}

pub(super) fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn random_writes_read_like_a_map() {
    for nature in [Nature::Safe, Nature::Volatile] {
        situ_sim::for_each_seed(100, 4, |seed| {
            let sim = SimExecutor::new(seed);
            let env = sim.env();
            let volumes =
                [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
            let device = device(&env, nature, FaultPlan::none(), seed);
            let shape = Shape { keys: 60, value_bytes_max: 900, deletes_of_ten: 3 };
            sim.run(|| {
                let mut rng = Rng::new(seed);
                let mut map = BTreeMap::new();
                for _ in 0..3 {
                    let store = open(&env, &volumes, &device, &small()).unwrap();
                    assert_eq!(contents(&store, &shape), map);
                    for _ in 0..120 {
                        let step = draw(&mut rng, &shape);
                        store.write(batch_of(&step)).unwrap();
                        apply(&mut map, &step);
                        let (key, _) = &step[0];
                        assert_eq!(store.get(key).unwrap(), map.get(key).cloned());
                    }
                    assert_eq!(contents(&store, &shape), map);
                    assert_eq!(store.count().unwrap(), map.len() as u64);
                    check_sound(&store);
                    assert_eq!(contents(&store, &shape), map);
                    store.close().unwrap();
                }
            });
        });
    }
}

#[test]
fn a_store_remembers_its_device() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = HashOptions { bucket_space_bytes: 1 << 26, ..HashOptions::default() };
    let path = elsewhere.path().join("device");
    std::fs::File::create(&path).unwrap().set_len(1 << 26).unwrap();
    let store = HashStoreBuilder::new(options.clone()).device(&path).open(home.path()).unwrap();
    store.put("a", "b").unwrap();
    store.close().unwrap();
    let store = HashStore::open(home.path(), options.clone()).unwrap();
    assert_eq!(store.get("a").unwrap().unwrap(), b"b");
    store.close().unwrap();
    assert!(!home.path().join("buckets").exists());
    let moved = elsewhere.path().join("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert!(HashStore::open(home.path(), options.clone()).is_err());
    let store = HashStoreBuilder::new(options).device(&moved).open(home.path()).unwrap();
    assert_eq!(store.get("a").unwrap().unwrap(), b"b");
}

/// A simulated machine with a store.
fn with_store(seed: u64, nature: Nature, test: impl FnOnce(&Env, &HashStore) + Send) {
    with_store_of(&small(), seed, nature, test);
}

fn with_store_of(options: &HashOptions, seed: u64, nature: Nature, test: impl FnOnce(&Env, &HashStore) + Send) {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
    let device = device(&env, nature, FaultPlan::none(), seed);
    sim.run(|| {
        let store = open(&env, &volumes, &device, options).unwrap();
        test(&env, &store);
        check_sound(&store);
        store.close().unwrap();
    });
}

fn spawn_all(env: &Env, bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let jobs: Vec<_> = bodies.into_iter().map(|body| env.executor.spawn("client", body).unwrap()).collect();
    jobs.iter().for_each(|job| job.join().unwrap());
}

#[test]
fn large_values_stay_while_their_segments_are_collected() {
    let collections = AtomicUsize::new(0);
    situ_sim::for_each_seed(700, 20, |seed| {
        let options =
            HashOptions { value_segment_bytes: 16 << 10, pending_bytes_max: 64 << 10, partitions: 4, ..small() };
        with_store_of(&options, seed, Nature::Safe, |env, store| {
            let writer = |number: u64| {
                let store = store.clone();
                let env = env.clone();
                move || {
                    let mut rng = Rng::new(seed ^ number << 32);
                    let mut map = BTreeMap::new();
                    for round in 0..60_u64 {
                        let key = format!("{number}-{}", rng.below(3)).into_bytes();
                        let mut value = vec![number as u8; 960 + rng.index(7000)];
                        value[..8].copy_from_slice(&round.to_le_bytes());
                        store.put(&key, &value).unwrap();
                        map.insert(key, value);
                        if rng.chance(0.3) {
                            env.clock.sleep(std::time::Duration::from_micros(rng.below(300)));
                        }
                        let (key, value) = map.iter().nth(rng.index(map.len())).unwrap();
                        assert!(store.get(key).unwrap().as_ref() == Some(value), "{}", key.escape_ascii());
                    }
                    store.checkpoint().unwrap();
                    store.checkpoint().unwrap();
                    for (key, value) in map {
                        assert!(store.get(&key).unwrap() == Some(value), "{}", key.escape_ascii());
                    }
                }
            };
            let writers = (0..3).map(|number| Box::new(writer(number)) as Box<dyn FnOnce() + Send>);
            let also = store.clone();
            let checkpoints = move || (0..40).for_each(|_| also.checkpoint().unwrap());
            spawn_all(env, writers.chain([Box::new(checkpoints) as Box<dyn FnOnce() + Send>]).collect());
            collections.fetch_add(store.properties().value_collections as usize, Ordering::Relaxed);
        });
    });
    assert!(collections.load(Ordering::Relaxed) > 20, "{collections:?}");
}

/// A value that a worker had appended, and not yet put into its bucket, once counted as dead: its segment went.
#[test]
fn a_collection_waits_for_handles_that_are_on_their_way_to_buckets() {
    let sim = SimExecutor::new(800);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 800), SimVolume::new(&env, FaultPlan::none(), 800)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), 800);
    sim.run(|| {
        let store = open(&env, &volumes, &device, &small()).unwrap();
        let core = Arc::clone(&store.inner.core);
        let value = |number: u8| vec![number; 3000];
        // The first segment fills, and all but one of its values die.
        (0..12).for_each(|round| {
            store.put("hot", value(round)).unwrap();
            core.wait_applied(core.writes.visible()).unwrap();
        });
        core.large.bury(&core.overflow, core.large.take_dead(&core.overflow).unwrap()).unwrap();
        assert!(core.large.log.victim().is_some(), "something is to be collected");
        let on_its_way = core.gate.enter();
        let appended = core.large.append(&core.overflow, &[(b"late", &value(99))]).unwrap();
        assert_eq!(appended.len(), 1);
        let collected = Arc::new(AtomicBool::new(false));
        let job = {
            let (core, collected) = (Arc::clone(&core), Arc::clone(&collected));
            let body = move || {
                core.collect_if_due().unwrap();
                collected.store(true, Ordering::Release);
            };
            env.executor.spawn("collector", Box::new(body)).unwrap()
        };
        env.clock.sleep(std::time::Duration::from_secs(5));
        assert!(!collected.load(Ordering::Acquire), "the collector waits while somebody is inside the gate");
        drop(on_its_way);
        job.join().unwrap();
        assert!(collected.load(Ordering::Acquire));
        assert_eq!(store.get("hot").unwrap().unwrap(), value(11));
        store.close().unwrap();
    });
}

/// Once, a checkpoint waited until all before the newest log file was applied. While clients wrote without a pause
/// there was always a newer one, and the log was kept for ever.
#[test]
fn checkpoints_give_up_log_while_clients_never_pause() {
    situ_sim::for_each_seed(810, 3, |seed| {
        let options = HashOptions {
            log_file_bytes: 64 << 10,
            log_bytes_max: 128 << 10,
            pending_bytes_max: 128 << 10,
            partitions: 4,
            ..small()
        };
        with_store_of(&options, seed, Nature::Safe, |env, store| {
            let most = Arc::new(Mutex::new(0));
            let client = |client: u32| -> Box<dyn FnOnce() + Send> {
                let (store, most) = (store.clone(), Arc::clone(&most));
                Box::new(move || {
                    for number in 0..1500_u32 {
                        store.put([client.to_le_bytes(), number.to_le_bytes()].concat(), vec![7; 400]).unwrap();
                        let held = store.inner.core.writes.log.held_bytes();
                        let mut most = most.lock().unwrap();
                        *most = held.max(*most);
                    }
                })
            };
            spawn_all(env, (0..8).map(client).collect());
            // A write may take a page of 4 KiB. So all that is pending may take this much. Without checkpoints it would be
            // 49 MB.
            let pending = options.pending_bytes_max / 400 * 4096;
            let most = *most.lock().unwrap();
            assert!(most <= 3 * pending + 4 * options.log_bytes_max, "{most} bytes of log were kept");
            assert!(store.properties().checkpoints > 0);
        });
    });
}

/// One collection after each checkpoint does not keep up with a log that is overwritten.
#[test]
fn collection_keeps_up_with_values_that_are_overwritten() {
    with_store(802, Nature::Safe, |_, store| {
        for round in 0..300_u32 {
            store.put(format!("hot-{}", round % 4), vec![round as u8; 3000]).unwrap();
        }
        // A collected segment goes at the next checkpoint.
        (0..2).for_each(|_| store.checkpoint().unwrap());
        let (segments, written) = (store.inner.core.large.log.segments().len(), store.properties().value_collections);
        assert!(segments <= 40, "{segments} segments for four values; {written} were collected");
    });
}

/// A store that was made with few buckets, opened with the usual number of partitions, once had two workers for one
/// bucket.
#[test]
fn a_bucket_has_one_worker_whatever_the_options_say_later() {
    let sim = SimExecutor::new(801);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 801), SimVolume::new(&env, FaultPlan::none(), 801)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), 801);
    sim.run(|| {
        open(&env, &volumes, &device, &small()).unwrap().close().unwrap();
        let store = open(&env, &volumes, &device, &HashOptions { partitions: 64, base_bits: 10, ..small() }).unwrap();
        assert_eq!(store.inner.core.writes.pending.partitions().len(), 1 << small().base_bits);
        store.close().unwrap();
    });
}

#[test]
fn writers_and_readers_at_once_see_their_own_writes_while_buckets_split() {
    situ_sim::for_each_seed(200, 6, |seed| {
        with_store(seed, Nature::Safe, |env, store| {
            let bodies = (0..4_u64).map(|client| {
                let store = store.clone();
                let body = move || {
                    let mut rng = Rng::new(seed + client);
                    let mut map = BTreeMap::new();
                    for _ in 0..120 {
                        let key = format!("{client}-{}", rng.below(25)).into_bytes();
                        if rng.chance(0.3) {
                            store.delete(&key).unwrap();
                            map.remove(&key);
                        } else {
                            let value = vec![rng.below(256) as u8; rng.index(700)];
                            store.put(&key, &value).unwrap();
                            map.insert(key.clone(), value);
                        }
                        let other = format!("{client}-{}", rng.below(25)).into_bytes();
                        assert_eq!(store.get(&other).unwrap(), map.get(&other).cloned());
                    }
                    let keys: Vec<Vec<u8>> = (0..25).map(|key| format!("{client}-{key}").into_bytes()).collect();
                    let expected: Vec<_> = keys.iter().map(|key| map.get(key).cloned()).collect();
                    assert_eq!(store.multi_get(&keys).unwrap(), expected);
                };
                Box::new(body) as Box<dyn FnOnce() + Send>
            });
            spawn_all(env, bodies.collect());
            assert!(store.properties().splits > 0);
        });
    });
}

#[test]
fn a_snapshot_stays_as_it_is_while_buckets_change_split_and_merge() {
    let mut done = (0, 0, 0);
    situ_sim::for_each_seed(500, 8, |seed| {
        with_store(seed, Nature::Volatile, |_, store| {
            let mut rng = Rng::new(seed);
            let shapes = [
                Shape { keys: 60, value_bytes_max: 1200, deletes_of_ten: 1 },
                Shape { keys: 60, value_bytes_max: 300, deletes_of_ten: 9 },
                Shape { keys: 60, value_bytes_max: 2500, deletes_of_ten: 2 },
            ];
            let mut map = BTreeMap::new();
            let mut snapshots = Vec::new();
            for step in 0..180 {
                let changes = draw(&mut rng, &shapes[step / 60]);
                store.write(batch_of(&changes)).unwrap();
                apply(&mut map, &changes);
                if rng.chance(0.05) {
                    snapshots.push((store.snapshot().unwrap(), map.clone()));
                }
                if rng.chance(0.05) {
                    store.checkpoint().unwrap();
                }
                if rng.chance(0.05) && !snapshots.is_empty() {
                    snapshots.swap_remove(rng.index(snapshots.len()));
                }
            }
            for (snapshot, expected) in &snapshots {
                let found: BTreeMap<_, _> = snapshot.scan().map(|pair| pair.unwrap()).collect();
                assert_eq!(found, *expected);
                assert_eq!(snapshot.scan().count(), expected.len(), "each entry comes once");
                let sorted: Vec<_> = snapshot.scan_sorted().unwrap().map(|pair| pair.unwrap()).collect();
                assert_eq!(sorted, expected.clone().into_iter().collect::<Vec<_>>());
                for number in 0..60 {
                    let key = super::model::key(number);
                    assert_eq!(snapshot.get(&key).unwrap(), expected.get(&key).cloned());
                }
            }
            assert_eq!(store.scan().unwrap().count(), map.len());
            let properties = store.properties();
            done = (done.0 + snapshots.len() as u64, done.1 + properties.splits, done.2 + properties.merges);
        });
    });
    assert!(done.0 > 10 && done.1 > 10 && done.2 > 0, "snapshots, splits, merges: {done:?}");
}

#[test]
fn counters_lose_no_increment_by_compare_and_set() {
    situ_sim::for_each_seed(300, 6, |seed| {
        with_store(seed, Nature::Safe, |env, store| {
            let bodies = (0..4_u64).map(|client| {
                let store = store.clone();
                let body = move || {
                    let mut rng = Rng::new(seed * 10 + client);
                    for _ in 0..25 {
                        let key = [b"counter", &[b'0' + rng.below(2) as u8][..]].concat();
                        loop {
                            let before = store.get(&key).unwrap();
                            let number =
                                before.as_deref().map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
                            let next = (number + 1).to_le_bytes();
                            let durability = if rng.chance(0.2) { Durability::Synced } else { Durability::Buffered };
                            if store.compare_and_set(&key, before.as_deref(), Some(&next), durability).unwrap() {
                                break;
                            }
                        }
                        store.put(format!("noise-{}", rng.below(40)), vec![1; rng.index(400)]).unwrap();
                    }
                };
                Box::new(body) as Box<dyn FnOnce() + Send>
            });
            spawn_all(env, bodies.collect());
            let sum: u32 = ["counter0", "counter1"]
                .iter()
                .filter_map(|key| store.get(key).unwrap())
                .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
                .sum();
            assert_eq!(sum, 100);
        });
    });
}

#[test]
fn a_condition_that_does_not_hold_writes_nothing() {
    with_store(1, Nature::Safe, |_, store| {
        store.put("a", "1").unwrap();
        let mut batch = HashBatch::new();
        batch.put("b", "2").unwrap();
        batch.delete("a").unwrap();
        let expects = |a: &'static [u8]| [(&b"a"[..], Some(a)), (&b"b"[..], None)];
        assert!(!store.write_if(&expects(b"2"), batch.clone(), Durability::Buffered).unwrap());
        assert_eq!(store.get("b").unwrap(), None);
        assert!(store.write_if(&expects(b"1"), batch.clone(), Durability::Buffered).unwrap());
        assert!(!store.write_if(&expects(b"1"), batch, Durability::Buffered).unwrap());
        assert_eq!((store.get("a").unwrap(), store.get("b").unwrap()), (None, Some(b"2".to_vec())));
    });
}

#[test]
fn what_has_expired_is_not_found_and_goes_with_the_next_write() {
    with_store(1, Nature::Safe, |env, store| {
        let now_ms = env.clock.unix().as_millis() as u64;
        store.put_with("soon", "x", Durability::Buffered, Some(now_ms + 1000)).unwrap();
        store.put_with("later", "y", Durability::Buffered, Some(now_ms + 10_000_000)).unwrap();
        assert_eq!(store.get("soon").unwrap().unwrap(), b"x");
        assert_eq!(store.count().unwrap(), 2);
        assert_eq!(store.get("soon").unwrap().unwrap(), b"x");
        env.clock.sleep(std::time::Duration::from_secs(2));
        assert_eq!(store.get("soon").unwrap(), None);
        assert_eq!(store.count().unwrap(), 2);
        (0..40).for_each(|number: u32| store.put(number.to_le_bytes(), "z").unwrap());
        assert_eq!(store.count().unwrap(), 41);
        assert_eq!(store.get("later").unwrap().unwrap(), b"y");
    });
}

#[test]
fn asynchronous_reads_and_writes_are_answered() {
    with_store(5, Nature::Volatile, |env, store| {
        let writes: Vec<_> = (0..100_u32)
            .map(|number| {
                let mut batch = HashBatch::new();
                batch.put(number.to_le_bytes(), vec![number as u8; 50]).unwrap();
                let durability = if number % 10 == 0 { Durability::Synced } else { Durability::Buffered };
                store.write_with_async(batch, durability)
            })
            .collect();
        writes.into_iter().for_each(|write| situ_sim::wait(env, write).unwrap());
        store.checkpoint().unwrap();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let event = env.executor.event();
        for number in 0..120_u32 {
            let (answers, event) = (Arc::clone(&answers), Arc::clone(&event));
            let done = move |value: crate::Result<Option<Vec<u8>>>| {
                answers.lock().unwrap().push((number, value.unwrap()));
                event.notify();
            };
            store.get_async(number.to_le_bytes(), Box::new(done));
        }
        loop {
            let seen = event.generation();
            if answers.lock().unwrap().len() == 120 {
                break;
            }
            event.wait(seen, None);
        }
        for (number, value) in answers.lock().unwrap().iter() {
            assert_eq!(*value, (*number < 100).then(|| vec![*number as u8; 50]));
        }
        store.put("fresh", "1").unwrap();
        assert_eq!(store.get_at_once("fresh").unwrap(), Some(Some(b"1".to_vec())));
    });
}

#[test]
fn a_wrong_device_and_another_stores_device_are_refused_and_not_written() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volume = || SimVolume::new(&env, FaultPlan::none(), 1);
    let (first, second) = ([volume(), volume()], [volume(), volume()]);
    let device = || device(&env, Nature::Safe, FaultPlan::none(), 1);
    let (own, foreign, used) = (device(), device(), device());
    used.set_contents(4096 * 3, b"a file system");
    sim.run(|| {
        let store = open(&env, &first, &own, &small()).unwrap();
        assert!(matches!(open(&env, &first, &own, &small()), Err(Error::Storage(situ_storage::Error::Locked { .. }))));
        store.put("a", "b").unwrap();
        store.close().unwrap();
        let other = HashStoreBuilder::new(small()).env(env.clone()).identity(StoreId([9; 16]), 3);
        let [home, overflow] = second.clone().map(|volume| Arc::new(volume) as Arc<dyn Volume>);
        other.open_volumes(home, overflow, Arc::new(foreign.clone())).unwrap().close().unwrap();
        let before = [foreign.changes(), used.changes(), own.changes()];
        assert!(matches!(open(&env, &first, &foreign, &small()), Err(Error::OtherStore { .. })));
        assert!(matches!(open(&env, &first, &used, &small()), Err(Error::NotABucketSpace { .. })));
        let blank = device();
        assert!(matches!(open(&env, &first, &blank, &small()), Err(Error::NotABucketSpace { .. })));
        let empty = [volume(), volume()];
        assert!(matches!(open(&env, &empty, &used, &small()), Err(Error::NotABucketSpace { .. })));
        assert!(matches!(open(&env, &empty, &own, &small()), Err(Error::NotABucketSpace { .. })));
        assert_eq!(before, [foreign.changes(), used.changes(), own.changes()], "nothing was written");
        assert_eq!(blank.changes(), 0);
        let missing = HashOptions { create_if_missing: false, ..small() };
        assert!(matches!(open(&env, &[volume(), volume()], &blank, &missing), Err(Error::Existence(_))));
    });
}

#[test]
fn rot_of_a_bucket_is_found_by_reads_and_by_a_check() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 1), SimVolume::new(&env, FaultPlan::none(), 1)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), 1);
    sim.run(|| {
        let store = open(&env, &volumes, &device, &small()).unwrap();
        (0..40_u32).for_each(|number| store.put(number.to_le_bytes(), [7; 40]).unwrap());
        store.checkpoint().unwrap();
        device.rot(crate::format::space::bucket_offset(2) + 100, 3);
        let reads: Vec<_> = (0..40_u32).map(|number| store.get(number.to_le_bytes())).collect();
        assert!(reads.iter().any(|read| matches!(read, Err(error) if error.is_corruption())));
        assert!(reads.iter().any(Result::is_ok));
        let report = store.verify().unwrap();
        assert!(!report.is_sound() && report.damages[0].contains("bucket 2"), "{report:?}");
    });
}

#[test]
fn a_device_that_fails_fails_the_store_and_loses_nothing() {
    situ_sim::for_each_seed(400, 8, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let volumes = [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
        let device = device(&env, Nature::Volatile, FaultPlan::none(), seed);
        let shape = Shape { keys: 50, value_bytes_max: 600, deletes_of_ten: 2 };
        sim.run(|| {
            let mut rng = Rng::new(seed);
            let mut told = Told::default();
            let store = open(&env, &volumes, &device, &small()).unwrap();
            (0..30).for_each(|_| assert!(told.write(&store, draw(&mut rng, &shape), Durability::Buffered)));
            let write = Rule::new(Fault::Io).on(&[Operation::WritePages]).nth(rng.below(6) + 1);
            device.set_faults(FaultPlan::none().with(write));
            let mut written = 0;
            while told.write(&store, draw(&mut rng, &shape), Durability::Buffered) && written < 300 {
                written += 1;
            }
            assert!(written < 300, "the store has noticed");
            assert!(matches!(store.put("x", "y"), Err(Error::Failed { .. })));
            assert!(store.close().is_err());
            device.set_faults(FaultPlan::none());
            // Acknowledged writes are there; refused ones may be.
            told.durable = told.acknowledged;
            check(&open(&env, &volumes, &device, &small()).unwrap(), &told, &shape);
        });
    });
}

/// Every damaged slot is named, and rewritten: by the opening, and by the next change of the superblock.
#[test]
fn a_damaged_slot_of_the_superblock_is_named_and_written_anew() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 1), SimVolume::new(&env, FaultPlan::none(), 1)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), 1);
    let rots = |slot: u64| assert!(volumes[0].rot(FileName::Superblock, slot * 4096 + 100, 3));
    sim.run(|| {
        open(&env, &volumes, &device, &small()).unwrap().close().unwrap();
        for slot in [0, 1] {
            rots(slot);
            let heard = Arc::new(Mutex::new(Vec::new()));
            let hears = Arc::clone(&heard);
            let hear = move |event: &crate::HashEvent| hears.lock().unwrap().push(event.to_string());
            let builder = HashStoreBuilder::new(small()).env(env.clone()).on_event(Arc::new(hear));
            let [home, overflow] = volumes.clone().map(|volume| Arc::new(volume) as Arc<dyn Volume>);
            let store = builder.open_volumes(home, overflow, Arc::new(device.clone())).unwrap();
            let name = format!("slot {slot} of the superblock");
            assert!(heard.lock().unwrap()[0].contains(&name), "{heard:?}");
            assert!(store.properties().superblock_damage.unwrap().to_string().contains(&name));
            let report = store.verify().unwrap();
            assert!(report.is_sound() && report.mended[0].contains(&name), "{report:?}");
            // While the store is open, too.
            rots(1 - slot);
            let report = store.verify().unwrap();
            let other = format!("slot {} of the superblock", 1 - slot);
            assert!(report.damage_count == 1 && report.damages[0].contains(&other), "{report:?}");
            store.checkpoint().unwrap();
            check_sound(&store);
            store.close().unwrap();
            let store = open(&env, &volumes, &device, &small()).unwrap();
            assert!(store.properties().superblock_damage.is_none() && store.verify().unwrap().mended.is_empty());
            store.close().unwrap();
        }
    });
}

/// A device that cannot get a store leaves nothing behind where the store was to be.
#[test]
fn a_refused_device_leaves_no_trace_in_a_new_home() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let options = HashOptions { base_bits: 10, ..HashOptions::default() };
    let create = |name: &str, bytes: u64| std::fs::File::create(at(name)).unwrap().set_len(bytes).unwrap();
    create("own", 16 << 20);
    HashStoreBuilder::new(options.clone()).device(at("own")).open(at("other")).unwrap().close().unwrap();
    create("short", 1 << 20);
    create("tiny", 8192);
    std::fs::write(at("foreign"), vec![7; 16 << 20]).unwrap();
    for device in ["own", "short", "tiny", "foreign", "missing"] {
        let before = std::fs::read(at(device)).ok();
        let refused = HashStoreBuilder::new(options.clone()).device(at(device)).open(at("home"));
        assert!(refused.is_err(), "{device}");
        assert!(!at("home").exists(), "{device}: {:?}", refused.unwrap_err());
        assert!(std::fs::read(at(device)).ok() == before, "{device} was written to");
    }
    // And where it is there, and empty.
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 1), SimVolume::new(&env, FaultPlan::none(), 1)];
    let used = device(&env, Nature::Safe, FaultPlan::none(), 1);
    used.set_contents(4096 * 3, b"a file system");
    sim.run(|| {
        assert!(matches!(open(&env, &volumes, &used, &small()), Err(Error::NotABucketSpace { .. })));
        volumes.iter().for_each(|volume| assert_eq!(volume.list().unwrap(), []));
    });
}

/// Checks at any moment, while clients write and buckets split and merge: none finds damage. And writers go on during a
/// check: a check that kept the gate closed let them write no more than what may be pending.
#[test]
fn a_check_beside_writers_finds_no_damage_and_holds_nobody_up() {
    let (mut most, mut resized) = (0, 0);
    situ_sim::for_each_seed(600, 4, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let volumes = [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
        let device = super::model::device_of(&env, Nature::Volatile, 600, FaultPlan::none(), seed);
        sim.run(|| {
            let store = open(&env, &volumes, &device, &small()).unwrap();
            (0..600_u32).for_each(|number| store.put(number.to_le_bytes(), vec![7; 900]).unwrap());
            let splits_before = store.properties().splits;
            let stops = Arc::new(AtomicBool::new(false));
            let written = Arc::new(AtomicUsize::new(0));
            let writers = (0..2_u64).map(|client| {
                let (store, stops, written) = (store.clone(), Arc::clone(&stops), Arc::clone(&written));
                let mut rng = Rng::new(seed + client);
                let body = move || {
                    while !stops.load(Ordering::Relaxed) {
                        let key = (rng.below(600) as u32).to_le_bytes();
                        // Entries leave for a while, so buckets merge; then they come again.
                        let deletes = written.load(Ordering::Relaxed) / 250_000 % 2 == 0;
                        match rng.chance(if deletes { 0.95 } else { 0.05 }) {
                            true => store.delete(key).unwrap(),
                            false => store.put(key, vec![1; rng.index(1500)]).unwrap(),
                        }
                        written.fetch_add(300, Ordering::Relaxed);
                    }
                };
                env.executor.spawn("client", Box::new(body)).unwrap()
            });
            let writers: Vec<_> = writers.collect();
            let resized_both_ways = || store.properties().merges > 0 && store.properties().splits > splits_before;
            let mut checks = 0;
            while checks < 4 || !resized_both_ways() && checks < 100 {
                checks += 1;
                let before = written.load(Ordering::Relaxed);
                check_sound(&store);
                most = most.max(written.load(Ordering::Relaxed) - before);
            }
            stops.store(true, Ordering::Relaxed);
            writers.iter().for_each(|writer| writer.join().unwrap());
            check_sound(&store);
            resized += u32::from(resized_both_ways());
            store.close().unwrap();
        });
    });
    assert!(most > 3 * small().pending_bytes_max as usize, "{most} bytes were written during a check");
    assert!(resized > 0, "buckets were split and merged");
}

/// The last snapshot goes in one thread while another thread takes the next one. What is saved for the next one must
/// stay.
#[test]
fn a_snapshot_that_goes_takes_nothing_from_the_next_one() {
    situ_sim::for_each_seed(900, 24, |seed| {
        with_store(seed, Nature::Safe, |env, store| {
            let key = |number: u64| format!("{number:03}").into_bytes();
            (0..60).for_each(|number| store.put(key(number), [1; 200]).unwrap());
            let stops = Arc::new(AtomicBool::new(false));
            let writer = {
                let (store, stops, mut rng) = (store.clone(), Arc::clone(&stops), Rng::new(seed));
                move || {
                    while !stops.load(Ordering::Relaxed) {
                        store.put(key(rng.below(60)), vec![2; 100 + rng.index(300)]).unwrap();
                    }
                }
            };
            let writer = env.executor.spawn("client", Box::new(writer)).unwrap();
            let reader = |_| {
                let store = store.clone();
                let body = move || {
                    for _ in 0..12 {
                        let snapshot = store.snapshot().unwrap();
                        let entries = snapshot.scan().collect::<crate::Result<Vec<_>>>().unwrap();
                        assert_eq!(entries.len(), 60);
                    }
                };
                env.executor.spawn("client", Box::new(body)).unwrap()
            };
            let readers: Vec<_> = (0..2).map(reader).collect();
            readers.iter().for_each(|reader| reader.join().unwrap());
            stops.store(true, Ordering::Relaxed);
            writer.join().unwrap();
        });
    });
}

/// A split saves its buckets under the newest snapshot, for older ones, too. When the newest had gone, the next change
/// of such a bucket saved half of it for the older one.
#[test]
fn a_snapshot_that_goes_takes_nothing_from_an_older_one() {
    let mut splits = 0;
    situ_sim::for_each_seed(930, 12, |seed| {
        with_store(seed, Nature::Safe, |env, store| {
            let key = |number: u64| format!("{number:03}").into_bytes();
            let put = |number: u64, byte: u8| store.put(key(number), [byte; 200]).unwrap();
            let mut rng = Rng::new(seed);
            store.inner.core.keeper.resizing_is_off.store(true, Ordering::Release);
            (0..60).for_each(|number| put(number, 1));
            let older = store.snapshot().unwrap();
            if rng.chance(0.5) {
                put(rng.below(60), 2);
            }
            let newer = store.snapshot().unwrap();
            store.inner.core.keeper.resizing_is_off.store(false, Ordering::Release);
            store.inner.core.writes.keeper_work.notify();
            env.clock.sleep(std::time::Duration::from_millis(10));
            splits += store.properties().splits;
            drop(newer);
            (0..60).for_each(|number| put(number, 4));
            store.checkpoint().unwrap();
            let found: BTreeMap<_, _> = older.scan().collect::<crate::Result<_>>().unwrap();
            assert_eq!(found.len(), 60);
            assert!(found.values().all(|value| value[..] == [1; 200]));
            (0..60).for_each(|number| assert_eq!(older.get(key(number)).unwrap().unwrap(), [1; 200]));
        });
    });
    assert!(splits > 0);
}

/// Workers that passed the gate between any two groups were once faster than the splits: the load of buckets rose to
/// 0.57 under clients that never paused, and 4% of the entries overflowed.
#[test]
fn groups_that_are_due_follow_each_other_while_the_gate_is_closed() {
    with_store(1, Nature::Safe, |_, store| {
        let core = &store.inner.core;
        core.keeper.resizing_is_off.store(true, Ordering::Release);
        (0..300_u32).for_each(|number| store.put(number.to_le_bytes(), [1; 200]).unwrap());
        store.checkpoint().unwrap();
        assert_eq!((core.state().buckets(), core.resize_if_due().unwrap()), (4, false));
        core.keeper.resizing_is_off.store(false, Ordering::Release);
        assert!(core.resize_if_due().unwrap());
        // From 4 to 8, to 16, and on: at least three groups.
        assert!(core.state().buckets() > 16, "{} buckets", core.state().buckets());
    });
}

/// A store with large values in a directory, closed, with a buckets file and all.
fn made_in(home: &std::path::Path) -> HashOptions {
    let options = HashOptions { bucket_space_bytes: 16 << 20, base_bits: 8, ..HashOptions::default() };
    let store = HashStore::open(home, options.clone()).unwrap();
    (0..20_u32).for_each(|number| store.put(number.to_le_bytes(), vec![number as u8; 20_000]).unwrap());
    store.close().unwrap();
    options
}

/// The overflow lists the segments of the value log. A new one in its place lists none, and opening would remove all
/// values.
#[test]
fn a_store_without_its_overflow_is_refused_and_keeps_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let (home, other) = (directory.path().join("home"), directory.path().join("other"));
    let options = made_in(&home);
    made_in(&other);
    let (overflow, away) = (home.join("overflow"), directory.path().join("away"));
    std::fs::rename(&overflow, &away).unwrap();
    assert!(HashStore::open(&home, options.clone()).is_err());
    assert!(!overflow.exists(), "nothing is made in its place");
    std::fs::create_dir(&overflow).unwrap();
    let error = HashStore::open(&home, options.clone()).unwrap_err();
    assert!(matches!(&error, Error::Existence(text) if text.contains("overflow")), "{error}");
    std::fs::remove_dir_all(&overflow).unwrap();
    copy_tree(&other.join("overflow"), &overflow);
    let error = HashStore::open(&home, options.clone()).unwrap_err();
    assert!(matches!(error, Error::OtherOverflow { .. }), "{error}");
    std::fs::remove_dir_all(&overflow).unwrap();
    std::fs::rename(&away, &overflow).unwrap();
    let store = HashStore::open(&home, options).unwrap();
    assert!((0..20_u32).all(|number| store.get(number.to_le_bytes()).unwrap().unwrap() == vec![number as u8; 20_000]));
    check_sound(&store);
    store.close().unwrap();
}

/// The end of a buckets file is cut off, or the file is gone. Zeros in its place would pass for empty buckets.
#[test]
fn a_bucket_space_that_is_too_short_for_its_store_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let options = made_in(directory.path());
    let buckets = directory.path().join("buckets");
    let whole = std::fs::read(&buckets).unwrap();
    let cut = crate::format::space::bucket_offset(255);
    std::fs::OpenOptions::new().write(true).open(&buckets).unwrap().set_len(cut).unwrap();
    let error = HashStore::open(directory.path(), options.clone()).unwrap_err();
    assert!(matches!(error, Error::OtherGeometry { .. }), "{error}");
    assert_eq!(std::fs::metadata(&buckets).unwrap().len(), cut);
    let named = HashStoreBuilder::new(options.clone()).device(&buckets).open(directory.path()).unwrap_err();
    assert!(matches!(named, Error::OtherGeometry { .. }), "{named}");
    std::fs::remove_file(&buckets).unwrap();
    assert!(HashStore::open(directory.path(), options.clone()).is_err() && !buckets.exists());
    std::fs::write(&buckets, whole).unwrap();
    HashStore::open(directory.path(), options).unwrap().close().unwrap();
}

/// A home that was put back with newer buckets once made a scan panic, and a check found nothing but wrong totals.
#[test]
fn a_scan_and_a_check_name_buckets_that_are_newer_than_the_home() {
    let directory = tempfile::tempdir().unwrap();
    let (home, old) = (directory.path().join("home"), directory.path().join("old"));
    let buckets = directory.path().join("buckets");
    std::fs::File::create(&buckets).unwrap().set_len(1 << 26).unwrap();
    let open = || HashStoreBuilder::new(HashOptions::default()).device(&buckets).open(&home);
    open().unwrap().close().unwrap();
    copy_tree(&home, &old);
    let store = open().unwrap();
    (0..50_u32).for_each(|number| store.put(number.to_le_bytes(), "a value").unwrap());
    store.close().unwrap();
    std::fs::remove_dir_all(&home).unwrap();
    copy_tree(&old, &home);
    let store = open().unwrap();
    let error = store.scan().unwrap().find_map(Result::err).expect("the scan finds new buckets");
    assert!(error.is_corruption() && error.to_string().contains("older than the bucket space"), "{error}");
    let report = store.verify().unwrap();
    assert!(report.damages.iter().any(|damage| damage.contains("older than the bucket space")), "{report:#?}");
    store.put(7_u32.to_le_bytes(), "another").unwrap();
    let error = store.checkpoint().unwrap_err();
    assert!(error.to_string().contains("older than the bucket space"), "{error}");
}

/// A device that was slow for a while is asked directly again.
#[test]
fn a_device_that_becomes_quick_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        HashStore::open(directory.path(), HashOptions { bucket_space_bytes: 1 << 26, ..HashOptions::default() });
    let store = store.unwrap();
    store.put("a", "b").unwrap();
    store.checkpoint().unwrap();
    let core = &store.inner.core;
    core.io.read_ns.store(1_000_000_000, Ordering::Relaxed);
    let tried = (0..4096).filter(|_| store.get_at_once("a").unwrap().is_some()).count();
    assert!(tried >= 8, "{tried} reads were tried");
    assert!(core.io.read_ns.load(Ordering::Relaxed) < 1_000_000_000);
}

/// A drive takes back whole units only.
#[test]
fn a_discard_is_rounded_inwards_and_counted_as_it_was_done() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let plain = device(&env, Nature::Safe, FaultPlan::none(), 1);
    let geometry = situ_device::Geometry { discard_bytes: 16384, ..situ_device::Device::geometry(&plain) };
    let wide = situ_sim::SimDevice::with_geometry(&env, 1 << 20, geometry, FaultPlan::none(), 1);
    let io = crate::disk::io::BucketIo::new(Arc::new(wide), Arc::clone(&env.clock));
    sim.run(|| {
        for (buckets, discarded) in [(1..9, 4), (1..4, 0), (0..4, 4), (5..6, 0)] {
            let before = io.discards.load(Ordering::Relaxed);
            io.discard(buckets.clone()).unwrap();
            assert_eq!(io.discards.load(Ordering::Relaxed) - before, discarded, "{buckets:?}");
        }
    });
}

/// Of changes of one key that are applied together, the value log gets the value of the last one.
#[test]
fn large_values_that_are_replaced_before_they_are_applied_take_no_room() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), 1), SimVolume::new(&env, FaultPlan::none(), 1)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), 1);
    let options = HashOptions { pending_bytes_max: 1 << 20, ..small() };
    sim.run(|| {
        let store = open(&env, &volumes, &device, &options).unwrap();
        let mut batch = HashBatch::new();
        (0..20_u8).for_each(|round| batch.put("a", vec![round; 5000]).unwrap());
        batch.put("gone", vec![1; 5000]).unwrap();
        batch.delete("gone").unwrap();
        store.write(batch).unwrap();
        store.checkpoint().unwrap();
        assert_eq!(store.get("a").unwrap().unwrap(), vec![19; 5000]);
        let properties = store.properties();
        let written = properties.value_live_bytes + properties.value_garbage_bytes;
        assert!((5000..10_000).contains(&written), "{written} bytes are in the value log");
        check_sound(&store);
        store.close().unwrap();
    });
}

/// A check reads the values in the value log, too.
#[test]
fn rot_of_a_large_value_is_found_by_a_check() {
    with_store_and_home(1, |store, home| {
        (0..6_u8).for_each(|number| store.put([number], vec![number; 5000]).unwrap());
        store.checkpoint().unwrap();
        check_sound(store);
        let mut files = home.list().unwrap().into_iter().map(|file| file.name);
        let segment = files.find(|name| matches!(name, FileName::Values(_))).unwrap();
        assert!(home.rot(segment, 4096 + 2000, 3));
        let report = store.verify().unwrap();
        assert!(report.damage_count == 1 && report.damages[0].contains("cannot be read"), "{report:#?}");
        // A value without an entry is no damage.
        (0..6_u8).for_each(|number| store.delete([number]).unwrap());
        check_sound(store);
    });
}

fn with_store_and_home(seed: u64, test: impl FnOnce(&HashStore, &SimVolume) + Send) {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let volumes = [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
    let device = device(&env, Nature::Safe, FaultPlan::none(), seed);
    sim.run(|| {
        let store = open(&env, &volumes, &device, &small()).unwrap();
        test(&store, &volumes[0]);
        store.close().unwrap();
    });
}

/// The number of a batch of images that a crash has torn is not used again.
#[test]
fn a_torn_batch_of_images_keeps_its_number() {
    let sim = SimExecutor::new(1);
    let env = sim.env();
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let device = device(&env, Nature::Volatile, FaultPlan::none(), 1);
    let store = StoreId([7; 16]);
    let io = crate::disk::io::BucketIo::new(Arc::new(device), Arc::clone(&env.clock));
    let codec = crate::format::bucket::BucketCodec::new("buckets", store);
    sim.run(|| {
        let journal = crate::disk::images::ImageJournal::open(&volume, store, 64 << 10, 5).unwrap();
        let mut random = vec![0; 4096];
        let mut rng = Rng::new(1);
        let images: Vec<_> = (0..3_u64)
            .map(|bucket| {
                let mut block = vec![0; 4096];
                rng.fill(&mut random);
                let mut writer = crate::format::bucket::BucketWriter::new(&mut block);
                let entry = crate::format::entry::Entry {
                    key: b"a",
                    value: crate::format::entry::Value::Inline(&random[..2900]),
                    expires_ms: None,
                };
                assert!(writer.push(&entry));
                let stamp = crate::format::bucket::Stamp { sequence: 1, epoch: 1, ..Default::default() };
                writer.finish(&codec, bucket, &stamp);
                (bucket, situ_device::Buffer::copy_of(&block))
            })
            .collect();
        let room = journal.reserve(crate::disk::images::pages_for(3)).unwrap();
        journal.write(&journal.place(&images)).unwrap();
        drop(room);
        assert!(volume.rot(FileName::Images, 4096 + 100, 3), "the second page of the batch is torn");
        assert_eq!(crate::disk::images::redo(&volume, store, 5, &codec, &io).unwrap(), 6);
    });
}

/// While a snapshot lives, large values die in great number. Memory has a bounded part of them, and in the end all are
/// counted.
#[test]
fn deaths_of_large_values_during_a_snapshot_are_kept_on_disk_and_counted_once() {
    with_store_and_home(3, |store, _| {
        let put = |round: u8| (0..12_u8).for_each(|number| store.put([number], vec![round; 2000]).unwrap());
        put(0);
        let snapshot = store.snapshot().unwrap();
        for round in 1..9 {
            put(round);
            store.checkpoint().unwrap();
        }
        let held = store.inner.core.large.deaths_in_memory();
        assert!(held <= 8, "{held} deaths are in memory");
        assert_eq!(snapshot.scan().filter(|pair| pair.as_ref().unwrap().1 == vec![0; 2000]).count(), 12);
        drop(snapshot);
        (0..16).for_each(|_| store.checkpoint().unwrap());
        let (counted, found) = (store.properties().value_live_bytes, store.verify().unwrap().value_bytes);
        assert_eq!(counted, found, "what is counted as alive is alive");
    });
}

/// Saved entries go with the gate closed, not when the last snapshot is dropped: another thread may take a snapshot at
/// that moment.
#[test]
fn what_was_saved_is_removed_when_the_next_snapshot_is_taken() {
    with_store(1, Nature::Safe, |_, store| {
        let put = |value: u8| (0..20_u8).for_each(|number| store.put([number], [value; 100]).unwrap());
        let saved = || store.inner.core.overflow.saved().map_or(0, |saved| saved.iter().unwrap().count());
        put(1);
        let first = store.snapshot().unwrap();
        put(2);
        store.checkpoint().unwrap();
        assert!(saved() > 0);
        drop(first);
        assert!(saved() > 0, "nobody removes anything beside the gate");
        let second = store.snapshot().unwrap();
        assert_eq!(saved(), 0);
        put(3);
        store.checkpoint().unwrap();
        assert!(second.scan().all(|pair| pair.unwrap().1 == [2; 100]) && saved() > 0);
        drop(second);
        store.checkpoint().unwrap();
        assert_eq!(saved(), 0);
    });
}
