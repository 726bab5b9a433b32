//! A queue pair over a ring, for every kind of command that a ring can carry.
//!
//! 1. `submit` checks the operation, puts it into the [`Table`], and offers its entry to the kernel at once.
//! 2. `poll` takes completions from shared memory without a system call. A transfer that was cut short goes back to the
//!    kernel for the rest. So does one that the kernel could not take at that moment.
//! 3. `wait` spins as long as that pays (see [`crate::spin`]) and then sleeps in the kernel.
//! 4. An operation that is better done by a call if it is alone (see [`Commands::prefers_call`]) is not offered to the
//!    kernel by `submit` if nothing else is in flight. If `wait` comes next, it makes the call. If `poll` or another
//!    `submit` does, there is something to overlap with, and the operation goes to the ring.
//!
//! **Invariants.** As many places in the table as entries in the ring, so an operation in the table always finds room
//! for its entry. A buffer leaves the table only with its completion.
//!
//! **Threads.** One at a time, but not always the same one: a queue may be handed over with operations in flight. The
//! kernel cancels operations whose submitting thread has ended. The thread that finds out submits them again.
//!
//! **Leaving.** A queue that is dropped waits for what is in flight, since the kernel writes into the buffers. If a
//! device does not answer for [`PATIENCE`], ring and buffers are leaked. That memory is lost, but never given to
//! another owner while the kernel has its address.

use super::registry::Registry;
use super::ring::{Mode, Result32, Ring};
use crate::block::check_request;
use crate::in_flight::{InFlight, Plan, Step, Table};
use crate::spin::{Spinner, spin};
use crate::watch::EventDescriptor;
use crate::{Buffer, Completion, Geometry, Op, Queue, Ticket, Watch};
use io_uring::{cqueue, squeue};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum time that a dropped queue waits for operations in flight.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The longest transfer whose completion is polled for.
const POLLED_BYTES_MAX: usize = 16 << 10;

/// The maximum number of times in a row that the kernel may ask to try an operation again.
pub(super) const RETRIES_MAX: u32 = 100;

/// The translation of operations into entries of a ring, and of results into those of operations.
pub(crate) trait Commands: Send {
    type Entry: squeue::EntryMarker;
    type Result: cqueue::EntryMarker + Result32;

    fn geometry(&self) -> &Geometry;
    fn device_bytes(&self) -> u64;
    /// Tells a new ring what the commands refer to.
    fn register(&self, ring: &Ring<Self::Entry, Self::Result>) -> io::Result<()>;
    /// Returns the entry for what is left of the operation. It points at nothing but the operation's buffers and static
    /// memory.
    fn plan(&self, operation: &mut InFlight) -> Plan<Self::Entry>;
    /// Returns true if [`plan`](Commands::plan) makes use of registered buffers.
    fn uses_registered_buffers(&self) -> bool {
        false
    }
    /// Returns true if an operation that is alone in flight is better done by [`call`](Commands::call).
    fn prefers_call(&self, _op: Op) -> bool {
        false
    }
    /// Does an operation that [`prefers_call`](Commands::prefers_call) before it returns.
    fn call(&self, _operation: &mut InFlight) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn step(&self, operation: &mut InFlight, result: i32) -> Step;
}

pub(crate) struct RingQueue<K: Commands> {
    /// Dropped by hand: not at all if the device did not answer.
    kept: ManuallyDrop<Kept<K>>,
    commands: K,
    depth: usize,
    next: u64,
    /// Alone in the table, and not offered to the kernel.
    held: Option<u64>,
    /// Done within `submit`.
    finished: Vec<Completion>,
    results: Vec<(u64, i32)>,
    registry: Registry,
    spinner: Spinner,
    patience: Duration,
    /// The receiver of completion notices, once the caller has asked for it. Nothing is polled for from then on.
    watch: Option<Arc<EventDescriptor>>,
}

/// Returns true if an operation may go to the ring whose completions are polled for. An operation that the kernel has
/// to split into several commands must not: a transfer that it cuts, a write that it makes durable by a flush behind
/// it. Their parts complete by interrupts, and a poller waits in vain. Polling gains nothing for either.
fn can_poll(operation: &InFlight, geometry: &Geometry) -> bool {
    let is_one_command = match operation.op {
        Op::Read { .. } => true,
        Op::Write { durable, .. } => !durable || !geometry.volatile_write_cache,
        Op::Flush | Op::Discard { .. } | Op::Zero { .. } => false,
    };
    is_one_command && operation.buffer.len() <= POLLED_BYTES_MAX
}

