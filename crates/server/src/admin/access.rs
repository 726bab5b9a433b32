//! The approximate times of the last reads of items, in memory.
//!
//! Meta commands can ask whether an item was read before (`h`) and how many seconds ago (`l`). Writing that to the
//! engine on every read would turn reads into writes, so it lives in a fixed table of 64-bit words, one per hash
//! slot: 31 bits of the hash as a fingerprint, a bit for "read since it was stored", 32 bits of Unix time. A newer
//! key evicts an older one from its slot. An item that the table does not know (evicted, or from before the server
//! started) is reported as "never read, last touched when the server started". Nothing but those two flags depends on
//! it.
//!
//! **Threads.** Any; words are independent, relaxed, last writer wins.

use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 1 << 16;

/// The recorded reads of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) fetched: bool,
    /// Unix seconds.
    pub(crate) last: u64,
}

/// See the module.
pub(crate) struct AccessTable {
    slots: Box<[AtomicU64]>,
    started: u64,
}

impl AccessTable {
    pub(crate) fn new(now_seconds: u64) -> AccessTable {
        AccessTable { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), started: now_seconds }
    }

    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        // FNV-1a with a final mix: a poor spread costs accuracy, nothing else.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in key {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (&self.slots[hash as usize % SLOTS], (hash >> 33) << 33)
    }

    /// Records that the item was stored now.
    pub(crate) fn stored(&self, key: &[u8], now_seconds: u64) {
        let (slot, fingerprint) = self.slot(key);
        slot.store(fingerprint | (now_seconds & 0xffff_ffff), Ordering::Relaxed);
    }

    /// Records that the item was read now.
    pub(crate) fn fetched(&self, key: &[u8], now_seconds: u64) {
        let (slot, fingerprint) = self.slot(key);
        let word = fingerprint | 1 << 32 | (now_seconds & 0xffff_ffff);
        // Reading first keeps the line shared between cores while a hot item is read many times a second.
        if slot.load(Ordering::Relaxed) != word {
            slot.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Access {
        let (slot, fingerprint) = self.slot(key);
        let word = slot.load(Ordering::Relaxed);
        if word == 0 || word >> 33 << 33 != fingerprint {
            return Access { fetched: false, last: self.started };
        }
        Access { fetched: word & 1 << 32 != 0, last: word & 0xffff_ffff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_access_is_remembered_until_the_item_is_stored_again() {
        let table = AccessTable::new(10);
        assert_eq!(table.get(b"a"), Access { fetched: false, last: 10 });
        table.stored(b"a", 20);
        assert_eq!(table.get(b"a"), Access { fetched: false, last: 20 });
        table.fetched(b"a", 30);
        assert_eq!(table.get(b"a"), Access { fetched: true, last: 30 });
        table.stored(b"a", 40);
        assert_eq!(table.get(b"a"), Access { fetched: false, last: 40 });
    }
}
