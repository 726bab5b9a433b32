//! The report of an attempt.

use crate::decide::DecisionRecord;
use situ_compaction::{RunMode, RunReport, Stages};
use std::sync::Arc;

/// The report of an attempt: how it ran. A unit that cannot tell leaves the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ran {
    /// The mode of the run.
    pub mode: RunMode,
    /// The times and bytes of each stage.
    pub stages: Stages,
    /// The decision for the mode, if there was one.
    pub decision: Option<Arc<DecisionRecord>>,
}

impl Ran {
    /// Adds a decision to the report of a run.
    pub fn decided(RunReport { mode, stages }: RunReport, decision: Option<Arc<DecisionRecord>>) -> Ran {
        Ran { mode, stages, decision }
    }
}

impl From<RunReport> for Ran {
    fn from(report: RunReport) -> Ran {
        Ran::decided(report, None)
    }
}
