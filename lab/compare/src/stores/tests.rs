use std::ops::ControlFlow;

use situ_bench::Change;

use super::*;
use crate::settings::Compression;

fn settings(compression: Compression) -> StoreSettings {
    StoreSettings {
        memtable_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        compression,
        rocksdb_statistics: true,
        ..StoreSettings::default()
    }
}

/// An adapter that answered differently would be measured at something else than the others.
#[test]
fn all_adapters_give_the_same_answers() {
    let key = |number: u32| format!("{:08}", number.wrapping_mul(2_654_435_761) % 5000).into_bytes();
    let mut answers = Vec::new();
    for kind in [StoreKind::Memory, StoreKind::Situ, StoreKind::Rocksdb, StoreKind::Fjall] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let factory = kind.factory(&settings(Compression::Lz4));
        let store = factory.open(directory.path()).expect("open");
        for number in 0..8000u32 {
            let value = vec![b'v'; 300 + number as usize % 100];
            match number % 10 {
                0 => store.delete(&key(number), false),
                1 => store
                    .batch(&[Change::Put(&key(number), &value), Change::Delete(&key(number + 7))], number % 1000 == 1),
                _ => store.put(&key(number), &value, number % 1000 == 2),
            }
            .expect("write");
        }
        store.flush().expect("flush");
        store.compact_all().expect("compact");
        store.wait_idle().expect("idle");
        drop(store);

        let store = factory.open(directory.path()).expect("reopen");
        let mut seen = Vec::new();
        let mut found = Vec::new();
        for number in 0..5000u32 {
            let present = store.get(format!("{number:08}").as_bytes(), &mut found).expect("get");
            seen.push((vec![u8::from(present)], found.len()));
        }
        for (start, limit) in [("", u64::MAX), ("00002500", 10), ("9", 5), ("", 0)] {
            let mut each = |key: &[u8], value: &[u8]| {
                seen.push((key.to_vec(), value.len()));
                ControlFlow::Continue(())
            };
            let forward = store.scan(start.as_bytes(), limit, &mut each).expect("scan");
            let backward = store.scan_reverse(Some(start.as_bytes()), limit, &mut each).expect("scan");
            let from_end = store.scan_reverse(None, limit, &mut each).expect("scan");
            seen.push((Vec::new(), (forward * 10_000 + backward * 100 + from_end) as usize));
        }
        let mut first = Vec::new();
        let count = store.scan(b"", u64::MAX, &mut |key, _| {
            first.push(key.to_vec());
            ControlFlow::Break(())
        });
        assert_eq!((count.expect("scan"), first.len()), (1, 1), "{kind}: breaking ends a scan");
        store.stats().expect("stats");
        answers.push((kind, seen));
    }
    let (_, expected) = &answers[0];
    for (kind, seen) in &answers[1..] {
        assert!(seen == expected, "{kind} answers differently from the map in memory");
    }
}

/// What is to be measured without some part of it says so in its results, and has all else as the whole.
#[test]
fn ablations_differ_from_the_whole_in_what_they_are_named_for() {
    let mut settings = settings(Compression::None);
    settings.fast_disk = Some("/fast/raw".into());
    settings.fast_files = Some("/fast/files".into());
    let options = BenchOptions { threads: 8, outstanding: 50, ..BenchOptions::default() };
    let whole = StoreKind::Situ.factory(&settings).settings();
    let differing = |kind: StoreKind| {
        let own = kind.factory(&settings).settings();
        whole.keys().filter(|name| own[*name] != whole[*name]).cloned().collect::<Vec<_>>()
    };
    assert_eq!(differing(StoreKind::SituSerialLog), ["serial_log"]);
    assert_eq!(differing(StoreKind::SituPinned), ["pinned_level"]);
    assert_eq!(differing(StoreKind::SituFileSystem), ["fast_disk"]);
    assert!(differing(StoreKind::SituBlocking).is_empty());
    let blocking = StoreKind::SituBlocking.options(&options, &settings);
    assert_eq!((blocking.threads, blocking.outstanding), (40, 1));
    assert_eq!(StoreKind::SituPinned.options(&options, &settings), options);
    for kind in [StoreKind::SituFileSystem, StoreKind::SituPinned] {
        assert!(kind.refuses(&StoreSettings::default()).is_some() && kind.refuses(&settings).is_none());
    }
}
