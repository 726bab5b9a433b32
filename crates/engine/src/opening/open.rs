//! Opening a store: from files to a running [`Core`].
//!
//! 1. Find the volumes, and take their locks (`places.rs`). `CURRENT` names the manifest. Without
//!    `CURRENT`, and without any of a store's files, a new store is made.
//! 2. Apply the manifest's edits. Files that no version names are orphans of an interrupted job and are removed, when
//!    it is durable that nothing needs them.
//! 3. Replay the log files that hold writes which are not in tables; each record goes to the keyspaces that have not
//!    flushed it.
//! 4. Begin a new log, and put a new manifest with a snapshot of this state in force. Remove log files without replayed
//!    records. A crash before that leaves everything as it was, and the next open does the same again.
//! 5. The store is open. The replayed records are in memtables (`replay.rs`). The flusher makes tables of them, and
//!    then their log files go. A crash before that leaves the old log files and the new ones, which are read one after
//!    the other.
//!
//! A read-only opening locks and writes nothing. Orphans stay, and the replayed records stay in memory.

use crate::base::listener::StoreEvent;
use crate::base::options::{DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_ID, KeyspaceOptions, Options};
use crate::base::places::{Found, HomeVolume, Locks, Purpose};
use crate::core::{Core, Parts};
use crate::memtable::Meter;
use crate::opening::replay::{Keep, Replay, Replayed};
use crate::opening::state::{KeyspaceState, StoreState, needed_logs};
use crate::opening::values::{check_room_for_values, open_values};
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::{self, Manifest};
use crate::versions::segments::BesideWriter;
use crate::versions::store::{LOG_FILE_BYTES_MIN, Registry, log_file_bytes};
use crate::versions::version::{TableSource, Version};
use crate::{Error, Result};
use situ_base::Env;
use situ_log::{Log, LogOptions, RecoveryMode, recover};
use situ_storage::memory::require;
use situ_storage::{Error as StorageError, FileMeta, FileName, Volume, trace_of_hash_store};
use situ_table::BlockCache;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) const IDENTITY: &str =
    "This directory is a Situ store. Do not change its files by hand; see `situ inspect`.\n";
const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Memory that an idle keyspace of one entry takes, rounded up. An opening fails without it.
const KEYSPACE_BYTES: usize = 6 << 10;
/// Memory that the rest of an opening takes in small pieces, rounded up.
const OPENING_BYTES: usize = 4 << 20;

pub(crate) type KeyspaceChoices = HashMap<String, KeyspaceOptions>;

/// The result of an opening.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) locks: Locks,
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

/// The maximum number of attempts of a reader when files change under it.
const READ_ATTEMPTS_MAX: usize = 20;

/// Opens a store to write, or to read.
pub(crate) fn open(
    home: &HomeVolume,
    env: Env,
    options: Options,
    keyspaces: &KeyspaceChoices,
    read_only: bool,
) -> Result<Opened> {
    let began = env.clock.now();
    let opening = Opening { home, env, options: options.bounded(), keyspaces };
    let opened = if read_only { opening.open_to_read() } else { opening.open_to_write() }?;
    let core = &opened.core;
    core.health.tell(|| StoreEvent::Opened {
        last_sequence: core.versions.snapshots.visible(),
        tables: core.versions.keyspaces().iter().map(|keyspace| keyspace.view.load().version.files().count()).sum(),
        duration: core.env.clock.now().saturating_sub(began),
    });
    Ok(opened)
}

/// A store that is to be opened.
struct Opening<'a> {
    home: &'a HomeVolume,
    env: Env,
    options: Options,
    keyspaces: &'a KeyspaceChoices,
}

