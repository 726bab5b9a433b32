//! The scheduler's records of attempts and of units: plain values.
//!
//! 1. Each attempt of a task has a [`TaskRecord`], from the moment in which a unit gets the task.
//! 2. An attempt that has ended goes into a ring of the last [`RECORDS_MAX`] records, with a sequence number.
//! 3. The sums over all attempts of a unit are in its [`UnitReport`].
//!
//! A task that no unit has taken has no attempt. A unit that says a task does not suit it, or that the unit is gone,
//! has a record all the same: it begins and ends at once.

use crate::class::TaskClass;
use crate::ran::Ran;
use situ_compaction::{Priority, Stage, Stages};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of kept records of attempts that have ended.
pub(crate) const RECORDS_MAX: usize = 4096;

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskOutcome {
    /// It has not ended.
    Running,
    /// Its output was right.
    Done,
    /// The unit says that it failed; the text says why.
    Failed(Arc<str>),
    /// The unit says that it succeeded, and its output is not one to what was asked; the text says why.
    Suspicious(Arc<str>),
    /// It took too long, and was given up.
    Late,
    /// The unit is gone or being closed; the text says why.
    Refused(Arc<str>),
    /// The task is beyond what the unit can do; the text says why. The unit has not tried.
    Illegal(Arc<str>),
    /// Its files differ from those of the reference unit; the text says where.
    Mismatch(Arc<str>),
    /// The scheduler has given the attempt up.
    Cancelled,
}

impl TaskOutcome {
    /// Returns the outcome in one word, as metrics name it.
    pub fn name(&self) -> &'static str {
        match self {
            TaskOutcome::Running => "running",
            TaskOutcome::Done => "done",
            TaskOutcome::Failed(_) => "failed",
            TaskOutcome::Suspicious(_) => "suspicious",
            TaskOutcome::Late => "late",
            TaskOutcome::Refused(_) => "refused",
            TaskOutcome::Illegal(_) => "illegal",
            TaskOutcome::Mismatch(_) => "mismatch",
            TaskOutcome::Cancelled => "cancelled",
        }
    }

    /// Returns the reason, if there is more to say than the [name](TaskOutcome::name).
    pub fn reason(&self) -> Option<&str> {
        match self {
            TaskOutcome::Failed(text)
            | TaskOutcome::Suspicious(text)
            | TaskOutcome::Refused(text)
            | TaskOutcome::Illegal(text)
            | TaskOutcome::Mismatch(text) => Some(text),
            TaskOutcome::Running | TaskOutcome::Done | TaskOutcome::Late | TaskOutcome::Cancelled => None,
        }
    }
}

/// The [name](TaskOutcome::name), and the [reason](TaskOutcome::reason) behind a colon.
impl fmt::Display for TaskOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// One attempt of a task on one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    /// Ascends with the attempts that have ended; `None` while the attempt runs.
    pub sequence: Option<u64>,
    /// The job that the task was cut from.
    pub job: u64,
    /// The task's number.
    pub task: u64,
    /// The keyspace.
    pub keyspace: u32,
    /// The upper of the input levels.
    pub level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// The urgency of the job.
    pub priority: Priority,
    /// The class of the task.
    pub class: TaskClass,
    /// The unit's place in the scheduler's list, 0 for the reference unit.
    pub unit: usize,
    /// The unit's name.
    pub unit_name: Arc<str>,
    /// The attempt's number; 0 if the unit has not taken the task.
    pub attempt: u64,
    /// The attempt's files are compared with those of another unit.
    pub is_checked: bool,
    /// The time at which the unit got the task, by the store's clock.
    pub began: Duration,
    /// The time at which the scheduler saw the end, by the store's clock; `None` while the attempt runs.
    pub ended: Option<Duration>,
    /// The duration of the attempt, as the unit measured it.
    pub elapsed: Duration,
    /// The mode of the run and its stages, as the unit reports them.
    pub ran: Ran,
    /// Bytes of input that lie in the task's range.
    pub input_bytes: u64,
    /// Bytes of the output tables; 0 unless the attempt is [done](TaskOutcome::Done).
    pub output_bytes: u64,
    /// The outcome of the attempt.
    pub outcome: TaskOutcome,
}

