//! Loggers carry asynchronous writes: one thread with several log writes in flight where the disk has a queue for them, and
//! one to three threads where a write is a call. What is seen is the log's area of a fast disk without a file system.
//!
//! A simulated run is too short for the trials that decide how many are in flight: it begins with the most.

use crate::common::raw::{JOURNAL, PAGE, formatted, volume};
use crate::common::watched::{Seen, Watched};
use situ_base::Env;
use situ_engine::{Ablation, Durability, Options, Store, StoreBuilder};
use situ_rawdisk::{RawOptions, RawVolume};
use situ_sim::{FaultPlan, SimExecutor, SimVolume, for_each_seed, wait};
use situ_tiers::TieredBuilder;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const LOG_PAGES: u64 = 400;
/// As in `loggers.rs`.
const LOGGERS_MAX: usize = 3;
const FLIGHTS_MAX: usize = 8;

/// One to two times so long takes an operation of the fast disk.
const LATENCY: Duration = Duration::from_micros(200);

/// A store with its log on a fast disk, which has queues for log writes or not.
fn with_log(seed: u64, queues: bool, ablation: Ablation, test: impl FnOnce(&Env, &Store, &Watched) + Send) {
    let sim = SimExecutor::new(seed);
    let env = sim.env();
    sim.run(|| {
        let device = formatted(&env, FaultPlan::none().latency(LATENCY..2 * LATENCY), 2 * LOG_PAGES, LOG_PAGES);
        // Behind the journal is the log's area, aligned.
        let first = JOURNAL.end.next_multiple_of(16 * PAGE);
        assert_eq!(volume(&env, &device).unwrap().report().log.bytes, LOG_PAGES * PAGE);
        let watched = Watched::new(&device, first..first + LOG_PAGES * PAGE);
        let watched = if queues { watched.with_watches() } else { watched };
        let fast =
            RawVolume::open(Arc::new(watched.clone()), env.clone(), RawOptions { cache_bytes: 1 << 20 }).unwrap();
        let home = SimVolume::new(&env, FaultPlan::none(), seed);
        let mut options = Options::default();
        // No flush and no other log file while the test looks.
        options.keyspace.memtable_bytes = 512 << 10;
        options.ablation = ablation;
        let builder = StoreBuilder::new(options).env(env.clone());
        let store = builder.open_volumes(Arc::new(home), Some(Arc::new(fast))).unwrap();
        settle(&env, &watched);
        test(&env, &store, &watched);
        store.close().unwrap();
    });
}

/// A thread that has just begun, or was needed until now, looks once whether there is something to do.
fn settle(env: &Env, watched: &Watched) {
    env.clock.sleep(Duration::from_millis(5));
    watched.take();
}

/// Many synced writes under way, called one after the other with `pause` between them.
fn many(env: &Env, store: &Store, watched: &Watched, pause: Duration) -> Seen {
    let put = |n: u32| {
        env.clock.sleep(pause);
        store.put_with_async(n.to_be_bytes(), [n as u8; 100], Durability::Synced)
    };
    let writes: Vec<_> = (0..400).map(put).collect();
    writes.into_iter().for_each(|write| wait(env, write).unwrap());
    watched.take()
}

/// One synced write at a time.
fn few(env: &Env, store: &Store, watched: &Watched) -> Seen {
    settle(env, watched);
    for n in 0..50u32 {
        wait(env, store.put_with_async(n.to_be_bytes(), b"value", Durability::Synced)).unwrap();
    }
    watched.take()
}

