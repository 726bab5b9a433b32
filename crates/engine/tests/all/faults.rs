//! Promise 7, *failure is a value*: what the store answers when the disk is full, refuses, forgets, lies or goes away,
//! that reads go on meanwhile, and that it recovers by itself or at the next open with nothing lost that was promised.

use crate::common::*;
use situ_base::Env;
use situ_engine::{Durability, Error, KeyspaceOptions, Listener, Options, Store, StoreBuilder, StoreEvent};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{Error as StorageError, FileMeta, FileName, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longer than any pause between two tries of a background job.
const RECOVERS_WITHIN: Duration = Duration::from_secs(20);

fn options(seed: u64) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.memtables_max = 3;
    options
}

fn open(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    StoreBuilder::new(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

/// A store with a model beside it, on one simulated machine.
struct World {
    env: Env,
    volume: SimVolume,
    store: Store,
    model: Model,
    rng: Rng,
    seed: u64,
    written: u64,
}

impl World {
    fn run(seed: u64, test: impl FnOnce(&mut World) + Send) {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, seed).unwrap();
            let rng = Rng::new(seed);
            test(&mut World { env, volume, store, model: Model::new(), rng, seed, written: 0 });
        });
    }

    /// One write; the model follows if it was acknowledged.
    fn put(&mut self, durability: Durability) -> Result<(), Error> {
        self.written += 1;
        // Old keys and new ones: the store grows.
        let key = format!("key {:03}", self.rng.below(200 + self.written / 2)).into_bytes();
        let mut value = format!("{:06} ", self.written).into_bytes();
        value.resize(7 + self.rng.index(200), self.rng.next_u64() as u8);
        self.store.default_keyspace().put_with(&key, &value, durability)?;
        self.model.insert(key, value);
        Ok(())
    }

    fn load(&mut self, writes: usize) {
        for _ in 0..writes {
            self.put(Durability::Buffered).unwrap();
        }
    }

    /// Writes until it is refused, and returns the answer.
    fn put_until_refused(&mut self, writes_max: usize) -> Error {
        for _ in 0..writes_max {
            let durability = if self.rng.chance(0.2) { Durability::Synced } else { Durability::Buffered };
            if let Err(error) = self.put(durability) {
                return error;
            }
        }
        panic!("{writes_max} writes were taken, though the disk does not work");
    }

    fn faults(&self, rules: impl IntoIterator<Item = Rule>) {
        self.volume.set_faults(rules.into_iter().fold(FaultPlan::none(), FaultPlan::with));
    }

    fn heal(&self) {
        self.volume.set_faults(FaultPlan::none());
    }

    fn compare(&self, what: &str) {
        compare(self.store.default_keyspace(), &self.model, None, what);
    }

    /// Tries until writes are taken again and background work succeeds, as a patient program would.
    fn wait_until_writable(&mut self) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        loop {
            let outcome = self.put(Durability::Synced);
            if outcome.is_ok() && self.store.properties().background_failure.is_none() {
                return;
            }
            assert!(self.env.clock.now() < until, "still refused after {RECOVERS_WITHIN:?}: {outcome:?}");
            self.env.clock.sleep(Duration::from_millis(100));
        }
    }

    /// The store has failed: it says so, takes no writes, and can be read. Mended, closed and opened it is as before.
    fn expect_failed_then_mend(&mut self, error: &Error) {
        assert!(matches!(error, Error::Failed { .. }), "{error}");
        assert!(matches!(self.store.put(b"k", b"v"), Err(Error::Failed { .. })));
        assert!(matches!(self.store.flush(), Err(Error::Failed { .. })));
        assert!(matches!(self.store.sync(), Err(Error::Failed { .. })));
        assert!(matches!(self.store.properties().failure, Some(Error::Failed { .. })));
        self.compare("reads of a failed store");
        self.heal();
        assert!(matches!(self.store.put(b"k", b"v"), Err(Error::Failed { .. })), "it must not mend itself");
        assert!(matches!(self.store.close(), Err(Error::Failed { .. })));
        self.store = open(&self.env, &self.volume, self.seed).unwrap();
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = open(&self.env, &self.volume, self.seed).unwrap();
        self.compare("reopened");
    }

    fn finish(&mut self) {
        self.load(100);
        self.store.flush().unwrap();
        self.store.wait_idle().unwrap();
        self.compare("at the end");
        self.reopen();
        self.store.close().unwrap();
    }
}

