//! The division of a job into tasks, by key. The compactor chooses the parts, and the number of tasks of each part. The
//! borders of what goes to another level divide the job, too.
//!
//! **Invariants.** The tasks of a job cover all keys, in order, and each lies in one level. The data *below* a task is
//! taken from the version at its start. While the job runs, data only ever moves down within these spans, as a job that
//! moves it out of its level must have claimed it.

use crate::Result;
use crate::base::options::LEVELS;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::snapshot::Snapshots;
use crate::versions::version::TableFile;
use crate::work::picker::{Job, spans_below};
use crate::work::task_host::task_error;
use crate::work::throttle::CompactionThrottle;
use situ_base::Clock;
use situ_compaction::{
    Compactor, Destination, Division, Encoder, FrozenFilter, Grandparent, InputTable, JobNotes, JobShape, KeyRange,
    MergeRules, OutputRules, Part, Run, TableInput, Task,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A task is not cut smaller than this.
const TASK_BYTES_MIN: u64 = 16 << 20;
/// A level-1 output ends before it overlaps this many times its size in the level below.
const GRANDPARENT_TABLES_MAX: u64 = 10;

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

/// Divides jobs.
pub(crate) struct Divider {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) compactor: Arc<dyn Compactor>,
    pub(crate) throttle: Arc<CompactionThrottle>,
    /// The maximum number of threads that compact.
    pub(crate) threads_max: usize,
    pub(crate) next_number: AtomicU64,
}

impl Divider {
    /// Returns a number that no other task or job has.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
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
        // Before tasks are cut from them, and after the borders were.
        let adjoin = parts.windows(2).all(|w| w[0].range.upper.is_some() && w[0].range.upper == w[1].range.lower);
        let ends = parts.first().zip(parts.last()).map(|(first, last)| (&first.range.lower, &last.range.upper));
        assert!(adjoin && ends == Some((&None, &None)), "the parts of a job cover all keys: {parts:?}");
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
            let (id, level) = (self.new_number(), job.level() as u32);
            let task = Task { id, keyspace: keyspace.id, level, inputs: inputs.clone(), rules };
            Ok((output_level, (task.clipped()?, destination)))
        };
        let (levels, tasks) = parts.into_iter().map(task).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Divided { levels, tasks, notes })
    }

    /// Returns the number of tasks that the processor may run now.
    fn threads(&self) -> usize {
        self.throttle.threads(self.threads_max, self.clock.now())
    }

    /// Returns the number of tasks that can run now: one for each free thread, and one for each task that the
    /// compactor runs elsewhere.
    pub(crate) fn tasks_abreast(&self) -> usize {
        self.threads().saturating_add(self.compactor.elsewhere().tasks_max)
    }

    /// Returns the time of a job, and the decisions of the keyspace's filter at that time.
    fn freeze(&self, keyspace: &KeyspaceCore, job: &Job) -> Result<Frozen> {
        let now_unix = self.clock.unix();
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
            snapshots: self.snapshots.sequences(),
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
