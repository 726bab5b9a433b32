//! The locks of one transaction, and its waits for more.

use crate::base::lock_wait::LockWait;
use crate::base::slow::{Operation, SlowKind};
use crate::core::Core;
use crate::rows::Transactions;
use crate::rows::alarm::Due;
use crate::rows::locks::{Acquired, Edge, LockMode, LockOutcome, Owner, Row, Waiter};
use crate::{Error, Result};
use situ_base::Event;
use situ_base::spent::{Part, lap};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Returns an edge of the graph of waits, in words for people.
fn lock_wait(core: &Core, edge: Edge) -> LockWait {
    LockWait {
        transaction: edge.owner,
        keyspace: core.versions.keyspace_name(edge.row.keyspace),
        key: edge.row.key.to_vec(),
        waits_for: edge.waits_for,
    }
}

fn deadlock(core: &Core, circle: Vec<Edge>) -> Error {
    core.health.stats.counters.deadlocks.add(1);
    Error::Deadlock { cycle: circle.into_iter().map(|edge| lock_wait(core, edge)).collect() }
}

/// Locks that are given back when the value is dropped. The drop may be long after that of the transaction: a commit on
/// its way keeps its locks until it is visible.
pub(crate) struct HeldLocks {
    transactions: Arc<Transactions>,
    owner: Owner,
    rows: Vec<Row>,
}

impl HeldLocks {
    pub(crate) fn new(transactions: &Arc<Transactions>, owner: Owner) -> HeldLocks {
        HeldLocks { transactions: Arc::clone(transactions), owner, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Gives back all but the first `count`.
    pub(crate) fn release_behind(&mut self, count: usize) {
        for row in self.rows.drain(count.min(self.rows.len())..) {
            self.transactions.locks.release(&row, self.owner);
        }
    }
}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        self.release_behind(0);
    }
}

/// A lock that a transaction asks for.
pub(crate) struct Wanted {
    pub(crate) row: Row,
    pub(crate) owner: Owner,
    pub(crate) mode: LockMode,
    /// True if the transaction has the row shared already.
    pub(crate) holds: bool,
    pub(crate) timeout_ms: u64,
}

impl Wanted {
    /// Waits on this thread.
    pub(crate) fn acquire(&self, core: &Core, event: &Arc<dyn Event>) -> Result<()> {
        let transactions = &core.transactions;
        let event_there = Some(Arc::clone(event));
        let may_wait = self.timeout_ms > 0;
        let acquired =
            transactions.locks.acquire(&self.row, self.owner, self.mode, self.holds, may_wait, event_there)?;
        let waiter = match acquired {
            Acquired::Held => return Ok(()),
            Acquired::Deadlock(circle) => return Err(deadlock(core, circle)),
            Acquired::Taken(holder) => return Err(self.timed_out(core, holder)),
            Acquired::Queued(waiter) => waiter,
        };
        core.health.stats.counters.lock_waits.add(1);
        let until = core.env.clock.now() + Duration::from_millis(self.timeout_ms);
        let wait = || loop {
            let seen = event.generation();
            if let Some(verdict) = waiter.verdict() {
                break verdict;
            }
            let left = until.saturating_sub(core.env.clock.now());
            if left.is_zero() {
                transactions.locks.give_up(&waiter);
            } else {
                event.wait(seen, Some(left));
            }
        };
        let verdict = core.health.watch(None, || lap(Part::Lock, wait), |_| self.slow_lock(core)).0;
        transactions.locks.forget_wait(&waiter);
        self.judge(core, &waiter, verdict)
    }

    fn slow_lock(&self, core: &Core) -> Operation {
        let keyspace = core.versions.keyspace_name(self.row.keyspace);
        Operation::new(SlowKind::Lock, keyspace, &*self.row.key, 0)
    }

    fn judge(&self, core: &Core, waiter: &Waiter, verdict: LockOutcome) -> Result<()> {
        match verdict {
            LockOutcome::Granted => Ok(()),
            LockOutcome::Closed => Err(Error::Closed),
            LockOutcome::Failed(error) => Err(error),
            LockOutcome::GivenUp => Err(self.timed_out(core, waiter.waited_for())),
        }
    }

    fn timed_out(&self, core: &Core, waits_for: Owner) -> Error {
        core.health.stats.counters.lock_timeouts.add(1);
        let edge = Edge { owner: self.owner, row: self.row.clone(), waits_for };
        Error::LockTimeout { wait: Box::new(lock_wait(core, edge)), waited_ms: self.timeout_ms }
    }

    /// Begins to wait without a thread.
    pub(crate) fn acquire_async(self, core: &Arc<Core>) -> Result<Pending> {
        let transactions = &core.transactions;
        let may_wait = self.timeout_ms > 0;
        let acquired = transactions.locks.acquire(&self.row, self.owner, self.mode, self.holds, may_wait, None)?;
        let wait = match acquired {
            Acquired::Held => None,
            Acquired::Deadlock(circle) => return Err(deadlock(core, circle)),
            Acquired::Taken(holder) => return Err(self.timed_out(core, holder)),
            Acquired::Queued(waiter) => {
                core.health.stats.counters.lock_waits.add(1);
                Some(Wait { waiter, due: None })
            }
        };
        let mut pending = Pending { core: Arc::clone(core), wanted: self, wait, taken: false };
        if let Some(wait) = &mut pending.wait {
            let at = core.env.clock.now() + Duration::from_millis(pending.wanted.timeout_ms);
            wait.due = Some(transactions.alarm.set(&core.env, &transactions.locks, &wait.waiter, at)?);
        }
        Ok(pending)
    }
}

/// A lock that a future waits for, or has and has not passed on yet; given up when it is dropped.
pub(crate) struct Pending {
    core: Arc<Core>,
    pub(crate) wanted: Wanted,
    wait: Option<Wait>,
    /// True if another owner has taken over the duty to give the lock back.
    taken: bool,
}

struct Wait {
    waiter: Arc<Waiter>,
    due: Option<Due>,
}

impl Pending {
    /// Polls the wait. Once it is ready with `Ok`, the caller has to give the lock back.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(wait) = &self.wait else {
            self.taken = true;
            return Poll::Ready(Ok(()));
        };
        let Some(verdict) = wait.waiter.verdict_or_wake(context.waker()) else { return Poll::Pending };
        let outcome = self.wanted.judge(&self.core, &wait.waiter, verdict);
        self.taken = true;
        self.end_wait();
        Poll::Ready(outcome)
    }

    fn end_wait(&mut self) -> Option<LockOutcome> {
        let transactions = &self.core.transactions;
        let wait = self.wait.take()?;
        transactions.locks.give_up(&wait.waiter);
        transactions.locks.forget_wait(&wait.waiter);
        wait.due.into_iter().for_each(|due| transactions.alarm.forget(due));
        wait.waiter.verdict()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let waited = self.wait.is_some();
        let verdict = self.end_wait();
        let has = !waited || matches!(verdict, Some(LockOutcome::Granted));
        // After an upgrade the transaction keeps its lock, which is now exclusive.
        if has && !self.taken && !self.wanted.holds {
            self.core.transactions.locks.release(&self.wanted.row, self.wanted.owner);
        }
    }
}
