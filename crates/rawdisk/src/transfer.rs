//! Moving bytes between memory and the device.
//!
//! # Algorithm
//!
//! A queue of a device belongs to one thread at a time. So each caller borrows one from a pool, submits, waits and
//! gives it back. There are at most [`QUEUES_MAX`] to a pool, and a caller that finds none waits for one. The first of
//! each pool is opened with the volume and the others when they are wanted. When the system refuses one, those that
//! there are do the work. A borrowed queue is always empty again when it goes back. Log writes have a pool that neither
//! bulk transfers nor reads borrow from. So log writes do not wait for a queue, however many of those there are. Frames
//! of the journal and flushes borrow from it, too, since a caller waits for each of them. A volume has one frame and
//! one flush under way at a time, which leaves the log all the others. Writers of long files keep a queue for as long
//! as they write, so that several pieces are in flight while the next one is filled. They get at most half of the pool,
//! and never the last queue. They work without if there is none.
//!
//! Reads that are submitted have a queue and a thread of their own (`reads.rs`).
//!
//! While the log is busy (a durable page write in flight, or one within the last [`LOG_BUSY_FOR`]), other writes go to
//! the device in pieces of 64 KiB instead of 1 MiB. A device finishes the operations that it has begun, and the log
//! waits behind them.
//!
//! **Threads.** A pool's lock is never held across a submit or a wait.
//! **Failure.** An error of one piece is the error of the whole; it is returned when nothing is in flight any more.

use super::layout::PAGE;
use super::log_queue::LogQueue;
use super::room::Extent;
use situ_base::lock;
use situ_base::{Env, Event};
use situ_device::{Buffer, Completion, Device, Geometry, Op, PAGE_BYTES, Queue};
use situ_storage::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Queues of one pool.
const QUEUES_MAX: usize = 16;
/// Operations in flight on one queue.
pub(super) const QUEUE_DEPTH: u32 = 4;
/// The usual piece of a long transfer.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// A piece while the log is busy; also the unit of the cache.
pub(super) const SMALL_PIECE_BYTES: usize = 64 << 10;
/// The log counts as busy for so long after its last durable write.
const LOG_BUSY_FOR: Duration = Duration::from_millis(1);
/// The length of one wait for a completion before the next begins.
const WAIT: Duration = Duration::from_secs(1);
/// The maximum bytes of a read that counts as a lookup; longer reads are scans and merges.
pub(super) const SHORT_READ_BYTES_MAX: usize = 16 << 10;
/// Page buffers that a queue keeps for what comes next.
const SPARE_BUFFERS_MAX: usize = 4;

/// A queue, and buffers that come back from it.
pub(super) struct QueueSlot {
    queue: Box<dyn Queue>,
    in_flight: usize,
    done: Vec<Completion>,
    spare: Vec<Buffer>,
}

impl QueueSlot {
    fn open(device: &dyn Device) -> io::Result<QueueSlot> {
        let queue = device.queue(QUEUE_DEPTH)?;
        Ok(QueueSlot { queue, in_flight: 0, done: Vec::new(), spare: Vec::new() })
    }

    /// Returns a buffer of exactly `bytes` bytes, in whole pages. Its contents are undefined.
    pub(super) fn buffer(&mut self, bytes: usize) -> Buffer {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        match self.spare.iter().position(|buffer| buffer.len() == bytes) {
            Some(index) => self.spare.swap_remove(index),
            None => Buffer::new(bytes),
        }
    }

    /// Keeps a buffer for [`QueueSlot::buffer`].
    pub(super) fn keep(&mut self, buffer: Buffer) {
        if self.spare.len() == SPARE_BUFFERS_MAX {
            self.spare.remove(0);
        }
        self.spare.push(buffer);
    }

