//! Range tombstones as they come, searched without being cut.
//!
//! A reader asks for the newest tombstone, at or below its snapshot, that covers a key. Fragments answer that too. But
//! fragments that keep every sequence take n² of memory for n tombstones in each other (a queue that is trimmed with
//! `delete_range("q/", "q/<i>")`, i rising). They also have to be rebuilt for each one that is added. This index grows
//! by one tombstone at a time:
//!
//! 1. New tombstones enter the *tail*, a list of less than [`LEAF_TOMBSTONES`], which is searched from end to end.
//! 2. A full tail becomes a *run*. A run knows for each key the newest of its tombstones that covers it, as a list of
//!    steps: from this key on it is that tombstone, or none.
//! 3. [`FANOUT`] runs of one height at the end of the list become one run of the next height. Their steps are merged,
//!    and they stay as its children.
//! 4. A query goes through the runs, newest first. A run with nothing newer than the tombstone found so far is passed
//!    over. One binary search in its steps answers for a run that is older than the snapshot. A run that holds
//!    tombstones on both sides of the snapshot passes the question on to its children, a leaf by looking at each.
//!
//! **Invariants**: neighbouring steps name different tombstones. A run of height h has exactly
//! `LEAF_TOMBSTONES * FANOUT^h` tombstones. Heights in the list of runs do not rise.
//!
//! **Cost** for n tombstones: a run has at most two steps of 8 bytes for each of its tombstones. So the index takes at
//! most 16 bytes for each tombstone and height, and there are log₄(n/32) heights. Tombstones in each other share steps,
//! so that a trimmed queue has one or two steps in each run. Adding one is amortised the same. A query is at most three
//! binary searches a height, and on the way down to the snapshot three more. That holds while tombstones are added in
//! the order of their sequence numbers, or nearly so. Any other order gives the same answers, and a query for an old
//! snapshot visits more children.
//!
//! Rejected: an interval tree with the largest end in each node. It has n nodes, but a search for the newest tombstone
//! that covers a key visits all that cover it. For a trimmed queue, these are all tombstones.

use super::RangeTombstone;
use crate::key::SequenceNumber;
use std::sync::Arc;

/// The number of tombstones that are searched one by one.
const LEAF_TOMBSTONES: usize = 32;
/// The number of runs that become one.
const FANOUT: usize = 4;
/// The tombstone of a step from which on there is none.
const NONE: u32 = u32::MAX;
/// The bytes that an `Arc` keeps in addition to its value.
const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Range tombstones that can be searched while their number grows. Copies share what is indexed. See the module's page.
#[derive(Debug, Clone, Default)]
pub struct TombstoneIndex {
    /// The runs, in the order of insertion.
    runs: Vec<Arc<Run>>,
    /// The tombstones that are in no run.
    tail: Vec<Arc<RangeTombstone>>,
    len: usize,
    index_bytes: usize,
    tombstone_bytes: usize,
}

type Leaf = Arc<[Arc<RangeTombstone>]>;

#[derive(Debug)]
struct Run {
    height: u32,
    /// All tombstones, by their numbers within the run, in pieces of [`LEAF_TOMBSTONES`].
    leaves: Vec<Leaf>,
    steps: Vec<Step>,
    /// The runs that this one was made of; none in a leaf.
    children: Vec<Arc<Run>>,
    smallest_sequence: SequenceNumber,
    largest_sequence: SequenceNumber,
}

/// A step: from its key on, up to the next step's, `tombstone` is the newest one that covers.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Twice the number of a tombstone, plus one: the key is its end, not its begin.
    key: u32,
    tombstone: u32,
}

impl Step {
    /// Returns the same step in a run where all numbers are larger by `offset`.
    fn moved(self, offset: u32) -> Step {
        let tombstone = if self.tombstone == NONE { NONE } else { self.tombstone + offset };
        Step { key: self.key + 2 * offset, tombstone }
    }
}

impl TombstoneIndex {
    /// Creates an index of no tombstones.
    pub fn new() -> TombstoneIndex {
        TombstoneIndex::default()
    }

