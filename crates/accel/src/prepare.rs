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
use crate::task::{DeviceRules, DeviceTask, Malformed};
use situ_compaction::{Encoder, KeyRange, KeySpan, Task};
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
    at: u64,
    bytes: u64,
}

/// A task whose input blocks are known and not read yet. See the [module](self).
#[derive(Debug)]
pub struct Prepared {
    rules: DeviceRules,
    ways: Vec<Vec<InputBlock>>,
    stretches: Vec<Stretch>,
    data_bytes: u64,
}

impl Prepared {
    /// Finds the blocks of a task.
    ///
    /// # Errors
    /// The task is unsuited, or an index cannot be read.
    pub fn new(task: &Task) -> Result<Prepared, NotPrepared> {
        let mut prepared = Prepared { rules: rules_of(task)?, ways: Vec::new(), stretches: Vec::new(), data_bytes: 0 };
        if task.inputs.len() > WAYS_MAX as usize {
            return unsuited(format!("{} runs, at most {WAYS_MAX} can be merged", task.inputs.len()));
        }
        for run in &task.inputs {
            let mut way = Vec::new();
            for input in run {
                prepared.add_table(&input.open()?, &mut way)?;
            }
            prepared.ways.push(way);
        }
        if prepared.data_bytes > DATA_BYTES_MAX {
            return unsuited(format!("{} bytes of blocks", prepared.data_bytes));
        }
        Ok(prepared)
    }

    fn add_table(&mut self, table: &Arc<Table>, way: &mut Vec<InputBlock>) -> Result<(), NotPrepared> {
        let lower = self.rules.range.lower.clone().unwrap_or_default();
        for boundary in table.blocks_from(&lower)? {
            let boundary = boundary?;
            let (offset, stored_bytes) = (boundary.block.offset, boundary.block.stored_bytes());
            match self.stretches.last_mut() {
                Some(last) if Arc::ptr_eq(&last.table, table) && last.file_offset + last.bytes == offset => {
                    last.bytes += stored_bytes;
                }
                _ => self.stretches.push(Stretch {
                    table: Arc::clone(table),
                    file_offset: offset,
                    at: self.data_bytes,
                    bytes: stored_bytes,
                }),
            }
            let Ok(stored) = u32::try_from(stored_bytes) else { return unsuited("a block of 4 GiB") };
            way.push(InputBlock { at: self.data_bytes, stored_bytes: stored, ..InputBlock::default() });
            self.data_bytes += stored_bytes;
            // All keys of the blocks that follow are at this key or behind it.
            if self.rules.range.upper.as_ref().is_some_and(|upper| boundary.user_key >= *upper) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the bytes of the data area.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
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
        let mut blocks = self.ways.iter_mut().flatten().peekable();
        for stretch in &self.stretches {
            let (mut at, end) = (stretch.at, stretch.at + stretch.bytes);
            while at < end {
                let piece_end = end.min(at + PIECE_BYTES);
                let offset = stretch.file_offset + (at - stretch.at);
                stretch.table.reader().read_at(offset, &mut data[at as usize..piece_end as usize])?;
                at = piece_end;
                while let Some(block) = blocks.next_if(|block| block.at + u64::from(block.stored_bytes) <= at) {
                    let stored = &data[block.at as usize..][..block.stored_bytes as usize];
                    (block.raw_bytes, block.entry_bytes) = lengths_of(stored)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the task of the blocks that were [loaded](Prepared::load).
    ///
    /// # Errors
    /// A block is too long, or a rule of tasks is broken.
    pub fn finish(self) -> Result<DeviceTask, NotPrepared> {
        Ok(DeviceTask::new(self.rules, self.ways, self.data_bytes)?)
    }
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

/// Returns the rules of a task for a device, if a device may have it.
fn rules_of(task: &Task) -> Result<DeviceRules, NotPrepared> {
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
