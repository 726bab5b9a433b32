//! Waits for an interrupt.
//!
//! A controller without a thread of its own works when the host calls it. So a host that waits lends its thread: the
//! wait lasts until a device below has something, until an event of the controller's own is due, or until another
//! thread posts a completion.
//!
//! **Threads.** A wait says that it waits, and then looks at the queues. A thread that puts an engine back stores the
//! engine's next events, and then looks for waits. So one of them sees the other.

use super::Shared;
use super::queues::Waits;
use situ_base::{Event, lock};
use situ_device::Watch;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The longest wait for one of several devices.
const SLICE: Duration = Duration::from_micros(20);

pub(super) struct InterruptWatch {
    shared: Weak<Shared>,
    vector: u16,
    woken: Arc<dyn Event>,
    /// Wakes that have ended a wait.
    seen: AtomicU64,
    is_waiting: AtomicBool,
    /// The watch of the device that the present wait is for.
    below: Mutex<Option<Arc<dyn Watch>>>,
    turn: AtomicUsize,
}

impl InterruptWatch {
    pub(super) fn new(shared: &Arc<Shared>, vector: u16) -> InterruptWatch {
        InterruptWatch {
            shared: Arc::downgrade(shared),
            vector,
            woken: shared.env.executor.event(),
            seen: AtomicU64::new(0),
            is_waiting: AtomicBool::new(false),
            below: Mutex::new(None),
            turn: AtomicUsize::new(0),
        }
    }

    /// Ends the present wait, if there is one: what it waits for has changed.
    pub(super) fn poke(&self) {
        if self.is_waiting.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn waits(&self, shared: &Shared) -> Waits {
        let mut all = Waits::default();
        let roster = shared.roster();
        for queue in roster.submission.iter().filter(|queue| queue.completion.vector == Some(self.vector)) {
            let waits = queue.waits();
            all.due = all.due.into_iter().chain(waits.due).min();
            all.watches.extend(waits.watches);
            all.is_unwatched |= waits.is_unwatched;
        }
        all
    }

    fn rest(&self, shared: &Shared, seen: u64, timeout: Option<Duration>) {
        let waits = self.waits(shared);
        let left = waits.due.map(|due| due.saturating_sub(shared.env.clock.now()));
        if waits.is_unwatched || left == Some(Duration::ZERO) {
            return shared.env.executor.yield_point();
        }
        let timeout = left.into_iter().chain(timeout).min();
        let count = waits.watches.len();
        let Some(watch) = waits.watches.get(self.turn.fetch_add(1, Ordering::Relaxed) % count.max(1)) else {
            self.woken.wait(seen, timeout);
            return;
        };
        let timeout = if count > 1 { Some(timeout.unwrap_or(SLICE).min(SLICE)) } else { timeout };
        *lock(&self.below) = Some(Arc::clone(watch));
        if self.woken.generation() == seen {
            watch.wait(timeout);
        }
        *lock(&self.below) = None;
    }
}

impl Watch for InterruptWatch {
    fn wait(&self, timeout: Option<Duration>) {
        let seen = self.seen.load(Ordering::Acquire);
        let shared = self.shared.upgrade();
        if let Some(shared) = shared.as_ref().filter(|shared| shared.roster().shadows.is_some()) {
            // No doorbell told of the last commands. Work of this thread ends no wait but by an interrupt.
            shared.settle();
        }
        self.is_waiting.store(true, Ordering::SeqCst);
        match shared {
            _ if self.woken.generation() != seen => {}
            Some(shared) => self.rest(&shared, seen, timeout),
            None => {
                self.woken.wait(seen, timeout);
            }
        }
        self.is_waiting.store(false, Ordering::SeqCst);
        self.seen.store(self.woken.generation(), Ordering::Release);
    }

    fn wake(&self) {
        self.woken.notify();
        let below = lock(&self.below).clone();
        below.into_iter().for_each(|below| below.wake());
    }
}
