//! The rules by which a unit chooses the mode of a run, and what it has free.

use situ_compaction::RunMode;
use std::time::Duration;

/// The free resources of a unit, as it measured them last. For splits by resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// The unused part of the unit's processors, all together, in thousandths of one processor.
    pub processors_free_milli: u32,
    /// Bytes of memory that are free.
    pub memory_free_bytes: u64,
    /// Bytes a second that its volume could still read and write; 0 if the unit cannot tell.
    pub bandwidth_free_bytes_per_s: u64,
}

/// The weights and the threshold of a decision: f = a * CPU + b * memory + c * large values, against a threshold
/// (CoPro, formula 1). Above the threshold, a run is linear; below it, a run is pipelined.
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
    /// The minimum time for which a mode stays.
    pub dwell_min: Duration,
    /// Pipelines go off while the p99 of foreground reads exceeds this multiple of what it is without them; `None` to
    /// not look.
    pub read_p99_factor_max: Option<f64>,
    /// The number of threads that merge in a pipelined run.
    pub merge_threads: u32,
}

impl DecisionRules {
    /// Returns the rules of the paper's CoPro+: only the share of large values counts, 70% of them turn pipelines off,
    /// and nothing keeps the decision from changing with every task. Values are large from 32 KiB on the host, from 16
    /// KiB on a device.
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

/// The rule by which a unit chooses the mode of a run.
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
