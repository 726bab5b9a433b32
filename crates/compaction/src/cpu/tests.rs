use super::*;
use crate::error::TaskError;
use crate::task::{Task, TaskHost};
use crate::testing::{MemoryHost, numbered, plain_rules, task};
use crate::{CompactionFilter, Decision, FilterContext, FrozenFilter};
use situ_device::Event;
use std::sync::atomic::{AtomicBool, Ordering};

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
