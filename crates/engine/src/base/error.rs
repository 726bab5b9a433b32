//! Errors: the answers of a store that does not carry out an operation.

use crate::base::lock_wait::LockWait;
use crate::base::value::Key;
use situ_pipeline::SpaceShortage;
use situ_storage as storage;
use situ_storage::{Error as StorageError, Excerpt};
use std::fmt;

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation did not happen. An error is cheap to clone: every writer that waited for a failed sync
/// gets it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// An error of the disk, or of the data on it. The text names file, place and cure.
    Storage(storage::Error),
    /// The store takes no writes since a write or sync of its log or manifest failed; reads still work.
    /// Close it, remove the cause, open it again.
    Failed {
        /// The first failure.
        cause: Box<storage::Error>,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// The store is closed, or closing.
    Closed,
    /// The caller of a long operation has ended it: see [`Store::ended_by`](crate::Store::ended_by).
    Interrupted,
    /// The store has no keyspace of this name.
    NoSuchKeyspace {
        /// The name that the caller asked for.
        name: String,
    },
    /// The keyspace was dropped while the handle was kept.
    KeyspaceDropped {
        /// Its name.
        name: String,
    },
    /// The store refused an asynchronous write because too many bytes wait for it already.
    TooManyWaiting {
        /// The memory of asynchronous writes that wait to begin.
        waiting_bytes: u64,
    },
    /// Level 0 of a keyspace has as many tables as it may have, and compacting them fails.
    Level0Full {
        /// The keyspace's name.
        keyspace: String,
        /// The number of tables.
        tables: usize,
        /// The error of the compactions.
        cause: Box<Error>,
    },
    /// A disk is full but for a reserve. The store keeps the reserve to finish work that it has accepted, and for
    /// deletions. Writes succeed again when space returns.
    SpaceShort(SpaceShortage),
    /// Another writer changed a key that the transaction has locked, written or read for update. Roll the transaction
    /// back and run it again.
    Conflict {
        /// The keyspace's name.
        keyspace: String,
        /// The key.
        key: Key,
    },
    /// Another transaction kept a key locked for too long. The transaction goes on without the lock; it may try again,
    /// or be rolled back.
    LockTimeout {
        /// The waiting transaction, and the one that it waited for.
        wait: Box<LockWait>,
        /// The time waited, in milliseconds.
        waited_ms: u64,
    },
    /// Waiting for a lock would never end, because the transactions that have it wait for this one. Roll it back, so
    /// that they go on, and run it again.
    Deadlock {
        /// The waits of the circle, from this transaction round to it again.
        cycle: Vec<LockWait>,
    },
    /// A transaction would take more memory than it may.
    TransactionTooLarge {
        /// The memory that it would take.
        bytes: u64,
        /// The memory that it may take.
        bytes_max: u64,
    },
    /// All transactions together hold as many locks as they may.
    TooManyLocks {
        /// The number of locks.
        locks: u64,
        /// The maximum number of locks.
        locks_max: u64,
    },
    /// An argument is out of bounds; the text names the bounds.
    Invalid(String),
    /// A volume is missing, is not this store's, or is there where none belongs; the text names the case and the
    /// cure.
    Disks(String),
    /// The store is missing, and the options do not create it; or it exists, and the options ask for a new one.
    Existence(String),
    /// A change feed cannot go on from a position: the log has the changes behind it no more, or never had that
    /// position. A copy that was kept by the feed has to be made again.
    ChangesGone {
        /// The sequence number of the position.
        sequence: u64,
        /// The reason, in words.
        why: String,
    },
    /// A read-only store lost the race against the process that writes: again and again, the writer gave up files
    /// before the reader got to them. Nothing is known to be damaged. Try again at once, or when the load of writes is
    /// lower.
    Changed {
        /// The store's home.
        location: String,
    },
}

impl Error {
    /// Returns true if bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Storage(e) if e.is_corruption())
            || matches!(self, Error::Failed { cause } if cause.is_corruption())
            || matches!(self, Error::Level0Full { cause, .. } if cause.is_corruption())
    }

    /// Returns true if a read that was limited to [memory](crate::ReadOptions::memory_only) would have needed a disk.
    pub fn is_not_in_memory(&self) -> bool {
        matches!(self, Error::Storage(e) if e.is_not_in_memory())
    }

    /// Returns true if the caller lacks a right to a file or a device. The data there may be sound.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Error::Storage(e) if e.is_permission_denied())
            || matches!(self, Error::Failed { cause } if cause.is_permission_denied())
            || matches!(self, Error::Level0Full { cause, .. } if cause.is_permission_denied())
    }

    /// Returns true if the disk is full. Such a write may be tried again when there is room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::Storage(e) if e.is_no_space())
            || matches!(self, Error::Level0Full { cause, .. } if cause.is_no_space())
            || matches!(self, Error::SpaceShort(_))
    }
}

