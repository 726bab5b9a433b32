//! Damage that a store meets while it is open: told once for each file, counted each time, and nothing else suffers.

use situ_engine::{Error, Listener, Options, ScanOptions, Store, StoreBuilder, StoreEvent};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Heard(Mutex<Vec<StoreEvent>>);

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Heard {
    /// File and place of each event that tells of damage, and its line.
    fn damage(&self) -> Vec<(String, u64, String)> {
        let events = self.0.lock().unwrap();
        let damage = events.iter().filter_map(|event| match event {
            StoreEvent::DamageFound { file, offset, .. } => Some((file.clone(), *offset, event.to_string())),
            _ => None,
        });
        damage.collect()
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Tables of a store that is closed.
fn tables(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "table")).collect();
    tables.sort();
    tables
}

/// A store with one table, whose first block has a flipped byte, and what its listener hears.
fn damaged(directory: &Path) -> (Store, Arc<Heard>, PathBuf) {
    let store = Store::open(directory).unwrap();
    (0..2000).for_each(|n| store.put(key(n), [n as u8; 100]).unwrap());
    store.flush().unwrap();
    store.close().unwrap();
    let [table] = tables(directory).try_into().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[300] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let heard = Arc::new(Heard::default());
    let mut options = Options::default();
    options.listener = Some(Arc::clone(&heard) as Arc<_>);
    (StoreBuilder::new(options).open(directory).unwrap(), heard, table)
}

/// A read that met damage was known to its caller alone; a store could serve errors for weeks and say that all is well.
#[test]
fn damage_is_told_once_and_counted_each_time_and_other_keys_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let (store, heard, table) = damaged(directory.path());
    assert_eq!((store.properties().damaged_files.len(), heard.damage().len()), (0, 0), "nobody has read it");
    let bad = key(0);
    for _ in 0..1000 {
        assert!(store.get(&bad).unwrap_err().is_corruption());
    }
    let [(file, offset, line)] = heard.damage().try_into().unwrap();
    assert_eq!((Path::new(&file), offset), (&*table, 16));
    assert!(line.starts_with(&format!("damage found: {}", table.display())) && line.contains("situ repair"), "{line}");
    assert_eq!(store.statistics().damage_met, 1000);
    let [known] = store.properties().damaged_files.try_into().unwrap();
    assert_eq!((known.file, known.offset), (file, offset));
    for n in [1000, 1999] {
        assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&[n as u8; 100][..]));
    }
    store.put(key(0), b"written anew").unwrap();
    assert_eq!(store.get(key(0)).unwrap().as_deref(), Some(&b"written anew"[..]));
    assert_eq!((heard.damage().len(), store.statistics().damage_met), (1, 1000));
    store.close().unwrap();
}

type Way = (&'static str, fn(&Store, &[u8]) -> Result<(), Error>);

/// All ways to what a table holds.
const WAYS: [Way; 9] = [
    ("get", |store, key| store.get(key).map(drop)),
    ("multi_get", |store, key| store.default_keyspace().multi_get(&[key]).map(drop)),
    ("get_async", |store, key| wait(store.get_async(key)).map(drop)),
    ("multi_get_async", |store, key| wait(store.default_keyspace().multi_get_async(&[key])).map(drop)),
    ("scan_async", |store, _| wait(store.default_keyspace().scan_async(&ScanOptions::default())).map(drop)),
    ("an iterator", |store, _| store.cursor()?.seek_to_first()),
    ("an iterator backwards", |store, key| store.cursor()?.seek_for_prev(key)),
    ("a transaction", |store, key| store.begin()?.get(key).map(drop)),
    ("a compaction that is asked for", |store, _| store.default_keyspace().compact(None, None)),
];

#[test]
fn every_way_that_meets_damage_notes_it() {
    let directory = tempfile::tempdir().unwrap();
    for (name, way) in WAYS {
        let directory = directory.path().join(name);
        let (store, heard, table) = damaged(&directory);
        let error = way(&store, &key(0)).unwrap_err();
        assert!(error.is_corruption(), "{name}: {error}");
        assert_eq!((heard.damage().len(), store.statistics().damage_met), (1, 1), "{name}");
        assert_eq!(store.properties().damaged_files[0].file, table.display().to_string(), "{name}");
        store.close().unwrap();
    }
}

#[test]
fn a_background_compaction_that_meets_damage_notes_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, heard, _) = damaged(directory.path());
    // Three further tables of the same keys make level 0 due.
    for round in 0..3 {
        (1..2000).step_by(2).for_each(|n| store.put(key(n), [round; 100]).unwrap());
        store.flush().unwrap();
    }
    assert!(store.wait_idle().unwrap_err().is_corruption());
    assert_eq!((heard.damage().len(), store.properties().damaged_files.len()), (1, 1));
    assert!(store.statistics().damage_met >= 1);
    assert_eq!(store.get(key(1)).unwrap().as_deref(), Some(&[2; 100][..]));
    store.close().unwrap();
}

#[test]
fn damage_is_forgotten_with_the_table_that_had_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for name in ["rows", "others"] {
        let keyspace = store.create_keyspace(name, Default::default()).unwrap();
        keyspace.put(b"key", [7; 1000]).unwrap();
        keyspace.flush().unwrap();
    }
    store.close().unwrap();
    for table in tables(directory.path()) {
        let mut bytes = std::fs::read(&table).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&table, bytes).unwrap();
    }
    let store = Store::open(directory.path()).unwrap();
    let damaged = || store.properties().damaged_files.len();
    for name in ["rows", "others"] {
        assert!(store.keyspace(name).unwrap().get(b"key").unwrap_err().is_corruption());
    }
    assert_eq!(damaged(), 2);
    store.drop_keyspace("rows").unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while damaged() == 2 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(damaged(), 1);
    store.close().unwrap();
}
