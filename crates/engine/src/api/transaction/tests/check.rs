//! The steps of the check, one by one: what is found among published writes, among those on their way, and when too
//! much has come in between to be searched under the commit lock.

use super::super::held::HeldLocks;
use crate::api::store::{Store, StoreBuilder};
use crate::api::transaction::LockMode;
use crate::base::batch::WriteBatch;
use crate::base::options::{Durability, Options};
use crate::base::sync::lock;
use crate::core::Core;
use crate::pipeline::Obstacle;
use crate::pipeline::check::{CheckedRow, Commitment};
use crate::{Error, Result, WriteFuture};
use situ_base::{Env, Event, Executor, JobHandle, ThreadExecutor};
use situ_pipeline::Condition;
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimExecutor, SimVolume, for_each_seed};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn with_store(seed: u64, test: impl FnOnce(&SimVolume, &Store, &Arc<Core>) + Send) {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
        let builder = StoreBuilder::new(Options::default()).env(executor.env());
        let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
        let core = Arc::clone(&store.default_keyspace().core);
        test(&volume, &store, &core);
        store.close().unwrap();
    });
}

/// A check of the rows `b`, `m` and `y`, whose first step has been made.
fn begin_check(store: &Store, core: &Arc<Core>) -> Arc<Commitment> {
    let since = store.snapshot().unwrap().sequence();
    let row = |key: &[u8]| CheckedRow { keyspace: 0, key: key.into(), since };
    let rows = [&b"b"[..], b"m", b"y"].map(row).to_vec();
    let locks = HeldLocks::new(&core.transactions, 1);
    let keyspaces = vec![Arc::clone(&store.default_keyspace().inner)];
    let commitment = Commitment::new(&core.memory, rows, keyspaces, Box::new(locks), Vec::new());
    assert!(commitment.check_published(false).unwrap());
    commitment
}

/// Makes the other steps; tells how often they were made without the commit lock, and how often with a look at
/// memtables.
fn end_check(core: &Arc<Core>, commitment: &Arc<Commitment>) -> Result<(u32, u32)> {
    let (mut looks, mut lookups) = (0, 0);
    loop {
        let failed = {
            let mut commit = lock(&core.memory.commit);
            match Arc::clone(commitment).check_rest(&mut commit) {
                Ok(()) => return Ok((looks, lookups)),
                Err(failed) => failed,
            }
        };
        match failed {
            Obstacle::Refused(error) => return Err(*error),
            Obstacle::Unchecked(unchecked) => {
                *(if unchecked.may_read() { &mut lookups } else { &mut looks }) += 1;
                unchecked.look()?;
            }
            _ => panic!("a condition is refused, or not looked at yet"),
        }
    }
}

fn is_conflict<T: std::fmt::Debug>(outcome: &Result<T>, on: &[u8]) -> bool {
    matches!(outcome, Err(Error::Conflict { key, .. }) if **key == *on)
}

/// Puts of neighbours of the rows, and at the end one of `key`.
fn many(store: &Store, count: u32, key: &[u8], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for n in 1..count {
        batch.put_in(store.default_keyspace(), [b'm', (n >> 8) as u8, n as u8], value).unwrap();
    }
    batch.put_in(store.default_keyspace(), key, value).unwrap();
    batch
}

#[test]
fn few_writes_that_come_in_between_are_searched_under_the_lock() {
    for_each_seed(0, 10, |seed| {
        with_store(seed, |_, store, core| {
            for (key, conflicts) in [(&b"m"[..], true), (b"l", false), (b"y", true), (b"z", false)] {
                let commitment = begin_check(store, core);
                store.write(many(store, 100, key, b"value")).unwrap();
                let outcome = end_check(core, &commitment);
                assert_eq!(is_conflict(&outcome, key), conflicts, "{outcome:?}");
                assert!(conflicts || outcome.unwrap() == (0, 0));
            }
        });
    });
}

#[test]
fn many_writes_are_searched_without_the_lock_and_only_the_rest_under_it() {
    for_each_seed(0, 10, |seed| {
        with_store(seed, |_, store, core| {
            for (key, conflicts) in [(&b"m"[..], true), (b"n", false)] {
                let commitment = begin_check(store, core);
                store.write(many(store, 500, key, b"value")).unwrap();
                let outcome = end_check(core, &commitment);
                assert_eq!(is_conflict(&outcome, key), conflicts, "{outcome:?}");
                assert!(conflicts || outcome.unwrap() == (1, 0));
            }
        });
    });
}

