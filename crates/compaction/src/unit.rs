//! The seam between the engine and whatever runs tasks.
//!
//! A [`Unit`] is asked what it can do and how busy it is, is given tasks without ever blocking the giver, and is asked
//! for what has finished. The [`Scheduler`](crate::Scheduler) does the asking; [`CpuUnit`](crate::CpuUnit) is the unit
//! that is always there, and whose output defines what is right.
//!
//! How others fit:
//!
//! * **Linear and pipelined CPU runs.** Linear is [`run`](crate::run()): read, merge, write, one after the other on one
//!   thread. A pipelined unit has the same face and three threads a task, with bounded queues of blocks between
//!   reading, merging and writing; it pays where reads and writes take as long as merging and a core is free. Which of
//!   the two is wanted is a matter of load: two units, and the scheduler chooses.
//! * **A remote node, or a drive that computes.** `submit` encodes the task (a task is plain values; inputs go by file
//!   number, the filter by name) and queues the message; a reader thread puts answers in the finished list and
//!   notifies [`Assignment::done`]. Its limits refuse tasks whose inputs do not lie with it or whose filter it does not
//!   know. Output files are made next to the inputs: its host hands out numbers only.
//! * **An accelerator.** Limits say how long keys and how many runs it can take; blocks stand alone, so that decoding,
//!   merging and encoding can happen on the device. Whatever it refuses, the CPU does.
//!
//! Every unit gives the bytes of the reference merge for the same task, or fails.

use crate::error::Result;
use crate::task::{Task, TaskHost, TaskOutput};
use situ_device::Event;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a unit can take. Fixed for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tasks that it holds at once, waiting or running.
    pub tasks: usize,
    /// The most runs in a task.
    pub runs: usize,
    /// The most bytes of input in a task: those in its range.
    pub input_bytes: u64,
    /// Whether it can call compaction filters.
    pub filters: bool,
    /// Whether it knows range tombstones.
    pub range_tombstones: bool,
}

impl Limits {
    /// Anything, so many tasks at a time.
    pub fn unlimited(tasks: usize) -> Limits {
        Limits { tasks, runs: usize::MAX, input_bytes: u64::MAX, filters: true, range_tombstones: true }
    }

    /// Why a unit with these limits cannot take `task`, if it cannot.
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
        if task.rules.filter.is_some() && !self.filters {
            return Err("a compaction filter".to_owned());
        }
        if !self.range_tombstones && task.tables().any(|input| input.range_deletions > 0) {
            return Err("range tombstones".to_owned());
        }
        Ok(())
    }
}

/// How busy a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Tasks that it holds, waiting, running or finished and not collected.
    pub tasks: usize,
    /// Their input bytes.
    pub input_bytes: u64,
    /// Input bytes a second that the whole unit gets through, as measured; 0 if it is not known yet.
    pub bytes_per_s: u64,
}

/// A task on its way to a unit.
#[derive(Clone)]
pub struct Assignment {
    /// Names this attempt to run the task; comes back in [`Finished`].
    pub attempt: u64,
    /// What is to be done.
    pub task: Arc<Task>,
    /// What the run may ask for.
    pub host: Arc<dyn TaskHost>,
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
    /// What came of it.
    pub result: Result<TaskOutput>,
    /// How long it took, from start to end, as the unit measured.
    pub elapsed: Duration,
}

/// Something that runs tasks. No call blocks, but for [`close`](Unit::close).
pub trait Unit: Send + Sync {
    /// For logs.
    fn name(&self) -> &str;

    /// What it can take.
    fn limits(&self) -> Limits;

    /// How busy it is.
    fn load(&self) -> Load;

    /// Gives it a task. If it takes it, it will say so in [`poll`](Unit::poll), once, whatever happens, unless it dies.
    ///
    /// # Errors
    /// It does not take the task.
    fn submit(&self, assignment: Assignment) -> Result<(), Refused>;

    /// Moves all finished attempts into `finished`, in any order.
    fn poll(&self, finished: &mut Vec<Finished>);

    /// Takes no more tasks, and returns when it has let go of the hosts of all that it had. They decide how soon that is.
    fn close(&self);
}
