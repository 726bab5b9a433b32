//! Owned memory, aligned for direct I/O.
//!
//! Short buffers come from the allocator. Long ones, of [`LONG_BYTES`] and more, are mapped from the system, and some
//! of those that are not used any more are kept for the next (`kept.rs`).
//!
//! *Rejected:* all of them from the allocator. Buffers are made by one thread and given up by another, some after a
//! millisecond and some after minutes. glibc puts them into a heap for each thread. There, a buffer that lives long
//! keeps the free room below it from going back to the system. A store that had some 100 MiB of them held up to 340
//! MiB.

mod kept;

use kept::Mapping;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit of direct I/O and of log pages, in bytes. A buffer's address is a multiple of it.
pub const PAGE_BYTES: usize = 4096;

/// Buffers from this length on are mapped. The allocator's heaps are good for shorter ones, of which a page fault each
/// would cost more than they do.
const LONG_BYTES: usize = 64 << 10;

/// A zero-filled byte buffer whose address is a multiple of [`PAGE_BYTES`].
///
/// It dereferences to `[u8]`. Its length is fixed; it is rounded up to whole pages at creation.
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
        let (pointer, is_zeroed) = if bytes >= LONG_BYTES {
            let (mapping, is_zeroed) = Mapping::take(bytes)?;
            (mapping.into_start(), is_zeroed)
        } else {
            // SAFETY: the layout's size is not zero.
            let pointer = unsafe { alloc_zeroed(Buffer::layout(bytes)) };
            (NonNull::new(pointer)?, true)
        };
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Some((Buffer { pointer, bytes, id: NEXT.fetch_add(1, Ordering::Relaxed) }, is_zeroed))
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

/// Returns the length of a buffer for `bytes`.
fn whole_pages(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(PAGE_BYTES)
}

impl Drop for Buffer {
    fn drop(&mut self) {
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
