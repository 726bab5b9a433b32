//! The picker: the choice of the tables to compact next, and the reason.
//!
//! A pure function of a version (and of which tables are being compacted). The same version gives the same decision,
//! and golden text files in `testdata/picker/` hold the decisions.
//!
//! # Targets
//! Levels grow by a factor from the *deepest* one up (RocksDB's dynamic level sizes). The deepest level's size is what
//! it is, and each level above it may hold a tenth. The first one whose target would exceed the base size is the *base
//! level*, into which level 0 is compacted. Levels between 0 and the base stay empty. So the deepest level holds nine
//! tenths of the data and obsolete versions take at most about a ninth of the space. A store that has shrunk has levels
//! in use that it does not need. When nothing is more urgent they are emptied, mostly by moving tables.
//!
//! # Choice
//! 1. Each level's score is its size over its target. Level 0's is its number of tables over its trigger, or its bytes
//!    over the base target if that is more. The highest score above 1 is served first.
//! 2. Level 0 goes as a whole into the base level; what would make that exceed its target goes through it at once
//!    (`through.rs`). While that is impossible because a compaction of level 0 is running
//!    and many newer tables have come, these are merged among themselves, so that reads do not have to look into
//!    ever more tables.
//! 3. Of a deeper level, the table with the least bytes to be rewritten below it for each byte of its own is taken. A
//!    table full of tombstones counts as larger than it is, as compacting it frees space further down. It is joined by
//!    its neighbours as long as that adds nothing below. A policy may ask for more tables: then further neighbours join
//!    it.
//! 4. A table with nothing below it in its range is moved, not rewritten.
//! 5. If nothing is over its target, the table of the deepest level with the largest share of tombstones above a
//!    quarter is rewritten by itself, if no snapshot needs them.
//! 6. Where the disk is nearly full, a job counts only if what it writes has room ([`Picker::room`]).
//! 7. In an idle store, tables with entries to drop are compacted as well (`debt.rs`).
//!
//! **Invariants.** No chosen table is busy, and no running compaction writes into the output range. Outputs of two
//! compactions into one level never overlap, because each has claimed all tables of that level that overlap its inputs.
//! The caller also keeps the key spans of running jobs apart ([`Span`]).

use crate::base::options::{KeyspaceOptions, LEVELS};
use crate::base::places::{HOME, Inputs};
use crate::versions::running::Span;
use crate::versions::version::{TableFile, TableMeta, Version};
pub(crate) use debt::Dead;
use hidden::Newer;
use situ_compaction::KeySpan;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub(crate) use through::Through;

mod debt;
mod hidden;
mod through;

/// The share of tombstones from which a table of the deepest level is rewritten for its own sake.
const TOMBSTONE_SHARE: f64 = 0.25;
/// The number of tables beyond its trigger that level 0 has before newer ones are merged among themselves.
const INTRA_LEVEL0_EXTRA: usize = 2;
/// The minimum number of tables in such a merge.
const INTRA_LEVEL0_TABLES_MIN: usize = 4;
/// A job's inputs may be this many times the size of one table.
const JOB_TABLES_MAX: u64 = 25;

impl Span {
    fn of<'a>(level: usize, files: impl Iterator<Item = &'a Arc<TableFile>>) -> Option<Span> {
        let keys = files.map(|f| f.meta.span.clone()).reduce(KeySpan::union)?;
        Some(Span { level, keys })
    }

    pub(crate) fn meets(&self, other: &Span) -> bool {
        self.level == other.level && self.keys.overlaps(&other.keys.begin, &other.keys.end)
    }
}

/// A choice of tables to compact.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) output_level: usize,
    /// Tables by level, shallowest first, each level in the version's order. The last one may be the output level, or
    /// with `through` the one below it.
    pub(crate) inputs: Vec<(usize, Vec<Arc<TableFile>>)>,
    /// The part that goes into the level below the output level.
    pub(crate) through: Option<Through>,
    /// The factor by which its level exceeds its target; 1 if a caller asks for the job.
    pub(crate) score: f64,
    pub(crate) reason: String,
    /// The tables only change their level.
    pub(crate) is_move: bool,
    /// True if the job frees space in an idle store ([`Picker::debt`]).
    pub(crate) is_debt: bool,
    /// It drops what these tables hide, too.
    pub(crate) newer: Option<Newer>,
    /// The span of its outputs in the output level.
    pub(crate) span: Span,
}

