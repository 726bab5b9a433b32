//! Compactions: from a picked job to an installed version. A job goes one way, and holds no thread meanwhile:
//!
//! 1. *Claimed*. Under the scheduling lock, a job is picked, its tables are marked busy, and the keys that it will
//!    write are noted (`schedule.rs`). A debt may be picked instead (`debts.rs`).
//! 2. *Submitted*. The job gets physical space for what it may write. It is divided by key into tasks (`divide.rs`),
//!    which the compactor runs. A job of tables that only change their level is installed at once.
//! 3. *Finished*. A compaction thread takes turns of the compactor, and lands what has finished. If a disk has refused,
//!    the job is submitted once more where there is room (`task_host.rs`).
//! 4. *Installed*. One edit puts all outputs in the place of the inputs.
//! 5. *Ended*. Claims are given up, and the outcome is counted and told. The job's caller, if it has one, gets it. The
//!    inputs are deleted when their last reader lets go.
//!
//! **Invariants.** A table belongs to at most one job. The span of a job's outputs meets no other running job's in the
//! same level. A job is [under way](Compactions::under_way) from its first task on until it lands, so that it lands
//! once. Its claims are given up when it ends, also by a panic.
//!
//! **Threads.** Compaction threads land all jobs, also while they pause after a failure. A caller of a manual
//! compaction lands its own. Closing lands what is left when these have ended.
//!
//! **Failure.** Outputs of a failed job are removed. If the failure is the job's own, such as a table that cannot be
//! read, it rests for a while and others go on (`schedule.rs`). Otherwise it is picked again after a pause.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::pipeline::space::Promise;
use crate::versions::editor::DeadValues;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::Added;
use crate::work::debts::DebtWatch;
use crate::work::divide::{Divided, Divider};
use crate::work::job::{Begun, JobUnderWay, Merged, Outcome};
use crate::work::picker::{Job, Picker, bytes_left};
use crate::work::schedule::{Claimed, Schedule, is_of_the_job};
use crate::work::task_host::{Host, Hosts, describe, task_error};
use crate::work::turn::Turn;
use crate::{Error, Result};
use situ_compaction::{Compactor, FinishedJob, JobOrder, KeySpan, Priority, TaskHost, TaskOutput, TaskStats};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum time between looks for what another thread does: the jobs that land, the files that it deletes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The compactions of a store. See the module's documentation.
pub(crate) struct Compactions {
    hosts: Arc<Hosts>,
    memory: Arc<Memory>,
    schedule: Arc<Schedule>,
    debts: Arc<DebtWatch>,
    divider: Divider,
    /// Compactions whose tasks are with the compactor, by number.
    under_way: Mutex<BTreeMap<u64, JobUnderWay>>,
}

impl Compactions {
    pub(crate) fn new(
        hosts: &Arc<Hosts>,
        memory: &Arc<Memory>,
        schedule: &Arc<Schedule>,
        debts: &Arc<DebtWatch>,
        divider: Divider,
    ) -> Compactions {
        let (hosts, memory) = (Arc::clone(hosts), Arc::clone(memory));
        let (schedule, debts) = (Arc::clone(schedule), Arc::clone(debts));
        Compactions { hosts, memory, schedule, debts, divider, under_way: Mutex::default() }
    }

    /// Returns the compactor, which runs tasks.
    pub(crate) fn compactor(&self) -> &dyn Compactor {
        &*self.divider.compactor
    }

