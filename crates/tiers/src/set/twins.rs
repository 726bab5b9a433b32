//! Log files of one name on two disks.
//!
//! A log file that could not be made loses its name again. A crash may bring the name back, as an empty file or one of
//! zeros. If its number was used on another disk meanwhile, that file has the records. So one of two without
//! contents is passed over from the beginning, and removed when the store is opened for writing. Two with contents are
//! an error.

use super::Disks;
use super::disk::Disk;
use situ_storage::{Error, FileName, PageFile, Result, Volume};
use std::collections::HashSet;
use std::sync::Arc;

/// Read in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Returns true if nothing was ever written to a file.
fn is_blank(file: &dyn PageFile) -> Result<bool> {
    let bytes = file.pages() * situ_storage::PAGE_BYTES as u64;
    let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
    let mut at = 0;
    while at < bytes {
        let piece = &mut piece[..(bytes - at).min(PIECE_BYTES) as usize];
        file.read_at(at, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

fn logs_on(disk: &Disk) -> Result<HashSet<FileName>> {
    let names = disk.volume.list()?.into_iter().map(|file| file.name);
    Ok(names.filter(|name| matches!(name, FileName::Log(_))).collect())
}

/// Passes over the log file `name` on one of two disks that both have it. If neither file has contents, `first` keeps
/// its own.
fn note_twin(first: &Disk, second: &Disk, name: FileName) -> Result<()> {
    let opened = [second.volume.open_pages(name)?, first.volume.open_pages(name)?];
    let [on_second, on_first]: [&Arc<dyn PageFile>; 2] = opened.each_ref();
    if is_blank(&**on_second)? {
        second.note_twin(name);
    } else if is_blank(&**on_first)? {
        first.note_twin(name);
    } else {
        let other = on_second.path();
        let expected =
            format!("a log file on one disk, and not {other} as well (move the one that is not this store's away)");
        return Err(Error::corruption(on_first.path(), 0, "log file", expected, "two with contents"));
    }
    Ok(())
}

impl Disks {
    /// Looks for log files on two disks, before anything else is done with them.
    pub(super) fn find_twins(&self) -> Result<()> {
        for (at, second) in self.disks.iter().enumerate() {
            for first in &self.disks[..at] {
                for name in logs_on(first)?.intersection(&logs_on(second)?) {
                    note_twin(first, second, *name)?;
                }
            }
        }
        Ok(())
    }

    /// Removes those without contents.
    ///
    /// # Errors
    /// A disk does not let one go, or does not make it durable.
    pub(crate) fn remove_twins(&self) -> Result<()> {
        let mut removed = false;
        for disk in &self.disks {
            for name in disk.take_twins() {
                match disk.remove(name) {
                    Ok(()) | Err(Error::NotFound { .. }) => removed = true,
                    Err(error) => return Err(error),
                }
            }
        }
        if removed { self.sync_names() } else { Ok(()) }
    }
}