    /// Adds a tombstone. One that covers nothing (`begin >= end`) is left out.
    ///
    /// # Panics
    /// There are 2³⁰ already, which is many times what fits into a table.
    pub fn push(&mut self, tombstone: Arc<RangeTombstone>) {
        if tombstone.begin >= tombstone.end {
            return;
        }
        assert!(self.len < 1 << 30, "the numbers of range tombstones have 30 bits");
        self.len += 1;
        self.tombstone_bytes += tombstone_bytes(&tombstone);
        self.tail.push(tombstone);
        if self.tail.len() < LEAF_TOMBSTONES {
            return;
        }
        self.push_run(Run::leaf(self.tail.as_slice().into()));
        self.tail.clear();
        while let Some(height) = self.runs.last().map(|run| run.height)
            && let Some(first) = self.runs.len().checked_sub(FANOUT)
            && self.runs[first].height == height
        {
            let children = self.runs.split_off(first);
            self.push_run(Run::parent(children));
        }
    }

    fn push_run(&mut self, run: Run) {
        self.index_bytes += run.own_bytes();
        self.runs.push(Arc::new(run));
    }

    /// Returns the newest tombstone, at or below `snapshot`, that covers `user_key`. A version of the key is hidden
    /// from `snapshot` if its sequence number is smaller than the tombstone's. The same is true of every key up to the
    /// tombstone's end.
    #[inline]
    pub fn covering(&self, user_key: &[u8], snapshot: SequenceNumber) -> Option<&RangeTombstone> {
        let mut search = Search { user_key, snapshot, newest: None };
        search.one_by_one(&self.tail);
        self.runs.iter().rev().for_each(|run| run.search(&mut search));
        search.newest
    }

    /// Returns the number of tombstones.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all tombstones in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RangeTombstone>> {
        let leaves = self.runs.iter().flat_map(|run| &run.leaves);
        leaves.flat_map(|leaf| leaf.iter()).chain(&self.tail)
    }

    /// Returns the bytes of memory of the tombstones and their keys.
    pub fn tombstone_bytes(&self) -> usize {
        self.tombstone_bytes
    }

    /// Returns the bytes of memory of the index, without the tombstones.
    pub fn index_bytes(&self) -> usize {
        self.index_bytes + LEAF_TOMBSTONES * size_of::<Arc<RangeTombstone>>()
    }
}

/// Returns the bytes of memory of a shared tombstone and its keys.
pub(crate) fn tombstone_bytes(tombstone: &RangeTombstone) -> usize {
    ARC_BYTES + size_of::<RangeTombstone>() + tombstone.begin.capacity() + tombstone.end.capacity()
}

impl Extend<Arc<RangeTombstone>> for TombstoneIndex {
    fn extend<I: IntoIterator<Item = Arc<RangeTombstone>>>(&mut self, tombstones: I) {
        tombstones.into_iter().for_each(|tombstone| self.push(tombstone));
    }
}

impl FromIterator<Arc<RangeTombstone>> for TombstoneIndex {
    /// Builds an index. Old snapshots are served best if the oldest tombstone comes first.
    fn from_iter<I: IntoIterator<Item = Arc<RangeTombstone>>>(tombstones: I) -> TombstoneIndex {
        let mut index = TombstoneIndex::new();
        index.extend(tombstones);
        index
    }
}

struct Search<'k, 'a> {
    user_key: &'k [u8],
    snapshot: SequenceNumber,
    newest: Option<&'a RangeTombstone>,
}

impl<'a> Search<'_, 'a> {
    /// Returns true if a tombstone with this sequence number would be a better answer.
    fn wants(&self, sequence: SequenceNumber) -> bool {
        sequence <= self.snapshot && self.newest.is_none_or(|newest| newest.sequence < sequence)
    }

    fn one_by_one(&mut self, tombstones: &'a [Arc<RangeTombstone>]) {
        for tombstone in tombstones {
            if self.wants(tombstone.sequence)
                && tombstone.begin.as_slice() <= self.user_key
                && self.user_key < tombstone.end.as_slice()
            {
                self.newest = Some(tombstone);
            }
        }
    }
}

impl Run {
    fn leaf(tombstones: Leaf) -> Run {
        debug_assert_eq!(tombstones.len(), LEAF_TOMBSTONES);
        // Each tombstone is a function of two steps.
        let alone: Vec<[Step; 2]> = (0..tombstones.len() as u32)
            .map(|number| [Step { key: 2 * number, tombstone: number }, Step { key: 2 * number + 1, tombstone: NONE }])
            .collect();
        let parts: Vec<(u32, &[Step])> = alone.iter().map(|steps| (0, &steps[..])).collect();
        Run::over(0, vec![tombstones], Vec::new(), &parts)
    }

