//! Range tombstones, cut into fragments for merges, and indexed as they are for readers.
//!
//! A range tombstone says "every version older than `sequence` of every key in `begin..end` is gone". Tombstones
//! overlap as users please; asked for one key, a list of them would have to be walked whole. Readers search a
//! [`TombstoneIndex`], which takes new ones at any time. A merge has all of them at once, walks them in key order, and
//! knows which snapshots there are, so it *fragments* them:
//!
//! ```text
//! tombstones      a──────────────f @5          fragments   a─c  {5}
//!                       c────e @9                          c─e  {9, 5}
//!                       c───────────g @2                   e─f  {5}
//! snapshots       7                                        f─g  {2}
//! ```
//!
//! 1. Every begin and every end is a boundary; boundaries are sorted and made unique.
//! 2. A sweep over the boundaries keeps the set of tombstones that are open. Each stretch between two boundaries where
//!    any is open is a fragment. From the open ones it gets the newest at or below each snapshot and the newest of all.
//!    No reader can see a difference between these and the whole set. (In the picture 2 hides nothing from c to f that
//!    5 does not hide from the same readers.)
//! 3. A query finds the one fragment that can hold the key by binary search, then the largest sequence that the
//!    snapshot sees by another.
//!
//! **Invariants**: fragments are non-empty, disjoint and ascending. Each has at least one sequence; a fragment's
//! sequences are strictly descending, and no two are between the same snapshots. Neighbours with equal sequences are
//! one fragment.
//!
//! **Cost**: building takes `n log n` for n tombstones, and a search in the open set for each sequence of the result.
//! The result has at most 2n fragments with one sequence each, and one more for each snapshot. A query is two binary
//! searches and allocates nothing.

use crate::key::SequenceNumber;
use std::borrow::Borrow;
use std::collections::BTreeSet;

mod index;
pub use index::TombstoneIndex;
pub(crate) use index::tombstone_bytes;

/// A deletion of all older versions of the keys from `begin` (inclusive) to `end` (exclusive).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeTombstone {
    /// First user key deleted.
    pub begin: Vec<u8>,
    /// First user key behind the range.
    pub end: Vec<u8>,
    /// Versions with smaller sequence numbers are gone.
    pub sequence: SequenceNumber,
}

/// A stretch of keys that is covered by the same tombstones from one end to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// First user key covered.
    pub begin: &'a [u8],
    /// First user key behind the stretch.
    pub end: &'a [u8],
    /// Sequence numbers of the tombstones, descending; never empty.
    pub sequences: &'a [SequenceNumber],
}

impl Fragment<'_> {
    /// Returns the largest sequence number that is at most `snapshot`.
    #[inline]
    pub fn newest(&self, snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let hidden = self.sequences.partition_point(|sequence| *sequence > snapshot);
        self.sequences.get(hidden).copied()
    }
}

/// Tombstones as disjoint fragments. See the module's page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FragmentedTombstones {
    pieces: Vec<Piece>,
    /// All fragments' sequences, one after the other.
    sequences: Vec<SequenceNumber>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    begin: Vec<u8>,
    end: Vec<u8>,
    /// The end of this fragment's sequences; they begin where those of the fragment before it end.
    sequences_end: usize,
}

/// Returns the sequence numbers of the open tombstones that the present or a snapshot sees as the newest, descending.
fn newest_for_each(
    open: &BTreeSet<(SequenceNumber, &[u8])>,
    snapshots: &[SequenceNumber],
) -> impl Iterator<Item = SequenceNumber> {
    let newest = open.last().map(|(sequence, _)| *sequence);
    std::iter::successors(newest, move |above| {
        // The newest snapshot that does not see the one above; all before it, down to the next one, see the same.
        let hidden_from = snapshots.partition_point(|snapshot| snapshot < above).checked_sub(1)?;
        let below = (snapshots[hidden_from].saturating_add(1), &[][..]);
        open.range(..below).next_back().map(|(sequence, _)| *sequence)
    })
}

impl FragmentedTombstones {
    /// Fragments any list, in any order, for readers at the present and at `snapshots`, which ascend. Tombstones that
    /// cover nothing (`begin >= end`) are left out.
    pub fn new<T: Borrow<RangeTombstone>>(tombstones: &[T], snapshots: &[SequenceNumber]) -> FragmentedTombstones {
        debug_assert!(snapshots.is_sorted());
        let mut opening: Vec<&RangeTombstone> =
            tombstones.iter().map(Borrow::borrow).filter(|t| t.begin < t.end).collect();
        let mut closing = opening.clone();
        opening.sort_unstable_by(|a, b| a.begin.cmp(&b.begin));
        closing.sort_unstable_by(|a, b| a.end.cmp(&b.end));

        let mut fragments = FragmentedTombstones::default();
        // Tombstones that share a sequence number are pieces of one that a compaction cut; the end tells them apart.
        // Those that share both close together, so that one element may stand for all.
        let mut open: BTreeSet<(SequenceNumber, &[u8])> = BTreeSet::new();
        let (mut opened, mut closed) = (0, 0);
        while let Some(close) = closing.get(closed) {
            let here = match opening.get(opened) {
                Some(open) if open.begin < close.end => open.begin.as_slice(),
                _ => close.end.as_slice(),
            };
            while let Some(t) = closing.get(closed).filter(|t| t.end == here) {
                open.remove(&(t.sequence, t.end.as_slice()));
                closed += 1;
            }
            while let Some(t) = opening.get(opened).filter(|t| t.begin == here) {
                open.insert((t.sequence, t.end.as_slice()));
                opened += 1;
            }
            if !open.is_empty() {
                let next_close = closing.get(closed).map(|t| t.end.as_slice());
                let next_open = opening.get(opened).map(|t| t.begin.as_slice());
                let end = next_close.into_iter().chain(next_open).min();
                // Whatever is open closes further on, so there is an end.
                if let Some(end) = end {
                    fragments.push(here, end, newest_for_each(&open, snapshots));
                }
            }
        }
        fragments
    }

