//! Stretches of user keys, always half open: the first key is in, the last one is out.
//!
//! One shape for files, tasks, tombstones and cuts means one overlap test and no off-by-one between them. A file whose
//! largest key is `k` ends at `k\0`, the next key there can be. So a file that ends in a range tombstone, whose end is
//! exclusive, and a file that ends in an entry are described alike. A file may begin where another ends.

use situ_storage::Excerpt;
use std::fmt;

/// The user keys from `begin` (inclusive) to `end` (exclusive) that a file or a level's part spans.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpan {
    /// First key.
    pub begin: Vec<u8>,
    /// First key behind the span.
    pub end: Vec<u8>,
}

impl KeySpan {
    /// Returns the span from one key to another, both inclusive.
    pub fn including(first: &[u8], last: &[u8]) -> KeySpan {
        let mut end = Vec::with_capacity(last.len() + 1);
        end.extend_from_slice(last);
        end.push(0);
        KeySpan { begin: first.to_vec(), end }
    }

    /// Returns the smallest span that contains both.
    pub fn union(self, other: KeySpan) -> KeySpan {
        KeySpan { begin: self.begin.min(other.begin), end: self.end.max(other.end) }
    }

    /// Returns true if `key` lies in the span.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.begin.as_slice() <= key && key < self.end.as_slice()
    }

    /// Returns true if a key can lie in both `self` and `begin..end`.
    #[inline]
    pub fn overlaps(&self, begin: &[u8], end: &[u8]) -> bool {
        self.begin.as_slice() < end && begin < self.end.as_slice()
    }
}

impl fmt::Debug for KeySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", Excerpt(&self.begin), Excerpt(&self.end))
    }
}

/// A stretch of user keys that may be open at either side: what a task is to work on.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// First key; `None` is before all keys.
    pub lower: Option<Vec<u8>>,
    /// First key behind the range; `None` is behind all keys.
    pub upper: Option<Vec<u8>>,
}

impl KeyRange {
    /// Returns the range of all keys.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// Returns true if `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lower.as_deref().is_none_or(|lower| lower <= key) && self.upper.as_deref().is_none_or(|upper| key < upper)
    }

    /// Returns true if a key can lie in both.
    pub fn overlaps(&self, span: &KeySpan) -> bool {
        self.lower.as_ref().is_none_or(|lower| *lower < span.end)
            && self.upper.as_ref().is_none_or(|upper| span.begin < *upper)
    }

    /// Returns true if all of `span` lies in the range.
    pub fn encloses(&self, span: &KeySpan) -> bool {
        self.lower.as_ref().is_none_or(|lower| *lower <= span.begin)
            && self.upper.as_ref().is_none_or(|upper| span.end <= *upper)
    }
}

/// Returns true if the ranges are not empty, follow each other without a gap, and are `whole` together.
pub(crate) fn are_all_of<'a>(ranges: impl IntoIterator<Item = &'a KeyRange>, whole: &KeyRange) -> bool {
    let ranges: Vec<&KeyRange> = ranges.into_iter().collect();
    let ends = ranges.first().zip(ranges.last());
    let is_empty =
        |range: &&KeyRange| matches!((&range.lower, &range.upper), (Some(lower), Some(upper)) if lower >= upper);
    ends.is_some_and(|(first, last)| first.lower == whole.lower && last.upper == whole.upper)
        && ranges.is_sorted_by(|a, b| a.upper.is_some() && a.upper == b.lower)
        && !ranges.iter().any(is_empty)
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lower = self.lower.as_deref().unwrap_or_default();
        let upper = self.upper.as_ref().map_or("(end)".to_owned(), |upper| Excerpt(upper).to_string());
        write!(f, "{}..{upper}", Excerpt(lower))
    }
}

/// The number of leading bytes that all keys of `first..=last` share, because the two ends do.
pub(crate) fn shared_prefix_bytes(first: &[u8], last: &[u8]) -> usize {
    first.iter().zip(last).take_while(|(a, b)| a == b).count()
}

/// Asks, for ascending keys, whether any of several sorted lists of disjoint spans contains the key. Each list is
/// walked once, in step with the keys.
pub(crate) struct SpanWalk<'a> {
    lists: Vec<&'a [KeySpan]>,
}

