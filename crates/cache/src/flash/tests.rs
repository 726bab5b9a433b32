//! The log on a simulated device: what was appended is read, what a crash tears is lost, and nothing else is ever read.

use super::{FlashLog, Found, SEALED_MAX};
use crate::item::{Item, Meta, NewItem};
use crate::slot::Place;
use situ_device::{Device, Geometry};
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor};
use std::collections::HashMap;
use std::sync::Arc;

const ID: [u8; 16] = [7; 16];

fn device(sim: &SimExecutor, mib: u64, seed: u64) -> SimDevice {
    let geometry = Geometry {
        block_bytes: 4096,
        atomic_write_bytes: 512,
        max_transfer_bytes: 256 << 10,
        volatile_write_cache: true,
        discard_bytes: 4096,
        discard_zeroes: false,
    };
    SimDevice::with_geometry(&sim.env(), mib << 20, geometry, FaultPlan::none(), seed)
}

fn open(device: &SimDevice) -> FlashLog {
    FlashLog::open(Arc::new(device.clone()) as Arc<dyn Device>, ID, 5).unwrap()
}

/// The value of the item with an id: readers can tell whether they see the right bytes.
fn value(id: u64) -> Vec<u8> {
    let mut rng = Rng::new(id);
    (0..rng.below(60_000)).map(|_| rng.below(256) as u8).collect()
}

fn append(log: &FlashLog, id: u64) -> Option<(Place, usize)> {
    let (key, value) = (id.to_le_bytes(), value(id));
    let item = NewItem { meta: Meta { id, flags: 9, ..Meta::default() }, key: &key, parts: [&value, b""] };
    log.append(&item)
}

/// Asserts that an item is one that was appended; its id.
fn id_of(item: &Item<'_>) -> u64 {
    let id = u64::from_le_bytes(item.key.try_into().unwrap());
    assert_eq!((item.meta.id, item.meta.flags), (id, 9));
    assert!(item.value == value(id), "wrong bytes of {id}");
    id
}

#[test]
fn items_are_read_until_their_segment_leaves() {
    situ_sim::for_each_seed(1600, 4, |seed| {
        let sim = SimExecutor::new(seed);
        let device = device(&sim, 8, seed);
        sim.run(|| {
            let log = open(&device);
            let mut rng = Rng::new(seed);
            let mut there: HashMap<u64, (Place, usize)> = HashMap::new();
            let mut left = 0;
            for id in 1..800 {
                while append(&log, id).map(|place| there.insert(id, place)).is_none() {
                    let flushed = log.flush(|Found { place, item, .. }| {
                        let id = id_of(&item);
                        assert_eq!(there.remove(&id).unwrap().0, place);
                        left += 1;
                    });
                    assert!(flushed.unwrap(), "an item fits when nothing waits for the device");
                }
                let asked = 1 + rng.below(id);
                if let Some((place, bytes)) = there.get(&asked) {
                    let record = log.read(*place, *bytes).unwrap().expect("an item that has not left");
                    assert_eq!(id_of(&record.item()), asked);
                }
            }
            assert!(left > 200 && there.len() > 100, "{left} left, {} are there", there.len());
            for (id, (place, bytes)) in &there {
                assert_eq!(id_of(&log.read(*place, *bytes).unwrap().unwrap().item()), *id);
            }
        });
    });
}

