//! Kills at each change of a file, formats, and damage.

use crate::content::{Content, Kind};
use crate::target::Target;
use crate::{Backups, Depth, lineage, metadata};
use situ_engine::{
    Compression, Error, KeyspaceOptions, Options, RepairOptions, Result, Store, StoreBuilder, WriteBatch,
    repair_directory, verify_directory,
};
use situ_storage::{FileName, Reader, Volume};
use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The number of changes that the thread may make before it is killed.
    static STEPS_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The panic of a thread that is killed.
struct Killed;

/// Counts a change of a file. See [`kill_after`].
pub(crate) fn step() {
    STEPS_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => std::panic::resume_unwind(Box::new(Killed)),
        Some(more) => left.set(Some(more - 1)),
    });
}

/// Runs a function, and ends it before one of its changes. Returns `None` if it ended that way.
fn kill_after<T>(steps: u64, run: impl FnOnce() -> T) -> Option<T> {
    STEPS_LEFT.set(Some(steps));
    let ran = catch_unwind(AssertUnwindSafe(run));
    STEPS_LEFT.set(None);
    ran.map_err(|panic| assert!(panic.is::<Killed>(), "another panic")).ok()
}

/// Returns options by which some hundred writes make several tables and segments.
fn options(value_log: bool) -> Options {
    let mut options = Options::default();
    options.keyspace = KeyspaceOptions::default().memtable_bytes(64 << 10).compression(vec![Compression::None]);
    options.value_segment_bytes = 64 << 10;
    if value_log {
        options.keyspace = options.keyspace.value_log_min_bytes(300);
    }
    options
}

fn open(at: &Path, value_log: bool) -> Store {
    StoreBuilder::new(options(value_log)).open(at).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Writes keys of a range, with values of one length for a key.
fn write(store: &Store, keys: std::ops::Range<u64>, byte: u8) {
    for n in keys {
        let mut batch = WriteBatch::new();
        batch.put(key(n), vec![byte; 100 + (n * 37 % 500) as usize]).unwrap();
        store.write(batch).unwrap();
    }
}

fn contents(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    store.iter().unwrap().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn restored(backups: &Backups, id: Option<u64>, at: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    backups.restore(id, at, &mut |_| {}).unwrap();
    contents_at(at)
}

fn contents_at(at: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let report = verify_directory(at, &mut |_| {}).unwrap();
    // A copy may have log files: the last of them has an end, and the file behind it has no record.
    let is_expected = |warning: &String| warning.contains("the file ended, and the next one was not begun");
    assert!(report.is_sound() && report.warnings.iter().all(is_expected), "{report}");
    let store = Store::open(at).unwrap();
    let contents = contents(&store);
    store.close().unwrap();
    contents
}

fn assert_sound(backups: &Backups) {
    let report = backups.verify(None, Depth::Contents, &mut |_| {}).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

/// Each run is killed before its next change, in a directory that has all that earlier runs have left.
#[test]
fn a_backup_that_is_killed_anywhere_leaves_the_earlier_ones_and_is_gone_on_with() {
    for value_log in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let store = open(&at("store"), value_log);
        write(&store, 0..300, 1);
        let backups = Backups::open_or_make(at("backups")).unwrap();
        backups.create(&store).unwrap();
        let first = contents(&store);
        write(&store, 100..600, 2);
        let second = contents(&store);
        let mut steps = 0;
        let report = loop {
            match kill_after(steps, || backups.create(&store)) {
                Some(report) => break report.unwrap(),
                // Metadata may be in force already.
                None => assert!(backups.ids().unwrap().len() <= 2),
            }
            if backups.ids().unwrap().len() == 2 {
                assert_eq!(restored(&backups, Some(2), &at("early")), second);
                assert_sound(&backups);
                break backups.create(&store).unwrap();
            }
            steps += 1;
        };
        assert!(steps > 15, "only {steps} steps");
        // A compaction may have left one table.
        assert!(report.kept_files > 0, "{report:?}");
        assert_sound(&backups);
        assert_eq!(restored(&backups, Some(1), &at("first")), first);
        assert_eq!(restored(&backups, None, &at("second")), second);
        store.close().unwrap();
    }
}

/// A kill before the metadata is written, and no earlier backup: the second call finds all tables in the pool.
#[test]
fn what_an_interrupted_backup_has_copied_is_not_copied_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), true);
    write(&store, 0..600, 1);
    store.flush().unwrap();
    store.wait_idle().unwrap();
    let backups = Backups::open_or_make(at("backups")).unwrap();
    let mut steps = 0;
    while kill_after(steps, || backups.create(&store)).is_none() && backups.ids().unwrap().is_empty() {
        steps += 1;
    }
    let offered = |report: &crate::BackupReport| report.kept_files;
    let again = backups.create(&store).unwrap();
    assert!(offered(&again) > 4, "{again:?}");
    assert!(again.added_files <= 4, "the manifest, CURRENT and an open segment: {again:?}");
}

