//! A unit of another machine, modelled: it computes on a core of this machine, and takes as long as the other machine
//! would.
//!
//! 1. A task runs by the reference merge, on one thread. With a core, the thread runs there. The program itself runs on
//!    the other cores if it was started so (`taskset`): then its processor time is the host's alone.
//! 2. The task ends no earlier than the entries of its input at the given rate. A core that is slower than that is the
//!    limit of the model, and the figures of the stages say so.
//!
//! Pages label its figures as those of a model.

use rustix::thread::{CpuSet, sched_setaffinity};
use situ::offload::{Assignment, Finished, Load, Offer, Ran, Refused, TaskThreads, Unit};
use situ_base::Env;
use situ_compaction::{Result, RunMode, Task, TaskError, TaskOutput, run_with};
use situ_storage::Error;
use std::time::Duration;

/// The interval at which a task that waits for its time asks whether it is given up.
const LOOK: Duration = Duration::from_millis(1);

/// See the [module](self).
pub(super) struct ModelUnit {
    threads: TaskThreads,
}

impl ModelUnit {
    /// Makes a unit that merges `entries_per_s`, one task at a time, on the core of this number if there is one.
    pub(super) fn new(env: &Env, entries_per_s: u64, core: Option<usize>) -> ModelUnit {
        let its_env = env.clone();
        let run = move |assignment: &Assignment| run(assignment, &its_env, entries_per_s, core);
        ModelUnit { threads: TaskThreads::new(env.clone(), 1, Box::new(run)) }
    }
}

fn run(assignment: &Assignment, env: &Env, entries_per_s: u64, core: Option<usize>) -> (Result<TaskOutput>, Ran) {
    let Assignment { task, host, .. } = assignment;
    if let Some(core) = core {
        let mut cores = CpuSet::new();
        cores.set(core);
        if let Err(error) = sched_setaffinity(None, &cores) {
            let failed = Error::Invalid(format!("the model's thread cannot run on core {core}: {error}"));
            return (Err(TaskError::Storage(failed)), Ran::default());
        }
    }
    let began = env.clock.now();
    let (result, report) = run_with(task, host, RunMode::Linear, env);
    let entries = result.as_ref().map_or(0, |output| output.stats.entries_in);
    let due = began.saturating_add(Duration::from_secs_f64(entries as f64 / entries_per_s.max(1) as f64));
    while env.clock.now() < due && !host.cancelled() {
        std::thread::sleep(LOOK.min(due.saturating_sub(env.clock.now())));
    }
    (result, Ran::from(report))
}

impl Unit for ModelUnit {
    fn name(&self) -> &str {
        "model of another machine"
    }

    fn offer(&self, task: &Task) -> Offer {
        self.load().offer(task.input_bytes())
    }

    fn load(&self) -> Load {
        self.threads.load()
    }

    fn submit(&self, assignment: Assignment) -> std::result::Result<(), Refused> {
        self.threads.submit(assignment)
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.threads.poll(finished);
    }

    fn close(&self) {
        self.threads.close();
    }
}