    /// Lands a job that has finished, or picks and begins one. A failure of a job's own is reported and postpones the
    /// job; another error is returned.
    pub(crate) fn compact_one(&self) -> Result<Turn> {
        if self.land_one()? {
            return Ok(Turn::Done);
        }
        // Also where nothing is begun: a thread that finds nothing to do sleeps until the next rest ends.
        self.schedule.end_due_rests();
        let elsewhere = self.compactor().elsewhere();
        if elsewhere.is_full {
            return Ok(Turn::Waits);
        }
        // The thread that lands a job picks again, and wakes the others.
        let Divider { throttle, threads_max, .. } = &self.divider;
        let Some(turn) = throttle.begin(*threads_max, elsewhere.tasks_max, self.memory.env.clock.now()) else {
            return Ok(Turn::Waits);
        };
        // On a full disk, what frees space comes first. Tables that are read often go up when there is nothing to
        // compact.
        let picked = match self.memory.space.is_short() {
            true => self.debts.pick().or_else(|| self.pick()),
            false => self.pick().or_else(|| self.debts.pick()),
        };
        let Some(claimed) = picked else {
            return self.move_in_turn();
        };
        let is_move = claimed.job.is_move;
        self.begin(claimed, Begun { turn: Some(turn), outcome: None })?;
        Ok(if is_move { Turn::Done } else { Turn::Begun })
    }

    fn move_in_turn(&self) -> Result<Turn> {
        // Copies take space, and give none back for a while.
        let moved = !self.memory.space.is_low() && self.hosts.places.move_one()?;
        Ok(match moved {
            true => Turn::Done,
            false if lock(&self.under_way).is_empty() => Turn::Idle,
            false => Turn::Waits,
        })
    }

    fn pick(&self) -> Option<Claimed> {
        let scheduling = self.schedule.lock();
        let oldest = self.schedule.oldest_snapshot();
        let mut best: Option<(f64, Arc<KeyspaceCore>, Job)> = None;
        for keyspace in self.memory.versions.keyspaces() {
            if keyspace.compactions_paused.load(Ordering::Acquire) > 0 {
                continue;
            }
            let version = Arc::clone(&keyspace.view.load().version);
            let running = lock(&keyspace.running).clone();
            let troubled = keyspace.postponed_error().is_some();
            let picker = Picker::new(&version, &keyspace.options, &running, oldest)
                .troubled(troubled)
                .room(self.memory.room_for_compactions())
                .tables_per_job(self.compactor().tables_per_job());
            let score = picker.scores().first().map_or(0.0, |(_, score)| *score);
            if best.as_ref().is_some_and(|(other, ..)| *other >= score) {
                continue;
            }
            if let Some(job) = picker.pick() {
                best = Some((score, keyspace, job));
            }
        }
        let (_, keyspace, job) = best?;
        Some(self.schedule.claim(&scheduling, &keyspace, job))
    }

