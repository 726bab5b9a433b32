//! Compaction: a task from input tables to output tables, on any unit.
//!
//! ```text
//! job ──cut──> tasks ──run: merge, thin out, cut──> tables
//! ```
//!
//! * [`Task`] and [`TaskOutput`] are plain values; [`TaskHost`] is what a run asks of the world while it runs.
//! * [`run()`] is the reference merge: it defines the bytes that every unit must give for a task.
//! * [`cut()`] divides a job by key ranges of about equal bytes.
//! * [`Merge`] is the forward k-way merge under it all.
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod cut;
mod error;
mod filter;
mod merge;
mod output;
mod run;
mod span;
mod stream;
mod task;

#[cfg(test)]
mod testing;

pub use cut::cut;
pub use error::{Result, TaskError};
pub use filter::{CompactionFilter, Decision};
pub use merge::{Merge, Named, Source};
pub use run::{merge_sources, run};
pub use span::{KeyRange, KeySpan};
pub use task::{
    Grandparent, MergeRules, OutputRules, OutputTable, Run, TableInput, Task, TaskHost, TaskOutput, TaskStats,
};
