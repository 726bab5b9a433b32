//! The parts of a segment around its records: header, index, trailer. `docs/formats/values.md` has the tables.
//!
//! ```text
//!   page 0          pages 1..                                    last pages
//!   | header | 0s | record | record | ... | 0s |  free   |  | index | 0s | trailer | 0s |
//! ```
//!
//! The header is written when the segment begins. Index and trailer are written when it is sealed. A segment without a
//! sound trailer is unfinished: its records are found by going from one to the next. Trimming begins when the trailer
//! is durable. From then on, only the index says where records were.

use crate::options::Layout;
use situ_base::bytes::{Fields, put_varint, u32_at, u64_at};
use situ_storage::PAGE_BYTES;

/// The unit of trimming: what drives that compress compress as one.
pub(crate) const SECTOR_BYTES: u64 = 4096;
const _: () = assert!(SECTOR_BYTES as usize == PAGE_BYTES);

/// The offset of the first record.
pub(crate) const FIRST_RECORD: u64 = SECTOR_BYTES;
/// Records begin at multiples of this many bytes.
pub(crate) const ALIGN: u64 = 8;
/// Length of a record's header.
pub(crate) const HEADER_BYTES: usize = 24;
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The part of a sector beyond which a record has sectors of its own, in [`Layout::OwnSectors`].
pub(crate) const ALONE_PARTS: u64 = 3;
/// Length of the header and of the trailer.
pub(crate) const FRAME_BYTES: usize = 64;
/// The first bytes of a segment.
pub(crate) const HEADER_MAGIC: [u8; 8] = *b"SITUVALS";
/// The first bytes of a trailer.
pub(crate) const TRAILER_MAGIC: [u8; 8] = *b"SITUVALE";
/// The flag of [`Layout::OwnSectors`].
pub(crate) const FLAG_OWN_SECTORS: u32 = 1;

const CHECK: usize = FRAME_BYTES - 4;

/// The identity that makes a segment's records its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) segment: u64,
    pub(crate) salt: u64,
}

impl Identity {
    /// Returns the beginning of a checksum over something at `offset`.
    pub(crate) fn seed(self, offset: u64) -> u32 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.salt.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// The header of a segment, on its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    pub(crate) pages: u64,
}

/// The trailer of a segment, on its last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) identity: Identity,
    pub(crate) layout: Layout,
    /// First byte behind the last record.
    pub(crate) data_end: u64,
    pub(crate) index_bytes: u32,
    pub(crate) index_check: u32,
    pub(crate) records: u32,
    /// The sum of the records' footprints.
    pub(crate) record_bytes: u64,
}

/// Bytes with fields that follow each other, closed by a checksum.
struct Frame([u8; FRAME_BYTES]);

impl Frame {
    fn begin(magic: [u8; 8], layout: Layout, identity: Identity) -> Frame {
        let mut frame = Frame([0; FRAME_BYTES]);
        frame.0[..8].copy_from_slice(&magic);
        frame.put(8, &VERSION.to_le_bytes());
        let flags = if layout == Layout::OwnSectors { FLAG_OWN_SECTORS } else { 0 };
        frame.put(12, &flags.to_le_bytes());
        frame.put(16, &identity.segment.to_le_bytes());
        frame.put(24, &identity.salt.to_le_bytes());
        frame
    }

    fn put(&mut self, at: usize, field: &[u8]) {
        self.0[at..at + field.len()].copy_from_slice(field);
    }

    fn close(mut self) -> [u8; FRAME_BYTES] {
        let check = crc32c::crc32c(&self.0[..CHECK]);
        self.put(CHECK, &check.to_le_bytes());
        self.0
    }

    fn open(bytes: &[u8], magic: [u8; 8]) -> Option<Frame> {
        let frame = Frame(bytes.get(..FRAME_BYTES)?.try_into().ok()?);
        let is_sound = frame.0[..8] == magic
            && u32_at(&frame.0, CHECK) == crc32c::crc32c(&frame.0[..CHECK])
            && u32_at(&frame.0, 8) == VERSION
            && u32_at(&frame.0, 12) & !FLAG_OWN_SECTORS == 0;
        is_sound.then_some(frame)
    }

    fn identity(&self) -> Identity {
        Identity { segment: u64_at(&self.0, 16), salt: u64_at(&self.0, 24) }
    }

