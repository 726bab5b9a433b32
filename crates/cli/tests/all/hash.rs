//! Hash stores: each command works on one, or refuses by name and changes nothing.

use crate::common::{Serving, situ, situ_fed};
use rustix::process::Signal;
use situ::hash::{Durability, HashOptions, HashStore, HashStoreBuilder};
use situ_base::{Clock, Env, SystemClock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A store with these entries, made by a load.
fn store_of(at: &Path, entries: u32) {
    let lines: String = (0..entries).map(|n| format!("{{\"key\":\"k{n:04}\",\"value\":\"value of {n}\"}}\n")).collect();
    fs::write(at.join("in.jsonl"), lines).unwrap();
    let loaded = situ(at, &["load", "--json", "--engine", "hash", "in.jsonl"]).done().json();
    assert_eq!((loaded["loaded"].as_u64(), loaded["keyspace"].as_str()), (Some(entries.into()), Some("default")));
}

#[test]
fn entries_go_in_and_out_of_a_hash_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    store_of(at, 500);
    let run = |arguments: &[&str]| situ(at, arguments).done().text();
    assert_eq!(run(&["get", "k0007"]), "value of 7\n");
    situ(at, &["put", "--sync", "k0007", "new"]).done();
    assert_eq!(situ(at, &["get", "--json", "k0007"]).done().json()["value"], "new");
    situ(at, &["delete", "k0008"]).done();
    assert_eq!(situ(at, &["get", "k0008"]).code, 3);
    // In key order, without the program's own records.
    let found = run(&["scan", "--from", "k0006", "--to", "k0010"]);
    assert_eq!(found, "k0006\tvalue of 6\nk0007\tnew\nk0009\tvalue of 9\n");
    assert_eq!(run(&["scan", "--prefix", "k049", "-n", "2", "--keys"]), "k0490\nk0491\n");
    let dumped = run(&["dump"]);
    assert_eq!(dumped.lines().count(), 499);
    // Another store of either kind takes the dump, and has the same entries then.
    for engine in ["hash", "lsm"] {
        situ_fed(at, &["load", "-d", engine, "--engine", engine], dumped.as_bytes()).done();
        let again = run(&["dump", "-d", engine]);
        assert_eq!(dumped.lines().collect::<BTreeSet<_>>(), again.lines().collect());
    }
    let verified = situ(at, &["verify", "--json"]).done().json();
    // The entries, and the position of the load.
    assert_eq!((verified["sound"].as_bool(), verified["entries"].as_u64()), (Some(true), Some(500)));
    let inspected = situ(at, &["inspect", "--json"]).done().json();
    assert_eq!((inspected["engine"].as_str(), inspected["closed"].as_bool()), (Some("hash"), Some(true)));
    assert_eq!(inspected["entries"], 500);
    assert_eq!(inspected["debts"]["value_dead_bytes"], 0);
    // Half of the large values die, and the store is closed before it is idle.
    let store = HashStore::open(at.join("situ-data"), HashOptions::default()).unwrap();
    (0..20).for_each(|n| store.put(format!("large {n}"), vec![7; 20_000]).unwrap());
    store.checkpoint().unwrap();
    (0..10).for_each(|n| store.delete(format!("large {n}")).unwrap());
    store.close().unwrap();
    let inspected = situ(at, &["inspect", "--json"]).done().json();
    let dead = inspected["debts"]["value_dead_bytes"].as_u64().unwrap();
    assert!((200_000..220_000).contains(&dead), "{inspected}");
    assert!(inspected["value_file_bytes"].as_u64().unwrap() > 400_000, "{inspected}");
    assert!(situ(at, &["inspect"]).done().text().contains("of them dead"));
}

