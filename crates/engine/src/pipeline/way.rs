//! Making way for writes: what a writer, or the admission thread, does about full memtables, a full level 0 and a missing log file.
//!
//! 1. All memtables are full, of a keyspace or of the store, or level 0 is: the flusher (a compaction) is woken, and the writer waits for its progress. While flushes
//!    (the compactions that would make room in level 0) fail, nobody knows when there will be room: the writer is told why.
//! 2. No log file is ready: the writer makes one ready itself.
//! 3. The drive compresses, and nobody knows whether it has physical space for the write: the writer asks it (crate `pipeline`).
//! 4. The disk has no room for a log file. What nobody needs is removed. Then the log goes on in a short file, or a memtable is sealed
//!    whose flush gives log files back. If all of that is in vain, the writer is told so.
//!
//! **Threads.** All of this may block. It is called with no lock held, by several threads at a time.

use crate::base::listener::StoreEvent;
use crate::pipeline::Memory;
use crate::pipeline::log_area::Releasing;
use crate::pipeline::seal::NoRoom;
use crate::versions::keyspace::KeyspaceCore;
use crate::{Error, Result};
use situ_log::{Log, LogOptions};
use situ_pipeline::NoLogFile;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Memory {
    /// Why a write is refused for want of physical space.
    pub(crate) fn physical_refusal(&self) -> Error {
        self.health.stats.counters.writes_refused_physical.add(1);
        self.physical.shortage().into()
    }

    /// A writer meets an obstacle that only the store's own work can clear away.
    pub(crate) fn note_stop(&self, no_room: &NoRoom) {
        let (keyspace, reason) = match no_room {
            NoRoom::MemtablesFull { keyspace } => {
                (keyspace, format!("all {} memtables are full", self.memtables_max(keyspace)))
            }
            NoRoom::Level0Full { keyspace } => {
                (keyspace, format!("level 0 has its {} tables", keyspace.options.level0_tables_max))
            }
            NoRoom::MemoryFull { keyspace } => {
                (keyspace, format!("all memtables together take {} bytes", self.meter.bytes_max()))
            }
            NoRoom::LogFile(_) | NoRoom::PhysicalSpace { .. } => return,
        };
        if !keyspace.stopped.swap(true, Ordering::SeqCst) {
            self.health.stats.counters.write_stops.add(1);
            self.health.tell(|| StoreEvent::WritersStopped { keyspace: keyspace.name.clone(), reason });
        }
        // There may be room since the obstacle was found, and whoever made it may have looked before it was noted.
        self.note_room_in(keyspace);
    }

    /// Tells of the keyspaces that have room again.
    pub(crate) fn note_room(&self) {
        self.versions.keyspaces().iter().for_each(|keyspace| self.note_room_in(keyspace));
    }

    fn note_room_in(&self, keyspace: &KeyspaceCore) {
        if keyspace.stopped.load(Ordering::SeqCst)
            && keyspace.has_room(self.memtables_max(keyspace))
            && self.has_memory()
            && keyspace.stopped.swap(false, Ordering::SeqCst)
        {
            self.health.tell(|| StoreEvent::WritersResumed { keyspace: keyspace.name.clone() });
        }
    }

    /// Does what can be done about want of room. True if the write may be tried again now, false if it is to wait for the
    /// store's progress. An error if it never will begin.
    pub(crate) fn remove_obstacle(&self, no_room: NoRoom) -> Result<bool> {
        match no_room {
            NoRoom::LogFile(NoLogFile { bytes, file }) => self.make_log_file(bytes, file),
            NoRoom::PhysicalSpace { bytes } => {
                self.physical.make_way(bytes).map(|()| true).map_err(|_| self.physical_refusal())
            }
            NoRoom::MemtablesFull { .. } | NoRoom::MemoryFull { .. } => {
                // While flushes fail (a full disk), nobody knows when there will be room: the writer is told instead of
                // waiting.
                self.check_flushes()?;
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

    /// A log file with room for a record of `bytes`, instead of `file`. True and false as
    /// [`remove_obstacle`](Memory::remove_obstacle) says.
    fn make_log_file(&self, bytes: u64, file: u64) -> Result<bool> {
        let ready = match self.prepare_log(bytes) {
            Err(error) if error.is_no_space() => return self.make_room_for_log(bytes, file, error),
            Err(error) => {
                // The flusher goes on trying, and tells the listener of that and of its end.
                self.log_wanted.store(true, Ordering::Release);
                self.work.notify();
                return Err(error);
            }
            Ok(ready) => ready,
        };
        if !ready && !self.log_area_stops.swap(true, Ordering::Relaxed) {
            self.health.stats.counters.write_stops.add(1);
        }
        Ok(ready)
    }

    /// The disk has no room for a log file of the ordinary length, which is what `error` says: a flush may give some back that is
    /// due, or for which a memtable can be sealed; or a short file is enough. True and false as
    /// [`remove_obstacle`](Memory::remove_obstacle) says. `file` is the log's file of before.
    fn make_room_for_log(&self, bytes: u64, file: u64, error: Error) -> Result<bool> {
        let log = self.writable()?;
        // Others come to the end of a file at the same time.
        let others = || match (log.file() != file, self.a_flush_is_due_that_frees_log()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        };
        if let Some(way) = others() {
            return Ok(way);
        }
        // A flush may have ended since.
        self.remove_what_nobody_needs(log)?;
        if self.prepare_log(bytes).is_ok_and(|ready| ready) {
            return Ok(true);
        }
        if let Some(way) = others() {
            return Ok(way);
        }
        self.check_flushes().or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })?;
        let made = match self.goes_on_in_a_short_log(bytes) {
            Ok(false) => self.seal_for_room(),
            // Somebody else has taken the room since this writer looked.
            Err(taken) if taken.is_no_space() => self.seal_for_room(),
            short => short,
        };
        match made {
            Ok(true) => {
                self.work.notify();
                Ok(true)
            }
            Err(other) if !other.is_no_space() => Err(other),
            Ok(false) | Err(_) => {
                if let Some(way) = others() {
                    return Ok(way);
                }
                // A log that has only begun has not asked the flusher for its next file yet, and it is the flusher that goes on trying.
                self.log_wanted.store(true, Ordering::Release);
                self.work.notify();
                Err(error)
            }
        }
    }

    /// Removes tables that a compaction has replaced, and log files that had not been written out, or were noted as needed, when the
    /// last flush ended.
    fn remove_what_nobody_needs(&self, log: &Log) -> Result<()> {
        // Other writers wait for this one, instead of being refused.
        let _releasing = Releasing::begin(self);
        self.versions.delete_obsolete();
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        if self.needs_less_log_than_noted()
            && let Err(error) = self.note_log_numbers()
        {
            // The disk may have no room for the note.
            self.health.note_job_failure("recycle log", error);
        }
        self.release_logs();
        Ok(())
    }

    /// False if what memtables have, and this write, would then perhaps find no room for its table; or if nobody knows what room
    /// there is, as under a quota.
    pub(crate) fn goes_on_in_a_short_log(&self, bytes: u64) -> Result<bool> {
        let space = self.versions.volume.space();
        let free = space.logical_total.saturating_sub(space.logical_used);
        let in_memory =
            |keyspace: &Arc<KeyspaceCore>| keyspace.view.load().slots().map(|slot| slot.bytes()).sum::<u64>();
        let unflushed: u64 = self.versions.keyspaces().iter().map(in_memory).sum();
        let file = LogOptions::default().first_file_bytes.max(bytes);
        let is_limited = free >= self.writable()?.file_bytes_for(bytes);
        if is_limited || free < file.saturating_add(bytes).saturating_add(unflushed) || self.check_flushes().is_err() {
            return Ok(false);
        }
        self.prepare_short_log(bytes, u64::MAX).map(|()| true)
    }
}
