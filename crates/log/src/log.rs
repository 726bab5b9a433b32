//! The log's interface, and the loop in which any thread runs the log stage.
//!
//! A thread that wants a position durable asks the state what to do: write the pages that wait, sync a file, or wait
//! for the threads that do. It does that without the lock, reports, and asks again. So on an idle log `commit` is one
//! write by the calling thread and no thread switch. On a busy one the thread that finds a free slot takes along the
//! records that all others appended.

use crate::files::{Files, shortest_for};
use crate::options::{AppendError, Durability, LogMetrics, LogOptions, Lsn};
use crate::page::{RECORD_BYTES_MAX, record_header};
use crate::state::{LogFlight, LogPlan, LogState, NextLogFile};
use situ_base::{Env, Event};
use situ_device::PAGE_BYTES;
use situ_storage::{Error, PageFile, Result, Volume};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// An open write-ahead log. See the crate's page for what it promises.
///
/// Dropping it without [`close`](Log::close) is safe and does no I/O: what was not committed is lost, as in a crash.
pub struct Log {
    env: Env,
    state: Mutex<LogState>,
    files: Files,
    short_file_bytes: u64,
    /// Copies of the watermarks, for callers that only read them.
    written: AtomicU64,
    durable: AtomicU64,
    /// The buffered writes in flight, for threads that wait a moment.
    buffered_flights: AtomicUsize,
    /// No file is made under this number or a lower one any more; changed by the thread that prepares.
    number_given_up: AtomicU64,
}

/// The number of times that a buffered commit looks whether the write in flight is over. They take a few microseconds,
/// several times the time of a write unless its thread has lost its core.
const LOOKS_MAX: usize = 64;

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log(file {}, written {}, durable {})", self.file(), self.written().0, self.durable().0)
    }
}

impl Log {
    /// Begins a new log in `volume` with log file `first_file`, which must not exist. Starts no threads.
    ///
    /// All earlier log files that are still needed must have been read by [`recover`](crate::recover()): the new log
    /// goes on where they end. They are listed, and [`release`](Log::release) takes care of them too. Spares are
    /// adopted.
    ///
    /// # Errors
    /// The volume refuses.
    pub fn create(volume: Arc<dyn Volume>, env: Env, options: LogOptions, first_file: u64) -> Result<Arc<Log>> {
        let files = Files::open(volume, options.file_bytes, options.spare_files_max, env.executor.event())?;
        let pages = files.make_first(first_file, options.first_file_bytes)?;
        Log::over(files, env, &options, first_file, pages)
    }

    /// Returns a log whose first file is at hand.
    pub(crate) fn over(
        files: Files,
        env: Env,
        options: &LogOptions,
        first_file: u64,
        pages: Arc<dyn PageFile>,
    ) -> Result<Arc<Log>> {
        let state = Mutex::new(LogState::new(options, first_file, pages)?);
        let (written, durable) = (AtomicU64::new(0), AtomicU64::new(0));
        let buffered_flights = AtomicUsize::new(0);
        let short_file_bytes = options.short_file_bytes;
        let number_given_up = AtomicU64::new(0);
        Ok(Arc::new(Log { env, state, files, short_file_bytes, written, durable, buffered_flights, number_given_up }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("a thread panicked inside the log")
    }

    /// Copies a record, `parts` concatenated, behind all earlier ones. Order of calls is order in the log. Does no I/O
    /// and does not wait, but for a short lock; costs two passes over the bytes.
    ///
    /// The record is not on its way to the disk until a thread calls [`commit`](Log::commit), [`advance`](Log::advance)
    /// or [`sync`](Log::sync).
    ///
    /// # Errors
    /// See [`AppendError`]. The record was not taken.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Lsn, AppendError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let length = match u32::try_from(bytes) {
            Ok(length) if bytes <= RECORD_BYTES_MAX => length,
            _ => return Err(AppendError::TooLarge),
        };
        // The checksum is made outside of the lock.
        let header = record_header(length, parts);
        self.lock().append(header, parts, bytes)
    }

