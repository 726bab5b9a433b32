//! Reading a snapshot: single keys, all entries bucket by bucket, all entries in the order of their keys.
//!
//! A scan reads [`CHUNK`] buckets at a time, all in flight together. It has no more than these in memory, and one value
//! of the value log. A sorted scan first copies all entries to
//! a keyspace of the overflow store, which sorts them on its disk, and gives them out from there.
//!
//! **Threads.** A snapshot may be read by many threads; a scan is used by one.
//! **Failure.** An error ends a scan.

use crate::api::store::HashStore;
use crate::format::address::hash_of;
use crate::format::bucket::Header;
use crate::format::entry::{Entry, Value};
use crate::format::rebuild::Before;
use crate::live::core::Core;
use crate::live::rewrite::{decode_all, entries_of};
use crate::live::snapshots::{Moment, decode};
use crate::{Error, Result};
use situ_engine::{Durability, Keyspace, WriteBatch};
use situ_storage::memory::copied;
use situ_values::Handle;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Buckets that a scan reads at a time.
const CHUNK: u64 = 32;
/// Bytes that a sorted scan copies at a time.
const SORT_BATCH_BYTES: usize = 1 << 20;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A key and its value, and when it expires, in milliseconds since 1970.
pub type Expiring = (Pair, Option<u64>);

/// The state of a store at one moment. It stays as it is while the store changes; clones are the same snapshot. While
/// it lives, each bucket that changes is saved once.
#[derive(Clone)]
pub struct HashSnapshot {
    inner: Arc<Held>,
}

struct Held {
    core: Arc<Core>,
    moment: Moment,
    now_ms: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The saved buckets go later, with the gate closed: another thread may take a snapshot now.
        self.core.snapshots.release(self.moment.number);
        // Work that has waited for the release is due now.
        self.core.writes.keeper_work.notify();
        self.core.writes.purges.wake.notify();
    }
}

impl fmt::Debug for HashSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { number, sequence, state } = self.inner.moment;
        write!(f, "HashSnapshot({number} at write {sequence}, {state})")
    }
}

impl HashStore {
    /// Returns the state of the store now, with all writes that are visible.
    ///
    /// # Errors
    /// The store is closed, has failed, or is out of space.
    pub fn snapshot(&self) -> Result<HashSnapshot> {
        let core = &self.inner.core;
        core.check_open()?;
        let moment = {
            let _closed = core.close_gate_with_space()?;
            core.check_sound()?;
            core.snapshots.forget_stale(&core.overflow);
            core.snapshots.take(core.writes.visible(), core.state())
        };
        let snapshot = HashSnapshot { inner: Arc::new(Held { core: Arc::clone(core), moment, now_ms: core.now_ms() }) };
        core.wait_applied(moment.sequence)?;
        Ok(snapshot)
    }

    /// Returns all entries as of now, in no order.
    ///
    /// # Errors
    /// As [`snapshot`](HashStore::snapshot). Errors of later reads come from the scan.
    pub fn scan(&self) -> Result<HashScan> {
        Ok(self.snapshot()?.scan())
    }
}

