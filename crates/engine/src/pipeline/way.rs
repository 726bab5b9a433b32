//! Making way for writes: what a writer, or the admission thread, does about full memtables, a full level 0 and a
//! missing log file.
//!
//! 1. All memtables are full, of a keyspace or of the store, or level 0 is. The flusher (a compaction) is woken, and
//!    the writer waits for its progress. While flushes (the compactions that would make room in level 0) fail, the time
//!    when there will be room is unknown. Then the writer gets the reason as its error.
//! 2. No log file is ready: the writer makes one ready itself.
//! 3. The space for the write on the disks is unknown: the writer asks them (crate `pipeline`). If they have none in
//!    addition to the store's needs, a memtable is sealed whose flush gives log files back, and the writer waits for
//!    that. With no such memtable, the writer gets an error that names the missing bytes.
//! 4. The disk has no room for a log file, or a quota forbids it. Files that are not needed are removed, or a memtable
//!    is sealed. If that is in vain, the writer gets that error.
//!
//! **Threads.** All of this may block. It is called with no lock held, by several threads at a time.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::pipeline::no_room::NoRoom;
use crate::versions::keyspace::KeyspaceCore;
use crate::{Error, Result};
use situ_log::Log;
use situ_pipeline::{NoLogFile, SpaceUse};
use std::sync::atomic::Ordering;

/// A writer waits for a flush for the sake of space if the log holds this share of the slack.
const LOG_SHARE_OF_SLACK: u64 = 4;

impl Memory {
    /// Returns the error of a write that is refused for want of space.
    fn space_refusal(&self, bytes: u64) -> Error {
        self.health.stats.counters.writes_refused_space.add(1);
        self.space.shortage(bytes).into()
    }

    /// Notes that a writer meets an obstacle that only the store's own work can clear away.
    pub(crate) fn note_stop(&self, no_room: &NoRoom) {
        let (keyspace, reason) = match no_room {
            NoRoom::MemtablesFull { keyspace } => {
                (keyspace, format!("all {} memtables are full", self.switch.memtables_max(keyspace)))
            }
            NoRoom::Level0Full { keyspace } => {
                (keyspace, format!("level 0 has its {} tables", keyspace.options.level0_tables_max))
            }
            NoRoom::MemoryFull { keyspace } => {
                (keyspace, format!("all memtables together take {} bytes", self.budget.meter.bytes_max()))
            }
            NoRoom::LogFile(_) | NoRoom::Space { .. } => return,
        };
        if !keyspace.stopped.swap(true, Ordering::SeqCst) {
            self.health.stats.counters.write_stops.add(1);
            self.health.tell(|| StoreEvent::WritersStopped { keyspace: keyspace.name.clone(), reason });
        }
        // There may be room since the obstacle was found, and the thread that made the room may have looked before the
        // obstacle was noted.
        self.note_room_in(keyspace);
    }

    /// Tells of the keyspaces that have room again.
    pub(crate) fn note_room(&self) {
        self.versions.keyspaces().iter().for_each(|keyspace| self.note_room_in(keyspace));
    }

    fn note_room_in(&self, keyspace: &KeyspaceCore) {
        if keyspace.stopped.load(Ordering::SeqCst)
            && keyspace.has_room(self.switch.memtables_max(keyspace))
            && self.budget.has_memory()
            && keyspace.stopped.swap(false, Ordering::SeqCst)
        {
            self.health.tell(|| StoreEvent::WritersResumed { keyspace: keyspace.name.clone() });
        }
    }

    /// Does what can be done about want of room. Returns true if the write may be tried again now, false if it is to
    /// wait for the store's progress. An error if it never will begin.
    pub(crate) fn remove_obstacle(&self, no_room: NoRoom) -> Result<bool> {
        match no_room {
            NoRoom::LogFile(NoLogFile { bytes, file }) => self.make_log_file(bytes, file),
            NoRoom::Space { bytes, space_use } => self.make_space(bytes, space_use),
            NoRoom::MemtablesFull { .. } | NoRoom::MemoryFull { .. } => {
                // While flushes fail (a full disk), the time when there will be room is unknown: the writer gets an
                // error instead of waiting.
                self.queue.check()?;
                self.work.notify();
                Ok(false)
            }
            NoRoom::Level0Full { keyspace } => {
                // The same while the compactions that would make room fail.
                match self.above().and_then(|above| above.why_level0_stays(&keyspace)) {
                    None => {
                        self.work.notify();
                        Ok(false)
                    }
                    Some(cause) => Err(Error::Level0Full {
                        keyspace: keyspace.name.clone(),
                        tables: keyspace.view.load().version.levels[0].files.len(),
                        cause: Box::new(cause),
                    }),
                }
            }
        }
    }

