//! Jobs and tasks in the queue, and how far each of them is.

use crate::class::TaskClass;
use crate::ran::Ran;
use crate::scheduler::compare::Comparison;
use crate::scheduler::find::Answer;
use crate::scheduler::plan::Plan;
use crate::scheduler::service::UnitState;
use crate::scheduler::{Scheduler, UnitEvent};
use crate::split::{Arm, JobMeasure, SideMeasure};
use situ_base::lock;
use situ_compaction::{
    AttemptHost, Destination, FinishedJob, JobOrder, Priority, Task, TaskError, TaskHost, TaskOutput,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The state of all jobs and units, under one lock.
#[derive(Default)]
pub(crate) struct Queue {
    /// In the order in which they were submitted, the most urgent ones first. A turn takes them out while it runs.
    pub(crate) jobs: Vec<Job>,
    pub(crate) finished: VecDeque<FinishedJob>,
    pub(crate) units: Vec<UnitState>,
    /// Tasks of all jobs that wait for a unit, as far as is known.
    pub(crate) tasks_waiting: usize,
    /// The time, by the clock, at which a turn is due even without a notification.
    pub(crate) next_look: Option<Duration>,
    /// The events that the listener has not got yet.
    pub(crate) events: Vec<UnitEvent>,
    /// Tasks that were submitted so far.
    pub(crate) tasks_submitted: u64,
}

/// The progress of a task.
pub(crate) enum TaskState {
    Waiting,
    Running(Attempt),
    /// It runs on two units, and what they give is compared.
    Checked(Box<Check>),
    Done(TaskOutput),
}

/// One try on one unit.
pub(crate) struct Attempt {
    pub(crate) number: u64,
    pub(crate) unit: usize,
    pub(crate) began: Duration,
    pub(crate) late_at: Option<Duration>,
    pub(crate) host: Arc<AttemptHost>,
    /// The answer of an attempt elsewhere, until its files are found.
    pub(crate) answer: Option<Box<Answer>>,
}

impl Attempt {
    /// Returns true if a thread looks for its files.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.search.is_some())
    }

    fn lacks_a_thread(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.search.is_none())
    }
}

/// An attempt whose output was right, as far as can be said without reading it.
pub(crate) struct Landed {
    pub(crate) attempt: Attempt,
    pub(crate) output: TaskOutput,
    pub(crate) elapsed: Duration,
    pub(crate) ran: Ran,
    pub(crate) ended: Duration,
}

/// One of the two units of a task that is checked.
pub(crate) enum Side {
    Waiting,
    Running(Attempt),
    Landed(Box<Landed>),
}

impl Side {
    pub(crate) fn attempt(&self) -> Option<&Attempt> {
        match self {
            Side::Waiting => None,
            Side::Running(attempt) => Some(attempt),
            Side::Landed(landed) => Some(&landed.attempt),
        }
    }
}

/// A task that runs on the reference unit and on another one.
pub(crate) struct Check {
    pub(crate) other: Side,
    pub(crate) reference: Side,
    /// The other unit is out of service, and proves itself on this task.
    pub(crate) is_proof: bool,
    /// Both have landed.
    pub(crate) comparison: Option<Comparison>,
}

impl Check {
    /// The task without the other unit.
    pub(crate) fn without_other(self) -> TaskState {
        match self.reference {
            Side::Waiting => TaskState::Waiting,
            Side::Running(attempt) => TaskState::Running(attempt),
            Side::Landed(landed) => TaskState::Done(landed.output),
        }
    }
}

/// Which unit has done a task, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoneBy {
    pub(crate) unit: usize,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
}

pub(crate) struct QueuedTask {
    pub(crate) task: Arc<Task>,
    pub(crate) meant_for: Option<usize>,
    /// Two units are to run it, if there are two.
    pub(crate) to_check: bool,
    pub(crate) was_checked: bool,
    pub(crate) waits_since: Duration,
    /// Units that have failed at it.
    pub(crate) tried: Vec<usize>,
    /// Units that it does not suit.
    pub(crate) unsuited: Vec<usize>,
    pub(crate) state: TaskState,
    pub(crate) done_by: Option<DoneBy>,
}

impl QueuedTask {
    fn new((task, Destination(meant_for)): (Task, Destination), to_check: bool, now: Duration) -> QueuedTask {
        QueuedTask {
            task: Arc::new(task),
            meant_for,
            to_check,
            was_checked: false,
            waits_since: now,
            tried: Vec::new(),
            unsuited: Vec::new(),
            state: TaskState::Waiting,
            done_by: None,
        }
    }

    /// Returns true if a unit is to get it.
    pub(crate) fn waits(&self) -> bool {
        match &self.state {
            TaskState::Waiting => true,
            TaskState::Checked(check) => matches!(check.reference, Side::Waiting),
            TaskState::Running(_) | TaskState::Done(_) => false,
        }
    }

    /// Returns true if it counts among the tasks of its job that run.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.state, TaskState::Running(_) | TaskState::Checked(_))
    }

    /// The attempts whose hosts may still be in use.
    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let (one, two) = match &self.state {
            TaskState::Running(attempt) => (Some(attempt), None),
            TaskState::Checked(check) => (check.reference.attempt(), check.other.attempt()),
            TaskState::Waiting | TaskState::Done(_) => (None, None),
        };
        one.into_iter().chain(two)
    }

    fn late_at(&self) -> Option<Duration> {
        match &self.state {
            TaskState::Running(attempt) => attempt.late_at,
            TaskState::Checked(check) => match &check.other {
                Side::Running(attempt) => attempt.late_at,
                Side::Waiting | Side::Landed(_) => None,
            },
            TaskState::Waiting | TaskState::Done(_) => None,
        }
    }
}

pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) host: Arc<dyn TaskHost>,
    pub(crate) tasks: Vec<QueuedTask>,
    /// The maximum number of its tasks that run at a time.
    pub(crate) abreast: usize,
    pub(crate) priority: Priority,
    pub(crate) class: TaskClass,
    pub(crate) arm: Option<Arm>,
    pub(crate) failure: Option<TaskError>,
}

impl Job {
    /// `first` is how many tasks were submitted before these; every `check_every`th of all is checked.
    pub(crate) fn new(order: JobOrder, first: u64, check_every: Option<u32>, now: Duration) -> Job {
        let to_check =
            |at: usize| check_every.is_some_and(|every| (first + at as u64).is_multiple_of(every.max(1).into()));
        let class = order.tasks.first().map(|(task, _)| TaskClass::of_task(task)).unwrap_or_default();
        let undivided = Plan { class, arm: None };
        let tasks = order.tasks.into_iter().enumerate().map(|(at, task)| QueuedTask::new(task, to_check(at), now));
        let plan = order.notes.get().copied().unwrap_or(undivided);
        Job {
            number: order.number,
            host: order.host,
            tasks: tasks.collect(),
            abreast: order.abreast.max(1),
            priority: order.priority,
            class: plan.class,
            arm: plan.arm,
            failure: None,
        }
    }

    pub(crate) fn tasks_running(&self) -> usize {
        self.tasks.iter().filter(|task| task.runs()).count()
    }

    pub(crate) fn tasks_waiting(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.tasks.iter().filter(|task| task.waits()).count() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.tasks_running() == 0 && self.tasks_waiting() == 0
    }

    /// Returns true if files wait to be looked for, or to be compared, for want of a thread.
    pub(crate) fn lacks_a_thread(&self) -> bool {
        let compares = |task: &QueuedTask| match &task.state {
            TaskState::Checked(check) => {
                matches!((&check.reference, &check.other), (Side::Landed(_), Side::Landed(_)))
                    && check.comparison.is_none()
            }
            _ => false,
        };
        self.tasks.iter().any(|task| compares(task) || task.attempts().any(Attempt::lacks_a_thread))
    }

    /// Returns the time at which the first of its attempts elsewhere is late.
    pub(crate) fn late_at(&self) -> Option<Duration> {
        self.tasks.iter().filter_map(QueuedTask::late_at).min()
    }

    /// Returns the job's measure of the speed of its units and of its split; `None` if it has failed.
    pub(crate) fn measure(&self) -> Option<JobMeasure> {
        let done: Vec<(u64, DoneBy)> =
            self.tasks.iter().filter_map(|task| Some((task.task.input_bytes(), task.done_by?))).collect();
        if self.failure.is_some() || done.len() != self.tasks.len() {
            return None;
        }
        let side = |unit: usize| {
            let of_unit = || done.iter().filter(|(_, by)| by.unit == unit);
            let elapsed = elapsed(of_unit().map(|(_, by)| by))?;
            Some(SideMeasure { unit, bytes: of_unit().map(|(bytes, _)| *bytes).sum(), elapsed })
        };
        let units = done.iter().map(|(_, by)| by.unit).max()? + 1;
        Some(JobMeasure {
            class: self.class,
            // What is checked takes as long as the slower of two.
            arm: self.arm.filter(|_| self.tasks.iter().all(|task| !task.was_checked)),
            bytes: done.iter().map(|(bytes, _)| *bytes).sum(),
            elapsed: elapsed(done.iter().map(|(_, by)| by))?,
            sides: (0..units).filter_map(side).collect(),
        })
    }

    pub(crate) fn finish(self) -> FinishedJob {
        let Job { number: job, tasks, failure, .. } = self;
        let output = |task: QueuedTask| if let TaskState::Done(output) = task.state { Some(output) } else { None };
        FinishedJob { job, result: failure.map_or_else(|| Ok(tasks.into_iter().filter_map(output).collect()), Err) }
    }
}

/// From the first beginning to the last end.
fn elapsed<'a>(done: impl Iterator<Item = &'a DoneBy> + Clone) -> Option<Duration> {
    let began = done.clone().map(|by| by.began).min()?;
    Some(done.map(|by| by.ended).max()?.saturating_sub(began))
}

/// The jobs that a turn has in its hands. A panic in the turn ends them: a job that is nowhere would have no waiter.
pub(crate) struct InHand<'a> {
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) jobs: Vec<Job>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let failed = std::mem::take(&mut self.jobs).into_iter().map(|mut job| {
            // No unit is spoken to after a panic.
            job.tasks.iter().flat_map(QueuedTask::attempts).for_each(|attempt| attempt.host.give_up());
            job.failure = Some(TaskError::Panicked("a turn of the scheduler".to_owned()));
            job.finish()
        });
        let failed: Vec<FinishedJob> = failed.collect();
        {
            let mut queue = lock(&self.scheduler.queue);
            queue.finished.extend(failed);
            // What a unit was to prove itself on is gone: it may try again.
            queue.units.iter_mut().for_each(|unit| unit.proves_itself = false);
        }
        self.scheduler.event.notify();
    }
}
