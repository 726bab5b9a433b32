//! Verification of a store that is open: what is damaged is found and noted, and dead or moved data is no damage.

use situ_engine::{Compression, Error, Options, Store, StoreBuilder};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// A value that occurs nowhere else.
fn value(n: u32, round: u32) -> Vec<u8> {
    format!("<{n:08}.{round:08}>").repeat(300).into_bytes()
}

fn open(directory: &Path, has_value_log: bool) -> Store {
    let mut options = Options::default();
    options.keyspace.value_log_min_bytes = has_value_log.then_some(1000);
    options.keyspace.memtable_bytes = 1 << 20;
    options.keyspace.table_bytes = 256 << 10;
    options.keyspace.compression = vec![Compression::None];
    StoreBuilder::new(options).open(directory).unwrap()
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|of| of == extension)).collect();
    files.sort();
    files
}

/// Flips a bit of the bytes `what` wherever the files have them. Returns the number of places.
fn flip(files: &[PathBuf], what: &[u8]) -> usize {
    let mut flipped = 0;
    for path in files {
        let mut bytes = std::fs::read(path).unwrap();
        let places: Vec<usize> =
            bytes.windows(what.len()).enumerate().filter(|(_, w)| *w == what).map(|(at, _)| at).collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        if !places.is_empty() {
            // In place: the store has the file open.
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        }
        flipped += places.len();
    }
    flipped
}

#[test]
fn a_sound_store_is_sound_while_others_write_merge_and_drop_keyspaces() {
    for has_value_log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), has_value_log);
        (0..1000).for_each(|n| store.put(key(n), value(n, 0)).unwrap());
        store.flush().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=30 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    (0..300).for_each(|n| store.put(key(n * 3), value(n, round)).unwrap());
                    let passing = store.keyspace("passing").unwrap();
                    passing.put("k", value(1, round)).unwrap();
                    store.flush().unwrap();
                    store.drop_keyspace("passing").unwrap();
                }
            });
            for _ in 0..3 {
                let report = store.verify(0, &mut |_| {}).unwrap();
                assert!(report.is_sound(), "{report}");
                assert!(report.files > 0 && report.entries >= 300);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(store.statistics().damage_met, 0);
    }
}

#[test]
fn damage_of_a_table_is_reported_and_noted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), false);
    (0..1000).for_each(|n| store.put(key(n), value(n, 0)).unwrap());
    store.flush().unwrap();
    store.keyspace("default").unwrap().compact(None, None).unwrap();
    store.wait_idle().unwrap();
    // The inputs of the compaction go a moment after its end.
    let in_force = store.keyspace("default").unwrap().properties().tables;
    let tables = loop {
        let tables = files(directory.path(), "table");
        if tables.len() == in_force {
            break tables;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(tables.len() > 1);
    let mut bytes = std::fs::read(&tables[1]).unwrap();
    bytes[300] ^= 1;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&tables[1])
        .map(|file| {
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        })
        .unwrap();
    let report = store.verify(0, &mut |_| {}).unwrap();
    assert_eq!(report.files, tables.len() as u64);
    let [damage] = &report.damages[..] else { panic!("{report}") };
    assert_eq!(Path::new(&damage.file), tables[1]);
    let noted = store.properties().damaged_files;
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert_eq!(store.statistics().damage_met, 1);
}

/// The disk did not return a table: that was reported, and noted nowhere.
#[test]
fn a_table_that_cannot_be_read_is_noted_and_an_error_of_the_caller_is_no_damage() {
    crate::value_log::in_simulator(1, |executor, volume| {
        let builder = StoreBuilder::new(Options::default()).env(executor.env());
        let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
        store.put("k", "v").unwrap();
        store.flush().unwrap();
        let failing = |fault| {
            let reads = Rule::new(fault).on(&[Operation::Read]).files(&[FileKind::Table]);
            volume.set_faults(FaultPlan::none().with(reads));
            let report = store.verify(0, &mut |_| {});
            volume.set_faults(FaultPlan::none());
            report
        };
        let error = failing(Fault::PermissionDenied).unwrap_err();
        assert!(error.is_permission_denied(), "{error}");
        assert!(store.properties().damaged_files.is_empty());
        let report = failing(Fault::Io).unwrap();
        let noted = store.properties().damaged_files;
        assert!(noted.len() == 1 && noted == report.damages, "{noted:?}, {report}");
        assert!(noted[0].file.ends_with(".table"), "{noted:?}");
        assert!(store.verify(0, &mut |_| {}).unwrap().is_sound());
        store.close().unwrap();
    });
}

