//! The waiting room: asynchronous writes that may not begin yet, in the order of the calls.
//!
//! `admission.rs` says who comes in and who goes out. What is here keeps count.
//!
//! **Bounded.** What is in the room takes up to [`WAITING_BYTES_MAX`] of memory; beyond, a call is refused. One write
//! is always let in, and so is a write whose bytes are its blocked caller's.
//!
//! **Failure.** No caller waits for ever: a write that leaves the room without a verdict, because a thread panicked
//! with it, is refused as it is dropped.

use crate::commit::{Request, Write};
use crate::environment::Environment;
use crate::outstanding::Outstanding;
use crate::parts::{Refusal, WALKED_MAX};
use situ_base::{lock, wake};
use situ_log::Durability;
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;
use std::time::Duration;

/// Asynchronous writes that wait may take this much memory together; one is always let in.
pub const WAITING_BYTES_MAX: u64 = 64 << 20;

/// The counters before what an `Arc` holds.
const SHARED_BYTES: usize = 2 * size_of::<usize>();
/// The approximate bytes that an allocation takes in addition to the requested ones.
const ALLOCATION_BYTES: usize = 16;

/// Returns the bytes that a write in the room takes in addition to what its batch holds. It has an entry in a map whose
/// nodes may be half empty, a part that it shares with its future, and three allocations.
pub(crate) const fn overhead_bytes<E: Environment>() -> u64 {
    (2 * (size_of::<u64>() + size_of::<Waiting<E>>())
        + size_of::<AdmissionOutcome<E>>()
        + SHARED_BYTES
        + 3 * ALLOCATION_BYTES) as u64
}

/// The outcome of a write in the room: a request, or the error that explains why there is none.
pub struct AdmissionOutcome<E: Environment> {
    outcome: OnceLock<Result<Arc<Request<E>>, E::Error>>,
    waker: Mutex<Option<Waker>>,
}

impl<E: Environment> AdmissionOutcome<E> {
    pub(crate) fn new() -> Arc<AdmissionOutcome<E>> {
        Arc::new(AdmissionOutcome { outcome: OnceLock::new(), waker: Mutex::default() })
    }

    pub(crate) fn get(&self) -> Option<&Result<Arc<Request<E>>, E::Error>> {
        self.outcome.get()
    }

    /// Leaves word whom to wake when it is there.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    pub(crate) fn take_waker(&self) -> Option<Waker> {
        lock(&self.waker).take()
    }
}

/// The state of an asynchronous write after the call.
pub enum Admission<E: Environment> {
    /// There was nothing to write.
    Empty,
    /// It has begun.
    Begun(Arc<Request<E>>),
    /// It waits to begin.
    Waits(Arc<AdmissionOutcome<E>>),
}

impl<E: Environment> Clone for Admission<E> {
    fn clone(&self) -> Admission<E> {
        match self {
            Admission::Empty => Admission::Empty,
            Admission::Begun(request) => Admission::Begun(Arc::clone(request)),
            Admission::Waits(verdict) => Admission::Waits(Arc::clone(verdict)),
        }
    }
}

/// A write in the room.
pub(crate) struct Waiting<E: Environment> {
    pub(crate) write: Write<E>,
    /// The bytes that it takes in the room; 0 if the caller bears them.
    pub(crate) charged_bytes: u64,
    pub(crate) durability: Durability,
    /// The time of its arrival.
    pub(crate) since: Duration,
    /// The time when its budget is due; chosen when it is the first.
    pub(crate) due: Option<Duration>,
    pub(crate) verdict: Arc<AdmissionOutcome<E>>,
    pub(crate) outstanding: Arc<Outstanding>,
}

impl<E: Environment> Waiting<E> {
    /// Decides the outcome of the write; the first decision counts. Calls no waker.
    pub(crate) fn decide(&self, outcome: Result<Arc<Request<E>>, E::Error>) {
        let _ = self.verdict.outcome.set(outcome);
    }
}

impl<E: Environment> Drop for Waiting<E> {
    /// Refuses an undecided write, so no caller waits for ever, even if a thread panics with the write in its hands.
    fn drop(&mut self) {
        self.decide(Err(Refusal::Closed.into()));
        // A request that has begun ends later.
        if matches!(self.verdict.get(), Some(Err(_))) {
            self.outstanding.end(1);
        }
        if let Some(waker) = self.verdict.take_waker() {
            wake(waker);
        }
    }
}

/// The writes inside, under the room's lock.
pub(crate) struct WaitingWrites<E: Environment> {
    /// By ticket: the order of the calls.
    pub(crate) writes: BTreeMap<u64, Waiting<E>>,
    bytes: u64,
    next_ticket: u64,
    /// No thread serves the room any more.
    closed: bool,
}

