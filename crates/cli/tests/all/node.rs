//! Stores whose home is on a node: real processes, killed and stopped.

use crate::common::{Ran, Serving, program, situ};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Long enough for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `situ node` behind a socket file. Killed on drop.
pub(crate) struct Noding {
    pub(crate) child: Child,
    directory: PathBuf,
    options: Vec<String>,
}

impl Noding {
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Noding {
        let options = options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
        let child = Noding::spawn(directory, &options);
        Noding { child, directory: directory.to_owned(), options }
    }

    fn spawn(directory: &Path, options: &[String]) -> Child {
        let mut command = program(directory);
        command.args(["node", "--json", "--listen", "unix:node.sock"]).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert_eq!(listening["event"], "listening");
        child
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = Noding::spawn(&self.directory, &self.options);
    }
}

impl Drop for Noding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn address(store: &str) -> String {
    format!("node://unix:node.sock:/{store}")
}

/// Sets a key and returns whether the server said that it is stored.
pub(crate) fn set(serving: &Serving, key: &str, value: &str) -> bool {
    let answer = serving.ask(&format!("set {key} 0 0 {}\r\n{value}\r\nquit\r\n", value.len()));
    answer.starts_with("STORED")
}

pub(crate) fn get(serving: &Serving, key: &str) -> Option<String> {
    let answer = serving.ask(&format!("get {key}\r\nquit\r\n"));
    answer.starts_with("VALUE").then(|| answer.lines().nth(1).unwrap_or_default().to_owned())
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_command_takes_a_store_on_a_node_and_two_stores_do_not_see_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let (shop, stock) = (address("shop"), address("stock"));
    let missing = situ(at, &["get", "--data", &shop, "ada"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(!at.join("files/shop").exists(), "looking makes nothing");
    situ(at, &["put", "--data", &shop, "ada", "1815"]).done();
    situ(at, &["put", "--capacity", &shop, "--sync", "grace", "1906"]).done();
    assert_eq!(situ(at, &["get", "--capacity", &shop, "ada"]).done().text(), "1815\n");
    situ(at, &["put", "--data", &stock, "bread", "2"]).done();
    assert_eq!(situ(at, &["get", "--data", &stock, "ada"]).code, 3, "another store");
    assert_eq!(situ(at, &["scan", "--data", &shop, "--keys"]).done().text(), "ada\ngrace\n");
    situ(at, &["compact", &shop]).done();
    let dumped = situ(at, &["dump", "--data", &shop]).done().text();
    assert_eq!(dumped.lines().count(), 2, "{dumped}");
    let verified = situ(at, &["verify", "--json", &shop]).done().json();
    assert_eq!((&verified["sound"], &verified["entries"]), (&Value::Bool(true), &Value::from(2)), "{verified}");
    let inspected = situ(at, &["inspect", &shop]).done().text();
    assert!(inspected.contains("node://unix:node.sock:/shop"), "{inspected}");
    let repaired = situ(at, &["repair", "--dry-run", "--json", &shop]).done().json();
    assert_eq!(repaired["was_sound"], true, "{repaired}");
    assert!(at.join("files/shop/CURRENT").exists() && at.join("files/stock/CURRENT").exists());
    assert!(!at.join("situ-data").exists());
    // What lies on the node is a store like any other, for whoever opens it there.
    assert_eq!(situ(at, &["get", "--data", "files/shop", "grace"]).done().text(), "1906\n");
    let both = situ(at, &["get", "--data", "x", "--capacity", &shop, "ada"]);
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn a_benchmark_of_a_store_on_a_node_leaves_nothing_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let bench = ["bench", "--json", "--keys", "1k", "--workloads", "fillrandom,readrandom", "--directory", "here"];
    let measured = situ(at, &[&bench[..], &["--capacity", &address("measured")]].concat()).done().json();
    assert!(measured.to_string().contains("readrandom"), "{measured}");
    assert!(!at.join("here").exists());
    let mut left: Vec<_> =
        std::fs::read_dir(at.join("files/measured")).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["LEASE", "LOCK"], "the node's own notes");
}

#[test]
fn a_benchmark_has_the_nodes_that_help() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["--compute-only"]);
    let bench = ["bench", "--json", "--keys", "30k", "--workloads", "fillrandom", "--directory", "here"];
    let small = ["--memtable-bytes", "256K", "--table-bytes", "128K", "--level-base-bytes", "512K"];
    let helped = ["--compaction", "co-kv", "--compute", "node://unix:node.sock:/"];
    let measured = situ(at, &[&bench[..], &small[..], &helped[..]].concat()).done().json();
    let phase = &measured["phases"][0];
    let tasks = |unit: usize| phase["work"]["units"][unit]["succeeded"].as_u64().unwrap_or_default();
    assert!(tasks(0) > 0 && tasks(1) > 0, "{phase}");
    assert!(phase["stats"]["detail"]["wire_compute_bytes"].as_f64().unwrap_or_default() > 0.0, "{phase}");
    assert!(!at.join("here").exists());
}

