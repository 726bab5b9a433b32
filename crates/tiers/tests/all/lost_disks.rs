//! A home that has lost DISKS, the file that names the fast disk: nothing that is advised, and nothing that is done without being
//! told, may give up what lies there.

use crate::common::fast::{builder, fill, holds, small};
use situ_engine::{Error, RepairOptions};
use situ_tiers::{TieredRepair, TieredStore, repair_directory, verify_directory};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

struct Places {
    root: tempfile::TempDir,
    home: PathBuf,
    fast: PathBuf,
}

fn places() -> Places {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    Places { root, home, fast }
}

fn closed_store(home: &Path, fast: Option<&Path>, from: u32, count: u32) {
    let store = builder(fast).open(home).unwrap();
    fill(&store, from, count);
    store.wait_idle().unwrap();
    store.close().unwrap();
}

fn opens(home: &Path, count: u32) {
    let store = builder(None).open(home).unwrap();
    holds(&store, count);
    store.close().unwrap();
    assert!(verify_directory(home, &mut |_| {}).unwrap().is_sound());
}

fn refused<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Disks(text)) => text,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("no error"),
    }
}

fn repair_with(fast: Option<&Path>) -> RepairOptions {
    fast.iter().fold(RepairOptions::default().options(small()), |options, fast| options.fast_disk(fast))
}

fn without() -> RepairOptions {
    repair_with(None).without_fast_disk(true)
}

fn dry(how: RepairOptions) -> RepairOptions {
    RepairOptions { dry_run: true, ..how }
}

/// The files of some directories and what is in them.
fn contents(directories: &[&Path]) -> Vec<BTreeMap<OsString, Vec<u8>>> {
    let files = |directory: &&Path| std::fs::read_dir(directory).unwrap().flatten();
    let read = |entry: std::fs::DirEntry| (entry.file_name(), std::fs::read(entry.path()).unwrap());
    directories.iter().map(|directory| files(directory).map(read).collect()).collect()
}

/// The store looked like one with one disk that lacked files, and the repair that was advised went on without them. With the
/// disk named it was the disk of another store, and its files were to be removed.
#[test]
fn a_store_whose_disks_is_gone_is_led_to_the_repair_that_loses_nothing() {
    // With tables on the fast disk, with a log alone, and with a log of which another file is at home.
    for (count, is_log_at_home) in [(500, false), (20, false), (20, true)] {
        let Places { home, fast, root: _root } = &places();
        closed_store(home, Some(fast), 0, count);
        if is_log_at_home {
            std::fs::write(home.join("000099.log"), [0; 16 << 10]).unwrap();
        }
        std::fs::remove_file(home.join("DISKS")).unwrap();
        let before = contents(&[home, fast]);
        let verified = verify_directory(home, &mut |_| {}).unwrap();
        assert!(!verified.is_sound() && verified.warnings.len() == 1, "{verified}");
        let unnamed = [
            verified.warnings[0].clone(),
            refused(builder(None).open(home)),
            refused(builder(None).read_only().open(home)),
            refused(repair_directory(home, repair_with(None))),
            refused(repair_directory(home, dry(repair_with(None)))),
        ];
        for text in unnamed {
            let keeps = format!("`situ repair --fast-disk PATH {}`", home.display());
            let loses = "--without-fast-disk";
            let (keeps, loses) = (text.find(&keeps), text.find(loses));
            assert!(keeps.is_some() && keeps < loses && text.contains("nothing is lost"), "{text}");
        }
        let text = refused(builder(Some(fast)).open(home));
        let fast_shown = fast.canonicalize().unwrap();
        let keeps = text.find(&format!("`situ repair --fast-disk {} {}`", fast_shown.display(), home.display()));
        assert!(keeps.is_some() && keeps < text.find("--force"), "{text}");
        let plan = repair_directory(home, dry(repair_with(Some(fast)))).unwrap();
        assert!(plan.nothing_lost() && !plan.was_sound, "{plan}");
        assert!(contents(&[home, fast]) == before, "something was changed");
        let report = repair_directory(home, repair_with(Some(fast))).unwrap();
        assert!(report.nothing_lost() && !report.was_sound, "{report}");
        opens(home, count);
    }
}

