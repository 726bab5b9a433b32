//! The host's side of a merge that a device has done: whole blocks into tables.
//!
//! 1. The device gives blocks as they will be in the files, with a report of each.
//! 2. Cuts, index, filter, properties, sync and checks stay here, by the code of every run: [`Outputs`].
//! 3. Where a table ends within a block, the blocks behind it are others. The source begins again with the entry before
//!    which the table ended.
//!
//! The files are those of [`run()`](crate::run()), byte for byte.
//!
//! **Threads**: the caller's. **Failure**: an error ends the run; files begun by then are the caller's to remove.

use crate::error::{Result, TaskError};
use crate::meters::Meters;
use crate::mode::Stages;
use crate::output::{NeverWarm, OnThisThread, Outputs, Walked};
use crate::stream::Sink;
use crate::task::{Task, TaskHost, TaskOutput, TaskStats};
use situ_base::Clock;
use situ_storage::Error;
use situ_table::range_del::FragmentedTombstones;
use situ_table::{BuiltBlock, LoneBlock};
use std::sync::Arc;

/// The kept entries of a task as blocks, in order.
pub trait BlockSource {
    /// Returns the next block; `None` behind the last one.
    ///
    /// # Errors
    /// The device's.
    fn next(&mut self) -> Result<Option<BuiltBlock<'_>>>;

    /// Makes the next block begin with kept entry `entry`: a table ends before it.
    ///
    /// # Errors
    /// The device's.
    fn resume_at(&mut self, entry: u64) -> Result<()>;

    /// Returns what was done with the entries of the task. Bytes do not count.
    fn stats(&self) -> TaskStats;
}

/// Writes the blocks of a source into tables. The task has neither a filter nor range tombstones, and its host has no
/// value log. The stages have the time that writing took.
///
/// # Errors
/// See [`TaskError`]. [`Wrong`](TaskError::Wrong) if the source contradicts itself.
pub fn write_blocks(
    task: &Task,
    host: &dyn TaskHost,
    source: &mut dyn BlockSource,
    clock: &Arc<dyn Clock>,
) -> (Result<TaskOutput>, Stages) {
    let meters = Meters::new(Arc::clone(clock));
    let result = write(task, host, source, &meters);
    let mut stages = meters.stages();
    stages.write.bytes = result.as_ref().map_or(0, |output| output.stats.bytes_written);
    (result, stages)
}

fn write(task: &Task, host: &dyn TaskHost, source: &mut dyn BlockSource, meters: &Meters) -> Result<TaskOutput> {
    let rules = &task.rules;
    let has_tombstones = task.tables().any(|input| input.range_deletions > 0);
    if rules.filter.is_some() || has_tombstones || host.value_handles().is_some() {
        return Err(Error::Invalid(format!("{task:?} needs more than blocks")).into());
    }
    let tombstones = FragmentedTombstones::default();
    let blocks = OnThisThread::new(host, rules, Some(meters));
    let mut outputs = Outputs::new(host, rules, &tombstones, blocks, Some(meters));
    let mut taken: u64 = 0;
    while let Some(block) = source.next()? {
        outputs.tick()?;
        if outputs.block(&block)? {
            taken += block.entries;
            continue;
        }
        let mut entries = LoneBlock::decode(block.stored, format!("the block at entry {taken}"))?;
        match outputs.walk(&mut entries)? {
            Walked::All(entries) if entries == block.entries => taken += entries,
            Walked::EndedBefore(entries) if entries < block.entries => {
                taken += entries;
                source.resume_at(taken)?;
            }
            walked => {
                let reported = block.entries;
                return Err(TaskError::Wrong(format!(
                    "the block at entry {taken} has not {reported} entries: {walked:?}"
                )));
            }
        }
    }
    let mut stats = source.stats();
    if taken != stats.entries_out {
        return Err(TaskError::Wrong(format!("blocks of {taken} entries, {} were kept", stats.entries_out)));
    }
    stats.bytes_read = task.input_bytes();
    outputs.finish(&NeverWarm, stats)
}
