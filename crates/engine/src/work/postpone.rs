//! Compactions that fail for a reason of their own: each rests for a while, and the others go on.
//!
//! A table that cannot be read fails every compaction that it takes part in, however often they are tried. So the
//! tables of a failed job stay claimed for a time, in which the picker sees no job in them. The time is 1 s at first,
//! twice as long after each failure, 5 min at most. A later job that shares a table with it is the same one as far as
//! this is concerned. A job that succeeds (a table copied to the other disk is one), and a manual compaction, end the
//! rest of all tables they take. A drain ends all rests.
//!
//! A full disk is no job's own reason: the thread pauses then (`background.rs`).
//!
//! **Invariants.** A resting table is busy, and no running job's. Resting is begun and ended under the scheduling lock.

use crate::Error;
use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::running::Postponed;
use crate::versions::version::{TableFile, Version};
use crate::work::Work;
use crate::work::picker::{Job, Picker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
            self.files.iter().for_each(|file| file.busy.store(false, Ordering::Release));
        }
    }
}

/// Returns true if the failure lies in the job, and not in the store or its disk as a whole.
pub(crate) fn is_of_the_job(error: &Error) -> bool {
    !error.is_no_space()
        && !matches!(error, Error::Closed | Error::Failed { .. } | Error::ReadOnly | Error::KeyspaceDropped { .. })
}

impl Work {
    /// Lets a failed job rest, whose tables stay claimed; with the scheduling lock held. Returns what is to be told.
    pub(crate) fn postpone(&self, keyspace: &KeyspaceCore, job: &Job, error: &Error) -> StoreEvent {
        let mut postponed = lock(&keyspace.postponed);
        let last = postponed.iter().filter(|p| p.shares(job)).map(|p| p.rest).max();
        postponed.retain(|p| !p.shares(job));
        let rest = last.map_or(REST_MIN, |last| (last * 2).min(REST_MAX));
        let files: Vec<_> = job.files().map(|(_, file)| Arc::clone(file)).collect();
        let tables = files.iter().map(|file| file.meta.number).collect();
        let until = self.env.clock.now() + rest;
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

    /// Forgets the postponed jobs that share a table with a job that has succeeded. Returns true if there were any.
    pub(crate) fn forget_postponed(&self, keyspace: &KeyspaceCore, job: &Job) -> bool {
        let _scheduling = lock(&self.scheduling);
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
    }

    /// Lets jobs be picked again that have rested long enough, or all; with the scheduling lock held.
    pub(crate) fn end_rests(&self, keyspace: &KeyspaceCore, all: bool) {
        let mut postponed = lock(&keyspace.postponed);
        if postponed.is_empty() {
            return;
        }
        let now = self.env.clock.now();
        postponed.iter_mut().filter(|p| all || p.until <= now).for_each(Postponed::end_rest);
    }

    /// Returns the time until the next job may be picked again.
    pub(crate) fn next_rest_ends_in(&self) -> Option<Duration> {
        let until = |k: &Arc<KeyspaceCore>| lock(&k.postponed).iter().filter(|p| p.rests).map(|p| p.until).min();
        let next = self.versions.keyspaces().iter().filter_map(until).min()?;
        Some(next.saturating_sub(self.env.clock.now()))
    }

    /// Returns the error that keeps level 0 of a keyspace from shrinking. No job takes tables out of it or is about to
    /// then. A table that its way down needs rests after this failure, or compactions fail altogether (a full disk). A
    /// failure elsewhere is no reason, nor is one thread that pauses while another makes way for level 0 or is free to
    /// begin.
    pub(crate) fn why_level0_stays(&self, keyspace: &KeyspaceCore) -> Option<Error> {
        let trouble = lock(&self.memory.troubles).compaction.clone();
        let _scheduling = lock(&self.scheduling);
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
        let thread_is_free = || trouble.pausing + others_run() < self.options.compaction_threads;
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
    pub(crate) fn level0_job_runs(&self, version: &Version) -> bool {
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
