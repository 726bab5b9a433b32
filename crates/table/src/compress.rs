//! From a block to the bytes that are stored, and back.
//!
//! Writing: 1. compress into a reused buffer; 2. keep that only if it is smaller by an eighth, the length in front
//! included; 3. append the compression and the checksum over both.
//! Reading: 1. the checksum, before any byte is believed; 2. the uncompressed length against the limits; 3. decompress
//! into memory of exactly that size; it must be filled.
//!
//! **Invariants**: what is written depends on the block and the options only, not on earlier blocks.
//! **Threads**: decompression state is per thread and holds nothing between calls.

use crate::block::{EncodedBlock, RawBlock};
use crate::format::{
    BLOCK_TRAILER_BYTES, COMPRESSION_LZ4, COMPRESSION_NONE, COMPRESSION_ZSTD, Damage, MAX_BLOCK_BYTES,
};
use crate::options::Compression;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use situ_base::bytes::u32_at;
use situ_device::memory::resize;
use situ_storage::{Error, Result};
use std::cell::Cell;

/// LZ4's small match table has 16-bit positions.
const LZ4_SMALL_INPUT_BYTES: usize = u16::MAX as usize;
/// An LZ4 sequence gives at most this many bytes per input byte.
const LZ4_RATIO_MAX: usize = 255;
/// The memory that an encoder keeps between blocks.
const COMPRESSED_KEPT_BYTES: usize = 1 << 20;
/// The scratch memory that a thread keeps between reads.
const SCRATCH_KEPT_BYTES: usize = 256 << 10;

enum Encoder {
    None,
    Lz4 { small: CompressTable, large: Option<CompressTable> },
    Zstd(zstd::bulk::Compressor<'static>),
}

/// Turns blocks into stored bytes: the middle part of [writing](crate::TableWriter) a table. The output depends on the
/// block and the compression alone, so any number of encoders may share the blocks of a table.
pub struct BlockEncoder {
    encoder: Encoder,
    compressed: Vec<u8>,
}

impl BlockEncoder {
    /// Creates an encoder for tables of this compression.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the compression has no such level.
    pub fn new(compression: Compression) -> Result<BlockEncoder> {
        let encoder = match compression {
            Compression::None => Encoder::None,
            Compression::Lz4 => Encoder::Lz4 { small: CompressTable::small(), large: None },
            Compression::Zstd { level } => {
                let make = zstd::bulk::Compressor::new(level);
                Encoder::Zstd(make.map_err(|e| Error::Invalid(format!("Zstandard refuses level {level}: {e}")))?)
            }
        };
        Ok(BlockEncoder { encoder, compressed: Vec::new() })
    }

    /// Returns the block as it is to be stored. A block that was built elsewhere is encoded already.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn encode(&mut self, mut block: RawBlock) -> Result<EncodedBlock> {
        if block.0.built.is_some() {
            return Ok(EncodedBlock { block, is_compressed: true });
        }
        let parts = &mut *block.0;
        let (kind, payload) = self.compress(&parts.bytes)?;
        let is_compressed = kind != COMPRESSION_NONE;
        if is_compressed {
            parts.stored.clear();
            frame(&mut parts.stored, parts.bytes.len(), kind, payload)?;
        } else {
            seal(&mut parts.bytes, 0, kind);
        }
        Ok(EncodedBlock { block, is_compressed })
    }

    /// Appends `block` as it is to be stored, with its trailer; returns the stored length without the trailer.
    ///
    /// # Errors
    /// As [`encode`](BlockEncoder::encode).
    pub(crate) fn store(&mut self, block: &[u8], out: &mut Vec<u8>) -> Result<usize> {
        let (kind, payload) = self.compress(block)?;
        frame(out, block.len(), kind, payload)
    }

    fn compress<'a>(&'a mut self, block: &'a [u8]) -> Result<(u8, &'a [u8])> {
        let BlockEncoder { encoder, compressed } = self;
        let bound = match encoder {
            Encoder::None => return Ok((COMPRESSION_NONE, block)),
            Encoder::Lz4 { .. } => get_maximum_output_size(block.len()),
            Encoder::Zstd(_) => zstd::zstd_safe::compress_bound(block.len()),
        };
        // The memory of a block that was larger than all others is not kept.
        if compressed.len() > COMPRESSED_KEPT_BYTES.max(bound) {
            *compressed = Vec::new();
        }
        if compressed.len() < bound && !resize(compressed, bound) {
            return Err(Error::out_of_memory(bound, "compressing a block of a table"));
        }
        let (kind, bytes) = match encoder {
            Encoder::None => return Ok((COMPRESSION_NONE, block)),
            Encoder::Lz4 { small, large } => {
                let table = match block.len() < LZ4_SMALL_INPUT_BYTES {
                    true => small,
                    false => large.get_or_insert_with(CompressTable::large),
                };
                (COMPRESSION_LZ4, compress_into_with_table(block, compressed, table).ok())
            }
            Encoder::Zstd(zstd) => (COMPRESSION_ZSTD, zstd.compress_to_buffer(block, &mut compressed[..]).ok()),
        };
        // A compressor that fails in a buffer of its own bound has nothing to offer; the block itself always does.
        Ok(match bytes.and_then(|bytes| compressed.get(..bytes)) {
            Some(payload) if payload.len() + 4 <= block.len() - block.len() / 8 => (kind, payload),
            _ => (COMPRESSION_NONE, block),
        })
    }
}

impl std::fmt::Debug for BlockEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.encoder {
            Encoder::None => "BlockEncoder(none)",
            Encoder::Lz4 { .. } => "BlockEncoder(LZ4)",
            Encoder::Zstd(_) => "BlockEncoder(Zstandard)",
        })
    }
}

