//! Keys of a hash store that are the program's own, and items in a hash store that this process does not serve.
//!
//! A hash store is one map, without keyspaces. Keys of items have at most 250 bytes. A *reserved* key begins with 251
//! zeros, so it meets no item. No entry pays for that. The server's records lie under reserved keys, and so do the
//! positions of loads.
//!
//! **Invariant.** Only this program writes reserved keys: commands that take keys from users refuse them.

use std::sync::Arc;

use situ::hash::{Error, HashBatch, HashStore, Result};

use crate::engine::durable::{FLUSH_KEY, LIMIT_KEY};
use crate::engine::item::{ExpiryRule, Header};
use crate::engines::filter::MARGIN_SECONDS;
use crate::engines::offline::{Records, Renumber};
use crate::protocol::parse::KEY_BYTES_MAX;

/// The prefix of reserved keys.
const PREFIX: [u8; KEY_BYTES_MAX + 1] = [0; KEY_BYTES_MAX + 1];

/// Returns the reserved key of this name.
pub fn reserved(name: &[u8]) -> Vec<u8> {
    [&PREFIX, name].concat()
}

/// Returns true if a key is reserved.
pub fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(&PREFIX)
}

/// Returns the time from which the store may drop an item, in milliseconds of its clock; `None` means never.
pub(crate) fn expires_ms(value: &[u8]) -> Option<u64> {
    let expires = Header::decode(value)?.expires;
    (expires != 0).then(|| expires.saturating_add(MARGIN_SECONDS).saturating_mul(1000))
}

/// Returns true if a store has an entry that is not the program's own. A store with positions of loads alone is as good
/// as empty.
///
/// # Errors
/// The store cannot be read.
pub fn holds_entries(store: &HashStore) -> Result<bool> {
    if store.count()? == 0 {
        return Ok(false);
    }
    // The program's own entries are few: a scan meets another one soon, if there is one.
    for pair in store.scan()? {
        if !is_reserved(&pair?.0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the rule by which items of a hash store are dead at `now_seconds` of its clock. `None` if no server has
/// written to the store.
///
/// # Errors
/// The records cannot be read, or are damaged.
pub fn stored_hash_rule(store: &HashStore, now_seconds: u64) -> Result<Option<ExpiryRule>> {
    let has_items = store.get(reserved(LIMIT_KEY))?.is_some();
    Ok(if has_items { Some(read(store)?.rule(now_seconds)) } else { None })
}

fn read(store: &HashStore) -> Result<Records> {
    Records::read(|key| store.get(reserved(key)), Error::Invalid)
}

/// A writer of items into a hash store that is open and not served. Each gets a new cas id, as from an
/// [`ItemWriter`](crate::ItemWriter).
#[derive(Debug)]
pub struct HashItemWriter {
    ids: Renumber,
}

impl HashItemWriter {
    /// Continues from the records of `store`.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn open(store: &HashStore) -> Result<HashItemWriter> {
        Ok(HashItemWriter { ids: read(store)?.renumber(Arc::clone(store.clock())) })
    }

    /// Appends an item. `value` is a stored item whose expiration time is in Unix time. Call
    /// [`seal`](HashItemWriter::seal) before the batch is written.
    ///
    /// # Errors
    /// The value is no item, or the key is none that a memcached client could ask for; in words. The batch is as it
    /// was.
    pub fn put(&mut self, batch: &mut HashBatch, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        self.ids.put(key, value, |item| batch.put_until(key, item, expires_ms(item)).map_err(|error| error.to_string()))
    }

    /// Appends the records, which have to become durable together with the items.
    ///
    /// # Errors
    /// They cannot be appended.
    pub fn seal(&mut self, batch: &mut HashBatch) -> Result<()> {
        batch.put(reserved(LIMIT_KEY), self.ids.limit_record())?;
        match self.ids.flush_record() {
            Some(record) => batch.put(reserved(FLUSH_KEY), record),
            None => Ok(()),
        }
    }
}
