//! Commands of I/O queues as operations of the devices below.

use super::command::Entry;
use super::memory::{Memory, Segment};
use super::walk::Walk;
use super::{NvmeCommand, Shared, status};
use situ_base::bytes::{u32_at, u64_at};
use situ_device::{Buffer, Device, Geometry, Op, PAGE_BYTES};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The namespace number that means all of them.
const ALL: u32 = u32::MAX;

/// A namespace and its device.
pub(super) struct Namespace {
    pub(super) device: Arc<dyn Device>,
    pub(super) geometry: Geometry,
    pub(super) blocks: u64,
    block: u64,
}

impl Namespace {
    pub(super) fn new(device: Arc<dyn Device>) -> Namespace {
        let geometry = device.geometry();
        let bytes = device.space().logical_total;
        assert!(bytes.is_multiple_of(PAGE_BYTES as u64), "{} is not of whole pages", device.describe());
        // A power failure tears no block of a namespace.
        let block = u64::from(geometry.block_bytes.min(geometry.atomic_write_bytes));
        Namespace { device, geometry, blocks: bytes / block, block }
    }

    pub(super) fn block(&self) -> u64 {
        self.block
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Results go to the host's memory.
    Read,
    /// Results are compared with the host's memory.
    Compare,
    /// Nothing is left to do with a result.
    Other,
}

/// The rest of a command under way.
pub(super) struct Transfer {
    kind: Kind,
    /// The host's memory.
    host: Vec<Segment>,
    steps: VecDeque<Step>,
    /// The step that is with the device: its place in the transfer, the first byte of interest in its buffer, and the
    /// number of those bytes.
    current: (usize, usize, usize),
}

/// One operation of a device.
pub(super) struct Step {
    pub(super) namespace: usize,
    pub(super) op: Op,
    pub(super) buffer: Buffer,
    at: usize,
    skip: usize,
    bytes: usize,
}

impl Transfer {
    /// Returns the next step. The caller hands it to the device.
    pub(super) fn next(&mut self) -> Option<Step> {
        let step = self.steps.pop_front()?;
        self.current = (step.at, step.skip, step.bytes);
        Some(step)
    }

    /// Brings the result of a step to the host's memory, or compares it.
    pub(super) fn deliver(&self, memory: &Memory, is_live: &AtomicBool, buffer: &Buffer) -> Result<(), u16> {
        let (at, skip, bytes) = self.current;
        let found = &buffer[skip..skip + bytes];
        match self.kind {
            Kind::Other => Ok(()),
            Kind::Read => memory.scatter(is_live, &self.host, at, found).map_err(|_| status::DATA_TRANSFER),
            Kind::Compare => {
                let mut expected = vec![0; bytes];
                memory.gather(is_live, &self.host, at, &mut expected).map_err(|_| status::DATA_TRANSFER)?;
                if expected == found { Ok(()) } else { Err(status::COMPARE_FAILURE) }
            }
        }
    }
}

/// Returns the status for an error of the device.
pub(super) fn status_of(op: Op, error: &io::Error) -> u16 {
    match (op, error.kind()) {
        (_, io::ErrorKind::StorageFull) => status::CAPACITY,
        (_, io::ErrorKind::Unsupported) => status::INVALID_OPCODE,
        (Op::Read { .. }, _) => status::READ_ERROR,
        (Op::Write { .. } | Op::Zero { .. }, _) => status::WRITE_FAULT,
        (Op::Flush | Op::Discard { .. }, _) => status::INTERNAL,
    }
}

/// Turns a command into steps, and takes the data of a write from the host. An error is the status of the refusal.
pub(super) fn plan(shared: &Shared, walk: &Walk<'_>, entry: &Entry, spare: &mut Vec<Buffer>) -> Result<Transfer, u16> {
    let optional = &shared.config;
    let mut plan = Plan { shared, walk, entry, spare, steps: VecDeque::new(), host: Vec::new() };
    if entry.is_fused() {
        return Err(status::INVALID_FIELD);
    }
    let kind = match entry.command {
        NvmeCommand::Flush => plan.flush(),
        NvmeCommand::Read => plan.transfer(Kind::Read),
        NvmeCommand::Write => plan.transfer(Kind::Other),
        NvmeCommand::Compare if optional.has_compare => plan.transfer(Kind::Compare),
        NvmeCommand::WriteZeroes if optional.has_write_zeroes => plan.zero(),
        NvmeCommand::DatasetManagement if shared.can_discard() => plan.discard(),
        _ => Err(status::INVALID_OPCODE),
    }?;
    Ok(Transfer { kind, host: plan.host, steps: plan.steps, current: (0, 0, 0) })
}

struct Plan<'a> {
    shared: &'a Shared,
    walk: &'a Walk<'a>,
    entry: &'a Entry,
    spare: &'a mut Vec<Buffer>,
    steps: VecDeque<Step>,
    host: Vec<Segment>,
}

