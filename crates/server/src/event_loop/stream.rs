//! The bytes of a connection: those of a socket, or of [TLS](crate::protocol::tls) over it, or of rings in shared or
//! remote memory ([`Link`]) with a socket.
//!
//! **Memory.** While requests follow each other, the event loop looks at the rings. Before it sleeps, it asks
//! for a wake-up ([`Stream::may_sleep`]): a bell of the client on the socket, or an event of the RDMA device on a
//! descriptor of its own. A client that is gone shows itself at the socket: what it has written before is still read.

use crate::protocol::tls::Tls;
use crate::waiting::held::Held;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, read};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use situ_transport::{Bells, Link, Spin, take_bells};
use std::io::{BufRead, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The answer to a count that is impossible, and to a link that is broken.
const BREACH: Errno = Errno::PROTO;

/// See the module.
pub(crate) struct Stream {
    socket: OwnedFd,
    /// TLS over the socket. Such a connection does not move into memory, where nothing would be encrypted.
    tls: Option<Box<Tls>>,
    shared: Option<Box<Shared>>,
}

/// A connection's part in shared or remote memory.
struct Shared {
    rings: Box<dyn Link>,
    /// The client is gone: it writes nothing more, and takes no more answers.
    is_gone: bool,
    /// The client has broken the protocol. Nothing more of it is read.
    is_broken: bool,
    /// The link is broken. What came before is read.
    has_failed: bool,
    /// The loop has taken the descriptor of wake-ups into account.
    is_registered: bool,
    /// The loop looks at the rings: no bell was asked for.
    is_watched: bool,
    spin: Spin,
    held: Held,
}

impl Shared {
    /// Notes an error of the rings. Returns true if it is the first one of its kind.
    fn fail(&mut self, error: &std::io::Error) -> bool {
        let is_breach = error.kind() == std::io::ErrorKind::InvalidData;
        !std::mem::replace(if is_breach { &mut self.is_broken } else { &mut self.has_failed }, true)
    }

    fn read(
        &mut self,
        socket: &OwnedFd,
        read: impl FnOnce(&mut dyn Link) -> std::io::Result<usize>,
    ) -> rustix::io::Result<usize> {
        if self.is_broken {
            return Err(BREACH);
        }
        // First: what the client wrote before it went is in the ring.
        let is_gone = self.is_gone;
        let bytes = read(self.rings.as_mut()).map_err(|_| BREACH)?;
        ring(self.rings.as_mut(), socket);
        if bytes == 0 && !is_gone { Err(Errno::AGAIN) } else { Ok(bytes) }
    }
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd, tls: Option<Tls>) -> Stream {
        Stream { socket, tls: tls.map(Box::new), shared: None }
    }

    /// Returns true while client and server do not know each other's keys of TLS.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns the error of TLS that ended the connection, in words.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.tls.as_ref().and_then(|tls| tls.failure())
    }

    /// Sends what was encrypted and waits. An error shows in the next [`send`](Stream::send), and in the next read.
    pub(crate) fn flush(&mut self) {
        if let Some(tls) = &mut self.tls {
            _ = tls.flush(self.socket.as_fd());
        }
    }

    /// Tells the client that nothing more comes, where that takes more than closing the socket.
    pub(crate) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.end(self.socket.as_fd());
        }
    }

    /// Moves the connection into memory. The client knows.
    pub(crate) fn share(&mut self, rings: Box<dyn Link>, held: Held) {
        let shared = Shared {
            rings,
            is_gone: false,
            is_broken: false,
            has_failed: false,
            is_registered: false,
            is_watched: false,
            spin: Spin::default(),
            held,
        };
        self.shared = Some(Box::new(shared));
        // The client's end may have been announced already.
        self.take_bells();
    }

    /// Returns the descriptor of wake-ups that the loop does not know yet.
    pub(crate) fn new_descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        let shared = self.shared.as_mut()?;
        if std::mem::replace(&mut shared.is_registered, true) { None } else { shared.rings.descriptor() }
    }

    /// Gives the connection up: the loop cannot be woken by it.
    pub(crate) fn give_up(&mut self) {
        if let Some(shared) = &mut self.shared {
            shared.is_broken = true;
        }
    }

    /// Returns the rings in remote memory, for the end of the connection.
    pub(crate) fn take_remote(&mut self) -> Option<(Box<dyn Link>, Held)> {
        let Shared { rings, held, .. } = *self.shared.take_if(|shared| shared.held.is_remote())?;
        Some((rings, held))
    }

    /// Returns true if the end of the connection takes away no byte that was sent. If not, the rings
    /// [are ready](Stream::is_ready) when it does not.
    pub(crate) fn is_flushed(&mut self) -> bool {
        if let Some(tls) = &self.tls {
            return tls.is_flushed();
        }
        self.shared
            .as_mut()
            .is_none_or(|shared| shared.is_gone || shared.is_broken || shared.has_failed || shared.rings.is_flushed())
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Takes the wake-ups that epoll has announced, all of them: the client may drop bells that find no room. Returns
    /// true if the connection is in memory.
    pub(crate) fn take_bells(&mut self) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        shared.rings.take_events();
        match take_bells(&self.socket) {
            Bells::Taken => {}
            Bells::Closed => shared.is_gone = true,
            Bells::TooMany => shared.is_broken = true,
        }
        true
    }

    /// Appends to `into` what is there, as much as fits into its capacity. 0 is the end.
    ///
    /// # Errors
    /// As `read` on a socket that does not block.
    pub(crate) fn read_to(&mut self, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.read(self.socket.as_fd(), |reader| {
                let chunk = reader.fill_buf()?;
                let bytes = chunk.len().min(into.capacity() - into.len());
                into.extend_from_slice(&chunk[..bytes]);
                reader.consume(bytes);
                Ok(bytes)
            });
        }
        match &mut self.shared {
            None => read(&self.socket, spare_capacity(into)),
            Some(shared) => shared.read(&self.socket, |rings| rings.read_to(into)),
        }
    }

    /// Reads into `into`, which is not empty, as much as is there. 0 is the end.
    ///
    /// # Errors
    /// As [`read_to`](Stream::read_to).
    pub(crate) fn read(&mut self, into: &mut [u8]) -> rustix::io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.read(self.socket.as_fd(), |reader| reader.read(into));
        }
        match &mut self.shared {
            None => read(&self.socket, into),
            Some(shared) => shared.read(&self.socket, |rings| rings.read(into)),
        }
    }

    /// Sends as much as the other side takes. Returns the number of bytes.
    ///
    /// # Errors
    /// As `sendmsg` on a socket that does not block.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls.send(self.socket.as_fd(), slices);
        }
        let Some(shared) = &mut self.shared else {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            return match slices {
                [slice] => send(&self.socket, slice, flags),
                slices => sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), flags),
            };
        };
        if shared.is_gone {
            return Err(Errno::PIPE);
        }
        let sent = match shared.rings.write_parts(slices) {
            _ if shared.has_failed => return Err(BREACH),
            Ok(sent) => sent,
            Err(error) => {
                shared.fail(&error);
                return Err(BREACH);
            }
        };
        ring(shared.rings.as_mut(), &self.socket);
        if sent == 0 && slices.iter().any(|slice| !slice.is_empty()) { Err(Errno::AGAIN) } else { Ok(sent) }
    }

    /// Begins to look at the rings. Returns false if there are none, or the loop looks at them already.
    pub(crate) fn watch(&mut self) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let is_new = !std::mem::replace(&mut shared.is_watched, true);
        if is_new {
            shared.rings.awake();
        }
        is_new
    }

    /// Returns true if the rings have something for the connection, which `reads` now or does not. An error counts for
    /// one that reads, which finds it, and otherwise once.
    pub(crate) fn is_ready(&mut self, reads: bool) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        match shared.rings.is_ready(reads) {
            Ok(is_ready) => is_ready,
            Err(error) => shared.fail(&error) || reads,
        }
    }

    /// Notes that bytes have come after a silence.
    pub(crate) fn received_after(&mut self, silence: Duration) {
        if let Some(shared) = &mut self.shared {
            shared.spin.learn(silence);
        }
    }

    /// Returns true if the loop has looked at the rings for long enough in a silence.
    pub(crate) fn is_silent(&self, silence: Duration) -> bool {
        self.shared.as_ref().is_none_or(|shared| silence >= shared.spin.time())
    }

    /// Asks for a wake-up, and ends the watch. Returns false if there is something to do instead.
    pub(crate) fn may_sleep(&mut self, reads: bool) -> bool {
        let Some(shared) = &mut self.shared else { return true };
        let may_sleep = match shared.rings.may_sleep(reads) {
            Ok(may_sleep) => may_sleep,
            Err(error) => !shared.fail(&error) && !reads,
        };
        shared.is_watched = !may_sleep;
        may_sleep
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn ring(rings: &mut dyn Link, socket: &OwnedFd) {
    if rings.must_ring() {
        // A full buffer has bells enough, and the end of the socket is found by epoll.
        let _ = send(socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, ErrorKind};

    /// A link that is broken, with bytes that came before.
    #[derive(Debug)]
    struct Broken {
        unread: Vec<u8>,
        kind: ErrorKind,
    }

    impl Link for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            unreachable!("this test reads only into its input")
        }

        fn read_to(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
            if self.unread.is_empty() {
                return Err(self.kind.into());
            }
            let bytes = self.unread.len().min(into.capacity() - into.len());
            into.extend(self.unread.drain(..bytes));
            Ok(bytes)
        }

        fn write_parts(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Err(self.kind.into())
        }

        fn is_ready(&mut self, reads: bool) -> io::Result<bool> {
            if reads && !self.unread.is_empty() { Ok(true) } else { Err(self.kind.into()) }
        }

        fn may_sleep(&mut self, reads: bool) -> io::Result<bool> {
            Ok(!self.is_ready(reads)?)
        }

        fn awake(&mut self) {}

        fn must_ring(&mut self) -> bool {
            false
        }
    }

    fn stream(kind: ErrorKind) -> (Stream, OwnedFd) {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = Stream::new(here.into(), None);
        stream.share(Box::new(Broken { unread: b"set a 0 0 1 noreply\r\nx\r\n".to_vec(), kind }), Held::default());
        (stream, there.into())
    }

    #[test]
    fn what_came_before_a_link_broke_is_read_whoever_found_the_break() {
        let ways: [fn(&mut Stream) -> bool; 3] = [
            |stream| stream.send(&[IoSlice::new(b"STORED\r\n")]).is_err(),
            |stream| stream.is_ready(false),
            |stream| !stream.may_sleep(false),
        ];
        for finds in ways {
            let (mut stream, _there) = stream(ErrorKind::ConnectionReset);
            assert!(finds(&mut stream));
            // A connection that does not read is not woken again and again.
            assert!(!stream.is_ready(false) && stream.may_sleep(false) && stream.is_flushed());
            let mut input = Vec::with_capacity(10);
            assert!(stream.is_ready(true) && !stream.may_sleep(true));
            assert_eq!(stream.read_to(&mut input), Ok(10));
            input.reserve(100);
            assert!(stream.is_ready(true));
            assert_eq!(stream.read_to(&mut input), Ok(14));
            assert!(stream.is_ready(true), "the next read finds the error");
            assert_eq!(stream.read_to(&mut input), Err(BREACH));
            assert_eq!(input, b"set a 0 0 1 noreply\r\nx\r\n");
        }
    }

    #[test]
    fn nothing_is_read_of_a_client_that_broke_the_protocol() {
        let (mut stream, _there) = stream(ErrorKind::InvalidData);
        assert!(stream.send(&[IoSlice::new(b"STORED\r\n")]).is_err());
        assert_eq!(stream.read_to(&mut Vec::with_capacity(10)), Err(BREACH));
    }
}
