//! Deleting the files of tables that no version and no reader needs.

use crate::Result;
use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::versions::store::Versions;
use situ_storage::{Error as StorageError, FileName};

impl Versions {
    /// Deletes files that no version and no reader needs.
    ///
    /// After a failure nothing is deleted any more: the manifest on disk may hold an edit that is not in memory, and the
    /// next open needs the tables of whichever state it finds. There, the others are orphans.
    ///
    /// What cannot be deleted is told to the listener, and tried again when the next file is deleted; at the latest, the next
    /// open removes it as an orphan.
    pub(crate) fn delete_obsolete(&self) {
        if let Err(error) = self.try_delete_obsolete() {
            self.health.note_job_failure("delete table", error);
        }
    }

    /// As [`delete_obsolete`](Versions::delete_obsolete), for those who cannot do without: the first failure is theirs.
    pub(crate) fn try_delete_obsolete(&self) -> Result<()> {
        let mut first_failure = None;
        for number in self.source.obsolete.take() {
            // Asked after the number was taken: whose job failed the store has put it there later.
            if self.health.failure().is_some() {
                return Ok(());
            }
            if lock(&self.doubtful).contains(&number) {
                continue;
            }
            match self.volume.remove(FileName::Table(number)) {
                Ok(()) => {
                    self.source.damaged.forget_table(number);
                    self.health.tell(|| StoreEvent::TableDeleted { table: number });
                }
                Err(StorageError::NotFound { .. }) => {}
                // One disk that fails does not keep files on the other.
                Err(error) => {
                    self.source.obsolete.add(number);
                    first_failure.get_or_insert(error);
                }
            }
        }
        first_failure.map_or(Ok(()), |error| Err(error.into()))
    }
}
