//! The control of a run, which all its threads have.
//!
//! It has the bounds of buffers, the events on which stages wait, and the end of the run.
//!
//! **Failure**: the first error is the run's. It halts the run: each wait ends, and each thread returns at its next
//! step.

use crate::error::{Result, TaskError};
use crate::meters::Meters;
use crate::task::TaskHost;
use situ_base::{Env, Event, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The interval at which a merge thread that waits asks whether the run is cancelled.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// The bounds of a run's buffers.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Most that is read at once; a larger block is read alone.
    pub(crate) piece_bytes: u64,
    /// All pieces of a run, about. With many lanes, pieces are smaller: down to an eighth.
    pub(crate) read_bytes: u64,
    /// The uncompressed bytes that a merge thread works on at a time.
    pub(crate) sub_range_bytes: u64,
    /// The bytes that a worker gives the builder at a time.
    pub(crate) batch_bytes: u64,
    /// Blocks that go to the writer, or to an encoder, at a time.
    pub(crate) chunk_bytes: u64,
    /// Blocks on their way to the writer.
    pub(crate) write_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            piece_bytes: 512 << 10,
            read_bytes: 16 << 20,
            sub_range_bytes: 4 << 20,
            batch_bytes: 128 << 10,
            chunk_bytes: 64 << 10,
            write_bytes: 4 << 20,
        }
    }
}

/// The stage that a stage waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// The stage before it.
    Starved,
    /// The stage behind it.
    Blocked,
}

/// See the [module](self).
pub(super) struct Control {
    pub(super) host: Arc<dyn TaskHost>,
    pub(super) sizes: Sizes,
    pub(super) meters: Meters,
    /// The reader waits here.
    pub(super) to_reader: Arc<dyn Event>,
    /// All merge threads wait here.
    pub(super) to_merge: Arc<dyn Event>,
    /// Writers wait here.
    pub(super) to_writer: Arc<dyn Event>,
    failure: Mutex<Option<TaskError>>,
    halted: AtomicBool,
}

impl Control {
    pub(super) fn new(host: &Arc<dyn TaskHost>, sizes: &Sizes, meters: Meters, env: &Env) -> Control {
        Control {
            host: Arc::clone(host),
            sizes: sizes.clone(),
            meters,
            to_reader: env.executor.event(),
            to_merge: env.executor.event(),
            to_writer: env.executor.event(),
            failure: Mutex::default(),
            halted: AtomicBool::new(false),
        }
    }

    /// Ends the run with this error, if it has not ended.
    fn fail(&self, error: TaskError) {
        let mut failure = lock(&self.failure);
        if failure.is_some() || self.halted.load(Ordering::SeqCst) {
            return;
        }
        *failure = Some(error);
        drop(failure);
        self.halt();
    }

    /// Ends the run.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
        for event in [&self.to_reader, &self.to_merge, &self.to_writer] {
            event.notify();
        }
    }

    /// Takes the error that ended the run.
    pub(super) fn take_failure(&self) -> Option<TaskError> {
        lock(&self.failure).take()
    }

    /// Checks that the run goes on.
    ///
    /// # Errors
    /// The run has ended: with this error, unless it was done.
    pub(super) fn check(&self) -> Result<()> {
        if !self.halted.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(lock(&self.failure).clone().unwrap_or(TaskError::Cancelled))
    }

    /// Waits in a merge thread until `ready` has something. Meanwhile, the thread does what `meanwhile` finds to do.
    pub(super) fn wait_in_merge<T>(
        &self,
        why: Wait,
        mut meanwhile: impl FnMut() -> Result<bool>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        loop {
            let seen = self.to_merge.generation();
            self.check()?;
            if let Some(it) = ready() {
                return Ok(it);
            }
            if meanwhile()? {
                continue;
            }
            let merge = &self.meters.merge;
            let sum = if matches!(why, Wait::Starved) { &merge.starved } else { &merge.blocked };
            let woken = self.meters.time(sum, || self.to_merge.wait(seen, Some(PATIENCE)));
            if !woken && self.host.cancelled() {
                self.fail(TaskError::Cancelled);
            }
        }
    }

    /// Does the whole work of a thread; what goes wrong ends the run.
    pub(super) fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(TaskError::of_panic(&*payload)));
        result.map_err(|error| self.fail(error)).ok()
    }
}
