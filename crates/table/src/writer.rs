//! Writing a table: entries in, in order; a file out.
//!
//! Three parts do the work. Each part may run on a thread of its own:
//!
//! ```text
//! entries -> TableBuilder -> RawBlock -> BlockEncoder -> EncodedBlock -> TableAppender -> file
//!            fills blocks               compresses,                     puts blocks in order into the file,
//!            in order                   checksums: any thread           writes index, filter, properties, footer
//! ```
//!
//! 1. [`TableBuilder`] puts each entry into the open data block, and its key's hash to the filter. When the next entry
//!    would make the block larger than asked, the builder gives the block out as a [`RawBlock`]. The raw block has its
//!    *separator*: the shortest key between its last entry and the next entry.
//! 2. [`BlockEncoder`](crate::BlockEncoder) compresses a raw block and adds the checksum. It looks at nothing else.
//! 3. [`TableAppender`] appends encoded blocks in their order. Separator and place of each block go into the open index
//!    block. Finished index blocks stay in memory: they follow the data.
//! 4. At the end the builder gives out a [`TableEnd`]: filter, range tombstones, properties. The appender writes index
//!    blocks, filter, range tombstones, properties, top index and footer.
//!
//! A [`BuiltBlock`] comes from an accelerator: the builder takes its report in place of its entries, and the encoder
//! passes it on.
//!
//! [`TableWriter`] is the three parts on one thread. An appender that may warm a cache puts data blocks into it that
//! were [marked warm](RawBlock::mark_warm).
//!
//! **Invariants**: internal keys strictly ascend, or [`add`](TableBuilder::add) refuses. Same options, creation time
//! and entries: same bytes, whatever thread did which part. **Threads**: each part is used by one thread at a time.
//! **Failure**: after an error the file must be given up; a dropped appender leaves a file without a footer, which no
//! reader accepts.
//! **Memory**: a data block, the index (about 1 % of the data) and 8 bytes per key until the table is finished.

use crate::block::RawBlock;
use crate::key::{KeyRef, SequenceNumber};
use crate::options::TableOptions;
use crate::properties::Properties;
use situ_storage::{Result, Writer};

mod appender;
mod builder;
mod built;

pub use appender::TableAppender;
pub use builder::{TableBuilder, TableEnd};
pub use built::BuiltBlock;

/// The result of a [`TableWriter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSummary {
    /// The file's length.
    pub bytes: u64,
    /// The table's account of itself, as it is in the file.
    pub properties: Properties,
}

/// All parts on the caller's thread. See the [module](self).
pub struct TableWriter {
    builder: TableBuilder,
    appender: TableAppender,
}

impl TableWriter {
    /// Begins a table in a new file.
    ///
    /// # Errors
    /// Writing the header failed, or an option is out of range.
    pub fn new(file: Box<dyn Writer>, options: &TableOptions, created_unix_s: u64) -> Result<TableWriter> {
        let builder = TableBuilder::new(options, created_unix_s)?;
        Ok(TableWriter { builder, appender: TableAppender::new(file, options)? })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`Invalid`](situ_storage::Error::Invalid) if the key is not behind the last one, too long, or of a kind that is
    /// no entry; or the file cannot be written.
    #[inline]
    pub fn add(&mut self, key: KeyRef<'_>, value: &[u8]) -> Result<()> {
        match self.builder.add(key, value)? {
            None => Ok(()),
            Some(block) => self.store(block),
        }
    }

    /// Appends a block that was built elsewhere. Entries and blocks may alternate.
    ///
    /// # Errors
    /// [`Invalid`](situ_storage::Error::Invalid) if its keys cannot follow the last one, or its report contradicts
    /// itself; or the file cannot be written.
    pub fn append_block(&mut self, block: &BuiltBlock<'_>) -> Result<()> {
        if let Some(before) = self.builder.end_block(block.first)? {
            self.store(before)?;
        }
        self.builder.add_built(block)?;
        self.appender.append_built(block)
    }

    /// Adds a range tombstone: all versions of user keys in `begin..end` older than `sequence` are gone. In any order.
    ///
    /// # Errors
    /// [`Invalid`](situ_storage::Error::Invalid) if the range is empty or a bound too long.
    pub fn add_range_tombstone(&mut self, begin: &[u8], sequence: SequenceNumber, end: &[u8]) -> Result<()> {
        self.builder.add_range_tombstone(begin, sequence, end)
    }

    /// Returns the number of point entries so far.
    pub fn entries(&self) -> u64 {
        self.builder.entries()
    }

    /// Returns about how long the file would be if it were finished now; the open block and the index are counted
    /// uncompressed.
    #[inline]
    pub fn estimated_bytes(&self) -> u64 {
        self.builder.estimated_bytes(self.appender.data_bytes())
    }

    fn store(&mut self, block: RawBlock) -> Result<()> {
        let memory = self.appender.encode_and_append(block)?;
        self.builder.recycle(memory);
        Ok(())
    }

    /// Writes what is still in memory, syncs and closes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<TableSummary> {
        let TableWriter { builder, mut appender } = self;
        let (last, end) = builder.finish()?;
        if let Some(block) = last {
            appender.encode_and_append(block)?;
        }
        appender.finish(end)
    }
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableWriter({} entries, {} bytes of blocks)", self.entries(), self.appender.data_bytes())
    }
}

#[cfg(test)]
mod tests;
