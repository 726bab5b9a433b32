//! What the public interface promises beside plain reads and writes: futures, filters, events, sizes, and the life of
//! keyspaces, iterators and snapshots.

use crate::common::*;
use situ_engine::{
    CompactionFilter, Compression, Decision, Durability, Error, FilterContext, Keyspace, KeyspaceOptions, Listener,
    Options, ReadOptions, SizeOptions, Store, StoreBuilder, StoreEvent, Value, WriteBatch,
};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park_timeout(Duration::from_secs(20));
    }
}

fn small() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.level_base_bytes = 64 << 10;
    options.keyspace.table_bytes = 32 << 10;
    options.cache_bytes = 64 << 10;
    options
}

fn with_store(options: Options, test: impl FnOnce(&Store)) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_with(directory.path(), options).unwrap();
    test(&store);
    store.close().unwrap();
}

#[test]
fn ten_thousand_synced_writes_can_be_under_way() {
    with_store(small(), |store| {
        let begin = |n: u32| store.put_with_async(n.to_be_bytes(), n.to_le_bytes(), Durability::Synced);
        let futures: Vec<_> = (0..10_000).map(begin).collect();
        // The order in which they are asked does not matter.
        for future in futures.into_iter().rev() {
            wait(future).unwrap();
        }
        for n in 0..10_000u32 {
            assert_eq!(store.get(n.to_be_bytes()).unwrap().as_deref(), Some(&n.to_le_bytes()[..]));
        }
        let syncs = store.properties().log_syncs;
        assert!(syncs < 5000, "{syncs} syncs for ten thousand writes: they do not share");
    });
}

#[test]
fn ten_thousand_reads_can_be_under_way() {
    with_store(small(), |store| {
        for n in 0..10_000u32 {
            store.put(n.to_be_bytes(), [n as u8; 40]).unwrap();
        }
        store.flush().unwrap();
        let begin = |n: u32| store.get_async(n.to_be_bytes());
        let futures: Vec<_> = (0..10_100).map(begin).collect();
        for (n, future) in futures.into_iter().enumerate() {
            let expected = (n < 10_000).then(|| vec![n as u8; 40]);
            assert_eq!(wait(future).unwrap().as_deref(), expected.as_deref(), "key {n}");
        }
    });
}

#[test]
fn a_write_takes_place_though_its_future_is_dropped() {
    with_store(small(), |store| {
        for n in 0..1000u32 {
            drop(store.put_with_async(n.to_be_bytes(), b"v", Durability::Synced));
            drop(store.get_async(n.to_be_bytes()));
        }
        // Writes are applied in order: when a later one is done, so are all earlier ones.
        store.default_keyspace().put_with(b"last", b"v", Durability::Synced).unwrap();
        assert!((0..1000u32).all(|n| store.get(n.to_be_bytes()).unwrap().is_some()));
    });
}

#[test]
fn futures_outlive_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_with(directory.path(), small()).unwrap();
    store.put(b"k", b"v").unwrap();
    store.flush().unwrap();
    let writes: Vec<_> = (0..500u32).map(|n| store.put_with_async(n.to_be_bytes(), b"v", Durability::Synced)).collect();
    let reads: Vec<_> = (0..500).map(|_| store.get_async(b"k")).collect();
    store.close().unwrap();
    for write in writes {
        assert!(matches!(wait(write), Ok(()) | Err(Error::Closed)));
    }
    for read in reads {
        assert!(matches!(wait(read), Ok(Some(_)) | Err(Error::Closed)));
    }
    assert!(matches!(wait(store.put_with_async(b"k", b"v", Durability::Synced)), Err(Error::Closed)));
    assert!(matches!(wait(store.get_async(b"k")), Err(Error::Closed)));
    assert!(matches!(store.get(b"k"), Err(Error::Closed)));
}

/// Removes keys that begin with "old", changes values of keys that begin with "new".
struct Renew;

impl CompactionFilter for Renew {
    fn name(&self) -> &str {
        "renew"
    }

    fn decide(&self, _context: &FilterContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        match key {
            [b'o', b'l', b'd', ..] => Decision::Remove,
            [b'n', b'e', b'w', ..] => Decision::Change([b"renewed ", value].concat()),
            _ => Decision::Keep,
        }
    }
}

