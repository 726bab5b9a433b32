//! Requests that are sent again when a connection is lost.

use super::Shared;
use crate::error::CallError;
use crate::message::Call;
use crate::peer::Peer;
use situ_base::{Event, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After this, a request is sent again to a node that was too busy for it.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Reads that may wait to be tried again.
const AGAIN_MAX: usize = 8192;

/// A connection on which a request is tried.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) peer: Peer,
    /// Which connection it is.
    pub(crate) epoch: u64,
    /// The daemon's and the machine's start.
    pub(crate) daemon: [u8; 16],
    pub(crate) machine: [u8; 16],
    /// Until when the caller waits.
    pub(crate) deadline: Duration,
    /// The request may have reached the node before.
    pub(crate) is_again: bool,
    pub(crate) now: Duration,
}

impl Attempt {
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.now)
    }

    pub(crate) fn ask<C: Call>(&self, call: &C) -> Result<C::Answer, CallError> {
        self.peer.ask(call, self.left())
    }
}

impl Shared {
    /// The connection, if it is alive.
    pub(crate) fn alive(&self) -> Option<Attempt> {
        let state = lock(&self.state);
        let connection = state.connection.as_ref().filter(|connection| connection.peer().lost().is_none())?;
        let welcome = state.welcome.as_ref()?;
        let now = self.now();
        Some(Attempt {
            peer: connection.peer().clone(),
            epoch: state.epoch,
            daemon: welcome.daemon,
            machine: welcome.machine,
            deadline: now,
            is_again: false,
            now,
        })
    }

    /// Waits for a connection.
    pub(crate) fn connected(&self, deadline: Duration) -> Result<Attempt, CallError> {
        loop {
            let seen = self.changed.generation();
            if let Some(attempt) = self.alive() {
                return Ok(Attempt { deadline, ..attempt });
            }
            let (is_closed, hurry_until) = {
                let state = lock(&self.state);
                (state.is_closed, state.hurry_until)
            };
            let until = hurry_until.map_or(deadline, |hurry| hurry.min(deadline));
            let left = until.saturating_sub(self.now());
            if left.is_zero() || is_closed {
                return Err(self.gone());
            }
            self.changed.wait(seen, Some(left));
        }
    }

    /// Returns the error that there is no connection, since when and why.
    fn gone(&self) -> CallError {
        let (since, why) = self.lost().unwrap_or_default();
        let why = format!("no answer for {:.1} s; {why}", since.as_secs_f64());
        CallError::Lost { node: self.node(), why }
    }

    /// Tries a request until it is answered or the patience is over. `request` may run several times.
    pub(crate) fn retry<T>(
        &self,
        patience: Duration,
        request: impl FnMut(&Attempt) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.retry_until(self.now() + patience, request)
    }

    pub(crate) fn retry_until<T>(
        &self,
        deadline: Duration,
        mut request: impl FnMut(&Attempt) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut is_again = false;
        loop {
            let attempt = Attempt { is_again, ..self.connected(deadline)? };
            let answer = request(&attempt);
            let is_over = self.now() >= deadline;
            match answer {
                Err(CallError::Lost { .. }) if !is_over => is_again = true,
                Err(CallError::Busy(_)) if !is_over => {
                    is_again = true;
                    self.options.env.clock.sleep(BUSY_PAUSE);
                }
                // The words of a lost node, with the time since when it is silent.
                Err(CallError::Lost { .. }) => return Err(self.gone()),
                Err(error) => {
                    self.note_fenced(&error);
                    return Err(error);
                }
                answer => return answer,
            }
        }
    }
}

type Job = Box<dyn FnOnce(&Shared) + Send>;

/// Submitted reads that have to be tried again: their thread may wait, those that complete reads may not.
pub(super) struct Again {
    jobs: Mutex<Jobs>,
    event: Arc<dyn Event>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_closed: bool,
}

impl Again {
    pub(super) fn new(event: Arc<dyn Event>) -> Again {
        Again { jobs: Mutex::default(), event }
    }

    /// Ends the thread. What waits is dropped, which completes it with an error.
    pub(super) fn close(&self) {
        let mut jobs = lock(&self.jobs);
        jobs.is_closed = true;
        let waiting = std::mem::take(&mut jobs.waiting);
        drop(jobs);
        drop(waiting);
        self.event.notify();
    }
}

impl Shared {
    /// Has the thread for second tries run a job. A job that there is no place for is dropped.
    pub(crate) fn try_again(&self, job: impl FnOnce(&Shared) + Send + 'static) {
        let job: Job = Box::new(job);
        let mut jobs = lock(&self.again.jobs);
        if jobs.is_closed || jobs.waiting.len() >= AGAIN_MAX {
            drop(jobs);
            return drop(job);
        }
        jobs.waiting.push_back(job);
        drop(jobs);
        self.again.event.notify();
    }
}

/// Runs jobs until the client is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    loop {
        let seen = shared.again.event.generation();
        let (job, is_closed) = {
            let mut jobs = lock(&shared.again.jobs);
            (jobs.waiting.pop_front(), jobs.is_closed)
        };
        match job {
            Some(job) => job(shared),
            None if is_closed => return,
            None => {
                shared.again.event.wait(seen, None);
            }
        }
    }
}
