//! A fast disk that is there and cannot be used as it is: rot in DISKS or MEMBER, a device that fails, what a repair left on it.
//! Nothing of that may lead to giving up what lies on the disk.

use crate::common::fast;
use crate::common::fast::{builder, fill, holds, small};
use situ_base::Env;
use situ_engine::{Durability, Error, RepairOptions};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{Fault, FaultPlan, Operation, Rule, SimExecutor, SimVolume};
use situ_storage::{DirectoryVolume, FileName, Volume};
use situ_tiers::{
    TieredBuilder, TieredRepair, TieredStore, repair_directory, repair_volumes, verify_directory, verify_volumes,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

struct Places {
    _root: tempfile::TempDir,
    home: PathBuf,
    fast: PathBuf,
}

fn places() -> Places {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    Places { _root: root, home, fast }
}

/// A preallocated file stands for a device.
fn raw_disk(at: &Path) {
    std::fs::File::create(at).unwrap().set_len(64 << 20).unwrap();
    let device = situ_device::open(at, situ_device::OpenOptions::default()).unwrap();
    RawVolume::format(device, Env::system(), &FormatOptions::default()).unwrap();
}

fn raw_files(at: &Path) -> Vec<FileName> {
    let device = situ_device::open(at, situ_device::OpenOptions::default()).unwrap();
    let disk = RawVolume::open(device, Env::system(), RawOptions::default()).unwrap();
    disk.list().unwrap().iter().map(|file| file.name).collect()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn files(directory: &Path, is: fn(&FileName) -> bool) -> Vec<FileName> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    files.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is).collect()
}

fn is_damaged(name: &FileName) -> bool {
    matches!(name, FileName::Damaged(_))
}

fn refused<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Disks(text)) => text,
        Err(other) => panic!("another error: {other:?}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn rot_in_disks_or_member_is_found_and_repaired() {
    for name in ["DISKS", "MEMBER"] {
        let Places { home, fast, .. } = &places();
        let store = builder(Some(fast)).open(home).unwrap();
        fill(&store, 0, 500);
        store.close().unwrap();
        let file = if name == "DISKS" { home.join(name) } else { fast.join(name) };
        flip(&file, 30);
        let open = |fast: Option<&Path>| builder(fast).open(home).map(|_| ()).unwrap_err();
        assert!(open(Some(fast)).is_corruption());
        let volume = |path: &Path| -> Arc<dyn Volume> { Arc::new(DirectoryVolume::open(path).unwrap()) };
        let (capacity, other) = (volume(home), volume(fast));
        let report = verify_volumes(&capacity, Some(&other), &Env::system(), &mut |_| {}).unwrap();
        assert_eq!(report.damages.len(), 1, "{report}");
        let report = repair_volumes(&capacity, Some(&other), &Env::system(), RepairOptions::default()).unwrap();
        assert!(report.nothing_lost() && !report.was_sound, "{report}");
        let store = builder(Some(fast)).open(home).unwrap();
        holds(&store, 500);
        store.close().unwrap();
    }
}

/// The disk was asked for whose it is before it was given to the repair, and one that did not answer was taken for lost:
/// the one repair that the program could do then was to give up the log.
#[test]
fn a_store_whose_disks_or_member_is_rotten_is_repaired_by_its_directory() {
    for name in ["DISKS", "MEMBER"] {
        let Places { home, fast, .. } = &places();
        let store = builder(Some(fast)).open(home).unwrap();
        fill(&store, 0, 500);
        store.close().unwrap();
        flip(&if name == "DISKS" { home.join(name) } else { fast.join(name) }, 30);
        let error = builder(None).open(home).map(drop).unwrap_err();
        assert!(error.is_corruption() && !error.to_string().contains("lost"), "{name}: {error}");
        let verified = verify_directory(home, &mut |_| {}).unwrap();
        let unchecked = |warning: &String| warning.contains("logs were not checked") && warning.contains(name);
        assert!(verified.damages.len() == 1 && verified.warnings.iter().any(unchecked), "{verified}");
        let mut how = RepairOptions::default();
        if name == "DISKS" {
            let text = refused(repair_directory(home, how.clone()));
            assert!(text.contains("--fast-disk PATH") && text.contains("nothing is lost"), "{text}");
            how = how.fast_disk(fast);
        }
        let plan = repair_directory(home, RepairOptions { dry_run: true, ..how.clone() }).unwrap();
        assert!(plan.nothing_lost() && !plan.was_sound, "{plan}");
        let report = repair_directory(home, how).unwrap();
        assert!(report.nothing_lost() && !report.was_sound, "{report}");
        let store = builder(None).open(home).unwrap();
        holds(&store, 500);
        store.close().unwrap();
    }
}

