//! Compactions: from a picked job to an installed version.
//!
//! 1. Under the scheduling lock: pick a job, mark its tables busy, remember the keys it will write.
//! 2. Divide it by key into tasks, as the policy says: which part each unit gets, how many tasks that part is. The
//!    borders of what goes to another level divide it, too. The scheduler gives the tasks to units; the job is *under
//!    way* and holds no thread (`job.rs`).
//! 3. When the last task has landed, install all outputs with one edit; inputs are deleted when their last reader lets
//!    go.
//!
//! **Invariants.** A table belongs to at most one job. The span of a job's outputs meets no other running job's in the
//! same level. The data *below* a task is taken from the version at its start. While the job runs, data only ever moves
//! down within these spans, as a job that moves it out of its level must have claimed it.
//!
//! **Failure.** Outputs of a failed job are removed. If the failure is the job's own, such as a table that cannot be
//! read, it rests for a while and others go on (`postpone.rs`). Otherwise it is picked again after a pause.

use crate::base::options::LEVELS;
use crate::base::sync::lock;
use crate::pipeline::seal::Level0;
use crate::pipeline::stall::Debt;
use crate::versions::edit::Edit;
use crate::versions::heat::inherit_heat;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::{Added, Removed, TableFile, Version};
use crate::work::Work;
use crate::work::background::Turn;
use crate::work::job::{Begun, DeadValues};
use crate::work::picker::{Job, Picker};
use crate::work::task_host::task_error;
use crate::{Error, Result};
use situ_compaction::{
    Destination, Division, Encoder, FrozenFilter, Grandparent, InputTable, JobNotes, JobShape, KeyRange, KeySpan,
    MergeRules, OutputRules, Part, Run, TableInput, Task,
};
use situ_log::Log;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A task is not cut smaller than this.
const TASK_BYTES_MIN: u64 = 16 << 20;
/// Closing waits no longer for level 0. What a compaction has done by then is lost; the next opening begins it again.
const LEVEL0_WAIT_MAX: Duration = Duration::from_secs(10);
/// Number of ordinary log files up to which the log never slows writers, however low its limit is.
const LOG_FILES_MIN: u64 = 4;
/// Bytes above the levels' targets that are tolerated.
const PENDING_BYTES_TOLERATED: f64 = (128u64 << 30) as f64;
/// A level-1 output ends before it overlaps this many times its size in the level below.
const GRANDPARENT_TABLES_MAX: u64 = 10;

/// Returns the spans where data older than a merge's inputs may lie. They are everything outside the job in the levels
/// that `job` does not reach above, if its output goes to the adjacent level. Without a job (a flush): in all levels.
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

/// Cuts, of parts that follow each other without a gap, the one in which `key` lies before it. Both have the same
/// destination.
fn cut_at(parts: &mut Vec<Part>, key: &[u8]) {
    let Some(at) = parts.iter().position(|part| part.range.contains(key)) else { return };
    let Part { range, destination } = &mut parts[at];
    if range.lower.as_deref() == Some(key) {
        return;
    }
    let behind = KeyRange { lower: Some(key.to_vec()), upper: range.upper.replace(key.to_vec()) };
    let behind = Part { range: behind, destination: *destination };
    parts.insert(at + 1, behind);
}

/// Returns true if all keys of a range lie in another.
fn within(range: &KeyRange, outer: &KeyRange) -> bool {
    let lower = outer.lower.is_none() || range.lower >= outer.lower;
    lower && (outer.upper.is_none() || range.upper.is_some() && range.upper <= outer.upper)
}

/// The settings that may change while a program runs but must not while a job does: all tasks of the job have the same.
struct Frozen {
    now_unix: Duration,
    filter: Option<FrozenFilter>,
}

/// A job as its tasks.
pub(crate) struct Divided {
    /// The level that the output of each task goes to.
    pub(crate) levels: Vec<usize>,
    pub(crate) tasks: Vec<(Task, Destination)>,
    pub(crate) notes: JobNotes,
}

