//! Reading a table.
//!
//! [`Table::open`] reads the end of the file: footer, properties, top index, range tombstones and filter. They stay in
//! memory, charged to the block cache as pinned. A [`get`](Table::get) then
//! 1. asks the filter, one cache line;
//! 2. searches the top index and, with two levels, one index block;
//! 3. searches the one data block in which the key must be.
//!
//! Index blocks and data blocks come from the block cache, or from the file, checked and decompressed. A caller that
//! wants to do these steps itself, each on a thread of its own, finds them as [parts](Table::read_stored).
//!
//! **Invariants**: at most one data block is read per `get`, because a separator is never equal to the key that `get`
//! searches for (see there). **Threads**: a table is shared by all. No lock is held while the file is read; two threads
//! that miss the same block both read it. **Failure**: any deviation from the format is corruption, with file and
//! offset.

use crate::block::{Block, BlockCursor, Malformed, ValueRef};
use crate::cache::{BlockCache, Pinned};
use crate::compress::{decode_into, decode_owned, uncompressed_bytes, with_scratch};
use crate::filter::Filter;
use crate::format::{BlockHandle, COMPRESSION_NONE, Damage, FOOTER_BYTES, Footer, HEADER_BYTES, MAX_BLOCK_BYTES};
use crate::key::{KeyKind, KeyRef, SequenceNumber, Trailer};
use crate::options::{Reach, ReadOptions};
use crate::properties::Properties;
use crate::range_del::{RangeTombstone, TombstoneIndex, tombstone_bytes};
use situ_base::spent::{Lap, Part};
use situ_storage::memory::{resize, zeroed};
use situ_storage::{Error, Excerpt, Reader, Result};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

pub(crate) mod cursor;
mod parts;
mod verify;

pub use parts::BlockEntries;

/// Read in one piece at open; what lies in it needs no read of its own.
const TAIL_BYTES: u64 = 16 << 10;

/// The result of a lookup of a key in a table.
#[derive(Debug, Clone)]
pub struct TableEntry {
    /// The version found and its kind, which may be a tombstone.
    pub trailer: Trailer,
    /// Its value.
    pub value: ValueRef,
}

/// A place where a table can be cut, behind a data block: all keys before it are in the file before `offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockBoundary {
    /// The data block that ends here.
    pub block: BlockHandle,
    /// Entries with this user key or a larger one are behind the boundary (if versions of one key lie on both sides of
    /// it: some of them).
    pub user_key: Vec<u8>,
    /// Stored bytes up to the boundary, from the start of the file.
    pub offset: u64,
}

/// An open table. See the [module](self).
pub struct Table {
    reader: Arc<dyn Reader>,
    id: u64,
    cache: Arc<BlockCache>,
    footer: Footer,
    properties: Properties,
    index: Arc<Block>,
    filter: Option<Filter>,
    range_tombstones: Vec<Arc<RangeTombstone>>,
    /// Made when it is first asked for, and charged then.
    tombstone_index: OnceLock<(Arc<TombstoneIndex>, Pinned)>,
    /// Data blocks lie before this offset.
    data_end: u64,
    /// Given back when the table is closed.
    _pinned: Pinned,
}

/// The kind of a block below the top index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Data,
    Index,
}

/// The end of the file, in memory while the table is opened.
struct Tail {
    bytes: Vec<u8>,
    start: u64,
}

