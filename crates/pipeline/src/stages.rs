//! The stages of a write: prologue, log, epilogue, publish.
//!
//! 1. **Prologue**, once it is admitted (`admission.rs`), under the commit lock. The request gets its sequence numbers.
//!    Its record is copied into the log's page buffer. It joins the queue of pending requests. The environment chooses
//!    where its changes will go; here an LSM engine seals full memtables. Log order, queue order and sequence order are
//!    one. A transaction's batch is let in only if nothing that it relies on has changed
//!    ([`Condition`](crate::Condition)).
//! 2. **Log**, no lock held: [`Log::commit`] returns when the record and all before it are written (buffered) or
//!    durable (synced). The caller runs this stage itself, for all that waits, if no other thread does; several threads
//!    may.
//! 3. **Epilogue**, no lock held: the environment makes the changes at the places that the prologue chose; then the
//!    request is *applied*.
//! 4. **Publish**, under the commit lock: applied requests leave the queue's front; each moves the visible sequence
//!    number over its own. A request is acknowledged when it is published. A thread that publishes applies the logged
//!    requests that are in its way.
//!
//! A blocking write of an idle store runs all four on the caller's thread without a switch. An asynchronous buffered
//! write does the same and is ready at once, with two exceptions: its pages are in flight, or a synced write before it
//! in the queue is not durable yet. An asynchronous synced write stops after the prologue. So does any asynchronous
//! write on a disk without a file system, where also a buffered one waits for the device. The loggers (`loggers.rs`)
//! run the rest for all that wait.
//!
//! **Invariants.** The visible sequence number never passes a request that is not applied. A request is applied exactly
//! once, by the thread that wins [`Request::claim`].
//!
//! **Failure.** If the log fails, or a thread panics in the epilogue, the request and all behind it fail. None of them
//! is published. The store is read-only from then on. What is refused before the log has it (no room, stopped, bad
//! arguments) leaves no trace.
//!
//! **Rejected:** one leader that writes for a group (RocksDB): on two cores the hand-over to the leader costs more than
//! the append it saves. Publishing before the write is durable (Pebble): a reader could act on what a crash takes away.

use crate::commit::Commit;
use crate::commit::{Caller, Obstacle, Request, Write};
use crate::environment::Environment;
use crate::parts::NoLogFile;
use crate::parts::{Batch, Note, Refusal};
use crate::pipeline::Pipeline;
use crate::threads::panicked;
use situ_base::spent::{Part, lap};
use situ_log::{AppendError, Durability, Flights, Log, Lsn, Submitted};
use situ_storage::Result as StorageResult;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The number of looks at the queue before a waiting writer goes to sleep.
const SPINS: usize = 64;

/// The number of requests of others that a thread applies before it goes back to its own caller.
const HELPED_MAX: usize = 64;

/// A request, or the write back and what was in its way.
pub(crate) type Begun<E> = Result<Arc<Request<E>>, (Write<E>, Obstacle<E>)>;

/// The results of one call of `publish`.
struct Done<E: Environment> {
    /// True if a request has left the queue.
    any: bool,
    /// The number of applied requests of others.
    helped: usize,
    /// Requests whose futures are to be woken.
    to_wake: Vec<Arc<Request<E>>>,
    /// Requests that may be freed.
    dropped: Vec<Arc<Request<E>>>,
}

/// The note of the first logger on a log write in flight.
pub(crate) struct Taken {
    /// Requests that the logger has taken for it.
    requests: usize,
    /// The time of its beginning.
    at: Duration,
    durability: Durability,
}

thread_local! {
    /// The address of the pipeline whose futures this thread wakes, while the pipeline has log writes in flight that
    /// only this thread lands; 0 otherwise.
    static LANDS: Cell<usize> = const { Cell::new(0) };
}

impl<E: Environment> Pipeline<E> {
    /// Makes a blocking write. Returns its last sequence number, or 0 if there was nothing to write. The write is
    /// visible then.
    ///
    /// # Errors
    /// The write was refused and left no trace. Or the store has failed, and the write may be found when the log is
    /// read back. A waker that a logger calls may be refused: it must not wait for a write.
    pub fn write(&self, write: Write<E>, durability: Durability) -> Result<u64, E::Error> {
        if write.is_empty() {
            return self.check_writable().map(|()| 0);
        }
        if LANDS.get() == self.address() {
            let why = "a waker waits for a write, on the thread that the write would wait for";
            return Err(Refusal::NoRecord(why.to_owned()).into());
        }
        let _inside = (durability == Durability::Synced).then(|| self.group_commit.enter());
        let request = self.admit(write, durability)?;
        let logged = lap(Part::Log, || self.log_stage(&request));
        self.epilogue(&request, logged);
        self.publish();
        let result = self.wait_for(&request);
        request.release();
        result.map(|()| request.last())
    }

