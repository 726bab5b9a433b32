//! A compactor that runs tasks on this machine's processors.
//!
//! 1. Jobs wait in the order of their priority. A [turn](Compactor::turn) starts a thread for each task that may begin.
//! 2. The thread runs the task, checks the output, and notes the result. The last task of a job finishes the job.
//! 3. A task that fails ends its job: the hosts of the other tasks answer "cancelled", and no further task of the job
//!    begins.
//!
//! A task is [pipelined](RunMode::Pipelined) while the processors suffice for a pipeline in each task that runs.
//! Otherwise it has one thread, and the tasks keep the processors busy.
//!
//! **Invariants.** At most `threads` tasks run. A job finishes once, when none of its tasks runs.
//! **Threads.** Any thread calls any method. A thread of a task ends with the task: a task reads megabytes, so that
//! starting a thread costs little, and an idle store has no thread waiting.
//! **Failure.** A panic in a run becomes the result of its task. If the system refuses a thread, the task waits for the
//! next turn.

use crate::attempt_host::AttemptHost;
use crate::check::check_output;
use crate::compactor::{
    Compactor, CompactorParts, Destination, Division, FinishedJob, JobNotes, JobOrder, JobShape, MakeCompactor, Part,
    Priority,
};
use crate::cut::cut;
use crate::error::{Result, TaskError};
use crate::mode::RunMode;
use crate::run::run_with;
use crate::task::{Task, TaskHost, TaskOutput};
use situ_base::{Env, Event, JobHandle, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The pause before the next try, if the system refuses a thread.
const THREAD_AGAIN: Duration = Duration::from_millis(100);

/// The number of processors that a pipelined run keeps busy, about.
const PIPELINE_PROCESSORS: usize = 2;

/// Makes a [`LocalCompactor`] for each store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl MakeCompactor for Local {
    fn name(&self) -> String {
        "local".to_owned()
    }

    fn make(&self, parts: CompactorParts) -> Arc<dyn Compactor> {
        Arc::new(LocalCompactor::new(parts))
    }
}

/// Runs the compactions of a store on this machine's processors. See the [module](self).
pub struct LocalCompactor {
    shared: Arc<Shared>,
    /// Threads of tasks that run or have ended lately.
    workers: Mutex<Vec<Worker>>,
}

struct Worker {
    attempt: u64,
    handle: Box<dyn JobHandle>,
}

struct Shared {
    env: Env,
    event: Arc<dyn Event>,
    threads: usize,
    processors: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The most urgent job first, among equals the one that came first.
    jobs: Vec<Job>,
    finished: VecDeque<FinishedJob>,
    /// The attempts that run.
    running: Vec<u64>,
    attempts: u64,
    /// The time of the next try to start a thread, by the clock.
    next_turn: Option<Duration>,
    is_closed: bool,
}

struct Job {
    number: u64,
    host: Arc<dyn TaskHost>,
    tasks: Vec<TaskState>,
    abreast: usize,
    priority: Priority,
    failure: Option<TaskError>,
}

enum TaskState {
    Waiting(Arc<Task>),
    Running(Arc<AttemptHost>),
    Done(TaskOutput),
    /// Its job has failed.
    Dropped,
}

/// A task on its way to a thread.
struct Attempt {
    number: u64,
    job: u64,
    /// The place of the task in its job.
    at: usize,
    task: Arc<Task>,
    host: Arc<AttemptHost>,
    mode: RunMode,
}

impl Job {
    fn running(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, TaskState::Running(_))).count()
    }

    fn next_waiting(&self) -> Option<usize> {
        let waits = self.failure.is_none() && self.running() < self.abreast;
        self.tasks.iter().position(|task| waits && matches!(task, TaskState::Waiting(_)))
    }

    /// Ends the job because of `error`. Tasks that run are cancelled.
    fn fail(&mut self, error: TaskError) {
        self.failure.get_or_insert(error);
        for task in &mut self.tasks {
            match task {
                TaskState::Running(host) => host.give_up(),
                TaskState::Waiting(_) => *task = TaskState::Dropped,
                TaskState::Done(_) | TaskState::Dropped => {}
            }
        }
    }

    fn has_ended(&self) -> bool {
        !self.tasks.iter().any(|task| matches!(task, TaskState::Waiting(_) | TaskState::Running(_)))
    }

    fn finish(self) -> FinishedJob {
        assert_eq!(self.running(), 0, "job {} finishes while tasks run", self.number);
        let outputs = self.tasks.into_iter().map(|task| match task {
            TaskState::Done(output) => Ok(output),
            _ => Err(TaskError::Cancelled),
        });
        let result = self.failure.map_or_else(|| outputs.collect(), Err);
        FinishedJob { job: self.number, result }
    }
}

