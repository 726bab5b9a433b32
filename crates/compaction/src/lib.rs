//! Compaction: a task from input tables to output tables, on any unit.
//!
//! ```text
//! job ──cut──> tasks ──Scheduler──> units ──run: merge, thin out, cut──> tables ──check──> outputs, in order
//! ```
//!
//! * [`Task`] and [`TaskOutput`] are plain values; [`TaskHost`] is what a run asks of the world while it runs.
//! * [`run()`] is the reference merge: it defines the bytes that every unit must give for a task. [`run_with`] gives them linear or
//!   pipelined, and measures its stages.
//! * [`cut()`] divides a job by key ranges of about equal bytes, [`cut_shares`] by any proportion.
//! * [`encode_task`] and its kin make bytes of tasks and outputs, for units in other processes.
//! * [`Unit`] is the seam to whatever runs tasks, [`CpuUnit`] the one that is always there, [`Scheduler`] the one who
//!   divides, chooses, checks, and has the CPU do again what went wrong elsewhere. [`TaskRecord`] and [`UnitReport`] tell of it.
//! * [`ValueHandles`] is what a store with a value log gives; [`DroppedValues`] is what a task then says of the log.
//! * [`Merge`] is the forward k-way merge under it all.
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod check;
mod class;
mod cpu;
mod cut;
mod decide;
mod dropped;
mod error;
mod filter;
mod guarded;
mod merge;
mod meters;
mod mode;
mod output;
mod policy;
mod ran;
mod record;
mod run;
mod scheduler;
mod span;
mod split;
mod stream;
mod task;
mod unit;
mod wire;

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;

#[cfg(test)]
mod testing;

pub use check::check_output;
pub use class::{TaskClass, ValueSize};
pub use cpu::CpuUnit;
pub use cut::{Cut, cut, cut_shares};
pub use decide::{
    Calibrated, Cost, Decider, DecisionRecord, DecisionReport, Held, LargeValues, MEASURE_AGE_MAX,
    MEASURE_NAME_BYTES_MAX, MESSAGE_BYTES_MAX, MachineSampler, Measure, NODE_FLAGS, PipelineRun, Pipelines,
    READ_AGE_MAX, ReadInputs, ReadTail, Sampler, SharePoint, Side, Term, ValuePoint, calibrate, decode_measures,
    encode_measures, encode_values, growth_ratio, rules_of,
};
pub use dropped::{DroppedValues, ValueHandles, ValueLocation};
pub use error::{Result, TaskError};
pub use filter::{CompactionFilter, Decision, FilterContext, FrozenFilter};
pub use merge::{Merge, Named, Source};
pub use mode::{DecisionRules, ModeRule, Resources, RunMode, Stage, Stages};
pub use policy::{Policy, Split};
pub use ran::Ran;
pub use record::{ClassReport, OutOfService, Priority, TaskOutcome, TaskRecord, UnitReport};
pub use run::{merge_sources, run, run_with};
pub use scheduler::{Division, FinishedJob, JobOrder, JobShape, Part, Patience, Scheduler, UnitEvent};
pub use span::{KeyRange, KeySpan};
pub use split::Arm;
pub use task::{
    Encoder, Grandparent, InputTable, MergeRules, OutputRules, OutputTable, Run, TableInput, TablePlace, Task,
    TaskHost, TaskOutput, TaskStats,
};
pub use unit::{Assignment, Finished, KnownFilters, Limits, Load, Offer, Refused, Unit};
pub use wire::{Surroundings, decode_output, decode_task, encode_output, encode_task};
