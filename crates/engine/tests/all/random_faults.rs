//! Promises 1, 3, 6 and 7 under chance: seeded plans of faults beside random batches over two keyspaces. Whatever goes
//! wrong, every answer is of the promised kind, what can be read is right, and the state after healing and reopening is
//! the one after some whole number of operations.

use crate::common::*;
use situ_base::Env;
use situ_engine::{Durability, Error, Keyspace, Result, Store, StoreBuilder, WriteBatch};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{Error as StorageError, Volume};
use situ_tiers::TieredBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 80;
const NAMES: [&str; 2] = ["default", "other"];

type State = [Model; 2];

/// What the store was told and has answered.
struct Told {
    /// `states[n]`: after n operations that may be found.
    states: Vec<State>,
    /// How many of them were acknowledged, and as synced.
    acknowledged: usize,
    synced: usize,
    /// The state that reads must show now.
    visible: State,
}

impl Told {
    fn new() -> Told {
        Told { states: vec![State::default()], acknowledged: 0, synced: 0, visible: State::default() }
    }
}

fn open(env: &Env, volume: &SimVolume, rng: &mut Rng) -> Result<Store> {
    open_all(env, std::slice::from_ref(volume), rng)
}

/// A store on its home and, if there is a second volume, a fast disk.
fn open_all(env: &Env, volumes: &[SimVolume], rng: &mut Rng) -> Result<Store> {
    let mut options = small_options(rng);
    options.keyspace.memtable_bytes = 4 << 10;
    let volume = |at: usize| volumes.get(at).map(|volume| Arc::new(volume.clone()) as Arc<dyn Volume>);
    let home = volume(0).expect("a home");
    StoreBuilder::new(options).env(env.clone()).open_volumes(home, volume(1))
}

/// An error that a disk with honest faults may cause.
fn is_promised(error: &Error) -> bool {
    match error {
        Error::Failed { .. } | Error::Existence(_) => true,
        Error::Storage(error) => {
            matches!(
                error,
                StorageError::Io { .. }
                    | StorageError::NoSpace { .. }
                    | StorageError::NotFound { .. }
                    | StorageError::Locked { .. }
            )
        }
        _ => false,
    }
}

fn any<T: Copy>(rng: &mut Rng, from: &[T], most: usize) -> Vec<T> {
    let count = rng.index(most + 1);
    (0..count).map(|_| from[rng.index(from.len())]).collect()
}

fn some_when(rng: &mut Rng, rule: Rule) -> Rule {
    match rng.below(4) {
        0 => rule.nth(rng.below(30)),
        1 => rule.from(rng.below(30)),
        2 => rule.chance(0.3),
        _ => rule.chance(0.03),
    }
}

const KINDS: [FileKind; 5] =
    [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::ManifestCopy, FileKind::Temporary];

/// One to three rules of faults that a disk admits to.
fn honest_plan(rng: &mut Rng) -> FaultPlan {
    let faults = [
        Fault::Io,
        Fault::NoSpace,
        Fault::PermissionDenied,
        Fault::ReadOnly,
        Fault::DropDirty,
        Fault::Delay(Duration::from_millis(30)),
    ];
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
    ];
    (0..1 + rng.below(3)).fold(FaultPlan::none(), |plan, _| {
        let rule = Rule::new(faults[rng.index(faults.len())]).on(&any(rng, &operations, 3));
        let rule = rule.files(&any(rng, &KINDS, 2));
        plan.with(some_when(rng, rule))
    })
}

/// Rules of faults that a disk does not admit to.
fn lying_plan(rng: &mut Rng) -> FaultPlan {
    let faults = [Fault::LoseWrite, Fault::Misdirect, Fault::FlipBit, Fault::FalseDurability];
    (0..1 + rng.below(2)).fold(FaultPlan::none(), |plan, _| {
        let rule = Rule::new(faults[rng.index(faults.len())]).files(&any(rng, &KINDS[..4], 2));
        let rule = if rng.chance(0.5) { rule.nth(rng.below(60)) } else { rule.chance(0.02) };
        plan.with(rule)
    })
}

