//! Removing backups.
//!
//! 1. The files of the backups go, durably.
//! 2. Contents that no other backup names go.
//!
//! A crash between the two leaves contents that no backup needs: the next prune removes them, or a backup uses them.

use crate::directory::Backups;
use crate::disk::{self, failed};
use crate::verify::needed;
use situ_engine::{Error, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The account of a prune.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// The numbers of the backups that were removed.
    pub removed: Vec<u64>,
    /// The numbers of the backups that are left.
    pub kept: Vec<u64>,
    /// Contents that were removed.
    pub removed_files: u64,
    /// The bytes that these took on the disk.
    pub freed_bytes: u64,
}

impl Backups {
    /// Removes all backups but the newest `keep`, and the contents that only they need.
    ///
    /// # Errors
    /// `keep` is 0; another process changes the directory; the metadata of a backup that stays is damaged, or
    /// cannot be read; a file cannot be removed.
    pub fn prune(&self, keep: usize) -> Result<PruneReport> {
        if keep == 0 {
            let text = format!("a prune keeps one backup at least; to give up all, remove {}", self.shown());
            return Err(Error::Invalid(text));
        }
        let _lock = self.lock()?;
        let ids = self.ids()?;
        self.remove_all(&ids[..ids.len().saturating_sub(keep)])
    }

    /// Removes backups, and the contents that only they need.
    ///
    /// # Errors
    /// There is no such backup; as of [`prune`](Backups::prune).
    pub fn remove(&self, ids: &[u64]) -> Result<PruneReport> {
        let _lock = self.lock()?;
        let there = self.ids()?;
        if let Some(id) = ids.iter().find(|id| !there.contains(id)) {
            self.find(Some(*id))?;
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        self.remove_all(&ids)
    }

    fn remove_all(&self, ids: &[u64]) -> Result<PruneReport> {
        let mut listing = self.list()?;
        listing.backups.retain(|backup| !ids.contains(&backup.id));
        listing.damaged.retain(|(id, _)| !ids.contains(id));
        // Without its metadata, the contents of a backup cannot be told from those that nothing needs.
        if let Some((id, error)) = listing.damaged.into_iter().next() {
            let text = format!("backup {id} would stay, and it is not known what it needs ({error}); remove it first");
            return Err(if error.is_corruption() { Error::Invalid(text) } else { error });
        }
        ids.iter().try_for_each(|id| self.give_up(*id))?;
        disk::sync(self.directory())?;
        self.workplace()?;
        let mut report = PruneReport {
            removed: ids.to_vec(),
            kept: listing.backups.iter().map(|backup| backup.id).collect(),
            ..PruneReport::default()
        };
        let needed = needed(&listing.backups);
        for content in self.contents()?.iter().filter(|content| !needed.contains_key(content)) {
            let path = self.path_of(content);
            report.freed_bytes += fs::metadata(&path).map_err(failed("open", &path))?.blocks() * 512;
            report.removed_files += 1;
            disk::remove(&path)?;
        }
        Ok(report)
    }
}
