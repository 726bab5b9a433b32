//! A store has one writer even if its files are removed or renamed. A second writer is refused while the store's data
//! exists, and a writer whose files are gone refuses writes.

use crate::common::fast;
use situ_engine::{Durability, Error, Options, RepairOptions, Store};
use situ_tiers::{TieredBuilder, repair_directory, verify_directory};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Puts until one is refused, and returns that error.
fn refused_put(store: &Store, durability: Durability) -> Error {
    // A buffered write checks names only now and then. This is much longer than the time between two checks.
    let until = Instant::now() + Duration::from_secs(20);
    let goes_on = |n: &u64| !n.is_multiple_of(64) || Instant::now() < until;
    let mut writes = (0_u64..).take_while(goes_on);
    let refused = writes.find_map(|n| store.put_with(n.to_le_bytes(), b"late", durability).err());
    refused.expect("a store without its files takes writes")
}

fn paths_of(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns true if the file is of one of these kinds.
fn is(path: &Path, kinds: &[&str]) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    kinds.iter().any(|kind| name.starts_with(kind) || name.ends_with(kind))
}

/// Moves, links or copies chosen files from one directory to another one with `by`.
fn bring(from: &Path, to: &Path, by: impl Fn(&Path, &Path), chosen: impl Fn(&Path) -> bool) {
    fs::create_dir_all(to).unwrap();
    paths_of(from).iter().filter(|path| chosen(path)).for_each(|path| by(path, &to.join(path.file_name().unwrap())));
}

fn move_to(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

/// Function that changes the files of a home, with a free path for its use. Returns the directory for the second writer.
type Rename = fn(&Path, &Path) -> PathBuf;

const CASES: [(&str, Rename); 8] = [
    ("LOCK removed", |home, _| {
        fs::remove_file(home.join("LOCK")).unwrap();
        home.to_owned()
    }),
    ("LOCK replaced", |home, other| {
        fs::write(other, "").unwrap();
        fs::rename(other, home.join("LOCK")).unwrap();
        home.to_owned()
    }),
    ("LOCK and IDENTITY removed, and another name", |home, other| {
        ["LOCK", "IDENTITY"].iter().for_each(|name| fs::remove_file(home.join(name)).unwrap());
        std::os::unix::fs::symlink(home, other).unwrap();
        other.to_owned()
    }),
    ("directory renamed", |home, other| {
        fs::rename(home, other).unwrap();
        fs::remove_file(other.join("LOCK")).unwrap();
        other.to_owned()
    }),
    ("directory renamed, made again, and filled", |home, other| {
        fs::rename(home, other).unwrap();
        bring(other, home, move_to, |path| !is(path, &["LOCK"]));
        home.to_owned()
    }),
    ("files moved", |home, other| {
        bring(home, other, move_to, |path| !is(path, &["LOCK"]));
        other.to_owned()
    }),
    ("files linked", |home, other| {
        bring(home, other, |from, to| fs::hard_link(from, to).unwrap(), |path| !is(path, &["LOCK"]));
        other.to_owned()
    }),
    ("only the manifest and CURRENT left", |home, other| {
        bring(home, other, move_to, |path| is(path, &["MANIFEST", "CURRENT"]));
        other.to_owned()
    }),
];

/// `rm D/LOCK` let a second writer in. Each wrote its own log and manifest, and both closed without an error. The writes
/// that one of them had acknowledged were gone.
#[test]
fn a_second_writer_is_refused_whatever_happens_to_names() {
    for (what, trick) in CASES {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let first = fast::open(&home).unwrap();
        first.put_with(b"a", b"first", Durability::Synced).unwrap();
        first.default_keyspace().flush().unwrap();
        let place = trick(&home, &root.path().join("other"));
        let before = paths_of(&place).len();
        let error = fast::open(&place).err().unwrap_or_else(|| panic!("{what}: a second writer was let in"));
        assert!(error.to_string().contains("open already"), "{what}: {error}");
        assert_eq!(paths_of(&place).len(), before, "{what}: a writer that is refused leaves nothing behind");
        assert!(verify_directory(&place, &mut |_| {}).is_ok(), "{what}: a reader takes no lock");
        let repaired = repair_directory(&place, RepairOptions::default());
        assert!(
            repaired.is_err_and(|error| error.to_string().contains("open already")),
            "{what}: a repair is a writer"
        );
        assert!(situ_tiers::destroy(&place).is_err(), "{what}: a destroyer is a writer");
        // Without LOCK, or under another name of the directory, the names that count still lead to the files.
        match first.put_with(b"a", b"second", Durability::Synced).and_then(|()| first.default_keyspace().flush()) {
            Ok(()) => {
                first.close().unwrap();
                // Where files were linked, the store continues under its own names.
                let place = if home.join("CURRENT").exists() { &home } else { &place };
                let again = fast::open(place).unwrap();
                assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"second"[..]), "{what}");
                again.close().unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::Failed { .. } | Error::Storage(_)), "{what}: {error}");
                assert!(first.close().is_err(), "{what}");
            }
        }
    }
}

