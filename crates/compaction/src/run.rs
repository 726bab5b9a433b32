//! Running a task: the reference merge, and the same bytes in other ways.
//!
//! A linear run has one thread:
//!
//! 1. Each run becomes one source: its tables one after the other, from the first entry in the task's range to the
//!    last, read past the block cache in large pieces. One table of a run is open at a time.
//! 2. The sources are merged, the stream of versions is thinned out, what is left is cut into tables.
//!
//! [`run`] does that, and defines what is right. [`run_with`] also measures, and can give each stage threads of its
//! own: [`pipeline`].
//!
//! **Same task, same bytes**: nothing here asks for the time, for randomness, or for an order that a hash decides, but
//! to measure. File numbers come from the host and are not in the files.
//!
//! **Threads**: a linear run has the caller's, which it may block for as long as the volume and [`TaskHost::pace`] do.
//! No lock is held.
//!
//! **Failure**: an error ends the run; files begun by then are the caller's to remove. Every block's checksum is
//! verified, whatever the reader's options are. A table whose keys are not those that the version says is corruption.

use crate::dropped::ValueHandles;
use crate::error::{Result, TaskError};
use crate::filter::FilterContext;
use crate::merge::{Merge, Source};
use crate::meters::Meters;
use crate::mode::RunMode;
use crate::output::{OnThisThread, Outputs};
use crate::report::RunReport;
use crate::span::{KeyRange, KeySpan, shared_prefix_bytes};
use crate::stream::{Rules, drive};
use crate::task::{MergeRules, Run, TableInput, Task, TaskHost, TaskOutput, TaskStats};
use situ_base::Env;
use situ_storage::Error;
use situ_table::range_del::{FragmentedTombstones, RangeTombstone};
use situ_table::{KeyRef, ReadMeter, Table, TableCursor, Trailer, WarmBytes};
use std::borrow::Borrow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

mod built;
mod control;
mod kept;
mod lane;
mod merging;
mod pipeline;
mod read;
mod shared;
mod sub_ranges;
mod write;

pub use built::{BlockSource, write_blocks};
pub(crate) use control::Sizes;
use pipeline::run_pipelined;

/// Inputs are read in pieces of this size: two or three of a disk's largest transfers, and little compared with the
/// memory of an output table.
const READ_BYTES: usize = 512 << 10;

/// Runs a task on the calling thread. The bytes of this run are the right ones.
///
/// # Errors
/// See [`TaskError`](crate::TaskError).
pub fn run(task: &Task, host: &dyn TaskHost) -> Result<TaskOutput> {
    run_here(task, host, None)
}

/// Runs a task in this mode, and says how. The bytes are those of [`run`].
///
/// A linear run has the calling thread. A pipelined run has threads of the environment's executor, too; all of them
/// have ended when the call returns. The run has fewer merge threads if the executor has no threads left, or if the
/// task is too small for all of them; the answer has the number. A panic of the filter, of the host or of the merge is
/// an error of the run.
///
/// # Errors
/// Within the answer: see [`TaskError`](crate::TaskError).
pub fn run_with(
    task: &Arc<Task>,
    host: &Arc<dyn TaskHost>,
    mode: RunMode,
    env: &Env,
) -> (Result<TaskOutput>, RunReport) {
    run_sized(task, host, mode, env, &Sizes::default())
}

/// As [`run_with`], with other bounds of buffers.
pub(crate) fn run_sized(
    task: &Arc<Task>,
    host: &Arc<dyn TaskHost>,
    mode: RunMode,
    env: &Env,
    sizes: &Sizes,
) -> (Result<TaskOutput>, RunReport) {
    let pipelined = match mode {
        RunMode::Linear => None,
        RunMode::Pipelined { merge_threads } => run_pipelined(task, host, merge_threads, env, sizes),
    };
    match pipelined {
        Some((result, ran, _)) => (result, ran),
        None => run_linear(task, &**host, env),
    }
}

/// Runs a task on the calling thread, and measures its stages.
fn run_linear(task: &Task, host: &dyn TaskHost, env: &Env) -> (Result<TaskOutput>, RunReport) {
    let meters = Meters::new(Arc::clone(&env.clock));
    let reads = Arc::new(ReadMeter::new(Arc::clone(&env.clock)));
    let began = meters.now();
    let result = catch_unwind(AssertUnwindSafe(|| run_here(task, host, Some((&meters, &reads)))))
        .unwrap_or_else(|payload| Err(TaskError::of_panic(&*payload)));
    let lived = meters.now().saturating_sub(began);
    let mut stages = meters.stages();
    (stages.read.busy, stages.read.bytes) = (reads.time(), reads.stored_bytes());
    stages.write.bytes = result.as_ref().map_or(0, |output| output.stats.bytes_written);
    stages.merge.bytes = reads.plain_bytes();
    let elsewhere = stages.read.busy + stages.write.busy + stages.merge.blocked;
    stages.merge.busy = lived.saturating_sub(elsewhere);
    (result, RunReport { mode: RunMode::Linear, stages })
}

