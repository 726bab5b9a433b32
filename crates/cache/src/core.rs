//! The core of a cache, which its handles and its threads share.
//!
//! **Threads.** A *flusher* writes sealed segments to flash. *Readers* start when something is first read there, and
//! end with the cache. Each has a queue of the device. Where a thread can wait for completions and for requests at the
//! same time (a [`Watch`]), there is one reader with up to [`READ_DEPTH`](crate::reads::READ_DEPTH) reads in flight.
//! Several readers would take the requests from each other one by one, and sleep for each. Otherwise there are up to
//! [`READERS_MAX`], each with one read: there a read is a call that waits. A thread of the cache's owner can read for
//! itself instead (see [`FlashReader`](crate::FlashReader)); then only long items, which it hands over, start a reader.

use crate::counters::Counters;
use crate::flash::{Located, Read, Record};
use crate::item::Hit;
use crate::memory::{Arrived, Lookup, Memory, OnFlash};
use crate::reads::{self, Flight, OnItem, Pending, READ_BYTES, READ_DEPTH, Request, TRANSFERS_MAX};
use situ_base::{Env, JobHandle, Queue, Workers, lock};
use situ_device::Watch;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Threads that read flash.
const READERS_MAX: usize = 4;
/// Reads that may wait for a thread; beyond, the caller's thread reads.
const WAITING_MAX: usize = 8192;
/// A key whose item moves so often while it is read counts as absent.
const TRIES_MAX: u32 = 8;
/// The cache's owner keeps answers of this length until its client has taken them.
const KEPT_BYTES_MIN: usize = 16 << 10;
/// The time after which a wait for the device is begun again.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) counters: Counters,
    pub(crate) env: Env,
    reads: Workers<Request>,
    /// The event that the only reader waits for, and whether the reader waits.
    watch: OnceLock<Arc<dyn Watch>>,
    sleeps: AtomicBool,
    is_over: AtomicBool,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
    next_lane: AtomicU64,
    number: u64,
}