#[test]
fn a_compaction_filter_removes_and_changes_but_not_what_a_snapshot_sees() {
    let mut options = small();
    options.keyspace.compaction_filter = Some(Arc::new(Renew));
    with_store(options, |store| {
        for key in [b"old 1", b"new 1", b"any 1"] {
            store.put(key, b"value").unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        store.default_keyspace().compact(None, None).unwrap();
        let all = |snapshot| contents(store.default_keyspace(), snapshot);
        assert_eq!(all(None).len(), 3, "what a snapshot sees is not the filter's");
        drop(snapshot);
        store.default_keyspace().compact(None, None).unwrap();
        let expected = [(&b"any 1"[..], &b"value"[..]), (b"new 1", b"renewed value")];
        assert_eq!(all(None), expected.map(|(k, v)| (k.to_vec(), v.to_vec())).into());
    });
}

#[derive(Default)]
struct Recorder {
    events: Mutex<Vec<StoreEvent>>,
}

impl Listener for Recorder {
    fn event(&self, event: &StoreEvent) {
        self.events.lock().unwrap().push(event.clone());
    }
}

impl Recorder {
    fn take(&self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

#[test]
fn a_listener_hears_of_flushes_compactions_and_failures() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 1);
        let recorder = Arc::new(Recorder::default());
        let mut options = small();
        options.listener = Some(Arc::clone(&recorder) as Arc<_>);
        let store = StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap();
        store.put(b"k", b"v").unwrap();
        store.flush().unwrap();
        let events = recorder.take();
        let [
            StoreEvent::Opened { last_sequence: 0, tables: 0, .. },
            StoreEvent::FlushBegun { entries: 1, .. },
            StoreEvent::TableCreated { table: created, level: 0, entries: 1, .. },
            StoreEvent::Flushed { keyspace, table: Some(table), bytes, .. },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        let tables = store.default_keyspace().tables();
        assert_eq!((&keyspace[..], *table, *bytes), ("default", tables[0].number, tables[0].bytes));
        assert_eq!(created, table);
        store.default_keyspace().compact(None, None).unwrap();
        let events = recorder.take();
        let [
            StoreEvent::CompactionBegun { from_level: 0, to_level, tables: inputs, reason, .. },
            StoreEvent::TableCreated { table: output, level, .. },
            StoreEvent::Compacted { from_level: 0, reason: said_again, .. },
            StoreEvent::TableDeleted { table: deleted },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!((to_level, &reason[..], &said_again[..]), (level, "asked for", "asked for"));
        assert_eq!((&inputs[..], deleted, *output), (&[*table][..], table, store.default_keyspace().tables()[0].number));
        // A table that cannot be written, then a log.
        let rule = |operation, kind| Rule::new(Fault::Io).on(&[operation]).files(&[kind]);
        volume.set_faults(FaultPlan::none().with(rule(Operation::Create, FileKind::Table)));
        store.put(b"k", b"w").unwrap();
        store.flush().unwrap_err();
        let events = recorder.take();
        assert!(
            matches!(&events[..2], [StoreEvent::FlushBegun { .. }, StoreEvent::JobFailed { job, .. }] if job == "flush"),
            "{events:?}"
        );
        assert!(store.statistics().job_failures > 0);
        volume.set_faults(FaultPlan::none());
        executor.env().clock.sleep(Duration::from_secs(10));
        let recovered = |event: &StoreEvent| matches!(event, StoreEvent::JobRecovered { job } if job == "flush");
        assert_eq!(recorder.take().iter().filter(|event| recovered(event)).count(), 1);
        volume.set_faults(FaultPlan::none().with(rule(Operation::WritePages, FileKind::Log)));
        store.put(b"k", b"x").unwrap_err();
        let failed = |event: &StoreEvent| matches!(event, StoreEvent::Failed { .. });
        assert_eq!(recorder.take().iter().filter(|event| failed(event)).count(), 1);
        store.close().unwrap_err();
    });
}

#[test]
fn approximate_bytes_are_about_right() {
    let mut options = small();
    options.keyspace.compression = vec![situ_engine::Compression::None];
    with_store(options, |store| {
        let mut rng = Rng::new(1);
        for n in 0..4000u32 {
            let mut value = [0; 100];
            rng.fill(&mut value);
            store.put(n.to_be_bytes(), value).unwrap();
        }
        store.default_keyspace().compact(None, None).unwrap();
        let keyspace = store.default_keyspace();
        let bytes = |from: u32, to: u32| keyspace.approximate_bytes(from.to_be_bytes(), to.to_be_bytes()).unwrap();
        let total = keyspace.properties().table_bytes;
        assert!((total * 9 / 10..=total).contains(&bytes(0, 5000)), "{} of {total}", bytes(0, 5000));
        for (from, to) in [(0, 2000), (1000, 3000), (2000, 4000), (100, 3900)] {
            let expected = total as f64 * f64::from(to - from) / 4000.0;
            let found = bytes(from, to) as f64;
            assert!(
                (0.8..1.2).contains(&(found / expected)),
                "{found} bytes in {from}..{to}, about {expected} expected"
            );
        }
        assert!(bytes(5000, 6000) == 0 && bytes(2000, 2000) <= 8 << 10);
        assert_eq!(bytes(3000, 1000), 0, "an empty range");
    });
}

#[test]
fn an_iterator_goes_on_when_its_keyspace_is_dropped() {
    with_store(small(), |store| {
        let keyspace = store.create_keyspace("doomed", small().keyspace).unwrap();
        let mut model = Model::new();
        for n in 0..3000u32 {
            keyspace.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
            model.insert(n.to_be_bytes().to_vec(), vec![n as u8; 50]);
        }
        let mut iterator = keyspace.cursor().unwrap();
        iterator.seek_to_first().unwrap();
        store.drop_keyspace("doomed").unwrap();
        assert!(matches!(keyspace.get(b"k"), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(keyspace.put(b"k", b"v"), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(keyspace.flush(), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(keyspace.cursor(), Err(Error::KeyspaceDropped { .. })));
        // A new one of the same name is another one.
        let other = store.create_keyspace("doomed", KeyspaceOptions::default()).unwrap();
        other.put(b"k", b"v").unwrap();
        store.flush().unwrap();
        for (key, value) in &model {
            assert_eq!(iterator.key().zip(iterator.value()), Some((&key[..], &value[..])));
            iterator.next().unwrap();
        }
        assert!(!iterator.valid());
        drop(iterator);
        assert_eq!(contents(&other, None).len(), 1);
    });
}

#[test]
fn the_files_of_a_dropped_keyspace_go_when_nobody_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_with(directory.path(), small()).unwrap();
    let tables = || {
        let names = std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".table")).count()
    };
    let keyspace = store.create_keyspace("doomed", small().keyspace).unwrap();
    for n in 0..3000u32 {
        keyspace.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
    }
    keyspace.flush().unwrap();
    store.wait_idle().unwrap();
    let iterator = keyspace.cursor().unwrap();
    store.drop_keyspace("doomed").unwrap();
    assert!(tables() > 0, "an iterator still reads them");
    drop(iterator);
    store.put(b"k", b"v").unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    assert_eq!(tables(), 1);
}

#[test]
fn a_snapshot_survives_compactions_and_holds_back_no_more_than_it_must() {
    with_store(small(), |store| {
        let write = |round: u8| {
            for n in 0..500u32 {
                store.put(n.to_be_bytes(), [round; 100]).unwrap();
            }
        };
        write(1);
        let snapshot = store.snapshot().unwrap();
        let before = contents(store.default_keyspace(), Some(&snapshot));
        (2..10).for_each(write);
        store.default_keyspace().delete_range(0u32.to_be_bytes(), 250u32.to_be_bytes()).unwrap();
        store.default_keyspace().compact(None, None).unwrap();
        compare(store.default_keyspace(), &before, Some(&snapshot), "after a compaction");
        let entries = |store: &Store| store.default_keyspace().tables().iter().map(|t| t.entries).sum::<u64>();
        // The snapshot's version of each key, and the newest of those that are left.
        assert!((750..=760).contains(&entries(store)), "{} entries", entries(store));
        assert_eq!(store.properties().snapshots, 1);
        drop(snapshot);
        assert_eq!(store.properties().snapshots, 0);
        store.default_keyspace().compact(None, None).unwrap();
        assert!((250..=251).contains(&entries(store)), "{} entries", entries(store));
        assert_eq!(contents(store.default_keyspace(), None).len(), 250);
    });
}

/// A batch holds the numbers of keyspaces. Once, a store took a batch that had been made with another store's keyspaces,
/// and the changes landed in whichever of its own had these numbers.
#[test]
fn a_batch_for_one_store_is_refused_by_another() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |directory: &tempfile::TempDir| Store::open_with(directory.path(), small()).unwrap();
    let (a, b) = (open(&first), open(&second));
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put_in(a.default_keyspace(), b"key", b"value").unwrap();
        batch
    };
    let refused = |error: Error| matches!(&error, Error::Invalid(text) if text.contains("another store"));
    assert!(refused(b.write(batch()).unwrap_err()));
    assert!(refused(b.write_with(batch(), Durability::Synced).unwrap_err()));
    assert!(refused(taken(b.write_with_async(batch(), Durability::Synced)).map(drop).unwrap_err()));
    assert_eq!(b.get(b"key").unwrap().as_deref(), None);

    let mut mixed = batch();
    assert!(refused(mixed.delete_in(b.default_keyspace(), b"key").unwrap_err()));
    assert!(refused(mixed.delete_range_in(b.default_keyspace(), b"a", b"z").unwrap_err()));
    assert_eq!(mixed.len(), 1);
    a.write(mixed.clone()).unwrap();
    assert_eq!(a.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    // An emptied batch is anybody's.
    mixed.clear();
    mixed.put_in(b.default_keyspace(), b"other", b"value").unwrap();
    b.write(mixed).unwrap();

    let old = batch();
    a.close().unwrap();
    let again = open(&first);
    assert!(refused(again.write(old).unwrap_err()));
}

