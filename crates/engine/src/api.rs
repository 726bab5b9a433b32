//! What a program uses: stores, keyspaces, transactions, iterators.

pub(crate) mod async_read;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod disk_use;
pub(crate) mod iter;
pub(crate) mod keyspace;
mod pop;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod transaction;
pub(crate) mod verify_open;
