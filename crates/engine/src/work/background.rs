//! The store's own threads.
//!
//! | thread | does |
//! |---|---|
//! | `situ-flush` | the flusher: log files, flushes, deletions, debts, measurements; see below |
//! | `situ-compact` (one or more) | picks and runs compactions |
//! | `situ-values` | collects and trims segments; only in a store with a value log |
//! | `situ-log` (three; one or more work) | carry asynchronous writes through log and epilogue (`situ-pipeline`) |
//! | `situ-admit` | begins the asynchronous writes that had to wait, wakes their futures |
//!
//! The flusher makes the next log file ready, and flushes sealed memtables. It deletes dead files and tells a raw disk
//! of the room. It pays debts (`debts.rs`). It measures the disks if there are two, and watches their space.
//!
//! Threads that read for futures (`future.rs`), and `situ-locks`, which ends the waits of futures for locks
//! (`rows/alarm.rs`), are started when they are first needed.
//!
//! Each sleeps on an event when it finds nothing to do; an idle store uses no processor time. A job that fails is tried
//! again after a pause that doubles up to [`PAUSE_MS_MAX`], or, if the failure is its own, by itself later
//! (`schedule.rs`). A job that panics makes the store read-only.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::troubles::{Trouble, Troubles};
use crate::work::Work;
use crate::work::separate::may_have_values;
use crate::work::turn::Turn;
use crate::{Error, Result};
use situ_base::JobHandle;
use situ_pipeline::LOGGERS_MAX;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAUSE_MS_MIN: u64 = 50;
const PAUSE_MS_MAX: u64 = 5000;

/// The threads of one open store.
pub(crate) struct Background {
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
    /// True if one of them collects values.
    collects: AtomicBool,
}

impl Background {
    /// # Errors
    /// A thread cannot be had. Those that were have ended by then, so the volumes can be given back.
    pub(crate) fn start(work: &Arc<Work>) -> Result<Background> {
        let background = Background { threads: Mutex::new(Vec::new()), collects: AtomicBool::new(false) };
        background.start_all(work).inspect_err(|_| {
            work.memory.health.begin_closing();
            work.memory.health.wake_all();
            background.join(work);
            // As in closing: the thread of a task is a little longer there than the task.
            work.compactions.land_the_last();
            work.compactions.compactor().close();
        })?;
        Ok(background)
    }

    fn start_all(&self, work: &Arc<Work>) -> Result<()> {
        self.spawn(work, "situ-flush", |work| serve(work, &FLUSH))?;
        for _ in 0..work.compaction_threads.max(1) {
            self.spawn(work, "situ-compact", |work| serve(work, &COMPACT))?;
        }
        for carry in [carry_writes::<0>, carry_writes::<1>, carry_writes::<2>] as [fn(&Arc<Work>); LOGGERS_MAX] {
            self.spawn(work, "situ-log", carry)?;
        }
        if work.memory.versions.keyspaces().iter().any(|keyspace| may_have_values(keyspace)) {
            self.collect_values(work)?;
        }
        self.spawn(work, "situ-admit", admit_writes)
    }

    /// Sees to it that a thread collects values: a keyspace may have some from now on.
    ///
    /// # Errors
    /// A thread cannot be had.
    pub(crate) fn collect_values(&self, work: &Arc<Work>) -> Result<()> {
        if self.collects.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let spawned = self.spawn(work, "situ-values", |work| serve(work, &COLLECT));
        spawned.inspect_err(|_| self.collects.store(false, Ordering::Release))
    }

    fn spawn(&self, work: &Arc<Work>, name: &str, body: fn(&Arc<Work>)) -> Result<()> {
        let owned = Arc::clone(work);
        let handle = work.memory.env.executor.spawn(
            name,
            Box::new(move || {
                crate::base::store_id::belong_to(owned.id);
                body(&owned);
            }),
        );
        let handle = handle.map_err(|e| Error::Storage(situ_storage::Error::io("start thread", name, e)))?;
        lock(&self.threads).push(handle);
        Ok(())
    }

    /// Waits until all threads have ended; they do when the store is closing.
    pub(crate) fn join(&self, work: &Work) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            if let Err(panic) = thread.join() {
                work.memory.health.note_job_failure("background thread", Error::Invalid(panic));
            }
        }
    }
}

/// The repeated work of a thread.
struct Duty {
    job: &'static str,
    turn: fn(&Arc<Work>) -> Result<Turn>,
    trouble: fn(&mut Troubles) -> &mut Trouble,
    /// Returns how long the thread may sleep when it finds no work.
    idle_for: fn(&Work) -> Option<Duration>,
    /// Returns true if the pause after a failure is to end early.
    ends_pause: fn(&Work) -> bool,
    /// The work that goes on during pauses, and in a store that has failed.
    meanwhile: fn(&Arc<Work>),
}

const FLUSH: Duty = Duty {
    job: "flush",
    turn: |work| flush_turn(work).map(Turn::of),
    trouble: |troubles| &mut troubles.flush,
    idle_for: |work| {
        let debts = work.debts.next_look_in();
        work.places.next_tick_in().into_iter().chain(work.memory.space.next_sample_in()).chain(debts).min()
    },
    // The flush gives back the room that the failure was about.
    ends_pause: |work| lock(&work.memory.queue.troubles).only_log_fails && work.memory.queue.gives_log_back(),
    meanwhile: |_| {},
};

