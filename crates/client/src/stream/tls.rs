//! TLS 1.3 over a TCP socket.
//!
//! A write first sends the encrypted bytes that wait, and encrypts more only when none does. So a pipeline waits as
//! plain bytes with its caller, as it does over a socket.

use crate::options::{Tls, TransportKind};
use crate::stream::Stream;
use crate::stream::socket::{Socket, late};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub(crate) struct Secured {
    socket: Socket,
    connection: ClientConnection,
}

/// The socket as TLS reads and writes it.
struct Raw<'a>(&'a mut Socket);

impl Read for Raw<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Agrees on keys with the server `host`.
///
/// # Errors
/// The server or its certificate is another one, or the deadline passes first.
pub(crate) fn secure(socket: Socket, tls: &Tls, host: &str, deadline: Instant) -> io::Result<Box<dyn Stream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    let connection = ClientConnection::new(Arc::clone(tls.config()), name).map_err(io::Error::other)?;
    let mut secured = Secured { socket, connection };
    while secured.connection.is_handshaking() {
        match secured.advance() {
            Ok(0) => return Err(io::Error::new(ErrorKind::ConnectionReset, "the server ended the handshake of TLS")),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !secured.socket.wait(secured.connection.wants_write(), deadline)? {
                    return Err(late());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Box::new(secured))
}

impl Secured {
    /// Sends the encrypted bytes that wait.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Raw(&mut self.socket))?;
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room, and takes bytes of the socket. Returns their number.
    fn advance(&mut self) -> io::Result<usize> {
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let bytes = self.connection.read_tls(&mut Raw(&mut self.socket))?;
        let processed = self.connection.process_new_packets();
        processed.map_err(|error| {
            // The server gets the reason, if there is room.
            _ = self.flush();
            io::Error::new(ErrorKind::InvalidData, error)
        })?;
        Ok(bytes)
    }
}

impl Stream for Secured {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // An answer that is cut off shows in its length.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            self.advance()?;
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let bytes = self.connection.writer().write_vectored(parts)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes),
        }
    }

    fn wait(&mut self, to_write: bool, until: Instant) -> io::Result<bool> {
        // Plain bytes are there, or the end.
        if !self.connection.wants_read() {
            return Ok(true);
        }
        // Encrypted bytes that wait go with the next read.
        self.socket.wait(to_write || self.connection.wants_write(), until)
    }

    fn line_read_bytes(&self) -> usize {
        self.socket.line_read_bytes()
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tls
    }

    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Err(self)
    }
}
