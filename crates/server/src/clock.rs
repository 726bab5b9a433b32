//! The time by which items expire: wall time that does not jump.
//!
//! Wall time is read once, at the start, and advanced by the time that really passes, sleep of the machine included.
//! What happens to the system's wall clock after that is followed at a tenth of the speed of time: where the two differ
//! by an hour, they agree again ten hours later. So a clock that is wrong for a while makes no waiting `flush_all` due,
//! expires nothing for good and brings nothing expired back. A restart takes the wall clock as it is.
//!
//! **Invariant.** The time given never goes back.
//! **Threads.** Any: a few atomic loads, and a look at the wall clock every [`FOLLOW_EVERY_NS`] by one of them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

const SECOND_NS: i64 = 1_000_000_000;
/// How often the wall clock is looked at.
const FOLLOW_EVERY_NS: i64 = SECOND_NS / 10;
/// The wall clock is followed by this part of the time passed.
const FOLLOW_PART: i64 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    /// What this clock shows when the machine's uptime is 0, in nanoseconds of Unix time.
    origin_ns: AtomicI64,
    /// Uptime at which the wall clock was last looked at.
    followed_ns: AtomicI64,
    /// The latest time given, in seconds.
    given_seconds: AtomicI64,
    /// For tests: added to the machine's uptime, and to its wall clock.
    passed_ns: AtomicI64,
    jumped_ns: AtomicI64,
}

impl Default for SteadyClock {
    fn default() -> SteadyClock {
        let clock = SteadyClock {
            origin_ns: AtomicI64::new(0),
            followed_ns: AtomicI64::new(0),
            given_seconds: AtomicI64::new(0),
            passed_ns: AtomicI64::new(0),
            jumped_ns: AtomicI64::new(0),
        };
        let uptime = clock.uptime_ns();
        clock.origin_ns.store(clock.wall_ns() - uptime, Ordering::Relaxed);
        clock.followed_ns.store(uptime, Ordering::Relaxed);
        clock
    }
}

impl SteadyClock {
    /// Unix time in seconds.
    pub(crate) fn unix_seconds(&self) -> u64 {
        let uptime = self.uptime_ns();
        let followed = self.followed_ns.load(Ordering::Relaxed);
        let passed = uptime - followed;
        if passed >= FOLLOW_EVERY_NS
            && self.followed_ns.compare_exchange(followed, uptime, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let behind = self.wall_ns() - uptime - self.origin_ns.load(Ordering::Relaxed);
            let most = passed / FOLLOW_PART;
            self.origin_ns.fetch_add(behind.clamp(-most, most), Ordering::Relaxed);
        }
        let now = (uptime + self.origin_ns.load(Ordering::Relaxed)) / SECOND_NS;
        let given = self.given_seconds.load(Ordering::Relaxed);
        // Following backwards holds the time for a moment instead of turning it back.
        let now = if now > given { self.given_seconds.fetch_max(now, Ordering::Relaxed).max(now) } else { given };
        u64::try_from(now).unwrap_or(0)
    }

    fn uptime_ns(&self) -> i64 {
        let uptime = clock_gettime(ClockId::Boottime);
        uptime.tv_sec * SECOND_NS + uptime.tv_nsec + self.passed_ns.load(Ordering::Relaxed)
    }

    fn wall_ns(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let moved = self.passed_ns.load(Ordering::Relaxed) + self.jumped_ns.load(Ordering::Relaxed);
        i64::try_from(now).unwrap_or(i64::MAX / 2) + moved
    }

    /// Lets time pass.
    #[cfg(test)]
    pub(crate) fn pass(&self, seconds: i64) {
        self.passed_ns.fetch_add(seconds * SECOND_NS, Ordering::Relaxed);
    }

    /// Moves the wall clock alone.
    #[cfg(test)]
    pub(crate) fn jump(&self, seconds: i64) {
        self.jumped_ns.fetch_add(seconds * SECOND_NS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_followed_by_a_tenth_of_the_time_that_passes_and_time_never_goes_back() {
        for jump in [3600, -3600] {
            let clock = SteadyClock::default();
            let start = clock.unix_seconds() as i64;
            clock.jump(jump);
            assert!((clock.unix_seconds() as i64 - start).abs() <= 1, "{jump}");
            let mut last = 0;
            for hour in 1..=20i64 {
                for _ in 0..60 {
                    clock.pass(60);
                    let now = clock.unix_seconds();
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
                let expected = start + hour * 3600 + (hour * 360).min(3600) * jump.signum();
                assert!((last as i64 - expected).abs() <= 5, "{last} instead of {expected} after {hour} h");
            }
        }
    }
}