    /// Appends a fragment. It must begin at or behind the end of the last one, and `sequences` must descend. A fragment
    /// that continues the last one with the same sequences is joined to it, and one without sequences is left out.
    fn push(&mut self, begin: &[u8], end: &[u8], sequences: impl Iterator<Item = SequenceNumber>) {
        debug_assert!(begin < end);
        debug_assert!(self.pieces.last().is_none_or(|last| last.end.as_slice() <= begin));
        let from = self.sequences.len();
        self.sequences.extend(sequences);
        let kept = self.sequences.len();
        if kept == from {
            return;
        }
        debug_assert!(self.sequences[from..].is_sorted_by(|a, b| a > b));
        let before = self.pieces.len().checked_sub(2).map_or(0, |i| self.pieces[i].sequences_end);
        if let Some(last) = self.pieces.last_mut()
            && last.end == begin
            && self.sequences[before..from] == self.sequences[from..]
        {
            last.end.clear();
            last.end.extend_from_slice(end);
            self.sequences.truncate(from);
            return;
        }
        self.pieces.push(Piece { begin: begin.to_vec(), end: end.to_vec(), sequences_end: kept });
    }

    /// Returns true if no key is covered.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the number of fragments.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the number of (fragment, sequence) pairs: what a table stores.
    pub fn sequence_count(&self) -> usize {
        self.sequences.len()
    }

    /// Returns fragment `index`, counted from the smallest key; `None` behind the last one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Fragment<'_>> {
        let piece = self.pieces.get(index)?;
        let from = index.checked_sub(1).map_or(0, |before| self.pieces[before].sequences_end);
        Some(Fragment { begin: &piece.begin, end: &piece.end, sequences: &self.sequences[from..piece.sequences_end] })
    }

    /// Returns the fragments, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Fragment<'_>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Returns the index of the first fragment that ends behind `user_key`: the one that covers it, or else the next
    /// one.
    #[inline]
    pub fn position(&self, user_key: &[u8]) -> usize {
        self.pieces.partition_point(|piece| piece.end.as_slice() <= user_key)
    }

    /// Returns the fragment that covers `user_key`.
    #[inline]
    pub fn fragment_at(&self, user_key: &[u8]) -> Option<Fragment<'_>> {
        self.get(self.position(user_key)).filter(|fragment| fragment.begin <= user_key)
    }

    /// Returns the largest sequence number, at most `snapshot`, of a tombstone that covers `user_key`. A version of the
    /// key is hidden from `snapshot` if its own sequence number is smaller than this.
    #[inline]
    pub fn covering(&self, user_key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        if self.pieces.is_empty() {
            return None;
        }
        self.fragment_at(user_key)?.newest(snapshot)
    }

    /// Returns the part of this that lies in `lower..upper`; `None` is no bound.
    pub fn clip(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> FragmentedTombstones {
        let mut clipped = FragmentedTombstones::default();
        let first = lower.map_or(0, |lower| self.position(lower));
        for fragment in (first..self.len()).filter_map(|index| self.get(index)) {
            let begin = lower.map_or(fragment.begin, |lower| lower.max(fragment.begin));
            let end = upper.map_or(fragment.end, |upper| upper.min(fragment.end));
            if begin >= end {
                break;
            }
            clipped.push(begin, end, fragment.sequences.iter().copied());
        }
        clipped
    }

    /// Returns the same fragments with only those sequences that `keep` says yes to. Fragments that lose all are left
    /// out; neighbours that become equal are joined.
    pub fn retain(&self, mut keep: impl FnMut(&Fragment<'_>, SequenceNumber) -> bool) -> FragmentedTombstones {
        let mut kept = FragmentedTombstones::default();
        for fragment in self.iter() {
            let sequences = fragment.sequences.iter().copied().filter(|sequence| keep(&fragment, *sequence));
            kept.push(fragment.begin, fragment.end, sequences);
        }
        kept
    }

    /// Converts the fragments back to a list, one tombstone for each pair of fragment and sequence, sorted by begin,
    /// newest first.
    pub fn to_list(&self) -> Vec<RangeTombstone> {
        let pairs = self.iter().flat_map(|fragment| fragment.sequences.iter().map(move |s| (fragment, *s)));
        pairs
            .map(|(fragment, sequence)| RangeTombstone {
                begin: fragment.begin.to_vec(),
                end: fragment.end.to_vec(),
                sequence,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
