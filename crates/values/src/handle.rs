//! The handle of a value, which an owner keeps in the value's place.

use crate::error::invalid_handle;
use crate::format::{ALIGN, FIRST_RECORD, HEADER_BYTES};
use situ_base::bytes::{u32_at, u64_at};
use situ_storage::Result;

/// The place of one record in the value log.
///
/// Its encoding has a fixed width, so an owner can keep it wherever a value may be.
///
/// ```
/// use situ_values::Handle;
///
/// let handle = Handle { segment: 7, offset: 4096, bytes: 2048 };
/// assert_eq!(Handle::decode(&handle.encode()).unwrap(), handle);
/// assert_eq!(handle.value_bytes(16), 2048 - 24 - 16);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The number of the segment.
    pub segment: u64,
    /// First byte of the record in the segment.
    pub offset: u32,
    /// Length of the record: header, key and value.
    pub bytes: u32,
}

impl Handle {
    /// Length of an encoded handle.
    pub const ENCODED_BYTES: usize = 16;

    /// Returns its bytes: segment, offset, length, each little-endian.
    pub fn encode(&self) -> [u8; Handle::ENCODED_BYTES] {
        let mut bytes = [0; Handle::ENCODED_BYTES];
        bytes[..8].copy_from_slice(&self.segment.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads a handle.
    ///
    /// # Errors
    /// [`Invalid`](situ_storage::Error::Invalid): the bytes are not a handle. The caller knows where they came from.
    pub fn decode(bytes: &[u8]) -> Result<Handle> {
        if bytes.len() != Handle::ENCODED_BYTES {
            return Err(invalid_handle(format!("{} bytes instead of {}", bytes.len(), Handle::ENCODED_BYTES)));
        }
        let handle = Handle { segment: u64_at(bytes, 0), offset: u32_at(bytes, 8), bytes: u32_at(bytes, 12) };
        match handle.is_possible() {
            true => Ok(handle),
            false => Err(invalid_handle(format!("offset {}, length {}", handle.offset, handle.bytes))),
        }
    }

    /// Returns true if any segment can have a record there.
    pub(crate) fn is_possible(&self) -> bool {
        let (offset, bytes) = (u64::from(self.offset), u64::from(self.bytes));
        offset >= FIRST_RECORD
            && offset.is_multiple_of(ALIGN)
            && bytes >= HEADER_BYTES as u64
            && offset + bytes <= u64::from(u32::MAX)
    }

    /// Returns the number of bytes that the record takes in its segment: its length up to the next place where a record
    /// can begin. All sums of live and dead bytes are sums of this.
    pub fn footprint(&self) -> u64 {
        u64::from(self.bytes).next_multiple_of(ALIGN)
    }

    /// Returns the length of the value, if its key is `key_bytes` long.
    pub fn value_bytes(&self, key_bytes: usize) -> usize {
        (self.bytes as usize).saturating_sub(HEADER_BYTES + key_bytes)
    }

    /// Returns the first byte behind the record.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_that_no_segment_can_have_are_refused() {
        let good = Handle { segment: u64::MAX, offset: 4096, bytes: 24 };
        assert_eq!(Handle::decode(&good.encode()).unwrap(), good);
        for bad in [
            Handle { offset: 4097, ..good },
            Handle { offset: 0, ..good },
            Handle { bytes: 23, ..good },
            Handle { offset: u32::MAX - 7, ..good },
        ] {
            assert!(Handle::decode(&bad.encode()).is_err(), "{bad:?}");
        }
        assert!(Handle::decode(&good.encode()[1..]).is_err());
    }

    #[test]
    fn golden_bytes() {
        let handle = Handle { segment: 0x0102_0304_0506_0708, offset: 0x0010_0ff8, bytes: 0x0102 };
        assert_eq!(handle.encode(), [8, 7, 6, 5, 4, 3, 2, 1, 0xf8, 0x0f, 0x10, 0, 2, 1, 0, 0]);
    }
}
