//! Promises 1, 3 and 4 on a directory and a fast disk without a file system that lose power together at each change of either,
//! each losing its own unsynced data.

use crate::common::fast;
use crate::common::prefix::{Told, check, workload};
use crate::common::raw::{JOURNAL, PAGE, World, formatted, is_sound, open, volume};
use crate::common::small_options;
use situ_base::Env;
use situ_device::{Device, Geometry};
use situ_engine::{Durability, Error, KeyspaceOptions, Listener, Options, Store, StoreEvent};
use situ_rawdisk::{FormatOptions, RawVolume};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rng, Rule, SimDevice, SimExecutor, SimVolume,
    crash_volume_and_device_everywhere, for_each_seed,
};
use situ_storage::{FileName, Volume};
use situ_tiers::{TieredBuilder, TieredStore};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn live(env: &Env, home: &SimVolume, device: &SimDevice, seed: u64) -> Told {
    workload(env, &|seed| open(env, home, device, seed), seed, 60)
}

fn check_image(env: &Env, home: &SimVolume, device: &SimDevice, told: &Told, seed: u64) {
    is_sound(env, device);
    check(&|seed| open(env, home, device, seed), told, told.synced, seed);
}

/// Lives of a store, on a disk of so many pages.
fn crash_everywhere(seed: u64, points_max: u64, pages: u64, log_pages: u64) -> u64 {
    crash_volume_and_device_everywhere(
        seed,
        &CrashPoints { points_max, images_per_point: 2, faults: FaultPlan::none() },
        |env, plan| formatted(env, plan, pages, log_pages),
        |env, home, device| live(env, home, device, seed),
        |env, home, device, told| check_image(env, &home, &device, told, seed),
    )
}

#[test]
fn promise_1_3_4_a_raw_disk_and_a_home_that_lose_power_leave_a_whole_prefix_with_all_that_was_synced() {
    let mut all = 0;
    for_each_seed(1, 8, |seed| all += crash_everywhere(seed, 60, 1200, 400));
    assert!(all > 100, "only {all} images");
}

/// The raw disk has so little room that log files and tables of all levels spill.
#[test]
fn promise_1_3_4_a_power_failure_while_the_raw_disk_is_full() {
    for_each_seed(100, 6, |seed| {
        let mut rng = Rng::new(seed);
        let (log_pages, top_pages) = (10 + rng.below(80), 10 + rng.below(80));
        crash_everywhere(seed, 50, 50 + log_pages + top_pages, log_pages);
    });
}

#[test]
fn promise_1_3_7_a_raw_disk_that_fails_takes_nothing_that_was_synced() {
    for_each_seed(200, 40, |seed| {
        let mut rng = Rng::new(seed);
        let fault = if rng.chance(0.5) { Fault::Io } else { Fault::NotFound };
        let nth = rng.below(500);
        let rule = if rng.chance(0.5) { Rule::new(fault).from(nth) } else { Rule::new(fault).nth(nth) };
        let (told, left) = World::run_with(seed, FaultPlan::none().with(rule), 1200, 400, |world| {
            (live(&world.env, &world.home, &world.device, seed), world.crash(rng.next_u64()))
        });
        let sim = SimExecutor::new(seed + 1);
        let (home, device) = (left.home.on(&sim.env()), left.device.on(&sim.env()));
        sim.run(|| check_image(&sim.env(), &home, &device, &told, seed));
    });
}

