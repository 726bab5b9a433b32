//! Which files of a store are known from an earlier backup.

use crate::common::*;
use situ_backup::Backups;
use situ_base::lock;
use situ_engine::Store;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Returns a store whose tables and segments change no more.
fn still(at: &Path, value_log: bool) -> Store {
    let store = open(at, value_log);
    write(&store, 0..600, 1);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    store.close().unwrap();
    open(at, value_log)
}

#[test]
fn a_backup_of_an_unchanged_store_copies_no_data() {
    for value_log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut store = still(&at("store"), value_log);
        let backups = Backups::open_or_make(at("backups")).unwrap();
        let first = backups.create(&store).unwrap();
        assert!(first.base.is_none() && first.added_bytes > 100_000, "{first:?}");
        let data = files(&at("backups/files"), DATA);
        assert!(data.len() >= 3, "{data:?}");
        for round in 0..3 {
            let again = backups.create(&store).unwrap();
            assert_eq!(again.base, Some(first.id + round));
            assert_eq!(files(&at("backups/files"), DATA), data);
            assert_eq!(again.kept_files, data.len() as u64, "{again:?}");
            assert!(again.added_bytes < 32 << 10, "the manifest and its like: {again:?}");
            // An opening writes a new manifest, and no table.
            store.close().unwrap();
            store = open(&at("store"), value_log);
        }
        write(&store, 0..10, 9);
        let changed = backups.create(&store).unwrap();
        assert!(changed.kept_files >= data.len() as u64, "{changed:?}");
        assert!(changed.added_bytes < first.added_bytes / 4, "{changed:?}");
    }
}

/// A store went back to backup 1 and on from there. Its next table has the number and the length of another table in
/// backup 2, and differs in values alone.
#[test]
fn tables_of_another_course_of_a_store_are_not_taken_for_known_ones() {
    for value_log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let open = |name: &str| open(&at(name), value_log);
        let backups = Backups::open_or_make(at("backups")).unwrap();
        let one = open("one");
        write(&one, 0..100, 1);
        backups.create(&one).unwrap();
        one.close().unwrap();
        backups.restore(Some(1), at("two"), &mut |_| {}).unwrap();
        for (name, byte, base) in [("one", 2, 1), ("two", 3, 1)] {
            let store = open(name);
            if name == "two" {
                // The first backup of the other course took a number after its moment, for LINEAGE.
                store.change_lineage(<[u8]>::to_vec).unwrap();
            }
            write(&store, 0..100, byte);
            let report = backups.create(&store).unwrap();
            assert_eq!(report.base, Some(base), "the restored store descends from backup 1 alone");
            store.close().unwrap();
        }
        let [ours, theirs] = ["one", "two"].map(|name| files(&at(name), DATA));
        assert_eq!(ours, theirs, "numbers and lengths");
        let differ =
            |name: &&String| fs::read(at("one").join(name)).unwrap() != fs::read(at("two").join(name)).unwrap();
        assert!(ours.keys().any(|name| differ(&name)), "{ours:?}");
        assert_eq!(restored(&backups, Some(2)), contents_at(&at("one")));
        assert_eq!(restored(&backups, Some(3)), contents_at(&at("two")));
        assert_eq!(restored(&backups, Some(1))[0][&key(5)], value(5, 1));

        // The first course knows its own backup still.
        let one = open("one");
        let report = backups.create(&one).unwrap();
        assert_eq!(report.base, Some(2));
        one.close().unwrap();
    }
}

#[test]
fn a_restored_store_knows_its_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = still(&at("store"), true);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    backups.restore(None, at("restored"), &mut |_| {}).unwrap();
    let restored = open(&at("restored"), true);
    let report = backups.create(&restored).unwrap();
    assert!(report.base == Some(1) && report.added_bytes < 32 << 10, "{report:?}");
}

