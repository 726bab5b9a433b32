//! `load` and `dump`.

use crate::common::{Serving, program, situ, situ_fed};
use crate::skipped;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

/// Entries that are hard on formats: separators, quotes, line ends, control characters, bytes that are no UTF-8.
fn hard_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"a,b".to_vec(), b"say \"hi\"".to_vec()),
        (b"empty".to_vec(), b"".to_vec()),
        (b"key".to_vec(), b"value".to_vec()),
        (b"line\nbreak\r\n".to_vec(), b"\r".to_vec()),
        (b"tab\there".to_vec(), b"\\n\\t\0".to_vec()),
        ("grüße \u{1f980}".as_bytes().to_vec(), "\u{feff}".as_bytes().to_vec()),
        (b"\xff\xfe".to_vec(), (0..=255).collect()),
    ];
    entries.extend((0..=255u8).map(|byte| (vec![b'b', byte], vec![byte; 3])));
    entries.sort();
    entries
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_format_gives_back_every_byte() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let entries = hard_entries();
    let input: String =
        entries.iter().map(|(k, v)| format!("{{\"key_hex\":\"{}\",\"value_hex\":\"{}\"}}\n", hex(k), hex(v))).collect();
    let loaded = situ_fed(at, &["load", "--json"], input.as_bytes()).done().json();
    assert_eq!(loaded["loaded"].as_u64(), Some(entries.len() as u64));
    let all = |data: &str| situ(at, &["scan", "--hex", "-d", data]).done().text();
    let expected: String = entries.iter().map(|(k, v)| format!("{}\t{}\n", hex(k), hex(v))).collect();
    assert_eq!(all("situ-data"), expected);
    let mut stores = 0;
    for format in ["jsonl", "csv", "tsv"] {
        for encoding in [None, Some("--hex"), Some("--base64")] {
            let through_files = || {
                let file = format!("out{}.{format}", encoding.unwrap_or(""));
                let store = format!("{file}.store");
                let mut dump = vec!["dump", "-o", &file];
                dump.extend(encoding);
                let told = situ(at, &dump).done().text();
                assert!(told.starts_with(&format!("wrote {} entries", entries.len())), "{told}");
                situ(at, &["load", "-d", &store, &file]).done();
                all(&store)
            };
            assert_eq!(through_files(), expected, "{format} {encoding:?} by files");
            let mut dump = vec!["dump", "--format", format];
            dump.extend(encoding);
            let piped = situ(at, &dump).done().stdout;
            let store = format!("piped{stores}");
            stores += 1;
            situ_fed(at, &["load", "-d", &store, "--format", format, "--batch", "7"], &piped).done();
            assert_eq!(all(&store), expected, "{format} {encoding:?} by pipes");
        }
    }
    assert!(!fs::read_dir(at).unwrap().any(|f| f.unwrap().file_name().to_string_lossy().contains("partial")));
}

#[test]
fn a_file_without_a_header_is_data_and_ranges_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ_fed(at, &["load", "--format", "csv", "--no-header"], b"ada,1815\ngrace,1906\r\nada,1816\n").done();
    assert_eq!(situ(at, &["scan"]).done().text(), "ada\t1816\ngrace\t1906\n");
    assert_eq!(situ(at, &["dump", "--prefix", "g", "--format", "tsv"]).done().text(), "key\tvalue\ngrace\t1906\n");
    assert_eq!(situ_fed(at, &["load", "--format", "csv", "--json"], b"").done().json()["loaded"], 0);
    assert_eq!(situ_fed(at, &["load", "--json"], b"\n\n").done().json()["loaded"], 0);
}