    /// Submits an operation; first waits for others as long as the queue is full.
    pub(super) fn submit(&mut self, op: Op, buffer: Buffer, landed: &mut dyn FnMut(Op, Buffer)) -> io::Result<()> {
        let mut buffer = buffer;
        let mut outcome = Ok(());
        loop {
            if self.in_flight >= QUEUE_DEPTH as usize {
                outcome = outcome.and(self.reap(landed));
            }
            match self.queue.submit(op, buffer) {
                Ok(_) => {
                    self.in_flight += 1;
                    return outcome;
                }
                Err((back, error)) if error.kind() == io::ErrorKind::WouldBlock && self.in_flight > 0 => {
                    buffer = back;
                    outcome = outcome.and(self.reap(landed));
                }
                Err((_, error)) => return outcome.and(Err(error)),
            }
        }
    }

    /// Waits until something in flight is complete.
    fn reap(&mut self, landed: &mut dyn FnMut(Op, Buffer)) -> io::Result<()> {
        while self.in_flight > 0 && self.queue.wait(&mut self.done, WAIT) == 0 {}
        self.land(landed)
    }

    /// Takes what is complete. It also tells the queue that no thread is going to wait now: operations that the queue
    /// held back begin.
    pub(super) fn poll(&mut self, landed: &mut dyn FnMut(Op, Buffer)) -> io::Result<()> {
        if self.in_flight > 0 {
            self.queue.poll(&mut self.done);
        }
        self.land(landed)
    }

