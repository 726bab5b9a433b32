//! Memory that is handed out piece by piece and given back all at once.
//!
//! # How it works
//!
//! 1. Memory comes from the system in *chunks*. A chunk begins with its [`ChunkHeader`]; behind it, `used` moves up.
//! 2. An allocation is one atomic add on the current chunk's `used`. If the sum fits, the piece is the caller's alone.
//! 3. If it does not fit, the caller takes the lock. The first caller makes the next chunk, twice as large as the last
//!    one up to [`CHUNK_BYTES_MAX`]; later callers find it there and go back to step 2.
//! 4. A piece larger than a quarter of the next chunk gets a chunk of its own, so that one large value neither wastes
//!    the rest of the current chunk nor makes the next one large.
//!
//! The first chunk is small, so an idle keyspace costs [`CHUNK_BYTES_FIRST`]. While chunks are still that small, each
//! piece that gets its own chunk also makes the next one larger.
//!
//! Chunks of the full size are mapped, aligned to their size, and the arena asks the kernel to back each with one huge
//! page. A search in a memtable of 64 MiB touches some forty nodes on as many pages, more than the processor's TLB
//! holds; with huge pages there are 32. If the kernel has none to give, the chunk is as good as any other.
//!
//! # Invariants
//!
//! * A piece is aligned to [`ALIGNMENT`], belongs to one caller, and stays where it is until the arena is dropped.
//! * The current chunk is never freed before the arena, so its header can be read without the lock.
//! * A failed attempt leaves `used` beyond the chunk's capacity. This seals the chunk. `used` cannot overflow, because
//!   each thread that fails goes on to a new chunk, and a piece is at most a quarter of a chunk.
//!
//! # Threads
//!
//! Any thread may allocate at any time. The lock is held while the system is asked for a chunk, never across I/O.
//!
//! # Failure
//!
//! A chunk has a bounded length, unless it holds a piece of [`LARGE_BYTES`] or more. A write reserves memory for such
//! pieces first ([`Arena::prepare`]), while it can still fail with an error. A replay of the log reserves memory for
//! all pieces ([`Arena::ensure`]). If any other chunk cannot be allocated, the process aborts, as for every other Rust
//! allocation.
//!
//! # Rejected
//!
//! An arena per core (RocksDB's `ConcurrentArena`) allocates without a shared cache line, but makes an idle memtable
//! cost a chunk per core, and the shared line is touched once per insert, next to a search that misses many.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::meter::Share;
use super::sync::{AtomicPtr, AtomicUsize, Mutex, Ordering, OwnCacheLine};

/// The size of the first chunk: the memory of an empty memtable.
pub(super) const CHUNK_BYTES_FIRST: usize = 2 << 10;

/// Maximum length of pieces that mostly come from the current chunk, without the lock.
const SMALL_BYTES_MAX: usize = 4 << 10;

/// The size that chunks grow to: a huge page of x86-64 and of most ARM systems.
pub(super) const CHUNK_BYTES_MAX: usize = 2 << 20;

/// Minimum length of pieces that always get their own memory. A writer reserves it before the log has the entry.
pub(super) const LARGE_BYTES: usize = CHUNK_BYTES_MAX / 32;

/// The alignment of every piece.
pub(super) const ALIGNMENT: usize = 8;

/// The alignment of a chunk, and the room for its header. The header is written on every allocation and must not share
/// a cache line with the first piece.
const CHUNK_ALIGNMENT: usize = 128;

/// The first bytes of a chunk.
struct ChunkHeader {
    /// Bytes handed out, this header included; beyond `capacity` once the chunk is sealed.
    used: AtomicUsize,
    /// The chunk's whole length, this header included.
    capacity: usize,
}

const _: () = assert!(size_of::<ChunkHeader>() <= CHUNK_ALIGNMENT);

/// A chunk, owned: dropping it gives its memory back.
struct Chunk(NonNull<ChunkHeader>);

// SAFETY: a chunk is plain memory and an atomic; it is bound to no thread.
unsafe impl Send for Chunk {}

