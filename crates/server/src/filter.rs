//! Compactions that drop dead items from disk.
//!
//! Whoever opens a store installs the [`ItemFilter`] for the keyspace of items and lets it begin when it is known that a
//! server wrote them: values that happen to look like dead items stay otherwise. The filter knows the flush barrier only
//! once that is durable: what a crash could bring back to life is never dropped. A delayed flush whose time has come is
//! not carried out here, as a wrong clock could have brought that time: the next server does it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use situ::{CompactionFilter, Decision, Error, Options, Store, StoreBuilder};

use crate::clock::SteadyClock;
use crate::durable::{FLUSH_KEY, LIMIT_KEY, stored_barrier};
use crate::item::ExpiryRule;
use crate::store::{ITEMS_KEYSPACE, META_KEYSPACE};

/// Compactions drop items that have been dead for this long: clocks are not exact.
const MARGIN_SECONDS: u64 = 60;

/// Drops dead items during compaction. See the module.
#[derive(Debug, Default)]
pub(crate) struct ItemFilter {
    begun: AtomicBool,
    /// Items with a cas id below this were flushed, durably.
    barrier_cas: AtomicU64,
    clock: SteadyClock,
}

impl ItemFilter {
    /// Drops from now on; `record` is the stored one of the flush barrier.
    pub(crate) fn begin(&self, record: Option<&[u8]>) {
        self.raise(record);
        self.begun.store(true, Ordering::Release);
    }

    /// Follows the stored record of the flush barrier.
    pub(crate) fn raise(&self, record: Option<&[u8]>) {
        if let Some(barrier_cas) = record.and_then(stored_barrier) {
            self.barrier_cas.fetch_max(barrier_cas, Ordering::AcqRel);
        }
    }
}

impl CompactionFilter for ItemFilter {
    fn name(&self) -> &str {
        "memcached items"
    }

    fn decide(&self, now_unix: Duration, _level: u32, _key: &[u8], value: &[u8]) -> Decision {
        if !self.begun.load(Ordering::Acquire) {
            return Decision::Keep;
        }
        // The wall clock may have jumped; what is dropped here cannot come back when it is set right.
        let now_seconds = now_unix.as_secs().min(self.clock.unix_seconds()).saturating_sub(MARGIN_SECONDS);
        let rule = ExpiryRule { now_seconds, barrier_cas: self.barrier_cas.load(Ordering::Acquire) };
        if rule.is_dead(value) { Decision::Remove } else { Decision::Keep }
    }
}

/// Opens a store that this process does not serve, as [`Store::open`] does; its compactions drop dead items as those of
/// a server do. In a store that no server has written to they drop nothing. No keyspace is made.
///
/// # Errors
/// As [`Store::open`]; or a server's records cannot be read.
pub fn open_unserved(directory: impl AsRef<Path>, options: Options) -> situ::Result<Store> {
    let filter = Arc::new(ItemFilter::default());
    let mut items = options.keyspace.clone();
    items.compaction_filter = Some(Arc::clone(&filter) as _);
    let store = StoreBuilder::new(options).keyspace(ITEMS_KEYSPACE, items).open(directory)?;
    match store.existing_keyspace(META_KEYSPACE) {
        Ok(meta) if meta.contains(LIMIT_KEY)? => filter.begin(meta.get(FLUSH_KEY)?.as_deref()),
        Ok(_) | Err(Error::NoSuchKeyspace { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Header;

    #[test]
    fn a_clock_that_jumps_forward_makes_compactions_drop_nothing_alive() {
        let filter = ItemFilter::default();
        let now = filter.clock.unix_seconds();
        let item = |expires| Header { state: 0, flags: 0, expires, id: 1, given_cas: None }.encode();
        let decide = |seconds, expires| filter.decide(Duration::from_secs(seconds), 1, b"key", &item(expires));
        assert_eq!(decide(now, now - 120), Decision::Keep, "nobody has said that these are items");
        filter.begin(None);
        assert_eq!(decide(now + 86_400, now + 100), Decision::Keep, "a day ahead");
        assert_eq!(decide(now, now - 30), Decision::Keep, "dead, but not for long");
        assert_eq!(decide(now, now - 120), Decision::Remove);
        assert_eq!(decide(now - 86_400, now - 120), Decision::Keep, "a day behind");
    }
}
