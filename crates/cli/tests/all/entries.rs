//! `get`, `put`, `delete`, `scan`, `compact`, and how the program fails.

use crate::common::{Ran, Serving, program, situ, situ_fed};
use crate::skipped;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[test]
fn what_is_put_is_got_until_it_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    assert_eq!(situ(at, &["put", "greeting", "hello"]).done().text(), "");
    assert_eq!(situ(at, &["get", "greeting"]).done().text(), "hello\n");
    assert_eq!(situ(at, &["get", "-n", "greeting"]).done().text(), "hello");
    let got = situ(at, &["get", "greeting", "--json"]).done().json();
    assert_eq!(got, serde_json::json!({ "found": true, "key": "greeting", "value": "hello" }));
    situ(at, &["delete", "greeting"]).done();
    let missing = situ(at, &["get", "greeting"]);
    assert_eq!((missing.code, missing.text().as_str()), (3, ""));
    assert!(missing.stderr.contains("there is no key greeting"), "{}", missing.stderr);
    let missing = situ(at, &["--json", "get", "greeting"]);
    assert_eq!((missing.code, missing.json()["found"].as_bool()), (3, Some(false)));
}

/// Names that somebody else chose reached the terminal as they were, with what it obeys in them.
#[test]
fn names_do_nothing_to_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let name = "x\u{1b}[31m\ny";
    let shown = "x\\u{1b}[31m\\ny";
    situ(at, &["put", "key", "value", "-k", name]).done();
    let compacted = situ(at, &["compact"]).done().text();
    assert!(compacted.contains(&format!("\n{shown}: ")), "{compacted}");
    for arguments in [&["scan", "-k", "nope"][..], &["load", name], &["get", "key", "-d", name]] {
        let stderr = situ(at, arguments).stderr;
        assert!(stderr.contains(shown) && stderr.lines().count() == 1 && !stderr.contains('\u{1b}'), "{stderr:?}");
    }
    assert_eq!(situ(at, &["get", "key", "-k", name]).done().text(), "value\n");
}

/// A miss that could not be told ended the program in a panic.
#[test]
fn a_miss_has_its_exit_code_even_if_nobody_can_be_told() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "greeting", "hello"]).done();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = program(at).args(["get", "nothing"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn any_bytes_go_in_and_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let all: Vec<u8> = (0..=255).collect();
    situ_fed(at, &["put", "--sync", "all"], &all).done();
    assert_eq!(situ(at, &["get", "-n", "all"]).done().stdout, all);
    situ(at, &["put", "--hex", "00ff", "c0ffee"]).done();
    assert_eq!(situ(at, &["get", "--hex", "00FF"]).done().text(), "c0ffee\n");
    assert_eq!(situ(at, &["get", "--base64", "AP8="]).done().text(), "wP/u\n");
    let got = situ(at, &["get", "--base64", "AP8=", "--json"]).done().json();
    assert_eq!((got["key_base64"].as_str(), got["value_base64"].as_str()), (Some("AP8="), Some("wP/u")));
    assert_eq!(situ_fed(at, &["put", "--hex", "01"], b"0a0b\n").done().code, 0);
    assert_eq!(situ(at, &["get", "--hex", "01"]).done().text(), "0a0b\n");
    let wrong = situ(at, &["get", "--hex", "0x"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("not hexadecimal at digit 1"), "{}", wrong.stderr);
}

#[test]
fn scans_are_in_order_and_in_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (key, value) in [("user:1", "ada"), ("user:2", "two\nlines"), ("visit", "1"), ("admin", "root")] {
        situ(at, &["put", key, value]).done();
    }
    let scan = |arguments: &[&str]| situ(at, &[&["scan"], arguments].concat()).done().text();
    assert_eq!(scan(&[]), "admin\troot\nuser:1\tada\nuser:2\ttwo\\nlines\nvisit\t1\n");
    assert_eq!(scan(&["--prefix", "user:", "--keys"]), "user:1\nuser:2\n");
    assert_eq!(scan(&["--reverse", "-n", "2", "--keys"]), "visit\nuser:2\n");
    assert_eq!(scan(&["--from", "b", "--to", "user:2", "--keys"]), "user:1\n");
    let objects = situ(at, &["scan", "--json", "--prefix", "user:2"]).done().json_lines();
    assert_eq!(objects, [serde_json::json!({ "key": "user:2", "value": "two\nlines" })]);
}

#[test]
fn keyspaces_are_apart_and_made_by_writing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "default"]).done();
    situ(at, &["put", "--keyspace", "other", "k", "other"]).done();
    assert_eq!(situ(at, &["get", "k"]).done().text(), "default\n");
    assert_eq!(situ(at, &["get", "-k", "other", "k"]).done().text(), "other\n");
    let missing = situ(at, &["get", "-k", "othr", "k"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("the store has default, other"), "{}", missing.stderr);
}

