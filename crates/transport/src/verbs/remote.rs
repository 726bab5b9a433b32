//! One side of a connection in remote memory: a ring that the other side writes into, and a copy of its ring.
//!
//! 1. A write copies bytes into `outgoing`, a ring at the same places as the other side's. From there the device writes
//!    them into the other side's ring. The *message* that follows tells their number.
//! 2. The reader looks at bytes only after their message. When it has read half a ring, or has met half of
//!    [`MESSAGES_MAX`] messages and nothing is left, it returns a *credit*: the number of bytes that it has read since
//!    the last one.
//! 3. The writer uses room again when both the credit and the device's acknowledgement have come. The device reads
//!    `outgoing` until then.
//!
//! **Invariants.** `read <= received <= read + ring_bytes`, and the same for what was written. At most
//! [`MESSAGES_MAX`] messages are without a credit. They cause at most [`CREDITS_MAX`] credits, so the other side always
//! has a request to receive for each of both.
//! **Failure.** A request that the device refuses breaks the link. What has come before is still read.

use crate::link::Link;
use crate::memory::SharedMemory;
use crate::rings::Breach;
use crate::verbs::library::STATUSES;
use crate::verbs::pair::{Event, Numbers, Pair};
use crate::verbs::port::Port;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The messages with bytes that a side may have sent without a credit for them.
pub(super) const MESSAGES_MAX: usize = 64;
/// The credits that can be under way: two for the bytes of a ring, two for messages, one more of each for those that
/// began before, and two to spare.
pub(super) const CREDITS_MAX: usize = 8;
/// The bytes of a long write that the other side may read while the rest is copied.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The memory of the other side.
#[derive(Debug, Clone, Copy)]
struct Target {
    address: u64,
    key: u32,
}

/// An end that is not connected yet.
pub(super) struct Unconnected {
    pair: Pair,
    memory: Arc<SharedMemory>,
    ring_bytes: u64,
}

impl Unconnected {
    /// Makes memory for rings of `ring_bytes` and registers it.
    ///
    /// # Errors
    /// The device or the system refuses.
    pub(super) fn new(port: Port, ring_bytes: u64) -> io::Result<Unconnected> {
        let ring = ring_bytes as usize;
        let memory = Arc::new(SharedMemory::make(2 * ring)?.0);
        let depths = [(MESSAGES_MAX + CREDITS_MAX) as u32; 2];
        // The first number of a packet only has to be another one than that of an earlier connection.
        let mut psn = [0; 4];
        rustix::rand::getrandom(&mut psn, rustix::rand::GetRandomFlags::empty())?;
        let pair = Pair::new(port, &memory, [0..ring, ring..2 * ring], depths, u32::from_ne_bytes(psn))?;
        Ok(Unconnected { pair, memory, ring_bytes })
    }

    pub(super) fn numbers(&self) -> Numbers {
        self.pair.numbers()
    }

    /// Connects the end. Both sides use the first `ring_bytes` bytes of their rings.
    ///
    /// # Errors
    /// The device refuses the other side's numbers.
    pub(super) fn connect(self, gid: [u8; 16], peer: Numbers, ring_bytes: u64) -> io::Result<RemoteRings> {
        assert!(ring_bytes.is_power_of_two() && ring_bytes <= self.ring_bytes, "a ring's length");
        self.pair.connect(gid, peer)?;
        Ok(RemoteRings {
            pair: self.pair,
            memory: self.memory,
            outgoing_at: self.ring_bytes as usize,
            ring_bytes,
            target: Target { address: peer.address, key: peer.key },
            received: 0,
            read: 0,
            credited: 0,
            messages: 0,
            written: 0,
            acknowledged: 0,
            peer_read: 0,
            unread: VecDeque::with_capacity(MESSAGES_MAX),
            sends: 0,
            wants_room: false,
            wants_flush: false,
            failure: None,
        })
    }
}

/// The reason for which a link is of no more use.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Breach,
    /// The status of a request.
    Status(u32),
    /// An error of the device's queues.
    Refused(ErrorKind),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::Breach => Breach.into(),
            Failure::Status(status) => {
                let text = STATUSES.get(status as usize).unwrap_or(&"unknown");
                io::Error::new(
                    ErrorKind::ConnectionReset,
                    format!("RDMA: the link is broken: {text} (status {status})"),
                )
            }
            Failure::Refused(kind) => io::Error::new(kind, "RDMA: the device refuses a request"),
        }
    }
}

