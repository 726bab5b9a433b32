//! Making a damaged store usable again, with an exact report of the losses.
//!
//! 1. *Survey.* The manifest in force, if it can be read and fits the files; without `CURRENT`, the newest that does.
//!    Each table is verified. The log is read with its damaged records left out.
//! 2. If nothing is wrong, nothing is done.
//! 3. *Tables.* With a manifest, or its copy, sound tables stay where they are. Every sound block of a damaged table is
//!    written to a new table that takes its place in its level; missing tables are left out.
//! 4. *Rebuild* (`repair/rebuild.rs`). A manifest that misses files, while there are others that it does not name, has
//!    lost its last edits, or its files. The repair does not follow it, and the missing files count as lost. Without a
//!    manifest, the deepest level is made of all tables of a keyspace: those that overlap are merged, the others stay.
//!    Names of keyspaces come from the readable part of any manifest, else from the tables. Other keyspaces are called
//!    `keyspace-N`, and their names count as lost.
//! 5. *Build.* From here on the repair is an opening of the store: it replays logs into level 0, begins a new log, and
//!    puts a new manifest in force.
//! 6. Files that could not be used whole are set aside as `NNNNNN.damaged`. The repair deletes no file that may hold
//!    data.
//!
//! **Invariants.** After a repair the store opens, and `verify` finds it sound. One case is excepted: after a rebuild,
//! entries whose values are lost stay, and a read of one gets an error (`repair/values.rs`). A key whose value is not
//! that of the damaged store's last moment lies in a reported range, or was written last by a reported write.
//!
//! **Cost.** Every table is read once or twice; a rebuild writes tables that overlap again, and needs the room for
//! them.
//!
//! **Failure.** The new manifest is the turning point. Before it the old files are untouched, and the repair can be
//! tried again: new tables have temporary names until just before. A repair that fails removes them, or the next repair
//! does. A crash between their renaming and the manifest leaves tables that no manifest names. If files are missing as
//! well, the next try is a rebuild. The same holds for tables that the log is replayed into on another volume, which
//! have their own names at once. After the manifest the store is repaired, and a crash costs only the files that were
//! still to be set aside.
//!
//! **Limits.** A rebuild takes all tables that it finds. This includes a table that a compaction had replaced, and that
//! was not deleted yet when the machine stopped. If the manifest of that compaction cannot be read at all, keys deleted
//! at that moment may be back. A repair cannot tell rot from a torn tail if nothing shows that the bytes were durable.
//!
//! Rejected: putting found tables into level 0 in the order of their sequence numbers, as LevelDB does. Tables of
//! deeper levels have wide, overlapping ranges of them, so that an older version of a key may come first.

mod logs;
mod rebuild;
mod report;
mod tables;
mod values;

use crate::base::damage::{Damage, damage_of, is_known};
use crate::base::options::{DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_ID};
use crate::base::options::{Options, setters};
use crate::base::places::{Found, HomeVolume, Purpose, Volumes};
use crate::check::verify::{check_identity, differences};
use crate::opening::open::{
    Built, Ground, IDENTITY, KeyspaceChoices, refuse_hash_store, refuse_unfinished_restore, remove,
};
use crate::opening::state::{KeyspaceState, StoreState, needed_logs};
use crate::opening::values::open_values;
use crate::versions::manifest;
use crate::versions::version::TableSource;
use crate::versions::version::{Added, Removed, TableFile, TableMeta, Version};
use crate::{Error, Result};
use logs::{LogSurvey, MissingLogs};
use rebuild::{Fragments, name_of};
use situ_base::Env;
use situ_log::RecoveryMode;
use situ_storage::{DirectoryVolume, Error as StorageError, FileMeta, FileName, Volume};
use situ_table::format::{FOOTER_BYTES, HEADER_BYTES};
use situ_table::{BlockCache, Table};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tables::{Salvager, TreePlace};
use values::ValueRescue;

pub use report::{LossKind, LostName, LostRange, LostWrites, RepairReport};

/// Options of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// True for a report only: the actions of a repair and the losses. Nothing is changed. Default false.
    pub dry_run: bool,
    /// The options for new tables (all keyspaces by [`Options::keyspace`]), and the [places](Options::places) that find
    /// the store's volumes. Later compactions follow the options that the store is opened with.
    pub options: Options,
}

