//! Sealing: a memtable that takes nothing more, a new one in its place, and a new log file for what goes into that.
//!
//! **Threads.** Memtables are exchanged under the commit lock, so that each request has all its targets from one side
//! of the exchange.

use crate::base::batch::WriteBatch;
use crate::base::sync::lock;
use crate::pipeline::{Commit, Memory, Obstacle};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::log_file_bytes;
use crate::{Error, Result};
use situ_log::AppendError;
use situ_pipeline::{NoLogFile, SpaceUse};
use situ_storage::Error as StorageError;
use std::sync::Arc;

/// The effect of level 0's limit on tables: it keeps a memtable from being sealed, or is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level0 {
    Heeded,
    Ignored,
}

/// The reason why a write has no room in memory.
pub(crate) enum NoRoom {
    /// All memtables of a keyspace are full.
    MemtablesFull { keyspace: Arc<KeyspaceCore> },
    /// The memtable is full, and so is the level that it would become a table of.
    Level0Full { keyspace: Arc<KeyspaceCore> },
    /// All memtables of the store together have what they may take.
    MemoryFull { keyspace: Arc<KeyspaceCore> },
    /// No log file with room for the record is ready.
    LogFile(NoLogFile),
    /// The disks have no space for a write of `bytes` bytes, or their space is unknown.
    Space { bytes: u64, space_use: SpaceUse },
}

impl From<NoLogFile> for NoRoom {
    fn from(no_file: NoLogFile) -> NoRoom {
        NoRoom::LogFile(no_file)
    }
}

/// The reason why a memtable was not sealed, or the log did not go on in another file.
pub(crate) enum Unsealed {
    /// Not now.
    NoRoom(NoRoom),
    /// Never.
    Refused(Box<Error>),
}

impl From<NoRoom> for Unsealed {
    fn from(no_room: NoRoom) -> Unsealed {
        Unsealed::NoRoom(no_room)
    }
}

impl From<Unsealed> for Obstacle {
    fn from(unsealed: Unsealed) -> Obstacle {
        match unsealed {
            Unsealed::NoRoom(no_room) => Obstacle::NoRoom(no_room),
            Unsealed::Refused(error) => Obstacle::Refused(error),
        }
    }
}

/// Puts a fresh memtable in the place of the active one. The log has gone on in a new file before.
fn exchange_memtable(commit: &mut Commit, keyspace: &Arc<KeyspaceCore>) {
    let last = commit.last_sequence();
    let fresh = keyspace.new_slot(commit.next_sequence());
    keyspace.view.rcu(|view| {
        let mut view = (**view).clone();
        view.active.seal(last);
        view.sealed.insert(0, std::mem::replace(&mut view.active, Arc::clone(&fresh)));
        view
    });
    commit.leave_work();
}

impl Memory {
    /// Goes on in the next log file because the current one is full. Concurrent writers leave pages half empty now and
    /// then, so that may be just before a memtable is. The memtable is sealed at once then, and needs no second file
    /// for its rest.
    pub(crate) fn leave_full_log_file(&self, commit: &mut Commit, batch: &WriteBatch) -> Result<(), Unsealed> {
        for id in batch.keyspaces() {
            let Some(keyspace) = commit.places.keyspace(id).cloned() else { continue };
            if keyspace.view.load().active.bytes() < keyspace.options.memtable_bytes / 4 * 3 {
                continue;
            }
            match self.seal_locked(commit, &keyspace, Level0::Heeded) {
                Err(Unsealed::NoRoom(NoRoom::MemtablesFull { .. } | NoRoom::Level0Full { .. })) => {}
                sealed_and_rotated => return sealed_and_rotated,
            }
        }
        self.rotate_locked(commit)
    }

