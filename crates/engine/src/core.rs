//! What all parts of an open store share: the registry of keyspaces, numbers, the manifest, the state of health.
//!
//! **Locks, in the order in which they may be taken together.** The waiting room's (`admission.rs`), `commit` (sequence
//! numbers and the queue of requests, see `commit.rs`), `registry`. None is held across anything that blocks. The manifest is not a lock but a
//! baton: whoever changes versions takes it, may block on the disk while holding it, and hands it on.
//!
//! **Views.** Each keyspace's view is replaced by compare-and-swap: sealing a memtable (under `commit`) and installing
//! a version (holding the manifest) may meet, and neither loses the other's change.

use crate::base::health::Health;
use crate::base::listener::StoreEvent;
use crate::base::options::Options;
use crate::base::store_id::StoreId;
use crate::base::sync::lock;
use crate::pipeline::admission::WaitingRoom;
use crate::pipeline::commit::Commit;
use crate::pipeline::group_commit::Gathering;
use crate::pipeline::loggers::{LOGGERS_MAX, Loggers};
use crate::pipeline::outstanding::Outstanding;
use crate::pipeline::stall::Stall;
use crate::placement::run::Placing;
use crate::read::future::Readers;
use crate::transaction::Transactions;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::Manifest;
use crate::versions::snapshot::Snapshots;
use crate::versions::version::{Added, TableSource};
use crate::versions::view::Slot;
use crate::work::pacer::Pacer;
use crate::work::throttle::Courtesy;
use crate::{Error, Result};
use situ_compaction::{CpuUnit, Patience, Scheduler};
use situ_device::{Env, Event};
use situ_log::Log;
use situ_storage::{Error as StorageError, FileName, Volume};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The keyspaces there are.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) by_id: BTreeMap<u32, Arc<KeyspaceCore>>,
    pub(crate) next_id: u32,
}

impl Registry {
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<KeyspaceCore>> {
        self.by_id.values().find(|k| k.name == name)
    }
}

/// Background work that fails now, by what it keeps from happening.
#[derive(Default)]
pub(crate) struct Troubles {
    /// Memtables do not become tables: when all are full, writers are told this.
    pub(crate) flush: Trouble,
    /// The flusher's last failure was that it could not make a log file ready. It had no memtable to flush then, and flushes may
    /// succeed.
    pub(crate) only_log_fails: bool,
    /// Tables are not compacted, or fewer at a time.
    pub(crate) compaction: Trouble,
}

/// Threads of one kind whose work fails for a reason that is not its own.
#[derive(Default, Clone)]
pub(crate) struct Trouble {
    /// The last failure, until one of the threads that failed has succeeded.
    pub(crate) error: Option<Error>,
    /// How many of them pause before they try again.
    pub(crate) pausing: usize,
}

/// An open store.
pub(crate) struct Core {
    pub(crate) id: StoreId,
    pub(crate) health: Arc<Health>,
    pub(crate) env: Env,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) options: Options,
    pub(crate) source: Arc<TableSource>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// The log file that this opening began with: what came from those before was replayed.
    first_log: u64,
    /// Something that was written since the store was opened has become a table.
    pub(crate) has_flushed_own: AtomicBool,
    pub(crate) commit: Mutex<Commit>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Notified when the visible sequence number has advanced and somebody waits for it.
    pub(crate) published: Arc<dyn Event>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) next_file: AtomicU64,
    manifest: Mutex<Option<Manifest>>,
    /// What was damaged when the store was opened, and made good from elsewhere.
    pub(crate) mended: Mutex<Vec<StorageError>>,
    /// When a repair has lost something last, in milliseconds since 1970.
    pub(crate) lossy_repair: Option<u64>,
    /// There was a fast disk before the store was opened.
    pub(crate) had_fast_disk: bool,
    /// In a repair: the tables that have temporary names until [`name_tables`](Core::name_tables).
    unnamed: Option<Mutex<BTreeSet<u64>>>,
    /// Tables that an edit names of which nobody knows whether it is on disk: they must not be deleted. Empty unless an
    /// edit could not be written for want of room.
    doubtful: Mutex<Vec<u64>>,
    manifest_returned: Arc<dyn Event>,
    /// Notified when there may be something to flush, to compact or to delete. Also by whoever lets go of a table last,
    /// which may hold a lock.
    pub(crate) work: Arc<dyn Event>,
    /// Notified when memtables have been flushed or compactions installed, and when the waiting room has a new first write.
    pub(crate) progress: Arc<dyn Event>,
    /// Asynchronous writes for the loggers.
    pub(crate) loggers: Arc<Loggers>,
    pub(crate) stall: Stall,
    /// Asynchronous writes that may not begin yet.
    pub(crate) waiting_room: WaitingRoom,
    /// Asynchronous requests under way.
    pub(crate) outstanding: Arc<Outstanding>,
    pub(crate) pacer: Pacer,
    /// How many threads compactions may use beside a log that writers wait for.
    pub(crate) courtesy: Courtesy,
    /// Synced writers that wait for the log.
    pub(crate) gathering: Gathering,
    /// Held while jobs are picked, never while they run.
    pub(crate) scheduling: Mutex<()>,
    /// Gives tasks to units.
    pub(crate) scheduler: Scheduler,
    next_task: AtomicU64,
    /// The number that the next log file has or will have; 0 if none was chosen.
    prepared_log: AtomicU64,
    /// The flusher is to make the next log file ready.
    pub(crate) log_wanted: AtomicBool,
    /// Flushes whose memtables are gone, or about to go, and that have not given back their log files yet.
    pub(crate) flushes_releasing: AtomicUsize,
    /// Writers wait for room in the log's area.
    pub(crate) log_area_stops: AtomicBool,
    pub(crate) readers: Readers,
    /// Where new tables go, if there are two disks.
    pub(crate) placing: Option<Placing>,
    pub(crate) transactions: Arc<Transactions>,
    /// The failures of background jobs that are being tried again.
    pub(crate) troubles: Mutex<Troubles>,
}

