//! Compactions under way: from a claimed job to its end, without a thread of their own.
//!
//! 1. [`begin_job`](Work::begin_job): the job's tables are moved at once, or its tasks go to the compactor.
//! 2. A compaction thread takes turns of the compactor, and lands what has finished: the outputs are installed with one
//!    edit. If a disk has refused, the job is run once more where there is room (`task_host.rs`).
//! 3. The end: claims are given up, what came of the job is counted and told, and its caller, if it has one, gets the
//!    outcome.
//!
//! **Invariants.** A job is in [`Work::jobs`] from its first task on until it lands, so that it lands once. Its claims
//! are given up when it ends, also by a panic.
//!
//! **Threads.** Compaction threads land all jobs, also while they pause after a failure. A caller of a manual
//! compaction lands its own. Closing lands what is left when these have ended.
//!
//! **Failure.** Outputs of a failed job are removed. A job that fails for a reason of its own is postponed
//! (`postpone.rs`).

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::Added;
use crate::work::Work;
use crate::work::compact::Divided;
use crate::work::picker::{Job, bytes_left};
use crate::work::postpone::is_of_the_job;
use crate::work::task_host::{Host, describe, task_error};
use crate::work::throttle::CompactionTurn;
use crate::{Error, Result};
use situ_compaction::{
    DroppedValues, FinishedJob, JobOrder, OutputTable, Priority, TaskHost, TaskOutput, TaskStats, ValueLocation,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum time between closing's looks for jobs that have landed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A job's claim on its tables and keys, given up on drop, also when the job panics.
pub(crate) struct Claimed {
    work: Arc<Work>,
    keyspace: Arc<KeyspaceCore>,
    job: Arc<Job>,
    /// The tables stay claimed.
    is_postponed: bool,
}

impl Claimed {
    pub(crate) fn new(work: &Arc<Work>, keyspace: &Arc<KeyspaceCore>, job: &Arc<Job>) -> Claimed {
        let (work, keyspace, job) = (Arc::clone(work), Arc::clone(keyspace), Arc::clone(job));
        Claimed { work, keyspace, job, is_postponed: false }
    }

    /// Gives up the keys, while the tables rest after a failure of the job's own. Returns what is to be told of that.
    fn postpone(mut self, error: &Error) -> StoreEvent {
        self.is_postponed = true;
        let _scheduling = lock(&self.work.scheduling);
        self.leave_running();
        self.work.postpone(&self.keyspace, &self.job, error)
    }

    fn leave_running(&self) {
        let mut running = lock(&self.keyspace.running);
        for span in self.job.spans() {
            if let Some(at) = running.iter().position(|other| other == span) {
                running.swap_remove(at);
            }
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.is_postponed {
            return;
        }
        let _scheduling = lock(&self.work.scheduling);
        self.job.claim(false);
        self.leave_running();
    }
}

/// The outcome of a job, for the caller of a manual compaction.
pub(crate) type Outcome = Mutex<Option<Result<()>>>;

/// The originator of a job.
pub(crate) struct Begun {
    /// The store's own jobs have a turn.
    pub(crate) turn: Option<CompactionTurn>,
    /// The outcome for the caller that waits for the job, which gets its failure. Without it, a failure of the job's
    /// own is no error of the thread.
    pub(crate) outcome: Option<Arc<Outcome>>,
}

/// A job that a panic has ended has an outcome, too.
impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(outcome) = &self.outcome {
            lock(outcome).get_or_insert(Err(Error::Closed));
        }
    }
}

/// A job whose tasks are with the compactor.
pub(crate) struct JobUnderWay {
    number: u64,
    claimed: Claimed,
    host: Arc<Host>,
    /// The level of each task's output.
    levels: Vec<usize>,
    started: Duration,
    /// It was begun once more after a disk refused.
    has_spilled: bool,
    begun: Begun,
}

/// The results of a job's tasks, in the order of the keys.
#[derive(Default)]
struct Merged {
    tables: Vec<OutputTable>,
    /// The level of each table.
    levels: Vec<usize>,
    stats: TaskStats,
    /// The dropped values of the value log.
    dead: DeadValues,
}

/// Values in the value log that the tables of a job had handles for, and its outputs have not.
#[derive(Default)]
pub(crate) struct DeadValues {
    pub(crate) sums: Vec<DroppedValues>,
    pub(crate) places: Vec<ValueLocation>,
}

