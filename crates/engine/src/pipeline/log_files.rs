//! The choice of the log's next file: it is made ready before the present one is full, and files that no memtable needs
//! go.

use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::pipeline::seal::{Level0, Unsealed};
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_log::{Log, LogOptions};
use situ_pipeline::LogFileLength;
use situ_storage::{Error as StorageError, FileName};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Memory {
    /// Makes the next log file ready, with room for a record of `bytes`, unless it is. May block. After an error the
    /// next try takes another number: a file that was begun under this one may still be there.
    ///
    /// Where the disk has too little room, the file is shorter than others
    /// ([`SpaceWatch::length_of_log_file`](situ_pipeline::SpaceWatch)).
    ///
    /// Returns false, and does nothing, if the area that the log has to itself is full, and a flush that is due gives
    /// some of it back. Then the caller tries again after the next [`progress`](Memory::progress).
    pub(crate) fn prepare_log(&self, bytes: u64) -> Result<bool> {
        let waits = self.log_area_is_full_for_now(bytes);
        self.log_area_stops.fetch_and(waits, Ordering::Relaxed);
        if waits {
            return Ok(false);
        }
        self.prepare_log_within(bytes, u64::MAX).map(|()| true)
    }

    /// As [`prepare_log`](Memory::prepare_log), for a file of `bytes_max` at most if that is enough for a record of
    /// `bytes`. Does not look at the area that the log may have to itself.
    pub(crate) fn prepare_log_within(&self, bytes: u64, bytes_max: u64) -> Result<()> {
        let log = self.writable()?;
        if log.is_ready(self.prepared_log(), bytes, bytes_max) {
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
            LogFileLength::Ordinary => self.prepare_log_by(|log, number| log.prepare_next(number, bytes)),
            LogFileLength::AtMost(longest) => {
                self.prepare_log_by(|log, number| log.prepare_short(number, bytes, longest))
            }
        }
    }

    /// As [`prepare_log`](Memory::prepare_log), for a file that is to take little room: when little is to be written.
    pub(crate) fn prepare_log_at_rest(&self) -> Result<()> {
        self.prepare_log_within(0, LogOptions::default().short_file_bytes)
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

    /// Returns the number that the next log file has or will have; 0 if none was chosen.
    pub(crate) fn prepared_log(&self) -> u64 {
        self.prepared_log.load(Ordering::Acquire)
    }

    /// Notes that log file `number` is in use now, or was given up: the next one needs another number.
    pub(crate) fn log_rotated(&self, number: u64) {
        let _ = self.prepared_log.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the log, if writes are taken at all.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Arc<Log>> {
        self.health.check_sound()?;
        self.log.as_ref().ok_or(Error::ReadOnly)
    }

    /// Returns true if the memtable holds replayed records.
    pub(crate) fn is_replayed(&self, slot: &MemtableSlot) -> bool {
        slot.first_log().is_some_and(|log| log < self.first_log)
    }

    /// Waits until the flusher has made tables of what was replayed, unless it cannot. To be called before closing: a
    /// store that is opened for a moment, again and again, would otherwise replay the same each time.
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

    /// Notes in the manifest that all that the log held is in the new log. Returns false if the disk has no room for
    /// the note: then the old log files stay, until another edit says so.
    pub(crate) fn note_carried(&self) -> Result<bool> {
        match self.note_log_numbers() {
            Err(error) if error.is_no_space() => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Notes in the manifest which log files what is in memory still needs.
    pub(crate) fn note_log_numbers(&self) -> Result<()> {
        let mut editor = self.versions.edit()?;
        let log_numbers = self.versions.log_numbers(lock(&self.commit).places.log_number);
        editor.apply(Edit { log_numbers, ..Edit::default() }, || {})
    }

    /// Returns true if the manifest names an older log file as needed than memory does. A memtable that was empty when
    /// the manifest was written has its first records in a later file.
    pub(crate) fn needs_less_log_than_noted(&self) -> bool {
        let noted = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        let needed =
            self.versions.log_numbers(lock(&self.commit).places.log_number).into_iter().map(|(_, number)| number).min();
        noted < needed
    }

    /// Notes in the manifest that the store is closed in order; to be called when the log has been closed.
    pub(crate) fn note_closed(&self) -> Result<()> {
        let closed = Some(lock(&self.commit).places.log_number);
        match self.versions.edit()?.apply(Edit { closed, ..Edit::default() }, || {}) {
            // Nothing is lost without the note; the next open then looks a little less closely.
            Err(error) if error.is_no_space() => Ok(()),
            result => result,
        }
    }

    /// Releases log files that no keyspace needs. If a release fails, the listener gets the error, and the next call
    /// tries again.
    pub(crate) fn release_logs(&self) {
        if let Err(error) = self.try_release_logs() {
            self.health.note_job_failure("recycle log", error);
        }
    }

    /// As [`release_logs`](Memory::release_logs), for those who cannot do without: the first failure is theirs.
    pub(crate) fn try_release_logs(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let oldest = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        oldest.map_or(Ok(()), |oldest| Ok(log.release(oldest)?))
    }

    /// Returns true if records go to this volume, or will with the next file. The one that is ready is kept for as long
    /// as no other could be made.
    pub(crate) fn log_lies_on(&self, log: &Log, volume: u32) -> bool {
        let numbers = [Some(log.file()), Some(self.prepared_log()), log.next_file()];
        numbers.into_iter().flatten().any(|number| self.log_file_lies_on(number, volume))
    }

    fn log_file_lies_on(&self, number: u64, volume: u32) -> bool {
        self.versions.source.volumes.volume_of(FileName::Log(number)) == volume
    }

    /// Lets records go to other volumes than this one from now on.
    pub(crate) fn move_log(&self, from: u32) -> Result<()> {
        let log = self.writable()?;
        while self.log_lies_on(log, from) {
            // A file that was made ready may be on the volume: another number takes its place.
            let ready = self.prepared_log();
            if self.log_file_lies_on(ready, from) {
                self.log_rotated(ready);
            }
            self.prepare_log(0)?;
            let mut commit = lock(&self.commit);
            let is_elsewhere = !self.log_file_lies_on(log.file(), from);
            // Another thread may have gone on to the file meanwhile; then it is tried again.
            let _ = if is_elsewhere { Ok(()) } else { self.rotate_locked(&mut commit) };
            drop(commit);
            self.writable()?;
        }
        Ok(())
    }

    /// Gives back the room of log files that are not needed. If no memtable holds anything, the log goes on in a short
    /// file.
    pub(crate) fn trim_log(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        // First what needs no room: the disk may be full.
        log.drop_spares()?;
        if self.is_flushed()
            && let Err(error) = self.shorten_log(log)
        {
            // The compaction is done, and the log goes on in the file that it has.
            self.health.note_job_failure("shorten log", error);
        }
        self.release_logs();
        Ok(log.drop_spares()?)
    }

    /// Goes on in a short log file, if still no memtable holds anything, and lets go of those before it.
    fn shorten_log(&self, log: &Log) -> Result<()> {
        self.prepare_log_at_rest()?;
        {
            let mut commit = lock(&self.commit);
            // Asked again: with the lock held, no thread writes.
            if !self.is_flushed() || self.rotate_locked(&mut commit).is_err() {
                return Ok(());
            }
        }
        self.note_log_numbers()?;
        // The last page of the file before would be written with the next records, and must be before it can go.
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        Ok(())
    }

    /// Returns true if all memtables are empty.
    fn is_flushed(&self) -> bool {
        self.versions.keyspaces().iter().all(|keyspace| {
            let view = keyspace.view.load();
            view.sealed.is_empty() && view.active.is_empty()
        })
    }

    /// Returns the oldest log file that a memtable which is written to holds back, and whose memtable that is.
    pub(crate) fn holder_of_oldest_log(&self) -> Option<(u64, Arc<KeyspaceCore>)> {
        let holder = |k: &Arc<KeyspaceCore>| Some((k.view.load().active.first_log()?, Arc::clone(k)));
        self.versions.keyspaces().iter().filter_map(holder).min_by_key(|(log, _)| *log)
    }

    /// Seals the memtable that holds back the oldest log file, with the shortest file for the next records, so that a
    /// flush gives log files back. Does so when the disk has no room for another log file, and no flush is due that
    /// gives some back. A table takes less room than its log files, often much less. The log files hold overwritten
    /// values, and are kept for a few entries of a keyspace that is hardly written to. But the table comes first, so
    /// the file leaves it all the room. Returns false if there is no such memtable, if it cannot be sealed, or a writer
    /// was faster.
    pub(crate) fn seal_for_room(&self) -> Result<bool> {
        let Some((_, keyspace)) = self.holder_of_oldest_log() else { return Ok(false) };
        // What is in the way wants the room itself: a file would be made again and again, and used up by writers.
        if !keyspace.has_room(self.memtables_max(&keyspace)) {
            return Ok(false);
        }
        self.prepare_log_by(|log, number| log.prepare_short(number, 0, situ_log::FILE_BYTES_MIN))?;
        match self.seal_once(&keyspace, Level0::Heeded) {
            Ok(()) => Ok(true),
            Err(Unsealed::Refused(error)) => Err(*error),
            Err(_) => Ok(false),
        }
    }
}
