//! Data blocks that were built and encoded elsewhere: an accelerator's.
//!
//! A report of each block replaces the entries: the host neither decodes nor copies what it writes. The block's bytes
//! go into the file at once. The index needs the key behind the block, so its place waits until that key is known.

use super::builder::TableBuilder;
use crate::block::{BuiltLengths, RawBlock};
use crate::format::{BLOCK_TRAILER_BYTES, MAX_BLOCK_BYTES};
use crate::key::KeyRef;
use situ_storage::{Error, Result};

/// A data block as it will be in the file, with all that its table has to know of it.
///
/// The block ends where a [`TableBuilder`] would have ended it, and its bytes are those of the table's
/// [`BlockEncoder`](crate::BlockEncoder). The caller answers for both.
#[derive(Debug, Clone, Copy)]
pub struct BuiltBlock<'a> {
    /// The block as stored, trailer included.
    pub stored: &'a [u8],
    /// The length of the block uncompressed: entries, restarts, count.
    pub raw_bytes: usize,
    /// The first key.
    pub first: KeyRef<'a>,
    /// The last key; the first one if there is one entry.
    pub last: KeyRef<'a>,
    /// Entries.
    pub entries: u64,
    /// Tombstones among them.
    pub deletions: u64,
    /// Bytes of user keys and trailers.
    pub key_bytes: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// The length of the longest user key.
    pub longest_key: u32,
    /// The length of the longest value.
    pub longest_value: u32,
    /// The smallest sequence number.
    pub smallest_sequence: u64,
    /// The largest sequence number.
    pub largest_sequence: u64,
    /// The [hash](crate::hash_key) of each user key whose first version in the table is in this block.
    pub hashes: &'a [u64],
    /// Entries by the number of bits of their values' lengths.
    pub value_classes: &'a [u16],
}

impl BuiltBlock<'_> {
    /// Returns the length of the block in the file if it were not compressed.
    fn plain_bytes(&self) -> usize {
        self.raw_bytes + BLOCK_TRAILER_BYTES
    }

    /// Checks what can be seen without decoding the block.
    fn check(&self) -> Result<()> {
        let ascends = match self.entries {
            0 => false,
            1 => self.first == self.last,
            _ => self.first < self.last,
        };
        let sound = ascends
            && self.stored.len() > BLOCK_TRAILER_BYTES
            && (4..=MAX_BLOCK_BYTES).contains(&self.raw_bytes)
            && self.hashes.len() as u64 <= self.entries
            && self.longest_key as usize >= self.first.user.len().max(self.last.user.len())
            && self.smallest_sequence <= self.largest_sequence;
        match sound {
            true => Ok(()),
            false => Err(Error::Invalid(format!("no block of a table has the report {:?}", Report(self)))),
        }
    }
}

/// The report of a block without the block, for errors.
struct Report<'a>(&'a BuiltBlock<'a>);

impl std::fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BuiltBlock { stored, raw_bytes, first, last, entries, hashes, .. } = self.0;
        let (stored, hashes) = (stored.len(), hashes.len());
        write!(f, "{first:?} to {last:?}, {entries} entries, {hashes} keys, {stored} bytes of {raw_bytes}")
    }
}

impl TableBuilder {
    /// Returns true if no entry so far has the user key of `next`, the key that follows.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if `next` cannot follow the last key.
    pub fn begins_user_key(&self, next: KeyRef<'_>) -> Result<bool> {
        Ok(self.follows(next)?.1)
    }

    /// Ends the block before `next`, the key that follows. The result is the block that ended, if there is one.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if `next` cannot follow the last key.
    pub fn end_block(&mut self, next: KeyRef<'_>) -> Result<Option<RawBlock>> {
        let (shared, _) = self.follows(next)?;
        Ok(self.finish_block(Some((next, shared))))
    }

    /// Returns the most that [`estimated_bytes`](TableBuilder::estimated_bytes) would be at any entry of this block,
    /// were its entries added one by one. The block before it has ended.
    pub fn most_bytes_with(&self, block: &BuiltBlock<'_>, blocks_bytes: u64) -> u64 {
        let keys = 2 * self.last_user_key.len().max(block.longest_key as usize);
        blocks_bytes + (block.plain_bytes() + keys + self.bytes_beside_blocks_with(block.hashes.len())) as u64
    }

    /// Adds a block. The block before it [has ended](TableBuilder::end_block) and is in the file. The appender gets the
    /// bytes of this one next: [`append_built`](crate::TableAppender::append_built).
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if its keys cannot follow the last one, or its report contradicts itself.
    /// [`OutOfMemory`](Error::OutOfMemory): the table cannot be finished.
    pub fn add_built(&mut self, block: &BuiltBlock<'_>) -> Result<()> {
        self.follows(block.first)?;
        block.check()?;
        self.check_no_open_block()?;
        self.filter.add_hashes(block.hashes)?;
        self.note_built(block);
        let mut waiting = self.spare.take().unwrap_or_default();
        let parts = &mut *waiting.0;
        parts.bytes.clear();
        parts.stored.clear();
        parts.built = Some(BuiltLengths { raw: block.raw_bytes, stored: block.stored.len() });
        self.built_bytes = block.plain_bytes();
        self.built = Some(waiting);
        Ok(())
    }

    /// Counts the entries of a block that was built elsewhere.
    fn note_built(&mut self, block: &BuiltBlock<'_>) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            block.first.encode_into(&mut properties.smallest);
        }
        properties.entries += block.entries;
        properties.deletions += block.deletions;
        properties.raw_key_bytes += block.key_bytes;
        properties.raw_value_bytes += block.value_bytes;
        properties.longest_key_bytes = properties.longest_key_bytes.max(Some(block.longest_key));
        properties.longest_value_bytes = properties.longest_value_bytes.max(Some(block.longest_value));
        properties.value_lengths.add_classes(block.value_classes);
        properties.smallest_sequence = properties.smallest_sequence.min(block.smallest_sequence);
        properties.largest_sequence = properties.largest_sequence.max(block.largest_sequence);
        self.last_user_key.clear();
        self.last_user_key.extend_from_slice(block.last.user);
        self.last_trailer = block.last.trailer;
    }
}