fn files(volume: &SimVolume) -> Vec<FileMeta> {
    volume.list().unwrap()
}

fn tables(volume: &SimVolume) -> Vec<FileName> {
    files(volume).into_iter().map(|f| f.name).filter(|name| matches!(name, FileName::Table(_))).collect()
}

#[test]
fn promise_7_a_full_disk_refuses_writes_clearly_and_recovers_by_itself() {
    for_each_seed(0, 4, |seed| {
        World::run(seed, |world| {
            world.load(200);
            for round in 0..3 {
                let used = world.volume.space().logical_used;
                let room = [0, 10_000, 40_000, 200_000][world.rng.index(4)];
                world.volume.set_faults(FaultPlan::none().capacity(used + room));
                let error = world.put_until_refused(20_000);
                assert!(error.is_no_space(), "{error}");
                assert!(error.to_string().contains("the disk is full"), "{error}");
                assert!(world.store.properties().failure.is_none(), "a full disk is no failure");
                world.compare("reads of a full disk");
                for _ in 0..20 {
                    world.env.clock.sleep(Duration::from_millis(200));
                    let _ = world.put(Durability::Synced).map_err(|e| assert!(e.is_no_space(), "{e}"));
                }
                world.compare("after more tries");
                world.heal();
                world.wait_until_writable();
                world.load(100);
                world.compare(&format!("round {round}, with room again"));
            }
            world.finish();
        });
    });
}

/// How often compactions fail and recover.
#[derive(Default)]
struct Compactions {
    failed: AtomicU64,
    recovered: AtomicU64,
}

impl Listener for Compactions {
    fn event(&self, event: &StoreEvent) {
        match event {
            StoreEvent::JobFailed { job, .. } if job == "compact" => self.failed.fetch_add(1, Ordering::Relaxed),
            StoreEvent::JobRecovered { job } if job == "compact" => self.recovered.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

/// A compaction for which a full disk has no room is tried again, each time after a longer pause. A job that had only begun once
/// counted as one that had succeeded: it was tried, and told as recovered, twenty times a second.
#[test]
fn promise_7_compactions_on_a_full_disk_are_tried_ever_more_rarely() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let heard = Arc::new(Compactions::default());
        let open = |level0_tables| {
            let keyspace = KeyspaceOptions::default().level0_tables(level0_tables);
            let options = Options::default().keyspace(keyspace).compaction_threads(1);
            let options = options.listener(Arc::clone(&heard) as Arc<dyn Listener>);
            StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap()
        };
        let store = open(100);
        for round in 0..4u8 {
            (0..100u32).for_each(|n| store.put(n.to_be_bytes(), [round; 50]).unwrap());
            store.flush().unwrap();
        }
        store.close().unwrap();
        let no_table = Rule::new(Fault::NoSpace).on(&[Operation::Create]).files(&[FileKind::Table]);
        volume.set_faults(FaultPlan::none().with(no_table));
        let store = open(2);
        env.clock.sleep(Duration::from_secs(60));
        let (failed, recovered) = (heard.failed.load(Ordering::Relaxed), heard.recovered.load(Ordering::Relaxed));
        assert!((10..=25).contains(&failed) && recovered == 0, "{failed} failures, {recovered} recoveries in a minute");
        assert!(store.wait_idle().is_err_and(|error| error.is_no_space()));
        volume.set_faults(FaultPlan::none());
        env.clock.sleep(Duration::from_secs(10));
        store.wait_idle().unwrap();
        assert_eq!(heard.recovered.load(Ordering::Relaxed), 1);
        store.close().unwrap();
    });
}

/// Wherever the room ends: at the log, a table, the manifest, a rewrite of the manifest.
#[test]
fn promise_7_no_space_at_any_file_is_told_as_such_and_loses_nothing() {
    let kinds = [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::Temporary, FileKind::ManifestCopy];
    for_each_seed(100, 16, |seed| {
        World::run(seed, |world| {
            world.load(150);
            let kind = kinds[seed as usize % kinds.len()];
            // Pages of a log file that exists have their room already; only making one can fail for want of it.
            let operations: &[Operation] = match kind {
                FileKind::Log => &[Operation::CreatePages],
                _ => &[Operation::Create, Operation::Append],
            };
            world.faults([Rule::new(Fault::NoSpace).on(operations).files(&[kind])]);
            for _ in 0..400 {
                let outcome = world.put(Durability::Buffered);
                assert!(outcome.as_ref().err().is_none_or(Error::is_no_space), "{outcome:?}");
            }
            assert!(world.store.properties().failure.is_none(), "{:?}", world.store.properties().failure);
            world.compare("without room");
            world.heal();
            world.wait_until_writable();
            world.finish();
        });
    });
}

