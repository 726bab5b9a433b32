//! The target of a load: a keyspace of an ordered store, or a hash store.
//!
//! Entries are gathered into one batch. [`Target::commit`] writes the batch together with the place that it goes up to,
//! so both become durable together or not at all.

use crate::failure::Failure;
use crate::hash::{OpenHash, check_key, check_value};
use crate::options::LoadOptions;
use crate::options::MARKS;
use crate::output::Output;
use crate::store::{Writable, durability};
use crate::text::EXPIRES_MS;
use situ::hash::HashBatch;
use situ::{Keyspace, WriteBatch};
use situ_server::{HashItemWriter, ItemWriter, reserved};
use xxhash_rust::xxh3::xxh3_128;

/// The interface of a load to a store.
pub(super) trait Target {
    /// Gathers an entry, which may expire. The batch is as it was if this fails, in words.
    fn put(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Result<(), String>;

    /// Returns the bytes that are gathered.
    fn bytes(&self) -> usize;

    /// Writes what is gathered, and the mark of a load under its key.
    fn commit(&mut self, mark: Option<(&[u8], &[u8])>, sync: bool) -> Result<(), Failure>;

    /// Returns the mark of an earlier load.
    fn mark(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Returns the time of the last lossy repair of the store.
    fn lossy_repair(&self) -> Option<u64>;

    /// Closes the store: everything is durable then.
    fn close(self: Box<Self>) -> Result<(), Failure>;
}

/// Opens the store that the options name, or makes it. The keyspace's name has been checked. With `marks`, the load has
/// a mark.
pub(super) fn open(
    options: &LoadOptions,
    keyspace: &str,
    marks: bool,
    out: &Output,
) -> Result<Box<dyn Target>, Failure> {
    let home = options.target.home();
    if !options.engine.is_hash(home.path(), home.kind())? {
        return Ok(Box::new(Ordered::open(options, keyspace, marks, out)?));
    }
    options.target.check_for_hash()?;
    let hash = OpenHash::open(home.path(), options.engine.buckets.as_deref(), true)?;
    hash.check_writes(&options.target, options.stored)?;
    let items = options.stored.then(|| hash.item_writer()).transpose()?;
    Ok(Box::new(Hash { hash, items, batch: HashBatch::new() }))
}

struct Ordered {
    writable: Writable,
    keyspace: Keyspace,
    marks: Option<Keyspace>,
    /// The writer of memcached items, if the entries are some.
    items: Option<ItemWriter>,
    batch: WriteBatch,
}

impl Ordered {
    fn open(options: &LoadOptions, keyspace: &str, marks: bool, out: &Output) -> Result<Ordered, Failure> {
        let writable = Writable::open(&options.target.home(), true, out)?;
        let items = if options.stored { Some(writable.item_writer()?) } else { None };
        let keyspace = writable.keyspace(keyspace, true)?;
        let marks = if marks { Some(writable.keyspace(MARKS, true)?) } else { None };
        Ok(Ordered { writable, keyspace, marks, items, batch: WriteBatch::new() })
    }
}

const WHAT: &str = "cannot write a batch";

impl Target for Ordered {
    fn put(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Result<(), String> {
        if expires_ms.is_some() {
            return Err(format!("the entry has {EXPIRES_MS}, and entries of an ordered store do not expire"));
        }
        match &mut self.items {
            Some(items) => items.put(&mut self.batch, key, value),
            None => self.batch.put_in(&self.keyspace, key, value).map_err(|error| error.to_string()),
        }
    }

    fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    fn commit(&mut self, mark: Option<(&[u8], &[u8])>, sync: bool) -> Result<(), Failure> {
        let mut batch = std::mem::take(&mut self.batch);
        let failed = |error: situ::Error| self.writable.failure(WHAT, &error);
        if let (Some(marks), Some((key, mark))) = (&self.marks, mark) {
            batch.put_in(marks, key, mark).map_err(failed)?;
        }
        if let Some(items) = &mut self.items {
            items.seal(&mut batch).map_err(failed)?;
        }
        self.writable.store.write_with(batch, durability(sync)).map_err(failed)
    }

    fn mark(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let Some(marks) = &self.marks else { return Ok(None) };
        let found = marks.get(key).map_err(|error| self.writable.failure("cannot resume", &error))?;
        Ok(found.map(|mark| mark.to_vec()))
    }

    fn lossy_repair(&self) -> Option<u64> {
        self.writable.store.properties().lossy_repair_unix_ms
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.writable.close()
    }
}

struct Hash {
    hash: OpenHash,
    /// The writer of memcached items, if the entries are some.
    items: Option<HashItemWriter>,
    batch: HashBatch,
}

/// Keys of a hash store are short, and names of marks hold paths: a hash stands for each name. The mark says which file
/// it is for.
fn mark_key(name: &[u8]) -> Vec<u8> {
    reserved(&[b"load ", &xxh3_128(name).to_le_bytes()[..]].concat())
}

impl Target for Hash {
    fn put(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Result<(), String> {
        check_key(key)?;
        check_value(value)?;
        match &mut self.items {
            Some(_) if expires_ms.is_some() => {
                Err(format!("the entry has {EXPIRES_MS}, and a memcached item has its expiry in its header"))
            }
            Some(items) => items.put(&mut self.batch, key, value),
            None => {
                let store_ms = expires_ms.map(|unix_ms| self.hash.store.clock().ms_of_unix(unix_ms));
                self.batch.put_until(key, value, store_ms).map_err(|error| error.to_string())
            }
        }
    }

    fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    fn commit(&mut self, mark: Option<(&[u8], &[u8])>, sync: bool) -> Result<(), Failure> {
        let mut batch = std::mem::take(&mut self.batch);
        let failed = |error: situ::hash::Error| self.hash.failure(WHAT, &error);
        if let Some((key, mark)) = mark {
            batch.put(mark_key(key), mark).map_err(failed)?;
        }
        if let Some(items) = &mut self.items {
            items.seal(&mut batch).map_err(failed)?;
        }
        self.hash.store.write_with(batch, durability(sync).into()).map_err(failed)
    }

    fn mark(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.hash.store.get(mark_key(key)).map_err(|error| self.hash.failure("cannot resume", &error))
    }

    fn lossy_repair(&self) -> Option<u64> {
        None
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.hash.close()
    }
}
