//! An allocator for tests that refuses and measures allocations of one thread.
//!
//! A test binary installs it with `#[global_allocator] static MEMORY: SimMemory = SimMemory;`. Unlike a limit of the
//! process, it leaves other tests alone. Unlike a hook in the code under test, it sees every allocation: an infallible
//! one that is refused ends the process.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with refusals. See [`refusing`](SimMemory::refusing) and [`largest`](SimMemory::largest).
#[derive(Debug, Clone, Copy)]
pub struct SimMemory;

thread_local! {
    static REFUSED_FROM: Cell<usize> = const { Cell::new(usize::MAX) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// Puts the thread's earlier value back, also after a panic.
struct Restored(&'static std::thread::LocalKey<Cell<usize>>, usize);

impl Drop for Restored {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

impl SimMemory {
    /// Calls `with`. Meanwhile, this thread gets no allocation of `bytes` bytes or more.
    pub fn refusing<T>(bytes: usize, with: impl FnOnce() -> T) -> T {
        let _restored = Restored(&REFUSED_FROM, REFUSED_FROM.replace(bytes));
        with()
    }

    /// Calls `with`. Returns its result and the size of the largest allocation that this thread asked for meanwhile.
    pub fn largest<T>(with: impl FnOnce() -> T) -> (T, usize) {
        let _restored = Restored(&LARGEST, LARGEST.replace(0));
        let result = with();
        (result, LARGEST.get())
    }

    /// Notes a request. Returns false if it is refused.
    fn admit(bytes: usize) -> bool {
        LARGEST.set(LARGEST.get().max(bytes));
        bytes < REFUSED_FROM.get()
    }
}

// SAFETY: each call is the system allocator's, or is answered with null, as if memory had run out. The cells are
// `const` and have no destructor, so reading them allocates nothing.
unsafe impl GlobalAlloc for SimMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !SimMemory::admit(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !SimMemory::admit(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > layout.size() && !SimMemory::admit(bytes) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: the memory is the system allocator's.
        unsafe { System.dealloc(start, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static MEMORY: SimMemory = SimMemory;

    /// A vector of `bytes` bytes, grown to twice as many.
    fn grown(bytes: usize) -> (bool, bool) {
        let mut buffer: Vec<u8> = Vec::new();
        let is_made = buffer.try_reserve_exact(bytes).is_ok();
        // Without use, the compiler leaves allocations out.
        std::hint::black_box(&mut buffer).extend_from_slice(&[1; 100]);
        let is_grown = buffer.try_reserve_exact(2 * bytes).is_ok();
        std::hint::black_box(&buffer);
        (is_made, is_grown)
    }

    #[test]
    fn a_large_allocation_is_refused_to_this_thread_and_measured() {
        let (refused, largest) = SimMemory::largest(|| SimMemory::refusing(50_000, || [grown(30_000), grown(70_000)]));
        assert_eq!(refused, [(true, false), (false, false)]);
        assert_eq!(largest, 140_100);
        let other = SimMemory::refusing(50_000, || std::thread::spawn(|| grown(70_000)).join());
        assert_eq!((other.unwrap(), grown(70_000)), ((true, true), (true, true)));
    }
}
