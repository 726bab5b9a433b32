//! Simulated time.

use crate::executor::World;
use situ_device::Clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The time of a [`SimExecutor`](crate::SimExecutor)'s machine. It stands still while threads compute, moves by 100 ns
/// at each yield point, and leaps to the nearest timeout when all threads wait.
///
/// Outside `run`, [`sleep`](Clock::sleep) simply moves it.
#[derive(Clone)]
pub struct SimClock {
    pub(crate) world: Arc<World>,
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
