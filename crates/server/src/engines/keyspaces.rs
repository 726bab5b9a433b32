//! The keyspaces of a Situ store that holds items.

use situ::KeyspaceOptions;

/// The keyspace of items. Nothing but items may be written to it: [`ItemWriter`](crate::ItemWriter) does.
pub const ITEMS_KEYSPACE: &str = "items";

/// The keyspace of the server's own records.
pub const META_KEYSPACE: &str = "memcached";

/// Metadata is a few records that change rarely.
const META_MEMTABLE_BYTES: u64 = 1 << 20;

/// Returns the options of [`META_KEYSPACE`].
pub(crate) fn meta_options() -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    options.memtable_bytes = META_MEMTABLE_BYTES;
    // `flush_all` frees space on a full disk.
    options.uses_reserve = true;
    options
}
