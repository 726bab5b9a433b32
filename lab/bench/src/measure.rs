//! The records of one thread about its operations, and their merge.
//!
//! 1. A thread calls [`Recorder::record`] once per operation with the moments it began and ended. The driver reads the
//!    clock once per operation: in a closed loop the end of one is the beginning of the next, as in db_bench. In an
//!    open loop the beginning is the moment the operation was due.
//! 2. The recorder keeps a histogram per kind, completions and the longest latency per 100 ms, and one bit per
//!    millisecond in which something completed.
//! 3. [`Merged`] adds the threads up. A stall is the longest run of milliseconds in which no thread completed anything.
//!
//! **Invariants.** The sum of the series is the number of operations. Memory per thread is about 300 KB per kind of
//! operation plus 10 bytes per millisecond at most, and is bounded by [`SLOTS_MAX`].
//!
//! **Threads.** A recorder belongs to its thread; nothing is shared until the end.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The kinds of operation that are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A put.
    Write,
    /// An atomic batch of puts: one latency for the whole batch.
    Batch,
    /// A point lookup.
    Read,
    /// A delete.
    Delete,
    /// A seek and the entries after it.
    Seek,
    /// [`GROUP_ENTRIES`] steps of an iterator: one latency for all of them.
    Next,
    /// YCSB's insert.
    Insert,
    /// YCSB's update.
    Update,
    /// YCSB's scan.
    Scan,
    /// YCSB's read, then write of the same record.
    ReadModifyWrite,
    /// A put by the writer behind readwhilewriting; not counted in the workload's throughput.
    BackgroundWrite,
}

impl Kind {
    const COUNT: usize = 11;

    /// All kinds, in the order results list them.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Write,
        Self::Batch,
        Self::Read,
        Self::Delete,
        Self::Seek,
        Self::Next,
        Self::Insert,
        Self::Update,
        Self::Scan,
        Self::ReadModifyWrite,
        Self::BackgroundWrite,
    ];

    /// Returns the name in tables and charts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Batch => "batch",
            Self::Read => "read",
            Self::Delete => "delete",
            Self::Seek => "seek",
            Self::Next => "next ×128",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
            Self::BackgroundWrite => "background write",
        }
    }
}

/// Iterator steps that share one reading of the clock: a step costs about as much as the reading.
pub(crate) const GROUP_ENTRIES: u64 = 128;

/// Length of a slot of the series.
pub(crate) const SLOT_MS: u64 = 100;
/// The maximum number of slots: 28 hours. Later completions are counted in the last one.
pub(crate) const SLOTS_MAX: usize = 1_000_000;
/// Latencies above this are recorded as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Completions in one slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) operations: u64,
    pub(crate) latency_ns_max: u64,
}

/// One thread's record of one workload.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Instant,
    histograms: [Option<Box<Histogram<u64>>>; Kind::COUNT],
    slots: Vec<Slot>,
    busy_ms: Vec<u64>,
    operations: u64,
    pub(crate) last: Duration,
}

impl Recorder {
    /// Creates a recorder of a workload that began at `start`.
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            histograms: std::array::from_fn(|_| None),
            slots: Vec::with_capacity(600),
            busy_ms: Vec::with_capacity(1000),
            operations: 0,
            last: Duration::ZERO,
        }
    }

    /// Returns the operations recorded so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// Records `operations` that together took from `begin` to `end`.
    #[inline]
    pub(crate) fn record(&mut self, kind: Kind, begin: Instant, end: Instant, operations: u64) {
        let latency_ns = nanoseconds(end.saturating_duration_since(begin)).min(LATENCY_NS_MAX);
        let histogram = self.histograms[kind as usize].get_or_insert_with(new_histogram);
        histogram.saturating_record(latency_ns);

        self.last = end.saturating_duration_since(self.start);
        let at_ms = nanoseconds(self.last) / 1_000_000;
        let slot = ((at_ms / SLOT_MS) as usize).min(SLOTS_MAX - 1);
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::default());
        }
        let slot = &mut self.slots[slot];
        slot.operations += operations;
        slot.latency_ns_max = slot.latency_ns_max.max(latency_ns);

        let word = ((at_ms / 64) as usize).min(SLOTS_MAX);
        if word >= self.busy_ms.len() {
            self.busy_ms.resize(word + 1, 0);
        }
        self.busy_ms[word] |= 1 << (at_ms % 64);
        self.operations += operations;
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn new_histogram() -> Box<Histogram<u64>> {
    let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    Box::new(histogram.expect("constant bounds are valid"))
}

/// The records of all threads of a workload.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    histograms: Vec<(Kind, Box<Histogram<u64>>)>,
    slots: Vec<Slot>,
    busy_ms: Vec<u64>,
    /// Operations of the foreground threads.
    pub(crate) operations: u64,
    /// From the start to the last completion in the foreground.
    pub(crate) elapsed: Duration,
}

