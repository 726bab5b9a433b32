//! Sockets as [`Stream`]s: TCP and Unix sockets, with TLS or without.
//!
//! A connection is made, and TLS is agreed on, before a [`Peer`](crate::Peer) begins. The timeout of the caller is for
//! all of that together, but for the name of a host: nothing bounds how long the system looks for its address. Later,
//! reads wait without a bound (the peer counts the silence), and a write that makes no progress for [`WRITE_STALL_MAX`]
//! fails.

mod tls;

pub use tls::{ServerTls, TlsRoots};

use crate::address::Place;
use crate::error::CallError;
use crate::peer::{Stream, TryWrite};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use situ_storage::{Error, Result};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A write that the other end takes nothing of for this long fails.
pub(crate) const WRITE_STALL_MAX: Duration = Duration::from_secs(10);

/// The timeout of a probe whether a process listens on a socket file.
const PROBE: Duration = Duration::from_secs(1);

/// A connected socket.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write)),
            Socket::Unix(socket) => socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write)),
        }
    }

    fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(socket) => Socket::Tcp(socket.try_clone()?),
            Socket::Unix(socket) => Socket::Unix(socket.try_clone()?),
        })
    }

    /// Writes what the socket takes without a wait.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(match self {
            Socket::Tcp(socket) => rustix::net::send(socket, bytes, flags)?,
            Socket::Unix(socket) => rustix::net::send(socket, bytes, flags)?,
        })
    }

    fn shut_down(&self) {
        // It may be closed already; then there is nothing to end.
        let _ = match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(into),
            Socket::Unix(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to a node, in TLS if `roots` are given, within `timeout`. The time in which the system looks for the
/// address of a host's name is not bounded.
///
/// # Errors
/// There is no such host, no process listens there, or TLS cannot be agreed on.
pub fn connect(place: &Place, roots: Option<&TlsRoots>, timeout: Duration) -> Result<Stream, CallError> {
    let name = format!("node {place}");
    let lost = |e: io::Error| CallError::Lost { node: name.clone(), why: reason(&e) };
    let deadline = Instant::now() + timeout;
    let (socket, host) = match place {
        Place::Tcp { host, port } => (Socket::Tcp(connect_tcp(host, *port, timeout).map_err(lost)?), host.as_str()),
        Place::Unix(path) => (Socket::Unix(connect_unix(path, timeout).map_err(lost)?), "localhost"),
    };
    match roots {
        None => plain(socket, name.clone()).map_err(lost),
        Some(roots) => tls::connect(socket, host, roots, &name, deadline),
    }
}

/// A listener that does not accept, because its process was stopped, makes a plain `connect` wait without a bound once
/// its queue is full.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let at_least = timeout.max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(at_least))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// The number of unsent bytes of a connection that the system holds. An urgent frame cannot overtake the frames in it,
/// so it is short: 2 ms at 1 Gbit/s. It still fills 10 Gbit/s to a machine that is 0.2 ms away.
const SEND_BUFFER_BYTES: usize = 256 << 10;

fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    Ok(sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)?)
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses = (host, port).to_socket_addrs()?;
    let deadline = Instant::now() + timeout;
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                tune(&socket)?;
                return Ok(socket);
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// A timeout of a socket calls itself "would block".
fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        _ => e.to_string(),
    }
}

fn plain(socket: Socket, name: String) -> io::Result<Stream> {
    let (reader, writer, own) = (socket.try_clone()?, socket.try_clone()?, socket.try_clone()?);
    let try_write: TryWrite = Box::new(move |bytes| own.write_now(bytes));
    let mut stream = stream(socket, name, Box::new(reader), Box::new(writer), Vec::new())?;
    stream.try_write = Some(try_write);
    Ok(stream)
}

fn stream(
    socket: Socket,
    name: String,
    reader: Box<dyn Read + Send>,
    writer: Box<dyn Write + Send>,
    binding: Vec<u8>,
) -> io::Result<Stream> {
    socket.set_timeouts(None, Some(WRITE_STALL_MAX))?;
    let writer = Box::new(Stalling(writer));
    Ok(Stream { name, reader, writer, try_write: None, hang_up: Box::new(move || socket.shut_down()), binding })
}