    /// Returns when everything up to `lsn` is written ([`Durability::Buffered`]) or durable
    /// ([`Durability::Synced`]). The calling thread does it, or waits for another that does.
    ///
    /// # Errors
    /// A write or sync failed; then nothing is known about the record, and the log has [`failed`](Log::failed).
    pub fn commit(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        if self.watermark(Durability::Synced) >= lsn.0 {
            return Ok(());
        }
        if durability == Durability::Buffered {
            self.wait_a_moment();
        }
        let mut wants_sync = false;
        let mut event = None;
        let mut state = self.lock();
        let result = loop {
            match state.plan(lsn.0, durability, &mut wants_sync) {
                LogPlan::Done(result) => break result,
                LogPlan::Wait(what, position) => {
                    let Some(event) = event.take().or_else(|| state.idle_events.pop()) else {
                        // Made without the lock: an executor may do what it likes there.
                        drop(state);
                        event = Some(self.env.executor.event());
                        state = self.lock();
                        continue;
                    };
                    let seen = event.generation();
                    state.wait(what, position, Arc::clone(&event));
                    drop(state);
                    event.wait(seen, None);
                    state = self.lock();
                    state.idle_events.push(event);
                }
                work => state = self.run(work, state),
            }
        };
        state.stop_wanting(wants_sync);
        result
    }