/// Once, a compaction that was done was told as failed because there was no room for a short log file, and the spare stayed.
#[test]
fn promise_7_a_compaction_on_a_full_disk_gives_room_back() {
    for_each_seed(150, 6, |seed| {
        World::run(seed, |world| {
            world.load(400);
            world.store.flush().unwrap();
            let before = world.store.properties().log_bytes;
            world.faults([Rule::new(Fault::NoSpace).on(&[Operation::CreatePages])]);
            // All memtables are empty: only the short log file that it would go on in has no room.
            world.store.default_keyspace().compact(None, None).unwrap();
            assert!(world.store.properties().log_bytes <= before);
            let is_spare = |file: &FileMeta| matches!(file.name, FileName::Spare(_));
            assert!(!world.volume.list().unwrap().iter().any(is_spare));
            world.heal();
            // A collection of the value log may have met the full disk too, and pauses.
            world.wait_until_writable();
            world.store.default_keyspace().compact(None, None).unwrap();
            world.compare("after the compaction");
            world.finish();
        });
    });
}

/// Once, a disk stayed full for ever: nothing sealed the memtable of a keyspace that is hardly written to, which held back all
/// log files behind its one entry, though their tables would have been a small part of them.
#[test]
fn promise_7_an_idle_keyspace_does_not_keep_the_disk_full() {
    for_each_seed(170, 3, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none().capacity(5 << 20), seed);
            let mut options = Options::default();
            options.keyspace.memtable_bytes = 1 << 20;
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
            let idle = store.create_keyspace("idle", Default::default()).unwrap();
            idle.put(b"once", b"and never again").unwrap();
            // Later, a write was refused whenever the flush that makes room had not ended yet, or not begun. Several come to the
            // end of a log file at the same time.
            let write = |numbers: std::ops::Range<u32>| {
                let store = store.clone();
                move || {
                    for number in numbers {
                        let (key, value) = ((number % 20).to_be_bytes(), vec![number as u8; 8 << 10]);
                        store.put(key, &value).unwrap_or_else(|error| panic!("write {number}: {error}"));
                    }
                }
            };
            write(0..1000)();
            let writers =
                (1..4).map(|n| env.executor.spawn("writer", Box::new(write(n * 1000..n * 1000 + 1000))).unwrap());
            let writers: Vec<_> = writers.collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert_eq!(idle.get(b"once").unwrap().as_deref(), Some(&b"and never again"[..]));
            store.close().unwrap();
        });
    });
}

/// Once, a store whose process had ended on a nearly full disk could not be opened before somebody made room for a log file of
/// the ordinary length.
#[test]
fn promise_7_a_store_is_opened_on_a_disk_with_hardly_any_room() {
    for_each_seed(180, 6, |seed| {
        World::run(seed, |world| {
            world.load(30);
            let after = world.volume.crash_keep_all();
            after.set_faults(FaultPlan::none().capacity(after.space().logical_used + (28 << 10)));
            let store = open(&world.env, &after, seed).unwrap();
            compare(store.default_keyspace(), &world.model, None, "opened with hardly any room");
        });
    });
}

/// Once, such a store refused writes for good when its first log file was full, which was shorter than what the log waits for
/// before it asks for the next one: nobody who could make room knew.
#[test]
fn promise_7_a_store_that_was_opened_with_hardly_any_room_goes_on() {
    for_each_seed(186, 6, |seed| {
        World::run(seed, |world| {
            world.load(30);
            let after = world.volume.crash_keep_all();
            after.set_faults(FaultPlan::none().capacity(after.space().logical_used + (100 << 10)));
            let store = StoreBuilder::new(Options::default())
                .env(world.env.clone())
                .open_volume(Arc::new(after.clone()))
                .unwrap();
            let mut accepted = 0;
            for n in 0..300u32 {
                match store.default_keyspace().put_with(b"again and again", [n as u8; 2000], Durability::Synced) {
                    Ok(_) => accepted += 1,
                    Err(error) => {
                        assert!(error.is_no_space(), "{error}");
                        world.env.clock.sleep(Duration::from_secs(1));
                    }
                }
            }
            assert!(accepted > 200, "{accepted} writes");
        });
    });
}

