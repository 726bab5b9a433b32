//! The spans that running compactions work on in a keyspace, and the jobs that have failed.

use crate::Error;
use crate::versions::version::TableFile;
use situ_compaction::KeySpan;
use std::sync::Arc;
use std::time::Duration;

/// The keys that a running job writes, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) level: usize,
    pub(crate) keys: KeySpan,
}

/// A job that has failed and not succeeded since.
pub(crate) struct Postponed {
    pub(crate) files: Vec<Arc<TableFile>>,
    pub(crate) rest: Duration,
    pub(crate) until: Duration,
    /// Its tables are claimed; false once it may be picked again.
    pub(crate) rests: bool,
    pub(crate) error: Error,
}
