//! Keyspaces: ordered maps.

use crate::arguments::{bytes, durability, give, handle};
use crate::cursor::{Walk, situ_cursor};
use crate::error::{Failure, SITU_MISS, SITU_OK, boxed, free, guard, situ_error, situ_status, wrong};
use crate::read::{read_options, situ_read};
use crate::value::{empty, situ_value};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Bound;
use std::{ptr, slice};
use store::{Key, Keyspace, ReadOptions, Value};

/// An ordered map of a store. Threads share it.
pub struct situ_keyspace(pub(crate) Keyspace);

/// A key of situ_keyspace_get_many.
#[repr(C)]
pub struct situ_key {
    pub data: *const c_void,
    pub bytes: usize,
}

/// Frees the handle of a keyspace, or does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_free(keyspace: *mut situ_keyspace) {
    // SAFETY: as the header says.
    unsafe { free(keyspace) };
}

/// Sets the value of a key. A key has at most 64 KiB, a value at most 1 GiB less 65 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_put(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    durable: c_int,
    error: *mut *mut situ_error,
) -> situ_status {
    let put = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (key, value) = unsafe { (bytes(key, key_bytes)?, bytes(value, value_bytes)?) };
        match durability(durable)? {
            Some(durability) => keyspace.put_with(key, value, durability)?,
            None => keyspace.put(key, value)?,
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, put) }
}

/// Deletes a key, which need not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_delete(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    durable: c_int,
    error: *mut *mut situ_error,
) -> situ_status {
    let delete = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let key = unsafe { bytes(key, key_bytes)? };
        match durability(durable)? {
            Some(durability) => keyspace.delete_with(key, durability)?,
            None => keyspace.delete(key)?,
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, delete) }
}

/// Deletes all keys from begin on and before end, at the cost of one write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_delete_range(
    keyspace: *const situ_keyspace,
    begin: *const c_void,
    begin_bytes: usize,
    end: *const c_void,
    end_bytes: usize,
    durable: c_int,
    error: *mut *mut situ_error,
) -> situ_status {
    let delete = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (begin, end) = unsafe { (bytes(begin, begin_bytes)?, bytes(end, end_bytes)?) };
        match durability(durable)? {
            Some(durability) => keyspace.delete_range_with(begin, end, durability)?,
            None => keyspace.delete_range(begin, end)?,
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, delete) }
}

/// Returns the value of a key without copying it, or SITU_MISS. The caller frees the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_get(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    read: *const situ_read,
    value: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { empty(value, "value") };
    let get = |keyspace: &Keyspace| {
        emptied?;
        // SAFETY: as the header says.
        let Some(found) = (unsafe { found(keyspace, key, key_bytes, read)? }) else { return Ok(SITU_MISS) };
        // SAFETY: as the header says.
        unsafe { give(value, found.into(), "value")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, get) }
}

/// Copies the value of a key into a buffer, or returns SITU_MISS. value_bytes becomes the length of the value. If that
/// is more than the buffer holds, the buffer has the first bytes of the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_get_into(
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    read: *const situ_read,
    buffer: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let get = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let Some(found) = (unsafe { found(keyspace, key, key_bytes, read)? }) else { return Ok(SITU_MISS) };
        // SAFETY: as the header says.
        unsafe { give(value_bytes, found.len(), "length of the value")? };
        let copied = found.len().min(capacity);
        if copied > 0 {
            if buffer.is_null() {
                return Err(wrong("the buffer is NULL"));
            }
            // SAFETY: the caller gives a buffer of that capacity, which no other thread uses.
            unsafe { ptr::copy_nonoverlapping(found.as_ptr(), buffer.cast(), copied) };
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, get) }
}

unsafe fn found(
    keyspace: &Keyspace,
    key: *const c_void,
    key_bytes: usize,
    read: *const situ_read,
) -> Result<Option<Value>, Failure> {
    // SAFETY: as the header says.
    let (key, options) = unsafe { (bytes(key, key_bytes)?, read_options(read)?) };
    Ok(match options {
        Some(options) => keyspace.get_with(key, &options)?,
        None => keyspace.get(key)?,
    })
}

/// Returns the values of several keys, as of one moment. values has room for count values; the data of a key that has
/// none is NULL. The caller frees each value. After an error, there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_get_many(
    keyspace: *const situ_keyspace,
    keys: *const situ_key,
    count: usize,
    read: *const situ_read,
    values: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    if !values.is_null() {
        // SAFETY: the caller gives that many places.
        (0..count).for_each(|place| unsafe { values.add(place).write(situ_value::none()) });
    }
    let get = |keyspace: &Keyspace| {
        if count == 0 {
            return Ok(SITU_OK);
        }
        if keys.is_null() || values.is_null() {
            return Err(wrong("the keys or the places for the values are NULL"));
        }
        // SAFETY: the caller gives that many keys.
        let keys = unsafe { slice::from_raw_parts(keys, count) };
        // SAFETY: as the header says.
        let keys: Vec<&[u8]> =
            keys.iter().map(|key| unsafe { bytes(key.data, key.bytes) }).collect::<Result<_, _>>()?;
        // SAFETY: as the header says.
        let options = unsafe { read_options(read)? }.unwrap_or_default();
        for (place, found) in keyspace.multi_get_with(&keys, &options)?.into_iter().enumerate() {
            if let Some(found) = found {
                // SAFETY: as before.
                unsafe { give(values.add(place), found.into(), "value")? };
            }
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, get) }
}