/// A crash while the disk is full: what was being tried then is there or not, and nothing else is different.
#[test]
fn promise_1_7_a_crash_on_a_full_disk_loses_nothing() {
    for_each_seed(200, 20, |seed| {
        World::run(seed, |world| {
            world.load(150);
            let no_space = Rule::new(Fault::NoSpace).files(&[FileKind::Manifest, FileKind::Table]);
            world.faults([no_space.on(&[Operation::Create, Operation::Append, Operation::Sync]).chance(0.5)]);
            for _ in 0..300 {
                let _ = world.put(Durability::Synced);
                if matches!(world.store.properties().failure, Some(Error::Failed { .. })) {
                    break;
                }
            }
            let after = if seed % 2 == 0 { world.volume.crash(seed) } else { world.volume.crash_keep_all() };
            let store = open(&world.env, &after, seed).unwrap();
            // The last write may have been refused with a failed store, and yet be in the log.
            let found = contents(store.default_keyspace(), None);
            let differing = found.iter().filter(|(key, value)| world.model.get(*key) != Some(value)).count();
            assert!(differing <= 1 && found.len() >= world.model.len(), "{differing} values differ");
            store.close().unwrap();
        });
    });
}

#[test]
fn promise_7_an_unreadable_table_is_named_and_the_store_goes_on() {
    for_each_seed(300, 6, |seed| {
        World::run(seed, |world| {
            world.load(300);
            world.store.flush().unwrap();
            let faults =
                [Fault::Io, Fault::PermissionDenied, Fault::NotFound].map(|f| Rule::new(f).files(&[FileKind::Table]));
            for fault in faults {
                world.store.wait_idle().unwrap();
                world.store.close().unwrap();
                // Nothing is cached, and no table is open.
                world.store = open(&world.env, &world.volume, seed).unwrap();
                world.store.wait_idle().unwrap();
                let on = if world.rng.chance(0.5) { Operation::Read } else { Operation::Open };
                world.faults([fault.on(&[Operation::Read, on])]);
                let mut refused = 0;
                for (key, value) in &world.model {
                    match world.store.get(key) {
                        Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
                        Err(error) => {
                            refused += 1;
                            assert!(error.to_string().contains(".table"), "{error}");
                            assert!(matches!(error, Error::Storage(_)), "{error:?}");
                        }
                    }
                }
                assert!(refused > 0, "nothing was read from a table");
                world.store.put(b"key 000", b"a new value").unwrap();
                world.model.insert(b"key 000".to_vec(), b"a new value".to_vec());
                assert_eq!(world.store.get(b"key 000").unwrap().as_deref(), Some(&b"a new value"[..]));
                world.heal();
                world.compare("readable again");
            }
            world.finish();
        });
    });
}

#[test]
fn promise_7_a_table_that_cannot_be_written_is_tried_again() {
    for_each_seed(400, 9, |seed| {
        World::run(seed, |world| {
            let fault = [Fault::Io, Fault::PermissionDenied, Fault::ReadOnly][seed as usize % 3];
            let operation = [Operation::Create, Operation::Append, Operation::Sync][seed as usize / 3 % 3];
            world.load(20);
            world.faults([Rule::new(fault).on(&[operation]).files(&[FileKind::Table])]);
            // Writers go on until all memtables are full; then they are told why nothing moves.
            let error = world.put_until_refused(5000);
            assert!(
                matches!(&error, Error::Storage(StorageError::Io { path, .. }) if path.contains(".table")),
                "{error}"
            );
            assert!(matches!(world.store.flush(), Err(Error::Storage(_))));
            let properties = world.store.properties();
            assert!(properties.failure.is_none());
            assert!(properties.background_failure.is_some());
            world.compare("while flushes fail");
            world.heal();
            world.wait_until_writable();
            world.store.flush().unwrap();
            assert!(world.store.properties().background_failure.is_none());
            world.finish();
        });
    });
}

