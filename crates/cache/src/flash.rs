//! The log on flash: items that have left memory, in segments that are written one after the other, around the device.
//!
//! 1. [`append`](FlashLog::append) puts an item into the open segment, which is a buffer in memory. A full one is
//!    *sealed*, and the next one is opened.
//! 2. [`flush`](FlashLog::flush) writes the oldest sealed segment in one go. If an older one lies in its place, its
//!    items are shown to the caller before: each may be appended again, or it goes.
//! 3. [`read`](FlashLog::read) finds an item in the buffers, or with one read of the device.
//! 4. After a restart, [`scan`](FlashLog::scan) shows all items that are whole, the oldest first.
//!
//! **Back-pressure.** When [`SEALED_MAX`] sealed segments wait for the device, nothing more is appended: such items go
//! instead. No thread waits for the device to take an item.
//!
//! **Long items.** A record of more than [`SPAN_MIN`] bytes that does not fit the open segment goes on in the next
//! ones. Shorter ones begin a new segment: one read gets them.
//!
//! **Numbers.** Segments have sequence numbers. Segment `s` lies in spot `s` modulo the number of spots. Slots of the
//! index know it by `s` modulo twice as many. So a segment that waits for the device is not taken for the one that
//! still lies in its spot.
//!
//! **Invariants.** A read returns the bytes that were appended, or nothing. Which of several items of a key counts is
//! the index's affair, not the log's.
//!
//! **Threads.** Any. One lock, held for a copy of an item at most. One caller at a time may flush.
//!
//! **Failure.** A torn segment costs its items: those behind the first record that is not whole. The caller gets the
//! error of a device that fails, and gives up the log.
//!
//! **Rejected**: a table of the keys' hashes in each segment. It would be written with every segment, 5% more for items
//! of 256 bytes, and only a restart would read it. **Rejected**: a flush for each segment. A power failure costs a
//! cache its items; a restart of the machine begins with an empty log.

pub(crate) mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod journal;
pub(crate) mod tier;

use crate::item::{Item, NewItem, VALUE_BYTES_MAX};
use crate::slot::{ALIGN, Place};
use format::{
    COUNTS_END, Header, RECORD_HEADER_BYTES, RECORDS_AT, SEGMENT_BYTES, SEGMENTS_AT, SUPERBLOCK_BYTES, Salt, Superblock,
};
use situ_base::lock;
use situ_device::{Buffer, Completion, Device, Op, Queue};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Sealed segments that may wait for the device: 4 MiB of memory.
pub(crate) const SEALED_MAX: usize = 4;
/// Fewer spots make no log.
const SEGMENTS_MIN: u64 = 2 * SEALED_MAX as u64;
/// Records longer than this may lie in several segments.
const SPAN_MIN: usize = 64 << 10;
/// The bytes at the end of a device that are looked at before it is taken for an empty one.
const TAIL_BYTES: u64 = 128 << 10;
/// The time after which a wait for the device is begun again.
const WAIT: Duration = Duration::from_secs(10);

