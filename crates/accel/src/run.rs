//! A compaction task on a device: the host's side, from tables to tables.
//!
//! 1. [`Prepared`] finds the blocks. [`Passes`] chooses an order of merges if there are more runs than ways.
//! 2. Each pass: the blocks are read into the device's memory, the device runs the task, all checksums of the answer
//!    are checked. The output of a pass before the last stays in memory, as a way of a later pass.
//! 3. The last pass is asked for the blocks of one file at a time, and a little more: where files end is the host's
//!    business. [`write_blocks`] writes them. Where a file ends within a block, the device runs the same blocks once
//!    more and writes from that entry on.
//!
//! **Threads**: the caller's, which waits for the device and for files. Several lanes on several threads overlap
//! transfers, computing and writing.
//! **Failure**: whatever the device does wrong is an error of the task, with the device's name. The scheduler has the
//! processor do the task again.
//! **Memory**: the input blocks and the answer of a pass, in the device's memory of the host; the output of passes
//! before the last.

use crate::abi::*;
use crate::answer::Answer;
use crate::device::{Device, DeviceError};
use crate::passes::Passes;
use crate::prepare::{NotPrepared, Prepared};
use crate::task::{DeviceTask, Malformed};
use situ_base::Clock;
use situ_compaction::{
    BlockSource, Result, RunMode, RunReport, Task, TaskError, TaskHost, TaskOutput, TaskStats, write_blocks,
};
use situ_storage::Error;
use situ_table::BuiltBlock;
use std::sync::Arc;
use std::time::Duration;

/// The part of a file by which the device is asked for more than the file is expected to have, in eighths.
const WINDOW_EIGHTHS: u64 = 9;
/// And at least by this.
const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// Runs a task on a device with this number of ways, and says how. The files are those of
/// [`run`](situ_compaction::run).
///
/// # Errors
/// Within the answer: see [`TaskError`](situ_compaction::TaskError). [`Unit`](TaskError::Unit) is the device's.
pub fn run_on_device(
    device: &mut dyn Device,
    name: &str,
    ways_max: u32,
    task: &Task,
    host: &dyn TaskHost,
    clock: &Arc<dyn Clock>,
) -> (Result<TaskOutput>, RunReport) {
    let mut run = Run { device, name, host, clock, read: Duration::ZERO, computed: Duration::ZERO };
    let mut report = RunReport { mode: RunMode::Linear, ..RunReport::default() };
    let (result, bytes) = match run.first_passes(task, ways_max as usize) {
        Err(error) => (Err(error), 0),
        Ok((prepared, sums)) => {
            let bytes = prepared.data_bytes();
            match Source::begin(&mut run, prepared, task.rules.output.target_file_bytes, sums) {
                Err(error) => (Err(error), bytes),
                Ok(mut source) => {
                    let (result, stages) = write_blocks(task, host, &mut source, clock);
                    report.stages = stages;
                    (result, bytes)
                }
            }
        }
    };
    (report.stages.read.busy, report.stages.read.bytes) = (run.read, bytes);
    // The thread sleeps while the device computes.
    (report.stages.merge.blocked, report.stages.merge.bytes) = (run.computed, bytes);
    (result, report)
}

/// A task on its way through a device.
struct Run<'a> {
    device: &'a mut dyn Device,
    name: &'a str,
    host: &'a dyn TaskHost,
    clock: &'a Arc<dyn Clock>,
    read: Duration,
    computed: Duration,
}

impl Run<'_> {
    fn fault(&self, reason: impl std::fmt::Display) -> TaskError {
        TaskError::Unit { unit: self.name.to_owned(), reason: reason.to_string() }
    }

    fn prepared<T>(&self, result: std::result::Result<T, NotPrepared>) -> Result<T> {
        result.map_err(|error| match error {
            NotPrepared::Table(error) => error.into(),
            NotPrepared::Unsuited(why) => self.fault(why),
        })
    }

    /// Merges ways until the device has enough for the rest. Returns the rest, and the sums of these passes.
    fn first_passes(&mut self, task: &Task, ways_max: usize) -> Result<(Prepared, TaskStats)> {
        let mut prepared = self.prepared(Prepared::new(task))?;
        let passes = Passes::of(&prepared.runs(), ways_max);
        let mut sums = TaskStats::default();
        prepared.chain(&passes.chains);
        for ways in &passes.first {
            if self.host.cancelled() {
                return Err(TaskError::Cancelled);
            }
            let pass = prepared.take_ways(ways);
            let pass = self.stage(pass)?;
            let answer = self.compute(&pass)?;
            let blocks = self.device.answer().data;
            (0..answer.reports.len()).try_for_each(|i| self.checked(&answer, i))?;
            let mut data = Vec::new();
            if data.try_reserve_exact(blocks.len()).is_err() {
                return Err(Error::out_of_memory(blocks.len(), "the output of a pass of a compaction").into());
            }
            data.extend_from_slice(blocks);
            sums.entries_in += answer.header.dropped_hidden;
            sums.dropped_hidden += answer.header.dropped_hidden;
            prepared.add_merged(&answer, data);
        }
        Ok((prepared, sums))
    }

    /// Reads the blocks of a pass into the device's memory.
    fn stage(&mut self, mut prepared: Prepared) -> Result<DeviceTask> {
        let began = self.clock.now();
        // A data area of 2 GiB fits into memory.
        let staged = self.device.stage(prepared.data_bytes() as usize);
        let loaded = staged.map(|data| prepared.load(data)).map_err(|error| self.fault(error))?;
        self.prepared(loaded)?;
        let task = self.prepared(prepared.finish());
        self.read += self.clock.now().saturating_sub(began);
        task
    }

    /// Runs a pass whose blocks are staged, and checks the answer but its blocks.
    fn compute(&mut self, task: &DeviceTask) -> Result<Answer> {
        let began = self.clock.now();
        let ran = self.device.run(task, &|| self.host.cancelled());
        self.computed += self.clock.now().saturating_sub(began);
        // A task that was given up is not the device's fault: the scheduler knows why.
        ran.map_err(|error| if self.host.cancelled() { TaskError::Cancelled } else { self.fault(error) })?;
        let parts = self.device.answer();
        let answer = Answer::decode_report(parts.report, parts.data.len());
        let sound = answer.and_then(|answer| answer.check_report().map(|()| answer));
        let answer = sound.map_err(|malformed| self.fault(DeviceError::Malformed(malformed)))?;
        check_sums(task, &answer).map_err(|malformed| self.fault(malformed))?;
        Ok(answer)
    }

    /// Checks the checksum of a block that came back.
    fn checked(&self, answer: &Answer, block: usize) -> Result<()> {
        let sound = answer.check_block(block, self.device.answer().data);
        sound.map_err(|malformed| self.fault(DeviceError::Malformed(malformed)))
    }
}

