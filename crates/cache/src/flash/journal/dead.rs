//! The items on flash that have died, as the journals say.
//!
//! Two journals can have a note for each item of the log, gigabytes with short items on a large flash. So the first
//! reading of the journals only counts the notes of each segment. The scan of the log asks for segments in the order of
//! their numbers. The notes of the next ones are read when it comes to them, as many as fit [`NOTES_MAX`].
//!
//! **Failure.** If a journal cannot be read again, everything counts as dead.

use super::{Id, read_notes};
use crate::slot::{ALIGN, OFFSETS_END};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

/// The dead items by the journals: see the module.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    id: Id,
    pub(super) journals: Vec<PathBuf>,
    segments: HashSet<u64>,
    /// Notes of items by segment.
    counts: BTreeMap<u64, u32>,
    /// The greatest sequence number that is named.
    pub(crate) newest: u64,
    /// The segments whose notes are in memory, from the first to before the second.
    loaded: (u64, u64),
    /// Their notes, in order.
    items: Vec<u64>,
    /// The journals could not be read again: nothing is trusted.
    has_failed: bool,
}

/// Notes that are in memory at a time, but for those of a single segment: 32 MiB.
const NOTES_MAX: u64 = if cfg!(test) { 64 } else { 4 << 20 };

impl Dead {
    /// Makes an empty set, of the cache with this id.
    pub(super) fn of(id: Id) -> Dead {
        Dead { id, ..Dead::default() }
    }

    /// Notes a death that a journal names.
    pub(super) fn note(&mut self, sequence: u64, offset: u32) {
        self.newest = self.newest.max(sequence);
        if offset == 0 {
            self.segments.insert(sequence);
        } else {
            *self.counts.entry(sequence).or_default() += 1;
        }
    }

    /// Returns true if the item at an offset of a segment has died. Quick for segments in the order of their numbers.
    pub(crate) fn has(&mut self, sequence: u64, offset: u32) -> bool {
        if self.segments.contains(&sequence) {
            return true;
        }
        if !(self.loaded.0..self.loaded.1).contains(&sequence) {
            self.has_failed |= self.load(sequence).is_err();
        }
        self.has_failed || self.items.binary_search(&item_number(sequence, offset)).is_ok()
    }

    #[cfg(test)]
    pub(super) fn is_bounded(&self) -> bool {
        self.items.len() as u64 <= NOTES_MAX
    }

    /// Forgets the notes of the journals that are in memory.
    #[cfg(test)]
    pub(super) fn unload(&mut self) {
        self.loaded = (0, 0);
    }

    /// Reads the notes of the segments from `first` on, of as many as there is room for.
    fn load(&mut self, first: u64) -> io::Result<()> {
        let mut notes = 0;
        let fits = |(_, count): &(&u64, &u32)| {
            notes += u64::from(**count);
            notes <= NOTES_MAX
        };
        let last = self.counts.range(first..).take_while(fits).last().map_or(first, |(last, _)| *last);
        self.loaded = (first, last + 1);
        self.items.clear();
        for path in &self.journals {
            let items = &mut self.items;
            let read = read_notes(path, &self.id, |sequence, offset| {
                if offset != 0 && (first..=last).contains(&sequence) {
                    items.push(item_number(sequence, offset));
                }
            })?;
            if read.is_none() {
                return Err(io::Error::other("a journal is lost"));
            }
        }
        self.items.sort_unstable();
        Ok(())
    }
}

fn item_number(sequence: u64, offset: u32) -> u64 {
    sequence * (OFFSETS_END / ALIGN) as u64 + u64::from(offset) / ALIGN as u64
}
