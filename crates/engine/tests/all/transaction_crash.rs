//! Promise 3 for transactions: a crash leaves each of them whole or absent, with several under way, and a synced one that was
//! acknowledged whole.

use situ_base::Env;
use situ_engine::{
    Durability, Error, Keyspace, LockMode, Options, Store, StoreBuilder, TransactionKind, TransactionOptions,
};
use situ_sim::{CrashPoints, FaultPlan, Rng, SimVolume, crash_everywhere, for_each_seed, wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ACCOUNTS: u8 = 5;
const FIRST_BALANCE: u64 = 1000;
const THREADS: u64 = 3;

fn open(env: &Env, volume: &SimVolume) -> Result<Store, Error> {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 4 << 10;
    options.keyspace.level0_tables = 2;
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

#[derive(Default)]
struct Told {
    is_set_up: AtomicBool,
    /// By thread: how many of its transfers were acknowledged as synced.
    synced: [AtomicU64; THREADS as usize],
}

fn number(keyspace: &Keyspace, key: &[u8]) -> Option<u64> {
    keyspace.get(key).unwrap().map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

/// Moves money between two accounts, which lie in two keyspaces, and counts the transfer.
fn transfer(
    env: &Env,
    store: &Store,
    accounts: &[Keyspace; 2],
    thread: u64,
    n: u64,
    rng: &mut Rng,
) -> Result<Durability, Error> {
    let durability = if rng.chance(0.4) { Durability::Synced } else { Durability::Buffered };
    let mut options = TransactionOptions::default().lock_timeout_ms(60_000).durability(durability);
    if rng.chance(0.4) {
        options.kind = TransactionKind::Optimistic;
    }
    let mut transaction = store.begin_with(&options)?;
    let (from, to) = (rng.below(u64::from(ACCOUNTS)) as u8, rng.below(u64::from(ACCOUNTS)) as u8);
    let amount = rng.below(50);
    transaction.put_in(&accounts[0], format!("transfers of {thread}").as_bytes(), n.to_le_bytes())?;
    transaction.set_savepoint();
    for (account, add) in [(from, false), (to, true)] {
        let keyspace = &accounts[usize::from(account) % 2];
        let balance = transaction.get_for_update_in(keyspace, [account], LockMode::Exclusive)?.expect("it is set up");
        let balance = u64::from_le_bytes(balance[..8].try_into().unwrap());
        let Some(after) = (if add { Some(balance + amount) } else { balance.checked_sub(amount) }) else {
            transaction.rollback_to_savepoint()?;
            break;
        };
        let value = [&after.to_le_bytes()[..], &[0; 100]].concat();
        transaction.put_in(keyspace, [account], &value)?;
    }
    // Half of them are committed by the loggers.
    let committed = if rng.chance(0.5) { wait(env, transaction.commit_async()) } else { transaction.commit() };
    committed.map(|_| durability)
}

fn workload(env: &Env, volume: &SimVolume, seed: u64, told: &Arc<Told>) -> Result<(), Error> {
    let store = open(env, volume)?;
    let accounts = [store.default_keyspace().clone(), store.create_keyspace("second", Default::default())?];
    let mut setup = store.begin_with(&TransactionOptions::default().durability(Durability::Synced))?;
    for account in 0..ACCOUNTS {
        setup.put_in(&accounts[usize::from(account) % 2], [account], FIRST_BALANCE.to_le_bytes())?;
    }
    setup.commit()?;
    told.is_set_up.store(true, Ordering::SeqCst);
    let jobs: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (env_of_job, store) = (env.clone(), store.clone());
            let (accounts, told) = (accounts.clone(), Arc::clone(told));
            let job = move || {
                let mut rng = Rng::new(seed * 10 + thread);
                for n in 1..=25 {
                    let done = loop {
                        match transfer(&env_of_job, &store, &accounts, thread, n, &mut rng) {
                            Err(error) if error.is_retryable() => {}
                            done => break done,
                        }
                    };
                    match done {
                        Err(_) => return,
                        Ok(Durability::Synced) => told.synced[thread as usize].store(n, Ordering::SeqCst),
                        Ok(Durability::Buffered) => {}
                    }
                }
            };
            env.executor.spawn("client", Box::new(job)).unwrap()
        })
        .collect();
    jobs.iter().for_each(|job| job.join().unwrap());
    store.close()
}

#[test]
fn promise_3_a_crash_leaves_every_transaction_whole_or_absent() {
    for_each_seed(0, 10, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 3, faults: FaultPlan::none() };
        let images = crash_everywhere(
            seed,
            &points,
            |env, volume| {
                let told = Arc::new(Told::default());
                let _ = workload(env, volume, seed, &told);
                told
            },
            |env, volume, told| {
                let store = open(env, &volume).unwrap();
                let is_set_up = told.is_set_up.load(Ordering::SeqCst);
                let second = store.existing_keyspace("second");
                let Ok(second) = second else { return assert!(!is_set_up) };
                let accounts = [store.default_keyspace().clone(), second];
                let balances: Vec<Option<u64>> =
                    (0..ACCOUNTS).map(|account| number(&accounts[usize::from(account) % 2], &[account])).collect();
                let sum: u64 = balances.iter().flatten().sum();
                let is_there = balances.iter().all(Option::is_some);
                assert!(is_there || !is_set_up && balances.iter().all(Option::is_none), "{balances:?}");
                assert!(!is_there || sum == u64::from(ACCOUNTS) * FIRST_BALANCE, "{balances:?}");
                for thread in 0..THREADS {
                    let survived = number(&accounts[0], format!("transfers of {thread}").as_bytes()).unwrap_or(0);
                    let synced = told.synced[thread as usize].load(Ordering::SeqCst);
                    assert!(survived >= synced, "thread {thread}: {survived} of {synced} synced transfers");
                }
                // And it goes on from there.
                if is_there {
                    let mut rng = Rng::new(seed);
                    transfer(env, &store, &accounts, 0, 1000, &mut rng).unwrap();
                }
                store.close().unwrap();
            },
        );
        assert!(images > 100, "only {images} images");
    });
}