/// The end of the process, at any change of either disk, takes nothing that was acknowledged, synced or not: what the device
/// was given is there.
#[test]
fn promise_1_process_death_takes_nothing_acknowledged_from_a_raw_disk_and_a_home() {
    for_each_seed(300, 6, |seed| {
        let start = |crash_at: Option<(bool, u64)>| {
            World::run(seed, 1200, 400, |world| {
                world.device.share_power(&world.home);
                match crash_at {
                    Some((true, at)) => world.device.crash_at(at),
                    Some((false, at)) => world.home.crash_at(at),
                    None => {}
                }
                let told = live(&world.env, &world.home, &world.device, seed);
                (told, world.killed(), [world.home.changes(), world.device.changes()])
            })
        };
        let changes = start(None).2;
        let mut rng = Rng::new(seed);
        for n in 0..20 {
            let which = n % 2;
            let (told, left, _) = start(Some((which == 1, rng.below(changes[which]))));
            let sim = SimExecutor::new(seed + 1);
            let (home, device) = (left.home.on(&sim.env()), left.device.on(&sim.env()));
            sim.run(|| {
                is_sound(&sim.env(), &device);
                check(&|seed| open(&sim.env(), &home, &device, seed), &told, told.acknowledged, seed);
            });
        }
    });
}

/// A raw disk has no page cache. The call once waited for the device, and so did an event loop of the server for each batch of
/// its writes.
#[test]
fn an_asynchronous_buffered_write_does_not_wait_for_a_raw_disk() {
    for_each_seed(1, 10, |seed| {
        World::run(seed, 1200, 400, |world| {
            let store = world.open_small(seed).unwrap();
            let slow = Duration::from_millis(10);
            world.device.set_faults(FaultPlan::none().latency(slow..2 * slow));
            for n in 0..20u8 {
                let begun = world.env.clock.now();
                let write = store.put_with_async([n], b"value", Durability::Buffered);
                let took = world.env.clock.now() - begun;
                assert!(took < slow, "put_async took {took:?}");
                assert!(!write.is_done(), "the pages cannot be anywhere yet");
                world.env.clock.sleep(Duration::from_secs(1));
                assert!(write.is_done(), "nobody has carried it on");
                assert_eq!(store.get([n]).unwrap().as_deref(), Some(&b"value"[..]));
            }
            store.close().unwrap();
        });
    });
}

/// With room for one log file on the raw disk, the log goes to the home and back. While it began at home, the end of the file
/// before was still to be written to the raw disk, and the next call once did that on its caller's thread.
#[test]
fn an_asynchronous_buffered_write_does_not_wait_for_a_raw_disk_that_the_log_has_just_left() {
    for_each_seed(1, 10, |seed| {
        World::run(seed, 1200, 40, |world| {
            let mut options = small_options(&mut Rng::new(seed));
            // Log files of 33 pages. The next one is ready long before the memtable or the file is full.
            options.keyspace.memtable_bytes = 128 << 10;
            options.log_bytes_max = 1 << 20;
            let store = world.open(options).unwrap();
            let slow = Duration::from_millis(10);
            world.device.set_faults(FaultPlan::none().latency(slow..2 * slow));
            let (mut on_raw_disk, mut at_home) = (0, 0);
            for round in 0..60u8 {
                let mut writes = Vec::new();
                for n in 0..10u8 {
                    let begun = world.env.clock.now();
                    writes.push(store.put_with_async([round, n], [n; 1000], Durability::Buffered));
                    let took = world.env.clock.now() - begun;
                    assert!(took < slow, "put_async took {took:?} in round {round}");
                }
                match writes[9].is_done() {
                    true => at_home += 1,
                    false => on_raw_disk += 1,
                }
                world.env.clock.sleep(Duration::from_secs(2));
                assert!(
                    writes.iter().all(|write| write.is_done()),
                    "nobody has carried on what waits in round {round}"
                );
            }
            assert!(on_raw_disk > 5 && at_home > 5, "{on_raw_disk} rounds on the raw disk, {at_home} at home");
            assert!(store.placement().unwrap().log_files_spilled > 0);
            store.close().unwrap();
        });
    });
}

