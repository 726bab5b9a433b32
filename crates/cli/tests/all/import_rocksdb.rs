//! `import rocksdb`, on databases that RocksDB has just made. `make test-import` runs these: RocksDB's C++ takes a
//! quarter of an hour to compile.
#![cfg(feature = "rocksdb")]

use crate::common::{Ran, program, situ, situ_fed};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType,
    DBPath, Options, WriteOptions,
};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn create(path: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    DB::open(&options, path).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asserts what a keyspace holds.
fn holds(at: &Path, store: &str, keyspace: &str, expected: &Entries) {
    let found = situ(at, &["scan", "--hex", "-d", store, "-k", keyspace]).done().text();
    let expected: String = expected.iter().map(|(k, v)| format!("{}\t{}\n", hex(k), hex(v))).collect();
    assert!(found == expected, "keyspace {keyspace}: {} bytes, not {}", found.len(), expected.len());
}

fn import(at: &Path, arguments: &[&str]) -> Ran {
    situ(at, &[&["import", "rocksdb", "db"], arguments].concat())
}

/// Asserts that an import fails, and that all these parts are in what it says.
fn refused(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{part:?} is not in {}", ran.stderr);
    }
}

/// Names and sizes of all files.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    files.sort();
    files
}

fn tables(directory: &Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect()
}

#[test]
fn every_column_family_comes_over_as_it_is_beside_the_program_that_has_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let family = |compression| {
        let mut options = Options::default();
        options.set_compression_type(compression);
        options
    };
    let descriptors = [
        ("default", DBCompressionType::Lz4),
        ("größe, 2", DBCompressionType::Zstd),
        ("nothing", DBCompressionType::None),
    ];
    let descriptors = descriptors.map(|(name, kind)| ColumnFamilyDescriptor::new(name, family(kind)));
    let db = DB::open_cf_descriptors(&options, at.join("db"), descriptors).unwrap();
    let other = db.cf_handle("größe, 2").unwrap();
    let mut expected = Entries::new();
    let mut expected_other = Entries::new();
    for round in 0..3u32 {
        for n in 0..3000u32 {
            let (key, value) = (n.to_be_bytes().to_vec(), vec![round as u8; (n % 300) as usize]);
            db.put(&key, &value).unwrap();
            expected.insert(key, value);
        }
        for n in (round..3000).step_by(7) {
            db.delete(n.to_be_bytes()).unwrap();
            expected.remove(&n.to_be_bytes()[..]);
        }
        if round == 1 {
            db.delete_range_cf(db.cf_handle("default").unwrap(), 100u32.to_be_bytes(), 200u32.to_be_bytes()).unwrap();
            expected.retain(|key, _| !(100u32.to_be_bytes()[..].to_vec()..200u32.to_be_bytes().to_vec()).contains(key));
        }
        if round < 2 {
            db.flush().unwrap();
        }
    }
    for byte in 0..=255u8 {
        for key in [vec![byte], vec![byte, 0], vec![byte, 255, 255]] {
            db.put_cf(other, &key, [byte]).unwrap();
            expected_other.insert(key, vec![byte]);
        }
    }
    db.flush_cf(other).unwrap();
    let large: Vec<u8> = (0..5 << 20).map(|n: u32| (n ^ n >> 8) as u8).collect();
    for (key, value) in [(&b"large"[..], &large[..]), (b"empty", b""), (b"\x01\0\0", b"after the flush")] {
        db.put_cf(other, key, value).unwrap();
        expected_other.insert(key.to_vec(), value.to_vec());
    }
    let before = files(&at.join("db"));

    let report = import(at, &["--json"]).done().json();
    assert_eq!(report["same"], true, "{report}");
    let all = (expected.len() + expected_other.len()) as u64;
    assert_eq!(report["imported"].as_u64(), Some(all), "{report}");
    holds(at, "situ-data", "default", &expected);
    holds(at, "situ-data", "größe, 2", &expected_other);
    holds(at, "situ-data", "nothing", &Entries::new());
    assert_eq!(files(&at.join("db")), before, "the import has changed the database's directory");
    situ(at, &["verify"]).done();

    refused(&import(at, &[]), 1, &["imported there already", "--resume compares the two again"]);
    let again = import(at, &["--resume"]).done().text();
    assert!(again.contains("imported 0 entries") && again.matches("the same").count() == 3, "{again}");
    // The program goes on: its log and its lock are as they were.
    db.put(b"more", b"").unwrap();
    refused(&import(at, &["--resume"]), 1, &["it has changed since", "--merge"]);
    let merged = import(at, &["--merge"]).done().text();
    assert!(merged.contains("the same"), "{merged}");
    expected.insert(b"more".to_vec(), Vec::new());
    holds(at, "situ-data", "default", &expected);
}

