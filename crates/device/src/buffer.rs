//! Owned memory, aligned for direct I/O.
//!
//! Short buffers come from the allocator. Long ones, of [`LONG_BYTES`] and more, are mapped from the system, and some
//! of those that are not used any more are kept for the next (`kept.rs`). In a process that drives a drive itself, all
//! but the longest come from memory that the drive can reach (`arena.rs`).
//!
//! *Rejected:* all of them from the allocator. Buffers are made by one thread and given up by another, some after a
//! millisecond and some after minutes. glibc puts them into a heap for each thread. There, a buffer that lives long
//! keeps the free room below it from going back to the system. A store that had some 100 MiB of them held up to 340
//! MiB.

pub(crate) mod arena;
mod kept;

use kept::{KEPT_LENGTH_MAX, Mapping};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit of direct I/O and of log pages, in bytes. A buffer's address is a multiple of it.
pub const PAGE_BYTES: usize = 4096;

/// Buffers from this length on are mapped. The allocator's heaps are good for shorter ones, of which a page fault each
/// would cost more than they do.
const LONG_BYTES: usize = 64 << 10;

/// A byte buffer whose address is a multiple of [`PAGE_BYTES`]. It begins with zeros, but for
/// [`try_unfilled`](Buffer::try_unfilled).
///
/// It dereferences to `[u8]`. Its length is rounded up to whole pages. Only [`try_grow`](Buffer::try_grow) changes it.
///
/// ```
/// let buffer = situ_device::Buffer::new(5000);
/// assert_eq!(buffer.len(), 8192);
/// assert_eq!(buffer.as_ptr() as usize % situ_device::PAGE_BYTES, 0);
/// ```
pub struct Buffer {
    pointer: NonNull<u8>,
    bytes: usize,
    id: u64,
}

// SAFETY: a Buffer owns its memory exclusively, as a Vec<u8> does.
unsafe impl Send for Buffer {}
// SAFETY: shared references to a Buffer give shared references to plain bytes only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates at least `bytes` zeroed bytes, rounded up to whole pages (one page for zero).
    pub fn new(bytes: usize) -> Buffer {
        Buffer::try_new(bytes).unwrap_or_else(|| handle_alloc_error(Buffer::layout(whole_pages(bytes))))
    }

    /// Like [`new`](Buffer::new), but returns `None` if memory runs out.
    pub fn try_new(bytes: usize) -> Option<Buffer> {
        let (mut buffer, is_zeroed) = Buffer::of_any_contents(bytes)?;
        if !is_zeroed {
            buffer.fill(0);
        }
        Some(buffer)
    }

    /// Like [`try_new`](Buffer::try_new), for a caller that fills the buffer: its bytes may be those of an earlier
    /// buffer of this process.
    pub fn try_unfilled(bytes: usize) -> Option<Buffer> {
        Some(Buffer::of_any_contents(bytes)?.0)
    }

    /// Lengthens the buffer to `bytes` at least, rounded up to whole pages, and keeps its contents. Bytes behind them
    /// may be those of an earlier buffer of this process. Returns false if memory runs out; then nothing has changed.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let bytes = whole_pages(bytes);
        if bytes <= self.bytes {
            return true;
        }
        if self.bytes <= KEPT_LENGTH_MAX {
            let Some((mut longer, _)) = Buffer::of_any_contents(bytes) else { return false };
            longer[..self.bytes].copy_from_slice(self);
            *self = longer;
            return true;
        }
        // SAFETY: `of_any_contents` took this mapping for this length, or it grew to it. It has no other user.
        let grown = unsafe { Mapping::from_start(self.pointer, self.bytes) }.grow(bytes);
        let has_grown = grown.is_ok();
        self.pointer = grown.unwrap_or_else(|unchanged| unchanged).into_start();
        if has_grown {
            // At another address, it is another buffer to those that know it by its number.
            (self.bytes, self.id) = (bytes, Buffer::next_id());
        }
        has_grown
    }

    /// Returns a copy of `bytes`, with zeros up to whole pages.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let (mut buffer, is_zeroed) = Buffer::of_any_contents(bytes.len())
            .unwrap_or_else(|| handle_alloc_error(Buffer::layout(whole_pages(bytes.len()))));
        buffer[..bytes.len()].copy_from_slice(bytes);
        if !is_zeroed {
            buffer[bytes.len()..].fill(0);
        }
        buffer
    }

    /// Returns a buffer, and true if it is zeroed; if not, it has what an earlier buffer of this process had. Returns
    /// `None` if memory runs out.
    fn of_any_contents(bytes: usize) -> Option<(Buffer, bool)> {
        let bytes = whole_pages(bytes);
        if let Some(pointer) = arena::take(bytes) {
            return Some((Buffer { pointer, bytes, id: Buffer::next_id() }, false));
        }
        let (pointer, is_zeroed) = if bytes >= LONG_BYTES {
            let (mapping, is_zeroed) = Mapping::take(bytes)?;
            (mapping.into_start(), is_zeroed)
        } else {
            // SAFETY: the layout's size is not zero.
            let pointer = unsafe { alloc_zeroed(Buffer::layout(bytes)) };
            (NonNull::new(pointer)?, true)
        };
        Some((Buffer { pointer, bytes, id: Buffer::next_id() }, is_zeroed))
    }

    fn next_id() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a number that no other buffer of this process has or had, unlike its address. Never 0.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the address of the bytes, for a kernel that fills them behind the compiler's back.
    pub(crate) fn address(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES).expect("a buffer is smaller than the address space")
    }
}