    fn layout(&self) -> Layout {
        if u32_at(&self.0, 12) & FLAG_OWN_SECTORS != 0 { Layout::OwnSectors } else { Layout::Packed }
    }
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut frame = Frame::begin(HEADER_MAGIC, self.layout, self.identity);
        frame.put(32, &self.pages.to_le_bytes());
        frame.close()
    }

    /// Decodes a header. `None`: these bytes are not a header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let frame = Frame::open(bytes, HEADER_MAGIC)?;
        Some(SegmentHeader { identity: frame.identity(), layout: frame.layout(), pages: u64_at(&frame.0, 32) })
    }
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut frame = Frame::begin(TRAILER_MAGIC, self.layout, self.identity);
        frame.put(32, &self.data_end.to_le_bytes());
        frame.put(40, &self.index_bytes.to_le_bytes());
        frame.put(44, &self.index_check.to_le_bytes());
        frame.put(48, &self.records.to_le_bytes());
        frame.put(52, &self.record_bytes.to_le_bytes());
        frame.close()
    }

    /// Decodes a trailer. `None`: these bytes are not a trailer of this version, or none that a file of `pages` pages
    /// can have.
    pub(crate) fn decode(bytes: &[u8], pages: u64) -> Option<Trailer> {
        let frame = Frame::open(bytes, TRAILER_MAGIC)?;
        let trailer = Trailer {
            identity: frame.identity(),
            layout: frame.layout(),
            data_end: u64_at(&frame.0, 32),
            index_bytes: u32_at(&frame.0, 40),
            index_check: u32_at(&frame.0, 44),
            records: u32_at(&frame.0, 48),
            record_bytes: u64_at(&frame.0, 52),
        };
        let fits = trailer.data_end >= FIRST_RECORD
            && trailer.data_end <= u64::from(u32::MAX)
            && pages_needed(trailer.data_end, u64::from(trailer.index_bytes)) <= pages;
        fits.then_some(trailer)
    }
}

/// Returns the offset of the index in a file of `pages` pages: right before the trailer. An index that is rebuilt has
/// no more records than the writer had. So it never reaches into the records, not even into those that it does not
/// name.
pub(crate) fn index_at(pages: u64, index_bytes: u64) -> u64 {
    (pages - 1 - index_bytes.div_ceil(SECTOR_BYTES)) * SECTOR_BYTES
}

/// Returns the pages of a segment with records up to `data_end`, an index of this length, and the trailer.
pub(crate) fn pages_needed(data_end: u64, index_bytes: u64) -> u64 {
    data_end.div_ceil(SECTOR_BYTES) + index_bytes.div_ceil(SECTOR_BYTES) + 1
}

/// Returns the offset of the next record of `bytes` if `free` is the first byte that can be its: [`end_of`] the record
/// before it.
pub(crate) fn place(layout: Layout, free: u64, bytes: u64) -> u64 {
    match layout {
        Layout::OwnSectors if is_alone(bytes) => free.next_multiple_of(SECTOR_BYTES),
        _ => free,
    }
}

/// Returns true if a record of this length has sectors of its own in [`Layout::OwnSectors`]: no three of them would fit
/// into one.
pub(crate) fn is_alone(bytes: u64) -> bool {
    bytes > SECTOR_BYTES / ALONE_PARTS
}

/// Returns the first byte that can be another record's, behind a record of `bytes` that begins at `start`.
pub(crate) fn end_of(layout: Layout, start: u64, bytes: u64) -> u64 {
    match layout {
        Layout::OwnSectors if is_alone(bytes) => (start + bytes).next_multiple_of(SECTOR_BYTES),
        _ => (start + bytes).next_multiple_of(ALIGN),
    }
}

/// The place of one record, in the order of records, as the index states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

impl Extent {
    pub(crate) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }
}

/// The index on its way.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u32,
    end: Option<u64>,
}

/// The longest entry: two varints.
pub(crate) const INDEX_ENTRY_BYTES_MAX: u64 = 10;

impl IndexBuilder {
    pub(crate) fn push(&mut self, extent: Extent) {
        let expected = self.end.unwrap_or(FIRST_RECORD).next_multiple_of(ALIGN);
        let gap = u64::from(extent.offset) - expected;
        put_varint(&mut self.bytes, u64::from(extent.bytes) << 1 | u64::from(gap > 0));
        if gap > 0 {
            put_varint(&mut self.bytes, gap / ALIGN);
        }
        self.end = Some(extent.end());
        self.records += 1;
    }
}

/// Reads an index; `None` if it is not one of `records` records that end at `data_end`.
pub(crate) fn decode_index(bytes: &[u8], records: u32, data_end: u64) -> Option<Vec<Extent>> {
    let mut extents = Vec::with_capacity((records as usize).min(bytes.len()));
    let (mut fields, mut end) = (Fields(bytes), FIRST_RECORD);
    while !fields.0.is_empty() {
        let head = fields.varint("length of a record").ok()?;
        let gap = if head & 1 == 1 { fields.varint("gap").ok()?.checked_mul(ALIGN)? } else { 0 };
        let offset = end.next_multiple_of(ALIGN).checked_add(gap)?;
        let record = head >> 1;
        end = offset.checked_add(record).filter(|end| *end <= data_end)?;
        if record < HEADER_BYTES as u64 {
            return None;
        }
        extents.push(Extent { offset: u32::try_from(offset).ok()?, bytes: u32::try_from(record).ok()? });
    }
    (extents.len() as u64 == u64::from(records) && end == data_end).then_some(extents)
}

#[cfg(test)]
mod tests;
