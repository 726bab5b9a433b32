//! Commands on a store that a server has open: they run in the server.

use crate::common::{Ran, Serving, program, situ, situ_fed};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn stop(mut serving: Serving) {
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
}

fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "the condition does not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn people(at: &Path, entries: usize) {
    let lines: String = (0..entries).map(|n| format!("{{\"key\":\"p{n:07}\",\"value\":\"{n:064}\"}}\n")).collect();
    fs::write(at.join("people.jsonl"), lines).unwrap();
}

/// Returns the output of a run without the parts that differ between two runs.
fn essence(ran: &Ran, store: &Path) -> (i32, String, String) {
    let plain = |text: &str| {
        let text = text.replace(&store.display().to_string(), "STORE");
        text.replace(store.file_name().unwrap().to_str().unwrap(), "STORE")
    };
    let mut lines = Vec::new();
    for line in ran.text().lines() {
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(mut object) if object.is_object() => {
                object.as_object_mut().unwrap().remove("seconds");
                lines.push(object.to_string());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    (ran.code, plain(&lines.join("\n")), plain(&ran.stderr))
}

/// Ends a thread, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn commands_say_the_same_of_a_served_store_as_of_a_closed_one_while_clients_write() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    people(at, 500);
    let [served, closed] = ["served", "closed"].map(|name| at.join(name));
    let serving = Serving::start(at, &["served", "--log-file", "situ.log"]);
    stop(Serving::start(at, &["closed"]));
    let done = AtomicBool::new(false);
    let file = at.join("people.jsonl");
    let file = file.to_str().unwrap();
    let rounds = std::thread::scope(|scope| {
        let ends = Ends(&done);
        let writer = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                let answers = serving.ask(&format!("{}quit\r\n", "set key 0 0 5\r\nhello\r\nget key\r\n".repeat(50)));
                assert_eq!(answers, "STORED\r\nVALUE key 0 5\r\nhello\r\nEND\r\n".repeat(50));
                rounds += 1;
            }
            rounds
        });
        let lines: [&[&str]; 21] = [
            &["--json", "keyspace", "create", "people"],
            &["keyspace", "create", "people"],
            &["--json", "load", file, "-k", "people"],
            &["--json", "load", file, "-k", "people", "--resume"],
            &["put", "-k", "people", "--json", "--sync", "ada", "1815"],
            &["put", "-k", "people", "--hex", "00ff", "c0ffee"],
            &["get", "-k", "people", "ada"],
            &["get", "-k", "people", "bob"],
            &["delete", "-k", "people", "ada", "--json"],
            &["delete", "-k", "nowhere", "ada"],
            &["delete", "-k", "people", "--prefix", "p00001", "--json"],
            &["count", "-k", "people", "--exact", "--json"],
            &["count", "-k", "people", "--prefix", "p0000"],
            &["scan", "-k", "people", "--prefix", "p0000"],
            &["--json", "compact", "-k", "people"],
            &["compact", "-k", "nowhere"],
            &["dump", "-k", "people"],
            &["put", "-k", "memcached", "a", "b"],
            &["keyspace", "drop", "default"],
            &["--json", "keyspace", "drop", "people"],
            &["keyspace", "drop", "people"],
        ];
        for line in lines {
            let [of_served, of_closed] = [&served, &closed].map(|store| {
                let mut arguments = line.to_vec();
                let last = if line.contains(&"compact") { None } else { Some("-d") };
                arguments.extend(last);
                arguments.push(store.file_name().unwrap().to_str().unwrap());
                essence(&situ(at, &arguments), store)
            });
            assert_eq!(of_served, of_closed, "{line:?}");
        }
        drop(ends);
        writer.join().unwrap()
    });
    assert!(rounds > 0);
    stop(serving);
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    assert!(log.contains("command keyspace create: exit code 0 after"), "{log}");
    assert!(log.contains("command keyspace create: exit code 1 after"), "{log}");
    assert!(!at.join("served/ADMIN").exists());
    situ(at, &["verify", "served"]).done();
}

