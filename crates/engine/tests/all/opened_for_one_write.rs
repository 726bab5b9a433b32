//! Stores that are opened for one write and closed, again and again, as `situ put` does.

use crate::common::fast;
use crate::common::{Model, compare, key_number};
use situ_base::Env;
use situ_engine::{Durability, Error, Options, Store, verify};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, crash_everywhere,
    crash_machine_everywhere, for_each_seed,
};
use situ_storage::{FileMeta, FileName, Volume};
use situ_tiers::TieredBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn open(env: &Env, volume: &SimVolume, options: Options) -> Result<Store, Error> {
    fast::tiered(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn tables_by_level(store: &Store) -> Vec<usize> {
    store.default_keyspace().properties().levels.iter().map(|level| level.tables).collect()
}

fn logs(volume: &SimVolume) -> usize {
    volume.list().unwrap().iter().filter(|file| matches!(file.name, FileName::Log(_))).count()
}

/// A hundred calls of `situ put` left 99 tables in level 0: each opening made a table of the one write before it, and the
/// store was closed before any compaction.
#[test]
fn a_thousand_openings_for_one_write_each_leave_level_0_small() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let mut model = Model::new();
        for n in 0..1000u64 {
            let store = open(&env, &volume, Options::default()).unwrap();
            let level0 = tables_by_level(&store)[0];
            assert!(level0 <= Options::default().keyspace.level0_tables, "{level0} tables at opening {n}");
            let (key, value) = (key_number(n * 7919 % 1000), vec![n as u8; 200]);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
            store.close().unwrap();
            assert!(logs(&volume) <= 2, "{} log files at opening {n}", logs(&volume));
        }
        let store = open(&env, &volume, Options::default()).unwrap();
        let tables: usize = tables_by_level(&store).iter().sum();
        assert!((1..=6).contains(&tables), "200 KB in {:?} tables", tables_by_level(&store));
        compare(store.default_keyspace(), &model, None, "after a thousand openings");
        store.close().unwrap();
    });
}

/// What is too much to go on in the next log becomes a table at each opening; the compaction that is due then is waited for.
#[test]
fn openings_for_one_large_write_each_leave_level_0_small() {
    for_each_seed(1, 5, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut rng = Rng::new(seed);
            let mut options = Options::default();
            options.keyspace.memtable_bytes = 64 << 10;
            options.keyspace.level0_tables = 4;
            options.keyspace.compression = vec![situ_engine::Compression::None];
            let mut model = Model::new();
            for n in 0..60u64 {
                let store = open(&env, &volume, options.clone()).unwrap();
                let level0 = tables_by_level(&store)[0];
                assert!(level0 <= 5, "{level0} tables at opening {n}");
                let (key, value) = (key_number(rng.below(30)), vec![n as u8; 20_000]);
                store.put(&key, &value).unwrap();
                model.insert(key, value);
                store.close().unwrap();
            }
            let store = open(&env, &volume, options).unwrap();
            compare(store.default_keyspace(), &model, None, "after sixty openings");
            store.close().unwrap();
        });
    });
}

/// Options under which any table of level 0 makes a compaction due.
fn eager() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.level0_tables = 1;
    options.keyspace.compression = vec![situ_engine::Compression::None];
    options
}

/// A store that was closed with more in its log than goes on in the next one.
fn with_a_long_log(env: &Env, volume: &SimVolume) {
    let store = open(env, volume, eager()).unwrap();
    (0..40).for_each(|n| store.put(key_number(n), vec![n as u8; 1000]).unwrap());
    store.close().unwrap();
}

/// What was replayed became a table long ago: the tables that the store has flushed since are none of closing's business.
/// Closing used to wait until no keyspace had tables to compact in level 0: without a bound, beside a writer.
#[test]
fn a_store_that_has_flushed_is_closed_without_a_compaction_of_level_0() {
    for_each_seed(1, 5, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            with_a_long_log(&env, &volume);
            let mut options = eager();
            options.keyspace.level0_tables = 4;
            let store = open(&env, &volume, options).unwrap();
            // With the table of what was replayed, the last one makes a compaction due.
            for n in 0..3u64 {
                (0..50).for_each(|m| store.put(key_number(m * 7), vec![n as u8; 1000]).unwrap());
                if n == 2 {
                    // From here on a compaction takes minutes.
                    let slow = FaultPlan::none().latency(Duration::from_secs(5)..Duration::from_secs(6));
                    volume.set_faults(slow);
                }
                store.flush().unwrap();
            }
            let compactions = |store: &Store| store.statistics().compactions;
            assert_eq!(compactions(&store), 0);
            store.close().unwrap();
            assert_eq!(compactions(&store), 0, "closing has waited for a compaction");
        });
    });
}

