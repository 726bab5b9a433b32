//! Compactions in an idle store that free the space of dead entries.
//!
//! A compaction of a table *frees* the entries that its tombstones hide, and those that a filter removes now. In level
//! 0 of a keyspace with a value log, it also frees the values that the table's handles hide. These amounts are
//! estimates from counts. The size of the entries under a range tombstone is unknown, so a range tombstone is worth any
//! compaction.
//!
//! 1. All tables of level 0 are compacted together, as when the level is full.
//! 2. A table of a middle level is compacted into the next level, where the entries are that its tombstones hide.
//! 3. A table of the deepest level is rewritten within the level.
//!
//! 4. Where the disk is nearly full, a table is rewritten within its level first, without the entries that newer tables
//!    hide (`hidden.rs`).
//!
//! A job is *worth it* if it frees an eighth of the bytes that it rewrites, or rewrites at most [`SMALL_BYTES`]. So the
//! dead entries that stay take less than an eighth of their level.
//!
//! **Invariants.** No snapshot protects the entries for which a table is chosen. So a rewritten table drops entries. If
//! it does not, it is marked, and not chosen again.

use super::{Job, Picker, Span, idle};
use crate::base::options::LEVELS;
use crate::versions::version::TableFile;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A job is worth it if it frees the bytes that it rewrites divided by this.
const WORTH: u64 = 8;
/// Maximum size of a job that is worth it if it frees anything at all.
const SMALL_BYTES: u64 = 8 << 20;

/// Estimates of dead entries that the version does not have.
pub(crate) struct Dead<'a> {
    /// Average size of a value in the value log; 0 without a value log.
    pub(crate) value_bytes: u64,
    /// Returns the estimated number of a table's entries that a filter would remove now.
    pub(crate) removed: &'a dyn Fn(&TableFile) -> f64,
}

impl Picker<'_> {
    /// Picks the job that frees the most for each byte that it rewrites; `None` if none is worth it, or its tables are
    /// busy.
    pub(crate) fn debt(&self, dead: &Dead<'_>) -> Option<Job> {
        let entry_bytes = {
            // What is deleted is a put; tombstones take little.
            let puts = |file: &TableFile| file.meta.entries.saturating_sub(file.meta.deletions);
            let sums = self.version.files().map(|(_, file)| (file.meta.bytes, puts(file)));
            let (bytes, puts) = sums.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            bytes / u64::max(puts, 1) + dead.value_bytes
        };
        if self.room < u64::MAX
            && let Some(job) = self.hidden_debt(entry_bytes)
        {
            return Some(job);
        }
        let level0 = self.level0_debt(dead, entry_bytes);
        let deeper = (1..LEVELS).filter_map(|level| self.deeper_debt(level, dead, entry_bytes));
        level0.into_iter().chain(deeper).max_by(|a, b| a.score.total_cmp(&b.score))
    }

    /// Estimates the bytes of dead entries, in the table and below, that its compaction frees.
    fn freed_bytes(&self, file: &TableFile, dead: &Dead<'_>, entry_bytes: u64) -> u64 {
        let meta = &file.meta;
        let by_filter = ((dead.removed)(file) * entry_bytes as f64) as u64;
        let by_tombstones = match meta.largest_sequence <= self.oldest_snapshot {
            true if meta.range_deletions > 0 => u64::MAX,
            true => meta.deletions.saturating_mul(entry_bytes),
            false => 0,
        };
        by_filter.saturating_add(by_tombstones)
    }

    /// Returns the bytes freed for each byte rewritten, if the job is worth it and the disk has room for its output.
    fn worth(&self, freed: u64, rewritten: u64) -> Option<f64> {
        let has_room = rewritten.saturating_sub(freed) <= self.room;
        let is_worth_it =
            has_room && freed > 0 && (rewritten <= SMALL_BYTES || freed.saturating_mul(WORTH) >= rewritten);
        is_worth_it.then(|| freed.min(rewritten.max(1)) as f64 / rewritten.max(1) as f64)
    }

    fn level0_debt(&self, dead: &Dead<'_>, entry_bytes: u64) -> Option<Job> {
        let all = self.version.levels[0].files.len();
        // On a full disk, all of it may be too much.
        let least = if self.room < u64::MAX { 1 } else { all.max(1) };
        let mut counts = std::iter::successors(Some(all), |count| Some(count / 2)).take_while(|count| *count >= least);
        counts.find_map(|count| self.oldest_debt(count, dead, entry_bytes))
    }

    /// Returns a job for the oldest tables of level 0.
    fn oldest_debt(&self, count: usize, dead: &Dead<'_>, entry_bytes: u64) -> Option<Job> {
        let files = &self.version.levels[0].files;
        let files = &files[files.len().saturating_sub(count)..];
        let base = &self.version.levels[self.targets.base_level];
        let span = Span::of(self.targets.base_level, files.iter())?;
        let below = base.overlapping(&span.keys);
        let rewritten = files.iter().chain(below).map(|file| file.meta.bytes).sum();
        let hides_values = dead.value_bytes > 0 && (files.len() > 1 || !below.is_empty());
        let freed = files.iter().fold(0u64, |sum, file| {
            let is_seen = file.meta.largest_sequence > self.oldest_snapshot;
            let values = if hides_values && !is_seen { file.meta.entries.saturating_mul(dead.value_bytes) } else { 0 };
            sum.saturating_add(self.freed_bytes(file, dead, entry_bytes)).saturating_add(values)
        });
        let score = self.worth(freed, rewritten)?;
        let job = self.level0_oldest(score, count)?;
        let reason = format!("idle: {} tables in level 0 hide or hold dead entries", files.len());
        Some(Job { reason, score, is_debt: true, ..job })
    }

    fn deeper_debt(&self, level: usize, dead: &Dead<'_>, entry_bytes: u64) -> Option<Job> {
        let is_deepest = self.version.levels[level + 1..].iter().all(|level| level.files.is_empty());
        let job = |file: &Arc<TableFile>| {
            if !idle(file) || file.drops_nothing.load(Ordering::Acquire) {
                return None;
            }
            let freed = self.freed_bytes(file, dead, entry_bytes);
            if freed == 0 {
                return None;
            }
            let reason = format!("idle: a table of level {level} hides or holds dead entries");
            let job = match is_deepest {
                true => self.in_place(level, file, reason)?,
                false => self.complete(level, level + 1, vec![Arc::clone(file)], reason)?,
            };
            let rewritten = job.files().map(|(_, file)| file.meta.bytes).sum();
            let score = self.worth(freed, rewritten)?;
            Some(Job { score, is_debt: true, ..job })
        };
        self.version.levels[level].files.iter().filter_map(job).max_by(|a, b| a.score.total_cmp(&b.score))
    }
}
