//! Admission: when a write may begin, and where it waits until then.
//!
//! A write is held back by the budget of a store in debt (`stall.rs`) or by an [`Obstacle`]: all memtables of a keyspace
//! are full, its level 0 is, no log file with room is ready, the log's page buffer is full. A blocking write waits, and clears the way, on
//! its own thread. An asynchronous one never does:
//!
//! 1. If nobody waits, it is tried at once, and mostly begins.
//! 2. Otherwise it goes to the back of the *waiting room*, and its future stays pending.
//! 3. The thread `situ-admit` takes the first one in the room, sleeps until its budget is due, begins it as soon as
//!    nothing is in its way, and wakes its future. What has to be done for that (a log file made ready, the page buffer
//!    written out) it does itself; a flush that frees a memtable wakes it.
//!
//! **Order.** Asynchronous writes begin in the order of the calls. A blocking write begins after all asynchronous ones
//! whose calls had returned before it was called. So of two writes of one caller that both succeed, the one called first
//! has the lower sequence numbers, whatever their kinds. A write behind others waits for them even if it could begin:
//! a full keyspace holds back asynchronous writes to all of them.
//!
//! **Cancelling.** There is none: a write takes place whether its future is kept or dropped. Otherwise it would depend on
//! how busy the store is what becomes of a write whose future nobody keeps.
//!
//! **Bounded.** What is in the room takes up to [`WAITING_BYTES_MAX`] of memory, many small writes as well as a few large
//! ones; beyond, a call is refused.
//!
//! **Threads.** The room's lock is taken before the commit lock and held across nothing that blocks or notifies. A write
//! leaves the room under its lock, after its sequence numbers are given out: who finds the room empty comes after all
//! that were in it.
//!
//! **Failure.** A store that closes or fails answers all that wait with its reason. While flushes (the compactions that
//! would make room in level 0) fail, a write for which there is no memtable (no room in level 0) is answered with why, as a
//! blocking one is. A waker that panics harms nobody else: all that leave the room have their answers before the first of
//! them is woken.
//!
//! **Rejected:** to let the future try again when it is polled. Whoever holds a future without polling it would then hold
//! up all that wait behind it.

use crate::base::options::Durability;
use crate::base::sync::{lock, wake};
use crate::pipeline::Pipeline;
use crate::pipeline::commit::{Caller, Obstacle, Request, Write};
use crate::pipeline::log_area::Releasing;
use crate::pipeline::outstanding::Outstanding;
use crate::versions::keyspace::KeyspaceCore;
use crate::{Error, Result};
use situ_device::Event;
use situ_log::{Log, LogOptions};
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Asynchronous writes that wait may take this much memory together; one is always let in.
pub(crate) const WAITING_BYTES_MAX: u64 = 64 << 20;

/// What a write in the room takes beside what its batch holds: its entry in a map whose nodes may be half empty, what it
/// shares with its future, and the allocator's part in three allocations.
const WAITING_OVERHEAD_BYTES: u64 = (2 * (size_of::<u64>() + size_of::<Waiting>())
    + size_of::<AdmissionOutcome>()
    + SHARED_BYTES
    + 3 * ALLOCATION_BYTES) as u64;
/// The counters before what an `Arc` holds.
const SHARED_BYTES: usize = 2 * size_of::<usize>();
/// What an allocation takes beside what was asked for, about.
const ALLOCATION_BYTES: usize = 16;

/// What becomes of a write in the room: a request, or why there is none.
#[derive(Default)]
pub(crate) struct AdmissionOutcome {
    outcome: OnceLock<Result<Arc<Request>>>,
    waker: Mutex<Option<Waker>>,
}

impl AdmissionOutcome {
    pub(crate) fn get(&self) -> Option<&Result<Arc<Request>>> {
        self.outcome.get()
    }

    /// Leaves word whom to wake when it is there.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    fn take_waker(&self) -> Option<Waker> {
        lock(&self.waker).take()
    }
}