#[test]
fn flush_compact_verify_and_checkpoint_work_while_the_server_does() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["store", "--value-log"]);
    let large = "v".repeat(20_000);
    let sets: String = (0..200).map(|n| format!("set key{n:03} 0 0 20000\r\n{large}\r\n")).collect();
    assert!(serving.ask(&format!("{sets}quit\r\n")).ends_with("STORED\r\n"));

    let flushed = situ(at, &["--json", "flush", "store", "-k", "items"]).done().json();
    assert!(flushed["memtable_bytes_before"].as_u64() > Some(4_000_000) && flushed["tables"].as_u64() >= Some(1));
    let flushed = situ(at, &["flush", "store"]).done().text();
    assert!(flushed.lines().any(|line| line.starts_with("items: memtables of ")), "{flushed}");
    assert!(situ(at, &["compact", "store"]).done().text().contains("items: "));

    let verified = situ(at, &["--json", "verify", "store"]).done().json();
    assert!(verified["sound"] == true && verified["entries"].as_u64() >= Some(200), "{verified}");
    assert!(verified["bytes"].as_u64() > Some(4_000_000), "{verified}");
    assert!(verified["warnings"][0].as_str().unwrap().contains("the log were not checked"), "{verified}");

    // The path is the client's.
    fs::create_dir(at.join("backups")).unwrap();
    let copied = situ(&at.join("backups"), &["checkpoint", "-d", "../store", "-o", "first"]).done().text();
    assert!(copied.starts_with(&format!("{}: ", at.join("backups/first").display())), "{copied}");
    assert_eq!(situ(at, &["get", "-n", "-d", "backups/first", "-k", "items", "key199"]).done().text(), large);
    let again = situ(&at.join("backups"), &["checkpoint", "-d", "../store", "-o", "first"]);
    assert!(again.code == 1 && again.stderr.contains("needs an empty place"), "{again:?}");
    stop(serving);
    assert!(situ(at, &["--json", "verify", "store"]).done().json()["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn verify_names_damage_of_a_served_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["store"]);
    let sets: String = (0..300).map(|n| format!("set key{n:03} 0 0 100\r\n{n:0100}\r\n")).collect();
    assert!(serving.ask(&format!("{sets}quit\r\n")).ends_with("STORED\r\n"));
    situ(at, &["flush", "store"]).done();
    let files = fs::read_dir(at.join("store")).unwrap().map(|entry| entry.unwrap().path());
    let tables = files.filter(|path| path.extension().is_some_and(|kind| kind == "table"));
    let table = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();
    let found = situ(at, &["verify", "store"]);
    let name = table.file_name().unwrap().to_str().unwrap();
    assert!(found.code == 4 && found.text().contains(name) && found.text().contains("1 damage"), "{found:?}");
}

#[test]
fn items_of_a_served_store_are_left_to_its_clients() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["store"]);
    serving.ask("set user:1 0 0 1\r\na\r\nset user:2 0 0 1\r\nb\r\nset other 7 0 1\r\nc\r\nquit\r\n");
    situ(at, &["dump", "-d", "store", "--stored", "-o", "items.jsonl"]).done();
    let lines: [&[&str]; 5] = [
        &["put", "-d", "store", "-k", "items", "a", "b"],
        &["put", "-d", "store", "--stored", "--hex", "61", "62"],
        &["load", "-d", "store", "--stored", "items.jsonl"],
        &["delete", "-d", "store", "-k", "items", "user:1"],
        &["keyspace", "drop", "-d", "store", "items"],
    ];
    for line in lines {
        let refused = situ(at, line);
        assert!(refused.code == 1 && !refused.stderr.is_empty(), "{line:?}: {refused:?}");
        let says = if line[0] == "put" && line[3] == "-k" { "plain values" } else { "use the memcached protocol" };
        assert!(refused.stderr.contains(says), "{line:?}: {refused:?}");
    }
    // A range goes as by flush_all.
    situ(at, &["delete", "-d", "store", "-k", "items", "--prefix", "user:"]).done();
    assert_eq!(serving.ask("get user:1 user:2 other\r\nquit\r\n"), "VALUE other 7 1\r\nc\r\nEND\r\n");
    assert_eq!(situ(at, &["count", "-d", "store", "-k", "items", "--exact"]).done().text(), "1\n");
    // cas ids go on.
    let answer = serving.ask("gets other\r\nset user:1 0 0 1\r\nd\r\ngets user:1\r\nquit\r\n");
    let ids: Vec<u64> =
        answer.lines().filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').nth(3)?.parse().ok()).collect();
    assert!(ids.len() == 2 && ids[0] < ids[1], "{answer}");
}

