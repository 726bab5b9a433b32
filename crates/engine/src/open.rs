//! Opening a store: from files to a running [`Core`].
//!
//! 1. Take the lock. `CURRENT` names the manifest; without it and without any of a store's files, a new store is made.
//! 2. Apply the manifest's edits. Files that no version names are orphans of an interrupted job and are removed.
//! 3. Replay the log files that hold what is not in tables; each record goes to the keyspaces that have not flushed it.
//! 4. What was replayed is written as tables of level 0; a new manifest with a snapshot of all this is put in force; the
//!    old log files go. A crash before that leaves everything as it was, and the next open does the same again.
//!
//! Read-only: nothing is locked or written, orphans stay, and what was replayed stays in memory.

use crate::batch::Record;
use crate::core::{Core, Parts, Registry};
use crate::edit::Edit;
use crate::flush::{Host, describe};
use crate::keyspace::KeyspaceCore;
use crate::manifest::{self, Manifest};
use crate::options::{KeyspaceOptions, LEVELS, Options};
use crate::version::{Added, TableSource, Version};
use crate::view::Slot;
use crate::{Error, Result};
use situ_device::Env;
use situ_log::{Log, LogOptions, RecoveryMode, recover};
use situ_storage::{Error as StorageError, FileName, Lock, Volume};
use situ_table::{BlockCache, KeyKind, Trailer};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The keyspace that every store has.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";
pub(crate) const DEFAULT_KEYSPACE_ID: u32 = 0;
const IDENTITY: &str = "This directory is a Situ store. Do not change its files by hand; see `situ inspect`.\n";
const KEYSPACE_NAME_BYTES_MAX: usize = 255;

pub(crate) type KeyspaceChoices = HashMap<String, KeyspaceOptions>;

/// The state that a manifest's edits add up to.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) next_file: u64,
    pub(crate) last_sequence: u64,
    pub(crate) next_keyspace: u32,
    pub(crate) keyspaces: BTreeMap<u32, KeyspaceState>,
}

pub(crate) struct KeyspaceState {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) log_number: u64,
}

impl State {
    /// Applies edits in order; the error says in words which one does not fit.
    pub(crate) fn replay(edits: Vec<Edit>, source: &Arc<TableSource>) -> Result<State, String> {
        let mut state = State::default();
        for (at, edit) in edits.into_iter().enumerate() {
            state.apply(edit, source).map_err(|text| format!("edit {at} does not fit: {text}"))?;
        }
        Ok(state)
    }

    fn apply(&mut self, edit: Edit, source: &Arc<TableSource>) -> Result<(), String> {
        self.next_file = edit.next_file.unwrap_or(self.next_file);
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
        edit.added.into_iter().for_each(|(id, added)| changes.entry(id).or_default().1.push(added));
        for (id, (removed, added)) in changes {
            let keyspace = self.keyspaces.get_mut(&id).ok_or_else(|| format!("there is no keyspace {id}"))?;
            keyspace.version = keyspace.version.apply(&removed, &added, source)?;
        }
        for id in edit.dropped {
            self.keyspaces.remove(&id).ok_or_else(|| format!("there is no keyspace {id} to drop"))?;
        }
        Ok(())
    }

    /// The numbers of all tables in force.
    pub(crate) fn tables(&self) -> HashSet<u64> {
        self.keyspaces.values().flat_map(|k| k.version.files().map(|(_, f)| f.meta.number)).collect()
    }
}

/// What opening gives.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) lock: Option<Box<dyn Lock>>,
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX {
        let bytes = name.len();
        return Err(Error::Invalid(format!(
            "the name of a keyspace has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, and this one has {bytes}"
        )));
    }
    Ok(())
}