impl<'a> SpanWalk<'a> {
    pub(crate) fn new(lists: &'a [Vec<KeySpan>]) -> SpanWalk<'a> {
        SpanWalk { lists: lists.iter().map(Vec::as_slice).collect() }
    }

    /// Returns true if `key` is in a span. Keys must not descend from call to call.
    pub(crate) fn contains(&mut self, key: &[u8]) -> bool {
        let mut found = false;
        for list in &mut self.lists {
            while let Some((first, rest)) = list.split_first()
                && first.end.as_slice() <= key
            {
                *list = rest;
            }
            found |= list.first().is_some_and(|span| span.begin.as_slice() <= key);
        }
        found
    }
}

/// Returns true if any span of any list overlaps `begin..end`.
pub(crate) fn any_overlaps(lists: &[Vec<KeySpan>], begin: &[u8], end: &[u8]) -> bool {
    lists.iter().any(|list| {
        let at = list.partition_point(|span| span.end.as_slice() <= begin);
        list.get(at).is_some_and(|span| span.overlaps(begin, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_right_behind_its_last_key() {
        let span = KeySpan::including(b"b", b"d");
        assert!(span.contains(b"b") && span.contains(b"d") && !span.contains(b"d\0") && !span.contains(b"a"));
        assert!(span.overlaps(b"d", b"e") && !span.overlaps(b"d\0", b"e") && !span.overlaps(b"a", b"b"));
    }

    #[test]
    fn ranges_are_open_where_nothing_is_said() {
        let range = KeyRange { lower: Some(b"c".to_vec()), upper: None };
        assert!(range.contains(b"c") && range.contains(b"\xff\xff") && !range.contains(b"b\xff"));
        assert!(range.overlaps(&KeySpan::including(b"a", b"c")) && !range.overlaps(&KeySpan::including(b"a", b"b")));
        assert!(range.encloses(&KeySpan::including(b"c", b"z")) && !range.encloses(&KeySpan::including(b"b", b"z")));
        assert!(KeyRange::all().encloses(&KeySpan::including(b"", b"\xff")));
    }

    #[test]
    fn ranges_that_are_a_whole_have_no_gap_and_no_overlap() {
        let key = |key: &str| (!key.is_empty()).then(|| key.as_bytes().to_vec());
        let are_all = |ranges: &[(&str, &str)], (lower, upper): (&str, &str)| {
            let range = |lower: &str, upper: &str| KeyRange { lower: key(lower), upper: key(upper) };
            let ranges: Vec<KeyRange> = ranges.iter().map(|(lower, upper)| range(lower, upper)).collect();
            are_all_of(&ranges, &range(lower, upper))
        };
        assert!(are_all(&[("", "")], ("", "")) && are_all(&[("", "c"), ("c", "f"), ("f", "")], ("", "")));
        assert!(are_all(&[("b", "c"), ("c", "k")], ("b", "k")));
        assert!(!are_all(&[], ("", "")) && !are_all(&[("", ""), ("", "")], ("", "")));
        assert!(!are_all(&[("", "c"), ("d", "")], ("", "")) && !are_all(&[("", "c"), ("b", "")], ("", "")));
        assert!(!are_all(&[("b", "c"), ("c", "")], ("b", "k")) && !are_all(&[("", "c"), ("c", "k")], ("b", "k")));
        assert!(!are_all(&[("b", "c"), ("c", "c"), ("c", "k")], ("b", "k")));
    }

    #[test]
    fn a_walk_agrees_with_looking_everywhere() {
        let spans = |list: &[(&str, &str)]| -> Vec<KeySpan> {
            list.iter().map(|(a, b)| KeySpan { begin: (*a).into(), end: (*b).into() }).collect()
        };
        let lists = vec![spans(&[("b", "d"), ("d", "e"), ("k", "m")]), spans(&[]), spans(&[("c", "f")])];
        let mut walk = SpanWalk::new(&lists);
        for key in ["a", "b", "c", "d", "e", "f", "k", "l", "m", "z"] {
            let expected = lists.iter().flatten().any(|span| span.contains(key.as_bytes()));
            assert_eq!(walk.contains(key.as_bytes()), expected, "{key}");
            let next = format!("{key}\0");
            assert_eq!(any_overlaps(&lists, key.as_bytes(), next.as_bytes()), expected, "{key}");
        }
        assert!(any_overlaps(&lists, b"a", b"c") && !any_overlaps(&lists, b"f", b"k"));
    }
}
