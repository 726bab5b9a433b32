//! Stores that are damaged: what `verify` says, what `repair` does, and what a load makes of it.

use crate::common::situ;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The store's files whose names end so.
fn files(at: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(at.join("situ-data")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = all.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn copy_store(from: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("situ-data")).unwrap();
    for path in files(from, "") {
        fs::copy(&path, copy.path().join("situ-data").join(path.file_name().unwrap())).unwrap();
    }
    copy
}

fn manifest(at: &Path) -> PathBuf {
    let current = fs::read_to_string(at.join("situ-data/CURRENT")).unwrap();
    at.join("situ-data").join(current.split(' ').next().unwrap())
}

fn expect_all(at: &Path, what: &str) {
    for keyspace in ["one", "two", "log"] {
        let found = situ(at, &["get", "-k", keyspace, "key"]).done().text();
        assert_eq!(found, format!("{keyspace}'s value\n"), "{what}");
    }
}

/// All keyspaces lost their names, tables were written again, and it was said that nothing is lost.
#[test]
fn a_flipped_byte_in_the_manifest_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for keyspace in ["one", "two"] {
        situ(at, &["put", "-k", keyspace, "key", &format!("{keyspace}'s value")]).done();
    }
    situ(at, &["compact"]).done();
    situ(at, &["put", "-k", "log", "key", "log's value"]).done();
    let length = fs::read(manifest(at)).unwrap().len();
    for byte in [3, 14, 20, length / 3, length / 2, length - 3] {
        let what = format!("byte {byte} of {length}");
        let damaged = copy_store(at);
        let at = damaged.path();
        flip(&manifest(at), byte);
        let opened = copy_store(at);
        expect_all(opened.path(), &what);
        let put = situ(opened.path(), &["put", "another", "key"]).done();
        assert!(put.stderr.contains("so nothing is lost"), "{what}: an opening that mends says so: {put:?}");
        expect_all(opened.path(), &what);
        situ(opened.path(), &["verify"]).done();

        let found = situ(at, &["verify"]);
        assert!(found.code == 4 && found.text().contains("so nothing is lost"), "{what}: {found:?}");
        let inodes = |at: &Path| files(at, ".table").iter().map(|t| fs::metadata(t).unwrap().ino()).collect::<Vec<_>>();
        let before = inodes(at);
        let repaired = situ(at, &["repair"]).done().text();
        assert!(repaired.ends_with("Repaired. Nothing is lost.\n"), "{what}: {repaired}");
        assert!(!repaired.contains("set aside"), "{what}: {repaired}");
        let after = inodes(at);
        assert!(!before.is_empty() && before.iter().all(|inode| after.contains(inode)), "{what}: {repaired}");
        assert!(files(at, ".damaged").is_empty());
        situ(at, &["verify"]).done();
        expect_all(at, &what);
    }
}

/// With both files gone, tables have the names; the keyspace that is in the log alone has lost its own, and that is said.
#[test]
fn a_name_that_no_file_has_any_more_is_told_as_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for keyspace in ["one", "two"] {
        situ(at, &["put", "-k", keyspace, "key", &format!("{keyspace}'s value")]).done();
    }
    situ(at, &["compact"]).done();
    situ(at, &["put", "-k", "log", "key", "log's value"]).done();
    let manifest = manifest(at);
    fs::remove_file(manifest.with_extension("copy")).unwrap();
    fs::remove_file(manifest).unwrap();
    let found = situ(at, &["verify"]);
    let unchecked = "! tables and logs were not checked, because the manifest cannot be read";
    assert!(found.code == 4 && found.text().contains(unchecked), "{found:?}");
    let planned = situ(at, &["repair", "--dry-run", "--json"]).json();
    assert_eq!(
        (planned["nothing_lost"].as_bool(), planned["lost_names"][0]["keyspace_id"].as_u64()),
        (Some(false), Some(3))
    );
    let repaired = situ(at, &["repair"]).done().text();
    assert!(
        repaired.contains("lost: the old name of keyspace 3. The keyspace is now called \"keyspace-3\""),
        "{repaired}"
    );
    assert!(!repaired.contains("Nothing is lost") && !repaired.contains("lost: writes"), "{repaired}");
    for (keyspace, name) in [("one", "one"), ("two", "two"), ("keyspace-3", "log")] {
        assert_eq!(situ(at, &["get", "-k", keyspace, "key"]).done().text(), format!("{name}'s value\n"));
    }
}

