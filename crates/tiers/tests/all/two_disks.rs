//! A store on two disks: which belong together, what lies where, what happens when the fast one is full, slow, fails or
//! is gone.

use crate::common::fast;
use crate::common::fast::{builder, fill, holds, small};
use crate::skipped;
use situ_base::Env;
use situ_device::{Backend, OpenOptions};
use situ_engine::{Durability, Error, Listener, Options, RepairOptions, Store, StoreEvent};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use situ_storage::{DirectoryVolume, FileName, Volume};
use situ_tiers::{FAST, TieredBuilder, TieredRepair, TieredStore, repair_directory, verify_directory, verify_volumes};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The names of a store's files in a directory.
fn files(directory: &Path) -> Vec<FileName> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    files.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn has(directory: &Path, kind: fn(&FileName) -> bool) -> bool {
    files(directory).iter().any(kind)
}

fn is_log(name: &FileName) -> bool {
    matches!(name, FileName::Log(_))
}

fn is_table(name: &FileName) -> bool {
    matches!(name, FileName::Table(_))
}

fn refused(result: Result<Store, Error>) -> String {
    match result {
        Err(Error::Disks(text)) => text,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("the store opened"),
    }
}

struct Places {
    _root: tempfile::TempDir,
    home: std::path::PathBuf,
    fast: std::path::PathBuf,
}

fn places() -> Places {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    Places { _root: root, home, fast }
}

#[test]
fn the_log_and_the_tables_lie_on_the_fast_disk_and_the_manifest_at_home() {
    let Places { home, fast, .. } = &places();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 2000);
    store.wait_idle().unwrap();
    store.check().unwrap();
    assert!(has(fast, is_log) && has(fast, is_table));
    assert!(!has(home, is_log) && !has(home, is_table), "{:?}", files(home));
    assert!(files(home).contains(&FileName::Current) && files(home).contains(&FileName::Disks));
    assert!(store.default_keyspace().tables().iter().all(|table| table.volume == FAST));
    let placement = store.placement().unwrap();
    assert_eq!((placement.tables_spilled, placement.log_files_spilled), (0, 0));
    assert!(placement.fast_bytes_written > 200_000 && placement.fast_table_bytes > 0);
    store.close().unwrap();
    // Found again by itself, by whoever opens, reads, verifies.
    let store = builder(None).open(home).unwrap();
    holds(&store, 2000);
    store.close().unwrap();
    let store = fast::tiered(small()).read_only().open(home).unwrap();
    holds(&store, 2000);
    drop(store);
    let report = verify_directory(home, &mut |_| {}).unwrap();
    assert!(report.is_sound() && report.orphans.is_empty(), "{report}");
    assert!(repair_directory(home, RepairOptions::default()).unwrap().was_sound);
    situ_tiers::destroy(home).unwrap();
    assert!(!home.exists() && !fast.exists());
}

#[test]
fn a_fast_disk_is_added_to_a_store_that_has_none() {
    let Places { home, fast, .. } = &places();
    let store = builder(None).open(home).unwrap();
    fill(&store, 0, 1000);
    store.close().unwrap();
    assert!(!files(home).contains(&FileName::Disks));
    let store = builder(Some(fast)).open(home).unwrap();
    holds(&store, 1000);
    fill(&store, 1000, 1000);
    store.wait_idle().unwrap();
    assert!(has(fast, is_log) && !has(home, is_log));
    store.close().unwrap();
    let store = builder(Some(fast)).open(home).unwrap();
    holds(&store, 2000);
    store.close().unwrap();
}

#[test]
fn a_store_does_not_open_without_its_fast_disk_and_says_what_lies_on_it() {
    let Places { home, fast, .. } = &places();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 2000);
    store.wait_idle().unwrap();
    store.put(b"last", b"write").unwrap();
    store.close().unwrap();
    let elsewhere = fast.with_file_name("elsewhere");
    std::fs::rename(fast, &elsewhere).unwrap();
    let text = refused(builder(None).open(home));
    for part in ["fast disk", "the log (", "table", "of level ", "repair --without-fast-disk", fast.to_str().unwrap()] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // An empty place where it was: not mounted.
    std::fs::create_dir(fast).unwrap();
    assert!(refused(builder(Some(fast)).open(home)).contains("Is it mounted?"));
    assert!(refused(builder(None).open(home)).contains("Is it mounted?"));
    // Elsewhere, it is found when it is named, and remembered there.
    let store = builder(Some(&elsewhere)).open(home).unwrap();
    holds(&store, 2000);
    store.close().unwrap();
    let store = builder(None).open(home).unwrap();
    assert_eq!(store.get(b"last").unwrap().as_deref(), Some(&b"write"[..]));
    store.close().unwrap();
}

