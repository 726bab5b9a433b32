//! Compactions: from a picked job to an installed version.
//!
//! 1. Under the scheduling lock: pick a job, mark its tables busy, remember the keys it will write.
//! 2. Cut it by key into tasks, one for each free thread and at the borders of what goes to another level, and run them: the
//!    reference merge of the compaction room.
//! 3. Install all outputs with one edit; inputs are deleted when their last reader lets go.
//!
//! **Invariants.** A table belongs to at most one job. The span of a job's outputs meets no other running job's in the
//! same level. What lies *below* a task is taken from the version at its start: data only ever moves down within these
//! spans while the job runs, as whoever moves it out of its level must have claimed it.
//!
//! **Failure.** Outputs of a failed job are removed. If the failure is the job's own, such as a table that cannot be read,
//! it rests for a while and others go on (`postpone.rs`); otherwise it is picked again after a pause.

use crate::base::listener::StoreEvent;
use crate::base::options::LEVELS;
use crate::base::sync::lock;
use crate::pipeline::seal::Level0;
use crate::pipeline::stall::Debt;
use crate::placement::promotion::run::inherit_heat;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::{Added, Removed, TableFile, Version};
use crate::work::Work;
use crate::work::picker::{Job, Picker};
use crate::work::postpone::is_of_the_job;
use crate::work::task_host::{Host, describe, task_error};
use crate::{Error, Result};
use situ_compaction::{
    FrozenFilter, Grandparent, InputTable, KeyRange, KeySpan, MergeRules, OutputRules, OutputTable, Run, TableInput,
    Task, TaskHost, TaskStats, cut,
};
use situ_log::Log;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A task is not cut smaller than this.
const TASK_BYTES_MIN: u64 = 16 << 20;
/// Closing waits no longer for level 0. What a compaction has done by then is lost; the next opening begins it again.
const LEVEL0_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes above the levels' targets that are tolerated.
const PENDING_BYTES_TOLERATED: f64 = (128u64 << 30) as f64;
/// A level-1 output ends before it overlaps this many times its size in the level below.
const GRANDPARENT_TABLES_MAX: u64 = 10;

/// Where data older than a merge's inputs may lie: everything outside the job in the levels that `job` does not reach
/// above, if its output goes to the level beside it. Without a job (a flush): in all levels.
pub(crate) fn spans_below(version: &Version, job: Option<(&Job, usize)>) -> Vec<Vec<KeySpan>> {
    let mut below = Vec::new();
    let is_input = |number| job.is_some_and(|(job, _)| job.files().any(|(_, f)| f.meta.number == number));
    let lists_level0 = job.is_none_or(|(_, output_level)| output_level == 0);
    if lists_level0 {
        // Tables of level 0 overlap: each is a list of its own. Newer ones among them cost nothing but precision.
        let others = version.levels[0].files.iter().filter(|f| !is_input(f.meta.number));
        below.extend(others.map(|f| vec![f.meta.span.clone()]));
    }
    let first = job.map_or(1, |(_, output_level)| output_level + 1);
    for level in &version.levels[first..] {
        if !level.files.is_empty() {
            below.push(level.files.iter().map(|f| f.meta.span.clone()).collect());
        }
    }
    below
}

/// Cuts, of ranges that follow each other without a gap, the one in which `key` lies before it.
fn cut_at(ranges: &mut Vec<KeyRange>, key: &[u8]) {
    let Some(at) = ranges.iter().position(|range| range.contains(key)) else { return };
    if ranges[at].lower.as_deref() == Some(key) {
        return;
    }
    let behind = KeyRange { lower: Some(key.to_vec()), upper: ranges[at].upper.replace(key.to_vec()) };
    ranges.insert(at + 1, behind);
}

/// Whether all keys of a range lie in another.
fn within(range: &KeyRange, outer: &KeyRange) -> bool {
    let lower = outer.lower.is_none() || range.lower >= outer.lower;
    lower && (outer.upper.is_none() || range.upper.is_some() && range.upper <= outer.upper)
}

