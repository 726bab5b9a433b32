//! The division of compactions between units, and their modes: the systems of the literature as configurations of one
//! code.
//!
//! | name | split | runs | after |
//! |---|---|---|---|
//! | `host-only` | none | linear | LevelDB |
//! | `pcp` | none; more tables in a job | pipelined | Zhang et al., IPDPS 2014 |
//! | `co-kv` | half and half | linear | Sun et al., Co-KV |
//! | `tstore` | by each side's measured time | linear | Sun et al., TStore |
//! | `dstore` | by each side's free resources | linear | Sun et al., DStore |
//! | `copro` | half and half | pipelined | Sun et al., CoPro |
//! | `copro-plus` | half and half | decided by the share of large values | CoPro+ |
//! | `automatic` | by what was measured, or none | decided | the default |

use crate::mode::{DecisionRules, ModeRule};
use situ_compaction::RunMode;
use std::time::Duration;

/// The division of the tasks of a job between the host's processor and the other units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Split {
    /// All on the host's processor.
    HostOnly,
    /// A fixed share of the bytes for the other units.
    Static {
        /// Percent of a job's input bytes that go to other units, 0 to 100.
        elsewhere_percent: u8,
    },
    /// By the throughput of each side, for tasks of this class, as measured.
    ByTime,
    /// By what each side has free: processors, memory, bandwidth.
    ByResources,
    /// By what was measured, and only where a split job is done sooner than the better side alone would be.
    #[default]
    Automatic,
}

impl Split {
    /// Returns true if units other than the host's processor get tasks.
    pub fn uses_others(self) -> bool {
        !matches!(self, Split::HostOnly | Split::Static { elsewhere_percent: 0 })
    }
}

/// The division of jobs, and the modes of their runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The division of jobs.
    pub split: Split,
    /// The mode rule of the host's processor.
    pub host: ModeRule,
    /// The mode rule that other units are asked to follow.
    pub elsewhere: ModeRule,
    /// The number of tables of the upper level that a job of a deeper level begins with, if the level has them; 1 at
    /// least. More tables fill a pipeline better, and cost write amplification.
    pub tables_per_job: usize,
}

/// PCP's jobs begin with this many tables.
const PCP_TABLES_PER_JOB: usize = 4;
/// CoPro+ calls a value large from here on, on the host.
const COPRO_HOST_LARGE_VALUE_BYTES: u64 = 32 << 10;
/// CoPro+ calls a value large from here on, on a device.
const COPRO_DEVICE_LARGE_VALUE_BYTES: u64 = 16 << 10;

impl Policy {
    /// The names of all policies, the default last.
    pub const NAMES: [&str; 8] = ["host-only", "pcp", "co-kv", "tstore", "dstore", "copro", "copro-plus", "automatic"];

    /// Returns the name of the policy; `custom` if it is none of the [named](Policy::NAMES) ones.
    pub fn name(&self) -> &'static str {
        Policy::NAMES.into_iter().find(|name| Policy::named(name).as_ref() == Some(self)).unwrap_or("custom")
    }

    /// Returns the policy of a name.
    pub fn named(name: &str) -> Option<Policy> {
        const HALF: Split = Split::Static { elsewhere_percent: 50 };
        let (linear, pipelined) = (ModeRule::Fixed(RunMode::Linear), ModeRule::Fixed(RunMode::PIPELINED));
        let fixed = |split, mode: ModeRule| Policy { split, host: mode.clone(), elsewhere: mode, tables_per_job: 1 };
        Some(match name {
            "host-only" => fixed(Split::HostOnly, linear),
            "pcp" => Policy { tables_per_job: PCP_TABLES_PER_JOB, ..fixed(Split::HostOnly, pipelined) },
            "co-kv" => fixed(HALF, linear),
            "tstore" => fixed(Split::ByTime, linear),
            "dstore" => fixed(Split::ByResources, linear),
            "copro" => fixed(HALF, pipelined),
            "copro-plus" => Policy {
                split: HALF,
                host: ModeRule::Decided(DecisionRules::copro_plus(COPRO_HOST_LARGE_VALUE_BYTES)),
                elsewhere: ModeRule::Decided(DecisionRules::copro_plus(COPRO_DEVICE_LARGE_VALUE_BYTES)),
                tables_per_job: 1,
            },
            "automatic" => Policy::default(),
            _ => return None,
        })
    }
}

/// The rules of the policy that decides by itself: busy processors and large values turn pipelines off, and so do reads
/// that suffer.
///
/// A pipelined run does the work of a linear one on about one processor more. So a pipeline pays while a processor is
/// free for part of the time, and takes from others when none is. With half of the memory in use, pipelines are on
/// below these shares of busy processors:
///
/// | large values | goes off at | comes back below | processors free then, of 2 / 4 / 8 |
/// |---|---|---|---|
/// | none | 95% | 85% | 0.3 / 0.6 / 1.2 |
/// | half | 82% | 72% | 0.55 / 1.1 / 2.2 |
/// | all | 70% | 60% | 0.8 / 1.6 / 3.2 |
///
/// * **Processors** weigh 1: alone they reach the threshold only where all are in use.
/// * **Memory** weighs little. The buffers of a pipeline are bounded at a few MiB, so memory only moves the border by
///   some percent.
/// * **Large values** gain less for each processor than small ones (CoPro, figure 7), but still gain. So they need more
///   that is free, and alone turn nothing off.
///
/// The processors' share has the store's own runs in it. The distance between off and on covers what one run adds on a
/// machine of several processors. `situ bench calibrate` is to replace these figures by measured ones.
fn automatic() -> DecisionRules {
    DecisionRules {
        cpu_weight: 1.0,
        memory_weight: 0.1,
        large_value_weight: 0.25,
        large_value_bytes: COPRO_HOST_LARGE_VALUE_BYTES,
        further_weights: Vec::new(),
        threshold: 1.0,
        hysteresis: 0.1,
        dwell_min: Duration::from_secs(5),
        read_p99_factor_max: Some(1.1),
        merge_threads: 1,
    }
}

impl Default for Policy {
    fn default() -> Policy {
        let decided = ModeRule::Decided(automatic());
        Policy { split: Split::Automatic, host: decided.clone(), elsewhere: decided, tables_per_job: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_policy_of_its_own_and_the_last_is_the_default() {
        let policies: Vec<Policy> = Policy::NAMES.iter().filter_map(|name| Policy::named(name)).collect();
        assert_eq!(policies.len(), Policy::NAMES.len());
        for (at, policy) in policies.iter().enumerate() {
            assert!(policies[..at].iter().all(|other| other != policy), "{}", Policy::NAMES[at]);
        }
        assert_eq!(policies.last(), Some(&Policy::default()));
        assert_eq!(Policy::named("copro+"), None);
        assert_eq!((policies[2].name(), Policy::default().name()), ("co-kv", "automatic"));
        assert_eq!(Policy { tables_per_job: 9, ..Policy::default() }.name(), "custom");
    }
}
