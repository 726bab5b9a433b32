//! The state under the commit lock: sequence numbers, the queue of requests, and the places of the environment.
//!
//! **Invariants.** The queue holds what has a sequence number and is not published, in the order of the numbers.
//! Requests leave it at the front. Each that is published follows the last one that was. Behind a request that failed
//! nothing is published.
//! A request has the batch of a write, and a thread carries it through the stages. The prologue asks the condition of a
//! write, which is a transaction's, whether the write may begin. For that the state keeps requests that were published
//! since the check began: [`Checks`].

use crate::parts::{Batch, EnvironmentTypes, Refusal, WALKED_MAX};
use situ_base::lock;
use situ_log::{Durability, Log, Lsn};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

/// The state under the commit lock.
pub struct Commit<E: EnvironmentTypes> {
    /// The environment's state under this lock.
    pub places: E::Places,
    /// The published requests that the checks of committing transactions need.
    pub checks: Checks<E>,
    next_sequence: u64,
    /// The last sequence number that was published.
    published: u64,
    pub(crate) pending: VecDeque<Arc<Request<E>>>,
    /// Set when a request failed: those behind it must not be published.
    pub(crate) broken: Option<E::Error>,
    /// True if there is new work for the background, which is notified once the lock is released.
    has_work: bool,
}

impl<E: EnvironmentTypes> Commit<E> {
    /// Goes on behind `last_sequence`, up to which everything is visible.
    pub fn new(last_sequence: u64, places: E::Places) -> Commit<E> {
        Commit {
            places,
            checks: Checks::default(),
            next_sequence: last_sequence + 1,
            published: last_sequence,
            pending: VecDeque::new(),
            broken: None,
            has_work: false,
        }
    }

    /// Returns the last sequence number that was given out.
    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Returns the first sequence number that was not given out.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Notes that there is new work for the background. If a prologue calls this, the pipeline
    /// [notifies](crate::Environment::tell_background) the background once the lock is released.
    pub fn leave_work(&mut self) {
        self.has_work = true;
    }

    /// Returns true if there is new work for the background; asked once.
    pub(crate) fn take_work(&mut self) -> bool {
        std::mem::take(&mut self.has_work)
    }

    /// Returns the requests behind `sequence` that are still known, newest first.
    pub fn requests_behind(&self, sequence: u64) -> impl Iterator<Item = &Arc<Request<E>>> {
        self.pending.iter().rev().chain(self.checks.lately()).take_while(move |request| request.first() > sequence)
    }

    /// Asserts the invariants of the module's page.
    fn check(&self) {
        let (published, next) = (self.published, self.next_sequence);
        let first = self.pending.front().map_or(next, |request| request.first());
        let follows = first == published + 1 || self.broken.is_some() && first > published;
        debug_assert!(follows, "the queue begins at {first}, published is {published}");
        let end = self.pending.back().map_or(next, |request| request.last() + 1);
        debug_assert_eq!(end, next, "the queue ends with the last sequence number that was given out");
        let kept = self.checks.lately().next().map_or(0, |newest| newest.last());
        debug_assert!(kept <= published, "{kept} is kept as published, published is {published}");
        if cfg!(any(test, feature = "costly-checks")) && self.pending.len() <= WALKED_MAX {
            let follow = |a: &Request<E>, b: &Request<E>| a.last() + 1 == b.first() && a.lsn() < b.lsn();
            assert!(self.pending.iter().is_sorted_by(|a, b| follow(a, b)), "log, queue and sequence order differ");
        }
    }

    /// Gives out sequence numbers, and lets the write join the queue.
    pub(crate) fn enqueue(
        &mut self,
        write: Write<E>,
        placed: (E::Targets, Lsn),
        caller: Caller,
        durability: Durability,
    ) -> Arc<Request<E>> {
        let request = Request::new(write, self.next_sequence, placed, caller, durability);
        debug_assert!(request.last() >= request.first(), "a write without changes shares its number with the next");
        let is_logged_behind = self.pending.back().is_none_or(|before| before.lsn() < request.lsn());
        debug_assert!(is_logged_behind, "write {} lies in the log before the one before it", request.first());
        self.next_sequence = request.last() + 1;
        self.pending.push_back(Arc::clone(&request));
        self.check();
        request
    }

