//! The choice of the log's next file: it is made ready before the present one is full, and files that no memtable needs
//! go.

use crate::base::sync::lock;
use crate::pipeline::flush_queue::FlushQueue;
use crate::pipeline::no_room::{NoRoom, Unsealed};
use crate::pipeline::places::Places;
use crate::pipeline::space::SpaceWatch;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_log::{AppendError, Log, LogOptions};
use situ_pipeline::{LogFileLength, NoLogFile};
use situ_storage::{Error as StorageError, FileName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The files of a store's log. See the module's documentation.
pub(crate) struct LogFiles {
    pub(crate) versions: Arc<Versions>,
    pub(crate) space: Arc<SpaceWatch>,
    pub(crate) queue: Arc<FlushQueue>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// The log file that this opening began with: what came from those before was replayed.
    first: u64,
    /// The number that the next log file has or will have; 0 if none was chosen.
    prepared: AtomicU64,
    /// The flusher is to make the next log file ready.
    wanted: AtomicBool,
    /// Writers wait for room in the log's area.
    pub(crate) area_stops: AtomicBool,
    /// How many [holds](LogFiles::hold) there are.
    holds: AtomicUsize,
    /// See [`Options::changes_kept_bytes`](crate::Options::changes_kept_bytes).
    kept_bytes_max: u64,
}

/// Keeps all log files of a store from being released, until it is dropped.
pub(crate) struct LogHold(Arc<LogFiles>);

impl Drop for LogHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
        self.0.release();
    }
}

impl LogFiles {
    /// Returns the files of a log that begins with the file `first`.
    pub(crate) fn new(
        versions: &Arc<Versions>,
        space: &Arc<SpaceWatch>,
        queue: &Arc<FlushQueue>,
        log: Option<Arc<Log>>,
        first: u64,
        kept_bytes_max: u64,
    ) -> Arc<LogFiles> {
        let (versions, space, queue) = (Arc::clone(versions), Arc::clone(space), Arc::clone(queue));
        let (prepared, wanted, area_stops) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let holds = AtomicUsize::new(0);
        Arc::new(LogFiles { versions, space, queue, log, first, prepared, wanted, area_stops, holds, kept_bytes_max })
    }

