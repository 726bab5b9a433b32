//! The mode of a task's run, linear or pipelined, and the report of its stages.
//!
//! A run has three stages: it reads stored blocks, it merges (decode, merge, thin out, encode), and it writes files. A
//! linear run does one after the other on one thread. A pipelined run gives each stage threads of its own, with bounded
//! buffers in between. Both give the same bytes for the same task (promise 5).
//!
//! Terms after PCP (Zhang et al., IPDPS 2014) and CoPro.

use std::time::Duration;

/// The way in which the stages of a run share threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RunMode {
    /// One thread reads, merges and writes, one after the other.
    #[default]
    Linear,
    /// Each stage has threads of its own.
    Pipelined {
        /// The number of threads that merge, each a part of the task's keys; one at least.
        merge_threads: u32,
    },
}

impl RunMode {
    /// A pipeline of one thread for each stage.
    pub const PIPELINED: RunMode = RunMode::Pipelined { merge_threads: 1 };

    /// Returns true if stages have threads of their own.
    pub fn is_pipelined(self) -> bool {
        matches!(self, RunMode::Pipelined { .. })
    }
}

/// The times and bytes of one stage of a run. A stage with several threads adds up their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// The time for which the stage worked.
    pub busy: Duration,
    /// The time for which the stage waited for the stage before it.
    pub starved: Duration,
    /// The time for which the stage waited for the stage behind it to take what it had.
    pub blocked: Duration,
    /// Bytes that went through: stored bytes for reading and writing, uncompressed bytes for merging.
    pub bytes: u64,
}

/// The stages of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stages {
    /// Stored blocks, from the volume into memory.
    pub read: Stage,
    /// Decode, merge, thin out, encode.
    pub merge: Stage,
    /// Appends and syncs.
    pub write: Stage,
}
