//! An open store: its rooms, wired together.
//!
//! **Locks, in the order in which they may be taken together.** The lock of the waiting writes (`admission.rs`), `commit` (sequence
//! numbers and the queue of requests, see `commit.rs`), the registry's (`versions/store.rs`). None is held across anything that
//! blocks. The right to change versions is no lock (`versions/editor.rs`).

use crate::api::transaction::Transactions;
use crate::base::health::Health;
use crate::base::options::Options;
use crate::base::store_id::StoreId;
use crate::base::sync::lock;
use crate::pipeline::admission::WaitingRoom;
use crate::pipeline::commit::Commit;
use crate::pipeline::group_commit::GroupCommit;
use crate::pipeline::loggers::{LOGGERS_MAX, Loggers};
use crate::pipeline::outstanding::Outstanding;
use crate::pipeline::stall::Stall;
use crate::placement::run::Placement;
use crate::read::future::Readers;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::manifest::Manifest;
use crate::versions::snapshot::Snapshots;
use crate::versions::store::{Registry, Versions};
use crate::versions::version::TableSource;
use crate::versions::view::MemtableSlot;
use crate::work::pacer::Pacer;
use crate::work::throttle::CompactionThrottle;
use crate::{Error, Result};
use situ_compaction::{CpuUnit, Patience, Scheduler};
use situ_device::{Env, Event};
use situ_log::Log;
use situ_storage::{Error as StorageError, Volume};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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
    pub(crate) versions: Arc<Versions>,
    pub(crate) options: Options,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// The log file that this opening began with: what came from those before was replayed.
    first_log: u64,
    /// Something that was written since the store was opened has become a table.
    pub(crate) has_flushed_own: AtomicBool,
    pub(crate) commit: Mutex<Commit>,
    /// Notified when the visible sequence number has advanced and somebody waits for it.
    pub(crate) published: Arc<dyn Event>,
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
    pub(crate) throttle: CompactionThrottle,
    /// Synced writers that wait for the log.
    pub(crate) group_commit: GroupCommit,
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
    pub(crate) placement: Option<Placement>,
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
        let (work, progress, published, editor_returned) = (event(), event(), event(), event());
        let listener = options.listener.clone();
        let health = Health::new(listener, Arc::clone(&volume), Arc::clone(&source.damaged), Arc::clone(&progress));
        let cpu = Arc::new(CpuUnit::new(env.clone(), options.compaction_threads));
        source.obsolete.ring(Arc::clone(&work));
        let loggers = Arc::new(Loggers::new(&env, if options.ablation.serial_log { 1 } else { LOGGERS_MAX }));
        let outstanding = Arc::new(Outstanding::new(options.requests_outstanding_max));
        let commit = Commit::new(last_sequence + 1, log_number, registry.by_id.values());
        let versions = Arc::new(Versions {
            health: Arc::clone(&health),
            is_writable: log.is_some(),
            volume,
            source,
            registry: Mutex::new(registry),
            next_file: AtomicU64::new(next_file),
            snapshots: Snapshots::new(last_sequence),
            manifest: Mutex::new(manifest),
            editor_returned: Arc::clone(&editor_returned),
            mended: Mutex::default(),
            lossy_repair,
            had_fast_disk,
            unnamed: names_tables_later.then(Mutex::default),
            doubtful: Mutex::default(),
        });
        let disks = versions.source.disks.as_ref();
        let placement = disks.map(|disks| Placement::new(&env, &versions, disks, &options, &work));
        let events = [&work, &progress, &published, &editor_returned].map(Arc::clone);
        let (asleep, waiting) = (Arc::clone(&loggers), Arc::clone(&outstanding));
        health.wakes(vec![
            Box::new(move || waiting.wake()),
            Box::new(move || asleep.wake_all()),
            Box::new(move || events.iter().for_each(|event| event.notify())),
        ]);
        Core {
            first_log: log_number,
            has_flushed_own: AtomicBool::new(false),
            commit: Mutex::new(commit),
            published,
            versions,
            work,
            id,
            progress,
            health,
            loggers,
            stall: Stall::default(),
            waiting_room: WaitingRoom::default(),
            outstanding,
            pacer: Pacer::default(),
            throttle: CompactionThrottle::default(),
            group_commit: GroupCommit::new(env.executor.cores()),
            scheduling: Mutex::new(()),
            scheduler: Scheduler::new(env.clone(), cpu, Vec::new(), Patience::default()),
            next_task: AtomicU64::new(1),
            prepared_log: AtomicU64::new(0),
            log_wanted: AtomicBool::new(false),
            flushes_releasing: AtomicUsize::new(0),
            log_area_stops: AtomicBool::new(false),
            readers: Readers::new(id, &env),
            placement,
            transactions: Arc::new(Transactions::new(id, &env, options.transaction_locks_max)),
            troubles: Mutex::default(),
            env,
            options,
            log,
        }
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
                let fresh = self.versions.new_number();
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

    /// Whether the memtable holds something that was replayed.
    pub(crate) fn is_replayed(&self, slot: &MemtableSlot) -> bool {
        slot.first_log().is_some_and(|log| log < self.first_log)
    }

    /// Waits until the flusher has made tables of what was replayed, unless it cannot. To be called before closing: a store that
    /// is opened for a moment, again and again, would otherwise replay the same each time.
    pub(crate) fn wait_for_replayed(&self) {
        let waits = |k: &Arc<KeyspaceCore>| k.view.load().sealed.iter().any(|slot| self.is_replayed(slot));
        loop {
            let seen = self.progress.generation();
            let is_idle = self.writable().is_err() || self.check_flushes().is_err();
            if is_idle || !self.versions.keyspaces().iter().any(waits) {
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
        let mut editor = self.versions.edit()?;
        let log_numbers = self.versions.log_numbers(lock(&self.commit).log_number);
        editor.apply(Edit { log_numbers, ..Edit::default() }, || {})
    }

    /// Whether the manifest names an older log file as needed than memory does: a memtable that was empty when the manifest was
    /// written has its first records in a later file.
    pub(crate) fn needs_less_log_than_noted(&self) -> bool {
        let noted = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        let needed =
            self.versions.log_numbers(lock(&self.commit).log_number).into_iter().map(|(_, number)| number).min();
        noted < needed
    }

    /// Notes in the manifest that the store is closed in order; to be called when the log has been closed.
    pub(crate) fn note_closed(&self) -> Result<()> {
        let closed = Some(lock(&self.commit).log_number);
        match self.versions.edit()?.apply(Edit { closed, ..Edit::default() }, || {}) {
            // Nothing is lost without the note; the next open then looks a little less closely.
            Err(error) if error.is_no_space() => Ok(()),
            result => result,
        }
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
        let oldest = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        oldest.map_or(Ok(()), |oldest| Ok(log.release(oldest)?))
    }
}
