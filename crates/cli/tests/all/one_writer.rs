//! A store has one writer even if its files are removed or renamed, as seen by a user of the program.

use crate::common::{Serving, situ};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

/// `rm D/LOCK` under a server let `situ put` in. The writes that the server acknowledged later were lost, and its last
/// message said that everything was durable.
#[test]
fn a_second_writer_is_refused_without_the_lock_file() {
    for engine in [&[][..], &["--engine", "hash"]] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let mut serving = Serving::start(at, &[engine, &["D"]].concat());
        fs::remove_file(at.join("D/LOCK")).unwrap();
        // Without the socket, the command cannot ask the server to do it.
        assert_eq!(fs::remove_file(at.join("D/ADMIN")).is_ok(), engine.is_empty());
        let put = situ(at, &["put", "--data", "D", "x", "y"]);
        assert!(
            put.code != 0 && put.stderr.contains("another process has the store open"),
            "{}: {}",
            put.code,
            put.stderr
        );
        assert_eq!(serving.ask("set b 0 0 1\r\n1\r\nquit\r\n"), "STORED\r\n");
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), Some(0));
        let serving = Serving::start(at, &[engine, &["D"]].concat());
        assert_eq!(serving.ask("get b\r\nquit\r\n"), "VALUE b 0 1\r\n1\r\nEND\r\n");
    }
}

/// A dry run of a repair took the writes of a busy server for losses.
#[test]
fn a_dry_run_of_a_repair_is_refused_while_a_server_writes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["D"]);
    assert_eq!(serving.ask("set a 0 0 1\r\n1\r\nquit\r\n"), "STORED\r\n");
    let dry = || situ(at, &["repair", "--dry-run", "D"]);
    let refused = dry();
    assert!(refused.code == 1 && refused.stderr.contains("a server has the store open"), "{refused:?}");
    assert!(refused.stdout.is_empty(), "{refused:?}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    dry().done();
    // It leaves the lock to others.
    situ(at, &["put", "--data", "D", "x", "y"]).done();
}

/// After `rm -r D` under a server with synced writes, it answered 3,000 sets with STORED. Its last message said that
/// everything was durable.
#[test]
fn promise_7_a_server_whose_directory_was_removed_refuses_and_does_not_say_that_all_is_durable() {
    for options in [&["--sync"][..], &["--sync", "--engine", "hash"]] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let mut serving = Serving::start(at, &[options, &["--log-file", "situ.log", "D"]].concat());
        assert_eq!(serving.ask("set a 0 0 1\r\n1\r\nquit\r\n"), "STORED\r\n");
        fs::remove_dir_all(at.join("D")).unwrap();
        let answer = serving.ask("set b 0 0 1\r\n1\r\nquit\r\n");
        assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        serving.signal(Signal::TERM);
        assert_ne!(serving.wait(), Some(0), "not everything is durable");
        let log = fs::read_to_string(at.join("situ.log")).unwrap();
        assert!(!log.contains("everything is durable"), "{log}");
    }
}

/// After `rm -r D` under a server whose log was on a fast disk, it answered with STORED for good. `situ put` made
/// another store in D meanwhile.
#[test]
fn promise_7_a_server_with_a_fast_disk_whose_directory_was_removed_refuses_too() {
    for options in [&["--sync"][..], &[]] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir(at.join("F")).unwrap();
        let files = ["--log-file", "situ.log", "--fast-disk", "F", "D"];
        let mut serving = Serving::start(at, &[options, &files[..]].concat());
        assert_eq!(serving.ask("set a 0 0 1\r\n1\r\nquit\r\n"), "STORED\r\n");
        fs::remove_dir_all(at.join("D")).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let is_stored = || serving.ask("set b 0 0 1\r\n1\r\nquit\r\n") == "STORED\r\n";
        while is_stored() {
            assert!(Instant::now() < until, "a server without its home takes writes");
        }
        // Another store may be made in the place of the one that is gone.
        situ(at, &["put", "--data", "D", "x", "y"]).done();
        let answer = serving.ask("set b 0 0 1\r\n1\r\nquit\r\n");
        assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        serving.signal(Signal::TERM);
        assert_ne!(serving.wait(), Some(0), "not everything is durable");
        let log = fs::read_to_string(at.join("situ.log")).unwrap();
        assert!(!log.contains("everything is durable"), "{log}");
        assert_eq!(situ(at, &["get", "--data", "D", "x"]).done().text().trim_end(), "y");
    }
}
