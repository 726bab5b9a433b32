//! Checkpoints: copies of a store at one moment, made while it takes writes.

use crate::common::*;
use crate::value_log::{assert_sound, in_simulator};
use situ_base::Env;
use situ_engine::{
    CheckpointReport, Durability, Error, Options, RepairOptions, Result, Store, StoreBuilder, Trim, WriteBatch,
    repair_directory, verify_directory,
};
use situ_sim::{CrashPoints, FaultPlan, Rng, SimExecutor, SimVolume, crash_machine_everywhere, for_each_seed};
use situ_storage::{DirectoryVolume, FileMeta, FileName, Lock, PageFile, Reader, Space, Volume, Writer};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn open(env: &Env, volume: &SimVolume, options: Options) -> Result<Store> {
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn checkpoint(store: &Store, target: &SimVolume) -> Result<CheckpointReport> {
    store.checkpoint_into(&(Arc::new(target.clone()) as Arc<dyn Volume>))
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Writes `n` to both keyspaces in one batch, with values that differ in length.
fn write(store: &Store, n: u64) -> Result<()> {
    write_with(store, n, Durability::Buffered)
}

fn write_with(store: &Store, n: u64, durability: Durability) -> Result<()> {
    let mut batch = WriteBatch::new();
    let value = vec![n as u8; (n * 37 % 400) as usize];
    batch.put(key(n), &value)?;
    batch.put_in(&store.existing_keyspace("other")?, key(n), &value)?;
    store.write_with(batch, durability)
}

/// Returns the number of writes that a store has: the first ones, whole.
fn whole_writes(store: &Store) -> u64 {
    let models =
        [store.default_keyspace().clone(), store.existing_keyspace("other").unwrap()].map(|k| contents(&k, None));
    assert_eq!(models[0], models[1], "a batch is not whole");
    for (n, (found, value)) in models[0].iter().enumerate() {
        assert!(*found == key(n as u64) && value.len() == n * 37 % 400, "{found:?} where {n} should be");
    }
    models[0].len() as u64
}

#[test]
fn promise_2_3_a_checkpoint_has_all_writes_before_it_and_a_prefix_of_the_others() {
    for_each_seed(1, 24, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let mut rng = Rng::new(seed);
            let store = open(&env, &SimVolume::new(&env, FaultPlan::none(), seed), small_options(&mut rng)).unwrap();
            store.create_keyspace("other", small_options(&mut rng).keyspace).unwrap();
            let (written, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let writer = {
                let (store, written, ends) = (store.clone(), Arc::clone(&written), Arc::clone(&ends));
                let (clock, mut rng) = (Arc::clone(&env.clock), Rng::new(!seed));
                // A slow writer leaves log files whose ends are written while a checkpoint copies them.
                let (durability, pause) = match seed % 2 {
                    0 => (Durability::Buffered, 20),
                    _ => (Durability::Synced, 200),
                };
                let job = move || {
                    for n in 0.. {
                        if ends.load(Ordering::SeqCst) {
                            return;
                        }
                        clock.sleep(Duration::from_micros(1 + rng.below(pause)));
                        write_with(&store, n, durability).unwrap();
                        written.store(n + 1, Ordering::SeqCst);
                    }
                };
                env.executor.spawn("writer", Box::new(job)).unwrap()
            };
            for round in 0..4 {
                while written.load(Ordering::SeqCst) < 40 * (round + 1) {
                    env.clock.sleep(Duration::from_micros(50));
                }
                let before = written.load(Ordering::SeqCst);
                let slow = FaultPlan::none().latency(Duration::from_micros(1)..Duration::from_micros(4));
                let target = SimVolume::named(&env, "/checkpoint", slow, seed + round);
                let report = checkpoint(&store, &target).unwrap();
                let copy = open(&env, &target, small_options(&mut rng)).unwrap();
                let found = whole_writes(&copy);
                assert!(found >= before, "{found} writes are there, and {before} were acknowledged before");
                assert_eq!(report.last_sequence, 2 * found, "two numbers for each write");
                // The copy is a store of its own.
                write(&copy, found).unwrap();
                copy.flush().unwrap();
                assert_eq!(whole_writes(&copy), found + 1);
                copy.close().unwrap();
                assert_sound(&executor, &target);
            }
            ends.store(true, Ordering::SeqCst);
            writer.join().unwrap();
            assert_eq!(whole_writes(&store), written.load(Ordering::SeqCst));
            store.close().unwrap();
        });
    });
}

