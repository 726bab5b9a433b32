//! Writes with conditions: what a transaction's commit has to find unchanged.
//!
//! The prologue asks the condition of a write, under the commit lock, whether the write may begin. For that it keeps requests that were
//! published since the check began: [`Checks`].

use crate::Result;
use crate::pipeline::commit::{Commit, Obstacle, Request};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests published during checks take at most this much memory beyond their time.
const LATELY_BYTES_MAX: usize = 1 << 20;

/// The condition of a write.
pub(crate) trait Condition: Send + Sync {
    /// The memory it takes, about.
    fn bytes(&self) -> u64;

    /// Looks at everything that is visible now, with no lock held. False if tables would have to be read, and are not to be.
    fn check_published(&self, read_tables: bool) -> Result<bool>;

    /// The sequence number up to which the condition is known to hold.
    fn checked_to(&self) -> u64;

    /// Whether the write may begin now, under the commit lock. If it may, it has to.
    fn check_rest(self: Arc<Self>, commit: &mut Commit) -> Result<(), Obstacle>;

    /// The write has its sequence numbers; under the commit lock.
    fn begun(&self, commit: &mut Commit);

    /// The write has an outcome. To be called without a lock.
    fn release(&self);
}

/// What remains to be looked at before a write with a condition may begin.
pub(crate) trait Unchecked: Send {
    /// Whether a look may have to wait for a disk.
    fn may_read(&self) -> bool;

    /// Looks, with no lock held.
    fn look(self: Box<Self>) -> Result<()>;
}

/// What checks that are going on need of the commit queue; under the commit lock.
#[derive(Default)]
pub(crate) struct Checks {
    /// How many are going on.
    running: usize,
    /// Requests published since the first of them began, oldest first, but for those forgotten.
    lately: VecDeque<Arc<Request>>,
    lately_bytes: usize,
    /// Published requests up to this sequence number are not in `lately`.
    pub(crate) forgotten_to: u64,
}

impl Checks {
    /// A request leaves the queue. Those that are kept no longer go to `dropped`, to be freed without the lock.
    #[inline]
    pub(crate) fn published(&mut self, request: &Arc<Request>, dropped: &mut Vec<Arc<Request>>) {
        if self.running > 0 {
            self.keep(request, dropped);
        }
    }

    fn keep(&mut self, request: &Arc<Request>, dropped: &mut Vec<Arc<Request>>) {
        self.lately_bytes += request.bytes();
        self.lately.push_back(Arc::clone(request));
        while self.lately_bytes > LATELY_BYTES_MAX
            && let Some(oldest) = self.lately.pop_front()
        {
            self.lately_bytes -= oldest.bytes();
            self.forgotten_to = oldest.last();
            dropped.push(oldest);
        }
    }

    /// What is kept, newest first.
    pub(crate) fn lately(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.lately.iter().rev()
    }

    /// A check begins, where all up to `visible` can be seen.
    pub(crate) fn begin(&mut self, visible: u64) {
        if self.running == 0 {
            self.forgotten_to = visible;
        }
        self.running += 1;
    }

    /// What was kept for the checks, if this was the last.
    pub(crate) fn end(&mut self) -> VecDeque<Arc<Request>> {
        self.running -= 1;
        if self.running > 0 {
            return VecDeque::new();
        }
        self.lately_bytes = 0;
        std::mem::take(&mut self.lately)
    }
}
