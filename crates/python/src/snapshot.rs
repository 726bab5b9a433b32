//! Snapshots: reads of all keyspaces as of one moment.

use crate::errors::Result;
use crate::map::Keyspace;
use crate::moment::Moment;
use crate::reader::{Reader, Source};
use crate::shared::Open;
use pyo3::prelude::*;
use std::sync::Arc;

/// The state of a store at one moment, over all keyspaces. While it is open, compactions keep what it sees: close it,
/// or use it in a `with` statement.
#[pyclass(frozen, extends = Reader, module = "situ")]
pub(crate) struct Snapshot {
    open: Arc<Open>,
    moment: Arc<Moment>,
}

impl Snapshot {
    pub(crate) fn take(py: Python<'_>, open: &Arc<Open>) -> Result<PyClassInitializer<Snapshot>> {
        let moment = Arc::new(Moment::new(open.call(py, || open.store.snapshot())?));
        Ok(Snapshot::of(open, moment, open.store.default_keyspace()))
    }

    fn of(open: &Arc<Open>, moment: Arc<Moment>, keyspace: &situ::Keyspace) -> PyClassInitializer<Snapshot> {
        let source = Source::Snapshot(Arc::clone(&moment));
        let reader = Reader::new(Arc::clone(open), keyspace.clone(), source);
        PyClassInitializer::from(reader).add_subclass(Snapshot { open: Arc::clone(open), moment })
    }
}

#[pymethods]
impl Snapshot {
    /// Returns this snapshot of another keyspace. Both are closed together.
    fn keyspace<'py>(&self, py: Python<'py>, keyspace: &Bound<'py, Keyspace>) -> PyResult<Bound<'py, Snapshot>> {
        self.moment.get()?;
        Bound::new(py, Snapshot::of(&self.open, Arc::clone(&self.moment), &keyspace.get().keyspace))
    }

    /// The last sequence number that the snapshot sees.
    #[getter]
    fn sequence(&self) -> PyResult<u64> {
        Ok(self.moment.get()?.sequence())
    }

    /// Gives up what the snapshot sees. Open iterators go on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.moment.close());
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}
