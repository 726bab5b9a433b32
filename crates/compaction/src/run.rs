//! The reference merge: what every unit's output is measured against.
//!
//! 1. Each run becomes one source: its tables one after the other, from the first entry in the task's range to the
//!    last, read past the block cache in large pieces. One table of a run is open at a time.
//! 2. The sources are merged, the stream of versions is thinned out, what is left is cut into tables.
//!
//! **Same task, same bytes**: nothing here asks for the time, for randomness, or for an order that a hash decides.
//! File numbers come from the host and are not in the files.
//!
//! **Threads**: the caller's, which it may block for as long as the volume and [`TaskHost::pace`] do. No lock is held.
//!
//! **Failure**: an error ends the run; files begun by then are the caller's to remove. Every block's checksum is
//! verified, whatever the reader's options are. A table whose keys are not those that the version says is corruption.

use crate::error::Result;
use crate::filter::FilterContext;
use crate::merge::{Merge, Source};
use crate::output::{BlockOutput, OnThisThread, Outputs};
use crate::span::{KeyRange, shared_prefix_bytes};
use crate::stream::{Rules, drive};
use crate::task::{MergeRules, TableInput, Task, TaskHost, TaskOutput, TaskStats};
use situ_storage::Error;
use situ_table::range_del::{FragmentedTombstones, RangeTombstone};
use situ_table::{KeyRef, Table, TableCursor, Trailer, WarmBytes};
use std::borrow::Borrow;
use std::sync::Arc;

/// Inputs are read in pieces of this size: two or three of a disk's largest transfers, and little beside the memory of
/// an output table.
const READ_BYTES: usize = 512 << 10;

/// Runs a task on the calling thread.
///
/// # Errors
/// See [`TaskError`](crate::TaskError).
pub fn run(task: &Task, host: &dyn TaskHost) -> Result<TaskOutput> {
    run_into(task, host, OnThisThread::default())
}

/// As [`run`], with another way of the blocks into their files.
pub(crate) fn run_into<B: BlockOutput>(task: &Task, host: &dyn TaskHost, blocks: B) -> Result<TaskOutput> {
    let range = &task.rules.range;
    let mut sources = Vec::with_capacity(task.inputs.len());
    let mut tombstones = Vec::new();
    for run in &task.inputs {
        let inside: Vec<&TableInput> = run.iter().filter(|input| range.overlaps(&input.span)).collect();
        for input in &inside {
            let table = input.open()?;
            check_span(input, &table)?;
            tombstones.extend_from_slice(table.range_tombstones());
        }
        sources.push(RunSource::new(inside, range)?);
    }
    let mut output = merge_into(sources, &tombstones, shared_prefix(task), &task.rules, host, blocks)?;
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
    merge_into(sources, tombstones, shared_prefix_bytes, rules, host, OnThisThread::default())
}

fn merge_into<S: Source, T: Borrow<RangeTombstone>, B: BlockOutput>(
    sources: Vec<S>,
    tombstones: &[T],
    shared_prefix_bytes: usize,
    rules: &MergeRules,
    host: &dyn TaskHost,
    blocks: B,
) -> Result<TaskOutput> {
    assert!(rules.snapshots.is_sorted(), "the snapshots of a task ascend");
    let (lower, upper) = (rules.range.lower.as_deref(), rules.range.upper.as_deref());
    let in_range: Vec<&RangeTombstone> = tombstones
        .iter()
        .map(Borrow::borrow)
        .filter(|t| lower.is_none_or(|lower| lower < t.end.as_slice()))
        .filter(|t| upper.is_none_or(|upper| t.begin.as_slice() < upper))
        .collect();
    let tombstones = FragmentedTombstones::new(&in_range, &rules.snapshots).clip(lower, upper);
    let retained = Rules::retained(&tombstones, &rules.snapshots, &rules.below);
    let stream_rules = Rules {
        snapshots: &rules.snapshots,
        below: &rules.below,
        tombstones: &tombstones,
        retained: &retained,
        filter: rules
            .filter
            .as_ref()
            .map(|filter| (&*filter.code, FilterContext::new(rules.now_unix, rules.output_level, &filter.parameters))),
    };
    let mut stats = TaskStats { range_tombstones_in: in_range.len() as u64, ..TaskStats::default() };
    let mut outputs = Outputs::new(host, rules, &retained, blocks);
    let mut merge = Merge::new(sources, shared_prefix_bytes);
    drive(&mut merge, &stream_rules, &mut outputs, &mut stats)?;
    outputs.finish(&merge, stats)
}

/// How many leading bytes all keys of the task have in common.
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

/// What the table says of itself must lie within what the version says of it: keys outside would be lost by cuts, and
/// would come out of order.
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
    /// What was read of warm blocks of the tables before the current one.
    warm_before: WarmBytes,
}

impl<'a> RunSource<'a> {
    fn new(tables: Vec<&'a TableInput>, range: &'a KeyRange) -> Result<RunSource<'a>> {
        let mut source = RunSource {
            waiting: tables.into_iter(),
            range,
            current: None,
            upper: None,
            warm_before: WarmBytes::default(),
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
            let table = input.open()?;
            let mut cursor = table.sequential_cursor(READ_BYTES);
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
