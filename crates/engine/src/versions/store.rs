//! The versions of a whole store: its keyspaces, the numbers of its files, the manifest, snapshots.
//!
//! **Locks.** The registry's lock and that of the manifest are held across nothing that blocks. The right to change
//! versions is no lock: the thread that has the editor (`editor.rs`) may block on the disk, and gives the right back.
//!
//! **Views.** Each keyspace's view is replaced by compare-and-swap. Sealing a memtable (under the commit lock) and
//! installing a version (with the editor) may meet, and neither loses the other's change.

use crate::base::health::Health;
use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::memtable::Meter;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::Manifest;
use crate::versions::snapshot::Snapshots;
use crate::versions::version::TableSource;
use crate::{Error, Result};
use situ_base::Event;
use situ_storage::{Error as StorageError, FileName, Volume};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The keyspaces there are.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) by_id: BTreeMap<u32, Arc<KeyspaceCore>>,
    pub(crate) next_id: u32,
    /// Counts the memory of all memtables.
    pub(crate) meter: Arc<Meter>,
}

impl Registry {
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<KeyspaceCore>> {
        self.by_id.values().find(|k| k.name == name)
    }
}

/// Minimum length of an ordinary log file.
pub(crate) const LOG_FILE_BYTES_MIN: u64 = 64 << 10;

/// Returns the length of log files. They are a little longer than the memtable they serve. Its records need about as
/// much room as its nodes, and the log's pages under one percent more. A file that was full just before its memtable
/// would cost a second one, for the rest.
pub(crate) fn log_file_bytes(registry: &Registry) -> u64 {
    let largest = registry.by_id.values().map(|k| k.options.memtable_bytes).max().unwrap_or(64 << 20);
    (largest + largest / 64).clamp(LOG_FILE_BYTES_MIN, 260 << 20)
}

/// See the module's documentation.
pub(crate) struct Versions {
    pub(crate) health: Arc<Health>,
    /// False if the store is open read-only.
    pub(crate) is_writable: bool,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) source: Arc<TableSource>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) next_file: AtomicU64,
    pub(crate) snapshots: Arc<Snapshots>,
    /// None while an editor has it.
    pub(crate) manifest: Mutex<Option<Manifest>>,
    pub(crate) editor_returned: Arc<dyn Event>,
    /// The damages that were found when the store was opened, and made good from elsewhere.
    pub(crate) mended: Mutex<Vec<StorageError>>,
    /// The time of the last repair that lost something, in milliseconds since 1970.
    pub(crate) lossy_repair: Option<u64>,
    /// True if there were further volumes before the store was opened.
    pub(crate) had_several_volumes: bool,
    /// The bytes of finished log files that stay for change feeds.
    pub(crate) changes_kept: u64,
    /// In a repair: the tables that have temporary names until [`name_tables`](Versions::name_tables).
    pub(crate) unnamed: Option<Mutex<BTreeSet<u64>>>,
    /// Tables and segments that a doubtful edit names, which may be on disk or not: they must not be deleted. Empty
    /// unless the disk had no room for an edit, or did not answer.
    pub(crate) doubtful: Mutex<Vec<u64>>,
}

