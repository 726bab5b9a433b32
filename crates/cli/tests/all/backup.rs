//! `backup`: a session, stores on nodes and on two disks, kills, full disks, and how the commands fail.

use crate::common::{Serving, fed, program, situ};
use crate::node::{Noding, address};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn scan(at: &Path, store: &str) -> String {
    situ(at, &["scan", "--data", store]).done().text()
}

/// Loads entries `begin..end` with values of 320 digits, which hardly compress.
fn load(at: &Path, begin: u64, end: u64, store: &str) {
    let digits = |n: u64| {
        let mut state = n;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{state:016x}")
        };
        std::iter::repeat_with(next).take(20).collect::<String>()
    };
    let line = |n: u64| json!({"key": format!("{n:06}"), "value": digits(n)}).to_string() + "\n";
    let lines: String = (begin..end).map(line).collect();
    let mut command = program(at);
    command.args(["load", "--data", store]);
    assert_eq!(fed(command, lines.as_bytes()).code, 0);
}

#[test]
fn a_store_goes_back_to_any_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "then"]).done();
    let made = situ(at, &["backup", "create", "-o", "b/situ"]).done().text();
    assert!(made.starts_with("b/situ: backup 1 with ") && made.contains(", 0 known from earlier backups"), "{made}");
    situ(at, &["put", "k", "now"]).done();
    let made = situ(at, &["backup", "create", "situ-data", "-o", "b/situ", "--json"]).done().json();
    assert_eq!((&made["id"], &made["base"], &made["kept_files"]), (&json!(2), &json!(1), &json!(1)), "{made}");
    let again = situ(at, &["backup", "create", "-o", "b/situ", "--json"]).done().json();
    assert_eq!((&again["id"], &again["kept_files"]), (&json!(3), &json!(2)), "{again}");
    assert!(again["added_bytes"].as_u64().unwrap() < 16 << 10, "{again}");

    let listed = situ(at, &["backup", "list", "b/situ", "--json"]).done().json_lines();
    assert_eq!(listed.iter().map(|backup| backup["id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(situ(at, &["backup", "list", "b/situ"]).done().text().lines().count(), 3);
    let verified = situ(at, &["backup", "verify", "b/situ", "--json"]).done().json();
    assert_eq!((&verified["sound"], &verified["backups"]), (&json!(true), &json!([1, 2, 3])), "{verified}");
    situ(at, &["backup", "verify", "b/situ", "2", "--quick"]).done();

    situ(at, &["backup", "restore", "b/situ", "1", "-o", "one"]).done();
    let restored = situ(at, &["backup", "restore", "b/situ", "-o", "last", "--json"]).done().json();
    assert_eq!((&restored["id"], &restored["kept_files"]), (&json!(3), &json!(0)), "{restored}");
    assert_eq!(situ(at, &["get", "k", "-d", "one"]).done().text(), "then\n");
    assert_eq!(situ(at, &["get", "k", "-d", "last"]).done().text(), "now\n");
    situ(at, &["verify", "one"]).done();

    let pruned = situ(at, &["backup", "prune", "b/situ", "2", "--json"]).done().json();
    assert_eq!((&pruned["removed"], &pruned["kept"]), (&json!([2]), &json!([1, 3])), "{pruned}");
    let pruned = situ(at, &["backup", "prune", "b/situ", "--keep", "1"]).done().text();
    assert!(pruned.starts_with("1 backup and ") && pruned.ends_with("1 backup left\n"), "{pruned}");
    situ(at, &["backup", "verify", "b/situ"]).done();
}

#[test]
fn failures_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let refused = |arguments: &[&str], code: i32, text: &str| {
        let ran = situ(at, &[&["backup"], arguments].concat());
        assert!(ran.code == code && ran.stderr.contains(text), "{ran:?}");
    };
    refused(&["create", "nowhere", "-o", "b"], 1, "nowhere does not exist");
    assert!(!at.join("nowhere").exists() && !at.join("b").exists());
    situ(at, &["put", "k", "v"]).done();
    for command in [&["list", "b"][..], &["verify", "b"], &["restore", "b", "-o", "x"], &["prune", "b", "--keep", "1"]]
    {
        refused(command, 1, "b does not exist; name the directory that was given to `create`");
    }
    refused(&["create", "-o", "situ-data"], 1, "and is no directory of backups");
    refused(&["list", "situ-data"], 1, "is no directory of backups");
    situ(at, &["backup", "create", "-o", "b"]).done();
    refused(&["restore", "b", "7", "-o", "x"], 1, "has no backup 7; it has 1");
    refused(&["restore", "b", "-o", "situ-data"], 1, "holds a store");
    refused(&["prune", "b"], 2, "<ID>");
    refused(&["prune", "b", "--keep", "0"], 1, "keeps one backup at least");

    let mut serving = Serving::start(at, &[]);
    // The server makes the backup. Without its socket, the command is refused.
    situ(at, &["backup", "create", "-o", "served"]).done();
    situ(at, &["backup", "restore", "served", "-o", "from-served"]).done();
    assert_eq!(situ(at, &["get", "k", "-d", "from-served"]).done().text(), "v\n");
    fs::remove_file(at.join("situ-data/ADMIN")).unwrap();
    refused(&["create", "-o", "b"], 1, "another process");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));

    let serving = Serving::start(at, &["hash", "--engine", "hash"]);
    drop(serving);
    refused(&["create", "hash", "-o", "b"], 1, "it is a hash store, and has no backups: `situ dump`");

    // Damage: the exit code, the file, the backup.
    let mut pool = fs::read_dir(at.join("b/files")).unwrap().map(|entry| entry.unwrap().path());
    let table = pool.find(|path| path.extension().is_some_and(|end| end == "table")).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[20] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let verified = situ(at, &["backup", "verify", "b", "--json"]);
    assert_eq!(verified.code, 4);
    let verified = verified.json();
    let name = table.file_name().unwrap().to_str().unwrap();
    assert_eq!((&verified["sound"], &verified["damages"][0]["backups"]), (&json!(false), &json!([1])), "{verified}");
    assert!(verified["damages"][0]["file"].as_str().unwrap().ends_with(name), "{verified}");
    refused(&["restore", "b", "-o", "x"], 4, "run `situ backup verify b`");
    assert!(!at.join("x/CURRENT").exists());
    situ(at, &["backup", "verify", "b", "--quick"]).done();
    fs::remove_file(&table).unwrap();
    assert_eq!(situ(at, &["backup", "verify", "b", "--quick"]).code, 4);
}

