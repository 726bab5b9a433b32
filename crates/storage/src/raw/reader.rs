//! A finished file in the TopFS area, or in the catalogue itself.

use super::cache::UNIT_BYTES;
use super::file::File;
use super::layout::PAGE;
use super::room::Extent;
use super::shared::Shared;
use super::transfer::places;
use crate::{Error, FileName, Reader, Result};
use situ_device::Buffer;
use std::sync::Arc;

pub(super) struct RawReader {
    shared: Arc<Shared>,
    /// Keeps the pages.
    file: Arc<File>,
    name: FileName,
    path: String,
    extents: Vec<Extent>,
    bytes: u64,
    inline: Option<Arc<[u8]>>,
    /// Pages of the log change in place, and a file on its way has no last unit yet.
    is_cached: bool,
}

/// A range that ends behind the end of a file.
pub(super) fn check_range(path: &str, bytes: u64, offset: u64, length: usize) -> Result<()> {
    if offset.checked_add(length as u64).is_some_and(|end| end <= bytes) {
        return Ok(());
    }
    let found = format!("the end of the file at {bytes}");
    Err(Error::corruption(path, offset, "file length", format!("{length} bytes"), found))
}

/// Reads bytes of a file, past all caches.
pub(super) fn read_extents(
    shared: &Shared,
    (file, name): (&Arc<File>, FileName),
    extents: &[Extent],
    offset: u64,
    into: &mut [u8],
) -> Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let first = offset / PAGE;
    let pages = (offset + into.len() as u64).div_ceil(PAGE) - first;
    let places = places(extents, first, pages);
    shared
        .transfers
        .read(&places, (offset - first * PAGE) as usize, into)
        .map_err(|error| shared.fail("read", name, error))?;
    shared.check_still_there(file, name)
}

impl RawReader {
    pub(super) fn new(shared: Arc<Shared>, file: Arc<File>, name: FileName, is_log: bool) -> RawReader {
        let meta = file.meta();
        let (extents, bytes, inline) = (meta.extents.clone(), meta.length, meta.inline.clone());
        let is_cached = !is_log && !meta.is_growing && shared.cache.is_on();
        drop(meta);
        let path = shared.path(name);
        RawReader { shared, file, name, path, extents, bytes, inline, is_cached }
    }

    /// Copies what the cache has, and reads the runs of units between.
    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let unit_bytes = UNIT_BYTES as u64;
        let end = offset + into.len() as u64;
        let mut missing: Option<u64> = None;
        for unit in offset / unit_bytes..end.div_ceil(unit_bytes) {
            let start = unit * unit_bytes;
            let Some(buffer) = self.shared.cache.get(self.file.id, unit) else {
                missing.get_or_insert(start.max(offset));
                continue;
            };
            if let Some(from) = missing.take() {
                self.read_missing(from, &mut into[(from - offset) as usize..(start - offset) as usize])?;
            }
            let (from, to) = (start.max(offset), end.min(start + unit_bytes));
            let part = &buffer[(from - start) as usize..(to - start) as usize];
            into[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        match missing {
            Some(from) => self.read_missing(from, &mut into[(from - offset) as usize..]),
            None => Ok(()),
        }
    }

    /// Reads bytes whose units are not in the cache; whole units, where they are wanted whole or again.
    fn read_missing(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let unit_bytes = UNIT_BYTES as u64;
        let end = offset + into.len() as u64;
        let units = offset / unit_bytes..end.div_ceil(unit_bytes);
        let is_short = units.end - units.start == 1 && into.len() < UNIT_BYTES && end < self.bytes;
        if is_short && !self.shared.cache.is_worth_reading(self.file.id, units.start) {
            return read_extents(&self.shared, (&self.file, self.name), &self.extents, offset, into);
        }
        let from = units.start * unit_bytes;
        let to = (units.end * unit_bytes).min(self.bytes);
        let mut whole = vec![0; (to - from) as usize];
        read_extents(&self.shared, (&self.file, self.name), &self.extents, from, &mut whole)?;
        let skip = (offset - from) as usize;
        into.copy_from_slice(&whole[skip..skip + into.len()]);
        for (unit, bytes) in units.zip(whole.chunks(UNIT_BYTES)) {
            self.shared.cache.put(self.file.id, unit, Buffer::copy_of(bytes));
        }
        Ok(())
    }
}

impl Reader for RawReader {
    fn path(&self) -> &str {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        check_range(&self.path, self.bytes, offset, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        match &self.inline {
            Some(contents) => {
                into.copy_from_slice(&contents[offset as usize..offset as usize + into.len()]);
                Ok(())
            }
            None if self.is_cached => self.read_cached(offset, into),
            None => read_extents(&self.shared, (&self.file, self.name), &self.extents, offset, into),
        }
    }
}
