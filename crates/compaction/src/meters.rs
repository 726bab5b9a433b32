//! The meters of the stages of one run.
//!
//! A stage looks at the clock around each read, each append and each wait, never for an entry. What is left of a
//! thread's time is the work of its stage.

use crate::mode::{Stage, Stages};
use situ_base::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The sums of one stage; any thread adds to them. Times are in nanoseconds.
#[derive(Default)]
pub(crate) struct Meter {
    pub(crate) busy: AtomicU64,
    pub(crate) starved: AtomicU64,
    pub(crate) blocked: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// The sums of all stages of one run.
pub(crate) struct Meters {
    clock: Arc<dyn Clock>,
    pub(crate) read: Meter,
    pub(crate) merge: Meter,
    pub(crate) write: Meter,
}

impl Meter {
    fn stage(&self) -> Stage {
        let time = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed));
        Stage {
            busy: time(&self.busy),
            starved: time(&self.starved),
            blocked: time(&self.blocked),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// A thread of the stage has ended: whatever it did not wait for was work.
    pub(crate) fn add_thread(&self, lived: Duration, waited: Duration) {
        add(&self.busy, lived.saturating_sub(waited));
    }

    pub(crate) fn waited(&self) -> Duration {
        let Stage { starved, blocked, .. } = self.stage();
        starved + blocked
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Adds a time to a sum.
pub(crate) fn add(sum: &AtomicU64, time: Duration) {
    sum.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Meters {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Meters {
        Meters { clock, read: Meter::default(), merge: Meter::default(), write: Meter::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Does something, and adds its time to a sum.
    pub(crate) fn time<T>(&self, sum: &AtomicU64, work: impl FnOnce() -> T) -> T {
        let began = self.now();
        let answer = work();
        add(sum, self.now().saturating_sub(began));
        answer
    }

    pub(crate) fn stages(&self) -> Stages {
        Stages { read: self.read.stage(), merge: self.merge.stage(), write: self.write.stage() }
    }
}
