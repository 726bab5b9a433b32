//! A recorded trace as a workload: `situ bench --replay`.
//!
//! 1. The requests are shared out among the threads by their keys. So the requests of a key keep their order.
//! 2. Unless the store is an existing one, it gets what the trace finds before the clock starts: a value for each key
//!    that a request hits before any stores it.
//! 3. Each thread issues its requests: each at its recorded time, or as fast as it can ([`Pace`]).
//!
//! A get is a get, a set is a put, and a delete is a delete. Any other command reads, and then writes if it changed its
//! item when it was recorded. Values are generated, of the recorded sizes.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use situ_trace::{Operation, Outcome, Request, Trace};

use crate::error::{Error, Result};

/// The times at which a replay issues requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Each at its recorded time, or as soon after it as possible. Latency counts from that time.
    #[default]
    Recorded,
    /// Each when its thread has done the one before.
    Full,
}

/// The effect of a request on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
    ReadThenWrite,
    Delete,
}

/// Returns the effect of a recorded request.
pub(crate) fn effect(request: &Request<'_>) -> Effect {
    match request.operation {
        Operation::Get => Effect::Read,
        Operation::Set => Effect::Write,
        Operation::Delete => Effect::Delete,
        _ if request.outcome == Outcome::Hit => Effect::ReadThenWrite,
        _ => Effect::Read,
    }
}

/// A trace that is replayed.
pub(crate) struct Replay {
    trace: Trace,
    requests: usize,
    pace: Pace,
}

impl Replay {
    /// Reads a trace, of which `most` requests are replayed.
    pub(crate) fn open(path: &Path, pace: Pace, most: Option<u64>) -> Result<Replay> {
        let trace = Trace::open(path).map_err(|source| Error::Trace { path: path.to_owned(), source })?;
        let requests = trace.len().min(usize::try_from(most.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
        if requests == 0 {
            return Err(Error::Options(format!("{} has no requests to replay", path.display())));
        }
        Ok(Replay { trace, requests, pace })
    }

    fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        self.trace.requests().take(self.requests)
    }

    /// Returns the size of the longest value.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.requests().map(|request| request.value_bytes as usize).max().unwrap_or(0)
    }

    /// Calls `each` with the keys, and sizes of values, that the first request of a key finds.
    pub(crate) fn found_first(&self, mut each: impl FnMut(&[u8], usize) -> Result<()>) -> Result<()> {
        let mut seen = HashSet::new();
        let mut key = Vec::new();
        for request in self.requests() {
            let stores = matches!(request.operation, Operation::Set | Operation::Add);
            if seen.insert(request.key) && request.outcome == Outcome::Hit && !stores {
                self.trace.replayed_key(&request, &mut key);
                each(&key, request.value_bytes as usize)?;
            }
        }
        Ok(())
    }

    /// Shares the requests out among `threads` threads.
    pub(crate) fn share(&self, threads: u32) -> Vec<Share<'_>> {
        let mut numbers: Vec<Vec<u32>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, request) in self.requests().enumerate() {
            let hash = request
                .key
                .iter()
                .fold(0u64, |hash, byte| (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // A trace has less than 4 GiB.
            numbers[((hash >> 32) % u64::from(threads)) as usize].push(number as u32);
        }
        let share = |numbers| Share { trace: &self.trace, pace: self.pace, numbers, next: 0 };
        numbers.into_iter().map(share).collect()
    }
}

/// The requests of one thread.
pub(crate) struct Share<'a> {
    trace: &'a Trace,
    pace: Pace,
    numbers: Vec<u32>,
    next: usize,
}

impl Share<'_> {
    /// Returns the number of all requests.
    pub(crate) fn len(&self) -> u64 {
        self.numbers.len() as u64
    }

    fn request(&self) -> Option<Request<'_>> {
        self.trace.request(*self.numbers.get(self.next)? as usize)
    }

    /// Returns the time of the next request, if requests keep their times.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.request().filter(|_| self.pace == Pace::Recorded).map(|request| request.time)
    }

    /// Puts the key of the next request into `key`, and goes on to the one behind it. Returns the effect, and the size
    /// of the value. `None` behind the last one.
    pub(crate) fn take(&mut self, key: &mut Vec<u8>) -> Option<(Effect, usize)> {
        let request = self.request()?;
        self.trace.replayed_key(&request, key);
        let taken = (effect(&request), request.value_bytes as usize);
        self.next += 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
