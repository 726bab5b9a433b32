//! Reading and checking every byte of a store that no process has open.
//!
//! 1. `CURRENT`, the manifest and its copy, all their edits; the invariants of the versions that they add up to.
//! 2. The listing: each file that the state names is there, in its length. Files that nothing names are orphans, which
//!    the next open removes; they are reported and are no damage.
//! 3. Each table by itself: everything that [`Table::verify`] checks; then its keys, counts and sequence numbers
//!    against its entry in the manifest. A table that fails is gone through once more for all its damaged places.
//! 4. The log: its pages and records, the order of their sequence numbers, and its end, if the store was closed in
//!    order.
//! 5. The sound tables of each keyspace against each other: one merge over all levels, in which the versions of a key
//!    must descend from newer levels to older ones.
//! 6. The value log: its segments, and every value that a handle leads to (`values.rs`).
//!
//! **Cost**: every table is read twice, past the cache, the log twice. Memory: a manifest, the entries' blocks of
//! one table per level-0 table and level, and a bounded number of damages.
//!
//! **Threads**: the caller's. Nothing is locked or written. A store that is written to meanwhile shows false damages:
//! files come and go between the steps.
//!
//! **Failure**: all damages are collected, up to [`DAMAGES_MAX`]; data that the disk does not return is a damage as
//! well. A volume that cannot be listed, or holds no store, is an error, and so is a file that cannot be read
//! for a reason outside of it: no right, no memory, no free descriptor, a node that does not answer.

use crate::base::batch::Record;
use crate::base::damage::{Damage, damage_of, is_known};
use crate::base::options::DEFAULT_KEYSPACE_ID;
use crate::base::options::{Options, open_tables_max};
use crate::base::places::{HomeVolume, MakePlaces, Plain, Purpose};
use crate::check::values::{Beside, for_each_lost_value};
use crate::opening::open::{IDENTITY, refuse_unfinished_restore};
use crate::opening::replay::{adjoins, check_closed, check_head, check_in_use, follows, record_error};
use crate::opening::state::{KeyspaceState, StoreState, needed_logs};
use crate::opening::values::open_values;
use crate::read::merge::{LevelCursor, MergeCursor, Source};
use crate::read::options::ReadOptions;
use crate::read::options::table_read_options;
use crate::versions::manifest;
use crate::versions::version::{TableFile, TableMeta, TableSource};
use crate::{Error, Result};
use situ_base::Env;
use situ_log::{RecoveryMode, Tail, recover};
use situ_storage::{DirectoryVolume, Error as StorageError, Excerpt, FileMeta, FileName, Volume};
use situ_table::{BlockCache, Cursor, KeyKind, Reach, Table, salvage};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of damages that are kept; further ones are counted.
pub const DAMAGES_MAX: usize = 10_000;

/// The size of the cache for index blocks; data goes past it.
const CACHE_BYTES: u64 = 8 << 20;

/// The progress of a verification.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// The current step: the name of the file that is read, or a step in words.
    pub at: String,
    /// Bytes read so far.
    pub bytes_done: u64,
    /// The approximate number of bytes to read.
    pub bytes_total: u64,
}

/// The findings of a verification.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Entries read, range tombstones included: of tables, and operations in the log.
    pub entries: u64,
    /// All damages, file by file.
    pub damages: Vec<Damage>,
    /// Damages found and not kept, because there are too many.
    pub damages_left_out: u64,
    /// Unusual findings that may be harmless: the end of a log or manifest as after a crash, an odd file. Also parts
    /// that were not checked, and the reasons.
    pub warnings: Vec<String>,
    /// Files that nothing needs; the next open removes them.
    pub orphans: Vec<FileName>,
    /// The time that the verification took.
    pub duration: Duration,
}