/// Runs a task on the calling thread. Measures the run if `meters` has meters.
fn run_here(task: &Task, host: &dyn TaskHost, meters: Option<(&Meters, &Arc<ReadMeter>)>) -> Result<TaskOutput> {
    let reads = meters.map(|(_, reads)| reads);
    let prepare = || Prepared::new(task, host);
    let prepared = reads.map_or_else(prepare, |reads| reads.time_of(prepare))?;
    let mut sources = Vec::with_capacity(task.inputs.len());
    for run in &task.inputs {
        let inside = run.iter().filter(|input| task.rules.range.overlaps(&input.span)).collect();
        sources.push(RunSource::new(inside, &task.rules.range, reads)?);
    }
    let mut output = merge_into(sources, &prepared, &task.rules, host, meters.map(|(meters, _)| meters))?;
    output.stats.bytes_read = task.input_bytes();
    Ok(output)
}

/// Merges any sorted sources into tables by the same rules: [`run`] does, and the flush of a memtable can.
///
/// The sources stand on their first entry in the rules' range, newest source first, and end with the range;
/// `tombstones` may reach beyond it. All keys must share their first `shared_prefix_bytes` bytes (0 is always right).
/// `bytes_read` of the result is 0.
///
/// # Errors
/// See [`TaskError`](crate::TaskError).
pub fn merge_sources<S: Source, T: Borrow<RangeTombstone>>(
    sources: Vec<S>,
    tombstones: &[T],
    shared_prefix_bytes: usize,
    rules: &MergeRules,
    host: &dyn TaskHost,
) -> Result<TaskOutput> {
    let prepared = Prepared::of(tombstones, shared_prefix_bytes, rules, host);
    merge_into(sources, &prepared, rules, host, None)
}

fn merge_into<S: Source>(
    sources: Vec<S>,
    prepared: &Prepared,
    rules: &MergeRules,
    host: &dyn TaskHost,
    meters: Option<&Meters>,
) -> Result<TaskOutput> {
    let blocks = OnThisThread::new(host, rules, meters);
    let mut stats = prepared.stats();
    let mut outputs = Outputs::new(host, rules, &prepared.retained, blocks, meters);
    let mut merge = Merge::new(sources, prepared.shared_prefix_bytes);
    drive(&mut merge, &prepared.rules(rules), &mut outputs, &mut stats)?;
    outputs.finish(&merge, stats)
}

/// The known facts about a task before its first entry is read.
struct Prepared {
    /// The range tombstones of the inputs, fragmented.
    tombstones: FragmentedTombstones,
    /// Those of them that the outputs will hold.
    retained: FragmentedTombstones,
    range_tombstones_in: u64,
    shared_prefix_bytes: usize,
    /// Reads value handles for the filter, if there is one.
    handles: Option<Arc<dyn ValueHandles>>,
}

impl Prepared {
    /// Opens all inputs that reach into the task's range.
    fn new(task: &Task, host: &dyn TaskHost) -> Result<Prepared> {
        let ascends = |run: &Run| run.is_sorted_by(|a, b| a.span.end <= b.span.begin);
        assert!(task.inputs.iter().all(ascends), "the tables of a run overlap: {:?}", task.inputs);
        let mut tombstones = Vec::new();
        for input in task.tables().filter(|input| task.rules.range.overlaps(&input.span)) {
            let table = input.open()?;
            check_span(input, &table)?;
            tombstones.extend_from_slice(table.range_tombstones());
        }
        Ok(Prepared::of(&tombstones, shared_prefix(task), &task.rules, host))
    }

    fn of<T: Borrow<RangeTombstone>>(
        tombstones: &[T],
        shared_prefix_bytes: usize,
        rules: &MergeRules,
        host: &dyn TaskHost,
    ) -> Prepared {
        assert!(rules.snapshots.is_sorted(), "the snapshots of a task ascend");
        // A span that is missed would bring deleted data back.
        let ascends = |spans: &Vec<KeySpan>| spans.is_sorted_by(|a, b| a.end <= b.begin);
        assert!(rules.below.iter().all(ascends), "the spans of a level below are out of order");
        let (lower, upper) = (rules.range.lower.as_deref(), rules.range.upper.as_deref());
        let in_range: Vec<&RangeTombstone> = tombstones
            .iter()
            .map(Borrow::borrow)
            .filter(|t| lower.is_none_or(|lower| lower < t.end.as_slice()))
            .filter(|t| upper.is_none_or(|upper| t.begin.as_slice() < upper))
            .collect();
        let tombstones = FragmentedTombstones::new(&in_range, &rules.snapshots).clip(lower, upper);
        let retained = Rules::retained(&tombstones, &rules.snapshots, &rules.below);
        let handles = rules.filter.as_ref().and_then(|_| host.value_handles());
        Prepared { tombstones, retained, range_tombstones_in: in_range.len() as u64, shared_prefix_bytes, handles }
    }

    /// The sums that a run begins with.
    fn stats(&self) -> TaskStats {
        TaskStats { range_tombstones_in: self.range_tombstones_in, ..TaskStats::default() }
    }

