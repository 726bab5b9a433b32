//! Locks of pessimistic transactions, in simulated time: who waits, for how long, who comes first, who is told of a deadlock,
//! and that nothing is left behind, whatever ends the waiting.

use situ_base::{Env, JobHandle};
use situ_engine::{
    Durability, Error, Keyspace, LockMode, Options, Store, StoreBuilder, Transaction, TransactionOptions,
};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed, wait};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a call that does not wait may take in the simulation.
const AT_ONCE: Duration = Duration::from_millis(1);

struct World {
    env: Env,
    volume: SimVolume,
    store: Store,
    keyspace: Keyspace,
}

impl World {
    fn run(seed: u64, test: impl FnOnce(&World) + Send) {
        let executor = SimExecutor::new(seed);
        executor.clone().run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut options = Options::default();
            options.keyspace.memtable_bytes = 8 << 10;
            options.keyspace.memtables_max = 2;
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
            let keyspace = store.default_keyspace().clone();
            let world = World { env, volume, store, keyspace };
            test(&world);
            let properties = world.store.properties();
            assert_eq!((properties.transactions, properties.locks), (0, 0), "something is left behind");
            world.store.close().unwrap();
        });
    }

    fn begin(&self, timeout_ms: u64) -> Transaction {
        self.store.begin_with(&TransactionOptions::default().read_committed().lock_timeout_ms(timeout_ms)).unwrap()
    }

    fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Box<dyn JobHandle> {
        self.env.executor.spawn("other", Box::new(job)).unwrap()
    }

    /// Lets the others go on until they wait.
    fn settle(&self) {
        self.env.clock.sleep(Duration::from_micros(500));
    }

    fn lock(&self, transaction: &mut Transaction, key: &[u8], mode: LockMode) -> Result<(), Error> {
        transaction.lock_in(&self.keyspace, key, mode)
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_says_who_was_in_the_way() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let mut holder = world.begin(1000);
            world.lock(&mut holder, b"key", LockMode::Exclusive).unwrap();
            for is_async in [false, true] {
                let mut waiter = world.begin(2500);
                let before = world.env.clock.now();
                let outcome = match is_async {
                    false => waiter.put_in(&world.keyspace, b"key", b"value"),
                    true => {
                        let lock = waiter.lock_in_async(&world.keyspace, b"key", LockMode::Exclusive);
                        wait(&world.env, lock)
                    }
                };
                let took = world.env.clock.now() - before;
                let expected = Duration::from_millis(2500);
                assert!(expected <= took && took < expected + AT_ONCE, "{took:?}");
                let Err(error @ Error::LockTimeout { .. }) = outcome else { panic!("{outcome:?}") };
                let Error::LockTimeout { wait, waited_ms: 2500 } = &error else { panic!("{error:?}") };
                assert_eq!((wait.transaction, wait.waits_for), (waiter.number(), holder.number()));
                assert_eq!((&wait.keyspace[..], &wait.key[..]), ("default", &b"key"[..]));
                let text = error.to_string();
                assert!(text.contains("no lock within 2500 ms") && text.contains("\"key\" of \"default\""), "{text}");
                // It goes on, and may try again.
                waiter.put_in(&world.keyspace, b"another", b"value").unwrap();
                assert_eq!(world.store.properties().locks, 2);
            }
            assert_eq!(world.store.statistics().lock_timeouts, 2);
            drop(holder);
        });
    });
}

#[test]
fn whoever_waits_gets_the_lock_when_it_is_given_back_and_sees_what_was_committed() {
    for_each_seed(0, 60, |seed| {
        World::run(seed, |world| {
            let mut rng = Rng::new(seed);
            let mut holder = world.begin(1000);
            holder.put_in(&world.keyspace, b"key", b"new").unwrap();
            let commits = rng.chance(0.7);
            let expected = commits.then(|| b"new".to_vec());
            let jobs: Vec<_> = (0..3)
                .map(|n| {
                    let (store, keyspace, env) = (world.store.clone(), world.keyspace.clone(), world.env.clone());
                    let expected = expected.clone();
                    world.spawn(move || {
                        let mut waiter =
                            store.begin_with(&TransactionOptions::default().lock_timeout_ms(60_000)).unwrap();
                        let mode = if n == 0 { LockMode::Exclusive } else { LockMode::Shared };
                        let seen = match n {
                            2 => wait(&env, waiter.get_for_update_in_async(&keyspace, b"key", mode)).unwrap(),
                            _ => waiter.get_for_update_in(&keyspace, b"key", mode).unwrap(),
                        };
                        assert_eq!(seen.map(|value| value.to_vec()), expected);
                        waiter.commit().unwrap();
                    })
                })
                .collect();
            world.settle();
            assert_eq!(world.store.properties().locks, 4);
            match (commits, rng.chance(0.5)) {
                (true, true) => assert!(holder.commit().is_ok()),
                (true, false) => assert!(wait(&world.env, holder.commit_async()).is_ok()),
                (false, _) => holder.rollback(),
            }
            jobs.iter().for_each(|job| job.join().unwrap());
            assert_eq!(world.store.statistics().lock_waits, 3);
        });
    });
}

