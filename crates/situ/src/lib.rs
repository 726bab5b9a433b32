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
//! store.put("ada", "1815")?;
//! store.put_with("grace", "1906", Durability::Synced)?;
//! assert_eq!(store.get("ada")?.unwrap(), "1815");
//!
//! // Several changes at once, across keyspaces.
//! let languages = store.keyspace("languages")?;
//! let mut batch = WriteBatch::new();
//! batch.put("grace", "1906-1992")?;
//! batch.put_in(&languages, "cobol", "grace")?;
//! store.write(batch)?;
//!
//! // A moment to read at, and the keys of a range, in order.
//! let snapshot = store.snapshot()?;
//! store.delete("ada")?;
//! for pair in store.range_with("a".."h", ReadOptions::default().at(&snapshot))? {
//!     let (name, lived) = pair?;
//!     println!("{name:?} {lived:?}");
//! }
//!
//! // Reads and writes that belong together, run again if others were in the way.
//! let visits = store.transact(|transaction| {
//!     let seen = transaction.get("visits")?;
//!     let visits = 1 + seen.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()));
//!     transaction.put("visits", visits.to_be_bytes())?;
//!     Ok(visits)
//! })?;
//! assert_eq!(visits, 1);
//! store.close()
//! # }
//! ```
//!
//! # Where to look
//! * [`Store`]: open, read, write, keyspaces, properties. [`StoreBuilder`]: other ways to open.
//! * [`Options`] and [`KeyspaceOptions`]: what can be chosen, with units and defaults.
//! * [`Iter`]: an iterator over a range of keys; [`Cursor`]: for those who move back and forth, or want no copies.
//! * [`Transaction`]: reads and writes that take effect together, while other threads read and write;
//!   `docs/guide/transactions.md` says which kind to choose.
//! * [`Keyspace`]: the operations on one ordered map, blocking and asynchronous.
//! * [`TieredBuilder`] and [`TieredStore`]: a fast disk for a store; [`tiers`] has the rest.
//! * [`Error`]: what can go wrong.
//! * [`base`], [`device`] and [`storage`]: the seams for other clocks, threads, devices and volumes.
#![forbid(unsafe_code)]

pub use situ_engine::*;
// These know the fast disk of a store. They stand in front of the engine's, which know one volume.
pub use situ_tiers::{
    PlacementDecision, PlacementProperties, PlacementRule, TieredBuilder, TieredRepair, TieredStore, destroy,
    destroy_home, files_of, files_of_home, repair_directory, repair_home, repair_volumes, verify_directory,
    verify_home, verify_volumes,
};

/// The examples of the guide are compiled and run.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/transactions.md")]
    struct Transactions;

    #[doc = include_str!("../../../docs/guide/compressing-drives.md")]
    struct CompressingDrives;
}

/// Time, threads and events: what a store is given from outside.
pub use situ_base as base;
/// A cache in memory: items go when there is no room for them.
pub use situ_cache as cache;
/// Block devices and drives.
pub use situ_device as device;
/// A store for drives that compress: keys hash straight to blocks, and no index is in memory.
///
/// ```
/// use situ::hash::{Durability, HashBatch, HashOptions, HashStore};
///
/// # fn main() -> situ::hash::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path();
/// let store = HashStore::open(path, HashOptions::default())?;
/// store.put("ada", "1815")?;
///
/// // All of it or nothing, durable on return.
/// let mut batch = HashBatch::new();
/// batch.put("grace", "1906")?;
/// batch.delete("ada")?;
/// store.write(batch, Durability::Synced)?;
/// assert_eq!(store.multi_get(&["ada", "grace"])?, [None, Some(b"1906".to_vec())]);
///
/// // All entries as of one moment.
/// let snapshot = store.snapshot()?;
/// store.put("ada", "1815")?;
/// assert_eq!(snapshot.scan().count(), 1);
/// drop(snapshot);
/// store.close()
/// # }
/// ```
pub use situ_hash as hash;
/// Compactions divided between the processors and other units: near-data nodes, other processes, accelerators.
pub use situ_offload as offload;
/// Volumes: where a store's files lie.
pub use situ_storage as storage;
/// A fast disk for the log and the upper levels of a store.
pub use situ_tiers as tiers;
