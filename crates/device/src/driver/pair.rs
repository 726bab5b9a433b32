//! A submission ring and a completion ring, with their doorbells.
//!
//! 1. The driver writes a command at the tail of the submission ring and the new tail to its doorbell.
//! 2. The controller writes an answer at its place in the completion ring. The answer's phase bit differs from that of
//!    the ring's last round, so the driver sees new answers without a register.
//! 3. The driver writes how far it has read to the doorbell of the completion ring.
//!
//! A ring has more entries than commands may be in flight, so neither can overflow.
//!
//! **Doorbells in memory** (base specification, "Doorbell Buffer Config"). Where the controller has them, the driver
//! writes the new tail to memory. It rings the register only if the tail passes the value up to which the controller
//! said that it looks by itself.

use super::function::Function;
use super::space::{DmaSpace, SharedWords};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

pub(super) const COMMAND_BYTES: usize = 64;
pub(super) const ANSWER_BYTES: usize = 16;
/// The register of the first doorbell.
const DOORBELLS: u32 = 0x1000;
/// The phase bit in the last word of an answer. The status follows it.
const PHASE: u32 = 1 << 16;

/// The sixteen words of a command.
pub(super) type Command = [u32; 16];

/// The controller's answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The command's identifier.
    pub(super) id: u16,
    /// Status code, its type, and what may be done about it; zero is success.
    pub(super) status: u32,
    /// The first word, which some commands fill.
    pub(super) result: u32,
}

/// Doorbells in memory, for all queues of a controller.
#[derive(Debug)]
pub(super) struct MemoryDoorbells {
    pub(super) values: SharedWords,
    /// The values up to which the controller looks by itself.
    pub(super) events: SharedWords,
}

/// One doorbell.
#[derive(Debug)]
struct Doorbell {
    register: u32,
    /// The place in memory, if there are doorbells in memory.
    at: usize,
    value: u32,
}

impl Doorbell {
    /// Tells the controller a new value; returns true if that took its register.
    fn ring(&mut self, function: &dyn Function, memory: Option<&MemoryDoorbells>, value: u32) -> bool {
        let before = std::mem::replace(&mut self.value, value);
        if let Some(memory) = memory {
            // A ring that has not moved is not rung, and all that was written before is seen with the new value.
            memory.values.store(self.at, value);
            // The value is there before the driver reads up to where the controller looks.
            fence(Ordering::SeqCst);
            let event = memory.events.load(self.at) as u16;
            let (value, before) = (value as u16, before as u16);
            if value.wrapping_sub(event).wrapping_sub(1) >= value.wrapping_sub(before) {
                return false;
            }
        }
        function.write(self.register, value);
        true
    }
}

/// A pair of rings. One thread at a time uses it.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) id: u16,
    entries: u32,
    submissions: SharedWords,
    completions: SharedWords,
    tail: u32,
    head: u32,
    /// The phase bit of answers that are new.
    phase: u32,
    /// Commands that the controller was not told about.
    unrung: bool,
    submission_doorbell: Doorbell,
    completion_doorbell: Doorbell,
    memory_doorbells: Option<Arc<MemoryDoorbells>>,
}

impl Pair {
    /// Returns rings with that many entries. `stride` is the distance of doorbells in bytes.
    pub(super) fn new(space: &Arc<DmaSpace>, id: u16, entries: u32, stride: u32) -> io::Result<Pair> {
        let doorbell =
            |number: u32| Doorbell { register: DOORBELLS + number * stride, at: (number * stride) as usize, value: 0 };
        Ok(Pair {
            id,
            entries,
            submissions: SharedWords::new(space, entries as usize * COMMAND_BYTES)?,
            completions: SharedWords::new(space, entries as usize * ANSWER_BYTES)?,
            tail: 0,
            head: 0,
            phase: PHASE,
            unrung: false,
            submission_doorbell: doorbell(2 * u32::from(id)),
            completion_doorbell: doorbell(2 * u32::from(id) + 1),
            memory_doorbells: None,
        })
    }

    /// Forgets everything, for a controller that has forgotten the rings.
    pub(super) fn renew(&mut self, memory_doorbells: Option<Arc<MemoryDoorbells>>) {
        self.completions.clear();
        (self.tail, self.head, self.phase, self.unrung) = (0, 0, PHASE, false);
        for doorbell in [&mut self.submission_doorbell, &mut self.completion_doorbell] {
            doorbell.value = 0;
            if let Some(memory) = &memory_doorbells {
                memory.values.store(doorbell.at, 0);
                memory.events.store(doorbell.at, 0);
            }
        }
        self.memory_doorbells = memory_doorbells;
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the addresses of the submission ring and of the completion ring.
    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.submissions.address(), self.completions.address())
    }

    /// Puts a command into the submission ring. [`ring`](Pair::ring) tells the controller.
    pub(super) fn push(&mut self, command: &Command) {
        self.submissions.store_all(self.tail as usize * COMMAND_BYTES, command);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        self.unrung = true;
    }

    /// Tells the controller of new commands, if there are any; returns true if that took a register.
    pub(super) fn ring(&mut self, function: &dyn Function) -> bool {
        let unrung = std::mem::take(&mut self.unrung);
        unrung && self.submission_doorbell.ring(function, self.memory_doorbells.as_deref(), self.tail)
    }

    /// Takes the next answer, if there is one. [`release`](Pair::release) gives its place back.
    pub(super) fn pop(&mut self) -> Option<Answer> {
        let at = self.head as usize * ANSWER_BYTES;
        // The controller writes the phase bit last, or with all the rest. This load orders those behind it.
        let last = self.completions.load(at + 12);
        if last & PHASE != self.phase {
            return None;
        }
        let result = self.completions.load(at);
        self.head += 1;
        if self.head == self.entries {
            (self.head, self.phase) = (0, self.phase ^ PHASE);
        }
        Some(Answer { id: last as u16, status: last >> 17, result })
    }

    /// Tells the controller that the answers taken so far are read.
    pub(super) fn release(&mut self, function: &dyn Function) {
        self.completion_doorbell.ring(function, self.memory_doorbells.as_deref(), self.head);
    }
}
