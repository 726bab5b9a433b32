//! The rate at which a table is read from its disk.
//!
//! Only what the block cache did not have counts, and only what looks for something: reads in large pieces are a
//! merge's or a copy's. Counted for stores on several volumes; others do without.

use crate::base::places::BULK_READ_BYTES;
use situ_storage::{Reader, Result};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The weight of what was before in the smoothed rate: half after one round of ten seconds.
const BEFORE: f64 = 0.5;

/// Reads of one table.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    reads: AtomicU64,
    /// As of the last look.
    seen: AtomicU64,
    /// Smoothed, in thousandths.
    per_s_x1000: AtomicU64,
}

impl Heat {
    /// Reads a second, smoothed, as of the last look.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s_x1000.load(Ordering::Relaxed) as f64 / 1000.0
    }

    /// Sets the heat that a new table inherits from the tables it replaces.
    pub(crate) fn set_per_s(&self, per_s: f64) {
        self.per_s_x1000.store((per_s * 1000.0) as u64, Ordering::Relaxed);
    }

    /// Takes what was read since the last look, `elapsed` ago, into the rate.
    pub(crate) fn look(&self, elapsed: Duration) {
        let reads = self.reads.load(Ordering::Relaxed);
        let new = reads.saturating_sub(self.seen.swap(reads, Ordering::Relaxed)) as f64;
        let rate = new / elapsed.as_secs_f64().max(1e-3);
        self.set_per_s(BEFORE * self.per_s() + (1.0 - BEFORE) * rate);
    }
}

/// A reader that counts.
pub(crate) struct Heated {
    inner: Arc<dyn Reader>,
    heat: Arc<Heat>,
}

impl Heated {
    pub(crate) fn over(inner: Arc<dyn Reader>, heat: &Arc<Heat>) -> Arc<dyn Reader> {
        Arc::new(Heated { inner, heat: Arc::clone(heat) })
    }
}

impl Reader for Heated {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn file(&self) -> Option<&File> {
        self.inner.file()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.heat.reads.fetch_add(u64::from(into.len() < BULK_READ_BYTES), Ordering::Relaxed);
        self.inner.read_at(offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        let is_there = self.inner.read_now(offset, into)?;
        self.heat.reads.fetch_add(u64::from(is_there && into.len() < BULK_READ_BYTES), Ordering::Relaxed);
        Ok(is_there)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        self.inner.prefetch(offset, bytes);
    }
}
