//! The log record of a batch: puts and deletes that happen together (`docs/formats/hash.md`).
//!
//! Operation number *i* of a record has the sequence number first + *i*. Replaying a record twice does no harm: each
//! operation says what its key has afterwards, whatever the key had before.

use crate::format::entry::KEY_BYTES_MAX;
use crate::format::fields::{At, Fields, Mismatch};
use crate::{Error, Result};
use std::fmt;

/// Bytes of a record before its operations.
pub const RECORD_HEADER_BYTES: usize = 12;

/// Longest value of an operation.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Sequence numbers are less.
pub const SEQUENCE_END: u64 = 1 << 56;

pub(crate) const KIND_DELETE: u8 = 0;
pub(crate) const KIND_PUT: u8 = 1;
pub(crate) const KIND_PUT_EXPIRING: u8 = 2;

/// The new content of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Nothing.
    Delete,
    /// A value.
    Put {
        /// The value: at most [`VALUE_BYTES_MAX`] bytes.
        value: &'a [u8],
        /// The time at which it expires, in milliseconds since 1970; none: never.
        expires_ms: Option<u64>,
    },
}

/// A change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The key: 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The new content of the key.
    pub change: Change<'a>,
}

/// Bytes of an operation before its key, at most: kind, both lengths, expiry.
const HEAD_BYTES_MAX: usize = 1 + 2 + 4 + 8;

impl<'a> Operation<'a> {
    /// Makes an operation that removes `key`.
    pub fn delete(key: &'a [u8]) -> Operation<'a> {
        Operation { key, change: Change::Delete }
    }

    /// Makes an operation that stores `value` under `key`.
    pub fn put(key: &'a [u8], value: &'a [u8], expires_ms: Option<u64>) -> Operation<'a> {
        Operation { key, change: Change::Put { value, expires_ms } }
    }

    /// Checks that an operation may have such lengths.
    ///
    /// # Errors
    /// [`Error::Invalid`], which says what an operation may have.
    pub fn check(&self) -> Result<()> {
        let key = self.key.len();
        if key == 0 || key > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, and this one has {key}")));
        }
        match self.change {
            Change::Put { value, .. } if value.len() > VALUE_BYTES_MAX => {
                let found = value.len();
                Err(Error::Invalid(format!("a value has at most {VALUE_BYTES_MAX} bytes, and this one has {found}")))
            }
            _ => Ok(()),
        }
    }

    fn write_to(&self, bytes: &mut Vec<u8>) {
        let (kind, expires_ms, value) = match self.change {
            Change::Delete => (KIND_DELETE, None, None),
            Change::Put { value, expires_ms: None } => (KIND_PUT, None, Some(value)),
            Change::Put { value, expires_ms } => (KIND_PUT_EXPIRING, expires_ms, Some(value)),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        if let Some(at) = expires_ms {
            bytes.extend_from_slice(&at.to_le_bytes());
        }
        if let Some(value) = value {
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        }
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(value.unwrap_or_default());
    }

    fn take(fields: &mut Fields<'a>) -> Result<Operation<'a>, Mismatch> {
        let kind = fields.u8("kind")?;
        let key_bytes = usize::from(fields.u16("length of a key")?);
        if key_bytes == 0 || key_bytes > KEY_BYTES_MAX {
            return Err(Mismatch::new("length of a key", format_args!("1 to {KEY_BYTES_MAX}"), key_bytes));
        }
        let expires_ms = match kind {
            KIND_DELETE => return fields.take(key_bytes, "key").map(Operation::delete),
            KIND_PUT => None,
            KIND_PUT_EXPIRING => Some(fields.u64("expiry")?),
            _ => return Err(Mismatch::new("kind", "0, 1 or 2", kind)),
        };
        let value_bytes = fields.u32("length of a value")? as usize;
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Mismatch::new("length of a value", format_args!("at most {VALUE_BYTES_MAX}"), value_bytes));
        }
        let key = fields.take(key_bytes, "key")?;
        Ok(Operation::put(key, fields.take(value_bytes, "value")?, expires_ms))
    }
}