/// `compact` kept all items that had expired or were flushed: it did not know them.
#[test]
fn a_compaction_drops_dead_items() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let served = |commands: &str, answer: &str| {
        let mut serving = Serving::start(at, &[]);
        assert_eq!(serving.ask(commands), answer);
        serving.signal(rustix::process::Signal::TERM);
        assert_eq!(serving.wait(), Some(0));
    };
    let stored = || {
        let store = situ::Store::open_read_only(at.join("situ-data")).unwrap();
        let items = store.existing_keyspace("items").unwrap();
        let keys = ["expired", "flushed", "kept"];
        keys.into_iter().filter(|key| items.contains(key.as_bytes()).unwrap()).collect::<Vec<_>>()
    };
    served("set expired 0 -1 1\r\nx\r\nset flushed 0 0 1\r\nx\r\nquit\r\n", "STORED\r\nSTORED\r\n");
    assert_eq!(stored(), ["expired", "flushed"]);
    situ(at, &["compact"]).done();
    assert_eq!(stored(), ["flushed"]);
    // It lies in the last level now, and dies there.
    served("flush_all\r\nset kept 0 0 1\r\nx\r\nquit\r\n", "OK\r\nSTORED\r\n");
    assert_eq!(stored(), ["flushed", "kept"]);
    situ(at, &["compact", "--keyspace", "items"]).done();
    assert_eq!(stored(), ["kept"]);
    served("get kept\r\nquit\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn compaction_says_what_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "1"]).done();
    situ(at, &["put", "k", "2"]).done();
    let done = situ(at, &["compact", "situ-data", "--json"]).done().json();
    assert_eq!((done["keyspace"].as_str(), done["tables"].as_u64()), (Some("default"), Some(1)));
    assert!(situ(at, &["compact"]).done().text().starts_with("default: "));
    assert_eq!(situ(at, &["get", "k"]).done().text(), "2\n");
}

#[test]
fn failures_say_what_and_why_and_what_next() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let missing = situ(at, &["get", "k"]);
    assert_eq!(missing.code, 1);
    for part in ["situ: cannot open the store in situ-data:", "situ-data does not exist", "`situ serve situ-data`"] {
        assert!(missing.stderr.contains(part), "{part} in {}", missing.stderr);
    }
    assert_eq!(situ(at, &["get"]).code, 2);
    assert_eq!(situ(at, &["frobnicate"]).code, 2);
    assert!(situ(at, &["delete", "k"]).stderr.contains("does not exist"));
    assert!(!at.join("situ-data").exists(), "a command that does not create has created a store");
}

