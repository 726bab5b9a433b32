//! What the handles of a cache and its threads share.
//!
//! **Threads.** A *flusher* writes sealed segments to flash. *Readers* start when something is first read there, and end with the cache. Each
//! has a queue of the device. Where a thread can wait for completions and for requests at the same time (a [`Watch`]), there is one reader with up to
//! [`READ_DEPTH`] reads in flight: several would take the requests from each other one by one, and sleep for each. Otherwise there are up to
//! [`READERS_MAX`], each with one read: there a read is a call that waits.

use crate::counters::Counters;
use crate::flash::{Located, Piece, Read, Record, RecordBytes};
use crate::memory::{Arrived, Lookup, Memory, OnFlash};
use situ_device::{Buffer, Completion, Env, JobHandle, Next, Op, Queue, Requests, Ticket, Watch, lock};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Called once with the item of a key, or none, from any thread. It does not wait for anything.
pub type OnItem = Box<dyn FnOnce(Option<Record>) + Send>;

/// Threads that read flash.
const READERS_MAX: usize = 4;
/// Reads that may wait for a thread; beyond, the caller's thread reads.
const WAITING_MAX: usize = 8192;
/// Items that one reader has in flight.
const READ_DEPTH: usize = 128;
/// With so many bytes in flight, a reader begins no other item.
const READ_BYTES: usize = 4 << 20;
/// Transfers that one reader has in flight.
const TRANSFERS_MAX: usize = 128;
/// A key whose item moves so often while it is read counts as absent.
const TRIES_MAX: u32 = 8;
/// How long a wait for the device takes before it is begun again.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) counters: Counters,
    pub(crate) env: Env,
    reads: Requests<Request>,
    /// What the only reader waits for, and whether it does.
    watch: OnceLock<Arc<dyn Watch>>,
    sleeps: AtomicBool,
    is_over: AtomicBool,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
    next_lane: AtomicU64,
    number: u64,
}

/// A read that somebody waits for.
struct Request {
    key: Box<[u8]>,
    now: u64,
    tries: u32,
    done: OnItem,
}

impl Request {
    /// Answers, and makes room for what the cache's owner keeps of the answer.
    fn answer(self, record: Option<Record>, core: &Core) {
        let now = self.now;
        // The program's bug must not end a thread of the cache.
        _ = catch_unwind(AssertUnwindSafe(|| (self.done)(record)));
        core.memory.shrink(now, &core.counters);
    }
}

/// An item that is being read.
struct Pending {
    request: Request,
    at: OnFlash,
    read: Read,
    /// What the transfers bring, and for each piece how many transfers it has.
    parts: Vec<Option<Buffer>>,
    counts: Vec<usize>,
    left: usize,
    result: io::Result<()>,
}