#[test]
fn disks_that_are_another_stores_or_in_use_are_refused() {
    let Places { home, fast, .. } = &places();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 100);
    let other = home.with_file_name("other");
    assert!(refused(builder(Some(fast)).open(&other)).contains("another store"));
    store.close().unwrap();
    assert!(refused(builder(Some(fast)).open(&other)).contains("another store"));
    // The home of one store as the fast disk of another, and of itself.
    builder(None).open(&other).unwrap().close().unwrap();
    let third = home.with_file_name("third");
    assert!(refused(builder(Some(&other)).open(&third)).contains("holds files of a store"));
    assert!(refused(builder(Some(&third)).open(&third)).contains("another place"));
    // A second fast disk.
    assert!(refused(builder(Some(&home.with_file_name("empty"))).open(home)).contains("has no file MEMBER"));
    builder(None).open(home).unwrap().close().unwrap();
}

#[test]
fn what_a_dead_fast_disk_had_is_named_and_the_rest_goes_on() {
    let Places { home, fast, .. } = &places();
    // What is older lies at home.
    let store = builder(None).open(home).unwrap();
    fill(&store, 0, 1000);
    store.default_keyspace().compact(None, None).unwrap();
    store.close().unwrap();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 5000, 400);
    store.flush().unwrap();
    store.put(b"unflushed", b"1").unwrap();
    store.close().unwrap();
    std::fs::remove_dir_all(fast).unwrap();
    assert!(matches!(repair_directory(home, RepairOptions::default()), Err(Error::Disks(_))));
    let how = |dry_run| RepairOptions::default().dry_run(dry_run).options(small()).without_fast_disk(true);
    let plan = repair_directory(home, how(true)).unwrap();
    assert!(refused(builder(None).open(home)).contains("not found"), "a dry run changes nothing");
    let report = repair_directory(home, how(false)).unwrap();
    assert_eq!(plan.lost_ranges, report.lost_ranges);
    assert!(!report.lost_writes.is_empty(), "the log is gone: {report}");
    let is_lost = |key: &[u8]| report.lost_ranges.iter().any(|lost| lost.contains(key));
    assert!(is_lost(b"key 005123") && !is_lost(b"key 000500"), "{report}");
    let store = builder(None).open(home).unwrap();
    holds(&store, 1000);
    assert!(store.get(b"key 005123").unwrap().is_none());
    store.check().unwrap();
    store.close().unwrap();
    // Another one can be added.
    let store = builder(Some(fast)).open(home).unwrap();
    holds(&store, 1000);
    store.close().unwrap();
    assert!(verify_directory(home, &mut |_| {}).unwrap().is_sound());
}

#[test]
fn a_drained_disk_is_not_needed_any_more_and_can_be_added_again() {
    let Places { home, fast, .. } = &places();
    let store = builder(Some(fast)).open(home).unwrap();
    store.create_keyspace("quiet", situ_engine::KeyspaceOptions::default()).unwrap();
    fill(&store, 0, 2000);
    let iterator = store.cursor().unwrap();
    // Somebody writes all the time.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (store, stop) = (store.clone(), Arc::clone(&stop));
        move || {
            let mut n = 2000;
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                fill(&store, n, 100);
                n += 100;
            }
            n
        }
    });
    let holder = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(iterator);
    });
    store.drain_fast_disk().unwrap();
    holder.join().unwrap();
    stop.store(true, std::sync::atomic::Ordering::Release);
    let count = writer.join().unwrap();
    assert!(files(fast).iter().all(|name| *name == FileName::Lock), "{:?}", files(fast));
    assert!(has(home, is_log) && has(home, is_table));
    assert!(store.placement().is_none());
    assert!(matches!(store.drain_fast_disk(), Err(Error::Invalid(_))));
    holds(&store, count);
    store.check().unwrap();
    store.close().unwrap();
    std::fs::remove_dir_all(fast).unwrap();
    assert!(verify_directory(home, &mut |_| {}).unwrap().is_sound());
    let store = builder(None).open(home).unwrap();
    holds(&store, count);
    store.close().unwrap();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, count, 1000);
    holds(&store, count + 1000);
    assert!(has(fast, is_log));
    store.close().unwrap();
}

