//! A cache that is open, and the memory of its process: the thread that keeps both in order.

use crate::engine::cache::OnTrouble;
use crate::engine::item::Header;
use crate::engine::{Change, Done, EngineError};
use crate::engines::allowance::Allowance;
use crate::process::pressure;
use situ::cache::{Cache, FlashProperties, Meta, Options};
use situ_base::{StoreClock, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The interval at which expired items go, and at which the process's memory is measured.
const TIDY_EVERY: Duration = Duration::from_millis(250);
/// The number of newly stored bytes after which the process's memory is measured again.
const LOOK_BYTES: u64 = 1 << 20;

/// The least limit of memory that follows the machine's, in bytes.
pub const FOLLOWS_BYTES_MIN: u64 = 64 << 20;

/// See the module.
pub(super) struct OpenCache {
    pub(super) cache: Cache,
    pub(super) allowance: Arc<Allowance>,
    pub(super) follows: AtomicBool,
    pub(super) records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(super) clock: Arc<StoreClock>,
    pub(super) now_seconds: AtomicU64,
    pub(super) stored_bytes: AtomicU64,
    /// Event loops that read flash themselves.
    pub(super) flash_loops: AtomicU64,
    pub(super) is_over: Mutex<bool>,
    pub(super) over: Condvar,
    /// The callback for faults of the flash.
    pub(super) tell: OnTrouble,
}

/// A record of the server's that is to be stored.
pub(super) struct NewRecord {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) done: Done,
}

impl OpenCache {
    pub(super) fn new(cache: Cache, options: &Options, clock: StoreClock, tell: OnTrouble) -> OpenCache {
        OpenCache {
            allowance: Arc::new(Allowance::new(options.memory_bytes as u64, cache.beside())),
            cache,
            follows: AtomicBool::new(false),
            records: Mutex::default(),
            now_seconds: AtomicU64::new(clock.seconds()),
            clock: Arc::new(clock),
            stored_bytes: AtomicU64::new(0),
            flash_loops: AtomicU64::new(0),
            is_over: Mutex::new(false),
            over: Condvar::new(),
            tell,
        }
    }

    pub(super) fn keep_tidy(&self) {
        let mut before = self.cache.properties().flash;
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            drop(is_over);
            let now = self.clock.seconds();
            self.now_seconds.store(now, Ordering::Relaxed);
            let rest = self.allowance.rest_bytes();
            self.look_at_memory(rest - rest / 64);
            self.cache.tidy(now);
            let flash = self.cache.properties().flash;
            self.tell_of(before, flash);
            before = flash;
            is_over = lock(&self.is_over);
            if !*is_over {
                let waited = self.over.wait_timeout(is_over, TIDY_EVERY);
                is_over = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
        }
    }

    /// Tells what has gone wrong with the flash since an earlier look.
    fn tell_of(&self, before: Option<FlashProperties>, now: Option<FlashProperties>) {
        let (Some(before), Some(now)) = (before, now) else { return };
        if before.works && !now.works {
            (self.tell)("the flash device has failed and is out of service; the cache goes on in memory");
        } else if before.outlives && !now.outlives {
            (self.tell)("the files beside the flash cannot be written; the next start begins with an empty flash");
        }
    }

    /// Lets the cache have what the rest of the process does not use, which is taken to need `least`.
    pub(super) fn look_at_memory(&self, least: u64) {
        if let Some(resident) = resident_bytes() {
            let limit = self.limit(resident);
            self.allowance.note(limit, resident, self.cache.properties().memory_bytes, least);
        }
    }

    /// Returns the limit of the process, which uses `resident` bytes now.
    fn limit(&self, resident: u64) -> u64 {
        let room = self.follows.load(Ordering::Relaxed).then(pressure::room).flatten();
        let most = self.allowance.memory_bytes_max();
        room.map_or(most, |room| limit_with(resident, room, most))
    }

    /// Counts `bytes` bytes that are about to be stored.
    fn will_store(&self, bytes: usize) {
        let before = self.stored_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before / LOOK_BYTES != (before + bytes as u64) / LOOK_BYTES {
            self.look_at_memory(self.allowance.rest_bytes());
        }
    }

    /// Stores a record of the server's. Without flash, or without files next to it, the record ends with the process,
    /// as all items do.
    pub(super) fn put_record(&self, record: NewRecord) {
        let NewRecord { key, value, done } = record;
        // A failure ends the trust in what is on flash. So the record is needed by this process alone.
        if !self.cache.put_record(&key, &value).is_ok_and(|is_stored| is_stored) {
            lock(&self.records).insert(key, value);
        }
        done(Ok(()));
    }

    pub(super) fn now(&self) -> u64 {
        self.now_seconds.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, key: &[u8], header: &[u8], parts: [&[u8]; 2]) -> Result<(), EngineError> {
        let header = Header::decode(header).ok_or_else(|| EngineError::new("a bug: a value has no header"))?;
        let Header { state, flags, expires, id, given_cas } = header;
        let meta = Meta { state, flags, expires, id, given_cas };
        self.will_store(parts[0].len() + parts[1].len());
        self.cache.put(key, &meta, parts, self.now()).map_err(EngineError::new)
    }

    pub(super) fn apply(&self, change: &Change<'_>) -> Result<(), EngineError> {
        match change {
            Change::Delete { key } => {
                self.cache.delete(key);
                Ok(())
            }
            Change::Put { key, value } => {
                let length = Header::decode(value).map_or(0, |header| header.byte_len());
                self.put(key, value, [&value[length..], b""])
            }
        }
    }
}

/// Returns the limit of a process that uses `resident` bytes, and may take `room` more.
fn limit_with(resident: u64, room: i64, memory_bytes_max: u64) -> u64 {
    resident.saturating_add_signed(room).max(FOLLOWS_BYTES_MIN).min(memory_bytes_max)
}

/// Returns the memory of this process, in bytes; `None` without a proc file system.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_follows_what_is_left() {
        const MIB: u64 = 1 << 20;
        let limit = |resident: u64, room: i64| limit_with(resident * MIB, room * MIB as i64, 1000 * MIB) / MIB;
        assert_eq!(limit(300, 200), 500);
        assert_eq!(limit(300, -100), 200);
        assert_eq!(limit(300, 5000), 1000);
        assert_eq!(limit(300, -5000), 64);
    }
}
