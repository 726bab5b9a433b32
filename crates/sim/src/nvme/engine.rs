//! The work on one submission queue: commands are fetched, run on the devices below, and answered.
//!
//! # Algorithm
//!
//! A round does what can be done without waiting:
//!
//! 1. It fetches commands up to the tail. The plan may give each a fault.
//! 2. It starts commands. A command of an I/O queue becomes steps: operations of the device of its namespace, one at a
//!    time. The data of a write are read from the host's memory before its first step.
//! 3. It collects finished operations. The data of a read go to the host's memory.
//! 4. It posts completions whose time has come.
//!
//! **Invariants.** A fetched command is a [`Flight`] until it is answered, or for ever if the plan says so. An answer
//! comes after the command's last access to the host's memory, unless the plan says otherwise.

use super::admin::{self, Reply};
use super::blocks::{self, Step, Transfer};
use super::command::{ENTRY_BYTES, Entry};
use super::memory::Stopped;
use super::queues::{Answer, SubmissionQueue, Waits};
use super::walk::Walk;
use super::{NvmeFault, Shared, status};
use situ_base::lock;
use situ_device::{Buffer, Completion, Queue, Ticket, Watch};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The commands of a submission queue that the controller has.
#[derive(Default)]
pub(super) struct Engine {
    flights: Vec<Flight>,
    /// Answers that go out at the end of the round: number, status, result.
    answers: Vec<(u16, u16, u32)>,
    /// A queue of each namespace's device, once it has been used.
    below: Vec<Option<Below>>,
    pub(super) spare: Vec<Buffer>,
}

struct Below {
    queue: Box<dyn Queue>,
    watch: Option<Arc<dyn Watch>>,
}

/// A command that was fetched.
struct Flight {
    entry: Entry,
    fault: Option<NvmeFault>,
    /// It was answered before: its end is not.
    is_answered: bool,
    /// Its memory is the host's again: nothing is transferred.
    is_dropped: bool,
    phase: Phase,
}

enum Phase {
    /// It is started at this time.
    Held(Duration),
    /// One of its steps is with the device of a namespace, by a ticket. Without a ticket, it is on its way there.
    Below(Transfer, Option<(usize, Ticket)>),
    /// It is answered at this time.
    Finished { at: Duration, status: u16, result: u32 },
    /// It is never answered.
    Lost,
}

impl Engine {
    pub(super) fn round(&mut self, shared: &Shared, queue: &SubmissionQueue) {
        if shared.is_halted() {
            return;
        }
        self.answer_broken();
        match self.fetch(shared, queue) {
            Err(Stopped) if queue.is_live.load(Ordering::Acquire) => return shared.fail(),
            Err(Stopped) => return,
            Ok(()) if shared.is_halted() => return,
            Ok(()) => {}
        }
        self.start(shared, queue);
        self.collect(shared, queue);
        self.post(shared, queue);
    }

    /// Answers commands whose thread has died while it gave them to a device.
    fn answer_broken(&mut self) {
        for flight in &mut self.flights {
            if matches!(flight.phase, Phase::Below(_, None)) {
                flight.phase = Phase::Finished { at: Duration::ZERO, status: status::INTERNAL, result: 0 };
            }
        }
    }

    fn fetch(&mut self, shared: &Shared, queue: &SubmissionQueue) -> Result<(), Stopped> {
        loop {
            self.look_at_shadow(shared, queue)?;
            let mut fetched = false;
            loop {
                let head = queue.head.load(Ordering::Acquire);
                let has_room = self.flights.len() < queue.entries as usize;
                if head == queue.tail.load(Ordering::Acquire) || !has_room || shared.is_halted() {
                    break;
                }
                let entry = read_entry(shared, queue, head)?;
                queue.head.store((head + 1) % queue.entries, Ordering::Release);
                fetched = true;
                self.accept(shared, queue, entry);
            }
            if !fetched || queue.id == 0 {
                return Ok(());
            }
        }
    }

    /// Takes the tail from the page of shadow doorbells. An idle queue asks for the real doorbell.
    fn look_at_shadow(&self, shared: &Shared, queue: &SubmissionQueue) -> Result<(), Stopped> {
        let Some((doorbells, wanted)) = shared.roster().shadows.filter(|_| queue.id != 0) else { return Ok(()) };
        let at = shared.config.doorbell(queue.id, false);
        if self.flights.is_empty() && queue.head.load(Ordering::Acquire) == queue.tail.load(Ordering::Acquire) {
            shared.memory.store(&queue.is_live, wanted + at, &[queue.tail.load(Ordering::Acquire)])?;
            fence(Ordering::SeqCst);
        }
        let tail = shared.memory.load(&queue.is_live, doorbells + at)?;
        if tail < queue.entries {
            queue.tail.store(tail, Ordering::Release);
        } else {
            shared.violation(format!("the shadow tail of queue {} is {tail} of {}", queue.id, queue.entries));
        }
        Ok(())
    }