/// No store chooses a thread that polls for submissions; a program that has a core for it brings its own volume.
#[test]
fn a_program_may_bring_a_fast_disk_with_a_submission_thread() {
    let Places { home, fast, .. } = &places();
    std::fs::File::create(fast).unwrap().set_len(64 << 20).unwrap();
    std::fs::create_dir(home).unwrap();
    let how = OpenOptions { backend: Backend::RingWithThread, ..OpenOptions::default() };
    let device = match situ_device::open(fast, how) {
        Ok(device) => device,
        Err(error) => return skipped::skipped(format_args!("no ring with a submission thread: {error}")),
    };
    RawVolume::format(Arc::clone(&device), Env::system(), &FormatOptions::default()).unwrap();
    let volume: Arc<dyn Volume> = Arc::new(RawVolume::open(device, Env::system(), RawOptions::default()).unwrap());
    let capacity: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(home).unwrap());
    let store = builder(None).open_volumes(Arc::clone(&capacity), Some(volume)).unwrap();
    store.default_keyspace().put_with(b"synced", b"1", Durability::Synced).unwrap();
    fill(&store, 0, 500);
    store.wait_idle().unwrap();
    holds(&store, 500);
    let location = store.placement().unwrap().fast_location;
    assert!(location.contains("with a submission thread"), "{location}");
    store.close().unwrap();
}

/// A preallocated file stands for a device.
#[test]
fn a_disk_without_a_file_system_is_a_fast_disk() {
    let Places { home, fast, .. } = &places();
    std::fs::create_dir(fast.parent().unwrap()).ok();
    std::fs::File::create(fast).unwrap().set_len(64 << 20).unwrap();
    assert!(builder(Some(fast)).open(home).is_err(), "it was not prepared");
    let device = || situ_device::open(fast, situ_device::OpenOptions::default()).unwrap();
    RawVolume::format(device(), Env::system(), &FormatOptions::default()).unwrap();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 3000);
    store.wait_idle().unwrap();
    store.check().unwrap();
    assert!(!has(home, is_log) && !has(home, is_table), "{:?}", files(home));
    assert!(store.default_keyspace().tables().iter().all(|table| table.volume == FAST));
    let memory = store.placement().unwrap().fast_cache_bytes_max;
    assert_eq!(memory, RawOptions::default().cache_bytes);
    store.close().unwrap();
    let store = builder(None).open(home).unwrap();
    holds(&store, 3000);
    store.close().unwrap();
    assert!(verify_directory(home, &mut |_| {}).unwrap().is_sound());
    assert!(RawVolume::check(device(), Env::system()).unwrap().problems.is_empty());
    let store = fast::tiered(small()).read_only().open(home).unwrap();
    holds(&store, 3000);
    drop(store);
    let store = builder(None).open(home).unwrap();
    assert!(builder(None).open(home).is_err(), "it is locked");
    store.drain_fast_disk().unwrap();
    store.close().unwrap();
    assert!(RawVolume::open(device(), Env::system(), RawOptions::default()).unwrap().list().unwrap().is_empty());
    // Another store can have it now.
    let other = home.with_file_name("other");
    let store = builder(Some(fast)).open(&other).unwrap();
    fill(&store, 0, 100);
    store.close().unwrap();
    situ_tiers::destroy(&other).unwrap();
    assert!(!other.exists() && fast.exists());
    let left = RawVolume::open(device(), Env::system(), RawOptions::default()).unwrap().list().unwrap();
    assert!(left.is_empty(), "what a store left that is gone: {left:?}");
    let store = builder(None).open(home).unwrap();
    holds(&store, 3000);
    store.close().unwrap();
}

#[derive(Default)]
struct Heard(Mutex<Vec<StoreEvent>>);

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

struct World {
    executor: SimExecutor,
    home: SimVolume,
    fast: SimVolume,
    heard: Arc<Heard>,
}

impl World {
    fn new(seed: u64) -> World {
        let executor = SimExecutor::new(seed);
        let volume = |place| SimVolume::named(&executor.env(), place, FaultPlan::none(), seed);
        let (home, fast) = (volume("home"), volume("fast"));
        World { executor, home, fast, heard: Arc::default() }
    }

    fn open(&self, mut options: Options) -> Store {
        options.listener = Some(Arc::clone(&self.heard) as Arc<dyn Listener>);
        let builder = fast::tiered(options).env(self.executor.env());
        builder.open_volumes(Arc::new(self.home.clone()), Some(Arc::new(self.fast.clone()))).unwrap()
    }

