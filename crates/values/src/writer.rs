//! A writer appends records to a segment of its own.
//!
//! 1. `append` puts the record into a buffer of whole pages. A full buffer goes to the file, not yet durable.
//! 2. `sync` writes the rest, too, with zeros up to the end of the last page, and syncs the file. The buffer keeps the
//!    last page: the next `sync` writes it again, with the same bytes and more behind them.
//! 3. A segment without room for a record is sealed (`seal.rs`), and the next segment begins. A disk that is too full
//!    for a whole one gets a short one. A flush on a full disk, or an opening, gives space back.
//!
//! **Invariants**: a segment has one writer. Bytes that were handed to the file never change while the segment is open.
//! So a torn write of the last page leaves all synced records whole.
//!
//! **Threads**: one thread at a time uses a writer. Other threads read what was synced.
//!
//! **Failure**: an error ends the writer: each later call gets the same error. Handles since the last `sync` are void.
//! Records that were synced before stay readable. [`tidy`](crate::ValueLog::tidy) seals the segment of a writer that
//! was dropped.

use crate::Result;
use crate::counters::add;
use crate::format::Identity;
use crate::format::{
    Extent, FIRST_RECORD, FRAME_BYTES, INDEX_ENTRY_BYTES_MAX, IndexBuilder, SECTOR_BYTES, SegmentHeader, end_of,
    pages_needed, place,
};
use crate::handle::Handle;
use crate::log::ValueLog;
use crate::open::SEGMENT_BYTES_MIN;
use crate::record::{header, record_bytes};
use crate::seal::{Ends, seal};
use crate::segment::{Phase, Segment, State};
use situ_base::lock;
use situ_storage::{Buffer, Error, FileName, PageFile};
use std::fmt;
use std::sync::{Arc, Mutex};

/// Appended bytes collect up to this many before they are handed to the file.
const BUFFER_BYTES: usize = 1 << 20;
/// The maximum number of bytes of a file that were written and not synced, in addition to one buffer.
const WRITE_BACK_BYTES: u64 = 8 << 20;
/// A segment is this long at least, where that fits.
const SHORT_BYTES: u64 = 64 << 10;

/// The records that a writer has put into one segment since the last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The number of the segment.
    pub segment: u64,
    /// The number of records.
    pub records: u64,
    /// The sum of their footprints.
    pub record_bytes: u64,
}

/// A writer that appends values; made by [`ValueLog::writer`].
pub struct ValueWriter {
    log: Arc<ValueLog>,
    collects: bool,
    open: Option<OpenSegment>,
    written: Vec<Written>,
    failed: Option<Error>,
    left: Option<u64>,
}

struct OpenSegment {
    segment: Arc<Segment>,
    file: Arc<dyn PageFile>,
    buffer: Buffer,
    /// The page of the file that the buffer begins with.
    first_page: u64,
    /// Behind the last byte that was appended.
    end: u64,
    /// First byte that can be the next record's.
    free: u64,
    /// True if the buffer has bytes that the file has not.
    is_dirty: bool,
    unsynced: u64,
    record_bytes: u64,
    index: IndexBuilder,
}

impl ValueLog {
    /// Returns a writer with segments of its own.
    pub fn writer(self: &Arc<Self>) -> ValueWriter {
        ValueWriter::new(Arc::clone(self), false)
    }

    /// Returns a writer whose records count as [collected](crate::Counters::collected_bytes), not as appended.
    pub fn collecting_writer(self: &Arc<Self>) -> ValueWriter {
        ValueWriter::new(Arc::clone(self), true)
    }
}

impl ValueWriter {
    fn new(log: Arc<ValueLog>, collects: bool) -> ValueWriter {
        ValueWriter { log, collects, open: None, written: Vec::new(), failed: None, left: None }
    }

    /// Appends a value. `tag` and `key` come back from a [walk](ValueLog::walk), and `key` is checked by reads. The
    /// handle may be used once [`sync`](ValueWriter::sync) or [`finish`](ValueWriter::finish) has returned.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): the value is too long for any segment; the writer goes on. Or the disk is full, or
    /// I/O fails.
    pub fn append(&mut self, tag: u64, key: &[u8], value: &[u8]) -> Result<Handle> {
        let bytes = record_bytes(key.len(), value.len())?;
        self.guarded(|writer| writer.append_record(bytes, tag, key, value))
    }

