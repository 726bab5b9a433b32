//! Reads of many keys at once, and reads that do not wait.
//!
//! * [`Core::multi_get`] has the buckets of all keys in flight together. A key that its bucket does not decide is read again on its own.
//! * [`Readers`] are a few threads for reads whose callers do not wait. Each takes what waits, up to as many reads as a lane has in
//!   flight, reads it as one batch, and answers each.
//! * If the device has lately answered sooner than another thread would, the caller's thread reads.
//!
//! **Threads.** Readers start when they are first needed and end when the store closes.
//! **Failure.** Each request is answered once, with an error if need be. A panic of a callback is caught.

use crate::address::hash_of;
use crate::core::Core;
use crate::io::LANE_DEPTH;
use crate::read::InBucket;
use crate::{Error, Result};
use situ_device::{Env, Event, JobHandle, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Called once with the value of a key, or none. It does not wait.
pub type OnValue = Box<dyn FnOnce(Result<Option<Vec<u8>>>) + Send>;

/// Threads that read.
const THREADS_MAX: usize = 4;
/// Reads that may wait for a thread; beyond, the caller's thread reads.
const WAITING_MAX: usize = 4096;
/// A device that answers within this time is read on the caller's thread: about what two switches of threads cost.
const QUICK_NS: u64 = 20_000;

struct Request {
    key: Box<[u8]>,
    done: OnValue,
}

/// See the module's documentation.
pub(crate) struct Readers {
    waiting: Mutex<Waiting>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    threads: Vec<Box<dyn JobHandle>>,
    idle: usize,
    closed: bool,
}

impl Readers {
    pub(crate) fn new(env: &Env) -> Readers {
        Readers { waiting: Mutex::default(), event: env.executor.event() }
    }

    /// Lets a thread read. The request comes back if too many wait.
    fn push(&self, core: &Arc<Core>, request: Request) -> Result<(), Request> {
        let starts = {
            let mut waiting = lock(&self.waiting);
            if waiting.closed || waiting.requests.len() >= WAITING_MAX {
                return Err(request);
            }
            waiting.requests.push_back(request);
            waiting.idle == 0 && waiting.threads.len() < THREADS_MAX
        };
        self.event.notify();
        if starts {
            self.start(core);
        }
        Ok(())
    }

    fn start(&self, core: &Arc<Core>) {
        let body = Arc::clone(core);
        let spawned = core.env.executor.spawn("hash-read", Box::new(move || body.serve_reads()));
        match spawned {
            Ok(thread) => lock(&self.waiting).threads.push(thread),
            // Without a thread the reads that wait are done here.
            Err(_) if lock(&self.waiting).threads.is_empty() => while self.serve_once(core) {},
            Err(_) => {}
        }
    }

    /// Reads what waits, as one batch. False if nothing did.
    fn serve_once(&self, core: &Core) -> bool {
        let requests: Vec<Request> = {
            let mut waiting = lock(&self.waiting);
            let count = waiting.requests.len().min(LANE_DEPTH);
            waiting.requests.drain(..count).collect()
        };
        if requests.is_empty() {
            return false;
        }
        let keys: Vec<&[u8]> = requests.iter().map(|request| &*request.key).collect();
        let found = catch_unwind(AssertUnwindSafe(|| core.multi_get(&keys)));
        let found = found.unwrap_or_else(|_| Err(Error::Invalid("a bug: a read has panicked".to_owned())));
        match found {
            Ok(values) => requests.into_iter().zip(values).for_each(|(request, value)| answer(request, Ok(value))),
            // One of them failed. Each is told what became of its own.
            Err(_) => requests.into_iter().for_each(|request| {
                let value = core.get(&request.key);
                answer(request, value);
            }),
        }
        true
    }

    /// Ends the threads, when all that waits has been answered.
    pub(crate) fn close(&self) -> Vec<Box<dyn JobHandle>> {
        let threads = {
            let mut waiting = lock(&self.waiting);
            waiting.closed = true;
            std::mem::take(&mut waiting.threads)
        };
        self.event.notify();
        threads
    }
}

fn answer(request: Request, value: Result<Option<Vec<u8>>>) {
    // The program's bug must not end a thread of the store.
    _ = catch_unwind(AssertUnwindSafe(|| (request.done)(value)));
}

impl Core {
    /// The body of a reader.
    fn serve_reads(&self) {
        let readers = &self.readers;
        loop {
            let seen = readers.event.generation();
            while readers.serve_once(self) {}
            {
                let mut waiting = lock(&readers.waiting);
                if !waiting.requests.is_empty() {
                    continue;
                }
                if waiting.closed {
                    return;
                }
                waiting.idle += 1;
            }
            readers.event.wait(seen, None);
            lock(&readers.waiting).idle -= 1;
        }
    }

    /// Whether the device has lately answered as soon as another thread would.
    pub(crate) fn is_quick(&self) -> bool {
        self.io.read_ns.load(Ordering::Relaxed) < QUICK_NS
    }

    /// Reads a key and tells `done`, from this thread or another.
    pub(crate) fn get_async(self: &Arc<Self>, key: &[u8], done: OnValue) {
        let request = Request { key: key.into(), done };
        if let Err(request) = self.readers.push(self, request) {
            let value = self.get(key);
            answer(request, value);
        }
    }

    /// The values of keys, in their order.
    pub(crate) fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let now_ms = self.now_ms();
        let mut values: Vec<Option<Option<Vec<u8>>>> = Vec::with_capacity(keys.len());
        let mut asked: Vec<(usize, u64)> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let hash = hash_of(key, self.seed);
            let known = self.get_pending(hash, key, now_ms);
            if known.is_none() {
                asked.push((at, hash));
            }
            values.push(known);
        }
        self.counters.gets.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let state = self.state();
        let buckets: Vec<u64> = asked.iter().map(|(_, hash)| state.bucket_of(*hash)).collect();
        self.io.read_each(&buckets, |place, block| {
            let (at, hash) = asked[place];
            // A bucket that looks damaged may be on its way to the device: it is read again below.
            values[at] = match self.find_in(buckets[place], block, keys[at], now_ms) {
                Ok(InBucket::Known(value)) => Some(value),
                Ok(InBucket::Absent) => self.is_still(&state, buckets[place], hash).then_some(None),
                Ok(InBucket::Marked(_)) | Err(_) => None,
            };
        })?;
        let rest = |(value, key): (Option<Option<Vec<u8>>>, &&[u8])| value.map_or_else(|| self.get(key), Ok);
        values.into_iter().zip(keys).map(rest).collect()
    }
}