/// The locks of a commit whose future nobody keeps are given back when the commit is visible.
#[test]
fn a_commit_whose_future_is_dropped_takes_place_and_gives_back_its_locks() {
    for_each_seed(0, 40, |seed| {
        World::run(seed, |world| {
            for durability in [Durability::Buffered, Durability::Synced] {
                let options = TransactionOptions::default().durability(durability);
                let mut transaction = world.store.begin_with(&options).unwrap();
                transaction.put_in(&world.keyspace, b"key", [durability as u8]).unwrap();
                drop(transaction.commit_async());
                let mut next = world.store.begin().unwrap();
                let seen = next.get_for_update_in(&world.keyspace, b"key", LockMode::Exclusive).unwrap();
                assert_eq!(seen.as_deref(), Some(&[durability as u8][..]));
                next.commit().unwrap();
            }
        });
    });
}

#[test]
fn first_come_first_served_and_readers_go_together() {
    for_each_seed(0, 60, |seed| {
        World::run(seed, |world| {
            let mut holder = world.begin(1000);
            world.lock(&mut holder, b"key", LockMode::Shared).unwrap();
            // A reader joins as long as nobody waits.
            let mut reader = world.begin(0);
            world.lock(&mut reader, b"key", LockMode::Shared).unwrap();
            drop(reader);
            let order = Arc::new(Mutex::new(Vec::new()));
            let modes = [LockMode::Exclusive, LockMode::Shared, LockMode::Shared, LockMode::Exclusive];
            let jobs: Vec<_> = (0..4usize)
                .map(|n| {
                    let (store, keyspace, order) = (world.store.clone(), world.keyspace.clone(), Arc::clone(&order));
                    let env = world.env.clone();
                    let job = world.spawn(move || {
                        let mut waiter =
                            store.begin_with(&TransactionOptions::default().lock_timeout_ms(60_000)).unwrap();
                        waiter.lock_in(&keyspace, b"key", modes[n]).unwrap();
                        order.lock().unwrap().push((n, store.properties().locks));
                        env.clock.sleep(Duration::from_millis(10));
                    });
                    world.settle();
                    job
                })
                .collect();
            // A newcomer does not overtake the writer that waits, though it could share with the holder.
            let mut newcomer = world.begin(0);
            assert!(matches!(world.lock(&mut newcomer, b"key", LockMode::Shared), Err(Error::LockTimeout { .. })));
            drop((holder, newcomer));
            jobs.iter().for_each(|job| job.join().unwrap());
            let order: Vec<usize> = order.lock().unwrap().iter().map(|(n, _)| *n).collect();
            assert!(matches!(order[..], [0, 1, 2, 3] | [0, 2, 1, 3]), "{order:?}");
        });
    });
}

/// A writer that gives up lets those go on who waited for it only.
#[test]
fn a_waiter_that_gives_up_holds_up_nobody() {
    for_each_seed(0, 40, |seed| {
        World::run(seed, |world| {
            let mut holder = world.begin(1000);
            world.lock(&mut holder, b"key", LockMode::Shared).unwrap();
            let mut writer = world.begin(60_000);
            let mut future = writer.lock_in_async(&world.keyspace, b"key", LockMode::Exclusive);
            assert!(poll(&mut future).is_pending());
            let mut reader = world.begin(60_000);
            let mut behind = reader.lock_in_async(&world.keyspace, b"key", LockMode::Shared);
            assert!(poll(&mut behind).is_pending());
            drop(future);
            wait(&world.env, behind).unwrap();
            // One that was granted and not looked at is given back.
            let mut late = writer.lock_in_async(&world.keyspace, b"other", LockMode::Exclusive);
            assert_eq!(world.store.properties().locks, 3);
            if seed % 2 == 0 {
                assert!(poll(&mut late).is_ready());
                drop(late);
                assert_eq!(world.store.properties().locks, 3);
            } else {
                drop(late);
                assert_eq!(world.store.properties().locks, 2);
            }
        });
    });
}

