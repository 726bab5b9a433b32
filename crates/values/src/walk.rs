//! The records of a sealed segment, one after another.
//!
//! The index says where records were. A record that was trimmed is not one any more; the walk tells the two apart.
//!
//! 1. The index is read and checked. If it has rotted, the records are looked for instead (`scan.rs`), and the log
//!    reports the damage.
//! 2. Records that are known to be dead are left out.
//! 3. A record whose header and key are sound is handed out, also if its value is damaged. The owner says whether the
//!    record is alive, and a dead one does not matter.
//! 4. A record whose header or key is not sound was trimmed if its first checksum is zero. It was also trimmed if the
//!    header or the key has no byte but zeros in one 512-byte sector. No sound record begins with a zero checksum
//!    (`record.rs`). A trimmed record is left out.
//! 5. Anything else is damage. The walk reports it, and can go on.
//!
//! Rot that zeroes a whole sector of a live record looks as if it was trimmed. A collection then leaves the record out.
//! The record was lost before. A reader of the record gets an error before the collection and another one after it, and
//! never a wrong value.

use crate::Result;
use crate::dead::Ranges;
use crate::format::HEADER_BYTES;
use crate::format::{Extent, decode_index, index_at};
use crate::handle::Handle;
use crate::log::ValueLog;
use crate::record::{Found, Header, look};
use crate::scan::Scan;
use crate::segment::{Phase, Segment};
use crate::window::Window;
use situ_base::lock;
use situ_storage::memory::zeroed;
use situ_storage::{Error, Reader};
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

/// The unit that a disk writes whole or not at all.
const ATOM_BYTES: u64 = 512;

/// A record of a [walk](ValueLog::walk).
#[derive(Debug)]
pub struct Walked<'a> {
    /// Its handle.
    pub handle: Handle,
    /// The tag that its writer gave with it.
    pub tag: u64,
    /// Its key.
    pub key: &'a [u8],
    value: Result<&'a [u8]>,
}

impl<'a> Walked<'a> {
    /// Returns its value.
    ///
    /// # Errors
    /// The value is damaged, or a part of it was trimmed: then the record is dead.
    pub fn value(&self) -> Result<&'a [u8]> {
        self.value.clone()
    }
}

/// A walk over a sealed segment; made by [`ValueLog::walk`].
pub struct Walk {
    segment: Arc<Segment>,
    file: Arc<dyn Reader>,
    extents: IntoIter<Extent>,
    dead: Ranges,
    window: Window,
    trimmed_bytes: u64,
}

impl ValueLog {
    /// Walks over the records of a sealed segment that are not known to be dead.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): the segment is not sealed. Or I/O.
    pub fn walk(&self, number: u64) -> Result<Walk> {
        let segment = self.find(number).ok_or_else(|| Error::NotFound { path: self.path(number) })?;
        Walk::over(segment, self.files.open(&*self.volume, number)?)
    }
}

/// Reads the places of records, and the bytes that are known to be dead.
fn read_index(segment: &Segment, file: &dyn Reader) -> Result<(Vec<Extent>, Ranges)> {
    let number = segment.identity.segment;
    let state = lock(&segment.state);
    match (state.phase, &state.damage) {
        (Phase::Lost, Some(error)) => return Err(error.clone()),
        (Phase::Sealed | Phase::Collected, _) => {}
        _ => return Err(Error::Invalid(format!("segment {number} is not sealed"))),
    }
    let (end, records, check) = (state.data_end, state.records as u32, state.index_check);
    let mut bytes = zeroed(state.index_bytes as usize, file.path())?;
    let dead = state.waiting.union(&state.gone);
    drop(state);
    let at = index_at(segment.pages, bytes.len() as u64);
    file.read_at(at, &mut bytes)?;
    let found = crc32c::crc32c_append(segment.identity.seed(at), &bytes);
    let extents = decode_index(&bytes, records, end).filter(|_| found == check);
    match extents {
        Some(extents) => Ok((extents, dead)),
        None => {
            let (expected, found) = (format!("checksum {check:#x}"), format!("checksum {found:#x}"));
            let error = Error::corruption(file.path(), at, "index of the segment", expected, found);
            Ok((search_records(segment, file, error)?, dead))
        }
    }
}

/// Rebuilds an index that has rotted, for this walk.
fn search_records(segment: &Segment, file: &dyn Reader, error: Error) -> Result<Vec<Extent>> {
    let mut scan = Scan::new(file, segment.identity, segment.layout, segment.pages);
    let mut extents = Vec::new();
    while let Some(extent) = scan.next(u64::MAX)? {
        extents.push(extent);
    }
    let mut state = lock(&segment.state);
    state.is_incomplete |= scan.gave_up();
    state.damage = Some(error);
    Ok(extents)
}

