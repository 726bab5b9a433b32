//! The threads that carry asynchronous writes through log and epilogue: one, and up to two more while they pay.
//!
//! A write of the log takes as long as the disk does. Requests that come meanwhile wait, unless a second write goes to
//! the disk. How many are in flight is decided by trials (`depth.rs`). Who begins them depends on the log file:
//!
//! * A file with a [queue](situ_storage::PageFile::queue) takes many writes of one thread. The first logger begins them
//!   all and lands them, and the others sleep.
//! * Otherwise a write is a call. Each in flight has a logger of its own, up to [`LOGGERS_MAX`].
//!
//! SpanDB (FAST '21, section 4.2) found three loggers to saturate the fastest disks, and moves between one and three.
//!
//! 1. A caller's thread that leaves a write to the loggers counts it and wakes the first logger, if that sleeps.
//! 2. If [`another_pays`](Loggers::another_pays), it wakes one more, or ends the first logger's wait for the disk.
//! 3. A logger takes all that wait, writes them, applies and publishes them. It goes on while there are more; a further
//!    logger goes on only while it pays.
//!
//! **Invariant.** The first logger never rests while a request waits: each one wakes it, whatever the others do. While
//! it waits for the disk, a waiting request is begun when that wait ends, at the latest. The counts here may be off by
//! what happens at the same moment. Only speed depends on them.
//!
//! **Idle**: all sleep. **Failure**: as in `stages.rs`; loggers go on after it, because every waiting caller is owed an
//! answer.

use crate::depth::Depth;
use situ_base::{Env, Event, lock};
use situ_device::Watch;
use situ_log::Durability;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of threads: calls of the disk in flight at a time.
pub const LOGGERS_MAX: usize = 3;
/// Writes that one logger has in flight: as many as a log has, by default.
const FLIGHTS_MAX: usize = 8;
/// Writes in a row without a request that wants durability, before the first one that is not durable.
const BUFFERED_MIN: usize = 64;
/// Fewer requests than this are not worth a call of their own.
const WAITING_MIN: usize = 4;

/// The state that the callers' threads and the loggers share.
pub(crate) struct Loggers {
    /// The most log writes in flight that are calls. With 1, the log has one in flight in any case.
    max: usize,
    /// A simulated run is too short for trials. It begins with the most in flight.
    begins_high: bool,
    events: [Arc<dyn Event>; LOGGERS_MAX],
    /// Loggers in the middle of a turn.
    at_work: AtomicUsize,
    /// Requests whose pages no logger has begun to write.
    waiting: AtomicUsize,
    /// Requests whose pages loggers have begun to write.
    in_flight: AtomicUsize,
    /// The number of log writes in flight to keep, as the trials say.
    depth: AtomicUsize,
    trials: Mutex<Depth>,
    queue: LoggerQueue,
}

/// The first logger's queue of the log file.
#[derive(Default)]
struct LoggerQueue {
    /// True while log writes go through a queue.
    is_used: AtomicBool,
    /// Writes in it.
    flights: AtomicUsize,
    /// True if a request has come since the logger looked.
    is_called: AtomicBool,
    /// Writes without durability in a row, as no request wanted more.
    buffered: AtomicUsize,
    /// The logger waits for the disk, and no thread has ended that wait.
    is_waited_for: AtomicBool,
    watch: Mutex<Option<Arc<dyn Watch>>>,
}

impl Loggers {
    pub(crate) fn new(env: &Env, max: usize) -> Loggers {
        let max = max.clamp(1, LOGGERS_MAX);
        let begins_high = !env.executor.is_machine();
        Loggers {
            max,
            begins_high,
            events: std::array::from_fn(|_| env.executor.event()),
            at_work: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            depth: AtomicUsize::new(if begins_high { max } else { 1 }),
            trials: Mutex::new(Loggers::trials(max, begins_high)),
            queue: LoggerQueue { buffered: AtomicUsize::new(BUFFERED_MIN), ..LoggerQueue::default() },
        }
    }

    fn trials(max: usize, begins_high: bool) -> Depth {
        Depth::new(max, if begins_high { max } else { 1 })
    }

    /// Notes that there is one more request for the loggers.
    pub(crate) fn call(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.queue.is_called.store(true, Ordering::SeqCst);
        self.events[0].notify();
        if !self.another_pays() {
            return;
        }
        if !self.queue.is_used.load(Ordering::Relaxed) {
            let next = self.at_work.load(Ordering::Relaxed).clamp(1, LOGGERS_MAX - 1);
            self.events[next].notify();
        } else if self.queue.is_waited_for.swap(false, Ordering::SeqCst) {
            // No lock is held across a wake.
            let watch = lock(&self.queue.watch).clone();
            watch.into_iter().for_each(|watch| watch.wake());
        }
    }

