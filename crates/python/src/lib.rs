//! The module `situ._situ`: a store as objects of Python. The package `situ` in `python/` passes its names on, and its
//! stubs `_situ.pyi` have the types.
//!
//! **Classes.** [`reader::Reader`] has what all maps read alike: a store, a keyspace, a snapshot, a transaction.
//! [`map::Map`] adds the writes that take effect at once, for a store and its keyspaces. So each operation is defined
//! once, whatever it is called on.
//!
//! **Invariants.** A method releases the interpreter's lock before it calls the store. So no thread of Python waits for
//! a disk or a lock of another one, and no thread of the store ever takes the interpreter's lock. All handles share
//! [`shared::Open`], which keeps the store open as long as one of them lives.
//!
//! **Threads.** Stores, keyspaces and snapshots may be used by several threads at the same time. A transaction and an
//! iterator belong to one thread at a time: a second one gets an error, and does not wait.
//!
//! **Failure.** An error of the store becomes an exception of `situ.errors`, with the same text. A missing key of `[]`
//! is a `KeyError`.
#![forbid(unsafe_code)]

mod aio;
mod batch;
mod bytes;
mod changes;
mod errors;
mod map;
mod moment;
mod options;
mod properties;
mod reader;
mod running;
mod shared;
mod snapshot;
mod store;
mod transaction;
mod walk;

use pyo3::prelude::*;

#[pymodule]
mod _situ {
    #[pymodule_export]
    use crate::aio::AsyncEntries;
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::changes::{Change, ChangeBatch, ChangeFeed};
    #[pymodule_export]
    use crate::map::{Keyspace, Map};
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::store::{Store, destroy, open};
    #[pymodule_export]
    use crate::transaction::Transaction;
    #[pymodule_export]
    use crate::walk::Entries;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::shared::watch_forks(module)
    }
}
