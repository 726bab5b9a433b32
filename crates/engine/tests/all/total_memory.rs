//! Promise 8: all memtables together stay within one limit. Once, each keyspace had only its own limit, and twenty busy
//! keyspaces took the memory of eighty memtables.

use situ_engine::{Keyspace, Options, Store, StoreBuilder, WriteBatch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const KEYSPACES: usize = 20;
const WRITERS: usize = 4;
const BYTES_MAX: u64 = 16 << 20;
/// Memory that a running write may add beyond the limit: a chunk of its memtable, and a filter.
const BEYOND_EACH: u64 = (2 << 20) + (600 << 10);

fn open(directory: &std::path::Path) -> Store {
    StoreBuilder::new(Options::default().memtables_bytes_max(BYTES_MAX)).open(directory).unwrap()
}

fn keyspaces(store: &Store) -> Vec<Keyspace> {
    (0..KEYSPACES).map(|number| store.keyspace(&format!("busy {number}")).unwrap()).collect()
}

fn key(writer: usize, number: u64) -> Vec<u8> {
    format!("{writer}/{number:08}").into_bytes()
}

/// Returns an incompressible value of about a kilobyte.
fn value(writer: usize, number: u64) -> Vec<u8> {
    let seed = number * 31 + writer as u64;
    (0..800 + seed % 400).map(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 57)) as u8).collect()
}

#[test]
fn promise_8_busy_keyspaces_stay_within_the_limit_of_all_memtables() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let keyspaces = keyspaces(&store);
    assert_eq!(store.properties().memtable_bytes_max, BYTES_MAX);
    let (peak, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    // Four times the limit.
    let each = 4 * BYTES_MAX / 1000 / WRITERS as u64;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (keyspaces, store, peak) = (&keyspaces, &store, &peak);
                scope.spawn(move || {
                    for number in 0..each {
                        let keyspace = &keyspaces[(number as usize * WRITERS + writer) % KEYSPACES];
                        keyspace.put(key(writer, number), value(writer, number)).unwrap();
                        if number % 64 == 0 {
                            peak.fetch_max(store.properties().memtable_bytes, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let look = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                peak.fetch_max(store.properties().memtable_bytes, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
        look.join().unwrap();
    });
    let peak = peak.into_inner();
    assert!(peak <= BYTES_MAX + WRITERS as u64 * BEYOND_EACH, "memtables had {peak} bytes");
    assert!(peak > BYTES_MAX / 4, "{peak} bytes at the peak: nothing was tried");
    assert!(store.statistics().flushes > 1);
    for writer in 0..WRITERS {
        for number in (0..each).step_by(97) {
            let keyspace = &keyspaces[(number as usize * WRITERS + writer) % KEYSPACES];
            assert_eq!(keyspace.get(key(writer, number)).unwrap().as_deref(), Some(&value(writer, number)[..]));
        }
    }
    store.close().unwrap();
    drop((keyspaces, store));

    // A replay of the log is bounded too, and loses nothing.
    let store = open(directory.path());
    assert!(store.properties().memtable_bytes <= BYTES_MAX);
    let keyspace = store.existing_keyspace("busy 0").unwrap();
    assert_eq!(keyspace.get(key(0, 0)).unwrap().as_deref(), Some(&value(0, 0)[..]));
    store.close().unwrap();
}

/// The log of a store with a larger limit, or with none, is replayed within a smaller one.
#[test]
fn a_log_longer_than_the_limit_is_replayed_within_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let made = keyspaces(&store);
    let count = 2 * BYTES_MAX / 1000;
    for number in 0..count {
        made[number as usize % KEYSPACES].put(key(0, number), value(0, number)).unwrap();
    }
    assert!(store.properties().memtable_bytes > 2 * BYTES_MAX);
    store.close().unwrap();
    drop((made, store));
    let store = open(directory.path());
    let bytes = store.properties().memtable_bytes;
    assert!(bytes <= BYTES_MAX, "{bytes} bytes after opening");
    let found = keyspaces(&store);
    for number in (0..count).step_by(53) {
        let keyspace = &found[number as usize % KEYSPACES];
        assert_eq!(keyspace.get(key(0, number)).unwrap().as_deref(), Some(&value(0, number)[..]));
    }
    store.close().unwrap();
}

/// No flush frees memory that only an iterator holds. A writer that waited for it would wait forever.
#[test]
fn an_iterator_over_memtables_keeps_no_writer_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let keyspaces = keyspaces(&store);
    let fill = |from: u64| {
        for number in from..from + BYTES_MAX / 1000 {
            keyspaces[number as usize % KEYSPACES].put(key(0, number), value(0, number)).unwrap();
        }
    };
    fill(0);
    let mut cursors: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.cursor().unwrap()).collect();
    cursors.iter_mut().for_each(|cursor| cursor.seek_to_first().unwrap());
    fill(1_000_000);
    fill(2_000_000);
    store.flush().unwrap();
    let properties = store.properties();
    assert!(properties.memtable_held_bytes > 0, "the cursors hold memtables that have become tables");
    drop(cursors);
    // A batch above the limit of all memtables is accepted when it is alone.
    let mut batch = WriteBatch::new();
    for number in 0..3 * BYTES_MAX / 1000 {
        batch.put_in(&keyspaces[number as usize % KEYSPACES], key(1, number), value(1, number)).unwrap();
    }
    store.write(batch).unwrap();
    fill(3_000_000);
    assert_eq!(keyspaces[0].get(key(1, 0)).unwrap().as_deref(), Some(&value(1, 0)[..]));
    store.close().unwrap();
}
