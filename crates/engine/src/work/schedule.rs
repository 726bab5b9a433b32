//! The schedule: which tables and keys belong to a compaction, and which compactions rest.
//!
//! A job is picked and *claimed* in one step, under the scheduling lock. Its [claim](Claimed) is given up when the job
//! ends. A compaction that fails for a reason of its own rests for a while, and the others go on.
//!
//! A table that cannot be read fails every compaction that it takes part in, however often they are tried. So the
//! tables of a failed job stay claimed for a time, in which the picker sees no job in them. The time is 1 s at first,
//! twice as long after each failure, 5 min at most. A later job that shares a table with it is the same one as far as
//! this is concerned. A job that succeeds (a table copied to the other disk is one), and a manual compaction, end the
//! rest of all tables they take. A drain ends all rests.
//!
//! A full disk is no job's own reason: the thread pauses then (`background.rs`).
//!
//! **Invariants.** A table belongs to at most one job. A resting table is busy, and no running job's. Claims and rests
//! begin and end under the scheduling lock.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::troubles::Trouble;
use crate::versions::editor::{Change, DeadValues};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::running::{Postponed, Span};
use crate::versions::store::Versions;
use crate::versions::version::{Added, Removed, TableFile, Version, inherit_heat};
use crate::work::picker::{Job, Picker};
use crate::{Error, Result};
use situ_base::Clock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(300);

impl Postponed {
    fn holds(&self, file: &TableFile) -> bool {
        self.files.iter().any(|mine| mine.meta.number == file.meta.number)
    }

    fn shares(&self, job: &Job) -> bool {
        job.files().any(|(_, file)| self.holds(file))
    }

    fn end_rest(&mut self) {
        if std::mem::take(&mut self.rests) {
            assert!(self.files.iter().all(|file| file.busy.load(Ordering::Acquire)), "a resting table is busy");
            self.files.iter().for_each(|file| file.busy.store(false, Ordering::Release));
        }
    }
}

/// Returns true if the failure lies in the job, and not in the store or its disk as a whole.
pub(crate) fn is_of_the_job(error: &Error) -> bool {
    !error.is_no_space()
        && !matches!(error, Error::Closed | Error::Failed { .. } | Error::ReadOnly | Error::KeyspaceDropped { .. })
}

/// The schedule of a store's compactions. See the module's documentation.
pub(crate) struct Schedule {
    clock: Arc<dyn Clock>,
    versions: Arc<Versions>,
    /// The maximum number of threads that compact.
    threads: usize,
    /// Held while jobs are picked, never while they run.
    lock: Mutex<()>,
}

/// The scheduling lock, held.
pub(crate) type Scheduling<'a> = MutexGuard<'a, ()>;

/// A job's claim on its tables and keys, given up on drop, also when the job panics.
pub(crate) struct Claimed {
    schedule: Arc<Schedule>,
    pub(crate) keyspace: Arc<KeyspaceCore>,
    pub(crate) job: Arc<Job>,
    /// The tables stay claimed.
    is_postponed: bool,
}

impl Claimed {
    /// Makes the outputs of the job durable and visible in the place of its tables, whose last holders delete them.
    pub(crate) fn install(&self, added: Vec<Added>, dead: DeadValues) -> Result<()> {
        let Claimed { keyspace, job, .. } = self;
        self.assert_fitting(&added);
        let new: Vec<u64> = if job.is_move { Vec::new() } else { added.iter().map(|a| a.meta.number).collect() };
        let removed = job.files().map(|(level, f)| Removed { level, number: f.meta.number }).collect();
        let mut editor = self.schedule.versions.edit()?;
        let version = editor.change(keyspace, Change { removed, added, dead, ..Change::default() })?;
        if !job.is_move {
            job.files().for_each(|(_, f)| f.retire());
        }
        drop(editor);
        if job.level() == 0 {
            keyspace.owes_level0.store(false, Ordering::Release);
        }
        let new: Vec<_> =
            version.files().map(|(_, file)| file).filter(|file| new.contains(&file.meta.number)).collect();
        inherit_heat(job.files().map(|(_, file)| file), &new);
        // Opened here, so that no reader waits for footer, index and filter. One that cannot be opened tells its
        // readers.
        for file in new {
            let _ = file.table();
        }
        Ok(())
    }

    /// Asserts that outputs may take the place of the job's tables.
    fn assert_fitting(&self, added: &[Added]) {
        let job = &self.job;
        assert!(job.is_claimed() && !self.is_postponed, "a job installs what it has claimed: {job}");
        let is_within = |Added { level, meta }: &Added| {
            let of_level = |span: &&Span| span.level == *level;
            job.spans()
                .find(of_level)
                .is_some_and(|span| span.keys.begin <= meta.span.begin && meta.span.end <= span.keys.end)
        };
        assert!(added.iter().all(is_within), "outputs lie outside of the keys of {job}: {added:?}");
        let newest = |sequence: u64| job.files().any(|(_, f)| f.meta.largest_sequence >= sequence);
        assert!(added.iter().all(|a| newest(a.meta.largest_sequence)), "{job} makes newer entries: {added:?}");
        if job.is_move {
            let is_input = |a: &Added| job.files().any(|(_, f)| f.meta == a.meta);
            assert!(added.len() == job.files().count() && added.iter().all(is_input), "{job} changes what it moves");
        }
    }

