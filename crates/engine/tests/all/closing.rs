//! Ends: a store that closes or fails while much is under way. Whoever waits gets an answer, and whoever comes too late
//! changes nothing.

use crate::common::fast;
use crate::common::*;
use situ_base::{Env, Event, Executor, JobHandle, ThreadExecutor};
use situ_engine::{Durability, Error, Listener, Options, Store, StoreEvent, WriteFuture};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_tiers::TieredBuilder;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Longer than anything takes in the simulation, unless it never ends.
const LONG: Duration = Duration::from_secs(30);

fn options(seed: u64) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.memtables_max = 3;
    options
}

fn world(seed: u64, test: impl FnOnce(&SimExecutor, SimVolume, Rng) + Send) {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
        test(&executor, volume, Rng::new(seed));
    });
}

fn open(executor: &SimExecutor, volume: &SimVolume, seed: u64) -> Store {
    fast::tiered(options(seed)).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap()
}

/// Begins many asynchronous writes of different keys, most of them synced, and polls none.
fn burst(store: &Store, rng: &mut Rng, count: u64) -> Vec<WriteFuture> {
    let one = |n: u64| {
        let durability = if rng.chance(0.8) { Durability::Synced } else { Durability::Buffered };
        taken(store.put_with_async(rng.next_u64().to_be_bytes(), [n as u8; 300], durability)).ok()
    };
    (0..count).filter_map(one).collect()
}

/// The log worker used to go to sleep for good once the store had failed, with requests in the queue that it alone could
/// answer; blocking writes behind them waited for ever.
#[test]
fn promise_7_every_outstanding_write_is_answered_when_the_log_fails() {
    for_each_seed(0, 40, |seed| {
        world(seed, |executor, volume, mut rng| {
            let store = open(executor, &volume, seed);
            let broken = Rule::new(Fault::Io).on(&[Operation::WritePages]).files(&[FileKind::Log]).from(rng.below(6));
            let slow = FaultPlan::none().latency(Duration::from_micros(50)..Duration::from_millis(3));
            volume.set_faults(slow.with(broken));
            let writer = {
                let store = store.clone();
                let job = move || {
                    let put = |n: u32| store.put(n.to_le_bytes(), b"blocking");
                    assert!((0..1000).any(|n| put(n).is_err()), "a log that fails takes writes");
                };
                executor.env().executor.spawn("writer", Box::new(job)).unwrap()
            };
            let futures = burst(&store, &mut rng, 20);
            executor.env().clock.sleep(LONG);
            let waiting = futures.iter().filter(|future| !future.is_done()).count();
            assert_eq!(waiting, 0, "of {} accepted writes", futures.len());
            writer.join().unwrap();
            assert!(matches!(store.close(), Err(Error::Failed { .. })));
        });
    });
}

/// The flusher waits for the writes that were given its memtable, so the log worker must not leave before it.
#[test]
fn a_store_closes_while_many_synced_writes_are_outstanding() {
    // One seed in a thousand met it.
    for_each_seed(0, 1000, |seed| {
        world(seed, |executor, volume, mut rng| {
            let store = open(executor, &volume, seed);
            volume.set_faults(FaultPlan::none().latency(Duration::from_micros(50)..Duration::from_millis(3)));
            // Enough to seal memtables, so that the flusher waits for writes; not enough to fill them all.
            let mut futures = burst(&store, &mut rng, 30);
            executor.env().clock.sleep(Duration::from_micros(rng.below(500)));
            futures.extend(burst(&store, &mut rng, 30));
            executor.env().clock.sleep(Duration::from_micros(rng.below(2000)));
            store.close().unwrap();
            assert!(futures.iter().all(WriteFuture::is_done));
            // Those that still waited for a log file are refused, without a trace.
            let begun = futures.iter().filter(|future| future.has_begun()).count();
            assert!(begun > 0);
            drop(store);
            let reopened = open(executor, &volume, seed);
            assert_eq!(contents(reopened.default_keyspace(), None).len(), begun);
            reopened.close().unwrap();
        });
    });
}

