//! A device as a unit: of a scheduler, and of a store.

use crate::tasks;
use situ_accel::{
    Device, DeviceAnswer, DeviceError, DeviceLimits, DeviceTask, DeviceUnit, ModelDevice, OpenDevice, OpenModel,
};
use situ_base::Env;
use situ_compaction::testing::{MemoryHost, with_seeds};
use situ_compaction::{Task, TaskHost, TaskOutput, run};
use situ_engine::{KeyspaceOptions, Options, Store, StoreBuilder};
use situ_offload::{Offload, Patience, Policy, Scheduler, Split, Unit, UnitReport};
use situ_sim::Rng;
use situ_table::Compression;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// All that a unit takes goes there.
fn elsewhere() -> Policy {
    Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::named("co-kv").unwrap() }
}

fn scheduler(device: Arc<dyn OpenDevice>, patience: Patience, check_every: Option<u32>) -> Scheduler {
    let env = Env::system();
    let event = env.executor.event();
    let cpu = Arc::new(situ_offload::CpuUnit::new(env.clone(), 1));
    let unit: Arc<dyn Unit> = Arc::new(DeviceUnit::new(env.clone(), device, 2));
    Scheduler::new(env, event, cpu, vec![unit], patience).policy(elsewhere()).check_every(check_every)
}

/// Runs tasks on a scheduler, and checks that the outputs are those of the reference merge.
fn assert_right(scheduler: &Scheduler, host: &Arc<MemoryHost>, tasks: Vec<Task>) {
    let expected: Vec<TaskOutput> = tasks.iter().map(|task| run(task, &**host).unwrap()).collect();
    let as_host: Arc<dyn TaskHost> = Arc::clone(host) as _;
    let found = scheduler.run(tasks, &as_host).unwrap();
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        let files =
            |output: &TaskOutput| -> Vec<_> { output.tables.iter().map(|table| host.bytes(table.number)).collect() };
        assert!(files(expected) == files(found), "other bytes");
    }
}

fn of_device(scheduler: &Scheduler) -> UnitReport {
    scheduler.reports().remove(1)
}

#[test]
fn a_device_does_the_tasks_of_a_scheduler() {
    with_seeds(10, |rng| {
        let host = Arc::new(MemoryHost::new());
        let limits = DeviceLimits { ways: 2, ..DeviceLimits::of_format() };
        let scheduler = scheduler(Arc::new(OpenModel { limits }), Patience::default(), Some(1));
        let tasks: Vec<Task> = (0..5).map(|_| tasks::random(rng, &host, 1000)).collect();
        assert_right(&scheduler, &host, tasks);
        let report = of_device(&scheduler);
        assert!(report.succeeded > 0 && report.checked > 0 && report.mismatches == 0, "{report:?}");
        assert_eq!((report.failed, report.suspicious, report.illegal), (0, 0, 0), "{report:?}");
    });
}

#[test]
fn what_is_beyond_a_device_is_not_tried_there() {
    with_seeds(10, |rng| {
        let host = Arc::new(MemoryHost::new());
        let limits = DeviceLimits { snapshots: 0, key_bytes: 0, ..DeviceLimits::of_format() };
        let scheduler = scheduler(Arc::new(OpenModel { limits }), Patience::default(), None);
        let tasks: Vec<Task> = (0..3).map(|_| tasks::random(rng, &host, 1000)).collect();
        let has_keys = tasks.iter().any(|task| task.tables().count() > 0);
        assert_right(&scheduler, &host, tasks);
        let report = of_device(&scheduler);
        assert!(!has_keys || report.illegal > 0, "{report:?}");
        assert_eq!((report.failed, report.suspicious), (0, 0), "{report:?}");
    });
}

/// The ways in which a device goes wrong as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// It is not there when it is opened.
    Gone,
    /// It never finishes.
    Hangs,
    /// It panics.
    Panics,
    /// Well-formed blocks of other entries, with sums and checksums to match.
    Lies,
}

struct OpenWrong {
    wrong: Wrong,
    /// Goes wrong this often, and is right then.
    left: Arc<AtomicU32>,
}

struct WrongDevice {
    model: ModelDevice,
    wrong: Wrong,
    left: Arc<AtomicU32>,
}

fn now(left: &AtomicU32) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl OpenDevice for OpenWrong {
    fn name(&self) -> &str {
        "wrong"
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits::of_format()
    }

    fn open(&self) -> Result<Box<dyn Device>, DeviceError> {
        if self.wrong == Wrong::Gone && now(&self.left) {
            return Err(DeviceError::Unavailable("it is gone".to_owned()));
        }
        Ok(Box::new(WrongDevice { model: ModelDevice::default(), wrong: self.wrong, left: Arc::clone(&self.left) }))
    }
}

