//! The feed of the changes of a store.

use crate::errors::Failure;
use crate::shared::{Held, Open};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use situ::{ChangeKind, ChangePosition};
use std::sync::{Arc, Mutex, PoisonError};

/// One change of a key, or of a range of keys.
#[pyclass(frozen, module = "situ")]
pub(crate) struct Change(situ::Change);

#[pymethods]
impl Change {
    /// The name of the keyspace.
    #[getter]
    fn keyspace(&self) -> &str {
        &self.0.name
    }

    /// "put", "delete" or "delete_range".
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        match &self.0.kind {
            ChangeKind::Put(_) => Ok("put"),
            ChangeKind::Delete => Ok("delete"),
            ChangeKind::DeleteRange(_) => Ok("delete_range"),
            other => Err(Failure::invalid(format!("this package does not know the change {other:?}")).into()),
        }
    }

    /// The key, or the first key of a range.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.key)
    }

    /// The value of a put, or the first key behind a range; None for a delete.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.kind {
            ChangeKind::Put(bytes) | ChangeKind::DeleteRange(bytes) => Some(PyBytes::new(py, bytes)),
            _ => None,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<situ.Change {} {:?} {}>", self.kind()?, self.0.name, self.key(py).repr()?))
    }
}

/// The changes of one batch, which happened together.
#[pyclass(frozen, module = "situ", get_all)]
pub(crate) struct ChangeBatch {
    /// The sequence number of the first change.
    first: u64,
    /// The position behind the batch, as a text for `Store.changes`.
    position: String,
    /// The changes in order.
    changes: Vec<Py<Change>>,
}

/// An iterator over the batches that were committed behind a position. It ends when there is none at present; a later
/// loop goes on with new ones.
#[pyclass(frozen, module = "situ")]
pub(crate) struct ChangeFeed {
    // Dropped before the handle, which closes the store with the interpreter's lock released.
    feed: Held<Mutex<situ::ChangeFeed>>,
    open: Arc<Open>,
}

impl ChangeFeed {
    pub(crate) fn new(py: Python<'_>, open: &Arc<Open>, since: Option<&str>) -> PyResult<ChangeFeed> {
        let since = since.map_or(Ok(ChangePosition::BEGINNING), str::parse).map_err(Failure::invalid)?;
        let feed = open.call(py, || open.store.changes(since))?;
        Ok(ChangeFeed { feed: Held::new(Mutex::new(feed)), open: Arc::clone(open) })
    }
}

#[pymethods]
impl ChangeFeed {
    /// Returns the next batch; None if there is none at present.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<ChangeBatch>> {
        let batch = self.open.call(py, || match self.feed.try_lock() {
            Ok(mut feed) => Ok::<_, Failure>(feed.next_batch()?),
            Err(_) => Err(Failure::invalid("another thread is using the feed")),
        })?;
        let Some(batch) = batch else { return Ok(None) };
        let changes = batch.changes.into_iter().map(|change| Py::new(py, Change(change))).collect::<PyResult<_>>()?;
        Ok(Some(ChangeBatch { first: batch.first, position: batch.position.to_string(), changes }))
    }

    /// The position behind the last batch that was given, as a text for `Store.changes`.
    #[getter]
    fn position(&self, py: Python<'_>) -> String {
        py.detach(|| self.feed.lock().unwrap_or_else(PoisonError::into_inner).position().to_string())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ChangeBatch>> {
        self.next_batch(py)
    }
}
