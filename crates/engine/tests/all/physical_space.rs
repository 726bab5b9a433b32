//! Promise 7 on drives that compress: physical space ends while logical space remains. The store warns, refuses writes before the
//! drive fails one, and goes on by itself when space returns. What was acknowledged is there, also after a crash.

use crate::block_devices::{Mounted, Zram};
use crate::common::*;
use crate::skipped::skipped;
use situ_base::Env;
use situ_device::Compresses;
use situ_engine::{
    Durability, Error, Listener, Options, SpaceKind, SpaceLevel, Store, StoreBuilder, StoreEvent, WriteBatch,
};
use situ_sim::{Compression, Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume, WhenFull, for_each_seed};
use situ_storage::Volume;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOTAL: u64 = 2 << 20;
/// The store's share of the drive that it keeps for itself.
const SLACK: u64 = TOTAL / 16;
/// Longer than any pause between two tries of a background job.
const RECOVERS_WITHIN: Duration = Duration::from_secs(20);

/// What a listener hears of physical space.
#[derive(Default)]
struct Heard(Mutex<Vec<&'static str>>);

impl Heard {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        let word = match event {
            StoreEvent::Space(change) => match (change.before, change.after) {
                (_, SpaceLevel::Plenty) => "recovered",
                (SpaceLevel::Plenty, SpaceLevel::Low) => "low",
                (_, SpaceLevel::Low) => "low again",
                (_, SpaceLevel::DeletionsOnly) => "no puts",
                _ => "no writes",
            },
            _ => return,
        };
        self.0.lock().unwrap().push(word);
    }
}

/// The seed of the test that is about tables: it has no value log.
const TABLES_ONLY: u64 = 300;

fn options(seed: u64, heard: &Arc<Heard>) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.memtables_max = 3;
    if seed == TABLES_ONLY {
        options.keyspace.value_log_min_bytes = None;
    }
    options.listener = Some(Arc::clone(heard) as Arc<dyn Listener>);
    options
}

/// A store on a volume that compresses, with a model beside it.
struct World {
    env: Env,
    volume: SimVolume,
    heard: Arc<Heard>,
    store: Store,
    model: Model,
    rng: Rng,
    seed: u64,
    keys: u64,
}

impl World {
    fn run(seed: u64, test: impl FnOnce(&mut World) + Send) {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let when_full = if seed.is_multiple_of(2) { WhenFull::Io } else { WhenFull::NoSpace };
            volume.set_compression(Compression::default().total(TOTAL).when_full(when_full));
            let heard = Arc::new(Heard::default());
            let store = open(&env, &volume, seed, &heard).unwrap();
            let rng = Rng::new(seed);
            test(&mut World { env, volume, heard, store, model: Model::new(), rng, seed, keys: 0 });
        });
    }

    /// One synced write that nothing compresses; the model follows if it was acknowledged.
    fn put(&mut self) -> Result<(), Error> {
        let key = format!("key {:06}", self.keys).into_bytes();
        let mut value = vec![0; 200 + self.rng.index(3000)];
        self.rng.fill(&mut value);
        self.store.default_keyspace().put_with(&key, &value, Durability::Synced)?;
        self.keys += 1;
        self.model.insert(key, value);
        Ok(())
    }

    fn put_until_refused(&mut self) -> Error {
        for _ in 0..5000 {
            if let Err(error) = self.put() {
                return error;
            }
        }
        panic!("5000 writes were taken, which the drive cannot hold");
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.store.default_keyspace().delete_with(key, Durability::Synced)?;
        self.model.remove(key);
        Ok(())
    }

    /// A compaction that is at work may have taken the last of the reserve for a moment.
    fn delete_patiently(&mut self, key: &[u8]) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        while let Err(error) = self.delete(key) {
            assert!(matches!(error, Error::SpaceShort { .. }), "{error}");
            assert!(self.env.clock.now() < until, "still refused: {error}");
            self.env.clock.sleep(Duration::from_millis(100));
        }
    }

    fn free(&self) -> u64 {
        self.volume.space().physical_free().unwrap()
    }

    fn level(&self) -> SpaceLevel {
        self.store.properties().watched_space.unwrap().level
    }

    /// Nothing has failed: the store has refused before the drive had to.
    fn is_sound(&self, what: &str) {
        assert!(self.store.properties().failure.is_none(), "{what}: {:?}", self.store.properties().failure);
        compare(self.store.default_keyspace(), &self.model, None, what);
    }

    fn crash(&self, what: &str) {
        for seed in 0..3 {
            let after = self.volume.crash(seed);
            let heard = Arc::default();
            let store = open(&self.env, &after, self.seed, &heard).unwrap();
            compare(store.default_keyspace(), &self.model, None, &format!("{what}, after a crash"));
            store.close().unwrap();
        }
    }

    /// Tries until writes are taken again, as a patient program would.
    fn wait_until_writable(&mut self) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        while let Err(error) = self.put() {
            assert!(matches!(error, Error::SpaceShort { .. }), "{error}");
            assert!(self.env.clock.now() < until, "still refused: {error}");
            self.env.clock.sleep(Duration::from_millis(100));
        }
    }
}

