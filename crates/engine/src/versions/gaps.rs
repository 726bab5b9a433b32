//! Gaps: key ranges that a reader found empty, so that later readers can skip them.
//!
//! Deleted entries stay in memtables and tables until a compaction drops them. A queue leaves millions of them before
//! its first entry, and each reader of the first entry would step over all of them. A *gap* says: from the sequence
//! number `since` on, no key in `begin..end` has a visible value. A reader at `since` or above seeks past the gap.
//!
//! 1. A cursor that has made some steps without finding a visible entry *watches* the keys ahead ([`Gaps::watch`]).
//! 2. The cursor seeks again to the beginning of the watch, and continues. If it meets an invisible put above its own
//!    sequence number, it reports the put, and the gap ends there.
//! 3. At the next visible entry, the watch becomes a gap ([`Watching::publish`]).
//! 4. A writer that has put a key into a memtable looks for watches and gaps that contain the key ([`Gaps::put`]). It
//!    splits a gap at the key. A watch will end at the key. Deletions change nothing.
//!
//! # Invariants
//!
//! * Gaps are disjoint and ascend.
//! * Every put above `since` in `begin..end` cuts the gap before the put becomes visible. The reader that found
//!   the gap met all puts at or below `since`.
//!
//! # Threads
//!
//! A reader registers its watch, then reads memtables. A writer writes its memtable, then looks for watches. Each has a
//! sequentially consistent fence between its two steps. So the reader finds the put, or the writer finds the watch. The
//! reader sees only the memtables of its view. Therefore a watch begins only if the view's active memtable is still the
//! keyspace's active one. The reader checks this after its fence.
//!
//! Lookups take no lock. While a keyspace has neither gaps nor watches, a batch of writes pays one fence and one load.
//!
//! # Sequence numbers
//!
//! The `since` of a gap is the sequence number of the reader that found it. A reader of a snapshot reads tables from
//! which compactions may have dropped versions between the snapshot and the present. So its gaps hold from the present
//! on, which it reads after the view, and for the snapshot itself ([`SnapshotGaps`]). A compaction filter drops entries
//! without a sequence number. In a keyspace with a filter, only readers of the current view use gaps.
//!
//! The consumer of a queue extends a gap with each entry. If adjoining gaps were always joined, `since` would rise with
//! each extension, and a slightly older reader could not use the gap at all. So adjoining gaps stay apart while there
//! is room. Beyond [`GAPS_MAX`], the list joins two old gaps that spare few steps. So a reader that is some extensions
//! late steps over about as many entries as died meanwhile.
//!
//! # Bounds
//!
//! A keyspace has at most [`GAPS_MAX`] gaps and [`WATCHES_MAX`] watches, with keys up to [`KEY_BYTES_MAX`]. If the list
//! is full and no two gaps adjoin, it drops the gap that spares the fewest steps.
//!
//! # Rejected
//!
//! *A gap for each range deletion as it is written*: every put would search gaps that may never be read. *A marker
//! entry in the memtable*: a snapshot would see it, and each flush would have to copy it.

#![allow(unexpected_cfgs, reason = "cfg(loom) is set by hand to explore the model")]

#[cfg(all(test, loom))]
mod model;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, Mutex, Ordering, Shared, fence};

/// Maximum number of gaps of a keyspace, or of a snapshot of it.
const GAPS_MAX: usize = if cfg!(any(test, feature = "costly-checks")) { 24 } else { 64 };
/// Maximum number of cursors of a keyspace that watch at a time. Further cursors just step.
const WATCHES_MAX: usize = 16;
/// Maximum length of a key that bounds a gap.
pub(crate) const KEY_BYTES_MAX: usize = 1 << 10;
/// Steps over dead entries before a cursor looks for a gap, or begins to watch for one.
pub(crate) const STEPS_BEFORE_LOOK: u64 = if cfg!(any(test, feature = "costly-checks")) { 2 } else { 32 };

/// A key range without a visible value. If `end` is `None`, the range has no upper bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) begin: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
    /// The lowest sequence number of readers that may use the gap.
    since: u64,
    /// About the number of steps that it spares.
    steps: u64,
}

impl Gap {
    fn contains(&self, key: &[u8]) -> bool {
        &self.begin[..] <= key && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    fn touches(&self, next: &Gap) -> bool {
        self.end.as_ref() == Some(&next.begin)
    }
}

/// A key range in which a cursor looks for a gap.
#[derive(Debug)]
struct Watch {
    begin: Vec<u8>,
    end: Option<Vec<u8>>,
    side: Side,
    /// The put nearest to the cursor's starting side. Changed only under the lock of the list.
    nearest: Mutex<Option<Vec<u8>>>,
}

/// The side of a watch from which its cursor comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Side {
    /// From the smallest key.
    #[default]
    Front,
    /// From the largest key.
    Back,
}