#[test]
fn bad_lines_are_named_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lines = b"{\"key\":\"a\",\"value\":\"1\"}\nnonsense\n{\"key\":\"\",\"value\":\"x\"}\n{\"key\":\"b\",\"value\":\"2\"}\n\
                  {\"key\":\"c\",\"value\":\"3\",\"ttl\":1}\n{\"key\":\"d\",\"value_base64\":\"?\"}\n{\"key\":\"e\",\"value\":\"5\"}\n";
    fs::write(at.join("bad.jsonl"), lines).unwrap();
    let stopped = situ(at, &["load", "bad.jsonl", "--skip-bad", "3"]);
    assert_eq!(stopped.code, 1);
    for part in [
        "line 2: not a record",
        "line 3: a key has at least one byte",
        "line 5: not a record of a dump: unknown field `ttl`; --key",
        "line 6: value_base64: not base64",
        "stopped at line 6, with 2 lines loaded: more than 3 lines cannot be read",
    ] {
        assert!(stopped.stderr.contains(part), "{part} in {}", stopped.stderr);
    }
    assert_eq!(situ(at, &["scan"]).done().text(), "a\t1\nb\t2\n");
    let resumed = situ(at, &["load", "bad.jsonl", "--resume", "--skip-bad", "1", "--json"]).done().json();
    assert_eq!((resumed["loaded"].as_u64(), resumed["skipped"].as_u64()), (Some(1), Some(1)));
    assert_eq!((resumed["resumed_at_line"].as_u64(), resumed["loaded_in_all"].as_u64()), (Some(6), Some(3)));
    assert_eq!(situ(at, &["scan", "--keys"]).done().text(), "a\nb\ne\n");

    fs::write(at.join("bad.csv"), "key_hex,value\n00,a\n0,b\n01,\"two\nlines\"\n02,c,d\n").unwrap();
    let done = situ(at, &["load", "-k", "csv", "bad.csv", "--skip-bad", "2"]).done();
    assert!(done.stderr.contains("line 3: key_hex: not hexadecimal"), "{}", done.stderr);
    assert!(done.stderr.contains("line 6: expected 2 columns, key_hex and value, found 3"), "{}", done.stderr);
    assert_eq!(situ(at, &["scan", "-k", "csv", "--hex"]).done().text(), "00\t61\n01\t74776f0a6c696e6573\n");

    fs::write(at.join("cut.csv"), "key,value\na,1\nb,\"two\nli").unwrap();
    let cut = situ(at, &["load", "-k", "cut", "cut.csv"]);
    assert_eq!(cut.code, 1);
    assert!(cut.stderr.contains("line 3: a quote is opened here and never closed"), "{}", cut.stderr);
    assert_eq!(situ(at, &["scan", "-k", "cut"]).done().text(), "a\t1\n");
}

#[test]
fn a_load_that_is_killed_goes_on_where_it_was() {
    const LINES: usize = 400_000;
    for (format, name) in [("jsonl", "many.jsonl"), ("csv", "many.csv")] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let contents: String = match format {
            "jsonl" => (0..LINES).map(|n| format!("{{\"key\":\"{n:07}\",\"value\":\"value {n}\"}}\n")).collect(),
            _ => "key,value\n".to_owned() + &(0..LINES).map(|n| format!("{n:07},value {n}\n")).collect::<String>(),
        };
        fs::write(at.join(name), &contents).unwrap();
        let (mut kills, mut milliseconds) = (0, 100);
        let summary = loop {
            let mut command = program(at);
            command.args(["load", "--resume", "--json", "--batch", "5", name]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            if kills < 4 {
                // Each time a little later.
                std::thread::sleep(Duration::from_millis(milliseconds));
                child.kill().unwrap();
            }
            let output = child.wait_with_output().unwrap();
            match output.status.code() {
                None => {
                    kills += 1;
                    milliseconds += milliseconds / 4;
                }
                Some(0) if kills > 0 => break serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(),
                Some(0) => {
                    // A fast machine: once more, and sooner.
                    milliseconds /= 2;
                    fs::remove_dir_all(at.join("situ-data")).unwrap();
                }
                Some(_) => panic!("a load that was left alone failed: {output:?}"),
            }
        };
        assert_eq!(summary["loaded_in_all"].as_u64(), Some(LINES as u64), "{summary}");
        assert_eq!(situ(at, &["dump", "--format", format]).done().text(), contents, "{format}");
        // Once more: all of it is there already.
        let again = situ(at, &["load", "--resume", "--json", name]).done().json();
        assert_eq!((again["loaded"].as_u64(), again["loaded_in_all"].as_u64()), (Some(0), Some(LINES as u64)));
    }
}

#[test]
fn a_changed_file_is_not_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("f.csv"), "key,value\na,1\nb\n").unwrap();
    assert_eq!(situ(at, &["load", "f.csv"]).code, 1);
    fs::write(at.join("f.csv"), "key,value\na,1\nb,2\n").unwrap();
    let refused = situ(at, &["load", "--resume", "f.csv"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("the file has changed since"), "{}", refused.stderr);
    situ(at, &["load", "f.csv"]).done();
    assert_eq!(situ(at, &["scan"]).done().text(), "a\t1\nb\t2\n");
    let nothing = situ(at, &["load", "--resume"]);
    assert_eq!(nothing.code, 2);
    assert!(situ(at, &["load", "missing.csv"]).stderr.contains("cannot read missing.csv"));
}

#[test]
fn a_dump_that_fails_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "v"]).done();
    fs::write(at.join("old.csv"), "precious").unwrap();
    assert_eq!(situ(at, &["dump", "-o", "old.csv", "--force", "--hex", "--from", "xyz"]).code, 2);
    assert_eq!(fs::read(at.join("old.csv")).unwrap(), b"precious");
    assert_eq!(situ(at, &["dump", "-o", "no/such/place.csv"]).code, 1);
    assert_eq!(fs::read_dir(at).unwrap().count(), 2);
}