    /// Gives up the keys, while the tables rest after a failure of the job's own. Returns what is to be told of that.
    pub(crate) fn postpone(mut self, error: &Error) -> StoreEvent {
        self.is_postponed = true;
        let scheduling = self.schedule.lock();
        self.leave_running();
        self.schedule.postpone(&scheduling, &self.keyspace, &self.job, error)
    }

    fn leave_running(&self) {
        let mut running = lock(&self.keyspace.running);
        for span in self.job.spans() {
            let at = running.iter().position(|other| other == span);
            running.swap_remove(at.expect("the spans of a claimed job are noted"));
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.is_postponed {
            return;
        }
        let _scheduling = self.schedule.lock();
        assert!(self.job.is_claimed(), "a job gives up a claim that it has not");
        self.job.claim(false);
        self.leave_running();
    }
}

impl Schedule {
    pub(crate) fn new(clock: &Arc<dyn Clock>, versions: &Arc<Versions>, threads: usize) -> Arc<Schedule> {
        let (clock, versions) = (Arc::clone(clock), Arc::clone(versions));
        Arc::new(Schedule { clock, versions, threads, lock: Mutex::new(()) })
    }

    pub(crate) fn lock(&self) -> Scheduling<'_> {
        lock(&self.lock)
    }

    /// Claims a picked job. The lock was held since the job was picked.
    pub(crate) fn claim(self: &Arc<Self>, held: &Scheduling<'_>, keyspace: &Arc<KeyspaceCore>, job: Job) -> Claimed {
        let is_free = job.spans().all(|span| !lock(&keyspace.running).iter().any(|other| other.meets(span)));
        assert!(is_free, "two jobs of {:?} write the same keys: {job}", keyspace.name);
        self.claim_tables(held, keyspace, job)
    }

    /// Claims a job whose keys another one may still have that has just installed the tables.
    pub(crate) fn claim_tables(
        self: &Arc<Self>,
        _: &Scheduling<'_>,
        keyspace: &Arc<KeyspaceCore>,
        job: Job,
    ) -> Claimed {
        assert!(job.files().next().is_some(), "a job has tables");
        job.assert_sound();
        let is_idle = job.files().all(|(_, file)| !file.busy.load(Ordering::Acquire));
        assert!(is_idle, "a table belongs to one job at most: {job}");
        job.claim(true);
        lock(&keyspace.running).extend(job.spans().cloned());
        let (schedule, keyspace) = (Arc::clone(self), Arc::clone(keyspace));
        Claimed { schedule, keyspace, job: Arc::new(job), is_postponed: false }
    }

    pub(crate) fn oldest_snapshot(&self) -> u64 {
        let first = self.versions.snapshots.oldest();
        first.unwrap_or_else(|| self.versions.snapshots.visible())
    }

    /// Lets a failed job rest, whose tables stay claimed. Returns what is to be told.
    fn postpone(&self, _: &Scheduling<'_>, keyspace: &KeyspaceCore, job: &Job, error: &Error) -> StoreEvent {
        assert!(job.is_claimed(), "a job that rests keeps its tables");
        let mut postponed = lock(&keyspace.postponed);
        let last = postponed.iter().filter(|p| p.shares(job)).map(|p| p.rest).max();
        postponed.retain(|p| !p.shares(job));
        let rest = last.map_or(REST_MIN, |last| (last * 2).min(REST_MAX));
        let files: Vec<_> = job.files().map(|(_, file)| Arc::clone(file)).collect();
        let tables = files.iter().map(|file| file.meta.number).collect();
        let until = self.clock.now() + rest;
        postponed.push(Postponed { files, rest, until, rests: true, error: error.clone() });
        StoreEvent::CompactionPostponed {
            keyspace: keyspace.name.clone(),
            from_level: job.level(),
            to_level: job.output_level,
            tables,
            rest,
            error: error.clone(),
        }
    }

    /// Forgets the postponed jobs that share a table with a job that has succeeded, and tells of that.
    pub(crate) fn forget_postponed(&self, keyspace: &KeyspaceCore, job: &Job) {
        let has_recovered = {
            let _scheduling = self.lock();
            let mut postponed = lock(&keyspace.postponed);
            let before = postponed.len();
            postponed.retain_mut(|postponed| {
                let shares = postponed.shares(job);
                if shares {
                    postponed.end_rest();
                }
                !shares
            });
            postponed.len() < before
        };
        if has_recovered {
            self.versions.health.tell(|| StoreEvent::JobRecovered { job: "compact".to_owned() });
        }
    }

    /// Lets jobs be picked again that have rested long enough, or all.
    pub(crate) fn end_rests(&self, _: &Scheduling<'_>, keyspace: &KeyspaceCore, all: bool) {
        let mut postponed = lock(&keyspace.postponed);
        if postponed.is_empty() {
            return;
        }
        let now = self.clock.now();
        postponed.iter_mut().filter(|p| all || p.until <= now).for_each(Postponed::end_rest);
    }

