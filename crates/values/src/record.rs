//! One record: a header, the key, the value. `docs/formats/values.md` has the table.
//!
//! A record has two checksums. The first covers the header and the key, the second the value. So collection can ask the
//! owner about a key even if trimming has zeroed a part of the value, or a part of the value has rotted.
//!
//! The first checksum begins with the segment's salt and number and with the record's offset. So bytes of another
//! segment, of another place or of a recycled file are never taken for this record. It covers the second checksum. So
//! it binds the value, too.

use crate::format::{HEADER_BYTES, Identity};
use crate::handle::Handle;
use situ_base::bytes::{u32_at, u64_at};
use situ_storage::{Error, Excerpt, Result};

const HEAD_CHECK: usize = 0;
const VALUE_CHECK: usize = 4;
const VALUE_LENGTH: usize = 8;
const KEY_LENGTH: usize = 12;
const TAG: usize = 16;
const _: () = assert!(TAG + 8 == HEADER_BYTES);

/// The fields of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) head_check: u32,
    pub(crate) value_check: u32,
    pub(crate) value_bytes: u32,
    pub(crate) key_bytes: u32,
    pub(crate) tag: u64,
}

impl Header {
    /// Decodes a header. `None` if there are fewer bytes than a header has.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        Some(Header {
            head_check: u32_at(bytes, HEAD_CHECK),
            value_check: u32_at(bytes, VALUE_CHECK),
            value_bytes: u32_at(bytes, VALUE_LENGTH),
            key_bytes: u32_at(bytes, KEY_LENGTH),
            tag: u64_at(bytes, TAG),
        })
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[HEAD_CHECK..][..4].copy_from_slice(&self.head_check.to_le_bytes());
        bytes[VALUE_CHECK..][..4].copy_from_slice(&self.value_check.to_le_bytes());
        bytes[VALUE_LENGTH..][..4].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[KEY_LENGTH..][..4].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[TAG..][..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes
    }

    /// Returns the length of the whole record.
    pub(crate) fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }

    /// Returns true if this header, with this key, is that of a record at `offset`.
    pub(crate) fn is_of(&self, identity: Identity, offset: u64, key: &[u8]) -> bool {
        self.head_check == self.check_of(identity, offset, key)
    }

    /// Computes the first checksum. It is never 0: a record that begins with zeros was trimmed.
    fn check_of(&self, identity: Identity, offset: u64, key: &[u8]) -> u32 {
        let seed = identity.seed(offset);
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &self.encode()[VALUE_CHECK..]), key).max(1)
    }
}

/// Returns the header of a record of `key` and `value` at `offset`. The lengths were checked: [`record_bytes`].
pub(crate) fn header(identity: Identity, offset: u64, tag: u64, key: &[u8], value: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = Header {
        head_check: 0,
        value_check: crc32c::crc32c(value),
        value_bytes: value.len() as u32,
        key_bytes: key.len() as u32,
        tag,
    };
    header.head_check = header.check_of(identity, offset, key);
    header.encode()
}

/// Returns the length of a record of these lengths.
///
/// # Errors
/// No segment can hold such a record.
pub(crate) fn record_bytes(key: usize, value: usize) -> Result<u32> {
    let bytes = (HEADER_BYTES as u64).checked_add(key as u64).and_then(|bytes| bytes.checked_add(value as u64));
    let bytes = bytes.filter(|bytes| *bytes <= RECORD_BYTES_MAX).ok_or_else(|| {
        Error::Invalid(format!(
            "a value of {value} bytes is too long for the value log, whose records have {RECORD_BYTES_MAX} at most"
        ))
    })?;
    Ok(bytes as u32)
}

/// A record with all around it has to lie in the first 4 GiB of its segment.
pub(crate) const RECORD_BYTES_MAX: u64 = u32::MAX as u64 - (1 << 20);

/// The result of a look at the bytes of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A whole record.
    Whole { tag: u64, key: &'a [u8], value: &'a [u8] },
    /// The header and the key are sound, the value is not.
    ValueDamaged { tag: u64, key: &'a [u8], expected: u32, found: u32 },
    /// Neither.
    Nothing { expected: u32, found: u32 },
}

/// Looks at the bytes of a record at `offset`. `bytes` is exactly as long as the record is said to be.
pub(crate) fn look(identity: Identity, offset: u64, bytes: &[u8]) -> Found<'_> {
    let Some(header) = Header::decode(bytes).filter(|header| header.record_bytes() == bytes.len() as u64) else {
        return Found::Nothing { expected: 0, found: 0 };
    };
    let (key, value) = bytes[HEADER_BYTES..].split_at(header.key_bytes as usize);
    let head = header.check_of(identity, offset, key);
    if head != header.head_check {
        return Found::Nothing { expected: header.head_check, found: head };
    }
    let (tag, expected) = (header.tag, header.value_check);
    match crc32c::crc32c(value) {
        found if found == expected => Found::Whole { tag, key, value },
        found => Found::ValueDamaged { tag, key, expected, found },
    }
}

/// Checks the record that a handle names; `key` is what the owner knows it by. Returns where the value begins.
pub(crate) fn check(identity: Identity, handle: &Handle, key: &[u8], bytes: &[u8], path: &str) -> Result<usize> {
    let rot = |what: &str, expected: String, found: String| {
        Err(Error::corruption(path, u64::from(handle.offset), what, expected, found))
    };
    match look(identity, u64::from(handle.offset), bytes) {
        Found::Whole { key: found, .. } if found == key => Ok(HEADER_BYTES + key.len()),
        Found::Whole { key: found, .. } => {
            rot("value record", format!("key {}", shown(key)), format!("key {}", shown(found)))
        }
        Found::ValueDamaged { expected, found, .. } => {
            rot("value", format!("checksum {expected:#x}"), format!("checksum {found:#x}"))
        }
        Found::Nothing { .. } if bytes.iter().all(|byte| *byte == 0) => {
            rot("value record", "a record".into(), "zeros: it was trimmed, or never written".into())
        }
        Found::Nothing { expected, found } => {
            rot("header of a value record", format!("checksum {expected:#x}"), format!("checksum {found:#x}"))
        }
    }
}

/// Returns a key in a message.
fn shown(key: &[u8]) -> String {
    format!("\"{}\"", Excerpt(key))
}