#[test]
fn a_crash_at_any_time_loses_items_and_changes_none() {
    let mut restored = 0;
    situ_sim::for_each_seed(1700, 20, |seed| {
        let sim = SimExecutor::new(seed);
        let device = device(&sim, 8, seed);
        let crashed = std::sync::Mutex::new(None);
        sim.run(|| {
            let log = open(&device);
            let mut rng = Rng::new(seed);
            device.crash_at(device.changes() + 1 + rng.below(80));
            for id in 1..500 {
                while append(&log, id).is_none() {
                    if log.flush(|found| _ = id_of(&found.item)).is_err() || device.has_crashed() {
                        break;
                    }
                }
                if device.has_crashed() {
                    break;
                }
            }
            *crashed.lock().unwrap() = Some(device.crash(seed));
        });
        let again = SimExecutor::new(seed + 1);
        let device = crashed.into_inner().unwrap().unwrap().on(&again.env());
        again.run(|| {
            let log = open(&device);
            let mut found = HashMap::new();
            let mut newest = 0;
            log.scan(|Found { place, item, bytes }| {
                let id = id_of(&item);
                assert!(id > newest, "the oldest come first");
                newest = id;
                found.insert(id, (place, bytes));
            })
            .unwrap();
            for (id, (place, bytes)) in &found {
                assert_eq!(id_of(&log.read(*place, *bytes).unwrap().unwrap().item()), *id);
            }
            restored += found.len();
            // It goes on, and a second restart finds the new ones as well.
            for id in 1000..1300 {
                while append(&log, id).is_none() {
                    log.flush(|found| _ = id_of(&found.item)).unwrap();
                }
            }
            log.seal();
            while log.flush(|_| ()).unwrap() {}
            let mut last = 0;
            open(&device).scan(|found| last = id_of(&found.item)).unwrap();
            assert_eq!(last, 1299);
        });
    });
    assert!(restored > 100, "{restored} items came back");
}

#[test]
fn a_device_that_is_behind_takes_no_more_and_loses_nothing() {
    let sim = SimExecutor::new(1);
    let device = device(&sim, 16, 1);
    sim.run(|| {
        let log = open(&device);
        let mut taken = Vec::new();
        let mut id = 1;
        while let Some(place) = append(&log, id) {
            taken.push((id, place));
            id += 1;
        }
        assert!(taken.len() > SEALED_MAX * 10, "{} items", taken.len());
        for (id, (place, bytes)) in taken {
            assert_eq!(id_of(&log.read(place, bytes).unwrap().unwrap().item()), id);
        }
    });
}

#[test]
fn what_is_written_is_little_more_than_what_was_appended() {
    let sim = SimExecutor::new(1);
    let device = device(&sim, 16, 1);
    sim.run(|| {
        let log = open(&device);
        let small = NewItem { meta: Meta::default(), key: b"a key of 16 byte", parts: [&[1; 250], b""] };
        while log.written_bytes.load(std::sync::atomic::Ordering::Relaxed) < 30 << 20 {
            if log.append(&small).is_none() {
                log.flush(|_| ()).unwrap();
            }
        }
        let written = log.written_bytes.load(std::sync::atomic::Ordering::Relaxed) as f64;
        let items = log.appended_bytes.load(std::sync::atomic::Ordering::Relaxed) - (5 << 20);
        assert!(written / (items as f64) < 1.05, "{written} of {items}");
    });
}

#[test]
fn another_ones_device_is_left_as_it_is_and_damage_costs_items() {
    let sim = SimExecutor::new(1);
    let (other, ours) = (device(&sim, 8, 1), device(&sim, 8, 2));
    sim.run(|| {
        other.set_contents(5000, b"a file system");
        let refused = FlashLog::open(Arc::new(other.clone()) as Arc<dyn Device>, ID, 5).err().unwrap();
        assert!(refused.to_string().contains("something else"), "{refused}");
        assert_eq!(other.contents(5000..5013), b"a file system");
        let log = open(&ours);
        let places: Vec<_> = (1..60).map(|id| append(&log, id).unwrap()).collect();
        log.seal();
        while log.flush(|_| ()).unwrap() {}
        // One of the two superblocks, and a byte of an item.
        ours.rot(20, 1);
        let (place, bytes) = places[20];
        ours.rot(super::spot_offset(log.spot_of(place.segment)) + u64::from(place.offset) + bytes as u64 / 2, 3);
        let log = FlashLog::open(Arc::new(ours.clone()) as Arc<dyn Device>, [9; 16], 6).unwrap();
        assert_eq!(log.seed(), 5, "the log keeps its own");
        let mut found = 0;
        log.scan(|item| {
            assert_ne!(id_of(&item.item), 21);
            found += 1;
        })
        .unwrap();
        assert!((20..59).contains(&found), "{found}");
        assert!(log.read(place, bytes).unwrap().is_none());
    });
}
