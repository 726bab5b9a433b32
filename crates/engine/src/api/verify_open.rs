//! Verification of a store while it is open.
//!
//! 1. The [conditions](Store::check) that an open store meets at any moment are checked.
//! 2. Each table is read whole, past the cache, one after the other. A table that is merged away meanwhile is left out:
//!    compactions have read it.
//! 3. Its handles are followed into the value log. Older versions may lead to values that are gone. So a value counts
//!    as lost only if a read of its key fails now.
//!
//! Damage is [noted](crate::base::damage) as if a reader had met it, too. Manifest and log are not read: the store
//! writes them meanwhile, and both are checked when the store is opened.
//!
//! **Bounded.** One table at a time is held. The rate is the caller's.
//!
//! **Threads.** The caller's, as a guest of the store: a store that closes waits until the present table is read, and
//! that table is read at full speed then.

use crate::api::store::Store;
use crate::base::damage::damage_of;
use crate::read::options::{ReadOptions, table_read_options};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::TableFile;
use crate::work::pacer::{IdleMark, Pacer};
use crate::{Error, Result, VerifyProgress, VerifyReport};
use situ_storage::{Error as StorageError, FileName};
use situ_table::{KeyKind, Reach};
use std::sync::{Arc, Weak};

/// One verification.
struct Reading<'a> {
    store: &'a Store,
    pacer: Arc<Pacer>,
    report: VerifyReport,
    bytes_total: u64,
    progress: &'a mut dyn FnMut(VerifyProgress),
}

impl Store {
    /// Reads and checks all tables and the values in the value log, while the store is in use. The call reads at most
    /// `bytes_per_s_max` bytes a second (0: no limit), and calls `progress` now and then.
    ///
    /// The report has all damage that was found. The store notes that damage, too, as if a read had met it: the
    /// [listener](crate::Options::listener) gets an event, and [`Statistics`](crate::Statistics) counts it. The
    /// manifest and the log are not read; [`verify`](crate::verify()) of a closed store reads everything.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = situ::Store::open(directory.path())?;
    /// store.put("k", "v")?;
    /// store.flush()?;
    /// let report = store.verify(16 << 20, &mut |progress| println!("{}", progress.at))?;
    /// assert!(report.is_sound() && report.entries == 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The store is closed meanwhile; a file cannot be read for a reason that says nothing about it: missing rights, no
    /// memory, no free descriptor, a disk that does not answer.
    pub fn verify(&self, bytes_per_s_max: u64, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
        let core = self.core();
        let _guest = core.health.enter()?;
        let started = core.env.clock.now();
        let idle = IdleMark::new(&core.versions.snapshots);
        let pacer = Pacer::new(&core.env.clock, &core.health, &idle, bytes_per_s_max);
        // The whole rate, whatever compactions have to do.
        pacer.set_debt(1.0);
        let keyspaces = core.versions.keyspaces();
        let tables = |keyspace: &Arc<KeyspaceCore>| -> Vec<Weak<TableFile>> {
            keyspace.view.load().version.files().map(|(_, file)| Arc::downgrade(file)).collect()
        };
        let tables: Vec<_> = keyspaces.iter().map(|keyspace| (keyspace, tables(keyspace))).collect();
        let bytes = |(_, files): &(_, Vec<Weak<TableFile>>)| -> u64 {
            files.iter().filter_map(Weak::upgrade).map(|file| file.meta.bytes).sum()
        };
        let bytes_total = tables.iter().map(bytes).sum();
        let mut reading = Reading { store: self, pacer, report: VerifyReport::default(), bytes_total, progress };
        match self.check() {
            Err(Error::Storage(error)) => reading.fail(core.versions.volume.location(), error)?,
            checked => checked?,
        }
        for (keyspace, files) in tables {
            for file in files {
                self.check_wanted()?;
                if let Some(file) = file.upgrade() {
                    reading.table(keyspace, &file)?;
                }
            }
        }
        let text = "the manifest and the log were not checked, because the store is open";
        reading.report.warnings.push(text.to_owned());
        reading.report.duration = core.env.clock.now().saturating_sub(started);
        Ok(reading.report)
    }
}

impl Reading<'_> {
    fn table(&mut self, keyspace: &Arc<KeyspaceCore>, file: &Arc<TableFile>) -> Result<()> {
        let name = FileName::Table(file.meta.number);
        let path = format!("{}/{name}", self.store.core().versions.volume.location());
        let before = self.report.bytes;
        let checked = file.table().and_then(|table| {
            let mut read = 0;
            table.verify(&mut |bytes| {
                self.pacer.pace(bytes.saturating_sub(read));
                read = bytes;
                let (bytes_done, bytes_total) = (before + bytes, self.bytes_total);
                (self.progress)(VerifyProgress { at: name.to_string(), bytes_done, bytes_total });
            })
        });
        self.report.files += 1;
        self.report.bytes += file.meta.bytes;
        self.report.entries += file.meta.entries + file.meta.range_deletions;
        match checked {
            Ok(()) => self.values(keyspace, file),
            Err(error) => self.fail(path, error),
        }
    }

    /// Follows the handles of a sound table.
    fn values(&mut self, keyspace: &Arc<KeyspaceCore>, file: &Arc<TableFile>) -> Result<()> {
        if keyspace.view.load().version.segments.files().is_empty() {
            return Ok(());
        }
        let options = table_read_options(&ReadOptions { bypass_cache: true, ..ReadOptions::default() });
        let table = file.table()?;
        let mut cursor = table.cursor(options);
        cursor.first()?;
        while cursor.valid() {
            let key = cursor.key();
            self.pacer.pace((key.user.len() + cursor.value().len()) as u64);
            if key.trailer.kind() == Some(KeyKind::ValueHandle) {
                self.store.check_wanted()?;
                let view = keyspace.view.load_full();
                match view.version.segments.read(key.user, cursor.value(), Reach::Disk) {
                    Ok(value) => {
                        let bytes = value.len() as u64;
                        self.pacer.pace(bytes);
                        // Their number was not known before.
                        self.report.bytes += bytes;
                        self.bytes_total += bytes;
                    }
                    Err(_) => self.lost_value(&keyspace.name, key.user)?,
                }
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// Reports the value of a key, if a reader does not get it.
    fn lost_value(&mut self, keyspace: &str, key: &[u8]) -> Result<()> {
        let keyspace = match self.store.existing_keyspace(keyspace) {
            // It was dropped.
            Err(Error::Existence(_)) => return Ok(()),
            keyspace => keyspace?,
        };
        match keyspace.get(key) {
            Ok(_) => Ok(()),
            Err(Error::Storage(error)) => {
                let place = match &error {
                    StorageError::Io { path, .. } | StorageError::NotFound { path } => path.clone(),
                    _ => format!("the keyspace {:?}", keyspace.name()),
                };
                self.fail(place, error)
            }
            Err(Error::KeyspaceDropped { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes and reports a damage.
    ///
    /// # Errors
    /// The error says nothing about the file.
    fn fail(&mut self, place: String, error: StorageError) -> Result<()> {
        if error.is_not_of_the_file() {
            return Err(error.into());
        }
        let damage = damage_of(&place, error);
        // A file that cannot be read counts as damaged, too.
        self.store.core().versions.source.damaged.note(&StorageError::Corruption(Box::new(damage.clone())).into());
        self.report.add(damage);
        Ok(())
    }
}
