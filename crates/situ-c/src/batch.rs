//! Batches: writes that take effect together.

use crate::arguments::{bytes, handle, handle_mut};
use crate::error::{Failure, SITU_OK, boxed, free, guard, situ_error, situ_status};
use crate::keyspace::situ_keyspace;
use std::ffi::c_void;
use store::{Keyspace, WriteBatch};

/// Writes that take effect together, in any keyspaces of one store. One thread at a time uses a batch.
pub struct situ_batch(pub(crate) WriteBatch);

/// Returns an empty batch. The caller frees it.
#[unsafe(no_mangle)]
pub extern "C" fn situ_batch_new() -> *mut situ_batch {
    boxed(situ_batch(WriteBatch::new()))
}

/// Frees a batch, or does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_free(batch: *mut situ_batch) {
    // SAFETY: as the header says.
    unsafe { free(batch) };
}

/// Adds a put. The batch copies key and value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_put(
    batch: *mut situ_batch,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let put = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (key, value) = unsafe { (bytes(key, key_bytes)?, bytes(value, value_bytes)?) };
        Ok(batch.put_in(keyspace, key, value)?)
    };
    // SAFETY: as the header says.
    unsafe { on(batch, keyspace, error, put) }
}

/// Adds a deletion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_delete(
    batch: *mut situ_batch,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let delete = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        Ok(batch.delete_in(keyspace, unsafe { bytes(key, key_bytes)? })?)
    };
    // SAFETY: as the header says.
    unsafe { on(batch, keyspace, error, delete) }
}

/// Adds a deletion of all keys from begin on and before end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_delete_range(
    batch: *mut situ_batch,
    keyspace: *const situ_keyspace,
    begin: *const c_void,
    begin_bytes: usize,
    end: *const c_void,
    end_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let delete = |batch: &mut WriteBatch, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (begin, end) = unsafe { (bytes(begin, begin_bytes)?, bytes(end, end_bytes)?) };
        Ok(batch.delete_range_in(keyspace, begin, end)?)
    };
    // SAFETY: as the header says.
    unsafe { on(batch, keyspace, error, delete) }
}

/// Returns the number of writes in a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_length(batch: *const situ_batch) -> usize {
    // SAFETY: as the header says.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.0.len())
}

/// Returns the memory that the writes of a batch take. A batch has at most 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_bytes(batch: *const situ_batch) -> usize {
    // SAFETY: as the header says.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.0.bytes())
}

/// Removes all writes from a batch, or does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_batch_clear(batch: *mut situ_batch) {
    // SAFETY: as the header says.
    if let Some(batch) = unsafe { batch.as_mut() } {
        batch.0.clear();
    }
}

unsafe fn on(
    batch: *mut situ_batch,
    keyspace: *const situ_keyspace,
    error: *mut *mut situ_error,
    body: impl FnOnce(&mut WriteBatch, &Keyspace) -> Result<(), Failure>,
) -> situ_status {
    let body = || {
        // SAFETY: as the header says.
        let (batch, keyspace) = unsafe { (handle_mut(batch, "batch")?, handle(keyspace, "keyspace")?) };
        body(&mut batch.0, &keyspace.0)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, body) }
}
