//! The bytes of a table file that are not inside a block: header, block trailers, handles, footer, numbers.
//!
//! The page `docs/formats/table.md` is the description; a test reads its tables against the constants here.
//!
//! **Invariants**: decoders are total. A length read from disk is compared with the file's before anything is
//! allocated. Every byte of a file lies under a checksum or is compared with a constant.

use crate::key::{KeyRef, Trailer};
use situ_base::bytes::{u32_at, u64_at};
use situ_storage::Error;

const _: () = assert!(usize::BITS == 64, "offsets and lengths of blocks are computed in usize");

/// The first eight bytes of a table file.
pub const HEADER_MAGIC: [u8; 8] = *b"SITUtbl\x01";
/// The last eight bytes of a table file.
pub const FOOTER_MAGIC: [u8; 8] = *b"\x01lbtUTIS";
/// The format that this code writes, and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes before the first block: magic, version, checksum.
pub const HEADER_BYTES: usize = 16;
/// Bytes behind the last block.
pub const FOOTER_BYTES: usize = 80;
/// Bytes behind each block: compression (1), CRC-32C of the block and that byte (4).
pub const BLOCK_TRAILER_BYTES: usize = 5;
/// Bytes of an encoded [`BlockHandle`].
pub const HANDLE_BYTES: usize = 12;
/// Bytes of an internal key's trailer.
pub const KEY_TRAILER_BYTES: usize = 8;
/// The longest user key.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// The longest value.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// The longest block, uncompressed: one entry of the longest key and value, or many short ones.
pub const MAX_BLOCK_BYTES: usize = MAX_VALUE_BYTES + MAX_KEY_BYTES + (64 << 10);

/// The block is stored as it is.
pub const COMPRESSION_NONE: u8 = 0;
/// The block is its uncompressed length (4 bytes), then an LZ4 block.
pub const COMPRESSION_LZ4: u8 = 1;
/// The block is its uncompressed length (4 bytes), then a Zstandard frame.
pub const COMPRESSION_ZSTD: u8 = 2;

/// Bytes that are not what a table holds there; the caller knows the file and the offset.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) expected: String,
    pub(crate) found: String,
    /// The size of a failed allocation. The bytes may be sound then.
    pub(crate) no_memory: Option<usize>,
}

impl Damage {
    pub(crate) fn new(expected: impl ToString, found: impl ToString) -> Damage {
        Damage { expected: expected.to_string(), found: found.to_string(), no_memory: None }
    }

    pub(crate) fn no_memory(bytes: usize) -> Damage {
        Damage { no_memory: Some(bytes), ..Damage::new(format!("memory for {bytes} bytes"), "none") }
    }

    /// Returns the error of a reader that found the damage in `file`.
    pub(crate) fn error(self, file: &str, offset: u64, what: &str) -> Error {
        match self.no_memory {
            Some(bytes) => Error::out_of_memory(bytes, format_args!("the {what} at byte {offset} of {file}")),
            None => Error::corruption(file, offset, what, self.expected, self.found),
        }
    }
}

/// The place of a block in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Its first byte in the file.
    pub offset: u64,
    /// The block as stored, without its trailer.
    pub bytes: u32,
}

impl BlockHandle {
    pub(crate) fn encode(self) -> [u8; HANDLE_BYTES] {
        let mut out = [0; HANDLE_BYTES];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    #[inline]
    pub(crate) fn decode(bytes: &[u8; HANDLE_BYTES]) -> BlockHandle {
        let (offset, length) = bytes.split_at(8);
        BlockHandle { offset: u64_at(offset, 0), bytes: u32_at(length, 0) }
    }

    /// Returns the block with its trailer.
    #[inline]
    pub fn stored_bytes(self) -> u64 {
        u64::from(self.bytes) + BLOCK_TRAILER_BYTES as u64
    }

    /// Returns the first byte behind the trailer, if that is a number at all.
    #[inline]
    pub(crate) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.stored_bytes())
    }

    /// Returns true if there is no such block.
    pub(crate) fn is_absent(self) -> bool {
        self.bytes == 0
    }
}

/// Returns the first bytes of every table file.
pub(crate) fn header() -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&HEADER_MAGIC);
    out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&out[..12]);
    out[12..].copy_from_slice(&checksum.to_le_bytes());
    out
}

