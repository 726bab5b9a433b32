//! Back-pressure: writers are slowed smoothly, by measured debt, before they would have to be stopped.
//!
//! Debt has two parts, each a share of what is tolerated: memtables waiting to be flushed, and tables waiting to be
//! compacted. Below [`SLOW_AT`] nothing happens. Above, writers share a budget of bytes a second: the rate at which
//! flushes (compactions) have lately worked, times a factor that falls from 2 to 1/4 as the debt grows. So the debt
//! settles where writers are exactly as fast as the work behind them, and a write waits microseconds to a few
//! milliseconds instead of stopping for seconds.
//!
//! Flushes are few and large, and those of a store on two disks go at two speeds: their rate is known for each disk, and what
//! memory is left has to last for as long as the present one takes. That is what such a flush usually takes, and where it has
//! taken longer already, as long again: then the room is used up ever more slowly, and never quite. While writers are slowed,
//! all of this is looked at again every [`REFRESH_MS`]. Where the log has an area of a disk to itself
//! ([`Pipeline::log_area_bytes`]), what it holds there counts like memory: synced writes fill it faster.
//!
//! The budget is a virtual clock: each write moves it forward by its bytes' time and waits until it is due, never longer
//! than [`DELAY_MS_MAX`] a time. A blocking write sleeps; an asynchronous one waits outside of any thread of its caller
//! (`admission.rs`).
//!
//! **Threads.** One atomic add and two looks at the clock for each write while slowed, of which one in 20 ms measures the debt,
//! with no lock held; one atomic load otherwise.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::Pipeline;
use crate::pipeline::commit::Obstacle;
use crate::versions::keyspace::KeyspaceCore;
use situ_disks::CAPACITY;
use situ_disks::FAST;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The share of tolerated debt from which writers are slowed.
const SLOW_AT: f64 = 0.5;
/// The longest that one write is held back at a time.
const DELAY_MS_MAX: u64 = 50;
/// Writers are never slowed below this.
const RATE_MIN_BYTES_PER_S: f64 = (1 << 20) as f64;
/// The budget of slowed writers is never older.
const REFRESH_MS: u64 = 20;
/// Sleeping costs about as much as this; shorter waits are gathered.
const SLEEP_NS_MIN: u64 = 100_000;

