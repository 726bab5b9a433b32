//! The memory that one controller reaches: addresses, mappings, and rings made of words.
//!
//! A controller names memory by addresses of its own, which the IOMMU translates. [`DmaSpace`] hands out stretches of
//! them. [`SharedWords`] is memory that stays mapped as long as it lives. Buffers of the arena are mapped for good;
//! others are mapped for one command.
//!
//! **Invariant.** Memory is freed after its mapping has ended. So a controller that writes late, or where it should
//! not, never meets memory of another owner: the IOMMU stops it.

use super::function::{Dma, Function};
use crate::buffer::arena::{ARENA_BYTES, CHUNK_BYTES, Chunks, offset_of, serve};
use crate::{Buffer, PAGE_BYTES};
use situ_base::lock;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The addresses of one controller.
pub(super) struct DmaSpace {
    function: Arc<dyn Function>,
    free: Mutex<Vec<Range<u64>>>,
    /// The address of the arena's start. `None`: there are too few addresses, or there is no arena.
    arena: Option<u64>,
    /// The chunks of the arena that are mapped, as bits.
    chunks: Box<[AtomicU64]>,
}

impl DmaSpace {
    pub(super) fn new(function: Arc<dyn Function>) -> Arc<DmaSpace> {
        let Range { start, end } = function.addresses();
        // A controller takes an address of zero for no address.
        let page = PAGE_BYTES as u64;
        let mut whole = start.max(page).next_multiple_of(page)..end - end % page;
        let mut arena = None;
        // As much is left for rings and single mappings.
        if whole.end.saturating_sub(whole.start) >= 2 * ARENA_BYTES as u64 {
            let at = whole.start.next_multiple_of(CHUNK_BYTES as u64);
            whole.start = at + ARENA_BYTES as u64;
            arena = Some(at);
        }
        let words = if arena.is_some() { (ARENA_BYTES / CHUNK_BYTES).div_ceil(64) } else { 0 };
        let chunks = (0..words).map(|_| AtomicU64::new(0)).collect();
        let space = Arc::new(DmaSpace { function, free: Mutex::new(vec![whole]), arena, chunks });
        if arena.is_some() {
            // Without an arena, each buffer is mapped for its command.
            serve(&(Arc::clone(&space) as Arc<dyn Chunks>));
        }
        space
    }

    /// Returns the address of memory that is mapped for good, if it is.
    pub(super) fn address_of(&self, memory: NonNull<u8>) -> Option<u64> {
        let arena = self.arena?;
        let offset = offset_of(memory)?;
        let chunk = offset / CHUNK_BYTES;
        let is_mapped = self.chunks[chunk / 64].load(Ordering::Acquire) >> (chunk % 64) & 1 != 0;
        is_mapped.then_some(arena + offset as u64)
    }

    pub(super) fn function(&self) -> &Arc<dyn Function> {
        &self.function
    }

    /// Takes a stretch of addresses.
    pub(super) fn stretch(self: &Arc<Self>, bytes: usize) -> io::Result<Stretch> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES) as u64;
        let mut free = lock(&self.free);
        let found = free.iter_mut().find(|range| range.end.saturating_sub(range.start) >= bytes);
        let Some(range) = found else {
            let why = format!("{}: no {bytes} bytes of addresses are left for its memory", self.function.name());
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        };
        let start = range.start;
        range.start += bytes;
        free.retain(|range| range.start < range.end);
        Ok(Stretch { space: Arc::clone(self), addresses: start..start + bytes })
    }

    fn give_back(&self, addresses: Range<u64>) {
        let mut free = lock(&self.free);
        free.push(addresses);
        free.sort_by_key(|range| range.start);
        free.dedup_by(|next, before| {
            let joins = before.end == next.start;
            if joins {
                before.end = next.end;
            }
            joins
        });
    }
}

