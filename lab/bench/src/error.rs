//! The errors of a run.

use std::fmt;
use std::path::PathBuf;

use crate::store::StoreFailure;

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a run or a report. The message says what to change, where that is known.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict each other or cannot be run.
    Options(String),
    /// The store under test returned an error.
    Store {
        /// The failed action: a workload's name, or `open`.
        during: String,
        /// The store's own error.
        source: StoreFailure,
    },
    /// The store answered something that cannot be right.
    Wrong(String),
    /// The directory of the run cannot be used as the options say.
    Directory(String),
    /// [`Stop::stop`](crate::Stop::stop) ended the run.
    Stopped,
    /// A file could not be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A trace cannot be replayed.
    Trace {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: situ_trace::Error,
    },
    /// A result file is not one of ours.
    Format {
        /// The file.
        path: PathBuf,
        /// The part that does not fit.
        source: serde_json::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) | Self::Wrong(text) | Self::Directory(text) => formatter.write_str(text),
            Self::Stopped => formatter.write_str("the run was stopped before its end"),
            Self::Store { during, source } => write!(formatter, "the store failed in {during}: {source}"),
            Self::File { path, source } => write!(formatter, "{}: {source}", path.display()),
            Self::Trace { path, source } => write!(formatter, "{}: {source}", path.display()),
            Self::Format { path, source } => {
                write!(
                    formatter,
                    "{}: not a benchmark result, as `situ bench --output` writes them: {source}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Options(_) | Self::Wrong(_) | Self::Directory(_) | Self::Stopped => None,
            Self::Store { source, .. } => Some(source.as_ref()),
            Self::File { source, .. } => Some(source),
            Self::Trace { source, .. } => Some(source),
            Self::Format { source, .. } => Some(source),
        }
    }
}

impl From<situ_settings::Error> for Error {
    fn from(error: situ_settings::Error) -> Self {
        match error {
            situ_settings::Error::File { path, source } => Self::File { path, source },
            other => Self::Options(other.to_string()),
        }
    }
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}
