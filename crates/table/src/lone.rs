//! A stored block without its table: its bytes suffice to decode it.

use crate::block::{Block, BlockCursor, Malformed};
use crate::compress::decode_into;
use crate::key::KeyRef;
use situ_storage::{Error, Result};
use std::sync::Arc;

/// The entries of a data block that has left its table, for units that get blocks instead of files.
#[derive(Debug)]
pub struct LoneBlock {
    name: String,
    cursor: BlockCursor,
}

impl LoneBlock {
    /// Checks and decompresses a block as it is stored, trailer included, and stands on its first entry. `name` says in
    /// errors which block it is.
    ///
    /// # Errors
    /// The block is damaged, or there is no memory for it.
    pub fn decode(stored: &[u8], name: impl Into<String>) -> Result<LoneBlock> {
        let name = name.into();
        let mut block = Block::default();
        block
            .refill(0, |bytes| decode_into(stored, true, bytes))
            .map_err(|damage| damage.error(&name, 0, "data block"))?;
        let mut lone = LoneBlock { name, cursor: BlockCursor::new(Arc::new(block)) };
        let first = lone.cursor.first();
        lone.checked(first)?;
        Ok(lone)
    }

    /// Returns the block uncompressed: entries, restarts, count.
    pub fn raw(&self) -> &[u8] {
        self.cursor.block().bytes()
    }

    /// Returns the length of its entries, without restarts.
    pub fn entry_bytes(&self) -> usize {
        self.cursor.block().entries_end()
    }

    /// Returns true if the cursor stands on an entry.
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// Returns the entry's key. The cursor must stand on an entry.
    pub fn key(&self) -> KeyRef<'_> {
        self.cursor.key()
    }

    /// Returns the entry's value. The cursor must stand on an entry.
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// Moves one entry forward, or behind the last one. The cursor must stand on an entry.
    ///
    /// # Errors
    /// The entry cannot be decoded.
    pub fn advance(&mut self) -> Result<()> {
        let next = self.cursor.next();
        self.checked(next)
    }

    fn checked(&self, moved: std::result::Result<bool, Malformed>) -> Result<()> {
        moved.map(|_| ()).map_err(|at| {
            let found = format!("something else at its byte {}", at.0);
            Error::corruption(&self.name, 0, "block", "a sequence of entries", found)
        })
    }
}
