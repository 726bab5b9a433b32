//! Transactions: reads and writes that take effect together, or not at all.

use crate::aio::{self, Answer};
use crate::bytes::Bytes;
use crate::errors::{Failure, Result};
use crate::map::{Keyspace, each_entry, one_key};
use crate::reader::{Reader, Source};
use crate::running::Running;
use crate::shared::Open;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyType};
use situ::{Isolation, LockMode, TransactionKind, TransactionOptions};
use std::sync::Arc;

/// Returns the options of a transaction.
pub(crate) fn options(
    kind: &str,
    isolation: &str,
    lock_timeout_ms: u64,
    bytes_max: Option<u64>,
    sync: Option<bool>,
    open: &Open,
) -> Result<TransactionOptions> {
    let kind = match kind {
        "pessimistic" => TransactionKind::Pessimistic,
        "optimistic" => TransactionKind::Optimistic,
        _ => return Err(Failure::invalid(format!("kind is \"pessimistic\" or \"optimistic\", not {kind:?}"))),
    };
    let isolation = match isolation {
        "snapshot" => Isolation::Snapshot,
        "read_committed" => Isolation::ReadCommitted,
        _ => {
            return Err(Failure::invalid(format!(
                "isolation is \"snapshot\" or \"read_committed\", not {isolation:?}"
            )));
        }
    };
    let options = TransactionOptions::default()
        .kind(kind)
        .isolation(isolation)
        .lock_timeout_ms(lock_timeout_ms)
        .durability(open.durability(sync));
    Ok(match bytes_max {
        Some(bytes_max) => options.bytes_max(bytes_max),
        None => options,
    })
}

fn mode(shared: bool) -> LockMode {
    if shared { LockMode::Shared } else { LockMode::Exclusive }
}

/// Reads and writes that take effect together at `commit`, or not at all. In a `with` statement, a transaction commits
/// at the end, and an exception rolls it back.
#[pyclass(frozen, extends = Reader, module = "situ")]
pub(crate) struct Transaction {
    open: Arc<Open>,
    running: Arc<Running>,
    keyspace: situ::Keyspace,
    number: u64,
}

impl Transaction {
    pub(crate) fn begin(
        py: Python<'_>,
        open: &Arc<Open>,
        options: &TransactionOptions,
    ) -> Result<PyClassInitializer<Transaction>> {
        let transaction = Box::new(open.call(py, || open.store.begin_with(options))?);
        let number = transaction.number();
        let running = Arc::new(Running::new(transaction));
        Ok(Transaction::of(open, running, open.store.default_keyspace(), number))
    }

    fn of(
        open: &Arc<Open>,
        running: Arc<Running>,
        keyspace: &situ::Keyspace,
        number: u64,
    ) -> PyClassInitializer<Transaction> {
        let source = Source::Transaction(Arc::clone(&running));
        let transaction = Transaction { open: Arc::clone(open), running, keyspace: keyspace.clone(), number };
        PyClassInitializer::from(Reader::new(Arc::clone(open), keyspace.clone(), source)).add_subclass(transaction)
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut situ::Transaction) -> situ::Result<T> + Send,
    ) -> PyResult<T> {
        Ok(self.open.call(py, || self.running.with(operation))?)
    }

    /// Begins an operation that may wait for a lock. The transaction is away until it is done.
    fn wait_for_lock<'py>(
        &self,
        py: Python<'py>,
        key: Bytes,
        shared: bool,
        read: bool,
        default: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (running, keyspace, key) = (Arc::clone(&self.running), self.keyspace.clone(), key.to_vec());
        aio::begin(&self.open, py, || async move {
            let mut transaction = running.lend()?;
            let outcome = if read {
                let read = transaction.get_for_update_in_async(&keyspace, &key, mode(shared)).await;
                read.map(|value| Answer::Value(value, default))
            } else {
                transaction.lock_in_async(&keyspace, &key, mode(shared)).await.map(|()| Answer::Nothing)
            };
            running.give_back(transaction);
            Ok(outcome?)
        })
    }
}

#[pymethods]
impl Transaction {
    /// The number of the transaction. Errors name transactions by their numbers.
    #[getter]
    fn number(&self) -> u64 {
        self.number
    }

    /// Returns this transaction on another keyspace. Both commit together.
    fn keyspace<'py>(&self, py: Python<'py>, keyspace: &Bound<'py, Keyspace>) -> PyResult<Bound<'py, Transaction>> {
        self.with(py, |_| Ok(()))?;
        let keyspace = &keyspace.get().keyspace;
        Bound::new(py, Transaction::of(&self.open, Arc::clone(&self.running), keyspace, self.number))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: Bytes) -> PyResult<()> {
        self.put(py, one_key(key)?, value)
    }