    /// Keeps all files that are needed now from being released. The caller has the right to change versions: no edit
    /// has said yet that one of them is not needed.
    pub(crate) fn hold(self: &Arc<Self>) -> LogHold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        LogHold(Arc::clone(self))
    }

    /// Asks the flusher to make the next log file ready.
    #[inline]
    pub(crate) fn want_next(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Makes the next log file ready if it is wanted.
    pub(crate) fn prepare_wanted(&self) -> Result<()> {
        if !self.wanted.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let prepared = self.prepare(0);
        self.wanted.fetch_or(!matches!(prepared, Ok(true)), Ordering::AcqRel);
        prepared.map(drop)
    }

    /// Makes the next log file ready, with room for a record of `bytes`, unless it is. May block. After an error the
    /// next try takes another number: a file that was begun under this one may still be there.
    ///
    /// Where the disk has too little room, the file is shorter than others
    /// ([`SpaceWatch::length_of_log_file`](situ_pipeline::SpaceWatch)).
    ///
    /// Returns false, and does nothing, if the area that the log has to itself is full, and a flush that is due gives
    /// some of it back. Then the caller tries again after the next [`progress`](crate::pipeline::Memory::progress).
    pub(crate) fn prepare(&self, bytes: u64) -> Result<bool> {
        let waits = self.area_is_full_for_now(bytes);
        self.area_stops.fetch_and(waits, Ordering::Relaxed);
        if waits {
            return Ok(false);
        }
        self.prepare_within(bytes, u64::MAX).map(|()| true)
    }

    /// As [`prepare`](LogFiles::prepare), for a file of `bytes_max` at most if that is enough for a record of
    /// `bytes`. Does not look at the area that the log may have to itself.
    pub(crate) fn prepare_within(&self, bytes: u64, bytes_max: u64) -> Result<()> {
        let log = self.writable()?;
        if log.is_ready(self.prepared(), bytes, bytes_max) {
            return Ok(());
        }
        // With the log on another volume, only the logged data takes room among the tables.
        let (taken, longest) = match self.versions.source.are_several {
            false => (2, u64::MAX),
            true if log.has_file_at_hand(0, bytes, |_| true) => (1, u64::MAX),
            // The space of all volumes together is of no use to one file.
            true => (1, self.versions.source.volumes.space_for_log_file()),
        };
        match self.space.length_of_log_file::<Error>(log, bytes, bytes_max.min(longest), taken)? {
            LogFileLength::Ordinary => self.prepare_by(|log, number| log.prepare_next(number, bytes)),
            LogFileLength::AtMost(longest) => self.prepare_by(|log, number| log.prepare_short(number, bytes, longest)),
        }
    }

    /// As [`prepare`](LogFiles::prepare), for a file that is to take little room: when little is to be written.
    pub(crate) fn prepare_at_rest(&self) -> Result<()> {
        self.prepare_within(0, LogOptions::default().short_file_bytes)
    }

    fn prepare_by(&self, prepare: impl Fn(&Log, u64) -> Result<bool, StorageError>) -> Result<()> {
        let log = self.writable()?;
        loop {
            let chosen = self.prepared.load(Ordering::Acquire);
            let number = if chosen != 0 {
                chosen
            } else {
                let fresh = self.versions.new_number();
                let raced = self.prepared.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
                raced.map_or_else(|theirs| theirs, |_| fresh)
            };
            let prepared = prepare(log, number);
            if matches!(prepared, Ok(true)) {
                return Ok(());
            }
            let rotated = log.file() >= number;
            self.rotated(number);
            match prepared {
                // Another thread has rotated to it in the meantime: what was wanted has happened.
                Err(_) if rotated => return Ok(()),
                Err(error) => {
                    self.versions.health.fail_if_a_disk_has();
                    return Err(error.into());
                }
                // Under another number, then.
                Ok(_) => {}
            }
        }
    }

    /// Makes the next file ready, as short as files may be.
    pub(crate) fn prepare_shortest(&self) -> Result<()> {
        self.prepare_by(|log, number| log.prepare_short(number, 0, situ_log::FILE_BYTES_MIN))
    }

    /// Lets records go to the next log file from now on. The caller has the commit lock.
    pub(crate) fn rotate(&self, places: &mut Places) -> Result<(), Unsealed> {
        let log = self.log.as_ref().ok_or_else(|| Unsealed::Refused(Box::new(Error::ReadOnly)))?;
        match log.rotate() {
            Ok(number) => {
                assert!(number > places.log_number, "the log goes back to file {number} from {}", places.log_number);
                places.go_on_in(number, log.room_bytes());
                self.rotated(number);
                Ok(())
            }
            Err(AppendError::Failed(error)) => {
                Err(Unsealed::Refused(Box::new(Error::Failed { cause: Box::new(error) })))
            }
            Err(AppendError::OutOfMemory { bytes }) => {
                Err(Unsealed::Refused(Box::new(StorageError::out_of_memory(bytes, "the end of a log file").into())))
            }
            Err(_) => Err(NoRoom::LogFile(NoLogFile { bytes: 0, file: log.file() }).into()),
        }
    }

    /// Returns the number that the next log file has or will have; 0 if none was chosen.
    pub(crate) fn prepared(&self) -> u64 {
        self.prepared.load(Ordering::Acquire)
    }

    /// Notes that log file `number` is in use now, or was given up: the next one needs another number.
    pub(crate) fn rotated(&self, number: u64) {
        let _ = self.prepared.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the log, if writes are taken at all.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Arc<Log>> {
        self.versions.health.check_sound()?;
        self.log.as_ref().ok_or(Error::ReadOnly)
    }

    /// Returns the log file that this opening began with.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns true if the memtable holds replayed records.
    pub(crate) fn is_replayed(&self, slot: &MemtableSlot) -> bool {
        slot.first_log().is_some_and(|log| log < self.first)
    }

    /// Returns the oldest of the log files that stay for change feeds; that of `log` if none do.
    pub(crate) fn oldest_kept(&self, log: &Log) -> u64 {
        let (current, kept) = (log.file(), self.kept_bytes_max);
        let is_short = || self.versions.volume.space().logical_free().is_some_and(|free| free < 2 * kept);
        if kept == 0 || is_short() {
            return current;
        }
        let share = self.area_bytes(log).map_or(kept, |area| kept.min(area / 4));
        log.oldest_within(share).min(current)
    }

    /// Releases log files that no keyspace needs, and no change feed may still want. If a release fails, the listener
    /// gets the error, and the next call tries again.
    pub(crate) fn release(&self) {
        if let Err(error) = self.try_release() {
            self.versions.health.note_job_failure("recycle log", error);
        }
    }

    /// As [`release`](LogFiles::release), but change feeds keep nothing, and the first failure is the caller's.
    pub(crate) fn release_all(&self) -> Result<()> {
        self.release_before(u64::MAX)
    }

    fn try_release(&self) -> Result<()> {
        self.release_before(self.log.as_ref().map_or(u64::MAX, |log| self.oldest_kept(log)))
    }

    /// Releases the log files with numbers below `kept` that no keyspace needs.
    fn release_before(&self, kept: u64) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let oldest = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        let Some(oldest) = oldest else { return Ok(()) };
        // Asked behind the numbers: a hold that begins later needs none of the files below them.
        if self.holds.load(Ordering::SeqCst) > 0 {
            return Ok(());
        }
        assert!(oldest <= log.file(), "log file {oldest} is needed, and the log is in {}", log.file());
        Ok(log.release(oldest.min(kept))?)
    }

    /// Returns true if records go to this volume, or will with the next file. The one that is ready is kept for as long
    /// as no other could be made.
    pub(crate) fn lies_on(&self, log: &Log, volume: u32) -> bool {
        let numbers = [Some(log.file()), Some(self.prepared()), log.next_file()];
        numbers.into_iter().flatten().any(|number| self.file_lies_on(number, volume))
    }

    pub(crate) fn file_lies_on(&self, number: u64, volume: u32) -> bool {
        self.versions.source.volumes.volume_of(FileName::Log(number)) == volume
    }

    /// Returns the oldest log file that a memtable which is written to holds back, and whose memtable that is.
    pub(crate) fn holder_of_oldest(&self) -> Option<(u64, Arc<KeyspaceCore>)> {
        let holder = |k: &Arc<KeyspaceCore>| Some((k.view.load().active.first_log()?, Arc::clone(k)));
        self.versions.keyspaces().iter().filter_map(holder).min_by_key(|(log, _)| *log)
    }
}
