//! Changes, and batches of them.

use std::collections::TryReserveError;
use std::ops::Range;

/// One change in a [`WriteBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Store `value` under `key`.
    Put {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// At most the server's `max_value_bytes` and a header.
        value: &'a [u8],
    },
    /// Remove `key`.
    Delete {
        /// 1 to 250 bytes.
        key: &'a [u8],
    },
}

/// One change, whose value is not in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeInParts<'a> {
    /// Store the concatenation of `parts` under `key`.
    Put {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// A header, and the data in two parts.
        parts: [&'a [u8]; 3],
    },
    /// Remove `key`.
    Delete {
        /// 1 to 250 bytes.
        key: &'a [u8],
    },
}

/// Changes to apply together, in order. One buffer holds all keys and values, so a batch costs two allocations.
#[derive(Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    changes: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    key: Range<usize>,
    /// `None` deletes.
    value: Option<Range<usize>>,
}

impl WriteBatch {
    /// Appends a put whose value is the concatenation of `parts`. Returns the bytes of the key and the value.
    ///
    /// # Errors
    /// The system has no memory for the key and the value. The batch keeps what it has.
    pub fn put(&mut self, key: &[u8], parts: &[&[u8]]) -> Result<usize, TryReserveError> {
        let bytes = parts.iter().fold(key.len(), |sum, part| sum.saturating_add(part.len()));
        self.bytes.try_reserve(bytes)?;
        self.changes.try_reserve(1)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.changes.push(Span { key: start..middle, value: Some(middle..self.bytes.len()) });
        Ok(bytes)
    }

    /// Appends a delete. Returns the bytes of the key.
    pub fn delete(&mut self, key: &[u8]) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.changes.push(Span { key: start..self.bytes.len(), value: None });
        key.len()
    }

    /// Returns the changes in order.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.changes.iter().map(|span| {
            let key = &self.bytes[span.key.clone()];
            match &span.value {
                Some(value) => Change::Put { key, value: &self.bytes[value.clone()] },
                None => Change::Delete { key },
            }
        })
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns true if there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the bytes of keys and values held.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_in() {
        let mut batch = WriteBatch::default();
        assert_eq!(batch.put(b"a", &[b"1", b"", b"23"]), Ok(4));
        batch.delete(b"b");
        let changes: Vec<_> = batch.changes().collect();
        assert_eq!(changes, [Change::Put { key: b"a", value: b"123" }, Change::Delete { key: b"b" }]);
    }
}