fn open(env: &Env, volume: &SimVolume, seed: u64, heard: &Arc<Heard>) -> Result<Store, Error> {
    StoreBuilder::new(options(seed, heard)).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

#[test]
fn promise_7_writes_are_refused_before_physical_space_ends_and_recover_when_it_returns() {
    for_each_seed(0, 4, |seed| {
        World::run(seed, |world| {
            let bulk = world.store.create_keyspace("bulk", options(seed, &world.heard).keyspace).unwrap();
            for number in 0..200_u32 {
                let mut value = vec![0; 3000];
                world.rng.fill(&mut value);
                bulk.put(number.to_be_bytes(), value).unwrap();
            }
            drop(bulk);
            let error = world.put_until_refused();
            assert!(matches!(error, Error::SpaceShort { .. }) && error.is_no_space(), "{error}");
            assert!(error.to_string().contains("physical space"), "{error}");
            let heard = world.heard.take();
            assert!(heard[0] == "low" && heard.ends_with(&["no puts"]), "a warning comes first: {heard:?}");
            assert!(world.volume.space().logical_total > 100 * TOTAL, "logical space remains");
            assert!(world.free() > 0 && world.level() == SpaceLevel::DeletionsOnly, "{}", world.free());
            assert!(world.store.statistics().writes_refused_space > 0);
            world.is_sound("refused");
            world.crash("refused");
            // A batch that also puts is refused, one that only deletes is not.
            let keys: Vec<_> = world.model.keys().cloned().collect();
            let refused = (0..20).any(|_| {
                world.put_until_refused();
                let mut batch = WriteBatch::new();
                batch.put("more", [7; 100]).unwrap();
                batch.delete("nothing").unwrap();
                let outcome = world.store.write(batch);
                if outcome.is_ok() {
                    // The flusher has looked between the two.
                    world.model.insert(b"more".to_vec(), vec![7; 100]);
                }
                matches!(outcome, Err(Error::SpaceShort { .. }))
            });
            assert!(refused, "a batch that also puts was taken each time");
            for key in &keys[..keys.len() / 4 * 3] {
                world.delete_patiently(key);
            }
            world.is_sound("deleted");
            // Compactions go on as far as their outputs fit. Whether that is enough depends on where the tombstones lie.
            let keyspace = world.store.default_keyspace().clone();
            for range in keys.chunks(40) {
                let compacted = keyspace.compact(range.first().map(Vec::as_slice), range.last().map(Vec::as_slice));
                assert!(compacted.as_ref().err().is_none_or(Error::is_no_space), "{compacted:?}");
            }
            world.is_sound("compacting");
            // What gives space back without writing works in any case.
            world.store.drop_keyspace("bulk").unwrap();
            world.wait_until_writable();
            let heard = world.heard.take();
            assert!(heard.iter().any(|word| ["low again", "recovered"].contains(word)), "{heard:?}");
            world.is_sound("recovered");
            world.crash("recovered");
            world.store.close().unwrap();
        });
    });
}

/// Others fill the drive, and let go of it again. Nobody has to write for the store to notice.
#[test]
fn promise_7_physical_space_that_others_take_and_give_back_is_noticed_within_a_second() {
    for_each_seed(100, 4, |seed| {
        World::run(seed, |world| {
            (0..20).for_each(|_| world.put().unwrap());
            world.env.clock.sleep(Duration::from_secs(3));
            assert_eq!((world.level(), world.heard.take()), (SpaceLevel::Plenty, Vec::new()));
            let used = world.volume.space().physical_used.unwrap();
            let volume = world.volume.clone();
            let total = |bytes| volume.set_compression(Compression::default().total(bytes));
            total(used + 1);
            // A write makes the store look within a second.
            world.put().unwrap_or_else(|error| assert!(matches!(error, Error::Failed { .. }), "{error}"));
            if world.store.properties().failure.is_some() {
                // Others took everything between two samples: the drive failed the write itself. Opened anew, the store has all
                // that was acknowledged, as soon as there is space.
                total(TOTAL);
                assert!(world.store.close().is_err());
                world.store = open(&world.env, &world.volume, seed, &world.heard).unwrap();
                return compare(world.store.default_keyspace(), &world.model, None, "opened anew");
            }
            world.env.clock.sleep(Duration::from_secs(2));
            assert_eq!(world.level(), SpaceLevel::Exhausted);
            let key = world.model.keys().next().unwrap().clone();
            for _ in 0..5 {
                assert!(matches!(world.put(), Err(Error::SpaceShort { .. })));
                assert!(matches!(world.delete(&key), Err(Error::SpaceShort { .. })));
                world.env.clock.sleep(Duration::from_millis(500));
            }
            assert_eq!(world.heard.take(), ["no writes"]);
            world.is_sound("exhausted");
            total(TOTAL);
            world.env.clock.sleep(Duration::from_secs(2));
            assert_eq!((world.level(), world.heard.take()), (SpaceLevel::Plenty, vec!["recovered"]));
            world.put().unwrap();
            world.crash("recovered");
            world.store.close().unwrap();
        });
    });
}

/// Asynchronous writes are told, and many writers at once do not use the reserve up between them.
#[test]
fn promise_7_writers_together_leave_the_reserve() {
    for_each_seed(200, 4, |seed| {
        World::run(seed, |world| {
            let writers: Vec<_> = (0..4_u64)
                .map(|writer| {
                    let (store, env) = (world.store.clone(), world.env.clone());
                    let mut rng = Rng::new(seed ^ writer << 32);
                    let body = move || {
                        for number in 0..2000_u64 {
                            let mut value = vec![0; rng.index(6000)];
                            rng.fill(&mut value);
                            let key = format!("{writer} {number}");
                            let written = match number % 3 {
                                0 => store.put(&key, &value),
                                1 => situ_sim::wait(&env, store.put_with_async(&key, &value, Durability::Synced)),
                                _ => store.default_keyspace().put_with(&key, &value, Durability::Synced),
                            };
                            if let Err(error) = written {
                                return assert!(matches!(error, Error::SpaceShort { .. }), "{error}");
                            }
                        }
                        panic!("writer {writer} was never refused");
                    };
                    world.env.executor.spawn("writer", Box::new(body)).unwrap()
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert!(world.store.properties().failure.is_none());
            // All that is in memory finds its space.
            world.store.flush().unwrap();
            assert!(world.free() > SLACK / 4, "{} bytes are left", world.free());
            world.store.close().unwrap();
        });
    });
}

/// A drive without a limit, and one that does not compress, hold nobody back; of the second, no figure is asked for.
#[test]
fn drives_that_do_not_say_how_much_they_have_hold_nobody_back() {
    for compresses in [true, false] {
        let executor = SimExecutor::new(7);
        executor.run(|| {
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 7);
            if compresses {
                volume.set_compression(Compression::default());
            }
            let heard = Arc::new(Heard::default());
            let store = open(&executor.env(), &volume, 7, &heard).unwrap();
            for number in 0..500_u32 {
                store.put(number.to_be_bytes(), [number as u8; 1000]).unwrap();
            }
            store.flush().unwrap();
            assert_eq!(heard.take(), Vec::<&str>::new());
            let properties = store.properties();
            let watched = properties.watched_space.unwrap();
            assert_eq!((watched.kind, watched.level), (SpaceKind::Logical, SpaceLevel::Plenty));
            assert_eq!(properties.space.physical_used.is_some(), compresses);
            let word = if compresses { Compresses::Yes } else { Compresses::No };
            assert_eq!(volume.nature().compresses, word);
            store.close().unwrap();
        });
    }
}

/// A compaction that would not fit beside what the store needs is not begun, and is tried again.
#[test]
fn promise_7_a_compaction_waits_for_physical_space() {
    World::run(TABLES_ONLY, |world| {
        let keyspace = world.store.default_keyspace().clone();
        while world.level_or_plenty() < SpaceLevel::Low {
            world.put().unwrap();
        }
        world.store.flush().unwrap();
        let tables_before = world.store.properties().table_bytes;
        assert!(tables_before > TOTAL / 2, "{tables_before}");
        // The whole keyspace once more would not fit.
        let refused = keyspace.compact(None, None).unwrap_err();
        assert!(matches!(refused, Error::SpaceShort { .. }), "{refused}");
        world.is_sound("refused");
        world.volume.set_compression(Compression::default().total(4 * TOTAL));
        keyspace.compact(None, None).unwrap();
        world.is_sound("compacted");
        // A table that cannot be written is not the reason here: what compactions had promised is given up when they end.
        world.volume.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Create])));
        assert!(!matches!(keyspace.compact(None, None), Err(Error::SpaceShort { .. })));
        world.volume.set_faults(FaultPlan::none());
        for _ in 0..5 {
            keyspace.compact(None, None).unwrap();
        }
        world.store.close().unwrap();
    });
}

