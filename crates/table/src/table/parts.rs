//! Reading a table in parts: the steps of a cursor, one by one.
//!
//! ```text
//! Table::block_boundaries -> BlockHandle -> Table::read_stored -> Table::decode_stored -> Block -> BlockEntries
//! which blocks there are                    bytes of the file     checksum, decompression         entries
//! ```
//!
//! 1. [`Table::block_boundaries`] lists the data blocks; it reads index blocks only.
//! 2. [`Table::read_stored`] reads a block as it is in the file, past the cache.
//! 3. [`Table::decode_stored`] checks these bytes and decompresses them. It reads nothing.
//! 4. [`Table::entries`] walks over the entries of a block.
//!
//! **Threads**: any thread may do any step; [`TableCursor`](crate::TableCursor) does all of them on one. **Failure**:
//! damage is corruption, with the file and the block's offset.

use super::Table;
use crate::block::{Block, BlockCursor};
use crate::compress::decode_into;
use crate::format::BlockHandle;
use crate::key::KeyRef;
use crate::options::Reach;
use situ_storage::Result;
use situ_storage::memory::resize;
use std::sync::Arc;

impl Table {
    /// Reads the data block at `handle` as it is stored, its trailer included, into `stored`, whose memory is used
    /// again.
    ///
    /// # Errors
    /// The file cannot be read there, or no data block can lie there.
    pub fn read_stored(&self, handle: BlockHandle, stored: &mut Vec<u8>) -> Result<()> {
        self.check_handle(handle, self.data_end, "data block")?;
        resize(stored, handle.stored_bytes() as usize, self.path())?;
        self.read(handle.offset, stored, Reach::Disk)
    }

    /// Checks what [`read_stored`](Table::read_stored) has read, and decompresses it into the memory of `block`.
    ///
    /// # Errors
    /// The block is damaged.
    pub fn decode_stored(&self, handle: BlockHandle, stored: &[u8], block: &mut Block) -> Result<()> {
        self.decode_data_block(handle, stored, true, block)
    }

    /// Like [`decode_stored`](Table::decode_stored); whether the checksum is verified is the caller's choice.
    #[inline]
    pub(crate) fn decode_data_block(
        &self,
        handle: BlockHandle,
        stored: &[u8],
        verify: bool,
        block: &mut Block,
    ) -> Result<()> {
        let decoded = block.refill(handle.offset, |bytes| decode_into(stored, verify, bytes));
        decoded.map_err(|damage| self.corruption(handle.offset, "data block", damage))
    }

    /// Returns the entries of one of this table's data blocks, from the first on.
    ///
    /// # Errors
    /// The first entry cannot be decoded.
    pub fn entries(self: &Arc<Self>, block: Arc<Block>) -> Result<BlockEntries> {
        let mut entries = BlockEntries { table: Arc::clone(self), cursor: BlockCursor::new(block) };
        let first = entries.cursor.first();
        entries.checked(first)?;
        Ok(entries)
    }
}

/// A position in a data block. See [`Table::entries`].
#[derive(Debug)]
pub struct BlockEntries {
    table: Arc<Table>,
    cursor: BlockCursor,
}

impl BlockEntries {
    /// Returns true if the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// Returns the entry's key. The cursor must stand on an entry.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.cursor.key()
    }

    /// Returns the entry's value. The cursor must stand on an entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// Moves one entry forward, or behind the last one. The cursor must stand on an entry.
    ///
    /// # Errors
    /// The entry cannot be decoded.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let next = self.cursor.next();
        self.checked(next)
    }

    #[inline]
    fn checked(&self, moved: Result<bool, crate::block::Malformed>) -> Result<()> {
        match moved {
            Ok(_) => Ok(()),
            Err(malformed) => Err(self.table.malformed(self.cursor.block(), malformed)),
        }
    }
}
