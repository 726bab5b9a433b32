//! Failures of a hash store.

use crate::StoreId;
use situ_pipeline::SpaceShortage;
use std::fmt;

/// A result of the hash store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the hash store. Cheap to clone, so that many writers can get the same failure.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A failure below the store: a disk, a log, damaged bytes ([`situ_storage::Error::Corruption`]).
    Storage(situ_storage::Error),
    /// The device or the file is no bucket space. Nothing was written to it.
    NotABucketSpace {
        /// The device or the file.
        path: String,
        /// The bytes where a bucket space has its mark.
        found: String,
    },
    /// The bucket space belongs to another store. Nothing was written to it.
    OtherStore {
        /// The device or the file.
        path: String,
        /// The store that was opened.
        expected: StoreId,
        /// The store whose mark the bucket space has.
        found: StoreId,
    },
    /// The overflow belongs to another store. Nothing of either store was removed.
    OtherOverflow {
        /// The directory of the overflow.
        path: String,
        /// The store that was opened.
        expected: StoreId,
        /// The store that the overflow names.
        found: StoreId,
    },
    /// The bucket space is laid out differently from what its store says. Nothing was written to it.
    OtherGeometry {
        /// The device or the file.
        path: String,
        /// The layout that the store states.
        expected: String,
        /// The layout that the bucket space states.
        found: String,
    },
    /// The superblock is missing, or none of it is sound. Nothing was changed, and a repair cannot help; the text says
    /// what does.
    Superblock(String),
    /// A newer program has written this. Nothing was changed.
    Newer {
        /// The device or the file.
        path: String,
        /// The structure, and the version that it has.
        what: String,
    },
    /// The store takes no writes since something failed; reads still work. Close it, remove the cause, open it again.
    Failed {
        /// The first failure.
        cause: Box<Error>,
    },
    /// A disk is out of space. Acknowledged writes are safe. The store takes no puts, and goes on by itself when there
    /// is space.
    OutOfSpace {
        /// The failure.
        cause: Box<Error>,
    },
    /// A disk has too little space left for more than the store has accepted already. Writes succeed again when space
    /// returns.
    SpaceShort(SpaceShortage),
    /// The store is closed, or closing.
    Closed,
    /// An asynchronous write was refused because too much waits already.
    TooManyWaiting {
        /// The memory that waiting writes take.
        waiting_bytes: u64,
    },
    /// A write with a condition met another write of the same key. It can be tried again.
    Conflict,
    /// The store is missing and was not to be created.
    Existence(String),
    /// A failure of the overflow store.
    Overflow(Box<situ_engine::Error>),
    /// The caller asked for something that cannot be done; the text says what can.
    Invalid(String),
}

impl Error {
    /// Returns true if bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        match self {
            Error::Storage(error) => error.is_corruption(),
            Error::Overflow(error) => error.is_corruption(),
            Error::Failed { cause } => cause.is_corruption(),
            Error::Superblock(_) => true,
            _ => false,
        }
    }

    /// Returns true if the disk is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            Error::Storage(error) => error.is_no_space(),
            Error::Overflow(error) => error.is_no_space(),
            Error::Failed { cause } => cause.is_no_space(),
            Error::OutOfSpace { .. } | Error::SpaceShort(_) => true,
            _ => false,
        }
    }

    /// Turns want of space into `Error::OutOfSpace`, for an error of a step that may be repeated.
    pub(crate) fn or_out_of_space(self) -> Error {
        // A store below that has failed does not recover.
        let has_failed =
            matches!(&self, Error::Overflow(error) if matches!(**error, situ_engine::Error::Failed { .. }));
        if self.is_no_space() && !has_failed && !matches!(self, Error::OutOfSpace { .. }) {
            return Error::OutOfSpace { cause: Box::new(self) };
        }
        self
    }

    /// Turns want of space into an error that fails the store after all.
    pub(crate) fn fatal(self) -> Error {
        match self {
            Error::OutOfSpace { cause } => *cause,
            error => error,
        }
    }
}

impl From<situ_storage::Error> for Error {
    fn from(error: situ_storage::Error) -> Error {
        Error::Storage(error)
    }
}

impl From<SpaceShortage> for Error {
    fn from(shortage: SpaceShortage) -> Error {
        Error::SpaceShort(shortage)
    }
}

impl From<situ_engine::Error> for Error {
    fn from(error: situ_engine::Error) -> Error {
        Error::Overflow(Box::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Storage(error) => error.fmt(f),
            Error::NotABucketSpace { path, found } => write!(
                f,
                "{path} is not a bucket space: found {found}; nothing was written; check the path of the device"
            ),
            Error::OtherStore { path, expected, found } => write!(
                f,
                "{path} is another store's device: it belongs to store {found}, and this is store {expected}; nothing was \
                 written; check the path of the device"
            ),
            Error::OtherOverflow { path, expected, found } => write!(
                f,
                "{path} is the overflow of store {found}, and this is store {expected}; nothing was removed; restore home, overflow \
                 and device together"
            ),
            Error::OtherGeometry { path, expected, found } => write!(
                f,
                "{path} has other geometry: the store expects {expected}, and the bucket space has {found}; nothing was written"
            ),
            Error::Newer { path, what } => {
                write!(f, "{path} was written by a newer program: {what}; open it with that program")
            }
            Error::Failed { cause } => {
                write!(
                    f,
                    "the store takes no writes since this failure: {cause}; close it, remove the cause, open it again"
                )
            }
            Error::OutOfSpace { cause } => write!(
                f,
                "a disk is out of space: {cause}; what was acknowledged is safe, and deletes and reads go on; the store takes puts \
                 again by itself when there is space"
            ),
            Error::SpaceShort(shortage) => shortage.fmt(f),
            Error::Closed => f.write_str("the store is closed"),
            Error::TooManyWaiting { waiting_bytes } => {
                write!(f, "writes that wait take {waiting_bytes} bytes already; wait for some of them")
            }
            Error::Conflict => f.write_str("another write changed a key of the condition; try again"),
            Error::Existence(text) | Error::Superblock(text) => f.write_str(text),
            Error::Overflow(error) => write!(f, "overflow store: {error}"),
            Error::Invalid(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Storage(error) => Some(error),
            Error::Overflow(error) => Some(error),
            Error::Failed { cause } | Error::OutOfSpace { cause } => Some(cause),
            _ => None,
        }
    }
}
