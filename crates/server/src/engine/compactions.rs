//! The live picture of compactions: which unit did which task, when, in which stage, and why so.
//!
//! ```text
//! Store: reports, loads, decisions, records ──gather.rs──> Compactions ──> GET /compactions.json, `situ inspect --http`
//!                                                               └────────> GET /live.json, the live page, `situ top`
//! ```
//!
//! 1. [`Compactions`] is the answer to "what is new since attempt N?". It holds all units, the attempts that have ended
//!    since, and all that run.
//! 2. A reader asks again with [`next`](Compactions::next), at once if there is [more](Compactions::more).
//! 3. The live page does that once a second.
//!
//! **Invariants**: an answer takes at most [`ANSWER_BYTES_MAX`] bytes, whatever units elsewhere say of themselves:
//! texts are cut, and attempts are left for the next answer. Times are microseconds; [`now_us`](Compactions::now_us)
//! and [`unix_ms`](Compactions::unix_ms) relate the store's clock to the wall clock.
//!
//! **Failure**: the store keeps the last 4096 attempts. A reader that comes too late learns
//! [how many it missed](Compactions::missed).

mod gather;

pub use gather::{ANSWER_BYTES_MAX, gather};

use serde::{Deserialize, Serialize};

/// The work of compaction units: running attempts, and attempts that ended after a given one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compactions {
    /// The time of the store's opening, in milliseconds of Unix time. With another value, numbers of attempts and the
    /// store's clock have restarted.
    pub opened_unix_ms: u64,
    /// Milliseconds of Unix time at the answer.
    pub unix_ms: u64,
    /// The store's clock at the answer.
    pub now_us: u64,
    /// The sequence number to ask for next.
    pub next: u64,
    /// True if more attempts have ended than fit into an answer: the next question can follow at once.
    pub more: bool,
    /// The number of attempts that were asked for but are no longer kept.
    pub missed: u64,
    /// The units, the processor first.
    pub units: Vec<UnitFigures>,
    /// The attempts that have ended, by sequence number, and then those that run.
    pub attempts: Vec<Attempt>,
}

/// The figures of one unit since the store was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitFigures {
    /// Its name.
    pub name: String,
    /// Tasks that it took.
    pub attempts: u64,
    /// Attempts whose output was right.
    pub succeeded: u64,
    /// Tasks that it did not take because it was full.
    pub refused_busy: u64,
    /// Tasks that it did not take because it was gone or being closed.
    pub refused: u64,
    /// Tasks beyond what it can do.
    pub illegal: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that took too long.
    pub late: u64,
    /// Attempts whose output did not answer the task.
    pub suspicious: u64,
    /// Attempts whose files were compared with those of the processor.
    pub checked: u64,
    /// Comparisons that found a difference.
    pub mismatches: u64,
    /// The failure that left the unit with checked tasks only, with its time.
    pub out_of_service: Option<OutOfServiceFigures>,
    /// Input of the attempts that succeeded.
    pub input_bytes: u64,
    /// Output of the attempts that succeeded.
    pub output_bytes: u64,
    /// The time of the attempts that succeeded, added up.
    pub busy_us: u64,
    /// Their stages, added up.
    pub stages: StagesFigures,
    /// Tasks that it holds now.
    pub tasks: u64,
    /// The most that it holds.
    pub tasks_max: u64,
    /// The reason of the last final refusal, failure, late attempt or suspicious output.
    pub last_trouble: Option<String>,
    /// The totals of its decisions between linear and pipelined runs, if it decides.
    pub decisions: Option<DecisionsFigures>,
}

/// A unit that keeps failing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutOfServiceFigures {
    /// By the store's clock.
    pub since_us: u64,
    /// The last failure.
    pub why: String,
}

/// Three stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StagesFigures {
    /// Stored blocks, from the volume into memory.
    pub read: StageFigures,
    /// Decode, merge, encode.
    pub merge: StageFigures,
    /// Appends and syncs.
    pub write: StageFigures,
}

/// The times and bytes of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StageFigures {
    /// The time at work.
    pub busy_us: u64,
    /// The time of waits for the stage before it.
    pub starved_us: u64,
    /// The time of waits for the stage behind it.
    pub blocked_us: u64,
    /// The bytes that went through it.
    pub bytes: u64,
}

impl StagesFigures {
    /// Returns the stages with their names.
    pub fn named(&self) -> [(&'static str, StageFigures); 3] {
        [("read", self.read), ("merge", self.merge), ("write", self.write)]
    }
}

/// One attempt of a task on one unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The number of the attempt among those that have ended; absent while it runs.
    pub sequence: Option<u64>,
    /// The attempt's number; 0 if the unit did not take the task.
    pub attempt: u64,
    /// The compaction that the task is a part of.
    pub job: u64,
    /// The task.
    pub task: u64,
    /// The keyspace's name, or its number after it was dropped.
    pub keyspace: String,
    /// The upper input level.
    pub level: u32,
    /// The level of the output.
    pub output_level: u32,
    /// The priority of the job, in words.
    pub priority: String,
    /// The class of the task, in words.
    pub class: String,
    /// The unit's place among the units.
    pub unit: u64,
    /// The unit's name.
    pub unit_name: String,
    /// True if the files of the attempt are compared with those of another unit.
    pub is_checked: bool,
    /// By the store's clock.
    pub began_us: u64,
    /// The end of the attempt, by the store's clock; absent while it runs.
    pub ended_us: Option<u64>,
    /// The time of the attempt as the unit measured it.
    pub elapsed_us: u64,
    /// `linear` or `pipelined`.
    pub mode: String,
    /// The merge threads of a pipelined run.
    pub merge_threads: u32,
    /// All zero if the unit does not tell.
    pub stages: StagesFigures,
    /// Input in the task's range.
    pub input_bytes: u64,
    /// Output tables; 0 unless it is done.
    pub output_bytes: u64,
    /// `running`, `done`, `failed`, `suspicious`, `late`, `refused`, `illegal`, `mismatch` or `cancelled`.
    pub outcome: String,
    /// The reason, if there is more to say.
    pub reason: Option<String>,
    /// The decision that set the mode, if there was one.
    pub decision: Option<DecisionFigures>,
}

/// A decision with its inputs: f is the sum of values times weights, against a threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionFigures {
    /// `linear` or `pipelined`.
    pub mode: String,
    /// The reason, in words.
    pub why: String,
    /// The sum.
    pub f: f64,
    /// The f at which pipelines go off.
    pub threshold: f64,
    /// The rule that kept the mode from following f: `hysteresis`, `dwell` or `reads`.
    pub held: Option<String>,
    /// True if the mode is not that of the decision before.
    pub is_changed: bool,
    /// The addends.
    pub inputs: Vec<InputFigures>,
}

/// One addend of f.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputFigures {
    /// The name of the measured quantity.
    pub name: String,
    /// Its weight.
    pub weight: f64,
    /// Absent if it was not measured; it counts as 0 then.
    pub value: Option<f64>,
    /// The source of the value, or the reason why it is missing.
    pub note: String,
}

/// The totals of all decisions of a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionsFigures {
    /// All.
    pub made: u64,
    /// Decisions for a pipelined run.
    pub pipelined: u64,
    /// Decisions for a linear run.
    pub linear: u64,
    /// Decisions whose mode was not that of the one before.
    pub changed: u64,
    /// Decisions whose mode did not follow f.
    pub held_back: u64,
    /// The number of times that pipelines went off because reads suffered.
    pub off_for_reads: u64,
    /// The last one.
    pub last: Option<DecisionFigures>,
}

#[cfg(test)]
mod tests;