impl Plan<'_> {
    fn namespace(&self) -> Result<(usize, &Namespace), u16> {
        let number = (self.entry.namespace() as usize).checked_sub(1).ok_or(status::INVALID_NAMESPACE)?;
        Ok((number, self.shared.namespaces.get(number).ok_or(status::INVALID_NAMESPACE)?))
    }

    /// Returns a buffer of any contents.
    fn buffer(&mut self, bytes: usize) -> Result<Buffer, u16> {
        match self.spare.iter().position(|buffer| buffer.len() == bytes.next_multiple_of(PAGE_BYTES)) {
            Some(at) => Ok(self.spare.swap_remove(at)),
            None => Buffer::try_unfilled(bytes).ok_or(status::INTERNAL),
        }
    }

    /// Adds an operation that moves no data.
    fn push(&mut self, namespace: usize, op: Op) -> Result<(), u16> {
        let buffer = self.buffer(PAGE_BYTES)?;
        self.steps.push_back(Step { namespace, op, buffer, at: 0, skip: 0, bytes: 0 });
        Ok(())
    }

    /// Returns true if a write has to be durable when it is complete.
    fn is_through(&self) -> bool {
        const FORCE_UNIT_ACCESS: u32 = 1 << 30;
        self.entry.word(12) & FORCE_UNIT_ACCESS != 0 || !self.shared.cache_is_on.load(Ordering::Acquire)
    }

    /// Returns the first byte and the number of bytes that the command names on its namespace.
    fn range(&self, namespace: &Namespace) -> Result<(u64, u64), u16> {
        let count = u64::from(self.entry.word(12) & 0xffff) + 1;
        checked_range(namespace, self.entry.first_block(), count)
    }

    fn flush(&mut self) -> Result<Kind, u16> {
        let namespaces = match self.entry.namespace() {
            ALL => 0..self.shared.namespaces.len(),
            _ => self.namespace().map(|(number, _)| number..number + 1)?,
        };
        for namespace in namespaces {
            self.push(namespace, Op::Flush)?;
        }
        Ok(Kind::Other)
    }

    fn transfer(&mut self, kind: Kind) -> Result<Kind, u16> {
        let (number, namespace) = self.namespace()?;
        let (offset, bytes) = self.range(namespace)?;
        let (most, device_bytes) =
            (namespace.geometry.max_transfer_bytes as usize, namespace.blocks * namespace.block());
        if self.shared.config.transfer_bytes_max().is_some_and(|max| bytes > max) {
            return Err(status::INVALID_FIELD);
        }
        let (bytes, is_write) = (bytes as usize, self.entry.command == NvmeCommand::Write);
        if is_write && !bytes.is_multiple_of(PAGE_BYTES) {
            // The device below writes whole pages only.
            return Err(status::INTERNAL);
        }
        self.host = self.walk.segments(self.entry, bytes)?;
        let part = (most - most % PAGE_BYTES).max(PAGE_BYTES);
        for at in (0..bytes).step_by(part) {
            let step = part.min(bytes - at);
            let mut buffer = self.buffer(step)?;
            let start = offset + at as u64;
            let (skip, op) = if is_write {
                let gathered = self.walk.memory.gather(self.walk.is_live, &self.host, at, &mut buffer);
                gathered.map_err(|_| status::DATA_TRANSFER)?;
                (0, Op::Write { offset: start, durable: self.is_through() })
            } else {
                // A part of a page is read with what lies around it.
                let skip = (start + buffer.len() as u64).saturating_sub(device_bytes);
                (skip as usize, Op::Read { offset: start - skip })
            };
            self.steps.push_back(Step { namespace: number, op, buffer, at, skip, bytes: step });
        }
        Ok(kind)
    }

    fn zero(&mut self) -> Result<Kind, u16> {
        let (number, namespace) = self.namespace()?;
        let (offset, bytes) = self.range(namespace)?;
        self.push(number, Op::Zero { offset, bytes })?;
        self.push_through(number)
    }

    fn discard(&mut self) -> Result<Kind, u16> {
        const DEALLOCATE: u32 = 1 << 2;
        let (number, namespace) = self.namespace()?;
        let count = (self.entry.word(10) & 0xff) as usize + 1;
        let host = self.walk.segments(self.entry, 16 * count)?;
        let mut ranges = vec![0; 16 * count];
        let gathered = self.walk.memory.gather(self.walk.is_live, &host, 0, &mut ranges);
        gathered.map_err(|_| status::DATA_TRANSFER)?;
        let ranges = ranges.chunks_exact(16).map(|range| {
            let (blocks, first) = (u64::from(u32_at(range, 4)), u64_at(range, 8));
            checked_range(namespace, first, blocks)
        });
        let ranges = ranges.collect::<Result<Vec<_>, u16>>()?;
        if self.entry.word(11) & DEALLOCATE == 0 || namespace.geometry.discard_bytes == 0 {
            return Ok(Kind::Other);
        }
        for (offset, bytes) in ranges {
            if bytes > 0 {
                self.push(number, Op::Discard { offset, bytes })?;
            }
        }
        Ok(Kind::Other)
    }

    /// Makes the steps so far durable, where the command or the switched-off cache demands it.
    fn push_through(&mut self, namespace: usize) -> Result<Kind, u16> {
        if self.is_through() {
            self.push(namespace, Op::Flush)?;
        }
        Ok(Kind::Other)
    }
}

/// Returns the first byte and the number of bytes of a range of blocks.
fn checked_range(namespace: &Namespace, first: u64, blocks: u64) -> Result<(u64, u64), u16> {
    match first.checked_add(blocks) {
        Some(end) if end <= namespace.blocks => Ok((first * namespace.block(), blocks * namespace.block())),
        _ => Err(status::OUT_OF_RANGE),
    }
}
