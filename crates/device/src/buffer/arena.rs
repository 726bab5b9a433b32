//! Memory that drives reach without a mapping for each transfer.
//!
//! A driver in user space has to map memory for its drive before the drive can reach it, which takes system calls. So
//! once a process drives a drive, buffers of up to [`LENGTH_MAX`] come from an arena. The arena grows by chunks of
//! [`CHUNK_BYTES`], of huge pages where the system has any. Each chunk is mapped once, for each drive.
//!
//! 1. The arena is a stretch of addresses, without memory at first. So a drive's address for a buffer is found by one
//!    subtraction.
//! 2. A buffer takes a run of pages: one that was given back with that length, or the first one in a chunk that is long
//!    enough, or the beginning of a new chunk.
//! 3. Runs that come back are kept by length, up to [`KEPT_RUNS_MAX`] of each. Others go back to their chunks.
//!
//! **Invariant.** A page belongs to one buffer, to one kept run, or to no one.
//! **Threads.** One lock, held for a few steps; for longer, where a chunk is added.
//! **Limits.** Chunks are not given back to the system: the arena has the memory of the moment at which most buffers
//! were there. If the system gives no memory, or a drive cannot map it, buffers are made and mapped in the other way.

use crate::PAGE_BYTES;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use situ_base::lock;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The unit in which the arena grows.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
/// The addresses of the arena.
pub(crate) const ARENA_BYTES: usize = 64 << 30;
/// The longest buffer that comes from the arena.
const LENGTH_MAX: usize = super::KEPT_LENGTH_MAX;
/// The runs of one length that are kept.
const KEPT_RUNS_MAX: usize = 32;

const CHUNK_PAGES: usize = CHUNK_BYTES / PAGE_BYTES;
const WORDS: usize = CHUNK_PAGES / 64;

/// A user of chunks: maps each one for its drive.
pub(crate) trait Chunks: Send + Sync {
    /// Maps a chunk, which stays for good.
    fn add(&self, index: usize, start: NonNull<u8>);
}

static START: AtomicUsize = AtomicUsize::new(0);
static ARENA: Mutex<Option<Arena>> = Mutex::new(None);

struct Arena {
    start: NonNull<u8>,
    chunks: Vec<Chunk>,
    /// Runs by their length in pages, as numbers of their first pages.
    kept: Vec<Vec<usize>>,
    users: Vec<Weak<dyn Chunks>>,
    /// The system has no more memory for chunks.
    is_full: bool,
}

// SAFETY: the address is that of a mapping that stays for good, and is bound to no thread.
unsafe impl Send for Arena {}

/// The free pages of a chunk, as bits.
struct Chunk {
    free: [u64; WORDS],
    free_pages: usize,
}

/// Makes buffers come from the arena from now on, and tells the user of all chunks. Returns false if the system has no
/// stretch of addresses for it.
pub(crate) fn serve(user: &Arc<dyn Chunks>) -> bool {
    let mut arena = lock(&ARENA);
    // Miri has no mappings.
    if arena.is_none() && !cfg!(miri) {
        *arena = Arena::new();
    }
    let Some(arena) = arena.as_mut() else { return false };
    for index in 0..arena.chunks.len() {
        user.add(index, arena.chunk_start(index));
    }
    arena.users.retain(|user| user.strong_count() > 0);
    arena.users.push(Arc::downgrade(user));
    START.store(arena.start.as_ptr() as usize, Ordering::Release);
    true
}

/// Returns the distance of an address from the arena's start, if it is in the arena.
pub(crate) fn offset_of(address: NonNull<u8>) -> Option<usize> {
    let start = START.load(Ordering::Acquire);
    let offset = (address.as_ptr() as usize).wrapping_sub(start);
    (start != 0 && offset < ARENA_BYTES).then_some(offset)
}

/// Returns memory of `bytes`, which are whole pages, with any contents. `None`: there is no arena, it is not for that
/// length, or there is no memory.
pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
    if START.load(Ordering::Acquire) == 0 || bytes > LENGTH_MAX {
        return None;
    }
    lock(&ARENA).as_mut()?.take(bytes / PAGE_BYTES)
}

/// Takes back what [`take`] gave; returns false if that memory is not the arena's.
pub(super) fn give_back(start: NonNull<u8>, bytes: usize) -> bool {
    let Some(offset) = offset_of(start) else { return false };
    if let Some(arena) = lock(&ARENA).as_mut() {
        arena.give_back(offset / PAGE_BYTES, bytes / PAGE_BYTES);
    }
    true
}

