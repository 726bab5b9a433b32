//! Byte streams to a server, and how they are made.
//!
//! A stream never blocks in [`read`](Stream::read) and [`write`](Stream::write). Only [`wait`](Stream::wait) blocks,
//! and never past its deadline. So one thread can send a long request and take long answers at the same time: neither
//! side waits for ever because the buffers of both directions are full.

mod memory;
mod socket;
#[cfg(feature = "tls")]
mod tls;

use crate::options::{Address, Tls, TransportChoice, TransportKind};
use memory::Memory;
use situ_transport::{ClientEnd, Refused};
use socket::Socket;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The size of each ring in memory. A longer value passes in pieces.
const RING_BYTES: u64 = 256 << 10;

/// A connection to a server.
pub(crate) trait Stream: Send {
    /// Copies received bytes to `room` and returns their number, 0 at the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is nothing to read now.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;

    /// Sends some bytes of `parts`, one part after the other, and returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room now.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until there is something to read, or, with `to_write`, room to write. Returns false if `until` passed
    /// first.
    fn wait(&mut self, to_write: bool, until: Instant) -> io::Result<bool>;

    /// Returns the number of bytes to ask for when a line is expected. A call to the system is dearer than a copy, so a
    /// socket takes more at once. Where reading is only a copy, a small number lets the value behind the line be copied
    /// to its place at once.
    fn line_read_bytes(&self) -> usize;

    /// Returns true if the server has neither closed the stream nor said anything.
    fn is_quiet(&mut self) -> bool {
        self.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn kind(&self) -> TransportKind;

    /// Returns the socket of a stream that is a socket, and any other stream as it is.
    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>>;
}

/// Connects to a server.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the deadline passes first.
pub(crate) fn connect(address: &Address, tls: Option<&Tls>, deadline: Instant) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp { host, port } => {
            let socket = socket::connect_tcp(host, *port, deadline)?;
            match tls {
                Some(tls) => secure(socket, tls, host, deadline),
                None => Ok(Box::new(socket)),
            }
        }
        Address::Unix(path) => Ok(Box::new(socket::connect_unix(path, deadline)?)),
    }
}

#[cfg(feature = "tls")]
use tls::secure;

#[cfg(not(feature = "tls"))]
fn secure(_: Socket, tls: &Tls, _: &str, _: Instant) -> io::Result<Box<dyn Stream>> {
    match tls.never {}
}

/// Returns the best stream that this one can become by the choice: shared memory if it is a Unix socket, remote memory
/// if it is a TCP socket, and the server offers that. The server has answered all commands.
///
/// # Errors
/// The stream breaks, the server closes it instead of an answer, or memory was chosen and one of both sides lacks it.
pub(crate) fn upgrade(
    stream: Box<dyn Stream>,
    choice: TransportChoice,
    deadline: Instant,
) -> io::Result<Box<dyn Stream>> {
    let kind = match (stream.kind(), choice) {
        (TransportKind::UnixSocket, TransportChoice::Auto | TransportChoice::SharedMemory) => {
            TransportKind::SharedMemory
        }
        (TransportKind::Tcp, TransportChoice::Auto | TransportChoice::Rdma) => TransportKind::Rdma,
        _ => return Ok(stream),
    };
    let socket_kind = stream.kind();
    let socket = match stream.into_socket() {
        Ok(socket) => socket,
        Err(stream) => return Ok(stream),
    };
    let upgraded = match kind {
        TransportKind::SharedMemory => ClientEnd::upgrade(socket, RING_BYTES, deadline)?,
        _ => upgrade_remote(socket, choice, deadline)?,
    };
    match upgraded {
        Ok(end) => Ok(Box::new(Memory::new(end, kind))),
        Err(refused) if choice != TransportChoice::Auto => {
            Err(io::Error::new(io::ErrorKind::Unsupported, refused.to_string()))
        }
        Err(refused) => {
            let mut socket = Socket::new(refused.socket, socket_kind);
            if socket.is_quiet() { Ok(Box::new(socket)) } else { Err(io::ErrorKind::ConnectionReset.into()) }
        }
    }
}

/// Moves a TCP connection into remote memory. A client without a device asks for nothing.
#[cfg(feature = "verbs")]
fn upgrade_remote(
    socket: OwnedFd,
    choice: TransportChoice,
    deadline: Instant,
) -> io::Result<Result<ClientEnd, Refused>> {
    match situ_transport::verbs::Wish::new(&socket, RING_BYTES) {
        Ok(wish) => ClientEnd::upgrade_remote(socket, wish, deadline),
        Err(error) if choice == TransportChoice::Auto => {
            Ok(Err(Refused { socket, transport: "RDMA", answer: error.to_string() }))
        }
        Err(error) => Err(error),
    }
}

#[cfg(not(feature = "verbs"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature there are errors")]
fn upgrade_remote(socket: OwnedFd, _: TransportChoice, _: Instant) -> io::Result<Result<ClientEnd, Refused>> {
    Ok(Err(Refused { socket, transport: "RDMA", answer: "the client is built without it".to_owned() }))
}
