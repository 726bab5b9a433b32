//! The seam between the driver and a controller: a PCI function with registers, memory access and interrupts.

use crate::Watch;
use situ_base::Env;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A PCI function with an NVMe controller behind it, as the driver sees it.
///
/// The hardware behind VFIO is one, a controller in software another. The offsets of registers are those of the NVM
/// Express base specification ("Controller Properties").
pub trait Function: Send + Sync {
    /// Returns the function's name, for people: its address on PCI, `0000:01:00.0`.
    fn name(&self) -> String;

    /// Returns time and events for those who wait.
    fn env(&self) -> &Env;

    /// Reads a register of 32 bits. All ones mean that the function is gone.
    fn read(&self, offset: u32) -> u32;

    /// Writes a register of 32 bits. All earlier stores to memory are visible to the controller before this write is.
    fn write(&self, offset: u32, value: u32);

    /// Returns the addresses, in whole pages, at which memory can be mapped for the controller.
    fn addresses(&self) -> Range<u64>;

    /// Lets the controller reach `memory` at `address`. Both are in whole pages.
    ///
    /// # Errors
    /// The system refuses: no memory can be locked any more, or the address is in use.
    ///
    /// # Safety
    /// The memory stays allocated until [`unmap`](Function::unmap) or [`stop`](Function::stop) has returned. While a
    /// command that names the memory is with the controller, the process holds no reference to these bytes.
    unsafe fn map(&self, address: u64, memory: Dma) -> io::Result<()>;

    /// Ends a mapping, as a whole. The controller reaches the memory no longer when the call has returned.
    fn unmap(&self, address: u64, bytes: usize);

    /// Returns the number of interrupts that the function has.
    fn vectors(&self) -> u16;

    /// Returns the watch that the interrupt with this number wakes. One queue uses it.
    ///
    /// # Errors
    /// The system refuses.
    fn watch(&self, vector: u16) -> io::Result<Arc<dyn Watch>>;

    /// Resets the function, as far as the bus can. Commands that the controller had are lost. Mappings stay.
    ///
    /// # Errors
    /// The bus or the system knows no reset for this function.
    fn reset(&self) -> io::Result<()>;

    /// Takes all memory from the controller, for good. It reaches none when the call has returned.
    fn stop(&self);

    /// Gives a controller in software the time to work. The driver calls it before each look for completions.
    fn settle(&self) {}
}

/// Memory of this process that a controller reads and writes on its own.
#[derive(Debug, Clone, Copy)]
pub struct Dma {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address and a length. Each access is unsafe, and its caller answers for it.
unsafe impl Send for Dma {}
// SAFETY: as for `Send`.
unsafe impl Sync for Dma {}

impl Dma {
    /// Names memory. It is in whole pages.
    pub fn new(start: NonNull<u8>, bytes: usize) -> Dma {
        Dma { start, bytes }
    }

    /// Returns the address of the first byte in this process.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {at} of {self:?}");
        self.start.as_ptr().wrapping_add(at)
    }

    /// Copies bytes out of the memory.
    ///
    /// # Panics
    /// They are not all in it.
    ///
    /// # Safety
    /// The memory is mapped for this function, and a command that lets the controller read these bytes is with it.
    pub unsafe fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: the bytes are there, as the caller of `map` promised; the rest is this caller's promise.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes into the memory.
    ///
    /// # Panics
    /// As for [`read`](Dma::read).
    ///
    /// # Safety
    /// The memory is mapped for this function, and a command that lets the controller write these bytes is with it.
    pub unsafe fn write(&self, at: usize, from: &[u8]) {
        let into = self.place(at, from.len());
        // SAFETY: as for `read`.
        unsafe { into.copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// Returns a word that both sides may change at any time: of a ring, or of a doorbell in memory.
    ///
    /// # Safety
    /// The memory is mapped for this function, and the word is in memory that the driver uses by words only: a ring, a
    /// doorbell.
    unsafe fn word(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, 4).cast::<u32>();
        assert!(place.is_aligned(), "a word at {at}");
        // SAFETY: it is there and aligned, and both sides reach it as an atomic word only.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// Loads a little-endian word of a ring or of a doorbell in memory.
    ///
    /// # Panics
    /// As for [`read`](Dma::read), or it is not aligned.
    ///
    /// # Safety
    /// The memory is mapped for this function, and the driver uses it by words only: it is a ring, or a page of
    /// doorbells.
    pub unsafe fn load(&self, at: usize) -> u32 {
        // SAFETY: the caller's promise.
        u32::from_le(unsafe { self.word(at) }.load(Ordering::Acquire))
    }

    /// Stores a little-endian word of a ring or of a doorbell in memory. Earlier stores are visible before it.
    ///
    /// # Panics
    /// As for [`load`](Dma::load).
    ///
    /// # Safety
    /// As for [`load`](Dma::load).
    pub unsafe fn store(&self, at: usize, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.word(at) }.store(value.to_le(), Ordering::Release);
    }

    /// Stores words of a ring in a row, as [`store`](Dma::store) does, with one check for all.
    ///
    /// # Panics
    /// As for [`load`](Dma::load).
    ///
    /// # Safety
    /// As for [`load`](Dma::load).
    pub unsafe fn store_all(&self, at: usize, words: &[u32]) {
        let place = self.place(at, size_of_val(words)).cast::<u32>();
        assert!(place.is_aligned(), "a word at {at}");
        for (index, word) in words.iter().enumerate() {
            // SAFETY: all of them are there and aligned, and both sides reach them as atomic words only.
            unsafe { AtomicU32::from_ptr(place.add(index)) }.store(word.to_le(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, PAGE_BYTES};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn words_in_a_row_are_stored_whole_or_not_at_all() {
        let buffer = Buffer::new(PAGE_BYTES);
        let memory = Dma::new(NonNull::new(buffer.address()).unwrap(), buffer.len());
        // SAFETY: the buffer lives, and it is used by words only.
        unsafe {
            memory.store_all(PAGE_BYTES - 12, &[7, 8, 9]);
            assert_eq!([12, 8, 4].map(|left| memory.load(PAGE_BYTES - left)), [7, 8, 9]);
            for at in [PAGE_BYTES - 8, 2, usize::MAX - 3] {
                assert!(catch_unwind(AssertUnwindSafe(|| memory.store_all(at, &[1, 2, 3]))).is_err(), "at {at}");
            }
            assert_eq!([12, 8, 4].map(|left| memory.load(PAGE_BYTES - left)), [7, 8, 9]);
            assert_eq!(memory.load(0), 0);
        }
    }
}
