//! The memory that the controller reaches, behind an IOMMU in software.
//!
//! Each access is checked against the table of mappings. An access beyond it does not happen, as with the IOMMU of a
//! machine, and it is recorded.
//!
//! **Threads.** Accesses hold the table for reading, and `unmap` holds it for writing. So the memory is not reached any
//! more when `unmap` has returned. The same holds for the memory of a queue that is at its end ([`Memory::settled`]).

#![allow(unsafe_code, reason = "it reaches memory by addresses, as a controller does")]

use situ_base::lock;
use situ_device::Dma;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// An access to memory that the IOMMU has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaFault {
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: usize,
    /// The controller wanted to write the bytes.
    pub is_write: bool,
}

/// An access that did not happen.
#[derive(Debug)]
pub(super) struct Stopped;

/// A piece of memory by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct Memory {
    table: RwLock<Table>,
    faults: Mutex<Vec<DmaFault>>,
    /// Bytes that the controller has read and written.
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    /// Stopped accesses look like good ones to the controller.
    pub(super) hides_faults: bool,
}

#[derive(Default)]
struct Table {
    mappings: BTreeMap<u64, Dma>,
    /// The function takes no mappings any more.
    is_stopped: bool,
}

/// The longest list of faults. A controller that has gone wild fills no memory.
const FAULTS_MAX: usize = 4096;

impl Table {
    /// Returns the mapping with a byte, and the byte's place in it.
    fn find(&self, address: u64) -> Option<(&Dma, usize)> {
        let (start, memory) = self.mappings.range(..=address).next_back()?;
        let at = usize::try_from(address - start).ok()?;
        (at < memory.bytes()).then_some((memory, at))
    }

    /// Returns true if all these bytes are mapped.
    fn covers(&self, mut address: u64, mut bytes: usize) -> bool {
        while bytes > 0 {
            let Some((memory, at)) = self.find(address) else { return false };
            let step = bytes.min(memory.bytes() - at);
            let Some(next) = address.checked_add(step as u64) else { return false };
            (address, bytes) = (next, bytes - step);
        }
        true
    }

    /// Calls `with` for each piece of mapped memory: the mapping, the place in it, and the bytes of the whole.
    fn pieces(&self, address: u64, bytes: usize, mut with: impl FnMut(&Dma, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < bytes {
            let (memory, at) = self.find(address + done as u64).expect("it is covered");
            let step = (bytes - done).min(memory.bytes() - at);
            with(memory, at, done..done + step);
            done += step;
        }
    }
}

impl Memory {
    pub(super) fn new(hides_faults: bool) -> Memory {
        Memory { hides_faults, ..Memory::default() }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a mapping.
    pub(super) fn map(&self, address: u64, memory: Dma) -> io::Result<()> {
        let mut table = self.table_mut();
        let end = address.checked_add(memory.bytes() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let before = table.mappings.range(..end).next_back();
        if table.is_stopped {
            return Err(io::Error::other("the function was stopped"));
        }
        if before.is_some_and(|(start, before)| start + before.bytes() as u64 > address) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("address {address:#x} is mapped")));
        }
        table.mappings.insert(address, memory);
        Ok(())
    }

    /// Ends a mapping. Returns false if there is none like it.
    pub(super) fn unmap(&self, address: u64, bytes: usize) -> bool {
        let mut table = self.table_mut();
        let is_there = table.mappings.get(&address).is_some_and(|memory| memory.bytes() == bytes);
        if is_there {
            table.mappings.remove(&address);
        }
        is_there
    }

    /// Ends all mappings, for good.
    pub(super) fn stop(&self) {
        let mut table = self.table_mut();
        table.mappings.clear();
        table.is_stopped = true;
    }

    /// Returns when no access is under way for a queue whose end has been noted before.
    pub(super) fn settled(&self) {
        drop(self.table_mut());
    }

