//! Drains that fail: the store goes on with its fast disk or takes no more writes, and the drain can be asked for again.

use crate::common::fast;
use crate::common::fast::{fill, holds, small};
use situ_base::Env;
use situ_device::Space;
use situ_engine::{Durability, Error, Options, Store};
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimExecutor, SimVolume};
use situ_storage::{FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use situ_tiers::{TieredBuilder, TieredStore};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A home whose names cannot be made durable, so often, after DISKS has its new contents: as a directory that renames the file, and
/// then cannot be synced.
struct InDoubt {
    inner: SimVolume,
    times: AtomicU32,
}

impl Volume for InDoubt {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.inner.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        self.inner.open(name)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.inner.create_pages(name, bytes)
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        self.inner.open_pages(name)
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.inner.replace(name, contents)?;
        let less = |times: u32| times.checked_sub(1);
        if name == FileName::Disks && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            let error = std::io::Error::from_raw_os_error(5);
            return Err(situ_storage::Error::io("sync", self.location(), error));
        }
        Ok(())
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
    let mut options = small();
    options.keyspace.memtable_bytes = 64 << 10;
    options
}

fn open(env: &Env, home: Arc<dyn Volume>, fast: Option<&SimVolume>) -> situ_engine::Result<Store> {
    let fast = fast.map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
    fast::tiered(options()).env(env.clone()).open_volumes(home, fast)
}

fn disks(env: &Env) -> (SimVolume, SimVolume) {
    let disk = |name: &str, seed| SimVolume::named(env, name, FaultPlan::none(), seed);
    (disk("home", 1), disk("fast", 2))
}

/// DISKS said that there is no fast disk any more, the drain that had written it said that it had failed, and the store
/// went on with the disk: its next opening found nothing of what was acknowledged since, and a repair gave it up.
#[test]
fn a_drain_whose_last_word_is_in_doubt_leaves_the_disk_to_the_store() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let (home, fast) = disks(&env);
        let doubt = Arc::new(InDoubt { inner: home.clone(), times: AtomicU32::new(0) });
        let store = open(&env, doubt.clone(), Some(&fast)).unwrap();
        fill(&store, 0, 500);
        store.wait_idle().unwrap();
        doubt.times.store(1, Ordering::SeqCst);
        store.drain_fast_disk().unwrap_err();
        assert!(store.properties().failure.is_none());
        fill(&store, 500, 1000);
        store.flush().unwrap();
        fill(&store, 1500, 100);
        store.close().unwrap();
        let has_tables = |file: &FileMeta| matches!(file.name, FileName::Table(_));
        assert!(fast.list().unwrap().iter().any(has_tables), "the test has nothing on the fast disk to lose");
        let store = open(&env, doubt, Some(&fast)).unwrap();
        holds(&store, 1600);
        store.drain_fast_disk().unwrap();
        store.close().unwrap();
        let store = open(&env, Arc::new(home), None).unwrap();
        holds(&store, 1600);
        store.close().unwrap();
    });
}

/// If DISKS cannot be written back either, nobody knows what it says after a power failure.
#[test]
fn a_drain_whose_last_word_stays_in_doubt_lets_nothing_more_be_acknowledged() {
    for crash in [false, true] {
        let executor = SimExecutor::new(2);
        executor.run(|| {
            let env = executor.env();
            let (home, fast) = disks(&env);
            let doubt = Arc::new(InDoubt { inner: home.clone(), times: AtomicU32::new(0) });
            let store = open(&env, doubt.clone(), Some(&fast)).unwrap();
            fill(&store, 0, 500);
            store.wait_idle().unwrap();
            doubt.times.store(2, Ordering::SeqCst);
            store.drain_fast_disk().unwrap_err();
            assert!(store.properties().failure.is_some());
            let refused = store.default_keyspace().put_with(b"key", b"value", Durability::Synced);
            assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
            // All that there is lies at home, whatever DISKS says.
            let (home, fast) = if crash { (home.crash_keep_all(), fast.crash_keep_all()) } else { (home, fast) };
            let _ = store.close();
            drop(store);
            let store = open(&env, Arc::new(home.clone()), None).or_else(|_| open(&env, Arc::new(home), Some(&fast)));
            let store = store.unwrap();
            holds(&store, 500);
            store.close().unwrap();
        });
    }
}

/// The log's next file was ready on the fast disk, and another could not be made at home: it was kept, and forgotten by the next
/// drain, which waited for the disk to become empty for ever.
#[test]
fn a_drain_that_failed_can_be_asked_for_again_where_the_next_log_file_was_ready() {
    let executor = SimExecutor::new(3);
    executor.run(|| {
        let env = executor.env();
        let (home, fast) = disks(&env);
        let full = || FaultPlan::none().with(Rule::new(Fault::NoSpace).on(&[Operation::CreatePages]));
        let is_log = |file: &FileMeta| matches!(file.name, FileName::Log(_));
        let last_log = |volume: &SimVolume| volume.list().unwrap().iter().filter(|f| is_log(f)).map(|f| f.name).max();
        let store = open(&env, Arc::new(home.clone()), Some(&fast)).unwrap();
        let other = store.create_keyspace("other", options().keyspace).unwrap();
        let mut puts = 0..5000u32;
        let mut put = || {
            let n = puts.next().expect("the log goes to another disk");
            other.put(format!("key {n:06}").as_bytes(), [1; 100]).unwrap();
            env.clock.sleep(Duration::from_millis(1));
        };
        // The fast disk has no room for the log, and then it has: the current file is at home, and the next one is not.
        fast.set_faults(full());
        let first = last_log(&home).max(last_log(&fast));
        while last_log(&home) <= first {
            put();
        }
        fast.set_faults(FaultPlan::none());
        while last_log(&fast) <= last_log(&home) {
            put();
        }
        store.wait_idle().unwrap();
        store.drop_keyspace("other").unwrap();
        store.wait_idle().unwrap();
        home.set_faults(full());
        store.drain_fast_disk().unwrap_err();
        home.set_faults(FaultPlan::none());
        let ended = Arc::new(Mutex::new(None));
        let (result, draining) = (Arc::clone(&ended), store.clone());
        let drain = move || *result.lock().unwrap() = Some(draining.drain_fast_disk());
        let job = env.executor.spawn("drain", Box::new(drain)).unwrap();
        env.clock.sleep(Duration::from_secs(3600));
        let outcome = ended.lock().unwrap().take();
        store.close().unwrap();
        job.join().unwrap();
        outcome.expect("the drain ends").unwrap();
    });
}