/// What changes while a program runs and must not while a job does: all tasks of the job have the same.
struct Frozen {
    now_unix: Duration,
    filter: Option<FrozenFilter>,
}

/// What came of a job's tasks, in the order of the keys.
#[derive(Default)]
struct Merged {
    tables: Vec<OutputTable>,
    /// Where each of the tables belongs.
    levels: Vec<usize>,
    stats: TaskStats,
}

impl Merged {
    fn by_level(&self) -> impl Iterator<Item = (usize, &OutputTable)> {
        self.levels.iter().copied().zip(&self.tables)
    }
}

/// A job's claim on its tables and keys, given up on drop, also when the merge panics.
pub(crate) struct Claimed<'a> {
    pub(crate) work: &'a Work,
    pub(crate) keyspace: &'a KeyspaceCore,
    pub(crate) job: &'a Job,
}

impl Claimed<'_> {
    /// Gives up the keys, while the tables rest after a failure of the job's own. Returns what is to be told of that.
    fn postpone(self, error: &Error) -> StoreEvent {
        let _scheduling = lock(&self.work.scheduling);
        let event = self.work.postpone(self.keyspace, self.job, error);
        self.leave_running();
        std::mem::forget(self);
        event
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

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let _scheduling = lock(&self.work.scheduling);
        self.job.claim(false);
        self.leave_running();
    }
}

impl Work {
    /// Picks and runs one compaction; false if there is nothing to do. A failure of the job's own is told and postpones
    /// it; the error of another one is returned.
    pub(crate) fn compact_one(self: &Arc<Self>) -> Result<bool> {
        let now = self.env.clock.now();
        // Whoever has the turn picks again when its job ends, and wakes the others.
        let Some(_turn) = self.throttle.begin(self.options.compaction_threads, now) else { return Ok(false) };
        // Tables that are read often go up when there is nothing to compact.
        let Some((keyspace, job)) = self.pick() else { return self.promote_one() };
        self.run_job(&keyspace, &job, true)?;
        Ok(true)
    }

    fn oldest_snapshot(&self) -> u64 {
        let first = self.versions.snapshots.oldest();
        first.unwrap_or_else(|| self.versions.snapshots.visible())
    }

    fn pick(&self) -> Option<(Arc<KeyspaceCore>, Job)> {
        let _scheduling = lock(&self.scheduling);
        let oldest = self.oldest_snapshot();
        let mut best: Option<(f64, Arc<KeyspaceCore>, Job)> = None;
        for keyspace in self.versions.keyspaces() {
            // Also where nothing is begun: a thread that finds nothing to do sleeps until the next rest ends.
            self.end_rests(&keyspace, false);
            if keyspace.compactions_paused.load(Ordering::Acquire) > 0 {
                continue;
            }
            let version = Arc::clone(&keyspace.view.load().version);
            let running = lock(&keyspace.running).clone();
            let troubled = keyspace.postponed_error().is_some();
            let picker = Picker::new(&version, &keyspace.options, &running, oldest).troubled(troubled);
            let score = picker.scores().first().map_or(0.0, |(_, score)| *score);
            if best.as_ref().is_some_and(|(other, ..)| *other >= score) {
                continue;
            }
            if let Some(job) = picker.pick() {
                best = Some((score, keyspace, job));
            }
        }
        let (_, keyspace, job) = best?;
        job.claim(true);
        lock(&keyspace.running).extend(job.spans().cloned());
        Some((keyspace, job))
    }

