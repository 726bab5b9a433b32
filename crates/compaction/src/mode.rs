//! How a task is run: linear or pipelined, and what a run says of its stages.
//!
//! A run has three stages: it reads stored blocks, it merges (decode, merge, thin out, encode), and it writes files. A linear run
//! does one after the other on one thread. A pipelined run gives each stage threads of its own, with bounded buffers in between.
//! Both give the same bytes for the same task (promise 5).
//!
//! Terms after PCP (Zhang et al., IPDPS 2014) and CoPro.

use std::time::Duration;

/// How the stages of a run share threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RunMode {
    /// One thread reads, merges and writes, one after the other.
    #[default]
    Linear,
    /// Each stage has threads of its own.
    Pipelined {
        /// How many threads merge, each a part of the task's keys; one at least.
        merge_threads: u32,
    },
}

impl RunMode {
    /// A pipeline of one thread for each stage.
    pub const PIPELINED: RunMode = RunMode::Pipelined { merge_threads: 1 };

    /// Whether stages have threads of their own.
    pub fn is_pipelined(self) -> bool {
        matches!(self, RunMode::Pipelined { .. })
    }
}

/// What one stage of a run did. A stage with several threads adds up their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// How long the stage worked.
    pub busy: Duration,
    /// How long the stage waited for the stage before it.
    pub starved: Duration,
    /// How long the stage waited for the stage behind it to take what it had.
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

/// What a unit has free, as it measured last. For splits by resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// What nobody uses of the unit's processors, all together, in thousandths of one processor.
    pub processors_free_milli: u32,
    /// Bytes of memory that are free.
    pub memory_free_bytes: u64,
    /// Bytes a second that its volume could still read and write; 0 if the unit cannot tell.
    pub bandwidth_free_bytes_per_s: u64,
}

/// What a decision weighs: f = a * CPU + b * memory + c * large values, against a threshold (CoPro, formula 1). Above it, a run is
/// linear; below it, a run is pipelined.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRules {
    /// a: the weight of the share of processors in use, 0 to 1.
    pub cpu_weight: f64,
    /// b: the weight of the share of memory in use, 0 to 1.
    pub memory_weight: f64,
    /// c: the weight of the share of large values among the entries of a task, 0 to 1.
    pub large_value_weight: f64,
    /// A value is large from this length on.
    pub large_value_bytes: u64,
    /// Further measures, by the name under which their messages come, with their weights.
    pub further_weights: Vec<(String, f64)>,
    /// Pipelines go off at this f.
    pub threshold: f64,
    /// Pipelines come back at `threshold - hysteresis`.
    pub hysteresis: f64,
    /// A mode stays at least so long.
    pub dwell_min: Duration,
    /// Pipelines go off while the p99 of foreground reads exceeds this multiple of what it is without them; `None` to not look.
    pub read_p99_factor_max: Option<f64>,
    /// How many threads merge in a pipelined run.
    pub merge_threads: u32,
}

impl DecisionRules {
    /// The rules of the paper's CoPro+: only the share of large values counts, 70% of them turn pipelines off, and nothing keeps the
    /// decision from changing with every task. Values are large from 32 KiB on the host, from 16 KiB on a device.
    pub fn copro_plus(large_value_bytes: u64) -> DecisionRules {
        DecisionRules {
            cpu_weight: 0.0,
            memory_weight: 0.0,
            large_value_weight: 1.0,
            large_value_bytes,
            further_weights: Vec::new(),
            threshold: 0.7,
            hysteresis: 0.0,
            dwell_min: Duration::ZERO,
            read_p99_factor_max: None,
            merge_threads: 1,
        }
    }
}

/// How a unit chooses the mode of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum ModeRule {
    /// Always the same.
    Fixed(RunMode),
    /// By a decision for each task.
    Decided(DecisionRules),
}

impl Default for ModeRule {
    fn default() -> ModeRule {
        ModeRule::Fixed(RunMode::Linear)
    }
}