/// The log on flash: see the module.
pub(crate) struct FlashLog {
    device: Arc<dyn Device>,
    superblock: Superblock,
    state: Mutex<State>,
    /// Sealed segments.
    waiting: AtomicUsize,
    /// Bytes of records that were appended, and bytes that were written.
    pub(crate) appended_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

struct State {
    open: Option<Open>,
    sealed: VecDeque<Arc<Sealed>>,
    next_sequence: u64,
    /// Nothing more is appended.
    is_closed: bool,
    /// The segment in each spot of the device, and the number of spots that hold one.
    spots: Box<[OnFlash]>,
    used_spots: u64,
}

impl State {
    fn set_spot(&mut self, spot: u32, on_flash: OnFlash) {
        let place = &mut self.spots[spot as usize];
        self.used_spots += u64::from(on_flash.sequence > 0);
        self.used_spots -= u64::from(place.sequence > 0);
        *place = on_flash;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct OnFlash {
    /// 0: nothing that counts.
    sequence: u64,
    base: u64,
}

/// The content of a device that a log is to be opened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Zeros, or too little to tell.
    Nothing,
    /// A cache with this id.
    Cache { id: [u8; 16] },
    /// Bytes of another owner.
    Other,
}

/// A segment that is filled.
struct Open {
    sequence: u64,
    base: u64,
    bytes: Buffer,
    used: usize,
    /// The offset of the first record that begins in this segment.
    first: usize,
}

impl Open {
    /// Returns the segment's identity, its header if it were sealed now, and a copy of its bytes.
    fn copy(&self) -> (OnFlash, Header, Vec<u8>) {
        let &Open { sequence, base, used, first, .. } = self;
        let header = Header { sequence, base, used: used as u32, first: first as u32 };
        (OnFlash { sequence, base }, header, self.bytes[..used].to_vec())
    }
}

/// A segment that waits for the device.
struct Sealed {
    sequence: u64,
    base: u64,
    bytes: Buffer,
}

/// The place of an item.
pub(crate) enum Located {
    /// The item in the buffers, or none any more.
    Here(Option<Record>),
    /// On the device.
    There(Read),
}

/// A planned device read for one item.
#[derive(Debug)]
pub(crate) struct Read {
    on_flash: OnFlash,
    offset: u32,
    /// The pieces of the record, in order: one for each segment that it may lie in.
    pub(crate) pieces: Vec<Piece>,
}

impl Read {
    /// Returns the number of bytes that are read or were copied.
    pub(crate) fn bytes(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Here(bytes) => bytes.len(),
            Piece::There(extent) => extent.bytes,
        };
        self.pieces.iter().map(length).sum()
    }
}

/// A piece of a record.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes in a buffer of the log.
    Here(Vec<u8>),
    /// On the device.
    There(Extent),
}

/// Whole blocks of the device, and the offset of the piece in them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) bytes: usize,
    pub(crate) skip: usize,
}

/// An item that was read: a record with what is needed to take it apart.
#[derive(Debug)]
pub struct Record {
    bytes: RecordBytes,
    /// The offset of the item.
    start: usize,
    base: u64,
    /// The segment that it was read from; 0 for a copy of an item in memory.
    pub(crate) sequence: u64,
}

/// Bytes that begin with a record.
#[derive(Debug)]
pub(crate) enum RecordBytes {
    /// The bytes of one transfer, from an offset on.
    Buffer(Buffer, usize),
    /// Pieces that were put together.
    Joined(Vec<u8>),
}

impl std::ops::Deref for RecordBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            RecordBytes::Buffer(bytes, skip) => bytes.get(*skip..).unwrap_or_default(),
            RecordBytes::Joined(bytes) => bytes,
        }
    }
}

impl Record {
    /// Returns a copy of an item in memory; `None` if there is no memory for it.
    pub(crate) fn of(item: &Item<'_>) -> Option<Record> {
        let base = item.meta.id;
        let mut bytes = with_room(item.stored_bytes(base))?;
        item.again().append_to(base, &mut bytes);
        Some(Record { bytes: RecordBytes::Joined(bytes), start: 0, base, sequence: 0 })
    }

    /// Returns the item.
    #[must_use]
    pub fn item(&self) -> Item<'_> {
        Item::decode(&self.bytes[self.start..], self.base).expect("a record is checked before it is handed out")
    }
}

/// A segment that goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Going {
    pub(crate) sequence: u64,
    /// The number by which slots name it.
    pub(crate) number: u32,
}

