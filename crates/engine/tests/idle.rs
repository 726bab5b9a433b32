//! Promise 9: an idle store uses no processor time worth measuring. Alone in its file, as it looks at all threads of its
//! process.
#![cfg(target_os = "linux")]

use situ_engine::{Durability, Options, ReadOptions, StoreBuilder};
use std::fs;
use std::time::Duration;

/// Processor time that threads of the store have used so far, and how many there are.
fn used() -> (Duration, usize) {
    let (mut used, mut threads) = (Duration::ZERO, 0);
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").starts_with("situ-") {
            let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            used += Duration::from_nanos(ns);
            threads += 1;
        }
    }
    (used, threads)
}

#[test]
fn promise_9_an_idle_store_uses_no_processor() {
    idles(false);
    idles(true);
}

fn idles(two_disks: bool) {
    let directory = tempfile::tempdir().unwrap();
    let fast = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.compaction_threads = 4;
    let builder = StoreBuilder::new(options);
    let builder = if two_disks { builder.fast_disk(fast.path().join("fast")) } else { builder };
    let store = builder.open(directory.path()).unwrap();
    // Every kind of thread has had something to do.
    for n in 0..20_000u32 {
        store.put(&n.to_be_bytes(), &[7; 50]).unwrap();
    }
    drop(store.put_async(b"k", b"v", Durability::Synced).unwrap());
    store.flush().unwrap();
    drop(store.get_async(&5u32.to_be_bytes(), &ReadOptions::default()).unwrap());
    store.wait_idle().unwrap();
    // Long enough for the last sample of the disks, if there are two.
    std::thread::sleep(Duration::from_millis(2300));
    let (before, threads) = used();
    assert!(threads >= 6, "{threads} threads: flusher, compactors, log worker and reader are expected");
    assert!(before > Duration::ZERO);
    std::thread::sleep(Duration::from_secs(2));
    let (after, _) = used();
    assert!(after - before < Duration::from_millis(5), "an idle store used {:?} in two seconds", after - before);
    store.close().unwrap();
    assert_eq!(used().1, 0, "a closed store leaves no threads behind");
}