    /// Removes a key. A missing key is a KeyError. A transaction removes no ranges.
    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if key.is_instance_of::<PySlice>() {
            return Err(PyTypeError::new_err(
                "a transaction removes no ranges; delete the keys that an iterator gives, or remove the range outside",
            ));
        }
        let bytes: Bytes = key.extract()?;
        let was_there = self.with(py, |transaction| {
            let was_there = transaction.contains_in(&self.keyspace, &bytes)?;
            if was_there {
                transaction.delete_in(&self.keyspace, &bytes)?;
            }
            Ok(was_there)
        })?;
        if was_there { Ok(()) } else { Err(PyKeyError::new_err((key.clone().unbind(),))) }
    }

    /// Sets `key` to `value`. A pessimistic transaction waits for the lock of the key.
    fn put(&self, py: Python<'_>, key: Bytes, value: Bytes) -> PyResult<()> {
        self.with(py, |transaction| transaction.put_in(&self.keyspace, &key, &value))
    }

    /// Removes `key`. A missing key is no error. A pessimistic transaction waits for the lock of the key.
    fn delete(&self, py: Python<'_>, key: Bytes) -> PyResult<()> {
        self.with(py, |transaction| transaction.delete_in(&self.keyspace, &key))
    }

    /// Sets all keys of a mapping, or of an iterable of pairs.
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        each_entry(entries, |key, value| {
            self.open.call(py, || self.running.with(|transaction| transaction.put_in(&self.keyspace, key, value)))
        })
    }

    /// Returns the value of `key`, which no other writer may change until the commit. With `shared=True`, other
    /// transactions may read it for update, too.
    #[pyo3(signature = (key, default=None, *, shared=false))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        key: Bytes,
        default: Option<Bound<'py, PyAny>>,
        shared: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let read =
            |transaction: &mut situ::Transaction| transaction.get_for_update_in(&self.keyspace, &key, mode(shared));
        match self.with(py, read)? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => Ok(default.unwrap_or_else(|| py.None().into_bound(py))),
        }
    }

    /// Locks `key` as `get_for_update` does, and does not read it.
    #[pyo3(signature = (key, *, shared=false))]
    fn lock(&self, py: Python<'_>, key: Bytes, shared: bool) -> PyResult<()> {
        self.with(py, |transaction| transaction.lock_in(&self.keyspace, &key, mode(shared)))
    }

    /// Works like `get_for_update`, for `await`. The transaction takes no other calls until the answer is there.
    #[pyo3(signature = (key, default=None, *, shared=false))]
    fn get_for_update_async<'py>(
        &self,
        py: Python<'py>,
        key: Bytes,
        default: Option<Py<PyAny>>,
        shared: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wait_for_lock(py, key, shared, true, default)
    }

    /// Works like `lock`, for `await`. Afterwards, a `put` or `delete` of the key does not wait.
    #[pyo3(signature = (key, *, shared=false))]
    fn lock_async<'py>(&self, py: Python<'py>, key: Bytes, shared: bool) -> PyResult<Bound<'py, PyAny>> {
        self.wait_for_lock(py, key, shared, false, None)
    }

    /// Sets a savepoint at this point.
    fn set_savepoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |transaction| {
            transaction.set_savepoint();
            Ok(())
        })
    }

    /// Takes back everything since the last savepoint, and the savepoint itself.
    fn rollback_to_savepoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |transaction| transaction.rollback_to_savepoint())
    }

    /// Forgets the last savepoint, and keeps the operations since.
    fn pop_savepoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |transaction| transaction.pop_savepoint())
    }

    /// Makes the writes visible to all, together. Returns the sequence number from which on snapshots see them.
    pub(crate) fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open.call(py, || Ok::<_, Failure>(self.running.end()?.commit()?))?)
    }

    /// Works like `commit`, for `await`. The commit has begun on return, whether it is awaited or not.
    fn commit_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        aio::begin(&self.open, py, || {
            let commit = self.running.end().map(|transaction| transaction.commit_async());
            async move { Ok(Answer::Number(commit?.await?)) }
        })
    }

    /// Ends the transaction without a trace. A transaction that has ended stays as it is.
    pub(crate) fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.open.call(py, || self.running.roll_back())?)
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
        match kind {
            Some(_) => self.rollback(py),
            None if self.running.has_ended() => Ok(()),
            None => self.commit(py).map(drop),
        }
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        aio::done(slf.py(), slf.as_any())
    }

    #[pyo3(signature = (kind, _exception, _traceback))]
    fn __aexit__<'py>(
        &self,
        py: Python<'py>,
        kind: Option<&Bound<'py, PyType>>,
        _exception: Option<&Bound<'py, PyAny>>,
        _traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if kind.is_some() {
            self.rollback(py)?;
        } else if !self.running.has_ended() {
            return self.commit_async(py);
        }
        aio::done(py, py.None().bind(py))
    }
}
