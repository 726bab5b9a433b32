//! Runs of invisible entries: deleted ones, old versions, and writes that are newer than the reader.
//!
//! A cursor counts its steps over such entries. After [`STEPS_BEFORE_LOOK`] steps, it looks up whether it is in a known
//! gap (`versions/gaps.rs`). If so, it leaves the gap with one seek. If not, it watches the keys ahead, and notes a gap
//! at the end of the run. A cursor that has left a gap looks again after the first step, so each reader of a queue's
//! end extends the gap.
//!
//! Each snapshot has its own gaps. They hold only at the snapshot's sequence number, and nothing invalidates them.

use crate::versions::gaps::{Gap, Gaps, STEPS_BEFORE_LOOK, Side, SnapshotGaps, Watching, behind};
use crate::versions::view::View;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Steps over versions of one key before a cursor seeks past the others.
pub(crate) const VERSIONS_BEFORE_SEEK: u64 = if cfg!(any(test, feature = "costly-checks")) { 2 } else { 8 };

/// The gaps that a cursor may use and add to.
pub(crate) struct KnownGaps {
    /// The keyspace's current view.
    pub(crate) current: Arc<ArcSwap<View>>,
    pub(crate) of_keyspace: Arc<Gaps>,
    /// The `since` of gaps that this reader finds; see `versions/gaps.rs`.
    pub(crate) since: u64,
    /// True if the keyspace has a compaction filter. It may remove entries from the current view that an older view
    /// has.
    pub(crate) has_filter: bool,
    /// For a reader of a snapshot: the keyspace's number, and the snapshot's gaps.
    pub(crate) of_snapshot: Option<(u32, Arc<SnapshotGaps>)>,
    /// Invisible entries that the reader has stepped over.
    pub(crate) steps: u64,
}

impl Drop for KnownGaps {
    /// Adds the reader's steps to those of the keyspace. An atomic addition for each run would slow down scans.
    fn drop(&mut self) {
        if self.steps > 0 {
            self.of_keyspace.add_steps(self.steps);
        }
    }
}

impl KnownGaps {
    /// Returns the last of the adjoining gaps from `key` upward, for a reader of `view` at `sequence`.
    #[inline]
    pub(crate) fn past(&self, view: &Arc<View>, key: &[u8], sequence: u64) -> Option<Arc<Gap>> {
        let mut last = self.one_past(key, sequence)?;
        while let Some(end) = &last.end
            && let Some(next) = self.one_past(end, sequence)
        {
            last = next;
        }
        self.is_of_use(view).then_some(last)
    }

    /// Returns the first of the adjoining gaps from `end` downward, for a reader of `view` at `sequence`.
    #[inline]
    pub(crate) fn before(&self, view: &Arc<View>, end: Option<&[u8]>, sequence: u64) -> Option<Arc<Gap>> {
        let mut first = self.one_before(end, sequence)?;
        while let Some(next) = self.one_before(Some(&first.begin), sequence) {
            first = next;
        }
        self.is_of_use(view).then_some(first)
    }

    #[inline]
    fn one_past(&self, key: &[u8], sequence: u64) -> Option<Arc<Gap>> {
        let of_snapshot = || self.of_snapshot.as_ref().and_then(|(keyspace, gaps)| gaps.past(*keyspace, key));
        self.of_keyspace.past(key, sequence).or_else(of_snapshot)
    }

    #[inline]
    fn one_before(&self, end: Option<&[u8]>, sequence: u64) -> Option<Arc<Gap>> {
        let of_snapshot = || self.of_snapshot.as_ref().and_then(|(keyspace, gaps)| gaps.before(*keyspace, end));
        self.of_keyspace.before(end, sequence).or_else(of_snapshot)
    }

    /// Returns true if `view` has no entries that the gap's finder could not see. Call it after the gap was found.
    fn is_of_use(&self, view: &Arc<View>) -> bool {
        !self.has_filter || Arc::ptr_eq(&self.current.load(), view)
    }
}

/// The entries that a cursor has stepped over since it last stood on a visible one, or was positioned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadRun {
    pub(crate) steps: u64,
    look_at: u64,
    /// Steps over versions of the current key, or over writes that are newer than the reader.
    pub(crate) versions: u64,
}

impl DeadRun {
    #[inline]
    pub(crate) fn new() -> DeadRun {
        DeadRun { steps: 0, look_at: STEPS_BEFORE_LOOK, versions: 0 }
    }

    /// Returns true if the cursor has to look for gaps before it goes on.
    #[inline]
    pub(crate) fn is_time_to_look(&self) -> bool {
        self.steps >= self.look_at
    }

    pub(crate) fn has_looked(&mut self) {
        self.look_at = self.steps + STEPS_BEFORE_LOOK;
    }
}

