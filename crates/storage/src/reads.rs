//! Reads that are submitted now and complete later: many in flight from one thread.
//!
//! ```text
//!   caller ── ReadQueue::submit ──> Reader::submit(ReadRequest)
//!                  ^                     │  directory: a ring of the kernel, or threads     pump.rs, service.rs
//!                  │                     │  raw disk:  a queue of the device, or threads
//!             poll, wait                 │  simulator: one simulated thread for each read
//!                  │                     │  others:    at once, on the caller's thread
//!            finished reads <── ReadCompletion::complete, on the thread that has the answer
//! ```
//!
//! 1. A caller makes a [`ReadQueue`] over an [`Event`] and submits reads to it, of any files on any volumes. The queue
//!    owns each buffer until its read is finished. At its depth, the queue is busy and gives the buffer back.
//! 2. The queue hands each read to its file as a [`ReadRequest`]: offset, buffer, and a [`ReadCompletion`]. The reader
//!    answers when it can, on whichever thread has the answer.
//! 3. An answer puts the read among the finished ones and notifies the event. The caller collects with
//!    [`ReadQueue::poll`], or waits.
//!
//! A caller may have several queues, or wait for other things too. Then it waits for the event itself: it reads the
//! generation, polls, and waits for another generation. A caller with wakers or an event loop of its own makes
//! [`ReadRequest`]s without a queue.
//!
//! **Invariants.** A read completes exactly once: `complete` consumes the completion, and a completion that is dropped
//! completes with an error. A queue has at most `depth` reads submitted and not collected.
//!
//! **Threads.** A queue is used by one thread at a time. A reader is used by any thread. Answers come on any thread,
//! with no lock held. A volume that needs a thread has one of its own for all of its reads. The thread begins with the
//! first submitted read. It ends when the last handle of the volume is dropped and the last read has completed. While
//! nothing is in flight, it sleeps without a timeout.
//!
//! **Failure.** An error belongs to its own read; the buffer's contents are undefined then. If a volume can start no
//! thread, or [`WAITING_READS_MAX`] reads wait in it, `submit` reads on the caller's thread.
//!
//! **Leaving.** A reader may be dropped with reads in flight: they keep its file, and complete. So may a volume. A
//! dropped queue waits for nothing: its reads still complete, and their buffers are freed then. No buffer is freed
//! while the kernel or a device has it.
//!
//! **Cost.** A read passes through two other threads' hands at most: the volume's thread, and the caller's again. For a
//! single read, [`Reader::read_at`] is quicker. With many in flight, the volume's thread gives the kernel all new reads
//! with one call.
//!
//! # For those who implement [`Reader::submit`]
//! Take the request apart, keep its completion with its buffer, return, and complete it later without holding a lock.
//! Over a network, the completion waits in the table of open requests. The thread that receives an answer completes it.
//! A lost connection drops the table, which completes all with an error.
//!
//! **Rejected:** a queue for each volume with a wait of its own. A merge that reads from two disks and a node would
//! have to wait for three things at once. So would a set of disks that is one volume. **Rejected:** the caller's thread
//! waits in the kernel for the ring. It would save a switch of threads for a single read. But neither a new request of
//! another thread nor an answer from another volume would end that wait. **Rejected:** futures. A merge has no
//! executor, and a future is twenty lines over a [`ReadRequest`].

mod pump;
mod service;

pub use pump::{Pump, Source};
pub use service::{QueuedRead, ReadService, Served};

use crate::read_request::ReadRequest;
use crate::{Reader, Result};
use situ_base::{Event, lock};
use std::fmt;
use std::sync::{Arc, Mutex};

/// Reads that may wait in one volume for their turn; beyond, `submit` reads on the caller's thread.
pub(crate) const WAITING_READS_MAX: usize = 4096;

/// A read that is finished: what was submitted comes back to its owner.
#[derive(Debug)]
pub struct FinishedRead {
    /// The caller's tag of the read.
    pub tag: u64,
    /// First byte in the file.
    pub offset: u64,
    /// The buffer that was submitted. After a failed read, its contents are undefined, and it may be empty.
    pub buffer: Vec<u8>,
    /// Success if all of the buffer was filled, or the error.
    pub result: Result<()>,
}