pub(crate) fn open(
    volume: Arc<dyn Volume>,
    env: Env,
    mut options: Options,
    keyspaces: &KeyspaceChoices,
    read_only: bool,
) -> Result<Opened> {
    options.keyspace = options.keyspace.bounded();
    options.compaction_threads = options.compaction_threads.clamp(1, 64);
    let lock = if read_only { None } else { Some(volume.lock()?) };
    let cache = BlockCache::new(options.cache_bytes);
    let source = Arc::new(TableSource::new(Arc::clone(&volume), cache));
    let mut state = match manifest::current(&*volume)? {
        Some(_) if options.error_if_exists => {
            return Err(Error::Existence(format!("there is a store in {} already", volume.location())));
        }
        Some(number) => {
            let found = manifest::read(&*volume, number)?;
            State::replay(found.edits, &source).map_err(|text| {
                let name = FileName::Manifest(number);
                Error::Storage(StorageError::corruption(name, 0, "edits", "a state", text))
            })?
        }
        None => new_state(&volume, &options, read_only)?,
    };
    let files = volume.list()?;
    let highest = files.iter().map(|f| number_of(f.name)).max().unwrap_or(0);
    state.next_file = state.next_file.max(highest + 1);
    let logs = needed_logs(&state, files.iter().map(|f| f.name));
    let chosen = |name: &str| keyspaces.get(name).unwrap_or(&options.keyspace).clone();
    let mut registry = Registry { by_id: BTreeMap::new(), next_id: state.next_keyspace };
    for (id, found) in &state.keyspaces {
        let options = chosen(&found.name);
        let core = KeyspaceCore::new(*id, found.name.clone(), options, found.version.clone(), found.log_number);
        registry.by_id.insert(*id, core);
    }
    let tables = state.tables();
    let log_file_bytes = log_file_bytes(&registry);
    let parts = |log, manifest, registry, next_file, last_sequence, log_number| Parts {
        env: env.clone(),
        volume: Arc::clone(&volume),
        options: options.clone(),
        source: Arc::clone(&source),
        log,
        manifest,
        registry,
        next_file,
        last_sequence,
        log_number,
        log_file_bytes,
    };
    if read_only {
        let core = Core::new(parts(None, None, registry, state.next_file, state.last_sequence, 0));
        let last = replay(&core, &logs, state.last_sequence, |_, _| Ok(()))?;
        core.visible.store(last, std::sync::atomic::Ordering::Release);
        return Ok(Opened { core: Arc::new(core), lock });
    }

    remove_orphans(&*volume, files.iter().map(|f| f.name), &tables, &logs)?;
    // A core without a log serves for the recovery: it can number files and write tables, but takes no writes.
    let scratch = Arc::new(Core::new(parts(None, None, registry, state.next_file, state.last_sequence, 0)));
    let mut recovered: Vec<(u32, Added)> = Vec::new();
    let flush = |keyspace: &Arc<KeyspaceCore>, slot: &Arc<Slot>| -> Result<()> {
        let host = Host::new(&scratch, false, slot.bytes());
        let written = scratch.write_slot(keyspace, slot, &host)?;
        let added: Vec<Added> = written.iter().map(|t| Added { level: 0, meta: describe(t) }).collect();
        let version = keyspace.view.load().version.apply(&[], &added, &source);
        let version = Arc::new(version.map_err(|text| scratch.broken_version(keyspace, text))?);
        keyspace.view.rcu(|view| crate::view::View {
            active: Slot::new(slot.memtable.entries() as u64),
            sealed: Vec::new(),
            version: Arc::clone(&view.version),
        });
        keyspace.view.rcu(|view| crate::view::View { version: Arc::clone(&version), ..(**view).clone() });
        recovered.extend(added.into_iter().map(|a| (keyspace.id, a)));
        Ok(())
    };
    let last_sequence = replay_and_flush(&scratch, &logs, state.last_sequence, flush)?;
    drop(recovered);

    let registry = std::mem::take(&mut *crate::core::lock(&scratch.registry));
    let log_number = scratch.new_number();
    let log_options = LogOptions { file_bytes: log_file_bytes, ..LogOptions::default() };
    let log = Log::create(Arc::clone(&volume), env.clone(), log_options, log_number)?;
    for keyspace in registry.by_id.values() {
        keyspace.log_number.store(log_number, std::sync::atomic::Ordering::Relaxed);
    }
    let manifest_number = scratch.new_number();
    let next_file = scratch.new_number();
    let mut snapshot = Edit {
        next_file: Some(next_file),
        last_sequence: Some(last_sequence),
        next_keyspace: Some(registry.next_id),
        ..Edit::default()
    };
    for keyspace in registry.by_id.values() {
        snapshot.created.push((keyspace.id, keyspace.name.clone()));
        snapshot.log_numbers.push((keyspace.id, log_number));
        for (level, file) in keyspace.view.load().version.files() {
            snapshot.added.push((keyspace.id, Added { level, meta: file.meta.clone() }));
        }
    }
    let manifest = Manifest::create(&volume, manifest_number, &snapshot)?;
    for file in &files {
        let old = match file.name {
            FileName::Manifest(number) => number != manifest_number,
            FileName::Log(number) => logs.contains(&number),
            _ => false,
        };
        if old {
            remove(&*volume, file.name)?;
        }
    }
    volume.sync_names()?;
    let core = Core::new(parts(Some(log), Some(manifest), registry, next_file + 1, last_sequence, log_number));
    Ok(Opened { core: Arc::new(core), lock })
}

/// Log files are as long as the memtable they serve, so that both are full at about the same time.
fn log_file_bytes(registry: &Registry) -> u64 {
    let largest = registry.by_id.values().map(|k| k.options.memtable_bytes).max().unwrap_or(64 << 20);
    largest.clamp(64 << 10, 256 << 20)
}

fn number_of(name: FileName) -> u64 {
    match name {
        FileName::Log(n) | FileName::Spare(n) | FileName::Table(n) | FileName::Manifest(n) | FileName::Temporary(n) => {
            n
        }
        _ => 0,
    }
}