    /// Returns the rules that decide over entries.
    fn rules<'a>(&'a self, rules: &'a MergeRules) -> Rules<'a> {
        Rules {
            snapshots: &rules.snapshots,
            below: &rules.below,
            tombstones: &self.tombstones,
            retained: &self.retained,
            filter: rules.filter.as_ref().map(|filter| {
                (&*filter.code, FilterContext::new(rules.now_unix, rules.output_level, &filter.parameters))
            }),
            handles: self.handles.as_deref(),
        }
    }
}

/// Returns the number of leading bytes that all keys of the task have in common.
fn shared_prefix(task: &Task) -> usize {
    let begin = task.tables().map(|input| input.span.begin.as_slice()).min();
    let end = task.tables().map(|input| input.span.end.as_slice()).max();
    match (begin, end) {
        (Some(begin), Some(end)) => {
            let begin = task.rules.range.lower.as_deref().map_or(begin, |lower| lower.max(begin));
            let end = task.rules.range.upper.as_deref().map_or(end, |upper| upper.min(end));
            shared_prefix_bytes(begin, end)
        }
        _ => 0,
    }
}

/// Checks that the table's own span lies within the span that the version gives it. Keys outside would be lost by cuts,
/// and would come out of order.
fn check_span(input: &TableInput, table: &Table) -> Result<()> {
    let properties = table.properties();
    for key in [properties.smallest_key(), properties.largest_key()].into_iter().flatten() {
        if !input.span.contains(key.user) {
            let expected = format!("keys in {:?}", input.span);
            return Err(Error::corruption(table.path(), 0, "properties", expected, format!("{key:?}")).into());
        }
    }
    Ok(())
}

/// The part of a run that lies in a range, as one source.
struct RunSource<'a> {
    /// Tables that are not begun.
    waiting: std::vec::IntoIter<&'a TableInput>,
    range: &'a KeyRange,
    current: Option<(Arc<Table>, TableCursor)>,
    /// The upper bound, if the current table reaches over it.
    upper: Option<&'a [u8]>,
    /// The bytes read of warm blocks of the tables before the current one.
    warm_before: WarmBytes,
    /// Counts the bytes that are read; `None` if the run is not measured.
    meter: Option<&'a Arc<ReadMeter>>,
}

impl<'a> RunSource<'a> {
    fn new(
        tables: Vec<&'a TableInput>,
        range: &'a KeyRange,
        meter: Option<&'a Arc<ReadMeter>>,
    ) -> Result<RunSource<'a>> {
        let mut source = RunSource {
            waiting: tables.into_iter(),
            range,
            current: None,
            upper: None,
            warm_before: WarmBytes::default(),
            meter,
        };
        source.begin_next_table()?;
        Ok(source)
    }

    /// To the first entry in range of the next table that has one.
    fn begin_next_table(&mut self) -> situ_storage::Result<()> {
        loop {
            self.warm_before = self.warm_read();
            self.current = None;
            let Some(input) = self.waiting.next() else { return Ok(()) };
            let table = self.meter.map_or_else(|| input.open(), |meter| meter.time_of(|| input.open()))?;
            let mut cursor = table.sequential_cursor(READ_BYTES);
            if let Some(meter) = self.meter {
                cursor.set_meter(Arc::clone(meter));
            }
            match self.range.lower.as_deref().filter(|lower| *lower > input.span.begin.as_slice()) {
                Some(lower) => cursor.seek(KeyRef::new(lower, Trailer::NEWEST))?,
                None => cursor.first()?,
            }
            self.upper = self.range.upper.as_deref().filter(|upper| *upper < input.span.end.as_slice());
            if cursor.valid() && self.upper.is_none_or(|upper| cursor.key().user < upper) {
                if cursor.key().user < input.span.begin.as_slice() {
                    let expected = format!("keys in {:?}", input.span);
                    let found = format!("{:?}", cursor.key());
                    return Err(Error::corruption(table.path(), 0, "first data block", expected, found));
                }
                self.current = Some((table, cursor));
                return Ok(());
            }
        }
    }
}

impl Source for RunSource<'_> {
    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        match &self.current {
            Some((_, cursor)) => cursor.key(),
            None => KeyRef::new(&[], Trailer::OLDEST),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match &self.current {
            Some((_, cursor)) => cursor.value(),
            None => &[],
        }
    }

    #[inline]
    fn next(&mut self) -> situ_storage::Result<()> {
        let Some((_, cursor)) = &mut self.current else { return Ok(()) };
        cursor.next()?;
        if cursor.valid() && self.upper.is_none_or(|upper| cursor.key().user < upper) {
            return Ok(());
        }
        self.begin_next_table()
    }

    fn warm_read(&self) -> WarmBytes {
        let here = self.current.as_ref().map(|(_, cursor)| cursor.warm_read());
        self.warm_before + here.unwrap_or_default()
    }

    fn file(&self) -> String {
        self.current.as_ref().map_or(String::new(), |(table, _)| table.path().to_owned())
    }
}

#[cfg(test)]
mod tests;
