//! Random transactions of several threads over a few keys in the simulator: each run's history is checked.

use super::history::{DELETED, Key, Level, Recorded, Step, Tick, Version, check};
use crate::api::store::{Store, StoreBuilder};
use crate::api::transaction::{Isolation, LockMode, Transaction, TransactionKind, TransactionOptions};
use crate::base::batch::WriteBatch;
use crate::base::options::{Durability, KeyspaceOptions, Options};
use crate::pipeline::write::write_numbered;
use crate::read::options::ReadOptions;
use crate::{Error, Keyspace, Result, Value};
use situ_base::Env;
use situ_pipeline::Write;
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed, wait};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What the threads of one run share.
struct Run {
    env: Env,
    store: Store,
    keyspaces: [Keyspace; 2],
    keys: u64,
    /// Kinds and isolations that the run's transactions may have.
    kinds: Vec<TransactionKind>,
    isolations: Vec<Isolation>,
    ticks: AtomicU64,
    versions: AtomicU64,
    history: Mutex<Vec<Recorded>>,
}

impl Run {
    fn tick(&self) -> Tick {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn new_version(&self) -> Version {
        self.versions.fetch_add(1, Ordering::SeqCst)
    }

    fn keyspace(&self, key: Key) -> &Keyspace {
        &self.keyspaces[usize::from(key) % 2]
    }

    fn record(&self, recorded: Recorded) {
        crate::base::sync::lock(&self.history).push(recorded);
    }

    fn pause(&self) {
        self.env.executor.yield_point();
    }
}

fn key_bytes(key: Key) -> Vec<u8> {
    // Neighbours in both keyspaces, so that scans meet them.
    vec![b'k', key]
}

/// Long enough that a few dozen fill a memtable.
fn value_bytes(version: Version) -> Vec<u8> {
    [&version.to_be_bytes()[..], &[0; 60]].concat()
}

fn version_of(value: Option<&[u8]>) -> Version {
    value.map_or(0, |bytes| Version::from_be_bytes(bytes[..8].try_into().unwrap()))
}

/// One transaction under way, and what it has done.
struct Actor<'a> {
    run: &'a Run,
    rng: &'a mut Rng,
    transaction: Transaction,
    steps: Vec<Step>,
    savepoints: usize,
}

