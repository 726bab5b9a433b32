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

use crate::base::options::{DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_ID};
use crate::base::options::{KeyspaceOptions, Options};
use crate::base::places::HOME;
use crate::base::places::{Found, HomeVolume, Locks, Purpose};
use crate::core::{Core, Parts};
use crate::memtable::Meter;
use crate::opening::replay::{Keep, Replay, Replayed};
use crate::opening::values::{check_room_for_values, open_values};
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::{self, Manifest};
use crate::versions::segments::BesideWriter;
use crate::versions::store::Registry;
use crate::versions::store::{LOG_FILE_BYTES_MIN, log_file_bytes};
use crate::versions::version::{TableSource, Version};
use crate::{Error, Result};
use situ_base::Env;
use situ_compaction::DroppedValues;
use situ_log::{Log, LogOptions, RecoveryMode, recover};
use situ_storage::memory::require;
use situ_storage::{Error as StorageError, FileMeta, FileName, Volume};
use situ_table::BlockCache;
use situ_values::Written;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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

/// The mode of an opening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Write,
    /// Only if `all` tables are there, or as far as they are.
    Read {
        all: bool,
    },
}

/// The maximum number of attempts of a reader when files change under it.
const READ_ATTEMPTS_MAX: usize = 20;

pub(crate) fn open(
    home: &HomeVolume,
    env: Env,
    options: Options,
    keyspaces: &KeyspaceChoices,
    read_only: bool,
) -> Result<Opened> {
    let open_as = |mode| open_once(home, env.clone(), options.clone(), keyspaces, mode);
    if read_only { open_to_read(home, &open_as) } else { open_as(Mode::Write) }
}

/// Opens a store that a writer may have open. Between two steps of the reader, the writer may put another manifest in
/// force and give up files. So the reader believes in damage, or in a missing file, only if the next attempt finds the
/// very same. The manifest says that a file is not needed before the writer gives up the file. No number is used twice,
/// so an attempt that begins later does not ask for the file.
fn open_to_read(home: &HomeVolume, open_as: &dyn Fn(Mode) -> Result<Opened>) -> Result<Opened> {
    let (mut all, mut before) = (true, None);
    for _ in 0..READ_ATTEMPTS_MAX {
        let error = match open_as(Mode::Read { all }) {
            Err(Error::Storage(error @ (StorageError::Corruption(_) | StorageError::NotFound { .. }))) => error,
            result => return result,
        };
        let found = error.to_string();
        if before.as_ref() != Some(&found) {
            before = Some(found);
        } else if all {
            // The missing file may be a table that no read asks for, so the next attempts go on without missing tables.
            // Only these attempts believe that a file is missing, and look for a volume that the caller has not
            // named.
            (all, before) = (false, None);
        } else {
            return Err(error.into());
        }
    }
    Err(Error::Changed { location: home.volume.location() })
}

/// Returns the manifest in force, and its length. Any edit changes it.
fn edits_seen(volume: &dyn Volume) -> Option<(u64, u64)> {
    let number = manifest::current(volume).ok()??;
    Some((number, volume.open(FileName::Manifest(number)).ok()?.bytes()))
}

