//! The gate between workers and a thread that changes the state of all buckets.
//!
//! A worker passes through the gate with each batch. The keeper closes the gate for a checkpoint or a group of splits,
//! and has then all buckets for itself: no batch is half done. Clients do not notice, as long as there is room for
//! their writes in memory.
//!
//! **Invariants.** While the gate is closed no worker is inside. One thread at a time closes it. Workers that have
//! waited at the closed gate go through before it is closed again. So a check, which closes the gate for each few
//! buckets, holds no worker up for long.
//! **Threads.** Waits are waits for an event, with no lock held.

use situ_base::{Env, Event, lock};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The interval at which a thread that waits for the gate looks for a hindrance.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    inside: usize,
    closed: bool,
    /// Workers that have found the gate closed and have not gone in yet.
    waiting: usize,
}

/// The right to change buckets of one partition.
pub(crate) struct Inside<'a>(&'a Gate);

/// The right to change everything.
pub(crate) struct Closed<'a>(&'a Gate);

impl Gate {
    pub(crate) fn new(env: &Env) -> Gate {
        Gate { state: Mutex::default(), changed: env.executor.event() }
    }

    /// Waits until the gate is open, and goes in.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut waits = false;
        loop {
            let seen = self.changed.generation();
            {
                let mut state = lock(&self.state);
                if !state.closed {
                    state.inside += 1;
                    state.waiting -= usize::from(waits);
                    break;
                }
                state.waiting += usize::from(!std::mem::replace(&mut waits, true));
            }
            self.changed.wait(seen, None);
        }
        if waits {
            self.changed.notify();
        }
        Inside(self)
    }

    /// Closes the gate when no other thread has it closed and no worker waits at it. Then waits until no worker is
    /// inside.
    pub(crate) fn close(&self) -> Closed<'_> {
        let Ok(closed) = self.close_unless(|| None::<Infallible>);
        closed
    }

    /// Closes the gate as [`close`](Gate::close) does. While another thread has the gate closed, a hindrance ends the
    /// wait: that thread may wait for space.
    pub(crate) fn close_unless<E>(&self, hindrance: impl Fn() -> Option<E>) -> Result<Closed<'_>, E> {
        loop {
            let seen = self.changed.generation();
            if let Some(hindrance) = hindrance() {
                return Err(hindrance);
            }
            {
                let mut state = lock(&self.state);
                if !state.closed && state.waiting == 0 {
                    state.closed = true;
                    break;
                }
            }
            // A hindrance sends no notification here.
            self.changed.wait(seen, Some(LOOK_EVERY));
        }
        let closed = Closed(self);
        loop {
            let seen = self.changed.generation();
            if lock(&self.state).inside == 0 {
                return Ok(closed);
            }
            self.changed.wait(seen, None);
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).inside -= 1;
        self.0.changed.notify();
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).closed = false;
        self.0.changed.notify();
    }
}
