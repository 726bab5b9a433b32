//! The host's half of the unit: from a task's bytes to registers and descriptors, and from blocks, keys and reports to
//! the answer's bytes.
//!
//! The side channel says each key that is written, word by word, without the words that it shares whole with the key
//! before. The host keeps the key, hashes it when it is the first version, and notes it at a block's begin and end.

use crate::model::{self, Block, Cycle, Memory, SNAPSHOTS, UnitResult, UnitTask, WAYS};
use situ_accel::abi::*;
use situ_accel::{Answer, DeviceTask, Malformed};
use situ_table::{MAX_SEQUENCE, hash_key};
use std::fmt;

/// The longest key of the unit.
pub(crate) const UNIT_KEY_BYTES_MAX: u32 = 64;
/// The status by which the unit says that a block is beyond what it can read.
const STATUS_ILLEGAL: u32 = 7;
/// Words of a report on the side channel.
const REPORT_WORDS: usize = 11;

/// The reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// The build found no Verilator or no C++ compiler.
    Missing(String),
    /// The task is beyond the unit. The processor can do it.
    Unsuited(String),
    /// The bytes are no task.
    Malformed(Malformed),
    /// The unit has a flaw: it hangs, or what it says makes no sense.
    Broken(String),
    /// The chip has no space for another task now.
    Busy,
    /// Two lanes in lock-step gave different outputs: one of them has a fault. There is no result.
    Mismatch,
    /// The host stopped the lane.
    Stopped,
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRun::Missing(why) => write!(f, "no simulated unit: {why}"),
            NotRun::Unsuited(why) => write!(f, "no task for the unit: {why}"),
            NotRun::Malformed(malformed) => malformed.fmt(f),
            NotRun::Broken(why) => write!(f, "the unit is broken: {why}"),
            NotRun::Busy => f.write_str("the chip's queue or its memory is full"),
            NotRun::Mismatch => f.write_str("two lanes in lock-step gave different outputs"),
            NotRun::Stopped => f.write_str("the lane was stopped"),
        }
    }
}

impl std::error::Error for NotRun {}

/// An answer in flat bytes, and the cycles that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatAnswer {
    /// Header, reports, hashes, keys.
    pub report: Vec<u8>,
    /// The output blocks as stored.
    pub data: Vec<u8>,
    /// Cycles from the start to the last word in memory.
    pub cycles: u64,
    /// Cycles in which each way's ring of keys was half full: its decoder was ahead.
    pub half_full_cycles: [u64; 4],
    /// The first cycles of the run, as many as were asked for.
    pub trace: Vec<Cycle>,
}

/// A simulated unit and its memory.
#[derive(Debug, Clone, Copy)]
pub struct Simulated {
    /// The memory.
    pub memory: Memory,
    /// The number of first cycles to trace.
    pub trace_cycles: usize,
    /// The parameters of the circuit.
    pub variant: Variant,
}

/// The parameters of a simulated unit: `WAYS` and `BYTES` of the circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Four runs a task, and a path of eight bytes a cycle.
    Plain,
    /// Two runs a task, with half the decoders.
    TwoWays,
    /// Four runs a task, and a path of sixteen bytes a cycle.
    Wide,
}

impl Variant {
    /// Returns the number of ways, and so of decoders.
    pub fn ways(self) -> u32 {
        match self {
            Variant::Plain | Variant::Wide => WAYS as u32,
            Variant::TwoWays => 2,
        }
    }

    /// Returns the bytes of a word in memory.
    pub fn path_bytes(self) -> u32 {
        match self {
            Variant::Plain | Variant::TwoWays => 8,
            Variant::Wide => 16,
        }
    }
}

impl Simulated {
    /// Creates a plain unit over a memory.
    pub fn new(memory: Memory) -> Simulated {
        Simulated { memory, trace_cycles: 0, variant: Variant::Plain }
    }

