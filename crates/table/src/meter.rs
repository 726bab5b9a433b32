//! The bytes that sequential readers read, and the time that they wait for them.

use situ_base::Clock;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Sums over any number of cursors and threads. Costs two looks at the clock for each read of a file, and an atomic add
/// for each block.
pub struct ReadMeter {
    clock: Arc<dyn Clock>,
    nanos: AtomicU64,
    stored_bytes: AtomicU64,
    plain_bytes: AtomicU64,
}

impl ReadMeter {
    /// Creates a meter at zero.
    pub fn new(clock: Arc<dyn Clock>) -> ReadMeter {
        ReadMeter { clock, nanos: AtomicU64::new(0), stored_bytes: AtomicU64::new(0), plain_bytes: AtomicU64::new(0) }
    }

    /// Returns the time that reads have taken.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Returns the bytes of files that were read, as they are stored.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of data blocks that were decoded, as they are without compression.
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes.load(Ordering::Relaxed)
    }

    /// Does something that reads, and counts the time that it takes.
    pub fn time_of<T>(&self, read: impl FnOnce() -> T) -> T {
        let began = self.clock.now();
        let answer = read();
        self.add_time(self.clock.now().saturating_sub(began));
        answer
    }

    /// Adds time that was spent on reading.
    pub fn add_time(&self, time: Duration) {
        self.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Counts `bytes` bytes read from a file.
    pub fn add_stored(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` decoded bytes of a block.
    pub fn add_plain(&self, bytes: u64) {
        self.plain_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for ReadMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadMeter({} bytes in {:?})", self.stored_bytes(), self.time())
    }
}
