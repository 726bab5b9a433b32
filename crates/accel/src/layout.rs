//! The device memory of a task: one arena, from its front the bytes that the host sends, then everything else.
//!
//! ```text
//! sent:     data | head: counters, tables of CRC-32C, slots, task
//! on the device only: entries as tuples, keys, ranks, cuts, blocks while they are made
//! answered: header | reports | hashes | keys | data
//! ```
//!
//! [`Params`] is what every kernel gets: addresses, which are offsets in the arena until [`Params::placed`] adds where
//! it lies, and a few numbers. **Invariants**: every list has space for the most items that the task allows, so a
//! kernel needs to check only the counts that data decides.

use crate::abi::*;
use crate::flat::flat;
use crate::task::DeviceTask;
#[cfg(any(feature = "cuda", feature = "opencl"))]
use crate::task::Malformed;

flat! {
    /// The parameters of every kernel.
    pub struct Params {
        counters: u64,
        crc_tables: u64,
        slots: u64,
        task: u64,
        data: u64,
        scratch: u64,
        block_raw: u64,
        block_restarts: u64,
        block_interval: u64,
        interval_block: u64,
        interval_entries: u64,
        interval_entry: u64,
        notes: u64,
        heads: u64,
        trailers: u64,
        values: u64,
        lengths: u64,
        keys: u64,
        order: u64,
        keep: u64,
        keep_at: u64,
        new_trailers: u64,
        kept: u64,
        kept_trailers: u64,
        sizes: u64,
        small_at: u64,
        new_key: u64,
        hash_at: u64,
        next: u64,
        raw: u64,
        exits: u64,
        exit_blocks: u64,
        group_exits: u64,
        group_exit_blocks: u64,
        chunk_start: u64,
        chunk_block: u64,
        group_start: u64,
        group_block: u64,
        block_start: u64,
        out_raw: u64,
        out_raw_at: u64,
        out_stored: u64,
        out_packed: u64,
        out_at: u64,
        tile_sums: u64,
        slot_area: u64,
        answer: u64,
        reports: u64,
        hashes: u64,
        out_keys: u64,
        out_data: u64,
        key_stride: u32,
        intervals_max: u32,
        block_space: u32,
        zero: u32,
    }
}

/// LZ4's table of 4096 positions of 16 bits.
pub(crate) const LZ4_TABLE_BYTES: u32 = 8192;

/// How many fields of [`Params`], from the first, are addresses.
const ADDRESSES: usize = 51;

flat! {
    /// Numbers that only the device knows while a task runs.
    pub struct Counters {
        status: u32,
        intervals: u32,
        entries: u32,
        kept: u32,
        chain: u32,
        out: u32,
        chunk: u32,
        block_entries_max: u32,
        emit_from: u32,
        emitted_to: u32,
        data_bytes: u32,
        zero: u32,
        detail: u64,
        entries_in: u32,
        hidden: u32,
        tombstones: u32,
        zeroed: u32,
        way_entry: [u32; 16],
    }
}

/// The places of a task's lists in the arena.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Addresses are offsets in the arena.
    pub params: Params,
    /// The offset of the head, behind the data.
    pub head_at: u64,
    /// Bytes of the head. The host sends data and head.
    pub head_bytes: u64,
    /// The whole arena.
    pub bytes: u64,
    /// Shared memory of a warp that makes a block: the block, and LZ4's table.
    pub own_bytes: u32,
}

/// The places of an answer's parts in the arena: offsets and lengths.
#[cfg(any(feature = "cuda", feature = "opencl"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerParts {
    /// Header, reports, hashes, keys: the report, in its order.
    pub(crate) report: [(usize, usize); 4],
    /// The output blocks.
    pub(crate) data: (usize, usize),
}

