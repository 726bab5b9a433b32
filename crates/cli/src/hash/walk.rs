//! All entries of a hash store, for `scan` and `dump`.
//!
//! Entries are those of one moment. In the order of keys they are sorted on the disk first. A range costs a look at
//! every entry.

use super::OpenHash;
use crate::failure::Failure;
use crate::options::{Range, Target};
use crate::text::Encoding;
use crate::walk::{Bounds, EachEntry, Order, Walk};
use situ::hash::{Expiring, Result as HashResult};
use situ_server::is_reserved;

/// The entries of a hash store, without the program's own.
pub(crate) struct HashEntries {
    hash: OpenHash,
    /// Items are shown with their header.
    stored: bool,
}

impl HashEntries {
    /// Opens the store of `target`.
    ///
    /// # Errors
    /// As [`OpenHash::open`]; or the target names something that the store does not have.
    pub(crate) fn open(target: &Target, stored: bool) -> Result<HashEntries, Failure> {
        target.check_for_hash()?;
        let hash = OpenHash::open(target.home().path(), None, false)?;
        hash.check_reads(target, stored)?;
        Ok(HashEntries { hash, stored })
    }

    fn entries(&self, order: Order) -> HashResult<Box<dyn Iterator<Item = HashResult<Expiring>>>> {
        let snapshot = self.hash.store.snapshot()?;
        Ok(match order {
            Order::Any => {
                let mut scan = snapshot.scan();
                Box::new(std::iter::from_fn(move || scan.next_expiring()))
            }
            Order::Ascending | Order::Descending => {
                Box::new(snapshot.scan_sorted()?.map(|pair| pair.map(|pair| (pair, None))))
            }
        })
    }
}

impl Walk for HashEntries {
    fn strips_items(&self) -> bool {
        self.hash.has_items() && !self.stored
    }

    /// An item has its expiry in its value.
    fn may_expire(&self) -> bool {
        !self.hash.has_items()
    }

    fn approximate_entries(&self) -> u64 {
        let totals = self.hash.store.properties().totals;
        totals.entries + totals.overflow_entries
    }

    fn walk(&self, range: &Range, encoding: Encoding, order: Order, each: &mut EachEntry<'_>) -> Result<u64, Failure> {
        if order == Order::Descending {
            return Err(Failure::not_for_hash("scan", &self.hash.directory, "--reverse is for ordered stores"));
        }
        let bounds = Bounds::of(range, encoding)?;
        let failed = |error: situ::hash::Error| self.hash.failure("cannot read the store", &error);
        let limit = range.limit.unwrap_or(u64::MAX);
        let mut seen = 0;
        for entry in self.entries(order).map_err(failed)? {
            if seen == limit {
                break;
            }
            let ((key, value), expires_ms) = entry.map_err(failed)?;
            if is_reserved(&key) || !bounds.contains(&key) {
                continue;
            }
            if let Some(value) = self.hash.shown(&value, self.stored)? {
                each(&key, &value, expires_ms.filter(|_| self.may_expire()))?;
                seen += 1;
            }
        }
        Ok(seen)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.hash.close()
    }
}