    fn heard(&self, what: fn(&StoreEvent) -> bool) -> usize {
        self.heard.0.lock().unwrap().iter().filter(|event| what(event)).count()
    }
}

fn is_spill(event: &StoreEvent) -> bool {
    matches!(event, StoreEvent::TableSpilled { .. })
}

fn is_failure(event: &StoreEvent) -> bool {
    matches!(event, StoreEvent::JobFailed { .. } | StoreEvent::Failed { .. })
}

/// No error is seen by anybody when the fast disk is full: log and tables go on at home.
#[test]
fn promise_7_a_full_fast_disk_spills_without_an_error() {
    for room in [30 << 10, 100 << 10, 200 << 10] {
        let world = World::new(room);
        world.executor.run(|| {
            world.fast.set_faults(FaultPlan::none().capacity(room));
            let store = world.open(small());
            fill(&store, 0, 4000);
            store.wait_idle().unwrap();
            store.check().unwrap();
            assert_eq!(world.heard(is_failure), 0, "{:?}", world.heard.0.lock().unwrap());
            let placement = store.placement().unwrap();
            assert!(placement.tables_spilled + placement.log_files_spilled > 0 || placement.pointer < 7);
            assert!(store.default_keyspace().tables().iter().any(|table| table.volume != FAST));
            holds(&store, 4000);
            store.close().unwrap();
            let store = world.open(small());
            holds(&store, 4000);
            store.close().unwrap();
        });
    }
}

/// A fast disk that says that it has room, and has none when it is written to, and one that fails to write tables.
#[test]
fn promise_7_a_table_that_cannot_be_written_to_the_fast_disk_goes_to_the_other() {
    for fault in [Fault::NoSpace, Fault::Io] {
        for operation in [Operation::Create, Operation::Append, Operation::Sync] {
            let world = World::new(7);
            world.executor.run(|| {
                let store = world.open(small());
                fill(&store, 0, 500);
                let rule = Rule::new(fault).on(&[operation]).files(&[FileKind::Table]);
                world.fast.set_faults(FaultPlan::none().with(rule));
                fill(&store, 500, 2500);
                store.wait_idle().unwrap();
                assert_eq!(world.heard(is_failure), 0, "{:?}", world.heard.0.lock().unwrap());
                assert!(world.heard(is_spill) > 0);
                let placement = store.placement().unwrap();
                let expected =
                    if fault == Fault::Io { placement.fast_write_failures } else { placement.tables_spilled };
                assert!(expected > 0, "{placement:?}");
                holds(&store, 3000);
                store.check().unwrap();
                store.close().unwrap();
                // Nothing is left of what was begun.
                world.fast.set_faults(FaultPlan::none());
                let report = verify_volumes(
                    &(Arc::new(world.home.clone()) as Arc<dyn Volume>),
                    Some(&(Arc::new(world.fast.clone()) as Arc<dyn Volume>)),
                    &world.executor.env(),
                    &mut |_| {},
                );
                let report = report.unwrap();
                assert!(report.is_sound() && report.orphans.is_empty(), "{fault:?} {operation:?}: {report}");
            });
        }
    }
}

#[test]
fn promise_7_a_log_that_fails_on_the_fast_disk_makes_the_store_read_only_and_says_which_disk() {
    let world = World::new(8);
    world.executor.run(|| {
        let store = world.open(small());
        fill(&store, 0, 2000);
        store.wait_idle().unwrap();
        world.fast.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::WritePages])));
        let mut batch = situ_engine::WriteBatch::new();
        batch.put_in(store.default_keyspace(), b"k", b"v").unwrap();
        let error = store.write_with(batch, Durability::Synced).unwrap_err();
        let text = format!("{error} {}", store.properties().failure.unwrap());
        assert!(text.contains("fast/") && text.contains("on the fast disk"), "{text}");
        holds(&store, 2000);
        let _ = store.close();
        world.fast.set_faults(FaultPlan::none());
        let store = world.open(small());
        holds(&store, 2000);
        store.close().unwrap();
    });
}