/// A fast disk that had lost MEMBER was refused as another one by the repair, too, which could only give up the log.
#[test]
fn a_member_that_is_gone_is_written_again() {
    // With tables on the fast disk, and with a log alone.
    for count in [500, 20] {
        let Places { home, fast, .. } = &places();
        closed_store(home, fast, count);
        std::fs::remove_file(fast.join("MEMBER")).unwrap();
        let text = refused(builder(None).open(home));
        assert!(text.contains("no file MEMBER") && text.contains("`situ repair` finds out"), "{text}");
        // An empty directory, where the disk is not mounted.
        let unmounted = &fast.with_file_name("unmounted");
        std::fs::create_dir(unmounted).unwrap();
        let text = refused(repair_directory(home, repaired_with(unmounted)));
        assert!(text.contains("nothing else says") && text.contains("Nothing was changed"), "{text}");
        let plan = repair_directory(home, RepairOptions { dry_run: true, options: small() }).unwrap();
        assert!(plan.nothing_lost() && !plan.was_sound && !fast.join("MEMBER").exists(), "{plan}");
        let report = repair_directory(home, RepairOptions { options: small(), ..Default::default() }).unwrap();
        assert!(report.nothing_lost() && !report.was_sound, "{report}");
        let store = builder(None).open(home).unwrap();
        holds(&store, count);
        store.close().unwrap();
    }
}

/// The files of a directory and what is in them.
fn contents(directory: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    files.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect()
}

fn closed_store(home: &Path, fast: &Path, count: u32) {
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, count);
    store.wait_idle().unwrap();
    store.close().unwrap();
}

