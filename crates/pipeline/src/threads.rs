//! The bodies of the threads that serve a pipeline. The owner of the store starts them and joins them: one for the
//! admission of asynchronous writes, and [`LOGGERS_MAX`](crate::LOGGERS_MAX) loggers.
//!
//! **Failure.** A panic in a turn fails the store ([`Environment::fail`]). The thread goes on: all that wait are owed
//! an answer.
//!
//! **End.** The threads end when the store [closes](Environment::is_closing) and they were woken.

use crate::environment::Environment;
use crate::pipeline::Pipeline;
use situ_base::panic_text;
use situ_log::Log;
use situ_storage::Error as StorageError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the error that fails a store in which the thread that does `job` has panicked.
pub(crate) fn panicked(job: &str, panic: &(dyn Any + Send)) -> StorageError {
    StorageError::Invalid(format!("a bug: the {job} thread panicked: {}", panic_text(panic)))
}

impl<E: Environment> Pipeline<E> {
    /// Runs logger `number`, below [`LOGGERS_MAX`](crate::LOGGERS_MAX). It goes on after a failure and ends only when
    /// nothing is left that it has to carry. The caller of an asynchronous write is owed an answer, and writes behind
    /// it in the queue have theirs only then.
    pub fn carry_writes(&self, number: usize) {
        let event = self.loggers.event(number);
        let mut flights = self.log.as_ref().filter(|_| number == 0).map(Log::flights);
        loop {
            let seen = event.generation();
            // Asked before: a write that was admitted before the store began to close is in the queue by then.
            let closing = self.environment.is_closing();
            self.loggers.begin_turn();
            match &mut flights {
                Some(flights) => while self.guarded("log", || self.keep_flying(flights), false) {},
                None => while self.guarded("log", || self.carry_futures(), false) && self.loggers.another_pays() {},
            }
            self.loggers.end_turn();
            if closing {
                return;
            }
            let rests = (number == 0 && self.loggers.is_idle()).then(|| self.env.clock.now());
            event.wait(seen, None);
            if let Some(began) = rests {
                self.loggers.rested(self.env.clock.now().saturating_sub(began));
            }
        }
    }

    /// Runs the admission thread. It ends when the store closes, and leaves no write in the waiting room.
    pub fn admit_writes(&self) {
        loop {
            // Asked before: the turn that follows then closes the room.
            let closing = self.environment.is_closing();
            // A panic has been noted as the store's failure, and the next turn answers with it.
            let waits = self.guarded("admission", || self.admit_first(), None);
            if closing {
                assert!(self.waiting_room.is_empty(), "a write waits, and no thread will begin or refuse it");
                return;
            }
            // Closing may have begun, and told so, between the two: then what was seen is too new to wait for.
            if let Some((seen, timeout)) = waits
                && !self.environment.is_closing()
            {
                self.progress.wait(seen, timeout);
            }
        }
    }

    /// Runs a turn. A panic in it leaves memory in doubt, and the store takes no more writes. All waiting callers get
    /// that error, instead of waiting for a thread that has ended.
    fn guarded<T>(&self, job: &str, turn: impl FnOnce() -> T, after_panic: T) -> T {
        catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|panic| {
            self.environment.fail(panicked(job, &*panic));
            after_panic
        })
    }
}
