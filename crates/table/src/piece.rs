//! Walking over a table that another thread reads.
//!
//! ```text
//! Table::blocks_from ──handles──> Piece ──bytes, read by anybody──> PieceCursor ──entries──>
//! ```
//!
//! 1. A *piece* is a stretch of whole data blocks that follow each other in the file. The reading thread adds the
//!    handles of the blocks to the piece, and fills the piece with the bytes of the file: at once, or by a submitted
//!    read.
//! 2. A cursor takes piece after piece. It checks and decodes one block at a time into the same memory, and reads
//!    nothing: neither the file nor the index.
//!
//! So no block is read twice, and the thread that merges waits for no file.
//!
//! **Threads**: a piece goes from thread to thread. A cursor belongs to one. **Failure**: as of a
//! [`TableCursor`](crate::TableCursor): damage is corruption with file and offset, and every checksum is verified.

use crate::block::BlockCursor;
use crate::format::{BlockHandle, Damage};
use crate::key::{KeyRef, Trailer};
use crate::table::Table;
use crate::warmth::WarmBytes;
use situ_storage::Result;
use std::sync::Arc;

/// Whole data blocks of one table, one behind the other. See the [module](self).
#[derive(Debug)]
pub struct Piece {
    table: Arc<Table>,
    blocks: Vec<BlockHandle>,
    bytes: Vec<u8>,
}

impl Piece {
    /// Creates a piece without blocks.
    pub fn new(table: Arc<Table>) -> Piece {
        Piece { table, blocks: Vec::new(), bytes: Vec::new() }
    }

    /// Adds the next block. False if the block does not follow the last one in the file: it belongs to another piece.
    pub fn push(&mut self, block: BlockHandle) -> bool {
        let follows = self.blocks.last().is_none_or(|last| last.end() == Some(block.offset));
        if follows {
            self.blocks.push(block);
        }
        follows
    }

    /// Returns the offset of the piece in its file.
    pub fn offset(&self) -> u64 {
        self.blocks.first().map_or(0, |first| first.offset)
    }

    /// Returns the length of the piece in the file.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.stored_bytes()).sum()
    }

    /// Its table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Takes the bytes that a read of the file has filled: [`stored_bytes`](Piece::stored_bytes) from
    /// [`offset`](Piece::offset) on.
    pub fn fill(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    fn stored(&self, block: BlockHandle) -> Result<&[u8]> {
        let at = block.offset.checked_sub(self.offset()).and_then(|at| usize::try_from(at).ok());
        let stored = at.and_then(|at| self.bytes.get(at..)?.get(..block.stored_bytes() as usize));
        stored.ok_or_else(|| self.table.corruption(block.offset, "data block", Damage::new("a block", "none")))
    }
}

/// A forward walk over the entries of pieces. See the [module](self).
#[derive(Debug)]
pub struct PieceCursor {
    piece: Piece,
    /// The block behind the current one.
    next_block: usize,
    entries: BlockCursor,
    /// The warmth of the current block in the cache.
    warmth: u8,
    /// The bytes read of warm blocks before the current one.
    warm_before: WarmBytes,
    /// Bytes of the blocks that were decoded and not asked for.
    plain_bytes: u64,
}

impl PieceCursor {
    /// Stands nowhere yet.
    pub fn new(piece: Piece) -> PieceCursor {
        PieceCursor {
            piece,
            next_block: 0,
            entries: BlockCursor::new(Arc::default()),
            warmth: 0,
            warm_before: WarmBytes::default(),
            plain_bytes: 0,
        }
    }

    /// Goes on with another piece, of this table or of another one, and stands nowhere. The bytes of the last piece are
    /// the result, for another read.
    pub fn replace(&mut self, piece: Piece) -> Vec<u8> {
        self.next_block = 0;
        self.entries.leave();
        std::mem::replace(&mut self.piece, piece).bytes
    }

    /// Returns the bytes of the last piece, for another read.
    pub fn into_bytes(self) -> Vec<u8> {
        self.piece.bytes
    }

    /// Returns the table of the current piece.
    pub fn table(&self) -> &Arc<Table> {
        &self.piece.table
    }

    /// Returns true if the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entries.valid()
    }

    /// Returns the entry's key. The cursor must stand on an entry.
    #[inline]
    pub fn key(&self) -> KeyRef<'_> {
        self.entries.key()
    }

    /// Returns the entry's value. The cursor must stand on an entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// Returns true if no block of the piece follows the current one.
    pub fn is_in_last_block(&self) -> bool {
        self.next_block == self.piece.blocks.len()
    }

    /// Like [`TableCursor::warm_read`](crate::TableCursor::warm_read).
    pub fn warm_read(&self) -> WarmBytes {
        let in_block = self.entries.at().min(self.entries.block().entries_end());
        self.warm_before + WarmBytes::of_block(in_block as u64, self.warmth)
    }

    /// Returns the bytes of the blocks that were decoded since the last call, as they are without compression.
    pub fn take_plain_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.plain_bytes)
    }

    /// Moves to the first entry of the piece, which must not be begun.
    ///
    /// # Errors
    /// A block is damaged.
    pub fn first(&mut self) -> Result<()> {
        self.next_block()
    }

    /// Moves to the first entry with this user key or a larger one, if that entry is in the first block. Otherwise to
    /// the first entry of the second block. The piece must not be begun.
    ///
    /// # Errors
    /// A block is damaged.
    pub fn first_from(&mut self, user_key: &[u8]) -> Result<()> {
        if !self.load()? {
            return Ok(());
        }
        match self.entries.seek(KeyRef::new(user_key, Trailer::NEWEST)) {
            Ok(true) => Ok(()),
            Ok(false) => self.next_block(),
            Err(malformed) => Err(self.piece.table.malformed(self.entries.block(), malformed)),
        }
    }

    /// Moves one entry forward, or behind the last one of the piece. The cursor must stand on an entry.
    ///
    /// # Errors
    /// A block is damaged.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        match self.entries.next() {
            Ok(true) => Ok(()),
            Ok(false) => self.next_block(),
            Err(malformed) => Err(self.piece.table.malformed(self.entries.block(), malformed)),
        }
    }

    /// Moves to the first entry of the next block that has one; nowhere if there is none.
    fn next_block(&mut self) -> Result<()> {
        while self.load()? {
            match self.entries.first() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(malformed) => return Err(self.piece.table.malformed(self.entries.block(), malformed)),
            }
        }
        Ok(())
    }

    /// Decodes the next block, if there is one; stands nowhere.
    fn load(&mut self) -> Result<bool> {
        self.warm_before = self.warm_read();
        self.warmth = 0;
        self.entries.leave();
        let Some(&handle) = self.piece.blocks.get(self.next_block) else { return Ok(false) };
        self.next_block += 1;
        let table = &self.piece.table;
        self.warmth = table.cache().warmth(table.id(), handle.offset);
        let stored = self.piece.stored(handle)?;
        let block =
            Arc::get_mut(self.entries.block_mut()).expect("no other holds the block: no value of it was handed out");
        table.decode_stored(handle, stored, block)?;
        self.plain_bytes += block.bytes().len() as u64;
        Ok(true)
    }
}
