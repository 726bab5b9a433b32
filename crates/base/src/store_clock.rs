//! The clock by which entries expire: the *store time*.
//!
//! Each store has its own time line for expiration times, in Unix time. The machine's wall clock cannot be used
//! directly: it may be wrong when an entry is written, and right when the entry is read.
//!
//! 1. While a store is open, store time advances with the machine's uptime, including sleep. Corrections of the wall
//!    clock do not move it.
//! 2. The store keeps a [`ClockRecord`]: the boot id, and the uptime, wall clock and store time of one moment.
//!    [`ClockKeeper`] writes the record at open, every ten minutes, and at close. It also writes one when wall clock
//!    and store time have drifted by over a second.
//! 3. If the store is reopened in the same boot, store time is exact: the record's store time plus the uptime since
//!    then.
//! 4. After a reboot, store time advances by as much as the wall clock has since the record. If the wall clock has gone
//!    back, store time stands at the record and advances with uptime. When the wall clock is later set right, store
//!    time follows that correction once.
//! 5. Without a record, store time starts at the wall clock.
//! 6. Unix times from clients are converted by the current difference of the clocks, and converted back for output.
//!
//! **Invariant.** Store time never goes back while the store is open, and never falls below the record.
//! **Threads.** Any. Reading the time costs one clock call and one atomic load.
//! **Failure.** A process crash loses nothing: the next process continues by rule 3. If the machine crashes within
//! about a second of a wall-clock correction, the record of the correction may be lost. Store time is then off by that
//! correction. If the wall clock has also gone back, up to ten minutes count twice. A wall clock that is ahead at boot
//! moves store time ahead for good, because the jump looks like time spent switched off.
//!
//! **Rejected.** Following the wall clock slowly: a clock that is off by a year is never caught up with. Following it
//! at once: live entries expire early, and expired ones come back.

use crate::env::{Clock, Env, Event, JobHandle};
use crate::sync::lock;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const SECOND_NS: i64 = 1_000_000_000;
/// Interval at which a keeper reads the wall clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The age at which a record is renewed.
const RENEW_AFTER_NS: i64 = 600 * SECOND_NS;
/// Readings of the wall clock and the uptime within this time count as one moment.
const MOMENT_NS: i64 = SECOND_NS / 20;
/// Attempts to read both within one moment on a busy machine.
const TRIES_MAX: u32 = 20;

const AS_ASKED: &str = "times to live stay as requested";

/// Receiver of messages for a server's log.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// One moment of a store's clock, as the store keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRecord {
    /// The boot id; zeros if the system has none.
    boot: [u8; 16],
    uptime_ns: i64,
    wall_ns: i64,
    store_ns: i64,
    /// True if the wall clock went back with the boot and was not set right since. `wall_ns` is then the wall clock's
    /// last time before the boot, plus the uptime since.
    follows: bool,
}

impl ClockRecord {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 42;
    const VERSION: u8 = 1;