#[test]
fn a_fast_disk_beside_a_home_on_a_node_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let shop = address("shop");
    situ(at, &["put", "--data", &shop, "ada", "1815"]).done();
    std::fs::create_dir(at.join("fast")).unwrap();
    situ(at, &["disk", "add", &shop, "fast"]).done();
    situ(at, &["put", "--data", &shop, "grace", "1906"]).done();
    let logs = |place: &str| {
        let files = std::fs::read_dir(at.join(place)).unwrap().flatten();
        files.filter(|file| file.path().extension().is_some_and(|end| end == "log")).count()
    };
    assert_eq!((logs("files/shop"), logs("fast")), (0, 1));
    std::fs::rename(at.join("fast"), at.join("away")).unwrap();
    let refused = situ(at, &["get", "--data", &shop, "ada"]);
    assert!(refused.code == 1 && refused.stderr.contains("needs its fast disk"), "{refused:?}");
    std::fs::rename(at.join("away"), at.join("fast")).unwrap();
    assert_eq!(situ(at, &["get", "--data", &shop, "grace"]).done().text(), "1906\n");
    situ(at, &["disk", "drain", &shop]).done();
    assert_eq!(logs("files/shop"), 1);
}

#[test]
fn a_node_that_is_not_there_or_wants_another_secret_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let unreachable = situ(at, &["get", "--data", &address("shop"), "ada"]);
    assert!(unreachable.code == 1 && unreachable.stderr.contains("node.sock"), "{unreachable:?}");
    for (name, secret) in [("right", "0123456789abcdef"), ("wrong", "0123456789abcdeF")] {
        std::fs::write(at.join(name), secret).unwrap();
        let only_me = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(at.join(name), only_me).unwrap();
    }
    let open = situ(at, &["node", "files", "--listen", "0.0.0.0:0"]);
    assert!(open.code == 1 && open.stderr.contains("--secret-file"), "{open:?}");
    let _node = Noding::start(at, &["files", "--secret-file", "right"]);
    let put = |secret: &[&str]| situ(at, &[&["put", "--data", &address("shop"), "ada", "1815"], secret].concat());
    for refused in [put(&["--node-secret-file", "wrong"]), put(&[])] {
        assert!(refused.code == 1 && refused.stderr.contains("--node-secret-file"), "{refused:?}");
    }
    put(&["--node-secret-file", "right"]).done();
    // A missing file of the secret was told as a missing store, and without its option.
    let blames = |refused: Ran, option: &str| {
        let names = refused.stderr.contains(&format!("{option} nosuch: nosuch does not exist"));
        assert!(refused.code == 1 && names && !refused.stderr.contains("make a store"), "{refused:?}");
    };
    blames(put(&["--node-secret-file", "nosuch"]), "--node-secret-file");
    blames(
        situ(at, &["serve", "--capacity", &address("shop"), "--node-secret-file", "nosuch", "--no-http"]),
        "--node-secret-file",
    );
    blames(situ(at, &["node", "more", "--listen", "127.0.0.1:0", "--secret-file", "nosuch"]), "--secret-file");
}

/// As a host whose machine is gone: nobody gives the lease back.
#[test]
fn promise_1_a_store_on_a_node_is_opened_by_another_process_when_its_owner_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    let shop = address("shop");
    let mut first = Serving::start(at, &["--capacity", &shop]);
    assert!(set(&first, "ada", "1815"));
    let beside = situ(at, &["put", "--data", &shop, "x", "1"]);
    assert!(beside.code == 1 && beside.stderr.contains("has had it open since"), "{beside:?}");
    assert_eq!(situ(at, &["get", "--data", &shop, "--keyspace", "items", "ada"]).done().text(), "1815\n");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = Serving::start(at, &["--capacity", &shop]);
    assert_eq!(get(&second, "ada").as_deref(), Some("1815"));
    assert!(set(&second, "grace", "1906"));
}

#[test]
fn promise_1_an_owner_that_was_stopped_cannot_write_after_its_successor() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    let shop = address("shop");
    let first = Serving::start(at, &["--capacity", &shop]);
    assert!(set(&first, "ada", "first"));
    first.signal(Signal::STOP);
    let mut second = None;
    eventually("nobody takes the store over", || {
        // The owner is alive, as far as the node knows, until half of its term is over.
        let opened = situ(at, &["put", "--data", &shop, "turn", "second"]);
        if opened.code == 0 {
            second = Some(Serving::start(at, &["--capacity", &shop]));
        }
        second.is_some()
    });
    let mut second = second.unwrap();
    assert!(set(&second, "ada", "second"));
    first.signal(Signal::CONT);
    for _ in 0..5 {
        assert!(!set(&first, "ada", "late"), "a write of the former owner was acknowledged");
    }
    assert!(set(&second, "grace", "second"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait(), Some(0));
    drop(first);
    let verified = situ(at, &["verify", "--json", &shop]).done().json();
    assert_eq!(verified["sound"], true, "{verified}");
    let read = |key: &str| situ(at, &["get", "--data", &shop, "--keyspace", "items", key]).done().text();
    assert_eq!((read("ada"), read("grace")), ("second\n".to_owned(), "second\n".to_owned()));
}

