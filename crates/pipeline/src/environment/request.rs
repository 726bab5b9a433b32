//! A write on its way through the stages, and what can be in its way.

use super::conditions::{Condition, Unchecked};
use super::{Batch, Environment, Refusal};
use situ_base::lock;
use situ_log::{Durability, Log, Lsn};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

const LOGGED: u8 = 0;
const APPLYING: u8 = 1;
const APPLIED: u8 = 2;
const PUBLISHED: u8 = 3;
const FAILED: u8 = 4;

/// The caller that waits for a request, and whose thread carries it through the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A thread waits, and carries it on itself.
    Thread,
    /// A future waits. A logger carries on what the caller's thread could not without waiting.
    Future,
}

/// The batch and the condition of a write.
pub struct Write<E: Environment> {
    pub(crate) batch: E::Batch,
    pub(crate) condition: Option<Arc<dyn Condition<E>>>,
}

impl<E: Environment> Write<E> {
    /// Returns the write of a batch, and for a transaction's batch its condition.
    pub fn new(batch: E::Batch, condition: Option<Arc<dyn Condition<E>>>) -> Write<E> {
        Write { batch, condition }
    }

    /// Returns the approximate memory that the write takes while it waits.
    pub(crate) fn bytes(&self) -> u64 {
        self.batch.held_bytes() as u64 + self.condition.as_ref().map_or(0, |condition| condition.bytes())
    }

    /// Returns true if there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.count() == 0
    }
}

impl<E: Environment> Default for Write<E> {
    fn default() -> Write<E> {
        Write::new(E::Batch::default(), None)
    }
}

/// No log file with room for a record is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoLogFile {
    /// The bytes of the record.
    pub bytes: u64,
    /// The log's present file.
    pub file: u64,
}

/// The reason why a request cannot begin at once.
pub enum Obstacle<E: Environment> {
    /// The environment has no room, or no log file.
    NoRoom(E::NoRoom),
    /// The log's page buffer is full.
    LogBufferFull,
    /// Other writes have come in between, which a transaction has to look at first.
    Unchecked(Box<dyn Unchecked<E>>),
    /// The request never will begin.
    Refused(Box<E::Error>),
}

impl<E: Environment> Obstacle<E> {
    /// Returns the obstacle of a write that will not begin, because of `error`.
    pub fn refused(error: impl Into<E::Error>) -> Obstacle<E> {
        Obstacle::Refused(Box::new(error.into()))
    }
}

/// A write on its way through the stages.
pub struct Request<E: Environment> {
    batch: E::Batch,
    condition: Option<Arc<dyn Condition<E>>>,
    first: u64,
    targets: E::Targets,
    lsn: Lsn,
    stage: AtomicU8,
    caller: Caller,
    durability: Durability,
    error: OnceLock<E::Error>,
    waker: Mutex<Option<Waker>>,
}

impl<E: Environment> Request<E> {
    pub(crate) fn new(
        write: Write<E>,
        first: u64,
        (targets, lsn): (E::Targets, Lsn),
        caller: Caller,
        durability: Durability,
    ) -> Arc<Request<E>> {
        let Write { batch, condition } = write;
        Arc::new(Request {
            batch,
            condition,
            first,
            targets,
            lsn,
            stage: AtomicU8::new(LOGGED),
            caller,
            durability,
            error: OnceLock::new(),
            waker: Mutex::new(None),
        })
    }

    /// Returns the changes of the request.
    pub fn batch(&self) -> &E::Batch {
        &self.batch
    }

    /// Returns the first sequence number of the request.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last sequence number of the request.
    pub fn last(&self) -> u64 {
        self.first + self.batch.count() as u64 - 1
    }

    /// Returns true if the request is a transaction's.
    pub fn has_condition(&self) -> bool {
        self.condition.is_some()
    }

    /// Gives back what a transaction holds until its commit has an outcome; with no lock held.
    pub fn release(&self) {
        if let Some(condition) = &self.condition {
            condition.release();
        }
    }

    /// Returns the approximate memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Request<E>>() + self.batch.held_bytes()
    }

    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.durability == Durability::Synced
    }

    /// Returns true if the log has brought the request as far as it asked for.
    pub(crate) fn is_logged(&self, log: &Log) -> bool {
        let reached = match self.durability {
            Durability::Buffered => log.written(),
            Durability::Synced => log.durable(),
        };
        reached >= self.lsn
    }

    /// Claims the right to apply the request. Returns true for one caller only.
    pub(crate) fn claim(&self) -> bool {
        self.stage.compare_exchange(LOGGED, APPLYING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true if no thread has claimed the request yet.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.stage.load(Ordering::Acquire) == LOGGED
    }

    /// Makes its changes; for the one who has claimed it.
    pub(crate) fn apply_to(&self, environment: &E) {
        debug_assert_eq!(self.stage.load(Ordering::Relaxed), APPLYING, "write {} was not claimed", self.first);
        environment.apply(&self.batch, &self.targets, self.first);
    }

    pub(crate) fn set_applied(&self) {
        debug_assert_eq!(self.stage.load(Ordering::Relaxed), APPLYING, "write {} is applied twice", self.first);
        self.stage.store(APPLIED, Ordering::Release);
    }

    pub(crate) fn set_published(&self) {
        debug_assert_eq!(self.stage.load(Ordering::Relaxed), APPLIED, "write {} is not applied", self.first);
        self.stage.store(PUBLISHED, Ordering::Release);
    }

    pub(crate) fn set_failed(&self, error: E::Error) {
        let stage = self.stage.load(Ordering::Relaxed);
        assert!(matches!(stage, APPLYING | APPLIED), "write {} fails in stage {stage}, and may be visible", self.first);
        let _ = self.error.set(error);
        self.stage.store(FAILED, Ordering::Release);
    }

    /// Returns the result of the request's epilogue: `None` if it has not ended.
    pub(crate) fn applied(&self) -> Option<Result<(), E::Error>> {
        match self.stage.load(Ordering::Acquire) {
            APPLIED => Some(Ok(())),
            FAILED => Some(Err(self.failure())),
            _ => None,
        }
    }

    /// Returns the outcome, once there is one.
    pub(crate) fn outcome(&self) -> Option<Result<(), E::Error>> {
        match self.stage.load(Ordering::Acquire) {
            PUBLISHED => Some(Ok(())),
            FAILED => Some(Err(self.failure())),
            _ => None,
        }
    }

    fn failure(&self) -> E::Error {
        self.error.get().cloned().unwrap_or_else(|| Refusal::Closed.into())
    }

    /// Leaves word whom to wake when there is an outcome.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    pub(crate) fn take_waker(&self) -> Option<Waker> {
        lock(&self.waker).take()
    }
}
