//! The number of threads that compactions may use while writers wait for the log.
//!
//! Compactions and the log share disks and processors, and only of the log does a caller see how long it takes. So
//! while synced writes take much longer than they do when the store is calm, compactions use one thread. As soon as the
//! debt asks for it, or no writer has waited for the log for a while, they use all of theirs. (SpanDB, FAST '21,
//! section 4.4, bounds the threads of flushes and compactions during a busy log for the same reason.)
//!
//! 1. Each synced write's time in the log is a sample. A smoothed time *now* follows all samples; the time when *calm*
//!    follows the shortest ones, and rises slowly when there are none as short.
//! 2. Compactions are *held back* while now is above [`SLOWER_BY`] times calm, by [`SLOWER_BY_NS_MIN`] at least, the
//!    last sample is not older than [`RECENT`], and the debt is below [`DEBT_MAX`].
//!
//! It is asked when a job is picked and when it is cut into tasks: a job that runs is not slowed.
//!
//! **Invariant.** One thread always may compact. **Threads.** Atomics; two samples at the same moment may lose one of
//! them. **Rejected:** a rate limit by latency. The rate of a merge is bound by its processor here, and a merge that is
//! slowed holds its inputs for longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Writers are disturbed when they wait this many times as long as when it is calm.
const SLOWER_BY: u64 = 3;
/// Less than this is no disturbance, whatever the factor.
const SLOWER_BY_NS_MIN: u64 = 100_000;
/// A log without a waiting writer in this time needs no throttle.
const RECENT: Duration = Duration::from_millis(200);
/// The share of tolerated debt from which compactions come first: well before writers are slowed.
const DEBT_MAX: f64 = 0.3;

/// The measured latency of the log, and the number of running compactions.
#[derive(Debug, Default)]
pub(crate) struct CompactionThrottle {
    now_ns: AtomicU64,
    calm_ns: AtomicU64,
    last_sample_ns: AtomicU64,
    /// The share of tolerated debt, in thousandths.
    debt: AtomicU64,
    compacting: Arc<AtomicUsize>,
}

/// A job that may compact, until this is dropped.
pub(crate) struct CompactionTurn {
    compacting: Arc<AtomicUsize>,
}

impl Drop for CompactionTurn {
    fn drop(&mut self) {
        let before = self.compacting.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a turn ends once");
    }
}

impl CompactionThrottle {
    /// Notes that a synced write has waited `took` for the log; `at` by the store's clock.
    pub(crate) fn sample(&self, took: Duration, at: Duration) {
        let sample = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let now = self.now_ns.load(Ordering::Relaxed);
        self.now_ns.store(if now == 0 { sample } else { now - now / 16 + sample / 16 }, Ordering::Relaxed);
        let calm = self.calm_ns.load(Ordering::Relaxed);
        let calmer = match calm {
            0 => sample,
            // A single short sample is luck.
            _ if sample < calm => calm - (calm - sample) / 8,
            _ => calm + calm / 4096 + 1,
        };
        self.calm_ns.store(calmer, Ordering::Relaxed);
        self.last_sample_ns.store(at.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_debt(&self, share: f64) {
        self.debt.store((share.clamp(0.0, 1.0) * 1000.0) as u64, Ordering::Relaxed);
    }

    /// Returns true if writers are disturbed and there is time to let them go first.
    pub(crate) fn holds_back(&self, at: Duration) -> bool {
        let (now, calm) = (self.now_ns.load(Ordering::Relaxed), self.calm_ns.load(Ordering::Relaxed));
        let last = Duration::from_nanos(self.last_sample_ns.load(Ordering::Relaxed));
        calm > 0
            && now > calm.saturating_mul(SLOWER_BY)
            && now - calm >= SLOWER_BY_NS_MIN
            && at.saturating_sub(last) <= RECENT
            && (self.debt.load(Ordering::Relaxed) as f64) < DEBT_MAX * 1000.0
    }

    /// Returns how many threads of `threads` a compaction may use now.
    pub(crate) fn threads(&self, threads: usize, at: Duration) -> usize {
        if self.holds_back(at) { 1 } else { threads.max(1) }
    }

    /// Takes the right to compact, unless as many jobs do so as may. There may be one for each of `threads` that are
    /// not held back, and one for each task that the compactor runs elsewhere.
    pub(crate) fn begin(&self, threads: usize, elsewhere: usize, at: Duration) -> Option<CompactionTurn> {
        let allowed = self.threads(threads, at).saturating_add(elsewhere);
        assert!(allowed > 0, "one thread may always compact");
        let begun = self
            .compacting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < allowed).then_some(count + 1));
        begun.ok().map(|_| CompactionTurn { compacting: Arc::clone(&self.compacting) })
    }
}

#[cfg(test)]
mod tests;
