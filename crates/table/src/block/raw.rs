//! Data blocks on their way into a file: out of the builder, through an encoder, to the appender.

use crate::format::BLOCK_TRAILER_BYTES;
use crate::warmth::WarmBytes;

/// A data block as it is before compression, with what the index will say of it. A block is boxed: the builder's answer
/// to each entry is as small as a pointer, and most often no block.
#[derive(Debug, Default)]
pub struct RawBlock(pub(crate) Box<RawParts>);

#[derive(Debug, Default)]
pub(crate) struct RawParts {
    pub(crate) bytes: Vec<u8>,
    /// The encoded internal key that separates the block from the next one.
    pub(crate) separator: Vec<u8>,
    /// The warmth that the block gets in the cache, if it goes there.
    pub(crate) warmth: Option<u8>,
    /// Memory for the compressed block.
    pub(crate) stored: Vec<u8>,
    /// The lengths of a block that was [built elsewhere](crate::BuiltBlock), whose bytes are in the file already.
    pub(crate) built: Option<BuiltLengths>,
}

/// The lengths of a block that was built elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuiltLengths {
    /// Uncompressed.
    pub(crate) raw: usize,
    /// In the file, trailer included.
    pub(crate) stored: usize,
}

impl RawBlock {
    /// Returns the block: entries, restarts, count. A block that was built elsewhere has none.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Says what the inputs of the merge that made the block have read of warm blocks meanwhile.
    pub fn mark_warm(&mut self, read: WarmBytes) {
        self.0.warmth = read.of_output(self.0.bytes.len());
    }

    /// Returns the memory that the block takes, or took when it was used last.
    pub fn memory_bytes(&self) -> u64 {
        (self.0.bytes.capacity() + self.0.stored.capacity()) as u64
    }

    /// Returns the length of the block in the file if it is not compressed.
    pub fn plain_bytes(&self) -> u64 {
        (self.0.built.map_or(self.0.bytes.len(), |built| built.raw) + BLOCK_TRAILER_BYTES) as u64
    }
}

/// A data block as it will be in the file.
#[derive(Debug)]
pub struct EncodedBlock {
    /// The block before compression. If it was not worth compressing, `bytes` has the block's trailer already.
    pub(crate) block: RawBlock,
    pub(crate) is_compressed: bool,
}

impl EncodedBlock {
    /// Returns the length in the file, trailer included.
    pub fn stored_bytes(&self) -> u64 {
        self.block.0.built.map_or(self.stored().len(), |built| built.stored) as u64
    }

    /// Returns the bytes for the file, trailer included. A block that was built elsewhere has none.
    pub fn stored(&self) -> &[u8] {
        if self.is_compressed { &self.block.0.stored } else { &self.block.0.bytes }
    }

    /// Returns the block before compression.
    pub(crate) fn raw(&self) -> &[u8] {
        let bytes = &self.block.0.bytes;
        let end = if self.is_compressed { bytes.len() } else { bytes.len() - BLOCK_TRAILER_BYTES };
        &bytes[..end]
    }
}