fn copy_home(home: &Path, copy: &Path) {
    std::fs::create_dir(copy).unwrap();
    for entry in std::fs::read_dir(home).unwrap().flatten() {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
}

fn repaired_with(fast: &Path) -> RepairOptions {
    RepairOptions::default().options(small()).fast_disk(fast)
}

/// DISKS of one store was rotten, and the path that its repair was given led to the fast disk of another one, whose MEMBER was
/// believed. The tables of the other store were merged into the first one, and its log was replayed there and removed.
#[test]
fn a_repair_refuses_the_fast_disk_of_another_store() {
    let rot: [fn(&Path); 2] = [|disks| flip(disks, 30), |disks| std::fs::write(disks, b"rot").unwrap()];
    // With tables on the fast disks, and with a log alone.
    for (mine, others) in [(500, 300), (20, 10)] {
        for rot in rot {
            let Places { home, fast, .. } = &places();
            let (other_home, other_fast) = (&home.with_file_name("other home"), &fast.with_file_name("other fast"));
            closed_store(home, fast, mine);
            closed_store(other_home, other_fast, others);
            assert_eq!(files(fast, |name| matches!(name, FileName::Table(_))).is_empty(), mine == 20);
            rot(&home.join("DISKS"));
            let all = || [home, fast, other_home, other_fast].map(|directory| contents(directory));
            let before = all();
            for dry_run in [true, false] {
                let how = RepairOptions { dry_run, ..repaired_with(other_fast) };
                let text = refused(repair_directory(home, how));
                for part in ["another store", other_fast.to_str().unwrap(), "Nothing was changed"] {
                    assert!(text.contains(part), "{part:?} is not in {text}");
                }
                assert!(all() == before, "something was changed");
            }
            let report = repair_directory(home, repaired_with(fast)).unwrap();
            assert!(report.nothing_lost() && !report.was_sound, "{report}");
            for (home, count) in [(home, mine), (other_home, others)] {
                let store = builder(None).open(home).unwrap();
                holds(&store, count);
                store.close().unwrap();
            }
        }
    }
}

/// The other way round: MEMBER of the other store's disk is rotten, and was thought to say what this store's DISKS does.
#[test]
fn a_repair_refuses_a_disk_that_does_not_say_whose_it_is_and_is_not_known() {
    let Places { home, fast, .. } = &places();
    let (other_home, other_fast) = (&home.with_file_name("other home"), &fast.with_file_name("other fast"));
    closed_store(home, fast, 500);
    closed_store(other_home, other_fast, 300);
    std::fs::write(other_fast.join("MEMBER"), b"rot").unwrap();
    let text = refused(repair_directory(home, repaired_with(other_fast)));
    assert!(text.contains("another store") && text.contains("MEMBER"), "{text}");
    // Whose it is can be known.
    let report = repair_directory(other_home, repaired_with(other_fast)).unwrap();
    assert!(report.nothing_lost() && !report.was_sound, "{report}");
    for (home, count) in [(home, 500), (other_home, 300)] {
        let store = builder(None).open(home).unwrap();
        holds(&store, count);
        store.close().unwrap();
    }
}

/// When the manifest does not know the disk either, because something else is damaged besides, there is the way that the error
/// names.
#[test]
fn what_lies_on_a_disk_that_nobody_knows_is_copied_home() {
    let Places { home, fast, .. } = &places();
    closed_store(home, fast, 500);
    std::fs::write(home.join("DISKS"), b"rot").unwrap();
    let table = files(fast, |name| matches!(name, FileName::Table(_)))[0].to_string();
    let whole = std::fs::read(fast.join(&table)).unwrap();
    std::fs::write(fast.join(&table), &whole[..whole.len() - 1]).unwrap();
    let text = refused(repair_directory(home, repaired_with(fast)));
    assert!(text.contains(&table) && text.contains("copy its files with numbers into the home"), "{text}");
    for name in files(fast, |name| name.number().is_some()) {
        std::fs::copy(fast.join(name.to_string()), home.join(name.to_string())).unwrap();
    }
    let how = RepairOptions::default().options(small()).without_fast_disk(true);
    let report = repair_directory(home, how).unwrap();
    assert!(report.lost_writes.is_empty() && report.tables_kept > 0, "{report}");
    let store = builder(None).open(home).unwrap();
    for n in 0..500 {
        let key = format!("key {n:06}").into_bytes();
        let found = store.get(&key).unwrap();
        let is_lost = report.lost_ranges.iter().any(|lost| lost.contains(&key));
        assert!(is_lost || found.as_deref() == Some(&[n as u8; 100][..]), "key {n}: {report}");
    }
    store.close().unwrap();
}

/// A disk with damaged metadata, and another device under the name of the store's, are no reason to give anything up.
#[test]
fn a_fast_disk_that_cannot_be_used_is_not_taken_for_lost() {
    let Places { home, fast, .. } = &places();
    std::fs::create_dir(home).unwrap();
    raw_disk(fast);
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 500);
    store.close().unwrap();
    let sound = std::fs::read(fast).unwrap();
    // The journal of metadata.
    let mut rotten = sound.clone();
    rotten[4096..(4096 + (1 << 20))].fill(7);
    std::fs::write(fast, rotten).unwrap();
    let error = builder(None).open(home).map(drop).unwrap_err();
    assert!(error.is_corruption() && !error.to_string().contains("lost"), "{error}");
    assert_eq!(verify_directory(home, &mut |_| {}).unwrap().damages.len(), 1);
    // A repair of the store mends no metadata of the disk.
    let text = refused(repair_directory(home, RepairOptions::default()));
    assert!(text.contains("situ disk check") && text.contains("lost for good"), "{text}");
    std::fs::write(fast, vec![0; sound.len()]).unwrap();
    let text = refused(builder(None).open(home));
    assert!(text.contains("cannot be used") && text.contains("Do not format it"), "{text}");
    assert!(!text.contains("--without-fast-disk"), "{text}");
    std::fs::write(fast, sound).unwrap();
    let store = builder(None).open(home).unwrap();
    holds(&store, 500);
    store.close().unwrap();
}