#[test]
fn approximate_bytes_count_memtables_if_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let keyspace = store.default_keyspace();
    let put_all = || (0..10_000u32).for_each(|n| keyspace.put(n.to_be_bytes(), [1; 100]).unwrap());
    put_all();
    let (low, middle, high) = (0u32.to_be_bytes(), 5_000u32.to_be_bytes(), 10_000u32.to_be_bytes());
    let in_memory = SizeOptions::default().include_memtables(true);
    assert_eq!(keyspace.approximate_bytes(low, high).unwrap(), 0, "tables alone are counted by default");
    let whole = keyspace.approximate_bytes_with(low, high, &in_memory).unwrap();
    assert!((1_000_000..2_500_000).contains(&whole), "{whole} bytes for 1.04 MB");
    let half = keyspace.approximate_bytes_with(low, middle, &in_memory).unwrap();
    assert!((whole / 3..whole * 2 / 3).contains(&half), "{half} of {whole} bytes for a half");
    store.flush().unwrap();
    let tables = keyspace.approximate_bytes(low, high).unwrap();
    assert!(tables > 0);
    assert_eq!(keyspace.approximate_bytes_with(low, high, &in_memory).unwrap(), tables, "nothing is in memory");
    put_all();
    let both = keyspace.approximate_bytes_with(low, high, &in_memory).unwrap();
    assert!(both > tables + 1_000_000);
    let mut memory_only = in_memory;
    memory_only.include_tables = false;
    assert_eq!(keyspace.approximate_bytes_with(low, high, &memory_only).unwrap(), both - tables);
    assert_eq!(keyspace.approximate_bytes_with(high, low, &in_memory).unwrap(), 0);
    store.close().unwrap();
}

