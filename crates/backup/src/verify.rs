//! Checking the contents that backups need.

use crate::content::{Content, read_through};
use crate::directory::{Backups, Progress};
use crate::disk::length_of;
use crate::metadata::Backup;
use situ_engine::{Error, Result};
use situ_storage::Error as StorageError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The depth of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All contents are read, and their hashes compared.
    Contents,
    /// All contents are there in their lengths.
    Names,
}

/// A damage that a verification has found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackupDamage {
    /// The damaged or missing file.
    pub file: PathBuf,
    /// The damage, in words.
    pub what: String,
    /// The backups that need the file. They cannot be restored.
    pub backups: Vec<u64>,
}

impl fmt::Display for BackupDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.backups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let backups = if self.backups.len() == 1 { "backup" } else { "backups" };
        write!(f, "{}: {} ({backups} {ids})", self.file.display(), self.what)
    }
}

/// The result of a verification.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The numbers of the backups that were verified.
    pub backups: Vec<u64>,
    /// The number of contents.
    pub files: u64,
    /// Their length.
    pub bytes: u64,
    /// The damages.
    pub damages: Vec<BackupDamage>,
}

impl Backups {
    /// Verifies a backup, or all of them without `id`. Contents that several backups need are read once.
    ///
    /// # Errors
    /// There is no such backup, or a file cannot be read for a reason outside of it, such as missing rights. Damage is
    /// no error: it is in the report, as is a file that the disk does not read.
    pub fn verify(&self, id: Option<u64>, depth: Depth, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let mut listing = self.list()?;
        if let Some(id) = id {
            listing.damaged.retain(|(damaged, _)| *damaged == id);
            if listing.damaged.is_empty() {
                listing.backups = vec![self.find(Some(id))?];
            } else {
                listing.backups.clear();
            }
        }
        for (id, error) in listing.damaged {
            report.backups.push(id);
            let what = match error {
                Error::Storage(StorageError::Corruption(damage)) => {
                    format!("expected {}, found {}", damage.expected, damage.found)
                }
                Error::Storage(error) if !error.is_not_of_the_file() => error.to_string(),
                error => return Err(error),
            };
            report.damages.push(BackupDamage { file: self.path_of_metadata(id), what, backups: vec![id] });
        }
        report.backups.extend(listing.backups.iter().map(|backup| backup.id));
        report.backups.sort_unstable();
        let needed = needed(&listing.backups);
        let mut now = Progress { bytes_done: 0, bytes_total: needed.keys().map(|content| content.bytes).sum() };
        for (content, backups) in needed {
            let what = self.damage_of(&content, depth, &mut |bytes| {
                now.bytes_done += bytes;
                progress(now);
            })?;
            report.files += 1;
            report.bytes += content.bytes;
            // A prune may have removed backups and contents meanwhile.
            if let Some(what) = what
                && let ids = self.ids()?
                && backups.iter().any(|id| ids.contains(id))
            {
                report.damages.push(BackupDamage { file: self.path_of(&content), what, backups });
            }
        }
        Ok(report)
    }

    fn damage_of(&self, content: &Content, depth: Depth, read: &mut dyn FnMut(u64)) -> Result<Option<String>> {
        let path = self.path_of(content);
        let found = match length_of(&path)? {
            None => return Ok(Some("is missing".to_owned())),
            Some(bytes) if bytes != content.bytes => {
                return Ok(Some(format!("has {bytes} bytes, and should have {}", content.bytes)));
            }
            Some(_) if depth == Depth::Names => return Ok(None),
            Some(_) => read_through(&path, |piece| {
                read(piece.len() as u64);
                Ok(())
            }),
        };
        match found {
            Ok(found) if found == (content.bytes, content.hash) => Ok(None),
            Ok((_, hash)) => Ok(Some(format!("has the XXH3-128 {hash:032x}, which is not that of its name"))),
            Err(StorageError::NotFound { .. }) => Ok(Some("is missing".to_owned())),
            Err(error) if error.is_not_of_the_file() => Err(error.into()),
            Err(error) => Ok(Some(error.to_string())),
        }
    }
}

/// Returns the contents that backups need, each with these backups.
pub(crate) fn needed(backups: &[Backup]) -> BTreeMap<Content, Vec<u64>> {
    let mut needed: BTreeMap<Content, Vec<u64>> = BTreeMap::new();
    for backup in backups {
        for entry in backup.entries.values() {
            let ids = needed.entry(entry.content).or_default();
            if ids.last() != Some(&backup.id) {
                ids.push(backup.id);
            }
        }
    }
    needed
}