/// A checkpoint has no LINEAGE. Its files are read, and found in the pool.
#[test]
fn files_of_a_store_that_knows_no_backup_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = still(&at("store"), true);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    let data = files(&at("backups/files"), DATA);
    store.checkpoint(at("checkpoint")).unwrap();
    let checkpoint = open(&at("checkpoint"), true);
    let report = backups.create(&checkpoint).unwrap();
    assert_eq!((report.base, report.kept_files), (None, data.len() as u64), "{report:?}");
    assert_eq!(files(&at("backups/files"), DATA), data);
}

/// The pool has a segment whose values were erased before it was copied. A checkpoint of an earlier moment needs them.
#[test]
fn a_segment_that_was_trimmed_is_not_taken_for_one_with_more_values() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = still(&at("store"), true);
    let early = Backups::open_or_make(at("early")).unwrap();
    early.create(&store).unwrap();
    store.checkpoint(at("checkpoint")).unwrap();
    let before = contents(&store);
    let segments = files(&at("store"), &[".values"]);
    let bytes = |store: &str| segments.keys().map(|name| fs::read(at(store).join(name)).ok()).collect::<Vec<_>>();
    (0..600).filter(|n| n % 3 != 0).for_each(|n| store.delete(key(n)).unwrap());
    store.flush().unwrap();
    store.default_keyspace().compact(None, None).unwrap();
    store.wait_idle().unwrap();
    let is_trimmed = |(now, then): (&Option<Vec<u8>>, &Option<Vec<u8>>)| now.is_some() && now != then;
    assert!(bytes("store").iter().zip(&bytes("checkpoint")).any(is_trimmed), "nothing was trimmed");

    // The copy of the early backup has more values than the store, which does no harm.
    let kept = early.create(&store).unwrap();
    assert!(kept.kept_files > 0, "{kept:?}");
    assert_eq!(restored(&early, Some(2)), contents(&store));
    assert_eq!(restored(&early, Some(1)), before);
    let late = Backups::open_or_make(at("late")).unwrap();
    late.create(&store).unwrap();
    let checkpoint = open(&at("checkpoint"), true);
    late.create(&checkpoint).unwrap();
    assert_eq!(restored(&late, Some(1)), contents(&store));
    assert_eq!(restored(&late, Some(2)), before);
}

#[test]
fn two_directories_of_backups_know_a_store_both() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = still(&at("store"), false);
    let both = ["a", "b"].map(|name| Backups::open_or_make(at(name)).unwrap());
    for round in 0..3 {
        for backups in &both {
            let report = backups.create(&store).unwrap();
            assert_eq!(report.base, (round > 0).then_some(round), "{report:?}");
        }
    }
    // One that is made while the other one is on its way.
    let (inner, inner_store) = (both[1].clone(), store.clone());
    let made = Mutex::new(None);
    write(&store, 0..10, 9);
    let on_bytes = move |_| {
        lock(&made).get_or_insert_with(|| inner.create(&inner_store).unwrap());
    };
    both[0].create_with(&store, Arc::new(on_bytes)).unwrap();
    assert_eq!(both[1].list().unwrap().backups.len(), 4);
    for backups in &both {
        assert_eq!(backups.create(&store).unwrap().base, Some(4));
    }
    // The newest two of each.
    assert_eq!(store.lineage().unwrap().iter().filter(|byte| **byte == b'\n').count(), 4);
    // A store that is made where another one was knows none of them.
    store.close().unwrap();
    for (name, _) in files(&at("store"), &["CURRENT", ".table", ".log", ".spare", ".values", "IDENTITY"]) {
        fs::remove_file(at("store").join(name)).unwrap();
    }
    for (name, _) in files(&at("store"), &[""]).into_iter().filter(|(name, _)| name.starts_with("MANIFEST")) {
        fs::remove_file(at("store").join(name)).unwrap();
    }
    assert!(at("store/LINEAGE").exists());
    let store = open(&at("store"), false);
    write(&store, 0..300, 7);
    assert_eq!(both[0].create(&store).unwrap().base, None);
    assert_eq!(restored(&both[0], None), contents(&store));
}
