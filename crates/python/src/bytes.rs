//! Bytes and ranges of keys, as a caller of Python gives them.

use crate::errors::Result;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PySlice, PyTuple};
use situ::{KEY_BYTES_MAX, Keyspace, ReadOptions, WriteBatch};
use std::ops::{Bound as End, Deref};

/// An argument that is `bytes`, or has a buffer. `bytes` are not copied. All else is, since another thread may change
/// it while the store reads it.
pub(crate) struct Bytes(PyBackedBytes);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Bytes> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Bytes(bytes.to_owned().into()));
        }
        let copy = PyMemoryView::from(&object)?.call_method0("tobytes")?;
        Ok(Bytes(copy.cast_into::<PyBytes>()?.into()))
    }
}

/// An entry, as Python has it.
pub(crate) fn pair<'py>(py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}

/// A range of keys: `lower` belongs to it, `upper` does not.
#[derive(Default)]
pub(crate) struct Range {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl Range {
    /// Returns the keys from `start` up to `stop` that begin with `prefix`.
    pub(crate) fn new(start: Option<Bytes>, stop: Option<Bytes>, prefix: Option<Bytes>) -> Range {
        let of_prefix = prefix.map_or_else(ReadOptions::default, |prefix| ReadOptions::default().prefix(prefix));
        let (start, stop) = (start.map(|key| key.to_vec()), stop.map(|key| key.to_vec()));
        // No lower bound sorts before all others, no upper bound behind them.
        let upper = match (stop, of_prefix.upper_bound) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Range { lower: start.max(of_prefix.lower_bound), upper }
    }

    /// Returns the range that `map[start:stop]` denotes.
    pub(crate) fn of_slice(slice: &Bound<'_, PySlice>) -> PyResult<Range> {
        if !slice.getattr("step")?.is_none() {
            return Err(pyo3::exceptions::PyTypeError::new_err(
                "a range of keys has no step; items(start=..., stop=..., reverse=True) goes backwards",
            ));
        }
        Ok(Range::new(slice.getattr("start")?.extract()?, slice.getattr("stop")?.extract()?, None))
    }

    pub(crate) fn options(self, options: ReadOptions) -> ReadOptions {
        let mut options = options;
        options.lower_bound = self.lower;
        options.upper_bound = self.upper;
        options
    }

    pub(crate) fn bounds(&self) -> (End<&[u8]>, End<&[u8]>) {
        (
            self.lower.as_deref().map_or(End::Unbounded, End::Included),
            self.upper.as_deref().map_or(End::Unbounded, End::Excluded),
        )
    }

    /// Adds the removal of all keys of the range to a batch. A removal has an end, so that of a range without one ends
    /// at the last key that there can be, which goes by itself.
    pub(crate) fn delete(&self, batch: &mut WriteBatch, keyspace: &Keyspace) -> Result<()> {
        let begin = self.lower.as_deref().unwrap_or_default();
        match &self.upper {
            Some(end) if end.is_empty() => {}
            Some(end) => batch.delete_range_in(keyspace, begin, end)?,
            None => {
                let last = [0xff; KEY_BYTES_MAX];
                batch.delete_range_in(keyspace, begin, last)?;
                batch.delete_in(keyspace, last)?;
            }
        }
        Ok(())
    }
}
