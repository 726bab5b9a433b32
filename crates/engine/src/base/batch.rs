//! Write batches: several changes that happen together or not at all. The encoding is the log record of
//! `docs/formats/batch.md`.

use crate::base::options::DEFAULT_KEYSPACE_ID;
use crate::base::options::{BATCH_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::store_id::StoreId;
use crate::{Error, Result};
use situ_base::bytes::{Fields, Mismatch, put_sized, put_varint};
use situ_storage::Error as StorageError;
use situ_table::{KeyKind, SequenceNumber};
use std::fmt;

/// Bytes of a record before its operations: first sequence number and count.
pub(crate) const RECORD_HEADER_BYTES: usize = 12;

/// A flag in the field of the first sequence number, whose numbers have 56 bits: the record was carried over. Eight
/// more bytes of header have the oldest write that the record stands for.
const CARRIED_OVER: u64 = 1 << 56;

/// The destination of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The store of the keyspace; none for the keyspace `default`, which has the same number in every store.
    store: Option<StoreId>,
    keyspace: u32,
}

impl Target {
    pub(crate) const DEFAULT: Target = Target { store: None, keyspace: DEFAULT_KEYSPACE_ID };

    pub(crate) fn of(store: StoreId, keyspace: u32) -> Target {
        Target { store: Some(store), keyspace }
    }
}

/// Changes that are applied atomically, in order, across keyspaces of one store.
///
/// [`put`](WriteBatch::put), [`delete`](WriteBatch::delete) and [`delete_range`](WriteBatch::delete_range) change the
/// keyspace `default`; a batch of these alone can be written to any store. Methods that end in `_in` change the
/// keyspace that they name. Such a batch can be written to that keyspace's store only, and only until the store is
/// closed.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = situ::Store::open(directory.path())?;
/// let users = store.keyspace("users")?;
/// let mut batch = situ::WriteBatch::new();
/// batch.put_in(&users, "ada", "1815")?;
/// batch.delete("draft")?;
/// store.write(batch)?;
/// assert_eq!(users.get("ada")?.unwrap(), "1815");
/// # store.close()
/// # }
/// ```
#[derive(Default, Clone)]
pub struct WriteBatch {
    operations: Vec<u8>,
    count: u32,
    largest_bytes: usize,
    keyspaces: Touched<()>,
    /// The store of the keyspaces. The encoding has only their numbers, which other stores have too.
    store: Option<StoreId>,
}

/// One `T` for each keyspace that a batch touches, in order of first use. Nearly always there is one, and then this
/// takes no memory of its own.
#[derive(Debug, Clone)]
pub(crate) struct Touched<T> {
    first: Option<(u32, T)>,
    others: Vec<(u32, T)>,
}

impl<T> Default for Touched<T> {
    fn default() -> Self {
        Touched { first: None, others: Vec::new() }
    }
}

impl<T> Touched<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u32, T)> {
        self.first.iter().chain(&self.others)
    }

    pub(crate) fn get(&self, keyspace: u32) -> Option<&T> {
        self.iter().find(|(id, _)| *id == keyspace).map(|(_, value)| value)
    }

    pub(crate) fn push(&mut self, keyspace: u32, value: T) {
        match &self.first {
            None => self.first = Some((keyspace, value)),
            Some(_) => self.others.push((keyspace, value)),
        }
    }
}

