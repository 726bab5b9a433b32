//! Operations in flight on a queue pair of a controller.
//!
//! 1. `submit` maps the buffer, writes the command into the ring and rings the doorbell. No system call is made where
//!    the buffer is mapped already.
//! 2. `poll` takes answers from memory. What a drive could not do and may be asked again goes back to it.
//! 3. `wait` spins as long as that pays (see [`crate::spin`]), then sleeps until the interrupt.
//! 4. A wait or a poll without success looks now and then for commands that take too long, and at the controller's
//!    status. Such a command is aborted. If that does not help, the controller is reset (see
//!    [`super::controller`]).
//!
//! **Names of commands.** A command's identifier is the place of its operation, and a count of the uses of that place.
//! An answer to an earlier use, or a second answer, is counted and not acted upon.
//!
//! **Invariants.** An operation has one answer. Its buffer leaves the queue when the controller can reach it no longer:
//! after the answer, after a reset that dropped the command, or after the death of the controller.
//!
//! **Threads.** One at a time, not always the same.

use super::controller::{NvmeController, QueuePair};
use super::function::Dma;
use super::pair::{Answer, Command};
use super::registers::{self, State};
use super::space::{SharedWords, Stretch};
use super::statistics::Counters;
use crate::block::check_request;
use crate::in_flight::{InFlight, Plan, Step, Table};
use crate::nvme::{Namespace, Words, plan, step};
use crate::spin::{Spinner, spin};
use crate::{Buffer, Completion, Op, PAGE_BYTES, Queue, Ticket, Watch};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time of a command. Then it is aborted.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that an aborted command has left. Then the controller is reset.
const PATIENCE_AFTER_ABORT: Duration = Duration::from_secs(5);
/// The longest sleep, and the time between two looks for what takes too long.
const SLICE: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two looks where there is no interrupt. It is an eighth of the wait so
/// far.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Resets that an operation lives through.
const RESETS_MAX: u32 = 2;
/// Commands that a queue has in flight at most: the identifier's bits for the place.
const PLACES_MAX: u32 = 1 << 10;
const PLACE_BITS: u32 = PLACES_MAX.ilog2();

/// The bits of a command's first word: its data is described by a scatter-gather list.
const LIST: u32 = 1 << 14;
/// Longer transfers are described by a list, where the drive takes one: a list is one entry, whatever the length.
const LIST_BYTES_MIN: usize = 2 * PAGE_BYTES;

/// The command of one operation.
#[derive(Debug, Default)]
struct Place {
    /// The operation's key in the table.
    key: u64,
    /// A count of the commands that had this place.
    turn: u16,
    is_busy: bool,
    /// The address and the length of a mapping made for this command.
    mapped: Option<(u64, usize)>,
    /// The first time at which it was seen in flight, or the time of its abortion.
    since: Option<Duration>,
    is_aborted: bool,
    resets: u32,
}

/// A queue of a namespace.
pub(super) struct DriveQueue {
    controller: Arc<NvmeController>,
    namespace: Namespace,
    /// Taken by `drop`.
    pair: Option<QueuePair>,
    generation: u64,
    table: Table,
    places: Vec<Place>,
    /// A page for each place, for the addresses of pages of a transfer.
    pages: SharedWords,
    /// Addresses for each place.
    stretch: Stretch,
    stretch_bytes: usize,
    has_lists: bool,
    depth: usize,
    next: u64,
    finished: Vec<Completion>,
    spinner: Spinner,
    watch: Option<Arc<QueueWatch>>,
    next_look: Duration,
    counters: Arc<Counters>,
}

/// The watch that the queue hands out. While commands are in flight, its waits end after [`SLICE`], so that a command
/// without an answer is found.
struct QueueWatch {
    interrupt: Arc<dyn Watch>,
    is_busy: AtomicBool,
}

impl Watch for QueueWatch {
    fn wait(&self, timeout: Option<Duration>) {
        let slice = self.is_busy.load(Ordering::Relaxed).then_some(SLICE);
        self.interrupt.wait(timeout.into_iter().chain(slice).min());
    }

    fn wake(&self) {
        self.interrupt.wake();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.descriptor()
    }
}

