//! Writes on their way: the next step of a thread, its outcome, the moves of the watermarks, and the wakes. The
//! invariants are those of the [state](super).

use super::{FileSync, InFlight, LogFlight, LogPlan, LogState, Waiter};
use crate::chunk::{CHUNK_PAGES, Chunk, LogFile};
use crate::options::Durability;
use situ_base::Event;
use situ_device::PAGE_BYTES;
use situ_storage::{Error, Result};
use std::sync::Arc;

impl LogState {
    /// Returns the next step of a thread that wants everything before `target`. `wants_sync` is its own note, false at
    /// first, which it hands to [`stop_wanting`](LogState::stop_wanting) when it goes away.
    pub(crate) fn plan(&mut self, target: u64, durability: Durability, wants_sync: &mut bool) -> LogPlan {
        if self.durable >= target {
            return LogPlan::Done(Ok(()));
        }
        if let Some(error) = &self.failed {
            return LogPlan::Done(Err(error.clone()));
        }
        if self.position(durability) >= target {
            return LogPlan::Done(Ok(()));
        }
        if target <= self.issued {
            return match durability {
                Durability::Buffered => LogPlan::Wait(durability, target),
                Durability::Synced => self.plan_durable(target, wants_sync),
            };
        }
        let Some(first) = self.next_chunk() else {
            let text = format!("position {target} is not in this log, which ends at {}", self.issued);
            return LogPlan::Done(Err(Error::Invalid(text)));
        };
        if !self.may_take(durability) {
            return LogPlan::Wait(durability, target);
        }
        // Pages that leave a gap behind are written without durability: the sync that closes the gap does for both.
        let durable = durability == Durability::Synced && !self.leaves_gap(first);
        LogPlan::Write(self.take(durable))
    }

