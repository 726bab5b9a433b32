//! One entry: a key, its value or where the value lies, and when it expires.
//!
//! An entry lies in a bucket, or in the overflow. In a bucket, four bytes of head come first, with both lengths and two
//! flags. In the overflow, one byte of head begins the value; the key is the end of the overflow key. An expiry takes
//! eight bytes, and none where an entry does not expire.

use crate::Error;
use crate::format::address::{OVERFLOW_PREFIX_BYTES, overflow_prefix, split_overflow_key};
use crate::format::fields::{At, Fields, Mismatch};
use crate::format::geometry::USABLE_BYTES;

/// Bytes of an entry's head in a bucket.
pub const ENTRY_HEAD_BYTES: usize = 4;

/// Bytes of an expiry, where there is one.
pub const EXPIRY_BYTES: usize = 8;

/// Longest key.
pub const KEY_BYTES_MAX: usize = 1024;

/// Longest pointer into the value log.
pub const POINTER_BYTES_MAX: usize = 32;

/// Longest value that lies in a bucket: an entry with the longest key and an expiry still fits into an empty one.
pub const INLINE_VALUE_BYTES_MAX: usize = USABLE_BYTES - ENTRY_HEAD_BYTES - EXPIRY_BYTES - KEY_BYTES_MAX;

/// Bits of the head that are the key's length, from bit 0.
pub(crate) const KEY_LENGTH_BITS: u32 = 11;
/// Bits of the head that are the value's length, behind the key's.
pub(crate) const VALUE_LENGTH_BITS: u32 = 12;
/// The bit of the head that says that the value is a pointer.
pub(crate) const POINTER_BIT: u32 = 23;
/// The bit of the head that says that an expiry follows.
pub(crate) const EXPIRES_BIT: u32 = 24;

/// The bit of an overflow value's first byte that says that a pointer follows.
pub(crate) const OVERFLOW_POINTER: u8 = 1;
/// The bit of an overflow value's first byte that says that an expiry follows.
pub(crate) const OVERFLOW_EXPIRES: u8 = 2;

const _: () = {
    assert!(KEY_BYTES_MAX < 1 << KEY_LENGTH_BITS);
    assert!(INLINE_VALUE_BYTES_MAX < 1 << VALUE_LENGTH_BITS);
    assert!(POINTER_BIT == KEY_LENGTH_BITS + VALUE_LENGTH_BITS && EXPIRES_BIT == POINTER_BIT + 1);
};

/// A value, or where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// A handle into the value log, in the value log's own encoding.
    Pointer(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the bytes of the value or of the handle.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Inline(bytes) | Value::Pointer(bytes) => bytes,
        }
    }

    /// Returns true if the value lies in the value log.
    pub fn is_pointer(&self) -> bool {
        matches!(self, Value::Pointer(_))
    }

    fn new(is_pointer: bool, bytes: &'a [u8]) -> Value<'a> {
        if is_pointer { Value::Pointer(bytes) } else { Value::Inline(bytes) }
    }

    /// Returns the most bytes that a value of this kind has in an entry.
    fn bytes_max(is_pointer: bool) -> usize {
        if is_pointer { POINTER_BYTES_MAX } else { INLINE_VALUE_BYTES_MAX }
    }
}

/// An entry whose bytes lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key: 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The value: at most [`INLINE_VALUE_BYTES_MAX`] bytes, or a pointer of at most [`POINTER_BYTES_MAX`].
    pub value: Value<'a>,
    /// The time at which the entry expires, in milliseconds since 1970; none: never.
    pub expires_ms: Option<u64>,
}

impl<'a> Entry<'a> {
    /// Returns an entry with an inline value that does not expire.
    pub fn inline(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
        Entry { key, value: Value::Inline(value), expires_ms: None }
    }