#[test]
fn an_empty_database_is_a_store_without_entries() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    drop(create(&at.join("db")));
    let told = import(at, &[]).done().text();
    assert!(told.contains("imported 0 entries"), "{told}");
    holds(at, "situ-data", "default", &Entries::new());
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    refused(&import(at, &[]), 1, &["cannot open the RocksDB database in db", "No such file"]);
    fs::write(at.join("db"), "a file").unwrap();
    refused(&import(at, &[]), 1, &["it is no directory", "name the directory"]);
    fs::remove_file(at.join("db")).unwrap();
    fs::create_dir(at.join("db")).unwrap();
    refused(&import(at, &[]), 1, &["it has no file CURRENT"]);
    fs::write(at.join("db/CURRENT"), "nonsense").unwrap();
    refused(&import(at, &[]), 1, &["its file CURRENT is not one that RocksDB writes"]);
    fs::remove_dir_all(at.join("db")).unwrap();
    situ(at, &["put", "-d", "db", "a", "b"]).done();
    refused(&import(at, &[]), 1, &["it is a store of Situ already", "situ dump"]);
    assert_eq!(files(at).len(), 1, "{:?}", files(at));

    drop(create(&at.join("rocks")));
    let before = files(&at.join("rocks"));
    let into_itself = situ(at, &["import", "rocksdb", "rocks", "--data", "rocks"]);
    refused(&into_itself, 1, &["it is a RocksDB database", "--data"]);
    fs::remove_dir_all(at.join("db")).unwrap();
    fs::rename(at.join("rocks"), at.join("db")).unwrap();
    refused(&import(at, &["-c", "none"]), 2, &["there is no column family \"none\"", "it has: default"]);
    refused(&import(at, &["--merge", "--resume"]), 2, &["cannot be used with"]);
    assert_eq!(files(&at.join("db")), before);
}

#[test]
fn damage_is_found_and_not_imported() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let db = create(&at.join("db"));
    // Four chunks, each with a mark of how far it came; the damage is behind the second one.
    for n in 0..20_000u32 {
        db.put(n.to_be_bytes(), n.to_le_bytes().repeat(50)).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let table = tables(&at.join("db")).remove(0);
    let sound = fs::read(&table).unwrap();
    let mut rotten = sound.clone();
    let late = sound.len() / 4 * 3;
    rotten[late] ^= 1;
    fs::write(&table, &rotten).unwrap();
    refused(&import(at, &[]), 4, &["cannot read the column family \"default\"", "Corruption", "restore a backup"]);
    fs::write(&table, &sound[..late]).unwrap();
    refused(&import(at, &["--resume"]), 4, &["cannot open the RocksDB database", "Corruption"]);
    fs::remove_file(&table).unwrap();
    refused(&import(at, &["--resume"]), 1, &["a file is missing", "--db-path"]);
    // Mended: the import goes on.
    fs::write(&table, &sound).unwrap();
    let report = import(at, &["--resume", "--json"]).done().json();
    assert_eq!((report["same"].as_bool(), report["imported_in_all"].as_u64()), (Some(true), Some(20_000)), "{report}");
    let imported = report["imported"].as_u64().unwrap();
    assert!(0 < imported && imported < 20_000, "what lay before the damage is not imported twice: {report}");
}

#[test]
fn another_order_of_keys_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let mut backwards = Options::default();
    backwards.set_comparator("backwards", Box::new(|a, b| b.cmp(a)));
    let families = [ColumnFamilyDescriptor::new("a", Options::default()), ColumnFamilyDescriptor::new("b", backwards)];
    let db = DB::open_cf_descriptors(&options, at.join("db"), families).unwrap();
    db.put_cf(db.cf_handle("a").unwrap(), "key", "value").unwrap();
    db.put_cf(db.cf_handle("b").unwrap(), "key", "value").unwrap();
    drop(db);
    refused(&import(at, &[]), 1, &["column family \"b\"", "comparator backwards", "--column-family"]);
    assert!(!at.join("situ-data").exists(), "nothing is written before all is known to be welcome");
    import(at, &["-c", "a"]).done();
    holds(at, "situ-data", "a", &Entries::from([(b"key".to_vec(), b"value".to_vec())]));
    // Without the file that says so, RocksDB finds it.
    for (name, _) in files(&at.join("db")).iter().filter(|(name, _)| name.starts_with("OPTIONS")) {
        fs::remove_file(at.join("db").join(name)).unwrap();
    }
    refused(&import(at, &["-c", "b", "-d", "other"]), 1, &["comparator", "one order of keys"]);

    // One that lies about its name.
    let mut liar = Options::default();
    liar.create_if_missing(true);
    liar.set_comparator("leveldb.BytewiseComparator", Box::new(|a, b| b.cmp(a)));
    let db = DB::open(&liar, at.join("liar")).unwrap();
    (0..100u8).for_each(|n| db.put([n], [n]).unwrap());
    db.flush().unwrap();
    drop(db);
    let lie = situ(at, &["import", "rocksdb", "liar", "-d", "lies"]);
    refused(&lie, 1, &["not in the order of their bytes", "its comparator is another one than its name says"]);
    assert!(!at.join("lies").exists());
}

