//! The data block of a storage command, while it arrives.
//!
//! Its memory is a [`Buffer`], which may be one that another value has left. A block of up to [`FIRST_BYTES`] has all
//! of its memory at once. A longer one doubles it as it arrives.

use crate::engine::Engine;
use crate::engine::cache::{CacheExtras, Reserved};
use situ_device::{Buffer, PAGE_BYTES};

/// The most memory that a block has before its first bytes have come: that of a value of 1 MiB and its end of line.
const FIRST_BYTES: usize = (1 << 20) + PAGE_BYTES;
/// The longest read.
const READ_BYTES_MAX: usize = 256 << 10;

/// A storage command whose large data block is arriving.
pub(super) struct Body {
    /// The command, without its end of line.
    pub(super) line: Vec<u8>,
    buffer: Option<Buffer>,
    /// Bytes that have come.
    arrived: usize,
    /// The bytes of data and its end of line.
    needed: usize,
    /// Memory of the buffer, as far as it is filled.
    reserved: Reserved,
    counted: usize,
    /// The number of bytes that are still to come and will be dropped, if there is no memory for the body.
    pub(super) refused: Option<usize>,
}

impl Body {
    /// Begins with the bytes that have come behind the command.
    pub(super) fn begin(line: &[u8], needed: usize, arrived: &[u8], engine: &impl Engine) -> Body {
        let (line, reserved) = (line.to_vec(), Reserved::default());
        let mut body = Body { line, buffer: None, arrived: 0, needed, reserved, counted: 0, refused: None };
        let first = needed.min(FIRST_BYTES).max(arrived.len());
        if body.count(arrived.len().max(READ_BYTES_MAX).min(first), engine) && body.make_room(first) {
            body.buffer.iter_mut().for_each(|buffer| buffer[..arrived.len()].copy_from_slice(arrived));
        } else {
            body.refuse();
        }
        body.came(arrived.len());
        body
    }

    /// Returns true if all of it has come, or nothing of it will be stored.
    pub(super) fn is_whole(&self) -> bool {
        self.arrived >= self.needed || self.refused.is_some()
    }

    /// Returns the data and its end of line.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().and_then(|buffer| buffer.get(..self.arrived)).unwrap_or_default()
    }

    /// Returns the place for the next bytes. `None` if the body is whole, or there is no memory for more of it.
    pub(super) fn room(&mut self, engine: &impl Engine) -> Option<&mut [u8]> {
        let bytes = self.buffer.as_ref()?.len();
        let has_room = self.arrived < bytes || self.make_room(self.needed.min(2 * bytes));
        let end = self.needed.min(self.arrived + READ_BYTES_MAX).min(self.buffer.as_ref()?.len());
        if !has_room || !self.count(end, engine) {
            self.refuse();
            return None;
        }
        self.buffer.as_mut()?.get_mut(self.arrived..end).filter(|room| !room.is_empty())
    }

    /// Notes that `bytes` bytes have come.
    pub(super) fn came(&mut self, bytes: usize) {
        match &mut self.refused {
            Some(missing) => *missing -= bytes,
            None => self.arrived += bytes,
        }
    }

    /// Takes memory for `bytes` bytes in all. The system backs it as it is filled.
    fn make_room(&mut self, bytes: usize) -> bool {
        match &mut self.buffer {
            Some(buffer) => buffer.try_grow(bytes),
            None => {
                self.buffer = Buffer::try_unfilled(bytes);
                self.buffer.is_some()
            }
        }
    }

    /// Counts the memory of the first `bytes` bytes. A client that only announces a block holds no more than one read.
    fn count(&mut self, bytes: usize, engine: &impl Engine) -> bool {
        let bytes = bytes.next_multiple_of(PAGE_BYTES).max(self.counted);
        let more = bytes - self.counted;
        let has_memory = more == 0 || engine.cache().is_none_or(|cache| cache.reserve(&mut self.reserved, more));
        if has_memory {
            self.counted = bytes;
        }
        has_memory
    }

    /// Drops the body, and what is still to come of it.
    fn refuse(&mut self) {
        self.refused = Some(self.needed - self.arrived);
        (self.buffer, self.reserved, self.counted) = (None, Reserved::default(), 0);
    }
}

#[cfg(test)]
mod tests;
