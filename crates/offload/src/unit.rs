//! The seam between the engine and whatever runs tasks.
//!
//! A [`Unit`] says whether it takes a task and how soon it would be done. It takes tasks without ever blocking the
//! giver, and is asked for what has finished. The [`Scheduler`](crate::Scheduler) does the asking.
//! [`CpuUnit`](crate::CpuUnit) is the unit that is always there, and its output defines what is right.
//!
//! How others fit:
//!
//! * **Linear and pipelined CPU runs.** A unit runs a task by [`run_with`](situ_compaction::run_with), in the mode that
//!   the assignment's rule gives: read, merge and write one after the other on one thread, or each stage on threads of
//!   its own.
//! * **A remote node, or a drive that computes.** [`submit`](Unit::submit) encodes the task
//!   ([`encode_task`](crate::encode_task)) and queues the message. A thread that reads answers puts them into the
//!   finished list and notifies [`Assignment::done`]. The host reserves a place for each output
//!   ([`TaskHost::reserve`](situ_compaction::TaskHost::reserve)); the node makes the file there, next to the inputs.
//!   `examples/compaction_worker` of the engine is the smallest such unit: another process, over a pipe.
//! * **An accelerator.** [`Limits`] say how long keys and values may be and how many runs it can merge. Blocks stand
//!   alone, so that decoding, merging and encoding can happen on the device. What the accelerator refuses, the CPU
//!   does.
//!
//! Two units that name the same [encoder](Unit::encoder) give the same bytes for the same task, or fail. Units with
//! different encoders agree on what is decided before compression: entries, and the blocks of each file. Where a file
//! ends follows the encoder's own lengths (`output/size.rs`).

use crate::decide::DecisionReport;
use crate::mode::{ModeRule, Resources};
use crate::ran::Ran;
use situ_base::Event;
use situ_compaction::{Encoder, Pipelines, Result, RunReport, Task, TaskHost, TaskOutput};
use situ_table::Compression;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which compaction filters a unit can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownFilters {
    /// Every filter: the unit is in the application's process.
    All,
    /// Those with these names; possibly none.
    Named(Vec<String>),
}

/// The limits of the tasks that a unit can take. For units to answer [`Unit::offer`] by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most runs in a task.
    pub runs: usize,
    /// The most bytes of input in a task: those in its range.
    pub input_bytes: u64,
    /// The longest user key. A table that does not tell its longest key counts as having the longest one that there can
    /// be.
    pub key_bytes: u32,
    /// The longest value. A table that does not tell its longest value counts as having the longest one that there can
    /// be.
    pub value_bytes: u32,
    /// The filters that it can call.
    pub filters: KnownFilters,
    /// The unit knows range tombstones.
    pub range_tombstones: bool,
    /// The volumes whose files it can read; `None` for all. It writes to them, too.
    pub volumes: Option<Vec<u32>>,
    /// The compressions that it can write; `None` for all.
    pub compressions: Option<Vec<Compression>>,
}

impl Limits {
    /// Returns limits that allow anything.
    pub fn unlimited() -> Limits {
        Limits {
            runs: usize::MAX,
            input_bytes: u64::MAX,
            key_bytes: u32::MAX,
            value_bytes: u32::MAX,
            filters: KnownFilters::All,
            range_tombstones: true,
            volumes: None,
            compressions: None,
        }
    }

    /// Checks that a unit with these limits can take `task`; the error is the reason why it cannot. Where keys or
    /// values are bounded, tables are opened to ask for their longest ones.
    ///
    /// # Errors
    /// The reason, for the log.
    pub fn admit(&self, task: &Task) -> Result<(), String> {
        let (runs, bytes) = (task.inputs.len(), task.input_bytes());
        if runs > self.runs {
            return Err(format!("{runs} runs, at most {} can be merged", self.runs));
        }
        if bytes > self.input_bytes {
            return Err(format!("{bytes} bytes of input, at most {} fit", self.input_bytes));
        }
        if !self.range_tombstones && task.tables().any(|input| input.range_deletions > 0) {
            return Err("range tombstones".to_owned());
        }
        let compression = task.rules.output.table.compression;
        if self.compressions.as_ref().is_some_and(|known| !known.contains(&compression)) {
            return Err(format!("compression {compression}"));
        }
        self.admit_filter(task)?;
        self.admit_places(task)?;
        self.admit_lengths(task)
    }

    fn admit_filter(&self, task: &Task) -> Result<(), String> {
        let (Some(filter), KnownFilters::Named(names)) = (&task.rules.filter, &self.filters) else { return Ok(()) };
        let name = filter.code.name();
        if names.iter().any(|known| known == name) { Ok(()) } else { Err(format!("the compaction filter {name}")) }
    }

    fn admit_places(&self, task: &Task) -> Result<(), String> {
        let Some(volumes) = &self.volumes else { return Ok(()) };
        match task.tables().find(|input| !volumes.contains(&input.volume)) {
            Some(input) => Err(format!("table {} lies on volume {}", input.number, input.volume)),
            None => Ok(()),
        }
    }

    fn admit_lengths(&self, task: &Task) -> Result<(), String> {
        if self.key_bytes == u32::MAX && self.value_bytes == u32::MAX {
            return Ok(());
        }
        for input in task.tables() {
            let (key, value) = input.longest().map_err(|error| error.to_string())?;
            if key > self.key_bytes || value > self.value_bytes {
                let number = input.number;
                return Err(format!("keys of {key} and values of {value} bytes in table {number}"));
            }
        }
        Ok(())
    }
}