#[cfg(any(feature = "cuda", feature = "opencl"))]
impl AnswerParts {
    /// Returns the bytes of the report.
    pub(crate) fn report_bytes(&self) -> usize {
        self.report.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Gives out space, aligned for any access.
struct Space(u64);

impl Space {
    fn take(&mut self, items: u64, width: u64) -> u64 {
        let at = self.0;
        // Words are read where bytes are meant: a little more than is asked for.
        self.0 = (at + items * width + 16).next_multiple_of(256);
        at
    }
}

impl Layout {
    /// Lays out the memory of a task.
    pub fn of(task: &DeviceTask) -> Layout {
        let rules = &task.rules;
        let stride = task.key_stride();
        let in_blocks = task.blocks().count() as u64;
        let raw_bytes: u64 = task.blocks().map(|block| u64::from(block.raw_bytes)).sum();
        let entries = rules.entries_max;
        // An interval has an entry of 11 bytes or more, and a restart of 4.
        let intervals = (raw_bytes / 15 + 1).min(entries);
        let out_blocks = u64::from(task.result_blocks_max);
        let slots = task.result_bytes_max + 48 * out_blocks;
        // A block is as long as the limit, or has one entry.
        let block_space =
            (rules.block_bytes.max(rules.key_bytes_max + rules.value_bytes_max + 32) + 16).next_multiple_of(16);
        let own_bytes = block_space + if rules.lz4 { LZ4_TABLE_BYTES } else { 0 };
        let mut space = Space(0);
        let params = Params {
            data: space.take(task.data_bytes, 1),
            counters: space.take(1, Counters::BYTES as u64),
            crc_tables: space.take(6 * 1024, 4),
            slots: space.take(in_blocks, 4),
            task: space.take(task.encoded_bytes(), 1),
            ..Params::default()
        };
        let (head_at, head_bytes) = (params.counters, space.0 - params.counters);
        let mut list = |items: u64, width: u64| space.take(items, width);
        let params = Params {
            scratch: list(raw_bytes + 32 * in_blocks, 1),
            block_raw: list(in_blocks, 8),
            block_restarts: list(in_blocks, 4),
            block_interval: list(in_blocks + 1, 4),
            interval_block: list(intervals, 4),
            interval_entries: list(intervals, 4),
            interval_entry: list(intervals + 1, 4),
            notes: list(entries, 4),
            heads: list(entries, 8),
            trailers: list(entries, 8),
            values: list(entries, 8),
            lengths: list(entries, 4),
            keys: list(entries, u64::from(stride)),
            order: list(entries, 4),
            keep: list(entries, 4),
            keep_at: list(entries + 1, 4),
            new_trailers: list(entries, 8),
            kept: list(entries, 4),
            kept_trailers: list(entries, 8),
            sizes: list(entries, 4),
            small_at: list(entries + 1, 4),
            new_key: list(entries, 4),
            hash_at: list(entries + 1, 4),
            next: list(entries, 4),
            raw: list(entries, 4),
            exits: list(entries, 4),
            exit_blocks: list(entries, 4),
            group_exits: list(entries, 4),
            group_exit_blocks: list(entries, 4),
            chunk_start: list(entries / 32 + 2, 4),
            chunk_block: list(entries / 32 + 2, 4),
            group_start: list(entries / 1024 + 2, 4),
            group_block: list(entries / 1024 + 2, 4),
            block_start: list(out_blocks, 4),
            out_raw: list(out_blocks, 4),
            out_raw_at: list(out_blocks + 1, 4),
            out_stored: list(out_blocks, 4),
            out_packed: list(out_blocks, 4),
            out_at: list(out_blocks + 1, 4),
            tile_sums: list(entries.max(in_blocks).max(out_blocks) / 2048 + 2, 4),
            slot_area: list(slots, 1),
            answer: list(AnswerHeader::BYTES as u64, 1),
            reports: list(out_blocks, BlockReport::BYTES as u64),
            hashes: list(u64::from(task.result_hashes_max), 8),
            out_keys: list(2 * out_blocks, u64::from(stride)),
            out_data: list(task.result_bytes_max, 1),
            key_stride: stride,
            intervals_max: intervals as u32,
            block_space,
            ..params
        };
        Layout { params, head_at, head_bytes, bytes: space.0, own_bytes }
    }

    /// Returns the places of the answer that begins with `head`.
    ///
    /// # Errors
    /// `head` is not an answer's, or says more than there is space for.
    #[cfg(any(feature = "cuda", feature = "opencl"))]
    pub(crate) fn answer_parts(&self, mut head: &[u8]) -> Result<AnswerParts, Malformed> {
        let header = AnswerHeader::take(&mut head)
            .filter(|header| header.magic == ANSWER_MAGIC)
            .ok_or_else(|| Malformed("no magic".to_owned()))?;
        let (params, blocks) = (&self.params, header.blocks as usize);
        let parts = AnswerParts {
            report: [
                (params.answer as usize, AnswerHeader::BYTES),
                (params.reports as usize, blocks * BlockReport::BYTES),
                (params.hashes as usize, header.hashes as usize * 8),
                (params.out_keys as usize, (blocks * 2).saturating_mul(header.key_stride as usize)),
            ],
            data: (params.out_data as usize, header.data_bytes as usize),
        };
        // The parts lie one behind the other in the arena, the data last.
        let is_inside = |(at, bytes): &(usize, usize)| at.saturating_add(*bytes) <= self.bytes as usize;
        match parts.report.iter().all(is_inside) && is_inside(&parts.data) {
            true => Ok(parts),
            false => Err(Malformed(format!("{header:?}"))),
        }
    }

    /// Writes the head into `head`, which begins at its place in the arena.
    ///
    /// # Panics
    /// `head` is shorter than the head.
    pub fn write_head(&self, task: &DeviceTask, head: &mut [u8]) {
        let params = &self.params;
        head[..self.head_bytes as usize].fill(0);
        let mut put =
            |at: u64, bytes: &[u8]| head[(at - self.head_at) as usize..][..bytes.len()].copy_from_slice(bytes);
        let tables: Vec<u8> = crc_tables().iter().flat_map(|word| word.to_le_bytes()).collect();
        put(params.crc_tables, &tables);
        let (mut slot, mut slots) = (0u64, Vec::new());
        for block in task.blocks() {
            slots.extend_from_slice(&((slot / 16) as u32).to_le_bytes());
            slot += u64::from(block.raw_bytes + 8).next_multiple_of(16);
        }
        put(params.slots, &slots);
        put(params.task, &task.encode());
    }
}

impl Params {
    /// Returns the parameters of an arena that lies at `base`, as bytes for a kernel.
    pub fn placed(&self, base: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Params::BYTES);
        self.put(&mut bytes);
        for address in bytes[..8 * ADDRESSES].as_chunks_mut::<8>().0 {
            *address = (u64::from_le_bytes(*address) + base).to_le_bytes();
        }
        bytes
    }
}

/// Returns the tables that advance a register of CRC-32C by 4, 8, 16, 32, 64 and 128 bytes of zeros, four of 256 words
/// each: one for each byte of the register.
fn crc_tables() -> Vec<u32> {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let one = |mut register: u32, bits: u32| {
        for _ in 0..bits {
            let carry = register & 1;
            register = (register >> 1) ^ (REVERSED_POLYNOMIAL * carry);
        }
        register
    };
    let mut tables = Vec::with_capacity(6 * 1024);
    for step in 0..6 {
        // The register is linear: a byte's word is the sum of its bits' words.
        let bits: Vec<u32> = (0..32).map(|bit| one(1 << bit, 32 << step)).collect();
        for byte in 0..4 {
            let sum =
                |value: u32| (0..8).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ bits[8 * byte + bit]);
            tables.extend((0..256).map(sum));
        }
    }
    tables
}

