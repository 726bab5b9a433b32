//! Promise 7 on a disk that the store itself has filled: puts are refused before flushes and compactions have no room, the refusal says
//! how many bytes are missing, and deletions lead out of it.

use crate::common::*;
use situ_base::Env;
use situ_engine::{Durability, Error, Listener, Options, SpaceKind, SpaceLevel, Store, StoreBuilder, StoreEvent};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use situ_tiers::TieredBuilder;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOTAL: u64 = 2 << 20;
/// The store's share of the disk that it keeps for itself.
const SLACK: u64 = TOTAL / 16;
/// Longer than any pause between two tries of a background job.
const RECOVERS_WITHIN: Duration = Duration::from_secs(70);

#[derive(Clone, Copy, Debug)]
struct Shape {
    value_bytes: usize,
    has_value_log: bool,
    /// The size of the fast disk; 0 for a store with one disk.
    fast_bytes: u64,
    memtable_bytes: u64,
}

const SHAPES: [Shape; 8] = [
    Shape { value_bytes: 200, has_value_log: false, fast_bytes: 0, memtable_bytes: 64 << 10 },
    Shape { value_bytes: 6000, has_value_log: false, fast_bytes: 0, memtable_bytes: 64 << 10 },
    // All that fits is in one memtable, as with the default of 64 MiB on a disk of that size.
    Shape { value_bytes: 6000, has_value_log: false, fast_bytes: 0, memtable_bytes: 4 << 20 },
    Shape { value_bytes: 6000, has_value_log: true, fast_bytes: 0, memtable_bytes: 64 << 10 },
    Shape { value_bytes: 2000, has_value_log: false, fast_bytes: TOTAL / 4, memtable_bytes: 64 << 10 },
    // An ordinary log file fits on neither disk, but for the sum of their space.
    Shape { value_bytes: 6000, has_value_log: false, fast_bytes: TOTAL, memtable_bytes: TOTAL },
    // A memtable has no space at home, or none next to its log.
    Shape { value_bytes: 6000, has_value_log: false, fast_bytes: TOTAL / 64 * 150, memtable_bytes: TOTAL },
    Shape { value_bytes: 6000, has_value_log: false, fast_bytes: TOTAL / 150 * 64, memtable_bytes: TOTAL / 150 * 64 },
];

struct World {
    env: Env,
    shape: Shape,
    home: SimVolume,
    fast: Option<SimVolume>,
    store: Store,
    heard: Arc<Heard>,
    model: Model,
    rng: Rng,
    keys: u64,
}

/// The last events, for the messages of failures.
#[derive(Default)]
struct Heard(Mutex<VecDeque<String>>);

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        let mut lines = self.0.lock().unwrap();
        lines.push_back(event.to_string());
        if lines.len() > 30 {
            lines.pop_front();
        }
    }
}

fn options(shape: Shape) -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = shape.memtable_bytes;
    options.keyspace.level_base_bytes = 128 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.keyspace.value_log_min_bytes = shape.has_value_log.then_some(1000);
    options
}

fn open(env: &Env, shape: Shape, home: &SimVolume, fast: Option<&SimVolume>, heard: &Arc<Heard>) -> Store {
    let mut options = options(shape);
    options.listener = Some(Arc::clone(heard) as Arc<dyn Listener>);
    let builder = StoreBuilder::new(options).env(env.clone());
    let fast = fast.map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
    builder.open_volumes(Arc::new(home.clone()), fast).unwrap()
}

impl World {
    fn run(shape: Shape, seed: u64, test: impl FnOnce(&mut World) + Send) {
        World::run_on(TOTAL, shape, seed, test);
    }

