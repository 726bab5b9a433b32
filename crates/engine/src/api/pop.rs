//! The ends of a keyspace: reads of the first and last key, and pops.
//!
//! A pop is a pessimistic transaction. It finds the first key, locks the key's row and reads its value again. If the
//! value is gone, another pop was faster, and this one starts over. A write outside of transactions takes no lock. The
//! check at commit detects it, and the pop starts over as well.
//!
//! **Order.** The entry was at the end at some moment during the call. A smaller key that is put meanwhile may be left.
//!
//! **Cost.** A seek and a write, at any length of the queue: dead entries at its end are a gap (`versions/gaps.rs`).

use crate::api::keyspace::Keyspace;
use crate::api::transaction::{Transaction, TransactionOptions};
use crate::base::options::Durability;
use crate::base::range::KeyRange;
use crate::base::value::{Key, Value};
use crate::read::options::ReadOptions;
use crate::rows::locks::LockMode;
use crate::versions::gaps::Side;
use crate::{Error, Result};

impl Keyspace {
    /// Returns the first key without reading its value; `None` if there is no key.
    ///
    /// # Errors
    /// As [`first`](Keyspace::first).
    pub fn first_key(&self) -> Result<Option<Key>> {
        self.key_at(Side::Front, ReadOptions::default())
    }

    /// Returns the last key without reading its value; `None` if there is no key.
    ///
    /// # Errors
    /// As [`first`](Keyspace::first).
    pub fn last_key(&self) -> Result<Option<Key>> {
        self.key_at(Side::Back, ReadOptions::default())
    }

    fn key_at(&self, side: Side, options: ReadOptions) -> Result<Option<Key>> {
        let mut cursor = self.cursor_of(options.values_on_demand(true))?;
        match side {
            Side::Front => cursor.seek_to_first()?,
            Side::Back => cursor.seek_to_last()?,
        }
        Ok(cursor.key().map(Key::copied))
    }

    /// Removes the first key, and returns it with its value; `None` if there is no key. With
    /// [`pop_last`](Keyspace::pop_last) and [`put`](Keyspace::put), a keyspace serves as a queue.
    ///
    /// Concurrent pops never return the same entry. A pop waits for another pop of the same entry, and for a
    /// pessimistic transaction that has locked the key.
    ///
    /// ```
    /// # fn main() -> situ_engine::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let store = situ_engine::Store::open(directory.path())?;
    /// store.put("job 1", "wash")?;
    /// store.put("job 2", "dry")?;
    /// let (job, what) = store.pop_first()?.unwrap();
    /// assert_eq!((&job[..], &what[..]), (&b"job 1"[..], &b"wash"[..]));
    /// assert_eq!(store.pop_last()?.unwrap().0, "job 2");
    /// assert_eq!(store.pop_first()?, None);
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`first`](Keyspace::first) and [`delete`](Keyspace::delete); [`Error::LockTimeout`] if a transaction keeps
    /// the key locked.
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Side::Front, ReadOptions::default(), None)
    }

    /// Removes the last key, like [`pop_first`](Keyspace::pop_first).
    ///
    /// # Errors
    /// As [`pop_first`](Keyspace::pop_first).
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Side::Back, ReadOptions::default(), None)
    }

    /// Removes the first key in a range, like [`pop_first`](Keyspace::pop_first). With ranges, a keyspace can hold
    /// several queues. `None` is the durability of the store's options.
    ///
    /// # Errors
    /// As [`pop_first`](Keyspace::pop_first).
    pub fn pop_first_with(
        &self,
        range: impl KeyRange,
        durability: impl Into<Option<Durability>>,
    ) -> Result<Option<(Key, Value)>> {
        self.pop(Side::Front, ReadOptions::default().within(&range), durability.into())
    }

    /// Removes the last key in a range, like [`pop_first_with`](Keyspace::pop_first_with).
    ///
    /// # Errors
    /// As [`pop_first`](Keyspace::pop_first).
    pub fn pop_last_with(
        &self,
        range: impl KeyRange,
        durability: impl Into<Option<Durability>>,
    ) -> Result<Option<(Key, Value)>> {
        self.pop(Side::Back, ReadOptions::default().within(&range), durability.into())
    }

    fn pop(&self, side: Side, options: ReadOptions, durability: Option<Durability>) -> Result<Option<(Key, Value)>> {
        let transaction_options =
            TransactionOptions { durability, ..TransactionOptions::pessimistic().read_committed() };
        loop {
            let Some(key) = self.key_at(side, options.clone())? else { return Ok(None) };
            let mut transaction = Transaction::begin(self, &transaction_options)?;
            let popped = match transaction.get_for_update(&key, LockMode::Exclusive) {
                Ok(Some(value)) => {
                    transaction.delete(&key)?;
                    transaction.commit().map(|_| value)
                }
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match popped {
                Ok(value) => return Ok(Some((key, value))),
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
