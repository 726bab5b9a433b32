//! The records of a segment whose index cannot be had: it was never written, or it is damaged.
//!
//! 1. A record may begin right behind the one before it, or at the next sector (`format::place`). The scan looks at
//!    both places for a sound header and key.
//! 2. Where neither has one, the records end, or one of them is damaged or was trimmed. The bytes do not tell which. So
//!    the scan goes on in steps of 8 bytes until it finds a sound record, or the end of the file.
//!
//! The scan may find more than was promised: records that were never synced, and reached the disk all the same. The
//! owner has no handle of these, so they are garbage. It never finds less than there is: what one damaged record hides
//! is that record alone.
//!
//! **Bounded**: a value is read only behind a sound header and key. Bytes that look like headers and are none cost a
//! checksum each, and a read now and then. Beyond [`WASTE_MAX`] the scan gives up, and says so.
//! Behind damage it finds only records with keys of at most [`KEY_BYTES_MAX`].

use crate::Result;
use crate::format::{ALIGN, Extent, FIRST_RECORD, HEADER_BYTES, Identity, IndexBuilder, SECTOR_BYTES, end_of};
use crate::format::{pages_needed, place};
use crate::options::Layout;
use crate::record::{Found, Header, look};
use crate::window::Window;
use situ_storage::Reader;

/// Keys of records that lie behind damage.
const KEY_BYTES_MAX: u32 = 64 << 10;
/// The maximum number of bytes that are read or checksummed and turn out to be no record.
const WASTE_MAX: u64 = 1 << 30;

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
    whole_bytes: u64,
    waste: u64,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(file: &'a dyn Reader, identity: Identity, layout: Layout, pages: u64) -> Scan<'a> {
        // No record reaches into the last page.
        let window = Window::new((pages - 1) * SECTOR_BYTES);
        let (index, end, free) = (IndexBuilder::default(), FIRST_RECORD, FIRST_RECORD);
        let (record_bytes, whole_bytes, waste) = (0, 0, 0);
        Scan { file, identity, layout, pages, window, end, free, index, record_bytes, whole_bytes, waste }
    }

    /// Goes on to the end, or to the first record that begins at `limit` or behind it.
    pub(crate) fn run(&mut self, limit: u64) -> Result<()> {
        while self.free < limit && self.next(limit)?.is_some() {}
        Ok(())
    }

    /// Returns the offset behind the last record that was found.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn index(&self) -> &IndexBuilder {
        &self.index
    }

    /// Returns the sum of the footprints of the records that were found.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Returns the sum of the footprints of the records whose values are sound, too.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Returns true if the scan has not looked at everything.
    pub(crate) fn gave_up(&self) -> bool {
        self.waste > WASTE_MAX
    }

    /// Returns the next record that begins before `limit`; `None` at the end.
    pub(crate) fn next(&mut self, limit: u64) -> Result<Option<Extent>> {
        for offset in [self.free, self.free.next_multiple_of(SECTOR_BYTES)] {
            if let Some(header) = self.header_at(offset, limit)?
                && offset == place(self.layout, self.free, header.record_bytes())
                && let Some(extent) = self.record_at(offset, &header)?
            {
                return Ok(Some(extent));
            }
        }
        self.search(limit)
    }

    /// Does step 2.
    fn search(&mut self, limit: u64) -> Result<Option<Extent>> {
        let mut offset = self.free + ALIGN;
        while offset < limit && !self.gave_up() {
            offset = self.skip_zeros(offset)?;
            match self.header_at(offset, limit)? {
                Some(header) if header.head_check != 0 && header.key_bytes <= KEY_BYTES_MAX => {
                    if let Some(extent) = self.record_at(offset, &header)? {
                        return Ok(Some(extent));
                    }
                }
                Some(_) => {}
                None if offset + HEADER_BYTES as u64 > self.window.limit() => return Ok(None),
                None => {}
            }
            offset += ALIGN;
        }
        Ok(None)
    }

    /// Returns the next place that does not begin with four zeros, as no sound record does; or the end of what is in
    /// memory.
    fn skip_zeros(&mut self, offset: u64) -> Result<u64> {
        let Some(bytes) = self.window.from(self.file, offset, HEADER_BYTES as u64)? else { return Ok(offset) };
        let zeros = bytes.chunks_exact(ALIGN as usize).take_while(|step| step[..4] == [0; 4]).count();
        Ok(offset + zeros as u64 * ALIGN)
    }

    /// Returns a header of a record that would fit into the segment.
    fn header_at(&mut self, offset: u64, limit: u64) -> Result<Option<Header>> {
        if offset >= limit {
            return Ok(None);
        }
        let bytes = self.window.bytes(self.file, offset, HEADER_BYTES as u64)?;
        let fits = |header: &Header| {
            let end = offset + header.record_bytes();
            end <= u64::from(u32::MAX) && pages_needed(end, self.index.bytes.len() as u64) <= self.pages
        };
        Ok(bytes.and_then(Header::decode).filter(fits))
    }

    /// Looks at the header and the key alone. A value may be made of what looks like headers, and each of these may
    /// promise a value that is as long as the segment.
    fn has_sound_head(&mut self, offset: u64, header: &Header) -> Result<bool> {
        let bytes = HEADER_BYTES as u64 + u64::from(header.key_bytes);
        let read_before = self.window.read_bytes();
        let Some(head) = self.window.bytes(self.file, offset, bytes)? else { return Ok(false) };
        let is_sound = header.is_of(self.identity, offset, &head[HEADER_BYTES..]);
        if !is_sound {
            self.waste += bytes + self.window.read_bytes() - read_before;
        }
        Ok(is_sound)
    }

    fn record_at(&mut self, offset: u64, header: &Header) -> Result<Option<Extent>> {
        if !self.has_sound_head(offset, header)? {
            return Ok(None);
        }
        let bytes = header.record_bytes();
        let Some(record) = self.window.bytes(self.file, offset, bytes)? else { return Ok(None) };
        let is_whole = match look(self.identity, offset, record) {
            Found::Whole { .. } => true,
            Found::ValueDamaged { .. } => false,
            Found::Nothing { .. } => return Ok(None),
        };
        let extent = Extent { offset: offset as u32, bytes: bytes as u32 };
        (self.end, self.free) = (extent.end(), end_of(self.layout, offset, bytes));
        self.index.push(extent);
        self.record_bytes += bytes.next_multiple_of(ALIGN);
        self.whole_bytes += if is_whole { bytes.next_multiple_of(ALIGN) } else { 0 };
        Ok(Some(extent))
    }
}