#[test]
fn ranges_are_deleted_durably_or_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let keyspace = store.default_keyspace();
    (0..40u8).for_each(|n| keyspace.put([n], b"v").unwrap());
    let syncs = || store.properties().log_syncs;
    let before = syncs();
    keyspace.delete_range_with([0], [10], Durability::Buffered).unwrap();
    assert_eq!(syncs(), before);
    keyspace.delete_range_with([10], [20], Durability::Synced).unwrap();
    assert!(syncs() > before);
    wait(keyspace.delete_range_with_async([20], [25], Durability::Synced)).unwrap();
    wait(store.delete_range_with_async([25], [30], Durability::Buffered)).unwrap();
    wait(store.delete_with_async([39], Durability::Synced)).unwrap();
    // No change, and nothing to wait for.
    let empty = store.delete_range_with_async([5], [5], Durability::Synced);
    assert!(empty.is_done());
    wait(empty).unwrap();
    wait(store.write_with_async(WriteBatch::new(), Durability::Synced)).unwrap();
    let left: Vec<u8> = (0..40).filter(|n| keyspace.contains([*n]).unwrap()).collect();
    assert_eq!(left, (30..39).collect::<Vec<u8>>());
    store.close().unwrap();
    assert!(matches!(wait(store.write_with_async(WriteBatch::new(), Durability::Synced)), Err(Error::Closed)));
}