#[test]
fn a_shared_lock_is_made_exclusive_before_those_that_hold_nothing() {
    for_each_seed(0, 40, |seed| {
        World::run(seed, |world| {
            let (mut first, mut second) = (world.begin(60_000), world.begin(60_000));
            world.lock(&mut first, b"key", LockMode::Shared).unwrap();
            world.lock(&mut second, b"key", LockMode::Shared).unwrap();
            let (store, keyspace) = (world.store.clone(), world.keyspace.clone());
            let writer = world.spawn(move || {
                let mut writer = store.begin_with(&TransactionOptions::default().lock_timeout_ms(60_000)).unwrap();
                let seen = writer.get_for_update_in(&keyspace, b"key", LockMode::Exclusive).unwrap();
                assert_eq!(seen.as_deref(), Some(&b"upgraded"[..]));
            });
            world.settle();
            let mut upgrade = first.lock_in_async(&world.keyspace, b"key", LockMode::Exclusive);
            assert!(poll(&mut upgrade).is_pending());
            drop(second);
            wait(&world.env, upgrade).unwrap();
            assert_eq!(world.store.properties().locks, 2, "an upgrade is no second lock");
            first.put_in(&world.keyspace, b"key", b"upgraded").unwrap();
            first.commit().unwrap();
            writer.join().unwrap();
        });
    });
}

#[test]
fn the_one_who_closes_a_circle_is_told_and_the_others_go_on() {
    for_each_seed(0, 60, |seed| {
        World::run(seed, |world| {
            let length = 2 + seed % 4;
            let deadlocked = Arc::new(AtomicU64::new(0));
            let key = move |n: u64| vec![b'k', (n % length) as u8];
            let jobs: Vec<_> = (0..length)
                .map(|n| {
                    let (store, keyspace, env) = (world.store.clone(), world.keyspace.clone(), world.env.clone());
                    let deadlocked = Arc::clone(&deadlocked);
                    world.spawn(move || {
                        let options = TransactionOptions::default().read_committed().lock_timeout_ms(60_000);
                        let mut transaction = store.begin_with(&options).unwrap();
                        transaction.lock_in(&keyspace, key(n), LockMode::Exclusive).unwrap();
                        env.clock.sleep(Duration::from_millis(10));
                        let mode = if n % 2 == 0 { LockMode::Shared } else { LockMode::Exclusive };
                        let outcome = match n % 3 {
                            0 => wait(&env, transaction.lock_in_async(&keyspace, key(n + 1), mode)),
                            _ => transaction.lock_in(&keyspace, key(n + 1), mode),
                        };
                        let Err(error) = outcome else { return assert!(transaction.commit().is_ok()) };
                        let Error::Deadlock { cycle } = &error else { panic!("{error}") };
                        assert_eq!(cycle.len() as u64, length, "{error}");
                        assert_eq!(cycle[0].transaction, transaction.number());
                        assert_eq!(&cycle[0].key[..], &key(n + 1)[..]);
                        for (wait, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                            assert_eq!(wait.waits_for, next.transaction, "{error}");
                        }
                        assert!(error.is_retryable());
                        deadlocked.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            jobs.iter().for_each(|job| job.join().unwrap());
            assert_eq!(deadlocked.load(Ordering::SeqCst), 1);
            assert_eq!(world.store.statistics().deadlocks, 1);
            assert!(world.env.clock.now() < Duration::from_secs(1), "somebody waited for a timeout");
        });
    });
}

/// Two that have a key shared and both want it exclusive can never have it.
#[test]
fn two_upgrades_are_a_deadlock_and_one_behind_a_queue_is_found_too() {
    for_each_seed(0, 30, |seed| {
        World::run(seed, |world| {
            let (mut first, mut second) = (world.begin(60_000), world.begin(60_000));
            world.lock(&mut first, b"key", LockMode::Shared).unwrap();
            world.lock(&mut second, b"key", LockMode::Shared).unwrap();
            let mut upgrade = first.lock_in_async(&world.keyspace, b"key", LockMode::Exclusive);
            assert!(poll(&mut upgrade).is_pending());
            let outcome = world.lock(&mut second, b"key", LockMode::Exclusive);
            assert!(matches!(&outcome, Err(Error::Deadlock { cycle }) if cycle.len() == 2), "{outcome:?}");
            drop(second);
            wait(&world.env, upgrade).unwrap();
            drop(first);

            // A reader that waits behind a writer waits for it, though it could share with the holder.
            let (mut holder, mut writer, mut reader) = (world.begin(60_000), world.begin(60_000), world.begin(60_000));
            world.lock(&mut holder, b"a", LockMode::Shared).unwrap();
            world.lock(&mut reader, b"b", LockMode::Exclusive).unwrap();
            let mut waits = writer.lock_in_async(&world.keyspace, b"a", LockMode::Exclusive);
            assert!(poll(&mut waits).is_pending());
            let mut behind = reader.lock_in_async(&world.keyspace, b"a", LockMode::Shared);
            assert!(poll(&mut behind).is_pending());
            let outcome = world.lock(&mut holder, b"b", LockMode::Shared);
            assert!(matches!(&outcome, Err(Error::Deadlock { cycle }) if cycle.len() == 3), "{outcome:?}");
        });
    });
}

/// Many threads lock keys in random orders. With deadlock detection none of them ever waits for its time to be over, and
/// all the work is done.
#[test]
fn a_storm_of_deadlocks_passes() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 15;
    let deadlocks = AtomicU64::new(0);
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            let jobs: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (store, keyspace, env) = (world.store.clone(), world.keyspace.clone(), world.env.clone());
                    world.spawn(move || {
                        let mut rng = Rng::new(seed * 100 + thread);
                        for _ in 0..ROUNDS {
                            let mut keys: Vec<u8> = (0..6).collect();
                            rng.shuffle(&mut keys);
                            while let Err(error) = increment(&store, &keyspace, &env, &mut rng, &keys[..3]) {
                                assert!(matches!(error, Error::Deadlock { .. }), "{error}");
                            }
                        }
                    })
                })
                .collect();
            jobs.iter().for_each(|job| job.join().unwrap());
            let number = |key: u8| {
                let value = world.keyspace.get([key]).unwrap().unwrap();
                u64::from_le_bytes(value[..].try_into().unwrap())
            };
            assert_eq!((0..6).map(number).sum::<u64>(), 3 * THREADS * ROUNDS);
            let statistics = world.store.statistics();
            assert_eq!((statistics.lock_timeouts, statistics.transaction_conflicts), (0, 0));
            deadlocks.fetch_add(statistics.deadlocks, Ordering::Relaxed);
        });
    });
    assert!(deadlocks.into_inner() > 100);
}