/// One side of a connection in remote memory. See the module.
pub struct RemoteRings {
    pair: Pair,
    memory: Arc<SharedMemory>,
    /// The place of `outgoing` in the memory. The other ring is at 0.
    outgoing_at: usize,
    ring_bytes: u64,
    target: Target,
    /// Bytes since the beginning: those that messages have told, those that were read, and those of credits.
    received: u64,
    read: u64,
    credited: u64,
    /// Messages since all was read and credited.
    messages: usize,
    /// Bytes since the beginning: those written, those that the device has delivered, and those of credits that came.
    written: u64,
    acknowledged: u64,
    peer_read: u64,
    /// The ends of messages without a credit.
    unread: VecDeque<u64>,
    /// Requests to send that are under way.
    sends: usize,
    wants_room: bool,
    wants_flush: bool,
    failure: Option<Failure>,
}

impl fmt::Debug for RemoteRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRings")
            .field("ring_bytes", &self.ring_bytes)
            .field("received", &self.received)
            .field("written", &self.written)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl RemoteRings {
    /// Takes the outcomes that are there, and returns a credit if it is due.
    fn advance(&mut self) {
        // No more than both queues hold, so that no peer keeps this side here.
        for _ in 0..2 * (MESSAGES_MAX + CREDITS_MAX) {
            if self.failure.is_some() {
                return;
            }
            let mut taken = [None; 16];
            let mut count = 0;
            let polled = self.pair.poll(|event| {
                taken[count] = Some(event);
                count += 1;
            });
            for event in taken.into_iter().flatten() {
                if let Err(failure) = self.take(event) {
                    self.failure = self.failure.or(Some(failure));
                }
            }
            match polled {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => self.failure = Some(Failure::Refused(error.kind())),
            }
        }
        self.give_credit();
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Failed(status) => return Err(Failure::Status(status)),
            Event::Written { bytes, count } => {
                // The device has counted the bytes, too.
                let has_room = self.received - self.read + u64::from(count) <= self.ring_bytes;
                if count == 0 || bytes != count || !has_room {
                    return Err(Failure::Breach);
                }
                self.received += u64::from(count);
                self.messages += 1;
                self.receive_again()?;
            }
            Event::Message { bytes, count } => {
                self.peer_read += u64::from(count);
                if count == 0 || bytes != 0 || self.peer_read > self.written {
                    return Err(Failure::Breach);
                }
                while self.unread.front().is_some_and(|end| *end <= self.peer_read) {
                    self.unread.pop_front();
                }
                self.receive_again()?;
            }
            Event::WriteDone { id } => {
                self.sends -= 1;
                self.acknowledged = id;
            }
            Event::SendDone => self.sends -= 1,
        }
        Ok(())
    }

    fn receive_again(&self) -> Result<(), Failure> {
        self.pair.post_receive().map_err(|error| Failure::Refused(error.kind()))
    }

    fn give_credit(&mut self) {
        let bytes = self.read - self.credited;
        let is_drained = self.read == self.received;
        let is_due = bytes >= self.ring_bytes / 2 || (is_drained && self.messages >= MESSAGES_MAX / 2);
        // Without a place for the request it is given when another one is done.
        if self.failure.is_some() || bytes == 0 || !is_due || self.sends == MESSAGES_MAX + CREDITS_MAX {
            return;
        }
        // A ring is never longer than a number of 32 bits.
        match self.pair.send(bytes as u32) {
            Ok(()) => {
                self.sends += 1;
                self.credited = self.read;
                if is_drained {
                    self.messages = 0;
                }
            }
            Err(error) => self.failure = Some(Failure::Refused(error.kind())),
        }
    }

    /// Returns the number of bytes that can be read now.
    fn readable_bytes(&mut self) -> io::Result<usize> {
        if self.received == self.read {
            self.advance();
        }
        self.unread_bytes()
    }

    fn unread_bytes(&self) -> io::Result<usize> {
        match (self.received - self.read, self.failure) {
            (0, Some(failure)) | (_, Some(failure @ Failure::Breach)) => Err(failure.into()),
            (bytes, _) => Ok(bytes as usize),
        }
    }

    /// Returns the number of bytes that can be written now.
    fn writable_bytes(&mut self) -> io::Result<usize> {
        self.advance();
        self.free_bytes()
    }

    fn free_bytes(&self) -> io::Result<usize> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let free = self.ring_bytes - (self.written - self.peer_read.min(self.acknowledged));
        Ok(if self.messages_left() == 0 { 0 } else { free as usize })
    }

    /// Returns the number of messages that may be sent now. Credits always find a place.
    fn messages_left(&self) -> usize {
        (MESSAGES_MAX - self.unread.len()).min(MESSAGES_MAX.saturating_sub(self.sends))
    }

    /// Returns the place of byte `count` within a ring, and how many of `bytes` bytes follow it without a wrap.
    fn piece(&self, count: u64, bytes: usize) -> (usize, usize) {
        let within = (count & (self.ring_bytes - 1)) as usize;
        (within, bytes.min(self.ring_bytes as usize - within))
    }

    fn consume(&mut self, bytes: usize, mut copy: impl FnMut(&SharedMemory, usize, usize)) {
        let mut rest = bytes;
        while rest > 0 {
            let (at, length) = self.piece(self.read, rest);
            copy(&self.memory, at, length);
            self.read += length as u64;
            rest -= length;
        }
        self.give_credit();
    }

    /// Sends the next `bytes` bytes, which do not wrap.
    fn send(&mut self, bytes: usize) -> io::Result<()> {
        let at = self.piece(self.written, bytes).0;
        let end = self.written + bytes as u64;
        let target = (self.target.address.wrapping_add(at as u64), self.target.key);
        if let Err(error) = self.pair.write(at, bytes as u32, target, bytes as u32, end) {
            self.failure = Some(Failure::Refused(error.kind()));
            return Err(error);
        }
        self.written = end;
        self.unread.push_back(end);
        self.sends += 1;
        Ok(())
    }
}

