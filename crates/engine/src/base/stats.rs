//! Counters and latency histograms that cost little enough to be always on.
//!
//! Counters are striped over cache lines by thread, so that two cores do not fight for one. Histograms have eight
//! buckets for each power of two of nanoseconds: a percentile read from them is at most 12.5% too high.

use crate::base::read_tail::ReadTails;
use situ_base::buckets::{Buckets, bucket_at};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const STRIPES: usize = 8;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    stripes: [Stripe; STRIPES],
}

fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.stripes[stripe()].0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.stripes.iter().map(|s| s.0.load(Ordering::Relaxed)).sum()
    }
}

type Scale = Buckets<3>;
const BUCKETS: usize = Scale::count(64);

/// A histogram of latencies.
#[derive(Debug)]
pub(crate) struct LatencyHistogram {
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        LatencyHistogram { buckets, sum_ns: AtomicU64::new(0), max_ns: AtomicU64::new(0) }
    }
}

impl LatencyHistogram {
    pub(crate) fn record(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[Scale::of(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let max_ns = self.max_ns.load(Ordering::Relaxed);
        let percentile = |share: f64| {
            let wanted = ((count as f64 * share).ceil() as u64).max(1);
            bucket_at(&counts, wanted).map_or(0, |at| Scale::end(at).min(max_ns))
        };
        LatencySummary {
            count,
            mean_ns: self.sum_ns.load(Ordering::Relaxed).checked_div(count).unwrap_or(0),
            p50_ns: percentile(0.5),
            p90_ns: percentile(0.9),
            p99_ns: percentile(0.99),
            p999_ns: percentile(0.999),
            max_ns,
        }
    }
}

/// A summary of a latency histogram, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencySummary {
    /// The number of measured operations.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The store's counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        /// Counters since the store was opened, and latencies.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Blocking writes, one in sixteen measured.
            pub write_latency: LatencySummary,
            /// Point reads, one in sixteen measured.
            pub read_latency: LatencySummary,
            /// Flushes.
            pub flush_latency: LatencySummary,
            /// Compactions.
            pub compaction_latency: LatencySummary,
            /// Time writers were held back, where they were.
            pub stall_latency: LatencySummary,
        }

        impl Counters {
            pub(crate) fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.get(),)+ ..Statistics::default() }
            }
        }

        impl Statistics {
            /// Returns all counters with their names and descriptions, for reports and metrics.
            pub fn counters(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($doc),+)),)+]
            }
        }
    };
}

counters! {
    /// Write requests acknowledged.
    writes,
    /// Operations inside acknowledged writes.
    operations_written,
    /// Encoded bytes of acknowledged writes.
    bytes_written,
    /// Point reads.
    reads,
    /// Point reads that found a value.
    reads_found,
    /// Iterators opened.
    iterators,
    /// Flushes done.
    flushes,
    /// Bytes of level-0 tables written by flushes.
    flush_bytes_written,
    /// Compactions done, trivial moves not counted.
    compactions,
    /// Tables moved to a deeper level without being rewritten.
    trivial_moves,
    /// Bytes of tables read by compactions.
    compaction_bytes_read,
    /// Bytes of tables written by compactions.
    compaction_bytes_written,
    /// Bytes of tables copied from one disk to the other.
    relocation_bytes_written,
    /// Entries that compactions dropped.
    compaction_entries_dropped,
    /// Time for which writers were slowed down or stopped.
    stall_ns,
    /// Times that writers to a keyspace were stopped because memory or level 0 was full.
    write_stops,
    /// Writes refused because a disk had too little space left.
    writes_refused_space,
    /// Background jobs that failed.
    job_failures,
    /// Reads and background jobs that failed because data on disk is damaged.
    damage_met,
    /// Compactions that failed on their own and were postponed.
    compactions_postponed,
    /// Transactions committed.
    transactions_committed,
    /// Operations and commits of transactions that were refused because a key had been changed.
    transaction_conflicts,
    /// Times that a transaction had to wait for a lock.
    lock_waits,
    /// Waits for locks that timed out.
    lock_timeouts,
    /// Deadlocks found among transactions.
    deadlocks,
    /// Slow operations.
    slow_operations,
    /// Panics of the listener, which were caught.
    listener_panics,
    /// Panics of wakers of asynchronous writes, which were caught.
    waker_panics,
}

/// Returns true once in sixteen times on each thread.
#[inline]
pub(crate) fn sampled() -> bool {
    thread_local!(static TURN: Cell<u8> = const { Cell::new(0) });
    TURN.with(|turn| {
        turn.set(turn.get().wrapping_add(1));
        turn.get() % 16 == 0
    })
}

#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) counters: Counters,
    pub(crate) write: LatencyHistogram,
    pub(crate) read: LatencyHistogram,
    pub(crate) read_tails: ReadTails,
    pub(crate) flush: LatencyHistogram,
    pub(crate) compaction: LatencyHistogram,
    pub(crate) stall: LatencyHistogram,
}

impl Stats {
    /// Counts a point read of the sample, which has ended now.
    pub(crate) fn note_read(&self, began: Duration, now: Duration) {
        let took = now.saturating_sub(began);
        self.read.record(took);
        self.read_tails.record(took, now);
    }

    pub(crate) fn read_all(&self) -> Statistics {
        Statistics {
            write_latency: self.write.summary(),
            read_latency: self.read.summary(),
            flush_latency: self.flush.summary(),
            compaction_latency: self.compaction.summary(),
            stall_latency: self.stall.summary(),
            ..self.counters.read()
        }
    }
}

/// Debts of a store: dead entries that still take space, and the files that hold them. A busy store pays debts when
/// memtables, levels or the log reach their limits. An idle store pays them one by one, within a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DebtProperties {
    /// The limit for log files, in bytes ([`Options::log_bytes_max`](crate::Options::log_bytes_max)).
    pub log_bytes_max: u64,
    /// Bytes of the log that memtables need until they are flushed. 0 if the store is open read-only.
    pub log_held_bytes: u64,
    /// Tombstones of single keys in memtables and tables.
    pub tombstones: u64,
    /// Tombstones of ranges in memtables and tables.
    pub range_deletions: u64,
    /// Estimated number of table entries that compaction filters would remove now. Counts only filters that report
    /// lifetimes.
    pub removable_entries: u64,
    /// Bytes of values in the value log to which no table has a handle.
    pub value_dead_bytes: u64,
    /// Obsolete files that are not deleted yet.
    pub undeleted_files: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let histogram = LatencyHistogram::default();
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.max_ns, summary.mean_ns), (1000, 1_000_000, 500_500));
        for (shown, exact) in [(summary.p50_ns, 500_000), (summary.p99_ns, 990_000), (summary.p999_ns, 999_000)] {
            assert!((exact..=exact * 9 / 8).contains(&shown), "{shown} for {exact}");
        }
    }

    #[test]
    fn counters_add_up_over_threads() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            (0..10).for_each(|_| drop(scope.spawn(|| (0..1000).for_each(|_| counter.add(1)))));
        });
        assert_eq!(counter.get(), 10_000);
    }
}
