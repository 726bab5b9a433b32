//! Back-pressure: writers are slowed smoothly, by measured debt, before they would have to be stopped.
//!
//! Debt has two parts, each a share of what is tolerated: memtables waiting to be flushed, and tables waiting to be
//! compacted. Below [`SLOW_AT`] nothing happens. Above, writers share a budget of bytes a second. The budget is the
//! rate at which flushes (compactions) have lately worked, times a factor that falls from 2 to 1/4 as the debt grows.
//! So the debt settles where writers are exactly as fast as the work behind them, and a write waits microseconds to a
//! few milliseconds instead of stopping for seconds.
//!
//! Flushes are few and large, and those of a store on several volumes go at two speeds. Their rate is known for the
//! home, and for the other volumes. The memory that is left has to last until the present flush ends. That is the usual
//! time of such a flush. A flush that has taken longer already is assumed to take as long again: then the room is used
//! up ever more slowly, and never quite. While writers are slowed, all of this is looked at again every 20 ms. Where
//! the log has an area of a disk to itself (`log_area.rs`), what it holds there counts like memory: synced
//! writes fill it faster.
//!
//! The pipeline holds writers to the budget ([`Budget`]).
//!
//! **Threads.** Any thread measures and sets; two that do so at the same moment may overwrite each other's budget, for
//! 20 ms.

use crate::base::listener::StoreEvent;
use crate::base::places::HOME;
use crate::base::sync::lock;
use situ_pipeline::Budget;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The share of tolerated debt from which writers are slowed.
const SLOW_AT: f64 = 0.5;
/// Writers are never slowed below this.
const RATE_MIN_BYTES_PER_S: f64 = (1 << 20) as f64;

/// The controller's state. All zero: no limit.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Bytes a second that flushes have lately written, smoothed: to the home, and elsewhere.
    flushed_bytes_per_s: [AtomicU64; 2],
    flushing: Mutex<Option<Flushing>>,
    /// Bytes a second that compactions have lately taken out of level 0, smoothed.
    drained_bytes_per_s: AtomicU64,
}

/// The flush that is under way.
#[derive(Debug, Clone, Copy)]
struct Flushing {
    begun: Duration,
    bytes: u64,
    volume: u32,
}

/// Shares of what is tolerated: 1 is the limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Debt {
    /// Memtables waiting to be flushed.
    pub(crate) memory: f64,
    /// Bytes that memtables may still take, of the keyspace in which they are the fullest.
    pub(crate) room: u64,
    /// Tables waiting in level 0, bytes above the targets of deeper levels.
    pub(crate) tables: f64,
}

impl Debt {
    /// Takes `bytes` of memtables into account, of which `tolerated` may be.
    pub(crate) fn note_memory(&mut self, bytes: u64, tolerated: u64) {
        let share = bytes as f64 / tolerated.max(1) as f64;
        if share >= self.memory {
            (self.memory, self.room) = (share, tolerated.saturating_sub(bytes));
        }
    }
}

fn smooth(average: &AtomicU64, bytes: u64, duration: Duration) {
    let rate = bytes as f64 / duration.as_secs_f64().max(1e-6);
    let old = average.load(Ordering::Relaxed) as f64;
    let smoothed = if old == 0.0 { rate } else { old * 0.7 + rate * 0.3 };
    average.store(smoothed as u64, Ordering::Relaxed);
}

impl Stall {
    /// Notes that a flush of `bytes` to a volume has begun.
    pub(crate) fn flush_begins(&self, begun: Duration, bytes: u64, volume: u32) {
        *lock(&self.flushing) = Some(Flushing { begun, bytes, volume });
    }

    /// Notes that the flush has ended, well or not.
    pub(crate) fn flush_ends(&self) {
        *lock(&self.flushing) = None;
    }

    /// Notes that a flush took `bytes` out of memory in `duration`, to this volume.
    pub(crate) fn flushed(&self, bytes: u64, duration: Duration, volume: u32) {
        smooth(self.flushes_to(volume), bytes, duration);
    }

    fn flushes_to(&self, volume: u32) -> &AtomicU64 {
        &self.flushed_bytes_per_s[usize::from(volume != HOME)]
    }

    /// Returns the budget in bytes a second for the memory that is left. `next` says where the next flush goes.
    fn allowed_by_memory(&self, now: Duration, next: &dyn Fn() -> u32, debt: &Debt) -> Option<f64> {
        let flushing = *lock(&self.flushing);
        let volume = flushing.map_or_else(next, |flushing| flushing.volume);
        // Of a volume that was not flushed to yet, as much is expected as of the other ones.
        let other = if volume == HOME { HOME + 1 } else { HOME };
        let rates = [volume, other].map(|volume| self.flushes_to(volume).load(Ordering::Relaxed) as f64);
        let rate = if rates[0] > 0.0 { rates[0] } else { rates[1] };
        let by_share = allowed(debt.memory, rate)?;
        let lasts = flushing.map(|Flushing { begun, bytes, .. }| {
            let taken = now.saturating_sub(begun).as_secs_f64();
            debt.room as f64 / (bytes as f64 / rate - taken).max(taken).max(1e-3)
        });
        Some(lasts.map_or(by_share, |lasts| lasts.clamp(RATE_MIN_BYTES_PER_S, by_share.max(RATE_MIN_BYTES_PER_S))))
    }

    /// Notes that a compaction took `bytes` out of level 0 in `duration`.
    pub(crate) fn drained(&self, bytes: u64, duration: Duration) {
        smooth(&self.drained_bytes_per_s, bytes, duration);
    }

    /// Sets the budget for the present debt. Returns what is to be told of that.
    pub(crate) fn set_debt(
        &self,
        now: Duration,
        next: &dyn Fn() -> u32,
        budget: &Budget,
        debt: &Debt,
    ) -> Option<StoreEvent> {
        let flush = self.allowed_by_memory(now, next, debt);
        let compaction = allowed(debt.tables, self.drained_bytes_per_s.load(Ordering::Relaxed) as f64);
        let rate = match (flush, compaction) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        budget.set(now, rate).then(|| StoreEvent::Slowed {
            bytes_per_s: rate.unwrap_or(0.0) as u64,
            reason: format!(
                "memtables at {:.0}%, tables at {:.0}% of what is tolerated",
                debt.memory * 100.0,
                debt.tables * 100.0
            ),
        })
    }
}

/// Returns the budget in bytes a second for a share of tolerated debt.
fn allowed(share: f64, drained_bytes_per_s: f64) -> Option<f64> {
    if share < SLOW_AT || drained_bytes_per_s == 0.0 {
        return None;
    }
    let urgency = ((share - SLOW_AT) / (1.0 - SLOW_AT)).clamp(0.0, 1.0);
    // 2 at the threshold, 1/4 at the limit, geometric in between: the slope is the same in proportion everywhere.
    let factor = 2.0 * 0.125f64.powf(urgency);
    Some((drained_bytes_per_s * factor).max(RATE_MIN_BYTES_PER_S))
}

#[cfg(test)]
mod tests;
