//! The area that the log has to itself on a raw disk: the share that memtables may fill, and the writers that wait
//! when it is full.
//!
//! Its files go when the memtables are tables whose records they hold. So the room of the area bounds the number of
//! memtables (`seal.rs`). The bytes that the area holds are a part of the debt that slows writers ([`Debt::note_log`]).
//! The log goes home from the area only if no flush is due that gives some of it back.

use crate::base::places::HOME;
use crate::pipeline::Memory;
use crate::pipeline::stall::Debt;
use situ_log::Log;
use situ_storage::{FileName, Space};
use std::sync::atomic::Ordering;

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

/// The time from before a memtable goes until its log files are given back, counted for writers that wait for room for
/// a log file.
pub(crate) struct Releasing<'a>(&'a Memory);

impl<'a> Releasing<'a> {
    pub(crate) fn begin(memory: &'a Memory) -> Releasing<'a> {
        memory.flushes_releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(memory)
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.flushes_releasing.fetch_sub(1, Ordering::SeqCst);
        // A writer that waits for this release must not wait for another.
        self.0.progress.notify();
    }
}

impl Memory {
    /// Returns the area that the log has to itself; `None` in a store on one volume.
    fn log_area(&self) -> Option<Space> {
        let source = &self.versions.source;
        source.are_several.then(|| source.volumes.log_area()).flatten()
    }

    /// Returns true if a file for a record of `bytes` has no room in the area, and a flush is due that gives some of it
    /// back.
    pub(crate) fn log_area_is_full_for_now(&self, bytes: u64) -> bool {
        let Some((room, log)) = self.log_area().zip(self.log.as_ref()) else { return false };
        let wanted = log.file_bytes_for(bytes);
        // A file for a huge record would wait for room that ordinary ones take as soon as it is there.
        let is_ordinary = wanted == log.file_bytes_for(0) && self.log_area_bytes(log).is_some();
        let is_full = room.logical_used + wanted > room.logical_total;
        let volumes = &self.versions.source.volumes;
        let is_in_area = |number| volumes.volume_of(FileName::Spare(number)) != HOME;
        is_ordinary
            && is_full
            && !log.has_file_at_hand(self.prepared_log(), bytes, is_in_area)
            && self.a_flush_is_due_that_frees_log()
    }

    /// Returns true if a flush gives log files back soon, as far as is known.
    pub(crate) fn a_flush_is_due_that_frees_log(&self) -> bool {
        // In this order: a flush is counted as releasing before its memtable goes.
        let due = self.a_flush_frees_log() || self.flushes_releasing.load(Ordering::SeqCst) > 0;
        due && self.check_flushes().is_ok()
    }

    /// Returns true if the oldest log file is held back by a memtable that is going to be flushed, and not by one that
    /// is written to.
    fn a_flush_frees_log(&self) -> bool {
        let (mut sealed, mut active) = (u64::MAX, u64::MAX);
        for keyspace in self.versions.keyspaces() {
            let view = keyspace.view.load();
            let oldest = view.sealed.iter().filter_map(|slot| slot.first_log()).min();
            sealed = sealed.min(oldest.unwrap_or(u64::MAX));
            active = active.min(view.active.first_log().unwrap_or(u64::MAX));
        }
        sealed < active
    }

    /// Returns the bytes of the area that the log has to itself, rounded down to whole files, less the file that is
    /// made ready next. Returns `None` if there is no area, or one that is too small for the log and the memtables. The
    /// log lives on several volumes then, and no writer waits for it.
    pub(crate) fn log_area_bytes(&self, log: &Log) -> Option<u64> {
        self.log_area_in_files_of(log.file_bytes_for(0))
    }

    /// As [`log_area_bytes`](Memory::log_area_bytes), with files of `file` bytes.
    pub(crate) fn log_area_in_files_of(&self, file: u64) -> Option<u64> {
        let room = self.log_area()?;
        let largest = self.versions.keyspaces().iter().map(|keyspace| keyspace.options.memtable_bytes).max()?;
        usable(room.logical_total, file, largest)
    }
}

#[cfg(test)]
mod tests;
