//! Ends waits for locks that no thread sleeps through: those of futures, which belong to no runtime and have no clock.
//!
//! One thread, `situ-locks`, started when a future first waits, sleeps until the next one's time is over.

use super::locks::{LockTable, Waiter};
use crate::batch::StoreId;
use crate::closing::belong_to;
use crate::core::lock;
use crate::{Error, Result};
use situ_device::{Env, Event, JobHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// When a wait ends, and which of several that end then.
pub(super) type Due = (Duration, u64);

/// See the [module](self).
pub(crate) struct Alarm {
    store: StoreId,
    state: Mutex<AlarmState>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct AlarmState {
    waits: BTreeMap<Due, Arc<Waiter>>,
    next: u64,
    started: bool,
    thread: Option<Box<dyn JobHandle>>,
    closed: bool,
}

impl Alarm {
    pub(crate) fn new(store: StoreId, env: &Env) -> Alarm {
        Alarm { store, state: Mutex::default(), event: env.executor.event() }
    }

    /// Ends `waiter`'s wait at `at`, unless it has ended by then.
    pub(super) fn set(
        self: &Arc<Alarm>,
        env: &Env,
        locks: &Arc<LockTable>,
        waiter: &Arc<Waiter>,
        at: Duration,
    ) -> Result<Due> {
        let (due, start) = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(Error::Closed);
            }
            let due = (at, state.next);
            state.next += 1;
            state.waits.insert(due, Arc::clone(waiter));
            let start = !state.started;
            state.started = true;
            (due, start)
        };
        if start {
            let (alarm, env_there, locks) = (Arc::clone(self), env.clone(), Arc::clone(locks));
            match env.executor.spawn("situ-locks", Box::new(move || alarm.serve(&env_there, &locks))) {
                Ok(thread) => lock(&self.state).thread = Some(thread),
                Err(error) => {
                    let mut state = lock(&self.state);
                    state.started = false;
                    state.waits.remove(&due);
                    return Err(situ_storage::Error::io("start thread", "situ-locks", error).into());
                }
            }
        }
        self.event.notify();
        Ok(due)
    }

    /// The wait has ended.
    pub(super) fn forget(&self, due: Due) {
        lock(&self.state).waits.remove(&due);
    }

    fn serve(&self, env: &Env, locks: &LockTable) {
        belong_to(self.store);
        loop {
            let seen = self.event.generation();
            let now = env.clock.now();
            let (over, next) = {
                let mut state = lock(&self.state);
                if state.closed {
                    return;
                }
                let left = state.waits.split_off(&(now, u64::MAX));
                let over = std::mem::replace(&mut state.waits, left);
                (over, state.waits.first_key_value().map(|((at, _), _)| *at - now))
            };
            if over.is_empty() {
                self.event.wait(seen, next);
            }
            for waiter in over.values() {
                locks.give_up(waiter);
            }
        }
    }

    /// Ends the thread. The locks have been closed, so that nobody waits any more.
    pub(crate) fn close(&self) {
        let thread = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.waits.clear();
            state.thread.take()
        };
        self.event.notify();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