impl Chunks for DmaSpace {
    fn add(&self, index: usize, start: NonNull<u8>) {
        let Some(arena) = self.arena else { return };
        let address = arena + (index * CHUNK_BYTES) as u64;
        // SAFETY: the arena's chunks stay allocated for good. A command names memory of a buffer only, which lies in
        // the table of a queue meanwhile.
        if unsafe { self.function.map(address, Dma::new(start, CHUNK_BYTES)) }.is_ok() {
            self.chunks[index / 64].fetch_or(1 << (index % 64), Ordering::Release);
        }
    }
}

impl fmt::Debug for DmaSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaSpace({})", self.function.name())
    }
}

/// Addresses in a row that belong to the holder of this value. Nothing is mapped there when it is dropped.
#[derive(Debug)]
pub(super) struct Stretch {
    space: Arc<DmaSpace>,
    addresses: Range<u64>,
}

impl Stretch {
    pub(super) fn start(&self) -> u64 {
        self.addresses.start
    }

    /// Maps memory `at` bytes behind the start of the stretch.
    ///
    /// # Safety
    /// As for [`Function::map`]; the mapping is over when the stretch is dropped.
    pub(super) unsafe fn map(&self, at: usize, memory: Dma) -> io::Result<u64> {
        let address = self.addresses.start + at as u64;
        assert!(address + memory.bytes() as u64 <= self.addresses.end, "{memory:?} at {at} of {:?}", self.addresses);
        // SAFETY: the caller's promise.
        unsafe { self.space.function.map(address, memory)? };
        Ok(address)
    }

    /// Ends the mapping of that many bytes at an address that [`map`](Stretch::map) returned.
    pub(super) fn unmap(&self, address: u64, bytes: usize) {
        self.space.function.unmap(address, bytes);
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        self.space.give_back(self.addresses.clone());
    }
}

/// Zeroed memory that both sides reach at any time, word by word.
pub(super) struct SharedWords {
    /// Nothing looks into it but through `memory`.
    _buffer: Buffer,
    memory: Dma,
    stretch: Stretch,
}

impl SharedWords {
    pub(super) fn new(space: &Arc<DmaSpace>, bytes: usize) -> io::Result<SharedWords> {
        let buffer = Buffer::try_new(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = NonNull::new(buffer.address()).expect("a buffer is not at null");
        let memory = Dma::new(start, buffer.len());
        let stretch = space.stretch(buffer.len())?;
        // SAFETY: the buffer lives as long as this value, which ends the mapping first (see `drop`). No reference to
        // its bytes is made: they are reached as words only.
        unsafe { stretch.map(0, memory)? };
        Ok(SharedWords { _buffer: buffer, memory, stretch })
    }

    /// Returns the address by which the controller names it.
    pub(super) fn address(&self) -> u64 {
        self.stretch.start()
    }

    pub(super) fn load(&self, at: usize) -> u32 {
        // SAFETY: the memory is mapped, and this module uses it by words only.
        unsafe { self.memory.load(at) }
    }

    pub(super) fn store(&self, at: usize, value: u32) {
        // SAFETY: as for `load`.
        unsafe { self.memory.store(at, value) }
    }

    pub(super) fn store_all(&self, at: usize, words: &[u32]) {
        // SAFETY: as for `load`.
        unsafe { self.memory.store_all(at, words) }
    }

    pub(super) fn store_long(&self, at: usize, value: u64) {
        self.store(at, value as u32);
        self.store(at + 4, (value >> 32) as u32);
    }

    /// Copies words out.
    pub(super) fn copy(&self, into: &mut [u8]) {
        for (index, word) in into.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&self.load(4 * index).to_le_bytes());
        }
    }

    pub(super) fn clear(&self) {
        (0..self.memory.bytes()).step_by(4).for_each(|at| self.store(at, 0));
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        self.stretch.unmap(self.stretch.start(), self.memory.bytes());
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWords({:#x}, {} bytes)", self.stretch.start(), self.memory.bytes())
    }
}