impl Merged {
    fn new(levels: &[usize], outputs: Vec<TaskOutput>) -> Merged {
        assert_eq!(levels.len(), outputs.len(), "each task of a job gives one output");
        let mut merged = Merged::default();
        for (level, output) in levels.iter().zip(outputs) {
            merged.levels.extend(output.tables.iter().map(|_| *level));
            merged.tables.extend(output.tables);
            merged.stats.add(&output.stats);
            merged.dead.sums.extend(output.dropped_values);
            merged.dead.places.extend(output.dropped_places);
        }
        merged
    }

    fn by_level(&self) -> impl Iterator<Item = (usize, &OutputTable)> {
        self.levels.iter().copied().zip(&self.tables)
    }
}

impl Work {
    /// Begins a claimed job. Its number comes back, unless it has ended already.
    pub(crate) fn begin_job(
        self: &Arc<Self>,
        keyspace: Arc<KeyspaceCore>,
        job: Job,
        begun: Begun,
    ) -> Result<Option<u64>> {
        self.health.tell(|| StoreEvent::CompactionBegun {
            keyspace: keyspace.name.clone(),
            from_level: job.level(),
            to_level: job.output_level,
            reason: job.reason.clone(),
            tables: job.files().map(|(_, file)| file.meta.number).collect(),
            bytes: job.files().map(|(_, file)| file.meta.bytes).sum(),
        });
        let host = Host::new(self, true, keyspace.options.table_bytes)
            .hot(self.places.is_hot(&job.placed_inputs()))
            .of_keyspace(&keyspace);
        let host = if job.is_debt { host.for_debt() } else { host };
        let job = JobUnderWay {
            number: self.new_task_id(),
            claimed: Claimed::new(self, &keyspace, &Arc::new(job)),
            host: Arc::new(host),
            levels: Vec::new(),
            started: self.env.clock.now(),
            has_spilled: false,
            begun,
        };
        let job = match self.promised(job) {
            Ok(job) => job,
            Err(refused) => {
                let (job, error) = *refused;
                return self.end_job(job, Err(error)).map(|()| None);
            }
        };
        if job.claimed.job.is_move {
            let moved = self.move_tables(&job.claimed);
            return self.end_job(job, moved).map(|()| None);
        }
        self.submit_job(job)
    }

    /// Runs a claimed job to its end, for a caller that waits for it.
    pub(crate) fn run_job(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>, job: Job) -> Result<()> {
        let outcome = Arc::new(Outcome::default());
        let begun = Begun { turn: None, outcome: Some(Arc::clone(&outcome)) };
        let number = self.begin_job(Arc::clone(keyspace), job, begun)?;
        loop {
            let seen = self.memory.work.generation();
            self.compactor.turn();
            if let Some(finished) = number.and_then(|number| self.compactor.take_finished(Some(number))) {
                self.land(finished)?;
            }
            if let Some(outcome) = lock(&outcome).take() {
                return outcome;
            }
            self.memory.work.wait(seen, self.compactor.next_turn_in());
        }
    }

    /// Returns the job, with physical space for what it may write; or why there is none.
    fn promised(&self, mut job: JobUnderWay) -> Result<JobUnderWay, Box<(JobUnderWay, Error)>> {
        if job.claimed.job.is_move {
            return Ok(job);
        }
        let metas = || job.claimed.job.files().map(|(_, file)| &file.meta);
        let at_most = metas().map(|meta| meta.bytes).sum::<u64>();
        let left = at_most.saturating_sub(self.bytes_removed(&job.claimed.keyspace, &job.claimed.job));
        let hidden = job.claimed.job.newer.as_ref().map_or(u64::MAX, |newer| newer.left_bytes);
        let about = bytes_left(metas()).min(left).min(hidden);
        match self.memory.space.promise(about, at_most) {
            Ok(promise) => {
                let host = Arc::into_inner(job.host).expect("nothing runs yet");
                job.host = Arc::new(host.promised(promise));
                Ok(job)
            }
            Err(shortage) => Err(Box::new((job, shortage.into()))),
        }
    }

    fn move_tables(&self, claimed: &Claimed) -> Result<TaskStats> {
        let Claimed { keyspace, job, .. } = claimed;
        let added = job.files().map(|(_, f)| Added { level: job.output_level, meta: f.meta.clone() }).collect();
        self.install_job(keyspace, job, added, &mut DeadValues::default())?;
        Ok(TaskStats::default())
    }

