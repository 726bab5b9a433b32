//! The operations in flight: the buffers that the kernel owns.
//!
//! A buffer that was handed in lies here, and nowhere else, until its completion was taken from the ring. Only then
//! does an owner get it that could free it. The kernel names an entry by a key, which also carries the number of uses
//! of its place. So a completion that does not belong to the present entry is noticed and not acted upon.

use crate::{Buffer, Op, Ticket};
use std::io;

/// An operation that the kernel has, or will have with the next submission.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) ticket: Ticket,
    pub(crate) op: Op,
    pub(crate) buffer: Buffer,
    /// Bytes of the operation that are done already.
    pub(crate) done: u64,
    /// Bytes that the command under way is for, where it is not for all that is left.
    pub(crate) under_way: u64,
    /// The memory that the command under way points at in addition to the buffer.
    pub(crate) aside: Option<Buffer>,
    /// Times that the kernel has asked to try again, since the last progress.
    pub(crate) retries: u32,
    /// The place where its buffer is registered with the ring.
    pub(crate) registered: Option<u16>,
    /// True if it is in the ring whose completions are polled for.
    pub(crate) polled: bool,
}

impl InFlight {
    pub(crate) fn new(ticket: Ticket, op: Op, buffer: Buffer) -> InFlight {
        InFlight { ticket, op, buffer, done: 0, under_way: 0, aside: None, registered: None, retries: 0, polled: false }
    }

    /// Returns the part of the buffer that is still to be transferred.
    pub(crate) fn rest(&self) -> *mut [u8] {
        let done = self.done as usize;
        assert!(done <= self.buffer.len(), "a transfer is never longer than its buffer");
        std::ptr::slice_from_raw_parts_mut(self.buffer.address().wrapping_add(done), self.buffer.len() - done)
    }
}

/// The next step for an operation.
pub(crate) enum Plan<S> {
    /// Give this entry to the kernel, or this command to the drive.
    Entry(S),
    /// The operation is done already, without the kernel or within a call.
    Done(io::Result<()>),
}

/// The meaning of a result.
pub(crate) enum Step {
    Done(io::Result<()>),
    /// A part is done and noted in the operation: plan it again.
    Continue,
    /// Nothing was done, and the kernel or the drive asks to try again.
    Retry,
}

#[derive(Debug)]
struct Place<T> {
    uses: u32,
    content: Option<T>,
}

/// Places for a fixed number of operations.
#[derive(Debug)]
pub(crate) struct Table<T = InFlight> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(crate) fn new(places: u32) -> Table<T> {
        let empty = |_| Place { uses: 0, content: None };
        Table { places: (0..places).map(empty).collect(), free: (0..places).rev().collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes the operation in and names it; gives it back if all places are taken.
    pub(crate) fn insert(&mut self, operation: T) -> Result<u64, T> {
        let Some(index) = self.free.pop() else { return Err(operation) };
        let place = &mut self.places[index as usize];
        place.uses = place.uses.wrapping_add(1);
        place.content = Some(operation);
        Ok(u64::from(place.uses) << 32 | u64::from(index))
    }

    pub(crate) fn get(&mut self, key: u64) -> Option<&mut T> {
        let place = self.places.get_mut((key & 0xffff_ffff) as usize)?;
        if place.uses == (key >> 32) as u32 { place.content.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        self.get(key)?;
        let index = (key & 0xffff_ffff) as u32;
        self.free.push(index);
        self.places[index as usize].content.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(ticket: u64) -> InFlight {
        InFlight::new(Ticket(ticket), Op::Flush, Buffer::new(1))
    }

    #[test]
    fn a_full_table_gives_the_operation_back() {
        let mut table = Table::new(2);
        table.insert(operation(0)).unwrap();
        let key = table.insert(operation(1)).unwrap();
        assert_eq!(table.insert(operation(2)).unwrap_err().ticket, Ticket(2));
        assert_eq!(table.remove(key).unwrap().ticket, Ticket(1));
        table.insert(operation(3)).unwrap();
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_key_names_one_use_of_a_place() {
        let mut table = Table::new(1);
        let first = table.insert(operation(0)).unwrap();
        table.remove(first).unwrap();
        let second = table.insert(operation(1)).unwrap();
        assert_ne!(first, second);
        assert!(table.remove(first).is_none());
        assert!(table.get(u64::MAX).is_none());
        assert_eq!(table.remove(second).unwrap().ticket, Ticket(1));
        assert_eq!(table.len(), 0);
    }

    /// The kernel writes through an address it was given before the buffer moved in and out of the table.
    #[test]
    fn a_buffer_does_not_move_while_the_table_has_it() {
        let mut table = Table::new(3);
        let mut keys = Vec::new();
        for ticket in 0..3 {
            let operation = operation(ticket);
            let address = operation.buffer.address();
            keys.push((table.insert(operation).unwrap(), address));
        }
        for (key, address) in keys {
            // SAFETY: the table holds the buffer, and nobody looks into it.
            unsafe { address.add(17).write(key as u8 + 1) };
            let buffer = table.remove(key).unwrap().buffer;
            assert_eq!(buffer[17], key as u8 + 1);
        }
    }
}