/// Zeros to write where nothing cheaper makes them.
pub(crate) fn zeros() -> &'static Buffer {
    static ZEROS: OnceLock<Buffer> = OnceLock::new();
    ZEROS.get_or_init(|| Buffer::new(256 << 10))
}

/// Returns the length of a buffer for `bytes`.
fn whole_pages(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(PAGE_BYTES)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if arena::give_back(self.pointer, self.bytes) {
            return;
        }
        if self.bytes >= LONG_BYTES {
            // SAFETY: it is a mapping that `of_any_contents` took for this length, and it has no users any more.
            unsafe { Mapping::from_start(self.pointer, self.bytes) }.give_back();
        } else {
            // SAFETY: allocated in `of_any_contents` with this very layout, and freed only here.
            unsafe { std::alloc::dealloc(self.pointer.as_ptr(), Buffer::layout(self.bytes)) }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `pointer` is valid for `bytes` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_writable() {
        let mut buffer = Buffer::new(1);
        assert_eq!(buffer.len(), PAGE_BYTES);
        assert!(buffer.iter().all(|b| *b == 0));
        buffer[4095] = 7;
        assert_eq!(buffer[4095], 7);
    }

    #[test]
    fn grows_and_keeps_its_contents() {
        let mut buffer = Buffer::new(PAGE_BYTES);
        buffer.fill(1);
        let steps = [3 * PAGE_BYTES, LONG_BYTES, KEPT_LENGTH_MAX, KEPT_LENGTH_MAX + 1, 3 << 20, 8 << 20];
        for bytes in if cfg!(miri) { &steps[..2] } else { &steps[..] } {
            let (before, id) = (buffer.len(), buffer.id());
            assert!(buffer.try_grow(*bytes) && buffer.try_grow(PAGE_BYTES));
            assert_eq!(buffer.len(), bytes.next_multiple_of(PAGE_BYTES));
            assert_ne!(buffer.id(), id);
            assert!(buffer[..before].iter().all(|byte| *byte == 1), "{before} bytes grew to {bytes}");
            buffer[before..].fill(1);
        }
        if !cfg!(miri) {
            let before = buffer.len();
            assert!(!buffer.try_grow(1 << 56), "there is no such memory");
            assert!(buffer.len() == before && buffer.iter().all(|byte| *byte == 1));
        }
    }

    /// Whether its memory is new or was another buffer's, in all lengths that have a way of their own.
    #[test]
    fn is_zeroed_whoever_had_the_memory_before() {
        let lengths = [PAGE_BYTES, LONG_BYTES, LONG_BYTES - PAGE_BYTES, 2 * LONG_BYTES + PAGE_BYTES, 1 << 20, 3 << 20];
        // Miri takes a microsecond for a byte.
        let (lengths, rounds) = if cfg!(miri) { (&lengths[..2], 2) } else { (&lengths[..], 3) };
        for &bytes in lengths {
            for round in 0..rounds {
                let mut buffers: Vec<Buffer> = (0..3).map(|_| Buffer::new(bytes)).collect();
                for buffer in &mut buffers {
                    assert_eq!((buffer.len(), buffer.as_ptr() as usize % PAGE_BYTES), (bytes, 0));
                    assert!(buffer.iter().all(|b| *b == 0), "{bytes} bytes, round {round}");
                    buffer.fill(7);
                }
                let copy = Buffer::copy_of(&buffers[0][..bytes - 10]);
                assert!(copy[..bytes - 10].iter().all(|b| *b == 7) && copy[bytes - 10..].iter().all(|b| *b == 0));
                drop(copy);
            }
        }
    }
}
