//! Operations as NVMe commands, for every way to the drive: through the kernel, or by a driver of Situ's own.
//!
//! A transfer is one command, since the geometry's longest transfer fits one. Discarding and zeroing go range by range.
//! A durable write carries the bit for force unit access, where there is a volatile cache at all.

use super::{Namespace, status_error};
use crate::buffer::zeros;
use crate::in_flight::{InFlight, Plan, Step};
use crate::{Buffer, Geometry, Op};
use std::io;

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
pub(crate) const ZEROES_BLOCKS_MAX: u64 = 1 << 16;
/// Bytes given back by one command; its length counts blocks in 32 bits.
pub(crate) const DISCARD_BYTES_MAX: u64 = 1 << 31;
/// Times that a command is given to the drive again which it failed without saying that this is useless.
pub(crate) const RETRIES: u32 = 3;

/// The fields of a command that differ between those used here. Other fields are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) opcode: u8,
    /// The memory that the drive reads or fills; null if there is none.
    pub(crate) data: *const u8,
    pub(crate) data_bytes: u32,
    pub(crate) words_10_12: [u32; 3],
}

impl Words {
    /// Returns a command on blocks: the first in two words, their number less one in the third.
    fn on_blocks(namespace: &Namespace, opcode: u8, offset: u64, bytes: u64, data: *const u8, flags: u32) -> Words {
        let block = u64::from(namespace.geometry.block_bytes);
        let (first, count) = (offset / block, bytes / block);
        Words {
            opcode,
            data,
            data_bytes: if data.is_null() { 0 } else { bytes as u32 },
            words_10_12: [first as u32, (first >> 32) as u32, (count - 1) as u32 | flags],
        }
    }

    fn zero(namespace: &Namespace, operation: &mut InFlight, offset: u64, left: u64) -> Words {
        let block = u64::from(namespace.geometry.block_bytes);
        let at = offset + operation.done;
        if namespace.writes_zeroes {
            operation.under_way = left.min(ZEROES_BLOCKS_MAX * block);
            return Words::on_blocks(namespace, WRITE_ZEROES, at, operation.under_way, std::ptr::null(), 0);
        }
        let zeros = zeros();
        let most = (zeros.len() as u64).min(u64::from(namespace.geometry.max_transfer_bytes));
        operation.under_way = left.min(most - most % block);
        Words::on_blocks(namespace, WRITE, at, operation.under_way, zeros.address(), 0)
    }

    /// Returns the command that discards one range, described in a buffer in addition to the operation's own.
    fn discard(namespace: &Namespace, operation: &mut InFlight, offset: u64, left: u64) -> Words {
        let block = u64::from(namespace.geometry.block_bytes);
        operation.under_way = left.min(DISCARD_BYTES_MAX);
        let range = operation.aside.get_or_insert_with(|| Buffer::new(1));
        range[4..8].copy_from_slice(&((operation.under_way / block) as u32).to_le_bytes());
        range[8..16].copy_from_slice(&((offset + operation.done) / block).to_le_bytes());
        let data = range.address().cast_const();
        Words { opcode: DATASET_MANAGEMENT, data, data_bytes: 16, words_10_12: [0, DEALLOCATE, 0] }
    }
}

/// Returns the next command of an operation.
pub(crate) fn plan(namespace: &Namespace, operation: &mut InFlight) -> Plan<Words> {
    let Geometry { volatile_write_cache, discard_bytes, .. } = namespace.geometry;
    Plan::Entry(match operation.op {
        Op::Read { offset } => {
            let buffer = operation.rest();
            operation.under_way = buffer.len() as u64;
            Words::on_blocks(namespace, READ, offset, operation.under_way, buffer.cast(), 0)
        }
        Op::Write { offset, durable } => {
            let buffer = operation.rest();
            operation.under_way = buffer.len() as u64;
            let flags = if durable && volatile_write_cache { FORCE_UNIT_ACCESS } else { 0 };
            Words::on_blocks(namespace, WRITE, offset, operation.under_way, buffer.cast(), flags)
        }
        Op::Flush if !volatile_write_cache => return Plan::Done(Ok(())),
        Op::Flush => Words { opcode: FLUSH, data: std::ptr::null(), data_bytes: 0, words_10_12: [0; 3] },
        Op::Discard { .. } if discard_bytes == 0 => {
            let why = "the drive has no command to give back room";
            return Plan::Done(Err(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        Op::Discard { bytes, .. } | Op::Zero { bytes, .. } if operation.done >= bytes => return Plan::Done(Ok(())),
        Op::Discard { offset, bytes } => Words::discard(namespace, operation, offset, bytes - operation.done),
        Op::Zero { offset, bytes } => Words::zero(namespace, operation, offset, bytes - operation.done),
    })
}

/// Returns the next step after the drive's answer to a command of the operation. Zero is success.
pub(crate) fn step(operation: &mut InFlight, status: u32) -> Step {
    match status {
        0 => operation.done += operation.under_way,
        _ if status & DO_NOT_RETRY == 0 && operation.retries < RETRIES => return Step::Retry,
        _ => return Step::Done(Err(status_error(status))),
    }
    let total = match operation.op {
        Op::Discard { bytes, .. } | Op::Zero { bytes, .. } => bytes,
        Op::Read { .. } | Op::Write { .. } | Op::Flush => return Step::Done(Ok(())),
    };
    if operation.done >= total { Step::Done(Ok(())) } else { Step::Continue }
}
