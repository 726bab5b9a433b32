//! The engine against a `BTreeMap`: random operations on several keyspaces, with snapshots, iterators, flushes, compactions
//! and reopenings, on a simulated disk under a seeded schedule.

use crate::common::*;
use situ_engine::{Durability, Keyspace, Snapshot, Store, StoreBuilder, WriteBatch, verify};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 200;
const NAMES: [&str; 3] = ["default", "second", "third"];

struct World {
    rng: Rng,
    executor: SimExecutor,
    volume: SimVolume,
    store: Store,
    models: BTreeMap<&'static str, Model>,
    snapshots: Vec<(Snapshot, BTreeMap<&'static str, Model>)>,
}

impl World {
    fn open(rng: &mut Rng, executor: &SimExecutor, volume: &SimVolume) -> Store {
        let options = small_options(rng);
        StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap()
    }

    fn keyspace(&self, name: &str) -> Keyspace {
        self.store.existing_keyspace(name).unwrap()
    }

    fn any_name(&mut self) -> &'static str {
        let names: Vec<_> = self.models.keys().copied().collect();
        names[self.rng.index(names.len())]
    }

    fn step(&mut self, step: usize) {
        let name = self.any_name();
        let keyspace = self.keyspace(name);
        let durability = if self.rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
        let what = format!("step {step}, keyspace {name}");
        match self.rng.below(1000) {
            0..500 => {
                let (key, value) = (key(&mut self.rng, KEYS), value(&mut self.rng));
                keyspace.put_with(&key, &value, durability).unwrap();
                self.models.get_mut(name).unwrap().insert(key, value);
            }
            500..600 => {
                let key = key(&mut self.rng, KEYS);
                keyspace.delete_with(&key, durability).unwrap();
                self.models.get_mut(name).unwrap().remove(&key);
            }
            600..630 => {
                let (begin, end) = (key(&mut self.rng, KEYS), key(&mut self.rng, KEYS));
                keyspace.delete_range(&begin, &end).unwrap();
                self.models.get_mut(name).unwrap().retain(|key, _| key < &begin || key >= &end);
            }
            630..750 => self.batch(durability),
            750..850 => {
                let key = key(&mut self.rng, KEYS);
                assert_eq!(
                    keyspace.get(&key).unwrap().as_deref(),
                    self.models[name].get(&key).map(|v| &v[..]),
                    "{what}"
                );
            }
            850..900 => wander(&mut self.rng, &keyspace, &self.models[name], None, KEYS, &what),
            900..920 => self.snapshots.push((self.store.snapshot().unwrap(), self.models.clone())),
            920..940 if !self.snapshots.is_empty() => {
                let (snapshot, models) = self.snapshots.swap_remove(self.rng.index(self.snapshots.len()));
                for (name, model) in &models {
                    if let Ok(keyspace) = self.store.existing_keyspace(name) {
                        compare(&keyspace, model, Some(&snapshot), &format!("{what}, snapshot of {name}"));
                        wander(&mut self.rng, &keyspace, model, Some(&snapshot), KEYS, &what);
                    }
                }
            }
            940..950 => keyspace.flush().unwrap(),
            950..956 => keyspace.compact(None, None).unwrap(),
            956..962 => {
                let (begin, end) = (key(&mut self.rng, KEYS), key(&mut self.rng, KEYS));
                keyspace.compact(Some(&begin), Some(&end)).unwrap();
            }
            962..972 => self.create_or_drop(),
            972..977 => self.reopen(),
            977..987 => {
                compare(&keyspace, &self.models[name], None, &what);
                self.store.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            _ => {
                let key = key(&mut self.rng, KEYS);
                let future = keyspace.put_with_async(&key, b"async", durability);
                wait(&self.executor, future).unwrap();
                self.models.get_mut(name).unwrap().insert(key, b"async".to_vec());
            }
        }
    }

    fn batch(&mut self, durability: Durability) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.below(12) {
            let name = self.any_name();
            let keyspace = self.keyspace(name);
            let model = self.models.get_mut(name).unwrap();
            let one = key(&mut self.rng, KEYS);
            match self.rng.below(10) {
                0..6 => {
                    let value = value(&mut self.rng);
                    batch.put_in(&keyspace, &one, &value).unwrap();
                    model.insert(one, value);
                }
                6..9 => {
                    batch.delete_in(&keyspace, &one).unwrap();
                    model.remove(&one);
                }
                _ => {
                    let end = key(&mut self.rng, KEYS);
                    batch.delete_range_in(&keyspace, &one, &end).unwrap();
                    model.retain(|key, _| key < &one || key >= &end);
                }
            }
        }
        self.store.write_with(batch, durability).unwrap();
    }

    fn create_or_drop(&mut self) {
        let name = NAMES[1 + self.rng.index(2)];
        if self.models.remove(name).is_some() {
            self.store.drop_keyspace(name).unwrap();
            self.snapshots.iter_mut().for_each(|(_, models)| drop(models.remove(name)));
        } else {
            let options = small_options(&mut self.rng).keyspace;
            self.store.create_keyspace(name, options).unwrap();
            self.models.insert(name, Model::new());
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.store.close().unwrap();
        self.store = World::open(&mut self.rng, &self.executor, &self.volume);
        let names: Vec<String> = self.store.keyspace_names();
        assert_eq!(names.len(), self.models.len());
        for (name, model) in &self.models {
            compare(&self.keyspace(name), model, None, &format!("{name} after reopening"));
        }
    }
}

/// Drives a future inside the simulation.
fn wait<T>(executor: &SimExecutor, future: impl Future<Output = T>) -> T {
    struct Wake(Arc<dyn situ_base::Event>);
    impl std::task::Wake for Wake {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    let event = executor.env().executor.event();
    let waker = Arc::new(Wake(Arc::clone(&event))).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        let seen = event.generation();
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        event.wait(seen, None);
    }
}

fn play(seed: u64, steps: usize) {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let mut rng = Rng::new(seed);
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
        let store = World::open(&mut rng, &executor, &volume);
        let models = BTreeMap::from([("default", Model::new())]);
        let mut world = World { rng, executor: executor.clone(), volume, store, models, snapshots: Vec::new() };
        (0..steps).for_each(|step| world.step(step));
        world.snapshots.clear();
        world.reopen();
        world.store.close().unwrap();
        let report =
            verify(&(Arc::new(world.volume.clone()) as Arc<dyn Volume>), &executor.env(), &mut |_| {}).unwrap();
        assert!(report.is_sound() && report.warnings.is_empty(), "{report}");
    });
}

#[test]
fn a_store_equals_its_model() {
    for_each_seed(0, 28, |seed| play(seed, 1500));
}
