//! Cursors and iterators of a transaction: the store's entries with its own over them.

use super::Transaction;
use super::cursor::TransactionCursor;
use super::writes::OwnMap;
use crate::Result;
use crate::api::iter::{Ends, Moment, Source};
use crate::api::keyspace::Keyspace;
use crate::base::range::KeyRange;
use crate::base::value::{Key, Value};
use crate::read::options::ReadOptions;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

/// A transaction's view of a keyspace at one moment of both.
struct OwnMoment {
    store: Moment,
    own: Arc<OwnMap>,
}

impl Source for OwnMoment {
    type Cursor = TransactionCursor;

    fn cursor(&self) -> Result<TransactionCursor> {
        let options = &self.store.options;
        let (lower, upper) = (options.lower_bound.clone(), options.upper_bound.clone());
        Ok(TransactionCursor::new(self.store.cursor()?, Arc::clone(&self.own), lower, upper))
    }
}

/// An iterator over the keys and values that a transaction sees of a keyspace, as they were when it was made; used as
/// [`Iter`](crate::Iter). The iterator does not see later writes of the transaction, which may go on while the iterator
/// is used.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = situ::Store::open(directory.path())?;
/// store.put("apple", "red")?;
/// let mut transaction = store.begin()?;
/// transaction.put("banana", "yellow")?;
/// for pair in transaction.range("a"..)? {
///     let (fruit, _) = pair?;
///     transaction.delete(fruit)?;
/// }
/// assert_eq!(transaction.iter()?.count(), 0);
/// # drop(transaction);
/// # store.close()
/// # }
/// ```
#[must_use = "iterators do nothing unless they are used"]
pub struct TransactionIter(Ends<OwnMoment>);

impl Iterator for TransactionIter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for TransactionIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl FusedIterator for TransactionIter {}

impl fmt::Debug for TransactionIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransactionIter({:?})", self.0)
    }
}

impl Transaction {
    /// Returns the transaction's view of a keyspace. It reads as of the options' moment, or, without one, as
    /// [`get`](Transaction::get) does now.
    fn own_moment(&self, keyspace: &Keyspace, mut options: ReadOptions) -> Result<OwnMoment> {
        self.noted(self.check_keyspace(keyspace))?;
        if let (None, Some(snapshot)) = (&options.point, self.snapshot()) {
            options = options.at(snapshot);
        }
        Ok(OwnMoment { store: Moment::of(keyspace, options)?, own: self.writes.of(keyspace.id()) })
    }

    /// Returns a cursor over the keyspace `default` and the transaction's own writes to it so far. It reads as
    /// [`get`](Transaction::get) does now.
    ///
    /// # Errors
    /// As [`Keyspace::cursor`].
    pub fn cursor(&self) -> Result<TransactionCursor> {
        self.cursor_in(&self.default)
    }

    /// Returns a cursor over `keyspace`, as [`cursor`](Transaction::cursor).
    ///
    /// # Errors
    /// As [`Keyspace::cursor`]; [`Error::Invalid`](crate::Error::Invalid) if the keyspace is another store's.
    pub fn cursor_in(&self, keyspace: &Keyspace) -> Result<TransactionCursor> {
        self.own_moment(keyspace, ReadOptions::default())?.cursor()
    }

    /// Returns a cursor over the keyspace `default`, within the options' bounds. It reads as of the options' moment,
    /// or, without one, as [`get`](Transaction::get) does now.
    ///
    /// # Errors
    /// As [`Keyspace::cursor`].
    pub fn cursor_with(&self, options: &ReadOptions) -> Result<TransactionCursor> {
        self.cursor_in_with(&self.default, options)
    }

    /// Returns a cursor over `keyspace`, as [`cursor_with`](Transaction::cursor_with).
    ///
    /// # Errors
    /// As [`cursor_in`](Transaction::cursor_in).
    pub fn cursor_in_with(&self, keyspace: &Keyspace, options: &ReadOptions) -> Result<TransactionCursor> {
        self.own_moment(keyspace, options.clone())?.cursor()
    }

    /// Returns all keys that the transaction sees of the keyspace `default`, with their values, in key order.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn iter(&self) -> Result<TransactionIter> {
        self.iter_in(&self.default)
    }

    /// Returns all keys that the transaction sees of `keyspace`, with their values, in key order.
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; [`Error::Invalid`](crate::Error::Invalid) if the keyspace is another store's.
    pub fn iter_in(&self, keyspace: &Keyspace) -> Result<TransactionIter> {
        self.range_in(keyspace, ..)
    }

    /// Returns the keys in a range of the keyspace `default`, as the transaction sees them, with their values; see
    /// [`KeyRange`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn range(&self, range: impl KeyRange) -> Result<TransactionIter> {
        self.range_in(&self.default, range)
    }

    /// Returns the keys in a range of `keyspace`, as the transaction sees them, with their values.
    ///
    /// # Errors
    /// As [`iter_in`](Transaction::iter_in).
    pub fn range_in(&self, keyspace: &Keyspace, range: impl KeyRange) -> Result<TransactionIter> {
        self.iter_within(keyspace, ReadOptions::default().within(&range))
    }

    /// Returns the keys of the keyspace `default` that begin with `prefix`, as the transaction sees them, with their
    /// values.
    ///
    /// # Errors
    /// As [`Keyspace::iter`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<TransactionIter> {
        self.prefix_in(&self.default, prefix)
    }

    /// Returns the keys of `keyspace` that begin with `prefix`, as the transaction sees them, with their values.
    ///
    /// # Errors
    /// As [`iter_in`](Transaction::iter_in).
    pub fn prefix_in(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<TransactionIter> {
        self.iter_within(keyspace, ReadOptions::default().within_prefix(prefix.as_ref()))
    }

    fn iter_within(&self, keyspace: &Keyspace, options: ReadOptions) -> Result<TransactionIter> {
        Ok(TransactionIter(Ends::new(self.own_moment(keyspace, options)?)?))
    }
}
