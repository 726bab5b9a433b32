//! Walking over entries, for `scan` and `dump`: of a keyspace of an ordered store, or of a hash store.

use crate::failure::Failure;
use crate::options::{Range, given};
use crate::text::Encoding;
use situ::ReadOptions;
use std::ffi::OsString;

/// A callback for each entry of a walk: key, value, and expiry in milliseconds since 1970.
pub(crate) type EachEntry<'a> = dyn FnMut(&[u8], &[u8], Option<u64>) -> Result<(), Failure> + 'a;

/// The order of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The quickest order.
    Any,
    /// In key order.
    Ascending,
    /// The last key first.
    Descending,
}

/// Entries that a command walks over.
pub(crate) trait Walk {
    /// Returns true if values are memcached items that are shown without their header.
    fn strips_items(&self) -> bool;

    /// Returns true if entries may have an expiry in addition to their value. Walks in [any order](Order::Any) report
    /// the expiry.
    fn may_expire(&self) -> bool {
        false
    }

    /// About how many entries there are.
    fn approximate_entries(&self) -> u64;

    /// Calls `each` with every entry of `range` until the range ends; how many there were.
    ///
    /// # Errors
    /// The store cannot be read, or `each` fails.
    fn walk(&self, range: &Range, encoding: Encoding, order: Order, each: &mut EachEntry<'_>) -> Result<u64, Failure>;

    /// Ends the reading.
    ///
    /// # Errors
    /// The store cannot be closed.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// The keys of a range.
pub(crate) struct Bounds {
    prefix: Option<Vec<u8>>,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl Bounds {
    /// Those of the command line.
    ///
    /// # Errors
    /// A key is not encoded as the options say, or the range is empty.
    pub(crate) fn of(range: &Range, encoding: Encoding) -> Result<Bounds, Failure> {
        let key =
            |text: &Option<OsString>, name: &str| text.as_ref().map(|text| given(text, encoding, name)).transpose();
        let bounds = Bounds {
            prefix: key(&range.prefix, "--prefix")?,
            from: key(&range.from, "--from")?,
            to: key(&range.to, "--to")?,
        };
        match (&bounds.from, &bounds.to) {
            (Some(from), Some(to)) if from > to => {
                Err(Failure::usage("--from is behind --to, and no key lies between them: exchange the two"))
            }
            _ => Ok(bounds),
        }
    }

    /// Returns true if a key lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
            && self.from.as_ref().is_none_or(|from| key >= &from[..])
            && self.to.as_ref().is_none_or(|to| key < &to[..])
    }

    /// Returns the bounds in the form of an ordered store.
    pub(crate) fn options(self) -> ReadOptions {
        let mut options = ReadOptions::default();
        if let Some(prefix) = &self.prefix {
            options = options.prefix(prefix);
        }
        options.bypass_cache = true;
        if self.from.is_some() {
            options.lower_bound = self.from;
        }
        if self.to.is_some() {
            options.upper_bound = self.to;
        }
        options
    }
}
