//! Stores.

use crate::arguments::{durability, give, handle, handle_mut, text};
use crate::batch::situ_batch;
use crate::error::{Failure, SITU_OK, boxed, free, guard, situ_error, situ_status, wrong};
use crate::keyspace::situ_keyspace;
use crate::options::{options_of, situ_options};
use crate::read::situ_snapshot;
use crate::value::{empty, situ_value};
use std::ffi::{c_char, c_int};
use std::{mem, ptr};
use store::{Keyspace, Store, StoreBuilder};

/// An open store. Threads share it.
pub struct situ_store(pub(crate) Store);

/// Opens the store in a directory. NULL stands for the default options, which create a store that is missing. One
/// process at a time has a store open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_open(
    directory: *const c_char,
    options: *const situ_options,
    opened: *mut *mut situ_store,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { open(directory, options, false, opened, error) }
}

/// Opens the store in a directory for reading, as it is now. Another process may have it open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_open_read_only(
    directory: *const c_char,
    options: *const situ_options,
    opened: *mut *mut situ_store,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { open(directory, options, true, opened, error) }
}

unsafe fn open(
    directory: *const c_char,
    options: *const situ_options,
    is_read_only: bool,
    opened: *mut *mut situ_store,
    error: *mut *mut situ_error,
) -> situ_status {
    let open = || {
        // SAFETY: as the header says.
        unsafe { give(opened, ptr::null_mut(), "store")? };
        // SAFETY: as the header says.
        let (directory, options) = unsafe { (text(directory, "directory")?, options_of(options)) };
        let builder = StoreBuilder::new(options);
        let builder = if is_read_only { builder.read_only() } else { builder };
        let store = builder.open(directory)?;
        // SAFETY: as the header says.
        unsafe { give(opened, boxed(situ_store(store)), "store")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, open) }
}

/// Closes a store, and tells of an error of its last writes to the disk. Calls of other threads, and later calls on the
/// store and on what came from it, return SITU_ERROR_CLOSED. Only cursors that are open go on. The handle has to be
/// freed as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_close(store: *const situ_store, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on(store, error, |store| Ok(store.close()?)) }
}

/// Frees the handle of a store, or does nothing for NULL. Keyspaces, snapshots, cursors and transactions are handles of
/// their own: the store stays open until the last is freed, unless it was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_free(store: *mut situ_store) {
    // SAFETY: as the header says.
    unsafe { free(store) };
}

/// Removes the store in a directory, and all it holds. No process may have it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_destroy(directory: *const c_char, error: *mut *mut situ_error) -> situ_status {
    let destroy = || {
        // SAFETY: as the header says.
        Store::destroy(unsafe { text(directory, "directory")? })?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, destroy) }
}

/// Returns the keyspace of a name, "default" or another. The call creates it if it is missing. NULL stands for the
/// options of the store; other options count for a keyspace that the call creates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_keyspace(
    store: *const situ_store,
    name: *const c_char,
    options: *const situ_options,
    keyspace: *mut *mut situ_keyspace,
    error: *mut *mut situ_error,
) -> situ_status {
    let find = |store: &Store, name: &str| {
        // SAFETY: as the header says.
        match unsafe { options.as_ref() } {
            Some(options) => store.keyspace_with(name, options.0.keyspace.clone()),
            None => store.keyspace(name),
        }
    };
    // SAFETY: as the header says.
    unsafe { find_keyspace(store, name, keyspace, error, find) }
}

/// Returns the keyspace of a name, or SITU_ERROR_NO_SUCH_KEYSPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_existing_keyspace(
    store: *const situ_store,
    name: *const c_char,
    keyspace: *mut *mut situ_keyspace,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { find_keyspace(store, name, keyspace, error, |store, name| store.existing_keyspace(name)) }
}

unsafe fn find_keyspace(
    store: *const situ_store,
    name: *const c_char,
    keyspace: *mut *mut situ_keyspace,
    error: *mut *mut situ_error,
    find: impl FnOnce(&Store, &str) -> store::Result<Keyspace>,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { give(keyspace, ptr::null_mut(), "keyspace") };
    let body = |store: &Store| {
        emptied?;
        // SAFETY: as the header says.
        let found = find(store, unsafe { text(name, "name")? })?;
        // SAFETY: as the header says.
        unsafe { give(keyspace, boxed(situ_keyspace(found)), "keyspace") }
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, body) }
}

/// Drops a keyspace with all it holds, durably. Its space comes back soon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_drop_keyspace(
    store: *const situ_store,
    name: *const c_char,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on(store, error, |store| Ok(store.drop_keyspace(text(name, "name")?)?)) }
}

