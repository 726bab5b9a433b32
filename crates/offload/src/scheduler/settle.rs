//! The outcome of attempts: the half of a turn that collects.
//!
//! 1. An attempt that has finished is checked without reading its files: [`check_output`].
//! 2. Of an attempt elsewhere, the host looks whether the files are there, on a thread of its own (`find.rs`).
//! 3. A task that runs on one unit is done then. Of a task that runs on two, the files are compared once both have
//!    landed.
//! 4. An attempt that failed, or is late, is given up, and the task waits again. One that has answered is not late any
//!    more.
//!
//! **Invariants**: the output of the reference unit is the one of a task that was checked, whatever the comparison
//! finds. A job ends after the threads that look at its files.

use crate::ran::Ran;
use crate::record::TaskOutcome;
use crate::scheduler::compare::{Comparison, Files, Verdict};
use crate::scheduler::find::{Answer, Found, Search};
use crate::scheduler::queue::{Attempt, Check, DoneBy, Job, Landed, QueuedTask, Side, TaskState};
use crate::scheduler::service::outcome_of;
use crate::scheduler::{REFERENCE, Scheduler};
use crate::unit::Finished;
use situ_compaction::{Result, Task, TaskError, TaskHost, TaskOutput, check_output};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The attempts that all units have finished, by number.
pub(crate) type Ended = BTreeMap<u64, Finished>;

/// The progress of an attempt.
enum Step {
    Runs(Attempt),
    /// It has ended.
    Judged(Result<Box<Landed>>),
}

/// The end of an attempt, as its unit reported it and the scheduler found it.
struct End {
    checked: Result<TaskOutput>,
    elapsed: Duration,
    ran: Ran,
    ended: Duration,
}

impl Scheduler {
    pub(crate) fn collect(&self) -> Ended {
        let mut finished = Vec::new();
        self.units.iter().for_each(|unit| unit.poll(&mut finished));
        finished.into_iter().map(|finished| (finished.attempt, finished)).collect()
    }

    /// Looks at all that runs of a job.
    pub(crate) fn settle_job(&self, job: &mut Job, finished: &mut Ended, now: Duration) {
        let is_called_off = job.host.cancelled();
        for task in &mut job.tasks {
            if let Err(error) = self.settle(task, finished, now) {
                job.failure.get_or_insert(error);
            }
            if is_called_off && !matches!(task.state, TaskState::Done(_)) {
                job.failure.get_or_insert(TaskError::Cancelled);
            }
        }
        if job.failure.is_some() {
            job.tasks.iter_mut().for_each(|task| self.give_up(task, now));
        }
    }

    /// Moves one task on if an attempt has ended or is late.
    fn settle(&self, task: &mut QueuedTask, finished: &mut Ended, now: Duration) -> Result<()> {
        match std::mem::replace(&mut task.state, TaskState::Waiting) {
            TaskState::Running(attempt) => self.settle_attempt(task, attempt, finished, now),
            TaskState::Checked(check) => self.settle_check(task, *check, finished, now),
            other => {
                task.state = other;
                Ok(())
            }
        }
    }

    fn settle_attempt(&self, task: &mut QueuedTask, attempt: Attempt, ended: &mut Ended, now: Duration) -> Result<()> {
        let unit = attempt.unit;
        match self.step(&task.task, attempt, ended, now) {
            Step::Runs(attempt) => {
                match attempt.late_at.is_some_and(|late_at| now >= late_at) {
                    true => self.give_up_late(task, &attempt, now),
                    false => task.state = TaskState::Running(attempt),
                }
                Ok(())
            }
            Step::Judged(Ok(landed)) => {
                self.count_done(&landed);
                task.done_by = Some(DoneBy { unit, began: landed.attempt.began, ended: landed.ended });
                task.state = TaskState::Done(landed.output);
                Ok(())
            }
            Step::Judged(Err(error)) => {
                self.wait_again(task, unit, now);
                // A cancelled task is no unit's fault, and stops the job.
                if unit == REFERENCE || matches!(error, TaskError::Cancelled) { Err(error) } else { Ok(()) }
            }
        }
    }

