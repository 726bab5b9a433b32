//! One side of a connection: a ring that it reads, and one that it writes.

use crate::memory::SharedMemory;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// The least size of a ring.
pub const RING_BYTES_MIN: u64 = 4 << 10;
/// The largest size of a ring.
pub const RING_BYTES_MAX: u64 = 4 << 20;
/// The bytes of a long write or read after which the other side may go on with them: both sides copy at the same time.
const SLICE_BYTES: usize = if cfg!(test) { 500 } else { 32 << 10 };
/// The bytes before the rings.
pub(crate) const HEADER_BYTES: usize = 4096;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"situshm1");

/// Offsets of the header's fields.
pub(crate) mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const RING_BYTES: usize = 8;
    pub(crate) const TO_SERVER_WRITTEN: usize = 128;
    pub(crate) const TO_SERVER_READ: usize = 256;
    pub(crate) const TO_CLIENT_WRITTEN: usize = 384;
    pub(crate) const TO_CLIENT_READ: usize = 512;
    pub(crate) const SERVER_SLEEPS: usize = 640;
    pub(crate) const CLIENT_SLEEPS: usize = 768;
}

/// Wake me when there is something to read.
const WANTS_BYTES: u32 = 1;
/// Wake me when there is room to write.
const WANTS_ROOM: u32 = 2;

/// The other side has broken the protocol: its counts are impossible. The connection is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breach;

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side of a connection in memory has broken the protocol")
    }
}

impl std::error::Error for Breach {}

impl From<Breach> for std::io::Error {
    fn from(breach: Breach) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, breach)
    }
}

/// The time for which a side looks at its rings before it sleeps. It pays where the other side answers soon: a wake-up
/// costs several microseconds. Where the other side takes longer, or has no processor, the time shrinks.
///
/// A side that sleeps does not learn when the other one was ready: its own wake-up takes longer than most answers. So
/// each 16th wait after long ones has the longest time again.
#[derive(Debug, Clone, Copy)]
pub struct Spin {
    time: Duration,
    /// Waits that were too long since the last short one.
    long_waits: u32,
}

impl Spin {
    /// The longest time.
    pub const MAX: Duration = Duration::from_micros(50);

    /// Returns the time for the next wait.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Learns from a wait that took `waited` in all.
    pub fn learn(&mut self, waited: Duration) {
        if waited <= Spin::MAX {
            *self = Spin::default();
            return;
        }
        self.long_waits = self.long_waits.wrapping_add(1);
        self.time = if self.long_waits.is_multiple_of(16) { Spin::MAX } else { self.time / 2 };
    }
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { time: Spin::MAX, long_waits: 0 }
    }
}

/// The looks of a side that spins, and its turns with others on the same core.
///
/// A scheduler may keep both sides on one core, also where another one is free. So a side gives its core away between
/// looks. If another thread took it, the side looks a few times only before the next turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turns {
    core_is_shared: bool,
}

impl Turns {
    /// The number of looks on a core that another thread wants.
    const FEW: u32 = 4;
    /// A turn that takes longer has run another thread.
    const RAN_ANOTHER: Duration = Duration::from_micros(1);

    /// Returns the number of looks before the next turn; `most` on a core of its own.
    pub fn looks(&self, most: u32) -> u32 {
        if self.core_is_shared { Turns::FEW } else { most }
    }

    /// Gives the core away until the other threads there have had their turn. Costs a system call.
    pub fn pass(&mut self, now: Instant) {
        std::thread::yield_now();
        self.core_is_shared = now.elapsed() >= Turns::RAN_ANOTHER;
    }
}

/// The end of a ring, of its writer or of its reader.
#[derive(Debug)]
struct RingEnd {
    /// The offset of the ring's bytes.
    bytes_at: usize,
    /// The offset of the count that this side stores.
    own_at: usize,
    /// The offset of the count that the other side stores.
    other_at: usize,
    /// This side's count.
    own: u64,
    /// The other side's count, as of the last look.
    other: u64,
}

/// One side of a connection, without its socket. See the [crate].
#[derive(Debug)]
pub struct Rings {
    memory: Arc<SharedMemory>,
    ring_bytes: u64,
    incoming: RingEnd,
    outgoing: RingEnd,
    own_sleep_at: usize,
    other_sleep_at: usize,
    /// The last write found too little room.
    wants_room: bool,
    /// Bytes were written, and the other side's sleep was not looked at since.
    has_written: bool,
    /// Bytes were read, and the other side's sleep was not looked at since.
    has_read: bool,
}