/// Returns the text in C of all that kernels and host share.
pub(crate) fn shared_text() -> String {
    let mut text = String::new();
    for part in [
        TaskHeader::c_text(),
        Way::c_text(),
        InputBlock::c_text(),
        Span::c_text(),
        AnswerHeader::c_text(),
        BlockReport::c_text(),
        Params::c_text(),
        Counters::c_text(),
    ] {
        text.push_str(&part);
    }
    for (name, value) in [
        ("STATUS_CHECKSUM", STATUS_CHECKSUM),
        ("STATUS_BLOCK", STATUS_BLOCK),
        ("STATUS_ORDER", STATUS_ORDER),
        ("STATUS_LIMIT", STATUS_LIMIT),
        ("STATUS_SPACE", STATUS_SPACE),
        ("FLAG_BELOW_ALL", FLAG_BELOW_ALL),
        ("REPORT_NEW_USER_KEY", REPORT_NEW_USER_KEY),
    ] {
        text.push_str(&format!("#define {name} {value}u\n"));
    }
    text.push_str(&format!("#define ADDRESSES {ADDRESSES}\n"));
    text.push_str(&format!("#define ANSWER_MAGIC {:#x}\n", u64::from_le_bytes(ANSWER_MAGIC)));
    text
}

#[cfg(all(test, any(feature = "cuda", feature = "opencl")))]
mod tests {
    use super::*;
    use crate::task::DeviceRules;
    use situ_compaction::KeyRange;

    #[test]
    fn an_answer_with_lengths_beyond_the_arena_is_refused() {
        let rules = DeviceRules {
            range: KeyRange::all(),
            snapshots: Vec::new(),
            below: Vec::new(),
            below_all: false,
            lz4: false,
            block_bytes: 4096,
            restart_interval: 16,
            key_bytes_max: 16,
            value_bytes_max: 100,
            shared_prefix_bytes: 0,
            entries_max: 10,
            emit_from: 0,
            emit_bytes_max: u64::MAX,
        };
        let block = InputBlock { stored_bytes: 1000, raw_bytes: 995, ..InputBlock::default() };
        let layout = Layout::of(&DeviceTask::new(rules, vec![vec![block]], 1000).unwrap());
        let parts = |header: AnswerHeader| {
            let mut head = Vec::new();
            AnswerHeader { magic: ANSWER_MAGIC, ..header }.put(&mut head);
            layout.answer_parts(&head)
        };
        let sound = AnswerHeader { blocks: 1, hashes: 10, key_stride: 16, data_bytes: 900, ..AnswerHeader::default() };
        assert_eq!(parts(sound).unwrap().data.1, 900);
        for wrong in [
            AnswerHeader { data_bytes: u64::MAX, ..sound },
            AnswerHeader { blocks: u32::MAX, key_stride: u32::MAX, ..sound },
            AnswerHeader { blocks: 1 << 31, key_stride: 1 << 31, ..sound },
            AnswerHeader { hashes: u32::MAX, ..sound },
        ] {
            assert!(parts(wrong).is_err(), "{wrong:?}");
        }
    }
}