    /// Encodes the record: version 1; 1 if `follows`; the boot id; uptime, wall clock and store time in nanoseconds.
    #[must_use]
    pub fn encode(&self) -> [u8; ClockRecord::BYTES] {
        let mut bytes = [0; ClockRecord::BYTES];
        bytes[..2].copy_from_slice(&[ClockRecord::VERSION, u8::from(self.follows)]);
        bytes[2..18].copy_from_slice(&self.boot);
        for (at, number) in [(18, self.uptime_ns), (26, self.wall_ns), (34, self.store_ns)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a record; `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<ClockRecord> {
        let (&[ClockRecord::VERSION, follows @ (0 | 1)], rest) = bytes.split_first_chunk()? else { return None };
        let (boot, rest) = rest.split_first_chunk()?;
        let (&[uptime, wall, store], &[]) = rest.as_chunks::<8>() else { return None };
        let [uptime_ns, wall_ns, store_ns] = [uptime, wall, store].map(i64::from_le_bytes);
        let is_time = uptime_ns >= 0 && wall_ns >= 0 && store_ns >= 0;
        is_time.then_some(ClockRecord { boot: *boot, uptime_ns, wall_ns, store_ns, follows: follows == 1 })
    }

    /// Returns store time minus wall clock.
    fn offset_ns(&self) -> i64 {
        self.store_ns.saturating_sub(self.wall_ns)
    }
}

/// The clock of one store; see the [module](self).
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    boot: Option<[u8; 16]>,
    /// Store time at uptime 0, in nanoseconds. It only grows.
    base_ns: AtomicI64,
    /// Wall clock minus store time in seconds, for conversions.
    difference_s: AtomicI64,
    state: Mutex<State>,
    tell: OnceLock<Tell>,
}

struct State {
    /// Store time minus wall clock before the wall clock went back. Set until store time has followed the correction.
    follows_ns: Option<i64>,
    /// The last record that was stored.
    recorded: Option<ClockRecord>,
}

impl StoreClock {
    /// Continues from the record of a store. Without one, starts at the wall clock.
    #[must_use]
    pub fn resume(clock: Arc<dyn Clock>, record: Option<ClockRecord>) -> StoreClock {
        let boot = clock.boot();
        let (uptime, wall) = moment(&*clock);
        let (store, follows_ns) = match record {
            None => (wall, None),
            Some(record) if boot == Some(record.boot) && uptime >= record.uptime_ns => {
                let store = record.store_ns.saturating_add(uptime - record.uptime_ns);
                (store, record.follows.then_some(record.offset_ns()))
            }
            Some(record) => {
                let by_wall = wall.saturating_add(record.offset_ns());
                (by_wall.max(record.store_ns), (by_wall < record.store_ns).then_some(record.offset_ns()))
            }
        };
        let difference = match follows_ns {
            Some(offset) => rounded(offset.saturating_neg()),
            None => rounded(wall.saturating_sub(store)),
        };
        StoreClock {
            clock,
            boot,
            base_ns: AtomicI64::new(store.saturating_sub(uptime)),
            difference_s: AtomicI64::new(difference),
            state: Mutex::new(State { follows_ns, recorded: None }),
            tell: OnceLock::new(),
        }
    }

    /// Returns the store time in nanoseconds.
    fn now_ns(&self) -> i64 {
        nanoseconds(self.clock.uptime()).saturating_add(self.base_ns.load(Ordering::Acquire))
    }

    /// Returns the store time in seconds.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        (self.now_ns() / SECOND_NS).unsigned_abs()
    }

    /// Returns the store time in milliseconds.
    #[must_use]
    pub fn milliseconds(&self) -> u64 {
        (self.now_ns() / (SECOND_NS / 1000)).unsigned_abs()
    }

    /// Returns wall clock minus store time, in seconds; 0 if they are within a second.
    #[must_use]
    pub fn wall_ahead_seconds(&self) -> i64 {
        let (uptime, wall) = moment(&*self.clock);
        rounded(wall.saturating_sub(self.store_at(uptime)))
    }

    fn store_at(&self, uptime: i64) -> i64 {
        uptime.saturating_add(self.base_ns.load(Ordering::Acquire))
    }

    /// Returns Unix time minus store time, in seconds, as conversions use it now.
    #[must_use]
    pub fn difference_seconds(&self) -> i64 {
        self.difference_s.load(Ordering::Relaxed)
    }

    /// Returns the store time of a Unix time; both in seconds. 0 means never, and stays.
    #[must_use]
    pub fn seconds_of_unix(&self, unix: u64) -> u64 {
        shifted(unix, self.difference_seconds().saturating_neg())
    }

    /// Returns the Unix time of a store time; both in seconds. 0 means never, and stays.
    #[must_use]
    pub fn unix_of_seconds(&self, store: u64) -> u64 {
        shifted(store, self.difference_seconds())
    }

    /// Returns the store time of a Unix time; both in milliseconds.
    #[must_use]
    pub fn ms_of_unix(&self, unix: u64) -> u64 {
        shifted(unix, self.difference_seconds().saturating_mul(-1000))
    }

    /// Returns the Unix time of a store time; both in milliseconds.
    #[must_use]
    pub fn unix_of_ms(&self, store: u64) -> u64 {
        shifted(store, self.difference_seconds().saturating_mul(1000))
    }

    /// Calls `tell` with a message whenever the difference of the clocks changes by more than a second, and at once if
    /// they differ already. Only the first call has an effect.
    pub fn tell(&self, tell: Tell) {
        let follows = lock(&self.state).follows_ns.is_some();
        if self.tell.set(tell).is_ok() && (follows || self.difference_seconds() != 0) {
            self.tell_of(follows);
        }
    }

    /// Reports the difference of the clocks. The caller must hold no lock.
    fn tell_of(&self, follows: bool) {
        let Some(tell) = self.tell.get() else { return };
        let difference = self.difference_seconds();
        let amount = difference.unsigned_abs();
        tell(&match difference {
            _ if follows => "the wall clock went back while the machine was off; until it is set right, the time off does not count towards \
                 expiration"
                .to_owned(),
            0 => "the wall clock and the store's expiration clock agree".to_owned(),
            1.. => format!("the wall clock was set and is {amount} s ahead of the store's expiration clock; {AS_ASKED}"),
            _ => format!("the wall clock was set and is {amount} s behind the store's expiration clock; {AS_ASKED}"),
        });
    }

    /// Reads the wall clock. Returns a record if one is due; the caller stores it and calls
    /// [`recorded`](StoreClock::recorded).
    pub fn look(&self) -> Option<ClockRecord> {
        let mut state = lock(&self.state);
        let mut has_news = false;
        let (uptime, wall) = moment(&*self.clock);
        if let Some(offset) = state.follows_ns {
            let by_wall = wall.saturating_add(offset);
            if by_wall > self.store_at(uptime) {
                self.base_ns.fetch_max(by_wall.saturating_sub(uptime), Ordering::AcqRel);
                state.follows_ns = None;
                has_news = true;
            }
        }
        if state.follows_ns.is_none() {
            let ahead = wall.saturating_sub(self.store_at(uptime));
            let held = self.difference_seconds().saturating_mul(SECOND_NS);
            if ahead.saturating_sub(held).saturating_abs() > SECOND_NS {
                self.difference_s.store(rounded(ahead), Ordering::Relaxed);
                has_news = true;
            }
        }
        let record = self.record_at(&state, uptime, wall);
        let is_due = state.recorded.is_none_or(|old| {
            let moved = record.offset_ns().saturating_sub(old.offset_ns()).saturating_abs();
            moved > SECOND_NS || record.follows != old.follows || uptime.saturating_sub(old.uptime_ns) >= RENEW_AFTER_NS
        });
        let follows = state.follows_ns.is_some();
        drop(state);
        if has_news {
            self.tell_of(follows);
        }
        is_due.then_some(record)
    }

    fn record_at(&self, state: &State, uptime_ns: i64, wall: i64) -> ClockRecord {
        let store_ns = self.store_at(uptime_ns).max(0);
        let wall_ns = state.follows_ns.map_or(wall, |offset| store_ns.saturating_sub(offset).max(0));
        let boot = self.boot.unwrap_or_default();
        ClockRecord { boot, uptime_ns, wall_ns, store_ns, follows: state.follows_ns.is_some() }
    }

    /// Returns a record of this moment.
    #[must_use]
    pub fn record(&self) -> ClockRecord {
        let (uptime, wall) = moment(&*self.clock);
        self.record_at(&lock(&self.state), uptime, wall)
    }

    /// Notes that `record` was stored.
    pub fn recorded(&self, record: ClockRecord) {
        lock(&self.state).recorded = Some(record);
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClock").field("seconds", &self.seconds()).finish_non_exhaustive()
    }
}

fn nanoseconds(time: Duration) -> i64 {
    // A clock that shows more is wrong. Half the range keeps sums from overflowing.
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

/// Returns uptime and wall clock of one moment.
fn moment(clock: &dyn Clock) -> (i64, i64) {
    let mut before = nanoseconds(clock.uptime());
    for _ in 0..TRIES_MAX {
        let wall = nanoseconds(clock.unix());
        let uptime = nanoseconds(clock.uptime());
        if uptime - before <= MOMENT_NS {
            return (uptime, wall);
        }
        before = uptime;
    }
    (before, nanoseconds(clock.unix()))
}

/// Rounds a difference to seconds; 0 if it is at most one.
fn rounded(nanoseconds: i64) -> i64 {
    match nanoseconds.saturating_abs() {
        0..=SECOND_NS => 0,
        _ => nanoseconds.saturating_add(nanoseconds.signum() * SECOND_NS / 2) / SECOND_NS,
    }
}

fn shifted(time: u64, by: i64) -> u64 {
    match time {
        0 => 0,
        time => time.saturating_add_signed(by).max(1),
    }
}

/// Function that stores a record durably. Returns false if it cannot now.
type Keep = Box<dyn Fn(&ClockRecord) -> bool + Send + Sync>;

/// A thread that keeps the record of an open store's clock. It reads the wall clock each second. It stores the first
/// record when it starts, and the last one when it stops.
pub struct ClockKeeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<Box<dyn JobHandle>>>,
}

struct Shared {
    clock: Arc<StoreClock>,
    keep: Keep,
    is_over: AtomicBool,
    wake: Arc<dyn Event>,
}

impl Shared {
    fn keep(&self, record: ClockRecord) {
        if (self.keep)(&record) {
            self.clock.recorded(record);
        }
    }

    fn look(&self) {
        if let Some(record) = self.clock.look() {
            self.keep(record);
        }
    }

    fn run(&self) {
        loop {
            let seen = self.wake.generation();
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            self.look();
            self.wake.wait(seen, Some(LOOK_EVERY));
        }
    }
}

impl ClockKeeper {
    /// Stores the first record with `keep`, and starts the thread. A simulator gets no thread, because its time would
    /// never stand still.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        env: &Env,
        clock: &Arc<StoreClock>,
        keep: impl Fn(&ClockRecord) -> bool + Send + Sync + 'static,
    ) -> io::Result<ClockKeeper> {
        let shared = Arc::new(Shared {
            clock: Arc::clone(clock),
            keep: Box::new(keep),
            is_over: AtomicBool::new(false),
            wake: env.executor.event(),
        });
        shared.look();
        let thread = match env.executor.is_machine() {
            false => None,
            true => {
                let shared = Arc::clone(&shared);
                Some(env.executor.spawn("store-clock", Box::new(move || shared.run()))?)
            }
        };
        Ok(ClockKeeper { shared, thread: Mutex::new(thread) })
    }

    /// Ends the thread and stores the last record. A second call does nothing.
    pub fn stop(&self) {
        if self.shared.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.wake.notify();
        // The panic hook has already reported a panic of the thread.
        _ = lock(&self.thread).take().map(|thread| thread.join());
        self.shared.keep(self.shared.clock.record());
    }
}

impl Drop for ClockKeeper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for ClockKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockKeeper").field("clock", &self.shared.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
