//! A table that a unit elsewhere has made is opened and read once by the host: to look whether it is the one that the unit tells of. It
//! stays open until it is installed. It was opened and read a second time then, over the network if it lies on a node.

use situ_base::Env;
use situ_compaction::{Task, run};
use situ_device::Space;
use situ_engine::{KeyspaceOptions, Options, Store, StoreBuilder};
use situ_offload::{Assignment, Finished, Load, Offer, Offload, Policy, Ran, Refused, Scheduler, Split, Unit};
use situ_sim::{FaultPlan, Rng, SimVolume};
use situ_storage::{FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Runs tasks inside `submit`, and lies about the first one if it is told to.
#[derive(Default)]
struct Inside {
    finished: Mutex<Vec<Finished>>,
    lies_once: AtomicBool,
}

impl Unit for Inside {
    fn name(&self) -> &str {
        "inside"
    }

    fn offer(&self, _: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks_max: 100, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> std::result::Result<(), Refused> {
        let mut result = run(&assignment.task, &*assignment.host);
        if let (Ok(output), true) = (&mut result, self.lies_once.swap(false, Ordering::Relaxed)) {
            output.tables[0].summary.bytes += 1;
        }
        let attempt = assignment.attempt;
        let finished = Finished { attempt, result, elapsed: Duration::ZERO, ran: Ran::default() };
        self.finished.lock().unwrap().push(finished);
        assignment.done.notify();
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {}
}

/// Counts how often each file is opened.
struct Opens {
    inner: SimVolume,
    of: Mutex<BTreeMap<FileName, usize>>,
}

impl Opens {
    fn new() -> Arc<Opens> {
        Arc::new(Opens { inner: SimVolume::new(&Env::system(), FaultPlan::none(), 1), of: Mutex::default() })
    }
}

impl Volume for Opens {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        *self.of.lock().unwrap().entry(name).or_default() += 1;
        self.inner.open(name)
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

const KEYS: u32 = 2000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Bytes that do not compress.
fn value(number: u32, round: u64) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number) << 8 | round);
    (0..100).map(|_| rng.below(256) as u8).collect()
}

/// Reads a key of each table, and then some.
fn check(store: &Store) {
    for number in (0..KEYS).step_by(50) {
        assert_eq!(store.get(key(number)).unwrap().unwrap()[..], value(number, 1)[..]);
    }
}

/// A store whose tables are all made by the unit, but those of level 0.
fn compacted(volume: &Arc<Opens>, unit: &Arc<Inside>) -> Store {
    let keyspace = KeyspaceOptions::default().level0_tables(100).table_bytes(32 << 10);
    let policy = Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::default() };
    let offload = Offload::new().policy(policy).unit(Arc::clone(unit) as Arc<dyn Unit>);
    let builder = StoreBuilder::new(Options::default().keyspace(keyspace)).compactor(offload);
    let store = builder.open_volume(Arc::clone(volume) as Arc<dyn Volume>).unwrap();
    for round in 0..2 {
        (0..KEYS).for_each(|number| store.put(key(number), value(number, round)).unwrap());
        store.flush().unwrap();
    }
    store.compact(None, None).unwrap();
    store
}

/// Tables of the store, and how often each was opened.
fn opened(store: &Store, volume: &Opens) -> Vec<(u64, usize)> {
    let opens = volume.of.lock().unwrap();
    let of = |number| opens.get(&FileName::Table(number)).copied().unwrap_or(0);
    store.default_keyspace().tables().iter().map(|table| (table.number, of(table.number))).collect()
}

#[test]
fn a_table_from_elsewhere_is_opened_once() {
    let volume = Opens::new();
    let unit = Arc::new(Inside::default());
    let store = compacted(&volume, &unit);
    check(&store);
    let opened = opened(&store, &volume);
    assert!(opened.len() > 4, "{opened:?}");
    assert!(opened.iter().all(|(_, times)| *times == 1), "{opened:?}");
    store.close().unwrap();
}

/// What is not believed is closed and deleted like any other table that comes to nothing.
#[test]
fn a_table_that_is_not_the_one_told_of_is_closed_and_deleted() {
    let volume = Opens::new();
    let unit = Arc::new(Inside { lies_once: AtomicBool::new(true), ..Inside::default() });
    let store = compacted(&volume, &unit);
    check(&store);
    let suspicious: u64 = Scheduler::of(store.compactor()).unwrap().reports().iter().map(|unit| unit.suspicious).sum();
    assert_eq!(suspicious, 1);
    let in_force = opened(&store, &volume).len();
    let is_table = |file: &FileMeta| matches!(file.name, FileName::Table(_));
    let tables = || volume.list().unwrap().into_iter().filter(is_table).count();
    let deadline = Instant::now() + Duration::from_secs(20);
    while tables() > in_force {
        assert!(Instant::now() < deadline, "{} tables, {in_force} are in force", tables());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.properties().tables_open, in_force, "what was looked at and not installed is closed");
    store.close().unwrap();
}