    /// Compacts all of a key range to the deepest level. A full disk may have no room for all of it at once. What frees
    /// space goes first then, table by table, and the whole is tried again.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        let mut has_paid = true;
        loop {
            match self.compact_at_once(keyspace, begin, end) {
                // Once more also if another thread has paid the debts.
                Err(error) if error.is_no_space() && has_paid => has_paid = self.free_space()?,
                compacted => return compacted,
            }
        }
    }

    /// Runs the compactions that free space on a full disk, one after another. Returns true if there were any.
    fn free_space(&self) -> Result<bool> {
        let mut has_paid = false;
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            // The outputs of the job that found no room, and the inputs of others. The flusher may be deleting them.
            self.memory.versions.delete_obsolete();
            if self.memory.versions.source.is_deleting() {
                self.memory.progress.wait(seen, Some(LOOK_AGAIN));
                continue;
            }
            self.memory.space.look_now();
            let room = self.memory.space.space_for_compactions();
            let Some(claimed) = self.debts.tables.pick(room) else { return Ok(has_paid) };
            self.run(claimed)?;
            has_paid = true;
        }
    }

    fn compact_at_once(&self, keyspace: &Arc<KeyspaceCore>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        keyspace.compactions_paused.fetch_add(1, Ordering::AcqRel);
        let claimed = self.claim_range(keyspace, begin, end);
        keyspace.compactions_paused.fetch_sub(1, Ordering::AcqRel);
        // From here on the job is one among others: they take what it has not claimed, such as new tables of level 0.
        self.memory.work.notify();
        claimed.and_then(|claimed| claimed.map_or(Ok(()), |claimed| self.run(claimed)))
    }

    /// Waits until no compaction of the keyspace runs, and claims all tables of a key range.
    fn claim_range(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<Option<Claimed>> {
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            {
                let scheduling = self.schedule.lock();
                // No job is claimed meanwhile.
                if lock(&keyspace.running).is_empty() {
                    // The caller that asks for a compaction may have mended what made another one fail.
                    self.schedule.end_rests(&scheduling, keyspace, true);
                    let version = Arc::clone(&keyspace.view.load().version);
                    let picker = Picker::new(&version, &keyspace.options, &[], self.schedule.oldest_snapshot());
                    let all = || version.files().map(|(_, f)| f.meta.span.clone()).reduce(KeySpan::union);
                    let keys = all().map(|all| KeySpan {
                        begin: begin.map_or(all.begin, <[u8]>::to_vec),
                        end: end.map_or(all.end, <[u8]>::to_vec),
                    });
                    let job = keys.filter(|k| k.begin < k.end).and_then(|keys| picker.everything(Some(&keys)));
                    return Ok(job.map(|job| self.schedule.claim(&scheduling, keyspace, job)));
                }
            }
            self.memory.progress.wait(seen, None);
        }
    }

    /// Runs a claimed job to its end, for a caller that waits for it.
    fn run(&self, claimed: Claimed) -> Result<()> {
        let outcome = Arc::new(Outcome::default());
        let begun = Begun { turn: None, outcome: Some(Arc::clone(&outcome)) };
        let number = self.begin(claimed, begun)?;
        loop {
            let seen = self.memory.work.generation();
            self.compactor().turn();
            if let Some(finished) = number.and_then(|number| self.compactor().take_finished(Some(number))) {
                self.land(finished)?;
            }
            if let Some(outcome) = lock(&outcome).take() {
                return outcome;
            }
            self.memory.work.wait(seen, self.compactor().next_turn_in());
        }
    }

    /// Begins a claimed job. Its number comes back, unless it has ended already.
    fn begin(&self, claimed: Claimed, begun: Begun) -> Result<Option<u64>> {
        let started = self.memory.env.clock.now();
        let Claimed { keyspace, job, .. } = &claimed;
        self.memory.health.tell(|| StoreEvent::CompactionBegun {
            keyspace: keyspace.name.clone(),
            from_level: job.level(),
            to_level: job.output_level,
            reason: job.reason.clone(),
            tables: job.files().map(|(_, file)| file.meta.number).collect(),
            bytes: job.files().map(|(_, file)| file.meta.bytes).sum(),
        });
        let is_move = job.is_move;
        let promised = if is_move { Ok(None) } else { self.promise(&claimed).map(Some) };
        let (promise, refused) = promised.map_or_else(|error| (None, Some(error)), |promise| (promise, None));
        let mut host = Host::new(&self.hosts, true, keyspace.options.table_bytes).of_keyspace(keyspace);
        host.hot = self.hosts.places.is_hot(&job.placed_inputs());
        (host.is_debt, host.promise) = (job.is_debt, promise.map(Arc::new));
        let job = JobUnderWay {
            number: self.divider.new_number(),
            claimed,
            host: Arc::new(host),
            levels: Vec::new(),
            started,
            has_spilled: false,
            begun,
        };
        match refused {
            Some(error) => self.end(job, Err(error)).map(|()| None),
            None if is_move => {
                let moved = self.move_tables(&job.claimed);
                self.end(job, moved).map(|()| None)
            }
            None => self.submit(job),
        }
    }

    /// Returns the physical space for what a job may write.
    fn promise(&self, Claimed { keyspace, job, .. }: &Claimed) -> Result<Promise> {
        let metas = || job.files().map(|(_, file)| &file.meta);
        let at_most = metas().map(|meta| meta.bytes).sum::<u64>();
        let left = at_most.saturating_sub(self.debts.tables.bytes_removed(keyspace, job));
        let hidden = job.newer.as_ref().map_or(u64::MAX, |newer| newer.left_bytes);
        let about = bytes_left(metas()).min(left).min(hidden);
        Ok(self.memory.space.promise(about, at_most)?)
    }

    fn move_tables(&self, claimed: &Claimed) -> Result<TaskStats> {
        let Claimed { job, .. } = claimed;
        let added = job.files().map(|(_, f)| Added { level: job.output_level, meta: f.meta.clone() }).collect();
        claimed.install(added, DeadValues::default())?;
        Ok(TaskStats::default())
    }

    /// Gives the tasks of a job to the compactor.
    fn submit(&self, mut job: JobUnderWay) -> Result<Option<u64>> {
        let tasks = self.divider.tasks_of(&job.claimed.keyspace, &job.claimed.job, job.host.target_bytes);
        let Divided { levels, tasks, notes } = match tasks {
            Ok(divided) => divided,
            Err(error) => return self.settle(job, Err(error)).map(|()| None),
        };
        let priority = Priority::new(job.claimed.job.level() as u32, job.claimed.job.score);
        let number = job.number;
        assert!(!job.claimed.job.is_move, "a job that moves tables has no tasks");
        assert!(!tasks.is_empty() && tasks.len() == levels.len(), "each task of a job has a level");
        // The borders make more tasks than threads: where one is to work, they follow each other.
        let is_alone = self.divider.tasks_abreast() == 1 || job.claimed.job.is_debt;
        let abreast = if is_alone { 1 } else { tasks.len() };
        let host = Arc::clone(&job.host) as Arc<dyn TaskHost>;
        job.levels = levels;
        self.tell_reads();
        // First: another thread may land the job at once.
        let before = lock(&self.under_way).insert(number, job);
        assert!(before.is_none(), "a job is under way once");
        self.compactor().submit(JobOrder { number, tasks, host, abreast, priority, notes });
        self.compactor().turn();
        Ok(Some(number))
    }

    /// Reports the latency of reads to the compactor, once a second.
    fn tell_reads(&self) {
        let message = self.memory.health.stats.read_tails.message(self.memory.env.clock.now());
        message.into_iter().for_each(|message| self.compactor().note_reads(&message));
    }

    /// Moves the compactor on and lands a job that has finished; false if none has.
    pub(crate) fn land_one(&self) -> Result<bool> {
        self.tell_reads();
        self.compactor().turn();
        let Some(finished) = self.compactor().take_finished(None) else { return Ok(false) };
        self.land(finished)?;
        Ok(true)
    }

    /// Lands all jobs that have finished, for a thread that is not to fail: failures are noted.
    pub(crate) fn land_all(&self) {
        loop {
            match self.land_one() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.memory.health.note_job_failure("compact", error),
            }
        }
    }

    /// Lands the jobs of a store that is closing: their hosts answer "cancelled" by now.
    pub(crate) fn land_the_last(&self) {
        loop {
            let seen = self.memory.work.generation();
            self.land_all();
            if self.compactor().is_empty() {
                break;
            }
            self.memory.work.wait(seen, Some(LOOK_AGAIN));
        }
        // None is left, unless the compactor has lost one.
        let lost = std::mem::take(&mut *lock(&self.under_way));
        drop(lost);
    }

    fn land(&self, finished: FinishedJob) -> Result<()> {
        let Some(job) = lock(&self.under_way).remove(&finished.job) else { return Ok(()) };
        assert_eq!(job.number, finished.job, "a job lands as itself");
        let outputs = finished.result.map_err(|error| match job.host.is_out_of_space() {
            true => self.memory.space.shortage(0).into(),
            false => task_error(error),
        });
        let installed = outputs.and_then(|outputs| install(&job, outputs));
        self.settle(job, installed)
    }

    /// Ends a job, or submits it once more where a disk has refused.
    fn settle(&self, mut job: JobUnderWay, result: Result<Merged>) -> Result<()> {
        job.host.clean_up(result.as_ref().map(|merged| &merged.tables[..]).unwrap_or_default());
        let error = match result {
            Ok(merged) => {
                note_vain(&job.claimed, &merged);
                for (level, table) in merged.by_level() {
                    self.hosts.tell_created(&job.claimed.keyspace, level, std::slice::from_ref(table));
                }
                return self.end(job, Ok(merged.stats));
            }
            Err(error) => error,
        };
        let again = if job.has_spilled { None } else { self.hosts.spill(&job.host, &error) };
        match again {
            Some(host) => {
                (job.host, job.has_spilled) = (Arc::new(host), true);
                self.submit(job).map(drop)
            }
            None => self.end(job, Err(error)),
        }
    }

    /// Ends a job: gives its claims up, and counts and reports its outcome. Returns an error if no caller waits for the
    /// job and the error is not the job's own.
    fn end(&self, job: JobUnderWay, result: Result<TaskStats>) -> Result<()> {
        assert!(!lock(&self.under_way).contains_key(&job.number), "a job that ends is not under way");
        let JobUnderWay { claimed, mut begun, started, host, .. } = job;
        // A failed store calls its merges off as a closing one does.
        let result = result.map_err(|error| match error {
            Error::Closed => self.memory.health.failure().unwrap_or(Error::Closed),
            other => other,
        });
        let (keyspace, job) = (Arc::clone(&claimed.keyspace), Arc::clone(&claimed.job));
        let may_rest = begun.outcome.is_none();
        let postponed = match &result {
            Err(error) if may_rest && is_of_the_job(error) => {
                // First: a caller that sees the postponed job finds the damage noted, and the listener told.
                self.memory.health.stats.counters.compactions_postponed.add(1);
                self.memory.health.note_job_failure("compact", error.clone());
                Some(claimed.postpone(error))
            }
            _ => {
                drop(claimed);
                None
            }
        };
        if let (Err(error), true) = (&result, job.is_debt) {
            self.debts.rest_after(error);
        }
        if result.is_ok() {
            self.schedule.forget_postponed(&keyspace, &job);
        }
        let duration = self.memory.env.clock.now().saturating_sub(started);
        // Others are noted as background jobs.
        if let (Err(error), false) = (&result, may_rest) {
            self.memory.versions.source.damaged.note(error);
        }
        let is_postponed = postponed.is_some();
        postponed.into_iter().for_each(|event| self.memory.health.tell(|| event));
        let ended = result.map(|stats| self.count(&keyspace, &job, &stats, duration));
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

    fn count(&self, keyspace: &KeyspaceCore, job: &Job, stats: &TaskStats, duration: Duration) {
        let counters = &self.memory.health.stats.counters;
        if job.is_move {
            counters.trivial_moves.add(job.files().count() as u64);
        } else {
            counters.compactions.add(1);
            counters.compaction_bytes_read.add(stats.bytes_read);
            counters.compaction_bytes_written.add(stats.bytes_written);
            counters.compaction_entries_dropped.add(stats.dropped());
            self.memory.health.stats.compaction.record(duration);
        }
        if job.level() == 0 && job.output_level != 0 && !job.is_move {
            let from_level0 = job.inputs[0].1.iter().map(|f| f.meta.bytes).sum();
            self.memory.stall.drained(from_level0, duration);
        }
        self.memory.health.tell(|| StoreEvent::Compacted {
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

/// Puts the outputs of a job in the place of its inputs.
fn install(job: &JobUnderWay, outputs: Vec<TaskOutput>) -> Result<Merged> {
    let mut merged = Merged::new(&job.levels, outputs);
    let dead = std::mem::take(&mut merged.dead);
    let added = merged.by_level().map(|(level, table)| Added { level, meta: describe(table) }).collect();
    job.claimed.install(added, dead)?;
    Ok(merged)
}

/// Marks tables whose rewrite dropped no entries, so that they are not rewritten for that again. Notes which newer
/// tables a rewrite has taken into account.
fn note_vain(claimed: &Claimed, merged: &Merged) {
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