    /// Runs a claimed job. If it `may_rest`, a failure of its own is told here and is no error.
    fn run_job(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>, job: &Job, may_rest: bool) -> Result<()> {
        let started = self.env.clock.now();
        self.health.tell(|| StoreEvent::CompactionBegun {
            keyspace: keyspace.name.clone(),
            from_level: job.level(),
            to_level: job.output_level,
            reason: job.reason.clone(),
            tables: job.files().map(|(_, file)| file.meta.number).collect(),
            bytes: job.files().map(|(_, file)| file.meta.bytes).sum(),
        });
        let claimed = Claimed { work: self, keyspace, job };
        let result = if job.is_move { self.move_tables(keyspace, job) } else { self.merge(keyspace, job) };
        // A failed store calls its merges off as a closing one does.
        let result = result.map_err(|error| match error {
            Error::Closed => self.health.failure().unwrap_or(Error::Closed),
            other => other,
        });
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
        if result.is_ok() && self.forget_postponed(keyspace, job) {
            self.health.tell(|| StoreEvent::JobRecovered { job: "compact".to_owned() });
        }
        let duration = self.env.clock.now().saturating_sub(started);
        self.memory.progress.notify();
        self.memory.work.notify();
        // Others are noted as background jobs.
        if let (Err(error), false) = (&result, may_rest) {
            self.versions.source.damaged.note(error);
        }
        let stats = match (result, postponed) {
            (Err(_), Some(event)) => {
                self.health.tell(|| event);
                return Ok(());
            }
            (result, _) => result?,
        };
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
        Ok(())
    }

    fn move_tables(&self, keyspace: &Arc<KeyspaceCore>, job: &Job) -> Result<TaskStats> {
        let added = job.files().map(|(_, f)| Added { level: job.output_level, meta: f.meta.clone() }).collect();
        self.install_job(keyspace, job, added)?;
        Ok(TaskStats::default())
    }

    fn merge(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>, job: &Job) -> Result<TaskStats> {
        let merge = |host: &Arc<Host>| {
            let merged = self.merge_tasks(keyspace, job, host)?;
            let added = |(level, table)| Added { level, meta: describe(table, &self.versions.source) };
            self.install_job(keyspace, job, merged.by_level().map(added).collect())?;
            Ok(merged)
        };
        let host = Host::new(self, true, keyspace.options.table_bytes).hot(self.is_hot_job(job));
        let merged = self.with_spill(host, merge, |merged: &Merged| &merged.tables[..])?;
        for (level, table) in merged.by_level() {
            self.tell_created(keyspace, level, std::slice::from_ref(table));
        }
        Ok(merged.stats)
    }

    fn merge_tasks(&self, keyspace: &KeyspaceCore, job: &Job, host: &Arc<Host>) -> Result<Merged> {
        let inputs = runs(job);
        let frozen = self.freeze(keyspace)?;
        let threads = self.throttle.threads(self.options.compaction_threads, self.env.clock.now());
        let mut ranges = cut(&inputs, threads, TASK_BYTES_MIN)?;
        let through = job.through.as_ref();
        if let Some(through) = through {
            let borders = [&through.range.lower, &through.range.upper];
            borders.into_iter().flatten().for_each(|border| cut_at(&mut ranges, border));
        }
        let level_of = |range: &KeyRange| match through {
            Some(through) if within(range, &through.range) => through.span.level,
            _ => job.output_level,
        };
        let levels: Vec<usize> = ranges.iter().map(level_of).collect();
        // Outside of what goes through, nothing of the level below takes part; of each task, nothing outside its range.
        let tasks: Vec<Task> = ranges
            .into_iter()
            .zip(&levels)
            .map(|(range, level)| {
                let mut rules = self.merge_rules(keyspace, job, *level, range, &frozen);
                // Of level 0 a table is one run, however long.
                if *level > 0 {
                    rules.output.target_file_bytes = rules.output.target_file_bytes.min(host.target_bytes());
                }
                let (id, level) = (self.new_task_id(), job.level() as u32);
                Task { id, keyspace: keyspace.id, level, inputs: inputs.clone(), rules }.clipped()
            })
            .collect::<Result<_, _>>()?;
        let host: Arc<dyn TaskHost> = Arc::clone(host) as Arc<dyn TaskHost>;
        // The borders make more tasks than threads: where one is to work, they follow each other.
        let together = if threads == 1 { 1 } else { tasks.len() };
        let mut outputs = Vec::with_capacity(tasks.len());
        for tasks in tasks.chunks(together) {
            outputs.extend(self.scheduler.run(tasks.to_vec(), &host).map_err(task_error)?);
        }
        let mut merged = Merged::default();
        for (level, output) in levels.into_iter().zip(outputs) {
            merged.levels.extend(output.tables.iter().map(|_| level));
            merged.tables.extend(output.tables);
            merged.stats.add(&output.stats);
        }
        Ok(merged)
    }

