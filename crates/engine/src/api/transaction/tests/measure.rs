//! Measurements, not claims: `cargo test -p situ-engine --release transaction_costs -- --ignored --nocapture`. What is
//! shown is processor time of the calling thread, so that other work on the machine counts little.

use crate::api::store::Store;
use crate::api::transaction::{LockMode, TransactionOptions};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: u64 = 200_000;

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn measure(what: &str, store: &Store, mut round: impl FnMut(u64)) {
    let before = store.statistics().operations_written;
    let started = processor_ns();
    (0..ROUNDS).for_each(&mut round);
    let ns = (processor_ns() - started) / ROUNDS;
    println!("{what:55} {ns:6} ns, {} operations", store.statistics().operations_written - before);
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

#[test]
#[ignore = "a measurement"]
fn transaction_costs() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let keyspace = store.default_keyspace();
    let value = [7; 100];
    measure("a put outside of transactions", &store, |n| keyspace.put(key(n), value).unwrap());
    measure("a transaction begun and dropped", &store, |_| drop(store.begin().unwrap()));
    for (kind, options) in
        [("optimistic", TransactionOptions::optimistic()), ("pessimistic", TransactionOptions::pessimistic())]
    {
        for (isolation, options) in [("snapshot", options.clone()), ("read committed", options.read_committed())] {
            measure(&format!("one put, {kind}, {isolation}"), &store, |n| {
                let mut transaction = store.begin_with(&options).unwrap();
                transaction.put_in(keyspace, key(n), value).unwrap();
                transaction.commit().unwrap();
            });
            measure(&format!("read for update and put, {kind}, {isolation}"), &store, |n| {
                let mut transaction = store.begin_with(&options).unwrap();
                transaction.get_for_update_in(keyspace, key(n), LockMode::Exclusive).unwrap();
                transaction.put_in(keyspace, key(n), value).unwrap();
                transaction.commit().unwrap();
            });
            measure(&format!("one put beside another write, {kind}, {isolation}"), &store, |n| {
                let mut transaction = store.begin_with(&options).unwrap();
                transaction.put_in(keyspace, key(n), value).unwrap();
                keyspace.put(b"another", b"").unwrap();
                transaction.commit().unwrap();
            });
        }
    }
    store.close().unwrap();
}
