//! The report of a run.

use crate::mode::{RunMode, Stages};

/// The report of a run: how it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunReport {
    /// The mode of the run.
    pub mode: RunMode,
    /// The times and bytes of each stage.
    pub stages: Stages,
}
