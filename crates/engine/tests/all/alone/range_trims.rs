//! A queue that is trimmed again and again, `delete_range("q/", "q/<i>")` with rising i, leaves range tombstones that lie in
//! each other. Once, each get behind a trim cut all of them into fragments, of which each carried all tombstones around
//! it: n² of memory and time, for 50,000 of them 10 GB; and the flush and every recovery did the same again. In a
//! process of its own, as it looks at the memory of all of it.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use situ_engine::{ReadOptions, Store};
use std::time::{Duration, Instant};

const TRIMS: u64 = 50_000;
/// All of it takes a second and some 40 MB. Cut into fragments, the 8,000th trim alone cost its reader half a second.
const TIME_MAX: Duration = Duration::from_secs(120);
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

fn key(number: u64) -> Vec<u8> {
    format!("q/{number:08}").into_bytes()
}

fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn check(store: &Store, trimmed: u64) {
    for number in [0, trimmed / 2, trimmed - 1] {
        assert_eq!(store.get(key(number)).unwrap().as_deref(), None, "{number} of {trimmed}");
    }
    assert_eq!(store.get(key(trimmed)).unwrap().as_deref(), Some(&b"task"[..]), "{trimmed}");
}

#[test]
fn trims_of_a_queue_take_linear_memory_and_time() {
    in_own_process(|| {
        let started = Instant::now();
        let directory = tempfile::tempdir().unwrap();
        let open = || Store::open(directory.path()).unwrap();
        let store = open();
        let mut snapshots = Vec::new();
        for trimmed in 1..=TRIMS {
            store.put(key(trimmed), b"task").unwrap();
            store.delete_range(b"q/", key(trimmed)).unwrap();
            check(&store, trimmed);
            if trimmed % (TRIMS / 4) == 0 {
                snapshots.push((trimmed, store.snapshot().unwrap()));
            }
        }
        let check_snapshots = || {
            for (trimmed, snapshot) in &snapshots {
                let options = ReadOptions::default().at(snapshot);
                let get = |number| store.default_keyspace().get_with(key(number), &options).unwrap();
                assert_eq!(get(*trimmed).as_deref(), Some(&b"task"[..]));
                assert!(get(trimmed - 1).is_none() && get(trimmed + 1).is_none());
                let mut iterator = store.cursor_with(&options).unwrap();
                iterator.seek_to_first().unwrap();
                assert_eq!(iterator.key(), Some(&key(*trimmed)[..]));
            }
        };
        check_snapshots();
        store.flush().unwrap();
        check_snapshots();
        check(&store, TRIMS);
        drop(snapshots);

        // As many again, which the next open finds in the log only.
        for trimmed in TRIMS + 1..=2 * TRIMS {
            store.put(key(trimmed), b"task").unwrap();
            store.delete_range(b"q/", key(trimmed)).unwrap();
        }
        store.close().unwrap();
        let store = open();
        check(&store, 2 * TRIMS);
        store.default_keyspace().compact(None, None).unwrap();
        check(&store, 2 * TRIMS);
        store.close().unwrap();
        let resident = peak_resident_bytes();
        assert!(resident < RESIDENT_BYTES_MAX, "{resident} bytes were resident");
        assert!(started.elapsed() < TIME_MAX, "it took {:?}", started.elapsed());
    });
}
