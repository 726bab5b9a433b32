//! The store that a program opens.

use crate::aio::{self, Answer};
use crate::batch::Batch;
use crate::changes::ChangeFeed;
use crate::errors::{self, Failure};
use crate::map::{Keyspace, Map};
use crate::options;
use crate::properties;
use crate::shared::Open;
use crate::snapshot::Snapshot;
use crate::transaction::{self, Transaction};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use situ::StoreBuilder;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The longest pause after the first run of a transaction that met a conflict. Later ones are twice as long each time.
const PAUSE_FIRST: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Opens the store in the directory `path`. Options have the names and values of the fields of `situ::Options` and, for
/// the keyspaces, of `situ::KeyspaceOptions`. `keyspaces` has what differs in named keyspaces; the store does not
/// remember it.
#[pyfunction]
#[pyo3(signature = (path, *, create_if_missing=true, error_if_exists=false, read_only=false, keyspaces=None, **options))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    create_if_missing: bool,
    error_if_exists: bool,
    read_only: bool,
    keyspaces: Option<&Bound<'py, PyDict>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Store>> {
    let options = options::of_store(options)?.create_if_missing(create_if_missing).error_if_exists(error_if_exists);
    let mut builder = StoreBuilder::new(options.clone());
    for (name, given) in keyspaces.into_iter().flatten() {
        let given = options::of_keyspace(&options.keyspace, Some(given.cast()?))?;
        builder = builder.keyspace(&name.extract::<String>()?, given);
    }
    if read_only {
        builder = builder.read_only();
    }
    let store = py.detach(|| builder.open(path)).map_err(Failure::from)?;
    let open = Arc::new(Open::new(store, options));
    let map = Map::of(&open, open.store.default_keyspace());
    Bound::new(py, map.add_subclass(Store { open }))
}

/// Removes the store in the directory `path` with all of its contents, and the directory if nothing else is left there.
#[pyfunction]
pub(crate) fn destroy(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| situ::Store::destroy(path)).map_err(Failure::from)?)
}

/// An open store. As a map, it is its keyspace `default`. It closes at the end of a `with` statement, or with its last
/// handle.
#[pyclass(frozen, extends = Map, module = "situ")]
pub(crate) struct Store {
    open: Arc<Open>,
}

impl Store {
    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&situ::Store) -> situ::Result<T> + Send) -> PyResult<T> {
        Ok(self.open.call(py, || call(&self.open.store))?)
    }
}

#[pymethods]
impl Store {
    /// Returns the keyspace `name`. The store creates it with the options that are given, if there is none and `create`
    /// is true.
    #[pyo3(signature = (name, *, create=true, **options))]
    fn keyspace<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        create: bool,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Keyspace>> {
        let keyspace = match options {
            Some(_) if !create => {
                return Err(PyTypeError::new_err("options are for a new keyspace; open() has those of existing ones"));
            }
            Some(_) => {
                let options = options::of_keyspace(&self.open.options.keyspace, options)?;
                self.call(py, |store| store.keyspace_with(name, options))?
            }
            None if create => self.call(py, |store| store.keyspace(name))?,
            None => self.call(py, |store| store.existing_keyspace(name))?,
        };
        Bound::new(py, Keyspace::of(&self.open, keyspace))
    }

    /// Creates a keyspace, and refuses one that exists.
    #[pyo3(signature = (name, **options))]
    fn create_keyspace<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Keyspace>> {
        let options = options::of_keyspace(&self.open.options.keyspace, options)?;
        let keyspace = self.call(py, |store| store.create_keyspace(name, options))?;
        Bound::new(py, Keyspace::of(&self.open, keyspace))
    }

