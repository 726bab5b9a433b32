use std::collections::BTreeMap;

use super::*;
use crate::memory::MemoryStore;
use crate::store::{EachEntry, StoreStats};

fn small(change: impl FnOnce(&mut BenchOptions)) -> BenchOptions {
    let mut options = BenchOptions { keys: 2000, ..BenchOptions::default() };
    change(&mut options);
    options
}

fn dataset(options: &BenchOptions, records: u64) -> Dataset {
    Dataset { live: LiveKeys::new(options.keys), inserted: Inserted::new(records) }
}

fn loaded(options: &BenchOptions, store: &MemoryStore) -> Dataset {
    let dataset = dataset(options, 0);
    let mut worker = Worker::new(Workload::YcsbLoad, options, &dataset, None, 1);
    for _ in 0..options.keys {
        let request = worker.plan();
        worker.perform(store, request).expect("insert");
    }
    dataset
}

#[test]
fn live_keys_are_exactly_those_in_the_store() {
    let options = small(|_| {});
    let data = dataset(&options, 0);
    let store = MemoryStore::default();
    for workload in [Workload::FillRandom, Workload::DeleteRandom, Workload::Mixed, Workload::Overwrite] {
        let mut worker = Worker::new(workload, &options, &data, None, 42);
        for _ in 0..1500 {
            let request = worker.plan();
            worker.perform(&store, request).expect("memory cannot fail");
        }
        let entries = store.stats().expect("stats").detail["entries"];
        assert_eq!(data.live.count() as f64, entries, "{workload}");
    }
}

#[test]
fn batches_write_what_single_puts_write() {
    let mut contents = Vec::new();
    for batch_entries in [1, 10] {
        let options = small(|options| options.batch_entries = batch_entries);
        let data = dataset(&options, 0);
        let store = MemoryStore::default();
        let mut worker = Worker::new(Workload::FillSeq, &options, &data, None, 42);
        let mut operations = 0;
        while operations < 100 {
            let request = worker.plan();
            operations += worker.perform(&store, request).expect("memory cannot fail");
        }
        assert_eq!(worker.tally.user_bytes_written, 100 * 116);
        let mut keys = Vec::new();
        store
            .scan(&[], u64::MAX, &mut |key, _| {
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            })
            .expect("scan");
        contents.push(keys);
    }
    assert_eq!(contents[0].len(), 100);

    assert_eq!(contents[0], contents[1]);
}

#[test]
fn ycsb_mixes_have_their_shares_and_their_distribution() {
    let options = small(|options| options.read_percent = 70);
    let shares: [(Workload, &[(Kind, f64)]); 7] = [
        (Workload::YcsbA, &[(Kind::Read, 0.5), (Kind::Update, 0.5)]),
        (Workload::YcsbB, &[(Kind::Read, 0.95), (Kind::Update, 0.05)]),
        (Workload::YcsbC, &[(Kind::Read, 1.0)]),
        (Workload::YcsbD, &[(Kind::Read, 0.95), (Kind::Insert, 0.05)]),
        (Workload::YcsbE, &[(Kind::Scan, 0.95), (Kind::Insert, 0.05)]),
        (Workload::YcsbF, &[(Kind::Read, 0.5), (Kind::ReadModifyWrite, 0.5)]),
        (Workload::YcsbMixed, &[(Kind::Read, 0.7), (Kind::Update, 0.3)]),
    ];
    for (workload, shares) in shares {
        let store = MemoryStore::default();
        let data = loaded(&options, &store);
        let chooser = workload.chooser(&options, data.inserted.count());
        let mut worker = Worker::new(workload, &options, &data, chooser, 5);
        let mut kinds = BTreeMap::new();
        let mut records = BTreeMap::new();
        for _ in 0..20_000 {
            let request = worker.plan();
            worker.perform(&store, request).expect("every chosen record exists");
            *kinds.entry(request.kind).or_insert(0u32) += 1;
            *records.entry(worker.key().to_vec()).or_insert(0u32) += 1;
        }
        assert_eq!(worker.tally.missed, 0, "{workload}");
        assert_eq!(kinds.len(), shares.len(), "{workload}: {kinds:?}");
        for (kind, share) in shares {
            let drawn = f64::from(kinds[kind]) / 20_000.0;
            assert!((drawn - share).abs() < 0.02, "{workload} {kind:?}: {drawn}");
        }
        if workload == Workload::YcsbC {
            let top = f64::from(*records.values().max().expect("records")) / 20_000.0;
            assert!((0.033..0.045).contains(&top), "{top}");
        }
    }
}

/// What each request of a workload writes, in bytes.
fn written(workload: Workload, options: &BenchOptions) -> Vec<u64> {
    let store = MemoryStore::default();
    let data = dataset(options, if workload == Workload::YcsbLoad { 0 } else { options.keys });
    let chooser = workload.chooser(options, options.keys);
    let mut worker = Worker::new(workload, options, &data, chooser, 3);
    let write = |_| {
        let before = worker.tally.user_bytes_written;
        let request = worker.plan();
        worker.perform(&store, request).expect("memory cannot fail");
        worker.tally.user_bytes_written - before
    };
    (0..workload.operations(options, 0)).map(write).collect()
}

