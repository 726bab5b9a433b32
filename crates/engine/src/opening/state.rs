//! The state of a store as its manifest has it, and the files that it needs.

use crate::base::places::{HOME, MissingFile};
use crate::versions::edit::Edit;
use crate::versions::version::{TableSource, Version};
use situ_compaction::DroppedValues;
use situ_storage::{Error as StorageError, FileMeta, FileName, Volume};
use situ_values::Written;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The state that a manifest's edits add up to.
#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) next_file: u64,
    pub(crate) last_sequence: u64,
    pub(crate) next_keyspace: u32,
    pub(crate) keyspaces: BTreeMap<u32, KeyspaceState>,
    /// The store was closed in order, with this log file as the last.
    pub(crate) closed: Option<u64>,
    /// The time at which a repair last lost something, in milliseconds since 1970.
    pub(crate) lossy_repair: Option<u64>,
    /// True if the store has further volumes, or had some.
    pub(crate) several_volumes: bool,
    /// The bytes of finished log files that stay for change feeds.
    pub(crate) changes_kept: u64,
}

pub(crate) struct KeyspaceState {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) log_number: u64,
}

impl StoreState {
    /// Applies edits in order; the error describes the one that does not fit.
    pub(crate) fn replay(edits: Vec<Edit>, source: &Arc<TableSource>) -> Result<StoreState, String> {
        let mut state = StoreState::default();
        for (at, edit) in edits.into_iter().enumerate() {
            state.apply(edit, source).map_err(|text| format!("edit {at} does not fit: {text}"))?;
        }
        Ok(state)
    }

    fn apply(&mut self, edit: Edit, source: &Arc<TableSource>) -> Result<(), String> {
        self.next_file = edit.next_file.unwrap_or(self.next_file);
        self.closed = edit.closed;
        self.lossy_repair = edit.lossy_repair.or(self.lossy_repair);
        self.several_volumes |= edit.several_volumes;
        self.changes_kept = edit.changes_kept.unwrap_or(self.changes_kept);
        self.last_sequence = edit.last_sequence.unwrap_or(self.last_sequence);
        self.next_keyspace = edit.next_keyspace.unwrap_or(self.next_keyspace);
        for (id, name) in edit.created {
            let fresh = KeyspaceState { name, version: Version::empty(), log_number: 0 };
            if self.keyspaces.insert(id, fresh).is_some() {
                return Err(format!("keyspace {id} exists already"));
            }
        }
        for (id, number) in edit.log_numbers {
            // Of a keyspace that was dropped while the edit was on its way.
            if let Some(keyspace) = self.keyspaces.get_mut(&id) {
                keyspace.log_number = number;
            }
        }
        let mut changes: BTreeMap<u32, (Vec<_>, Vec<_>)> = BTreeMap::new();
        edit.removed.into_iter().for_each(|(id, removed)| changes.entry(id).or_default().0.push(removed));
        for (id, mut added) in edit.added {
            // A file counts where it is found; the manifest says where it was written.
            if source.are_several {
                added.meta.volume = source.volume_of(added.meta.number);
            }
            changes.entry(id).or_default().1.push(added);
        }
        for (id, (removed, added)) in changes {
            let keyspace = self.keyspaces.get_mut(&id).ok_or_else(|| format!("there is no keyspace {id}"))?;
            keyspace.version = keyspace.version.apply(&removed, &added, source)?;
        }
        self.apply_values(&edit.values_written, &edit.values_dead, &edit.segments_removed, source)?;
        for id in edit.dropped {
            self.keyspaces.remove(&id).ok_or_else(|| format!("there is no keyspace {id} to drop"))?;
        }
        Ok(())
    }

    fn apply_values(
        &mut self,
        written: &[(u32, Written)],
        dead: &[(u32, DroppedValues)],
        removed: &[(u32, u64)],
        source: &TableSource,
    ) -> Result<(), String> {
        let ids = written.iter().map(|(id, _)| id).chain(dead.iter().map(|(id, _)| id));
        let ids: BTreeSet<u32> = ids.chain(removed.iter().map(|(id, _)| id)).copied().collect();
        for id in ids {
            let keyspace = self.keyspaces.get_mut(&id).ok_or_else(|| format!("there is no keyspace {id}"))?;
            let written = of_keyspace(written, id);
            let version = keyspace.version.clone().with_segments(&written, &of_keyspace(removed, id), source)?;
            version.segments.note_written(&written);
            version.segments.note_dead(&of_keyspace(dead, id))?;
            keyspace.version = version;
        }
        Ok(())
    }