/// The blocks of the last pass, which the device gives file by file.
struct Source<'r, 'd> {
    run: &'r mut Run<'d>,
    task: DeviceTask,
    answer: Answer,
    /// The next block of the answer.
    next: usize,
    /// Of the passes before.
    sums: TaskStats,
}

impl<'r, 'd> Source<'r, 'd> {
    fn begin(run: &'r mut Run<'d>, last: Prepared, file_bytes: u64, sums: TaskStats) -> Result<Source<'r, 'd>> {
        let mut task = run.stage(last)?;
        task.rules.emit_bytes_max = window_bytes(&task, file_bytes);
        let answer = run.compute(&task)?;
        Ok(Source { run, task, answer, next: 0, sums })
    }

    /// Asks for the blocks from kept entry `entry` on.
    fn emit_from(&mut self, entry: u64) -> Result<()> {
        self.task.rules.emit_from = entry;
        let kept = self.answer.header.entries_kept;
        self.answer = self.run.compute(&self.task)?;
        self.next = 0;
        match self.answer.header.entries_kept {
            same if same == kept => Ok(()),
            other => Err(self.run.fault(format!("{other} entries are kept, {kept} were before"))),
        }
    }
}

impl BlockSource for Source<'_, '_> {
    fn next(&mut self) -> Result<Option<BuiltBlock<'_>>> {
        let header = &self.answer.header;
        if self.next == self.answer.reports.len() && header.emitted_to < header.entries_kept {
            self.emit_from(header.emitted_to)?;
        }
        if self.next == self.answer.reports.len() {
            return Ok(None);
        }
        // Here, so that the processor's cache has the block when it is copied.
        self.run.checked(&self.answer, self.next)?;
        self.next += 1;
        Ok(Some(self.answer.built(self.next - 1, self.run.device.answer().data)))
    }

    fn resume_at(&mut self, entry: u64) -> Result<()> {
        self.emit_from(entry)
    }

    fn stats(&self) -> TaskStats {
        let header = &self.answer.header;
        TaskStats {
            entries_in: self.sums.entries_in + header.entries_in,
            entries_out: header.entries_kept,
            dropped_hidden: self.sums.dropped_hidden + header.dropped_hidden,
            dropped_tombstones: header.dropped_tombstones,
            sequences_zeroed: header.sequences_zeroed,
            ..TaskStats::default()
        }
    }
}

/// Returns how many uncompressed bytes a file has, about, and some more.
fn window_bytes(task: &DeviceTask, file_bytes: u64) -> u64 {
    let sum = |of: fn(&InputBlock) -> u32| task.blocks().map(|block| u64::from(of(block))).sum::<u64>();
    let (raw, stored) = (sum(|block| block.raw_bytes), sum(|block| block.stored_bytes).max(1));
    let window = u128::from(file_bytes) * u128::from(raw) / u128::from(stored) * u128::from(WINDOW_EIGHTHS) / 8;
    u64::try_from(window).unwrap_or(u64::MAX).saturating_add(WINDOW_BYTES_MIN)
}

/// Checks that an answer contradicts neither its task nor itself, as far as its sums tell.
fn check_sums(task: &DeviceTask, answer: &Answer) -> std::result::Result<(), Malformed> {
    let header = &answer.header;
    if header.status != STATUS_OK {
        return Err(Malformed(format!(
            "the device refuses the task: {}, at {}",
            status_text(header.status),
            header.detail
        )));
    }
    let dropped = [header.dropped_hidden, header.dropped_tombstones].into_iter().fold(0, u64::saturating_add);
    let mut entry = task.rules.emit_from.min(header.entries_kept);
    let begins_at = entry;
    let mut follows = true;
    for report in &answer.reports {
        follows &= report.first_entry == entry && report.entries > 0;
        entry = entry.saturating_add(u64::from(report.entries));
    }
    let goes_on = entry > begins_at || begins_at == header.entries_kept;
    let adds_up = header.entries_kept.checked_add(dropped) == Some(header.entries_in);
    let in_bounds = header.entries_in <= task.rules.entries_max && entry <= header.entries_kept;
    match follows && goes_on && adds_up && in_bounds && header.emitted_to == entry {
        true => Ok(()),
        false => Err(Malformed(format!("blocks up to entry {entry} contradict {header:?}"))),
    }
}

fn status_text(status: u32) -> &'static str {
    match status {
        STATUS_CHECKSUM => "the checksum of an input block is wrong",
        STATUS_BLOCK => "an input block cannot be decoded",
        STATUS_ORDER => "keys do not ascend",
        STATUS_LIMIT => "a key or a value is too long",
        STATUS_SPACE => "the result memory is too small",
        _ => "an unknown reason",
    }
}