/// Says what a write timeout means.
struct Stalling(Box<dyn Write + Send>);

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => {
                let why = format!("the other end has taken no bytes for {} s", WRITE_STALL_MAX.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
            _ => e,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A listener that hosts connect to.
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A socket file, removed on drop.
    Unix(UnixListener, PathBuf),
}

/// A host that has connected, before TLS.
pub struct Accepted {
    socket: Socket,
    name: String,
}

impl Listener {
    /// Begins to listen. A socket file that no process listens on any more is replaced.
    ///
    /// # Errors
    /// The system refuses: the port or the file is in use.
    pub fn bind(place: &Place) -> Result<Listener> {
        let fail = |e| Error::io("listen on", place, e);
        match place {
            Place::Tcp { host, port } => {
                TcpListener::bind((host.as_str(), *port)).map(Listener::Tcp).map_err(|e| listen_failed(place, e))
            }
            Place::Unix(path) => {
                let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
                // One that does not accept in time is there.
                let is_free = |e: io::Error| !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                if is_socket && connect_unix(path, PROBE).is_err_and(is_free) {
                    fs::remove_file(path).map_err(fail)?;
                }
                let listener = UnixListener::bind(path).map_err(|e| listen_failed(place, e))?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// Returns the address that it listens on, with the port that the system chose if 0 was asked for.
    ///
    /// # Errors
    /// The system does not say.
    pub fn place(&self) -> io::Result<Place> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr()?;
                Place::Tcp { host: address.ip().to_string(), port: address.port() }
            }
            Listener::Unix(_, path) => Place::Unix(path.clone()),
        })
    }

    /// Waits for the next host, until [`wake`](Listener::wake).
    ///
    /// # Errors
    /// The system's: too many files are open, for one. Or the listener was woken.
    pub fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (socket, address) = listener.accept()?;
                tune(&socket)?;
                Ok(Accepted { socket: Socket::Tcp(socket), name: format!("host {address}") })
            }
            Listener::Unix(listener, path) => {
                let (socket, _) = listener.accept()?;
                Ok(Accepted { socket: Socket::Unix(socket), name: format!("host at {}", path.display()) })
            }
        }
    }

    /// Ends the listening: a thread that waits in [`accept`](Listener::accept) comes back with an error, and so does
    /// every later one.
    pub fn wake(&self) {
        // It listens no more already.
        let _ = match self {
            Listener::Tcp(listener) => rustix::net::shutdown(listener, rustix::net::Shutdown::Both),
            Listener::Unix(listener, _) => rustix::net::shutdown(listener, rustix::net::Shutdown::Both),
        };
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

fn listen_failed(place: &Place, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::AddrInUse => Error::Invalid(format!("cannot listen on {place}: another process does already")),
        _ => Error::io("listen on", place, e),
    }
}

impl Accepted {
    /// Returns the name of the other end: its address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a function that ends the connection, from any thread and at any time, also while
    /// [`open`](Accepted::open) runs.
    ///
    /// # Errors
    /// The system's: too many files are open.
    pub fn hang_up(&self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        let socket = self.socket.try_clone()?;
        Ok(Box::new(move || socket.shut_down()))
    }

    /// Makes the connection, in TLS if the node has it, within `timeout`. Not for the thread that accepts: a slow host
    /// would keep the others waiting.
    ///
    /// # Errors
    /// TLS cannot be agreed on.
    pub fn open(self, tls: Option<&Arc<ServerTls>>, timeout: Duration) -> Result<Stream, CallError> {
        let Accepted { socket, name } = self;
        let lost = |e: io::Error| CallError::Lost { node: name.clone(), why: reason(&e) };
        match tls {
            None => plain(socket, name.clone()).map_err(lost),
            Some(tls) => tls::accept(socket, tls, &name, Instant::now() + timeout),
        }
    }
}
