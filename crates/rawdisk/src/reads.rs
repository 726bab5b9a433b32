//! Submitted reads of a raw disk: one queue of the device, and one thread that serves it.
//!
//! 1. A read that needs no device is answered on the caller's thread: wrong ranges, bytes in the catalogue, units that
//!    are all in the cache.
//! 2. A read becomes pieces: runs of pages within one unit of the cache and within one extent. A short read takes its
//!    pages only; other reads take whole units, as [`Reader::read_at`](situ_storage::Reader::read_at) does.
//! 3. The thread gives pieces to the device as long as there are places. A finished piece is copied into the caller's
//!    buffer. A piece that is a whole unit goes into the cache.
//! 4. When the last piece has landed, the read completes. While another process may write, it first looks whether the
//!    file is still there (`beside.rs`), which reads four pages while the other reads wait.
//!
//! The queue is this module's own: submitted reads take no queue from callers that wait on their own threads. A device
//! that does its work within `submit` has nothing to watch ([`Queue::watch`]); there, threads read.
//!
//! **Failure.** The first error of a piece is the read's, which completes when nothing of it is in flight any more.

use super::cache::UNIT_BYTES;
use super::layout::PAGE;
use super::reader::{RawReader, units};
use super::transfer::{Transfers, pieces, places};
use situ_device::{Buffer, Completion, Op, PAGE_BYTES, Queue, Ticket};
use situ_storage::serve::{Pump, QueuedRead, ReadService, Served, Source};
use situ_storage::{Error, ReadCompletion, ReadRequest, Reader, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

/// Operations that the device has at once for submitted reads.
const DEPTH: u32 = 64;

/// A run of pages of a file on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// The offset in the file.
    at: u64,
    /// The offset on the device.
    place: u64,
    bytes: usize,
}

/// A read that needs the device.
pub(super) struct RawRead {
    reader: RawReader,
    pieces: Vec<Piece>,
    request: ReadRequest,
}

impl QueuedRead for RawRead {
    fn run(self) {
        let RawRead { reader, request, .. } = self;
        request.run(|offset, into| reader.read_at(offset, into));
    }
}

/// A finished file, whose reads may complete later.
pub(super) struct FileReader {
    reader: RawReader,
    reads: Arc<ReadService<RawRead>>,
}

impl FileReader {
    pub(super) fn new(reader: RawReader, reads: &Arc<ReadService<RawRead>>) -> FileReader {
        FileReader { reader, reads: Arc::clone(reads) }
    }
}

impl Reader for FileReader {
    fn path(&self) -> &str {
        &self.reader.path
    }

    fn bytes(&self) -> u64 {
        self.reader.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.reader.read_at(offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        self.reader.read_now(offset, into)
    }

    fn submit(&self, request: ReadRequest) {
        let (offset, bytes) = (request.offset, request.buffer.len());
        if !self.reader.needs_device(offset, bytes) {
            return request.run(|offset, into| self.reader.read_at(offset, into));
        }
        let (reader, pieces) = (self.reader.clone(), self.reader.pieces(offset, bytes));
        let read = RawRead { reader, pieces, request };
        self.reads.submit(read, || start(&self.reader.shared.transfers));
    }
}

/// Starts what does the reads of a device.
fn start(transfers: &Transfers) -> io::Result<Served<RawRead>> {
    let mut queue = transfers.device.queue(DEPTH)?;
    Ok(match queue.watch()? {
        Some(watch) => Served::Pump(Pump::start(&transfers.env, watch, DeviceSource::over(queue))?),
        None => Served::threads(&transfers.env),
    })
}

impl RawReader {
    /// Returns the pieces to read for these bytes of the file, of which there is one at least.
    fn pieces(&self, offset: u64, bytes: usize) -> Vec<Piece> {
        let (unit_bytes, end) = (UNIT_BYTES as u64, offset + bytes as u64);
        let units = units(offset, bytes);
        let (from, to) = match self.takes_pages_only(offset, bytes) {
            true => (offset, end),
            false => (units.start * unit_bytes, (units.end * unit_bytes).min(self.bytes)),
        };
        let mut found = Vec::new();
        let longest = self.shared.transfers.piece_bytes();
        for unit in units {
            let (from, to) = (from.max(unit * unit_bytes), to.min((unit + 1) * unit_bytes));
            let (first, last) = (from / PAGE, to.div_ceil(PAGE));
            let mut at = first * PAGE;
            for run in pieces(&places(&self.extents, first, last - first), longest) {
                let bytes = run.pages as usize * PAGE_BYTES;
                found.push(Piece { at, place: run.first * PAGE, bytes });
                at += bytes as u64;
            }
        }
        found
    }