impl<'a> Opening<'a> {
    fn open_to_write(&self) -> Result<Opened> {
        let create = self.options.create_if_missing;
        // Before the lock, which would leave a file where there is no store and none is to be made.
        if !create && self.home.is_empty()? {
            return Err(no_store(&self.home.volume.location()));
        }
        let (Found { volumes, locks, .. }, source) = self.find(Purpose::Write { create })?;
        let mut chosen = self.keyspaces.values().chain([&self.options.keyspace]);
        chosen.try_for_each(|options| check_room_for_values(&source, options))?;
        let volume = volumes.volume();
        let current = manifest::current(&**volume)?;
        let (state, damages) = match current {
            Some(number) => self.read_manifest(volume, number, &source)?,
            None => (new_state(volume, create)?, Vec::new()),
        };
        let files = volume.list()?;
        let missing = current.and_then(|_| state.missing_files(&files).into_iter().next());
        if let Some(missing) = missing {
            volumes.explain_missing(&state.needed_files(&files), &files)?;
            return Err(missing.error(&**volume).into());
        }
        let ground = self.ground(volume, &source, state, &files);
        volumes.settle()?;
        let mut orphans = orphans(&files, &ground.state.tables(), &ground.state.segments(), &ground.logs);
        if ground.changes_kept() > 0 {
            // The new log releases those that change feeds do not want.
            orphans.retain(|name| !matches!(name, FileName::Log(_)));
        }
        if let (Some(number), false) = (current, orphans.is_empty()) {
            manifest::make_durable(&**volume, number)?;
        }
        orphans.into_iter().try_for_each(|name| remove(&**volume, name))?;
        open_values(volume, &self.env, &self.options, &ground.state, &source, false)?;
        let built = ground.build()?;
        // The listener is notified after the repair: the new manifest and its copy are whole.
        built.core.versions.note_mended(damages);
        built.remove_replaced(&**volume, &files)?;
        Ok(Opened { core: built.core, locks })
    }

    /// Opens a store that a writer may have open. Between two steps of the reader, the writer may put another manifest
    /// in force and give up files. So the reader believes in damage, or in a missing file, only if the next attempt
    /// finds the very same. The manifest says that a file is not needed before the writer gives up the file. No number
    /// is used twice, so an attempt that begins later does not ask for the file.
    fn open_to_read(&self) -> Result<Opened> {
        let (mut all, mut before) = (true, None);
        for _ in 0..READ_ATTEMPTS_MAX {
            let error = match self.try_to_read(all) {
                Err(Error::Storage(error @ (StorageError::Corruption(_) | StorageError::NotFound { .. }))) => error,
                result => return result,
            };
            let found = error.to_string();
            if before.as_ref() != Some(&found) {
                before = Some(found);
            } else if all {
                // The missing file may be a table that no read asks for, so the next attempts go on without missing
                // tables. Only these attempts believe that a file is missing, and look for a volume that the caller has
                // not named.
                (all, before) = (false, None);
            } else {
                return Err(error.into());
            }
        }
        Err(Error::Changed { location: self.home.volume.location() })
    }

    /// Opens the store only if `all` tables are there, or as far as they are. Locks and writes nothing.
    fn try_to_read(&self, all: bool) -> Result<Opened> {
        let (Found { volumes, locks, .. }, source) = self.find(Purpose::Read)?;
        let volume = volumes.volume();
        let Some(number) = manifest::current(&**volume)? else {
            let none = check_unborn(volume).and(Err(no_store(&volume.location())));
            // Another process may have made the store since.
            if matches!(none, Err(Error::Existence(_))) && manifest::current(&**volume)?.is_some() {
                let path = format!("{}/{}", volume.location(), FileName::Current);
                return Err(StorageError::NotFound { path }.into());
            }
            return none;
        };
        // Before the edits are read: a later edit counts as a change.
        let seen = edits_seen(&**volume);
        let (state, damages) = self.read_manifest(volume, number, &source)?;
        let files = volume.list()?;
        // A writer may delete tables under a reader; a read of such a table gets the error.
        let missing = state.missing_files(&files).into_iter().find(|m| matches!(m.name, FileName::Log(_)));
        if let Some(missing) = missing {
            // A reader looks again before it believes it.
            if !all {
                volumes.explain_missing(&state.needed_files(&files), &files)?;
            }
            return Err(missing.error(&**volume).into());
        }
        let ground = self.ground(volume, &source, state, &files);
        let (location, beside) = (self.home.volume.location(), Arc::clone(volume));
        let has_changed = Box::new(move || edits_seen(&*beside) != seen);
        source.values.read_beside(BesideWriter { location, has_changed });
        open_values(volume, &self.env, &self.options, &ground.state, &source, true)?;
        let core = ground.read_only()?;
        core.versions.note_mended(damages);
        core.hold_tables(all)?;
        Ok(Opened { core, locks })
    }

