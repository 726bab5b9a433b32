//! Asynchronous writes to a store that cannot take them now: the call returns at once, the future stays pending and is
//! woken when the store has room; nobody needs to keep it, and whoever waits is answered when the store ends.

use crate::common::taken;
use situ_base::Env;
use situ_engine::{Durability, Error, Options, ReadOptions, Store, StoreBuilder, WriteBatch, WriteFuture};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume, for_each_seed, wait};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How long a flush is held back.
const HELD: Duration = Duration::from_secs(10);
/// What a call that does not wait may take in the simulation.
const AT_ONCE: Duration = Duration::from_millis(10);
const VALUE_BYTES: usize = 500;

/// A waker with a bug.
struct Clumsy;

impl Wake for Clumsy {
    fn wake(self: Arc<Self>) {
        panic!("a clumsy waker");
    }
}

fn polled(future: &mut WriteFuture) -> Poll<Result<(), Error>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct World {
    executor: SimExecutor,
    env: Env,
    volume: SimVolume,
    store: Store,
}

impl World {
    fn run(seed: u64, test: impl FnOnce(&World) + Send) {
        let executor = SimExecutor::new(seed);
        executor.clone().run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume);
            test(&World { executor, env, volume, store });
        });
    }

    /// From now on each flush takes [`HELD`].
    fn hold_flushes(&self) {
        let held = Rule::new(Fault::Delay(HELD)).on(&[Operation::Create]).files(&[FileKind::Table]);
        self.volume.set_faults(FaultPlan::none().with(held));
    }

    /// A call that must not wait.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<WriteFuture, Error> {
        let before = self.env.clock.now();
        let future = self.store.put_with_async(key, value, durability);
        let took = self.env.clock.now() - before;
        assert!(took < AT_ONCE, "the call took {took:?}");
        taken(future)
    }

    /// Writes until the store takes no more; returns the first future whose write has not begun, and how many have.
    fn fill(&self, durability: Durability) -> (WriteFuture, u32) {
        self.hold_flushes();
        for n in 0..1000u32 {
            let mut future = self.put(&n.to_be_bytes(), &[n as u8; VALUE_BYTES], durability).unwrap();
            if !future.has_begun() && self.is_stopped() {
                assert!(polled(&mut future).is_pending());
                return (future, n);
            }
            wait(&self.env, &mut future).unwrap();
        }
        panic!("1000 writes of {VALUE_BYTES} bytes fit into memtables of 8 KiB");
    }

    /// A write may also wait, for a moment, for a log file or for its budget.
    fn is_stopped(&self) -> bool {
        self.env.clock.sleep(Duration::from_secs(1));
        self.store.properties().writes_waiting > 0
    }
}

fn open(env: &Env, volume: &SimVolume) -> Store {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.memtables_max = 2;
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap()
}

/// `put_async` used to wait, blocking its thread, until a flush had made room.
#[test]
fn a_write_that_finds_all_memtables_full_is_pending_and_woken_by_the_flush() {
    for durability in [Durability::Buffered, Durability::Synced] {
        for_each_seed(0, 10, |seed| {
            World::run(seed, |world| {
                let (mut future, number) = world.fill(durability);
                assert_eq!(world.store.get(number.to_be_bytes()).unwrap().as_deref(), None);
                wait(&world.env, &mut future).unwrap();
                assert!(world.store.statistics().flushes > 0);
                let value = [number as u8; VALUE_BYTES];
                assert_eq!(world.store.get(number.to_be_bytes()).unwrap().as_deref(), Some(&value[..]));
                let properties = world.store.properties();
                assert_eq!((properties.writes_waiting, properties.waiting_bytes), (0, 0));
                world.store.close().unwrap();
            });
        });
    }
}

