//! The number of pipelined runs.

use crate::mode::RunMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of pipelined runs that there are now. Clones count the same runs.
#[derive(Debug, Clone, Default)]
pub struct Pipelines(Arc<AtomicUsize>);

impl Pipelines {
    /// Returns the number of pipelined runs that have begun and not ended.
    #[inline]
    pub fn running(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a run until the result is dropped, if its mode is pipelined.
    #[must_use]
    pub fn begin(&self, mode: RunMode) -> Option<PipelineRun> {
        mode.is_pipelined().then(|| {
            self.0.fetch_add(1, Ordering::Relaxed);
            PipelineRun(self.clone())
        })
    }
}

/// A pipelined run that is counted until this is dropped.
#[derive(Debug)]
pub struct PipelineRun(Pipelines);

impl Drop for PipelineRun {
    fn drop(&mut self) {
        let before = self.0.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a run ends once");
    }
}
