//! Identities of openings of a store.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// One opening of a store, among all of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreId(NonZeroU64);

impl StoreId {
    /// Returns an id that no other store has had.
    pub(crate) fn new() -> StoreId {
        static BEFORE: AtomicU64 = AtomicU64::new(0);
        StoreId(NonZeroU64::MIN.saturating_add(BEFORE.fetch_add(1, Ordering::Relaxed)))
    }
}

thread_local! {
    /// The store that this thread belongs to.
    static MINE: Cell<Option<StoreId>> = const { Cell::new(None) };
}

/// Marks the calling thread as one of a store's own.
pub(crate) fn belong_to(store: StoreId) {
    MINE.set(Some(store));
}

/// Returns true if the calling thread is one of this store's own.
pub(crate) fn is_own_thread(store: StoreId) -> bool {
    MINE.get() == Some(store)
}