    /// Moves an attempt on: its answer is checked, and its files are looked for.
    fn step(&self, task: &Task, mut attempt: Attempt, ended: &mut Ended, now: Duration) -> Step {
        if attempt.answer.is_none() {
            let Some(Finished { result, elapsed, ran, .. }) = ended.remove(&attempt.number) else {
                return Step::Runs(attempt);
            };
            let checked = self.check(task, &attempt, result);
            // Files of a failed attempt must not grow behind our back.
            attempt.host.give_up();
            match checked {
                Ok(output) if attempt.unit != REFERENCE && !output.tables.is_empty() => {
                    attempt.late_at = None;
                    attempt.answer = Some(Box::new(Answer { output, elapsed, ran, ended: now, search: None }));
                }
                checked => return Step::Judged(self.judge(attempt, End { checked, elapsed, ran, ended: now }, now)),
            }
        }
        let Some((answer, found)) = self.look(&mut attempt) else { return Step::Runs(attempt) };
        let Answer { output, elapsed, ran, ended, .. } = answer;
        let checked = match found {
            Ok(()) => Ok(output),
            // Not looked for to the end.
            Err(_) if attempt.host.inner().cancelled() => Err(TaskError::Cancelled),
            Err(reason) => self.fault(attempt.unit, reason),
        };
        Step::Judged(self.judge(attempt, End { checked, elapsed, ran, ended }, now))
    }

    /// Has the files of an answer looked for; what was found, once that is known. Where there is no thread for it now,
    /// the next turn tries again.
    fn look(&self, attempt: &mut Attempt) -> Option<(Answer, Found)> {
        let answer = attempt.answer.as_mut()?;
        if answer.search.is_none() {
            let host = Arc::clone(attempt.host.inner());
            answer.search = Search::begin(&self.searches, (&self.env, &self.event), host, &answer.output);
        }
        let found = answer.search.as_ref()?.outcome()?;
        // Another answer may wait for the thread.
        self.event.notify();
        Some((*attempt.answer.take()?, found))
    }

    fn wait_again(&self, task: &mut QueuedTask, unit: usize, now: Duration) {
        task.tried.push(unit);
        (task.state, task.waits_since) = (TaskState::Waiting, now);
    }

    /// Takes the end of an attempt; a failure is counted.
    fn judge(&self, attempt: Attempt, end: End, now: Duration) -> Result<Box<Landed>> {
        let End { checked, elapsed, ran, ended } = end;
        match checked {
            Ok(output) => Ok(Box::new(Landed { attempt, output, elapsed, ran, ended })),
            Err(error) => {
                self.note_failure(attempt.unit, &error, now);
                self.end_record(attempt.number, |record| {
                    (record.ended, record.elapsed, record.ran) = (Some(ended), elapsed, ran);
                    record.outcome = outcome_of(&error);
                });
                Err(error)
            }
        }
    }

    fn fault<T>(&self, unit: usize, reason: String) -> Result<T> {
        Err(TaskError::Unit { unit: self.units[unit].name().to_owned(), reason })
    }

    /// Checks that the answer of an attempt answers its task.
    fn check(&self, task: &Task, attempt: &Attempt, result: Result<TaskOutput>) -> Result<TaskOutput> {
        let output = match result {
            Ok(output) => output,
            Err(TaskError::Cancelled) if !attempt.host.cancelled() => {
                let reason = "it calls the task cancelled, and nobody has cancelled it".to_owned();
                return self.fault(attempt.unit, reason);
            }
            Err(error) => return Err(error),
        };
        let checked = check_output(task, &attempt.host.places(), &output);
        checked.map_or_else(|reason| self.fault(attempt.unit, reason), |()| Ok(output))
    }