/// Operations, encoded one behind the other: what a record holds behind its header.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Operations {
    bytes: Vec<u8>,
    count: u32,
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes, {} bytes", self.count, self.bytes.len())
    }
}

impl Operations {
    /// Makes an empty list of operations.
    pub fn new() -> Operations {
        Operations::default()
    }

    /// Appends an operation.
    ///
    /// # Errors
    /// As [`Operation::check`], or memory runs out. Nothing has changed then.
    ///
    /// # Panics
    /// There are 2^32 - 1 of them already.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<()> {
        operation.check()?;
        let value_bytes = match operation.change {
            Change::Delete => 0,
            Change::Put { value, .. } => value.len(),
        };
        let bytes = HEAD_BYTES_MAX + operation.key.len() + value_bytes;
        if self.bytes.try_reserve(bytes).is_err() {
            return Err(situ_storage::Error::out_of_memory(self.bytes.len() + bytes, "a batch").into());
        }
        self.count = self.count.checked_add(1).expect("fewer operations than 2^32");
        operation.write_to(&mut self.bytes);
        Ok(())
    }

    /// Returns the number of operations.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the bytes of the operations.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the memory that is held for the operations.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the operations, in the order in which they were pushed.
    pub fn iter(&self) -> impl Iterator<Item = Operation<'_>> + Clone {
        operations(&self.bytes)
    }

    /// Returns the header of the record whose first operation has the sequence number `first`.
    ///
    /// # Panics
    /// There are no operations, or the sequence numbers reach [`SEQUENCE_END`].
    pub fn header(&self, first: u64) -> [u8; RECORD_HEADER_BYTES] {
        assert!(self.count > 0, "a record has operations");
        let end = first.checked_add(u64::from(self.count));
        assert!(end.is_some_and(|end| end <= SEQUENCE_END), "sequence numbers have 56 bits");
        let mut header = [0; RECORD_HEADER_BYTES];
        header[..8].copy_from_slice(&first.to_le_bytes());
        header[8..].copy_from_slice(&self.count.to_le_bytes());
        header
    }
}

/// A record whose every operation was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The sequence number of the first operation.
    pub first: u64,
    /// The number of operations: at least one.
    pub count: u32,
    operations: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads a record that lies at `offset` of the log file `path`.
    ///
    /// # Errors
    /// [`situ_storage::Error::Corruption`] if the record breaks a rule. Its checksum was right, so a writer wrote it
    /// with the fault.
    pub fn decode(path: &str, offset: u64, bytes: &'a [u8]) -> Result<Record<'a>> {
        decode(bytes).map_err(|mismatch| mismatch.at(path, offset, "record of a batch"))
    }

    /// Returns the operations with their sequence numbers.
    pub fn operations(&self) -> impl Iterator<Item = (u64, Operation<'a>)> + Clone + use<'a> {
        (self.first..).zip(operations(self.operations))
    }

    /// Returns the operations as bytes, as [`Operations::bytes`] has them.
    pub fn bytes(&self) -> &'a [u8] {
        self.operations
    }
}

/// Decodes operations that were checked before.
fn operations(bytes: &[u8]) -> impl Iterator<Item = Operation<'_>> + Clone {
    let mut fields = Fields(bytes);
    std::iter::from_fn(move || Operation::take(&mut fields).ok())
}

fn decode(bytes: &[u8]) -> Result<Record<'_>, Mismatch> {
    let mut fields = Fields(bytes);
    let first = fields.u64("first sequence number")?;
    let count = fields.u32("count of operations")?;
    if count == 0 {
        return Err(Mismatch::new("count of operations", "at least 1", count));
    }
    if first.checked_add(u64::from(count)).is_none_or(|end| end > SEQUENCE_END) {
        let expected = format_args!("sequence numbers below {SEQUENCE_END}");
        return Err(Mismatch::new("first sequence number", expected, format_args!("{count} from {first} on")));
    }
    let operations = fields.0;
    for _ in 0..count {
        Operation::take(&mut fields)?;
    }
    match fields.0.len() {
        0 => Ok(Record { first, count, operations }),
        left => Err(Mismatch::new("operations", "as many bytes as they take", format_args!("{left} more"))),
    }
}

#[cfg(test)]
mod tests;
