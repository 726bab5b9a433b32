//! The words with which a connection moves from a TCP socket into remote memory.

use crate::client::{ClientEnd, Refused};
use crate::greeting::{invalid, read_line, ring_bytes_for};
use crate::rings::{RING_BYTES_MAX, RING_BYTES_MIN};
use crate::verbs::pair::Numbers;
use crate::verbs::port::{Port, gid_of};
use crate::verbs::remote::{RemoteRings, Unconnected};
use rustix::net::{SendFlags, getpeername, getsockname, send};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The version of the format.
pub const VERSION: u64 = 1;
/// The command that asks for remote memory.
pub const REQUEST_WORD: &str = "rdma";
const ANSWER_WORD: &str = "RDMA";
/// A command without an effect, and its answer. They show that bytes go both ways.
const PROBE: (&[u8], &[u8]) = (b"mn\r\n", b"MN\r\n");

/// One side's part of the greeting: the numbers of its end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    ring_bytes: u64,
    numbers: Numbers,
}

/// The reason why a line is no offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoOffer {
    /// It is of another version.
    OtherVersion,
    /// It is not as the format says.
    Malformed,
}

impl Offer {
    /// Reads what follows the word: version, ring bytes, packet bytes, queue pair, first packet, address, key.
    ///
    /// # Errors
    /// [`NoOffer`].
    pub fn parse(text: &[u8]) -> Result<Offer, NoOffer> {
        let text = std::str::from_utf8(text).map_err(|_| NoOffer::Malformed)?;
        let number = |word: &str| match word.bytes().all(|byte| byte.is_ascii_digit()) {
            true => word.parse::<u64>().ok(),
            false => None,
        };
        let numbers: Option<Vec<u64>> = text.split(' ').filter(|word| !word.is_empty()).map(number).collect();
        let numbers = numbers.ok_or(NoOffer::Malformed)?;
        if numbers.first().is_some_and(|version| *version != VERSION) {
            return Err(NoOffer::OtherVersion);
        }
        let [_, ring_bytes, mtu_bytes, pair, psn, address, key] = numbers[..] else { return Err(NoOffer::Malformed) };
        let is_ring = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) && ring_bytes.is_power_of_two();
        let is_mtu = (256..=4096).contains(&mtu_bytes) && mtu_bytes.is_power_of_two();
        match (u32::try_from(pair), u32::try_from(psn), u32::try_from(key)) {
            (Ok(pair @ ..0x100_0000), Ok(psn @ ..0x100_0000), Ok(key)) if is_ring && is_mtu => {
                let mtu = mtu_bytes.ilog2() - 7;
                Ok(Offer { ring_bytes, numbers: Numbers { mtu, pair, psn, address, key } })
            }
            _ => Err(NoOffer::Malformed),
        }
    }

    /// Returns the bytes of memory that a server registers for the connection, with rings of at most `most`.
    pub fn memory_bytes(&self, most: u64) -> u64 {
        2 * ring_bytes_for(self.ring_bytes, most)
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offer { ring_bytes, numbers: Numbers { mtu, pair, psn, address, key } } = self;
        write!(f, "{VERSION} {ring_bytes} {} {pair} {psn} {address} {key}", 128 << mtu)
    }
}

/// The IP addresses of both ends of a TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    own: IpAddr,
    other: IpAddr,
}

impl Ends {
    /// Returns the addresses of a socket.
    ///
    /// # Errors
    /// The socket is none of TCP, or not connected.
    pub fn of(socket: impl AsFd) -> io::Result<Ends> {
        let other = getpeername(&socket)?.ok_or(ErrorKind::NotConnected)?;
        let both =
            [getsockname(&socket)?, other].map(|address| SocketAddr::try_from(address).map(|address| address.ip()));
        match both {
            [Ok(own), Ok(other)] => Ok(Ends { own, other }),
            _ => Err(io::Error::new(ErrorKind::Unsupported, "RDMA needs a TCP socket")),
        }
    }
}

/// Returns the port that has the IP address of the socket, of this device alone if one is named.
fn port_of(address: IpAddr, device: Option<&str>) -> io::Result<Port> {
    Port::find(address, device).ok_or_else(|| {
        let which =
            device.map_or("no RDMA device here".to_owned(), |name| format!("the RDMA device {name} is not one that"));
        io::Error::new(ErrorKind::Unsupported, format!("{which} has the address {address}"))
    })
}

/// A server's side of a connection, and its line for the client.
#[derive(Debug)]
pub struct Accepted {
    /// The server's side.
    pub rings: RemoteRings,
    /// The server's numbers, to be sent over the socket. All that was sent before has left the server.
    pub line: String,
}

/// Makes the server's side of a connection with the client of a TCP socket, in rings of at most `most` bytes. The
/// device is the one that has the socket's address, or the one that is named, if that has it. This takes milliseconds:
/// it opens the device, and registers memory.
///
/// # Errors
/// There is no such device, or it refuses.
pub fn accept(Ends { own, other }: Ends, client: &Offer, device: Option<&str>, most: u64) -> io::Result<Accepted> {
    let ring_bytes = ring_bytes_for(client.ring_bytes, most);
    let end = Unconnected::new(port_of(own, device)?, ring_bytes)?;
    let line = format!("{ANSWER_WORD} {}\r\n", Offer { ring_bytes, numbers: end.numbers() });
    Ok(Accepted { rings: end.connect(gid_of(other), client.numbers, ring_bytes)?, line })
}

/// A client's end that is not connected yet.
pub struct Wish {
    end: Unconnected,
    ring_bytes: u64,
    server: IpAddr,
}

