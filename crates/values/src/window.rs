//! A part of a file in memory, for readers that go through the file from front to back.

use crate::Result;
use situ_storage::Reader;
use situ_storage::memory::resize;

/// The number of bytes that are read at a time.
const WINDOW_BYTES: u64 = 1 << 20;

pub(crate) struct Window {
    bytes: Vec<u8>,
    /// The place of the first byte.
    at: u64,
    /// The offset from which on nothing is read.
    limit: u64,
    read_bytes: u64,
}

impl Window {
    pub(crate) fn new(limit: u64) -> Window {
        Window { bytes: Vec::new(), at: 0, limit, read_bytes: 0 }
    }

    /// Returns `bytes` bytes at `offset`; `None` if they reach behind the limit.
    pub(crate) fn bytes(&mut self, file: &dyn Reader, offset: u64, bytes: u64) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= self.limit) else { return Ok(None) };
        if offset < self.at || end > self.at + self.bytes.len() as u64 {
            let length = bytes.max(WINDOW_BYTES).min(self.limit - offset);
            resize(&mut self.bytes, length as usize, file.path())?;
            file.read_at(offset, &mut self.bytes).inspect_err(|_| self.bytes.clear())?;
            self.at = offset;
            self.read_bytes += length;
        }
        let at = (offset - self.at) as usize;
        Ok(self.bytes.get(at..at + bytes as usize))
    }

    /// Returns all that is in memory from `offset` on, and at least `bytes` bytes; `None` if these reach behind the
    /// limit.
    pub(crate) fn from(&mut self, file: &dyn Reader, offset: u64, bytes: u64) -> Result<Option<&[u8]>> {
        if self.bytes(file, offset, bytes)?.is_none() {
            return Ok(None);
        }
        Ok(self.bytes.get((offset - self.at) as usize..))
    }

    /// Returns the offset from which on nothing is read.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }
}