    /// The time of a job, and what the keyspace's filter decides by then.
    fn freeze(&self, keyspace: &KeyspaceCore) -> Result<Frozen> {
        let now_unix = self.env.clock.unix();
        let filter = keyspace.options.compaction_filter.as_ref();
        let filter = filter.map(|filter| FrozenFilter::freeze(filter, now_unix)).transpose().map_err(task_error)?;
        Ok(Frozen { now_unix, filter })
    }

    fn merge_rules(
        &self,
        keyspace: &KeyspaceCore,
        job: &Job,
        output_level: usize,
        range: KeyRange,
        frozen: &Frozen,
    ) -> MergeRules {
        // The snapshots are listed after the version is: a snapshot taken in between sees at least what is in it.
        let version = Arc::clone(&keyspace.view.load().version);
        let grandparents = version.levels.get(output_level + 1).filter(|_| output_level > 0);
        let options = &keyspace.options;
        MergeRules {
            range,
            snapshots: self.versions.snapshots.sequences(),
            below: spans_below(&version, Some((job, output_level))),
            grandparents: grandparents
                .iter()
                .flat_map(|level| &level.files)
                .map(|f| Grandparent { span: f.meta.span.clone(), bytes: f.meta.bytes })
                .collect(),
            output_level: output_level as u32,
            output: OutputRules {
                table: options.table_options(keyspace.id, &keyspace.name, output_level),
                target_file_bytes: if output_level == 0 { u64::MAX } else { options.table_bytes },
                max_grandparent_bytes: GRANDPARENT_TABLES_MAX.saturating_mul(options.table_bytes),
                created_unix_s: frozen.now_unix.as_secs(),
            },
            filter: frozen.filter.clone(),
            now_unix: frozen.now_unix,
        }
    }