impl State {
    /// Asserts that each attempt that runs has its task.
    fn check(&self) {
        let tasks: usize = self.jobs.iter().map(Job::running).sum();
        assert_eq!(self.running.len(), tasks, "attempts {:?} run", self.running);
    }

    /// Takes the next task that may begin.
    fn begin_next(&mut self, threads: usize, processors: usize) -> Option<Attempt> {
        if self.is_closed || self.running.len() >= threads {
            return None;
        }
        let (job, at) = self.jobs.iter_mut().find_map(|job| job.next_waiting().map(|at| (job, at)))?;
        let host = AttemptHost::of(&job.host);
        let running = TaskState::Running(Arc::clone(&host));
        let TaskState::Waiting(task) = std::mem::replace(&mut job.tasks[at], running) else {
            unreachable!("the task waits")
        };
        let are_left = PIPELINE_PROCESSORS.saturating_mul(self.running.len() + 1) <= processors;
        let mode = if are_left { RunMode::PIPELINED } else { RunMode::Linear };
        self.attempts += 1;
        self.running.push(self.attempts);
        let job = job.number;
        self.check();
        assert!(self.running.len() <= threads, "attempts {:?} run on {threads} threads", self.running);
        Some(Attempt { number: self.attempts, job, at, task, host, mode })
    }

    /// Notes what came of an attempt. Returns true if its job has finished.
    fn end(&mut self, attempt: &Attempt, state: TaskState, failure: Option<TaskError>) -> bool {
        let running = self.running.len();
        self.running.retain(|number| *number != attempt.number);
        assert_eq!(self.running.len() + 1, running, "an attempt ends once");
        let at =
            self.jobs.iter().position(|job| job.number == attempt.job).expect("a job stays until its tasks have ended");
        let job = &mut self.jobs[at];
        let ended = std::mem::replace(&mut job.tasks[attempt.at], state);
        assert!(matches!(ended, TaskState::Running(_)), "task {} of job {} did not run", attempt.at, job.number);
        if let Some(error) = failure {
            job.fail(error);
        }
        let has_ended = job.has_ended();
        if has_ended {
            let job = self.jobs.remove(at);
            self.finished.push_back(job.finish());
        }
        self.check();
        has_ended
    }
}

impl Shared {
    fn run(&self, attempt: &Attempt) -> Result<TaskOutput> {
        let host = Arc::clone(&attempt.host) as Arc<dyn TaskHost>;
        let (result, _) = run_with(&attempt.task, &host, attempt.mode, &self.env);
        let output = result?;
        match check_output(&attempt.task, &attempt.host.places(), &output) {
            Ok(()) => Ok(output),
            Err(what) => Err(TaskError::Wrong(what)),
        }
    }

    fn work(&self, attempt: &Attempt) {
        let result = catch_unwind(AssertUnwindSafe(|| self.run(attempt)));
        let result = result.unwrap_or_else(|payload| Err(TaskError::of_panic(&*payload)));
        let (state, failure) = match result {
            Ok(output) => (TaskState::Done(output), None),
            Err(error) => (TaskState::Dropped, Some(error)),
        };
        lock(&self.state).end(attempt, state, failure);
        self.event.notify();
    }
}

impl LocalCompactor {
    /// Makes the compactor of a store.
    pub fn new(parts: CompactorParts) -> LocalCompactor {
        let CompactorParts { env, event, threads } = parts;
        // Simulated threads share no processor.
        let of_machine = || std::thread::available_parallelism().map_or(1, usize::from);
        let processors = if env.executor.is_machine() { of_machine() } else { usize::MAX };
        let shared = Shared { env, event, threads: threads.max(1), processors, state: Mutex::default() };
        LocalCompactor { shared: Arc::new(shared), workers: Mutex::default() }
    }

