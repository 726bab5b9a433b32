//! The entries that a merge drops.
//!
//! Only a merge knows when a version of a key is dead: no snapshot and no present reader can ask for the version. If
//! its value lies in a value log, the value's bytes there are dead from then on. The log has to know how many bytes of
//! which *segment* are dead, so that it can clean the segments that are worth it.
//!
//! 1. The stream of versions gives its sink each input entry that is not in the outputs as it was, with the reason.
//! 2. The outputs look at value handles only. [`ValueHandles`], which the host may have, says where a value lies.
//! 3. The sums by segment are in the task's output as [`DroppedValues`]. They count when the output is installed, and
//!    never if the attempt is given up.
//! 4. The output also lists the places of the values, one by one ([`ValueLocation`]). The log may erase them when the
//!    input tables have no readers any more. Only a unit in this process lists them; the sums are all that a task
//!    needs.
//!
//! **Invariants**: each input entry is kept or reported, exactly once. The sums depend on the task and on the handles
//! alone.
//! **Cost**: nothing without [`ValueHandles`]; a value is read only if it is a handle. Sums take memory for each
//! segment, the list for each value, up to [`LISTED_MAX`] of a part of a task. Values beyond are in the sums only.
//! **Failure**: an unreadable handle is corruption: its bytes could never be counted again.

use crate::error::Result;
use crate::merge::Source;
use situ_storage::{Error, Excerpt};
use situ_table::{KeyKind, KeyRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an input entry is not in the outputs, or not as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DropReason {
    /// A newer version in the same stripe hides it.
    Hidden,
    /// A range tombstone covers it.
    RangeDeleted,
    /// It is a tombstone, and hides nothing.
    HidesNothing,
    /// The filter has removed it. A tombstone may be in its place.
    RemovedByFilter,
    /// The filter has given it another value.
    ChangedByFilter,
}

/// An input entry that is dropped.
pub(crate) struct DroppedEntry<'a> {
    pub(crate) key: KeyRef<'a>,
    /// Stands on the entry; `None` for a tombstone, which has no value, and whose source has gone on.
    pub(crate) source: Option<&'a dyn DyingEntry>,
}

/// The entry that a source stands on, as the source reports it. `next` is left out: in a table of virtual calls, it
/// would no longer be a part of the merge's loop.
pub(crate) trait DyingEntry {
    /// See [`Source::value`].
    fn dying_value(&self) -> &[u8];
    /// See [`Source::file`].
    fn dying_file(&self) -> String;
}

impl<S: Source> DyingEntry for S {
    fn dying_value(&self) -> &[u8] {
        self.value()
    }

    fn dying_file(&self) -> String {
        self.file()
    }
}

impl DroppedEntry<'_> {
    pub(crate) fn value(&self) -> &[u8] {
        self.source.map_or(&[], |source| source.dying_value())
    }
}

/// The maximum number of dropped values that a part of a task lists: 32 bytes each.
const LISTED_MAX: usize = 1 << 20;

/// The location of a value in a value log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueLocation {
    /// The part of the log that is cleaned as one.
    pub segment: u64,
    /// The offset of the value's record in the segment.
    pub offset: u64,
    /// The length of the record.
    pub length: u64,
    /// The number of bytes of the segment that are dead without the value.
    pub bytes: u64,
}

/// Reads the value handles of a store.
pub trait ValueHandles: Send + Sync {
    /// Returns the location of the value of this handle; `None` if these bytes are no handle. The answer depends on the
    /// bytes alone.
    fn locate(&self, handle: &[u8]) -> Option<ValueLocation>;

    /// Returns the first `bytes` bytes of the handle's value, or the whole value if it is shorter. Returns `None` if
    /// the handle carries fewer bytes. The answer depends on the bytes of the handle alone. The default carries none.
    fn prefix<'a>(&self, handle: &'a [u8], bytes: usize) -> Option<&'a [u8]> {
        let _ = (handle, bytes);
        None
    }
}

/// The values that a task has dropped of one segment of a value log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedValues {
    /// The segment.
    pub segment: u64,
    /// Value handles that lead there.
    pub handles: u64,
    /// The bytes of their values.
    pub bytes: u64,
}

/// Sums dropped value handles by segment, and lists them.
pub(crate) struct DroppedSums {
    handles: Arc<dyn ValueHandles>,
    segments: BTreeMap<u64, DroppedValues>,
    listed: Vec<ValueLocation>,
}

impl DroppedSums {
    pub(crate) fn new(handles: Arc<dyn ValueHandles>) -> DroppedSums {
        DroppedSums { handles, segments: BTreeMap::new(), listed: Vec::new() }
    }

    pub(crate) fn add(&mut self, entry: &DroppedEntry<'_>) -> Result<()> {
        if entry.key.trailer.kind() == Some(KeyKind::ValueHandle) { self.add_handle(entry) } else { Ok(()) }
    }

    fn add_handle(&mut self, entry: &DroppedEntry<'_>) -> Result<()> {
        let Some(location) = self.handles.locate(entry.value()) else {
            let file = entry.source.map_or(String::new(), |source| source.dying_file());
            let found = format!("{} at {:?}", Excerpt(entry.value()), entry.key);
            return Err(Error::corruption(&file, 0, "value handles", "a value handle", found).into());
        };
        let ValueLocation { segment, bytes, .. } = location;
        let sum = self.segments.entry(segment).or_insert(DroppedValues { segment, handles: 0, bytes: 0 });
        sum.handles += 1;
        sum.bytes += bytes;
        if self.listed.len() < LISTED_MAX {
            self.listed.push(location);
        }
        Ok(())
    }

    /// Adds the values that another part of the same task has dropped.
    pub(crate) fn add_all(&mut self, other: DroppedSums) {
        for (segment, more) in other.segments {
            let sum = self.segments.entry(segment).or_insert(DroppedValues { segment, handles: 0, bytes: 0 });
            sum.handles += more.handles;
            sum.bytes += more.bytes;
        }
        self.listed.extend(other.listed);
    }

    /// By segment ascending; the list by segment, then offset.
    pub(crate) fn finish(mut self) -> (Vec<DroppedValues>, Vec<ValueLocation>) {
        let handles: u64 = self.segments.values().map(|sum| sum.handles).sum();
        let listed = self.listed.len() as u64;
        assert!(listed <= handles, "{listed} values are listed as dead, and {handles} were dropped");
        self.listed.sort_unstable();
        (self.segments.into_values().collect(), self.listed)
    }
}

#[cfg(test)]
mod tests;