/// An item of a segment, and where it lies.
pub(crate) struct Found<'a> {
    pub(crate) sequence: u64,
    pub(crate) place: Place,
    pub(crate) item: Item<'a>,
    /// Length of its record.
    pub(crate) bytes: usize,
    /// Length of its value.
    pub(crate) value_bytes: usize,
    /// Its value goes on in the next segments: this is a part of it.
    pub(crate) is_part: bool,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl FlashLog {
    /// Reads the content of the device.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn content(device: &Arc<dyn Device>) -> io::Result<Content> {
        if spots(device) < SEGMENTS_MIN {
            return Err(invalid("a cache needs at least 9 MiB of flash"));
        }
        let found = read_at(device, 0, SEGMENTS_AT as usize)?;
        if let Some(Superblock { id, .. }) = found.chunks(SUPERBLOCK_BYTES).take(2).find_map(Superblock::decode) {
            return Ok(Content::Cache { id });
        }
        // File systems and RAIDs name themselves at the front, or at the end.
        let block = u64::from(device.geometry().block_bytes).max(4096);
        let end = device.space().logical_total / block * block;
        let tail = read_at(device, end - TAIL_BYTES, TAIL_BYTES as usize)?;
        let is_blank = found.iter().chain(&tail).all(|byte| *byte == 0);
        Ok(if is_blank { Content::Nothing } else { Content::Other })
    }

    /// Returns an empty log. The old contents of the device are lost.
    ///
    /// # Errors
    /// The device is too small, or fails.
    pub(crate) fn create(device: Arc<dyn Device>, id: [u8; 16], seed: u64) -> io::Result<FlashLog> {
        let segments =
            u32::try_from(spots(&device).min(crate::slot::SEGMENTS_MAX as u64 / 2)).map_err(io::Error::other)?;
        if u64::from(segments) < SEGMENTS_MIN {
            return Err(invalid("a cache needs at least 9 MiB of flash"));
        }
        let log = FlashLog::of(device, Superblock { segments, id, seed });
        log.write_superblock(&log.superblock)?;
        Ok(log)
    }

    /// Returns the log that the device has. Nothing of it is known before a [`scan`](FlashLog::scan), or
    /// [`resume`](FlashLog::resume).
    ///
    /// # Errors
    /// The device has none, or fails.
    pub(crate) fn open(device: Arc<dyn Device>) -> io::Result<FlashLog> {
        let found = read_at(&device, 0, 2 * SUPERBLOCK_BYTES)?;
        let fits = |found: &Superblock| {
            u64::from(found.segments) <= spots(&device) && u64::from(found.segments) >= SEGMENTS_MIN
        };
        match found.chunks(SUPERBLOCK_BYTES).filter_map(Superblock::decode).find(fits) {
            Some(superblock) => Ok(FlashLog::of(device, superblock)),
            None => Err(invalid("the device holds no cache, or has become too small for it")),
        }
    }

    fn of(device: Arc<dyn Device>, superblock: Superblock) -> FlashLog {
        FlashLog {
            device,
            superblock,
            state: Mutex::new(State {
                open: None,
                sealed: VecDeque::new(),
                next_sequence: 1,
                is_closed: false,
                spots: vec![OnFlash::default(); superblock.segments as usize].into(),
                used_spots: 0,
            }),
            waiting: AtomicUsize::new(0),
            appended_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Gives the device another id than its files have: the next start trusts none of them. This log goes on.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn disown(&self) -> io::Result<()> {
        let id = self.superblock.id.map(|byte| !byte);
        self.write_superblock(&Superblock { id, ..self.superblock })
    }

    fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        let mut both = vec![0; 2 * SUPERBLOCK_BYTES];
        for copy in both.chunks_mut(SUPERBLOCK_BYTES) {
            copy[..48].copy_from_slice(&superblock.encode());
        }
        run(&self.device, vec![(Op::Write { offset: 0, durable: true }, Buffer::copy_of(&both))]).map(drop)
    }

    /// Returns the seed of the hashes of keys.
    pub(crate) fn seed(&self) -> u64 {
        self.superblock.seed
    }

    /// Returns the number of bytes of the device that segments take.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        u64::from(self.superblock.segments) * SEGMENT_BYTES as u64
    }

    /// Returns the number of bytes of the device that segments with items take now.
    pub(crate) fn used_bytes(&self) -> u64 {
        lock(&self.state).used_spots * SEGMENT_BYTES as u64
    }

    /// Returns the memory of buffers and tables, in bytes, while it is written to.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The open segment, sealed ones, the copy that is written, and the segment that goes for it.
        (self.waiting.load(Ordering::Relaxed).max(SEALED_MAX) + 3) * SEGMENT_BYTES
            + self.superblock.segments as usize * size_of::<OnFlash>()
    }

    /// Returns the number of the next segment and the spots of the log, to be resumed after a clean stop.
    pub(crate) fn spots(&self) -> (u64, Vec<[u64; 2]>) {
        let state = lock(&self.state);
        (state.next_sequence, state.spots.iter().map(|spot| [spot.sequence, spot.base]).collect())
    }

    /// Goes on after a clean stop. False: the numbers are not those of this log.
    pub(crate) fn resume(&self, next_sequence: u64, spots: &[[u64; 2]]) -> bool {
        let mut state = lock(&self.state);
        let fits = |(spot, [sequence, _]): (usize, &[u64; 2])| {
            let is_near = *sequence < next_sequence && *sequence + spots.len() as u64 >= next_sequence;
            *sequence == 0 || is_near && self.spot_of(self.number_of(*sequence)) as usize == spot
        };
        if next_sequence >= COUNTS_END || spots.len() != state.spots.len() || !spots.iter().enumerate().all(fits) {
            return false;
        }
        state.next_sequence = next_sequence;
        for (spot, [sequence, base]) in spots.iter().enumerate() {
            state.set_spot(spot as u32, OnFlash { sequence: *sequence, base: *base });
        }
        true
    }

    /// Returns the sequence number of the segment that slots name by `number`, if it is there.
    pub(crate) fn sequence_of(&self, number: u32) -> Option<u64> {
        self.find(&lock(&self.state), number).map(|found| found.sequence)
    }

    /// Returns the segments that the log has at most: sequence numbers from the first to before the second.
    pub(crate) fn reach(&self) -> (u64, u64) {
        let state = lock(&self.state);
        let waiting = state.sealed.len().max(SEALED_MAX) as u64 + 1;
        (state.next_sequence.saturating_sub(u64::from(self.superblock.segments) + waiting), state.next_sequence)
    }

    /// Returns the place of the next item, if that is behind others: the number of the segment, and the offset.
    pub(crate) fn end(&self) -> Option<(u64, u32)> {
        lock(&self.state).open.as_ref().map(|open| (open.sequence, open.used as u32))
    }

    /// Returns a sixteenth of the segments on flash, the oldest ones.
    pub(crate) fn oldest(&self) -> Vec<Going> {
        let state = lock(&self.state);
        let mut all: Vec<u64> = state.spots.iter().map(|spot| spot.sequence).filter(|sequence| *sequence > 0).collect();
        all.sort_unstable();
        all.truncate(all.len().div_ceil(16));
        drop(state);
        all.into_iter().map(|sequence| Going { sequence, number: self.number_of(sequence) }).collect()
    }

    /// Forgets these segments: from now on the log does not have them.
    pub(crate) fn forget(&self, segments: &[Going]) {
        let mut state = lock(&self.state);
        for Going { sequence, number } in segments {
            let spot = self.spot_of(*number);
            if state.spots[spot as usize].sequence == *sequence {
                state.set_spot(spot, OnFlash::default());
            }
        }
    }

    /// Returns true if sealed segments wait for the device.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes no more items, and forgets what waits for the device.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.open = None;
        state.sealed.clear();
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// Makes what was flushed durable.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn sync(&self) -> io::Result<()> {
        run(&self.device, vec![(Op::Flush, Buffer::new(0))]).map(drop)
    }

    /// Returns the number by which slots name a segment.
    fn number_of(&self, sequence: u64) -> u32 {
        (sequence % (2 * u64::from(self.superblock.segments))) as u32
    }

    /// Returns the spot on the device of the segments that slots name by this number.
    fn spot_of(&self, number: u32) -> u32 {
        number % self.superblock.segments
    }

    fn salt(&self, sequence: u64) -> Salt {
        Salt { id: self.superblock.id, sequence }
    }

    /// Returns the length of the longest record that the log takes.
    fn longest(&self) -> usize {
        self.superblock.segments as usize / 4 * (SEGMENT_BYTES - RECORDS_AT)
    }

    /// Appends an item. `None`: the item is too long, or the device is behind.
    pub(crate) fn append(&self, item: &NewItem<'_>) -> Option<(Place, usize)> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return None;
        }
        // Most segments have ids that are near each other; the base of another one is its first item's.
        let length = |open: &Open| RECORD_HEADER_BYTES + item.stored_bytes(open.base);
        let fits = |open: &Open| open.used + length(open) <= SEGMENT_BYTES;
        let begins = |open: &Open| fits(open) || length(open) > SPAN_MIN && open.used + SPAN_MIN / 4 <= SEGMENT_BYTES;
        if !state.open.as_ref().is_some_and(begins) {
            if state.sealed.len() >= SEALED_MAX {
                return None;
            }
            self.open_next(&mut state, item.meta.id);
        }
        let open = state.open.as_mut()?;
        let (sequence, base, offset, length) = (open.sequence, open.base, open.used as u32, length(open));
        if fits(open) {
            let out = &mut open.bytes[open.used..open.used + length];
            self.salt(sequence).put(offset, base, item, out);
            open.used += length;
        } else {
            let more = (length - (SEGMENT_BYTES - open.used)).div_ceil(SEGMENT_BYTES - RECORDS_AT);
            // A very long one may come alone.
            let has_room = state.sealed.len() + more <= SEALED_MAX || state.sealed.is_empty();
            if length > self.longest() || !has_room {
                return None;
            }
            let mut record = situ_device::memory::zeroed(length)?;
            self.salt(sequence).put(offset, base, item, &mut record);
            self.append_pieces(&mut state, &record, item.meta.id)?;
        }
        self.appended_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Some((Place { segment: self.number_of(sequence), offset }, length))
    }

    /// Appends a record to the open segment and those behind it.
    fn append_pieces(&self, state: &mut State, mut record: &[u8], id: u64) -> Option<()> {
        loop {
            let open = state.open.as_mut()?;
            let (piece, rest) = record.split_at(record.len().min(SEGMENT_BYTES - open.used));
            open.bytes[open.used..open.used + piece.len()].copy_from_slice(piece);
            open.used += piece.len();
            if rest.is_empty() {
                return Some(());
            }
            self.open_next(state, id);
            let left = rest.len().min(SEGMENT_BYTES - RECORDS_AT);
            state.open.as_mut()?.first = RECORDS_AT + left;
            record = rest;
        }
    }

    /// Seals the open segment, and opens another one.
    fn open_next(&self, state: &mut State, base: u64) {
        self.seal_open(state);
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        let bytes = Buffer::new(SEGMENT_BYTES);
        state.open = Some(Open { sequence, base, bytes, used: RECORDS_AT, first: RECORDS_AT });
    }

    /// Seals the open segment, so that the next flushes write all that was appended.
    pub(crate) fn seal(&self) {
        self.seal_open(&mut lock(&self.state));
    }

    fn seal_open(&self, state: &mut State) {
        let Some(Open { sequence, base, mut bytes, used, first }) = state.open.take() else { return };
        let header = Header { sequence, base, used: used as u32, first: first as u32 };
        bytes[..RECORDS_AT].copy_from_slice(&header.encode(&self.superblock.id));
        state.sealed.push_back(Arc::new(Sealed { sequence, base, bytes }));
        self.waiting.store(state.sealed.len(), Ordering::Relaxed);
    }

    /// Writes the oldest sealed segment. The segment that goes for it is named to `goes` before, then its items are
    /// shown to `leaves`. The slots of items that are damaged are not shown: `left` gets the number that slots have for
    /// the segment. False: no segment is sealed.
    ///
    /// # Errors
    /// The device fails. Nothing that was appended is lost to readers.
    pub(crate) fn flush(
        &self,
        goes: impl FnOnce(Going),
        mut leaves: impl FnMut(Found<'_>),
        left: impl FnOnce(Going),
    ) -> io::Result<bool> {
        let front = lock(&self.state).sealed.front().cloned();
        let Some(sealed) = front else { return Ok(false) };
        let spot = self.spot_of(self.number_of(sealed.sequence));
        let old = lock(&self.state).spots[spot as usize];
        if old.sequence > 0 {
            let going = Going { sequence: old.sequence, number: self.number_of(old.sequence) };
            goes(going);
            // A segment that cannot be read costs its items, not the log.
            let bytes = self.read_segment(spot).unwrap_or_default();
            if !self.each_record(&old, &bytes, &mut leaves) {
                left(going);
            }
        }
        // From here on readers do not trust what the device has in this spot.
        lock(&self.state).set_spot(spot, OnFlash::default());
        let most = (self.device.geometry().max_transfer_bytes as usize).min(SEGMENT_BYTES);
        let writes = sealed.bytes.chunks(most).enumerate().map(|(index, part)| {
            let offset = spot_offset(spot) + (index * most) as u64;
            (Op::Write { offset, durable: false }, Buffer::copy_of(part))
        });
        run(&self.device, writes.collect())?;
        self.written_bytes.fetch_add(SEGMENT_BYTES as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        state.set_spot(spot, OnFlash { sequence: sealed.sequence, base: sealed.base });
        let front = state.sealed.pop_front();
        self.waiting.store(state.sealed.len(), Ordering::Relaxed);
        assert!(
            state.is_closed || front.is_some_and(|front| front.sequence == sealed.sequence),
            "one caller flushes at a time"
        );
        Ok(true)
    }

    /// Returns the item at a place, whose record has at most `bytes_max` bytes. `None`: no whole record lies there any
    /// more.
    ///
    /// # Errors
    /// The device fails.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn read(&self, place: Place, bytes_max: usize) -> io::Result<Option<Record>> {
        match self.locate(place, bytes_max) {
            Located::Here(record) => Ok(record),
            Located::There(read) => self.fetch(read),
        }
    }

    /// Reads an item. Waits for the device. `None`: there is no whole record, or no memory for it.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn fetch(&self, read: Read) -> io::Result<Option<Record>> {
        let Some(mut all) = with_room(read.bytes()) else { return Ok(None) };
        for piece in &read.pieces {
            match piece {
                Piece::Here(bytes) => all.extend_from_slice(bytes),
                Piece::There(extent) => {
                    let bytes = self.read_at(extent.first, extent.bytes)?;
                    all.extend_from_slice(bytes.get(extent.skip..).unwrap_or_default());
                }
            }
        }
        Ok(self.finish(&read, RecordBytes::Joined(all)))
    }

    /// Finds the item at a place, whose record has at most `bytes_max` bytes: in the buffers, or as a planned read of
    /// the device.
    pub(crate) fn locate(&self, place: Place, bytes_max: usize) -> Located {
        let state = lock(&self.state);
        let Some(on_flash) = self.find(&state, place.segment) else { return Located::Here(None) };
        let mut pieces = Vec::new();
        let (mut sequence, mut offset, mut left) = (on_flash.sequence, place.offset as usize, bytes_max);
        while let Some(piece) = self.piece(&state, sequence, offset, left) {
            left = left.saturating_sub(SEGMENT_BYTES - offset);
            pieces.push(piece);
            // Shorter records lie in one segment.
            if left == 0 || bytes_max <= SPAN_MIN {
                break;
            }
            (sequence, offset) = (sequence + 1, RECORDS_AT);
        }
        drop(state);
        let read = Read { on_flash, offset: place.offset, pieces };
        if read.pieces.iter().any(|piece| matches!(piece, Piece::There(_))) {
            return Located::There(read);
        }
        let Some(mut all) = with_room(read.bytes()) else { return Located::Here(None) };
        let pieces =
            read.pieces.iter().filter_map(|piece| if let Piece::Here(bytes) = piece { Some(bytes) } else { None });
        pieces.for_each(|bytes| all.extend_from_slice(bytes));
        Located::Here(self.finish(&read, RecordBytes::Joined(all)))
    }

    /// Returns the segment that slots name by `number`, if it is there.
    fn find(&self, state: &State, number: u32) -> Option<OnFlash> {
        let open = state.open.iter().map(|open| OnFlash { sequence: open.sequence, base: open.base });
        let sealed = state.sealed.iter().map(|sealed| OnFlash { sequence: sealed.sequence, base: sealed.base });
        let on_flash = state.spots[self.spot_of(number) as usize];
        let is_it = |found: &OnFlash| found.sequence > 0 && self.number_of(found.sequence) == number;
        open.chain(sealed).chain([on_flash]).find(is_it)
    }

    /// Returns at most `bytes_max` bytes of a segment, from an offset on; `None` if the segment is not there.
    fn piece(&self, state: &State, sequence: u64, offset: usize, bytes_max: usize) -> Option<Piece> {
        let open = state.open.iter().map(|open| (open.sequence, &open.bytes));
        let sealed = state.sealed.iter().map(|sealed| (sealed.sequence, &sealed.bytes));
        let end = SEGMENT_BYTES.min(offset + bytes_max);
        if let Some((_, bytes)) = open.chain(sealed).find(|(other, _)| *other == sequence) {
            return Some(Piece::Here(bytes.get(offset..end)?.to_vec()));
        }
        let spot = self.spot_of(self.number_of(sequence));
        if state.spots[spot as usize].sequence != sequence || offset >= end {
            return None;
        }
        let block = u64::from(self.device.geometry().block_bytes).max(4096);
        let (begin, end) =
            (spot_offset(spot) + offset as u64, (spot_offset(spot) + end as u64).next_multiple_of(block));
        let first = begin / block * block;
        Some(Piece::There(Extent { first, bytes: (end - first) as usize, skip: (begin - first) as usize }))
    }

    /// Returns the item in the bytes that were read. `None`: there is no whole record.
    pub(crate) fn finish(&self, read: &Read, bytes: RecordBytes) -> Option<Record> {
        let OnFlash { sequence, base } = read.on_flash;
        self.salt(sequence).get(read.offset, base, &bytes)?;
        Some(Record { bytes, start: RECORD_HEADER_BYTES, base, sequence })
    }

    /// Returns the length of the device's longest transfer.
    pub(crate) fn transfer_bytes_max(&self) -> usize {
        (self.device.geometry().max_transfer_bytes as usize).min(SEGMENT_BYTES)
    }

    /// Returns a queue of the device.
    ///
    /// # Errors
    /// The device has none.
    pub(crate) fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        self.device.queue(depth)
    }

    /// Shows all items on the device to `each`, the oldest segment first, and goes on behind them: the number of the
    /// next segment is returned. Sequence numbers up to `used` are not used again. Segments that are too old to have
    /// been kept are left out.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn scan(&self, used: u64, mut each: impl FnMut(Found<'_>)) -> io::Result<u64> {
        let (mut found, mut unreadable) = (Vec::new(), 0);
        for spot in 0..self.superblock.segments {
            // A segment that cannot be read costs its items.
            let Ok(block) = self.read_at(spot_offset(spot), 4096) else {
                unreadable += 1;
                continue;
            };
            let header = Header::decode(&block, &self.superblock.id);
            found.extend(header.filter(|header| self.spot_of(self.number_of(header.sequence)) == spot));
        }
        if unreadable == self.superblock.segments {
            return Err(io::Error::other("no segment of the device can be read"));
        }
        found.sort_unstable_by_key(|header| header.sequence);
        let newest = found.last().map_or(0, |header| header.sequence).max(used);
        // The next one can have been half written when the process died. Those behind it had not been begun. Segments
        // that cannot be read may be the newest ones.
        let next = if newest + unreadable as u64 == 0 { 1 } else { newest + 2 + u64::from(unreadable) };
        lock(&self.state).next_sequence = next;
        found.retain(|header| header.sequence + u64::from(self.superblock.segments) >= next);
        for header in &found {
            let spot = self.spot_of(self.number_of(header.sequence));
            let on_flash = OnFlash { sequence: header.sequence, base: header.base };
            lock(&self.state).set_spot(spot, on_flash);
            if let Ok(bytes) = self.read_segment(spot) {
                self.each_record(&on_flash, &bytes, &mut each);
            }
        }
        Ok(next)
    }

    /// Shows the records of the segment with this sequence number to `each`, if the log has it.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn show(&self, sequence: u64, mut each: impl FnMut(Found<'_>)) -> io::Result<()> {
        let state = lock(&self.state);
        let spot = self.spot_of(self.number_of(sequence));
        let on_flash = state.spots[spot as usize];
        let sealed = state.sealed.iter().find(|sealed| sealed.sequence == sequence).cloned();
        let open = state.open.as_ref().filter(|open| open.sequence == sequence).map(Open::copy);
        drop(state);
        let (on_flash, bytes) = match (open, sealed) {
            (Some((on_flash, header, mut bytes)), _) => {
                bytes[..RECORDS_AT].copy_from_slice(&header.encode(&self.superblock.id));
                (on_flash, bytes)
            }
            (None, Some(sealed)) => (OnFlash { sequence, base: sealed.base }, sealed.bytes.to_vec()),
            (None, None) if on_flash.sequence == sequence => (on_flash, self.read_segment(spot)?),
            (None, None) => return Ok(()),
        };
        self.each_record(&on_flash, &bytes, &mut each);
        Ok(())
    }

    /// Shows the records of a segment to `each`. False if not all of them are whole.
    fn each_record(&self, on_flash: &OnFlash, bytes: &[u8], each: &mut impl FnMut(Found<'_>)) -> bool {
        let Some(header) = Header::decode(bytes, &self.superblock.id) else { return false };
        let (salt, segment) = (self.salt(on_flash.sequence), self.number_of(on_flash.sequence));
        let mut offset = header.first;
        while let Some(rest) = bytes.get(offset as usize..header.used as usize)
            && let Some((item, length)) = salt.get(offset, on_flash.base, rest)
        {
            let (place, sequence) = (Place { segment, offset }, on_flash.sequence);
            let value_bytes = item.value.len();
            each(Found { sequence, place, item, bytes: length, value_bytes, is_part: false });
            offset += length as u32;
        }
        // The rest of the last one lies in the next segments, if the segment is full. Its checksum is checked when it
        // is read.
        let rest = bytes.get(offset as usize + RECORD_HEADER_BYTES..header.used as usize).unwrap_or_default();
        if header.used as usize == SEGMENT_BYTES
            && let Some((item, value_bytes)) = Item::decode_part(rest, on_flash.base)
            && (item.value.len() + 1..=VALUE_BYTES_MAX).contains(&value_bytes)
        {
            let (place, sequence) = (Place { segment, offset }, on_flash.sequence);
            let length = rest.len() + RECORD_HEADER_BYTES - item.value.len() + value_bytes;
            let bytes = length.next_multiple_of(ALIGN);
            each(Found { sequence, place, item, bytes, value_bytes, is_part: true });
            return true;
        }
        offset >= header.used
    }

    fn read_segment(&self, spot: u32) -> io::Result<Vec<u8>> {
        self.read_at(spot_offset(spot), SEGMENT_BYTES)
    }

    /// Reads bytes of the device.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        read_at(&self.device, offset, bytes)
    }
}

