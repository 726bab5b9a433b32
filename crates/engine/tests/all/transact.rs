//! `Store::transact`: what is run again, what is not, and that it ends.

use situ_engine::{Error, LockMode, Store, Transaction, TransactionOptions};
use situ_sim::{FaultPlan, SimExecutor, SimVolume, for_each_seed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn number(bytes: Option<situ_engine::Value>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()))
}

fn add_one(transaction: &mut Transaction, counter: &str) -> situ_engine::Result<u64> {
    let next = 1 + number(transaction.get(counter)?);
    transaction.put(counter, next.to_le_bytes())?;
    Ok(next)
}

/// What a caller may want to answer.
#[derive(Debug)]
enum Failure {
    OutOfStock,
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// A plain read some time before the write, so that every meeting is a conflict, and two counters in both orders, so that waits
/// become deadlocks.
#[test]
fn threads_that_add_to_the_same_counters_lose_nothing() {
    const THREADS: u64 = 8;
    const ADDITIONS: u64 = 60;
    for options in [TransactionOptions::pessimistic(), TransactionOptions::optimistic()] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let runs = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, runs, options) = (&store, &runs, options.clone());
                scope.spawn(move || {
                    for n in 0..ADDITIONS {
                        let names = if (thread + n) % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                        let added = store.transact_with(&options, |transaction| {
                            runs.fetch_add(1, Ordering::Relaxed);
                            transaction.snapshot();
                            std::thread::sleep(Duration::from_micros(100));
                            names.iter().try_for_each(|name| add_one(transaction, name).map(drop))
                        });
                        added.unwrap_or_else(|error: Error| panic!("{options:?}: {error}"));
                    }
                });
            }
        });
        for name in ["a", "b"] {
            assert_eq!(number(store.get(name).unwrap()), THREADS * ADDITIONS, "{options:?}");
        }
        assert!(runs.into_inner() > THREADS * ADDITIONS, "they have met");
        store.close().unwrap();
    }
}

/// A closure that is in its own way ends with the error, after as many runs as the options say.
#[test]
fn a_transaction_that_conflicts_with_itself_ends_with_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for options in [TransactionOptions::pessimistic(), TransactionOptions::optimistic()] {
        let mut runs = 0;
        let outcome = store.transact_with(&options.attempts_max(7), |transaction| {
            runs += 1;
            transaction.get("key")?;
            store.put("key", "written outside of the transaction")?;
            transaction.put("key", "inside")
        });
        assert!(matches!(outcome, Err(Error::Conflict { .. })), "{outcome:?}");
        assert_eq!(runs, 7);
    }
    // A lock that another transaction on the same thread keeps.
    let mut other = store.begin().unwrap();
    other.lock("key", LockMode::Exclusive).unwrap();
    let options = TransactionOptions::default().lock_timeout_ms(1).attempts_max(3);
    let mut runs = 0;
    let outcome = store.transact_with(&options, |transaction| {
        runs += 1;
        transaction.put("key", "inside")
    });
    assert!(matches!(outcome, Err(Error::LockTimeout { .. })), "{outcome:?}");
    assert_eq!(runs, 3);
    // One run is no repetition, and none is one.
    for attempts in [0, 1] {
        let mut runs = 0;
        let outcome = store.transact_with(&options.clone().attempts_max(attempts), |transaction| {
            runs += 1;
            transaction.put("key", "inside")
        });
        assert_eq!((outcome.is_err(), runs), (true, 1));
    }
    other.rollback();
    assert_eq!(store.properties().locks, 0);
    store.close().unwrap();
}

#[test]
fn an_error_of_ones_own_rolls_back_and_is_returned_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let mut runs = 0;
    let outcome = store.transact_with(&TransactionOptions::default(), |transaction| {
        runs += 1;
        transaction.put("order", "3 screws")?;
        if transaction.contains("screws")? { Ok(()) } else { Err(Failure::OutOfStock) }
    });
    assert!(matches!(outcome, Err(Failure::OutOfStock)), "{outcome:?}");
    assert_eq!((runs, store.is_empty().unwrap()), (1, true));
    // An error of the store that others have no part in is no reason to run again, either.
    let outcome: Result<(), Failure> = store.transact_with(&TransactionOptions::default(), |transaction| {
        runs += 1;
        Ok(transaction.put("", "no key")?)
    });
    assert!(matches!(outcome, Err(Failure::Store(Error::Invalid(_)))), "{outcome:?}");
    assert_eq!((runs, store.properties().locks, store.properties().transactions), (2, 0, 0));
    store.close().unwrap();
}