    fn run_on(total: u64, shape: Shape, seed: u64, test: impl FnOnce(&mut World) + Send) {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let home = SimVolume::new(&env, FaultPlan::none().capacity(total), seed);
            let fast = FaultPlan::none().capacity(shape.fast_bytes);
            let fast = (shape.fast_bytes > 0).then(|| SimVolume::new(&env, fast, seed + 1));
            let heard = Arc::default();
            let store = open(&env, shape, &home, fast.as_ref(), &heard);
            let (model, rng) = (Model::new(), Rng::new(seed));
            test(&mut World { env, shape, home, fast, store, heard, model, rng, keys: 0 });
        });
    }

    fn put(&mut self, durability: Durability) -> Result<(), Error> {
        let key = format!("key {:06}", self.keys).into_bytes();
        let mut value = vec![0; self.shape.value_bytes / 2 + self.rng.index(self.shape.value_bytes)];
        self.rng.fill(&mut value);
        self.store.default_keyspace().put_with(&key, &value, durability)?;
        self.keys += 1;
        self.model.insert(key, value);
        Ok(())
    }

    fn put_until_refused(&mut self) -> Error {
        for _ in 0..50_000 {
            let durability = if self.rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
            if let Err(error) = self.put(durability) {
                return error;
            }
        }
        panic!("so many writes do not fit on the disk");
    }

    fn free(&self) -> u64 {
        self.home.space().logical_free().unwrap()
    }

    fn level(&self) -> SpaceLevel {
        self.store.properties().watched_space.unwrap().level
    }

    /// Returns true if the disk is full, and false if puts have been taken for long enough.
    fn is_still_full(&mut self) -> bool {
        (0..5).any(|_| self.put(Durability::Synced).is_err())
    }

    fn recovers(&mut self, what: &str) {
        self.recovers_within(RECOVERS_WITHIN, what);
    }

    fn recovers_within(&mut self, time: Duration, what: &str) {
        let until = self.env.clock.now() + time;
        while let Err(error) = self.put(Durability::Synced) {
            assert!(error.is_no_space(), "{what}: {error}");
            assert!(self.env.clock.now() < until, "{}: still refused: {error}, {}", what, self.told());
            self.env.clock.sleep(Duration::from_millis(500));
        }
        self.is_sound(what);
    }

    fn told(&self) -> String {
        let lines: Vec<String> = self.heard.0.lock().unwrap().iter().cloned().collect();
        let fast = self.fast.as_ref().map(|fast| fast.space());
        format!("{:?}, home {:?}, fast {fast:?}, lately:\n{}", self.shape, self.home.space(), lines.join("\n"))
    }

    fn is_sound(&self, what: &str) {
        assert!(self.store.properties().failure.is_none(), "{what}: {:?}", self.store.properties().failure);
        compare(self.store.default_keyspace(), &self.model, None, what);
    }

    fn reopen(&mut self) {
        self.store.close().unwrap();
        self.store = open(&self.env, self.shape, &self.home, self.fast.as_ref(), &self.heard);
    }

    fn delete(&mut self, key: &[u8]) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        while let Err(error) = self.store.default_keyspace().delete_with(key, Durability::Synced) {
            assert!(error.is_no_space(), "{error}");
            assert!(self.env.clock.now() < until, "a deletion is still refused: {error}, {}", self.told());
            self.env.clock.sleep(Duration::from_millis(100));
        }
        self.model.remove(key);
    }
}

fn each(test: impl Fn(&mut World) + Send + Sync) {
    for (number, shape) in (0..).zip(SHAPES) {
        for_each_seed(number * 10, 1, |seed| {
            World::run(shape, seed, |world| test(world));
        });
    }
}

#[test]
fn promise_7_puts_are_refused_before_the_disk_is_full_and_the_refusal_says_what_is_missing() {
    each(|world| {
        let error = world.put_until_refused();
        let Error::SpaceShort(shortage) = &error else { panic!("{:?}: {error}", world.shape) };
        assert!(error.is_no_space() && shortage.kind == SpaceKind::Logical && shortage.missing_bytes > 0);
        let text = error.to_string();
        assert!(text.contains("the disk is full") && text.contains("more bytes are free"), "{text}");
        assert!(world.level() >= SpaceLevel::DeletionsOnly);
        // What others on the disk find does not shrink while the store tries and tries.
        for _ in 0..120 {
            let _ = world.put(Durability::Buffered);
            assert!(world.free() >= SLACK / 4, "{} bytes are left, {}", world.free(), world.told());
            world.env.clock.sleep(Duration::from_millis(500));
        }
        // Most of the disk holds data, and not log files.
        let stored: usize = world.model.values().map(Vec::len).sum();
        assert!(stored as u64 > TOTAL / 2, "{:?}: {stored} bytes of values", world.shape);
        world.is_sound("refused");
        world.reopen();
        world.is_sound("refused and reopened");
        world.store.close().unwrap();
    });
}

#[test]
fn promise_7_deletions_one_by_one_lead_out_of_a_full_disk() {
    each(|world| {
        world.put_until_refused();
        let keys: Vec<_> = world.model.keys().cloned().collect();
        for key in &keys[..keys.len() / 10 * 9] {
            world.delete(key);
        }
        world.recovers("deleted");
        world.store.close().unwrap();
    });
}

/// Tombstones were spread over all tables. A table whose keys were all deleted looked half full, which did not fit.
#[test]
fn promise_7_deletions_in_key_order_lead_out_of_a_full_disk_of_large_tables() {
    let shape = Shape { value_bytes: 4000, has_value_log: false, fast_bytes: 0, memtable_bytes: 64 << 20 };
    for (seed, (numerator, denominator)) in (0..).zip([(1, 2), (3, 4)]) {
        World::run_on(64 << 20, shape, seed, |world| {
            world.put_until_refused();
            let keys: Vec<_> = world.model.keys().cloned().collect();
            for key in &keys[..keys.len() * numerator / denominator] {
                world.delete(key);
            }
            world.recovers_within(Duration::from_secs(25), "the first keys are deleted");
            world.store.close().unwrap();
        });
    }
}

fn delete_here_and_there(world: &mut World) {
    world.put_until_refused();
    let mut keys: Vec<_> = world.model.keys().cloned().collect();
    let left = keys.len() / 10;
    while keys.len() > left {
        let at = world.rng.index(keys.len());
        let key = keys.swap_remove(at);
        world.delete(&key);
    }
    world.recovers("deleted here and there");
    world.reopen();
    world.is_sound("recovered and reopened");
    world.store.close().unwrap();
}

