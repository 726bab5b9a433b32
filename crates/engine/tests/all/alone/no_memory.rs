//! A failed allocation whose size comes from data does not end the process: the caller gets an error, and the store continues.
//! Once, a value too large for memory aborted the process. The tests run in their own processes, because the limit applies to a
//! whole process.
#![cfg(target_os = "linux")]

use super::own_process::in_own_process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use situ_engine::{Error, Store};

const VALUE_BYTES: usize = 64 << 20;

/// Limits the process to `more` bytes of additional address space.
fn limit(more: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let now = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    setrlimit(Resource::As, Rlimit { current: Some(now + more), ..getrlimit(Resource::As) }).unwrap();
}

fn no_limit() {
    setrlimit(Resource::As, Rlimit { current: None, ..getrlimit(Resource::As) }).unwrap();
}

fn is_out_of_memory(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::Storage(error) if error.is_out_of_memory()) && text.contains("no memory for")
}

#[test]
fn a_value_without_memory_for_it_is_refused_and_the_store_goes_on() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.put(b"before", b"1").unwrap();
        let value = vec![7; VALUE_BYTES];
        // First too little for the batch, then enough for the batch but not for the memtable.
        for more in [VALUE_BYTES / 2, VALUE_BYTES * 3 / 2] {
            limit(more as u64);
            let refused = store.put(b"large", &value).unwrap_err();
            assert!(is_out_of_memory(&refused), "{refused}");
            store.put(b"small", b"2").unwrap();
            assert!(store.get(b"large").unwrap().is_none());
        }
        no_limit();
        store.put(b"large", &value).unwrap();
        store.flush().unwrap();
        // The memtable's memory may come back only now. Then there is more than the limit was to leave.
        let refused = (0..200).find_map(|_| {
            limit(VALUE_BYTES as u64 / 2);
            let refused = store.get(b"large").err();
            if refused.is_none() {
                no_limit();
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            refused
        });
        let refused = refused.expect("there is too little memory");
        assert!(is_out_of_memory(&refused), "{refused}");
        assert_eq!(store.get(b"small").unwrap().as_deref(), Some(&b"2"[..]));
        no_limit();
        assert_eq!(store.get(b"large").unwrap().map(|found| found.len()), Some(VALUE_BYTES));
        store.close().unwrap();
    });
}

#[test]
fn opening_without_memory_for_the_log_is_an_error() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.put(b"large", vec![7; VALUE_BYTES]).unwrap();
        store.close().unwrap();
        drop(store);
        limit(VALUE_BYTES as u64 / 2);
        for opened in [Store::open(directory.path()), Store::open_read_only(directory.path())] {
            let refused = opened.expect_err("no memory");
            assert!(is_out_of_memory(&refused), "{refused}");
        }
        no_limit();
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.get(b"large").unwrap().map(|found| found.len()), Some(VALUE_BYTES));
        store.close().unwrap();
    });
}

/// A log of small entries fills memtables chunk by chunk; a chunk that was refused ended the process.
#[test]
fn opening_without_memory_for_small_entries_of_the_log_is_an_error() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        for number in 0..60_000u32 {
            store.put(number.to_be_bytes(), [7; 500]).unwrap();
        }
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap()) {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        store.close().unwrap();
        drop(store);
        let mut refused = 0;
        for more_mib in (8..64).step_by(4) {
            limit(more_mib << 20);
            match Store::open_read_only(copy.path()) {
                Ok(store) => assert_eq!(store.get(7u32.to_be_bytes()).unwrap().map(|found| found.len()), Some(500)),
                Err(error) => {
                    assert!(is_out_of_memory(&error), "{error}");
                    refused += 1;
                }
            }
            no_limit();
        }
        assert!(refused > 0, "the log has found its memory each time");
        let store = Store::open(copy.path()).unwrap();
        assert_eq!(store.get(59_999u32.to_be_bytes()).unwrap().map(|found| found.len()), Some(500));
        store.close().unwrap();
    });
}

/// The names of the tables in a directory.
fn tables(directory: &std::path::Path) -> Vec<std::ffi::OsString> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut tables: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".table")).collect();
    tables.sort();
    tables
}

#[test]
fn a_compaction_without_memory_changes_nothing_and_the_next_one_succeeds() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let keyspace = store.default_keyspace();
        for number in 0..2u8 {
            store.put([number], vec![number; VALUE_BYTES]).unwrap();
            store.put(b"small", [number]).unwrap();
            store.flush().unwrap();
        }
        let before = tables(directory.path());
        limit(VALUE_BYTES as u64 / 2);
        for _ in 0..2 {
            let refused = keyspace.compact(None, None).unwrap_err();
            assert!(is_out_of_memory(&refused), "{refused}");
        }
        no_limit();
        assert_eq!(tables(directory.path()), before, "inputs are there, and nothing is left of the attempts");
        keyspace.compact(None, None).unwrap();
        assert_ne!(tables(directory.path()), before);
        for number in 0..2u8 {
            assert!(store.get([number]).unwrap().is_some_and(|found| *found == vec![number; VALUE_BYTES]));
        }
        assert_eq!(store.get(b"small").unwrap().as_deref(), Some(&[1][..]));
        store.check().unwrap();
        store.close().unwrap();
    });
}