impl Link for RemoteRings {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.readable_bytes()?.min(into.len());
        let mut done = 0;
        self.consume(bytes, |memory, at, length| {
            memory.copy_out(at, &mut into[done..done + length]);
            done += length;
        });
        Ok(bytes)
    }

    fn read_to(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let bytes = self.readable_bytes()?.min(into.capacity() - into.len());
        self.consume(bytes, |memory, at, length| memory.append_to(at, length, into));
        Ok(bytes)
    }

    fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.writable_bytes()?;
        let (mut done, mut unsent) = (0, 0);
        'parts: for part in parts {
            let mut rest = &part[..part.len().min(room - done)];
            while !rest.is_empty() {
                if self.messages_left() == 0 {
                    break 'parts;
                }
                let wanted = rest.len().min(MESSAGE_BYTES_MAX - unsent);
                let (at, length) = self.piece(self.written + unsent as u64, wanted);
                self.memory.copy_in(self.outgoing_at + at, &rest[..length]);
                (done, unsent) = (done + length, unsent + length);
                rest = &rest[length..];
                if unsent == MESSAGE_BYTES_MAX || at + length == self.ring_bytes as usize {
                    self.send(std::mem::take(&mut unsent))?;
                }
            }
        }
        if unsent > 0 {
            self.send(unsent)?;
        }
        self.wants_room = done < parts.iter().map(|part| part.len()).sum();
        Ok(done)
    }

    fn is_ready(&mut self, reads: bool) -> io::Result<bool> {
        self.advance();
        if reads && self.unread_bytes()? > 0 {
            return Ok(true);
        }
        // A caller that does not read finds an error, too.
        let free = if reads && !self.wants_room { 0 } else { self.free_bytes()? };
        let has_room = self.wants_room && free > 0;
        let is_flushed = self.wants_flush && self.sends == 0;
        Ok(has_room || is_flushed)
    }

    fn may_sleep(&mut self, reads: bool) -> io::Result<bool> {
        self.pair.ask_for_event()?;
        // An outcome that came before the question makes no event.
        Ok(!self.is_ready(reads)?)
    }

    fn awake(&mut self) {}

    fn must_ring(&mut self) -> bool {
        false
    }

    fn is_flushed(&mut self) -> bool {
        self.advance();
        let is_flushed = self.sends == 0 || self.failure.is_some();
        self.wants_flush = !is_flushed;
        is_flushed
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pair.descriptor())
    }

    fn take_events(&mut self) {
        self.pair.take_events();
    }
}

/// Acts of a peer that the format forbids, for tests.
#[cfg(test)]
impl RemoteRings {
    pub(super) fn target(&self) -> (u64, u32) {
        (self.target.address, self.target.key)
    }

    /// Writes `bytes` bytes and tells another number of them.
    pub(super) fn write_raw(&mut self, bytes: u32, count: u32, target: (u64, u32)) {
        self.sends += 1;
        self.pair.write(0, bytes, target, count, 0).unwrap();
    }

    pub(super) fn credit_raw(&mut self, count: u32) {
        self.sends += 1;
        self.pair.send(count).unwrap();
    }
}
