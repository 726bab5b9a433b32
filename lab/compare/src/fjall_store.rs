//! Fjall as a store under test.
//!
//! One keyspace. Set: what [`StoreSettings`] names; its journal is not compressed, and every write is handed to the
//! kernel before it returns, as RocksDB's are. Everything else is Fjall's default. Fjall compresses level 0 and 1 not
//! at all by default and builds larger filters there; here all levels are alike, as on the other stores.
//!
//! Fjall has no call that waits for background work: [`Store::wait_idle`] looks until nothing runs and nothing is
//! queued for [`QUIET_LOOKS`] looks in a row.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fjall::config::{BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};
use situ_bench::{Change, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats};

use crate::settings::{Compression, StoreSettings};

const VERSION: &str = "fjall 3.1.13";

/// Time between looks for background work.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Looks in a row without any, after which there is none.
const QUIET_LOOKS: u32 = 10;

pub(crate) struct FjallFactory {
    settings: StoreSettings,
}

impl FjallFactory {
    pub(crate) fn new(settings: StoreSettings) -> Self {
        Self { settings }
    }

    fn keyspace_options(&self) -> KeyspaceCreateOptions {
        let settings = &self.settings;
        let bits = BloomConstructionPolicy::BitsPerKey(settings.bloom_bits_per_key as f32);
        let compression = match settings.compression {
            Compression::None => CompressionType::None,
            Compression::Lz4 => CompressionType::Lz4,
        };
        KeyspaceCreateOptions::default()
            .max_memtable_size(settings.memtable_bytes)
            .data_block_size_policy(BlockSizePolicy::all(settings.block_bytes))
            .data_block_compression_policy(CompressionPolicy::all(compression))
            .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(bits)))
    }
}

impl StoreFactory for FjallFactory {
    fn name(&self) -> String {
        "fjall".to_owned()
    }

    fn settings(&self) -> Settings {
        let settings = &self.settings;
        let compression = match settings.compression {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
        };
        let rows: [(&str, Setting); 8] = [
            ("max_memtable_size", settings.memtable_bytes.into()),
            ("cache_size", settings.cache_bytes.into()),
            ("data_block_size", settings.block_bytes.into()),
            ("filter", format!("bloom, {} bits per key, all levels", settings.bloom_bits_per_key).into()),
            ("data_block_compression", format!("{compression}, all levels").into()),
            ("journal_compression", "none".into()),
            ("worker_threads", settings.background_threads.into()),
            ("everything else", "default".into()),
        ];
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        let database = Database::builder(directory)
            .cache_size(self.settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .worker_threads(self.settings.background_threads.max(1) as usize)
            .open()?;
        let keyspace = database.keyspace("bench", || self.keyspace_options())?;
        Ok(Arc::new(FjallStore { keyspace, database }))
    }
}

struct FjallStore {
    keyspace: Keyspace,
    database: Database,
}

impl FjallStore {
    fn sync(&self, sync: bool) -> Result<(), StoreFailure> {
        if sync {
            self.database.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

fn walk(entries: impl Iterator<Item = Guard>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
    let mut count = 0;
    for guard in entries.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        let (key, value) = guard.into_inner()?;
        count += 1;
        if each(&key, &value).is_break() {
            break;
        }
    }
    Ok(count)
}

impl Store for FjallStore {
    fn name(&self) -> String {
        VERSION.to_owned()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure> {
        self.keyspace.insert(key, value)?;
        self.sync(sync)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        value.clear();
        let Some(found) = self.keyspace.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure> {
        self.keyspace.remove(key)?;
        self.sync(sync)
    }

    fn batch(&self, changes: &[Change<'_>], sync: bool) -> Result<(), StoreFailure> {
        let mut batch = self.database.batch().durability(sync.then_some(PersistMode::SyncData));
        for change in changes {
            match *change {
                Change::Put(key, value) => batch.insert(&self.keyspace, key, value),
                Change::Delete(key) => batch.remove(&self.keyspace, key),
            }
        }
        Ok(batch.commit()?)
    }

    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        walk(self.keyspace.range::<&[u8], _>((Bound::Included(start), Bound::Unbounded)), limit, each)
    }

    fn scan_reverse(&self, start: Option<&[u8]>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let last = start.map_or(Bound::Unbounded, Bound::Included);
        walk(self.keyspace.range::<&[u8], _>((Bound::Unbounded, last)).rev(), limit, each)
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        self.flush()?;
        self.keyspace.major_compact()?;
        self.wait_idle()
    }

    fn wait_idle(&self) -> Result<(), StoreFailure> {
        let mut quiet = 0;
        let mut completed = self.database.compactions_completed();
        while quiet < QUIET_LOOKS {
            thread::sleep(LOOK_INTERVAL);
            let now = self.database.compactions_completed();
            let busy = self.database.outstanding_flushes() > 0
                || self.database.active_compactions() > 0
                || self.keyspace.sealed_memtable_count() > 0
                || now != completed;
            completed = now;
            quiet = if busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }

    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        let (memtables, cache) = (self.database.write_buffer_size(), self.database.cache_size());
        Ok(StoreStats {
            memory_bytes: Some(memtables + cache),
            detail: BTreeMap::from([
                ("memtable_bytes".to_owned(), memtables as f64),
                ("block_cache_bytes".to_owned(), cache as f64),
                ("table_bytes".to_owned(), self.keyspace.disk_space() as f64),
                ("journal_bytes".to_owned(), self.database.journal_disk_space()? as f64),
                ("compactions".to_owned(), self.database.compactions_completed() as f64),
            ]),
            ..StoreStats::default()
        })
    }
}
