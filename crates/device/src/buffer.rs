//! Owned memory, aligned for direct I/O.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit of direct I/O and of log pages, in bytes. A buffer's address is a multiple of it.
pub const PAGE_BYTES: usize = 4096;

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
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let layout = Buffer::layout(bytes);
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Buffer { pointer, bytes, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// A number that no other buffer of this process has or had, unlike its address. Never 0.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Where the bytes lie, for whoever fills them behind the compiler's back: a kernel that was given the address.
    pub(crate) fn address(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES).expect("a buffer is smaller than the address space")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed only here.
        unsafe { std::alloc::dealloc(self.pointer.as_ptr(), Buffer::layout(self.bytes)) }
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
}