#[test]
fn promise_7_a_failed_log_makes_the_store_read_only_until_reopened() {
    for_each_seed(500, 24, |seed| {
        World::run(seed, |world| {
            world.load(100);
            let fault = [Fault::Io, Fault::DropDirty, Fault::PermissionDenied, Fault::ReadOnly][seed as usize % 4];
            world.faults([Rule::new(fault).on(&[Operation::WritePages, Operation::Sync]).files(&[FileKind::Log])]);
            let before = world.model.clone();
            let error = world.put_until_refused(3);
            assert_eq!(world.model, before, "nothing can be acknowledged by a log that cannot be written");
            let crashed = world.volume.crash(seed);
            world.expect_failed_then_mend(&error);
            let unacknowledged = |found: &Model| {
                let differing = found.iter().filter(|(key, value)| world.model.get(*key) != Some(value)).count();
                assert!(differing <= 1, "{differing} values differ");
            };
            // The write that was refused may be there; no other difference is allowed without a power failure.
            let found = contents(world.store.default_keyspace(), None);
            unacknowledged(&found);
            assert!(world.model.keys().all(|key| found.contains_key(key)));
            world.model = found;
            world.finish();
            // Had the power failed as well: buffered writes may be gone, but only the newest.
            let store = open(&world.env, &crashed, seed).unwrap();
            contents(store.default_keyspace(), None);
            store.close().unwrap();
        });
    });
}

/// After a failed sync the kernel may have dropped what it could not write and call the file clean ("fsyncgate"):
/// the store must not believe the next sync. What was synced before stays, whatever happens.
#[test]
fn promise_1_7_a_failed_sync_is_never_followed_by_a_false_acknowledgement() {
    for_each_seed(600, 30, |seed| {
        World::run(seed, |world| {
            world.load(50);
            world.store.sync().unwrap();
            let synced = world.model.clone();
            let nth = world.rng.below(4);
            let rule = Rule::new(Fault::DropDirty).on(&[Operation::WritePages, Operation::Sync]);
            world.faults([rule.files(&[FileKind::Log]).nth(nth)]);
            let mut acknowledged = synced;
            for _ in 0..20 {
                let outcome = world.put(Durability::Synced).map(|()| acknowledged.clone_from(&world.model));
                assert!(outcome.as_ref().err().is_none_or(|e| matches!(e, Error::Failed { .. })), "{outcome:?}");
            }
            assert!(world.store.properties().failure.is_some());
            let after = world.volume.crash(seed);
            let store = open(&world.env, &after, seed).unwrap();
            let found = contents(store.default_keyspace(), None);
            let missing = acknowledged.iter().filter(|(k, v)| found.get(*k) != Some(v)).count();
            // One key may already have its next, unacknowledged value.
            assert!(missing <= 1, "{missing} values that were acknowledged as synced are not there");
            store.close().unwrap();
        });
    });
}

/// Whether the edit got to the disk is unknown then, so both outcomes must be whole at the next open: the tables that it
/// names must still be there.
#[test]
fn promise_4_7_a_failed_manifest_makes_the_store_read_only_until_reopened() {
    for_each_seed(700, 48, |seed| {
        World::run(seed, |world| {
            world.load(100);
            let fault = [Fault::Io, Fault::DropDirty, Fault::PermissionDenied][seed as usize % 3];
            let operation = [Operation::Append, Operation::Sync][seed as usize / 3 % 2];
            world.faults([Rule::new(fault).on(&[operation]).files(&[FileKind::Manifest])]);
            let flushed = world.store.flush();
            if fault == Fault::DropDirty && operation == Operation::Append {
                // Not a fault of appends: nothing went wrong.
                flushed.unwrap();
                return world.store.close().unwrap();
            }
            assert!(flushed.is_err());
            let error = world.store.put(b"k", b"v").unwrap_err();
            let crashed = world.volume.crash_keep_all();
            world.expect_failed_then_mend(&error);
            world.compare("reopened after a failed manifest");
            world.finish();
            let store = open(&world.env, &crashed, seed).unwrap();
            store.close().unwrap();
        });
    });
}

/// The edit is in the manifest already: a copy that cannot be written is given up and told, and writes go on. A crash then loses
/// nothing, and the next opening has a copy again.
#[test]
fn promise_7_a_copy_of_the_manifest_that_cannot_be_written_stops_nobody() {
    for_each_seed(780, 18, |seed| {
        World::run(seed, |world| {
            world.load(100);
            let fault = [Fault::Io, Fault::NoSpace, Fault::PermissionDenied][seed as usize % 3];
            let operation = [Operation::Append, Operation::Sync][seed as usize / 3 % 2];
            let mut rules = vec![Rule::new(fault).on(&[operation]).files(&[FileKind::ManifestCopy])];
            if seed % 2 == 0 {
                rules.push(Rule::new(Fault::Io).on(&[Operation::Remove]).files(&[FileKind::ManifestCopy]));
            }
            world.faults(rules);
            let failures = world.store.statistics().job_failures;
            world.store.flush().unwrap();
            assert!(world.store.statistics().job_failures > failures, "nobody was told");
            for _ in 0..3 {
                world.load(60);
                world.store.flush().unwrap();
            }
            assert!(world.store.properties().failure.is_none());
            world.compare("without a copy");
            let crashed = world.volume.crash(seed);
            let store = open(&world.env, &crashed, seed).unwrap();
            assert!(store.properties().mended.is_empty(), "{:?}", store.properties().mended);
            store.close().unwrap();
            world.heal();
            world.finish();
        });
    });
}