impl Rings {
    /// Returns the server's side of memory that is all zeros, and fills the header in.
    pub(crate) fn of_server(memory: Arc<SharedMemory>, ring_bytes: u64) -> Rings {
        memory.count(at::RING_BYTES).store(ring_bytes.to_le(), Ordering::Relaxed);
        memory.count(at::MAGIC).store(MAGIC.to_le(), Ordering::Release);
        let incoming = (at::TO_SERVER_READ, at::TO_SERVER_WRITTEN, 0);
        let outgoing = (at::TO_CLIENT_WRITTEN, at::TO_CLIENT_READ, ring_bytes as usize);
        Rings::new(memory, ring_bytes, [incoming, outgoing], [at::SERVER_SLEEPS, at::CLIENT_SLEEPS])
    }

    /// Returns the client's side; `None` if the header is not the one that was announced.
    pub(crate) fn of_client(memory: Arc<SharedMemory>, ring_bytes: u64) -> Option<Rings> {
        let is_magic = u64::from_le(memory.count(at::MAGIC).load(Ordering::Acquire)) == MAGIC;
        let is_long = u64::from_le(memory.count(at::RING_BYTES).load(Ordering::Relaxed)) == ring_bytes;
        if !is_magic || !is_long {
            return None;
        }
        let incoming = (at::TO_CLIENT_READ, at::TO_CLIENT_WRITTEN, ring_bytes as usize);
        let outgoing = (at::TO_SERVER_WRITTEN, at::TO_SERVER_READ, 0);
        Some(Rings::new(memory, ring_bytes, [incoming, outgoing], [at::CLIENT_SLEEPS, at::SERVER_SLEEPS]))
    }

    fn new(
        memory: Arc<SharedMemory>,
        ring_bytes: u64,
        ends: [(usize, usize, usize); 2],
        [own_sleep_at, other_sleep_at]: [usize; 2],
    ) -> Rings {
        assert!(ring_bytes.is_power_of_two() && ring_bytes <= RING_BYTES_MAX, "a ring's length");
        let [incoming, outgoing] = ends.map(|(own_at, other_at, ring_at)| RingEnd {
            bytes_at: HEADER_BYTES + ring_at,
            own_at,
            other_at,
            own: 0,
            other: 0,
        });
        Rings {
            memory,
            ring_bytes,
            incoming,
            outgoing,
            own_sleep_at,
            other_sleep_at,
            wants_room: false,
            has_written: false,
            has_read: false,
        }
    }

    /// Returns the number of bytes that can be read now.
    ///
    /// # Errors
    /// [`Breach`].
    #[inline]
    pub fn readable_bytes(&mut self) -> Result<usize, Breach> {
        let end = &mut self.incoming;
        if end.other == end.own {
            let written = u64::from_le(self.memory.count(end.other_at).load(Ordering::Acquire));
            if written.wrapping_sub(end.own) > self.ring_bytes {
                return Err(Breach);
            }
            end.other = written;
        }
        Ok(end.other.wrapping_sub(end.own) as usize)
    }

