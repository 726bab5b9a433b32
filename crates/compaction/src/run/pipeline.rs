//! A run whose stages have threads of their own.
//!
//! ```text
//!  reader ──pieces──> lanes ──> merge ──chunks of blocks──> queue ──> writer ──> files
//!                     one for each run of the task
//! ```
//!
//! With several merge threads, the middle is wider. The task's keys are cut into sub-ranges, each of about
//! [`Sizes::sub_range_bytes`]. There is a lane for each run of each sub-range.
//!
//! ```text
//!  reader ──pieces──> lanes ──> worker 0 ──what is kept──┐                   ┌──raw chunks──> any of these threads encodes
//!                           └─> worker 1 ──what is kept──┴──> builder ───────┴──encoded, in order──> writer ──> files
//! ```
//!
//! 1. The caller's thread opens the inputs, and cuts sub-ranges by the index. Then it starts the other threads.
//! 2. The *reader* plans pieces of whole blocks by the index and reads ahead, in the order in which the merge will need
//!    them: [`read`](super::read).
//! 3. One merge thread: the caller's thread decodes, merges, thins out, builds and encodes. Several: workers merge and
//!    thin out sub-ranges, and the caller's thread builds blocks of what they keep, in key order:
//!    [`merging`](super::merging).
//! 4. *Writers* create, append to and finish files. One of them writes while others finish: [`write`](super::write).
//!
//! **Invariants.**
//! * The same bytes as a linear run: all versions of a user key are in one sub-range, so the stream of kept entries is
//!   the same. One builder cuts it by the same rules.
//! * Every buffer between stages is bounded and used again. Where one block or one entry is larger than a bound, there
//!   is one of these at a time.
//! * No deadlock. The reader always reads for a lane that is empty. A merge thread that waits encodes whatever is to be
//!   encoded. A writer waits for nothing but encoded blocks, and for its turn. The host's `pace` holds the builder
//!   only.
//!
//! **Threads**: one reader, [`WRITERS`] writers, and as many workers as there are merge threads if there are several;
//! all from the executor. All have ended when the run returns. Each stage waits on an event of its own.
//!
//! **Failure**: the first error, panic or cancellation is the run's. It halts the run: each wait ends, and each thread
//! returns at its next step. Merge threads that wait ask the host every [`PATIENCE`] whether the run is cancelled. A
//! read that was submitted is not waited for. If the executor has no thread, the run is linear, and says so.
//!
//! Rejected: merge threads that build the blocks of their sub-ranges. Where a block ends depends on all blocks before
//! it. Rejected: two threads that encode, in addition to those that merge. Whether merging or encoding is the longer
//! work depends on the data.

use super::Prepared;
use super::control::Sizes;
use super::merging;
use super::read::{ToRead, read_ahead};
use super::shared::Shared;
use super::sub_ranges::sub_ranges;
use super::write::{WRITERS, write};
use crate::error::{Result, TaskError};
use crate::meters::{Meters, add};
use crate::mode::RunMode;
use crate::report::RunReport;
use crate::span::KeyRange;
use crate::task::{Task, TaskHost, TaskOutput};
use situ_base::{Env, JobHandle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(doc)]
use super::control::PATIENCE;

/// The threads of a run, apart from the caller's. When the value is dropped, they have ended.
struct Threads<'a> {
    shared: &'a Shared,
    handles: Vec<Box<dyn JobHandle>>,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.shared.control.halt();
        for handle in self.handles.drain(..) {
            // What went wrong in the thread is the run's failure already.
            let _ = handle.join();
        }
    }
}

type Work = fn(&Shared) -> Result<()>;

