//! Ranges of keys, as a caller writes them.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..="b"`, `..`, or a pair of [`Bound`]s. Ends are
/// anything that is bytes: text, slices, arrays, vectors, a [`Key`](crate::Key). A range whose end lies before its
/// beginning is empty.
///
/// [`RangeBounds`] itself would not do: `..` is a range of anything, and the compiler would ask for its type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys",
    label = "not a range of keys",
    note = "write a range whose ends are bytes: `\"a\"..\"b\"`, `&key[..]..`, `..=end`, or `..` for all keys"
)]
pub trait KeyRange {
    /// Returns the bounds of the range.
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
