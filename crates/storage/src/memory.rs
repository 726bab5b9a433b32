//! Fallible allocation, for lengths that come from a disk, a peer or a caller. If memory runs out, the caller gets an
//! error.

use crate::{Error, Result};
use std::fmt;

/// Allocates zeroed bytes for `what`: a file, or a part of one.
///
/// # Errors
/// [`OutOfMemory`](Error::OutOfMemory).
pub fn zeroed(bytes: usize, what: impl fmt::Display) -> Result<Vec<u8>> {
    situ_device::memory::zeroed(bytes).ok_or_else(|| Error::out_of_memory(bytes, what))
}

/// Copies bytes of `what`.
///
/// # Errors
/// [`OutOfMemory`](Error::OutOfMemory).
pub fn copied(bytes: &[u8], what: impl fmt::Display) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Error::out_of_memory(bytes.len(), what))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Resizes a buffer for `what` to `bytes`, with zeros at its end if it grows.
///
/// # Errors
/// [`OutOfMemory`](Error::OutOfMemory), with the buffer unchanged.
pub fn resize(buffer: &mut Vec<u8>, bytes: usize, what: impl fmt::Display) -> Result<()> {
    match situ_device::memory::resize(buffer, bytes) {
        true => Ok(()),
        false => Err(Error::out_of_memory(bytes, what)),
    }
}

/// Finds out if the system has `bytes` more bytes for `what`. They are not kept: this is for many small allocations
/// that are going to follow, of a number that data decides.
///
/// # Errors
/// [`OutOfMemory`](Error::OutOfMemory).
pub fn require(bytes: usize, what: impl fmt::Display) -> Result<()> {
    match Vec::<u8>::new().try_reserve_exact(bytes) {
        Ok(()) => Ok(()),
        Err(_) => Err(Error::out_of_memory(bytes, what)),
    }
}
