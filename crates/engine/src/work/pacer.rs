//! The rate limiter of compactions.
//!
//! Compactions share a budget of bytes a second. Under the option's bound the budget follows the debt. With little to
//! do, compactions leave the disk and a processor to the foreground most of the time. As the debt nears the tolerated
//! one, they get all there is. Without a bound they are not paced at all.
//!
//! **Threads.** Any number of merges call [`Pacer::pace`]; a virtual clock orders them.

use crate::base::health::Health;
use crate::versions::snapshot::Snapshots;
use situ_base::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum write rate of compactions for debts while the store is idle, in bytes per second.
const IDLE_BYTES_PER_S_MAX: u64 = 64 << 20;

/// The least share of the bound that compactions get.
const SHARE_MIN: f64 = 0.25;
/// The maximum length of one sleep, so that closing is noticed.
const SLEEP_MS_MAX: u64 = 20;
/// Bytes are paid for in pieces of at most this size, so that growing debt is noticed in the middle of a large block.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// The mark of an idle store.
pub(crate) struct IdleMark {
    snapshots: Arc<Snapshots>,
    /// The sequence number at which a compaction was found to be due, or [`NONE`].
    at: AtomicU64,
}

/// Stands for no sequence number.
const NONE: u64 = u64::MAX;

impl IdleMark {
    pub(crate) fn new(snapshots: &Arc<Snapshots>) -> Arc<IdleMark> {
        Arc::new(IdleMark { snapshots: Arc::clone(snapshots), at: AtomicU64::new(NONE) })
    }

    /// Notes that a compaction is due. The store is idle while `newest` is the newest sequence number.
    pub(crate) fn set(&self, newest: u64) {
        self.at.store(newest, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.at.store(NONE, Ordering::Release);
    }

    /// Returns true if nothing was written since a compaction was found to be due.
    pub(crate) fn is_idle(&self) -> bool {
        self.at.load(Ordering::Acquire) == self.snapshots.visible()
    }
}

/// The budget's state.
pub(crate) struct Pacer {
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    idle: Arc<IdleMark>,
    bytes_per_s_max: u64,
    due_ns: AtomicU64,
    /// The share of tolerated debt, in thousandths.
    debt: AtomicU64,
}

impl Pacer {
    /// Creates the budget under the bound `bytes_per_s_max`; without a bound if that is 0.
    pub(crate) fn new(
        clock: &Arc<dyn Clock>,
        health: &Arc<Health>,
        idle: &Arc<IdleMark>,
        bytes_per_s_max: u64,
    ) -> Arc<Pacer> {
        let (clock, health, idle) = (Arc::clone(clock), Arc::clone(health), Arc::clone(idle));
        let (due_ns, debt) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Pacer { clock, health, idle, bytes_per_s_max, due_ns, debt })
    }

    pub(crate) fn set_debt(&self, share: f64) {
        self.debt.store((share.clamp(0.0, 1.0) * 1000.0) as u64, Ordering::Relaxed);
    }

    /// Accounts for `bytes` written, and waits until they are due.
    pub(crate) fn pace(&self, bytes: u64) {
        let bound = self.bytes_per_s_max;
        let mut left = if bound == 0 { 0 } else { bytes };
        while left > 0 && !self.health.is_closing() {
            let piece = left.min(PIECE_BYTES_MAX);
            self.pace_piece(piece, bound as f64 * share(self.debt.load(Ordering::Relaxed)));
            left -= piece;
        }
    }

    /// As [`pace`](Pacer::pace), for a compaction that pays a debt. Until the next write, the limit for idle stores
    /// applies.
    pub(crate) fn pace_idle(&self, bytes: u64) {
        if !self.idle.is_idle() {
            return self.pace(bytes);
        }
        let bound = Some(self.bytes_per_s_max).filter(|bound| *bound > 0);
        self.pace_piece(bytes, bound.unwrap_or(u64::MAX).min(IDLE_BYTES_PER_S_MAX) as f64);
    }

    fn pace_piece(&self, bytes: u64, rate: f64) {
        let now = self.clock.now().as_nanos() as u64;
        self.due_ns.fetch_max(now, Ordering::Relaxed);
        assert!(rate > 0.0, "compactions always get a part of the bound");
        let cost = (bytes as f64 * 1e9 / rate) as u64;
        let due = self.due_ns.fetch_add(cost, Ordering::Relaxed);
        let mut left = due.saturating_sub(now);
        while left > 0 && !self.health.is_closing() {
            let nap = left.min(SLEEP_MS_MAX * 1_000_000);
            self.clock.sleep(Duration::from_nanos(nap));
            left -= nap;
        }
    }
}

/// Returns the share of the bound for a debt in thousandths. It reaches the whole bound at half of the tolerated debt,
/// where writers begin to be slowed.
fn share(debt: u64) -> f64 {
    (SHARE_MIN + (1.0 - SHARE_MIN) * debt as f64 / 500.0).min(1.0)
}

#[cfg(test)]
mod tests;
