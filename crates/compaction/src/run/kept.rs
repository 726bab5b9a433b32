//! The kept entries between workers and the builder, where several threads merge.
//!
//! **Invariants**: batches of a sub-range that wait for the builder have at most [`Sizes::sub_range_bytes`] bytes, or
//! are one. A worker begins a sub-range in the *window* only: those behind the last one that was built, one more than
//! there are workers.
//!
//! **Threads**: a worker for each sub-range, one builder. The lock is held for moving values only.

use super::control::{Control, Wait};
use super::write::WriteQueue;
use crate::dropped::DroppedSums;
use crate::error::Result;
use crate::task::TaskStats;
use situ_base::lock;
use situ_table::{Trailer, WarmBytes};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(doc)]
use super::control::Sizes;

/// The memory of a batch that is longer than this many usual batches is not kept.
const LARGEST_SPARE: u64 = 4;

/// Entries that a merge has kept.
#[derive(Default)]
pub(super) struct Batch {
    /// Keys and values, one behind the other.
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<KeptEntry>,
    /// The bytes of warm blocks that the merge had read when it kept the entry of this number.
    pub(super) warm: Vec<(usize, WarmBytes)>,
}

pub(super) struct KeptEntry {
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) trailer: Trailer,
    pub(super) new_user_key: bool,
}

impl Batch {
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.bytes.len() + size_of::<KeptEntry>() * self.entries.len()) as u64
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.warm.clear();
    }
}

/// A worker's report of a sub-range, behind its last batch.
pub(super) struct End {
    pub(super) stats: TaskStats,
    pub(super) dropped: Option<DroppedSums>,
    pub(super) warm: WarmBytes,
}

#[derive(Default)]
struct Lane {
    batches: VecDeque<Batch>,
    bytes: u64,
    end: Option<End>,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    /// The first sub-range that no worker has taken.
    next: usize,
    spares: Vec<Batch>,
    bytes: u64,
    peak: u64,
}

/// The kept entries, between the workers and the builder.
pub(super) struct KeptLanes {
    state: Mutex<State>,
    count: usize,
    window: usize,
    built: AtomicUsize,
}

/// The next part of a sub-range for the builder.
pub(super) enum Next {
    Batch(Batch),
    End(End),
}

impl KeptLanes {
    pub(super) fn new(sub_ranges: usize, window: usize) -> KeptLanes {
        let mut state = State::default();
        state.lanes.resize_with(sub_ranges, Lane::default);
        KeptLanes { state: Mutex::new(state), count: sub_ranges, window, built: AtomicUsize::new(0) }
    }

    /// Returns the number of sub-ranges that have been built.
    pub(super) fn built(&self) -> usize {
        self.built.load(Ordering::SeqCst)
    }

    pub(super) fn peak(&self) -> u64 {
        lock(&self.state).peak
    }

    /// The next sub-range for a worker; `None` when all have been built. Until then, the worker encodes.
    pub(super) fn begin(&self, (control, queue): (&Control, &WriteQueue)) -> Result<Option<usize>> {
        queue.wait_in_merge(control, Wait::Blocked, || {
            let (mut state, built) = (lock(&self.state), self.built());
            if built == self.count {
                return Some(None);
            }
            let next = state.next;
            assert!(built <= next, "sub-range {built} was built, and {next} is the first that no worker has taken");
            if next == self.count || next >= built + self.window {
                return None;
            }
            state.next += 1;
            Some(Some(next))
        })
    }

    /// Adds a batch to a sub-range when there is space. The result is memory for another batch.
    pub(super) fn push(
        &self,
        (control, queue): (&Control, &WriteQueue),
        sub_range: usize,
        batch: Batch,
    ) -> Result<Batch> {
        let bytes = batch.memory_bytes();
        let mut batch = Some(batch);
        let limit = control.sizes.sub_range_bytes;
        let memory = queue.wait_in_merge(control, Wait::Blocked, || {
            let mut state = lock(&self.state);
            let lane = &mut state.lanes[sub_range];
            assert!(lane.end.is_none(), "a batch behind the end of sub-range {sub_range} would be lost");
            if !lane.batches.is_empty() && lane.bytes + bytes > limit {
                return None;
            }
            lane.bytes += bytes;
            lane.batches.push_back(batch.take()?);
            state.bytes += bytes;
            state.peak = state.peak.max(state.bytes);
            Some(state.spares.pop().unwrap_or_default())
        })?;
        control.to_merge.notify();
        Ok(memory)
    }

    pub(super) fn end(&self, control: &Control, sub_range: usize, end: End) {
        let before = lock(&self.state).lanes[sub_range].end.replace(end);
        assert!(before.is_none(), "sub-range {sub_range} was merged twice");
        control.to_merge.notify();
    }

    /// The next of a sub-range, for the builder.
    pub(super) fn take(&self, (control, queue): (&Control, &WriteQueue), sub_range: usize) -> Result<Next> {
        let next = queue.wait_in_merge(control, Wait::Starved, || {
            let mut state = lock(&self.state);
            let lane = &mut state.lanes[sub_range];
            let Some(batch) = lane.batches.pop_front() else { return lane.end.take().map(Next::End) };
            lane.bytes -= batch.memory_bytes();
            assert!(lane.bytes == 0 || !lane.batches.is_empty(), "{} bytes wait without a batch", lane.bytes);
            Some(Next::Batch(batch))
        })?;
        if matches!(next, Next::End(_)) {
            let built = self.built.fetch_add(1, Ordering::SeqCst);
            assert_eq!(built, sub_range, "sub-ranges are built in the order of their keys");
            control.to_reader.notify();
        }
        control.to_merge.notify();
        Ok(next)
    }

    pub(super) fn give_back(&self, control: &Control, mut batch: Batch) {
        let mut state = lock(&self.state);
        state.bytes -= batch.memory_bytes();
        batch.clear();
        if batch.bytes.capacity() as u64 <= LARGEST_SPARE * control.sizes.batch_bytes {
            state.spares.push(batch);
        }
    }
}