setters!(RepairOptions { dry_run: bool, options: Options });

/// Repairs the store in a directory; see [`repair`].
///
/// # Errors
/// As [`repair`]; the directory cannot be opened.
pub fn repair_directory(directory: impl AsRef<Path>, options: RepairOptions) -> Result<RepairReport> {
    let home = HomeVolume::directory(DirectoryVolume::open(directory.as_ref())?);
    repair_store(&home, &Env::system(), options)
}

/// As [`repair_directory`], of the store whose home is `home`, which is no directory here.
///
/// # Errors
/// As [`repair`].
pub fn repair_home(home: &Arc<dyn Volume>, options: RepairOptions) -> Result<RepairReport> {
    repair_store(&HomeVolume::elsewhere(home), &Env::system(), options)
}

/// Makes a damaged store usable again. The repair keeps sound files and sets others aside. The report lists the losses.
/// A sound store is left as it is, but for unfinished files. See `repair.rs` for the steps and their cost.
///
/// # Errors
/// There is no store, or it is open; the disk is full, or refuses to read or write. The old files are untouched then.
pub fn repair(volume: &Arc<dyn Volume>, env: &Env, options: RepairOptions) -> Result<RepairReport> {
    repair_store(&HomeVolume::given(Arc::clone(volume)), env, options)
}

/// As [`repair`], of the store in `home`. The volumes are those that the [places](Options::places) of the options find.
///
/// # Errors
/// As [`repair`]; a volume is missing, or not the store's.
pub fn repair_store(home: &HomeVolume, env: &Env, options: RepairOptions) -> Result<RepairReport> {
    // Before the lock, which would leave a file where there is no store.
    let at_home = &home.volume;
    if home.is_empty()? {
        return Err(Error::Existence(format!("there is no store in {}", at_home.location())));
    }
    let files = at_home.list()?;
    refuse_hash_store(&**at_home, &files)?;
    refuse_unfinished_restore(&**at_home, &files)?;
    let purpose = if options.dry_run { Purpose::Survey } else { Purpose::Repair };
    let found = options.options.places.find(home, env, purpose)?;
    let Found { volumes, locks: _locks, damages, notes, gives_up_files, gives_up_log } = found;
    let volume = volumes.volume();
    let files = volume.list()?;
    if !files.iter().any(|f| f.name.number().is_some() || f.name == FileName::Current) {
        return Err(Error::Existence(format!("there is no store in {}", volume.location())));
    }
    let mut store_options = options.options.bounded();
    // Nothing is written to the value log.
    store_options.keyspace.value_log_min_bytes = None;
    let cache = BlockCache::new(store_options.cache_bytes);
    let source = Arc::new(TableSource::new(&volumes, cache, env, store_options.open_tables_max));
    let salvager = Salvager {
        volume: Arc::clone(volume),
        env: env.clone(),
        source,
        next_file: AtomicU64::new(0),
        options: store_options.keyspace.clone(),
        dry_run: options.dry_run,
        unnamed: Mutex::default(),
    };
    let mut repair = Repair {
        volume: Arc::clone(volume),
        files,
        salvager,
        report: RepairReport { dry_run: options.dry_run, damages, notes, ..RepairReport::default() },
        aside: BTreeSet::new(),
        gives_up_files,
        gives_up_log,
    };
    if !options.dry_run {
        repair.remove_unfinished()?;
    }
    let done = repair.carry_out(&*volumes, env, store_options);
    if done.is_err() && !options.dry_run {
        // The files take room that the next repair needs; if they stay, the next try removes them.
        let _ = repair.files_again().and_then(|()| repair.remove_unfinished());
    }
    done.map(|()| repair.report)
}

/// The base of the rest of the repair.
enum Basis {
    /// The state in a manifest.
    Manifest(StoreState),
    /// Names, keyspaces that were dropped, tables that were replaced: as far as damaged manifests can be read.
    Fragments(Fragments),
}

/// The state of a manifest, and the number of files that it misses.
struct Ranked {
    number: u64,
    missing: usize,
    state: StoreState,
    /// The damages of the manifest or of its copy that are whole in the other one.
    mended: Vec<StorageError>,
    /// The reason why the copy could not be read.
    copy_unread: Option<StorageError>,
}

