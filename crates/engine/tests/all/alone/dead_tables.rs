//! Tables that compactions have replaced: what they held is given back when the last reader lets go, however idle the
//! store is. In a process of its own, as it looks at all its descriptors.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use situ_engine::{Cursor, Options, Store};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const ENTRIES: u32 = 20_000;

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 128 << 10;
    options.keyspace.table_bytes = 128 << 10;
    // Only a compaction that is asked for replaces tables.
    options.keyspace.level0_tables = 1000;
    options
}

/// Descriptors of tables in `directory`, removed ones included.
fn descriptors(directory: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|path| path.starts_with(directory) && path.to_string_lossy().contains(".table")).count()
}

fn files(directory: &Path) -> usize {
    let names = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".table")).count()
}

/// A store whose tables were replaced under an iterator, and the iterator. Nothing is left to do.
fn replaced(directory: &Path) -> (Store, Cursor) {
    let store = Store::open_with(directory, options()).unwrap();
    for n in 0..ENTRIES {
        store.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
    }
    store.flush().unwrap();
    let mut iterator = store.cursor().unwrap();
    iterator.seek_to_first().unwrap();
    store.default_keyspace().compact(None, None).unwrap();
    store.wait_idle().unwrap();
    // Whoever still had something to tell has told it.
    std::thread::sleep(Duration::from_millis(300));
    (store, iterator)
}

fn assert_soon(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// They used to be kept until the flusher had something else to do, which of an idle store may be never.
#[test]
fn promise_8_an_idle_store_lets_go_of_dead_tables() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (store, iterator) = replaced(path);
        let live = store.default_keyspace().tables().len();
        let held = (descriptors(path), store.properties().cache_pinned_bytes);
        assert!(files(path) > live && held.0 > live, "{} files, {} open, {live} live", files(path), held.0);
        drop(iterator);
        assert_soon("files of dead tables stay", || files(path) == live);
        assert_soon("descriptors of dead tables stay", || descriptors(path) <= live);
        assert!(store.properties().cache_pinned_bytes < held.1, "what dead tables had pinned stays");
        assert_eq!(store.get(7u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 50][..]));
        store.close().unwrap();
    });
}