    fn parent(children: Vec<Arc<Run>>) -> Run {
        let leaves: Vec<Leaf> = children.iter().flat_map(|child| child.leaves.iter().cloned()).collect();
        let each = leaves.len() / children.len() * LEAF_TOMBSTONES;
        let parts: Vec<(u32, &[Step])> =
            children.iter().enumerate().map(|(at, child)| ((at * each) as u32, &child.steps[..])).collect();
        let height = children[0].height + 1;
        Run::over(height, leaves, children.clone(), &parts)
    }

    /// Merges the steps of all parts; the numbers of a part's tombstones are moved by the number next to it.
    fn over(height: u32, leaves: Vec<Leaf>, children: Vec<Arc<Run>>, parts: &[(u32, &[Step])]) -> Run {
        let sequences = || leaves.iter().flat_map(|leaf| leaf.iter()).map(|tombstone| tombstone.sequence);
        let smallest_sequence = sequences().min().unwrap_or(0);
        let largest_sequence = sequences().max().unwrap_or(0);
        let mut run = Run { height, leaves, steps: Vec::new(), children, smallest_sequence, largest_sequence };
        run.steps = run.merged(parts);
        run
    }

    fn merged(&self, parts: &[(u32, &[Step])]) -> Vec<Step> {
        // Where each part is, what its next key is, and which of its tombstones covers up to there.
        let mut next = vec![0; parts.len()];
        let mut present = vec![NONE; parts.len()];
        let step_at = |part: usize, at: usize| {
            let (offset, steps) = parts[part];
            steps.get(at).map(|step| step.moved(offset))
        };
        let mut keys: Vec<Option<&[u8]>> =
            (0..parts.len()).map(|part| step_at(part, 0).map(|step| self.key(step))).collect();
        let mut steps: Vec<Step> = Vec::new();
        while let Some(here) = keys.iter().flatten().min().copied() {
            let mut boundary = 0;
            for part in 0..parts.len() {
                if keys[part] == Some(here)
                    && let Some(step) = step_at(part, next[part])
                {
                    (boundary, present[part]) = (step.key, step.tombstone);
                    next[part] += 1;
                    keys[part] = step_at(part, next[part]).map(|step| self.key(step));
                }
            }
            let covering = present.iter().copied().filter(|number| *number != NONE);
            let newest = covering.max_by_key(|number| self.tombstone(*number).sequence).unwrap_or(NONE);
            if steps.last().map_or(NONE, |last| last.tombstone) != newest {
                steps.push(Step { key: boundary, tombstone: newest });
            }
        }
        steps.shrink_to_fit();
        steps
    }

    #[inline]
    fn tombstone(&self, number: u32) -> &RangeTombstone {
        &self.leaves[number as usize / LEAF_TOMBSTONES][number as usize % LEAF_TOMBSTONES]
    }

    #[inline]
    fn key(&self, step: Step) -> &[u8] {
        let tombstone = self.tombstone(step.key / 2);
        if step.key.is_multiple_of(2) { &tombstone.begin } else { &tombstone.end }
    }

    fn search<'a>(&'a self, search: &mut Search<'_, 'a>) {
        if self.smallest_sequence > search.snapshot
            || search.newest.is_some_and(|newest| newest.sequence >= self.largest_sequence)
        {
            return;
        }
        if self.largest_sequence <= search.snapshot {
            let behind = self.steps.partition_point(|step| self.key(*step) <= search.user_key);
            if let Some(step) = behind.checked_sub(1).map(|at| self.steps[at])
                && step.tombstone != NONE
                && search.wants(self.tombstone(step.tombstone).sequence)
            {
                search.newest = Some(self.tombstone(step.tombstone));
            }
            return;
        }
        match self.children.is_empty() {
            true => self.leaves.iter().for_each(|leaf| search.one_by_one(leaf)),
            false => self.children.iter().rev().for_each(|child| child.search(search)),
        }
    }

    /// Returns the bytes of memory without tombstones, leaves below the lowest height, and children.
    fn own_bytes(&self) -> usize {
        let leaf_bytes =
            if self.height == 0 { ARC_BYTES + LEAF_TOMBSTONES * size_of::<Arc<RangeTombstone>>() } else { 0 };
        ARC_BYTES
            + size_of::<Run>()
            + self.leaves.capacity() * size_of::<Leaf>()
            + self.steps.capacity() * size_of::<Step>()
            + self.children.capacity() * size_of::<Arc<Run>>()
            + leaf_bytes
    }
}

#[cfg(test)]
mod tests;
