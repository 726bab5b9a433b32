//! The figures of a queue.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of one queue. Its thread alone adds to them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) submitted: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) doorbells: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) mapped: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) strays: AtomicU64,
    pub(super) resets: AtomicU64,
}

/// The figures of a queue since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatistics {
    /// Operations that the queue took.
    pub submitted: u64,
    /// Operations that it gave back.
    pub completed: u64,
    /// Writes to the register of the submission ring.
    pub doorbells: u64,
    /// Waits that slept.
    pub sleeps: u64,
    /// Commands whose memory was mapped for them alone, which takes system calls.
    pub mapped: u64,
    /// Commands that the drive failed, and that it was given again.
    pub retries: u64,
    /// Commands that took too long, and were aborted.
    pub timeouts: u64,
    /// Answers that belong to no command in flight.
    pub strays: u64,
    /// Resets that the queue went through.
    pub resets: u64,
}

impl Counters {
    /// Adds to a counter that no other thread adds to.
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> QueueStatistics {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QueueStatistics {
            submitted: of(&self.submitted),
            completed: of(&self.completed),
            doorbells: of(&self.doorbells),
            sleeps: of(&self.sleeps),
            mapped: of(&self.mapped),
            retries: of(&self.retries),
            timeouts: of(&self.timeouts),
            strays: of(&self.strays),
            resets: of(&self.resets),
        }
    }
}
