//! A running transaction, under the readers that share it.
//!
//! A transaction is *idle*, *away* with a future that waits for a lock, or *ended*. The future gives it back when the
//! wait is over. A transaction that was ended meanwhile is dropped then: the wait is bounded by its lock timeout.
//!
//! **Threads.** One at a time. A second thread, and a task that finds the transaction away, get an error at once.

use crate::errors::{Failure, Result};
use crate::shared::Held;
use std::sync::{Mutex, MutexGuard, PoisonError};

enum State {
    Idle(Box<situ::Transaction>),
    Away,
    Ended,
}

impl State {
    /// Returns the failure of an operation on a transaction that is not idle.
    fn refusal(&self) -> Failure {
        let is_away = matches!(self, State::Away);
        Failure::invalid(if is_away {
            "another task waits for a lock in the transaction"
        } else {
            "the transaction has ended"
        })
    }
}

/// A transaction until it ends. The transaction of each keyspace shares it.
pub(crate) struct Running(Held<Mutex<State>>);

impl Running {
    pub(crate) fn new(transaction: Box<situ::Transaction>) -> Running {
        Running(Held::new(Mutex::new(State::Idle(transaction))))
    }

    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.0.try_lock().map_err(|_| Failure::invalid("another thread is using the transaction"))
    }

    /// Carries out an operation. Call it with the interpreter's lock released.
    pub(crate) fn with<T>(&self, operation: impl FnOnce(&mut situ::Transaction) -> situ::Result<T>) -> Result<T> {
        match &mut *self.state()? {
            State::Idle(transaction) => Ok(operation(transaction)?),
            other => Err(other.refusal()),
        }
    }

    /// Takes the transaction out, and leaves `next` in its place.
    fn take(&self, next: State) -> Result<Box<situ::Transaction>> {
        let mut state = self.state()?;
        match std::mem::replace(&mut *state, next) {
            State::Idle(transaction) => Ok(transaction),
            other => {
                *state = other;
                Err(state.refusal())
            }
        }
    }

    /// Takes the transaction out until it is given back.
    pub(crate) fn lend(&self) -> Result<Box<situ::Transaction>> {
        self.take(State::Away)
    }

    pub(crate) fn give_back(&self, transaction: Box<situ::Transaction>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Away) {
            *state = State::Idle(transaction);
        }
    }

    /// Takes the transaction out for its commit.
    pub(crate) fn end(&self) -> Result<Box<situ::Transaction>> {
        self.take(State::Ended)
    }

    /// Ends the transaction without a trace.
    pub(crate) fn roll_back(&self) -> Result<()> {
        *self.state()? = State::Ended;
        Ok(())
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state().as_deref(), Ok(State::Ended))
    }
}
