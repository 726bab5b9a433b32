//! Compactions that drop what newer tables hide, and take room for one table only.
//!
//! Tombstones free space when they meet what they hide. On a full disk there may be no room for both: a compaction of
//! level 0 writes all that is left of the level below. So one table is rewritten in place. A filter looks each of its
//! keys up in the newer tables, and removes it if one of them has it. The tombstones stay where they are; they sink
//! when there is room again.
//!
//! **Invariants.** Tables of a lower level, and older ones of level 0, hold older versions only. A version that a
//! snapshot sees is not shown to filters. While the job runs, the newer tables may be compacted, but not past the
//! table, which is busy.
//! **Cost.** A lookup in each newer table for each key of the table.
//!
//! **Rejected**: sources that a merge reads and does not write. Every compactor would have to know them.

use super::{Job, Picker, idle};
use crate::base::options::LEVELS;
use crate::versions::version::TableFile;
use situ_compaction::{CompactionFilter, Decision, FilterContext, KeySpan};
use situ_storage::Result as StorageResult;
use situ_table::{DeadBefore, Lifetime, MAX_SEQUENCE, ReadOptions, hash_key};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A job is worth it if it frees the bytes that it rewrites divided by this.
const WORTH: u64 = 8;

/// Tables with newer versions than those of a job.
#[derive(Clone)]
pub(crate) struct Newer {
    tables: Vec<Arc<TableFile>>,
    /// About how many bytes the job writes.
    pub(crate) left_bytes: u64,
}

impl fmt::Debug for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newer").field("tables", &self.tables.len()).field("left_bytes", &self.left_bytes).finish()
    }
}

impl Newer {
    /// Returns the newest sequence number that was looked at.
    pub(crate) fn seen_to(&self) -> u64 {
        self.tables.iter().map(|file| file.meta.largest_sequence).max().unwrap_or(0)
    }

    /// Returns the keyspace's own filter, together with one that removes what these tables hide.
    pub(crate) fn filter(&self, inner: Option<Arc<dyn CompactionFilter>>) -> Arc<dyn CompactionFilter> {
        Arc::new(Hidden { newer: self.tables.clone(), inner })
    }
}

struct Hidden {
    newer: Vec<Arc<TableFile>>,
    inner: Option<Arc<dyn CompactionFilter>>,
}

fn puts(file: &TableFile) -> u64 {
    file.meta.entries.saturating_sub(file.meta.deletions)
}

/// Estimates the share of a table's entries that lies in `span`. Reads nothing: a table that is not open has its
/// entries anywhere in its own span.
fn share_in(file: &TableFile, span: &KeySpan) -> f64 {
    let own = &file.meta.span;
    if !own.overlaps(&span.begin, &span.end) {
        return 0.0;
    }
    if span.begin <= own.begin && own.end <= span.end {
        return 1.0;
    }
    let table = file.table_if_open();
    table.and_then(|table| table.coarse_share(&span.begin, &span.end).ok()).unwrap_or(1.0)
}

/// Returns true if a table has a version of `key`, or deletes a range with it.
fn has(file: &TableFile, key: &[u8], hash: u64) -> StorageResult<bool> {
    if !file.meta.span.contains(key) {
        return Ok(false);
    }
    let options = ReadOptions::default();
    let table = file.table_for(&options)?;
    let is_covered = file.meta.range_deletions > 0 && table.tombstone_index().covering(key, MAX_SEQUENCE).is_some();
    Ok(is_covered || table.get(key, MAX_SEQUENCE, hash, &options)?.is_some())
}

impl CompactionFilter for Hidden {
    /// Returns a name that no other process knows, as only this one has the tables at hand.
    fn name(&self) -> &str {
        "situ.hidden-by-newer-tables"
    }

    fn freeze(&self, now_unix: Duration) -> Vec<u8> {
        self.inner.as_ref().map_or_else(Vec::new, |inner| inner.freeze(now_unix))
    }