/// Memory for chunks of [`CHUNK_BYTES_MAX`] from the system itself: the allocator would neither align it nor give it
/// back. Under Miri and loom all chunks come from the allocator. The arena's other tests, which fill many chunks,
/// exercise this module.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod mapped {
    use super::CHUNK_BYTES_MAX;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{NonNull, null_mut};

    /// Returns zeroed memory of [`CHUNK_BYTES_MAX`], aligned to its size; `None` if the system has none.
    pub(super) fn map() -> Option<NonNull<u8>> {
        // As much again, so that an aligned piece is inside wherever the system puts it.
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let start = unsafe {
            mmap_anonymous(null_mut(), 2 * CHUNK_BYTES_MAX, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = start.ok()?.cast::<u8>();
        let before = start.addr().wrapping_neg() & (CHUNK_BYTES_MAX - 1);
        // SAFETY: both ranges, and the part that is left between them, are parts of the mapping just made, in whole
        // pages; no other code knows of it yet. A failure leaves unused address space behind, which costs no memory.
        unsafe {
            let chunk = start.add(before);
            if before > 0 {
                let _ = munmap(start.cast(), before);
            }
            let _ = munmap(chunk.add(CHUNK_BYTES_MAX).cast(), CHUNK_BYTES_MAX - before);
            // Advice: a kernel without huge pages refuses, and nothing is lost.
            let _ = madvise(chunk.cast(), CHUNK_BYTES_MAX, Advice::LinuxHugepage);
            NonNull::new(chunk)
        }
    }

    /// Gives back memory that [`map`] returned.
    ///
    /// # Safety
    /// `start` came from [`map`], and nothing in it is used from now on.
    pub(super) unsafe fn unmap(start: *mut u8) {
        // SAFETY: the caller's promise. It can only fail for ranges that are no mapping.
        let _ = unsafe { munmap(start.cast(), CHUNK_BYTES_MAX) };
    }
}

impl Chunk {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, CHUNK_ALIGNMENT).expect("a chunk is smaller than the address space")
    }

    /// Returns memory for a chunk. The size alone decides its source, so that [`free`](Chunk::free) knows the source.
    fn allocate(capacity: usize) -> Option<NonNull<u8>> {
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        if capacity == CHUNK_BYTES_MAX {
            return mapped::map();
        }
        // SAFETY: the layout is not empty; it has room for the header at least.
        NonNull::new(unsafe { alloc(Chunk::layout(capacity)) })
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `start` came from [`allocate`](Chunk::allocate) with this very capacity, and nothing in it is used from now on.
    unsafe fn free(start: *mut u8, capacity: usize) {
        #[cfg(all(target_os = "linux", not(miri), not(loom)))]
        if capacity == CHUNK_BYTES_MAX {
            // SAFETY: chunks of this size were mapped.
            return unsafe { mapped::unmap(start) };
        }
        // SAFETY: all others came from `alloc` with this very layout.
        unsafe { dealloc(start, Chunk::layout(capacity)) };
    }

    /// Returns a chunk of `capacity` bytes, of which `used` are taken. `used` covers the header.
    fn new(capacity: usize, used: usize) -> Chunk {
        Chunk::try_new(capacity, used).unwrap_or_else(|| handle_alloc_error(Chunk::layout(capacity)))
    }

    /// As [`new`](Chunk::new), but returns `None` if memory runs out.
    fn try_new(capacity: usize, used: usize) -> Option<Chunk> {
        debug_assert!(CHUNK_ALIGNMENT <= used && used <= capacity);
        let start = Chunk::allocate(capacity)?;
        let header = start.cast::<ChunkHeader>();
        // SAFETY: the memory is fresh, large enough for the header and aligned for more than it needs.
        unsafe { header.write(ChunkHeader { used: AtomicUsize::new(used), capacity }) };
        Some(Chunk(header))
    }

    /// Returns the bytes that are not handed out.
    fn room(&self) -> usize {
        // SAFETY: the chunk is owned, so its header is valid; only its atomic ever changes.
        let header = unsafe { self.0.as_ref() };
        header.capacity.saturating_sub(header.used.load(Ordering::Relaxed))
    }

    /// Returns the piece at `offset`.
    ///
    /// # Safety
    /// `header` is a live chunk's, and `offset` does not exceed its capacity.
    unsafe fn piece(header: NonNull<ChunkHeader>, offset: usize) -> NonNull<u8> {
        // SAFETY: by the caller's promise the result stays inside the chunk, all of which the header's pointer covers.
        unsafe { header.cast::<u8>().add(offset) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the header was written by `new` and is not used behind this.
        let capacity = unsafe {
            let capacity = (*self.0.as_ptr()).capacity;
            self.0.drop_in_place();
            capacity
        };
        // SAFETY: the memory came from `allocate` with this very capacity.
        unsafe { Chunk::free(self.0.as_ptr().cast(), capacity) };
    }
}

/// The data under the lock.
struct Chunks {
    owned: Vec<Chunk>,
    next_capacity: usize,
    spares: Vec<Spare>,
}

/// A chunk that is reserved for the large pieces of a write.
struct Spare {
    /// Its index in `owned`.
    at: usize,
    write: usize,
}

/// Memory that is handed out piece by piece and given back all at once.
pub(super) struct Arena {
    /// The chunk that small pieces come from.
    current: OwnCacheLine<AtomicPtr<ChunkHeader>>,
    used_bytes: OwnCacheLine<AtomicUsize>,
    /// Counts allocated memory.
    share: Share,
    chunks: Mutex<Chunks>,
}

impl Arena {
    /// Creates an arena with its first chunk. `share` counts its memory.
    pub(super) fn new(share: Share) -> Arena {
        let first = Chunk::new(CHUNK_BYTES_FIRST, CHUNK_ALIGNMENT);
        share.grew(CHUNK_BYTES_FIRST);
        Arena {
            current: OwnCacheLine(AtomicPtr::new(first.0.as_ptr())),
            used_bytes: OwnCacheLine(AtomicUsize::new(0)),
            share,
            chunks: Mutex::new(Chunks { owned: vec![first], next_capacity: CHUNK_BYTES_FIRST * 2, spares: Vec::new() }),
        }
    }

    /// Returns `bytes` bytes of uninitialised memory, aligned to [`ALIGNMENT`]. The memory is valid until the arena is
    /// dropped, and the caller's alone. The pointer covers exactly those bytes' chunk.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        self.used_bytes.0.fetch_add(bytes, Ordering::Relaxed);
        if bytes <= SMALL_BYTES_MAX {
            // Acquire: the header of a chunk that another thread has just made must be seen whole.
            let current = self.current.0.load(Ordering::Acquire);
            if let Some(piece) = Arena::take(current, bytes) {
                return piece;
            }
        }
        self.allocate_slowly(bytes)
    }

    /// Reserves memory for all pieces of [`LARGE_BYTES`] or more of a write. `bytes` is their total after rounding. The
    /// caller chooses the number `write`; a second call with the same one does nothing. Returns false if memory runs
    /// out.
    pub(super) fn prepare(&self, write: usize, bytes: usize) -> bool {
        let mut chunks = self.chunks.lock().expect("no code that holds this lock panics");
        let is_prepared = |spare: &Spare| spare.write == write && chunks.owned[spare.at].room() >= bytes;
        if chunks.spares.iter().any(is_prepared) {
            return true;
        }
        let capacity = CHUNK_ALIGNMENT + bytes.next_multiple_of(ALIGNMENT);
        let Some(chunk) = Chunk::try_new(capacity, CHUNK_ALIGNMENT) else { return false };
        self.share.grew(capacity);
        let at = chunks.owned.len();
        chunks.owned.push(chunk);
        chunks.spares.push(Spare { at, write });
        true
    }

    /// Reserves memory for pieces below [`LARGE_BYTES`]: `bytes`, including the rounding of each. The pieces find it if
    /// no others are allocated in between. Returns false if the system has no memory.
    pub(super) fn ensure(&self, bytes: usize) -> bool {
        let mut chunks = self.chunks.lock().expect("no code that holds this lock panics");
        if self.current_room() >= bytes {
            return true;
        }
        let capacity = chunks.next_capacity.max(CHUNK_ALIGNMENT + bytes.next_multiple_of(ALIGNMENT));
        let Some(chunk) = Chunk::try_new(capacity, CHUNK_ALIGNMENT) else { return false };
        chunks.next_capacity = (chunks.next_capacity * 2).min(CHUNK_BYTES_MAX);
        self.share.grew(capacity);
        self.current.0.store(chunk.0.as_ptr(), Ordering::Release);
        chunks.owned.push(chunk);
        true
    }

    /// Returns the bytes of the current chunk that are not handed out.
    fn current_room(&self) -> usize {
        // SAFETY: the current chunk is never freed before the arena; nothing but its atomic ever changes.
        let header = unsafe { &*self.current.0.load(Ordering::Acquire) };
        header.capacity.saturating_sub(header.used.load(Ordering::Relaxed))
    }

    /// Takes a piece from reserved memory, if there is room for it.
    fn take_prepared(chunks: &mut Chunks, bytes: usize) -> Option<NonNull<u8>> {
        let Chunks { owned, spares, .. } = chunks;
        // All threads add to a spare's `used` under the lock, so a spare with room keeps it.
        let found = spares.iter().position(|spare| owned[spare.at].room() >= bytes)?;
        let chunk = &owned[spares[found].at];
        let piece = Arena::take(chunk.0.as_ptr(), bytes);
        if chunk.room() < LARGE_BYTES {
            spares.swap_remove(found);
        }
        piece
    }

    /// Returns the bytes handed out, rounding to [`ALIGNMENT`] included. Exact whenever no allocation is under way.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.0.load(Ordering::Relaxed)
    }

    /// Returns the share that counts the memory of the arena and of the rest of its memtable.
    pub(super) fn share(&self) -> &Share {
        &self.share
    }

    /// Takes a piece from this chunk, if it has room left.
    #[inline]
    fn take(chunk: *mut ChunkHeader, bytes: usize) -> Option<NonNull<u8>> {
        let header = NonNull::new(chunk)?;
        // SAFETY: chunks are freed only with the arena, which the caller borrows; the header is shared by reading
        // `capacity`, which never changes, and by the atomic.
        let (used, capacity) = unsafe { (&(*chunk).used, (*chunk).capacity) };
        // Relaxed: the add alone makes the piece this caller's; nothing is published by it.
        let offset = used.fetch_add(bytes, Ordering::Relaxed);
        if capacity.checked_sub(bytes)? < offset {
            return None;
        }
        // SAFETY: offset + bytes <= capacity was just checked.
        Some(unsafe { Chunk::piece(header, offset) })
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&self, bytes: usize) -> NonNull<u8> {
        let mut chunks = self.chunks.lock().expect("no code that holds this lock panics");
        if bytes >= LARGE_BYTES
            && let Some(piece) = Arena::take_prepared(&mut chunks, bytes)
        {
            return piece;
        }
        if bytes > chunks.next_capacity / 4 {
            let capacity = CHUNK_ALIGNMENT + bytes;
            let chunk = match Chunk::try_new(capacity, capacity) {
                Some(chunk) => chunk,
                None => match Arena::take(self.current.0.load(Ordering::Acquire), bytes) {
                    Some(ensured) => return ensured,
                    None => handle_alloc_error(Chunk::layout(capacity)),
                },
            };
            // SAFETY: the chunk has `bytes` bytes behind its header.
            let piece = unsafe { Chunk::piece(chunk.0, CHUNK_ALIGNMENT) };
            self.share.grew(capacity);
            chunks.owned.push(chunk);
            if bytes <= SMALL_BYTES_MAX {
                chunks.next_capacity *= 2;
            }
            return piece;
        }
        // Another thread may have made the next chunk while this one waited for the lock.
        if let Some(piece) = Arena::take(self.current.0.load(Ordering::Acquire), bytes) {
            return piece;
        }
        let capacity = chunks.next_capacity;
        chunks.next_capacity = (capacity * 2).min(CHUNK_BYTES_MAX);
        let chunk = Chunk::new(capacity, CHUNK_ALIGNMENT + bytes);
        // SAFETY: the chunk has room for a piece of a quarter of its size behind its header.
        let piece = unsafe { Chunk::piece(chunk.0, CHUNK_ALIGNMENT) };
        self.share.grew(capacity);
        self.current.0.store(chunk.0.as_ptr(), Ordering::Release);
        chunks.owned.push(chunk);
        piece
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
