//! The overflow: entries that do not fit into their buckets, in a small ordered store of Situ's own.
//!
//! An overflow key begins with the bits of the hash in reverse order, so the entries of a bucket lie next to each
//! other. A bucket says how many entries it has here. If it says none, what lies in its range is dead: left by a crash,
//! or about to be deleted.
//!
//! The overflow says whose it is, so that opening takes no other store's, and no new one in the place of the store's
//! own.
//!
//! **Threads.** Any. Each call is one operation of the engine.
//! **Failure.** Errors of the engine are passed on as they are.

use crate::disk::options::HashOptions;
use crate::format::address::{OverflowRange, State, overflow_key, overflow_range};
use crate::format::entry::Entry;
use crate::{Error, Result, StoreId};
use situ_base::Env;
use situ_engine::{
    Durability, Key, Keyspace, KeyspaceOptions, Options, ReadOptions, Store, StoreBuilder, StoreProperties, Value,
    WriteBatch,
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
/// The keyspace with the identity of the store.
const IDENTITY: &str = "identity";
/// The only key there.
const STORE: &str = "store";
/// The keyspace with the entries.
const ENTRIES: &str = "default";

pub(crate) struct Overflow {
    store: Store,
    path: String,
    options: KeyspaceOptions,
    saved: OnceLock<Keyspace>,
    sorts: AtomicU64,
}

/// The store that an overflow is opened for.
pub(crate) struct Whose {
    pub(crate) store: StoreId,
    /// The store was made before, so the overflow exists.
    pub(crate) exists: bool,
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

/// Says what it means that there is no overflow store.
fn missing(path: &str, error: situ_engine::Error) -> Error {
    match error {
        situ_engine::Error::Existence(text) => Error::Existence(format!(
            "the overflow of the hash store is missing: {text}; is {path} mounted, and was it restored with the home? nothing was removed"
        )),
        error => error.into(),
    }
}

impl Overflow {
    /// Opens the overflow of a store, or makes that of a store that is being made.
    ///
    /// # Errors
    /// The overflow is missing or empty, or belongs to another store. Nothing of the store was removed then.
    pub(crate) fn open(volume: Arc<dyn Volume>, env: &Env, options: &HashOptions, whose: Whose) -> Result<Overflow> {
        let path = volume.location();
        let keyspace = KeyspaceOptions::default().memtable_bytes(options.overflow_memory_bytes).memtables_max(2);
        // Short records of values that have their space.
        let list = keyspace.clone().uses_reserve(true);
        let engine = Options::default()
            .cache_bytes(options.overflow_memory_bytes)
            .open_tables_max(OPEN_TABLES_MAX)
            .log_bytes_max(options.overflow_memory_bytes.saturating_mul(4))
            .compaction_threads(1)
            .create_if_missing(!whose.exists)
            .keyspace(keyspace.clone());
        let opened = StoreBuilder::new(engine)
            .env(env.clone())
            .keyspace(SEGMENTS, list.clone())
            .keyspace(DEAD, list)
            .open_volume(volume);
        let store = opened.map_err(|error| missing(&path, error))?;
        let overflow = Overflow { store, path, options: keyspace, saved: OnceLock::new(), sorts: AtomicU64::new(0) };
        overflow.require_store(whose.store)?;
        overflow.drop_leavings()?;
        Ok(overflow)
    }

    /// Drops what an earlier process has saved or sorted.
    fn drop_leavings(&self) -> Result<()> {
        let stays = [ENTRIES, SEGMENTS, DEAD, IDENTITY];
        let names = self.store.keyspace_names();
        names.iter().filter(|name| !stays.contains(&name.as_str())).try_for_each(|name| self.drop_keyspace(name))
    }

    /// Checks that the overflow belongs to `store`. Older overflows do not name their store: they are taken as they
    /// are, and name `store` from now on.
    fn require_store(&self, store: StoreId) -> Result<()> {
        let said = match self.existing(IDENTITY)? {
            Some(identity) => identity.get(STORE)?,
            None => None,
        };
        let Some(said) = said else {
            let mut batch = WriteBatch::new();
            batch.put_in(&self.make_keyspace(IDENTITY)?, STORE, store.0)?;
            return self.write_batch(batch, Durability::Synced);
        };
        let Ok(found) = <[u8; StoreId::BYTES]>::try_from(&said[..]).map(StoreId) else {
            let (expected, found) = (format!("{} bytes", StoreId::BYTES), format!("{}", said.len()));
            return Err(situ_storage::Error::corruption(&self.path, 0, "identity of the store", expected, found).into());
        };
        match found == store {
            true => Ok(()),
            false => Err(Error::OtherOverflow { path: self.path.clone(), expected: store, found }),
        }
    }

    /// Returns the keyspace for what is saved, if something was.
    pub(crate) fn saved(&self) -> Option<&Keyspace> {
        self.saved.get()
    }

    /// Returns the keyspace for what is saved.
    pub(crate) fn make_saved(&self) -> Result<&Keyspace> {
        if self.saved.get().is_none() {
            // Another thread may have made it; then it is the same one.
            _ = self.saved.set(self.make_keyspace(SAVED)?);
        }
        Ok(self.saved.get().expect("it was made above"))
    }

    /// Returns the list of segments, if there is one.
    pub(crate) fn segment_list(&self) -> Result<Option<Keyspace>> {
        self.existing(SEGMENTS)
    }

    /// Returns the list of the dead, if there is one.
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

    /// Makes a keyspace next to that of the entries. It goes when the store is opened again.
    pub(crate) fn make_keyspace(&self, name: &str) -> Result<Keyspace> {
        let options = self.options.clone().uses_reserve([SEGMENTS, DEAD].contains(&name));
        let made = self.store.keyspace_with(name, options);
        made.map_err(|error| Error::from(error).or_out_of_space())
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        Ok(self.store.drop_keyspace(name)?)
    }

    /// Returns a number for the next sort.
    pub(crate) fn next_sort(&self) -> u64 {
        self.sorts.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes a batch. Want of space is an error of its own: nothing is written then, and to try again loses nothing.
    pub(crate) fn write_batch(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        self.store.write_with(batch, durability).map_err(|error| Error::from(error).or_out_of_space())
    }

    /// Returns the entry of a key as it is stored.
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.store.default_keyspace().get(overflow_key(hash, key))?)
    }

    /// Returns all that lies in the range of `bucket`.
    pub(crate) fn of_bucket(&self, bucket: u64, state: &State) -> Result<Stored> {
        self.in_range(&overflow_range(bucket, state))
    }

    fn in_range(&self, range: &OverflowRange) -> Result<Stored> {
        let mut options = ReadOptions::default().lower_bound(range.begin);
        options.upper_bound = range.end.map(Vec::from);
        let mut stored = Vec::new();
        for pair in self.store.default_keyspace().iter_with(&options)? {
            stored.push(pair?);
        }
        Ok(stored)
    }

    /// Returns all entries, in the order of their buckets' bits.
    pub(crate) fn all(&self) -> Result<impl Iterator<Item = Result<(Key, Value)>>> {
        Ok(self.store.default_keyspace().iter()?.map(|pair| pair.map_err(Error::from)))
    }

    /// Decodes what was read.
    pub(crate) fn decode<'a>(&self, stored: &'a (Key, Value)) -> Result<(u64, Entry<'a>)> {
        Entry::from_overflow(&self.path, &stored.0, &stored.1)
    }

    /// Returns the path that errors name.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Writes changes of entries as [`write_batch`](Overflow::write_batch) does; durable on return if `durability` says
    /// so.
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

    /// Returns the resources that it uses, and its debts.
    pub(crate) fn properties(&self) -> StoreProperties {
        self.store.properties()
    }
}