#[test]
fn writers_exclude_each_other_and_readers_work_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "-k", "other", "k", "v"]).done();
    let serving = Serving::start(at, &[]);
    assert!(serving.ask("set a 5 0 1\r\nx\r\nset gone 0 -1 1\r\nx\r\nquit\r\n").starts_with("STORED"));
    // The server runs what it can. Without its socket, a command is refused.
    for arguments in [&["put", "k", "v"][..], &["delete", "k"], &["compact"], &["verify"]] {
        situ(at, arguments).done();
    }
    std::fs::remove_file(at.join("situ-data/ADMIN")).unwrap();
    for arguments in
        [&["put", "k", "v"][..], &["delete", "k"], &["compact"], &["verify"], &["repair"], &["load", "/dev/null"]]
    {
        let refused = situ(at, arguments);
        assert_eq!(refused.code, 1, "{arguments:?}");
        assert!(refused.stderr.contains("another process has the store open"), "{}", refused.stderr);
        assert!(refused.stderr.contains("get, scan, dump and inspect work while it runs"), "{}", refused.stderr);
    }
    assert_eq!(situ(at, &["get", "-k", "other", "k"]).done().text(), "v\n");
    // Items are shown as clients see them, or as they are stored.
    assert_eq!(situ(at, &["scan", "-k", "items"]).done().text(), "a\tx\n");
    assert_eq!(situ(at, &["scan"]).done().text(), "");
    let elsewhere = situ(at, &["get", "a"]);
    assert_eq!(elsewhere.code, 3);
    assert!(elsewhere.stderr.contains("a memcached item of that key is in --keyspace items"), "{}", elsewhere.stderr);
    for arguments in [&["get", "gone"][..], &["get", "-k", "items", "gone"], &["get", "--stored", "gone"]] {
        let gone = situ(at, arguments);
        assert_eq!(gone.code, 3);
        assert!(!gone.stderr.contains("of that key"), "{}", gone.stderr);
    }
    assert_eq!(situ(at, &["get", "-n", "--stored", "a"]).done().stdout.len(), 23);
    assert_eq!(situ(at, &["dump", "-k", "items", "--json"]).done().text(), "{\"key\":\"a\",\"value\":\"x\"}\n");
    situ(at, &["inspect"]).done();
    drop(serving);
    situ(at, &["put", "k", "v"]).done();
    for (arguments, says) in [
        (&["put", "-k", "items", "k", "v"][..], "a server would take plain values for damage"),
        (&["load", "-k", "items", "/dev/null"], "say --stored if the values are items"),
        (&["put", "--stored", "k", "v"], "the value is not a memcached item"),
        (&["put", "-k", "memcached", "k", "v"], "it holds the records of `situ serve`"),
        (&["delete", "-k", "memcached", "cas-limit"], "it holds the records of `situ serve`"),
    ] {
        let refused = situ(at, arguments);
        assert_eq!(refused.code, 1, "{arguments:?}");
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    let nowhere = situ(at, &["scan", "--stored", "-k", "other"]);
    assert_eq!(nowhere.code, 2);
    assert!(nowhere.stderr.contains("leave out --stored or --keyspace"), "{}", nowhere.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lines: String = (0..50_000).map(|n| format!("{{\"key\":\"{n:06}\",\"value\":\"{n}\"}}\n")).collect();
    situ_fed(at, &["load"], lines.as_bytes()).done();
    for arguments in [&["scan"][..], &["dump"], &["scan", "--json"], &["dump", "--format", "csv"]] {
        let mut child = program(at).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// With --json, failures were text, and a program had to guess what went wrong.
#[test]
fn with_json_what_goes_wrong_is_json_on_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let errors = |ran: &Ran| -> Vec<Value> {
        assert_eq!(ran.text(), "", "{ran:?}");
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    };
    let missing = situ(at, &["get", "k", "--json"]);
    let [error] = &errors(&missing)[..] else { panic!("{missing:?}") };
    assert_eq!((missing.code, &error["event"], &error["exit_code"]), (1, &json!("error"), &json!(1)));
    assert_eq!(error["what"], "cannot open the store in situ-data");
    assert!(error["cure"].as_str().unwrap().contains("`situ serve situ-data`"), "{error}");

    for arguments in [&["--json", "get"][..], &["frobnicate", "--json"], &["scan", "--json", "--limit", "many"]] {
        let unread = situ(at, arguments);
        let [error] = &errors(&unread)[..] else { panic!("{unread:?}") };
        assert_eq!((unread.code, &error["exit_code"]), (2, &json!(2)));
        assert!(!error["why"].as_str().unwrap().starts_with("error:"), "{error}");
        assert!(error["cure"].as_str().unwrap().contains("--help"), "{error}");
    }
    let words = situ(at, &["put", "--", "--json"]);
    assert!(words.code == 0 || !words.stderr.starts_with('{'), "{words:?}");

    let lines = b"{\"key\":\"a\",\"value\":\"1\"}\nnonsense\n";
    let bad = situ_fed(at, &["load", "--json"], lines);
    let [line, error] = &errors(&bad)[..] else { panic!("{bad:?}") };
    assert_eq!((&line["event"], &line["file"], &line["line"]), (&json!("bad_line"), &json!("-"), &json!(2)));
    assert!(line["why"].as_str().unwrap().starts_with("not a record"), "{line}");
    assert_eq!((&error["event"], &error["why"]), (&json!("error"), &json!("the line cannot be read")));
    std::fs::write(at.join("new.jsonl"), "").unwrap();
    let begun = situ(at, &["load", "--json", "--resume", "new.jsonl"]).done();
    let warning: Value = serde_json::from_str(&begun.stderr).unwrap();
    assert_eq!(warning["event"], "warning", "{warning}");
    assert_eq!(begun.json()["loaded"], 0);
}

/// A file that had gone, as it may beside a server, brought the advice to make a store where there was one.
#[test]
fn a_missing_file_is_told_from_a_missing_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let nowhere = situ(at, &["get", "-d", "nowhere", "key"]);
    assert!(nowhere.stderr.contains("name another directory, or make a store there"), "{}", nowhere.stderr);
    situ(at, &["put", "key", "value"]).done();
    situ(at, &["compact"]).done();
    for file in fs::read_dir(at.join("situ-data")).unwrap().map(Result::unwrap) {
        if file.path().extension().is_some_and(|extension| extension == "table") {
            fs::remove_file(file.path()).unwrap();
        }
    }
    let missing = situ(at, &["get", "key"]);
    assert_eq!(missing.code, 1);
    assert!(!missing.stderr.contains("make a store there"), "{}", missing.stderr);
    for part in [".table does not exist", "run the command again", "`situ verify situ-data`"] {
        assert!(missing.stderr.contains(part), "{part} in {}", missing.stderr);
    }
}

/// `verify` changes nothing, and left the file of a lock where no store was.
#[test]
fn a_directory_without_a_store_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for command in ["verify", "inspect"] {
        let refused = situ(at, &[command, "."]);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains("there is no store in ."), "{}", refused.stderr);
        assert_eq!(fs::read_dir(at).unwrap().count(), 0, "{command}");
    }
}

