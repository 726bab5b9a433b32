//! Stores whose node fails, as their clients and whoever watches over them see it: real processes, killed and stopped.

use crate::common::{Serving, program, situ, situ_fed};
use crate::node::{Noding, address, eventually, get, set, write_on};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn fetch(serving: &Serving, path: &str) -> String {
    let mut http = TcpStream::connect(serving.http).unwrap();
    http.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    page
}

fn metric(serving: &Serving, begin: &str) -> f64 {
    let page = fetch(serving, "/metrics");
    let line = page.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// `count` entries of 400 bytes that do not become short by compression, as `load` takes them.
fn entries(count: u64, salt: u64) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ salt;
    let mut text = String::new();
    for _ in 0..count {
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let key = next() % 100_000;
        write!(text, "{{\"key\":\"k{key:06}\",\"value\":\"").unwrap();
        (0..25).for_each(|_| write!(text, "{:016x}", next()).unwrap());
        text.push_str("\"}\n");
    }
    text
}

/// A store on the node, whose item `ada` lies in a table.
fn with_a_table(at: &Path, options: &[&str]) {
    let shop = address("shop");
    let mut serving = Serving::start(at, &[&["--capacity", &shop], options].concat());
    assert!(set(&serving, "ada", "1815"));
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    situ(at, &["compact", &address("shop")]).done();
}

#[test]
fn a_lost_node_is_told_of_and_writes_wait_for_it_and_reads_fail_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files"]);
    with_a_table(at, &[]);
    let serving = Serving::start(at, &["--capacity", &address("shop"), "--log-file", "log"]);
    assert!(fetch(&serving, "/healthz").starts_with("HTTP/1.1 200 "));
    let connected = "situ_node_connected{node=\"node://unix:node.sock:/shop\"}";
    assert_eq!(metric(&serving, connected), 1.0);
    assert!(
        metric(&serving, "situ_node_wire_bytes_total{node=\"node://unix:node.sock:/shop\",class=\"write\"") > 400.0
    );
    node.kill();
    let lost_at = Instant::now();
    eventually("the loss is not seen", || metric(&serving, connected) == 0.0);
    let health = fetch(&serving, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("node unix:node.sock has been lost"), "{health}");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| set(&serving, "grace", "1906"));
        let answer = serving.ask("get ada\r\nquit\r\n");
        assert!(answer.starts_with("SERVER_ERROR ") && answer.contains("unix:node.sock"), "{answer}");
        println!("a read of the lost node, after {:.1?}: {answer}", lost_at.elapsed());
        assert!(!writer.is_finished(), "a write to a log on a lost node was answered");
        node.start_again();
        assert!(writer.join().unwrap(), "the write that waited");
    });
    assert_eq!(get(&serving, "ada").as_deref(), Some("1815"));
    assert_eq!(get(&serving, "grace").as_deref(), Some("1906"));
    eventually("the health does not recover", || fetch(&serving, "/healthz").starts_with("HTTP/1.1 200 "));
    assert!(metric(&serving, "situ_node_reconnects_total{") >= 1.0);
    let log = fs::read_to_string(at.join("log")).unwrap();
    println!("{log}");
    let of_node = |what: &str| log.lines().filter(|line| line.contains(&format!("node unix:node.sock {what}"))).count();
    assert_eq!((of_node("is lost: "), of_node("is back after ")), (1, 1), "{log}");
}

#[test]
fn promise_1_a_store_whose_patience_is_over_has_lost_nothing_and_ends_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    let mut serving = Serving::start(at, &["--capacity", &address("shop"), "--node-patience", "1"]);
    assert!(set(&serving, "ada", "1815"));
    node.kill();
    let answer = serving.ask("set grace 0 0 1\r\nx\r\nquit\r\n");
    assert!(answer.starts_with("SERVER_ERROR ") && answer.contains("unix:node.sock"), "{answer}");
    println!("{answer}");
    node.start_again();
    eventually("no read succeeds", || get(&serving, "ada").as_deref() == Some("1815"));
    let answer = serving.ask("set grace 0 0 1\r\nx\r\nquit\r\n");
    println!("{answer}");
    assert!(answer.starts_with("SERVER_ERROR "), "a log that may lack a record takes no more: {answer}");
    node.kill();
    let began = Instant::now();
    serving.signal(Signal::TERM);
    serving.wait();
    println!("the end took {:.1?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20), "{:.1?}", began.elapsed());
    node.start_again();
    let serving = Serving::start(at, &["--capacity", &address("shop")]);
    assert_eq!(get(&serving, "ada").as_deref(), Some("1815"));
    assert!(set(&serving, "grace", "1906"));
}