/// A dump once took the place of whatever had the name: a device, a pipe, a link.
#[test]
fn a_dump_replaces_nothing_but_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "key", "value"]).done();
    let line = "{\"key\":\"key\",\"value\":\"value\"}\n";
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(at).unwrap().map(|found| found.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };

    fs::create_dir(at.join("elsewhere")).unwrap();
    fs::write(at.join("elsewhere/old.jsonl"), "old").unwrap();
    for (link, to) in [("link.jsonl", "elsewhere/old.jsonl"), ("dangling.jsonl", "elsewhere/new.jsonl")] {
        std::os::unix::fs::symlink(to, at.join(link)).unwrap();
        situ(at, &["dump", "-o", link, "--force"]).done();
        assert_eq!(fs::read_link(at.join(link)).unwrap().to_str(), Some(to));
        assert_eq!(fs::read_to_string(at.join(to)).unwrap(), line);
    }
    assert_eq!(fs::read_dir(at.join("elsewhere")).unwrap().count(), 2);

    // By links in a directory of the test's own: a dump that goes wrong must not harm the machine's devices.
    std::os::unix::fs::symlink("/dev/full", at.join("full.jsonl")).unwrap();
    let full = situ(at, &["dump", "-o", "full.jsonl"]);
    assert_eq!(full.code, 1);
    assert!(full.stderr.contains("No space left on device") && full.stderr.contains("no regular file"), "{full:?}");
    assert!(fs::symlink_metadata(at.join("full.jsonl")).unwrap().is_symlink());

    assert!(std::process::Command::new("mkfifo").arg(at.join("pipe.jsonl")).status().unwrap().success());
    let reader = std::thread::spawn({
        let path = at.join("pipe.jsonl");
        move || fs::read_to_string(path).unwrap()
    });
    situ(at, &["dump", "-o", "pipe.jsonl"]).done();
    // A dump that replaces the pipe leaves its reader waiting: it must be found out without it.
    assert!(!fs::symlink_metadata(at.join("pipe.jsonl")).unwrap().is_file());
    assert_eq!(reader.join().unwrap(), line);
    // Without the summary, which would be a line that no load can read.
    std::os::unix::fs::symlink("/dev/stdout", at.join("out.jsonl")).unwrap();
    assert_eq!(situ(at, &["dump", "-o", "out.jsonl"]).done().text(), line);

    let expected = ["dangling.jsonl", "elsewhere", "full.jsonl", "link.jsonl", "out.jsonl", "pipe.jsonl", "situ-data"];
    assert_eq!(names(), expected);
}

/// An interrupted dump left its unfinished file for ever; an interrupted load did not say that it can go on.
#[test]
fn an_interrupted_command_says_what_is_left() {
    const LINES: usize = 200_000;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let contents: String = (0..LINES).map(|n| format!("{n:07},value {n}\n")).collect();
    fs::write(at.join("many.csv"), format!("key,value\n{contents}")).unwrap();
    let start = |arguments: &[&str]| {
        let mut command = program(at);
        command.args(arguments).arg("--json").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let signal = |child: &std::process::Child, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    };
    let told = |child: std::process::Child, code: i32| {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        error["cure"].as_str().unwrap().to_owned()
    };

    // It waits for input that does not come.
    let load = start(&["load", "-d", "other"]);
    while situ(at, &["get", "-d", "other", "key"]).code != 3 {}
    signal(&load, Signal::INT);
    assert_eq!(told(load, 130), "what was loaded stays, but a load of standard input or of a pipe cannot be resumed");

    let load = start(&["load", "many.csv", "--batch", "1"]);
    while situ(at, &["get", "0000000"]).code != 0 {}
    signal(&load, Signal::TERM);
    assert_eq!(told(load, 143), "what was loaded stays, and --resume goes on from there");
    let resumed = situ(at, &["load", "--resume", "many.csv", "--json"]).done().json();
    assert_eq!(resumed["loaded_in_all"].as_u64(), Some(LINES as u64), "{resumed}");

    fs::write(at.join("all.jsonl"), "old").unwrap();
    let partial = || {
        let mut names = fs::read_dir(at).unwrap().map(|found| found.unwrap().file_name());
        names.any(|name| name.to_string_lossy().contains("partial"))
    };
    let dump = start(&["dump", "-o", "all.jsonl", "--force"]);
    while !partial() {}
    signal(&dump, Signal::INT);
    assert_eq!(told(dump, 130), "all.jsonl is as it was");
    assert!(!partial());
    assert_eq!(fs::read(at.join("all.jsonl")).unwrap(), b"old");
}

