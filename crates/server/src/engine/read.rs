//! Answers to reads.

use crate::engine::error::EngineError;
use std::ops::Deref;

/// The answer that an engine has for a key at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Get<V> {
    /// The value.
    Hit(V),
    /// The key does not exist.
    Miss,
    /// The answer needs the disk; an [`OnRead`] gets it later.
    Later,
}

/// Called exactly once with the value of a key, or `None`, from any thread. Dropping it uncalled counts as a failure.
/// It does not wait for anything.
pub type OnRead<V> = Box<dyn FnOnce(Result<Option<V>, EngineError>) + Send>;

/// An item as an engine stores it: a header, and the data. The two may lie apart. All bytes in a row are one, too.
pub trait StoredValue {
    /// Returns bytes that begin with the header.
    fn head(&self) -> &[u8];

    /// Returns the data, which follows a header of `header_bytes` bytes.
    fn data(&self, header_bytes: usize) -> &[u8];
}

impl<T: Deref<Target = [u8]>> StoredValue for T {
    fn head(&self) -> &[u8] {
        self
    }

    fn data(&self, header_bytes: usize) -> &[u8] {
        self.get(header_bytes..).unwrap_or_default()
    }
}
