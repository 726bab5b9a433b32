//! An idle keyspace takes next to no memory. Once, each memtable began with a filter for its full size, half a megabyte. After
//! reopening, 10,000 keyspaces of one entry took 5.7 GB and 17 s. After a second opening in one process, they took 10.3 GB.
//! The test runs in its own process, because it measures the memory of the whole process.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use situ_engine::{Store, WriteBatch};
use std::time::{Duration, Instant};

const KEYSPACES: u64 = 2_000;
/// 10,000 within 300 MB: 30 KB each.
const RESIDENT_BYTES_MAX: u64 = 20 << 20;
const RESIDENT_BYTES_MAX_EACH: u64 = 30_000;
/// 10,000 take a third of a second; a machine may be busy.
const OPENING_MAX: Duration = Duration::from_secs(3);

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn keyspaces() -> u64 {
    std::env::var("SITU_TEST_KEYSPACES").ok().and_then(|count| count.parse().ok()).unwrap_or(KEYSPACES)
}

fn look(when: &str, started: Instant) -> u64 {
    let resident = status("VmRSS:");
    println!(
        "{when}: {:?}, {} KiB resident, {} KiB at the peak",
        started.elapsed(),
        resident >> 10,
        status("VmHWM:") >> 10
    );
    resident
}

fn check(store: &Store, count: u64) {
    for number in [0, count / 2, count - 1] {
        let keyspace = store.existing_keyspace(&format!("keyspace {number}")).unwrap();
        assert_eq!(keyspace.get(b"key").unwrap().as_deref(), Some(&number.to_be_bytes()[..]));
    }
}

#[test]
fn many_idle_keyspaces_take_little_memory() {
    in_own_process(|| {
        let count = keyspaces();
        let bytes_max = RESIDENT_BYTES_MAX + count * RESIDENT_BYTES_MAX_EACH;
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path();
        let started = Instant::now();
        let store = Store::open(path).unwrap();
        let mut batch = WriteBatch::new();
        for number in 0..count {
            let keyspace = store.keyspace(&format!("keyspace {number}")).unwrap();
            batch.put_in(&keyspace, b"key", number.to_be_bytes()).unwrap();
        }
        store.write(batch).unwrap();
        look("made", started);
        store.close().unwrap();
        drop(store);
        for opening in 1..=3 {
            let started = Instant::now();
            let store = Store::open(path).unwrap();
            let resident = look(&format!("opening {opening}"), started);
            assert!(started.elapsed() < OPENING_MAX, "opening {opening} took {:?}", started.elapsed());
            check(&store, count);
            let properties = store.properties();
            println!("memtables: {} bytes", properties.memtable_bytes);
            assert!(resident < bytes_max, "{resident} bytes are resident after opening {opening}");
            assert!(properties.memtable_bytes < count * 8_000, "{} bytes of memtables", properties.memtable_bytes);
            store.close().unwrap();
            look("closed", started);
        }
        let started = Instant::now();
        let store = Store::open_read_only(path).unwrap();
        look("read-only", started);
        check(&store, count);
        let peak = status("VmHWM:");
        assert!(peak < bytes_max, "{peak} bytes were resident");
    });
}