#[test]
fn what_a_server_cannot_run_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let _serving = Serving::start(at, &["store"]);
    let lines: [(&[&str], &str); 6] = [
        (&["repair", "store"], "the command needs the store for itself; stop the server"),
        (&["disk", "add", "store", "disk"], "cannot run `situ disk add` in a server"),
        (&["disk", "drain", "store"], "cannot drain the store's fast disk"),
        (&["load", "-d", "store"], "does not get the standard input"),
        (&["put", "-d", "store", "key"], "does not get the standard input"),
        (&["compact", "store", "--compute", "node://127.0.0.1:1"], "leave out --capacity and --compute"),
    ];
    fs::create_dir(at.join("disk")).unwrap();
    for (line, says) in lines {
        let refused = situ_fed(at, line, b"{\"key\":\"a\",\"value\":\"b\"}\n");
        assert!(refused.code == 1 && refused.stderr.contains(says), "{line:?}: {refused:?}");
    }
    // The program has read from a pipe before it finds the server.
    let path = at.join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let feeder = std::thread::spawn(move || drop(fs::write(path, "{\"key\":\"a\",\"value\":\"b\"}\n")));
    let refused = situ(at, &["load", "-d", "store", "pipe"]);
    assert!(refused.code == 1 && refused.stderr.contains("no regular file"), "{refused:?}");
    feeder.join().unwrap();
    // In JSON, too: the messages are the server's.
    let refused = situ(at, &["--json", "repair", "store"]);
    let message: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert!(refused.code == 1 && message["event"] == "error" && message["exit_code"] == 1, "{refused:?}");
}

#[test]
fn a_client_that_is_killed_ends_its_command_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    people(at, 100_000);
    let serving = Serving::start(at, &["store", "--log-file", "situ.log"]);
    let mut client =
        program(at).args(["load", "-d", "store", "--batch", "1", "--sync", "people.jsonl"]).spawn().unwrap();
    until(|| situ(at, &["count", "-d", "store", "-n", "10"]).text() == "10\n");
    client.kill().unwrap();
    client.wait().unwrap();
    until(|| fs::read_to_string(at.join("situ.log")).unwrap().contains("command load: its connection ended"));
    let loaded = situ(at, &["--json", "count", "-d", "store", "--exact"]).done().json()["count"].as_u64().unwrap();
    assert!((10..100_000).contains(&loaded), "{loaded} entries");
    assert_eq!(serving.ask("set a 0 0 1\r\nx\r\nquit\r\n"), "STORED\r\n");
    let resumed = situ(at, &["--json", "load", "-d", "store", "--resume", "people.jsonl"]).done().json();
    assert_eq!(resumed["loaded_in_all"], 100_000);
    assert_eq!(situ(at, &["count", "-d", "store", "--exact"]).done().text(), "100,000\n");
}

