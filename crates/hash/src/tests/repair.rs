//! Repairs of stores whose bytes have rotted.

use super::live::copy_tree;
use super::model::check_sound;
use crate::format::bucket::{BUCKET_BYTES, at, is_blank};
use crate::format::space::bucket_offset;
use crate::{Durability, HashOptions, HashRepair, HashStore, HashStoreBuilder};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> HashOptions {
    HashOptions { bucket_space_bytes: 1 << 24, base_bits: 4, value_segment_bytes: 1 << 20, ..HashOptions::default() }
}

fn open(directory: &Path) -> crate::Result<HashStore> {
    HashStore::open(directory, options())
}

fn repair(directory: &Path) -> HashRepair {
    HashStoreBuilder::new(options()).repair(directory).unwrap()
}

/// Makes a store with small and large values.
fn fill(directory: &Path, durability: Durability) -> (HashStore, Map) {
    let store = open(directory).unwrap();
    let mut map = Map::new();
    for number in 0..2000_u32 {
        let bytes = if number % 100 == 0 { 5000 } else { 300 };
        let (key, value) = (number.to_le_bytes().to_vec(), vec![number as u8; bytes]);
        store.put_with(&key, &value, durability, None).unwrap();
        map.insert(key, value);
    }
    store.checkpoint().unwrap();
    while store.properties().load > 0.4 {
        std::thread::sleep(Duration::from_millis(10));
    }
    (store, map)
}

fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// The file of the home that ends like this and sorts first.
fn file_with(directory: &Path, end: &str) -> PathBuf {
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().ends_with(end)).min().unwrap()
}

/// Everything but `lost` is there, the store is sound, and there is nothing left to repair.
fn assert_mended(directory: &Path, map: &Map, lost: &[Vec<u8>]) {
    let store = open(directory).unwrap();
    for (key, value) in map {
        let expected = Some(value).filter(|_| !lost.contains(key));
        assert_eq!(store.get(key).unwrap().as_ref(), expected, "key {key:?}");
    }
    check_sound(&store);
    store.close().unwrap();
    let again = repair(directory);
    assert!(again.was_sound() && again.nothing_lost(), "{again:?}");
}

/// A write to a damaged bucket fails the store, and each opening meets the bucket again: once there was no way out.
#[test]
fn a_damaged_bucket_costs_its_own_entries_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, mut map) = fill(directory.path(), Durability::Buffered);
    store.close().unwrap();
    let buckets = directory.path().join("buckets");
    let holds_entries = |number: &u64| {
        let mut block = [0; BUCKET_BYTES];
        File::open(&buckets).unwrap().read_exact_at(&mut block, bucket_offset(*number)).unwrap();
        let (entries, overflow_entries) = (&block[at::NOW..at::NOW + 2], &block[at::NOW + 4..at::NOW + 8]);
        !is_blank(&block) && *entries != [0; 2] && *overflow_entries == [0; 4]
    };
    // A split can leave a bucket without entries: nothing is lost with that one.
    let number = (0..400).rev().find(holds_entries).unwrap();
    flip(&buckets, bucket_offset(number) + 100);
    let store = open(directory.path()).unwrap();
    let mut lost: Vec<Vec<u8>> = map.keys().filter(|key| store.get(key).is_err()).cloned().collect();
    assert!(!lost.is_empty() && lost.len() < 20, "{lost:?}");
    let written = lost.pop().unwrap();
    store.put(&written, "new").unwrap();
    assert!(store.checkpoint().unwrap_err().is_corruption());
    assert!(store.close().is_err());
    assert!(open(directory.path()).unwrap_err().is_corruption());
    let report = repair(directory.path());
    assert_eq!((report.lost_bucket_count, &report.lost_buckets[..]), (1, &[number][..]), "{report:?}");
    assert_eq!(report.lost_entries, lost.len() as u64 + 1, "{report:?}");
    assert!(!report.was_sound() && !report.nothing_lost(), "{report:?}");
    let block = std::fs::read(report.set_aside.unwrap()).unwrap();
    assert!(block.len() == BUCKET_BYTES && !is_blank(&block));
    map.insert(written, b"new".to_vec());
    assert_mended(directory.path(), &map, &lost);
}

