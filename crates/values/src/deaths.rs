//! Deaths of values, as owners report them.
//!
//! An owner tells sums, exact handles, or both. Sums choose the victims of collection. Exact handles are what trimming
//! needs.
//!
//! **Memory**: exact ranges of all segments together have a limit ([`Options::dead_ranges_bytes_max`](crate::Options)).
//! When they exceed it, the log forgets the ranges of the segment that has most. Its sums stay.

use crate::Result;
use crate::counters::add;
use crate::dead::Ranges;
use crate::format::{SECTOR_BYTES, end_of};
use crate::handle::Handle;
use crate::log::ValueLog;
use crate::segment::{Phase, Segment, State};
use situ_base::lock;
use situ_storage::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The approximate memory that a sector number takes in a set.
const SET_ENTRY_BYTES: usize = 8;

impl ValueLog {
    /// Marks these values of one segment as dead: no caller can ask for them any more, now or after a crash.
    /// The values may be zeroed.
    ///
    /// # Errors
    /// As [`may_trim`](ValueLog::may_trim). Nothing was counted then.
    pub fn died(&self, segment: u64, handles: &[Handle]) -> Result<()> {
        self.may_trim(segment, handles)?;
        self.add_dead(segment, handles.iter().map(Handle::footprint).sum());
        Ok(())
    }

    /// Adds `bytes`, a sum of footprints, to the dead bytes of a segment. For owners that know sums before they know,
    /// or may say, which values: [`may_trim`](ValueLog::may_trim) follows, or does not. An unknown segment is ignored:
    /// it was removed.
    pub fn add_dead(&self, segment: u64, bytes: u64) {
        if let Some(segment) = self.find(segment) {
            lock(&segment.state).dead_bytes += bytes;
        }
    }

    /// Allows trimming of values that were counted as dead before. From now on no caller can ask for them, even after a
    /// crash: they may be zeroed. An unknown segment is ignored: it was removed.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): a handle is not one of this segment. None of them was taken then.
    pub fn may_trim(&self, segment: u64, handles: &[Handle]) -> Result<()> {
        let Some(found) = self.find(segment) else { return Ok(()) };
        let wrong = self.change(&found, |state| match handles.iter().find(|handle| !state.can_have(&found, handle)) {
            None => {
                state.died(&found, handles);
                None
            }
            wrong => wrong,
        });
        if let Some(wrong) = wrong {
            return Err(Error::Invalid(format!("{wrong:?} is no record of segment {segment}; nothing was trimmed")));
        }
        self.forget_ranges();
        Ok(())
    }

    /// Changes the state of a segment. Updates the sum of the memory for dead ranges, and the list of duties for
    /// `tidy`.
    pub(crate) fn change<T>(&self, segment: &Segment, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&segment.state);
        let before = state.ranges_bytes();
        let result = change(&mut state);
        let (after, duty) = (state.ranges_bytes(), state.duty());
        drop(state);
        self.ranges_bytes.fetch_add(after, Ordering::Relaxed);
        self.ranges_bytes.fetch_sub(before, Ordering::Relaxed);
        if duty.any() {
            lock(&self.duties).add(segment.identity.segment, duty);
        }
        result
    }

    /// Returns the memory that is taken by what is known of dead ranges.
    pub fn dead_ranges_bytes(&self) -> usize {
        self.ranges_bytes.load(Ordering::Relaxed)
    }

    /// Keeps the ranges of all segments within their limit.
    fn forget_ranges(&self) {
        if self.dead_ranges_bytes() <= self.options.dead_ranges_bytes_max {
            return;
        }
        let segments: Vec<Arc<Segment>> = lock(&self.segments).values().cloned().collect();
        let mut sizes: Vec<_> = segments.iter().map(|segment| (lock(&segment.state).ranges_bytes(), segment)).collect();
        sizes.sort_by_key(|(bytes, _)| *bytes);
        while self.dead_ranges_bytes() > self.options.dead_ranges_bytes_max
            && let Some((_, segment)) = sizes.pop()
        {
            self.change(segment, State::forget);
            add(&self.meters.forgotten, 1);
        }
    }
}

impl State {
    /// Returns true if the segment can have the record. Any handle may be one of the missing records of an incomplete
    /// segment.
    fn can_have(&self, segment: &Segment, handle: &Handle) -> bool {
        let is_known = handle.end() <= self.data_end || self.is_incomplete || self.phase == Phase::Lost;
        handle.segment == segment.identity.segment && handle.is_possible() && is_known
    }

    fn died(&mut self, segment: &Segment, handles: &[Handle]) {
        let rounded = |handle: &Handle| handle.offset..(u64::from(handle.offset) + handle.footprint()) as u32;
        // A missing record takes no room that could be trimmed.
        let handles = || handles.iter().filter(|handle| handle.end() <= self.data_end);
        let new = Ranges::of(handles().map(rounded)).without(&self.gone);
        let sector = SECTOR_BYTES as u32;
        self.fresh.extend(new.iter().flat_map(|range| range.start / sector..range.end.div_ceil(sector)));
        self.waiting = self.waiting.union(&new);
        let gap = |handle: &Handle| {
            let range = rounded(handle);
            range.end..end_of(segment.layout, u64::from(handle.offset), u64::from(handle.bytes)) as u32
        };
        self.gone = self.gone.union(&Ranges::of(handles().map(gap)));
    }

    /// Adds bytes that were zeros from the beginning.
    pub(crate) fn add_gap(&mut self, gap: Range<u64>) {
        let start = gap.start.next_multiple_of(crate::format::ALIGN) as u32;
        self.gone.add(start..gap.end as u32);
    }

    fn ranges_bytes(&self) -> usize {
        (self.waiting.len() + self.gone.len()) * size_of::<(u32, u32)>()
            + (self.fresh.len() + self.ripe.len()) * SET_ENTRY_BYTES
    }

    pub(crate) fn forget(&mut self) {
        (self.waiting, self.gone) = (Ranges::default(), Ranges::default());
        self.fresh.clear();
        self.ripe.clear();
    }
}
