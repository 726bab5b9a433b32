//! The types of an environment, and what a pipeline says to it.

use situ_storage::Error as StorageError;
use std::time::Duration;

/// Costly assertions walk over queues of up to this length only: a test may have a hundred thousand writes wait.
pub(crate) const WALKED_MAX: usize = 256;

/// The changes that a write makes together.
pub trait Batch: Default + Send + Sync + 'static {
    /// Returns the number of changes; each takes one sequence number. Nothing is written of a batch without changes.
    fn count(&self) -> usize;

    /// Returns the bytes of the changes, as budgets and statistics count them.
    fn bytes(&self) -> usize;

    /// Returns the memory that the batch holds in addition to its own value.
    fn held_bytes(&self) -> usize;

    /// Hands the log record of the batch to `takes`, in parts; `first` is the first sequence number.
    fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T;
}

/// The types that an environment brings along.
pub trait EnvironmentTypes: Sized + Send + Sync + 'static {
    /// The changes that one write makes together.
    type Batch: Batch;
    /// The destinations of a batch's changes: chosen in the prologue, used in the epilogue.
    type Targets: Send + Sync;
    /// The environment's state under the commit lock.
    type Places: Send;
    /// The reason why a batch cannot begin now, where only the environment can make way.
    type NoRoom: From<NoLogFile> + Send;
    /// The reason why a write did not happen.
    type Error: From<Refusal> + Clone + Send + Sync + 'static;
}

/// A note that a pipeline gives to its environment apart from the stages of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A writer was held back for this long.
    HeldBack(Duration),
    /// A sync of the log has taken `took`, until `now`.
    Synced {
        /// The duration of the sync.
        took: Duration,
        /// The end of the sync, by the clock.
        now: Duration,
    },
    /// Writers are slowed by a budget that was set a while ago: the debt is to be measured, and the budget set.
    BudgetIsOld,
    /// A waker has panicked; the panic was caught.
    WakerPanicked,
}

/// The reason why the pipeline itself refuses a write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no log.
    ReadOnly,
    /// The store closes.
    Closed,
    /// Asynchronous writes that wait take as much memory as they may.
    TooManyWaiting {
        /// The memory that they take.
        waiting_bytes: u64,
    },
    /// The log has failed before.
    LogFailed(StorageError),
    /// The log takes no such record; the text says why.
    NoRecord(String),
    /// There is no memory for the log record.
    OutOfMemory {
        /// The length of the record.
        bytes: usize,
    },
}

/// No log file with room for a record is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLogFile {
    /// The bytes of the record.
    pub bytes: u64,
    /// The log's present file.
    pub file: u64,
}
