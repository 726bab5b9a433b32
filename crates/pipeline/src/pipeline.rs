//! The pipeline of one store: its parts, and what others may ask of them.

use crate::budget::Budget;
use crate::commit::Commit;
use crate::environment::Environment;
use crate::group_commit::GroupCommit;
use crate::loggers::Loggers;
use crate::outstanding::{Outstanding, UnderWay};
use crate::parts::{Note, Refusal};
use crate::waiting_room::WaitingRoom;
use situ_base::{Env, Event, lock, wake};
use situ_log::Log;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

/// The limits of the work that a pipeline takes on at a time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Loggers that may work at a time where a log write is a call, up to [`LOGGERS_MAX`](crate::LOGGERS_MAX). With 1,
    /// the log has one write of theirs in flight, also where one logger could have more.
    pub loggers: usize,
    /// Asynchronous requests with which the pipeline [is busy](Pipeline::is_busy).
    pub outstanding: usize,
}

/// See the crate's documentation.
pub struct Pipeline<E: Environment> {
    pub(crate) env: Env,
    pub(crate) environment: Arc<E>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// Notified when the visible sequence number has advanced, and when the store fails or closes.
    pub(crate) published: Arc<dyn Event>,
    /// Notified when there may be room for a write that had none, and when the waiting room has a new first write.
    pub(crate) progress: Arc<dyn Event>,
    /// Asynchronous writes for the loggers.
    pub(crate) loggers: Arc<Loggers>,
    /// The budget of slowed writers.
    pub(crate) budget: Budget,
    /// Asynchronous writes that may not begin yet.
    pub(crate) waiting_room: WaitingRoom<E>,
    /// Asynchronous requests under way.
    pub(crate) outstanding: Arc<Outstanding>,
    /// Synced writers that wait for the log.
    pub(crate) group_commit: GroupCommit,
}

impl<E: Environment> Pipeline<E> {
    /// Returns a pipeline in front of `log`; without a log it refuses all writes. The environment notifies `progress`
    /// when there may be room for a write that had none. Starts no threads.
    pub fn new(
        env: &Env,
        environment: Arc<E>,
        log: Option<Arc<Log>>,
        progress: Arc<dyn Event>,
        limits: Limits,
    ) -> Pipeline<E> {
        Pipeline {
            env: env.clone(),
            environment,
            log,
            published: env.executor.event(),
            progress,
            loggers: Arc::new(Loggers::new(env, limits.loggers)),
            budget: Budget::default(),
            waiting_room: WaitingRoom::default(),
            outstanding: Arc::new(Outstanding::new(limits.outstanding)),
            group_commit: GroupCommit::new(env.executor.cores()),
        }
    }

    /// Returns the environment.
    pub fn environment(&self) -> &Arc<E> {
        &self.environment
    }

    /// Returns the budget of slowed writers.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Wakes all that wait in the pipeline, except for `progress`: to be called when the store fails, and when it
    /// begins to close. It keeps alive what it wakes, and not the pipeline.
    pub fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let (outstanding, loggers) = (Arc::clone(&self.outstanding), Arc::clone(&self.loggers));
        let published = Arc::clone(&self.published);
        move || {
            outstanding.wake();
            loggers.wake_all();
            published.notify();
        }
    }

    /// Checks that writes are taken at all.
    ///
    /// # Errors
    /// The reason why they are not taken.
    #[inline]
    pub fn check_writable(&self) -> Result<(), E::Error> {
        self.writable().map(drop)
    }

    /// Returns the log, if writes are taken at all.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Arc<Log>, E::Error> {
        if self.environment.is_closing() {
            return Err(Refusal::Closed.into());
        }
        if let Some(error) = self.environment.failure() {
            return Err(error);
        }
        self.log.as_ref().ok_or_else(|| Refusal::ReadOnly.into())
    }

    /// Asynchronous writes that wait to begin, and the memory they take.
    pub fn waiting(&self) -> (usize, u64) {
        self.waiting_room.waiting()
    }

    /// Asynchronous requests under way.
    pub fn outstanding(&self) -> usize {
        self.outstanding.count()
    }

    /// Counts a request until the result is dropped.
    pub fn under_way(&self) -> UnderWay {
        UnderWay::begin(&self.outstanding)
    }

    /// Returns true if callers do better to wait ([`ReadyFuture`](crate::ReadyFuture)) than to ask for more.
    pub fn is_busy(&self) -> bool {
        self.outstanding.is_full() || !self.waiting_room.is_empty()
    }

    /// Wakes waiting callers unless the pipeline is busy: the waiting room may have been emptied. To be called without
    /// a lock.
    pub(crate) fn room_left(&self) {
        if self.outstanding.has_waiters() && !self.is_busy() {
            self.outstanding.wake();
        }
    }

    pub(crate) fn lock_commit(&self) -> MutexGuard<'_, Commit<E>> {
        lock(self.environment.commit())
    }

    /// Wakes a task that waits for a write; with no lock held.
    pub(crate) fn wake(&self, waker: Option<Waker>) {
        if waker.is_some_and(|waker| !wake(waker)) {
            self.environment.note(Note::WakerPanicked);
        }
    }
}
