//! Which units are in service: what becomes of a unit that fails.
//!
//! 1. A unit rests after a failure, twice as long each time.
//! 2. A unit that has failed [`Patience::failures_max`](crate::Patience::failures_max) times in a row is out of
//!    service. So is, at once, a unit whose files differ from those of the reference unit.
//! 3. When the rest of such a unit is over, it gets one task at a time. The reference unit runs the same task, and the
//!    files are compared.
//! 4. The unit is in service again when its files are the same.

use crate::record::{OutOfService, TaskOutcome, TaskRecord, UnitReport};
use crate::scheduler::Scheduler;
use situ_base::lock;
use situ_compaction::TaskError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A change in a unit's service, for the program that watches the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitEvent {
    /// The unit keeps failing. It gets no tasks but those on which it can prove itself.
    OutOfService {
        /// Its name.
        unit: String,
        /// The last failure.
        why: String,
    },
    /// The unit has proved itself on a task, and gets tasks as before.
    BackInService {
        /// Its name.
        unit: String,
    },
    /// The unit gave other bytes for a task than the reference unit. The store has those of the reference unit.
    Mismatch {
        /// Its name.
        unit: String,
        /// The task.
        task: u64,
        /// The first difference.
        difference: String,
    },
}

/// A line for people, without an end of line.
impl fmt::Display for UnitEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitEvent::OutOfService { unit, why } => {
                write!(f, "the unit {unit} keeps failing and is out of service; the processor does its tasks: {why}")
            }
            UnitEvent::BackInService { unit } => write!(f, "the unit {unit} has proved itself and is in service again"),
            UnitEvent::Mismatch { unit, task, difference } => write!(
                f,
                "the unit {unit} gave wrong bytes for task {task}, and the store took those of the processor: {difference}. What the \
                 unit wrote before was not compared: run `situ verify`"
            ),
        }
    }
}

/// A unit's right to get tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Any.
    InService,
    /// None now.
    Rests,
    /// One that is checked.
    MayProveItself,
}

/// The scheduler's state of one unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnitState {
    /// In a row.
    pub(crate) failures: u32,
    pub(crate) rests_until: Duration,
    /// It did not suit the last task that it was asked about.
    pub(crate) is_unsuited: bool,
    /// It has a task to prove itself on.
    pub(crate) proves_itself: bool,
    pub(crate) report: UnitReport,
}

impl UnitState {
    pub(crate) fn standing(&self, now: Duration) -> Standing {
        let rests = self.failures > 0 && self.rests_until > now;
        match (&self.report.out_of_service, rests || self.proves_itself) {
            (_, true) => Standing::Rests,
            (Some(_), false) => Standing::MayProveItself,
            (None, false) => Standing::InService,
        }
    }
}

impl Scheduler {
    /// An attempt has given what was asked for.
    pub(crate) fn note_success(&self, unit: usize, record: Option<TaskRecord>) {
        let state = &mut lock(&self.queue).units[unit];
        // One that is out of service has to prove itself all the same.
        if state.report.out_of_service.is_none() {
            state.failures = 0;
        }
        record.iter().for_each(|record| state.report.note_done(record));
    }

    /// An attempt has failed.
    pub(crate) fn note_failure(&self, unit: usize, error: &TaskError, now: Duration) {
        let report = |report: &mut UnitReport| match error {
            TaskError::Unit { .. } => report.suspicious += 1,
            _ => report.failed += 1,
        };
        if !matches!(error, TaskError::Cancelled) {
            self.note_trouble(unit, error.to_string(), now, report);
        }
    }

    pub(crate) fn note_late(&self, unit: usize, now: Duration) {
        self.note_trouble(unit, "an attempt took too long".to_owned(), now, |report| report.late += 1);
    }

    pub(crate) fn note_busy(&self, unit: usize) {
        lock(&self.queue).units[unit].report.refused_busy += 1;
    }

    /// A unit takes nothing more.
    pub(crate) fn note_gone(&self, unit: usize, reason: &str, now: Duration) {
        self.note_trouble(unit, reason.to_owned(), now, |report| report.refused += 1);
    }