/// A dump could take the place of the manifest, or of a table, that it was read from.
#[test]
fn a_dump_replaces_no_file_of_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "key", "value"]).done();
    std::os::unix::fs::symlink("situ-data/IDENTITY", at.join("link")).unwrap();
    let before = fs::read_dir(at.join("situ-data")).unwrap().count();
    for target in ["situ-data/CURRENT", "situ-data/LOCK", "situ-data/999999.table", "link", "./situ-data/../link"] {
        let refused = situ(at, &["dump", "-o", target]);
        assert_eq!(refused.code, 1, "{target}");
        assert!(refused.stderr.contains("the file belongs to a store; name a file outside"), "{}", refused.stderr);
    }
    assert_eq!(fs::read_dir(at.join("situ-data")).unwrap().count(), before);
    situ(at, &["dump", "-o", "situ-data/all.jsonl"]).done();
    situ(at, &["dump", "-o", "CURRENT"]).done();
    assert_eq!(situ(at, &["get", "key"]).done().text(), "value\n");
}

/// A dump once had the mode and the owner of a new file, whatever it replaced: a secret could be read by everybody, and a
/// service could no longer write its file.
#[test]
fn a_dump_keeps_the_mode_and_the_owner_of_the_file_it_replaces() {
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "key", "value"]).done();
    let file = at.join("old.jsonl");
    let owned = || {
        let found = fs::metadata(&file).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    situ(at, &["dump", "-o", "old.jsonl"]).done();
    let of_new = owned();
    fs::write(at.join("like-any-other"), "").unwrap();
    assert_eq!(of_new.0, fs::metadata(at.join("like-any-other")).unwrap().mode() & 0o7777);
    for mode in [0o600, 0o666, 0o2660] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(situ(at, &["dump", "--force", "-o", "old.jsonl"]).done().stderr, "");
        assert_eq!(owned(), (mode, of_new.1, of_new.2));
    }
    if of_new.1 != 0 {
        skipped::skipped("giving files away: only root can");
        return;
    }
    chown(&file, Some(NOBODY), Some(1)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(situ(at, &["dump", "--force", "-o", "old.jsonl"]).done().stderr, "");
    assert_eq!(owned(), (0o640, NOBODY, 1));

    // Somebody who is not root: the program must be where they can run it.
    // Another process copies it: a file that this one writes is open in every process that another test starts meanwhile, and
    // the system does not run it then.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_situ")).arg(at.join("situ")).status();
    assert!(copied.unwrap().success());
    chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
    let dump_as_nobody = || {
        let mut command = std::process::Command::new(at.join("situ"));
        command.args(["dump", "--force", "-o", "old.jsonl"]).current_dir(at).uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    chown(&file, Some(1), Some(1)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6666)).unwrap();
    let (code, told) = dump_as_nobody();
    assert_eq!((code, owned()), (0, (0o666, NOBODY, NOBODY)), "{told}");
    assert!(told.contains("belonged to user 1 and group 1, and belongs to user 65534"), "{told}");
    chown(&file, Some(1), Some(1)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, "old").unwrap();
    let (code, told) = dump_as_nobody();
    assert_eq!((code, owned()), (1, (0o644, 1, 1)), "{told}");
    assert!(told.contains("Permission denied") && told.contains("is as it was"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), b"old");
}

/// The place that is kept behind a line of CSV lies between `\r` and `\n`: a load that went on there named the line before.
#[test]
fn a_load_says_at_which_line_it_went_on() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (name, contents, expected) in [
        ("lf.csv", "key,value\na,1\nbad\nb,2\n", 3),
        ("crlf.csv", "key,value\r\na,1\r\nbad\r\nb,2\r\n", 3),
        ("empty.csv", "key,value\r\n\r\na,1\r\n\r\nbad\r\n", 5),
        ("lf.jsonl", "{\"key\":\"a\",\"value\":\"1\"}\n\nbad\n", 3),
    ] {
        fs::write(at.join(name), contents).unwrap();
        let stopped = situ(at, &["load", "--batch", "1", name]);
        assert!(stopped.stderr.contains(&format!("stopped at line {expected}, with 1 line")), "{}", stopped.stderr);
        let resumed = situ(at, &["load", "--resume", "--skip-bad", "1", "--json", name]).done().json();
        assert_eq!(resumed["resumed_at_line"].as_u64(), Some(expected), "{name}: {resumed}");
        // Nothing is left: it goes on at the end.
        let again = situ(at, &["load", "--resume", "--json", name]).done().json();
        assert_eq!(again["resumed_at_line"].as_u64(), Some(contents.lines().count() as u64 + 1), "{name}: {again}");
    }
}

