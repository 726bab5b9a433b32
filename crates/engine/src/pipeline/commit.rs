//! The staged write path: prologue, log, epilogue.
//!
//! 1. **Prologue**, once it is admitted (`admission.rs`), under the commit lock: the request gets its sequence numbers, its record is copied into the log's
//!    page buffer, and it joins the queue of pending requests. Full memtables are sealed here. Log order, queue order
//!    and sequence order are one. A transaction's batch is let in only if nothing that it relies on has changed
//!    (`transaction/check.rs`).
//! 2. **Log**, no lock held: [`Log::commit`] returns when the record and all before it are written (buffered) or durable
//!    (synced). The caller runs this stage itself, for all that waits, if nobody else does; several threads may.
//! 3. **Epilogue**, no lock held: the operations go into the memtables that the prologue chose; then the request is
//!    *applied*.
//! 4. **Publish**, under the commit lock: applied requests leave the queue's front; each moves the visible sequence
//!    number over its own. A request is acknowledged when it is published. Whoever publishes applies what is logged and
//!    in its way.
//!
//! A blocking write of an idle store runs all four on the caller's thread without a switch. An asynchronous buffered
//! write does the same and is ready at once, unless its pages are in flight or a synced one that is not durable yet is
//! before it in the queue. An asynchronous synced write stops after the prologue, and so does any on a disk without a file
//! system, where also a buffered write waits for the device. The loggers (`loggers.rs`) run the rest for all that wait.
//!
//! **Invariants.** The visible sequence number never passes a request that is not applied. A request is applied exactly
//! once, by whoever wins [`Request::claim`]. A sealed memtable gets no new targets; it is complete when the visible
//! number has reached the last one handed out before the seal.
//!
//! **Failure.** If the log fails, or a thread panics in the epilogue, the request and all behind it fail, and none of them
//! is published; the store is read-only from then on. What is refused before the log has it (no room, stopped, bad arguments) leaves no trace.
//!
//! **Rejected:** one leader that writes for a group (RocksDB): on two cores the hand-over to the leader costs more than
//! the append it saves. Publishing before the write is durable (Pebble): a reader could act on what a crash takes away.

mod seal;

pub(crate) use self::seal::Level0;
use crate::base::batch::{Operation, Touched, WriteBatch};
use crate::base::options::Durability;
use crate::base::stats::sampled;
use crate::base::sync::lock;
use crate::pipeline::Pipeline;
use crate::pipeline::conditions::{Checks, Condition, Unchecked};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_log::{AppendError, Log, Lsn};
use situ_table::MAX_SEQUENCE;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

/// Bytes an operation takes in a memtable beside its encoding, about.
const NODE_BYTES: u64 = 32;
/// How often a waiting writer looks at the queue before it goes to sleep.
const SPINS: usize = 64;

/// How many requests of others a thread applies before it goes back to its own caller.
const HELPED_MAX: usize = 64;

const LOGGED: u8 = 0;
const APPLYING: u8 = 1;
const APPLIED: u8 = 2;
const PUBLISHED: u8 = 3;
const FAILED: u8 = 4;

/// Who waits for a request, and whose thread carries it through the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A thread waits, and carries it on itself.
    Thread,
    /// A future waits. A logger carries on what the caller's thread could not without waiting.
    Future,
}

/// What is to be written.
#[derive(Default)]
pub(crate) struct Write {
    pub(crate) batch: WriteBatch,
    /// A transaction's batch has conditions.
    pub(crate) condition: Option<Arc<dyn Condition>>,
}

impl Write {
    /// The memory it takes while it waits, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.batch.held_bytes() as u64 + self.condition.as_ref().map_or(0, |condition| condition.bytes())
    }
}

impl From<WriteBatch> for Write {
    fn from(batch: WriteBatch) -> Write {
        Write { batch, condition: None }
    }
}

/// A write on its way through the stages.
pub(crate) struct Request {
    batch: WriteBatch,
    condition: Option<Arc<dyn Condition>>,
    first: u64,
    targets: Touched<Arc<MemtableSlot>>,
    lsn: Lsn,
    stage: AtomicU8,
    caller: Caller,
    durability: Durability,
    error: OnceLock<Error>,
    waker: Mutex<Option<Waker>>,
}