/// A run whose result could not be saved showed none.
#[test]
fn a_result_that_cannot_be_saved_is_shown_or_refused_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let bench = |output: &str| {
        situ(at, &["bench", "--keys", "100", "--workloads", "fillseq", "--directory", "bench", "--output", output])
    };
    for (output, why) in [("no/such/a.json", "there is no directory no/such"), (".", "it is a directory")] {
        let refused = bench(output);
        assert_eq!((refused.code, refused.text().as_str()), (1, ""));
        assert!(refused.stderr.contains(why) && refused.stderr.contains("nothing was measured"), "{}", refused.stderr);
    }
    std::os::unix::fs::symlink("/dev/full", at.join("full.json")).unwrap();
    let full = bench("full.json");
    assert_eq!(full.code, 1);
    assert!(full.text().contains("fillseq"), "{full:?}");
    assert!(full.stderr.contains("cannot write full.json: No space left on device"), "{}", full.stderr);
}

/// The JSON values on each line; none of them may be text.
fn json_alone(text: &str, arguments: &[&str]) -> Vec<Value> {
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"));
    text.lines().map(parse).collect()
}

/// Every command with --json, in success and in failure: standard output and standard error hold JSON alone.
/// `dump --format csv --json` wrote CSV, and `--version --json` text.
#[test]
fn every_command_speaks_json_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("good.csv"), "key,value\na,1\nb,2\n").unwrap();
    fs::write(at.join("bad.jsonl"), "{\"key\":\"c\",\"value\":\"3\"}\nnonsense\n").unwrap();
    fs::write(at.join("result.json"), "{}").unwrap();
    fs::File::create(at.join("disk")).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(at.join("fast")).unwrap();
    let cases: &[(i32, &str)] = &[
        (1, "get a"),
        (1, "scan"),
        (1, "inspect"),
        (1, "verify"),
        (1, "repair"),
        (1, "compact"),
        (0, "put k v"),
        (0, "put --hex ff 00"),
        (2, "put --hex f 00"),
        (0, "load good.csv"),
        (0, "load good.csv --resume"),
        (1, "load bad.jsonl"),
        (0, "load bad.jsonl --skip-bad 1"),
        (1, "load none.csv"),
        (1, "load ."),
        (2, "load --resume"),
        (2, "load --batch 0 good.csv"),
        (0, "get a"),
        (0, "get --hex ff"),
        (3, "get nothing"),
        (1, "get a -k nowhere"),
        (0, "scan"),
        (0, "scan --keys --reverse -n 2"),
        (2, "scan --from b --to a"),
        (2, "scan --limit many"),
        (0, "dump"),
        (2, "dump --format csv"),
        (0, "dump -o out.csv"),
        (1, "dump -o ."),
        (1, "dump -o no/where.csv"),
        (0, "delete a"),
        (0, "delete a"),
        (0, "compact"),
        (1, "compact -k nowhere"),
        (0, "inspect"),
        (0, "inspect --all"),
        (1, "inspect --table 999"),
        (1, "inspect --log 999"),
        (0, "verify"),
        (0, "repair --dry-run"),
        (0, "repair"),
        (1, "import rocksdb nowhere"),
        (0, "disk format disk"),
        (1, "disk format nowhere"),
        (2, "disk format disk --log 0 --force"),
        (0, "disk show disk --files"),
        (0, "disk check disk"),
        (1, "disk check good.csv"),
        (0, "disk add situ-data fast"),
        (0, "inspect"),
        (0, "disk drain situ-data"),
        (1, "disk drain situ-data"),
        (0, "bench --keys 100 --workloads fillseq --output bench.json"),
        (2, "bench --keys 0"),
        (2, "bench --memtable-bytes 1K"),
        (2, "bench --workloads ycsb-a"),
        (1, "bench --existing"),
        (0, "bench report bench.json"),
        (1, "bench report result.json"),
        (2, "bench report bench.json --baseline nobody"),
        (1, "serve --listen 192.0.2.1:1 --no-http"),
        (2, "serve --listen nonsense"),
        (2, "frobnicate"),
        (2, ""),
        (0, "--version"),
        (0, "--help"),
        (0, "help load"),
        (0, "scan --help"),
    ];
    for (code, line) in cases {
        let mut arguments: Vec<&str> = line.split_whitespace().collect();
        // `help` takes only the names of commands.
        arguments.insert(if line.starts_with("help") { 0 } else { arguments.len() }, "--json");
        let ran = situ(at, &arguments);
        assert_eq!(ran.code, *code, "{line}: {ran:?}");
        let answers = json_alone(&ran.text(), &arguments);
        let told = json_alone(&ran.stderr, &arguments);
        match *code {
            0 => assert!(!answers.is_empty() || line.starts_with("scan"), "{line}: {ran:?}"),
            // A miss is an answer.
            3 => assert_eq!((answers.len(), told.len()), (1, 0), "{ran:?}"),
            code => {
                let error = told.last().unwrap();
                assert_eq!((&error["event"], &error["exit_code"]), (&json!("error"), &json!(code)), "{line}: {ran:?}");
                assert!(answers.is_empty(), "{line}: {ran:?}");
            }
        }
    }
}