    /// Makes space for a write of `bytes`. Returns true and false as [`remove_obstacle`](Memory::remove_obstacle) does.
    fn make_space(&self, bytes: u64, space_use: SpaceUse) -> Result<bool> {
        let has_space = || self.space.make_way(bytes, space_use).is_ok();
        let (log, file) = (self.log_files.writable()?, self.log_files.writable()?.file());
        if has_space() {
            return Ok(true);
        }
        if self.gives_space_back(space_use)? {
            self.work.notify();
            return Ok(false);
        }
        // A compaction may have ended whose inputs are still there, or a flush; or another writer may have taken the
        // file for which a memtable was to be sealed.
        self.versions.delete_obsolete();
        if log.file() != file || has_space() { Ok(true) } else { Err(self.space_refusal(bytes)) }
    }

    /// Returns true if work is under way, or was begun, after which there is more space: a table takes less than its
    /// memtable and the log of it. A deletion also waits for a compaction, which gives back what is kept for both.
    fn gives_space_back(&self, space_use: SpaceUse) -> Result<bool> {
        if self.queue.check().is_err() {
            return Ok(false);
        }
        let is_compacted = || self.versions.keyspaces().iter().any(|keyspace| !lock(&keyspace.running).is_empty());
        if self.queue.is_busy() || space_use >= SpaceUse::Deletion && is_compacted() {
            return Ok(true);
        }
        if !self.holds_log_worth_a_flush()? {
            return Ok(false);
        }
        match self.seal_for_room() {
            Err(error) if error.is_no_space() => Ok(false),
            sealed => sealed,
        }
    }

    /// Returns the bytes that a compaction may write, as far as the disks tell; without limit while there is enough.
    pub(crate) fn room_for_compactions(&self) -> u64 {
        if self.space.is_low() { self.space.space_for_compactions() } else { u64::MAX }
    }

    /// Returns true if a flush of what memtables hold gives back a part of the space that is kept for compactions.
    fn holds_log_worth_a_flush(&self) -> Result<bool> {
        let held_bytes = self.log_files.writable()?.held_bytes();
        Ok(self.space.slack_bytes().is_some_and(|slack| held_bytes >= slack / LOG_SHARE_OF_SLACK))
    }

    /// Makes a log file with room for a record of `bytes`, instead of `file`. Returns true and false as
    /// [`remove_obstacle`](Memory::remove_obstacle) does.
    fn make_log_file(&self, bytes: u64, file: u64) -> Result<bool> {
        let ready = match self.log_files.prepare(bytes) {
            Err(error) if error.is_no_space() => return self.make_room_for_log(bytes, file, error),
            Err(error) => {
                // The flusher goes on trying, and tells the listener of that and of its end.
                self.log_files.want_next();
                self.work.notify();
                return Err(error);
            }
            Ok(ready) => ready,
        };
        if !ready && !self.log_files.area_stops.swap(true, Ordering::Relaxed) {
            self.health.stats.counters.write_stops.add(1);
        }
        Ok(ready)
    }

    /// Makes room for a log file on a disk that has none, as `error` says. A flush may give some back that is due, or
    /// for which a memtable can be sealed. Returns true and false as [`remove_obstacle`](Memory::remove_obstacle) says.
    /// `file` is the log's file of before.
    fn make_room_for_log(&self, bytes: u64, file: u64, error: Error) -> Result<bool> {
        let log = self.log_files.writable()?;
        // Others come to the end of a file at the same time.
        let others = || match (log.file() != file, self.queue.gives_log_back()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        };
        if let Some(way) = others() {
            return Ok(way);
        }
        // A flush may have ended since.
        self.remove_what_nobody_needs(log)?;
        if self.log_files.prepare(bytes).is_ok_and(|ready| ready) {
            return Ok(true);
        }
        if let Some(way) = others() {
            return Ok(way);
        }
        self.queue.check().or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })?;
        match self.seal_for_room() {
            Ok(true) => {
                self.work.notify();
                Ok(true)
            }
            Err(other) if !other.is_no_space() => Err(other),
            Ok(false) | Err(_) => {
                if let Some(way) = others() {
                    return Ok(way);
                }
                // A log that has only begun has not asked the flusher for its next file yet, and it is the flusher that
                // goes on trying.
                self.log_files.want_next();
                self.work.notify();
                Err(error)
            }
        }
    }

    /// Removes tables that a compaction has replaced, and log files that had not been written out, or were noted as
    /// needed, when the last flush ended.
    fn remove_what_nobody_needs(&self, log: &Log) -> Result<()> {
        // Other writers wait for this one, instead of being refused.
        let _releasing = self.queue.begin_release();
        self.versions.delete_obsolete();
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        if self.needs_less_log_than_noted()
            && let Err(error) = self.note_log_numbers()
        {
            // The disk may have no room for the note.
            self.health.note_job_failure("recycle log", error);
        }
        self.log_files.release();
        Ok(())
    }
}