impl WriteBatch {
    /// Returns an empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value` in the keyspace `default`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key is empty or longer than [`KEY_BYTES_MAX`], the value is longer than
    /// [`VALUE_BYTES_MAX`], or the batch would exceed [`BATCH_BYTES_MAX`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.push_put(Target::DEFAULT, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from the keyspace `default`; no error if it does not exist.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.push_delete(Target::DEFAULT, key.as_ref())
    }

    /// Removes all keys in `begin..end` from the keyspace `default`. The cost does not depend on the number of keys. An
    /// empty range is no change.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put), for both keys; `begin` may be empty.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.push_delete_range(Target::DEFAULT, begin.as_ref(), end.as_ref())
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoded size in bytes.
    pub fn bytes(&self) -> usize {
        self.operations.len()
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.keyspaces = Touched::default();
        self.count = 0;
        self.largest_bytes = 0;
        self.store = None;
    }

    pub(crate) fn push_put(&mut self, target: Target, key: &[u8], value: &[u8]) -> Result<()> {
        check_value(value)?;
        self.push_to(target, KeyKind::Put, key, Some(value))
    }

    pub(crate) fn push_delete(&mut self, target: Target, key: &[u8]) -> Result<()> {
        self.push_to(target, KeyKind::Delete, key, None)
    }

    pub(crate) fn push_delete_range(&mut self, target: Target, begin: &[u8], end: &[u8]) -> Result<()> {
        check_key(end)?;
        if begin >= end {
            return Ok(());
        }
        // No key is empty, so the range from the empty key is the range from the smallest key there can be.
        let begin = if begin.is_empty() { &[0][..] } else { begin };
        if begin >= end {
            return Ok(());
        }
        self.push_to(target, KeyKind::RangeDelete, begin, Some(end))
    }

    fn push_to(&mut self, target: Target, kind: KeyKind, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if let Some(store) = target.store {
            self.check_store(store)?;
        }
        self.push(kind, target.keyspace, key, value)?;
        self.store = self.store.or(target.store);
        Ok(())
    }

    /// Refuses a batch that was made for another store.
    #[inline]
    pub(crate) fn check_store(&self, store: StoreId) -> Result<()> {
        match self.store {
            Some(other) if other != store => Err(Error::Invalid(
                "the batch has changes for keyspaces of another store, or of this one before it was opened again; make \
                 a batch for each store, with keyspaces that the open store gives"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn push(&mut self, kind: KeyKind, keyspace: u32, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        let more = key.len() + value.map_or(0, <[u8]>::len) + 32;
        if self.operations.len() + more > BATCH_BYTES_MAX || self.count == u32::MAX {
            return Err(Error::Invalid(format!(
                "a batch has at most {BATCH_BYTES_MAX} bytes; write what it holds and begin another one"
            )));
        }
        if self.operations.try_reserve(more).is_err() {
            return Err(StorageError::out_of_memory(self.operations.len() + more, "a batch").into());
        }
        self.operations.push(kind as u8);
        put_varint(&mut self.operations, u64::from(keyspace));
        put_sized(&mut self.operations, key);
        if let Some(value) = value {
            put_sized(&mut self.operations, value);
        }
        self.count += 1;
        self.largest_bytes = self.largest_bytes.max(more);
        if self.keyspaces.get(keyspace).is_none() {
            self.keyspaces.push(keyspace, ());
        }
        Ok(())
    }

    /// Returns the memory that the batch holds on the heap. It may be far more than [`bytes`](WriteBatch::bytes): a
    /// batch that was cleared keeps its memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.operations.capacity() + self.keyspaces.others.capacity() * size_of::<(u32, ())>()
    }

    /// Returns an upper bound of the size of the largest change, in bytes.
    #[inline]
    pub(crate) fn largest_bytes(&self) -> usize {
        self.largest_bytes
    }

    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = u32> {
        self.keyspaces.iter().map(|(id, ())| *id)
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.operations
    }

    pub(crate) fn header(&self, first: SequenceNumber) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        header[..8].copy_from_slice(&first.to_le_bytes());
        header[8..].copy_from_slice(&self.count.to_le_bytes());
        header
    }

    /// Returns the header of a record that stands for all writes since `since` which no table holds.
    pub(crate) fn carried_header(&self, first: SequenceNumber, since: SequenceNumber) -> Vec<u8> {
        [&self.header(first | CARRIED_OVER)[..], &since.to_le_bytes()].concat()
    }

    /// Returns the changes in order. They were encoded here, so that the decoding cannot fail.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Operation<'_>> {
        operations(&self.operations)
    }
}

/// Returns the operations in an encoding that is known to be sound.
fn operations(encoded: &[u8]) -> impl Iterator<Item = Operation<'_>> {
    let mut fields = Fields(encoded);
    // The end is no error, which would take memory.
    std::iter::from_fn(move || if fields.0.is_empty() { None } else { Operation::decode(&mut fields).ok() })
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0 => Err(Error::Invalid("a key has at least one byte, and this one is empty".to_owned())),
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(Error::Invalid(format!("a key has at most {KEY_BYTES_MAX} bytes, and this one has {bytes}"))),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        let bytes = value.len();
        return Err(Error::Invalid(format!("a value has at most {VALUE_BYTES_MAX} bytes, and this one has {bytes}")));
    }
    Ok(())
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteBatch({} changes, {} bytes)", self.count, self.operations.len())
    }
}

/// One change, borrowed from a batch or a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) kind: KeyKind,
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Operation<'a> {
    #[inline]
    fn decode(fields: &mut Fields<'a>) -> Result<Operation<'a>, Mismatch> {
        let tag = fields.u8("kind of an operation")?;
        let kind = KeyKind::from_u8(tag).ok_or_else(|| Mismatch::new("kind of an operation", "a known one", tag))?;
        let keyspace = fields.varint32("keyspace of an operation")?;
        let key = fields.sized("key")?;
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(Mismatch::new("key", format_args!("1 to {KEY_BYTES_MAX} bytes"), key.len()));
        }
        let value = if kind == KeyKind::Delete { &[] } else { fields.sized("value")? };
        Ok(Operation { kind, keyspace, key, value })
    }
}

/// A record read back from the log. Its operations stay in their encoding: a batch of many small ones would take
/// several times its own memory otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    pub(crate) first: SequenceNumber,
    /// Equal to `first`. For a record that was carried over, the oldest write that it stands for.
    pub(crate) since: SequenceNumber,
    count: u32,
    /// The encoded operations. All of them decode, as [`Record::decode`] has checked.
    encoded: &'a [u8],
}