impl Table {
    /// Opens a table. `table_id` names it in the cache: no two tables of a process that share a cache have the same.
    ///
    /// # Errors
    /// The file cannot be read, or is not a table.
    pub fn open(reader: Arc<dyn Reader>, table_id: u64, cache: Arc<BlockCache>) -> Result<Arc<Table>> {
        let file_bytes = reader.bytes();
        let corruption = |offset, what: &str, d: Damage| d.error(reader.path(), offset, what);
        let least = (HEADER_BYTES + FOOTER_BYTES) as u64;
        if file_bytes < least {
            let damage = Damage::new(format!("at least {least} bytes"), format!("{file_bytes}"));
            return Err(corruption(0, "length", damage));
        }
        let tail_bytes = file_bytes.min(TAIL_BYTES);
        let mut tail = Tail { bytes: vec![0; tail_bytes as usize], start: file_bytes - tail_bytes };
        reader.read_at(tail.start, &mut tail.bytes)?;
        let footer_at = file_bytes - FOOTER_BYTES as u64;
        let footer = match tail.bytes.last_chunk::<FOOTER_BYTES>() {
            Some(bytes) => Footer::decode(bytes, file_bytes).map_err(|d| corruption(footer_at, "footer", d))?,
            None => return Err(corruption(footer_at, "footer", Damage::new("a footer", "none"))),
        };

        let read = |handle: BlockHandle, what| -> Result<Vec<u8>> {
            let stored = match handle.offset.checked_sub(tail.start) {
                Some(at) => tail.bytes[at as usize..][..handle.stored_bytes() as usize].to_vec(),
                None => {
                    let mut stored = zeroed(handle.stored_bytes() as usize, reader.path())?;
                    reader.read_at(handle.offset, &mut stored)?;
                    stored
                }
            };
            let mut block = decode_owned(stored, true).map_err(|d| corruption(handle.offset, what, d))?;
            block.shrink_to_fit();
            Ok(block)
        };
        let at = footer.properties.offset;
        let properties =
            Properties::decode(&read(footer.properties, "properties")?).map_err(|d| corruption(at, "properties", d))?;
        let data_end = (HEADER_BYTES as u64).checked_add(properties.data_bytes).filter(|end| *end <= footer_at);
        let data_end = data_end.ok_or_else(|| {
            let expected = format!("at most {footer_at} bytes of data");
            corruption(at, "properties", Damage::new(expected, properties.data_bytes))
        })?;

        let index = Block::new_index(read(footer.index, "index")?, footer.index.offset)
            .map_err(|d| corruption(footer.index.offset, "index", d))?;
        let filter = match footer.filter.is_absent() {
            true => None,
            false => Some(
                Filter::decode(&read(footer.filter, "filter")?)
                    .map_err(|d| corruption(footer.filter.offset, "filter", d))?,
            ),
        };
        let range_tombstones = match footer.range_tombstones.is_absent() {
            true => Vec::new(),
            false => {
                let at = footer.range_tombstones.offset;
                let decoded = decode_range_tombstones(read(footer.range_tombstones, "range tombstones")?)
                    .map_err(|d| corruption(at, "range tombstones", d))?;
                decoded.into_iter().map(Arc::new).collect()
            }
        };
        let pinned_bytes = index.memory_bytes()
            + filter.as_ref().map_or(0, Filter::memory_bytes)
            + range_tombstones.iter().map(|t| size_of_val(t) + tombstone_bytes(t)).sum::<usize>();
        let pinned = cache.pin(pinned_bytes as u64);
        Ok(Arc::new(Table {
            id: table_id,
            cache,
            footer,
            properties,
            index: Arc::new(index),
            filter,
            range_tombstones,
            tombstone_index: OnceLock::new(),
            data_end,
            _pinned: pinned,
            reader,
        }))
    }

    /// Returns the table's account of itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the range tombstones: by begin ascending, then sequence number descending. They may overlap.
    pub fn range_tombstones(&self) -> &[Arc<RangeTombstone>] {
        &self.range_tombstones
    }

    /// Returns the range tombstones, ready for lookup. The first call makes the index and charges it to the cache until
    /// the table is closed; later ones cost an atomic load.
    pub fn tombstone_index(&self) -> &Arc<TombstoneIndex> {
        let (index, _) = self.tombstone_index.get_or_init(|| {
            let mut oldest_first = self.range_tombstones.clone();
            oldest_first.sort_by_key(|tombstone| tombstone.sequence);
            let index: TombstoneIndex = oldest_first.into_iter().collect();
            let pinned = self.cache.pin(index.index_bytes() as u64);
            (Arc::new(index), pinned)
        });
        index
    }

    /// Returns the name of the table's file, for messages.
    pub fn path(&self) -> &str {
        self.reader.path()
    }