/// Claims a picked job. The caller holds the scheduling lock.
pub(crate) fn claimed(keyspace: Arc<KeyspaceCore>, job: Job) -> (Arc<KeyspaceCore>, Job) {
    job.claim(true);
    lock(&keyspace.running).extend(job.spans().cloned());
    (keyspace, job)
}

impl Work {
    /// Lands a job that has finished, or picks and begins one. A failure of a job's own is reported and postpones the
    /// job; another error is returned.
    pub(crate) fn compact_one(self: &Arc<Self>) -> Result<Turn> {
        if self.land_one()? {
            return Ok(Turn::Done);
        }
        // Also where nothing is begun: a thread that finds nothing to do sleeps until the next rest ends.
        self.end_due_rests();
        let elsewhere = self.compactor.elsewhere();
        if elsewhere.is_full {
            return Ok(Turn::Waits);
        }
        let now = self.env.clock.now();
        // The thread that lands a job picks again, and wakes the others.
        let Some(turn) = self.throttle.begin(self.options.compaction_threads, elsewhere.tasks_max, now) else {
            return Ok(Turn::Waits);
        };
        // On a full disk, what frees space comes first. Tables that are read often go up when there is nothing to
        // compact.
        let picked = match self.memory.space.is_short() {
            true => self.pick_debt().or_else(|| self.pick()),
            false => self.pick().or_else(|| self.pick_debt()),
        };
        let Some((keyspace, job)) = picked else {
            return self.move_in_turn();
        };
        let is_move = job.is_move;
        self.begin_job(keyspace, job, Begun { turn: Some(turn), outcome: None })?;
        Ok(if is_move { Turn::Done } else { Turn::Begun })
    }

    fn move_in_turn(self: &Arc<Self>) -> Result<Turn> {
        // Copies take space, and give none back for a while.
        let moved = !self.memory.space.is_low() && self.places.move_one()?;
        Ok(match moved {
            true => Turn::Done,
            false if lock(&self.jobs).is_empty() => Turn::Idle,
            false => Turn::Waits,
        })
    }

    fn end_due_rests(&self) {
        let _scheduling = lock(&self.scheduling);
        self.versions.keyspaces().iter().for_each(|keyspace| self.end_rests(keyspace, false));
    }

    pub(crate) fn oldest_snapshot(&self) -> u64 {
        let first = self.versions.snapshots.oldest();
        first.unwrap_or_else(|| self.versions.snapshots.visible())
    }

    fn pick(&self) -> Option<(Arc<KeyspaceCore>, Job)> {
        let _scheduling = lock(&self.scheduling);
        let oldest = self.oldest_snapshot();
        let mut best: Option<(f64, Arc<KeyspaceCore>, Job)> = None;
        for keyspace in self.versions.keyspaces() {
            if keyspace.compactions_paused.load(Ordering::Acquire) > 0 {
                continue;
            }
            let version = Arc::clone(&keyspace.view.load().version);
            let running = lock(&keyspace.running).clone();
            let troubled = keyspace.postponed_error().is_some();
            let picker = Picker::new(&version, &keyspace.options, &running, oldest)
                .troubled(troubled)
                .room(self.memory.room_for_compactions())
                .tables_per_job(self.compactor.tables_per_job());
            let score = picker.scores().first().map_or(0.0, |(_, score)| *score);
            if best.as_ref().is_some_and(|(other, ..)| *other >= score) {
                continue;
            }
            if let Some(job) = picker.pick() {
                best = Some((score, keyspace, job));
            }
        }
        let (_, keyspace, job) = best?;
        Some(claimed(keyspace, job))
    }

