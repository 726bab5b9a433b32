//! Maps that take writes: a store, which is its keyspace `default`, and each of its keyspaces.

use crate::aio::{self, Answer};
use crate::bytes::{Bytes, Range, pair};
use crate::errors::{Failure, Result};
use crate::properties;
use crate::reader::{Reader, Source};
use crate::shared::Open;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use situ::{Durability, SizeOptions, WriteBatch};
use std::sync::Arc;

/// A reader whose writes take effect at once. Stores and keyspaces are maps.
#[pyclass(frozen, extends = Reader, subclass, module = "situ")]
pub(crate) struct Map;

impl Map {
    pub(crate) fn of(open: &Arc<Open>, keyspace: &situ::Keyspace) -> PyClassInitializer<Map> {
        let reader = Reader::new(Arc::clone(open), keyspace.clone(), Source::Now);
        PyClassInitializer::from(reader).add_subclass(Map)
    }
}

/// Returns the entries of a dict, of another mapping, or of an iterable of pairs.
pub(crate) fn each_entry(
    entries: &Bound<'_, PyAny>,
    mut change: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> PyResult<()> {
    let pairs = if entries.hasattr("items")? { entries.call_method0("items")? } else { entries.clone() };
    for pair in pairs.try_iter()? {
        let (key, value): (Bytes, Bytes) = pair?.extract()?;
        change(&key, &value)?;
    }
    Ok(())
}

/// Refuses `map[a:b] = value`.
pub(crate) fn one_key(key: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if key.is_instance_of::<PySlice>() {
        return Err(PyTypeError::new_err("a range of keys cannot be set; write a batch"));
    }
    key.extract()
}

fn delete_range(reader: &Reader, py: Python<'_>, range: &Range, durability: Durability) -> PyResult<()> {
    Ok(reader.open.call(py, || {
        let mut batch = WriteBatch::new();
        range.delete(&mut batch, &reader.keyspace)?;
        Ok::<_, Failure>(reader.open.store.write_with(batch, durability)?)
    })?)
}

fn pop<'py>(
    reader: &Reader,
    py: Python<'py>,
    range: &Range,
    durability: Durability,
    first: bool,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let popped = reader.open.call(py, || match first {
        true => reader.keyspace.pop_first_with(range.bounds(), durability),
        false => reader.keyspace.pop_last_with(range.bounds(), durability),
    });
    popped?.map(|(key, value)| pair(py, &key, &value)).transpose()
}