    fn value_prefix_bytes(&self) -> Option<usize> {
        self.inner.as_ref().map_or(Some(0), |inner| inner.value_prefix_bytes())
    }

    fn lifetime(&self, value: &[u8]) -> Option<Lifetime> {
        self.inner.as_ref().and_then(|inner| inner.lifetime(value))
    }

    fn dead_before(&self, now_unix: Duration) -> Option<DeadBefore> {
        self.inner.as_ref().and_then(|inner| inner.dead_before(now_unix))
    }

    fn decide(&self, context: &FilterContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        let hash = hash_key(key);
        // A table that cannot be read hides nothing: its readers tell of it.
        if self.newer.iter().any(|file| has(file, key, hash).unwrap_or(false)) {
            return Decision::Remove;
        }
        self.inner.as_ref().map_or(Decision::Keep, |inner| inner.decide(context, key, value))
    }
}

impl Picker<'_> {
    /// Returns the rewrite of the one table that frees the most, judged by what tombstones of newer tables hide in it.
    /// Returns `None` if none is worth it, or the disk has no room for the rest of the table.
    pub(super) fn hidden_debt(&self, entry_bytes: u64) -> Option<Job> {
        let mut best: Option<Job> = None;
        for level in 0..LEVELS {
            for (at, file) in self.version.levels[level].files.iter().enumerate() {
                if !idle(file) {
                    continue;
                }
                let tables = self.newer_than(level, at, file.seen_to.load(Ordering::Acquire));
                let hides_ranges = tables.iter().any(|newer| newer.meta.range_deletions > 0);
                let bytes = file.meta.bytes;
                let freed = if hides_ranges { bytes } else { self.hidden_bytes(file, &tables, entry_bytes) };
                let left_bytes = bytes.saturating_sub(freed).max(bytes / super::LEAST_SHARE);
                if freed.saturating_mul(WORTH) < bytes || left_bytes > self.room {
                    continue;
                }
                let score = freed.min(bytes) as f64 / bytes.max(1) as f64;
                if best.as_ref().is_some_and(|best| best.score >= score) {
                    continue;
                }
                let reason = format!("the disk is full: newer tables hide what a table of level {level} holds");
                let Some(job) = self.in_place(level, file, reason) else { continue };
                best = Some(Job { score, is_debt: true, newer: Some(Newer { tables, left_bytes }), ..job });
            }
        }
        best
    }

    /// Estimates the bytes of a table's entries that the tombstones of newer tables hide. Within the table's span,
    /// tombstones are assumed to hide puts of all tables alike.
    fn hidden_bytes(&self, file: &TableFile, newer: &[Arc<TableFile>], entry_bytes: u64) -> u64 {
        let span = &file.meta.span;
        let deletions: f64 = newer.iter().map(|newer| newer.meta.deletions as f64 * share_in(newer, span)).sum();
        if deletions == 0.0 {
            return 0;
        }
        let levels = &self.version.levels;
        let files = levels[0].files.iter().chain(levels[1..].iter().flat_map(|level| level.overlapping(span)));
        let all: f64 = files.map(|file| puts(file) as f64 * share_in(file, span)).sum();
        (puts(file) as f64 * (deletions / all.max(1.0)).min(1.0) * entry_bytes as f64) as u64
    }

    /// Returns the tables that overlap the one at `at`, and hold versions after sequence number `seen_to`.
    fn newer_than(&self, level: usize, at: usize, seen_to: u64) -> Vec<Arc<TableFile>> {
        let levels = &self.version.levels;
        let span = &levels[level].files[at].meta.span;
        let (above, own) = levels[..=level].split_at(level);
        let own = if level == 0 { &own[0].files[..at] } else { &[] };
        let files = above.iter().flat_map(|level| &level.files).chain(own);
        let is_newer = |file: &&Arc<TableFile>| {
            file.meta.largest_sequence > seen_to && file.meta.span.overlaps(&span.begin, &span.end)
        };
        files.filter(is_newer).cloned().collect()
    }
}
