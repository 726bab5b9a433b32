//! A power failure at every change of any disk while a store gets a fast disk without a file system, loses it in order, gets
//! another one in its place, or goes on without one that is dead. Each disk loses its own unsynced data. Whatever is left
//! opens with all that was acknowledged, or is refused with a word about the disks, and some way to open it is left.

use crate::common::fast;
use crate::common::raw::{formatted, is_sound, open_with};
use situ_base::Env;
use situ_engine::{Durability, Error, Options, RepairOptions, Store};
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use situ_tiers::{TieredRepair, TieredStore, repair_volumes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LOG_PAGES: u64 = 80;
const PAGES: u64 = 350;

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.table_bytes = 8 << 10;
    options.keyspace.level_base_bytes = 16 << 10;
    options.compaction_threads = 1;
    options
}

/// A home and two raw disks, of which a store has one at a time.
struct World {
    env: Env,
    home: SimVolume,
    raw: [SimDevice; 2],
    /// Keys 0 .. so many are acknowledged.
    acknowledged: Arc<AtomicU64>,
}

/// Which disk a store is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    None,
    Disk(usize),
    /// None, after a repair that gives the disk up: for when nothing else is left.
    Repaired,
}

impl World {
    fn new(env: &Env, seed: u64) -> World {
        let home = SimVolume::new(env, FaultPlan::none(), seed);
        let raw = [0, 1].map(|_| formatted(env, FaultPlan::none(), PAGES, LOG_PAGES));
        World { env: env.clone(), home, raw, acknowledged: Arc::default() }
    }

    /// These disks after the end of the process or, with a seed, after a power failure. They lose power together.
    fn after(&self, power_failure: Option<u64>) -> World {
        let home = power_failure.map_or_else(|| self.home.crash_keep_all(), |seed| self.home.crash(seed));
        let mut seed = power_failure;
        let raw = self.raw.each_ref().map(|device| {
            seed = seed.map(|seed| seed + 1);
            seed.map_or_else(|| device.crash_keep_all(), |seed| device.crash(seed))
        });
        raw.iter().for_each(|device| device.share_power(&home));
        let acknowledged = Arc::new(AtomicU64::new(self.acknowledged.load(Ordering::SeqCst)));
        World { env: self.env.clone(), home, raw, acknowledged }
    }

    fn open(&self, with: With) -> Result<Store, Error> {
        match with {
            With::Disk(which) => open_with(&self.env, &self.home, &self.raw[which], options()),
            With::Repaired => {
                repair(self)?;
                self.open(With::None)
            }
            With::None => fast::tiered(options()).env(self.env.clone()).open_volume(Arc::new(self.home.clone())),
        }
    }

    fn crash_at(&self, which: usize, change: u64) {
        match which {
            0 => self.home.crash_at(change),
            _ => self.raw[which - 1].crash_at(change),
        }
    }

    fn changes(&self) -> [u64; 3] {
        [self.home.changes(), self.raw[0].changes(), self.raw[1].changes()]
    }

    /// Writes so many more keys, with a flush somewhere.
    fn fill(&self, store: &Store, count: u64) -> Result<(), Error> {
        let first = self.acknowledged.load(Ordering::SeqCst);
        for n in first..first + count {
            store.default_keyspace().put_with(n.to_be_bytes(), value(n), Durability::Synced)?;
            self.acknowledged.store(n + 1, Ordering::SeqCst);
            if n % 50 == 20 {
                store.flush()?;
            }
        }
        Ok(())
    }

    /// Drains beside somebody who writes.
    fn drain(&self, store: &Store) -> Result<(), Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (writes, stopped) = (store.clone(), Arc::clone(&stop));
        let own = World {
            raw: self.raw.clone(),
            home: self.home.clone(),
            env: self.env.clone(),
            acknowledged: Arc::clone(&self.acknowledged),
        };
        let job = move || while !stopped.load(Ordering::SeqCst) && own.fill(&writes, 1).is_ok() {};
        let writer = self.env.executor.spawn("writer", Box::new(job)).unwrap();
        let drained = store.drain_fast_disk();
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        drained
    }

    /// All that was acknowledged is there; one write more may be.
    fn holds(&self, store: &Store, what: &str) {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        for n in 0..acknowledged {
            let found = store.get(n.to_be_bytes()).unwrap();
            assert!(found.as_deref() == Some(&value(n)[..]), "{what}: key {n} of {acknowledged} is not there");
        }
        assert!(store.get((acknowledged + 1).to_be_bytes()).unwrap().is_none(), "{what}: nobody has written this");
    }
}

fn value(n: u64) -> Vec<u8> {
    let mut value = vec![0; 150];
    Rng::new(n).fill(&mut value);
    value
}