/// One operation of one to four changes; the state after it.
fn operation(rng: &mut Rng, keyspaces: &[Keyspace; 2], before: &State) -> (WriteBatch, State) {
    let (mut batch, mut after) = (WriteBatch::new(), before.clone());
    while batch.is_empty() {
        for _ in 0..1 + rng.below(4) {
            let which = rng.index(2);
            let one = key(rng, KEYS);
            match rng.below(12) {
                0..9 => {
                    let value = value(rng);
                    batch.put_in(&keyspaces[which], &one, &value).unwrap();
                    after[which].insert(one, value);
                }
                9..11 => {
                    batch.delete_in(&keyspaces[which], &one).unwrap();
                    after[which].remove(&one);
                }
                _ => {
                    let end = key(rng, KEYS);
                    batch.delete_range_in(&keyspaces[which], &one, &end).unwrap();
                    after[which].retain(|key, _| key < &one || key >= &end);
                }
            }
        }
    }
    (batch, after)
}

/// Reads all of a keyspace; what comes without an error must be right.
fn check_reads(keyspace: &Keyspace, model: &Model, allowed: impl Fn(&Error) -> bool) {
    for n in 0..KEYS {
        let key = key(&mut Rng::new(n), KEYS);
        match keyspace.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), model.get(&key).map(|v| &v[..]), "get {}", key.escape_ascii()),
            Err(error) => assert!(allowed(&error), "{error:?}"),
        }
    }
    let walk = || -> Result<()> {
        let mut iterator = keyspace.cursor()?;
        let mut expected = model.iter();
        iterator.seek_to_first()?;
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            assert_eq!(expected.next(), Some((&key.to_vec(), &value.to_vec())));
            iterator.next()?;
        }
        assert_eq!(expected.next(), None, "a walk ended early and without an error");
        Ok(())
    };
    if let Err(error) = walk() {
        assert!(allowed(&error), "{error:?}");
    }
}

/// Random operations until the store fails or `steps` are done.
fn run(rng: &mut Rng, store: &Store, told: &mut Told, steps: usize, allowed: impl Fn(&Error) -> bool + Copy) {
    let allow = |result: Result<()>| result.unwrap_or_else(|error| assert!(allowed(&error), "{error:?}"));
    let keyspaces = NAMES.map(|name| store.existing_keyspace(name).unwrap());
    for _ in 0..steps {
        match rng.below(100) {
            0..4 => allow(store.flush()),
            4..6 => allow(keyspaces[rng.index(2)].compact(None, None)),
            6..8 => {
                let synced = store.sync();
                if synced.is_ok() {
                    told.synced = told.acknowledged;
                }
                allow(synced);
            }
            8..10 => (0..2).for_each(|which| check_reads(&keyspaces[which], &told.visible[which], allowed)),
            _ => {}
        }
        let (batch, after) = operation(rng, &keyspaces, &told.visible);
        let durability = if rng.chance(0.3) { Durability::Synced } else { Durability::Buffered };
        match store.write_with(batch, durability) {
            Ok(()) => {
                told.states.push(after.clone());
                told.acknowledged = told.states.len() - 1;
                if durability == Durability::Synced {
                    told.synced = told.acknowledged;
                }
                told.visible = after;
            }
            Err(Error::Failed { .. }) => {
                // The log may or may not have it.
                told.states.push(after);
                assert!(store.properties().failure.is_some());
                (0..2).for_each(|which| check_reads(&keyspaces[which], &told.visible[which], allowed));
                return;
            }
            // Refused before the log had it.
            Err(error) => {
                assert!(allowed(&error), "{error:?}");
                assert!(matches!(error, Error::Storage(_)), "{error:?}");
            }
        }
    }
    (0..2).for_each(|which| check_reads(&keyspaces[which], &told.visible[which], allowed));
}

fn found(store: &Store) -> Result<State> {
    let mut state = State::default();
    for (name, model) in NAMES.iter().zip(&mut state) {
        let keyspace = store.existing_keyspace(name)?;
        let mut iterator = keyspace.cursor()?;
        iterator.seek_to_first()?;
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            model.insert(key.to_vec(), value.to_vec());
            iterator.next()?;
        }
    }
    Ok(state)
}

/// The state is that after some operations, `least` at least; it is what the store is now told to have.
fn check_state(store: &Store, told: &mut Told, least: usize, what: &str) {
    let found = found(store).unwrap_or_else(|e| panic!("{what}: {e}"));
    let matching: Vec<usize> = (0..told.states.len()).filter(|n| told.states[*n] == found).collect();
    assert!(
        matching.iter().any(|n| *n >= least),
        "{what}: found the state after {matching:?} operations; synced {}, acknowledged {}, tried {}",
        told.synced,
        told.acknowledged,
        told.states.len() - 1
    );
    *told = Told { states: vec![found.clone()], acknowledged: 0, synced: 0, visible: found };
}