/// A dump once left out when entries expire: loaded again, they lived for ever.
#[test]
fn a_dump_and_a_load_keep_when_entries_expire() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let expiries = [("for ever", None), ("soon", Some(4_000_000_000_000)), ("later", Some(4_000_000_000_001))];
    let store = HashStore::open(at.join("situ-data"), HashOptions::default()).unwrap();
    for (key, expires_ms) in expiries {
        store.put_with(key, "1", Durability::Buffered, expires_ms).unwrap();
    }
    store.put_with("past", "1", Durability::Buffered, Some(1)).unwrap();
    store.close().unwrap();
    for format in ["jsonl", "csv", "tsv"] {
        situ(at, &["dump", "--hex", "-o", &format!("out.{format}")]).done();
        situ(at, &["load", "-d", format, "--engine", "hash", &format!("out.{format}")]).done();
        let store = HashStore::open(at.join(format), HashOptions::default()).unwrap();
        let mut scan = store.scan().unwrap();
        let found = std::iter::from_fn(|| scan.next_expiring()).map(Result::unwrap);
        let found: BTreeMap<Vec<u8>, Option<u64>> =
            found.filter(|((key, _), _)| key[0] != 0).map(|((key, _), expires_ms)| (key, expires_ms)).collect();
        let expected = expiries.map(|(key, expires_ms)| (key.as_bytes().to_vec(), expires_ms));
        assert_eq!(found, BTreeMap::from(expected), "{format}");
    }
    let text = fs::read_to_string(at.join("out.jsonl")).unwrap();
    assert_eq!(text.matches("\"expires_ms\":4000000000000").count(), 1);
    // An ordered store would keep the entries for ever.
    let refused = situ(at, &["load", "-d", "lsm", "--engine", "lsm", "out.jsonl"]);
    assert!(refused.code == 1 && refused.stderr.contains("do not expire"), "{refused:?}");
    let bad = situ_fed(
        at,
        &["load", "-d", "bad", "--engine", "hash", "--format", "csv"],
        b"key,value,expires_ms\na,1,soon\n",
    );
    assert!(bad.code == 1 && bad.stderr.contains("milliseconds since 1970"), "{bad:?}");
}

/// The machine's clock, with a wall clock that is a year behind.
#[derive(Default)]
pub(crate) struct Behind(SystemClock);

impl Clock for Behind {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn unix(&self) -> Duration {
        self.0.unix() - Duration::from_secs(365 * 86_400)
    }

    fn uptime(&self) -> Duration {
        self.0.uptime()
    }

    fn boot(&self) -> Option<[u8; 16]> {
        self.0.boot()
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

/// An entry was written while the clock was a year behind. When the clock was right again, the entry was gone.
#[test]
fn entries_that_were_written_by_a_wrong_clock_are_read_dumped_and_loaded_with_their_time_to_live() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let behind = Arc::new(Behind::default());
    let env = Env { clock: Arc::clone(&behind) as _, ..Env::system() };
    let store = HashStoreBuilder::new(HashOptions::default()).env(env).open(at.join("situ-data")).unwrap();
    let in_an_hour = |unix: Duration| unix.as_millis() as u64 + 3_600_000;
    store.put_with("k", "1", Durability::Buffered, Some(in_an_hour(behind.unix()))).unwrap();
    store.close().unwrap();
    let now = SystemClock::default().unix();
    assert_eq!(situ(at, &["get", "k"]).done().text(), "1\n");
    let dumped = situ(at, &["dump"]).done().json_lines();
    let is_right = |expires_ms: u64| expires_ms.abs_diff(in_an_hour(now)) < 120_000;
    assert!(dumped.len() == 1 && is_right(dumped[0]["expires_ms"].as_u64().unwrap()), "{dumped:?}");
    // Into a new store, whose time is the wall clock, and back into this one, whose time differs.
    situ(at, &["dump", "-o", "out.jsonl"]).done();
    for store in ["other", "situ-data"] {
        situ(at, &["load", "-d", store, "--engine", "hash", "out.jsonl"]).done();
        let again = situ(at, &["dump", "-d", store]).done().json_lines();
        assert!(again.len() == 1 && is_right(again[0]["expires_ms"].as_u64().unwrap()), "{again:?}");
    }
}

#[test]
fn a_load_into_a_hash_store_resumes_where_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("in.csv"), format!("key,value\na,1\nb,2\n{},0\nc,3\n", "long".repeat(300))).unwrap();
    let stopped = situ(at, &["load", "--engine", "hash", "in.csv"]);
    assert!(
        stopped.code == 1 && stopped.stderr.contains("line 4") && stopped.stderr.contains("at most"),
        "{stopped:?}"
    );
    let loaded = situ(at, &["load", "--json", "--resume", "--skip-bad", "1", "in.csv"]).done().json();
    assert_eq!((loaded["loaded"].as_u64(), loaded["loaded_in_all"].as_u64()), (Some(1), Some(3)));
    assert_eq!(situ(at, &["scan"]).done().text(), "a\t1\nb\t2\nc\t3\n");
}

