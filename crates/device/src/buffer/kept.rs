//! Memory of long buffers: mapped from the system, and kept for a while when it comes back.
//!
//! A store makes and gives up thousands of them in a second: units of a cache, pieces of a table, values of clients. A
//! mapping costs system calls, a fault for each page, and the zeroing of them. So mappings have one of a few lengths,
//! eight for each power of two, and up to [`KEPT_BYTES_MAX`] of those up to [`KEPT_LENGTH_MAX`] are kept when they are
//! given back. If more come back, old ones go to the system, of the length that has the most bytes.
//!
//! **Invariant.** Kept memory has no owner; a caller that takes it is its only owner.
//! **Threads.** A lock for each length, held for a push or a pop.

use super::LONG_BYTES;
use situ_base::lock;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are kept of all lengths.
const KEPT_BYTES_MAX: usize = 20 << 20;
/// The longest that are kept: a value of 1 MiB fits, with what is stored around it.
pub(super) const KEPT_LENGTH_MAX: usize = (1 << 20) + (1 << 20) / STEPS;
/// Lengths from one power of two to the next.
const STEPS: usize = 8;
const LENGTHS: usize = STEPS * ((1_usize << 20) / LONG_BYTES).ilog2() as usize + 2;

static KEPT: Kept = Kept::new();

/// Mappings that are kept, by length.
struct Kept {
    mappings: [Mutex<VecDeque<Mapping>>; LENGTHS],
    /// Of all of them.
    bytes: AtomicUsize,
}

/// Mapped memory that belongs to the holder of this value. Dropping it gives it back to the system.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory, bound to no thread.
unsafe impl Send for Mapping {}

/// Returns the length of a mapping for `bytes`, and its place among the lengths. Longer ones have their own length, and
/// no place.
fn length_for(bytes: usize) -> (usize, Option<usize>) {
    if bytes > KEPT_LENGTH_MAX {
        return (bytes, None);
    }
    let bytes = bytes.max(LONG_BYTES);
    let power = bytes.ilog2();
    let step = (1 << power) / STEPS;
    let steps = (bytes - (1 << power)).div_ceil(step);
    ((1 << power) + steps * step, Some((power - LONG_BYTES.ilog2()) as usize * STEPS + steps))
}

impl Kept {
    const fn new() -> Kept {
        Kept { mappings: [const { Mutex::new(VecDeque::new()) }; LENGTHS], bytes: AtomicUsize::new(0) }
    }

    /// Takes the newest of a length.
    fn take(&self, place: usize) -> Option<Mapping> {
        let mapping = lock(&self.mappings[place]).pop_back()?;
        self.bytes.fetch_sub(mapping.bytes, Ordering::Relaxed);
        Some(mapping)
    }

    fn give_back(&self, place: usize, mapping: Mapping) {
        let kept = self.bytes.fetch_add(mapping.bytes, Ordering::Relaxed) + mapping.bytes;
        let mut excess = kept.saturating_sub(KEPT_BYTES_MAX);
        lock(&self.mappings[place]).push_back(mapping);
        while excess > 0 {
            // Another thread may have taken all.
            let Some(oldest) = self.take_oldest() else { break };
            excess = excess.saturating_sub(oldest.bytes);
            // Unmapping takes the system a while. No lock is held.
            drop(oldest);
        }
    }

    /// Takes the oldest of the length that has the most bytes.
    fn take_oldest(&self) -> Option<Mapping> {
        let bytes = |of: &Mutex<VecDeque<Mapping>>| {
            let of = lock(of);
            of.front().map_or(0, |mapping| of.len() * mapping.bytes)
        };
        let most = self.mappings.iter().max_by_key(|of| bytes(of))?;
        let mapping = lock(most).pop_front()?;
        self.bytes.fetch_sub(mapping.bytes, Ordering::Relaxed);
        Some(mapping)
    }
}

impl Mapping {
    /// Returns memory of `bytes` at least, a multiple of the page size and not zero, and whether it is zeroed. Returns
    /// `None` if the system has none.
    pub(super) fn take(bytes: usize) -> Option<(Mapping, bool)> {
        let (bytes, place) = length_for(bytes);
        match place.and_then(|place| KEPT.take(place)) {
            Some(mapping) => Some((mapping, false)),
            None => system::map(bytes).map(|start| (Mapping { start, bytes }, true)),
        }
    }

