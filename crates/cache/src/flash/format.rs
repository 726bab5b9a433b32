//! The format of the flash.
//!
//! ```text
//! bytes         content
//!      0..4096  superblock
//!   4096..8192  the superblock again
//!    1 MiB..    segments of 1 MiB each, to the end
//! ```
//!
//! ```text
//! superblock                          segment
//! offset  bytes  field                offset  bytes  field
//!      0      8  "SITUFLSH"                0      8  "SITUFSEG"
//!      8      4  version, 1                8      8  sequence number, from 1 on
//!     12      4  segments                 16      8  base of the items' ids
//!     16     16  the cache's own id       24      4  bytes in use, this header included
//!     32      8  seed of the hashes       28      4  where its first record begins
//!     40      4  bytes of a segment       32     16  the cache's own id
//!     44      4  crc32c of all before     48      4  crc32c of all before
//!                                         52      4  zeros
//!                                         56      .  records
//! ```
//!
//! A record that is longer than 64 KiB may begin in one segment and go on in the next ones, behind their headers. Where
//! a segment's own first record begins is in its header: the length of a segment if none does.
//!
//! A record is a checksum (4 bytes) and an [item](crate::item), whose length is a multiple of 4. The checksum is the
//! crc32c of the cache's id, the segment's sequence number, the record's offset, and the item. So what an older segment
//! has left behind in the same place is no record.
//!
//! All integers are little-endian. Unused bytes of a superblock or header are zero; anything else is damage. Bytes of a
//! segment past its used length are never read.
//!
//! **Failure.** Decoders accept any bytes, and return nothing for bytes that no encoder writes. Encoding what a decoder
//! returned gives the same bytes (`fuzzing.rs`).

use crate::item::{Item, NewItem};
use crate::slot::ALIGN;
use situ_base::bytes::{u32_at, u64_at};

/// A segment, as it is written in one go.
pub(crate) const SEGMENT_BYTES: usize = 1 << 20;
/// The offset of the first segment.
pub(crate) const SEGMENTS_AT: u64 = 1 << 20;
/// A superblock.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// The offset of the first record of a segment.
pub(crate) const RECORDS_AT: usize = 56;
/// The bytes that a record takes in addition to its item.
pub(crate) const RECORD_HEADER_BYTES: usize = 4;

/// Exclusive upper bound of sequence numbers, generations and start counts, so that arithmetic on them cannot overflow.
/// 2^40 segments are an exabyte.
pub(crate) const COUNTS_END: u64 = 1 << 40;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"SITUFLSH";
const SEGMENT_MAGIC: [u8; 8] = *b"SITUFSEG";
const VERSION: u32 = 1;

/// The superblock of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) segments: u32,
    pub(crate) id: [u8; 16],
    pub(crate) seed: u64,
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segments.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.seed.to_le_bytes());
        bytes[40..44].copy_from_slice(&(SEGMENT_BYTES as u32).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the superblock of a block. The rest of the block is zeros.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Superblock> {
        let (bytes, rest) = bytes.split_first_chunk::<48>()?;
        let is_ours = bytes[..8] == SUPERBLOCK_MAGIC
            && rest.iter().all(|byte| *byte == 0)
            && u32_at(bytes, 8) == VERSION
            && u32_at(bytes, 40) == SEGMENT_BYTES as u32
            && u32_at(bytes, 44) == crc32c::crc32c(&bytes[..44]);
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        is_ours.then(|| Superblock { segments: u32_at(bytes, 12), id, seed: u64_at(bytes, 32) })
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    pub(crate) used: u32,
    pub(crate) first: u32,
}

impl Header {
    pub(crate) fn encode(&self, id: &[u8; 16]) -> [u8; RECORDS_AT] {
        let mut bytes = [0; RECORDS_AT];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.used.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..48].copy_from_slice(id);
        let sum = crc32c::crc32c(&bytes[..48]);
        bytes[48..52].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], id: &[u8; 16]) -> Option<Header> {
        let bytes: &[u8; RECORDS_AT] = bytes.first_chunk()?;
        let header = Header {
            sequence: u64_at(bytes, 8),
            base: u64_at(bytes, 16),
            used: u32_at(bytes, 24),
            first: u32_at(bytes, 28),
        };
        let is_ours = bytes[..8] == SEGMENT_MAGIC
            && bytes[32..48] == id[..]
            && u32_at(bytes, 48) == crc32c::crc32c(&bytes[..48])
            && bytes[52..] == [0; 4]
            && (1..COUNTS_END).contains(&header.sequence)
            && [header.used, header.first].iter().all(|at| is_place(*at as usize));
        is_ours.then_some(header)
    }
}

/// Returns true if a record may begin or end at an offset of its segment.
fn is_place(at: usize) -> bool {
    (RECORDS_AT..=SEGMENT_BYTES).contains(&at) && at.is_multiple_of(ALIGN)
}

