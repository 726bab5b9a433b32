//! What the log knows, behind its lock: pages waiting, writes in flight, watermarks, waiters. It does no I/O and never
//! blocks; [`Log`](crate::Log) asks it what to do next and tells it what came of it.
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
//! 2. `take` hands out the first waiting chunk as a [`Flight`], in order of the log. Any number of flights complete
//!    in any order; `written` moves over the contiguous completed ones only.
//! 3. When the flight of the last page lands and nobody began another page, the page is opened again: later records
//!    go into it, and it is written again.
//!
//! Positions between `durable` and `written` are durable too unless they lie in the *gap*: the hull of what was written
//! without durability and for which nothing durable has been issued since. A durable flight whose first page starts at or
//! before the gap takes it over (the common case: the gap is in the page that is written again). Otherwise the gap
//! needs a file sync. So `durable = min(written, start of the gap, starts of what is being taken over)`.
//!
//! **Invariants**
//! * Watermarks never pass a hole and never go back: `durable <= written <= issued <= appended`, marks counted.
//! * A page is in at most one flight, and a page is begun only when the one before is final.
//! * *A sync and a rewrite never overlap*: a sync waits for the rewrites in flight, and closes the page that could be
//!   written again. Without this a page could become durable behind the back of an image in flight, which says what
//!   was durable when it was made (format page, "Writing a page again"). So that the sync gets its turn, no page is
//!   opened again while somebody wants one.
//! * Whoever waits either waits for a position that something in flight will bring, or is woken when a flight lands
//!   and there is something to do that it can do.

