use super::*;
use crate::mode::DecisionRules;
use situ_base::Event;
use situ_compaction::testing::{Contents, Entry, MemoryHost, numbered, plain_rules, task};
use situ_compaction::{CompactionFilter, Decision, FilterContext, FrozenFilter, RunMode, Task, TaskError, TaskHost};
use situ_compaction::{Measure, encode_measures};
use situ_table::KeyKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

struct Gate {
    open: AtomicBool,
    event: Arc<dyn Event>,
}

impl Gate {
    fn new(env: &Env) -> Arc<Gate> {
        Arc::new(Gate { open: AtomicBool::new(false), event: env.executor.event() })
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.event.notify();
    }
}

impl CompactionFilter for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        loop {
            let seen = self.event.generation();
            if self.open.load(Ordering::SeqCst) {
                return Decision::Keep;
            }
            self.event.wait(seen, None);
        }
    }
}

struct Panics;

impl CompactionFilter for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        panic!("on purpose")
    }
}

fn small_task(host: &MemoryHost, filter: Arc<dyn CompactionFilter>) -> Arc<Task> {
    let mut task = task(host, &[numbered(10, 1, 9)], plain_rules());
    task.rules.filter = Some(FrozenFilter::freeze(&filter, task.rules.now_unix).unwrap());
    Arc::new(task)
}

fn assignment(attempt: u64, task: &Arc<Task>, host: &Arc<MemoryHost>, done: &Arc<dyn Event>) -> Assignment {
    let host = Arc::clone(host) as Arc<dyn TaskHost>;
    Assignment { attempt, task: Arc::clone(task), host, done: Arc::clone(done), mode: crate::mode::ModeRule::default() }
}

fn wait_for(unit: &CpuUnit, count: usize, done: &Arc<dyn Event>) -> Vec<Finished> {
    let mut finished = Vec::new();
    loop {
        let seen = done.generation();
        unit.poll(&mut finished);
        if finished.len() >= count {
            return finished;
        }
        assert!(done.wait(seen, Some(Duration::from_secs(60))), "nothing finished");
    }
}

#[test]
fn it_holds_so_many_tasks_and_no_more() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 2), Arc::new(MemoryHost::new()), env.executor.event());
    let gate = Gate::new(&env);
    let task = small_task(&host, Arc::clone(&gate) as Arc<dyn CompactionFilter>);
    unit.submit(assignment(1, &task, &host, &done)).unwrap();
    unit.submit(assignment(2, &task, &host, &done)).unwrap();
    assert_eq!(unit.submit(assignment(3, &task, &host, &done)), Err(Refused::Busy));
    assert_eq!((unit.load().tasks, unit.load().input_bytes), (2, 2 * task.input_bytes()));
    gate.open();
    let mut attempts: Vec<u64> = wait_for(&unit, 2, &done).iter().map(|finished| finished.attempt).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2]);
    unit.submit(assignment(4, &task, &host, &done)).unwrap();
    assert!(wait_for(&unit, 1, &done)[0].result.is_ok());
    assert_eq!(unit.load().tasks, 0);
    assert!(unit.load().bytes_per_s > 0);
}

#[test]
fn a_panic_is_a_result() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 1), Arc::new(MemoryHost::new()), env.executor.event());
    unit.submit(assignment(1, &small_task(&host, Arc::new(Panics)), &host, &done)).unwrap();
    let result = wait_for(&unit, 1, &done).remove(0).result;
    assert!(matches!(&result, Err(TaskError::Panicked(message)) if message == "on purpose"), "{result:?}");
}

#[test]
fn a_closed_unit_takes_nothing() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 1), Arc::new(MemoryHost::new()), env.executor.event());
    unit.close();
    let refused = unit.submit(assignment(1, &small_task(&host, Arc::new(Panics)), &host, &done));
    assert!(matches!(refused, Err(Refused::Gone(_))));
}

/// Pipelines go off at half of the entries with values of 15 bytes or more.
fn by_values() -> ModeRule {
    let rules = DecisionRules { threshold: 0.5, merge_threads: 3, ..DecisionRules::copro_plus(15) };
    ModeRule::Decided(rules)
}

/// A task with small values, and one with large ones.
fn tasks(host: &MemoryHost) -> [Arc<Task>; 2] {
    let entry = |at: u64, bytes: usize| Entry::new(&format!("{at:05}"), 9, KeyKind::Put, &"v".repeat(bytes));
    [10, 20].map(|bytes| {
        let contents = Contents { entries: (0..10).map(|at| entry(at, bytes)).collect(), tombstones: Vec::new() };
        Arc::new(task(host, &[contents], plain_rules()))
    })
}

