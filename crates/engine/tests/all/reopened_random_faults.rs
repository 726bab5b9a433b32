//! Promises 1, 4 and 7 over many short lives of one store. Each life has faults of its own from its opening on, and ends in order
//! or with the power; the next one may find what the page cache alone has. `random_faults.rs` has one long life.

use crate::common::{Model, contents, key_number};
use situ_base::Env;
use situ_engine::{Durability, Error, Options, Store, StoreBuilder};
use situ_sim::{Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use situ_tiers::{TieredBuilder, verify_volumes};
use std::sync::Arc;

const LIVES: u64 = 25;
const FAULTS: [Fault; 3] = [Fault::Io, Fault::NoSpace, Fault::PermissionDenied];
const OPERATIONS: [Operation; 11] = [
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
];

/// The default keyspace and the other one.
type State = [Model; 2];

fn open(env: &Env, volumes: &[SimVolume]) -> Result<Store, Error> {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    let [home, fast @ ..] = volumes else { panic!("no home") };
    let fast = fast.first().map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
    StoreBuilder::new(options).env(env.clone()).open_volumes(Arc::new(home.clone()), fast)
}

/// The volumes as `image` says, in this environment, with a power supply in common.
fn restarted(env: &Env, volumes: &[SimVolume], image: impl FnMut(&SimVolume) -> SimVolume) -> Vec<SimVolume> {
    let restarted: Vec<SimVolume> = volumes.iter().map(image).map(|volume| volume.on(env)).collect();
    restarted.iter().skip(1).for_each(|volume| volume.share_power(&restarted[0]));
    restarted
}

fn plan(rng: &mut Rng) -> FaultPlan {
    let count = [0, 1, 2][rng.index(3)];
    (0..count).fold(FaultPlan::none(), |plan, _| {
        let rule = Rule::new(FAULTS[rng.index(FAULTS.len())]).on(&[OPERATIONS[rng.index(OPERATIONS.len())]]);
        let number = rng.below(20);
        plan.with(if rng.below(4) == 0 { rule.from(number) } else { rule.nth(number) })
    })
}

/// Writes until a write fails. `states[n]` is the one after n writes; `synced` of them were acknowledged as such.
fn write(store: &Store, states: &mut Vec<State>, synced: &mut usize, rng: &mut Rng) {
    let Ok(other) = store.keyspace("other") else { return };
    for _ in 0..rng.below(6) {
        let mut next = states[states.len() - 1].clone();
        let which = rng.index(2);
        let (keyspace, model) = ([store.default_keyspace(), &other][which], &mut next[which]);
        let key = key_number(rng.below(30));
        let mut durability = [Durability::Buffered, Durability::Synced][rng.index(2)];
        let written = match rng.below(4) {
            0 => {
                model.remove(&key);
                keyspace.delete_with(&key, durability)
            }
            1 => {
                durability = Durability::Buffered;
                let end = key_number(30 + rng.below(5));
                model.retain(|other, _| !(&key..&end).contains(&other));
                keyspace.delete_range(&key, &end)
            }
            _ => {
                let value = vec![rng.next_u64() as u8; rng.below(900) as usize];
                model.insert(key.clone(), value.clone());
                keyspace.put_with(&key, &value, durability)
            }
        };
        states.push(next);
        match written {
            Ok(()) if durability == Durability::Synced => *synced = states.len() - 1,
            Ok(()) => {}
            Err(_) => return,
        }
    }
    if rng.below(4) == 0 {
        let _ = store.flush();
    }
}

/// What is there, as a later opening on sound disks finds it.
fn found(env: &Env, volumes: &[SimVolume], what: &str) -> State {
    let disks: Vec<Arc<dyn Volume>> =
        volumes.iter().map(|volume| Arc::new(volume.clone()) as Arc<dyn Volume>).collect();
    if let Ok(report) = verify_volumes(&disks[0], disks.get(1), env, &mut |_| {}) {
        // A copy of the manifest that could be neither written nor removed may come back.
        let costs_nothing = |damage: &String| damage.contains("so nothing is lost");
        assert!(report.damages.iter().map(ToString::to_string).all(|d| costs_nothing(&d)), "{what}: {report}");
    }
    let store = open(env, volumes).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = [contents(store.default_keyspace(), None), contents(&store.keyspace("other").unwrap(), None)];
    store.check().unwrap();
    store.close().unwrap();
    found
}

fn many_lives(seeds: u64, count: u64, places: &[&str]) {
    for_each_seed(seeds, count, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed ^ 0x2f1e);
            let volume = |place: &&str| SimVolume::named(&env, place, FaultPlan::none(), seed);
            let fresh: Vec<SimVolume> = places.iter().map(volume).collect();
            let mut volumes = restarted(&env, &fresh, SimVolume::clone);
            let mut states = vec![State::default()];
            let mut synced = 0;
            for life in 0..LIVES {
                // The first one makes the store.
                if life > 0 {
                    volumes.iter().for_each(|volume| volume.set_faults(plan(&mut rng)));
                    if rng.below(3) == 0 {
                        volumes[0].crash_at(volumes[0].changes() + rng.below(40));
                    }
                }
                let what = format!("life {life}");
                match open(&env, &volumes) {
                    Ok(store) => {
                        write(&store, &mut states, &mut synced, &mut rng);
                        let _ = store.close();
                    }
                    Err(Error::Storage(error @ situ_storage::Error::Corruption(_))) => panic!("{what}: {error}"),
                    Err(_) => {}
                }
                if volumes[0].has_crashed() || rng.below(3) > 0 {
                    volumes = restarted(&env, &volumes, |volume| volume.crash(rng.next_u64() >> 1));
                } else {
                    volumes.iter().for_each(|volume| volume.set_faults(FaultPlan::none()));
                }
                let found = found(&env, &restarted(&env, &volumes, SimVolume::crash_keep_all), &what);
                let last = states.iter().rposition(|state| *state == found);
                let last = last.unwrap_or_else(|| panic!("{what}: a state that never was"));
                assert!(last >= synced || found == states[synced], "{what}: {last} writes, and {synced} were synced");
                states.truncate(last + 1);
                synced = synced.min(last);
            }
        });
    });
}

#[test]
fn promise_1_4_7_a_store_of_many_lives_keeps_what_was_synced_and_opens() {
    many_lives(0, 60, &["home"]);
}

#[test]
fn promise_1_4_7_a_store_of_many_lives_on_two_disks_keeps_what_was_synced_and_opens() {
    many_lives(10_000, 60, &["home", "fast"]);
}