    /// Removes a keyspace and all of its contents.
    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.call(py, |store| store.drop_keyspace(name))
    }

    /// Returns the names of all keyspaces, oldest first.
    fn keyspace_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |store| Ok(store.keyspace_names()))
    }

    /// Returns an empty batch.
    #[pyo3(signature = (*, sync=None))]
    fn batch(&self, sync: Option<bool>) -> Batch {
        Batch::new(&self.open, sync)
    }

    /// Applies a batch: all of it or nothing. The batch keeps its changes.
    #[pyo3(signature = (batch, *, sync=None))]
    fn write(&self, py: Python<'_>, batch: &Bound<'_, Batch>, sync: Option<bool>) -> PyResult<()> {
        let (changes, durability) = batch.get().for_write(&self.open, sync)?;
        self.call(py, |store| store.write_with(changes, durability))
    }

    /// Works like `write`, for `await`. The write has begun on return, and takes place whether it is awaited or not.
    #[pyo3(signature = (batch, *, sync=None))]
    fn write_async<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, Batch>,
        sync: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (changes, durability) = batch.get().for_write(&self.open, sync)?;
        aio::begin(&self.open, py, || {
            let write = self.open.store.write_with_async(changes, durability);
            async move { Ok(write.await.map(|()| Answer::Nothing)?) }
        })
    }

    /// Returns a snapshot of the current state.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Snapshot>> {
        Bound::new(py, Snapshot::take(py, &self.open)?)
    }

    /// Begins a transaction.
    #[pyo3(signature = (*, kind="pessimistic", isolation="snapshot", lock_timeout_ms=1000, bytes_max=None, sync=None))]
    fn transaction<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        isolation: &str,
        lock_timeout_ms: u64,
        bytes_max: Option<u64>,
        sync: Option<bool>,
    ) -> PyResult<Bound<'py, Transaction>> {
        let options = transaction::options(kind, isolation, lock_timeout_ms, bytes_max, sync, &self.open)?;
        Bound::new(py, Transaction::begin(py, &self.open, &options)?)
    }

    /// Calls `function` with a transaction, commits, and returns what `function` returned. If another writer was in the
    /// way, so that an error that is a `RetryableError` leaves `function` or the commit, the transaction is rolled back
    /// and run again, `attempts_max` times at most. Any other exception rolls back.
    #[pyo3(signature = (
        function, *, kind="pessimistic", isolation="snapshot", lock_timeout_ms=1000, bytes_max=None, sync=None,
        attempts_max=100
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        kind: &str,
        isolation: &str,
        lock_timeout_ms: u64,
        bytes_max: Option<u64>,
        sync: Option<bool>,
        attempts_max: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = transaction::options(kind, isolation, lock_timeout_ms, bytes_max, sync, &self.open)?;
        let mut pause_max = PAUSE_FIRST;
        for attempt in 1.. {
            let transaction = Bound::new(py, Transaction::begin(py, &self.open, &options)?)?;
            let run = || {
                let result = function.call1((&transaction,))?;
                transaction.get().commit(py)?;
                Ok(result)
            };
            let error = match run() {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            transaction.get().rollback(py)?;
            if attempt >= attempts_max || !errors::is_retryable(py, &error)? {
                return Err(error);
            }
            // Transactions that meet again and again would otherwise keep their step.
            let pause = RandomState::new().hash_one(attempt) % (pause_max.as_nanos() as u64 + 1);
            py.detach(|| std::thread::sleep(Duration::from_nanos(pause)));
            py.check_signals()?;
            pause_max = (2 * pause_max).min(PAUSE_MAX);
        }
        unreachable!("the last attempt returns")
    }

    /// Makes every write so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, situ::Store::sync)
    }

    /// Writes the memtables of all keyspaces to tables, and waits for them.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, situ::Store::flush)
    }

    /// Waits until background work has nothing left to do.
    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, situ::Store::wait_idle)
    }

    /// Makes a copy of the store at this moment, which opens as a store, in the new directory `path`.
    fn checkpoint<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        properties::of_checkpoint(py, &self.call(py, |store| store.checkpoint(path))?)
    }

    /// Reads and checks all tables, at most `bytes_per_s_max` bytes a second (0: no limit), and returns a report.
    #[pyo3(signature = (*, bytes_per_s_max=0))]
    fn verify<'py>(&self, py: Python<'py>, bytes_per_s_max: u64) -> PyResult<Bound<'py, PyDict>> {
        properties::of_verification(py, &self.call(py, |store| store.verify(bytes_per_s_max, &mut |_| {}))?)
    }

    /// Returns the resources that the store uses, its state, and the options in force.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        properties::of_store(py, &self.call(py, |store| Ok(store.properties()))?)
    }

    /// Returns an iterator over the batches that were committed behind the position `since`; by default, all that the
    /// log still has. The option `changes_kept_bytes` keeps more of it.
    #[pyo3(signature = (since=None))]
    fn changes(&self, py: Python<'_>, since: Option<&str>) -> PyResult<ChangeFeed> {
        ChangeFeed::new(py, &self.open, since)
    }

    /// Returns true if the store has as many asynchronous requests as it works on well.
    fn is_busy(&self) -> bool {
        self.open.store.is_busy()
    }

    /// Waits, for `await`, until the store is not busy.
    fn ready_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ready = self.open.store.ready();
        aio::begin(&self.open, py, || async move {
            ready.await;
            Ok(Answer::Nothing)
        })
    }

    /// Makes everything durable, and gives the directory back. Later calls on any handle raise a ClosedError. A second
    /// call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.open.call(py, || self.open.close())?)
    }

    /// True if the store was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.open.is_closed() { "closed" } else { "open" };
        format!("<situ.{:?}, {state}>", self.open.store)
    }
}