    fn accept(&mut self, shared: &Shared, queue: &SubmissionQueue, entry: Entry) {
        let now = shared.env.clock.now();
        let fault = lock(&shared.plan).fault(entry.command);
        shared.counters.command(entry.command);
        if self.flights.iter().any(|flight| !flight.is_answered && flight.entry.id() == entry.id()) {
            shared.violation(format!("queue {}: command {} is in flight twice", queue.id, entry.id()));
            return self.answers.push((entry.id(), status::IDENTIFIER_CONFLICT, 0));
        }
        let mut flight =
            Flight { entry, fault, is_answered: false, is_dropped: false, phase: Phase::Held(Duration::ZERO) };
        match fault {
            Some(NvmeFault::Fatal) => return shared.fail(),
            Some(NvmeFault::Removed) => return shared.remove(),
            Some(NvmeFault::Status(status)) => return self.answers.push((entry.id(), status & 0x7fff, 0)),
            Some(NvmeFault::DataNever) => return self.answers.push((entry.id(), status::SUCCESS, 0)),
            Some(NvmeFault::DataLate(delay)) => {
                self.answers.push((entry.id(), status::SUCCESS, 0));
                flight.is_answered = true;
                flight.phase = Phase::Held(now + delay);
            }
            Some(NvmeFault::Held(delay)) => flight.phase = Phase::Held(now + delay),
            _ => {}
        }
        self.flights.push(flight);
    }

    /// Starts the commands whose time has come. Most start in the round that has fetched them.
    fn start(&mut self, shared: &Shared, queue: &SubmissionQueue) {
        let now = shared.env.clock.now();
        for at in 0..self.flights.len() {
            if matches!(self.flights[at].phase, Phase::Held(until) if until <= now) {
                self.begin(shared, queue, at, now);
            }
        }
    }

    fn begin(&mut self, shared: &Shared, queue: &SubmissionQueue, at: usize, now: Duration) {
        let has_lists = queue.id != 0 && shared.config.has_lists;
        let walk = Walk { memory: &shared.memory, is_live: &queue.is_live, has_lists };
        let flight = &mut self.flights[at];
        if queue.id == 0 {
            match admin::run(shared, &walk, &flight.entry, flight.fault == Some(NvmeFault::AbortIgnored)) {
                Ok(Reply::Now(result)) => flight.finish(now, status::SUCCESS, result),
                // The answer comes with an event.
                Ok(Reply::Kept) => {
                    flight.is_answered = true;
                    flight.finish(now, status::SUCCESS, 0);
                }
                Err(status) => flight.finish(now, status, 0),
            }
            return;
        }
        match blocks::plan(shared, &walk, &flight.entry, &mut self.spare) {
            Ok(transfer) => {
                flight.phase = Phase::Below(transfer, None);
                self.step(shared, queue, at, now);
            }
            Err(status) => flight.finish(now, status, 0),
        }
    }

    /// Gives the next step of a command to its device, or finishes the command.
    fn step(&mut self, shared: &Shared, queue: &SubmissionQueue, at: usize, now: Duration) {
        let flight = &mut self.flights[at];
        let Phase::Below(transfer, _) = &mut flight.phase else { return };
        let Some(Step { namespace, op, buffer, .. }) = transfer.next() else {
            return flight.finish(now, status::SUCCESS, 0);
        };
        let outcome = match self.below(shared, queue, namespace) {
            Ok(below) => below.queue.submit(op, buffer).map_err(|(_, error)| blocks::status_of(op, &error)),
            Err(_) => Err(status::INTERNAL),
        };
        let flight = &mut self.flights[at];
        match (outcome, &mut flight.phase) {
            (Ok(given), Phase::Below(_, ticket)) => *ticket = Some((namespace, given)),
            (Ok(_), _) => {}
            (Err(status), _) => flight.finish(now, status, 0),
        }
    }

    fn below(&mut self, shared: &Shared, queue: &SubmissionQueue, namespace: usize) -> std::io::Result<&mut Below> {
        self.below.resize_with(shared.namespaces.len(), || None);
        let place = &mut self.below[namespace];
        if place.is_none() {
            let mut opened = shared.namespaces[namespace].device.queue(queue.entries)?;
            let watch = opened.watch()?;
            *place = Some(Below { queue: opened, watch });
        }
        Ok(place.as_mut().expect("it was opened"))
    }

    /// Collects what the devices have finished, and goes on with those commands.
    fn collect(&mut self, shared: &Shared, queue: &SubmissionQueue) {
        let mut done = Vec::new();
        for namespace in 0..self.below.len() {
            let Some(below) = &mut self.below[namespace] else { continue };
            below.queue.poll(&mut done);
            let now = shared.env.clock.now();
            for completion in done.drain(..) {
                let key = (namespace, completion.ticket);
                let is_it = |flight: &Flight| matches!(flight.phase, Phase::Below(_, Some(given)) if given == key);
                if let Some(at) = self.flights.iter().position(is_it) {
                    self.land(shared, queue, at, completion, now);
                }
            }
        }
    }

