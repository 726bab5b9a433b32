//! A finished file in the TopFS area, or in the catalogue itself.

use super::cache::UNIT_BYTES;
use super::file::File;
use super::layout::PAGE;
use super::room::Extent;
use super::shared::Shared;
use super::transfer::{SHORT_READ_BYTES_MAX, places};
use situ_device::Buffer;
use situ_storage::{Error, FileName, Result};
use std::ops::Range;
use std::sync::Arc;

/// Units that one read has in memory of its own.
const UNITS_AT_ONCE: usize = 16;

/// The reader without the reads that complete later; see `reads.rs`.
#[derive(Clone)]
pub(super) struct RawReader {
    pub(super) shared: Arc<Shared>,
    /// Keeps the pages.
    pub(super) file: Arc<File>,
    pub(super) name: FileName,
    pub(super) path: Arc<str>,
    pub(super) extents: Arc<[Extent]>,
    pub(super) bytes: u64,
    inline: Option<Arc<[u8]>>,
    /// Pages of the log change in place, and a file on its way has no last unit yet.
    pub(super) is_cached: bool,
}

/// Returns the units in which these bytes lie.
pub(super) fn units(offset: u64, bytes: usize) -> Range<u64> {
    offset / UNIT_BYTES as u64..(offset + bytes as u64).div_ceil(UNIT_BYTES as u64)
}

/// Refuses a range that ends behind the end of a file.
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

/// Reads whole units of a file of `bytes`, each into a buffer of its own.
fn read_units(
    shared: &Shared,
    (file, name): (&Arc<File>, FileName),
    extents: &[Extent],
    bytes: u64,
    units: Range<u64>,
) -> Result<Vec<Buffer>> {
    let unit_pages = UNIT_BYTES as u64 / PAGE;
    let pages = |unit: u64| unit_pages.min(bytes.div_ceil(PAGE) - unit * unit_pages);
    let wanted: Vec<Vec<Extent>> = units.map(|unit| places(extents, unit * unit_pages, pages(unit))).collect();
    let buffers = shared.transfers.read_each(&wanted).map_err(|error| shared.fail("read", name, error))?;
    shared.check_still_there(file, name)?;
    Ok(buffers)
}

impl RawReader {
    pub(super) fn new(shared: Arc<Shared>, file: Arc<File>, name: FileName, is_log: bool) -> RawReader {
        let meta = file.meta();
        let (extents, bytes, inline) = (Arc::from(&meta.extents[..]), meta.length, meta.inline.clone());
        let is_cached = !is_log && !meta.is_growing && shared.cache.is_on();
        drop(meta);
        let path = shared.path(name).into();
        RawReader { shared, file, name, path, extents, bytes, inline, is_cached }
    }

    /// Copies what the cache has, and reads the runs of units between.
    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let unit_bytes = UNIT_BYTES as u64;
        let end = offset + into.len() as u64;
        let mut missing: Option<u64> = None;
        for unit in units(offset, into.len()) {
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

    /// Returns true if a read of these bytes takes its pages, and not whole units: it is short, and does not go on
    /// behind the last one.
    pub(super) fn takes_pages_only(&self, offset: u64, bytes: usize) -> bool {
        if !self.is_cached {
            return true;
        }
        let (units, end) = (units(offset, bytes), offset + bytes as u64);
        let is_short = units.end - units.start == 1 && bytes < UNIT_BYTES && end < self.bytes;
        is_short && !self.shared.cache.is_worth_reading(self.file.id, units.start, offset..end)
    }

    /// Returns true if these bytes, which the file has, can be had without the device.
    fn is_in_memory(&self, offset: u64, bytes: usize) -> bool {
        let is_in_cache = || self.is_cached && self.shared.cache.has(self.file.id, units(offset, bytes));
        bytes == 0 || self.inline.is_some() || is_in_cache()
    }

    /// Reads bytes whose units are not in the cache; whole units, where they are wanted whole or again.
    fn read_missing(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let unit_bytes = UNIT_BYTES as u64;
        let end = offset + into.len() as u64;
        let units = units(offset, into.len());
        if self.takes_pages_only(offset, into.len()) {
            return read_extents(&self.shared, (&self.file, self.name), &self.extents, offset, into);
        }
        // So that a long read holds no more than this in addition to the buffer that it fills.
        for first in units.clone().step_by(UNITS_AT_ONCE) {
            let some = first..units.end.min(first + UNITS_AT_ONCE as u64);
            let buffers = read_units(&self.shared, (&self.file, self.name), &self.extents, self.bytes, some.clone())?;
            for (unit, buffer) in some.zip(buffers) {
                let start = unit * unit_bytes;
                let (from, to) = (start.max(offset), end.min(start + unit_bytes));
                let part = &buffer[(from - start) as usize..(to - start) as usize];
                into[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
                self.shared.cache.put(self.file.id, unit, buffer);
            }
        }
        Ok(())
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
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

    /// Reads the bytes that the cache has, and does short reads as long as the device answers them quickly.
    pub(super) fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        check_range(&self.path, self.bytes, offset, into.len())?;
        let is_short = into.len() <= SHORT_READ_BYTES_MAX && self.shared.transfers.reads_are_quick();
        if is_short || self.is_in_memory(offset, into.len()) {
            return self.read_at(offset, into).map(|()| true);
        }
        Ok(false)
    }

    /// Returns true if a read of these bytes needs the device: the file has them, and memory does not.
    pub(super) fn needs_device(&self, offset: u64, bytes: usize) -> bool {
        check_range(&self.path, self.bytes, offset, bytes).is_ok() && !self.is_in_memory(offset, bytes)
    }
}
