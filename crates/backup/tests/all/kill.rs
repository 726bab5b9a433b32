//! Processes that are killed while they make or restore backups, at random moments.

use crate::common::*;
use situ_backup::Backups;
use situ_engine::StoreBuilder;
use situ_sim::Rng;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TASK: &str = "SITU_BACKUP_TEST_TASK";
const PLACE: &str = "SITU_BACKUP_TEST_PLACE";

/// The process that is killed; as a test of its own, it does nothing.
#[test]
fn child() {
    let (Ok(task), Some(place)) = (std::env::var(TASK), std::env::var_os(PLACE)) else { return };
    let place = Path::new(&place);
    let backups = Backups::open_or_make(place.join("backups")).unwrap();
    match task.as_str() {
        "create" => {
            let store = StoreBuilder::new(options(true)).open(place.join("store")).unwrap();
            backups.create(&store).unwrap();
        }
        _ => drop(backups.restore(None, place.join("restored"), &mut |_| {}).unwrap()),
    }
}

fn start(task: &str, place: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child"]).env(TASK, task).env(PLACE, place);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns how long a whole run takes.
fn whole_run(task: &str, place: &Path) -> Duration {
    let started = Instant::now();
    assert!(start(task, place).wait().unwrap().success());
    started.elapsed()
}

/// Kills a run at a moment. Returns true if the run ended first.
fn killed_run(task: &str, place: &Path, after: Duration) -> bool {
    let mut child = start(task, place);
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap().success()
}

#[test]
fn promise_4_a_backup_whose_process_is_killed_is_absent_or_whole() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let mut rng = Rng::new(1);
    let mut expected = Vec::new();
    let mut killed = 0;
    // The time of a run, which is about that of each later one.
    let mut whole = Duration::ZERO;
    let backups = Backups::open_or_make(place.join("backups")).unwrap();
    for round in 0..20 {
        let store = open(&place.join("store"), true);
        write(&store, round * 60..round * 60 + 200, round as u8);
        store.close().unwrap();
        let now = contents_at(&place.join("store"));
        let before = backups.list().unwrap().backups.len();
        if round == 0 {
            whole = whole_run("create", place);
        } else {
            killed += u32::from(!killed_run("create", place, whole.mul_f64(rng.below(1000) as f64 / 1000.0)));
        }
        let listing = backups.list().unwrap();
        assert!(listing.damaged.is_empty());
        expected.resize(listing.backups.len(), now.clone());
        assert!(listing.backups.len() <= before + 1);
        assert_sound(&backups);
    }
    assert!(killed > 5, "only {killed} runs were killed");
    let store = open(&place.join("store"), true);
    backups.create(&store).unwrap();
    expected.push(contents(&store));
    let made = backups.list().unwrap().backups;
    assert_eq!(made.len(), expected.len());
    for (backup, expected) in made.iter().zip(&expected) {
        assert_eq!(restored(&backups, Some(backup.id)), *expected);
    }
}

#[test]
fn a_restore_whose_process_is_killed_is_no_store_and_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let store = open(&place.join("store"), true);
    write(&store, 0..3000, 1);
    let backups = Backups::open_or_make(place.join("backups")).unwrap();
    backups.create(&store).unwrap();
    let whole = whole_run("restore", place);
    let mut rng = Rng::new(2);
    let (mut killed, mut kept) = (0, 0);
    // Where copying is a small part of a run, few kills meet it.
    for round in 0..100 {
        if round >= 15 && killed > 5 && kept > 0 {
            break;
        }
        std::fs::remove_dir_all(place.join("restored")).unwrap();
        for _ in 0..3 {
            let ended = killed_run("restore", place, whole.mul_f64(rng.below(1000) as f64 / 1000.0));
            if place.join("restored/CURRENT").exists() {
                break;
            }
            assert!(!ended);
            killed += 1;
        }
        if !place.join("restored/CURRENT").exists() {
            kept += backups.restore(None, place.join("restored"), &mut |_| {}).unwrap().kept_files;
        }
        assert_eq!(contents_at(&place.join("restored")), contents(&store));
    }
    assert!(killed > 5 && kept > 0, "{killed} killed, {kept} files kept");
}