/// What a reader has in flight.
struct Flight {
    queue: Box<dyn Queue>,
    transfer_bytes_max: usize,
    pending: HashMap<u64, Pending>,
    next_pending: u64,
    /// Bytes that the pending items take.
    bytes: usize,
    /// Transfers that wait for the queue: of which item, which part, and what.
    waiting: VecDeque<(u64, usize, Op, Buffer)>,
    in_flight: HashMap<Ticket, (u64, usize)>,
    /// Transfers that the device did not take.
    refused: Vec<(u64, usize, Buffer, io::Error)>,
    done: Vec<Completion>,
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
            reads: Requests::new(&env, readers, WAITING_MAX),
            watch: OnceLock::new(),
            sleeps: AtomicBool::new(false),
            env,
            is_over: AtomicBool::new(false),
            threads: Mutex::default(),
            next_lane: AtomicU64::new(0),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The lane of this thread.
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
            let has_flushed = flash.flush(&self.memory.index, &self.counters, self.memory.on_evicted.get());
            flash.bound_index(&self.memory.index, &self.counters);
            if !has_flushed {
                flash.flusher.wait(seen, None);
            }
        }
    }

    /// Ends the threads. Reads that wait are answered before.
    pub(crate) fn end_threads(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(flash) = &self.memory.flash {
            flash.flusher.notify();
        }
        let flusher = std::mem::take(&mut *lock(&self.threads));
        let readers = self.reads.close();
        self.watch.get().into_iter().for_each(|watch| watch.wake());
        // A panic of a thread has been shown already.
        readers.into_iter().chain(flusher).for_each(|thread| _ = thread.join());
    }

    /// Reads the item of a key and tells `done`, from this thread or another.
    pub(crate) fn get_later(self: &Arc<Core>, key: &[u8], now: u64, done: OnItem) {
        match self.reads.push(Request { key: key.into(), now, tries: 0, done }) {
            Ok(true) => {
                let core = Arc::clone(self);
                let spawned = self.env.executor.spawn("cache-read", Box::new(move || core.serve_reads()));
                if self.reads.started(spawned.ok()) {
                    // There is no thread: what waits is read here.
                    self.reads.take(usize::MAX).into_iter().for_each(|request| self.serve_here(request));
                }
            }
            Ok(false) => {
                if self.sleeps.swap(false, Ordering::SeqCst)
                    && let Some(watch) = self.watch.get()
                {
                    watch.wake();
                }
            }
            Err(request) => self.serve_here(request),
        }
    }

    fn serve_here(&self, request: Request) {
        let record = self.fetch(&request.key, request.now);
        request.answer(record, self);
    }

    /// The item of a key. Waits for the device.
    pub(crate) fn fetch(&self, key: &[u8], now: u64) -> Option<Record> {
        for _ in 0..TRIES_MAX {
            match self.look(key, now) {
                Looked::Answer(record) => return record,
                Looked::Again => {}
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
        if let Some(flash) = &self.memory.flash
            && flash.has_read(result, &self.counters)
        {
            flash.fail(&self.memory.index, &self.counters);
        }
    }

    /// Looks where the item of a key is.
    fn look(&self, key: &[u8], now: u64) -> Looked {
        let at = match self.memory.get(key, now, |hit| Record::of(&hit.item)) {
            Ok(found) => return Looked::Answer(found),
            Err(at) => at,
        };
        let Some(flash) = &self.memory.flash else { return Looked::Answer(None) };
        match flash.log.locate(at.place, at.length.bytes_max()) {
            Located::There(read) => Looked::Read(at, read),
            Located::Here(record) => match self.arrived(key, at, record, now) {
                Arrived::Answer(record) => Looked::Answer(record),
                Arrived::Changed => Looked::Again,
            },
        }
    }

    /// The body of a reader.
    fn serve_reads(&self) {
        let Some(flash) = &self.memory.flash else { return };
        let mut flight: Option<Flight> = None;
        loop {
            let seen = self.reads.generation();
            let requests = match &flight {
                Some(flight) if !flight.pending.is_empty() => Vec::new(),
                _ => match self.reads.next(1) {
                    Next::Serve(requests) => requests,
                    Next::End => return,
                    Next::Sleep => {
                        self.reads.sleep(seen);
                        continue;
                    }
                },
            };
            if flight.is_none() {
                match flash.log.queue(TRANSFERS_MAX as u32) {
                    Ok(mut queue) => {
                        let watch = queue.watch();
                        if let Ok(Some(watch)) = watch {
                            let mut new = Flight::new(queue, flash.piece_bytes_max());
                            requests.into_iter().for_each(|request| self.begin(&mut new, request));
                            return self.serve_watched(new, &**self.watch.get_or_init(|| watch));
                        }
                        // Plain calls would read the pieces one after the other.
                        flight = Some(Flight::new(queue, flash.log.transfer_bytes_max()));
                    }
                    Err(error) => self.note(&Err(error)),
                }
            }
            let Some(flight) = &mut flight else {
                requests.into_iter().for_each(|request| self.serve_here(request));
                continue;
            };
            requests.into_iter().for_each(|request| self.begin(flight, request));
            flight.submit();
            if flight.refused.is_empty() {
                flight.queue.wait(&mut flight.done, WAIT);
            }
            for pending in flight.ended() {
                self.end(flight, pending);
            }
        }
    }

    /// The body of the only reader of a queue that can be watched.
    fn serve_watched(&self, mut flight: Flight, watch: &dyn Watch) {
        loop {
            let mut idles = true;
            // Long items are taken one by one: so what is read at once stays within its bytes.
            while flight.has_room()
                && let Some(request) = self.reads.take(1).pop()
            {
                self.begin(&mut flight, request);
                idles = false;
            }
            flight.submit();
            flight.queue.poll(&mut flight.done);
            for pending in flight.ended() {
                self.end(&mut flight, pending);
                idles = false;
            }
            if !idles {
                continue;
            }
            if flight.pending.is_empty() && self.reads.is_over() {
                return;
            }
            self.sleeps.store(true, Ordering::SeqCst);
            // A request that came before is seen here; the sender of a later one wakes.
            if self.reads.is_empty() || !flight.has_room() {
                watch.wait(Some(WAIT));
            }
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }

    fn begin(&self, flight: &mut Flight, mut request: Request) {
        while request.tries < TRIES_MAX {
            match self.look(&request.key, request.now) {
                Looked::Answer(record) => return request.answer(record, self),
                Looked::Again => request.tries += 1,
                Looked::Read(at, read) => return flight.begin(request, at, read),
            }
        }
        request.answer(None, self);
    }

    fn end(&self, flight: &mut Flight, pending: Pending) {
        let Pending { mut request, at, read, parts, counts, result, .. } = pending;
        self.note(&result);
        let bytes = result.is_ok().then(|| joined(&read.pieces, parts, &counts));
        let log = self.memory.flash.as_ref().map(|flash| &flash.log);
        let record = bytes.and_then(|bytes| log?.finish(&read, bytes));
        match self.arrived(&request.key, at, record, request.now) {
            Arrived::Answer(record) => request.answer(record, self),
            Arrived::Changed => {
                request.tries += 1;
                self.begin(flight, request);
            }
        }
    }
}

/// What a look-up asks for.
enum Looked {
    Answer(Option<Record>),
    /// The item has moved meanwhile.
    Again,
    Read(OnFlash, Read),
}

/// The bytes of an item, of pieces and of what their transfers have brought.
fn joined(pieces: &[Piece], mut parts: Vec<Option<Buffer>>, counts: &[usize]) -> RecordBytes {
    if let ([Piece::There(extent)], 1) = (pieces, parts.len())
        && let Some(buffer) = parts.pop().flatten()
    {
        return RecordBytes::Buffer(buffer, extent.skip);
    }
    let mut all = Vec::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
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
    RecordBytes::Joined(all)
}

impl Flight {
    fn new(queue: Box<dyn Queue>, transfer_bytes_max: usize) -> Flight {
        Flight {
            queue,
            transfer_bytes_max,
            pending: HashMap::new(),
            next_pending: 0,
            bytes: 0,
            waiting: VecDeque::new(),
            in_flight: HashMap::new(),
            refused: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Whether another item may be read at the same time.
    fn has_room(&self) -> bool {
        self.pending.len() < READ_DEPTH && self.bytes < READ_BYTES
    }

    fn begin(&mut self, request: Request, at: OnFlash, read: Read) {
        let number = self.next_pending;
        self.next_pending += 1;
        let (mut parts, mut counts) = (Vec::new(), Vec::new());
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
                self.waiting.push_back((number, parts.len(), op, Buffer::new(bytes)));
                parts.push(None);
            }
        }
        let left = parts.len();
        self.bytes += read.bytes();
        self.pending.insert(number, Pending { request, at, read, parts, counts, left, result: Ok(()) });
    }

    /// Submits what waits.
    fn submit(&mut self) {
        while self.in_flight.len() < TRANSFERS_MAX
            && let Some((number, part, op, buffer)) = self.waiting.pop_front()
        {
            match self.queue.submit(op, buffer) {
                Ok(ticket) => _ = self.in_flight.insert(ticket, (number, part)),
                Err((buffer, error)) => self.refused.push((number, part, buffer, error)),
            }
        }
    }

    /// Items that are read, or have failed.
    fn ended(&mut self) -> Vec<Pending> {
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

    /// One part of an item has ended; the item, if it was the last.
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

impl<T> From<Result<Option<T>, OnFlash>> for Lookup<T> {
    fn from(found: Result<Option<T>, OnFlash>) -> Lookup<T> {
        match found {
            Ok(Some(made)) => Lookup::Hit(made),
            Ok(None) => Lookup::Miss,
            Err(_) => Lookup::OnFlash,
        }
    }
}