impl Watch {
    fn contains(&self, key: &[u8]) -> bool {
        &self.begin[..] <= key && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    fn note(&self, key: &[u8]) {
        let mut nearest = sync::lock(&self.nearest);
        let is_nearer = nearest.as_ref().is_none_or(|nearest| match self.side {
            Side::Front => key < &nearest[..],
            Side::Back => key > &nearest[..],
        });
        if is_nearer {
            *nearest = Some(key.to_vec());
        }
    }

    /// Returns the part of the watch without a put, for a cursor that came as far as `reached`. From the front, the
    /// part ends before this key; from the back, it begins with it.
    fn found(&self, reached: Option<Vec<u8>>) -> (Vec<u8>, Option<Vec<u8>>) {
        let nearest = sync::lock(&self.nearest).take();
        match self.side {
            Side::Front => {
                let end = match (reached, nearest) {
                    (Some(reached), Some(nearest)) => Some(reached.min(nearest)),
                    (reached, nearest) => reached.or(nearest),
                };
                (self.begin.clone(), end)
            }
            Side::Back => {
                let begin = reached.unwrap_or_default().max(nearest.map_or_else(Vec::new, |nearest| behind(&nearest)));
                (begin, self.end.clone())
            }
        }
    }
}

/// Returns the first key after `key`.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Gaps in key order, and watches.
#[derive(Debug, Clone, Default)]
struct List {
    gaps: Vec<Arc<Gap>>,
    watches: Vec<Arc<Watch>>,
}

impl List {
    fn is_empty(&self) -> bool {
        self.gaps.is_empty() && self.watches.is_empty()
    }

    /// Finds the gap that contains `key`, and returns its index.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let at = self.gaps.partition_point(|gap| &gap.begin[..] <= key).checked_sub(1)?;
        self.gaps[at].contains(key).then_some(at)
    }

    /// Finds the gap that contains the last keys before `end`, and returns its index.
    fn find_before(&self, end: Option<&[u8]>) -> Option<usize> {
        let at = self.gaps.partition_point(|gap| end.is_none_or(|end| &gap.begin[..] < end)).checked_sub(1)?;
        let reaches = match (&self.gaps[at].end, end) {
            (None, _) => true,
            (Some(gap_end), Some(end)) => &gap_end[..] >= end,
            (Some(_), None) => false,
        };
        reaches.then_some(at)
    }

    /// Returns the last of the adjoining gaps from index `at` upward that a reader at `sequence` may use.
    fn last_from(&self, at: usize, sequence: u64) -> Option<&Arc<Gap>> {
        let mut last = self.gaps.get(at).filter(|gap| gap.since <= sequence)?;
        for next in &self.gaps[at + 1..] {
            if !last.touches(next) || next.since > sequence {
                break;
            }
            last = next;
        }
        Some(last)
    }

    /// Returns the first of the adjoining gaps from index `at` downward that a reader at `sequence` may use.
    fn first_from(&self, at: usize, sequence: u64) -> Option<&Arc<Gap>> {
        let mut first = self.gaps.get(at).filter(|gap| gap.since <= sequence)?;
        for before in self.gaps[..at].iter().rev() {
            if !before.touches(first) || before.since > sequence {
                break;
            }
            first = before;
        }
        Some(first)
    }

    fn past(&self, key: &[u8], sequence: u64) -> Option<&Arc<Gap>> {
        self.last_from(self.find(key)?, sequence)
    }

    fn before(&self, end: Option<&[u8]>, sequence: u64) -> Option<&Arc<Gap>> {
        self.first_from(self.find_before(end)?, sequence)
    }

    fn concerns(&self, key: &[u8]) -> bool {
        self.find(key).is_some() || self.watches.iter().any(|watch| watch.contains(key))
    }

    /// Splits the gap that contains `key`, because the key was put.
    fn cut(&mut self, key: &[u8]) {
        let Some(at) = self.find(key) else { return };
        let gap = Arc::clone(&self.gaps[at]);
        let part = |begin: Vec<u8>, end: Option<Vec<u8>>| {
            let is_empty = end.as_ref().is_some_and(|end| *end <= begin);
            let part = Gap { begin, end, since: gap.since, steps: gap.steps / 2 };
            (!is_empty).then(|| Arc::new(part))
        };
        let parts = [part(gap.begin.clone(), Some(key.to_vec())), part(behind(key), gap.end.clone())];
        self.gaps.splice(at..=at, parts.into_iter().flatten());
        self.bound();
    }

