//! What a repair says of what is lost: everything, and no more than that.

use crate::common::fast;
use crate::common::fast::{builder, fill, holds, small};
use situ_engine::{Durability, RepairOptions};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume};
use situ_storage::{FileName, Volume};
use situ_tiers::{TieredBuilder, TieredRepair, repair_directory, repair_volumes};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options() -> RepairOptions {
    RepairOptions { options: small(), ..RepairOptions::default() }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(directory: &Path, is: fn(&FileName) -> bool) -> Vec<PathBuf> {
    let names = std::fs::read_dir(directory).unwrap().flatten();
    let names = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<FileName> = names.filter(is).collect();
    found.sort_unstable();
    found.into_iter().map(|name| directory.join(name.to_string())).collect()
}

fn is_table(name: &FileName) -> bool {
    matches!(name, FileName::Table(_))
}

/// An older copy of the fast disk beside a newer home: the log that was missing was the last one, and nothing was said of it.
#[test]
fn the_end_of_the_log_is_told_when_older_files_of_it_are_found() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast, older) = (root.path().join("home"), root.path().join("fast"), root.path().join("older"));
    let last = |count: u32, key: &[u8]| {
        let store = builder(Some(&fast)).open(&home).unwrap();
        fill(&store, 0, count);
        store.default_keyspace().put_with(key, b"value", Durability::Synced).unwrap();
        let sequence = store.properties().last_sequence;
        store.close().unwrap();
        sequence
    };
    last(500, b"first");
    copy(&fast, &older);
    let store = builder(Some(&fast)).open(&home).unwrap();
    store.default_keyspace().compact(None, None).unwrap();
    store.close().unwrap();
    let sequence = last(0, b"zzz");
    std::fs::remove_dir_all(&fast).unwrap();
    std::fs::rename(&older, &fast).unwrap();
    let report = repair_directory(&home, options()).unwrap();
    assert!(report.lost_writes.iter().any(|lost| lost.contains(sequence)), "write {sequence} of {report}");
}

/// A table whose end is cut said no more which keyspace it is of, and its entries went into another one, beside a table that a
/// killed compaction had left.
#[test]
fn a_manifest_that_does_not_fit_still_knows_whose_a_table_is() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let store = builder(None).open(&home).unwrap();
    fill(&store, 0, 10);
    let count = 3000;
    for name in ["users", "orders"] {
        let keyspace = store.create_keyspace(name, small().keyspace).unwrap();
        for n in 0..count {
            keyspace.put(format!("{name} {n:06}").as_bytes(), [n as u8; 10]).unwrap();
        }
        keyspace.compact(None, None).unwrap();
    }
    store.wait_idle().unwrap();
    store.close().unwrap();
    let tables = files(&home, is_table);
    std::fs::copy(tables.last().unwrap(), home.join("000900.table")).unwrap();
    let first = std::fs::OpenOptions::new().write(true).open(&tables[0]).unwrap();
    first.set_len(first.metadata().unwrap().len() - 10).unwrap();
    let report = repair_directory(&home, options()).unwrap();
    let mut keyspaces = report.keyspaces.clone();
    keyspaces.sort_unstable();
    assert_eq!(keyspaces, ["default", "orders", "users"], "{report}");
    assert!(report.nothing_lost(), "{report}");
    let store = builder(None).open(&home).unwrap();
    holds(&store, 10);
    for name in ["users", "orders"] {
        let keyspace = store.existing_keyspace(name).unwrap();
        for n in 0..count {
            let found = keyspace.get(format!("{name} {n:06}").as_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&[n as u8; 10][..]), "{name} {n}");
        }
    }
    store.close().unwrap();
}

/// Without a manifest nobody knew of tables that were gone, and nothing was said to be lost.
#[test]
fn writes_between_the_tables_and_the_log_are_missed() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    let store = builder(None).open(&home).unwrap();
    fill(&store, 0, 500);
    store.flush().unwrap();
    store.put(b"zzz", b"in the log").unwrap();
    store.close().unwrap();
    let is_gone = |name: &FileName| is_table(name) || matches!(name, FileName::Manifest(_) | FileName::ManifestCopy(_));
    for file in files(&home, is_gone) {
        std::fs::remove_file(file).unwrap();
    }
    let report = repair_directory(&home, options()).unwrap();
    assert!(report.lost_writes.iter().any(|lost| lost.contains(1)), "{report}");
    assert!(!report.nothing_lost() && report.notes.iter().any(|note| note.contains("no manifest is left")), "{report}");
}

