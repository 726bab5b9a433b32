//! A task for a device, in memory and as bytes.
//!
//! ```text
//! header | ways | input blocks | snapshots | spans | keys        data area: input blocks as stored
//! ```
//!
//! **Invariants**: a [`DeviceTask`] that was decoded or checked keeps every rule of the page: counts, limits,
//! ascending snapshots, blocks inside the data area. So a unit may follow offsets without a look at bounds.

use crate::abi::*;
use situ_compaction::{KeyRange, KeySpan};
use situ_table::SequenceNumber;
use std::fmt;

/// The reason why bytes are no task, or no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

fn rule(holds: bool, words: impl FnOnce() -> String) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed(words())) }
}

/// The limits and rules of a task, apart from its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRules {
    /// Only user keys in this range count.
    pub range: KeyRange,
    /// Live snapshots, ascending.
    pub snapshots: Vec<SequenceNumber>,
    /// Older data lies in these spans, which are sorted and disjoint. Empty: there is none.
    pub below: Vec<KeySpan>,
    /// Older data may lie everywhere.
    pub below_all: bool,
    /// Output blocks are compressed by LZ4.
    pub lz4: bool,
    /// The uncompressed size at which an output block is closed.
    pub block_bytes: u32,
    /// An output block has a whole key every this many entries.
    pub restart_interval: u32,
    /// The longest user key of the inputs.
    pub key_bytes_max: u32,
    /// The longest value of the inputs.
    pub value_bytes_max: u32,
    /// All user keys of the inputs share this number of first bytes.
    pub shared_prefix_bytes: u32,
    /// The most entries of all input blocks together.
    pub entries_max: u64,
    /// The ordinal of the first kept entry that is written.
    pub emit_from: u64,
    /// No block begins when blocks of this many uncompressed bytes have been written.
    pub emit_bytes_max: u64,
}

/// A task for a device. See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTask {
    /// All but the inputs.
    pub rules: DeviceRules,
    /// The input blocks of each way, the newest run first.
    pub ways: Vec<Vec<InputBlock>>,
    /// Bytes of the data area.
    pub data_bytes: u64,
    /// Bytes of result memory for blocks.
    pub result_bytes_max: u64,
    /// Result memory for this many reports.
    pub result_blocks_max: u32,
    /// Result memory for this many filter hashes.
    pub result_hashes_max: u32,
}

