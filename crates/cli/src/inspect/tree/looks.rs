//! Looking at a store that changes meanwhile.

use super::*;
use std::fs;

fn tables(directory: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "table")).collect()
}

/// A store with tables, and what removes them.
fn with_tables(directory: &Path) -> Store {
    let writer = Store::open(directory).unwrap();
    for n in 0..3 {
        writer.put(b"key", [n]).unwrap();
        writer.flush().unwrap();
    }
    writer
}

/// Tables that a compaction removed after the store was opened were shown as damage.
#[test]
fn tables_that_go_while_they_are_looked_at_are_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let writer = with_tables(at);
    let look = |store: &Store, seen: &mut Seen, last| {
        look(store, &*situ_tiers::files_of(at).unwrap(), at, seen, last).unwrap_or_else(|failure| panic!("{failure:?}"))
    };
    let before = Store::open_read_only(at).unwrap();
    writer.existing_keyspace("default").unwrap().compact(None, None).unwrap();
    writer.wait_idle().unwrap();
    assert_eq!(tables(at).len(), 1);
    let mut seen = Seen::default();
    assert!(look(&before, &mut seen, false).is_none() && !seen.unreadable.is_empty());
    let after = Store::open_read_only(at).unwrap();
    assert!(look(&after, &mut seen, false).is_some_and(|report| report.sound));
    // Nothing is known for certain at the last look either.
    assert!(look(&before, &mut Seen::default(), true).is_none());
    writer.close().unwrap();
}

#[test]
fn a_table_that_two_looks_cannot_open_is_damaged_and_one_that_one_look_cannot_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    with_tables(at).close().unwrap();
    let store = Store::open_read_only(at).unwrap();
    let found = tables(at);
    assert!(found.len() > 1, "{found:?}");
    let (mut seen, mut damages) = (Seen::default(), Vec::new());
    for (number, last) in [(0, false), (1, true)] {
        fs::write(&found[number], b"not a table").unwrap();
        // What was sound is not read again.
        seen.sound.clear();
        let volume = situ_tiers::files_of(at).unwrap();
        let report = look(&store, &*volume, at, &mut seen, last).unwrap_or_else(|failure| panic!("{failure:?}"));
        damages.push(report.map(|report| {
            let levels = report.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
            let tables: Vec<_> = levels.flat_map(|level| &level.tables).collect();
            (report.sound, tables.len(), tables.iter().filter(|table| table.damage.is_some()).count())
        }));
    }
    assert_eq!(damages, [None, Some((false, found.len() - 1, 1))]);
}