impl HashSnapshot {
    /// Returns the value that `key` had.
    ///
    /// # Errors
    /// The device cannot be read, or what was read is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let Held { core, moment, now_ms } = &*self.inner;
        let bucket = moment.state.bucket_of(hash_of(key.as_ref(), core.seed));
        let mut found = None;
        core.entries_at(bucket, moment, &mut |entry| {
            if entry.key == key.as_ref() && !entry.is_expired(*now_ms) {
                found = Some(core.value_at(entry)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns all entries, in no order.
    pub fn scan(&self) -> HashScan {
        HashScan { snapshot: self.clone(), next: 0, found: VecDeque::new(), failed: false }
    }

    /// Returns all entries in the order of their keys. They are sorted on the disk of the overflow store first, which
    /// takes as much room there as they have bytes, until the scan is dropped.
    ///
    /// # Errors
    /// As [`get`](HashSnapshot::get), or the overflow store cannot be written.
    pub fn scan_sorted(&self) -> Result<SortedScan> {
        let overflow = &self.inner.core.overflow;
        let name = format!("sort-{}", overflow.next_sort());
        let keyspace = overflow.make_keyspace(&name)?;
        // From here on the keyspace goes also after an error.
        let mut sorted = SortedScan { snapshot: self.clone(), name, entries: None };
        let mut batch = WriteBatch::new();
        for pair in self.scan() {
            let (key, value) = pair?;
            batch.put_in(&keyspace, key, value)?;
            if batch.bytes() >= SORT_BATCH_BYTES {
                overflow.write_batch(std::mem::take(&mut batch), Durability::Buffered)?;
            }
        }
        overflow.write_batch(batch, Durability::Buffered)?;
        sorted.entries = Some(entries_of_keyspace(&keyspace)?);
        Ok(sorted)
    }
}

fn entries_of_keyspace(keyspace: &Keyspace) -> Result<situ_engine::Iter> {
    Ok(keyspace.iter()?)
}

/// All entries of a snapshot, bucket by bucket. Made by [`HashSnapshot::scan`].
#[must_use = "iterators do nothing unless they are used"]
pub struct HashScan {
    snapshot: HashSnapshot,
    next: u64,
    found: VecDeque<Found>,
    failed: bool,
}

/// An entry that a scan has found.
struct Found {
    key: Vec<u8>,
    value: FoundValue,
    expires_ms: Option<u64>,
}

/// A value, or where it lies in the value log. The segment stays while the snapshot lives.
enum FoundValue {
    Here(Vec<u8>),
    There(Handle),
}

impl Found {
    fn new(entry: &Entry<'_>) -> Result<Found> {
        let value = match entry.value {
            Value::Inline(bytes) => FoundValue::Here(copied(bytes, "a value")?),
            Value::Pointer(handle) => FoundValue::There(Handle::decode(handle)?),
        };
        Ok(Found { key: entry.key.to_vec(), value, expires_ms: entry.expires_ms })
    }

    /// Returns the entry with its value, which is read now.
    fn read(self, core: &Core) -> Result<Expiring> {
        let value = match self.value {
            FoundValue::Here(bytes) => bytes,
            FoundValue::There(handle) => core.large.log.read(&handle, &self.key)?.into_vec(),
        };
        Ok(((self.key, value), self.expires_ms.map(|store_ms| core.clock.unix_of_ms(store_ms))))
    }
}

impl fmt::Debug for HashScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashScan(bucket {} of {:?})", self.next, self.snapshot)
    }
}

impl HashScan {
    /// Reads the next buckets. False if there are none.
    fn fill(&mut self) -> Result<bool> {
        let Held { core, moment, now_ms } = &*self.snapshot.inner;
        if self.failed {
            return Ok(false);
        }
        let end = moment.state.buckets().min(self.next + CHUNK);
        if self.next >= end {
            return Ok(false);
        }
        let found = &mut self.found;
        core.entries_of_many(self.next..end, moment, &mut |entry| {
            if !entry.is_expired(*now_ms) {
                found.push_back(Found::new(entry)?);
            }
            Ok(())
        })?;
        self.next = end;
        Ok(true)
    }

    /// Returns the next entry with its expiry. As [`next`](Iterator::next) otherwise.
    pub fn next_expiring(&mut self) -> Option<Result<Expiring>> {
        let next = self.read_next();
        if let Err(error) = next {
            self.failed = true;
            self.found.clear();
            return Some(Err(error));
        }
        next.transpose()
    }

    fn read_next(&mut self) -> Result<Option<Expiring>> {
        while self.found.is_empty() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        let core = &self.snapshot.inner.core;
        self.found.pop_front().map(|found| found.read(core)).transpose()
    }
}

impl Iterator for HashScan {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        Some(self.next_expiring()?.map(|(pair, _)| pair))
    }
}

/// All entries of a snapshot in the order of their keys. Made by [`HashSnapshot::scan_sorted`].
#[must_use = "iterators do nothing unless they are used"]
pub struct SortedScan {
    snapshot: HashSnapshot,
    name: String,
    entries: Option<situ_engine::Iter>,
}

impl fmt::Debug for SortedScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SortedScan({:?})", self.snapshot)
    }
}

