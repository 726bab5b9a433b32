//! Getting out of a damaged table what is still sound.
//!
//! A table's blocks lie back to back from the header to the footer, each closed by its own checksum. So a block can be
//! found in two ways: a handle points to it, or it begins where the one before it ends.
//!
//! 1. Collect the handles that can still be read: footer, top index, index blocks.
//! 2. Go through the file from the first byte behind the header. Where a known block begins, it is read and checked. In
//!    a stretch that no handle points into (the footer or an index block is damaged), the end of the next block is
//!    searched byte by byte. It is where the checksum over all bytes so far stands behind them, and the bytes before it
//!    decode.
//! 3. A block found that way says itself what it is: index blocks hold handles, range tombstones have their own kind,
//!    properties have names.
//! 4. Entries of sound data blocks are handed out in order; between the keys around a damaged one, others are lost.
//!
//! **Invariants**: what is handed out ascends strictly and was written into this table (short of a checksum that
//! collides). Every entry of the table that is not handed out lies in a reported stretch of keys.
//! **Cost**: the file is read once, and stretches without an index once more, at the speed of a bytewise checksum.
//! Memory: the handles of all blocks, and one block.
//! **Failure**: total over arbitrary bytes. Only errors of the receiver end it.
//!
//! Rejected: searching for the next block behind a damaged one that no handle points to. It takes two damaged places in
//! one table, the index and a block; what is behind the second one is given up, and reported.

use crate::block::{Block, BlockCursor};
use crate::compress::decode_owned;
use crate::filter::Filter;
use crate::format::{
    BLOCK_TRAILER_BYTES, BlockHandle, Damage, FOOTER_BYTES, Footer, HEADER_BYTES, MAX_BLOCK_BYTES, header,
};
use crate::key::{KeyKind, KeyRef};
use crate::properties::Properties;
use crate::range_del::RangeTombstone;
use crate::table::decode_range_tombstones;
use situ_storage::memory::zeroed;
use situ_storage::{Corruption, Error, Reader, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The size of the pieces in which stretches without a handle are read.
const PIECE_BYTES: usize = 256 << 10;
/// A block has at least its restart count and its trailer.
const BLOCK_BYTES_MIN: u64 = 4 + BLOCK_TRAILER_BYTES as u64;

/// Keys that are lost: those from `after` to `before`, both included. A damaged block may have held older versions of
/// the one and newer versions of the other. Entries with these two keys may have been handed out too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostKeys {
    /// The last user key handed out before; `None` is the beginning of the table.
    pub after: Option<Vec<u8>>,
    /// The first user key handed out behind; `None` is the end of the table.
    pub before: Option<Vec<u8>>,
    /// The first damaged byte.
    pub offset: u64,
}

/// The findings of [`salvage`].
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Entries handed out.
    pub entries: u64,
    /// The table's account of itself, if it could be read.
    pub properties: Option<Properties>,
    /// The range tombstones, if they could be read. `None`: they could not, and it is unknown whether there were any.
    pub range_tombstones: Option<Vec<RangeTombstone>>,
    /// The ranges where keys are lost, in order.
    pub lost: Vec<LostKeys>,
    /// All that is wrong with the file, in the order of discovery.
    pub damages: Vec<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Index,
    TopIndex,
    Filter,
    RangeTombstones,
    Properties,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Data => "data block",
            Kind::Index => "index block",
            Kind::TopIndex => "index",
            Kind::Filter => "filter",
            Kind::RangeTombstones => "range tombstones",
            Kind::Properties => "properties",
        }
    }
}

/// Hands out every entry of a table file that can still be read, in key order, and says what is damaged. Works on any
/// bytes.
///
/// # Errors
/// Those of `entry` only.
pub fn salvage(reader: &dyn Reader, entry: &mut dyn FnMut(KeyRef<'_>, &[u8]) -> Result<()>) -> Result<Salvaged> {
    let mut salvor = Salvor {
        reader,
        entry,
        out: Salvaged::default(),
        known: BTreeMap::new(),
        last_key: Vec::new(),
        open_loss: None,
        behind_data: false,
        footer: None,
    };
    salvor.survey();
    salvor.walk()?;
    Ok(salvor.out)
}

struct Salvor<'a> {
    reader: &'a dyn Reader,
    entry: &'a mut dyn FnMut(KeyRef<'_>, &[u8]) -> Result<()>,
    out: Salvaged,
    /// Blocks that a handle points to, by offset.
    known: BTreeMap<u64, (BlockHandle, Kind)>,
    /// The last internal key handed out, encoded.
    last_key: Vec<u8>,
    /// A loss whose end is not known yet.
    open_loss: Option<LostKeys>,
    /// All data blocks have been passed.
    behind_data: bool,
    footer: Option<Footer>,
}

