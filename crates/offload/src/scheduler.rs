//! Which unit runs which task, and what happens when that goes wrong.
//!
//! 1. A job is submitted as its tasks. It holds no thread: its tasks lie in one queue until a unit has room.
//! 2. A *turn* collects what the units have finished, checks it, and gives tasks that wait to units (`settle.rs`,
//!    `assign.rs`). Urgent jobs go first. A task that is meant for a unit goes there. Of the units that take any other
//!    task, the one that says that it would be done first gets it.
//! 3. An attempt that fails, gives a wrong answer, or is late is given up: its host answers "cancelled" from then on,
//!    so that the attempt can neither go on nor create files. The task waits again, for the *reference unit* only. The
//!    unit that failed rests for a while; one that keeps failing is out of service (`service.rs`).
//! 4. The reference unit is never late and is believed: if a task fails there, its job fails. The output is checked all
//!    the same.
//! 5. A task that is *checked* runs on the reference unit and on another one, and their files are compared
//!    (`compare.rs`).
//! 6. A job whose last task has landed, or that has failed and runs nowhere any more, is finished:
//!    [`take_finished`](Compactor::take_finished) gives it to one caller.
//!
//! How a job is divided between units is decided before it is submitted: [`divide`](Compactor::divide) (`plan.rs`, and
//! `split.rs` of the crate).
//!
//! **Invariants**: a task has at most [`Patience::tries_elsewhere_max`] attempts elsewhere and one on the reference
//! unit. An output is accepted from the attempt that is current, so never two for a task. Places in it were handed out
//! to that attempt.
//! **Threads**: any thread may submit, take a turn and take finished jobs. One turn runs at a time; a thread that comes
//! during a turn leaves at once, and the turn is repeated for it. Threads sleep on the event that the scheduler was
//! made with: units, and jobs that finish, notify it. No lock is held while a unit or the listener is spoken to.
//! **Failure**: a unit that panics is not spoken to again (`guarded.rs`). A unit that is lost costs speed, not data:
//! its tasks return when they are late. A unit may go on with an attempt that was given up; what it writes then lies in
//! places that no table of the store will ever have.
//!
//! Rejected: a scheduler thread. It would wake up for each result only to wake up the thread that installs the job.

use crate::guarded::Guarded;
use crate::policy::Policy;
use crate::record::{Records, TaskRecord, UnitReport};
use crate::split::Splitter;
use crate::unit::Unit;
use queue::{InHand, Job, Queue};
use service::{Standing, UnitState};
use situ_base::{Env, Event, Turns, lock};
use situ_compaction::{
    Compactor, Destination, Division, Elsewhere, FinishedJob, JobNotes, JobOrder, JobShape, Pipelines, Priority,
    Result, Task, TaskHost, TaskOutput,
};
use std::any::Any;
use std::cmp::Reverse;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod assign;
mod compare;
mod find;
mod loads;
mod measures;
mod patience;
mod plan;
mod queue;
mod service;
mod settle;

pub use patience::Patience;
pub use service::UnitEvent;

/// When nothing that is running could wake us, units are asked again after this long.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The reference unit's place in the list.
pub(crate) const REFERENCE: usize = 0;

/// Gets the events of units.
type Listener = Box<dyn Fn(&UnitEvent) + Send + Sync>;

/// Gives tasks to units, checks what comes back, and has the reference unit do again what went wrong elsewhere.
pub struct Scheduler {
    env: Env,
    /// The first one is the reference unit.
    units: Vec<Arc<dyn Unit>>,
    names: Vec<Arc<str>>,
    patience: Patience,
    policy: Policy,
    check_every: Option<u32>,
    listener: Option<Listener>,
    /// Notified when a turn may find something to do, and when a job has finished.
    event: Arc<dyn Event>,
    turns: Turns,
    queue: Mutex<Queue>,
    records: Mutex<Records>,
    splitter: Mutex<Splitter>,
    /// Answers whose files are being looked for.
    searches: Arc<AtomicUsize>,
}