/// A log was moved away from its manifest. A repair of it would have made another store.
#[test]
fn a_log_that_was_moved_is_not_repaired_under_its_writer() {
    let root = tempfile::tempdir().unwrap();
    let (home, other) = (root.path().join("home"), root.path().join("other"));
    let first = fast::open(&home).unwrap();
    first.put(b"a", b"b").unwrap();
    bring(&home, &other, move_to, |path| is(path, &[".log"]));
    let error = repair_directory(&other, RepairOptions::default()).unwrap_err();
    assert!(error.to_string().contains("open already"), "{error}");
    refused_put(&first, Durability::Buffered);
    assert!(first.close().is_err());
}

/// Each of two disks has a LOCK. Without them, a second writer could open the store.
#[test]
fn a_second_writer_of_two_disks_is_refused_without_any_lock_file() {
    let root = tempfile::tempdir().unwrap();
    let (home, fast) = (root.path().join("home"), root.path().join("fast"));
    let open = || fast::tiered(Options::default()).fast_disk(&fast).open(&home);
    let first = open().unwrap();
    first.put_with(b"a", b"b", Durability::Synced).unwrap();
    [&home, &fast].iter().for_each(|disk| fs::remove_file(disk.join("LOCK")).unwrap());
    let error = open().expect_err("a second writer was let in");
    assert!(error.to_string().contains("open already"), "{error}");
    let error = fast::open(&home).expect_err("a second writer was let in");
    assert!(error.to_string().contains("open already"), "{error}");
    first.put_with(b"a", b"c", Durability::Synced).unwrap();
    first.close().unwrap();
    let again = open().unwrap();
    assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"c"[..]));
    // The fast disk alone is lost, with the log on it.
    fs::remove_dir_all(&fast).unwrap();
    again.put_with(b"a", b"d", Durability::Synced).unwrap_err();
    let error = again.close().unwrap_err();
    assert!(error.to_string().contains("directory was removed"), "{error}");
}

/// The same tricks with the files of the home, while the log is on the fast disk.
#[test]
fn a_second_writer_of_two_disks_is_refused_whatever_happens_to_names_at_home() {
    for (what, trick) in CASES {
        let root = tempfile::tempdir().unwrap();
        let (home, fast) = (root.path().join("home"), root.path().join("fast"));
        let open = |home: &Path| fast::tiered(Options::default()).fast_disk(&fast).open(home);
        let first = open(&home).unwrap();
        first.put_with(b"a", b"first", Durability::Synced).unwrap();
        first.default_keyspace().flush().unwrap();
        let place = trick(&home, &root.path().join("other"));
        let before = (paths_of(&place).len(), paths_of(&fast).len());
        for second in [open(&place), fast::tiered(Options::default()).open(&place)] {
            let error = second.err().unwrap_or_else(|| panic!("{what}: a second writer was let in"));
            assert!(error.to_string().contains("open already"), "{what}: {error}");
        }
        assert_eq!((paths_of(&place).len(), paths_of(&fast).len()), before, "{what}: nothing is left behind");
        match first.put_with(b"a", b"second", Durability::Synced).and_then(|()| first.default_keyspace().flush()) {
            Ok(()) => {
                first.close().unwrap();
                let place = if home.join("CURRENT").exists() { &home } else { &place };
                let again = open(place).unwrap();
                assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"second"[..]), "{what}");
                again.close().unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::Failed { .. } | Error::Storage(_)), "{what}: {error}");
                assert!(first.close().is_err(), "{what}");
            }
        }
    }
}

