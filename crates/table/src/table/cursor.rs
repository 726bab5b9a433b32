//! Walking over a table.
//!
//! The cursor knows its place in the index (index block, entry) and in one data block. When it runs off a data block
//! it takes the next handle from the index and gets that block
//! 1. from the block cache, unless it is a sequential cursor;
//! 2. else from its *window*: a piece of the file read at once. A sequential cursor's window has a fixed size. Another
//!    cursor reads single blocks until it has missed the cache [`MISSES_BEFORE_AHEAD`] times in a row while going
//!    forward. Then it reads [`WINDOW_BYTES_MIN`], and twice as much each time, up to [`WINDOW_BYTES_MAX`].
//!
//! A sequential cursor decodes block after block into the same memory.
//!
//! **Threads**: one per cursor. **Failure**: a failed movement leaves the cursor nowhere; it may be positioned again.

use crate::block::{Block, BlockCursor, Malformed};
use crate::compress::uncompressed_bytes;
use crate::cursor::Cursor;
use crate::format::{BlockHandle, Damage};
use crate::key::KeyRef;
use crate::meter::ReadMeter;
use crate::options::{Reach, ReadOptions};
use crate::table::Table;
use crate::warmth::WarmBytes;
use situ_base::spent::{Part, lap};
use situ_storage::Result;
use situ_storage::memory::resize;
use std::sync::Arc;

/// Blocks read one by one before a cursor believes that it is scanning.
const MISSES_BEFORE_AHEAD: u32 = 2;
const WINDOW_BYTES_MIN: usize = 16 << 10;
const WINDOW_BYTES_MAX: usize = 256 << 10;
/// A sequential cursor reads at least this much at once.
const SEQUENTIAL_BYTES_MIN: usize = 64 << 10;

/// A piece of the data, as it is in the file.
#[derive(Debug, Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
    /// The valid length of `bytes`.
    filled: usize,
}

impl Window {
    /// Returns the block at `handle` with its trailer, if all of it is here.
    pub(crate) fn get(&self, handle: BlockHandle) -> Option<&[u8]> {
        let at = usize::try_from(handle.offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(..self.filled)?.get(at..)?.get(..handle.stored_bytes() as usize)
    }

    /// Reads `bytes` from `start`; the previous contents are gone.
    pub(crate) fn fill(&mut self, table: &Table, start: u64, bytes: usize, reach: Reach) -> Result<()> {
        if self.bytes.len() < bytes {
            resize(&mut self.bytes, bytes, table.path())?;
        }
        (self.start, self.filled) = (start, 0);
        table.read(start, &mut self.bytes[..bytes], reach)?;
        self.filled = bytes;
        Ok(())
    }
}

/// See the [module](self). Its own methods are those of [`Cursor`], without a virtual call.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    options: ReadOptions,
    entries: BlockCursor,
    leaf: Option<Arc<Block>>,
    /// The number of `leaf`.
    leaf_at: usize,
    /// The index entry of the current data block in `leaf`.
    index_at: usize,
    window: Window,
    /// The size of the next window: fixed for a sequential cursor.
    window_bytes: usize,
    sequential: bool,
    /// The warmth of the current block in the cache, for a sequential cursor.
    warmth: u8,
    /// The bytes that it has read of warm blocks before the current one.
    warm_before: WarmBytes,
    misses: u32,
    meter: Option<Arc<ReadMeter>>,
    /// The end of the last block that was loaded; the next one begins there in a forward scan.
    expected_offset: u64,
}

impl Table {
    /// Returns a cursor over the entries; it stands nowhere yet. It reads through the cache, block by block, and ahead
    /// in growing pieces once it notices that it is going forward.
    pub fn cursor(self: &Arc<Self>, options: ReadOptions) -> TableCursor {
        TableCursor::new(Arc::clone(self), options, None)
    }