/// Returns an empty vector with this capacity; `None` if memory runs out.
pub(crate) fn with_room(bytes: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(bytes).ok()?;
    Some(all)
}

/// Returns the number of segments that a device has room for.
fn spots(device: &Arc<dyn Device>) -> u64 {
    device.space().logical_total.saturating_sub(SEGMENTS_AT) / SEGMENT_BYTES as u64
}

/// Reads bytes of the device, in transfers as long as it takes.
fn read_at(device: &Arc<dyn Device>, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let most = (device.geometry().max_transfer_bytes as usize).min(SEGMENT_BYTES);
    let begins = (0..bytes).step_by(most);
    let reads = begins.map(|at| (Op::Read { offset: offset + at as u64 }, Buffer::new(most.min(bytes - at))));
    let mut all = Vec::with_capacity(bytes);
    for buffer in run(device, reads.collect())? {
        all.extend_from_slice(&buffer);
    }
    all.truncate(bytes);
    Ok(all)
}

/// Runs operations and waits for all of them; their buffers, in order.
fn run(device: &Arc<dyn Device>, operations: Vec<(Op, Buffer)>) -> io::Result<Vec<Buffer>> {
    let mut queue = device.queue(operations.len().max(1) as u32)?;
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

fn spot_offset(spot: u32) -> u64 {
    SEGMENTS_AT + u64::from(spot) * SEGMENT_BYTES as u64
}

#[cfg(test)]
mod tests;
