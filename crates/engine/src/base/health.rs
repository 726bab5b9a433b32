//! The health of a store: its failure, its end, and the threads that both wake.
//!
//! A store that no longer knows the contents of its disks has *failed*: it takes no more writes until it is opened
//! again. A store that *closes* takes no more calls. Both wake every thread that waits for something of the store.
//!
//! **Guests.** Callers' threads that change versions or delete files are guests. Closing waits for them.

use crate::base::damage::DamagedFiles;
use crate::base::listener::{Listener, StoreEvent};
use crate::base::slow::{Operation, SlowOperations};
use crate::base::stats::Stats;
use crate::base::sync::{lock, panic_text};
use crate::{Error, Result};
use situ_base::Event;
use situ_base::spent::{self, Lap, Part, Spent};
use situ_storage::{Error as StorageError, Volume};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A function that wakes the threads that wait in one part of the store.
type WakeRoom = Box<dyn Fn() + Send + Sync>;

/// See the module's documentation.
pub(crate) struct Health {
    pub(crate) stats: Stats,
    pub(crate) slow: SlowOperations,
    listener: Option<Arc<dyn Listener>>,
    volume: Arc<dyn Volume>,
    damaged: Arc<DamagedFiles>,
    failure: OnceLock<StorageError>,
    closing: AtomicBool,
    guests: Mutex<usize>,
    /// Notified when a guest leaves.
    progress: Arc<dyn Event>,
    rooms: OnceLock<Vec<WakeRoom>>,
}

impl Health {
    pub(crate) fn new(
        listener: Option<Arc<dyn Listener>>,
        slow: SlowOperations,
        volume: Arc<dyn Volume>,
        damaged: Arc<DamagedFiles>,
        progress: Arc<dyn Event>,
    ) -> Arc<Health> {
        Arc::new(Health {
            stats: Stats::default(),
            slow,
            listener,
            volume,
            damaged,
            failure: OnceLock::new(),
            closing: AtomicBool::new(false),
            guests: Mutex::new(0),
            progress,
            rooms: OnceLock::new(),
        })
    }

    /// Counts damage from now on, and tells of it.
    pub(crate) fn count_damage(self: &Arc<Self>) {
        let health = Arc::downgrade(self);
        self.damaged.report_to(Box::new(move |event| {
            let Some(health) = health.upgrade() else { return };
            health.stats.counters.damage_met.add(1);
            event.into_iter().for_each(|event| health.tell(|| event));
        }));
    }

    /// Sets the functions that wake the threads waiting in the store; called once.
    pub(crate) fn wakes(&self, rooms: Vec<WakeRoom>) {
        let is_first = self.rooms.set(rooms).is_ok();
        assert!(is_first, "the rooms of a store are named once");
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> StoreEvent) {
        if let Some(listener) = &self.listener {
            let event = event();
            // The program's bug must not end a thread of the store.
            if catch_unwind(AssertUnwindSafe(|| listener.event(&event))).is_err() {
                self.stats.counters.listener_panics.add(1);
            }
        }
    }

    /// Runs an operation of a caller, which `describe` describes if it was slow. `started` is its beginning, if it is
    /// one of the sample. Returns its outcome, and its end if it is one of the sample.
    #[inline]
    pub(crate) fn watch<T>(
        &self,
        started: Option<Duration>,
        run: impl FnOnce() -> T,
        describe: impl FnOnce(&T) -> Operation,
    ) -> (T, Option<Duration>) {
        let watched = self.begins_watch();
        let outcome = run();
        let ended = self.ends_watch(watched, started, || describe(&outcome));
        (outcome, ended)
    }

    /// Begins to watch an operation. Returns false if operations are not watched, or this is a part of one that is.
    #[inline]
    pub(crate) fn begins_watch(&self) -> bool {
        self.slow.is_on() && spent::begin()
    }