use crate::chunk::{CHUNK_PAGES, Chunk, LogFile};
use crate::options::{AppendError, Durability, FILE_PAGES_MIN, LogMetrics, LogOptions, Lsn};
use crate::page::{PAYLOAD_BYTES, RECORD_HEADER_BYTES, flag};
use situ_device::{Buffer, Event, PAGE_BYTES};
use situ_storage::{Error, PageFile, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A chunk that its holder writes.
pub(crate) struct Flight {
    id: u64,
    pub(crate) chunk: Chunk,
    pub(crate) durable: bool,
    /// Everything before was durable when the flight was taken.
    pub(crate) durable_before: u64,
}

/// A file sync that its holder performs.
pub(crate) struct Sync {
    pub(crate) file: Arc<LogFile>,
}

/// What a thread that wants a position should do.
pub(crate) enum Plan {
    Done(Result<()>),
    Write(Flight),
    Sync(Sync),
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
pub(crate) struct Next {
    pub(crate) number: u64,
    pub(crate) pages: Arc<dyn PageFile>,
    page_count: u32,
    distance: u32,
}

pub(crate) struct State {
    buffer_bytes_max: usize,
    in_flight_max: usize,
    /// Where records go now.
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
    next: Option<Next>,
    metrics: LogMetrics,
}

impl State {
    pub(crate) fn new(options: &LogOptions, number: u64, pages: Arc<dyn PageFile>) -> Result<State> {
        let page_count = page_count(&*pages)?;
        Ok(State {
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

    // ---- appending ----

    fn refuse_if_ended(&self) -> Result<(), AppendError> {
        match &self.failed {
            Some(error) => Err(AppendError::Failed(error.clone())),
            None if self.closed => Err(AppendError::Failed(Error::Invalid("the log is closed".to_owned()))),
            None => Ok(()),
        }
    }

    /// Bytes of records, headers included, that the current file still takes.
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
        let mut left = bytes;
        self.chunk_with_room(left).begin_record();
        for part in std::iter::once(&header[..]).chain(parts.iter().copied()) {
            let mut part = part;
            while !part.is_empty() {
                let count = self.chunk_with_room(left).copy(part);
                part = &part[count..];
                left -= count;
            }
        }
        self.appended = self.open.as_ref().map_or(self.appended, Chunk::end_position);
        self.pending_records += 1;
        self.metrics.records += 1;
        self.metrics.appended_bytes += length as u64;
        Ok(Lsn(self.appended))
    }

    /// The open chunk, with at least one free byte in its last page; `wanted` bytes are to come.
    fn chunk_with_room(&mut self, wanted: usize) -> &mut Chunk {
        let usable = match &self.open {
            Some(chunk) => chunk.tail_used < PAYLOAD_BYTES || chunk.has_page(),
            None => false,
        };
        if !usable {
            self.put_open_in_queue();
            let buffer = self.buffer(wanted);
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

    fn buffer(&mut self, wanted: usize) -> Buffer {
        if wanted > CHUNK_PAGES * PAYLOAD_BYTES {
            return Chunk::new_buffer(wanted);
        }
        self.pool.pop().unwrap_or_else(|| Chunk::new_buffer(0))
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
                let buffer = self.buffer(0);
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
        let Next { number, pages, page_count, distance } = self.next.take().ok_or(AppendError::NotPrepared)?;
        self.end_file(flag::ENDED);
        let end = self.file.position(self.next_page);
        let next = Arc::new(LogFile { number, pages, page_count, base: end, distance });
        let file = std::mem::replace(&mut self.file, next);
        self.older.push_back(Older { file: Arc::clone(&file), end });
        self.next_page = 0;
        self.last_used = 0;
        Ok((file, end))
    }

    /// How much higher than the current file's number `number` is. It is stored in 32 bits.
    pub(crate) fn distance(&self, number: u64) -> Result<u32> {
        let current = self.file.number;
        let distance = number.checked_sub(current).and_then(|distance| u32::try_from(distance).ok());
        distance.filter(|distance| *distance > 0).ok_or_else(|| {
            Error::Invalid(format!("log file {number} cannot follow log file {current}: its number must be higher"))
        })
    }

    pub(crate) fn next(&mut self) -> &mut Option<Next> {
        &mut self.next
    }

    /// Makes a file the one to rotate to.
    pub(crate) fn set_next(&mut self, number: u64, pages: Arc<dyn PageFile>) -> Result<()> {
        let (page_count, distance) = (page_count(&*pages)?, self.distance(number)?);
        self.next = Some(Next { number, pages, page_count, distance });
        Ok(())
    }

    /// Takes no more records. True the first time.
    pub(crate) fn begin_close(&mut self) -> bool {
        let first = !self.closed;
        self.closed = true;
        first
    }

    /// Puts the final mark on a page of its own, behind pages that are all durable.
    pub(crate) fn put_closing_mark(&mut self) {
        debug_assert!(self.pending_bytes() == 0 && self.durable == self.issued);
        self.drop_clean_tail();
        self.end_file(flag::CLOSED);
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Behind everything that waits, marks included.
    pub(crate) fn pending_end(&self) -> u64 {
        let open = self.open.as_ref().filter(|chunk| chunk.dirty);
        open.or(self.waiting.back()).map_or(self.issued, Chunk::end_position)
    }

    pub(crate) fn file_number(&self) -> u64 {
        self.file.number
    }

    // ---- what to do next ----

    /// What a thread should do that wants everything before `target`. `wants_sync` is its own note, false at first, which
    /// it hands to [`stop_wanting`](State::stop_wanting) when it goes away.
    pub(crate) fn plan(&mut self, target: u64, durability: Durability, wants_sync: &mut bool) -> Plan {
        if self.durable >= target {
            return Plan::Done(Ok(()));
        }
        if let Some(error) = &self.failed {
            return Plan::Done(Err(error.clone()));
        }
        if self.position(durability) >= target {
            return Plan::Done(Ok(()));
        }
        if target <= self.issued {
            return match durability {
                Durability::Buffered => Plan::Wait(durability, target),
                Durability::Synced => self.plan_durable(target, wants_sync),
            };
        }
        let Some(first) = self.waiting.front().or(self.open.as_ref().filter(|chunk| chunk.dirty)) else {
            let text = format!("position {target} is not in this log, which ends at {}", self.issued);
            return Plan::Done(Err(Error::Invalid(text)));
        };
        if !self.may_take(durability) {
            return Plan::Wait(durability, target);
        }
        // Pages that leave a gap behind are written without durability: the sync that closes the gap does for both.
        let start = first.start_position();
        let durable = durability == Durability::Synced && self.gap.as_ref().is_none_or(|gap| gap.start >= start);
        Plan::Write(self.take(durable))
    }

    /// Whether one more write should be started for somebody who wants this durability.
    ///
    /// A synced write waits until as many records wait as are in flight. So groups grow with the number of writers until
    /// about two large ones are in flight, instead of many small ones: as good on a disk that does many writes as fast
    /// as one, and better on others. With 16 writers on a busy virtual disk (`tests/speed.rs`, 2 cores), starting a
    /// write whenever fewer than 8 were in flight gave 36,000 records/s at 1.6 a write; this rule 51,000 at 5.8.
    ///
    /// A buffered write is over in a microsecond, sooner than anybody could wait for it.
    fn may_take(&self, durability: Durability) -> bool {
        if self.in_flight.is_empty() {
            return true;
        }
        if self.in_flight.len() >= self.in_flight_max {
            return false;
        }
        let flying: usize = self.in_flight.iter().filter(|flight| !flight.landed).map(|flight| flight.records).sum();
        durability == Durability::Buffered
            || self.pending_records >= flying
            || self.pending_bytes() >= CHUNK_PAGES * PAGE_BYTES
    }

    /// As `plan`, for a position that was handed out to flights already.
    fn plan_durable(&mut self, target: u64, wants_sync: &mut bool) -> Plan {
        let Some(gap) = self.gap.clone().filter(|gap| gap.start < target) else {
            return Plan::Wait(Durability::Synced, target);
        };
        if !*wants_sync {
            *wants_sync = true;
            self.sync_wanted += 1;
        }
        if let Some(sync) = &self.sync {
            return Plan::Wait(Durability::Synced, sync.end.min(target));
        }
        let need = gap.end.min(target);
        if self.written < need {
            return Plan::Wait(Durability::Buffered, need);
        }
        if let Some(rewrite) = self.in_flight.iter().rev().find(|flight| flight.rewrite && !flight.landed) {
            return Plan::Wait(Durability::Buffered, rewrite.end);
        }
        let first = self.waiting.front().or(self.open.as_ref());
        if first.is_some_and(|chunk| chunk.rewrite && chunk.dirty) {
            return match self.in_flight.front() {
                Some(flight) if self.in_flight.len() >= self.in_flight_max => {
                    Plan::Wait(Durability::Buffered, flight.end)
                }
                _ => Plan::Write(self.take(false)),
            };
        }
        self.drop_clean_tail();
        let (file, end) = match self.older.iter().find(|older| older.end > gap.start) {
            Some(older) => (&older.file, older.end.min(self.written)),
            None => (&self.file, self.written),
        };
        let file = Arc::clone(file);
        self.gap = (end < gap.end).then_some(end..gap.end);
        self.sync = Some(gap.start..end);
        self.metrics.syncs += 1;
        Plan::Sync(Sync { file })
    }

    /// The thread that wanted `target` with this note goes away.
    pub(crate) fn stop_wanting(&mut self, wants_sync: bool) {
        self.sync_wanted -= u32::from(wants_sync);
    }

    /// Closes the last page if all of it was written: the next record begins another one.
    fn drop_clean_tail(&mut self) {
        if let Some(chunk) = self.open.take_if(|chunk| !chunk.dirty) {
            self.last_used = chunk.tail_used;
            self.recycle(chunk);
        }
    }

    fn position(&self, durability: Durability) -> u64 {
        match durability {
            Durability::Buffered => self.written,
            Durability::Synced => self.durable,
        }
    }

    // ---- flights ----

    /// Hands out the first waiting chunk. There must be one.
    fn take(&mut self, durable: bool) -> Flight {
        let chunk = match self.waiting.pop_front() {
            Some(chunk) => {
                self.waiting_pages -= chunk.pages;
                chunk
            }
            None => {
                let chunk = self.open.take().expect("the caller saw a waiting chunk");
                self.last_used = chunk.tail_used;
                chunk
            }
        };
        // Between what was issued and a fresh page lies padding only.
        let (start, end) = (self.issued.max(chunk.start_position()), chunk.end_position());
        let durable_before = if self.durable == self.issued { start } else { self.durable };
        let takes_over = if durable {
            self.gap.take().map(|gap| gap.start)
        } else {
            self.gap = Some(self.gap.as_ref().map_or(start, |gap| gap.start)..end);
            None
        };
        self.issued = end;
        self.pending_records -= chunk.records;
        let id = self.first_flight + self.in_flight.len() as u64;
        self.in_flight.push_back(InFlight {
            end,
            rewrite: chunk.rewrite,
            takes_over,
            records: chunk.records,
            landed: false,
        });
        let metrics = &mut self.metrics;
        metrics.writes += 1;
        metrics.durable_writes += u64::from(durable);
        metrics.pages_written += chunk.pages as u64;
        metrics.pages_rewritten += u64::from(chunk.rewrite);
        metrics.in_flight_peak = metrics.in_flight_peak.max(self.in_flight.len() as u64);
        Flight { id, chunk, durable, durable_before }
    }

    /// A flight came back. Returns whom to notify, without the lock.
    pub(crate) fn landed(&mut self, flight: Flight, result: Result<()>) -> Vec<Arc<dyn Event>> {
        let Flight { id, chunk, durable, .. } = flight;
        if let Err(error) = result {
            self.failed.get_or_insert(error);
            return self.woken();
        }
        let index = (id - self.first_flight) as usize;
        self.in_flight[index].landed = true;
        self.advance();
        let newest = self.open.is_none()
            && self.waiting.is_empty()
            && self.next_page == chunk.next_page()
            && Arc::ptr_eq(&self.file, &chunk.file);
        if newest && chunk.is_open() && !self.closed && self.sync_wanted == 0 {
            let pool = &mut self.pool;
            let chunk = chunk.reopen(durable, || pool.pop().unwrap_or_else(|| Chunk::new_buffer(0)));
            self.open = Some(chunk);
        } else {
            self.recycle(chunk);
        }
        self.woken()
    }

    /// The sync came back. Returns whom to notify, without the lock.
    pub(crate) fn synced(&mut self, result: Result<()>) -> Vec<Arc<dyn Event>> {
        match result {
            Err(error) => {
                self.failed.get_or_insert(error);
            }
            Ok(()) => {
                self.sync = None;
                self.advance();
            }
        }
        self.woken()
    }

    /// Moves the watermarks as far as they can go. After a failure nothing more becomes known durable.
    fn advance(&mut self) {
        while let Some(flight) = self.in_flight.front().filter(|flight| flight.landed) {
            self.written = flight.end;
            self.first_flight += 1;
            self.in_flight.pop_front();
        }
        let taken_over = self.in_flight.iter().filter(|flight| !flight.landed).filter_map(|flight| flight.takes_over);
        let open_ended = self.gap.iter().chain(&self.sync).map(|range| range.start);
        let durable = taken_over.chain(open_ended).fold(self.written, u64::min);
        assert!(durable >= self.durable, "the durable watermark would go back from {} to {durable}", self.durable);
        self.durable = durable;
        while self.older.front().is_some_and(|older| older.end <= durable) {
            self.older.pop_front();
        }
    }

    /// Everything in files below `oldest_needed` counts as durable: it is not needed any more. Returns whom to notify.
    pub(crate) fn forget(&mut self, oldest_needed: u64) -> Vec<Arc<dyn Event>> {
        let forgotten = self
            .older
            .iter()
            .take_while(|older| older.file.number < oldest_needed && older.end <= self.written)
            .last()
            .map(|older| older.end);
        if let (Some(end), Some(gap)) = (forgotten, self.gap.clone()) {
            let start = gap.start.max(end);
            self.gap = (start < gap.end).then_some(start..gap.end);
            self.advance();
        }
        self.woken()
    }

    // ---- waiters ----

    /// Registers a waiter; `event.generation()` must be read before the lock is given up.
    pub(crate) fn wait(&mut self, durability: Durability, position: u64, event: Arc<dyn Event>) {
        self.waiters.push(Waiter { durability, position, event });
    }

    /// Takes out those whose position is reached, and those who should look again for something to do.
    fn woken(&mut self) -> Vec<Arc<dyn Event>> {
        let mut woken = Vec::new();
        if self.waiters.is_empty() {
            return woken;
        }
        let failed = self.failed.is_some();
        let (written, durable) = (self.written, self.durable);
        self.waiters.retain(|waiter| {
            let reached = match waiter.durability {
                Durability::Buffered => written,
                Durability::Synced => durable,
            };
            let wake = failed || waiter.position <= reached;
            if wake {
                woken.push(Arc::clone(&waiter.event));
            }
            !wake
        });
        let issued = self.issued;
        if self.may_take(Durability::Synced) {
            self.wake_one(&mut woken, |waiter| waiter.position > issued);
        } else if self.may_take(Durability::Buffered) {
            let buffered = |waiter: &Waiter| waiter.durability == Durability::Buffered && waiter.position > issued;
            self.wake_one(&mut woken, buffered);
        }
        if let (Some(gap), None) = (&self.gap, &self.sync) {
            let start = gap.start;
            self.wake_one(&mut woken, |waiter| waiter.durability == Durability::Synced && waiter.position > start);
        }
        woken
    }

    fn wake_one(&mut self, woken: &mut Vec<Arc<dyn Event>>, who: impl Fn(&Waiter) -> bool) {
        if let Some(index) = self.waiters.iter().position(who) {
            woken.push(self.waiters.swap_remove(index).event);
        }
    }

    /// Pages of the current file and of the one prepared.
    pub(crate) fn pages(&self) -> u64 {
        u64::from(self.file.page_count) + self.next.as_ref().map_or(0, |next| next.pages.pages())
    }

    /// The counters, and the writes in flight now.
    pub(crate) fn metrics(&self) -> LogMetrics {
        LogMetrics { in_flight: self.in_flight.len() as u64, ..self.metrics }
    }
}

/// Pages of a file, as the format counts them.
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
