//! The log on a simulated device: what was appended is read, what a crash tears is lost, and nothing else is ever read.

use super::{Content, FlashLog, Found, SEALED_MAX};
use crate::item::{Item, Meta, NewItem, VALUE_BYTES_MAX};
use crate::slot::Place;
use situ_device::{Device, Geometry};
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimMemory};
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
    let device = device.reached();
    match FlashLog::content(&device).unwrap() {
        Content::Nothing => FlashLog::create(device, ID, 5).unwrap(),
        _ => FlashLog::open(device).unwrap(),
    }
}

/// The value of the item with an id: readers can tell whether they see the right bytes.
fn value(id: u64) -> Vec<u8> {
    let mut rng = Rng::new(id);
    // Some go on in the next segment, a few in the two or three after it.
    let bound = match id % 40 {
        0 => 2_500_000,
        1..4 => 300_000,
        _ => 60_000,
    };
    let length = rng.below(bound) as usize;
    let pattern: Vec<u8> = (0..251).map(|_| rng.below(256) as u8).collect();
    pattern.into_iter().cycle().take(length).collect()
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

/// The id of an item that a segment holds, of whose value the rest may lie in the next one.
fn id_of_found(found: &Found<'_>) -> u64 {
    if !found.is_part {
        return id_of(&found.item);
    }
    // After a crash its bytes may be any, until it is read and its checksum checked.
    let id = found.item.key.try_into().map_or(0, u64::from_le_bytes);
    assert!(found.bytes > found.item.value.len());
    id
}

#[test]
fn items_are_read_until_their_segment_leaves() {
    situ_sim::for_each_seed(1600, 4, |seed| {
        let sim = SimExecutor::new(seed);
        let device = device(&sim, 16, seed);
        sim.run(|| {
            let log = open(&device);
            let mut rng = Rng::new(seed);
            let mut there: HashMap<u64, (Place, usize)> = HashMap::new();
            let mut left = 0;
            for id in 1..800 {
                while append(&log, id).map(|place| there.insert(id, place)).is_none() {
                    let flushed = log.flush(
                        |_| {},
                        |found| {
                            let (id, place) = (id_of_found(&found), found.place);
                            assert_eq!(there.remove(&id).unwrap().0, place);
                            left += 1;
                        },
                        |_| panic!("a segment is damaged"),
                    );
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
        let device = device(&sim, 16, seed);
        let crashed = std::sync::Mutex::new(None);
        sim.run(|| {
            let log = open(&device);
            let mut rng = Rng::new(seed);
            device.crash_at(device.changes() + 1 + rng.below(80));
            for id in 1..500 {
                while append(&log, id).is_none() {
                    if log.flush(|_| {}, |found| _ = id_of_found(&found), |_| {}).is_err() || device.has_crashed() {
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
            log.scan(0, |item| {
                let id = id_of_found(&item);
                if !item.is_part {
                    assert!(id > newest, "the oldest come first");
                    newest = id;
                }
                found.insert(id, (item.place, item.bytes, item.is_part));
            })
            .unwrap();
            for (id, (place, bytes, is_part)) in &found {
                match log.read(*place, *bytes).unwrap() {
                    Some(record) => assert_eq!(id_of(&record.item()), *id),
                    None => assert!(is_part, "an item whose segment is whole"),
                }
            }
            restored += found.len();
            // It goes on, and a second restart finds the new ones as well.
            for id in 1000..1300 {
                while append(&log, id).is_none() {
                    log.flush(|_| {}, |found| _ = id_of_found(&found), |_| {}).unwrap();
                }
            }
            log.seal();
            while log.flush(|_| {}, |_| {}, |_| {}).unwrap() {}
            let mut last = 0;
            open(&device).scan(0, |found| last = id_of_found(&found)).unwrap();
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
                log.flush(|_| {}, |_| {}, |_| {}).unwrap();
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
    let (other, ours) = (device(&sim, 16, 1), device(&sim, 16, 2));
    sim.run(|| {
        other.set_contents(5000, b"a file system");
        let other: Arc<dyn Device> = Arc::new(other);
        assert_eq!(FlashLog::content(&other).unwrap(), Content::Other);
        assert!(FlashLog::open(other).is_err());
        let log = open(&ours);
        let places: Vec<_> = (1..60).map(|id| append(&log, id).unwrap()).collect();
        log.seal();
        while log.flush(|_| {}, |_| {}, |_| {}).unwrap() {}
        // One of the two superblocks, and a byte of an item.
        ours.rot(20, 1);
        let (place, bytes) = places[20];
        ours.rot(super::spot_offset(log.spot_of(place.segment)) + u64::from(place.offset) + bytes as u64 / 2, 3);
        let log = open(&ours);
        assert_eq!(log.seed(), 5);
        let mut found = 0;
        log.scan(0, |item| {
            assert_ne!(id_of_found(&item), 21);
            found += 1;
        })
        .unwrap();
        assert!((20..59).contains(&found), "{found}");
        assert!(log.read(place, bytes).unwrap().is_none());
    });
}

/// A log with an item of 2.5 MB, all of it on the device; with the item's place and the length of its record.
fn with_long_item(device: &SimDevice) -> (FlashLog, Place, usize) {
    let log = open(device);
    let item = NewItem { meta: Meta { id: 7, ..Meta::default() }, key: b"long", parts: [&[7; 2_500_000], b""] };
    let (place, bytes) = log.append(&item).unwrap();
    log.seal();
    while log.flush(|_| {}, |_| {}, |_| {}).unwrap() {}
    (log, place, bytes)
}

/// The memory for an item that is put together once ended the process if it was not there.
#[test]
fn an_item_without_memory_for_it_is_not_found_and_the_log_goes_on() {
    let sim = SimExecutor::new(1);
    let device = device(&sim, 16, 1);
    sim.run(|| {
        let (log, place, bytes) = with_long_item(&device);
        assert!(SimMemory::refusing(2_500_000, || log.read(place, bytes)).unwrap().is_none());
        let record = log.read(place, bytes).unwrap().unwrap();
        assert!(SimMemory::refusing(2_500_000, || super::Record::of(&record.item())).is_none());
        assert_eq!(record.item().value.len(), 2_500_000);
    });
}

/// The length of an item whose rest lies in other segments is not covered by a checksum before the whole item is read.
#[test]
fn an_item_that_claims_a_gigabyte_takes_no_more_memory_than_there_is_on_the_device() {
    let sim = SimExecutor::new(1);
    let device = device(&sim, 16, 1);
    sim.run(|| {
        let (log, place, _) = with_long_item(&device);
        let length_at = super::spot_offset(log.spot_of(place.segment)) + u64::from(place.offset) + 4 + 2;
        for (claimed, is_shown) in
            [(VALUE_BYTES_MAX as u32, true), (VALUE_BYTES_MAX as u32 + 1, false), (u32::MAX, false)]
        {
            device.set_contents(length_at, &claimed.to_le_bytes());
            let log = open(&device);
            let mut found = Vec::new();
            let (_, largest) = SimMemory::largest(|| log.scan(0, |item| found.push((item.place, item.bytes))).unwrap());
            assert_eq!(found.len(), usize::from(is_shown), "{claimed}");
            assert!(largest < 4 << 20, "{largest} bytes to find it");
            for (place, bytes) in found {
                let (record, largest) = SimMemory::largest(|| log.read(place, bytes).unwrap());
                assert!(record.is_none() && largest < 4 << 20, "{largest} bytes to read it");
            }
        }
    });
}

/// A cache on a simulated device, against a map: with restarts of all kinds, only absence tells them apart.
mod cache {
    use super::device;
    use crate::cache::Flash;
    use crate::{Admission, Cache, FlashReader, Lookup, Meta, OnItem, Options, Record, Start};
    use situ_sim::{Fault, FaultPlan, Rng, Rule, SimDevice, SimExecutor};
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    const NOW: u64 = 1_700_000_000;
    const KEYS: u64 = 4000;

    fn options() -> Options {
        Options { lanes: 1, ..Options::of_memory(16 << 20) }
    }

    fn open(
        sim: &SimExecutor,
        device: &SimDevice,
        files: Option<&Path>,
        options: &Options,
        now: u64,
    ) -> (Cache, Start) {
        let device = device.reached();
        let flash = Flash { device, env: sim.env(), files: files.map(|files| files.join("flash")) };
        Cache::with_flash(options, flash, |_| now).unwrap()
    }

    #[derive(Default)]
    struct Model {
        items: HashMap<u64, (u64, u64)>,
        next: u64,
        hits: u64,
        now: u64,
    }

    fn name(key: u64) -> Vec<u8> {
        format!("key number {key}").into_bytes()
    }

    fn value(id: u64) -> Vec<u8> {
        let mut rng = Rng::new(id);
        let length = match rng.below(400) {
            0 => 1_200_000,
            1..9 => 100_000,
            _ => 100 + rng.below(8000),
        };
        id.to_le_bytes().into_iter().cycle().take(length as usize).collect()
    }

    /// The answer for a key, once there is one.
    type Answer = Arc<Mutex<Option<Option<(u64, Vec<u8>)>>>>;

    /// Keeps an answer, and then calls `then`.
    fn keep(answer: &Answer, then: impl FnOnce() + Send + 'static) -> OnItem {
        let told = Arc::clone(answer);
        Box::new(move |record: Option<Record>| {
            let found = record.map(|record| (record.item().meta.id, record.item().value.to_vec()));
            *told.lock().unwrap() = Some(found);
            then();
        })
    }

    impl Model {
        fn put(&mut self, cache: &Cache, key: u64, expires: u64) {
            self.next += 1;
            let meta = Meta { id: self.next, expires, ..Meta::default() };
            cache.put(&name(key), &meta, [&value(self.next), b""], self.now).unwrap();
            self.items.insert(key, (self.next, expires));
        }

        fn check(&mut self, key: u64, found: Option<(u64, Vec<u8>)>) {
            let Some((id, found)) = found else { return };
            let expected = self.items.get(&key).filter(|(_, expires)| *expires == 0 || *expires > self.now);
            assert_eq!(expected.map(|(id, _)| *id), Some(id), "an old value of key {key}");
            assert!(found == value(id), "wrong bytes of key {key}");
            self.hits += 1;
        }

        fn get(&mut self, cache: &Cache, key: u64) {
            let of_record = |record: Record| (record.item().meta.id, record.item().value.to_vec());
            let found = match cache.get(&name(key), self.now, |hit| (hit.item.meta.id, hit.item.value.to_vec())) {
                Lookup::Hit(found) => Some(found),
                Lookup::Miss => None,
                Lookup::OnFlash => cache.fetch(&name(key), self.now).map(of_record),
            };
            self.check(key, found);
        }

        fn get_later(&mut self, sim: &SimExecutor, cache: &Cache, key: u64) {
            let (answer, event) = (Answer::default(), sim.env().executor.event());
            let seen = event.generation();
            let tells = Arc::clone(&event);
            cache.get_later(&name(key), self.now, keep(&answer, move || tells.notify()));
            event.wait(seen, None);
            let found = answer.lock().unwrap().take().expect("an answer");
            self.check(key, found);
        }

        /// Reads several keys at once on this thread. Items change meanwhile: an answer may be of any moment of the
        /// read.
        fn get_here(
            &mut self,
            sim: &SimExecutor,
            cache: &Cache,
            reader: &mut FlashReader,
            rng: &mut Rng,
            keys: [u64; 3],
        ) {
            let before = keys.map(|key| self.items.get(&key).copied());
            let answers = keys.map(|key| {
                let answer = Answer::default();
                reader.get(&name(key), self.now, keep(&answer, || ()));
                answer
            });
            loop {
                let has_more = reader.advance();
                match rng.below(6) {
                    0 => self.put(cache, keys[0], 0),
                    1 => {
                        cache.delete(&name(keys[1]));
                        self.items.remove(&keys[1]);
                    }
                    2 if rng.chance(0.02) => cache.spill(self.now),
                    _ => {}
                }
                if answers.iter().all(|answer| answer.lock().unwrap().is_some()) {
                    break;
                }
                if has_more {
                    continue;
                }
                reader.wait();
                // Long items are read by another thread.
                sim.env().executor.yield_once();
            }
            for ((key, answer), before) in keys.into_iter().zip(answers).zip(before) {
                let found = answer.lock().unwrap().take().expect("an answer");
                let of_before = found.as_ref().is_some_and(|(id, _)| before.is_some_and(|(other, _)| other == *id));
                let changed = self.items.get(&key).copied() != before;
                match found {
                    Some((id, found)) if changed && of_before => {
                        assert!(found == value(id), "wrong bytes of key {key}")
                    }
                    // One of several values that came meanwhile.
                    Some((id, found)) if changed && key == keys[0] => assert!(found == value(id)),
                    found => self.check(key, found),
                }
                // A read that comes after the change sees it.
                self.get(cache, key);
            }
        }

        fn steps(&mut self, sim: &SimExecutor, cache: &Cache, rng: &mut Rng, count: u64) {
            let mut reader = cache.flash_reader().unwrap().expect("a simulated queue can be watched");
            for _ in 0..count {
                let key = rng.below(KEYS).min(rng.below(KEYS));
                match rng.below(12) {
                    0..=4 => {
                        let expires = if rng.chance(0.125) { self.now + 1 + rng.below(30) } else { 0 };
                        self.put(cache, key, expires);
                    }
                    5 => {
                        cache.delete(&name(key));
                        self.items.remove(&key);
                    }
                    6 if rng.chance(0.025) => {
                        self.now += rng.below(3);
                        cache.tidy(self.now);
                    }
                    7 => self.get_later(sim, cache, key),
                    8 => {
                        let keys = [key, rng.below(KEYS), rng.below(KEYS)];
                        self.get_here(sim, cache, &mut reader, rng, keys);
                    }
                    _ => self.get(cache, key),
                }
            }
        }

        /// A survey shows each item that a read finds, as it is, and once if it is not written again meanwhile. Reads
        /// make items move, so some go meanwhile.
        fn check_survey(&mut self, cache: &Cache) {
            let evicted = || cache.properties().evicted + cache.properties().flash.unwrap().evicted;
            let before = evicted();
            let (mut shown, mut twice) = (HashMap::new(), 0);
            let reinserted = || cache.properties().flash.unwrap().reinserted;
            let reinserted_before = reinserted();
            let mut survey = cache.survey();
            while survey.next(self.now, |item| {
                let seen = (item.meta.id, item.value_bytes);
                let other = shown.insert(item.key.to_vec(), seen);
                twice += u64::from(other.is_some());
                assert!(other.is_none_or(|other| other == seen), "an item is shown as two");
            }) {}
            assert!(twice <= reinserted() - reinserted_before, "{twice} items are shown twice");
            let mut found = HashMap::new();
            for key in 0..KEYS {
                let item = match cache.get(&name(key), self.now, |hit| (hit.item.meta.id, hit.item.value.len())) {
                    Lookup::Hit(item) => Some(item),
                    Lookup::Miss => None,
                    Lookup::OnFlash => cache.fetch(&name(key), self.now).map(|record| {
                        let item = record.item();
                        (item.meta.id, item.value.len())
                    }),
                };
                found.extend(item.map(|item| (name(key), item)));
            }
            assert!(found.len() > 100);
            assert!(found.iter().all(|(key, item)| shown.get(key) == Some(item)));
            let gone = evicted() - before;
            assert!((shown.len() - found.len()) as u64 <= gone, "{} of {} are found", found.len(), shown.len());
        }

        fn check_all(&mut self, cache: &Cache) -> u64 {
            self.hits = 0;
            (0..KEYS).for_each(|key| self.get(cache, key));
            self.hits
        }
    }

    fn model() -> Model {
        Model { now: NOW, ..Model::default() }
    }

    #[test]
    fn a_cache_on_flash_is_a_map_but_for_what_has_gone() {
        situ_sim::for_each_seed(1800, 6, |seed| {
            let sim = SimExecutor::new(seed);
            let device = device(&sim, 40, seed);
            sim.run(|| {
                let mut options = options();
                if seed % 3 == 0 {
                    options.flash.admission = Admission::Read;
                }
                options.flash.reinserts = seed % 2 == 0;
                options.flash.promote_at = (seed % 4) as u8;
                let (cache, start) = open(&sim, &device, None, &options, NOW);
                assert_eq!(start, Start::Empty);
                let told = Arc::new(Mutex::new(0));
                let tell = Arc::clone(&told);
                cache.on_evicted(Box::new(move |evicted| {
                    assert!(evicted.key.starts_with(b"key number ") && evicted.value_bytes > 0);
                    *tell.lock().unwrap() += 1;
                }));
                let mut model = model();
                model.steps(&sim, &cache, &mut Rng::new(seed), 30_000);
                let flash = cache.properties().flash.unwrap();
                assert!(flash.hits > 100 && flash.demoted > 1000 && flash.errors == 0, "{flash:?}");
                assert_eq!(flash.misses, 0, "{flash:?}");
                assert_eq!(flash.promoted > 0, seed % 4 > 0, "{flash:?}");
                assert!(cache.properties().memory_bytes < 17 << 20);
                let gone = cache.properties().evicted + cache.properties().flash.unwrap().evicted;
                assert_eq!(*told.lock().unwrap(), gone, "{:?}", cache.properties());
                model.check_survey(&cache);
                cache.spill(model.now);
                model.check_survey(&cache);
                cache.stop(NOW).unwrap();
            });
        });
    }

    #[test]
    fn a_reader_answers_more_than_it_has_room_for_and_drops_what_it_cannot() {
        let sim = SimExecutor::new(7);
        let device = device(&sim, 40, 7);
        sim.run(|| {
            let (cache, _) = open(&sim, &device, None, &options(), NOW);
            let mut model = model();
            (0..1000).for_each(|key| model.put(&cache, key, 0));
            cache.spill(NOW);
            let mut reader = cache.flash_reader().unwrap().unwrap();
            let answered = Arc::new(Mutex::new(0));
            let ask = |reader: &mut FlashReader, key: u64| {
                let answered = Arc::clone(&answered);
                let done = move |record: Option<Record>| {
                    let record = record.expect("it is there");
                    assert!(record.item().key == name(key) && record.item().value.len() >= 100);
                    *answered.lock().unwrap() += 1;
                };
                reader.get(&name(key), NOW, Box::new(done));
            };
            (0..1000).for_each(|key| ask(&mut reader, key));
            while *answered.lock().unwrap() < 1000 {
                if !reader.advance() {
                    reader.wait();
                    sim.env().executor.yield_once();
                }
            }
            assert!(!reader.is_busy());
            // Some are in flight, and some wait. None of them is answered, and nothing hangs.
            (0..1000).for_each(|key| ask(&mut reader, key));
            reader.advance();
            assert!(reader.is_busy());
            drop(reader);
            // The cache has ended but for a reader of its own.
            let mut reader = cache.flash_reader().unwrap().unwrap();
            cache.stop(NOW).unwrap();
            let absent = Arc::new(Mutex::new(0));
            let told = Arc::clone(&absent);
            let done = move |record: Option<Record>| *told.lock().unwrap() += i32::from(record.is_none());
            reader.get(&name(1), NOW, Box::new(done));
            assert!(!reader.advance() && !reader.is_busy());
            assert_eq!(*absent.lock().unwrap(), 1);
        });
    }

    #[test]
    fn what_a_restart_finds_is_neither_old_nor_wrong() {
        let (mut recovered, mut resumed) = (0, 0);
        situ_sim::for_each_seed(1900, 8, |seed| {
            let files = tempfile::tempdir().unwrap();
            let mut rng = Rng::new(seed);
            let (mut model, mut image) = (model(), None::<SimDevice>);
            let mut expected = Start::Empty;
            for life in 0..4 {
                let sim = SimExecutor::new(seed * 10 + life);
                let device = match image.take() {
                    Some(image) => image.on(&sim.env()),
                    None => device(&sim, 40, seed),
                };
                let stops_well = rng.chance(0.5);
                sim.run(|| {
                    let (cache, start) = open(&sim, &device, Some(files.path()), &options(), model.now);
                    assert_eq!(start, expected);
                    let hits = model.check_all(&cache);
                    match start {
                        Start::Recovered => recovered += hits,
                        Start::Resumed => resumed += hits,
                        Start::Empty => assert_eq!(hits, 0),
                    }
                    let length = 2000 + rng.below(15_000);
                    model.steps(&sim, &cache, &mut rng, length);
                    if start != Start::Recovered {
                        assert_eq!(cache.properties().flash.unwrap().misses, 0, "the index names what is there");
                    }
                    if stops_well {
                        let there = model.check_all(&cache);
                        cache.stop(model.now).unwrap();
                        assert!(there > 500, "{there}");
                    }
                    // Otherwise the process dies: what it had in memory is gone, what it has written is not.
                    if !stops_well {
                        sim.kill();
                    }
                    image = Some(if stops_well { device.crash(seed) } else { device.crash_keep_all() });
                });
                expected = if stops_well { Start::Resumed } else { Start::Recovered };
            }
        });
        assert!(recovered > 1000 && resumed > 1000, "{recovered} and {resumed}");
    }

    #[test]
    fn the_index_takes_three_eighths_of_the_memory_at_most() {
        let files = tempfile::tempdir().unwrap();
        let (mut items, mut image) = (0, None::<SimDevice>);
        for life in 0..3 {
            let sim = SimExecutor::new(life);
            let device = match image.take() {
                Some(image) => image.on(&sim.env()),
                None => device(&sim, 40, 1),
            };
            sim.run(|| {
                let mut options = Options { lanes: 1, ..Options::of_memory(16 << 20) };
                // The last one has less memory than the one before.
                options.memory_bytes >>= u32::from(life == 2);
                let (cache, _) = open(&sim, &device, Some(files.path()), &options, NOW);
                let limit = options.memory_bytes as u64 / 8 * 3 + (1 << 20);
                assert!(cache.properties().index_bytes <= limit, "{life}: {:?}", cache.properties());
                if life > 0 {
                    assert!(cache.properties().items > items / 4, "{life}: {:?} of {items}", cache.properties());
                }
                for number in 0..700_000u64 {
                    if life == 0 {
                        let meta = Meta { id: number, ..Meta::default() };
                        cache.put(&number.to_le_bytes(), &meta, [b"v", b""], NOW).unwrap();
                        if number % 10_000 == 0 {
                            cache.tidy(NOW);
                        }
                    }
                }
                let properties = cache.properties();
                assert!(properties.index_bytes <= limit, "{properties:?}");
                items = properties.items;
                if life == 0 {
                    assert!(items > 300_000, "{properties:?}");
                    cache.stop(NOW).unwrap();
                } else {
                    sim.kill();
                }
                image = Some(device.crash_keep_all());
            });
        }
    }

    /// Dead items stay on flash until their segment is written again. The device bounds them, and with them the notes
    /// of their deaths.
    #[test]
    fn what_is_dead_on_flash_and_in_the_journal_is_bounded_while_writers_go_on() {
        const FLASH_MIB: u64 = 40;
        const VALUE_BYTES: usize = 1000;
        const PUTS: u64 = 300_000;
        let files = tempfile::tempdir().unwrap();
        let sim = SimExecutor::new(1);
        let device = device(&sim, FLASH_MIB, 1);
        sim.run(|| {
            let (cache, _) = open(&sim, &device, Some(files.path()), &options(), NOW);
            let notes = || {
                let length = |name| std::fs::metadata(files.path().join(name)).map_or(0, |file| file.len());
                length("flash.journal-0") + length("flash.journal-1")
            };
            // Each note is of an item that was written in one of the last two rounds over the device.
            let notes_max = 2 * 16 * (FLASH_MIB << 20) / VALUE_BYTES as u64 + 8192;
            let mut rng = Rng::new(1);
            let (mut now, mut most) = (NOW, 0);
            for n in 0..PUTS {
                let key = rng.below(60_000);
                match rng.below(8) {
                    0 => drop(cache.delete(&name(key))),
                    _ => {
                        let expires = if n % 3 == 0 { now + 5 } else { 0 };
                        let meta = Meta { id: n, expires, ..Meta::default() };
                        cache.put(&name(key), &meta, [&[7; VALUE_BYTES], b""], now).unwrap();
                    }
                }
                if n % 500 == 0 {
                    now += 1;
                    cache.tidy(now);
                    most = most.max(notes());
                }
            }
            let flash = cache.properties().flash.unwrap();
            assert!(flash.written_bytes > 3 * (FLASH_MIB << 20), "the device was written more than once: {flash:?}");
            assert!(most <= notes_max, "{most} bytes of notes, {notes_max} at most");
            // A dead item keeps nothing out.
            cache.put(b"new", &Meta::default(), [b"value", b""], now).unwrap();
            assert!(matches!(cache.get(b"new", now, |_| ()), Lookup::Hit(())));
        });
    }

    /// The files of the flash could not be written any more, for a while: deaths were not noted. They are there again
    /// as they were.
    #[test]
    fn files_that_were_lost_for_a_while_are_not_trusted_again() {
        let files = tempfile::tempdir().unwrap();
        let names = [".journal-0", ".journal-1", ".records"];
        let sim = SimExecutor::new(1);
        let device = device(&sim, 40, 1);
        let mut image = None;
        sim.run(|| {
            let (cache, _) = open(&sim, &device, Some(files.path()), &options(), NOW);
            model().steps(&sim, &cache, &mut Rng::new(1), 3000);
            cache.spill(NOW);
            let read = |name: &&str| std::fs::read(files.path().join(format!("flash{name}"))).ok();
            let before: Vec<_> = names.iter().map(read).collect();
            cache.flash().unwrap().journal().unwrap().abandon();
            cache.tidy(NOW + 1);
            for (name, bytes) in names.iter().zip(before) {
                bytes
                    .iter()
                    .for_each(|bytes| std::fs::write(files.path().join(format!("flash{name}")), bytes).unwrap());
            }
            sim.kill();
            image = Some(device.crash_keep_all());
        });
        let again = SimExecutor::new(2);
        let device = image.unwrap().on(&again.env());
        again.run(|| {
            let (_, start) = open(&again, &device, Some(files.path()), &options(), NOW + 2);
            assert_eq!(start, Start::Empty);
        });
    }

    #[test]
    fn a_drive_that_fails_takes_flash_out_of_service_and_not_the_cache() {
        situ_sim::for_each_seed(2000, 4, |seed| {
            let files = tempfile::tempdir().unwrap();
            let sim = SimExecutor::new(seed);
            let device = device(&sim, 40, seed);
            sim.run(|| {
                let (cache, _) = open(&sim, &device, Some(files.path()), &options(), NOW);
                let (mut model, mut rng) = (model(), Rng::new(seed));
                model.steps(&sim, &cache, &mut rng, 12_000);
                device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io)));
                model.steps(&sim, &cache, &mut rng, 12_000);
                let properties = cache.properties();
                let flash = properties.flash.unwrap();
                assert!(!flash.works && !flash.outlives && flash.errors > 0, "{flash:?}");
                // The count depends on which long items are in memory: each run seeds the hashes differently.
                let served = model.check_all(&cache);
                assert!(served > 50, "memory serves on: {served}");
                assert!(cache.stop(NOW).is_err());
            });
            let again = SimExecutor::new(seed + 1);
            let device = super::device(&again, 40, seed);
            again.run(|| {
                let (_, start) = open(&again, &device, Some(files.path()), &options(), NOW);
                assert_eq!(start, Start::Empty);
            });
        });
    }
}
