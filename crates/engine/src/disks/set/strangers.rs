//! Files on the fast disk that nobody in the store knows.
//!
//! When a store is open for writing, every file comes to the fast disk and goes from it through its volume, which knows
//! all names. What is found there besides was put there by somebody else: it is neither used nor removed, and while it
//! is there the disk is not empty.

use super::Disks;
use situ_storage::{FileName, Result};

/// What a store never puts on a fast disk.
pub(super) fn belongs_at_home(name: FileName) -> bool {
    matches!(
        name,
        FileName::Current | FileName::Manifest(_) | FileName::ManifestCopy(_) | FileName::Identity | FileName::Disks
    )
}

impl Disks {
    /// From now on nothing comes to the fast disk but through this volume.
    pub(crate) fn all_names_are_known(&self) {
        self.on_fast().all_mine = true;
    }

    /// Files that no one will ever take away.
    pub(crate) fn strangers(&self) -> Result<Vec<FileName>> {
        let listed = self.list_fast()?.into_iter().map(|file| file.name);
        let unknown = |name: &FileName| belongs_at_home(*name) || !self.on_fast().names.contains(name);
        let mut found: Vec<FileName> = listed.filter(unknown).collect();
        if !found.is_empty() {
            // The name of a file that was removed since the listing is not known any more; the file is not listed again.
            let still = self.list_fast()?;
            found.retain(|name| still.iter().any(|file| file.name == *name));
        }
        Ok(found)
    }
}