    pub(crate) fn end_due_rests(&self) {
        let scheduling = self.lock();
        self.versions.keyspaces().iter().for_each(|keyspace| self.end_rests(&scheduling, keyspace, false));
    }

    /// Returns the time until the next job may be picked again.
    pub(crate) fn next_rest_ends_in(&self) -> Option<Duration> {
        let until = |k: &Arc<KeyspaceCore>| lock(&k.postponed).iter().filter(|p| p.rests).map(|p| p.until).min();
        let next = self.versions.keyspaces().iter().filter_map(until).min()?;
        Some(next.saturating_sub(self.clock.now()))
    }

    /// Returns the error of a job that has failed and not succeeded since.
    pub(crate) fn postponed_error(&self) -> Option<Error> {
        self.versions.keyspaces().iter().find_map(|keyspace| keyspace.postponed_error())
    }

    /// Returns true if a flush or compaction is pending or running. Takes the scheduling lock. Between the look at
    /// running jobs and the look at possible ones, a job may claim its tables, and then there would seem to be neither.
    pub(crate) fn has_flushes_or_compactions(&self) -> bool {
        let _scheduling = self.lock();
        let oldest = self.oldest_snapshot();
        self.versions.keyspaces().iter().any(|keyspace| {
            let view = keyspace.view.load();
            let running = lock(&keyspace.running).clone();
            !running.is_empty()
                || !view.sealed.is_empty()
                || Picker::new(&view.version, &keyspace.options, &running, oldest).pick().is_some()
        })
    }

    /// Returns true if a keyspace to which opening has added a table of level 0 has enough of them that a compaction is
    /// due. A compaction of level 0 must also be at work, or able to begin at once.
    pub(crate) fn owes_level0(&self) -> bool {
        let _scheduling = self.lock();
        let oldest = self.oldest_snapshot();
        let keyspaces = self.versions.keyspaces();
        let jobs: usize = keyspaces.iter().map(|keyspace| lock(&keyspace.running).len()).sum();
        keyspaces.iter().filter(|keyspace| keyspace.owes_level0.load(Ordering::Acquire)).any(|keyspace| {
            let version = Arc::clone(&keyspace.view.load().version);
            let is_paused = keyspace.compactions_paused.load(Ordering::Acquire) > 0;
            if is_paused || version.levels[0].files.len() < keyspace.options.level0_tables {
                return false;
            }
            let running = lock(&keyspace.running).clone();
            let picker = Picker::new(&version, &keyspace.options, &running, oldest);
            keyspace.level0_job_runs(&version) || (jobs < self.threads && picker.may_shrink_level0())
        })
    }

    /// Returns the error that keeps level 0 of a keyspace from shrinking. No job takes tables out of it or is about to
    /// then. A table that its way down needs rests after this failure, or compactions fail altogether (a full disk), as
    /// `trouble` says. A failure elsewhere is no reason, nor is one thread that pauses while another makes way for
    /// level 0 or is free to begin.
    pub(crate) fn why_level0_stays(&self, keyspace: &KeyspaceCore, trouble: Trouble) -> Option<Error> {
        let _scheduling = self.lock();
        let version = Arc::clone(&keyspace.view.load().version);
        let running = lock(&keyspace.running).clone();
        let postponed = lock(&keyspace.postponed);
        let rest_of = |file: &Arc<TableFile>| postponed.iter().find(|p| p.rests && p.holds(file));
        // A claimed table that does not rest is a running job's.
        let runs = |file: &Arc<TableFile>| file.busy.load(Ordering::Acquire) && rest_of(file).is_none();
        let picker = Picker::new(&version, &keyspace.options, &running, 0);
        if version.levels[0].files.iter().any(runs) {
            return None;
        }
        let others_run = || self.versions.keyspaces().iter().map(|other| lock(&other.running).len()).sum::<usize>();
        let thread_is_free = || trouble.pausing + others_run() < self.threads;
        if picker.may_shrink_level0() && (trouble.error.is_none() || thread_is_free()) {
            return None;
        }
        if let Some(postponed) = picker.level0_needs().find_map(rest_of) {
            return Some(postponed.error.clone());
        }
        // A job that has what level 0 needs ends sooner or later, and level 0 is next.
        if picker.level0_needs().any(runs) { None } else { trouble.error }
    }
}

impl KeyspaceCore {
    /// Returns true if a running job has tables of level 0 of `version`; with the scheduling lock held. A claimed table
    /// that does not rest is a running job's.
    fn level0_job_runs(&self, version: &Version) -> bool {
        let postponed = lock(&self.postponed);
        let rests = |file: &TableFile| postponed.iter().any(|p| p.rests && p.holds(file));
        version.levels[0].files.iter().any(|file| file.busy.load(Ordering::Acquire) && !rests(file))
    }

    /// Returns the error of a job of this keyspace that has failed and not succeeded since.
    pub(crate) fn postponed_error(&self) -> Option<Error> {
        lock(&self.postponed).first().map(|postponed| postponed.error.clone())
    }
}

#[cfg(test)]
mod tests;
