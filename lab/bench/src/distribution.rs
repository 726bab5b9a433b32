//! YCSB's request distributions, exactly.
//!
//! The zipfian generator is Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994), with
//! YCSB's constants and its quirks, because published YCSB figures contain them:
//! - the scrambled generator draws from 10^10 items whatever the record count, then hashes into the range;
//! - when the item count grows, `zeta` follows but `eta` keeps using the count the generator was made with;
//! - the count never shrinks.
//!
//! **Invariants.** Every draw lies in the documented range; the same seed gives the same draws.
//!
//! **Threads.** One generator belongs to one thread. [`Inserted`] is shared: it is the only thing threads must agree
//! on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::random::Random;

/// The exponent of YCSB's zipfian distribution.
pub const ZIPFIAN_CONSTANT: f64 = 0.99;
/// The largest item that the scrambled zipfian generator draws before hashing.
pub const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// `zeta(SCRAMBLED_ITEMS)` at [`ZIPFIAN_CONSTANT`], precomputed as in YCSB: summing it takes a minute.
pub const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Computes FNV-1a over the eight bytes of `value`, least significant first, made positive as Java's `Math.abs` does.
#[inline]
#[must_use]
pub fn fnv_hash(value: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for octet in value.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    }
    (hash as i64).unsigned_abs()
}

/// `zeta` over items `from..to`, added to `sum`: the sum of `1 / (i + 1)^theta`.
fn zeta(from: u64, to: u64, theta: f64, sum: f64) -> f64 {
    (from..to).fold(sum, |sum, item| sum + 1.0 / ((item + 1) as f64).powf(theta))
}

/// Item `0` is the most popular, then `1`, and so on.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    zeta_items: u64,
    zeta_two: f64,
    eta: f64,
}

impl Zipfian {
    /// Creates a distribution over `0..items`, at [`ZIPFIAN_CONSTANT`]. Costs one power per item: make one and clone
    /// it.
    #[must_use]
    pub fn new(items: u64) -> Self {
        let items = items.max(1);
        Self::with_zeta(items, zeta(0, items, ZIPFIAN_CONSTANT, 0.0))
    }

    fn with_zeta(items: u64, zeta_items: f64) -> Self {
        let theta = ZIPFIAN_CONSTANT;
        let mut this = Self {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta: zeta_items,
            zeta_items: items,
            zeta_two: zeta(0, 2, theta, 0.0),
            eta: 0.0,
        };
        this.eta = this.eta_now();
        this
    }