impl DeviceTask {
    /// Makes a task with result memory that suffices for any output.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn new(rules: DeviceRules, ways: Vec<Vec<InputBlock>>, data_bytes: u64) -> Result<DeviceTask, Malformed> {
        let mut task =
            DeviceTask { rules, ways, data_bytes, result_bytes_max: 0, result_blocks_max: 0, result_hashes_max: 0 };
        task.size_results()?;
        task.check()?;
        Ok(task)
    }

    /// Reserves result memory for the worst case. A block is closed only by an entry that it has no space for, so two
    /// neighbours together are longer than the block size. Prefixes may be shared less than in the inputs.
    fn size_results(&mut self) -> Result<(), Malformed> {
        let rules = &self.rules;
        let raw: u64 = self.blocks().map(|block| u64::from(block.raw_bytes)).sum();
        // Each entry may lose the prefix that it shared, and gain a restart.
        let entries = rules.entries_max;
        let expanded = raw.saturating_add(entries.saturating_mul(u64::from(rules.key_bytes_max) + 8));
        let entry_max = u64::from(rules.key_bytes_max + rules.value_bytes_max) + 40;
        let per_block = (u64::from(rules.block_bytes) / 2).max(1);
        let blocks = (expanded / per_block + 2).min(entries + 1);
        let bytes = (expanded + 16 * blocks + entry_max).min(DATA_BYTES_MAX);
        let too_many = || Malformed("the task has too many blocks or entries".to_owned());
        self.result_bytes_max = bytes;
        self.result_blocks_max = u32::try_from(blocks).map_err(|_| too_many())?;
        self.result_hashes_max = u32::try_from(entries).map_err(|_| too_many())?;
        Ok(())
    }

    /// Returns all input blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &InputBlock> {
        self.ways.iter().flatten()
    }

    /// Returns the length of a key in device memory: the longest key, rounded up to words of eight bytes.
    pub fn key_stride(&self) -> u32 {
        self.rules.key_bytes_max.div_ceil(8).max(1) * 8
    }

    /// Checks the rules of the page.
    ///
    /// # Errors
    /// The rule that is broken, in words.
    pub fn check(&self) -> Result<(), Malformed> {
        let rules = &self.rules;
        let ascending = rules.snapshots.windows(2).all(|pair| pair[0] < pair[1]);
        rule(self.ways.len() <= WAYS_MAX as usize, || format!("{} ways", self.ways.len()))?;
        rule(rules.snapshots.len() <= SNAPSHOTS_MAX as usize && ascending, || "snapshots".to_owned())?;
        rule(rules.key_bytes_max <= KEY_BYTES_MAX, || format!("keys of {} bytes", rules.key_bytes_max))?;
        rule(rules.value_bytes_max <= VALUE_BYTES_MAX, || format!("values of {} bytes", rules.value_bytes_max))?;
        rule(rules.block_bytes <= BLOCK_BYTES_MAX, || format!("blocks of {} bytes", rules.block_bytes))?;
        let interval = rules.restart_interval;
        rule((1..=RAW_BLOCK_BYTES_MAX).contains(&interval), || format!("a restart every {interval} entries"))?;
        let prefix = rules.shared_prefix_bytes;
        rule(prefix <= rules.key_bytes_max, || format!("a shared prefix of {prefix} bytes"))?;
        rule(self.data_bytes <= DATA_BYTES_MAX, || format!("{} bytes of data", self.data_bytes))?;
        rule(self.result_bytes_max <= DATA_BYTES_MAX, || format!("{} bytes of results", self.result_bytes_max))?;
        rule(rules.emit_bytes_max > 0, || "no bytes to write".to_owned())?;
        let sorted = rules.below.windows(2).all(|pair| pair[0].end <= pair[1].begin);
        rule(sorted && rules.below.iter().all(|span| span.begin < span.end), || "spans of older data".to_owned())?;
        rule(rules.entries_max <= u64::from(u32::MAX / 2), || format!("{} entries", rules.entries_max))?;
        for (i, block) in self.blocks().enumerate() {
            let inside = block.at.checked_add(u64::from(block.stored_bytes)).is_some_and(|end| end <= self.data_bytes);
            let sound = inside
                && block.stored_bytes >= 9
                && (4..=RAW_BLOCK_BYTES_MAX).contains(&block.raw_bytes)
                && block.entry_bytes < block.raw_bytes;
            rule(sound, || format!("input block {i}: {block:?}"))?;
        }
        Ok(())
    }

    /// Returns the length of the task's bytes.
    pub fn encoded_bytes(&self) -> u64 {
        let rules = &self.rules;
        let bound = |bound: &Option<Vec<u8>>| bound.as_ref().map_or(0, Vec::len);
        let keys = bound(&rules.range.lower) + bound(&rules.range.upper);
        let spans: usize = rules.below.iter().map(|span| Span::BYTES + span.begin.len() + span.end.len()).sum();
        let blocks = self.blocks().count() * InputBlock::BYTES;
        let lists = self.ways.len() * Way::BYTES + 8 * rules.snapshots.len();
        ((TaskHeader::BYTES + blocks + lists + spans + keys) as u64).next_multiple_of(8)
    }

    /// Returns the task's bytes, without the data area.
    pub fn encode(&self) -> Vec<u8> {
        let rules = &self.rules;
        let mut keys: Vec<u8> = Vec::new();
        let lower = rules.range.lower.as_deref().unwrap_or_default();
        keys.extend_from_slice(lower);
        keys.extend_from_slice(rules.range.upper.as_deref().unwrap_or_default());
        let mut spans = Vec::new();
        for span in &rules.below {
            let begin_at = keys.len() as u32;
            keys.extend_from_slice(&span.begin);
            let end_at = keys.len() as u32;
            keys.extend_from_slice(&span.end);
            let (begin_bytes, end_bytes) = (span.begin.len() as u32, span.end.len() as u32);
            spans.push(Span { begin_at, begin_bytes, end_at, end_bytes });
        }
        let blocks: u64 = self.blocks().count() as u64;
        let ways_at = TaskHeader::BYTES as u64;
        let blocks_at = ways_at + (self.ways.len() * Way::BYTES) as u64;
        let snapshots_at = blocks_at + blocks * InputBlock::BYTES as u64;
        let spans_at = snapshots_at + 8 * rules.snapshots.len() as u64;
        let keys_at = spans_at + (spans.len() * Span::BYTES) as u64;
        let mut header = TaskHeader {
            magic: TASK_MAGIC,
            version: VERSION,
            header_bytes: TaskHeader::BYTES as u32,
            task_bytes: (keys_at + keys.len() as u64).next_multiple_of(8),
            data_bytes: self.data_bytes,
            ways: self.ways.len() as u32,
            blocks: blocks as u32,
            snapshots: rules.snapshots.len() as u32,
            spans: spans.len() as u32,
            flags: if rules.below_all { FLAG_BELOW_ALL } else { 0 },
            codec: if rules.lz4 { CODEC_LZ4 } else { CODEC_NONE },
            encoder: if rules.lz4 { ENCODER_LZ4_FLEX } else { 0 },
            block_bytes: rules.block_bytes,
            restart_interval: rules.restart_interval,
            key_bytes_max: rules.key_bytes_max,
            value_bytes_max: rules.value_bytes_max,
            kinds: KINDS,
            shared_prefix_bytes: rules.shared_prefix_bytes,
            lower_bytes: lower.len() as u32,
            upper_bytes: rules.range.upper.as_ref().map_or(u32::MAX, |upper| upper.len() as u32),
            key_area_bytes: keys.len() as u32,
            ways_at,
            blocks_at,
            snapshots_at,
            spans_at,
            keys_at,
            entries_max: rules.entries_max,
            emit_from: rules.emit_from,
            emit_bytes_max: rules.emit_bytes_max,
            result_bytes_max: self.result_bytes_max,
            result_blocks_max: self.result_blocks_max,
            result_hashes_max: self.result_hashes_max,
            checksum: 0,
            zero: 0,
        };
        let mut out = Vec::with_capacity(header.task_bytes as usize);
        header.put(&mut out);
        let mut first_block = 0;
        for way in &self.ways {
            Way { first_block, blocks: way.len() as u32 }.put(&mut out);
            first_block += way.len() as u32;
        }
        self.blocks().for_each(|block| block.put(&mut out));
        rules.snapshots.iter().for_each(|snapshot| out.extend_from_slice(&snapshot.to_le_bytes()));
        spans.iter().for_each(|span| span.put(&mut out));
        out.extend_from_slice(&keys);
        out.resize(header.task_bytes as usize, 0);
        header.checksum = checksum_of(&out);
        let mut bytes = Vec::with_capacity(out.len());
        header.put(&mut bytes);
        bytes.extend_from_slice(&out[TaskHeader::BYTES..]);
        bytes
    }

    /// Decodes a task and checks every rule.
    ///
    /// # Errors
    /// The bytes are no task of this version, or break a rule.
    pub fn decode(bytes: &[u8]) -> Result<DeviceTask, Malformed> {
        let short = || Malformed(format!("a task of {} bytes", bytes.len()));
        let header = TaskHeader::take(&mut &*bytes).ok_or_else(short)?;
        check_header(&header, bytes)?;
        let array = |at: u64, items: u32, width: usize| -> Result<&[u8], Malformed> {
            let at = usize::try_from(at).map_err(|_| short())?;
            let end = (items as usize).checked_mul(width).and_then(|length| at.checked_add(length));
            end.and_then(|end| bytes.get(at..end)).ok_or_else(short)
        };
        let mut blocks_left = array(header.blocks_at, header.blocks, InputBlock::BYTES)?;
        let mut ways_left = array(header.ways_at, header.ways, Way::BYTES)?;
        let (mut ways, mut next) = (Vec::new(), 0u32);
        while let Some(way) = Way::take(&mut ways_left) {
            rule(way.first_block == next, || format!("way {} begins at block {}", ways.len(), way.first_block))?;
            next = next.checked_add(way.blocks).ok_or_else(short)?;
            let blocks: Option<Vec<InputBlock>> = (0..way.blocks).map(|_| InputBlock::take(&mut blocks_left)).collect();
            ways.push(blocks.ok_or_else(short)?);
        }
        rule(next == header.blocks, || format!("ways of {next} blocks, not {}", header.blocks))?;
        let snapshots = array(header.snapshots_at, header.snapshots, 8)?.as_chunks::<8>().0;
        let keys = array(header.keys_at, header.key_area_bytes, 1)?;
        let key = |at: u32, length: u32| -> Result<Vec<u8>, Malformed> {
            let end = (at as usize).checked_add(length as usize);
            Ok(end.and_then(|end| keys.get(at as usize..end)).ok_or_else(short)?.to_vec())
        };
        let mut spans_left = array(header.spans_at, header.spans, Span::BYTES)?;
        let mut below = Vec::new();
        while let Some(span) = Span::take(&mut spans_left) {
            below
                .push(KeySpan { begin: key(span.begin_at, span.begin_bytes)?, end: key(span.end_at, span.end_bytes)? });
        }
        let lower = Some(key(0, header.lower_bytes)?).filter(|lower| !lower.is_empty());
        let upper = match header.upper_bytes {
            u32::MAX => None,
            length => Some(key(header.lower_bytes, length)?),
        };
        let rules = DeviceRules {
            range: KeyRange { lower, upper },
            snapshots: snapshots.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
            below,
            below_all: header.flags & FLAG_BELOW_ALL != 0,
            lz4: header.codec == CODEC_LZ4,
            block_bytes: header.block_bytes,
            restart_interval: header.restart_interval,
            key_bytes_max: header.key_bytes_max,
            value_bytes_max: header.value_bytes_max,
            shared_prefix_bytes: header.shared_prefix_bytes,
            entries_max: header.entries_max,
            emit_from: header.emit_from,
            emit_bytes_max: header.emit_bytes_max,
        };
        let task = DeviceTask {
            rules,
            ways,
            data_bytes: header.data_bytes,
            result_bytes_max: header.result_bytes_max,
            result_blocks_max: header.result_blocks_max,
            result_hashes_max: header.result_hashes_max,
        };
        task.check()?;
        Ok(task)
    }
}

