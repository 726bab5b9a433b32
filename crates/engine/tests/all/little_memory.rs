//! Threads that get no memory for the lengths that data decides: each call answers, or says that there is none.

use situ_engine::{Error, Store, VerifyReport, WriteBatch, verify_directory};
use situ_sim::SimMemory;
use std::path::Path;

/// Allocations of this size and more are refused. Shorter values are as any other small allocation.
const REFUSED_BYTES: usize = 66 << 10;

fn is_out_of_memory(error: &Error) -> bool {
    matches!(error, Error::Storage(error) if error.is_out_of_memory())
}

fn batch_of(key: &str, value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value).unwrap();
    batch
}

/// A value in a memtable was copied by an allocation that ends the process, and a memtable's memory for an entry below
/// 512 KiB was asked for when the log had the entry.
#[test]
fn values_of_all_lengths_are_refused_when_their_thread_gets_no_memory() {
    for bytes in [67 << 10, 130 << 10, 511 << 10, 600 << 10] {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let value = vec![7; bytes];
        let (batch, first) = (batch_of("large", &value), batch_of("before", b"1"));
        store.write(first).unwrap();
        let refused = SimMemory::refusing(REFUSED_BYTES, || store.write(batch)).unwrap_err();
        assert!(is_out_of_memory(&refused), "{bytes}: {refused}");
        assert!(store.get("large").unwrap().is_none());
        store.write(batch_of("large", &value)).unwrap();
        let refused = SimMemory::refusing(REFUSED_BYTES, || store.get("large")).unwrap_err();
        assert!(is_out_of_memory(&refused), "{bytes}: {refused}");
        let refused = SimMemory::refusing(REFUSED_BYTES, || store.iter().unwrap().find_map(Result::err));
        assert!(refused.as_ref().is_some_and(is_out_of_memory), "{bytes}: {refused:?}");
        assert_eq!(store.get("large").unwrap().unwrap(), value);
        assert_eq!(store.get("before").unwrap().unwrap(), "1");
        store.close().unwrap();
    }
}

fn verified(at: &Path) -> situ_engine::Result<VerifyReport> {
    verify_directory(at, &mut |_| {})
}

/// A verification without memory called a sound store damaged, and told its user to repair it.
#[test]
fn a_verification_without_memory_says_so_and_finds_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for number in 0..20u8 {
        store.put([number], vec![number; 200 << 10]).unwrap();
        if number == 10 {
            store.flush().unwrap();
        }
    }
    store.close().unwrap();
    assert!(verified(directory.path()).unwrap().is_sound());
    let refused = SimMemory::refusing(150 << 10, || verified(directory.path())).unwrap_err();
    assert!(is_out_of_memory(&refused), "{refused}");
    assert!(verified(directory.path()).unwrap().is_sound());
}