/// What was written behind the end of the file made it longer again, with holes where tables and log had been. Writes were
/// acknowledged on and on, and the next opening did not find them.
#[test]
fn a_store_whose_fast_disk_is_cut_takes_no_writes_and_loses_none() {
    let Places { home, fast, .. } = &places();
    std::fs::create_dir(home).unwrap();
    raw_disk(fast);
    let set_len = |bytes| std::fs::OpenOptions::new().write(true).open(fast).unwrap().set_len(bytes).unwrap();
    // The whole log area and more, or only the last page, which has the second copy of the superblock.
    for left in [1 << 20, (64 << 20) - 4096] {
        let whole = std::fs::read(fast).unwrap();
        let store = builder(Some(fast)).open(home).unwrap();
        fill(&store, 0, 20);
        let before_cut = std::fs::read(fast).unwrap();
        set_len(left);
        let text = store.put(b"later", b"value").unwrap_err().to_string();
        for part in ["was cut while it was in use", "on the fast disk"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert_eq!(std::fs::metadata(fast).unwrap().len(), left);
        let troubles = store.placement().unwrap().fast_troubles;
        assert!(troubles.iter().any(|trouble| trouble.contains("was cut")), "{troubles:?}");
        holds(&store, 20);
        assert!(store.close().is_err());
        let text = refused(builder(None).open(home));
        assert!(text.contains("the device was cut; make it as large as it was"), "{text}");
        if left > 1 << 20 {
            set_len(whole.len() as u64);
        } else {
            std::fs::write(fast, before_cut).unwrap();
        }
        let store = builder(None).open(home).unwrap();
        holds(&store, 20);
        assert!(store.get(b"later").unwrap().is_none());
        store.close().unwrap();
    }
}

/// A path that was not there became a directory, whatever lay above it: in place of a device that was not there yet, one
/// in memory, with the log.
#[test]
fn a_new_directory_for_a_fast_disk_is_made_next_to_what_is_there_and_not_among_devices() {
    let Places { home, fast, .. } = &places();
    let device = PathBuf::from(format!("/dev/situ-test-{}", std::process::id()));
    let opened = builder(Some(&device)).open(home).map(drop);
    let is_there = std::fs::remove_dir_all(&device).is_ok();
    assert!(refused(opened).contains("lost when the machine stops") && !is_there);
    let below = fast.join("below");
    let text = refused(builder(Some(&below)).open(home));
    assert!(text.contains("is not there either") && !fast.exists(), "{text}");
    builder(Some(fast)).open(home).unwrap().close().unwrap();
    builder(None).open(home).unwrap().close().unwrap();
}

/// Both homes had a log file of the same number: that was told as damage, with a repair as the cure.
#[test]
fn the_home_of_another_store_is_refused_as_a_fast_disk_and_stays_as_it_is() {
    let Places { home, fast: other, .. } = &places();
    for home in [home, other] {
        let store = builder(None).open(home).unwrap();
        fill(&store, 0, 10);
        store.close().unwrap();
    }
    let logs = |of: &Path| files(of, |name| matches!(name, FileName::Log(_)));
    assert!(logs(home).iter().any(|name| logs(other).contains(name)), "{:?} {:?}", logs(home), logs(other));
    let before = contents(other);
    let text = refused(builder(Some(other)).open(home));
    assert!(text.contains("holds files of a store") && text.contains("give an empty place"), "{text}");
    assert_eq!(contents(other), before);
    for home in [home, other] {
        let store = builder(None).open(home).unwrap();
        holds(&store, 10);
        store.close().unwrap();
    }
}

/// A repair leaves what it could not use whole on the disk where it was. A drain took that for files of the store and
/// waited until they went away, which they never did.
#[test]
fn what_a_repair_set_aside_goes_home_with_the_rest() {
    let Places { home, fast, .. } = &places();
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 500);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    store.close().unwrap();
    let table = files(fast, |name| matches!(name, FileName::Table(_)))[0];
    flip(&fast.join(table.to_string()), 100);
    assert!(!repair_directory(home, RepairOptions { options: small(), ..Default::default() }).unwrap().was_sound);
    let aside = files(fast, is_damaged);
    assert_eq!(aside.len(), 1);
    let bytes = std::fs::read(fast.join(aside[0].to_string())).unwrap();
    let store = builder(None).open(home).unwrap();
    store.drain_fast_disk().unwrap();
    store.check().unwrap();
    store.close().unwrap();
    assert!(files(fast, |name| *name != FileName::Lock).is_empty());
    assert_eq!(files(home, is_damaged), aside);
    assert_eq!(std::fs::read(home.join(aside[0].to_string())).unwrap(), bytes);
    builder(None).open(home).unwrap().close().unwrap();
}