/// The memory that the kernel refers to.
struct Kept<K: Commands> {
    ring: Ring<K::Entry, K::Result>,
    /// A second ring, for commands whose completions are polled for; see [`Mode::completion_poll`].
    polled: Option<Ring<K::Entry, K::Result>>,
    in_polled: usize,
    table: Table,
}

impl<K: Commands> RingQueue<K> {
    pub(crate) fn new(commands: K, depth: u32, mode: Mode) -> io::Result<RingQueue<K>> {
        let depth = depth.max(1);
        let ring = Ring::new(depth, Mode { completion_poll: false, ..mode })?;
        commands.register(&ring)?;
        let polled = match mode.completion_poll {
            true => Some(Ring::new(depth, Mode { completion_poll: true, submission_poll: false })?),
            false => None,
        };
        if let Some(polled) = &polled {
            commands.register(polled)?;
        }
        let depth = depth.min(ring.operations());
        Ok(RingQueue {
            kept: ManuallyDrop::new(Kept { ring, polled, in_polled: 0, table: Table::new(depth) }),
            commands,
            depth: depth as usize,
            next: 0,
            held: None,
            finished: Vec::new(),
            results: Vec::with_capacity(depth as usize),
            registry: Registry::default(),
            spinner: Spinner::new(),
            patience: PATIENCE,
            watch: None,
        })
    }

    /// Puts the operation's entry into its ring, or ends the operation.
    fn start(&mut self, key: u64) -> Started {
        let kept = &mut *self.kept;
        let Some(operation) = kept.table.get(key) else { return Started::Done };
        if self.commands.uses_registered_buffers() && !operation.polled && operation.registered.is_none() {
            operation.registered = self.registry.place_of(&operation.buffer, &kept.ring);
        }
        match self.commands.plan(operation) {
            Plan::Done(result) => {
                self.end(key, result);
                Started::Done
            }
            Plan::Entry(mut entry) => {
                squeue::EntryMarker::set_user_data(&mut entry, key);
                let ring = match kept.polled.as_mut().filter(|_| operation.polled) {
                    Some(polled) => polled,
                    None => &mut kept.ring,
                };
                // SAFETY: the entry points into the operation's buffers or static memory. They stay in the table until
                // the completion was taken, and the table outlives the ring's use of it (see `drop`).
                if unsafe { ring.push(&entry) } { Started::Submitted } else { Started::NoRoom }
            }
        }
    }

    fn end(&mut self, key: u64, result: io::Result<()>) {
        if let Some(InFlight { ticket, op, buffer, .. }) = self.take(key) {
            self.finished.push(Completion { ticket, op, buffer, result });
        }
    }

    fn take(&mut self, key: u64) -> Option<InFlight> {
        let operation = self.kept.table.remove(key)?;
        self.kept.in_polled -= usize::from(operation.polled);
        if let Some(place) = operation.registered {
            self.registry.release(place);
        }
        Some(operation)
    }

    fn submit_all(&mut self) -> io::Result<()> {
        if let Some(polled) = self.kept.polled.as_mut()
            && polled.has_unsubmitted()
        {
            polled.submit()?;
        }
        if self.kept.ring.has_unsubmitted() { self.kept.ring.submit() } else { Ok(()) }
    }

    fn reap(&mut self) -> Vec<(u64, i32)> {
        let mut results = std::mem::take(&mut self.results);
        let kept = &mut *self.kept;
        kept.ring.reap(&mut results);
        if let Some(polled) = kept.polled.as_mut()
            && kept.in_polled > 0
        {
            polled.reap(&mut results);
        }
        results
    }

    /// Offers the held operation to the kernel: there is something to overlap it with.
    fn release_held(&mut self) {
        if let Some(key) = self.held.take() {
            self.restart(key);
            // If it fails, the entry stays in the ring, and waiting offers it again.
            let _ = self.submit_all();
        }
    }

    /// Does the held operation now.
    fn call_held(&mut self) {
        if let Some(key) = self.held.take()
            && let Some(operation) = self.kept.table.get(key)
        {
            let result = self.commands.call(operation);
            self.end(key, result);
        }
    }