/// What a command found was lost with its reader: `situ get nothing --json | true` and `situ verify | true` ended with 0.
#[test]
fn a_reader_that_goes_away_changes_no_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "v"]).done();
    for (code, arguments) in [(3, &["get", "nothing", "--json"][..]), (0, &["get", "k"]), (0, &["verify"])] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = program(at).args(arguments).stdout(writer).output().unwrap();
        assert_eq!((ran.status.code(), ran.stderr.as_slice()), (Some(code), &b""[..]), "{arguments:?}");
    }
}

/// An empty key was looked up; one that is too long was named after the store had been opened, or made.
#[test]
fn keys_that_cannot_be_are_refused_before_the_store_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let long = "k".repeat(65_537);
    for (key, says) in [("", "the key is empty"), (&*long, "a key has at most 65536 bytes, and this one has 65537")] {
        for arguments in [&["get", key][..], &["put", key, "v"], &["delete", key]] {
            let refused = situ(at, arguments);
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(refused.stderr.contains(says), "{}", refused.stderr);
        }
    }
    assert_eq!(fs::read_dir(at).unwrap().count(), 0);
    let longest = "k".repeat(65_536);
    situ(at, &["put", &longest, "v"]).done();
    assert_eq!(situ(at, &["get", &longest]).done().text(), "v\n");
}