    /// Counts an attempt that has given what was asked for, and ends its record.
    fn count_done(&self, landed: &Landed) {
        let record = self.end_record(landed.attempt.number, |record| {
            (record.ended, record.elapsed, record.ran) = (Some(landed.ended), landed.elapsed, landed.ran.clone());
            record.output_bytes = landed.output.tables.iter().map(|t| t.summary.bytes).fold(0, u64::saturating_add);
            record.outcome = TaskOutcome::Done;
        });
        self.note_success(landed.attempt.unit, record);
    }

    fn give_up_late(&self, task: &mut QueuedTask, attempt: &Attempt, now: Duration) {
        attempt.host.give_up();
        self.units[attempt.unit].cancel(attempt.number);
        self.note_late(attempt.unit, now);
        self.end_record_with(attempt.number, TaskOutcome::Late, now);
        self.wait_again(task, attempt.unit, now);
    }

    /// Moves a task on that runs on two units.
    fn settle_check(&self, task: &mut QueuedTask, mut check: Check, ended: &mut Ended, now: Duration) -> Result<()> {
        if let Some(comparison) = &check.comparison {
            match comparison.verdict() {
                Some(verdict) => self.end_check(task, check, verdict, now),
                None => task.state = TaskState::Checked(Box::new(check)),
            }
            return Ok(());
        }
        if let Err(error) = self.settle_reference(task, &mut check, ended, now) {
            // The job fails, and with it the other attempt.
            task.state = TaskState::Checked(Box::new(check));
            return Err(error);
        }
        match std::mem::replace(&mut check.other, Side::Waiting) {
            Side::Running(attempt) => match self.settle_other(task, attempt, ended, now) {
                Some(side) => check.other = side,
                None => {
                    self.end_proof(&check, task);
                    task.state = check.without_other();
                    return Ok(());
                }
            },
            side => check.other = side,
        }
        self.begin_comparison(task, &mut check);
        task.state = TaskState::Checked(Box::new(check));
        Ok(())
    }

    /// The attempt on the reference unit.
    fn settle_reference(
        &self,
        task: &mut QueuedTask,
        check: &mut Check,
        ended: &mut Ended,
        now: Duration,
    ) -> Result<()> {
        let attempt = match std::mem::replace(&mut check.reference, Side::Waiting) {
            Side::Running(attempt) => attempt,
            side => {
                check.reference = side;
                return Ok(());
            }
        };
        let landed = match self.step(&task.task, attempt, ended, now) {
            Step::Runs(attempt) => {
                check.reference = Side::Running(attempt);
                return Ok(());
            }
            Step::Judged(judged) => judged?,
        };
        self.count_done(&landed);
        let took = landed.ended.saturating_sub(landed.attempt.began);
        task.done_by = Some(DoneBy { unit: REFERENCE, began: landed.attempt.began, ended: landed.ended });
        check.reference = Side::Landed(landed);
        // A unit that keeps failing does not hold the job up for long.
        if let (true, Side::Running(other)) = (check.is_proof, &mut check.other)
            && other.answer.is_none()
        {
            let soon = now.saturating_add(self.patience.for_proof(took));
            other.late_at = Some(other.late_at.map_or(soon, |late_at| late_at.min(soon)));
        }
        Ok(())
    }

    /// The attempt on the other unit; `None` if the task goes on without it.
    fn settle_other(&self, task: &mut QueuedTask, attempt: Attempt, ended: &mut Ended, now: Duration) -> Option<Side> {
        let unit = attempt.unit;
        match self.step(&task.task, attempt, ended, now) {
            Step::Runs(attempt) if attempt.late_at.is_none_or(|late_at| now < late_at) => Some(Side::Running(attempt)),
            Step::Runs(attempt) => {
                self.give_up_late(task, &attempt, now);
                None
            }
            Step::Judged(Ok(landed)) => Some(Side::Landed(landed)),
            // A failure is the unit's. If the job was called off, its host says so.
            Step::Judged(Err(_)) => {
                self.wait_again(task, unit, now);
                None
            }
        }
    }

