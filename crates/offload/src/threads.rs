//! Tasks on threads of the executor: what the units of this machine have in common.
//!
//! Each task has a thread of its own, started when the task is given and gone when it is done. A task reads megabytes,
//! so starting a thread costs nothing compared with it, and an idle store has no thread waiting for compactions.
//!
//! **Invariants**: never more than `threads` tasks that are running or not collected; so the list of finished attempts
//! is bounded too. **Threads**: any may submit and poll; the lock is held for moving values only.
//! **Failure**: a panic in a task becomes its result; a thread that cannot be started is a refusal.

use crate::ran::Ran;
use crate::unit::{Assignment, Finished, Load, Refused};
use situ_base::{Env, JobHandle, lock};
use situ_compaction::{Result, TaskError, TaskOutput};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Speed is measured over about this many bytes; what is older fades.
const MEASURED_BYTES: u64 = 1 << 30;

/// Runs one assignment, on the thread that it is called on.
pub type RunTask = dyn Fn(&Assignment) -> (Result<TaskOutput>, Ran) + Send + Sync;

/// Runs assignments, each on a thread of its own. See the [module](self). A host may keep its unit alive, and so must
/// not be the last that does: [`close`](TaskThreads::close) it before it is dropped, or one of its threads may find
/// itself waiting for itself.
pub struct TaskThreads {
    env: Env,
    threads: usize,
    shared: Arc<Shared>,
    /// Threads that were started and may have ended. At most one a slot, and those that are about to end.
    workers: Mutex<Vec<Worker>>,
}

struct Worker {
    attempt: u64,
    handle: Box<dyn JobHandle>,
}

struct Shared {
    env: Env,
    run: Box<RunTask>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Vec<Running>,
    finished: Vec<Finished>,
    measured_bytes: u64,
    measured: Duration,
    closed: bool,
}

struct Running {
    attempt: u64,
    input_bytes: u64,
}

impl TaskThreads {
    /// Makes a set of at most `threads` tasks at a time (at least one), which `run` runs.
    pub fn new(env: Env, threads: usize, run: Box<RunTask>) -> TaskThreads {
        let shared = Shared { env: env.clone(), run, state: Mutex::default() };
        TaskThreads { env, threads: threads.max(1), shared: Arc::new(shared), workers: Mutex::default() }
    }

    /// Joins threads whose tasks have ended: they do nothing any more but return.
    fn reap(&self) {
        let mut ended = Vec::new();
        {
            // In this order: a worker is listed after its attempt is, so one whose attempt is not listed has ended.
            let mut workers = lock(&self.workers);
            let state = lock(&self.shared.state);
            for worker in std::mem::take(&mut *workers) {
                let runs = state.running.iter().any(|running| running.attempt == worker.attempt);
                if runs { workers.push(worker) } else { ended.push(worker) }
            }
        }
        for worker in ended {
            let _ = worker.handle.join();
        }
    }

    /// Returns the load of all threads together. Resources are not measured here.
    pub fn load(&self) -> Load {
        let state = lock(&self.shared.state);
        // Over all threads: each task was measured alone.
        let nanos = state.measured.as_nanos().max(1);
        let bytes_per_s = u128::from(state.measured_bytes) * 1_000_000_000 * self.threads as u128 / nanos;
        Load {
            tasks: state.running.len() + state.finished.len(),
            tasks_max: self.threads,
            input_bytes: state.running.iter().map(|running| running.input_bytes).sum(),
            bytes_per_s: u64::try_from(bytes_per_s).unwrap_or(u64::MAX),
            resources: None,
        }
    }

    /// As [`Unit::submit`](crate::Unit::submit).
    ///
    /// # Errors
    /// All threads are busy, there is no thread, or the set is closed.
    pub fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        self.reap();
        let attempt = assignment.attempt;
        {
            let mut state = lock(&self.shared.state);
            if state.closed {
                return Err(Refused::Gone("the unit is closed".to_owned()));
            }
            if state.running.len() + state.finished.len() >= self.threads {
                return Err(Refused::Busy);
            }
            state.running.push(Running { attempt, input_bytes: assignment.task.input_bytes() });
        }
        let shared = Arc::clone(&self.shared);
        match self.env.executor.spawn("compaction", Box::new(move || shared.work(&assignment))) {
            Ok(handle) => {
                lock(&self.workers).push(Worker { attempt, handle });
                Ok(())
            }
            Err(_) => {
                lock(&self.shared.state).running.retain(|running| running.attempt != attempt);
                Err(Refused::Busy)
            }
        }
    }

    /// As [`Unit::poll`](crate::Unit::poll).
    pub fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut lock(&self.shared.state).finished);
    }

    /// As [`Unit::close`](crate::Unit::close).
    pub fn close(&self) {
        lock(&self.shared.state).closed = true;
        let workers = std::mem::take(&mut *lock(&self.workers));
        for worker in workers {
            // A panic of the task is in its result already.
            let _ = worker.handle.join();
        }
    }
}

impl Drop for TaskThreads {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self, assignment: &Assignment) {
        let Assignment { attempt, done, .. } = assignment;
        let began = self.env.clock.now();
        let (result, ran) = catch_unwind(AssertUnwindSafe(|| (self.run)(assignment)))
            .unwrap_or_else(|payload| (Err(TaskError::of_panic(&*payload)), Ran::default()));
        let elapsed = self.env.clock.now().saturating_sub(began);
        let mut state = lock(&self.state);
        state.running.retain(|running| running.attempt != *attempt);
        if let Ok(output) = &result {
            state.measured_bytes += output.stats.bytes_read;
            state.measured += elapsed;
            if state.measured_bytes > MEASURED_BYTES {
                state.measured_bytes /= 2;
                state.measured /= 2;
            }
        }
        state.finished.push(Finished { attempt: *attempt, result, elapsed, ran });
        drop(state);
        done.notify();
    }
}