#[test]
fn a_schedule_changes_the_sizes_of_values_and_of_records_on_the_way() {
    let options = small(|options| {
        options.value_schedule = Some("25:2K,75:300".parse().expect("schedule"));
        options.update_mapping = UpdateMapping::Whole;
        options.read_percent = 0;
    });
    for workload in [Workload::FillRandom, Workload::Overwrite] {
        let sizes = written(workload, &options);
        assert!(sizes[..500].iter().all(|bytes| *bytes == 16 + 2048), "{workload}");
        assert!(sizes[500..].iter().all(|bytes| *bytes == 16 + 300), "{workload}");
    }
    // A key is `user` and up to 20 digits.
    let all = |sizes: &[u64], record: u64| sizes.iter().all(|bytes| (record + 5..=record + 24).contains(bytes));
    let sizes = written(Workload::YcsbMixed, &options);
    assert!(all(&sizes[..500], 2048) && all(&sizes[500..], 300));
    assert!(all(&written(Workload::YcsbLoad, &options), 1140), "records are loaded in their own size");
    let batches = BenchOptions { batch_entries: 10, ..options };
    let total: u64 = written(Workload::FillSeq, &batches)[..200].iter().sum();
    assert_eq!(total, 500 * (16 + 2048) + 1500 * (16 + 300), "entries of batches count one by one");
}

#[test]
fn an_update_of_a_foreign_or_missing_record_is_an_error() {
    let options = small(|options| options.operations = Some(1));
    let data = dataset(&options, options.keys);
    let chooser = Workload::YcsbF.chooser(&options, options.keys);
    let store = MemoryStore::default();
    let mut worker = Worker::new(Workload::YcsbF, &options, &data, chooser, 1);
    let request = loop {
        let request = worker.plan();
        if request.kind == Kind::ReadModifyWrite {
            break request;
        }
    };
    let missing = worker.perform(&store, request).expect_err("nothing was loaded").to_string();
    assert!(missing.contains("missing"), "{missing}");
    store.put(worker.key(), b"foreign", false).expect("put");
    let foreign = worker.perform(&store, request).expect_err("not a record").to_string();
    assert!(foreign.contains("7 bytes, expected 1140"), "{foreign}");
}

#[test]
fn ycsb_operations_are_shared_out_and_db_benchs_are_not() {
    let options = small(|options| {
        options.threads = 3;
        options.operations = Some(1000);
    });
    let of = |workload: Workload| (0..3).map(|thread| workload.operations(&options, thread)).collect::<Vec<_>>();
    assert_eq!(of(Workload::YcsbA), [334, 333, 333]);
    assert_eq!(of(Workload::ReadRandom), [1000, 1000, 1000]);
    assert_eq!(of(Workload::YcsbLoad).iter().sum::<u64>(), 2000);
}

/// Counts what it is asked.
#[derive(Default)]
struct Counting {
    memory: MemoryStore,
    gets: AtomicU64,
    puts: AtomicU64,
}

impl Store for Counting {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> std::result::Result<(), StoreFailure> {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.memory.put(key, value, sync)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> std::result::Result<bool, StoreFailure> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.memory.get(key, value)
    }

    fn delete(&self, _: &[u8], _: bool) -> std::result::Result<(), StoreFailure> {
        unreachable!("YCSB deletes nothing")
    }

    fn batch(&self, _: &[Change<'_>], _: bool) -> std::result::Result<(), StoreFailure> {
        unreachable!("YCSB knows no batches")
    }

    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> std::result::Result<u64, StoreFailure> {
        self.memory.scan(start, limit, each)
    }

    fn scan_reverse(
        &self,
        start: Option<&[u8]>,
        limit: u64,
        each: &mut EachEntry<'_>,
    ) -> std::result::Result<u64, StoreFailure> {
        self.memory.scan_reverse(start, limit, each)
    }

    fn flush(&self) -> std::result::Result<(), StoreFailure> {
        self.memory.flush()
    }

    fn compact_all(&self) -> std::result::Result<(), StoreFailure> {
        self.memory.compact_all()
    }

    fn wait_idle(&self) -> std::result::Result<(), StoreFailure> {
        self.memory.wait_idle()
    }

    fn stats(&self) -> std::result::Result<StoreStats, StoreFailure> {
        self.memory.stats()
    }
}

/// A read-modify-write got its record once, where YCSB reads it and then updates it, which reads it again.
#[test]
fn ycsb_requests_ask_of_a_store_what_ycsbs_binding_asks() {
    for (mapping, workload, kind, expected) in [
        (UpdateMapping::Merge, Workload::YcsbF, Kind::ReadModifyWrite, (2, 1)),
        (UpdateMapping::Merge, Workload::YcsbA, Kind::Update, (1, 1)),
        (UpdateMapping::Merge, Workload::YcsbA, Kind::Read, (1, 0)),
        (UpdateMapping::Whole, Workload::YcsbF, Kind::ReadModifyWrite, (1, 1)),
        (UpdateMapping::Whole, Workload::YcsbA, Kind::Update, (0, 1)),
        (UpdateMapping::Whole, Workload::YcsbD, Kind::Insert, (0, 1)),
    ] {
        let options = small(|options| options.update_mapping = mapping);
        let store = Counting::default();
        let data = loaded(&options, &store.memory);
        let mut worker = Worker::new(workload, &options, &data, workload.chooser(&options, options.keys), 3);
        let mut seen = 0;
        while seen < 50 {
            let request = worker.plan();
            store.gets.store(0, Ordering::Relaxed);
            store.puts.store(0, Ordering::Relaxed);
            worker.perform(&store, request).expect("every chosen record exists");
            if request.kind == kind {
                let asked = (store.gets.load(Ordering::Relaxed), store.puts.load(Ordering::Relaxed));
                assert_eq!(asked, expected, "{workload} {kind:?} {mapping:?}");
                seen += 1;
            }
        }
    }
}