    /// Returns true if one more log write would pay now.
    pub(crate) fn another_pays(&self) -> bool {
        let depth = self.depth.load(Ordering::Relaxed);
        // Looked at first: with one write in flight the rest is not needed.
        if depth == 1 {
            return false;
        }
        let waiting = self.waiting.load(Ordering::Relaxed);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        match self.queue.is_used.load(Ordering::Relaxed) {
            true => self.queue.is_called.load(Ordering::SeqCst) && self.has_share(depth, waiting, in_flight),
            false => {
                (1..depth).contains(&self.at_work.load(Ordering::Relaxed)) && waiting >= in_flight.max(WAITING_MIN)
            }
        }
    }

    /// Returns true if another write in the queue has its share of the requests.
    fn has_share(&self, depth: usize, waiting: usize, in_flight: usize) -> bool {
        let flights = self.queue.flights.load(Ordering::Relaxed);
        waiting > 0 && flights < depth && waiting * depth >= in_flight
    }

    /// Notes that the first logger looks for requests.
    pub(crate) fn look(&self) {
        self.queue.is_called.store(false, Ordering::SeqCst);
    }

    /// Returns the number of waiting requests if the first logger is to begin a write in its queue. `has_full_write`
    /// says that so much waits that more would not go with it.
    pub(crate) fn wants_flight(&self, has_full_write: impl FnOnce() -> bool) -> Option<usize> {
        let depth = self.depth.load(Ordering::Relaxed);
        let waiting = self.waiting.load(Ordering::Relaxed);
        let flights = self.queue.flights.load(Ordering::Relaxed);
        let may_begin = depth > 1 && waiting > 0 && flights < depth;
        let is_worth_it = || {
            flights == 0 || self.has_share(depth, waiting, self.in_flight.load(Ordering::Relaxed)) || has_full_write()
        };
        (may_begin && is_worth_it()).then_some(waiting)
    }

    /// Returns the durability of the next write in the queue; `is_wanted` says that a request waits for it. A write
    /// without durability leaves a gap, which only a sync closes when all writes have landed. So it has to be the rule.
    pub(crate) fn durability(&self, is_wanted: bool) -> Durability {
        let buffered = if is_wanted { 0 } else { self.queue.buffered.load(Ordering::Relaxed) + 1 };
        self.queue.buffered.store(buffered, Ordering::Relaxed);
        if buffered > BUFFERED_MIN { Durability::Buffered } else { Durability::Synced }
    }

    /// Notes whether log writes go through a queue of the first logger, and its watch.
    pub(crate) fn use_queue(&self, watch: Option<Arc<dyn Watch>>) {
        let is_used = watch.is_some();
        *lock(&self.queue.watch) = watch;
        if self.queue.is_used.swap(is_used, Ordering::Relaxed) != is_used && self.max > 1 {
            let max = if is_used { FLIGHTS_MAX } else { self.max };
            *lock(&self.trials) = Loggers::trials(max, self.begins_high);
        }
    }

    /// Notes how many writes are in the queue.
    pub(crate) fn set_flights(&self, flights: usize) {
        self.queue.flights.store(flights, Ordering::Relaxed);
    }

    /// Notes whether the first logger waits for the disk, and wants to know if another write would pay.
    pub(crate) fn set_waited_for(&self, is_waited_for: bool) {
        self.queue.is_waited_for.store(is_waited_for, Ordering::SeqCst);
    }

    /// Returns the event on which logger `number` sleeps.
    pub(crate) fn event(&self, number: usize) -> &dyn Event {
        &*self.events[number]
    }

    pub(crate) fn wake_all(&self) {
        self.events.iter().for_each(|event| event.notify());
    }

    /// Notes that a logger begins a turn.
    pub(crate) fn begin_turn(&self) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_turn(&self) {
        self.at_work.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if no request waits for the log.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Notes that for `time` no request waited.
    pub(crate) fn rested(&self, time: Duration) {
        lock(&self.trials).rested(time);
    }

    /// Notes that a logger has taken all waiting requests. Returns how many it is to give back.
    pub(crate) fn take(&self) -> usize {
        let taken = self.waiting.swap(0, Ordering::Relaxed);
        self.in_flight.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    /// Notes that a logger has taken up to `most` waiting requests. Returns how many it is to give back.
    pub(crate) fn take_some(&self, most: usize) -> usize {
        let taken = self.forget(most);
        self.in_flight.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    /// Notes that up to `most` of the waiting requests were carried on by other threads. Returns how many.
    pub(crate) fn forget(&self, most: usize) -> usize {
        let forget = |waiting: usize| Some(waiting.saturating_sub(most));
        let before = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forget).unwrap_or(0);
        before.min(most)
    }

    /// Notes that the log has finished the taken requests, now.
    pub(crate) fn give_back(&self, taken: usize, now: Duration) {
        self.in_flight.fetch_sub(taken, Ordering::Relaxed);
        let mut trials = lock(&self.trials);
        trials.landed(now, taken);
        self.depth.store(trials.now(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
