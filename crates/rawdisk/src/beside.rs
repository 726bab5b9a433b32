//! Reading while another process writes.
//!
//! A volume that has not locked the disk and has changed nothing since is a *guest*. Another process may remove files
//! and give their pages to others, at any time. A directory keeps what is open; here, the writer does not know of the
//! guest. So a guest that has read something looks whether the journal has grown meanwhile. If it has, it reads the
//! catalogue again. If the file is not in the newest catalogue any more, or elsewhere, the bytes are thrown away, and
//! the read returns that the file does not exist. A removal is durable before its pages are given away. So a guest that
//! reads foreign bytes finds the removal in the journal, or in a catalogue that was read again for another file since.
//!
//! Files that came since are found, too: a guest that does not find a name, or lists all, reads the catalogue again
//! first.

use super::file::File;
use super::frame::peek;
use super::layout::PAGE;
use super::prepare::load;
use super::room::Extent;
use super::shared::Shared;
use situ_storage::{Error, FileName, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Returns true if another process may be writing.
    pub(super) fn is_guest(&self) -> bool {
        self.locks.load(Ordering::Acquire) == 0 && !self.lock().is_mine
    }

    /// Returns true if the journal goes on behind the known part.
    fn has_changed(&self) -> Result<bool> {
        let (layout, half, next_page, epoch, sequence) = {
            let state = self.lock();
            let journal = &state.journal;
            (state.layout, journal.half, journal.next_page, journal.epoch, journal.sequence)
        };
        let next = (next_page < layout.half_pages).then(|| layout.half_first(half) + next_page);
        // Of several checkpoints since, one half has a whole one while the next is on its way to the other.
        let pages = [Some(layout.half_first(1 - half)), Some(layout.half_first(half)), Some(0), next];
        for page in pages.into_iter().flatten() {
            let mut bytes = vec![0; PAGE as usize];
            let place = [Extent { first: page, pages: 1 }];
            self.transfers.read(&place, 0, &mut bytes).map_err(|error| self.transfers.fail("read", error))?;
            // Page 0 has the superblock: a disk that was formatted again has another identity in it.
            let is_other = page == 0 && bytes.get(16..32) != Some(&layout.id.0[..]);
            let is_newer = |(found, number)| found > epoch || (found == epoch && number > sequence);
            if is_other || peek(layout.id, &bytes).is_some_and(is_newer) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the catalogue again. Files that are open stay what they are, and no part of the new state.
    pub(super) fn refresh(&self) -> Result<()> {
        let loaded = load(&self.transfers)?;
        let mut state = self.lock();
        // A frame on its way from before the lock was given back is noted where it was planned. And another thread may
        // have read later, and be done earlier: in an older state a file would be there again whose pages are
        // another's.
        if state.is_mine || state.journal.writing || state.is_as(&loaded) || state.is_ahead_of(&loaded) {
            return Ok(());
        }
        let old = self.replace(&mut state, loaded)?;
        drop(state);
        drop(old);
        Ok(())
    }

    /// Checks, after a read, that the bytes were the file's.
    pub(super) fn check_still_there(&self, file: &Arc<File>, name: FileName) -> Result<()> {
        if !self.is_guest() {
            return Ok(());
        }
        if self.has_changed()? {
            self.refresh()?;
        }
        // Also where nothing has changed since: the removal may be what another reading of the catalogue has brought.
        let found = self.lock().names.get(&name).cloned();
        if found.is_some_and(|found| is_same(&found, file)) { Ok(()) } else { Err(self.gone(name)) }
    }

    /// Returns the error for a file that is not there, or not any more, with advice for its reader.
    pub(super) fn gone(&self, name: FileName) -> Error {
        let path = self.path(name);
        if !self.is_guest() {
            return Error::NotFound { path };
        }
        let cure =
            "if another process writes to the store and has removed it, open the store again for its newer state";
        Error::NotFound { path: format!("{path} ({cure})") }
    }
}

/// Returns true if both have the same bytes in the same pages.
fn is_same(one: &Arc<File>, other: &Arc<File>) -> bool {
    if Arc::ptr_eq(one, other) {
        return true;
    }
    let place = |file: &File| {
        let meta = file.meta();
        (meta.extents.clone(), meta.length, meta.inline.clone())
    };
    place(one) == place(other)
}
