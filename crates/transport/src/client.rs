//! A client's connection in shared or remote memory.

use crate::bells::{Bells, take_bells};
use crate::greeting::{Answer, read_answer, request, wait_any_readable};
use crate::link::Link;
use crate::rings::{Spin, Turns};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Looks at the memory between two looks at the clock.
const LOOKS: u32 = 64;

/// The longest time that the end of a connection waits for the delivery of what was written, and how often it looks.
const FLUSH_MAX: Duration = Duration::from_secs(1);
const FLUSH_LOOK: Duration = Duration::from_micros(50);

/// A client's side of a connection, with the socket of the greeting.
///
/// ```no_run
/// use situ_transport::ClientEnd;
/// use std::time::{Duration, Instant};
///
/// # fn main() -> std::io::Result<()> {
/// let socket = std::os::unix::net::UnixStream::connect("/run/situ.sock")?;
/// let deadline = Instant::now() + Duration::from_secs(1);
/// let mut end = ClientEnd::upgrade(socket.into(), 256 << 10, deadline)?.expect("the server offers shared memory");
/// end.write(b"get greeting\r\n")?;
/// end.wait(deadline)?;
/// let mut answer = [0; 100];
/// let bytes = end.read(&mut answer)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ClientEnd {
    pub(crate) link: Box<dyn Link>,
    socket: OwnedFd,
    spin: Spin,
    turns: Turns,
    /// A wait has failed or was too long: the caller gives the connection up.
    is_given_up: bool,
}

/// A server's refusal of shared or remote memory.
#[derive(Debug)]
pub struct Refused {
    /// The connection, which goes on as a socket.
    pub socket: OwnedFd,
    /// The name of the transport that the client asked for.
    pub transport: &'static str,
    /// The server's own words.
    pub answer: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server refuses {}: {}", self.transport, self.answer)
    }
}

impl std::error::Error for Refused {}

impl ClientEnd {
    pub(crate) fn new(link: Box<dyn Link>, socket: OwnedFd) -> ClientEnd {
        ClientEnd { link, socket, spin: Spin::default(), turns: Turns::default(), is_given_up: false }
    }

    /// Moves a connection into shared memory, with rings of about `ring_bytes`. Nothing else is under way on the Unix
    /// socket.
    ///
    /// # Errors
    /// The socket fails, the answer is none, or it does not come before `deadline` ([`io::ErrorKind::TimedOut`]). The
    /// inner error says that the server refuses.
    pub fn upgrade(socket: OwnedFd, ring_bytes: u64, deadline: Instant) -> io::Result<Result<ClientEnd, Refused>> {
        let line = request(ring_bytes);
        if send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)? < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let answer = read_answer(&socket, deadline)?;
        Ok(match answer {
            Answer::Shared(rings) => Ok(ClientEnd::new(Box::new(rings), socket)),
            Answer::Refused(answer) => Err(Refused { socket, transport: "shared memory", answer }),
        })
    }

    /// Writes as much of `from` as there is room for, and returns the number of bytes. Does not wait.
    ///
    /// # Errors
    /// The server has broken the protocol, or the link is broken.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_parts(&[IoSlice::new(from)])
    }

    /// As [`write`](ClientEnd::write), one part after another.
    ///
    /// # Errors
    /// As [`write`](ClientEnd::write).
    pub fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = self.link.write_parts(parts)?;
        self.ring_bell();
        Ok(bytes)
    }

    /// Reads what there is into `into`, and returns the number of bytes. Does not wait: 0 means that nothing is there.
    ///
    /// # Errors
    /// The server has broken the protocol, or the link is broken.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.link.read(into)?;
        self.ring_bell();
        Ok(bytes)
    }

    /// Waits until there is something to read, or room where the last write found too little.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] at `deadline`; [`io::ErrorKind::UnexpectedEof`] when the server is gone and all that
    /// it wrote was read; the server has broken the protocol.
    pub fn wait(&mut self, deadline: Instant) -> io::Result<()> {
        let begun = Instant::now();
        let waited = self.wait_since(begun, deadline);
        match waited {
            Ok(()) => self.spin.learn(begun.elapsed()),
            Err(_) => self.is_given_up = true,
        }
        waited
    }

    fn wait_since(&mut self, begun: Instant, deadline: Instant) -> io::Result<()> {
        let asleep_at = deadline.min(begun + self.spin.time());
        loop {
            for _ in 0..self.turns.looks(LOOKS) {
                if self.link.is_ready(true)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now >= asleep_at {
                break;
            }
            self.turns.pass(now);
        }
        while self.link.may_sleep(true)? {
            let slept = self.sleep(deadline);
            self.link.awake();
            slept?;
            // A server that rings without end has no more time than a silent one.
            if Instant::now() >= deadline && !self.link.is_ready(true)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Sleeps until a wake-up comes, and takes all.
    fn sleep(&mut self, deadline: Instant) -> io::Result<()> {
        match self.link.descriptor() {
            Some(descriptor) => wait_any_readable(&[self.socket.as_fd(), descriptor], deadline)?,
            None => wait_any_readable(&[self.socket.as_fd()], deadline)?,
        }
        self.link.take_events();
        let mut bells = [0_u8; 64];
        match recv(&self.socket, &mut bells[..], RecvFlags::DONTWAIT) {
            // What the server wrote before it went is still there.
            Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) if !self.link.is_ready(true)? => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET | Errno::PIPE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns false if the server has closed the connection, or rings without end. Costs a system call.
    pub fn is_open(&self) -> bool {
        take_bells(&self.socket) == Bells::Taken
    }

    fn ring_bell(&mut self) {
        if self.link.must_ring() {
            // A full buffer has bells enough. A server that is gone shows itself when the client waits.
            let _ = send(&self.socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
}

impl Drop for ClientEnd {
    /// Waits until the server has what was written, unless the connection has kept its caller waiting for too long.
    fn drop(&mut self) {
        let until = Instant::now() + FLUSH_MAX;
        while !self.is_given_up && !self.link.is_flushed() && self.is_open() && Instant::now() < until {
            std::thread::sleep(FLUSH_LOOK);
        }
    }
}