impl Merged {
    /// Adds a thread that issues the workload's own operations.
    pub(crate) fn add(&mut self, recorder: Recorder) {
        self.operations += recorder.operations;
        self.elapsed = self.elapsed.max(recorder.last);
        if self.slots.len() < recorder.slots.len() {
            self.slots.resize(recorder.slots.len(), Slot::default());
        }
        for (sum, slot) in self.slots.iter_mut().zip(&recorder.slots) {
            sum.operations += slot.operations;
            sum.latency_ns_max = sum.latency_ns_max.max(slot.latency_ns_max);
        }
        if self.busy_ms.len() < recorder.busy_ms.len() {
            self.busy_ms.resize(recorder.busy_ms.len(), 0);
        }
        for (all, word) in self.busy_ms.iter_mut().zip(&recorder.busy_ms) {
            *all |= word;
        }
        self.add_histograms(recorder.histograms);
    }

    /// Adds a thread that runs next to the workload: its latencies count, its operations do not.
    pub(crate) fn add_background(&mut self, recorder: Recorder) {
        self.add_histograms(recorder.histograms);
    }

    fn add_histograms(&mut self, histograms: [Option<Box<Histogram<u64>>>; Kind::COUNT]) {
        for (kind, histogram) in Kind::ALL.into_iter().zip(histograms) {
            let Some(histogram) = histogram else { continue };
            match self.histograms.iter_mut().find(|(present, _)| *present == kind) {
                Some((_, sum)) => sum.add(*histogram).expect("all histograms have the same bounds"),
                None => self.histograms.push((kind, histogram)),
            }
        }
        self.histograms.sort_by_key(|(kind, _)| *kind);
    }

    /// Returns the longest time without a completion, in milliseconds, of the `elapsed` ones.
    pub(crate) fn longest_stall_ms(&self) -> u64 {
        let total_ms = nanoseconds(self.elapsed) / 1_000_000;
        let mut longest = 0;
        let mut run = 0;
        for ms in 0..total_ms {
            let word = self.busy_ms.get((ms / 64) as usize).copied().unwrap_or(0);
            run = if word >> (ms % 64) & 1 == 1 { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        longest
    }

    /// Returns the series with at most `points_max` points, and the milliseconds that each covers.
    pub(crate) fn series(&self, points_max: usize) -> (u64, Vec<Slot>) {
        let per_point = self.slots.len().div_ceil(points_max.max(1)).max(1);
        let points = self.slots.chunks(per_point).map(|slots| Slot {
            operations: slots.iter().map(|slot| slot.operations).sum(),
            latency_ns_max: slots.iter().map(|slot| slot.latency_ns_max).max().unwrap_or(0),
        });
        (SLOT_MS * per_point as u64, points.collect())
    }

    /// Returns the latency that this share of the workload's own requests stays at or below, whatever their kind.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<u64> {
        let own = self.histograms.iter().filter(|(kind, _)| *kind != Kind::BackgroundWrite);
        let all = own.fold(new_histogram(), |mut all, (_, histogram)| {
            all.add(histogram.as_ref()).expect("all histograms have the same bounds");
            all
        });
        (!all.is_empty()).then(|| all.value_at_quantile(share))
    }

    /// Returns the latency figures per kind.
    pub(crate) fn latencies(&self) -> Vec<Latency> {
        self.histograms.iter().map(|(kind, histogram)| Latency::of(*kind, histogram)).collect()
    }
}

/// Latencies of one kind of operation, in nanoseconds. Percentiles are exact to three significant digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The kind of operation.
    pub kind: Kind,
    /// Samples: operations, or groups where the kind says so.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 of 100 are at or below this.
    pub p90_ns: u64,
    /// 95 of 100.
    pub p95_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// 9999 of 10 000.
    pub p9999_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Percentile and latency in nanoseconds, for a curve.
    pub curve: Vec<(f64, u64)>,
}

/// Percentiles of a curve; closer together where tails differ.
const CURVE: [f64; 24] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 98.0, 99.0, 99.5, 99.9,
    99.95, 99.99, 99.995, 99.999, 100.0,
];

impl Latency {
    fn of(kind: Kind, histogram: &Histogram<u64>) -> Self {
        let at = |percentile: f64| histogram.value_at_quantile(percentile / 100.0);
        Self {
            kind,
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: at(50.0),
            p90_ns: at(90.0),
            p95_ns: at(95.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            p9999_ns: at(99.99),
            max_ns: histogram.max(),
            curve: CURVE.iter().map(|percentile| (*percentile, at(*percentile))).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
