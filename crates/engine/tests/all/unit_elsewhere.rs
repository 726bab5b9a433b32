//! Compaction units from outside: another process over a pipe, which is killed at any moment, and a unit that holds many tasks.
//!
//! The unit, its messages and the worker are those of `examples/compaction_worker`. The worker is this test binary again. Its answers
//! come by standard error, as the test harness writes to standard output.

use crate::common::fast;
use situ_base::{Env, Event, Executor, JobHandle, ThreadExecutor};
use situ_compaction::{TablePlace, Task, TaskError, TaskHost, TaskOutput, run};
use situ_engine::{Durability, KeyspaceOptions, Options, Store, StoreBuilder, WriteBatch};
use situ_offload::{
    Assignment, Finished, Load, Offer, Offload, Policy, Ran, Refused, Scheduler, Unit, UnitEvent, UnitReport,
};
use situ_sim::Rng;
use situ_storage::{DirectoryVolume, FileName, Result as StorageResult, Volume, Writer};
use situ_tiers::{TieredBuilder, TieredStore, verify_directory};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../../examples/compaction_worker/frames.rs"]
mod frames;
#[path = "../../examples/compaction_worker/unit.rs"]
mod pipe_unit;
#[path = "../../examples/compaction_worker/worker.rs"]
mod worker_side;

use pipe_unit::PipeUnit;

const WORKER: &str = "SITU_TEST_COMPACTION_WORKER";
const WRITER: &str = "SITU_TEST_STORE_WITH_WORKER";

/// The worker: does nothing unless it is told where.
#[test]
fn worker() {
    let Some(directory) = std::env::var_os(WORKER) else { return };
    worker_side::serve(Path::new(&directory), std::io::stdin(), std::io::stderr());
}

fn pipe_unit(directory: &Path) -> Arc<PipeUnit> {
    let directory = directory.to_owned();
    let start = move || {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "unit_elsewhere::worker", "--nocapture", "--test-threads=1"])
            .env(WORKER, &directory)
            .env_remove(WRITER)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let answers = child.stderr.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        Ok((child, Box::new(answers) as Box<dyn Read + Send>))
    };
    Arc::new(PipeUnit::new("worker", 2, start))
}

fn small() -> Options {
    let keyspace = KeyspaceOptions::default()
        .memtable_bytes(64 << 10)
        .level0_tables(2)
        .level_base_bytes(256 << 10)
        .table_bytes(64 << 10);
    Options::default().keyspace(keyspace).compaction_threads(2)
}

fn with_unit<U: Unit + 'static>(options: Options, unit: &Arc<U>) -> StoreBuilder {
    fast::tiered(options).compactor(Offload::new().unit(Arc::clone(unit) as Arc<dyn Unit>))
}

fn scheduler(store: &Store) -> &Scheduler {
    Scheduler::of(store.compactor()).unwrap()
}

fn open(directory: &Path, unit: &Arc<PipeUnit>) -> Store {
    with_unit(small(), unit).open(directory).unwrap()
}