    /// Returns the number of bytes that can be written now.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn writable_bytes(&mut self) -> Result<usize, Breach> {
        let end = &mut self.outgoing;
        let read = u64::from_le(self.memory.count(end.other_at).load(Ordering::Acquire));
        let unread = end.own.wrapping_sub(read);
        if unread > self.ring_bytes || read.wrapping_sub(end.other) > self.ring_bytes {
            return Err(Breach);
        }
        end.other = read;
        Ok((self.ring_bytes - unread) as usize)
    }

    /// Reads bytes into `into`. Returns their number, 0 if there are none.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Breach> {
        let bytes = self.readable_bytes()?.min(into.len());
        let mut done = 0;
        while done < bytes {
            let (offset, length) = self.piece(self.incoming.bytes_at, self.incoming.own, bytes - done);
            self.memory.copy_out(offset, &mut into[done..done + length]);
            self.consume(length);
            done += length;
        }
        Ok(bytes)
    }

    /// Appends bytes to `into`, as many as fit into its capacity. Returns their number, 0 if there are none.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn read_to(&mut self, into: &mut Vec<u8>) -> Result<usize, Breach> {
        let bytes = self.readable_bytes()?.min(into.capacity() - into.len());
        let mut done = 0;
        while done < bytes {
            let (offset, length) = self.piece(self.incoming.bytes_at, self.incoming.own, bytes - done);
            self.memory.append_to(offset, length, into);
            self.consume(length);
            done += length;
        }
        Ok(bytes)
    }

    fn consume(&mut self, bytes: usize) {
        let end = &mut self.incoming;
        end.own = end.own.wrapping_add(bytes as u64);
        self.memory.count(end.own_at).store(end.own.to_le(), Ordering::Release);
        self.has_read = true;
    }

    /// Writes as much of `from` as there is room for. Returns the number of bytes, 0 if there is no room.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn write(&mut self, from: &[u8]) -> Result<usize, Breach> {
        self.write_parts(&[IoSlice::new(from)])
    }

    /// As [`write`](Rings::write), one part after another. The other side sees short parts together.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, Breach> {
        let room = self.writable_bytes()?;
        let (mut done, mut hidden) = (0, 0);
        for part in parts {
            let mut rest = &part[..part.len().min(room - done)];
            while !rest.is_empty() {
                let at = self.outgoing.own.wrapping_add(hidden as u64);
                let (offset, length) = self.piece(self.outgoing.bytes_at, at, rest.len());
                self.memory.copy_in(offset, &rest[..length]);
                (done, hidden) = (done + length, hidden + length);
                rest = &rest[length..];
                if hidden >= SLICE_BYTES {
                    self.publish(std::mem::take(&mut hidden));
                }
            }
        }
        if hidden > 0 {
            self.publish(hidden);
        }
        self.wants_room = done < parts.iter().map(|part| part.len()).sum();
        Ok(done)
    }

    fn publish(&mut self, bytes: usize) {
        let end = &mut self.outgoing;
        end.own = end.own.wrapping_add(bytes as u64);
        self.memory.count(end.own_at).store(end.own.to_le(), Ordering::Release);
        self.has_written = true;
    }

    /// Returns the offset of the ring's byte `count`, and how many of `bytes` bytes follow it without a wrap, up to a
    /// slice.
    fn piece(&self, ring_at: usize, count: u64, bytes: usize) -> (usize, usize) {
        let within = (count & (self.ring_bytes - 1)) as usize;
        (ring_at + within, bytes.min(self.ring_bytes as usize - within).min(SLICE_BYTES))
    }

    /// Returns true if there is room where the last write found too little, or, if the caller `reads`, bytes to read. A
    /// caller that spins asks this.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn is_ready(&mut self, reads: bool) -> Result<bool, Breach> {
        Ok((reads && self.readable_bytes()? > 0) || (self.wants_room && self.writable_bytes()? > 0))
    }

    /// Asks the other side for a bell, before the caller sleeps: for room if the last write found too little, and for
    /// bytes if the caller `reads`. Returns false if there is something to do instead; then no bell was asked for.
    ///
    /// # Errors
    /// [`Breach`].
    pub fn may_sleep(&mut self, reads: bool) -> Result<bool, Breach> {
        let wanted = if reads { WANTS_BYTES } else { 0 } | if self.wants_room { WANTS_ROOM } else { 0 };
        self.memory.flags(self.own_sleep_at).store(wanted.to_le(), Ordering::SeqCst);
        // Either this side sees what the other one did, or the other one sees the flags. The other half is in
        // `must_ring`.
        fence(Ordering::SeqCst);
        if self.is_ready(reads)? {
            self.awake();
            return Ok(false);
        }
        Ok(true)
    }

    /// Asks for no more bells. One may be on its way.
    pub fn awake(&self) {
        self.memory.flags(self.own_sleep_at).store(0, Ordering::Relaxed);
    }

    /// Returns true if the other side sleeps and waits for what this one has done since the last call. The caller sends
    /// it a bell.
    #[must_use]
    pub fn must_ring(&mut self) -> bool {
        let has_written = std::mem::take(&mut self.has_written);
        let has_read = std::mem::take(&mut self.has_read);
        let done = if has_written { WANTS_BYTES } else { 0 } | if has_read { WANTS_ROOM } else { 0 };
        if done == 0 {
            return false;
        }
        fence(Ordering::SeqCst);
        let flags = self.memory.flags(self.other_sleep_at);
        u32::from_le(flags.load(Ordering::Relaxed)) & done != 0 && flags.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(test)]
mod tests;
