//! The disk space that a store takes: whole pages of every file.

use crate::Result;
use crate::api::store::Store;
use crate::base::places::HOME;
use situ_storage::{PAGE_BYTES, Volume};

/// The disk space that the files of a store take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DiskUse {
    /// At home; of a store on one volume, everything.
    pub home_bytes: u64,
    /// On other volumes.
    pub elsewhere_bytes: u64,
}

impl DiskUse {
    /// Returns the bytes on all volumes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.home_bytes + self.elsewhere_bytes
    }
}

fn bytes_on(volume: &dyn Volume) -> Result<u64> {
    let page = PAGE_BYTES as u64;
    Ok(volume.list()?.iter().map(|file| file.bytes.next_multiple_of(page)).sum())
}

impl Store {
    /// Returns the disk space that the store's files take now, in whole pages of 4 KiB. Tables count, also those that
    /// snapshots and iterators keep. Log files and spares count with the space that they have reserved, and so does
    /// metadata. A table that is being written counts as far as its disk lists it. A segment of the value log counts
    /// with its holes: the part of [`ValueLogProperties::trimmed_bytes`](crate::ValueLogProperties::trimmed_bytes) that
    /// was discarded takes no space. The sum leaves out the space that a raw disk itself needs; `situ disk show`
    /// reports it.
    ///
    /// The call lists the files, so it is meant for reports, not for every operation.
    ///
    /// # Errors
    /// A disk cannot be listed.
    pub fn disk_use(&self) -> Result<DiskUse> {
        let core = self.core();
        let volumes = &core.versions.source.volumes;
        let mut disk_use = DiskUse::default();
        for number in volumes.numbers() {
            let bytes = volumes.numbered(number).map_or(Ok(0), bytes_on)?;
            let sum = if number == HOME { &mut disk_use.home_bytes } else { &mut disk_use.elsewhere_bytes };
            *sum += bytes;
        }
        Ok(disk_use)
    }
}
