//! The items of a store that this process does not serve: a rule for dead ones, and a writer of more.
//!
//! **Reading.** [`stored_rule`] returns the rule of a server that opened the store now: a delayed flush whose time has
//! come counts, although no server has carried it out yet.
//!
//! **Writing.** An [`ItemWriter`] gives each item a new cas id, from the point where the server's ids go on. It puts
//! the new end of the ids into the same batch as the items. The ids that items bring along are not kept: in this store
//! they may lie below the flush barrier, and the items would be dead on arrival. Or they may lie above ids that are
//! still to be given out, and the next flush would not reach the items. Ids that clients gave (`E`) are kept: flushes
//! do not go by them.
//!
//! **Invariant.** As in [`durable`](crate::engine::durable): every id in the store is below the stored limit.

use std::sync::Arc;

use situ::{Error, Keyspace, KeyspaceOptions, Store, WriteBatch};
use situ_base::{ClockRecord, StoreClock};

use crate::engine::durable::{CLOCK_KEY, FLUSH_KEY, LIMIT_KEY, decode_words};
use crate::engine::item::{ExpiryRule, Header};
use crate::engines::keyspaces::{ITEMS_KEYSPACE, META_KEYSPACE, meta_options};
use crate::protocol::parse::KEY_BYTES_MAX;

/// The contents of a server's records.
pub(crate) struct Records {
    /// The cas id at which ids go on.
    limit: u64,
    barrier: u64,
    /// Time at which a delayed flush is due, by the store's clock; 0 if none is pending.
    due: u64,
}

impl Records {
    /// Reads the records by `get`. `damaged` makes an error of what is wrong with one.
    pub(crate) fn read<E>(
        get: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, E>,
        damaged: impl Fn(String) -> E,
    ) -> Result<Records, E> {
        let [limit] = words("cas-limit", get(LIMIT_KEY)?, &damaged)?.unwrap_or([1]);
        let [barrier, due] = words("flush-barrier", get(FLUSH_KEY)?, &damaged)?.unwrap_or([0, 0]);
        Ok(Records { limit, barrier, due })
    }

    fn of(meta: &Keyspace) -> situ::Result<Records> {
        Records::read(|key| Ok(meta.get(key)?.map(|record| record.to_vec())), Error::Invalid)
    }

    fn is_due(&self, now_seconds: u64) -> bool {
        self.due != 0 && self.due <= now_seconds
    }

    /// Returns the rule for dead items: a delayed flush whose time has come counts.
    pub(crate) fn rule(&self, now_seconds: u64) -> ExpiryRule {
        let barrier_cas = if self.is_due(now_seconds) { self.limit } else { self.barrier };
        ExpiryRule { now_seconds, barrier_cas }
    }

    /// Returns the ids that items get from now on.
    pub(crate) fn renumber(&self, clock: Arc<StoreClock>) -> Renumber {
        Renumber { next: self.limit, flushed: self.is_due(clock.seconds()).then_some(self.limit), clock }
    }
}

fn words<const N: usize, E>(
    name: &str,
    record: Option<Vec<u8>>,
    damaged: impl Fn(String) -> E,
) -> Result<Option<[u64; N]>, E> {
    let decoded = record.as_deref().map(|bytes| decode_words(name, bytes)).transpose();
    decoded.map_err(|error| damaged(error.to_string()))
}

/// A writer that gives items new cas ids, and expiration times of the store's clock.
#[derive(Debug)]
pub(crate) struct Renumber {
    clock: Arc<StoreClock>,
    next: u64,
    /// The flush barrier, if a delayed flush has come due: it is for what was there before.
    flushed: Option<u64>,
}

