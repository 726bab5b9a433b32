//! The errors of settings.

use std::fmt;
use std::path::PathBuf;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a setting. The message says what to change, where that is known.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other or cannot be followed.
    Options(String),
    /// A file could not be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) => formatter.write_str(text),
            Self::File { path, source } => write!(formatter, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Options(_) => None,
            Self::File { source, .. } => Some(source),
        }
    }
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}
