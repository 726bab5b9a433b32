//! Iterators over keys, values or both, at one moment of a map.
//!
//! 1. An iterator has a cursor of the store. It fills a chunk of entries with the interpreter's lock released.
//! 2. `next` makes objects of Python from the chunk, one entry a call.
//!
//! The first chunk is one entry, since many callers want no more. Each later one is twice as long, up to
//! [`ENTRIES_MAX`] and about [`BYTES_MAX`]. One entry a chunk would be as fast for one thread, and slower for several
//! that walk at the same time.
//!
//! **Failure.** The entries before an error are given first. The error ends the iterator.

use crate::bytes::pair;
use crate::errors::{Failure, Result};
use crate::shared::Held;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use situ::{Cursor, TransactionCursor};
use std::sync::Mutex;

const ENTRIES_MAX: usize = 512;
const BYTES_MAX: usize = 256 << 10;

/// The operations of a cursor, of a transaction or not.
pub(crate) trait Walk: Send {
    fn begin(&mut self, reverse: bool) -> situ::Result<()>;
    fn step(&mut self, reverse: bool) -> situ::Result<()>;
    fn key(&self) -> Option<&[u8]>;
    fn value(&self) -> Option<&[u8]>;
}

macro_rules! walk {
    ($($cursor:ty),*) => {
        $(impl Walk for $cursor {
            fn begin(&mut self, reverse: bool) -> situ::Result<()> {
                if reverse { self.seek_to_last() } else { self.seek_to_first() }
            }

            fn step(&mut self, reverse: bool) -> situ::Result<()> {
                if reverse { self.prev() } else { self.next() }
            }

            fn key(&self) -> Option<&[u8]> {
                <$cursor>::key(self)
            }

            fn value(&self) -> Option<&[u8]> {
                <$cursor>::value(self)
            }
        })*
    };
}

walk!(Cursor, TransactionCursor);

/// The parts of an entry that an iterator gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    Keys,
    Values,
    Items,
}

impl Parts {
    /// Returns the object for an entry.
    pub(crate) fn object<'py>(self, py: Python<'py>, key: &[u8], value: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Parts::Keys => PyBytes::new(py, key).into_any(),
            Parts::Values => PyBytes::new(py, value).into_any(),
            Parts::Items => pair(py, key, value)?.into_any(),
        })
    }
}

/// A cursor, and the entries that were read ahead.
pub(crate) struct Walker {
    /// None at the end.
    cursor: Option<Box<dyn Walk>>,
    has_begun: bool,
    reverse: bool,
    parts: Parts,
    entries_max: usize,
    /// The keys and values of the chunk, one behind the other.
    bytes: Vec<u8>,
    /// The ends of key and value in `bytes`, for each entry.
    ends: Vec<(usize, usize)>,
    /// The number of entries of the chunk that were given.
    given: usize,
    failure: Option<Failure>,
}

impl Walker {
    pub(crate) fn new(cursor: Box<dyn Walk>, parts: Parts, reverse: bool) -> Walker {
        Walker {
            cursor: Some(cursor),
            has_begun: false,
            reverse,
            parts,
            entries_max: 1,
            bytes: Vec::new(),
            ends: Vec::new(),
            given: 0,
            failure: None,
        }
    }

    /// Moves to the next entry. Returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        let moved = if self.has_begun { cursor.step(self.reverse) } else { cursor.begin(self.reverse) };
        self.has_begun = true;
        let is_there = moved.is_ok() && cursor.key().is_some();
        if !is_there {
            // What the cursor keeps alive can go.
            self.cursor = None;
        }
        moved?;
        Ok(is_there)
    }

    /// Counts up to `entries_max` further entries. Fewer mean that there are no more.
    pub(crate) fn count(&mut self, entries_max: u64) -> Result<u64> {
        let mut entries = 0;
        while entries < entries_max && self.advance()? {
            entries += 1;
        }
        Ok(entries)
    }

    /// Reads the next chunk.
    pub(crate) fn fill(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.given = 0;
        while self.ends.len() < self.entries_max && self.bytes.len() < BYTES_MAX {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
            let Some(cursor) = &self.cursor else { break };
            self.bytes.extend_from_slice(cursor.key().unwrap_or_default());
            let key = self.bytes.len();
            if self.parts != Parts::Keys {
                self.bytes.extend_from_slice(cursor.value().unwrap_or_default());
            }
            self.ends.push((key, self.bytes.len()));
        }
        self.entries_max = (2 * self.entries_max).min(ENTRIES_MAX);
    }

    /// Takes the next entry of the chunk.
    pub(crate) fn take(&mut self) -> Option<(&[u8], &[u8])> {
        let (key, value) = *self.ends.get(self.given)?;
        let begin = self.given.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.given += 1;
        Some((&self.bytes[begin..key], &self.bytes[key..value]))
    }

    /// Takes the error that ended the walk.
    pub(crate) fn take_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.given == self.ends.len() {
            py.detach(|| self.fill());
        }
        let parts = self.parts;
        match self.take() {
            Some((key, value)) => Ok(Some(parts.object(py, key, value)?.unbind())),
            None => Ok(self.take_failure().map(|()| None)?),
        }
    }
}

/// An iterator over keys, values or pairs of both, as of the moment at which it was made.
#[pyclass(frozen, module = "situ")]
pub(crate) struct Entries(Held<Mutex<Walker>>);

impl Entries {
    pub(crate) fn new(walker: Walker) -> Entries {
        Entries(Held::new(Mutex::new(walker)))
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.check()?;
        let Ok(mut walker) = self.0.try_lock() else {
            return Err(Failure::invalid("another thread is using the iterator").into());
        };
        walker.next(py)
    }
}