/// A manual compaction that outlived `close` used to install its result, and to delete its inputs, in a directory that
/// belonged to the next opener by then.
#[test]
fn a_store_is_not_closed_under_a_manual_compaction_or_a_change_of_keyspaces() {
    for_each_seed(0, 60, |seed| {
        world(seed, |executor, volume, mut rng| {
            let store = open(executor, &volume, seed);
            let mut model = Model::new();
            for n in 0..150 {
                let (key, value) = (key(&mut rng, 100), value(&mut rng));
                store.put(&key, &value).unwrap();
                model.insert(key, value);
                if n % 50 == 0 {
                    store.flush().unwrap();
                }
            }
            volume.set_faults(FaultPlan::none().latency(Duration::from_micros(50)..Duration::from_millis(3)));
            let spawn = |name: &str, job: Box<dyn FnOnce() + Send>| executor.env().executor.spawn(name, job).unwrap();
            let compacting = store.clone();
            let creating = store.clone();
            let threads = [
                spawn("compacts", Box::new(move || drop(compacting.default_keyspace().compact(None, None)))),
                spawn("creates", Box::new(move || drop(creating.create_keyspace("new", Default::default())))),
            ];
            executor.env().clock.sleep(Duration::from_micros(rng.below(60_000)));
            store.close().unwrap();
            drop(store);
            // The next opener has the directory for itself.
            let reopened = open(executor, &volume, seed);
            let key = b"written by the next opener".to_vec();
            reopened.put(&key, b"value").unwrap();
            model.insert(key, b"value".to_vec());
            reopened.flush().unwrap();
            for thread in threads {
                thread.join().unwrap();
            }
            reopened.check().unwrap();
            compare(reopened.default_keyspace(), &model, None, "beside the old threads");
            reopened.close().unwrap();
            let again = open(executor, &volume, seed);
            compare(again.default_keyspace(), &model, None, "after all");
            again.close().unwrap();
        });
    });
}

/// What was copied out of a keyspace, and acknowledged as buffered, is not lost when the keyspace is gone for good.
#[test]
fn promise_1_a_dropped_keyspace_takes_no_earlier_write_with_it() {
    for_each_seed(0, 30, |seed| {
        world(seed, |executor, volume, mut rng| {
            let store = open(executor, &volume, seed);
            let source = store.create_keyspace("source", Default::default()).unwrap();
            let mut model = Model::new();
            for _ in 0..10 + rng.below(40) {
                let (key, value) = (key(&mut rng, 100), value(&mut rng));
                source.put_with(&key, &value, Durability::Synced).unwrap();
                model.insert(key, value);
            }
            for (key, value) in &model {
                store.put(key, value).unwrap();
            }
            store.drop_keyspace("source").unwrap();
            let crashed = volume.crash(seed);
            let reopened = fast::tiered(options(seed)).env(executor.env()).open_volume(Arc::new(crashed)).unwrap();
            assert_eq!(reopened.keyspace_names(), ["default"]);
            compare(reopened.default_keyspace(), &model, None, "after the crash");
            reopened.close().unwrap();
            let _ = store.close();
        });
    });
}

struct Clumsy(AtomicUsize);

impl Listener for Clumsy {
    fn event(&self, _: &StoreEvent) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a listener's own bug");
    }
}

/// A panic in a listener ended the thread that flushes, and writers waited for it when all memtables were full.
#[test]
fn a_listener_that_panics_ends_no_thread_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let listener = Arc::new(Clumsy(AtomicUsize::new(0)));
    let mut options = options(1);
    options.listener = Some(Arc::clone(&listener) as Arc<dyn Listener>);
    let store = fast::open_with(directory.path(), options).unwrap();
    for n in 0..2000u32 {
        store.put(n.to_le_bytes(), [7; 200]).unwrap();
    }
    store.flush().unwrap();
    assert!(listener.0.load(Ordering::Relaxed) > 1);
    assert!(store.statistics().listener_panics > 1);
    store.close().unwrap();
}