impl Iterator for SortedScan {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        let pair = self.entries.as_mut()?.next()?;
        Some(pair.map_err(Error::from).and_then(|(key, value)| Ok((key.to_vec(), copied(&value, "a value")?))))
    }
}

impl Drop for SortedScan {
    fn drop(&mut self) {
        self.entries = None;
        // A keyspace that stays is removed when the store is opened.
        _ = self.snapshot.inner.core.overflow.drop_keyspace(&self.name);
    }
}

impl Core {
    /// Returns the value of an entry that a snapshot has.
    fn value_at(&self, entry: &Entry<'_>) -> Result<Vec<u8>> {
        match entry.value {
            Value::Inline(bytes) => Ok(copied(bytes, "a value")?),
            Value::Pointer(handle) => Ok(self.large.log.read(&Handle::decode(handle)?, entry.key)?.into_vec()),
        }
    }

    /// Passes the entries that a bucket had at a moment to `takes`.
    fn entries_at(&self, bucket: u64, moment: &Moment, takes: &mut dyn FnMut(&Entry<'_>) -> Result<()>) -> Result<()> {
        if let Some(saved) = self.overflow.saved_since(bucket, moment.number)? {
            return self.hand_out_saved(&saved, takes);
        }
        let mut block = Vec::new();
        let header = self.read_sound(bucket, |bytes| {
            let header = *self.codec.open(bucket, bytes)?.header();
            block.clear();
            block.extend_from_slice(bytes);
            Ok(header)
        })?;
        let stored = self.marked_overflow(bucket, &moment.state, &header)?;
        if let Some(saved) = self.overflow.saved_since(bucket, moment.number)? {
            return self.hand_out_saved(&saved, takes);
        }
        self.require_unchanged(bucket, &header, moment)?;
        let overflow = decode_all(self, &stored)?;
        let opened = self.codec.open(bucket, &block)?;
        let Before { inline, overflow, .. } = entries_of(self, bucket, &moment.state, &opened, &overflow);
        inline.iter().try_for_each(&mut *takes)?;
        let is_shadowed = |entry: &&Entry<'_>| inline.iter().any(|other| other.key == entry.key);
        overflow.iter().filter(|entry| !is_shadowed(entry)).try_for_each(takes)
    }

    /// Checks that a bucket without saved entries is as it was at the moment of a snapshot.
    fn require_unchanged(&self, bucket: u64, header: &Header, moment: &Moment) -> Result<()> {
        match header.sequence <= moment.sequence {
            true => Ok(()),
            false => Err(self.too_new(bucket, header, u32::MAX, moment.sequence)),
        }
    }

    fn hand_out_saved(&self, saved: &[u8], takes: &mut dyn FnMut(&Entry<'_>) -> Result<()>) -> Result<()> {
        decode(self.overflow.path(), saved)?.iter().try_for_each(|(_, entry)| takes(entry))
    }

    /// Passes the entries that adjacent buckets had at a moment to `takes`. The buckets are read together.
    fn entries_of_many(
        &self,
        buckets: std::ops::Range<u64>,
        moment: &Moment,
        takes: &mut dyn FnMut(&Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        let numbers: Vec<u64> = buckets.collect();
        let blocks = self.io.read_many(&numbers)?;
        for (number, block) in numbers.iter().zip(&blocks) {
            // The bytes are right if nothing was saved until now, and the bucket needs no overflow. Others are read one
            // by one.
            let opened = self.codec.open(*number, block).ok();
            let simple = opened.filter(|bucket| bucket.header().now.overflow_entries == 0);
            match simple {
                Some(bucket) if self.overflow.saved_since(*number, moment.number)?.is_none() => {
                    self.require_unchanged(*number, bucket.header(), moment)?;
                    bucket.entries().try_for_each(|entry| takes(&entry))?;
                }
                _ => self.entries_at(*number, moment, takes)?,
            }
        }
        self.io.give_back(blocks);
        Ok(())
    }
}
