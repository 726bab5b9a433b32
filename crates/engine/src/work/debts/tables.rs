//! The debts of tables: entries that a compaction could drop although no level is full.

use super::rules::{LOOK_AGAIN, TableDebt};
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::TableFile;
use crate::work::picker::{Dead, Job, Picker};
use crate::work::schedule::{Claimed, Schedule};
use crate::work::task_host::task_error;
use situ_compaction::FrozenFilter;
use situ_table::DeadBefore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Age at which tables without lifetimes are rewritten, in seconds.
const UNCOUNTED_S_MAX: u64 = 24 * 60 * 60;

/// See the module's documentation.
pub(crate) struct TableDebts {
    memory: Arc<Memory>,
    schedule: Arc<Schedule>,
}

impl TableDebts {
    pub(crate) fn new(memory: &Arc<Memory>, schedule: &Arc<Schedule>) -> TableDebts {
        TableDebts { memory: Arc::clone(memory), schedule: Arc::clone(schedule) }
    }

    /// Learns when entries die of tables that have a filter. Not under the scheduling lock, because tables may have to
    /// be opened.
    pub(crate) fn learn_lifetimes(&self) {
        self.with_filters(|keyspace, _| {
            let version = Arc::clone(&keyspace.view.load().version);
            version.files().for_each(|(_, file)| file.learn_lifetimes());
        });
    }

    pub(crate) fn debt(&self) -> TableDebt {
        let dead = self.dead_by_filters();
        let next_death = self.next_death(&dead);
        let _scheduling = self.schedule.lock();
        let room = self.memory.room_for_compactions();
        match self.debt_job(&dead, &self.memory.versions.snapshots.sequences(), room) {
            Some(_) => TableDebt::Due,
            // The release of a snapshot wakes no thread.
            None if self.debt_job(&dead, &[], room).is_some() => TableDebt::DueIn(LOOK_AGAIN),
            None => next_death.map_or(TableDebt::None, |wait| TableDebt::DueIn(wait.max(LOOK_AGAIN))),
        }
    }

    /// Calls `each` with each keyspace whose filter reports dead entries.
    fn with_filters(&self, mut each: impl FnMut(&Arc<KeyspaceCore>, DeadBefore)) {
        for keyspace in self.memory.versions.keyspaces() {
            let Some(filter) = &keyspace.options.compaction_filter else { continue };
            match FrozenFilter::dead_before(filter, self.memory.env.clock.unix()) {
                Ok(dead) => dead.into_iter().for_each(|dead| each(&keyspace, dead)),
                Err(error) => self.memory.health.note_job_failure("ask compaction filter", task_error(error)),
            }
        }
    }

    /// Returns the bounds below which filters remove entries now, by keyspace.
    pub(crate) fn dead_by_filters(&self) -> BTreeMap<u32, DeadBefore> {
        let mut dead = BTreeMap::new();
        self.with_filters(|keyspace, before| dead.extend([(keyspace.id, before)]));
        dead
    }

    /// Returns the time until filters can remove more entries, if nothing is written.
    fn next_death(&self, dead: &BTreeMap<u32, DeadBefore>) -> Option<Duration> {
        let next = |keyspace: Arc<KeyspaceCore>| {
            let now = dead.get(&keyspace.id)?.unix_s;
            let version = Arc::clone(&keyspace.view.load().version);
            let next = version.files().filter_map(|(_, file)| file.lifetimes()?.next_death(now)).min()?;
            Some(Duration::from_secs(next - now))
        };
        self.memory.versions.keyspaces().into_iter().filter_map(next).min()
    }

    /// Picks the compaction that frees the most for each byte that it writes, if it is worth its cost and no other one
    /// runs. The caller holds the scheduling lock.
    fn debt_job(
        &self,
        dead: &BTreeMap<u32, DeadBefore>,
        snapshots: &[u64],
        room: u64,
    ) -> Option<(Arc<KeyspaceCore>, Job)> {
        let oldest = snapshots.first().copied().unwrap_or_else(|| self.memory.versions.snapshots.visible());
        let keyspaces = self.memory.versions.keyspaces();
        let is_free = |keyspace: &Arc<KeyspaceCore>| {
            lock(&keyspace.running).is_empty() && keyspace.compactions_paused.load(Ordering::Acquire) == 0
        };
        if !keyspaces.iter().all(is_free) {
            return None;
        }
        let job = |keyspace: Arc<KeyspaceCore>| {
            let version = Arc::clone(&keyspace.view.load().version);
            let picker = Picker::new(&version, &keyspace.options, &[], oldest).room(room);
            let removed = |file: &TableFile| removed(dead.get(&keyspace.id), file, snapshots);
            let dead = Dead { value_bytes: version.segments.mean_record_bytes(), removed: &removed };
            let job = picker.debt(&dead)?;
            Some((keyspace, job))
        };
        keyspaces.into_iter().filter_map(job).max_by(|(_, a), (_, b)| a.score.total_cmp(&b.score))
    }

    /// Estimates the bytes of a job's tables that its filter removes now.
    pub(crate) fn bytes_removed(&self, keyspace: &KeyspaceCore, job: &Job) -> u64 {
        let dead = self.dead_by_filters();
        let snapshots = self.memory.versions.snapshots.sequences();
        let of_table = |(_, file): (usize, &Arc<TableFile>)| {
            // The job opens it anyway.
            dead.get(&keyspace.id).iter().for_each(|_| file.learn_lifetimes());
            let share = removed(dead.get(&keyspace.id), file, &snapshots) / file.meta.entries.max(1) as f64;
            (file.meta.bytes as f64 * share.min(1.0)) as u64
        };
        job.files().map(of_table).sum()
    }

    /// Picks and claims a compaction that writes at most `room` bytes.
    pub(crate) fn pick(&self, room: u64) -> Option<Claimed> {
        let dead = self.dead_by_filters();
        let scheduling = self.schedule.lock();
        let (keyspace, job) = self.debt_job(&dead, &self.memory.versions.snapshots.sequences(), room)?;
        assert!(job.is_debt, "a job that pays no debt: {job}");
        Some(self.schedule.claim(&scheduling, &keyspace, job))
    }
}

/// Estimates the entries of a table that its filter removes now.
fn removed(before: Option<&DeadBefore>, file: &TableFile, snapshots: &[u64]) -> f64 {
    // A filter may not remove entries that a snapshot sees.
    let is_seen = snapshots.last().is_some_and(|newest| *newest >= file.meta.smallest_sequence);
    let before = before.filter(|_| !is_seen);
    let Some((before, lifetimes)) = before.zip(file.lifetimes()) else { return 0.0 };
    // Older programs have not counted lifetimes. The table is rewritten once, and has them then.
    let is_old = before.unix_s > file.meta.created_unix_s.saturating_add(UNCOUNTED_S_MAX);
    if lifetimes.is_empty() && is_old { file.meta.entries as f64 } else { lifetimes.dead(before) }
}
