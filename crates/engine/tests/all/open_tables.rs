//! The bound on open tables: hundreds of tables with room for a few.

use crate::common::*;
use situ_base::Env;
use situ_device::Space;
use situ_engine::{Options, ReadOptions, RepairOptions, Store, StoreBuilder, repair};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{DirectoryVolume, FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const OPEN_MAX: usize = 8;
const ENTRIES: u32 = 8_000;

/// A directory that counts the tables that are open.
struct Counting {
    inner: DirectoryVolume,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    most: AtomicUsize,
    /// How often a table was opened.
    times: AtomicUsize,
}

struct Counted {
    inner: Arc<dyn Reader>,
    counts: Arc<Counts>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Reader for Counted {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, into)
    }
    fn prefetch(&self, offset: u64, bytes: u64) {
        self.inner.prefetch(offset, bytes);
    }
}

impl Volume for Counting {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }
    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        if !matches!(name, FileName::Table(_)) {
            return self.inner.open(name);
        }
        let open = self.counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.counts.most.fetch_max(open, Ordering::SeqCst);
        self.counts.times.fetch_add(1, Ordering::SeqCst);
        let inner = self.inner.open(name)?;
        Ok(Arc::new(Counted { inner, counts: Arc::clone(&self.counts) }))
    }
    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.inner.create_pages(name, bytes)
    }
    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        self.inner.open_pages(name)
    }
    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.inner.replace(name, contents)
    }
    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: FileName) -> Result<()> {
        self.inner.remove(name)
    }
    fn sync_names(&self) -> Result<()> {
        self.inner.sync_names()
    }
    fn list(&self) -> Result<Vec<FileMeta>> {
        self.inner.list()
    }
    fn space(&self) -> Space {
        self.inner.space()
    }
    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.inner.lock()
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.open_tables_max = OPEN_MAX;
    options.cache_bytes = 256 << 10;
    options.compaction_threads = 2;
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 4 << 10;
    options.keyspace.block_bytes = 512;
    options.keyspace.level_base_bytes = 64 << 10;
    options
}

fn open(directory: &Path, read_only: bool) -> (Store, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let volume = Counting { inner: DirectoryVolume::create(directory).unwrap(), counts: Arc::clone(&counts) };
    let builder = StoreBuilder::new(options());
    let builder = if read_only { builder.read_only() } else { builder };
    (builder.open_volume(Arc::new(volume)).unwrap(), counts)
}

/// Scattered over the key space, so that tables of all levels overlap.
fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn value(n: u32, round: u32) -> Vec<u8> {
    let mut value = vec![0; 80];
    let mut rng = Rng::new(u64::from(n) << 32 | u64::from(round));
    value.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
    value
}

fn fill(store: &Store, round: u32) {
    for n in 0..ENTRIES {
        store.put(key(n), value(n, round)).unwrap();
    }
    store.flush().unwrap();
    store.wait_idle().unwrap();
}

fn tables(store: &Store) -> usize {
    store.default_keyspace().tables().len()
}

fn contents(round: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..ENTRIES).map(|n| (key(n).to_vec(), value(n, round))).collect()
}

fn check_all(store: &Store, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut iterator = store.cursor().unwrap();
    iterator.seek_to_first().unwrap();
    for (key, value) in expected {
        assert_eq!(iterator.key(), Some(&key[..]));
        assert_eq!(iterator.value(), Some(&value[..]));
        iterator.next().unwrap();
    }
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    for key in expected.keys().rev() {
        assert_eq!(iterator.key(), Some(&key[..]));
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid());
}

/// There was no bound: descriptors, indexes and filters grew with the data.
#[test]
fn promise_8_open_tables_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (store, counts) = open(directory.path(), false);
    fill(&store, 0);
    assert!(tables(&store) > 200, "{} tables", tables(&store));
    let old = contents(0);
    check_all(&store, &old);
    // Iterators that stand in different tables take turns, and go on over tables that are replaced under them.
    let snapshot = store.snapshot().unwrap();
    let mut iterators: Vec<_> =
        (0..8).map(|_| store.cursor_with(&ReadOptions::default().at(&snapshot)).unwrap()).collect();
    let mut wanted: Vec<_> = (0..8).map(|n| old.range(key(n * 1000).to_vec()..).take(300)).collect();
    for (n, iterator) in iterators.iter_mut().enumerate() {
        iterator.seek(&key(n as u32 * 1000)).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    let n = rng.below(u64::from(ENTRIES)) as u32;
                    let found = store.get(key(n)).unwrap().expect("it was written");
                    assert!(*found == value(n, 0)[..] || *found == value(n, 1)[..]);
                    let properties = store.properties();
                    assert!(properties.table_descriptors <= OPEN_MAX && properties.tables_open <= OPEN_MAX);
                }
            });
        }
        fill(&store, 1);
        for _ in 0..300 {
            for (iterator, wanted) in iterators.iter_mut().zip(&mut wanted) {
                let Some((key, value)) = wanted.next() else { continue };
                assert_eq!((iterator.key(), iterator.value()), (Some(&key[..]), Some(&value[..])));
                iterator.next().unwrap();
            }
        }
        drop(iterators);
        drop(snapshot);
        store.default_keyspace().compact(None, None).unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    check_all(&store, &contents(1));
    assert!(tables(&store) > 200, "{} tables", tables(&store));
    assert!(counts.most.load(Ordering::SeqCst) <= OPEN_MAX, "{} were open", counts.most.load(Ordering::SeqCst));
    assert!(store.properties().tables_open <= OPEN_MAX);
    store.close().unwrap();
    drop(store);
    assert_eq!(counts.open.load(Ordering::SeqCst), 0, "nothing stays open");
}