impl Scheduler {
    /// Makes a scheduler. `reference` runs what no other unit can or should; `others` are tried when they are faster.
    /// `event` is notified when a turn may find something to do, and when a job has finished. The policy is the default
    /// one.
    pub fn new(
        env: Env,
        event: Arc<dyn Event>,
        reference: Arc<dyn Unit>,
        others: Vec<Arc<dyn Unit>>,
        patience: Patience,
    ) -> Scheduler {
        let guarded = |unit| Arc::new(Guarded::new(unit, Arc::clone(&event))) as Arc<dyn Unit>;
        let units: Vec<Arc<dyn Unit>> = std::iter::once(reference).chain(others.into_iter().map(guarded)).collect();
        let report = |unit: &Arc<dyn Unit>| UnitReport { name: unit.name().to_owned(), ..UnitReport::default() };
        let states = units.iter().map(|unit| UnitState { report: report(unit), ..UnitState::default() }).collect();
        Scheduler {
            env,
            names: units.iter().map(|unit| Arc::from(unit.name())).collect(),
            units,
            patience,
            policy: Policy::default(),
            check_every: None,
            listener: None,
            event,
            turns: Turns::new(),
            queue: Mutex::new(Queue { units: states, ..Queue::default() }),
            records: Mutex::default(),
            splitter: Mutex::default(),
            searches: Arc::default(),
        }
    }

    /// Returns the scheduler that a store's compactor is, or `None` if it is another compactor.
    pub fn of(compactor: &dyn Compactor) -> Option<&Scheduler> {
        (compactor as &dyn Any).downcast_ref()
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Scheduler {
        self.policy = policy;
        self
    }

    /// Has one of `tasks` tasks run on two units, and compares their files bit by bit; 1 for every task. With `None`,
    /// only the tasks on which a unit has to prove itself run twice.
    #[must_use]
    pub fn check_every(mut self, tasks: Option<u32>) -> Scheduler {
        self.check_every = tasks;
        self
    }

    /// Tells `listener` what happens to units. It is called at the end of a turn, with no lock held, and must not wait
    /// for a job.
    #[must_use]
    pub fn listener(mut self, listener: impl Fn(&UnitEvent) + Send + Sync + 'static) -> Scheduler {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Returns the report of each unit so far, the reference unit first.
    pub fn reports(&self) -> Vec<UnitReport> {
        lock(&self.queue).units.iter().map(|unit| unit.report.clone()).collect()
    }

    /// Returns the attempts that have ended with sequence number `since` or a later one, oldest first, and then all
    /// that run. The last 4096 that have ended are kept.
    pub fn records(&self, since: u64) -> Vec<TaskRecord> {
        lock(&self.records).since(since)
    }

    /// Puts the tasks of a job into the queue, of which at most `abreast` are to run at a time. Any unit may run them.
    /// As [`submit`](Compactor::submit).
    pub fn submit_tasks(&self, job: u64, tasks: Vec<Task>, host: Arc<dyn TaskHost>, abreast: usize) {
        let priority = Priority::new(tasks.iter().map(|task| task.level).min().unwrap_or(0), 0.0);
        let tasks = tasks.into_iter().map(|task| (task, Destination::default())).collect();
        self.submit(JobOrder { number: job, tasks, host, abreast, priority, notes: JobNotes::default() });
    }

    /// Returns the number of further tasks that the units would take now, beyond those that wait. Units that rest or
    /// are out of service, or did not suit the last task that they were asked about, do not count. Neither do units
    /// that the policy leaves alone.
    pub fn room(&self) -> usize {
        let loads = self.units_in_use().map(|(_, unit)| unit.load());
        let room = loads.map(|load| load.tasks_max.saturating_sub(load.tasks)).fold(0, usize::saturating_add);
        room.saturating_sub(lock(&self.queue).tasks_waiting)
    }

    /// Returns the maximum number of tasks that the units other than the reference unit hold, all together. The units
    /// count as in [`room`](Scheduler::room).
    pub fn tasks_max_elsewhere(&self) -> usize {
        let others = self.units_in_use().filter(|(at, _)| *at != REFERENCE);
        others.map(|(_, unit)| unit.load().tasks_max).fold(0, usize::saturating_add)
    }

    fn units_in_use(&self) -> impl Iterator<Item = (usize, &Arc<dyn Unit>)> {
        let now = self.env.clock.now();
        let uses_others = self.policy.split.uses_others();
        let is_in_use =
            |unit: &UnitState| uses_others && unit.standing(now) == Standing::InService && !unit.is_unsuited;
        let in_use: Vec<bool> = lock(&self.queue).units.iter().map(is_in_use).collect();
        self.units.iter().enumerate().filter(move |(at, _)| *at == REFERENCE || in_use[*at])
    }

    /// Runs all tasks of one job on a scheduler that has no other, and returns their outputs in the tasks' order.
    /// Blocks until the last one is done.
    ///
    /// # Errors
    /// The first failure of the reference unit; other tasks of the job are then given up.
    pub fn run(&self, tasks: Vec<Task>, host: &Arc<dyn TaskHost>) -> Result<Vec<TaskOutput>> {
        let abreast = tasks.len();
        self.submit_tasks(0, tasks, Arc::clone(host), abreast);
        loop {
            let seen = self.event.generation();
            self.turn();
            if let Some(finished) = self.take_finished(None) {
                return finished.result;
            }
            self.event.wait(seen, self.next_turn_in());
        }
    }

    fn take_turn(&self) {
        let mut finished = self.collect();
        let mut jobs = {
            let mut queue = lock(&self.queue);
            // Threads that sleep meanwhile are woken when the turn knows more.
            queue.next_look = None;
            std::mem::take(&mut queue.jobs)
        };
        // Jobs of one priority stay in the order in which they came.
        jobs.sort_by_key(|job| Reverse(job.priority));
        let mut in_hand = InHand { scheduler: self, jobs };
        let now = self.env.clock.now();
        for job in &mut in_hand.jobs {
            self.settle_job(job, &mut finished, now);
        }
        // What is left was given up before it finished.
        drop(finished);
        for job in &mut in_hand.jobs {
            // Where no unit has room for any task, the jobs behind need not ask.
            if !self.assign_job(job, now) {
                break;
            }
        }
        self.put_back(std::mem::take(&mut in_hand.jobs), now);
        self.tell();
    }

    /// Ends the turn: jobs that have ended are finished, the others go back into the queue before those that came
    /// meanwhile.
    fn put_back(&self, jobs: Vec<Job>, now: Duration) {
        let (ended, jobs): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::has_ended);
        let waits = jobs.iter().any(|job| job.tasks_waiting() > 0 || job.lacks_a_thread());
        let any_ended = !ended.is_empty();
        ended.iter().filter_map(Job::measure).for_each(|measure| lock(&self.splitter).note(&measure));
        {
            let mut queue = lock(&self.queue);
            queue.finished.extend(ended.into_iter().map(Job::finish));
            let came = std::mem::replace(&mut queue.jobs, jobs);
            queue.jobs.extend(came);
            queue.tasks_waiting = queue.jobs.iter().map(Job::tasks_waiting).sum();
            let late = queue.jobs.iter().filter_map(Job::late_at).min();
            // A task that waits for room is woken by whatever frees it, unless a unit refused for reasons of its own.
            let ask_again = waits.then(|| now.saturating_add(ASK_AGAIN));
            queue.next_look = late.into_iter().chain(ask_again).min();
        }
        if any_ended {
            self.event.notify();
        }
    }
}

impl Compactor for Scheduler {
    fn divide(&self, job: &JobShape<'_>) -> situ_storage::Result<Division> {
        let (parts, plan) = self.divided(job)?;
        Ok(Division { parts, notes: JobNotes::new(plan) })
    }

