//! Failures: an error of the store on its way to an exception of the same kind.

use pyo3::prelude::*;
use pyo3::types::PyType;
use situ::Error;
use situ::storage::Error as StorageError;

/// An error that becomes an exception of `situ.errors`.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The name of the class.
    class: &'static str,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns the failure of a call that cannot be carried out as it was made.
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure { class: "InvalidError", text: text.into() }
    }
}

fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Closed => "ClosedError",
        Error::ReadOnly => "ReadOnlyError",
        Error::Failed { .. } => "FailedError",
        Error::NoSuchKeyspace { .. } => "NoSuchKeyspaceError",
        Error::KeyspaceDropped { .. } => "KeyspaceDroppedError",
        Error::Conflict { .. } => "ConflictError",
        Error::LockTimeout { .. } => "LockTimeoutError",
        Error::Deadlock { .. } => "DeadlockError",
        Error::TooManyWaiting { .. } | Error::TransactionTooLarge { .. } | Error::TooManyLocks { .. } => "LimitError",
        Error::Invalid(_) | Error::Storage(StorageError::Invalid(_)) => "InvalidError",
        Error::Disks(_) => "DisksError",
        Error::Existence(_) => "ExistenceError",
        Error::ChangesGone { .. } => "ChangesGoneError",
        Error::Changed { .. } => "ChangedError",
        Error::Storage(StorageError::Locked { .. }) => "LockedError",
        error if error.is_no_space() => "NoSpaceError",
        error if error.is_corruption() => "CorruptionError",
        error if error.is_permission_denied() => "PermissionDeniedError",
        _ => "StorageError",
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { class: class_of(&error), text: error.to_string() }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| match class(py, failure.class) {
            Ok(class) => PyErr::from_type(class, (failure.text,)),
            Err(error) => error,
        })
    }
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py.import("situ.errors")?.getattr(name)?.cast_into()?)
}

/// Returns true if a transaction that ended with `error` may succeed when it is run again.
pub(crate) fn is_retryable(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.is_instance(py, class(py, "RetryableError")?.as_any()))
}