    /// Returns a cursor for reading all or most of the table forward, as compactions do. It reads past the cache,
    /// `read_bytes` at a time (64 KiB at least), verifies every checksum, and allocates nothing per block.
    pub fn sequential_cursor(self: &Arc<Self>, read_bytes: usize) -> TableCursor {
        TableCursor::new(
            Arc::clone(self),
            ReadOptions { fill_cache: false, ..ReadOptions::default() },
            Some(read_bytes),
        )
    }
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>, options: ReadOptions, sequential_bytes: Option<usize>) -> TableCursor {
        TableCursor {
            table,
            options,
            entries: BlockCursor::new(Arc::default()),
            leaf: None,
            leaf_at: 0,
            index_at: 0,
            window: Window::default(),
            window_bytes: sequential_bytes.map_or(WINDOW_BYTES_MIN, |bytes| bytes.max(SEQUENTIAL_BYTES_MIN)),
            sequential: sequential_bytes.is_some(),
            warmth: 0,
            warm_before: WarmBytes::default(),
            misses: 0,
            meter: None,
            expected_offset: 0,
        }
    }

    /// Has what a sequential cursor reads counted.
    pub fn set_meter(&mut self, meter: Arc<ReadMeter>) {
        self.meter = Some(meter);
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
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

    /// Returns the warmth in the cache of the block of this entry, for a sequential cursor, which reads past the cache.
    /// 0 if the block is not there, and for other cursors.
    #[inline]
    pub fn warmth(&self) -> u8 {
        self.warmth
    }

    /// Returns the bytes that a sequential cursor has read of warm blocks, up to the entry it stands on.
    pub fn warm_read(&self) -> WarmBytes {
        // Behind the last entry of its block, the cursor has read all of them.
        let in_block = self.entries.at().min(self.entries.block().entries_end());
        self.warm_before + WarmBytes::of_block(in_block as u64, self.warmth)
    }

    /// Returns the entry's value, keeping its block alive. The cursor must stand on an entry.
    pub fn value_ref(&self) -> crate::block::ValueRef {
        let (start, end) = self.entries.value_range();
        crate::block::ValueRef::new(Arc::clone(self.entries.block()), start, end)
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// Reading a block failed.
    pub fn first(&mut self) -> Result<()> {
        self.entries.leave();
        self.load_leaf(0)?;
        self.index_at = 0;
        self.forward_from_here()
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// Reading a block failed.
    pub fn last(&mut self) -> Result<()> {
        self.entries.leave();
        self.leaf = None;
        self.leaf_at = self.table.leaf_count();
        self.index_at = 0;
        self.prev_block()
    }

    /// Moves to the first entry at or behind `target`.
    ///
    /// # Errors
    /// Reading a block failed.
    pub fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.entries.leave();
        let leaf_at = self.table.find_leaf(target)?;
        self.load_leaf(leaf_at)?;
        let Some(leaf) = &self.leaf else { return Ok(()) };
        self.index_at = leaf.index_seek(target).map_err(|m| self.table.malformed(leaf, m))?;
        if self.index_at < leaf.restart_count() {
            self.load_data()?;
            let found = self.entries.seek(target);
            if self.checked(found)? {
                return Ok(());
            }
            self.index_at += 1;
        }
        self.forward_from_here()
    }

    /// Moves to the last entry at or before `target`.
    ///
    /// # Errors
    /// Reading a block failed.
    pub fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.seek(target)?;
        if !self.valid() {
            return self.last();
        }
        if self.key() == target { Ok(()) } else { self.prev() }
    }

    /// Moves one entry forward. The cursor must stand on an entry.
    ///
    /// # Errors
    /// Reading a block failed.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it is the method of `Cursor`, without a virtual call")]
    pub fn next(&mut self) -> Result<()> {
        match self.entries.next() {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.index_at += 1;
                self.forward_from_here()
            }
            Err(malformed) => Err(self.table.malformed(self.entries.block(), malformed)),
        }
    }

    /// Moves one entry backward. The cursor must stand on an entry.
    ///
    /// # Errors
    /// Reading a block failed.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        match self.entries.prev() {
            Ok(true) => Ok(()),
            Ok(false) => self.prev_block(),
            Err(malformed) => Err(self.table.malformed(self.entries.block(), malformed)),
        }
    }

    #[inline]
    fn checked<T>(&self, result: Result<T, Malformed>) -> Result<T> {
        result.map_err(|m| self.table.malformed(self.entries.block(), m))
    }

    /// Makes `leaf` the index block `at`; there is none behind the last.
    fn load_leaf(&mut self, at: usize) -> Result<()> {
        if self.leaf.is_some() && self.leaf_at == at {
            return Ok(());
        }
        self.leaf = None;
        self.leaf_at = at;
        if at < self.table.leaf_count() {
            let leaf = || self.table.leaf(at, &self.options);
            self.leaf = Some(self.meter.as_ref().map_or_else(leaf, |meter| meter.time_of(leaf))?);
        }
        Ok(())
    }

    /// Moves to the first entry of the data block at `index_at`, or of the first one behind it that has one.
    fn forward_from_here(&mut self) -> Result<()> {
        self.entries.leave();
        while let Some(leaf) = &self.leaf {
            if self.index_at < leaf.restart_count() {
                self.load_data()?;
                let found = self.entries.first();
                if self.checked(found)? {
                    return Ok(());
                }
                self.index_at += 1;
            } else {
                self.load_leaf(self.leaf_at + 1)?;
                self.index_at = 0;
            }
        }
        Ok(())
    }

    /// Moves to the last entry of the data block before `index_at`, or of the first one before it that has one.
    fn prev_block(&mut self) -> Result<()> {
        self.entries.leave();
        self.misses = 0;
        loop {
            if let Some(before) = self.index_at.checked_sub(1) {
                self.index_at = before;
                self.load_data()?;
                let found = self.entries.last();
                if self.checked(found)? {
                    return Ok(());
                }
            } else if let Some(before) = self.leaf_at.checked_sub(1) {
                self.load_leaf(before)?;
                self.index_at = self.leaf.as_ref().map_or(0, |leaf| leaf.restart_count());
            } else {
                return Ok(());
            }
        }
    }

    /// Puts the data block at `index_at` of `leaf`, which must be one of its entries, under the block cursor.
    fn load_data(&mut self) -> Result<()> {
        let Some(leaf) = &self.leaf else { return Ok(()) };
        let (_, handle) = leaf.index_entry(self.index_at).map_err(|m| self.table.malformed(leaf, m))?;
        let goes_forward = handle.offset == self.expected_offset;
        self.expected_offset = handle.end().unwrap_or(0);
        if self.sequential {
            return self.load_sequential(handle);
        }
        if let Some(block) = self.table.find_cached(handle, self.options.reach) {
            self.entries.set_block(block);
            return Ok(());
        }
        if self.window.get(handle).is_none() {
            self.misses = if goes_forward { self.misses.saturating_add(1) } else { 0 };
            if self.misses <= MISSES_BEFORE_AHEAD {
                self.window_bytes = WINDOW_BYTES_MIN;
                self.entries.set_block(self.table.read_data_block(handle, &self.options)?);
                return Ok(());
            }
            lap(Part::BlockRead, || self.fill_window(handle))?;
            self.window_bytes = (self.window_bytes * 2).min(WINDOW_BYTES_MAX);
        }
        let bytes = self.window.get(handle).map_or(0, uncompressed_bytes);
        let mut block = Block::in_memory(self.table.buffer(handle, bytes, &self.options));
        let verify = self.options.verify_checksums;
        lap(Part::Decode, || decode_block(&self.table, &self.window, handle, verify, &mut block))?;
        self.entries.set_block(self.table.keep(handle, block, &self.options));
        Ok(())
    }

    fn load_sequential(&mut self, handle: BlockHandle) -> Result<()> {
        self.warm_before = self.warm_read();
        self.warmth = self.table.cache().warmth(self.table.id(), handle.offset);
        if self.window.get(handle).is_none() {
            self.fill_window(handle)?;
        }
        // The block cursor holds the only reference, unless a value of the block was handed out.
        let owned = self.entries.block_mut();
        if Arc::get_mut(owned).is_none() {
            *owned = Arc::default();
        }
        let Some(block) = Arc::get_mut(owned) else { return Ok(()) };
        decode_block(&self.table, &self.window, handle, true, block)?;
        if let Some(meter) = &self.meter {
            meter.add_plain(block.bytes().len() as u64);
        }
        Ok(())
    }

    /// Reads ahead from the block at `handle`: that block at least, and not beyond the data.
    fn fill_window(&mut self, handle: BlockHandle) -> Result<()> {
        self.table.check_handle(handle, self.table.data_end(), "data block")?;
        let left = self.table.data_end() - handle.offset;
        let bytes = left.min(self.window_bytes as u64).max(handle.stored_bytes());
        let mut fill = || self.window.fill(&self.table, handle.offset, bytes as usize, self.options.reach);
        let Some(meter) = &self.meter else { return fill() };
        meter.add_stored(bytes);
        meter.time_of(fill)
    }
}

/// Decodes the block at `handle`, which lies in the window, into the memory of `block`.
fn decode_block(table: &Table, window: &Window, handle: BlockHandle, verify: bool, block: &mut Block) -> Result<()> {
    match window.get(handle) {
        Some(stored) => table.decode_data_block(handle, stored, verify, block),
        None => Err(table.corruption(handle.offset, "data block", Damage::new("a block", "none"))),
    }
}

impl Cursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.valid()
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        self.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.value()
    }

    fn first(&mut self) -> Result<()> {
        self.first()
    }

    fn last(&mut self) -> Result<()> {
        self.last()
    }

    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.seek(target)
    }

    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.seek_before(target)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.prev()
    }
}
