//! The area that the log has to itself on a raw disk: the share that memtables may fill, and the writers that wait
//! when it is full.
//!
//! Its files go when the memtables are tables whose records they hold. So the room of the area bounds the number of
//! memtables (`seal.rs`). The bytes that the area holds are a part of the debt that slows writers ([`Debt::note_log`]).
//! The log goes home from the area only if no flush is due that gives some of it back.

use crate::base::places::HOME;
use crate::pipeline::log_files::LogFiles;
use crate::pipeline::stall::Debt;
use situ_log::Log;
use situ_storage::{FileName, Space};

/// The files that an area has at least, if writers are to wait for it.
const FILES_MIN: u64 = 3;

/// Returns the bytes of an area of `total` that files of `file` bytes may fill, less the one that is made ready for the
/// next. `None` if there is no room for [`FILES_MIN`], or if a memtable is longer than a file.
fn usable(total: u64, file: u64, memtable_bytes: u64) -> Option<u64> {
    let files = total / file;
    (files >= FILES_MIN && memtable_bytes <= file).then(|| (files - 1) * file)
}

impl Debt {
    /// Takes the area into account, of which the log holds `held` bytes for `memory` bytes of memtables. It may be full
    /// before memory is, as synced writes leave pages half empty.
    pub(crate) fn note_log(&mut self, memory: u64, held: u64, area: u64) {
        // In bytes of memory, as writers count theirs.
        let tolerated = (area as f64 / held.max(1) as f64 * memory as f64) as u64;
        self.note_memory(memory, tolerated);
    }
}

impl LogFiles {
    /// Returns the area that the log has to itself; `None` in a store on one volume.
    fn area(&self) -> Option<Space> {
        let source = &self.versions.source;
        source.are_several.then(|| source.volumes.log_area()).flatten()
    }

    /// Returns true if a file for a record of `bytes` has no room in the area, and a flush is due that gives some of it
    /// back.
    pub(crate) fn area_is_full_for_now(&self, bytes: u64) -> bool {
        let Some((room, log)) = self.area().zip(self.log.as_ref()) else { return false };
        let wanted = log.file_bytes_for(bytes);
        // A file for a huge record would wait for room that ordinary ones take as soon as it is there.
        let is_ordinary = wanted == log.file_bytes_for(0) && self.area_bytes(log).is_some();
        let is_full = room.logical_used + wanted > room.logical_total;
        let volumes = &self.versions.source.volumes;
        let is_in_area = |number| volumes.volume_of(FileName::Spare(number)) != HOME;
        is_ordinary
            && is_full
            && !log.has_file_at_hand(self.prepared(), bytes, is_in_area)
            && self.queue.gives_log_back()
    }

    /// Returns the bytes of the area that the log has to itself, rounded down to whole files, less the file that is
    /// made ready next. Returns `None` if there is no area, or one that is too small for the log and the memtables. The
    /// log lives on several volumes then, and no writer waits for it.
    pub(crate) fn area_bytes(&self, log: &Log) -> Option<u64> {
        self.area_in_files_of(log.file_bytes_for(0))
    }

    /// As [`area_bytes`](LogFiles::area_bytes), with files of `file` bytes.
    pub(crate) fn area_in_files_of(&self, file: u64) -> Option<u64> {
        let room = self.area()?;
        let largest = self.versions.keyspaces().iter().map(|keyspace| keyspace.options.memtable_bytes).max()?;
        usable(room.logical_total, file, largest)
    }
}

#[cfg(test)]
mod tests;