    /// Makes all appended records durable. Returns what was appended since the last call, by segment.
    ///
    /// # Errors
    /// I/O. Nothing is known then about records since the last sync.
    pub fn sync(&mut self) -> Result<Vec<Written>> {
        self.guarded(|writer| {
            if let Some(open) = &mut writer.open {
                open.sync(&writer.log)?;
            }
            Ok(std::mem::take(&mut writer.written))
        })
    }

    /// Makes what collection has moved durable, and keeps the sums for the owner's next `sync`.
    pub(crate) fn sync_moved(&mut self) -> Result<()> {
        self.guarded(|writer| match &mut writer.open {
            Some(open) => open.sync(&writer.log),
            None => Ok(()),
        })
    }

    /// Seals the last segment. Returns what was appended since the last [`sync`](ValueWriter::sync), by segment.
    ///
    /// # Errors
    /// As [`sync`](ValueWriter::sync).
    pub fn finish(mut self) -> Result<Vec<Written>> {
        self.guarded(|writer| {
            writer.seal()?;
            Ok(std::mem::take(&mut writer.written))
        })
    }

    /// Returns the segment that the next short record goes to, if it has begun.
    pub fn segment(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.segment.identity.segment)
    }

    /// Returns true if an error has ended the writer.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns the segment that an error has ended.
    pub fn left_segment(&self) -> Option<u64> {
        self.left
    }

    fn guarded<T>(&mut self, act: impl FnOnce(&mut ValueWriter) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        act(self).inspect_err(|error| {
            self.failed = Some(error.clone());
            self.abandon();
        })
    }

    fn append_record(&mut self, bytes: u32, tag: u64, key: &[u8], value: &[u8]) -> Result<Handle> {
        let has_room = self.open.as_ref().is_some_and(|open| open.has_room(u64::from(bytes)));
        if !has_room {
            self.seal()?;
            self.open = Some(OpenSegment::begin(&self.log, u64::from(bytes))?);
        }
        let Some(open) = &mut self.open else { unreachable!("a segment was begun") };
        let handle = open.append(&self.log, bytes, tag, key, value)?;
        let meter = if self.collects { &self.log.meters.collected } else { &self.log.meters.appended };
        add(meter, handle.footprint());
        self.note(&handle);
        Ok(handle)
    }

    fn note(&mut self, handle: &Handle) {
        let footprint = handle.footprint();
        match self.written.last_mut().filter(|last| last.segment == handle.segment) {
            Some(last) => {
                last.records += 1;
                last.record_bytes += footprint;
            }
            None => self.written.push(Written { segment: handle.segment, records: 1, record_bytes: footprint }),
        }
    }

    fn seal(&mut self) -> Result<()> {
        match &mut self.open {
            Some(open) => open.seal(&self.log)?,
            None => return Ok(()),
        }
        self.open = None;
        Ok(())
    }

    /// Leaves the segment to [`tidy`](ValueLog::tidy).
    fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.left = Some(open.segment.identity.segment);
            self.log.change(&open.segment, |state| state.abandon());
        }
    }
}

impl Drop for ValueWriter {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueWriter(segment {:?})", self.segment())
    }
}

/// Returns the length of a new segment: `whole`, or half of that and so on where it is more than half of what the disk
/// has left. One that is shorter than [`SHORT_BYTES`] would hold a few records and be half empty: it has to be where
/// nothing else fits.
fn pages_that_fit(log: &ValueLog, whole: u64, least: u64) -> u64 {
    let free = log.volume.space().logical_free().unwrap_or(u64::MAX) / SECTOR_BYTES;
    let short = (SHORT_BYTES / SECTOR_BYTES).clamp(least, whole);
    let mut halves = std::iter::successors(Some(whole), |pages| Some(pages / 2)).take_while(|pages| *pages > short);
    let fitting = halves.find(|pages| *pages <= free / 2);
    fitting.unwrap_or(if short <= free { short } else { least })
}