/// The load of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Tasks that it holds, waiting, running or finished and not collected.
    pub tasks: usize,
    /// The most tasks that it holds at once. May change.
    pub tasks_max: usize,
    /// The input bytes of the tasks that it holds.
    pub input_bytes: u64,
    /// Input bytes a second that the whole unit gets through, as measured; 0 if that is not known yet.
    pub bytes_per_s: u64,
    /// The free resources of the unit; `None` if it does not measure them.
    pub resources: Option<Resources>,
}

/// Speed assumed of a unit that has not finished anything yet.
const UNKNOWN_BYTES_PER_S: u64 = 100 << 20;

impl Load {
    /// Returns the offer of a unit with this load for a task that it can take. The task's turn comes when all that the
    /// unit holds is done.
    pub fn offer(&self, task_bytes: u64) -> Offer {
        if self.tasks >= self.tasks_max {
            return Offer::Busy;
        }
        let speed = if self.bytes_per_s == 0 { UNKNOWN_BYTES_PER_S } else { self.bytes_per_s };
        let bytes = self.input_bytes.saturating_add(task_bytes);
        Offer::DoneIn(Duration::try_from_secs_f64(bytes as f64 / speed as f64).unwrap_or(Duration::MAX))
    }
}

/// A unit's answer to whether it would take a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// It would be done in about this time.
    DoneIn(Duration),
    /// Not now: it has as many tasks as it can hold.
    Busy,
    /// Not this task; the text says why.
    Unsuited(String),
}

/// A task on its way to a unit.
#[derive(Clone)]
pub struct Assignment {
    /// Names this attempt to run the task; comes back in [`Finished`].
    pub attempt: u64,
    /// The task to run.
    pub task: Arc<Task>,
    /// The host that serves the run.
    pub host: Arc<dyn TaskHost>,
    /// The rule by which the unit is to choose the mode of the run. A unit that has one mode only keeps to that.
    pub mode: ModeRule,
    /// To be notified when the attempt can be collected with [`Unit::poll`].
    pub done: Arc<dyn Event>,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of {:?}", self.attempt, self.task)
    }
}

/// A unit does not take the task. Nothing has been done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Not now: it has as many as it can hold.
    Busy,
    /// Not this task, ever; the text says why.
    Unsuited(String),
    /// Nothing more: it is gone, or being closed; the text says why.
    Gone(String),
}

/// An attempt that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The assignment's.
    pub attempt: u64,
    /// The outcome of the attempt.
    pub result: Result<TaskOutput>,
    /// The duration of the attempt, from start to end, as the unit measured it.
    pub elapsed: Duration,
    /// The mode and the stages of the run.
    pub ran: Ran,
}

/// Something that runs tasks on the thread that asks: an accelerator of a node.
pub trait TaskRunner: Send + Sync {
    /// Checks that it can run a task. Opens tables, and reads no data.
    ///
    /// # Errors
    /// The reason why not, for the log. The processor can.
    fn admit(&self, task: &Task, host: &dyn TaskHost) -> Result<(), String>;

    /// Runs a task that it has admitted, and says how.
    ///
    /// # Errors
    /// Within the answer.
    fn run(&self, task: &Task, host: &dyn TaskHost) -> (Result<TaskOutput>, RunReport);
}

/// Something that runs tasks. No call waits for a task or for another machine, but for [`close`](Unit::close), and none
/// calls the scheduler back. A unit belongs to one store, which closes it. A unit that panics in a call is not spoken
/// to again, but for `close`: the CPU does what it held.
pub trait Unit: Send + Sync {
    /// Returns the unit's name, for logs.
    fn name(&self) -> &str;

    /// Returns the encoder of the compressed bytes that it writes. The default is the codecs of this program.
    fn encoder(&self) -> Encoder {
        Encoder::default()
    }

    /// Returns the unit's offer for the task: the time in which it would be done, or a refusal. The offer depends on
    /// the places of the tables, on their contents, and on the unit's load.
    fn offer(&self, task: &Task) -> Offer;

    /// Returns the unit's load.
    fn load(&self) -> Load;

    /// Gives it a task. A unit that takes a task reports its end in [`poll`](Unit::poll), once, whatever happens,
    /// unless the unit dies or the attempt is cancelled.
    ///
    /// # Errors
    /// It does not take the task.
    fn submit(&self, assignment: Assignment) -> Result<(), Refused>;

    /// Cancels an attempt: it may end without a result. Its host answers "cancelled" already. An attempt that the unit
    /// does not know, or that has finished, is nothing to it.
    fn cancel(&self, attempt: u64) {
        let _ = attempt;
    }

    /// Moves all finished attempts into `finished`, in any order.
    fn poll(&self, finished: &mut Vec<Finished>);

    /// Takes a [metric message](situ_compaction::encode_measures) for the decisions that the unit makes: what the host
    /// has measured. A unit that decides nothing takes no notice, and so does one that cannot read the message.
    fn measured(&self, message: &[u8]) {
        let _ = message;
    }

    /// Returns the counts of the unit's [decisions](crate::Decider); `None` if it decides nothing.
    fn decisions(&self) -> Option<DecisionReport> {
        None
    }

    /// Counts the unit's pipelined runs; `None` if it does not report them. Asked for once. The unit stops counting a
    /// run whose attempt it has lost.
    fn pipelines(&self) -> Option<Pipelines> {
        None
    }

    /// Takes no more tasks, and returns when it has let go of the hosts of all that it had. They decide how soon that
    /// is.
    fn close(&self);
}

#[cfg(test)]
mod tests;
