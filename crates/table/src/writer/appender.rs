//! The last part of writing: encoded blocks and the end of the table go into the file. The module page of the writer
//! has the whole way.

use super::TableSummary;
use super::builder::TableEnd;
use super::built::BuiltBlock;
use crate::block::{Block, BlockBuilder, EncodedBlock, RawBlock};
use crate::cache::Warming;
use crate::compress::{BlockEncoder, seal};
use crate::format::{BLOCK_TRAILER_BYTES, BlockHandle, COMPRESSION_NONE, FOOTER_BYTES, Footer, HEADER_BYTES, header};
use crate::key::KeyRef;
use crate::options::TableOptions;
use crate::properties::Properties;
use situ_storage::{Error, Result, Writer};
use std::sync::Arc;

/// An index block that waits to be written behind the data.
#[derive(Debug)]
struct FinishedLeaf {
    separator: Vec<u8>,
    /// The offset in `leaves`.
    start: usize,
    bytes: usize,
}

/// Puts encoded blocks into a file, in order. See the module page of the writer.
pub struct TableAppender {
    file: Box<dyn Writer>,
    encoder: BlockEncoder,
    index: BlockBuilder,
    index_block_bytes: usize,
    /// Finished index blocks as they will be stored, one after the other.
    leaves: Vec<u8>,
    finished_leaves: Vec<FinishedLeaf>,
    /// Bytes appended to the file.
    written: u64,
    data_bytes: u64,
    data_blocks: u64,
    /// The place of a block that was built elsewhere and is not in the index yet.
    built: Option<BlockHandle>,
    /// The cache for warm blocks, and the number by which the cache knows the table.
    warming: Option<(Arc<Warming>, u64)>,
}

impl TableAppender {
    /// Begins a table in a new file. `options` are those of the builder.
    ///
    /// # Errors
    /// Writing the header failed, or an option is out of range.
    pub fn new(mut file: Box<dyn Writer>, options: &TableOptions) -> Result<TableAppender> {
        let encoder = BlockEncoder::new(options.compression)?;
        file.append(&header())?;
        Ok(TableAppender {
            file,
            encoder,
            index: BlockBuilder::new(1),
            index_block_bytes: options.index_block_bytes,
            leaves: Vec::new(),
            finished_leaves: Vec::new(),
            written: HEADER_BYTES as u64,
            data_bytes: 0,
            data_blocks: 0,
            built: None,
            warming: None,
        })
    }

    /// Lets the appender put warm blocks into the cache through which the table will be read, opened by this number.
    pub fn set_warming(&mut self, warming: Arc<Warming>, table_id: u64) {
        self.warming = Some((warming, table_id));
    }

    /// Returns the number of bytes that the blocks so far take in the file.
    #[inline]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Encodes on this thread, and appends. The result is memory for the builder's next block.
    ///
    /// # Errors
    /// See [`append`](TableAppender::append).
    pub fn encode_and_append(&mut self, block: RawBlock) -> Result<RawBlock> {
        let encoded = self.encoder.encode(block)?;
        self.append(encoded)
    }

    /// Appends the next block in the builder's order, and its place to the index. The result is memory for another
    /// block.
    ///
    /// # Errors
    /// The file cannot be written, or the block is longer than a table can hold.
    pub fn append(&mut self, encoded: EncodedBlock) -> Result<RawBlock> {
        let handle = match encoded.block.0.built {
            None => self.append_stored(encoded.stored())?,
            Some(_) => self.built.take().ok_or_else(not_in_file)?,
        };
        self.data_bytes += handle.stored_bytes();
        self.data_blocks += 1;
        self.put_into_cache(&encoded, handle.offset)?;
        let separator = &encoded.block.0.separator;
        let Some(key) = KeyRef::decode(separator) else {
            return Err(Error::Invalid(format!("no separator is {} bytes long", separator.len())));
        };
        self.index.add(key, 0, &handle.encode())?;
        if self.index.finished_bytes() >= self.index_block_bytes {
            self.finish_leaf(separator)?;
        }
        Ok(encoded.block)
    }

    /// Appends the bytes of a block that was built elsewhere. Its place goes into the index once the builder gives the
    /// block out.
    ///
    /// # Errors
    /// The file cannot be written, or the block is longer than a table can hold.
    pub fn append_built(&mut self, block: &BuiltBlock<'_>) -> Result<()> {
        if self.built.is_some() {
            return Err(not_in_file());
        }
        self.built = Some(self.append_stored(block.stored)?);
        Ok(())
    }

