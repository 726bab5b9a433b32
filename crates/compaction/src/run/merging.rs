//! The merge stage: one thread, or workers that merge and thin out while a builder cuts tables.
//!
//! With one merge thread, the caller's thread runs the merge into the tables, as a linear run does. With several:
//!
//! 1. A worker takes the next sub-range, and runs its merge. What is kept goes into *batches*: entries one behind the
//!    other.
//! 2. The builder takes the batches of sub-range 0, then of sub-range 1, and so on. It gives each entry to the tables.
//!
//! **Invariants**: batches of a sub-range that wait for the builder have at most [`Sizes::sub_range_bytes`] bytes, or
//! are one. A worker begins a sub-range in the *window* only: those behind the last one that was built, one more than
//! there are workers. The sums of what was done are the same as in a linear run: each input entry is in one sub-range,
//! and range tombstones are in the builder's sums only.
//!
//! **Warmth.** A batch says how much its merge had read of warm blocks, some times for each output block.
//!
//! **Threads**: a worker for each sub-range, one builder. The lock is held for moving values only.

use super::control::Control;
use super::kept::{Batch, End, KeptEntry, Next};
use super::lane::LaneSource;
use super::shared::Shared;
use super::write::{ToWriter, WriteQueue};
use crate::dropped::{DropReason, DroppedEntry, DroppedSums};
use crate::error::{Result, TaskError};
use crate::merge::{Merge, WarmReader};
use crate::output::Outputs;
use crate::stream::{About, Sink, drive};
use crate::task::{TaskOutput, TaskStats};
use situ_storage::Error as StorageError;
use situ_table::{KeyRef, WarmBytes};

#[cfg(doc)]
use super::control::Sizes;

/// A block that ends between two marks counts only what was read up to the first one. So there are several marks for
/// each block.
const WARM_MARKS_A_BLOCK: usize = 8;

/// Returns what a merge thread needs in order to wait: it encodes blocks meanwhile.
fn waits_of(shared: &Shared) -> (&Control, &WriteQueue) {
    (&shared.control, &shared.queue)
}

/// The sink of a worker's merge.
struct ToBuilder<'a> {
    shared: &'a Shared,
    sub_range: usize,
    batch: Batch,
    dropped: Option<DroppedSums>,
    /// At how many bytes of the batch the inputs are asked for what they read of warm blocks; `None` if there is no
    /// cache to warm.
    warm_at: Option<usize>,
}

impl ToBuilder<'_> {
    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch = self.shared.kept.push(waits_of(self.shared), self.sub_range, batch)?;
        self.warm_at = self.warm_at.map(|_| 0);
        Ok(())
    }

    #[cold]
    fn note_warm(&mut self, inputs: &dyn WarmReader) {
        self.batch.warm.push((self.batch.entries.len(), inputs.warm_read()));
        let block_bytes = self.shared.task.rules.output.table.block_bytes;
        self.warm_at = Some(self.batch.bytes.len() + block_bytes / WARM_MARKS_A_BLOCK);
    }
}

impl Sink for ToBuilder<'_> {
    #[inline]
    fn entry(&mut self, key: KeyRef<'_>, value: &[u8], about: About<'_>) -> Result<()> {
        if self.warm_at.is_some_and(|at| at <= self.batch.bytes.len()) {
            self.note_warm(about.inputs);
        }
        // Tables hold neither longer keys nor longer values: these come from tables, or the builder refuses them.
        let (key_bytes, value_bytes) = (key.user.len() as u32, value.len() as u32);
        let bytes = key.user.len() + value.len();
        if self.batch.bytes.try_reserve(bytes).is_err() {
            return Err(StorageError::out_of_memory(bytes, "an entry that a compaction keeps").into());
        }
        self.batch.bytes.extend_from_slice(key.user);
        self.batch.bytes.extend_from_slice(value);
        let entry = KeptEntry { key_bytes, value_bytes, trailer: key.trailer, new_user_key: about.new_user_key };
        self.batch.entries.push(entry);
        if self.batch.memory_bytes() >= self.shared.control.sizes.batch_bytes { self.flush() } else { Ok(()) }
    }

    #[inline]
    fn dropped(&mut self, entry: &DroppedEntry<'_>, _why: DropReason) -> Result<()> {
        match &mut self.dropped {
            None => Ok(()),
            Some(sums) => sums.add(entry),
        }
    }

    fn tick(&mut self) -> Result<()> {
        self.shared.control.check()?;
        if self.shared.control.host.cancelled() { Err(TaskError::Cancelled) } else { Ok(()) }
    }
}

