//! State that writers, the program and the purging thread share. `purge.rs` has the design of purges, and their
//! invariants.

use crate::writing::batch::HashBatch;
use situ_base::{Env, Event};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time without writes after which a store is idle.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5);
/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

/// The program's test for dead entries, by their keys and values.
pub type IsDead = Arc<dyn Fn(&[u8], &[u8]) -> bool + Send + Sync>;

/// A purge that the program has asked for.
pub(crate) struct Asked {
    pub(crate) is_dead: IsDead,
    /// The batch that is written when the purge is over.
    pub(crate) then: HashBatch,
}

/// Requests to the purging thread, and its findings.
pub(crate) struct Purges {
    pub(crate) asked: Mutex<Option<Asked>>,
    /// The soonest expiry that is known, in milliseconds of the store's clock.
    pub(crate) next_expiry_ms: AtomicU64,
    /// Dead entries that the last look has found and that no purge has removed, about.
    pub(crate) dead_entries: AtomicU64,
    pub(crate) wake: Arc<dyn Event>,
}

impl Purges {
    /// Makes the state after an opening. The expiries in the buckets are unknown: the first look finds them.
    pub(crate) fn new(env: &Env) -> Purges {
        Purges {
            asked: Mutex::default(),
            next_expiry_ms: AtomicU64::new(0),
            dead_entries: AtomicU64::new(0),
            wake: env.executor.event(),
        }
    }

    /// Notes that entries are written that expire at this time or later.
    #[inline]
    pub(crate) fn note_expiry(&self, expires_ms: u64) {
        if expires_ms < self.next_expiry_ms.load(Ordering::Relaxed)
            && self.next_expiry_ms.fetch_min(expires_ms, Ordering::AcqRel) > expires_ms
        {
            self.wake.notify();
        }
    }

    pub(crate) fn dead_entries(&self) -> u64 {
        self.dead_entries.load(Ordering::Relaxed)
    }
}