    /// A task is beyond what a unit can do. That is no failure of the unit.
    pub(crate) fn note_unsuited(&self, unit: usize, reason: &str) {
        let report = &mut lock(&self.queue).units[unit].report;
        report.illegal += 1;
        report.last_illegal = Some(reason.to_owned());
        report.last_trouble = Some(reason.to_owned());
    }

    /// The unit rests, and is out of service if it keeps failing.
    fn note_trouble(&self, unit: usize, trouble: String, now: Duration, count: impl FnOnce(&mut UnitReport)) {
        let mut queue = lock(&self.queue);
        let state = &mut queue.units[unit];
        count(&mut state.report);
        state.rests_until = now.saturating_add(self.patience.rest_after(state.failures));
        state.failures = state.failures.saturating_add(1);
        state.report.last_trouble = Some(trouble.clone());
        let keeps_failing = state.failures >= self.patience.failures_max.max(1);
        // The reference unit has none that would do its tasks.
        if keeps_failing && unit != crate::scheduler::REFERENCE && state.report.out_of_service.is_none() {
            let event = UnitEvent::OutOfService { unit: state.report.name.clone(), why: trouble.clone() };
            state.report.out_of_service = Some(OutOfService { since: now, why: trouble });
            queue.events.push(event);
        }
    }

    /// A unit has the task that it is to prove itself on, or has it no more.
    pub(crate) fn set_proves_itself(&self, unit: usize, proves_itself: bool) {
        lock(&self.queue).units[unit].proves_itself = proves_itself;
    }

    /// A unit gave the bytes of the reference unit.
    pub(crate) fn note_same(&self, unit: usize) {
        let mut queue = lock(&self.queue);
        let state = &mut queue.units[unit];
        state.report.checked += 1;
        state.failures = 0;
        if state.report.out_of_service.take().is_some() {
            let event = UnitEvent::BackInService { unit: state.report.name.clone() };
            queue.events.push(event);
        }
    }

    /// A unit gave other bytes than the reference unit: it is out of service at once.
    pub(crate) fn note_mismatch(&self, unit: usize, task: u64, difference: &str, now: Duration) {
        {
            let mut queue = lock(&self.queue);
            let state = &mut queue.units[unit];
            state.report.checked += 1;
            state.failures = state.failures.max(self.patience.failures_max.saturating_sub(1));
            let (name, difference) = (state.report.name.clone(), difference.to_owned());
            queue.events.push(UnitEvent::Mismatch { unit: name, task, difference });
        }
        self.note_trouble(unit, format!("task {task}: {difference}"), now, |report| report.mismatches += 1);
    }

    /// The files of a unit could not be compared: it stays what it is, and rests if it is out of service.
    pub(crate) fn note_not_compared(&self, unit: usize, reason: &str, now: Duration) {
        let state = &mut lock(&self.queue).units[unit];
        state.report.last_trouble = Some(format!("its files could not be compared: {reason}"));
        if state.report.out_of_service.is_some() {
            state.rests_until = now.saturating_add(self.patience.rest_after(state.failures));
        }
    }

    /// Ends the record of an attempt.
    pub(crate) fn end_record(&self, attempt: u64, describe: impl FnOnce(&mut TaskRecord)) -> Option<TaskRecord> {
        lock(&self.records).end(attempt, describe)
    }

    pub(crate) fn end_record_with(&self, attempt: u64, outcome: TaskOutcome, now: Duration) {
        self.end_record(attempt, |record| (record.ended, record.outcome) = (Some(now), outcome));
    }

    /// The events since the last turn, to the listener. No lock is held.
    pub(crate) fn tell(&self) {
        let events = std::mem::take(&mut lock(&self.queue).events);
        if let Some(listener) = &self.listener {
            events.iter().for_each(listener);
        }
    }
}

/// The outcome of an attempt that has failed.
pub(crate) fn outcome_of(error: &TaskError) -> TaskOutcome {
    match error {
        TaskError::Cancelled => TaskOutcome::Cancelled,
        TaskError::Unit { reason, .. } => TaskOutcome::Suspicious(Arc::from(reason.as_str())),
        other => TaskOutcome::Failed(Arc::from(other.to_string())),
    }
}