#[test]
fn items_of_a_server_are_shown_dumped_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["--engine", "hash"]);
    let sets = "set a 7 0 1\r\nx\r\nset gone 0 -1 1\r\ny\r\nset b 0 1000 1\r\nz\r\nquit\r\n";
    assert_eq!(serving.ask(sets), "STORED\r\n".repeat(3));
    // One process at a time, but for those who only look at the superblock.
    let locked = situ(at, &["get", "a"]);
    assert!(locked.code == 1 && locked.stderr.contains("one process at a time"), "{locked:?}");
    assert_eq!(situ(at, &["inspect", "--json"]).done().json()["closed"], false);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    assert_eq!(situ(at, &["scan"]).done().text(), "a\tx\nb\tz\n");
    assert_eq!(situ(at, &["get", "-k", "items", "a"]).done().text(), "x\n");
    assert_eq!(situ(at, &["get", "gone"]).code, 3);
    let plain = situ(at, &["put", "c", "plain"]);
    assert!(plain.code == 1 && plain.stderr.contains("memcached items"), "{plain:?}");
    situ(at, &["dump", "--stored", "-o", "items.jsonl"]).done();
    situ(at, &["load", "-d", "other", "--engine", "hash", "--stored", "items.jsonl"]).done();
    // No engine is named: the directory tells.
    let serving = Serving::start(at, &["other"]);
    assert_eq!(serving.ask("get a b gone\r\nquit\r\n"), "VALUE a 7 1\r\nx\r\nVALUE b 0 1\r\nz\r\nEND\r\n");
}

#[test]
fn the_device_of_the_buckets_is_remembered_and_another_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for name in ["device", "other"] {
        fs::File::create(at.join(name)).unwrap().set_len(16 << 20).unwrap();
    }
    situ_fed(at, &["load", "--engine", "hash", "--buckets", "device"], b"{\"key\":\"a\",\"value\":\"1\"}\n").done();
    assert!(!at.join("situ-data/buckets").exists());
    assert_eq!(situ(at, &["get", "a"]).done().text(), "1\n");
    let refused = situ(at, &["serve", "--buckets", "other"]);
    assert!(refused.code == 1 && refused.stderr.contains("nothing was written"), "{refused:?}");
    let other_store = situ_fed(at, &["load", "-d", "new", "--engine", "hash", "--buckets", "device"], b"");
    assert!(other_store.code == 1 && other_store.stderr.contains("bucket space of store"), "{other_store:?}");
    assert_eq!(situ(at, &["get", "a"]).done().text(), "1\n");
}

/// Lengths and times of the files in a directory and in its directories, without locks.
fn files_of(directory: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != "LOCK") {
        let about = entry.metadata().unwrap();
        match about.is_dir() {
            true => files.extend(files_of(&entry.path())),
            false => drop(files.insert(entry.path(), (about.len(), about.modified().unwrap()))),
        }
    }
    files
}