/// Flushes to a slow home did not keep up with writes to the raw disk, whose log area was full before there were as many
/// memtables as there may be. The log went on at home, and each synced write waited there behind the flushes.
#[test]
fn writers_wait_for_flushes_before_the_log_has_to_go_to_the_slow_disk() {
    for_each_seed(3, 10, |seed| {
        // Three log files of 17 pages, and room for hardly any table.
        World::run(seed, 120, 3 * 17, |world| {
            // A flush that goes home is eight operations there, four of them for the two copies of the manifest.
            let slow = Duration::from_millis(4);
            world.home.set_faults(FaultPlan::none().latency(slow..2 * slow));
            let mut options = small_options(&mut Rng::new(seed));
            options.keyspace.memtable_bytes = 64 << 10;
            options.keyspace.memtables_max = 4;
            let store = world.open(options.clone()).unwrap();
            // Of the three files, one is made ready for the next memtable. The options say what was given.
            let of = |store: &Store| {
                let properties = store.default_keyspace().properties();
                let given = properties.options.iter().find(|(name, _)| *name == "memtables_max");
                (properties.memtables_max, given.map(|(_, value)| value.clone()))
            };
            assert_eq!(of(&store), (2, Some("4".to_owned())));
            let mut longest = Duration::ZERO;
            for n in 0..2000u32 {
                let begun = world.env.clock.now();
                store.default_keyspace().put_with(n.to_be_bytes(), [n as u8; 1000], Durability::Synced).unwrap();
                longest = longest.max(world.env.clock.now() - begun);
            }
            assert!(longest < Duration::from_millis(400), "a write took {longest:?}");
            let placement = store.placement().unwrap();
            assert_eq!(placement.log_files_spilled, 0);
            assert!(placement.tables_spilled > 10, "{} tables at home", placement.tables_spilled);
            store.close().unwrap();
            let fast = volume(&world.env, &world.device).unwrap();
            let reader = fast::tiered(options).env(world.env.clone()).read_only();
            let reader = reader.open_volumes(Arc::new(world.home.clone()), Some(Arc::new(fast))).unwrap();
            assert_eq!(of(&reader), (2, Some("4".to_owned())));
            reader.close().unwrap();
        });
    });
}

/// A keyspace that is not written to any more holds back log files that no flush of others gives back: its memtable is flushed
/// before they fill the log's area, and writers to others hardly notice.
#[test]
fn an_idle_keyspace_does_not_fill_the_area_of_the_log() {
    for_each_seed(4, 10, |seed| {
        let took = |with_idle: bool| {
            World::run(seed, 1200, 7 * 17, |world| {
                let us = Duration::from_micros;
                world.home.set_faults(FaultPlan::none().latency(us(100)..us(200)));
                let mut options = small_options(&mut Rng::new(seed));
                options.keyspace.memtable_bytes = 64 << 10;
                options.keyspace.memtables_max = 4;
                options.log_bytes_max = 1 << 30;
                let of_keyspaces = options.keyspace.clone();
                let store = world.open(options).unwrap();
                if with_idle {
                    let idle = store.create_keyspace("idle", of_keyspaces).unwrap();
                    idle.put(b"once", b"and never again").unwrap();
                }
                let begun = world.env.clock.now();
                for n in 0..3000u32 {
                    store.default_keyspace().put_with(n.to_be_bytes(), [n as u8; 1000], Durability::Synced).unwrap();
                }
                let took = world.env.clock.now() - begun;
                let spilled = store.placement().unwrap().log_files_spilled;
                assert!(spilled <= 2, "{spilled} of 47 log files at home");
                store.close().unwrap();
                took
            })
        };
        let (alone, beside) = (took(false), took(true));
        assert!(beside < 3 * alone + Duration::from_millis(500), "{alone:?} alone, {beside:?} beside an idle one");
    });
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        if let StoreEvent::VolumeDegraded { trouble, .. } = event {
            self.0.lock().unwrap().push(trouble.clone());
        }
    }
}