fn increment(store: &Store, keyspace: &Keyspace, env: &Env, rng: &mut Rng, keys: &[u8]) -> Result<(), Error> {
    let options = TransactionOptions::default().read_committed().lock_timeout_ms(3_600_000);
    let mut transaction = store.begin_with(&options)?;
    for key in keys {
        // Some lock shared first, and run into each other when they want more.
        let mode = if rng.chance(0.3) { LockMode::Shared } else { LockMode::Exclusive };
        let seen = match rng.chance(0.5) {
            true => transaction.get_for_update_in(keyspace, [*key], mode)?,
            false => wait(env, transaction.get_for_update_in_async(keyspace, [*key], mode))?,
        };
        let number = seen.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
        env.executor.yield_point();
        transaction.put_in(keyspace, [*key], (number + 1).to_le_bytes())?;
    }
    transaction.commit().map(drop)
}

#[test]
fn a_store_that_closes_answers_whoever_waits_for_a_lock() {
    for_each_seed(0, 60, |seed| {
        World::run(seed, |world| {
            let mut holder = world.begin(1000);
            holder.put_in(&world.keyspace, b"key", b"value").unwrap();
            let jobs: Vec<_> = (0..4)
                .map(|n| {
                    let (store, keyspace, env) = (world.store.clone(), world.keyspace.clone(), world.env.clone());
                    world.spawn(move || {
                        let options = TransactionOptions::default().lock_timeout_ms(3_600_000);
                        let Ok(mut waiter) = store.begin_with(&options) else { return };
                        let outcome = match n % 2 {
                            0 => waiter.put_in(&keyspace, b"key", b"mine"),
                            _ => wait(&env, waiter.get_for_update_in_async(&keyspace, b"key", LockMode::Shared))
                                .map(drop),
                        };
                        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
                    })
                })
                .collect();
            if seed % 3 > 0 {
                world.settle();
            }
            world.store.close().unwrap();
            jobs.iter().for_each(|job| job.join().unwrap());
            assert!(world.env.clock.now() < Duration::from_secs(60));
            assert!(matches!(holder.commit(), Err(Error::Closed)));
        });
    });
}

