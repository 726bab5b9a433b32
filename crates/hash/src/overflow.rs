//! The overflow: entries that do not fit into their buckets, in a small ordered store of Situ's own.
//!
//! An overflow key begins with the bits of the hash in reverse order, so the entries of a bucket lie next to each other. A bucket says
//! how many entries it has here. If it says none, what lies in its range is dead: left by a crash, or about to be deleted.
//!
//! **Threads.** Any. Each call is one operation of the engine.
//! **Failure.** Errors of the engine are passed on as they are.

use crate::address::{OverflowRange, State, overflow_key, overflow_range};
use crate::entry::Entry;
use crate::options::HashOptions;
use crate::{Error, Result};
use situ_device::Env;
use situ_engine::{
    Durability, Key, Keyspace, KeyspaceOptions, Options, ReadOptions, Store, StoreBuilder, Value, WriteBatch,
};
use situ_storage::Volume;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Tables of the overflow store that may be open.
const OPEN_TABLES_MAX: usize = 64;

/// The keyspace with what is saved for snapshots.
const SAVED: &str = "saved";
/// The keyspace with the segments of the value log.
const SEGMENTS: &str = "segments";
/// The keyspace with handles that died since the sums of their segments were listed.
const DEAD: &str = "dead";
/// The keyspace with the entries.
const ENTRIES: &str = "default";

pub(crate) struct Overflow {
    store: Store,
    path: String,
    options: KeyspaceOptions,
    saved: OnceLock<Keyspace>,
    sorts: AtomicU64,
}

/// Entries of the overflow as they were read.
pub(crate) type Stored = Vec<(Key, Value)>;

/// Changes of the overflow.
#[derive(Default, Clone)]
pub(crate) struct OverflowChanges {
    batch: WriteBatch,
}

impl OverflowChanges {
    pub(crate) fn put(&mut self, hash: u64, entry: &Entry<'_>) -> Result<()> {
        let mut value = Vec::with_capacity(entry.encoded_bytes());
        entry.write_overflow_value(&mut value);
        Ok(self.batch.put(overflow_key(hash, entry.key), value)?)
    }

    pub(crate) fn delete(&mut self, hash: u64, key: &[u8]) -> Result<()> {
        Ok(self.batch.delete(overflow_key(hash, key))?)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }
}

impl Overflow {
    pub(crate) fn open(volume: Arc<dyn Volume>, env: &Env, options: &HashOptions) -> Result<Overflow> {
        let path = volume.location();
        let keyspace = KeyspaceOptions::default().memtable_bytes(options.overflow_memory_bytes).memtables_max(2);
        let engine = Options::default()
            .cache_bytes(options.overflow_memory_bytes)
            .open_tables_max(OPEN_TABLES_MAX)
            .log_bytes_max(options.overflow_memory_bytes.saturating_mul(4))
            .compaction_threads(1)
            .keyspace(keyspace.clone());
        let store = StoreBuilder::new(engine).env(env.clone()).open_volume(volume)?;
        // What an earlier process has saved or sorted.
        for name in store.keyspace_names().iter().filter(|name| ![ENTRIES, SEGMENTS, DEAD].contains(&name.as_str())) {
            store.drop_keyspace(name)?;
        }
        Ok(Overflow { store, path, options: keyspace, saved: OnceLock::new(), sorts: AtomicU64::new(0) })
    }

    /// The keyspace for what is saved, if something was.
    pub(crate) fn saved(&self) -> Option<&Keyspace> {
        self.saved.get()
    }

    /// The keyspace for what is saved.
    pub(crate) fn make_saved(&self) -> Result<&Keyspace> {
        if self.saved.get().is_none() {
            // Another thread may have made it; then it is the same one.
            _ = self.saved.set(self.make_keyspace(SAVED)?);
        }
        Ok(self.saved.get().expect("it was made above"))
    }

    /// The list of segments, if there is one.
    pub(crate) fn segment_list(&self) -> Result<Option<Keyspace>> {
        self.existing(SEGMENTS)
    }

    /// The list of the dead, if there is one.
    pub(crate) fn dead_list(&self) -> Result<Option<Keyspace>> {
        self.existing(DEAD)
    }

    pub(crate) fn make_dead_list(&self) -> Result<Keyspace> {
        self.make_keyspace(DEAD)
    }

    fn existing(&self, name: &str) -> Result<Option<Keyspace>> {
        match self.store.existing_keyspace(name) {
            Ok(list) => Ok(Some(list)),
            Err(situ_engine::Error::NoSuchKeyspace { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn make_segment_list(&self) -> Result<Keyspace> {
        self.make_keyspace(SEGMENTS)
    }

    /// A keyspace beside the entries. It goes when the store is opened again.
    pub(crate) fn make_keyspace(&self, name: &str) -> Result<Keyspace> {
        Ok(self.store.keyspace_with(name, self.options.clone())?)
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        Ok(self.store.drop_keyspace(name)?)
    }

    /// A number for the next sort.
    pub(crate) fn next_sort(&self) -> u64 {
        self.sorts.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes a batch. Want of space is an error of its own: nothing is written then, and to try again loses nothing.
    pub(crate) fn write_batch(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.store.write_with(batch, durability).map_err(|error| Error::from(error).or_out_of_space())
    }

    /// The entry of a key as it is stored.
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.store.default_keyspace().get(overflow_key(hash, key))?)
    }

    /// All that lies in the range of `bucket`.
    pub(crate) fn of_bucket(&self, bucket: u64, state: &State) -> Result<Stored> {
        self.in_range(&overflow_range(bucket, state))
    }

    fn in_range(&self, range: &OverflowRange) -> Result<Stored> {
        let mut options = ReadOptions::default().lower_bound(range.begin);
        options.upper_bound = range.end.map(Vec::from);
        let mut stored = Vec::new();
        for pair in self.store.default_keyspace().iter_with(options)? {
            stored.push(pair?);
        }
        Ok(stored)
    }

    /// All entries, in the order of their buckets' bits.
    pub(crate) fn all(&self) -> Result<impl Iterator<Item = Result<(Key, Value)>>> {
        Ok(self.store.default_keyspace().iter()?.map(|pair| pair.map_err(Error::from)))
    }

    /// Decodes what was read.
    pub(crate) fn decode<'a>(&self, stored: &'a (Key, Value)) -> Result<(u64, Entry<'a>)> {
        Entry::from_overflow(&self.path, &stored.0, &stored.1)
    }

    /// The path that errors name.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// As [`write_batch`](Overflow::write_batch), of changes of entries; durable on return if `durability` says so.
    pub(crate) fn write(&self, changes: OverflowChanges, durability: Durability) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.write_batch(changes.batch, durability)
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    pub(crate) fn close(&self) -> Result<()> {
        Ok(self.store.close()?)
    }

    /// Bytes of its files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let properties = self.store.properties();
        properties.table_bytes + properties.log_bytes
    }
}