#[test]
fn values_that_only_an_operator_can_make_are_refused_until_they_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_merge_operator_associative("joined", |_, existing, operands| {
        Some(existing.into_iter().chain(operands.iter()).collect::<Vec<_>>().concat())
    });
    let db = DB::open(&options, at.join("db")).unwrap();
    for part in ["a", "b", "c"] {
        db.merge("key", part).unwrap();
        db.flush().unwrap();
    }
    refused(&import(at, &[]), 1, &["the merge operator joined, which is not here", "--without-merge-operator"]);
    let early = import(at, &["--without-merge-operator"]);
    refused(&early, 1, &["merge_operator", "there are merge operands"]);
    let mut to_the_last = CompactOptions::default();
    to_the_last.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &to_the_last);
    drop(db);
    import(at, &["--without-merge-operator", "--merge"]).done();
    holds(at, "situ-data", "default", &Entries::from([(b"key".to_vec(), b"abc".to_vec())]));

    // RocksDB's own counters are known.
    let mut counters = Options::default();
    counters.create_if_missing(true);
    counters.set_merge_operator_associative("UInt64AddOperator", |_, _, _| None);
    let db = DB::open(&counters, at.join("counters")).unwrap();
    db.put("n", 40u64.to_le_bytes()).unwrap();
    db.merge("n", 1u64.to_le_bytes()).unwrap();
    db.merge("n", 1u64.to_le_bytes()).unwrap();
    db.merge("m", u64::MAX.to_le_bytes()).unwrap();
    drop(db);
    situ(at, &["import", "rocksdb", "counters", "-d", "counted"]).done();
    let expected = [(b"n".to_vec(), 42u64.to_le_bytes().to_vec()), (b"m".to_vec(), u64::MAX.to_le_bytes().to_vec())];
    holds(at, "counted", "default", &expected.into());
}

#[test]
fn names_that_a_keyspace_cannot_have_are_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let long = "x".repeat(256);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, at.join("db"), ["default", "items", &long]).unwrap();
    db.put_cf(db.cf_handle("items").unwrap(), "key", "value").unwrap();
    drop(db);
    refused(&import(at, &[]), 1, &["the keyspace \"items\" is for", "--keyspace items=NAME"]);
    refused(&import(at, &["-k", "items=things"]), 1, &["1 to 255 bytes, and this one would have 256"]);
    refused(
        &import(at, &["-k", "items=default", "-c", "items", "-c", "default"]),
        1,
        &["into the keyspace \"default\""],
    );
    refused(&import(at, &["-k", "items"]), 2, &["write the column family, =, and the keyspace"]);
    refused(&import(at, &["-k", "none=some"]), 2, &["there is no column family \"none\""]);
    assert!(!at.join("situ-data").exists());
    import(at, &["-k", "items=things", "-k", &format!("{long}=long")]).done();
    holds(at, "situ-data", "things", &Entries::from([(b"key".to_vec(), b"value".to_vec())]));
}

#[test]
fn entries_that_situ_cannot_hold_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let db = create(&at.join("db"));
    db.put("", "the empty key").unwrap();
    refused(&import(at, &[]), 1, &["an entry with an empty key", "take that entry away"]);
    assert!(!at.join("situ-data").exists());
    db.delete("").unwrap();
    db.put(vec![b'a'; 64 << 10], "the longest key").unwrap();
    db.put(vec![b'b'; (64 << 10) + 1], "too long").unwrap();
    refused(&import(at, &[]), 1, &["cannot import the key bbb", "at most 65536 bytes, and this one has 65537"]);
    db.delete(vec![b'b'; (64 << 10) + 1]).unwrap();
    drop(db);
    import(at, &["--merge"]).done();
    holds(at, "situ-data", "default", &Entries::from([(vec![b'a'; 64 << 10], b"the longest key".to_vec())]));
}

