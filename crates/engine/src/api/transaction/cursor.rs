//! Cursors of transactions: the store's entries with the transaction's own over them.
//!
//! Two cursors walk side by side: the store's cursor, and a key of the transaction's map. Going forward, both stand on
//! their first key at or behind the position. Going backward, they stand on their last one at or before it. The nearer
//! one is shown. On the same key the transaction's entry is shown, which may be a deletion. On a change of direction
//! both are positioned again.

use super::writes::{Own, OwnMap};
use crate::Result;
use crate::api::iter::walk_by_own_methods;
use crate::read::cursor::Cursor;
use situ_storage::Excerpt;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The cursor that shows the present entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Store,
    Own,
}

/// A cursor over the keys and values that a transaction sees of a keyspace: the store's and its own, as they were when
/// the cursor was opened. It starts nowhere: position it first. Used as [`Cursor`].
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let store = situ::Store::open(directory.path())?;
/// store.put("apple", "red")?;
/// let mut transaction = store.begin()?;
/// transaction.put("banana", "yellow")?;
/// let mut cursor = transaction.cursor()?;
/// cursor.seek_to_last()?;
/// assert_eq!(cursor.key(), Some(&b"banana"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), Some(&b"apple"[..]));
/// # drop(cursor);
/// # store.close()
/// # }
/// ```
pub struct TransactionCursor {
    store: Cursor,
    map: Arc<OwnMap>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// The entry at which the cursor in the map stands.
    own: Option<(Arc<[u8]>, Own)>,
    direction: Direction,
    shown: Shown,
}

walk_by_own_methods!(TransactionCursor);

impl TransactionCursor {
    pub(crate) fn new(
        store: Cursor,
        map: Arc<OwnMap>,
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
    ) -> TransactionCursor {
        TransactionCursor { store, map, lower, upper, own: None, direction: Direction::Forward, shown: Shown::Nothing }
    }

    /// Returns true if the cursor stands on an entry.
    pub fn valid(&self) -> bool {
        self.shown != Shown::Nothing
    }

    /// Returns the present key; `None` if the cursor stands nowhere.
    pub fn key(&self) -> Option<&[u8]> {
        match self.shown {
            Shown::Nothing => None,
            Shown::Store => self.store.key(),
            Shown::Own => self.own.as_ref().map(|(key, _)| &key[..]),
        }
    }

    /// Returns the present value; `None` if the cursor stands nowhere.
    pub fn value(&self) -> Option<&[u8]> {
        match self.shown {
            Shown::Nothing => None,
            Shown::Store => self.store.value(),
            Shown::Own => self.own.as_ref()?.1.as_deref(),
        }
    }

