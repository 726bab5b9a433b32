//! Operations on an NVMe namespace as commands passed through a ring.
//!
//! A transfer is one command, since the geometry's longest transfer fits one. Discarding and zeroing go range by range.
//! A durable write carries the bit for force unit access, where there is a volatile cache at all.

use super::queue::{Commands, Plan, Step};
use super::ring::Ring;
use super::table::InFlight;
use crate::blocking::zeros;
use crate::nvme::{Namespace, status_error};
use crate::{Buffer, Geometry, Op};
use io_uring::types::Fixed;
use io_uring::{cqueue, opcode, squeue};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The device's place among the files registered with the ring.
const DEVICE: Fixed = Fixed(0);

/// `NVME_URING_CMD_IO` of `linux/nvme_ioctl.h`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`, which has 72 bytes.
const NVME_URING_CMD_IO: u32 = 0xc000_0000 | 72 << 16 | (b'N' as u32) << 8 | 0x80;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// The bit in the twelfth word of a write: force unit access.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// The bit in the eleventh word of dataset management: the ranges are given back.
const DEALLOCATE: u32 = 1 << 2;
/// The bit in a status: trying again will not help.
const DO_NOT_RETRY: u32 = 1 << 14;

/// Blocks that one Write Zeroes can name.
const ZEROES_BLOCKS_MAX: u64 = 1 << 16;
/// Bytes given back by one command; its length counts blocks in 32 bits.
const DISCARD_BYTES_MAX: u64 = 1 << 31;
/// Times that a command is given to the drive again which it failed without saying that this is useless.
const RETRIES: u32 = 3;

pub(crate) struct NvmeCommands {
    file: Arc<File>,
    namespace: Namespace,
}

/// `struct nvme_uring_cmd` of `linux/nvme_ioctl.h`, in the room that an entry of a ring has for it. Other fields are
/// zero.
type Command = [u8; 80];

/// The words of a command that differ between those used here.
struct Words {
    opcode: u8,
    address: u64,
    data_bytes: u32,
    words_10_12: [u32; 3],
}

impl NvmeCommands {
    pub(crate) fn new(file: Arc<File>, namespace: Namespace) -> NvmeCommands {
        NvmeCommands { file, namespace }
    }

    fn command(&self, words: Words) -> Command {
        let mut command = [0; 80];
        command[0] = words.opcode;
        command[4..8].copy_from_slice(&self.namespace.id.to_ne_bytes());
        command[24..32].copy_from_slice(&words.address.to_ne_bytes());
        command[36..40].copy_from_slice(&words.data_bytes.to_ne_bytes());
        for (index, word) in words.words_10_12.iter().enumerate() {
            command[40 + 4 * index..44 + 4 * index].copy_from_slice(&word.to_ne_bytes());
        }
        command
    }

    /// Returns a command on blocks: the first in two words, their number less one in the third.
    fn on_blocks(&self, opcode: u8, offset: u64, bytes: u64, data: Option<*const u8>, flags: u32) -> Command {
        let block = u64::from(self.namespace.geometry.block_bytes);
        let (first, count) = (offset / block, bytes / block);
        self.command(Words {
            opcode,
            address: data.map_or(0, |data| data as u64),
            data_bytes: if data.is_some() { bytes as u32 } else { 0 },
            words_10_12: [first as u32, (first >> 32) as u32, (count - 1) as u32 | flags],
        })
    }

    fn zero(&self, operation: &mut InFlight, offset: u64, left: u64) -> Command {
        let block = u64::from(self.namespace.geometry.block_bytes);
        let at = offset + operation.done;
        if self.namespace.writes_zeroes {
            operation.under_way = left.min(ZEROES_BLOCKS_MAX * block);
            return self.on_blocks(WRITE_ZEROES, at, operation.under_way, None, 0);
        }
        let zeros = zeros();
        let most = (zeros.len() as u64).min(u64::from(self.namespace.geometry.max_transfer_bytes));
        operation.under_way = left.min(most - most % block);
        self.on_blocks(WRITE, at, operation.under_way, Some(zeros.address()), 0)
    }