/// The state that a queue and its reads share.
struct Landed {
    reads: Mutex<Vec<FinishedRead>>,
    event: Arc<dyn Event>,
}

/// Reads in flight of one caller, of any files on any volumes.
///
/// The queue owns each buffer until the read is finished, and gives it back with the outcome, once. Reads finish in any
/// order. At its depth, the queue is busy. Each finished read notifies the event. A caller with several things to wait
/// for reads the event's generation, polls, and waits for another generation.
///
/// One thread at a time uses a queue. A dropped queue waits for nothing: its reads complete unseen. Files and volumes
/// may be dropped with reads in flight.
///
/// ```
/// use situ_base::Env;
/// use situ_storage::{DirectoryVolume, FileName, ReadQueue, Volume};
///
/// # fn main() -> situ_storage::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let volume = DirectoryVolume::open(directory.path())?;
/// volume.replace(FileName::Table(1), b"many reads in flight")?;
/// let file = volume.open(FileName::Table(1))?;
/// let mut queue = ReadQueue::new(Env::system().executor.event(), 64);
/// for (tag, offset) in [(1, 0), (2, 5), (3, 14)] {
///     queue.submit(&*file, tag, offset, vec![0; 4]).expect("there are places for 64");
/// }
/// let mut done = Vec::new();
/// while queue.wait(&mut done) > 0 {}
/// done.sort_by_key(|read| read.tag);
/// assert!(done.iter().all(|read| read.result.is_ok()));
/// assert_eq!(done[1].buffer, b"read");
/// # Ok(())
/// # }
/// ```
pub struct ReadQueue {
    landed: Arc<Landed>,
    depth: usize,
    in_flight: usize,
}

impl ReadQueue {
    /// Creates a queue for at most `depth` reads, one at least, that notifies `event` of each finished read. The event
    /// may have other uses.
    pub fn new(event: Arc<dyn Event>, depth: usize) -> ReadQueue {
        let landed = Arc::new(Landed { reads: Mutex::default(), event });
        ReadQueue { landed, depth: depth.max(1), in_flight: 0 }
    }

    /// Returns the number of reads that were submitted and not collected.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Submits a read that fills `buffer` from `offset` of a file. The caller holds no lock: some files are read here
    /// and now.
    ///
    /// # Errors
    /// The queue is busy: `depth` reads are submitted and not collected. The buffer comes back.
    pub fn submit(&mut self, file: &dyn Reader, tag: u64, offset: u64, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.in_flight == self.depth {
            return Err(buffer);
        }
        self.in_flight += 1;
        let landed = Arc::clone(&self.landed);
        file.submit(ReadRequest::new(offset, buffer, move |buffer, result| {
            lock(&landed.reads).push(FinishedRead { tag, offset, buffer, result });
            landed.event.notify();
        }));
        Ok(())
    }

    /// Collects finished reads into `done`, in the order in which they finished; returns how many.
    pub fn poll(&mut self, done: &mut Vec<FinishedRead>) -> usize {
        let mut landed = std::mem::take(&mut *lock(&self.landed.reads));
        let count = landed.len();
        assert!(count <= self.in_flight, "{count} reads finished of {} in flight", self.in_flight);
        self.in_flight -= count;
        done.append(&mut landed);
        count
    }

    /// Like [`poll`](ReadQueue::poll), but waits for the first one. Returns 0 if nothing is in flight.
    pub fn wait(&mut self, done: &mut Vec<FinishedRead>) -> usize {
        loop {
            let seen = self.landed.event.generation();
            let count = self.poll(done);
            if count > 0 || self.in_flight == 0 {
                return count;
            }
            self.landed.event.wait(seen, None);
        }
    }
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueue({} of {} in flight)", self.in_flight, self.depth)
    }
}

#[cfg(test)]
mod tests;
