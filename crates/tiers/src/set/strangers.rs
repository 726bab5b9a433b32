//! Files on a disk that no part of the store knows.
//!
//! When a store is open for writing, every file comes to a disk and goes from it through the set, which knows all
//! names. Other files that are found there were put there by another program or a user. They are neither used nor
//! removed, and while they are there the disk is not empty.

use super::disk::{Disk, belongs_on_capacity_disk};
use situ_storage::{FileName, Result};

impl Disk {
    /// Returns files that no part of the store will ever take away.
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn strangers(&self) -> Result<Vec<FileName>> {
        let listed = self.list()?.into_iter().map(|file| file.name);
        let mut found: Vec<FileName> =
            listed.filter(|name| belongs_on_capacity_disk(*name) || !self.has(*name)).collect();
        if !found.is_empty() {
            // The name of a file that was removed since the listing is not known any more; the file is not listed
            // again.
            let still = self.list()?;
            found.retain(|name| still.iter().any(|file| file.name == *name));
        }
        Ok(found)
    }
}