impl<E: Environment> WaitingWrites<E> {
    fn remove(&mut self, ticket: u64) -> Option<Waiting<E>> {
        let waiting = self.writes.remove(&ticket)?;
        self.bytes -= waiting.charged_bytes;
        Some(waiting)
    }

    /// Asserts that the room has the bytes of its writes, in the order of the calls, and that a closed room is empty.
    fn check(&self) {
        assert!(self.bytes == 0 || !self.writes.is_empty(), "an empty room is charged with {} bytes", self.bytes);
        assert!(!self.closed || self.writes.is_empty(), "{} writes wait in a closed room", self.writes.len());
        let last = self.writes.last_key_value().map(|(ticket, _)| *ticket);
        assert!(last < Some(self.next_ticket), "ticket {last:?} was not given out before {}", self.next_ticket);
        if cfg!(any(test, feature = "costly-checks")) && self.writes.len() <= WALKED_MAX {
            let bytes: u64 = self.writes.values().map(|waiting| waiting.charged_bytes).sum();
            assert_eq!(self.bytes, bytes, "the bytes of all writes in the room");
        }
    }
}

/// The place where asynchronous writes wait to begin.
pub(crate) struct WaitingRoom<E: Environment> {
    room: Mutex<WaitingWrites<E>>,
    /// The number of writes inside; written under the lock.
    count: AtomicUsize,
    /// Blocking writes that wait for those inside.
    followers: AtomicUsize,
}

impl<E: Environment> Default for WaitingRoom<E> {
    fn default() -> WaitingRoom<E> {
        let room = WaitingWrites { writes: BTreeMap::new(), bytes: 0, next_ticket: 0, closed: false };
        WaitingRoom { room: Mutex::new(room), count: AtomicUsize::new(0), followers: AtomicUsize::new(0) }
    }
}

impl<E: Environment> WaitingRoom<E> {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Writes that wait, and the memory they take.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let room = self.lock();
        (room.writes.len(), room.bytes)
    }

    /// Returns the room's lock, for a look at its first write.
    pub(crate) fn lock(&self) -> MutexGuard<'_, WaitingWrites<E>> {
        lock(&self.room)
    }

    /// Adds a write behind all others and charges it with `bytes` bytes. Returns true if it is the only one.
    ///
    /// # Errors
    /// The room is closed, or those inside take as much memory as they may.
    pub(crate) fn push(&self, charged_bytes: u64, waiting: impl FnOnce() -> Waiting<E>) -> Result<bool, Refusal> {
        let mut room = self.lock();
        self.check_count(&room);
        if room.closed {
            return Err(Refusal::Closed);
        }
        if charged_bytes > 0 && room.bytes + charged_bytes > WAITING_BYTES_MAX && !room.writes.is_empty() {
            return Err(Refusal::TooManyWaiting { waiting_bytes: room.bytes });
        }
        let ticket = room.next_ticket;
        room.next_ticket += 1;
        room.bytes += charged_bytes;
        room.writes.insert(ticket, waiting());
        self.count.store(room.writes.len(), Ordering::SeqCst);
        room.check();
        Ok(room.writes.len() == 1)
    }

    /// Asserts what those rely on who find the room empty without its lock, and then begin before all inside.
    fn check_count(&self, room: &WaitingWrites<E>) {
        let count = self.count.load(Ordering::SeqCst);
        assert_eq!(count, room.writes.len(), "the number of writes in the room");
    }

    /// Takes a write out, under the lock of `room`.
    pub(crate) fn remove_from(&self, room: &mut WaitingWrites<E>, ticket: u64) -> Option<Waiting<E>> {
        self.check_count(room);
        let waiting = room.remove(ticket);
        self.count.store(room.writes.len(), Ordering::SeqCst);
        room.check();
        waiting
    }

    pub(crate) fn remove(&self, ticket: u64) -> Option<Waiting<E>> {
        self.remove_from(&mut self.lock(), ticket)
    }

    /// Takes all writes out. If it `closes`, no write comes in any more.
    pub(crate) fn empty(&self, closes: bool) -> BTreeMap<u64, Waiting<E>> {
        let mut room = self.lock();
        self.check_count(&room);
        room.closed |= closes;
        room.bytes = 0;
        let left = take(&mut room.writes);
        self.count.store(0, Ordering::SeqCst);
        left
    }

    /// Returns the ticket that the next write gets: all inside have lower ones.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.lock().next_ticket
    }

    /// Returns true if all with tickets below `behind` have left.
    pub(crate) fn has_passed(&self, behind: u64) -> bool {
        self.lock().writes.first_key_value().is_none_or(|(first, _)| *first >= behind)
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }

    /// Notes that a blocking write begins to wait for those inside.
    pub(crate) fn follower_comes(&self) {
        self.followers.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn follower_goes(&self) {
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }
}