/// Real threads, those of compactions counted; each takes its time between saying that it is done and being so.
#[derive(Default)]
struct SlowToEnd {
    compactions: Arc<AtomicUsize>,
}

impl Executor for SlowToEnd {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        if name != "compaction" {
            return ThreadExecutor.spawn(name, job);
        }
        let running = Arc::clone(&self.compactions);
        running.fetch_add(1, Ordering::SeqCst);
        ThreadExecutor.spawn(
            name,
            Box::new(move || {
                job();
                running.fetch_sub(1, Ordering::SeqCst);
            }),
        )
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(SlowToReturn(ThreadExecutor.event()))
    }
}

/// An event whose notification returns late on threads of compactions.
struct SlowToReturn(Arc<dyn Event>);

impl Event for SlowToReturn {
    fn generation(&self) -> u64 {
        self.0.generation()
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        self.0.wait(seen, timeout)
    }

    fn notify(&self) {
        self.0.notify();
        if std::thread::current().name() == Some("compaction") {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The thread of a compaction that had just finished used to outlive the store: it held the last reference to it, and
/// panicked as it waited for itself to end.
#[test]
fn no_thread_of_a_compaction_is_left_when_a_store_is_closed() {
    let executor = Arc::new(SlowToEnd::default());
    let env = Env { executor: Arc::clone(&executor) as Arc<dyn Executor>, ..Env::system() };
    let directory = tempfile::tempdir().unwrap();
    let store = fast::tiered(Options::default()).env(env).open(directory.path()).unwrap();
    // On a busy machine, a compaction's thread may have ended before this one looks.
    let is_in_time = (0..50).any(|n| {
        for part in 0..2 {
            store.put(b"key", [n, part]).unwrap();
            store.flush().unwrap();
        }
        store.default_keyspace().compact(None, None).unwrap();
        executor.compactions.load(Ordering::SeqCst) > 0
    });
    assert!(is_in_time, "the test looks too late");
    store.close().unwrap();
    assert_eq!(executor.compactions.load(Ordering::SeqCst), 0);
}

/// The only owner of a store, woken on one of the store's threads.
struct Owner {
    store: Mutex<Option<Store>>,
    /// What closing answered there, and whether dropping the store panicked.
    seen: Mutex<Option<(Result<(), Error>, bool)>>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        let Some(store) = self.store.lock().unwrap().take() else { return };
        let closed = store.close();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(store))).is_err();
        *self.seen.lock().unwrap() = Some((closed, panicked));
    }
}

/// The thread that called the waker used to wait for itself to end, and panicked: the store was closed by half, and its
/// directory given back while its other threads were still at work there.
#[test]
fn a_store_whose_last_handle_goes_on_a_thread_of_its_own_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let open = || fast::open(directory.path());
    let mut seen = None;
    // A write may be done before it is looked at; then nobody is woken.
    for n in 0..1000u32 {
        let store = open().unwrap();
        let mut future = store.put_with_async(b"key", n.to_le_bytes(), Durability::Synced);
        let owner = Arc::new(Owner { store: Mutex::new(Some(store)), seen: Mutex::default() });
        let waker = Waker::from(Arc::clone(&owner));
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready() {
            continue;
        }
        let started = std::time::Instant::now();
        while seen.is_none() && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
            seen = owner.seen.lock().unwrap().take();
        }
        break;
    }
    let (closed, panicked) = seen.expect("woken");
    assert!(matches!(&closed, Err(Error::Invalid(text)) if text.contains("on another thread")), "{closed:?}");
    assert!(!panicked);
    let started = std::time::Instant::now();
    let again = loop {
        match open() {
            Err(Error::Storage(situ_storage::Error::Locked { .. })) if started.elapsed() < LONG => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => break result.unwrap(),
        }
    };
    assert!(again.get(b"key").unwrap().is_some());
}

