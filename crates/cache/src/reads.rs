//! Reads of flash that are under way.
//!
//! A *flight* is what one thread has in flight on one queue of the device. The thread is a reader of the cache's, or
//! one of the cache's owner that has a [`FlashReader`](crate::FlashReader).

use crate::flash::{Piece, Read, Record, RecordBytes, with_room};
use crate::memory::OnFlash;
use situ_device::{Buffer, Completion, Op, Queue, Ticket};
use std::collections::{HashMap, VecDeque};
use std::io;

/// A callback that is called once with the item of a key, or none. The call comes from any thread, also the one that
/// asks. It does not wait for anything. A read that is dropped with its [`FlashReader`](crate::FlashReader) does not
/// call it.
pub type OnItem = Box<dyn FnOnce(Option<Record>) + Send>;

/// Items that one reader has in flight.
pub(crate) const READ_DEPTH: usize = 128;
/// The bytes in flight with which a reader of the cache's begins no other item.
pub(crate) const READ_BYTES: usize = 4 << 20;
/// Transfers that one reader has in flight.
pub(crate) const TRANSFERS_MAX: usize = 128;

/// A read that has a waiting caller.
pub(crate) struct Request {
    pub(crate) key: Box<[u8]>,
    pub(crate) now: u64,
    pub(crate) tries: u32,
    pub(crate) done: OnItem,
}

/// An item that is being read.
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) at: OnFlash,
    pub(crate) read: Read,
    /// The bytes of the transfers, and for each piece the number of its transfers.
    pub(crate) parts: Vec<Option<Buffer>>,
    pub(crate) counts: Vec<usize>,
    pub(crate) left: usize,
    pub(crate) result: io::Result<()>,
}

/// The operations that a reader has in flight.
pub(crate) struct Flight {
    pub(crate) queue: Box<dyn Queue>,
    transfer_bytes_max: usize,
    /// The bytes in flight with which no other item is begun.
    bytes_max: usize,
    /// Longer items are for others to read.
    pub(crate) item_bytes_max: usize,
    pub(crate) pending: HashMap<u64, Pending>,
    next_pending: u64,
    /// Bytes that the pending items take.
    bytes: usize,
    /// Transfers that wait for the queue: of which item, which part, and what.
    waiting: VecDeque<(u64, usize, Op, Buffer)>,
    in_flight: HashMap<Ticket, (u64, usize)>,
    /// Transfers that the device did not take.
    pub(crate) refused: Vec<(u64, usize, Buffer, io::Error)>,
    pub(crate) done: Vec<Completion>,
}

/// Returns the bytes of an item, of pieces and of what their transfers have brought. `None` if there is no memory for
/// them.
pub(crate) fn joined(pieces: &[Piece], mut parts: Vec<Option<Buffer>>, counts: &[usize]) -> Option<RecordBytes> {
    if let ([Piece::There(extent)], 1) = (pieces, parts.len())
        && let Some(buffer) = parts.pop().flatten()
    {
        return Some(RecordBytes::Buffer(buffer, extent.skip));
    }
    let copied = pieces.iter().map(|piece| if let Piece::Here(bytes) = piece { bytes.len() } else { 0 });
    let mut all = with_room(parts.iter().flatten().map(|part| part.len()).chain(copied).sum())?;
    let mut parts = parts.into_iter().flatten();
    for (piece, count) in pieces.iter().zip(counts) {
        match piece {
            Piece::Here(bytes) => all.extend_from_slice(bytes),
            Piece::There(extent) => {
                let mut skip = extent.skip;
                for part in parts.by_ref().take(*count) {
                    all.extend_from_slice(part.get(skip..).unwrap_or_default());
                    skip = 0;
                }
            }
        }
    }
    Some(RecordBytes::Joined(all))
}

impl Flight {
    pub(crate) fn new(
        queue: Box<dyn Queue>,
        transfer_bytes_max: usize,
        bytes_max: usize,
        item_bytes_max: usize,
    ) -> Flight {
        Flight {
            queue,
            transfer_bytes_max,
            bytes_max,
            item_bytes_max,
            pending: HashMap::new(),
            next_pending: 0,
            bytes: 0,
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            refused: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Returns true if another item may be read at the same time.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < READ_DEPTH && self.bytes < self.bytes_max
    }

    /// Begins to read an item. Returns the request if the system has no memory for the item's bytes.
    pub(crate) fn begin(&mut self, request: Request, at: OnFlash, read: Read) -> Option<Request> {
        let number = self.next_pending;
        let (mut parts, mut counts) = (Vec::new(), Vec::new());
        let before = self.waiting.len();
        for piece in &read.pieces {
            let Piece::There(extent) = piece else {
                counts.push(0);
                continue;
            };
            let starts = (0..extent.bytes).step_by(self.transfer_bytes_max);
            counts.push(starts.len());
            for start in starts {
                let bytes = self.transfer_bytes_max.min(extent.bytes - start);
                let op = Op::Read { offset: extent.first + start as u64 };
                let Some(buffer) = Buffer::try_new(bytes) else {
                    self.waiting.truncate(before);
                    return Some(request);
                };
                self.waiting.push_back((number, parts.len(), op, buffer));
                parts.push(None);
            }
        }
        let left = parts.len();
        self.next_pending += 1;
        self.bytes += read.bytes();
        self.pending.insert(number, Pending { request, at, read, parts, counts, left, result: Ok(()) });
        None
    }

    /// Returns true if something waits that could be submitted.
    pub(crate) fn has_more_to_submit(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight.len() < TRANSFERS_MAX
    }

    /// Returns true if the device has something to do.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Submits what waits.
    pub(crate) fn submit(&mut self) {
        while self.in_flight.len() < TRANSFERS_MAX
            && let Some((number, part, op, buffer)) = self.waiting.pop_front()
        {
            match self.queue.submit(op, buffer) {
                Ok(ticket) => _ = self.in_flight.insert(ticket, (number, part)),
                Err((buffer, error)) => self.refused.push((number, part, buffer, error)),
            }
        }
    }

    /// Returns the items that are read, or have failed.
    pub(crate) fn ended(&mut self) -> Vec<Pending> {
        let mut ended = Vec::new();
        for (number, part, buffer, error) in std::mem::take(&mut self.refused) {
            ended.extend(self.end_part(number, part, buffer, Err(error)));
        }
        for Completion { ticket, buffer, result, .. } in std::mem::take(&mut self.done) {
            if let Some((number, part)) = self.in_flight.remove(&ticket) {
                ended.extend(self.end_part(number, part, buffer, result));
            }
        }
        ended
    }

    /// Notes that one part of an item has ended. Returns the item, if it was the last part.
    fn end_part(&mut self, number: u64, part: usize, buffer: Buffer, result: io::Result<()>) -> Option<Pending> {
        let pending = self.pending.get_mut(&number)?;
        pending.parts[part] = Some(buffer);
        pending.left -= 1;
        if pending.result.is_ok() {
            pending.result = result;
        }
        if pending.left > 0 {
            return None;
        }
        let pending = self.pending.remove(&number)?;
        self.bytes -= pending.read.bytes();
        Some(pending)
    }
}