/// Once, a server completed the backup of a client that was killed.
#[test]
fn a_client_that_is_killed_ends_its_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    people(at, 300_000);
    situ(at, &["load", "-d", "store", "people.jsonl"]).done();
    let serving = Serving::start(at, &["store", "--log-file", "situ.log"]);
    // A kill may come too late.
    let has_ended = (0..20).any(|round| {
        let backups = format!("backups{round}");
        let mut client = program(at).args(["backup", "create", "store", "-o", &backups]).spawn().unwrap();
        until(|| at.join(&backups).exists());
        client.kill().unwrap();
        client.wait().unwrap();
        until(|| fs::read_to_string(at.join("situ.log")).unwrap().matches("command backup create").count() > round);
        situ(at, &["backup", "list", &backups, "--json"]).done().text().is_empty()
    });
    assert!(has_ended);
    situ(at, &["backup", "create", "store", "-o", "backups0"]).done();
    situ(at, &["backup", "verify", "backups0"]).done();
    stop(serving);
}

#[test]
fn a_server_that_is_killed_leaves_a_socket_that_is_in_no_ones_way() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut serving = Serving::start(at, &["store"]);
    situ(at, &["put", "-d", "store", "a", "1"]).done();
    serving.signal(Signal::KILL);
    assert_eq!(serving.wait(), None);
    assert!(at.join("store/ADMIN").exists());
    // No process has the store.
    situ(at, &["put", "-d", "store", "b", "2"]).done();
    situ(at, &["verify", "store"]).done();
    let serving = Serving::start(at, &["store"]);
    situ(at, &["put", "-d", "store", "c", "3"]).done();
    assert_eq!(situ(at, &["scan", "-d", "store"]).done().text(), "a\t1\nb\t2\nc\t3\n");
    stop(serving);
    assert!(!at.join("store/ADMIN").exists());
}

#[test]
fn each_server_gets_the_commands_of_its_own_store_under_any_path() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let long = at.join("d".repeat(180));
    let long = long.to_str().unwrap();
    let servers = [Serving::start(at, &["one"]), Serving::start(at, &[long])];
    std::os::unix::fs::symlink(at.join("one"), at.join("link")).unwrap();
    for (store, value) in [("link", "1"), (long, "2")] {
        situ(at, &["put", "-d", store, "key", value]).done();
        situ(at, &["compact", store]).done();
    }
    assert_eq!(situ(at, &["get", "-d", "one", "key"]).done().text(), "1\n");
    assert_eq!(situ(at, &["get", "-d", long, "key"]).done().text(), "2\n");
    servers.into_iter().for_each(stop);
}

#[test]
fn twenty_clients_at_once_are_served_or_told_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["store"]);
    std::thread::scope(|scope| {
        for client in 0..20 {
            scope.spawn(move || {
                let key = format!("key{client:02}");
                until(|| {
                    let ran = situ(at, &["put", "-d", "store", "--sync", &key, "x"]);
                    assert!(ran.code == 0 || ran.stderr.contains("commands run already"), "{ran:?}");
                    ran.code == 0
                });
            });
        }
    });
    assert_eq!(situ(at, &["count", "-d", "store", "--exact"]).done().text(), "20\n");
    stop(serving);
}