    /// Ends the watch of an operation; arguments and result are as for [`watch`](Health::watch).
    #[inline]
    pub(crate) fn ends_watch(
        &self,
        watched: bool,
        started: Option<Duration>,
        describe: impl FnOnce() -> Operation,
    ) -> Option<Duration> {
        let ended = started.map(|_| self.slow.clock.now());
        if watched {
            let spent = spent::end();
            if spent.is_some() || ended.is_some() {
                let took = started.zip(ended).map(|(started, ended)| ended.saturating_sub(started));
                self.note_if_slow(spent, took, describe);
            }
        }
        ended
    }

    /// Runs an operation, or the rest of it, that has waited for this thread since `begun`.
    pub(crate) fn watch_here<T>(
        &self,
        begun: Option<Duration>,
        run: impl FnOnce() -> T,
        describe: impl FnOnce(&T) -> Operation,
    ) -> T {
        let run = || {
            if let Some(begun) = begun {
                Lap::begun(self.slow.clock.now().saturating_sub(begun)).end(Part::Thread);
            }
            run()
        };
        self.watch(None, run, describe).0
    }

    /// Counts an operation and tells the listener, if the operation was slow.
    #[cold]
    pub(crate) fn note_if_slow(
        &self,
        spent: Option<Spent>,
        took: Option<Duration>,
        describe: impl FnOnce() -> Operation,
    ) {
        if let Some(slow) = self.slow.look(spent, took, describe) {
            self.stats.counters.slow_operations.add(1);
            self.tell(|| StoreEvent::Slow(slow));
        }
    }

    /// Makes the store read-only because `cause` leaves the contents of the disk unknown.
    pub(crate) fn fail(&self, cause: StorageError) {
        if self.failure.set(cause.clone()).is_ok() {
            self.tell(|| StoreEvent::Failed { error: Error::Storage(cause) });
        }
        self.wake_all();
    }

    /// Makes the store read-only if one of its disks takes no more changes until it is opened again. Otherwise all
    /// writes to that disk would fail for ever, and the user would not know why the store does not recover.
    pub(crate) fn fail_if_a_disk_has(&self) {
        if let Some(cause) = self.volume.failure() {
            self.fail(cause);
        }
    }

    /// Makes the store read-only because a thread panicked at `job`, which leaves the store's memory in doubt.
    pub(crate) fn fail_by_panic(&self, job: &str, panic: &(dyn Any + Send)) {
        self.fail(StorageError::Invalid(format!("a bug: the {job} thread panicked: {}", panic_text(panic))));
    }

    /// Counts a failure of work that is tried again, and notifies the listener.
    pub(crate) fn note_job_failure(&self, job: &str, error: Error) {
        self.stats.counters.job_failures.add(1);
        self.damaged.note(&error);
        self.tell(|| StoreEvent::JobFailed { job: job.to_owned(), error });
        self.fail_if_a_disk_has();
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get().map(|cause| Error::Failed { cause: Box::new(cause.clone()) })
    }

    pub(crate) fn wake_all(&self) {
        self.rooms.get().into_iter().flatten().for_each(|wake| wake());
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Begins closing. Returns true for the one caller that has to do it.
    pub(crate) fn begin_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    /// Checks that the store takes calls.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Checks that the store takes changes, if it was opened for them.
    #[inline]
    pub(crate) fn check_sound(&self) -> Result<()> {
        self.check_open()?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Lets a caller's thread change versions and delete files, which only the store's own threads do otherwise.
    /// Closing waits until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Guest<'_>> {
        let mut guests = lock(&self.guests);
        self.check_open()?;
        *guests += 1;
        Ok(Guest { health: self })
    }

    /// Waits until no caller's thread is inside. Once the store is closing, no further thread enters.
    pub(crate) fn wait_for_guests(&self) {
        loop {
            let seen = self.progress.generation();
            if *lock(&self.guests) == 0 {
                return;
            }
            self.progress.wait(seen, None);
        }
    }
}

/// A caller's thread inside the store; see [`Health::enter`].
pub(crate) struct Guest<'a> {
    health: &'a Health,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        *lock(&self.health.guests) -= 1;
        self.health.progress.notify();
    }
}