    /// Runs a task, whose input blocks lie in `data`.
    ///
    /// # Errors
    /// There is no simulation, the task is not for the unit, or the unit has a flaw.
    pub fn run(&self, task: &[u8], data: &[u8]) -> Result<FlatAnswer, NotRun> {
        let (task, unit_task) = decoded(task, data, self.variant)?;
        let mut trace = vec![Cycle::default(); self.trace_cycles];
        let result = model::run(&unit_task, data, self.memory, &mut trace).map_err(NotRun::Broken)?;
        trace.truncate(result.cycles as usize);
        Ok(FlatAnswer { trace, ..flat_answer(&task, &unit_task, &result)? })
    }
}

/// Decodes a task, and makes registers and descriptors of it for a unit.
pub(crate) fn decoded(task: &[u8], data: &[u8], variant: Variant) -> Result<(DeviceTask, UnitTask), NotRun> {
    if let Some(why) = model::missing() {
        return Err(NotRun::Missing(why.to_owned()));
    }
    let task = DeviceTask::decode(task).map_err(NotRun::Malformed)?;
    if task.data_bytes != data.len() as u64 {
        return Err(NotRun::Malformed(Malformed(format!("{} bytes of blocks", data.len()))));
    }
    let unit_task = suited(&task, variant).map_err(NotRun::Unsuited)?;
    Ok((task, unit_task))
}

/// Makes the answer's bytes of what a unit gave.
pub(crate) fn flat_answer(task: &DeviceTask, unit_task: &UnitTask, result: &UnitResult) -> Result<FlatAnswer, NotRun> {
    let answer = answer(task, unit_task, result)?;
    Ok(FlatAnswer {
        report: answer.encode_report(),
        data: answer.data,
        cycles: result.cycles,
        half_full_cycles: result.half_full_cycles,
        trace: Vec::new(),
    })
}

/// Returns the task as registers and descriptors; the limit in words if it is beyond the unit.
fn suited(task: &DeviceTask, variant: Variant) -> Result<UnitTask, String> {
    let rules = &task.rules;
    let limit = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    limit(task.ways.len() <= variant.ways() as usize, "more ways than the unit has")?;
    limit(!rules.lz4, "compression")?;
    limit(rules.snapshots.len() <= SNAPSHOTS, "more than eight snapshots")?;
    limit(rules.below.is_empty(), "spans of older data")?;
    limit(rules.range.lower.is_none() && rules.range.upper.is_none(), "a range of keys")?;
    limit(rules.key_bytes_max <= UNIT_KEY_BYTES_MAX, "keys of more than 64 bytes")?;
    let mut unit = UnitTask {
        ways: variant.ways(),
        path_bytes: variant.path_bytes(),
        snapshots: rules.snapshots.iter().map(|snapshot| (*snapshot).min(MAX_SEQUENCE)).collect(),
        below_all: rules.below_all,
        key_bytes_max: rules.key_bytes_max,
        value_bytes_max: rules.value_bytes_max,
        block_bytes: rules.block_bytes,
        restart_interval: rules.restart_interval,
        emit_from: u32::try_from(rules.emit_from).unwrap_or(u32::MAX),
        emit_bytes_max: u32::try_from(rules.emit_bytes_max).unwrap_or(u32::MAX),
        // The decoder of tasks bounds it.
        entries_max: rules.entries_max as u32,
        out_bytes_max: (task.result_bytes_max + 16 * u64::from(task.result_blocks_max) + 256)
            .next_multiple_of(u64::from(variant.path_bytes())),
        side_words_max: 8 * rules.entries_max + REPORT_WORDS as u64 * u64::from(task.result_blocks_max) + 64,
        ..UnitTask::default()
    };
    for way in 0..WAYS {
        for block in task.ways.get(way).into_iter().flatten() {
            limit(block.stored_bytes == block.raw_bytes + 5, "compressed blocks")?;
            limit(block.entry_bytes + 4 <= block.raw_bytes, "blocks with unknown restarts")?;
            // The decoder of tasks bounds all three.
            unit.blocks.push(Block {
                at: block.at as u32,
                raw_bytes: block.raw_bytes as u16,
                entry_bytes: block.entry_bytes as u16,
            });
        }
        unit.first_block[way + 1] = unit.blocks.len() as u32;
    }
    unit.cycles_max = 100_000 + 100 * (task.data_bytes + rules.entries_max + unit.blocks.len() as u64 * 200);
    Ok(unit)
}