    /// Gives the tasks of a job to the compactor.
    fn submit_job(self: &Arc<Self>, mut job: JobUnderWay) -> Result<Option<u64>> {
        let tasks = self.tasks_of(&job.claimed.keyspace, &job.claimed.job, job.host.target_bytes());
        let Divided { levels, tasks, notes } = match tasks {
            Ok(divided) => divided,
            Err(error) => return self.settle_job(job, Err(error)).map(|()| None),
        };
        let priority = Priority::new(job.claimed.job.level() as u32, job.claimed.job.score);
        let number = job.number;
        // The borders make more tasks than threads: where one is to work, they follow each other.
        let is_alone = self.tasks_abreast() == 1 || job.claimed.job.is_debt;
        let abreast = if is_alone { 1 } else { tasks.len() };
        let host = Arc::clone(&job.host) as Arc<dyn TaskHost>;
        job.levels = levels;
        self.tell_reads();
        // First: another thread may land the job at once.
        let before = lock(&self.jobs).insert(number, job);
        assert!(before.is_none(), "a job is under way once");
        self.compactor.submit(JobOrder { number, tasks, host, abreast, priority, notes });
        self.compactor.turn();
        Ok(Some(number))
    }

    /// Tells the units how long reads take, for their decisions, once a second.
    fn tell_reads(&self) {
        let message = self.health.stats.read_tails.message(self.env.clock.now());
        message.into_iter().for_each(|message| self.compactor.note_reads(&message));
    }

    /// Moves the compactor on and lands a job that has finished; false if none has.
    pub(crate) fn land_one(self: &Arc<Self>) -> Result<bool> {
        self.tell_reads();
        self.compactor.turn();
        let Some(finished) = self.compactor.take_finished(None) else { return Ok(false) };
        self.land(finished)?;
        Ok(true)
    }

