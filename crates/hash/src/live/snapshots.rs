//! Snapshots: the state of a moment, while buckets go on changing.
//!
//! A snapshot is a sequence number, and how many buckets there were. Before a bucket changes beyond a snapshot for the
//! first time, its entries are *saved* in a keyspace of the overflow store. The key has the number of the bucket and
//! that of the snapshot.
//!
//! 1. A snapshot is taken with the gate closed. So no batch and no group of splits is half done. Then all writes up to
//!    its sequence number are applied. From then on it can be read.
//! 2. A worker that applies changes beyond a snapshot saves the entries as they are after the changes up to the
//!    snapshot. A bucket whose sequence number is greater than the snapshot's has been saved before.
//! 3. A split or a merge saves its buckets under the newest snapshot. It waits until all changes up to this snapshot
//!    are applied. Entries that were saved under a snapshot count for older ones, too, also when this snapshot has
//!    gone. Nothing is saved for these again.
//! 4. A reader looks for the first entries of the bucket that were saved under its snapshot or a later one. If there
//!    are none, it reads the bucket, and looks again: what was saved meanwhile counts.
//!
//! **Invariants.** Saved entries are never replaced. Between a snapshot and the next one under which a bucket is saved,
//! the bucket has not changed. So step 4 finds what the bucket held at the snapshot.
//! **Life.** Saved entries are of no use when no snapshot is alive. They go with the gate closed
//! ([`Snapshots::forget_stale`]): at the next checkpoint, or before the next snapshot is taken. They also go with the
//! process: opening a store removes them.
//! **Rejected.** Versions of entries in the buckets: each change would make a bucket longer, and a bucket has 4 KB.

use crate::disk::overflow::Overflow;
use crate::format::address::{State, overflow_key};
use crate::format::entry::Entry;
use crate::format::fields::{At, Fields, Mismatch};
use crate::{Error, Result};
use situ_base::lock;
use situ_engine::{Durability, WriteBatch};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The facts of a snapshot that a write of a bucket needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Later snapshots have higher numbers.
    pub(crate) number: u64,
    pub(crate) sequence: u64,
    pub(crate) state: State,
}

/// The snapshots that are alive.
#[derive(Default)]
pub(crate) struct Snapshots {
    alive: Mutex<Alive>,
}

#[derive(Default)]
struct Alive {
    moments: BTreeMap<u64, Moment>,
    next: u64,
    /// The last snapshot has gone, and what was saved for it may still be there.
    is_stale: bool,
    /// The moments, oldest first, for workers.
    list: Arc<Vec<Moment>>,
}

impl Alive {
    fn changed(&mut self) {
        self.list = Arc::new(self.moments.values().copied().collect());
    }
}

impl Snapshots {
    /// Takes a snapshot; the gate is closed.
    pub(crate) fn take(&self, sequence: u64, state: State) -> Moment {
        let mut alive = lock(&self.alive);
        let moment = Moment { number: alive.next, sequence, state };
        alive.next += 1;
        alive.moments.insert(moment.number, moment);
        alive.changed();
        moment
    }

    /// Notes that a snapshot is not read any more.
    pub(crate) fn release(&self, number: u64) {
        let mut alive = lock(&self.alive);
        alive.moments.remove(&number);
        alive.is_stale |= alive.moments.is_empty();
        alive.changed();
    }

    /// Removes what was saved, if no snapshot is alive. The gate is closed: no worker saves anything meanwhile, and no
    /// caller takes a snapshot.
    pub(crate) fn forget_stale(&self, overflow: &Overflow) {
        let is_due = {
            let mut alive = lock(&self.alive);
            alive.moments.is_empty() && std::mem::take(&mut alive.is_stale)
        };
        if is_due && overflow.forget_saved().is_err() {
            // It takes room and has no readers: later snapshots have higher numbers. The next turn tries again.
            lock(&self.alive).is_stale = true;
        }
    }

    /// Returns true if something is saved that no snapshot reads any more.
    pub(crate) fn is_stale(&self) -> bool {
        let alive = lock(&self.alive);
        alive.moments.is_empty() && alive.is_stale
    }

    /// Returns the snapshots that are alive, oldest first.
    pub(crate) fn list(&self) -> Arc<Vec<Moment>> {
        Arc::clone(&lock(&self.alive).list)
    }
}

/// Returns the entries of a bucket as bytes, each with its length before it.
pub(crate) fn encode<'a>(entries: impl Iterator<Item = (u64, Entry<'a>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut value = Vec::new();
    let mut put = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    for (hash, entry) in entries {
        value.clear();
        entry.write_overflow_value(&mut value);
        put(&overflow_key(hash, entry.key));
        put(&value);
    }
    bytes
}

/// Hands out the entries that were saved.
pub(crate) fn decode<'a>(path: &str, bytes: &'a [u8]) -> Result<Vec<(u64, Entry<'a>)>> {
    let mut fields = Fields(bytes);
    let mut entries = Vec::new();
    while !fields.0.is_empty() {
        let (key, value) = take_pair(&mut fields).map_err(|mismatch| mismatch.at(path, 0, "saved bucket"))?;
        entries.push(Entry::from_overflow(path, key, value)?);
    }
    Ok(entries)
}

fn take_pair<'a>(fields: &mut Fields<'a>) -> Result<(&'a [u8], &'a [u8]), Mismatch> {
    let mut part = || {
        let length = fields.u32("length")? as usize;
        fields.take(length, "entry")
    };
    Ok((part()?, part()?))
}

fn key_of(bucket: u64, snapshot: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&bucket.to_be_bytes());
    key[8..].copy_from_slice(&snapshot.to_be_bytes());
    key
}

/// Buckets that are to be saved before others are written.
#[derive(Default)]
pub(crate) struct Saves(Vec<([u8; 16], Vec<u8>)>);

impl Saves {
    pub(crate) fn add<'a>(&mut self, bucket: u64, snapshot: u64, entries: impl Iterator<Item = (u64, Entry<'a>)>) {
        self.0.push((key_of(bucket, snapshot), encode(entries)));
    }
}

impl Overflow {
    /// Saves buckets; readers find them on return.
    pub(crate) fn save(&self, saves: Saves) -> Result<()> {
        if saves.0.is_empty() {
            return Ok(());
        }
        let keyspace = self.make_saved()?;
        let mut batch = WriteBatch::new();
        for (key, entries) in saves.0 {
            batch.put_in(keyspace, key, entries)?;
        }
        self.write_batch(batch, Durability::Buffered)
    }

    /// Returns true if a bucket was saved for this snapshot: under it, or under a later one, which may have gone since.
    pub(crate) fn is_saved(&self, bucket: u64, snapshot: u64) -> Result<bool> {
        Ok(self.saved_since(bucket, snapshot)?.is_some())
    }

    /// Returns the contents of a bucket that were saved under this snapshot or the next later one.
    pub(crate) fn saved_since(&self, bucket: u64, snapshot: u64) -> Result<Option<Vec<u8>>> {
        let range = situ_engine::ReadOptions::default().range(key_of(bucket, snapshot), key_of(bucket + 1, 0));
        let Some(saved) = self.saved() else { return Ok(None) };
        let first = saved.iter_with(&range)?.next();
        first.map(|pair| pair.map(|(_, value)| value.to_vec()).map_err(Error::from)).transpose()
    }

    /// Deletes all saved entries, which are not needed any more.
    fn forget_saved(&self) -> Result<()> {
        let Some(saved) = self.saved() else { return Ok(()) };
        Ok(saved.delete_range_with([0; 16], [0xff; 16], Durability::Buffered)?)
    }
}
