//! Which bytes of a segment are dead: sorted ranges, kept in memory.
//!
//! A segment has two sets of ranges. *Waiting* are dead bytes that are still on the disk. *Gone* are dead bytes that
//! were zeroed or discarded, and gaps between records, which were zeros from the beginning. Bytes in neither set may be
//! alive.
//!
//! **Invariants**: the ranges of a set are sorted, do not touch each other, and are not empty. The two sets have no
//! byte in common.
//!
//! **Cost**: 8 bytes for each range. Deaths that touch merge. So a segment of 2 KB records has at most a range for
//! every second record: 128 KiB for 64 MiB. The log has a limit for the sum of all segments.

use std::ops::Range;

/// Sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| u64::from(end - start)).sum()
    }

    /// Makes a set from ranges in any order, which may overlap.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u32>>) -> Ranges {
        let mut all: Vec<(u32, u32)> =
            ranges.into_iter().filter(|r| r.start < r.end).map(|r| (r.start, r.end)).collect();
        all.sort_unstable();
        let mut merged = Ranges::default();
        all.into_iter().for_each(|range| merged.push(range));
        merged
    }

    /// Adds a range that begins no earlier than the last one.
    fn push(&mut self, (start, end): (u32, u32)) {
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// Adds a range. Costs little if it lies behind all others.
    pub(crate) fn add(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        match self.0.last() {
            Some(last) if range.start < last.0 => *self = self.union(&Ranges::of([range])),
            _ => self.push((range.start, range.end)),
        }
    }

    /// Returns the bytes in this set, in the other, or in both.
    pub(crate) fn union(&self, other: &Ranges) -> Ranges {
        let mut merged = Ranges(Vec::with_capacity(self.0.len() + other.0.len()));
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) if x <= y => a.next(),
                (Some(_), None) => a.next(),
                (_, Some(_)) => b.next(),
                (None, None) => return merged,
            };
            next.into_iter().for_each(|range| merged.push(*range));
        }
    }

    /// Returns the bytes in this set that are not in the other.
    pub(crate) fn without(&self, other: &Ranges) -> Ranges {
        let mut left = Ranges(Vec::with_capacity(self.0.len()));
        let mut from = 0;
        for &(mut start, end) in &self.0 {
            from += other.0[from..].partition_point(|hole| hole.1 <= start);
            for hole in other.0[from..].iter().take_while(|hole| hole.0 < end) {
                if start < hole.0 {
                    left.0.push((start, hole.0));
                }
                start = start.max(hole.1);
            }
            if start < end {
                left.0.push((start, end));
            }
        }
        left
    }

    /// Returns the number of bytes of `range` that are in the set.
    pub(crate) fn bytes_in(&self, range: &Range<u32>) -> u64 {
        self.overlaps(range).map(|part| u64::from(part.end - part.start)).sum()
    }

    /// Returns the parts of `range` that are in the set.
    pub(crate) fn overlaps(&self, range: &Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let (start, end) = (range.start, range.end);
        let first = self.0.partition_point(|known| known.1 <= start);
        let touching = self.0[first..].iter().take_while(move |known| known.0 < end);
        touching.map(move |known| known.0.max(start)..known.1.min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = Vec<Range<u32>>> {
        proptest::collection::vec((0u32..200, 0u32..30).prop_map(|(start, bytes)| start..start + bytes), 0..20)
    }

    fn bytes_of(ranges: &[Range<u32>]) -> BTreeSet<u32> {
        ranges.iter().cloned().flatten().collect()
    }

    fn assert_is(found: &Ranges, expected: &BTreeSet<u32>) {
        assert_eq!(found.iter().flatten().collect::<BTreeSet<u32>>(), *expected);
        assert_eq!(found.bytes(), expected.len() as u64);
        assert!(found.iter().all(|range| range.start < range.end), "none is empty: {found:?}");
        assert!(found.0.is_sorted_by(|a, b| a.1 < b.0), "they are sorted, and none touches the next: {found:?}");
    }

    proptest! {
        #[test]
        fn sets_of_ranges_are_sets_of_bytes(a in ranges(), b in ranges(), probe in (0u32..220, 0u32..60)) {
            let (bytes_a, bytes_b) = (bytes_of(&a), bytes_of(&b));
            let (a, b) = (Ranges::of(a), Ranges::of(b));
            assert_is(&a, &bytes_a);
            assert_is(&a.union(&b), &(&bytes_a | &bytes_b));
            assert_is(&a.without(&b), &(&bytes_a - &bytes_b));
            let mut added = a.clone();
            b.iter().for_each(|range| added.add(range));
            assert_is(&added, &(&bytes_a | &bytes_b));
            let probe = probe.0..probe.0 + probe.1;
            let inside: BTreeSet<u32> = bytes_a.into_iter().filter(|byte| probe.contains(byte)).collect();
            prop_assert_eq!(a.bytes_in(&probe), inside.len() as u64);
            prop_assert_eq!(a.overlaps(&probe).flatten().collect::<BTreeSet<u32>>(), inside);
        }
    }
}
