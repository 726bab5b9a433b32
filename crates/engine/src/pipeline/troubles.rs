//! The failures of background work that writers have to know of.

use crate::Error;

/// Background work that fails now, by what it keeps from happening.
#[derive(Default)]
pub(crate) struct Troubles {
    /// Memtables do not become tables: when all are full, writers get this error.
    pub(crate) flush: Trouble,
    /// The flusher's last failure was that it could not make a log file ready. It had no memtable to flush then, and
    /// flushes may succeed.
    pub(crate) only_log_fails: bool,
    /// Tables are not compacted, or fewer at a time.
    pub(crate) compaction: Trouble,
    /// Segments of the value log are not collected.
    pub(crate) collection: Trouble,
}

/// Threads of one kind whose work fails for a reason that is not its own.
#[derive(Default, Clone)]
pub(crate) struct Trouble {
    /// The last failure, until one of the threads that failed has succeeded.
    pub(crate) error: Option<Error>,
    /// The number of threads that pause before they try again.
    pub(crate) pausing: usize,
}
