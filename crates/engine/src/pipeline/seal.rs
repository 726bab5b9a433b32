//! Sealing by others than writers: for the log's sake, for space, or because a caller asks for a flush.

use crate::Result;
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::pipeline::no_room::{Level0, NoRoom, Unsealed};
use crate::versions::keyspace::KeyspaceCore;
use std::sync::Arc;

impl Memory {
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
            false => self.switch.seal(&mut commit, keyspace, level0),
        }
    }

    /// Seals the memtables of several keyspaces together (`switch.rs`). Returns how many it has
    /// sealed.
    pub(crate) fn seal_together(&self, keyspaces: &[Arc<KeyspaceCore>], level0: Level0) -> Result<usize> {
        let sealed = self.switch.seal_together(&mut lock(&self.commit), keyspaces, level0);
        match sealed {
            Ok(sealed) => Ok(sealed),
            Err(Unsealed::Refused(error)) => Err(*error),
            // A writer was faster and has taken the file that was ready.
            Err(Unsealed::NoRoom(_)) => Ok(0),
        }
    }

    /// Seals the memtable that holds back the oldest log file, with the shortest file for the next records, so that a
    /// flush gives log files back. Does so when the disk has no room for another log file, and no flush is due that
    /// gives some back. A table takes less room than its log files, often much less. The log files hold overwritten
    /// values, and are kept for a few entries of a keyspace that is hardly written to. But the table comes first, so
    /// the file leaves it all the room. Returns false if there is no such memtable, if it cannot be sealed, or a writer
    /// was faster.
    pub(crate) fn seal_for_room(&self) -> Result<bool> {
        let Some((_, keyspace)) = self.log_files.holder_of_oldest() else { return Ok(false) };
        // What is in the way wants the room itself: a file would be made again and again, and used up by writers.
        if !keyspace.has_room(self.switch.memtables_max(&keyspace)) {
            return Ok(false);
        }
        self.log_files.prepare_shortest()?;
        match self.seal_once(&keyspace, Level0::Heeded) {
            Ok(()) => Ok(true),
            Err(Unsealed::Refused(error)) => Err(*error),
            Err(_) => Ok(false),
        }
    }
}