    /// Returns the number of mapped bytes.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.table().mappings.values().map(|memory| memory.bytes() as u64).sum()
    }

    pub(super) fn faults(&self) -> Vec<DmaFault> {
        lock(&self.faults).clone()
    }

    /// Begins an access for a queue. It is stopped if the queue is at its end, or the memory is not mapped.
    fn enter(
        &self,
        is_live: &AtomicBool,
        address: u64,
        bytes: usize,
        is_write: bool,
    ) -> Result<RwLockReadGuard<'_, Table>, Stopped> {
        let table = self.table();
        if !is_live.load(Ordering::Acquire) {
            return Err(Stopped);
        }
        if !table.covers(address, bytes) {
            drop(table);
            let mut faults = lock(&self.faults);
            if faults.len() < FAULTS_MAX {
                faults.push(DmaFault { address, bytes, is_write });
            }
            return Err(Stopped);
        }
        let counter = if is_write { &self.written_bytes } else { &self.read_bytes };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(table)
    }

    pub(super) fn read(&self, is_live: &AtomicBool, address: u64, into: &mut [u8]) -> Result<(), Stopped> {
        let table = self.enter(is_live, address, into.len(), false)?;
        table.pieces(address, into.len(), |memory, at, part| {
            // SAFETY: the table has the mapping, and holds it during the call. The controller reads only what an entry
            // of a submission queue names, and that queue is not at its end.
            unsafe { memory.read(at, &mut into[part]) }
        });
        Ok(())
    }

    pub(super) fn write(&self, is_live: &AtomicBool, address: u64, from: &[u8]) -> Result<(), Stopped> {
        let table = self.enter(is_live, address, from.len(), true)?;
        table.pieces(address, from.len(), |memory, at, part| {
            // SAFETY: as for `read`.
            unsafe { memory.write(at, &from[part]) }
        });
        Ok(())
    }

    /// Loads a word of a ring or of a page of doorbells.
    pub(super) fn load(&self, is_live: &AtomicBool, address: u64) -> Result<u32, Stopped> {
        let table = self.enter(is_live, address, 4, false)?;
        let (memory, at) = table.find(address).expect("it is covered");
        // SAFETY: the mapping is there, as for `read`. Rings and doorbells are all that the controller loads from.
        Ok(unsafe { memory.load(at) })
    }

    /// Stores words into a ring or a page of doorbells, the last one at last.
    pub(super) fn store(&self, is_live: &AtomicBool, address: u64, words: &[u32]) -> Result<(), Stopped> {
        let table = self.enter(is_live, address, 4 * words.len(), true)?;
        for (number, word) in words.iter().enumerate() {
            let (memory, at) = table.find(address + 4 * number as u64).expect("it is covered");
            // SAFETY: as for `load`.
            unsafe { memory.store(at, *word) }
        }
        Ok(())
    }

    /// Collects bytes of a transfer from `at` on, out of the segments of the whole.
    pub(super) fn gather(
        &self,
        is_live: &AtomicBool,
        segments: &[Segment],
        at: usize,
        into: &mut [u8],
    ) -> Result<(), Stopped> {
        for (segment, part) in cut(segments, at, into.len()) {
            match self.read(is_live, segment.address, &mut into[part.clone()]) {
                Err(Stopped) if self.hides_faults => into[part].fill(0),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Spreads bytes of a transfer from `at` on over the segments of the whole.
    pub(super) fn scatter(
        &self,
        is_live: &AtomicBool,
        segments: &[Segment],
        at: usize,
        from: &[u8],
    ) -> Result<(), Stopped> {
        for (segment, part) in cut(segments, at, from.len()) {
            match self.write(is_live, segment.address, &from[part]) {
                Err(Stopped) if self.hides_faults => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// Returns the pieces of memory for `bytes` bytes of a transfer from `at` on, each with its range of those bytes.
fn cut(segments: &[Segment], at: usize, bytes: usize) -> impl Iterator<Item = (Segment, std::ops::Range<usize>)> + '_ {
    let mut place = 0;
    segments.iter().filter_map(move |segment| {
        let start = place;
        place += segment.bytes;
        let (from, to) = (start.max(at), place.min(at + bytes));
        let piece =
            Segment { address: segment.address + from.saturating_sub(start) as u64, bytes: to.saturating_sub(from) };
        (from < to).then(|| (piece, from - at..to - at))
    })
}
