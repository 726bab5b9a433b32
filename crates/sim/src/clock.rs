//! Simulated time.

use crate::executor::{SimExecutor, World};
use situ_base::{Clock, Env, SystemClock, ThreadExecutor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

/// The time of a [`SimExecutor`](crate::SimExecutor)'s machine. It stands still while threads compute, moves by 100 ns
/// at each yield point, and leaps to the nearest timeout when all threads wait.
///
/// Outside `run`, [`sleep`](Clock::sleep) simply moves it.
#[derive(Clone)]
pub struct SimClock {
    pub(crate) world: Arc<World>,
}

impl SimExecutor {
    /// Returns clock and executor of this machine, to open a store with.
    pub fn env(&self) -> Env {
        Env { clock: Arc::new(self.clock()), executor: Arc::new(self.clone()) }
    }

    /// This machine's time.
    pub fn clock(&self) -> SimClock {
        SimClock { world: Arc::clone(&self.world) }
    }
}

impl SimClock {
    /// Moves the monotonic and the wall clock forwards, as if the machine had been busy or suspended. Timeouts that
    /// pass expire at the next yield point.
    pub fn advance(&self, by: Duration) {
        let mut state = self.world.lock();
        state.now = state.now.saturating_add(by);
    }

    /// Sets the wall clock, forwards or backwards, as an administrator or NTP does. The monotonic clock is untouched.
    pub fn set_unix(&self, since_1970: Duration) {
        let mut state = self.world.lock();
        state.unix_offset = nanoseconds(since_1970) - nanoseconds(state.now);
    }
}

/// A machine's clock in the hands of a test, which sets the wall clock, lets time pass, and reboots the machine.
#[derive(Debug, Default)]
pub struct SetClock {
    system: SystemClock,
    /// Added to uptime and wall clock.
    passed_ns: AtomicI64,
    /// Added to the wall clock.
    set_ns: AtomicI64,
    /// The machine's uptime at the boot.
    booted_ns: AtomicI64,
    boots: AtomicU8,
}

impl SetClock {
    /// Returns an environment with the machine's threads and this clock.
    pub fn env(self: &Arc<SetClock>) -> Env {
        Env { clock: Arc::clone(self) as _, executor: Arc::new(ThreadExecutor) }
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: i64) {
        self.passed_ns.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    }

    /// Sets the wall clock forwards, or backwards.
    pub fn set(&self, seconds: i64) {
        self.set_ns.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
    }

    /// Boots the machine.
    pub fn boot_again(&self) {
        let since_boot = nanoseconds(self.uptime()) as i64;
        self.booted_ns.fetch_add(since_boot, Ordering::SeqCst);
        self.boots.fetch_add(1, Ordering::SeqCst);
    }
}

fn moved(time: Duration, by_ns: i64) -> Duration {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(nanoseconds.saturating_add_signed(by_ns))
}

impl Clock for SetClock {
    fn now(&self) -> Duration {
        self.system.now()
    }

    fn unix(&self) -> Duration {
        moved(self.system.unix(), self.passed_ns.load(Ordering::SeqCst) + self.set_ns.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        let uptime = moved(self.system.uptime(), self.passed_ns.load(Ordering::SeqCst));
        moved(uptime, -self.booted_ns.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some([self.boots.load(Ordering::SeqCst); 16])
    }

    fn sleep(&self, duration: Duration) {
        self.system.sleep(duration);
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    // A Duration has at most 2^94 nanoseconds.
    duration.as_nanos() as i128
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        self.world.lock().now
    }

    fn unix(&self) -> Duration {
        let state = self.world.lock();
        let nanos = (nanoseconds(state.now) + state.unix_offset).max(0) as u128;
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Duration::new(seconds, (nanos % 1_000_000_000) as u32)
    }

    /// Returns the one boot: simulated machines never reboot. A test that needs another boot wraps the clock.
    fn boot(&self) -> Option<[u8; 16]> {
        Some([1; 16])
    }

    fn sleep(&self, duration: Duration) {
        self.world.sleep(duration);
    }
}

impl fmt::Debug for SimClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimClock({:?})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimExecutor;

    #[test]
    fn the_wall_clock_jumps_both_ways_and_the_monotonic_one_never_back() {
        let clock = SimExecutor::new(1).clock();
        let before = clock.now();
        clock.set_unix(Duration::from_secs(10));
        assert_eq!(clock.unix(), Duration::from_secs(10));
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.unix(), Duration::from_secs(15));
        clock.set_unix(Duration::ZERO);
        assert_eq!(clock.unix(), Duration::ZERO);
        assert_eq!(clock.now(), before + Duration::from_secs(5));
    }
}