    /// Begins to compare, once both have landed. Where there is no thread for that now, the next turn tries again.
    fn begin_comparison(&self, task: &QueuedTask, check: &mut Check) {
        let (Side::Landed(reference), Side::Landed(other)) = (&check.reference, &check.other) else { return };
        let files = Files {
            // The host of the attempt is given up by now; the job's host says whether to go on.
            host: Arc::clone(reference.attempt.host.inner()),
            reference: reference.output.clone(),
            other: other.output.clone(),
            same_encoder: self.units[REFERENCE].encoder() == self.units[other.attempt.unit].encoder(),
        };
        debug_assert!(task.was_checked, "a task on two units is one that is checked");
        check.comparison = Comparison::begin(&self.env, &self.event, files);
    }

    /// Both attempts have landed, and their files were compared: those of the reference unit are taken.
    fn end_check(&self, task: &mut QueuedTask, check: Check, verdict: Verdict, now: Duration) {
        self.end_proof(&check, task);
        let Check { other: Side::Landed(other), reference: Side::Landed(reference), .. } = check else {
            unreachable!("what was compared has landed")
        };
        let unit = other.attempt.unit;
        match verdict {
            Verdict::Same => {
                self.count_done(&other);
                self.note_same(unit);
            }
            Verdict::Unknown(why) => {
                self.count_done(&other);
                self.note_not_compared(unit, &why, now);
            }
            Verdict::Differ(what) => {
                self.note_mismatch(unit, task.task.id, &what, now);
                self.end_record_with(other.attempt.number, TaskOutcome::Mismatch(Arc::from(what)), now);
            }
        }
        task.state = TaskState::Done(reference.output);
    }

    /// The other unit has nothing to prove itself on any more.
    fn end_proof(&self, check: &Check, task: &QueuedTask) {
        let unit = match &check.other {
            Side::Landed(landed) => Some(landed.attempt.unit),
            Side::Running(attempt) => Some(attempt.unit),
            Side::Waiting => task.tried.last().copied(),
        };
        unit.filter(|_| check.is_proof).into_iter().for_each(|unit| self.set_proves_itself(unit, false));
    }

    /// Gives up a task of a job that has failed. What runs on the reference unit ends soon by itself, and so does a
    /// thread that looks at files: they are waited for.
    pub(crate) fn give_up(&self, task: &mut QueuedTask, now: Duration) {
        match std::mem::replace(&mut task.state, TaskState::Waiting) {
            TaskState::Running(attempt) => {
                task.state = self.give_up_attempt(attempt, now).map_or(TaskState::Waiting, TaskState::Running);
            }
            TaskState::Checked(check) if check.comparison.is_some() => task.state = TaskState::Checked(check),
            TaskState::Checked(check) if check.other.attempt().is_some_and(Attempt::is_looked_at) => {
                check.reference.attempt().into_iter().for_each(|attempt| attempt.host.give_up());
                task.state = TaskState::Checked(check);
            }
            TaskState::Checked(mut check) => {
                self.end_proof(&check, task);
                match std::mem::replace(&mut check.other, Side::Waiting) {
                    Side::Running(attempt) => drop(self.give_up_attempt(attempt, now)),
                    Side::Landed(landed) => {
                        self.end_record_with(landed.attempt.number, TaskOutcome::Cancelled, landed.ended);
                    }
                    Side::Waiting => {}
                }
                task.state = match check.reference {
                    Side::Running(attempt) => {
                        self.give_up_attempt(attempt, now).map_or(TaskState::Waiting, TaskState::Running)
                    }
                    Side::Waiting | Side::Landed(_) => TaskState::Waiting,
                };
            }
            other => task.state = other,
        }
    }

    /// The attempt comes back if it is waited for.
    fn give_up_attempt(&self, attempt: Attempt, now: Duration) -> Option<Attempt> {
        attempt.host.give_up();
        if attempt.unit == REFERENCE || attempt.is_looked_at() {
            return Some(attempt);
        }
        self.units[attempt.unit].cancel(attempt.number);
        self.end_record_with(attempt.number, TaskOutcome::Cancelled, now);
        None
    }
}