#[test]
fn promise_1_4_a_crash_leaves_no_checkpoint_or_a_whole_one() {
    for_each_seed(1, 6, |seed| {
        let points = CrashPoints { points_max: 80, images_per_point: 2, faults: FaultPlan::none() };
        let options = || small_options(&mut Rng::new(seed));
        let images = crash_machine_everywhere(
            seed,
            &points,
            ["/store", "/checkpoint"],
            |env, [volume, target]| {
                let Ok(store) = open(env, volume, options()) else { return None };
                let run = || {
                    store.create_keyspace("other", options().keyspace)?;
                    (0..60).try_for_each(|n| write(&store, n))?;
                    checkpoint(&store, target)?;
                    (60..80).try_for_each(|n| write(&store, n))?;
                    Ok::<(), Error>(())
                };
                Some(run().is_ok())
            },
            |env, [_, target], made| match open(env, &target, options()) {
                Ok(copy) if copy.keyspace_names().len() == 2 => {
                    assert_eq!(whole_writes(&copy), 60);
                    copy.close().unwrap();
                }
                // A store that this opening has just made: the directory held nothing of a checkpoint yet.
                Ok(copy) => {
                    assert!(*made != Some(true) && contents(copy.default_keyspace(), None).is_empty());
                }
                Err(error) => {
                    assert!(*made != Some(true), "{error}");
                    assert!(matches!(error, Error::Existence(_)), "{error}");
                }
            },
        );
        assert!(images > 100, "only {images} images");
    });
}

/// The store erases dead values in its segments, and uses log files again.
#[test]
fn what_the_store_does_later_changes_no_checkpoint() {
    for trim in [Trim::Full, Trim::Off] {
        in_simulator(1, |executor, volume| {
            let env = executor.env();
            let mut options = crate::value_log::options();
            options.value_trim = Some(trim);
            let store = open(&env, volume, options.clone()).unwrap();
            store.create_keyspace("other", options.keyspace.clone()).unwrap();
            (0..400).try_for_each(|n| write(&store, n)).unwrap();
            let target = SimVolume::named(&env, "/checkpoint", FaultPlan::none(), 2);
            checkpoint(&store, &target).unwrap();
            assert!(target.list().unwrap().iter().any(|file| matches!(file.name, FileName::Values(_))));
            for name in ["default", "other"] {
                let keyspace = store.existing_keyspace(name).unwrap();
                keyspace.delete_range(key(0), key(999)).unwrap();
                keyspace.flush().unwrap();
                keyspace.compact(None, None).unwrap();
            }
            (0..300).try_for_each(|n| write(&store, n)).unwrap();
            store.wait_idle().unwrap();
            assert_sound(executor, &target);
            let copy = open(&env, &target, options.clone()).unwrap();
            assert_eq!(whole_writes(&copy), 400);
            copy.close().unwrap();
            store.close().unwrap();
        });
    }
}

#[test]
fn a_target_without_space_gets_nothing_and_the_store_goes_on() {
    in_simulator(3, |executor, volume| {
        let env = executor.env();
        let store = open(&env, volume, small_options(&mut Rng::new(3))).unwrap();
        store.create_keyspace("other", small_options(&mut Rng::new(3)).keyspace).unwrap();
        (0..300).try_for_each(|n| write(&store, n)).unwrap();
        for capacity in [0, 4 << 10, 32 << 10] {
            let target = SimVolume::named(&env, "/checkpoint", FaultPlan::none().capacity(capacity), 3);
            let error = checkpoint(&store, &target).unwrap_err();
            assert!(error.is_no_space(), "{error}");
            assert!(target.list().unwrap().iter().all(|file| file.name == FileName::Lock), "{:?}", target.list());
            write(&store, 300).unwrap();
        }
        // The log is released again.
        store.flush().unwrap();
        store.wait_idle().unwrap();
        let logs = volume.list().unwrap().iter().filter(|file| matches!(file.name, FileName::Log(_))).count();
        assert!(logs <= 3, "{logs} log files are left");
        store.close().unwrap();
    });
}

#[test]
fn tables_of_a_directory_are_shared() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = Store::open(at("store")).unwrap();
    store.create_keyspace("other", Options::default().keyspace).unwrap();
    (0..1000).try_for_each(|n| write(&store, n)).unwrap();
    let report = store.checkpoint(at("a/b")).unwrap();
    assert_eq!((report.shared_tables, report.copied_tables), (2, 0), "{report:?}");

    let error = store.checkpoint(at("a/b")).unwrap_err();
    assert!(matches!(error, Error::Existence(_)), "{error}");
    let error = store.checkpoint(at("store")).unwrap_err();
    assert!(matches!(error, Error::Storage(_)), "the directory of the store itself: {error}");
    let reader = Store::open_read_only(at("store")).unwrap();
    assert!(matches!(reader.checkpoint(at("c")), Err(Error::ReadOnly)));
    drop(reader);

    // Each goes its own way.
    store.delete_range(key(0), key(500)).unwrap();
    store.default_keyspace().compact(None, None).unwrap();
    store.close().unwrap();
    let copy = Store::open(at("a/b")).unwrap();
    assert_eq!(whole_writes(&copy), 1000);
    copy.default_keyspace().compact(None, None).unwrap();
    copy.close().unwrap();
    for name in ["store", "a/b"] {
        let report = verify_directory(at(name), &mut |_| {}).unwrap();
        assert!(report.is_sound() && report.warnings.is_empty(), "{name}: {report}");
    }
    let store = Store::open(at("store")).unwrap();
    assert_eq!(contents(store.default_keyspace(), None).len(), 500);
}

