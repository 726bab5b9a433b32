//! Putting a block together.

use super::{entry_bytes, put_entry_header};
use crate::format::BLOCK_TRAILER_BYTES;
use crate::key::KeyRef;
use situ_storage::{Error, Result};

/// Collects entries in order. Its memory is reused from block to block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since_restart: usize,
}

impl BlockBuilder {
    /// Creates a builder that stores a whole key every `interval` entries.
    pub(crate) fn new(interval: usize) -> BlockBuilder {
        BlockBuilder { bytes: Vec::new(), restarts: Vec::new(), interval: interval.max(1), since_restart: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Returns the block's size if it were finished now.
    #[inline]
    pub(crate) fn finished_bytes(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Returns the block's size if it were finished after one more entry, at most (a restart may be counted too many).
    #[inline]
    pub(crate) fn finished_bytes_with(&self, shared: usize, key_bytes: usize, value_bytes: usize) -> usize {
        let shared = if self.since_restart >= self.interval { 0 } else { shared };
        self.finished_bytes() + 4 + entry_bytes(shared, key_bytes - shared, value_bytes)
    }

    /// Appends an entry whose user key has its first `shared` bytes in common with the entry before. Keys must ascend.
    ///
    /// # Errors
    /// There is no memory for the block. Nothing was appended then.
    #[inline]
    pub(crate) fn add(&mut self, key: KeyRef<'_>, shared: usize, value: &[u8]) -> Result<()> {
        let mut shared = shared;
        // The restarts and the trailer, too: the end of a block takes no memory.
        let entry_bytes_max = key.user.len() + value.len() + 23;
        let bytes = entry_bytes_max + 4 * (self.restarts.len() + 2) + BLOCK_TRAILER_BYTES;
        if self.bytes.try_reserve(bytes).is_err() {
            return Err(Error::out_of_memory(self.bytes.len() + bytes, "a block of a table"));
        }
        if self.since_restart >= self.interval || self.restarts.is_empty() {
            // A block is closed long before 4 GiB: `MAX_BLOCK_BYTES`.
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
            shared = 0;
        }
        self.since_restart += 1;
        let suffix = &key.user[shared..];
        put_entry_header(&mut self.bytes, shared, suffix.len(), value.len());
        self.bytes.extend_from_slice(suffix);
        self.bytes.extend_from_slice(&key.trailer.0.to_le_bytes());
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Returns the block, complete. [`clear`](BlockBuilder::clear) begins the next one.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// Puts the block, complete, into `out`, and begins the next one in the memory that `out` had.
    pub(crate) fn finish_into(&mut self, out: &mut Vec<u8>) {
        self.finish();
        std::mem::swap(&mut self.bytes, out);
        self.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.since_restart = 0;
    }
}