/// Function that removes names of the store in the first path, with a free path for its use.
type Loss = fn(&Path, &Path);

const LOSSES: [(&str, Loss); 8] = [
    ("rm -r", |home, _| fs::remove_dir_all(home).unwrap()),
    ("all files removed", |home, _| paths_of(home).iter().for_each(|path| fs::remove_file(path).unwrap())),
    ("log removed", |home, _| {
        let logs = paths_of(home);
        logs.iter().filter(|path| is(path, &[".log"])).for_each(|path| fs::remove_file(path).unwrap());
    }),
    ("log replaced", |home, other| {
        for path in paths_of(home).iter().filter(|path| is(path, &[".log"])) {
            fs::copy(path, other).unwrap();
            fs::rename(other, path).unwrap();
        }
    }),
    ("all files moved", |home, other| bring(home, other, move_to, |_| true)),
    ("CURRENT removed", |home, _| fs::remove_file(home.join("CURRENT")).unwrap()),
    ("CURRENT replaced", |home, other| {
        fs::copy(home.join("CURRENT"), other).unwrap();
        fs::rename(other, home.join("CURRENT")).unwrap();
    }),
    ("manifest moved", |home, other| bring(home, other, move_to, |path| is(path, &["MANIFEST"]))),
];

/// After `rm -r D` under a server with synced writes, the store acknowledged 3,000 sets into files without a name. It
/// closed without an error.
#[test]
fn promise_7_a_writer_that_has_lost_its_names_takes_no_more_writes() {
    for (what, lose) in LOSSES {
        for durability in [Durability::Synced, Durability::Buffered] {
            let root = tempfile::tempdir().unwrap();
            let home = root.path().join("home");
            let store = fast::open(&home).unwrap();
            store.put_with(b"a", b"b", durability).unwrap();
            lose(&home, &root.path().join("other"));
            let error = match (durability, what) {
                // Not one more is acknowledged.
                (Durability::Synced, "rm -r" | "all files removed" | "log removed" | "log replaced") => {
                    store.put_with(b"a", b"c", durability).expect_err(what)
                }
                _ => refused_put(&store, durability),
            };
            assert!(error.to_string().contains("by another program"), "{what}: {error}");
            let failure = store.properties().failure.expect(what);
            assert!(failure.to_string().contains("by another program"), "{what}: {failure}");
            assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"b"[..]), "{what}: reads go on");
            assert!(store.default_keyspace().flush().is_err(), "{what}");
            assert!(store.close().is_err(), "{what}");
        }
    }
}

/// Returns true if the home of a store with two disks has the files in question. The log is on the fast disk.
fn is_of_home(what: &str) -> bool {
    !what.starts_with("log")
}

