//! The keyspaces of a Situ store that holds items.

use situ::KeyspaceOptions;

/// Where the server keeps items. Nothing but items may be written there: [`ItemWriter`](crate::ItemWriter) does.
pub const ITEMS_KEYSPACE: &str = "items";

/// Where the server keeps its own records.
pub const META_KEYSPACE: &str = "memcached";

/// Metadata is a few records that change rarely.
const META_MEMTABLE_BYTES: u64 = 1 << 20;

/// Options of [`META_KEYSPACE`].
pub(crate) fn meta_options() -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    options.memtable_bytes = META_MEMTABLE_BYTES;
    // `flush_all` frees space on a full disk.
    options.uses_reserve = true;
    options
}