impl Error {
    /// Returns true if the error is a conflict with another transaction, or with a write outside of transactions. The
    /// transaction may succeed if it is run again from its beginning.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::LockTimeout { .. } | Error::Deadlock { .. })
    }
}

impl From<SpaceShortage> for Error {
    fn from(shortage: SpaceShortage) -> Error {
        Error::SpaceShort(shortage)
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Error {
        Error::Storage(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Storage(e) => e.fmt(f),
            Error::Failed { cause } => write!(
                f,
                "the store takes no writes since an earlier failure: {cause}. Reads still work. Remove the cause, then close and \
                 open the store again"
            ),
            Error::ReadOnly => f.write_str("the store is open read-only; open it for writing to change it"),
            Error::Closed => f.write_str("the store is closed"),
            Error::Interrupted => f.write_str("the caller has ended the operation"),
            Error::NoSuchKeyspace { name } => {
                write!(
                    f,
                    "there is no keyspace {name:?}; list the keyspaces to see what there is, or open the store for writing and \
                     create it (Store::keyspace)"
                )
            }
            Error::KeyspaceDropped { name } => write!(f, "the keyspace {name:?} has been dropped"),
            Error::ChangesGone { sequence, why } => {
                write!(
                    f,
                    "the changes after number {sequence} cannot be read: {why}. A copy kept by them has to be made again"
                )
            }
            Error::TooManyWaiting { waiting_bytes } => write!(
                f,
                "the write was refused: {waiting_bytes} bytes of asynchronous writes already wait. Await some of their futures, \
                 then write again"
            ),
            Error::Level0Full { keyspace, tables, cause } => write!(
                f,
                "the keyspace {keyspace:?} takes no writes: level 0 is full ({tables} tables), and its compaction fails: {cause}. \
                 Remove the cause, then compact the keyspace or wait for the next attempt"
            ),
            Error::SpaceShort(shortage) => shortage.fmt(f),
            Error::Conflict { keyspace, key } => write!(
                f,
                "the key \"{}\" of keyspace {keyspace:?} was changed by another write after the transaction relied on it; \
                 roll the transaction back and run it again",
                Excerpt(key)
            ),
            Error::LockTimeout { wait, waited_ms } => write!(
                f,
                "no lock within {waited_ms} ms: {wait}. Repeat this operation, or roll the transaction back and run it again"
            ),
            Error::Deadlock { cycle } => {
                f.write_str("a deadlock: ")?;
                for (n, wait) in cycle.iter().enumerate() {
                    write!(f, "{}{wait}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("; roll this transaction back, so that the others go on, and run it again")
            }
            Error::TransactionTooLarge { bytes, bytes_max } => write!(
                f,
                "the transaction needs {bytes} bytes of memory, and the limit is {bytes_max}. Commit smaller parts, or raise the \
                 limit (TransactionOptions::bytes_max)"
            ),
            Error::TooManyLocks { locks, locks_max } => write!(
                f,
                "no lock was given: all transactions together hold {locks} locks, and the limit is {locks_max}. Commit or roll \
                 back some transactions, or raise the limit (Options::transaction_locks_max)"
            ),
            Error::Changed { location } => write!(
                f,
                "another process changed the store in {location} during every attempt to read it. Try again, if need be when \
                 fewer writes run"
            ),
            Error::Invalid(text) | Error::Existence(text) | Error::Disks(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Storage(e) => Some(e),
            Error::Failed { cause } => Some(&**cause),
            Error::Level0Full { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

/// A file that is replaced, such as CURRENT, could not be put in force.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) error: StorageError,
    /// True if either of the two files may be in force after a crash; otherwise the old one is.
    pub(crate) in_doubt: bool,
}

impl From<Unfinished> for Error {
    fn from(unfinished: Unfinished) -> Error {
        unfinished.error.into()
    }
}
