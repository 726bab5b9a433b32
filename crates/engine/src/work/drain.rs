//! Taking the fast disk away from a running store.
//!
//! 1. From now on nothing new begins on the fast disk: neither tables, whatever the pointer says, nor log files.
//! 2. The log goes on in a file at home, memtables are flushed, and the log files on the fast disk are let go of.
//! 3. Tables are copied home (`relocate.rs`), and those that compactions and old readers hold are waited for. So is
//!    what a repair has set aside there (`drain/aside.rs`).
//! 4. When nothing of the store is left there, durably, DISKS says that there is no fast disk; then MEMBER goes.
//!
//! **Failure.** A drain for which the home has no room is refused before anything is moved. A home that is full opens
//! no more, as opening writes there. A drain that ends early, also by a crash, has moved what it has moved. The disk is
//! used again, and the drain can be asked for again. Before step 4 the store needs the disk, after it it does not. A
//! drain would wait without end for three kinds of files. They are files that no part of the store knows, files that
//! cannot be removed, and unreadable files that a repair has set aside. Such a file ends the drain, which names it.

use crate::base::sync::lock;
use crate::pipeline::seal::Level0;
use crate::placement::run::Placement;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::log_file_bytes;
use crate::versions::version::TableFile;
use crate::work::Work;
use crate::{Error, Result};
use aside::Unreadable;
use situ_disks::{CAPACITY, Disk, Disks, FAST};
use situ_log::Log;
use situ_storage::{Error as StorageError, FileName, Volume};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time between two checks if readers have let go.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The number of log files for which room is kept free at home: the one in use, the next one, and in place of the third
/// what a memtable becomes.
const KEPT_LOG_FILES: u64 = 3;

/// A guard: nothing new begins on the fast disk while this lives.
struct Closed<'a>(&'a Placement);

impl<'a> Closed<'a> {
    fn begin(placement: &'a Placement) -> Result<Closed<'a>> {
        if placement.draining.swap(true, Ordering::AcqRel) {
            return Err(Error::Invalid("the fast disk is being drained already".to_owned()));
        }
        placement.fast.close(true);
        Ok(Closed(placement))
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.fast.close(false);
        self.0.draining.store(false, Ordering::Release);
    }
}

fn not_removed(error: Error) -> Error {
    Error::Disks(format!(
        "a file that nobody needs any more cannot be removed, and until it is the fast disk does not become empty: {error}. The \
         store still uses the disk. Remove the cause, and drain the disk again"
    ))
}

impl Work {
    /// See [`Store::drain_fast_disk`](crate::Store::drain_fast_disk).
    pub(crate) fn drain(self: &Arc<Self>) -> Result<()> {
        let log = self.memory.writable()?;
        let _guest = self.health.enter()?;
        let Some(placement) = self.placement.as_ref().filter(|placement| !placement.is_drained()) else {
            return Err(Error::Invalid("the store has no fast disk that could be drained".to_owned()));
        };
        let (disks, fast) = (&placement.disks, &placement.fast);
        self.check_room_at_home(disks, fast)?;
        let closed = Closed::begin(placement)?;
        self.log_goes_home(log, disks)?;
        let mut unreadable = Unreadable::default();
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            if self.log_is_on_fast(log, disks) {
                self.log_goes_home(log, disks)?;
            }
            if let Some(name) = fast.strangers()?.first() {
                let at = fast.volume.location();
                return Err(Error::Disks(format!(
                    "there is a file on the fast disk that the store did not put there and does not use, {at}/{name}, so the \
                     disk cannot be emptied; move it away, and drain the disk again"
                )));
            }
            let moved = self.tables_go_home()? | self.damaged_files_go_home(disks, fast, &mut unreadable)?;
            // A file that cannot be removed would be tried again without end.
            self.versions.try_delete_obsolete().and_then(|()| self.memory.try_release_logs()).map_err(not_removed)?;
            log.drop_spares()?;
            // A disk that takes no changes any more cannot be emptied; without this, there is no end to trying.
            fast.volume.sync_names()?;
            if fast.is_empty()? {
                break;
            }
            unreadable.while_others_are_left(fast)?;
            if !moved {
                self.memory.progress.wait(seen, Some(LOOK_EVERY));
            }
        }
        // Files that came back after a crash, without MEMBER, would belong to no store.
        disks.sync_names()?;
        {
            let _editor = self.versions.edit()?;
            disks.let_go_of_fast().map_err(|unfinished| {
                if unfinished.in_doubt {
                    self.health.fail(unfinished.error.clone());
                }
                Error::from(unfinished)
            })?;
        }
        // Nothing begins there any more, and no thread asks for it.
        placement.drained.store(true, Ordering::Release);
        std::mem::forget(closed);
        match fast.volume.remove(FileName::Member) {
            Ok(()) | Err(StorageError::NotFound { .. }) => Ok(fast.volume.sync_names()?),
            Err(error) => Err(error.into()),
        }
    }

