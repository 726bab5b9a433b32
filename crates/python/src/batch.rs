//! Batches: several changes that happen together or not at all.

use crate::bytes::{Bytes, Range};
use crate::errors::{Failure, Result};
use crate::map::{Keyspace, each_entry, one_key};
use crate::shared::Open;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyType};
use situ::{Durability, WriteBatch};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes that a store applies together, across keyspaces. A batch can be written several times. In a `with`
/// statement, it is written at the end, unless there was an exception.
#[pyclass(frozen, module = "situ")]
pub(crate) struct Batch {
    open: Arc<Open>,
    changes: Mutex<WriteBatch>,
    sync: Option<bool>,
}

impl Batch {
    pub(crate) fn new(open: &Arc<Open>, sync: Option<bool>) -> Batch {
        Batch { open: Arc::clone(open), changes: Mutex::default(), sync }
    }

    /// Works on the changes. Nothing of Python is called under their lock: a thread that waits for it has the
    /// interpreter's lock.
    fn with<T>(&self, work: impl FnOnce(&mut WriteBatch) -> T) -> T {
        work(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the changes for a write by `open`, and their durability.
    pub(crate) fn for_write(&self, open: &Arc<Open>, sync: Option<bool>) -> Result<(WriteBatch, Durability)> {
        if !Arc::ptr_eq(open, &self.open) {
            return Err(Failure::invalid("the batch was made by another store, or before this one was opened again"));
        }
        Ok((self.with(|changes| changes.clone()), open.durability(sync.or(self.sync))))
    }

    fn keyspace<'a>(&'a self, keyspace: Option<&'a Bound<'_, Keyspace>>) -> &'a situ::Keyspace {
        keyspace.map_or_else(|| self.open.store.default_keyspace(), |keyspace| &keyspace.get().keyspace)
    }
}

#[pymethods]
impl Batch {
    /// Sets `key` to `value`, in the keyspace `default` or in the one that is given.
    #[pyo3(signature = (key, value, *, keyspace=None))]
    fn put(&self, key: Bytes, value: Bytes, keyspace: Option<&Bound<'_, Keyspace>>) -> PyResult<()> {
        Ok(self.with(|changes| changes.put_in(self.keyspace(keyspace), &key, &value)).map_err(Failure::from)?)
    }

    /// Removes `key`. A missing key is no error.
    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, key: Bytes, keyspace: Option<&Bound<'_, Keyspace>>) -> PyResult<()> {
        Ok(self.with(|changes| changes.delete_in(self.keyspace(keyspace), &key)).map_err(Failure::from)?)
    }

    /// Removes all keys of a range.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, keyspace=None))]
    fn delete_range(
        &self,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        keyspace: Option<&Bound<'_, Keyspace>>,
    ) -> PyResult<()> {
        let range = Range::new(start, stop, prefix);
        Ok(self.with(|changes| range.delete(changes, self.keyspace(keyspace)))?)
    }

    /// Sets all keys of a mapping, or of an iterable of pairs.
    #[pyo3(signature = (entries, *, keyspace=None))]
    fn update(&self, entries: &Bound<'_, PyAny>, keyspace: Option<&Bound<'_, Keyspace>>) -> PyResult<()> {
        let keyspace = self.keyspace(keyspace);
        each_entry(entries, |key, value| Ok(self.with(|changes| changes.put_in(keyspace, key, value))?))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: Bytes) -> PyResult<()> {
        self.put(one_key(key)?, value, None)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match key.cast::<PySlice>() {
            Ok(slice) => {
                let range = Range::of_slice(slice)?;
                Ok(self.with(|changes| range.delete(changes, self.keyspace(None)))?)
            }
            Err(_) => self.delete(key.extract()?, None),
        }
    }

    /// Returns the number of changes.
    fn __len__(&self) -> usize {
        self.with(|changes| changes.len())
    }

    /// Forgets all changes.
    fn clear(&self) {
        self.with(|changes| changes.clear());
    }

    /// The size of the changes.
    #[getter]
    fn bytes(&self) -> usize {
        self.with(|changes| changes.bytes())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, _exception, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyType>>,
        _exception: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_some() {
            return Ok(());
        }
        let (changes, durability) = self.for_write(&self.open, None)?;
        Ok(self.open.call(py, || self.open.store.write_with(changes, durability))?)
    }
}