/// Deletes, puts and value handles.
const KINDS: u32 = 0b111;

fn check_header(header: &TaskHeader, bytes: &[u8]) -> Result<(), Malformed> {
    rule(header.magic == TASK_MAGIC, || format!("the magic {:02x?}", header.magic))?;
    rule(header.version == VERSION, || format!("version {}", header.version))?;
    rule(header.header_bytes as usize == TaskHeader::BYTES, || format!("a header of {}", header.header_bytes))?;
    rule(header.task_bytes == bytes.len() as u64, || format!("{} bytes, not {}", bytes.len(), header.task_bytes))?;
    let checksum = checksum_of(bytes);
    rule(header.checksum == checksum, || format!("checksum {checksum:#010x}, not {:#010x}", header.checksum))?;
    rule(header.flags & !FLAG_BELOW_ALL == 0 && header.kinds == KINDS, || "flags or kinds".to_owned())?;
    let codec = (header.codec, header.encoder);
    let known = [(CODEC_NONE, 0), (CODEC_LZ4, ENCODER_LZ4_FLEX)];
    rule(known.contains(&codec), || format!("codec and encoder {codec:?}"))
}

/// Returns the checksum of a task's bytes: of all but the field itself.
pub(crate) fn checksum_of(bytes: &[u8]) -> u32 {
    const AT: usize = TaskHeader::BYTES - 8;
    let (head, rest) = bytes.split_at(AT.min(bytes.len()));
    crc32c::crc32c_append(crc32c::crc32c(head), rest.get(4..).unwrap_or_default())
}
