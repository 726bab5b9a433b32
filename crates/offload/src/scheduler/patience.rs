//! The times for which the scheduler waits for units, and the number of its tries.

use situ_compaction::Task;
use std::time::Duration;

/// The times to wait for units that fail, and the number of tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A task may take this long however small it is. Default 30 s.
    pub least: Duration,
    /// And as long as its input takes at this speed. Default 4 MiB/s.
    pub bytes_per_s_min: u64,
    /// The time for which a unit rests after its first failure. Default 1 s.
    pub rest_min: Duration,
    /// The maximum time for which a unit rests. Default 60 s.
    pub rest_max: Duration,
    /// The time for which a task that is meant for a unit waits while the unit has no room. The bound holds with the
    /// automatic split, and for level 0 with every split. Then any unit takes the task. Default 10 s.
    pub busy_max: Duration,
    /// The number of failures in a row after which a unit is out of service. Default 5.
    pub failures_max: u32,
    /// The number of units other than the reference unit that a task is tried on, 1 at least. Default 1.
    pub tries_elsewhere_max: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            least: Duration::from_secs(30),
            bytes_per_s_min: 4 << 20,
            rest_min: Duration::from_secs(1),
            rest_max: Duration::from_secs(60),
            busy_max: Duration::from_secs(10),
            failures_max: 5,
            tries_elsewhere_max: 1,
        }
    }
}

/// The time that a unit which is out of service may take for the task that it proves itself on, as a multiple of the
/// reference unit's time.
const PROOF_TIMES: u32 = 4;
/// And this much longer.
const PROOF_EXTRA: Duration = Duration::from_secs(1);

impl Patience {
    /// Returns the time that an attempt elsewhere may take.
    pub(crate) fn for_task(&self, task: &Task) -> Duration {
        self.least.saturating_add(Duration::from_secs(task.input_bytes() / self.bytes_per_s_min.max(1)))
    }

    /// Returns the time that a unit which proves itself may still take once the reference unit is done, after `took`.
    pub(crate) fn for_proof(&self, took: Duration) -> Duration {
        took.saturating_mul(PROOF_TIMES).saturating_add(PROOF_EXTRA).min(self.least)
    }

    /// Returns the time for which a unit rests after `failures` failures in a row.
    pub(crate) fn rest_after(&self, failures: u32) -> Duration {
        self.rest_min.saturating_mul(1 << failures.min(16)).min(self.rest_max)
    }
}
