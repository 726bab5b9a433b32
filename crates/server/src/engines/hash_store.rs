//! The hash engine: a hash store behind the [`Engine`] trait.
//!
//! **Keys.** A hash store is one map. Items lie under their own keys, which have at most 250 bytes. The server's
//! records lie under longer keys, so that they meet no item and cost items nothing
//! ([`reserved`](crate::engines::hash_records)). Items and records go through the store's one log, so a crash keeps a
//! prefix of them together.
//!
//! **Writes** become futures of the store, which [`Completion`] follows: no thread waits for a write.
//! **Reads** are answered at once where the key was written lately, or the device is quick. A thread of the store makes
//! all others, and calls the server's callback.
//!
//! **Expiry.** Readers skip dead items. The store drops an item a minute after it has expired or later, when a worker
//! rewrites its bucket, or a purge finds the item. The server's clock is the store's own.
//! **Flushes.** An item older than the flush barrier is dead to readers at once. When the barrier is durable, the store
//! purges the items below it, at a bounded rate. A record holds the barrier up to which that was done, so a restart
//! continues.
//!
//! **Failure.** A store that takes no writes answers with its reason, which travels to the client; `/healthz` repeats
//! it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use situ::Durability;
use situ::hash::VALUE_BYTES_MAX;
use situ::hash::{self, Error, HashBatch, HashProperties, HashStore, HashStoreBuilder, SpaceProperties};
use situ_base::{StoreClock, lock};

use crate::engine::cache::NoCache;
use crate::engine::durable::{FLUSH_KEY, LIMIT_KEY, stored_barrier};
use crate::engine::item::{HEADER_BYTES_MAX, Header};
use crate::engine::{
    Admission, Change, Done, Engine, EngineError, Get, Health, MAX_VALUE_BYTES_LIMIT, Metric, MetricKind, OnRead,
    OnTaken, Pairs, Survey, WriteBatch,
};
use crate::engines::completion::Completion;
use crate::engines::hash_records::{expires_ms, holds_entries, is_reserved, reserved};
use crate::process::descriptors;

const _: () = assert!(MAX_VALUE_BYTES_LIMIT + HEADER_BYTES_MAX <= VALUE_BYTES_MAX);

/// The flush barrier below which all items were removed.
const PURGED_KEY: &[u8] = b"purged-barrier";

/// A [`HashStore`] that serves memcached. See the module.
pub struct HashEngine {
    store: HashStore,
    durability: hash::Durability,
    /// The server's own records that the store holds, as far as this process has met them.
    records: Arc<Mutex<BTreeSet<Vec<u8>>>>,
}

impl fmt::Debug for HashEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashEngine").field("store", &self.store).field("durability", &self.durability).finish()
    }
}

impl HashEngine {
    /// Opens or creates the store in `directory`. Items are as durable as `durability` says. Raises the process's soft
    /// limit of open files to the hard one.
    ///
    /// # Errors
    /// As [`HashStoreBuilder::open`]; or the store holds entries that no server wrote.
    pub fn open(
        directory: impl AsRef<Path>,
        builder: HashStoreBuilder,
        durability: Durability,
    ) -> hash::Result<HashEngine> {
        HashEngine::open_by(builder, durability, |builder| builder.open(directory))
    }

    /// Opens an engine like [`open`](HashEngine::open), with the store that `open` makes of a builder: on any volumes
    /// and any device.
    ///
    /// # Errors
    /// As [`open`](HashEngine::open).
    pub fn open_by(
        builder: HashStoreBuilder,
        durability: Durability,
        open: impl FnOnce(HashStoreBuilder) -> hash::Result<HashStore>,
    ) -> hash::Result<HashEngine> {
        descriptors::raise_limit();
        let store = open(builder)?;
        if store.get(reserved(LIMIT_KEY))?.is_none() && holds_entries(&store)? {
            return Err(Error::Invalid(
                "the store holds entries, but not the record of the cas ids that a server gave them; serve another \
                 directory"
                    .to_owned(),
            ));
        }
        let stored = |key: &[u8]| store.get(reserved(key));
        let barrier = stored(FLUSH_KEY)?.as_deref().and_then(stored_barrier).unwrap_or(0);
        let purged = stored(PURGED_KEY)?.and_then(|record| Some(u64::from_le_bytes(record.try_into().ok()?)));
        let records = BTreeSet::from_iter(purged.map(|_| PURGED_KEY.to_vec()));
        let engine = HashEngine { store, durability: durability.into(), records: Arc::new(Mutex::new(records)) };
        if barrier > purged.unwrap_or(0) {
            purge_below(&engine.store, &engine.records, barrier)?;
        }
        Ok(engine)
    }

    /// Returns the store underneath.
    pub fn store(&self) -> &HashStore {
        &self.store
    }

    fn submit(
        &self,
        batch: HashBatch,
        durability: hash::Durability,
        on_taken: Option<&OnTaken>,
        done: Done,
    ) -> Admission {
        Completion::follow(self.store.write_with_async(batch, durability), on_taken, done)
    }
}

