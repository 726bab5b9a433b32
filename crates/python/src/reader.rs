//! Reads of a map of bytes: of a keyspace now, at a snapshot, or in a transaction.
//!
//! There is no `__len__`, since a count reads all keys: `count` does that under its own name. So a map is always true,
//! and `is_empty` tells whether it has a key.

use crate::aio::{self, Answer, AsyncEntries};
use crate::bytes::{Bytes, Range, pair};
use crate::errors::{Failure, Result};
use crate::moment::Moment;
use crate::running::Running;
use crate::shared::Open;
use crate::walk::{Entries, Parts, Walk, Walker};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};
use situ::{Keyspace, ReadFuture, ReadOptions, ScanOptions, Value};
use std::sync::Arc;

/// The number of keys that are counted between two looks for Ctrl-C.
const COUNTED_AT_ONCE: u64 = 1 << 20;

/// The state that a map shows.
pub(crate) enum Source {
    Now,
    Snapshot(Arc<Moment>),
    Transaction(Arc<Running>),
}

/// A map of bytes to bytes, in the order of the keys, for reading. Stores, keyspaces, snapshots and transactions are
/// readers.
#[pyclass(frozen, subclass, module = "situ")]
pub(crate) struct Reader {
    pub(crate) open: Arc<Open>,
    pub(crate) keyspace: Keyspace,
    source: Source,
}

impl Reader {
    pub(crate) fn new(open: Arc<Open>, keyspace: Keyspace, source: Source) -> Reader {
        Reader { open, keyspace, source }
    }

    fn value_of(&self, py: Python<'_>, key: &[u8]) -> Result<Option<Value>> {
        self.open.call(py, || match &self.source {
            Source::Now => Ok::<_, Failure>(self.keyspace.get(key)?),
            Source::Snapshot(moment) => Ok(self.keyspace.get_with(key, &moment.options()?)?),
            Source::Transaction(running) => running.with(|transaction| transaction.get_in(&self.keyspace, key)),
        })
    }

    /// Returns a walk over a range. The interpreter's lock is released meanwhile.
    fn walker(&self, range: Range, parts: Parts, reverse: bool) -> Result<Walker> {
        let options = |read: ReadOptions| range.options(read).values_on_demand(parts == Parts::Keys);
        let cursor: Box<dyn Walk> = match &self.source {
            Source::Now => Box::new(self.keyspace.cursor_with(&options(ReadOptions::default()))?),
            Source::Snapshot(moment) => Box::new(self.keyspace.cursor_with(&options(moment.options()?))?),
            Source::Transaction(running) => {
                let options = options(ReadOptions::default());
                Box::new(running.with(|transaction| transaction.cursor_in_with(&self.keyspace, &options))?)
            }
        };
        Ok(Walker::new(cursor, parts, reverse))
    }

    fn entries(&self, py: Python<'_>, range: Range, parts: Parts, reverse: bool) -> PyResult<Py<Entries>> {
        let walker = self.open.call(py, || self.walker(range, parts, reverse))?;
        Py::new(py, Entries::new(walker))
    }

    fn end<'py>(&self, py: Python<'py>, range: Range, reverse: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut walker = self.open.call(py, || {
            let mut walker = self.walker(range, Parts::Items, reverse)?;
            walker.fill();
            Ok::<_, Failure>(walker)
        })?;
        match walker.take() {
            Some((key, value)) => pair(py, key, value).map(Some),
            None => Ok(walker.take_failure().map(|()| None)?),
        }
    }

    /// Returns the options of reads that go on in the background.
    fn options_of_future(&self) -> Result<ReadOptions> {
        match &self.source {
            Source::Now => Ok(ReadOptions::default()),
            Source::Snapshot(moment) => moment.options(),
            Source::Transaction(_) => Err(Failure::invalid(
                "in a transaction, only get_async reads in the background; use the method without _async",
            )),
        }
    }

    fn get_future(&self, key: &[u8]) -> Result<ReadFuture> {
        match &self.source {
            Source::Now => Ok(self.keyspace.get_async(key)),
            Source::Snapshot(moment) => Ok(self.keyspace.get_with_async(key, &moment.options()?)),
            Source::Transaction(running) => {
                running.with(|transaction| Ok(transaction.get_in_async(&self.keyspace, key)))
            }
        }
    }
}

