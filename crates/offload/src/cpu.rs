//! The unit that is always there: tasks on threads of the executor, by the reference merge.
//!
//! A pipelined run has further threads; they are gone before the task's own ([`TaskThreads`]).
//!
//! How a task runs is the assignment's to say, or the unit's own [`Decider`]'s to decide by the assignment's rules. The
//! thread of the task decides when it begins, so that the giver does not wait for tables to open.

use crate::decide::{Decider, DecisionReport, MachineSampler, Sampler};
use crate::mode::ModeRule;
use crate::ran::Ran;
use crate::threads::TaskThreads;
use crate::unit::{Assignment, Finished, Load, Offer, Refused, Unit};
use situ_base::Env;
use situ_compaction::{Pipelines, Result, Task, TaskOutput, run_with};
use std::sync::Arc;

/// Runs tasks by [`run_with`], each on a thread of its own, and on further ones if the run is pipelined. A host may
/// keep its unit alive, and so must not be the last that does: [`close`](Unit::close) it before it is dropped, or one
/// of its threads may find itself waiting for itself.
pub struct CpuUnit {
    env: Env,
    decider: Arc<Decider>,
    threads: TaskThreads,
}

impl CpuUnit {
    /// Makes a unit with at most `threads` tasks at a time (at least one). It decides by the machine's measures, if the
    /// environment is the machine's.
    pub fn new(env: Env, threads: usize) -> CpuUnit {
        let sampler = env.executor.is_machine().then(|| Box::new(MachineSampler::default()) as Box<dyn Sampler>);
        CpuUnit::deciding(env, threads, Decider::new(sampler))
    }

    /// Makes a unit as [`new`](CpuUnit::new) does, with a decider that was made elsewhere.
    pub fn deciding(env: Env, threads: usize, decider: Decider) -> CpuUnit {
        let decider = Arc::new(decider);
        let (its_env, its_decider) = (env.clone(), Arc::clone(&decider));
        let run = move |assignment: &Assignment| run(assignment, &its_decider, &its_env);
        CpuUnit { threads: TaskThreads::new(env.clone(), threads, Box::new(run)), env, decider }
    }
}

/// Runs a task in the mode that its assignment asks for.
fn run(assignment: &Assignment, decider: &Decider, env: &Env) -> (Result<TaskOutput>, Ran) {
    let Assignment { task, host, mode, .. } = assignment;
    let (mode, decision) = match mode {
        ModeRule::Fixed(mode) => (*mode, None),
        ModeRule::Decided(rules) => {
            let record = decider.decide(rules, task, env.clock.now());
            (record.mode, Some(record))
        }
    };
    let _counted = decider.pipelines().begin(mode);
    let (result, ran) = run_with(task, host, mode, env);
    // So that the next decision finds a measure over a short time.
    decider.sample(env.clock.now());
    (result, Ran::decided(ran, decision))
}

impl Unit for CpuUnit {
    fn name(&self) -> &str {
        "cpu"
    }

    fn offer(&self, task: &Task) -> Offer {
        self.load().offer(task.input_bytes())
    }

    fn load(&self) -> Load {
        let now = self.env.clock.now();
        self.decider.sample(now);
        Load { resources: self.decider.resources(now), ..self.threads.load() }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.threads.submit(assignment)
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.threads.poll(finished);
    }

    fn measured(&self, message: &[u8]) {
        // A message that is none is the sender's mistake, and leaves the measures missing.
        let _ = self.decider.collect(message, self.env.clock.now());
    }

    fn decisions(&self) -> Option<DecisionReport> {
        Some(self.decider.report())
    }

    fn pipelines(&self) -> Option<Pipelines> {
        Some(self.decider.pipelines().clone())
    }

    fn close(&self) {
        self.threads.close();
    }
}

#[cfg(test)]
mod tests;
