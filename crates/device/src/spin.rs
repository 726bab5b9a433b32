//! When a waiter spins and when it sleeps.
//!
//! Sleeping costs the way back: a few microseconds on an idle machine, and up to a whole time slice (milliseconds)
//! where all cores are busy. There, a thread that wakes up has to wait for its turn. Spinning costs the processor for
//! as long as it lasts. So it pays only if the completion comes much sooner than a sleeper would be back, and both are
//! measured:
//!
//! 1. A [`Spinner`] knows the time of waits that sleep, the time of completions that come while it is spinning, and the
//!    success of recent attempts.
//! 2. An attempt lasts twice as long as completions usually take, at most an eighth of what a sleeping wait takes, and
//!    at most [`LONGEST`]. ([`SHORT`] is always allowed: less is not worth deciding about.)
//! 3. Once most attempts are in vain it sleeps, and tries again only now and then. The tries become rarer up to one in
//!    [`RAREST_TRY`] waits, so that a slow device costs next to nothing. And while it spins, one wait in [`RAREST_TRY`]
//!    sleeps, to see what that takes.
//! 4. The operation may need this very core: for a kernel thread, or the one that fills the pipe. Then attempts are in
//!    vain, and by the third rule they end. No thread is kept waiting longer than one attempt.
//! 5. At most half of the cores spin at once, none on a machine with one: a [`Permit`] is one of them.
//!
//! **Rejected:** spinning for a constant time: it is too short for one device and wasted on all slower ones. Yielding
//! the processor in every turn: after a busy thread, even one of the lowest priority, the waiter comes back after that
//! thread's time slice. Spinning is meant to avoid that.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// No attempt is longer.
pub(crate) const LONGEST: Duration = Duration::from_micros(500);

/// Attempts of this length are allowed whatever sleeping costs: it is what falling asleep and waking up takes at best
/// on a virtual machine.
pub(crate) const SHORT: Duration = Duration::from_micros(50);

/// Attempts are never shorter: this is the time of a few looks at the queue.
const SHORTEST: Duration = Duration::from_micros(2);

/// The maximum number of waits between two tries of what does not seem to pay.
const RAREST_TRY: u32 = 1024;

/// Waits after which spinning is tried again for the first time.
const FIRST_REST: u32 = 8;

/// Weight of one observation in the averages: 1 / 2^SHIFT.
const SHIFT: u32 = 3;

/// The share of successful attempts is held as a number from 0 to this.
const ALWAYS: u32 = 1 << 16;

/// One queue's knowledge about waiting.
#[derive(Debug)]
pub(crate) struct Spinner {
    /// Share of recent attempts that were met by a completion.
    success: u32,
    /// The average time of a completion that comes while spinning.
    usual_ns: u64,
    /// The average time of a wait that sleeps.
    asleep_ns: u64,
    /// Waits until the next try of what does not seem to pay.
    resting: u32,
    /// Waits that the next rest from spinning lasts.
    next_rest: u32,
}

impl Spinner {
    pub(crate) fn new() -> Spinner {
        let usual_ns = SHORT.as_nanos() as u64 / 2;
        Spinner { success: ALWAYS / 2, usual_ns, asleep_ns: 0, resting: RAREST_TRY, next_rest: FIRST_REST }
    }

    /// Returns true if most attempts are met by a completion.
    pub(crate) fn pays(&self) -> bool {
        self.success >= ALWAYS / 2
    }

    /// Returns the time for which the next wait may spin; zero means to sleep at once.
    pub(crate) fn budget(&mut self) -> Duration {
        let longest = Duration::from_nanos(self.asleep_ns / 8).clamp(SHORT, LONGEST);
        if self.resting > 0 {
            self.resting -= 1;
        }
        match (self.pays(), self.resting) {
            (true, 0) => {
                self.resting = RAREST_TRY;
                Duration::ZERO
            }
            (true, _) => Duration::from_nanos(self.usual_ns * 2).clamp(SHORTEST, longest),
            (false, 0) => {
                self.resting = self.next_rest;
                self.next_rest = (self.next_rest * 2).min(RAREST_TRY);
                longest
            }
            (false, _) => Duration::ZERO,
        }
    }

    /// Notes that a completion came after `took` of spinning.
    pub(crate) fn met(&mut self, took: Duration) {
        self.success += (ALWAYS - self.success) >> SHIFT;
        average(&mut self.usual_ns, took);
        if self.pays() {
            self.next_rest = FIRST_REST;
        } else {
            // A try that succeeds is followed by another one at once: things may have changed.
            self.resting = 1;
        }
    }

    /// Notes that an attempt ended without a completion.
    pub(crate) fn missed(&mut self) {
        let paid = self.pays();
        self.success -= self.success >> SHIFT;
        if paid && !self.pays() {
            self.resting = self.next_rest;
        }
    }

    /// Notes that a completion came after `took`, most of which was slept.
    pub(crate) fn slept(&mut self, took: Duration) {
        average(&mut self.asleep_ns, took);
    }
}

fn average(of: &mut u64, sample: Duration) {
    let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX) >> SHIFT;
    *of = (*of - (*of >> SHIFT)).saturating_add(sample);
}

/// The right to spin, of which there are half as many as cores.
pub(crate) struct Permit;

static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// Fixes the number of threads that may spin at a time: half of the processors that the calling thread may use now.
/// Without this call, the first thread that spins fixes it.
pub fn fix_spinning_limit() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| std::thread::available_parallelism().map_or(0, |cores| cores.get() / 2))
}

impl Permit {
    pub(crate) fn take() -> Option<Permit> {
        let most = fix_spinning_limit();
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
pub(crate) fn spin(spinner: &mut Spinner, timeout: Duration, look: impl FnMut() -> usize) -> usize {
    spin_unless(spinner, timeout, look, || false)
}

/// Like [`spin`], but ends when `is_called`, too. A call says nothing about the device, and changes no average.
pub(crate) fn spin_unless(
    spinner: &mut Spinner,
    timeout: Duration,
    mut look: impl FnMut() -> usize,
    is_called: impl Fn() -> bool,
) -> usize {
    let budget = spinner.budget().min(timeout);
    if budget.is_zero() {
        return 0;
    }
    let Some(_permit) = Permit::take() else { return 0 };
    let begin = Instant::now();
    loop {
        std::hint::spin_loop();
        if is_called() {
            return 0;
        }
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