/// A home that had lost CURRENT, too, was taken for one without a store: the next put made one and removed the manifest, and a
/// repair that was told of no disk gave up all that lay there, as it did beside a manifest that is damaged.
#[test]
fn a_store_whose_disks_is_gone_and_whose_manifest_is_not_in_force_is_led_there_as_well() {
    let manifests = |home: &Path| -> Vec<PathBuf> {
        let names = std::fs::read_dir(home).unwrap().flatten().map(|entry| entry.path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("MANIFEST")).collect()
    };
    let ways: [&dyn Fn(&Path); 3] = [
        &|home| std::fs::remove_file(home.join("CURRENT")).unwrap(),
        &|home| std::fs::write(home.join("CURRENT"), "situ? no").unwrap(),
        &|home| {
            for path in manifests(home) {
                let mut bytes = std::fs::read(&path).unwrap();
                *bytes.last_mut().unwrap() ^= 1;
                std::fs::write(path, bytes).unwrap();
            }
        },
    ];
    for way in ways {
        let Places { home, fast, root: _root } = &places();
        closed_store(home, Some(fast), 0, 500);
        // A manifest that was rewritten at an opening, and has more than one edit.
        closed_store(home, Some(fast), 500, 500);
        std::fs::remove_file(home.join("DISKS")).unwrap();
        way(home);
        let before = contents(&[home, fast]);
        for error in [builder(None).open(home).err().unwrap(), builder(None).read_only().open(home).err().unwrap()] {
            assert!(!error.to_string().contains("there is no store"), "{error}");
        }
        for how in [repair_with(None), dry(repair_with(None))] {
            let text = refused(repair_directory(home, how));
            assert!(text.contains(&format!("`situ repair --fast-disk PATH {}`", home.display())), "{text}");
        }
        let unlocked = |mut all: Vec<BTreeMap<OsString, Vec<u8>>>| {
            all.iter_mut().for_each(|files| drop(files.remove(std::ffi::OsStr::new("LOCK"))));
            all
        };
        assert!(unlocked(contents(&[home, fast])) == unlocked(before), "something was changed");
        let report = repair_directory(home, repair_with(Some(fast))).unwrap();
        assert!(report.nothing_lost() && !report.was_sound, "{report}");
        opens(home, 1000);
    }
}

/// Device names that change places at a start led to nothing but the advice to empty the disks.
#[test]
fn disks_that_have_changed_places_are_told_what_to_do() {
    let Places { home, fast, root } = &places();
    let (other, others) = (&root.path().join("other"), &root.path().join("other fast"));
    closed_store(home, Some(fast), 0, 500);
    closed_store(other, Some(others), 0, 500);
    let between = root.path().join("between");
    for (from, to) in [(fast, &between), (others, fast), (&between, others)] {
        std::fs::rename(from, to).unwrap();
    }
    for text in [refused(builder(None).open(home)), refused(builder(Some(fast)).open(home))] {
        let add = text.find(&format!("`situ disk add {} PATH`", home.display()));
        assert!(add.is_some() && add < text.find("--without-fast-disk") && add < text.find("--force"), "{text}");
    }
    let store = builder(Some(others)).open(home).unwrap();
    holds(&store, 500);
    store.close().unwrap();
    // And a disk that is nobody's, for a store whose DISKS cannot be read.
    let blank = root.path().join("blank");
    std::fs::create_dir(&blank).unwrap();
    std::fs::write(home.join("DISKS"), "situ? no").unwrap();
    let text = refused(repair_directory(home, repair_with(Some(&blank))));
    assert!(!text.contains("which has none") && text.contains("Name the disk that the store has"), "{text}");
}

/// An older copy of DISKS, of before the store had its fast disk, was believed, and a repair gave up what lay on that.
#[test]
fn a_disks_that_knows_of_no_fast_disk_is_not_believed_against_the_manifest() {
    let Places { home, fast, root } = &places();
    closed_store(home, Some(fast), 0, 500);
    let store = builder(Some(fast)).open(home).unwrap();
    store.drain_fast_disk().unwrap();
    store.close().unwrap();
    let older = std::fs::read(home.join("DISKS")).unwrap();
    let again = root.path().join("again");
    closed_store(home, Some(&again), 500, 500);
    std::fs::write(home.join("DISKS"), older).unwrap();
    let before = contents(&[home, &again]);
    for text in [refused(builder(None).open(home)), refused(repair_directory(home, repair_with(None)))] {
        assert!(text.contains("Rename DISKS before") && text.contains("situ repair --fast-disk PATH"), "{text}");
    }
    assert!(contents(&[home, &again]) == before, "something was changed");
    std::fs::rename(home.join("DISKS"), root.path().join("moved away")).unwrap();
    let report = repair_directory(home, repair_with(Some(&again))).unwrap();
    assert!(report.nothing_lost() && !report.was_sound, "{report}");
    opens(home, 1000);
}

