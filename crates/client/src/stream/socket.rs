//! TCP and Unix sockets.

use crate::options::TransportKind;
use crate::stream::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendmsg, socket_with,
};
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A full queue of a listening Unix socket is asked again after this time.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(2);

/// A connected socket.
pub(crate) struct Socket {
    descriptor: OwnedFd,
    kind: TransportKind,
}

impl Socket {
    pub(crate) fn new(descriptor: OwnedFd, kind: TransportKind) -> Socket {
        Socket { descriptor, kind }
    }
}

impl Stream for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.descriptor, &mut *room))?)
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // A program in C may not ignore SIGPIPE.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut control = SendAncillaryBuffer::default();
        Ok(rustix::io::retry_on_intr(|| sendmsg(&self.descriptor, parts, &mut control, flags))?)
    }

    fn wait(&mut self, to_write: bool, until: Instant) -> io::Result<bool> {
        let flags = if to_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&self.descriptor, flags)], Some(&left)) {
                Ok(0) => return Ok(false),
                // An error or the end of the connection shows when it is read.
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn line_read_bytes(&self) -> usize {
        16 << 10
    }

    fn kind(&self) -> TransportKind {
        self.kind
    }

    fn into_socket(self: Box<Self>) -> Result<OwnedFd, Box<dyn Stream>> {
        Ok(self.descriptor)
    }
}

pub(crate) fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the deadline passed while connecting")
}

/// Connects to the first address of `host` that accepts.
pub(crate) fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let addresses = resolve(host, port, deadline)?;
    for (address, remaining) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        // An address that does not answer leaves time for the others.
        match TcpStream::connect_timeout(address, (left / remaining).max(Duration::from_millis(1))) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(Socket::new(stream.into(), TransportKind::Tcp));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Returns the addresses of a name. The system's function has no deadline, so it runs in a thread of its own, which may
/// end later than the call.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = mpsc::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("situ-resolve".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // The call may have given up.
        let _ = sender.send(found);
    })?;
    receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).map_err(|_| late())?
}

/// Connects to a Unix socket. A socket with a full queue is asked again until the deadline.
pub(crate) fn connect_unix(path: &Path, deadline: Instant) -> io::Result<Socket> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(Socket::new(socket, TransportKind::UnixSocket)),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(QUEUE_FULL_PAUSE),
            Err(Errno::AGAIN | Errno::INTR) => return Err(late()),
            Err(error) => return Err(error.into()),
        }
    }
}
