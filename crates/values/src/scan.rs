//! The records of a segment that has no index yet: from one to the next, each checked.
//!
//! A record may begin right behind the one before it, or at the next sector (`format::place`). The scan looks at both places. It
//! ends where neither has a whole record. Records behind that are not found. None of them was promised: a sync makes all records
//! before it durable.

use crate::Result;
use crate::format::{Extent, FIRST_RECORD, IndexBuilder, SECTOR_BYTES, end_of, pages_needed, place};
use crate::format::{HEADER_BYTES, Identity};
use crate::options::Layout;
use crate::record::{Found, Header, look};
use crate::window::Window;
use situ_storage::Reader;

pub(crate) struct Scan<'a> {
    file: &'a dyn Reader,
    identity: Identity,
    layout: Layout,
    pages: u64,
    window: Window,
    end: u64,
    /// First byte that can be the next record's.
    free: u64,
    index: IndexBuilder,
    record_bytes: u64,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(file: &'a dyn Reader, identity: Identity, layout: Layout, pages: u64) -> Scan<'a> {
        // No record reaches into the last page.
        let (window, index) = (Window::new((pages - 1) * SECTOR_BYTES), IndexBuilder::default());
        Scan { file, identity, layout, pages, window, end: FIRST_RECORD, free: FIRST_RECORD, index, record_bytes: 0 }
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
        for offset in [self.free, self.free.next_multiple_of(SECTOR_BYTES)] {
            if let Some(extent) = self.record_at(offset)? {
                self.end = extent.end();
                self.free = end_of(self.layout, offset, u64::from(extent.bytes));
                self.index.push(extent);
                self.record_bytes += u64::from(extent.bytes).next_multiple_of(crate::format::ALIGN);
                return Ok(Some(extent));
            }
        }
        Ok(None)
    }

    fn record_at(&mut self, offset: u64) -> Result<Option<Extent>> {
        let Some(header) = self.window.bytes(self.file, offset, HEADER_BYTES as u64)?.and_then(Header::decode) else {
            return Ok(None);
        };
        let bytes = header.record_bytes();
        let has_room = pages_needed(offset + bytes, self.index.bytes.len() as u64) <= self.pages;
        if !has_room || offset != place(self.layout, self.free, bytes) {
            return Ok(None);
        }
        let identity = self.identity;
        let Some(record) = self.window.bytes(self.file, offset, bytes)? else { return Ok(None) };
        match look(identity, offset, record) {
            Found::Whole { .. } => Ok(Some(Extent { offset: offset as u32, bytes: bytes as u32 })),
            _ => Ok(None),
        }
    }
}