#[test]
fn many_keys_are_read_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let keyspace = store.default_keyspace();
    for n in 0..100u32 {
        keyspace.put(n.to_be_bytes(), n.to_le_bytes()).unwrap();
    }
    store.flush().unwrap();
    let snapshot = store.snapshot().unwrap();
    for n in 50..60u32 {
        keyspace.put(n.to_be_bytes(), b"newer").unwrap();
    }
    keyspace.delete(51u32.to_be_bytes()).unwrap();
    // Out of order, some twice, some absent, some in memory only and some on disk only.
    let keys: Vec<[u8; 4]> = [99u32, 3, 50, 51, 3, 7000, 58, 0].map(u32::to_be_bytes).to_vec();
    for (options, is_old) in [(ReadOptions::default(), false), (ReadOptions::default().at(&snapshot), true)] {
        let plain = |values: Vec<Option<Value>>| -> Vec<Option<Vec<u8>>> {
            values.into_iter().map(|value| value.map(|value| value.to_vec())).collect()
        };
        let expected = plain(keyspace.multi_get_with(&keys, &options).unwrap());
        let found = plain(wait(keyspace.multi_get_with_async(&keys, &options)).unwrap());
        assert_eq!(found, expected);
        assert!(found[3].is_none() != is_old && found[5].is_none() && found[4] == found[1]);
    }
    let in_memory = [50u32.to_be_bytes(), 51u32.to_be_bytes()];
    let mut ready = pin!(store.multi_get_async(&in_memory));
    let polled = ready.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "memtables know all the answers");
    let none: [&[u8]; 0] = [];
    assert!(wait(store.multi_get_async(&none)).unwrap().is_empty());
    store.close().unwrap();
    assert!(matches!(wait(store.multi_get_async(&keys)), Err(Error::Closed)));
}

#[test]
fn a_listener_hears_when_writers_are_stopped_and_resumed() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 1);
        let recorder = Arc::new(Recorder::default());
        let mut options = small();
        options.keyspace.memtable_bytes = 8 << 10;
        options.keyspace.memtables_max = 2;
        options.listener = Some(Arc::clone(&recorder) as Arc<_>);
        let store = StoreBuilder::new(options).env(executor.env()).open_volume(Arc::new(volume.clone())).unwrap();
        let slow = Rule::new(Fault::Delay(Duration::from_secs(1))).on(&[Operation::Create]).files(&[FileKind::Table]);
        volume.set_faults(FaultPlan::none().with(slow));
        for n in 0..100u32 {
            store.put(n.to_be_bytes(), [0; 1000]).unwrap();
        }
        store.wait_idle().unwrap();
        executor.env().clock.sleep(Duration::from_secs(10));
        let mut stopped = false;
        let mut stops = 0;
        for event in recorder.take() {
            match event {
                StoreEvent::WritersStopped { keyspace, reason } => {
                    assert!(keyspace == "default" && reason.contains("memtables"), "{reason}");
                    assert!(!stopped, "stopped twice");
                    stopped = true;
                    stops += 1;
                }
                StoreEvent::WritersResumed { .. } => {
                    assert!(stopped, "resumed without a stop");
                    stopped = false;
                }
                _ => {}
            }
        }
        assert!(stops > 1 && !stopped, "{stops} stops");
        assert_eq!(store.statistics().write_stops, stops);
        assert!(!store.default_keyspace().properties().writers_stopped);
        store.close().unwrap();
    });
}