/// Returns the answer's head, of a task that can be done or not.
fn head(task: &DeviceTask) -> AnswerHeader {
    AnswerHeader { magic: ANSWER_MAGIC, version: VERSION, key_stride: task.key_stride(), ..AnswerHeader::default() }
}

/// Returns the status of a task that failed, and its place, as the model names them.
fn failure(task: &DeviceTask, unit_task: &UnitTask, result: &UnitResult) -> Result<Option<(u32, u64)>, NotRun> {
    let entries_before = |way: usize| result.way_entries[..way].iter().map(|count| u64::from(*count)).sum::<u64>();
    for way in 0..WAYS {
        let detail = result.way_detail[way];
        match result.way_status[way] {
            STATUS_OK => {}
            STATUS_ILLEGAL => return Err(NotRun::Unsuited(format!("block {detail} of way {way}"))),
            STATUS_ORDER => return Ok(Some((STATUS_ORDER, entries_before(way) + u64::from(detail)))),
            status => return Ok(Some((status, u64::from(unit_task.first_block[way] + detail)))),
        }
    }
    let entries = entries_before(WAYS);
    if entries > task.rules.entries_max || result.no_space {
        return Ok(Some((STATUS_SPACE, entries)));
    }
    Ok(result.twice.map(|(way, entry)| (STATUS_ORDER, entries_before(way as usize) + u64::from(entry))))
}

fn answer(task: &DeviceTask, unit_task: &UnitTask, result: &UnitResult) -> Result<Answer, NotRun> {
    let mut answer = Answer { header: head(task), ..Answer::default() };
    if let Some((status, detail)) = failure(task, unit_task, result)? {
        (answer.header.status, answer.header.detail) = (status, detail);
        answer.header.checksum = answer.header.own_checksum();
        return Ok(answer);
    }
    let mut sides = Sides::new(task);
    for (word, tag) in &result.side {
        sides.take(*word, *tag)?;
    }
    sides.finish(&result.out, unit_task.path_bytes as usize, &mut answer)?;
    let kept = u64::from(result.kept);
    let header = &mut answer.header;
    header.entries_in = result.way_entries.iter().map(|count| u64::from(*count)).sum();
    header.entries_kept = kept;
    header.dropped_hidden = u64::from(result.dropped_hidden);
    header.dropped_tombstones = u64::from(result.dropped_tombstones);
    header.sequences_zeroed = u64::from(result.sequences_zeroed);
    // The unit says 0 if it has written nothing.
    header.emitted_to = match result.emitted_to {
        0 => task.rules.emit_from.min(kept),
        emitted_to => u64::from(emitted_to),
    };
    header.data_bytes = answer.data.len() as u64;
    header.blocks = answer.reports.len() as u32;
    header.hashes = answer.hashes.len() as u32;
    answer.header.checksum = answer.header.own_checksum();
    Ok(answer)
}

/// The keys of a block, from the side channel.
#[derive(Debug, Default)]
struct Keys {
    first: Vec<u8>,
    last: Vec<u8>,
    first_hash: usize,
}

/// The side channel, taken word by word.
struct Sides {
    stride: usize,
    key: [u8; UNIT_KEY_BYTES_MAX as usize],
    key_bytes: usize,
    blocks: Vec<Keys>,
    hashes: Vec<u64>,
    words: Vec<u64>,
}

impl Sides {
    fn new(task: &DeviceTask) -> Sides {
        Sides {
            stride: task.key_stride() as usize,
            key: [0; UNIT_KEY_BYTES_MAX as usize],
            key_bytes: 0,
            blocks: Vec::new(),
            hashes: Vec::new(),
            words: Vec::new(),
        }
    }

