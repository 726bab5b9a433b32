//! Compaction: a task from input tables to output tables, on any unit.
//!
//! ```text
//! job ──cut──> tasks ──Scheduler──> units ──run: merge, thin out, cut──> tables ──check──> outputs, in order
//! ```
//!
//! * [`Task`] and [`TaskOutput`] are plain values; [`TaskHost`] is what a run asks of the world while it runs.
//! * [`run()`] is the reference merge: it defines the bytes that every unit must give for a task.
//! * [`cut()`] divides a job by key ranges of about equal bytes.
//! * [`encode_task`] and its kin make bytes of tasks and outputs, for units in other processes.
//! * [`Unit`] is the seam to whatever runs tasks, [`CpuUnit`] the one that is always there, [`Scheduler`] the one who
//!   chooses, checks, and has the CPU do again what went wrong elsewhere.
//! * [`ValueHandles`] is what a store with a value log gives; [`DroppedValues`] is what a task then says of the log.
//! * [`Merge`] is the forward k-way merge under it all.
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod check;
mod cpu;
mod cut;
mod decide;
mod dropped;
mod error;
mod filter;
mod guarded;
mod merge;
mod mode;
mod output;
mod policy;
mod run;
mod scheduler;
mod span;
mod stream;
mod task;
mod unit;
mod wire;

#[cfg(test)]
mod testing;

pub use check::check_output;
pub use cpu::CpuUnit;
pub use cut::cut;
pub use decide::{
    Calibrated, Cost, Decider, DecisionRecord, DecisionReport, Held, LargeValues, MEASURE_AGE_MAX,
    MEASURE_NAME_BYTES_MAX, MESSAGE_BYTES_MAX, MachineSampler, Measure, PipelineRun, Pipelines, READ_AGE_MAX,
    ReadInputs, ReadTail, Sampler, SharePoint, Side, Term, ValuePoint, calibrate, decode_measures, encode_measures,
    growth_ratio,
};
pub use dropped::{DroppedValues, ValueHandles, ValueLocation};
pub use error::{Result, TaskError};
pub use filter::{CompactionFilter, Decision, FilterContext, FrozenFilter};
pub use merge::{Merge, Named, Source};
pub use mode::{DecisionRules, ModeRule, Ran, Resources, RunMode, Stage, Stages};
pub use policy::{Policy, Split};
pub use run::{merge_sources, run};
pub use scheduler::{FinishedJob, Patience, Scheduler, UnitReport};
pub use span::{KeyRange, KeySpan};
pub use task::{
    Encoder, Grandparent, InputTable, MergeRules, OutputRules, OutputTable, Run, TableInput, TablePlace, Task,
    TaskHost, TaskOutput, TaskStats,
};
pub use unit::{Assignment, Finished, KnownFilters, Limits, Load, Offer, Refused, Unit};
pub use wire::{Surroundings, decode_output, decode_task, encode_output, encode_task};
