//! Deleting the files of tables and the segments that no version and no reader needs.

use crate::Result as EngineResult;
use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::versions::store::Versions;
use situ_compaction::ValueLocation;
use situ_storage::{Error as StorageError, FileName};
use situ_values::Handle;
use std::collections::BTreeMap;

impl Versions {
    /// Deletes files that no version and no reader needs.
    ///
    /// After a failure nothing is deleted any more. The manifest on disk may hold an edit that is not in memory, and
    /// the next open needs the tables of whichever state it finds. There, the others are orphans.
    ///
    /// If a file cannot be deleted, the listener gets the error, and the deletion is tried again when the next file is
    /// deleted. At the latest, the next open removes the file as an orphan.
    pub(crate) fn delete_obsolete(&self) {
        if let Err(error) = self.try_delete_obsolete() {
            self.health.note_job_failure("delete table", error);
        }
    }

    /// As [`delete_obsolete`](Versions::delete_obsolete), for those who cannot do without: the first failure is theirs.
    pub(crate) fn try_delete_obsolete(&self) -> EngineResult<()> {
        let mut first_failure = None;
        self.tell_dead_values();
        let deleting = self.source.obsolete.take();
        for &number in &deleting.numbers {
            // Asked after the number was taken: whose job failed the store has put it there later.
            if self.health.failure().is_some() {
                return Ok(());
            }
            if lock(&self.doubtful).contains(&number) {
                continue;
            }
            match self.volume.remove(FileName::Table(number)) {
                Ok(()) => {
                    self.source.damaged.forget(FileName::Table(number));
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
        self.delete_segments(&mut first_failure);
        first_failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Tells the value log which values have no readers any more.
    fn tell_dead_values(&self) {
        let dead = self.source.values.take_dead();
        let Some(log) = self.source.values.log_if_open().filter(|_| !dead.is_empty()) else { return };
        let mut by_segment: BTreeMap<u64, Vec<Handle>> = BTreeMap::new();
        for ValueLocation { segment, offset, length, .. } in dead.into_iter().flatten() {
            let (offset, bytes) = (offset as u32, length as u32);
            by_segment.entry(segment).or_default().push(Handle { segment, offset, bytes });
        }
        for (segment, handles) in by_segment {
            // A handle that is none of the segment's: its table is damaged, and its reader gets the error.
            let told = log.may_trim(segment, &handles).map_err(crate::Error::from);
            told.unwrap_or_else(|error| self.health.note_job_failure("trim values", error));
        }
    }

    fn delete_segments(&self, first_failure: &mut Option<StorageError>) {
        let values = &self.source.values;
        let deleting = values.take_segments();
        for &number in &deleting.segments {
            if self.health.failure().is_some() {
                return;
            }
            if lock(&self.doubtful).contains(&number) {
                continue;
            }
            if let Err(error) = self.delete_segment(number) {
                values.add(number);
                first_failure.get_or_insert(error);
            }
        }
    }

    fn delete_segment(&self, number: u64) -> Result<(), StorageError> {
        let log = self.source.values.log_if_open();
        let removed = log.map_or(Ok(()), |log| log.remove(number));
        // What the log does not know any more may still have its file.
        let removed = match removed.and_then(|()| self.volume.remove(FileName::Values(number))) {
            Err(StorageError::NotFound { .. }) => match self.volume.remove(FileName::Values(number)) {
                Err(StorageError::NotFound { .. }) => Ok(()),
                removed => removed,
            },
            removed => removed,
        };
        removed.inspect(|()| self.source.damaged.forget(FileName::Values(number)))
    }
}
