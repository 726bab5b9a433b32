//! The threads that carry asynchronous writes through log and epilogue: one, and up to two more while they pay.
//!
//! A write of the log keeps its logger as long as the disk takes. What comes meanwhile waits, unless a second write goes
//! to the disk. How many are in flight is decided by trials (`depth.rs`). Who begins them depends on the log file:
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
//! **Invariant.** The first logger never sleeps while something waits: it is woken for each write, whatever the others
//! do. So the counts here may be off by what happens at the same moment, and only speed depends on them.
//!
//! **Idle**: all sleep. **Failure**: as in `stages.rs`; loggers go on after it, because every waiting caller is owed an
//! answer.

use crate::depth::Depth;
use situ_base::{Env, Event, lock};
use situ_device::Watch;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of threads: calls of the disk in flight at a time.
pub const LOGGERS_MAX: usize = 3;
/// Writes that one logger has in flight. The log has so many by default.
const FLIGHTS_MAX: usize = 8;
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
    /// Requests that no logger has taken.
    waiting: AtomicUsize,
    /// Requests that loggers have taken and whose pages are not on the disk.
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
            queue: LoggerQueue::default(),
        }
    }

    fn trials(max: usize, begins_high: bool) -> Depth {
        Depth::new(max, if begins_high { max } else { 1 })
    }

    /// Notes that there is one more request for the loggers.
    pub(crate) fn call(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
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
        let waiting = self.waiting.load(Ordering::SeqCst);
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        match self.queue.is_used.load(Ordering::Relaxed) {
            true => {
                let flights = self.queue.flights.load(Ordering::Relaxed);
                // Each write its share.
                waiting > 0 && flights < depth && waiting * depth >= in_flight
            }
            false => {
                (1..depth).contains(&self.at_work.load(Ordering::Relaxed)) && waiting >= in_flight.max(WAITING_MIN)
            }
        }
    }

    /// Returns true if the first logger, which has `flights` writes in its queue, is to begin another one.
    pub(crate) fn wants_flight(&self, flights: usize) -> bool {
        let is_first =
            flights == 0 && self.depth.load(Ordering::Relaxed) > 1 && self.waiting.load(Ordering::SeqCst) > 0;
        is_first || flights > 0 && self.another_pays()
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

    /// Notes that the first logger begins to wait for the disk, and wants to know if another write would pay.
    pub(crate) fn begin_wait(&self) {
        self.queue.is_waited_for.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end_wait(&self) {
        self.queue.is_waited_for.store(false, Ordering::Relaxed);
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

    /// Notes that the taken requests wait again.
    pub(crate) fn put_back(&self, taken: usize) {
        self.in_flight.fetch_sub(taken, Ordering::Relaxed);
        self.waiting.fetch_add(taken, Ordering::Relaxed);
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