impl Core {
    pub(crate) fn new(memory: Memory, env: Env) -> Core {
        let queue = memory.flash.as_ref().and_then(|flash| flash.log.queue(1).ok());
        let can_be_watched = queue.is_some_and(|mut queue| matches!(queue.watch(), Ok(Some(_))));
        let readers = if can_be_watched { 1 } else { READERS_MAX };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Core {
            memory,
            counters: Counters::default(),
            reads: Workers::new(&env, "cache-read", readers, WAITING_MAX),
            watch: OnceLock::new(),
            sleeps: AtomicBool::new(false),
            env,
            is_over: AtomicBool::new(false),
            threads: Mutex::default(),
            next_lane: AtomicU64::new(0),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns the lane of this thread.
    pub(crate) fn lane(&self) -> usize {
        thread_local! {
            static LANE: std::cell::Cell<(u64, usize)> = const { std::cell::Cell::new((u64::MAX, 0)) };
        }
        let (number, lane) = LANE.get();
        if number == self.number {
            return lane;
        }
        let lane = self.next_lane.fetch_add(1, Ordering::Relaxed) as usize;
        LANE.set((self.number, lane));
        lane
    }

    /// Starts the flusher.
    pub(crate) fn start(self: &Arc<Core>) -> io::Result<()> {
        if self.memory.flash.is_some() {
            let core = Arc::clone(self);
            let flusher = self.env.executor.spawn("cache-flush", Box::new(move || core.keep_flushing()))?;
            lock(&self.threads).push(flusher);
        }
        Ok(())
    }

    fn keep_flushing(&self) {
        let Some(flash) = &self.memory.flash else { return };
        loop {
            let seen = flash.flusher.generation();
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            flash.fail_if_due(&self.memory.index, &self.counters);
            let has_flushed = flash.flush(&self.memory.index, &self.counters, self.memory.on_evicted.get());
            flash.bound_index(&self.memory.index, &self.counters);
            if !has_flushed {
                flash.flusher.wait(seen, None);
            }
        }
    }

    /// Returns true if the threads have ended, or are about to.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the threads. Reads that wait for them are answered before.
    pub(crate) fn end_threads(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(flash) = &self.memory.flash {
            flash.flusher.notify();
        }
        let flusher = std::mem::take(&mut *lock(&self.threads));
        self.reads.end();
        self.watch.get().into_iter().for_each(|watch| watch.wake());
        self.reads.close();
        // A panic of a thread has been shown already.
        flusher.into_iter().for_each(|thread| _ = thread.join());
    }

    /// Reads the item of a key and tells `done`, from this thread or another.
    pub(crate) fn get_later(self: &Arc<Core>, key: &[u8], now: u64, done: OnItem) {
        self.hand_over(Request { key: key.into(), now, tries: 0, done });
    }

    /// Gives a request to the readers.
    fn hand_over(self: &Arc<Core>, request: Request) {
        let body = || {
            let core = Arc::clone(self);
            move |queue: &Queue<Request>| core.serve_reads(queue)
        };
        match self.reads.submit(request, body) {
            Ok(()) => {
                if self.sleeps.swap(false, Ordering::SeqCst)
                    && let Some(watch) = self.watch.get()
                {
                    watch.wake();
                }
            }
            Err(requests) => requests.into_iter().for_each(|request| self.serve_here(request)),
        }
    }

    fn serve_here(&self, request: Request) {
        let record = self.fetch(&request.key, request.now);
        self.answer(request, record);
    }

    /// Answers, and makes room for the part of a long answer that the cache's owner keeps.
    pub(crate) fn answer(&self, request: Request, record: Option<Record>) {
        let is_long = record.as_ref().is_some_and(|record| record.item().value.len() >= KEPT_BYTES_MIN);
        // The program's bug must not end a thread of the cache.
        _ = catch_unwind(AssertUnwindSafe(|| (request.done)(record)));
        if is_long {
            self.memory.shrink(request.now, &self.counters);
        }
    }

    /// Returns the item of a key. Waits for the device.
    pub(crate) fn fetch(&self, key: &[u8], now: u64) -> Option<Record> {
        for _ in 0..TRIES_MAX {
            match self.look(key, now, usize::MAX) {
                Looked::Answer(record) => return record,
                Looked::Again | Looked::Long => {}
                Looked::Read(at, read) => {
                    let found = self.memory.flash.as_ref()?.log.fetch(read);
                    let result = found.as_ref().map(|_| ()).map_err(|error| io::Error::from(error.kind()));
                    self.note(&result);
                    if let Arrived::Answer(record) = self.arrived(key, at, found.ok().flatten(), now) {
                        return record;
                    }
                }
            }
        }
        None
    }

    fn arrived(&self, key: &[u8], at: OnFlash, record: Option<Record>, now: u64) -> Arrived {
        self.memory.arrived(self.lane(), key, at, record, now, &self.counters)
    }

    /// Notes what became of a read of the device.
    fn note(&self, result: &io::Result<()>) {
        self.memory.flash.iter().for_each(|flash| flash.note_read(result, &self.counters));
    }

    /// Looks where the item of a key is. An item that can have more than `bytes_max` bytes is left alone.
    fn look(&self, key: &[u8], now: u64, bytes_max: usize) -> Looked {
        let of_short = |hit: Hit<'_>| (hit.item.value.len() <= bytes_max).then(|| Record::of(&hit.item));
        let at = match self.memory.get(key, now, of_short) {
            Ok(Some(Some(found))) => return Looked::Answer(found),
            Ok(Some(None)) => return Looked::Long,
            Ok(None) => return Looked::Answer(None),
            Err(at) => at,
        };
        // Out of service, its items are about to go.
        let Some(flash) = self.memory.flash.as_ref().filter(|flash| flash.works()) else {
            return Looked::Answer(None);
        };
        if at.length.bytes_max() > bytes_max {
            return Looked::Long;
        }
        match flash.log.locate(at.place, at.length.bytes_max()) {
            Located::There(read) => Looked::Read(at, read),
            Located::Here(record) => match self.arrived(key, at, record, now) {
                Arrived::Answer(record) => Looked::Answer(record),
                Arrived::Changed => Looked::Again,
            },
        }
    }

    /// Runs a reader.
    fn serve_reads(self: &Arc<Core>, queue: &Queue<Request>) {
        let Some(flash) = &self.memory.flash else { return };
        let mut flight: Option<Flight> = None;
        loop {
            let request = match &flight {
                Some(flight) if !flight.pending.is_empty() => None,
                _ => match queue.next() {
                    None => return,
                    request => request,
                },
            };
            if flight.is_none() {
                match flash.log.queue(TRANSFERS_MAX as u32) {
                    Ok(mut device) => {
                        let watch = device.watch();
                        if let Ok(Some(watch)) = watch {
                            let mut new = Flight::new(device, flash.piece_bytes_max(), READ_BYTES, usize::MAX);
                            request.into_iter().for_each(|request| self.begin(&mut new, request));
                            return self.serve_watched(queue, new, &**self.watch.get_or_init(|| watch));
                        }
                        // Plain calls would read the pieces one after the other.
                        flight = Some(Flight::new(device, flash.log.transfer_bytes_max(), READ_BYTES, usize::MAX));
                    }
                    Err(error) => self.note(&Err(error)),
                }
            }
            let Some(flight) = &mut flight else {
                request.into_iter().for_each(|request| self.serve_here(request));
                continue;
            };
            request.into_iter().for_each(|request| self.begin(flight, request));
            flight.submit();
            if flight.refused.is_empty() {
                flight.queue.wait(&mut flight.done, WAIT);
            }
            for pending in flight.ended() {
                self.end(flight, pending);
            }
        }
    }

    /// Runs the only reader of a queue that can be watched.
    fn serve_watched(self: &Arc<Core>, queue: &Queue<Request>, mut flight: Flight, watch: &dyn Watch) {
        loop {
            // Long items are taken one by one: so what is read at once stays within its bytes.
            if self.advance(&mut flight, || queue.take()) {
                continue;
            }
            if flight.pending.is_empty() && queue.is_over() {
                return;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            // A request that came before is seen here; the sender of a later one wakes.
            if queue.is_empty() || !flight.has_room() {
                watch.wait(Some(WAIT));
            }
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }

    /// Begins the reads that there is room for, and answers those that have ended. False if there was nothing to do.
    pub(crate) fn advance(self: &Arc<Core>, flight: &mut Flight, mut next: impl FnMut() -> Option<Request>) -> bool {
        // Reads that end make room for those that begin.
        let mut has_worked = self.collect(flight);
        // Reads that end at once take no room of the flight. They are bounded, too: the thread may have other things to
        // do.
        for _ in 0..READ_DEPTH {
            if !flight.has_room() {
                break;
            }
            let Some(request) = next() else { break };
            self.begin(flight, request);
            has_worked = true;
        }
        flight.submit();
        // Some devices have done their work by now.
        self.collect(flight) || has_worked
    }

    /// Answers reads that have ended. False if none has.
    fn collect(self: &Arc<Core>, flight: &mut Flight) -> bool {
        flight.queue.poll(&mut flight.done);
        let ended = flight.ended();
        let has_worked = !ended.is_empty();
        ended.into_iter().for_each(|pending| self.end(flight, pending));
        has_worked
    }

    fn begin(self: &Arc<Core>, flight: &mut Flight, mut request: Request) {
        while request.tries < TRIES_MAX {
            match self.look(&request.key, request.now, flight.item_bytes_max) {
                Looked::Answer(record) => return self.answer(request, record),
                Looked::Again => request.tries += 1,
                Looked::Long => return self.hand_over(request),
                Looked::Read(at, read) => match flight.begin(request, at, read) {
                    // An item that cannot be read counts as absent.
                    Some(request) => return self.answer(request, None),
                    None => return,
                },
            }
        }
        self.answer(request, None);
    }

    fn end(self: &Arc<Core>, flight: &mut Flight, pending: Pending) {
        let Pending { mut request, at, read, parts, counts, result, .. } = pending;
        self.note(&result);
        let bytes = if result.is_ok() { reads::joined(&read.pieces, parts, &counts) } else { None };
        let log = self.memory.flash.as_ref().map(|flash| &flash.log);
        let record = bytes.and_then(|bytes| log?.finish(&read, bytes));
        match self.arrived(&request.key, at, record, request.now) {
            Arrived::Answer(record) => self.answer(request, record),
            Arrived::Changed => {
                request.tries += 1;
                self.begin(flight, request);
            }
        }
    }
}

/// The result of a look-up, and the step that it asks for.
enum Looked {
    Answer(Option<Record>),
    /// The item has moved meanwhile.
    Again,
    Read(OnFlash, Read),
    /// The item is too long for this thread.
    Long,
}

impl<T> From<Result<Option<T>, OnFlash>> for Lookup<T> {
    fn from(found: Result<Option<T>, OnFlash>) -> Lookup<T> {
        match found {
            Ok(Some(made)) => Lookup::Hit(made),
            Ok(None) => Lookup::Miss,
            Err(_) => Lookup::OnFlash,
        }
    }
}
