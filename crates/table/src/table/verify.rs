//! Reading all of a table and checking everything that the format promises.

use super::{Table, decode_range_tombstones};
use crate::block::{Block, BlockCursor};
use crate::compress::decode_owned;
use crate::filter::{Filter, hash_key};
use crate::format::{BlockHandle, Damage, FOOTER_BYTES, HEADER_BYTES, KEY_TRAILER_BYTES, header};
use crate::key::{KeyKind, KeyRef, MAX_SEQUENCE};
use crate::options::Reach;
use crate::properties::Properties;
use crate::table::cursor::Window;
use crate::value_lengths::ValueLengths;
use situ_storage::Result;
use situ_storage::memory::zeroed;
use std::sync::Arc;

/// Data is read in pieces of this size.
const READ_BYTES: usize = 256 << 10;

/// The state of a verification so far.
struct Audit<'a> {
    table: &'a Table,
    window: Window,
    filter: Option<Filter>,
    /// The properties as counted from the entries.
    counted: Properties,
    last_key: Vec<u8>,
    last_separator: Vec<u8>,
    /// The offset where the next data block must begin.
    data_offset: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Table {
    /// Reads the whole file, past the cache, and checks everything: each checksum, the order of keys, the index against
    /// the data, and the properties against the entries. The blocks must fill the file without gap or overlap, and the
    /// filter must let each key pass. `progress` gets the number of data bytes checked, after each block.
    ///
    /// # Errors
    /// The first damage found, or the file cannot be read.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut found = [0; HEADER_BYTES];
        self.reader.read_at(0, &mut found)?;
        if found != header() {
            return Err(self.wrong(0, "header", format!("{:02x?}", header()), format!("{found:02x?}")));
        }
        let footer = self.footer;
        let mut others = vec![footer.properties, footer.index];
        let filter = match footer.filter.is_absent() {
            true => None,
            false => {
                others.push(footer.filter);
                let block = self.read_again(footer.filter, "filter")?;
                Some(Filter::decode(&block).map_err(|d| self.corruption(footer.filter.offset, "filter", d))?)
            }
        };
        let mut audit = Audit {
            table: self,
            window: Window::default(),
            filter,
            counted: Properties { smallest_sequence: MAX_SEQUENCE, ..Properties::default() },
            last_key: Vec::new(),
            last_separator: Vec::new(),
            data_offset: HEADER_BYTES as u64,
            progress,
        };
        let index_offset = footer.index.offset;
        let top = Block::new_index(self.read_again(footer.index, "index")?, index_offset)
            .map_err(|d| self.corruption(index_offset, "index", d))?;
        audit.counted.index_bytes = footer.index.stored_bytes();
        if footer.index_levels == 1 {
            audit.leaf(&top)?;
        } else {
            for i in 0..top.restart_count() {
                let (key, handle) = top.index_entry(i).map_err(|m| self.malformed(&top, m))?;
                let block = Block::new_index(self.read_again(handle, "index block")?, handle.offset)
                    .map_err(|d| self.corruption(handle.offset, "index block", d))?;
                audit.leaf(&block)?;
                if KeyRef::decode(&audit.last_separator) != Some(key) {
                    let expected = format!("{key:?} at its end");
                    return Err(self.wrong(handle.offset, "index block", expected, "another key"));
                }
                others.push(handle);
                audit.counted.index_bytes += handle.stored_bytes();
                audit.counted.index_blocks += 1;
            }
        }
        let counted = audit.counted;

        if !footer.range_tombstones.is_absent() {
            others.push(footer.range_tombstones);
        }
        self.check_tiling(others)?;
        self.check_properties(counted)
    }

    fn wrong(&self, offset: u64, what: &str, expected: impl ToString, found: impl ToString) -> situ_storage::Error {
        self.corruption(offset, what, Damage::new(expected, found))
    }

    /// Returns a block from the file, not from what was read at open.
    fn read_again(&self, handle: BlockHandle, what: &str) -> Result<Vec<u8>> {
        self.check_handle(handle, self.footer.file_bytes - FOOTER_BYTES as u64, what)?;
        let mut stored = zeroed(handle.stored_bytes() as usize, self.path())?;
        self.reader.read_at(handle.offset, &mut stored)?;
        decode_owned(stored, true).map_err(|d| self.corruption(handle.offset, what, d))
    }

    /// Checks that the blocks that are not data follow each other from the end of the data to the footer.
    fn check_tiling(&self, mut blocks: Vec<BlockHandle>) -> Result<()> {
        blocks.sort_by_key(|handle| handle.offset);
        let mut at = self.data_end;
        for handle in blocks {
            if handle.offset != at {
                return Err(self.wrong(at, "layout", "the next block", format!("one at {}", handle.offset)));
            }
            at += handle.stored_bytes();
        }
        let footer_at = self.footer.file_bytes - FOOTER_BYTES as u64;
        if at != footer_at {
            return Err(self.wrong(at, "layout", "the footer", format!("it at {footer_at}")));
        }
        let mut footer = [0; FOOTER_BYTES];
        self.reader.read_at(footer_at, &mut footer)?;
        if footer != self.footer.encode() {
            return Err(self.wrong(footer_at, "footer", "what it was when the table was opened", "something else"));
        }
        Ok(())
    }

    fn check_properties(&self, mut counted: Properties) -> Result<()> {
        let (footer, offset) = (self.footer, self.footer.properties.offset);
        if !footer.range_tombstones.is_absent() {
            let at = footer.range_tombstones.offset;
            let block = self.read_again(footer.range_tombstones, "range tombstones")?;
            let tombstones = decode_range_tombstones(block).map_err(|d| self.corruption(at, "range tombstones", d))?;
            if !tombstones.is_sorted_by_key(|t| (t.begin.clone(), std::cmp::Reverse(t.sequence))) {
                return Err(self.wrong(at, "range tombstones", "ascending begins", "another order"));
            }
            for tombstone in &tombstones {
                counted.smallest_sequence = counted.smallest_sequence.min(tombstone.sequence);
                counted.largest_sequence = counted.largest_sequence.max(tombstone.sequence);
                counted.range_deletions += 1;
            }
        }
        if !footer.filter.is_absent() {
            counted.filter_bytes = footer.filter.stored_bytes();
        }
        if counted.entries + counted.range_deletions == 0 {
            counted.smallest_sequence = 0;
        }
        let stored = Properties::decode(&self.read_again(footer.properties, "properties")?)
            .map_err(|d| self.corruption(offset, "properties", d))?;
        // The properties that cannot be counted.
        counted.created_unix_s = stored.created_unix_s;
        counted.compression = stored.compression;
        counted.keyspace_id = stored.keyspace_id;
        counted.keyspace_name.clone_from(&stored.keyspace_name);
        counted.writer_version.clone_from(&stored.writer_version);
        counted.lifetimes.clone_from(&stored.lifetimes);
        // Older programs do not tell.
        counted.longest_key_bytes = counted.longest_key_bytes.filter(|_| stored.longest_key_bytes.is_some());
        counted.longest_value_bytes = counted.longest_value_bytes.filter(|_| stored.longest_value_bytes.is_some());
        if stored.value_lengths.is_empty() {
            counted.value_lengths = ValueLengths::default();
        }
        if counted != stored {
            return Err(self.wrong(offset, "properties", format!("{counted:?}"), format!("{stored:?}")));
        }
        Ok(())
    }
}