const PLACES: [&str; 2] = ["home", "fast"];

/// Small memtables have short log files, which are quicker to copy.
fn small() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options
}

/// What the log holds when a store is opened: changes of two keyspaces, over what lies in tables.
fn build(open: impl Fn(Options) -> Result<Store, Error>) -> Option<[Model; 2]> {
    let store = open(small()).ok()?;
    let other = store.create_keyspace("other", small().keyspace).ok()?;
    let mut models = [Model::new(), Model::new()];
    let put = |models: &mut [Model; 2], which: usize, n: u64, value: &[u8]| -> Option<()> {
        let keyspace = if which == 0 { store.default_keyspace() } else { &other };
        keyspace.put_with(key_number(n), value, Durability::Synced).ok()?;
        models[which].insert(key_number(n), value.to_vec());
        Some(())
    };
    for n in 0..20 {
        put(&mut models, (n % 2) as usize, n / 2, b"in a table")?;
    }
    store.flush().ok()?;
    other.flush().ok()?;
    put(&mut models, 0, 1, b"over a table")?;
    put(&mut models, 0, 1, b"over what is over a table")?;
    put(&mut models, 1, 50, b"new")?;
    let gone = key_number(2)..key_number(5);
    store.default_keyspace().delete_range(&gone.start, &gone.end).ok()?;
    models[0].retain(|key, _| !gone.contains(key));
    put(&mut models, 0, 3, b"in the deleted range")?;
    other.delete_with(key_number(7), Durability::Synced).ok()?;
    models[1].remove(&key_number(7));
    store.close().ok()?;
    Some(models)
}

fn check(store: &Store, models: &[Model; 2], what: &str) {
    compare(store.default_keyspace(), &models[0], None, what);
    compare(&store.keyspace("other").unwrap(), &models[1], None, what);
    store.check().unwrap();
}

/// All that the log held is there after a crash at any point of an opening, and of the opening after that.
#[test]
fn promise_1_3_a_crash_while_the_log_is_carried_over_loses_nothing_and_brings_nothing_back() {
    for_each_seed(1, 2, |seed| {
        let executor = SimExecutor::new(seed);
        let built = executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let models = build(|options| open(&env, &volume, options)).unwrap();
            let names: Vec<FileName> = volume.list().unwrap().iter().map(|file| file.name).collect();
            let files: Vec<_> = names.into_iter().map(|name| (name, volume.contents(name).unwrap())).collect();
            (files, models)
        });
        let (files, models) = built;
        let images = crash_everywhere(
            seed,
            &CrashPoints::default(),
            |env, volume| {
                files.iter().for_each(|(name, bytes)| volume.set_contents(*name, bytes));
                // Twice: the second opening carries over what the first one has.
                for _ in 0..2 {
                    let Ok(store) = open(env, volume, small()) else { return };
                    check(&store, &models, "undisturbed");
                    if store.close().is_err() {
                        return;
                    }
                }
            },
            |env, volume, ()| {
                let dyn_volume: Arc<dyn Volume> = Arc::new(volume.clone());
                let report = verify(&dyn_volume, env, &mut |_| {}).unwrap();
                assert!(report.is_sound(), "{report:?}");
                for life in 0..3 {
                    let store = open(env, &volume, small()).unwrap();
                    check(&store, &models, &format!("life {life} after a crash"));
                    assert!(logs(&volume) <= 2, "{:?}", volume.list());
                    store.close().unwrap();
                }
            },
        );
        assert!(images > 20, "{images}");
    });
}

