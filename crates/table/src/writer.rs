//! Writing a table: entries in, in order; a file out.
//!
//! 1. Each entry goes into the open data block, and its key's hash to the filter. When the next entry would make the
//!    block larger than asked, the block is compressed, sealed and appended to the file.
//! 2. The shortest key that separates a finished block from the next entry goes, with the block's handle, into the
//!    open index block. Finished index blocks stay in memory: they follow the data.
//! 3. [`finish`](TableWriter::finish) appends index blocks, filter, range tombstones, properties, top index, footer.
//!
//! 4. A writer that may [warm](TableWriter::set_warming) a cache puts those finished data blocks into it of which a quarter
//!    at least is [warm](TableWriter::warm).
//!
//! **Invariants**: internal keys strictly ascend, or [`add`](TableWriter::add) refuses. Same options, creation time and
//! entries: same bytes. **Threads**: one. **Failure**: after an error the file must be given up; dropping the writer
//! leaves a file without a footer, which no reader accepts. **Memory**: a data block, the index (about 1 % of the data)
//! and 8 bytes per key until the table is finished.

use crate::block::{Block, BlockBuilder};
use crate::cache::Warming;
use crate::compress::{Compressor, seal};
use crate::filter::FilterBuilder;
use crate::format::{
    BLOCK_TRAILER_BYTES, BlockHandle, COMPRESSION_NONE, FOOTER_BYTES, Footer, HEADER_BYTES, KEY_TRAILER_BYTES,
    MAX_BLOCK_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, common_prefix, header, separator,
};
use crate::key::{KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Trailer};
use crate::options::TableOptions;
use crate::properties::{Properties, WRITER_VERSION};
use situ_storage::{Error, Result, Writer};
use std::sync::Arc;

/// A block goes into the cache if one in this many of its bytes is warm.
const WARM_PART: usize = 4;

/// What came out of a [`TableWriter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSummary {
    /// The file's length.
    pub bytes: u64,
    /// The table's account of itself, as it is in the file.
    pub properties: Properties,
}

/// An index block that waits to be written behind the data.
#[derive(Debug)]
struct FinishedLeaf {
    separator: Vec<u8>,
    /// Where it begins in `leaves`.
    start: usize,
    bytes: usize,
}

/// Where warm blocks go.
struct Warmth {
    warming: Arc<Warming>,
    table_id: u64,
    /// Of the entries of the open data block that are warm.
    bytes: usize,
    /// Of the warmest of them.
    warmth: u8,
}

/// See the [module](self).
pub struct TableWriter {
    file: Box<dyn Writer>,
    options: TableOptions,
    compressor: Compressor,
    filter: FilterBuilder,
    data: BlockBuilder,
    index: BlockBuilder,
    /// Finished index blocks as they will be stored, one after the other.
    leaves: Vec<u8>,
    finished_leaves: Vec<FinishedLeaf>,
    /// Encoded separators are put together here.
    separator: Vec<u8>,
    /// Stored blocks are put together here.
    stored: Vec<u8>,
    /// Bytes appended to the file.
    written: u64,
    last_user_key: Vec<u8>,
    last_trailer: Trailer,
    range_tombstones: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    range_tombstone_bytes: usize,
    properties: Properties,
    warmth: Option<Warmth>,
}

impl TableWriter {
    /// Begins a table in a new file.
    ///
    /// # Errors
    /// Writing the header failed, or an option is out of range.
    pub fn new(mut file: Box<dyn Writer>, options: &TableOptions, created_unix_s: u64) -> Result<TableWriter> {
        if options.block_bytes > MAX_BLOCK_BYTES || options.index_block_bytes > MAX_BLOCK_BYTES {
            return Err(Error::Invalid(format!("blocks can be at most {MAX_BLOCK_BYTES} bytes long")));
        }
        let mut properties = Properties {
            created_unix_s,
            keyspace_id: options.keyspace_id,
            keyspace_name: options.keyspace_name.clone(),
            writer_version: WRITER_VERSION.to_owned(),
            smallest_sequence: MAX_SEQUENCE,
            ..Properties::default()
        };
        properties.set_compression(options.compression);
        file.append(&header())?;
        Ok(TableWriter {
            file,
            options: options.clone(),
            compressor: Compressor::new(options.compression)?,
            filter: FilterBuilder::new(options.filter_bits_per_key),
            data: BlockBuilder::new(options.restart_interval),
            index: BlockBuilder::new(1),
            leaves: Vec::new(),
            finished_leaves: Vec::new(),
            separator: Vec::new(),
            stored: Vec::new(),
            written: HEADER_BYTES as u64,
            last_user_key: Vec::new(),
            last_trailer: Trailer::OLDEST,
            range_tombstones: Vec::new(),
            range_tombstone_bytes: 0,
            properties,
            warmth: None,
        })
    }