#[test]
fn a_restore_that_is_killed_anywhere_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), true);
    write(&store, 0..400, 1);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    let first = contents(&store);
    write(&store, 200..500, 2);
    backups.create(&store).unwrap();
    let second = contents(&store);

    // Each run goes on with what the one before has left.
    let mut steps = 0;
    let report = loop {
        let ran = kill_after(steps, || backups.restore(Some(1), at("one"), &mut |_| {}));
        if let Some(report) = ran {
            break report.unwrap();
        }
        if at("one/CURRENT").exists() {
            break backups.restore(Some(1), at("other"), &mut |_| {}).unwrap();
        }
        assert!(Store::open_read_only(at("one")).is_err(), "no store yet");
        let other = backups.restore(Some(2), at("one"), &mut |_| {});
        let mark = FileName::Restore(backups.find(Some(1)).unwrap().mark);
        if at("one").join(mark.to_string()).exists() {
            for refused in
                [Store::open(at("one")).map(drop), repair_directory(at("one"), RepairOptions::default()).map(drop)]
            {
                let error = refused.unwrap_err();
                assert!(error.to_string().contains("run `situ backup restore` again"), "{error}");
            }
            let error = other.unwrap_err();
            assert!(error.to_string().contains("unfinished restore of another backup"), "{error}");
        } else {
            other.unwrap();
            assert_eq!(contents_at(&at("one")), second);
            fs::remove_dir_all(at("one")).unwrap();
        }
        steps += 1;
    };
    assert!(steps >= 8, "only {steps} steps");
    assert!(report.files > 5);
    assert_eq!(contents_at(&at("one")), first);
    // It holds a store now, and is not touched again.
    let error = backups.restore(Some(1), at("one"), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Existence(_)) && error.to_string().contains("holds a store"), "{error}");

    // What a killed restore has copied is kept.
    let mut kept_files = 0;
    for steps in 0.. {
        let into = at(&format!("two {steps}"));
        if kill_after(steps, || backups.restore(None, &into, &mut |_| {})).is_some() {
            assert!(steps > 20, "only {steps} steps");
            break;
        }
        if !into.join("CURRENT").exists() {
            kept_files += backups.restore(None, &into, &mut |_| {}).unwrap().kept_files;
        }
        assert_eq!(contents_at(&into), second);
        fs::remove_dir_all(&into).unwrap();
    }
    assert!(kept_files > 20, "{kept_files} files were kept");
}

/// A process can be killed after it wrote a file, and before the sync.
#[test]
fn a_resumed_restore_syncs_the_files_that_it_keeps() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), true);
    write(&store, 0..400, 1);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    let restore = || backups.restore(None, at("again"), &mut |_| {}).unwrap();
    let files = restore().files;
    let mark = FileName::Restore(backups.find(None).unwrap().mark);
    fs::rename(at("again/CURRENT"), at("again").join(mark.to_string())).unwrap();
    // The marker and LINEAGE take three changes each, CURRENT two. CURRENT is no kept file.
    let changes = 3 + (files - 1) + 3 + 2;
    // The last change but one puts the store in force.
    assert!(files > 5 && kill_after(changes - 2, restore).is_none(), "{files} files");
    assert_eq!(kill_after(changes, restore).unwrap().kept_files, files - 1);
}

#[test]
fn a_prune_that_is_killed_anywhere_leaves_whole_backups() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let store = open(&at("store"), true);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    for round in 0..6 {
        write(&store, round * 50..round * 50 + 200, round as u8);
        backups.create(&store).unwrap();
    }
    let last = contents(&store);
    let mut steps = 0;
    while kill_after(steps, || backups.prune(1)).is_none() {
        assert_sound(&backups);
        steps += 1;
    }
    assert!(steps > 5, "only {steps} steps");
    assert_eq!(backups.ids().unwrap(), [6]);
    let needed = crate::verify::needed(&backups.list().unwrap().backups);
    assert_eq!(backups.contents().unwrap(), needed.into_keys().collect::<Vec<_>>().tap_sorted());
    assert_eq!(restored(&backups, None, &at("last")), last);
}

trait Sorted {
    fn tap_sorted(self) -> Self;
}

impl Sorted for Vec<Content> {
    /// Sorts contents as a list of their names is sorted.
    fn tap_sorted(mut self) -> Self {
        self.sort_by_key(ToString::to_string);
        self
    }
}