/// A write in the room.
struct Waiting {
    write: Write,
    /// What it takes in the room.
    charged_bytes: u64,
    durability: Durability,
    /// When it came.
    since: Duration,
    /// When its budget is due; chosen when it is the first.
    due: Option<Duration>,
    verdict: Arc<AdmissionOutcome>,
    outstanding: Arc<Outstanding>,
}

impl Waiting {
    /// Says what becomes of the write; the first word counts. Calls nobody.
    fn decide(&self, outcome: Result<Arc<Request>>) {
        let _ = self.verdict.outcome.set(outcome);
    }
}

impl Drop for Waiting {
    /// Nobody waits for ever, even if a thread panics with the write in its hands.
    fn drop(&mut self) {
        self.decide(Err(Error::Closed));
        // A request that has begun ends later.
        if matches!(self.verdict.get(), Some(Err(_))) {
            self.outstanding.end(1);
        }
        if let Some(waker) = self.verdict.take_waker() {
            wake(waker);
        }
    }
}

#[derive(Default)]
struct WaitingWrites {
    /// By ticket: the order of the calls.
    writes: BTreeMap<u64, Waiting>,
    bytes: u64,
    next_ticket: u64,
    /// Nobody serves the room any more.
    closed: bool,
}

impl WaitingWrites {
    fn remove(&mut self, ticket: u64) -> Option<Waiting> {
        let waiting = self.writes.remove(&ticket)?;
        self.bytes -= waiting.charged_bytes;
        Some(waiting)
    }
}

/// Where asynchronous writes wait to begin.
#[derive(Default)]
pub(crate) struct WaitingRoom {
    room: Mutex<WaitingWrites>,
    /// How many are inside; written under the lock.
    count: AtomicUsize,
    /// Blocking writes that wait for those inside.
    followers: AtomicUsize,
}

impl WaitingRoom {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Writes that wait, and the memory they take.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let room = lock(&self.room);
        (room.writes.len(), room.bytes)
    }

    fn remove(&self, ticket: u64) -> Option<Waiting> {
        let mut room = lock(&self.room);
        let waiting = room.remove(ticket);
        self.count.store(room.writes.len(), Ordering::SeqCst);
        waiting
    }
}

/// Where an asynchronous write is after the call.
#[derive(Clone)]
pub(crate) enum Admission {
    /// There was nothing to write.
    Empty,
    Begun(Arc<Request>),
    Waits(Arc<AdmissionOutcome>),
}

/// A commit that finds so often that more was published during its check than is kept takes its turn with the asynchronous
/// writes: those that come later wait until it has begun.
const FORGOTTEN_MAX: u32 = 2;