    /// Returns the command that discards one range, described in a buffer in addition to the operation's own.
    fn discard(&self, operation: &mut InFlight, offset: u64, left: u64) -> Command {
        let block = u64::from(self.namespace.geometry.block_bytes);
        operation.under_way = left.min(DISCARD_BYTES_MAX);
        let range = operation.aside.get_or_insert_with(|| Buffer::new(1));
        range[4..8].copy_from_slice(&((operation.under_way / block) as u32).to_le_bytes());
        range[8..16].copy_from_slice(&((offset + operation.done) / block).to_le_bytes());
        self.command(Words {
            opcode: DATASET_MANAGEMENT,
            address: range.address() as u64,
            data_bytes: 16,
            words_10_12: [0, DEALLOCATE, 0],
        })
    }

    /// Returns the next command of an operation.
    fn plan_command(&self, operation: &mut InFlight) -> Plan<Command> {
        let Geometry { volatile_write_cache, discard_bytes, .. } = self.namespace.geometry;
        Plan::Entry(match operation.op {
            Op::Read { offset } => {
                let buffer = operation.rest();
                operation.under_way = buffer.len() as u64;
                self.on_blocks(READ, offset, operation.under_way, Some(buffer.cast()), 0)
            }
            Op::Write { offset, durable } => {
                let buffer = operation.rest();
                operation.under_way = buffer.len() as u64;
                let flags = if durable && volatile_write_cache { FORCE_UNIT_ACCESS } else { 0 };
                self.on_blocks(WRITE, offset, operation.under_way, Some(buffer.cast()), flags)
            }
            Op::Flush if !volatile_write_cache => return Plan::Done(Ok(())),
            Op::Flush => self.command(Words { opcode: FLUSH, address: 0, data_bytes: 0, words_10_12: [0; 3] }),
            Op::Discard { .. } if discard_bytes == 0 => {
                let why = "the drive has no command to give back room";
                return Plan::Done(Err(io::Error::new(io::ErrorKind::Unsupported, why)));
            }
            Op::Discard { bytes, .. } | Op::Zero { bytes, .. } if operation.done >= bytes => return Plan::Done(Ok(())),
            Op::Discard { offset, bytes } => self.discard(operation, offset, bytes - operation.done),
            Op::Zero { offset, bytes } => self.zero(operation, offset, bytes - operation.done),
        })
    }
}

impl Commands for NvmeCommands {
    type Entry = squeue::Entry128;
    type Result = cqueue::Entry32;

    fn geometry(&self) -> &Geometry {
        &self.namespace.geometry
    }

    fn device_bytes(&self) -> u64 {
        self.namespace.bytes
    }

    fn register(&self, ring: &Ring<squeue::Entry128, cqueue::Entry32>) -> io::Result<()> {
        ring.submitter().register_files(&[self.file.as_raw_fd()])
    }

    fn plan(&self, operation: &mut InFlight) -> Plan<squeue::Entry128> {
        match self.plan_command(operation) {
            Plan::Entry(command) => {
                Plan::Entry(opcode::UringCmd80::new(DEVICE, NVME_URING_CMD_IO).cmd(command).build())
            }
            Plan::Done(result) => Plan::Done(result),
        }
    }

    fn step(&self, operation: &mut InFlight, result: i32) -> Step {
        match result {
            0 => operation.done += operation.under_way,
            1.. if result as u32 & DO_NOT_RETRY == 0 && operation.retries < RETRIES => return Step::Retry,
            1.. => return Step::Done(Err(status_error(result as u32))),
            _ => {
                return match Errno::from_raw_os_error(-result) {
                    Errno::INTR | Errno::AGAIN | Errno::CANCELED => Step::Retry,
                    other => Step::Done(Err(other.into())),
                };
            }
        }
        let total = match operation.op {
            Op::Discard { bytes, .. } | Op::Zero { bytes, .. } => bytes,
            Op::Read { .. } | Op::Write { .. } | Op::Flush => return Step::Done(Ok(())),
        };
        if operation.done >= total { Step::Done(Ok(())) } else { Step::Continue }
    }
}

#[cfg(test)]
mod tests;