/// Does the work of a worker.
pub(super) fn work(shared: &Shared) -> Result<()> {
    let warms = shared.control.host.warming().is_some();
    while let Some(sub_range) = shared.kept.begin(waits_of(shared))? {
        let mut merge = merge_of(shared, sub_range)?;
        let dropped = shared.control.host.value_handles().map(DroppedSums::new);
        let warm_at = warms.then_some(0);
        let mut sink = ToBuilder { shared, sub_range, batch: Batch::default(), dropped, warm_at };
        let mut stats = TaskStats::default();
        drive(&mut merge, &shared.prepared.rules(&shared.task.rules), &mut sink, &mut stats)?;
        if !sink.batch.entries.is_empty() {
            sink.flush()?;
        }
        let end = End { stats, dropped: sink.dropped, warm: merge.warm_read() };
        shared.kept.end(&shared.control, sub_range, end);
    }
    Ok(())
}

fn merge_of(shared: &Shared, sub_range: usize) -> Result<Merge<LaneSource<'_>>> {
    let sources = (0..shared.task.inputs.len()).map(|run| LaneSource::new(shared.lanes(), sub_range, run));
    Ok(Merge::new(sources.collect::<situ_storage::Result<Vec<_>>>()?, shared.prepared.shared_prefix_bytes))
}

/// Does the work of the caller's thread: from sources, or from what workers keep, to tables.
pub(super) fn build(shared: &Shared) -> Result<TaskOutput> {
    let rules = &shared.task.rules;
    let blocks = ToWriter::new(&shared.control, &shared.queue, shared.merge_threads == 1)?;
    let mut outputs =
        Outputs::new(&*shared.control.host, rules, &shared.prepared.retained, blocks, Some(&shared.control.meters));
    let mut stats = shared.prepared.stats();
    let mut output = if shared.merge_threads == 1 {
        let mut merge = merge_of(shared, 0)?;
        drive(&mut merge, &shared.prepared.rules(rules), &mut outputs, &mut stats)?;
        outputs.finish(&merge, stats)?
    } else {
        let mut warm = Warmed::default();
        for sub_range in 0..shared.sub_ranges.len() {
            build_sub_range(shared, sub_range, &mut outputs, &mut warm, &mut stats)?;
        }
        outputs.finish(&warm, stats)?
    };
    output.stats.bytes_read = shared.task.input_bytes();
    Ok(output)
}

/// The bytes of warm blocks that merges have read, up to the entry that the builder is at.
#[derive(Default)]
struct Warmed {
    sub_ranges_before: WarmBytes,
    here: WarmBytes,
}

impl WarmReader for Warmed {
    fn warm_read(&self) -> WarmBytes {
        self.sub_ranges_before + self.here
    }
}

fn build_sub_range(
    shared: &Shared,
    sub_range: usize,
    outputs: &mut Outputs<'_, ToWriter<'_>>,
    warm: &mut Warmed,
    stats: &mut TaskStats,
) -> Result<()> {
    loop {
        match shared.kept.take(waits_of(shared), sub_range)? {
            Next::Batch(batch) => {
                outputs.tick()?;
                build_batch(&batch, outputs, warm)?;
                shared.kept.give_back(&shared.control, batch);
            }
            Next::End(End { stats: more, dropped, warm: read }) => {
                stats.add(&more);
                outputs.add_dropped(dropped);
                warm.sub_ranges_before = warm.sub_ranges_before + read;
                warm.here = WarmBytes::default();
                return Ok(());
            }
        }
    }
}

fn build_batch(batch: &Batch, outputs: &mut Outputs<'_, ToWriter<'_>>, warm: &mut Warmed) -> Result<()> {
    let mut rest = batch.bytes.as_slice();
    let mut warm_marks = batch.warm.iter().peekable();
    for (number, entry) in batch.entries.iter().enumerate() {
        if let Some((_, read)) = warm_marks.next_if(|(at, _)| *at == number) {
            warm.here = *read;
        }
        let (key, behind) = rest.split_at(entry.key_bytes as usize);
        let (value, behind) = behind.split_at(entry.value_bytes as usize);
        rest = behind;
        let about = About { new_user_key: entry.new_user_key, inputs: &*warm };
        outputs.entry(KeyRef::new(key, entry.trailer), value, about)?;
    }
    assert!(rest.is_empty(), "{} bytes of a batch belong to no entry", rest.len());
    Ok(())
}
