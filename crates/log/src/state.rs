//! The state of the log, behind its lock: pages waiting, writes in flight, watermarks, waiters. It does no I/O and
//! never blocks; [`Log`](crate::Log) asks it for the next step and reports the outcome. This module has the inputs:
//! records and files. The writes and their waiters are in `state/flights.rs`.
//!
//! # How positions advance
//!
//! ```text
//!            durable      written            issued          appended
//!  -------------|------------|------------------|----------------|
//!   on the disk   with the OS   in flight (FIFO)    waiting chunks
//! ```
//!
//! 1. `append` copies a record into the open chunk; a full chunk moves to the queue of waiting ones.
//! 2. `take` hands out the first waiting chunk as a [`LogFlight`], in order of the log. Any number of flights complete
//!    in any order; `written` moves over the contiguous completed ones only.
//! 3. When the flight of the last page lands and no other page has begun, the page is opened again. Later records go
//!    into it, and it is written again.
//!
//! Positions between `durable` and `written` are durable too unless they lie in the *gap*: the hull of the bytes that
//! were written without durability and for which nothing durable has been issued since. A durable flight whose first
//! page starts at or before the gap takes it over (the common case: the gap is in the page that is written again).
//! Otherwise the gap needs a file sync. So
//! `durable = min(written, start of the gap, starts of what is being taken over)`.
//!
//! **Invariants**
//! * Watermarks never pass a hole and never go back: `durable <= written <= issued <= appended`, marks counted.
//! * A page is in at most one flight, and a page is begun only when the one before is final.
//! * *A sync and a rewrite never overlap*: a sync waits for the rewrites in flight, and closes the page that could be
//!   written again. Without this, a page could become durable behind the back of an image in flight, which names the
//!   durable bytes at its making (format page, "Writing a page again"). So that the sync gets its turn, no page is
//!   opened again while a thread wants a sync.
//! * A waiter either waits for a position that something in flight will bring, or is woken when a flight lands and
//!   there is something to do that it can do.

