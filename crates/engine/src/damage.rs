//! Damage that is found while a store is open.
//!
//! Whoever reads damaged data has the error. But the caller of one read is seldom the person who must act on it, and
//! compactions have no caller. So each such error is also noted here, on its way out of the store: it is counted, and the
//! listener is told once for each file. Reads of other data go on.
//!
//! **Bounded.** A damaged block that is read a million times counts a million and is told once. [`FILES_MAX`] files are
//! remembered and told; damage in further ones is counted.
//!
//! **Threads.** Any thread that reads. The lock is held for a look at the list; the listener is called without it.
//!
//! A file is forgotten when it is deleted. A store that is open read-only notes nothing: what it finds may be the work of the
//! process that writes beside it.

use crate::Error;
use crate::core::{Core, lock};
use crate::listener::StoreEvent;
use crate::verify::Damage;
use situ_storage::{Error as StorageError, FileName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// How many damaged files are remembered. Whoever has so many needs no longer list.
const FILES_MAX: usize = 256;

/// The damaged files of a store.
#[derive(Default)]
pub(crate) struct DamagedFiles {
    /// Whom to tell; none while the store is being opened, and if it is open read-only.
    store: OnceLock<Weak<Core>>,
    /// By the file's name, the first damage that was met in it.
    files: Mutex<BTreeMap<String, Damage>>,
}

impl DamagedFiles {
    /// From now on damage is noted, with `store`.
    pub(crate) fn belong_to(&self, store: &Arc<Core>) {
        // The first one stays; there is no other.
        let _ = self.store.set(Arc::downgrade(store));
    }

    /// Notes `error`, if damaged data is its cause.
    #[cold]
    pub(crate) fn note(&self, error: &Error) {
        let Error::Storage(StorageError::Corruption(damage)) = error else { return };
        let Some(core) = self.store.get().and_then(Weak::upgrade) else { return };
        core.stats.counters.damage_met.add(1);
        let is_first = {
            let mut files = lock(&self.files);
            let is_first = files.len() < FILES_MAX && !files.contains_key(&damage.file);
            if is_first {
                files.insert(damage.file.clone(), Damage::clone(damage));
            }
            is_first
        };
        if is_first {
            core.tell(|| StoreEvent::DamageFound {
                file: damage.file.clone(),
                offset: damage.offset,
                error: error.clone(),
            });
        }
    }

    /// The table's file is gone, and its damage with it.
    pub(crate) fn forget_table(&self, number: u64) {
        let name = FileName::Table(number).to_string();
        lock(&self.files).retain(|file, _| !file.ends_with(&name));
    }

    /// The first damage that was met in each file.
    pub(crate) fn list(&self) -> Vec<Damage> {
        lock(&self.files).values().cloned().collect()
    }
}
