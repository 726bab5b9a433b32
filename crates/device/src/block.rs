//! Block devices behind polled queue pairs.

use crate::nature::Nature;
use crate::{Buffer, Watch};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The geometry of a device. All sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The smallest addressable unit; offsets and lengths are multiples of it.
    pub block_bytes: u32,
    /// A write of at most this size, aligned to it, is never torn by a crash.
    pub atomic_write_bytes: u32,
    /// The longest single transfer that [`Queue::submit`] takes.
    pub max_transfer_bytes: u32,
    /// Acknowledged writes may be lost at power failure until a flush. Where it is false, [`Op::Flush`] and a durable
    /// write cost nothing beyond the write itself, and no caller needs to send a flush.
    pub volatile_write_cache: bool,
    /// The unit in which [`Op::Discard`] gives back room; 0 if the device cannot, and answers `Unsupported`.
    pub discard_bytes: u32,
    /// Discarded bytes read as zero, as long as the discard covers whole units of `discard_bytes`.
    pub discard_zeroes: bool,
}

/// The total and the used space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Addressable bytes.
    pub logical_total: u64,
    /// Addressable bytes in use.
    pub logical_used: u64,
    /// Physical bytes of the whole drive below, where it compresses and says so: what it can hold of compressed data.
    /// With everything that lies on it, others' included, it has `physical_total - physical_used` left. `None` if it is
    /// unknown.
    pub physical_total: Option<u64>,
    /// Physical bytes that the whole drive below holds, where it compresses and says so. `None` if it is unknown.
    pub physical_used: Option<u64>,
    /// Physical bytes that the whole drive below has written, since its own counter began, where it counts them. `None`
    /// if it is unknown.
    pub physical_written: Option<u64>,
}

impl Space {
    /// Returns the addressable bytes that are left; `None` if it is unknown how many there are.
    ///
    /// ```
    /// use situ_device::Space;
    ///
    /// let space = Space { logical_total: 10, logical_used: 7, ..Space::default() };
    /// assert_eq!(space.logical_free(), Some(3));
    /// assert_eq!(Space::default().logical_free(), None);
    /// ```
    pub fn logical_free(&self) -> Option<u64> {
        (self.logical_total > 0).then(|| self.logical_total.saturating_sub(self.logical_used))
    }

    /// Returns the physical bytes that the drive has left, where both figures are known.
    ///
    /// ```
    /// use situ_device::Space;
    ///
    /// let space = Space { physical_total: Some(10), physical_used: Some(7), ..Space::default() };
    /// assert_eq!(space.physical_free(), Some(3));
    /// assert_eq!(Space::default().physical_free(), None);
    /// ```
    pub fn physical_free(&self) -> Option<u64> {
        Some(self.physical_total?.saturating_sub(self.physical_used?))
    }
}

/// One block operation. Offsets are in bytes from the start of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from `offset`.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Write the whole buffer at `offset`; with `durable`, complete only when it would survive power failure.
    Write {
        /// First byte.
        offset: u64,
        /// Force unit access.
        durable: bool,
    },
    /// Make all completed writes durable. The buffer is handed back untouched.
    Flush,
    /// Tell the device that these bytes are not needed any more. Reads of them are undefined afterwards unless the
    /// geometry says [`discard_zeroes`](Geometry::discard_zeroes). Not durable by itself.
    Discard {
        /// First byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Make these bytes read as zero. Durable after a [`Op::Flush`], as a write is.
    Zero {
        /// First byte.
        offset: u64,
        /// The number of bytes.
        bytes: u64,
    },
}

/// Names a submitted operation within its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A finished operation: the buffer comes back to its owner.
#[derive(Debug)]
pub struct Completion {
    /// The ticket that `submit` returned for it.
    pub ticket: Ticket,
    /// The operation.
    pub op: Op,
    /// The buffer that was handed in.
    pub buffer: Buffer,
    /// Whole transfer done, or why not. Short transfers are continued or reported, never taken as success.
    pub result: io::Result<()>,
}