/// On a disk without a file system nobody else could take it away. It is a log file, which lies in the area for logs.
#[test]
fn what_a_repair_set_aside_on_a_raw_disk_goes_home_with_the_rest() {
    let Places { home, fast, .. } = &places();
    std::fs::create_dir(home).unwrap();
    raw_disk(fast);
    let store = builder(Some(fast)).open(home).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    {
        let device = situ_device::open(fast, situ_device::OpenOptions::default()).unwrap();
        let disk = RawVolume::open(device, Env::system(), RawOptions::default()).unwrap();
        let _lock = disk.lock().unwrap();
        let name = *raw_files(fast).iter().find(|name| matches!(name, FileName::Log(_))).unwrap();
        disk.rename(name, FileName::Damaged(900)).unwrap();
        disk.sync_names().unwrap();
    }
    assert!(!repair_directory(home, RepairOptions { options: small(), ..Default::default() }).unwrap().was_sound);
    assert!(raw_files(fast).contains(&FileName::Damaged(900)));
    let store = builder(None).open(home).unwrap();
    store.drain_fast_disk().unwrap();
    store.close().unwrap();
    assert!(raw_files(fast).is_empty(), "{:?}", raw_files(fast));
    assert!(files(home, is_damaged).contains(&FileName::Damaged(900)));
}

/// Such a file was waited for without end and without a word.
#[test]
fn a_drain_names_what_nobody_will_take_away() {
    for stranger in ["MANIFEST-000003", "900000.table", "900000.spare"] {
        let Places { home, fast, .. } = &places();
        let store = builder(Some(fast)).open(home).unwrap();
        fill(&store, 0, 200);
        std::fs::write(fast.join(stranger), b"somebody's").unwrap();
        let text = refused(store.drain_fast_disk());
        assert!(text.contains(stranger) && text.contains("move it away"), "{text}");
        std::fs::remove_file(fast.join(stranger)).unwrap();
        store.drain_fast_disk().unwrap();
        holds(&store, 200);
        store.close().unwrap();
    }
}

