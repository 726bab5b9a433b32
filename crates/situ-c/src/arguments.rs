//! The arguments of C as Rust has them.

use crate::error::{Failure, wrong};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use store::Durability;

/// Returns what a handle refers to.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller has the handle from this library, and has not freed it.
    unsafe { handle.as_ref() }.ok_or_else(|| wrong(format!("the {name} is NULL")))
}

/// Returns what a handle refers to that one thread uses at a time.
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: as for `handle`; no other thread uses it during the call.
    unsafe { handle.as_mut() }.ok_or_else(|| wrong(format!("the {name} is NULL")))
}

pub(crate) unsafe fn bytes<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    match (data.is_null(), bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(wrong("a pointer to a key or a value is NULL")),
        (false, bytes) if isize::try_from(bytes).is_err() => Err(wrong("a length is larger than the memory")),
        // SAFETY: the caller promises that many readable bytes, which do not change during the call.
        (false, bytes) => Ok(unsafe { slice::from_raw_parts(data.cast(), bytes) }),
    }
}

pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(wrong(format!("the {name} is NULL")));
    }
    // SAFETY: the caller promises a zero at its end.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| wrong(format!("the {name} is not in UTF-8")))
}

/// Puts a result where the caller wants it.
pub(crate) unsafe fn give<T>(place: *mut T, result: T, name: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(wrong(format!("the place for the {name} is NULL")));
    }
    // SAFETY: the caller gives a place. What lies there is not read.
    unsafe { place.write(result) };
    Ok(())
}

/// Returns the durability of a write; `None` is that of the store's options.
pub(crate) fn durability(number: c_int) -> Result<Option<Durability>, Failure> {
    match number {
        SITU_AS_STORE => Ok(None),
        SITU_BUFFERED => Ok(Some(Durability::Buffered)),
        SITU_SYNCED => Ok(Some(Durability::Synced)),
        _ => Err(wrong("the durability is none of SITU_AS_STORE, SITU_BUFFERED, SITU_SYNCED")),
    }
}

/// The durability of a write: that of the option `durability`.
pub const SITU_AS_STORE: c_int = 0;
/// The durability of a write: it survives the process. Power failure may take the latest writes.
pub const SITU_BUFFERED: c_int = 1;
/// The durability of a write: it survives power failure.
pub const SITU_SYNCED: c_int = 2;
