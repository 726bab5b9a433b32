//! The compaction unit of `fpga/rtl`, verilated: a task in flat bytes goes through the circuit, cycle by cycle, and
//! comes out as the answer that the model of all devices gives.
//!
//! ```text
//! task, blocks ──host──> descriptors ──unit──> blocks in slots, keys, reports ──host──> answer
//! ```
//!
//! 1. [`Simulated::run`] decodes the task, and refuses what the unit cannot do ([`NotRun::Unsuited`]).
//! 2. The unit reads the blocks through a memory with [latency and pauses](Memory), and writes blocks, each at a word
//!    of its path.
//! 3. The host's half puts the blocks together, hashes the keys that the unit sends out, and makes checksums of
//!    reports, keys and hashes.
//!
//! A [`Chip`] has several units: tasks go into a queue, and answers come in any order. In lock-step two units run a
//! task, and the chip compares their outputs.
//!
//! **Limits** of the unit: four ways (or [two](Variant), for a comparison), blocks without compression, keys of 64
//! bytes, values of 16383, eight snapshots, no range, no spans of older data. Blocks come with the bytes of their
//! entries.
//!
//! **Failure**: the unit's status is that of the first way with an error, as in the model. The circuit's assertions end
//! the process: this is a tool to check a circuit, and no part of the store.
//!
//! The feature `simulated` makes the simulation, if the build finds Verilator and a C++ compiler. Without it, a run
//! answers [`NotRun::Missing`].

#![deny(unsafe_code)]

mod chip;
mod device;
mod host;
mod model;

pub use chip::{Chip, ChipAnswer, Flip, registers};
pub use device::OpenSimulated;
pub use host::{FlatAnswer, NotRun, Simulated, Variant};
pub use model::{Cycle, Memory, RegisterError, missing};
