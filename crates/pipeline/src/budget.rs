//! The budget of slowed writers: bytes a second, shared by all.
//!
//! The part of the store that measures its debt [sets](Budget::set) the budget. It is a virtual clock. Each write moves
//! the clock forward by its bytes' time and waits until it is due, but never longer than [`DELAY_MS_MAX`]. A blocking
//! write sleeps; an asynchronous one waits outside of any thread of its caller (`admission.rs`).
//!
//! **Threads.** While writers are slowed, a write costs one atomic add and two looks at the clock. One write in
//! [`REFRESH_MS`] asks the environment to measure the debt, with no lock held. While writers are not slowed, a write
//! costs one atomic load.

use situ_base::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest that one write is held back at a time.
const DELAY_MS_MAX: u64 = 50;
/// The budget of slowed writers is never older.
const REFRESH_MS: u64 = 20;
/// Sleeping costs about as much as this; shorter waits are gathered.
const SLEEP_NS_MIN: u64 = 100_000;

/// See the module's documentation. All zero: no limit.
#[derive(Debug, Default)]
pub struct Budget {
    /// Nanoseconds of budget that a thousand bytes cost; 0 while writers are not slowed.
    ns_per_byte_x1000: AtomicU64,
    /// The time when the next byte is due, in nanoseconds of the clock.
    due_ns: AtomicU64,
    /// The time when the budget is to be measured again, in nanoseconds of the clock.
    refresh_ns: AtomicU64,
}

impl Budget {
    /// Lets writers write `bytes_per_s` bytes a second from `now` on; with `None`, as many as they like. Returns true
    /// if writers are slowed now and were not before, or the other way round.
    pub fn set(&self, now: Duration, bytes_per_s: Option<f64>) -> bool {
        self.refresh_ns.store(now.as_nanos() as u64 + REFRESH_MS * 1_000_000, Ordering::Relaxed);
        let price = bytes_per_s.map_or(0, |rate| ((1e12 / rate) as u64).max(1));
        let before = self.ns_per_byte_x1000.swap(price, Ordering::Relaxed);
        (before == 0) != (price == 0)
    }

    /// Returns the bytes a second that writers may write now; `None` if they are not slowed.
    pub fn limit_bytes_per_s(&self) -> Option<u64> {
        let price = self.ns_per_byte_x1000.load(Ordering::Relaxed);
        (price != 0).then(|| 1_000_000_000_000 / price)
    }

    /// Takes `bytes` out of the budget. Returns how long the writer is to wait: zero if nothing is to be gathered yet.
    #[inline]
    pub(crate) fn charge(&self, clock: &dyn Clock, bytes: u64) -> Duration {
        match self.ns_per_byte_x1000.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            price => self.delay(clock, bytes, price),
        }
    }

    /// Returns true if writers are slowed and the debt was not measured for a while. Only one caller gets true, and
    /// sees to the measurement.
    #[inline]
    pub(crate) fn is_old(&self, clock: &dyn Clock) -> bool {
        if self.ns_per_byte_x1000.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = clock.now().as_nanos() as u64;
        let due = self.refresh_ns.load(Ordering::Relaxed);
        let next = now + REFRESH_MS * 1_000_000;
        now >= due && self.refresh_ns.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn delay(&self, clock: &dyn Clock, bytes: u64, price: u64) -> Duration {
        let now = clock.now().as_nanos() as u64;
        let cost = bytes.saturating_mul(price) / 1000;
        let delay_max = DELAY_MS_MAX * 1_000_000;
        // Unused time is not saved up, and what is owed stays within what one write can wait for.
        let charge = |due: u64| Some(due.clamp(now, now + delay_max).saturating_add(cost));
        let due = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).unwrap_or(now);
        let delay = due.saturating_sub(now).min(delay_max);
        Duration::from_nanos(if delay < SLEEP_NS_MIN { 0 } else { delay })
    }
}

#[cfg(test)]
mod tests;