/// Wakes a thread that waits for a verdict.
struct Wakes(Arc<dyn Event>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

impl Pipeline {
    /// The prologue of a blocking write.
    pub(crate) fn admit(&self, mut write: Write, durability: Durability) -> Result<Arc<Request>> {
        self.writable()?;
        self.follow()?;
        self.stall.admit(self, write.batch.bytes() as u64);
        let mut forgotten = 0;
        loop {
            let seen = self.progress.generation();
            let obstacle = match self.try_prologue(write, Caller::Thread, durability) {
                Ok(request) => return Ok(request),
                Err((returned, obstacle)) => {
                    write = returned;
                    obstacle
                }
            };
            if matches!(&obstacle, Obstacle::Unchecked(unchecked) if unchecked.may_read()) {
                forgotten += 1;
                if forgotten == FORGOTTEN_MAX {
                    return self.admit_in_turn(write, durability);
                }
            }
            self.note_stop(&obstacle);
            if !self.remove_obstacle(obstacle)? {
                let started = self.env.clock.now();
                self.progress.wait(seen, None);
                self.stall.stopped(self, self.env.clock.now().saturating_sub(started));
            }
            self.writable()?;
        }
    }

    /// The prologue of a blocking write, begun by the admission thread. Its bytes are its caller's, and it has been slowed down
    /// already.
    fn admit_in_turn(&self, write: Write, durability: Durability) -> Result<Arc<Request>> {
        self.outstanding.begin();
        let place = self.take_place(write, durability, 0, Some(Duration::ZERO));
        let verdict = place.inspect_err(|_| self.outstanding.end(1))?;
        let event = self.env.executor.event();
        let waker = Waker::from(Arc::new(Wakes(Arc::clone(&event))));
        loop {
            let seen = event.generation();
            verdict.wake_with(&waker);
            if let Some(outcome) = verdict.get() {
                return outcome.clone();
            }
            event.wait(seen, None);
        }
    }

    /// The prologue of an asynchronous write, or a place to wait for it.
    pub(crate) fn admit_async(&self, write: Write, durability: Durability) -> Result<Admission> {
        self.writable()?;
        // Before: it may have ended when the call returns.
        self.outstanding.begin();
        self.find_place(write, durability).inspect_err(|_| self.outstanding.end(1))
    }

    fn find_place(&self, mut write: Write, durability: Durability) -> Result<Admission> {
        let mut delay = None;
        if self.waiting_room.is_empty() {
            self.stall.refresh(self);
            let charged = self.stall.charge(self, write.batch.bytes() as u64);
            if charged.is_zero() {
                loop {
                    match self.try_prologue(write, Caller::Future, durability) {
                        Ok(request) => {
                            self.log_and_apply_async(&request);
                            return Ok(Admission::Begun(request));
                        }
                        Err((_, Obstacle::Refused(error))) => return Err(*error),
                        Err((returned, Obstacle::Unchecked(unchecked))) if !unchecked.may_read() => {
                            write = returned;
                            unchecked.look()?;
                        }
                        Err((returned, _)) => {
                            write = returned;
                            break;
                        }
                    }
                }
            }
            delay = Some(charged);
        }
        let charged_bytes = write.bytes() + WAITING_OVERHEAD_BYTES;
        self.take_place(write, durability, charged_bytes, delay).map(Admission::Waits)
    }

    /// A place at the end of the waiting room, from which the write begins `delay` from now if it is the first then.
    fn take_place(
        &self,
        write: Write,
        durability: Durability,
        charged_bytes: u64,
        delay: Option<Duration>,
    ) -> Result<Arc<AdmissionOutcome>> {
        let since = self.env.clock.now();
        let verdict = Arc::new(AdmissionOutcome::default());
        let first = {
            let mut room = lock(&self.waiting_room.room);
            if room.closed {
                return Err(Error::Closed);
            }
            if charged_bytes > 0 && room.bytes + charged_bytes > WAITING_BYTES_MAX && !room.writes.is_empty() {
                return Err(Error::TooManyWaiting { waiting_bytes: room.bytes });
            }
            let ticket = room.next_ticket;
            room.next_ticket += 1;
            room.bytes += charged_bytes;
            let waiting = Waiting {
                write,
                charged_bytes,
                durability,
                since,
                due: delay.map(|delay| since + delay),
                verdict: Arc::clone(&verdict),
                outstanding: Arc::clone(&self.outstanding),
            };
            room.writes.insert(ticket, waiting);
            self.waiting_room.count.store(room.writes.len(), Ordering::SeqCst);
            room.writes.len() == 1
        };
        if first {
            self.progress.notify();
        }
        Ok(verdict)
    }

    /// A blocking write waits here for the asynchronous ones that were called before it.
    fn follow(&self) -> Result<()> {
        let room = &self.waiting_room;
        if room.is_empty() {
            return Ok(());
        }
        let behind = lock(&room.room).next_ticket;
        room.followers.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            let seen = self.progress.generation();
            if lock(&room.room).writes.first_key_value().is_none_or(|(first, _)| *first >= behind) {
                break Ok(());
            }
            if let Err(error) = self.writable() {
                break Err(error);
            }
            self.progress.wait(seen, None);
        };
        room.followers.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Does what can be done about an obstacle. True if the write may be tried again now, false if it is to wait for the
    /// store's progress; an error if it never will begin.
    pub(crate) fn remove_obstacle(&self, obstacle: Obstacle) -> Result<bool> {
        match obstacle {
            Obstacle::Refused(error) => Err(*error),
            Obstacle::Unchecked(unchecked) => unchecked.look().map(|()| true),
            Obstacle::NoLogFile { bytes, file } => {
                let ready = match self.prepare_log(bytes) {
                    Err(error) if error.is_no_space() => return self.make_room_for_log(bytes, file, error),
                    Err(error) => {
                        // The flusher goes on trying, and tells the listener of that and of its end.
                        self.log_wanted.store(true, Ordering::Release);
                        self.work.notify();
                        return Err(error);
                    }
                    Ok(ready) => ready,
                };
                if !ready && !self.log_area_stops.swap(true, Ordering::Relaxed) {
                    self.health.stats.counters.write_stops.add(1);
                }
                Ok(ready)
            }
            Obstacle::LogBufferFull => {
                let log = self.writable()?;
                if let Err(error) = log.commit(log.appended(), Durability::Buffered.into()) {
                    self.health.fail(error);
                }
                Ok(true)
            }
            Obstacle::MemtablesFull { .. } => {
                // While flushes fail (a full disk), nobody knows when there will be room: the writer is told instead of
                // waiting.
                self.check_flushes()?;
                self.work.notify();
                Ok(false)
            }
            Obstacle::Level0Full { keyspace } => {
                // The same while the compactions that would make room fail.
                match self.above().and_then(|above| above.why_level0_stays(&keyspace)) {
                    None => {
                        self.work.notify();
                        Ok(false)
                    }
                    Some(cause) => Err(Error::Level0Full {
                        keyspace: keyspace.name.clone(),
                        tables: keyspace.view.load().version.levels[0].files.len(),
                        cause: Box::new(cause),
                    }),
                }
            }
        }
    }

    /// The disk has no room for a log file of the ordinary length, which is what `error` says: a flush may give some back that is
    /// due, or for which a memtable can be sealed; or a short file is enough. True and false as
    /// [`remove_obstacle`](Pipeline::remove_obstacle) says. `file` is the log's file of before.
    fn make_room_for_log(&self, bytes: u64, file: u64, error: Error) -> Result<bool> {
        let log = self.writable()?;
        // Others come to the end of a file at the same time.
        let others = || match (log.file() != file, self.a_flush_is_due_that_frees_log()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        };
        if let Some(way) = others() {
            return Ok(way);
        }
        // A flush may have ended since.
        self.remove_what_nobody_needs(log)?;
        if self.prepare_log(bytes).is_ok_and(|ready| ready) {
            return Ok(true);
        }
        if let Some(way) = others() {
            return Ok(way);
        }
        self.check_flushes().or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })?;
        let made = match self.goes_on_in_a_short_log(bytes) {
            Ok(false) => self.seal_for_room(),
            // Somebody else has taken the room since this writer looked.
            Err(taken) if taken.is_no_space() => self.seal_for_room(),
            short => short,
        };
        match made {
            Ok(true) => {
                self.work.notify();
                Ok(true)
            }
            Err(other) if !other.is_no_space() => Err(other),
            Ok(false) | Err(_) => {
                if let Some(way) = others() {
                    return Ok(way);
                }
                // A log that has only begun has not asked the flusher for its next file yet, and it is the flusher that goes on trying.
                self.log_wanted.store(true, Ordering::Release);
                self.work.notify();
                Err(error)
            }
        }
    }

    /// Removes tables that a compaction has replaced, and log files that had not been written out, or were noted as needed, when the
    /// last flush ended.
    fn remove_what_nobody_needs(&self, log: &Log) -> Result<()> {
        // Other writers wait for this one, instead of being refused.
        let _releasing = Releasing::begin(self);
        self.versions.delete_obsolete();
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        if self.needs_less_log_than_noted()
            && let Err(error) = self.note_log_numbers()
        {
            // The disk may have no room for the note.
            self.health.note_job_failure("recycle log", error);
        }
        self.release_logs();
        Ok(())
    }

    /// False if what memtables have, and this write, would then perhaps find no room for its table; or if nobody knows what room
    /// there is, as under a quota.
    pub(crate) fn goes_on_in_a_short_log(&self, bytes: u64) -> Result<bool> {
        let space = self.versions.volume.space();
        let free = space.logical_total.saturating_sub(space.logical_used);
        let in_memory =
            |keyspace: &Arc<KeyspaceCore>| keyspace.view.load().slots().map(|slot| slot.bytes()).sum::<u64>();
        let unflushed: u64 = self.versions.keyspaces().iter().map(in_memory).sum();
        let file = LogOptions::default().first_file_bytes.max(bytes);
        let is_limited = free >= self.writable()?.file_bytes_for(bytes);
        if is_limited || free < file.saturating_add(bytes).saturating_add(unflushed) || self.check_flushes().is_err() {
            return Ok(false);
        }
        self.prepare_short_log(bytes, u64::MAX).map(|()| true)
    }

    /// One turn of the admission thread: begins the first write in the room. Tells it to wait for progress beyond what it
    /// has seen, and for how long at most, if there is nothing else to do.
    pub(crate) fn admit_first(&self) -> Option<(u64, Option<Duration>)> {
        let seen = self.progress.generation();
        if let Err(error) = self.writable() {
            self.refuse_waiting(&error);
            return Some((seen, None));
        }
        self.stall.refresh(self);
        let now = self.env.clock.now();
        let (attempt, news) = {
            let mut room = lock(&self.waiting_room.room);
            let Some((&ticket, first)) = room.writes.iter_mut().next() else { return Some((seen, None)) };
            let bytes = first.write.batch.bytes() as u64;
            let due = *first.due.get_or_insert_with(|| now + self.stall.charge(self, bytes));
            if due > now {
                return Some((seen, Some(due - now)));
            }
            let (write, durability) = (take(&mut first.write), first.durability);
            let (begun, news) = {
                let mut commit = lock(&self.commit);
                let begun = self.prologue(&mut commit, write, Caller::Future, durability);
                (begun, commit.take_work())
            };
            let attempt = match begun {
                Ok(request) => {
                    // Before anything else can go wrong: from now on the request is what answers.
                    first.decide(Ok(Arc::clone(&request)));
                    let left = room.remove(ticket);
                    self.waiting_room.count.store(room.writes.len(), Ordering::SeqCst);
                    Ok((request, left))
                }
                Err((write, obstacle)) => {
                    first.write = write;
                    Err((ticket, obstacle))
                }
            };
            (attempt, news)
        };
        self.tell_background(news);
        self.room_left();
        if let Err((_, obstacle)) = &attempt {
            self.note_stop(obstacle);
        }
        match attempt {
            Ok((request, left)) => {
                self.log_and_apply_async(&request);
                if self.waiting_room.followers.load(Ordering::SeqCst) > 0 {
                    self.progress.notify();
                }
                if let Some(left) = left {
                    self.stall.stopped(self, self.env.clock.now().saturating_sub(left.since));
                    self.wake_decided(left);
                }
            }
            Err((ticket, obstacle)) => match self.remove_obstacle(obstacle) {
                Ok(true) => {}
                Ok(false) => return Some((seen, None)),
                Err(error) => {
                    if let Some(left) = self.waiting_room.remove(ticket) {
                        left.decide(Err(error));
                        self.wake_decided(left);
                    }
                    self.progress.notify();
                }
            },
        }
        None
    }

    /// Answers all that wait. Of a store that closes, the room closes with it.
    fn refuse_waiting(&self, error: &Error) {
        let left = {
            let mut room = lock(&self.waiting_room.room);
            room.closed |= self.health.is_closing();
            room.bytes = 0;
            let left = take(&mut room.writes);
            self.waiting_room.count.store(0, Ordering::SeqCst);
            left
        };
        left.values().for_each(|waiting| waiting.decide(Err(error.clone())));
        left.into_values().for_each(|waiting| self.wake_decided(waiting));
    }

    /// Wakes the future of a write that has left the room. To be called without a lock: what is woken may poll, or do as
    /// it likes.
    fn wake_decided(&self, left: Waiting) {
        // What a transaction holds is given back first: whoever is woken may begin another one.
        if let Some(condition) = &left.write.condition {
            condition.release();
        }
        self.health.wake(left.verdict.take_waker());
    }
}