/// Removes the first entry and returns it, or SITU_MISS if there is none. No other caller gets the same entry. Of the
/// options of reads, the bounds count: a prefix, lower and upper. The caller frees key and value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_pop_first(
    keyspace: *const situ_keyspace,
    bounds: *const situ_read,
    durable: c_int,
    key: *mut situ_value,
    value: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { pop(keyspace, bounds, durable, key, value, error, true) }
}

/// Removes the last entry and returns it, as situ_keyspace_pop_first does with the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_pop_last(
    keyspace: *const situ_keyspace,
    bounds: *const situ_read,
    durable: c_int,
    key: *mut situ_value,
    value: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { pop(keyspace, bounds, durable, key, value, error, false) }
}

unsafe fn pop(
    keyspace: *const situ_keyspace,
    bounds: *const situ_read,
    durable: c_int,
    key: *mut situ_value,
    value: *mut situ_value,
    error: *mut *mut situ_error,
    is_first: bool,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { (empty(key, "key"), empty(value, "value")) };
    let pop = |keyspace: &Keyspace| {
        emptied.0?;
        emptied.1?;
        // SAFETY: as the header says.
        let ReadOptions { lower_bound, upper_bound, .. } = unsafe { read_options(bounds)? }.unwrap_or_default();
        let range = (
            lower_bound.map_or(Bound::Unbounded, Bound::Included),
            upper_bound.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let durability = durability(durable)?;
        let popped: Option<(Key, Value)> = match is_first {
            true => keyspace.pop_first_with(range, durability)?,
            false => keyspace.pop_last_with(range, durability)?,
        };
        let Some((popped_key, popped_value)) = popped else { return Ok(SITU_MISS) };
        // SAFETY: as the header says.
        unsafe { (give(key, popped_key.into(), "key")?, give(value, popped_value.into(), "value")?) };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, pop) }
}

/// Opens a cursor. It sees the keyspace as it is now, or as of the snapshot of the options. The caller frees it. A
/// cursor stands on no entry until it is moved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_cursor(
    keyspace: *const situ_keyspace,
    read: *const situ_read,
    cursor: *mut *mut situ_cursor,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { give(cursor, ptr::null_mut(), "cursor") };
    let open = |keyspace: &Keyspace| {
        emptied?;
        // SAFETY: as the header says.
        let options = unsafe { read_options(read)? }.unwrap_or_default();
        let opened = situ_cursor(Walk::Plain(Box::new(keyspace.cursor_with(&options)?)));
        // SAFETY: as the header says.
        unsafe { give(cursor, boxed(opened), "cursor")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, open) }
}

/// Writes the memtables of a keyspace to tables, and waits for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_flush(
    keyspace: *const situ_keyspace,
    error: *mut *mut situ_error,
) -> situ_status {
    let flush = |keyspace: &Keyspace| {
        keyspace.flush()?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, flush) }
}

/// Compacts the keys from begin on and before end, and waits for that. NULL stands for no bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_compact(
    keyspace: *const situ_keyspace,
    begin: *const c_void,
    begin_bytes: usize,
    end: *const c_void,
    end_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let compact = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (first, behind) = unsafe { (bytes(begin, begin_bytes)?, bytes(end, end_bytes)?) };
        keyspace.compact((!begin.is_null()).then_some(first), (!end.is_null()).then_some(behind))?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, compact) }
}

/// Returns about how many bytes of tables the keys from begin on and before end take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_approximate_bytes(
    keyspace: *const situ_keyspace,
    begin: *const c_void,
    begin_bytes: usize,
    end: *const c_void,
    end_bytes: usize,
    size: *mut u64,
    error: *mut *mut situ_error,
) -> situ_status {
    let measure = |keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (begin, end) = unsafe { (bytes(begin, begin_bytes)?, bytes(end, end_bytes)?) };
        // SAFETY: as the header says.
        unsafe { give(size, keyspace.approximate_bytes(begin, end)?, "size")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, measure) }
}

/// Returns a figure of a keyspace by its name: approximate_keys, compactions_running, dead_steps, memtable_bytes,
/// memtable_entries, memtables, table_bytes, tables, value_bytes, value_dead_bytes, writers_stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_keyspace_property(
    keyspace: *const situ_keyspace,
    name: *const c_char,
    value: *mut u64,
    error: *mut *mut situ_error,
) -> situ_status {
    let find = |keyspace: &Keyspace| {
        let all = keyspace.properties();
        // SAFETY: as the header says.
        let found = match unsafe { crate::arguments::text(name, "name")? } {
            "approximate_keys" => all.approximate_keys,
            "compactions_running" => all.compactions_running as u64,
            "dead_steps" => all.dead_steps,
            "memtable_bytes" => all.memtable_bytes,
            "memtable_entries" => all.memtable_entries,
            "memtables" => all.memtables as u64,
            "table_bytes" => all.table_bytes,
            "tables" => all.tables as u64,
            "value_bytes" => all.value_bytes,
            "value_dead_bytes" => all.value_dead_bytes,
            "writers_stopped" => u64::from(all.writers_stopped),
            name => return Err(wrong(format!("a keyspace has no property {name:?}"))),
        };
        // SAFETY: as the header says.
        unsafe { give(value, found, "property")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(keyspace, error, find) }
}

/// Runs the body of a function of a keyspace.
pub(crate) unsafe fn on(
    keyspace: *const situ_keyspace,
    error: *mut *mut situ_error,
    body: impl FnOnce(&Keyspace) -> Result<situ_status, Failure>,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { guard(error, || body(&handle(keyspace, "keyspace")?.0)) }
}