    pub(crate) fn install_job(&self, keyspace: &Arc<KeyspaceCore>, job: &Job, added: Vec<Added>) -> Result<()> {
        let mut editor = self.versions.edit()?;
        if keyspace.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
        }
        let new: Vec<u64> = if job.is_move { Vec::new() } else { added.iter().map(|a| a.meta.number).collect() };
        let removed: Vec<Removed> = job.files().map(|(level, f)| Removed { level, number: f.meta.number }).collect();
        let version = keyspace.view.load().version.apply(&removed, &added, &self.versions.source);
        let version = Arc::new(version.map_err(|text| self.broken_version(keyspace, text))?);
        let edit = Edit {
            removed: removed.iter().map(|r| (keyspace.id, *r)).collect(),
            added: added.into_iter().map(|a| (keyspace.id, a)).collect(),
            ..Edit::default()
        };
        editor.apply(edit, || {
            keyspace.view.rcu(|view| {
                let mut view = (**view).clone();
                view.version = Arc::clone(&version);
                view
            });
            if !job.is_move {
                job.files().for_each(|(_, f)| f.retire());
            }
        })?;
        drop(editor);
        if job.level() == 0 {
            keyspace.owes_level0.store(false, Ordering::Release);
        }
        let new: Vec<_> =
            version.files().map(|(_, file)| file).filter(|file| new.contains(&file.meta.number)).collect();
        inherit_heat(job.files().map(|(_, file)| file), &new);
        // Opened here, so that no reader waits for footer, index and filter. One that cannot be opened tells its readers.
        for file in new {
            let _ = file.table();
        }
        Ok(())
    }

    /// Compacts all of a key range to the deepest level.
    pub(crate) fn compact_range(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceCore>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        let _guest = self.health.enter()?;
        // Level 0 is about to be emptied: that it is full must not keep it from being.
        self.flush(keyspace, Level0::Ignored)?;
        keyspace.compactions_paused.fetch_add(1, Ordering::AcqRel);
        let claimed = self.claim_range(keyspace, begin, end);
        keyspace.compactions_paused.fetch_sub(1, Ordering::AcqRel);
        // From here on the job is one among others: they take what it has not claimed, such as new tables of level 0.
        self.memory.work.notify();
        claimed.and_then(|job| job.map_or(Ok(()), |job| self.run_job(keyspace, &job, false)))?;
        // Whoever compacts wants room back.
        self.versions.delete_obsolete();
        self.trim_log()
    }

    /// Gives back the room of log files that are not needed. If no memtable holds anything, the log goes on in a short file.
    fn trim_log(&self) -> Result<()> {
        let Some(log) = &self.memory.log else { return Ok(()) };
        // First what needs no room: the disk may be full.
        log.drop_spares()?;
        if self.is_flushed()
            && let Err(error) = self.shorten_log(log)
        {
            // The compaction is done, and the log goes on in the file that it has.
            self.health.note_job_failure("shorten log", error);
        }
        self.memory.release_logs();
        Ok(log.drop_spares()?)
    }

    /// Goes on in a short log file, if still no memtable holds anything, and lets go of those before it.
    fn shorten_log(&self, log: &Log) -> Result<()> {
        self.memory.prepare_short_log(0, u64::MAX)?;
        {
            let mut commit = lock(&self.memory.commit);
            // Asked again: with the lock, nobody writes.
            if !self.is_flushed() || self.memory.rotate_locked(&mut commit).is_err() {
                return Ok(());
            }
        }
        self.memory.note_log_numbers()?;
        // The last page of the file before would be written with the next records, and must be before it can go.
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        Ok(())
    }

    /// Whether all memtables are empty.
    fn is_flushed(&self) -> bool {
        self.versions.keyspaces().iter().all(|keyspace| {
            let view = keyspace.view.load();
            view.sealed.is_empty() && view.active.is_empty()
        })
    }

    /// Waits until no compaction of the keyspace runs, and claims all tables of a key range.
    fn claim_range(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<Option<Job>> {
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            {
                let _scheduling = lock(&self.scheduling);
                let mut running = lock(&keyspace.running);
                if running.is_empty() {
                    // Whoever asks for a compaction may have mended what made another one fail.
                    self.end_rests(keyspace, true);
                    let version = Arc::clone(&keyspace.view.load().version);
                    let picker = Picker::new(&version, &keyspace.options, &[], self.oldest_snapshot());
                    let all = || version.files().map(|(_, f)| f.meta.span.clone()).reduce(KeySpan::union);
                    let keys = all().map(|all| KeySpan {
                        begin: begin.map_or(all.begin, <[u8]>::to_vec),
                        end: end.map_or(all.end, <[u8]>::to_vec),
                    });
                    let job = keys.filter(|k| k.begin < k.end).and_then(|keys| picker.everything(Some(&keys)));
                    if let Some(job) = &job {
                        job.claim(true);
                        running.extend(job.spans().cloned());
                    }
                    return Ok(job);
                }
            }
            self.memory.progress.wait(seen, None);
        }
    }

    /// Waits until nothing is left to flush or compact.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            if !self.has_work() {
                return self.versions.keyspaces().iter().find_map(|k| k.postponed_error()).map_or(Ok(()), Err);
            }
            if let Some(error) = self.trouble() {
                return Err(error);
            }
            self.memory.work.notify();
            self.memory.progress.wait(seen, Some(Duration::from_millis(100)));
        }
    }

    /// Whether there is something to flush or to compact, or somebody at it. Under the scheduling lock: between a look at what runs
    /// and one at what could begin, a job may claim its tables, and then there would seem to be neither.
    fn has_work(&self) -> bool {
        let _scheduling = lock(&self.scheduling);
        let oldest = self.oldest_snapshot();
        self.versions.keyspaces().iter().any(|keyspace| {
            let view = keyspace.view.load();
            let running = lock(&keyspace.running).clone();
            !running.is_empty()
                || !view.sealed.is_empty()
                || Picker::new(&view.version, &keyspace.options, &running, oldest).pick().is_some()
        })
    }

    /// Waits for a compaction of level 0 that is due because opening has made a table of what the log held: at most for one in
    /// each keyspace, and at most for [`LEVEL0_WAIT_MAX`]. To be called before closing.
    ///
    /// The store takes writes meanwhile. Once a memtable of them has been flushed, the wait ends: a store that flushes is
    /// open for long enough to compact level 0 while it is open.
    pub(crate) fn wait_for_level0(&self) {
        let until = self.env.clock.now() + LEVEL0_WAIT_MAX;
        loop {
            let seen = self.memory.progress.generation();
            let left = until.saturating_sub(self.env.clock.now());
            let is_over = left.is_zero() || self.has_flushed_own.load(Ordering::Acquire);
            if is_over || self.memory.writable().is_err() || self.trouble().is_some() || !self.owes_level0() {
                return;
            }
            self.memory.work.notify();
            self.memory.progress.wait(seen, Some(left.min(Duration::from_millis(100))));
        }
    }

    /// Whether a keyspace to which opening has added a table of level 0 has so many of them that a compaction is due, and one
    /// of level 0 is at work or can begin at once.
    fn owes_level0(&self) -> bool {
        let _scheduling = lock(&self.scheduling);
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
            keyspace.level0_job_runs(&version) || (jobs < self.options.compaction_threads && picker.may_shrink_level0())
        })
    }

    /// Measures the debt and sets the writers' and the compactions' budgets accordingly.
    pub(crate) fn update_debt(&self) {
        let (mut debt, mut all_memory) = (Debt::default(), 0);
        let fit = self.memory.memtables_that_fit();
        for keyspace in self.versions.keyspaces() {
            let view = keyspace.view.load();
            let options = &keyspace.options;
            let memory: u64 = view.slots().map(|slot| slot.bytes()).sum();
            let tolerated = options.memtable_bytes as f64 * options.memtables_max.min(fit) as f64;
            let picker = Picker::new(&view.version, options, &[], 0);
            let tables = view.version.levels[0].files.len() as f64 / options.level0_tables_max as f64;
            let pending = picker.pending_bytes() as f64 / PENDING_BYTES_TOLERATED;
            debt.note_memory(memory, tolerated as u64);
            all_memory += memory;
            debt.tables = debt.tables.max(tables).max(pending);
        }
        if let Some((area, log)) =
            self.memory.log.as_ref().and_then(|log| Some((self.memory.log_area_bytes(log)?, log)))
        {
            debt.note_log(all_memory, log.held_bytes(), area);
        }
        self.memory.note_room();
        self.memory.stall.set_debt(&self.memory, self.pipeline.budget(), &debt);
        self.pacer.set_debt(debt.tables);
        self.throttle.set_debt(debt.tables.max(debt.memory - 0.5));
    }
}

/// The job's tables as runs, newest first.
fn runs(job: &Job) -> Vec<Run> {
    let input = |file: &Arc<TableFile>| TableInput {
        table: Arc::clone(file) as Arc<dyn InputTable>,
        number: file.meta.number,
        span: file.meta.span.clone(),
        bytes: file.meta.bytes,
        bytes_in_range: file.meta.bytes,
        entries: file.meta.entries,
        range_deletions: file.meta.range_deletions,
        largest_sequence: file.meta.largest_sequence,
    };
    let mut runs = Vec::new();
    for (level, files) in &job.inputs {
        match level {
            0 => runs.extend(files.iter().map(|file| vec![input(file)])),
            1..LEVELS => runs.push(files.iter().map(input).collect()),
            _ => {}
        }
    }
    runs
}

#[cfg(test)]
mod tests;
