//! One side of a connection, whatever carries its bytes.

use crate::rings::Rings;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

/// One side of a connection: bytes in and bytes out, without a wait. Shared memory and remote memory have it.
///
/// A side that has nothing to do calls [`may_sleep`](Link::may_sleep), and then waits for the socket of the connection
/// and for the [`descriptor`](Link::descriptor).
pub trait Link: fmt::Debug + Send {
    /// Reads bytes into `into`. Returns their number, 0 if there are none.
    ///
    /// # Errors
    /// The other side has broken the protocol ([`Breach`](crate::Breach)), or the link is broken and all that has come
    /// was read.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Appends bytes to `into`, as many as fit into its capacity. Returns their number, 0 if there are none.
    ///
    /// # Errors
    /// As [`read`](Link::read).
    fn read_to(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;

    /// Writes as much of `parts` as there is room for, one part after another. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`read`](Link::read).
    fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Returns true if there is room where the last write found too little, or, if the caller `reads`, bytes to read. A
    /// caller that spins asks this.
    ///
    /// # Errors
    /// As [`read`](Link::read).
    fn is_ready(&mut self, reads: bool) -> io::Result<bool>;

    /// Asks for a wake-up, before the caller sleeps: for room if the last write found too little, and for bytes if the
    /// caller `reads`. Returns false if there is something to do instead.
    ///
    /// # Errors
    /// As [`read`](Link::read).
    fn may_sleep(&mut self, reads: bool) -> io::Result<bool>;

    /// Asks for no more wake-ups. One may be on its way.
    fn awake(&mut self);

    /// Returns true if the other side waits for a bell on the socket.
    fn must_ring(&mut self) -> bool;

    /// Returns true if the end of the connection takes away no byte that was written. If not, the link
    /// [is ready](Link::is_ready) when it does not.
    fn is_flushed(&mut self) -> bool {
        true
    }

    /// Returns the descriptor that becomes readable with a wake-up; `None` if bells on the socket are the only ones.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the wake-ups of the descriptor.
    fn take_events(&mut self) {}
}

/// The RDMA devices that a server uses. Each connection uses the device that has the address of its socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RdmaDevices {
    /// None.
    #[default]
    Off,
    /// Any device.
    Any,
    /// One device, by its name. A server does not start without it.
    Named(String),
}

impl Link for Rings {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(Rings::read(self, into)?)
    }

    fn read_to(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        Ok(Rings::read_to(self, into)?)
    }

    fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(Rings::write_parts(self, parts)?)
    }

    #[inline]
    fn is_ready(&mut self, reads: bool) -> io::Result<bool> {
        Ok(Rings::is_ready(self, reads)?)
    }

    fn may_sleep(&mut self, reads: bool) -> io::Result<bool> {
        Ok(Rings::may_sleep(self, reads)?)
    }

    fn awake(&mut self) {
        Rings::awake(self);
    }

    fn must_ring(&mut self) -> bool {
        Rings::must_ring(self)
    }
}