/// Nobody was told that a load which the disk has stopped can go on, and one of standard input was told to use --resume. A limit of
/// the process on files ended the program without a word.
#[test]
fn a_load_that_fails_says_how_to_go_on() {
    const LINES: usize = 120_000;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let value = |n: usize| "x".repeat(if n == LINES / 2 { 9 << 20 } else { 100 });
    let entries: String = (0..LINES).map(|n| format!("{n:07},{}\n", value(n))).collect();
    let contents = format!("key,value\n{entries}");
    fs::write(at.join("many.csv"), &contents).unwrap();
    // No file may grow beyond 8 MiB, and the one long record needs a longer one: a disk that is full, to a program that outlives the
    // signal.
    let limited = "ulimit -f 16384; exec \"$0\" load many.csv --json";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_situ")]).current_dir(at);
    let output = shell.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let error: serde_json::Value = serde_json::from_str(&told).unwrap();
    let cure = error["cure"].as_str().unwrap();
    assert!(cure.contains(" entries are loaded, and --resume goes on from there"), "{told}");
    let resumed = situ(at, &["load", "--resume", "many.csv", "--json"]).done().json();
    assert_eq!(resumed["loaded_in_all"].as_u64(), Some(LINES as u64), "{resumed}");
    assert!(resumed["loaded"].as_u64().unwrap() < LINES as u64, "{resumed}");
    assert_eq!(situ(at, &["dump", "--format", "csv"]).done().text(), contents);

    let piped = situ_fed(at, &["load"], b"nonsense\n");
    assert!(piped.stderr.contains("--skip-bad") && !piped.stderr.contains("--resume"), "{}", piped.stderr);
    assert!(std::process::Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    // It says so without waiting for somebody who writes.
    let refused = situ(at, &["load", "--resume", "pipe"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("pipe cannot be resumed: it is no regular file"), "{}", refused.stderr);
    // Somebody else's entries among the places would be places.
    for arguments in [["put", "key", "value", "-k", "situ.load"], ["load", "many.csv", "--json", "-k", "situ.load"]] {
        let refused = situ(at, &arguments);
        assert_eq!(refused.code, 1);
        assert!(
            refused.stderr.contains("the positions from which `situ load` and `situ import` resume"),
            "{}",
            refused.stderr
        );
    }
}

/// Flushed items were written by `dump --stored`, and came back to life in the store they were loaded into, where the
/// next flush did not reach them, and where a new item got a cas id that one of them had.
#[test]
fn items_move_between_stores_and_flushed_ones_stay_dead() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let sets = |names: std::ops::Range<u32>, prefix: &str| -> String {
        names.map(|n| format!("set {prefix}{n} 7 0 2 noreply\r\n{n:02}\r\n")).collect()
    };
    let stop = |mut serving: Serving| {
        serving.signal(Signal::TERM);
        assert_eq!(serving.wait(), Some(0));
    };
    let serving = Serving::start(at, &["old"]);
    let filled = sets(0..20, "k") + "flush_all\r\n" + &sets(0..20, "live") + "set expired 0 -1 1\r\nx\r\nquit\r\n";
    assert_eq!(serving.ask(&filled), "OK\r\nSTORED\r\n");
    stop(serving);
    let dumped = situ(at, &["dump", "--stored", "-d", "old", "-o", "items.jsonl", "--json"]).done().json();
    assert_eq!(dumped["dumped"].as_u64(), Some(20));
    // One store is new, the other has been flushed more often than the first.
    for (store, before) in [("new", ""), ("flushed", "set k0 0 0 1\r\nx\r\nflush_all\r\n")] {
        if !before.is_empty() {
            let serving = Serving::start(at, &[store]);
            assert_eq!(serving.ask(&format!("{before}quit\r\n")), "STORED\r\nOK\r\n");
            stop(serving);
        }
        situ(at, &["load", "--stored", "-d", store, "items.jsonl"]).done();
        let serving = Serving::start(at, &[store]);
        let get = "get k1 k15 live3\r\n";
        let found = serving.ask(&format!("{get}set other 0 0 1\r\nx\r\ngets live19\r\ngets other\r\nquit\r\n"));
        assert!(found.starts_with("VALUE live3 7 2\r\n03\r\nEND\r\nSTORED\r\n"), "{found}");
        let cas: Vec<u64> =
            found.lines().filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').nth(3)?.parse().ok()).collect();
        assert!(cas.len() == 2 && cas[0] < cas[1], "{found}");
        assert_eq!(serving.ask(&format!("flush_all\r\n{get}quit\r\n")), "OK\r\nEND\r\n");
        stop(serving);
        assert_eq!(situ(at, &["dump", "--stored", "-d", store]).done().text(), "");
    }
    let plain = situ_fed(at, &["load", "--stored", "-d", "new"], b"{\"key\":\"k\",\"value\":\"v\"}\n");
    assert_eq!(plain.code, 1);
    assert!(plain.stderr.contains("line 1: the value is not a memcached item"), "{}", plain.stderr);
}

/// A dump to the name of standard output put a new file in the place of the one that was written to.
#[test]
fn a_dump_to_standard_output_by_name_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "v"]).done();
    let captured = fs::File::create(at.join("captured")).unwrap();
    let before = captured.metadata().unwrap().ino();
    let mut dump = program(at);
    dump.args(["dump", "-o", "/dev/stdout", "--format", "csv"]).stdout(captured.try_clone().unwrap());
    assert_eq!(dump.status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(at.join("captured")).unwrap(), "key,value\nk,v\n");
    assert_eq!(fs::metadata(at.join("captured")).unwrap().ino(), before);
}