#[test]
fn an_import_that_is_killed_goes_on_where_it_was() {
    const ENTRIES: u32 = 600_000;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, at.join("db"), ["default", "second"]).unwrap();
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    for n in 0..ENTRIES {
        let cf = db.cf_handle(if n % 2 == 0 { "default" } else { "second" }).unwrap();
        db.put_cf_opt(cf, format!("{n:08}"), format!("value {n}").repeat(5), &unlogged).unwrap();
    }
    ["default", "second"].into_iter().for_each(|name| db.flush_cf(db.cf_handle(name).unwrap()).unwrap());
    drop(db);
    let start = |arguments: &[&str]| {
        let mut command = program(at);
        command.args(["import", "rocksdb", "db", "--json"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let is_begun = || situ(at, &["get", "00000000"]).code == 0;
    let (mut kills, mut milliseconds) = (0, 30);
    let mut child = start(&[]);
    let report = loop {
        if kills < 4 {
            while kills == 0 && !is_begun() && child.try_wait().unwrap().is_none() {}
            std::thread::sleep(Duration::from_millis(milliseconds));
            let signal = if kills % 2 == 0 { Signal::KILL } else { Signal::INT };
            let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
        }
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        // On a fast machine it may have been killed when all was imported, before it could say so.
        let again = (output.status.code().is_none() && kills == 0).then(|| import(at, &[]));
        let was_done = again.as_ref().is_some_and(|again| again.stderr.contains("imported there already"));
        match output.status.code() {
            None if !was_done => {
                if let Some(again) = again {
                    refused(&again, 1, &["ended in its middle there", "--resume"]);
                }
                kills += 1;
            }
            Some(130) => {
                assert!(stderr.contains("what was imported stays, and --resume goes on from there"), "{stderr}");
                kills += 1;
            }
            Some(0) if kills > 0 => break serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(),
            None | Some(0) => {
                // Once more, and sooner.
                milliseconds /= 2;
                fs::remove_dir_all(at.join("situ-data")).unwrap();
                child = start(&[]);
                continue;
            }
            Some(code) => panic!("an import that was left alone failed with {code}: {stderr}"),
        }
        milliseconds += milliseconds / 2;
        child = start(&["--resume"]);
    };
    assert_eq!((report["same"].as_bool(), report["imported_in_all"].as_u64()), (Some(true), Some(ENTRIES.into())));
    for family in report["column_families"].as_array().unwrap() {
        assert_eq!(family["store"]["entries"].as_u64(), Some(u64::from(ENTRIES / 2)), "{report}");
        assert_eq!(family["store"]["xxh3"], family["database"]["xxh3"], "{report}");
    }
    situ(at, &["verify"]).done();
}

#[test]
fn a_difference_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let db = create(&at.join("db"));
    ["a", "b", "c"].into_iter().for_each(|key| db.put(key, "value").unwrap());
    drop(db);
    import(at, &[]).done();
    let changes: [(&[&str], &[&str], &str); 3] = [
        (&["put", "b", "other"], &["put", "b", "value"], "the value of key b is another one"),
        (&["delete", "c"], &["put", "c", "value"], "key c is not in the store"),
        (&["put", "aa", "value"], &["delete", "aa"], "key aa is only in the store"),
    ];
    for (change, undo, difference) in changes {
        situ(at, change).done();
        let found = import(at, &["--resume"]);
        refused(&found, 1, &["the keyspace \"default\" is not what the database holds", difference]);
        assert!(found.text().contains("not the same"), "{}", found.text());
        let report = import(at, &["--resume", "--json"]).json();
        assert_eq!(
            (report["same"].as_bool(), report["column_families"][0]["difference"].as_str()),
            (Some(false), Some(difference))
        );
        situ(at, undo).done();
        import(at, &["--resume"]).done();
    }
}

#[test]
fn entries_are_mixed_only_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let db = create(&at.join("db"));
    ["b", "d"].into_iter().for_each(|key| db.put(key, "rocks").unwrap());
    drop(db);
    situ_fed(at, &["load", "--format", "csv", "--no-header"], b"a,1\nb,1\nc,1\ne,1\n").done();
    refused(&import(at, &[]), 1, &["cannot import into the keyspace \"default\"", "it holds entries", "--merge"]);
    refused(&import(at, &["--resume"]), 1, &["it holds entries, and not from this database"]);
    let report = import(at, &["--merge", "--json"]).done().json();
    let family = &report["column_families"][0];
    assert_eq!((family["others"].as_u64(), family["store"]["entries"].as_u64()), (Some(3), Some(2)), "{report}");
    let all = [("a", "1"), ("b", "rocks"), ("c", "1"), ("d", "rocks"), ("e", "1")];
    holds(at, "situ-data", "default", &all.map(|(k, v)| (k.into(), v.into())).into());
    // What was mixed stays known to be.
    let told = import(at, &["--resume"]).done().text();
    assert!(told.contains("the same, beside 3 others"), "{told}");
}

