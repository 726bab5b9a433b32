//! What a run says of itself.

use crate::decide::DecisionRecord;
use crate::mode::{RunMode, Stages};
use std::sync::Arc;

/// How an attempt ran. A unit that cannot tell leaves the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ran {
    /// The mode of the run.
    pub mode: RunMode,
    /// What each stage did.
    pub stages: Stages,
    /// Why the mode is what it is, if it was decided.
    pub decision: Option<Arc<DecisionRecord>>,
}