impl Audit<'_> {
    /// Checks an index block and the data blocks that it points to.
    fn leaf(&mut self, leaf: &Block) -> Result<()> {
        let mut byte = 0;
        for i in 0..leaf.restart_count() {
            let (separator, handle) = leaf.index_entry(i).map_err(|m| self.table.malformed(leaf, m))?;
            if leaf.restart(i) != byte {
                return Err(self.wrong(leaf.file_offset(), "index block", "a restart at each entry", "another"));
            }
            byte = leaf.entry(byte).map_err(|m| self.table.malformed(leaf, m))?.next;
            if handle.offset != self.data_offset {
                let expected = format!("a data block at {}", self.data_offset);
                return Err(self.wrong(leaf.file_offset(), "index block", expected, format!("{handle:?}")));
            }
            self.data_block(handle, separator)?;
        }
        if byte != leaf.entries_end() {
            return Err(self.wrong(leaf.file_offset(), "index block", "a restart at each entry", "too few"));
        }
        Ok(())
    }

    fn data_block(&mut self, handle: BlockHandle, separator: KeyRef<'_>) -> Result<()> {
        self.table.check_handle(handle, self.table.data_end, "data block")?;
        if self.window.get(handle).is_none() {
            let left = self.table.data_end - handle.offset;
            let bytes = left.min(READ_BYTES as u64).max(handle.stored_bytes());
            self.window.fill(self.table, handle.offset, bytes as usize, Reach::Disk)?;
        }
        let stored = self.window.get(handle).unwrap_or_default().to_vec();
        let block = decode_owned(stored, true)
            .and_then(|block| Block::new(block, handle.offset))
            .map_err(|d| self.table.corruption(handle.offset, "data block", d))?;
        let mut cursor = BlockCursor::new(Arc::new(block));
        let mut restart = 0;
        let mut more = cursor.first().map_err(|m| self.table.malformed(cursor.block(), m))?;
        if !more {
            return Err(self.wrong(handle.offset, "data block", "at least one entry", "none"));
        }
        while more {
            if restart < cursor.block().restart_count() && cursor.block().restart(restart) == cursor.at() {
                restart += 1;
            }
            self.entry(handle, cursor.key(), cursor.value())?;
            more = cursor.next().map_err(|m| self.table.malformed(cursor.block(), m))?;
        }
        if restart != cursor.block().restart_count() {
            return Err(self.wrong(handle.offset, "data block", "restarts at entries, in order", "others"));
        }
        if KeyRef::decode(&self.last_key).is_none_or(|last| last > separator) {
            return Err(self.wrong(handle.offset, "data block", format!("keys up to {separator:?}"), "a larger one"));
        }
        self.last_separator.clear();
        separator.encode_into(&mut self.last_separator);
        self.data_offset += handle.stored_bytes();
        self.counted.data_bytes += handle.stored_bytes();
        self.counted.data_blocks += 1;
        (self.progress)(self.counted.data_bytes);
        Ok(())
    }

    fn entry(&mut self, handle: BlockHandle, key: KeyRef<'_>, value: &[u8]) -> Result<()> {
        let at = handle.offset;
        if let Some(last) = KeyRef::decode(&self.last_key)
            && last >= key
        {
            return Err(self.wrong(at, "data block", format!("a key behind {last:?}"), format!("{key:?}")));
        }
        if let Some(separator) = KeyRef::decode(&self.last_separator)
            && separator >= key
        {
            return Err(self.wrong(at, "data block", format!("keys behind {separator:?}"), format!("{key:?}")));
        }
        if !matches!(key.trailer.kind(), Some(KeyKind::Delete | KeyKind::Put | KeyKind::ValueHandle)) {
            return Err(self.wrong(at, "data block", "entries of a known kind", format!("{key:?}")));
        }
        if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash_key(key.user))) {
            let filter_at = self.table.footer.filter.offset;
            return Err(self.wrong(filter_at, "filter", format!("one that lets {key:?} pass"), "one that does not"));
        }
        let counted = &mut self.counted;
        if counted.entries == 0 {
            key.encode_into(&mut counted.smallest);
        }
        counted.largest.clear();
        key.encode_into(&mut counted.largest);
        counted.entries += 1;
        counted.deletions += u64::from(key.trailer.kind() == Some(KeyKind::Delete));
        counted.raw_key_bytes += (key.user.len() + KEY_TRAILER_BYTES) as u64;
        counted.raw_value_bytes += value.len() as u64;
        // A length that a table can hold fits.
        counted.longest_key_bytes = counted.longest_key_bytes.max(Some(key.user.len() as u32));
        counted.longest_value_bytes = counted.longest_value_bytes.max(Some(value.len() as u32));
        counted.value_lengths.add(value.len());
        counted.smallest_sequence = counted.smallest_sequence.min(key.trailer.sequence());
        counted.largest_sequence = counted.largest_sequence.max(key.trailer.sequence());
        self.last_key.clear();
        key.encode_into(&mut self.last_key);
        Ok(())
    }

    fn wrong(&self, offset: u64, what: &str, expected: impl ToString, found: impl ToString) -> situ_storage::Error {
        self.table.wrong(offset, what, expected, found)
    }
}
