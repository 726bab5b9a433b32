//! Situ as a store under test: the harness's own adapter, with the settings that all stores share.
//!
//! Set: what [`StoreSettings`] names; its background threads are for compactions, and one more flushes. Everything else is
//! Situ's default.

use situ_bench::{BlockCompression, SituFactory, SituSettings};

use crate::settings::{Compression, StoreSettings};

pub(crate) fn factory(settings: &StoreSettings) -> SituFactory {
    let settings = SituSettings {
        memtable_bytes: settings.memtable_bytes,
        memtables_max: settings.memtables_max as usize,
        cache_bytes: settings.cache_bytes,
        block_bytes: settings.block_bytes,
        bloom_bits_per_key: settings.bloom_bits_per_key,
        compression: match settings.compression {
            Compression::None => BlockCompression::None,
            Compression::Lz4 => BlockCompression::Lz4,
        },
        background_threads: settings.background_threads,
        fast_disk: settings.fast_disk.clone(),
    };
    SituFactory::new(settings.options()).with_fast_disk(settings.fast_disk)
}