    /// Notes that a request is about to be published: it follows the last one that was.
    pub(crate) fn advance(&mut self, request: &Request<E>) {
        let (first, last) = (request.first(), request.last());
        assert!(
            first == self.published + 1 && last >= first,
            "writes {first} to {last} are published behind {}",
            self.published
        );
        self.published = last;
        self.check();
    }
}

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
pub struct Write<E: EnvironmentTypes> {
    pub(crate) batch: E::Batch,
    pub(crate) condition: Option<Arc<dyn Condition<E>>>,
}

impl<E: EnvironmentTypes> Write<E> {
    /// Returns the write of a batch, and for a transaction's batch its condition.
    pub fn new(batch: E::Batch, condition: Option<Arc<dyn Condition<E>>>) -> Write<E> {
        Write { batch, condition }
    }

    /// Returns the changes of the write.
    pub fn batch(&self) -> &E::Batch {
        &self.batch
    }

    /// Returns true if the write is a transaction's.
    pub fn has_condition(&self) -> bool {
        self.condition.is_some()
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

impl<E: EnvironmentTypes> Default for Write<E> {
    fn default() -> Write<E> {
        Write::new(E::Batch::default(), None)
    }
}

/// The reason why a request cannot begin at once.
pub enum Obstacle<E: EnvironmentTypes> {
    /// The environment has no room, or no log file.
    NoRoom(E::NoRoom),
    /// The log's page buffer is full.
    LogBufferFull,
    /// Other writes have come in between, which a transaction has to look at first.
    Unchecked(Box<dyn Unchecked<E>>),
    /// The request never will begin.
    Refused(Box<E::Error>),
}

impl<E: EnvironmentTypes> Obstacle<E> {
    /// Returns the obstacle of a write that will not begin, because of `error`.
    pub fn refused(error: impl Into<E::Error>) -> Obstacle<E> {
        Obstacle::Refused(Box::new(error.into()))
    }
}

/// A write on its way through the stages.
pub struct Request<E: EnvironmentTypes> {
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

impl<E: EnvironmentTypes> Request<E> {
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

    /// Returns true if a logger is to carry the request on: a future waits for it, and no thread has claimed it yet.
    pub(crate) fn is_for_loggers(&self) -> bool {
        self.caller == Caller::Future && self.stage.load(Ordering::Acquire) == LOGGED
    }

    /// Makes its changes by `apply`; for the one who has claimed it.
    pub(crate) fn apply_by(&self, apply: impl FnOnce(&E::Batch, &E::Targets, u64)) {
        debug_assert_eq!(self.stage.load(Ordering::Relaxed), APPLYING, "write {} was not claimed", self.first);
        apply(&self.batch, &self.targets, self.first);
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

/// Requests published during checks take at most this much memory beyond their time.
const LATELY_BYTES_MAX: usize = 1 << 20;

/// The condition of a write.
pub trait Condition<E: EnvironmentTypes>: Send + Sync {
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
pub trait Unchecked<E: EnvironmentTypes>: Send {
    /// Returns true if the check may have to wait for a disk.
    fn may_read(&self) -> bool;

    /// Makes the check. Called with no lock held.
    ///
    /// # Errors
    /// The condition does not hold.
    fn look(self: Box<Self>) -> Result<(), E::Error>;
}

/// The requests of the commit queue that running checks need; under the commit lock.
pub struct Checks<E: EnvironmentTypes> {
    /// The number of running checks.
    running: usize,
    /// Requests published since the first of them began, oldest first, but for those forgotten.
    lately: VecDeque<Arc<Request<E>>>,
    lately_bytes: usize,
    forgotten_to: u64,
}

impl<E: EnvironmentTypes> Default for Checks<E> {
    fn default() -> Checks<E> {
        Checks { running: 0, lately: VecDeque::new(), lately_bytes: 0, forgotten_to: 0 }
    }
}

impl<E: EnvironmentTypes> Checks<E> {
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