    fn put_into_cache(&self, encoded: &EncodedBlock, offset: u64) -> Result<()> {
        let (Some((warming, table_id)), Some(warmth)) = (&self.warming, encoded.block.0.warmth) else { return Ok(()) };
        let raw = encoded.raw();
        let Some(cache) = warming.take(raw.len()) else { return Ok(()) };
        let mut copy = cache.buffer(*table_id, offset, raw.len());
        copy.clear();
        // Without memory, the block is not warm.
        if copy.try_reserve(raw.len()).is_err() {
            return Ok(());
        }
        copy.extend_from_slice(raw);
        let block = Block::new(copy, offset)
            .map_err(|d| Error::Invalid(format!("a block was built wrong: {} expected", d.expected)))?;
        warming.insert(*table_id, offset, block, warmth);
        Ok(())
    }

    /// Closes the open index block; the last separator in it stands for it one level up.
    fn finish_leaf(&mut self, separator: &[u8]) -> Result<()> {
        let start = self.leaves.len();
        let bytes = self.encoder.store(self.index.finish(), &mut self.leaves)?;
        self.index.clear();
        self.finished_leaves.push(FinishedLeaf { separator: separator.to_vec(), start, bytes });
        Ok(())
    }

    /// Appends a stored block with its trailer.
    fn append_stored(&mut self, stored: &[u8]) -> Result<BlockHandle> {
        let Ok(bytes) = u32::try_from(stored.len() - BLOCK_TRAILER_BYTES) else {
            return Err(Error::Invalid(format!("a block of {} bytes is too long for a table", stored.len())));
        };
        let handle = BlockHandle { offset: self.written, bytes };
        self.file.append(stored)?;
        self.written += stored.len() as u64;
        Ok(handle)
    }

    /// Appends a block that is not worth compressing.
    fn append_plain(&mut self, mut block: Vec<u8>) -> Result<BlockHandle> {
        seal(&mut block, 0, COMPRESSION_NONE);
        self.append_stored(&block)
    }

    /// Appends the index blocks. One is the whole index: its handle is returned, for the footer. More get another one
    /// over them, which [`finish`](TableAppender::finish) appends later, so that it lies with what is read when the
    /// table is opened.
    fn finish_index(&mut self, properties: &mut Properties) -> Result<Option<BlockHandle>> {
        if !self.index.is_empty() {
            // Nothing lies behind the last data block: its separator is the table's last key.
            self.finish_leaf(&properties.largest)?;
        }
        let base = self.written;
        self.file.append(&self.leaves)?;
        self.written += self.leaves.len() as u64;
        for leaf in &self.finished_leaves {
            let Ok(bytes) = u32::try_from(leaf.bytes) else {
                return Err(Error::Invalid(format!("an index block of {} bytes is too long", leaf.bytes)));
            };
            let handle = BlockHandle { offset: base + leaf.start as u64, bytes };
            properties.index_bytes += handle.stored_bytes();
            if self.finished_leaves.len() == 1 {
                return Ok(Some(handle));
            }
            let Some(separator) = KeyRef::decode(&leaf.separator) else { continue };
            self.index.add(separator, 0, &handle.encode())?;
            properties.index_blocks += 1;
        }
        Ok(None)
    }

    /// Writes what is still in memory, syncs and closes the file. All blocks have been appended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, end: TableEnd) -> Result<TableSummary> {
        let TableEnd { mut properties, filter, range_tombstones } = end;
        (properties.data_bytes, properties.data_blocks) = (self.data_bytes, self.data_blocks);
        let only_index_block = self.finish_index(&mut properties)?;
        let filter = filter.map_or(Ok(BlockHandle::default()), |block| self.append_plain(block))?;
        let range_tombstones = range_tombstones.map_or(Ok(BlockHandle::default()), |block| self.append_plain(block))?;
        let top = match only_index_block {
            Some(_) => Vec::new(),
            None => self.index.finish().to_vec(),
        };
        if !top.is_empty() {
            properties.index_bytes += (top.len() + BLOCK_TRAILER_BYTES) as u64;
        }
        if !filter.is_absent() {
            properties.filter_bytes = filter.stored_bytes();
        }
        let mut block = Vec::new();
        properties.encode_into(&mut block);
        let properties_handle = self.append_plain(block)?;
        let index = match only_index_block {
            Some(handle) => handle,
            None => self.append_plain(top)?,
        };
        let index_levels = if properties.index_blocks > 0 { 2 } else { 1 };
        let file_bytes = self.written + FOOTER_BYTES as u64;
        let footer =
            Footer { filter, range_tombstones, properties: properties_handle, index, index_levels, file_bytes };
        self.file.append(&footer.encode())?;
        self.file.finish()?;
        Ok(TableSummary { bytes: file_bytes, properties })
    }
}

fn not_in_file() -> Error {
    Error::Invalid(
        "blocks that were built elsewhere go into the file one by one, each before it is given out".to_owned(),
    )
}

impl std::fmt::Debug for TableAppender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableAppender({} blocks, {} bytes written)", self.data_blocks, self.written)
    }
}