const COMPACT: Duty = Duty {
    job: "compact",
    turn: |work| work.compactions.compact_one(),
    trouble: |troubles| &mut troubles.compaction,
    idle_for: |work| {
        let next_turn = work.compactions.compactor().next_turn_in();
        work.schedule.next_rest_ends_in().into_iter().chain(next_turn).min()
    },
    ends_pause: |_| false,
    // What began before the failure ends during the pause.
    meanwhile: |work| work.compactions.land_all(),
};

const COLLECT: Duty = Duty {
    job: "collect values",
    turn: |work| work.collections.turn(),
    trouble: |troubles| &mut troubles.collection,
    idle_for: |work| work.collections.next_look_in(),
    ends_pause: |_| false,
    meanwhile: |_| {},
};

/// Does a duty as long as there is work, sleeps while there is none, and ends when the store closes.
fn serve(work: &Arc<Work>, duty: &Duty) {
    let Duty { job, turn, trouble, idle_for, ends_pause, meanwhile } = *duty;
    let meanwhile = || {
        let once = || {
            meanwhile(work);
            Ok(())
        };
        // A panic has been noted as the store's failure.
        let _ = guarded(work, job, once, ());
    };
    let event = &work.memory.work;
    let mut pause_ms = 0;
    while !work.memory.health.is_closing() {
        let seen = event.generation();
        if work.memory.health.failure().is_some() {
            meanwhile();
            // Deletes nothing then, but closes files that have no readers any more.
            work.memory.versions.delete_obsolete();
            // Asked after the generation: what tells of closing may have come before it.
            if !work.memory.health.is_closing() {
                event.wait(seen, None);
            }
            continue;
        }
        match guarded(work, job, || turn(work), Turn::Idle) {
            Ok(came_to) => {
                // What has only begun may fail as the job before did.
                if pause_ms > 0 && matches!(came_to, Turn::Idle | Turn::Done) {
                    trouble(&mut lock(&work.memory.queue.troubles)).error = None;
                    work.memory.progress.notify();
                    work.memory.health.tell(|| StoreEvent::JobRecovered { job: job.to_owned() });
                    pause_ms = 0;
                }
                if matches!(came_to, Turn::Idle | Turn::Waits) && !work.memory.health.is_closing() {
                    event.wait(seen, idle_for(work));
                }
            }
            Err(Error::Closed | Error::KeyspaceDropped { .. }) => {}
            Err(error) => {
                // First: a caller that sees the trouble finds the damage noted, and the listener told.
                work.memory.health.note_job_failure(job, error.clone());
                {
                    let mut troubles = lock(&work.memory.queue.troubles);
                    let trouble = trouble(&mut troubles);
                    trouble.error = Some(error);
                    trouble.pausing += 1;
                }
                work.memory.progress.notify();
                pause_ms = (pause_ms * 2).clamp(PAUSE_MS_MIN, PAUSE_MS_MAX);
                pause(work, pause_ms, ends_pause, &meanwhile);
                trouble(&mut lock(&work.memory.queue.troubles)).pausing -= 1;
            }
        }
    }
}

/// Runs a turn. A panic in it leaves the store's memory in doubt. The store takes no more writes, and waiting callers
/// get that error, instead of waiting for a thread that has ended.
fn guarded<T>(work: &Work, job: &str, turn: impl FnOnce() -> Result<T>, after_panic: T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|panic| {
        work.memory.health.fail_by_panic(job, &*panic);
        Ok(after_panic)
    })
}

/// Runs a logger. Unlike the others it goes on after a failure.
fn carry_writes<const NUMBER: usize>(work: &Arc<Work>) {
    work.pipeline.carry_writes(NUMBER);
}

/// Runs the admission thread.
fn admit_writes(work: &Arc<Work>) {
    work.pipeline.admit_writes();
}

/// Sleeps until the store closes or the pause ends early. Notifications are answered with what goes on meanwhile.
fn pause(work: &Arc<Work>, ms: u64, ends: fn(&Work) -> bool, meanwhile: &dyn Fn()) {
    let until = work.memory.env.clock.now() + Duration::from_millis(ms);
    loop {
        let seen = work.memory.work.generation();
        meanwhile();
        let left = until.saturating_sub(work.memory.env.clock.now());
        if left.is_zero() || work.memory.health.is_closing() || ends(work) {
            return;
        }
        work.memory.work.wait(seen, Some(left));
    }
}

fn flush_turn(work: &Arc<Work>) -> Result<bool> {
    work.budgets.update();
    work.places.tick();
    work.memory.space.look();
    work.memory.versions.delete_obsolete();
    // On a full disk it is the flush that makes room for the next log file.
    let prepared = work.memory.log_files.prepare_wanted();
    // First: while a busy keyspace always has something to flush, idle ones would hold back the log for good.
    let limited = work.debts.limit_log();
    let flushed = work.flushes.flush_one().inspect_err(|_| lock(&work.memory.queue.troubles).only_log_fails = false)?;
    if flushed
        || work
            .memory
            .versions
            .settle_drops()
            .inspect_err(|_| lock(&work.memory.queue.troubles).only_log_fails = false)?
    {
        return Ok(true);
    }
    if let Err(error) = prepared {
        return prepare_log_in_little_room(work, error)
            .inspect_err(|_| lock(&work.memory.queue.troubles).only_log_fails = true);
    }
    limited?;
    Ok(work.debts.pay_debts()? || work.memory.versions.volume.tidy())
}

/// Runs a turn in which no log file could be made ready, for the reason `error`, and no memtable is to be flushed.
fn prepare_log_in_little_room(work: &Work, error: Error) -> Result<bool> {
    if !error.is_no_space() {
        return Err(error);
    }
    if work.memory.seal_for_room()? { Ok(true) } else { Err(error) }
}