/// Threads of the store that take their time before they look how much they have been told.
struct Hesitant;

struct Late(Arc<dyn Event>);

impl Event for Late {
    fn generation(&self) -> u64 {
        if std::thread::current()
            .name()
            .is_some_and(|name| matches!(name, "situ-admit" | "situ-flush" | "situ-compact"))
        {
            std::thread::sleep(Duration::from_millis(30));
        }
        self.0.generation()
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        self.0.wait(seen, timeout)
    }

    fn notify(&self) {
        self.0.notify();
    }
}

impl Executor for Hesitant {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        ThreadExecutor.spawn(name, job)
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Late(ThreadExecutor.event()))
    }

    fn cores(&self) -> usize {
        ThreadExecutor.cores()
    }
}

/// A thread that had found the store open, and was told that it closes before it looked how much it had been told, waited for
/// more, and whoever closed waited for the thread. Once in many runs, on a busy machine; of a store that had failed, too.
#[test]
fn closing_ends_threads_that_have_just_found_the_store_open() {
    let env = || Env { executor: Arc::new(Hesitant), ..Env::system() };
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for fails in [false, false, true, true] {
            let root = tempfile::tempdir().unwrap();
            let (home, fast) = (root.path().join("home"), root.path().join("fast"));
            let file = std::fs::File::create(&fast).unwrap();
            file.set_len(64 << 20).unwrap();
            let device = situ_device::open(&fast, situ_device::OpenOptions::default()).unwrap();
            situ_rawdisk::RawVolume::format(device, Env::system(), &situ_rawdisk::FormatOptions::default()).unwrap();
            let store = fast::tiered(options(1)).env(env()).fast_disk(&fast).open(&home).unwrap();
            if fails {
                file.set_len(0).unwrap();
                assert!(store.put(b"key", b"value").is_err());
            }
            assert_eq!(store.close().is_err(), fails);
        }
        told.send(()).unwrap();
    });
    ended.recv_timeout(LONG).expect("a thread of the store waits to be told that it closes");
}

/// Has no thread for those who admit, and takes its time to say so.
struct Short(Env, Duration);

impl Executor for Short {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> std::io::Result<Box<dyn JobHandle>> {
        if name == "situ-admit" {
            self.0.clock.sleep(self.1);
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        self.0.executor.spawn(name, job)
    }

    fn event(&self) -> Arc<dyn Event> {
        self.0.executor.event()
    }
}

/// The flusher went on in a directory that was given back. When the next opener had it, it took a log file away that this one's
/// manifest needed, and after a crash the writes in it were gone.
#[test]
fn a_store_that_gets_too_few_threads_has_ended_what_it_began_when_the_caller_is_told() {
    for_each_seed(0, 60, |seed| {
        world(seed, |executor, volume, mut rng| {
            let store = open(executor, &volume, seed);
            for n in 0..30u64 {
                store.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
            }
            store.close().unwrap();
            volume.set_faults(FaultPlan::none().latency(Duration::from_millis(1)..Duration::from_millis(5)));
            let env = executor.env();
            let short = Short(env.clone(), Duration::from_millis(rng.below(60)));
            let env = Env { executor: Arc::new(short), ..env };
            let opened = fast::tiered(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone()));
            assert!(opened.err().unwrap().to_string().contains("situ-admit"));
            let changes = volume.changes();
            env.clock.sleep(LONG);
            assert_eq!(volume.changes(), changes, "a store that was never open is at work");
            let store = open(executor, &volume, seed);
            for n in 0..30u64 {
                assert_eq!(store.get(n.to_be_bytes()).unwrap().as_deref(), Some(&[n as u8; 100][..]));
            }
            store.close().unwrap();
        });
    });
}
