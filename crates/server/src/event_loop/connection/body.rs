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
    /// Memory of the buffer.
    reserved: Reserved,
    /// The number of bytes that are still to come and will be dropped, if there is no memory for the body.
    pub(super) refused: Option<usize>,
}

impl Body {
    /// Begins with the bytes that have come behind the command.
    pub(super) fn begin(line: &[u8], needed: usize, arrived: &[u8], engine: &impl Engine) -> Body {
        let (line, reserved) = (line.to_vec(), Reserved::default());
        let mut body = Body { line, buffer: None, arrived: 0, needed, reserved, refused: None };
        if body.make_room(needed.min(FIRST_BYTES).max(arrived.len()), engine)
            && let Some(buffer) = &mut body.buffer
        {
            buffer[..arrived.len()].copy_from_slice(arrived);
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

    /// Returns the place for the next bytes. `None` if the body is whole.
    pub(super) fn room(&mut self, engine: &impl Engine) -> Option<&mut [u8]> {
        let bytes = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        if self.arrived == bytes && !self.make_room(self.needed.min(2 * bytes), engine) {
            return None;
        }
        let end = self.needed.min(self.arrived + READ_BYTES_MAX);
        let buffer = self.buffer.as_mut()?;
        let end = end.min(buffer.len());
        buffer.get_mut(self.arrived..end).filter(|room| !room.is_empty())
    }

    /// Notes that `bytes` bytes have come.
    pub(super) fn came(&mut self, bytes: usize) {
        match &mut self.refused {
            Some(missing) => *missing -= bytes,
            None => self.arrived += bytes,
        }
    }

    /// Counts and takes memory for `bytes` bytes in all. If there is none, drops the body.
    fn make_room(&mut self, bytes: usize, engine: &impl Engine) -> bool {
        let before = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
        let more = bytes.next_multiple_of(PAGE_BYTES).saturating_sub(before);
        let is_counted = engine.cache().is_none_or(|cache| cache.reserve(&mut self.reserved, more));
        let has_room = is_counted
            && match &mut self.buffer {
                Some(buffer) => buffer.try_grow(bytes),
                None => {
                    self.buffer = Buffer::try_unfilled(bytes);
                    self.buffer.is_some()
                }
            };
        if !has_room {
            self.refused = Some(self.needed - self.arrived);
            (self.buffer, self.reserved) = (None, Reserved::default());
        }
        has_room
    }
}

#[cfg(test)]
mod tests;
