//! Transactions with real threads: what the simulator, which switches only at waits and volume operations, cannot interleave.

use situ_engine::{
    Durability, Error, Isolation, Keyspace, LockMode, Options, Store, Transaction, TransactionKind, TransactionOptions,
};
use situ_sim::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lets the other threads end, even if this one panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const ACCOUNTS: u64 = 10;
const FIRST_BALANCE: u64 = 1000;

fn open(directory: &std::path::Path) -> Store {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.level0_tables = 2;
    Store::open_with(directory, options).unwrap()
}

fn balance(value: Option<situ_engine::Value>) -> u64 {
    value.map_or(FIRST_BALANCE, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

fn transfer(store: &Store, options: &TransactionOptions, rng: &mut Rng) -> Result<(), Error> {
    let keyspace = store.default_keyspace();
    let mut transaction = store.begin_with(options)?;
    let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
    if from == to {
        return Ok(());
    }
    // Under a snapshot a plain read is enough: who writes what another one has written since is refused.
    let for_update = options.isolation == Isolation::ReadCommitted || rng.chance(0.5);
    let read = |transaction: &mut Transaction, account: u64| match for_update {
        true => transaction.get_for_update_in(keyspace, account.to_be_bytes(), LockMode::Exclusive),
        false => transaction.get_in(keyspace, account.to_be_bytes()),
    };
    let (there, here) = (balance(read(&mut transaction, from)?), balance(read(&mut transaction, to)?));
    let amount = rng.below(10).min(there);
    transaction.put_in(keyspace, from.to_be_bytes(), (there - amount).to_le_bytes())?;
    transaction.put_in(keyspace, to.to_be_bytes(), (here + amount).to_le_bytes())?;
    transaction.commit().map(drop)
}

fn sum(store: &Store, options: &TransactionOptions) -> u64 {
    let transaction = store.begin_with(options).unwrap();
    (0..ACCOUNTS)
        .map(|account| balance(transaction.get_in(store.default_keyspace(), account.to_be_bytes()).unwrap()))
        .sum()
}

/// Returns true after four seconds, and once the threads have met often enough. On a busy machine, that takes longer.
fn goes_on_long_enough(began: Instant, have_met: impl Fn() -> bool) -> bool {
    assert!(began.elapsed() < Duration::from_secs(120), "the threads do not meet");
    began.elapsed() > Duration::from_secs(4) && have_met()
}

/// Money moves between accounts; under every kind and isolation none comes to be or gets lost, and a snapshot shows the
/// same sum at any moment.
#[test]
fn the_sum_of_all_accounts_stays_whatever_kinds_of_transactions_meet() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (stop, done, retried) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let snapshot = TransactionOptions::default();
    std::thread::scope(|scope| {
        let at_end = StopAtEnd(&stop);
        for thread in 0..6u64 {
            let (store, stop, done, retried) = (&store, &stop, &done, &retried);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut options = TransactionOptions::default().lock_timeout_ms(50);
                if thread % 2 == 0 {
                    options.kind = TransactionKind::Optimistic;
                }
                if thread % 3 == 0 {
                    options.isolation = Isolation::ReadCommitted;
                }
                if thread == 5 {
                    options.durability = Some(Durability::Synced);
                }
                while !stop.load(Ordering::Relaxed) {
                    match transfer(store, &options, &mut rng) {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) if error.is_retryable() => retried.fetch_add(1, Ordering::Relaxed),
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
        let began = Instant::now();
        while !goes_on_long_enough(began, || done.load(Ordering::Relaxed) > 500 && retried.load(Ordering::Relaxed) > 0)
        {
            assert_eq!(sum(&store, &snapshot), ACCOUNTS * FIRST_BALANCE);
            std::thread::yield_now();
        }
        drop(at_end);
    });
    let properties = store.properties();
    assert_eq!((properties.transactions, properties.locks, properties.snapshots), (0, 0, 0));
    assert_eq!(sum(&store, &snapshot), ACCOUNTS * FIRST_BALANCE);
    store.close().unwrap();
}

/// Plain writes rush by while transactions commit: the check has to follow them, up to the commit lock. Every transaction adds
/// one to a counter that plain writes set back now and then, in a new generation; whatever is lost shows in the order of commits.
#[test]
fn a_commit_finds_plain_writes_that_rush_by() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (stop, committed, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let generation = AtomicU64::new(0);
    let keyspace: &Keyspace = store.default_keyspace();
    std::thread::scope(|scope| {
        let at_end = StopAtEnd(&stop);
        for writer in 0..2u64 {
            let (stop, generation) = (&stop, &generation);
            scope.spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    keyspace.put([&[b'w', writer as u8][..], &n.to_be_bytes()].concat(), [1; 64]).unwrap();
                    if writer == 0 && n.is_multiple_of(50) {
                        // A new generation begins at nothing.
                        let generation = generation.fetch_add(1, Ordering::SeqCst) + 1;
                        keyspace.put(b"counter", [generation.to_le_bytes(), 0u64.to_le_bytes()].concat()).unwrap();
                    }
                }
            });
        }
        let add = |kind: TransactionKind| {
            let (store, stop, committed, refused) = (&store, &stop, &committed, &refused);
            move || {
                let mut seen = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let mut options = TransactionOptions::default().read_committed();
                    options.kind = kind;
                    let mut transaction = store.begin_with(&options).unwrap();
                    let value = transaction.get_for_update_in(keyspace, b"counter", LockMode::Exclusive).unwrap();
                    let mut value = value.map_or(vec![0; 16], |value| value.to_vec());
                    let next = u64::from_le_bytes(value[8..].try_into().unwrap()) + 1;
                    value[8..].copy_from_slice(&next.to_le_bytes());
                    transaction.put_in(keyspace, b"counter", &value).unwrap();
                    match transaction.commit() {
                        Ok(number) => {
                            committed.fetch_add(1, Ordering::Relaxed);
                            seen.push((number, u64::from_le_bytes(value[..8].try_into().unwrap()), next));
                        }
                        Err(Error::Conflict { .. }) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => panic!("{error}"),
                    }
                }
                seen
            }
        };
        let threads = [
            scope.spawn(add(TransactionKind::Optimistic)),
            scope.spawn(add(TransactionKind::Optimistic)),
            scope.spawn(add(TransactionKind::Pessimistic)),
        ];
        let began = Instant::now();
        let met = || committed.load(Ordering::Relaxed) > 500 && refused.load(Ordering::Relaxed) > 50;
        while !goes_on_long_enough(began, met) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(at_end);
        let mut all: Vec<(u64, u64, u64)> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_unstable();
        let mut before = (0, 0);
        for (number, generation, next) in all {
            let follows =
                if generation == before.0 { next == before.1 + 1 } else { generation > before.0 && next == 1 };
            assert!(follows, "at {number}: {next} of generation {generation} behind {before:?}");
            before = (generation, next);
        }
    });
    let mut iterator = keyspace.cursor().unwrap();
    iterator.seek_to_first().unwrap();
    assert!(iterator.valid());
    drop(iterator);
    store.close().unwrap();
}