impl Device for WrongDevice {
    fn stage(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        self.model.stage(bytes)
    }

    fn run(&mut self, task: &DeviceTask, cancelled: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let mut task = task.clone();
        match self.wrong {
            Wrong::Hangs if now(&self.left) => {
                while !cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                return Err(DeviceError::Failed("it hangs".to_owned()));
            }
            Wrong::Panics if now(&self.left) => panic!("a device that panics"),
            Wrong::Lies if now(&self.left) => task.rules.restart_interval += 1,
            _ => {}
        }
        self.model.run(&task, cancelled)
    }

    fn answer(&self) -> DeviceAnswer<'_> {
        self.model.answer()
    }
}

#[test]
fn a_store_gets_the_processors_bytes_whatever_a_device_does() {
    for wrong in [Wrong::Gone, Wrong::Hangs, Wrong::Panics, Wrong::Lies] {
        let left = Arc::new(AtomicU32::new(2));
        let patience = Patience {
            least: Duration::from_millis(200),
            bytes_per_s_min: u64::MAX,
            rest_min: Duration::from_millis(1),
            rest_max: Duration::from_millis(1),
            failures_max: 2,
            ..Patience::default()
        };
        let device = OpenWrong { wrong, left: Arc::clone(&left) };
        let scheduler = scheduler(Arc::new(device), patience, Some(1));
        let mut back = false;
        let mut round = |rng: &mut Rng| {
            let host = Arc::new(MemoryHost::new());
            let tasks: Vec<Task> = (0..2).map(|_| tasks::random(rng, &host, 500)).collect();
            assert_right(&scheduler, &host, tasks);
            let report = of_device(&scheduler);
            back |= left.load(Ordering::SeqCst) == 0 && report.out_of_service.is_none() && report.succeeded > 0;
            // The rest is over.
            std::thread::sleep(Duration::from_millis(5));
            back
        };
        with_seeds(12, |rng| {
            round(rng);
        });
        // On a busy machine, an attempt that was given up may hold the device for long.
        let mut rng = Rng::new(13);
        let is_back = (0..1000).any(|_| round(&mut rng));
        let report = of_device(&scheduler);
        let troubles = report.failed + report.late + report.suspicious + report.mismatches;
        assert!(troubles > 0 && left.load(Ordering::SeqCst) == 0, "{wrong:?}: {report:?}");
        assert!(is_back, "{wrong:?}: the unit is not back in service: {report:?}");
    }
}

/// Puts, overwrites and deletes, with a snapshot now and then, as a map says.
fn fill(store: &Store, entries: u64, rng: &mut Rng) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::new();
    let mut snapshots = Vec::new();
    for i in 0..entries {
        let key = format!("key{:06}", rng.below(entries / 3)).into_bytes();
        if rng.below(10) == 0 {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = format!("{i:0width$}", width = 1 + rng.index(300)).into_bytes();
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if i % 5000 == 0 {
            snapshots.push(store.snapshot());
            snapshots.truncate(3);
        }
    }
    model
}

/// Fills a store whose compactions a device does, and checks its contents, and that nothing went wrong.
pub(crate) fn a_store_runs_on(device: Arc<dyn OpenDevice>, compression: Compression, entries: u64) -> UnitReport {
    let directory = tempfile::tempdir().unwrap();
    let unit: Arc<dyn Unit> = Arc::new(DeviceUnit::new(Env::system(), device, 2));
    let mut options = Options::default();
    let keyspace: KeyspaceOptions = options.keyspace.clone();
    options.keyspace = keyspace.memtable_bytes(64 << 10).table_bytes(32 << 10).level_base_bytes(128 << 10);
    options.keyspace.compression = vec![compression];
    let offload = Offload::new().policy(elsewhere()).check_every(2).unit(unit);
    let store = StoreBuilder::new(options).compactor(offload).open(directory.path()).unwrap();
    let model = fill(&store, entries, &mut Rng::new(3));
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    let found: BTreeMap<Vec<u8>, Vec<u8>> =
        store.iter().unwrap().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    assert!(found == model);
    let report = of_device(Scheduler::of(store.compactor()).unwrap());
    assert_eq!((report.failed, report.suspicious, report.mismatches, report.late), (0, 0, 0, 0), "{report:?}");
    store.close().unwrap();
    report
}

#[test]
fn a_store_runs_on_a_device() {
    for compression in [Compression::None, Compression::Lz4] {
        let limits = DeviceLimits { ways: 4, ..DeviceLimits::of_format() };
        let report = a_store_runs_on(Arc::new(OpenModel { limits }), compression, 30_000);
        assert!(report.succeeded > 10 && report.checked > 3, "{report:?}");
    }
}