#[test]
fn promise_8_opening_a_large_store_reads_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path(), false);
    fill(&store, 0);
    store.close().unwrap();
    drop(store);
    for read_only in [false, true] {
        let (store, counts) = open(directory.path(), read_only);
        assert!(tables(&store) > 200);
        assert_eq!(counts.times.load(Ordering::SeqCst), 0, "read-only: {read_only}");
        assert_eq!(store.get(key(5)).unwrap().as_deref(), Some(&value(5, 0)[..]));
        assert!(counts.times.load(Ordering::SeqCst) < 10, "one for each level at most");
        check_all(&store, &contents(0));
        assert!(counts.most.load(Ordering::SeqCst) <= OPEN_MAX);
        store.close().unwrap();
    }
    let report = situ_engine::verify_directory(directory.path(), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report}");
}

/// While the bound is not reached, each table is opened once.
#[test]
fn tables_stay_open_while_there_is_room() {
    for bound in [400, 100_000] {
        let directory = tempfile::tempdir().unwrap();
        let counts = Arc::new(Counts::default());
        let volume =
            Counting { inner: DirectoryVolume::create(directory.path()).unwrap(), counts: Arc::clone(&counts) };
        let mut options = options();
        options.open_tables_max = bound;
        let store = StoreBuilder::new(options).open_volume(Arc::new(volume)).unwrap();
        fill(&store, 0);
        check_all(&store, &contents(0));
        let (times, live) = (counts.times.load(Ordering::SeqCst), tables(&store));
        assert!((200..400).contains(&live), "{live} tables");
        assert_eq!(store.properties().tables_open, live);
        check_all(&store, &contents(0));
        assert_eq!(counts.times.load(Ordering::SeqCst), times);
        store.close().unwrap();
    }
}

/// In the simulator, reads that take time meet at one, two or three descriptors, while tables come and go.
#[test]
fn promise_8_readers_wait_for_a_descriptor_and_nobody_waits_for_ever() {
    for_each_seed(0, 12, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let mut rng = Rng::new(seed);
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            let mut options = small_options(&mut rng);
            let bound = 1 + rng.below(3) as usize;
            options.open_tables_max = bound;
            options.cache_bytes = 0;
            options.keyspace.memtable_bytes = 4 << 10;
            options.keyspace.table_bytes = 1 << 10;
            let store = StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap();
            let slow =
                Rule::new(Fault::Delay(Duration::from_micros(300))).on(&[Operation::Read]).files(&[FileKind::Table]);
            volume.set_faults(FaultPlan::none().with(slow));
            let put = |n: u32| store.put(key(n), value(n, 0)).unwrap();
            (0..200).for_each(put);
            let readers: Vec<_> = (0..3u64)
                .map(|thread| {
                    let store = store.clone();
                    let read = move || {
                        for n in 0..60u32 {
                            let n = n * 3 % 200;
                            assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&value(n, 0)[..]), "{thread}");
                            assert!(store.properties().table_descriptors <= bound);
                        }
                    };
                    executor.env().executor.spawn("reader", Box::new(read)).unwrap()
                })
                .collect();
            (200..300).for_each(put);
            store.flush().unwrap();
            store.default_keyspace().compact(None, None).unwrap();
            readers.iter().for_each(|reader| reader.join().unwrap());
            assert!(store.properties().tables_open <= bound);
            store.close().unwrap();
        });
    });
}

/// A repair asks the tables what they hide of the log. It kept every table open that it had asked, so that it failed in a store of more
/// tables than the system lets a process open.
#[test]
fn promise_8_a_repair_keeps_no_more_tables_open_than_may_be() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path(), false);
    fill(&store, 0);
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    assert!(tables(&store) > 10 * OPEN_MAX, "{} tables", tables(&store));
    let mut expected = contents(0);
    // One write in each table, in the log.
    for n in (0..ENTRIES).step_by(ENTRIES as usize / 200) {
        store.put(key(n), value(n, 1)).unwrap();
        expected.insert(key(n).to_vec(), value(n, 1));
    }
    store.close().unwrap();
    std::fs::remove_file(directory.path().join("CURRENT")).unwrap();
    let counts = Arc::new(Counts::default());
    let volume = Counting { inner: DirectoryVolume::open(directory.path()).unwrap(), counts: Arc::clone(&counts) };
    let volume = Arc::new(volume) as Arc<dyn Volume>;
    let report = repair(&volume, &Env::system(), RepairOptions::default().options(options())).unwrap();
    assert!(report.nothing_lost() && report.log_records > 0, "{report:?}");
    drop(volume);
    let most = counts.most.load(Ordering::SeqCst);
    assert!(most <= 2 * OPEN_MAX, "{most} tables open");
    let (store, _) = open(directory.path(), false);
    check_all(&store, &expected);
    store.check().unwrap();
}
