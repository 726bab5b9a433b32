//! The writes of a transaction: the last state of each key, in order, and the record that leads back to a savepoint.
//!
//! Iterators that were opened over a keyspace's map share the map. A change copies the map while there is such an
//! iterator. So an iterator shows the transaction as it was when the iterator was opened.

use crate::Result;
use crate::api::keyspace::Keyspace;
use crate::base::batch::WriteBatch;
use crate::base::value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The new state of a key: its value, or nothing.
pub(crate) type Own = Option<Arc<[u8]>>;

/// A keyspace's changes.
pub(crate) type OwnMap = BTreeMap<Arc<[u8]>, Own>;

/// The memory of a change in addition to key and value: a place in a map, two allocations with their counters.
const CHANGE_BYTES: usize = 120;

/// Returns the memory that counts for a change.
pub(crate) fn bytes_of(key_bytes: usize, value_bytes: usize) -> u64 {
    (CHANGE_BYTES + key_bytes + value_bytes) as u64
}

/// A change, and the state before it.
struct Past {
    keyspace: u32,
    key: Arc<[u8]>,
    /// `None` if the transaction had not changed the key.
    before: Option<Own>,
}

/// A point to go back to.
pub(crate) struct Mark {
    past: usize,
    bytes: u64,
    past_bytes: u64,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct OwnWrites {
    by_keyspace: BTreeMap<u32, Arc<OwnMap>>,
    bytes: u64,
    past: Vec<Past>,
    past_bytes: u64,
}

impl OwnWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_keyspace.values().all(|map| map.is_empty())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.past_bytes
    }

    /// Returns the transaction's own state of a key: `Some(None)` if the key is deleted.
    pub(crate) fn get(&self, keyspace: u32, key: &[u8]) -> Option<Option<Value>> {
        let own = self.by_keyspace.get(&keyspace)?.get(key)?;
        Some(own.clone().map(Value::shared))
    }

    /// Returns all changes of a keyspace, as of now.
    pub(crate) fn of(&self, keyspace: u32) -> Arc<OwnMap> {
        self.by_keyspace.get(&keyspace).cloned().unwrap_or_default()
    }

    /// Records a change. `remembers`: keeps the old value for a rollback to a savepoint.
    pub(crate) fn change(&mut self, keyspace: u32, key: Arc<[u8]>, own: Own, remembers: bool) {
        self.bytes += bytes_of(key.len(), len(&own));
        let before = self.put(keyspace, Arc::clone(&key), own);
        if let Some(before) = &before {
            self.bytes -= bytes_of(key.len(), len(before));
        }
        if remembers {
            self.past_bytes += bytes_of(key.len(), before.as_ref().map_or(0, len));
            self.past.push(Past { keyspace, key, before });
        }
    }

    fn put(&mut self, keyspace: u32, key: Arc<[u8]>, own: Own) -> Option<Own> {
        Arc::make_mut(self.by_keyspace.entry(keyspace).or_default()).insert(key, own)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { past: self.past.len(), bytes: self.bytes, past_bytes: self.past_bytes }
    }

    pub(crate) fn take_back(&mut self, mark: &Mark) {
        for Past { keyspace, key, before } in self.past.split_off(mark.past).into_iter().rev() {
            match before {
                Some(own) => drop(self.put(keyspace, key, own)),
                None => drop(self.by_keyspace.get_mut(&keyspace).map(|map| Arc::make_mut(map).remove(&key))),
            }
        }
        self.bytes = mark.bytes;
        self.past_bytes = mark.past_bytes;
    }

    pub(crate) fn forget_past(&mut self) {
        self.past = Vec::new();
        self.past_bytes = 0;
    }

    /// Appends everything to a batch. `keyspaces` are those of the changes.
    pub(crate) fn encode(self, keyspaces: &BTreeMap<u32, Keyspace>, batch: &mut WriteBatch) -> Result<()> {
        for (id, map) in self.by_keyspace {
            let keyspace = keyspaces.get(&id).expect("a key is tracked before it is written");
            for (key, own) in Arc::unwrap_or_clone(map) {
                match own {
                    Some(value) => batch.put_in(keyspace, &key, &value)?,
                    None => batch.delete_in(keyspace, &key)?,
                }
            }
        }
        Ok(())
    }
}

fn len(own: &Own) -> usize {
    own.as_ref().map_or(0, |value| value.len())
}
