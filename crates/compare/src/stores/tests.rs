use std::ops::ControlFlow;

use situ_bench::Change;

use super::*;
use crate::settings::Compression;

fn settings(compression: Compression) -> StoreSettings {
    StoreSettings {
        memtable_bytes: 1 << 20,
        memtables_max: 4,
        cache_bytes: 1 << 20,
        block_bytes: 4096,
        bloom_bits_per_key: 10,
        compression,
        background_threads: 2,
        rocksdb_statistics: true,
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