impl Versions {
    /// Returns a file number that no other file has.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the live keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<Arc<KeyspaceCore>> {
        lock(&self.registry).by_id.values().cloned().collect()
    }

    /// Returns the name of a keyspace, for messages.
    pub(crate) fn keyspace_name(&self, id: u32) -> String {
        let found = lock(&self.registry).by_id.get(&id).map(|keyspace| keyspace.name.clone());
        found.unwrap_or_else(|| format!("number {id}, dropped"))
    }

    /// Notes that it is unknown if this edit survives a crash.
    pub(crate) fn note_doubt(&self, edit: &Edit, why: &StorageError) {
        // Tables that only change their level are in force with or without the edit. Number 0 is no table's: it marks
        // the doubt even if the edit adds none.
        let moved = |number| edit.removed.iter().any(|(_, removed)| removed.number == number);
        let added = edit.added.iter().map(|(_, added)| added.meta.number).filter(|number| !moved(*number));
        let registry = lock(&self.registry);
        // A segment that is in force has got more values: it stays whatever becomes of the edit.
        let in_force = |id: &u32, number: u64| {
            registry.by_id.get(id).is_some_and(|keyspace| keyspace.view.load().version.segments.find(number).is_some())
        };
        let segments = edit.values_written.iter().filter(|(id, written)| !in_force(id, written.segment));
        let segments: Vec<u64> = segments.map(|(_, written)| written.segment).collect();
        lock(&self.doubtful).extend(added.chain(segments).chain([0]));
        for keyspace in edit.dropped.iter().filter_map(|id| registry.by_id.get(id)) {
            keyspace.doubtful_drop.store(Some(Arc::new(why.clone())));
        }
    }

    /// Returns the error of an edit that would break a version. Such an edit must not be written: the store's memory is
    /// no longer to be trusted.
    pub(crate) fn broken_version(&self, keyspace: &KeyspaceCore, text: String) -> Error {
        let what = format!("version of keyspace {:?}", keyspace.name);
        let error = StorageError::corruption("the version in memory", 0, what, "an edit that fits", text);
        self.health.fail(error.clone());
        error.into()
    }

    /// Returns the oldest log file that something in memory still needs, by keyspace. `current` is the log file that
    /// takes records; the caller holds the commit lock, so that no new write slips in between.
    pub(crate) fn log_numbers(&self, current: u64) -> Vec<(u32, u64)> {
        let registry = lock(&self.registry);
        let number = |k: &KeyspaceCore| k.view.load().first_log().unwrap_or(current);
        registry.by_id.values().map(|k| (k.id, number(k))).collect()
    }

    /// Returns an edit that describes the whole present state.
    pub(crate) fn snapshot_edit(&self) -> Edit {
        let registry = lock(&self.registry);
        let mut edit = Edit {
            next_file: Some(self.next_file.load(Ordering::Relaxed)),
            last_sequence: Some(self.snapshots.visible()),
            next_keyspace: Some(registry.next_id),
            lossy_repair: self.lossy_repair,
            several_volumes: self.had_several_volumes || self.source.are_several,
            changes_kept: Some(self.changes_kept).filter(|bytes| *bytes > 0),
            ..Edit::default()
        };
        for keyspace in registry.by_id.values() {
            edit.created.push((keyspace.id, keyspace.name.clone()));
            edit.log_numbers.push((keyspace.id, keyspace.log_number.load(Ordering::Relaxed)));
            edit.add_version(keyspace.id, &keyspace.view.load().version);
        }
        edit
    }

    /// See [`Store::check`](crate::Store::check).
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |file: String, what: String, expected: String, found: String| -> Error {
            StorageError::corruption(file, 0, what, expected, found).into()
        };
        // The views keep their tables from being deleted until they have been looked for.
        let views: Vec<_> = self.keyspaces().into_iter().map(|k| (k.view.load_full(), k)).collect();
        let visible = self.snapshots.visible();
        let lengths: HashMap<FileName, u64> = self.volume.list()?.iter().map(|f| (f.name, f.bytes)).collect();
        let next_file = self.next_file.load(Ordering::Relaxed);
        for (view, keyspace) in &views {
            let what = format!("version of keyspace {:?}", keyspace.name);
            let broken =
                |text: String| wrong("the version in memory".to_owned(), what.clone(), "a sound one".to_owned(), text);
            view.version.check().map_err(broken)?;
            for (_, file) in view.version.files() {
                let (meta, name) = (&file.meta, FileName::Table(file.meta.number));
                let found = lengths.get(&name).copied();
                if found != Some(meta.bytes) {
                    let expected = format!("{} bytes", meta.bytes);
                    return Err(wrong(name.to_string(), "file".to_owned(), expected, format!("{found:?}")));
                }
                if meta.number >= next_file || meta.largest_sequence > visible {
                    let expected = format!("a number below {next_file} and sequence numbers up to {visible}");
                    return Err(wrong(name.to_string(), "numbers".to_owned(), expected, format!("{meta:?}")));
                }
            }
            for segment in view.version.segments.files() {
                let name = FileName::Values(segment.number);
                if !lengths.contains_key(&name) || segment.number >= next_file {
                    let expected = format!("a segment with a number below {next_file}");
                    return Err(wrong(
                        name.to_string(),
                        "file".to_owned(),
                        expected,
                        format!("{:?}", lengths.get(&name)),
                    ));
                }
            }
            let first_log = view.first_log().map(FileName::Log).filter(|log| !lengths.contains_key(log));
            if let Some(log) = first_log
                && Arc::ptr_eq(view, &keyspace.view.load_full())
            {
                let expected = format!("a log file that keyspace {:?} depends on", keyspace.name);
                return Err(wrong(log.to_string(), "file".to_owned(), expected, "no such file".to_owned()));
            }
        }
        Ok(())
    }

    /// Asserts the invariants of all versions after an install. In runs of the simulator and of the tests only: the
    /// cost is that of all tables.
    #[cfg(feature = "costly-checks")]
    pub(crate) fn assert_versions(&self) {
        let next_file = self.next_file.load(Ordering::Relaxed);
        for keyspace in self.keyspaces() {
            let view = keyspace.view.load_full();
            let name = &keyspace.name;
            view.version
                .check()
                .unwrap_or_else(|text| panic!("the version of keyspace {name:?} after an install: {text}"));
            let visible = self.snapshots.visible();
            for (level, file) in view.version.files() {
                let meta = &file.meta;
                let is_known = meta.number < next_file && meta.largest_sequence <= visible;
                assert!(is_known, "level {level} of {name:?}: next file {next_file}, visible {visible}, {meta:?}");
            }
            let newest_first =
                view.version.levels[0].files.is_sorted_by_key(|file| std::cmp::Reverse(file.meta.largest_sequence));
            assert!(newest_first, "level 0 of {name:?} is not newest first");
        }
    }

    /// Returns the name under which a table begins.
    pub(crate) fn name_to_begin(&self, number: u64) -> FileName {
        match &self.unnamed {
            Some(unnamed) => {
                lock(unnamed).insert(number);
                FileName::Temporary(number)
            }
            None => FileName::Table(number),
        }
    }

    /// Removes the temporary file of a table that is given up.
    pub(crate) fn never_name(&self, number: u64) {
        if self.unnamed.as_ref().is_some_and(|unnamed| lock(unnamed).remove(&number)) {
            // What stays is removed by the next opening or repair.
            let _ = self.volume.remove(FileName::Temporary(number));
        }
    }

    /// Gives the tables of a repair their own names. Only after [`sync_names`](situ_storage::Volume::sync_names) they
    /// keep them.
    pub(crate) fn name_tables(&self) -> Result<()> {
        let Some(unnamed) = &self.unnamed else { return Ok(()) };
        for number in std::mem::take(&mut *lock(unnamed)) {
            self.volume.rename(FileName::Temporary(number), FileName::Table(number))?;
        }
        Ok(())
    }

    /// Tells what was damaged when the store was opened, and made good from elsewhere.
    pub(crate) fn note_mended(&self, damages: Vec<StorageError>) {
        for damage in &damages {
            self.health.tell(|| StoreEvent::ManifestMended { damage: damage.clone().into() });
        }
        *lock(&self.mended) = damages;
    }
}