    /// Moves to the first key (of the bounds).
    ///
    /// # Errors
    /// As [`Cursor::seek_to_first`]; it stands nowhere then and may be positioned again.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.moving(Direction::Forward, |iter| {
            iter.store.seek_to_first()?;
            iter.own = iter.own_from(Bound::Unbounded);
            Ok(())
        })
    }

    /// Moves to the last key (of the bounds).
    ///
    /// # Errors
    /// As [`seek_to_first`](TransactionCursor::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.moving(Direction::Backward, |iter| {
            iter.store.seek_to_last()?;
            iter.own = iter.own_to(Bound::Unbounded);
            Ok(())
        })
    }

    /// Moves to the first key at or behind `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](TransactionCursor::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.moving(Direction::Forward, |iter| {
            iter.store.seek(key)?;
            iter.own = iter.own_from(Bound::Included(key));
            Ok(())
        })
    }

    /// Moves to the last key at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](TransactionCursor::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.moving(Direction::Backward, |iter| {
            iter.store.seek_for_prev(key)?;
            iter.own = iter.own_to(Bound::Included(key));
            Ok(())
        })
    }

    /// Moves one key forward. Does nothing if the cursor stands nowhere.
    ///
    /// # Errors
    /// As [`seek_to_first`](TransactionCursor::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "the field's name for it, and it can fail")]
    pub fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    /// Moves one key backward. Does nothing if the cursor stands nowhere.
    ///
    /// # Errors
    /// As [`seek_to_first`](TransactionCursor::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    fn step(&mut self, direction: Direction) -> Result<()> {
        let Some(key) = self.key() else { return Ok(()) };
        if self.direction == direction {
            return self.moving(direction, TransactionCursor::leave);
        }
        let key = key.to_vec();
        self.moving(direction, |iter| {
            match direction {
                Direction::Forward => iter.store.seek(&key)?,
                Direction::Backward => iter.store.seek_for_prev(&key)?,
            }
            if iter.store.key() == Some(&key[..]) {
                iter.step_store()?;
            }
            iter.own = iter.own_behind(&key);
            Ok(())
        })
    }

    /// Positions both cursors by `position`, and shows the entry that they find.
    fn moving(&mut self, direction: Direction, position: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.direction = direction;
        let outcome = position(self).and_then(|()| self.settle());
        self.shown = match &outcome {
            Ok(shown) => *shown,
            Err(_) => Shown::Nothing,
        };
        outcome.map(drop)
    }

    /// Moves both cursors off the present key, as far as they stand on it.
    fn leave(&mut self) -> Result<()> {
        let Some((key, _)) = self.own.take_if(|_| self.shown == Shown::Own) else { return self.step_store() };
        self.own = self.own_behind(&key);
        if self.store.key() == Some(&key[..]) { self.step_store() } else { Ok(()) }
    }

    /// Moves past keys that the transaction has deleted, and returns the cursor that has the entry to show.
    fn settle(&mut self) -> Result<Shown> {
        loop {
            let Some((own, value)) = &self.own else {
                return Ok(if self.store.valid() { Shown::Store } else { Shown::Nothing });
            };
            let is_nearer = match (self.store.key(), self.direction) {
                (None, _) => true,
                (Some(store), Direction::Forward) => own[..] <= *store,
                (Some(store), Direction::Backward) => own[..] >= *store,
            };
            if !is_nearer {
                return Ok(Shown::Store);
            }
            if value.is_some() {
                return Ok(Shown::Own);
            }
            self.shown = Shown::Own;
            self.leave()?;
        }
    }

    fn step_store(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.store.next(),
            Direction::Backward => self.store.prev(),
        }
    }

    fn own_behind(&self, key: &[u8]) -> Option<(Arc<[u8]>, Own)> {
        match self.direction {
            Direction::Forward => self.own_from(Bound::Excluded(key)),
            Direction::Backward => self.own_to(Bound::Excluded(key)),
        }
    }

    /// Returns the first own key from here on, and at or behind the lower bound.
    fn own_from(&self, from: Bound<&[u8]>) -> Option<(Arc<[u8]>, Own)> {
        let from = match (from, &self.lower) {
            (Bound::Included(key) | Bound::Excluded(key), Some(lower)) if key < &lower[..] => {
                Bound::Included(&lower[..])
            }
            (Bound::Unbounded, Some(lower)) => Bound::Included(&lower[..]),
            (from, _) => from,
        };
        let (key, own) = self.map.range::<[u8], _>((from, Bound::Unbounded)).next()?;
        self.upper.as_ref().is_none_or(|upper| key[..] < upper[..]).then(|| (Arc::clone(key), own.clone()))
    }

    /// Returns the last own key up to here, and before the upper bound.
    fn own_to(&self, to: Bound<&[u8]>) -> Option<(Arc<[u8]>, Own)> {
        let to = match (to, &self.upper) {
            (Bound::Included(key) | Bound::Excluded(key), Some(upper)) if key >= &upper[..] => {
                Bound::Excluded(&upper[..])
            }
            (Bound::Unbounded, Some(upper)) => Bound::Excluded(&upper[..]),
            (to, _) => to,
        };
        let (key, own) = self.map.range::<[u8], _>((Bound::Unbounded, to)).next_back()?;
        self.lower.as_ref().is_none_or(|lower| key[..] >= lower[..]).then(|| (Arc::clone(key), own.clone()))
    }
}

impl fmt::Debug for TransactionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => write!(f, "TransactionCursor(at {})", Excerpt(key)),
            None => f.write_str("TransactionCursor(nowhere)"),
        }
    }
}