impl Actor<'_> {
    fn act(&mut self) -> Result<()> {
        let key = self.rng.below(self.run.keys) as Key;
        let keyspace = self.run.keyspace(key);
        let from = self.run.tick();
        let mut read = |value: Option<Value>, for_update: bool| {
            self.steps.push(Step::Read { key, found: version_of(value.as_deref()), for_update, from });
        };
        let mode = if self.rng.chance(0.5) { LockMode::Shared } else { LockMode::Exclusive };
        match self.rng.below(20) {
            0..5 => read(self.transaction.get_in(keyspace, key_bytes(key))?, false),
            5 => read(wait(&self.run.env, self.transaction.get_in_async(keyspace, key_bytes(key)))?, false),
            6..9 => read(self.transaction.get_for_update_in(keyspace, key_bytes(key), mode)?, true),
            9..11 => {
                let future = self.transaction.get_for_update_in_async(keyspace, key_bytes(key), mode);
                read(wait(&self.run.env, future)?, true);
            }
            11..16 => {
                let version = self.run.new_version();
                self.transaction.put_in(keyspace, key_bytes(key), value_bytes(version))?;
                self.steps.push(Step::Write { key, version });
            }
            16 => {
                self.transaction.delete_in(keyspace, key_bytes(key))?;
                self.steps.push(Step::Write { key, version: self.run.new_version() | DELETED });
            }
            17 => self.scan(usize::from(key) % 2)?,
            18 => {
                self.transaction.set_savepoint();
                self.steps.push(Step::Savepoint);
                self.savepoints += 1;
            }
            _ if self.savepoints > 0 => {
                self.savepoints -= 1;
                if self.rng.chance(0.6) {
                    self.transaction.rollback_to_savepoint()?;
                    self.steps.push(Step::RollbackToSavepoint);
                } else {
                    self.transaction.pop_savepoint()?;
                    self.steps.push(Step::PopSavepoint);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a whole keyspace.
    fn scan(&mut self, which: usize) -> Result<()> {
        let from = self.run.tick();
        let mut found = BTreeMap::new();
        let options = ReadOptions::default().prefix(b"k");
        let mut iterator = self.transaction.cursor_in_with(&self.run.keyspaces[which], &options)?;
        let forward = self.rng.chance(0.5);
        if forward {
            iterator.seek_to_first()?
        } else {
            iterator.seek_to_last()?
        }
        while let Some(key) = iterator.key() {
            found.insert(key[1], version_of(iterator.value()));
            self.run.pause();
            if forward { iterator.next()? } else { iterator.prev()? }
        }
        for key in (0..self.run.keys as Key).filter(|key| usize::from(*key) % 2 == which) {
            let found = found.get(&key).copied().unwrap_or(0);
            self.steps.push(Step::Read { key, found, for_update: false, from });
        }
        Ok(())
    }
}

fn transact(run: &Run, rng: &mut Rng) {
    let mut options = TransactionOptions::default().lock_timeout_ms([0, 1, 1000, 60_000][rng.index(4)]);
    options.kind = run.kinds[rng.index(run.kinds.len())];
    options.isolation = run.isolations[rng.index(run.isolations.len())];
    options.durability = Some(if rng.chance(0.3) { Durability::Synced } else { Durability::Buffered });
    let begun = run.tick();
    let transaction = run.store.begin_with(&options).unwrap();
    let steps = 1 + rng.below(8);
    let mut actor = Actor { run, rng, transaction, steps: Vec::new(), savepoints: 0 };
    let mut outcome = Ok(());
    for _ in 0..steps {
        outcome = actor.act();
        run.pause();
        // One that did not get a lock may go on without.
        if !matches!(outcome, Ok(()) | Err(Error::LockTimeout { .. })) || outcome.is_err() && actor.rng.chance(0.5) {
            break;
        }
        outcome = Ok(());
    }
    let Actor { transaction, steps, rng, .. } = actor;
    let level = match transaction.snapshot() {
        Some(snapshot) => Level::Snapshot(snapshot.sequence()),
        None => Level::ReadCommitted,
    };
    let committed = match outcome {
        Ok(()) if rng.chance(0.9) => {
            let outcome = match rng.chance(0.4) {
                true => wait(&run.env, transaction.commit_async()),
                false => transaction.commit(),
            };
            match outcome {
                Ok(number) => Some(number),
                Err(Error::Conflict { .. }) => None,
                Err(error) => panic!("{error}"),
            }
        }
        Ok(()) => {
            transaction.rollback();
            None
        }
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            drop(transaction);
            None
        }
    };
    let ended = run.tick();
    run.record(Recorded { level, steps, begun, ended, committed });
}

/// A write outside of transactions: one that reads nothing.
fn write(run: &Run, rng: &mut Rng) {
    let begun = run.tick();
    let mut batch = WriteBatch::new();
    let mut steps = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let key = rng.below(run.keys) as Key;
        let version = run.new_version();
        match rng.below(6) {
            0 => {
                batch.delete_in(run.keyspace(key), key_bytes(key)).unwrap();
                steps.push(Step::Write { key, version: version | DELETED });
            }
            1 => {
                // It deletes this key, and no other one.
                let behind = [&key_bytes(key)[..], &[0]].concat();
                batch.delete_range_in(run.keyspace(key), key_bytes(key), &behind).unwrap();
                steps.push(Step::Write { key, version: version | DELETED });
            }
            _ => {
                batch.put_in(run.keyspace(key), key_bytes(key), value_bytes(version)).unwrap();
                steps.push(Step::Write { key, version });
            }
        }
    }
    let durability = if rng.chance(0.3) { Durability::Synced } else { Durability::Buffered };
    let number =
        write_numbered(&run.store.default_keyspace().core.pipeline, Write::new(batch, None), durability).unwrap();
    let ended = run.tick();
    run.record(Recorded { level: Level::ReadCommitted, steps, begun, ended, committed: Some(number) });
}

fn options(rng: &mut Rng) -> Options {
    let keyspace = KeyspaceOptions {
        // Some runs stay in memory, some flush and compact all the time.
        memtable_bytes: if rng.chance(0.4) { 1 << 20 } else { 4 << 10 },
        level0_tables: 1 + rng.index(3),
        level_base_bytes: 8 << 10,
        table_bytes: 2 << 10,
        ..KeyspaceOptions::default()
    };
    Options { compaction_threads: 1, keyspace, ..Options::default() }
}

#[derive(Default)]
struct Totals {
    committed: u64,
    conflicts: u64,
    waits: u64,
    deadlocks: u64,
    flushes: u64,
    skews: u64,
}

fn run_once(seed: u64, kinds: &[TransactionKind], isolations: &[Isolation], totals: &mut Totals) {
    let executor = SimExecutor::new(seed);
    let history = executor.run(|| {
        let env = executor.env();
        let mut rng = Rng::new(seed);
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        let options = options(&mut rng);
        let second = options.keyspace.clone();
        let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
        let second = store.create_keyspace("second", second).unwrap();
        let run = Arc::new(Run {
            env: env.clone(),
            keyspaces: [store.default_keyspace().clone(), second],
            store: store.clone(),
            keys: 2 + rng.below(5),
            kinds: kinds.to_vec(),
            isolations: isolations.to_vec(),
            ticks: AtomicU64::new(1),
            versions: AtomicU64::new(1),
            history: Mutex::default(),
        });
        let plain_writes = rng.chance(0.5);
        let jobs: Vec<_> = (0..3 + rng.below(3))
            .map(|thread| {
                let (run, mut rng) = (Arc::clone(&run), Rng::new(seed ^ (thread + 1) << 32));
                let job = move || {
                    for _ in 0..15 {
                        if thread == 0 && plain_writes {
                            write(&run, &mut rng);
                        } else {
                            transact(&run, &mut rng);
                        }
                        if rng.chance(0.05) {
                            run.keyspaces[rng.index(2)].flush().unwrap();
                        }
                    }
                };
                env.executor.spawn(&format!("thread {thread}"), Box::new(job)).unwrap()
            })
            .collect();
        jobs.iter().for_each(|job| job.join().unwrap());
        let (properties, statistics) = (store.properties(), store.statistics());
        assert_eq!((properties.transactions, properties.locks, properties.snapshots), (0, 0, 0), "something is left");
        totals.conflicts += statistics.transaction_conflicts;
        totals.waits += statistics.lock_waits;
        totals.deadlocks += statistics.deadlocks;
        totals.flushes += statistics.flushes;
        store.close().unwrap();
        std::mem::take(&mut *crate::base::sync::lock(&run.history))
    });
    totals.committed += history.iter().filter(|recorded| recorded.committed.is_some()).count() as u64;
    if let Err(violation) = check(&history) {
        let lines = history.iter().enumerate().map(|(n, recorded)| format!("{n}: {recorded:?}\n"));
        panic!("{violation}\n{}", lines.collect::<String>());
    }
    // The same history would not pass as serializable: the level that was asked for is the level that there is.
    totals.skews += u64::from(check(&with_reads_for_update(&history)).is_err());
}

/// As if every read had been one for update.
fn with_reads_for_update(history: &[Recorded]) -> Vec<Recorded> {
    let mut history = history.to_vec();
    for step in history.iter_mut().flat_map(|recorded| &mut recorded.steps) {
        if let Step::Read { for_update, .. } = step {
            *for_update = true;
        }
    }
    history
}

const BOTH_KINDS: [TransactionKind; 2] = [TransactionKind::Pessimistic, TransactionKind::Optimistic];
const BOTH_ISOLATIONS: [Isolation; 2] = [Isolation::ReadCommitted, Isolation::Snapshot];

#[test]
fn random_pessimistic_transactions_are_isolated() {
    let mut totals = Totals::default();
    for isolation in BOTH_ISOLATIONS {
        for_each_seed(0, 100, |seed| run_once(seed, &[TransactionKind::Pessimistic], &[isolation], &mut totals));
    }
    assert!(totals.committed > 2000 && totals.waits > 500 && totals.deadlocks > 20 && totals.flushes > 100);
    assert!(totals.conflicts > 100 && totals.skews > 10);
}

#[test]
fn random_optimistic_transactions_are_isolated() {
    let mut totals = Totals::default();
    for isolation in BOTH_ISOLATIONS {
        for_each_seed(1000, 100, |seed| run_once(seed, &[TransactionKind::Optimistic], &[isolation], &mut totals));
    }
    assert!(totals.committed > 2000 && totals.waits == 0 && totals.flushes > 100);
    assert!(totals.conflicts > 500 && totals.skews > 10);
}

#[test]
fn random_transactions_of_all_kinds_side_by_side_are_isolated() {
    let mut totals = Totals::default();
    for_each_seed(2000, 200, |seed| run_once(seed, &BOTH_KINDS, &BOTH_ISOLATIONS, &mut totals));
    assert!(totals.committed > 2000 && totals.waits > 200 && totals.conflicts > 500 && totals.flushes > 100);
}
