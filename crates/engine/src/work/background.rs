//! The store's own threads.
//!
//! | thread | does |
//! |---|---|
//! | `situ-flush` | makes the next log file ready, flushes sealed memtables, deletes dead files and tells a raw disk of the room, watches the log's size, measures the disks if there are two |
//! | `situ-compact` (one or more) | picks and runs compactions |
//! | `situ-log` (three, of which one or more work) | carry asynchronous writes through log and epilogue (`loggers.rs`) |
//! | `situ-admit` | begins the asynchronous writes that had to wait, wakes their futures |
//!
//! Threads that read for futures (`future.rs`), and `situ-locks`, which ends the waits of futures for locks
//! (`transaction/alarm.rs`), are started when they are first needed.
//!
//! Each sleeps on an event when it finds nothing to do; an idle store uses no processor time. A job that fails is tried
//! again after a pause that doubles up to [`PAUSE_MS_MAX`], or, if the failure is its own, by itself later
//! (`postpone.rs`); one that panics makes the store read-only.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::core::Core;
use crate::pipeline::commit::Level0;
use crate::pipeline::loggers::LOGGERS_MAX;
use crate::pipeline::troubles::{Trouble, Troubles};
use crate::{Error, Result};
use situ_device::JobHandle;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAUSE_MS_MIN: u64 = 50;
const PAUSE_MS_MAX: u64 = 5000;

/// The threads of one open store.
pub(crate) struct Background {
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

impl Background {
    /// # Errors
    /// A thread cannot be had. Those that were have ended by then, so the volumes can be given back.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Background> {
        let background = Background { threads: Mutex::new(Vec::new()) };
        background.start_all(core).inspect_err(|_| {
            core.health.begin_closing();
            core.health.wake_all();
            background.join(core);
            // As in closing: the thread of a compaction is a little longer there than the compaction.
            core.scheduler.close();
        })?;
        Ok(background)
    }

    fn start_all(&self, core: &Arc<Core>) -> Result<()> {
        self.spawn(core, "situ-flush", |core| serve(core, &FLUSH))?;
        for _ in 0..core.options.compaction_threads.max(1) {
            self.spawn(core, "situ-compact", |core| serve(core, &COMPACT))?;
        }
        for carry in [carry_writes::<0>, carry_writes::<1>, carry_writes::<2>] as [fn(&Arc<Core>); LOGGERS_MAX] {
            self.spawn(core, "situ-log", carry)?;
        }
        self.spawn(core, "situ-admit", admit_writes)
    }

    fn spawn(&self, core: &Arc<Core>, name: &str, body: fn(&Arc<Core>)) -> Result<()> {
        let owned = Arc::clone(core);
        let handle = core.env.executor.spawn(
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
    pub(crate) fn join(&self, core: &Core) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            if let Err(panic) = thread.join() {
                core.health.note_job_failure("background thread", Error::Invalid(panic));
            }
        }
    }
}

/// What a thread does again and again.
struct Duty {
    job: &'static str,
    /// True if it found work.
    turn: fn(&Arc<Core>) -> Result<bool>,
    trouble: fn(&mut Troubles) -> &mut Trouble,
    /// How long the thread may sleep when it finds no work.
    idle_for: fn(&Core) -> Option<Duration>,
    /// Whether the pause after a failure is to end early.
    ends_pause: fn(&Core) -> bool,
}

const FLUSH: Duty = Duty {
    job: "flush",
    turn: flush_turn,
    trouble: |troubles| &mut troubles.flush,
    idle_for: |core| core.placement.as_ref().and_then(|placement| placement.next_sample_in()),
    // The flush gives back the room that the failure was about.
    ends_pause: |core| lock(&core.pipeline.troubles).only_log_fails && core.pipeline.a_flush_is_due_that_frees_log(),
};