impl Salvor<'_> {
    fn damage(&mut self, offset: u64, what: &str, damage: Damage) {
        self.out.damages.push(damage.error(self.reader.path(), offset, what));
    }

    /// Does step 1.
    fn survey(&mut self) {
        let bytes = self.reader.bytes();
        let mut found = [0; HEADER_BYTES];
        match self.reader.read_at(0, &mut found) {
            Err(error) => self.out.damages.push(error),
            Ok(()) if found != header() => {
                let damage = Damage::new(format!("{:02x?}", header()), format!("{found:02x?}"));
                self.damage(0, "header", damage);
            }
            Ok(()) => {}
        }
        let least = (HEADER_BYTES + FOOTER_BYTES) as u64;
        let Some(footer_at) = bytes.checked_sub(FOOTER_BYTES as u64).filter(|_| bytes >= least) else {
            self.damage(0, "length", Damage::new(format!("at least {least} bytes"), format!("{bytes}")));
            return;
        };
        let mut stored = [0; FOOTER_BYTES];
        if let Err(error) = self.reader.read_at(footer_at, &mut stored) {
            self.out.damages.push(error);
            return;
        }
        match Footer::decode(&stored, bytes) {
            Err(damage) => self.damage(footer_at, "footer", damage),
            Ok(footer) => {
                self.footer = Some(footer);
                self.know(footer.filter, Kind::Filter);
                self.know(footer.range_tombstones, Kind::RangeTombstones);
                self.know(footer.properties, Kind::Properties);
                if footer.index_levels == 1 {
                    self.know(footer.index, Kind::Index);
                } else {
                    self.know(footer.index, Kind::TopIndex);
                    self.follow(footer.index, Kind::Index);
                }
                let leaves: Vec<BlockHandle> =
                    self.known.values().filter(|(_, kind)| *kind == Kind::Index).map(|(handle, _)| *handle).collect();
                for leaf in leaves {
                    self.follow(leaf, Kind::Data);
                }
            }
        }
    }

    fn know(&mut self, handle: BlockHandle, kind: Kind) {
        let end = self.reader.bytes().saturating_sub(FOOTER_BYTES as u64);
        let inside = handle.offset >= HEADER_BYTES as u64 && handle.end().is_some_and(|block_end| block_end <= end);
        if !handle.is_absent() && inside && handle.bytes as usize <= MAX_BLOCK_BYTES {
            self.known.entry(handle.offset).or_insert((handle, kind));
        }
    }

    /// Notes the blocks that an index block points to, if it can be read. The walk reports that it cannot.
    fn follow(&mut self, index: BlockHandle, kind: Kind) {
        let block = self.read(index);
        let Some(index) = self.unless_no_memory(block).and_then(|block| IndexBlock::decode(block, index.offset)) else {
            return;
        };
        index.handles.into_iter().for_each(|handle| self.know(handle, kind));
    }

    /// Returns a block if it could be read. Lists lack of memory among the damages. Lack of memory says nothing about
    /// the block, and the caller must not take the rest for all that there is.
    fn unless_no_memory(&mut self, block: Result<Vec<u8>>) -> Option<Vec<u8>> {
        match block {
            Ok(block) => Some(block),
            Err(error) => {
                if error.is_out_of_memory() {
                    self.out.damages.push(error);
                }
                None
            }
        }
    }

    fn read(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let mut stored = zeroed(handle.stored_bytes() as usize, self.reader.path())?;
        self.reader.read_at(handle.offset, &mut stored)?;
        decode_owned(stored, true).map_err(|d| d.error(self.reader.path(), handle.offset, "block"))
    }

    /// Does step 2.
    fn walk(&mut self) -> Result<()> {
        let end = match self.footer {
            Some(footer) => footer.file_bytes - FOOTER_BYTES as u64,
            None => self.reader.bytes(),
        };
        let mut at = HEADER_BYTES as u64;
        while at < end {
            if let Some((handle, kind)) = self.known.get(&at).copied() {
                self.known_block(handle, kind)?;
                at += handle.stored_bytes();
                continue;
            }
            let stretch_end = self.known.range(at..).next().map_or(end, |(offset, _)| *offset).min(end);
            match self.find_block(at, stretch_end)? {
                Some(next) => at = next,
                None => {
                    let rest = stretch_end - at;
                    // A cut or rotten footer behind everything else is reported already.
                    if !(self.footer.is_none() && self.behind_data && rest <= FOOTER_BYTES as u64) {
                        self.damage(at, "blocks", Damage::new("a sound block", format!("none in {rest} bytes")));
                    }
                    self.lose(at);
                    at = stretch_end;
                }
            }
        }
        if self.footer.is_none() {
            // The footer itself would have said that there is nothing more.
            self.lose(end);
        }
        self.out.lost.extend(self.open_loss.take());
        if self.out.range_tombstones.is_none() && self.footer.is_some_and(|f| f.range_tombstones.is_absent()) {
            self.out.range_tombstones = Some(Vec::new());
        }
        // Without a footer, the properties say how many range tombstones there were.
        if self.out.range_tombstones.is_none() && self.out.properties.as_ref().is_some_and(|p| p.range_deletions == 0) {
            self.out.range_tombstones = Some(Vec::new());
        }
        Ok(())
    }

    /// Notes that data may be missing from `offset` on, until the next entry is handed out.
    fn lose(&mut self, offset: u64) {
        if !self.behind_data && self.open_loss.is_none() {
            let after = KeyRef::decode(&self.last_key).map(|key| key.user.to_vec());
            self.open_loss = Some(LostKeys { after, before: None, offset });
        }
    }

    fn known_block(&mut self, handle: BlockHandle, kind: Kind) -> Result<()> {
        match self.read(handle) {
            Ok(block) => self.take(block, handle, kind),
            Err(error) => {
                self.out.damages.push(match error {
                    Error::Corruption(c) => {
                        Error::Corruption(Box::new(Corruption { what: kind.name().to_owned(), ..*c }))
                    }
                    other => other,
                });
                if kind == Kind::Data {
                    self.lose(handle.offset);
                } else {
                    self.pass_data(kind);
                }
                Ok(())
            }
        }
    }

    /// Notes that data has ended: any other kind of block lies behind all data.
    fn pass_data(&mut self, kind: Kind) {
        if kind != Kind::Data {
            self.behind_data = true;
        }
    }

    /// Takes what a sound block holds.
    fn take(&mut self, block: Vec<u8>, handle: BlockHandle, kind: Kind) -> Result<()> {
        self.pass_data(kind);
        match kind {
            Kind::Data => return self.entries(block, handle),
            // A block with a sound checksum that is no index, or no filter, keeps the table from being read.
            Kind::Index | Kind::TopIndex => {
                if let Err(damage) = Block::new_index(block, handle.offset) {
                    self.damage(handle.offset, kind.name(), damage);
                }
            }
            Kind::Filter => {
                if let Err(damage) = Filter::decode(&block) {
                    self.damage(handle.offset, kind.name(), damage);
                }
            }
            Kind::RangeTombstones => match decode_range_tombstones(block) {
                Ok(tombstones) => self.out.range_tombstones = Some(tombstones),
                Err(damage) => self.damage(handle.offset, kind.name(), damage),
            },
            Kind::Properties => match Properties::decode(&block) {
                Ok(properties) => self.out.properties = Some(properties),
                Err(damage) => self.damage(handle.offset, kind.name(), damage),
            },
        }
        Ok(())
    }

    fn entries(&mut self, block: Vec<u8>, handle: BlockHandle) -> Result<()> {
        let block = match Block::new(block, handle.offset) {
            Ok(block) => Arc::new(block),
            Err(damage) => {
                self.damage(handle.offset, "data block", damage);
                self.lose(handle.offset);
                return Ok(());
            }
        };
        let mut cursor = BlockCursor::new(block);
        let mut moved = cursor.first();
        loop {
            match moved {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(malformed) => {
                    let found = format!("something else at its byte {}", malformed.0);
                    self.damage(handle.offset, "data block", Damage::new("a sequence of entries", found));
                    self.lose(handle.offset);
                    return Ok(());
                }
            }
            let key = cursor.key();
            let ascends = KeyRef::decode(&self.last_key).is_none_or(|last| last < key);
            if !ascends || !is_entry(key) {
                let found = format!("{key:?}");
                self.damage(handle.offset, "data block", Damage::new("an entry behind the last", found));
                self.lose(handle.offset);
                return Ok(());
            }
            if let Some(mut loss) = self.open_loss.take() {
                loss.before = Some(key.user.to_vec());
                self.out.lost.push(loss);
            }
            (self.entry)(key, cursor.value())?;
            self.out.entries += 1;
            self.last_key.clear();
            key.encode_into(&mut self.last_key);
            moved = cursor.next();
        }
    }

    /// Searches the end of the block that begins at `start`, takes the block, and returns where it ends; `None` if
    /// there is no sound block before `end`.
    fn find_block(&mut self, start: u64, end: u64) -> Result<Option<u64>> {
        let mut piece = Vec::new();
        let mut piece_start = start;
        let mut checksum = 0;
        // The checksum covers the bytes before `at`; it would stand in the four behind.
        let mut at = start;
        while at + 4 <= end && at - start <= MAX_BLOCK_BYTES as u64 {
            let offset = (at - piece_start) as usize;
            if offset + 4 > piece.len() {
                piece_start = at;
                piece.resize((end - at).min(PIECE_BYTES as u64) as usize, 0);
                if let Err(error) = self.reader.read_at(at, &mut piece) {
                    self.out.damages.push(error);
                    return Ok(None);
                }
                continue;
            }
            let Some(next) = piece[offset..].first_chunk::<4>() else { return Ok(None) };
            if at - start + 4 >= BLOCK_BYTES_MIN && u32::from_le_bytes(*next) == checksum {
                let bytes = (at - start - 1) as u32;
                let handle = BlockHandle { offset: start, bytes };
                if let Some((block, kind)) = self.recognise(handle) {
                    self.take(block, handle, kind)?;
                    return Ok(Some(at + 4));
                }
            }
            checksum = crc32c::crc32c_append(checksum, &next[..1]);
            at += 1;
        }
        Ok(None)
    }

    /// Returns the kind of a block that no handle points to; `None` if it is none.
    fn recognise(&mut self, handle: BlockHandle) -> Option<(Vec<u8>, Kind)> {
        let block = self.read(handle);
        let bytes = self.unless_no_memory(block)?;
        if Properties::decode(&bytes).is_ok() {
            return Some((bytes, Kind::Properties));
        }
        // Data goes on behind the last key; an index begins again with a key at or before it.
        if let Some(index) = IndexBlock::decode(bytes.clone(), handle.offset)
            && KeyRef::decode(&index.first) <= KeyRef::decode(&self.last_key)
        {
            return Some((bytes, Kind::Index));
        }
        if decode_range_tombstones(bytes.clone()).is_ok_and(|tombstones| !tombstones.is_empty()) {
            return Some((bytes, Kind::RangeTombstones));
        }
        if !self.behind_data && is_data(bytes.clone(), handle.offset) {
            return Some((bytes, Kind::Data));
        }
        // A filter is bits without a form.
        self.behind_data.then_some((bytes, Kind::Filter))
    }
}

