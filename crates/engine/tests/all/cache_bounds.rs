//! What the cache holds beside blocks: open tables pin their indexes, filters and range tombstones.

use situ_engine::{Cursor, Options, Store, StoreProperties};
use situ_sim::Rng;

const CACHE_BYTES: u64 = 256 << 10;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Blocks and buffers have the room that is not pinned, and no more. What is told is not all of one moment, as tables come and go.
fn check(store: &Store) {
    let within = |properties: &StoreProperties| {
        let (all, pinned) = (properties.cache_bytes, properties.cache_pinned_bytes);
        properties.cache_bytes_max == CACHE_BYTES && pinned <= all && all <= CACHE_BYTES.max(pinned)
    };
    assert!((0..5).any(|_| within(&store.properties())), "{:?}", store.properties());
}

/// Puts, deletes ranges and scans; returns iterators that are on their way.
fn delete_and_scan(store: &Store, rng: &mut Rng, rounds: u64) -> Vec<Cursor> {
    let mut iterators = Vec::new();
    for round in 0..rounds {
        for n in 0..300 {
            store.put(key(rng.below(1 << 20)), [round as u8; 100]).unwrap();
            let begin = rng.below(1 << 20);
            store.delete_range(key(begin), key(begin + 1 + rng.below(50))).unwrap();
            if n % 50 == 0 {
                check(store);
            }
        }
        let mut iterator = store.cursor().unwrap();
        iterator.seek(&key(rng.below(1 << 19))).unwrap();
        (0..50).for_each(|_| iterator.next().unwrap());
        iterators.push(iterator);
        check(store);
    }
    iterators
}

/// Range tombstones were charged to the cache with nothing to tell them from blocks: with many of them, the cache was seen to hold
/// several times what it may.
#[test]
fn promise_8_blocks_keep_to_the_limit_and_what_is_pinned_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.cache_bytes = CACHE_BYTES;
    options.compaction_threads = 1;
    options.keyspace.memtable_bytes = 128 << 10;
    options.keyspace.table_bytes = 64 << 10;
    options.keyspace.level_base_bytes = 256 << 10;
    let store = Store::open_with(directory.path(), options).unwrap();
    let iterators = delete_and_scan(&store, &mut Rng::new(1), 60);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    let held = store.properties();
    assert!(
        held.cache_pinned_bytes > CACHE_BYTES,
        "{} bytes are pinned: too few for this test",
        held.cache_pinned_bytes
    );
    drop(iterators);
    store.wait_idle().unwrap();
    // Nothing is left of the tombstones.
    store.default_keyspace().compact(None, None).unwrap();
    store.wait_idle().unwrap();
    let mut iterator = store.cursor().unwrap();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        iterator.next().unwrap();
    }
    drop(iterator);
    let after = store.properties();
    check(&store);
    assert!(after.cache_pinned_bytes < CACHE_BYTES / 4, "{} bytes", after.cache_pinned_bytes);
    store.close().unwrap();
}
