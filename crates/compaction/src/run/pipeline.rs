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
//!    [`kept`](super::kept).
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
use super::kept::{self, KeptLanes};
use super::read::{ReadAhead, read_ahead};
use super::sub_ranges::sub_ranges;
use super::write::{WRITERS, WriteQueue, write};
use crate::error::{Result, TaskError};
use crate::meters::{Meters, add};
use crate::mode::RunMode;
use crate::report::RunReport;
use crate::span::KeyRange;
use crate::task::{Task, TaskHost, TaskOutput};
use situ_base::{Env, Event, JobHandle, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// The state that all threads of a run share.
pub(super) struct Shared {
    pub(super) task: Arc<Task>,
    pub(super) host: Arc<dyn TaskHost>,
    pub(super) prepared: Prepared,
    pub(super) sub_ranges: Vec<KeyRange>,
    pub(super) merge_threads: usize,
    pub(super) sizes: Sizes,
    pub(super) meters: Meters,
    pub(super) pieces: ReadAhead,
    pub(super) kept: KeptLanes,
    pub(super) queue: WriteQueue,
    /// The reader waits here.
    pub(super) to_reader: Arc<dyn Event>,
    /// All merge threads wait here.
    pub(super) to_merge: Arc<dyn Event>,
    /// Writers wait here.
    pub(super) to_writer: Arc<dyn Event>,
    failure: Mutex<Option<TaskError>>,
    halted: AtomicBool,
    /// The sum of the merge threads' lifetimes, in nanoseconds.
    merge_lives: AtomicU64,
}

impl Shared {
    fn new(
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
            task: Arc::clone(task),
            host: Arc::clone(host),
            prepared,
            sub_ranges,
            merge_threads,
            sizes: sizes.clone(),
            meters,
            to_reader: env.executor.event(),
            to_merge: env.executor.event(),
            to_writer: env.executor.event(),
            failure: Mutex::default(),
            halted: AtomicBool::new(false),
            merge_lives: AtomicU64::new(0),
        }
    }

    /// Ends the run with this error, if it has not ended.
    pub(super) fn fail(&self, error: TaskError) {
        let mut failure = lock(&self.failure);
        if failure.is_some() || self.halted.load(Ordering::SeqCst) {
            return;
        }
        *failure = Some(error);
        drop(failure);
        self.halt();
    }

    fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
        for event in [&self.to_reader, &self.to_merge, &self.to_writer] {
            event.notify();
        }
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

    /// Waits in a merge thread until `ready` has something. Meanwhile, the thread encodes what is to be encoded.
    pub(super) fn wait_in_merge<T>(&self, why: Wait, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
        loop {
            let seen = self.to_merge.generation();
            self.check()?;
            if let Some(it) = ready() {
                return Ok(it);
            }
            if self.queue.encode_one(self)? {
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

    /// Does the work of a thread of the merge stage, and counts how long it took.
    fn in_merge<T>(&self, work: impl FnOnce() -> T) -> T {
        self.meters.time(&self.merge_lives, work)
    }

    /// Does the whole work of a thread; what goes wrong ends the run.
    fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(TaskError::of_panic(&*payload)));
        result.map_err(|error| self.fail(error)).ok()
    }
}

/// The threads of a run, apart from the caller's. When the value is dropped, they have ended.
struct Threads<'a> {
    shared: &'a Shared,
    handles: Vec<Box<dyn JobHandle>>,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.shared.halt();
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
        threads.spawn(shared, env, "compaction read", read_ahead)?;
        for _ in 0..WRITERS {
            threads.spawn(shared, env, "compaction write", write)?;
        }
        let workers = if shared.merge_threads > 1 { shared.merge_threads } else { 0 };
        for _ in 0..workers {
            threads.spawn(shared, env, "compaction merge", |shared| shared.in_merge(|| kept::work(shared)))?;
        }
        Some(threads)
    }

    fn spawn(&mut self, shared: &Arc<Shared>, env: &Env, name: &str, work: Work) -> Option<()> {
        let shared = Arc::clone(shared);
        let job = move || {
            shared.guard(|| work(&shared));
        };
        self.handles.push(env.executor.spawn(name, Box::new(job)).ok()?);
        Some(())
    }
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
    let output = shared.guard(|| shared.in_merge(|| kept::build(&shared)));
    drop(threads);
    let merge = &shared.meters.merge;
    merge.add_thread(Duration::from_nanos(shared.merge_lives.load(Ordering::SeqCst)), merge.waited());
    let mode = RunMode::Pipelined { merge_threads: shared.merge_threads as u32 };
    let ran = RunReport { mode, stages: shared.meters.stages() };
    let result = match (lock(&shared.failure).take(), output) {
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
