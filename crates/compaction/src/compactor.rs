//! The seam between a store and whatever runs its compactions.
//!
//! 1. The store asks for a [`Division`] of a job's keys and makes a task of each [`Part`].
//! 2. It [submits](Compactor::submit) the tasks as one [`JobOrder`]. The job holds no thread of the store.
//! 3. The store's threads take [turns](Compactor::turn) and [take](Compactor::take_finished) the jobs that have
//!    finished.
//!
//! [`LocalCompactor`](crate::LocalCompactor) runs tasks on this machine's processors. Others may send them elsewhere.

use crate::error::Result;
use crate::pipelines::Pipelines;
use crate::span::KeyRange;
use crate::task::{Run, Task, TaskHost, TaskOutput};
use situ_base::{Env, Event};
use situ_table::Compression;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The urgency of a job: the greater priority goes first. Level 0 goes before all others, as it holds writers back;
/// then the level that exceeds its target by the greatest factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority {
    /// The job takes tables out of level 0.
    pub is_level0: bool,
    /// The level's size over its target, in thousandths.
    pub score_milli: u32,
}

impl Priority {
    /// Returns the priority of a job of `level` with this score.
    pub fn new(level: u32, score: f64) -> Priority {
        // The cast saturates.
        Priority { is_level0: level == 0, score_milli: (score * 1000.0) as u32 }
    }
}

/// A job that is to be divided.
#[derive(Debug, Clone, Copy)]
pub struct JobShape<'a> {
    /// The upper level.
    pub level: u32,
    /// The tables.
    pub inputs: &'a [Run],
    /// The compression of the output.
    pub compression: Compression,
    /// The number of tasks that this machine's processors may run side by side.
    pub threads: usize,
    /// The minimum length of a task that is cut only to keep several threads busy, in bytes of input.
    pub task_bytes_min: u64,
    /// The minimum length of any part. At most `task_bytes_min`.
    pub part_bytes_min: u64,
}

/// The compactor's own mark on a part: where it means the part to run. It has no meaning for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Destination(pub Option<usize>);

/// A part of a job's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The keys.
    pub range: KeyRange,
    /// Goes with the part's task.
    pub destination: Destination,
}

/// The compactor's own notes on a job. They have no meaning for the store, which passes them on from [`Division`] to
/// [`JobOrder`].
#[derive(Clone, Default)]
pub struct JobNotes(Option<Arc<dyn Any + Send + Sync>>);

impl JobNotes {
    /// Keeps `notes`.
    pub fn new<T: Any + Send + Sync>(notes: T) -> JobNotes {
        JobNotes(Some(Arc::new(notes)))
    }

    /// Returns the notes if they are of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for JobNotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "JobNotes(..)" } else { "JobNotes()" })
    }
}

/// A job's parts.
#[derive(Debug, Clone)]
pub struct Division {
    /// The parts, in the order of the keys, without a gap.
    pub parts: Vec<Part>,
    /// For [`JobOrder::notes`].
    pub notes: JobNotes,
}

/// A job as it is submitted.
pub struct JobOrder {
    /// A number that no other job of the compactor has. The job comes back under it.
    pub number: u64,
    /// The tasks, each with the destination of its part.
    pub tasks: Vec<(Task, Destination)>,
    /// Answers what the runs of the tasks ask.
    pub host: Arc<dyn TaskHost>,
    /// The number of tasks that may run at a time. At least one does.
    pub abreast: usize,
    /// The urgency of the job.
    pub priority: Priority,
    /// From [`Division::notes`].
    pub notes: JobNotes,
}

/// A job whose last task has landed, or that has failed.
#[derive(Debug)]
pub struct FinishedJob {
    /// The number that the job was submitted by.
    pub job: u64,
    /// The outputs in the tasks' order, or the first failure.
    pub result: Result<Vec<TaskOutput>>,
}

/// The tasks that a compactor takes besides those of this machine's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// The maximum number of tasks.
    pub tasks_max: usize,
    /// True if neither this machine nor anything else takes another task now.
    pub is_full: bool,
}

/// Runs the compactions of one store.
///
/// **Threads.** Any thread calls any method. No method blocks, except [`close`](Compactor::close).
pub trait Compactor: Any + Send + Sync {
    /// Divides a job's keys into parts, one for each task.
    ///
    /// # Errors
    /// An index block of a table cannot be read.
    fn divide(&self, job: &JobShape<'_>) -> situ_storage::Result<Division>;

    /// Puts the tasks of a job into the queue. The caller takes a [`turn`](Compactor::turn) next. Output places that
    /// the host has handed out and that are in no output are the caller's to clear.
    fn submit(&self, job: JobOrder);

    /// Moves all jobs on as far as possible now.
    fn turn(&self);

    /// Takes a job that has finished: this one, or any.
    fn take_finished(&self, job: Option<u64>) -> Option<FinishedJob>;

    /// Returns true if there is no job, neither in the queue nor finished.
    fn is_empty(&self) -> bool;

    /// Returns the time until a turn is due even if the event is not notified; `None` if no turn is due.
    fn next_turn_in(&self) -> Option<Duration> {
        None
    }

    /// Returns what the compactor takes besides the tasks of this machine's processors.
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::default()
    }

    /// Returns the number of tables of the upper level that a job of a deeper level begins with, if there are as many.
    /// More tables fill a pipeline better, and cost write amplification.
    fn tables_per_job(&self) -> usize {
        1
    }

    /// Takes a metric message about the store's reads, for decisions that weigh them.
    fn note_reads(&self, message: &[u8]) {
        let _ = message;
    }

    /// Returns the counts of pipelined runs, if decisions compare reads with and without pipelined runs. The store
    /// calls it once.
    fn pipelines(&self) -> Vec<Pipelines> {
        Vec::new()
    }

    /// Waits until no run holds the host of its task any more. The compactor takes no more jobs.
    fn close(&self);
}

/// The parts of a store that its compactor uses.
pub struct CompactorParts {
    /// Time and threads.
    pub env: Env,
    /// The compactor notifies it when a turn may find something to do, and when a job has finished.
    pub event: Arc<dyn Event>,
    /// The maximum number of tasks that run on this machine's processors at a time.
    pub threads: usize,
}

/// Makes the compactor of a store that opens.
pub trait MakeCompactor: Send + Sync {
    /// Returns the name by which the store's options show the compactor.
    fn name(&self) -> String;

    /// Makes the compactor.
    fn make(&self, parts: CompactorParts) -> Arc<dyn Compactor>;
}
