use super::assign::choose;
use super::*;
use crate::cpu::CpuUnit;
use crate::ran::Ran;
use crate::unit::{Assignment, Finished, Load, Offer, Refused};
use situ_compaction::testing::{MemoryHost, numbered, plain_rules, task};
use situ_compaction::{Encoder, KeyRange, TablePlace, TaskError, TaskStats, cut, run};
use situ_storage::{Error, Writer};
use situ_table::{Compression, TableOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod find;
mod policy;

/// What a bad unit does with the tasks it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Busy,
    Unsuited,
    Gone,
    Fails,
    Vanishes,
    WrongRange,
    LosesATable,
    SwapsTables,
    WrongCounts,
    StrangeNumbers,
    CorruptSummary,
    Panics,
}

/// Runs tasks inside `submit`, and then lies about it as told.
struct FaultyUnit {
    fault: Fault,
    taken: AtomicU64,
    finished: Mutex<Vec<Finished>>,
}

impl FaultyUnit {
    fn result(&self, assignment: &Assignment) -> Option<Result<TaskOutput>> {
        let mut task = (*assignment.task).clone();
        if self.fault == Fault::WrongRange {
            task.rules.range = KeyRange::all();
        }
        if matches!(self.fault, Fault::Vanishes) {
            return None;
        }
        let mut output = match run(&task, &*assignment.host) {
            Ok(output) => output,
            Err(error) => return Some(Err(error)),
        };
        match self.fault {
            Fault::Fails => return Some(Err(TaskError::Unit { unit: "faulty".into(), reason: "on purpose".into() })),
            Fault::LosesATable => drop(output.tables.pop()),
            Fault::SwapsTables => output.tables.reverse(),
            Fault::WrongCounts => output.stats.entries_in += 1,
            Fault::StrangeNumbers => output.tables[0].number += 1000,
            Fault::CorruptSummary => output.tables[0].summary.properties.smallest.clear(),
            _ => {}
        }
        Some(Ok(output))
    }
}

impl Unit for FaultyUnit {
    fn name(&self) -> &str {
        "faulty"
    }