/// The speed of a unit with tasks of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassReport {
    /// The class.
    pub class: TaskClass,
    /// Attempts that succeeded.
    pub tasks: u64,
    /// Their input bytes.
    pub input_bytes: u64,
    /// The sum of the attempts' durations, from when the unit got them until the scheduler had their ends.
    pub elapsed: Duration,
}

impl ClassReport {
    /// Returns the speed of one task, in input bytes a second.
    pub fn bytes_per_s(&self) -> u64 {
        // The cast saturates.
        (self.input_bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)) as u64
    }
}

/// Since when a unit gets no tasks but those that are checked, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfService {
    /// By the store's clock.
    pub since: Duration,
    /// The reason of the last failure.
    pub why: String,
}

/// The counts of one unit since the scheduler was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitReport {
    /// The unit's name.
    pub name: String,
    /// Attempts that the unit took.
    pub attempts: u64,
    /// Attempts whose output was right.
    pub succeeded: u64,
    /// Refusals for want of room.
    pub refused_busy: u64,
    /// Refusals because the unit is gone or being closed.
    pub refused: u64,
    /// Tasks that do not suit the unit. They go elsewhere untried.
    pub illegal: u64,
    /// Why the last of these did not suit it.
    pub last_illegal: Option<String>,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were given up because they took too long.
    pub late: u64,
    /// Attempts whose output was not right.
    pub suspicious: u64,
    /// Attempts whose files were compared with those of the reference unit.
    pub checked: u64,
    /// Comparisons that found a difference.
    pub mismatches: u64,
    /// The unit keeps failing, and gets no tasks but those that are checked.
    pub out_of_service: Option<OutOfService>,
    /// Input bytes of the attempts that succeeded.
    pub input_bytes: u64,
    /// Bytes of their output tables.
    pub output_bytes: u64,
    /// The sum of these attempts' durations, as the unit measured them.
    pub busy: Duration,
    /// Their stages, added up.
    pub stages: Stages,
    /// The speed of these attempts, by class.
    pub classes: Vec<ClassReport>,
    /// Why the unit last refused a task for good, failed, was late or was suspicious.
    pub last_trouble: Option<String>,
}

impl UnitReport {
    /// Counts an attempt that succeeded.
    pub(crate) fn note_done(&mut self, record: &TaskRecord) {
        self.succeeded += 1;
        self.input_bytes = self.input_bytes.saturating_add(record.input_bytes);
        self.output_bytes = self.output_bytes.saturating_add(record.output_bytes);
        // A unit elsewhere may say anything.
        self.busy = self.busy.saturating_add(record.elapsed);
        add_stages(&mut self.stages, &record.ran.stages);
        let elapsed = record.ended.unwrap_or_default().saturating_sub(record.began);
        let at = self.classes.iter().position(|known| known.class == record.class).unwrap_or_else(|| {
            self.classes.push(ClassReport { class: record.class, tasks: 0, input_bytes: 0, elapsed: Duration::ZERO });
            self.classes.len() - 1
        });
        let class = &mut self.classes[at];
        class.tasks += 1;
        class.input_bytes = class.input_bytes.saturating_add(record.input_bytes);
        class.elapsed = class.elapsed.saturating_add(elapsed);
    }
}

/// Adds up what two runs did. Times and bytes of a unit elsewhere may be anything.
fn add_stages(sum: &mut Stages, stages: &Stages) {
    let add = |sum: &mut Stage, stage: &Stage| {
        sum.busy = sum.busy.saturating_add(stage.busy);
        sum.starved = sum.starved.saturating_add(stage.starved);
        sum.blocked = sum.blocked.saturating_add(stage.blocked);
        sum.bytes = sum.bytes.saturating_add(stage.bytes);
    };
    add(&mut sum.read, &stages.read);
    add(&mut sum.merge, &stages.merge);
    add(&mut sum.write, &stages.write);
}

/// The records of a scheduler.
#[derive(Default)]
pub(crate) struct Records {
    /// The sequence number of the next attempt that ends.
    next: u64,
    ended: VecDeque<TaskRecord>,
    /// By attempt.
    running: BTreeMap<u64, TaskRecord>,
}

impl Records {
    /// A unit has got a task.
    pub(crate) fn begin(&mut self, record: TaskRecord) {
        self.running.insert(record.attempt, record);
    }