    fn take(&mut self, word: u64, tag: u16) -> Result<(), NotRun> {
        if tag >> 12 != 0 {
            self.words.push(word);
            return Ok(());
        }
        let (is_first, is_new) = (tag >> 11 & 1 != 0, tag >> 10 & 1 != 0);
        let (at, key_bytes) = (usize::from(tag >> 7 & 7), usize::from(tag & 0x7f));
        if is_first && at == 0 {
            self.end_block();
            self.blocks.push(Keys { first_hash: self.hashes.len(), ..Keys::default() });
        }
        let place = self.key.get_mut(8 * at..8 * at + 8);
        place
            .ok_or_else(|| NotRun::Broken("a word behind the longest key".to_owned()))?
            .copy_from_slice(&word.to_le_bytes());
        if 8 * at + 8 < key_bytes {
            return Ok(());
        }
        self.key_bytes = key_bytes.min(self.key.len());
        let key = &self.key[..self.key_bytes];
        if is_first {
            let block = self.blocks.last_mut();
            block.ok_or_else(|| NotRun::Broken("a key without a block".to_owned()))?.first = key.to_vec();
        }
        if is_new {
            self.hashes.push(hash_key(key));
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if let Some(block) = self.blocks.last_mut() {
            block.last = self.key[..self.key_bytes].to_vec();
        }
    }

    /// Puts blocks and reports into the answer. Each block begins at a word of the path.
    fn finish(mut self, out: &[u8], path_bytes: usize, answer: &mut Answer) -> Result<(), NotRun> {
        self.end_block();
        answer.hashes = std::mem::take(&mut self.hashes);
        let reports = self.words.chunks_exact(REPORT_WORDS);
        if reports.len() != self.blocks.len() || !reports.remainder().is_empty() {
            return Err(NotRun::Broken(format!("{} report words, {} blocks", self.words.len(), self.blocks.len())));
        }
        let mut slot = 0;
        for (i, words) in reports.enumerate() {
            let hashes_end = self.blocks.get(i + 1).map_or(answer.hashes.len(), |next| next.first_hash);
            let stored_bytes = (words[0] >> 32 & 0xffff) as usize + 5;
            let stored = out.get(slot..slot + stored_bytes);
            let stored = stored.ok_or_else(|| NotRun::Broken(format!("block {i} is not in memory")))?;
            slot = (slot + stored_bytes).next_multiple_of(path_bytes);
            self.report(&self.blocks[i], hashes_end, words, stored, answer);
        }
        Ok(())
    }

    fn report(&self, keys: &Keys, hashes_end: usize, words: &[u64], stored: &[u8], answer: &mut Answer) {
        let first_key_at = answer.keys.len();
        for (i, key) in [&keys.first, &keys.last].into_iter().enumerate() {
            answer.keys.extend_from_slice(key);
            answer.keys.resize(first_key_at + (i + 1) * self.stride, 0);
        }
        let hashes = &answer.hashes[keys.first_hash..hashes_end];
        let hash_bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        let field = |word: usize, at: u32, bits: u32| (words[word] >> at & ((1 << bits) - 1)) as u32;
        let mut value_classes = [0; VALUE_CLASSES];
        for (class, count) in value_classes.iter_mut().enumerate() {
            *count = field(7 + class / 4, 16 * (class as u32 % 4), 16) as u16;
        }
        let mut report = BlockReport {
            at: answer.data.len() as u64,
            stored_bytes: stored.len() as u32,
            raw_bytes: field(0, 32, 16),
            entries: field(0, 0, 16),
            deletions: field(0, 16, 16),
            first_key_at: first_key_at as u32,
            last_key_at: (first_key_at + self.stride) as u32,
            first_key_bytes: keys.first.len() as u16,
            last_key_bytes: keys.last.len() as u16,
            flags: if field(1, 56, 1) != 0 { REPORT_NEW_USER_KEY } else { 0 },
            first_trailer: words[2],
            last_trailer: words[3],
            smallest_sequence: words[4],
            largest_sequence: words[5],
            first_entry: words[6],
            first_hash: keys.first_hash as u32,
            hashes: hashes.len() as u32,
            key_bytes: field(1, 0, 24),
            value_bytes: field(1, 24, 24),
            longest_key: field(1, 48, 8),
            longest_value: field(0, 48, 16),
            checksum: stored.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
            keys_checksum: crc32c::crc32c(&answer.keys[first_key_at..]),
            hashes_checksum: crc32c::crc32c(&hash_bytes),
            report_checksum: 0,
            value_classes,
        };
        report.report_checksum = report.own_checksum();
        answer.reports.push(report);
        answer.data.extend_from_slice(stored);
    }
}