/// The volumes of a machine, moved to this environment after a power failure.
fn after_crash(env: &Env, volumes: &[SimVolume], seed: u64) -> Vec<SimVolume> {
    let after: Vec<SimVolume> = (seed..).zip(volumes).map(|(seed, volume)| volume.crash(seed).on(env)).collect();
    after.iter().skip(1).for_each(|volume| volume.share_power(&after[0]));
    after
}

/// Opens a store on a home, and on a fast disk if there is a second volume.
fn open_on(env: &Env, volumes: &[SimVolume]) -> Result<Store, Error> {
    let [home, fast @ ..] = volumes else { panic!("no home") };
    let fast = fast.first().map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
    fast::tiered(small()).env(env.clone()).open_volumes(Arc::new(home.clone()), fast)
}

/// The volumes of a store that was closed, each with its files.
type Files = Vec<Vec<(FileName, Vec<u8>)>>;

fn files_of(volumes: &[SimVolume]) -> Files {
    let of = |volume: &SimVolume| {
        let names = volume.list().unwrap().into_iter().map(|file| file.name);
        names.map(|name| (name, volume.contents(name).unwrap())).collect()
    };
    volumes.iter().map(of).collect()
}

fn put_files(volumes: &[SimVolume], files: &Files) {
    for (volume, files) in volumes.iter().zip(files) {
        files.iter().for_each(|(name, bytes)| volume.set_contents(*name, bytes));
    }
}

/// Two openings of a store, until the power fails.
fn open_twice(env: &Env, volumes: &[SimVolume], models: &[Model; 2]) {
    for _ in 0..2 {
        let Ok(store) = open_on(env, volumes) else { return };
        check(&store, models, "undisturbed");
        if store.close().is_err() {
            return;
        }
    }
}

/// The power fails again, during the recovery from its first failure, at each of some changes of each disk. Returns how often
/// it did so.
fn fail_again(env: &Env, volumes: &[SimVolume], models: &[Model; 2], rng: &mut Rng) -> u64 {
    let mut failures = 0;
    for which in 0..volumes.len() {
        for _ in 0..3 {
            let second = after_crash(env, volumes, rng.next_u64() >> 1);
            second[which].crash_at(second[which].changes() + rng.below(20));
            open_twice(env, &second, models);
            failures += u64::from(second[which].has_crashed());
            let third = after_crash(env, &second, rng.next_u64() >> 1);
            for life in 0..2 {
                let store = open_on(env, &third).unwrap();
                check(&store, models, &format!("life {life} after two crashes"));
                store.close().unwrap();
            }
        }
    }
    failures
}

/// A crash during the recovery from a crash, on one disk.
#[test]
fn promise_1_3_two_crashes_while_the_log_is_carried_over_lose_nothing_and_bring_nothing_back() {
    for_each_seed(10, 2, |seed| {
        let executor = SimExecutor::new(seed);
        let (files, models) = executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let models = build(|options| open(&env, &volume, options)).unwrap();
            (files_of(&[volume]), models)
        });
        let failures = AtomicU64::new(0);
        let points = CrashPoints { points_max: 30, images_per_point: 2, faults: FaultPlan::none() };
        crash_everywhere(
            seed,
            &points,
            |env, volume| {
                put_files(std::slice::from_ref(volume), &files);
                open_twice(env, std::slice::from_ref(volume), &models);
            },
            |env, volume, ()| {
                let mut rng = Rng::new(seed);
                failures.fetch_add(fail_again(env, &[volume], &models, &mut rng), Ordering::Relaxed);
            },
        );
        let failures = failures.into_inner();
        assert!(failures > 50, "the power failed {failures} times during a recovery");
    });
}

