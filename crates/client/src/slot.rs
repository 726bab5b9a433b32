//! The place where the result of an asynchronous call appears, once.

use crate::answer::Given;
use crate::error::{Error, Outcome};
use crate::server::Limit;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// The result of a call, or the place where it will be. The first of an answer, an error and the deadline counts.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) limit: Limit,
    only_reads: bool,
    state: Mutex<State>,
    /// Signalled when the call is over.
    over: Condvar,
}

#[derive(Debug)]
struct State {
    server: Arc<str>,
    /// True if the command may be on its way to the server.
    has_begun: bool,
    is_over: bool,
    result: Option<Result<Given, Error>>,
    waker: Option<Waker>,
}

impl Slot {
    pub(crate) fn new(limit: Limit, only_reads: bool, server: Arc<str>) -> Slot {
        let state = State { server, has_begun: false, is_over: false, result: None, waker: None };
        Slot { limit, only_reads, state: Mutex::new(state), over: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Notes that the command may be sent to `server` from now on. Returns false if the call is over.
    pub(crate) fn begin(&self, server: &Arc<str>) -> bool {
        let mut state = self.state();
        if !state.is_over {
            state.has_begun = true;
            state.server = Arc::clone(server);
        }
        !state.is_over
    }

    /// Ends the call, unless it is over.
    pub(crate) fn end(&self, result: Result<Given, Error>) {
        self.end_locked(self.state(), result);
    }

    fn end_locked(&self, mut state: MutexGuard<'_, State>, result: Result<Given, Error>) {
        if state.is_over {
            return;
        }
        state.is_over = true;
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        self.over.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the call because its deadline has passed, unless it is over.
    pub(crate) fn expire(&self) {
        let state = self.state();
        let outcome = if state.has_begun && !self.only_reads { Outcome::Unknown } else { Outcome::NotDone };
        let server = Arc::clone(&state.server);
        self.end_locked(state, Err(Error::Late { server, timeout: self.limit.timeout, outcome }));
    }

    /// Returns the result with the server that it came from, once. Before, notes who is to be woken.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<(Arc<str>, Result<Given, Error>)> {
        let mut state = self.state();
        if let Some(result) = state.result.take() {
            return Poll::Ready((Arc::clone(&state.server), result));
        }
        assert!(!state.is_over, "a reply is not polled after its result");
        match &mut state.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        Poll::Pending
    }

    /// Waits for the result, until the deadline at the latest.
    pub(crate) fn wait(&self) -> (Arc<str>, Result<Given, Error>) {
        let mut state = self.state();
        loop {
            if let Some(result) = state.result.take() {
                return (Arc::clone(&state.server), result);
            }
            assert!(!state.is_over, "a reply is not awaited after its result");
            let left = self.limit.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                self.expire();
                state = self.state();
            } else {
                state = self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}
