//! A disk that the store itself has filled: puts are refused before flushes have no room, and deletions lead out of it.

use super::model::{Nature, check_sound, device_of, small};
use crate::{Durability, Error, HashBatch, HashOptions, HashStore, HashStoreBuilder, StoreId};
use situ_base::Env;
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TOTAL: u64 = 8 << 20;
/// Longer than a purge, and any pause between two tries.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

struct World {
    env: Env,
    volumes: [SimVolume; 2],
    device: SimDevice,
    options: HashOptions,
    store: HashStore,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    keys: u64,
}

/// On such a disk, what the defaults are on one of 64 MiB.
fn like_the_defaults() -> HashOptions {
    HashOptions {
        pending_bytes_max: 2 << 20,
        log_file_bytes: 2 << 20,
        log_bytes_max: 8 << 20,
        value_segment_bytes: 8 << 20,
        ..small()
    }
}

fn open(env: &Env, volumes: &[SimVolume; 2], device: &SimDevice, options: &HashOptions) -> HashStore {
    let builder = HashStoreBuilder::new(options.clone()).env(env.clone()).identity(StoreId([7; 16]), 11);
    let [home, overflow] = volumes.clone().map(Arc::new);
    builder.open_volumes(home, overflow, Arc::new(device.clone())).unwrap()
}

impl World {
    fn run(options: HashOptions, seed: u64, test: impl FnOnce(&mut World) + Send) {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let home = SimVolume::named(&env, "home", FaultPlan::none().capacity(TOTAL), seed);
        let volumes = [home, SimVolume::named(&env, "overflow", FaultPlan::none(), seed)];
        let device = device_of(&env, Nature::Volatile, 4096, FaultPlan::none(), seed);
        sim.run(|| {
            let store = open(&env, &volumes, &device, &options);
            let (rng, model) = (Rng::new(seed), BTreeMap::new());
            let mut world = World { env: env.clone(), volumes, device, options, store, rng, model, keys: 0 };
            test(&mut world);
            world.is_sound("at the end");
            world.store.close().unwrap();
        });
    }

    fn put(&mut self) -> Result<(), Error> {
        let key = format!("key {:05}", self.keys).into_bytes();
        let mut value = vec![0; 2000 + self.rng.index(6000)];
        self.rng.fill(&mut value);
        self.store.put(&key, &value)?;
        self.keys += 1;
        self.model.insert(key, value);
        Ok(())
    }

    fn put_until_refused(&mut self) {
        let error = (0..2000).find_map(|_| self.put().err()).expect("the disk is full");
        assert!(error.is_no_space(), "{error}");
        assert!(error.to_string().contains("more bytes are free"), "{error}, {:?}", self.store.properties());
        self.is_sound("full");
    }

    /// Writes are refused for longer than any wait of a background thread, and nothing of the reserve goes.
    fn stays_full(&mut self) {
        for _ in 0..20 {
            self.env.clock.sleep(Duration::from_secs(1));
            _ = self.put();
        }
        self.reads_are_right("still full");
    }

    fn recovers(&mut self, what: &str) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        while let Err(error) = (0..10).try_for_each(|_| self.put()) {
            assert!(error.is_no_space(), "{what}: {error}");
            assert!(
                self.env.clock.now() < until,
                "{what}: still refused: {error}, {:?}, {:?}",
                self.volumes[0].list(),
                self.store.properties()
            );
            self.env.clock.sleep(Duration::from_millis(500));
        }
        self.is_sound(what);
    }

    fn reads_are_right(&self, what: &str) {
        for (key, value) in &self.model {
            assert!(self.store.get(key).unwrap().as_ref() == Some(value), "{what}: {key:?}");
        }
    }

    fn is_sound(&self, what: &str) {
        self.reads_are_right(what);
        assert_eq!(self.store.count().unwrap(), self.model.len() as u64, "{what}");
        check_sound(&self.store);
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = open(&self.env, &self.volumes, &self.device, &self.options);
    }
}

/// Each kind of options, filled and emptied again and again.
fn leads_out(test: impl Fn(&mut World, u64) + Sync) {
    for (kind, options) in (0..).zip([small(), like_the_defaults()]) {
        for_each_seed(100 * kind, 6, |seed| {
            World::run(options.clone(), seed, |world| {
                for round in 0..3 {
                    world.put_until_refused();
                    assert!(round > 0 || world.model.len() > 300, "the disk holds {} values", world.model.len());
                    if world.rng.chance(0.3) {
                        world.stays_full();
                    }
                    if world.rng.chance(0.5) {
                        world.reopen();
                    }
                    test(world, round);
                }
            });
        });
    }
}

