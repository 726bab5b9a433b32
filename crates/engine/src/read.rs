//! From a view to an answer: gets, cursors, iterators, reads of futures.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod dead;
pub(crate) mod future;
pub(crate) mod get;
pub(crate) mod merge;
pub(crate) mod options;
