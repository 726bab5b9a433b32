//! The way of a write into the log, and the writes that are logged and not yet in their buckets.

pub(crate) mod batch;
pub(crate) mod logs;
pub(crate) mod pending;
pub(crate) mod purges;
pub(crate) mod shortage;
pub(crate) mod writes;
