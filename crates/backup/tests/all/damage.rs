//! Damaged and missing contents, full places, and refusals.

use crate::common::*;
use situ_backup::{Backups, Depth};
use situ_engine::{Error, Store};
use situ_storage::{DirectoryVolume, Volume};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn damage_is_named_and_never_restored_and_a_new_backup_replaces_what_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), true);
    write(&store, 0..600, 1);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    write(&store, 600..700, 2);
    backups.create(&store).unwrap();
    let expected = contents(&store);
    let damages = |depth| {
        let report = backups.verify(None, depth, &mut |_| {}).unwrap();
        assert_eq!(report.backups, [1, 2]);
        report.damages
    };
    for kind in [".table", ".values", ".small"] {
        // The first backup needs it, and so does the second, unless it is the manifest.
        let needed = backups.find(Some(1)).unwrap();
        assert!(needed.files > 5);
        let pool = files(&at("backups/files"), &[kind]);
        let restore = |id| {
            let into = tempfile::tempdir().unwrap();
            let result = backups.restore(Some(id), into.path().join("x"), &mut |_| {});
            assert_eq!(result.is_ok(), into.path().join("x/CURRENT").exists(), "in force, and only then");
            result
        };
        let mut found = 0;
        for name in pool.keys() {
            let path = at("backups/files").join(name);
            let whole = fs::read(&path).unwrap();
            let mut damaged = whole.clone();
            damaged[whole.len() / 2] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let found_damages = damages(Depth::Contents);
            assert_eq!(found_damages.len(), 1, "{found_damages:?}");
            assert!(found_damages[0].file == path && !found_damages[0].backups.is_empty());
            assert!(damages(Depth::Names).is_empty(), "a length is right");
            for id in &found_damages[0].backups {
                let error = restore(*id).unwrap_err();
                assert!(error.is_corruption() && error.to_string().contains(name.as_str()), "{error}");
            }
            fs::remove_file(&path).unwrap();
            for depth in [Depth::Contents, Depth::Names] {
                assert!(damages(depth)[0].to_string().contains("is missing"));
            }
            assert!(restore(found_damages[0].backups[0]).is_err());
            fs::write(&path, &whole).unwrap();
            found += 1;
            if found == 3 {
                break;
            }
        }
        assert!(found > 0, "no {kind}");
    }
    // A table that is gone is copied again.
    let tables = files(&at("backups/files"), &[".table"]);
    tables.keys().for_each(|name| fs::remove_file(at("backups/files").join(name)).unwrap());
    backups.create(&store).unwrap();
    assert_eq!(restored(&backups, Some(3)), expected);
    assert_eq!(restored(&backups, Some(2)), expected, "it has the same tables");
}

#[test]
fn damaged_metadata_is_listed_and_a_prune_removes_nothing_that_it_may_need() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), false);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    for round in 0..3 {
        write(&store, round * 100..round * 100 + 100, 1);
        backups.create(&store).unwrap();
    }
    let path = at("backups/000002.json");
    let text = fs::read_to_string(&path).unwrap().replacen("\"final\":true", "\"final\":false", 1);
    fs::write(&path, text).unwrap();
    let listing = backups.list().unwrap();
    assert_eq!(listing.backups.iter().map(|backup| backup.id).collect::<Vec<_>>(), [1, 3]);
    assert!(listing.damaged[0].0 == 2 && listing.damaged[0].1.is_corruption());
    let report = backups.verify(None, Depth::Names, &mut |_| {}).unwrap();
    assert!(report.damages.len() == 1 && report.damages[0].backups == [2], "{report:?}");
    assert!(backups.restore(Some(2), at("x"), &mut |_| {}).unwrap_err().is_corruption());
    let pool = files(&at("backups/files"), &[""]);
    let error = backups.prune(2).unwrap_err();
    assert!(error.to_string().contains("backup 2 would stay"), "{error}");
    assert!(files(&at("backups/files"), &[""]) == pool && backups.list().unwrap().backups.len() == 2);
    let report = backups.remove(&[2]).unwrap();
    assert_eq!((report.removed, report.kept), (vec![2], vec![1, 3]));
    assert_sound(&backups);
    assert!(matches!(backups.prune(0), Err(Error::Invalid(_))));
    assert!(matches!(backups.remove(&[7]), Err(Error::Existence(_))));
    assert_eq!(backups.prune(1).unwrap().removed, [1]);
    assert_eq!(restored(&backups, None), contents(&store));
}

