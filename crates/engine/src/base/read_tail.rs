//! The latency of point reads at the 99th percentile, separately for times with and without pipelined compactions.
//!
//! 1. Reads that are measured anyway, one in sixteen, are counted here too: with pipelines if one runs when the read
//!    ends.
//! 2. Each side has four *slices*: histograms of 32 buckets for each power of two, so a time is known within 3.2%.
//! 3. A slice ends by its age and its samples. The next one takes the memory of the oldest.
//! 4. A summary adds up the slices that are recent enough, and gives the percentile with a confidence interval.
//!
//! Slices with pipelines are 2.5 s long, so the summary is of the last ten seconds. A new trial of pipelines begins
//! without the samples of the last one. Slices without pipelines last until they have 1000 samples, or for 150 s. So
//! the latencies of earlier reads are remembered while pipelines run, for ten minutes.
//!
//! **Threads**: any thread may record and sum up. No thread waits: a thread that finds another one turning the slices
//! counts in the old slice. A thread that was stopped for four slices may count one read in a slice that is not its
//! own.
//!
//! Rejected: one histogram that is halved now and then. A reader of it could not say how old its samples are.

use situ_base::buckets::{Buckets, bucket_at};
use situ_compaction::{Measure, Pipelines, ReadTail, encode_measures};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const SLICES: usize = 4;
type Scale = Buckets<5>;
/// Longer times count as this long: 69 s.
const NS_MAX: u64 = (1 << 36) - 1;
const BUCKETS: usize = Scale::count(36);
/// The shortest time between two reports to the compactor.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The end of a slice, by age and samples.
#[derive(Debug, Clone, Copy)]
struct Ends {
    age_min: Duration,
    samples_min: u32,
    age_max: Duration,
}

const WITH: Ends = Ends { age_min: Duration::from_millis(2500), samples_min: 0, age_max: Duration::from_millis(2500) };
const WITHOUT: Ends =
    Ends { age_min: Duration::from_millis(2500), samples_min: 1000, age_max: Duration::from_secs(150) };

impl Ends {
    fn is_over(&self, age: Duration, samples: u32) -> bool {
        age >= self.age_max || age >= self.age_min && samples >= self.samples_min
    }

    /// Returns the age above which a sample is in no summary.
    fn keep(&self) -> Duration {
        self.age_max * SLICES as u32
    }
}

#[derive(Debug)]
struct Slice {
    /// The time of the first sample, in nanoseconds and one more; 0 before that.
    began: AtomicU64,
    samples: AtomicU32,
    buckets: Box<[AtomicU32]>,
}

impl Slice {
    fn new() -> Slice {
        let buckets = (0..BUCKETS).map(|_| AtomicU32::new(0)).collect();
        Slice { began: AtomicU64::new(0), samples: AtomicU32::new(0), buckets }
    }

    fn age(&self, now: Duration) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(Duration::from_nanos(began)))
    }

    fn clear(&self) {
        self.began.store(0, Ordering::Relaxed);
        self.samples.store(0, Ordering::Relaxed);
        self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// Reads of one side.
#[derive(Debug)]
struct Tail {
    ends: Ends,
    slices: [Slice; SLICES],
    current: AtomicUsize,
    /// True while a thread turns the slices.
    turning: AtomicBool,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1)
}

impl Tail {
    fn new(ends: Ends) -> Tail {
        let slices = std::array::from_fn(|_| Slice::new());
        Tail { ends, slices, current: AtomicUsize::new(0), turning: AtomicBool::new(false) }
    }

    fn record(&self, took: Duration, now: Duration) {
        let mut slice = &self.slices[self.current.load(Ordering::Acquire)];
        if self.is_over(slice, now) {
            self.turn(now);
            slice = &self.slices[self.current.load(Ordering::Acquire)];
        }
        slice.buckets[Scale::of(nanoseconds(took).min(NS_MAX))].fetch_add(1, Ordering::Relaxed);
        if slice.samples.fetch_add(1, Ordering::Relaxed) == 0 {
            slice.began.store(nanoseconds(now) + 1, Ordering::Relaxed);
        }
    }

