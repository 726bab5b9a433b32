//! Answers to reads.

use crate::engine::error::EngineError;

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