/// One metadata file that could not be read ended the verification of all, and a prune said to remove its backup.
#[test]
fn metadata_that_cannot_be_read_is_a_damage_and_no_reason_to_remove_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), false);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    backups.create(&store).unwrap();
    // A read of a directory is an error of the system.
    fs::remove_file(at("backups/000001.json")).unwrap();
    fs::create_dir(at("backups/000001.json")).unwrap();
    let report = backups.verify(None, Depth::Contents, &mut |_| {}).unwrap();
    let [damage] = &report.damages[..] else { panic!("{report:?}") };
    let text = damage.to_string();
    assert!(damage.file == at("backups/000001.json") && text.ends_with("(backup 1)"), "{text}");
    assert!(report.backups == [1, 2] && report.files > 0);
    let error = backups.remove(&[2]).unwrap_err();
    assert!(matches!(error, Error::Storage(_)) && !error.to_string().contains("remove"), "{error}");
    assert_eq!(backups.list().unwrap().backups.len(), 1);
}

/// A new file system has this directory.
#[test]
fn the_root_of_a_file_system_takes_backups_and_restores_and_a_new_directory_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), false);
    write(&store, 0..10, 1);
    fs::create_dir_all(at("disk/lost+found")).unwrap();
    fs::create_dir_all(at("other disk/lost+found")).unwrap();
    let backups = Backups::open_or_make(at("disk")).unwrap();
    backups.create(&store).unwrap();
    backups.restore(None, at("other disk"), &mut |_| {}).unwrap();
    assert_eq!(contents_at(&at("other disk")), contents(&store));
    backups.restore(None, at("restored"), &mut |_| {}).unwrap();
    Backups::open_or_make(at("backups")).unwrap();
    for private in ["restored", "backups"] {
        assert_eq!(fs::metadata(at(private)).unwrap().permissions().mode() & 0o777, 0o700, "{private}");
    }
}

#[test]
fn one_process_at_a_time_changes_a_directory_of_backups() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), false);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    let lock = DirectoryVolume::open(at("backups")).unwrap().lock().unwrap();
    for refused in [backups.create(&store).map(drop), backups.prune(1).map(drop), backups.remove(&[1]).map(drop)] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("another backup or prune works on"), "{error}");
    }
    // These change nothing.
    assert_sound(&backups);
    assert_eq!(restored(&backups, None), contents(&store));
    drop(lock);
    assert_eq!(backups.create(&store).unwrap().id, 2);
}

#[test]
fn a_place_that_holds_something_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), false);
    write(&store, 0..100, 1);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    let refused = |into: &str| backups.restore(None, at(into), &mut |_| {}).unwrap_err().to_string();
    assert!(refused("store").contains("holds a store"));
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/notes"), "x").unwrap();
    assert!(refused("full").contains("holds other files (notes)"));
    // Once, a store was restored there, and the next backup removed it.
    for inside in ["backups", "backups/unfinished", "backups/new/store"] {
        assert!(refused(inside).contains("lies in the directory of backups"), "{inside}");
    }
    fs::create_dir(at("tables")).unwrap();
    fs::write(at("tables/000009.table"), "x").unwrap();
    assert!(refused("tables").contains("000009.table"));
    fs::write(at("file"), "x").unwrap();
    assert!(refused("file").contains("is a file"));
    let reader = Store::open_read_only(at("store"));
    assert!(matches!(reader.map(|reader| backups.create(&reader)), Ok(Err(Error::ReadOnly))));
}
