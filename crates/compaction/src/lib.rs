//! Compaction: a task from input tables to output tables, and the runs that do it.
//!
//! ```text
//! job ──divide──> parts ──> tasks ──Compactor──> run: merge, thin out, cut ──> tables ──check──> outputs, in order
//! ```
//!
//! * [`Task`] and [`TaskOutput`] are plain values; [`TaskHost`] is what a run asks of the world while it runs.
//! * [`run()`] is the reference merge: it defines the bytes that every run must give for a task. [`run_with`] gives
//!   them linear or pipelined, and measures its stages.
//! * [`write_blocks`] makes the tables of blocks that a device has merged.
//! * [`Compactor`] is the seam between a store and whatever runs its compactions. [`LocalCompactor`] runs them on this
//!   machine's processors.
//! * [`cut()`] divides a job by key ranges of about equal bytes, [`cut_shares`] by any proportion.
//! * [`ValueHandles`] is what a store with a value log gives; [`DroppedValues`] is what a task then says of the log.
//! * [`Merge`] is the forward k-way merge under it all.
//!
//! Nothing in this crate knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod attempt_host;
mod check;
mod compactor;
mod cut;
mod dropped;
mod error;
mod filter;
mod local;
mod measure;
mod merge;
mod meters;
mod mode;
mod output;
mod pipelines;
mod report;
mod run;
mod span;
mod stream;
mod task;

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;

pub use attempt_host::AttemptHost;
pub use check::check_output;
pub use compactor::{
    Compactor, CompactorParts, Destination, Division, Elsewhere, FinishedJob, JobNotes, JobOrder, JobShape,
    MakeCompactor, Part, Priority,
};
pub use cut::{Cut, cut, cut_shares};
pub use dropped::{DroppedValues, ValueHandles, ValueLocation};
pub use error::{Result, TaskError};
pub use filter::{CompactionFilter, Decision, FilterContext, FrozenFilter};
pub use local::{Local, LocalCompactor};
pub use measure::{
    MEASURE_NAME_BYTES_MAX, MESSAGE_BYTES_MAX, Measure, NODE_FLAGS, ReadTail, decode_measures, encode_measures,
    encode_values,
};
pub use merge::{Merge, Named, Source};
pub use mode::{RunMode, Stage, Stages};
pub use pipelines::{PipelineRun, Pipelines};
pub use report::RunReport;
pub use run::{BlockSource, merge_sources, run, run_with, write_blocks};
pub use span::{KeyRange, KeySpan};
pub use task::{
    Encoder, Grandparent, InputTable, MergeRules, OutputRules, OutputTable, Run, TableInput, TablePlace, Task,
    TaskHost, TaskOutput, TaskStats,
};

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;