    /// Adds the parts of `gap` that no other gap covers.
    fn add(&mut self, gap: Gap) {
        let Gap { begin, end, since, steps } = gap;
        let mut parts: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut from = Some(begin);
        for known in &self.gaps {
            let Some(begin) = from.take() else { break };
            if known.end.as_ref().is_some_and(|end| *end <= begin) {
                from = Some(begin);
                continue;
            }
            if end.as_ref().is_some_and(|end| *end <= known.begin) {
                from = Some(begin);
                break;
            }
            if begin < known.begin {
                parts.push((begin, Some(known.begin.clone())));
            }
            from = known.end.clone();
        }
        if let Some(begin) = from
            && end.as_ref().is_none_or(|end| begin < *end)
        {
            parts.push((begin, end));
        }
        let steps = steps / parts.len().max(1) as u64 + 1;
        for (begin, end) in parts {
            let at = self.gaps.partition_point(|known| known.begin < begin);
            self.gaps.insert(at, Arc::new(Gap { begin, end, since, steps }));
            self.bound();
        }
    }

    /// Joins adjoining gaps with the same `since`. Then joins or drops gaps until at most [`GAPS_MAX`] are left.
    fn bound(&mut self) {
        let mut at = 1;
        while at < self.gaps.len() {
            let (one, next) = (&self.gaps[at - 1], &self.gaps[at]);
            if one.since == next.since && one.touches(next) {
                self.join(at - 1);
            } else {
                at += 1;
            }
        }
        while self.gaps.len() > GAPS_MAX {
            let now = self.gaps.iter().map(|gap| gap.since).max().unwrap_or(0);
            let touching = (1..self.gaps.len()).filter(|at| self.gaps[at - 1].touches(&self.gaps[*at]));
            // The cost of a join: steps of a reader that is too old for the joined gap, per write that it is late.
            let cheapest = touching.min_by_key(|at| {
                let (one, next) = (&self.gaps[at - 1], &self.gaps[*at]);
                let age = now - one.since.max(next.since);
                (u128::from(one.steps + next.steps) << 32) / u128::from(age + 1)
            });
            match cheapest {
                Some(at) => self.join(at - 1),
                None => {
                    let least = (0..self.gaps.len()).min_by_key(|at| self.gaps[*at].steps);
                    least.map(|at| self.gaps.remove(at));
                }
            }
        }
    }

    /// Joins the gap at `at` and the next one.
    fn join(&mut self, at: usize) {
        let next = self.gaps.remove(at + 1);
        let one = &self.gaps[at];
        self.gaps[at] = Arc::new(Gap {
            begin: one.begin.clone(),
            end: next.end.clone(),
            since: one.since.max(next.since),
            steps: one.steps + next.steps,
        });
    }

    #[cfg(all(test, not(loom)))]
    fn check(&self) {
        assert!(self.gaps.len() <= GAPS_MAX);
        assert!(self.gaps.iter().all(|gap| gap.end.as_ref().is_none_or(|end| gap.begin < *end)));
        let are_apart = |pair: &[Arc<Gap>]| pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].begin);
        assert!(self.gaps.windows(2).all(are_apart));
    }
}

/// The gaps of a keyspace; see the [module](self).
pub(crate) struct Gaps {
    /// True if `list` is not empty.
    is_used: AtomicBool,
    list: Shared<List>,
    /// Held while the list is replaced.
    changing: Mutex<()>,
    /// Invisible entries that cursors have stepped over.
    steps: AtomicU64,
}

impl Gaps {
    pub(crate) fn new() -> Arc<Gaps> {
        Arc::new(Gaps {
            is_used: AtomicBool::new(false),
            list: Shared::empty(),
            changing: Mutex::new(()),
            steps: AtomicU64::new(0),
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut List) -> T) -> T {
        let _changing = sync::lock(&self.changing);
        let mut list = self.list.load().map_or_else(List::default, |list| (*list).clone());
        let outcome = change(&mut list);
        self.replace(list);
        outcome
    }

    /// Replaces the list. The caller holds `changing`.
    fn replace(&self, list: List) {
        let is_used = !list.is_empty();
        self.list.store(is_used.then(|| Arc::new(list)));
        self.is_used.store(is_used, Ordering::Release);
    }

    /// Returns true if a writer has to report its puts. A writer calls this after its entries are in the memtable.
    #[inline]
    pub(crate) fn concern_writers(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Removes a key from all gaps. The writer calls this after the key is in the memtable and before it becomes
    /// visible.
    pub(crate) fn put(&self, key: &[u8]) {
        if !self.list.load().is_some_and(|list| list.concerns(key)) {
            return;
        }
        // A watch in the list above may have become a gap.
        let _changing = sync::lock(&self.changing);
        let Some(list) = self.list.load() else { return };
        list.watches.iter().filter(|watch| watch.contains(key)).for_each(|watch| watch.note(key));
        if list.find(key).is_some() {
            let mut list = (*list).clone();
            list.cut(key);
            self.replace(list);
        }
    }

    /// Returns the gap that a reader at `sequence` may leave by its end, if `key` is in one.
    #[inline]
    pub(crate) fn past(&self, key: &[u8], sequence: u64) -> Option<Arc<Gap>> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        self.list.load()?.past(key, sequence).cloned()
    }

    /// Returns the gap that a reader at `sequence` may leave by its beginning, if the last keys before `end` are in
    /// one.
    #[inline]
    pub(crate) fn before(&self, end: Option<&[u8]>, sequence: u64) -> Option<Arc<Gap>> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        self.list.load()?.before(end, sequence).cloned()
    }

