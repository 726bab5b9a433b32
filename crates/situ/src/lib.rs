//! Situ: an ordered, durable key-value store.
//!
//! ```
//! use situ::{Durability, ReadOptions, Store, WriteBatch};
//!
//! # fn main() -> situ::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path();
//! let store = Store::open(path)?;
//!
//! // Buffered: survives this process. Synced: survives power failure.
//! store.put(b"ada", b"1815")?;
//! store.default_keyspace().put_with(b"grace", b"1906", Durability::Synced)?;
//! assert_eq!(store.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
//!
//! // Several changes at once, across keyspaces.
//! let languages = store.create_keyspace("languages", Default::default())?;
//! let mut batch = WriteBatch::new();
//! batch.put_in(&languages, b"cobol", b"grace")?;
//! batch.put_in(store.default_keyspace(), b"grace", b"1906-1992")?;
//! store.write(batch)?;
//!
//! // A moment to read at, and a walk over keys.
//! let snapshot = store.snapshot()?;
//! store.delete(b"ada")?;
//! let mut iterator = store.cursor(ReadOptions::default().prefix(b"a").at(&snapshot))?;
//! iterator.seek_to_first()?;
//! assert_eq!(iterator.key(), Some(&b"ada"[..]));
//! # drop((iterator, snapshot));
//! store.close()
//! # }
//! ```
//!
//! # Where to look
//! * [`Store`]: open, read, write, keyspaces, properties. [`StoreBuilder`]: other ways to open.
//! * [`Options`] and [`KeyspaceOptions`]: what can be chosen, with units and defaults.
//! * [`Transaction`]: reads and writes that take effect together and in nobody's way; `docs/guide/transactions.md` says which
//!   kind to choose.
//! * [`Keyspace`]: the operations on one ordered map, blocking and asynchronous.
//! * [`Error`]: what can go wrong.
//! * [`device`] and [`storage`]: the seams for other clocks, threads and volumes.
#![forbid(unsafe_code)]

pub use situ_engine::*;

/// The examples of the guide are compiled and run.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/transactions.md")]
    struct Transactions;
}

/// Time, threads, blocks: what a store is given from outside.
pub use situ_device as device;
/// Volumes: where a store's files lie.
pub use situ_storage as storage;
