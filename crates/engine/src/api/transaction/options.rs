//! Options of transactions.

use crate::base::options::{BATCH_BYTES_MAX, Durability, setters};

/// The moment at which a transaction finds a conflict with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransactionKind {
    /// At once: the transaction locks each row that it writes or reads for update. Other pessimistic transactions wait.
    /// This kind suits transactions that meet often.
    #[default]
    Pessimistic,
    /// At commit: the transaction takes no locks and never waits for others. If a row that it wrote or read for update
    /// has been changed, the commit answers [`Error::Conflict`](crate::Error::Conflict). This kind suits transactions
    /// that seldom meet.
    Optimistic,
}

/// The writes of others that a transaction sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each read sees the writes that are committed when it begins. A key that is read, but not for update, may change
    /// before the transaction writes it: that change is lost.
    ReadCommitted,
    /// All reads see one moment, that of the transaction's first operation. If two transactions overlap and write the
    /// same key, the first to commit wins. Two transactions may still each read a key that the other one writes (write
    /// skew), unless they read it for update.
    #[default]
    Snapshot,
}

/// Options of a transaction. The default is pessimistic, with snapshot isolation.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{Durability, TransactionOptions};
/// let options = TransactionOptions::optimistic().read_committed().durability(Durability::Synced);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// The kind: one that locks, or one that checks at the end. Default: pessimistic.
    pub kind: TransactionKind,
    /// The writes of others that the transaction sees. Default: a snapshot.
    pub isolation: Isolation,
    /// The longest wait of an operation for a lock; then it answers [`Error::LockTimeout`](crate::Error::LockTimeout).
    /// 0: no wait. Default: 1000.
    pub lock_timeout_ms: u64,
    /// The maximum memory for its writes, for the keys that it has locked or read for update, and for its savepoints.
    /// Beyond it, an operation answers [`Error::TransactionTooLarge`](crate::Error::TransactionTooLarge). Default: 64
    /// MiB; at most [`BATCH_BYTES_MAX`].
    pub bytes_max: u64,
    /// The moment at which the commit is acknowledged. Default: that of the store's writes.
    pub durability: Option<Durability>,
    /// The maximum number of times that [`Store::transact`](crate::Store::transact) runs the transaction; then it
    /// returns the last error. At least 1, for a single run. Default: 100. If each run ends with a lock timeout, the
    /// call takes `attempts_max` times `lock_timeout_ms`.
    pub attempts_max: u32,
}

setters!(TransactionOptions {
    kind: TransactionKind,
    isolation: Isolation,
    lock_timeout_ms: u64,
    bytes_max: u64,
    durability: Durability => Some(durability),
    attempts_max: u32,
});

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions {
            kind: TransactionKind::default(),
            isolation: Isolation::default(),
            lock_timeout_ms: 1000,
            bytes_max: 64 << 20,
            durability: None,
            attempts_max: 100,
        }
    }
}

impl TransactionOptions {
    /// Returns the defaults.
    pub fn pessimistic() -> TransactionOptions {
        TransactionOptions::default()
    }

    /// Returns the defaults, but optimistic.
    pub fn optimistic() -> TransactionOptions {
        TransactionOptions { kind: TransactionKind::Optimistic, ..TransactionOptions::default() }
    }

    /// Sets [`Isolation::ReadCommitted`].
    #[must_use]
    pub fn read_committed(mut self) -> TransactionOptions {
        self.isolation = Isolation::ReadCommitted;
        self
    }

    pub(crate) fn bounded(mut self) -> TransactionOptions {
        self.bytes_max = self.bytes_max.min(BATCH_BYTES_MAX as u64);
        self.attempts_max = self.attempts_max.max(1);
        self
    }
}