    /// Lands all jobs that have finished, for a thread that is not to fail: failures are noted.
    pub(crate) fn land_all(self: &Arc<Self>) {
        loop {
            match self.land_one() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.health.note_job_failure("compact", error),
            }
        }
    }

    /// Lands the jobs of a store that is closing: their hosts answer "cancelled" by now.
    pub(crate) fn land_the_last(self: &Arc<Self>) {
        loop {
            let seen = self.memory.work.generation();
            self.land_all();
            if self.compactor.is_empty() {
                break;
            }
            self.memory.work.wait(seen, Some(LOOK_AGAIN));
        }
        // None is left, unless the compactor has lost one: a job holds the store, which holds the job.
        let lost = std::mem::take(&mut *lock(&self.jobs));
        drop(lost);
    }

    fn land(self: &Arc<Self>, finished: FinishedJob) -> Result<()> {
        let Some(job) = lock(&self.jobs).remove(&finished.job) else { return Ok(()) };
        let outputs = finished.result.map_err(|error| match job.host.is_out_of_space() {
            true => self.memory.space.shortage(0).into(),
            false => task_error(error),
        });
        let installed = outputs.and_then(|outputs| {
            let mut merged = Merged::new(&job.levels, outputs);
            let mut dead = std::mem::take(&mut merged.dead);
            self.install_outputs(&job.claimed, &merged, &mut dead)?;
            Ok(merged)
        });
        self.settle_job(job, installed)
    }

    fn install_outputs(&self, claimed: &Claimed, merged: &Merged, dead: &mut DeadValues) -> Result<()> {
        let added = |(level, table)| Added { level, meta: describe(table) };
        self.install_job(&claimed.keyspace, &claimed.job, merged.by_level().map(added).collect(), dead)
    }

    /// Ends a job, or begins it once more where a disk has refused.
    fn settle_job(self: &Arc<Self>, mut job: JobUnderWay, result: Result<Merged>) -> Result<()> {
        job.host.clean_up(result.as_ref().map(|merged| &merged.tables[..]).unwrap_or_default());
        match result {
            Ok(merged) => {
                self.note_vain(&job.claimed, &merged);
                for (level, table) in merged.by_level() {
                    self.tell_created(&job.claimed.keyspace, level, std::slice::from_ref(table));
                }
                self.end_job(job, Ok(merged.stats))
            }
            Err(error) if job.has_spilled => self.end_job(job, Err(error)),
            Err(error) => match self.spill(&job.host, &error) {
                Some(host) => {
                    (job.host, job.has_spilled) = (Arc::new(host), true);
                    self.submit_job(job).map(drop)
                }
                None => self.end_job(job, Err(error)),
            },
        }
    }

    /// Marks tables whose rewrite dropped no entries, so that they are not rewritten for that again. Notes which newer
    /// tables a rewrite has taken into account.
    fn note_vain(&self, claimed: &Claimed, merged: &Merged) {
        let Claimed { keyspace, job, .. } = claimed;
        if !job.is_debt || job.level() != job.output_level {
            return;
        }
        let is_vain = job.newer.is_none() && merged.stats.dropped() == 0;
        let seen_to = job.newer.as_ref().map_or(0, |newer| newer.seen_to());
        let version = Arc::clone(&keyspace.view.load().version);
        let is_output = |number| merged.tables.iter().any(|table| table.number == number);
        let outputs = version.files().map(|(_, file)| file).filter(|file| is_output(file.meta.number));
        for file in outputs {
            file.drops_nothing.fetch_or(is_vain, Ordering::AcqRel);
            file.seen_to.fetch_max(seen_to, Ordering::AcqRel);
        }
    }

    /// Ends a job: gives its claims up, and counts and reports its outcome. Returns an error if no caller waits for the
    /// job and the error is not the job's own.
    fn end_job(&self, job: JobUnderWay, result: Result<TaskStats>) -> Result<()> {
        let JobUnderWay { claimed, mut begun, started, host, .. } = job;
        // A failed store calls its merges off as a closing one does.
        let result = result.map_err(|error| match error {
            Error::Closed => self.health.failure().unwrap_or(Error::Closed),
            other => other,
        });
        let (keyspace, job) = (Arc::clone(&claimed.keyspace), Arc::clone(&claimed.job));
        let may_rest = begun.outcome.is_none();
        let postponed = match &result {
            Err(error) if may_rest && is_of_the_job(error) => {
                // First: a caller that sees the postponed job finds the damage noted, and the listener told.
                self.health.stats.counters.compactions_postponed.add(1);
                self.health.note_job_failure("compact", error.clone());
                Some(claimed.postpone(error))
            }
            _ => {
                drop(claimed);
                None
            }
        };
        if result.is_err() && job.is_debt {
            self.rest_from_debts();
        }
        if result.is_ok() && self.forget_postponed(&keyspace, &job) {
            self.health.tell(|| StoreEvent::JobRecovered { job: "compact".to_owned() });
        }
        let duration = self.env.clock.now().saturating_sub(started);
        // Others are noted as background jobs.
        if let (Err(error), false) = (&result, may_rest) {
            self.versions.source.damaged.note(error);
        }
        let is_postponed = postponed.is_some();
        postponed.into_iter().for_each(|event| self.health.tell(|| event));
        let ended = result.map(|stats| self.count_job(&keyspace, &job, &stats, duration));
        // First: a caller that gets the outcome finds the replaced tables of the job released.
        drop((job, host));
        drop(begun.turn.take());
        let answer = match begun.outcome.take() {
            Some(outcome) => {
                *lock(&outcome) = Some(ended);
                Ok(())
            }
            None if is_postponed => Ok(()),
            None => ended,
        };
        self.memory.progress.notify();
        self.memory.work.notify();
        answer
    }

    fn count_job(&self, keyspace: &KeyspaceCore, job: &Job, stats: &TaskStats, duration: Duration) {
        let counters = &self.health.stats.counters;
        if job.is_move {
            counters.trivial_moves.add(job.files().count() as u64);
        } else {
            counters.compactions.add(1);
            counters.compaction_bytes_read.add(stats.bytes_read);
            counters.compaction_bytes_written.add(stats.bytes_written);
            counters.compaction_entries_dropped.add(stats.dropped());
            self.health.stats.compaction.record(duration);
        }
        if job.level() == 0 && job.output_level != 0 && !job.is_move {
            let from_level0 = job.inputs[0].1.iter().map(|f| f.meta.bytes).sum();
            self.memory.stall.drained(from_level0, duration);
        }
        self.health.tell(|| StoreEvent::Compacted {
            keyspace: keyspace.name.clone(),
            from_level: job.level(),
            to_level: job.output_level,
            reason: job.reason.clone(),
            bytes_read: stats.bytes_read,
            bytes_written: stats.bytes_written,
            duration,
        });
    }
}
