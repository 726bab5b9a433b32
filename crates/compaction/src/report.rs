//! The report of a run.

use crate::mode::{RunMode, Stages};

/// The report of a run: how it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunReport {
    /// The mode of the run.
    pub mode: RunMode,
    /// What each stage did.
    pub stages: Stages,
}