/// An asynchronous commit to a store whose memtables are full waits in the room for asynchronous writes. What has come in between
/// is looked at when it begins, and its locks are kept until then.
#[test]
fn a_commit_that_has_to_wait_for_room_is_checked_when_it_begins() {
    for_each_seed(0, 40, |seed| {
        World::run(seed, |world| {
            let held = Rule::new(Fault::Delay(Duration::from_secs(10))).on(&[Operation::Create]);
            world.volume.set_faults(FaultPlan::none().with(held.files(&[FileKind::Table])));
            let is_conflict = seed % 2 == 0;
            let mut transaction = world.begin(1000);
            transaction.put_in(&world.keyspace, b"key", b"mine").unwrap();
            // Until a write has to wait.
            let mut writes = Vec::new();
            for n in 0..1000u32 {
                let key = n.to_be_bytes();
                writes.push(world.store.put_with_async(key, [7; 500], Durability::Buffered));
                world.settle();
                if world.store.properties().writes_waiting > 0 {
                    break;
                }
            }
            if is_conflict {
                writes.push(world.store.put_with_async(b"key", b"theirs", Durability::Buffered));
            }
            let before = world.env.clock.now();
            let commit = transaction.commit_async();
            assert!(world.env.clock.now() - before < AT_ONCE);
            assert_eq!(world.store.properties().locks, 1);
            let mut other = world.begin(0);
            assert!(matches!(other.put_in(&world.keyspace, b"key", b""), Err(Error::LockTimeout { .. })));
            let outcome = wait(&world.env, commit);
            assert_eq!(world.store.properties().locks, 0);
            assert!(world.env.clock.now() - before > Duration::from_secs(1), "it did not wait");
            match is_conflict {
                true => assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}"),
                false => assert!(outcome.is_ok(), "{outcome:?}"),
            }
            let value = world.store.get(b"key").unwrap();
            assert_eq!(value.as_deref(), Some(if is_conflict { &b"theirs"[..] } else { b"mine" }));
            writes.into_iter().for_each(|write| wait(&world.env, write).unwrap());
        });
    });
}

/// The check of a commit whose keys may have changed in tables reads them; the caller of `commit_async` does not wait for it.
#[test]
fn a_commit_that_has_to_read_tables_does_so_on_a_thread_of_the_store() {
    for_each_seed(0, 20, |seed| {
        World::run(seed, |world| {
            for is_conflict in [false, true] {
                let mut transaction =
                    world.store.begin_with(&TransactionOptions::optimistic().read_committed()).unwrap();
                transaction.put_in(&world.keyspace, b"key 5", b"mine").unwrap();
                let theirs: &[u8] = if is_conflict { b"key 5" } else { b"key 6" };
                for key in [&b"key 1"[..], theirs, b"key 9"] {
                    world.store.put(key, b"theirs").unwrap();
                }
                world.store.flush().unwrap();
                let slow = Rule::new(Fault::Delay(Duration::from_secs(5))).on(&[Operation::Open]);
                world.volume.set_faults(FaultPlan::none().with(slow));
                let before = world.env.clock.now();
                let commit = transaction.commit_async();
                assert!(world.env.clock.now() - before < AT_ONCE);
                let outcome = wait(&world.env, commit);
                assert!(world.env.clock.now() - before >= Duration::from_secs(5));
                world.volume.set_faults(FaultPlan::none());
                assert_eq!(matches!(outcome, Err(Error::Conflict { .. })), is_conflict, "{outcome:?}");
            }
        });
    });
}

/// A commit that the log fails is answered with why, and so are those behind it; what it had locked is anybody's.
#[test]
fn promise_7_a_commit_that_fails_gives_back_its_locks() {
    for_each_seed(0, 30, |seed| {
        World::run(seed, |world| {
            let options = TransactionOptions::default().durability(Durability::Synced).lock_timeout_ms(60_000);
            let mut transaction = world.store.begin_with(&options).unwrap();
            transaction.put_in(&world.keyspace, b"key", b"value").unwrap();
            let (store, keyspace) = (world.store.clone(), world.keyspace.clone());
            let other = world.spawn(move || {
                let mut other = store.begin_with(&options).unwrap();
                assert!(other.get_for_update_in(&keyspace, b"key", LockMode::Exclusive).unwrap().is_none());
                assert!(matches!(other.commit(), Err(Error::Failed { .. })));
            });
            world.settle();
            let broken = Rule::new(Fault::Io).on(&[Operation::WritePages, Operation::Sync]);
            world.volume.set_faults(FaultPlan::none().with(broken.files(&[FileKind::Log])));
            let outcome = match seed % 2 {
                0 => transaction.commit(),
                _ => wait(&world.env, transaction.commit_async()),
            };
            assert!(matches!(outcome, Err(Error::Failed { .. })), "{outcome:?}");
            other.join().unwrap();
            assert!(matches!(world.store.begin(), Err(Error::Failed { .. })));
            world.volume.set_faults(FaultPlan::none());
            assert!(world.store.close().is_err());
        });
    });
}