/// Nobody could tell what a load had done now from what an earlier one had; a place that is missing was told in the
/// system's words, with the assurance that the file there is as it was.
#[test]
fn messages_tell_this_run_from_earlier_ones() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut lines = "key,value\n".to_owned();
    lines.extend((0..2499).map(|n| format!("{n:05},value\n")));
    lines.push_str("bad\n");
    lines.push_str(&(0..1501).map(|n| format!("x{n:05},value\n")).collect::<String>());
    fs::write(at.join("rows.csv"), lines).unwrap();
    let stopped = situ(at, &["load", "rows.csv"]);
    assert_eq!(stopped.code, 1);
    assert!(stopped.stderr.contains("stopped at line 2,501, with 2,499 lines loaded"), "{}", stopped.stderr);
    let resumed = situ(at, &["load", "rows.csv", "--resume", "--skip-bad", "1"]).done().text();
    assert!(resumed.starts_with("loaded 1,501 entries into \"default\" in "), "{resumed}");
    assert!(resumed.ends_with("skipped 1 bad line, went on at line 2,501; 4,000 entries in all\n"), "{resumed}");
    let again = situ(at, &["load", "rows.csv", "--resume"]).done().text();
    let nothing =
        "nothing is left to load: an earlier load has reached the end of the file, with 4,000 entries in all\n";
    assert_eq!(again, nothing);
    let again = situ(at, &["load", "rows.csv", "--resume", "--json"]).done().json();
    assert_eq!((&again["loaded"], &again["skipped"]), (&0.into(), &0.into()));
    assert_eq!((&again["loaded_in_all"], &again["skipped_in_all"]), (&4000.into(), &1.into()));

    for (file, why) in [("no/where.csv", "there is no directory no; make the directory"), (".", "it is a directory")] {
        let refused = situ(at, &["dump", "-o", file]);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains(why) && !refused.stderr.contains("as it was"), "{}", refused.stderr);
    }
}

