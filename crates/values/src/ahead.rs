//! Reads of values that will be asked for soon. Each read is in flight before its caller waits for it.
//!
//! 1. [`ReadAhead::begin`] gets the handles of the next values. It sorts them by place. Records that lie next to each
//!    other, or nearly so, become a *part*. A part is one read.
//! 2. A part that is readable without a wait is read at once, on the calling thread. The other parts are submitted, and
//!    all are in flight together.
//! 3. [`ReadAhead::take`] waits for the part of a value, and checks the record as [`ValueLog::read`] does.
//!
//! **Failure.** A value that cannot be read or is damaged is an error of its own `take`, and of no other one. If the
//! read of a part fails, each of its values is read alone when it is taken.
//!
//! **Memory.** The caller bounds the values that were begun and not taken. A part is freed with its last value. A gap
//! inside a part is at most [`GAP_BYTES_MAX`].
//!
//! **Threads.** One thread at a time. The volume answers from whichever thread has the answer.
//!
//! **Rejected**: a thread that reads ahead. The volume has many reads in flight from one thread, and each cursor would
//! need a thread.

use crate::Result;
use crate::handle::Handle;
use crate::log::ValueLog;
use crate::value::Value;
use situ_storage::memory::zeroed;
use situ_storage::{FinishedRead, ReadQueue};
use std::fmt;
use std::sync::Arc;

/// Two records are read together if there are no more bytes between them. A layout that gives records sectors of their
/// own leaves gaps of less than a sector.
const GAP_BYTES_MAX: u64 = 4096;
/// A read that is longer would let the first of its values wait for the last one.
const PART_BYTES_MAX: u64 = 256 << 10;
/// The maximum number of parts in flight.
const READS_IN_FLIGHT: usize = 64;

/// A read-ahead of values: see the module's documentation.
pub struct ReadAhead {
    log: Arc<ValueLog>,
    queue: ReadQueue,
    parts: Vec<Part>,
    next_tag: u64,
}

/// Records of one segment that one read brings.
struct Part {
    tag: u64,
    segment: u64,
    start: u64,
    end: u64,
    /// Records of it that were not taken.
    left: usize,
    state: State,
}

enum State {
    InFlight,
    Read(Vec<u8>),
    Failed,
}

impl Part {
    fn has(&self, handle: &Handle) -> bool {
        self.segment == handle.segment && self.start <= u64::from(handle.offset) && handle.end() <= self.end
    }

    /// Returns the bytes of a record. `None` if the read has failed.
    fn take(&mut self, handle: &Handle) -> Option<Vec<u8>> {
        self.left = self.left.saturating_sub(1);
        let State::Read(bytes) = &mut self.state else { return None };
        if bytes.len() == handle.bytes as usize {
            return Some(std::mem::take(bytes));
        }
        let at = (u64::from(handle.offset) - self.start) as usize;
        bytes.get(at..at + handle.bytes as usize).map(<[u8]>::to_vec)
    }
}

impl ReadAhead {
    /// Makes a read-ahead for values of this log.
    pub fn new(log: &Arc<ValueLog>) -> ReadAhead {
        let queue = ReadQueue::new(log.env.executor.event(), READS_IN_FLIGHT);
        ReadAhead { log: Arc::clone(log), queue, parts: Vec::new(), next_tag: 0 }
    }

    /// Begins to read these values. A value whose read cannot begin is read when it is taken.
    pub fn begin(&mut self, handles: impl IntoIterator<Item = Handle>) {
        let mut handles: Vec<Handle> = handles.into_iter().filter(|handle| self.log.is_readable(handle)).collect();
        handles.sort_unstable();
        for together in handles.chunk_by(are_neighbours) {
            self.begin_neighbours(together);
        }
    }

    /// Begins reads of records with small gaps, cut into parts of a bounded length.
    fn begin_neighbours(&mut self, mut handles: &[Handle]) {
        while let Some(first) = handles.first() {
            let limit = u64::from(first.offset) + PART_BYTES_MAX;
            let count = handles.partition_point(|handle| handle.end() <= limit).max(1);
            let (part, rest) = handles.split_at(count);
            self.begin_part(part);
            handles = rest;
        }
    }

    fn begin_part(&mut self, handles: &[Handle]) {
        let (Some(first), Some(end)) = (handles.first(), handles.iter().map(Handle::end).max()) else { return };
        let Ok(file) = self.log.files.open(&*self.log.volume, first.segment) else { return };
        let (tag, start) = (self.next_tag, u64::from(first.offset));
        let Ok(mut buffer) = zeroed((end - start) as usize, file.path()) else { return };
        let state = match file.read_now(start, &mut buffer) {
            Ok(true) => State::Read(buffer),
            _ if self.queue.submit(&*file, tag, start, buffer).is_ok() => State::InFlight,
            _ => return,
        };
        self.next_tag += 1;
        self.parts.push(Part { tag, segment: first.segment, start, end, left: handles.len(), state });
    }

    /// Returns the value of a handle: of one that was begun, or of any other one. Each is taken once.
    ///
    /// # Errors
    /// As [`ValueLog::read`].
    pub fn take(&mut self, handle: &Handle, key: &[u8]) -> Result<Value> {
        let Some(at) = self.parts.iter().position(|part| part.has(handle)) else { return self.log.read(handle, key) };
        self.wait_for(at);
        let record = self.parts[at].take(handle);
        if self.parts[at].left == 0 {
            self.parts.swap_remove(at);
        }
        match record {
            Some(record) => self.log.checked(handle, key, record),
            None => self.log.read(handle, key),
        }
    }

    fn wait_for(&mut self, at: usize) {
        let mut done = Vec::new();
        while matches!(self.parts[at].state, State::InFlight) {
            let count = self.queue.wait(&mut done);
            assert!(count > 0, "a part in flight is in the queue");
            done.drain(..).for_each(|read| self.land(read));
        }
    }

    fn land(&mut self, read: FinishedRead) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.tag == read.tag) {
            part.state = match read.result {
                Ok(()) => State::Read(read.buffer),
                Err(_) => State::Failed,
            };
        }
    }
}

/// Returns true if two records, in the order of their places, are read together.
fn are_neighbours(one: &Handle, next: &Handle) -> bool {
    one.segment == next.segment && u64::from(next.offset) <= one.end() + GAP_BYTES_MAX
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadAhead({} parts, {} in flight)", self.parts.len(), self.queue.in_flight())
    }
}