    /// Takes the result of a step.
    fn land(&mut self, shared: &Shared, queue: &SubmissionQueue, at: usize, completion: Completion, now: Duration) {
        let Completion { op, buffer, result, .. } = completion;
        let flight = &mut self.flights[at];
        let Phase::Below(transfer, ticket) = &mut flight.phase else { return };
        *ticket = None;
        let outcome = match &result {
            Err(error) => Err(blocks::status_of(op, error)),
            Ok(()) if flight.is_dropped => Ok(()),
            Ok(()) => transfer.deliver(&shared.memory, &queue.is_live, &buffer),
        };
        self.spare.push(buffer);
        match outcome {
            Ok(()) => self.step(shared, queue, at, now),
            Err(status) => flight.finish(now, status, 0),
        }
    }

    /// Posts the completions whose time has come.
    fn post(&mut self, shared: &Shared, queue: &SubmissionQueue) {
        let now = shared.env.clock.now();
        let mut at = 0;
        while at < self.flights.len() {
            let Phase::Finished { at: due, status, result } = self.flights[at].phase else {
                at += 1;
                continue;
            };
            if due > now {
                at += 1;
                continue;
            }
            let flight = self.flights.swap_remove(at);
            let id = flight.entry.id();
            if flight.is_answered {
                continue;
            }
            if flight.fault == Some(NvmeFault::UnknownCommand) {
                self.answers.push((self.unknown(id), status::SUCCESS, 0));
            }
            self.answers.push((id, status, result));
            if flight.fault == Some(NvmeFault::Twice) {
                self.answers.push((id, status, result));
            }
        }
        let head = queue.head.load(Ordering::Acquire);
        let answers = self.answers.drain(..);
        let answers = answers
            .map(|(id, status, result)| Answer { result, queue: queue.id, head, id, status })
            .collect::<Vec<_>>();
        queue.completion.settle(shared);
        if !answers.is_empty() {
            queue.completion.post(shared, answers);
        }
        // No more than the host has had in flight at a time.
        self.spare.truncate(queue.entries as usize);
    }

    /// Returns a number that no command has.
    fn unknown(&self, id: u16) -> u16 {
        let is_free = |free: &u16| *free != id && self.flights.iter().all(|flight| flight.entry.id() != *free);
        (0..u16::MAX).rev().find(is_free).unwrap_or(u16::MAX)
    }

    /// Ends a command early, where that is possible. Its answer, that it was aborted, comes at the end of the round.
    pub(super) fn abort(&mut self, shared: &Shared, id: u16) -> bool {
        let is_it = |flight: &&mut Flight| !flight.is_answered && flight.entry.id() == id;
        let Some(flight) = self.flights.iter_mut().find(is_it) else { return false };
        match &flight.phase {
            Phase::Held(_) | Phase::Lost => {
                flight.phase = Phase::Finished { at: Duration::ZERO, status: status::ABORTED, result: 0 };
                flight.fault = None;
                true
            }
            // A drive may be too late. What it has begun may take effect, too.
            Phase::Below(..) if lock(&shared.plan).either() => {
                (flight.is_answered, flight.is_dropped) = (true, true);
                self.answers.push((id, status::ABORTED, 0));
                true
            }
            Phase::Below(..) | Phase::Finished { .. } => false,
        }
    }

    /// Returns the numbers of the commands that are not answered yet.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = u16> + '_ {
        self.flights.iter().filter(|flight| !flight.is_answered).map(|flight| flight.entry.id())
    }

    pub(super) fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        for flight in &self.flights {
            match &flight.phase {
                Phase::Held(at) | Phase::Finished { at, .. } => {
                    waits.due = Some(waits.due.map_or(*at, |due| due.min(*at)));
                }
                Phase::Below(_, Some((namespace, _))) => match self.below[*namespace].as_ref() {
                    Some(Below { watch: Some(watch), .. }) => {
                        if !waits.watches.iter().any(|known| Arc::ptr_eq(known, watch)) {
                            waits.watches.push(Arc::clone(watch));
                        }
                    }
                    _ => waits.is_unwatched = true,
                },
                Phase::Below(_, None) => waits.due = Some(Duration::ZERO),
                Phase::Lost => {}
            }
        }
        waits
    }
}

impl Flight {
    fn finish(&mut self, now: Duration, status: u16, result: u32) {
        self.phase = match self.fault {
            Some(NvmeFault::NoAnswer) if !self.is_answered => Phase::Lost,
            Some(NvmeFault::Late(delay)) => Phase::Finished { at: now + delay, status, result },
            _ => Phase::Finished { at: now, status, result },
        };
    }
}

fn read_entry(shared: &Shared, queue: &SubmissionQueue, place: u32) -> Result<Entry, Stopped> {
    let start = queue.ring + ENTRY_BYTES as u64 * u64::from(place);
    let mut bytes = [0; ENTRY_BYTES];
    for (number, word) in bytes.chunks_exact_mut(4).enumerate() {
        word.copy_from_slice(&shared.memory.load(&queue.is_live, start + 4 * number as u64)?.to_le_bytes());
    }
    Ok(Entry::new(queue.id == 0, bytes))
}
