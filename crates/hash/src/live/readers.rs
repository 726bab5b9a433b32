//! Reads of many keys at once, and reads that do not wait.
//!
//! * [`Core::multi_get`] has the buckets of all keys in flight together. A key that its bucket does not decide is read
//!   again on its own.
//! * A few threads serve reads whose callers do not wait. Each takes what waits, up to as many reads as a lane has in
//!   flight, reads it as one batch, and answers each.
//! * If the device has lately answered sooner than another thread would, the caller's thread reads.
//!
//! **Threads.** Readers start when they are first needed and end when the store closes.
//! **Failure.** Each request is answered once, with an error if need be. A panic of a callback is caught.

use crate::disk::io::{LANE_DEPTH, QUICK_NS};
use crate::format::address::hash_of;
use crate::live::core::Core;
use crate::live::read::{InBucket, Located};
use crate::live::read_queue::{OnValue, Request};
use crate::{Error, Result};
use situ_base::Queue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The number of reads of which one is tried on the caller's thread, on a device that is not quick. So a device that
/// becomes quick is noticed.
const TRY_EVERY: u64 = 512;

fn answer(request: Request, value: Result<Option<Vec<u8>>>) {
    // The program's bug must not end a thread of the store.
    _ = catch_unwind(AssertUnwindSafe(|| (request.done)(value)));
}

impl Core {
    /// Reads as one batch, and answers each.
    fn read_and_answer(&self, requests: Vec<Request>) {
        let keys: Vec<&[u8]> = requests.iter().map(|request| &*request.key).collect();
        let found = catch_unwind(AssertUnwindSafe(|| self.multi_get(&keys)));
        let found = found.unwrap_or_else(|_| Err(Error::Invalid("a bug: a read has panicked".to_owned())));
        match found {
            Ok(values) => requests.into_iter().zip(values).for_each(|(request, value)| answer(request, Ok(value))),
            // A read failed. Each request gets the outcome of its own read.
            Err(_) => requests.into_iter().for_each(|request| {
                let value = self.get(&request.key);
                answer(request, value);
            }),
        }
    }

    /// Returns true if the device has lately answered as soon as another thread would, or is to be tried.
    pub(crate) fn is_quick(&self) -> bool {
        self.io.read_ns.load(Ordering::Relaxed) < QUICK_NS
            || self.counters.slow_gets.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY)
    }

    /// Reads a key and tells `done`, from this thread or another.
    pub(crate) fn get_async(self: &Arc<Self>, key: &[u8], done: OnValue) {
        let body = || {
            let core = Arc::clone(self);
            move |queue: &Queue<Request>| queue.serve_batches(LANE_DEPTH, |requests| core.read_and_answer(requests))
        };
        if let Err(requests) = self.readers.submit(Request { key: key.into(), done }, body) {
            self.read_and_answer(requests);
        }
    }

    /// Returns the values of keys, in their order.
    pub(crate) fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let now_ms = self.now_ms();
        let mut values: Vec<Option<Option<Vec<u8>>>> = Vec::with_capacity(keys.len());
        let mut asked: Vec<(usize, u64)> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let hash = hash_of(key, self.seed);
            let known = self.get_pending(hash, key, now_ms)?;
            if known.is_none() {
                asked.push((at, hash));
            }
            values.push(known);
        }
        self.counters.gets.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let seen = self.seen();
        let buckets: Vec<u64> = asked.iter().map(|(_, hash)| seen.state.bucket_of(*hash)).collect();
        self.io.read_each(&buckets, |place, block| {
            let (at, hash) = asked[place];
            // A bucket that looks damaged may be on its way to the device: it is read again below.
            values[at] = match self.find_in(buckets[place], block, keys[at], now_ms) {
                Ok(InBucket::Known(None)) => Some(None),
                Ok(InBucket::Known(Some(Located::Here(value)))) => Some(Some(value)),
                Ok(InBucket::Known(Some(Located::There(_)))) => None,
                Ok(InBucket::Absent) => self.is_still(&seen, buckets[place], hash).then_some(None),
                Ok(InBucket::Marked(_)) | Err(_) => None,
            };
        })?;
        let rest = |(value, key): (Option<Option<Vec<u8>>>, &&[u8])| value.map_or_else(|| self.get(key), Ok);
        values.into_iter().zip(keys).map(rest).collect()
    }
}