/// A log file may be begun, and neither be finished nor removed. Once, the store asked for the same number again, met the
/// file, and took no writes until it was reopened.
#[test]
fn promise_7_a_log_file_left_half_made_does_not_block_the_next_try() {
    for_each_seed(750, 16, |seed| {
        World::run(seed, |world| {
            world.load(60);
            let tries = Rule::new(Fault::Io).on(&[Operation::CreatePages, Operation::Rename]);
            world.faults([tries.files(&[FileKind::Log, FileKind::Spare])]);
            let error = world.put_until_refused(2000).to_string();
            let names = error.split(['/', ':', ' ']).filter_map(|word| word.parse::<FileName>().ok());
            names.filter(|name| matches!(name, FileName::Log(_))).for_each(|name| world.volume.set_contents(name, &[]));
            world.heal();
            world.wait_until_writable();
            world.finish();
        });
    });
}

/// A manifest that may have lost its tail is replaced before the next edit. What goes wrong before `CURRENT` is switched
/// is tried again; what goes wrong from there on, a full disk included, makes the store read-only: an edit appended to
/// the old manifest would be lost if a crash left the new one in force.
#[test]
fn promise_4_7_a_manifest_that_cannot_be_replaced() {
    let steps = [
        (Operation::Create, FileKind::Manifest),
        (Operation::Append, FileKind::Manifest),
        (Operation::Sync, FileKind::Manifest),
        (Operation::Create, FileKind::Temporary),
        (Operation::Append, FileKind::Temporary),
        (Operation::Sync, FileKind::Temporary),
        (Operation::Rename, FileKind::Temporary),
    ];
    for_each_seed(720, 48, |seed| {
        World::run(seed, |world| {
            world.load(100);
            world.faults([Rule::new(Fault::NoSpace).on(&[Operation::Append]).files(&[FileKind::Manifest])]);
            assert!(world.store.flush().unwrap_err().is_no_space());
            let fault = [Fault::NoSpace, Fault::Io, Fault::PermissionDenied][seed as usize / 8 % 3];
            let rule = match steps.get(seed as usize % 8) {
                Some((operation, kind)) => Rule::new(fault).on(&[*operation]).files(&[*kind]),
                None => Rule::new(fault).on(&[Operation::SyncNames]),
            };
            world.faults([rule]);
            assert!(world.store.flush().is_err());
            if seed % 8 < 6 {
                assert!(world.store.properties().failure.is_none(), "{:?}", world.store.properties().failure);
                world.heal();
                world.wait_until_writable();
                let manifests = files(&world.volume);
                let count = |is: fn(FileName) -> bool| manifests.iter().filter(|file| is(file.name)).count();
                let whole = count(|name| matches!(name, FileName::Manifest(_)));
                let copies = count(|name| matches!(name, FileName::ManifestCopy(_)));
                assert_eq!((whole, copies), (1, 1), "manifests that were begun are left on the disk");
            } else {
                // The background tries the flush again, which may first have been kept from it by the same fault elsewhere.
                let until = world.env.clock.now() + RECOVERS_WITHIN;
                while world.store.properties().failure.is_none() && world.env.clock.now() < until {
                    world.env.clock.sleep(Duration::from_millis(100));
                }
                let error = world.store.put(b"k", b"v").unwrap_err();
                let crashed = world.volume.crash_keep_all();
                world.expect_failed_then_mend(&error);
                world.compare("reopened after a failed switch");
                open(&world.env, &crashed, seed).unwrap().close().unwrap();
            }
            world.finish();
        });
    });
}