/// Appends a block's stored form: its length if it is compressed, the payload, the trailer. Returns the stored length
/// without the trailer.
fn frame(out: &mut Vec<u8>, block_bytes: usize, kind: u8, payload: &[u8]) -> Result<usize> {
    let start = out.len();
    let bytes = payload.len() + 4 + BLOCK_TRAILER_BYTES;
    if out.try_reserve(bytes).is_err() {
        return Err(Error::out_of_memory(bytes, "a compressed block of a table"));
    }
    if kind != COMPRESSION_NONE {
        out.extend_from_slice(&(block_bytes as u32).to_le_bytes());
    }
    out.extend_from_slice(payload);
    Ok(seal(out, start, kind))
}

/// Appends the trailer to the stored block that begins at `start`; returns its length without the trailer.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, kind: u8) -> usize {
    let bytes = out.len() - start;
    out.push(kind);
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Splits a stored block into its compression and what is before the trailer, checking the checksum if asked.
fn open(stored: &[u8], verify: bool) -> Result<(u8, &[u8]), Damage> {
    let Some((rest, trailer)) = stored.split_last_chunk::<4>() else {
        return Err(Damage::new("a block trailer", format!("{} bytes", stored.len())));
    };
    let Some((kind, payload)) = rest.split_last() else {
        return Err(Damage::new("a block trailer", format!("{} bytes", stored.len())));
    };
    if verify {
        let (want, found) = (u32::from_le_bytes(*trailer), crc32c::crc32c(rest));
        if want != found {
            return Err(Damage::new(format!("checksum {want:#010x}"), format!("{found:#010x}")));
        }
    }
    Ok((*kind, payload))
}

/// Returns the length that the block in `stored` claims, and at most the maximum of a block. A hint: nothing was
/// checked.
pub(crate) fn uncompressed_bytes(stored: &[u8]) -> usize {
    match stored {
        [.., kind, _, _, _, _] if *kind != COMPRESSION_NONE && stored.len() >= 4 + BLOCK_TRAILER_BYTES => {
            (u32_at(stored, 0) as usize).min(MAX_BLOCK_BYTES)
        }
        _ => stored.len().saturating_sub(BLOCK_TRAILER_BYTES),
    }
}

/// Turns a stored block with its trailer into the block, in `out`, whose memory is reused.
pub(crate) fn decode_into(stored: &[u8], verify: bool, out: &mut Vec<u8>) -> Result<(), Damage> {
    let (kind, payload) = open(stored, verify)?;
    out.clear();
    if kind == COMPRESSION_NONE {
        out.try_reserve(payload.len()).map_err(|_| Damage::no_memory(payload.len()))?;
        out.extend_from_slice(payload);
        return Ok(());
    }
    let Some((_, packed)) = payload.split_first_chunk::<4>() else {
        return Err(Damage::new("an uncompressed length", format!("{} bytes", payload.len())));
    };
    let length = u32_at(payload, 0) as usize;
    let limit = match kind {
        COMPRESSION_LZ4 => MAX_BLOCK_BYTES.min(packed.len().saturating_mul(LZ4_RATIO_MAX)),
        COMPRESSION_ZSTD => MAX_BLOCK_BYTES,
        _ => return Err(Damage::new("compression 0, 1 or 2", kind)),
    };
    if length > limit {
        return Err(Damage::new(format!("an uncompressed length of at most {limit}"), length));
    }
    let wrong = |e: &dyn std::fmt::Display| Damage::new(format!("{length} compressed bytes"), e);
    let filled = if kind == COMPRESSION_LZ4 {
        if !resize(out, length) {
            return Err(Damage::no_memory(length));
        }
        decompress_into(packed, out).map_err(|e| wrong(&e))?
    } else {
        // Zstandard writes into reserved memory: no zeros first.
        out.try_reserve_exact(length).map_err(|_| Damage::no_memory(length))?;
        ZSTD.with(|slot| {
            let mut zstd = match slot.take() {
                Some(zstd) => zstd,
                None => zstd::bulk::Decompressor::new().map_err(|e| wrong(&e))?,
            };
            let filled = zstd.decompress_to_buffer(packed, out).map_err(|e| wrong(&e));
            slot.set(Some(zstd));
            filled
        })?
    };
    if filled != length || out.len() != length {
        return Err(Damage::new(format!("{length} uncompressed bytes"), filled));
    }
    Ok(())
}

/// Like [`decode_into`], for a stored block in memory of its own: an uncompressed one stays where it is.
pub(crate) fn decode_owned(mut stored: Vec<u8>, verify: bool) -> Result<Vec<u8>, Damage> {
    let (kind, payload) = open(&stored, verify)?;
    if kind == COMPRESSION_NONE {
        let bytes = payload.len();
        stored.truncate(bytes);
        return Ok(stored);
    }
    let mut out = Vec::new();
    decode_into(&stored, false, &mut out)?;
    Ok(out)
}

thread_local! {
    static ZSTD: Cell<Option<zstd::bulk::Decompressor<'static>>> = const { Cell::new(None) };
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `with` with the thread's scratch buffer, resized to `bytes`. The buffer is taken, not borrowed, so `with` may
/// do anything, also block.
///
/// # Errors
/// There is no memory for the buffer, which is for `what`. Errors of `with` are passed on.
pub(crate) fn with_scratch<R>(bytes: usize, what: &str, with: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
    let mut scratch = SCRATCH.take();
    if scratch.len() < bytes && !resize(&mut scratch, bytes) {
        return Err(Error::out_of_memory(bytes, what));
    }
    let result = with(&mut scratch[..bytes]);
    if scratch.len() <= SCRATCH_KEPT_BYTES {
        SCRATCH.set(scratch);
    }
    result
}

#[cfg(test)]
mod tests;