    /// Finds the volumes, and locks them to write.
    fn find(&self, purpose: Purpose) -> Result<(Found, Arc<TableSource>)> {
        let found = self.options.places.find(self.home, &self.env, purpose)?;
        let cache = BlockCache::new(self.options.cache_bytes);
        let source = TableSource::new(&found.volumes, cache, &self.env, self.options.open_tables_max);
        Ok((found, Arc::new(source)))
    }

    /// Returns the state that the manifest's edits add up to, and the damages of files that were made good.
    fn read_manifest(
        &self,
        volume: &Arc<dyn Volume>,
        number: u64,
        source: &Arc<TableSource>,
    ) -> Result<(StoreState, Vec<StorageError>)> {
        if self.options.error_if_exists {
            return Err(Error::Existence(format!("there is a store in {} already", volume.location())));
        }
        let found = manifest::read(&**volume, number)?;
        // A copy that this user may not read is not damaged.
        let unread = found.copy_unread.filter(|error| !error.is_permission_denied());
        let state = StoreState::replay(found.edits, source).map_err(|text| {
            let name = FileName::Manifest(number);
            Error::Storage(StorageError::corruption(name, 0, "edits", "a state", text))
        })?;
        Ok((state, found.damages.into_iter().chain(unread).collect()))
    }

    fn ground(
        &self,
        volume: &Arc<dyn Volume>,
        source: &Arc<TableSource>,
        mut state: StoreState,
        files: &[FileMeta],
    ) -> Ground<'a> {
        state.pass_numbers_of(files);
        Ground {
            volume: Arc::clone(volume),
            env: self.env.clone(),
            options: self.options.clone(),
            keyspaces: self.keyspaces,
            source: Arc::clone(source),
            logs: needed_logs(&state, files.iter().map(|f| f.name)),
            state,
            mode: RecoveryMode::Strict,
            before_manifest: &|| Ok(()),
        }
    }
}

/// Returns the manifest in force, and its length. Any edit changes it.
fn edits_seen(volume: &dyn Volume) -> Option<(u64, u64)> {
    let number = manifest::current(volume).ok()??;
    Some((number, volume.open(FileName::Manifest(number)).ok()?.bytes()))
}

fn no_store(location: &str) -> Error {
    Error::Existence(format!("there is no store in {location}"))
}