#[test]
fn logs_and_tables_in_other_directories_are_found_or_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_wal_dir(at.join("wal"));
    let places = ["first", "second"].map(|name| at.join(name));
    options.set_db_paths(&[DBPath::new(&places[0], 1 << 30).unwrap(), DBPath::new(&places[1], 1 << 30).unwrap()]);
    let db = DB::open(&options, at.join("db")).unwrap();
    db.put("table", "1").unwrap();
    db.flush().unwrap();
    db.put("log", "2").unwrap();
    drop(db);
    refused(&import(at, &[]), 1, &["a file is missing", "--db-path"]);
    let expected = Entries::from([(b"table".to_vec(), b"1".to_vec()), (b"log".to_vec(), b"2".to_vec())]);
    let paths = ["--db-path", "first", "--db-path", "second"];
    import(at, &paths).done();
    holds(at, "situ-data", "default", &expected);

    fs::rename(at.join("wal"), at.join("moved")).unwrap();
    let into = |store, more: &[&str]| import(at, &[&paths[..], &["-d", store], more].concat());
    refused(&into("b", &[]), 1, &["it says that its log is in", "no directory", "--wal-dir"]);
    into("b", &["--wal-dir", "moved"]).done();
    holds(at, "b", "default", &expected);
    refused(&into("b", &["--wal-dir", "none"]), 2, &["--wal-dir none is no directory"]);
    // Two places where it could be: a guess could lose what is in the log.
    fs::create_dir(at.join("wal")).unwrap();
    for (name, _) in files(&at.join("moved")).iter().filter(|(name, _)| name.ends_with(".log")) {
        fs::copy(at.join("moved").join(name), at.join("db").join(name)).unwrap();
    }
    refused(&into("c", &[]), 1, &["there is one beside it, too", "--wal-dir db"]);
    into("c", &["--wal-dir", "db"]).done();
    holds(at, "c", "default", &expected);
}

#[test]
fn blobs_are_values_and_times_to_live_are_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(100);
    let db = DB::open(&options, at.join("db")).unwrap();
    let mut expected = Entries::new();
    for n in 0..500u32 {
        let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; n as usize]);
        db.put(&key, &value).unwrap();
        expected.insert(key, value);
    }
    db.flush().unwrap();
    drop(db);
    assert!(files(&at.join("db")).iter().any(|(name, _)| name.ends_with(".blob")));
    import(at, &[]).done();
    holds(at, "situ-data", "default", &expected);

    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open_with_ttl(&options, at.join("ttl"), Duration::from_secs(3600)).unwrap();
    db.put("key", "value").unwrap();
    drop(db);
    let told = situ(at, &["import", "rocksdb", "ttl", "-d", "ttl-store"]).done();
    assert!(told.stderr.contains("was written with a time to live"), "{}", told.stderr);
}

/// Does something when it goes.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A flush between the reading of the manifest and that of the log would hide what it flushed.
#[test]
fn a_database_that_is_written_meanwhile_is_imported_as_it_was_at_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = Options::default();
    options.create_if_missing(true);
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    options.set_block_based_table_factory(&table);
    let db = DB::open(&options, at.join("db")).unwrap();
    db.put(0u32.to_be_bytes(), "first").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when the test fails: the scope waits for the writer.
        let _end = OnDrop(|| done.store(true, Ordering::Relaxed));
        scope.spawn(|| {
            for n in 1u32.. {
                db.put(n.to_be_bytes(), n.to_le_bytes()).unwrap();
                if n % 20 == 0 {
                    db.flush().unwrap();
                    std::thread::sleep(Duration::from_millis(u64::from(n % 200 / 20)));
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut imported = 0;
        for round in 0..30 {
            let store = format!("store{round}");
            let ran = import(at, &["-d", &store]);
            // It may not come to rest, or a file may go: both are said, and nothing else happens.
            if ran.code != 0 {
                refused(&ran, 1, &["cannot"]);
                continue;
            }
            imported += 1;
            let keys = situ(at, &["scan", "--keys", "--hex", "-d", &store]).done().text();
            let keys: Vec<&str> = keys.lines().collect();
            let prefix: Vec<String> = (0..keys.len() as u32).map(|n| hex(&n.to_be_bytes())).collect();
            assert!(keys == prefix, "round {round}: {} keys, and some before the last are missing", keys.len());
        }
        assert!(imported > 0, "no import succeeded beside the writer");
    });
}