impl Request {
    /// The right to apply the request; given to one caller only.
    fn claim(&self) -> bool {
        self.stage.compare_exchange(LOGGED, APPLYING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the log has brought it as far as it asked for.
    fn is_logged(&self, log: &Log) -> bool {
        let reached = match self.durability {
            Durability::Buffered => log.written(),
            Durability::Synced => log.durable(),
        };
        reached >= self.lsn
    }

    /// Its last sequence number.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.batch.len() as u64 - 1
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.batch.iter()
    }

    pub(crate) fn operations_count(&self) -> usize {
        self.batch.len()
    }

    /// The memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Request>() + self.batch.held_bytes()
    }

    /// Gives back what a transaction holds until its commit has an outcome; with no lock held.
    pub(crate) fn release(&self) {
        if let Some(condition) = &self.condition {
            condition.release();
        }
    }

    /// The outcome, once there is one.
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        match self.stage.load(Ordering::Acquire) {
            PUBLISHED => Some(Ok(())),
            FAILED => Some(Err(self.error.get().cloned().unwrap_or(Error::Closed))),
            _ => None,
        }
    }

    /// Leaves word whom to wake when there is an outcome.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }
}

/// What the commit lock protects.
pub(crate) struct Commit {
    next_sequence: u64,
    pending: VecDeque<Arc<Request>>,
    /// By keyspace id.
    keyspaces: Vec<Option<Arc<KeyspaceCore>>>,
    /// The log file that takes records now.
    pub(crate) log_number: u64,
    /// What transactions that are about to commit need to know of the others.
    pub(crate) checks: Checks,
    /// Set when a request failed: those behind it must not be published.
    broken: Option<Error>,
    /// There is new work for the background; to be told once the lock is released.
    news: bool,
    /// Bytes that may go into the present log file before the next one should be made ready: late enough that the flush of
    /// the memtable before has mostly ended and its log file can be used again, early enough to be done in time.
    until_prepare_bytes: u64,
}

/// Of the first log file, which is short, this much is used before the next one is made ready.
const FIRST_FILE_BYTES: u64 = 512 << 10;

/// Why a request cannot begin at once.
pub(crate) enum Obstacle {
    /// All memtables of a keyspace are full.
    MemtablesFull { keyspace: Arc<KeyspaceCore> },
    /// The memtable is full, and so is the level that it would become a table of.
    Level0Full { keyspace: Arc<KeyspaceCore> },
    /// No log file with room for this record of `bytes` is ready behind `file`, the current one.
    NoLogFile { bytes: u64, file: u64 },
    /// The log's page buffer is full.
    LogBufferFull,
    /// Other writes have come in between that a transaction has to look at first.
    Unchecked(Box<dyn Unchecked>),
    /// It never will.
    Refused(Box<Error>),
}

impl Obstacle {
    pub(crate) fn refused(error: Error) -> Obstacle {
        Obstacle::Refused(Box::new(error))
    }
}

impl Commit {
    pub(crate) fn new<'a>(
        next_sequence: u64,
        log_number: u64,
        keyspaces: impl Iterator<Item = &'a Arc<KeyspaceCore>>,
    ) -> Commit {
        let mut commit = Commit {
            next_sequence,
            pending: VecDeque::new(),
            keyspaces: Vec::new(),
            log_number,
            checks: Checks::default(),
            broken: None,
            news: false,
            until_prepare_bytes: FIRST_FILE_BYTES,
        };
        keyspaces.for_each(|keyspace| commit.add_keyspace(keyspace));
        commit
    }

    pub(crate) fn add_keyspace(&mut self, keyspace: &Arc<KeyspaceCore>) {
        let index = keyspace.id as usize;
        if self.keyspaces.len() <= index {
            self.keyspaces.resize(index + 1, None);
        }
        self.keyspaces[index] = Some(Arc::clone(keyspace));
    }

    pub(crate) fn remove_keyspace(&mut self, id: u32) {
        if let Some(entry) = self.keyspaces.get_mut(id as usize) {
            *entry = None;
        }
    }

    /// Whether there is new work for the background; asked once.
    pub(crate) fn take_work(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// The requests behind `sequence` that are still known, newest first.
    pub(crate) fn requests_behind(&self, sequence: u64) -> impl Iterator<Item = &Arc<Request>> {
        self.pending.iter().rev().chain(self.checks.lately()).take_while(move |request| request.first > sequence)
    }
}

