//! Snapshots: reads of all keyspaces as of one moment.

use crate::Result;
use crate::api::iter::Iter;
use crate::api::keyspace::Keyspace;
use crate::base::range::KeyRange;
use crate::base::value::Value;
use crate::read::cursor::Cursor;
use crate::read::future::ReadFuture;
use crate::read::options::ReadOptions;
use crate::versions::snapshot::ReadPoint;
use situ_table::ReadOptions as TableReadOptions;
use std::fmt;

/// The state of a store at one moment, over all keyspaces. Costs nothing to take; while it lives, compactions keep the
/// versions that it sees. Clones share it.
///
/// Methods read the keyspace `default`; those that end in `_in` read the keyspace that they name. A read with options
/// takes the snapshot among them: [`ReadOptions::at`].
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = situ::Store::open(directory.path())?;
/// let people = store.keyspace("people")?;
/// store.put("count", "1")?;
/// people.put("ada", "1815")?;
///
/// let snapshot = store.snapshot()?;
/// store.delete("count")?;
/// people.put("grace", "1906")?;
/// assert_eq!(snapshot.get("count")?.unwrap(), "1");
/// assert_eq!(snapshot.iter_in(&people)?.count(), 1);
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    point: ReadPoint,
    default: Keyspace,
}

impl Snapshot {
    pub(crate) fn take(default: &Keyspace) -> Snapshot {
        Snapshot { point: ReadPoint::take(&default.core.versions.snapshots), default: default.clone() }
    }

    pub(crate) fn into_point(self) -> ReadPoint {
        self.point
    }

    /// Returns the last sequence number that the snapshot sees.
    pub fn sequence(&self) -> u64 {
        self.point.sequence()
    }

    fn options(&self) -> ReadOptions {
        ReadOptions::default().at(self)
    }

    /// Returns the value of `key` in the keyspace `default`.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_in(&self.default, key)
    }

    /// Returns the value of `key` in `keyspace`.
    ///
    /// # Errors
    /// As [`get`](Snapshot::get); [`Error::Invalid`](crate::Error::Invalid) if the keyspace is another store's.
    pub fn get_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        keyspace.get_at(key.as_ref(), Some(&self.point), TableReadOptions::default())
    }

    /// Works like [`get`](Snapshot::get), without blocking; see [`Keyspace::get_async`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture {
        self.get_in_async(&self.default, key)
    }

    /// Works like [`get_in`](Snapshot::get_in), without blocking; see [`Keyspace::get_async`].
    pub fn get_in_async(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> ReadFuture {
        keyspace.get_with_async(key, &self.options())
    }

    /// Returns true if `key` exists in the keyspace `default`.
    ///
    /// # Errors
    /// As [`get`](Snapshot::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_in(&self.default, key)
    }

    /// Returns true if `key` exists in `keyspace`.
    ///
    /// # Errors
    /// As [`get_in`](Snapshot::get_in).
    pub fn contains_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        keyspace.contains_at(key.as_ref(), Some(&self.point))
    }

    /// Returns the values of several keys in the keyspace `default`, in the order of the keys.
    ///
    /// # Errors
    /// As [`get`](Snapshot::get), for the first key that fails.
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        self.multi_get_in(&self.default, keys)
    }

    /// Returns the values of several keys in `keyspace`, in the order of the keys.
    ///
    /// # Errors
    /// As [`get_in`](Snapshot::get_in), for the first key that fails.
    pub fn multi_get_in(&self, keyspace: &Keyspace, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        keyspace.multi_get_with(keys, &self.options())
    }

    /// Returns all keys of the keyspace `default` with their values, in key order.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self) -> Result<Iter> {
        self.iter_in(&self.default)
    }

    /// Returns all keys of `keyspace` with their values, in key order.
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; [`Error::Invalid`](crate::Error::Invalid) if the keyspace is another store's.
    pub fn iter_in(&self, keyspace: &Keyspace) -> Result<Iter> {
        keyspace.iter_of(self.options())
    }

    /// Returns the keys in a range of the keyspace `default`, with their values; see [`KeyRange`].
    ///
    /// # Errors
    /// As [`iter`](Snapshot::iter).
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        self.range_in(&self.default, range)
    }

    /// Returns the keys in a range of `keyspace`, with their values.
    ///
    /// # Errors
    /// As [`iter_in`](Snapshot::iter_in).
    pub fn range_in(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<Iter> {
        keyspace.iter_of(self.options().within(&range))
    }

    /// Returns the keys of the keyspace `default` that begin with `prefix`, with their values.
    ///
    /// # Errors
    /// As [`iter`](Snapshot::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.prefix_in(&self.default, prefix)
    }

    /// Returns the keys of `keyspace` that begin with `prefix`, with their values.
    ///
    /// # Errors
    /// As [`iter_in`](Snapshot::iter_in).
    pub fn prefix_in(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        keyspace.iter_of(self.options().within_prefix(prefix.as_ref()))
    }

    /// Returns a cursor over the keyspace `default`.
    ///
    /// # Errors
    /// As [`Keyspace::cursor`].
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_in(&self.default)
    }

    /// Returns a cursor over `keyspace`.
    ///
    /// # Errors
    /// As [`Keyspace::cursor`]; [`Error::Invalid`](crate::Error::Invalid) if the keyspace is another store's.
    pub fn cursor_in(&self, keyspace: &Keyspace) -> Result<Cursor> {
        keyspace.cursor_of(self.options())
    }
}

impl ReadOptions {
    /// Reads as of `snapshot`.
    #[must_use]
    pub fn at(mut self, snapshot: &Snapshot) -> ReadOptions {
        self.point = Some(snapshot.point.clone());
        self
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.sequence())
    }
}