/// Reads everything; panics if something is damaged.
fn verified(directory: &Path) {
    let report = verify_directory(directory, &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Some hundred random changes, ranges among them.
fn change(store: &Store, model: &mut Model, rng: &mut Rng) {
    for _ in 0..400 {
        let key = format!("key {:05}", rng.below(4000)).into_bytes();
        if rng.chance(0.01) {
            let end = format!("key {:05}", rng.below(4000)).into_bytes();
            let (begin, end) = (key.clone().min(end.clone()), key.max(end));
            store.delete_range(&begin, &end).unwrap();
            model.retain(|key, _| *key < begin || *key >= end);
        } else if rng.chance(0.1) {
            store.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![rng.below(256) as u8; 50 + rng.below(200) as usize];
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn assert_holds(store: &Store, model: &Model) {
    let found: Model =
        store.iter().unwrap().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    assert_eq!(found.len(), model.len());
    assert!(found == *model, "the store and the model differ");
}

fn report(store: &Store, name: &str) -> UnitReport {
    scheduler(store).reports().into_iter().find(|unit| unit.name == name).unwrap()
}

/// No file of a table lies in the directory that no version names, once the store is idle.
fn assert_no_orphans(directory: &Path, store: &Store) {
    store.wait_idle().unwrap();
    store.check().unwrap();
    let is_table = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".table");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let files = std::fs::read_dir(directory).unwrap().filter(|entry| is_table(entry.as_ref().unwrap())).count();
        let levels = store.keyspace("default").unwrap().properties().levels;
        let named: usize = levels.iter().map(|level| level.tables).sum();
        if files == named {
            return;
        }
        // What a compaction has replaced is removed a little later.
        assert!(Instant::now() < until, "{files} files of tables, of which {named} are needed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn tasks_run_in_another_process_and_give_what_the_processor_gives() {
    let directory = tempfile::tempdir().unwrap();
    let unit = pipe_unit(directory.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(1));
    let store = open(directory.path(), &unit);
    for _ in 0..20 {
        change(&store, &mut model, &mut rng);
        // So that there are as many compactions on a busy machine.
        store.wait_idle().unwrap();
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    assert_holds(&store, &model);
    let (worker, cpu) = (report(&store, "worker"), report(&store, "cpu"));
    assert!(worker.succeeded > 3 && worker.input_bytes > 100 << 10, "{worker:?}");
    assert_eq!((worker.failed, worker.suspicious, worker.late), (0, 0, 0), "{worker:?}");
    assert!(worker.succeeded > cpu.succeeded, "{worker:?} {cpu:?}");
    store.close().unwrap();
    verified(directory.path());
    let store = fast::open_with(directory.path(), small()).unwrap();
    assert_holds(&store, &model);
    assert_no_orphans(directory.path(), &store);
}

/// The worker is killed again and again, in the middle of reading, writing and answering.
#[test]
fn a_worker_that_is_killed_at_any_moment_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let unit = pipe_unit(directory.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(2));
    let store = open(directory.path(), &unit);
    let (is_over, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(3);
            while !is_over.load(Ordering::Relaxed) {
                // Long enough now and then for a task to succeed: a unit that only fails rests for twice as long each time.
                std::thread::sleep(Duration::from_micros(rng.below(100_000)));
                let killed = unit.process().and_then(|process| rustix::process::Pid::from_raw(process as i32));
                if let Some(process) = killed
                    && rustix::process::kill_process(process, rustix::process::Signal::KILL).is_ok()
                {
                    kills.fetch_add(1, Ordering::Relaxed);
                    // A unit that has failed rests for a second.
                    std::thread::sleep(Duration::from_millis(300));
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            change(&store, &mut model, &mut rng);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    assert_holds(&store, &model);
    let (worker, cpu) = (report(&store, "worker"), report(&store, "cpu"));
    let kills = kills.load(Ordering::Relaxed);
    assert!(kills >= 2 && worker.suspicious > 0 && cpu.succeeded > 0, "{kills} kills, {worker:?} {cpu:?}");
    store.close().unwrap();
    verified(directory.path());
    let store = fast::open_with(directory.path(), small()).unwrap();
    assert_holds(&store, &model);
    assert_no_orphans(directory.path(), &store);
}

/// The store of a worker: does nothing unless it is told where.
#[test]
fn store_with_a_worker() {
    let Some(directory) = std::env::var_os(WRITER) else { return };
    let directory = PathBuf::from(directory);
    let store = open(&directory, &pipe_unit(&directory));
    for n in 0u64.. {
        let last = store.get("last").unwrap().map_or(0, |last| u64::from_le_bytes(last[..].try_into().unwrap()));
        let mut batch = WriteBatch::new();
        batch.put("last", (last + 1).to_le_bytes()).unwrap();
        batch.put(format!("key {:04}", (last + 1) % 3000), [(last + 1).to_le_bytes(); 20].concat()).unwrap();
        store.write_with(batch, if n % 50 == 0 { Durability::Synced } else { Durability::Buffered }).unwrap();
    }
}

/// The store's process is killed while its worker merges: the worker ends with it, and the next opening finds a sound store.
#[test]
fn a_store_that_is_killed_beside_its_worker_opens_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(4);
    let mut last = 0;
    for _ in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "unit_elsewhere::store_with_a_worker", "--nocapture", "--test-threads=1"])
            .env(WRITER, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500 + rng.below(700)));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = fast::open_with(directory.path(), small()).unwrap();
        let found = store.get("last").unwrap().map_or(0, |last| u64::from_le_bytes(last[..].try_into().unwrap()));
        assert!(found >= last, "{found} after {last}");
        for n in found.saturating_sub(2999).max(1)..=found {
            let value = store.get(format!("key {:04}", n % 3000)).unwrap().unwrap();
            assert_eq!(value[..8], n.to_le_bytes(), "{n} of {found}");
        }
        last = found;
        assert_no_orphans(directory.path(), &store);
        store.close().unwrap();
        verified(directory.path());
    }
    assert!(last > 3000, "only {last} writes");
}

/// A unit far away: a task takes 10 ms and no thread; it is run when its result is asked for.
#[derive(Default)]
struct DistantUnit {
    held: Mutex<Vec<(Instant, Assignment)>>,
    most_held: AtomicUsize,
    is_open: AtomicBool,
}

const DISTANT: Duration = Duration::from_millis(10);

impl DistantUnit {
    fn has_one(&self) -> bool {
        let held = self.held.lock().unwrap();
        self.is_open.load(Ordering::Relaxed) && held.iter().any(|(due, _)| *due <= Instant::now())
    }

    /// Tells the store of what has finished.
    fn ring(&self) {
        if self.has_one() {
            self.held.lock().unwrap()[0].1.done.notify();
        }
    }
}

impl Unit for DistantUnit {
    fn name(&self) -> &str {
        "distant"
    }

    fn offer(&self, _task: &Task) -> Offer {
        self.load().offer(0)
    }

    fn load(&self) -> Load {
        Load {
            tasks: self.held.lock().unwrap().len(),
            tasks_max: 100,
            input_bytes: 0,
            bytes_per_s: 10 << 30,
            resources: None,
        }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let mut held = self.held.lock().unwrap();
        held.push((Instant::now() + DISTANT, assignment));
        self.most_held.fetch_max(held.len(), Ordering::Relaxed);
        Ok(())
    }

    fn cancel(&self, attempt: u64) {
        self.held.lock().unwrap().retain(|(_, assignment)| assignment.attempt != attempt);
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        let mut held = self.held.lock().unwrap();
        let is_open = self.is_open.load(Ordering::Relaxed);
        for (_, assignment) in held.extract_if(.., |(due, _)| is_open && *due <= Instant::now()) {
            let result = run(&assignment.task, &*assignment.host);
            finished.push(Finished { attempt: assignment.attempt, result, elapsed: DISTANT, ran: Ran::default() });
        }
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
    }
}

/// Counts the threads that are there.
struct Counted {
    threads: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Executor for Counted {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        let threads = Arc::clone(&self.threads);
        self.most.fetch_max(threads.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let counted = move || {
            job();
            threads.fetch_sub(1, Ordering::SeqCst);
        };
        ThreadExecutor.spawn(name, Box::new(counted))
    }

    fn event(&self) -> Arc<dyn Event> {
        ThreadExecutor.event()
    }
}

/// A hundred compactions at a time, of a hundred keyspaces, on one compaction thread.
#[test]
fn a_hundred_jobs_are_under_way_and_none_holds_a_thread() {
    const KEYSPACES: usize = 100;
    let (threads, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let executor = Counted { threads, most: Arc::clone(&most) };
    let env = Env { executor: Arc::new(executor), ..Env::system() };
    let unit = Arc::new(DistantUnit::default());
    let directory = tempfile::tempdir().unwrap();
    let keyspace = KeyspaceOptions::default().memtable_bytes(64 << 10).level0_tables(2);
    let options = Options::default().keyspace(keyspace).compaction_threads(1);
    let builder = with_unit(options, &unit).env(env);
    let store = builder.open(directory.path()).unwrap();
    let keyspaces: Vec<_> = (0..KEYSPACES).map(|i| store.keyspace(&format!("k{i}")).unwrap()).collect();
    let idle = most.load(Ordering::SeqCst);
    for round in 0..3u32 {
        for keyspace in &keyspaces {
            (0..50u32).for_each(|i| keyspace.put(i.to_le_bytes(), [round as u8; 20]).unwrap());
            keyspace.flush().unwrap();
        }
    }
    let until = Instant::now() + Duration::from_secs(60);
    while unit.held.lock().unwrap().len() < KEYSPACES {
        assert!(Instant::now() < until, "{} tasks in flight", unit.held.lock().unwrap().len());
        std::thread::sleep(Duration::from_millis(1));
    }
    // All at once are let go.
    unit.is_open.store(true, Ordering::Relaxed);
    let began = Instant::now();
    while unit.held.lock().unwrap().iter().any(|(due, _)| *due < began) {
        unit.ring();
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed();
    std::thread::scope(|scope| {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let unit = &unit;
        scope.spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                unit.ring();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        store.wait_idle().unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    let report = report(&store, "distant");
    println!("{KEYSPACES} jobs in flight on {idle} threads; landed in {took:?}; {report:?}");
    assert_eq!(unit.most_held.load(Ordering::Relaxed), KEYSPACES);
    assert!(report.succeeded >= KEYSPACES as u64, "{report:?}");
    // Three more may be there: a task that the processor got, and two that look at the files of answers.
    assert!(most.load(Ordering::SeqCst) <= idle + 3, "{} threads, {idle} before", most.load(Ordering::SeqCst));
    for keyspace in &keyspaces {
        assert_eq!(keyspace.get(7u32.to_le_bytes()).unwrap().as_deref(), Some(&[2u8; 20][..]));
    }
    store.close().unwrap();
    verified(directory.path());
}

/// A worker that is stopped (SIGSTOP) neither reads nor ends. Closing waited for it without end.
#[test]
#[cfg(unix)]
fn a_store_closes_beside_a_worker_that_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let unit = pipe_unit(directory.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(5));
    let store = open(directory.path(), &unit);
    while unit.process().is_none() {
        change(&store, &mut model, &mut rng);
    }
    let worker = unit.process().and_then(|process| rustix::process::Pid::from_raw(process as i32)).unwrap();
    rustix::process::kill_process(worker, rustix::process::Signal::STOP).unwrap();
    for _ in 0..5 {
        change(&store, &mut model, &mut rng);
    }
    let (closed, is_closed) = std::sync::mpsc::channel();
    let closing = std::thread::spawn(move || closed.send(store.close()));
    let closed = is_closed.recv_timeout(Duration::from_secs(20));
    if closed.is_err() {
        // So that the test ends.
        let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
    }
    closing.join().unwrap().unwrap();
    closed.expect("closing waits for a worker that is stopped").unwrap();
    let store = fast::open_with(directory.path(), small()).unwrap();
    assert_holds(&store, &model);
    assert_no_orphans(directory.path(), &store);
}

type Answer = Result<TaskOutput, TaskError>;

/// Runs tasks in `submit`, with a twist.
struct TwistedUnit {
    twist: Box<dyn Fn(&Assignment) -> Answer + Send + Sync>,
    finished: Mutex<Vec<Finished>>,
}

impl Unit for TwistedUnit {
    fn name(&self) -> &str {
        "twisted"
    }

    fn offer(&self, _task: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks: 0, tasks_max: usize::MAX, input_bytes: 0, bytes_per_s: 0, resources: None }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let result = (self.twist)(&assignment);
        let attempt = assignment.attempt;
        self.finished.lock().unwrap().push(Finished { attempt, result, elapsed: Duration::MAX, ran: Ran::default() });
        assignment.done.notify();
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {}
}

/// Fills a store with a unit whose answers are twisted, and reads it back.
fn holds_with(directory: &Path, twist: impl Fn(&Assignment) -> Answer + Send + Sync + 'static) -> UnitReport {
    let unit = Arc::new(TwistedUnit { twist: Box::new(twist), finished: Mutex::default() });
    let store = with_unit(small(), &unit).open(directory).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(6));
    for _ in 0..10 {
        change(&store, &mut model, &mut rng);
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    assert_holds(&store, &model);
    change(&store, &mut model, &mut rng);
    let report = report(&store, "twisted");
    store.close().unwrap();
    verified(directory);
    let store = fast::open_with(directory, small()).unwrap();
    assert_holds(&store, &model);
    report
}

/// A unit says that it has written a table, and the file is not there: the inputs were deleted all the same.
#[test]
fn a_table_that_is_not_where_its_unit_says_is_not_installed() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().to_owned();
    let report = holds_with(directory.path(), move |assignment| {
        let output = run(&assignment.task, &*assignment.host)?;
        for table in &output.tables {
            std::fs::remove_file(home.join(format!("{:06}.table", table.number))).unwrap();
        }
        Ok(output)
    });
    assert!(report.suspicious > 0 && report.succeeded == 0, "{report:?}");
}

/// A unit calls tasks cancelled that nobody has cancelled. The job was begun again at once and without end, and a manual compaction
/// was told that the store is closed.
#[test]
fn a_unit_that_calls_its_tasks_cancelled_stops_no_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let report = holds_with(directory.path(), |_| Err(TaskError::Cancelled));
    assert!(report.suspicious > 0 && report.succeeded == 0, "{report:?}");
}

/// A unit panics when it is given a task. The jobs of that turn were lost, manual compactions waited for them without end, and
/// closing waited for these.
#[test]
fn a_unit_that_panics_stops_no_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let report = holds_with(directory.path(), |_| panic!("on purpose"));
    assert!(report.succeeded == 0 && report.last_trouble.is_some(), "{report:?}");
}

/// Every task runs here and in another process, and the files are the same, bit by bit.
#[test]
fn the_files_of_a_worker_are_those_of_the_processor() {
    let directory = tempfile::tempdir().unwrap();
    let unit = pipe_unit(directory.path());
    let (mut model, mut rng) = (Model::new(), Rng::new(8));
    let builder =
        fast::tiered(small()).compactor(Offload::new().check_every(1).unit(Arc::clone(&unit) as Arc<dyn Unit>));
    let store = builder.open(directory.path()).unwrap();
    for _ in 0..10 {
        change(&store, &mut model, &mut rng);
        store.wait_idle().unwrap();
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    let (worker, cpu) = (report(&store, "worker"), report(&store, "cpu"));
    assert!(worker.checked > 3 && worker.mismatches == 0 && cpu.succeeded >= worker.checked, "{worker:?} {cpu:?}");
    assert_holds(&store, &model);
    assert_no_orphans(directory.path(), &store);
    store.close().unwrap();
    verified(directory.path());
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn hear(&self, event: &UnitEvent) {
        if let UnitEvent::Mismatch { .. } | UnitEvent::OutOfService { .. } = event {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

/// Each file is whole and says of itself what the unit says, and has another time in it than the task. Only a comparison finds that.
#[test]
fn a_unit_that_writes_other_bytes_is_found_out() {
    let directory = tempfile::tempdir().unwrap();
    let heard = Arc::new(Heard::default());
    let twist = |assignment: &Assignment| {
        let mut task = (*assignment.task).clone();
        task.rules.output.created_unix_s += 1;
        run(&task, &*assignment.host)
    };
    let unit = Arc::new(TwistedUnit { twist: Box::new(twist), finished: Mutex::default() });
    let hears = Arc::clone(&heard);
    let offload = Offload::new().check_every(1).unit(unit).listener(move |event| hears.hear(event));
    let store = fast::tiered(small()).compactor(offload).open(directory.path()).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(9));
    for _ in 0..5 {
        change(&store, &mut model, &mut rng);
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    let unit = report(&store, "twisted");
    assert!(unit.mismatches > 0 && unit.succeeded == 0 && unit.out_of_service.is_some(), "{unit:?}");
    let outcomes: Vec<&str> =
        scheduler(&store).records(0).iter().filter(|task| task.unit == 1).map(|task| task.outcome.name()).collect();
    assert!(outcomes.contains(&"mismatch") && !outcomes.contains(&"done"), "{outcomes:?}");
    assert_holds(&store, &model);
    assert_no_orphans(directory.path(), &store);
    store.close().unwrap();
    let heard = heard.0.lock().unwrap();
    assert!(heard[0].contains("wrong bytes") && heard[1].contains("out of service"), "{heard:?}");
    verified(directory.path());
}

/// Co-KV: of each job that is large enough, one half is done here and the other one there.
#[test]
fn a_static_split_divides_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let twist = |assignment: &Assignment| run(&assignment.task, &*assignment.host);
    let unit = Arc::new(TwistedUnit { twist: Box::new(twist), finished: Mutex::default() });
    let mut options = small();
    // No part is smaller than a table.
    options.keyspace = options.keyspace.table_bytes(4 << 10);
    let offload = Offload::new().policy(Policy::named("co-kv").unwrap()).unit(unit);
    let store = fast::tiered(options).compactor(offload).open(directory.path()).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(10));
    for _ in 0..40 {
        change(&store, &mut model, &mut rng);
    }
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    let tasks = scheduler(&store).records(0);
    let bytes = |unit: usize| tasks.iter().filter(|task| task.unit == unit).map(|task| task.input_bytes).sum::<u64>();
    let share = bytes(1) as f64 / (bytes(0) + bytes(1)) as f64;
    // The index and the filter of a table count with its last keys; in tables as small as these, they are most of it.
    assert!((0.3..0.7).contains(&share), "{share} of the bytes went elsewhere");
    let divided = |job: u64| (0..2).all(|unit| tasks.iter().any(|task| task.job == job && task.unit == unit));
    assert!(tasks.iter().any(|task| divided(task.job)), "no job was divided: {tasks:?}");
    assert_holds(&store, &model);
    store.close().unwrap();
    verified(directory.path());
}

/// A unit beside both disks: it makes files itself, in the places that it was given.
#[derive(Default)]
struct NodeUnit {
    disks: Vec<PathBuf>,
    /// Places on the fast disk that were given.
    given: AtomicUsize,
    /// Nothing is made on the fast disk before.
    may_make: AtomicBool,
    finished: Arc<Mutex<Vec<Finished>>>,
}

struct NodeHost {
    unit: Arc<NodeUnit>,
    host: Arc<dyn TaskHost>,
}

impl TaskHost for NodeHost {
    fn reserve(&self, level: u32) -> StorageResult<TablePlace> {
        let place = self.host.reserve(level)?;
        if place.volume > 0 {
            self.unit.given.fetch_add(1, Ordering::SeqCst);
            while !self.unit.may_make.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(place)
    }

    fn create(&self, _level: u32, place: TablePlace) -> StorageResult<(TablePlace, Box<dyn Writer>)> {
        let disk = DirectoryVolume::open(&self.unit.disks[place.volume as usize])?;
        Ok((place, disk.create(FileName::Table(place.number), 0)?))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.host.cancelled()
    }
}

struct Node(Arc<NodeUnit>);

impl Unit for Node {
    fn name(&self) -> &str {
        "node"
    }

    fn offer(&self, _task: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks: 0, tasks_max: 1, input_bytes: 0, bytes_per_s: 0, resources: None }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let unit = Arc::clone(&self.0);
        std::thread::spawn(move || {
            let Assignment { attempt, task, host, done, .. } = assignment;
            let result = run(&task, &NodeHost { unit: Arc::clone(&unit), host });
            unit.finished.lock().unwrap().push(Finished {
                attempt,
                result,
                elapsed: Duration::ZERO,
                ran: Ran::default(),
            });
            done.notify();
        });
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.0.finished.lock().unwrap());
    }

    fn close(&self) {}
}

/// A unit has a place on the fast disk and has made no file there yet. The disk seemed empty, and was let go of. Then the table came,
/// and was lost with the disk.
#[test]
fn a_drain_waits_for_what_units_elsewhere_are_to_make_on_the_fast_disk() {
    let directory = tempfile::tempdir().unwrap();
    let disks = vec![directory.path().join("home"), directory.path().join("fast")];
    let (mut model, mut rng) = (Model::new(), Rng::new(7));
    // The inputs lie at home.
    let store = fast::open_with(&disks[0], small()).unwrap();
    (0..4).for_each(|_| change(&store, &mut model, &mut rng));
    store.flush().unwrap();
    store.close().unwrap();
    let unit = Arc::new(NodeUnit { disks: disks.clone(), ..NodeUnit::default() });
    let builder = with_unit(small(), &Arc::new(Node(Arc::clone(&unit)))).fast_disk(&disks[1]);
    let store = builder.open(&disks[0]).unwrap();
    std::thread::scope(|scope| {
        let compacting = scope.spawn(|| store.default_keyspace().compact(None, None));
        while unit.given.load(Ordering::SeqCst) == 0 {
            assert!(!compacting.is_finished(), "no table goes to the fast disk");
            std::thread::sleep(Duration::from_millis(1));
        }
        let draining = scope.spawn(|| store.drain_fast_disk());
        std::thread::sleep(Duration::from_millis(500));
        let is_drained = draining.is_finished();
        unit.may_make.store(true, Ordering::SeqCst);
        compacting.join().unwrap().unwrap();
        draining.join().unwrap().unwrap();
        assert!(!is_drained, "the disk was let go of, and a table was on its way there");
    });
    assert!(report(&store, "node").succeeded > 0);
    store.close().unwrap();
    std::fs::remove_dir_all(&disks[1]).unwrap();
    verified(&disks[0]);
    let store = fast::open_with(&disks[0], small()).unwrap();
    assert_holds(&store, &model);
}

/// Linux ends a worker with the thread that has started it. That was the thread that gave the first task, such as one of the program
/// that compacts by hand and ends.
#[test]
fn a_worker_outlives_the_thread_that_gave_the_first_task() {
    let directory = tempfile::tempdir().unwrap();
    let unit = pipe_unit(directory.path());
    let mut options = small();
    options.keyspace = options.keyspace.level0_tables(100);
    let store = with_unit(options, &unit).open(directory.path()).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(8));
    let mut compact = || {
        for _ in 0..2 {
            change(&store, &mut model, &mut rng);
            store.flush().unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| store.default_keyspace().compact(None, None)).join().unwrap().unwrap();
        });
    };
    compact();
    let worker = unit.process();
    assert!(worker.is_some());
    // The end of a thread comes a little after it was waited for.
    std::thread::sleep(Duration::from_millis(300));
    compact();
    assert_eq!(unit.process(), worker);
    assert_holds(&store, &model);
    store.close().unwrap();
}