    fn offer(&self, _task: &Task) -> Offer {
        // Fast enough to be asked first.
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks_max: 100, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        match self.fault {
            Fault::Busy => return Err(Refused::Busy),
            Fault::Unsuited => return Err(Refused::Unsuited("no".into())),
            Fault::Gone => return Err(Refused::Gone("unplugged".into())),
            Fault::Panics => panic!("on purpose"),
            _ => {}
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(result) = self.result(&assignment) {
            let attempt = assignment.attempt;
            self.finished.lock().unwrap().push(Finished {
                attempt,
                result,
                elapsed: Duration::ZERO,
                ran: Ran::default(),
            });
            assignment.done.notify();
        }
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {}
}

fn job(host: &MemoryHost) -> Vec<Task> {
    let mut whole = task(host, &[numbered(3000, 2, 9), numbered(3000, 3, 5)], plain_rules());
    whole.rules.output.target_file_bytes = 10_000;
    let ranges = cut(&whole.inputs, 4, 1).unwrap();
    assert_eq!(ranges.len(), 4);
    let part = |range| {
        let mut part = whole.clone();
        part.rules.range = range;
        part
    };
    ranges.into_iter().map(part).collect()
}

fn patience() -> Patience {
    Patience { least: Duration::from_millis(30), bytes_per_s_min: u64::MAX, ..Patience::default() }
}

fn scheduler(fault: Fault) -> (Scheduler, Arc<FaultyUnit>) {
    let env = Env::system();
    let faulty = Arc::new(FaultyUnit { fault, taken: AtomicU64::new(0), finished: Mutex::default() });
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    (with_units(env, reference, vec![Arc::clone(&faulty) as Arc<dyn Unit>], patience()), faulty)
}

fn with_units(env: Env, reference: Arc<CpuUnit>, others: Vec<Arc<dyn Unit>>, patience: Patience) -> Scheduler {
    let event = env.executor.event();
    Scheduler::new(env, event, reference, others, patience)
}

/// What all units did, as one.
fn stats(scheduler: &Scheduler) -> UnitReport {
    scheduler.reports().into_iter().fold(UnitReport::default(), |sum, unit| UnitReport {
        attempts: sum.attempts + unit.attempts,
        refused: sum.refused + unit.refused,
        illegal: sum.illegal + unit.illegal,
        refused_busy: sum.refused_busy + unit.refused_busy,
        failed: sum.failed + unit.failed,
        late: sum.late + unit.late,
        suspicious: sum.suspicious + unit.suspicious,
        ..sum
    })
}

fn bytes(host: &MemoryHost, outputs: &[TaskOutput]) -> Vec<Vec<u8>> {
    outputs.iter().flat_map(|output| &output.tables).map(|table| host.bytes(table.number).to_vec()).collect()
}

#[test]
fn whatever_a_unit_does_the_job_gets_the_right_bytes() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let tasks = job(&memory);
    let expected: Vec<TaskOutput> = tasks.iter().map(|task| run(task, &*host).unwrap()).collect();
    let expected = bytes(&memory, &expected);
    assert!(expected.len() > 4);
    for fault in [
        Fault::None,
        Fault::Busy,
        Fault::Unsuited,
        Fault::Gone,
        Fault::Fails,
        Fault::Vanishes,
        Fault::WrongRange,
        Fault::LosesATable,
        Fault::SwapsTables,
        Fault::WrongCounts,
        Fault::StrangeNumbers,
        Fault::CorruptSummary,
        Fault::Panics,
    ] {
        let (scheduler, faulty) = scheduler(fault);
        let outputs = scheduler.run(tasks.clone(), &host).unwrap();
        assert_eq!(bytes(&memory, &outputs), expected, "{fault:?}");
        let (stats, taken) = (stats(&scheduler), faulty.taken.load(Ordering::Relaxed));
        match fault {
            Fault::None => assert_eq!((taken, stats.attempts, stats.failed + stats.suspicious), (4, 4, 0)),
            Fault::Busy => {
                assert_eq!((taken, stats.attempts, stats.refused), (0, 4, 0));
                assert!(stats.refused_busy >= 4, "{stats:?}");
            }
            Fault::Unsuited => assert_eq!((taken, stats.refused, stats.illegal), (0, 0, 4), "each task is told once"),
            Fault::Gone | Fault::Panics => {
                assert_eq!((taken, stats.refused), (0, 1), "it rests after the first refusal")
            }
            Fault::Vanishes => assert_eq!((taken, stats.late, stats.attempts), (4, 4, 8)),
            _ => assert_eq!((taken, stats.suspicious, stats.attempts), (4, 4, 8), "{fault:?}"),
        }
    }
}

/// Takes a task, and finishes it only when it is told to.
struct LateUnit {
    held: Mutex<Vec<Assignment>>,
    finished: Mutex<Vec<Finished>>,
}

impl Unit for LateUnit {
    fn name(&self) -> &str {
        "late"
    }

    fn offer(&self, _task: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks_max: 100, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.held.lock().unwrap().push(assignment);
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished.lock().unwrap());
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
    }
}

#[test]
fn a_late_result_is_not_taken_and_its_host_is_dead() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let env = Env::system();
    let late = Arc::new(LateUnit { held: Mutex::default(), finished: Mutex::default() });
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    let scheduler = with_units(env, reference, vec![Arc::clone(&late) as Arc<dyn Unit>], patience());
    let tasks = job(&memory);
    let first = scheduler.run(tasks.clone(), &host).unwrap();
    assert_eq!(first.len(), 4);
    for assignment in late.held.lock().unwrap().drain(..) {
        assert!(assignment.host.cancelled());
        let result = run(&assignment.task, &*assignment.host);
        assert!(result.is_err(), "it created files for a task that is done");
        late.finished.lock().unwrap().push(Finished {
            attempt: assignment.attempt,
            result,
            elapsed: Duration::ZERO,
            ran: Ran::default(),
        });
    }
    // The unit rests, so that the next job runs on the reference unit; the late results disturb nobody.
    let second = scheduler.run(tasks, &host).unwrap();
    assert_eq!(bytes(&memory, &first), bytes(&memory, &second));
    assert_eq!(stats(&scheduler).attempts, 12);
    assert!(lock(&scheduler.queue).jobs.is_empty());
}

