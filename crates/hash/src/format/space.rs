//! The mark at the beginning of a bucket space: whose it is, and how it is laid out (`docs/formats/hash.md`).
//!
//! ```text
//!  | mark | zeros ... | mark again | zeros ... | bucket 0 | bucket 1 | ...
//!  0      4096        32768                    65536
//! ```
//!
//! The mark is written once, when a store is made. Opening a store compares it before anything is written, so a wrong
//! device, or the device of another store, is refused by name. One sound copy suffices.

use crate::format::fields::{At, Fields, Mismatch, is_zero, require_checksum};
use crate::format::geometry::BUCKET_BYTES;
use crate::{Error, StoreId};

pub use crate::format::geometry::{SPACE_HEADER_BYTES, bucket_offset};

/// Bytes of one copy of the mark.
pub const MARK_BYTES: usize = 4096;

/// The offsets of the copies of the mark.
pub const MARK_OFFSETS: [usize; 2] = [0, 32768];

/// The first bytes of a mark.
pub(crate) const SPACE_MAGIC: [u8; 8] = *b"SITUbkts";

/// The version of the mark, of the buckets and of how hashes map to them.
pub const SPACE_FORMAT: u32 = 1;

/// The offset of the checksum of a mark: behind all that it covers.
pub(crate) const MARK_CHECKSUM_AT: usize = MARK_BYTES - 4;

/// The mark of a bucket space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMark {
    /// The store that it belongs to.
    pub store: StoreId,
    /// Bytes before bucket 0.
    pub header_bytes: u32,
    /// Bytes of a bucket.
    pub bucket_bytes: u32,
}

impl SpaceMark {
    /// Returns the mark of the bucket space of `store`, laid out as this program does it.
    pub fn new(store: StoreId) -> SpaceMark {
        SpaceMark { store, header_bytes: SPACE_HEADER_BYTES as u32, bucket_bytes: BUCKET_BYTES as u32 }
    }

    /// Returns the whole header area, with both copies.
    pub fn encode(&self) -> Vec<u8> {
        let mut area = vec![0; SPACE_HEADER_BYTES];
        for at in MARK_OFFSETS {
            area[at..at + MARK_BYTES].copy_from_slice(&self.copy());
        }
        area
    }

    fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MARK_BYTES);
        bytes.extend_from_slice(&SPACE_MAGIC);
        bytes.extend_from_slice(&SPACE_FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.header_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.store.0);
        bytes.extend_from_slice(&self.bucket_bytes.to_le_bytes());
        bytes.resize(MARK_CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header area of the bucket space at `path`.
    ///
    /// # Errors
    /// * [`Error::NotABucketSpace`] if neither place has a mark.
    /// * [`Error::Newer`] if a newer program has written it.
    /// * [`situ_storage::Error::Corruption`] if there is a mark, and no copy is sound.
    ///
    /// # Panics
    /// The area is not [`SPACE_HEADER_BYTES`] long.
    pub fn decode(path: &str, area: &[u8]) -> crate::Result<SpaceMark> {
        assert_eq!(area.len(), SPACE_HEADER_BYTES, "the header area is read whole");
        let copies = MARK_OFFSETS.map(|at| (at, &area[at..at + MARK_BYTES]));
        let mut marked = copies.iter().filter(|(_, copy)| copy.starts_with(&SPACE_MAGIC)).peekable();
        let Some(&&(first, _)) = marked.peek() else {
            return Err(Error::NotABucketSpace { path: path.to_owned(), found: describe(area) });
        };
        let mut damage = None;
        for (at, copy) in marked {
            match decode_copy(copy) {
                Ok((SPACE_FORMAT, mark)) => return Ok(mark),
                Ok((format, _)) => {
                    let what = format!("its bucket space has format {format}, and this program knows {SPACE_FORMAT}");
                    return Err(Error::Newer { path: path.to_owned(), what });
                }
                Err(mismatch) => {
                    damage.get_or_insert((*at, mismatch));
                }
            }
        }
        let (at, mismatch) = damage.unwrap_or_else(|| (first, Mismatch::new("copies", "one", "none")));
        Err(mismatch.at(path, at as u64, "mark of the bucket space"))
    }

    /// Reads the header area of the bucket space at `path`, and checks that it is that of `store`, laid out as this
    /// program does it.
    ///
    /// # Errors
    /// As [`decode`](SpaceMark::decode), and [`Error::OtherStore`] and [`Error::OtherGeometry`].
    ///
    /// # Panics
    /// As [`decode`](SpaceMark::decode).
    pub fn check(path: &str, area: &[u8], store: StoreId) -> crate::Result<()> {
        let found = SpaceMark::decode(path, area)?;
        if found.store != store {
            return Err(Error::OtherStore { path: path.to_owned(), expected: store, found: found.store });
        }
        let expected = SpaceMark::new(store);
        if found != expected {
            let (expected, found) = (expected.geometry(), found.geometry());
            return Err(Error::OtherGeometry { path: path.to_owned(), expected, found });
        }
        Ok(())
    }

    fn geometry(&self) -> String {
        format!("buckets of {} bytes behind a header of {} bytes", self.bucket_bytes, self.header_bytes)
    }

    /// Returns true if the header area is blank: only then may a store be made there without a second confirmation.
    pub fn is_blank(area: &[u8]) -> bool {
        is_zero(area)
    }
}

fn decode_copy(bytes: &[u8]) -> Result<(u32, SpaceMark), Mismatch> {
    let sealed = &bytes[..MARK_CHECKSUM_AT];
    let stored = Fields(&bytes[MARK_CHECKSUM_AT..]).u32("checksum")?;
    require_checksum(stored, crc32c::crc32c(sealed))?;
    let mut fields = Fields(sealed);
    fields.take(SPACE_MAGIC.len(), "magic")?;
    let format = fields.u32("format")?;
    let header_bytes = fields.u32("bytes of the header")?;
    let store = StoreId(fields.array("store")?);
    let bucket_bytes = fields.u32("bytes of a bucket")?;
    if format == SPACE_FORMAT {
        fields.zeros(fields.0.len(), "zeros behind the fields")?;
    }
    Ok((format, SpaceMark { store, header_bytes, bucket_bytes }))
}

/// Describes the bytes that lie where a bucket space has its mark.
fn describe(area: &[u8]) -> String {
    if is_zero(area) {
        return "zeros only".to_owned();
    }
    let first: Vec<String> = area.iter().take(SPACE_MAGIC.len()).map(|byte| format!("{byte:02x}")).collect();
    format!("other data, which begins with {}", first.join(" "))
}

#[cfg(test)]
mod tests;