#[test]
fn the_unit_decides_by_its_own_decider_and_says_why() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 4), Arc::new(MemoryHost::new()), env.executor.event());
    let [small, large] = tasks(&host);
    let fixed = RunMode::Pipelined { merge_threads: 2 };
    let given = [(1, &small, by_values()), (2, &large, by_values()), (3, &large, ModeRule::Fixed(fixed))];
    for (attempt, task, mode) in given {
        unit.submit(Assignment { mode, ..assignment(attempt, task, &host, &done) }).unwrap();
    }
    let mut finished = wait_for(&unit, 3, &done);
    finished.sort_by_key(|finished| finished.attempt);
    let modes: Vec<RunMode> = finished.iter().map(|finished| finished.ran.mode).collect();
    // Ten entries are too few for several merge threads.
    assert_eq!(modes, [RunMode::PIPELINED, RunMode::Linear, RunMode::PIPELINED]);
    let decided = finished.iter().map(|finished| finished.ran.decision.as_ref().map(|record| record.mode));
    let decided: Vec<Option<RunMode>> = decided.collect();
    assert_eq!(decided, [Some(RunMode::Pipelined { merge_threads: 3 }), Some(RunMode::Linear), None]);
    let shares = finished.iter().map(|finished| finished.ran.decision.as_ref().map(|record| record.f));
    assert_eq!(shares.collect::<Vec<_>>(), [Some(0.0), Some(1.0), None]);
    assert!(finished.iter().all(|finished| finished.result.is_ok()));
    let report = unit.decisions().unwrap();
    assert_eq!((report.made, report.pipelined, report.linear, report.pipelines_running), (2, 1, 1, 0));
}

/// Without a machine to ask, as in the simulator, the measures are missing and a decision is made all the same.
#[test]
fn a_unit_without_a_sampler_decides_by_messages() {
    let env = Env::system();
    let unit = CpuUnit::deciding(env.clone(), 1, Decider::new(None));
    let (host, done) = (Arc::new(MemoryHost::new()), env.executor.event());
    let rules = DecisionRules { cpu_weight: 1.0, ..DecisionRules::copro_plus(1 << 15) };
    let decide = |attempt| {
        let mode = ModeRule::Decided(rules.clone());
        unit.submit(Assignment { mode, ..assignment(attempt, &tasks(&host)[0], &host, &done) }).unwrap();
        wait_for(&unit, 1, &done).remove(0).ran.decision.unwrap()
    };
    let record = decide(1);
    assert_eq!((record.mode, record.terms[0].value), (RunMode::PIPELINED, None));
    unit.measured(b"no message");
    unit.measured(&encode_measures(&[Measure::Processors(0.8)]));
    let record = decide(2);
    assert_eq!((record.mode, record.terms[0].value), (RunMode::Linear, Some(0.8)));
    assert_eq!(unit.load().resources, None);
}

/// A run counts as a pipeline until it has ended, also if it ends by a panic.
#[test]
fn pipelined_runs_are_counted_while_they_run() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 1), Arc::new(MemoryHost::new()), env.executor.event());
    let (pipelines, mode) = (unit.pipelines().unwrap(), ModeRule::Fixed(RunMode::PIPELINED));
    let gate = Gate::new(&env);
    let task = small_task(&host, Arc::clone(&gate) as Arc<dyn CompactionFilter>);
    unit.submit(Assignment { mode: mode.clone(), ..assignment(1, &task, &host, &done) }).unwrap();
    while pipelines.running() == 0 {
        std::thread::yield_now();
    }
    gate.open();
    wait_for(&unit, 1, &done);
    assert_eq!(pipelines.running(), 0);
    let task = small_task(&host, Arc::new(Panics));
    unit.submit(Assignment { mode, ..assignment(2, &task, &host, &done) }).unwrap();
    let finished = wait_for(&unit, 1, &done).remove(0);
    assert_eq!((finished.ran.mode, pipelines.running()), (RunMode::PIPELINED, 0));
}

/// On Linux the unit tells what is free of the machine.
#[cfg(target_os = "linux")]
#[test]
fn a_unit_on_the_machine_tells_what_is_free() {
    let unit = CpuUnit::new(Env::system(), 1);
    let resources = unit.load().resources.unwrap();
    assert!(resources.memory_free_bytes > 0, "{resources:?}");
}

#[test]
fn a_task_runs_in_the_mode_of_its_assignment_and_the_answer_says_so() {
    let env = Env::system();
    let (unit, host, done) = (CpuUnit::new(env.clone(), 1), Arc::new(MemoryHost::new()), env.executor.event());
    let task = Arc::new(task(&host, &[numbered(1000, 1, 9), numbered(1000, 2, 5)], plain_rules()));
    for (attempt, mode) in [RunMode::Linear, RunMode::PIPELINED].into_iter().enumerate() {
        let assignment = Assignment { mode: ModeRule::Fixed(mode), ..assignment(attempt as u64, &task, &host, &done) };
        unit.submit(assignment).unwrap();
        let finished = wait_for(&unit, 1, &done).remove(0);
        assert_eq!(finished.ran.mode, mode);
        assert_eq!(finished.ran.stages.write.bytes, finished.result.unwrap().stats.bytes_written);
    }
}