#[test]
fn promise_1_3_7_honest_faults_cost_nothing_that_was_acknowledged() {
    honest_faults(0, 120, &["sim"]);
}

#[test]
fn promise_1_3_7_honest_faults_of_either_of_two_disks_cost_nothing_that_was_acknowledged() {
    honest_faults(30_000, 120, &["home", "fast"]);
}

fn honest_faults(first: u64, count: u64, places: &[&str]) {
    for_each_seed(first, count, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let volume = |place: &&str| SimVolume::named(&env, place, FaultPlan::none(), seed);
            let mut volumes: Vec<SimVolume> = places.iter().map(volume).collect();
            let mut store = open_all(&env, &volumes, &mut rng).unwrap();
            store.create_keyspace("other", small_options(&mut rng).keyspace).unwrap();
            let mut told = Told::new();
            for round in 0..3 {
                run(&mut rng, &store, &mut told, 40, |_| false);
                let mut what = format!("round {round}");
                for volume in &volumes {
                    let plan = if rng.chance(0.7) { honest_plan(&mut rng) } else { FaultPlan::none() };
                    what += &format!(", {}: {plan:?}", volume.location());
                    volume.set_faults(plan);
                }
                run(&mut rng, &store, &mut told, 120, is_promised);
                // The power fails as well, or the store is closed and opened, perhaps while it still cannot be.
                let least = if rng.chance(0.4) {
                    volumes = volumes.iter().map(|volume| volume.crash(rng.next_u64())).collect();
                    told.synced
                } else {
                    // A write of the log that failed half-way may have torn the page that earlier buffered writes are in.
                    let torn = store.properties().failure.is_some();
                    if let Err(error) = store.close() {
                        assert!(is_promised(&error), "{what}: {error:?}");
                    }
                    if rng.chance(0.5) {
                        match open_all(&env, &volumes, &mut rng) {
                            Ok(store) => drop(store.close()),
                            Err(error) => assert!(is_promised(&error), "{what}: {error:?}"),
                        }
                    }
                    volumes.iter().for_each(|volume| volume.set_faults(FaultPlan::none()));
                    if torn || store.properties().failure.is_some() { told.synced } else { told.acknowledged }
                };
                store = open_all(&env, &volumes, &mut rng).unwrap_or_else(|e| panic!("{what}: {e}"));
                check_state(&store, &mut told, least, &what);
            }
            run(&mut rng, &store, &mut told, 40, |_| false);
            store.wait_idle().unwrap();
            store.close().unwrap();
        });
    });
}

/// A disk that lies can lose what it said it had, and nobody can know of the newest of that. What can be read is right, or
/// an error.
#[test]
fn promise_6_a_lying_disk_gives_errors_or_right_data() {
    for_each_seed(10_000, 120, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, &mut rng).unwrap();
            store.create_keyspace("other", small_options(&mut rng).keyspace).unwrap();
            let mut told = Told::new();
            run(&mut rng, &store, &mut told, 40, |_| false);
            let plan = lying_plan(&mut rng);
            let what = format!("{plan:?}");
            volume.set_faults(plan);
            let allowed = |error: &Error| is_promised(error) || error.is_corruption();
            run(&mut rng, &store, &mut told, 120, allowed);
            let after = if rng.chance(0.5) {
                volume.crash(rng.next_u64())
            } else {
                let _ = store.close();
                volume.on(&env)
            };
            match open(&env, &after, &mut rng) {
                Err(error) => assert!(allowed(&error), "{what}: {error:?}"),
                Ok(store) => {
                    match found(&store) {
                        Err(error) => assert!(allowed(&error), "{what}: {error:?}"),
                        Ok(_) => check_state(&store, &mut told, 0, &what),
                    }
                    let _ = store.close();
                }
            }
        });
    });
}

const WRITERS: usize = 3;

/// What each writer was told.
#[derive(Default)]
struct Counts {
    acknowledged: [AtomicU64; WRITERS],
    synced: [AtomicU64; WRITERS],
}