/// The repair that was told the disk refused it when MEMBER was gone as well, and only the one that loses was left.
#[test]
fn a_store_both_of_whose_disks_have_forgotten_each_other_is_repaired_without_a_loss() {
    let ways: [fn(PathBuf); 2] =
        [|file| std::fs::remove_file(file).unwrap(), |file| std::fs::write(file, "situ? no").unwrap()];
    for (count, [disks, member]) in [500, 20].into_iter().flat_map(|count| {
        [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[disks, member]: [usize; 2]| (count, [ways[disks], ways[member]]))
    }) {
        let Places { home, fast, root } = &places();
        let (other, others) = (&root.path().join("other"), &root.path().join("other fast"));
        closed_store(home, Some(fast), 0, count);
        // Tables that are the same to the byte and the second would be told apart by nobody.
        let store = builder(Some(others)).open(other).unwrap();
        store.put(b"key", b"of another store").unwrap();
        fill(&store, 0, count + 1);
        store.wait_idle().unwrap();
        store.close().unwrap();
        for (home, fast) in [(home, fast), (other, others)] {
            disks(home.join("DISKS"));
            member(fast.join("MEMBER"));
        }
        let all: [&Path; 4] = [home, fast, other, others];
        let before = contents(&all);
        if let Err(Error::Disks(text)) = builder(Some(fast)).open(home) {
            let fast_shown = fast.canonicalize().unwrap();
            assert!(
                text.contains(&format!("`situ repair --fast-disk {} {}`", fast_shown.display(), home.display())),
                "{text}"
            );
        }
        for (home, wrong) in [(home, others), (other, fast)] {
            let text = refused(repair_directory(home, repair_with(Some(wrong))));
            assert!(text.contains("nothing else says that"), "{text}");
        }
        let plan = repair_directory(home, dry(repair_with(Some(fast)))).unwrap();
        assert!(plan.nothing_lost() && !plan.was_sound, "{plan}");
        assert!(contents(&all) == before, "something was changed");
        for (home, fast, count) in [(home, fast, count), (other, others, count + 1)] {
            let report = repair_directory(home, repair_with(Some(fast))).unwrap();
            assert!(report.nothing_lost() && !report.was_sound, "{report}");
            opens(home, count);
        }
    }
}

fn remove_all(home: &Path, extension: &str) {
    for entry in std::fs::read_dir(home).unwrap().flatten() {
        if entry.path().extension().is_some_and(|found| found == extension) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Verify said that a repair can go on, the repair refused, and both spoke of a fast disk that never was.
#[test]
fn a_store_that_never_had_a_fast_disk_and_lost_its_log_hears_nothing_of_fast_disks() {
    let Places { home, root: _root, .. } = &places();
    closed_store(home, None, 0, 500);
    remove_all(home, "log");
    let verified = verify_directory(home, &mut |_| {}).unwrap();
    let opened = builder(None).open(home).err().unwrap().to_string();
    let plan = repair_directory(home, dry(repair_with(None))).unwrap();
    let report = repair_directory(home, repair_with(None)).unwrap();
    assert!(!verified.is_sound() && verified.warnings.is_empty(), "{verified}");
    assert_eq!(verified.damages, report.damages, "verify and repair say the same");
    assert_eq!(verified.damages, plan.damages);
    for text in [verified.to_string(), opened, plan.to_string(), report.to_string()] {
        assert!(!text.contains("fast disk") && !text.contains("fast-disk"), "{text}");
        assert!(text.contains("situ repair can go on without it"), "{text}");
    }
    assert!(report.lost_ranges.is_empty() && !report.lost_writes.is_empty(), "{report}");
    builder(None).open(home).unwrap().close().unwrap();
    assert!(verify_directory(home, &mut |_| {}).unwrap().is_sound());
}

/// The manifest of an older program does not say whether there was a fast disk, and a log that is gone looks the same with one and
/// without. Who says that there was none goes on.
#[test]
fn a_store_of_an_older_program_whose_log_is_gone_is_repaired_when_it_is_said_to_have_no_fast_disk() {
    let Places { home, root: _root, .. } = &places();
    closed_store(home, None, 0, 500);
    remove_all(home, "copy");
    remove_all(home, "log");
    let verified = verify_directory(home, &mut |_| {}).unwrap();
    assert!(!verified.is_sound() && verified.warnings[0].contains("If the store has a fast disk"), "{verified}");
    let text = refused(repair_directory(home, repair_with(None)));
    assert!(text.contains("If the store has a fast disk") && text.contains("has no fast disk"), "{text}");
    let report = repair_directory(home, without()).unwrap();
    assert!(report.lost_ranges.is_empty() && !report.lost_writes.is_empty(), "{report}");
    builder(None).open(home).unwrap().close().unwrap();
}

/// Nor does a store get a disk that is not its own because it has no DISKS.
#[test]
fn a_repair_gives_no_store_the_disk_of_another_for_want_of_disks() {
    for count in [500, 20] {
        let Places { home, fast, root } = &places();
        // A home without a fast disk, and a copy of it that has one and has gone on.
        let copy = &root.path().join("copy");
        closed_store(home, None, 0, count);
        std::fs::create_dir(copy).unwrap();
        for entry in std::fs::read_dir(home).unwrap().flatten() {
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        closed_store(copy, Some(fast), count, 100);
        let before = contents(&[home, copy, fast]);
        for dry_run in [true, false] {
            let text = refused(repair_directory(home, RepairOptions { dry_run, ..repair_with(Some(fast)) }));
            assert!(text.contains("the home has all that the store needs"), "{text}");
        }
        assert!(contents(&[home, copy, fast]) == before, "something was changed");
        opens(copy, count + 100);
        opens(home, count);
    }
}
