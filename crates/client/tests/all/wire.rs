//! The server's side of the transports, blocking.

use crate::flaky::Guest;
use situ_client::TransportKind;
use situ_transport::{REQUEST_WORD, Rings, answer, offer};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection of a client, as a stream.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

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
    if transport == TransportKind::Tcp {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                welcome(Box::new(move || Ok(Box::new(stream))));
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

/// Answers a request for shared memory, which comes first.
fn greet(mut socket: UnixStream, transport: TransportKind) -> io::Result<Box<dyn Wire>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    assert!(line.starts_with(REQUEST_WORD.as_bytes()), "{:?}", String::from_utf8_lossy(&line));
    if transport == TransportKind::UnixSocket {
        socket.write_all(b"ERROR\r\n")?;
        return Ok(Box::new(socket));
    }
    let greeting = offer(64 << 10)?;
    answer(&socket, &greeting)?;
    Ok(Box::new(Shared { rings: greeting.rings, socket }))
}

/// A connection in shared memory.
struct Shared {
    rings: Rings,
    socket: UnixStream,
}

impl Shared {
    /// Repeats `act` until it has moved bytes or the client is gone. Returns the number of bytes.
    fn until_moved(
        &mut self,
        reads: bool,
        mut act: impl FnMut(&mut Rings) -> Result<usize, situ_transport::Breach>,
    ) -> io::Result<usize> {
        let mut is_over = false;
        loop {
            let moved = act(&mut self.rings)?;
            if self.rings.must_ring() {
                let _ = self.socket.write_all(&[0]);
            }
            if moved > 0 || is_over {
                return Ok(moved);
            }
            if self.rings.may_sleep(reads)? {
                is_over = self.socket.read(&mut [0; 64]).unwrap_or(0) == 0;
                self.rings.awake();
            }
        }
    }
}

impl Read for Shared {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.until_moved(true, |rings| rings.read(into))
    }
}

impl Write for Shared {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self.until_moved(false, |rings| rings.write(from))? {
            0 => Err(ErrorKind::BrokenPipe.into()),
            moved => Ok(moved),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