impl World {
    fn level_or_plenty(&self) -> SpaceLevel {
        self.store.properties().watched_space.map_or(SpaceLevel::Plenty, |space| space.level)
    }
}

/// The same on a real drive: ext4 on zram with a limit on its memory, which fails writes with EIO when it is full.
#[test]
fn promise_7_a_store_on_zram_is_refused_before_zram_fails_it() {
    const LIMIT: u64 = 48 << 20;
    let Some(zram) = Zram::new(256 << 20) else { return };
    let set_limit = |bytes: u64| std::fs::write(zram.sys("mem_limit"), bytes.to_string());
    if let Err(error) = set_limit(LIMIT) {
        return skipped(format_args!("zram takes no limit: {error}"));
    }
    let Some(mounted) = Mounted::ext4(&zram.path) else { return };
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 1 << 20;
    let home = mounted.directory.path().join("store");
    let store = Store::open_with(&home, options.clone()).unwrap();
    let mut rng = Rng::new(1);
    let mut put = |number: u32| {
        let mut value = vec![0; 10_000];
        rng.fill(&mut value);
        let durability = if number.is_multiple_of(8) { Durability::Synced } else { Durability::Buffered };
        store.default_keyspace().put_with(number.to_be_bytes(), &value, durability)
    };
    let (taken, error) = (0..20_000).find_map(|number| Some((number, put(number).err()?))).unwrap();
    assert!(matches!(error, Error::SpaceShort { .. }), "{error}");
    assert!(taken > 1000, "{taken} writes were taken");
    let properties = store.properties();
    assert!(properties.failure.is_none() && properties.background_failure.is_none(), "{:?}", properties.failure);
    let space = properties.space;
    assert!(space.logical_total - space.logical_used > 100 << 20, "logical space remains: {space:?}");
    assert!(space.physical_free().is_some_and(|free| free > 0), "{space:?}");
    store.flush().unwrap();
    set_limit(2 * LIMIT).unwrap();
    let until = std::time::Instant::now() + RECOVERS_WITHIN;
    while let Err(error) = put(taken) {
        assert!(std::time::Instant::now() < until, "still refused: {error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    store.close().unwrap();
    drop(store);
    let store = Store::open_with(&home, options).unwrap();
    assert!((0..=taken).all(|number| store.get(number.to_be_bytes()).unwrap().is_some()));
    store.close().unwrap();
}