    /// # Errors
    /// What a drain brings home would leave less room there than the store needs to go on.
    fn check_room_at_home(&self, disks: &Disks, fast: &Disk) -> Result<()> {
        let space = disks.capacity().volume.space();
        let kept = KEPT_LOG_FILES.saturating_mul(log_file_bytes(&lock(&self.versions.registry)));
        let free = space.logical_total.saturating_sub(space.logical_used);
        let stays = |name: FileName| matches!(name, FileName::Table(_) | FileName::Damaged(_));
        let coming: u64 = fast.list()?.iter().filter(|file| stays(file.name)).map(|file| file.bytes).sum();
        // A volume that does not know its size says zero.
        if space.logical_total == 0 || coming.saturating_add(kept) <= free {
            return Ok(());
        }
        Err(Error::Disks(format!(
            "the home, {}, has no room for what lies on the fast disk: {free} bytes are free, {coming} would come, and {kept} are \
             kept free for the log and for tables to come. Nothing was moved; make room at home, and drain the disk again",
            disks.capacity().volume.location()
        )))
    }

    /// Returns true if records go to the fast disk, or will with the next file. The one that is ready is kept for as
    /// long as no other could be made.
    fn log_is_on_fast(&self, log: &Log, disks: &Disks) -> bool {
        let numbers = [Some(log.file()), Some(self.memory.prepared_log()), log.next_file()];
        numbers.into_iter().flatten().any(|number| disks.disk_of(FileName::Log(number)) == FAST)
    }

    /// Step 2.
    fn log_goes_home(&self, log: &Log, disks: &Disks) -> Result<()> {
        while self.log_is_on_fast(log, disks) {
            // A file that was made ready may be on the fast disk: another number takes its place.
            let ready = self.memory.prepared_log();
            if disks.disk_of(FileName::Log(ready)) == FAST {
                self.memory.log_rotated(ready);
            }
            self.memory.prepare_log(0)?;
            let mut commit = lock(&self.memory.commit);
            let is_home = disks.disk_of(FileName::Log(log.file())) == CAPACITY;
            // Another thread may have gone on to the file meanwhile; then it is tried again.
            let _ = if is_home { Ok(()) } else { self.memory.rotate_locked(&mut commit) };
            drop(commit);
            self.memory.writable()?;
        }
        for keyspace in self.versions.keyspaces() {
            match self.flush(&keyspace, Level0::Ignored) {
                Err(Error::KeyspaceDropped { .. }) => {}
                flushed => flushed?,
            }
        }
        self.memory.note_log_numbers()?;
        // The last page of a file before would be written with the next records, and must be before it can go.
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        self.memory.try_release_logs().map_err(not_removed)
    }

    /// Step 3. Returns true if a table was copied.
    fn tables_go_home(self: &Arc<Self>) -> Result<bool> {
        let mut moved = false;
        let on_fast = |keyspace: Arc<KeyspaceCore>| {
            let version = Arc::clone(&keyspace.view.load().version);
            let files = version.files().filter(|(_, file)| file.meta.volume == FAST);
            let files: Vec<(usize, Arc<TableFile>)> = files.map(|(level, file)| (level, Arc::clone(file))).collect();
            (keyspace, files)
        };
        let found: Vec<_> = self.versions.keyspaces().into_iter().map(on_fast).collect();
        for (keyspace, files) in found {
            for (level, file) in files {
                self.memory.writable()?;
                // A table that rests after a failed compaction would be waited for as long as that goes on failing. If
                // it cannot be copied either, the drain says why.
                {
                    let _scheduling = lock(&self.scheduling);
                    self.end_rests(&keyspace, true);
                }
                let copied = self.relocate(&keyspace, level, &file, CAPACITY, "the fast disk is being drained");
                moved |= copied.map_err(|not| not.error)?;
            }
        }
        Ok(moved)
    }
}

mod aside;

#[cfg(test)]
mod tests;