#[test]
fn a_store_on_a_node_is_backed_up_and_known_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let shop = address("shop");
    load(at, 0, 500, &shop);
    situ(at, &["backup", "create", &shop, "-o", "b"]).done();
    assert!(at.join("files/shop/LINEAGE").exists());
    let again = situ(at, &["backup", "create", "--capacity", &shop, "-o", "b", "--json"]).done().json();
    assert!(again["base"] == 1 && again["kept_files"].as_u64().unwrap() >= 1, "{again}");
    assert!(again["added_bytes"].as_u64().unwrap() < 16 << 10, "{again}");
    situ(at, &["backup", "restore", "b", "-o", "restored"]).done();
    assert_eq!(scan(at, "restored"), scan(at, &shop));
}

/// Kills `create` and `restore` at random moments, and goes on each time.
#[test]
fn killed_commands_are_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let run = |arguments: &[&str], kill_after: Option<Duration>| {
        let mut child = program(at).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if let Some(after) = kill_after {
            std::thread::sleep(after);
            child.kill().unwrap();
        }
        child.wait().unwrap().code()
    };
    load(at, 0, 20_000, "s");
    let create = ["backup", "create", "s", "-o", "b"];
    let restore = ["backup", "restore", "b", "-o", "r"];
    let started = Instant::now();
    assert_eq!(run(&create, None), Some(0));
    let whole = started.elapsed();
    let mut killed = 0;
    for round in 1..9u32 {
        load(at, u64::from(round) * 5000, u64::from(round) * 5000 + 10_000, "s");
        killed += u32::from(run(&create, Some(whole * round / 9)).is_none());
        let verified = situ(at, &["backup", "verify", "b", "--json"]).done().json();
        assert_eq!(verified["sound"], true, "{verified}");
        killed += u32::from(run(&restore, Some(whole * (9 - round) / 9)).is_none());
        if !at.join("r/CURRENT").exists() {
            // The latest backup may be another one by now.
            let go_on = situ(at, &restore);
            assert!(go_on.code == 0 || go_on.stderr.contains("another backup"), "{go_on:?}");
        }
        let _ = fs::remove_dir_all(at.join("r"));
    }
    assert!(killed > 4, "only {killed} runs were killed");
    situ(at, &create).done();
    situ(at, &restore).done();
    situ(at, &["verify", "r"]).done();
    assert_eq!(scan(at, "r"), scan(at, "s"));
}

/// A limit on files stands for a full disk. The store is on a node, whose files have no limit.
#[test]
fn a_full_disk_fails_a_backup_and_a_restore_and_harms_neither() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let shop = address("shop");
    load(at, 0, 3000, &shop);
    situ(at, &["backup", "create", &shop, "-o", "b"]).done();
    load(at, 3000, 9000, &shop);
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -f 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_situ")]);
        command.args(arguments).current_dir(at);
        let ran = fed(command, b"");
        assert!(ran.code == 1 && ran.stderr.contains("the disk is full, or a quota or a limit on files"), "{ran:?}");
    };
    limited(&["backup", "create", &shop, "-o", "b"]);
    let listed = situ(at, &["backup", "list", "b", "--json"]).done().json_lines();
    assert_eq!(listed.len(), 1);
    situ(at, &["backup", "create", &shop, "-o", "b"]).done();
    limited(&["backup", "restore", "b", "-o", "r"]);
    assert!(!at.join("r/CURRENT").exists());
    situ(at, &["backup", "restore", "b", "-o", "r"]).done();
    assert_eq!(scan(at, "r"), scan(at, &shop));
    assert_eq!(situ(at, &["backup", "verify", "b", "--json"]).done().json()["sound"], Value::Bool(true));
}
