//! A machine with a hash store, and what the store should hold.

use crate::{Durability, HashBatch, HashOptions, HashStore, HashStoreBuilder, Result, StoreId};
use situ_base::Env;
use situ_device::{Geometry, PAGE_BYTES};
use situ_sim::{FaultPlan, Rng, SimDevice, SimVolume};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Buckets that have room on simulated devices, where nothing else is said.
pub(crate) const BUCKETS_MAX: u64 = 64;

/// The effect of a crash on writes of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Acknowledged writes are durable, and none is torn: zram, and drives with capacitors.
    Safe,
    /// Acknowledged writes may be lost or torn until a flush: ordinary drives, and files.
    Volatile,
}

/// A device with room for [`BUCKETS_MAX`] buckets.
pub(crate) fn device(env: &Env, nature: Nature, plan: FaultPlan, seed: u64) -> SimDevice {
    device_of(env, nature, BUCKETS_MAX, plan, seed)
}

/// Makes a device with room for the given number of buckets.
pub(crate) fn device_of(env: &Env, nature: Nature, buckets: u64, plan: FaultPlan, seed: u64) -> SimDevice {
    let geometry = Geometry {
        block_bytes: PAGE_BYTES as u32,
        atomic_write_bytes: if nature == Nature::Safe { PAGE_BYTES as u32 } else { 512 },
        max_transfer_bytes: 1 << 20,
        volatile_write_cache: nature == Nature::Volatile,
        discard_bytes: PAGE_BYTES as u32,
        discard_zeroes: true,
    };
    let bytes = crate::format::space::SPACE_HEADER_BYTES as u64 + buckets * PAGE_BYTES as u64;
    SimDevice::with_geometry(env, bytes, geometry, plan, seed)
}

/// Small enough for everything to happen within a few dozen writes.
pub(crate) fn small() -> HashOptions {
    HashOptions {
        base_bits: 2,
        partitions: 2,
        pending_bytes_max: 4096,
        log_file_bytes: 64 << 10,
        log_bytes_max: 48 << 10,
        overflow_memory_bytes: 64 << 10,
        image_bytes_max: 0,
        resize_buckets: 2,
        inline_value_bytes_max: 950,
        value_segment_bytes: 16 << 10,
        load_percent: 70,
        ..HashOptions::default()
    }
}

/// Opens the store of a simulated machine.
pub(crate) fn open(
    env: &Env,
    volumes: &[SimVolume; 2],
    device: &SimDevice,
    options: &HashOptions,
) -> Result<HashStore> {
    HashStoreBuilder::new(options.clone()).env(env.clone()).identity(StoreId([7; 16]), 11).open_volumes(
        Arc::new(volumes[0].clone()),
        Arc::new(volumes[1].clone()),
        device.reached(),
    )
}

/// Changes that are written together.
pub(crate) type Step = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The keys and values of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) keys: u64,
    pub(crate) value_bytes_max: usize,
    /// The number of deletions in ten changes.
    pub(crate) deletes_of_ten: u64,
}

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key-{number:04}").into_bytes()
}

/// One to three random changes.
pub(crate) fn draw(rng: &mut Rng, shape: &Shape) -> Step {
    let count = if rng.chance(0.2) { 3 } else { 1 };
    let change = |rng: &mut Rng| {
        let key = key(rng.below(shape.keys));
        if rng.below(10) < shape.deletes_of_ten {
            return (key, None);
        }
        let mut value = vec![0; rng.index(shape.value_bytes_max)];
        rng.fill(&mut value);
        (key, Some(value))
    };
    (0..count).map(|_| change(rng)).collect()
}

pub(crate) fn batch_of(step: &Step) -> HashBatch {
    let mut batch = HashBatch::new();
    for (key, value) in step {
        match value {
            Some(value) => batch.put(key, value).unwrap(),
            None => batch.delete(key).unwrap(),
        }
    }
    batch
}

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn apply(map: &mut Map, step: &Step) {
    for (key, value) in step {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

/// The outcome of a workload: the steps that it tried, in order.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) steps: Vec<Step>,
    /// The number of steps from the front that were acknowledged.
    pub(crate) acknowledged: usize,
    /// The number of steps from the front that must survive everything.
    pub(crate) durable: usize,
    /// Counts of the store's work, if the run came so far.
    pub(crate) done: Done,
}

/// Counts of a store's work: so that a test knows that it has tested something.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    pub(crate) checkpoints: u64,
    pub(crate) overflowed: u64,
    pub(crate) collections: u64,
}

impl Done {
    pub(crate) fn add(&mut self, other: &Done) {
        self.splits += other.splits;
        self.merges += other.merges;
        self.checkpoints += other.checkpoints;
        self.overflowed += other.overflowed;
        self.collections += other.collections;
    }
}

impl Told {
    /// Writes one step; false if the store refused it.
    pub(crate) fn write(&mut self, store: &HashStore, step: Step, durability: Durability) -> bool {
        let written = store.write_with(batch_of(&step), durability).is_ok();
        self.steps.push(step);
        if written {
            self.acknowledged = self.steps.len();
            if durability == Durability::Synced {
                self.durable = self.steps.len();
            }
        }
        written
    }

    /// Notes what the store has done so far.
    pub(crate) fn note(&mut self, store: &HashStore) {
        let properties = store.properties();
        self.done = Done {
            splits: properties.splits,
            merges: properties.merges,
            checkpoints: properties.checkpoints,
            overflowed: properties.totals.overflow_entries,
            collections: properties.value_collections,
        };
    }

    /// The first `count` steps, all of which must be there.
    pub(crate) fn cut_to(&self, count: usize) -> Told {
        Told { steps: self.steps[..count].to_vec(), acknowledged: count, durable: count, done: self.done }
    }

    /// The map after the first `count` steps.
    pub(crate) fn map_after(&self, count: usize) -> Map {
        let mut map = Map::new();
        self.steps[..count].iter().for_each(|step| apply(&mut map, step));
        map
    }
}

/// All keys of a run with their values, one get each.
pub(crate) fn contents(store: &HashStore, shape: &Shape) -> Map {
    let found = (0..shape.keys).map(key).filter_map(|key| {
        let value = store.get(&key).unwrap_or_else(|error| panic!("{}: {error}", key.escape_ascii()));
        Some((key, value?))
    });
    found.collect()
}

/// The store holds what a prefix of the steps makes, with all that had to survive; its counts are right and nothing is
/// damaged. Returns how many steps there are.
pub(crate) fn check(store: &HashStore, told: &Told, shape: &Shape) -> usize {
    let found = contents(store, shape);
    let prefix = (told.durable..=told.steps.len()).rev().find(|count| told.map_after(*count) == found);
    let Some(prefix) = prefix else {
        let expected = told.map_after(told.acknowledged);
        let wrong: Vec<String> = (0..shape.keys)
            .map(key)
            .filter(|key| expected.get(key) != found.get(key))
            .map(|key| {
                let text = |map: &Map| map.get(&key).map(Vec::len);
                format!("{}: {:?} bytes, acknowledged {:?}", key.escape_ascii(), text(&found), text(&expected))
            })
            .collect();
        panic!("no prefix from {} to {} steps: {wrong:#?}", told.durable, told.steps.len());
    };
    assert_eq!(store.count().unwrap(), found.len() as u64, "entries are counted");
    check_sound(store);
    prefix
}

pub(crate) fn check_sound(store: &HashStore) {
    let report = store.verify().unwrap();
    assert!(report.is_sound(), "{report:#?}");
}
