//! When a waiter spins and when it sleeps.
//!
//! Sleeping costs a switch away and back, several microseconds; spinning costs the processor for as long as it lasts.
//! So spinning pays only if the completion comes sooner than the switches would take, and that is measured, not assumed:
//!
//! 1. A [`Spinner`] remembers how long completions took that came while it was spinning, and whether recent attempts
//!    were met by one. As long as most are, it spins for twice the usual time, at most [`LONGEST`].
//! 2. Once most attempts are in vain it sleeps, and tries again only now and then; the tries become rarer up to one in
//!    [`RAREST_TRY`] waits, so that a slow device costs next to nothing.
//! 3. Every turn of the loop yields the processor to whoever is ready to run on it. What is waited for may need this
//!    very core: a kernel thread, the one that fills the pipe, another store's compaction.
//! 4. At most half of the cores spin at once, none on a machine with one: a [`Permit`] is one of them.
//!
//! **Rejected:** spinning for a constant time. It is too short for one device and wasted on all slower ones.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No attempt is longer. A waiter who sleeps is back about this long after its completion on a busy virtual machine.
pub(crate) const LONGEST: Duration = Duration::from_micros(50);

/// Attempts are never shorter: this is about one look at the queue and one yield.
const SHORTEST: Duration = Duration::from_micros(2);

/// How many waits lie at most between two tries while spinning does not pay.
const RAREST_TRY: u32 = 1024;

/// Weight of one observation in the averages: 1 / 2^SHIFT.
const SHIFT: u32 = 3;

/// The share of successful attempts is held as a number from 0 to this.
const ALWAYS: u32 = 1 << 16;

/// One queue's knowledge about spinning.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// Share of recent attempts that were met by a completion.
    success: u32,
    /// What a completion takes that comes while spinning, on average.
    usual_ns: u64,
    /// Waits to sleep through until the next try.
    resting: u32,
    /// Waits that the next rest lasts.
    next_rest: u32,
}

impl Spinner {
    pub(crate) fn new() -> Spinner {
        Spinner { success: ALWAYS / 2, usual_ns: LONGEST.as_nanos() as u64 / 2, resting: 0, next_rest: 8 }
    }

    /// Whether most attempts are met by a completion.
    pub(crate) fn pays(&self) -> bool {
        self.success >= ALWAYS / 2
    }

    /// How long the next wait may spin; zero means to sleep at once.
    pub(crate) fn budget(&mut self) -> Duration {
        if self.pays() {
            return Duration::from_nanos(self.usual_ns * 2).clamp(SHORTEST, LONGEST);
        }
        if self.resting > 0 {
            self.resting -= 1;
            return Duration::ZERO;
        }
        self.resting = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(RAREST_TRY);
        LONGEST
    }

    /// A completion came after `took` of spinning.
    pub(crate) fn met(&mut self, took: Duration) {
        self.success += (ALWAYS - self.success) >> SHIFT;
        let took = took.as_nanos() as u64;
        self.usual_ns = self.usual_ns - (self.usual_ns >> SHIFT) + (took >> SHIFT);
        if self.pays() {
            self.next_rest = 8;
        } else {
            // A try that succeeds is followed by another one soon: things may have changed.
            self.resting = 0;
        }
    }

    /// The budget ran out without a completion.
    pub(crate) fn missed(&mut self) {
        self.success -= self.success >> SHIFT;
    }
}

/// The right to spin, of which there are half as many as cores.
pub(crate) struct Permit;

static SPINNING: AtomicUsize = AtomicUsize::new(0);

impl Permit {
    pub(crate) fn take() -> Option<Permit> {
        static MOST: OnceLock<usize> = OnceLock::new();
        let most = *MOST.get_or_init(|| std::thread::available_parallelism().map_or(0, |cores| cores.get() / 2));
        let taken = SPINNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        taken.ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        SPINNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `look` until it finds something or the budget for this wait has run out, at most `timeout`.
pub(crate) fn spin(spinner: &mut Spinner, timeout: Duration, mut look: impl FnMut() -> usize) -> usize {
    let budget = spinner.budget().min(timeout);
    if budget.is_zero() {
        return 0;
    }
    let Some(_permit) = Permit::take() else { return 0 };
    let begin = Instant::now();
    loop {
        rustix::thread::sched_yield();
        let found = look();
        let took = begin.elapsed();
        if found > 0 {
            spinner.met(took);
            return found;
        }
        if took >= budget {
            spinner.missed();
            return 0;
        }
    }
}

#[cfg(test)]
mod tests;
