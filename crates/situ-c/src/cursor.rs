//! Cursors: walks over keys, both ways.

use crate::arguments::{bytes, give, handle, handle_mut};
use crate::error::{Failure, SITU_MISS, SITU_OK, free, guard, situ_error, situ_status, wrong};
use std::ffi::{c_int, c_void};
use std::ptr;
use store::{Cursor, TransactionCursor};

/// A place among the keys of a keyspace. One thread at a time uses a cursor. It sees one moment, so writes do not
/// disturb it. It keeps deleted and overwritten data on disk until it is freed.
pub struct situ_cursor(pub(crate) Walk);

/// A cursor of the store, or of a transaction.
pub(crate) enum Walk {
    Plain(Box<Cursor>),
    Own(Box<TransactionCursor>),
}

/// Calls a method that both cursors have.
macro_rules! each {
    ($walk:expr, $cursor:ident => $call:expr) => {
        match $walk {
            Walk::Plain($cursor) => $call,
            Walk::Own($cursor) => $call,
        }
    };
}

/// Frees a cursor, or does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_free(cursor: *mut situ_cursor) {
    // SAFETY: as the header says.
    unsafe { free(cursor) };
}

/// Moves to the first entry; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_seek_to_first(
    cursor: *mut situ_cursor,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { step(cursor, error, |walk| Ok(each!(walk, cursor => cursor.seek_to_first())?)) }
}

/// Moves to the last entry; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_seek_to_last(
    cursor: *mut situ_cursor,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { step(cursor, error, |walk| Ok(each!(walk, cursor => cursor.seek_to_last())?)) }
}

/// Moves to the first entry from a key on; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_seek(
    cursor: *mut situ_cursor,
    key: *const c_void,
    key_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let seek = |walk: &mut Walk| {
        // SAFETY: as the header says.
        let key = unsafe { bytes(key, key_bytes)? };
        Ok(each!(walk, cursor => cursor.seek(key))?)
    };
    // SAFETY: as the header says.
    unsafe { step(cursor, error, seek) }
}

/// Moves to the last entry up to a key, the key included; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_seek_for_prev(
    cursor: *mut situ_cursor,
    key: *const c_void,
    key_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let seek = |walk: &mut Walk| {
        // SAFETY: as the header says.
        let key = unsafe { bytes(key, key_bytes)? };
        Ok(each!(walk, cursor => cursor.seek_for_prev(key))?)
    };
    // SAFETY: as the header says.
    unsafe { step(cursor, error, seek) }
}

/// Moves to the next entry; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_next(cursor: *mut situ_cursor, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { step(cursor, error, |walk| Ok(each!(walk, cursor => cursor.next())?)) }
}

/// Moves to the entry before; SITU_MISS if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_prev(cursor: *mut situ_cursor, error: *mut *mut situ_error) -> situ_status {
    // SAFETY: as the header says.
    unsafe { step(cursor, error, |walk| Ok(each!(walk, cursor => cursor.prev())?)) }
}

/// Returns key and value of the entry that the cursor stands on, or SITU_MISS. The bytes belong to the cursor, and live
/// until it is moved or freed. NULL stands for a result that is not wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_entry(
    cursor: *const situ_cursor,
    key: *mut *const c_void,
    key_bytes: *mut usize,
    value: *mut *const c_void,
    value_bytes: *mut usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let entry = || {
        // SAFETY: as the header says.
        let walk = unsafe { &handle(cursor, "cursor")?.0 };
        let Some((found_key, found_value)) = entry_of(walk) else { return Ok(SITU_MISS) };
        for (data, bytes, found) in [(key, key_bytes, found_key), (value, value_bytes, found_value)] {
            if !data.is_null() {
                // SAFETY: the caller gives places, or NULL.
                unsafe { (give(data, found.as_ptr().cast(), "entry")?, give(bytes, found.len(), "length")?) };
            }
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, entry) }
}

/// Copies entries into a buffer, from the one that the cursor stands on onwards: to greater keys, or to smaller ones if
/// is_backward is 1. The cursor then stands on the first entry that was not copied. The call saves a caller for whom
/// calls are expensive two of them for each entry.
///
/// In the buffer, an entry is the length of its key and that of its value, as uint32_t of the machine, then key and
/// value. No bytes lie between two entries. used becomes the number of bytes, entries that of entries. If the first
/// entry does not fit, entries is 0, and used is the capacity that it takes. SITU_MISS says that the cursor stands on
/// no entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_cursor_read(
    cursor: *mut situ_cursor,
    is_backward: c_int,
    buffer: *mut c_void,
    capacity: usize,
    used: *mut usize,
    entries: *mut usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let read = || {
        // SAFETY: as the header says.
        unsafe { (give(used, 0, "number of bytes")?, give(entries, 0, "number of entries")?) };
        if buffer.is_null() && capacity > 0 {
            return Err(wrong("the buffer is NULL"));
        }
        // SAFETY: as the header says.
        let walk = unsafe { &mut handle_mut(cursor, "cursor")?.0 };
        let (mut filled, mut count) = (0, 0);
        while let Some((key, value)) = entry_of(walk) {
            let takes = 2 * size_of::<u32>() + key.len() + value.len();
            if takes > capacity - filled {
                if count == 0 {
                    filled = takes;
                }
                break;
            }
            // The lengths fit: a value has less than 1 GiB.
            let lengths = [(key.len() as u32).to_ne_bytes(), (value.len() as u32).to_ne_bytes()];
            for part in [lengths.as_flattened(), key, value] {
                // SAFETY: the caller gives a buffer of that capacity; the parts fit, as was seen above.
                unsafe { ptr::copy_nonoverlapping(part.as_ptr(), buffer.cast::<u8>().add(filled), part.len()) };
                filled += part.len();
            }
            count += 1;
            match is_backward {
                0 => each!(walk, cursor => cursor.next())?,
                _ => each!(walk, cursor => cursor.prev())?,
            }
        }
        // SAFETY: as the header says.
        unsafe { (give(used, filled, "number of bytes")?, give(entries, count, "number of entries")?) };
        Ok(if filled == 0 { SITU_MISS } else { SITU_OK })
    };
    // SAFETY: as the header says.
    unsafe { guard(error, read) }
}

fn entry_of(walk: &Walk) -> Option<(&[u8], &[u8])> {
    each!(walk, cursor => cursor.key().zip(cursor.value()))
}

unsafe fn step(
    cursor: *mut situ_cursor,
    error: *mut *mut situ_error,
    body: impl FnOnce(&mut Walk) -> Result<(), Failure>,
) -> situ_status {
    let step = || {
        // SAFETY: as the header says.
        let walk = unsafe { &mut handle_mut(cursor, "cursor")?.0 };
        body(walk)?;
        Ok(if each!(walk, cursor => cursor.valid()) { SITU_OK } else { SITU_MISS })
    };
    // SAFETY: as the header says.
    unsafe { guard(error, step) }
}
