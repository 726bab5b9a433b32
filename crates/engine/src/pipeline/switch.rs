//! The switch from one memtable to the next: the active one is sealed, a new one takes its place, and a new log file
//! takes what goes into that.
//!
//! **Invariants.** A sealed memtable gets no new targets. It is complete when the visible number has reached the last
//! one handed out before the seal.
//!
//! **Threads.** Memtables are exchanged under the commit lock, so that each request has all its targets from one side
//! of the exchange.

use crate::base::batch::WriteBatch;
use crate::base::sync::lock;
use crate::pipeline::log_files::LogFiles;
use crate::pipeline::no_room::{Level0, NoRoom, Unsealed};
use crate::pipeline::places::Places;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::log_file_bytes;
use situ_pipeline::{Commit, Environment};
use std::sync::Arc;

/// See the module's documentation.
pub(crate) struct MemtableSwitch {
    pub(crate) log_files: Arc<LogFiles>,
}

/// Puts a fresh memtable in the place of the active one. The log has gone on in a new file before.
fn exchange_memtable(commit: &mut Commit<impl Environment<Places = Places>>, keyspace: &Arc<KeyspaceCore>) {
    let last = commit.last_sequence();
    let fresh = keyspace.new_slot(commit.next_sequence());
    let before = keyspace.view.load();
    let newest = before.sealed.first().map_or(0, |slot| slot.last_sequence());
    assert!(newest <= last, "a memtable of {:?} ends at {last}, and the one before it at {newest}", keyspace.name);
    drop(before);
    keyspace.view.rcu(|view| {
        let mut view = (**view).clone();
        view.active.seal(last);
        view.sealed.insert(0, std::mem::replace(&mut view.active, Arc::clone(&fresh)));
        view
    });
    commit.leave_work();
}

impl MemtableSwitch {
    /// Goes on in the next log file because the current one is full. Concurrent writers leave pages half empty now and
    /// then, so that may be just before a memtable is. The memtable is sealed at once then, and needs no second file
    /// for its rest.
    pub(crate) fn leave_full_log_file(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        batch: &WriteBatch,
    ) -> Result<(), Unsealed> {
        for id in batch.keyspaces() {
            let Some(keyspace) = commit.places.keyspace(id).cloned() else { continue };
            if keyspace.view.load().active.bytes() < keyspace.options.memtable_bytes / 4 * 3 {
                continue;
            }
            match self.seal(commit, &keyspace, Level0::Heeded) {
                Err(Unsealed::NoRoom(NoRoom::MemtablesFull { .. } | NoRoom::Level0Full { .. })) => {}
                sealed_and_rotated => return sealed_and_rotated,
            }
        }
        self.log_files.rotate(&mut commit.places)
    }

    /// Makes the active memtable of a keyspace immutable and puts a new one in its place, with a new log file.
    pub(crate) fn seal(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        keyspace: &Arc<KeyspaceCore>,
        level0: Level0,
    ) -> Result<(), Unsealed> {
        self.check_may_seal(keyspace, level0)?;
        self.log_files.rotate(&mut commit.places)?;
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
    pub(crate) fn seal_together(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        keyspaces: &[Arc<KeyspaceCore>],
        level0: Level0,
    ) -> Result<usize, Unsealed> {
        let may = |keyspace: &&Arc<KeyspaceCore>| {
            !keyspace.view.load().active.is_empty() && self.check_may_seal(keyspace, level0).is_ok()
        };
        let keyspaces: Vec<_> = keyspaces.iter().filter(may).collect();
        if !keyspaces.is_empty() {
            self.log_files.rotate(&mut commit.places)?;
            keyspaces.iter().for_each(|keyspace| exchange_memtable(commit, keyspace));
        }
        Ok(keyspaces.len())
    }

    /// Returns how many memtables of a keyspace there may be at a time: as many as its options allow. Where the log has
    /// an area of a disk to itself, the area must have room for the log files of the memtables and for the file that is
    /// made ready for the next one. Writers are slowed as they come near, and wait for a flush at the end. Beyond it
    /// the log would go on on the other disk, behind all that flushes and compactions write there.
    pub(crate) fn memtables_max(&self, keyspace: &KeyspaceCore) -> usize {
        keyspace.options.memtables_max.min(self.memtables_that_fit())
    }

    /// Returns the part of [`memtables_max`](MemtableSwitch::memtables_max) that is the same for all keyspaces. Cost: a
    /// look at each of them.
    pub(crate) fn memtables_that_fit(&self) -> usize {
        // A reader has no log, and tells what a writer would have.
        let ordinary = || log_file_bytes(&lock(&self.log_files.versions.registry));
        let file = self.log_files.log.as_ref().map_or_else(ordinary, |log| log.file_bytes_for(0));
        let files = self.log_files.area_in_files_of(file).map(|area| area / file);
        files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
    }
}