#[test]
fn writes_that_wait_begin_in_the_order_of_the_calls() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let (first, _) = world.fill(Durability::Buffered);
            let mut futures = vec![first];
            for n in 0..100u32 {
                let durability = if n % 3 == 0 { Durability::Synced } else { Durability::Buffered };
                futures.push(world.put(b"key", &[n as u8; VALUE_BYTES], durability).unwrap());
            }
            // A blocking write of the same caller comes behind all of them, and one of another one in between is taken.
            let store = world.store.clone();
            let other =
                world.executor.env().executor.spawn("other", Box::new(move || store.put(b"other", b"").unwrap()));
            world.store.put(b"key", b"the last").unwrap();
            assert!(futures.iter().all(WriteFuture::has_begun));
            assert_eq!(world.store.get(b"key").unwrap().as_deref(), Some(&b"the last"[..]));
            for future in futures.iter_mut().rev() {
                wait(&world.env, future).unwrap();
            }
            other.unwrap().join().unwrap();
            world.store.close().unwrap();
        });
    });
}

#[test]
fn a_write_takes_place_though_its_future_is_dropped_before_it_begins() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let (first, number) = world.fill(Durability::Synced);
            let dropped = world.put(b"dropped", &[1; VALUE_BYTES], Durability::Synced).unwrap();
            let mut kept = world.put(b"kept", &[2; VALUE_BYTES], Durability::Synced).unwrap();
            drop(first);
            drop(dropped);
            assert_eq!(world.store.properties().writes_waiting, 3);
            wait(&world.env, &mut kept).unwrap();
            world.store.close().unwrap();
            let reopened = open(&world.env, &world.volume);
            assert!(reopened.get(number.to_be_bytes()).unwrap().is_some());
            assert_eq!(reopened.get(b"dropped").unwrap().as_deref(), Some(&[1; VALUE_BYTES][..]));
            assert_eq!(reopened.get(b"kept").unwrap().as_deref(), Some(&[2; VALUE_BYTES][..]));
            reopened.close().unwrap();
        });
    });
}

#[test]
fn promise_7_a_store_that_closes_answers_the_writes_that_wait() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let (first, number) = world.fill(Durability::Buffered);
            let more = |n: u8| world.put(&[n], &[n; VALUE_BYTES], Durability::Synced).unwrap();
            let futures: Vec<_> = [first].into_iter().chain((0..20).map(more)).collect();
            let waiters = futures.into_iter().map(|mut future| {
                let env = world.env.clone();
                let job = move || {
                    let outcome = wait(&env, &mut future);
                    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
                };
                world.env.executor.spawn("waiter", Box::new(job)).unwrap()
            });
            let waiters: Vec<_> = waiters.collect();
            world.store.close().unwrap();
            waiters.iter().for_each(|waiter| waiter.join().unwrap());
            assert!(matches!(world.put(b"late", b"", Durability::Buffered), Err(Error::Closed)));
            let reopened = open(&world.env, &world.volume);
            assert_eq!(reopened.get(number.to_be_bytes()).unwrap().as_deref(), None);
            reopened.close().unwrap();
        });
    });
}

#[test]
fn promise_7_a_store_that_fails_answers_the_writes_that_wait() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let (first, _) = world.fill(Durability::Buffered);
            let second = world.put(b"second", &[2; VALUE_BYTES], Durability::Synced).unwrap();
            world.volume.set_faults(FaultPlan::none().with(Rule::new(Fault::Io).on(&[Operation::Sync])));
            assert!(world.store.sync().is_err());
            for mut future in [first, second] {
                let outcome = wait(&world.env, &mut future);
                assert!(matches!(outcome, Err(Error::Failed { .. })), "{outcome:?}");
            }
            assert!(matches!(world.put(b"late", b"", Durability::Buffered), Err(Error::Failed { .. })));
            assert!(world.store.close().is_err());
        });
    });
}