#[test]
fn a_damaged_value_of_the_value_log_costs_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let (store, map) = fill(directory.path(), Durability::Buffered);
    store.close().unwrap();
    let segment = file_with(directory.path(), ".values");
    let key = 700_u32.to_le_bytes().to_vec();
    let value = &map[&key];
    let bytes = std::fs::read(&segment).unwrap();
    // 100 and 356 have other bytes than 700 in their values, and 956 is not long.
    let at = bytes.windows(4 + 200).position(|part| part[..4] == key && part[4..] == value[..200]).unwrap();
    flip(&segment, at as u64 + 1000);
    let store = open(directory.path()).unwrap();
    assert!(store.get(&key).unwrap_err().is_corruption());
    assert!(!store.verify().unwrap().is_sound());
    store.close().unwrap();
    let report = repair(directory.path());
    assert_eq!(report.lost_keys, std::slice::from_ref(&key), "{report:?}");
    assert_eq!(report.lost_bucket_count, 0);
    assert_mended(directory.path(), &map, &[key]);
}

#[test]
fn damaged_records_of_the_log_are_left_out_and_later_ones_count() {
    let directory = tempfile::tempdir().unwrap();
    let (home, copy) = (directory.path().join("home"), directory.path().join("copy"));
    let (store, mut map) = fill(&home, Durability::Buffered);
    store.checkpoint().unwrap();
    for number in 0..500_u32 {
        let (key, value) = (number.to_le_bytes().to_vec(), vec![7; 200]);
        store.put_with(&key, &value, Durability::Synced, None).unwrap();
    }
    // The state that the death of the process leaves.
    copy_tree(&home, &copy);
    store.close().unwrap();
    let paths = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
    let logs = paths.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let written = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        (bytes.chunks(4096).take_while(|page| page.iter().any(|byte| *byte != 0)).count() as u64, path)
    };
    let (pages, log) = logs.map(written).max().unwrap();
    flip(&log, pages / 2 * 4096 + 100);
    assert!(open(&copy).unwrap_err().is_corruption());
    let report = repair(&copy);
    assert!(report.lost_log_records > 0 && report.lost_bucket_count == 0, "{report:?}");
    let store = open(&copy).unwrap();
    let mut news = 0;
    for (key, value) in &mut map {
        let found = store.get(key).unwrap().unwrap();
        if found != *value {
            assert_eq!(found, [7; 200], "key {key:?}");
            (news, *value) = (news + 1, found);
        }
    }
    assert!((300..=500).contains(&news), "{news} of 500 writes are there");
    let last = 499_u32.to_le_bytes();
    assert_eq!(map[&last[..]], [7; 200], "what lies behind the damage");
    store.close().unwrap();
    assert_mended(&copy, &map, &[]);
}

#[test]
fn a_repair_without_a_store_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let error = HashStoreBuilder::new(options()).repair(directory.path()).unwrap_err();
    assert!(error.to_string().contains("there is no hash store"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let (store, _) = fill(&directory.path().join("store"), Durability::Buffered);
    let error = HashStoreBuilder::new(options()).repair(directory.path().join("store")).unwrap_err();
    assert!(error.to_string().contains("open"), "{error}");
    store.close().unwrap();
}

/// The log of a store that was killed was cut to nothing. The store opened without all of its writes, and a check found
/// it sound.
#[test]
fn a_needed_log_file_that_is_missing_or_cut_is_refused_and_said_by_a_repair() {
    let directory = tempfile::tempdir().unwrap();
    let (home, killed) = (directory.path().join("home"), directory.path().join("killed"));
    let store = open(&home).unwrap();
    (0..1000_u32).for_each(|number| store.put_with(number.to_le_bytes(), "v", Durability::Buffered, None).unwrap());
    copy_tree(&home, &killed);
    store.close().unwrap();
    for bytes in [None, Some(0), Some(4096)] {
        let damaged = directory.path().join(format!("damaged {bytes:?}"));
        copy_tree(&killed, &damaged);
        let log = file_with(&damaged, ".log");
        match bytes {
            None => std::fs::remove_file(&log).unwrap(),
            Some(bytes) => File::options().write(true).open(&log).unwrap().set_len(bytes).unwrap(),
        }
        let refused = open(&damaged).unwrap_err();
        assert!(refused.is_corruption(), "{refused}");
        let text = refused.to_string();
        let found = bytes.map_or(String::new(), |bytes| format!("found {bytes} bytes"));
        assert!(text.contains(log.to_str().unwrap()) && text.contains(&found), "{text}");
        let report = repair(&damaged);
        assert!(report.lost_log_records > 0 && !report.nothing_lost(), "{report:?}");
        check_sound(&open(&damaged).unwrap());
    }
    assert_eq!(open(&killed).unwrap().count().unwrap(), 1000);
}