/// An interrupted benchmark left its store, which was in the way of the next one.
#[test]
fn an_interrupted_benchmark_leaves_nothing() {
    interrupt_benchmarks(&[]);
}

/// A driver of OpenCL caught the signal, and ended the program.
#[test]
fn an_interrupted_benchmark_leaves_nothing_with_drivers_of_accelerators() {
    let directory = tempfile::tempdir().unwrap();
    let known = situ(directory.path(), &["inspect", "--units", "--json"]).done();
    let is_usable = |line: &str| line.contains("\"name\":\"opencl:0\"") && line.contains("\"usable\":true");
    if !known.text().lines().any(is_usable) {
        return skipped::skipped("there is no device of OpenCL, or the program does not know OpenCL");
    }
    interrupt_benchmarks(&["--accelerator", "opencl:0"]);
}

fn interrupt_benchmarks(more: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (signal, code, json) in [(Signal::INT, 130, false), (Signal::TERM, 143, true)] {
        let mut bench = program(at);
        bench
            .args(["bench", "--keys", "100m", "--workloads", "fillrandom"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if json {
            bench.arg("--json");
        }
        let bench = bench.spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !at.join("situ-bench-data/store/CURRENT").exists() {
            assert!(std::time::Instant::now() < deadline, "the benchmark does not begin");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&bench), signal).unwrap();
        let ended = bench.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(code), 0), "{}: {said}", ended.status);
        assert_eq!(fs::read_dir(at).unwrap().count(), 0, "{said}");
        if json {
            let error = &json_alone(&said, &["bench"])[0];
            assert_eq!((&error["exit_code"], &error["why"]), (&json!(143), &json!("ended by SIGTERM")));
        } else {
            assert!(said.contains("interrupted by SIGINT") && said.contains("its store is removed"), "{said}");
        }
    }
}

/// Settings were text, as Rust shows its own types.
#[test]
fn the_settings_of_a_benchmark_are_numbers_with_public_names() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let bench = ["bench", "--keys", "100", "--workloads", "fillseq", "--cache-bytes", "8M", "--json"];
    let ran = situ(at, &bench).done();
    let settings = ran.json()["store_settings"].clone();
    assert_eq!((&settings["cache_bytes"], &settings["compression"]), (&json!(8 << 20), &json!("none")));
    for internal in ["Ablation", "Some(", "None", "[None]", "ablation"] {
        assert!(!ran.text().contains(internal), "{internal} in {}", ran.text());
    }
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "the directory is removed, too");
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "k", "then"]).done();
    situ(at, &["put", "-k", "other", "k", "then"]).done();
    let made = situ(at, &["checkpoint", "-o", "copies/1"]).done().text();
    assert!(made.starts_with("copies/1: 2 tables shared with the store, 0 copied"), "{made}");
    situ(at, &["put", "k", "now"]).done();
    assert_eq!(situ(at, &["get", "k", "-d", "copies/1"]).done().text(), "then\n");
    assert_eq!(situ(at, &["get", "k", "-d", "copies/1", "-k", "other"]).done().text(), "then\n");
    situ(at, &["verify", "copies/1"]).done();
    let made = situ(at, &["checkpoint", "-o", "copies/2", "--json"]).done().json();
    assert_eq!((made["directory"].as_str(), made["shared_tables"].as_u64()), (Some("copies/2"), Some(3)), "{made}");

    let refused = situ(at, &["checkpoint", "-o", "copies/2"]);
    assert!(refused.code == 1 && refused.stderr.contains("needs an empty place"), "{}", refused.stderr);
    let missing = situ(at, &["checkpoint", "nowhere", "-o", "copies/3"]);
    assert!(missing.code == 1 && missing.stderr.contains("nowhere does not exist"), "{}", missing.stderr);
    assert!(!at.join("nowhere").exists() && !at.join("copies/3").exists());
    let mut serving = Serving::start(at, &[]);
    situ(at, &["checkpoint", "-o", "copies/3"]).done();
    situ(at, &["verify", "copies/3"]).done();
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), Some(0));
}