/// A waker that panicked used to end the turn of the thread that called it: the writes that were to be answered in the
/// same turn had no answer ever, and the store took no more writes.
#[test]
fn promise_7_a_waker_that_panics_harms_nobody_else() {
    for_each_seed(0, 10, |seed| {
        World::run(seed, |world| {
            let (mut clumsy, mut others) = clumsy_and_others(world);
            for future in &mut others {
                wait(&world.env, future).unwrap();
            }
            assert!(clumsy.iter_mut().all(|future| matches!(polled(future), Poll::Ready(Ok(())))));
            assert_eq!(world.store.statistics().waker_panics, 2);
            world.store.put(b"after", b"").unwrap();
            world.store.close().unwrap();
        });
        World::run(seed, |world| {
            let (mut clumsy, mut others) = clumsy_and_others(world);
            assert!(others.iter_mut().all(|future| polled(future).is_pending()));
            world.store.close().unwrap();
            let closed = |future| matches!(polled(future), Poll::Ready(Err(Error::Closed)));
            assert!(clumsy.iter_mut().chain(&mut others).all(closed));
            assert_eq!(world.store.statistics().waker_panics, 2);
        });
    });
}

/// The same for writes that have begun, whose wakers are called when they are published.
#[test]
fn promise_7_a_waker_that_panics_harms_no_write_that_is_published_with_its_own() {
    for_each_seed(0, 10, |seed| {
        World::run(seed, |world| {
            let slow = Rule::new(Fault::Delay(HELD)).on(&[Operation::WritePages]).files(&[FileKind::Log]);
            world.volume.set_faults(FaultPlan::none().with(slow));
            let mut futures: Vec<_> = (0..3).map(|n| world.put(&[n], b"", Durability::Synced).unwrap()).collect();
            let clumsy = Waker::from(Arc::new(Clumsy));
            assert!(futures.iter().all(WriteFuture::has_begun));
            for future in &mut futures[..2] {
                assert!(Pin::new(future).poll(&mut Context::from_waker(&clumsy)).is_pending());
            }
            wait(&world.env, &mut futures[2]).unwrap();
            assert!(futures.iter_mut().all(|future| matches!(polled(future), Poll::Ready(Ok(())))));
            assert_eq!(world.store.statistics().waker_panics, 2);
            world.store.put(b"after", b"").unwrap();
            world.store.close().unwrap();
        });
    });
}

/// Writes that wait: two whose wakers panic, and three behind them.
fn clumsy_and_others(world: &World) -> (Vec<WriteFuture>, Vec<WriteFuture>) {
    let (first, _) = world.fill(Durability::Buffered);
    let mut futures = vec![first];
    futures.extend((0..4).map(|n| world.put(&[n], &[n; VALUE_BYTES], Durability::Synced).unwrap()));
    let others = futures.split_off(2);
    let waker = Waker::from(Arc::new(Clumsy));
    for future in &mut futures {
        assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    (futures, others)
}

/// The same for the threads that read.
#[test]
fn promise_7_a_waker_that_panics_ends_no_reading_thread() {
    const READS: u8 = 40;
    World::run(1, |world| {
        world.store.put(b"key", b"value").unwrap();
        world.store.flush().unwrap();
        world.store.close().unwrap();
        let store = open(&world.env, &world.volume);
        let clumsy = Waker::from(Arc::new(Clumsy));
        let slow = Rule::new(Fault::Delay(Duration::from_millis(10))).on(&[Operation::Read]).files(&[FileKind::Table]);
        world.volume.set_faults(FaultPlan::none().with(slow));
        let options = ReadOptions::default().bypass_cache(true);
        for _ in 0..READS {
            let mut future = store.get_with_async(b"key", &options);
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&clumsy)).is_pending());
            world.env.clock.sleep(Duration::from_secs(1));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        store.close().unwrap();
    });
}

/// While flushes fail nobody knows when there will be room: a blocking write is told, and so is one that waits.
#[test]
fn promise_7_a_write_that_waits_for_a_flush_that_fails_is_told_why() {
    World::run(1, |world| {
        let full = Rule::new(Fault::NoSpace).on(&[Operation::Create]).files(&[FileKind::Table]);
        world.volume.set_faults(FaultPlan::none().with(full));
        let refused = (0..1000u32).find_map(|n| {
            let mut future = world.put(&n.to_be_bytes(), &[0; VALUE_BYTES], Durability::Buffered).unwrap();
            wait(&world.env, &mut future).err()
        });
        assert!(refused.is_some_and(|error| error.is_no_space()));
        world.volume.set_faults(FaultPlan::none());
        world.env.clock.sleep(HELD);
        let mut future = world.put(b"again", b"", Durability::Synced).unwrap();
        wait(&world.env, &mut future).unwrap();
        world.store.close().unwrap();
    });
}

