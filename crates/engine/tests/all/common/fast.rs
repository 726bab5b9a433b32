//! Small stores on a home and a fast disk, and what they hold.

use situ_engine::{Options, Result, Store, StoreBuilder};
use situ_tiers::TieredBuilder;
use std::path::Path;

pub fn small() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 16 << 10;
    options.keyspace.level_base_bytes = 16 << 10;
    options.keyspace.table_bytes = 8 << 10;
    options.compaction_threads = 1;
    options
}

/// A builder for stores that may have a fast disk.
pub fn tiered(options: Options) -> StoreBuilder {
    StoreBuilder::new(options).with_tiers()
}

pub fn open(home: impl AsRef<Path>) -> Result<Store> {
    tiered(Options::default()).open(home)
}

pub fn open_with(home: impl AsRef<Path>, options: Options) -> Result<Store> {
    tiered(options).open(home)
}

pub fn builder(fast: Option<&Path>) -> StoreBuilder {
    let builder = tiered(small());
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