/// Everywhere, and in no order: each tombstone lies over all tables.
#[test]
fn promise_7_scattered_deletions_lead_out_of_a_full_disk() {
    each(delete_here_and_there);
}

/// A compaction wrote more than was estimated, until its last file and the manifest found no space. Its files stayed.
#[test]
fn promise_7_a_compaction_beyond_its_estimate_leaves_space() {
    World::run(SHAPES[0], 1003, delete_here_and_there);
}

fn delete_without_pause(world: &mut World) {
    world.put_until_refused();
    let keys: Vec<_> = world.model.keys().cloned().collect();
    for key in &keys[..keys.len() / 10 * 9] {
        world.delete(key);
    }
    let until = world.env.clock.now() + RECOVERS_WITHIN;
    while world.is_still_full() {
        assert!(world.env.clock.now() < until, "{}", world.told());
        world.delete(b"nothing");
        world.env.clock.sleep(Duration::from_secs(1));
    }
    world.is_sound("deleted");
    world.store.close().unwrap();
}

/// Deletions go on, and the store never is idle.
#[test]
fn promise_7_a_full_disk_is_left_though_deletions_never_pause() {
    each(delete_without_pause);
}

/// A flush had the space for which a compaction was refused. The store rested from its debts for a minute, each time.
#[test]
fn promise_7_a_compaction_without_space_is_tried_again_after_the_flush() {
    World::run(SHAPES[0], 1008, delete_without_pause);
}

fn fill_and_delete_all_at_once(world: &mut World) {
    for round in 0..3 {
        world.put_until_refused();
        if round == 1 {
            world.reopen();
        }
        let deleted = world.store.default_keyspace().delete_range(b"key", b"kez");
        assert!(deleted.is_ok(), "round {round}: {deleted:?}, {}", world.told());
        world.model.clear();
        world.recovers("all deleted at once");
    }
    world.store.close().unwrap();
}

#[test]
fn promise_7_a_range_deletion_leads_out_of_a_full_disk() {
    each(fill_and_delete_all_at_once);
}

/// Compactions put their outputs on the home until it had less than a deletion needs there. The fast disk had room.
#[test]
fn promise_7_a_range_deletion_is_taken_though_compactions_have_filled_the_home() {
    World::run(SHAPES[6], 3_145_788, fill_and_delete_all_at_once);
}

/// Another program fills the disk, and makes room again. Nobody has to write for the store to notice.
#[test]
fn promise_7_space_that_others_take_and_give_back_is_noticed() {
    each(|world| {
        (0..20).for_each(|_| world.put(Durability::Synced).unwrap());
        let used = world.home.space().logical_used;
        world.home.set_faults(FaultPlan::none().capacity(used + 1000));
        let error = world.put_until_refused();
        assert!(error.is_no_space(), "{error}");
        world.env.clock.sleep(Duration::from_secs(2));
        world.home.set_faults(FaultPlan::none().capacity(TOTAL));
        world.env.clock.sleep(Duration::from_secs(10));
        world.put(Durability::Synced).unwrap();
        world.is_sound("recovered");
        world.store.close().unwrap();
    });
}

/// A keyspace for the few records without which a program cannot free space.
#[test]
fn a_keyspace_may_use_the_reserve() {
    World::run(SHAPES[0], 90, |world| {
        let mut settings = options(world.shape).keyspace;
        settings.uses_reserve = true;
        let settings = world.store.create_keyspace("settings", settings).unwrap();
        world.put_until_refused();
        for n in 0..20_u32 {
            settings.put_with(b"barrier", n.to_be_bytes(), Durability::Synced).unwrap();
        }
        world.is_sound("written");
        world.store.close().unwrap();
    });
}

/// A caller that deletes a part of the keys, and compacts, need not wait for the store to do so by itself.
#[test]
fn promise_7_a_compaction_frees_a_deleted_range_of_a_full_disk() {
    let shape = Shape { value_bytes: 5000, has_value_log: false, fast_bytes: 0, memtable_bytes: 1 << 20 };
    for flushes in [true, false] {
        World::run_on(12 << 20, shape, 35, |world| {
            world.put_until_refused();
            let before = world.free();
            let end = format!("key {:06}", world.keys * 44 / 100).into_bytes();
            world.store.default_keyspace().delete_range(b"", &end).unwrap();
            world.model = world.model.split_off(&end);
            if flushes {
                world.store.flush().unwrap();
            }
            // What is left may not fit a second time.
            if let Err(error) = world.store.default_keyspace().compact(None, None) {
                assert!(error.is_no_space(), "{error}, {}", world.told());
            }
            assert!(world.free() > before + (4 << 20), "{} bytes of {before} are free, {}", world.free(), world.told());
            world.put(Durability::Synced).unwrap();
            world.is_sound("compacted");
            world.store.close().unwrap();
        });
    }
}
