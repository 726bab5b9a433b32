//! The first part of writing: entries become raw blocks. The module page of the writer has the whole way.

use crate::block::{BlockBuilder, RawBlock, entry_bytes};
use crate::filter::FilterBuilder;
use crate::format::{
    BLOCK_TRAILER_BYTES, FOOTER_BYTES, HANDLE_BYTES, HEADER_BYTES, KEY_TRAILER_BYTES, MAX_BLOCK_BYTES, MAX_KEY_BYTES,
    MAX_VALUE_BYTES, common_prefix, separator,
};
use crate::key::{KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Trailer};
use crate::lifetimes::Lifetime;
use crate::options::TableOptions;
use crate::properties::{Properties, WRITER_VERSION};
use situ_storage::{Error, Result};

/// The approximate bytes that each index block adds to the top index and the footer.
const LEAF_BYTES: usize = 48;

/// The part of a table behind its blocks.
#[derive(Debug)]
pub struct TableEnd {
    /// Without what only the appender knows: bytes and number of blocks.
    pub(crate) properties: Properties,
    pub(crate) filter: Option<Vec<u8>>,
    pub(crate) range_tombstones: Option<Vec<u8>>,
}

impl TableEnd {
    /// Returns the first and the last internal key; `None` if the table has no entries.
    pub fn key_bounds(&self) -> Option<(KeyRef<'_>, KeyRef<'_>)> {
        self.properties.smallest_key().zip(self.properties.largest_key())
    }

    /// Returns the memory that the filter and the range tombstones take.
    pub fn memory_bytes(&self) -> u64 {
        [&self.filter, &self.range_tombstones].into_iter().flatten().map(|bytes| bytes.capacity() as u64).sum()
    }
}

/// The size of the index if nothing of it were compressed.
#[derive(Debug)]
struct PlainIndex {
    finished_bytes: usize,
    open_bytes: usize,
    block_bytes: usize,
}

impl PlainIndex {
    const EMPTY_BLOCK_BYTES: usize = 4;

    fn new(block_bytes: usize) -> PlainIndex {
        PlainIndex { finished_bytes: 0, open_bytes: PlainIndex::EMPTY_BLOCK_BYTES, block_bytes }
    }

    fn add(&mut self, separator: &[u8]) {
        let user_key_bytes = separator.len().saturating_sub(KEY_TRAILER_BYTES);
        self.open_bytes += entry_bytes(0, user_key_bytes, HANDLE_BYTES) + 4;
        if self.open_bytes >= self.block_bytes {
            self.finished_bytes += self.open_bytes + BLOCK_TRAILER_BYTES + LEAF_BYTES;
            self.open_bytes = PlainIndex::EMPTY_BLOCK_BYTES;
        }
    }

    fn bytes(&self) -> usize {
        self.finished_bytes + self.open_bytes
    }
}

/// Turns entries into raw blocks. See the module page of the writer.
pub struct TableBuilder {
    options: TableOptions,
    pub(super) filter: FilterBuilder,
    data: BlockBuilder,
    index: PlainIndex,
    /// The last block, if it was built elsewhere: it waits for the key behind it. The open block is empty then.
    pub(super) built: Option<RawBlock>,
    /// The length of that block in the file if it were not compressed; 0 if there is none.
    pub(super) built_bytes: usize,
    /// A block whose memory the next one takes.
    pub(super) spare: Option<RawBlock>,
    pub(super) last_user_key: Vec<u8>,
    pub(super) last_trailer: Trailer,
    range_tombstones: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    range_tombstone_bytes: usize,
    /// All of [`estimated_bytes`](TableBuilder::estimated_bytes) that changes with a block only.
    beside_blocks_bytes: usize,
    pub(crate) properties: Properties,
}

impl TableBuilder {
    /// Creates a builder without entries.
    ///
    /// # Errors
    /// An option is out of range.
    pub fn new(options: &TableOptions, created_unix_s: u64) -> Result<TableBuilder> {
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
        let mut builder = TableBuilder {
            filter: FilterBuilder::new(options.filter_bits_per_key),
            data: BlockBuilder::new(options.restart_interval),
            index: PlainIndex::new(options.index_block_bytes),
            built: None,
            built_bytes: 0,
            spare: None,
            last_user_key: Vec::new(),
            last_trailer: Trailer::OLDEST,
            range_tombstones: Vec::new(),
            range_tombstone_bytes: 0,
            beside_blocks_bytes: 0,
            properties,
            options: options.clone(),
        };
        builder.measure_beside_blocks();
        Ok(builder)
    }