impl Ranked {
    /// Returns the rank: fewest missing files first, then the youngest.
    fn rank(&self) -> (usize, std::cmp::Reverse<u64>) {
        (self.missing, std::cmp::Reverse(self.state.next_file))
    }
}

/// The changes of a keyspace's tables, and the segments that are emptied.
#[derive(Default)]
struct Changes {
    removed: Vec<Removed>,
    added: Vec<Added>,
    emptied: Vec<u64>,
}

/// The state to build on.
struct RepairPlan {
    state: StoreState,
    logs: Vec<u64>,
    /// True if all these logs can be set aside rather than removed.
    keep_logs: bool,
}

struct Repair {
    volume: Arc<dyn Volume>,
    files: Vec<FileMeta>,
    salvager: Salvager,
    report: RepairReport,
    /// Files to set aside at the end.
    aside: BTreeSet<FileName>,
    /// True if files on other volumes than the home are expected to be missing.
    gives_up_files: bool,
    /// True if the log may have gone on in files that the repair cannot read.
    gives_up_log: bool,
}

/// Returns true if a failure comes from the data on the disk, and from nothing outside of it.
fn is_damage(error: &StorageError) -> bool {
    match error {
        StorageError::Corruption(_) | StorageError::NotFound { .. } => true,
        StorageError::Io { .. } => !error.is_not_of_the_file(),
        _ => false,
    }
}

impl Repair {
    fn path(&self, name: FileName) -> String {
        format!("{}/{name}", self.volume.location())
    }

    /// Carries out steps 1 to 6.
    fn carry_out(&mut self, volumes: &dyn Volumes, env: &Env, options: Options) -> Result<()> {
        if let Err(error) = check_identity(&*self.volume) {
            self.damage(FileName::Identity, error)?;
        }
        let state = self.state()?;
        if let Basis::Manifest(state) = &state
            && !self.gives_up_files
        {
            volumes.explain_missing(&state.needed_files(&self.files), &self.files)?;
        }
        let plan = self.survey(state)?;
        if self.is_sound() {
            self.report.was_sound = true;
            return if self.report.dry_run { Ok(()) } else { volumes.give_up() };
        }
        if self.report.dry_run {
            self.report.set_aside = self.aside.iter().map(|name| (*name, *name)).collect();
            return Ok(());
        }
        volumes.settle()?;
        self.finish(plan, env, options)?;
        volumes.give_up()
    }

    fn files_again(&mut self) -> Result<()> {
        self.files = self.volume.list()?;
        Ok(())
    }

    /// Removes the files that a repair, or a store, had not finished when it was stopped.
    fn remove_unfinished(&mut self) -> Result<()> {
        let is_unfinished = |file: &FileMeta| matches!(file.name, FileName::Temporary(_));
        for file in self.files.iter().filter(|file| is_unfinished(file)) {
            remove(&*self.volume, file.name)?;
        }
        self.files.retain(|file| !is_unfinished(file));
        Ok(())
    }

    /// Notes a damage; an error that is none ends the repair.
    fn damage(&mut self, name: FileName, error: StorageError) -> Result<()> {
        if !is_damage(&error) {
            return Err(error.into());
        }
        let damage: Damage = damage_of(&self.path(name), error);
        if !is_known(&self.report.damages, &damage) {
            self.report.damages.push(damage);
        }
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.report.damages.is_empty() && self.report.nothing_lost()
    }

    fn numbers(&self, number: fn(FileName) -> Option<u64>) -> Vec<u64> {
        self.files.iter().filter_map(|f| number(f.name)).collect()
    }

    fn tables_found(&self) -> Vec<u64> {
        self.numbers(|name| if let FileName::Table(number) = name { Some(number) } else { None })
    }

    /// Returns true if a file is too short for a table: a crash left it. No edit ever named it, as a table is durable
    /// before its edit is appended.
    fn was_never_finished(&self, number: u64) -> bool {
        const TABLE_BYTES_MIN: u64 = (HEADER_BYTES + FOOTER_BYTES) as u64;
        self.files.iter().any(|file| file.name == FileName::Table(number) && file.bytes < TABLE_BYTES_MIN)
    }