/// A file of the store that counts its reads.
struct Counted<'a>(&'a [u8], AtomicU64);

impl Reader for Counted<'_> {
    fn path(&self) -> &str {
        "counted"
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> situ_storage::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// All segments have one length. Each new one was compared with each one in the pool.
#[test]
fn a_file_is_compared_only_with_those_that_begin_as_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let backups = Backups::open_or_make(directory.path()).unwrap();
    fs::create_dir(backups.pool()).unwrap();
    let contents: Vec<Vec<u8>> = (0..20).map(|byte| vec![byte; 8192]).collect();
    for bytes in &contents[1..] {
        let file = directory.path().join("file");
        fs::write(&file, bytes).unwrap();
        let content = Content::of_file(&file, Kind::Values).unwrap();
        fs::rename(file, backups.path_of(&content)).unwrap();
    }
    let target = Target::new(&backups, Default::default(), Arc::new(|_| {})).unwrap();
    for (number, (bytes, reads)) in contents.iter().zip([1, 2, 2]).enumerate() {
        let file = Counted(bytes, AtomicU64::new(0));
        assert_eq!(target.link(FileName::Values(number as u64), &file).unwrap(), number > 0);
        assert_eq!(file.1.into_inner(), reads, "{number}");
    }
}

#[test]
fn names_of_contents_have_one_spelling() {
    let name = "000000000000000000000000000000ab-17.table";
    assert_eq!(name.parse::<Content>().unwrap().to_string(), name);
    for stranger in ["ab-17.table", "000000000000000000000000000000AB-17.table", "x", "-.small", ""] {
        assert!(stranger.parse::<Content>().is_err(), "{stranger}");
    }
}

/// The example of `docs/formats/backup.md`.
#[test]
fn the_pages_example_is_what_a_backup_writes() {
    let page = include_str!("../../../docs/formats/backup.md");
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let backup = metadata::decode(example.as_bytes(), "000003.json").unwrap();
    assert_eq!((backup.id, backup.files, backup.bytes), (3, 2, 4112));
    let entry = backup.entries[&FileName::Table(12)];
    assert!(entry.is_final && entry.content.to_string() == "0123456789abcdef0123456789abcdef-4096.table");
    let again = metadata::New {
        id: backup.id,
        unix_ms: backup.unix_ms,
        last_sequence: backup.last_sequence,
        added_bytes: backup.added_bytes,
        entries: backup.entries.clone(),
    };
    let program = concat!("situ ", env!("CARGO_PKG_VERSION"));
    if backup.program == program {
        assert_eq!(String::from_utf8(metadata::encode(&again)).unwrap(), example);
    }
}

#[test]
fn damaged_metadata_is_an_error_and_never_a_panic() {
    let page = include_str!("../../../docs/formats/backup.md");
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap().as_bytes();
    for at in 0..example.len() - 1 {
        for bit in [1, 32] {
            let mut damaged = example.to_vec();
            damaged[at] ^= bit;
            // White space between the fields, and the letters of a hexadecimal checksum, may change their look alone.
            if let Ok(backup) = metadata::decode(&damaged, "x") {
                assert_eq!(backup, metadata::decode(example, "x").unwrap(), "byte {at}");
            }
        }
        assert!(metadata::decode(&example[..at], "x").is_err());
    }
}

#[test]
fn lineage_keeps_the_newest_marks() {
    let marks: Vec<u128> = (0..100).collect();
    assert_eq!(lineage::decode(&lineage::encode(&marks)), (36..100).collect::<Vec<u128>>());
    assert!(lineage::decode(b"nothing\n\xff\n123\n").is_empty());
    assert!(lineage::encode(&[]).is_empty());
}

#[test]
fn other_directories_and_newer_formats_are_refused() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let error = Backups::open(at("nowhere")).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    Store::open(at("store"))?.close()?;
    for refused in [Backups::open(at("store")), Backups::open_or_make(at("store"))] {
        assert!(matches!(refused, Err(Error::Existence(_))));
    }
    let backups = Backups::open_or_make(at("backups"))?;
    assert!(matches!(backups.find(None), Err(Error::Existence(_))));
    fs::write(at("backups/SITU-BACKUPS"), "Backups of Situ stores. See `situ backup list`. Format 2\n").unwrap();
    for refused in [Backups::open(at("backups")), Backups::open_or_make(at("backups"))] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("use a newer program"), "{error}");
    }
    fs::write(at("backups/SITU-BACKUPS"), "something\n").unwrap();
    assert!(Backups::open(at("backups")).unwrap_err().is_corruption());
    Ok(())
}