/// The salt that makes the checksums of a segment's records its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Salt {
    pub(crate) id: [u8; 16],
    pub(crate) sequence: u64,
}

impl Salt {
    fn sum(&self, offset: u32, item: &[u8]) -> u32 {
        let sum = crc32c::crc32c(&self.id);
        let sum = crc32c::crc32c_append(sum, &self.sequence.to_le_bytes());
        let sum = crc32c::crc32c_append(sum, &offset.to_le_bytes());
        crc32c::crc32c_append(sum, item)
    }

    /// Writes the record of an item over `out`, which has its length.
    pub(crate) fn put(&self, offset: u32, base: u64, item: &NewItem<'_>, out: &mut [u8]) {
        let (sum, bytes) = out.split_at_mut(RECORD_HEADER_BYTES);
        item.put_over(base, bytes);
        sum.copy_from_slice(&self.sum(offset, bytes).to_le_bytes());
    }

    /// Corrects the checksum of the record at the start of `bytes`, and returns the record's length.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn seal(&self, offset: u32, base: u64, bytes: &mut [u8]) -> Option<usize> {
        let (sum, rest) = bytes.split_first_chunk_mut::<RECORD_HEADER_BYTES>()?;
        let length = Item::decode(rest, base)?.stored_bytes(base);
        *sum = self.sum(offset, rest.get(..length)?).to_le_bytes();
        Some(RECORD_HEADER_BYTES + length)
    }

    /// Returns the item of the record that `bytes` begin with, and the record's length.
    pub(crate) fn get<'a>(&self, offset: u32, base: u64, bytes: &'a [u8]) -> Option<(Item<'a>, usize)> {
        let (sum, rest) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let item = Item::decode(rest, base)?;
        let length = item.stored_bytes(base);
        // The checksum covers the length, and the length depends on the form.
        let is_whole =
            item.is_stored_as(rest, base) && self.sum(offset, rest.get(..length)?) == u32::from_le_bytes(*sum);
        is_whole.then_some((item, RECORD_HEADER_BYTES + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Meta;
    use proptest::prelude::*;

    #[test]
    fn a_superblock_and_a_header_have_this_form() {
        let superblock = Superblock { segments: 300, id: [7; 16], seed: 0x0102_0304_0506_0708 };
        let bytes = superblock.encode();
        assert_eq!(bytes[..16], *b"SITUFLSH\x01\0\0\0\x2c\x01\0\0");
        assert_eq!(bytes[32..44], [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 16, 0]);
        assert_eq!(Superblock::decode(&bytes), Some(superblock));
        let header = Header { sequence: 9, base: 5, used: 100, first: 56 };
        let bytes = header.encode(&[7; 16]);
        assert_eq!(bytes[..32], *b"SITUFSEG\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x64\0\0\0\x38\0\0\0");
        assert_eq!(Header::decode(&bytes, &[7; 16]), Some(header));
        assert_eq!(Header::decode(&bytes, &[8; 16]), None, "another cache's");
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_found(at in 0..56usize, bit in 0..8u32) {
            let mut bytes = Superblock { segments: 3, id: [7; 16], seed: 5 }.encode();
            bytes[at.min(47)] ^= 1 << bit;
            prop_assert_eq!(Superblock::decode(&bytes), None);
            bytes[at.min(47)] ^= 1 << bit;
            let mut block = [&bytes[..], &[0; SUPERBLOCK_BYTES - 48]].concat();
            prop_assert!(Superblock::decode(&block).is_some());
            block[48 + at * 70] ^= 1 << bit;
            prop_assert_eq!(Superblock::decode(&block), None);
            let mut bytes = Header { sequence: 9, base: 5, used: 100, first: 56 }.encode(&[7; 16]);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Header::decode(&bytes, &[7; 16]), None);
        }

        #[test]
        fn bytes_are_a_record_in_their_own_place_only(
            value in prop::collection::vec(any::<u8>(), 0..300), at in 0..300usize, bit in 0..8u32,
        ) {
            let salt = Salt { id: [7; 16], sequence: 9 };
            let item = NewItem { meta: Meta { id: 6, ..Meta::default() }, key: b"key", parts: [&value, b""] };
            let mut bytes = vec![0; RECORD_HEADER_BYTES + item.stored_bytes(5)];
            salt.put(64, 5, &item, &mut bytes);
            let (found, length) = salt.get(64, 5, &bytes).unwrap();
            prop_assert_eq!((found.key, found.value, found.meta.id, length), (&b"key"[..], &value[..], 6, bytes.len()));
            prop_assert!(salt.get(68, 5, &bytes).is_none());
            let later = Salt { sequence: 10, ..salt };
            prop_assert!(later.get(64, 5, &bytes).is_none());
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(salt.get(64, 5, &bytes).is_none());
        }
    }
}