#[pymethods]
impl Reader {
    /// Returns the value of `key`, or `default` if the key is missing.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(&self, py: Python<'py>, key: Bytes, default: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        match self.value_of(py, &key)? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => Ok(default.unwrap_or_else(|| py.None().into_bound(py))),
        }
    }

    /// Returns the value of a key, or an iterator over the pairs of a range: `map[b"a":b"c"]`.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let entries = self.entries(py, Range::of_slice(slice)?, Parts::Items, false)?;
            return Ok(entries.into_bound(py).into_any());
        }
        match self.value_of(py, &key.extract::<Bytes>()?)? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => Err(PyKeyError::new_err((key.clone().unbind(),))),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Bytes) -> PyResult<bool> {
        Ok(self.open.call(py, || match &self.source {
            Source::Now => Ok::<_, Failure>(self.keyspace.contains(&key)?),
            Source::Snapshot(moment) => Ok(moment.contains(&self.keyspace, &key)?),
            Source::Transaction(running) => running.with(|transaction| transaction.contains_in(&self.keyspace, &key)),
        })?)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<Entries>> {
        self.entries(py, Range::default(), Parts::Keys, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Py<Entries>> {
        self.entries(py, Range::default(), Parts::Keys, true)
    }

    /// Returns an iterator over the keys from `start` up to `stop`, without it, that begin with `prefix`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        reverse: bool,
    ) -> PyResult<Py<Entries>> {
        self.entries(py, Range::new(start, stop, prefix), Parts::Keys, reverse)
    }

    /// Returns an iterator over the values of such keys.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        reverse: bool,
    ) -> PyResult<Py<Entries>> {
        self.entries(py, Range::new(start, stop, prefix), Parts::Values, reverse)
    }

    /// Returns an iterator over pairs of such keys and their values, as of now: it sees no later writes.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        reverse: bool,
    ) -> PyResult<Py<Entries>> {
        self.entries(py, Range::new(start, stop, prefix), Parts::Items, reverse)
    }

    /// Returns the values of several keys as of one moment, in the order of the keys: None for a missing key.
    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<Vec<Bytes>>>()?;
        let values = self.open.call(py, || match &self.source {
            Source::Now => Ok::<_, Failure>(self.keyspace.multi_get(&keys)?),
            Source::Snapshot(moment) => Ok(self.keyspace.multi_get_with(&keys, &moment.options()?)?),
            Source::Transaction(running) => {
                running.with(|transaction| keys.iter().map(|key| transaction.get_in(&self.keyspace, key)).collect())
            }
        })?;
        Ok(values.into_iter().map(|value| value.map(|value| PyBytes::new(py, &value))).collect())
    }

    /// Returns the first pair, or None.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None))]
    fn first<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, Range::new(start, stop, prefix), false)
    }

    /// Returns the last pair, or None.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None))]
    fn last<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, Range::new(start, stop, prefix), true)
    }

    /// Returns the number of keys of a range. The call reads them all.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None))]
    fn count(&self, py: Python<'_>, start: Option<Bytes>, stop: Option<Bytes>, prefix: Option<Bytes>) -> PyResult<u64> {
        let range = Range::new(start, stop, prefix);
        let mut walker = self.open.call(py, || self.walker(range, Parts::Keys, false))?;
        let mut count = 0;
        loop {
            let more = py.detach(|| walker.count(COUNTED_AT_ONCE))?;
            count += more;
            if more < COUNTED_AT_ONCE {
                return Ok(count);
            }
            py.check_signals()?;
        }
    }

    /// Returns true if there is no key.
    fn is_empty(&self, py: Python<'_>) -> PyResult<bool> {
        let range = Range::default();
        Ok(self.open.call(py, || self.walker(range, Parts::Keys, false)?.count(1))? == 0)
    }

    /// Works like `get`, for `await`.
    #[pyo3(signature = (key, default=None))]
    fn get_async<'py>(&self, py: Python<'py>, key: Bytes, default: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        aio::begin(&self.open, py, || {
            let read = self.get_future(&key);
            async move { Ok(Answer::Value(read?.await?, default)) }
        })
    }

    /// Works like `multi_get`, for `await`.
    fn multi_get_async<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let keys = keys.try_iter()?.map(|key| key?.extract()).collect::<PyResult<Vec<Bytes>>>()?;
        aio::begin(&self.open, py, || {
            let read = self.options_of_future().map(|options| self.keyspace.multi_get_with_async(&keys, &options));
            async move { Ok(Answer::Values(read?.await?)) }
        })
    }

    /// Works like `items`, for `async for`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn items_async(
        &self,
        py: Python<'_>,
        start: Option<Bytes>,
        stop: Option<Bytes>,
        prefix: Option<Bytes>,
        reverse: bool,
    ) -> PyResult<AsyncEntries> {
        let mut read = self.options_of_future()?;
        if matches!(self.source, Source::Now) {
            // All pages are of one moment.
            read = read.at(&self.open.call(py, || self.open.store.snapshot())?);
        }
        let read = Range::new(start, stop, prefix).options(read);
        Ok(AsyncEntries::new(&self.open, &self.keyspace, ScanOptions::default().read(read).reverse(reverse)))
    }
}
