//! The open store that all handles share.
//!
//! **Forks.** A child that was forked has the memory of the store, and none of its threads. There, every call is
//! refused, and no handle gives anything back to the store: that would wait for ever, for these threads or for a lock
//! that one of them held. So whatever gives something back when it is dropped is [`Held`].

use crate::errors::{Failure, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use situ::{Durability, Options, Store};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of forks between the process that imported the module and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Notes a fork.
#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Lets Python call [`forked`] in each child.
pub(crate) fn watch_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let hooks = PyDict::new(module.py());
    hooks.set_item("after_in_child", wrap_pyfunction!(forked, module)?)?;
    module.py().import("os")?.getattr("register_at_fork")?.call((), Some(&hooks))?;
    Ok(())
}

/// The process in which something was made.
pub(crate) struct Process(u64);

impl Process {
    pub(crate) fn this() -> Process {
        Process(FORKS.load(Ordering::Relaxed))
    }

    fn is_this(&self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// Refuses calls in a child.
    pub(crate) fn check(&self) -> Result<()> {
        let refusal = "the store was opened before this process was forked; open a store in the process that uses it";
        if self.is_this() { Ok(()) } else { Err(Failure::invalid(refusal)) }
    }
}

/// A part of the store that a handle holds. A child of the process leaves it where it is.
pub(crate) struct Held<T> {
    /// None once it was dropped.
    part: Option<T>,
    process: Process,
}

impl<T> Held<T> {
    pub(crate) fn new(part: T) -> Held<T> {
        Held { part: Some(part), process: Process::this() }
    }

    /// Refuses calls in a child of the process.
    pub(crate) fn check(&self) -> Result<()> {
        self.process.check()
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.part.as_ref().expect("only drop takes it")
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            std::mem::forget(self.part.take());
        }
    }
}

/// An open store. It closes with its last handle, unless a call has closed it before.
pub(crate) struct Open {
    pub(crate) store: Store,
    /// The options that the store was opened with.
    pub(crate) options: Options,
    process: Process,
    closed: AtomicBool,
}

impl Open {
    pub(crate) fn new(store: Store, options: Options) -> Open {
        Open { store, options, process: Process::this(), closed: AtomicBool::new(false) }
    }

    /// Refuses calls in a child of the process.
    pub(crate) fn check(&self) -> Result<()> {
        self.process.check()
    }

    /// Calls the store, with the interpreter's lock released.
    pub(crate) fn call<T: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> std::result::Result<T, E> + Send,
    ) -> Result<T> {
        self.check()?;
        py.detach(call).map_err(E::into)
    }

    /// Returns the durability that the argument `sync` chooses.
    pub(crate) fn durability(&self, sync: Option<bool>) -> Durability {
        match sync {
            Some(true) => Durability::Synced,
            Some(false) => Durability::Buffered,
            None => self.options.durability,
        }
    }

    pub(crate) fn close(&self) -> situ::Result<()> {
        self.closed.store(true, Ordering::Release);
        self.store.close()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Drop for Open {
    /// Closing waits for the threads of the store, and other threads of Python go on meanwhile.
    fn drop(&mut self) {
        if self.process.is_this() {
            let _ = Python::try_attach(|py| py.detach(|| self.store.close()));
        } else {
            std::mem::forget(self.store.clone());
        }
    }
}