impl VerifyReport {
    /// Returns true if nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty() && self.damages_left_out == 0
    }

    /// Adds a damage, unless two steps have found it.
    pub(crate) fn add(&mut self, damage: Damage) {
        if is_known(&self.damages, &damage) {
            return;
        }
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        } else {
            self.damages_left_out += 1;
        }
    }

    /// Reports damage of DISKS or MEMBER. Without them it is unknown which disks hold the store's files.
    fn of_disks(damage: Damage) -> VerifyReport {
        let unchecked = format!("manifest, tables and logs were not checked, because {} is damaged", damage.file);
        VerifyReport { damages: vec![damage], warnings: vec![unchecked], ..VerifyReport::default() }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyReport { files, bytes, entries, damages, .. } = self;
        let count = damages.len() as u64 + self.damages_left_out;
        writeln!(f, "{files} files, {bytes} bytes and {entries} entries checked: {count} damages")?;
        damages.iter().try_for_each(|damage| writeln!(f, "damage: {damage}"))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))?;
        self.orphans
            .iter()
            .try_for_each(|orphan| writeln!(f, "orphan: {orphan} (the next opening for writing removes it)"))
    }
}

/// Verifies the store in a directory; see [`verify`].
///
/// # Errors
/// As [`verify`]; the directory cannot be opened.
pub fn verify_directory(directory: impl AsRef<Path>, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
    let home = HomeVolume::directory(DirectoryVolume::open(directory.as_ref())?);
    verify_store(&home, &Plain, &Env::system(), progress)
}

/// As [`verify_directory`], of the store whose home is `home`, which is no directory here.
///
/// # Errors
/// As [`verify`].
pub fn verify_home(home: &Arc<dyn Volume>, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
    verify_store(&HomeVolume::elsewhere(home), &Plain, &Env::system(), progress)
}

/// Reads and checks every byte of the store in `volume`, which no process should have open for writing. The function
/// calls `progress` now and then. See `verify.rs` for the checks and their cost.
///
/// # Errors
/// There is no store, its files cannot be listed, or one cannot be read for a reason outside of it, such as missing
/// rights. Damage is not an error but part of the report.
pub fn verify(volume: &Arc<dyn Volume>, env: &Env, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
    verify_store(&HomeVolume::given(Arc::clone(volume)), &Plain, env, progress)
}

/// As [`verify`], of the store in `home`, on the volumes that `places` finds.
///
/// # Errors
/// As [`verify`]; a volume is missing, or not the store's.
pub fn verify_store(
    home: &HomeVolume,
    places: &dyn MakePlaces,
    env: &Env,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport> {
    let started = env.clock.now();
    let found = match places.find(home, env, Purpose::Read) {
        // Of what names the volumes, or is all that a volume has: without it the other files to read are unknown.
        Err(Error::Storage(StorageError::Corruption(damage))) => {
            return Ok(VerifyReport::of_disks(*damage));
        }
        found => found?,
    };
    let volumes = &found.volumes;
    let volume = volumes.volume();
    let files = volume.list()?;
    refuse_unfinished_restore(&**volume, &files)?;
    if !files.iter().any(|f| f.name.number().is_some() || f.name == FileName::Current) {
        return Err(Error::Existence(format!("there is no store in {}", volume.location())));
    }
    let source = Arc::new(TableSource::new(volumes, BlockCache::new(CACHE_BYTES), env, open_tables_max()));
    let bytes_total = files.iter().map(|f| if matches!(f.name, FileName::Table(_)) { 2 * f.bytes } else { f.bytes });
    let mut verifier = Verifier {
        volume,
        source,
        bytes_total: bytes_total.sum(),
        report: VerifyReport::default(),
        refused: None,
        progress,
        files,
    };
    verifier.identity();
    if let Some(state) = verifier.manifest() {
        verifier.listing(&state);
        open_values(volume, env, &Options::default().bounded(), &state, &verifier.source, true)?;
        if let Err(error @ Error::Disks(_)) =
            volumes.explain_missing(&state.needed_files(&verifier.files), &verifier.files)
        {
            verifier.report.warnings.push(error.to_string());
        }
        for (id, keyspace) in &state.keyspaces {
            let unsound = verifier.tables(&state, *id, keyspace);
            verifier.order(keyspace, &unsound);
            verifier.values(keyspace, &unsound);
        }
        verifier.segments(&state);
        verifier.logs(&state);
    } else {
        let text = "tables and logs were not checked, because the manifest cannot be read";
        verifier.report.warnings.push(text.to_owned());
    }
    let mut report = verifier.report;
    if let Some(refused) = verifier.refused {
        // A file that could not be read must not hide damage of the others.
        if report.is_sound() {
            return Err(refused.into());
        }
        report.warnings.push(format!("not everything was checked: {refused}"));
    }
    report.duration = env.clock.now().saturating_sub(started);
    Ok(report)
}

struct Verifier<'a> {
    volume: &'a Arc<dyn Volume>,
    source: Arc<TableSource>,
    files: Vec<FileMeta>,
    bytes_total: u64,
    report: VerifyReport,
    /// The first error that [says nothing about its file](StorageError::is_not_of_the_file).
    refused: Option<StorageError>,
    progress: &'a mut dyn FnMut(VerifyProgress),
}