    /// Runs log and epilogue for the request of a future, as far as they need no waiting; a logger does the rest. A
    /// buffered one is mostly published on return, where the log has the page cache before it.
    pub(crate) fn log_and_apply_async(&self, request: &Arc<Request<E>>) {
        let Some(log) = &self.log else { return };
        if request.is_synced() {
            self.loggers.call();
            return;
        }
        loop {
            match lap(Part::Log, || log.advance_cached()) {
                Err(error) => {
                    self.epilogue(request, Err(error));
                    break;
                }
                Ok(_) if request.is_logged(log) => {
                    self.epilogue(request, Ok(()));
                    break;
                }
                Ok(true) => {}
                // Its pages are in flight on another thread, perhaps on their way to the disk itself; or no page cache
                // takes them, or those before them.
                Ok(false) => return self.loggers.call(),
            }
        }
        self.publish();
    }

    /// Runs the log stage of one request, on this thread.
    fn log_stage(&self, request: &Arc<Request<E>>) -> StorageResult<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let is_synced = request.is_synced();
        let is_done = is_synced && self.group_commit.yield_once(&self.env) && request.is_logged(log);
        // What another thread has done meanwhile says nothing of the disk.
        let started = (is_synced && !is_done).then(|| self.env.clock.now());
        let logged = log.commit(request.lsn(), request.durability());
        if let Some(started) = started {
            let now = self.env.clock.now();
            self.environment.note(Note::Synced { took: now.saturating_sub(started), now });
        }
        logged
    }

    /// Runs the epilogue of a request that the log has finished, well or not, unless another thread runs it.
    fn epilogue(&self, request: &Request<E>, logged: StorageResult<()>) {
        let failed = logged.map_err(|error| self.environment.fail(error)).is_err();
        debug_assert!(failed || self.is_logged(request), "write {} is applied, and is not in the log", request.first());
        if request.claim() {
            if failed { self.refuse(request) } else { self.apply(request) }
        }
    }

    fn is_logged(&self, request: &Request<E>) -> bool {
        self.log.as_ref().is_some_and(|log| request.is_logged(log))
    }

    /// Runs the epilogue. A panic in it leaves a part of the request in memory, where no reader can see it. The store
    /// takes no more writes then. The callers of this request, and of those behind it, get that error.
    fn apply(&self, request: &Request<E>) {
        let apply = |batch: &_, targets: &_, first| self.environment.apply(batch, targets, first);
        match catch_unwind(AssertUnwindSafe(|| request.apply_by(apply))) {
            Ok(()) => request.set_applied(),
            Err(panic) => {
                self.environment.fail(panicked("write", &*panic));
                self.refuse(request);
            }
        }
    }

    fn refuse(&self, request: &Request<E>) {
        request.set_failed(self.environment.failure().unwrap_or_else(|| Refusal::Closed.into()));
    }

    /// Begins a request, and passes on what became known on the way.
    pub(crate) fn try_prologue(&self, write: Write<E>, caller: Caller, durability: Durability) -> Begun<E> {
        let (begun, has_work) = self.prologue(write, caller, durability);
        if has_work {
            self.environment.tell_background();
        }
        begun
    }

    /// Gives one request its sequence numbers, its place in the log buffer, and its place in the queue, or says why not
    /// now. Returns true if there is work for the background.
    pub(crate) fn prologue(&self, write: Write<E>, caller: Caller, durability: Durability) -> (Begun<E>, bool) {
        let mut commit = self.lock_commit();
        let first = commit.next_sequence();
        let checked =
            write.condition.as_ref().map_or(Ok(()), |condition| Arc::clone(condition).check_rest(&mut commit));
        let begun = match checked.and_then(|()| self.place(&mut commit, &write.batch)) {
            Ok(placed) => {
                if let Some(condition) = &write.condition {
                    condition.begun(&mut commit);
                }
                let request = commit.enqueue(write, placed, caller, durability);
                debug_assert_eq!(request.first(), first, "the record in the log has another sequence number");
                Ok(request)
            }
            Err(obstacle) => Err((write, obstacle)),
        };
        (begun, commit.take_work())
    }

    /// Finds room, a place in the log, and targets for a batch.
    fn place(&self, commit: &mut Commit<E>, batch: &E::Batch) -> Result<(E::Targets, Lsn), Obstacle<E>> {
        let log = self.writable().map_err(Obstacle::refused)?;
        self.environment.find_room(commit, batch)?;
        let lsn = match append(log, commit, batch) {
            Err(AppendError::FileFull) => {
                self.environment.next_log_file(commit, batch)?;
                append(log, commit, batch)
            }
            outcome => outcome,
        };
        let lsn = lsn.map_err(|error| match error {
            AppendError::BufferFull => Obstacle::LogBufferFull,
            // Even a fresh file is too short: this one needs a longer one.
            AppendError::FileFull | AppendError::NotPrepared => {
                let bytes =
                    batch.record(commit.next_sequence(), |parts| parts.iter().map(|part| part.len() as u64).sum());
                Obstacle::NoRoom(NoLogFile { bytes, file: log.file() }.into())
            }
            AppendError::Failed(error) => Obstacle::refused(Refusal::LogFailed(error)),
            AppendError::OutOfMemory { bytes } => Obstacle::refused(Refusal::OutOfMemory { bytes }),
            other => Obstacle::refused(Refusal::NoRecord(other.to_string())),
        })?;
        Ok((self.environment.place(commit, batch), lsn))
    }

    /// Takes applied requests off the front of the queue and makes them visible.
    ///
    /// A request at the front may be logged, and its thread may not have come to apply it. Then it is applied here.
    /// With more writers than cores, its thread may have to wait for a core, and everybody behind it would wait with
    /// it.
    fn publish(&self) {
        let mut done = Done { any: false, helped: 0, to_wake: Vec::new(), dropped: Vec::new() };
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
            let waker = request.take_waker();
            self.wake(waker);
        }
    }

    /// Publishes from the front as far as requests are applied. Returns the next one if it is for the caller to apply.
    fn publish_applied(&self, done: &mut Done<E>) -> Option<Arc<Request<E>>> {
        let mut commit = self.lock_commit();
        loop {
            let front = commit.pending.front()?;
            let Some(applied) = front.applied() else {
                let log = self.log.as_ref()?;
                let helps =
                    commit.broken.is_none() && done.helped < HELPED_MAX && front.is_logged(log) && front.claim();
                return helps.then(|| Arc::clone(front));
            };
            let request = commit.pending.pop_front()?;
            done.any = true;
            if let Err(error) = applied {
                commit.broken = Some(error);
            } else if let Some(error) = &commit.broken {
                request.set_failed(error.clone());
            } else {
                let first = request.first();
                debug_assert!(self.is_logged(&request), "write {first} is published, and is not in the log");
                commit.advance(&request);
                self.environment.publish(&request);
                request.set_published();
                commit.checks.published(&request, &mut done.dropped);
            }
            if request.caller() != Caller::Thread {
                done.to_wake.push(request);
            }
        }
    }

    fn wait_for(&self, request: &Request<E>) -> Result<(), E::Error> {
        for _ in 0..SPINS {
            if let Some(outcome) = request.outcome() {
                return outcome;
            }
            std::hint::spin_loop();
        }
        lap(Part::Log, || {
            loop {
                let seen = self.published.generation();
                if let Some(outcome) = request.outcome() {
                    return outcome;
                }
                self.published.wait(seen, None);
            }
        })
    }

    /// Waits until so much is published that `is_reached`.
    ///
    /// # Errors
    /// The store failed before that.
    pub fn wait_published(&self, is_reached: impl Fn() -> bool) -> Result<(), E::Error> {
        loop {
            let seen = self.published.generation();
            if is_reached() {
                return Ok(());
            }
            if let Some(error) = self.environment.failure() {
                return Err(error);
            }
            self.published.wait(seen, None);
        }
    }

    /// Runs one turn of the first logger, which may keep several log writes in flight. Returns false if there was
    /// nothing to do.
    pub(crate) fn keep_flying(&self, flights: &mut Flights<Taken>) -> bool {
        let Some(log) = &self.log else { return false };
        let loggers = &self.loggers;
        loggers.look();
        while let Some(waiting) = loggers.wants_flight(|| flights.has_full_write()) {
            let at = self.env.clock.now();
            let durability = || loggers.durability(self.is_durability_wanted(log));
            match flights.begin(durability, |records, durability| Taken {
                requests: loggers.take_some(records),
                at,
                durability,
            }) {
                Submitted::InFlight => {
                    loggers.set_flights(flights.count());
                    loggers.use_queue(flights.watch());
                }
                Submitted::Nothing => drop(loggers.forget(waiting)),
                Submitted::Later => break,
            }
        }
        if flights.count() == 0 {
            if flights.has_no_queue() {
                loggers.use_queue(None);
            }
            flights.rest();
            return self.carry_futures();
        }
        loggers.set_waited_for(true);
        let landed = flights.wait(&|| loggers.another_pays());
        loggers.set_waited_for(false);
        loggers.set_flights(flights.count());
        if !landed.is_empty() {
            self.land(log, &landed, flights.count() > 0);
        }
        true
    }

    /// Applies and publishes what landed writes have brought to the disk.
    fn land(&self, log: &Log, landed: &[Taken], has_more: bool) {
        let now = self.env.clock.now();
        for Taken { requests, at, durability } in landed {
            if *durability == Durability::Synced {
                self.environment.note(Note::Synced { took: now.saturating_sub(*at), now });
            }
            self.loggers.give_back(*requests, now);
        }
        let written = log.written();
        let logged: Vec<_> = {
            let commit = self.lock_commit();
            let reached = commit.pending.iter().take_while(|request| request.lsn() <= written);
            reached.filter(|request| request.is_for_loggers() && request.is_logged(log)).cloned().collect()
        };
        logged.iter().for_each(|request| self.epilogue(request, Ok(())));
        LANDS.set(if has_more { self.address() } else { 0 });
        self.publish();
        LANDS.set(0);
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns true if a request waits to be durable. One that a write without durability has brought to the disk
    /// counts, too: only a sync makes it durable, and the sync has to get its turn.
    fn is_durability_wanted(&self, log: &Log) -> bool {
        let durable = log.durable();
        let commit = self.lock_commit();
        commit.pending.iter().rev().take_while(|request| request.lsn() > durable).any(|request| request.is_synced())
    }

    /// Runs one turn of a logger: carries on requests of waiting futures. Returns false if there were none.
    pub(crate) fn carry_futures(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let (waiting, taken) = self.take_for_logger();
        let Some(last) = waiting.last() else { return false };
        let started = self.env.clock.now();
        let logged = log.commit(last.lsn(), last.durability());
        let now = self.env.clock.now();
        if last.is_synced() {
            self.environment.note(Note::Synced { took: now.saturating_sub(started), now });
        }
        self.loggers.give_back(taken, now);
        for request in &waiting {
            self.epilogue(request, logged.clone());
        }
        self.publish();
        true
    }

    /// Returns the requests that a logger carries on together, in their order, and how many it has taken from the
    /// count.
    fn take_for_logger(&self) -> (Vec<Arc<Request<E>>>, usize) {
        let mut taken = 0;
        let mut waiting: Vec<Arc<Request<E>>> = {
            let commit = self.lock_commit();
            let waiting: Vec<_> = commit.pending.iter().filter(|r| r.is_for_loggers()).cloned().collect();
            if waiting.is_empty() {
                // Other threads have carried them on.
                self.loggers.forget(usize::MAX);
            } else {
                taken = self.loggers.take();
            }
            waiting
        };
        // One sync for all that want one; buffered ones before the first of them do not wait for it.
        match waiting.iter().position(|r| r.is_synced()) {
            Some(0) => {
                let last = waiting.iter().rposition(|r| r.is_synced()).unwrap_or(0);
                waiting.truncate(last + 1);
            }
            Some(at) => waiting.truncate(at),
            None => {}
        }
        (waiting, taken)
    }
}

/// Puts the record of a batch behind all others.
fn append<E: Environment>(log: &Log, commit: &Commit<E>, batch: &E::Batch) -> Result<Lsn, AppendError> {
    batch.record(commit.next_sequence(), |parts| log.append(parts))
}
