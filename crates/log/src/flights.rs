//! The writes of the log that one thread keeps in flight.
//!
//! [`Log::commit`] writes what waits, and returns when it is on the disk. So a thread that serves the log alone has one
//! write in flight. [`Flights`] begins a write and goes on. Each write that lands moves the watermarks, as one of
//! `commit` does, and wakes the threads that wait for them.
//!
//! Two things are left to `commit`: the sync of a file, and writes to a file without a [queue](PageFile::queue). The
//! thread calls `commit` when nothing of its own is in flight. It would wait for itself otherwise.
//!
//! **Rotation.** A queue belongs to a file. The first write to the next file begins when those to the file before have
//! landed.

use crate::chunk::LogFile;
use crate::log::Log;
use crate::options::Durability;
use crate::state::LogFlight;
use situ_device::Watch;
use situ_storage::{PageQueue, Result};
use std::sync::Arc;

#[cfg(doc)]
use situ_storage::PageFile;

/// The outcome of the beginning of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// The write is in flight.
    InFlight,
    /// No page waits.
    Nothing,
    /// As many writes are in flight as may be, those to the file before have to land first, or only
    /// [`Log::commit`] can do it.
    Later,
}

/// A write in flight, and its owner's note on it.
struct Flight<N> {
    number: u64,
    flight: LogFlight,
    note: N,
}

/// The writes of one thread that are in flight together, each with a note of its owner.
///
/// Dropping it waits for them.
pub struct Flights<N> {
    log: Arc<Log>,
    /// The file of the queue, and the queue if the file has one.
    queue: Option<(u64, Option<Box<dyn PageQueue>>)>,
    in_flight: Vec<Flight<N>>,
    ended: Vec<(u64, Result<()>)>,
}

impl Log {
    /// Returns the flights of one thread, of which there are none yet.
    pub fn flights<N>(self: &Arc<Log>) -> Flights<N> {
        Flights { log: Arc::clone(self), queue: None, in_flight: Vec::new(), ended: Vec::new() }
    }
}

impl<N> Flights<N> {
    /// Returns the number of writes in flight.
    pub fn count(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns true if the pages that wait fill a write.
    pub fn has_full_write(&self) -> bool {
        self.log.lock().has_full_chunk()
    }

    /// Begins to write the first pages that wait, and does not wait for the disk. With [`Durability::Synced`], they are
    /// durable when the write has landed. `note` gets the number of records that begin in them, and the durability.
    pub fn begin(
        &mut self,
        durability: impl FnOnce() -> Durability,
        note: impl FnOnce(usize, Durability) -> N,
    ) -> Submitted {
        let Some(file) = self.log.lock().next_file() else { return Submitted::Nothing };
        if self.queue.as_ref().is_none_or(|(number, _)| *number != file.number) && !self.open(&file) {
            return Submitted::Later;
        }
        let Some((number, Some(queue))) = &mut self.queue else { return Submitted::Later };
        let durability = durability();
        let mut state = self.log.lock();
        // Another thread may have written it.
        if state.next_file().is_none_or(|file| file.number != *number) || !state.may_submit(durability) {
            return Submitted::Later;
        }
        let mut flight = state.take(durability == Durability::Synced);
        drop(state);
        let chunk = &mut flight.chunk;
        chunk.seal(flight.durable_before);
        let note = note(chunk.records, durability);
        let number = queue.begin(u64::from(chunk.first_page), chunk.bytes(), flight.durable);
        self.in_flight.push(Flight { number, flight, note });
        Submitted::InFlight
    }

    /// Opens the queue of a file. Returns false if it cannot be opened yet.
    fn open(&mut self, file: &LogFile) -> bool {
        if !self.in_flight.is_empty() {
            return false;
        }
        // The next one may be the same queue.
        self.queue = None;
        self.queue = Some((file.number, file.pages.queue()));
        true
    }

    /// Gives the queue back; nothing may be in flight. A queue that is kept keeps the pages of its file, also when the
    /// file is removed.
    pub fn rest(&mut self) {
        assert!(self.in_flight.is_empty(), "{} writes are in flight", self.in_flight.len());
        if matches!(self.queue, Some((_, Some(_)))) {
            self.queue = None;
        }
    }

    /// Returns true if the file that is written next has no queue, as far as is known: only calls write to it.
    pub fn has_no_queue(&self) -> bool {
        matches!(self.queue, Some((_, None)))
    }

    /// Returns the watch by which another thread ends a [`wait`](Flights::wait).
    pub fn watch(&self) -> Option<Arc<dyn Watch>> {
        let (_, queue) = self.queue.as_ref()?;
        Some(queue.as_ref()?.watch())
    }

    /// Waits until a write has landed, until `is_called`, or for a while. Returns the notes on those that have landed.
    /// A thread that makes `is_called` true wakes the [watch](Flights::watch) after that.
    ///
    /// A write that failed has [failed](Log::failed) the log.
    pub fn wait(&mut self, is_called: &dyn Fn() -> bool) -> Vec<N> {
        let Some((_, Some(queue))) = &mut self.queue else { return Vec::new() };
        queue.wait(&mut self.ended, is_called);
        let mut landed = Vec::with_capacity(self.ended.len());
        for (number, outcome) in self.ended.drain(..) {
            let index = self.in_flight.iter().position(|flight| flight.number == number);
            let index = index.expect("the queue ends what it was given, and once");
            let Flight { flight, note, .. } = self.in_flight.remove(index);
            self.log.land(flight, outcome);
            landed.push(note);
        }
        landed
    }
}

impl<N> Drop for Flights<N> {
    /// Waits for the writes in flight: other threads may wait for the positions that they bring. A thread that panics
    /// leaves that to the queue, and the positions never come.
    fn drop(&mut self) {
        while !self.in_flight.is_empty() && !std::thread::panicking() {
            self.wait(&|| false);
        }
    }
}
