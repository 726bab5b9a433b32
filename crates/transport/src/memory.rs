//! Memory that two processes map, or that a device reaches. Apart from calls of libibverbs, this is the only unsafe
//! code of the crate.
//!
//! **Invariants.** All offsets are checked against the length. Fields are aligned. No reference to plain bytes of the
//! memory exists: the other process may change them at any time. They are copied in and out by address. Counts and
//! flags are atomics.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A mapping of memory that another process maps, too.
pub(crate) struct SharedMemory {
    start: NonNull<u8>,
    bytes: usize,
    #[cfg(test)]
    is_allocated: bool,
}

// SAFETY: the memory is reached by address alone, and stays mapped as long as the value lives. What two threads may do
// with it at a time, two processes do anyway.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// Makes memory of a length that is sealed, and returns its descriptor for the other process.
    pub(crate) fn make(bytes: usize) -> rustix::io::Result<(SharedMemory, OwnedFd)> {
        let file = memfd_create("situ-connection", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((SharedMemory::map(&file, bytes)?, file))
    }

    /// Maps memory that the other process has made.
    ///
    /// # Errors
    /// [`Errno::INVAL`] if the file has another length, or may become shorter: an access would end the process then.
    pub(crate) fn open(file: impl AsFd, bytes: usize) -> rustix::io::Result<SharedMemory> {
        let is_sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !is_sealed || fstat(&file)?.st_size as u64 != bytes as u64 {
            return Err(Errno::INVAL);
        }
        SharedMemory::map(&file, bytes)
    }

    fn map(file: impl AsFd, bytes: usize) -> rustix::io::Result<SharedMemory> {
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing. The file's length is sealed, so
        // all of the mapping can be reached.
        let start = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(SharedMemory {
            start,
            bytes,
            #[cfg(test)]
            is_allocated: false,
        })
    }

    /// Allocates memory of this process alone, for two ends within it.
    #[cfg(test)]
    pub(crate) fn allocate(bytes: usize) -> SharedMemory {
        let layout = std::alloc::Layout::from_size_align(bytes, 128).unwrap();
        // SAFETY: the length is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        SharedMemory { start: NonNull::new(start).unwrap(), bytes, is_allocated: true }
    }

    /// Returns the address of `bytes` bytes at `offset`.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "within the memory");
        // SAFETY: the offset is within the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Returns the count at `offset`, which the other process may change.
    pub(crate) fn count(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()), "a count is aligned");
        // SAFETY: the address is within the mapping and aligned, and everyone uses it as an atomic.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Returns the flags at `offset`, which the other process may change.
    pub(crate) fn flags(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(align_of::<AtomicU32>()), "flags are aligned");
        // SAFETY: as in `count`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Copies `from` to `offset`.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: both are as long as `from`. No Rust reference points into the memory, so they do not overlap. If the
        // other process writes there at the same time, it breaks the protocol, and gets the bytes that it deserves.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Copies from `offset` to `into`.
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: as in `copy_in`. The copy is looked at, and never the memory.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Appends `bytes` bytes at `offset` to `into`, which has capacity for them.
    pub(crate) fn append_to(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) {
        let from = self.at(offset, bytes);
        let spare = into.spare_capacity_mut();
        assert!(bytes <= spare.len(), "there is capacity");
        // SAFETY: as in `copy_in`; the spare capacity is as long, and initialized by the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(from, spare.as_mut_ptr().cast(), bytes);
            into.set_len(into.len() + bytes);
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        #[cfg(test)]
        if self.is_allocated {
            let layout = std::alloc::Layout::from_size_align(self.bytes, 128).unwrap();
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
            return;
        }
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