    /// Starts a thread for an attempt. If there is none, the task waits again.
    fn start(&self, attempt: Attempt) -> bool {
        let (shared, number, job, at) = (Arc::clone(&self.shared), attempt.number, attempt.job, attempt.at);
        let task = Arc::clone(&attempt.task);
        let started = self.shared.env.executor.spawn("compaction", Box::new(move || shared.work(&attempt)));
        match started {
            Ok(handle) => {
                lock(&self.workers).push(Worker { attempt: number, handle });
                true
            }
            Err(_) => {
                let mut state = lock(&self.shared.state);
                state.running.retain(|running| *running != number);
                state.next_turn = Some(self.shared.env.clock.now() + THREAD_AGAIN);
                let place = state.jobs.iter().position(|waiting| waiting.number == job);
                let place = place.expect("a job stays until its tasks have ended");
                let job = &mut state.jobs[place];
                job.tasks[at] = if job.failure.is_none() { TaskState::Waiting(task) } else { TaskState::Dropped };
                // Another task may have failed meanwhile, and this one was the last.
                if job.has_ended() {
                    let job = state.jobs.remove(place);
                    state.finished.push_back(job.finish());
                    self.shared.event.notify();
                }
                false
            }
        }
    }

    /// Joins threads whose tasks have ended: they do nothing any more but return.
    fn reap(&self) {
        let ended: Vec<Worker> = {
            // In this order: a worker is listed after its attempt is, so one whose attempt is not listed has ended.
            let mut workers = lock(&self.workers);
            let state = lock(&self.shared.state);
            let (running, ended) =
                std::mem::take(&mut *workers).into_iter().partition(|worker| state.running.contains(&worker.attempt));
            *workers = running;
            ended
        };
        for worker in ended {
            // The run's panic is its result.
            let _ = worker.handle.join();
        }
    }
}

impl Compactor for LocalCompactor {
    fn divide(&self, job: &JobShape<'_>) -> situ_storage::Result<Division> {
        let ranges = cut(job.inputs, job.threads, job.task_bytes_min)?;
        let part = |range| Part { range, destination: Destination::default() };
        Ok(Division { parts: ranges.into_iter().map(part).collect(), notes: JobNotes::default() })
    }

    fn submit(&self, order: JobOrder) {
        let JobOrder { number, tasks, host, abreast, priority, notes: _ } = order;
        let tasks: Vec<TaskState> = tasks.into_iter().map(|(task, _)| TaskState::Waiting(Arc::new(task))).collect();
        let job = Job { number, host, tasks, abreast: abreast.max(1), priority, failure: None };
        let mut state = lock(&self.shared.state);
        assert!(!state.jobs.iter().any(|other| other.number == number), "a job is submitted once");
        if state.is_closed || job.has_ended() {
            state.finished.push_back(job.finish());
            return;
        }
        let at = state.jobs.partition_point(|other| other.priority >= priority);
        state.jobs.insert(at, job);
    }

    fn turn(&self) {
        self.reap();
        lock(&self.shared.state).next_turn = None;
        loop {
            let next = lock(&self.shared.state).begin_next(self.shared.threads, self.shared.processors);
            let Some(attempt) = next else { return };
            if !self.start(attempt) {
                return;
            }
        }
    }

    fn take_finished(&self, job: Option<u64>) -> Option<FinishedJob> {
        let finished = &mut lock(&self.shared.state).finished;
        let at = finished.iter().position(|finished| job.is_none_or(|job| finished.job == job))?;
        finished.remove(at)
    }

    fn is_empty(&self) -> bool {
        let state = lock(&self.shared.state);
        state.jobs.is_empty() && state.finished.is_empty()
    }

    fn next_turn_in(&self) -> Option<Duration> {
        let next = lock(&self.shared.state).next_turn?;
        Some(next.saturating_sub(self.shared.env.clock.now()))
    }

    fn close(&self) {
        lock(&self.shared.state).is_closed = true;
        let workers = std::mem::take(&mut *lock(&self.workers));
        for worker in workers {
            let _ = worker.handle.join();
        }
    }
}

#[cfg(test)]
mod tests;