/// Promise 8: what waits has a limit, and a write that is refused by it takes nothing from the others.
#[test]
fn promise_8_the_writes_that_wait_are_bounded() {
    World::run(2, |world| {
        let (first, _) = world.fill(Durability::Buffered);
        let value = vec![0; 8 << 20];
        let mut futures = Vec::new();
        let refused =
            (0..20u8).find_map(|n| world.put(&[n], &value, Durability::Buffered).map(|f| futures.push(f)).err());
        assert!(matches!(refused, Some(Error::TooManyWaiting { .. })), "{refused:?}");
        assert_eq!(futures.len(), 7);
        assert!(world.store.properties().waiting_bytes <= 64 << 20);
        world.volume.set_faults(FaultPlan::none());
        drop(first);
        for future in &mut futures {
            wait(&world.env, future).unwrap();
        }
        assert_eq!(world.store.properties().waiting_bytes, 0);
        world.store.close().unwrap();
    });
}

/// A batch that was cleared keeps its memory, and used to be charged for the few bytes in it: 20 of them held 160 MiB.
#[test]
fn promise_8_batches_that_wait_are_bounded_by_the_memory_they_hold() {
    World::run(4, |world| {
        let (first, _) = world.fill(Durability::Buffered);
        let keyspace = world.store.default_keyspace();
        let small_in_large = |n: u8| {
            let mut batch = WriteBatch::new();
            batch.put_in(keyspace, b"large", vec![0; 8 << 20]).unwrap();
            batch.clear();
            batch.put_in(keyspace, [n], b"small").unwrap();
            batch
        };
        let mut futures = Vec::new();
        let write = |n| taken(world.store.write_with_async(small_in_large(n), Durability::Buffered));
        let refused = (0..20).find_map(|n| write(n).map(|future| futures.push(future)).err());
        assert!(matches!(refused, Some(Error::TooManyWaiting { .. })), "{refused:?}");
        assert_eq!(futures.len(), 7);
        assert!(world.store.properties().waiting_bytes > 56 << 20);
        world.volume.set_faults(FaultPlan::none());
        drop(first);
        for future in &mut futures {
            wait(&world.env, future).unwrap();
        }
        assert_eq!(world.store.properties().waiting_bytes, 0);
        world.store.close().unwrap();
    });
}

/// What a write takes beside its bytes used not to count: 64 MiB of small writes took 1 GB of memory.
#[test]
fn promise_8_small_writes_that_wait_are_bounded_by_the_memory_they_take() {
    World::run(3, |world| {
        let (first, _) = world.fill(Durability::Buffered);
        drop(first);
        let put = |n: u32| taken(world.store.put_with_async(n.to_be_bytes(), [], Durability::Buffered));
        // Nobody needs to keep the futures, whose memory is the caller's.
        let (taken, refused) = (0..300_000).find_map(|n| Some((n, put(n).err()?))).expect("the room has no end");
        assert!(matches!(refused, Error::TooManyWaiting { .. }), "{refused}");
        assert!(taken > 50_000, "only {taken} writes were let in");
        assert_eq!(world.store.properties().writes_waiting, taken as usize + 1);
        assert!(world.store.properties().waiting_bytes <= 64 << 20);
        world.store.close().unwrap();
    });
}