    /// Returns the file's length in bytes.
    pub fn bytes(&self) -> u64 {
        self.footer.file_bytes
    }

    /// Returns the number that names it in the cache.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if the filter lets a key with this hash pass; false means that the table does not have it. Always
    /// true without a filter.
    #[inline]
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(key_hash))
    }

    /// Returns the newest version of `user_key` at or below `snapshot`, if the table has one. `key_hash` is
    /// [`hash_key`](crate::hash_key) of `user_key`. Range tombstones are not looked at.
    ///
    /// Cost: one filter probe; if it passes, two or three searches in blocks, at most two of which have to be read.
    ///
    /// # Errors
    /// A block cannot be read, or is damaged; [`NotInMemory`](Error::NotInMemory), if that was asked for.
    #[inline]
    pub fn get(
        &self,
        user_key: &[u8],
        snapshot: SequenceNumber,
        key_hash: u64,
        options: &ReadOptions,
    ) -> Result<Option<TableEntry>> {
        if !self.may_contain(key_hash) {
            return Ok(None);
        }
        // No entry has a trailer between `NEWEST` and the one below it, and separators that are not keys of entries
        // have `NEWEST`. So the search never ends on a separator, and the version sought cannot be in the block behind.
        let trailer = Trailer(Trailer::seek(snapshot).0.min(Trailer::NEWEST.0 - 1));
        let target = KeyRef::new(user_key, trailer);
        let Some((_, handle)) = self.find_block(target, options)? else { return Ok(None) };
        let block = self.data_block(handle, options)?;
        let (trailer, start, end) = match block.seek(target) {
            Err(malformed) => return Err(self.malformed(&block, malformed)),
            Ok(None) => return Ok(None),
            Ok(Some((_, entry))) => {
                // The entry's shared bytes are the target's: see `Block::seek`.
                if user_key.get(entry.shared..) != Some(entry.suffix) {
                    return Ok(None);
                }
                (entry.trailer, entry.value_start, entry.next)
            }
        };
        Ok(Some(TableEntry { trailer, value: ValueRef::new(block, start, end) }))
    }

    /// Takes the table's blocks out of the cache: for a table that is about to be deleted. Blocks below an index block
    /// that is not in the cache itself are left to grow old there. Reads nothing; a lookup in the cache for each block.
    pub fn forget(&self) {
        for at in 0..self.leaf_count() {
            let below;
            let leaf: &Block = if self.footer.index_levels == 1 {
                &self.index
            } else {
                let Ok((_, handle)) = self.index.index_entry(at) else { continue };
                let Some(cached) = self.cache.peek(self.id, handle.offset) else { continue };
                self.cache.remove(self.id, handle.offset);
                below = cached;
                &below
            };
            for entry in 0..leaf.restart_count() {
                if let Ok((_, handle)) = leaf.index_entry(entry) {
                    self.cache.remove(self.id, handle.offset);
                }
            }
        }
    }

    /// Returns about where in the file the entries of `user_key` are or would be: the offset of the data block. Reads
    /// at most one index block.
    ///
    /// # Errors
    /// The index block cannot be read, or is damaged.
    pub fn approximate_offset(&self, user_key: &[u8]) -> Result<u64> {
        let target = KeyRef::new(user_key, Trailer::NEWEST);
        let found = self.find_block(target, &ReadOptions::default())?;
        Ok(found.map_or(self.data_end, |(_, handle)| handle.offset))
    }

    /// Returns the boundaries between data blocks, and the end of the last one, in order. Reads the index blocks, one
    /// at a time.
    pub fn block_boundaries(&self) -> BlockBoundaries<&Table> {
        BlockBoundaries { table: self, leaf: None, next_leaf: 0, next_entry: 0 }
    }

    /// Like [`block_boundaries`](Table::block_boundaries), from the data block on in which `user_key` is or would be.
    ///
    /// # Errors
    /// An index block cannot be read, or is damaged.
    pub fn blocks_from(self: &Arc<Self>, user_key: &[u8]) -> Result<BlockBoundaries<Arc<Table>>> {
        let target = KeyRef::new(user_key, Trailer::NEWEST);
        let next_leaf = self.find_leaf(target)?;
        let mut blocks = BlockBoundaries { table: Arc::clone(self), leaf: None, next_leaf, next_entry: 0 };
        if let Some(leaf) = blocks.load_leaf()? {
            blocks.next_entry = leaf.index_seek(target).map_err(|m| self.malformed(&leaf, m))?;
        }
        Ok(blocks)
    }

    /// Returns keys that divide the table, each with the approximate number of stored bytes between it and the key
    /// before. They are the ends of index blocks, or of data blocks if there is one index block only. Reads nothing.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn coarse_boundaries(&self) -> Result<Vec<(Vec<u8>, u64)>> {
        let count = self.index.restart_count();
        // Index blocks are about equally long, and so is the data that they list.
        let equal_share = (self.data_end - HEADER_BYTES as u64) / count.max(1) as u64;
        let boundary = |i| {
            let (key, handle) = self.index.index_entry(i).map_err(|m| self.malformed(&self.index, m))?;
            let bytes = if self.footer.index_levels == 1 { handle.stored_bytes() } else { equal_share };
            Ok((key.user.to_vec(), bytes))
        };
        (0..count).map(boundary).collect()
    }

    /// Returns the approximate share of the table's data in the blocks of the keys `begin..end`, from 0 to 1. Reads
    /// nothing: it counts entries of the top index.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn coarse_share(&self, begin: &[u8], end: &[u8]) -> Result<f64> {
        let seek = |key| {
            let target = KeyRef::new(key, Trailer::NEWEST);
            self.index.index_seek(target).map_err(|m| self.malformed(&self.index, m))
        };
        let count = self.index.restart_count();
        // The block in which `end` is or would be counts, unless there is none.
        let behind = (seek(end)? + 1).min(count);
        Ok(behind.saturating_sub(seek(begin)?) as f64 / count.max(1) as f64)
    }

    /// Returns the file that the table is in, for reads of a caller's own.
    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.reader
    }

    /// Returns the number of index blocks that point to data blocks.
    #[inline]
    pub(crate) fn leaf_count(&self) -> usize {
        match self.footer.index_levels {
            1 => 1,
            _ => self.index.restart_count(),
        }
    }

    /// Returns the index block `i`, one of them.
    pub(crate) fn leaf(&self, i: usize, options: &ReadOptions) -> Result<Arc<Block>> {
        if self.footer.index_levels == 1 {
            return Ok(Arc::clone(&self.index));
        }
        let (_, handle) = self.index.index_entry(i).map_err(|m| self.malformed(&self.index, m))?;
        self.cached_block(handle, BlockKind::Index, options)
    }

    /// Returns the index block in which the first separator at or behind `target` is; the number of blocks if there is
    /// none.
    #[inline]
    pub(crate) fn find_leaf(&self, target: KeyRef<'_>) -> Result<usize> {
        match self.footer.index_levels {
            1 => Ok(0),
            _ => self.index.index_seek(target).map_err(|m| self.malformed(&self.index, m)),
        }
    }

    /// Returns the data block in which `target` is if it is anywhere, with the number of its index block.
    #[inline]
    fn find_block(&self, target: KeyRef<'_>, options: &ReadOptions) -> Result<Option<(usize, BlockHandle)>> {
        let at = self.find_leaf(target)?;
        if at >= self.leaf_count() {
            return Ok(None);
        }
        let below;
        let leaf: &Block = match self.footer.index_levels {
            // Not cloned: all readers of a small table would write to one counter.
            1 => &self.index,
            _ => {
                below = self.leaf(at, options)?;
                &below
            }
        };
        let find = || {
            let i = leaf.index_seek(target)?;
            if i < leaf.restart_count() { leaf.index_entry(i).map(|(_, handle)| Some((at, handle))) } else { Ok(None) }
        };
        find().map_err(|m| self.malformed(leaf, m))
    }

    /// Returns the data block at `handle`, from the cache or the file.
    #[inline]
    pub(crate) fn data_block(&self, handle: BlockHandle, options: &ReadOptions) -> Result<Arc<Block>> {
        self.cached_block(handle, BlockKind::Data, options)
    }

    /// Like [`data_block`](Table::data_block), of a block that is not in the cache.
    pub(crate) fn read_data_block(&self, handle: BlockHandle, options: &ReadOptions) -> Result<Arc<Block>> {
        self.read_block(handle, BlockKind::Data, options)
    }

    #[inline]
    fn cached_block(&self, handle: BlockHandle, kind: BlockKind, options: &ReadOptions) -> Result<Arc<Block>> {
        match self.find_cached(handle, options.reach) {
            Some(block) => Ok(block),
            None => self.read_block(handle, kind, options),
        }
    }

    /// Returns the block at `handle`, if it is in the cache. A miss is counted after the read: a caller that does not
    /// get the block now asks again.
    #[inline]
    pub(crate) fn find_cached(&self, handle: BlockHandle, reach: Reach) -> Option<Arc<Block>> {
        match reach {
            Reach::Disk => self.cache.get(self.id, handle.offset),
            Reach::AtOnce | Reach::Cache => self.cache.probe(self.id, handle.offset),
        }
    }

    #[cold]
    fn read_block(&self, handle: BlockHandle, kind: BlockKind, options: &ReadOptions) -> Result<Arc<Block>> {
        let (what, end) = match kind {
            BlockKind::Data => ("data block", self.data_end),
            BlockKind::Index => ("index block", self.footer.file_bytes - FOOTER_BYTES as u64),
        };
        if options.reach == Reach::Cache {
            return Err(Error::NotInMemory);
        }
        self.check_handle(handle, end, what)?;
        let bytes = handle.stored_bytes() as usize;
        let damaged = |d: Damage| self.corruption(handle.offset, what, d);
        let mut lap = Lap::begin();
        let block = if self.properties.compression == COMPRESSION_NONE {
            let mut stored = self.buffer(handle, bytes, options);
            resize(&mut stored, bytes, self.path())?;
            self.read(handle.offset, &mut stored, options.reach)?;
            lap.next(Part::BlockRead);
            decode_owned(stored, options.verify_checksums).map_err(damaged)?
        } else {
            with_scratch(bytes, self.path(), |stored| {
                self.read(handle.offset, stored, options.reach)?;
                lap.next(Part::BlockRead);
                let mut block = self.buffer(handle, uncompressed_bytes(stored), options);
                decode_into(stored, options.verify_checksums, &mut block).map_err(damaged)?;
                Ok::<_, Error>(block)
            })?
        };
        lap.end(Part::Decode);
        let block = match kind {
            BlockKind::Data => Block::new(block, handle.offset),
            BlockKind::Index => Block::new_index(block, handle.offset),
        };
        Ok(self.keep(handle, block.map_err(damaged)?, options))
    }

    /// Puts a block that was read into the cache, if it is to be there, and counts.
    pub(crate) fn keep(&self, handle: BlockHandle, block: Block, options: &ReadOptions) -> Arc<Block> {
        if options.reach == Reach::AtOnce {
            self.cache.missed(self.id, handle.offset);
        }
        let block = Arc::new(block);
        if options.fill_cache { self.cache.insert(self.id, handle.offset, block) } else { block }
    }

    /// Returns memory for a block that will go into the cache if it may.
    pub(crate) fn buffer(&self, handle: BlockHandle, bytes: usize, options: &ReadOptions) -> Vec<u8> {
        match options.fill_cache {
            true => self.cache.buffer(self.id, handle.offset, bytes),
            false => Vec::new(),
        }
    }

    /// Checks that there can be a block there, before anything is allocated for it.
    pub(crate) fn check_handle(&self, handle: BlockHandle, end: u64, what: &str) -> Result<()> {
        let inside = handle.offset >= HEADER_BYTES as u64 && handle.end().is_some_and(|block_end| block_end <= end);
        if inside && handle.bytes as usize <= MAX_BLOCK_BYTES {
            return Ok(());
        }
        let expected = format!("a {what} between {HEADER_BYTES} and {end}");
        Err(self.corruption(handle.offset, "index", Damage::new(expected, format!("{handle:?}"))))
    }

    /// Fills `into` from the file, as far as `reach` goes.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8], reach: Reach) -> Result<()> {
        let is_there = match reach {
            Reach::Disk => self.reader.read_at(offset, into).map(|()| true),
            Reach::AtOnce => self.reader.read_now(offset, into),
            Reach::Cache => Ok(false),
        };
        if is_there? { Ok(()) } else { Err(Error::NotInMemory) }
    }

    pub(crate) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    pub(crate) fn data_end(&self) -> u64 {
        self.data_end
    }

    #[cold]
    pub(crate) fn corruption(&self, offset: u64, what: &str, damage: Damage) -> Error {
        damage.error(self.path(), offset, what)
    }

    #[cold]
    pub(crate) fn malformed(&self, block: &Block, malformed: Malformed) -> Error {
        let found = format!("something else at its byte {}", malformed.0);
        self.corruption(block.file_offset(), "block", Damage::new("a sequence of entries", found))
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({}, {} entries)", self.path(), self.properties.entries)
    }
}

