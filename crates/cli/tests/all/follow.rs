//! `changes` and `follow`: copies of served and closed stores, archives, kills, and what is refused.

use crate::common::{Serving, program, situ, situ_fed};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns the names of a store's keyspaces, but for the notes of a copy.
fn keyspaces(at: &Path, store: &str) -> Vec<String> {
    let listed = situ(at, &["keyspace", "list", "--data", store, "--json"]).done().json_lines();
    let names = listed.iter().map(|keyspace| keyspace["keyspace"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|name| name != "situ.follow").collect();
    names.sort();
    names
}

/// Returns all entries of a store, by keyspace.
fn contents(at: &Path, store: &str) -> Vec<(String, String)> {
    let entries = |name: &String| {
        let scan = ["scan", "--data", store, "--keyspace", name, "--stored", "--hex"];
        let plain = ["scan", "--data", store, "--keyspace", name, "--hex"];
        let arguments = if name == "items" { &scan[..] } else { &plain[..] };
        situ(at, arguments).done().text()
    };
    keyspaces(at, store).into_iter().map(|name| (name.clone(), entries(&name))).collect()
}

fn check_equal(at: &Path, source: &str, copy: &str) {
    let (expected, found) = (contents(at, source), contents(at, copy));
    assert!(expected == found, "{source} and {copy} differ:\n{expected:?}\n{found:?}");
}

fn follow_once(at: &Path) -> String {
    let ran = situ(at, &["follow", "source", "copy", "--once", "--json"]).done().json();
    ran["position"].as_str().unwrap().to_owned()
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "the condition does not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn following(at: &Path) -> Child {
    let mut command = program(at);
    command.args(["follow", "source", "copy"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_copy_follows_a_served_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    serving.ask("set a 0 0 1\r\nx\r\nset b 5 0 2\r\n\0\t\r\nquit\r\n");
    situ(at, &["put", "k", "v", "--data", "source"]).done();
    let first = follow_once(at);
    check_equal(at, "source", "copy");

    // Nothing has changed.
    assert_eq!(follow_once(at).split(':').next(), first.split(':').next());
    serving.ask("set a 0 0 1\r\ny\r\ndelete b\r\nset c 0 0 1\r\nz\r\nquit\r\n");
    situ(at, &["keyspace", "create", "more", "--data", "source"]).done();
    situ(at, &["keyspace", "create", "empty", "--data", "source"]).done();
    for number in 0..20 {
        situ(at, &["put", &format!("n{number}"), "1", "--data", "source", "-k", "more"]).done();
    }
    situ(at, &["delete", "--prefix", "n1", "--data", "source", "-k", "more"]).done();
    let second = follow_once(at);
    assert_ne!(first, second);
    check_equal(at, "source", "copy");
    assert_eq!(situ(at, &["follow", "-", "copy", "--position"]).done().text(), second.clone() + "\n");

    situ(at, &["put", &"\u{7f}".repeat(60_000), "1", "--data", "source", "-k", "more"]).done();
    situ(at, &["keyspace", "clear", "more", "--data", "source"]).done();
    assert_eq!(situ(at, &["count", "--exact", "--data", "source", "-k", "more"]).done().text(), "0\n");
    follow_once(at);
    check_equal(at, "source", "copy");

    // A keyspace that is made again under its name.
    situ(at, &["keyspace", "drop", "more", "--data", "source"]).done();
    situ(at, &["keyspace", "drop", "empty", "--data", "source"]).done();
    situ(at, &["keyspace", "create", "more", "--data", "source"]).done();
    situ(at, &["put", "n5", "2", "--data", "source", "-k", "more"]).done();
    follow_once(at);
    check_equal(at, "source", "copy");
    assert_eq!(situ(at, &["scan", "--data", "copy", "-k", "more"]).done().text(), "n5\t2\n");

    // The log of the server is closed, and another one has begun.
    drop(serving);
    situ(at, &["put", "k", "after", "--data", "source"]).done();
    situ(at, &["compact", "source"]).done();
    follow_once(at);
    check_equal(at, "source", "copy");
    situ(at, &["verify", "copy"]).done();
    // A copy is a store, and may be followed.
    situ(at, &["follow", "copy", "copy2", "--once"]).done();
    check_equal(at, "source", "copy2");
}

#[test]
fn a_follower_that_is_killed_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    follow_once(at);
    for round in 0..8u32 {
        let mut follower = following(at);
        let sets: String = (0..200).map(|n| format!("set k{} 0 0 3 noreply\r\n{n:03}\r\n", n % (round + 7))).collect();
        serving.ask(&format!("{sets}set round 0 0 1\r\n{round}\r\nquit\r\n"));
        std::thread::sleep(Duration::from_millis(u64::from(round) * 17));
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    follow_once(at);
    check_equal(at, "source", "copy");

    // One that goes on shows a write soon, and its end frees its place in the server.
    for round in 0..10 {
        let mut follower = following(at);
        serving.ask(&format!("set seen 0 0 1\r\n{round}\r\nquit\r\n"));
        let seen = || {
            let ran = situ(at, &["get", "seen", "--data", "copy", "-k", "items"]);
            ran.code == 0 && ran.text() == format!("{round}\n")
        };
        until(seen);
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    // So does the end of the server.
    let mut follower = following(at);
    serving.ask("set seen 0 0 1\r\nx\r\nquit\r\n");
    until(|| situ(at, &["get", "seen", "--data", "copy", "-k", "items"]).text() == "x\n");
    let mut serving = serving;
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    let mut ended = None;
    until(|| {
        ended = follower.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
    // The server has noted its time when it ended.
    follow_once(at);
    check_equal(at, "source", "copy");
}

/// Once, a follower that was killed while it made its copy left a directory that kept the next one from making it.
#[test]
fn a_follower_that_is_killed_while_it_makes_the_copy_is_called_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    let sets: String = (0..2000).map(|n| format!("set k{n} 0 0 4 noreply\r\n{n:04}\r\n")).collect();
    serving.ask(&format!("{sets}mn\r\nquit\r\n"));
    let (copy, partial) = (at.join("copy"), at.join(".copy.partial"));
    for round in 0..10 {
        let mut follower = following(at);
        until(|| partial.exists() || copy.exists());
        std::thread::sleep(Duration::from_millis(round * 4));
        follower.kill().unwrap();
        follower.wait().unwrap();
        // A copy that is there is whole. The processes that the killed one has started may go on for a moment.
        if copy.exists() {
            until(|| situ(at, &["follow", "-", "copy", "--position"]).code == 0);
        }
        until(|| situ(at, &["follow", "source", "copy", "--once"]).code == 0);
        check_equal(at, "source", "copy");
        assert!(!partial.exists());
        fs::remove_dir_all(&copy).unwrap();
    }
    // What is no store's is not removed.
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("notes"), "mine").unwrap();
    let refused = situ(at, &["follow", "source", "copy", "--once"]);
    assert!(refused.code == 1 && refused.stderr.contains("holds other files (notes)"), "{refused:?}");
    // A directory that exists is filled in place.
    fs::create_dir(&copy).unwrap();
    let before = copy.metadata().unwrap().ino();
    follow_once(at);
    check_equal(at, "source", "copy");
    assert_eq!(copy.metadata().unwrap().ino(), before);
}

#[test]
fn lines_are_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let write = |key: &str| situ(at, &["put", key, "v", "--data", "source"]).done();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    write("a");
    serving.ask("set i 0 0 1\r\n1\r\nquit\r\n");
    let archive = situ(at, &["changes", "source"]).done().text();
    let lines: Vec<Value> = archive.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["keyspaces"]["0"], json!("default"));
    let put = json!({"keyspace": "default", "keyspace_id": 0, "do": "put", "key": "a", "value": "v"});
    assert!(lines.iter().any(|line| line["changes"] == json!([put])), "{archive}");
    situ_fed(at, &["follow", "-", "copy"], archive.as_bytes()).done();
    check_equal(at, "source", "copy");

    // What the copy has is passed over, and so is a part of a line. What it lacks is not.
    let position = situ(at, &["follow", "-", "copy", "--position"]).done().text().trim().to_owned();
    write("b");
    write("c");
    let more = situ(at, &["changes", "source", "--since", &position]).done().text();
    let all = archive.clone() + &more;
    let cut = &all[..all.len() - 1];
    let cut = situ_fed(at, &["follow", "-", "copy"], cut.as_bytes()).done().text();
    let last = serde_json::from_str::<Value>(more.lines().last().unwrap()).unwrap();
    assert!(cut.contains(last["since"].as_str().unwrap()), "{cut} {last}");
    situ_fed(at, &["follow", "-", "copy"], all.as_bytes()).done();
    check_equal(at, "source", "copy");
    write("d");
    write("e");
    let gap = situ(at, &["changes", "source", "--since", &position]).done().text();
    let gap: String = gap.lines().rev().take(1).map(|line| format!("{line}\n")).collect();
    let refused = situ_fed(at, &["follow", "-", "copy"], gap.as_bytes());
    assert!(refused.code == 1 && refused.stderr.contains("line 1 of standard input: it begins behind"), "{refused:?}");

    // `now` gives nothing that was there.
    let now = situ(at, &["changes", "source", "--since", "now"]).done().text();
    assert_eq!(now.lines().count(), 1, "{now}");
    // A checkpoint has no position.
    let made = situ(at, &["checkpoint", "source", "-o", "checkpoint", "--json"]).done().json();
    let refused = situ(at, &["follow", "source", "checkpoint", "--once"]);
    assert!(refused.code == 1 && refused.stderr.contains("takes --from"), "{refused:?}");
    let wrong = situ(at, &["follow", "source", "checkpoint", "--once", "--from", "1"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("not known to end with number 1"), "{wrong:?}");
    let last = made["last_sequence"].to_string();
    write("f");
    situ(at, &["follow", "source", "checkpoint", "--once", "--from", &last]).done();
    check_equal(at, "source", "checkpoint");
}

#[test]
fn failures_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let refused = |arguments: &[&str], code: i32, text: &str| {
        let ran = situ(at, arguments);
        assert!(ran.code == code && ran.stderr.contains(text), "{ran:?}");
    };
    refused(&["changes", "nowhere"], 1, "nowhere does not exist");
    refused(&["follow", "nowhere", "copy"], 1, "nowhere does not exist");
    assert!(!at.join("copy").exists());
    refused(&["follow", "-", "copy", "--position"], 1, "there is no store in copy");
    refused(&["changes", "source", "--since", "x"], 2, "expected a number, or NUMBER:CHECKSUM");
    refused(&["serve", "source", "--keep-changes", "64M"], 2, "128M to 512M");
    situ(at, &["put", "k", "1", "--data", "source"]).done();
    follow_once(at);
    refused(&["changes", "source", "--follow"], 1, "no server has the store open");
    refused(&["follow", "source", "copy"], 1, "start `situ serve` first");
    refused(&["put", "k", "1", "--data", "copy", "-k", "situ.follow"], 1, "situ follow");

    // The source keeps no changes, and so the copy falls behind.
    for round in 0..3 {
        situ(at, &["put", "k", &round.to_string(), "--data", "source"]).done();
        situ(at, &["flush", "source"]).done();
    }
    let behind = situ(at, &["follow", "source", "copy", "--once"]);
    assert!(behind.code == 1 && behind.stderr.contains("--keep-changes"), "{behind:?}");
    assert!(behind.stderr.contains("remove the copy first"), "{behind:?}");
    assert_eq!(situ(at, &["get", "k", "--data", "copy"]).done().text(), "1\n");

    // Another store under the name of the source.
    fs::remove_dir_all(at.join("copy")).unwrap();
    let first = Serving::start(at, &["source", "--keep-changes", "512M"]);
    first.ask("set a 0 0 1\r\nx\r\nquit\r\n");
    follow_once(at);
    first.ask("set a 0 0 1\r\ny\r\nquit\r\n");
    follow_once(at);
    drop(first);
    let other = Serving::start(at, &["other", "--keep-changes", "512M"]);
    for _ in 0..20 {
        other.ask("set a 0 0 1\r\nz\r\nquit\r\n");
    }
    drop(other);
    fs::rename(at.join("source"), at.join("gone")).unwrap();
    fs::rename(at.join("other"), at.join("source")).unwrap();
    refused(&["follow", "source", "copy", "--once"], 1, "cannot follow source");
    // A source that says nothing wrong, and is another one.
    let lines = situ(at, &["changes", "source"]).done().text();
    let position = situ(at, &["follow", "-", "copy", "--position"]).done().text();
    let sequence = position.split(':').next().unwrap();
    let forged =
        lines.lines().find(|line| line.contains(&format!("\"since\":\"{sequence}:"))).unwrap().to_owned() + "\n";
    let refused = situ_fed(at, &["follow", "-", "copy"], forged.as_bytes());
    assert!(refused.code == 1 && refused.stderr.contains("another history"), "{refused:?}");
    let malformed = situ_fed(at, &["follow", "-", "copy"], b"{\"since\":1}\n");
    assert!(malformed.code == 1 && malformed.stderr.contains("docs/formats/changes.md"), "{malformed:?}");
}

/// A reader of changes that does not read holds up nothing, and one that has gone is noticed without a change.
#[test]
fn a_quiet_feed_says_that_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _serving = Serving::start(at, &["source"]);
    let mut command = program(at);
    command.args(["changes", "source", "--since", "now", "--follow"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::from(File::create(at.join("messages")).unwrap())).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(first["keyspaces"].is_object(), "{first}");
    let quiet: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&quiet["changes"], &quiet["since"]), (&json!([]), &quiet["position"]));
    situ(at, &["put", "k", "v", "--data", "source"]).done();
    let changed = loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if line["changes"] != json!([]) {
            break line;
        }
    };
    assert_eq!(changed["changes"][0]["key"], json!("k"));
    drop(lines);
    // The next line has no reader.
    let mut ended = None;
    until(|| {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0), "{}", fs::read_to_string(at.join("messages")).unwrap());
}