/// A directory that stores share with a file system, and one with a stranger's files.
#[test]
fn a_checkpoint_needs_an_empty_directory_and_makes_a_private_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = Store::open(at("store")).unwrap();
    std::fs::create_dir_all(at("full")).unwrap();
    std::fs::write(at("full/notes"), "x").unwrap();
    let error = store.checkpoint(at("full")).unwrap_err();
    assert!(error.to_string().contains("holds other files (notes), and a checkpoint needs an empty place"), "{error}");
    assert_eq!(std::fs::read_dir(at("full")).unwrap().count(), 1);
    std::fs::create_dir_all(at("disk/lost+found")).unwrap();
    store.checkpoint(at("disk")).unwrap();
    store.checkpoint(at("above/new")).unwrap();
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("above/new"), mode("above"), mode("disk")), (0o700, mode("full"), mode("full")));
}

/// A target that compares files for as long as they can be read, while the store is closed.
struct Comparing {
    inner: DirectoryVolume,
    store: Store,
}

impl Volume for Comparing {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn create(&self, name: FileName, bound: u64) -> situ_storage::Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }
    fn open(&self, name: FileName) -> situ_storage::Result<Arc<dyn Reader>> {
        self.inner.open(name)
    }
    fn link(&self, _: FileName, file: &dyn Reader) -> situ_storage::Result<bool> {
        let store = self.store.clone();
        std::thread::spawn(move || store.close());
        let started = Instant::now();
        // A backup of a large pool takes hours.
        while started.elapsed() < Duration::from_secs(10) {
            file.read_at(0, &mut [0])?;
        }
        Ok(true)
    }
    fn create_pages(&self, name: FileName, bytes: u64) -> situ_storage::Result<Arc<dyn PageFile>> {
        self.inner.create_pages(name, bytes)
    }
    fn open_pages(&self, name: FileName) -> situ_storage::Result<Arc<dyn PageFile>> {
        self.inner.open_pages(name)
    }
    fn replace(&self, name: FileName, contents: &[u8]) -> situ_storage::Result<()> {
        self.inner.replace(name, contents)
    }
    fn rename(&self, from: FileName, to: FileName) -> situ_storage::Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: FileName) -> situ_storage::Result<()> {
        self.inner.remove(name)
    }
    fn sync_names(&self) -> situ_storage::Result<()> {
        self.inner.sync_names()
    }
    fn list(&self) -> situ_storage::Result<Vec<FileMeta>> {
        self.inner.list()
    }
    fn space(&self) -> Space {
        self.inner.space()
    }
    fn lock(&self) -> situ_storage::Result<Box<dyn Lock>> {
        self.inner.lock()
    }
}

/// A stop of a server waited until its backup had compared all files.
#[test]
fn a_store_that_closes_ends_the_comparison_of_a_target() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    store.put("k", "v").unwrap();
    let inner = DirectoryVolume::create(directory.path().join("target")).unwrap();
    let target: Arc<dyn Volume> = Arc::new(Comparing { inner, store: store.clone() });
    let result = store.checkpoint_into(&target);
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    store.close().unwrap();
}

/// An empty store has no table and no record.
#[test]
fn an_empty_store_has_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store")).unwrap();
    let report = store.checkpoint(directory.path().join("copy")).unwrap();
    assert_eq!(report, CheckpointReport::default());
    let copy = Store::open(directory.path().join("copy")).unwrap();
    assert_eq!(copy.first_key().unwrap(), None);
    copy.put("k", "v").unwrap();
    copy.checkpoint(directory.path().join("copy of the copy")).unwrap();
}

/// The file says from which backups a store descends. A copy that lost it is read as a whole, and a copy that kept it
/// wrongly would be taken for the store.
#[test]
fn a_store_keeps_its_lineage_and_a_checkpoint_a_repair_and_a_new_store_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = Store::open(at("store")).unwrap();
    assert!(store.lineage().unwrap().is_empty());
    store.change_lineage(|_| b"one".to_vec()).unwrap();
    store.change_lineage(|before| [before, b"\ntwo"].concat()).unwrap();
    store.checkpoint(at("checkpoint")).unwrap();
    store.close().unwrap();
    assert!(matches!(store.change_lineage(<[u8]>::to_vec), Err(Error::Closed)));
    let reader = Store::open_read_only(at("store")).unwrap();
    assert_eq!(reader.lineage().unwrap(), b"one\ntwo");
    assert!(matches!(reader.change_lineage(<[u8]>::to_vec), Err(Error::ReadOnly)));
    drop(reader);
    assert!(verify_directory(at("store"), &mut |_| {}).unwrap().is_sound());
    let copy = Store::open_read_only(at("checkpoint")).unwrap();
    assert!(copy.lineage().unwrap().is_empty());
    drop(copy);

    std::fs::remove_file(at("store/IDENTITY")).unwrap();
    repair_directory(at("store"), RepairOptions::default()).unwrap();
    assert!(!at("store/LINEAGE").exists());
    std::fs::create_dir(at("new")).unwrap();
    std::fs::write(at("new/LINEAGE"), "of a store that was here before").unwrap();
    let store = Store::open(at("new")).unwrap();
    assert!(store.lineage().unwrap().is_empty());
}