    /// Adds an entry. If the open block ends before the entry, the block is the result.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the key is not behind the last one, too long, or of a kind that is no entry. A
    /// refused entry changes nothing. [`OutOfMemory`](Error::OutOfMemory) if there is no memory for its block or for
    /// the filter; then the table cannot be finished.
    #[inline]
    pub fn add(&mut self, key: KeyRef<'_>, value: &[u8]) -> Result<Option<RawBlock>> {
        let (shared, new_user_key) = self.follows(key)?;
        check(key, value.len())?;
        let ends = match self.data.is_empty() {
            true => self.built.is_some(),
            false => self.data.finished_bytes_with(shared, key.user.len(), value.len()) > self.options.block_bytes,
        };
        let finished = if ends { self.finish_block(Some((key, shared))) } else { None };
        self.data.add(key, shared, value)?;
        if new_user_key {
            self.filter.add(key.user)?;
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
        properties.value_lengths.add(value.len());
        properties.smallest_sequence = properties.smallest_sequence.min(key.trailer.sequence());
        properties.largest_sequence = properties.largest_sequence.max(key.trailer.sequence());
        Ok(finished)
    }

    /// Checks that a key may follow the last one. Returns what their user keys have in common, and whether they differ.
    #[inline]
    pub(super) fn follows(&self, key: KeyRef<'_>) -> Result<(usize, bool)> {
        let shared = common_prefix(&self.last_user_key, key.user);
        if self.properties.entries == 0 {
            return Ok((shared, true));
        }
        let (in_order, new_user_key) = match (self.last_user_key.get(shared), key.user.get(shared)) {
            (None, None) => (key.trailer < self.last_trailer, false),
            (last, this) => (last < this, true),
        };
        if in_order { Ok((shared, new_user_key)) } else { Err(self.out_of_order(key)) }
    }

    #[cold]
    fn out_of_order(&self, key: KeyRef<'_>) -> Error {
        let last = KeyRef::new(&self.last_user_key, self.last_trailer);
        Error::Invalid(format!("the keys of a table ascend: {key:?} cannot follow {last:?}"))
    }

    /// Adds a range tombstone: all versions of user keys in `begin..end` older than `sequence` are gone. In any order.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the range is empty or a bound too long. [`OutOfMemory`](Error::OutOfMemory) if
    /// there is no memory for it.
    pub fn add_range_tombstone(&mut self, begin: &[u8], sequence: SequenceNumber, end: &[u8]) -> Result<()> {
        if begin >= end || begin.len().max(end.len()) > MAX_KEY_BYTES || sequence > MAX_SEQUENCE {
            let range = format!("{}..{}", begin.escape_ascii(), end.escape_ascii());
            return Err(Error::Invalid(format!("no range tombstone can cover {range} at {sequence}")));
        }
        if self.range_tombstones.try_reserve(1).is_err() {
            let bytes = 2 * self.range_tombstones.len() * size_of::<(Vec<u8>, Trailer, Vec<u8>)>();
            return Err(Error::out_of_memory(bytes, "the range tombstones of a table"));
        }
        let trailer = Trailer::new(sequence, KeyKind::RangeDelete);
        self.range_tombstones.push((begin.to_vec(), trailer, end.to_vec()));
        self.range_tombstone_bytes += begin.len() + end.len() + KEY_TRAILER_BYTES + 15;
        self.properties.range_deletions += 1;
        self.properties.smallest_sequence = self.properties.smallest_sequence.min(sequence);
        self.properties.largest_sequence = self.properties.largest_sequence.max(sequence);
        Ok(())
    }

    /// Counts the lifetime of an entry that was added.
    pub fn note_lifetime(&mut self, lifetime: &Lifetime) {
        self.properties.lifetimes.add(self.properties.created_unix_s, lifetime);
    }

    /// Returns the number of point entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// Returns about how long the file would be if it were finished now, and the blocks given out took `blocks_bytes`
    /// in it. The open block and the index are counted uncompressed.
    #[inline]
    pub fn estimated_bytes(&self, blocks_bytes: u64) -> u64 {
        let open = match self.data.is_empty() {
            true => self.built_bytes,
            false => self.data.finished_bytes() + BLOCK_TRAILER_BYTES,
        };
        // The properties have two keys, each about as long as the last.
        let keys = 2 * self.last_user_key.len();
        blocks_bytes + (open + keys + self.bytes_beside_blocks_with(0)) as u64
    }

    /// Returns the part of the estimate that is neither blocks nor keys, after this number of further keys.
    #[inline]
    pub(super) fn bytes_beside_blocks_with(&self, keys: usize) -> usize {
        self.filter.finished_bytes_with(keys) + self.range_tombstone_bytes + self.beside_blocks_bytes
    }

    /// Checks that no entry is in an open block, and none waits in one that was built elsewhere.
    pub(super) fn check_no_open_block(&self) -> Result<()> {
        match self.data.is_empty() && self.built.is_none() {
            true => Ok(()),
            false => Err(Error::Invalid("a block of a table begins before the one before it has ended".to_owned())),
        }
    }

    fn measure_beside_blocks(&mut self) {
        // The properties' names and values, without the two keys.
        let histograms = self.properties.value_lengths.encoded_bytes() + self.properties.lifetimes.encoded_bytes();
        let properties = 540 + self.properties.keyspace_name.len() + histograms;
        self.beside_blocks_bytes =
            HEADER_BYTES + properties + self.index.bytes() + 4 * BLOCK_TRAILER_BYTES + FOOTER_BYTES;
    }

    /// Ends the open data block, or the one that was built elsewhere; `None` if there is neither. `next` is the entry
    /// that follows, with what its user key has in common with the last one's.
    pub(super) fn finish_block(&mut self, next: Option<(KeyRef<'_>, usize)>) -> Option<RawBlock> {
        let is_built = self.built.is_some();
        let mut block = match self.built.take() {
            Some(built) => built,
            None if self.data.is_empty() => return None,
            None => self.spare.take().unwrap_or_default(),
        };
        let parts = &mut *block.0;
        match is_built {
            true => self.built_bytes = 0,
            false => {
                parts.built = None;
                self.data.finish_into(&mut parts.bytes);
            }
        }
        let last = KeyRef::new(&self.last_user_key, self.last_trailer);
        match next {
            Some((next, shared)) => separator(last, next, shared, &mut parts.separator),
            None => {
                parts.separator.clear();
                last.encode_into(&mut parts.separator);
            }
        }
        parts.warmth = None;
        self.index.add(&parts.separator);
        self.measure_beside_blocks();
        Some(block)
    }

    /// Takes the memory of a block that is in the file, for the next one.
    pub fn recycle(&mut self, memory: RawBlock) {
        self.spare = Some(memory);
    }

    /// Returns the last block, if there is one, and the part behind the blocks.
    ///
    /// # Errors
    /// There is no memory for the filter or the range tombstones.
    pub fn finish(mut self) -> Result<(Option<RawBlock>, TableEnd)> {
        let last = self.finish_block(None);
        let range_tombstones = self.finish_range_tombstones()?;
        let mut properties = self.properties;
        if properties.entries > 0 {
            KeyRef::new(&self.last_user_key, self.last_trailer).encode_into(&mut properties.largest);
        }
        if properties.entries + properties.range_deletions == 0 {
            properties.smallest_sequence = 0;
        }
        Ok((last, TableEnd { properties, filter: self.filter.finish()?, range_tombstones }))
    }

    fn finish_range_tombstones(&mut self) -> Result<Option<Vec<u8>>> {
        if self.range_tombstones.is_empty() {
            return Ok(None);
        }
        let mut tombstones = std::mem::take(&mut self.range_tombstones);
        tombstones.sort_unstable_by(|(b1, t1, e1), (b2, t2, e2)| (b1, t2, e1).cmp(&(b2, t1, e2)));
        let mut block = BlockBuilder::new(self.options.restart_interval);
        let mut last: &[u8] = &[];
        for (begin, trailer, end) in &tombstones {
            block.add(KeyRef::new(begin, *trailer), common_prefix(last, begin), end)?;
            last = begin;
        }
        let mut finished = Vec::new();
        block.finish_into(&mut finished);
        Ok(Some(finished))
    }
}

impl std::fmt::Debug for TableBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableBuilder({} entries)", self.entries())
    }
}

#[inline]
fn check(key: KeyRef<'_>, value_bytes: usize) -> Result<()> {
    match key.trailer.kind() {
        Some(KeyKind::Delete | KeyKind::Put | KeyKind::ValueHandle) => {}
        _ => return Err(Error::Invalid(format!("{key:?} cannot be an entry of a table"))),
    }
    if key.user.len() > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
        let key_bytes = key.user.len();
        return Err(Error::Invalid(format!(
            "an entry of {key_bytes} and {value_bytes} bytes is too long: keys may have {MAX_KEY_BYTES}, values \
             {MAX_VALUE_BYTES}"
        )));
    }
    Ok(())
}
