//! The host looks for the files of a unit elsewhere on a thread of its own.
//!
//! It did so in the scheduler's turn. A node that had just gone held up the tasks of all units, for five seconds for
//! each of its answers.

use super::super::find::SEARCHES_MAX;
use super::*;
use crate::class::TaskClass;
use situ_compaction::OutputTable;
use situ_storage::Reader;
use std::sync::Condvar;
use std::time::Instant;

/// Longer than anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A host whose files are on a node that does not answer, until it is told that the node is back.
struct SlowHost {
    memory: Arc<MemoryHost>,
    is_back: Mutex<bool>,
    back: Condvar,
    looked: AtomicU64,
    is_cancelled: AtomicBool,
    is_missing: AtomicBool,
}

impl SlowHost {
    fn over(memory: &Arc<MemoryHost>) -> Arc<SlowHost> {
        Arc::new(SlowHost {
            memory: Arc::clone(memory),
            is_back: Mutex::new(false),
            back: Condvar::new(),
            looked: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            is_missing: AtomicBool::new(false),
        })
    }

    fn come_back(&self) {
        *self.is_back.lock().unwrap() = true;
        self.back.notify_all();
    }
}

impl TaskHost for SlowHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.memory.reserve(level)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.memory.create(level, place)
    }

    fn open(&self, place: TablePlace) -> situ_storage::Result<Arc<dyn Reader>> {
        TaskHost::open(&*self.memory, place)
    }

    fn find(&self, _: &OutputTable) -> Result<(), String> {
        self.looked.fetch_add(1, Ordering::Relaxed);
        let is_back = self.is_back.lock().unwrap();
        let (is_back, _) = self.back.wait_timeout_while(is_back, SOON, |is_back| !*is_back).unwrap();
        match *is_back && !self.is_missing.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("there is no such file".to_owned()),
        }
    }

    fn pace(&self, bytes: u64) {
        self.memory.pace(bytes);
    }

    fn cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

fn order(number: u64, tasks: &[Task], unit: usize, host: Arc<dyn TaskHost>) -> JobOrder {
    let tasks: Vec<_> = tasks.iter().map(|task| (task.clone(), Destination(Some(unit)))).collect();
    let (abreast, priority) = (tasks.len(), Priority::new(0, 1.0));
    let notes = JobNotes::new(plan::Plan { class: TaskClass::default(), arm: None });
    JobOrder { number, tasks, host, abreast, priority, notes }
}

/// Takes turns until a job has finished.
fn finish(scheduler: &Scheduler) -> FinishedJob {
    let deadline = Instant::now() + SOON;
    loop {
        let seen = scheduler.event.generation();
        scheduler.turn();
        if let Some(finished) = scheduler.take_finished(None) {
            return finished;
        }
        assert!(Instant::now() < deadline, "no job finishes");
        let wait = scheduler.next_turn_in().unwrap_or(SOON).min(Duration::from_secs(1));
        scheduler.event.wait(seen, Some(wait));
    }
}

/// A job of the unit elsewhere whose files are being looked for.
fn with_a_search() -> (Scheduler, Arc<MemoryHost>, Arc<SlowHost>, Vec<Task>) {
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let (scheduler, _) = scheduler(Fault::None);
    let slow = SlowHost::over(&memory);
    scheduler.submit(order(1, &tasks, 1, Arc::clone(&slow) as Arc<dyn TaskHost>));
    let deadline = Instant::now() + SOON;
    while slow.looked.load(Ordering::Relaxed) < SEARCHES_MAX as u64 {
        scheduler.turn();
        assert!(Instant::now() < deadline, "the host looks for the files of several answers at a time");
        std::thread::sleep(Duration::from_millis(1));
    }
    (scheduler, memory, slow, tasks)
}

#[test]
fn other_jobs_go_on_while_a_host_looks_for_files() {
    let (scheduler, memory, slow, tasks) = with_a_search();
    let plain = Arc::clone(&memory) as Arc<dyn TaskHost>;
    scheduler.submit(order(2, &tasks, REFERENCE, plain));
    let first = finish(&scheduler);
    assert_eq!(first.job, 2, "the job whose files are not found yet waits alone");
    // Longer than an attempt may take: one that has answered is not late.
    std::thread::sleep(3 * patience().least);
    scheduler.turn();
    assert_eq!(slow.looked.load(Ordering::Relaxed), SEARCHES_MAX as u64, "the other answers wait for a thread");
    slow.come_back();
    let second = finish(&scheduler);
    assert_eq!(second.job, 1);
    assert_eq!(bytes(&memory, &first.result.unwrap()), bytes(&memory, &second.result.unwrap()));
    let stats = stats(&scheduler);
    assert_eq!((stats.attempts, stats.late, stats.suspicious), (8, 0, 0));
}

#[test]
fn a_unit_whose_files_are_missing_is_not_believed() {
    let (scheduler, memory, slow, _) = with_a_search();
    slow.is_missing.store(true, Ordering::Relaxed);
    slow.come_back();
    let finished = finish(&scheduler);
    assert!(!bytes(&memory, &finished.result.unwrap()).is_empty());
    let stats = stats(&scheduler);
    assert_eq!((stats.attempts, stats.suspicious), (8, 4), "the reference unit does all of them again");
}

/// The threads use the host: its job, and with it the store, must not end before them.
#[test]
fn a_job_that_is_called_off_waits_for_those_who_look_for_its_files_and_blames_nobody() {
    let (scheduler, _, slow, _) = with_a_search();
    slow.is_cancelled.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        scheduler.turn();
        assert!(scheduler.take_finished(None).is_none(), "a thread looks for its files");
    }
    slow.come_back();
    assert!(matches!(finish(&scheduler).result, Err(TaskError::Cancelled)));
    assert_eq!(Arc::strong_count(&slow), 1, "nobody has the host any more");
    let stats = stats(&scheduler);
    assert_eq!((stats.suspicious, stats.failed), (0, 0));
}