/// A hash store without SUPERBLOCK was taken for a damaged ordered store. Its repair made an ordered store of it, and
/// all entries were gone. With a damaged SUPERBLOCK, each command advised another one, and none could help.
#[test]
fn a_hash_store_that_has_lost_its_superblock_is_refused_by_each_command_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (at, home) = (directory.path(), directory.path().join("situ-data"));
    let superblock = home.join("SUPERBLOCK");
    store_of(at, 3);
    let sound = fs::read(&superblock).unwrap();
    let mut garbage = sound.clone();
    (garbage[50], garbage[4096 + 50]) = (garbage[50] ^ 1, garbage[4096 + 50] ^ 1);
    let losses = [None, Some(vec![]), Some(sound[..4096].to_vec()), Some(vec![0; 8192]), Some(garbage)];
    for loss in losses {
        match &loss {
            None => fs::remove_file(&superblock).unwrap(),
            Some(bytes) => fs::write(&superblock, bytes).unwrap(),
        }
        let before = files_of(&home);
        let commands: [&[&str]; 10] = [
            &["get", "k0001"],
            &["put", "a", "1"],
            &["delete", "k0001"],
            &["scan"],
            &["verify"],
            &["repair"],
            &["inspect"],
            &["serve"],
            &["serve", "--engine", "hash"],
            &["serve", "--buckets", "situ-data/buckets"],
        ];
        for command in commands {
            let ran = situ(at, command);
            assert_eq!(ran.code, 4, "{command:?}: {ran:?}");
            assert!(ran.stderr.contains("SUPERBLOCK") && ran.stderr.contains("from a backup"), "{command:?}: {ran:?}");
            assert!(!ran.stderr.contains("run `situ"), "{command:?}: {ran:?}");
        }
        let refused = situ(at, &["serve", "--engine", "lsm"]);
        assert!(refused.code == 1 && refused.stderr.contains("it is a hash store"), "{refused:?}");
        for refused in [
            situ::Store::open(&home).err().unwrap().to_string(),
            situ::repair_directory(&home, Default::default()).err().unwrap().to_string(),
        ] {
            assert!(refused.contains("nothing was changed"), "{refused}");
            assert_eq!(refused.contains("SUPERBLOCK is missing"), loss.is_none(), "{refused}");
        }
        assert_eq!(files_of(&home), before);
        fs::write(&superblock, &sound).unwrap();
        assert_eq!(situ(at, &["get", "k0001"]).done().text(), "value of 1\n");
    }
}

#[test]
fn what_makes_no_sense_with_a_hash_store_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    store_of(at, 3);
    situ(at, &["put", "-d", "ordered", "a", "1"]).done();
    let cases: [(&[&str], i32, &str); 16] = [
        (&["serve", "--fast-disk", "x"], 2, "--fast-disk"),
        (&["serve", "--memory", "256M"], 2, "--memory"),
        (&["serve", "--node-patience", "600"], 2, "--node-patience"),
        (&["serve", "--compaction", "pcp"], 2, "--compaction"),
        (&["serve", "--tables-per-job", "2"], 2, "--tables-per-job"),
        (&["serve", "--engine", "lsm"], 1, "it is a hash store"),
        (&["serve"], 1, "not the record of the cas ids"),
        (&["serve", "ordered", "--engine", "hash"], 1, "it is an ordered store"),
        (&["serve", "ordered", "--buckets", "x"], 2, "--buckets"),
        (&["get", "--compute", "node://localhost:1", "a"], 2, "--compute"),
        (&["get", "--keyspace", "people", "a"], 1, "no keyspaces"),
        (&["scan", "--reverse"], 1, "--reverse"),
        (&["compact"], 1, "it is a hash store"),
        (&["repair", "--dry-run"], 1, "it is a hash store"),
        (&["inspect", "--table", "1"], 1, "it is a hash store"),
        (&["bench", "--engine", "hash", "--memtable-bytes", "1M"], 2, "not for hash stores"),
    ];
    for (arguments, code, says) in cases {
        let ran = situ(at, arguments);
        assert!(ran.code == code && ran.stderr.contains(says), "{arguments:?}: {ran:?}");
    }
    assert_eq!(situ(at, &["scan", "--keys"]).done().text(), "k0000\nk0001\nk0002\n");
    assert_eq!(situ(at, &["get", "-d", "ordered", "a"]).done().text(), "1\n");
}
