//! Row locks: who has locked which key, who waits for whom, and when a wait ends.

pub(crate) mod alarm;
pub(crate) mod deadlock;
pub(crate) mod locks;

use crate::base::store_id::StoreId;
use crate::rows::alarm::Alarm;
use crate::rows::locks::LockTable;
use situ_base::Env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What all transactions of a store share.
pub(crate) struct Transactions {
    pub(crate) locks: Arc<LockTable>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) next_number: AtomicU64,
    pub(crate) live_count: AtomicUsize,
}

impl Transactions {
    pub(crate) fn new(store: StoreId, env: &Env, locks_max: u64) -> Transactions {
        Transactions {
            locks: Arc::new(LockTable::new(locks_max)),
            alarm: Arc::new(Alarm::new(store, env)),
            next_number: AtomicU64::new(1),
            live_count: AtomicUsize::new(0),
        }
    }

    /// Transactions that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live_count.load(Ordering::Relaxed)
    }

    /// Whoever waits for a lock is told that the store closes.
    pub(crate) fn close(&self) {
        self.locks.close();
        self.alarm.close();
    }
}
