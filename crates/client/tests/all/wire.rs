//! The server's side of the transports, blocking.

use crate::flaky::Guest;
use crate::skipped::skipped;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use situ_client::TransportKind;
use situ_transport::{Link, REQUEST_WORD, answer, offer};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A connection of a client, as a stream.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// Returns the address of an RDMA device, or says that the test is skipped. `scripts/soft-roce.sh` has one.
pub(crate) fn rdma_address() -> Option<String> {
    match std::env::var("SITU_RDMA_ADDRESS") {
        Ok(address) => Some(address),
        Err(_) => {
            skipped("RDMA: SITU_RDMA_ADDRESS is no address of a device");
            None
        }
    }
}

/// Returns an address to listen on for a transport: a free port, or a socket in the directory. `None` if there is no
/// device for it.
pub(crate) fn address(transport: TransportKind, directory: &Path) -> Option<String> {
    let host = match transport {
        TransportKind::Tcp => "127.0.0.1".to_owned(),
        TransportKind::Rdma => rdma_address()?,
        _ => return Some(directory.join("socket").to_str().unwrap().to_owned()),
    };
    Some(TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string())
}

/// Serves an address, and returns it. `accepted` counts connections.
pub(crate) fn listen(
    address: &str,
    transport: TransportKind,
    accepted: Arc<AtomicUsize>,
    serve: impl Fn(usize, &mut Guest) + Send + Sync + 'static,
) -> String {
    let serve = Arc::new(serve);
    let welcome = move |connect: Box<dyn FnOnce() -> io::Result<Box<dyn Wire>> + Send>| {
        let (serve, n) = (Arc::clone(&serve), accepted.fetch_add(1, Ordering::SeqCst));
        std::thread::spawn(move || {
            // A client may hang up before the greeting.
            if let Ok(wire) = connect() {
                serve(n, &mut Guest::new(wire));
            }
        });
    };
    if matches!(transport, TransportKind::Tcp | TransportKind::Rdma) {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                match transport {
                    TransportKind::Tcp => welcome(Box::new(move || Ok(Box::new(stream)))),
                    _ => welcome(Box::new(move || greet_remote(stream.into()))),
                }
            }
        });
        return address;
    }
    let listener = UnixListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            welcome(Box::new(move || greet(stream, transport)));
        }
    });
    address.to_owned()
}

fn line_of(socket: impl AsFd) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        match recv(&socket, &mut byte[..], RecvFlags::empty())? {
            (_, 0) => return Err(ErrorKind::UnexpectedEof.into()),
            _ => line.push(byte[0]),
        }
    }
    Ok(String::from_utf8(line).unwrap())
}

/// Answers a request for shared memory, which comes first.
fn greet(mut socket: UnixStream, transport: TransportKind) -> io::Result<Box<dyn Wire>> {
    let line = line_of(&socket)?;
    assert!(line.starts_with(REQUEST_WORD), "{line:?}");
    if transport == TransportKind::UnixSocket {
        socket.write_all(b"ERROR\r\n")?;
        return Ok(Box::new(socket));
    }
    let greeting = offer(64 << 10)?;
    answer(&socket, &greeting)?;
    Ok(Box::new(InMemory { rings: Box::new(greeting.rings), socket: socket.into() }))
}

/// Answers a request for remote memory, which comes first, and the command with which the client tries it.
#[cfg(feature = "verbs")]
fn greet_remote(socket: OwnedFd) -> io::Result<Box<dyn Wire>> {
    use situ_transport::verbs;
    let line = line_of(&socket)?;
    let offer = line.trim_end().strip_prefix(verbs::REQUEST_WORD).map(|rest| verbs::Offer::parse(rest.as_bytes()));
    let verbs::Accepted { rings, line } =
        verbs::accept(verbs::Ends::of(&socket)?, &offer.unwrap().unwrap(), None, 64 << 10)?;
    assert_eq!(rustix::io::write(&socket, line.as_bytes())?, line.len());
    let mut wire = InMemory { rings: Box::new(rings), socket };
    wire.read_exact(&mut [0; "mn\r\n".len()])?;
    wire.write_all(b"MN\r\n")?;
    Ok(Box::new(wire))
}

#[cfg(not(feature = "verbs"))]
fn greet_remote(_: OwnedFd) -> io::Result<Box<dyn Wire>> {
    unreachable!("there are no tests over RDMA")
}

/// A connection in memory.
struct InMemory {
    rings: Box<dyn Link>,
    socket: OwnedFd,
}

impl InMemory {
    /// Repeats `act` until it has moved bytes or the client is gone. Returns the number of bytes.
    fn until_moved(
        &mut self,
        reads: bool,
        mut act: impl FnMut(&mut dyn Link) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut is_over = false;
        loop {
            let moved = act(self.rings.as_mut())?;
            if self.rings.must_ring() {
                let _ = send(&self.socket, &[0], SendFlags::NOSIGNAL);
            }
            if moved > 0 || is_over {
                return Ok(moved);
            }
            if self.rings.may_sleep(reads)? {
                let mut both = vec![PollFd::new(&self.socket, PollFlags::IN)];
                both.extend(self.rings.descriptor().map(|events| PollFd::from_borrowed_fd(events, PollFlags::IN)));
                poll(&mut both, None)?;
                let has_bell = !both[0].revents().is_empty();
                is_over =
                    has_bell && recv(&self.socket, &mut [0; 64][..], RecvFlags::empty()).map_or(true, |got| got.1 == 0);
                self.rings.take_events();
                self.rings.awake();
            }
        }
    }
}

impl Drop for InMemory {
    /// Waits until the client has all that was written.
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        while !self.rings.is_flushed() && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

impl Read for InMemory {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.until_moved(true, |rings| rings.read(into))
    }
}

impl Write for InMemory {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self.until_moved(false, |rings| rings.write_parts(&[io::IoSlice::new(from)]))? {
            0 => Err(ErrorKind::BrokenPipe.into()),
            moved => Ok(moved),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
