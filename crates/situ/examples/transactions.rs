//! Money moves between accounts: transactions of several threads that meet, wait, are refused and run again.

use situ::{Durability, Keyspace, LockMode, Result, Store, TransactionOptions};

const ACCOUNTS: u64 = 8;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 250;

fn balance(value: Option<situ::Value>) -> u64 {
    value.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
}

fn transfer(store: &Store, accounts: &Keyspace, from: u64, to: u64, amount: u64) -> Result<()> {
    let mut transaction = store.begin_with(&TransactionOptions::default().lock_timeout_ms(100))?;
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    let there = balance(transaction.get_for_update_in(accounts, from, LockMode::Exclusive)?);
    let here = balance(transaction.get_for_update_in(accounts, to, LockMode::Exclusive)?);
    let amount = amount.min(there);
    transaction.put_in(accounts, from, (there - amount).to_le_bytes())?;
    transaction.put_in(accounts, to, (here + amount).to_le_bytes())?;
    transaction.commit().map(drop)
}

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "situ-data".to_owned());
    let store = Store::open(directory)?;
    let accounts = store.keyspace("accounts")?;
    let mut setup = store.begin_with(&TransactionOptions::default().durability(Durability::Synced))?;
    for account in 0..ACCOUNTS {
        setup.put_in(&accounts, account.to_be_bytes(), 100u64.to_le_bytes())?;
    }
    setup.commit()?;

    let run = |thread: u64| -> Result<()> {
        for n in 0..TRANSFERS {
            let (from, step) = ((thread + n) % ACCOUNTS, 1 + (thread * 7 + n * 3) % (ACCOUNTS - 1));
            // Somebody else was in the way: once more, from the beginning.
            while let Err(error) = transfer(&store, &accounts, from, (from + step) % ACCOUNTS, n % 10) {
                if !error.is_retryable() {
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;

    let sum: u64 =
        (0..ACCOUNTS).map(|account| Ok(balance(accounts.get(account.to_be_bytes())?))).sum::<Result<u64>>()?;
    println!("{} transfers between {ACCOUNTS} accounts with {sum} in all", THREADS * TRANSFERS);
    store.close()
}
