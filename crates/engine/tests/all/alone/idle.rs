//! Promise 9: an idle store uses no processor time worth measuring. In a process of its own, as it looks at
//! all its threads.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use crate::common::fast;
use crate::skipped;
use situ_base::Env;
use situ_engine::{Durability, Options};
use situ_rawdisk::{FormatOptions, RawVolume};
use situ_tiers::{TieredBuilder, TieredStore};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Processor time that threads of the store have used so far, and how many there are. The system's threads that work for a
/// ring are threads of the process, too: their time counts, but they end when the system likes.
fn used() -> (Duration, usize) {
    let (mut used, mut threads) = (Duration::ZERO, 0);
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let name = read("comm");
        let is_of_store = name.starts_with("situ-");
        if is_of_store || name.starts_with("iou-") {
            let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            used += Duration::from_nanos(ns);
            threads += usize::from(is_of_store);
        }
    }
    (used, threads)
}

/// What the store has beside its home.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FastDisk {
    None,
    Directory,
    /// Without a file system, reached by rings.
    Raw,
}

#[test]
fn promise_9_an_idle_store_uses_no_processor() {
    in_own_process(|| {
        [FastDisk::None, FastDisk::Directory, FastDisk::Raw].into_iter().for_each(idles);
    });
}

/// A file stands for a device.
fn raw_disk(at: &Path) {
    fs::File::create(at).unwrap().set_len(64 << 20).unwrap();
    let device = situ_device::open(at, situ_device::OpenOptions::default()).unwrap();
    RawVolume::format(device, Env::system(), &FormatOptions::default()).unwrap();
}

fn idles(fast_disk: FastDisk) {
    let directory = tempfile::tempdir().unwrap();
    let fast = tempfile::tempdir().unwrap();
    let fast = fast.path().join("fast");
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.compaction_threads = 4;
    let builder = fast::tiered(options);
    if fast_disk == FastDisk::Raw {
        raw_disk(&fast);
    }
    let builder = if fast_disk == FastDisk::None { builder } else { builder.fast_disk(&fast) };
    let store = builder.open(directory.path()).unwrap();
    if fast_disk == FastDisk::Raw {
        let location = store.placement().unwrap().fast_location;
        if !location.contains("io_uring") {
            skipped::skipped(format_args!("rings, which {location} has no use for; it idles without"));
        }
    }
    // Every kind of thread has had something to do.
    for n in 0..20_000u32 {
        store.put(n.to_be_bytes(), [7; 50]).unwrap();
    }
    for n in 0..100u32 {
        store.default_keyspace().put_with(n.to_be_bytes(), [8; 50], Durability::Synced).unwrap();
        drop(store.put_with_async(b"k", b"v", Durability::Synced));
    }
    store.flush().unwrap();
    drop(store.get_async(5u32.to_be_bytes()));
    store.wait_idle().unwrap();
    // Long enough for the last sample of the disks, if there are two.
    std::thread::sleep(Duration::from_millis(2300));
    let (before, threads) = used();
    assert!(threads >= 6, "{threads} threads: flusher, compactors, log worker and reader are expected");
    assert!(before > Duration::ZERO);
    std::thread::sleep(Duration::from_secs(2));
    let (after, _) = used();
    assert!(
        after - before < Duration::from_millis(5),
        "an idle store used {:?} in two seconds, with {fast_disk:?}",
        after - before
    );
    store.close().unwrap();
    assert_eq!(used().1, 0, "a closed store leaves no threads behind");
}