/// The same on two disks, where the new log begins on the fast one and the manifest lies on the home.
#[test]
fn promise_1_3_4_two_crashes_of_two_disks_while_the_log_is_carried_over_lose_nothing_and_bring_nothing_back() {
    for_each_seed(20, 2, |seed| {
        let executor = SimExecutor::new(seed);
        let (files, models) = executor.run(|| {
            let env = executor.env();
            let volumes = PLACES.map(|place| SimVolume::named(&env, place, FaultPlan::none(), seed));
            let models = build(|_| open_on(&env, &volumes)).unwrap();
            let is_log = |file: &FileMeta| matches!(file.name, FileName::Log(_));
            assert!(volumes[1].list().unwrap().iter().any(is_log), "the log is on the fast disk");
            (files_of(&volumes), models)
        });
        let failures = AtomicU64::new(0);
        let points = CrashPoints { points_max: 30, images_per_point: 2, faults: FaultPlan::none() };
        crash_machine_everywhere(
            seed,
            &points,
            PLACES,
            |env, volumes| {
                put_files(volumes, &files);
                open_twice(env, volumes, &models);
            },
            |env, volumes, ()| {
                let once = volumes.each_ref().map(|volume| volume.on(env));
                for life in 0..2 {
                    let store = open_on(env, &once).unwrap();
                    check(&store, &models, &format!("life {life} after one crash"));
                    store.close().unwrap();
                }
                let mut rng = Rng::new(seed);
                failures.fetch_add(fail_again(env, &volumes, &models, &mut rng), Ordering::Relaxed);
            },
        );
        let failures = failures.into_inner();
        assert!(failures > 50, "the power failed {failures} times during a recovery");
    });
}

/// Promise 4. An opening once removed the log that an edit gave up, although only the page cache had the edit, or the name of its
/// manifest. The power then took the edit away again, and the store did not open any more.
#[test]
fn promise_4_an_opening_removes_nothing_because_of_an_edit_that_is_not_durable() {
    let edit = Rule::new(Fault::NoSpace).on(&[Operation::Sync]).files(&[FileKind::Manifest]).from(1);
    let name = Rule::new(Fault::Io).on(&[Operation::SyncNames]);
    // Whether the log has nothing when the store is closed, so that the next manifest needs none of it.
    let causes = [(&edit, false), (&name, false), (&name, true)];
    for_each_seed(40, 4, |seed| {
        for (places, (cause, flushes)) in causes.iter().flat_map(|cause| [(1, *cause), (2, *cause)]) {
            let executor = SimExecutor::new(seed);
            executor.run(|| {
                let env = executor.env();
                let fresh = |place: &&str| SimVolume::named(&env, place, FaultPlan::none(), seed);
                let built: Vec<SimVolume> = PLACES[..places].iter().map(fresh).collect();
                let store = open_on(&env, &built).unwrap();
                let mut model = Model::new();
                for n in 0..5 {
                    store.put(key_number(n), vec![n as u8; 100]).unwrap();
                    model.insert(key_number(n), vec![n as u8; 100]);
                }
                if flushes {
                    store.flush().unwrap();
                }
                store.close().unwrap();
                let files = files_of(&built);
                let opened_and_closed = |volumes: &[SimVolume]| open_on(&env, volumes).and_then(|store| store.close());
                for change in 0..16 {
                    let volumes: Vec<SimVolume> = PLACES[..places].iter().map(fresh).collect();
                    put_files(&volumes, &files);
                    volumes.iter().skip(1).for_each(|volume| volume.share_power(&volumes[0]));
                    volumes[0].set_faults(FaultPlan::none().with(cause.clone()));
                    let _ = opened_and_closed(&volumes);
                    volumes[0].set_faults(FaultPlan::none());
                    volumes[0].crash_at(volumes[0].changes() + change);
                    let _ = opened_and_closed(&volumes);
                    for image in 0..4 {
                        let store = open_on(&env, &after_crash(&env, &volumes, seed + image)).unwrap();
                        compare(store.default_keyspace(), &model, None, "after a kill and a power failure");
                        store.close().unwrap();
                    }
                }
            });
        }
    });
}

/// Prints what an opening for one write costs; the numbers depend on the disk.
#[test]
fn openings_for_one_write_on_a_real_disk() {
    let count: u32 = std::env::var("SITU_OPENINGS").map_or(30, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    for n in 0..count {
        let store = fast::open(directory.path()).unwrap();
        assert!(tables_by_level(&store)[0] <= 4);
        store.put(key_number(u64::from(n)), b"value").unwrap();
        store.close().unwrap();
    }
    let each = began.elapsed() / count;
    let store = fast::open(directory.path()).unwrap();
    println!("{count} openings, {each:?} each; tables {:?}", tables_by_level(&store));
    assert!((0..count).all(|n| store.get(key_number(u64::from(n))).unwrap().is_some()));
    store.close().unwrap();
}
