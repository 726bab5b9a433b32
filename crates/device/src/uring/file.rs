//! Operations on files and block devices as entries of a ring.
//!
//! The file is registered with the ring, so that the kernel does not look it up each time. An operation without a ring
//! command (discarding on a block device, before Linux 6.12) is a call within `submit`, which blocks there.

use super::queue::Commands;
use super::ring::Ring;
use crate::blocking::{self, ended_early};
use crate::buffer::zeros;
use crate::in_flight::InFlight;
use crate::in_flight::{Plan, Step};
use crate::target::{Kind, Target};
use crate::{Geometry, Op};
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file's place among those registered with the ring.
const FILE: Fixed = Fixed(0);

/// `BLOCK_URING_CMD_DISCARD` of `linux/blkdev.h`: offset in `addr`, length in `addr3`.
const BLOCK_DISCARD: u32 = 0x12 << 8;

pub(super) struct FileCommands {
    target: Target,
    /// The kernel has answered that it does not know [`BLOCK_DISCARD`].
    no_discard_command: Arc<AtomicBool>,
}

impl FileCommands {
    pub(super) fn new(target: Target, no_discard_command: Arc<AtomicBool>) -> FileCommands {
        FileCommands { target, no_discard_command }
    }

    fn discard(&self, offset: u64, bytes: u64) -> Plan<squeue::Entry> {
        if let Err(error) = self.target.check_discard() {
            return Plan::Done(Err(error));
        }
        match self.target.kind {
            Kind::RegularFile => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Plan::Entry(opcode::Fallocate::new(FILE, bytes).offset(offset).mode(mode.bits() as i32).build())
            }
            Kind::BlockDevice if self.no_discard_command.load(Ordering::Relaxed) => {
                Plan::Done(blocking::discard(&self.target, offset, bytes))
            }
            Kind::BlockDevice => {
                let mut length = [0; 16];
                length[..8].copy_from_slice(&bytes.to_ne_bytes());
                Plan::Entry(opcode::UringCmd16::new(FILE, BLOCK_DISCARD).addr(Some(offset)).cmd(length).build())
            }
        }
    }

    /// Zeroes a range like [`blocking::run`]: a file gets zeros written, a block device a command of its own.
    fn zero(&self, operation: &InFlight, offset: u64, bytes: u64) -> Plan<squeue::Entry> {
        match self.target.kind {
            Kind::RegularFile => {
                let zeros = zeros();
                let piece = (bytes - operation.done).min(zeros.len() as u64);
                if piece == 0 {
                    return Plan::Done(Ok(()));
                }
                Plan::Entry(self.write(zeros.address(), piece, offset + operation.done, false, None))
            }
            Kind::BlockDevice => {
                let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                Plan::Entry(opcode::Fallocate::new(FILE, bytes).offset(offset).mode(mode.bits() as i32).build())
            }
        }
    }

    fn write(&self, from: *const u8, bytes: u64, at: u64, durable: bool, registered: Option<u16>) -> squeue::Entry {
        let forced = durable && self.target.geometry.volatile_write_cache;
        let flags = if forced { ReadWriteFlags::DSYNC.bits() as i32 } else { 0 };
        match registered {
            None => opcode::Write::new(FILE, from, bytes as u32).offset(at).rw_flags(flags).build(),
            Some(place) => opcode::WriteFixed::new(FILE, from, bytes as u32, place).offset(at).rw_flags(flags).build(),
        }
    }
}

impl Commands for FileCommands {
    type Entry = squeue::Entry;
    type Result = cqueue::Entry;

    fn geometry(&self) -> &Geometry {
        &self.target.geometry
    }

    fn device_bytes(&self) -> u64 {
        self.target.bytes
    }

    fn register(&self, ring: &Ring) -> io::Result<()> {
        ring.submitter().register_files(&[self.target.file.as_raw_fd()])
    }

    fn uses_registered_buffers(&self) -> bool {
        self.target.direct
    }

    fn plan(&self, operation: &mut InFlight) -> Plan<squeue::Entry> {
        let keeps = matches!(operation.op, Op::Write { .. } | Op::Zero { .. } | Op::Flush);
        if keeps && let Err(error) = self.target.check_whole() {
            return Plan::Done(Err(error));
        }
        match operation.op {
            Op::Read { offset } => {
                let (rest, at) = (operation.rest(), offset + operation.done);
                Plan::Entry(match operation.registered {
                    None => opcode::Read::new(FILE, rest.cast(), rest.len() as u32).offset(at).build(),
                    Some(place) => {
                        opcode::ReadFixed::new(FILE, rest.cast(), rest.len() as u32, place).offset(at).build()
                    }
                })
            }
            Op::Write { offset, durable } => {
                let (rest, at) = (operation.rest(), offset + operation.done);
                Plan::Entry(self.write(rest.cast(), rest.len() as u64, at, durable, operation.registered))
            }
            Op::Flush if self.target.geometry.volatile_write_cache => {
                Plan::Entry(opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build())
            }
            Op::Flush => Plan::Done(Ok(())),
            Op::Discard { offset, bytes } => self.discard(offset, bytes),
            Op::Zero { offset, bytes } => self.zero(operation, offset, bytes),
        }
    }

    /// Returns true for a durable write to a file. It ends in a kernel worker where the disk has a volatile cache; the
    /// worker has to find a core before the waiter does. A call does without.
    fn prefers_call(&self, op: Op) -> bool {
        let durable = matches!(op, Op::Write { durable: true, .. });
        durable && self.target.kind == Kind::RegularFile && self.target.geometry.volatile_write_cache
    }

    fn call(&self, operation: &mut InFlight) -> io::Result<()> {
        blocking::run(&self.target, operation.op, &mut operation.buffer)
    }

    fn step(&self, operation: &mut InFlight, result: i32) -> Step {
        let (offset, wanted) = match operation.op {
            Op::Read { offset } | Op::Write { offset, .. } => (offset, operation.buffer.len() as u64),
            Op::Zero { offset, bytes } if self.target.kind == Kind::RegularFile => (offset, bytes),
            Op::Zero { .. } | Op::Flush | Op::Discard { .. } => (0, 0),
        };
        if result < 0 {
            return self.failed(operation, Errno::from_raw_os_error(-result));
        }
        if wanted == 0 {
            return Step::Done(Ok(()));
        }
        let whole = self.target.whole_units(result as usize) as u64;
        if whole == 0 {
            return Step::Done(Err(ended_early(offset, wanted, operation.done + result as u64)));
        }
        operation.done += whole;
        if operation.done >= wanted { Step::Done(Ok(())) } else { Step::Continue }
    }
}

impl FileCommands {
    fn failed(&self, operation: &InFlight, errno: Errno) -> Step {
        match errno {
            // A signal, no room at this moment, or the thread that submitted it has ended.
            Errno::INTR | Errno::AGAIN | Errno::CANCELED => Step::Retry,
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL
                if matches!(operation.op, Op::Discard { .. })
                    && self.target.kind == Kind::BlockDevice
                    && !self.no_discard_command.swap(true, Ordering::Relaxed) =>
            {
                Step::Retry
            }
            other => Step::Done(Err(other.into())),
        }
    }
}