/// Makes the store remove the items below a durable flush barrier.
fn purge_below(store: &HashStore, records: &Mutex<BTreeSet<Vec<u8>>>, barrier: u64) -> hash::Result<()> {
    let is_dead = move |key: &[u8], value: &[u8]| {
        !is_reserved(key) && Header::decode(value).is_some_and(|header| header.id < barrier)
    };
    let mut then = HashBatch::new();
    then.set_uses_reserve();
    then.put(reserved(PURGED_KEY), barrier.to_le_bytes())?;
    lock(records).insert(PURGED_KEY.to_vec());
    store.remove_dead(Arc::new(is_dead), then);
    Ok(())
}

fn gather(batch: &WriteBatch) -> hash::Result<HashBatch> {
    let mut gathered = HashBatch::new();
    for change in batch.changes() {
        match change {
            Change::Put { key, value } => gathered.put_until(key, value, expires_ms(value))?,
            Change::Delete { key } => gathered.delete(key)?,
        }
    }
    Ok(gathered)
}

impl Engine for HashEngine {
    type Value = Vec<u8>;
    type Cache = NoCache;

    fn get(&self, key: &[u8], later: &mut dyn FnMut() -> Option<OnRead<Vec<u8>>>) -> Result<Get<Vec<u8>>, EngineError> {
        match self.store.get_at_once(key).map_err(EngineError::new)? {
            Some(Some(value)) => return Ok(Get::Hit(value)),
            Some(None) => return Ok(Get::Miss),
            None => {}
        }
        if let Some(on_read) = later() {
            self.store.get_async(key, Box::new(move |outcome| on_read(outcome.map_err(EngineError::new))));
        }
        Ok(Get::Later)
    }

    fn write(&self, batch: WriteBatch, on_taken: &OnTaken, done: Done) -> Admission {
        let gathered = match gather(&batch) {
            Ok(gathered) => gathered,
            Err(error) => {
                done(Err(EngineError::new(error)));
                return Admission::Taken;
            }
        };
        drop(batch);
        self.submit(gathered, self.durability, Some(on_taken), done)
    }

    fn survey(&self) -> Result<Option<Box<dyn Survey>>, EngineError> {
        let pairs = self.store.scan().map_err(EngineError::new)?;
        // The server's own records are no items, and are left out.
        let pairs = pairs.filter(|pair| !pair.as_ref().is_ok_and(|(key, _)| is_reserved(key)));
        Ok(Some(Box::new(Pairs(pairs.map(|pair| pair.map_err(EngineError::new))))))
    }

    fn clock(&self) -> &Arc<StoreClock> {
        self.store.clock()
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let found = self.store.get(reserved(key)).map_err(EngineError::new)?;
        if found.is_some() {
            lock(&self.records).insert(key.to_vec());
        }
        Ok(found)
    }

    fn put_meta(&self, key: &[u8], value: &[u8], done: Done) {
        lock(&self.records).insert(key.to_vec());
        let mut batch = HashBatch::new();
        // On a full disk, `flush_all` leads out of it.
        batch.set_uses_reserve();
        if let Err(error) = batch.put(reserved(key), value) {
            return done(Err(EngineError::new(error)));
        }
        let barrier = if key == FLUSH_KEY { stored_barrier(value) } else { None };
        let (store, records) = (self.store.clone(), Arc::clone(&self.records));
        let done: Done = Box::new(move |outcome| {
            let purges = barrier.filter(|barrier| outcome.is_ok() && *barrier > 0);
            // Only a key that is too long is refused.
            let asked = purges.map_or(Ok(()), |barrier| purge_below(&store, &records, barrier));
            done(outcome.and(asked.map_err(EngineError::new)));
        });
        _ = self.submit(batch, hash::Durability::Synced, None, done);
    }

    fn approximate_items(&self) -> u64 {
        let totals = self.store.properties().totals;
        let records = lock(&self.records).len() as u64;
        (totals.entries + totals.overflow_entries).saturating_sub(records)
    }

    fn disk_bytes(&self) -> u64 {
        let properties = self.store.properties();
        let values = properties.value_live_bytes + properties.value_garbage_bytes;
        properties.totals.bytes + values + properties.overflow_disk_bytes + properties.log_bytes
    }

    fn write_stalled(&self) -> bool {
        self.store.properties().writes_waiting > 0
    }

    fn health(&self) -> Health {
        let HashProperties { failure, out_of_space, watched_space, .. } = self.store.properties();
        let refused = || watched_space.as_ref().and_then(SpaceProperties::shortage).map(ToString::to_string);
        let why = failure.or(out_of_space).map(|error| error.to_string()).or_else(refused);
        why.map_or(Health::Ready, Health::Degraded)
    }

    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>)) {
        metrics(&self.store.properties(), out);
    }
}

