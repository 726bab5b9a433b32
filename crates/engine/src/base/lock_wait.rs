//! A wait for a lock: the transaction that waits, and the one that it waits for.

use situ_storage::Excerpt;
use std::fmt;

/// A transaction that waits for another one; part of
/// [`Error::Deadlock`](crate::Error::Deadlock) and [`Error::LockTimeout`](crate::Error::LockTimeout).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockWait {
    /// The transaction that waits, by its [number](crate::Transaction::number).
    pub transaction: u64,
    /// The keyspace of the key that the transaction wants to lock.
    pub keyspace: String,
    /// The key that the transaction wants to lock.
    pub key: Vec<u8>,
    /// The transaction that has locked the key, or waits before it.
    pub waits_for: u64,
}

impl fmt::Debug for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockWait { transaction, keyspace, key, waits_for } = self;
        let key = Excerpt(key);
        write!(f, "transaction {transaction} waits for transaction {waits_for} to unlock \"{key}\" of {keyspace:?}")
    }
}
