//! From a compaction task to a device's task: which blocks, where they lie, and whether the device may have them.
//!
//! 1. The rules are looked at first. A filter, range tombstones, Zstandard, another encoder, long keys or values and
//!    too many runs make a task *unsuited*: it goes to the processor untried.
//! 2. The indexes say which blocks of each table hold keys of the range. No data is read for that.
//! 3. Blocks that follow each other in a file are one *stretch*: one read into the data area, which may be the pinned
//!    memory of a device ([`Prepared::load`]).
//!    The bytes say how long each block is uncompressed.
//! 4. [`Prepared::finish`] makes the task.

use crate::abi::*;
use crate::answer::Answer;
use crate::passes::RunShape;
use crate::task::{DeviceRules, DeviceTask, Malformed};
use situ_compaction::{Encoder, KeyRange, KeySpan, TableInput, Task};
use situ_storage::Error;
use situ_table::format::{BLOCK_TRAILER_BYTES, COMPRESSION_LZ4, COMPRESSION_NONE};
use situ_table::{Compression, Table};
use std::fmt;
use std::sync::Arc;

/// The reason why a device does not get a task.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotPrepared {
    /// The task is beyond what any device of this version can do. The processor can.
    Unsuited(String),
    /// A table cannot be opened or read, or is damaged.
    Table(Error),
}

