//! Batches: changes that happen together, and what the write path makes of them.

use crate::format::address::hash_of;
use crate::format::entry::{Entry, Value};
use crate::format::rebuild::Change;
use crate::format::record::{Change as Outcome, Operation, Operations};
use crate::{Error, Result};
use situ_pipeline::SpaceUse;
use std::ops::Range;

/// The approximate memory that a pending change takes in addition to its bytes: its place in the table, its batch, and
/// what the allocator adds.
const CHANGE_BYTES: u64 = 256;

/// Changes that are written together: after a crash all of them are there, or none.
///
/// ```
/// # mod situ { pub use situ_hash as hash; }
/// use situ::hash::HashBatch;
///
/// let mut batch = HashBatch::new();
/// batch.put("lovelace", "1815")?;
/// batch.delete("babbage")?;
/// assert_eq!(batch.len(), 2);
/// # Ok::<(), situ::hash::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct HashBatch {
    operations: Operations,
    uses_reserve: bool,
}

impl HashBatch {
    /// Makes an empty batch.
    pub fn new() -> HashBatch {
        HashBatch::default()
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key or the value is too long.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_until(key, value, None)
    }

    /// Stores `value` under `key` until `store_ms`; `None` means forever. The time is in milliseconds of the target
    /// store's [clock](crate::HashStore::clock). [`ms_of_unix`](situ_base::StoreClock::ms_of_unix) converts a Unix time
    /// to it.
    ///
    /// # Errors
    /// As [`put`](HashBatch::put).
    pub fn put_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, store_ms: Option<u64>) -> Result<()> {
        self.operations.push(&Operation::put(key.as_ref(), value.as_ref(), store_ms))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key is empty or too long.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.operations.push(&Operation::delete(key.as_ref()))
    }

    /// Lets a store take the batch on a full disk, from the space that it keeps for deletions. For short records
    /// without which nothing can be deleted.
    pub fn set_uses_reserve(&mut self) {
        self.uses_reserve = true;
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.operations.count() as usize
    }

    /// Returns true if there is no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the changes in the log.
    pub fn bytes(&self) -> usize {
        self.operations.bytes().len()
    }

    /// Makes the changes ready for the log of a store with this seed.
    pub(crate) fn into_changes(self, seed: u64, value_bytes_max: usize) -> Result<Changes> {
        for operation in self.operations.iter() {
            if let Outcome::Put { value, .. } = operation.change
                && value.len() > value_bytes_max
            {
                let found = value.len();
                return Err(Error::Invalid(format!(
                    "this store takes values of at most {value_bytes_max} bytes, and this one has {found}"
                )));
            }
        }
        Ok(Changes { uses_reserve: self.uses_reserve, ..Changes::new(self.operations, seed) })
    }
}

/// The changes of a batch, with their hashes, as the pending tables share them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    operations: Operations,
    spans: Vec<Span>,
    first_expiry_ms: Option<u64>,
    uses_reserve: bool,
}

/// The place of a change in the bytes of its batch.
#[derive(Debug)]
struct Span {
    hash: u64,
    key: Range<usize>,
    /// The value and the expiry of a put.
    value: Option<(Range<usize>, Option<u64>)>,
}

/// Returns the range of `part` in `whole`, of which it is a part.
fn range_in(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    assert!(start + part.len() <= whole.len(), "a part of the batch");
    start..start + part.len()
}

impl Changes {
    pub(crate) fn new(operations: Operations, seed: u64) -> Changes {
        let bytes = operations.bytes();
        let span = |operation: Operation<'_>| Span {
            hash: hash_of(operation.key, seed),
            key: range_in(bytes, operation.key),
            value: match operation.change {
                Outcome::Delete => None,
                Outcome::Put { value, expires_ms } => Some((range_in(bytes, value), expires_ms)),
            },
        };
        let mut spans = Vec::with_capacity(operations.count() as usize);
        spans.extend(operations.iter().map(span));
        let first_expiry_ms = spans.iter().filter_map(|span| span.value.as_ref()?.1).min();
        Changes { operations, spans, first_expiry_ms, uses_reserve: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.operations.bytes().len()
    }

    /// Returns how the batch uses space.
    pub(crate) fn space_use(&self) -> SpaceUse {
        if self.uses_reserve {
            return SpaceUse::Release;
        }
        match (0..self.len()).all(|index| matches!(self.change(index), Change::Delete(_))) {
            true => SpaceUse::Deletion,
            false => SpaceUse::Put,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.operations.held_bytes() + self.spans.capacity() * size_of::<Span>()
    }

    /// Returns the memory that the changes take while they are pending.
    pub(crate) fn pending_bytes(&self) -> u64 {
        (0..self.len()).map(|index| self.bytes_of(index)).sum()
    }

    /// Returns the memory that one of them takes.
    pub(crate) fn bytes_of(&self, index: usize) -> u64 {
        let Span { key, value, .. } = &self.spans[index];
        (key.len() + value.as_ref().map_or(0, |(value, _)| value.len())) as u64 + CHANGE_BYTES
    }

    /// Returns the soonest expiry of what is put.
    pub(crate) fn first_expiry_ms(&self) -> Option<u64> {
        self.first_expiry_ms
    }

    pub(crate) fn hash(&self, index: usize) -> u64 {
        self.spans[index].hash
    }

    pub(crate) fn change(&self, index: usize) -> Change<'_> {
        let bytes = self.operations.bytes();
        let Span { key, value, .. } = &self.spans[index];
        let key = &bytes[key.clone()];
        match value {
            None => Change::Delete(key),
            Some((value, expires_ms)) => {
                Change::Put(Entry { key, value: Value::Inline(&bytes[value.clone()]), expires_ms: *expires_ms })
            }
        }
    }

    /// Passes the record of the log, in parts, to `takes`.
    pub(crate) fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T {
        takes(&[&self.operations.header(first), self.operations.bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_found_in_the_bytes_of_their_batch() {
        let mut batch = HashBatch::new();
        batch.put("a", "one").unwrap();
        batch.delete("bb").unwrap();
        batch.put_until("ccc", "", Some(7)).unwrap();
        let changes = batch.into_changes(5, 10).unwrap();
        let entry = |key, value, expires_ms| Change::Put(Entry { key, value: Value::Inline(value), expires_ms });
        assert_eq!(changes.change(0), entry(b"a", b"one", None));
        assert_eq!(changes.change(1), Change::Delete(b"bb"));
        assert_eq!(changes.change(2), entry(b"ccc", b"", Some(7)));
        assert_eq!(changes.hash(1), hash_of(b"bb", 5));
        assert_eq!(changes.pending_bytes(), 4 + 2 + 3 + 3 * CHANGE_BYTES);
    }

    #[test]
    fn a_value_that_is_too_long_is_refused_before_the_log() {
        let mut batch = HashBatch::new();
        batch.put("a", [0; 11]).unwrap();
        assert!(matches!(batch.into_changes(5, 10), Err(Error::Invalid(_))));
    }
}