    /// Lets records go to the next log file from now on.
    pub(crate) fn rotate_locked(&self, commit: &mut Commit) -> Result<(), Unsealed> {
        let log = self.log.as_ref().ok_or_else(|| Unsealed::Refused(Box::new(Error::ReadOnly)))?;
        match log.rotate() {
            Ok(number) => {
                commit.places.go_on_in(number, log.room_bytes());
                self.log_rotated(number);
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

    /// Makes the active memtable of a keyspace immutable and puts a new one in its place, with a new log file.
    pub(crate) fn seal_locked(
        &self,
        commit: &mut Commit,
        keyspace: &Arc<KeyspaceCore>,
        level0: Level0,
    ) -> Result<(), Unsealed> {
        self.check_may_seal(keyspace, level0)?;
        self.rotate_locked(commit)?;
        exchange_memtable(commit, keyspace);
        Ok(())
    }

    fn check_may_seal(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<(), NoRoom> {
        let view = keyspace.view.load();
        if !keyspace.has_memtable(&view, self.memtables_max(keyspace)) {
            return Err(NoRoom::MemtablesFull { keyspace: Arc::clone(keyspace) });
        }
        if level0 == Level0::Heeded && !keyspace.has_level0(&view) {
            return Err(NoRoom::Level0Full { keyspace: Arc::clone(keyspace) });
        }
        Ok(())
    }

    /// Seals the memtables of several keyspaces, with one new log file for all of them. A file for each would take more
    /// room than the flushes give back. Leaves out memtables that are empty, and those that cannot be sealed now.
    /// Returns how many it has sealed.
    pub(crate) fn seal_together(&self, keyspaces: &[Arc<KeyspaceCore>], level0: Level0) -> Result<usize> {
        let sealed = {
            let mut commit = lock(&self.commit);
            let may = |keyspace: &&Arc<KeyspaceCore>| {
                !keyspace.view.load().active.is_empty() && self.check_may_seal(keyspace, level0).is_ok()
            };
            let keyspaces: Vec<_> = keyspaces.iter().filter(may).collect();
            match keyspaces.is_empty() {
                true => Ok(0),
                false => self.rotate_locked(&mut commit).map(|()| {
                    keyspaces.iter().for_each(|keyspace| exchange_memtable(&mut commit, keyspace));
                    keyspaces.len()
                }),
            }
        };
        match sealed {
            Ok(sealed) => Ok(sealed),
            Err(Unsealed::Refused(error)) => Err(*error),
            // A writer was faster and has taken the file that was ready.
            Err(Unsealed::NoRoom(_)) => Ok(0),
        }
    }

    /// Returns how many memtables of a keyspace there may be at a time: as many as its options allow. Where the log has
    /// an area of a disk to itself, the area must have room for the log files of the memtables and for the file that is
    /// made ready for the next one. Writers are slowed as they come near, and wait for a flush at the end. Beyond it
    /// the log would go on on the other disk, behind all that flushes and compactions write there.
    pub(crate) fn memtables_max(&self, keyspace: &KeyspaceCore) -> usize {
        keyspace.options.memtables_max.min(self.memtables_that_fit())
    }

    /// Returns the part of [`memtables_max`](Memory::memtables_max) that is the same for all keyspaces. Cost: a look at
    /// each of them.
    pub(crate) fn memtables_that_fit(&self) -> usize {
        // A reader has no log, and tells what a writer would have.
        let ordinary = || log_file_bytes(&lock(&self.versions.registry));
        let file = self.log.as_ref().map_or_else(ordinary, |log| log.file_bytes_for(0));
        let files = self.log_area_in_files_of(file).map(|area| area / file);
        files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
    }

    /// Seals the active memtable of a keyspace if anything is in it; waits for room if need be. Not for the flusher,
    /// which would wait for itself.
    pub(crate) fn seal(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<()> {
        loop {
            let seen = self.progress.generation();
            match self.try_seal(keyspace, level0)? {
                None => return Ok(()),
                Some(no_room) => {
                    if !self.remove_obstacle(no_room)? {
                        self.progress.wait(seen, None);
                    }
                }
            }
        }
    }

    /// Like [`seal`](Memory::seal), but returns what only the store's progress can clear away.
    pub(crate) fn try_seal(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<Option<NoRoom>> {
        loop {
            self.writable()?;
            let outcome = self.seal_once(keyspace, level0);
            self.work.notify();
            match outcome {
                Ok(()) => return Ok(None),
                Err(Unsealed::Refused(error)) => return Err(*error),
                Err(Unsealed::NoRoom(NoRoom::LogFile(file))) => {
                    if !self.remove_obstacle(NoRoom::LogFile(file))? {
                        return Ok(Some(NoRoom::LogFile(file)));
                    }
                }
                Err(Unsealed::NoRoom(no_room)) => return Ok(Some(no_room)),
            }
        }
    }

    /// Seals the active memtable of a keyspace if anything is in it and nothing is in the way.
    pub(crate) fn seal_once(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<(), Unsealed> {
        let mut commit = lock(&self.commit);
        match keyspace.view.load().active.is_empty() {
            true => Ok(()),
            false => self.seal_locked(&mut commit, keyspace, level0),
        }
    }
}