/// The last [`FOOTER_BYTES`] of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) filter: BlockHandle,
    pub(crate) range_tombstones: BlockHandle,
    pub(crate) properties: BlockHandle,
    pub(crate) index: BlockHandle,
    /// 1: `index` points to data blocks. 2: it points to index blocks.
    pub(crate) index_levels: u8,
    pub(crate) file_bytes: u64,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[0..12].copy_from_slice(&self.filter.encode());
        out[12..24].copy_from_slice(&self.range_tombstones.encode());
        out[24..36].copy_from_slice(&self.properties.encode());
        out[36..48].copy_from_slice(&self.index.encode());
        out[48] = self.index_levels;
        out[56..64].copy_from_slice(&self.file_bytes.to_le_bytes());
        out[64..68].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let checksum = crc32c::crc32c(&out[..68]);
        out[68..72].copy_from_slice(&checksum.to_le_bytes());
        out[72..80].copy_from_slice(&FOOTER_MAGIC);
        out
    }

    /// Checks magic, version, checksum, length and that every block lies between header and footer.
    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<Footer, Damage> {
        if bytes[72..] != FOOTER_MAGIC {
            return Err(Damage::new("the magic number of a table", format!("{:02x?}", &bytes[72..])));
        }
        let version = u32_at(bytes, 64);
        if version != FORMAT_VERSION {
            return Err(Damage::new(format!("format version {FORMAT_VERSION}"), format!("version {version}")));
        }
        let (want, found) = (crc32c::crc32c(&bytes[..68]), u32_at(bytes, 68));
        if want != found {
            return Err(Damage::new(format!("checksum {want:#010x}"), format!("{found:#010x}")));
        }
        let handle = |at: usize| BlockHandle { offset: u64_at(bytes, at), bytes: u32_at(bytes, at + 8) };
        let footer = Footer {
            filter: handle(0),
            range_tombstones: handle(12),
            properties: handle(24),
            index: handle(36),
            index_levels: bytes[48],
            file_bytes: u64_at(bytes, 56),
        };
        if footer.file_bytes != file_bytes {
            let found = format!("a file of {file_bytes}");
            return Err(Damage::new(format!("a file of {} bytes", footer.file_bytes), found));
        }
        if !(1..=2).contains(&footer.index_levels) || bytes[49..56] != [0; 7] {
            return Err(Damage::new("an index of 1 or 2 levels and zeros", format!("{:02x?}", &bytes[48..56])));
        }
        if footer.properties.is_absent() || footer.index.is_absent() {
            return Err(Damage::new("properties and an index", "a table without"));
        }
        let blocks_end = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        for handle in [footer.filter, footer.range_tombstones, footer.properties, footer.index] {
            let inside = handle.offset >= HEADER_BYTES as u64 && handle.end().is_some_and(|end| end <= blocks_end);
            if !handle.is_absent() && !inside {
                return Err(Damage::new(format!("a block that ends before {blocks_end}"), format!("{handle:?}")));
            }
        }
        Ok(footer)
    }
}

/// Returns the number of bytes of the varint of this value.
#[inline]
pub(crate) fn varint_bytes(value: u32) -> usize {
    (38 - (value | 1).leading_zeros() as usize) / 7
}

/// Returns a varint of at most 32 bits, and its length. Blocks are decoded with it, so it moves no slice along.
#[inline]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Some((u32::try_from(value).ok()?, i + 1));
        }
    }
    None
}

/// Returns the number of leading bytes that two slices have in common.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (left, right) = (a.chunks_exact(8), b.chunks_exact(8));
    let mut at = 0;
    for (x, y) in left.zip(right) {
        let difference = u64_at(x, 0) ^ u64_at(y, 0);
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// Writes into `out` the shortest internal key that is at or behind `last`, the last key of a block, and before
/// `next`, the first key of the following one; `shared` is what their user keys have in common.
pub(crate) fn separator(last: KeyRef<'_>, next: KeyRef<'_>, shared: usize, out: &mut Vec<u8>) {
    out.clear();
    match next.user.get(..=shared) {
        // The prefix that ends with the first differing byte sorts behind `last`, and with the newest trailer before
        // `next` even if it is all of it.
        Some(prefix) => KeyRef::new(prefix, Trailer::NEWEST).encode_into(out),
        // Two versions of one key: only the trailer tells them apart.
        None => last.encode_into(out),
    }
}

#[cfg(test)]
mod tests;