/// A cursor's search for a gap, in one run of dead entries.
#[derive(Default)]
pub(crate) struct Search {
    /// True if the end of the run needs work.
    is_under_way: bool,
    side: Side,
    /// No entry between this bound and the first step is visible. The inner `None` is the end of the keys.
    origin: Option<Option<Vec<u8>>>,
    /// The near bound of the gap for readers of the snapshot: its beginning, or its end if the cursor moves backward.
    bound: Option<Option<Vec<u8>>>,
    watching: Option<Watching>,
    /// True if a watch was refused. The cursor does not ask for another one.
    is_refused: bool,
    /// Scratch space for the key of a write that was newer than the reader.
    pub(crate) newer: Vec<u8>,
}

impl Search {
    /// Notes that the cursor was positioned at `origin`, the near bound of its keys.
    #[inline]
    pub(crate) fn begin(&mut self, side: Side, origin: Option<Vec<u8>>) {
        debug_assert!(self.watching.is_none() && self.bound.is_none(), "the run before has not ended");
        (self.is_under_way, self.is_refused) = (true, false);
        self.side = side;
        self.origin = Some(origin);
    }

    /// Notes that the cursor is about to leave the gap that contains `key`. A gap of a snapshot may contain newer puts,
    /// so a watch ends there.
    pub(crate) fn will_jump(&mut self, known: &KnownGaps, run: &DeadRun, key: &[u8]) {
        if known.of_snapshot.is_some() {
            self.meet_newer(run, key);
        }
    }

    /// Notes that the cursor has left a gap, and stands at its bound `bound`.
    pub(crate) fn has_jumped(&mut self, run: &mut DeadRun, bound: Vec<u8>) {
        if self.watching.is_none() {
            run.look_at = run.steps + 1;
            self.origin = Some(Some(bound));
            self.is_under_way = true;
        }
    }

    /// Begins to watch the keys ahead, up to `limit`. Without a better bound, the watch begins at `nearest`. Returns
    /// the bound to which the cursor must move, if the watch has begun.
    pub(crate) fn watch(
        &mut self,
        known: &KnownGaps,
        view: &View,
        nearest: Vec<u8>,
        limit: Option<Vec<u8>>,
    ) -> Option<Option<Vec<u8>>> {
        if self.watching.is_some() || self.is_refused {
            return None;
        }
        self.is_under_way = true;
        let bound = self.origin.take().unwrap_or(Some(nearest));
        if known.of_snapshot.is_some() && self.bound.is_none() {
            self.bound = Some(bound.clone());
        }
        let (begin, end) = match self.side {
            Side::Front => (bound.clone().unwrap_or_default(), limit),
            Side::Back => (limit.unwrap_or_default(), bound.clone()),
        };
        let is_current = || Arc::ptr_eq(&known.current.load().active, &view.active);
        if is_current() {
            self.watching = known.of_keyspace.watch(begin, end, self.side, known.since, is_current);
        }
        self.is_refused = self.watching.is_none();
        self.watching.is_some().then_some(bound)
    }

    /// Notes that the run has met a version of `key` that may be a put newer than the reader. The gap of the keyspace
    /// ends there.
    #[inline]
    pub(crate) fn meet_newer(&mut self, run: &DeadRun, key: &[u8]) {
        if self.watching.is_some() {
            self.end_watch(run, key);
        }
    }

    #[cold]
    fn end_watch(&mut self, run: &DeadRun, key: &[u8]) {
        if let Some(watching) = self.watching.take() {
            let reached = if self.side == Side::Front { key.to_vec() } else { behind(key) };
            watching.publish(Some(reached), run.steps);
        }
    }

    /// Ends a run that has no gap to publish. Returns false if the run may have one: call [`end`](Search::end).
    #[inline]
    pub(crate) fn ends_at_once(&mut self) -> bool {
        if self.is_under_way && (self.watching.is_some() || self.bound.is_some()) {
            return false;
        }
        if self.is_under_way {
            (self.is_under_way, self.is_refused) = (false, false);
            self.origin = None;
        }
        true
    }

    /// Ends the run at the key `reached`, and publishes the gap that it found. A run that failed has no such key.
    pub(crate) fn end(&mut self, known: &KnownGaps, run: &DeadRun, reached: Option<Option<Vec<u8>>>) {
        let search = std::mem::take(self);
        self.side = search.side;
        let Some(reached) = reached else { return };
        if let (Some(bound), Some((keyspace, gaps))) = (search.bound, &known.of_snapshot) {
            let (begin, end) = match search.side {
                Side::Front => (bound, reached.clone()),
                Side::Back => (reached.clone(), bound),
            };
            gaps.add(*keyspace, begin.unwrap_or_default(), end, run.steps);
        }
        if let Some(watching) = search.watching {
            watching.publish(reached, run.steps);
        }
    }
}
