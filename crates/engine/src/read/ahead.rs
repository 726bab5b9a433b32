//! Read-ahead of a cursor: the entries found behind its present entry, and the values that it has begun to read.
//!
//! A cursor over values of the value log would wait once for each value. So a cursor that goes on in one direction
//! finds the next entries before the caller asks for them, and begins to read their values ([`ReadAhead`]).
//!
//! 1. The cursor has made a step, and the entry that it has found lies in the value log. The entry is copied here: it
//!    is the one that is *shown*. The merge goes on, and the entries that it finds are queued.
//! 2. A step takes the next entry of the queue. When half of the queue is gone, it is filled again.
//! 3. The merge stands on the last entry that was queued. So a cursor whose queue is empty goes on as it did before.
//! 4. A turn, or a new position, drops the queue. Reads in flight end unseen.
//!
//! **Bounds.** No more entries are queued than the scan has made steps, [`ENTRIES_MAX`] at most, and [`BYTES_MAX`] of
//! keys and values. So a scan that stops early has read about twice as much as it returned. A page of a scan tells the
//! cursor the rest that it needs.
//!
//! **Failure.** The scan gets an error of the merge, or of a value, when it comes to that entry.

use crate::Result;
use crate::base::value::Value;
use crate::versions::segments::{Pointer, Segments};
use situ_values::ReadAhead;
use std::collections::VecDeque;
use std::ops::Range;

/// The maximum number of queued entries.
pub(crate) const ENTRIES_MAX: usize = 32;
/// The maximum size of queued keys and values: the entry that reaches it is the last one.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// The number of entries and bytes that are worth queueing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Wanted {
    pub(crate) const MOST: Wanted = Wanted { entries: ENTRIES_MAX, bytes: BYTES_MAX };

    pub(crate) fn at_most(self, entries: usize, bytes: usize) -> Wanted {
        Wanted { entries: self.entries.min(entries), bytes: self.bytes.min(bytes) }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// A visible entry.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// The value, or the pointer that stands for it.
    pub(crate) value: Vec<u8>,
    pub(crate) is_in_log: bool,
}

impl Entry {
    fn pointer(&self) -> Option<Pointer<'_>> {
        Pointer::decode(&self.value).filter(|_| self.is_in_log)
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.pointer().map_or(self.value.len(), |pointer| pointer.handle.bytes as usize)
    }
}

/// The state of the merge behind the last entry.
enum Behind {
    /// The merge stands on the last entry.
    More,
    Nothing,
    Failed(crate::Error),
}

/// See the module's documentation.
pub(crate) struct Ahead {
    pub(crate) shown: Entry,
    queue: VecDeque<Entry>,
    bytes: usize,
    behind: Behind,
    reads: Option<ReadAhead>,
}

/// The entry behind the shown one.
pub(crate) enum Next {
    Entry,
    /// Nothing is queued, and the merge stands on the shown entry.
    FromMerge,
}

impl Ahead {
    pub(crate) fn of(shown: Entry) -> Ahead {
        Ahead { shown, queue: VecDeque::new(), bytes: 0, behind: Behind::More, reads: None }
    }

    /// Shows the next entry. `None` if there is none.
    pub(crate) fn step(&mut self) -> Result<Option<Next>> {
        if let Some(entry) = self.queue.pop_front() {
            self.bytes -= entry.bytes();
            self.shown = entry;
            return Ok(Some(Next::Entry));
        }
        match std::mem::replace(&mut self.behind, Behind::Nothing) {
            Behind::More => Ok(Some(Next::FromMerge)),
            Behind::Nothing => Ok(None),
            Behind::Failed(error) => Err(error),
        }
    }

    /// Returns true if the queue is low enough to be filled again. If all values lie in tables, nothing is queued.
    pub(crate) fn is_low(&self, wanted: Wanted) -> bool {
        let is_low = self.queue.len() * 2 <= wanted.entries && self.bytes * 2 <= wanted.bytes;
        let mut entries = self.queue.iter().chain([&self.shown]);
        is_low && matches!(self.behind, Behind::More) && entries.any(|entry| entry.is_in_log)
    }

    /// Queues the entries that `find` finds, and begins to read their values.
    pub(crate) fn fill(
        &mut self,
        wanted: Wanted,
        segments: &Segments,
        mut find: impl FnMut() -> Result<Option<Entry>>,
    ) {
        let (old, mut begun) = (self.queue.len(), self.queue.len());
        while matches!(self.behind, Behind::More) && self.queue.len() < wanted.entries && self.bytes < wanted.bytes {
            match find() {
                Ok(Some(entry)) => {
                    self.bytes += entry.bytes();
                    self.queue.push_back(entry);
                    // One that is too long is read when the scan gets there.
                    begun += usize::from(self.bytes <= wanted.bytes);
                }
                Ok(None) => self.behind = Behind::Nothing,
                Err(error) => self.behind = Behind::Failed(error),
            }
        }
        self.begin(old..begun, segments);
    }

    fn begin(&mut self, entries: Range<usize>, segments: &Segments) {
        // The value that is shown first may lie next to the following ones.
        let first = self.reads.is_none().then_some(&self.shown);
        let handles = self.queue.range(entries).chain(first).filter_map(|entry| Some(entry.pointer()?.handle));
        let handles: Vec<_> = handles.filter(|handle| segments.find(handle.segment).is_some()).collect();
        if self.reads.is_none() {
            self.reads = segments.read_ahead();
        }
        if let Some(reads) = &mut self.reads {
            reads.begin(handles);
        }
    }

    /// Returns the value of the shown entry, which lies in the value log.
    pub(crate) fn read(&mut self, segments: &Segments) -> Result<Value> {
        segments.read_begun(&self.shown.key, &self.shown.value, self.reads.as_mut())
    }
}
