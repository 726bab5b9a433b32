//! Who waits for whom.

use std::fmt;

/// A transaction that waits for another one; part of
/// [`Error::Deadlock`](crate::Error::Deadlock) and [`Error::LockTimeout`](crate::Error::LockTimeout).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockWait {
    /// The transaction that waits, by its [number](crate::Transaction::number).
    pub transaction: u64,
    /// The keyspace of the key that it wants to lock.
    pub keyspace: String,
    /// That key.
    pub key: Vec<u8>,
    /// The transaction that has locked the key, or waits before it.
    pub waits_for: u64,
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockWait { transaction, keyspace, key, waits_for } = self;
        let key = key.escape_ascii();
        write!(f, "transaction {transaction} waits for transaction {waits_for} to unlock \"{key}\" of {keyspace:?}")
    }
}
