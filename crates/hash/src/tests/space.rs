//! Disks that are out of space, or nearly so.

use super::model::{Map, Nature, Shape, apply, batch_of, check_sound, contents, device_of, draw, small};
use crate::{Durability, Error, HashEvent, HashStore, HashStoreBuilder, SpaceLevel, StoreId};
use situ_base::Env;
use situ_device::Device;
use situ_sim::{
    Compression, Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimDevice, SimExecutor, SimVolume, for_each_seed,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than any pause between two tries.
const RECOVERS_WITHIN: Duration = Duration::from_secs(10);

/// A simulated machine with a store, and what the store should hold.
struct World {
    env: Env,
    volumes: [SimVolume; 2],
    device: SimDevice,
    store: HashStore,
    heard: Arc<Mutex<Vec<String>>>,
    rng: Rng,
    map: Map,
    shape: Shape,
}

fn open(
    env: &Env,
    volumes: &[SimVolume; 2],
    device: &SimDevice,
    heard: &Arc<Mutex<Vec<String>>>,
) -> crate::Result<HashStore> {
    let heard = Arc::clone(heard);
    let hear = move |event: &HashEvent| heard.lock().unwrap().push(event.to_string());
    let builder =
        HashStoreBuilder::new(small()).env(env.clone()).identity(StoreId([7; 16]), 11).on_event(Arc::new(hear));
    let [home, overflow] = volumes.clone().map(|volume| Arc::new(volume) as Arc<dyn situ_storage::Volume>);
    builder.open_volumes(home, overflow, Arc::new(device.clone()))
}

impl World {
    fn run(
        seed: u64,
        nature: Nature,
        buckets: u64,
        shape: Shape,
        compression: Option<Compression>,
        test: impl FnOnce(&mut World) + Send,
    ) {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let volumes = ["home", "overflow"].map(|location| SimVolume::named(&env, location, FaultPlan::none(), seed));
        let device = device_of(&env, nature, buckets, FaultPlan::none(), seed);
        compression.into_iter().for_each(|compression| device.set_compression(compression));
        sim.run(|| {
            let heard = Arc::default();
            let store = open(&env, &volumes, &device, &heard).unwrap();
            let (rng, map) = (Rng::new(seed), Map::new());
            let mut world = World { env: env.clone(), volumes, device, store, heard, rng, map, shape };
            test(&mut world);
            world.is_whole("at the end");
            world.store.close().unwrap();
        });
    }

    /// Writes one random step.
    fn write(&mut self, shape: Shape) -> crate::Result<()> {
        let step = draw(&mut self.rng, &shape);
        let durability = if self.rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
        self.store.write_with(batch_of(&step), durability)?;
        apply(&mut self.map, &step);
        Ok(())
    }

    fn write_until_refused(&mut self) -> Error {
        (0..5000).find_map(|_| self.write(self.shape).err()).expect("puts are refused")
    }

    fn deletes(&self) -> Shape {
        Shape { deletes_of_ten: 10, ..self.shape }
    }

    /// Reads find what was acknowledged, and the store has not failed.
    fn reads_are_right(&self, what: &str) {
        assert!(self.store.properties().failure.is_none(), "{what}: {:?}", self.store.properties().failure);
        assert!(contents(&self.store, &self.shape) == self.map, "{what}: reads find other entries");
    }

    /// The same, and everything else is right, too.
    fn is_whole(&self, what: &str) {
        self.reads_are_right(what);
        assert_eq!(self.store.count().unwrap(), self.map.len() as u64, "{what}");
        check_sound(&self.store);
    }

    /// Tries until writes are taken again, as a patient program would.
    fn wait_until_writable(&mut self) {
        let until = self.env.clock.now() + RECOVERS_WITHIN;
        let puts = Shape { deletes_of_ten: 0, ..self.shape };
        while let Err(error) = self.write(puts) {
            assert!(error.is_no_space(), "{error}");
            assert!(self.env.clock.now() < until, "still refused: {error}");
            self.env.clock.sleep(Duration::from_millis(100));
        }
    }

    fn has_heard(&self, text: &str) -> bool {
        self.heard.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Opened after the death of the process, or a power failure, all that was acknowledged is there.
    fn survives(&self, image: Option<u64>) {
        let volumes = self.volumes.each_ref().map(|volume| volume.on(&self.env));
        let device = match image {
            None => self.device.on(&self.env),
            Some(image) => self.device.crash(image),
        };
        let store = open(&self.env, &volumes, &device, &Arc::default()).unwrap();
        assert!(contents(&store, &self.shape) == self.map, "opened anew");
        assert_eq!(store.count().unwrap(), self.map.len() as u64);
        check_sound(&store);
        store.close().unwrap();
    }
}

const SMALL: Shape = Shape { keys: 80, value_bytes_max: 900, deletes_of_ten: 2 };

/// Fills it until it says stop; half of the deletions give the drive its space back.
#[test]
fn puts_are_refused_before_physical_space_ends_and_taken_again_when_it_returns() {
    const MANY: Shape = Shape { keys: 6000, value_bytes_max: 900, deletes_of_ten: 0 };
    for (seed, nature) in [(1, Nature::Safe), (2, Nature::Volatile)] {
        // Of this, the images take 320 KiB where there are any.
        let total = if nature == Nature::Safe { 1 << 20 } else { 2 << 20 };
        World::run(seed, nature, 1000, MANY, Some(Compression::default().total(total)), |world| {
            let error = world.write_until_refused();
            assert!(matches!(error, Error::SpaceShort(_)) && error.is_no_space(), "{error}");
            assert!(error.to_string().contains("physical space"), "{error}");
            assert!(world.has_heard("space is low") && world.has_heard("do not only delete are refused"));
            let physical = world.store.properties().watched_space.unwrap();
            assert!(physical.level == SpaceLevel::DeletionsOnly && physical.shortage().is_some(), "{physical:?}");
            assert!(world.device.space().physical_free().unwrap() > total / 16, "the drive has not failed");
            world.is_whole("refused");
            let deletes = world.deletes();
            (0..9000).for_each(|_| world.write(deletes).unwrap());
            world.store.checkpoint().unwrap();
            world.wait_until_writable();
            assert!(world.store.properties().watched_space.unwrap().level < SpaceLevel::DeletionsOnly);
            world.survives(None);
        });
    }
}

/// Others fill the drive, and let go of it again. The store notices it without a write.
#[test]
fn physical_space_that_others_take_and_give_back_is_noticed() {
    World::run(3, Nature::Safe, 200, SMALL, Some(Compression::default().total(4 << 20)), |world| {
        (0..20).for_each(|_| world.write(world.shape).unwrap());
        world.store.checkpoint().unwrap();
        let used = world.device.space().physical_used.unwrap();
        world.device.set_compression(Compression::default().total(used + 1));
        world.env.clock.sleep(Duration::from_secs(3));
        let deletes = world.deletes();
        for _ in 0..5 {
            assert!(matches!(world.write(world.shape), Err(Error::SpaceShort(_))));
            assert!(matches!(world.write(deletes), Err(Error::SpaceShort(_))));
            world.env.clock.sleep(Duration::from_millis(500));
        }
        world.reads_are_right("exhausted");
        world.device.set_compression(Compression::default().total(4 << 20));
        world.env.clock.sleep(Duration::from_secs(3));
        assert!(world.has_heard("all writes go on"));
        world.write(world.shape).unwrap();
    });
}

/// The device takes no more buckets, at any moment. What was not written stays pending, and is written when there is
/// space.
#[test]
fn a_device_without_space_keeps_changes_pending_and_the_store_goes_on_when_space_returns() {
    const LARGE: Shape = Shape { keys: 40, value_bytes_max: 3000, deletes_of_ten: 2 };
    let worlds = [
        (Nature::Safe, 64, SMALL),
        (Nature::Volatile, 64, SMALL),
        (Nature::Volatile, 5, SMALL),
        (Nature::Volatile, 64, LARGE),
    ];
    let mut refused = 0;
    for (number, (nature, buckets, shape)) in (0_u64..).zip(worlds) {
        for_each_seed(100 * number, 30, |seed| {
            World::run(seed, nature, buckets, shape, None, |world| {
                for _ in 0..3 {
                    let steps = world.rng.below(60);
                    (0..steps).for_each(|_| world.write(world.shape).unwrap());
                    let from = world.rng.below(4);
                    let full = Rule::new(Fault::NoSpace).on(&[Operation::WritePages]).from(from);
                    world.device.set_faults(FaultPlan::none().with(full));
                    let error = world.write_until_refused();
                    assert!(matches!(error, Error::OutOfSpace { .. }) && error.is_no_space(), "{error}");
                    assert!(world.store.properties().out_of_space.is_some());
                    refused += 1;
                    world.reads_are_right("out of space");
                    // Deletes go on as long as there is room for them, and nothing grows without bounds.
                    let deletes = world.deletes();
                    let taken = (0..2000).take_while(|_| world.write(deletes).is_ok()).count();
                    // Of large values, one write may take more than all that may be pending.
                    let least = usize::from(world.shape.value_bytes_max < 1000);
                    assert!((least..2000).contains(&taken), "{taken} deletes were taken");
                    let properties = world.store.properties();
                    assert!(properties.pending_bytes <= 3 * small().pending_bytes_max, "{properties:?}");
                    assert!(
                        properties.log_bytes <= 2 * small().log_bytes_max + 4 * small().log_file_bytes,
                        "{properties:?}"
                    );
                    world.reads_are_right("deleted");
                    assert!(world.store.checkpoint().unwrap_err().is_no_space());
                    world.env.clock.sleep(Duration::from_secs(world.rng.below(3)));
                    // Also while the keeper waits for space with the gate closed, no thread waits without end.
                    assert!(world.store.snapshot().map_or_else(|error| error.is_no_space(), |_| true));
                    assert!(world.store.verify().map_or_else(|error| error.is_no_space(), |_| true));
                    world.device.set_faults(FaultPlan::none());
                    if nature == Nature::Volatile {
                        let image = world.rng.chance(0.5).then_some(seed);
                        world.survives(image);
                    }
                    world.wait_until_writable();
                    world.is_whole("space is back");
                }
                assert!(world.has_heard("a disk is out of space") && world.has_heard("has space again"));
            });
        });
    }
    assert_eq!(refused, 4 * 30 * 3);
}

/// The same where large values and entries that overflow find no space.
#[test]
fn volumes_without_space_keep_changes_pending_and_the_store_goes_on_when_space_returns() {
    const LARGE: Shape = Shape { keys: 40, value_bytes_max: 3000, deletes_of_ten: 2 };
    for_each_seed(700, 8, |seed| {
        World::run(seed, Nature::Volatile, 5, LARGE, None, |world| {
            for _ in 0..3 {
                let steps = world.rng.below(40);
                (0..steps).for_each(|_| world.write(world.shape).unwrap());
                let full = Rule::new(Fault::NoSpace).files(&[FileKind::Values, FileKind::Other]);
                world.volumes[0].set_faults(FaultPlan::none().with(full.clone().from(world.rng.below(6))));
                let error = world.write_until_refused();
                assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
                world.reads_are_right("out of space");
                world.env.clock.sleep(Duration::from_secs(world.rng.below(3)));
                world.volumes[0].set_faults(FaultPlan::none());
                world.survives(None);
                world.wait_until_writable();
                world.is_whole("space is back");
            }
            let store = &world.store;
            store.checkpoint().unwrap();
            let (counted, found) = (store.properties().value_live_bytes, store.verify().unwrap().value_bytes);
            assert!(counted >= found, "{counted} bytes are counted, and {found} are alive");
        });
    });
}

/// A store whose home is full opens, short of space. Readers see all of it, deletes are taken, and it goes on when
/// there is space.
#[test]
fn a_store_opens_without_space_and_goes_on_when_space_returns() {
    const LARGE: Shape = Shape { keys: 40, value_bytes_max: 3000, deletes_of_ten: 2 };
    let (mut opened, mut deleted) = (0, 0);
    for_each_seed(900, 30, |seed| {
        World::run(seed, Nature::Volatile, 5, LARGE, None, |world| {
            let steps = world.rng.below(60);
            (0..steps).for_each(|_| world.write(world.shape).unwrap());
            let full = Rule::new(Fault::NoSpace).files(&[FileKind::Values]);
            world.volumes[0].set_faults(FaultPlan::none().with(full));
            world.write_until_refused();
            assert!(world.store.close().unwrap_err().is_no_space());
            for _ in 0..2 {
                world.store = open(&world.env, &world.volumes, &world.device, &world.heard).unwrap();
                opened += 1;
                world.reads_are_right("opened without space");
                let deletes = world.deletes();
                // Each opening begins a log file, and the log is bounded.
                match world.write(deletes) {
                    Ok(()) => deleted += 1,
                    Err(error) => assert!(error.is_no_space(), "{error}"),
                }
                world.env.clock.sleep(Duration::from_secs(world.rng.below(3)));
                world.reads_are_right("deleted");
                // Unless the deletes have made room.
                if let Err(error) = world.store.close() {
                    assert!(error.is_no_space(), "{error}");
                }
            }
            world.volumes[0].set_faults(FaultPlan::none());
            world.store = open(&world.env, &world.volumes, &world.device, &world.heard).unwrap();
            world.wait_until_writable();
            world.is_whole("space is back");
            world.store.checkpoint().unwrap();
            world.survives(Some(seed));
        });
    });
    assert!(opened == 60 && deleted > 10, "opened {opened} times, and deletes were taken {deleted} times");
}

/// Few changes do not wait for more of them: they would take room of a drive that has none.
#[test]
fn changes_that_nobody_follows_are_applied_after_a_while() {
    World::run(5, Nature::Safe, 64, SMALL, None, |world| {
        (0..3).for_each(|_| world.write(Shape { value_bytes_max: 20, ..world.shape }).unwrap());
        assert!(world.store.properties().pending_bytes > 0);
        world.env.clock.sleep(Duration::from_secs(5));
        assert_eq!(world.store.properties().pending_bytes, 0);
    });
}

/// A store that is closed while a disk is full says so, and has everything when it is opened again.
#[test]
fn a_store_that_closes_without_space_loses_nothing() {
    for_each_seed(800, 6, |seed| {
        World::run(seed, Nature::Volatile, 64, SMALL, None, |world| {
            (0..40).for_each(|_| world.write(world.shape).unwrap());
            let full = Rule::new(Fault::NoSpace).on(&[Operation::WritePages]);
            world.device.set_faults(FaultPlan::none().with(full));
            world.write_until_refused();
            // Each try takes room for images, until there is none and the keeper cannot make any.
            world.env.clock.sleep(Duration::from_secs(world.rng.below(100)));
            assert!(world.store.close().unwrap_err().is_no_space());
            match open(&world.env, &world.volumes, &world.device, &world.heard) {
                Ok(store) => assert!(store.close().unwrap_err().is_no_space()),
                Err(error) => assert!(error.is_no_space(), "{error}"),
            }
            world.device.set_faults(FaultPlan::none());
            world.store = open(&world.env, &world.volumes, &world.device, &world.heard).unwrap();
        });
    });
}