/// Whoever opened a fast disk's directory as a store made one there, which took the log away and had its CURRENT read for the home's:
/// the next opening of the store removed all tables.
#[test]
fn promise_6_the_directory_of_a_fast_disk_is_no_store() {
    for count in [0, 20, 500] {
        let root = tempfile::tempdir().unwrap();
        let (home, fast) = (&root.path().join("home"), &root.path().join("fast"));
        let store = builder(None).open(home).unwrap();
        fill(&store, 0, 100);
        store.flush().unwrap();
        store.close().unwrap();
        let store = builder(Some(fast)).open(home).unwrap();
        fill(&store, 100, count);
        store.wait_idle().unwrap();
        store.close().unwrap();
        let repaired =
            |dry_run| repair_directory(fast, RepairOptions { dry_run, ..RepairOptions::default() }).map(drop);
        let refused = [
            builder(None).open(fast).map(drop),
            builder(None).read_only().open(fast).map(drop),
            builder(Some(&root.path().join("other"))).open(fast).map(drop),
            repaired(true),
            repaired(false),
            situ_tiers::destroy(fast),
        ];
        for result in refused {
            let Err(Error::Disks(text)) = result else { panic!("{result:?}") };
            assert!(text.contains("is the fast disk of the store") && text.contains("Nothing was changed"), "{text}");
        }
        let store = builder(None).open(home).unwrap();
        holds(&store, 100 + count);
        store.close().unwrap();
    }
}

/// Whoever copies the files of a fast disk home, as a repair advises, and MEMBER with them, has the home of a store still.
#[test]
fn promise_6_a_home_with_a_member_file_is_not_given_up() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (&root.path().join("home"), &root.path().join("fast"));
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 300);
    store.close().unwrap();
    std::fs::copy(fast.join("MEMBER"), home.join("MEMBER")).unwrap();
    let Err(Error::Disks(text)) = builder(None).open(home).map(drop) else { panic!("it opens") };
    assert!(text.contains("Remove that file, and no other") && !text.contains("left-over"), "{text}");
    std::fs::remove_file(home.join("MEMBER")).unwrap();
    let store = builder(None).open(home).unwrap();
    holds(&store, 300);
    store.close().unwrap();
}

/// Nor is what somebody has copied there read in place of the home's own.
#[test]
fn promise_6_files_that_belong_at_home_are_not_read_from_the_fast_disk() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast, other) = (&root.path().join("home"), &root.path().join("fast"), &root.path().join("other"));
    let store = builder(Some(fast)).open(home).unwrap();
    fill(&store, 0, 300);
    store.wait_idle().unwrap();
    store.close().unwrap();
    builder(None).open(other).unwrap().close().unwrap();
    for entry in std::fs::read_dir(other).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if ["CURRENT", "IDENTITY"].contains(&&*name) || name.starts_with("MANIFEST") {
            std::fs::copy(entry.path(), fast.join(name)).unwrap();
        }
    }
    std::fs::copy(home.join("DISKS"), fast.join("DISKS")).unwrap();
    assert!(repair_directory(home, RepairOptions::default()).unwrap().was_sound);
    for _ in 0..2 {
        let store = builder(None).open(home).unwrap();
        holds(&store, 300);
        store.flush().unwrap();
        store.close().unwrap();
    }
    assert!(fast.join("CURRENT").exists(), "it is nobody's business to remove it");
}