    /// The unit did not take it after all.
    pub(crate) fn forget(&mut self, attempt: u64) {
        self.running.remove(&attempt);
    }

    /// An attempt has ended. Its record comes back, with what `describe` adds to it.
    pub(crate) fn end(&mut self, attempt: u64, describe: impl FnOnce(&mut TaskRecord)) -> Option<TaskRecord> {
        let mut record = self.running.remove(&attempt)?;
        describe(&mut record);
        Some(self.keep(record))
    }

    /// Puts a record that has ended into the ring.
    pub(crate) fn keep(&mut self, mut record: TaskRecord) -> TaskRecord {
        record.sequence = Some(self.next);
        self.next += 1;
        if self.ended.len() == RECORDS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(record.clone());
        record
    }

    /// The attempts that have ended with this sequence number or a later one, as far as they are kept, and then all
    /// that run.
    pub(crate) fn since(&self, sequence: u64) -> Vec<TaskRecord> {
        let first = self.ended.partition_point(|record| record.sequence < Some(sequence));
        self.ended.range(first..).chain(self.running.values()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attempt: u64) -> TaskRecord {
        TaskRecord {
            sequence: None,
            job: 1,
            task: attempt,
            keyspace: 0,
            level: 1,
            output_level: 2,
            priority: Priority::default(),
            class: TaskClass::default(),
            unit: 0,
            unit_name: "cpu".into(),
            attempt,
            is_checked: false,
            began: Duration::from_secs(attempt),
            ended: None,
            elapsed: Duration::ZERO,
            ran: Ran::default(),
            input_bytes: 100,
            output_bytes: 0,
            outcome: TaskOutcome::Running,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_records_and_gives_those_since() {
        let mut records = Records::default();
        for attempt in 0..RECORDS_MAX as u64 + 10 {
            records.begin(record(attempt));
            if attempt % 1000 != 999 {
                let ended = records.end(attempt, |record| record.outcome = TaskOutcome::Done).unwrap();
                assert!(ended.sequence.is_some());
            }
        }
        let all = records.since(0);
        let running = all.iter().filter(|record| record.outcome == TaskOutcome::Running).count();
        assert_eq!((all.len(), running), (RECORDS_MAX + 4, 4));
        let last = all[RECORDS_MAX - 1].sequence.unwrap();
        assert_eq!(all[0].sequence, Some(last + 1 - RECORDS_MAX as u64), "the oldest ones went");
        assert_eq!(records.since(last - 4).len(), 5 + 4);
        assert_eq!(records.since(last + 1).len(), 4, "what runs is always told");
        assert!(records.end(5, |_| ()).is_none(), "an attempt ends once");
    }

    #[test]
    fn level_0_goes_before_any_score() {
        let mut priorities =
            [Priority::new(3, 9.5), Priority::new(0, 1.0), Priority::new(2, f64::NAN), Priority::new(0, 4.0)];
        priorities.sort_by(|a, b| b.cmp(a));
        let shown: Vec<(bool, u32)> = priorities.iter().map(|p| (p.is_level0, p.score_milli)).collect();
        assert_eq!(shown, [(true, 4000), (true, 1000), (false, 9500), (false, 0)]);
        assert!(Priority::new(1, f64::INFINITY) < Priority::new(0, 0.0));
    }

    #[test]
    fn a_report_adds_up_what_was_done_by_class() {
        let mut report = UnitReport::default();
        for (attempt, from_level0) in [(1, true), (2, false), (3, true)] {
            let mut record = record(attempt);
            record.ended = Some(record.began + Duration::from_millis(500));
            record.class.from_level0 = from_level0;
            record.elapsed = Duration::MAX;
            record.ran.stages.read.bytes = u64::MAX;
            report.note_done(&record);
        }
        assert_eq!((report.succeeded, report.input_bytes, report.classes.len()), (3, 300, 2));
        assert_eq!((report.classes[0].tasks, report.classes[0].bytes_per_s()), (2, 200));
        assert_eq!((report.busy, report.stages.read.bytes), (Duration::MAX, u64::MAX));
    }

    #[test]
    fn outcomes_read_as_lines() {
        assert_eq!(TaskOutcome::Late.to_string(), "late");
        assert_eq!(TaskOutcome::Illegal("30 runs".into()).to_string(), "illegal: 30 runs");
    }
}
