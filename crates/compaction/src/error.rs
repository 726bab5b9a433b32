//! Why a task gave no output.

use std::fmt;

/// A task that ended without a result. The tables it began are the caller's to remove.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TaskError {
    /// The host said to stop.
    Cancelled,
    /// Reading an input or writing an output failed.
    Storage(situ_storage::Error),
    /// A filter, or the merge itself, panicked.
    Panicked(String),
    /// The unit lost it: a node that went away, a device that reset, a result that was not right.
    Unit {
        /// The unit's name.
        unit: String,
        /// What happened.
        reason: String,
    },
}

/// A result of this room.
pub type Result<T, E = TaskError> = std::result::Result<T, E>;

impl From<situ_storage::Error> for TaskError {
    fn from(error: situ_storage::Error) -> TaskError {
        TaskError::Storage(error)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Cancelled => f.write_str("the compaction was cancelled"),
            TaskError::Storage(error) => error.fmt(f),
            TaskError::Panicked(message) => write!(f, "the compaction panicked: {message}"),
            TaskError::Unit { unit, reason } => write!(f, "compaction unit {unit}: {reason}"),
        }
    }
}

impl std::error::Error for TaskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TaskError::Storage(error) => Some(error),
            _ => None,
        }
    }
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