#[test]
fn promise_7_files_that_cannot_be_removed_are_removed_later() {
    for_each_seed(800, 8, |seed| {
        World::run(seed, |world| {
            let fault = [Fault::Io, Fault::PermissionDenied][seed as usize % 2];
            world.faults([Rule::new(fault).on(&[Operation::Remove, Operation::Rename])]);
            for _ in 0..6 {
                let _ = (0..150).try_for_each(|_| world.put(Durability::Buffered));
                let _ = world.store.flush();
            }
            assert!(world.store.properties().failure.is_none());
            world.compare("while nothing can be removed");
            world.heal();
            world.wait_until_writable();
            world.store.default_keyspace().compact(None, None).unwrap();
            world.store.wait_idle().unwrap();
            // The next flush takes the opportunity to delete what was left over.
            world.load(5);
            world.store.flush().unwrap();
            world.store.wait_idle().unwrap();
            world.env.clock.sleep(RECOVERS_WITHIN);
            let known = world.store.default_keyspace().tables().len();
            assert_eq!(tables(&world.volume).len(), known, "tables that nobody needs are left on the disk");
            world.finish();
        });
    });
}

#[test]
fn promise_7_a_store_that_cannot_be_opened_now_can_be_opened_later() {
    let operations = [
        Operation::Create,
        Operation::CreatePages,
        Operation::Open,
        Operation::Read,
        Operation::Append,
        Operation::WritePages,
        Operation::Sync,
        Operation::Replace,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncNames,
        Operation::List,
        Operation::Lock,
    ];
    for_each_seed(900, 3, |seed| {
        for operation in operations {
            for fault in [Fault::Io, Fault::PermissionDenied, Fault::NotFound, Fault::ReadOnly, Fault::NoSpace] {
                World::run(seed, |world| {
                    world.load(120);
                    world.store.close().unwrap();
                    let nth = world.rng.below(3);
                    world.faults([Rule::new(fault).on(&[operation]).from(nth)]);
                    let what = format!("{fault:?} at {operation:?} from {nth} on");
                    match open(&world.env, &world.volume, seed) {
                        Ok(store) => drop(store.close()),
                        Err(Error::Storage(_) | Error::Existence(_)) => {}
                        Err(other) => panic!("{what}: {other:?}"),
                    }
                    world.heal();
                    world.store = open(&world.env, &world.volume, seed).unwrap_or_else(|e| panic!("{what}: {e}"));
                    world.compare(&what);
                    world.store.close().unwrap();
                });
            }
        }
    });
}

#[test]
fn promise_7_a_read_only_volume_can_be_read() {
    World::run(1000, |world| {
        world.load(200);
        world.store.close().unwrap();
        // Syncing a file that was opened for reading is allowed there.
        let writes = Operation::CHANGES.iter().filter(|o| **o != Operation::Sync).copied().chain([Operation::Lock]);
        world.faults([Rule::new(Fault::ReadOnly).on(&writes.collect::<Vec<_>>())]);
        let error = open(&world.env, &world.volume, 1000).unwrap_err();
        assert!(error.to_string().contains("Read-only"), "{error}");
        let builder = StoreBuilder::new(options(1000)).env(world.env.clone()).read_only();
        let store = builder.open_volume(Arc::new(world.volume.clone())).unwrap();
        compare(store.default_keyspace(), &world.model, None, "a read-only volume");
        assert!(matches!(store.put(b"k", b"v"), Err(Error::ReadOnly)));
        assert!(matches!(store.flush(), Err(Error::ReadOnly)));
        store.close().unwrap();
        world.heal();
    });
}

#[test]
fn promise_7_a_lost_directory_is_an_error_not_an_end() {
    for_each_seed(1100, 8, |seed| {
        World::run(seed, |world| {
            world.load(200);
            world.faults([Rule::new(Fault::NotFound)]);
            let mut errors = Vec::new();
            for _ in 0..1000 {
                errors.extend(world.put(Durability::Synced).err());
            }
            assert!(!errors.is_empty());
            errors.extend(world.store.flush().err());
            for key in world.model.keys() {
                errors.extend(world.store.get(key).err());
            }
            for error in &errors {
                assert!(
                    matches!(error, Error::Storage(StorageError::NotFound { .. }) | Error::Failed { .. }),
                    "{error:?}"
                );
            }
            let _ = world.store.close();
            // While the directory is gone, nothing may be taken for a new, empty store.
            assert!(open(&world.env, &world.volume, seed).is_err());
            world.heal();
            world.store = open(&world.env, &world.volume, seed).unwrap();
            let found = contents(world.store.default_keyspace(), None);
            let differing = world.model.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
            assert!(differing <= 1, "{differing} acknowledged values are not there");
            world.store.close().unwrap();
        });
    });
}

