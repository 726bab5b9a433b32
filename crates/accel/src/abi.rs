//! The bytes of a task for a device and of its answer: `docs/formats/accelerator.md` is the description.
//!
//! **Invariants**: all structs here are flat and little-endian. A struct of a version never changes; a change is
//! another [`VERSION`]. Decoders are total ([`crate::DeviceTask::decode`], [`crate::Answer::decode`]).

use crate::flat::flat;

/// The first eight bytes of a task.
pub const TASK_MAGIC: [u8; 8] = *b"situacct";
/// The first eight bytes of an answer.
pub const ANSWER_MAGIC: [u8; 8] = *b"situacca";
/// The version of both.
pub const VERSION: u32 = 1;

/// The longest user key that a task may have.
pub const KEY_BYTES_MAX: u32 = 128;
/// The longest value that a task may have: its length is a varint of two bytes.
pub const VALUE_BYTES_MAX: u32 = (1 << 14) - 1;
/// The longest block, uncompressed, in and out. LZ4's small table has 16-bit positions.
pub const RAW_BLOCK_BYTES_MAX: u32 = u16::MAX as u32 - 1;
/// The largest size at which output blocks are closed.
pub const BLOCK_BYTES_MAX: u32 = 32 << 10;
/// The most ways.
pub const WAYS_MAX: u32 = 16;
/// The most snapshots.
pub const SNAPSHOTS_MAX: u32 = 1024;
/// The longest data area and the longest output, so that offsets fit into 32 bits.
pub const DATA_BYTES_MAX: u64 = 1 << 31;
/// Classes of value lengths in a report: class `c` has the lengths of `c` bits.
pub const VALUE_CLASSES: usize = 16;

/// No compression.
pub const CODEC_NONE: u32 = 0;
/// LZ4 by the encoder [`ENCODER_LZ4_FLEX`].
pub const CODEC_LZ4: u32 = 1;
/// The greedy matcher of lz4_flex 0.14: 4096 slots of 16 bits, the hash of four bytes, steps that grow after 32
/// misses.
pub const ENCODER_LZ4_FLEX: u32 = 1;

/// Older data may lie below any key: all tombstones stay, and no sequence number becomes 0.
pub const FLAG_BELOW_ALL: u32 = 1;

/// A block begins with the first version of a user key.
pub const REPORT_NEW_USER_KEY: u32 = 1;

/// The task was done.
pub const STATUS_OK: u32 = 0;
/// A block's checksum is wrong. The detail is the block.
pub const STATUS_CHECKSUM: u32 = 1;
/// A block cannot be decoded. The detail is the block.
pub const STATUS_BLOCK: u32 = 2;
/// The keys of a way do not ascend, or two ways have one internal key. The detail is an entry.
pub const STATUS_ORDER: u32 = 3;
/// A key, a value or a kind is beyond the task's limits.
pub const STATUS_LIMIT: u32 = 4;
/// The result memory is too small, or there are more entries than the task says.
pub const STATUS_SPACE: u32 = 5;

flat! {
    /// The head of a task. Offsets are from the task's first byte.
    pub struct TaskHeader {
        /// [`TASK_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION`].
        version: u32,
        /// Bytes of this header.
        header_bytes: u32,
        /// Bytes of the task, without the data area.
        task_bytes: u64,
        /// Bytes of the data area, in which input blocks lie.
        data_bytes: u64,
        /// The number of ways; the newest run first.
        ways: u32,
        /// The number of input blocks over all ways.
        blocks: u32,
        /// The number of live snapshots.
        snapshots: u32,
        /// The number of spans of older data.
        spans: u32,
        /// [`FLAG_BELOW_ALL`].
        flags: u32,
        /// [`CODEC_NONE`] or [`CODEC_LZ4`], of output blocks.
        codec: u32,
        /// The encoder of the codec; 0 for none.
        encoder: u32,
        /// The uncompressed size at which an output block is closed.
        block_bytes: u32,
        /// An output block has a whole key every this many entries.
        restart_interval: u32,
        /// The longest user key of the inputs.
        key_bytes_max: u32,
        /// The longest value of the inputs.
        value_bytes_max: u32,
        /// Kinds of entries that may occur, a bit for each.
        kinds: u32,
        /// All user keys of the inputs have this number of first bytes in common. 0 is always right.
        shared_prefix_bytes: u32,
        /// Bytes of the smallest user key that counts; 0 if all do.
        lower_bytes: u32,
        /// Bytes of the user key before which keys count; 0xffff_ffff if all do.
        upper_bytes: u32,
        /// Bytes of all keys of the task: bounds and spans.
        key_area_bytes: u32,
        /// The offset of the ways.
        ways_at: u64,
        /// The offset of the input blocks.
        blocks_at: u64,
        /// The offset of the snapshots: u64 each, ascending.
        snapshots_at: u64,
        /// The offset of the spans, sorted and disjoint.
        spans_at: u64,
        /// The offset of the keys' bytes: lower, upper, then those of the spans.
        keys_at: u64,
        /// The most entries that the input blocks have together.
        entries_max: u64,
        /// The ordinal, among the entries that the merge keeps, of the first one that is written.
        emit_from: u64,
        /// No block begins when blocks of this many uncompressed bytes have been written.
        emit_bytes_max: u64,
        /// Bytes of result memory for blocks.
        result_bytes_max: u64,
        /// Result memory for this many reports.
        result_blocks_max: u32,
        /// Result memory for this many filter hashes.
        result_hashes_max: u32,
        /// CRC-32C of all of the task but this field.
        checksum: u32,
        /// 0.
        zero: u32,
    }
}