/// The patience is ten minutes, and a supervisor does not wait for so long.
#[test]
fn a_server_that_is_to_end_waits_for_a_lost_node_for_a_few_seconds_only() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    let mut serving = Serving::start(at, &["--capacity", &address("shop")]);
    assert!(set(&serving, "ada", "1815"));
    node.kill();
    let mut waiting = serving.connect();
    waiting.get_mut().write_all(b"set grace 0 0 1\r\nx\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    serving.signal(Signal::TERM);
    assert_ne!(serving.wait(), Some(0), "not everything is durable");
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    println!("the end took {:.1?}: {answer}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20) && answer.starts_with("SERVER_ERROR "), "{answer}");
    node.start_again();
    let again = Serving::start(at, &["--capacity", &address("shop")]);
    assert_eq!(get(&again, "ada").as_deref(), Some("1815"));
}

#[test]
fn promise_1_with_a_fast_disk_writes_are_acknowledged_without_the_node_and_outlive_both_processes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    fs::create_dir(at.join("fast")).unwrap();
    with_a_table(at, &["--fast-disk", "fast"]);
    let mut serving = Serving::start(at, &["--capacity", &address("shop"), "--sync"]);
    node.kill();
    let began = Instant::now();
    assert_eq!(write_on(&serving, 0, "while it is away", |n| n == 200), 200);
    println!("200 synced writes without the node: {:.1?}", began.elapsed());
    assert_eq!(get(&serving, "k000150").as_deref(), Some("while it is away"));
    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    let refused = situ(at, &["get", "--data", &address("shop"), "ada"]);
    assert!(refused.code == 1 && refused.stderr.contains("node.sock"), "{refused:?}");
    node.start_again();
    let again = Serving::start(at, &["--capacity", &address("shop")]);
    for n in 0..200 {
        assert_eq!(get(&again, &format!("k{n:06}")).as_deref(), Some("while it is away"), "write {n}");
    }
    assert_eq!(get(&again, "ada").as_deref(), Some("1815"));
}

/// A thread that is in a system call when SIGSTOP arrives finishes the call first. On a busy machine, it could still answer the write.
fn all_threads_are_stopped(process: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
    tasks.into_iter().all(|task| {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    })
}

#[test]
fn a_node_that_is_stopped_for_a_while_delays_writes_and_that_is_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let node = Noding::start(at, &["files"]);
    let serving = Serving::start(at, &["--capacity", &address("shop"), "--sync"]);
    assert!(set(&serving, "ada", "1815"));
    let process = Pid::from_child(&node.child);
    kill_process(process, Signal::STOP).unwrap();
    eventually("the node does not stop", || all_threads_are_stopped(process));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| set(&serving, "grace", "1906"));
        std::thread::sleep(Duration::from_millis(1500));
        if writer.is_finished() {
            panic!("a node that is stopped has answered a synced write: {:?}", writer.join());
        }
        assert_eq!(get(&serving, "ada").as_deref(), Some("1815"), "from memory");
        kill_process(process, Signal::CONT).unwrap();
        assert!(writer.join().unwrap());
    });
    assert_eq!(metric(&serving, "situ_node_reconnects_total{"), 0.0);
}

#[test]
fn a_host_that_starts_before_its_node_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| situ(at, &["put", "--data", &address("shop"), "ada", "1815"]));
        std::thread::sleep(Duration::from_secs(1));
        let _node = Noding::start(at, &["files"]);
        put.join().unwrap().done();
    });
}

#[test]
fn a_node_that_comes_back_without_its_files_acknowledges_nothing_and_invents_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut node = Noding::start(at, &["files", "--lease-ms", "1500"]);
    with_a_table(at, &[]);
    let serving = Serving::start(at, &["--capacity", &address("shop"), "--log-file", "log"]);
    assert!(set(&serving, "grace", "1906"));
    node.kill();
    fs::rename(at.join("files"), at.join("away")).unwrap();
    node.start_again();
    let refused = serving.ask("set alan 0 0 4\r\n1912\r\nquit\r\n");
    println!("{refused}");
    assert!(refused.starts_with("SERVER_ERROR "), "{refused}");
    let read = serving.ask("get ada\r\nquit\r\n");
    println!("{read}");
    assert!(read.starts_with("SERVER_ERROR ") && read.contains("unix:node.sock"), "{read}");
    assert!(fetch(&serving, "/healthz").starts_with("HTTP/1.1 503 "));
    println!("{}", fs::read_to_string(at.join("log")).unwrap());
    drop(serving);
    node.kill();
    fs::remove_dir_all(at.join("files")).unwrap();
    fs::rename(at.join("away"), at.join("files")).unwrap();
    node.start_again();
    let again = Serving::start(at, &["--capacity", &address("shop")]);
    assert_eq!((get(&again, "ada").as_deref(), get(&again, "grace").as_deref()), (Some("1815"), Some("1906")));
}