/// Returns the names of all keyspaces, each with a zero behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_keyspace_names(
    store: *const situ_store,
    names: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { empty(names, "names") };
    let list = |store: &Store| {
        emptied?;
        let all: Vec<u8> = store.keyspace_names().iter().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect();
        // SAFETY: as the header says.
        unsafe { give(names, all.into(), "names") }
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, list) }
}

/// Writes a batch, all of it or nothing. The batch is empty afterwards, after an error, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_write(
    store: *const situ_store,
    batch: *mut situ_batch,
    durable: c_int,
    error: *mut *mut situ_error,
) -> situ_status {
    let write = |store: &Store| {
        // SAFETY: as the header says.
        let batch = mem::take(&mut unsafe { handle_mut(batch, "batch")? }.0);
        match durability(durable)? {
            Some(durability) => store.write_with(batch, durability)?,
            None => store.write(batch)?,
        }
        Ok(())
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, write) }
}

/// Returns when all writes that were acknowledged before the call survive power failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_sync(store: *const situ_store, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on(store, error, |store| Ok(store.sync()?)) }
}

/// Writes the memtables of all keyspaces to tables, and waits for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_flush(store: *const situ_store, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on(store, error, |store| Ok(store.flush()?)) }
}

/// Waits until no flush and no compaction is due.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_wait_idle(store: *const situ_store, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on(store, error, |store| Ok(store.wait_idle()?)) }
}

/// Makes a copy of the store in a new directory while it is in use. Tables are hard links where that is possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_checkpoint(
    store: *const situ_store,
    directory: *const c_char,
    error: *mut *mut situ_error,
) -> situ_status {
    let copy = |store: &Store| {
        // SAFETY: as the header says.
        store.checkpoint(unsafe { text(directory, "directory")? })?;
        Ok(())
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, copy) }
}

/// Returns a snapshot: what the store holds now, whatever is written later. The caller frees it. Deleted and
/// overwritten data stays on disk as long as a snapshot sees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_snapshot(
    store: *const situ_store,
    snapshot: *mut *mut situ_snapshot,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { give(snapshot, ptr::null_mut(), "snapshot") };
    let take = |store: &Store| {
        emptied?;
        let taken = store.snapshot()?;
        // SAFETY: as the header says.
        unsafe { give(snapshot, boxed(situ_snapshot(taken)), "snapshot") }
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, take) }
}

/// Returns a figure of a store by its name. Sizes are in bytes, and counts begin when the store is opened.
///
/// Names: cache_bytes, cache_bytes_max, cache_hits, cache_misses, cache_pinned_bytes, keyspaces, last_sequence, locks,
/// log_bytes, log_syncs, memtable_bytes, memtable_bytes_max, requests_outstanding, snapshots, table_bytes, tables_open,
/// transactions; and the counters of the Rust type Statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_property(
    store: *const situ_store,
    name: *const c_char,
    value: *mut u64,
    error: *mut *mut situ_error,
) -> situ_status {
    let find = |store: &Store| {
        // SAFETY: as the header says.
        let name = unsafe { text(name, "name")? };
        // SAFETY: as the header says.
        unsafe { give(value, property(store, name)?, "property") }
    };
    // SAFETY: as the header says.
    unsafe { on(store, error, find) }
}

fn property(store: &Store, name: &str) -> Result<u64, Failure> {
    if let Some((_, value, _)) = store.statistics().counters().into_iter().find(|(known, ..)| *known == name) {
        return Ok(value);
    }
    let all = store.properties();
    Ok(match name {
        "cache_bytes" => all.cache_bytes,
        "cache_bytes_max" => all.cache_bytes_max,
        "cache_hits" => all.cache_hits,
        "cache_misses" => all.cache_misses,
        "cache_pinned_bytes" => all.cache_pinned_bytes,
        "keyspaces" => all.keyspaces as u64,
        "last_sequence" => all.last_sequence,
        "locks" => all.locks,
        "log_bytes" => all.log_bytes,
        "log_syncs" => all.log_syncs,
        "memtable_bytes" => all.memtable_bytes,
        "memtable_bytes_max" => all.memtable_bytes_max,
        "requests_outstanding" => all.requests_outstanding as u64,
        "snapshots" => all.snapshots as u64,
        "table_bytes" => all.table_bytes,
        "tables_open" => all.tables_open as u64,
        "transactions" => all.transactions as u64,
        _ => return Err(wrong(format!("a store has no property {name:?}"))),
    })
}

/// Runs the body of a function of a store.
pub(crate) unsafe fn on(
    store: *const situ_store,
    error: *mut *mut situ_error,
    body: impl FnOnce(&Store) -> Result<(), Failure>,
) -> situ_status {
    let body = || {
        // SAFETY: as the header says.
        body(&unsafe { handle(store, "store")? }.0)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, body) }
}

/// Returns the text of the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn situ_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