    fn is_over(&self, slice: &Slice, now: Duration) -> bool {
        let samples = slice.samples.load(Ordering::Relaxed);
        slice.age(now).is_some_and(|age| self.ends.is_over(age, samples))
    }

    /// Begins the next slice, unless another thread does.
    fn turn(&self, now: Duration) {
        if self.turning.swap(true, Ordering::Acquire) {
            return;
        }
        let current = self.current.load(Ordering::Acquire);
        // Another thread may have turned since.
        if self.is_over(&self.slices[current], now) {
            let next = (current + 1) % SLICES;
            self.slices[next].clear();
            self.current.store(next, Ordering::Release);
        }
        self.turning.store(false, Ordering::Release);
    }

    fn summary(&self, now: Duration) -> ReadTail {
        let mut counts = vec![0u64; BUCKETS];
        let recent = |slice: &&Slice| slice.age(now).is_some_and(|age| age <= self.ends.keep());
        for slice in self.slices.iter().filter(recent) {
            for (count, bucket) in counts.iter_mut().zip(&slice.buckets) {
                *count += u64::from(bucket.load(Ordering::Relaxed));
            }
        }
        tail_of(&counts)
    }
}

/// Returns the 99th percentile of counted times. The rank of the percentile among n samples has a standard deviation of
/// the root of n * 0.99 * 0.01; two of them below and above are the interval.
fn tail_of(counts: &[u64]) -> ReadTail {
    let samples: u64 = counts.iter().sum();
    if samples == 0 {
        return ReadTail::default();
    }
    let (rank, deviation) = (samples as f64 * 0.99, (samples as f64 * 0.99 * 0.01).sqrt());
    let at = |rank: f64| {
        let wanted = (rank.ceil().max(1.0) as u64).min(samples);
        bucket_at(counts, wanted).unwrap_or(BUCKETS - 1)
    };
    ReadTail {
        samples,
        p99_low: Duration::from_nanos(Scale::begin(at(rank - 2.0 * deviation))),
        p99: Duration::from_nanos(Scale::end(at(rank))),
        p99_high: Duration::from_nanos(Scale::end(at(rank + 2.0 * deviation))),
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ReadTails {
    with: Tail,
    without: Tail,
    /// The pipelined runs, as each executor of tasks counts them.
    pipelines: OnceLock<Vec<Pipelines>>,
    /// The time of the last report, in nanoseconds and one more; 0 before that.
    told: AtomicU64,
}

impl Default for ReadTails {
    fn default() -> ReadTails {
        let (pipelines, told) = (OnceLock::new(), AtomicU64::new(0));
        ReadTails { with: Tail::new(WITH), without: Tail::new(WITHOUT), pipelines, told }
    }
}

impl ReadTails {
    /// Sets the counters of pipelined runs; called once.
    pub(crate) fn watch(&self, pipelines: Vec<Pipelines>) {
        let is_first = self.pipelines.set(pipelines).is_ok();
        assert!(is_first, "the counters of pipelined runs are set once");
    }

    /// Counts a read that has ended.
    pub(crate) fn record(&self, took: Duration, now: Duration) {
        let pipelines = self.pipelines.get().map_or(&[][..], |pipelines| pipelines);
        let side = if pipelines.iter().any(|runs| runs.running() > 0) { &self.with } else { &self.without };
        side.record(took, now);
    }

    /// Returns the message for the compactor; `None` if the last one is younger than [`TELL_EVERY`].
    pub(crate) fn message(&self, now: Duration) -> Option<Vec<u8>> {
        let told = self.told.load(Ordering::Relaxed);
        let is_due =
            told.checked_sub(1).is_none_or(|told| now.saturating_sub(Duration::from_nanos(told)) >= TELL_EVERY);
        let is_mine = || {
            let mine = nanoseconds(now) + 1;
            self.told.compare_exchange(told, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if !is_due || !is_mine() {
            return None;
        }
        let with = Measure::ReadsWithPipelines(self.with.summary(now));
        Some(encode_measures(&[with, Measure::ReadsWithoutPipelines(self.without.summary(now))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::{RunMode, decode_measures};

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn the_percentile_lies_in_its_interval_and_the_interval_narrows() {
        let of = |count: u64| {
            let tail = Tail::new(WITHOUT);
            (0..count).for_each(|at| tail.record(US * (1000 * at / count) as u32, seconds(1.0)));
            tail.summary(seconds(2.0))
        };
        let (few, many) = (of(500), of(50_000));
        assert_eq!((few.samples, many.samples), (500, 50_000));
        for tail in [few, many] {
            assert!(tail.p99_low <= 990 * US && 985 * US <= tail.p99 && 989 * US <= tail.p99_high, "{tail:?}");
            assert!(tail.p99 <= 1024 * US, "{tail:?}");
        }
        assert!(few.p99_low < many.p99_low, "{few:?} {many:?}");
        assert_eq!(of(0), ReadTail::default());
    }

    /// A trial of pipelines does not see the samples of the last one.
    #[test]
    fn with_pipelines_only_the_last_ten_seconds_count() {
        let tail = Tail::new(WITH);
        (0..200).for_each(|at| tail.record(1000 * US, seconds(f64::from(at) / 100.0)));
        assert_eq!(tail.summary(seconds(3.0)).samples, 200);
        assert_eq!(tail.summary(seconds(10.1)).samples, 0);
        tail.record(10 * US, seconds(20.0));
        let summary = tail.summary(seconds(20.0));
        assert_eq!(summary.samples, 1);
        assert!(summary.p99_high < 11 * US, "{summary:?}");
        // One sample a second for a minute.
        (21..80).for_each(|second| tail.record(10 * US, seconds(f64::from(second))));
        let samples = tail.summary(seconds(79.0)).samples;
        assert!((7..=11).contains(&samples), "{samples}");
    }

    /// While pipelines run for minutes, the earlier latencies are remembered, but not for ever.
    #[test]
    fn without_pipelines_the_last_samples_count_for_ten_minutes() {
        let tail = Tail::new(WITHOUT);
        (0..5000).for_each(|at| tail.record(100 * US, seconds(f64::from(at) / 1000.0)));
        assert_eq!(tail.summary(seconds(400.0)).samples, 5000);
        assert_eq!(tail.summary(seconds(606.0)).samples, 0);
        // Slower reads take the place of the old ones.
        (0..40_000).for_each(|at| tail.record(500 * US, seconds(500.0 + f64::from(at) / 1000.0)));
        let summary = tail.summary(seconds(540.0));
        assert!(summary.p99_low >= 490 * US && summary.samples >= 7500, "{summary:?}");
    }

    #[test]
    fn reads_count_on_the_side_of_what_runs_and_units_are_told_once_a_second() {
        let tails = ReadTails::default();
        tails.record(US, seconds(1.0));
        let pipelines = Pipelines::default();
        tails.watch(vec![Pipelines::default(), pipelines.clone()]);
        tails.record(US, seconds(1.0));
        let run = pipelines.begin(RunMode::PIPELINED);
        tails.record(US, seconds(1.0));
        let samples = |message: Option<Vec<u8>>| match &decode_measures(&message?).unwrap()[..] {
            [Measure::ReadsWithPipelines(with), Measure::ReadsWithoutPipelines(without)] => {
                Some((with.samples, without.samples))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(samples(tails.message(seconds(1.0))), Some((1, 2)));
        assert_eq!(samples(tails.message(seconds(1.9))), None);
        drop(run);
        tails.record(US, seconds(2.0));
        assert_eq!(samples(tails.message(seconds(2.0))), Some((1, 3)));
    }

    /// Many threads, and slices that turn all the time: hardly a sample is lost, and no thread waits.
    #[test]
    fn threads_count_beside_each_other() {
        let tail = Tail::new(Ends { age_min: Duration::ZERO, samples_min: 100_000, age_max: seconds(1000.0) });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|at| tail.record(US, Duration::from_nanos(at))));
            }
        });
        let samples = tail.summary(seconds(0.1)).samples;
        assert_eq!(samples, 200_000);
    }
}