impl Core {
    /// Opens every table, so that a writer which deletes it later does not take it away from this reader. A read of
    /// damaged data reports the damage. If there are more tables than may be open, the reader opens none: it could not
    /// keep them open.
    fn hold_tables(&self, all: bool) -> Result<()> {
        let versions: Vec<_> = self.versions.keyspaces().iter().map(|k| Arc::clone(&k.view.load().version)).collect();
        let files = || versions.iter().flat_map(|version| version.files());
        if files().count() > self.options.open_tables_max {
            return Ok(());
        }
        for (_, file) in files() {
            match file.table() {
                Err(error @ StorageError::NotFound { .. }) if all => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A state that is on disk, from which a running core is built.
pub(crate) struct Ground<'a> {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) keyspaces: &'a KeyspaceChoices,
    pub(crate) source: Arc<TableSource>,
    pub(crate) state: StoreState,
    /// To be replayed.
    pub(crate) logs: Vec<u64>,
    /// In repair, damaged records are left out.
    pub(crate) mode: RecoveryMode,
    /// Called when all is written but the manifest. Makes names durable, and gives the tables in `state` theirs.
    pub(crate) before_manifest: &'a dyn Fn() -> Result<()>,
}

/// A running core, and the files that it does not need.
pub(crate) struct Built {
    pub(crate) core: Arc<Core>,
    /// Of the manifest in force; the others are old.
    pub(crate) manifest_number: u64,
    pub(crate) old_logs: Vec<u64>,
    /// Needed, and without a record: to be removed in this order.
    pub(crate) unused_logs: Vec<u64>,
}

impl Built {
    /// Removes the manifests and log files from before.
    fn remove_replaced(&self, volume: &dyn Volume, files: &[FileMeta]) -> Result<()> {
        let is_old = |name: &FileName| match name {
            FileName::Manifest(number) | FileName::ManifestCopy(number) => *number != self.manifest_number,
            _ => false,
        };
        let manifests = files.iter().map(|file| file.name).filter(is_old);
        // Behind them in the log are the files that change feeds may want.
        let log_files = &self.core.memory.log_files;
        let oldest_kept = log_files.log.as_ref().map_or(u64::MAX, |log| log_files.oldest_kept(log));
        let old_logs: Vec<u64> = self.old_logs.iter().copied().filter(|number| *number < oldest_kept).collect();
        let is_there = |log: &FileName| files.iter().any(|file| file.name == *log);
        let logs = |numbers: &[u64]| numbers.iter().copied().map(FileName::Log).filter(is_there).collect::<Vec<_>>();
        manifests.chain(logs(&old_logs)).try_for_each(|name| remove(volume, name))?;
        for log in logs(&self.unused_logs) {
            remove(volume, log)?;
            volume.sync_names()?;
        }
        volume.sync_names()?;
        if self.core.versions.changes_kept > 0 {
            log_files.release();
        }
        Ok(())
    }
}

impl Ground<'_> {
    /// # Errors
    /// The system has no memory for this many keyspaces.
    fn registry(&self) -> Result<Registry> {
        let count = self.state.keyspaces.len();
        require(OPENING_BYTES + count * KEYSPACE_BYTES, format_args!("a store with {count} keyspaces"))?;
        let chosen = |name: &str| self.keyspaces.get(name).unwrap_or(&self.options.keyspace).clone();
        let meter = Arc::new(Meter::new(self.options.memtables_bytes_max));
        let mut registry = Registry { by_id: BTreeMap::new(), next_id: self.state.next_keyspace, meter };
        for (id, found) in &self.state.keyspaces {
            let options = chosen(&found.name);
            let (name, version) = (found.name.clone(), found.version.clone());
            let core = KeyspaceCore::new(*id, name, options, version, found.log_number, &registry.meter);
            registry.by_id.insert(*id, core);
        }
        Ok(registry)
    }

    /// Returns the bytes of finished log files that stay for change feeds.
    fn changes_kept(&self) -> u64 {
        self.options.changes_kept_bytes.unwrap_or(self.state.changes_kept)
    }

    fn parts(&self, registry: Registry) -> Parts {
        Parts {
            env: self.env.clone(),
            volume: Arc::clone(&self.volume),
            options: self.options.clone().changes_kept_bytes(self.changes_kept()),
            source: Arc::clone(&self.source),
            log: None,
            manifest: None,
            registry,
            next_file: self.state.next_file,
            last_sequence: self.state.last_sequence,
            log_number: 0,
            lossy_repair: self.state.lossy_repair,
            had_several_volumes: self.state.several_volumes,
            names_tables_later: false,
        }
    }

    fn replay(&self, core: &Arc<Core>, keep: Keep) -> Result<Replayed> {
        Replay::run(core, &self.logs, &self.state, self.mode, keep)
    }

    /// Builds the core in memory, and writes nothing.
    fn read_only(self) -> Result<Arc<Core>> {
        let core = Core::new(self.parts(self.registry()?));
        let replayed = self.replay(&core, Keep::All)?;
        core.versions.snapshots.begin_at(replayed.last_sequence);
        Ok(core)
    }

    /// Replays the logs, begins a new one, and puts a new manifest in force. The files from before are still there
    /// then.
    pub(crate) fn build(self) -> Result<Built> {
        // A core without a log serves for the recovery: it can number files and write tables, but takes no writes.
        // A repair that is stopped must not leave tables that the next one takes for some which the manifest has lost.
        let names_tables_later = self.mode == RecoveryMode::Repair;
        let scratch = Core::new(Parts { names_tables_later, ..self.parts(self.registry()?) });
        // No later opening may meet the data that the repair has left out.
        let keep = if self.mode == RecoveryMode::Repair { Keep::Nothing } else { Keep::AsManyAsMayBe };
        let Replayed { mut last_sequence, unused, carried } = self.replay(&scratch, keep)?;

        let registry = std::mem::take(&mut *crate::base::sync::lock(&scratch.versions.registry));
        let log_number = scratch.versions.new_number();
        // The log frees whole files, so a log with a low limit consists of short ones. A disk's log area bounds the log
        // by itself.
        let has_area = self.source.are_several;
        let longest = if has_area { u64::MAX } else { (self.options.log_bytes_max / 4).max(LOG_FILE_BYTES_MIN) };
        let file_bytes = log_file_bytes(&registry).min(longest);
        // One spare: more would be room that is nearly always unused.
        let mut log_options = LogOptions { file_bytes, spare_files_max: 1, ..LogOptions::default() };
        log_options.limit_first_file(self.volume.space().logical_free());
        if self.options.ablation.serial_log {
            log_options.in_flight_max = 1;
        }
        if let Some(carried) = &carried {
            log_options.first_file_bytes = log_options.first_file_bytes.max(carried.room_bytes());
        }
        // On a disk that small, flushes need the room more than later files do.
        log_options.short_file_bytes = log_options.first_file_bytes;
        let log = Log::create(Arc::clone(&self.volume), self.env.clone(), log_options, log_number)?;
        // The carried records are needed until they are in the new log.
        if carried.is_none() {
            for keyspace in registry.by_id.values() {
                let needed = keyspace.view.load().first_log().unwrap_or(log_number);
                keyspace.log_number.store(needed, Ordering::Relaxed);
            }
        }
        let oldest = registry.by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min().unwrap_or(log_number);
        // If this is interrupted, an unused file must not be left next to an ended one, which would seem to have lost
        // its successor's pages: so the last of them go first, one by one.
        let old_logs = self.logs.iter().copied().filter(|number| *number < oldest).collect();
        let is_unused = |number: &u64| *number >= oldest && unused.contains(number);
        let unused_logs = self.logs.iter().rev().copied().filter(is_unused).collect();
        let all_logs = self.logs.clone();
        let manifest_number = scratch.versions.new_number();
        let next_file = scratch.versions.new_number();
        assert!(log_number < manifest_number && manifest_number < next_file, "numbers of new files ascend");
        assert!(oldest <= log_number, "log file {oldest} is needed, and the log begins in {log_number}");
        let mut snapshot = Edit {
            next_file: Some(next_file),
            last_sequence: Some(last_sequence),
            next_keyspace: Some(registry.next_id),
            lossy_repair: self.state.lossy_repair,
            several_volumes: self.state.several_volumes || self.source.are_several,
            changes_kept: Some(self.changes_kept()).filter(|bytes| *bytes > 0),
            ..Edit::default()
        };
        for keyspace in registry.by_id.values() {
            snapshot.created.push((keyspace.id, keyspace.name.clone()));
            snapshot.log_numbers.push((keyspace.id, keyspace.log_number.load(Ordering::Relaxed)));
            snapshot.add_version(keyspace.id, &keyspace.view.load().version);
        }
        scratch.versions.name_tables()?;
        (self.before_manifest)()?;
        let mut manifest = Manifest::create(&self.volume, manifest_number, &snapshot)?;
        let copy_failure = manifest.take_copy_failure();
        if let Some(carried) = &carried {
            let first = last_sequence + 1;
            carried.log(&log, first)?;
            carried.insert(&registry, first, log_number);
            last_sequence += carried.len();
        }
        let parts = Parts {
            log: Some(log),
            manifest: Some(manifest),
            next_file: next_file + 1,
            last_sequence,
            log_number,
            ..self.parts(registry)
        };
        let core = Core::new(parts);
        core.health.count_damage();
        if let Some(error) = copy_failure {
            core.health.note_job_failure("copy manifest", error.into());
        }
        if carried.is_some() && core.memory.note_carried()? {
            return Ok(Built { core, manifest_number, old_logs: all_logs, unused_logs: Vec::new() });
        }
        Ok(Built { core, manifest_number, old_logs, unused_logs })
    }
}

/// Returns true if a manifest says more than one that a crash left while a store was being made. Such a manifest has no
/// tables yet, and is no longer than a page, perhaps of zeros. The tables that a longer one names may lie on a
/// volume of which nothing else is known.
fn is_of_a_store(volume: &dyn Volume, file: &FileMeta) -> Result<bool> {
    const UNBORN_BYTES_MAX: u64 = situ_storage::PAGE_BYTES as u64;
    let (FileName::Manifest(number) | FileName::ManifestCopy(number)) = file.name else { return Ok(false) };
    let names_tables = |edits: Vec<Edit>| edits.iter().any(|edit| !edit.added.is_empty());
    Ok(file.bytes > UNBORN_BYTES_MAX || names_tables(manifest::readable_edits(volume, number)?))
}

/// Refuses a directory with a hash store, even one that has lost its superblock: it gets no ordered store, and no
/// repair as one.
pub(crate) fn refuse_hash_store(volume: &dyn Volume, files: &[FileMeta]) -> Result<()> {
    let (location, has) = (volume.location(), |name| files.iter().any(|file| file.name == name));
    if has(FileName::Superblock) {
        let text = format!("{location} holds a hash store, and this needs an ordered store; nothing was changed");
        return Err(Error::Invalid(text));
    }
    let trace = if has(FileName::Current) { None } else { trace_of_hash_store(volume, files)? };
    trace.map_or(Ok(()), |trace| {
        Err(Error::Invalid(format!(
            "{location} is a hash store (see {trace}) whose SUPERBLOCK is missing; nothing was changed. Restore SUPERBLOCK from a \
             backup; do not repair"
        )))
    })
}

/// Refuses a directory whose restore has not ended. Its tables are whole, and a part of the backup's.
pub(crate) fn refuse_unfinished_restore(volume: &dyn Volume, files: &[FileMeta]) -> Result<()> {
    let location = volume.location();
    match files.iter().find(|file| matches!(file.name, FileName::Restore(_))) {
        Some(file) if files.iter().all(|file| file.name != FileName::Current) => Err(Error::Existence(format!(
            "{location} holds an unfinished restore ({}); run `situ backup restore` again, with the same backup, or remove the \
             directory",
            file.name
        ))),
        _ => Ok(()),
    }
}

/// Checks that there is no store yet. A crash while a store is being made leaves an empty log and perhaps a manifest,
/// but no `CURRENT`; that is still no store. Anything more without `CURRENT` is a user's data.
fn check_unborn(volume: &Arc<dyn Volume>) -> Result<()> {
    let location = volume.location();
    let files = volume.list()?;
    refuse_hash_store(&**volume, &files)?;
    refuse_unfinished_restore(&**volume, &files)?;
    let tables = files.iter().any(|f| matches!(f.name, FileName::Table(_) | FileName::Values(_)));
    let logs = needed_logs(&StoreState::default(), files.iter().map(|f| f.name));
    let mut records = 0;
    if !logs.is_empty() && !tables {
        recover(volume, &logs, RecoveryMode::Strict, &mut |_, _| {
            records += 1;
            Ok(())
        })?;
    }
    let mut is_damaged = tables || records > 0;
    for file in &files {
        is_damaged = is_damaged || is_of_a_store(&**volume, file)?;
    }
    if is_damaged {
        let text =
            format!("{location} holds data but no CURRENT file, so it is a damaged store; run `situ repair` on it");
        return Err(Error::Existence(text));
    }
    Ok(())
}

/// Makes a new store. Returns its state.
fn new_state(volume: &Arc<dyn Volume>, create: bool) -> Result<StoreState> {
    check_unborn(volume)?;
    if !create {
        return Err(no_store(&volume.location()));
    }
    // Of a store that was here before: the numbers of files begin again.
    remove(&**volume, FileName::Lineage)?;
    volume.replace(FileName::Identity, IDENTITY.as_bytes())?;
    let default = KeyspaceState { name: DEFAULT_KEYSPACE.to_owned(), version: Version::empty(), log_number: 0 };
    let keyspaces = BTreeMap::from([(DEFAULT_KEYSPACE_ID, default)]);
    Ok(StoreState { next_file: 1, next_keyspace: DEFAULT_KEYSPACE_ID + 1, keyspaces, ..StoreState::default() })
}

pub(crate) fn remove(volume: &dyn Volume, name: FileName) -> Result<()> {
    match volume.remove(name) {
        Ok(()) | Err(StorageError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the files of an interrupted job, which nothing needs.
fn orphans(files: &[FileMeta], tables: &HashSet<u64>, segments: &HashSet<u64>, logs: &[u64]) -> Vec<FileName> {
    let is_orphan = |name: &FileName| match name {
        FileName::Table(number) => !tables.contains(number),
        FileName::Values(number) => !segments.contains(number),
        FileName::Log(number) => !logs.contains(number),
        FileName::Temporary(_) => true,
        _ => false,
    };
    files.iter().map(|file| file.name).filter(is_orphan).collect()
}