/// What goes on in a newer log has newer sequence numbers there, and those between it and the tables were said to be lost.
#[test]
fn writes_that_were_carried_over_are_not_missed() {
    for (openings, table_is_gone) in [(1, false), (3, false), (3, true)] {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let store = builder(None).open(&home).unwrap();
        fill(&store, 0, 500);
        store.flush().unwrap();
        (0..5).for_each(|_| store.put(b"zzz", b"in the log").unwrap());
        store.close().unwrap();
        (0..openings).for_each(|_| builder(None).open(&home).unwrap().close().unwrap());
        let is_gone = move |name: &FileName| matches!(name, FileName::Manifest(_) | FileName::ManifestCopy(_));
        let gone =
            files(&home, is_gone).into_iter().chain(files(&home, is_table).into_iter().filter(|_| table_is_gone));
        gone.for_each(|file| std::fs::remove_file(file).unwrap());
        let report = repair_directory(&home, options()).unwrap();
        assert!(report.without_manifest, "{report}");
        assert_eq!(report.lost_writes.iter().any(|lost| lost.contains(1)), table_is_gone, "{report}");
        assert!(!report.lost_writes.iter().any(|lost| lost.contains(501)), "{openings} openings: {report}");
        // Where a compaction has let go of sequence numbers, the repair says where the log begins; nothing more.
        let doubts = |note: &String| note.contains("the log begins at") && !note.contains(" number 501.");
        let doubts = report.notes.iter().any(doubts);
        assert!(!doubts, "{openings} openings: {report}");
        let store = builder(None).open(&home).unwrap();
        assert_eq!(store.get(b"zzz").unwrap().as_deref(), Some(&b"in the log"[..]));
        store.close().unwrap();
    }
}

/// The log had begun at home and went on on the fast disk that was given up: nothing was said to be lost.
#[test]
fn a_log_that_may_have_gone_on_is_told_when_the_fast_disk_is_given_up() {
    // What is little goes on in the new log, on the fast disk, at once; the old log file at home is kept for what is more.
    for (value_bytes, begins_at_home) in [(5, false), (100_000, true)] {
        a_log_goes_on_on_a_fast_disk_that_is_given_up(value_bytes, begins_at_home);
    }
}

fn a_log_goes_on_on_a_fast_disk_that_is_given_up(value_bytes: usize, begins_at_home: bool) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let home = SimVolume::named(&env, "home", FaultPlan::none(), 1);
        let fast = SimVolume::named(&env, "fast", FaultPlan::none(), 2);
        let mut large = small();
        large.keyspace.memtable_bytes = 1 << 20;
        let open = |home: &SimVolume, fast: Option<&SimVolume>| {
            let fast = fast.map(|fast| Arc::new(fast.clone()) as Arc<dyn Volume>);
            fast::tiered(large.clone()).env(env.clone()).open_volumes(Arc::new(home.clone()), fast).unwrap()
        };
        let synced = |store: &situ_engine::Store, key: &str| {
            store.default_keyspace().put_with(key.as_bytes(), vec![7; value_bytes], Durability::Synced).unwrap();
        };
        let store = open(&home, None);
        synced(&store, "at home");
        let killed = home.crash_keep_all();
        drop(store);
        // Killed before what was replayed has become a table.
        for disk in [&killed, &fast] {
            let no_tables = Rule::new(Fault::Io).on(&[Operation::Create]).files(&[FileKind::Table]);
            disk.set_faults(FaultPlan::none().with(no_tables));
        }
        let store = open(&killed, Some(&fast));
        synced(&store, "after");
        let sequence = store.properties().last_sequence;
        let left: Arc<dyn Volume> = Arc::new(killed.crash_keep_all());
        drop(store);
        let options = options().without_fast_disk(true);
        let has_log = left.list().unwrap().iter().any(|file| matches!(file.name, FileName::Log(_)));
        assert_eq!(has_log, begins_at_home);
        let report = repair_volumes(&left, None, &env, options).unwrap();
        assert!(report.lost_writes.iter().any(|lost| lost.contains(sequence)), "write {sequence} of {report}");
    });
}
