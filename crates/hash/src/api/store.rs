//! The store: what a program opens.

use crate::format::address::hash_of;
use crate::format::record::VALUE_BYTES_MAX;
use crate::format::superblock::Totals;
use crate::live::core::Core;
use crate::live::read_queue::OnValue;
use crate::opening::{Locks, Opened};
use crate::writing::batch::HashBatch;
use crate::writing::writes::{Write, Writes};
use crate::{Error, Result};
use situ_base::{ClockKeeper, JobHandle, StoreClock, lock};
use situ_log::Durability;
use situ_pipeline::{LOGGERS_MAX, WriteFuture};
use situ_storage::Error as StorageError;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// An asynchronous write; see [`HashStore::write_async`].
#[must_use = "the write takes place, but only the future tells whether it did"]
pub struct HashWrite(State);

enum State {
    Begun(WriteFuture<Writes>),
    /// The store did not take the write.
    Refused(Error),
}

impl HashWrite {
    /// Returns true if the write has begun. False while it waits for room, and if it was refused.
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            State::Begun(write) => write.has_begun(),
            State::Refused(_) => false,
        }
    }
}

impl std::future::Future for HashWrite {
    type Output = Result<()>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<()>> {
        match &mut self.0 {
            State::Begun(write) => std::pin::Pin::new(write).poll(context),
            State::Refused(error) => std::task::Poll::Ready(Err(error.clone())),
        }
    }
}

impl fmt::Debug for HashWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Begun(write) => write.fmt(f),
            State::Refused(error) => write!(f, "HashWrite(refused: {error})"),
        }
    }
}

/// An open hash store: a map of keys to values without an order, on a drive that compresses.
///
/// Clones are cheap and share the store; it is closed by [`close`](HashStore::close) or with the last clone.
///
/// ```
/// # mod situ { pub use situ_hash as hash; }
/// use situ::hash::{HashOptions, HashStore};
///
/// # fn main() -> situ::hash::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = HashStore::open(directory.path(), HashOptions::default())?;
/// store.put("lovelace", "1815")?;
/// assert_eq!(store.get("lovelace")?.as_deref(), Some(&b"1815"[..]));
/// store.delete("lovelace")?;
/// assert_eq!(store.get("lovelace")?, None);
/// store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct HashStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Threads>,
    locks: Mutex<Option<Locks>>,
    clock: ClockKeeper,
}

#[derive(Default)]
struct Threads {
    pipeline: Vec<Box<dyn JobHandle>>,
    buckets: Vec<Box<dyn JobHandle>>,
}

impl HashStore {
    pub(crate) fn start(opened: Opened) -> Result<HashStore> {
        let Opened { core, locks, clock } = opened;
        let inner = Inner { core, threads: Mutex::default(), locks: Mutex::new(Some(locks)), clock };
        inner.start_threads()?;
        Ok(HashStore { inner: Arc::new(inner) })
    }

    /// Returns the clock by which entries expire.
    pub fn clock(&self) -> &Arc<StoreClock> {
        &self.inner.core.clock
    }

    /// Stores `value` under `key`. It survives the end of the process on return.
    ///
    /// # Errors
    /// Key or value are too long; the store is closed or has failed.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, Durability::Buffered, None)
    }

    /// Stores a value as [`put`](HashStore::put) does, with a durability and an expiration time. `expires_ms` is in
    /// milliseconds since 1970; `None` means forever. Later corrections of the wall clock do not change the entry's
    /// time to live.
    ///
    /// # Errors
    /// As [`put`](HashStore::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
        expires_ms: Option<u64>,
    ) -> Result<()> {
        let mut batch = HashBatch::new();
        let store_ms = expires_ms.map(|unix_ms| self.clock().ms_of_unix(unix_ms));
        batch.put_until(key, value, store_ms)?;
        self.write_with(batch, durability)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`put`](HashStore::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = HashBatch::new();
        batch.delete(key)?;
        self.write(batch)
    }

    /// Writes all changes of a batch, or none; buffered, as [`put`](HashStore::put).
    ///
    /// # Errors
    /// As [`put`](HashStore::put).
    pub fn write(&self, batch: HashBatch) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Writes a batch as [`write`](HashStore::write) does, with a durability.
    ///
    /// # Errors
    /// As [`put`](HashStore::put).
    pub fn write_with(&self, batch: HashBatch, durability: Durability) -> Result<()> {
        let write = self.inner.core.ready(batch)?;
        self.inner.core.pipeline.write(situ_pipeline::Write::new(write, None), durability).map(drop)
    }

    /// Works like [`write`](HashStore::write), without blocking. The write takes place whether the future is polled or
    /// dropped. All errors come from the future.
    pub fn write_async(&self, batch: HashBatch) -> HashWrite {
        self.write_with_async(batch, Durability::Buffered)
    }

    /// Works like [`write_with`](HashStore::write_with), without blocking; see [`write_async`](HashStore::write_async).
    pub fn write_with_async(&self, batch: HashBatch, durability: Durability) -> HashWrite {
        let core = &self.inner.core;
        let begun = core
            .ready(batch)
            .and_then(|write| WriteFuture::begin(&core.pipeline, situ_pipeline::Write::new(write, None), durability));
        HashWrite(begun.map_or_else(State::Refused, State::Begun))
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// The store is closed, the device cannot be read, or what was read is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.inner.core.check_open()?;
        self.inner.core.get(key.as_ref())
    }

    /// Returns the values of keys, in their order; the reads are in flight together.
    ///
    /// # Errors
    /// As [`get`](HashStore::get).
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>> {
        self.inner.core.check_open()?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.inner.core.multi_get(&keys)
    }

    /// Returns the value of `key` if that can be had without waiting: the key was written lately, or the device answers
    /// at once. None if the device has to be asked; [`get_async`](HashStore::get_async) does that.
    ///
    /// # Errors
    /// As [`get`](HashStore::get).
    pub fn get_at_once(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Vec<u8>>>> {
        let core = &self.inner.core;
        core.check_open()?;
        if core.is_quick() {
            return core.get(key.as_ref()).map(Some);
        }
        core.get_pending(hash_of(key.as_ref(), core.seed), key.as_ref(), core.now_ms())
    }

    /// Reads `key` and calls `done`, once, from this thread or from one of the store.
    pub fn get_async(&self, key: impl AsRef<[u8]>, done: OnValue) {
        match self.inner.core.check_open() {
            Ok(()) => self.inner.core.get_async(key.as_ref(), done),
            Err(error) => done(Err(error)),
        }
    }

    /// Waits until all writes that are visible now are in their buckets, and returns the number of entries. Entries
    /// that have expired count until a write or a purge meets them.
    ///
    /// # Errors
    /// The store is closed or has failed.
    pub fn count(&self) -> Result<u64> {
        let core = &self.inner.core;
        core.check_open()?;
        core.wait_applied(core.writes.visible())?;
        let Totals { entries, overflow_entries, .. } = core.totals();
        Ok(entries + overflow_entries)
    }

    /// Makes all writes that are visible durable.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn sync(&self) -> Result<()> {
        self.inner.core.check_open()?;
        Ok(self.inner.core.writes.log.sync()?)
    }

    /// Applies all writes that are visible to their buckets, makes these durable, and gives log files up.
    ///
    /// # Errors
    /// The store is closed or has failed.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.core.check_open()?;
        self.inner.core.wait_for_checkpoint()
    }

    /// Closes the store: all writes are in their buckets then, and the next opening has nothing to recover. Calls from
    /// then on fail.
    ///
    /// # Errors
    /// The first failure. Writes that were acknowledged are in the log then, as they asked for.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

