//! Taking the fast disk away from a running store.
//!
//! 1. From now on nothing new begins on the fast disk: neither tables, whatever the pointer says, nor log files.
//! 2. The log goes on in a file at home, memtables are flushed, and the log files on the fast disk are let go of.
//! 3. The store copies tables home, and those that compactions and old readers hold are waited for. So is what a repair
//!    has set aside there (`drain/aside.rs`).
//! 4. When nothing of the store is left there, durably, DISKS says that there is no fast disk; then MEMBER goes.
//!
//! **Failure.** A drain for which the home has no room is refused before anything is moved. A home that is full opens
//! no more, as opening writes there. A drain that ends early, also by a crash, has moved what it has moved. The disk is
//! used again, and the drain can be asked for again. Before step 4 the store needs the disk, after it it does not. A
//! drain would wait without end for three kinds of files. They are files that no part of the store knows, files that
//! cannot be removed, and unreadable files that a repair has set aside. Such a file ends the drain, which names it.

use crate::placement::Placement;
use crate::set::FAST;
use aside::Unreadable;
use situ_engine::{Error, Result};
use situ_storage::{Error as StorageError, FileName, Volume};
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

impl Placement {
    /// Takes the fast disk away; see [`Store::drain_fast_disk`](crate::Store::drain_fast_disk).
    pub(crate) fn drain(&self) -> Result<()> {
        self.store.as_guest(&mut || self.drain_as_guest())
    }

    fn drain_as_guest(&self) -> Result<()> {
        if self.is_drained() {
            return Err(Error::Invalid("the store has no fast disk that could be drained".to_owned()));
        }
        let (store, disks, fast) = (&*self.store, &self.disks, &self.fast);
        self.check_room_at_home()?;
        let closed = Closed::begin(self)?;
        store.move_log(FAST)?;
        store.release_files().map_err(not_removed)?;
        let mut unreadable = Unreadable::default();
        loop {
            let seen = store.progress().generation();
            store.check_sound()?;
            if let Some(name) = fast.strangers()?.first() {
                let at = fast.volume.location();
                return Err(Error::Disks(format!(
                    "there is a file on the fast disk that the store did not put there and does not use, {at}/{name}, so the \
                     disk cannot be emptied; move it away, and drain the disk again"
                )));
            }
            let moved =
                store.vacate(FAST, "the fast disk is being drained")? | self.damaged_files_go_home(&mut unreadable)?;
            // A file that cannot be removed would be tried again without end.
            store.release_files().map_err(not_removed)?;
            store.drop_log_spares()?;
            // A disk that takes no changes any more cannot be emptied; without this, there is no end to trying.
            fast.volume.sync_names()?;
            if fast.is_empty()? {
                break;
            }
            unreadable.while_others_are_left(fast)?;
            if !moved {
                store.progress().wait(seen, Some(LOOK_EVERY));
            }
        }
        // Files that came back after a crash, without MEMBER, would belong to no store.
        disks.sync_names()?;
        store.as_editor(&mut || {
            disks.let_go_of_fast().map_err(|unfinished| {
                if unfinished.in_doubt {
                    store.fail(unfinished.error.clone());
                }
                Error::from(unfinished.error)
            })
        })?;
        // Nothing begins there any more, and no thread asks for it.
        self.drained.store(true, Ordering::Release);
        std::mem::forget(closed);
        match fast.volume.remove(FileName::Member) {
            Ok(()) | Err(StorageError::NotFound { .. }) => Ok(fast.volume.sync_names()?),
            Err(error) => Err(error.into()),
        }
    }

    /// # Errors
    /// The files that a drain brings home would leave less room there than the store needs to go on.
    fn check_room_at_home(&self) -> Result<()> {
        let home = &self.disks.capacity().volume;
        let space = home.space();
        let kept = KEPT_LOG_FILES.saturating_mul(self.store.log_file_bytes());
        let free = space.logical_total.saturating_sub(space.logical_used);
        let stays = |name: FileName| matches!(name, FileName::Table(_) | FileName::Damaged(_));
        let coming: u64 = self.fast.list()?.iter().filter(|file| stays(file.name)).map(|file| file.bytes).sum();
        // A volume that does not know its size says zero.
        if space.logical_total == 0 || coming.saturating_add(kept) <= free {
            return Ok(());
        }
        Err(Error::Disks(format!(
            "the home, {}, has no room for what lies on the fast disk: {free} bytes are free, {coming} would come, and {kept} are \
             kept free for the log and for tables to come. Nothing was moved; make room at home, and drain the disk again",
            home.location()
        )))
    }
}

mod aside;

#[cfg(test)]
mod tests;
