//! Shared and remote memory: rings for the bytes, and a socket.
//!
//! A wait looks at the rings for a few microseconds and then sleeps. See the crate `situ-transport`.

use crate::options::TransportKind;
use crate::stream::Stream;
use situ_transport::ClientEnd;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A connection in memory.
pub(crate) struct Memory {
    end: ClientEnd,
    kind: TransportKind,
    /// The last write found no room for a part.
    was_cut: bool,
    /// The server is gone, and all that it has written was read.
    is_over: bool,
}

impl Memory {
    pub(crate) fn new(end: ClientEnd, kind: TransportKind) -> Memory {
        Memory { end, kind, was_cut: false, is_over: false }
    }
}

impl Stream for Memory {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.end.read(room)? {
            0 if !self.is_over => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = self.end.write_parts(parts)?;
        self.was_cut = bytes < parts.iter().map(|part| part.len()).sum();
        if bytes == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(bytes) }
    }

    fn wait(&mut self, to_write: bool, until: Instant) -> io::Result<bool> {
        if to_write && !self.was_cut {
            return Ok(true);
        }
        match self.end.wait(until) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.is_over = true;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn line_read_bytes(&self) -> usize {
        128
    }

    fn is_quiet(&mut self) -> bool {
        self.end.read(&mut [0]).is_ok_and(|bytes| bytes == 0) && self.end.is_open()
    }

    fn kind(&self) -> TransportKind {
        self.kind
    }

    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}
