//! Compactions divided between this machine's processors and other units: near-data nodes, other processes,
//! accelerators.
//!
//! ```text
//! job ──divide──> parts ──store──> tasks ──Scheduler──> units ──run──> tables ──check──> outputs, in order
//! ```
//!
//! * [`Offload`] makes the compactor of a store, and reports what its units do. It is given to the store's builder.
//! * [`Unit`] is the seam to whatever runs tasks, and [`CpuUnit`] the one that is always there. The [`Scheduler`]
//!   divides, chooses and checks, and has the CPU do again what went wrong elsewhere. [`TaskRecord`] and [`UnitReport`]
//!   tell of it.
//! * [`Policy`] says how jobs are divided and how each side runs its part; a [`Decider`] chooses between a linear and a
//!   pipelined run.
//! * [`encode_task`] and its kin make bytes of tasks and outputs, for units in other processes.
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod class;
mod cpu;
mod decide;
mod guarded;
mod mode;
mod offload;
mod policy;
mod ran;
mod record;
mod scheduler;
mod split;
mod threads;
mod unit;
mod wire;

pub use class::{TaskClass, ValueSize};
pub use cpu::CpuUnit;
pub use decide::{
    Calibrated, Cost, Decider, DecisionRecord, DecisionReport, Held, LargeValues, MEASURE_AGE_MAX, MachineSampler,
    READ_AGE_MAX, ReadInputs, Sampler, SharePoint, Side, Term, ValuePoint, calibrate, growth_ratio, rules_of,
};
pub use mode::{DecisionRules, ModeRule, Resources};
pub use offload::Offload;
pub use policy::{Policy, Split};
pub use ran::Ran;
pub use record::{ClassReport, OutOfService, TaskOutcome, TaskRecord, UnitReport};
pub use scheduler::{Patience, Scheduler, UnitEvent};
pub use split::Arm;
pub use threads::{RunTask, TaskThreads};
pub use unit::{Assignment, Finished, KnownFilters, Limits, Load, Offer, Refused, TaskRunner, Unit};
pub use wire::{Surroundings, decode_output, decode_task, encode_output, encode_task};
