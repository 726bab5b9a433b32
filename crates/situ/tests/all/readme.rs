//! What the README shows is what works.

use crate::skipped;
use std::fs;
use std::path::Path;
use std::process::Command;

fn project(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_readme_shows_the_tour_that_is_compiled_and_run() {
    let readme = project("README.md");
    let block = readme.split("```rust\n").nth(1).expect("the README has a Rust block");
    let shown = block.split("```").next().unwrap();
    assert_eq!(shown, project("crates/situ/examples/tour.rs"), "README.md and examples/tour.rs have drifted apart");
}

#[test]
fn the_tour_prints_what_the_snapshot_holds() {
    // Examples are built beside the tests.
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/tour");
    if !example.exists() {
        skipped::skipped("the example was not built with the tests");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let output = Command::new(&example).arg(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ada 1815\ngrace 1906-1992\n", "run {run}");
    }
}

#[test]
fn the_transactions_of_the_example_lose_no_money() {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/transactions");
    if !example.exists() {
        skipped::skipped("the example was not built with the tests");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let output = Command::new(&example).arg(directory.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let expected = "1000 transfers between 8 accounts with 800 in all\n";
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "run {run}");
    }
}

#[test]
fn the_readme_links_to_files_that_exist() {
    let readme = project("README.md");
    let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
        let path = target.split('#').next().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(root.join(path).exists(), "README.md links to {path}, which does not exist");
    }
}
