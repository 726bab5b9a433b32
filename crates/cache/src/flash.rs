//! The log on flash: items that have left memory, in segments that are written one after the other, around the device.
//!
//! 1. [`append`](FlashLog::append) puts an item into the open segment, which is a buffer in memory. A full one is *sealed*, and the next one is opened.
//! 2. [`flush`](FlashLog::flush) writes the oldest sealed segment in one go. If an older one lies in its place, its items are shown to the
//!    caller before: each may be appended again, or it goes.
//! 3. [`read`](FlashLog::read) finds an item in the buffers, or with one read of the device.
//! 4. After a restart, [`scan`](FlashLog::scan) shows all items that are whole, the oldest first.
//!
//! **Back-pressure.** When [`SEALED_MAX`] sealed segments wait for the device, nothing more is appended: such items go instead. Nobody waits for
//! the device to take an item.
//!
//! **Numbers.** Segments have sequence numbers. Segment `s` lies in spot `s` modulo the number of spots. Slots of the index know it by `s` modulo twice as
//! many: so a segment that waits for the device is not taken for the one that still lies in its spot.
//!
//! **Invariants.** A read returns the bytes that were appended, or nothing. Which of several items of a key counts is the index's affair, not the log's.
//!
//! **Threads.** Any. One lock, held for a copy of an item at most. One caller at a time may flush.
//!
//! **Failure.** A torn segment costs its items: those behind the first record that is not whole. A device that fails is told to the caller, who
//! gives the log up.
//!
//! **Rejected**: a table of the keys' hashes in each segment. It would be written with every segment, 5% more for items of 256 bytes, and only
//! a restart would read it. **Rejected**: a flush for each segment. What is lost with power is a cache's loss; a restart of the machine begins anew.

pub(crate) mod format;

use crate::item::{Item, NewItem};
use crate::slot::Place;
use format::{Header, RECORD_HEADER_BYTES, RECORDS_AT, SEGMENT_BYTES, SEGMENTS_AT, SUPERBLOCK_BYTES, Salt, Superblock};
use situ_device::{Buffer, Completion, Device, Op, lock};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Sealed segments that may wait for the device: 4 MiB of memory.
pub(crate) const SEALED_MAX: usize = 4;
/// Fewer spots make no log.
const SEGMENTS_MIN: u64 = 4;
/// How long a wait for the device takes before it is begun again.
const WAIT: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct FlashLog {
    device: Arc<dyn Device>,
    superblock: Superblock,
    state: Mutex<State>,
    /// Bytes of records that were appended, and bytes that were written.
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

struct State {
    open: Option<Open>,
    sealed: VecDeque<Arc<Sealed>>,
    next_sequence: u64,
    /// What lies in each spot of the device.
    spots: Box<[OnFlash]>,
}

#[derive(Clone, Copy, Default)]
struct OnFlash {
    /// 0: nothing that counts.
    sequence: u64,
    base: u64,
}

/// A segment that is filled.
struct Open {
    sequence: u64,
    base: u64,
    bytes: Buffer,
    used: usize,
    items: u32,
}

/// A segment that waits for the device.
struct Sealed {
    sequence: u64,
    base: u64,
    bytes: Buffer,
}

/// An item that was read: a record with what is needed to take it apart.
pub(crate) struct Record {
    bytes: Vec<u8>,
    base: u64,
}

impl Record {
    pub(crate) fn item(&self) -> Item<'_> {
        Item::decode(&self.bytes[RECORD_HEADER_BYTES..], self.base)
            .expect("a record is checked before it is handed out")
    }
}