impl<'a> Record<'a> {
    /// Decodes any bytes, down to the last operation; the error describes the fault in words.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Record<'a>, String> {
        let mut fields = Fields(bytes);
        let (field, count) = (fields.u64("sequence number")?, fields.u32("count of operations")?);
        let first = field & !CARRIED_OVER;
        let since = if field == first { first } else { fields.u64("oldest write")? };
        if first.checked_add(u64::from(count)).is_none_or(|end| end > situ_table::MAX_SEQUENCE) {
            return Err("a sequence number of more than 56 bits".to_owned());
        }
        if since > first || (since == first && field != first) {
            return Err("a record that stands for writes behind it".to_owned());
        }
        let encoded = fields.0;
        for _ in 0..count {
            Operation::decode(&mut fields)?;
        }
        fields.end()?;
        Ok(Record { first, since, count, encoded })
    }

    /// Returns the number of operations.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns the operations in order.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation<'a>> + use<'a> {
        operations(self.encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.push(KeyKind::Put, 0, b"k", Some(b"v")).unwrap();
        batch.push(KeyKind::Delete, 300, b"gone", None).unwrap();
        batch.push(KeyKind::RangeDelete, 0, b"a", Some(b"b")).unwrap();
        batch
    }

    fn record(batch: &WriteBatch, first: u64) -> Vec<u8> {
        [&batch.header(first)[..], batch.encoded()].concat()
    }

    #[test]
    fn a_record_holds_what_was_batched() {
        let batch = sample();
        assert_eq!(batch.keyspaces().collect::<Vec<_>>(), [0, 300]);
        let bytes = record(&batch, 7);
        let decoded = Record::decode(&bytes).unwrap();
        assert_eq!(decoded.first, 7);
        assert_eq!(decoded.len(), 3);
        assert!(decoded.operations().eq(batch.iter()));
    }

    /// Once, a decoded record held 48 bytes for each operation: a batch of the largest size, of deletes of short keys,
    /// took two and a half times its size to recover.
    #[test]
    fn a_decoded_record_borrows_its_operations() {
        let mut batch = WriteBatch::new();
        (0..100_000u32).for_each(|n| batch.push(KeyKind::Delete, 0, &n.to_be_bytes(), None).unwrap());
        let bytes = record(&batch, 1);
        let decoded = Record::decode(&bytes).unwrap();
        let inside = bytes.as_ptr_range();
        for (n, operation) in decoded.operations().enumerate() {
            assert_eq!(operation.key, (n as u32).to_be_bytes());
            assert!(inside.contains(&operation.key.as_ptr()));
        }
        // `Copy` says that it owns nothing.
        let copy = decoded;
        assert_eq!((copy.len(), decoded.operations().count()), (100_000, 100_000));
    }

    /// The worked example of docs/formats/batch.md.
    #[test]
    fn golden_bytes() {
        let golden: &[u8] = b"\x07\0\0\0\0\0\0\0\x03\0\0\0\x01\x00\x01k\x01v\x00\xac\x02\x04gone\x03\x00\x01a\x01b";
        assert_eq!(record(&sample(), 7), golden);
    }

    /// The second worked example of docs/formats/batch.md.
    #[test]
    fn golden_bytes_of_a_record_that_was_carried_over() {
        let mut batch = WriteBatch::new();
        batch.push(KeyKind::Put, 0, b"k", Some(b"v")).unwrap();
        let bytes = [&batch.carried_header(9, 5)[..], batch.encoded()].concat();
        assert_eq!(bytes, b"\x09\0\0\0\0\0\0\x01\x01\0\0\0\x05\0\0\0\0\0\0\0\x01\x00\x01k\x01v");
        let decoded = Record::decode(&bytes).unwrap();
        assert_eq!((decoded.first, decoded.since, decoded.len()), (9, 5, 1));
        assert!(decoded.operations().eq(batch.iter()));
        let ahead = [&batch.carried_header(9, 9)[..], batch.encoded()].concat();
        assert!(Record::decode(&ahead).is_err());
    }

    #[test]
    fn every_damaged_record_is_refused_or_differs() {
        let batch = sample();
        let carried = [&batch.carried_header(7, 3)[..], batch.encoded()].concat();
        for bytes in [record(&batch, 7), carried] {
            for cut in 0..bytes.len() {
                assert!(Record::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            assert!(Record::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn keys_out_of_bounds_are_refused() {
        let mut batch = WriteBatch::new();
        assert!(batch.push(KeyKind::Put, 0, b"", Some(b"")).is_err());
        assert!(batch.push(KeyKind::Put, 0, &vec![1; KEY_BYTES_MAX], Some(b"")).is_ok());
        let error = batch.push(KeyKind::Put, 0, &vec![1; KEY_BYTES_MAX + 1], Some(b"")).unwrap_err();
        assert!(error.to_string().contains("at most 65536 bytes"), "{error}");
    }
}