impl DriveQueue {
    pub(super) fn new(
        controller: Arc<NvmeController>,
        namespace: Namespace,
        depth: u32,
        counters: Arc<Counters>,
    ) -> io::Result<DriveQueue> {
        let depth = depth.clamp(1, controller.depth_max().min(PLACES_MAX));
        let (pair, generation) = controller.create(depth)?;
        let space = controller.space();
        // The longest mapping: a transfer, or the zeros that a drive without a command for them is given.
        let stretch_bytes = (namespace.geometry.max_transfer_bytes as usize).next_multiple_of(PAGE_BYTES);
        let pages = SharedWords::new(space, depth as usize * PAGE_BYTES);
        let stretch = space.stretch(depth as usize * stretch_bytes);
        let (pages, stretch) = match (pages, stretch) {
            (Ok(pages), Ok(stretch)) => (pages, stretch),
            (Err(error), _) | (_, Err(error)) => {
                controller.delete(pair, generation);
                return Err(error);
            }
        };
        let has_lists = controller.has_lists();
        Ok(DriveQueue {
            controller,
            namespace,
            pair: Some(pair),
            generation,
            table: Table::new(depth),
            places: (0..depth).map(|_| Place::default()).collect(),
            pages,
            stretch,
            stretch_bytes,
            has_lists,
            depth: depth as usize,
            next: 0,
            finished: Vec::new(),
            spinner: Spinner::new(),
            watch: None,
            next_look: Duration::ZERO,
            counters,
        })
    }

    fn pair(&mut self) -> &mut QueuePair {
        self.pair.as_mut().expect("only `drop` takes it")
    }

    /// Gives the controller the next command of an operation, or ends the operation.
    fn start(&mut self, key: u64) {
        let Some(operation) = self.table.get(key) else { return };
        match plan(&self.namespace, operation) {
            Plan::Done(result) => self.end(key, result),
            Plan::Entry(words) => {
                if let Err(error) = self.issue(key, words) {
                    self.end(key, Err(error));
                }
            }
        }
    }

    fn issue(&mut self, key: u64, words: Words) -> io::Result<()> {
        let index = key as u32 as usize;
        let mut command: Command = [0; 16];
        let bytes = words.data_bytes as usize;
        let mapped = match NonNull::new(words.data.cast_mut()) {
            None => None,
            Some(start) => Some(self.map(index, start, bytes)?),
        };
        let place = &mut self.places[index];
        place.turn = place.turn.wrapping_add(1);
        (place.key, place.is_busy, place.mapped) = (key, true, mapped.filter(|(_, bytes)| *bytes > 0));
        (place.since, place.is_aborted) = (None, false);
        let id = u32::from(place.turn) << PLACE_BITS | index as u32;
        command[0] = u32::from(words.opcode) | id << 16;
        command[1] = self.namespace.id;
        if let Some((address, _)) = mapped {
            self.describe(index, &mut command, address, bytes);
        }
        command[10..13].copy_from_slice(&words.words_10_12);
        self.pair().pair.push(&command);
        Ok(())
    }

    /// Returns the address of a command's data, and the length of the mapping that was made for it.
    fn map(&self, index: usize, start: NonNull<u8>, bytes: usize) -> io::Result<(u64, usize)> {
        if let Some(address) = self.controller.space().address_of(start) {
            return Ok((address, 0));
        }
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        Counters::add(&self.counters.mapped, 1);
        // SAFETY: the memory is a buffer of an operation in the table, or static. It stays there, and no thread looks
        // into it, until `unmap`, or until the controller is dead.
        let address = unsafe { self.stretch.map(index * self.stretch_bytes, Dma::new(start, bytes))? };
        Ok((address, bytes))
    }

    fn unmap(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.is_busy = false;
        if let Some((address, bytes)) = place.mapped.take() {
            self.stretch.unmap(address, bytes);
        }
    }

    /// Names the data in a command: by one entry of a list, or by the addresses of its pages.
    fn describe(&self, index: usize, command: &mut Command, address: u64, bytes: usize) {
        (command[6], command[7]) = (address as u32, (address >> 32) as u32);
        if self.has_lists && bytes > LIST_BYTES_MIN {
            command[0] |= LIST;
            (command[8], command[9]) = (bytes as u32, 0);
            return;
        }
        let pages = bytes.div_ceil(PAGE_BYTES);
        let page = PAGE_BYTES as u64;
        let second = match pages {
            ..2 => return,
            2 => address + page,
            _ => {
                let at = index * PAGE_BYTES;
                for number in 1..pages {
                    self.pages.store_long(at + 8 * (number - 1), address + page * number as u64);
                }
                self.pages.address() + at as u64
            }
        };
        (command[8], command[9]) = (second as u32, (second >> 32) as u32);
    }