const COMPACT: Duty = Duty {
    job: "compact",
    turn: Core::compact_one,
    trouble: |troubles| &mut troubles.compaction,
    idle_for: |core| core.next_rest_ends_in(),
    ends_pause: |_| false,
};

/// Does a duty as long as there is work, sleeps while there is none, and ends when the store closes.
fn serve(core: &Arc<Core>, duty: &Duty) {
    let Duty { job, turn, trouble, idle_for, ends_pause } = *duty;
    let event = &core.pipeline.work;
    let mut pause_ms = 0;
    while !core.health.is_closing() {
        let seen = event.generation();
        if core.health.failure().is_some() {
            // Deletes nothing then, but closes what nobody reads any more.
            core.versions.delete_obsolete();
            // Asked after the generation: what tells of closing may have come before it.
            if !core.health.is_closing() {
                event.wait(seen, None);
            }
            continue;
        }
        match guarded(core, job, || turn(core), false) {
            Ok(worked) => {
                if pause_ms > 0 {
                    trouble(&mut lock(&core.pipeline.troubles)).error = None;
                    core.pipeline.progress.notify();
                    core.health.tell(|| StoreEvent::JobRecovered { job: job.to_owned() });
                }
                pause_ms = 0;
                if !worked && !core.health.is_closing() {
                    event.wait(seen, idle_for(core));
                }
            }
            Err(Error::Closed | Error::KeyspaceDropped { .. }) => {}
            Err(error) => {
                // First: a caller that sees the trouble finds the damage noted, and the listener told.
                core.health.note_job_failure(job, error.clone());
                {
                    let mut troubles = lock(&core.pipeline.troubles);
                    let trouble = trouble(&mut troubles);
                    trouble.error = Some(error);
                    trouble.pausing += 1;
                }
                core.pipeline.progress.notify();
                pause_ms = (pause_ms * 2).clamp(PAUSE_MS_MIN, PAUSE_MS_MAX);
                pause(core, pause_ms, ends_pause);
                trouble(&mut lock(&core.pipeline.troubles)).pausing -= 1;
            }
        }
    }
}

/// Runs a turn. A panic in it leaves the store's memory in doubt: the store takes no more writes, and whoever waits is
/// told so, instead of waiting for a thread that has ended.
fn guarded<T>(core: &Core, job: &str, turn: impl FnOnce() -> Result<T>, after_panic: T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|panic| {
        core.health.fail_by_panic(job, &*panic);
        Ok(after_panic)
    })
}

/// A logger. Unlike the others it goes on after a failure and ends only when nothing is left that it has to carry:
/// whoever waits for an asynchronous write is owed an answer, and writes behind it in the queue have theirs only then.
fn carry_writes<const NUMBER: usize>(core: &Arc<Core>) {
    let event = core.pipeline.loggers.event(NUMBER);
    loop {
        let seen = event.generation();
        // Asked before: a write that was admitted before the store began to close is in the queue by then.
        let closing = core.health.is_closing();
        core.pipeline.loggers.begin_turn();
        while guarded(core, "log", || Ok(core.pipeline.carry_futures()), false).unwrap_or(false)
            && (NUMBER == 0 || core.pipeline.loggers.another_pays())
        {}
        core.pipeline.loggers.end_turn();
        if closing {
            return;
        }
        event.wait(seen, None);
    }
}

/// The admission thread. It ends when the store closes, and leaves nobody in the waiting room.
fn admit_writes(core: &Arc<Core>) {
    loop {
        // Asked before: the turn that follows then closes the room.
        let closing = core.health.is_closing();
        // A panic has been noted as the store's failure, and the next turn answers with it.
        let waits = guarded(core, "admission", || Ok(core.pipeline.admit_first()), None).unwrap_or(None);
        if closing {
            return;
        }
        // Closing may have begun, and told so, between the two: then what was seen is too new to wait for.
        if let Some((seen, timeout)) = waits
            && !core.health.is_closing()
        {
            core.pipeline.progress.wait(seen, timeout);
        }
    }
}

