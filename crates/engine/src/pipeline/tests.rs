//! The stages of a store's writes: what happens when one of them fails, and how many writes of the log are in flight.

use crate::Error;
use crate::api::store::{Store, StoreBuilder};
use crate::base::batch::WriteBatch;
use crate::base::options::Durability;
use crate::base::options::{Ablation, Options};
use situ_base::{Env, Event, Executor, JobHandle};
use situ_sim::{FaultPlan, SimExecutor, SimVolume, for_each_seed};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The epilogue panics at this key, in these tests.
const POISON: &[u8] = b"the key at which the epilogue panics";

pub(super) fn taste(key: &[u8]) {
    assert!(key != POISON, "tasted poison");
}

fn poison(store: &Store) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put_in(store.default_keyspace(), b"a key before it", b"value").unwrap();
    batch.put_in(store.default_keyspace(), POISON, b"value").unwrap();
    batch
}

fn with_store(seed: u64, test: impl FnOnce(&Env, &Store) + Send) {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        let store = StoreBuilder::new(Options::default()).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
        test(&env, &store);
    });
}

fn assert_read_only(store: &Store) {
    assert_eq!(store.get(b"before").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.get(b"a key before it").unwrap().as_deref(), None, "a part of a batch is visible");
    assert!(matches!(store.put(b"after", b"value"), Err(Error::Failed { .. })));
    assert!(matches!(store.close(), Err(Error::Failed { .. })));
}

/// The request used to stay as it was for ever, and with it whoever waited for it or queued behind it.
#[test]
fn promise_7_a_panic_in_the_epilogue_is_the_writers_answer() {
    for_each_seed(0, 10, |seed| {
        with_store(seed, |env, store| {
            store.put(b"before", b"value").unwrap();
            let writers: Vec<_> = (0..3u8)
                .map(|n| {
                    let store = store.clone();
                    let job = move || while store.put([n], b"value").is_ok() {};
                    env.executor.spawn("writer", Box::new(job)).unwrap()
                })
                .collect();
            env.clock.sleep(Duration::from_millis(1));
            let error = store.write_with(poison(store), Durability::Buffered).unwrap_err();
            assert!(error.to_string().contains("tasted poison"), "{error}");
            writers.iter().for_each(|writer| writer.join().unwrap());
            assert_read_only(store);
        });
    });
}

#[test]
fn promise_7_a_panic_in_the_epilogue_is_the_futures_answer() {
    for_each_seed(0, 10, |seed| {
        for durability in [Durability::Buffered, Durability::Synced] {
            with_store(seed, |env, store| {
                store.put(b"before", b"value").unwrap();
                let mut future = pin!(store.write_with_async(poison(store), durability));
                let mut behind = pin!(store.put_with_async(b"behind", b"value", durability));
                env.clock.sleep(Duration::from_secs(10));
                let mut context = Context::from_waker(Waker::noop());
                let outcome = future.as_mut().poll(&mut context);
                assert!(matches!(outcome, Poll::Ready(Err(Error::Failed { .. }))), "{outcome:?}");
                // Refused at once, or after it was queued.
                let outcome = behind.as_mut().poll(&mut context);
                assert!(matches!(outcome, Poll::Ready(Err(Error::Failed { .. }))), "{outcome:?}");
                assert_read_only(store);
            });
        }
    });
}

/// What the parallel log is measured against: a classic one, with one write in flight however many wait.
#[test]
fn a_serial_log_has_one_write_in_flight() {
    let peak = |ablation| {
        let executor = SimExecutor::new(1);
        executor.run(|| {
            let env = executor.env();
            let plan = FaultPlan::none().latency(Duration::from_micros(100)..Duration::from_micros(200));
            let volume = SimVolume::new(&env, plan, 1);
            let options = Options { ablation, ..Options::default() };
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
            let writers = (0..8u8).map(|n| {
                let store = store.clone();
                let job = move || {
                    let put = |_| store.default_keyspace().put_with([n], [n; 500], Durability::Synced).unwrap();
                    (0..20).for_each(put);
                };
                env.executor.spawn("writer", Box::new(job)).unwrap()
            });
            let writers: Vec<_> = writers.collect();
            let waiting: Vec<_> =
                (0..50u8).map(|n| store.put_with_async([9, n], [n; 500], Durability::Synced)).collect();
            writers.iter().for_each(|writer| writer.join().unwrap());
            drop(waiting);
            store.sync().unwrap();
            let peak = store.core().memory.log().unwrap().metrics().in_flight_peak;
            store.close().unwrap();
            peak
        })
    };
    assert!(peak(Ablation::default()) > 1);
    assert_eq!(peak(Ablation { serial_log: true }), 1);
}

/// Threads of the system on a machine without processors: every writer gives way, until as many have come as it waits
/// for.
struct Crowded {
    system: Env,
    together: Barrier,
}

impl Executor for Crowded {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        self.system.executor.spawn(name, job)
    }

    fn event(&self) -> Arc<dyn Event> {
        self.system.executor.event()
    }

    fn yield_once(&self) {
        self.together.wait();
    }

    fn cores(&self) -> usize {
        0
    }
}

/// A writer that found the log idle used to write a page for its own record, however many others were about to come.
#[test]
fn synced_writers_that_come_together_share_a_write() {
    let system = Env::system();
    let crowded = Crowded { system: system.clone(), together: Barrier::new(8) };
    let env = Env { executor: Arc::new(crowded), ..system };
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let store = StoreBuilder::new(Options::default()).env(env).open_volume(Arc::new(volume)).unwrap();
    let before = store.properties().log_syncs;
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            let store = &store;
            scope.spawn(move || store.default_keyspace().put_with([n], b"value", Durability::Synced).unwrap());
        }
    });
    assert_eq!(store.properties().log_syncs - before, 1, "writes for 8 synced puts");
    assert!((0..8u8).all(|n| store.get([n]).unwrap().is_some()));
}
