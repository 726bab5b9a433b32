//! A unit from outside, behind a wall: what it does wrong stays its own fault.
//!
//! 1. Each call of the unit is caught. A unit that panics is not spoken to again, but for [`close`](Unit::close).
//! 2. The attempts that such a unit held are reported as failed in the next [`poll`](Unit::poll).
//! 3. An answer passes if the unit holds its attempt. So a second answer is dropped, and so is one for an attempt of
//!    another unit.
//!
//! **Threads.** As those of [`Unit`]. The lock is not held while the unit is spoken to.
//! **Failure.** The panic of a unit is an answer of that unit. It neither ends a thread of the store nor takes a job
//! with it.

use crate::decide::DecisionReport;
use crate::ran::Ran;
use crate::unit::{Assignment, Finished, Load, Offer, Refused, Unit};
use situ_base::{Event, lock};
use situ_compaction::{Encoder, Pipelines, Task, TaskError};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// See the module.
pub(crate) struct Guarded {
    inner: Arc<dyn Unit>,
    name: String,
    /// Notified when the unit has panicked: its attempts can be collected.
    event: Arc<dyn Event>,
    /// Attempts that the unit has taken and not answered.
    held: Mutex<BTreeSet<u64>>,
    /// The message of the unit's panic.
    panic: OnceLock<String>,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Unit>, event: Arc<dyn Event>) -> Guarded {
        let name = inner.name().to_owned();
        Guarded { inner, name, event, held: Mutex::default(), panic: OnceLock::new() }
    }

    /// Speaks to the unit; `None` if it has panicked, now or before.
    fn ask<T>(&self, call: impl FnOnce(&dyn Unit) -> T) -> Option<T> {
        if self.panic.get().is_some() {
            return None;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| call(&*self.inner)));
        answer.inspect_err(|payload| self.note_panic(&**payload)).ok()
    }

    fn note_panic(&self, payload: &(dyn std::any::Any + Send)) {
        // The first panic says most.
        let _ = self.panic.set(format!("the unit panicked: {}", situ_base::panic_text(payload)));
        self.event.notify();
    }

    fn trouble(&self) -> String {
        self.panic.get().cloned().unwrap_or_default()
    }

    /// The attempts that went with the unit.
    fn lost(&self) -> Vec<Finished> {
        if self.panic.get().is_none() {
            return Vec::new();
        }
        let fail = |attempt| Finished {
            attempt,
            result: Err(TaskError::Panicked(self.trouble())),
            elapsed: Duration::ZERO,
            ran: Ran::default(),
        };
        std::mem::take(&mut *lock(&self.held)).into_iter().map(fail).collect()
    }
}

impl Unit for Guarded {
    fn name(&self) -> &str {
        &self.name
    }

    fn encoder(&self) -> Encoder {
        self.ask(|unit| unit.encoder()).unwrap_or_default()
    }

    fn offer(&self, task: &Task) -> Offer {
        self.ask(|unit| unit.offer(task)).unwrap_or_else(|| Offer::Unsuited(self.trouble()))
    }

    fn load(&self) -> Load {
        self.ask(|unit| unit.load()).unwrap_or_default()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let attempt = assignment.attempt;
        // First: the unit may answer at once, to another thread.
        lock(&self.held).insert(attempt);
        let taken = self.ask(|unit| unit.submit(assignment)).unwrap_or_else(|| Err(Refused::Gone(self.trouble())));
        if taken.is_err() {
            lock(&self.held).remove(&attempt);
        }
        taken
    }

    fn cancel(&self, attempt: u64) {
        lock(&self.held).remove(&attempt);
        self.ask(|unit| unit.cancel(attempt));
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        let mut answers = Vec::new();
        self.ask(|unit| unit.poll(&mut answers));
        answers.retain(|answer| lock(&self.held).remove(&answer.attempt));
        finished.append(&mut answers);
        finished.append(&mut self.lost());
    }

    fn measured(&self, message: &[u8]) {
        self.ask(|unit| unit.measured(message));
    }

    fn decisions(&self) -> Option<DecisionReport> {
        self.ask(|unit| unit.decisions()).flatten()
    }

    fn pipelines(&self) -> Option<Pipelines> {
        self.ask(|unit| unit.pipelines()).flatten()
    }

    fn close(&self) {
        // Also of one that has panicked: it may hold hosts.
        let _ = catch_unwind(AssertUnwindSafe(|| self.inner.close()));
    }
}
