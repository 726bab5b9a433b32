//! Promise 2 and 3 with real threads: what the simulator, which switches only at volume operations and waits, cannot
//! interleave.

use situ_engine::{Durability, Options, ReadOptions, Store, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 64;
const WRITERS: u64 = 3;

fn key(n: u64) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

/// Every batch writes the same number to all keys. A snapshot, and an iterator, must find them equal; and whoever was
/// told that a batch is written must find it or a later one.
#[test]
fn promise_2_3_batches_appear_whole_and_in_order_under_real_threads() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 256 << 10;
    options.keyspace.level0_tables = 2;
    let store = Store::open_with(directory.path(), options).unwrap();
    let (stop, number, checks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let write = |writer: u64| {
        let mut round = 0u64;
        while !stop.load(Ordering::Relaxed) {
            round += 1;
            let value = number.fetch_add(1, Ordering::SeqCst).to_be_bytes();
            let mut batch = WriteBatch::new();
            (0..KEYS).for_each(|n| batch.put_in(store.default_keyspace(), key(n), value).unwrap());
            batch.put_in(store.default_keyspace(), format!("writer {writer}").as_bytes(), round.to_be_bytes()).unwrap();
            let synced = writer == 0 && round.is_multiple_of(16);
            store.write_with(batch, if synced { Durability::Synced } else { Durability::Buffered }).unwrap();
            let mine = store.get(format!("writer {writer}").as_bytes()).unwrap();
            assert_eq!(mine.as_deref(), Some(&round.to_be_bytes()[..]), "an acknowledged write is not visible");
        }
    };
    let read = || {
        while !stop.load(Ordering::Relaxed) {
            let snapshot = store.snapshot().unwrap();
            let options = ReadOptions::default().at(&snapshot);
            let all = |n: u64| store.default_keyspace().get_with(key(n), &options).unwrap().map(|v| v.to_vec());
            let first = all(0);
            (1..KEYS).for_each(|n| assert_eq!(all(n), first, "key {n} differs from key 0 in one snapshot"));
            let mut iterator = store.cursor_with(&ReadOptions::default().prefix(b"key")).unwrap();
            iterator.seek_to_last().unwrap();
            let last = iterator.value().map(<[u8]>::to_vec);
            while iterator.valid() {
                assert_eq!(iterator.value().map(<[u8]>::to_vec), last, "a batch is half visible to an iterator");
                iterator.prev().unwrap();
            }
            checks.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write = &write;
            scope.spawn(move || write(writer));
        }
        scope.spawn(read);
        scope.spawn(read);
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(checks.load(Ordering::Relaxed) > 10);
    store.close().unwrap();
}