/// The disk had 52 KiB left, nothing could be written any more, and a restart did not help.
#[test]
fn single_deletions_lead_out_of_a_full_disk() {
    leads_out(|world, round| {
        let keys: Vec<_> = world.model.keys().cloned().collect();
        for key in keys.iter().skip(round as usize) {
            if world.rng.chance(0.9) {
                world.store.delete(key).unwrap();
                world.model.remove(key);
            }
        }
        world.recovers("deleted");
    });
}

/// As `flush_all` of a server does.
#[test]
fn a_purge_leads_out_of_a_full_disk() {
    leads_out(|world, _| {
        let mut then = HashBatch::new();
        then.set_uses_reserve();
        then.delete("no such key").unwrap();
        let mut mark = HashBatch::new();
        mark.put("mark", "1").unwrap();
        mark.set_uses_reserve();
        world.store.write_with(mark, Durability::Synced).unwrap();
        world.model.clear();
        world.model.insert(b"mark".to_vec(), b"1".to_vec());
        world.store.remove_dead(Arc::new(|key: &[u8], _: &[u8]| key != b"mark"), then);
        // A handle that is still there is dead, and would be counted.
        let until = world.env.clock.now() + RECOVERS_WITHIN;
        let entries =
            |store: &HashStore| store.properties().totals.entries + store.properties().totals.overflow_entries;
        while entries(&world.store) > 1 {
            assert!(world.env.clock.now() < until, "not purged: {:?}", world.store.properties());
            world.env.clock.sleep(Duration::from_millis(500));
        }
        world.recovers("purged");
    });
}

/// Others take the space that the store has left, and give it back.
#[test]
fn a_store_whose_disk_others_fill_goes_on_when_they_are_gone() {
    for_each_seed(300, 6, |seed| {
        World::run(like_the_defaults(), seed, |world| {
            (0..20).for_each(|_| world.put().unwrap());
            let used = world.volumes[0].space().logical_used;
            world.volumes[0].set_faults(FaultPlan::none().capacity(used));
            let error = (0..2000).find_map(|_| world.put().err()).expect("the disk is full");
            assert!(error.is_no_space(), "{error}");
            world.stays_full();
            world.volumes[0].set_faults(FaultPlan::none().capacity(TOTAL));
            world.recovers("space is back");
        });
    });
}

/// Others leave nothing of the disk. Deletions take the space that the log file has already, and give some back.
#[test]
fn deletions_lead_out_of_a_disk_that_others_have_filled() {
    for_each_seed(400, 6, |seed| {
        World::run(like_the_defaults(), seed, |world| {
            (0..240).for_each(|_| world.put().unwrap());
            world.store.checkpoint().unwrap();
            let used = world.volumes[0].space().logical_used;
            world.volumes[0].set_faults(FaultPlan::none().capacity(used));
            let keys: Vec<_> = world.model.keys().cloned().collect();
            for key in &keys[..216] {
                world.store.delete(key).unwrap();
                world.model.remove(key);
            }
            world.recovers("deleted");
        });
    });
}

/// Changes in memory count until they are in their buckets. A put was refused that had to wait for them.
#[test]
fn a_put_near_the_reserve_waits_for_pending_changes() {
    let options = HashOptions { log_file_bytes: 256 << 10, log_bytes_max: 1 << 20, ..like_the_defaults() };
    for_each_seed(500, 12, |seed| {
        World::run(options.clone(), seed, |world| {
            (0..100).for_each(|_| world.put().unwrap());
            world.store.checkpoint().unwrap();
            let used = world.volumes[0].space().logical_used;
            let left = (512 << 10) + world.rng.index(2 << 20) as u64;
            world.volumes[0].set_faults(FaultPlan::none().capacity(used + left));
            // Small values go to their buckets, on the device, and take nothing of the home in the end.
            for number in 0..10_000 {
                let (key, value) = (format!("small {:04}", number % 1000).into_bytes(), vec![number as u8; 300]);
                match world.store.put(&key, &value) {
                    Ok(()) => _ = world.model.insert(key, value),
                    Err(Error::SpaceShort(short)) => {
                        let pending = world.store.properties().pending_bytes;
                        assert!(pending < short.missing_bytes.max(1), "{pending} bytes wait, and {short}");
                        world.env.clock.sleep(Duration::from_millis(200));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
}