#[test]
fn a_value_counts_as_lost_if_a_reader_would_ask_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), true);
    (0..100).for_each(|n| store.put(key(n), value(n, 0)).unwrap());
    store.flush().unwrap();
    // An older version, in another table than the newer one.
    store.put(key(7), value(7, 1)).unwrap();
    store.flush().unwrap();
    let segments = files(directory.path(), "values");
    assert_eq!(flip(&segments, b"<00000007.00000000>"), 300);
    let report = store.verify(0, &mut |_| {}).unwrap();
    assert!(report.is_sound(), "nobody can read the older version: {report}");
    assert_eq!(store.get(key(7)).unwrap().unwrap(), value(7, 1));

    assert_eq!(flip(&segments, b"<00000009.00000000>"), 300);
    let report = store.verify(0, &mut |_| {}).unwrap();
    let [damage] = &report.damages[..] else { panic!("{report}") };
    assert!(damage.file.ends_with(".values"), "{damage}");
    assert_eq!(store.properties().damaged_files.len(), 1);
}

#[test]
fn a_verification_and_a_checkpoint_end_with_their_caller() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store"), false);
    for round in 0..3 {
        (0..100).for_each(|n| store.put(key(n), value(n, round)).unwrap());
        store.flush().unwrap();
    }
    let copy = directory.path().join("copy");
    let (mut verified, mut copied) = (0, 0);
    for asked_max in 0..50 {
        let handle = || {
            let asked = AtomicUsize::new(0);
            store.ended_by(move || asked.fetch_add(1, Ordering::Relaxed) >= asked_max)
        };
        match handle().verify(0, &mut |_| {}) {
            Ok(report) => verified += usize::from(report.is_sound()),
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
        match handle().checkpoint(&copy) {
            Ok(_) => copied += usize::from(copy.join("CURRENT").exists()),
            Err(error) => {
                assert!(matches!(error, Error::Interrupted), "{error}");
                let left: Vec<_> = copy.read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
                assert!(left.iter().all(|name| name == "LOCK"), "{left:?}");
            }
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!((1..50).contains(&verified) && (1..50).contains(&copied), "{verified} {copied}");
}

#[test]
fn a_verification_keeps_to_its_rate_and_ends_when_the_store_closes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), false);
    (0..1000).for_each(|n| store.put(key(n), value(n, 0)).unwrap());
    store.flush().unwrap();
    store.wait_idle().unwrap();
    let table_bytes = store.properties().table_bytes;
    let (started, mut last) = (Instant::now(), 0);
    store
        .verify(table_bytes * 4, &mut |progress| {
            assert!(progress.bytes_done >= last && progress.bytes_done <= progress.bytes_total, "{progress:?}");
            last = progress.bytes_done;
        })
        .unwrap();
    // Index and filter are not paced.
    assert!(started.elapsed() > Duration::from_millis(150), "{:?}", started.elapsed());
    assert!(last > table_bytes / 2);

    std::thread::scope(|scope| {
        let (begun, begins) = std::sync::mpsc::channel();
        let store = &store;
        // At this rate it would take a day.
        let verifying = scope.spawn(move || {
            store.verify(table_bytes / 86_400 + 1, &mut |_| {
                let _ = begun.send(());
            })
        });
        begins.recv().unwrap();
        store.close().unwrap();
        assert!(matches!(verifying.join().unwrap(), Err(Error::Closed)));
    });
    assert!(matches!(store.verify(0, &mut |_| {}), Err(Error::Closed)));
}