    /// Takes a piece that has landed: copies the wanted bytes, and keeps a whole unit.
    fn land(&self, piece: Piece, buffer: Buffer, offset: u64, into: &mut [u8]) {
        let (from, to) = (piece.at.max(offset), (piece.at + buffer.len() as u64).min(offset + into.len() as u64));
        if from < to {
            let part = &buffer[(from - piece.at) as usize..(to - piece.at) as usize];
            into[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        let unit = piece.at / UNIT_BYTES as u64;
        let unit_end = ((unit + 1) * UNIT_BYTES as u64).min(self.bytes.next_multiple_of(PAGE));
        if self.is_cached && piece.at.is_multiple_of(UNIT_BYTES as u64) && piece.at + buffer.len() as u64 == unit_end {
            self.shared.cache.put(self.file.id, unit, buffer);
        }
    }
}

/// A read of which pieces wait or are in flight.
struct Open {
    reader: RawReader,
    offset: u64,
    into: Vec<u8>,
    completion: ReadCompletion,
    /// Pieces that have not landed.
    missing: usize,
    failed: Option<io::Error>,
}

/// The queue of the device, and whose its operations are.
struct DeviceSource {
    queue: Box<dyn Queue>,
    reads: HashMap<u64, Open>,
    next: u64,
    /// Pieces that have no place in the queue yet.
    waiting: VecDeque<(u64, Piece)>,
    in_flight: HashMap<Ticket, (u64, Piece)>,
    done: Vec<Completion>,
}

impl DeviceSource {
    fn over(queue: Box<dyn Queue>) -> DeviceSource {
        let (reads, in_flight) = (HashMap::new(), HashMap::new());
        DeviceSource { queue, reads, next: 0, waiting: VecDeque::new(), in_flight, done: Vec::new() }
    }

    /// Gives the device as many pieces as it takes.
    fn submit(&mut self) {
        while self.in_flight.len() < DEPTH as usize
            && let Some((number, piece)) = self.waiting.pop_front()
        {
            match self.queue.submit(Op::Read { offset: piece.place }, Buffer::new(piece.bytes)) {
                Ok(ticket) => drop(self.in_flight.insert(ticket, (number, piece))),
                Err((_, error)) if error.kind() == io::ErrorKind::WouldBlock && !self.in_flight.is_empty() => {
                    return self.waiting.push_front((number, piece));
                }
                Err((_, error)) => self.landed(number, piece, Err(error)),
            }
        }
    }

    fn landed(&mut self, number: u64, piece: Piece, outcome: io::Result<Buffer>) {
        let Some(open) = self.reads.get_mut(&number) else { return };
        open.missing -= 1;
        match outcome {
            Ok(buffer) if open.failed.is_none() => open.reader.land(piece, buffer, open.offset, &mut open.into),
            Ok(_) => {}
            Err(error) => open.failed = open.failed.take().or(Some(error)),
        }
        if open.missing == 0
            && let Some(open) = self.reads.remove(&number)
        {
            open.complete();
        }
    }
}

impl Open {
    fn complete(self) {
        let Open { reader, into, completion, failed, .. } = self;
        let result = match failed {
            Some(error) => Err(reader.shared.fail("read", reader.name, error)),
            None => reader.shared.check_still_there(&reader.file, reader.name),
        };
        completion.complete(into, result);
    }
}

impl Source for DeviceSource {
    type Read = RawRead;

    fn places(&self) -> usize {
        if self.waiting.is_empty() { (DEPTH as usize).saturating_sub(self.in_flight.len()) } else { 0 }
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
    }

    fn begin(&mut self, read: RawRead) {
        let RawRead { reader, pieces, request: ReadRequest { offset, buffer, completion } } = read;
        let number = self.next;
        self.next += 1;
        let open = Open { reader, offset, into: buffer, completion, missing: pieces.len(), failed: None };
        if pieces.is_empty() {
            // A file with fewer pages than its length says.
            let why = Error::corruption(&open.reader.path, offset, "extents", "pages for all of its bytes", "fewer");
            return open.completion.complete(open.into, Err(why));
        }
        self.reads.insert(number, open);
        self.waiting.extend(pieces.into_iter().map(|piece| (number, piece)));
        self.submit();
    }

    fn collect(&mut self) -> usize {
        let count = self.queue.poll(&mut self.done);
        for Completion { ticket, buffer, result, .. } in std::mem::take(&mut self.done) {
            if let Some((number, piece)) = self.in_flight.remove(&ticket) {
                self.landed(number, piece, result.map(|()| buffer));
            }
        }
        self.submit();
        count
    }
}
