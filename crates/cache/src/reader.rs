//! Reads of flash by a thread of the cache's owner.
//!
//! 1. Requests wait in a list, until the thread advances.
//! 2. Then reads that have ended are answered, and others begin, as far as the [flight](crate::reads) has room. Long
//!    items go to the readers of the core.
//! 3. The thread sleeps by the queue's descriptor.
//!
//! **Invariants.** Where the item lies is looked up when the read begins, so an answer is at least as new as the
//! question. A read that can begin never waits for the descriptor: [`advance`](FlashReader::advance) says that there is
//! more to do.
//! **Bounded.** One advance begins and answers a few hundred reads at most. The caller bounds the requests that wait.
//! **Failure.** A read that fails counts as absent. The flusher takes a device that keeps failing out of service.
//! Operations that the kernel cannot take at some moment are offered again with the next advance.

use crate::core::Core;
use crate::reads::{Flight, OnItem, Request, TRANSFERS_MAX};
use situ_device::Watch;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Longer items are read by a thread of the cache: a [`FlashReader`]'s thread has other things to do than to check and
/// to copy them.
const HERE_BYTES_MAX: usize = 64 << 10;
/// The bytes in flight with which a [`FlashReader`] begins no other item. There may be one reader for each core.
const FLIGHT_BYTES_MAX: usize = 1 << 20;
/// The time for which a wait lasts before the reader offers the kernel again what it could not take.
const WAIT: Duration = Duration::from_millis(100);

/// A reader of flash for one thread of the cache's owner, which has other things to do meanwhile: an event loop. Reads
/// of short items stay on that thread.
///
/// The thread says what it wants ([`get`](FlashReader::get)), and then [advances](FlashReader::advance). It advances
/// again when the [descriptor](FlashReader::descriptor) has become readable, and when there was more to do. While the
/// reader [is busy](FlashReader::is_busy), it advances every 100 ms at least: the kernel can be out of memory for a
/// moment, and takes a read then.
///
/// A reader is a handle of its cache. Dropped with reads in flight, it waits for the device, up to half a minute.
///
/// **Rejected**: handing all reads of a turn to the device together. It saves system calls, but the device idles
/// meanwhile: with 64 clients on two cores it was 6 to 11% slower in four of six measurements.
pub struct FlashReader {
    flight: Flight,
    waiting: VecDeque<Request>,
    watch: Arc<dyn Watch>,
    core: Arc<Core>,
    /// Keeps the cache's threads alive.
    _cache: Arc<dyn Any + Send + Sync>,
}

impl FlashReader {
    /// Returns a reader that keeps `cache` alive. `None` where a read is a call that waits.
    pub(crate) fn new(core: &Arc<Core>, cache: Arc<dyn Any + Send + Sync>) -> io::Result<Option<FlashReader>> {
        let Some(flash) = &core.memory.flash else { return Ok(None) };
        let mut queue = flash.log.queue(TRANSFERS_MAX as u32)?;
        let Some(watch) = queue.watch()? else { return Ok(None) };
        let flight = Flight::new(queue, flash.piece_bytes_max(), FLIGHT_BYTES_MAX, HERE_BYTES_MAX);
        Ok(Some(FlashReader { flight, waiting: VecDeque::new(), watch, core: Arc::clone(core), _cache: cache }))
    }

    /// Finds an item as [`Cache::get_later`](crate::Cache::get_later) does. The reader begins when it advances next. It
    /// answers short items while it advances; a thread of the cache answers long ones.
    pub fn get(&mut self, key: &[u8], now: u64, done: OnItem) {
        self.waiting.push_back(Request { key: key.into(), now, tries: 0, done });
    }

    /// Begins reads, and answers those that have ended. True if there is more to do at once. Waits for nothing, and
    /// answers a few hundred reads at most; costs a few loads if there is nothing to do. After the
    /// [stop](crate::Cache::stop), what has not begun counts as absent.
    pub fn advance(&mut self) -> bool {
        if !self.is_busy() {
            return false;
        }
        let FlashReader { core, flight, waiting, .. } = self;
        if core.is_over() {
            waiting.drain(..).for_each(|request| core.answer(request, None));
        }
        core.advance(flight, || waiting.pop_front());
        flight.has_more_to_submit() || (!waiting.is_empty() && flight.has_room())
    }

    /// Returns true if reads have not been answered, apart from long ones.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || !self.flight.pending.is_empty()
    }

    /// Returns a descriptor that becomes readable, by edges, when there may be something to answer. `None`: the device
    /// has no such descriptor.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.descriptor()
    }

    /// Waits until there may be something to answer, if the device has something to do.
    pub fn wait(&self) {
        if self.flight.is_in_flight() {
            self.watch.wait(Some(WAIT));
        }
    }
}

impl fmt::Debug for FlashReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlashReader")
            .field("waiting", &self.waiting.len())
            .field("pending", &self.flight.pending.len())
            .finish_non_exhaustive()
    }
}