/// A drain that ends early leaves a store that goes on with both disks.
#[test]
fn promise_7_a_drain_that_fails_can_be_asked_for_again() {
    for operation in [Operation::Create, Operation::CreatePages, Operation::Append, Operation::Replace] {
        let world = World::new(10);
        world.executor.run(|| {
            let store = world.open(small());
            fill(&store, 0, 2000);
            store.wait_idle().unwrap();
            world.home.set_faults(FaultPlan::none().with(Rule::new(Fault::NoSpace).on(&[operation])));
            let error = store.drain_fast_disk().unwrap_err();
            assert!(error.is_no_space(), "{operation:?}: {error}");
            assert!(store.properties().failure.is_none(), "{operation:?}");
            world.home.set_faults(FaultPlan::none());
            fill(&store, 2000, 1000);
            store.drain_fast_disk().unwrap();
            holds(&store, 3000);
            store.check().unwrap();
            store.close().unwrap();
            assert!(world.fast.list().unwrap().iter().all(|file| file.name == FileName::Lock));
        });
    }
}

/// The tables of a compaction that failed rest, and are nobody's to take meanwhile: a drain waited for them as long as the
/// compaction went on failing, which could be for ever.
#[test]
fn promise_7_a_drain_does_not_wait_for_tables_that_rest() {
    let world = World::new(11);
    world.executor.run(|| {
        let mut options = small();
        // Everything is read from the disk.
        options.cache_bytes = 0;
        let store = world.open(options);
        fill(&store, 0, 500);
        store.wait_idle().unwrap();
        let unreadable = Rule::new(Fault::Io).on(&[Operation::Read]).files(&[FileKind::Table]);
        world.fast.set_faults(FaultPlan::none().with(unreadable));
        let rests = || world.heard(|event| matches!(event, StoreEvent::CompactionPostponed { .. })) > 0;
        // The same keys again and again, so that compactions have to read.
        for _ in 0..50 {
            if rests() {
                break;
            }
            fill(&store, 0, 100);
            store.flush().unwrap();
            world.executor.env().clock.sleep(Duration::from_millis(10));
        }
        assert!(rests(), "no compaction has failed");
        let ended = Arc::new(Mutex::new(None));
        let (result, draining) = (Arc::clone(&ended), store.clone());
        let drain = move || *result.lock().unwrap() = Some(draining.drain_fast_disk());
        let job = world.executor.env().executor.spawn("drain", Box::new(drain)).unwrap();
        world.executor.env().clock.sleep(Duration::from_secs(3600));
        let error = ended.lock().unwrap().take().expect("an hour later the drain goes on").unwrap_err();
        assert!(error.to_string().contains(".table"), "{error}");
        job.join().unwrap();
        world.fast.set_faults(FaultPlan::none());
        store.drain_fast_disk().unwrap();
        holds(&store, 500);
        store.check().unwrap();
        store.close().unwrap();
    });
}

/// Everything on the fast disk fails, or is not there, from one moment on.
#[test]
fn promise_7_a_fast_disk_that_disappears_leaves_what_is_at_home_readable() {
    for fault in [Fault::Io, Fault::NotFound] {
        let world = World::new(9);
        world.executor.run(|| {
            let home: Arc<dyn Volume> = Arc::new(world.home.clone());
            let builder = fast::tiered(small()).env(world.executor.env());
            let store = builder.open_volume(home).unwrap();
            fill(&store, 0, 1000);
            store.default_keyspace().compact(None, None).unwrap();
            store.close().unwrap();
            let store = world.open(small());
            holds(&store, 1000);
            world.fast.set_faults(FaultPlan::none().with(Rule::new(fault)));
            assert!(store.put(b"k", b"v").is_err() || store.sync().is_err());
            assert!(store.properties().failure.is_some());
            holds(&store, 1000);
            assert!(store.close().is_err());
            world.fast.set_faults(FaultPlan::none());
            let store = world.open(small());
            holds(&store, 1000);
            store.close().unwrap();
        });
    }
}

/// A checkpoint of two disks lies on one, and opens without a fast disk.
#[test]
fn a_checkpoint_of_two_disks_is_a_store_on_one() {
    let Places { home, fast, .. } = &places();
    let copy = home.with_file_name("copy");
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 4000);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    let tables = store.default_keyspace().properties().tables as u64;
    let report = store.checkpoint(&copy).unwrap();
    assert_eq!((report.shared_tables, report.copied_tables), (tables, 0), "{report:?}");
    assert!(tables > 0 && has(fast, is_log) && !has(home, is_log));
    fill(&store, 4000, 100);
    store.close().unwrap();

    let copy_opened = Store::open(&copy).unwrap();
    holds(&copy_opened, 4000);
    assert_eq!(copy_opened.iter().unwrap().count(), 4000);
    copy_opened.close().unwrap();
    let report = verify_directory(&copy, &mut |_| {}).unwrap();
    assert!(report.is_sound() && report.warnings.is_empty(), "{report}");
}