/// Writes until a write is not acknowledged or `until` says so; how many were.
pub(crate) fn write_on(serving: &Serving, begin: u64, value: &str, until: impl Fn(u64) -> bool) -> u64 {
    let mut connection = serving.connect();
    let mut acknowledged = begin;
    while !until(acknowledged) {
        let command = format!("set k{acknowledged:06} 0 0 {}\r\n{value}\r\n", value.len());
        let mut answer = String::new();
        let sent = connection.get_mut().write_all(command.as_bytes()).and_then(|()| connection.read_line(&mut answer));
        if sent.is_err() || answer != "STORED\r\n" {
            break;
        }
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn promise_1_what_was_acknowledged_outlives_a_node_that_is_killed_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    let shop = address("shop");
    let serving = Serving::start(at, &["--capacity", &shop, "--sync"]);
    let value = "v".repeat(200);
    let mut acknowledged = 0;
    for _ in 0..3 {
        let end = Instant::now() + Duration::from_millis(300);
        std::thread::scope(|scope| {
            let (serving, value) = (&serving, &value);
            let writer = scope.spawn(move || {
                write_on(serving, acknowledged, value, |_| Instant::now() > end + Duration::from_millis(1500))
            });
            std::thread::sleep(Duration::from_millis(300));
            node.kill();
            std::thread::sleep(Duration::from_millis(200));
            node.start_again();
            acknowledged = writer.join().unwrap();
        });
        assert_eq!(get(&serving, &format!("k{:06}", acknowledged - 1)).as_deref(), Some(&*value), "after a restart");
    }
    assert!(acknowledged > 10, "{acknowledged} writes");
    let more = write_on(&serving, acknowledged, &value, |n| n == acknowledged + 20);
    assert_eq!(more, acknowledged + 20, "the store goes on after the node's restarts");
    drop(serving);
    node.kill();
    node.start_again();
    let again = Serving::start(at, &["--capacity", &shop]);
    for n in 0..more {
        assert_eq!(get(&again, &format!("k{n:06}")).as_deref(), Some(&*value), "write {n} of {more}");
    }
}

#[test]
fn a_full_disk_of_the_node_refuses_writes_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::File::create(at.join("disk")).unwrap().write_all(&vec![0; 96 << 20]).unwrap();
    situ(at, &["disk", "format", "disk", "--log", "48M"]).done();
    let _node = Noding::start(at, &["disk"]);
    let shop = address("shop");
    let serving = Serving::start(at, &["--capacity", &shop]);
    // Half of it does not compress: tables that take no room would never fill the disk.
    let mut state = 1_u64;
    let value: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + (state >> 58) as u8)
    })
    .take(500_000)
    .collect();
    let acknowledged = write_on(&serving, 0, &value, |n| n == 400);
    assert!((10..400).contains(&acknowledged), "{acknowledged} writes of half a megabyte");
    for n in [0, acknowledged / 2, acknowledged - 1] {
        assert_eq!(get(&serving, &format!("k{n:06}")).map(|found| found.len()), Some(value.len()), "write {n}");
    }
    let second = situ(at, &["get", "--data", &address("stock"), "ada"]);
    assert!(second.code == 1 && second.stderr.contains("one only"), "a disk has one store: {second:?}");
    drop(serving);
}

#[test]
fn a_calibration_on_a_node_leaves_the_store_that_was_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files"]);
    let shop = address("shop");
    situ(at, &["put", "--data", &shop, "ada", "1815"]).done();
    let calibrate = |store: &str| {
        situ(
            at,
            &["bench", "calibrate", "--json", "--seconds", "1", "--run-bytes", "256K", "--capacity", &address(store)],
        )
    };
    let refused = calibrate("shop");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(!at.join("compaction-rules.json").exists());
    assert_eq!(situ(at, &["get", "--data", &shop, "ada"]).done().text(), "1815\n");
    let measured = calibrate("empty").done().json();
    assert_eq!(measured["side"], "host", "{measured}");
    assert!(at.join("compaction-rules.json").exists() && !at.join("situ-bench-data").exists());
    let left = std::fs::read_dir(at.join("files/empty")).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let tables: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".table")).collect();
    assert!(tables.is_empty(), "{tables:?}");
}
