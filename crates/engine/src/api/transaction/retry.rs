//! Transactions that are run again after a conflict with others.
//!
//! The error type of the caller's closure may be any that can be made of ours, so it does not show a conflict with
//! others. The transaction does: it remembers such a failure of an operation, until it goes back to a savepoint from
//! before that operation. Later operations that succeed change nothing: a closure may make several, and look at their
//! outcomes afterwards. So a closure that goes on after such an error and fails with an error of its own is run again,
//! too. That may be in vain, and is bounded. The other way round, a caller would get the retryable error that it was
//! promised not to see.
//!
//! **Bounded**: by [`TransactionOptions::attempts_max`]. Between two runs the caller's thread sleeps, at random up to
//! [`PAUSE_FIRST`] at first and twice as long each time, [`PAUSE_MAX`] at most: transactions that meet again and again
//! would otherwise keep their step. The random numbers come from the transaction's number, so that the simulator can
//! repeat a run.

use super::{Transaction, TransactionOptions};
use crate::api::store::Store;
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(20);

impl Store {
    /// Runs `body` in a transaction and commits it. If an operation or the commit fails with an error whose
    /// [`Error::is_retryable`] is true, another writer was in the way. The transaction is rolled back then, and run
    /// again from its beginning. So `body` must do nothing outside of the transaction that must not happen twice.
    ///
    /// After such a failure of an operation, `body` is run again whatever error it returns, also an error of its own.
    /// If `body` returns `Ok` nevertheless, the transaction is committed.
    /// [`rollback_to_savepoint`](Transaction::rollback_to_savepoint) forgets failures since the savepoint: an error
    /// that `body` returns after it is final.
    ///
    /// There are at most [`attempts_max`](TransactionOptions::attempts_max) runs; the error of the last one is
    /// returned. If no operation has failed so, an error of `body` rolls back and is returned at once. A panic in
    /// `body` rolls back.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = situ::Store::open(directory.path())?;
    /// let visits = store.transact(|transaction| {
    ///     let seen = transaction.get("visits")?;
    ///     let visits = 1 + seen.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
    ///     transaction.put("visits", visits.to_le_bytes())?;
    ///     Ok(visits)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `body`; as [`begin`](Store::begin) and [`Transaction::commit`].
    pub fn transact<T>(&self, body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), body)
    }

    /// Works like [`transact`](Store::transact), with options, and with any error type that an [`Error`] can become. If
    /// the compiler cannot infer that type, name it as the closure's return type.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::{Store, TransactionOptions};
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NotEnough,
    ///     Store(situ::Error),
    /// }
    ///
    /// impl From<situ::Error> for Refused {
    ///     fn from(error: situ::Error) -> Refused {
    ///         Refused::Store(error)
    ///     }
    /// }
    ///
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = Store::open(directory.path())?;
    /// let outcome = store.transact_with(&TransactionOptions::optimistic(), |transaction| {
    ///     transaction.put("attempt", "made")?;
    ///     if transaction.contains("money")? { Ok(()) } else { Err(Refused::NotEnough) }
    /// });
    /// assert!(matches!(outcome, Err(Refused::NotEnough)));
    /// assert!(store.is_empty()?, "rolled back");
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`transact`](Store::transact).
    pub fn transact_with<T, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let attempts_max = options.attempts_max.max(1);
        for attempt in 1.. {
            let mut transaction = self.begin_with(options)?;
            let number = transaction.number();
            let error = match body(&mut transaction) {
                Ok(value) => match transaction.commit() {
                    Ok(_) => return Ok(value),
                    Err(error) if error.is_retryable() => error.into(),
                    Err(error) => return Err(error.into()),
                },
                Err(error) if transaction.is_in_the_way.load(Ordering::Relaxed) => {
                    // Its locks are given back before it waits.
                    drop(transaction);
                    error
                }
                Err(error) => return Err(error),
            };
            if attempt >= attempts_max {
                return Err(error);
            }
            self.core().env.clock.sleep(pause(number, attempt));
        }
        unreachable!("the last attempt returns")
    }
}

/// Returns the pause after a run that failed.
fn pause(transaction: u64, attempt: u32) -> Duration {
    let longest = PAUSE_FIRST.saturating_mul(1 << attempt.min(16).saturating_sub(1)).min(PAUSE_MAX);
    let nanoseconds = longest.as_nanos() as u64;
    Duration::from_nanos(xxh3_64_with_seed(&transaction.to_le_bytes(), attempt.into()) % (nanoseconds + 1))
}