/// Any header but exactly `key,value` was loaded as an entry, and `value,key` swapped keys and values. The exit code was 0.
#[test]
fn names_decide_the_columns() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let cases: [(&str, &str, &[&str], &str); 16] = [
        ("swapped.csv", "value,key\n1815,ada\n", &[], "ada\t1815\n"),
        ("blanks.csv", "\u{feff} Value , KEY \r\n1815,ada\r\n\r\n", &[], "ada\t1815\n"),
        ("quoted.tsv", "\"value\"\t\"key\"\n1815\t\"a\tda\"\n", &[], "a\\tda\t1815\n"),
        ("hex.csv", "Value_Base64,KEY_HEX\nMTgxNQ==,616461\n", &[], "ada\t1815\n"),
        ("named.csv", "id,name,year\n1,ada,1815\n", &["--key", "ID", "--value", "year"], "1\t1815\n"),
        ("exact.csv", "ID,id,name\n1,2,ada\n", &["--key", "id", "--value", "name"], "2\tada\n"),
        ("key.csv", "value,id\n1815,1\n", &["--key", "id"], "1\t1815\n"),
        (
            "object.csv",
            "id,Name, year\n1,\"ada \"\"l\"\"\",1815\n2,,\n",
            &["--key", "id"],
            "1\t{\"Name\":\"ada \\\\\"l\\\\\"\",\"year\":\"1815\"}\n2\t{\"Name\":\"\",\"year\":\"\"}\n",
        ),
        (
            "several.csv",
            "year,id,name,born\n1815,1,ada,London\n",
            &["--key", "id", "--value", "name", "--value", "year"],
            "1\t{\"year\":\"1815\",\"name\":\"ada\"}\n",
        ),
        ("plain.csv", "key,value\nada,1815\n", &["--no-header"], "ada\t1815\nkey\tvalue\n"),
        (
            "record.jsonl",
            "{\"id\": 7, \"n\": 1.50}\n\n{\"id\":\"x\",\"id2\":[null]}\n",
            &["--key-field", "id"],
            "7\t{\"id\": 7, \"n\": 1.50}\nx\t{\"id\":\"x\",\"id2\":[null]}\n",
        ),
        (
            "fields.jsonl",
            "{\"id\":\"a\",\"v\":1e400}\n{\"v\":true,\"id\":\"b\"}\n{\"id\":\"c\",\"v\":{\"x\": [1]}}\n{\"id\":\"d\",\"v\":\"\\u00e9\"}\n",
            &["--key-field", "id", "--value-field", "v"],
            "a\t1e400\nb\ttrue\nc\t{\"x\": [1]}\nd\té\n",
        ),
        (
            "two.jsonl",
            "{\"b\":2,\"x\":0,\"a\":\"1\",\"key\":\"k\"}\n",
            &["--value", "a", "--value", "b"],
            "k\t{\"b\":2,\"a\":\"1\"}\n",
        ),
        ("numbers.jsonl", "{\"key\":1,\"value\":-0.0}\n{\"key\":\"b\",\"value\":[]}\n", &[], "1\t-0.0\nb\t[]\n"),
        ("empty.csv", "", &[], ""),
        ("header.csv", "value,key\n", &[], ""),
    ];
    for (name, contents, arguments, expected) in cases {
        fs::write(at.join(name), contents).unwrap();
        let store = format!("{name}.store");
        let load: Vec<&str> = ["load", "-d", &store, name].into_iter().chain(arguments.iter().copied()).collect();
        situ(at, &load).done();
        assert_eq!(situ(at, &["scan", "-d", &store]).done().text(), expected, "{name}");
    }
}

/// `load` guessed silently in these cases.
#[test]
fn what_names_do_not_decide_is_an_error_that_shows_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let cases: [(&str, &[u8], &[&str], &str); 14] = [
        (
            "none.csv",
            b"\nada,1815\n",
            &[],
            "line 2: no column is called key in the header \"ada,1815\"; name the columns with",
        ),
        ("half.csv", b"key,year\nada,1815\n", &[], "no column is called value in the header \"key,year\""),
        ("more.csv", b"key,value,note\na,1,x\n", &[], "the column \"note\" is neither key nor value"),
        ("other.csv", b"id,name\n1,a\n", &["--key", "key"], "no column is called \"key\" in the header \"id,name\""),
        ("twice.csv", b"id,ID,v\n1,2,a\n", &["--key", "Id"], "more than one of the columns is called \"Id\""),
        ("both.csv", b"key,key_hex,value\na,61,1\n", &[], "more than one column is called key, key_base64 or key_hex"),
        ("alone.csv", b"id\n1\n", &["--key", "id"], "there is no column for the value"),
        ("semicolons.csv", b"key;value\na;1\n", &[], "no column is called key in the header \"key;value\""),
        ("open.csv", b"key,\"value\na,1\n", &[], "line 1: a quote is opened here and never closed"),
        ("json.jsonl", b"{\"key\":\"a\",\"value\":\"1\"}\n", &["--no-header"], "--no-header is for CSV and TSV"),
        (
            "missing.jsonl",
            b"{\"id\":1}\n{\"name\":\"x\"}\n",
            &["--key", "id"],
            "line 2: no field \"id\": there are name",
        ),
        (
            "null.jsonl",
            b"{\"id\":null}\n",
            &["--key", "id"],
            "line 1: id: a key must be a string or a number, but this is null",
        ),
        ("value.jsonl", b"{\"id\":1,\"v\":null}\n", &["--key", "id", "--value", "v"], "line 1: v: null is not a value"),
        ("bytes.csv", b"id,a,b\n1,\xff,2\n", &["--key", "id"], "line 2: a: the bytes are not UTF-8"),
    ];
    for (name, contents, arguments, expected) in cases {
        fs::write(at.join(name), contents).unwrap();
        let store = format!("{name}.store");
        let load: Vec<&str> = ["load", "-d", &store, name].into_iter().chain(arguments.iter().copied()).collect();
        let refused = situ(at, &load);
        assert!(matches!(refused.code, 1 | 2) && refused.stderr.contains(expected), "{name}: {}", refused.stderr);
        // No store is made for a file whose header cannot be used.
        assert!(name.ends_with("jsonl") || name == "bytes.csv" || !at.join(&store).exists(), "{name}");
    }
    // A resumed load uses the columns that it began with.
    fs::write(at.join("on.csv"), "id,a,b\n1,2,3\nbad\n").unwrap();
    assert_eq!(situ(at, &["load", "on.csv", "--key", "id", "--value", "a"]).code, 1);
    let refused = situ(at, &["load", "on.csv", "--resume", "--skip-bad", "1", "--key", "id", "--value", "b"]);
    assert!(refused.stderr.contains("the earlier load used the columns or fields id, a"), "{}", refused.stderr);
    situ(at, &["load", "on.csv", "--resume", "--skip-bad", "1", "--key", "id", "--value", "a"]).done();
}