    /// Returns the numbers of all segments in force.
    pub(crate) fn segments(&self) -> HashSet<u64> {
        self.keyspaces.values().flat_map(|k| k.version.segments.files().iter().map(|file| file.number)).collect()
    }

    /// Returns the numbers of all tables in force.
    pub(crate) fn tables(&self) -> HashSet<u64> {
        self.keyspaces.values().flat_map(|k| k.version.files().map(|(_, f)| f.meta.number)).collect()
    }
}

/// Returns the items of a keyspace.
fn of_keyspace<T: Copy>(all: &[(u32, T)], id: u32) -> Vec<T> {
    all.iter().filter(|(of, _)| *of == id).map(|(_, one)| *one).collect()
}

impl MissingFile {
    pub(crate) fn error(&self, volume: &dyn Volume) -> StorageError {
        let path = format!("{}/{}", volume.location(), self.name);
        let expected = format!("{} (situ repair can go on without it)", self.expected);
        StorageError::corruption(path, 0, if self.is_gone { "file" } else { "file length" }, expected, &self.found)
    }
}

impl StoreState {
    /// Returns the needed tables, segments and log files that are missing.
    pub(crate) fn missing_files(&self, files: &[FileMeta]) -> Vec<MissingFile> {
        let lengths: HashMap<FileName, u64> = files.iter().map(|f| (f.name, f.bytes)).collect();
        let missing_file = |name, expected, may_be_elsewhere| {
            let bytes = lengths.get(&name);
            let found = bytes.map_or("no such file".to_owned(), |bytes| format!("{bytes} bytes"));
            MissingFile { name, is_gone: bytes.is_none(), expected, found, may_be_elsewhere }
        };
        let mut missing = Vec::new();
        for (_, file) in self.keyspaces.values().flat_map(|k| k.version.files()) {
            let (name, bytes) = (FileName::Table(file.meta.number), file.meta.bytes);
            if lengths.get(&name) != Some(&bytes) {
                let expected = format!("{bytes} bytes, as the manifest says");
                missing.push(missing_file(name, expected, file.meta.volume != HOME));
            }
        }
        let segments = self.keyspaces.values().flat_map(|k| k.version.segments.files());
        for name in segments.map(|file| FileName::Values(file.number)).filter(|name| !lengths.contains_key(name)) {
            missing.push(missing_file(name, "a segment of values".to_owned(), false));
        }
        // The first log file still needed exists from before an edit says so until after one says otherwise.
        let first = self.keyspaces.values().map(|k| k.log_number).min();
        for number in first.into_iter().chain(self.closed).filter(|number| *number > 0) {
            let name = FileName::Log(number);
            // It has its whole length before it is used; recovery finds cuts behind its first pages.
            let is_there = lengths.get(&name).is_some_and(|bytes| *bytes >= situ_log::FILE_BYTES_MIN);
            if is_there || missing.iter().any(|m| m.name == name) {
                continue;
            }
            let is_newer = |name: &FileName| matches!(name, FileName::Log(later) if *later > number);
            let newer = if !lengths.contains_key(&name) && lengths.keys().any(is_newer) {
                ". Later log files exist: this directory may be an older copy of the store. If so, bring the newer copy back"
            } else {
                ""
            };
            let expected = format!("a log file of {} bytes or more{newer}", situ_log::FILE_BYTES_MIN);
            missing.push(missing_file(name, expected, true));
        }
        missing
    }

    /// Moves the next file number past those of `files`: new files must not get numbers that a file has already.
    pub(crate) fn pass_numbers_of(&mut self, files: &[FileMeta]) {
        let highest = files.iter().filter_map(|f| f.name.number()).max().unwrap_or(0);
        self.next_file = self.next_file.max(highest.saturating_add(1));
    }
}

/// Returns the log files that may hold something that is in no table, ascending.
pub(crate) fn needed_logs(state: &StoreState, files: impl Iterator<Item = FileName>) -> Vec<u64> {
    let oldest = state.keyspaces.values().map(|k| k.log_number).min().unwrap_or(0);
    let mut logs: Vec<u64> = files
        .filter_map(|name| match name {
            FileName::Log(number) if number >= oldest => Some(number),
            _ => None,
        })
        .collect();
    logs.sort_unstable();
    logs
}
