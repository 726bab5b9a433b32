use super::*;
use crate::distribution::Inserted;
use crate::memory::MemoryStore;
use crate::store::{Change, EachEntry, StoreStats};
use crate::workload::{Dataset, LiveKeys};

/// A store whose reads take a while, or fail.
struct Slow {
    inner: MemoryStore,
    read_time: Duration,
    fails: bool,
}

impl Store for Slow {
    fn name(&self) -> String {
        "slow".to_owned()
    }
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> std::result::Result<(), StoreFailure> {
        self.inner.put(key, value, sync)
    }
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> std::result::Result<bool, StoreFailure> {
        if self.fails {
            return Err("the disk is gone".into());
        }
        thread::sleep(self.read_time);
        self.inner.get(key, value)
    }
    fn delete(&self, key: &[u8], sync: bool) -> std::result::Result<(), StoreFailure> {
        self.inner.delete(key, sync)
    }
    fn batch(&self, changes: &[Change<'_>], sync: bool) -> std::result::Result<(), StoreFailure> {
        self.inner.batch(changes, sync)
    }
    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> std::result::Result<u64, StoreFailure> {
        self.inner.scan(start, limit, each)
    }
    fn scan_reverse(
        &self,
        start: Option<&[u8]>,
        limit: u64,
        each: &mut EachEntry<'_>,
    ) -> std::result::Result<u64, StoreFailure> {
        self.inner.scan_reverse(start, limit, each)
    }
    fn flush(&self) -> std::result::Result<(), StoreFailure> {
        Ok(())
    }
    fn compact_all(&self) -> std::result::Result<(), StoreFailure> {
        Ok(())
    }
    fn wait_idle(&self) -> std::result::Result<(), StoreFailure> {
        Ok(())
    }
    fn stats(&self) -> std::result::Result<StoreStats, StoreFailure> {
        self.inner.stats()
    }
}

fn run_on(workload: Workload, options: &BenchOptions, store: &dyn Store) -> Result<Driven> {
    let dataset = Dataset { live: LiveKeys::new(options.keys), inserted: Inserted::new(0) };
    let worker = |seed| Worker::new(workload, options, &dataset, None, seed);
    let workers: Vec<_> = (0..u64::from(options.threads)).map(worker).collect();
    let background = (workload == Workload::ReadWhileWriting).then(|| worker(99));
    let control = Control::new(workers.len(), Stop::default());
    drive(workload, options, store, &control, workers, background)
}

fn options(operations: u64, threads: u32) -> BenchOptions {
    BenchOptions { keys: 1000, operations: Some(operations), threads, ..BenchOptions::default() }
}

#[test]
fn an_open_loop_charges_a_slow_store_for_the_requests_it_kept_waiting() {
    // 2 ms per read, 1 ms apart: the hundredth read is due at 100 ms and done at about 200 ms.
    let store = Slow { inner: MemoryStore::default(), read_time: Duration::from_millis(2), fails: false };
    let mut paced = options(100, 1);
    paced.rate = Some(1000);
    let open = run_on(Workload::ReadRandom, &paced, &store).expect("open loop").merged.latencies();
    let closed = run_on(Workload::ReadRandom, &options(100, 1), &store).expect("closed loop");
    let closed = closed.merged.latencies();
    assert!(open[0].p99_ns > 90_000_000, "{}", open[0].p99_ns);
    assert!(open[0].p50_ns > 40_000_000, "{}", open[0].p50_ns);
    // The closed loop sees the same store as quick: that is what coordinated omission hides.
    assert!(closed[0].p50_ns < open[0].p50_ns / 4, "{}", closed[0].p50_ns);
}

#[test]
fn a_fast_store_keeps_the_rate_and_no_more() {
    let mut paced = options(200, 2);
    paced.rate = Some(4000);
    let driven = run_on(Workload::ReadRandom, &paced, &MemoryStore::default()).expect("run");
    assert_eq!(driven.merged.operations, 400);
    let seconds = driven.merged.elapsed.as_secs_f64();
    assert!((0.095..0.5).contains(&seconds), "{seconds}");
}

#[test]
fn the_first_error_stops_all_threads_and_is_reported() {
    let store = Slow { inner: MemoryStore::default(), read_time: Duration::ZERO, fails: true };
    let Err(error) = run_on(Workload::ReadWhileWriting, &options(u64::MAX, 3), &store) else {
        panic!("the store always fails");
    };
    assert_eq!(error.to_string(), "the store failed in readwhilewriting: the disk is gone");
}

#[test]
fn the_time_limit_ends_an_endless_workload() {
    let mut endless = options(u64::MAX, 2);
    endless.duration_seconds = Some(0.1);
    for workload in [Workload::Mixed, Workload::ReadWhileWriting] {
        let driven = run_on(workload, &endless, &MemoryStore::default()).expect("run");
        assert!(driven.merged.elapsed < Duration::from_secs(5));
        assert!(driven.merged.operations > 0);
    }
}

#[test]
fn outstanding_requests_are_all_counted_once() {
    let mut deep = options(5000, 2);
    deep.outstanding = 16;
    let store = MemoryStore::default();
    for (workload, rate) in
        [(Workload::FillRandom, None), (Workload::Mixed, None), (Workload::ReadRandom, Some(200_000))]
    {
        deep.rate = rate;
        let driven = run_on(workload, &deep, &store).expect("run");
        assert_eq!(driven.merged.operations, 10_000, "{workload}");
        let samples: u64 = driven.merged.latencies().iter().map(|latency| latency.count).sum();
        assert_eq!(samples, 10_000, "{workload}");
    }
}

#[test]
fn a_store_without_an_asynchronous_side_refuses_outstanding_requests() {
    let mut deep = options(10, 1);
    deep.outstanding = 2;
    let store = Slow { inner: MemoryStore::default(), read_time: Duration::ZERO, fails: false };
    let Err(error) = run_on(Workload::ReadRandom, &deep, &store) else {
        panic!("must refuse");
    };
    assert!(error.to_string().contains("asynchronous"), "{error}");
}