/// It said that all lines were there.
#[test]
fn a_load_is_not_resumed_after_a_repair_that_lost_something() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lines: String = (0..5000).map(|n| format!("{{\"key\":\"key-{n:05}\",\"value\":\"{n:060}\"}}\n")).collect();
    fs::write(at.join("lines.jsonl"), &lines).unwrap();
    situ(at, &["load", "lines.jsonl"]).done();
    situ(at, &["compact"]).done();
    // A repair that loses nothing does not stand in the way.
    flip(&at.join("situ-data/IDENTITY"), 3);
    situ(at, &["repair"]).done();
    let resumed = situ(at, &["load", "--resume", "--json", "lines.jsonl"]).done().json();
    assert_eq!((resumed["loaded"].as_u64(), resumed["loaded_in_all"].as_u64()), (Some(0), Some(5000)));

    let table = files(at, ".table").into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    flip(&table, 2000);
    assert_eq!(situ(at, &["repair", "--json"]).done().json()["nothing_lost"].as_bool(), Some(false));
    for _ in 0..2 {
        let refused = situ(at, &["load", "--resume", "lines.jsonl"]);
        assert!(refused.code == 1 && refused.stderr.contains("a repair has lost data of the store"), "{refused:?}");
        assert!(refused.stderr.contains("without --resume"), "{refused:?}");
    }
    situ(at, &["load", "lines.jsonl"]).done();
    assert_eq!(situ(at, &["scan", "--keys"]).done().text().lines().count(), 5000);
    situ(at, &["load", "--resume", "lines.jsonl"]).done();
}

/// It was reported with exit code 0, and nothing mended it.
#[test]
fn a_flipped_byte_in_the_file_for_people_is_damage_that_a_repair_mends() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    flip(&at.join("situ-data/IDENTITY"), 10);
    let found = situ(at, &["verify"]);
    assert!(found.code == 4 && found.text().contains("IDENTITY") && found.text().contains("situ repair"), "{found:?}");
    assert_eq!(situ(at, &["repair", "--dry-run"]).code, 4);
    let repaired = situ(at, &["repair"]).done().text();
    assert!(repaired.contains("IDENTITY") && repaired.ends_with("Repaired. Nothing is lost.\n"), "{repaired}");
    situ(at, &["verify"]).done();
    fs::remove_file(at.join("situ-data/IDENTITY")).unwrap();
    assert_eq!(situ(at, &["verify"]).code, 4);
    situ(at, &["repair"]).done();
    situ(at, &["verify"]).done();
    assert_eq!(situ(at, &["get", "a"]).done().text(), "1\n");
}

/// `verify` said that a repair can go on, and `repair` refused and asked for a fast disk that never was.
#[test]
fn verify_and_repair_say_the_same_of_a_log_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    situ(at, &["compact"]).done();
    situ(at, &["put", "b", "2"]).done();
    files(at, ".log").iter().for_each(|log| fs::remove_file(log).unwrap());
    let found = situ(at, &["verify", "--json"]);
    let planned = situ(at, &["repair", "--dry-run", "--json"]);
    assert_eq!((found.code, planned.code), (4, 4), "{found:?} {planned:?}");
    assert_eq!(found.json()["damages"], planned.json()["damages"]);
    let refused = situ(at, &["put", "c", "3"]);
    let repaired = situ(at, &["repair"]).done();
    for text in [found.text(), planned.text(), refused.stderr, repaired.text()] {
        assert!(!text.contains("fast"), "{text}");
    }
    assert!(repaired.text().contains("lost: writes that were in the log alone"), "{repaired:?}");
    assert_eq!(situ(at, &["get", "a"]).done().text(), "1\n");
    situ(at, &["verify"]).done();
}
