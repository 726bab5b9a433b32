//! Promise 4 for keyspaces: creating and dropping them is one edit each, so a crash or a full disk leaves a keyspace whole
//! or absent, and a new one of an old name has nothing of the old one.

use crate::common::*;
use situ_base::Env;
use situ_engine::{Durability, Error, Result, Store, StoreBuilder};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimVolume, crash_everywhere, for_each_seed,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

type State = BTreeMap<String, Model>;

/// What the store was told: every state that it went through; those from `durable` on may be found after a crash.
struct Told {
    states: Vec<State>,
    durable: usize,
}

fn open(env: &Env, volume: &SimVolume, rng: &mut Rng) -> Result<Store> {
    let mut options = small_options(rng);
    options.keyspace.memtable_bytes = 4 << 10;
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn found(store: &Store) -> State {
    let names = store.keyspace_names().into_iter().filter(|name| name != "default");
    names.map(|name| (name.clone(), contents(&store.existing_keyspace(&name).unwrap(), None))).collect()
}

/// One step; the state after it. An error leaves it open whether the step happened.
fn step(rng: &mut Rng, store: &Store, state: &State) -> (State, Result<()>) {
    let name = NAMES[rng.index(NAMES.len())];
    let mut after = state.clone();
    let outcome = match (after.get_mut(name), rng.below(10)) {
        (None, _) => {
            after.insert(name.to_owned(), Model::new());
            store.create_keyspace(name, small_options(rng).keyspace).map(drop)
        }
        (Some(_), 0..2) => {
            after.remove(name);
            store.drop_keyspace(name)
        }
        (Some(_), 2) => store.flush(),
        (Some(model), _) => {
            let (key, value) = (key(rng, 30), value(rng));
            model.insert(key.clone(), value.clone());
            store.existing_keyspace(name).and_then(|keyspace| keyspace.put_with(&key, &value, Durability::Synced))
        }
    };
    (after, outcome)
}

#[test]
fn promise_4_a_crash_leaves_keyspaces_whole_or_absent() {
    for_each_seed(1, 10, |seed| {
        let points = CrashPoints { points_max: 60, images_per_point: 2, faults: FaultPlan::none() };
        crash_everywhere(
            seed,
            &points,
            |env, volume| {
                let mut rng = Rng::new(seed);
                let mut told = Told { states: vec![State::new()], durable: 0 };
                let Ok(store) = open(env, volume, &mut rng) else { return told };
                for _ in 0..60 {
                    let (after, outcome) = step(&mut rng, &store, &told.states[told.states.len() - 1]);
                    told.states.push(after);
                    if outcome.is_err() {
                        break;
                    }
                    told.durable = told.states.len() - 1;
                }
                let _ = store.close();
                told
            },
            |env, volume, told| {
                let store = open(env, &volume, &mut Rng::new(seed)).unwrap();
                let found = found(&store);
                let matching: Vec<usize> = (0..told.states.len()).filter(|n| told.states[*n] == found).collect();
                assert!(
                    matching.iter().any(|n| *n >= told.durable),
                    "found the state after {matching:?} of {} steps, {} of them durable",
                    told.states.len() - 1,
                    told.durable
                );
                store.close().unwrap();
            },
        );
    });
}

/// A step that finds no room has not happened, and can be tried again.
#[test]
fn promise_7_keyspaces_on_a_full_disk() {
    for_each_seed(100, 40, |seed| {
        let executor = situ_sim::SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut store = open(&env, &volume, &mut rng).unwrap();
            let mut state = State::new();
            for round in 0..4 {
                let no_space = Rule::new(Fault::NoSpace).files(&[FileKind::Manifest, FileKind::Table]);
                volume.set_faults(FaultPlan::none().with(no_space.chance(0.3)));
                for _ in 0..40 {
                    match step(&mut rng, &store, &state) {
                        (after, Ok(())) => state = after,
                        // A failed sync is no want of room, whatever the error says: the store is read-only then.
                        (_, Err(Error::Failed { .. })) => break,
                        (_, Err(error)) => assert!(error.is_no_space(), "{error:?}"),
                    }
                    assert_eq!(store.keyspace_names().len(), 1 + state.len());
                }
                volume.set_faults(FaultPlan::none());
                let failed = store.properties().failure.is_some();
                let closed = store.close();
                assert!(closed.is_ok() || failed, "{closed:?}");
                store = open(&env, &volume, &mut rng).unwrap();
                if failed {
                    state = found(&store);
                }
                assert_eq!(found(&store), state, "round {round}");
            }
            store.close().unwrap();
        });
    });
}

/// The edit that drops a keyspace may be on disk although the caller got an error. The keyspace went on taking writes then, and a crash
/// took them away with it.
#[test]
fn promise_1_a_keyspace_whose_drop_is_in_doubt_loses_no_acknowledged_write() {
    for_each_seed(200, 8, |seed| {
        let executor = situ_sim::SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, &mut Rng::new(seed)).unwrap();
            let keyspace = store.create_keyspace("a", small_options(&mut Rng::new(seed)).keyspace).unwrap();
            let put = |key: &[u8]| keyspace.put_with(key, b"value", Durability::Synced);
            put(b"before").unwrap();
            // The edit is appended; neither it nor a manifest without it becomes durable.
            let no_sync = Rule::new(Fault::NoSpace).on(&[Operation::Sync]).files(&[FileKind::Manifest]);
            volume.set_faults(FaultPlan::none().with(no_sync));
            assert!(store.drop_keyspace("a").is_err_and(|error| error.is_no_space()));
            let check = |expected: &[&[u8]], what: &str| {
                for after in [volume.crash(seed), volume.crash_keep_all()] {
                    let store = open(&env, &after, &mut Rng::new(seed)).unwrap();
                    let keyspace = store.existing_keyspace("a").unwrap_or_else(|error| panic!("{what}: {error}"));
                    expected.iter().for_each(|key| assert!(keyspace.get(key).unwrap().is_some(), "{what}: {key:?}"));
                    store.close().unwrap();
                }
            };
            match put(b"in doubt") {
                Ok(()) => check(&[b"before", b"in doubt"], "a write that was acknowledged while the drop was in doubt"),
                Err(error) => assert!(error.is_no_space(), "{error}"),
            }
            store.put_with(b"another keyspace", b"value", Durability::Synced).unwrap();
            assert!(keyspace.get(b"before").unwrap().is_some());
            // The store settles it by itself.
            volume.set_faults(FaultPlan::none());
            env.clock.sleep(Duration::from_secs(10));
            put(b"after").unwrap();
            check(&[b"before", b"after"], "a write that was acknowledged when the matter was settled");
            store.drop_keyspace("a").unwrap();
            assert!(put(b"dropped").is_err_and(|error| matches!(error, Error::KeyspaceDropped { .. })));
            store.close().unwrap();
        });
    });
}
