//! Reads of the flash of a cache.

use super::memory::OpenCache;
use super::value::{CacheValue, make};
use crate::engine::OnRead;
use crate::engine::cache::LoopReader;
use crate::engines::allowance::Allowance;
use situ::cache::{FlashReader, OnItem, Record};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes the callback that passes the value of an item, read from flash, to `done`.
pub(super) fn teller(allowance: &Arc<Allowance>, done: OnRead<CacheValue>) -> OnItem {
    // The cache makes room for the value itself: what waits in the cache must not keep the cache alive.
    let allowance = Arc::clone(allowance);
    let value = move |record: Option<Record>| record.map(|record| make(&record.item(), None, &allowance)).transpose();
    Box::new(move |record| done(value(record)))
}

/// Reads flash for one event loop.
pub(super) struct CacheReader {
    pub(super) reader: FlashReader,
    pub(super) shared: Arc<OpenCache>,
}

impl Drop for CacheReader {
    fn drop(&mut self) {
        self.shared.flash_loops.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LoopReader<CacheValue> for CacheReader {
    fn begin(&mut self, key: &[u8], done: OnRead<CacheValue>) {
        self.reader.get(key, self.shared.now(), teller(&self.shared.allowance, done));
    }

    fn advance(&mut self) -> bool {
        self.reader.advance()
    }

    fn is_busy(&self) -> bool {
        self.reader.is_busy()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // `CacheEngine::loop_reader` has seen to it that there is one.
        self.reader.descriptor().expect("a reader of a loop has a descriptor")
    }
}