impl Job {
    /// Returns a job of these tables, whose outputs take the place of `span`.
    pub(crate) fn of(inputs: Vec<(usize, Vec<Arc<TableFile>>)>, span: Span, reason: String) -> Job {
        let (output_level, through, newer) = (span.level, None, None);
        Job { output_level, inputs, through, score: 0.0, reason, is_move: false, is_debt: false, newer, span }
    }

    /// Returns the spans that it writes.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span> {
        std::iter::once(&self.span).chain(self.through.as_ref().map(|through| &through.span))
    }

    /// Asserts what every job keeps to.
    pub(crate) fn assert_sound(&self) {
        assert!(self.inputs.windows(2).all(|pair| pair[0].0 < pair[1].0), "a job's levels go down: {self}");
        assert!(self.inputs.iter().all(|(_, files)| !files.is_empty()), "each level of a job has tables: {self}");
        let deepest = self.spans().map(|span| span.level).max();
        assert!(self.inputs.last().map(|(level, _)| *level) <= deepest, "a job moves no entry up: {self}");
        assert!(
            self.through.as_ref().is_none_or(|through| through.span.level == self.output_level + 1),
            "a stretch goes one level further: {self}"
        );
        let is_written = |span: &KeySpan| {
            self.spans().any(|written| written.keys.begin <= span.begin && span.end <= written.keys.end)
        };
        assert!(self.files().all(|(_, file)| is_written(&file.meta.span)), "a job claims the keys it reads: {self}");
        let is_apart =
            |files: &[Arc<TableFile>]| files.windows(2).all(|pair| pair[0].meta.ends_before(&pair[1].meta.span.begin));
        assert!(
            self.inputs.iter().all(|(level, files)| *level == 0 || is_apart(files)),
            "the tables of a level overlap, or are out of order: {self}"
        );
        assert!(!self.is_move || self.inputs.len() == 1, "a job that moves tables merges nothing: {self}");
    }

    /// Returns the shallowest input level.
    pub(crate) fn level(&self) -> usize {
        self.inputs.first().map_or(0, |(level, _)| *level)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.inputs.iter().flat_map(|(level, files)| files.iter().map(|f| (*level, f)))
    }

    /// Returns the inputs, as placement sees them.
    pub(crate) fn placed_inputs(&self) -> Inputs {
        let files = || self.files().map(|(_, file)| file);
        let elsewhere = files().filter(|file| file.meta.volume != HOME);
        Inputs {
            bytes: files().map(|file| file.meta.bytes).sum(),
            bytes_elsewhere: elsewhere.map(|file| file.meta.bytes).sum(),
            reads_per_s: files().map(|file| file.heat.per_s()).sum(),
        }
    }

    /// Returns true if its tables are claimed, by this job or by another.
    pub(crate) fn is_claimed(&self) -> bool {
        self.files().all(|(_, file)| file.busy.load(Ordering::Acquire))
    }

    pub(crate) fn claim(&self, busy: bool) {
        self.files().for_each(|(_, f)| f.busy.store(busy, Ordering::Release));
    }
}

/// Tables are guessed to leave at least this share of their bytes.
const LEAST_SHARE: u64 = 32;

/// Returns the bytes left of a job's tables when each tombstone has met an entry: a guess from their counts. The extent
/// of a range tombstone's deletions is unknown, so the least counts there.
pub(crate) fn bytes_left<'a>(tables: impl Iterator<Item = &'a TableMeta>) -> u64 {
    let (mut bytes, mut puts, mut deletions, mut has_ranges) = (0, 0_u64, 0_u64, false);
    for meta in tables {
        bytes += meta.bytes;
        puts += meta.entries.saturating_sub(meta.deletions);
        deletions += meta.deletions;
        has_ranges |= meta.range_deletions > 0;
    }
    let least = bytes / LEAST_SHARE;
    if has_ranges {
        return least;
    }
    let left = u128::from(bytes) * u128::from(puts.saturating_sub(deletions)) / u128::from(puts.max(1));
    least.max(left as u64)
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_move { "move" } else { "compact" })?;
        for (level, files) in &self.inputs {
            let numbers = files.iter().map(|f| f.meta.number.to_string()).collect::<Vec<_>>().join(" ");
            write!(f, " L{level} [{numbers}]")?;
        }
        write!(f, " to L{}", self.output_level)?;
        if let Some(through) = &self.through {
            write!(f, ", {:?} to L{}", through.range, through.span.level)?;
        }
        write!(f, ": {}", self.reason)
    }
}

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

