//! The items of a store that this process does not serve: which of them are dead, and how to write more.
//!
//! **Reading.** [`stored_rule`] says what a server that opened the store now would say: a delayed flush whose time has
//! come counts, although no server has carried it out yet.
//!
//! **Writing.** An [`ItemWriter`] gives each item a new cas id, from where the server's ids go on, and puts the new end
//! of the ids into the same batch as the items. The ids that items bring along are not kept: in this store they may lie
//! below the flush barrier, which would make the items dead on arrival, or above ids that are still to be given out,
//! which would put them out of reach of the next flush. Ids that clients gave (`E`) are kept: flushes do not go by them.
//!
//! **Invariant.** As in [`durable`](crate::durable): every id in the store is below the stored limit.

use situ::{Error, Keyspace, KeyspaceOptions, Store, WriteBatch};

use crate::durable::{FLUSH_KEY, LIMIT_KEY, decode_words};
use crate::item::{ExpiryRule, Header};
use crate::parse::KEY_BYTES_MAX;
use crate::store::{ITEMS_KEYSPACE, META_KEYSPACE, meta_options};

/// What a server's records say.
struct Records {
    /// The cas id at which ids go on.
    limit: u64,
    barrier: u64,
    /// When a delayed flush is due; 0 if none waits.
    due: u64,
}

impl Records {
    fn read(meta: &Keyspace) -> situ::Result<Records> {
        let [limit] = words("cas-limit", LIMIT_KEY, meta)?.unwrap_or([1]);
        let [barrier, due] = words("flush-barrier", FLUSH_KEY, meta)?.unwrap_or([0, 0]);
        Ok(Records { limit, barrier, due })
    }

    fn is_due(&self, now_seconds: u64) -> bool {
        self.due != 0 && self.due <= now_seconds
    }
}

fn words<const N: usize>(name: &str, key: &[u8], meta: &Keyspace) -> situ::Result<Option<[u64; N]>> {
    let record = meta.get(key)?;
    let decoded = record.as_deref().map(|bytes| decode_words(name, bytes)).transpose();
    decoded.map_err(|error| Error::Invalid(error.to_string()))
}

/// Which items of a store are dead at `now_seconds` (Unix time), as its records say; `None` if it holds no memcached
/// items.
///
/// # Errors
/// The records cannot be read, or are damaged.
pub fn stored_rule(store: &Store, now_seconds: u64) -> situ::Result<Option<ExpiryRule>> {
    match store.existing_keyspace(ITEMS_KEYSPACE) {
        Ok(_) => (),
        Err(Error::NoSuchKeyspace { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    let records = match store.existing_keyspace(META_KEYSPACE) {
        Ok(meta) => Records::read(&meta)?,
        // A server makes the items' keyspace first; no item is there before the records are.
        Err(Error::NoSuchKeyspace { .. }) => Records { limit: 1, barrier: 0, due: 0 },
        Err(error) => return Err(error),
    };
    let barrier_cas = if records.is_due(now_seconds) { records.limit } else { records.barrier };
    Ok(Some(ExpiryRule { now_seconds, barrier_cas }))
}

/// Puts items into a store that is open for writing and not served. See the module.
#[derive(Debug)]
pub struct ItemWriter {
    items: Keyspace,
    meta: Keyspace,
    next: u64,
    /// The flush barrier, if a delayed flush has come due: it is for what was there before.
    flushed: Option<u64>,
}

impl ItemWriter {
    /// Goes on where the records of `store` say; makes its keyspaces if they are missing.
    ///
    /// # Errors
    /// The records cannot be read, or a keyspace cannot be made.
    pub fn open(store: &Store, now_seconds: u64) -> situ::Result<ItemWriter> {
        let items = store.keyspace_with(ITEMS_KEYSPACE, KeyspaceOptions::default())?;
        let meta = store.keyspace_with(META_KEYSPACE, meta_options())?;
        let records = Records::read(&meta)?;
        let flushed = records.is_due(now_seconds).then_some(records.limit);
        Ok(ItemWriter { items, meta, next: records.limit, flushed })
    }

    /// Appends an item, `value` being one as it is stored. [`seal`](ItemWriter::seal) the batch before it is written.
    ///
    /// # Errors
    /// The value is no item, or the key is none that a memcached client could ask for; in words. The batch is as it was.
    pub fn put(&mut self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) -> Result<(), String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("the key of a memcached item has at most {KEY_BYTES_MAX} bytes, not {}", key.len()));
        }
        let decoded = Header::decode(value).and_then(|header| Some((header, value.get(header.byte_len()..)?)));
        let Some((header, data)) = decoded else {
            return Err("the value is not a memcached item as `situ dump --stored` writes it".to_owned());
        };
        let next = self.next.checked_add(1).ok_or("all cas ids are used up")?;
        let header = Header { id: self.next, ..header };
        batch.put_in(&self.items, key, [&header.encode()[..], data].concat()).map_err(|error| error.to_string())?;
        self.next = next;
        Ok(())
    }

    /// Appends the records, which have to become durable together with the items.
    ///
    /// # Errors
    /// The records' keyspace is gone.
    pub fn seal(&mut self, batch: &mut WriteBatch) -> situ::Result<()> {
        batch.put_in(&self.meta, LIMIT_KEY, self.next.to_le_bytes())?;
        if let Some(barrier) = self.flushed {
            let record = [barrier.to_le_bytes(), 0u64.to_le_bytes()].concat();
            batch.put_in(&self.meta, FLUSH_KEY, &record)?;
        }
        Ok(())
    }
}