flat! {
    /// One way: input blocks that follow each other in key order.
    pub struct Way {
        /// The number of its first block.
        first_block: u32,
        /// The number of its blocks, which may be 0.
        blocks: u32,
    }
}

flat! {
    /// An input block.
    pub struct InputBlock {
        /// The offset in the data area.
        at: u64,
        /// The block as stored, with its trailer.
        stored_bytes: u32,
        /// The block uncompressed: entries, restarts, count.
        raw_bytes: u32,
        /// The bytes of its entries; 0 if the host does not know them.
        entry_bytes: u32,
        /// 0.
        zero: u32,
    }
}

flat! {
    /// User keys below which older data lies: from the first to before the second. Offsets are from `keys_at`.
    pub struct Span {
        /// The first key.
        begin_at: u32,
        /// Its length.
        begin_bytes: u32,
        /// The key behind the last one.
        end_at: u32,
        /// Its length.
        end_bytes: u32,
    }
}

flat! {
    /// The head of an answer.
    pub struct AnswerHeader {
        /// [`ANSWER_MAGIC`].
        magic: [u8; 8],
        /// [`VERSION`].
        version: u32,
        /// How it went: [`STATUS_OK`] or what was wrong.
        status: u32,
        /// The place of what was wrong.
        detail: u64,
        /// Entries of the inputs in the task's range.
        entries_in: u64,
        /// Entries that the merge keeps, written or not.
        entries_kept: u64,
        /// Versions that no snapshot sees.
        dropped_hidden: u64,
        /// Tombstones that hide nothing.
        dropped_tombstones: u64,
        /// Entries whose sequence number became 0.
        sequences_zeroed: u64,
        /// The ordinal of the first kept entry that was not written.
        emitted_to: u64,
        /// Bytes of the output blocks.
        data_bytes: u64,
        /// Output blocks, each with a report.
        blocks: u32,
        /// Filter hashes.
        hashes: u32,
        /// A key of a report takes this many bytes.
        key_stride: u32,
        /// CRC-32C of this header with 0 in this field.
        checksum: u32,
    }
}

flat! {
    /// The report of an output block: all that a table's writer has to know of it.
    pub struct BlockReport {
        /// The offset among the output blocks.
        at: u64,
        /// The block as stored, with its trailer.
        stored_bytes: u32,
        /// The block uncompressed.
        raw_bytes: u32,
        /// Entries.
        entries: u32,
        /// Tombstones among them.
        deletions: u32,
        /// The offset of the first user key in the key area.
        first_key_at: u32,
        /// The offset of the last one.
        last_key_at: u32,
        /// The length of the first user key.
        first_key_bytes: u16,
        /// The length of the last one.
        last_key_bytes: u16,
        /// [`REPORT_NEW_USER_KEY`].
        flags: u32,
        /// The trailer of the first entry.
        first_trailer: u64,
        /// The trailer of the last entry.
        last_trailer: u64,
        /// The smallest sequence number.
        smallest_sequence: u64,
        /// The largest sequence number.
        largest_sequence: u64,
        /// The ordinal of the first entry among those that the merge keeps.
        first_entry: u64,
        /// The number of its first filter hash.
        first_hash: u32,
        /// Filter hashes: one for each user key whose first version lies in the block.
        hashes: u32,
        /// Bytes of user keys and trailers, before prefixes are shared.
        key_bytes: u32,
        /// Bytes of values.
        value_bytes: u32,
        /// The longest user key.
        longest_key: u32,
        /// The longest value.
        longest_value: u32,
        /// The block's checksum, as in its trailer.
        checksum: u32,
        /// The checksum of its two keys in the key area, zeros included.
        keys_checksum: u32,
        /// The checksum of its filter hashes.
        hashes_checksum: u32,
        /// The checksum of this report with 0 in this field.
        report_checksum: u32,
        /// Entries by the number of bits of their values' lengths.
        value_classes: [u16; 16],
    }
}