/// The target size of each level, and the level that level 0 is compacted into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    pub(crate) base_level: usize,
    /// Levels above this one are left over from a larger store and are emptied.
    pub(crate) needed_level: usize,
    pub(crate) bytes: [u64; LEVELS],
}

impl Targets {
    pub(crate) fn of(version: &Version, options: &KeyspaceOptions) -> Targets {
        let deepest = LEVELS - 1;
        let mut targets = Targets { base_level: deepest, needed_level: deepest, bytes: [u64::MAX; LEVELS] };
        let Some(first_used) = (1..LEVELS).find(|l| !version.levels[*l].files.is_empty()) else { return targets };
        let multiplier = options.level_multiplier;
        let base_bytes_max = options.level_base_bytes;
        let largest = version.levels.iter().skip(1).map(|l| l.bytes).max().unwrap_or(0);
        // What a level may hold if the deepest one were as large as the largest is now.
        let share = |level: usize| (level..deepest).fold(largest, |bytes, _| bytes / multiplier);
        targets.base_level = first_used;
        while targets.base_level > 1 && share(targets.base_level) > base_bytes_max {
            targets.base_level -= 1;
        }
        // The deepest level has nothing below to go to, so it has no target.
        for level in targets.base_level..deepest {
            // No level is smaller than the base size: an hourglass would cost a rewrite and hold nothing.
            targets.bytes[level] = share(level).max(base_bytes_max);
        }
        // A whole level's factor below the base size, so that a store near a limit does not open and empty a level in
        // turns.
        let needed = |level: &usize| share(*level) >= base_bytes_max / multiplier;
        targets.needed_level = (targets.base_level..deepest).find(needed).unwrap_or(deepest);
        assert!(
            (1..=targets.needed_level).contains(&targets.base_level),
            "level 0 goes down into a level: {targets:?}"
        );
        assert!(targets.bytes[targets.base_level..].is_sorted(), "a deeper level holds no less: {targets:?}");
        targets
    }
}

/// Picks jobs for one keyspace.
pub(crate) struct Picker<'a> {
    pub(crate) version: &'a Version,
    pub(crate) options: &'a KeyspaceOptions,
    pub(crate) targets: Targets,
    /// Output spans of running jobs.
    pub(crate) running: &'a [Span],
    pub(crate) oldest_snapshot: u64,
    /// A job of the keyspace has failed and not succeeded since.
    troubled: bool,
    /// The number of tables with which a job of a deeper level begins, if the level has that many.
    tables_per_job: usize,
    /// The bytes that a job may write.
    room: u64,
}

fn idle(file: &Arc<TableFile>) -> bool {
    !file.busy.load(Ordering::Acquire)
}