    fn end(&mut self, key: u64, result: io::Result<()>) {
        let index = key as u32 as usize;
        self.unmap(index);
        self.places[index].resets = 0;
        if let Some(InFlight { ticket, op, buffer, .. }) = self.table.remove(key) {
            self.finished.push(Completion { ticket, op, buffer, result });
        }
    }

    fn ring(&mut self) {
        let pair = self.pair.as_mut().expect("only `drop` takes it");
        if pair.pair.ring(self.controller.function()) {
            Counters::add(&self.counters.doorbells, 1);
        }
    }

    /// Takes the answers that are there, and gives back to the drive what is not done.
    fn look(&mut self) -> usize {
        if self.controller.generation() != self.generation {
            self.rejoin();
            return self.finished.len();
        }
        self.controller.function().settle();
        let mut taken = 0;
        while let Some(answer) = self.pair().pair.pop() {
            taken += 1;
            self.take(answer);
        }
        if taken > 0 {
            let pair = self.pair.as_mut().expect("only `drop` takes it");
            pair.pair.release(self.controller.function());
            self.ring();
        }
        self.finished.len()
    }

    fn take(&mut self, answer: Answer) {
        let index = usize::from(answer.id) % PLACES_MAX as usize;
        let turn = answer.id >> PLACE_BITS;
        let is_known = |place: &&Place| place.is_busy && place.turn << PLACE_BITS >> PLACE_BITS == turn;
        let Some(key) = self.places.get(index).filter(is_known).map(|place| place.key) else {
            Counters::add(&self.counters.strays, 1);
            return;
        };
        self.unmap(index);
        let was_late = self.places[index].is_aborted;
        let Some(operation) = self.table.get(key) else { return };
        match step(operation, answer.status) {
            Step::Done(Err(error)) if was_late => {
                let name = self.controller.function().name();
                let why = format!("{name}: the drive did not answer within {PATIENCE:?}, then: {error}");
                self.end(key, Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            Step::Done(result) => self.end(key, result),
            Step::Retry => {
                operation.retries += 1;
                Counters::add(&self.counters.retries, 1);
                self.start(key);
            }
            Step::Continue => {
                operation.retries = 0;
                self.start(key);
            }
        }
    }

    /// Goes on after a reset, or ends all operations after the death of the controller.
    fn rejoin(&mut self) {
        let keys: Vec<u64> = self.places.iter().filter(|place| place.is_busy).map(|place| place.key).collect();
        let pair = self.pair.as_mut().expect("only `drop` takes it");
        let again = self.controller.create_again(pair);
        Counters::add(&self.counters.resets, 1);
        match again {
            Ok(generation) => {
                self.generation = generation;
                for key in keys {
                    let index = key as u32 as usize;
                    self.unmap(index);
                    self.places[index].resets += 1;
                    if self.places[index].resets > RESETS_MAX {
                        let why = format!(
                            "the drive did not answer; {RESETS_MAX} resets of its controller did not help: {}",
                            self.controller.function().name()
                        );
                        self.end(key, Err(io::Error::new(io::ErrorKind::TimedOut, why)));
                    } else {
                        self.start(key);
                    }
                }
                self.ring();
            }
            Err(error) => {
                // The generation stays, so the next call tries again.
                for key in keys {
                    self.end(key, Err(io::Error::new(error.kind(), error.to_string())));
                }
            }
        }
    }

    /// Looks for commands that take too long, and at the controller, if it is time to.
    fn look_for_trouble(&mut self) {
        let function = self.controller.function();
        let now = function.env().clock.now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + SLICE;
        match registers::state(function) {
            State::IsGone => return self.controller.bury(),
            State::HasFailed => return self.controller.reset(self.generation),
            State::Works => {}
        }
        let queue = self.pair().pair.id;
        let mut late = Vec::new();
        let mut is_stuck = false;
        for (index, place) in self.places.iter_mut().enumerate().filter(|(_, place)| place.is_busy) {
            let since = *place.since.get_or_insert(now);
            match place.is_aborted {
                false if now - since > PATIENCE => {
                    (place.is_aborted, place.since) = (true, Some(now));
                    late.push(place.turn << PLACE_BITS | index as u16);
                }
                true if now - since > PATIENCE_AFTER_ABORT => is_stuck = true,
                _ => {}
            }
        }
        Counters::add(&self.counters.timeouts, late.len() as u64);
        // A controller that does not answer an admin command either is not worth the wait for the others.
        is_stuck |= late.into_iter().any(|id| {
            let aborted = self.controller.abort(queue, id);
            aborted.is_err_and(|error| matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::NotConnected))
        });
        if is_stuck {
            self.controller.reset(self.generation);
        }
    }

    fn sleep(&mut self, timeout: Duration, waited: Duration) {
        Counters::add(&self.counters.sleeps, 1);
        let controller = Arc::clone(&self.controller);
        match &self.pair().watch {
            Some(watch) => watch.wait(Some(timeout.min(SLICE))),
            None => controller.function().env().clock.sleep((waited / 8).clamp(PAUSE, PAUSE_MAX).min(timeout)),
        }
    }

    fn hand_over(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        Counters::add(&self.counters.completed, count as u64);
        done.append(&mut self.finished);
        if let Some(watch) = &self.watch {
            watch.is_busy.store(self.table.len() > 0, Ordering::Relaxed);
        }
        count
    }
}

impl Queue for DriveQueue {
    fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        if self.table.len() + self.finished.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = check_request(op, &buffer, &self.namespace.geometry, self.namespace.bytes) {
            return Err((buffer, error));
        }
        if self.controller.generation() != self.generation {
            if let Err(error) = self.controller.death() {
                return Err((buffer, error));
            }
            self.rejoin();
        }
        let ticket = Ticket(self.next);
        let key = match self.table.insert(InFlight::new(ticket, op, buffer)) {
            Ok(key) => key,
            Err(operation) => return Err((operation.buffer, io::ErrorKind::WouldBlock.into())),
        };
        self.next += 1;
        Counters::add(&self.counters.submitted, 1);
        self.start(key);
        self.ring();
        if let Some(watch) = &self.watch {
            watch.is_busy.store(true, Ordering::Relaxed);
            if !self.finished.is_empty() {
                watch.wake();
            }
        }
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.table.len() > 0 && self.look() == 0 {
            self.look_for_trouble();
            self.look();
        }
        self.hand_over(done)
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        if self.table.len() == 0 || self.look() > 0 {
            return self.hand_over(done);
        }
        let controller = Arc::clone(&self.controller);
        let env = controller.function().env();
        let begin = env.clock.now();
        if env.executor.is_machine() {
            let began = Instant::now();
            let mut spinner = std::mem::replace(&mut self.spinner, Spinner::new());
            let found = spin(&mut spinner, timeout, || self.look());
            self.spinner = spinner;
            if found > 0 {
                return self.hand_over(done);
            }
            while self.finished.is_empty() && began.elapsed() < timeout {
                self.look_for_trouble();
                self.sleep(timeout.saturating_sub(began.elapsed()), began.elapsed());
                if self.look() > 0 {
                    self.spinner.slept(began.elapsed());
                }
            }
            return self.hand_over(done);
        }
        loop {
            self.look_for_trouble();
            if self.look() > 0 {
                break;
            }
            let waited = env.clock.now() - begin;
            let Some(left) = timeout.checked_sub(waited).filter(|left| !left.is_zero()) else { break };
            self.sleep(left, waited);
        }
        self.hand_over(done)
    }

    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        if self.watch.is_none()
            && let Some(interrupt) = self.pair().watch.clone()
        {
            self.watch = Some(Arc::new(QueueWatch { interrupt, is_busy: AtomicBool::new(false) }));
        }
        Ok(self.watch.clone().map(|watch| watch as Arc<dyn Watch>))
    }
}

impl Drop for DriveQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        // It ends: a command without an answer is aborted, then dropped by a reset or by the death of the controller.
        while self.table.len() > 0 {
            self.wait(&mut done, SLICE);
        }
        if let Some(pair) = self.pair.take() {
            self.controller.delete(pair, self.generation);
        }
    }
}
