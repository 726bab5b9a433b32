//! Ranges of keys, as a caller writes them.

use crate::base::options::{ReadOptions, prefix_end};
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..="b"`, `..`, or a pair of [`Bound`]s. Ends are anything that
/// is bytes: text, slices, arrays, vectors, a [`Key`](crate::Key). A range whose end lies before its beginning is empty.
///
/// [`RangeBounds`] itself would not do: `..` is a range of anything, and the compiler would ask of what.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys",
    label = "not a range of keys",
    note = "write a range whose ends are bytes: `\"a\"..\"b\"`, `&key[..]..`, `..=end`, or `..` for all keys"
)]
pub trait KeyRange {
    /// Where the range begins and ends.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

macro_rules! key_range {
    ($($range:ty),*) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range {
            fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                (self.start_bound().map(K::as_ref), self.end_bound().map(K::as_ref))
            }
        })*
    };
}

key_range!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>);

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<A: AsRef<[u8]>, B: AsRef<[u8]>> KeyRange for (Bound<A>, Bound<B>) {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.0.as_ref().map(A::as_ref), self.1.as_ref().map(B::as_ref))
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (**self).bounds()
    }
}

/// The first key behind `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl ReadOptions {
    /// The same, but only keys that are also in `range`.
    pub(crate) fn within(mut self, range: &impl KeyRange) -> ReadOptions {
        let (begin, end) = range.bounds();
        let lower = match begin {
            Bound::Included(key) => Some(key.to_vec()),
            Bound::Excluded(key) => Some(successor(key)),
            Bound::Unbounded => None,
        };
        let upper = match end {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        self.narrow(lower, upper);
        self
    }

    /// The same, but only keys that begin with `prefix`, too.
    pub(crate) fn within_prefix(mut self, prefix: &[u8]) -> ReadOptions {
        self.narrow(Some(prefix.to_vec()), prefix_end(prefix));
        self
    }

    fn narrow(&mut self, lower: Option<Vec<u8>>, upper: Option<Vec<u8>>) {
        // No lower bound sorts before all others, no upper bound behind them.
        self.lower_bound = self.lower_bound.take().max(lower);
        self.upper_bound = match (self.upper_bound.take(), upper) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(range: impl KeyRange) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let options = ReadOptions::default().within(&range);
        (options.lower_bound, options.upper_bound)
    }

    fn some(key: &[u8]) -> Option<Vec<u8>> {
        Some(key.to_vec())
    }

    #[test]
    fn every_form_of_a_range_has_its_bounds() {
        assert_eq!(bounds(..), (None, None));
        assert_eq!(bounds("a".."b"), (some(b"a"), some(b"b")));
        assert_eq!(bounds("a"..="b"), (some(b"a"), some(b"b\0")));
        assert_eq!(bounds("a".to_owned()..), (some(b"a"), None));
        assert_eq!(bounds(..vec![b'b']), (None, some(b"b")));
        assert_eq!(bounds(..=*b"b"), (None, some(b"b\0")));
        assert_eq!(bounds(&(b"a"..b"b")), (some(b"a"), some(b"b")));
        let between = (Bound::Excluded("a"), Bound::Included(b"bc"));
        assert_eq!(bounds(between), (some(b"a\0"), some(b"bc\0")));
        assert_eq!(bounds((Bound::<&str>::Unbounded, Bound::Excluded("c"))), (None, some(b"c")));
    }

    #[test]
    fn bounds_only_become_narrower() {
        let options = || ReadOptions::default().range("b", "d");
        assert_eq!(options().within(&("a".."z")).lower_bound, some(b"b"));
        assert_eq!(options().within(&("a".."z")).upper_bound, some(b"d"));
        assert_eq!(options().within(&("c".."cc")).lower_bound, some(b"c"));
        assert_eq!(options().within(&("c".."cc")).upper_bound, some(b"cc"));
        assert_eq!(options().within(&..).upper_bound, some(b"d"));
        assert_eq!(options().within_prefix(b"c").upper_bound, some(b"d"));
        assert_eq!(options().within_prefix(b"\xff").lower_bound, some(b"\xff"));
    }
}