impl<'a> Picker<'a> {
    pub(crate) fn new(
        version: &'a Version,
        options: &'a KeyspaceOptions,
        running: &'a [Span],
        oldest_snapshot: u64,
    ) -> Picker<'a> {
        let targets = Targets::of(version, options);
        Picker {
            version,
            options,
            targets,
            running,
            oldest_snapshot,
            troubled: false,
            tables_per_job: 1,
            room: u64::MAX,
        }
    }

    /// Has jobs of deeper levels begin with this many tables of the upper level.
    pub(crate) fn tables_per_job(mut self, tables: usize) -> Picker<'a> {
        self.tables_per_job = tables;
        self
    }

    /// Has no job write more than the disk has room for, as far as can be told from counts.
    pub(crate) fn room(mut self, bytes: u64) -> Picker<'a> {
        self.room = bytes;
        self
    }

    /// Tells of a job of the keyspace that has failed and not succeeded since.
    pub(crate) fn troubled(mut self, troubled: bool) -> Picker<'a> {
        self.troubled = troubled;
        self
    }

    /// Levels with their scores, most urgent first. Tables being compacted do not count, except in level 0.
    pub(crate) fn scores(&self) -> Vec<(usize, f64)> {
        let mut scores = Vec::new();
        let level0 = &self.version.levels[0];
        let by_count = level0.files.len() as f64 / self.options.level0_tables as f64;
        let base = self.targets.bytes[self.targets.base_level].min(self.options.level_base_bytes).max(1);
        let by_bytes = level0.bytes as f64 / base as f64;
        // Bytes alone do not justify a compaction of fewer tables than half the trigger.
        let by_bytes = if level0.files.len() * 2 >= self.options.level0_tables { by_bytes } else { 0.0 };
        scores.push((0, by_count.max(by_bytes)));
        for level in self.targets.base_level..LEVELS - 1 {
            let bytes: u64 = self.version.levels[level].files.iter().filter(|f| idle(f)).map(|f| f.meta.bytes).sum();
            let score = bytes as f64 / self.targets.bytes[level] as f64;
            let emptied = level < self.targets.needed_level && bytes > 0;
            scores.push((level, if emptied { score.max(1.0) } else { score }));
        }
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores
    }

    /// Returns the next job, if there is one to do: one that the disk has room for, if there is such.
    pub(crate) fn pick(&self) -> Option<Job> {
        let left = |job: &Job| bytes_left(job.files().map(|(_, file)| &file.meta));
        let fitting = self.pick_of(&|job| job.is_move || left(job) <= self.room);
        // One that has no room tells so when it begins.
        fitting.or_else(|| self.pick_of(&|_| true).filter(|_| self.room < u64::MAX))
    }

    fn pick_of(&self, fits: &dyn Fn(&Job) -> bool) -> Option<Job> {
        for (level, score) in self.scores() {
            if score < 1.0 {
                break;
            }
            let job = match level {
                0 => self.level0_that(score, fits).or_else(|| self.intra_level0().filter(fits)),
                _ => self.deeper(level, score, fits),
            };
            if let Some(job) = job {
                return Some(Job { score, ..job });
            }
        }
        self.tombstones().filter(fits)
    }

    fn free(&self, span: &Span) -> bool {
        !self.running.iter().any(|other| other.meets(span))
    }

    /// Completes a job with what lies below it; `None` if something of it is busy.
    fn complete(&self, level: usize, output_level: usize, upper: Vec<Arc<TableFile>>, reason: String) -> Option<Job> {
        let span = Span::of(output_level, upper.iter())?;
        let lower = self.version.levels[output_level].overlapping(&span.keys).to_vec();
        let span = Span::of(output_level, upper.iter().chain(&lower))?;
        if !upper.iter().chain(&lower).all(idle) || !self.free(&span) {
            return None;
        }
        let is_move = lower.is_empty() && self.may_move(level, output_level, &upper);
        let mut inputs = vec![(level, upper)];
        if !lower.is_empty() {
            inputs.push((output_level, lower));
        }
        Some(Job { is_move, ..Job::of(inputs, span, reason) })
    }

    fn may_move(&self, level: usize, output_level: usize, upper: &[Arc<TableFile>]) -> bool {
        let same_format = self.options.compression_at(level) == self.options.compression_at(output_level);
        let disjoint = || {
            let mut sorted: Vec<_> = upper.iter().collect();
            sorted.sort_by(|a, b| a.meta.span.cmp(&b.meta.span));
            sorted.windows(2).all(|w| w[0].meta.ends_before(&w[1].meta.span.begin))
        };
        // Tombstones with nothing under them are worth dropping, and a table that overlaps much further down would be
        // expensive to compact there.
        let below = self.version.levels.get(output_level + 1);
        let light = upper.iter().all(|f| {
            let bytes: u64 = below.map_or(0, |l| l.overlapping(&f.meta.span).iter().map(|f| f.meta.bytes).sum());
            bytes <= JOB_TABLES_MAX * self.options.table_bytes
        });
        let keeps = upper.iter().all(|f| f.meta.deletions == 0 && f.meta.range_deletions == 0);
        same_format && light && keeps && self.options.compaction_filter.is_none() && disjoint()
    }

    /// Returns a job for all of level 0, or for its oldest tables if that is too much.
    fn level0_that(&self, score: f64, fits: &dyn Fn(&Job) -> bool) -> Option<Job> {
        let files = self.version.levels[0].files.len();
        let mut counts = std::iter::successors(Some(files), |count| Some(count / 2)).take_while(|count| *count > 0);
        counts.find_map(|count| self.level0_oldest(score, count).filter(fits))
    }

    fn level0(&self, score: f64) -> Option<Job> {
        self.level0_oldest(score, usize::MAX)
    }

    /// Returns a job for the oldest `count` tables of level 0: only older tables than those that stay may go down.
    fn level0_oldest(&self, score: f64, count: usize) -> Option<Job> {
        let files = &self.version.levels[0].files;
        let files = files[files.len().saturating_sub(count)..].to_vec();
        if !files.iter().all(idle) || self.running.iter().any(|span| span.level == 0) {
            return None;
        }
        let reason = format!("{} tables in level 0, score {score:.2}", files.len());
        let mut job = self.complete(0, self.targets.base_level, files, reason)?;
        self.add_through(&mut job);
        Some(job)
    }

    /// Returns true if a job that takes tables out of level 0 could begin now.
    pub(crate) fn may_shrink_level0(&self) -> bool {
        self.level0(0.0).or_else(|| self.intra_level0()).is_some()
    }

    /// Returns the tables that have to be free for level 0 to go down into the base level.
    pub(crate) fn level0_needs(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let level0 = &self.version.levels[0].files;
        let base = &self.version.levels[self.targets.base_level];
        let span = Span::of(self.targets.base_level, level0.iter());
        level0.iter().chain(span.map_or(&[][..], |span| base.overlapping(&span.keys)))
    }

    fn intra_level0(&self) -> Option<Job> {
        let files = &self.version.levels[0].files;
        if files.len() < self.options.level0_tables + INTRA_LEVEL0_EXTRA {
            return None;
        }
        let mut upper: Vec<Arc<TableFile>> = Vec::new();
        let mut bytes = 0;
        for file in files.iter().take_while(|f| idle(f)) {
            bytes += file.meta.bytes;
            if bytes > self.room.min(JOB_TABLES_MAX * self.options.table_bytes) {
                break;
            }
            upper.push(Arc::clone(file));
        }
        if upper.len() < INTRA_LEVEL0_TABLES_MIN || self.running.iter().any(|span| span.level == 0) {
            return None;
        }
        let span = Span::of(0, upper.iter())?;
        let reason = format!("level 0 has {} tables and its way down is busy", files.len());
        Some(Job::of(vec![(0, upper)], span, reason))
    }

    fn deeper(&self, level: usize, score: f64, fits: &dyn Fn(&Job) -> bool) -> Option<Job> {
        let files = &self.version.levels[level].files;
        let next = &self.version.levels[level + 1];
        let cost = |file: &Arc<TableFile>| {
            let meta = &file.meta;
            let below: u64 = next.overlapping(&meta.span).iter().map(|f| f.meta.bytes).sum();
            let dead = (meta.deletions + 16 * meta.range_deletions) as f64 / meta.entries.max(1) as f64;
            below as f64 / (meta.bytes.max(1) as f64 * (1.0 + 2.0 * dead.min(1.0)))
        };
        let mut order: Vec<(usize, f64)> =
            files.iter().enumerate().filter(|(_, f)| idle(f)).map(|(at, f)| (at, cost(f))).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        order.into_iter().find_map(|(at, cost)| {
            let tables = self.with_neighbours(level, at);
            let why = if level < self.targets.needed_level { "is not needed" } else { "is over its target" };
            let reason = format!("level {level} {why}, score {score:.2}; {cost:.2} bytes below each byte");
            let job = self.complete(level, level + 1, files[tables.clone()].to_vec(), reason.clone()).filter(fits)?;
            let more = self.with_more(level, tables.clone());
            // What would be moved is not rewritten for the sake of more tables.
            if job.is_move || more == tables {
                return Some(job);
            }
            Some(self.complete(level, level + 1, files[more].to_vec(), reason).filter(fits).unwrap_or(job))
        })
    }

    /// Returns these tables and their neighbours, the right ones first, until there are as many as a job is to begin
    /// with. More tables need more of the level below.
    fn with_more(&self, level: usize, tables: Range<usize>) -> Range<usize> {
        let files = &self.version.levels[level].files;
        let fits = |range: &Range<usize>| {
            let upper = &files[range.clone()];
            let Some(span) = Span::of(level, upper.iter()) else { return false };
            let below = self.version.levels[level + 1].overlapping(&span.keys);
            let bytes: u64 = upper.iter().chain(below).map(|f| f.meta.bytes).sum();
            upper.iter().all(idle) && bytes <= JOB_TABLES_MAX * self.options.table_bytes
        };
        let mut tables = tables;
        while tables.len() < self.tables_per_job {
            let right = tables.start..tables.end + 1;
            let left = tables.start.checked_sub(1).map(|start| start..tables.end);
            let wider = Some(right).filter(|right| right.end <= files.len()).into_iter().chain(left).find(fits);
            let Some(wider) = wider else { break };
            tables = wider;
        }
        tables
    }

    /// Returns the table at `at` and its neighbours on both sides, as long as they need nothing more from below.
    fn with_neighbours(&self, level: usize, at: usize) -> Range<usize> {
        let files = &self.version.levels[level].files;
        let next = &self.version.levels[level + 1];
        let below = next.overlapping(&files[at].meta.span);
        if below.is_empty() {
            return at..at + 1;
        }
        let mut bytes: u64 = files[at].meta.bytes + below.iter().map(|f| f.meta.bytes).sum::<u64>();
        let mut joins = |file: &&Arc<TableFile>| {
            let wider = next.overlapping(&files[at].meta.span.clone().union(file.meta.span.clone()));
            let more = bytes + file.meta.bytes;
            let joins = idle(file) && wider.len() == below.len() && more <= JOB_TABLES_MAX * self.options.table_bytes;
            bytes = if joins { more } else { bytes };
            joins
        };
        let right = files[at + 1..].iter().take_while(&mut joins).count();
        let left = files[..at].iter().rev().take_while(&mut joins).count();
        at - left..at + right + 1
    }

    fn tombstones(&self) -> Option<Job> {
        let deepest = (1..LEVELS).rev().find(|l| !self.version.levels[*l].files.is_empty())?;
        let share = |f: &Arc<TableFile>| {
            let meta = &f.meta;
            let dead = meta.deletions + meta.range_deletions;
            if meta.largest_sequence > self.oldest_snapshot || !idle(f) || dead == 0 {
                return 0.0;
            }
            // Range tombstones in the deepest level hide nothing any more.
            if meta.range_deletions > 0 { 1.0 } else { dead as f64 / meta.entries.max(1) as f64 }
        };
        let files = &self.version.levels[deepest].files;
        let file = files.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
        if share(file) < TOMBSTONE_SHARE {
            return None;
        }
        let reason = match file.meta.range_deletions {
            0 => format!("{:.0}% of its entries are tombstones", share(file) * 100.0),
            _ => "its range tombstones hide nothing".to_owned(),
        };
        self.in_place(deepest, file, reason)
    }

    /// Makes a job that rewrites one table within its level.
    fn in_place(&self, level: usize, file: &Arc<TableFile>, reason: String) -> Option<Job> {
        let upper = vec![Arc::clone(file)];
        let span = Span::of(level, upper.iter())?;
        self.free(&span).then(|| Job::of(vec![(level, upper)], span, reason))
    }

    /// Returns one job to the deepest level for everything that overlaps `keys`; `None` if nothing would change, or if
    /// something is busy.
    pub(crate) fn everything(&self, keys: Option<&KeySpan>) -> Option<Job> {
        let levels = &self.version.levels;
        let mut keys = match keys {
            Some(keys) => keys.clone(),
            None => Span::of(0, self.version.files().map(|(_, f)| f))?.keys,
        };
        // A table half in the range takes part whole, and with it all that its other half overlaps.
        let inputs: Vec<(usize, Vec<Arc<TableFile>>)> = loop {
            let overlapping = |level: &crate::versions::version::Level| {
                level.files.iter().filter(|f| f.meta.span.overlaps(&keys.begin, &keys.end)).cloned().collect::<Vec<_>>()
            };
            let inputs: Vec<_> =
                (0..LEVELS).map(|n| (n, overlapping(&levels[n]))).filter(|(_, f)| !f.is_empty()).collect();
            let files = inputs.iter().flat_map(|(_, files)| files);
            let wider = files.fold(keys.clone(), |keys, f| keys.union(f.meta.span.clone()));
            if wider == keys {
                break inputs;
            }
            keys = wider;
        };
        let deepest = (1..LEVELS).rev().find(|l| !levels[*l].files.is_empty());
        let output_level = deepest.unwrap_or(0).max(self.targets.base_level);
        let clean = |f: &Arc<TableFile>| f.meta.deletions == 0 && f.meta.range_deletions == 0;
        let settled = inputs.len() == 1 && inputs[0].0 == output_level && inputs[0].1.iter().all(clean);
        if inputs.is_empty() || settled && self.options.compaction_filter.is_none() {
            return None;
        }
        let span = Span { level: output_level, keys };
        let free = inputs.iter().flat_map(|(_, files)| files).all(idle) && self.free(&span);
        free.then(|| Job { score: 1.0, ..Job::of(inputs, span, "asked for".to_owned()) })
    }

    /// Returns the bytes that levels hold above their targets.
    pub(crate) fn pending_bytes(&self) -> u64 {
        (self.targets.base_level..LEVELS - 1)
            .map(|level| self.version.levels[level].bytes.saturating_sub(self.targets.bytes[level]))
            .fold(self.version.levels[0].bytes, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
