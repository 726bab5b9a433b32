//! What a store has in memory when it is opened, what becomes of it, and that it is there after any number of openings.

use crate::common::{Model, compare, key_number};
use situ_base::Env;
use situ_engine::{Durability, Error, KeyspaceOptions, Options, Store, StoreBuilder};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{Error as StorageError, FileName, Volume};
use std::sync::Arc;
use std::time::Duration;

fn options(memtable_bytes: u64) -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = memtable_bytes;
    options.keyspace.memtables_max = 3;
    options
}

fn open(env: &Env, volume: &SimVolume, options: Options) -> Result<Store, Error> {
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

/// No table can be begun.
fn no_tables() -> FaultPlan {
    FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Create]).files(&[FileKind::Table]))
}

fn files(volume: &SimVolume, wanted: impl Fn(FileName) -> bool) -> usize {
    volume.list().unwrap().iter().filter(|file| wanted(file.name)).count()
}

fn is_log(name: FileName) -> bool {
    matches!(name, FileName::Log(_))
}

fn is_table(name: FileName) -> bool {
    matches!(name, FileName::Table(_))
}

fn put(store: &Store, models: &mut [Model; 2], rng: &mut Rng, count: u64) {
    let mut value = vec![0; 60];
    for _ in 0..count {
        let which = rng.index(2);
        let keyspace = store.existing_keyspace(["default", "other"][which]).unwrap();
        let key = key_number(rng.below(40));
        rng.fill(&mut value);
        if rng.chance(0.1) {
            keyspace.delete_with(&key, Durability::Synced).unwrap();
            models[which].remove(&key);
        } else {
            keyspace.put_with(&key, &value, Durability::Synced).unwrap();
            models[which].insert(key, value.clone());
        }
    }
}

fn check(store: &Store, models: &[Model; 2], what: &str) {
    compare(store.default_keyspace(), &models[0], None, what);
    compare(&store.existing_keyspace("other").unwrap(), &models[1], None, what);
    store.check().unwrap();
}

/// What is in the log needs no table to be read and written over, in this life and the next ones: each replays what all before
/// it have left. Nothing is lost, and nothing comes twice, when tables can be written again.
#[test]
fn promise_1_3_7_a_store_is_opened_again_and_again_while_no_table_can_be_written() {
    for_each_seed(1, 30, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let mut volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut models = [Model::new(), Model::new()];
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            store.create_keyspace("other", KeyspaceOptions::default()).unwrap();
            put(&store, &mut models, &mut rng, 40);
            for life in 0..6 {
                let image = volume.crash(rng.next_u64());
                volume = image.on(&env);
                volume.set_faults(no_tables());
                let store = open(&env, &volume, options(16 << 10)).unwrap();
                check(&store, &models, &format!("life {life}"));
                let writes = rng.below(8);
                put(&store, &mut models, &mut rng, writes);
                check(&store, &models, &format!("life {life}, written to"));
                if rng.chance(0.3) {
                    store.close().unwrap();
                }
            }
            assert_eq!(files(&volume, is_table), 0);
            volume.set_faults(FaultPlan::none());
            let volume = volume.crash(rng.next_u64()).on(&env);
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            check(&store, &models, "at last");
            env.clock.sleep(Duration::from_secs(20));
            // The current file, and perhaps a spare one.
            assert!(files(&volume, is_log) <= 2, "{:?}", volume.list());
            store.default_keyspace().compact(None, None).unwrap();
            assert!(files(&volume, is_table) > 0, "{:?}", volume.list());
            check(&store, &models, "in tables");
            store.close().unwrap();
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            check(&store, &models, "closed in order");
            store.close().unwrap();
        });
    });
}

/// The last pages of a log that was not closed may rot without anybody knowing that they were there. When the next log has been
/// begun behind them, their loss would be a hole in the middle of what was written.
#[test]
fn promise_3_6_an_old_log_that_rots_behind_a_new_one_is_found() {
    for_each_seed(1, 10, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            // A life that ends by a power failure.
            let live = |volume: &SimVolume, keys: std::ops::Range<u64>| {
                let store = open(&env, volume, options(64 << 10)).unwrap();
                let value = [7; 3000];
                keys.for_each(|n| {
                    store.default_keyspace().put_with(key_number(n), value, Durability::Synced).unwrap();
                });
                volume.crash(seed).on(&env)
            };
            let volume = live(&volume, 0..4);
            let old = volume.list().unwrap().into_iter().find(|file| is_log(file.name)).unwrap().name;
            let written = volume.contents(old).unwrap().chunks(4096).take_while(|page| page[0] != 0).count() as u64;
            assert!(written > 2);
            volume.set_faults(no_tables());
            let volume = live(&volume, 4..6);
            // The last page alone, or all.
            for damaged in [written - 1..written, 0..written] {
                let volume = volume.crash(seed).on(&env);
                damaged.for_each(|page| assert!(volume.rot(old, page * 4096, 3)));
                let error = open(&env, &volume, options(64 << 10)).unwrap_err();
                assert!(matches!(&error, Error::Storage(StorageError::Corruption(_))), "{error}");
                let text = error.to_string();
                assert!(text.contains("sequence number behind") || text.contains("it was kept"), "{text}");
            }
            open(&env, &volume.crash(seed).on(&env), options(64 << 10)).unwrap().close().unwrap();
        });
    });
}