/// Writes number after number; each write carries the numbers that all writers had been acknowledged before it began.
fn write_numbers(store: &Store, counts: &Counts, writer: usize, seed: u64) {
    let mut rng = Rng::new(seed + 77 * writer as u64);
    for n in 1..=60u64 {
        let knew: Vec<String> = counts.acknowledged.iter().map(|n| n.load(Ordering::SeqCst).to_string()).collect();
        let mut batch = WriteBatch::new();
        let keyspace = store.default_keyspace();
        batch
            .put_in(keyspace, format!("writer {writer}").as_bytes(), format!("{n} {}", knew.join(" ")).as_bytes())
            .unwrap();
        batch.put_in(keyspace, format!("{writer}/{n}").as_bytes(), value(&mut rng)).unwrap();
        let synced = rng.chance(0.4);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        match store.write_with(batch, durability) {
            Ok(()) => {
                counts.acknowledged[writer].store(n, Ordering::SeqCst);
                if synced {
                    counts.synced[writer].store(n, Ordering::SeqCst);
                }
            }
            Err(Error::Failed { .. }) => return,
            Err(error) => assert!(is_promised(&error), "{error:?}"),
        }
        if rng.chance(0.05)
            && let Err(error) = store.flush()
        {
            assert!(is_promised(&error), "{error:?}");
        }
    }
}

/// Several writers under faults: what survives is still without holes, and has all that was synced.
#[test]
fn promise_1_2_7_writers_that_fail_together_leave_no_holes() {
    for_each_seed(20_000, 150, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, &mut rng).unwrap();
            let plan = honest_plan(&mut rng);
            let what = format!("{plan:?}");
            volume.set_faults(plan);
            let counts = Arc::new(Counts::default());
            let jobs: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (store, counts) = (store.clone(), Arc::clone(&counts));
                    let job = move || write_numbers(&store, &counts, writer, seed);
                    env.executor.spawn(&format!("writer {writer}"), Box::new(job)).unwrap()
                })
                .collect();
            // Some crash while they write, some when all is over.
            let crashes = rng.chance(0.5);
            if crashes && rng.chance(0.5) {
                env.clock.sleep(Duration::from_micros(rng.below(3000)));
                // What was told to writers up to now is what the image must have.
                let told: Vec<u64> = counts.synced.iter().map(|n| n.load(Ordering::SeqCst)).collect();
                let image = volume.crash(rng.next_u64());
                check_numbers(&open(&env, &image, &mut rng).unwrap(), &told, &what);
            }
            jobs.iter().for_each(|job| job.join().unwrap());
            let told = |of: &[AtomicU64; WRITERS]| of.iter().map(|n| n.load(Ordering::SeqCst)).collect::<Vec<_>>();
            let (image, told) = if crashes {
                (volume.crash(rng.next_u64()), told(&counts.synced))
            } else {
                let failed = store.properties().failure.is_some();
                let failed = store.close().is_err() || failed;
                (volume.on(&env), told(if failed { &counts.synced } else { &counts.acknowledged }))
            };
            check_numbers(&open(&env, &image, &mut rng).unwrap_or_else(|e| panic!("{what}: {e}")), &told, &what);
        });
    });
}

/// Every writer has at least what it was told, and all that any surviving write knew of survives.
fn check_numbers(store: &Store, told: &[u64], what: &str) {
    let read = |writer: usize| -> Vec<u64> {
        match store.get(format!("writer {writer}").as_bytes()).unwrap() {
            None => vec![0; 1 + WRITERS],
            Some(text) => std::str::from_utf8(&text).unwrap().split(' ').map(|n| n.parse().unwrap()).collect(),
        }
    };
    let found: Vec<Vec<u64>> = (0..WRITERS).map(read).collect();
    for writer in 0..WRITERS {
        assert!(found[writer][0] >= told[writer], "{what}: writer {writer} has {:?}, was told {told:?}", found[writer]);
        for other in 0..WRITERS {
            let (knew, survived) = (found[writer][1 + other], found[other][0]);
            assert!(
                survived >= knew,
                "{what}: writer {writer} knew write {knew} of writer {other}, of which {survived} survived"
            );
        }
        if found[writer][0] > 0 {
            assert!(
                store.get(format!("{writer}/{}", found[writer][0]).as_bytes()).unwrap().is_some(),
                "{what}: half a batch"
            );
        }
    }
    store.close().unwrap();
}