#[test]
fn a_failure_of_the_reference_unit_fails_the_job() {
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    memory.fails_at.store(memory.new_table(0).unwrap().0.number + 5, Ordering::Relaxed);
    let env = Env::system();
    let scheduler = with_units(env.clone(), Arc::new(CpuUnit::new(env, 2)), Vec::new(), Patience::default());
    let error = scheduler.run(tasks, &host).unwrap_err();
    assert!(matches!(&error, TaskError::Storage(e) if e.is_no_space()), "{error}");
    assert!(lock(&scheduler.queue).jobs.is_empty());
}

#[test]
fn a_closed_reference_unit_fails_the_job_instead_of_waiting() {
    let memory = Arc::new(MemoryHost::new());
    let env = Env::system();
    let reference = Arc::new(CpuUnit::new(env.clone(), 2));
    reference.close();
    let scheduler = with_units(env, reference, Vec::new(), Patience::default());
    let tasks = job(&memory);
    let error = scheduler.run(tasks, &(memory as Arc<dyn TaskHost>)).unwrap_err();
    assert!(matches!(error, TaskError::Unit { .. }), "{error}");
}

/// Threads that submit jobs of their own and take whichever job has finished.
#[test]
fn jobs_of_many_threads_share_the_units() {
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let (scheduler, _) = scheduler(Fault::None);
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let expected = bytes(&memory, &scheduler.run(tasks.clone(), &host).unwrap());
    let (next, landed) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
                    scheduler.submit_tasks(next.fetch_add(1, Ordering::Relaxed), tasks.clone(), host, tasks.len());
                }
                loop {
                    let seen = scheduler.event.generation();
                    scheduler.turn();
                    while let Some(finished) = scheduler.take_finished(None) {
                        assert_eq!(bytes(&memory, &finished.result.unwrap()), expected);
                        landed.lock().unwrap().push(finished.job);
                        scheduler.event.notify();
                    }
                    if landed.lock().unwrap().len() == 20 {
                        return;
                    }
                    scheduler.event.wait(seen, scheduler.next_turn_in());
                }
            });
        }
    });
    let mut landed = landed.into_inner().unwrap();
    landed.sort_unstable();
    assert_eq!(landed, (1..=20).collect::<Vec<u64>>());
}

/// A unit elsewhere: each task takes 10 ms of waiting and no thread.
struct DistantUnit {
    env: Env,
    held: Mutex<Vec<(Duration, Assignment)>>,
    most_held: AtomicU64,
    cancelled: Mutex<Vec<u64>>,
    /// Tasks end when their time has come.
    answers: AtomicBool,
}

const DISTANT: Duration = Duration::from_millis(10);

impl DistantUnit {
    fn new(env: &Env) -> Arc<DistantUnit> {
        Arc::new(DistantUnit {
            env: env.clone(),
            held: Mutex::default(),
            most_held: AtomicU64::new(0),
            cancelled: Mutex::default(),
            answers: AtomicBool::new(true),
        })
    }
}

impl Unit for DistantUnit {
    fn name(&self) -> &str {
        "distant"
    }

