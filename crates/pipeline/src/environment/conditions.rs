//! Writes with conditions: what a transaction's commit has to find unchanged.
//!
//! The prologue asks the condition of a write, under the commit lock, whether the write may begin. For that it keeps
//! requests that were published since the check began: [`Checks`].

use super::Environment;
use super::commit::Commit;
use super::request::{Obstacle, Request};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests published during checks take at most this much memory beyond their time.
const LATELY_BYTES_MAX: usize = 1 << 20;

/// The condition of a write.
pub trait Condition<E: Environment>: Send + Sync {
    /// Returns the approximate memory that it takes.
    fn bytes(&self) -> u64;

    /// Checks that the write may begin now. If it may, the condition has to hold until the lock is released. Called
    /// under the commit lock.
    ///
    /// # Errors
    /// The write is refused, or something has to be looked at first without the lock.
    fn check_rest(self: Arc<Self>, commit: &mut Commit<E>) -> Result<(), Obstacle<E>>;

    /// Notes that the record is in the log, and the write is about to get its sequence numbers. Called under the commit
    /// lock.
    fn begun(&self, commit: &mut Commit<E>);

    /// Gives back what the condition holds, as the write has an outcome. Called with no lock held, perhaps more than
    /// once.
    fn release(&self);
}

/// The remaining check before a write with a condition may begin.
pub trait Unchecked<E: Environment>: Send {
    /// Returns true if the check may have to wait for a disk.
    fn may_read(&self) -> bool;

    /// Makes the check. Called with no lock held.
    ///
    /// # Errors
    /// The condition does not hold.
    fn look(self: Box<Self>) -> Result<(), E::Error>;
}

/// The requests of the commit queue that running checks need; under the commit lock.
pub struct Checks<E: Environment> {
    /// The number of running checks.
    running: usize,
    /// Requests published since the first of them began, oldest first, but for those forgotten.
    lately: VecDeque<Arc<Request<E>>>,
    lately_bytes: usize,
    forgotten_to: u64,
}

impl<E: Environment> Default for Checks<E> {
    fn default() -> Checks<E> {
        Checks { running: 0, lately: VecDeque::new(), lately_bytes: 0, forgotten_to: 0 }
    }
}

impl<E: Environment> Checks<E> {
    /// Notes that a request leaves the queue. Requests that are kept no longer go to `dropped`, to be freed without the
    /// lock.
    #[inline]
    pub(crate) fn published(&mut self, request: &Arc<Request<E>>, dropped: &mut Vec<Arc<Request<E>>>) {
        if self.running > 0 {
            self.keep(request, dropped);
        }
    }

    fn keep(&mut self, request: &Arc<Request<E>>, dropped: &mut Vec<Arc<Request<E>>>) {
        let follows = self.lately.back().is_none_or(|before| before.last() < request.first());
        debug_assert!(follows, "write {} was published before one that is kept", request.first());
        self.lately_bytes += request.bytes();
        self.lately.push_back(Arc::clone(request));
        while self.lately_bytes > LATELY_BYTES_MAX
            && let Some(oldest) = self.lately.pop_front()
        {
            self.lately_bytes -= oldest.bytes();
            debug_assert!(self.forgotten_to < oldest.last(), "{} was forgotten before", oldest.last());
            self.forgotten_to = oldest.last();
            dropped.push(oldest);
        }
        debug_assert!(self.lately_bytes == 0 || !self.lately.is_empty(), "{} bytes of nothing", self.lately_bytes);
    }

    /// Returns the sequence number up to which published requests are not kept.
    pub fn forgotten_to(&self) -> u64 {
        self.forgotten_to
    }

    /// Returns the kept requests, newest first.
    pub fn lately(&self) -> impl Iterator<Item = &Arc<Request<E>>> {
        self.lately.iter().rev()
    }

    /// Begins a check, which sees all sequence numbers up to `visible`.
    pub fn begin(&mut self, visible: u64) {
        if self.running == 0 {
            assert!(self.lately.is_empty(), "requests are kept that no check needs");
            self.forgotten_to = visible;
        }
        self.running += 1;
    }

    /// Ends a check. If it was the last, returns the kept requests, which the caller frees without the lock.
    pub fn end(&mut self) -> VecDeque<Arc<Request<E>>> {
        assert!(self.running > 0, "a check ends once");
        self.running -= 1;
        if self.running > 0 {
            return VecDeque::new();
        }
        self.lately_bytes = 0;
        std::mem::take(&mut self.lately)
    }
}