#[test]
fn two_openers_do_not_meet() {
    World::run(1200, |world| {
        world.load(50);
        let second = open(&world.env, &world.volume, 1200);
        assert!(matches!(second, Err(Error::Storage(StorageError::Locked { .. }))), "{second:?}");
        world.load(50);
        world.compare("after a second opener came");
        world.reopen();
        world.store.close().unwrap();
    });
}

#[test]
fn promise_6_a_truncated_table_is_an_error_that_names_it() {
    for_each_seed(1300, 10, |seed| {
        World::run(seed, |world| {
            world.load(200);
            world.store.flush().unwrap();
            world.store.wait_idle().unwrap();
            world.store.close().unwrap();
            let names = tables(&world.volume);
            let name = names[world.rng.index(names.len())];
            let whole = world.volume.contents(name).unwrap();
            let cut = world.rng.index(whole.len());
            world.volume.set_contents(name, &whole[..cut]);
            match open(&world.env, &world.volume, seed) {
                Err(error) => {
                    assert!(error.is_corruption() && error.to_string().contains(&name.to_string()), "{error}");
                }
                Ok(store) => {
                    let mut damaged = 0;
                    for (key, value) in &world.model {
                        match store.get(key) {
                            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "cut at {cut}"),
                            Err(error) => {
                                damaged += 1;
                                assert!(error.is_corruption(), "{error}");
                                assert!(error.to_string().contains(&name.to_string()), "{error}");
                            }
                        }
                    }
                    assert!(damaged > 0 || world.model.is_empty(), "a cut at {cut} of {} went unseen", whole.len());
                    let _ = store.close();
                }
            }
            // Nothing was made worse: with the table back in place all is there.
            world.volume.set_contents(name, &whole);
            world.store = open(&world.env, &world.volume, seed).unwrap();
            world.compare("with the whole table back");
            world.store.close().unwrap();
        });
    });
}

/// Remembers the wall-clock times that compactions were told.
#[derive(Default)]
struct Times {
    told: std::sync::Mutex<Vec<Duration>>,
}

impl situ_engine::CompactionFilter for Times {
    fn name(&self) -> &str {
        "times"
    }

    fn decide(&self, context: &situ_engine::FilterContext<'_>, _key: &[u8], _value: &[u8]) -> situ_engine::Decision {
        self.told.lock().unwrap().push(context.now_unix);
        situ_engine::Decision::Keep
    }
}

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    for_each_seed(1400, 6, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let times = Arc::new(Times::default());
            let mut options = options(seed);
            options.keyspace.compaction_filter = Some(Arc::clone(&times) as Arc<_>);
            let builder = StoreBuilder::new(options).env(env.clone());
            let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
            let mut world = World { env, volume, store, model: Model::new(), rng: Rng::new(seed), seed, written: 0 };
            let years = |n: u64| Duration::from_secs(n * 365 * 86_400);
            for unix in [years(80), years(10), Duration::ZERO, years(500), years(55)] {
                executor.clock().set_unix(unix);
                executor.clock().advance(Duration::from_secs(world.rng.below(10_000)));
                let before = executor.env().clock.unix();
                world.store.wait_idle().unwrap();
                times.told.lock().unwrap().clear();
                world.load(200);
                world.store.default_keyspace().compact(None, None).unwrap();
                let told = std::mem::take(&mut *times.told.lock().unwrap());
                let after = executor.env().clock.unix();
                assert!(!told.is_empty());
                assert!(told.iter().all(|t| (before..=after).contains(t)), "{told:?} not in {before:?}..={after:?}");
                world.compare("after a jump");
            }
            world.finish();
        });
    });
}

#[test]
fn a_slow_disk_makes_a_slow_store_and_nothing_worse() {
    for_each_seed(1500, 4, |seed| {
        World::run(seed, |world| {
            let slow = |ms| Rule::new(Fault::Delay(Duration::from_millis(ms)));
            world.faults([
                slow(20).on(&[Operation::Sync, Operation::Append]),
                slow(500).on(&[Operation::Sync]).chance(0.02),
                slow(5).on(&[Operation::WritePages]),
            ]);
            world.load(600);
            world.compare("a slow disk");
            assert!(world.store.properties().failure.is_none());
            world.heal();
            world.finish();
        });
    });
}