    fn submit(&self, order: JobOrder) {
        let now = self.env.clock.now();
        let mut queue = lock(&self.queue);
        queue.tasks_waiting += order.tasks.len();
        let first = queue.tasks_submitted;
        queue.tasks_submitted += order.tasks.len() as u64;
        queue.jobs.push(Job::new(order, first, self.check_every, now));
    }

    /// Moves every job on. Returns at once if another thread is at it: that thread does it again.
    fn turn(&self) {
        self.turns.take(|| self.take_turn());
    }

    fn take_finished(&self, job: Option<u64>) -> Option<FinishedJob> {
        let finished = &mut lock(&self.queue).finished;
        let at = finished.iter().position(|finished| job.is_none_or(|job| finished.job == job))?;
        finished.remove(at)
    }

    fn is_empty(&self) -> bool {
        let queue = lock(&self.queue);
        // During a turn, the turn has the jobs.
        !self.turns.is_turning() && queue.jobs.is_empty() && queue.finished.is_empty()
    }

    fn next_turn_in(&self) -> Option<Duration> {
        let next = lock(&self.queue).next_look?;
        Some(next.saturating_sub(self.env.clock.now()))
    }

    fn elsewhere(&self) -> Elsewhere {
        let tasks_max = self.tasks_max_elsewhere();
        Elsewhere { tasks_max, is_full: tasks_max > 0 && self.room() == 0 }
    }

    fn tables_per_job(&self) -> usize {
        self.policy.tables_per_job
    }

    fn note_reads(&self, message: &[u8]) {
        self.units.iter().for_each(|unit| unit.measured(message));
    }

    fn pipelines(&self) -> Vec<Pipelines> {
        self.units.iter().filter_map(|unit| unit.pipelines()).collect()
    }

    fn close(&self) {
        self.units.iter().for_each(|unit| unit.close());
    }
}

#[cfg(test)]
mod tests;