/// Only the volume itself knew it, and whoever asked for its report had opened another.
#[test]
fn a_raw_disk_that_goes_on_without_discards_says_so_once() {
    for_each_seed(1, 5, |seed| {
        World::run(seed, 1200, 400, |world| {
            let heard = Arc::new(Heard::default());
            let mut options = small_options(&mut Rng::new(seed));
            options.listener = Some(Arc::clone(&heard) as Arc<dyn Listener>);
            let store = world.open(options).unwrap();
            let troubles = || store.placement().unwrap().fast_troubles;
            assert_eq!(troubles(), Vec::<String>::new());
            world.device.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Discard])));
            for round in 0..6u8 {
                (0..150u64).for_each(|key| store.put(key.to_be_bytes(), [round; 100]).unwrap());
                store.default_keyspace().compact(None, None).unwrap();
                store.sync().unwrap();
                world.env.clock.sleep(Duration::from_secs(3));
            }
            let troubles = troubles();
            assert_eq!(troubles.len(), 1, "{troubles:?}");
            assert!(troubles[0].contains("not told of free room"), "{troubles:?}");
            assert_eq!(*heard.0.lock().unwrap(), troubles);
            store.close().unwrap();
        });
    });
}

/// A store leaves tables behind that nothing needs: those of compactions that closing or a crash ended, and those whose
/// removal was not durable. Opening removed them and told the device of all that room before it went on, which took up to a
/// second for 2 GiB. Now a thread that nobody waits for tells it.
#[test]
fn opening_does_not_wait_until_the_device_knows_of_free_room() {
    for_each_seed(1, 5, |seed| {
        World::run(seed, 1200, 400, |world| {
            world.open_small(seed).unwrap().close().unwrap();
            let left_behind = volume(&world.env, &world.device).unwrap();
            for number in 9000..9003 {
                let mut writer = left_behind.create(FileName::Table(number), 40 * PAGE).unwrap();
                writer.append(&[7; 40 * PAGE as usize]).unwrap();
                writer.finish().unwrap();
            }
            drop(left_behind);
            let slow = Duration::from_secs(100);
            world.device.set_faults(FaultPlan::none().with(Rule::new(Fault::Delay(slow)).on(&[Operation::Discard])));
            let begun = world.env.clock.now();
            let store = world.open_small(seed).unwrap();
            store.put(b"key", b"value").unwrap();
            let taken = world.env.clock.now() - begun;
            assert!(taken < slow / 2, "{taken:?}");
            world.env.clock.sleep(10 * slow);
            let discards = world.device.trace().to_string().matches("discard").count();
            assert!(discards > 0, "the device was never told");
            store.close().unwrap();
        });
    });
}

/// What a store let go of at its end was free for the next one, which took it for room that the device knows of: it was told
/// only when the pages had been used once more.
#[test]
fn closing_tells_the_device_of_the_room_that_is_free() {
    for_each_seed(1, 10, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        // So large that no room is given away before the device was told of it: several tables reserve their room at a time, and what
        // they leave lies between them.
        let pages = 24_000;
        let geometry = SimDevice::new(&env, pages * PAGE, FaultPlan::none(), seed).geometry();
        let geometry = Geometry { discard_zeroes: true, ..geometry };
        let device = SimDevice::with_geometry(&env, pages * PAGE, geometry, FaultPlan::none(), seed);
        sim.run(|| {
            let format = FormatOptions { log_bytes: Some(400 * PAGE), ..FormatOptions::default() };
            RawVolume::format(device.reached(), env.clone(), &format).unwrap();
            let home = SimVolume::new(&env, FaultPlan::none(), seed);
            for life in 0..3u8 {
                let store = open(&env, &home, &device, seed).unwrap();
                (0..300u64).for_each(|key| store.put(key.to_be_bytes(), [life; 100]).unwrap());
                store.default_keyspace().compact(None, None).unwrap();
                store.close().unwrap();
                let top = volume(&env, &device).unwrap().report().top;
                // Behind the area is one page, a copy of the superblock.
                let end = (pages - 1) * PAGE;
                let contents = device.contents(end - top.bytes..end);
                let known = contents.chunks(PAGE as usize).filter(|page| page.iter().any(|byte| *byte != 0)).count();
                assert!(known > 0 && known as u64 * PAGE <= top.used_bytes, "{known} pages hold something, {top:?}");
            }
        });
    });
}

