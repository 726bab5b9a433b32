//! Making a backup.
//!
//! 1. Take the lock, and remove unfinished files of an earlier call.
//! 2. Find the newest backup from which the store descends (`lineage.rs`).
//! 3. Let the store make a checkpoint into the [target](Target), which moves contents into the pool.
//! 4. Make the pool durable, and write the file of the backup. Now the backup exists.
//! 5. Note the backup in the store's LINEAGE, which keeps the newest two of this directory.
//!
//! A crash before step 5 loses the note: the next backup descends from an older one, and compares more.

use crate::directory::{Backups, OnBytes};
use crate::lineage;
use crate::metadata::New;
use crate::target::{Made, Target};
use situ_engine::{Error, Result, Store};
use situ_storage::Volume;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The account of a backup that was made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackupReport {
    /// The number of the backup.
    pub id: u64,
    /// The last sequence number whose write the backup has.
    pub last_sequence: u64,
    /// The number of files of the store.
    pub files: u64,
    /// Their length.
    pub bytes: u64,
    /// Tables and segments of the value log that the directory of backups had already.
    pub kept_files: u64,
    /// Files that were copied, and that the directory did not have.
    pub added_files: u64,
    /// The bytes that these take; holes do not count.
    pub added_bytes: u64,
    /// The number of the backup by which files were known. `None`: the whole store was read.
    pub base: Option<u64>,
    /// The reason why the store could not note the backup. The backup is whole. The next one reads more than it needs.
    pub not_noted: Option<Error>,
}

impl Backups {
    /// As [`create_with`](Backups::create_with), without an account of the progress.
    ///
    /// # Errors
    /// As [`create_with`](Backups::create_with).
    pub fn create(&self, store: &Store) -> Result<BackupReport> {
        self.create_with(store, Arc::new(|_| {}))
    }

    /// Makes a backup of an open store, which goes on taking writes. Tables and sealed segments that an earlier backup
    /// has are not copied again.
    ///
    /// `on_bytes` gets the number of bytes of each piece that is copied.
    ///
    /// If the call fails or its process ends, no backup is made. The next call uses what this one has copied.
    ///
    /// # Errors
    /// Another process changes the directory of backups; as of
    /// [`checkpoint_into`](situ_engine::Store::checkpoint_into).
    pub fn create_with(&self, store: &Store, on_bytes: OnBytes) -> Result<BackupReport> {
        let _lock = self.lock()?;
        let marks = lineage::decode(&store.lineage()?);
        // The newest first, one at a time: metadata can be large. A backup that cannot be read is no base.
        let backups = self.ids()?.into_iter().rev().filter_map(|id| self.read(id).ok());
        let mut known = backups.filter(|backup| marks.contains(&backup.mark));
        let (base, entries) = known.next().map(|base| (base.id, base.entries)).unzip();
        let forgotten = known.next().map(|backup| backup.mark);
        let entries = entries.unwrap_or_default();
        let target = Target::new(self, entries, on_bytes)?;
        let report = store.checkpoint_into(&(Arc::new(target.clone()) as Arc<dyn Volume>))?;
        let Made { entries, kept_files, added_files, added_bytes } = target.finish()?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let backup = self.put(&New {
            id: self.ids()?.last().map_or(1, |last| last + 1),
            unix_ms: since_epoch.as_millis() as u64,
            last_sequence: report.last_sequence,
            added_bytes,
            entries,
        })?;
        // A backup into another directory may have added a mark since.
        let noted = store.change_lineage(|lineage| {
            let mut marks = lineage::decode(lineage);
            marks.retain(|mark| Some(*mark) != forgotten);
            marks.push(backup.mark);
            lineage::encode(&marks)
        });
        Ok(BackupReport {
            id: backup.id,
            last_sequence: backup.last_sequence,
            files: backup.files,
            bytes: backup.bytes,
            kept_files,
            added_files,
            added_bytes,
            base,
            not_noted: noted.err(),
        })
    }
}
