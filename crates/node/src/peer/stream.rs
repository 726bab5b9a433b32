//! The functions of a socket that a connection needs.

use std::fmt;
use std::io::{self, Read, Write};

/// Writes as many bytes as the stream takes without a wait; `WouldBlock` if it takes none.
pub(crate) type TryWrite = Box<dyn FnMut(&[u8]) -> io::Result<usize> + Send>;

/// A pair of byte streams to and from the other end.
///
/// A write that makes no progress for long fails by itself: sockets have a timeout for it. Reads wait without a bound.
pub struct Stream {
    /// The name of the other end, for messages: "node 10.0.0.2:7070".
    pub name: String,
    /// Bytes from the other end.
    pub reader: Box<dyn Read + Send>,
    /// Bytes to the other end.
    pub writer: Box<dyn Write + Send>,
    /// The same direction for threads that must not wait; `None` of a stream that has no such way.
    pub try_write: Option<TryWrite>,
    /// Ends both directions: a thread that reads or writes comes back at once. May be called several times.
    pub hang_up: Box<dyn Fn() + Send + Sync>,
    /// The value that only the two ends of a TLS connection know; empty without TLS.
    pub binding: Vec<u8>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.name)
    }
}