    /// Returns true if pages before this chunk would not be durable with it, and nothing in flight brings that.
    fn leaves_gap(&self, chunk: &Chunk) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.start < chunk.start_position())
    }

    /// Returns the file of the pages that are written next, if any wait.
    pub(crate) fn next_file(&self) -> Option<Arc<LogFile>> {
        self.next_chunk().map(|chunk| Arc::clone(&chunk.file))
    }

    /// Returns true if a chunk waits that takes no more records.
    pub(crate) fn has_full_chunk(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if the next pages may be [taken](LogState::take) now by a thread that keeps writes in flight. That
    /// thread decides how many are worth it.
    pub(crate) fn may_submit(&self, durability: Durability) -> bool {
        let needs_sync = |chunk: &Chunk| durability == Durability::Synced && self.leaves_gap(chunk);
        self.failed.is_none()
            && self.in_flight.len() < self.in_flight_max
            && self.next_chunk().is_some_and(|chunk| !needs_sync(chunk))
    }

    /// Returns the chunk that is written next, if any waits.
    fn next_chunk(&self) -> Option<&Chunk> {
        self.waiting.front().or(self.open.as_ref().filter(|chunk| chunk.dirty))
    }

    /// Returns true if the next write goes to a file whose writes wait for the device. After a rotation that need not
    /// be the file that takes records.
    pub(crate) fn next_write_waits(&self) -> bool {
        self.next_chunk().is_some_and(|chunk| chunk.file.pages.writes_wait())
    }

    /// Returns true if one more write should be started for a caller that wants this durability.
    ///
    /// A synced write waits until as many records wait as are in flight. So groups grow with the number of writers
    /// until about two large ones are in flight, instead of many small ones. That is as good on a disk that does many
    /// writes as fast as one, and better on others. With 16 writers on a busy virtual disk (`tests/speed.rs`, 2 cores),
    /// starting a write whenever fewer than 8 were in flight gave 36,000 records/s at 1.6 a write; this rule 51,000 at
    /// 5.8.
    ///
    /// A buffered write is over in a microsecond, sooner than a thread could wait for it, unless writes to the file
    /// wait: for a device, or for another machine.
    fn may_take(&self, durability: Durability) -> bool {
        if self.in_flight.is_empty() {
            return true;
        }
        if self.in_flight.len() >= self.in_flight_max {
            return false;
        }
        let flying: usize = self.in_flight.iter().filter(|flight| !flight.landed).map(|flight| flight.records).sum();
        (durability == Durability::Buffered && !self.next_write_waits())
            || self.pending_records >= flying
            || self.pending_bytes() >= CHUNK_PAGES * PAGE_BYTES
    }

    /// Like `plan`, for a position that was handed out to flights already.
    fn plan_durable(&mut self, target: u64, wants_sync: &mut bool) -> LogPlan {
        let Some(gap) = self.gap.clone().filter(|gap| gap.start < target) else {
            return LogPlan::Wait(Durability::Synced, target);
        };
        if !*wants_sync {
            *wants_sync = true;
            self.sync_wanted += 1;
        }
        if let Some(sync) = &self.sync {
            return LogPlan::Wait(Durability::Synced, sync.end.min(target));
        }
        let need = gap.end.min(target);
        if self.written < need {
            return LogPlan::Wait(Durability::Buffered, need);
        }
        if let Some(rewrite) = self.in_flight.iter().rev().find(|flight| flight.rewrite && !flight.landed) {
            return LogPlan::Wait(Durability::Buffered, rewrite.end);
        }
        let first = self.waiting.front().or(self.open.as_ref());
        if first.is_some_and(|chunk| chunk.rewrite && chunk.dirty) {
            return match self.in_flight.front() {
                Some(flight) if self.in_flight.len() >= self.in_flight_max => {
                    LogPlan::Wait(Durability::Buffered, flight.end)
                }
                _ => LogPlan::Write(self.take(false)),
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
        self.check();
        LogPlan::Sync(FileSync { file })
    }

    /// Notes that the thread that wanted `target` with this note goes away.
    pub(crate) fn stop_wanting(&mut self, wants_sync: bool) {
        self.sync_wanted -= u32::from(wants_sync);
    }

    /// Closes the last page if all of it was written: the next record begins another one.
    pub(super) fn drop_clean_tail(&mut self) {
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
    pub(crate) fn take(&mut self, durable: bool) -> LogFlight {
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
        let is_elsewhere = |flight: &InFlight| flight.landed || flight.end <= chunk.start_position();
        assert!(self.in_flight.iter().all(is_elsewhere), "page {} is in two flights", chunk.first_page);
        assert!(!chunk.rewrite || self.sync.is_none(), "page {} is written again during a sync", chunk.first_page);
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
        assert!(self.in_flight.len() <= self.in_flight_max, "{} writes are in flight", self.in_flight.len());
        self.check();
        let metrics = &mut self.metrics;
        metrics.writes += 1;
        metrics.durable_writes += u64::from(durable);
        metrics.pages_written += chunk.pages as u64;
        metrics.pages_rewritten += u64::from(chunk.rewrite);
        metrics.in_flight_peak = metrics.in_flight_peak.max(self.in_flight.len() as u64);
        LogFlight { id, chunk, durable, durable_before }
    }

    /// Takes a flight that came back. Returns the events to notify, without the lock.
    pub(crate) fn landed(&mut self, flight: LogFlight, result: Result<()>) -> Vec<Arc<dyn Event>> {
        let LogFlight { id, chunk, durable, .. } = flight;
        if let Err(error) = result {
            self.failed.get_or_insert(error);
            return self.woken();
        }
        let index = (id - self.first_flight) as usize;
        let landing = &mut self.in_flight[index];
        assert!(!landing.landed && landing.end == chunk.end_position(), "flight {id} ends at {}", landing.end);
        landing.landed = true;
        self.advance();
        let newest = self.open.is_none()
            && self.waiting.is_empty()
            && self.next_page == chunk.next_page()
            && Arc::ptr_eq(&self.file, &chunk.file);
        if newest && chunk.is_open() && !self.closed && self.sync_wanted == 0 {
            let pool = &mut self.pool;
            let chunk = chunk.reopen(durable, || pool.pop().unwrap_or_else(Chunk::ordinary_buffer));
            self.open = Some(chunk);
        } else {
            self.recycle(chunk);
        }
        self.check();
        self.woken()
    }

    /// Takes the result of the sync. Returns the events to notify, without the lock.
    pub(crate) fn synced(&mut self, result: Result<()>) -> Vec<Arc<dyn Event>> {
        match result {
            Err(error) => {
                self.failed.get_or_insert(error);
            }
            Ok(()) => {
                assert!(self.sync.take().is_some(), "a sync that was not begun has ended");
                self.advance();
                self.check();
            }
        }
        self.woken()
    }

    /// Moves the watermarks as far as they can go. After a failure nothing more becomes known durable.
    fn advance(&mut self) {
        while let Some(flight) = self.in_flight.front().filter(|flight| flight.landed) {
            assert!(
                flight.end > self.written,
                "the written watermark would go to {} from {}",
                flight.end,
                self.written
            );
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

    /// Counts everything in files below `oldest_needed` as durable: it is not needed any more. Returns the events to
    /// notify.
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
            self.check();
        }
        self.woken()
    }

    // ---- waiters ----

    /// Registers a waiter; `event.generation()` must be read before the lock is given up.
    pub(crate) fn wait(&mut self, durability: Durability, position: u64, event: Arc<dyn Event>) {
        self.waiters.push(Waiter { durability, position, event });
    }

    /// Takes out the waiters whose position is reached, and the waiters that should look again for something to do.
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
}