/// Options are not stored: those in force are the ones of this opening, and can be seen.
#[test]
fn properties_show_the_options_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let shown = |options: Options, special: KeyspaceOptions| {
        let builder = StoreBuilder::new(options).keyspace("special", special.clone());
        let store = builder.open(directory.path()).unwrap();
        let keyspace = store.keyspace_with("special", special).unwrap();
        let shown = (store.properties().options, store.default_keyspace().properties(), keyspace.properties().options);
        store.close().unwrap();
        shown
    };
    let value = |options: &[(&str, String)], name: &str| -> String {
        options.iter().find(|(found, _)| *found == name).expect("an option of this name").1.clone()
    };
    let mut special = KeyspaceOptions::default();
    special.level0_tables = 30;
    special.compaction_filter = Some(Arc::new(Renew));
    let (of_store, default, of_special) = shown(Options::default(), special);
    assert_eq!(value(&of_store, "cache_bytes"), (256 << 20).to_string());
    assert_eq!(value(&default.options, "level0_tables"), "4");
    assert_eq!(
        (value(&of_special, "level0_tables"), value(&of_special, "level0_tables_max")),
        ("30".into(), "60".into())
    );
    assert_eq!(value(&of_special, "compaction_filter"), "renew");
    let mut other = Options::default();
    other.cache_bytes = 1 << 20;
    other.keyspace.memtable_bytes = 1;
    let (of_store, default, of_special) = shown(other, KeyspaceOptions::default());
    assert_eq!(value(&of_store, "cache_bytes"), (1 << 20).to_string());
    assert_eq!(value(&default.options, "memtable_bytes"), (4 << 10).to_string(), "in its bounds");
    assert_eq!(value(&of_special, "level0_tables"), "4");
    assert!(format!("{:?}", KeyspaceOptions::default()).contains("level0_tables_max: 40"));
}

/// Once, compactions cooled the cache: the new tables' blocks were not in it, those of the old ones stayed.
#[test]
fn a_compaction_leaves_the_cache_as_warm_and_no_fuller() {
    let mut options = small();
    options.cache_bytes = 64 << 20;
    options.keyspace.compression = vec![Compression::None];
    with_store(options, |store| {
        let keyspace = store.default_keyspace();
        let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let put_all = |byte: u8| (0..20_000u32).for_each(|n| store.put(key(n), [byte; 100]).unwrap());
        let read_all = |byte: u8| {
            let before = store.properties().cache_misses;
            (0..20_000u32).for_each(|n| assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&[byte; 100][..])));
            store.properties().cache_misses - before
        };
        put_all(1);
        keyspace.compact(None, None).unwrap();
        let cold = read_all(1);
        assert_eq!(read_all(1), 0);
        put_all(2);
        store.flush().unwrap();
        // What a compaction writes while it is read would not be read again before the next one.
        store.wait_idle().unwrap();
        read_all(2);
        keyspace.compact(None, None).unwrap();
        // What is left are index blocks.
        let misses = read_all(2);
        assert!(misses * 10 < cold, "{misses} misses after the compaction, {cold} when nothing was there");
        // A table's last readers may have held it a little longer.
        store.wait_idle().unwrap();
        put_all(3);
        keyspace.compact(None, None).unwrap();
        read_all(3);
        let (cached, tables) = (store.properties().cache_bytes, keyspace.properties().table_bytes);
        assert!(cached < tables * 3 / 2, "{cached} bytes in the cache, {tables} in tables");
    });
}

/// Once, a log file that was full just before its memtable was followed by another one of the same size for the rest.
#[test]
fn a_memtable_that_is_nearly_full_ends_with_its_log_file() {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 1 << 20;
    with_store(options, |store| {
        let other = store.create_keyspace("other", KeyspaceOptions::default()).unwrap();
        store.flush().unwrap();
        (0..250u32).for_each(|n| other.put(n.to_be_bytes(), [1; 1000]).unwrap());
        (0..900u32).for_each(|n| store.put(n.to_be_bytes(), [2; 1000]).unwrap());
        store.wait_idle().unwrap();
        assert_eq!((store.statistics().flushes, other.properties().table_bytes), (1, 0));
        let logs = store.properties().log_bytes;
        assert!(logs <= 3 * ((1 << 20) + (1 << 14)), "{logs} bytes of log files");
    });
}

/// Once, two log files as long as a memtable were left.
#[test]
fn little_is_left_beside_the_tables_after_everything_is_compacted() {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 32 << 20;
    options.keyspace.compression = vec![Compression::None];
    with_store(options, |store| {
        (0..150_000u32).for_each(|n| store.put(n.to_be_bytes(), [1; 500]).unwrap());
        store.default_keyspace().compact(None, None).unwrap();
        let (logs, tables) = (store.properties().log_bytes, store.default_keyspace().properties().table_bytes);
        assert!(logs <= 5 << 20, "{logs} bytes of log files beside {tables} of tables");
        // It grows again when it is needed.
        (0..150_000u32).for_each(|n| store.put(n.to_be_bytes(), [2; 500]).unwrap());
        assert_eq!(store.get(77u32.to_be_bytes()).unwrap().as_deref(), Some(&[2; 500][..]));
    });
}