    /// Returns true if a table was finished, as far as its end can be read.
    fn has_footer(&self, number: u64) -> bool {
        let reader = self.volume.open(FileName::Table(number));
        reader.and_then(|reader| Table::open(reader, number, BlockCache::new(0))).is_ok()
    }

    /// Carries out step 1: the manifest.
    fn state(&mut self) -> Result<Basis> {
        let manifests = manifest::numbers(&self.files);
        let candidates = match manifest::current(&*self.volume) {
            Ok(Some(number)) => vec![number],
            Ok(None) => {
                let error = StorageError::NotFound { path: self.path(FileName::Current) };
                self.damage(FileName::Current, error)?;
                manifests.clone()
            }
            Err(error) => {
                self.damage(FileName::Current, error)?;
                manifests.clone()
            }
        };
        let (mut best, mut unfit): (Option<Ranked>, Option<Ranked>) = (None, None);
        for number in candidates {
            let error = match self.read_manifest(number) {
                Ok((ranked, wrong)) => {
                    let kept = if wrong.is_none() { &mut best } else { &mut unfit };
                    if kept.as_ref().is_none_or(|other| ranked.rank() < other.rank()) {
                        *kept = Some(ranked);
                    }
                    wrong
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                self.damage(FileName::Manifest(number), error)?;
                self.aside.extend([FileName::Manifest(number), FileName::ManifestCopy(number)]);
            }
        }
        if let Some(best) = best {
            for error in best.mended {
                self.damage(FileName::Manifest(best.number), error)?;
            }
            if let Some(error) = best.copy_unread {
                self.damage(FileName::ManifestCopy(best.number), error)?;
            }
            return Ok(Basis::Manifest(best.state));
        }
        self.report.rebuilt = true;
        let mut fragments = Fragments { unfit: unfit.map(|unfit| unfit.state), ..Fragments::default() };
        for number in manifests {
            self.aside.extend([FileName::Manifest(number), FileName::ManifestCopy(number)]);
            match manifest::readable_edits(&*self.volume, number) {
                Ok(edits) => fragments.take(edits),
                Err(error) => self.damage(FileName::Manifest(number), error)?,
            }
        }
        Ok(Basis::Fragments(fragments))
    }

    /// Returns the state of a manifest, and its damage if it does not fit the files.
    fn read_manifest(&self, number: u64) -> situ_storage::Result<(Ranked, Option<StorageError>)> {
        let name = FileName::Manifest(number);
        let wrong = |offset, what: &str, expected: &str, found: String| {
            StorageError::corruption(format!("{}/{name}", self.volume.location()), offset, what, expected, found)
        };
        let found = manifest::read_damaged(&*self.volume, number)?;
        let (whole, torn) = (found.whole_bytes, found.whole_bytes < found.bytes);
        let state = StoreState::replay(found.edits, &self.salvager.source)
            .map_err(|text| wrong(0, "edits", "a state", text))?;
        let missing = state.missing_files(&self.files);
        // Files that are missing while others are too many: the manifest may have lost its last edits.
        let in_force = state.tables();
        // An edit is appended when its tables are durable: an unfinished table that a crash has left says nothing of
        // edits.
        let is_stranger = |number: &&u64| !in_force.contains(number) && self.has_footer(**number);
        let strangers = self.tables_found().iter().filter(is_stranger).count();
        let explained = missing.iter().all(|missing| self.gives_up_files && missing.may_be_elsewhere);
        let missing = missing.len();
        let unfit = (!explained && (torn || strangers > 0)).then(|| {
            let counted = |count, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
            let gone = counted(missing, "file is missing", "files are missing");
            let found = format!("one in which {gone} and {}", counted(strangers, "is not named", "are not named"));
            wrong(whole, "last edits", "a state that fits the files", found)
        });
        Ok((Ranked { number, missing, state, mended: found.damages, copy_unread: found.copy_unread }, unfit))
    }

    /// Reports files that an unfit manifest names and that are missing as lost; also the missing parts of the log, of
    /// which `logs` are found.
    fn tell_missing(&mut self, unfit: &StoreState, names: &BTreeMap<u32, String>, logs: &[u64]) -> Result<MissingLogs> {
        let mut gone = MissingLogs::default();
        for missing in unfit.missing_files(&self.files) {
            if let FileName::Log(number) = missing.name {
                // Older files than the first one needed are no part of the log any more.
                let goes_on = logs.iter().any(|found| *found > number);
                gone.head |= goes_on;
                gone.tail |= !goes_on;
            }
            self.damage(missing.name, missing.error(&*self.volume))?;
            if let FileName::Table(number) = missing.name
                && !missing.is_gone
                && self.open_table(number).is_err()
            {
                // The table is there, and its rescue reports the losses in it.
                continue;
            }
            for (id, keyspace) in &unfit.keyspaces {
                let is_missing = |meta: &TableMeta| FileName::Table(meta.number) == missing.name;
                for (_, file) in keyspace.version.files().filter(|(_, file)| is_missing(&file.meta)) {
                    let span = Some(&file.meta.span);
                    let lost = LostRange::of(&name_of(*id, names), file.meta.number, LossKind::Entries, span);
                    self.report.lost_ranges.push(lost);
                    self.report.tables_lost += 1;
                }
            }
        }
        Ok(gone)
    }

    /// Carries out steps 1 to 4 for tables and logs.
    fn survey(&mut self, basis: Basis) -> Result<RepairPlan> {
        let (mut state, known) = match basis {
            Basis::Manifest(state) => (state, None),
            Basis::Fragments(fragments) => {
                let state = StoreState {
                    next_keyspace: fragments.next_keyspace,
                    last_sequence: fragments.last_sequence,
                    lossy_repair: fragments.lossy_repair,
                    several_volumes: fragments.several_volumes,
                    ..StoreState::default()
                };
                (state, Some(fragments))
            }
        };
        // A log that was not closed may have gone on.
        let mut gone = MissingLogs { head: false, tail: self.gives_up_log && state.closed.is_none() };
        for missing in state.missing_files(&self.files) {
            gone.head |= matches!(missing.name, FileName::Log(_)) && state.closed != missing.name.number();
            let error = missing.error(&*self.volume);
            self.damage(missing.name, error)?;
        }
        state.pass_numbers_of(&self.files);
        self.salvager.next_file.store(state.next_file, Ordering::Relaxed);
        let logs = needed_logs(&state, self.files.iter().map(|f| f.name));
        if let Some(Fragments { unfit: Some(unfit), names, .. }) = &known {
            let missing = self.tell_missing(unfit, names, &logs)?;
            (gone.head, gone.tail) = (gone.head | missing.head, gone.tail | missing.tail);
        }
        gone.head |= known.is_some() && logs.is_empty();
        let log = self.logs(&state, &logs, gone)?;
        match known {
            None => self.tables(&mut state, &logs)?,
            Some(fragments) => {
                self.rebuild(&mut state, &fragments, &log)?;
                let with_handles = self.adopt_segments(&mut state, &logs)?;
                open_values(
                    &self.volume,
                    &self.salvager.env,
                    &Options::default().bounded(),
                    &state,
                    &self.salvager.source,
                    true,
                )?;
                self.tell_lost_values(&state, &with_handles)?;
            }
        }
        state.next_file = self.salvager.next_file.load(Ordering::Relaxed);
        self.report.keyspaces = state.keyspaces.values().map(|k| k.name.clone()).collect();
        let keep_logs = !self.report.lost_writes.is_empty();
        if keep_logs {
            self.aside.extend(logs.iter().map(|number| FileName::Log(*number)));
        }
        Ok(RepairPlan { state, logs, keep_logs })
    }

    fn logs(&mut self, state: &StoreState, logs: &[u64], gone: MissingLogs) -> Result<LogSurvey> {
        let mut survey = logs::survey(&self.volume, logs, state, gone)?;
        self.report.log_records = survey.records;
        for (file, error) in std::mem::take(&mut survey.damages) {
            self.damage(FileName::Log(file), error)?;
            if logs.contains(&file) {
                self.aside.insert(FileName::Log(file));
            }
        }
        self.report.lost_writes = survey.lost.clone();
        Ok(survey)
    }

    /// Carries out step 3: the tables of a known state.
    fn tables(&mut self, state: &mut StoreState, logs: &[u64]) -> Result<()> {
        let mut changes: BTreeMap<u32, Changes> = BTreeMap::new();
        let with_values = self.drop_missing_segments(state)?;
        open_values(
            &self.volume,
            &self.salvager.env,
            &Options::default().bounded(),
            state,
            &self.salvager.source,
            true,
        )?;
        let damaged = self.damaged_segments()?;
        let logged = if with_values.is_empty() { BTreeSet::new() } else { self.logged_segments(logs)? };
        for (id, keyspace) in &state.keyspaces {
            let values = match with_values.contains(id) {
                true => {
                    let unsound = unsound_tables(state, *id, keyspace)?;
                    self.value_rescue(keyspace, &unsound, &damaged, &logged)?
                }
                false => ValueRescue::default(),
            };
            self.aside.extend(values.emptied().map(FileName::Values));
            changes.entry(*id).or_default().emptied.extend(values.emptied());
            for (level, file) in keyspace.version.files() {
                let (meta, name) = (&file.meta, FileName::Table(file.meta.number));
                let judged = file.table().and_then(|table| {
                    table.verify(&mut |_| {})?;
                    differences(state, *id, meta, &table)
                        .into_iter()
                        .next()
                        .map_or(Ok(()), |(what, expected, found)| {
                            Err(StorageError::corruption(table.path(), 0, what, expected, found))
                        })
                });
                let error = judged.and_then(|()| check_values(file, &values)).err();
                let rescued_bytes = values.bytes_for(file);
                if error.is_none() && rescued_bytes == 0 {
                    self.report.tables_kept += 1;
                    continue;
                }
                let changes = changes.entry(*id).or_default();
                changes.removed.push(Removed { level, number: meta.number });
                if matches!(error, Some(StorageError::NotFound { .. })) {
                    // The listing has been compared with the manifest; this damage is reported already.
                    self.report.tables_lost += 1;
                    let lost = LostRange::of(&keyspace.name, meta.number, LossKind::Entries, Some(&meta.span));
                    self.report.lost_ranges.push(lost);
                    continue;
                }
                if let Some(error) = error {
                    self.damage(name, error)?;
                }
                self.aside.insert(name);
                if self.salvager.properties(meta.number)?.is_some_and(|found| !meta.differences(&found).is_empty()) {
                    // Another table lies in its place: its contents are not those of this table.
                    self.report.tables_lost += 1;
                    let lost = LostRange::of(&keyspace.name, meta.number, LossKind::Entries, Some(&meta.span));
                    self.report.lost_ranges.push(lost);
                    continue;
                }
                let place =
                    TreePlace { keyspace: &keyspace.name, id: *id, level, span: Some(&meta.span), rescued_bytes };
                let mut remains = self.salvager.salvage(meta.number, &place, &values)?;
                remains.lost.retain(|l| l.kind == LossKind::Entries || meta.range_deletions > 0);
                self.report.lost_ranges.append(&mut remains.lost);
                self.count(remains.usable);
                for error in remains.damages {
                    self.damage(name, error)?;
                }
                changes.added.extend(remains.table.map(|meta| Added { level, meta }));
            }
        }
        for (id, Changes { removed, added, emptied }) in changes {
            if let Some(keyspace) = state.keyspaces.get_mut(&id) {
                let source = &self.salvager.source;
                let version = keyspace.version.apply(&removed, &added, source);
                let version = version.and_then(|version| version.with_segments(&[], &emptied, source));
                keyspace.version = version.map_err(|text| {
                    StorageError::corruption(&keyspace.name, 0, "repaired version", "one that fits", text)
                })?;
            }
        }
        Ok(())
    }

    fn count(&mut self, usable: u64) {
        if usable > 0 {
            self.report.tables_salvaged += 1;
        } else {
            self.report.tables_lost += 1;
        }
    }

    /// Returns the table, if it is sound.
    fn open_table(&self, number: u64) -> situ_storage::Result<Arc<Table>> {
        let reader = self.volume.open(FileName::Table(number))?;
        // A cache of its own: numbers of tables in the store's cache belong to the store.
        let table = Table::open(reader, number, BlockCache::new(0))?;
        table.verify(&mut |_| {})?;
        Ok(table)
    }

    /// Carries out steps 5 and 6.
    fn finish(&mut self, plan: RepairPlan, env: &Env, mut options: Options) -> Result<()> {
        let RepairPlan { mut state, logs, keep_logs } = plan;
        let default = || KeyspaceState { name: DEFAULT_KEYSPACE.to_owned(), version: Version::empty(), log_number: 0 };
        state.keyspaces.entry(DEFAULT_KEYSPACE_ID).or_insert_with(default);
        state.next_keyspace = state.next_keyspace.max(DEFAULT_KEYSPACE_ID + 1);
        // A repair may give numbers to files that other files of the store had before.
        remove(&*self.volume, FileName::Lineage)?;
        let has_lost = !self.report.nothing_lost() || self.report.without_manifest;
        if has_lost {
            let now = u64::try_from(env.clock.unix().as_millis()).unwrap_or(u64::MAX);
            let passed = state.lossy_repair.map_or(0, |before| before.saturating_add(1));
            state.lossy_repair = Some(now.max(passed));
        }
        // The store's listener is not notified of its repair.
        options.listener = None;
        let tables = state.tables();
        let strangers: Vec<u64> = self.tables_found().into_iter().filter(|n| !tables.contains(n)).collect();
        self.aside.extend(strangers.into_iter().map(FileName::Table));
        let keyspaces = KeyspaceChoices::new();
        let ground = Ground {
            volume: Arc::clone(&self.volume),
            env: env.clone(),
            options,
            keyspaces: &keyspaces,
            source: Arc::clone(&self.salvager.source),
            state,
            logs: logs.clone(),
            mode: RecoveryMode::Repair,
            before_manifest: &|| Ok(self.salvager.name()?),
        };
        let Built { core, manifest_number, .. } = ground.build()?;
        self.set_aside(|| core.versions.new_number())?;
        for file in &self.files {
            let old = match file.name {
                FileName::Manifest(number) | FileName::ManifestCopy(number) => number != manifest_number,
                FileName::Log(number) if logs.contains(&number) => !keep_logs,
                // Kept for change feeds, which would not hear of what was lost.
                FileName::Log(_) => has_lost,
                _ => false,
            };
            if old {
                remove(&*self.volume, file.name)?;
            }
        }
        self.volume.replace(FileName::Identity, IDENTITY.as_bytes())?;
        self.volume.sync_names()?;
        if let Some(log) = core.memory.log() {
            log.close()?;
        }
        core.memory.note_closed()
    }

    fn set_aside(&mut self, new_number: impl Fn() -> u64) -> Result<()> {
        for name in std::mem::take(&mut self.aside) {
            let there = |name| self.files.iter().any(|f| f.name == name);
            if !there(name) {
                continue;
            }
            // The manifest and its copy have one number.
            let taken = |to| there(to) || self.report.set_aside.iter().any(|(_, other)| *other == to);
            let own = name.number().map(FileName::Damaged).filter(|to| !taken(*to));
            let to = own.unwrap_or_else(|| FileName::Damaged(new_number()));
            self.volume.rename(name, to)?;
            self.report.set_aside.push((name, to));
        }
        Ok(())
    }
}

/// Returns the tables of a keyspace that are damaged, or are not those that the manifest names.
///
/// # Errors
/// A table cannot be read, for a reason outside of it.
fn unsound_tables(state: &StoreState, id: u32, keyspace: &KeyspaceState) -> Result<HashSet<u64>> {
    let mut unsound = HashSet::new();
    for (_, file) in keyspace.version.files() {
        let checked = file.table().and_then(|table| table.verify(&mut |_| {}).map(|_| table));
        let is_sound = match checked {
            Ok(table) => differences(state, id, &file.meta, &table).is_empty(),
            Err(error) if error.is_not_of_the_file() => return Err(error.into()),
            Err(_) => false,
        };
        if !is_sound {
            unsound.insert(file.meta.number);
        }
    }
    Ok(unsound)
}

/// Checks that no entry of a sound table has lost its value.
fn check_values(file: &TableFile, values: &ValueRescue) -> situ_storage::Result<()> {
    let table = file.table()?;
    match values.lost_keys_in(file, &table)?.first() {
        None => Ok(()),
        Some(key) => {
            let what = format!("value of key {}", key.escape_ascii());
            Err(StorageError::corruption(
                table.path(),
                0,
                what,
                "a value in the value log",
                "a handle that leads to none",
            ))
        }
    }
}
