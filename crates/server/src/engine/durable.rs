//! The server's own state that outlives a restart: cas ids and the flush barrier.
//!
//! **Cas ids** are unique and increase for ever. A counter in memory gives them out up to a limit that is stored in
//! the engine; long before the limit is reached, the next block is reserved with one metadata write. A restart goes
//! on at the stored limit, so a crash skips ids and never repeats one.
//!
//! **The flush barrier** is a cas id: items below it are dead. `flush_all` takes the id behind the next one as the
//! barrier and stores it; the cost does not depend on the number of items. A delayed `flush_all` stores its due time,
//! and becomes an ordinary one when some loop's clock has passed it, or at the next start.
//!
//! **Invariants.** Every id given out is below the stored limit. The barrier never goes down.
//! **Failure.** If a block cannot be reserved (the engine is read-only, or its disk is full), ids go on until the block
//! ends. Then storing fails with a reason, and each further attempt tries the reservation again. A server that starts
//! without a block serves reads and deletes. A flush whose record cannot be stored holds until the next restart; its
//! client gets an error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::engine::item::ExpiryRule;
use crate::engine::{Done, Engine, EngineError};

/// The record of the cas id at which ids go on.
pub(crate) const LIMIT_KEY: &[u8] = b"cas-limit";
/// The record of the flush barrier.
pub(crate) const FLUSH_KEY: &[u8] = b"flush-barrier";
/// Key of the record of the clock by which items expire, for engines that have no other place for it.
pub(crate) const CLOCK_KEY: &[u8] = b"clock";
/// Ids per reservation: one small durable write per million stores.
const BLOCK: u64 = 1 << 20;
/// The longest wait of a start for its first reservation.
const START_WAIT: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Durable<E> {
    engine: Arc<E>,
    next: AtomicU64,
    limit: Arc<AtomicU64>,
    reserving: Arc<AtomicBool>,
    /// The error of the reservation of the first block, if it failed.
    unreserved: Option<EngineError>,
    barrier: AtomicU64,
    /// Store time in seconds at which a delayed flush is due; 0 if none is pending.
    due: AtomicU64,
}

pub(crate) fn decode_words<const N: usize>(name: &str, bytes: &[u8]) -> Result<[u64; N], EngineError> {
    let mut words = [0; N];
    let (chunks, rest) = bytes.as_chunks::<8>();
    if chunks.len() != N || !rest.is_empty() {
        return Err(EngineError::new(format!(
            "the server's record {name} is damaged: expected {} bytes, found {}",
            8 * N,
            bytes.len()
        )));
    }
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(words)
}

/// Returns the flush barrier in a record stored under [`FLUSH_KEY`]; `None` if it is not one.
pub(crate) fn stored_barrier(record: &[u8]) -> Option<u64> {
    decode_words::<2>("flush-barrier", record).ok().map(|[barrier, _]| barrier)
}

impl<E: Engine> Durable<E> {
    /// Reads the stored state and reserves the first block of cas ids.
    pub(crate) fn open(engine: Arc<E>) -> Result<Durable<E>, EngineError> {
        let first = match engine.get_meta(LIMIT_KEY)? {
            Some(bytes) => decode_words::<1>("cas-limit", &bytes)?[0],
            None => 1,
        };
        let [barrier, due] = match engine.get_meta(FLUSH_KEY)? {
            Some(bytes) => decode_words("flush-barrier", &bytes)?,
            None => [0, 0],
        };
        let limit = first.checked_add(BLOCK).ok_or_else(|| EngineError::new("all cas ids are used up"))?;
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        engine.put_meta(LIMIT_KEY, &limit.to_le_bytes(), done);
        let reserved = receiver
            .recv_timeout(START_WAIT)
            .map_err(|_| EngineError::new("the engine did not store the server's cas limit in 30 s"))?;
        let limit = if reserved.is_ok() { limit } else { first };
        Ok(Durable {
            engine,
            next: AtomicU64::new(first),
            limit: Arc::new(AtomicU64::new(limit)),
            unreserved: reserved.err(),
            reserving: Arc::default(),
            barrier: AtomicU64::new(barrier),
            due: AtomicU64::new(due),
        })
    }

