//! The state of a pipelined run: what its threads share.

use super::Prepared;
use super::control::{Control, Sizes};
use super::kept::KeptLanes;
use super::lane::Lanes;
use super::read::ReadAhead;
use super::write::WriteQueue;
use crate::meters::Meters;
use crate::span::KeyRange;
use crate::task::{Task, TaskHost};
use situ_base::Env;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// See the [module](self).
pub(super) struct Shared {
    pub(super) control: Control,
    pub(super) task: Arc<Task>,
    pub(super) prepared: Prepared,
    pub(super) sub_ranges: Vec<KeyRange>,
    pub(super) merge_threads: usize,
    pub(super) pieces: ReadAhead,
    pub(super) kept: KeptLanes,
    pub(super) queue: WriteQueue,
    /// The sum of the merge threads' lifetimes, in nanoseconds.
    pub(super) merge_lives: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        task: &Arc<Task>,
        host: &Arc<dyn TaskHost>,
        (prepared, sub_ranges): (Prepared, Vec<KeyRange>),
        merge_threads: u32,
        meters: Meters,
        env: &Env,
        sizes: &Sizes,
    ) -> Shared {
        let merge_threads = (merge_threads as usize).clamp(1, sub_ranges.len());
        // What merge threads work on, and one more: it waits for the builder, or for a thread.
        let window = if merge_threads > 1 { merge_threads + 1 } else { 1 };
        Shared {
            pieces: ReadAhead::new(sub_ranges.len(), window, task.inputs.len(), sizes),
            kept: KeptLanes::new(sub_ranges.len(), window),
            queue: WriteQueue::new(task.rules.output.table.compression),
            control: Control::new(host, sizes, meters, env),
            task: Arc::clone(task),
            prepared,
            sub_ranges,
            merge_threads,
            merge_lives: AtomicU64::new(0),
        }
    }

    /// The pieces of all runs and sub-ranges, for the sources of merges.
    pub(super) fn lanes(&self) -> Lanes<'_> {
        Lanes {
            control: &self.control,
            queue: &self.queue,
            pieces: &self.pieces,
            inputs: &self.task.inputs,
            sub_ranges: &self.sub_ranges,
        }
    }

    /// Does the work of a thread of the merge stage, and counts how long it took.
    pub(super) fn in_merge<T>(&self, work: impl FnOnce() -> T) -> T {
        self.control.meters.time(&self.merge_lives, work)
    }
}