    /// Looks a few times whether a buffered write in flight is over.
    ///
    /// The system lets one thread at a time write to a file anyway. A thread that waits here for another one then
    /// writes, or finds written, the records that all have appended meanwhile, into the page that was in flight. A
    /// thread that does not wait begins a fresh page.
    #[inline]
    fn wait_a_moment(&self) {
        for _ in 0..LOOKS_MAX {
            if self.buffered_flights.load(Ordering::Acquire) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// Performs a write or a sync without the lock, and reports it.
    fn run<'a>(&'a self, work: LogPlan, state: MutexGuard<'a, LogState>) -> MutexGuard<'a, LogState> {
        drop(state);
        let (state, woken) = match work {
            LogPlan::Write(mut flight) => {
                let is_buffered = !flight.durable;
                if is_buffered {
                    self.buffered_flights.fetch_add(1, Ordering::Relaxed);
                }
                let result = Log::fly(&mut flight);
                let mut state = self.lock();
                let woken = state.landed(flight, result);
                if is_buffered {
                    self.buffered_flights.fetch_sub(1, Ordering::Release);
                }
                (state, woken)
            }
            LogPlan::Sync(sync) => {
                let result = sync.file.pages.sync();
                let mut state = self.lock();
                let woken = state.synced(result);
                (state, woken)
            }
            LogPlan::Done(_) | LogPlan::Wait(..) => (self.lock(), Vec::new()),
        };
        self.publish(state, woken)
    }

    fn fly(flight: &mut LogFlight) -> Result<()> {
        flight.chunk.seal(flight.durable_before);
        flight.chunk.write(flight.durable)
    }

    /// Takes a flight that was begun elsewhere and has ended.
    pub(crate) fn land(&self, flight: LogFlight, result: Result<()>) {
        let mut state = self.lock();
        let woken = state.landed(flight, result);
        drop(self.publish(state, woken));
    }

    /// Publishes the watermarks to callers that only read them, and notifies without the lock.
    fn publish<'a>(&'a self, state: MutexGuard<'a, LogState>, woken: Vec<Arc<dyn Event>>) -> MutexGuard<'a, LogState> {
        // Both only grow, and are stored under the lock.
        let (written, durable) = (self.written.load(Ordering::Relaxed), self.durable.load(Ordering::Relaxed));
        assert!(written <= state.written, "published written to {written}, now {}", state.written);
        assert!(durable <= state.durable, "published durable to {durable}, now {}", state.durable);
        self.written.store(state.written, Ordering::Release);
        self.durable.store(state.durable, Ordering::Release);
        if woken.is_empty() {
            return state;
        }
        drop(state);
        for event in woken {
            event.notify();
        }
        self.lock()
    }

    /// Runs one turn of the log stage for a background worker: one write or sync towards everything appended so far, if
    /// there is one to do and a slot free. True if something was done. Never waits for other threads.
    ///
    /// # Errors
    /// As [`commit`](Log::commit).
    pub fn advance(&self, durability: Durability) -> Result<bool> {
        self.one_turn(self.lock(), durability)
    }

    /// Like [`advance`](Log::advance) with [`Durability::Buffered`], for a thread that must not wait for a device
    /// either. The next write is left to other threads if it goes to a file whose [writes wait](PageFile::writes_wait).
    /// So are all later ones, in any file. Returns false then, too.
    ///
    /// # Errors
    /// As [`commit`](Log::commit).
    pub fn advance_cached(&self) -> Result<bool> {
        let state = self.lock();
        match state.next_write_waits() {
            true => Ok(false),
            false => self.one_turn(state, Durability::Buffered),
        }
    }

    fn one_turn<'a>(&'a self, mut state: MutexGuard<'a, LogState>, durability: Durability) -> Result<bool> {
        let mut wants_sync = false;
        let target = state.pending_end();
        let result = match state.plan(target, durability, &mut wants_sync) {
            LogPlan::Done(result) => result.map(|()| false),
            LogPlan::Wait(..) => Ok(false),
            work => {
                state = self.run(work, state);
                match &state.failed {
                    Some(error) => Err(error.clone()),
                    None => Ok(true),
                }
            }
        };
        state.stop_wanting(wants_sync);
        result
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// As [`commit`](Log::commit).
    pub fn sync(&self) -> Result<()> {
        let appended = self.lock().appended();
        self.commit(Lsn(appended), Durability::Synced)
    }

    /// Hands all that was appended, and the end of the file before a rotation, to the system.
    ///
    /// # Errors
    /// As [`commit`](Log::commit).
    pub fn write_out(&self) -> Result<()> {
        let end = self.lock().pending_end();
        self.commit(Lsn(end), Durability::Buffered)
    }

    fn watermark(&self, durability: Durability) -> u64 {
        match durability {
            Durability::Buffered => self.written.load(Ordering::Acquire),
            Durability::Synced => self.durable.load(Ordering::Acquire),
        }
    }

    /// Returns the end of the records that survive the end of the process.
    pub fn written(&self) -> Lsn {
        Lsn(self.watermark(Durability::Buffered))
    }

    /// Returns the end of the records that survive power failure, or lie in files that were [released](Log::release).
    pub fn durable(&self) -> Lsn {
        Lsn(self.watermark(Durability::Synced))
    }

    /// Returns the position behind the last record appended.
    pub fn appended(&self) -> Lsn {
        Lsn(self.lock().appended())
    }

    /// Returns the number of the file that records go to now.
    pub fn file(&self) -> u64 {
        self.lock().file_number()
    }

    /// Returns the bytes of records, 8 more each than their body, that the current file still takes.
    pub fn room_bytes(&self) -> u64 {
        self.lock().room()
    }

    /// Makes log file `file_number` ready to rotate to, with room for a record of `min_bytes`. Returns at once if it is
    /// ready. Renames a spare, or creates a file and reserves its room, on the calling thread.
    ///
    /// The number must be higher than the current file's and unused. A prepared file of another number, or one that
    /// does not fit, is given up as soon as there is this one. Returns false, and makes no file, if the number is that
    /// of a file that does not fit, was given up or could not be made. Its name may come back in a crash, next to a
    /// second file of that name on another disk. The call is to be made again with another number.
    ///
    /// # Errors
    /// The volume refuses, for example with [`NoSpace`](Error::NoSpace). The log goes on in its current file, and the
    /// call can be made again, with another number.
    pub fn prepare_next(&self, file_number: u64, min_bytes: u64) -> Result<bool> {
        if min_bytes > RECORD_BYTES_MAX as u64 {
            return Err(Error::Invalid(AppendError::TooLarge.to_string()));
        }
        let fits = |pages: &dyn PageFile| self.files.fits(pages, min_bytes);
        self.prepare(file_number, fits, || self.files.make(file_number, min_bytes))
    }

    /// Like [`prepare_next`](Log::prepare_next), for a file of [`short_file_bytes`](LogOptions::short_file_bytes) or of
    /// `bytes_max`, whichever is less, or a shorter one if the disk has no room for that. It is for times when writes
    /// are few and room is scarce. It has room for a record of `min_bytes` in any case.
    ///
    /// # Errors
    /// As [`prepare_next`](Log::prepare_next).
    pub fn prepare_short(&self, file_number: u64, min_bytes: u64, bytes_max: u64) -> Result<bool> {
        let least = shortest_for(min_bytes);
        let bytes = self.files.short_bytes(self.short_file_bytes.min(bytes_max)).max(least);
        let fits = |pages: &dyn PageFile| (least..=bytes).contains(&(pages.pages() * PAGE_BYTES as u64));
        self.prepare(file_number, fits, || self.files.make_new(file_number, bytes, least))
    }

    fn prepare(
        &self,
        file_number: u64,
        fits: impl Fn(&dyn PageFile) -> bool,
        make: impl FnOnce() -> Result<Arc<dyn PageFile>>,
    ) -> Result<bool> {
        self.files.preparing(|| {
            let mut state = self.lock();
            state.distance(file_number)?;
            let next = state.next();
            let fits = |next: &NextLogFile| next.number == file_number && fits(&*next.pages);
            if next.as_ref().is_some_and(fits) {
                return Ok(true);
            }
            if let Some(next) = next {
                self.number_given_up.fetch_max(next.number, Ordering::Relaxed);
            }
            drop(state);
            if file_number <= self.number_given_up.load(Ordering::Relaxed) {
                return Ok(false);
            }
            // If this fails, the present file is better than none.
            let made = make().and_then(|pages| self.lock().set_next(file_number, pages));
            if made.is_err() {
                self.number_given_up.fetch_max(file_number, Ordering::Relaxed);
            }
            if let Some(unfit) = made? {
                self.files.add_old(unfit.number, unfit.pages.pages(), 0);
                self.files.release_unused(unfit.number)?;
            }
            Ok(true)
        })
    }

    /// Ends the current file; later records go to the one prepared, whose number is returned. Does no I/O. The old
    /// file's last pages are written with the next commit.
    ///
    /// # Errors
    /// [`NotPrepared`](AppendError::NotPrepared), or the log failed or was closed.
    pub fn rotate(&self) -> Result<u64, AppendError> {
        let (old, end, number) = {
            let mut state = self.lock();
            let (old, end) = state.rotate()?;
            (old, end, state.file_number())
        };
        self.files.add_old(old.number, u64::from(old.page_count), end);
        Ok(number)
    }

    /// Gives up the files with numbers below `oldest_needed`: they are kept as spares or removed. Their records count
    /// as durable from now on. The current file, and files with pages still to be written, stay until a later call.
    /// Does I/O.
    ///
    /// # Errors
    /// The volume refuses; the files concerned are tried again by the next call.
    pub fn release(&self, oldest_needed: u64) -> Result<()> {
        let mut state = self.lock();
        let oldest_needed = oldest_needed.min(state.file_number());
        let woken = state.forget(oldest_needed);
        let state = self.publish(state, woken);
        let written = state.written;
        drop(state);
        self.files.release(oldest_needed, written)
    }

    /// Makes everything durable and says so in a last page, so that the next recovery has no doubt. Takes no records
    /// from then on. A second call only waits for what is pending.
    ///
    /// # Errors
    /// As [`commit`](Log::commit). Nothing that was acknowledged is lost thereby.
    pub fn close(&self) -> Result<()> {
        let (first, end) = {
            let mut state = self.lock();
            (state.begin_close(), state.pending_end())
        };
        self.commit(Lsn(end), Durability::Synced)?;
        if !first {
            return Ok(());
        }
        let end = {
            let mut state = self.lock();
            state.put_closing_mark();
            state.pending_end()
        };
        self.commit(Lsn(end), Durability::Synced)
    }

    /// Gives the room of spare files back, for times when little is written. The next files are created.
    ///
    /// # Errors
    /// The volume refuses; the call can be made again.
    pub fn drop_spares(&self) -> Result<()> {
        self.files.drop_spares()
    }

    /// Gives the room of the prepared file back, for times when something else needs it more. Its number is given up.
    ///
    /// # Errors
    /// The volume refuses. The next call of [`release`](Log::release) tries again.
    pub fn drop_next(&self) -> Result<()> {
        self.files.preparing(|| {
            let Some(next) = self.lock().next().take() else { return Ok(()) };
            self.number_given_up.fetch_max(next.number, Ordering::Relaxed);
            self.files.add_old(next.number, next.pages.pages(), 0);
            self.files.release_unused(next.number)
        })?;
        self.drop_spares()
    }

    /// Returns the reason why the log takes no more records: the first write or sync that failed. It stays so until
    /// reopened, because the contents of the disk are unknown.
    pub fn failed(&self) -> Option<Error> {
        self.lock().failed.clone()
    }

    /// Returns the bytes of a file that is made for a record of `record_bytes`; with 0, of an ordinary one.
    pub fn file_bytes_for(&self, record_bytes: u64) -> u64 {
        self.files.bytes_for(record_bytes)
    }

    /// Returns the bytes of files that are written and not released, with what is written of the current one.
    pub fn held_bytes(&self) -> u64 {
        let written = {
            let state = self.lock();
            state.file_pages().saturating_mul(PAGE_BYTES as u64).saturating_sub(state.room())
        };
        self.files.old_bytes() + written
    }

    /// Returns the oldest log file to keep if finished files may take `bytes` together. At most the current file.
    pub fn oldest_within(&self, bytes: u64) -> u64 {
        let current = self.file();
        self.files.oldest_within(bytes).map_or(current, |number| number.min(current))
    }

    /// Returns the number of the file that is ready to rotate to, which may be an older one than the last request.
    pub fn next_file(&self) -> Option<u64> {
        self.lock().next().as_ref().map(|next| next.number)
    }

    /// Returns true if file `number`, with room for a record of `record_bytes`, takes no more room of the volume. It is
    /// then prepared, or there is a spare for it whose number `counts`.
    pub fn has_file_at_hand(&self, number: u64, record_bytes: u64, counts: impl Fn(u64) -> bool) -> bool {
        let fits = |next: &NextLogFile| next.number == number && self.files.fits(&*next.pages, record_bytes);
        self.lock().next().as_ref().is_some_and(fits)
            || self.files.has_spare(self.files.bytes_for(record_bytes), counts)
    }

    /// Returns true if file `number` is ready to rotate to, has room for a record of `record_bytes`, and is at most as
    /// long as `file_bytes_max` or as that record needs.
    pub fn is_ready(&self, number: u64, record_bytes: u64, file_bytes_max: u64) -> bool {
        let least = shortest_for(record_bytes);
        let lengths = least..=file_bytes_max.max(least);
        let fits = |next: &NextLogFile| lengths.contains(&(next.pages.pages() * PAGE_BYTES as u64));
        self.lock().next().as_ref().is_some_and(|next| next.number == number && fits(next))
    }

    /// Returns the bytes of the shortest file that has room for a record of `record_bytes`.
    pub fn shortest_file_bytes_for(&self, record_bytes: u64) -> u64 {
        shortest_for(record_bytes)
    }

    /// Counters so far.
    pub fn metrics(&self) -> LogMetrics {
        let (metrics, pages) = {
            let state = self.lock();
            (state.metrics(), state.pages())
        };
        LogMetrics { file_bytes: self.files.bytes() + pages * PAGE_BYTES as u64, ..metrics }
    }
}