    /// Returns the tasks of a job.
    pub(crate) fn tasks_of(&self, keyspace: &KeyspaceCore, job: &Job, target_bytes: u64) -> Result<Divided> {
        let inputs = runs(job);
        let frozen = self.freeze(keyspace, job)?;
        let compression = keyspace.options.compression_at(job.output_level);
        let Division { mut parts, notes } = self.compactor.divide(&JobShape {
            level: job.level() as u32,
            inputs: &inputs,
            compression,
            threads: self.threads(),
            task_bytes_min: TASK_BYTES_MIN,
            // A part of less than a table would give a short one.
            part_bytes_min: TASK_BYTES_MIN.min(keyspace.options.table_bytes),
        })?;
        let through = job.through.as_ref();
        if let Some(through) = through {
            let borders = [&through.range.lower, &through.range.upper];
            borders.into_iter().flatten().for_each(|border| cut_at(&mut parts, border));
        }
        let level_of = |range: &KeyRange| match through {
            Some(through) if within(range, &through.range) => through.span.level,
            _ => job.output_level,
        };
        // Outside of what goes through, nothing of the level below takes part; of each task, nothing outside its range.
        let task = |Part { range, destination }| {
            let output_level = level_of(&range);
            let mut rules = self.merge_rules(keyspace, job, output_level, range, &frozen);
            // Of level 0 a table is one run, however long.
            if output_level > 0 {
                rules.output.target_file_bytes = rules.output.target_file_bytes.min(target_bytes);
            }
            let (id, level) = (self.new_task_id(), job.level() as u32);
            let task = Task { id, keyspace: keyspace.id, level, inputs: inputs.clone(), rules };
            Ok((output_level, (task.clipped()?, destination)))
        };
        let (levels, tasks) = parts.into_iter().map(task).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Divided { levels, tasks, notes })
    }

    /// Returns the number of tasks that the processor may run now.
    fn threads(&self) -> usize {
        self.throttle.threads(self.options.compaction_threads, self.env.clock.now())
    }

    /// Returns the number of tasks that can run now: one for each free thread, and one for each task that units
    /// elsewhere take.
    pub(crate) fn tasks_abreast(&self) -> usize {
        self.threads().saturating_add(self.compactor.elsewhere().tasks_max)
    }

    /// Returns the time of a job, and the decisions of the keyspace's filter at that time.
    fn freeze(&self, keyspace: &KeyspaceCore, job: &Job) -> Result<Frozen> {
        let now_unix = self.env.clock.unix();
        let filter = keyspace.options.compaction_filter.clone();
        let filter = match &job.newer {
            Some(newer) => Some(newer.filter(filter)),
            None => filter,
        };
        let filter = filter.map(|filter| FrozenFilter::freeze(&filter, now_unix)).transpose().map_err(task_error)?;
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
                encoder: Encoder::default(),
            },
            filter: frozen.filter.clone(),
            now_unix: frozen.now_unix,
        }
    }

    pub(crate) fn install_job(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        job: &Job,
        added: Vec<Added>,
        dead: &mut DeadValues,
    ) -> Result<()> {
        let mut editor = self.versions.edit()?;
        if keyspace.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
        }
        let new: Vec<u64> = if job.is_move { Vec::new() } else { added.iter().map(|a| a.meta.number).collect() };
        let removed: Vec<Removed> = job.files().map(|(level, f)| Removed { level, number: f.meta.number }).collect();
        let version = keyspace.view.load().version.apply(&removed, &added, &self.versions.source);
        let version = version.map_err(|text| self.broken_version(keyspace, text))?;
        let version = Arc::new(if dead.places.is_empty() { version } else { version.in_next_era() });
        let dead_sums = version.segments.counted(&dead.sums);
        let edit = Edit {
            removed: removed.iter().map(|r| (keyspace.id, *r)).collect(),
            added: added.into_iter().map(|a| (keyspace.id, a)).collect(),
            values_dead: dead_sums.iter().map(|dead| (keyspace.id, *dead)).collect(),
            ..Edit::default()
        };
        editor.apply(edit, || {
            version.segments.note(&[], &dead_sums);
            if !dead.places.is_empty() {
                let places = std::mem::take(&mut dead.places);
                let before = &keyspace.view.load().version.segments;
                before.end_era(&version.segments, places, &self.versions.source.values);
            }
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
        // Opened here, so that no reader waits for footer, index and filter. One that cannot be opened tells its
        // readers.
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
        claimed.and_then(|job| job.map_or(Ok(()), |job| self.run_job(keyspace, job)))?;
        // The caller of a compaction wants room back.
        self.versions.delete_obsolete();
        self.trim_log()
    }

    /// Gives back the room of log files that are not needed. If no memtable holds anything, the log goes on in a short
    /// file.
    pub(crate) fn trim_log(&self) -> Result<()> {
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
        self.memory.prepare_log_at_rest()?;
        {
            let mut commit = lock(&self.memory.commit);
            // Asked again: with the lock held, no thread writes.
            if !self.is_flushed() || self.memory.rotate_locked(&mut commit).is_err() {
                return Ok(());
            }
        }
        self.memory.note_log_numbers()?;
        // The last page of the file before would be written with the next records, and must be before it can go.
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        Ok(())
    }

    /// Returns true if all memtables are empty.
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
                    // The caller that asks for a compaction may have mended what made another one fail.
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

    /// Waits until there is nothing to flush, compact, trim or collect, and no debt is due (`debts.rs`). Replaced files
    /// are deleted by then, unless a reader holds them.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            if !self.has_work() {
                self.versions.delete_obsolete();
            }
            if !self.has_work() && !self.versions.source.values.is_deleting() {
                return self.versions.keyspaces().iter().find_map(|k| k.postponed_error()).map_or(Ok(()), Err);
            }
            if let Some(error) = self.trouble() {
                return Err(error);
            }
            self.memory.work.notify();
            self.memory.progress.wait(seen, Some(Duration::from_millis(100)));
        }
    }

    /// Returns true if the background has something to do, or is at it.
    fn has_work(&self) -> bool {
        self.has_collections() || self.has_flushes_or_compactions() || self.owes_now()
    }

    /// Returns true if a flush or compaction is pending or running. Takes the scheduling lock. Between the look at
    /// running jobs and the look at possible ones, a job may claim its tables, and then there would seem to be neither.
    fn has_flushes_or_compactions(&self) -> bool {
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

    /// Waits for a compaction of level 0 that is due because opening has made a table of what the log held. It waits at
    /// most for one in each keyspace, and at most for [`LEVEL0_WAIT_MAX`]. To be called before closing.
    ///
    /// The store takes writes meanwhile. Once a memtable of them has been flushed, the wait ends. A store that flushes
    /// is open for long enough to compact level 0 while it is open.
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

    /// Returns true if a keyspace to which opening has added a table of level 0 has enough of them that a compaction is
    /// due. A compaction of level 0 must also be at work, or able to begin at once.
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
        let (mut debt, mut all_memory, mut sealed_memory) = (Debt::default(), 0, 0);
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
            sealed_memory += memory - view.active.bytes().min(memory);
            debt.tables = debt.tables.max(tables).max(pending);
        }
        // Half of the limit is for sealed memtables (`total.rs`).
        debt.note_memory(sealed_memory, self.memory.meter.bytes_max() / 2);
        if let Some((area, log)) =
            self.memory.log.as_ref().and_then(|log| Some((self.memory.log_area_bytes(log)?, log)))
        {
            debt.note_log(all_memory, log.held_bytes(), area);
        } else if let Some(log) = &self.memory.log {
            // Debts slow writers from half of the tolerated amount on, so twice the limit slows them from the limit on.
            let limit = self.options.log_bytes_max.max(LOG_FILES_MIN * log.file_bytes_for(0));
            debt.note_log(all_memory, log.held_bytes(), limit.saturating_mul(2));
        }
        self.memory.note_room();
        self.memory.stall.set_debt(&self.memory, self.pipeline.budget(), &debt);
        self.pacer.set_debt(debt.tables);
        self.throttle.set_debt(debt.tables.max(debt.memory - 0.5));
    }
}

/// Returns the job's tables as runs, newest first.
fn runs(job: &Job) -> Vec<Run> {
    let input = |file: &Arc<TableFile>| TableInput {
        table: Arc::clone(file) as Arc<dyn InputTable>,
        volume: file.meta.volume,
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