/// Sleeps through notifications, until the store closes or the pause ends early.
fn pause(core: &Core, ms: u64, ends: fn(&Core) -> bool) {
    let until = core.env.clock.now() + Duration::from_millis(ms);
    loop {
        let seen = core.pipeline.work.generation();
        let left = until.saturating_sub(core.env.clock.now());
        if left.is_zero() || core.health.is_closing() || ends(core) {
            return;
        }
        core.pipeline.work.wait(seen, Some(left));
    }
}

fn flush_turn(core: &Arc<Core>) -> Result<bool> {
    core.update_debt();
    core.placement.iter().for_each(|placement| placement.judge());
    core.versions.delete_obsolete();
    // On a full disk it is the flush that makes room for the next log file.
    let prepared = match core.pipeline.log_wanted.swap(false, Ordering::AcqRel) {
        true => {
            let prepared = core.pipeline.prepare_log(0);
            core.pipeline.log_wanted.fetch_or(!matches!(prepared, Ok(true)), Ordering::AcqRel);
            prepared.map(drop)
        }
        false => Ok(()),
    };
    let flushed = core.flush_one().inspect_err(|_| lock(&core.pipeline.troubles).only_log_fails = false)?;
    if flushed {
        return Ok(true);
    }
    if let Err(error) = prepared {
        return prepare_log_in_little_room(core, error)
            .inspect_err(|_| lock(&core.pipeline.troubles).only_log_fails = true);
    }
    core.limit_log()?;
    Ok(core.versions.volume.tidy())
}

/// A turn in which no log file of the ordinary length could be made ready, for the reason `error`, and no memtable is to be flushed.
fn prepare_log_in_little_room(core: &Core, error: Error) -> Result<bool> {
    if !error.is_no_space() {
        return Err(error);
    }
    // Before the file is there: a writer that rotates to it may want the next one.
    core.pipeline.log_wanted.store(false, Ordering::Release);
    if matches!(core.pipeline.goes_on_in_a_short_log(0), Ok(true)) {
        return Ok(true);
    }
    core.pipeline.log_wanted.store(true, Ordering::Release);
    if core.pipeline.seal_for_room()? { Ok(true) } else { Err(error) }
}

impl Core {
    /// If log files take more room than they may, seals the memtable that holds back the oldest one.
    fn limit_log(&self) -> Result<()> {
        let Some(log) = &self.pipeline.log else { return Ok(()) };
        let current = lock(&self.pipeline.commit).log_number;
        // An area of its own bounds it, too, well before it is full: what an idle memtable holds back, no flush of others frees.
        let in_area = self.pipeline.log_area_bytes(log).is_some_and(|area| log.held_bytes() > area / 4 * 3);
        if !in_area && log.metrics().file_bytes <= self.options.log_bytes_max {
            return Ok(());
        }
        match self.pipeline.holder_of_oldest_log() {
            // The log's limit comes before that of level 0: the log is everybody's. If its memtables are all full, a flush is due anyway, and this is looked at again after it.
            Some((log, keyspace)) if log < current => self.pipeline.try_seal(&keyspace, Level0::Ignored).map(drop),
            _ => Ok(()),
        }
    }

    /// Whether background work has failed and not succeeded since.
    pub(crate) fn trouble(&self) -> Option<Error> {
        let failing = {
            let troubles = lock(&self.pipeline.troubles);
            troubles.flush.error.clone().or_else(|| troubles.compaction.error.clone())
        };
        failing.or_else(|| self.versions.keyspaces().iter().find_map(|keyspace| keyspace.postponed_error()))
    }

    /// Whether a manual compaction holds others back.
    pub(crate) fn compactions_are_paused(&self) -> bool {
        self.versions.keyspaces().iter().any(|keyspace| keyspace.compactions_paused.load(Ordering::Acquire) > 0)
    }
}
