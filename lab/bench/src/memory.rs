//! A store that keeps an ordered map in memory: the oracle for tests, and the ceiling in a comparison.
//!
//! It measures the cost of the harness itself plus one lock and one tree. A result that comes near to it says
//! that the harness, not the store, was the limit.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::{
    AsyncStore, Change, Completions, EachEntry, Settings, Store, StoreFactory, StoreFailure, StoreStats,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An ordered map behind a lock. Nothing is written to disk, so `sync` means nothing to it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: RwLock<Map>,
    user_bytes_written: AtomicU64,
}

impl MemoryStore {
    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn account(&self, bytes: usize) {
        self.user_bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Store for MemoryStore {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn put(&self, key: &[u8], value: &[u8], _sync: bool) -> Result<(), StoreFailure> {
        self.write().insert(key.to_vec(), value.to_vec());
        self.account(key.len() + value.len());
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        value.clear();
        Ok(match self.read().get(key) {
            Some(found) => {
                value.extend_from_slice(found);
                true
            }
            None => false,
        })
    }

    fn delete(&self, key: &[u8], _sync: bool) -> Result<(), StoreFailure> {
        self.write().remove(key);
        self.account(key.len());
        Ok(())
    }

    fn batch(&self, changes: &[Change<'_>], _sync: bool) -> Result<(), StoreFailure> {
        let mut map = self.write();
        for change in changes {
            match *change {
                Change::Put(key, value) => {
                    map.insert(key.to_vec(), value.to_vec());
                    self.account(key.len() + value.len());
                }
                Change::Delete(key) => {
                    map.remove(key);
                    self.account(key.len());
                }
            }
        }
        Ok(())
    }

    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let map = self.read();
        let range = map.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let mut count = 0;
        for (key, value) in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            count += 1;
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(count)
    }

    fn scan_reverse(&self, start: Option<&[u8]>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let map = self.read();
        let last = start.map_or(Bound::Unbounded, Bound::Included);
        let range = map.range::<[u8], _>((Bound::Unbounded, last)).rev();
        let mut count = 0;
        for (key, value) in range.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            count += 1;
            if each(key, value).is_break() {
                break;
            }
        }
        Ok(count)
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        Ok(())
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        Ok(())
    }

    fn wait_idle(&self) -> Result<(), StoreFailure> {
        Ok(())
    }

    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        let map = self.read();
        let held: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
        Ok(StoreStats {
            user_bytes_written: Some(self.user_bytes_written.load(Ordering::Relaxed)),
            disk_bytes_written: Some(0),
            disk_bytes_read: Some(0),
            disk_bytes: Some(0),
            memory_bytes: Some(held as u64),
            detail: BTreeMap::from([("entries".to_owned(), map.len() as f64)]),
            ..StoreStats::default()
        })
    }

    fn asynchronous(&self) -> Option<&dyn AsyncStore> {
        Some(self)
    }
}

/// Completes on the caller's thread, before the submission returns: the hardest order for a driver to get right.
impl AsyncStore for MemoryStore {
    fn submit_put(
        &self,
        key: &[u8],
        value: &[u8],
        sync: bool,
        token: u64,
        completions: &Arc<dyn Completions>,
    ) -> Result<(), StoreFailure> {
        self.put(key, value, sync)?;
        completions.complete(token, Ok(None));
        Ok(())
    }

    fn submit_get(&self, key: &[u8], token: u64, completions: &Arc<dyn Completions>) -> Result<(), StoreFailure> {
        let length = self.read().get(key).map(Vec::len);
        completions.complete(token, Ok(length));
        Ok(())
    }
}

/// Opens [`MemoryStore`]s. Reopening a directory finds what was there before, as a store on disk would.
#[derive(Debug, Default)]
pub struct MemoryFactory {
    stores: RwLock<BTreeMap<std::path::PathBuf, Arc<MemoryStore>>>,
}

impl StoreFactory for MemoryFactory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn settings(&self) -> Settings {
        Settings::from([("structure".to_owned(), "BTreeMap behind a RwLock".into())])
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        // A marker file ties the map's life to the directory's: removing the directory makes the store fresh.
        let marker = directory.join("MEMORY");
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        if !marker.exists() {
            std::fs::write(&marker, b"the contents are in memory\n")?;
            stores.remove(directory);
        }
        let store: Arc<MemoryStore> = Arc::clone(stores.entry(directory.to_owned()).or_default());
        Ok(store)
    }
}
