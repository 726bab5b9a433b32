//! Options of a read: the moment, the keys, and the sources.

use crate::base::options::setters;
use crate::base::range::KeyRange;
use crate::versions::snapshot::ReadPoint;
use situ_table::{Reach, ReadOptions as TableReadOptions};
use std::ops::Bound;

/// Options of a read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The moment that the read sees; the newest state if `None`. [`at`](ReadOptions::at) sets it.
    pub(crate) point: Option<ReadPoint>,
    /// True if the read puts no blocks into the cache (for one-off scans). Default: false.
    pub bypass_cache: bool,
    /// True if the read answers from memory only: memtables and cached blocks. If these do not have the answer, the
    /// read returns an error of which [`Error::is_not_in_memory`](crate::Error::is_not_in_memory) is true, and asks no
    /// disk. Default: false.
    pub memory_only: bool,
    /// True if a cursor reads a value in the value log only when it is [asked to](crate::Cursor::read_value). Meant for
    /// walks that look at keys, or at few of the values. Iterators and pages of scans read all values nevertheless.
    /// Default: false.
    pub values_on_demand: bool,
    /// The lower bound: an iterator ends before the first key below this one.
    pub lower_bound: Option<Vec<u8>>,
    /// The upper bound: an iterator ends before this key.
    pub upper_bound: Option<Vec<u8>>,
}

setters!(ReadOptions {
    bypass_cache: bool,
    memory_only: bool,
    values_on_demand: bool,
    lower_bound: impl Into<Vec<u8>> => Some(lower_bound.into()),
    upper_bound: impl Into<Vec<u8>> => Some(upper_bound.into()),
});

impl ReadOptions {
    /// Bounds an iterator to the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> ReadOptions {
        self.upper_bound = prefix_end(prefix.as_ref());
        self.lower_bound = Some(prefix.as_ref().to_vec());
        self
    }

    /// Bounds an iterator to `lower..upper`.
    #[must_use]
    pub fn range(self, lower: impl AsRef<[u8]>, upper: impl AsRef<[u8]>) -> ReadOptions {
        self.lower_bound(lower.as_ref()).upper_bound(upper.as_ref())
    }
}

/// Returns the first key behind all keys that begin with `prefix`; `None` if there is none (the prefix is all 0xff).
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns the first key behind `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl ReadOptions {
    /// Narrows the bounds to keys that are also in `range`.
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

    /// Narrows the bounds to keys that also begin with `prefix`.
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

pub(crate) fn table_read_options(options: &ReadOptions) -> TableReadOptions {
    TableReadOptions {
        fill_cache: !options.bypass_cache,
        reach: if options.memory_only { Reach::Cache } else { Reach::Disk },
        ..TableReadOptions::default()
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

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    /// A field without a setter does not compile here.
    #[test]
    fn every_field_has_its_setter() {
        let ReadOptions { point: _, bypass_cache, memory_only, values_on_demand, lower_bound, upper_bound } =
            ReadOptions::default()
                .bypass_cache(true)
                .memory_only(true)
                .values_on_demand(true)
                .lower_bound("a")
                .upper_bound(b"b");
        assert_eq!((bypass_cache, memory_only, values_on_demand), (true, true, true));
        assert_eq!((lower_bound, upper_bound), (Some(b"a".to_vec()), Some(b"b".to_vec())));
    }
}
