//! Iterators: `for pair in store.range("a".."b")? { let (key, value) = pair?; … }`.
//!
//! An iterator is made of cursors. The end that is used first gets the cursor that was opened with the iterator. A
//! second cursor is opened only when the other end is used, too. Both have the same view, sequence number and (of a
//! transaction) own writes.
//!
//! **Invariants.** A cursor stands on the entry that it gave last. So the entries that are left lie strictly between
//! the two. The iterator has ended when a step takes one cursor to the other one, or beyond, or nowhere. So each entry
//! is given exactly once. Both see the same entries, whatever is written, flushed or compacted meanwhile.
//!
//! **Failure.** An error is given once and ends the iterator.
//!
//! **Rejected.** *One cursor that goes back and forth*: each change of the end would cost a seek. *Two cursors from the
//! beginning*: nearly every iterator goes one way, and a cursor holds blocks.

use crate::Result;
use crate::api::keyspace::Keyspace;
use crate::base::range::KeyRange;
use crate::base::value::{Key, Value};
use crate::read::cursor::Cursor;
use crate::read::options::ReadOptions;
use crate::read::options::table_read_options;
use crate::versions::view::View;
use situ_storage::Excerpt;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

/// The operations of a cursor, with a transaction's writes or without.
pub(crate) trait Walk {
    fn seek_to_first(&mut self) -> Result<()>;
    fn seek_to_last(&mut self) -> Result<()>;
    fn next(&mut self) -> Result<()>;
    fn prev(&mut self) -> Result<()>;
    fn entry(&self) -> Option<(&[u8], &[u8])>;
}

/// Makes [`Walk`] of a cursor's own methods of the same names.
macro_rules! walk_by_own_methods {
    ($cursor:ty) => {
        impl $crate::api::iter::Walk for $cursor {
            fn seek_to_first(&mut self) -> $crate::Result<()> {
                <$cursor>::seek_to_first(self)
            }

            fn seek_to_last(&mut self) -> $crate::Result<()> {
                <$cursor>::seek_to_last(self)
            }

            fn next(&mut self) -> $crate::Result<()> {
                <$cursor>::next(self)
            }

            fn prev(&mut self) -> $crate::Result<()> {
                <$cursor>::prev(self)
            }

            #[inline]
            fn entry(&self) -> Option<(&[u8], &[u8])> {
                self.key().zip(self.value())
            }
        }
    };
}

pub(crate) use walk_by_own_methods;

walk_by_own_methods!(Cursor);

/// A source that opens any number of cursors over the same entries.
pub(crate) trait Source {
    type Cursor: Walk;

    fn cursor(&self) -> Result<Self::Cursor>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// The cursors at both ends; see the [module](self).
pub(crate) struct Ends<S: Source> {
    source: S,
    /// The cursor that was opened with the iterator, until an end is used.
    opened: Option<S::Cursor>,
    front: Option<S::Cursor>,
    back: Option<S::Cursor>,
    ended: bool,
}

impl<S: Source> Ends<S> {
    pub(crate) fn new(source: S) -> Result<Ends<S>> {
        let opened = Some(source.cursor()?);
        Ok(Ends { source, opened, front: None, back: None, ended: false })
    }

    pub(crate) fn next(&mut self) -> Option<Result<(Key, Value)>> {
        self.give(End::Front)
    }

    pub(crate) fn next_back(&mut self) -> Option<Result<(Key, Value)>> {
        self.give(End::Back)
    }

    fn give(&mut self, end: End) -> Option<Result<(Key, Value)>> {
        if self.ended {
            return None;
        }
        let outcome = self.step(end).transpose();
        if !matches!(outcome, Some(Ok(_))) {
            // The memory that the cursors keep alive can go before the iterator does.
            self.ended = true;
            (self.opened, self.front, self.back) = (None, None, None);
        }
        outcome
    }

    fn step(&mut self, end: End) -> Result<Option<(Key, Value)>> {
        let (here, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        let cursor = match here {
            Some(cursor) => {
                match end {
                    End::Front => cursor.next()?,
                    End::Back => cursor.prev()?,
                }
                cursor
            }
            None => {
                let opened = self.opened.take();
                let cursor = here.insert(opened.map_or_else(|| self.source.cursor(), Ok)?);
                match end {
                    End::Front => cursor.seek_to_first()?,
                    End::Back => cursor.seek_to_last()?,
                }
                cursor
            }
        };
        let Some((key, value)) = cursor.entry() else { return Ok(None) };
        if let Some((given, _)) = other.as_ref().and_then(Walk::entry) {
            let have_met = match end {
                End::Front => key >= given,
                End::Back => key <= given,
            };
            if have_met {
                return Ok(None);
            }
        }
        Ok(Some((Key::copied(key), Value::copied(value)?)))
    }
}

impl<S: Source> fmt::Debug for Ends<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = |cursor: &Option<S::Cursor>| {
            let key = cursor.as_ref().and_then(Walk::entry).map(|(key, _)| Excerpt(key).to_string());
            key.unwrap_or_else(|| "nothing".to_owned())
        };
        write!(f, "gave {} and, from behind, {}; ended: {}", given(&self.front), given(&self.back), self.ended)
    }
}