impl OpenSegment {
    /// Begins a new segment, at least long enough for one record of `bytes`.
    fn begin(log: &ValueLog, bytes: u64) -> Result<OpenSegment> {
        let number = (log.numbers)();
        let least = pages_needed(FIRST_RECORD + bytes, INDEX_ENTRY_BYTES_MAX);
        let least = least.max(SEGMENT_BYTES_MIN / SECTOR_BYTES);
        let create = |pages| {
            let file = log.volume.create_pages(FileName::Values(number), pages * SECTOR_BYTES)?;
            Ok::<_, Error>((pages, file))
        };
        let pages = pages_that_fit(log, (log.options.segment_bytes / SECTOR_BYTES).max(least), least);
        let (pages, file) = match create(pages) {
            // A quota leaves less.
            Err(error) if error.is_no_space() && least < pages => create(least)?,
            created => created?,
        };
        let identity = Identity { segment: number, salt: log.salt(number) };
        let layout = log.options.layout;
        let segment = Arc::new(Segment { identity, layout, pages, state: Mutex::new(State::new(Phase::Open)) });
        log.add(&segment);
        let mut buffer = Buffer::new(BUFFER_BYTES);
        buffer[..FRAME_BYTES].copy_from_slice(&SegmentHeader { identity, layout, pages }.encode());
        let index = IndexBuilder::default();
        let (first_page, end, free) = (0, FIRST_RECORD, FIRST_RECORD);
        Ok(OpenSegment {
            segment,
            file,
            buffer,
            first_page,
            end,
            free,
            is_dirty: true,
            unsynced: 0,
            record_bytes: 0,
            index,
        })
    }

    fn has_room(&self, bytes: u64) -> bool {
        let end = place(self.segment.layout, self.free, bytes) + bytes;
        let index_bytes = self.index.bytes.len() as u64 + INDEX_ENTRY_BYTES_MAX;
        end <= u64::from(u32::MAX) && pages_needed(end, index_bytes) <= self.segment.pages
    }

    fn append(&mut self, log: &ValueLog, bytes: u32, tag: u64, key: &[u8], value: &[u8]) -> Result<Handle> {
        let (identity, layout) = (self.segment.identity, self.segment.layout);
        let offset = place(layout, self.free, u64::from(bytes));
        let gap = self.free..offset;
        self.put_zeros(log, offset - self.end)?;
        let header = header(identity, offset, tag, key, value);
        for part in [&header, key, value] {
            self.put(log, part)?;
        }
        assert_eq!(self.end, offset + u64::from(bytes), "a record is as long as it was said to be");
        self.free = end_of(layout, offset, u64::from(bytes));
        self.index.push(Extent { offset: offset as u32, bytes });
        let handle = Handle { segment: identity.segment, offset: offset as u32, bytes };
        self.record_bytes += handle.footprint();
        log.change(&self.segment, |state| state.appended(&handle, gap));
        Ok(handle)
    }

    fn put(&mut self, log: &ValueLog, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let at = (self.end - self.first_page * SECTOR_BYTES) as usize;
            if at == self.buffer.len() {
                self.write(log)?;
                // A long wait for many bytes now and then keeps the last one short.
                if self.unsynced >= WRITE_BACK_BYTES {
                    self.file.sync()?;
                    self.unsynced = 1;
                }
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.buffer.len() - at));
            self.buffer[at..at + now.len()].copy_from_slice(now);
            self.end += now.len() as u64;
            self.is_dirty = true;
            bytes = later;
        }
        Ok(())
    }

    fn put_zeros(&mut self, log: &ValueLog, count: u64) -> Result<()> {
        self.put(log, &[0; SECTOR_BYTES as usize][..count as usize])
    }

    /// Hands the buffer to the file, and keeps the page that is not full.
    fn write(&mut self, log: &ValueLog) -> Result<()> {
        let used = (self.end - self.first_page * SECTOR_BYTES) as usize;
        let pages = used.div_ceil(SECTOR_BYTES as usize);
        self.file.write(self.first_page, &self.buffer, pages, false)?;
        add(&log.meters.pages_written, pages as u64 * SECTOR_BYTES);
        self.unsynced += used as u64;
        self.is_dirty = false;
        let whole = used / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
        self.buffer.copy_within(whole..used, 0);
        self.buffer[used - whole..used].fill(0);
        self.first_page += whole as u64 / SECTOR_BYTES;
        lock(&self.segment.state).readable_end = self.end;
        Ok(())
    }

    /// Makes all records durable.
    fn sync(&mut self, log: &ValueLog) -> Result<()> {
        if self.is_dirty {
            self.write(log)?;
        }
        if self.unsynced > 0 {
            self.file.sync()?;
            self.unsynced = 0;
            lock(&self.segment.state).synced_end = self.end;
        }
        Ok(())
    }

    fn seal(&mut self, log: &ValueLog) -> Result<()> {
        if self.is_dirty {
            self.write(log)?;
        }
        let ends = Ends { data_end: self.end, record_bytes: self.record_bytes, rest_is_free: true };
        let (trailer, written) = seal(&*self.file, &self.segment, &self.index, ends)?;
        add(&log.meters.pages_written, written);
        log.sealed(&self.segment, &trailer);
        Ok(())
    }
}