    /// Lets the writer put warm blocks into the cache through which the table will be read, opened by this number.
    pub fn set_warming(&mut self, warming: Arc<Warming>, table_id: u64) {
        self.warmth = Some(Warmth { warming, table_id, bytes: 0, warmth: 0 });
    }

    /// Says how [warm](crate::TableCursor::warmth) the block is that the entry added last comes from. A merge takes one off, so
    /// that what nobody reads any more does not go from table to table for ever. Without a cache, nothing.
    #[inline]
    pub fn warm(&mut self, entry_bytes: usize, warmth: u8) {
        if let (Some(open), 1..) = (&mut self.warmth, warmth) {
            open.bytes += entry_bytes;
            open.warmth = open.warmth.max(warmth);
        }
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the key is not behind the last one, too long, or of a kind that is no entry; or
    /// the file cannot be written.
    #[inline]
    pub fn add(&mut self, key: KeyRef<'_>, value: &[u8]) -> Result<()> {
        let shared = common_prefix(&self.last_user_key, key.user);
        let mut new_user_key = true;
        if self.properties.entries > 0 {
            let in_order = match (self.last_user_key.get(shared), key.user.get(shared)) {
                (None, None) => {
                    new_user_key = false;
                    key.trailer < self.last_trailer
                }
                (last, this) => last < this,
            };
            if !in_order {
                return Err(self.out_of_order(key));
            }
        }
        self.check(key, value)?;
        if !self.data.is_empty()
            && self.data.finished_bytes_with(shared, key.user.len(), value.len()) > self.options.block_bytes
        {
            self.finish_data_block(Some((key, shared)))?;
        }
        self.data.add(key, shared, value);
        if new_user_key {
            self.filter.add(key.user);
        }
        self.last_user_key.truncate(shared);
        self.last_user_key.extend_from_slice(&key.user[shared..]);
        self.last_trailer = key.trailer;

        let properties = &mut self.properties;
        if properties.entries == 0 {
            key.encode_into(&mut properties.smallest);
        }
        properties.entries += 1;
        properties.deletions += u64::from(key.trailer.0 as u8 == KeyKind::Delete as u8);
        properties.raw_key_bytes += (key.user.len() + KEY_TRAILER_BYTES) as u64;
        properties.raw_value_bytes += value.len() as u64;
        // Both lengths have been checked, and fit.
        properties.longest_key_bytes = properties.longest_key_bytes.max(Some(key.user.len() as u32));
        properties.longest_value_bytes = properties.longest_value_bytes.max(Some(value.len() as u32));
        properties.smallest_sequence = properties.smallest_sequence.min(key.trailer.sequence());
        properties.largest_sequence = properties.largest_sequence.max(key.trailer.sequence());
        Ok(())
    }

    #[inline]
    fn check(&self, key: KeyRef<'_>, value: &[u8]) -> Result<()> {
        match key.trailer.kind() {
            Some(KeyKind::Delete | KeyKind::Put | KeyKind::ValueHandle) => {}
            _ => return Err(Error::Invalid(format!("{key:?} cannot be an entry of a table"))),
        }
        if key.user.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            let (key_bytes, value_bytes) = (key.user.len(), value.len());
            return Err(Error::Invalid(format!(
                "an entry of {key_bytes} and {value_bytes} bytes is too long: keys may have {MAX_KEY_BYTES}, values \
                 {MAX_VALUE_BYTES}"
            )));
        }
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, key: KeyRef<'_>) -> Error {
        let last = KeyRef::new(&self.last_user_key, self.last_trailer);
        Error::Invalid(format!("the keys of a table ascend: {key:?} cannot follow {last:?}"))
    }

