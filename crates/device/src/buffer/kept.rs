//! Memory of long buffers: mapped from the system, and kept for a while when it comes back.
//!
//! A store makes and gives up thousands of them in a second, of few lengths: units of a cache, pieces of a table. A
//! mapping costs system calls, a fault for each page, and the zeroing of them. So of each length that is a power of
//! two, up to [`KEPT_LENGTH_MAX`], up to [`KEPT_BYTES_MAX`] are kept when they are given back. The rest goes to the
//! system at once.
//!
//! **Invariant.** Kept memory has no owner; a caller that takes it is its only owner.
//! **Threads.** A lock for each length, held for a push or a pop.

use super::LONG_BYTES;
use situ_base::lock;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Bytes that are kept of each length.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// The longest that are kept.
const KEPT_LENGTH_MAX: usize = 1 << 20;
const LENGTHS: usize = (KEPT_LENGTH_MAX / LONG_BYTES).ilog2() as usize + 1;

static KEPT: [Mutex<Vec<Mapping>>; LENGTHS] = [const { Mutex::new(Vec::new()) }; LENGTHS];

/// Mapped memory that belongs to the holder of this value. Dropping it gives it back to the system.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory, bound to no thread.
unsafe impl Send for Mapping {}

/// Returns the place for those of a length, if such are kept.
fn kept(bytes: usize) -> Option<&'static Mutex<Vec<Mapping>>> {
    let is_kept = bytes.is_power_of_two() && (LONG_BYTES..=KEPT_LENGTH_MAX).contains(&bytes);
    is_kept.then(|| &KEPT[(bytes / LONG_BYTES).ilog2() as usize])
}

impl Mapping {
    /// Returns memory of `bytes`, a multiple of the page size and not zero, and whether it is zeroed. `None` if the
    /// system has none.
    pub(super) fn take(bytes: usize) -> Option<(Mapping, bool)> {
        let again = kept(bytes).and_then(|kept| lock(kept).pop());
        match again {
            Some(mapping) => Some((mapping, false)),
            None => system::map(bytes).map(|start| (Mapping { start, bytes }, true)),
        }
    }

    pub(super) fn give_back(self) {
        let Some(kept) = kept(self.bytes) else { return };
        let mut kept = lock(kept);
        if (kept.len() + 1) * self.bytes <= KEPT_BYTES_MAX {
            kept.push(self);
        } else {
            // Not under the lock: unmapping takes the system a while.
            drop(kept);
        }
    }

    /// Its first byte; the caller answers for the memory from now on.
    pub(super) fn into_start(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }

    /// Takes back the memory that [`into_start`](Mapping::into_start) gave away.
    ///
    /// # Safety
    /// `start` came from there, with this length, and the memory has no users any more.
    pub(super) unsafe fn from_start(start: NonNull<u8>, bytes: usize) -> Mapping {
        Mapping { start, bytes }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length by `take`, and the value that is dropped is the only owner.
        unsafe { system::unmap(self.start, self.bytes) }
    }
}

#[cfg(not(miri))]
mod system {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::ptr::{NonNull, null_mut};

    /// Returns zeroed memory.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        start.ok().and_then(|start| NonNull::new(start.cast()))
    }

    /// # Safety
    /// `start` came from [`map`] with this length, and nothing in it is used from now on.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. It can only fail for ranges that are no mapping.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }
}

/// Miri has no mappings.
#[cfg(miri)]
mod system {
    use super::super::Buffer;
    use std::alloc::{alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the layout's size is not zero.
        NonNull::new(unsafe { alloc_zeroed(Buffer::layout(bytes)) })
    }

    /// # Safety
    /// `start` came from [`map`] with this length, and nothing in it is used from now on.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(start.as_ptr(), Buffer::layout(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_amount_is_kept_of_some_lengths() {
        // A length that no other test of this crate uses, so that they do not take what is kept here.
        let bytes = KEPT_LENGTH_MAX / 2;
        let held = || kept(bytes).unwrap().lock().unwrap().len();
        let taken: Vec<Mapping> = (0..2 * KEPT_BYTES_MAX / bytes).map(|_| Mapping::take(bytes).unwrap().0).collect();
        let newest = taken[KEPT_BYTES_MAX / bytes - 1].start;
        taken.into_iter().for_each(Mapping::give_back);
        assert_eq!(held(), KEPT_BYTES_MAX / bytes);
        let (again, is_zeroed) = Mapping::take(bytes).unwrap();
        assert!(again.start == newest && !is_zeroed);
        assert!(kept(LONG_BYTES).is_some() && kept(KEPT_LENGTH_MAX).is_some());
        assert!([LONG_BYTES + 4096, LONG_BYTES / 2, 2 * KEPT_LENGTH_MAX].iter().all(|bytes| kept(*bytes).is_none()));
    }
}