/// A packed file was read without unpacking, and its bytes were reported as bad lines.
#[test]
fn packed_files_are_read_and_written() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let text: String = (0..20_000).map(|n| format!("{n:05},value {n}\n")).collect();
    fs::write(at.join("plain.csv"), format!("key,value\n{text}")).unwrap();
    situ(at, &["load", "plain.csv"]).done();
    let all = situ(at, &["scan"]).done().text();
    for name in ["all.csv.gz", "all.tsv.zst", "all.jsonl.gz", "all.zst", "UPPER.CSV.GZ"] {
        let told = situ(at, &["dump", "--json", "-o", name]).done().json();
        let packed = fs::read(at.join(name)).unwrap();
        assert_eq!(told["bytes"].as_u64(), Some(packed.len() as u64));
        assert!(packed.len() * 2 < text.len(), "{name} has {} bytes", packed.len());
        // Under its name, under another one, and from standard input.
        fs::write(at.join("renamed"), &packed).unwrap();
        let format = ["csv", "tsv"].into_iter().find(|format| name.to_lowercase().contains(format)).unwrap_or("jsonl");
        situ(at, &["load", "-d", &format!("{name}.1"), name]).done();
        situ(at, &["load", "-d", &format!("{name}.2"), "renamed", "--format", format]).done();
        situ_fed(at, &["load", "-d", &format!("{name}.3"), "--format", format], &packed).done();
        for store in 1..=3 {
            assert!(situ(at, &["scan", "-d", &format!("{name}.{store}")]).done().text() == all, "{name}, {store}");
        }
        // The rest of a truncated file is loaded, and the command fails.
        fs::write(at.join(format!("cut-{name}")), &packed[..packed.len() / 2]).unwrap();
        let cut = situ(at, &["load", "-d", "cut", &format!("cut-{name}")]);
        assert_eq!(cut.code, 1);
        assert!(cut.stderr.contains("cannot read cut-"), "{}", cut.stderr);
    }
    fs::write(at.join("plain.csv.gz"), "key,value\na,1\n").unwrap();
    let refused = situ(at, &["load", "plain.csv.gz"]);
    assert!(refused.code == 1 && refused.stderr.contains("its name says that gzip packed it"), "{}", refused.stderr);

    // A load of a packed file resumes where it stopped.
    fs::write(at.join("bad.csv"), format!("key,value\n{text}bad\nlast,1\n")).unwrap();
    let gzip = std::process::Command::new("gzip").arg(at.join("bad.csv")).status();
    if !gzip.is_ok_and(|status| status.success()) {
        skipped::skipped("a file of another program: there is no gzip");
        return;
    }
    let stopped = situ(at, &["load", "-d", "bad", "bad.csv.gz"]);
    assert!(stopped.stderr.contains("stopped at line 20,002, with 20,000 lines loaded"), "{}", stopped.stderr);
    let resumed = situ(at, &["load", "-d", "bad", "bad.csv.gz", "--resume", "--skip-bad", "1", "--json"]).done().json();
    assert_eq!((resumed["loaded"].as_u64(), resumed["loaded_in_all"].as_u64()), (Some(1), Some(20_001)));
}

/// A dump silently replaced an existing file.
#[test]
fn a_dump_replaces_a_file_only_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "key", "value"]).done();
    situ(at, &["load", "-d", "hash", "--engine", "hash", "--format", "csv"]).done();
    for data in ["situ-data", "hash"] {
        fs::write(at.join("old.csv"), "precious").unwrap();
        let refused = situ(at, &["dump", "-d", data, "-o", "old.csv"]);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains("the file exists already; name another file"), "{}", refused.stderr);
        assert_eq!(fs::read(at.join("old.csv")).unwrap(), b"precious");
        situ(at, &["dump", "-d", data, "-o", "old.csv", "--force"]).done();
        assert!(fs::read(at.join("old.csv")).unwrap().starts_with(b"key,value"));
        assert!(!fs::read_dir(at).unwrap().any(|f| f.unwrap().file_name().to_string_lossy().contains("partial")));
    }
}