/// The smooth slow-down holds asynchronous writes to the same rate as blocking ones, without their threads.
#[test]
fn writes_are_slowed_without_blocking() {
    for_each_seed(0, 5, |seed| {
        World::run(seed, |world| {
            // A disk of about 1 MB/s for tables.
            let slow =
                Rule::new(Fault::Delay(Duration::from_millis(8))).on(&[Operation::Append]).files(&[FileKind::Table]);
            world.volume.set_faults(FaultPlan::none().with(slow));
            let started = world.env.clock.now();
            let mut futures = Vec::new();
            for n in 0..2000u32 {
                let mut batch = WriteBatch::new();
                batch.put_in(world.store.default_keyspace(), n.to_be_bytes(), [n as u8; VALUE_BYTES]).unwrap();
                let before = world.env.clock.now();
                futures.push(world.store.write_with_async(batch, Durability::Buffered));
                assert!(world.env.clock.now() - before < AT_ONCE);
            }
            for future in &mut futures {
                wait(&world.env, future).unwrap();
            }
            let took = world.env.clock.now() - started;
            assert!(took > Duration::from_millis(500), "1 MB went to a disk of 1 MB/s in {took:?}");
            assert!(world.store.statistics().stall_ns > 0);
            world.store.close().unwrap();
        });
    });
}

/// A buffered write used to wait on its caller's thread for the pages before its own, though these were on their way to
/// the disk itself.
#[test]
fn a_buffered_write_does_not_wait_for_the_sync_of_another() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let slow = Rule::new(Fault::Delay(HELD)).on(&[Operation::WritePages]).files(&[FileKind::Log]).nth(0);
            world.volume.set_faults(FaultPlan::none().with(slow));
            let mut synced = world.put(b"synced", b"", Durability::Synced).unwrap();
            world.env.clock.sleep(Duration::from_millis(1));
            let mut buffered = world.put(b"buffered", b"", Durability::Buffered).unwrap();
            assert!(polled(&mut buffered).is_pending());
            wait(&world.env, &mut buffered).unwrap();
            wait(&world.env, &mut synced).unwrap();
            world.store.close().unwrap();
        });
    });
}

/// With real threads and a real disk: all writes are there, in the order of each thread's calls, those whose futures were
/// dropped in the waiting room, too.
#[test]
fn threads_write_and_drop_while_the_store_is_full() {
    const THREADS: u8 = 4;
    const WRITES: u32 = 1500;
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 32 << 10;
    options.keyspace.memtables_max = 2;
    let store = Store::open_with(directory.path(), options).unwrap();
    let env = Env::system();
    let waited = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, env) = (&store, &env);
                scope.spawn(move || {
                    let mut waited = 0;
                    let mut under_way = std::collections::VecDeque::new();
                    for n in 0..WRITES {
                        let mut batch = WriteBatch::new();
                        let number = n.to_be_bytes();
                        let keyspace = store.default_keyspace();
                        batch.put_in(keyspace, [&[b'a', thread], &number[..]].concat(), [n as u8; 400]).unwrap();
                        batch.put_in(keyspace, [b'z', thread], number).unwrap();
                        let durability = if n % 50 == 0 { Durability::Synced } else { Durability::Buffered };
                        let future = store.write_with_async(batch, durability);
                        waited += u32::from(!future.has_begun());
                        if n % 7 == 0 {
                            drop(future);
                        } else {
                            under_way.push_back((n, future));
                        }
                        if under_way.len() > 64 {
                            let (_, mut first) = under_way.pop_front().unwrap();
                            wait(env, &mut first).unwrap();
                        }
                    }
                    for (n, mut future) in under_way {
                        wait(env, &mut future).unwrap();
                        let key = [&[b'a', thread], &n.to_be_bytes()[..]].concat();
                        assert!(store.get(&key).unwrap().is_some(), "write {n} was acknowledged");
                    }
                    waited
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<u32>()
    });
    assert!(waited > 0, "the store was never full");
    // A blocking write begins after all that were called before it.
    store.put(b"behind", b"").unwrap();
    for thread in 0..THREADS {
        let last = store.get([b'z', thread]).unwrap().expect("many batches were taken");
        assert_eq!(&last[..], (WRITES - 1).to_be_bytes(), "the last write of a thread is not the newest");
        for n in 0..WRITES {
            let key = [&[b'a', thread], &n.to_be_bytes()[..]].concat();
            assert_eq!(store.get(&key).unwrap().as_deref(), Some(&[n as u8; 400][..]));
        }
    }
    assert_eq!(store.properties().writes_waiting, 0);
    store.close().unwrap();
}