    /// Returns the number of bytes that the entry takes in a bucket.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        let expiry = if self.expires_ms.is_some() { EXPIRY_BYTES } else { 0 };
        ENTRY_HEAD_BYTES + expiry + self.key.len() + self.value.bytes().len()
    }

    /// Returns true if the entry is dead at `now_ms`.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| at <= now_ms)
    }

    /// Checks that an entry may have such lengths.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what an entry may have.
    pub fn check(&self) -> crate::Result<()> {
        let (key, value) = (self.key.len(), self.value.bytes().len());
        if key == 0 || key > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, and this one has {key}")));
        }
        let most = Value::bytes_max(self.value.is_pointer());
        if value > most {
            let what = if self.value.is_pointer() { "pointer into the value log" } else { "value in a bucket" };
            return Err(Error::Invalid(format!("a {what} has at most {most} bytes, and this one has {value}")));
        }
        Ok(())
    }

    /// Returns the head in a bucket.
    fn head(&self) -> u32 {
        let lengths = (self.key.len() | self.value.bytes().len() << KEY_LENGTH_BITS) as u32;
        lengths
            | u32::from(self.value.is_pointer()) << POINTER_BIT
            | u32::from(self.expires_ms.is_some()) << EXPIRES_BIT
    }

    /// Writes the entry to the beginning of `bytes`, and returns how many it takes.
    ///
    /// # Panics
    /// The lengths are not those of an entry ([`check`](Entry::check)), or `bytes` are too few.
    pub(crate) fn write_to(&self, bytes: &mut [u8]) -> usize {
        assert!(self.check().is_ok(), "the caller has checked the entry: {:?}", self.check());
        let mut end = 0;
        let mut put = |part: &[u8]| {
            bytes[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        };
        put(&self.head().to_le_bytes());
        if let Some(at) = self.expires_ms {
            put(&at.to_le_bytes());
        }
        put(self.key);
        put(self.value.bytes());
        end
    }

    /// Takes the next entry of a bucket.
    #[inline]
    pub(crate) fn take(fields: &mut Fields<'a>) -> Result<Entry<'a>, Mismatch> {
        let head = fields.u32("head of an entry")?;
        let key_bytes = (head & ((1 << KEY_LENGTH_BITS) - 1)) as usize;
        let value_bytes = (head >> KEY_LENGTH_BITS & ((1 << VALUE_LENGTH_BITS) - 1)) as usize;
        let is_pointer = head >> POINTER_BIT & 1 == 1;
        if head >> (EXPIRES_BIT + 1) != 0
            || key_bytes == 0
            || key_bytes > KEY_BYTES_MAX
            || value_bytes > Value::bytes_max(is_pointer)
        {
            return Err(bad_head(head));
        }
        let expires_ms = match head >> EXPIRES_BIT & 1 {
            0 => None,
            _ => Some(fields.u64("expiry of an entry")?),
        };
        let key = fields.take(key_bytes, "key")?;
        let value = Value::new(is_pointer, fields.take(value_bytes, "value")?);
        Ok(Entry { key, value, expires_ms })
    }

    /// Appends the value of the entry in the overflow to `bytes`.
    ///
    /// # Panics
    /// The lengths are not those of an entry ([`check`](Entry::check)).
    pub fn write_overflow_value(&self, bytes: &mut Vec<u8>) {
        assert!(self.check().is_ok(), "the caller has checked the entry: {:?}", self.check());
        let pointer = if self.value.is_pointer() { OVERFLOW_POINTER } else { 0 };
        let expires = if self.expires_ms.is_some() { OVERFLOW_EXPIRES } else { 0 };
        bytes.push(pointer | expires);
        if let Some(at) = self.expires_ms {
            bytes.extend_from_slice(&at.to_le_bytes());
        }
        bytes.extend_from_slice(self.value.bytes());
    }

    /// Returns the hash and the entry that an overflow key and its value stand for. Names damage as in the store at
    /// `path`.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if no writer makes such a key or such a value.
    pub fn from_overflow(path: &str, key: &'a [u8], value: &'a [u8]) -> crate::Result<(u64, Entry<'a>)> {
        overflow_entry(key, value).map_err(|mismatch| mismatch.at(path, 0, "overflow entry"))
    }
}

#[cold]
fn bad_head(head: u32) -> Mismatch {
    let key = format!("a key of 1 to {KEY_BYTES_MAX} bytes");
    let value = format!("a value of at most {INLINE_VALUE_BYTES_MAX}, or a pointer of at most {POINTER_BYTES_MAX}");
    Mismatch::new("head of an entry", format_args!("{key}, {value}"), format_args!("{head:#010x}"))
}

fn overflow_entry<'a>(key: &'a [u8], value: &'a [u8]) -> Result<(u64, Entry<'a>), Mismatch> {
    let expected = format_args!("{OVERFLOW_PREFIX_BYTES} bytes of hash and 1 to {KEY_BYTES_MAX} of key");
    let found = key.len();
    let (hash, key) = split_overflow_key(key)
        .filter(|(_, key)| !key.is_empty() && key.len() <= KEY_BYTES_MAX)
        .ok_or_else(|| Mismatch::new("key", expected, format_args!("{found} bytes")))?;
    let mut fields = Fields(value);
    let head = fields.u8("head")?;
    if head & !(OVERFLOW_POINTER | OVERFLOW_EXPIRES) != 0 {
        return Err(Mismatch::new("head", "0 to 3", head));
    }
    let expires_ms = match head & OVERFLOW_EXPIRES {
        0 => None,
        _ => Some(fields.u64("expiry")?),
    };
    let is_pointer = head & OVERFLOW_POINTER != 0;
    let most = Value::bytes_max(is_pointer);
    if fields.0.len() > most {
        return Err(Mismatch::new("value", format_args!("at most {most} bytes"), fields.0.len()));
    }
    Ok((hash, Entry { key, value: Value::new(is_pointer, fields.0), expires_ms }))
}

/// Returns the number of bytes that an entry in the overflow adds to its bucket's tally: the bytes of its key and its
/// value there.
pub fn overflow_bytes(entry: &Entry<'_>) -> usize {
    // The head has one byte instead of four, and the hash eight.
    entry.encoded_bytes() - ENTRY_HEAD_BYTES + 1 + overflow_prefix(0).len()
}