/// Parts that opening a store has put together.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) options: Options,
    pub(crate) source: Arc<TableSource>,
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) registry: Registry,
    pub(crate) next_file: u64,
    pub(crate) last_sequence: u64,
    pub(crate) log_number: u64,
    pub(crate) lossy_repair: Option<u64>,
    pub(crate) had_fast_disk: bool,
    /// Tables begin under temporary names.
    pub(crate) names_tables_later: bool,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Core {
        let Parts { env, volume, options, source, log, manifest, registry, .. } = parts;
        let Parts { next_file, last_sequence, log_number, .. } = parts;
        let Parts { lossy_repair, had_fast_disk, names_tables_later, .. } = parts;
        let event = || env.executor.event();
        let id = StoreId::new();
        let (work, progress, published, manifest_returned) = (event(), event(), event(), event());
        let listener = options.listener.clone();
        let health = Health::new(listener, Arc::clone(&volume), Arc::clone(&source.damaged), Arc::clone(&progress));
        let place = |disks| Placing::new(disks, &options, env.clock.now(), &work, registry.by_id.values());
        let placing = source.disks.as_ref().map(place);
        let cpu = Arc::new(CpuUnit::new(env.clone(), options.compaction_threads));
        source.graveyard.ring(Arc::clone(&work));
        let loggers = Arc::new(Loggers::new(&env, if options.ablation.serial_log { 1 } else { LOGGERS_MAX }));
        let outstanding = Arc::new(Outstanding::new(options.requests_outstanding_max));
        let events = [&work, &progress, &published, &manifest_returned].map(Arc::clone);
        let (asleep, waiting) = (Arc::clone(&loggers), Arc::clone(&outstanding));
        health.wakes(vec![
            Box::new(move || waiting.wake()),
            Box::new(move || asleep.wake_all()),
            Box::new(move || events.iter().for_each(|event| event.notify())),
        ]);
        Core {
            first_log: log_number,
            has_flushed_own: AtomicBool::new(false),
            commit: Mutex::new(Commit::new(last_sequence + 1, log_number, registry.by_id.values())),
            snapshots: Snapshots::new(last_sequence),
            published,
            registry: Mutex::new(registry),
            next_file: AtomicU64::new(next_file),
            manifest: Mutex::new(manifest),
            mended: Mutex::default(),
            lossy_repair,
            had_fast_disk,
            unnamed: names_tables_later.then(Mutex::default),
            doubtful: Mutex::default(),
            manifest_returned,
            work,
            id,
            progress,
            health,
            loggers,
            stall: Stall::default(),
            waiting_room: WaitingRoom::default(),
            outstanding,
            pacer: Pacer::default(),
            courtesy: Courtesy::default(),
            gathering: Gathering::new(env.executor.cores()),
            scheduling: Mutex::new(()),
            scheduler: Scheduler::new(env.clone(), cpu, Vec::new(), Patience::default()),
            next_task: AtomicU64::new(1),
            prepared_log: AtomicU64::new(0),
            log_wanted: AtomicBool::new(false),
            flushes_releasing: AtomicUsize::new(0),
            log_area_stops: AtomicBool::new(false),
            readers: Readers::new(id, &env),
            placing,
            transactions: Arc::new(Transactions::new(id, &env, options.transaction_locks_max)),
            troubles: Mutex::default(),
            env,
            volume,
            options,
            source,
            log,
        }
    }

    /// A file number nobody else has.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new_task_id(&self) -> u64 {
        self.next_task.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the next log file ready, with room for a record of `bytes`, unless it is. May block. After an error the next
    /// try takes another number: a file that was begun under this one may still be there.
    ///
    /// False, and nothing is done, if the area that the log has to itself is full, and a flush that is due gives some of it
    /// back: then it is to be tried again after the next [`progress`](Core::progress).
    pub(crate) fn prepare_log(&self, bytes: u64) -> Result<bool> {
        let waits = self.log_area_is_full_for_now(bytes);
        self.log_area_stops.fetch_and(waits, Ordering::Relaxed);
        if waits {
            return Ok(false);
        }
        self.prepare_log_by(|log, number| log.prepare_next(number, bytes)).map(|()| true)
    }

    /// As [`prepare_log`](Core::prepare_log), for a file that is to take little room, `bytes_max` at most if that is enough for
    /// a record of `bytes`.
    pub(crate) fn prepare_short_log(&self, bytes: u64, bytes_max: u64) -> Result<()> {
        self.prepare_log_by(|log, number| log.prepare_short(number, bytes, bytes_max))
    }

    fn prepare_log_by(&self, prepare: impl Fn(&Log, u64) -> Result<bool, StorageError>) -> Result<()> {
        let log = self.writable()?;
        loop {
            let chosen = self.prepared_log.load(Ordering::Acquire);
            let number = if chosen != 0 {
                chosen
            } else {
                let fresh = self.new_number();
                let raced = self.prepared_log.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
                raced.map_or_else(|theirs| theirs, |_| fresh)
            };
            let prepared = prepare(log, number);
            if matches!(prepared, Ok(true)) {
                return Ok(());
            }
            let rotated = log.file() >= number;
            self.log_rotated(number);
            match prepared {
                // Another thread has rotated to it in the meantime: what was wanted has happened.
                Err(_) if rotated => return Ok(()),
                Err(error) => {
                    self.health.fail_if_a_disk_has();
                    return Err(error.into());
                }
                // Under another number, then.
                Ok(_) => {}
            }
        }
    }

    /// The number that the next log file has or will have; 0 if none was chosen.
    pub(crate) fn prepared_log(&self) -> u64 {
        self.prepared_log.load(Ordering::Acquire)
    }

    /// Log file `number` is in use now, or was given up: the next one needs another number.
    pub(crate) fn log_rotated(&self, number: u64) {
        let _ = self.prepared_log.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The log, if writes are taken at all.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Arc<Log>> {
        self.health.check_sound()?;
        self.log.as_ref().ok_or(Error::ReadOnly)
    }

    /// Live keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<Arc<KeyspaceCore>> {
        lock(&self.registry).by_id.values().cloned().collect()
    }

    /// Waits for the manifest. Whoever has it is the only one that changes versions.
    pub(crate) fn take_manifest(&self) -> Result<ManifestBaton<'_>> {
        loop {
            let seen = self.manifest_returned.generation();
            if let Some(manifest) = lock(&self.manifest).take() {
                return Ok(ManifestBaton { core: self, manifest: Some(manifest) });
            }
            if self.log.is_none() {
                return Err(Error::ReadOnly);
            }
            self.manifest_returned.wait(seen, None);
        }
    }

    /// Whether the memtable holds something that was replayed.
    pub(crate) fn is_replayed(&self, slot: &Slot) -> bool {
        slot.first_log().is_some_and(|log| log < self.first_log)
    }

    /// Waits until the flusher has made tables of what was replayed, unless it cannot. To be called before closing: a store that
    /// is opened for a moment, again and again, would otherwise replay the same each time.
    pub(crate) fn wait_for_replayed(&self) {
        let waits = |k: &Arc<KeyspaceCore>| k.view.load().sealed.iter().any(|slot| self.is_replayed(slot));
        loop {
            let seen = self.progress.generation();
            let is_idle = self.writable().is_err() || self.check_flushes().is_err();
            if is_idle || !self.keyspaces().iter().any(waits) {
                return;
            }
            self.work.notify();
            self.progress.wait(seen, None);
        }
    }

    /// Notes in the manifest that all that the log held is in the new log. False if the disk has no room for the note: then
    /// the old log files stay, until another edit says so.
    pub(crate) fn note_carried(&self) -> Result<bool> {
        match self.note_log_numbers() {
            Err(error) if error.is_no_space() => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Notes in the manifest which log files what is in memory still needs.
    pub(crate) fn note_log_numbers(&self) -> Result<()> {
        let mut baton = self.take_manifest()?;
        let log_numbers = self.log_numbers(&lock(&self.commit));
        baton.apply(Edit { log_numbers, ..Edit::default() }, || {})
    }

    /// Whether the manifest names an older log file as needed than memory does: a memtable that was empty when the manifest was
    /// written has its first records in a later file.
    pub(crate) fn needs_less_log_than_noted(&self) -> bool {
        let noted = lock(&self.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        let needed = self.log_numbers(&lock(&self.commit)).into_iter().map(|(_, number)| number).min();
        noted < needed
    }

    /// Notes in the manifest that the store is closed in order; to be called when the log has been closed.
    pub(crate) fn note_closed(&self) -> Result<()> {
        let closed = Some(lock(&self.commit).log_number);
        match self.take_manifest()?.apply(Edit { closed, ..Edit::default() }, || {}) {
            // Nothing is lost without the note; the next open then looks a little less closely.
            Err(error) if error.is_no_space() => Ok(()),
            result => result,
        }
    }

    /// The oldest log file that something in memory still needs, by keyspace; to be called with the commit lock held,
    /// so that no new write slips in between.
    pub(crate) fn log_numbers(&self, commit: &Commit) -> Vec<(u32, u64)> {
        let registry = lock(&self.registry);
        let number = |k: &KeyspaceCore| k.view.load().first_log().unwrap_or(commit.log_number);
        registry.by_id.values().map(|k| (k.id, number(k))).collect()
    }

    /// An edit that describes the whole present state.
    fn snapshot_edit(&self) -> Edit {
        let registry = lock(&self.registry);
        let mut edit = Edit {
            next_file: Some(self.next_file.load(Ordering::Relaxed)),
            last_sequence: Some(self.snapshots.visible()),
            next_keyspace: Some(registry.next_id),
            lossy_repair: self.lossy_repair,
            fast_disk: self.had_fast_disk || self.source.disks.is_some(),
            ..Edit::default()
        };
        for keyspace in registry.by_id.values() {
            edit.created.push((keyspace.id, keyspace.name.clone()));
            edit.log_numbers.push((keyspace.id, keyspace.log_number.load(Ordering::Relaxed)));
            for (level, file) in keyspace.view.load().version.files() {
                edit.added.push((keyspace.id, Added { level, meta: file.meta.clone() }));
            }
        }
        edit
    }

    /// Deletes files that no version and no reader needs.
    ///
    /// After a failure nothing is deleted any more: the manifest on disk may hold an edit that is not in memory, and the
    /// next open needs the tables of whichever state it finds. There, the others are orphans.
    ///
    /// What cannot be deleted is told to the listener, and tried again when the next file is deleted; at the latest, the next
    /// open removes it as an orphan.
    pub(crate) fn bury(&self) {
        if let Err(error) = self.try_bury() {
            self.health.note_job_failure("delete table", error);
        }
    }

    /// As [`bury`](Core::bury), for those who cannot do without: the first failure is theirs.
    pub(crate) fn try_bury(&self) -> Result<()> {
        let mut first_failure = None;
        for number in self.source.graveyard.take() {
            // Asked after the number was taken: whose job failed the store has put it there later.
            if self.health.failure().is_some() {
                return Ok(());
            }
            if lock(&self.doubtful).contains(&number) {
                continue;
            }
            match self.volume.remove(FileName::Table(number)) {
                Ok(()) => {
                    self.source.damaged.forget_table(number);
                    self.health.tell(|| StoreEvent::TableDeleted { table: number });
                }
                Err(StorageError::NotFound { .. }) => {}
                // One disk that fails does not keep files on the other.
                Err(error) => {
                    self.source.graveyard.bury(number);
                    first_failure.get_or_insert(error);
                }
            }
        }
        first_failure.map_or(Ok(()), |error| Err(error.into()))
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

    /// The name under which a table begins.
    pub(crate) fn name_to_begin(&self, number: u64) -> FileName {
        match &self.unnamed {
            Some(unnamed) => {
                lock(unnamed).insert(number);
                FileName::Temporary(number)
            }
            None => FileName::Table(number),
        }
    }

    /// Of a table that is given up.
    pub(crate) fn never_name(&self, number: u64) {
        if self.unnamed.as_ref().is_some_and(|unnamed| lock(unnamed).remove(&number)) {
            // What stays is removed by the next opening or repair.
            let _ = self.volume.remove(FileName::Temporary(number));
        }
    }

    /// Gives the tables of a repair their own names. Only after [`sync_names`](situ_storage::Volume::sync_names) they keep them.
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

/// The right to change versions; given back on drop.
pub(crate) struct ManifestBaton<'a> {
    core: &'a Core,
    manifest: Option<Manifest>,
}

impl ManifestBaton<'_> {
    /// Makes an edit durable and then true: the edit is completed with numbers, appended and synced; then `install` makes
    /// the change visible in memory. On an error nothing is installed. If the disk was full the edit can be tried again;
    /// after any other error the store is read-only.
    pub(crate) fn apply(&mut self, mut edit: Edit, install: impl FnOnce()) -> Result<()> {
        let core = self.core;
        if let Some(error) = core.health.failure() {
            return Err(error);
        }
        if !lock(&core.doubtful).is_empty() {
            // A new manifest without the doubtful edit settles the matter: its tables were never there.
            self.replace()?;
            let settled = std::mem::take(&mut *lock(&core.doubtful));
            settled.into_iter().for_each(|number| core.source.graveyard.bury(number));
        }
        edit.next_file = Some(core.next_file.load(Ordering::Relaxed));
        edit.last_sequence = Some(core.snapshots.visible());
        let manifest = self.manifest.as_mut().expect("held until drop");
        if let Err(error) = manifest.append(&edit) {
            if error.is_no_space() {
                // Tables that only change their level are in force with or without the edit. Number 0 is no table's: it
                // marks the doubt even if the edit adds none.
                let moved = |number| edit.removed.iter().any(|(_, removed)| removed.number == number);
                let added = edit.added.iter().map(|(_, added)| added.meta.number).filter(|number| !moved(*number));
                lock(&core.doubtful).extend(added.chain([0]));
            } else {
                core.health.fail(error.clone());
            }
            return Err(error.into());
        }
        if let Some(error) = manifest.take_copy_failure() {
            core.health.note_job_failure("copy manifest", error.into());
        }
        for (id, number) in &edit.log_numbers {
            if let Some(keyspace) = lock(&core.registry).by_id.get(id) {
                keyspace.log_number.store(*number, Ordering::Relaxed);
            }
        }
        install();
        if manifest.is_long()
            && let Err(error) = self.replace()
        {
            core.health.note_job_failure("rewrite manifest", error);
        }
        Ok(())
    }

    /// Puts a new manifest in force that describes the present state. If it could not be written the old one stays; if the
    /// switch to it failed nobody knows which of the two a crash would leave, so the store takes no more writes.
    fn replace(&mut self) -> Result<()> {
        let core = self.core;
        let snapshot = core.snapshot_edit();
        let manifest = self.manifest.as_mut().expect("held until drop");
        manifest.replace(core.new_number(), &snapshot).map_err(|unfinished| {
            if unfinished.in_doubt {
                core.health.fail(unfinished.error.clone());
            }
            Error::from(unfinished)
        })?;
        if let Some(error) = manifest.take_copy_failure() {
            core.health.note_job_failure("copy manifest", error.into());
        }
        Ok(())
    }

    /// The log numbers to put into an edit that makes the contents of some memtables durable in tables, given how the
    /// view of keyspace `flushed` will look then.
    pub(crate) fn log_numbers_without(&self, flushed: &KeyspaceCore, slot: &Arc<Slot>) -> Vec<(u32, u64)> {
        let core = self.core;
        let commit = lock(&core.commit);
        let view = flushed.view.load();
        let left = view.slots().filter(|other| !Arc::ptr_eq(other, slot)).filter_map(|s| s.first_log()).min();
        let mut numbers = core.log_numbers(&commit);
        for (id, number) in &mut numbers {
            if *id == flushed.id {
                *number = left.unwrap_or(commit.log_number);
            }
        }
        numbers
    }
}

impl Drop for ManifestBaton<'_> {
    fn drop(&mut self) {
        *lock(&self.core.manifest) = self.manifest.take();
        self.core.manifest_returned.notify();
    }
}

impl Core {
    /// Lets go of log files that no keyspace needs. What cannot be let go of is told to the listener, and tried again the
    /// next time.
    pub(crate) fn release_logs(&self) {
        if let Err(error) = self.try_release_logs() {
            self.health.note_job_failure("recycle log", error);
        }
    }

    /// As [`release_logs`](Core::release_logs), for those who cannot do without: the first failure is theirs.
    pub(crate) fn try_release_logs(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let oldest = lock(&self.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        oldest.map_or(Ok(()), |oldest| Ok(log.release(oldest)?))
    }
}