impl fmt::Debug for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wish")
            .field("ring_bytes", &self.ring_bytes)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Wish {
    /// Makes a client's end for a TCP socket, with rings of `ring_bytes`, a power of two.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if no device has the socket's address, or there is no library. The device refuses.
    pub fn new(socket: impl AsFd, ring_bytes: u64) -> io::Result<Wish> {
        assert!(ring_bytes == ring_bytes_for(ring_bytes, RING_BYTES_MAX), "a ring's length");
        let Ends { own, other: server } = Ends::of(socket)?;
        Ok(Wish { end: Unconnected::new(port_of(own, None)?, ring_bytes)?, ring_bytes, server })
    }

    /// Connects the end with a server's side for `socket`, and returns both.
    #[cfg(test)]
    pub(super) fn connect_within(self, socket: impl AsFd) -> (RemoteRings, RemoteRings) {
        let client = Offer { ring_bytes: self.ring_bytes, numbers: self.end.numbers() };
        let Accepted { rings, line } = accept(Ends::of(socket).unwrap(), &client, None, RING_BYTES_MAX).unwrap();
        let server = Offer::parse(line.trim_end().strip_prefix(ANSWER_WORD).unwrap().as_bytes()).unwrap();
        (self.end.connect(gid_of(self.server), server.numbers, self.ring_bytes).unwrap(), rings)
    }
}

impl ClientEnd {
    /// Moves a connection into remote memory, and tries it. Nothing else is under way on the TCP socket, which is that
    /// of the wish.
    ///
    /// # Errors
    /// The socket fails, or there is no offer before `deadline` ([`ErrorKind::TimedOut`]). After the offer, bytes do
    /// not go both ways ([`ErrorKind::NetworkUnreachable`]). The inner error says that the server refuses.
    pub fn upgrade_remote(socket: OwnedFd, wish: Wish, deadline: Instant) -> io::Result<Result<ClientEnd, Refused>> {
        let line = format!("{REQUEST_WORD} {}\r\n", Offer { ring_bytes: wish.ring_bytes, numbers: wish.end.numbers() });
        if send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)? < line.len() {
            return Err(ErrorKind::WriteZero.into());
        }
        let (answer, _) = read_line(&socket, deadline)?;
        let text = match answer {
            Ok(text) => text,
            Err(answer) => return Ok(Err(Refused { socket, transport: "RDMA", answer })),
        };
        let fields = text.strip_prefix(ANSWER_WORD).and_then(|rest| Offer::parse(rest.as_bytes()).ok());
        let server = fields.filter(|server| server.ring_bytes <= wish.ring_bytes);
        let server = server.ok_or_else(|| invalid(format!("not an offer of remote memory: {text:?}")))?;
        let unreachable = |error: io::Error| {
            let text = format!("RDMA does not reach the server, which TCP reaches: {error}");
            io::Error::new(ErrorKind::NetworkUnreachable, text)
        };
        let connected = wish.end.connect(gid_of(wish.server), server.numbers, server.ring_bytes);
        let rings = connected.map_err(unreachable)?;
        let mut end = ClientEnd::new(Box::new(rings), socket);
        // The rest of the time is for another connection, over TCP.
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 3;
        match end.probe(until) {
            Ok(()) => Ok(Ok(end)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(error),
            Err(error) => Err(unreachable(error)),
        }
    }

    /// Shows that bytes go both ways. A network may take TCP and drop what RDMA sends.
    fn probe(&mut self, deadline: Instant) -> io::Result<()> {
        let (question, expected) = PROBE;
        self.write_parts(&[IoSlice::new(question)])?;
        let (mut answer, mut got) = ([0; PROBE.1.len()], 0);
        while got < answer.len() {
            self.wait(deadline)?;
            got += self.read(&mut answer[got..])?;
        }
        if answer == expected {
            Ok(())
        } else {
            Err(invalid(format!("not an answer to mn: {}", answer.escape_ascii())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_is_written() {
        let numbers = Numbers { mtu: 3, pair: 17, psn: 0xff_ffff, address: u64::MAX, key: u32::MAX };
        let offer = Offer { ring_bytes: 4096, numbers };
        let text = offer.to_string();
        assert_eq!(text, "1 4096 1024 17 16777215 18446744073709551615 4294967295");
        assert_eq!(Offer::parse(text.as_bytes()), Ok(offer));
        assert_eq!(Offer::parse(format!(" {text} ").as_bytes()), Ok(offer));
        assert_eq!(offer.memory_bytes(1 << 20), 8192);
    }

    #[test]
    fn lines_that_are_no_offers_are_refused() {
        assert_eq!(Offer::parse(b"2 whatever"), Err(NoOffer::Malformed));
        assert_eq!(Offer::parse(b"2 1"), Err(NoOffer::OtherVersion));
        for text in [
            "",
            "1",
            "1 4096 1024 17 1 2",
            "1 4096 1024 17 1 2 3 4",
            "1 5000 1024 17 1 2 3",
            "1 2048 1024 17 1 2 3",
            "1 8388608 1024 17 1 2 3",
            "1 4096 1500 17 1 2 3",
            "1 4096 8192 17 1 2 3",
            "1 4096 1024 16777216 1 2 3",
            "1 4096 1024 17 16777216 2 3",
            "1 4096 1024 17 1 2 4294967296",
            "1 4096 1024 17 1 18446744073709551616 3",
            "1 4096 1024 17 1 +2 3",
            "1 4096 1024 17 1 -2 3",
            "1 4096 1024 17 1 x 3",
        ] {
            assert_eq!(Offer::parse(text.as_bytes()), Err(NoOffer::Malformed), "{text}");
        }
        assert_eq!(Offer::parse(b"1 \xff"), Err(NoOffer::Malformed));
    }
}