/// The log files that may hold something that is in no table, ascending.
fn needed_logs(state: &State, files: impl Iterator<Item = FileName>) -> Vec<u64> {
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

/// The state of a store that does not exist yet. A crash while a store is being made leaves an empty log and perhaps a
/// manifest, but no `CURRENT`; that is still no store. Anything more without `CURRENT` is somebody's data.
fn new_state(volume: &Arc<dyn Volume>, options: &Options, read_only: bool) -> Result<State> {
    let location = volume.location();
    let files = volume.list()?;
    let tables = files.iter().any(|f| matches!(f.name, FileName::Table(_)));
    let logs = needed_logs(&State::default(), files.iter().map(|f| f.name));
    let mut records = 0;
    if !logs.is_empty() && !tables {
        recover(volume, &logs, RecoveryMode::Strict, &mut |_, _| {
            records += 1;
            Ok(())
        })?;
    }
    if tables || records > 0 {
        let text =
            format!("{location} holds data but no CURRENT file, so it is a damaged store; run `situ repair` on it");
        return Err(Error::Existence(text));
    }
    if read_only || !options.create_if_missing {
        return Err(Error::Existence(format!("there is no store in {location}")));
    }
    volume.replace(FileName::Identity, IDENTITY.as_bytes())?;
    let default = KeyspaceState { name: DEFAULT_KEYSPACE.to_owned(), version: Version::empty(), log_number: 0 };
    Ok(State {
        next_file: 1,
        last_sequence: 0,
        next_keyspace: DEFAULT_KEYSPACE_ID + 1,
        keyspaces: BTreeMap::from([(DEFAULT_KEYSPACE_ID, default)]),
    })
}

fn remove(volume: &dyn Volume, name: FileName) -> Result<()> {
    match volume.remove(name) {
        Ok(()) | Err(StorageError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn remove_orphans(
    volume: &dyn Volume,
    files: impl Iterator<Item = FileName>,
    tables: &HashSet<u64>,
    logs: &[u64],
) -> Result<()> {
    for name in files {
        let orphan = match name {
            FileName::Table(number) => !tables.contains(&number),
            FileName::Log(number) => !logs.contains(&number),
            FileName::Temporary(_) => true,
            _ => false,
        };
        if orphan {
            remove(volume, name)?;
        }
    }
    Ok(())
}

/// Replays into memory only.
fn replay(
    core: &Core,
    logs: &[u64],
    last_sequence: u64,
    mut full: impl FnMut(&Arc<KeyspaceCore>, &Arc<Slot>) -> Result<()>,
) -> Result<u64> {
    let keyspaces: BTreeMap<u32, Arc<KeyspaceCore>> = core.keyspaces().into_iter().map(|k| (k.id, k)).collect();
    let mut last = last_sequence;
    let mut failure: Option<Error> = None;
    let outcome = recover(&core.volume, logs, RecoveryMode::Strict, &mut |position, bytes| {
        let record = Record::decode(bytes).map_err(|found| {
            let name = FileName::Log(position.file);
            StorageError::corruption(
                name,
                u64::from(position.page) * situ_storage::PAGE_BYTES as u64,
                "record",
                "a write batch",
                found,
            )
        })?;
        let mut sequence = record.first;
        for operation in &record.operations {
            if let Some(keyspace) = keyspaces.get(&operation.keyspace)
                && position.file >= keyspace.log_number.load(std::sync::atomic::Ordering::Relaxed)
            {
                let slot = Arc::clone(&keyspace.view.load().active);
                slot.reserve((operation.key.len() + operation.value.len()) as u64, position.file);
                match operation.kind {
                    KeyKind::RangeDelete => {
                        slot.memtable.insert_range_tombstone(operation.key, operation.value, sequence);
                    }
                    kind => slot.memtable.insert(operation.key, Trailer::new(sequence, kind), operation.value),
                }
            }
            sequence += 1;
        }
        last = last.max(sequence.saturating_sub(1));
        for keyspace in keyspaces.values() {
            let slot = Arc::clone(&keyspace.view.load().active);
            if slot.bytes() >= keyspace.options.memtable_bytes
                && let Err(error) = full(keyspace, &slot)
            {
                failure = Some(error);
                return Err(StorageError::Invalid("recovery stopped".to_owned()));
            }
        }
        Ok(())
    });
    match (outcome, failure) {
        (_, Some(error)) => Err(error),
        (outcome, None) => {
            outcome?;
            Ok(last)
        }
    }
}

/// Replays, and writes memtables as tables when they are full and at the end.
fn replay_and_flush(
    core: &Core,
    logs: &[u64],
    last_sequence: u64,
    mut flush: impl FnMut(&Arc<KeyspaceCore>, &Arc<Slot>) -> Result<()>,
) -> Result<u64> {
    let last = replay(core, logs, last_sequence, &mut flush)?;
    for keyspace in core.keyspaces() {
        let slot = Arc::clone(&keyspace.view.load().active);
        if !slot.is_empty() {
            flush(&keyspace, &slot)?;
        }
    }
    debug_assert!(core.keyspaces().iter().all(|k| k.view.load().version.levels.len() == LEVELS));
    Ok(last)
}