/// What is kept of published requests is bounded; beyond, memtables are asked again.
#[test]
fn writes_that_were_forgotten_are_looked_up() {
    for_each_seed(0, 10, |seed| {
        with_store(seed, |_, store, core| {
            for (key, conflicts) in [(&b"m"[..], true), (b"n", false)] {
                let commitment = begin_check(store, core);
                store.put(key, b"value").unwrap();
                store.write(many(store, 3, b"other", &[7; 600 << 10])).unwrap();
                store.put(b"another", b"value").unwrap();
                let outcome = end_check(core, &commitment);
                assert_eq!(is_conflict(&outcome, key), conflicts, "{outcome:?}");
                assert!(conflicts || outcome.unwrap() == (0, 1));
                // With the last check all is forgotten.
                assert_eq!(lock(&core.memory.commit).checks.lately().count(), 1);
                drop(commitment);
                assert_eq!(lock(&core.memory.commit).checks.lately().count(), 0);
            }
        });
    });
}

/// Writes that are in the log, and neither in memtables nor visible.
#[test]
fn writes_on_their_way_are_found() {
    for_each_seed(0, 20, |seed| {
        with_store(seed, |volume, store, core| {
            type Change = fn(&Store) -> WriteFuture;
            let changes: [(Change, &[u8]); 5] = [
                (|store| store.put_with_async(b"b", b"value", Durability::Synced), b"b"),
                (|store| store.delete_with_async(b"m", Durability::Synced), b"m"),
                (|store| store.delete_range_with_async(b"c", b"n", Durability::Synced), b"m"),
                (|store| store.delete_range_with_async(b"n", b"y", Durability::Synced), b""),
                (|store| store.put_with_async(b"x", b"value", Durability::Synced), b""),
            ];
            for (change, on) in changes {
                let slow =
                    Rule::new(Fault::Delay(Duration::from_secs(5))).on(&[Operation::WritePages, Operation::Sync]);
                volume.set_faults(FaultPlan::none().with(slow));
                let commitment = begin_check(store, core);
                let write = change(store);
                assert!(!write.is_done());
                let outcome = end_check(core, &commitment);
                assert_eq!(is_conflict(&outcome, on), !on.is_empty(), "{outcome:?}");
                volume.set_faults(FaultPlan::none());
                store.sync().unwrap();
            }
        });
    });
}

/// An executor on which, once it has a store, more is written than is kept wherever a check has just ended a look at
/// memtables: what fast writers do to a check of many rows. A write that has to wait does not hold up the check.
struct Busy {
    store: Mutex<Option<Store>>,
    rounds: AtomicU32,
}

const ROUNDS_MAX: u32 = 30;

impl Executor for Busy {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        ThreadExecutor.spawn(name, job)
    }

    fn event(&self) -> Arc<dyn Event> {
        ThreadExecutor.event()
    }

    fn yield_point(&self) {
        let Some(store) = lock(&self.store).clone() else { return };
        if self.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS_MAX {
            let (tell, told) = mpsc::channel();
            std::thread::spawn(move || {
                (0..3u8).try_for_each(|n| store.put([b'z', n], [7; 600 << 10])).map(|()| tell.send(()))
            });
            let _ = told.recv_timeout(Duration::from_secs(1));
        }
    }
}

/// A blocking commit once began its check anew for as long as others wrote fast enough, with its locks held.
#[test]
fn a_commit_that_others_outrun_takes_its_turn() {
    let directory = tempfile::tempdir().unwrap();
    let executor = Arc::new(Busy { store: Mutex::default(), rounds: AtomicU32::new(0) });
    let env = Env { clock: Env::system().clock, executor: Arc::<Busy>::clone(&executor) };
    let store = StoreBuilder::new(Options::default()).env(env).open(directory.path()).unwrap();
    let keyspace = store.default_keyspace();
    store.put(b"row", b"before").unwrap();
    let mut transaction = store.begin().unwrap();
    transaction.get_for_update_in(keyspace, b"row", LockMode::Exclusive).unwrap();
    transaction.put_in(keyspace, b"row", b"after").unwrap();
    *lock(&executor.store) = Some(store.clone());
    transaction.commit().unwrap();
    *lock(&executor.store) = None;
    let rounds = executor.rounds.load(Ordering::Relaxed);
    assert!(rounds <= 4, "{rounds} checks");
    assert_eq!(store.get(b"row").unwrap().as_deref(), Some(&b"after"[..]));
    assert_eq!(store.properties().locks, 0);
    store.close().unwrap();
}