    fn land(&mut self, landed: &mut dyn FnMut(Op, Buffer)) -> io::Result<()> {
        let mut outcome = Ok(());
        self.in_flight -= self.done.len();
        for Completion { op, buffer, result, .. } in self.done.drain(..) {
            match result {
                Ok(()) => landed(op, buffer),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Waits until nothing is in flight.
    pub(super) fn drain(&mut self, landed: &mut dyn FnMut(Op, Buffer)) -> io::Result<()> {
        let mut outcome = Ok(());
        while self.in_flight > 0 {
            outcome = outcome.and(self.reap(landed));
        }
        outcome
    }

    /// Submits all and waits for all; what is in flight from before, too.
    pub(super) fn all(
        &mut self,
        requests: impl IntoIterator<Item = (Op, Buffer)>,
        landed: &mut dyn FnMut(Op, Buffer),
    ) -> io::Result<()> {
        let mut outcome = Ok(());
        for (op, buffer) in requests {
            outcome = self.submit(op, buffer, landed);
            if outcome.is_err() {
                break;
            }
        }
        let drained = self.drain(landed);
        outcome.and(drained)
    }
}

#[derive(Default)]
struct PoolState {
    idle: Vec<QueueSlot>,
    /// Queues that exist.
    open: usize,
    /// The number of these that are lent to writers that keep them.
    kept: usize,
    /// The reason why the system gave no further queue when one was asked for last.
    refused: Option<String>,
}

/// The queues for one purpose.
pub(super) struct Pool {
    state: Mutex<PoolState>,
    returned: Arc<dyn Event>,
}

impl Pool {
    fn new(env: &Env) -> Pool {
        Pool { state: Mutex::default(), returned: env.executor.event() }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    /// Opens the queue that a pool is never without.
    fn open_first(&self, device: &dyn Device) -> io::Result<()> {
        let slot = QueueSlot::open(device)?;
        let mut state = self.lock();
        state.open += 1;
        state.idle.push(slot);
        Ok(())
    }

    /// Returns an idle queue, or the right to open one. A caller that wants to keep it leaves one for the others.
    fn idle(&self, keep: bool) -> Option<Option<QueueSlot>> {
        let mut state = self.lock();
        if keep && state.kept >= QUEUES_MAX / 2 {
            return None;
        }
        let may_take = !keep || state.open - state.kept > 1;
        let found = match if may_take { state.idle.pop() } else { None } {
            Some(slot) => Some(Some(slot)),
            None if state.open < QUEUES_MAX => {
                state.open += 1;
                Some(None)
            }
            None => None,
        };
        state.kept += usize::from(keep && found.is_some());
        found
    }

    /// Uses the right to open a queue. Returns `None` if the system refuses: then the others have to do, and there are
    /// others. A refusal wakes no waiter, or the waiters would wake each other for as long as the system refuses.
    fn open(&self, device: &dyn Device, keep: bool) -> Option<QueueSlot> {
        let opened = QueueSlot::open(device);
        let mut state = self.lock();
        state.refused = opened.as_ref().err().map(ToString::to_string);
        if state.refused.is_some() {
            state.open -= 1;
            state.kept -= usize::from(keep);
            assert!(state.open > 0, "a pool without its first queue");
        }
        opened.ok()
    }

    fn borrow(&self, device: &dyn Device) -> QueueSlot {
        loop {
            let seen = self.returned.generation();
            let found = self.idle(false).and_then(|found| found.or_else(|| self.open(device, false)));
            match found {
                Some(slot) => return slot,
                None => self.returned.wait(seen, None),
            };
        }
    }

    fn give_back(&self, mut slot: QueueSlot, kept: bool) {
        assert_eq!(slot.in_flight, 0, "a queue with operations in flight");
        // Buffers that wait here for the next borrower have a few pages each. They are not the pieces of a file that is
        // done.
        slot.spare.retain(|buffer| buffer.len() <= SMALL_PIECE_BYTES);
        let mut state = self.lock();
        let was_empty = state.idle.is_empty();
        state.kept -= usize::from(kept);
        state.idle.push(slot);
        drop(state);
        if was_empty {
            self.returned.notify();
        }
    }
}

/// The device and its queues.
pub(super) struct Transfers {
    pub(super) device: Arc<dyn Device>,
    pub(super) env: Env,
    pub(super) geometry: Geometry,
    /// The name of the device in errors.
    pub(super) location: String,
    log: Pool,
    bulk: Pool,
    read: Pool,
    /// The queue of a thread that has several log writes in flight, while no thread has it.
    log_queue: Mutex<Option<LogQueue>>,
    log_in_flight: AtomicU64,
    log_last_nanos: AtomicU64,
    quickness: Quickness,
}

/// The estimate whether the device answers short reads about as soon as another thread would.
///
/// A count that goes up by one with each quick read and down by [`SLOW_WEIGHT`](Quickness::SLOW_WEIGHT) with each other
/// one, within bounds. It is in the upper half while at least seven of eight reads are quick. A single read that a busy
/// processor held up changes nothing.
#[derive(Default)]
struct Quickness(AtomicU32);

impl Quickness {
    /// Handing a read to another thread and waking up again takes as long, or longer.
    const QUICK: Duration = Duration::from_micros(25);
    const SLOW_WEIGHT: u32 = 7;
    const MAX: u32 = 64;

    fn note(&self, took: Duration) {
        let is_quick = took <= Quickness::QUICK;
        let change = |count: u32| match is_quick {
            true => (count < Quickness::MAX).then_some(count + 1),
            false => (count > 0).then_some(count.saturating_sub(Quickness::SLOW_WEIGHT)),
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= Quickness::MAX / 2
    }
}

impl Transfers {
    pub(super) fn new(device: Arc<dyn Device>, env: Env) -> Result<Transfers> {
        let geometry = device.geometry();
        let location = device.describe();
        let block = geometry.block_bytes;
        if block == 0 || !PAGE.is_multiple_of(u64::from(block)) || u64::from(geometry.max_transfer_bytes) < PAGE {
            return Err(Error::Invalid(format!(
                "{location} has blocks of {block} bytes and transfers of {} at most; pages of {PAGE} bytes cannot be \
                 written to it",
                geometry.max_transfer_bytes
            )));
        }
        let (log, bulk, read) = (Pool::new(&env), Pool::new(&env), Pool::new(&env));
        for pool in [&log, &bulk, &read] {
            pool.open_first(&*device).map_err(|error| Error::io("open a queue of", &location, error))?;
        }
        let (log_in_flight, log_last_nanos) = (AtomicU64::new(0), AtomicU64::new(0));
        let (log_queue, quickness) = (Mutex::default(), Quickness::default());
        Ok(Transfers {
            device,
            env,
            geometry,
            location,
            log,
            bulk,
            read,
            log_queue,
            log_in_flight,
            log_last_nanos,
            quickness,
        })
    }

    pub(super) fn fail(&self, op: &'static str, error: io::Error) -> Error {
        Error::io(op, &self.location, error)
    }

    /// Returns the longest transfer, in whole pages.
    pub(super) fn piece_bytes(&self) -> usize {
        (self.geometry.max_transfer_bytes as usize).min(PIECE_BYTES) / PAGE_BYTES * PAGE_BYTES
    }

    fn borrowing<T>(&self, pool: &Pool, work: impl FnOnce(&mut QueueSlot) -> io::Result<T>) -> io::Result<T> {
        let mut slot = pool.borrow(&*self.device);
        let result = work(&mut slot);
        pool.give_back(slot, false);
        result
    }

    /// Returns a queue to keep for a while; `None` if there is none to spare. To be given back by
    /// [`Transfers::give_back_kept`].
    pub(super) fn keep_slot(&self) -> Option<QueueSlot> {
        self.bulk.idle(true)?.or_else(|| self.bulk.open(&*self.device, true))
    }

    /// Returns the reason why there are fewer queues than were wanted.
    pub(super) fn queue_refused(&self) -> Option<String> {
        [&self.log, &self.bulk, &self.read].iter().find_map(|pool| pool.lock().refused.clone())
    }

    pub(super) fn give_back_kept(&self, slot: QueueSlot) {
        self.bulk.give_back(slot, true);
    }

    /// Runs requests other than the log's.
    pub(super) fn bulk(
        &self,
        requests: impl IntoIterator<Item = (Op, Buffer)>,
        landed: &mut dyn FnMut(Op, Buffer),
    ) -> io::Result<()> {
        self.borrowing(&self.bulk, |slot| slot.all(requests, landed))
    }

    /// Writes a frame of the journal, durably. From a queue of the log's pool, so that it does not wait behind bulk
    /// transfers.
    pub(super) fn write_frame(&self, offset: u64, frame: Buffer) -> io::Result<()> {
        let op = Op::Write { offset, durable: true };
        self.borrowing(&self.log, |slot| slot.all([(op, frame)], &mut |_, _| ()))
    }

    /// Makes completed writes durable; nothing where they are anyway.
    pub(super) fn flush(&self) -> io::Result<()> {
        if !self.geometry.volatile_write_cache {
            return Ok(());
        }
        self.borrowing(&self.log, |slot| {
            let buffer = slot.buffer(1);
            let mut back = None;
            let result = slot.all([(Op::Flush, buffer)], &mut |_, buffer| back = Some(buffer));
            back.into_iter().for_each(|buffer| slot.keep(buffer));
            result
        })
    }

    /// Returns true if durable page writes are under way or just were.
    pub(super) fn log_is_busy(&self) -> bool {
        let last = self.log_last_nanos.load(Ordering::Relaxed);
        let is_recent = || self.now_nanos().saturating_sub(last) < LOG_BUSY_FOR.as_nanos() as u64;
        self.log_in_flight.load(Ordering::Relaxed) > 0 || (last > 0 && is_recent())
    }

    fn now_nanos(&self) -> u64 {
        self.env.clock.now().as_nanos().min(u128::from(u64::MAX)) as u64
    }

    /// Writes whole pages at places of the device, in pieces as long as a transfer, from a queue of the log's pool.
    pub(super) fn write_log(&self, places: &[Extent], bytes: &[u8], durable: bool) -> io::Result<()> {
        self.begin_log_write(durable);
        let result = self.borrowing(&self.log, |slot| {
            let mut rest = bytes;
            let mut back = Vec::new();
            let mut outcome = Ok(());
            for place in pieces(places, self.piece_bytes()) {
                let (front, behind) = rest.split_at(place.pages as usize * PAGE_BYTES);
                rest = behind;
                let mut buffer = slot.buffer(front.len());
                buffer.copy_from_slice(front);
                let op = Op::Write { offset: place.first * PAGE, durable };
                outcome = slot.submit(op, buffer, &mut |_, buffer| back.push(buffer));
                if outcome.is_err() {
                    break;
                }
            }
            let drained = slot.drain(&mut |_, buffer| back.push(buffer));
            back.into_iter().for_each(|buffer| slot.keep(buffer));
            outcome.and(drained)
        });
        self.end_log_write(durable);
        result
    }

    /// Notes that a write of the log begins.
    pub(super) fn begin_log_write(&self, durable: bool) {
        self.log_in_flight.fetch_add(u64::from(durable), Ordering::Relaxed);
    }

    pub(super) fn end_log_write(&self, durable: bool) {
        if durable {
            self.log_last_nanos.store(self.now_nanos().max(1), Ordering::Relaxed);
            self.log_in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns a queue for a thread that has several log writes in flight. `None` if writes are calls on this device,
    /// or the system refuses a queue.
    pub(super) fn log_queue(&self) -> Option<LogQueue> {
        let kept = lock(&self.log_queue).take();
        kept.or_else(|| {
            let opened = LogQueue::open(&self.env, &*self.device);
            self.log.lock().refused = opened.as_ref().err().map(ToString::to_string);
            opened.ok().flatten()
        })
    }

    /// Takes a queue back. One with operations in flight, or one too many, is closed, which waits for them.
    pub(super) fn give_back_log_queue(&self, queue: LogQueue) {
        if queue.is_idle() {
            let before = lock(&self.log_queue).replace(queue);
            drop(before);
        }
    }

    /// Writes whole pages, in pieces, without making them durable.
    pub(super) fn write_pages(&self, places: &[Extent], bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let requests = pieces(places, self.piece_bytes()).into_iter().map(|place| {
            let (front, behind) = rest.split_at(place.pages as usize * PAGE_BYTES);
            rest = behind;
            let mut buffer = Buffer::new(front.len());
            buffer.copy_from_slice(front);
            (Op::Write { offset: place.first * PAGE, durable: false }, buffer)
        });
        self.bulk(requests, &mut |_, _| ())
    }

    /// Returns true if a short read, of [`SHORT_READ_BYTES_MAX`], may be expected to take no longer than waking another
    /// thread.
    pub(super) fn reads_are_quick(&self) -> bool {
        self.quickness.is_quick()
    }

    /// Reads `into.len()` bytes that begin `skip` bytes behind the start of the first place.
    pub(super) fn read(&self, places: &[Extent], skip: usize, into: &mut [u8]) -> io::Result<()> {
        if into.len() > SHORT_READ_BYTES_MAX {
            return self.read_pieces(places, skip, into);
        }
        let begun = self.env.clock.now();
        let result = match places {
            &[place] if (skip + into.len()..=self.piece_bytes()).contains(&(place.pages as usize * PAGE_BYTES)) => {
                self.read_short(place, skip, into)
            }
            _ => self.read_pieces(places, skip, into),
        };
        self.quickness.note(self.env.clock.now().saturating_sub(begun));
        result
    }

    /// Does a read that is one operation, as nearly all lookups are.
    fn read_short(&self, place: Extent, skip: usize, into: &mut [u8]) -> io::Result<()> {
        self.borrowing(&self.read, |slot| {
            let buffer = slot.buffer(place.pages as usize * PAGE_BYTES);
            let mut back = None;
            let op = Op::Read { offset: place.first * PAGE };
            slot.all([(op, buffer)], &mut |_, buffer| back = Some(buffer))?;
            if let Some(buffer) = back {
                into.copy_from_slice(&buffer[skip..skip + into.len()]);
                slot.keep(buffer);
            }
            Ok(())
        })
    }

    /// Reads the bytes at each of these places, one behind the other, into a buffer for each.
    pub(super) fn read_each(&self, wanted: &[Vec<Extent>]) -> io::Result<Vec<Buffer>> {
        let bytes = |places: &[Extent]| places.iter().map(|place| place.pages as usize * PAGE_BYTES).sum::<usize>();
        let mut buffers: Vec<Option<Buffer>> = wanted.iter().map(|_| None).collect();
        // Places in several pieces are rare: files are contiguous unless the room was not.
        let single = |places: &[Extent]| match *places {
            [place] if place.pages as usize * PAGE_BYTES <= self.piece_bytes() => Some(place),
            _ => None,
        };
        let requests = wanted
            .iter()
            .filter_map(|places| single(places))
            .map(|place| (Op::Read { offset: place.first * PAGE }, Buffer::new(place.pages as usize * PAGE_BYTES)));
        self.borrowing(&self.read, |slot| {
            slot.all(requests, &mut |op, buffer| {
                let is_its =
                    |places: &Vec<Extent>| matches!(op, Op::Read { offset } if offset == places[0].first * PAGE);
                if let Some(index) = wanted.iter().position(|places| single(places).is_some() && is_its(places)) {
                    buffers[index] = Some(buffer);
                }
            })
        })?;
        let rest = |(buffer, places): (Option<Buffer>, &Vec<Extent>)| match buffer {
            Some(buffer) => Ok(buffer),
            None => {
                let mut buffer = Buffer::new(bytes(places));
                self.read_pieces(places, 0, &mut buffer)?;
                Ok(buffer)
            }
        };
        buffers.into_iter().zip(wanted).map(rest).collect()
    }

    fn read_pieces(&self, places: &[Extent], skip: usize, into: &mut [u8]) -> io::Result<()> {
        let pieces = pieces(places, self.piece_bytes());
        let mut at = 0;
        let starts: Vec<(u64, usize)> = pieces
            .iter()
            .map(|piece| {
                at += piece.pages as usize * PAGE_BYTES;
                (piece.first * PAGE, at - piece.pages as usize * PAGE_BYTES)
            })
            .collect();
        let request =
            |piece: &Extent| (Op::Read { offset: piece.first * PAGE }, Buffer::new(piece.pages as usize * PAGE_BYTES));
        let end = skip + into.len();
        self.borrowing(&self.read, |slot| {
            slot.all(pieces.iter().map(request), &mut |op, buffer| {
                let Op::Read { offset } = op else { return };
                let Some((_, at)) = starts.iter().find(|(start, _)| *start == offset) else { return };
                // The requested part of this piece.
                let (from, to) = (skip.max(*at), end.min(at + buffer.len()));
                if from < to {
                    into[from - skip..to - skip].copy_from_slice(&buffer[from - at..to - at]);
                }
            })
        })
    }

    /// Makes pages read as zero; durable after a flush.
    pub(super) fn zero(&self, place: Extent) -> io::Result<()> {
        if place.pages == 0 {
            return Ok(());
        }
        let op = Op::Zero { offset: place.first * PAGE, bytes: place.pages * PAGE };
        match self.bulk([(op, Buffer::new(1))], &mut |_, _| ()) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                let requests = pieces(&[place], self.piece_bytes()).into_iter().map(|piece| {
                    let zeros = Buffer::new(piece.pages as usize * PAGE_BYTES);
                    (Op::Write { offset: piece.first * PAGE, durable: false }, zeros)
                });
                self.bulk(requests, &mut |_, _| ())?;
            }
            other => other?,
        }
        Ok(())
    }

    /// Tells the device that pages are not needed.
    pub(super) fn discard(&self, places: &[Extent]) -> io::Result<()> {
        let request = |place: &Extent| {
            let op = Op::Discard { offset: place.first * PAGE, bytes: place.pages * PAGE };
            (op, Buffer::new(1))
        };
        self.bulk(places.iter().map(request), &mut |_, _| ())
    }
}

/// Cuts places into pieces of at most `bytes_max` bytes.
pub(super) fn pieces(places: &[Extent], bytes_max: usize) -> Vec<Extent> {
    let pages_max = (bytes_max / PAGE_BYTES).max(1) as u64;
    let mut pieces = Vec::with_capacity(places.len());
    for place in places {
        let mut rest = *place;
        while rest.pages > 0 {
            let pages = rest.pages.min(pages_max);
            pieces.push(Extent { first: rest.first, pages });
            rest = Extent { first: rest.first + pages, pages: rest.pages - pages };
        }
    }
    pieces
}

/// Returns the places of a file's pages `first .. first + pages`, or as many of them as there are.
pub(super) fn places(extents: &[Extent], first: u64, pages: u64) -> Vec<Extent> {
    let mut found = Vec::new();
    let (mut skip, mut left) = (first, pages);
    for extent in extents {
        if left == 0 {
            break;
        }
        if skip >= extent.pages {
            skip -= extent.pages;
            continue;
        }
        let take = (extent.pages - skip).min(left);
        found.push(Extent { first: extent.first + skip, pages: take });
        left -= take;
        skip = 0;
    }
    found
}

#[cfg(test)]
mod tests;