/// Checks the file for people. No program depends on it, but rot in it is a sign of a failing disk.
pub(crate) fn check_identity(volume: &dyn Volume) -> situ_storage::Result<()> {
    let wrong = |path: &str, found: String| {
        Err(StorageError::corruption(
            path,
            0,
            "text",
            "the one that every store has (situ repair writes it again)",
            found,
        ))
    };
    let reader = match volume.open(FileName::Identity) {
        Err(StorageError::NotFound { path }) => return wrong(&path, "no such file".to_owned()),
        reader => reader?,
    };
    let mut text = vec![0; reader.bytes().min(4096) as usize];
    reader.read_at(0, &mut text)?;
    if text != IDENTITY.as_bytes() {
        return wrong(reader.path(), format!("{} bytes that differ", reader.bytes()));
    }
    Ok(())
}

impl Verifier<'_> {
    fn tell(&mut self, at: impl fmt::Display, more: u64) {
        let bytes_done = self.report.bytes + more;
        (self.progress)(VerifyProgress { at: at.to_string(), bytes_done, bytes_total: self.bytes_total });
    }

    fn path(&self, name: FileName) -> String {
        format!("{}/{name}", self.volume.location())
    }

    fn fail(&mut self, name: FileName, error: StorageError) {
        self.fail_at(&self.path(name), error);
    }

    /// Notes an error as a damage, but for an error that says nothing about the file.
    fn fail_at(&mut self, place: &str, error: StorageError) {
        if error.is_not_of_the_file() {
            self.refused.get_or_insert(error);
        } else {
            self.report.add(damage_of(place, error));
        }
    }

    fn wrong(&mut self, name: FileName, what: &str, expected: impl fmt::Display, found: impl fmt::Display) {
        self.fail(name, StorageError::corruption(self.path(name), 0, what, expected, found));
    }

    fn read(&mut self, name: FileName, bytes: u64) {
        self.report.files += 1;
        self.report.bytes += bytes;
        self.tell(name, 0);
    }

    fn identity(&mut self) {
        match check_identity(&**self.volume) {
            Ok(()) => self.read(FileName::Identity, IDENTITY.len() as u64),
            Err(error) => self.fail(FileName::Identity, error),
        }
    }

    /// Carries out step 1. Returns `None` if there is no state to go on with.
    fn manifest(&mut self) -> Option<StoreState> {
        let number = match manifest::current(&**self.volume) {
            Ok(Some(number)) => number,
            Ok(None) => {
                self.wrong(
                    FileName::Current,
                    "file",
                    "the name of a manifest (situ repair can find it)",
                    "no such file",
                );
                return None;
            }
            Err(error) => {
                self.fail(FileName::Current, error);
                return None;
            }
        };
        let name = FileName::Manifest(number);
        let found = match manifest::read_damaged(&**self.volume, number) {
            Ok(found) => found,
            Err(error) => {
                self.fail(name, error);
                return None;
            }
        };
        for error in found.damages {
            self.fail(name, error);
        }
        if let Some(error) = found.copy_unread {
            self.fail(FileName::ManifestCopy(number), error);
        }
        self.read(name, found.bytes);
        if let Some(bytes) = found.copy_bytes {
            self.read(FileName::ManifestCopy(number), bytes);
        }
        let torn = (found.whole_bytes < found.bytes).then_some((name, found.bytes, found.whole_bytes));
        let copy = found.copy_bytes.zip(found.copy_torn);
        let copy = copy.map(|(bytes, at)| (FileName::ManifestCopy(number), bytes, at));
        for (name, bytes, at) in torn.into_iter().chain(copy) {
            let (path, tail) = (self.path(name), bytes - at);
            self.report
                .warnings
                .push(format!("{path} ends with {tail} bytes from {at} that are no edit, as after a crash"));
        }
        match StoreState::replay(found.edits, &self.source) {
            Ok(state) => Some(state),
            Err(text) => {
                self.wrong(name, "edits", "a state", text);
                None
            }
        }
    }

    /// Carries out step 2.
    fn listing(&mut self, state: &StoreState) {
        for missing in state.missing_files(&self.files) {
            self.fail(missing.name, missing.error(&**self.volume));
        }
        if !state.keyspaces.contains_key(&DEFAULT_KEYSPACE_ID) {
            self.report.warnings.push("there is no keyspace \"default\"".to_owned());
        }
        let current = manifest::current(&**self.volume).ok().flatten();
        let (tables, segments) = (state.tables(), state.segments());
        let logs = needed_logs(state, self.files.iter().map(|f| f.name));
        let orphan = |name: FileName| match name {
            FileName::Table(number) => !tables.contains(&number),
            FileName::Values(number) => !segments.contains(&number),
            FileName::Log(number) => !logs.contains(&number),
            FileName::Manifest(number) | FileName::ManifestCopy(number) => current != Some(number),
            FileName::Temporary(_) => true,
            _ => false,
        };
        self.report.orphans = self.files.iter().map(|f| f.name).filter(|name| orphan(*name)).collect();
        for file in self.files.iter().filter(|f| matches!(f.name, FileName::Damaged(_))) {
            let path = self.path(file.name);
            self.report
                .warnings
                .push(format!("{path} was set aside by a repair; remove it when it is not wanted any more"));
        }
    }

    /// Carries out step 3 for one keyspace. Returns the numbers of unsound tables.
    fn tables(&mut self, state: &StoreState, id: u32, keyspace: &KeyspaceState) -> HashSet<u64> {
        let mut unsound = HashSet::new();
        for (_, file) in keyspace.version.files() {
            let name = FileName::Table(file.meta.number);
            let before = self.report.damages.len() as u64 + self.report.damages_left_out;
            match self.table(state, id, file) {
                Ok(()) => {}
                Err(StorageError::NotFound { .. }) => {
                    let present = self.files.iter().any(|f| f.name == name);
                    if present {
                        self.wrong(name, "file", "a file that was listed", "no such file");
                    }
                    unsound.insert(file.meta.number);
                }
                Err(error) => {
                    self.fail(name, error);
                    self.all_damages(name);
                }
            }
            if self.report.damages.len() as u64 + self.report.damages_left_out > before {
                unsound.insert(file.meta.number);
            }
            self.read(name, file.meta.bytes);
        }
        unsound
    }

    fn table(&mut self, state: &StoreState, id: u32, file: &TableFile) -> situ_storage::Result<()> {
        let name = FileName::Table(file.meta.number);
        let table = file.table()?;
        table.verify(&mut |bytes| self.tell(name, bytes))?;
        self.report.entries += file.meta.entries + file.meta.range_deletions;
        for (what, expected, found) in differences(state, id, &file.meta, &table) {
            self.wrong(name, what, expected, found);
        }
        Ok(())
    }

    /// Goes through a table that is not sound for every damaged place.
    fn all_damages(&mut self, name: FileName) {
        let Ok(reader) = self.volume.open(name) else { return };
        if let Ok(salvaged) = salvage(&*reader, &mut |_, _| Ok(())) {
            salvaged.damages.into_iter().for_each(|error| self.fail(name, error));
        }
    }

    /// Carries out step 5 for one keyspace.
    fn order(&mut self, keyspace: &KeyspaceState, unsound: &HashSet<u64>) {
        let options = table_read_options(&ReadOptions { bypass_cache: true, ..ReadOptions::default() });
        let mut sources = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for (number, level) in keyspace.version.levels.iter().enumerate() {
            let sound: Vec<Arc<TableFile>> =
                level.files.iter().filter(|f| !unsound.contains(&f.meta.number)).cloned().collect();
            if number > 0 {
                names.push(format!("level {number} of keyspace {:?}", keyspace.name));
                sources.push(Source::Level(Box::new(LevelCursor::new(sound, options))));
                continue;
            }
            for file in sound {
                if let Ok(table) = file.table() {
                    names.push(self.path(FileName::Table(file.meta.number)));
                    sources.push(Source::Table(Box::new(table.cursor(options))));
                }
            }
        }
        let what = format!("the levels of keyspace {:?}", keyspace.name);
        self.tell(&what, 0);
        let mut merge = MergeCursor::new(sources);
        // The key before, the rank of its source, and its last version.
        let mut last: Option<(Vec<u8>, usize, u64)> = None;
        let mut moved = merge.first();
        loop {
            if let Err(error) = moved {
                return self.fail_at(&what, error);
            }
            if !merge.valid() {
                return;
            }
            let (key, rank) = (merge.key(), merge.rank());
            let sequence = key.trailer.sequence();
            match &mut last {
                Some((user, newer, above)) if user == key.user => {
                    if rank < *newer || (rank != *newer && sequence >= *above) {
                        let damage = Damage {
                            file: names[rank].clone(),
                            offset: 0,
                            what: format!("versions of key {}", Excerpt(key.user)),
                            expected: format!("none older than {above} while {} has that one", names[*newer]),
                            found: format!("{sequence}"),
                        };
                        self.report.add(damage);
                    }
                    (*newer, *above) = (rank, sequence);
                }
                Some((user, newer, above)) => {
                    user.clear();
                    user.extend_from_slice(key.user);
                    (*newer, *above) = (rank, sequence);
                }
                None => last = Some((key.user.to_vec(), rank, sequence)),
            }
            moved = merge.next();
        }
    }

    /// Carries out step 6 for the values of one keyspace.
    fn values(&mut self, keyspace: &KeyspaceState, unsound: &HashSet<u64>) {
        let what = format!("the values of keyspace {:?}", keyspace.name);
        self.tell(&what, 0);
        let mut lost = Vec::new();
        let checked = for_each_lost_value(&keyspace.version, unsound, Beside::Verify, &mut |value| {
            if lost.len() < DAMAGES_MAX {
                lost.push(value.error);
            }
        });
        lost.into_iter().chain(checked.err()).for_each(|error| self.fail_at(&what, error));
    }

    /// Carries out step 6 for the damage that the segments themselves show.
    fn segments(&mut self, state: &StoreState) {
        let lengths: HashMap<FileName, u64> = self.files.iter().map(|file| (file.name, file.bytes)).collect();
        for number in state.segments() {
            let name = FileName::Values(number);
            self.read(name, lengths.get(&name).copied().unwrap_or(0));
        }
        let source = Arc::clone(&self.source);
        let damaged = source.values.log_if_open().map(|log| log.damaged()).unwrap_or_default();
        damaged.into_iter().for_each(|(number, error)| self.fail(FileName::Values(number), error));
    }

    /// Carries out step 4.
    fn logs(&mut self, state: &StoreState) {
        let logs = needed_logs(state, self.files.iter().map(|f| f.name));
        let lengths: HashMap<FileName, u64> = self.files.iter().map(|f| (f.name, f.bytes)).collect();
        let (mut last, mut file, mut first) = (0, 0, None);
        let mut entries = 0;
        let mut bad = Vec::new();
        let mut lost = Vec::new();
        let outcome = recover(self.volume, &logs, RecoveryMode::Repair, &mut |position, bytes| {
            let decoded = Record::decode(bytes).map_err(|found| record_error(position, "a write batch", found));
            match decoded.and_then(|record| follows(last, record, position)) {
                Ok(record) => {
                    let adjoins = adjoins(last, &record, position, file);
                    bad.extend(adjoins.err().map(|error| (position.file, error)));
                    file = position.file;
                    first.get_or_insert(file);
                    let count = record.len() as u64;
                    last = (record.first + count).saturating_sub(1);
                    entries += count;
                    lost.extend(lost_handles(state, &record, position.file));
                }
                Err(error) => bad.push((position.file, error)),
            }
            Ok(())
        });
        self.report.entries += entries;
        for (file, error) in bad.into_iter().chain(lost) {
            self.fail(FileName::Log(file), error);
        }
        for number in &logs {
            let name = FileName::Log(*number);
            self.read(name, lengths.get(&name).copied().unwrap_or(0));
        }
        let report = match outcome {
            Ok(report) => report,
            Err(error) => return self.fail(FileName::Log(logs.first().copied().unwrap_or(0)), error),
        };
        for loss in &report.lost {
            self.fail(FileName::Log(loss.file), loss.error.clone());
        }
        if let Err(error) = check_head(&report, &logs, first)
            && report.lost.is_empty()
        {
            self.fail(FileName::Log(logs.first().copied().unwrap_or(0)), error);
        }
        if let Some((file, error)) = check_in_use(&report, state) {
            self.fail(FileName::Log(file), error);
        }
        if let (Some(closed), true) = (state.closed, report.lost.is_empty()) {
            if let Err(error) = check_closed(&report, closed) {
                self.fail(FileName::Log(closed), error);
            }
        } else if let Tail::Open { file, page, reason } = &report.tail {
            let path = self.path(FileName::Log(*file));
            self.report.warnings.push(format!("{path} ends at page {page} as after a crash: {reason}"));
        }
    }
}

