//! Buffers that the kernel keeps pinned, so that it need not find and pin their pages for each transfer.
//!
//! It pays for long transfers only. It takes 40 to 55% off the processor time of one of 1 MiB, 10 to 25% off one of 64
//! KiB, and nothing measurable off a page (`docs/evidence/devices.md`). Registering costs about what one transfer
//! saves. So a buffer of at least [`BYTES_MIN`] is registered when one queue sees it for the [`SIGHTINGS`]th time. A
//! caller that makes a new buffer for each transfer is left alone.
//!
//! **Why a registration cannot outlive its use.** A registration stands for pages of memory, not for an address. When a
//! buffer is freed, the kernel keeps the pages of a registration, and the address gets another meaning. A transfer
//! through the old registration would go to pages without an owner. Therefore registrations are found by the identity
//! of the buffer, which no other buffer ever has again. The rest of a freed one is memory, at most [`PINNED_BYTES_MAX`]
//! to a queue, until another takes its place.

use super::ring::Ring;
use crate::Buffer;
use io_uring::{cqueue, squeue};
use std::io;
use std::ptr::null_mut;

/// Shorter buffers are not registered.
const BYTES_MIN: usize = 64 << 10;

/// The number of uses of a buffer before it is registered.
const SIGHTINGS: u32 = 3;

/// Places for registered buffers in a ring.
const PLACES: usize = 8;

/// Memory that a queue keeps registered at most.
const PINNED_BYTES_MAX: usize = 4 << 20;

/// The number of long transfers without a place's own buffer after which the place goes to another one. With a lower
/// number, more buffers in turn than places would each time put out the one that comes next.
const UNUSED_FOR: u64 = 4 * PLACES as u64;

/// Buffers whose sightings are counted.
const WATCHED: usize = 16;

/// `struct iovec`.
#[repr(C)]
struct Memory {
    address: *mut u8,
    bytes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct BufferPlace {
    /// The buffer's identity; 0 is no buffer's.
    id: u64,
    bytes: usize,
    used: u64,
    /// Operations in flight that name the place.
    in_flight: u32,
}

/// The registered buffers of one ring.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    places: [BufferPlace; PLACES],
    watched: [(u64, u32); WATCHED],
    next_watched: usize,
    uses: u64,
    state: RegistryState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RegistryState {
    #[default]
    NoPlacesYet,
    Ready,
    /// The kernel does not know registered buffers that change, or lets this process pin no more.
    Refused,
}

impl Registry {
    /// Returns the place at which the buffer is registered with the ring, if it is, or is now. The place is the
    /// caller's until [`release`](Registry::release).
    pub(crate) fn place_of<S, C>(&mut self, buffer: &Buffer, ring: &Ring<S, C>) -> Option<u16>
    where
        S: squeue::EntryMarker,
        C: cqueue::EntryMarker,
    {
        if buffer.len() < BYTES_MIN || self.state == RegistryState::Refused {
            return None;
        }
        self.uses += 1;
        let found = self.places.iter().position(|place| place.id == buffer.id());
        if found.is_none() && !self.is_worth_it(buffer) {
            return None;
        }
        let index = match found {
            Some(index) => index,
            None => match self.register(buffer, ring) {
                Ok(Some(index)) => index,
                Ok(None) => return None,
                Err(_) => {
                    self.state = RegistryState::Refused;
                    return None;
                }
            },
        };
        self.places[index].used = self.uses;
        self.places[index].in_flight += 1;
        Some(index as u16)
    }

    /// Notes that an operation that named the place is over.
    pub(crate) fn release(&mut self, place: u16) {
        self.places[usize::from(place)].in_flight -= 1;
    }

    /// Operations in flight that name a place; `None` if the system registers nothing.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> Option<u32> {
        (self.state != RegistryState::Refused).then(|| self.places.iter().map(|place| place.in_flight).sum())
    }

    /// Counts a sighting.
    fn is_worth_it(&mut self, buffer: &Buffer) -> bool {
        if buffer.len() > PINNED_BYTES_MAX {
            return false;
        }
        if let Some((_, sightings)) = self.watched.iter_mut().find(|(id, _)| *id == buffer.id()) {
            *sightings += 1;
            return *sightings >= SIGHTINGS;
        }
        self.watched[self.next_watched] = (buffer.id(), 1);
        self.next_watched = (self.next_watched + 1) % WATCHED;
        false
    }

    /// Returns `None` if the operations in flight leave no room.
    fn register<S, C>(&mut self, buffer: &Buffer, ring: &Ring<S, C>) -> io::Result<Option<usize>>
    where
        S: squeue::EntryMarker,
        C: cqueue::EntryMarker,
    {
        if self.state == RegistryState::NoPlacesYet {
            ring.submitter().register_buffers_sparse(PLACES as u32)?;
            self.state = RegistryState::Ready;
        }
        loop {
            let idle = (0..PLACES).filter(|place| self.can_be_replaced(*place));
            let fits = |place: &BufferPlace| self.pinned_bytes() - place.bytes + buffer.len() <= PINNED_BYTES_MAX;
            let Some(oldest) = idle.min_by_key(|place| self.places[*place].used) else { return Ok(None) };
            if fits(&self.places[oldest]) {
                update(ring, oldest, Memory { address: buffer.address(), bytes: buffer.len() })?;
                self.places[oldest] =
                    BufferPlace { id: buffer.id(), bytes: buffer.len(), used: self.uses, in_flight: 0 };
                return Ok(Some(oldest));
            }
            // One that is free already makes no room; the next is one that is not.
            let taken = (0..PLACES).filter(|place| self.can_be_replaced(*place) && self.places[*place].bytes > 0);
            let Some(oldest) = taken.min_by_key(|place| self.places[*place].used) else { return Ok(None) };
            update(ring, oldest, Memory { address: null_mut(), bytes: 0 })?;
            self.places[oldest] = BufferPlace::default();
        }
    }

    fn can_be_replaced(&self, place: usize) -> bool {
        let BufferPlace { id, used, in_flight, .. } = self.places[place];
        in_flight == 0 && (id == 0 || self.uses - used > UNUSED_FOR)
    }

    fn pinned_bytes(&self) -> usize {
        self.places.iter().map(|place| place.bytes).sum()
    }
}

/// Puts other memory into a place, which no operation in flight names.
fn update<S, C>(ring: &Ring<S, C>, place: usize, memory: Memory) -> io::Result<()>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    // SAFETY: `Memory` is laid out as `struct iovec`, and the slice lives through the call. The kernel pins the pages
    // that it names. It never touches them except for an operation that names the place, and only an operation on this
    // very buffer does (see above).
    unsafe {
        let memory = std::slice::from_raw_parts((&raw const memory).cast(), 1);
        ring.submitter().register_buffers_update(place as u32, memory, None)
    }
}

#[cfg(test)]
mod tests;