/// A checkpoint of a store that takes writes has records in its log, which the copy's opening repeats under new numbers.
#[test]
fn a_copy_is_made_of_a_store_that_takes_writes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let sets: String = (0..20)
                    .map(|n| format!("set w{n} 0 0 {} noreply\r\n{number}\r\n", number.to_string().len()))
                    .collect();
                serving.ask(&format!("{sets}mn\r\nquit\r\n"));
                number += 1;
            }
        });
        for round in 0..2 {
            let copy = format!("copy{round}");
            let made = situ(at, &["follow", "source", &copy, "--once"]);
            let again = situ(at, &["follow", "source", &copy, "--once"]);
            let created = situ(at, &["backup", "create", "source", "-o", "backups", "--json"]);
            assert!(made.code == 0 && again.code == 0 && created.code == 0, "{made:?} {again:?} {created:?}");
            let restored = format!("restored{round}");
            situ(at, &["backup", "restore", "backups", "-o", &restored]).done();
            let last = created.json()["last_sequence"].to_string();
            let followed = situ(at, &["follow", "source", &restored, "--once", "--from", &last]);
            if followed.code != 0 {
                stop.store(true, Ordering::Relaxed);
                panic!("{followed:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    for copy in (0..2).flat_map(|round| [format!("copy{round}"), format!("restored{round}")]) {
        situ(at, &["follow", "source", &copy, "--once"]).done();
        check_equal(at, "source", &copy);
    }
}

#[test]
fn an_archive_may_be_read_again_and_another_store_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    let write = |key: &str, keyspace: &str| {
        situ(at, &["put", key, "v", "--data", "source", "-k", keyspace]).done();
    };
    let position = || situ(at, &["follow", "-", "copy", "--position"]).done().text().trim().to_owned();
    write("a", "default");
    let mut audit = situ(at, &["changes", "source"]).done().text();
    situ_fed(at, &["follow", "-", "copy"], audit.as_bytes()).done();
    situ(at, &["keyspace", "create", "users", "--data", "source"]).done();
    for key in ["u1", "u2", "u3", "u4"] {
        write(key, "users");
        if key >= "u3" {
            let since = position();
            audit += &situ(at, &["changes", "source", "--since", &since]).done().text();
            situ_fed(at, &["follow", "-", "copy"], audit.as_bytes()).done();
            check_equal(at, "source", "copy");
        }
    }
    let before = contents(at, "copy");
    situ(at, &["put", "x", "1", "--data", "other"]).done();
    situ(at, &["keyspace", "create", "strange", "--data", "other"]).done();
    for n in 0..30 {
        situ(at, &["put", &n.to_string(), "1", "--data", "other", "-k", "strange"]).done();
    }
    // Openings have repeated what the log had, so the numbers are far behind.
    let lines = situ(at, &["changes", "other", "--since", "now"]).done().text();
    let other = situ_fed(at, &["follow", "-", "copy"], lines.as_bytes());
    assert!(other.code == 1, "{other:?}");
    assert_eq!(contents(at, "copy"), before);
}

