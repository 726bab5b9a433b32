//! Promises 1, 3, 6 and 7 under chance, for the life of a store on two disks: seeded faults on either, little room on either,
//! drains in between, power failures, openings without the disk that was drained. Whatever goes wrong, what was acknowledged
//! as durable is there, the store opens once its disks are well again, a drain ends, and a store that does not say that it has
//! failed takes writes.

use crate::common::fast::small;
use crate::common::raw::{JOURNAL, formatted, is_sound, volume};
use situ_base::{Env, JobHandle};
use situ_engine::{Durability, Store, StoreBuilder};
use situ_sim::{Fault, FaultPlan, Operation, Rng, Rule, SimDevice, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use situ_tiers::{TieredBuilder, TieredStore};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROUNDS: u64 = 8;
const WRITES: u64 = 300;
const KEYS: u64 = 200;

/// The fast disk.
enum Fast {
    WithFiles(SimVolume),
    Raw(SimDevice),
}

impl Fast {
    fn open(&self, env: &Env) -> Arc<dyn Volume> {
        match self {
            Fast::WithFiles(volume) => Arc::new(volume.clone()),
            Fast::Raw(device) => Arc::new(volume(env, device).unwrap()),
        }
    }
}

/// Both disks, on some machine.
struct Disks {
    home: SimVolume,
    fast: Fast,
    /// What the home and a fast disk with files have room for.
    room: [FaultPlan; 2],
}

impl Disks {
    fn on(&self, env: &Env) -> Disks {
        let fast = match &self.fast {
            Fast::WithFiles(volume) => Fast::WithFiles(volume.on(env)),
            Fast::Raw(device) => Fast::Raw(device.on(env)),
        };
        Disks { home: self.home.on(env), fast, room: self.room.clone() }
    }

    /// What the end of the process leaves, or that of the power.
    fn left_behind(&self, power_fails: bool, seed: u64) -> Disks {
        let volume = |volume: &SimVolume, seed| if power_fails { volume.crash(seed) } else { volume.crash_keep_all() };
        let fast = match &self.fast {
            Fast::WithFiles(disk) => Fast::WithFiles(volume(disk, seed + 50)),
            Fast::Raw(disk) => Fast::Raw(if power_fails { disk.crash(seed + 50) } else { disk.crash_keep_all() }),
        };
        Disks { home: volume(&self.home, seed), fast, room: self.room.clone() }
    }

    fn heal(&self) {
        self.home.set_faults(FaultPlan::none());
        match &self.fast {
            Fast::WithFiles(volume) => volume.set_faults(self.room[1].clone()),
            Fast::Raw(device) => device.set_faults(FaultPlan::none()),
        }
    }
}

/// What each key may have: one value once that is known, more while writes of it failed. `None`: it is not there.
type Model = BTreeMap<u64, Vec<Option<u32>>>;

/// A store's life over several machines.
struct Life {
    rng: Rng,
    disks: Disks,
    model: Model,
    writes: u32,
    was_drained: bool,
}

/// Faults of a disk with files.
fn files_fail(rng: &mut Rng, plan: FaultPlan) -> FaultPlan {
    if rng.below(3) == 0 {
        return plan;
    }
    let fault = if rng.below(3) == 0 { Fault::Io } else { Fault::NoSpace };
    let operations: &[Operation] = match rng.below(5) {
        0 => &[Operation::CreatePages],
        1 => &[Operation::CreatePages, Operation::Create, Operation::Append],
        2 => &[Operation::Remove, Operation::Rename, Operation::Create, Operation::Replace],
        3 => &[Operation::SyncNames, Operation::Sync, Operation::CreatePages],
        _ => &[
            Operation::Create,
            Operation::Append,
            Operation::CreatePages,
            Operation::Replace,
            Operation::Rename,
            Operation::Remove,
        ],
    };
    let chance = [0.01, 0.05, 0.2, 0.5][rng.index(4)];
    plan.with(Rule::new(fault).on(operations).chance(chance))
}

/// A drain that runs on a thread of its own.
struct Drain {
    job: Box<dyn JobHandle>,
    outcome: Arc<Mutex<Option<bool>>>,
}

impl Drain {
    fn begin(env: &Env, store: &Store) -> Drain {
        let outcome = Arc::new(Mutex::new(None));
        let (store, result) = (store.clone(), Arc::clone(&outcome));
        let body = move || {
            let drained = store.drain_fast_disk().is_ok();
            *result.lock().unwrap() = Some(drained);
        };
        Drain { job: env.executor.spawn("drain", Box::new(body)).unwrap(), outcome }
    }

    fn outcome(&self) -> Option<bool> {
        *self.outcome.lock().unwrap()
    }
}

impl Life {
    /// One machine: the store is opened, looked at, worked with while its disks have faults, and heals. Returns what is left when
    /// that ends while it works or later.
    fn round(&mut self, env: &Env, number: u64) -> Disks {
        let alone = self.was_drained && self.rng.chance(0.5);
        self.disks.heal();
        let mut options = small();
        options.keyspace.memtable_bytes = [16 << 10, 64 << 10][self.rng.index(2)];
        let fast = (!alone).then(|| self.disks.fast.open(env));
        let home = Arc::new(self.disks.home.clone());
        let store = StoreBuilder::new(options).env(env.clone()).open_volumes(home, fast);
        let store = store.unwrap_or_else(|error| panic!("round {number}, alone: {alone}: does not open: {error}"));
        // Opened with it, it is the store's fast disk again.
        self.was_drained = alone;
        self.check(&store);

        let [home_room, fast_room] = self.disks.room.clone();
        self.disks.home.set_faults(files_fail(&mut self.rng, home_room));
        match &self.disks.fast {
            Fast::WithFiles(volume) => volume.set_faults(files_fail(&mut self.rng, fast_room)),
            Fast::Raw(device) => {
                let rule = Rule::new(Fault::Io).on(&[Operation::WritePages, Operation::Read]);
                let rule = match self.rng.below(4) {
                    0 => rule.chance(0.002),
                    1 => rule.within(JOURNAL).chance(0.01),
                    _ => rule.chance(0.0),
                };
                device.set_faults(FaultPlan::none().with(rule));
            }
        }
        let mut drain = None;
        for _ in 0..self.rng.below(WRITES) {
            self.step(env, &store, &mut drain);
        }
        let (power_fails, seed) = (self.rng.chance(0.7), self.rng.next_u64() >> 1);
        let early = self.rng.chance(0.7).then(|| self.disks.left_behind(power_fails, seed));
        let was_drained = self.was_drained;
        self.disks.heal();
        if let Some(drain) = drain {
            env.clock.sleep(Duration::from_secs(600));
            self.was_drained |= drain.outcome().expect("a drain goes on for 600 s on idle disks without faults");
            drain.job.join().unwrap();
        }
        env.clock.sleep(Duration::from_secs(20));
        // Which may find that a disk has failed, and that the store has to say so.
        let refused = store.put(b"healed", b"x").and_then(|()| store.flush()).err();
        match refused {
            Some(error) if store.properties().failure.is_none() => {
                panic!("refused 20 s after healing, and not failed: {error}")
            }
            Some(_) => {}
            None => store.check().unwrap(),
        }
        if self.rng.chance(0.5) {
            let _ = store.close();
        }
        match early {
            Some(disks) => {
                // A drain that was under way may have said its last word.
                self.was_drained = was_drained;
                disks
            }
            None => self.disks.left_behind(power_fails, seed),
        }
    }

    /// All keys have what they may have, and that is what they have from now on.
    fn check(&mut self, store: &Store) {
        for (key, candidates) in &mut self.model {
            let found = store.get(key.to_be_bytes()).unwrap();
            let found = found.map(|value| u32::from_be_bytes(value[..4].try_into().unwrap()));
            assert!(candidates.contains(&found), "key {key} has {found:?}, and not one of {candidates:?}");
            *candidates = vec![found];
        }
        store.check().unwrap();
    }

    /// Perhaps something that takes long, and a write.
    fn step(&mut self, env: &Env, store: &Store, drain: &mut Option<Drain>) {
        match self.rng.below(60) {
            // What these say of faults is tested elsewhere.
            0 => _ = store.flush(),
            1 => _ = store.default_keyspace().compact(None, None),
            2 if !self.was_drained && drain.is_none() => *drain = Some(Drain::begin(env, store)),
            3 => env.clock.sleep(Duration::from_millis(self.rng.below(2000))),
            _ => {}
        }
        if let Some(Drain { job, outcome }) = drain.take_if(|drain| drain.outcome().is_some()) {
            job.join().unwrap();
            self.was_drained |= *outcome.lock().unwrap() == Some(true);
        }
        self.writes += 1;
        let key = self.rng.below(KEYS);
        let mut value = vec![0; [20, 100, 1000, 30_000][self.rng.index(4)]];
        value[..4].copy_from_slice(&self.writes.to_be_bytes());
        let put = store.default_keyspace().put_with(key.to_be_bytes(), &value, Durability::Synced);
        let candidates = self.model.entry(key).or_insert_with(|| vec![None]);
        if put.is_ok() {
            candidates.clear();
        }
        candidates.push(Some(self.writes));
    }
}

fn live(seed: u64, is_raw: bool) -> bool {
    let mut rng = Rng::new(seed);
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    let home = SimVolume::named(&env, "home", FaultPlan::none(), seed);
    let fast = if is_raw {
        let log_pages = [40, 60, 120][rng.index(3)];
        let pages = log_pages + [80, 200, 600][rng.index(3)];
        Fast::Raw(formatted(&env, FaultPlan::none(), pages, log_pages))
    } else {
        Fast::WithFiles(SimVolume::named(&env, "fast", FaultPlan::none(), seed + 7))
    };
    let (wide, little) = (FaultPlan::none(), |bytes| FaultPlan::none().capacity(bytes));
    let room = match rng.below(3) {
        0 => [wide.clone(), wide],
        1 => [little(1500 << 10), wide],
        _ => [wide, little(400 << 10)],
    };
    let disks = Disks { home, fast, room };
    let mut life = Life { rng, disks, model: Model::new(), writes: 0, was_drained: false };
    let mut was_drained = false;
    for round in 0..ROUNDS {
        let sim = SimExecutor::new(seed * 100 + round);
        let env = sim.env();
        life.disks = life.disks.on(&env);
        let round = || life.round(&env, round);
        life.disks = sim.run(round);
        if let Fast::Raw(device) = &life.disks.fast {
            let sim = SimExecutor::new(1);
            let device = device.on(&sim.env());
            sim.run(|| is_sound(&sim.env(), &device));
        }
        was_drained |= life.was_drained;
    }
    was_drained
}

fn lives(first: u64, count: u64, is_raw: bool) {
    let (mut all, mut drained) = (0, 0);
    for_each_seed(first, count, |seed| {
        all += 1;
        drained += u64::from(live(seed, is_raw));
    });
    assert!(all < 10 || drained > all / 4, "{drained} of {all} were drained");
}

#[test]
fn promise_1_3_7_faults_and_drains_of_a_fast_disk_with_files() {
    lives(40_000, 40, false);
}

#[test]
fn promise_1_3_7_faults_and_drains_of_a_fast_disk_without_a_file_system() {
    lives(50_000, 40, true);
}
