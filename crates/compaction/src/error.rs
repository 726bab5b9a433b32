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
    /// The output is not one to what was asked.
    Wrong(String),
    /// The unit lost it: a node that went away, a device that reset, a result that was not right.
    Unit {
        /// The unit's name.
        unit: String,
        /// The reason of the failure.
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
            TaskError::Wrong(what) => write!(f, "the compaction's output is wrong: {what}"),
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

impl TaskError {
    /// Makes an error of the payload of a panic.
    pub fn of_panic(payload: &(dyn std::any::Any + Send)) -> TaskError {
        let text = situ_base::panic_text(payload);
        TaskError::Panicked(if text.is_empty() { "no message".to_owned() } else { text })
    }
}