    /// Takes what has completed, and sends back to the kernel what has not completed whole.
    fn collect(&mut self) {
        let mut results = self.reap();
        for (key, result) in results.drain(..) {
            let Some(operation) = self.kept.table.get(key) else {
                debug_assert!(false, "a completion without an operation");
                continue;
            };
            match self.commands.step(operation, result) {
                Step::Done(result) => self.end(key, result),
                Step::Retry if operation.retries >= RETRIES_MAX => {
                    self.end(key, Err(io::Error::from_raw_os_error(-result)));
                }
                Step::Retry => {
                    operation.retries += 1;
                    self.restart(key);
                }
                Step::Continue => {
                    operation.retries = 0;
                    self.restart(key);
                }
            }
        }
        self.results = results;
        // An entry that fails here stays in the ring; the next call offers it again.
        let _ = self.submit_all();
    }

    fn restart(&mut self, key: u64) {
        if let Started::NoRoom = self.start(key) {
            self.end(key, Err(io::Error::other("a ring has fewer entries than operations; this is a bug in Situ")));
        }
    }

    fn sleep(&mut self, timeout: Duration) {
        let kept = &mut *self.kept;
        // A completion that is polled for wakes no thread that sleeps in the other ring.
        let timeout = if kept.in_polled > 0 { timeout.min(crate::spin::SHORT) } else { timeout };
        let ring = match kept.polled.as_mut().filter(|_| kept.in_polled == kept.table.len()) {
            Some(polled) => polled,
            None => &mut kept.ring,
        };
        if ring.wait(timeout).is_err() {
            // Not a reason to spin; what cannot be submitted now is tried again.
            std::thread::sleep(timeout.min(Duration::from_millis(1)));
        }
    }

    fn hand_over(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }
}

enum Started {
    Submitted,
    Done,
    NoRoom,
}

impl<K: Commands> Queue for RingQueue<K> {
    fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        if self.kept.table.len() + self.finished.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = check_request(op, &buffer, self.commands.geometry(), self.commands.device_bytes()) {
            return Err((buffer, error));
        }
        self.release_held();
        let ticket = Ticket(self.next);
        let alone = self.kept.table.len() == 0 && self.commands.prefers_call(op);
        let mut operation = InFlight::new(ticket, op, buffer);
        operation.polled = !alone
            && self.watch.is_none()
            && self.kept.polled.is_some()
            && self.spinner.pays()
            && can_poll(&operation, self.commands.geometry());
        let polled = operation.polled;
        let key = match self.kept.table.insert(operation) {
            Ok(key) => key,
            Err(operation) => return Err((operation.buffer, io::ErrorKind::WouldBlock.into())),
        };
        self.kept.in_polled += usize::from(polled);
        if alone {
            self.held = Some(key);
            self.next += 1;
            return Ok(ticket);
        }
        match self.start(key) {
            Started::Done => {}
            Started::Submitted => {
                // If it fails, the entry stays in the ring; waiting and polling offer it again.
                let _ = self.submit_all();
            }
            Started::NoRoom => {
                let operation = self.take(key).expect("it was put there a moment ago");
                return Err((operation.buffer, io::ErrorKind::WouldBlock.into()));
            }
        }
        self.next += 1;
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.release_held();
        if self.kept.table.len() > 0 {
            self.collect();
        }
        self.hand_over(done)
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        self.call_held();
        let found = self.poll(done);
        if found > 0 || self.kept.table.len() == 0 {
            return found;
        }
        let begin = Instant::now();
        let mut spinner = std::mem::replace(&mut self.spinner, Spinner::new());
        let mut found = spin(&mut spinner, timeout, || self.poll(done));
        self.spinner = spinner;
        while found == 0 {
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            self.sleep(left);
            found = self.poll(done);
            if found > 0 {
                self.spinner.slept(begin.elapsed());
            }
        }
        found
    }

    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        let watch = match &self.watch {
            Some(watch) => Arc::clone(watch),
            None => {
                let watch = Arc::new(EventDescriptor::new()?);
                self.kept.ring.submitter().register_eventfd(watch.number())?;
                // Nothing is polled for from now on.
                if self.kept.in_polled == 0 {
                    self.kept.polled = None;
                }
                Arc::clone(self.watch.insert(watch))
            }
        };
        Ok(Some(watch))
    }
}

impl<K: Commands> Drop for RingQueue<K> {
    fn drop(&mut self) {
        self.call_held();
        let begin = Instant::now();
        while self.kept.table.len() > 0 {
            let left = self.patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                // The kernel may still write into the buffers, at any time: they are never given back.
                return;
            }
            for (key, _) in self.reap() {
                self.take(key);
            }
            if self.kept.table.len() > 0 {
                self.sleep(left);
            }
        }
        // SAFETY: nothing is in flight, and `kept` is not used again.
        unsafe { ManuallyDrop::drop(&mut self.kept) };
    }
}

#[cfg(test)]
mod tests;