fn metrics(properties: &HashProperties, out: &mut dyn FnMut(Metric<'_>)) {
    let gauges = [
        ("buckets", "Buckets of the store.", properties.state.buckets()),
        ("buckets_max", "Maximum number of buckets that fit on the device.", properties.buckets_max),
        ("entries", "Entries in buckets, dead ones included.", properties.totals.entries),
        ("entry_bytes", "Bytes of the entries in buckets.", properties.totals.bytes),
        ("overflow_entries", "Entries in the overflow.", properties.totals.overflow_entries),
        ("overflow_disk_bytes", "Bytes of the overflow store on disk.", properties.overflow_disk_bytes),
        ("pending_bytes", "Bytes of writes that are logged and not yet in their buckets.", properties.pending_bytes),
        ("writes_waiting", "Batches that wait for space.", properties.writes_waiting as u64),
        ("log_bytes", "Bytes of log files on disk.", properties.log_bytes),
        ("value_live_bytes", "Bytes of large values that are alive.", properties.value_live_bytes),
        (
            "value_garbage_bytes",
            "Bytes of large values that are dead and not yet trimmed.",
            properties.value_garbage_bytes,
        ),
        ("last_sequence", "The newest visible sequence number.", properties.last_sequence),
        ("failed", "1 if the store takes no writes.", u64::from(properties.failure.is_some())),
        ("out_of_space", "1 if puts are refused because a disk is full.", u64::from(properties.out_of_space.is_some())),
    ];
    gauges.iter().for_each(|(name, help, value)| gauge(name, help, *value as f64, out));
    let load = "Average load of buckets, the overflow included. 1 if all were full.";
    gauge("load_ratio", load, properties.load, out);
    gauge("overflow_ratio", "Share of entries in the overflow.", properties.overflow_share, out);
    debt_metrics(properties, out);
    space_metrics(properties, out);
    let counters = [
        ("gets", "Keys looked up.", properties.gets),
        ("bucket_reads", "Buckets read by readers and workers.", properties.bucket_reads),
        ("bucket_writes", "Buckets written.", properties.bucket_writes),
        ("bucket_discards", "Buckets discarded on the device.", properties.bucket_discards),
        ("overflow_reads", "Reads that searched the overflow.", properties.overflow_reads),
        ("splits", "Buckets split.", properties.splits),
        ("merges", "Buckets merged into others.", properties.merges),
        ("value_collections", "Segments of large values collected.", properties.value_collections),
        ("checkpoints", "Checkpoints made.", properties.checkpoints),
        ("superblock_writes", "Writes of the superblock.", properties.superblock_writes),
    ];
    for (name, help, value) in counters {
        let name = format!("situ_hash_{name}_total");
        out(Metric { name: &name, help, kind: MetricKind::Counter, labels: &[], value: value as f64 });
    }
}

/// Reports dead entries that still take space, and files that stay for them.
fn debt_metrics(properties: &HashProperties, out: &mut dyn FnMut(Metric<'_>)) {
    let overflow = &properties.overflow_debts;
    let gauges = [
        ("log_limit_bytes", "Bytes of log that may be kept.", properties.log_bytes_max),
        ("dead_entries", "Expired entries in buckets, about, as of the last look for them.", properties.dead_entries),
        (
            "value_dying_bytes",
            "Bytes of large values that died since the last checkpoint.",
            properties.value_dying_bytes,
        ),
        ("overflow_tombstones", "Tombstones in the overflow store.", overflow.tombstones + overflow.range_deletions),
        ("overflow_log_held_bytes", "Bytes of the log of the overflow store that are needed.", overflow.log_held_bytes),
    ];
    gauges.iter().for_each(|(name, help, value)| gauge(&format!("debt_{name}"), help, *value as f64, out));
}

/// Reports the room of the device. A drive that does not report its physical bytes has no such metrics.
fn space_metrics(properties: &HashProperties, out: &mut dyn FnMut(Metric<'_>)) {
    let space = &properties.space;
    gauge("device_logical_bytes", "Addressable bytes of the bucket space.", space.logical_total as f64, out);
    let watched = properties.watched_space.as_ref();
    let physical = [
        (
            "physical_reserve_bytes",
            "With less physical space left than this, puts are refused.",
            watched.map(|watched| watched.reserve_bytes),
        ),
        (
            "physical_level",
            "Physical space: 0 if there is enough, 1 if it is low, 2 if puts are refused, 3 if all writes are.",
            watched.map(|watched| watched.level.number()),
        ),
        ("device_physical_bytes", "Physical bytes of the whole drive.", space.physical_total),
        ("device_physical_used_bytes", "Physical bytes that the whole drive holds.", space.physical_used),
        ("device_physical_written_bytes", "Physical bytes that the whole drive has written.", space.physical_written),
    ];
    for (name, help, value) in physical {
        if let Some(value) = value {
            gauge(name, help, value as f64, out);
        }
    }
}

fn gauge(name: &str, help: &str, value: f64, out: &mut dyn FnMut(Metric<'_>)) {
    out(Metric { name: &format!("situ_hash_{name}"), help, kind: MetricKind::Gauge, labels: &[], value });
}
