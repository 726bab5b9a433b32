//! The README's session with the program is one that happened.

use crate::common;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Durations differ from run to run: "1.2 s" becomes "0.1 s".
fn without_durations(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for at in 1..words.len() {
        let unit = words[at].split('\n').next() == Some("s");
        if unit && words[at - 1].parse::<f64>().is_ok() {
            words[at - 1] = "0.1".to_owned();
        }
    }
    words.join(" ")
}

#[test]
fn the_session_in_the_readme_is_what_happens() {
    let directory = tempfile::tempdir().unwrap();
    the_session_happens_in(directory.path());
}

/// `make run` and the session share a directory: once, the items of the one and the keys of the other excluded each
/// other.
#[test]
fn the_session_happens_where_a_server_ran_and_a_server_runs_where_it_happened() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let serve = |expected: &str| {
        let mut serving = common::Serving::start(at, &[]);
        assert_eq!(serving.ask("get greeting\r\nset greeting 0 0 5\r\nitem!\r\nquit\r\n"), expected);
        serving.signal(rustix::process::Signal::INT);
        assert_eq!(serving.wait(), Some(0));
    };
    serve("END\r\nSTORED\r\n");
    the_session_happens_in(at);
    serve("VALUE greeting 0 5\r\nitem!\r\nEND\r\nSTORED\r\n");
    assert_eq!(common::situ(at, &["get", "greeting"]).done().text(), "hello\n");
    assert_eq!(common::situ(at, &["get", "--keyspace", "items", "greeting"]).done().text(), "item!\n");
}

fn the_session_happens_in(directory: &Path) {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let block = readme.split("```console\n").nth(1).expect("the README has a session");
    let block = block.split("```").next().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_situ"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let mut happened = String::new();
    for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("({line}) 2>&1")]).current_dir(directory).env("PATH", &path);
        let output = shell.output().unwrap();
        happened.push_str(&format!("$ {line}\n{}", String::from_utf8(output.stdout).unwrap()));
    }
    assert_eq!(without_durations(&happened), without_durations(block));
}

#[test]
fn every_command_explains_itself() {
    let directory = tempfile::tempdir().unwrap();
    let help = common::situ(directory.path(), &["--help"]).done().text();
    let codes: Vec<&str> = help.split("Exit codes:").nth(1).unwrap().split_whitespace().collect();
    for code in ["0", "1", "2", "3", "4", "130", "143"] {
        assert!(codes.contains(&code), "{code} in {help}");
    }
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|n| !n.is_empty())
        .collect();
    assert!(names.len() >= 13, "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        let help = common::situ(directory.path(), &[name, "--help"]).done().text();
        assert!(help.contains("Usage: situ"), "{name}: {help}");
    }
}