/// Both locks are asked for before either outcome is looked at: the second success used to hide the first failure.
#[test]
fn a_failure_that_is_looked_at_after_a_success_is_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.put("a", "1").unwrap();
    let mut other = Some(store.begin().unwrap());
    other.as_mut().unwrap().lock("a", LockMode::Exclusive).unwrap();
    let options = TransactionOptions::default().lock_timeout_ms(0).attempts_max(5);
    let mut runs = 0;
    let outcome: Result<(), Error> = store.transact_with(&options, |transaction| {
        runs += 1;
        if runs == 3 {
            other.take().unwrap().rollback();
        }
        let a = transaction.get_for_update("a", LockMode::Exclusive);
        let b = transaction.get_for_update("b", LockMode::Exclusive);
        let (a, b) = (a?, b?);
        assert_eq!(a.unwrap(), "1");
        assert!(b.is_none());
        transaction.put("b", "2")
    });
    outcome.unwrap();
    assert_eq!(store.get("b").unwrap().unwrap(), "2");
    assert_eq!(runs, 3);
    store.close().unwrap();
}

/// A failure stays until the transaction goes back to a savepoint from before it; an error of the closure's own does not end
/// the runs before that, and the last run's is returned.
#[test]
fn an_error_of_ones_own_after_a_failure_is_run_again_unless_the_failure_was_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let mut other = store.begin().unwrap();
    other.lock("busy", LockMode::Exclusive).unwrap();
    let options = TransactionOptions::default().lock_timeout_ms(0).attempts_max(5);
    let fails = |transaction: &mut Transaction| {
        assert!(transaction.lock("busy", LockMode::Exclusive).unwrap_err().is_retryable());
    };
    let run = |body: &dyn Fn(&mut Transaction) -> Result<(), Failure>| {
        let mut runs = 0;
        let outcome = store.transact_with(&options, |transaction| {
            runs += 1;
            body(transaction)
        });
        (outcome, runs)
    };
    let (outcome, runs) = run(&|transaction| {
        fails(transaction);
        transaction.put("free", "value")?;
        Err(Failure::OutOfStock)
    });
    assert!(matches!(outcome, Err(Failure::OutOfStock)));
    assert_eq!(runs, 5);
    // A savepoint that is only forgotten, or none to go back to, or one from after the failure, takes nothing back.
    for (is_popped, fails_before) in [(true, false), (false, true)] {
        let (outcome, runs) = run(&|transaction| {
            assert!(transaction.rollback_to_savepoint().is_err());
            if fails_before {
                fails(transaction);
            }
            transaction.set_savepoint();
            fails(transaction);
            if is_popped {
                transaction.pop_savepoint()?
            } else {
                transaction.rollback_to_savepoint()?
            }
            Err(Failure::OutOfStock)
        });
        assert!(matches!(outcome, Err(Failure::OutOfStock)));
        assert_eq!(runs, 5);
    }
    let (outcome, runs) = run(&|transaction| {
        transaction.set_savepoint();
        fails(transaction);
        transaction.rollback_to_savepoint()?;
        Err(Failure::OutOfStock)
    });
    assert!(matches!(outcome, Err(Failure::OutOfStock)));
    assert_eq!(runs, 1);
    // A failure that was got over does not keep the transaction from its commit.
    let (outcome, runs) = run(&|transaction| {
        fails(transaction);
        Ok(transaction.put("free", "value")?)
    });
    outcome.unwrap();
    assert_eq!((runs, store.contains("free").unwrap()), (1, true));
    let mut runs = 0;
    // What cannot become anything but an error of the caller's is told from the transaction, not from the error.
    let outcome: Result<(), Failure> = store.transact_with(&options, |transaction| {
        runs += 1;
        transaction.lock("busy", LockMode::Exclusive).map_err(|_| Failure::OutOfStock)
    });
    assert!(matches!(outcome, Err(Failure::OutOfStock)));
    assert_eq!(runs, 5);
    other.rollback();
    store.close().unwrap();
}

#[test]
fn a_panic_rolls_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        store.transact(|transaction| {
            transaction.put("key", "value")?;
            if transaction.contains("key")? {
                panic!("in the middle");
            }
            Ok(())
        })
    }));
    assert!(outcome.is_err());
    assert!(store.is_empty().unwrap());
    assert_eq!((store.properties().locks, store.properties().transactions), (0, 0));
    store.transact(|transaction| transaction.put("key", "value")).unwrap();
    assert_eq!(store.get("key").unwrap().unwrap(), "value");
    store.close().unwrap();
}

/// The pauses between runs are on the store's clock: the simulator waits no time of ours, and repeats them.
#[test]
fn pauses_are_the_clocks() {
    let run = |seed: u64| -> Duration {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let builder = situ_engine::StoreBuilder::new(Default::default()).env(env.clone());
            let store = builder.open_volume(Arc::new(volume)).unwrap();
            let began = env.clock.now();
            let outcome: Result<(), Error> = store.transact_with(&TransactionOptions::default(), |transaction| {
                transaction.get("key")?;
                store.put("key", "outside")?;
                transaction.put("key", "inside")
            });
            assert!(matches!(outcome, Err(Error::Conflict { .. })));
            let took = env.clock.now() - began;
            store.close().unwrap();
            took
        })
    };
    for_each_seed(0, 3, |seed| {
        let took = run(seed);
        // 99 pauses, of which all but the first ten are 10 ms on average.
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
        assert_eq!(took, run(seed), "seed {seed} repeats itself");
    });
}
