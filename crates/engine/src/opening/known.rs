//! The contents of a store's manifest, read before the store is open: for those who look for its volumes.

use crate::Error;
use crate::Result;
use crate::base::batch::Record;
use crate::base::places::{HOME, NeededFiles, NeededTable, Plain, Volumes};
use crate::opening::replay::check_closed;
use crate::opening::state::{StoreState, needed_logs};
use crate::versions::edit::Edit;
use crate::versions::manifest;
use crate::versions::version::TableSource;
use situ_base::Env;
use situ_log::{RecoveryMode, recover};
use situ_storage::{FileMeta, FileName, Volume};
use situ_table::BlockCache;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of tables that are open at a time.
const OPEN_TABLES_MAX: usize = 16;

/// A store, as its manifest knows it.
pub struct KnownStore {
    state: StoreState,
    is_whole: bool,
}

impl KnownStore {
    /// Reads the manifest in force at home; `None` if there is none.
    ///
    /// # Errors
    /// CURRENT or the manifest cannot be read, or its edits do not fit each other.
    pub fn in_force(home: &Arc<dyn Volume>, env: &Env) -> Result<Option<KnownStore>> {
        let Some(number) = manifest::current(&**home)? else { return Ok(None) };
        let edits = manifest::read_damaged(&**home, number)?.edits;
        let known = KnownStore::of(edits, true, &Plain::on(home), env).map_err(Error::Invalid)?;
        Ok(Some(known))
    }

    /// Reads the manifest in force, or else the readable part of the youngest one. A table counts on the volume where
    /// it is found.
    ///
    /// # Errors
    /// In words: no manifest can be read, or its edits do not fit each other.
    pub fn readable(volumes: &Arc<dyn Volumes>, env: &Env) -> Result<KnownStore, String> {
        // Not through all volumes: a file at home may lie on another volume as well.
        let (edits, is_whole) = edits_known(volumes.numbered(HOME).unwrap_or(&**volumes.volume()))?;
        KnownStore::of(edits, is_whole, volumes, env)
    }

    fn of(edits: Vec<Edit>, is_whole: bool, volumes: &Arc<dyn Volumes>, env: &Env) -> Result<KnownStore, String> {
        let source = TableSource::new(volumes, BlockCache::new(0), env, OPEN_TABLES_MAX);
        let state = StoreState::replay(edits, &Arc::new(source))?;
        Ok(KnownStore { state, is_whole })
    }

    /// Returns true if the manifest is the one in force, and not what can be read of the youngest one.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the files that the manifest needs, compared with `files`.
    pub fn needed(&self, files: &[FileMeta]) -> NeededFiles {
        self.state.needed_files(files)
    }

    /// Returns true if table `number` opens, and is as the manifest describes it.
    pub fn describes(&self, number: u64) -> bool {
        let mut files = self.state.keyspaces.values().flat_map(|keyspace| keyspace.version.files());
        files.any(|(_, file)| file.meta.number == number && file.table().is_ok())
    }

    /// Checks that the sequence numbers of the log in files `logs` fit those of the manifest.
    ///
    /// # Errors
    /// In words: they do not fit, or the log cannot be read.
    pub fn check_log(&self, volume: &Arc<dyn Volume>, logs: &[u64]) -> Result<(), String> {
        let mut numbers: Option<(u64, u64)> = None;
        let report = recover(volume, logs, RecoveryMode::Repair, &mut |_, bytes| {
            if let Ok(record) = Record::decode(bytes) {
                let first = numbers.map_or(record.first, |(first, _)| first);
                numbers = Some((first, (record.first + record.len() as u64).saturating_sub(1)));
            }
            Ok(())
        });
        let report = report.map_err(|error| error.to_string())?;
        if let Some(closed) = self.state.closed {
            check_closed(&report, closed).map_err(|error| error.to_string())?;
        }
        let Some((first, last)) = numbers else { return Ok(()) };
        let ends = self.state.last_sequence;
        if first > ends.saturating_add(1) || (self.state.closed.is_some() && last != ends) {
            return Err(format!(
                "the log on the disk does not fit the manifest: the log has sequence numbers {first} to {last}, and the manifest ends \
                 at {ends}"
            ));
        }
        Ok(())
    }
}

/// Returns the edits of the manifest in force, and true; or the readable edits of the youngest that is there, and
/// false.
fn edits_known(home: &dyn Volume) -> Result<(Vec<Edit>, bool), String> {
    let why =
        match manifest::current(home).and_then(|number| number.map(|n| manifest::read_damaged(home, n)).transpose()) {
            Ok(Some(found)) => return Ok((found.edits, true)),
            Ok(None) => "the file CURRENT, which names the manifest, is missing in the home".to_owned(),
            Err(error) => error.to_string(),
        };
    let files = home.list().map_err(|error| error.to_string())?;
    let edits = manifest::readable_of_youngest(home, &files);
    if edits.is_empty() { Err(why) } else { Ok((edits, false)) }
}

/// Returns the tables in the readable part of the youngest manifest at home, and the volume of each.
pub fn tables_of_youngest_manifest(home: &dyn Volume, files: &[FileMeta]) -> BTreeMap<u64, u32> {
    let mut tables = BTreeMap::new();
    for edit in manifest::readable_of_youngest(home, files) {
        for (_, removed) in &edit.removed {
            tables.remove(&removed.number);
        }
        tables.extend(edit.added.iter().map(|(_, added)| (added.meta.number, added.meta.volume)));
    }
    tables
}

impl StoreState {
    /// Returns the files that the state needs, compared with `files`.
    pub(crate) fn needed_files(&self, files: &[FileMeta]) -> NeededFiles {
        let tables = self.keyspaces.values().flat_map(|keyspace| keyspace.version.files());
        let tables = tables.map(|(level, file)| NeededTable {
            level,
            number: file.meta.number,
            volume: file.meta.volume,
            bytes: file.meta.bytes,
        });
        NeededFiles {
            tables: tables.collect(),
            missing: self.missing_files(files),
            first_log: self.keyspaces.values().map(|k| k.log_number).min().filter(|number| *number > 0),
            logs: needed_logs(self, files.iter().map(|file| file.name)),
            notes_further_volumes: self.several_volumes,
        }
    }
}

/// Returns true if the manifest in force at home has a copy among `files`. Such a manifest comes from a program that
/// would have noted further volumes in it.
pub fn manifest_has_copy(home: &dyn Volume, files: &[FileMeta]) -> Result<Option<bool>> {
    let number = manifest::current(home)?;
    Ok(number.map(|number| files.iter().any(|file| file.name == FileName::ManifestCopy(number))))
}
