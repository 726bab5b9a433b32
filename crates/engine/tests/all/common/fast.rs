//! Small stores on a home and a fast disk, and what they hold.

use situ_engine::{Options, Store, StoreBuilder};
use std::path::Path;

pub fn small() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.level_base_bytes = 16 << 10;
    options.keyspace.table_bytes = 8 << 10;
    options.compaction_threads = 1;
    options
}

pub fn builder(fast: Option<&Path>) -> StoreBuilder {
    let builder = StoreBuilder::new(small());
    match fast {
        Some(fast) => builder.fast_disk(fast),
        None => builder,
    }
}

pub fn fill(store: &Store, from: u32, count: u32) {
    for n in from..from + count {
        store.put(format!("key {n:06}").as_bytes(), [n as u8; 100]).unwrap();
    }
}

pub fn holds(store: &Store, count: u32) {
    for n in 0..count {
        let found = store.get(format!("key {n:06}").as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&[n as u8; 100][..]), "key {n}");
    }
}