#[test]
fn requests_that_are_none_are_refused_and_the_server_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serving = Serving::start(at, &["store"]);
    let ask = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(at.join("store/ADMIN")).unwrap();
        // The server may have refused before it has all.
        _ = stream.write_all(bytes);
        _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let framed = |body: &str| [&(body.len() as u32).to_le_bytes()[..], body.as_bytes()].concat();
    assert!(ask(&framed("nonsense")).contains("the request is malformed"));
    assert!(ask(&framed(r#"{"version":9}"#)).contains("version 9"));
    assert!(ask(&u32::MAX.to_le_bytes()).contains("at most 4194304"));
    assert_eq!(ask(b"GET / HTTP/1.1\r\n\r\n").len(), ask(&u32::from_le_bytes(*b"GET ").to_le_bytes()).len());
    assert_eq!(ask(b""), "");
    let usage = ask(&framed(r#"{"version":1,"arguments":["compact","--no-such"],"directory":"/"}"#));
    assert!(usage.contains("--no-such") && usage.ends_with("\u{3}\u{1}\0\0\0\u{2}"), "{usage:?}");
    let help = ask(&framed(r#"{"version":1,"arguments":["compact","--help"],"directory":"/"}"#));
    assert!(help.contains("Rewrite tables") && help.ends_with("\u{3}\u{1}\0\0\0\0"), "{help:?}");
    let private = ask(&framed(r#"{"version":1,"arguments":["load","/dev/fd/3"],"directory":"/"}"#));
    assert!(private.contains("/dev/fd/3 is another file in the server"), "{private:?}");
    situ(at, &["put", "-d", "store", "a", "1"]).done();
    stop(serving);
}

#[test]
fn a_stop_ends_commands_that_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    people(at, 300_000);
    situ(at, &["load", "-d", "store", "people.jsonl"]).done();
    let serving = Serving::start(at, &["store", "--log-file", "situ.log"]);
    let start = |arguments: &[&str]| {
        let mut command = program(at);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let load = start(&["load", "-d", "store", "-k", "more", "--batch", "1", "--sync", "people.jsonl"]);
    until(|| situ(at, &["count", "-d", "store", "-k", "more", "-n", "10"]).text() == "10\n");
    let compaction = start(&["compact", "store"]);
    let begun = Instant::now();
    stop(serving);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let loaded = load.wait_with_output().unwrap();
    let stderr = String::from_utf8(loaded.stderr).unwrap();
    assert!(loaded.status.code() == Some(1) && stderr.contains("--resume goes on from there"), "{stderr}");
    let compacted = compaction.wait_with_output().unwrap();
    assert!(compacted.status.code().is_some_and(|code| code < 2), "{compacted:?}");
    let log = fs::read_to_string(at.join("situ.log")).unwrap();
    assert!(log.contains("cuts off commands") && log.contains("stopped; everything is durable"), "{log}");
    situ(at, &["verify", "store"]).done();
    assert_eq!(situ(at, &["--json", "count", "-d", "store", "--exact"]).done().json()["count"], 300_000);
    let resumed = situ(at, &["--json", "load", "-d", "store", "-k", "more", "--resume", "people.jsonl"]).done().json();
    assert!(resumed["loaded_in_all"] == 300_000 && resumed["loaded"].as_u64() < Some(300_000), "{resumed}");
}

#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return crate::skipped("only root can run a command as another user");
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    let situ_of_all = at.join("situ");
    fs::copy(env!("CARGO_BIN_EXE_situ"), &situ_of_all).unwrap();
    let serving = Serving::start(at, &["store"]);
    fs::set_permissions(at.join("store"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new(&situ_of_all);
    let stranger = command.args(["compact", "store"]).current_dir(at).uid(65534).gid(65534).output().unwrap();
    let stderr = String::from_utf8(stranger.stderr).unwrap();
    assert_eq!(stranger.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("run it as the user of the server, or as root"), "{stderr}");
    stop(serving);
}

/// A service with `PrivateTmp` has another /tmp. Once, a backup of its store went there, and the command said that it
/// had worked.
#[test]
fn a_server_with_other_files_at_a_path_does_not_write_there() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::create_dir(at.join("hidden")).unwrap();
    situ(at, &["put", "-d", "store", "k", "v"]).done();
    let can_hide =
        std::process::Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    let serving = can_hide.then(|| Serving::start_hiding(at, &at.join("hidden"), &["store"])).flatten();
    let Some(_serving) = serving else { return crate::skipped("the system gives no mount namespace (root only)") };
    for arguments in [
        &["backup", "create", "store", "-o", "hidden/backups"][..],
        &["checkpoint", "store", "-o", "hidden"],
        &["load", "-d", "store", "hidden/entries.jsonl"],
    ] {
        fs::write(at.join("hidden/entries.jsonl"), "{}").unwrap();
        let refused = situ(at, arguments);
        assert_eq!(refused.code, 1, "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("is another file or directory for the server"), "{}", refused.stderr);
        fs::remove_file(at.join("hidden/entries.jsonl")).unwrap();
    }
    assert_eq!(fs::read_dir(at.join("hidden")).unwrap().count(), 0);
    situ(at, &["backup", "create", "store", "-o", "seen/backups"]).done();
    assert!(at.join("seen/backups").is_dir());
}

#[test]
fn commands_run_over_http_with_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let token = |mode: u32| {
        fs::write(at.join("token"), "0123456789abcdef\n").unwrap();
        fs::set_permissions(at.join("token"), fs::Permissions::from_mode(mode)).unwrap();
    };
    token(0o644);
    let refused =
        situ(at, &["serve", "--admin-token-file", "token", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(refused.code == 1 && refused.stderr.contains("chmod 600"), "{}", refused.stderr);
    for engine in ["hash", "cache"] {
        let refused = situ(at, &["serve", "--engine", engine, "--admin-token-file", "token"]);
        assert!(refused.code == 2 && refused.stderr.contains("--admin-token-file is not for"), "{}", refused.stderr);
    }
    token(0o600);
    let serving = Serving::start(at, &["store", "--admin-token-file", "token", "--log-file", "log"]);
    assert_eq!(serving.ask("set a 0 0 1\r\nx\r\nquit\r\n"), "STORED\r\n");
    let url = format!("http://{}", serving.http);
    // From a directory that has no store.
    let elsewhere = tempfile::tempdir().unwrap();
    let token_file = at.join("token");
    let token_file = token_file.to_str().unwrap();
    let over_http =
        |line: &[&str]| situ(elsewhere.path(), &[&["--server", &url, "--server-token", token_file], line].concat());
    assert_eq!(over_http(&["get", "-k", "items", "a"]).done().text(), "x\n");
    over_http(&["put", "k", "v"]).done();
    assert_eq!(over_http(&["get", "nothing"]).code, 3);
    assert_ne!(over_http(&["--json", "compact"]).done().json_lines().len(), 0);
    // Once, a server ran the command on its own store, whatever the caller had named.
    for line in [&["put", "-d", "/other", "k", "w"][..], &["keyspace", "drop", "items", "-d", "store"], &["flush", "/"]]
    {
        let refused = over_http(line);
        assert!(refused.code == 1 && refused.stderr.contains("open, and no other"), "{line:?}: {}", refused.stderr);
    }
    over_http(&["flush", at.join("store").to_str().unwrap()]).done();
    let (dump, checkpoint) = (at.join("dump.jsonl"), at.join("copy"));
    over_http(&["dump", "-o", dump.to_str().unwrap()]).done();
    assert_eq!(fs::read_to_string(&dump).unwrap(), "{\"key\":\"k\",\"value\":\"v\"}\n");
    over_http(&["checkpoint", "-o", checkpoint.to_str().unwrap()]).done();
    situ(at, &["verify", "copy"]).done();
    // Paths are the server's, so that a relative one would be something else than its caller means.
    let refused = over_http(&["dump", "-o", "dump.jsonl"]);
    assert!(refused.code == 1 && refused.stderr.contains("dump.jsonl is relative"), "{}", refused.stderr);
    let refused = over_http(&["repair", "store"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("the command needs the store for itself"),
        "{}",
        refused.stderr
    );
    assert_eq!(situ(at, &["--server", &url, "flush"]).code, 2, "without a token");
    let refused = situ(at, &["--server", "https://localhost", "--server-token", "token", "flush"]);
    assert!(refused.code == 1 && refused.stderr.contains("http://HOST:PORT"), "{}", refused.stderr);
    fs::write(at.join("token"), "fedcba9876543210").unwrap();
    let refused = over_http(&["flush"]);
    assert!(refused.code == 1 && refused.stderr.contains("401 Unauthorized"), "{}", refused.stderr);
    let log = fs::read_to_string(at.join("log")).unwrap();
    assert!(log.contains("command checkpoint: exit code 0") && log.contains("a wrong token"), "{log}");
    stop(serving);
}