/// A raw disk whose metadata cannot be written any more still lists its files and reads them, and removes none: a drain in
/// the middle of which that happened went on for ever.
#[test]
fn a_raw_disk_that_takes_no_changes_ends_a_drain_with_its_error() {
    let mut ends = [0, 0];
    for_each_seed(1, 40, |seed| {
        let ended = World::run(seed, 1200, if seed % 2 == 0 { 400 } else { 1 }, |world| {
            let store = world.open_small(seed).unwrap();
            for round in 0..3u8 {
                (0..150u64).for_each(|key| store.put(key.to_be_bytes(), [round; 50]).unwrap());
                store.flush().unwrap();
            }
            let fault = Rule::new(Fault::Io).on(&[Operation::WritePages]).within(JOURNAL).from(seed % 8);
            world.device.set_faults(FaultPlan::none().with(fault));
            let (ended, draining) = (Arc::new(Mutex::new(None)), store.clone());
            let result = Arc::clone(&ended);
            let drain = move || *result.lock().unwrap() = Some(draining.drain_fast_disk().is_ok());
            let job = world.env.executor.spawn("drain", Box::new(drain)).unwrap();
            world.env.clock.sleep(Duration::from_secs(3600));
            let ended = ended.lock().unwrap().expect("an hour later the drain goes on");
            job.join().unwrap();
            assert_eq!(store.get(7u64.to_be_bytes()).unwrap().as_deref(), Some(&[2; 50][..]));
            ended
        });
        ends[usize::from(ended)] += 1;
    });
    assert!(ends[0] > 5, "{ends:?}");
}

/// One write of the journal that fails leaves the disk without changes until it is opened again. The store found that with each
/// write that wanted a log file, and said of none of them that it would not end.
#[test]
fn a_fast_disk_whose_journal_could_not_be_written_makes_the_store_read_only_and_it_says_so() {
    struct Heard(Mutex<u32>);
    impl Listener for Heard {
        fn event(&self, event: &StoreEvent) {
            *self.0.lock().unwrap() += u32::from(matches!(event, StoreEvent::Failed { .. }));
        }
    }
    let mut failures = 0;
    for_each_seed(500, 24, |seed| {
        failures += World::run(seed, 1200, 400, |world| {
            let heard = Arc::new(Heard(Mutex::default()));
            let mut options = small_options(&mut Rng::new(seed));
            options.listener = Some(Arc::clone(&heard) as Arc<dyn Listener>);
            let store = world.open(options).unwrap();
            let keyspace = store.default_keyspace();
            let put = |key: u64| keyspace.put_with(key.to_be_bytes(), [1; 50], Durability::Synced);
            (0..150).for_each(|key| put(key).unwrap());
            let fault = Rule::new(Fault::Io).on(&[Operation::WritePages]).within(JOURNAL).nth(seed % 8);
            world.device.set_faults(FaultPlan::none().with(fault));
            let kept: Vec<u64> = (150..450).filter(|key| put(*key).is_ok()).collect();
            world.device.set_faults(FaultPlan::none());
            world.env.clock.sleep(Duration::from_secs(60));
            let failure = store.properties().failure;
            assert_eq!(put(450).is_ok(), failure.is_none(), "{failure:?}");
            assert_eq!(u32::from(failure.is_some()), *heard.0.lock().unwrap());
            if let Some(failure) = &failure {
                let text = failure.to_string();
                assert!(text.contains("journal") && text.contains("open the store again"), "{text}");
            }
            let _ = store.close();
            let store = world.open_small(seed).unwrap();
            for key in (0..150).chain(kept) {
                assert!(store.get(key.to_be_bytes()).unwrap().is_some(), "key {key}");
            }
            (450..700u64).for_each(|key| store.put(key.to_be_bytes(), [1; 50]).unwrap());
            store.close().unwrap();
            u32::from(failure.is_some())
        });
    });
    assert!(failures > 5, "{failures} of 24");
}

