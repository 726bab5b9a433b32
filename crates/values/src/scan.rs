//! The records of a segment that has no index yet: from one to the next, each checked.
//!
//! A record may begin right behind the one before it, or at the next sector (`format::place`). The scan looks at both places. It
//! ends where neither has a whole record. Records behind that are not found. None of them was promised: a sync makes all records
//! before it durable.

use crate::Result;
use crate::format::{Extent, FIRST_RECORD, IndexBuilder, SECTOR_BYTES, pages_needed, place};
use crate::options::Layout;
use crate::record::{Found, HEADER_BYTES, Header, Identity, look};
use situ_storage::Reader;

/// So much is read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

pub(crate) struct Scan<'a> {
    file: &'a dyn Reader,
    identity: Identity,
    layout: Layout,
    pages: u64,
    /// Bytes of the file from `window_at` on.
    window: Vec<u8>,
    window_at: u64,
    end: u64,
    index: IndexBuilder,
    record_bytes: u64,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(file: &'a dyn Reader, identity: Identity, layout: Layout, pages: u64) -> Scan<'a> {
        let (window, index) = (Vec::new(), IndexBuilder::default());
        Scan { file, identity, layout, pages, window, window_at: 0, end: FIRST_RECORD, index, record_bytes: 0 }
    }

    /// Behind the last record that was found.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn index(&self) -> &IndexBuilder {
        &self.index
    }

    /// The sum of the footprints of the records that were found.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Extent>> {
        let next_sector = self.end.next_multiple_of(SECTOR_BYTES);
        for offset in [self.end.next_multiple_of(crate::handle::ALIGN), next_sector] {
            if let Some(extent) = self.record_at(offset)? {
                self.end = extent.end();
                self.index.push(extent);
                self.record_bytes += u64::from(extent.bytes).next_multiple_of(crate::handle::ALIGN);
                return Ok(Some(extent));
            }
        }
        Ok(None)
    }

    fn record_at(&mut self, offset: u64) -> Result<Option<Extent>> {
        let Some(header) = self.bytes(offset, HEADER_BYTES as u64)?.and_then(Header::decode) else { return Ok(None) };
        let bytes = header.record_bytes();
        let has_room = pages_needed(offset + bytes, self.index.bytes.len() as u64) <= self.pages;
        if !has_room || offset != place(self.layout, self.end, bytes) {
            return Ok(None);
        }
        let identity = self.identity;
        let Some(record) = self.bytes(offset, bytes)? else { return Ok(None) };
        match look(identity, offset, record) {
            Found::Whole { .. } => Ok(Some(Extent { offset: offset as u32, bytes: bytes as u32 })),
            _ => Ok(None),
        }
    }

    /// Bytes of the file; `None` if they reach into its last page, where no record is.
    fn bytes(&mut self, offset: u64, bytes: u64) -> Result<Option<&[u8]>> {
        let (end, most) = (offset + bytes, (self.pages - 1) * SECTOR_BYTES);
        if end > most {
            return Ok(None);
        }
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let length = bytes.max(WINDOW_BYTES).min(most - offset);
            self.window.resize(length as usize, 0);
            self.file.read_at(offset, &mut self.window)?;
            self.window_at = offset;
        }
        let at = (offset - self.window_at) as usize;
        Ok(self.window.get(at..at + bytes as usize))
    }
}