#[test]
fn a_host_that_is_killed_in_its_compaction_leaves_no_table_behind_the_next_opening() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _node = Noding::start(at, &["files", "--lease-ms", "500"]);
    let shop = address("shop");
    for salt in 0..3 {
        situ_fed(at, &["load", "--data", &shop], entries(6000, salt).as_bytes()).done();
    }
    let tables = || {
        let names = fs::read_dir(at.join("files/shop")).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".table"))).count()
    };
    let before = tables();
    let mut compact = program(at);
    compact.args(["compact", &shop]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut compact = compact.spawn().unwrap();
    eventually("the compaction makes no table", || tables() > before || compact.try_wait().unwrap().is_some());
    compact.kill().unwrap();
    compact.wait().unwrap();
    println!("{before} tables before, {} after the kill", tables());
    let expected = situ(at, &["scan", "--data", &shop, "--keys"]).done().text();
    situ(at, &["put", "--data", &shop, "zoe", "1"]).done();
    // A task that goes on without its host must not make a table after its successor has opened the store.
    std::thread::sleep(Duration::from_secs(1));
    let verified = situ(at, &["verify", "--json", &shop]).done().json();
    let orphans = verified["orphans"].as_array().unwrap();
    let is_table = |name: &serde_json::Value| name.as_str().unwrap().ends_with(".table");
    assert!(verified["sound"] == true && !orphans.iter().any(is_table), "{verified}");
    let found = situ(at, &["scan", "--data", &shop, "--keys"]).done().text();
    assert_eq!(found, format!("{expected}zoe\n"));
}

#[test]
fn a_helper_that_is_not_there_keeps_no_store_from_opening_and_helps_when_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["--compute", "node://unix:node.sock:/", "--log-file", "log"]);
    assert!(set(&serving, "ada", "1815"));
    let connected = "situ_node_connected{node=\"node://unix:node.sock:/";
    assert_eq!(metric(&serving, connected), 0.0);
    assert!(fetch(&serving, "/healthz").starts_with("HTTP/1.1 200 "), "the store is whole without a helper");
    let mut node = Noding::start(at, &["--compute-only"]);
    eventually("the helper is not found", || metric(&serving, connected) == 1.0);
    node.kill();
    eventually("the loss is not seen", || metric(&serving, connected) == 0.0);
    assert!(set(&serving, "grace", "1906"));
    let log = fs::read_to_string(at.join("log")).unwrap();
    println!("{log}");
    assert_eq!((log.matches("is lost: ").count(), log.matches("is back after ").count()), (2, 1), "{log}");
}

/// The helpers of a store on a node were in no metric.
#[test]
fn helpers_of_a_store_on_a_node_are_watched_too() {
    let (storing, computing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = storing.path();
    let _home = Noding::start(at, &["files"]);
    let mut helper = Noding::start(computing.path(), &["--compute-only"]);
    let node = format!("node://unix:{}/node.sock:/", computing.path().display());
    let serving = Serving::start(at, &["--capacity", &address("shop"), "--compute", &node]);
    let connected = format!("situ_node_connected{{node=\"{node}");
    eventually("the helper is not found", || metric(&serving, &connected) == 1.0);
    helper.kill();
    eventually("the loss is not seen", || metric(&serving, &connected) == 0.0);
    assert!(fetch(&serving, "/healthz").starts_with("HTTP/1.1 200 "), "the store is whole without a helper");
}

/// The opening failed after the store was made, with its files left behind.
#[test]
fn a_helper_that_refuses_leaves_the_store_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (name, secret) in [("right", "0123456789abcdef"), ("wrong", "0123456789abcdeF")] {
        fs::write(at.join(name), secret).unwrap();
        fs::set_permissions(at.join(name), Permissions::from_mode(0o600)).unwrap();
    }
    let _node = Noding::start(at, &["--compute-only", "--secret-file", "right"]);
    let helped = ["serve", "--data", "store", "--compute", "node://unix:node.sock:/", "--node-secret-file", "wrong"];
    let refused = situ(at, &helped);
    assert!(refused.code == 1 && refused.stderr.contains("secret"), "{refused:?}");
    assert!(!at.join("store").exists(), "{:?}", fs::read_dir(at.join("store")).map(|files| files.count()));
}