/// Returns the handles in a record of the log that lead to no value, with the log file.
fn lost_handles(state: &StoreState, record: &Record<'_>, file: u64) -> Vec<(u64, StorageError)> {
    let handles = record.operations().filter(|operation| operation.kind == KeyKind::ValueHandle);
    let lost = handles.filter_map(|operation| {
        let keyspace = state.keyspaces.get(&operation.keyspace).filter(|keyspace| file >= keyspace.log_number)?;
        match keyspace.version.segments.read(operation.key, operation.value, Reach::Disk) {
            Err(Error::Storage(error)) => Some((file, error)),
            _ => None,
        }
    });
    lost.collect()
}

/// Returns the differences between a sound table and the manifest: the property, its value in the manifest, and its
/// value in the table.
pub(crate) fn differences(
    state: &StoreState,
    id: u32,
    meta: &TableMeta,
    table: &Table,
) -> Vec<(&'static str, String, String)> {
    let properties = table.properties();
    let mut wrong = meta.differences(properties);
    if id != properties.keyspace_id {
        wrong.push(("keyspace", id.to_string(), properties.keyspace_id.to_string()));
    }
    for (what, limit, found) in [
        ("largest sequence number", state.last_sequence.saturating_add(1), meta.largest_sequence),
        ("file number", state.next_file, meta.number),
        ("keyspace", u64::from(state.next_keyspace), u64::from(id)),
    ] {
        if found >= limit {
            wrong.push((what, format!("one below {limit}, as the manifest says"), found.to_string()));
        }
    }
    let span = &meta.span;
    for key in [properties.smallest_key(), properties.largest_key()].into_iter().flatten() {
        if !span.contains(key.user) {
            wrong.push(("keys", format!("keys in {span:?}"), format!("{key:?}")));
        }
    }
    for tombstone in table.range_tombstones() {
        if tombstone.begin < span.begin || span.end < tombstone.end {
            wrong.push(("range tombstones", format!("ranges in {span:?}"), format!("{tombstone:?}")));
        }
    }
    wrong
}
