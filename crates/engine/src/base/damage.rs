//! Damage that is found while a store is open.
//!
//! The caller of a read of damaged data gets the error. But the caller of one read is seldom the person who must act on
//! it, and compactions have no caller. So each such error is also noted here, on its way out of the store. It is
//! counted, and the listener is notified once for each file. Reads of other data go on.
//!
//! **Bounded.** A damaged block that is read a million times counts a million and is reported once. [`FILES_MAX`] files
//! are remembered and reported; damage in further ones is counted.
//!
//! **Threads.** Any thread that reads may note damage. The lock is held for a look at the list; the listener is called
//! without it.
//!
//! A file is forgotten when it is deleted. A store that is open read-only notes nothing: the damage may be the work of
//! the process that writes to the store meanwhile.

use crate::Error;
use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use situ_storage::Corruption;
use situ_storage::{Error as StorageError, FileName};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

/// One damaged place: file, offset, its kind, the expected and the found contents.
pub type Damage = Corruption;

/// Returns any failure as a damage: unreadable data is as bad as wrong data.
pub(crate) fn damage_of(file: &str, error: StorageError) -> Damage {
    match error {
        StorageError::Corruption(corruption) => *corruption,
        other => Damage {
            file: file.to_owned(),
            offset: 0,
            what: "file".to_owned(),
            expected: "readable bytes".to_owned(),
            found: other.to_string(),
        },
    }
}

/// Returns true if a damage of the same place is in the list; two steps may find it.
pub(crate) fn is_known(damages: &[Damage], new: &Damage) -> bool {
    damages.iter().any(|d| d.file == new.file && d.offset == new.offset && d.what == new.what)
}

/// The maximum number of damaged files that are remembered. A longer list would help no operator.
const FILES_MAX: usize = 256;

/// Receives each report of damage, with an event if it is the first one of a file.
type Report = Box<dyn Fn(Option<StoreEvent>) + Send + Sync>;

/// The damaged files of a store.
#[derive(Default)]
pub(crate) struct DamagedFiles {
    /// Receives reports; none while the store is being opened, and if it is open read-only.
    report: OnceLock<Report>,
    /// By the file's name, the first damage that was met in it.
    files: Mutex<BTreeMap<String, Damage>>,
}

impl DamagedFiles {
    /// Sets the receiver of reports. From now on damage is noted.
    pub(crate) fn report_to(&self, report: Report) {
        // The first one stays; there is no other.
        let _ = self.report.set(report);
    }

    /// Notes `error`, if damaged data is its cause.
    #[cold]
    pub(crate) fn note(&self, error: &Error) {
        let Error::Storage(StorageError::Corruption(damage)) = error else { return };
        let Some(report) = self.report.get() else { return };
        let is_first = {
            let mut files = lock(&self.files);
            let is_first = files.len() < FILES_MAX && !files.contains_key(&damage.file);
            if is_first {
                files.insert(damage.file.clone(), Damage::clone(damage));
            }
            is_first
        };
        let found =
            || StoreEvent::DamageFound { file: damage.file.clone(), offset: damage.offset, error: error.clone() };
        report(is_first.then(found));
    }

    /// Forgets the damage of a file that is gone.
    pub(crate) fn forget(&self, name: FileName) {
        lock(&self.files).retain(|file, _| file_name(file) != Some(name));
    }

    /// Returns the first damage that was met in each file.
    pub(crate) fn list(&self) -> Vec<Damage> {
        lock(&self.files).values().cloned().collect()
    }
}

/// Returns the file name in a volume's text for a file. It is the last component of a path. On a disk without a file
/// system it comes before the disk's own place (`000012.table on /dev/sdb`).
fn file_name(file: &str) -> Option<FileName> {
    let on_raw_disk = file.split_once(" on ").and_then(|(name, _)| name.parse().ok());
    on_raw_disk.or_else(|| file.rsplit('/').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(file: &str) -> (String, Damage) {
        match StorageError::corruption(file, 0, "block", "a checksum", "another") {
            StorageError::Corruption(damage) => (file.to_owned(), *damage),
            other => panic!("{other}"),
        }
    }

    /// The name of table 12 ends that of table 1000012, and a disk without a file system has its place behind the name.
    #[test]
    fn only_the_damage_of_the_table_that_goes_is_forgotten() {
        let files = DamagedFiles::default();
        let names = [
            "/store/1000012.table",
            "/store/000012.table",
            "/store/000012.log",
            "000012.table",
            "000012.table on /dev/sdb",
            "1000012.table on /dev/sdb",
            "000013.table on /images/000012.table",
            "/moved on 3 May/000012.table",
            "/store/000014.values",
            "the version in memory",
        ];
        lock(&files.files).extend(names.map(damage));
        files.forget(FileName::Table(12));
        files.forget(FileName::Values(14));
        let mut left = names.to_vec();
        let stays = |name: &str| {
            name.contains("1000012") || name.contains("13") || name.contains("log") || name.contains("memory")
        };
        left.retain(|name| stays(name));
        let mut listed: Vec<String> = files.list().into_iter().map(|damage| damage.file).collect();
        listed.sort();
        left.sort();
        assert_eq!((listed.len(), listed), (5, left.iter().map(|name| name.to_string()).collect()));
    }
}
