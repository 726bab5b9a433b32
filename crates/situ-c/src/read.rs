//! Options of reads, and snapshots.

use crate::arguments::bytes;
use crate::error::{Failure, free, wrong};
use std::ffi::{c_int, c_void};
use store::{ReadOptions, Snapshot};

/// The state of a store at one moment. Threads share it.
pub struct situ_snapshot(pub(crate) Snapshot);

/// Options of a read. Set what you need and leave the rest 0. NULL stands for options that are all 0.
#[repr(C)]
pub struct situ_read {
    /// The moment that the read sees; NULL for now. A cursor sees one moment in any case.
    pub snapshot: *const situ_snapshot,
    /// The first key that a cursor may give; NULL for no such bound.
    pub lower: *const c_void,
    pub lower_bytes: usize,
    /// The first key behind those that a cursor may give; NULL for no such bound.
    pub upper: *const c_void,
    pub upper_bytes: usize,
    /// The beginning of all keys that a cursor may give; NULL for no such bound. It stands alone, without the two
    /// above.
    pub prefix: *const c_void,
    pub prefix_bytes: usize,
    /// 1 if the read keeps no blocks in the cache: for a walk over much data.
    pub bypass_cache: c_int,
    /// 1 if the read answers from memory only, and returns SITU_ERROR_NOT_IN_MEMORY where it needs a disk.
    pub memory_only: c_int,
}

/// Returns the sequence number of the last write that a snapshot sees; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_snapshot_sequence(snapshot: *const situ_snapshot) -> u64 {
    // SAFETY: as the header says.
    unsafe { snapshot.as_ref() }.map_or(0, |snapshot| snapshot.0.sequence())
}

/// Frees a snapshot, or does nothing for NULL. Cursors that were opened on it go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_snapshot_free(snapshot: *mut situ_snapshot) {
    // SAFETY: as the header says.
    unsafe { free(snapshot) };
}

/// Returns the options of a read, or `None` if they are all defaults.
pub(crate) unsafe fn read_options(read: *const situ_read) -> Result<Option<ReadOptions>, Failure> {
    // SAFETY: the caller gives NULL or options.
    let Some(read) = (unsafe { read.as_ref() }) else { return Ok(None) };
    let mut options = ReadOptions::default().bypass_cache(read.bypass_cache != 0).memory_only(read.memory_only != 0);
    // SAFETY: as the header says.
    if let Some(snapshot) = unsafe { read.snapshot.as_ref() } {
        options = options.at(&snapshot.0);
    }
    // SAFETY: the pointers are valid for their lengths.
    let (lower, upper, prefix) = unsafe {
        (
            bytes(read.lower, read.lower_bytes)?,
            bytes(read.upper, read.upper_bytes)?,
            bytes(read.prefix, read.prefix_bytes)?,
        )
    };
    if !read.prefix.is_null() {
        if !(read.lower.is_null() && read.upper.is_null()) {
            return Err(wrong("a prefix stands alone, without other bounds"));
        }
        options = options.prefix(prefix);
    }
    if !read.lower.is_null() {
        options = options.lower_bound(lower);
    }
    if !read.upper.is_null() {
        options = options.upper_bound(upper);
    }
    Ok(Some(options))
}