/// What one call of `publish` has done.
#[derive(Default)]
struct Done {
    /// Whether a request has left the queue.
    any: bool,
    /// How many requests of others it applied.
    helped: usize,
    /// Requests whose futures are to be woken.
    to_wake: Vec<Arc<Request>>,
    /// Requests that may be freed.
    dropped: Vec<Arc<Request>>,
}

impl Pipeline {
    /// A blocking write.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        if batch.is_empty() {
            return self.writable().map(drop);
        }
        self.write_numbered(batch.into(), durability).map(drop)
    }

    /// A blocking write of something; returns its last sequence number.
    pub(crate) fn write_numbered(&self, write: Write, durability: Durability) -> Result<u64> {
        let started = sampled().then(|| self.env.clock.now());
        let _inside = (durability == Durability::Synced).then(|| self.group_commit.enter());
        let request = self.admit(write, durability)?;
        let logged = self.log_stage(&request);
        self.epilogue(&request, logged);
        self.publish();
        let result = self.wait_for(&request);
        request.release();
        if let Some(started) = started {
            self.health.stats.write.record(self.env.clock.now().saturating_sub(started));
        }
        result.map(|()| request.last())
    }

    /// Log and epilogue for the request of a future, as far as they need no waiting; a logger does the rest. A
    /// buffered one is mostly published on return, where the log has the page cache before it.
    pub(crate) fn log_and_apply_async(&self, request: &Arc<Request>) {
        let Some(log) = &self.log else { return };
        if request.durability == Durability::Synced {
            self.loggers.call();
            return;
        }
        loop {
            match log.advance_cached() {
                Err(error) => {
                    self.epilogue(request, Err(error));
                    break;
                }
                Ok(_) if request.is_logged(log) => {
                    self.epilogue(request, Ok(()));
                    break;
                }
                Ok(true) => {}
                // Its pages are in flight on another thread, perhaps on their way to the disk itself; or no page cache takes
                // them, or those before them.
                Ok(false) => return self.loggers.call(),
            }
        }
        self.publish();
    }

    /// The log stage of one request, on this thread.
    fn log_stage(&self, request: &Arc<Request>) -> situ_storage::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let is_synced = request.durability == Durability::Synced;
        let is_done = is_synced && self.group_commit.yield_once(&self.env) && request.is_logged(log);
        // What another thread has done meanwhile says nothing of the disk.
        let started = (is_synced && !is_done).then(|| self.env.clock.now());
        let logged = log.commit(request.lsn, request.durability.into());
        if let Some(started) = started {
            let now = self.env.clock.now();
            self.above().iter().for_each(|above| above.log_was_synced(now.saturating_sub(started), now));
        }
        logged
    }

    /// The epilogue of a request with which the log has done, one way or the other, unless another thread is at it.
    fn epilogue(&self, request: &Request, logged: situ_storage::Result<()>) {
        let failed = logged.map_err(|error| self.health.fail(error)).is_err();
        if request.claim() {
            if failed { self.refuse(request) } else { self.apply(request) }
        }
    }

    /// The epilogue. A panic in it leaves a part of the request in memory, where nobody can see it, and the store takes no
    /// more writes: whoever waits for this request, or for one behind it, is told so.
    fn apply(&self, request: &Request) {
        match catch_unwind(AssertUnwindSafe(|| insert(request))) {
            Ok(()) => request.stage.store(APPLIED, Ordering::Release),
            Err(panic) => {
                self.health.fail_by_panic("write", &*panic);
                self.refuse(request);
            }
        }
    }

    fn refuse(&self, request: &Request) {
        let _ = request.error.set(self.health.failure().unwrap_or(Error::Closed));
        request.stage.store(FAILED, Ordering::Release);
    }

    /// Begins a request, and passes on what became known on the way.
    pub(crate) fn try_prologue(
        &self,
        write: Write,
        caller: Caller,
        durability: Durability,
    ) -> Result<Arc<Request>, (Write, Obstacle)> {
        let (begun, news) = {
            let mut commit = lock(&self.commit);
            let begun = self.prologue(&mut commit, write, caller, durability);
            (begun, commit.take_work())
        };
        self.tell_background(news);
        begun
    }

    /// Tells the background of new work, if there is `news`; with no lock held.
    pub(crate) fn tell_background(&self, news: bool) {
        if news {
            self.above().iter().for_each(|above| above.memory_changed());
            self.work.notify();
        }
    }

    /// Sequence numbers, log buffer and queue for one request, or why not now.
    pub(crate) fn prologue(
        &self,
        commit: &mut Commit,
        write: Write,
        caller: Caller,
        durability: Durability,
    ) -> Result<Arc<Request>, (Write, Obstacle)> {
        let checked = write.condition.as_ref().map_or(Ok(()), |condition| Arc::clone(condition).check_rest(commit));
        let placed = checked.and_then(|()| self.place(commit, &write.batch));
        match placed {
            Ok((targets, lsn)) => {
                let Write { batch, condition } = write;
                if let Some(condition) = &condition {
                    condition.begun(commit);
                }
                let first = commit.next_sequence;
                commit.next_sequence += batch.len() as u64;
                let request = Arc::new(Request {
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
                });
                commit.pending.push_back(Arc::clone(&request));
                Ok(request)
            }
            Err(obstacle) => Err((write, obstacle)),
        }
    }

    fn place(&self, commit: &mut Commit, batch: &WriteBatch) -> Result<(Touched<Arc<MemtableSlot>>, Lsn), Obstacle> {
        let log = self.writable().map_err(Obstacle::refused)?;
        if commit.next_sequence + batch.len() as u64 > MAX_SEQUENCE {
            return Err(Obstacle::refused(Error::Invalid("the sequence numbers are used up".to_owned())));
        }
        for id in batch.keyspaces() {
            let keyspace = commit.keyspaces.get(id as usize).cloned().flatten();
            let keyspace =
                keyspace.ok_or_else(|| Obstacle::refused(Error::KeyspaceDropped { name: format!("number {id}") }))?;
            let slot = Arc::clone(&keyspace.view.load().active);
            if slot.bytes() >= keyspace.options.memtable_bytes && !slot.is_empty() {
                self.seal_locked(commit, &keyspace, Level0::Heeded)?;
            }
        }
        let header = batch.header(commit.next_sequence);
        let parts: [&[u8]; 2] = [&header, batch.encoded()];
        let lsn = match log.append(&parts) {
            Err(AppendError::FileFull) => {
                self.leave_full_log_file(commit, batch)?;
                log.append(&parts)
            }
            outcome => outcome,
        };
        let lsn = lsn.map_err(|error| match error {
            AppendError::BufferFull => Obstacle::LogBufferFull,
            // Even a fresh file is too short: this one needs a longer one.
            AppendError::FileFull | AppendError::NotPrepared => {
                Obstacle::NoLogFile { bytes: (header.len() + batch.bytes()) as u64, file: log.file() }
            }
            AppendError::Failed(error) => Obstacle::refused(Error::Failed { cause: Box::new(error) }),
            other => Obstacle::refused(Error::Invalid(other.to_string())),
        })?;
        let bytes = batch.bytes() as u64;
        if commit.until_prepare_bytes > 0 {
            commit.until_prepare_bytes = commit.until_prepare_bytes.saturating_sub(bytes);
            if commit.until_prepare_bytes == 0 {
                self.log_wanted.store(true, Ordering::Release);
                commit.news = true;
            }
        }
        let bytes = bytes + NODE_BYTES * batch.len() as u64;
        let mut targets = Touched::default();
        for id in batch.keyspaces() {
            if let Some(keyspace) = &commit.keyspaces[id as usize] {
                let slot = Arc::clone(&keyspace.view.load().active);
                slot.reserve(bytes, commit.log_number);
                targets.push(id, slot);
            }
        }
        Ok((targets, lsn))
    }

    /// The error that keeps memtables from being flushed, if there is one.
    pub(crate) fn check_flushes(&self) -> Result<()> {
        let troubles = lock(&self.troubles);
        troubles.flush.error.clone().filter(|_| !troubles.only_log_fails).map_or(Ok(()), Err)
    }

    /// Takes applied requests off the front of the queue and makes them visible.
    ///
    /// A request at the front that is logged, but whose thread has not come to apply it, is applied here: with more
    /// writers than cores it may have to wait for a core, and everybody behind it would wait with it.
    fn publish(&self) {
        let mut done = Done::default();
        while let Some(request) = self.publish_applied(&mut done) {
            self.apply(&request);
            done.helped += 1;
        }
        if !done.any {
            return;
        }
        self.published.notify();
        done.to_wake.iter().for_each(|request| request.release());
        self.outstanding.end(done.to_wake.len());
        for request in done.to_wake {
            // Taken out first: what is woken may poll, and must not find the lock held.
            let waker = lock(&request.waker).take();
            self.health.wake(waker);
        }
    }

    /// Publishes from the front as far as requests are applied. Returns the next one if it is for the caller to apply.
    fn publish_applied(&self, done: &mut Done) -> Option<Arc<Request>> {
        let mut commit = lock(&self.commit);
        loop {
            let front = commit.pending.front()?;
            let stage = front.stage.load(Ordering::Acquire);
            if stage != APPLIED && stage != FAILED {
                let log = self.log.as_ref()?;
                let helps =
                    commit.broken.is_none() && done.helped < HELPED_MAX && front.is_logged(log) && front.claim();
                return helps.then(|| Arc::clone(front));
            }
            let request = commit.pending.pop_front()?;
            done.any = true;
            if stage == FAILED {
                commit.broken = request.error.get().cloned();
            } else if let Some(error) = &commit.broken {
                let _ = request.error.set(error.clone());
                request.stage.store(FAILED, Ordering::Release);
            } else {
                self.versions.snapshots.advance(request.first, request.last());
                request.stage.store(PUBLISHED, Ordering::Release);
                commit.checks.published(&request, &mut done.dropped);
                let counters = &self.health.stats.counters;
                counters.writes.add(1);
                counters.operations_written.add(request.batch.len() as u64);
                counters.bytes_written.add(request.batch.bytes() as u64);
                counters.transactions_committed.add(u64::from(request.condition.is_some()));
            }
            if request.caller != Caller::Thread {
                done.to_wake.push(request);
            }
        }
    }

    fn wait_for(&self, request: &Request) -> Result<()> {
        for _ in 0..SPINS {
            if let Some(outcome) = request.outcome() {
                return outcome;
            }
            std::hint::spin_loop();
        }
        loop {
            let seen = self.published.generation();
            if let Some(outcome) = request.outcome() {
                return outcome;
            }
            self.published.wait(seen, None);
        }
    }

    /// Waits until every write up to `sequence` is visible.
    ///
    /// # Errors
    /// The store failed before that.
    pub(crate) fn wait_visible(&self, sequence: u64) -> Result<()> {
        loop {
            let seen = self.published.generation();
            if self.versions.snapshots.visible() >= sequence {
                return Ok(());
            }
            if let Some(error) = self.health.failure() {
                return Err(error);
            }
            self.published.wait(seen, None);
        }
    }

    /// One turn of a logger: carries on what futures wait for. False if there was nothing.
    pub(crate) fn carry_futures(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let mut taken = 0;
        let mut waiting: Vec<Arc<Request>> = {
            let commit = lock(&self.commit);
            let waits = |r: &&Arc<Request>| r.caller == Caller::Future && r.stage.load(Ordering::Acquire) == LOGGED;
            let waiting: Vec<_> = commit.pending.iter().filter(waits).cloned().collect();
            if !waiting.is_empty() {
                taken = self.loggers.take();
            }
            waiting
        };
        // One sync for all that want one; buffered ones before the first of them do not wait for it.
        let first_synced = waiting.iter().position(|r| r.durability == Durability::Synced);
        match first_synced {
            Some(0) => {
                let last = waiting.iter().rposition(|r| r.durability == Durability::Synced).unwrap_or(0);
                waiting.truncate(last + 1);
            }
            Some(at) => waiting.truncate(at),
            None => {}
        }
        let Some(last) = waiting.last() else { return false };
        let started = (last.durability == Durability::Synced).then(|| self.env.clock.now());
        let logged = log.commit(last.lsn, last.durability.into());
        let took = started.map(|started| {
            let now = self.env.clock.now();
            let took = now.saturating_sub(started);
            self.above().iter().for_each(|above| above.log_was_synced(took, now));
            took
        });
        self.loggers.give_back(taken, took);
        for request in &waiting {
            self.epilogue(request, logged.clone());
        }
        self.publish();
        true
    }
}

/// The operations go into the memtables.
fn insert(request: &Request) {
    for (sequence, operation) in (request.first..).zip(request.batch.iter()) {
        #[cfg(test)]
        tests::taste(operation.key);
        if let Some(slot) = request.targets.get(operation.keyspace) {
            slot.insert(&operation, sequence);
        }
    }
}

#[cfg(test)]
mod tests;
