//! Stores with several tables and segments, and their contents.

use situ_backup::{Backups, Depth};
use situ_engine::{Compression, KeyspaceOptions, Options, Store, StoreBuilder, Trim, verify_directory};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The keyspace that stores have, other than the default one.
pub(crate) const OTHER: &str = "other";

/// Returns options by which some hundred writes make several tables and segments.
pub(crate) fn options(value_log: bool) -> Options {
    let mut options = Options::default();
    options.keyspace = KeyspaceOptions::default().memtable_bytes(64 << 10).compression(vec![Compression::None]);
    options.value_segment_bytes = 64 << 10;
    options.value_trim = Some(Trim::Full);
    if value_log {
        options.keyspace = options.keyspace.value_log_min_bytes(300);
    }
    options
}

pub(crate) fn open(at: &Path, value_log: bool) -> Store {
    let store = StoreBuilder::new(options(value_log)).open(at).unwrap();
    store.keyspace(OTHER).unwrap();
    store
}

pub(crate) fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Returns a value whose length the key decides.
pub(crate) fn value(n: u64, byte: u8) -> Vec<u8> {
    vec![byte; 100 + (n * 37 % 500) as usize]
}

pub(crate) fn write(store: &Store, keys: std::ops::Range<u64>, byte: u8) {
    keys.for_each(|n| store.put(key(n), value(n, byte)).unwrap());
}

/// Returns the entries of both keyspaces.
pub(crate) fn contents(store: &Store) -> [Entries; 2] {
    ["default", OTHER].map(|name| match store.existing_keyspace(name) {
        Ok(keyspace) => {
            let entries = keyspace.iter().unwrap();
            entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
        }
        Err(_) => Entries::new(),
    })
}

/// Returns the entries of a closed store, which must be sound.
pub(crate) fn contents_at(at: &Path) -> [Entries; 2] {
    let report = verify_directory(at, &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report}");
    let store = Store::open_read_only(at).unwrap();
    contents(&store)
}

/// Restores a backup into a new directory. Returns its entries.
pub(crate) fn restored(backups: &Backups, id: Option<u64>) -> [Entries; 2] {
    let directory = tempfile::tempdir().unwrap();
    backups.restore(id, directory.path().join("store"), &mut |_| {}).unwrap();
    contents_at(&directory.path().join("store"))
}

pub(crate) fn assert_sound(backups: &Backups) {
    let report = backups.verify(None, Depth::Contents, &mut |_| {}).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

/// Returns the names and lengths of files whose names end so.
pub(crate) fn files(at: &Path, ends: &[&str]) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()));
    files.filter(|(name, _)| ends.iter().any(|end| name.ends_with(end))).collect()
}

/// The ends of names that contents of tables and segments have.
pub(crate) const DATA: &[&str] = &[".table", ".values"];
