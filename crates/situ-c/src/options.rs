//! Options as data.

use crate::arguments::{handle_mut, text};
use crate::error::{SITU_OK, boxed, free, guard, situ_error, situ_status};
use std::ffi::c_char;
use store::Options;

/// The options of a store, or of a keyspace.
pub struct situ_options(pub(crate) Options);

/// Returns the default options. The caller frees them.
#[unsafe(no_mangle)]
pub extern "C" fn situ_options_new() -> *mut situ_options {
    boxed(situ_options(Options::default()))
}

/// Sets an option: situ_options_set(options, "cache_bytes", "1073741824", &error).
///
/// Names are those of the fields of the Rust types Options and KeyspaceOptions, which document them
/// (https://docs.rs/situ). Of a store: create_if_missing, error_if_exists, durability (buffered, synced), cache_bytes,
/// open_tables_max, log_bytes_max, changes_kept_bytes, memtables_bytes_max, compaction_threads,
/// compaction_bytes_per_s_max, requests_outstanding_max, transaction_locks_max, value_segment_bytes, value_trim,
/// value_victims, value_inflation_percent_max, slow_operation (milliseconds, or none). Of keyspaces: memtable_bytes,
/// memtables_max, compression (none, lz4, zstd, "zstd level 5"; one for each level, separated by commas), block_bytes,
/// filter_bits_per_key, level0_tables, level0_tables_max, level_base_bytes, level_multiplier, table_bytes,
/// value_log_min_bytes (or none), uses_reserve (true, false).
///
/// In the options of a store, those of keyspaces count for the keyspace "default", and for each that exists when the
/// store is opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_options_set(
    options: *mut situ_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut situ_error,
) -> situ_status {
    let set = || {
        // SAFETY: as the header says.
        let (options, name, value) =
            unsafe { (handle_mut(options, "options")?, text(name, "name")?, text(value, "value")?) };
        options.0.set(name, value)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, set) }
}

/// Frees options, or does nothing for NULL. A store keeps its own copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_options_free(options: *mut situ_options) {
    // SAFETY: as the header says.
    unsafe { free(options) };
}

/// Returns a copy of the options, or the defaults for NULL.
pub(crate) unsafe fn options_of(options: *const situ_options) -> Options {
    // SAFETY: the caller gives NULL or options of this library.
    unsafe { options.as_ref() }.map_or_else(Options::default, |options| options.0.clone())
}