/// A keyspace at one moment.
pub(crate) struct Moment {
    keyspace: Keyspace,
    view: Arc<View>,
    sequence: u64,
    pub(crate) options: ReadOptions,
}

impl Moment {
    pub(crate) fn of(keyspace: &Keyspace, options: ReadOptions) -> Result<Moment> {
        let (view, sequence) = keyspace.at(options.point.as_ref())?;
        let options = ReadOptions { values_on_demand: false, ..options };
        Ok(Moment { keyspace: keyspace.clone(), view: arc_swap::Guard::into_inner(view), sequence, options })
    }
}

impl Source for Moment {
    type Cursor = Cursor;

    fn cursor(&self) -> Result<Cursor> {
        let table_options = table_read_options(&self.options);
        self.keyspace.cursor_over(Arc::clone(&self.view), self.sequence, self.options.clone(), table_options)
    }
}

/// An iterator over keys and values in key order, at one moment of the keyspace's life. It does not see writes that
/// come after it was made. It goes from both ends, so that `.rev()` begins with the last key. After an error it ends.
///
/// The iterator copies keys and values out of the store. If the copies matter, use a [`Cursor`]. An iterator keeps
/// memtables and tables alive that it may need; drop it when done.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = situ::Store::open(directory.path())?;
/// for (name, born) in [("ada", "1815"), ("alan", "1912"), ("grace", "1906")] {
///     store.put(name, born)?;
/// }
/// for pair in store.range("a".."b")? {
///     let (name, born) = pair?;
///     assert!(name.starts_with(b"a") && born.len() == 4);
/// }
/// let latest_first = store.prefix("a")?.rev().map(|pair| Ok(pair?.0)).collect::<situ::Result<Vec<_>>>()?;
/// assert_eq!(latest_first, ["alan", "ada"]);
/// # store.close()
/// # }
/// ```
#[must_use = "iterators do nothing unless they are used"]
pub struct Iter(Ends<Moment>);

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Iter({:?})", self.0)
    }
}

impl Keyspace {
    /// Returns all keys with their values, in key order.
    ///
    /// # Errors
    /// The store is closed, or a table with range tombstones could not be opened. Errors of later reads come from the
    /// iterator.
    pub fn iter(&self) -> Result<Iter> {
        self.iter_of(ReadOptions::default())
    }

    /// Returns the keys within the options' bounds, with their values, as of the options' moment.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = situ::Store::open(directory.path())?;
    /// store.put("ada", "1815")?;
    /// let snapshot = store.snapshot()?;
    /// store.delete("ada")?;
    /// let then = situ::ReadOptions::default().at(&snapshot);
    /// assert_eq!(store.iter_with(&then)?.count(), 1);
    /// assert_eq!(store.iter()?.count(), 0);
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn iter_with(&self, options: &ReadOptions) -> Result<Iter> {
        self.iter_of(options.clone())
    }

    pub(crate) fn iter_of(&self, options: ReadOptions) -> Result<Iter> {
        Ok(Iter(Ends::new(Moment::of(self, options)?)?))
    }

    /// Returns the keys in a range, with their values, in key order: `"a".."b"`, `"a"..="b"`, `"a"..`; see
    /// [`KeyRange`].
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
        self.iter_of(ReadOptions::default().within(&range))
    }

    /// Returns the keys in a range that are also within the options' bounds, with their values, as of the options'
    /// moment.
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Result<Iter> {
        self.iter_of(options.clone().within(&range))
    }

    /// Returns the keys that begin with `prefix`, with their values, in key order.
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.iter_of(ReadOptions::default().within_prefix(prefix.as_ref()))
    }

    /// Returns the keys that begin with `prefix` and are within the options' bounds, with their values, as of the
    /// options' moment.
    ///
    /// # Errors
    /// As [`iter`](Keyspace::iter).
    pub fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Iter> {
        self.iter_of(options.clone().within_prefix(prefix.as_ref()))
    }

    /// Returns the first key with its value; `None` if there is no key. Costs about one seek: the first reader steps
    /// over deleted keys before it, and later readers skip them.
    ///
    /// # Errors
    /// A table could not be read, or is damaged.
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter()?.next().transpose()
    }

    /// Returns the last key with its value; `None` if there is no key. Costs about one seek, like
    /// [`first`](Keyspace::first).
    ///
    /// # Errors
    /// As [`first`](Keyspace::first).
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter()?.next_back().transpose()
    }

    /// Returns true if there is no key. The answer is exact. The call costs as much as [`first`](Keyspace::first).
    ///
    /// # Errors
    /// As [`first`](Keyspace::first).
    pub fn is_empty(&self) -> Result<bool> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_first()?;
        Ok(!cursor.valid())
    }
}
