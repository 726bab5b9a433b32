//! Log files of one name on both disks.
//!
//! A log file that could not be made loses its name again, and a crash may bring the name back: an empty file, or one of
//! zeros. If its number was used on the other disk meanwhile, that file has the records. So one of two without contents is
//! passed over from the beginning, and removed when the store is opened for writing; two with contents are an error.

use super::{CAPACITY, Disks, FAST};
use situ_storage::{Error, FileName, PageFile, Result, Volume};
use std::collections::HashSet;
use std::sync::Arc;

/// Read in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Whether nothing was ever written to a file.
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

impl Disks {
    /// Looks for log files on both disks, before anything else is done with them.
    pub(super) fn find_twins(&self) -> Result<()> {
        let logs = |volume: &dyn Volume| -> Result<HashSet<FileName>> {
            let names = volume.list()?.into_iter().map(|file| file.name);
            Ok(names.filter(|name| matches!(name, FileName::Log(_))).collect())
        };
        let (home, fast) = (&self.capacity.volume, &self.fast.volume);
        for name in logs(home)?.intersection(&logs(fast)?) {
            let opened = [fast.open_pages(*name)?, home.open_pages(*name)?];
            let [on_fast, at_home]: [&Arc<dyn PageFile>; 2] = opened.each_ref();
            let without = if is_blank(&**on_fast)? {
                FAST
            } else if is_blank(&**at_home)? {
                CAPACITY
            } else {
                let expected = format!(
                    "a log file on one disk, and not {} as well (move the one that is not this store's away)",
                    on_fast.path()
                );
                return Err(Error::corruption(at_home.path(), 0, "log file", expected, "two with contents"));
            };
            self.on_fast().twins.push((*name, without));
        }
        Ok(())
    }

    /// Removes those without contents.
    pub(crate) fn remove_twins(&self) -> Result<()> {
        let twins = std::mem::take(&mut self.on_fast().twins);
        for (name, disk) in &twins {
            let side = if *disk == FAST { &self.fast } else { &self.capacity };
            match side.renamed(side.volume.remove(*name)) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if twins.is_empty() { Ok(()) } else { self.sync_names() }
    }
}