    fn offer(&self, _task: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        Load { tasks: self.held.lock().unwrap().len(), tasks_max: 100, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let mut held = self.held.lock().unwrap();
        held.push((self.env.clock.now() + DISTANT, assignment));
        self.most_held.fetch_max(held.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn cancel(&self, attempt: u64) {
        self.cancelled.lock().unwrap().push(attempt);
        self.held.lock().unwrap().retain(|(_, assignment)| assignment.attempt != attempt);
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        let now = self.env.clock.now();
        let answers = self.answers.load(Ordering::Relaxed);
        for (_, assignment) in self.held.lock().unwrap().extract_if(.., |(at, _)| answers && *at <= now) {
            let result = run(&assignment.task, &*assignment.host);
            finished.push(Finished { attempt: assignment.attempt, result, elapsed: DISTANT, ran: Ran::default() });
        }
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
    }
}

/// A hundred jobs on a unit of 10 ms a task, from one thread: all are in flight at once.
#[test]
fn a_job_whose_tasks_are_elsewhere_holds_no_thread() {
    const JOBS: u64 = 100;
    let memory = Arc::new(MemoryHost::new());
    let env = Env::system();
    let distant = DistantUnit::new(&env);
    let others = vec![Arc::clone(&distant) as Arc<dyn Unit>];
    let scheduler = with_units(env.clone(), Arc::new(CpuUnit::new(env.clone(), 1)), others, Patience::default());
    assert_eq!((scheduler.room(), scheduler.tasks_max_elsewhere()), (101, 100));
    let tiny = task(&memory, &[numbered(20, 2, 9), numbered(20, 3, 5)], plain_rules());
    let began = env.clock.now();
    for job in 0..JOBS {
        scheduler.submit_tasks(job, vec![tiny.clone()], Arc::clone(&memory) as Arc<dyn TaskHost>, 1);
    }
    assert_eq!(scheduler.room(), 1);
    let mut landed = Vec::new();
    while landed.len() < JOBS as usize {
        scheduler.turn();
        landed.extend(std::iter::from_fn(|| scheduler.take_finished(None)));
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = env.clock.now() - began;
    assert_eq!(distant.most_held.load(Ordering::Relaxed), JOBS);
    assert!(landed.iter().all(|job| job.result.as_ref().is_ok_and(|outputs| outputs[0].tables.len() == 1)));
    assert!(took < DISTANT * 50, "a hundred tasks of 10 ms took {took:?}: they were not in flight together");
}

/// A job that is called off does not wait for a unit elsewhere, and the unit is told.
#[test]
fn a_job_that_is_called_off_cancels_its_attempts_elsewhere() {
    let memory = Arc::new(MemoryHost::new());
    let env = Env::system();
    let distant = DistantUnit::new(&env);
    distant.answers.store(false, Ordering::Relaxed);
    let others = vec![Arc::clone(&distant) as Arc<dyn Unit>];
    let scheduler = with_units(env.clone(), Arc::new(CpuUnit::new(env, 1)), others, Patience::default());
    let tasks = job(&memory);
    scheduler.submit_tasks(7, tasks, Arc::clone(&memory) as Arc<dyn TaskHost>, 3);
    scheduler.turn();
    assert_eq!(distant.held.lock().unwrap().len(), 3, "no more of a job than may run abreast");
    assert!(scheduler.take_finished(None).is_none());
    memory.cancel.store(true, Ordering::Relaxed);
    scheduler.turn();
    let finished = scheduler.take_finished(None).unwrap();
    assert!(matches!((finished.job, &finished.result), (7, Err(TaskError::Cancelled))), "{finished:?}");
    assert_eq!(distant.cancelled.lock().unwrap().len(), 3);
    assert!(scheduler.take_finished(None).is_none() && scheduler.reports()[1].failed == 0);
}

/// Compresses by another codec than the task's, as an encoder in hardware might, and says so.
struct OtherEncoder(CpuUnit);

impl Unit for OtherEncoder {
    fn name(&self) -> &str {
        "other"
    }

    fn encoder(&self) -> Encoder {
        Encoder::named("other 1")
    }

    fn offer(&self, _task: &Task) -> Offer {
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        self.0.load()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        assert_eq!(assignment.task.rules.output.encoder.name(), "other 1");
        let mut task = (*assignment.task).clone();
        task.rules.output.table.compression = Compression::Zstd { level: 1 };
        self.0.submit(Assignment { task: Arc::new(task), ..assignment })
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.0.poll(finished);
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Promise 5: the bytes are the encoder's, the entries are the task's.
#[test]
fn promise_5_a_task_names_its_encoder_and_another_encoder_gives_the_same_entries() {
    let memory = Arc::new(MemoryHost::new());
    let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
    let env = Env::system();
    let mut tasks = job(&memory);
    for task in &mut tasks {
        task.rules.output.table = TableOptions { compression: Compression::Lz4, ..TableOptions::default() };
    }
    let other = Arc::new(OtherEncoder(CpuUnit::new(env.clone(), 4)));
    let reference = Arc::new(CpuUnit::new(env.clone(), 1));
    let scheduler = with_units(env, reference, vec![other], Patience::default());
    let elsewhere = scheduler.run(tasks.clone(), &host).unwrap();
    assert_eq!(scheduler.reports()[1].succeeded, 4);
    for (task, output) in tasks.iter().zip(&elsewhere) {
        let expected = run(task, &*host).unwrap();
        let (expected_files, files) =
            (bytes(&memory, std::slice::from_ref(&expected)), bytes(&memory, std::slice::from_ref(output)));
        assert_ne!(expected_files, files, "the other encoder wrote the same bytes");
        let (expected, found) = (memory.contents(&expected), memory.contents(output));
        assert_eq!((expected.entries, expected.tombstones), (found.entries, found.tombstones));
    }
}

/// able, tasks held of tasks allowed, bytes held, bytes a second; which one gets a task of 1000 bytes.
const GOLDEN: &str = "
yes 0/2 0 100                                    | 0
yes 2/2 0 100                                    | none
no 0/2 0 100                                     | none
yes 0/2 0 100, yes 0/2 0 200                     | 1
yes 0/2 0 100, yes 0/2 0 100                     | 0
yes 0/2 0 100, yes 1/2 1500 200                  | 0
yes 1/2 2000 100, yes 1/2 1500 200               | 1
yes 0/2 0 100, yes 9/9 0 900                     | 0
yes 0/2 0 100, no 0/9 0 900                      | 0
yes 0/2 0 100, yes 0/9 0 0                       | 1
";

#[test]
fn the_choice_of_a_unit_is_that_of_the_golden_text() {
    let offer = |text: &str| {
        let [able, tasks, held, speed] = text.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let (tasks, tasks_max) = tasks.split_once('/').unwrap();
        let load = Load {
            tasks: tasks.parse().unwrap(),
            tasks_max: tasks_max.parse().unwrap(),
            input_bytes: held.parse().unwrap(),
            bytes_per_s: speed.parse().unwrap(),
            resources: None,
        };
        match load.offer(1000) {
            Offer::DoneIn(time) => Some(time).filter(|_| able == "yes"),
            _ => None,
        }
    };
    for line in GOLDEN.lines().filter(|line| !line.is_empty()) {
        let (units, expected) = line.split_once('|').unwrap();
        let offers: Vec<Option<Duration>> = units.split(',').map(offer).collect();
        let chosen = choose(&offers).map_or("none".to_owned(), |index| index.to_string());
        assert_eq!(chosen, expected.trim(), "{line}");
    }
}

/// Where a unit panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Encoder,
    Offer,
    Load,
    Submit,
    Cancel,
    Poll,
    Close,
}

/// Holds every task for ever, until it panics.
struct PanickingUnit {
    at: Call,
    is_armed: AtomicBool,
    held: Mutex<Vec<Assignment>>,
}

impl PanickingUnit {
    fn panics_at(&self, call: Call) {
        assert!(self.at != call || !self.is_armed.load(Ordering::Relaxed), "on purpose, at {call:?}");
    }
}

impl Unit for PanickingUnit {
    fn name(&self) -> &str {
        "panicking"
    }

    fn encoder(&self) -> Encoder {
        self.panics_at(Call::Encoder);
        Encoder::default()
    }

    fn offer(&self, _task: &Task) -> Offer {
        self.panics_at(Call::Offer);
        Offer::DoneIn(Duration::ZERO)
    }

    fn load(&self) -> Load {
        self.panics_at(Call::Load);
        Load { tasks_max: usize::MAX, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.panics_at(Call::Submit);
        self.held.lock().unwrap().push(assignment);
        Ok(())
    }

    fn cancel(&self, _attempt: u64) {
        self.panics_at(Call::Cancel);
    }

    fn poll(&self, _finished: &mut Vec<Finished>) {
        self.panics_at(Call::Poll);
    }

    fn close(&self) {
        self.held.lock().unwrap().clear();
        self.panics_at(Call::Close);
    }
}

/// A unit that panics takes no thread with it, no job, and no task. With a patience that is longer than the test, what
/// it held comes back because it has panicked, and not because it is late.
#[test]
fn a_unit_that_panics_is_asked_no_more_and_its_tasks_come_back() {
    for at in [Call::Encoder, Call::Offer, Call::Load, Call::Submit, Call::Cancel, Call::Poll, Call::Close] {
        let memory = Arc::new(MemoryHost::new());
        let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
        let tasks = job(&memory);
        let expected: Vec<TaskOutput> = tasks.iter().map(|task| run(task, &*host).unwrap()).collect();
        let unit = Arc::new(PanickingUnit { at, is_armed: AtomicBool::new(false), held: Mutex::default() });
        let env = Env::system();
        let others = vec![Arc::clone(&unit) as Arc<dyn Unit>];
        let reference = Arc::new(CpuUnit::new(env.clone(), 2));
        let least = if at == Call::Cancel { Duration::from_millis(30) } else { Duration::from_secs(1000) };
        let scheduler = with_units(env, reference, others, Patience { least, ..patience() });
        // Two tasks are with the unit when it panics at the next call.
        scheduler.submit_tasks(1, tasks[..2].to_vec(), Arc::clone(&host), 2);
        scheduler.turn();
        assert_eq!(unit.held.lock().unwrap().len(), 2, "{at:?}");
        unit.is_armed.store(true, Ordering::Relaxed);
        if at == Call::Close {
            scheduler.close();
            continue;
        }
        scheduler.submit_tasks(2, tasks[2..].to_vec(), Arc::clone(&host), 2);
        let mut landed = BTreeMap::new();
        while landed.len() < 2 {
            let seen = scheduler.event.generation();
            // A unit may take without end.
            assert!(scheduler.room() > 0 || scheduler.tasks_max_elsewhere() < usize::MAX);
            scheduler.turn();
            landed.extend(scheduler.take_finished(None).map(|finished| (finished.job, finished.result.unwrap())));
            scheduler.event.wait(seen, Some(Duration::from_millis(20)));
        }
        let outputs: Vec<TaskOutput> = landed.into_values().flatten().collect();
        assert_eq!(bytes(&memory, &outputs), bytes(&memory, &expected), "{at:?}");
        let report = scheduler.reports().pop().unwrap();
        assert!(
            report.last_trouble.as_ref().is_some_and(|t| t.contains("on purpose") || at == Call::Cancel),
            "{report:?}"
        );
        scheduler.close();
    }
}

/// Answers in its own way.
struct LyingUnit {
    lie: fn(&Assignment, &mut Vec<Finished>),
    said: Mutex<Vec<Finished>>,
}

impl Unit for LyingUnit {
    fn name(&self) -> &str {
        "lying"
    }

    fn offer(&self, task: &Task) -> Offer {
        // The first of the tasks is left to the reference unit.
        if task.rules.range.lower.is_none() { Offer::Busy } else { Offer::DoneIn(Duration::ZERO) }
    }

    fn load(&self) -> Load {
        Load { tasks_max: 100, ..Load::default() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        (self.lie)(&assignment, &mut self.said.lock().unwrap());
        assignment.done.notify();
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.said.lock().unwrap());
    }

    fn close(&self) {}
}

fn say(assignment: &Assignment, result: Result<TaskOutput>) -> Finished {
    Finished { attempt: assignment.attempt, result, elapsed: Duration::MAX, ran: Ran::default() }
}

/// What a unit says of itself, of others and of nobody's attempts neither stops a job nor gives it another result.
#[test]
fn a_unit_that_lies_stops_no_job() {
    type Lie = fn(&Assignment, &mut Vec<Finished>);
    let lies: [(&str, Lie); 5] = [
        ("cancelled by nobody", |assignment, said| said.push(say(assignment, Err(TaskError::Cancelled)))),
        ("answers twice", |assignment, said| {
            said.push(say(assignment, run(&assignment.task, &*assignment.host)));
            said.push(say(assignment, Err(TaskError::Panicked("the second answer".to_owned()))));
        }),
        ("answers for others", |assignment, said| {
            for attempt in 0..assignment.attempt {
                let result = Err(TaskError::Panicked("not its attempt".to_owned()));
                said.push(Finished { attempt, result, elapsed: Duration::ZERO, ran: Ran::default() });
            }
            said.push(say(assignment, run(&assignment.task, &*assignment.host)));
        }),
        ("counts without end", |assignment, said| {
            let mut output = run(&assignment.task, &*assignment.host).unwrap();
            output.stats.dropped_hidden = u64::MAX;
            output.stats.dropped_by_filter = u64::MAX;
            output.tables.iter_mut().for_each(|table| table.summary.properties.entries = u64::MAX);
            said.push(say(assignment, Ok(output)));
        }),
        ("long tables", |assignment, said| {
            let mut output = run(&assignment.task, &*assignment.host).unwrap();
            output.tables.iter_mut().for_each(|table| table.summary.bytes = u64::MAX);
            said.push(say(assignment, Ok(output)));
        }),
    ];
    for (name, lie) in lies {
        let memory = Arc::new(MemoryHost::new());
        let host = Arc::clone(&memory) as Arc<dyn TaskHost>;
        let tasks = job(&memory);
        let expected: Vec<TaskOutput> = tasks.iter().map(|task| run(task, &*host).unwrap()).collect();
        let unit = Arc::new(LyingUnit { lie, said: Mutex::default() });
        let env = Env::system();
        let reference = Arc::new(CpuUnit::new(env.clone(), 1));
        let scheduler = with_units(env, reference, vec![unit], Patience { rest_min: Duration::ZERO, ..patience() });
        let outputs = scheduler.run(tasks, &host).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bytes(&memory, &outputs), bytes(&memory, &expected), "{name}");
        let mut sum = TaskStats::default();
        outputs.iter().for_each(|output| sum.add(&output.stats));
    }
}

/// A panic in a turn, here of a host, ends the jobs that the turn had in its hands: whoever waits for them is told.
#[test]
fn a_panic_in_a_turn_ends_its_jobs() {
    struct PanickingHost;
    impl TaskHost for PanickingHost {
        fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
            Err(Error::Invalid("no place".to_owned()))
        }

        fn create(&self, _level: u32, _place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
            Err(Error::Invalid("no place".to_owned()))
        }

        fn pace(&self, _bytes: u64) {}

        fn cancelled(&self) -> bool {
            panic!("on purpose")
        }
    }
    let memory = Arc::new(MemoryHost::new());
    let tasks = job(&memory);
    let env = Env::system();
    let late = Arc::new(LateUnit { held: Mutex::default(), finished: Mutex::default() });
    let reference = Arc::new(CpuUnit::new(env.clone(), 1));
    let scheduler = with_units(env, reference, vec![Arc::clone(&late) as Arc<dyn Unit>], Patience::default());
    scheduler.submit_tasks(1, tasks.clone(), Arc::clone(&memory) as Arc<dyn TaskHost>, 4);
    scheduler.turn();
    scheduler.submit_tasks(2, tasks, Arc::new(PanickingHost), 4);
    let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scheduler.turn()));
    assert!(turn.is_err());
    for job in [1, 2] {
        let finished = scheduler.take_finished(Some(job)).unwrap();
        assert!(matches!(finished.result, Err(TaskError::Panicked(_))), "{finished:?}");
    }
    assert!(late.held.lock().unwrap().iter().all(|assignment| assignment.host.cancelled()), "they may not go on");
    assert!(scheduler.is_empty());
    scheduler.turn();
}