impl Arena {
    fn new() -> Option<Arena> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists. One chunk more, so that
        // chunks can begin at a multiple of their length.
        let start = unsafe { mmap_anonymous(null_mut(), ARENA_BYTES + CHUNK_BYTES, ProtFlags::empty(), flags) };
        let start = start.ok()?.cast::<u8>();
        let start = NonNull::new(start.wrapping_add(start.align_offset(CHUNK_BYTES)))?;
        let kept = vec![Vec::new(); LENGTH_MAX / PAGE_BYTES + 1];
        Some(Arena { start, chunks: Vec::new(), kept, users: Vec::new(), is_full: false })
    }

    fn chunk_start(&self, index: usize) -> NonNull<u8> {
        self.page(index * CHUNK_PAGES)
    }

    fn page(&self, number: usize) -> NonNull<u8> {
        // SAFETY: the page is within the arena's addresses.
        unsafe { self.start.add(number * PAGE_BYTES) }
    }

    fn take(&mut self, pages: usize) -> Option<NonNull<u8>> {
        if let Some(first) = self.kept[pages].pop() {
            return Some(self.page(first));
        }
        let found = self.take_from_chunks(pages).or_else(|| {
            // Runs of other lengths may make room together.
            for length in 1..self.kept.len() {
                for first in std::mem::take(&mut self.kept[length]) {
                    self.chunks[first / CHUNK_PAGES].set_free(first % CHUNK_PAGES, length);
                }
            }
            self.take_from_chunks(pages)
        });
        let first = match found {
            Some(first) => first,
            None => {
                let index = self.grow()?;
                self.chunks[index].take(pages)? + index * CHUNK_PAGES
            }
        };
        Some(self.page(first))
    }

    fn take_from_chunks(&mut self, pages: usize) -> Option<usize> {
        let mut chunks = self.chunks.iter_mut().enumerate().filter(|(_, chunk)| chunk.free_pages >= pages);
        chunks.find_map(|(index, chunk)| Some(chunk.take(pages)? + index * CHUNK_PAGES))
    }

    fn give_back(&mut self, first: usize, pages: usize) {
        let kept = &mut self.kept[pages];
        if kept.len() < KEPT_RUNS_MAX {
            kept.push(first);
        } else {
            self.chunks[first / CHUNK_PAGES].set_free(first % CHUNK_PAGES, pages);
        }
    }

    /// Adds a chunk; returns its number.
    fn grow(&mut self) -> Option<usize> {
        let index = self.chunks.len();
        if self.is_full || (index + 1) * CHUNK_BYTES > ARENA_BYTES {
            return None;
        }
        let start = self.chunk_start(index);
        if !map_chunk(start) {
            self.is_full = true;
            return None;
        }
        self.chunks.push(Chunk { free: [u64::MAX; WORDS], free_pages: CHUNK_PAGES });
        self.users.retain(|user| user.strong_count() > 0);
        self.users.iter().filter_map(Weak::upgrade).for_each(|user| user.add(index, start));
        Some(index)
    }
}

/// Gives a chunk of the arena its memory, at a place where there is none yet. Returns false if the system has none.
///
/// A mapping that fails at a given place takes away what was there, and another thread's mapping may come to lie in the
/// hole. So nothing is mapped at this place before a huge page was found, and other memory needs no mapping.
fn map_chunk(start: NonNull<u8>) -> bool {
    let (at, access) = (start.as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    let has_memory = match unsafe { mmap_anonymous(null_mut(), CHUNK_BYTES, access, flags) } {
        Ok(found) => {
            // SAFETY: the mapping was made above, and has no user.
            let _ = unsafe { munmap(found, CHUNK_BYTES) };
            // SAFETY: the place is within the arena, and no chunk is there yet.
            if unsafe { mmap_anonymous(at, CHUNK_BYTES, access, flags | MapFlags::FIXED) }.is_ok() {
                return true;
            }
            // Another process took the huge page.
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: it replaces nothing that is mapped.
            unsafe { mmap_anonymous(at, CHUNK_BYTES, access, flags) }.is_ok()
        }
        // SAFETY: the place is within the arena, and no chunk is there yet.
        Err(_) => unsafe { mprotect(at, CHUNK_BYTES, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok(),
    };
    if has_memory {
        // SAFETY: advice changes no contents.
        let _ = unsafe { madvise(at, CHUNK_BYTES, Advice::LinuxHugepage) };
    }
    has_memory
}

impl Chunk {
    /// Takes the first run that is long enough; returns its first page.
    fn take(&mut self, pages: usize) -> Option<usize> {
        let mut run = 0;
        let mut page = 0;
        while page < CHUNK_PAGES {
            let word = self.free[page / 64] >> (page % 64);
            let left = 64 - page % 64;
            let (free, busy) = ((word.trailing_ones() as usize).min(left), (word.trailing_zeros() as usize).min(left));
            if free > 0 {
                run += free;
                page += free;
                if run >= pages {
                    let first = page - run;
                    self.mark(first, pages, false);
                    return Some(first);
                }
            } else {
                run = 0;
                page += busy;
            }
        }
        None
    }

    fn set_free(&mut self, first: usize, pages: usize) {
        self.mark(first, pages, true);
    }

    fn mark(&mut self, first: usize, pages: usize, is_free: bool) {
        for page in first..first + pages {
            let bit = 1 << (page % 64);
            debug_assert_eq!(self.free[page / 64] & bit == 0, is_free, "page {page} is given out or taken twice");
            self.free[page / 64] ^= bit;
        }
        self.free_pages = if is_free { self.free_pages + pages } else { self.free_pages - pages };
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