    /// Adds a range tombstone: all versions of user keys in `begin..end` older than `sequence` are gone. In any order.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the range is empty or a bound too long.
    pub fn add_range_tombstone(&mut self, begin: &[u8], sequence: SequenceNumber, end: &[u8]) -> Result<()> {
        if begin >= end || begin.len().max(end.len()) > MAX_KEY_BYTES || sequence > MAX_SEQUENCE {
            let range = format!("{}..{}", begin.escape_ascii(), end.escape_ascii());
            return Err(Error::Invalid(format!("no range tombstone can cover {range} at {sequence}")));
        }
        let trailer = Trailer::new(sequence, KeyKind::RangeDelete);
        self.range_tombstones.push((begin.to_vec(), trailer, end.to_vec()));
        self.range_tombstone_bytes += begin.len() + end.len() + KEY_TRAILER_BYTES + 15;
        self.properties.range_deletions += 1;
        self.properties.smallest_sequence = self.properties.smallest_sequence.min(sequence);
        self.properties.largest_sequence = self.properties.largest_sequence.max(sequence);
        Ok(())
    }

    /// Point entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// About how long the file would be if it were finished now; the open block is counted uncompressed.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        let open = if self.data.is_empty() { 0 } else { self.data.finished_bytes() + BLOCK_TRAILER_BYTES };
        // The properties' names and values, with the two keys as long as the last.
        let properties = 522 + self.properties.keyspace_name.len() + 2 * self.last_user_key.len();
        let index = self.leaves.len() + self.index.finished_bytes() + 48 * self.finished_leaves.len();
        let rest = open + properties + index + self.filter.finished_bytes() + self.range_tombstone_bytes;
        self.written + (rest + 4 * BLOCK_TRAILER_BYTES + FOOTER_BYTES) as u64
    }

    /// Appends the open data block to the file and its handle to the index. `next` is the entry that follows, with what
    /// its user key has in common with the last one's.
    fn finish_data_block(&mut self, next: Option<(KeyRef<'_>, usize)>) -> Result<()> {
        self.stored.clear();
        let block = self.data.finish();
        let warm = match &mut self.warmth {
            Some(warmth) => {
                let is_warm = warmth.bytes > 0 && warmth.bytes >= block.len() / WARM_PART;
                let left = std::mem::take(&mut warmth.warmth).saturating_sub(1);
                warmth.bytes = 0;
                let cache = if is_warm { warmth.warming.take(block.len()) } else { None };
                cache.map(|cache| {
                    let mut copy = cache.buffer(warmth.table_id, self.written, block.len());
                    copy.clear();
                    copy.extend_from_slice(block);
                    (copy, left)
                })
            }
            None => None,
        };
        let bytes = self.compressor.store(block, &mut self.stored);
        self.data.clear();
        let handle = self.append_stored(bytes)?;
        if let (Some((block, left)), Some(Warmth { warming, table_id, .. })) = (warm, &self.warmth) {
            let block = Block::new(block, handle.offset);
            let block =
                block.map_err(|d| Error::Invalid(format!("a block was built wrong: {} expected", d.expected)))?;
            warming.insert(*table_id, handle.offset, block, left);
        }
        self.properties.data_bytes += handle.stored_bytes();
        self.properties.data_blocks += 1;

        let last = KeyRef::new(&self.last_user_key, self.last_trailer);
        match next {
            Some((next, shared)) => separator(last, next, shared, &mut self.separator),
            None => {
                self.separator.clear();
                last.encode_into(&mut self.separator);
            }
        }
        let key = KeyRef::decode(&self.separator).unwrap_or(last);
        self.index.add(key, 0, &handle.encode());
        if self.index.finished_bytes() >= self.options.index_block_bytes {
            self.finish_leaf();
        }
        Ok(())
    }

    /// Closes the open index block; the last separator in it stands for it one level up.
    fn finish_leaf(&mut self) {
        let start = self.leaves.len();
        let bytes = self.compressor.store(self.index.finish(), &mut self.leaves);
        self.index.clear();
        self.finished_leaves.push(FinishedLeaf { separator: self.separator.clone(), start, bytes });
    }

    /// Appends what is in `stored`, a block of `bytes` and its trailer.
    fn append_stored(&mut self, bytes: usize) -> Result<BlockHandle> {
        let Ok(bytes) = u32::try_from(bytes) else {
            return Err(Error::Invalid(format!("a block of {bytes} bytes is too long for a table")));
        };
        let handle = BlockHandle { offset: self.written, bytes };
        self.file.append(&self.stored)?;
        self.written += self.stored.len() as u64;
        Ok(handle)
    }

    /// Appends a block that is not worth compressing.
    fn append_plain(&mut self, block: &[u8]) -> Result<BlockHandle> {
        self.stored.clear();
        self.stored.extend_from_slice(block);
        let bytes = seal(&mut self.stored, 0, COMPRESSION_NONE);
        self.append_stored(bytes)
    }

    /// Appends the index blocks. One is the whole index: its handle is returned, for the footer. More get
    /// another one over them, which [`finish`](TableWriter::finish) appends later, so that it lies with what is read when the table is opened.
    fn finish_index(&mut self) -> Result<Option<BlockHandle>> {
        if !self.index.is_empty() {
            self.finish_leaf();
        }
        let base = self.written;
        self.stored.clear();
        std::mem::swap(&mut self.stored, &mut self.leaves);
        self.file.append(&self.stored)?;
        self.written += self.stored.len() as u64;
        for leaf in &self.finished_leaves {
            let Ok(bytes) = u32::try_from(leaf.bytes) else {
                return Err(Error::Invalid(format!("an index block of {} bytes is too long", leaf.bytes)));
            };
            let handle = BlockHandle { offset: base + leaf.start as u64, bytes };
            self.properties.index_bytes += handle.stored_bytes();
            if self.finished_leaves.len() == 1 {
                return Ok(Some(handle));
            }
            let Some(separator) = KeyRef::decode(&leaf.separator) else { continue };
            self.index.add(separator, 0, &handle.encode());
            self.properties.index_blocks += 1;
        }
        Ok(None)
    }

    fn finish_range_tombstones(&mut self) -> Result<BlockHandle> {
        if self.range_tombstones.is_empty() {
            return Ok(BlockHandle::default());
        }
        let mut tombstones = std::mem::take(&mut self.range_tombstones);
        tombstones.sort_unstable_by(|(b1, t1, e1), (b2, t2, e2)| (b1, t2, e1).cmp(&(b2, t1, e2)));
        let mut block = BlockBuilder::new(self.options.restart_interval);
        let mut last: &[u8] = &[];
        for (begin, trailer, end) in &tombstones {
            block.add(KeyRef::new(begin, *trailer), common_prefix(last, begin), end);
            last = begin;
        }
        self.append_plain(block.finish())
    }

    /// Writes what is still in memory, syncs and closes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<TableSummary> {
        if !self.data.is_empty() {
            self.finish_data_block(None)?;
        }
        let only_index_block = self.finish_index()?;
        let filter = match self.filter.finish() {
            Some(block) => self.append_plain(&block)?,
            None => BlockHandle::default(),
        };
        let range_tombstones = self.finish_range_tombstones()?;

        let top = match only_index_block {
            Some(_) => Vec::new(),
            None => self.index.finish().to_vec(),
        };
        let properties = &mut self.properties;
        if !top.is_empty() {
            properties.index_bytes += (top.len() + BLOCK_TRAILER_BYTES) as u64;
        }
        if !filter.is_absent() {
            properties.filter_bytes = filter.stored_bytes();
        }
        if properties.entries > 0 {
            KeyRef::new(&self.last_user_key, self.last_trailer).encode_into(&mut properties.largest);
        }
        if properties.entries + properties.range_deletions == 0 {
            properties.smallest_sequence = 0;
        }
        let mut block = Vec::new();
        properties.encode_into(&mut block);
        let properties = self.append_plain(&block)?;
        let index = match only_index_block {
            Some(handle) => handle,
            None => self.append_plain(&top)?,
        };
        let index_levels = if self.properties.index_blocks > 0 { 2 } else { 1 };
        let file_bytes = self.written + FOOTER_BYTES as u64;
        let footer = Footer { filter, range_tombstones, properties, index, index_levels, file_bytes };
        self.file.append(&footer.encode())?;
        self.file.finish()?;
        Ok(TableSummary { bytes: file_bytes, properties: self.properties })
    }
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableWriter({} entries, {} bytes written)", self.properties.entries, self.written)
    }
}

#[cfg(test)]
mod tests;