/// Threads that ask for a keyspace that there is not yet all get the same one, and a name that may be a mistake creates nothing.
#[test]
fn a_keyspace_is_opened_or_created() {
    let directory = tempfile::tempdir().unwrap();
    let named = KeyspaceOptions::default().level0_tables(7);
    let builder = StoreBuilder::new(Options::default().keyspace(KeyspaceOptions::default().level0_tables(9)));
    let store = builder.keyspace("named", named).open(directory.path()).unwrap();
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            let store = &store;
            scope.spawn(move || store.keyspace("shared").unwrap().put([n], "value").unwrap());
        }
    });
    assert_eq!(store.keyspace_names(), ["default", "shared"]);
    assert_eq!(store.keyspace("shared").unwrap().iter().unwrap().count(), 8);
    let level0_tables = |keyspace: &Keyspace| {
        let options = keyspace.properties().options;
        options.iter().find(|(name, _)| *name == "level0_tables").unwrap().1.clone()
    };
    // A new keyspace has the options that it will have when the store is opened again.
    assert_eq!(level0_tables(&store.keyspace("named").unwrap()), "7");
    assert_eq!(level0_tables(&store.keyspace("shared").unwrap()), "9");
    let own = KeyspaceOptions::default().level0_tables(11);
    assert_eq!(level0_tables(&store.keyspace_with("own", own.clone()).unwrap()), "11");
    assert_eq!(level0_tables(&store.keyspace_with("shared", own).unwrap()), "9", "it exists, and keeps its options");
    assert!(matches!(store.existing_keyspace("typo"), Err(Error::NoSuchKeyspace { .. })));
    let taken = store.create_keyspace("shared", KeyspaceOptions::default()).unwrap_err();
    assert!(taken.to_string().contains("already"), "{taken}");
    assert!(matches!(store.keyspace(""), Err(Error::Invalid(_))));
    assert_eq!(store.keyspace_names(), ["default", "shared", "named", "own"]);
    store.close().unwrap();
    assert!(matches!(store.keyspace("shared"), Err(Error::Closed)));

    let store = Store::open_read_only(directory.path()).unwrap();
    assert_eq!(store.keyspace("shared").unwrap().iter().unwrap().count(), 8);
    let refused = store.keyspace("new").unwrap_err();
    assert!(matches!(&refused, Error::NoSuchKeyspace { name } if name == "new"), "{refused:?}");
    assert!(refused.to_string().contains("open the store for writing"), "{refused}");
    assert!(matches!(store.create_keyspace("new", Default::default()), Err(Error::ReadOnly)));
    store.close().unwrap();
}

/// The keyspace `default` has the same number in every store, so a batch for it alone belongs to none of them.
#[test]
fn a_batch_without_handles_can_be_written_to_any_store() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let stores = directories.each_ref().map(|directory| Store::open(directory.path()).unwrap());
    let mut batch = WriteBatch::new();
    batch.put("b", "1").unwrap();
    batch.delete_range("a", "c").unwrap();
    batch.put("c", "2").unwrap();
    batch.put("d", "3").unwrap();
    batch.delete("d").unwrap();
    for store in &stores {
        store.put("b", "0").unwrap();
        store.write(batch.clone()).unwrap();
        let pairs: Vec<_> = store.iter().unwrap().map(|pair| pair.unwrap()).collect();
        assert!(matches!(&pairs[..], [(key, value)] if *key == "c" && *value == "2"), "{pairs:?}");
    }
    // With a keyspace in it, it belongs to that keyspace's store, whatever came first.
    let other = stores[0].keyspace("other").unwrap();
    batch.put_in(&other, "e", "4").unwrap();
    batch.put("f", "5").unwrap();
    let refused = stores[1].write(batch.clone()).unwrap_err();
    assert!(refused.to_string().contains("another store"), "{refused}");
    assert!(batch.put_in(stores[1].default_keyspace(), "g", "6").is_err());
    stores[0].write(batch).unwrap();
    assert_eq!(other.get("e").unwrap().unwrap(), "4");
    assert_eq!(stores[0].get("f").unwrap().unwrap(), "5");
    stores.iter().for_each(|store| store.close().unwrap());
}