    fn eta_now(&self) -> f64 {
        let numerator = 1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta);
        numerator / (1.0 - self.zeta_two / self.zeta)
    }

    /// Returns the probability of the most popular item.
    #[must_use]
    pub fn top_probability(&self) -> f64 {
        1.0 / self.zeta
    }

    /// Draws the next item of `0..items`.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        self.next_of(self.items, random)
    }

    /// Draws the next item when there are now `items`; grows `zeta` by what was added since the last call.
    pub fn next_of(&mut self, items: u64, random: &mut Random) -> u64 {
        if items > self.zeta_items {
            self.zeta = zeta(self.zeta_items, items, self.theta, self.zeta);
            self.zeta_items = items;
            self.eta = self.eta_now();
        }
        let draw = random.unit();
        let scaled = draw * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        (items as f64 * (self.eta * draw - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

/// Popular items scattered over `0..items` by a hash.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    zipfian: Zipfian,
}

impl ScrambledZipfian {
    /// Creates a distribution over `0..items`. Cheap at any count.
    #[must_use]
    pub fn new(items: u64) -> Self {
        // YCSB passes the bounds 0 and ITEM_COUNT inclusive, hence the one more.
        let zipfian = Zipfian::with_zeta(SCRAMBLED_ITEMS + 1, SCRAMBLED_ZETA);
        Self { items: items.max(1), zipfian }
    }

    /// Draws the next item of `0..items`.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        fnv_hash(self.zipfian.next(random)) % self.items
    }
}

/// A share of the draws falls on the first share of the items; both parts are uniform inside.
#[derive(Clone, Debug)]
pub struct Hotspot {
    items: u64,
    hot_items: u64,
    hot_draws: f64,
}

impl Hotspot {
    /// YCSB's defaults are `hot_set` 0.2 and `hot_draws` 0.8: 80 % of the draws on 20 % of the items.
    #[must_use]
    pub fn new(items: u64, hot_set: f64, hot_draws: f64) -> Self {
        let items = items.max(1);
        let hot_items = ((items as f64 * hot_set.clamp(0.0, 1.0)) as u64).min(items);
        // An empty part can take no draws.
        let hot_draws = match hot_items {
            0 => 0.0,
            hot if hot == items => 1.0,
            _ => hot_draws.clamp(0.0, 1.0),
        };
        Self { items, hot_items, hot_draws }
    }

    /// Draws the next item of `0..items`.
    pub fn next(&mut self, random: &mut Random) -> u64 {
        if random.unit() < self.hot_draws {
            random.below(self.hot_items)
        } else {
            self.hot_items + random.below(self.items - self.hot_items)
        }
    }
}

/// The set of existing records: a counter that hands out numbers, and a limit below which all have been acknowledged.
///
/// Inserts finish out of order. A reader may choose only a record that exists. So the limit moves past a number when
/// that number and all before it are acknowledged. As in YCSB, a window of 2^20 numbers may be pending.
#[derive(Debug)]
pub struct Inserted {
    next: AtomicU64,
    acknowledged_below: AtomicU64,
    window: Vec<AtomicBool>,
    moving: AtomicBool,
}

/// Numbers that may be handed out beyond the acknowledged limit.
const WINDOW: u64 = 1 << 20;

impl Inserted {
    /// Records `0..records` exist.
    #[must_use]
    pub fn new(records: u64) -> Self {
        Self {
            next: AtomicU64::new(records),
            acknowledged_below: AtomicU64::new(records),
            window: (0..WINDOW).map(|_| AtomicBool::new(false)).collect(),
            moving: AtomicBool::new(false),
        }
    }

    /// Returns the number of the next record to insert.
    #[inline]
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of records that certainly exist: all of `0..count()`.
    #[inline]
    pub fn count(&self) -> u64 {
        self.acknowledged_below.load(Ordering::Acquire)
    }

    /// Records that `number` exists now. Returns false when 2^20 later inserts have overtaken one that is still
    /// pending: the window is full, and the limit is no longer known.
    #[must_use]
    pub fn acknowledge(&self, number: u64) -> bool {
        if number >= self.count().saturating_add(WINDOW) {
            return false;
        }
        self.window[(number % WINDOW) as usize].store(true, Ordering::SeqCst);
        // One thread at a time moves the limit. A thread that is turned away has set its flag before; the mover looks
        // again after it has let go, so no acknowledged number stays behind.
        loop {
            if self.moving.swap(true, Ordering::SeqCst) {
                return true;
            }
            let mut limit = self.acknowledged_below.load(Ordering::Relaxed);
            while self.window[(limit % WINDOW) as usize].swap(false, Ordering::AcqRel) {
                limit += 1;
                self.acknowledged_below.store(limit, Ordering::Release);
            }
            self.moving.store(false, Ordering::SeqCst);
            if !self.window[(limit % WINDOW) as usize].load(Ordering::SeqCst) {
                return true;
            }
        }
    }
}

/// The distribution from which a YCSB workload draws the record of its next operation.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// All of `0..n` alike.
    Uniform(u64),
    /// Scrambled zipfian.
    Zipfian(ScrambledZipfian),
    /// The newest records are the most popular.
    Latest(Zipfian),
    /// A hot part and a cold part.
    Hotspot(Hotspot),
}

impl Chooser {
    /// Draws the next existing record. A draw beyond what exists is drawn again, as YCSB does; with no records,
    /// record 0.
    pub fn next(&mut self, inserted: &Inserted, random: &mut Random) -> u64 {
        loop {
            let count = inserted.count();
            let Some(last) = count.checked_sub(1) else { return 0 };
            let record = match self {
                Self::Uniform(items) => random.below(*items),
                Self::Zipfian(zipfian) => zipfian.next(random),
                Self::Latest(zipfian) => last.saturating_sub(zipfian.next_of(last, random)),
                Self::Hotspot(hotspot) => hotspot.next(random),
            };
            if record <= last {
                return record;
            }
        }
    }
}

#[cfg(test)]
mod tests;