fn is_entry(key: KeyRef<'_>) -> bool {
    matches!(key.trailer.kind(), Some(KeyKind::Delete | KeyKind::Put | KeyKind::ValueHandle))
}

fn is_data(block: Vec<u8>, offset: u64) -> bool {
    let Ok(block) = Block::new(block, offset) else { return false };
    let mut cursor = BlockCursor::new(Arc::new(block));
    let mut moved = cursor.first();
    let mut entries = 0;
    loop {
        match moved {
            Ok(true) if is_entry(cursor.key()) => entries += 1,
            Ok(false) => return entries > 0,
            _ => return false,
        }
        moved = cursor.next();
    }
}

/// The useful contents of an index block.
struct IndexBlock {
    /// The first separator, encoded.
    first: Vec<u8>,
    handles: Vec<BlockHandle>,
}

impl IndexBlock {
    /// Decodes an index block. Returns `None` if the bytes are none: one has entries, each of them a restart with a
    /// handle.
    fn decode(bytes: Vec<u8>, offset: u64) -> Option<IndexBlock> {
        let block = Block::new_index(bytes, offset).ok()?;
        let mut index = IndexBlock { first: Vec::new(), handles: Vec::new() };
        let mut byte = 0;
        for i in 0..block.restart_count() {
            if block.restart(i) != byte {
                return None;
            }
            let (separator, handle) = block.index_entry(i).ok()?;
            if i == 0 {
                separator.encode_into(&mut index.first);
            }
            index.handles.push(handle);
            byte = block.entry(byte).ok()?.next;
        }
        (byte == block.entries_end() && !index.handles.is_empty()).then_some(index)
    }
}

#[cfg(test)]
mod tests;