/// Writes were refused one by one, each with the error of a disk that was not named, and the store's properties knew of no failure.
#[test]
fn promise_7_a_fast_disk_that_takes_no_new_files_is_told_of_and_writes_go_on_when_it_does_again() {
    let names = [Operation::CreatePages, Operation::SyncNames, Operation::Create, Operation::Rename, Operation::Remove];
    // With the log at home, for which the fast disk had no room, and on the fast disk.
    for room in [FaultPlan::none().capacity(20 << 10), FaultPlan::none()] {
        let executor = SimExecutor::new(1);
        executor.run(|| {
            let env = executor.env();
            let home: Arc<dyn Volume> = Arc::new(SimVolume::named(&env, "home", FaultPlan::none(), 1));
            let fast = SimVolume::named(&env, "fast", room.clone(), 2);
            let builder = fast::tiered(small()).env(env.clone());
            let store = builder.open_volumes(home, Some(Arc::new(fast.clone()))).unwrap();
            let put = |n: u32| store.default_keyspace().put_with(n.to_be_bytes(), [1; 100], Durability::Synced);
            (0..300).for_each(|n| put(n).unwrap());
            fast.set_faults(room.clone().with(Rule::new(Fault::Io).on(&names)));
            let refused = (10_000..12_000).find_map(|n| put(n).err()).expect("no write was refused").to_string();
            assert!(refused.contains("fast") && refused.contains("(on the fast disk)"), "{refused}");
            env.clock.sleep(Duration::from_secs(10));
            let properties = store.properties();
            assert!(properties.failure.is_some() || properties.background_failure.is_some(), "nothing tells of it");
            fast.set_faults(room);
            env.clock.sleep(Duration::from_secs(60));
            put(2000).unwrap();
            assert!(store.properties().background_failure.is_none());
            store.close().unwrap();
        });
    }
}

/// The name of a disk or a home that is no line of text stood in DISKS as another one. The disk was not found under it, and a copy of
/// the home was not known as such: what was written into it took the log away from the original.
#[test]
fn names_that_are_no_lines_of_text_are_remembered_as_they_are() {
    use std::os::unix::ffi::OsStrExt;
    let names: [&[u8]; 5] = [b"x\ny", b"x y", b"x y\r", b"h\xff", b"h\xfe"];
    for name in names {
        for other in names.into_iter().filter(|other| *other != name) {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &[u8]| root.path().join(std::ffi::OsStr::from_bytes(name));
            let (home, fast, copy) = (&path(name), &path(&[b"fast ", name].concat()), &path(other));
            closed_store(home, fast, 20);
            let store = builder(None).open(home).unwrap();
            holds(&store, 20);
            store.close().unwrap();
            copy_home(home, copy);
            let text = refused(builder(None).open(copy));
            assert!(text.contains("is a copy of the one in"), "{text}");
            let store = builder(None).open(home).unwrap();
            holds(&store, 20);
            store.close().unwrap();
        }
    }
}

/// A link to a device, such as those in `/dev/disk/by-id`, was followed and forgotten: when the device got another name and the link
/// went with it, the disk was not found any more.
#[test]
fn the_fast_disk_is_remembered_by_the_name_that_it_was_given() {
    let Places { home, fast, .. } = &places();
    let (first, second) = (&fast.with_file_name("nvme1n1"), &fast.with_file_name("nvme2n1"));
    raw_disk(first);
    std::os::unix::fs::symlink(first, fast).unwrap();
    closed_store(home, fast, 500);
    std::fs::rename(first, second).unwrap();
    std::fs::remove_file(fast).unwrap();
    std::os::unix::fs::symlink(second, fast).unwrap();
    let store = builder(None).open(home).unwrap();
    holds(&store, 500);
    store.close().unwrap();
    // Under the other name of the same disk, a copy of the home is one, too.
    let copy = &home.with_file_name("copy");
    copy_home(home, copy);
    let text = refused(builder(Some(second)).open(copy));
    assert!(text.contains("is a copy of the one in"), "{text}");
}

/// Where the disk was named, the text said to prepare it with `situ disk format`.
#[test]
fn a_disk_whose_beginning_is_gone_is_not_to_be_formatted() {
    let Places { home, fast, .. } = &places();
    raw_disk(fast);
    closed_store(home, fast, 500);
    let mut bytes = std::fs::read(fast).unwrap();
    bytes.fill(0);
    std::fs::write(fast, bytes).unwrap();
    for named in [None, Some(&**fast)] {
        let text = refused(builder(named).open(home));
        assert!(text.to_lowercase().contains("do not format it"), "{text}");
    }
}
