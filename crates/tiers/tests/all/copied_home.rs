//! A home that was copied, and names the fast disk of the original.

use crate::common::fast::{builder, fill, holds};
use situ_engine::{Error, RepairOptions};
use situ_tiers::{TieredStore, repair_directory};
use std::path::Path;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn refused<T>(result: Result<T, Error>) {
    match result {
        Err(Error::Disks(text)) => assert!(text.contains("is a copy of the one in"), "{text}"),
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("no error"),
    }
}

fn opens_with(home: &Path, fast: Option<&Path>, count: u32) {
    let store = builder(fast).open(home).unwrap();
    holds(&store, count);
    store.close().unwrap();
}

/// Whoever opened a copy of the home, to look at a backup for one, took the log on the fast disk and removed it there: the
/// original did not open any more. Who destroyed the copy emptied the disk.
#[test]
fn a_copy_of_the_home_does_not_get_the_fast_disk_of_the_original() {
    let root = tempfile::tempdir().unwrap();
    let [home, fast, copied] = ["home", "fast", "copied"].map(|name| root.path().join(name));
    let store = builder(Some(&fast)).open(&home).unwrap();
    fill(&store, 0, 500);
    store.close().unwrap();
    copy(&home, &copied);
    refused(builder(None).open(&copied));
    refused(builder(Some(&fast)).open(&copied));
    refused(repair_directory(&copied, RepairOptions::default()));
    refused(situ_tiers::destroy(&copied));
    let reader = builder(None).read_only().open(&copied).unwrap();
    holds(&reader, 500);
    reader.close().unwrap();
    opens_with(&home, None, 500);
}

#[test]
fn a_copy_of_both_disks_is_a_store_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let [home, fast, copied, copied_fast] =
        ["home", "fast", "copied", "copied fast"].map(|name| root.path().join(name));
    let store = builder(Some(&fast)).open(&home).unwrap();
    fill(&store, 0, 500);
    store.close().unwrap();
    copy(&home, &copied);
    copy(&fast, &copied_fast);
    for _ in 0..2 {
        opens_with(&copied, Some(&copied_fast), 500);
        opens_with(&home, None, 500);
    }
    // The copy has found its own place, and the disk there.
    opens_with(&copied, None, 500);
    situ_tiers::destroy(&copied).unwrap();
    opens_with(&home, None, 500);
}

#[test]
fn a_home_that_has_moved_keeps_its_fast_disk() {
    let root = tempfile::tempdir().unwrap();
    let [home, fast, moved, copied] = ["home", "fast", "moved", "copied"].map(|name| root.path().join(name));
    let store = builder(Some(&fast)).open(&home).unwrap();
    fill(&store, 0, 500);
    store.close().unwrap();
    std::fs::rename(&home, &moved).unwrap();
    opens_with(&moved, None, 500);
    std::os::unix::fs::symlink(&moved, &home).unwrap();
    opens_with(&home, None, 500);
    // A copy goes on in its place when the original has been put aside, and then that one is the copy.
    copy(&moved, &copied);
    let aside = root.path().join("aside");
    std::fs::rename(&moved, &aside).unwrap();
    opens_with(&copied, None, 500);
    std::fs::rename(&copied, &moved).unwrap();
    opens_with(&moved, None, 500);
    refused(builder(None).open(&aside));
    // Another store where the home was is not that home.
    let elsewhere = root.path().join("elsewhere");
    std::fs::rename(&moved, &elsewhere).unwrap();
    builder(Some(&root.path().join("other fast"))).open(&moved).unwrap().close().unwrap();
    opens_with(&elsewhere, None, 500);
}

/// A home that was copied after a drain has the ids of the store. The disk that the original was given again was taken for what
/// an earlier life of the copy had left, and the advice was to format it.
#[test]
fn a_copy_of_a_drained_home_does_not_get_the_disk_that_the_original_has_again() {
    let root = tempfile::tempdir().unwrap();
    let [home, fast, copied] = ["home", "fast", "copied"].map(|name| root.path().join(name));
    let store = builder(Some(&fast)).open(&home).unwrap();
    fill(&store, 0, 500);
    store.drain_fast_disk().unwrap();
    store.close().unwrap();
    copy(&home, &copied);
    let store = builder(Some(&fast)).open(&home).unwrap();
    fill(&store, 500, 100);
    store.close().unwrap();
    let text = match builder(Some(&fast)).open(&copied).map(drop) {
        Err(Error::Disks(text)) => text,
        other => panic!("{other:?}"),
    };
    let shown = home.canonicalize().unwrap();
    assert!(text.contains(&format!("is the fast disk of the store in {}", shown.display())), "{text}");
    assert!(text.contains("disk drain") && !text.contains("format") && !text.contains("remove"), "{text}");
    opens_with(&copied, None, 500);
    opens_with(&home, None, 600);
    // Where nobody knows of the original, the disk says of which store it is, and emptying it comes last.
    let moved = root.path().join("moved");
    std::fs::rename(&home, &moved).unwrap();
    let text = match builder(Some(&fast)).open(&copied).map(drop) {
        Err(Error::Disks(text)) => text,
        other => panic!("{other:?}"),
    };
    let [whose, other, empty] =
        ["is the fast disk of the store ", "another home of the store", "--force"].map(|part| text.find(part));
    assert!(whose.is_some() && whose < other && other < empty, "{text}");
    opens_with(&moved, None, 600);
    // A disk of its own is what it gets.
    opens_with(&copied, Some(&root.path().join("own")), 500);
    opens_with(&moved, None, 600);
}