/// The right to write to a device; given back when it is dropped.
pub trait DeviceLock: Send + Sync + fmt::Debug {}

/// Something addressed in blocks: a file, a block device, a simulated disk.
pub trait Device: Send + Sync {
    /// Returns backend and path in one line, for people.
    fn describe(&self) -> String;
    /// Takes the right to write, which one opener on the machine has at a time. Nothing enforces it below: reading and
    /// writing work without it. So a writer takes it first and keeps it as long as it writes.
    ///
    /// # Errors
    /// `WouldBlock` if it is taken, be it by another opener in this process or by a mounted file system.
    fn lock(&self) -> io::Result<Box<dyn DeviceLock>>;
    /// Sizes and cache behaviour.
    fn geometry(&self) -> Geometry;
    /// Takes all of its room from what it lies on, as far as it has not yet: a file's, from its file system. Nothing
    /// that it holds is changed. Later writes do not find the file system full.
    ///
    /// # Errors
    /// `StorageFull` if there is less than that, and nothing is taken then; or the system refuses.
    fn reserve(&self) -> io::Result<()> {
        Ok(())
    }
    /// Returns the size and use of the device. A file that has been cut since it was opened has less room than then; it
    /// takes no more writes.
    fn space(&self) -> Space;
    /// Returns the kind of the drive below, and its compression. The default says that nothing is known.
    fn nature(&self) -> Nature {
        Nature::unknown("unknown", "this kind of device does not say")
    }
    /// Opens a queue pair for one thread, with at most `depth` operations in flight.
    ///
    /// # Errors
    /// The backend could not allocate the queue.
    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>>;
}

/// A submission and completion pair, used by one thread at a time; it may be handed over, also with operations in
/// flight.
///
/// Only [`wait`](Queue::wait) blocks, except where a device has no other way than a call: then `submit` does the
/// operation before it returns. Dropping a queue waits for what is in flight, since the device has the buffers.
pub trait Queue: Send {
    /// Hands an operation and its buffer to the device.
    ///
    /// # Errors
    /// `WouldBlock` when `depth` operations are in flight, `InvalidInput` for an unaligned, overlong or out-of-range
    /// request; the buffer comes back either way.
    fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)>;
    /// Collects finished operations into `done`; returns how many.
    fn poll(&mut self, done: &mut Vec<Completion>) -> usize;
    /// Like [`poll`](Queue::poll), but blocks up to `timeout` for the first one. Returns at once if nothing is in
    /// flight.
    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize;
    /// Returns a way to wait for completions that another thread can end; asked for while nothing is in flight. `None`:
    /// there is nothing to wait for, because `submit` does the operation before it returns, or the queue has no such
    /// way.
    ///
    /// # Errors
    /// The system refuses.
    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        Ok(None)
    }
}

/// Refuses an operation that the device cannot mean: not in whole blocks, longer than a transfer, behind the end.
///
/// Discarding and zeroing move no data through a buffer, so they may be of any length.
pub(crate) fn check_request(op: Op, buffer: &Buffer, geometry: &Geometry, device_bytes: u64) -> io::Result<()> {
    let invalid = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let (offset, bytes, moves_data) = match op {
        Op::Read { offset } | Op::Write { offset, .. } => (offset, buffer.len() as u64, true),
        Op::Discard { offset, bytes } | Op::Zero { offset, bytes } => (offset, bytes, false),
        Op::Flush => return Ok(()),
    };
    let block = u64::from(geometry.block_bytes);
    if offset % block != 0 || bytes % block != 0 {
        return invalid(format!("{op:?} of {bytes} bytes is not in whole blocks of {block} bytes"));
    }
    if moves_data && bytes > u64::from(geometry.max_transfer_bytes) {
        let most = geometry.max_transfer_bytes;
        return invalid(format!("{op:?} of {bytes} bytes is longer than one transfer, which takes {most} bytes"));
    }
    if offset.checked_add(bytes).is_none_or(|end| end > device_bytes) {
        return invalid(format!("{op:?} of {bytes} bytes ends behind the device, which has {device_bytes} bytes"));
    }
    Ok(())
}