/// The controller's state. All zero: no limit.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Nanoseconds of budget a byte costs; 0 while writers are not slowed.
    ns_per_byte_x1000: AtomicU64,
    /// When the next byte is due, in nanoseconds of the clock.
    due_ns: AtomicU64,
    /// When the budget is to be measured again, in nanoseconds of the clock.
    refresh_ns: AtomicU64,
    /// Bytes a second that flushes to each disk have lately written, smoothed.
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
    disk: u32,
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
    /// Holds a blocking writer of `bytes` back as long as the budget asks for.
    #[inline]
    pub(crate) fn admit(&self, pipeline: &Pipeline, bytes: u64) {
        self.refresh(pipeline);
        let delay = self.charge(pipeline, bytes);
        if !delay.is_zero() {
            pipeline.env.clock.sleep(delay);
            self.stopped(pipeline, delay);
        }
    }

    /// Takes `bytes` out of the budget. Returns how long the writer is to wait: zero if nothing is to be gathered yet.
    #[inline]
    pub(crate) fn charge(&self, pipeline: &Pipeline, bytes: u64) -> Duration {
        match self.ns_per_byte_x1000.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            price => self.delay(pipeline, bytes, price),
        }
    }

    /// Measures the debt again if writers are slowed and nobody has measured for a while; for whoever is about to
    /// [`charge`](Stall::charge). With no lock held: a listener may be told.
    #[inline]
    pub(crate) fn refresh(&self, pipeline: &Pipeline) {
        if self.ns_per_byte_x1000.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = pipeline.env.clock.now().as_nanos() as u64;
        let due = self.refresh_ns.load(Ordering::Relaxed);
        let next = now + REFRESH_MS * 1_000_000;
        if now >= due && self.refresh_ns.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            pipeline.above().iter().for_each(|above| above.memory_changed());
        }
    }

    #[cold]
    fn delay(&self, pipeline: &Pipeline, bytes: u64, price: u64) -> Duration {
        let now = pipeline.env.clock.now().as_nanos() as u64;
        let cost = bytes.saturating_mul(price) / 1000;
        let delay_max = DELAY_MS_MAX * 1_000_000;
        // Time that nobody used is not saved up, and what is owed stays within what one write can wait for.
        let charge = |due: u64| Some(due.clamp(now, now + delay_max).saturating_add(cost));
        let due = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).unwrap_or(now);
        let delay = due.saturating_sub(now).min(delay_max);
        Duration::from_nanos(if delay < SLEEP_NS_MIN { 0 } else { delay })
    }

    /// Accounts for time a writer was held back.
    pub(crate) fn stopped(&self, pipeline: &Pipeline, duration: Duration) {
        pipeline.health.stats.counters.stall_ns.add(duration.as_nanos() as u64);
        pipeline.health.stats.stall.record(duration);
    }

    /// A flush of `bytes` to a disk begins.
    pub(crate) fn flush_begins(&self, pipeline: &Pipeline, bytes: u64, disk: u32) {
        *lock(&self.flushing) = Some(Flushing { begun: pipeline.env.clock.now(), bytes, disk });
    }

    /// The flush has ended, well or not.
    pub(crate) fn flush_ends(&self) {
        *lock(&self.flushing) = None;
    }

    /// A flush took `bytes` out of memory in `duration`, to this disk.
    pub(crate) fn flushed(&self, bytes: u64, duration: Duration, disk: u32) {
        smooth(self.flushes_to(disk), bytes, duration);
    }

    fn flushes_to(&self, disk: u32) -> &AtomicU64 {
        &self.flushed_bytes_per_s[usize::from(disk == FAST)]
    }

    /// The budget in bytes a second for what memory there is left.
    fn allowed_by_memory(&self, pipeline: &Pipeline, debt: &Debt) -> Option<f64> {
        let flushing = *lock(&self.flushing);
        let next = || pipeline.above().map_or(CAPACITY, |above| above.next_flush_goes_to());
        let disk = flushing.map_or_else(next, |flushing| flushing.disk);
        // Of a disk that was not flushed to yet, as much is expected as of the other one.
        let rates = [disk, 1 - disk].map(|disk| self.flushes_to(disk).load(Ordering::Relaxed) as f64);
        let rate = if rates[0] > 0.0 { rates[0] } else { rates[1] };
        let by_share = allowed(debt.memory, rate)?;
        let lasts = flushing.map(|Flushing { begun, bytes, .. }| {
            let taken = pipeline.env.clock.now().saturating_sub(begun).as_secs_f64();
            debt.room as f64 / (bytes as f64 / rate - taken).max(taken).max(1e-3)
        });
        Some(lasts.map_or(by_share, |lasts| lasts.clamp(RATE_MIN_BYTES_PER_S, by_share.max(RATE_MIN_BYTES_PER_S))))
    }

    /// A compaction took `bytes` out of level 0 in `duration`.
    pub(crate) fn drained(&self, bytes: u64, duration: Duration) {
        smooth(&self.drained_bytes_per_s, bytes, duration);
    }

    /// Sets the budget for the present debt.
    pub(crate) fn set_debt(&self, pipeline: &Pipeline, debt: &Debt) {
        let now = pipeline.env.clock.now().as_nanos() as u64;
        self.refresh_ns.store(now + REFRESH_MS * 1_000_000, Ordering::Relaxed);
        let flush = self.allowed_by_memory(pipeline, debt);
        let compaction = allowed(debt.tables, self.drained_bytes_per_s.load(Ordering::Relaxed) as f64);
        let rate = match (flush, compaction) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let price = rate.map_or(0, |rate| ((1e12 / rate) as u64).max(1));
        let before = self.ns_per_byte_x1000.swap(price, Ordering::Relaxed);
        if (before == 0) != (price == 0) {
            pipeline.health.tell(|| StoreEvent::Slowed {
                bytes_per_s: rate.unwrap_or(0.0) as u64,
                reason: format!(
                    "memtables at {:.0}%, tables at {:.0}% of what is tolerated",
                    debt.memory * 100.0,
                    debt.tables * 100.0
                ),
            });
        }
    }

    /// Bytes a second that writers may write now; `None` if they are not slowed.
    pub(crate) fn limit_bytes_per_s(&self) -> Option<u64> {
        let price = self.ns_per_byte_x1000.load(Ordering::Relaxed);
        (price != 0).then(|| 1_000_000_000_000 / price)
    }
}

impl Pipeline {
    /// A writer meets an obstacle that only the store's own work can clear away.
    pub(crate) fn note_stop(&self, obstacle: &Obstacle) {
        let (keyspace, reason) = match obstacle {
            Obstacle::MemtablesFull { keyspace } => {
                (keyspace, format!("all {} memtables are full", self.memtables_max(keyspace)))
            }
            Obstacle::Level0Full { keyspace } => {
                (keyspace, format!("level 0 has its {} tables", keyspace.options.level0_tables_max))
            }
            _ => return,
        };
        if !keyspace.stopped.swap(true, Ordering::SeqCst) {
            self.health.stats.counters.write_stops.add(1);
            self.health.tell(|| StoreEvent::WritersStopped { keyspace: keyspace.name.clone(), reason });
        }
        // There may be room since the obstacle was found, and whoever made it may have looked before it was noted.
        self.note_room_in(keyspace);
    }

    /// Tells of the keyspaces that have room again.
    pub(crate) fn note_room(&self) {
        self.versions.keyspaces().iter().for_each(|keyspace| self.note_room_in(keyspace));
    }

    fn note_room_in(&self, keyspace: &KeyspaceCore) {
        if keyspace.stopped.load(Ordering::SeqCst)
            && keyspace.has_room(self.memtables_max(keyspace))
            && keyspace.stopped.swap(false, Ordering::SeqCst)
        {
            self.health.tell(|| StoreEvent::WritersResumed { keyspace: keyspace.name.clone() });
        }
    }
}

/// The budget in bytes a second for a share of tolerated debt.
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