pub(crate) fn decode_range_tombstones(block: Vec<u8>) -> Result<Vec<RangeTombstone>, Damage> {
    let malformed = |m: Malformed| Damage::new("a sequence of entries", format!("something else at byte {}", m.0));
    let mut cursor = BlockCursor::new(Arc::new(Block::new(block, 0)?));
    let mut all = Vec::new();
    let mut more = cursor.first().map_err(malformed)?;
    while more {
        let (KeyRef { user: begin, trailer }, end) = (cursor.key(), cursor.value());
        if trailer.kind() != Some(KeyKind::RangeDelete) || begin >= end {
            let found = format!("{:?} to {}", cursor.key(), Excerpt(end));
            return Err(Damage::new("a range tombstone", found));
        }
        all.push(RangeTombstone { begin: begin.to_vec(), end: end.to_vec(), sequence: trailer.sequence() });
        more = cursor.next().map_err(malformed)?;
    }
    all.shrink_to_fit();
    Ok(all)
}

/// See [`Table::block_boundaries`]. `T` is a reference to the table, counted or not.
#[derive(Debug)]
pub struct BlockBoundaries<T> {
    table: T,
    leaf: Option<Arc<Block>>,
    next_leaf: usize,
    next_entry: usize,
}

impl<T: Deref<Target = Table>> BlockBoundaries<T> {
    fn advance(&mut self) -> Result<Option<BlockBoundary>> {
        loop {
            if let Some(leaf) = self.leaf.as_ref().filter(|leaf| self.next_entry < leaf.restart_count()) {
                let found = leaf.index_entry(self.next_entry);
                let (key, handle) = found.map_err(|m| self.table.malformed(leaf, m))?;
                self.next_entry += 1;
                self.table.check_handle(handle, self.table.data_end, "data block")?;
                let offset = handle.offset + handle.stored_bytes();
                return Ok(Some(BlockBoundary { block: handle, user_key: key.user.to_vec(), offset }));
            }
            if self.load_leaf()?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Moves to the first entry of the next index block, if there is one.
    fn load_leaf(&mut self) -> Result<Option<Arc<Block>>> {
        if self.next_leaf >= self.table.leaf_count() {
            return Ok(None);
        }
        let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        let leaf = self.table.leaf(self.next_leaf, &options)?;
        self.leaf = Some(Arc::clone(&leaf));
        self.next_leaf += 1;
        self.next_entry = 0;
        Ok(Some(leaf))
    }
}

impl<T: Deref<Target = Table>> Iterator for BlockBoundaries<T> {
    type Item = Result<BlockBoundary>;

    fn next(&mut self) -> Option<Result<BlockBoundary>> {
        let item = self.advance().transpose();
        // After an error there is nothing to go on with.
        if matches!(item, Some(Err(_))) {
            (self.leaf, self.next_leaf) = (None, usize::MAX);
        }
        item
    }
}

#[cfg(test)]
mod tests;