impl fmt::Debug for HashStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashStore({}, {} at {})", self.inner.core.store, self.inner.core.io.path, self.inner.core.state())
    }
}

impl Core {
    /// Makes a batch ready for the log.
    pub(crate) fn ready(&self, batch: HashBatch) -> Result<Write> {
        Ok(Write(Arc::new(batch.into_changes(self.seed, VALUE_BYTES_MAX)?)))
    }

    /// Checks that the store takes calls.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.writes.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Inner {
    fn start_threads(&self) -> Result<()> {
        let mut threads = lock(&self.threads);
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let spawned = self.core.env.executor.spawn(name, body);
            spawned.map_err(|error| Error::from(StorageError::io("start a thread of", &self.core.io.path, error)))
        };
        for number in 0..LOGGERS_MAX {
            let core = Arc::clone(&self.core);
            threads.pipeline.push(spawn("hash-log", Box::new(move || core.pipeline.carry_writes(number)))?);
        }
        let core = Arc::clone(&self.core);
        threads.pipeline.push(spawn("hash-admit", Box::new(move || core.pipeline.admit_writes()))?);
        for number in 0..self.core.writes.pending.partitions().len() {
            let core = Arc::clone(&self.core);
            threads.buckets.push(spawn("hash-worker", Box::new(move || core.work(number)))?);
        }
        let core = Arc::clone(&self.core);
        threads.buckets.push(spawn("hash-keeper", Box::new(move || core.keep()))?);
        let core = Arc::clone(&self.core);
        threads.pipeline.push(spawn("hash-purge", Box::new(move || core.purge_all_along()))?);
        self.core.keeper.runs.store(true, Ordering::Release);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        let core = &self.core;
        core.writes.begin_closing();
        let Threads { pipeline, buckets } = std::mem::take(&mut *lock(&self.threads));
        if pipeline.is_empty() && buckets.is_empty() {
            return Ok(());
        }
        let joined = join(pipeline);
        core.readers.close();
        let applied = joined.and_then(|()| core.wait_applied(core.writes.visible()));
        core.stopping.store(true, Ordering::Release);
        core.writes.begin_closing();
        let ended = join(buckets);
        let result = applied.and(ended).and_then(|()| core.check_sound()).and_then(|()| core.note_closed());
        let overflow = core.overflow.close();
        self.clock.stop();
        let locks = lock(&self.locks).take();
        // The next opening would not find data in files that were moved or removed.
        let lost = locks.as_ref().and_then(|locks| locks.home.failure());
        drop(locks);
        let found = lost.map_or(Ok(()), |error| Err(error.into()));
        result.and(overflow).and(found)
    }
}

fn join(threads: Vec<Box<dyn JobHandle>>) -> Result<()> {
    let ends: Vec<_> = threads.iter().map(|thread| thread.join()).collect();
    ends.into_iter().collect::<Result<(), String>>().map_err(|text| Error::Invalid(format!("a bug: {text}")))
}

impl Core {
    /// Makes all buckets durable, closes the log, and says so in the superblock. All changes are in buckets.
    fn note_closed(&self) -> Result<()> {
        self.writes.log.close()?;
        self.overflow.sync()?;
        let sequence = self.writes.visible();
        assert!(self.writes.pending.drained() >= sequence, "a store is closed when all is applied");
        let _closed = self.gate.close();
        let next_file = self.writes.next_log();
        self.large.close(&self.overflow)?;
        self.begin_epoch(self.state(), crate::live::core::LogBound::Closed { next_file, sequence })?;
        self.large.bury(&self.overflow, self.large.take_dead(&self.overflow)?)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // An error here is an older one, or the next opening finds it.
        _ = self.close();
    }
}