    /// Watches the keys in `begin..end` for a reader that comes from `side`. A gap that the reader finds will hold from
    /// `since` on. The reader must read all keys after this call. `is_current` returns true if the reader's view has
    /// the memtables that writers use. Returns `None` if there are too many watches, or if the view is old.
    pub(crate) fn watch(
        self: &Arc<Gaps>,
        begin: Vec<u8>,
        end: Option<Vec<u8>>,
        side: Side,
        since: u64,
        is_current: impl FnOnce() -> bool,
    ) -> Option<Watching> {
        let is_too_long = |key: &Vec<u8>| key.len() > KEY_BYTES_MAX;
        if is_too_long(&begin) && side == Side::Front || end.as_ref().is_some_and(is_too_long) && side == Side::Back {
            return None;
        }
        let watch = Arc::new(Watch { begin, end, side, nearest: Mutex::new(None) });
        let added = self.change(|list| {
            let has_room = list.watches.len() < WATCHES_MAX;
            if has_room {
                list.watches.push(Arc::clone(&watch));
            }
            has_room
        });
        if !added {
            return None;
        }
        let watching = Watching { gaps: Arc::clone(self), watch, since };
        // Pairs with the writers' fence; see the module's documentation.
        fence(Ordering::SeqCst);
        is_current().then_some(watching)
    }

    /// Counts invisible entries that a cursor has stepped over.
    #[inline]
    pub(crate) fn add_steps(&self, steps: u64) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// Returns the number of invisible entries that cursors have stepped over.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// The watch of a reader. Dropping it ends the watch.
pub(crate) struct Watching {
    gaps: Arc<Gaps>,
    watch: Arc<Watch>,
    since: u64,
}

impl Watching {
    /// Turns the watch into a gap, up to the key `reached`, or from the back, down to it. Between, the reader met no
    /// visible entry, and no put above its sequence number.
    pub(crate) fn publish(self, reached: Option<Vec<u8>>, steps: u64) {
        let Watching { gaps, watch, since } = &self;
        gaps.change(|list| {
            list.watches.retain(|other| !Arc::ptr_eq(other, watch));
            let (begin, end) = watch.found(reached);
            let is_short = begin.len() <= KEY_BYTES_MAX && end.as_ref().is_none_or(|end| end.len() <= KEY_BYTES_MAX);
            if is_short && end.as_ref().is_none_or(|end| begin < *end) {
                list.add(Gap { begin, end, since: *since, steps });
            }
        });
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Watching { gaps, watch, .. } = &*self;
        let is_published =
            gaps.list.load().is_none_or(|list| !list.watches.iter().any(|other| Arc::ptr_eq(other, watch)));
        if !is_published {
            gaps.change(|list| list.watches.retain(|other| !Arc::ptr_eq(other, watch)));
        }
    }
}

/// The gaps that readers of a snapshot have found, by keyspace. A snapshot never changes, so no put splits them.
#[derive(Debug, Default)]
pub(crate) struct SnapshotGaps(std::sync::Mutex<BTreeMap<u32, List>>);

impl SnapshotGaps {
    /// As [`Gaps::past`].
    pub(crate) fn past(&self, keyspace: u32, key: &[u8]) -> Option<Arc<Gap>> {
        crate::base::sync::lock(&self.0).get(&keyspace)?.past(key, u64::MAX).cloned()
    }

    /// As [`Gaps::before`].
    pub(crate) fn before(&self, keyspace: u32, end: Option<&[u8]>) -> Option<Arc<Gap>> {
        crate::base::sync::lock(&self.0).get(&keyspace)?.before(end, u64::MAX).cloned()
    }

    /// Adds a gap that a reader of the snapshot has found.
    pub(crate) fn add(&self, keyspace: u32, begin: Vec<u8>, end: Option<Vec<u8>>, steps: u64) {
        let is_short = begin.len() <= KEY_BYTES_MAX && end.as_ref().is_none_or(|end| end.len() <= KEY_BYTES_MAX);
        if is_short && end.as_ref().is_none_or(|end| begin < *end) {
            let mut all = crate::base::sync::lock(&self.0);
            all.entry(keyspace).or_default().add(Gap { begin, end, since: 0, steps });
        }
    }
}