#[pymethods]
impl Map {
    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: Bytes) -> PyResult<()> {
        Map::put(slf, one_key(key)?, value, None)
    }

    /// Removes a key, or all keys of a range: `del map[b"a":b"c"]`. A missing key is a KeyError. The look at the key
    /// and its removal are two steps: of two threads that remove one key, both may succeed.
    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let (reader, py) = (slf.as_super().get(), slf.py());
        if let Ok(slice) = key.cast::<PySlice>() {
            return delete_range(reader, py, &Range::of_slice(slice)?, reader.open.durability(None));
        }
        let bytes: Bytes = key.extract()?;
        let was_there = reader.open.call(py, || {
            let was_there = reader.keyspace.contains(&bytes)?;
            if was_there {
                reader.keyspace.delete(&bytes)?;
            }
            Ok::<_, situ::Error>(was_there)
        });
        match was_there? {
            true => Ok(()),
            false => Err(pyo3::exceptions::PyKeyError::new_err((key.clone().unbind(),))),
        }
    }

    /// Sets `key` to `value`. With `sync=True`, the write is on the disk on return, and survives a power failure.
    #[pyo3(signature = (key, value, *, sync=None))]
    fn put(slf: &Bound<'_, Self>, key: Bytes, value: Bytes, sync: Option<bool>) -> PyResult<()> {
        let reader = slf.as_super().get();
        let durability = reader.open.durability(sync);
        Ok(reader.open.call(slf.py(), || reader.keyspace.put_with(&key, &value, durability))?)
    }

    /// Removes `key`. A missing key is no error.
    #[pyo3(signature = (key, *, sync=None))]
    fn delete(slf: &Bound<'_, Self>, key: Bytes, sync: Option<bool>) -> PyResult<()> {
        let reader = slf.as_super().get();
        let durability = reader.open.durability(sync);
        Ok(reader.open.call(slf.py(), || reader.keyspace.delete_with(&key, durability))?)
    }

    /// Removes all keys of a range, at the cost of one write. Without arguments, that is all keys.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, sync=None))]
    fn delete_range(
        slf: &Bound<'_, Self>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        sync: Option<bool>,
    ) -> PyResult<()> {
        let reader = slf.as_super().get();
        delete_range(reader, slf.py(), &Range::new(start, stop, prefix), reader.open.durability(sync))
    }

    /// Sets all keys of a mapping, or of an iterable of pairs: all of them or none.
    #[pyo3(signature = (entries, *, sync=None))]
    fn update(slf: &Bound<'_, Self>, entries: &Bound<'_, PyAny>, sync: Option<bool>) -> PyResult<()> {
        let reader = slf.as_super().get();
        let mut batch = WriteBatch::new();
        each_entry(entries, |key, value| Ok(batch.put_in(&reader.keyspace, key, value)?))?;
        let durability = reader.open.durability(sync);
        Ok(reader.open.call(slf.py(), || reader.open.store.write_with(batch, durability))?)
    }

    /// Removes the first pair of a range and returns it, or None. No two calls get the same pair.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, sync=None))]
    fn pop_first<'py>(
        slf: &Bound<'py, Self>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        sync: Option<bool>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let reader = slf.as_super().get();
        pop(reader, slf.py(), &Range::new(start, stop, prefix), reader.open.durability(sync), true)
    }

    /// Removes the last pair of a range and returns it, or None.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, sync=None))]
    fn pop_last<'py>(
        slf: &Bound<'py, Self>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        sync: Option<bool>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let reader = slf.as_super().get();
        pop(reader, slf.py(), &Range::new(start, stop, prefix), reader.open.durability(sync), false)
    }

    /// Compacts the tables of a range into the deepest level, which gives back the space of dead entries.
    #[pyo3(signature = (*, start=None, stop=None))]
    fn compact(slf: &Bound<'_, Self>, start: Option<Bytes>, stop: Option<Bytes>) -> PyResult<()> {
        let reader = slf.as_super().get();
        Ok(reader.open.call(slf.py(), || reader.keyspace.compact(start.as_deref(), stop.as_deref()))?)
    }

    /// Returns the approximate number of bytes that the keys from `start` up to `stop` take, in memory and on disk.
    fn approximate_bytes(slf: &Bound<'_, Self>, start: Bytes, stop: Bytes) -> PyResult<u64> {
        let reader = slf.as_super().get();
        let options = SizeOptions::default().include_memtables(true);
        Ok(reader.open.call(slf.py(), || reader.keyspace.approximate_bytes_with(&start, &stop, &options))?)
    }

    /// Works like `put`, for `await`. The write has begun on return, and takes place whether it is awaited or not.
    #[pyo3(signature = (key, value, *, sync=None))]
    fn put_async<'py>(
        slf: &Bound<'py, Self>,
        key: Bytes,
        value: Bytes,
        sync: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = slf.as_super().get();
        let durability = reader.open.durability(sync);
        aio::begin(&reader.open, slf.py(), || {
            let write = reader.keyspace.put_with_async(&key, &value, durability);
            async move { Ok(write.await.map(|()| Answer::Nothing)?) }
        })
    }

    /// Works like `delete`, for `await`; see `put_async`.
    #[pyo3(signature = (key, *, sync=None))]
    fn delete_async<'py>(slf: &Bound<'py, Self>, key: Bytes, sync: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
        let reader = slf.as_super().get();
        let durability = reader.open.durability(sync);
        aio::begin(&reader.open, slf.py(), || {
            let write = reader.keyspace.delete_with_async(&key, durability);
            async move { Ok(write.await.map(|()| Answer::Nothing)?) }
        })
    }
}

/// A named, separately tuned map inside a store.
#[pyclass(frozen, extends = Map, module = "situ")]
pub(crate) struct Keyspace {
    open: Arc<Open>,
    pub(crate) keyspace: situ::Keyspace,
}

impl Keyspace {
    pub(crate) fn of(open: &Arc<Open>, keyspace: situ::Keyspace) -> PyClassInitializer<Keyspace> {
        Map::of(open, &keyspace).add_subclass(Keyspace { open: Arc::clone(open), keyspace })
    }
}

#[pymethods]
impl Keyspace {
    #[getter]
    fn name(&self) -> &str {
        self.keyspace.name()
    }

    /// Writes all memtables to tables, and waits for them.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.open.call(py, || self.keyspace.flush())?)
    }

    /// Returns the state of the keyspace, and the options in force.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        properties::of_keyspace(py, &self.open.call(py, || Ok::<_, Failure>(self.keyspace.properties()))?)
    }

    fn __repr__(&self) -> String {
        format!("<situ.Keyspace {:?}>", self.keyspace.name())
    }
}