fn open_once(home: &HomeVolume, env: Env, options: Options, keyspaces: &KeyspaceChoices, mode: Mode) -> Result<Opened> {
    let read_only = mode != Mode::Write;
    let options = options.bounded();
    // Before the lock, which would leave a file where there is no store and none is to be made.
    if !read_only && !options.create_if_missing && home.is_empty()? {
        return Err(Error::Existence(format!("there is no store in {}", home.volume.location())));
    }
    let purpose = if read_only { Purpose::Read } else { Purpose::Write { create: options.create_if_missing } };
    let Found { volumes, locks, .. } = options.places.find(home, &env, purpose)?;
    let volume = Arc::clone(volumes.volume());
    let source = TableSource::new(&volumes, BlockCache::new(options.cache_bytes), &env, options.open_tables_max);
    let source = Arc::new(source);
    if !read_only {
        let mut chosen = keyspaces.values().chain([&options.keyspace]);
        chosen.try_for_each(|options| check_room_for_values(&source, options))?;
    }
    let current = manifest::current(&*volume)?;
    // Before the edits are read: a later edit counts as a change.
    let seen = read_only.then(|| edits_seen(&*volume));
    let mut damages = Vec::new();
    let mut state = match current {
        Some(_) if options.error_if_exists => {
            return Err(Error::Existence(format!("there is a store in {} already", volume.location())));
        }
        Some(number) => {
            let found = manifest::read(&*volume, number)?;
            // A copy that this user may not read is not damaged.
            let unread = found.copy_unread.filter(|error| !error.is_permission_denied());
            damages = found.damages.into_iter().chain(unread).collect();
            StoreState::replay(found.edits, &source).map_err(|text| {
                let name = FileName::Manifest(number);
                Error::Storage(StorageError::corruption(name, 0, "edits", "a state", text))
            })?
        }
        None => match new_state(&volume, &options, read_only) {
            // Another process has made the store since.
            Err(Error::Existence(_)) if read_only && manifest::current(&*volume)?.is_some() => {
                let path = format!("{}/{}", volume.location(), FileName::Current);
                return Err(StorageError::NotFound { path }.into());
            }
            state => state?,
        },
    };
    let files = volume.list()?;
    if current.is_some() {
        // A writer may delete tables under a reader; a read of such a table gets the error.
        let missing =
            state.missing_files(&files).into_iter().find(|m| !read_only || matches!(m.name, FileName::Log(_)));
        if let Some(missing) = missing {
            // A reader looks again before it believes it.
            if mode != (Mode::Read { all: true }) {
                volumes.explain_missing(&state.needed_files(&files), &files)?;
            }
            return Err(missing.error(&*volume).into());
        }
    }
    state.pass_numbers_of(&files);
    let logs = needed_logs(&state, files.iter().map(|f| f.name));
    let (tables, segments) = (state.tables(), state.segments());
    if let Some(seen) = seen {
        let (location, beside) = (home.volume.location(), Arc::clone(&volume));
        let has_changed = Box::new(move || edits_seen(&*beside) != seen);
        source.values.read_beside(BesideWriter { location, has_changed });
        open_values(&volume, &env, &options, &state, &source, true)?;
    }
    let before_manifest = &|| Ok(());
    let ground =
        Ground { volume, env, options, keyspaces, source, state, logs, mode: RecoveryMode::Strict, before_manifest };
    if read_only {
        let core = ground.read_only()?;
        core.versions.note_mended(damages);
        core.hold_tables(mode == Mode::Read { all: true })?;
        return Ok(Opened { core, locks });
    }
    volumes.settle()?;
    let volume = Arc::clone(&ground.volume);
    let orphans = orphans(&files, &tables, &segments, &ground.logs);
    if let (Some(number), false) = (current, orphans.is_empty()) {
        manifest::make_durable(&*volume, number)?;
    }
    orphans.into_iter().try_for_each(|name| remove(&*volume, name))?;
    open_values(&volume, &ground.env, &ground.options, &ground.state, &ground.source, false)?;
    let Built { core, manifest_number, old_logs, unused_logs } = ground.build()?;
    // The listener is notified after the repair: the new manifest and its copy are whole.
    core.versions.note_mended(damages);
    let is_old = |name: &FileName| match name {
        FileName::Manifest(number) | FileName::ManifestCopy(number) => *number != manifest_number,
        _ => false,
    };
    let manifests = files.iter().map(|file| file.name).filter(is_old);
    let is_there = |log: &FileName| files.iter().any(|file| file.name == *log);
    let logs = |numbers: Vec<u64>| numbers.into_iter().map(FileName::Log).filter(is_there);
    manifests.chain(logs(old_logs)).try_for_each(|name| remove(&*volume, name))?;
    for log in logs(unused_logs) {
        remove(&*volume, log)?;
        volume.sync_names()?;
    }
    volume.sync_names()?;
    Ok(Opened { core, locks })
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

/// The missing part if a whole file is missing.
const FILE: &str = "file";

/// A file that the state needs and the volume does not have, or has in another length.
pub(crate) struct Missing {
    pub(crate) name: FileName,
    /// [`FILE`], or the property of the file that is wrong.
    pub(crate) what: &'static str,
    pub(crate) expected: String,
    pub(crate) found: String,
    /// True if the file was on a volume other than the home, or, for a log file, may have been.
    pub(crate) may_be_elsewhere: bool,
}

impl Missing {
    /// Returns true if no part of the file is there.
    pub(crate) fn is_gone(&self) -> bool {
        self.what == FILE
    }

    pub(crate) fn error(&self, volume: &dyn Volume) -> StorageError {
        let path = format!("{}/{}", volume.location(), self.name);
        let expected = format!("{} (situ repair can go on without it)", self.expected);
        StorageError::corruption(path, 0, self.what, expected, &self.found)
    }
}

impl StoreState {
    /// Returns the needed tables, segments and log files that are missing.
    pub(crate) fn missing_files(&self, files: &[FileMeta]) -> Vec<Missing> {
        let lengths: HashMap<FileName, u64> = files.iter().map(|f| (f.name, f.bytes)).collect();
        let mut missing = Vec::new();
        for (_, file) in self.keyspaces.values().flat_map(|k| k.version.files()) {
            let (name, bytes) = (FileName::Table(file.meta.number), file.meta.bytes);
            let (what, found) = match lengths.get(&name) {
                Some(found) if *found == bytes => continue,
                Some(found) => ("file length", format!("{found} bytes")),
                None => (FILE, "no such file".to_owned()),
            };
            let expected = format!("{bytes} bytes, as the manifest says");
            missing.push(Missing { name, what, expected, found, may_be_elsewhere: file.meta.volume != HOME });
        }
        let segments = self.keyspaces.values().flat_map(|k| k.version.segments.files());
        for name in segments.map(|file| FileName::Values(file.number)).filter(|name| !lengths.contains_key(name)) {
            let (expected, found) = ("a segment of values".to_owned(), "no such file".to_owned());
            missing.push(Missing { name, what: FILE, expected, found, may_be_elsewhere: false });
        }
        // The first log file still needed exists from before an edit says so until after one says otherwise.
        let first = self.keyspaces.values().map(|k| k.log_number).min();
        for number in first.into_iter().chain(self.closed).filter(|number| *number > 0) {
            let name = FileName::Log(number);
            // It has its whole length before it is used; recovery finds cuts behind its first pages.
            let (what, found) = match lengths.get(&name) {
                Some(found) if *found >= situ_log::FILE_BYTES_MIN => continue,
                Some(found) => ("file length", format!("{found} bytes")),
                None => (FILE, "no such file".to_owned()),
            };
            if !missing.iter().any(|m| m.name == name) {
                let is_older = |name: &FileName| matches!(name, FileName::Log(later) if *later > number);
                let newer = if what == FILE && lengths.keys().any(is_older) {
                    ". Later log files exist: this directory may be an older copy of the store. If so, bring the newer copy back"
                } else {
                    ""
                };
                let expected = format!("a log file of {} bytes or more{newer}", situ_log::FILE_BYTES_MIN);
                missing.push(Missing { name, what, expected, found, may_be_elsewhere: true });
            }
        }
        missing
    }

    /// Moves the next file number past those of `files`: new files must not get numbers that a file has already.
    pub(crate) fn pass_numbers_of(&mut self, files: &[FileMeta]) {
        let highest = files.iter().filter_map(|f| f.name.number()).max().unwrap_or(0);
        self.next_file = self.next_file.max(highest.saturating_add(1));
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

    fn parts(&self, registry: Registry) -> Parts {
        Parts {
            env: self.env.clone(),
            volume: Arc::clone(&self.volume),
            options: self.options.clone(),
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
        let mut snapshot = Edit {
            next_file: Some(next_file),
            last_sequence: Some(last_sequence),
            next_keyspace: Some(registry.next_id),
            lossy_repair: self.state.lossy_repair,
            several_volumes: self.state.several_volumes || self.source.are_several,
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
        core.versions.source.damaged.tell_to(&core.health);
        if let Some(error) = copy_failure {
            core.health.note_job_failure("copy manifest", error.into());
        }
        if carried.is_some() && core.memory.note_carried()? {
            return Ok(Built { core, manifest_number, old_logs: all_logs, unused_logs: Vec::new() });
        }
        Ok(Built { core, manifest_number, old_logs, unused_logs })
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

/// Returns true if a manifest says more than one that a crash left while a store was being made. Such a manifest has no
/// tables yet, and is no longer than a page, perhaps of zeros. The tables that a longer one names may lie on a
/// volume of which nothing else is known.
fn is_of_a_store(volume: &dyn Volume, file: &FileMeta) -> Result<bool> {
    const UNBORN_BYTES_MAX: u64 = situ_storage::PAGE_BYTES as u64;
    let (FileName::Manifest(number) | FileName::ManifestCopy(number)) = file.name else { return Ok(false) };
    let names_tables = |edits: Vec<Edit>| edits.iter().any(|edit| !edit.added.is_empty());
    Ok(file.bytes > UNBORN_BYTES_MAX || names_tables(manifest::readable_edits(volume, number)?))
}

/// Refuses a directory with a hash store: it gets no ordered store, and no repair as one.
pub(crate) fn refuse_hash_store(location: &str, files: &[FileMeta]) -> Result<()> {
    if !files.iter().any(|file| file.name == FileName::Superblock) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{location} holds a hash store, and this needs an ordered store; nothing was changed")))
}

/// Returns the state of a store that does not exist yet. A crash while a store is being made leaves an empty log and
/// perhaps a manifest, but no `CURRENT`; that is still no store. Anything more without `CURRENT` is a user's data.
fn new_state(volume: &Arc<dyn Volume>, options: &Options, read_only: bool) -> Result<StoreState> {
    let location = volume.location();
    let files = volume.list()?;
    refuse_hash_store(&location, &files)?;
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
    if read_only || !options.create_if_missing {
        return Err(Error::Existence(format!("there is no store in {location}")));
    }
    volume.replace(FileName::Identity, IDENTITY.as_bytes())?;
    let default = KeyspaceState { name: DEFAULT_KEYSPACE.to_owned(), version: Version::empty(), log_number: 0 };
    Ok(StoreState {
        next_file: 1,
        last_sequence: 0,
        next_keyspace: DEFAULT_KEYSPACE_ID + 1,
        keyspaces: BTreeMap::from([(DEFAULT_KEYSPACE_ID, default)]),
        closed: None,
        lossy_repair: None,
        several_volumes: false,
    })
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