impl Renumber {
    /// Calls `write` with the item under `key` and its new id. The item's expiration time is in Unix time.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        write: impl FnOnce(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("the key of a memcached item has at most {KEY_BYTES_MAX} bytes, not {}", key.len()));
        }
        let decoded = Header::decode(value).and_then(|header| Some((header, value.get(header.byte_len()..)?)));
        let Some((header, data)) = decoded else {
            return Err("the value is not a memcached item as `situ dump --stored` writes it".to_owned());
        };
        let next = self.next.checked_add(1).ok_or("all cas ids are used up")?;
        let header = Header { id: self.next, expires: self.clock.seconds_of_unix(header.expires), ..header };
        write(&[&header.encode()[..], data].concat())?;
        self.next = next;
        Ok(())
    }

    /// Returns the record of the ids that were given.
    pub(crate) fn limit_record(&self) -> [u8; 8] {
        self.next.to_le_bytes()
    }

    /// Returns the record of the flush barrier, if it has risen.
    pub(crate) fn flush_record(&self) -> Option<Vec<u8>> {
        Some([self.flushed?.to_le_bytes(), 0u64.to_le_bytes()].concat())
    }
}

/// Returns the clock by which the items of a store expire. Without a stored record, it starts at the wall clock.
///
/// # Errors
/// The record cannot be read, or is damaged.
pub fn stored_clock(store: &Store) -> situ::Result<StoreClock> {
    let record = match store.existing_keyspace(META_KEYSPACE) {
        Ok(meta) => stored_record(&meta)?,
        Err(Error::NoSuchKeyspace { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(StoreClock::resume(Arc::clone(&store.env().clock), record))
}

/// Reads the record of the clock from the keyspace of records.
pub(crate) fn stored_record(meta: &Keyspace) -> situ::Result<Option<ClockRecord>> {
    let Some(bytes) = meta.get(CLOCK_KEY)? else { return Ok(None) };
    let damaged =
        || Error::Invalid("the server's record clock is damaged, or a newer program has written it".to_owned());
    ClockRecord::decode(&bytes).ok_or_else(damaged).map(Some)
}

/// Returns the rule by which items of a store are dead at `now_seconds` of its [clock](stored_clock). `None` if the
/// store holds no memcached items.
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
        Ok(meta) => Records::of(&meta)?,
        // A server makes the items' keyspace first; no item is there before the records are.
        Err(Error::NoSuchKeyspace { .. }) => Records { limit: 1, barrier: 0, due: 0 },
        Err(error) => return Err(error),
    };
    Ok(Some(records.rule(now_seconds)))
}

/// A writer of items into a store that is open for writing and not served. See the module.
#[derive(Debug)]
pub struct ItemWriter {
    items: Keyspace,
    meta: Keyspace,
    ids: Renumber,
}

impl ItemWriter {
    /// Continues from the records of `store`, and creates its keyspaces if they are missing. `clock` is the store's
    /// clock.
    ///
    /// # Errors
    /// The records cannot be read, or a keyspace cannot be made.
    pub fn open(store: &Store, clock: Arc<StoreClock>) -> situ::Result<ItemWriter> {
        let items = store.keyspace_with(ITEMS_KEYSPACE, KeyspaceOptions::default())?;
        let meta = store.keyspace_with(META_KEYSPACE, meta_options())?;
        let ids = Records::of(&meta)?.renumber(clock);
        Ok(ItemWriter { items, meta, ids })
    }

    /// Appends an item. `value` is a stored item whose expiration time is in Unix time. Call [`seal`](ItemWriter::seal)
    /// before the batch is written.
    ///
    /// # Errors
    /// The value is no item, or the key is none that a memcached client could ask for; in words. The batch is as it
    /// was.
    pub fn put(&mut self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) -> Result<(), String> {
        let items = &self.items;
        self.ids.put(key, value, |item| batch.put_in(items, key, item).map_err(|error| error.to_string()))
    }

    /// Appends the records, which have to become durable together with the items.
    ///
    /// # Errors
    /// The records' keyspace is gone.
    pub fn seal(&mut self, batch: &mut WriteBatch) -> situ::Result<()> {
        batch.put_in(&self.meta, LIMIT_KEY, self.ids.limit_record())?;
        if let Some(record) = self.ids.flush_record() {
            batch.put_in(&self.meta, FLUSH_KEY, &record)?;
        }
        Ok(())
    }
}