impl fmt::Display for NotPrepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPrepared::Unsuited(why) => write!(f, "no task for a device: {why}"),
            NotPrepared::Table(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotPrepared {}

impl From<Error> for NotPrepared {
    fn from(error: Error) -> NotPrepared {
        NotPrepared::Table(error)
    }
}

impl From<Malformed> for NotPrepared {
    fn from(malformed: Malformed) -> NotPrepared {
        NotPrepared::Unsuited(malformed.0)
    }
}

/// Blocks are read in pieces of this size: they are still in the cache when their lengths are looked at.
const PIECE_BYTES: u64 = 512 << 10;

fn unsuited<T>(why: impl Into<String>) -> Result<T, NotPrepared> {
    Err(NotPrepared::Unsuited(why.into()))
}

/// Data blocks that follow each other in a file.
#[derive(Debug)]
struct Stretch {
    table: Arc<Table>,
    file_offset: u64,
    /// The offset among the blocks of the way.
    at: u64,
    bytes: u64,
}

/// The place of a way's blocks before they are loaded.
#[derive(Debug)]
enum Blocks {
    Tables(Vec<Stretch>),
    /// The output of another task: the merge of ways that came before this one.
    Merged(Vec<u8>),
}

/// One way of a task: blocks in key order.
#[derive(Debug)]
struct PreparedWay {
    /// Offsets are among the blocks of the way until they are loaded.
    blocks: Vec<InputBlock>,
    from: Blocks,
    bytes: u64,
    entries: u64,
    /// The user keys of the way's tables; `None` of a way without any.
    span: Option<KeySpan>,
}

/// A task whose input blocks are known and not read yet. See the [module](self).
#[derive(Debug)]
pub struct Prepared {
    rules: DeviceRules,
    ways: Vec<PreparedWay>,
}

impl Prepared {
    /// Finds the blocks of a task.
    ///
    /// # Errors
    /// The task is unsuited, or an index cannot be read.
    pub fn new(task: &Task) -> Result<Prepared, NotPrepared> {
        let rules = rules_of(task)?;
        let ways = task.inputs.iter().map(|run| PreparedWay::of(run, &rules.range));
        let prepared = Prepared { ways: ways.collect::<Result<_, _>>()?, rules };
        match prepared.data_bytes() {
            bytes if bytes > DATA_BYTES_MAX => unsuited(format!("{bytes} bytes of blocks")),
            _ => Ok(prepared),
        }
    }

    /// Returns the bytes of the data area.
    pub fn data_bytes(&self) -> u64 {
        self.ways.iter().map(|way| way.bytes).sum()
    }

    /// Returns the rules of the task.
    pub fn rules(&self) -> &DeviceRules {
        &self.rules
    }

    /// Returns the bytes and the user keys of each way, for the choice of an order of merges.
    pub(crate) fn runs(&self) -> Vec<RunShape> {
        self.ways.iter().map(|way| RunShape { bytes: way.bytes, span: way.span.clone() }).collect()
    }

    /// Puts ways that follow each other without an overlap together, each list in key order.
    pub(crate) fn chain(&mut self, chains: &[Vec<usize>]) {
        let mut ways: Vec<Option<PreparedWay>> = std::mem::take(&mut self.ways).into_iter().map(Some).collect();
        for chain in chains {
            let links = chain.iter().filter_map(|way| ways[*way].take());
            self.ways.extend(links.reduce(PreparedWay::followed_by));
        }
    }

    /// Takes some ways out, as a task whose output is again a way: nothing is dropped that older data may lie below.
    /// `ways` ascends.
    pub(crate) fn take_ways(&mut self, ways: &[usize]) -> Prepared {
        let rules = DeviceRules {
            below: Vec::new(),
            below_all: true,
            lz4: false,
            block_bytes: BLOCK_BYTES_MAX,
            entries_max: ways.iter().map(|way| self.ways[*way].entries).sum(),
            ..self.rules.clone()
        };
        let mut taken: Vec<PreparedWay> = ways.iter().rev().map(|way| self.ways.remove(*way)).collect();
        taken.reverse();
        Prepared { rules, ways: taken }
    }

    /// Adds the output of a task as a way.
    pub(crate) fn add_merged(&mut self, answer: &Answer, data: Vec<u8>) {
        let block = |report: &BlockReport| InputBlock {
            at: report.at,
            stored_bytes: report.stored_bytes,
            ..InputBlock::default()
        };
        let blocks = answer.reports.iter().map(block).collect();
        let (bytes, entries) = (data.len() as u64, answer.header.entries_kept);
        self.ways.push(PreparedWay { blocks, from: Blocks::Merged(data), bytes, entries, span: None });
    }

    /// Reads the blocks into the data area, in pieces, and asks each block how long it is uncompressed while it is in
    /// the processor's cache. The lengths are believed here; a device checks each checksum, and each length.
    ///
    /// # Errors
    /// A file cannot be read. A block's compression is one that devices do not read.
    ///
    /// # Panics
    /// `data` is shorter than [`data_bytes`](Prepared::data_bytes).
    pub fn load(&mut self, data: &mut [u8]) -> Result<(), NotPrepared> {
        let mut base = 0;
        for way in &mut self.ways {
            let (_, behind) = data.split_at_mut(base as usize);
            way.load(behind)?;
            way.blocks.iter_mut().for_each(|block| block.at += base);
            base += way.bytes;
        }
        Ok(())
    }

    /// Makes the task of the blocks that were [loaded](Prepared::load).
    ///
    /// # Errors
    /// A block is too long, or a rule of tasks is broken.
    pub fn finish(self) -> Result<DeviceTask, NotPrepared> {
        let data_bytes = self.data_bytes();
        let ways = self.ways.into_iter().map(|way| way.blocks).collect();
        Ok(DeviceTask::new(self.rules, ways, data_bytes)?)
    }
}

impl PreparedWay {
    fn of(run: &[TableInput], range: &KeyRange) -> Result<PreparedWay, NotPrepared> {
        let mut way =
            PreparedWay { blocks: Vec::new(), from: Blocks::Merged(Vec::new()), bytes: 0, entries: 0, span: None };
        let mut stretches = Vec::new();
        for input in run {
            way.add_table(&input.open()?, range, &mut stretches)?;
            way.entries = way.entries.saturating_add(input.entries);
            way.span = Some(way.span.map_or_else(|| input.span.clone(), |before| before.union(input.span.clone())));
        }
        way.from = Blocks::Tables(stretches);
        Ok(way)
    }

    fn add_table(
        &mut self,
        table: &Arc<Table>,
        range: &KeyRange,
        stretches: &mut Vec<Stretch>,
    ) -> Result<(), NotPrepared> {
        let lower = range.lower.clone().unwrap_or_default();
        for boundary in table.blocks_from(&lower)? {
            let boundary = boundary?;
            let (offset, stored_bytes) = (boundary.block.offset, boundary.block.stored_bytes());
            match stretches.last_mut() {
                Some(last) if Arc::ptr_eq(&last.table, table) && last.file_offset + last.bytes == offset => {
                    last.bytes += stored_bytes;
                }
                _ => stretches.push(Stretch {
                    table: Arc::clone(table),
                    file_offset: offset,
                    at: self.bytes,
                    bytes: stored_bytes,
                }),
            }
            let Ok(stored) = u32::try_from(stored_bytes) else { return unsuited("a block of 4 GiB") };
            self.blocks.push(InputBlock { at: self.bytes, stored_bytes: stored, ..InputBlock::default() });
            self.bytes += stored_bytes;
            // All keys of the blocks that follow are at this key or behind it.
            if range.upper.as_ref().is_some_and(|upper| boundary.user_key >= *upper) {
                break;
            }
        }
        Ok(())
    }

    /// Puts the blocks of a way behind these. All its keys are behind the keys of this way.
    fn followed_by(mut self, next: PreparedWay) -> PreparedWay {
        let (Blocks::Tables(stretches), Blocks::Tables(more)) = (&mut self.from, next.from) else {
            unreachable!("ways are chained before any of them is merged");
        };
        stretches.extend(more.into_iter().map(|stretch| Stretch { at: stretch.at + self.bytes, ..stretch }));
        let blocks = next.blocks.into_iter().map(|block| InputBlock { at: block.at + self.bytes, ..block });
        self.blocks.extend(blocks);
        self.bytes += next.bytes;
        self.entries = self.entries.saturating_add(next.entries);
        self.span = match (self.span, next.span) {
            (Some(here), Some(next)) => Some(here.union(next)),
            (here, next) => here.or(next),
        };
        self
    }

    fn load(&mut self, data: &mut [u8]) -> Result<(), NotPrepared> {
        let mut blocks = self.blocks.iter_mut().peekable();
        let stretches = match &self.from {
            Blocks::Tables(stretches) => stretches,
            Blocks::Merged(merged) => {
                data[..merged.len()].copy_from_slice(merged);
                return blocks.try_for_each(|block| note_lengths(block, data));
            }
        };
        for stretch in stretches {
            let (mut at, end) = (stretch.at, stretch.at + stretch.bytes);
            while at < end {
                let piece_end = end.min(at + PIECE_BYTES);
                let offset = stretch.file_offset + (at - stretch.at);
                stretch.table.reader().read_at(offset, &mut data[at as usize..piece_end as usize])?;
                at = piece_end;
                while let Some(block) = blocks.next_if(|block| block.at + u64::from(block.stored_bytes) <= at) {
                    note_lengths(block, data)?;
                }
            }
        }
        Ok(())
    }
}

fn note_lengths(block: &mut InputBlock, data: &[u8]) -> Result<(), NotPrepared> {
    let stored = &data[block.at as usize..][..block.stored_bytes as usize];
    (block.raw_bytes, block.entry_bytes) = lengths_of(stored)?;
    Ok(())
}

/// Returns how long a stored block is uncompressed, and how long its entries are if that can be seen.
fn lengths_of(stored: &[u8]) -> Result<(u32, u32), NotPrepared> {
    let Some(body_bytes) = stored.len().checked_sub(BLOCK_TRAILER_BYTES) else {
        return unsuited(format!("a block of {} bytes", stored.len()));
    };
    let (body, kind) = (&stored[..body_bytes], stored[body_bytes]);
    match (kind, body.first_chunk::<4>(), body.last_chunk::<4>()) {
        (COMPRESSION_NONE, _, Some(restarts)) => {
            let restarts = u64::from(u32::from_le_bytes(*restarts));
            let entries = (body_bytes as u64).checked_sub(4 * restarts + 4);
            Ok((body_bytes as u32, entries.unwrap_or(0) as u32))
        }
        (COMPRESSION_LZ4, Some(length), _) => Ok((u32::from_le_bytes(*length), 0)),
        _ => unsuited(format!("a block of {body_bytes} bytes with compression {kind}")),
    }
}

/// Returns the rules of a task for a device, if a device may have it. Opens its tables, and reads no data.
pub(crate) fn rules_of(task: &Task) -> Result<DeviceRules, NotPrepared> {
    let rules = &task.rules;
    let table = &rules.output.table;
    if rules.filter.is_some() {
        return unsuited("it has a filter");
    }
    if task.tables().any(|input| input.range_deletions > 0) {
        return unsuited("it has range tombstones");
    }
    if rules.output.encoder != Encoder::default() {
        return unsuited(format!("the encoder {} is not known", rules.output.encoder.name()));
    }
    let lz4 = match table.compression {
        Compression::None => false,
        Compression::Lz4 => true,
        other => return unsuited(format!("compression {other}")),
    };
    let (mut key_bytes_max, mut value_bytes_max) = (0, 0);
    for input in task.tables() {
        let (key, value) = input.longest()?;
        (key_bytes_max, value_bytes_max) = (key.max(key_bytes_max), value.max(value_bytes_max));
    }
    // An empty key bounds nothing.
    let lower = rules.range.lower.clone().filter(|lower| !lower.is_empty());
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(DeviceRules {
        range: KeyRange { lower, upper: rules.range.upper.clone() },
        snapshots: rules.snapshots.clone(),
        below: union(&rules.below),
        below_all: false,
        lz4,
        block_bytes: number(table.block_bytes),
        restart_interval: number(table.restart_interval.max(1)),
        key_bytes_max,
        value_bytes_max,
        shared_prefix_bytes: shared_prefix_bytes(task).min(key_bytes_max),
        entries_max: task.tables().map(|input| input.entries).fold(0, u64::saturating_add),
        emit_from: 0,
        emit_bytes_max: u64::MAX,
    })
}

/// Returns the number of first bytes that all keys of the inputs share.
fn shared_prefix_bytes(task: &Task) -> u32 {
    let first = task.tables().map(|input| &input.span.begin).min();
    let last = task.tables().map(|input| &input.span.end).max();
    let shared = first.zip(last).map_or(0, |(first, last)| first.iter().zip(last).take_while(|(a, b)| a == b).count());
    shared as u32
}

/// Returns all spans of all lists, sorted and disjoint.
fn union(lists: &[Vec<KeySpan>]) -> Vec<KeySpan> {
    let mut all: Vec<KeySpan> = lists.iter().flatten().filter(|span| span.begin < span.end).cloned().collect();
    all.sort_by(|a, b| a.begin.cmp(&b.begin));
    let mut union: Vec<KeySpan> = Vec::new();
    for span in all {
        match union.last_mut() {
            Some(last) if span.begin <= last.end => last.end = std::mem::take(&mut last.end).max(span.end),
            _ => union.push(span),
        }
    }
    union
}