/// The last write to a disk that was let go of failed, and the home was full for a moment, much later: then the store found the
/// failure of a disk that it did not have any more, and took no more writes.
#[test]
fn a_drained_store_outlives_its_former_fast_disk() {
    let mut cases = 0;
    for nth in 0..60 {
        cases += World::run(7, 1200, 400, |world| {
            let store = world.open_small(7).unwrap();
            let keyspace = store.default_keyspace();
            let put = |key: u64| keyspace.put_with(key.to_be_bytes(), [1; 50], Durability::Synced);
            (0..150).for_each(|key| put(key).unwrap());
            store.flush().unwrap();
            let fault = Rule::new(Fault::Io).on(&[Operation::WritePages]).within(JOURNAL).nth(nth);
            world.device.set_faults(FaultPlan::none().with(fault));
            let first = store.drain_fast_disk();
            world.device.set_faults(FaultPlan::none());
            let again = store.drain_fast_disk();
            let was_drained = again.is_err_and(|error| error.to_string().contains("no fast disk"));
            if first.is_ok() || !was_drained {
                let _ = store.close();
                return 0;
            }
            let full = Rule::new(Fault::NoSpace).on(&[Operation::Create]);
            world.home.set_faults(FaultPlan::none().with(full));
            (1000..1400).for_each(|key| _ = put(key));
            world.env.clock.sleep(Duration::from_secs(5));
            world.home.set_faults(FaultPlan::none());
            world.env.clock.sleep(Duration::from_secs(600));
            put(2000).unwrap();
            store.close().unwrap();
            1
        });
    }
    assert!(cases > 0);
}

/// What a closed store leaves on the device needs nothing that is not durable: no power failure after that changes anything.
#[test]
fn a_raw_disk_is_consistent_when_its_store_is_closed() {
    for_each_seed(600, 10, |seed| {
        World::run(seed, 1200, 400, |world| {
            let store = world.open_small(seed).unwrap();
            (0..400u64).for_each(|key| store.put(key.to_be_bytes(), [seed as u8; 100]).unwrap());
            store.wait_idle().unwrap();
            store.close().unwrap();
            let files = |device: &SimDevice| volume(&world.env, device).unwrap().list().unwrap();
            let left = files(&world.device);
            assert!(left.iter().any(|file| matches!(file.name, FileName::Table(_))));
            for crash in 0..5 {
                let after = world.crash(seed * 10 + crash);
                is_sound(&world.env, &after.device);
                assert_eq!(files(&after.device), left);
                let store = after.open_small(seed).unwrap();
                assert!((0..400u64).all(|key| store.get(key.to_be_bytes()).unwrap().is_some()));
                store.close().unwrap();
            }
        });
    });
}

/// Segments would fill the area of the log. So the store says so before anything is written there.
#[test]
fn a_home_on_a_raw_disk_takes_no_value_log_and_says_so_at_once() {
    let sim = SimExecutor::new(31);
    let device = formatted(&sim.env(), FaultPlan::none(), 8000, 2000);
    sim.run(|| {
        let open = |value_log_min_bytes| {
            let mut options = Options::default();
            options.keyspace.value_log_min_bytes = value_log_min_bytes;
            let home = Arc::new(volume(&sim.env(), &device).unwrap());
            fast::tiered(options).env(sim.env()).open_volume(home)
        };
        let refused = |error: Error| {
            assert!(matches!(error, Error::Invalid(_)), "{error}");
            assert!(error.to_string().contains("value_log_min_bytes"), "{error}");
        };
        refused(open(Some(4096)).map(drop).unwrap_err());
        assert!(volume(&sim.env(), &device).unwrap().list().unwrap().is_empty(), "nothing was written");
        let store = open(None).unwrap();
        let mut options = KeyspaceOptions::default();
        options.value_log_min_bytes = Some(4096);
        refused(store.create_keyspace("large", options).map(drop).unwrap_err());
        assert_eq!(store.keyspace_names(), ["default"]);
        store.close().unwrap();
    });
}