/// Crashes `change` everywhere, which begins with the disks as `prepare` leaves them. `ways` are those to open the store with,
/// of which at least one must work afterwards.
fn crash_everywhere(
    seed: u64,
    ways: &[With],
    prepare: impl Fn(&World) + Send + Sync,
    change: impl Fn(&World) -> Result<(), Error> + Send + Sync,
) {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    sim.run(|| {
        let world = World::new(&env, seed);
        prepare(&world);
        let whole = world.after(None);
        change(&whole).unwrap();
        let totals = whole.changes();
        let points = (0..3).flat_map(|which| (0..totals[which]).map(move |at| (which, at)));
        let mut counts = [0; 2];
        for (which, at) in points {
            let crashing = world.after(None);
            crashing.crash_at(which, at);
            let ended = change(&crashing);
            for image in 0..4 {
                let what = format!("crash at change {at} of disk {which}, image {image}, {ended:?}");
                let seed = (image > 0).then_some(seed * 1000 + at * 10 + image);
                let left = crashing.after(seed);
                left.raw.iter().for_each(|device| is_sound(&env, device));
                let opened = ways.iter().fold(0, |opened, way| match way {
                    With::Repaired if opened > 0 => opened,
                    way => opened + usize::from(opens(&left, *way, &what)),
                });
                assert!(opened > 0, "{what}: no way to open it is left");
                counts[usize::from(opened > 1)] += 1;
            }
        }
        assert!(counts[0] > 0 && counts[0] + counts[1] > 100, "{counts:?}");
    });
}

/// Whether the store opens this way. If so, nothing is missing, and it goes on: the disk can be used and drained. If not, the
/// reason is one of disks.
fn opens(left: &World, way: With, what: &str) -> bool {
    let what = &format!("{what}, opened with {way:?}");
    let left = left.after(None);
    let store = match left.open(way) {
        Ok(store) => store,
        Err(Error::Disks(_)) => return false,
        Err(error) => panic!("{what}: {error}"),
    };
    left.holds(&store, what);
    store.check().unwrap();
    left.acknowledged.fetch_add(1, Ordering::SeqCst);
    left.fill(&store, 30).unwrap();
    if matches!(way, With::Disk(_)) {
        store.drain_fast_disk().unwrap();
    }
    store.close().unwrap();
    let store = left.open(With::None).unwrap_or_else(|error| panic!("{what}, then without: {error}"));
    let key = left.acknowledged.load(Ordering::SeqCst) - 1;
    assert!(store.get(key.to_be_bytes()).unwrap().is_some(), "{what}, then without");
    store.close().unwrap();
    true
}

fn with_a_store(world: &World, with: With) {
    let store = world.open(with).unwrap();
    world.fill(&store, 90).unwrap();
    store.close().unwrap();
}

#[test]
fn promise_1_3_4_a_power_failure_while_a_raw_disk_is_added() {
    for_each_seed(1, 2, |seed| {
        crash_everywhere(
            seed,
            &[With::None, With::Disk(0)],
            |world| with_a_store(world, With::None),
            |world| {
                let store = world.open(With::Disk(0))?;
                world.fill(&store, 40)?;
                store.close()
            },
        );
    });
}

#[test]
fn promise_1_3_4_a_power_failure_while_a_raw_disk_is_drained() {
    for_each_seed(11, 2, |seed| {
        crash_everywhere(
            seed,
            &[With::None, With::Disk(0)],
            |world| with_a_store(world, With::Disk(0)),
            |world| {
                let store = world.open(With::Disk(0))?;
                world.drain(&store)?;
                world.fill(&store, 10)?;
                store.close()
            },
        );
    });
}

#[test]
fn promise_1_3_4_a_power_failure_while_a_raw_disk_takes_the_place_of_another() {
    for_each_seed(21, 1, |seed| {
        crash_everywhere(
            seed,
            &[With::None, With::Disk(0), With::Disk(1)],
            |world| with_a_store(world, With::Disk(0)),
            |world| {
                let store = world.open(With::Disk(0))?;
                store.drain_fast_disk()?;
                store.close()?;
                let store = world.open(With::Disk(1))?;
                world.fill(&store, 30)?;
                store.close()
            },
        );
    });
}

/// What the dead disk had is lost, and known to be. What is at home, and what is written afterwards, is not; the repair can be
/// asked for again, and another disk be added.
#[test]
fn promise_1_3_4_a_power_failure_while_a_store_goes_on_without_a_dead_raw_disk() {
    for_each_seed(31, 2, |seed| {
        crash_everywhere(
            seed,
            &[With::None, With::Disk(1), With::Repaired],
            |world| {
                // All that is acknowledged lies at home; what is on the disk is lost, and nobody asks for it.
                with_a_store(world, With::None);
                let store = world.open(With::None).unwrap();
                store.default_keyspace().compact(None, None).unwrap();
                store.close().unwrap();
                let store = world.open(With::Disk(0)).unwrap();
                store.put(b"lost", [1; 100]).unwrap();
                store.flush().unwrap();
                store.close().unwrap();
            },
            |world| {
                repair(world)?;
                let store = world.open(With::Disk(1))?;
                world.fill(&store, 30)?;
                store.close()
            },
        );
    });
}

fn repair(world: &World) -> Result<(), Error> {
    let home: Arc<dyn Volume> = Arc::new(world.home.clone());
    let how = RepairOptions::default().options(options()).without_fast_disk(true);
    repair_volumes(&home, None, &world.env, how).map(drop)
}