    /// Returns the engine that keeps the records.
    pub(crate) fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns the reason why clients could store nothing when the server started, if there is one.
    pub(crate) fn unreserved(&self) -> Option<&EngineError> {
        self.unreserved.as_ref()
    }

    /// Returns the next cas id.
    ///
    /// # Errors
    /// The reserved ids are used up and no more could be reserved yet.
    pub(crate) fn next_cas(&self) -> Result<u64, EngineError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let limit = self.limit.load(Ordering::Acquire);
        if id + BLOCK / 2 >= limit {
            self.reserve(limit);
            if id >= self.limit.load(Ordering::Acquire) {
                return Err(EngineError::new("no cas ids can be reserved: the engine does not accept writes"));
            }
        }
        Ok(id)
    }

    fn reserve(&self, limit: u64) {
        if self.reserving.swap(true, Ordering::AcqRel) {
            return;
        }
        // Another thread may have finished a reservation between the caller's look and the swap; and attempts that
        // failed have moved the counter past the limit.
        let used = limit.max(self.limit.load(Ordering::Acquire)).max(self.next.load(Ordering::Relaxed));
        let new_limit = used.saturating_add(BLOCK);
        let (shared_limit, reserving) = (Arc::clone(&self.limit), Arc::clone(&self.reserving));
        let done: Done = Box::new(move |result| {
            if result.is_ok() {
                shared_limit.fetch_max(new_limit, Ordering::AcqRel);
            }
            reserving.store(false, Ordering::Release);
        });
        self.engine.put_meta(LIMIT_KEY, &new_limit.to_le_bytes(), done);
    }

    /// Items with a cas id below this are dead.
    pub(crate) fn barrier(&self) -> u64 {
        self.barrier.load(Ordering::Acquire)
    }

    /// Returns the approximate number of items that clients can find: as many as the engine has, and at most as many as
    /// were stored since the last flush. The engine counts flushed items until it has dropped them. After a restart,
    /// ids that were skipped count as stored.
    pub(crate) fn approximate_items(&self) -> u64 {
        let stored = self.next.load(Ordering::Relaxed).saturating_sub(self.barrier());
        self.engine.approximate_items().min(stored)
    }

    /// Returns the rule for items that are dead at `now_seconds`. Carries out a delayed flush when it is due.
    pub(crate) fn rule(&self, now_seconds: u64) -> ExpiryRule {
        let due = self.due.load(Ordering::Acquire);
        if due != 0
            && due <= now_seconds
            && self.due.compare_exchange(due, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            // The stored due time does the same again after a restart if this record does not get through.
            // Above every id given out, and never above the stored limit, at which ids go on after a restart.
            let cas = self.next.load(Ordering::Relaxed).min(self.limit.load(Ordering::Acquire));
            self.raise_barrier(cas, 0, Box::new(|_| ()));
        }
        ExpiryRule { now_seconds, barrier_cas: self.barrier.load(Ordering::Acquire) }
    }

    /// Flushes now, or at the store time `at_seconds` if it is not 0. Calls `done` when that is durable.
    pub(crate) fn flush(&self, at_seconds: u64, done: Done) {
        if at_seconds != 0 {
            self.due.store(at_seconds, Ordering::Release);
            self.store(self.barrier.load(Ordering::Acquire), at_seconds, done);
            return;
        }
        self.due.store(0, Ordering::Release);
        match self.next_cas() {
            // No item has this id itself.
            Ok(cas) => self.raise_barrier(cas + 1, 0, done),
            Err(error) => done(Err(error)),
        }
    }

    fn raise_barrier(&self, cas: u64, due: u64, done: Done) {
        let barrier = self.barrier.fetch_max(cas, Ordering::AcqRel).max(cas);
        self.store(barrier, due, done);
    }

    fn store(&self, barrier: u64, due: u64, done: Done) {
        let mut record = barrier.to_le_bytes().to_vec();
        record.extend_from_slice(&due.to_le_bytes());
        self.engine.put_meta(FLUSH_KEY, &record, done);
    }
}

#[cfg(test)]
mod tests;