    pub(super) fn give_back(self) {
        if let (_, Some(place)) = length_for(self.bytes) {
            KEPT.give_back(place, self);
        }
    }

    /// Lengthens memory that is too long to be kept to `bytes`. The system moves it, without a copy of its contents. If
    /// the system has too little, the mapping comes back as it was.
    pub(super) fn grow(mut self, bytes: usize) -> Result<Mapping, Mapping> {
        assert!(self.bytes > KEPT_LENGTH_MAX && bytes > self.bytes, "memory of {} bytes grows to {bytes}", self.bytes);
        // SAFETY: this is the only owner of the mapping, which has this length.
        match unsafe { system::grow(self.start, self.bytes, bytes) } {
            Some(start) => {
                (self.start, self.bytes) = (start, bytes);
                Ok(self)
            }
            None => Err(self),
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
    /// `start` came from there, of a mapping that was [taken](Mapping::take) for `bytes`. Nothing uses the memory any
    /// more.
    pub(super) unsafe fn from_start(start: NonNull<u8>, bytes: usize) -> Mapping {
        Mapping { start, bytes: length_for(bytes).0 }
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
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};
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

    /// Returns a longer mapping with the contents, and zeros behind them. `None` leaves the old one as it is.
    ///
    /// # Safety
    /// `start` came from [`map`] or from here with the length `from`. If there is a new one, the old one is not used
    /// any more.
    pub(super) unsafe fn grow(start: NonNull<u8>, from: usize, to: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise. The kernel chooses the place.
        let grown = unsafe { mremap(start.as_ptr().cast(), from, to, MremapFlags::MAYMOVE) };
        grown.ok().and_then(|start| NonNull::new(start.cast()))
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

    /// # Safety
    /// As without Miri.
    pub(super) unsafe fn grow(start: NonNull<u8>, from: usize, to: usize) -> Option<NonNull<u8>> {
        let longer = map(to)?;
        // SAFETY: both have that many bytes, and the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(start.as_ptr(), longer.as_ptr(), from);
            unmap(start, from);
        }
        Some(longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_little_more_than_what_is_asked_for_and_has_a_place_of_its_own() {
        let mut lengths = std::collections::BTreeMap::new();
        for bytes in (LONG_BYTES..=KEPT_LENGTH_MAX).step_by(4096) {
            let (length, place) = length_for(bytes);
            assert!(length >= bytes && length - bytes < bytes / STEPS && length.is_multiple_of(4096), "{bytes}");
            assert_eq!(length_for(length), (length, place), "a mapping is given back to its place");
            assert_eq!(*lengths.entry(place.unwrap()).or_insert(length), length);
        }
        assert_eq!(lengths.into_keys().collect::<Vec<_>>(), (0..LENGTHS).collect::<Vec<_>>());
        assert_eq!(length_for(KEPT_LENGTH_MAX + 4096), (KEPT_LENGTH_MAX + 4096, None));
    }

    #[test]
    fn a_bounded_amount_is_kept() {
        let kept = Kept::new();
        let (length, place) = length_for(LONG_BYTES + 4096);
        let map = |length| Mapping { start: system::map(length).unwrap(), bytes: length };
        let place = place.unwrap();
        let newest = map(length);
        let start = newest.start;
        kept.give_back(place, newest);
        assert!(kept.take(place).is_some_and(|mapping| mapping.start == start));
        assert!(kept.take(place).is_none() && kept.bytes.load(Ordering::Relaxed) == 0);
        // A length that is asked for no more does not keep others out.
        for _ in 0..2 * KEPT_BYTES_MAX / length {
            kept.give_back(place, map(length));
        }
        for _ in 0..8 {
            kept.give_back(LENGTHS - 1, map(KEPT_LENGTH_MAX));
        }
        let held: usize =
            kept.mappings.iter().flat_map(|of| lock(of).iter().map(|m| m.bytes).collect::<Vec<_>>()).sum();
        assert_eq!(held, kept.bytes.load(Ordering::Relaxed));
        assert!(held <= KEPT_BYTES_MAX && held > KEPT_BYTES_MAX - KEPT_LENGTH_MAX, "{held}");
        assert!((0..8).all(|_| kept.take(LENGTHS - 1).is_some()));
    }
}
