//! Situ as a store under test: the harness's own adapter, with the settings that all stores share.
//!
//! Set: what [`StoreSettings`] names, and what `change` takes away to measure what it is worth; its background threads
//! are for compactions, and one more flushes. Everything else is Situ's default.

use situ_bench::{BlockCompression, SituFactory, SituSettings};

use crate::settings::{Compression, StoreSettings};

pub(crate) fn factory(settings: &StoreSettings, change: impl FnOnce(&mut SituSettings)) -> SituFactory {
    let mut situ = SituSettings {
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
        value_log_min_bytes: settings.value_log_min_bytes,
        value_inflation_percent_max: settings.value_inflation_percent_max,
        ..SituSettings::default()
    };
    change(&mut situ);
    SituFactory::new(situ.options().expect("these settings name no rules")).with_fast_disk(situ.fast_disk)
}