/// A copy that is served takes writes of its own.
#[test]
fn a_copy_that_is_served_follows_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    serving.ask("set a 0 0 1\r\nx\r\nquit\r\n");
    follow_once(at);
    let clear = situ(at, &["keyspace", "clear", "situ.follow", "--data", "copy"]);
    assert!(clear.code == 1 && clear.stderr.contains("situ follow"), "{clear:?}");
    let promoted = Serving::start(at, &["copy"]);
    promoted.ask("set b 0 0 1\r\ny\r\nquit\r\n");
    drop(promoted);
    let again = situ(at, &["follow", "source", "copy", "--once"]);
    assert!(again.code == 1 && again.stderr.contains("no position of a source"), "{again:?}");
    drop(serving);

    // A source that was restored to an earlier state has another history, also for a copy that was just made.
    situ(at, &["backup", "create", "source", "-o", "backups"]).done();
    fs::remove_dir_all(at.join("copy")).unwrap();
    let serving = Serving::start(at, &["source"]);
    serving.ask("set lost 0 0 1\r\n1\r\nset lost2 0 0 1\r\n1\r\nquit\r\n");
    follow_once(at);
    follow_once(at);
    drop(serving);
    fs::remove_dir_all(at.join("source")).unwrap();
    situ(at, &["backup", "restore", "backups", "-o", "source"]).done();
    let serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    for n in 0..20 {
        serving.ask(&format!("set new{n} 0 0 1\r\n1\r\nquit\r\n"));
    }
    let other = situ(at, &["follow", "source", "copy", "--once"]);
    assert!(other.code == 1 && other.stderr.contains("cannot be read"), "{other:?}");
}

/// A repair that loses something changes the store without a change in the feed.
#[test]
fn a_source_that_was_repaired_with_losses_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["source", "--keep-changes", "512M"]);
    let put = |key: &str| situ(at, &["put", key, "v", "--data", "source"]).done();
    put("old");
    situ(at, &["flush", "source"]).done();
    follow_once(at);
    put("new");
    follow_once(at);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
    let files = fs::read_dir(at.join("source")).unwrap().map(|file| file.unwrap().path());
    let mut tables: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "table")).collect();
    tables.sort();
    let mut bytes = fs::read(&tables[0]).unwrap();
    bytes[40] ^= 1;
    // The copy shares the table.
    fs::remove_file(&tables[0]).unwrap();
    fs::write(&tables[0], bytes).unwrap();
    let repaired = situ(at, &["repair", "source"]);
    let lost = situ(at, &["get", "old", "--data", "source"]);
    assert_eq!(lost.code, 3, "{lost:?} {repaired:?}");
    put("after");
    let refused = situ(at, &["follow", "source", "copy", "--once"]);
    assert!(refused.code == 1 && refused.stderr.contains("cannot be read"), "{refused:?}");
    assert_eq!(situ(at, &["get", "old", "--data", "copy"]).done().text(), "v\n");
}
