//! The threads that carry asynchronous writes through log and epilogue: one, and up to two more while they pay.
//!
//! A group of synced writes keeps its logger as long as the disk takes. What comes meanwhile waits, unless another
//! logger puts a second write in flight. That pays where the disk takes much longer than a switch of threads and works
//! on several writes at once, and where as much waits as is in flight already. Otherwise it only makes groups smaller.
//! SpanDB (FAST '21, section 4.2) found three loggers to saturate the fastest disks, and moves between one and three.
//!
//! 1. A caller's thread that leaves a write to the loggers counts it and wakes the first logger, if that sleeps.
//! 2. If [`another_pays`], it wakes one more.
//! 3. A logger takes all that wait, writes them, applies and publishes them. It goes on while there are more; a further
//!    logger goes on only while it pays.
//!
//! **Invariant.** The first logger never sleeps while something waits: it is woken for each write, whatever the others
//! do. So the counts here may be off by what happens at the same moment, and only speed depends on them.
//!
//! **Idle**: all sleep. **Failure**: as in `stages.rs`; loggers go on after it, because every waiting caller is owed an
//! answer.

use situ_base::{Env, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// More than three writes in flight have not been found to be any faster.
pub const LOGGERS_MAX: usize = 3;
/// Two switches of threads on a busy machine; a disk that is faster is waited for.
const SERVICE_NS_MIN: u64 = 40_000;
/// Fewer writes than this are not worth a group of their own.
const WAITING_MIN: usize = 4;

/// The state that the callers' threads and the loggers share.
pub(crate) struct Loggers {
    /// The maximum number of loggers at work at a time.
    max: usize,
    events: [Arc<dyn Event>; LOGGERS_MAX],
    /// Loggers in the middle of a turn.
    at_work: AtomicUsize,
    /// Writes that no logger has taken.
    waiting: AtomicUsize,
    /// Writes that loggers have taken and whose pages are not on the disk.
    in_flight: AtomicUsize,
    /// The time of a group of synced writes in the log, smoothed.
    service_ns: AtomicU64,
}

/// Returns true if one more logger is worth its switches.
fn another_pays(at_work: usize, waiting: usize, in_flight: usize, service_ns: u64) -> bool {
    (1..LOGGERS_MAX).contains(&at_work) && service_ns >= SERVICE_NS_MIN && waiting >= in_flight.max(WAITING_MIN)
}

impl Loggers {
    pub(crate) fn new(env: &Env, max: usize) -> Loggers {
        Loggers {
            max: max.clamp(1, LOGGERS_MAX),
            events: std::array::from_fn(|_| env.executor.event()),
            at_work: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            service_ns: AtomicU64::new(0),
        }
    }

    /// Notes that there is one more write for the loggers.
    pub(crate) fn call(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.events[0].notify();
        if self.another_pays() {
            let next = self.at_work.load(Ordering::Relaxed).clamp(1, LOGGERS_MAX - 1);
            self.events[next].notify();
        }
    }

    /// Returns true if one more logger would pay now.
    pub(crate) fn another_pays(&self) -> bool {
        let service_ns = self.service_ns.load(Ordering::Relaxed);
        // Looked at first: with a fast disk the rest is not needed.
        let at_work = self.at_work.load(Ordering::Relaxed);
        service_ns >= SERVICE_NS_MIN
            && at_work < self.max
            && another_pays(
                at_work,
                self.waiting.load(Ordering::Relaxed),
                self.in_flight.load(Ordering::Relaxed),
                service_ns,
            )
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

    /// Notes that a logger has taken all waiting writes. Returns how many it is to give back.
    pub(crate) fn take(&self) -> usize {
        let taken = self.waiting.swap(0, Ordering::Relaxed);
        self.in_flight.fetch_add(taken, Ordering::Relaxed);
        taken
    }

    /// Notes that the log has finished the taken writes, in `duration` if the disk was waited for.
    pub(crate) fn give_back(&self, taken: usize, duration: Option<Duration>) {
        self.in_flight.fetch_sub(taken, Ordering::Relaxed);
        if let Some(duration) = duration {
            let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            let old = self.service_ns.load(Ordering::Relaxed);
            // Two loggers may overwrite each other's sample; it is one of many.
            self.service_ns.store(if old == 0 { ns } else { old - old / 8 + ns / 8 }, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