/// With many writes under way there are two or three loggers, each with a write in flight; with one at a time there is
/// one, before and after.
#[test]
fn a_second_logger_works_where_a_write_is_a_call() {
    let mut most = 0;
    for_each_seed(1, 10, |seed| {
        with_log(seed, false, Ablation::default(), |env, store, watched| {
            for _ in 0..2 {
                let seen = few(env, store, watched);
                assert!(seen.writes >= 50 && seen.together == 1 && seen.threads.len() == 1, "little load: {seen:?}");
                let seen = many(env, store, watched, Duration::from_micros(10));
                assert!((2..=LOGGERS_MAX).contains(&seen.together), "much load: {seen:?}");
                assert!((seen.together..=LOGGERS_MAX).contains(&seen.threads.len()), "much load: {seen:?}");
                assert!(seen.writes < 200, "a write each is no group: {seen:?}");
                most = most.max(seen.together);
            }
        });
    });
    assert_eq!(most, LOGGERS_MAX, "there are up to three");
}

/// The same with a queue: one thread has them all in flight.
#[test]
fn one_logger_has_many_writes_in_flight_where_the_disk_has_a_queue() {
    let mut most = 0;
    for_each_seed(1, 10, |seed| {
        with_log(seed, true, Ablation::default(), |env, store, watched| {
            for _ in 0..2 {
                let seen = few(env, store, watched);
                assert!(seen.writes >= 50 && seen.together == 1 && seen.threads.len() == 1, "little load: {seen:?}");
                let seen = many(env, store, watched, Duration::from_micros(10));
                assert!((4..=FLIGHTS_MAX).contains(&seen.together), "much load: {seen:?}");
                assert_eq!(seen.threads.len(), 1, "much load: {seen:?}");
                most = most.max(seen.together);
            }
        });
    });
    assert_eq!(most, FLIGHTS_MAX);
}

/// Long values fill several writes at once. The second one does not wait for the first.
#[test]
fn writes_that_are_full_go_together() {
    let mut most = 0;
    for_each_seed(1, 5, |seed| {
        with_log(seed, true, Ablation::default(), |env, store, watched| {
            let put = |n: u32| store.put_with_async(n.to_be_bytes(), [n as u8; 14_000], Durability::Synced);
            let writes: Vec<_> = (0..32).map(put).collect();
            writes.into_iter().for_each(|write| wait(env, write).unwrap());
            let seen = watched.take();
            assert!(seen.together >= 2, "{seen:?}");
            most = most.max(seen.together);
        });
    });
    assert!(most >= 3, "{most} writes at most");
}

/// Waits for a write in a waker, which is forbidden.
struct PutsWhenWoken(Store, Arc<Mutex<Vec<bool>>>);

impl Wake for PutsWhenWoken {
    fn wake(self: Arc<Self>) {
        let put = self.0.put_with(b"key", b"value", Durability::Synced);
        self.1.lock().unwrap().push(put.is_ok());
    }
}

#[test]
fn a_waker_that_waits_for_a_write_gets_an_error_where_it_would_wait_for_itself() {
    for_each_seed(1, 5, |seed| {
        with_log(seed, true, Ablation::default(), |env, store, _| {
            let results = Arc::default();
            let waker = Waker::from(Arc::new(PutsWhenWoken(store.clone(), Arc::clone(&results))));
            let mut writes = Vec::new();
            for n in 0..100u32 {
                env.clock.sleep(Duration::from_micros(10));
                let mut write = Box::pin(store.put_with_async(n.to_be_bytes(), [n as u8; 100], Durability::Synced));
                let _ = write.as_mut().poll(&mut Context::from_waker(&waker));
                writes.push(write);
            }
            writes.into_iter().for_each(|write| wait(env, write).unwrap());
            let results = results.lock().unwrap();
            assert!(results.contains(&false), "{} wakers, none in the middle of writes", results.len());
        });
    });
}

/// What the ablation of the parallel log takes away.
#[test]
fn a_serial_log_has_one_logger_and_one_write_in_flight() {
    for_each_seed(1, 10, |seed| {
        let ablation = Ablation { serial_log: true };
        with_log(seed, seed % 2 == 0, ablation, |env, store, watched| {
            let seen = many(env, store, watched, Duration::from_micros(10));
            assert!(seen.together == 1 && seen.threads.len() == 1, "{seen:?}");
        });
    });
}