/// An item of a segment, and where it lies.
pub(crate) struct Found<'a> {
    pub(crate) place: Place,
    pub(crate) item: Item<'a>,
    /// Length of its record.
    pub(crate) bytes: usize,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl FlashLog {
    /// The log on a device. A device of zeros becomes a log with this id and seed; a log keeps its own.
    ///
    /// # Errors
    /// The device is too small, fails, or holds something else.
    pub(crate) fn open(device: Arc<dyn Device>, id: [u8; 16], seed: u64) -> io::Result<FlashLog> {
        let spots = device.space().logical_total.saturating_sub(SEGMENTS_AT) / SEGMENT_BYTES as u64;
        let segments = u32::try_from(spots.min(crate::slot::SEGMENTS_MAX as u64 / 2)).map_err(io::Error::other)?;
        if u64::from(segments) < SEGMENTS_MIN {
            return Err(invalid("a cache needs at least 5 MiB of flash"));
        }
        let mut log = FlashLog {
            device,
            superblock: Superblock { segments, id, seed },
            state: Mutex::new(State {
                open: None,
                sealed: VecDeque::new(),
                next_sequence: 1,
                spots: vec![OnFlash::default(); segments as usize].into(),
            }),
            appended_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        };
        let found = log.read_at(0, 2 * SUPERBLOCK_BYTES)?;
        let copies = found.chunks(SUPERBLOCK_BYTES);
        match copies.filter_map(Superblock::decode).find(|found| found.segments <= segments) {
            Some(superblock) => log.superblock = superblock,
            None if found.iter().all(|byte| *byte == 0) => log.write_superblock()?,
            None => return Err(invalid("the device holds something else than a cache; nothing was changed")),
        }
        lock(&log.state).spots = vec![OnFlash::default(); log.superblock.segments as usize].into();
        Ok(log)
    }

    fn write_superblock(&self) -> io::Result<()> {
        let mut both = vec![0; 2 * SUPERBLOCK_BYTES];
        for copy in both.chunks_mut(SUPERBLOCK_BYTES) {
            copy[..48].copy_from_slice(&self.superblock.encode());
        }
        self.run(vec![(Op::Write { offset: 0, durable: true }, Buffer::copy_of(&both))]).map(drop)
    }

    /// The seed of the hashes of keys.
    pub(crate) fn seed(&self) -> u64 {
        self.superblock.seed
    }

    /// What slots call a segment.
    fn number_of(&self, sequence: u64) -> u32 {
        (sequence % (2 * u64::from(self.superblock.segments))) as u32
    }

    /// Where a segment lies on the device, of those that slots call by this number.
    fn spot_of(&self, number: u32) -> u32 {
        number % self.superblock.segments
    }

    fn salt(&self, sequence: u64) -> Salt {
        Salt { id: self.superblock.id, sequence }
    }

    /// The longest item that a segment takes, in bytes of its stored form.
    pub(crate) fn longest() -> usize {
        SEGMENT_BYTES - RECORDS_AT - RECORD_HEADER_BYTES
    }

    /// Appends an item. `None`: the item is too long, or the device is behind.
    pub(crate) fn append(&self, item: &NewItem<'_>) -> Option<(Place, usize)> {
        let mut state = lock(&self.state);
        // Most segments have ids that are near each other; the base of another one is its first item's.
        let fits = |open: &Open| open.used + RECORD_HEADER_BYTES + item.stored_bytes(open.base) <= SEGMENT_BYTES;
        if !state.open.as_ref().is_some_and(fits) {
            if item.stored_bytes(item.meta.id) > FlashLog::longest() || state.sealed.len() >= SEALED_MAX {
                return None;
            }
            self.seal_open(&mut state);
            let sequence = state.next_sequence;
            state.next_sequence += 1;
            let bytes = Buffer::new(SEGMENT_BYTES);
            state.open = Some(Open { sequence, base: item.meta.id, bytes, used: RECORDS_AT, items: 0 });
        }
        let open = state.open.as_mut()?;
        let length = RECORD_HEADER_BYTES + item.stored_bytes(open.base);
        let offset = open.used as u32;
        let out = &mut open.bytes[open.used..open.used + length];
        self.salt(open.sequence).put(offset, open.base, item, out);
        open.used += length;
        open.items += 1;
        self.appended_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Some((Place { segment: self.number_of(open.sequence), offset }, length))
    }

    /// Seals the open segment, so that the next flushes write all that was appended.
    pub(crate) fn seal(&self) {
        self.seal_open(&mut lock(&self.state));
    }

    fn seal_open(&self, state: &mut State) {
        let Some(Open { sequence, base, mut bytes, used, items }) = state.open.take() else { return };
        let header = Header { sequence, base, used: used as u32, items };
        bytes[..RECORDS_AT].copy_from_slice(&header.encode(&self.superblock.id));
        state.sealed.push_back(Arc::new(Sealed { sequence, base, bytes }));
    }

    /// Writes the oldest sealed segment. The items of the segment that goes for it are shown to `leaves` before. False: none is sealed.
    ///
    /// # Errors
    /// The device fails. Nothing that was appended is lost to readers.
    pub(crate) fn flush(&self, mut leaves: impl FnMut(Found<'_>)) -> io::Result<bool> {
        let front = lock(&self.state).sealed.front().cloned();
        let Some(sealed) = front else { return Ok(false) };
        let spot = self.spot_of(self.number_of(sealed.sequence));
        let old = lock(&self.state).spots[spot as usize];
        if old.sequence > 0 {
            let bytes = self.read_segment(spot)?;
            self.each_record(&old, &bytes, &mut leaves);
        }
        // From here on readers do not trust what the device has in this spot.
        lock(&self.state).spots[spot as usize] = OnFlash::default();
        let most = (self.device.geometry().max_transfer_bytes as usize).min(SEGMENT_BYTES);
        let writes = sealed.bytes.chunks(most).enumerate().map(|(index, part)| {
            let offset = spot_offset(spot) + (index * most) as u64;
            (Op::Write { offset, durable: false }, Buffer::copy_of(part))
        });
        self.run(writes.collect())?;
        self.written_bytes.fetch_add(SEGMENT_BYTES as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.spots[spot as usize] = OnFlash { sequence: sealed.sequence, base: sealed.base };
        let front = state.sealed.pop_front();
        assert!(front.is_some_and(|front| front.sequence == sealed.sequence), "one caller flushes at a time");
        Ok(true)
    }

    /// The item at a place, whose record has at most so many bytes. `None`: no whole record lies there any more.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn read(&self, place: Place, bytes_max: usize) -> io::Result<Option<Record>> {
        let on_flash = {
            let state = lock(&self.state);
            let open = state.open.iter().map(|open| (open.sequence, open.base, &open.bytes));
            let sealed = state.sealed.iter().map(|sealed| (sealed.sequence, sealed.base, &sealed.bytes));
            if let Some((sequence, base, bytes)) =
                open.chain(sealed).find(|(sequence, ..)| self.number_of(*sequence) == place.segment)
            {
                let end = bytes.len().min((place.offset as usize).saturating_add(bytes_max));
                let found = bytes.get(place.offset as usize..end).unwrap_or_default();
                return Ok(self.record(sequence, base, place.offset, found));
            }
            state.spots[self.spot_of(place.segment) as usize]
        };
        if on_flash.sequence == 0 || self.number_of(on_flash.sequence) != place.segment {
            return Ok(None);
        }
        let spot = spot_offset(self.spot_of(place.segment));
        let block = u64::from(self.device.geometry().block_bytes).max(4096);
        let begin = spot + u64::from(place.offset);
        let first = begin / block * block;
        let end = (begin + bytes_max as u64).min(spot + SEGMENT_BYTES as u64).next_multiple_of(block);
        let bytes = self.read_at(first, (end - first) as usize)?;
        let bytes = bytes.get((begin - first) as usize..).unwrap_or_default();
        Ok(self.record(on_flash.sequence, on_flash.base, place.offset, bytes))
    }

    fn record(&self, sequence: u64, base: u64, offset: u32, bytes: &[u8]) -> Option<Record> {
        let (_, length) = self.salt(sequence).get(offset, base, bytes)?;
        Some(Record { bytes: bytes[..length].to_vec(), base })
    }

    /// Shows all items on the device to `each`, the oldest segment first, and goes on behind them.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn scan(&self, mut each: impl FnMut(Found<'_>)) -> io::Result<()> {
        let mut found = Vec::new();
        for spot in 0..self.superblock.segments {
            let block = self.read_at(spot_offset(spot), 4096)?;
            let header = Header::decode(&block, &self.superblock.id);
            found.extend(header.filter(|header| self.spot_of(self.number_of(header.sequence)) == spot));
        }
        found.sort_unstable_by_key(|header| header.sequence);
        for header in &found {
            let spot = self.spot_of(self.number_of(header.sequence));
            let on_flash = OnFlash { sequence: header.sequence, base: header.base };
            let bytes = self.read_segment(spot)?;
            self.each_record(&on_flash, &bytes, &mut each);
            let mut state = lock(&self.state);
            state.spots[spot as usize] = on_flash;
            state.next_sequence = state.next_sequence.max(header.sequence + 1);
        }
        Ok(())
    }

    fn each_record(&self, on_flash: &OnFlash, bytes: &[u8], each: &mut impl FnMut(Found<'_>)) {
        let (salt, segment) = (self.salt(on_flash.sequence), self.number_of(on_flash.sequence));
        let mut offset = RECORDS_AT as u32;
        while let Some(rest) = bytes.get(offset as usize..)
            && let Some((item, length)) = salt.get(offset, on_flash.base, rest)
        {
            each(Found { place: Place { segment, offset }, item, bytes: length });
            offset += length as u32;
        }
    }

    fn read_segment(&self, spot: u32) -> io::Result<Vec<u8>> {
        self.read_at(spot_offset(spot), SEGMENT_BYTES)
    }

    /// Bytes of the device, in transfers as long as it takes.
    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let most = (self.device.geometry().max_transfer_bytes as usize).min(SEGMENT_BYTES);
        let begins = (0..bytes).step_by(most);
        let reads = begins.map(|at| (Op::Read { offset: offset + at as u64 }, Buffer::new(most.min(bytes - at))));
        let mut all = Vec::with_capacity(bytes);
        for buffer in self.run(reads.collect())? {
            all.extend_from_slice(&buffer);
        }
        all.truncate(bytes);
        Ok(all)
    }

    /// Runs operations and waits for all of them; their buffers, in order.
    fn run(&self, operations: Vec<(Op, Buffer)>) -> io::Result<Vec<Buffer>> {
        let mut queue = self.device.queue(operations.len().max(1) as u32)?;
        let mut tickets = Vec::with_capacity(operations.len());
        let mut outcome = Ok(());
        for (op, buffer) in operations {
            match queue.submit(op, buffer) {
                Ok(ticket) => tickets.push(ticket),
                Err((_, error)) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let mut buffers: Vec<Option<Buffer>> = tickets.iter().map(|_| None).collect();
        let (mut done, mut left) = (Vec::new(), tickets.len());
        while left > 0 {
            queue.wait(&mut done, WAIT);
            for Completion { ticket, buffer, result, .. } in done.drain(..) {
                left -= 1;
                outcome = outcome.and(result);
                let at = tickets.iter().position(|other| *other == ticket);
                buffers[at.expect("a device completes what was submitted")] = Some(buffer);
            }
        }
        outcome.map(|()| buffers.into_iter().flatten().collect())
    }
}

fn spot_offset(spot: u32) -> u64 {
    SEGMENTS_AT + u64::from(spot) * SEGMENT_BYTES as u64
}

#[cfg(test)]
mod tests;