impl Walk {
    pub(crate) fn over(segment: Arc<Segment>, file: Arc<dyn Reader>) -> Result<Walk> {
        let (extents, dead) = read_index(&segment, &*file)?;
        let window = Window::new(segment.data_limit());
        Ok(Walk { segment, file, extents: extents.into_iter(), dead, window, trimmed_bytes: 0 })
    }

    /// Returns the next record that is there; `None` at the end.
    ///
    /// # Errors
    /// [`Corruption`](Error::Corruption): a record can be recognised no more. Another call goes on behind it. Or I/O.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the walk's buffer, so this is no Iterator")]
    pub fn next(&mut self) -> Result<Option<Walked<'_>>> {
        while let Some(extent) = self.extents.next() {
            let range = extent.offset..extent.end() as u32;
            if self.dead.bytes_in(&range) == u64::from(extent.bytes) {
                continue;
            }
            let offset = u64::from(extent.offset);
            let Some(bytes) = self.window.bytes(&*self.file, offset, u64::from(extent.bytes))? else {
                let found = "a place behind the records".to_owned();
                return Err(Error::corruption(self.file.path(), offset, "index of the segment", "a record", found));
            };
            match look(self.segment.identity, offset, bytes) {
                Found::Nothing { .. } if looks_trimmed(offset, bytes) => self.trimmed_bytes += u64::from(extent.bytes),
                Found::Nothing { expected, found } => return Err(unknown(&*self.file, offset, expected, found)),
                _ => return Ok(Some(self.walked(extent)?)),
            }
        }
        Ok(None)
    }

    /// Returns the segment's file, for messages.
    pub(crate) fn path(&self) -> &str {
        self.file.path()
    }

    /// Returns the number of bytes of records that were found to be trimmed, so far.
    pub fn trimmed_bytes(&self) -> u64 {
        self.trimmed_bytes
    }

    /// Returns the number of bytes that were read so far.
    pub fn read_bytes(&self) -> u64 {
        self.window.read_bytes()
    }

    /// Looks again at a record that is there: what is handed out borrows from the window.
    fn walked(&mut self, extent: Extent) -> Result<Walked<'_>> {
        let (identity, offset) = (self.segment.identity, u64::from(extent.offset));
        let handle = Handle { segment: identity.segment, offset: extent.offset, bytes: extent.bytes };
        let rot = |expected, found| unknown(&*self.file, offset, expected, found);
        let bytes = self.window.bytes(&*self.file, offset, u64::from(extent.bytes))?.unwrap_or_default();
        match look(identity, offset, bytes) {
            Found::Whole { tag, key, value } => Ok(Walked { handle, tag, key, value: Ok(value) }),
            Found::ValueDamaged { tag, key, expected, found } => {
                Ok(Walked { handle, tag, key, value: Err(rot(expected, found)) })
            }
            Found::Nothing { expected, found } => Err(rot(expected, found)),
        }
    }
}

fn unknown(file: &dyn Reader, offset: u64, expected: u32, found: u32) -> Error {
    Error::corruption(
        file.path(),
        offset,
        "value record",
        format!("checksum {expected:#x}"),
        format!("checksum {found:#x}"),
    )
}

/// Returns true if bytes whose header or key is not sound look as trimming leaves them.
fn looks_trimmed(offset: u64, bytes: &[u8]) -> bool {
    let Some(header) = Header::decode(bytes) else { return false };
    let is_whole = header.record_bytes() == bytes.len() as u64;
    let key_bytes = if is_whole { header.key_bytes as usize } else { 0 };
    header.head_check == 0
        || atoms(offset, HEADER_BYTES + key_bytes).any(|part| bytes[part].iter().all(|byte| *byte == 0))
}

/// Returns the parts into which the borders of 512-byte sectors cut the first `bytes` bytes of a record at `offset`.
fn atoms(offset: u64, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let first = ATOM_BYTES as usize - (offset % ATOM_BYTES) as usize;
    let ends = (0..).map(move |n| (first + n * ATOM_BYTES as usize).min(bytes));
    let mut start = 0;
    ends.map_while(move |end| {
        let part = start..end;
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_cut_at_the_borders_of_sectors() {
        let parts: Vec<_> = atoms(4096 + 504, 24 + 1000).collect();
        assert_eq!(parts, [0..8, 8..520, 520..1024]);
        assert!(atoms(512, 512).eq(std::iter::once(0..512)));
    }

    #[test]
    fn only_zeros_look_trimmed() {
        let record = |filled: Range<usize>| {
            let mut bytes = vec![0; 600];
            bytes[filled].fill(7);
            bytes
        };
        assert!(looks_trimmed(4096, &record(0..0)));
        assert!(looks_trimmed(4096, &record(4..600)), "its checksum is zero");
        assert!(looks_trimmed(4096 + 504, &record(0..8)), "the second part of its header is zero");
        assert!(!looks_trimmed(4096, &record(0..500)), "no whole sector of its header is zero");
        assert!(!looks_trimmed(4096, &record(0..600)));
    }
}