use crate::chunk::{CHUNK_PAGES, Chunk, LogFile};
use crate::options::{AppendError, Durability, FILE_PAGES_MIN, LogMetrics, LogOptions, Lsn};
use crate::page::{PAYLOAD_BYTES, RECORD_HEADER_BYTES, flag};
use situ_base::Event;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{Error, PageFile, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

mod flights;

/// A chunk that its holder writes.
pub(crate) struct LogFlight {
    id: u64,
    pub(crate) chunk: Chunk,
    pub(crate) durable: bool,
    /// Everything before was durable when the flight was taken.
    pub(crate) durable_before: u64,
}

/// A file sync that its holder performs.
pub(crate) struct FileSync {
    pub(crate) file: Arc<LogFile>,
}

/// The next step of a thread that wants a position.
pub(crate) enum LogPlan {
    Done(Result<()>),
    Write(LogFlight),
    Sync(FileSync),
    /// Wait until the position is reached, or until woken to look again.
    Wait(Durability, u64),
}

struct InFlight {
    end: u64,
    rewrite: bool,
    /// Start of the gap that becomes durable with it.
    takes_over: Option<u64>,
    records: usize,
    landed: bool,
}

struct Waiter {
    durability: Durability,
    position: u64,
    event: Arc<dyn Event>,
}

/// A file that was ended but is not known to be durable yet.
struct Older {
    file: Arc<LogFile>,
    end: u64,
}

/// The file to rotate to.
pub(crate) struct NextLogFile {
    pub(crate) number: u64,
    pub(crate) pages: Arc<dyn PageFile>,
    page_count: u32,
    distance: u32,
}

pub(crate) struct LogState {
    buffer_bytes_max: usize,
    in_flight_max: usize,
    /// The file that records go to now.
    file: Arc<LogFile>,
    /// The first page of `file` that was never begun.
    next_page: u32,
    /// `used` of the page before it.
    last_used: usize,
    open: Option<Chunk>,
    waiting: VecDeque<Chunk>,
    waiting_pages: usize,
    /// Records in `waiting` and `open` that were not written.
    pending_records: usize,
    pool: Vec<Buffer>,
    /// Buffers for the record that is being appended, in the order of their use.
    reserved: VecDeque<Buffer>,

    appended: u64,
    issued: u64,
    pub(crate) written: u64,
    pub(crate) durable: u64,
    gap: Option<Range<u64>>,
    in_flight: VecDeque<InFlight>,
    first_flight: u64,
    sync: Option<Range<u64>>,
    sync_wanted: u32,
    older: VecDeque<Older>,

    waiters: Vec<Waiter>,
    pub(crate) idle_events: Vec<Arc<dyn Event>>,
    pub(crate) failed: Option<Error>,
    closed: bool,
    next: Option<NextLogFile>,
    metrics: LogMetrics,
}

impl LogState {
    pub(crate) fn new(options: &LogOptions, number: u64, pages: Arc<dyn PageFile>) -> Result<LogState> {
        let page_count = page_count(&*pages)?;
        Ok(LogState {
            buffer_bytes_max: options.buffer_bytes_max,
            in_flight_max: options.in_flight_max.max(1),
            file: Arc::new(LogFile { number, pages, page_count, base: 0, distance: 0 }),
            next_page: 0,
            last_used: 0,
            open: None,
            waiting: VecDeque::new(),
            waiting_pages: 0,
            pending_records: 0,
            pool: Vec::new(),
            reserved: VecDeque::new(),
            appended: 0,
            issued: 0,
            written: 0,
            durable: 0,
            gap: None,
            in_flight: VecDeque::new(),
            first_flight: 0,
            sync: None,
            sync_wanted: 0,
            older: VecDeque::new(),
            waiters: Vec::new(),
            idle_events: Vec::new(),
            failed: None,
            closed: false,
            next: None,
            metrics: LogMetrics::default(),
        })
    }

    /// Asserts the invariants of the module's page, at the end of each step but an append. A release build leaves this
    /// out: a buffered put makes two steps.
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let LogState { durable, written, issued, next_page, .. } = *self;
        assert!(durable <= written && written <= issued, "durable {durable}, written {written}, issued {issued}");
        assert!(issued <= self.pending_end(), "issued {issued} of {}", self.pending_end());
        let in_flight_end = self.in_flight.back().map_or(written, |flight| flight.end);
        assert_eq!(in_flight_end, issued, "what is issued is written or in flight");
        if let Some(gap) = &self.gap {
            assert!(durable <= gap.start && gap.start < gap.end && gap.end <= issued, "gap {gap:?}, durable {durable}");
        }
        if let Some(sync) = &self.sync {
            let is_behind = self.gap.as_ref().is_none_or(|gap| sync.end <= gap.start);
            assert!(durable <= sync.start && sync.end <= written && is_behind, "sync {sync:?}, gap {:?}", self.gap);
        }
        let needs_sync = self.older.front().is_none_or(|older| durable < older.end);
        assert!(needs_sync, "a file that is durable is listed as one that is not");
        // A closing mark may take the page that is kept for marks.
        assert!(next_page < self.file.page_count || self.closed, "page {next_page} of {}", self.file.page_count);
        if cfg!(any(test, feature = "costly-checks")) {
            self.check_lists();
        }
    }

    /// Asserts that the sums are those of the lists, and that positions ascend in each list.
    fn check_lists(&self) {
        let waiting_pages: usize = self.waiting.iter().map(|chunk| chunk.pages).sum();
        assert_eq!(self.waiting_pages, waiting_pages, "pages that wait");
        let records: usize = self.waiting.iter().chain(&self.open).map(|chunk| chunk.records).sum();
        assert_eq!(self.pending_records, records, "records that were not written");
        let follow = |a: &Chunk, b: &Chunk| a.end_position() <= b.start_position();
        assert!(self.waiting.iter().chain(&self.open).is_sorted_by(|a, b| follow(a, b)), "chunks are out of order");
        assert!(self.in_flight.iter().is_sorted_by(|a, b| a.end < b.end), "flights are out of order");
        let follow = |a: &Older, b: &Older| a.end < b.end && a.file.number < b.file.number;
        assert!(self.older.iter().is_sorted_by(|a, b| follow(a, b)), "older files are out of order");
    }

    // ---- appending ----

    fn refuse_if_ended(&self) -> Result<(), AppendError> {
        match &self.failed {
            Some(error) => Err(AppendError::Failed(error.clone())),
            None if self.closed => Err(AppendError::Failed(Error::Invalid("the log is closed".to_owned()))),
            None => Ok(()),
        }
    }

    /// Returns the bytes of records, headers included, that the current file still takes.
    pub(crate) fn room(&self) -> u64 {
        let pages = u64::from(self.file.page_count - 1).saturating_sub(u64::from(self.next_page));
        let tail = self.open.as_ref().map_or(0, |chunk| PAYLOAD_BYTES - chunk.tail_used);
        pages * PAYLOAD_BYTES as u64 + tail as u64
    }

    fn pending_bytes(&self) -> usize {
        let open = self.open.as_ref().filter(|chunk| chunk.dirty).map_or(0, |chunk| chunk.pages);
        (self.waiting_pages + open) * PAGE_BYTES
    }

    /// Takes a record whose body, of `length` bytes, is `parts` concatenated.
    pub(crate) fn append(
        &mut self,
        header: [u8; RECORD_HEADER_BYTES],
        parts: &[&[u8]],
        length: usize,
    ) -> Result<Lsn, AppendError> {
        self.refuse_if_ended()?;
        let bytes = RECORD_HEADER_BYTES + length;
        if bytes as u64 > self.room() {
            return Err(AppendError::FileFull);
        }
        let pending = self.pending_bytes();
        if pending > 0 && pending >= self.buffer_bytes_max {
            return Err(AppendError::BufferFull);
        }
        self.reserve_buffers(bytes)?;
        self.chunk_with_room().begin_record();
        for part in std::iter::once(&header[..]).chain(parts.iter().copied()) {
            let mut part = part;
            while !part.is_empty() {
                let count = self.chunk_with_room().copy(part);
                part = &part[count..];
            }
        }
        debug_assert!(self.reserved.is_empty(), "a record takes the buffers that were reserved for it");
        let appended = self.open.as_ref().map_or(self.appended, Chunk::end_position);
        debug_assert!(appended >= self.appended + bytes as u64, "{bytes} bytes from {} to {appended}", self.appended);
        debug_assert!(self.next_page < self.file.page_count, "the last page is kept for the end mark");
        self.appended = appended;
        self.pending_records += 1;
        self.metrics.records += 1;
        self.metrics.appended_bytes += length as u64;
        Ok(Lsn(self.appended))
    }

    /// Allocates the buffers that a record of `bytes` takes beyond the open chunk, before a byte of the record is
    /// copied. A record whose second half finds no memory could not be taken back.
    fn reserve_buffers(&mut self, bytes: usize) -> Result<(), AppendError> {
        let mut left = bytes.saturating_sub(self.open.as_ref().map_or(0, Chunk::room_bytes));
        while left > 0 {
            let pooled = if left <= CHUNK_PAGES * PAYLOAD_BYTES { self.pool.pop() } else { None };
            let Some(buffer) = pooled.or_else(|| Chunk::try_new_buffer(left)) else {
                self.reserved.clear();
                return Err(AppendError::OutOfMemory { bytes });
            };
            left = left.saturating_sub(buffer.len() / PAGE_BYTES * PAYLOAD_BYTES);
            self.reserved.push_back(buffer);
        }
        Ok(())
    }

    /// Returns the open chunk, with at least one free byte in its last page.
    fn chunk_with_room(&mut self) -> &mut Chunk {
        let usable = match &self.open {
            Some(chunk) => chunk.tail_used < PAYLOAD_BYTES || chunk.has_page(),
            None => false,
        };
        if !usable {
            self.put_open_in_queue();
            let buffer = self.buffer();
            let chunk = Chunk::new(Arc::clone(&self.file), buffer, self.next_page, self.last_used);
            self.next_page += 1;
            return self.open.insert(chunk);
        }
        let chunk = self.open.as_mut().expect("looked at above");
        if chunk.tail_used == PAYLOAD_BYTES {
            chunk.begin_page(PAYLOAD_BYTES);
            self.next_page += 1;
        }
        chunk
    }

    fn buffer(&mut self) -> Buffer {
        self.reserved.pop_front().or_else(|| self.pool.pop()).unwrap_or_else(Chunk::ordinary_buffer)
    }

    fn recycle(&mut self, chunk: Chunk) {
        // One per flight and one being filled; more would never be used at once in a steady state.
        if self.pool.len() <= self.in_flight_max {
            self.pool.extend(chunk.into_buffer());
        }
    }

    fn put_open_in_queue(&mut self) {
        if let Some(chunk) = self.open.take() {
            self.last_used = chunk.tail_used;
            self.waiting_pages += chunk.pages;
            self.waiting.push_back(chunk);
        }
    }

    /// Ends the current file with a mark on its last page, or on a page of its own when that one is out of reach.
    fn end_file(&mut self, mark: u8) {
        let mut chunk = match self.open.take() {
            Some(chunk) => chunk,
            None => {
                let buffer = self.buffer();
                let chunk = Chunk::new(Arc::clone(&self.file), buffer, self.next_page, self.last_used);
                self.next_page += 1;
                chunk
            }
        };
        chunk.end(mark);
        self.waiting_pages += chunk.pages;
        self.waiting.push_back(chunk);
    }

    /// Ends the current file and goes on in the one prepared. Returns the file that was ended and where.
    pub(crate) fn rotate(&mut self) -> Result<(Arc<LogFile>, u64), AppendError> {
        self.refuse_if_ended()?;
        if self.open.is_none() && self.next.is_some() {
            // For the mark.
            self.reserve_buffers(1)?;
        }
        let NextLogFile { number, pages, page_count, distance } = self.next.take().ok_or(AppendError::NotPrepared)?;
        self.end_file(flag::ENDED);
        let end = self.file.position(self.next_page);
        assert_eq!(self.pending_end(), end, "a file ends with the page of its mark");
        assert_eq!(number, self.file.number + u64::from(distance), "recovery finds the file before by the distance");
        let next = Arc::new(LogFile { number, pages, page_count, base: end, distance });
        let file = std::mem::replace(&mut self.file, next);
        self.older.push_back(Older { file: Arc::clone(&file), end });
        self.next_page = 0;
        self.last_used = 0;
        self.check();
        Ok((file, end))
    }

    /// Returns the distance from the current file's number up to `number`. It is stored in 32 bits.
    pub(crate) fn distance(&self, number: u64) -> Result<u32> {
        let current = self.file.number;
        let distance = number.checked_sub(current).and_then(|distance| u32::try_from(distance).ok());
        distance.filter(|distance| *distance > 0).ok_or_else(|| {
            Error::Invalid(format!("log file {number} cannot follow log file {current}: its number must be higher"))
        })
    }

    pub(crate) fn next(&mut self) -> &mut Option<NextLogFile> {
        &mut self.next
    }

    /// Makes a file the one to rotate to; returns the one that was.
    pub(crate) fn set_next(&mut self, number: u64, pages: Arc<dyn PageFile>) -> Result<Option<NextLogFile>> {
        let (page_count, distance) = (page_count(&*pages)?, self.distance(number)?);
        Ok(self.next.replace(NextLogFile { number, pages, page_count, distance }))
    }

    /// Takes no more records. True the first time.
    pub(crate) fn begin_close(&mut self) -> bool {
        let first = !self.closed;
        self.closed = true;
        first
    }

    /// Puts the final mark on a page of its own, behind pages that are all durable.
    pub(crate) fn put_closing_mark(&mut self) {
        let is_durable = self.pending_bytes() == 0 && self.durable == self.issued;
        assert!(is_durable, "{} bytes wait, durable {} of {}", self.pending_bytes(), self.durable, self.issued);
        self.drop_clean_tail();
        self.end_file(flag::CLOSED);
        self.check();
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns the position behind everything that waits, marks included.
    pub(crate) fn pending_end(&self) -> u64 {
        let open = self.open.as_ref().filter(|chunk| chunk.dirty);
        open.or(self.waiting.back()).map_or(self.issued, Chunk::end_position)
    }

    pub(crate) fn file_number(&self) -> u64 {
        self.file.number
    }

    /// Returns the number of pages of the current file.
    pub(crate) fn file_pages(&self) -> u64 {
        u64::from(self.file.page_count)
    }

    /// Returns the number of pages of the current file and of the one prepared.
    pub(crate) fn pages(&self) -> u64 {
        self.file_pages() + self.next.as_ref().map_or(0, |next| next.pages.pages())
    }

    /// Returns the counters, and the writes in flight now.
    pub(crate) fn metrics(&self) -> LogMetrics {
        LogMetrics { in_flight: self.in_flight.len() as u64, ..self.metrics }
    }
}

/// Returns the number of pages of a file, as the format counts them.
fn page_count(pages: &dyn PageFile) -> Result<u32> {
    match u32::try_from(pages.pages()) {
        Ok(count) if count >= FILE_PAGES_MIN => Ok(count),
        _ => Err(Error::Invalid(format!(
            "{} has {} pages; a log file has {FILE_PAGES_MIN} to 2^32",
            pages.path(),
            pages.pages()
        ))),
    }
}

#[cfg(test)]
mod tests;