/// After `rm -r HOME` under a server with its log on a fast disk, the store acknowledged writes into that log for good.
/// Without the home, nothing would find them.
#[test]
fn promise_7_a_writer_of_two_disks_that_has_lost_names_of_one_takes_no_more_writes() {
    for (what, lose) in LOSSES {
        for durability in [Durability::Synced, Durability::Buffered] {
            let root = tempfile::tempdir().unwrap();
            let (home, fast) = (root.path().join("home"), root.path().join("fast"));
            let store = fast::tiered(Options::default()).fast_disk(&fast).open(&home).unwrap();
            store.put_with(b"a", b"b", durability).unwrap();
            lose(if is_of_home(what) { &home } else { &fast }, &root.path().join("other"));
            let error = refused_put(&store, durability);
            assert!(error.to_string().contains("by another program"), "{what}: {error}");
            let failure = store.properties().failure.expect(what);
            assert!(failure.to_string().contains("by another program"), "{what}: {failure}");
            assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"b"[..]), "{what}: reads go on");
            assert!(store.default_keyspace().flush().is_err(), "{what}");
            assert!(store.close().is_err(), "{what}");
        }
    }
}

/// A store without further writes reports at close that its files are gone.
#[test]
fn promise_7_a_store_whose_names_are_lost_does_not_close_as_if_all_were_well() {
    for (what, lose) in LOSSES {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let store = fast::open(&home).unwrap();
        store.put(b"a", b"b").unwrap();
        lose(&home, &root.path().join("other"));
        let error = store.close().expect_err(what);
        assert!(error.to_string().contains("by another program"), "{what}: {error}");
    }
}

/// An edit does not take effect if its manifest is not the one that CURRENT names.
#[test]
fn promise_7_an_edit_is_not_installed_when_names_are_lost() {
    for (what, lose) in LOSSES {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let store = fast::open(&home).unwrap();
        store.put_with(b"a", b"b", Durability::Synced).unwrap();
        lose(&home, &root.path().join("other"));
        let error = store.create_keyspace("more", Options::default().keyspace).expect_err(what);
        assert!(error.to_string().contains("by another program"), "{what}: {error}");
        assert_eq!(store.keyspace_names(), ["default"], "{what}");
        assert!(store.close().is_err(), "{what}");
    }
}

/// Values in a segment without a name would be lost with the log that held them.
#[test]
fn a_segment_of_values_that_is_removed_while_it_is_written_is_not_installed() {
    let root = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.keyspace.value_log_min_bytes = Some(100);
    let store = fast::open_with(root.path(), options.clone()).unwrap();
    let value = |n: u8| [n; 1000];
    store.put(b"a", value(1)).unwrap();
    store.default_keyspace().flush().unwrap();
    // The segment is open for more.
    let segments: Vec<_> = paths_of(root.path()).into_iter().filter(|path| is(path, &[".values"])).collect();
    assert_eq!(segments.len(), 1);
    fs::remove_file(&segments[0]).unwrap();
    store.put_with(b"b", value(2), Durability::Synced).unwrap();
    let flushed = store.default_keyspace().flush();
    let segments = paths_of(root.path()).into_iter().filter(|path| is(path, &[".values"])).count();
    assert!(flushed.is_err() || segments > 0, "values of `b` lie in a file without a name");
    _ = store.close();
}

/// The store's own changes of names are no loss: it creates and removes log files, and replaces manifests. A rename of the
/// directory is no loss either.
#[test]
fn changes_that_the_store_makes_itself_are_no_loss() {
    let root = tempfile::tempdir().unwrap();
    let (home, other) = (root.path().join("home"), root.path().join("other"));
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    let store = fast::open_with(&home, options).unwrap();
    for round in 0..60_u32 {
        for n in 0..200_u32 {
            store.put([round.to_le_bytes(), n.to_le_bytes()].concat(), [7; 500]).unwrap();
        }
        match round {
            20 => fs::rename(&home, &other).unwrap(),
            // Another store.
            30 => fast::open(&home).unwrap().close().unwrap(),
            40 => fs::remove_file(other.join("LOCK")).unwrap(),
            _ => {}
        }
        store.check().unwrap();
    }
    assert!(store.statistics().flushes > 0);
    store.close().unwrap();
    let again = fast::open(&other).unwrap();
    assert_eq!(again.iter().unwrap().count(), 60 * 200);
    again.close().unwrap();
}
