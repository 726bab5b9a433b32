//! The words with which a connection moves from a Unix socket into shared memory.

use crate::memory::SharedMemory;
use crate::rings::{HEADER_BYTES, RING_BYTES_MAX, RING_BYTES_MIN, Rings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The version of the format.
pub const VERSION: u64 = 1;
/// The command that asks for shared memory.
pub const REQUEST_WORD: &str = "shm";
const ANSWER_WORD: &str = "SHM";
/// The longest line with which a server answers.
pub const ANSWER_BYTES_MAX: usize = 1024;

/// Returns the size of a ring for a wish: a power of two, and no more than `most` where a ring may be so small.
pub fn ring_bytes_for(wish: u64, most: u64) -> u64 {
    let most = most.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
    // The largest power of two that is not above.
    let most = 1 << most.ilog2();
    wish.clamp(RING_BYTES_MIN, most).next_power_of_two().min(most)
}

/// Returns the bytes of memory that a connection takes.
pub(crate) fn memory_bytes(ring_bytes: u64) -> usize {
    HEADER_BYTES + 2 * ring_bytes as usize
}

/// The server's offer of a connection in shared memory.
#[derive(Debug)]
pub struct Greeting {
    /// The server's side.
    pub rings: Rings,
    memory: OwnedFd,
    ring_bytes: u64,
}

/// Makes the memory of a connection with rings of `ring_bytes`, as [`ring_bytes_for`] returns them.
///
/// # Errors
/// The system has no memory or no descriptor for it.
pub fn offer(ring_bytes: u64) -> std::io::Result<Greeting> {
    assert!(ring_bytes == ring_bytes_for(ring_bytes, RING_BYTES_MAX), "a ring's length");
    let (memory, descriptor) = SharedMemory::make(memory_bytes(ring_bytes))?;
    let rings = Rings::of_server(Arc::new(memory), ring_bytes);
    Ok(Greeting { rings, memory: descriptor, ring_bytes })
}

/// Sends the offer to the client. All that was sent before has left the server.
///
/// # Errors
/// The socket does not take it, or is none that carries descriptors.
pub fn answer(socket: impl AsFd, greeting: &Greeting) -> std::io::Result<()> {
    let line = format!("{ANSWER_WORD} {VERSION} {}\r\n", greeting.ring_bytes);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [greeting.memory.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for one descriptor");
    let sent = sendmsg(socket, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    if sent < line.len() { Err(Errno::AGAIN.into()) } else { Ok(()) }
}

/// Returns the line with which a client asks for rings of `ring_bytes`.
pub(crate) fn request(ring_bytes: u64) -> String {
    format!("{REQUEST_WORD} {VERSION} {ring_bytes}\r\n")
}

/// The outcome of a client's request.
pub(crate) enum Answer {
    Shared(Rings),
    /// The server's own words.
    Refused(String),
}

/// Reads the answer to [`request`].
///
/// # Errors
/// The socket fails or ends, the answer is none of this version, or it does not come before `deadline`.
pub(crate) fn read_answer(socket: impl AsFd, deadline: Instant) -> std::io::Result<Answer> {
    let (text, memory) = match read_line(socket, deadline)? {
        (Ok(text), memory) => (text, memory),
        (Err(refusal), _) => return Ok(Answer::Refused(refusal)),
    };
    let not_an_offer = || invalid(format!("not an offer of shared memory: {text:?}"));
    let ring_bytes = ring_bytes_of(&text).ok_or_else(not_an_offer)?;
    let memory = memory.ok_or_else(not_an_offer)?;
    let memory = SharedMemory::open(memory, memory_bytes(ring_bytes))?;
    let rings = Rings::of_client(Arc::new(memory), ring_bytes).ok_or_else(not_an_offer)?;
    Ok(Answer::Shared(rings))
}

/// Reads a line, and the descriptor that comes with it. The inner error is a line that says that the server refuses.
///
/// # Errors
/// The socket fails or ends, the line is too long, or it does not come before `deadline`.
pub(crate) fn read_line(
    socket: impl AsFd,
    deadline: Instant,
) -> std::io::Result<(Result<String, String>, Option<OwnedFd>)> {
    let (mut line, mut memory) = (Vec::new(), None);
    while !line.ends_with(b"\n") {
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(Errno::AGAIN) => {
                wait_readable(&socket, deadline)?;
                continue;
            }
            received => received?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // Others than the first are closed.
                memory = memory.or(descriptors.reduce(|first, _| first));
            }
        }
        if received.bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&bytes[..received.bytes]);
        if line.len() > ANSWER_BYTES_MAX {
            return Err(invalid(format!("not an answer: {:?}", String::from_utf8_lossy(&line))));
        }
    }
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    let is_refusal = ["ERROR", "SERVER_ERROR", "CLIENT_ERROR"].iter().any(|word| text.starts_with(word));
    Ok((if is_refusal { Err(text) } else { Ok(text) }, memory))
}

/// Waits until the socket has bytes, or its end.
///
/// # Errors
/// [`std::io::ErrorKind::TimedOut`] at `deadline`.
pub(crate) fn wait_readable(socket: impl AsFd, deadline: Instant) -> std::io::Result<()> {
    wait_any_readable(&[socket.as_fd()], deadline)
}

/// Waits until one of the descriptors has bytes, or its end.
///
/// # Errors
/// [`std::io::ErrorKind::TimedOut`] at `deadline`.
pub(crate) fn wait_any_readable(descriptors: &[BorrowedFd<'_>], deadline: Instant) -> std::io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let mut polled: Vec<_> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) if Instant::now() >= deadline => Err(std::io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn ring_bytes_of(text: &str) -> Option<u64> {
    let mut words = text.split(' ');
    let is_answer = words.next() == Some(ANSWER_WORD) && words.next()?.parse() == Ok(VERSION);
    let ring_bytes = words.next()?.parse().ok()?;
    let is_size = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) && ring_bytes.is_power_of_two();
    (is_answer && is_size && words.next().is_none()).then_some(ring_bytes)
}

pub(crate) fn invalid(text: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, text)
}