/// Lives in which nothing is written, and that end before there is a table, leave no log files behind.
#[test]
fn promise_8_openings_that_end_at_once_leave_no_log_files() {
    for_each_seed(1, 5, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut store = open(&env, &volume, options(16 << 10)).unwrap();
            (0..20).for_each(|n| store.put(key_number(n), b"value").unwrap());
            store.sync().unwrap();
            for life in 0..20 {
                if life % 3 == 0 {
                    store.close().unwrap();
                }
                volume = volume.crash(seed ^ life).on(&env);
                volume.set_faults(no_tables());
                store = open(&env, &volume, options(16 << 10)).unwrap();
                assert_eq!(store.get(key_number(3)).unwrap().as_deref(), Some(&b"value"[..]));
                assert!(files(&volume, is_log) <= 3, "{:?}", volume.list());
            }
        });
    });
}

/// A program that opens a store for one read, again and again, replays its log once.
#[test]
fn closing_ends_what_opening_began() {
    for_each_seed(1, 10, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            // More than goes on in the next log.
            (0..20).for_each(|n| store.put(key_number(n), [7; 200]).unwrap());
            store.close().unwrap();
            assert_eq!(files(&volume, is_table), 0);
            open(&env, &volume, options(16 << 10)).unwrap().close().unwrap();
            assert_eq!((files(&volume, is_table), files(&volume, is_log)), (1, 1), "{:?}", volume.list());
            // If it cannot, closing does not wait for ever.
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            (0..20).for_each(|n| store.put(key_number(n), b"newer").unwrap());
            store.close().unwrap();
            volume.set_faults(no_tables());
            open(&env, &volume, options(16 << 10)).unwrap().close().unwrap();
            volume.set_faults(FaultPlan::none());
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            assert_eq!(store.get(key_number(3)).unwrap().as_deref(), Some(&b"newer"[..]));
            store.close().unwrap();
        });
    });
}

/// The log of a store that had larger memtables is no reason to take more memory than the options of today allow.
#[test]
fn promise_8_what_is_more_than_memtables_may_take_becomes_tables_before_the_store_is_open() {
    for_each_seed(1, 10, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, options(1 << 20)).unwrap();
            let value = |n: u64| vec![n as u8; 1000];
            (0..200u64).for_each(|n| store.put(n.to_be_bytes(), value(n)).unwrap());
            store.close().unwrap();
            volume.set_faults(no_tables());
            assert!(open(&env, &volume, options(16 << 10)).is_err());
            volume.set_faults(FaultPlan::none());
            let store = open(&env, &volume, options(16 << 10)).unwrap();
            assert!(files(&volume, is_table) > 5);
            (0..200u64).for_each(|n| assert_eq!(store.get(n.to_be_bytes()).unwrap().as_deref(), Some(&value(n)[..])));
            store.check().unwrap();
            store.close().unwrap();
        });
    });
}

/// A file that could not be made was back after a power failure, empty, between two that were: the log looked cut, and the store
/// did not open.
#[test]
fn a_log_file_that_could_not_be_made_does_not_come_back_between_two_others() {
    for fault in [Fault::Io, Fault::NoSpace] {
        let sim = SimExecutor::new(1);
        let env = sim.env();
        sim.run(|| {
            let home = SimVolume::new(&env, FaultPlan::none(), 1);
            let store = open(&env, &home, options(64 << 10)).unwrap();
            // No flush, so that all log files stay; making one of them fails, once.
            home.set_faults(no_tables().with(Rule::new(fault).on(&[Operation::CreatePages]).nth(0)));
            let mut acknowledged = Vec::new();
            let mut keys = 0..2000u32;
            while files(&home, |name| matches!(name, FileName::Log(_))) < 3 {
                let key = keys.next().expect("a third log file").to_be_bytes();
                if store.default_keyspace().put_with(key, [1; 1000], Durability::Synced).is_ok() {
                    acknowledged.push(key);
                }
            }
            for seed in 0..100 {
                let store = open(&env, &home.crash(seed), options(64 << 10)).unwrap();
                for key in &acknowledged {
                    assert!(store.get(key).unwrap().is_some(), "{fault:?}, power failure {seed}: {key:?}");
                }
                store.close().unwrap();
            }
        });
    }
}