impl<'a> Threads<'a> {
    /// Starts all threads; `None` if the executor has fewer.
    fn start(shared: &'a Arc<Shared>, env: &Env) -> Option<Threads<'a>> {
        let mut threads = Threads { shared, handles: Vec::new() };
        threads.spawn(shared, env, "compaction read", read)?;
        for _ in 0..WRITERS {
            threads.spawn(shared, env, "compaction write", |shared| {
                write(&shared.control, &shared.queue, &shared.task.rules)
            })?;
        }
        let workers = if shared.merge_threads > 1 { shared.merge_threads } else { 0 };
        for _ in 0..workers {
            threads.spawn(shared, env, "compaction merge", |shared| shared.in_merge(|| merging::work(shared)))?;
        }
        Some(threads)
    }

    fn spawn(&mut self, shared: &Arc<Shared>, env: &Env, name: &str, work: Work) -> Option<()> {
        let shared = Arc::clone(shared);
        let job = move || {
            shared.control.guard(|| work(&shared));
        };
        self.handles.push(env.executor.spawn(name, Box::new(job)).ok()?);
        Some(())
    }
}

/// Does the work of the reader.
fn read(shared: &Shared) -> Result<()> {
    read_ahead(&ToRead {
        control: &shared.control,
        pieces: &shared.pieces,
        inputs: &shared.task.inputs,
        sub_ranges: &shared.sub_ranges,
        built: &|| shared.kept.built(),
    })
}

/// Most bytes that a run's buffers had at once, by what they are for. For tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Peaks {
    pub(super) pieces: u64,
    pub(super) kept: u64,
    pub(super) blocks: u64,
}

/// Runs the task in a pipeline. `None` if the executor has no threads for it: nothing has been done then.
///
/// # Errors
/// Within the answer: see [`TaskError`].
pub(super) fn run_pipelined(
    task: &Arc<Task>,
    host: &Arc<dyn TaskHost>,
    merge_threads: u32,
    env: &Env,
    sizes: &Sizes,
) -> Option<(Result<TaskOutput>, RunReport, Peaks)> {
    let meters = Meters::new(Arc::clone(&env.clock));
    let began = meters.now();
    let prepared = catch_unwind(AssertUnwindSafe(|| prepare(task, &**host, merge_threads, sizes)))
        .unwrap_or_else(|payload| Err(TaskError::of_panic(&*payload)));
    add(&meters.read.busy, meters.now().saturating_sub(began));
    let shared = match prepared {
        Ok(prepared) => Arc::new(Shared::new(task, host, prepared, merge_threads, meters, env, sizes)),
        Err(error) => {
            let ran =
                RunReport { mode: RunMode::Pipelined { merge_threads: merge_threads.max(1) }, stages: meters.stages() };
            return Some((Err(error), ran, Peaks::default()));
        }
    };
    let threads = Threads::start(&shared, env)?;
    let output = shared.control.guard(|| shared.in_merge(|| merging::build(&shared)));
    drop(threads);
    let merge = &shared.control.meters.merge;
    merge.add_thread(Duration::from_nanos(shared.merge_lives.load(Ordering::SeqCst)), merge.waited());
    let mode = RunMode::Pipelined { merge_threads: shared.merge_threads as u32 };
    let ran = RunReport { mode, stages: shared.control.meters.stages() };
    let result = match (shared.control.take_failure(), output) {
        (Some(error), _) => Err(error),
        (None, Some(output)) => Ok(output),
        (None, None) => unreachable!("a run without output has failed"),
    };
    let peaks = Peaks { pieces: shared.pieces.peak(), kept: shared.kept.peak(), blocks: shared.queue.peak() };
    Some((result, ran, peaks))
}

/// Opens the inputs, and cuts sub-ranges.
fn prepare(task: &Task, host: &dyn TaskHost, merge_threads: u32, sizes: &Sizes) -> Result<(Prepared, Vec<KeyRange>)> {
    let prepared = Prepared::new(task, host)?;
    if merge_threads > 1 {
        return Ok((prepared, sub_ranges(task, sizes.sub_range_bytes)?));
    }
    Ok((prepared, vec![task.rules.range.clone()]))
}

#[cfg(test)]
mod tests;
