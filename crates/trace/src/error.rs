//! The errors of traces.

use std::fmt;
use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a trace cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the system.
    Io(io::Error),
    /// The file is none of a trace.
    NoTrace,
    /// The file has a version that this program does not know.
    Version(u32),
    /// The file is longer than a trace may be.
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The file ends before the trace does.
    Cut {
        /// The length of the whole frames.
        offset: u64,
    },
    /// The bytes from this offset on are not what the format says.
    Damaged {
        /// The offset.
        offset: u64,
        /// The fault, in words.
        what: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::NoTrace => f.write_str("the file is no trace; `situ trace` records one"),
            Error::Version(version) => {
                write!(f, "the trace has version {version}, and this program knows version 1; use a newer program")
            }
            Error::TooLong { bytes } => write!(f, "the file has {bytes} bytes, and a trace has less than 4 GiB"),
            Error::Cut { offset } => write!(
                f,
                "the trace is cut: it has no end. Its last whole part ends at byte {offset}. The recording did not end, \
                 or the file was not copied whole"
            ),
            Error::Damaged { offset, what } => write!(f, "the trace is damaged at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
