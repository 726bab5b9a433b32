//! The part of a compaction of level 0 that goes through the base level into the one below it.
//!
//! Each time, the bytes from level 0 make the base level exceed its target by about as much. So about as many bytes
//! would be written into the base level only to be read again by the compactions that follow, and written into the
//! level below. A stretch of the keys takes that way at once. Its entries in level 0 and the base level are merged with
//! the tables below and go there. All others go to the base level as before. The stretch is chosen so that the base
//! level is at its target afterwards, and none of those compactions is needed.
//!
//! 1. For each table below, the bytes that lie above its keys are estimated. The bytes of a base table are shared among
//!    the tables that it overlaps in proportion to their bytes, those of level 0 among all below it.
//! 2. The candidates are all runs of neighbouring tables below that have at least the excess above them, and that would
//!    have it no more without their last one. The run with the least bytes for each byte above is taken.
//! 3. The stretch reaches from the end of the table before the run to the beginning of the one behind. Only whole
//!    tables below take part, and none of their neighbours' keys.
//!
//! An estimate that is wrong costs little: the base level is then a little above or below its target. What it does cost
//! is room: the job is larger, and its inputs stay on the disk until all of it is done.
//!
//! The stretch is left out while level 0 has many tables: then level 0 has to get rid of them soon, and the rest can
//! wait. The stretch is also left out while a compaction of the keyspace has failed and not succeeded since. Level 0
//! must not go on depending on a table below that cannot be read. After one such failure and the rest that follows, it
//! goes to the base level alone.
//!
//! *Rejected:* several stretches. Each costs up to two small tables at its borders, and one is as good where keys come
//! from all over. It is where the last one was longest ago.

use super::{JOB_TABLES_MAX, Job, Picker, Span, idle};
use crate::base::options::LEVELS;
use crate::versions::version::TableFile;
use situ_compaction::{KeyRange, KeySpan};
use std::ops::Range;
use std::sync::Arc;

/// Level 0 may have fewer than this many times the tables at which it is compacted.
const LEVEL0_FACTOR: usize = 2;

impl Picker<'_> {
    /// Adds to a job from level 0 into a base level that has tables the stretch that goes through, if there is to be
    /// one.
    pub(super) fn add_through(&self, job: &mut Job) {
        let below = job.output_level + 1;
        let crowded = self.version.levels[0].files.len() >= LEVEL0_FACTOR * self.options.level0_tables;
        let [(0, level0), (_, base)] = &job.inputs[..] else { return };
        if self.troubled || crowded || below >= LEVELS {
            return;
        }
        let bytes = |files: &[Arc<TableFile>]| files.iter().map(|f| f.meta.bytes).sum::<u64>();
        let after = self.version.levels[job.output_level].bytes + bytes(level0);
        let excess = after.saturating_sub(self.targets.bytes[job.output_level]);
        let files = self.version.levels[below].overlapping(&job.span.keys);
        if excess == 0 || files.is_empty() {
            return;
        }
        let above = bytes_above(files, bytes(level0), base);
        let Some(run) = self.cheapest(files, &above, excess) else { return };
        let all = &self.version.levels[below].files;
        // The run's place among all tables of its level.
        let before = all.partition_point(|f| f.meta.ends_before(&files[run.start].meta.span.begin));
        let lower = before.checked_sub(1).map(|at| all[at].meta.span.end.clone());
        let upper = all.get(before + run.len()).map(|f| f.meta.span.begin.clone());
        let taken = files[run].to_vec();
        let keys = taken.iter().map(|f| f.meta.span.clone()).fold(job.span.keys.clone(), KeySpan::union);
        let keys = KeySpan { begin: lower.clone().unwrap_or(keys.begin), end: upper.clone().unwrap_or(keys.end) };
        let is_inside = |f: &Arc<TableFile>| {
            lower.as_ref().is_none_or(|lower| *lower <= f.meta.span.begin)
                && upper.as_ref().is_none_or(|upper| f.meta.span.end <= *upper)
        };
        assert!(taken.iter().all(is_inside), "a stretch takes none of its neighbours' keys: {job}");
        let span = Span { level: below, keys };
        if !taken.iter().all(idle) || !self.free(&span) {
            return;
        }
        job.inputs.push((below, taken));
        job.through = Some(Through { range: KeyRange { lower, upper }, span });
    }

    /// Returns the run of tables that has at least `excess` bytes above it, and the least bytes for each of those.
    fn cheapest(&self, files: &[Arc<TableFile>], above: &[u64], excess: u64) -> Option<Range<usize>> {
        let bytes_max = JOB_TABLES_MAX.saturating_mul(self.options.table_bytes);
        let mut best: Option<(f64, Range<usize>)> = None;
        let (mut end, mut bytes_above, mut bytes) = (0, 0u64, 0u64);
        for start in 0..files.len() {
            while end < files.len() && bytes_above < excess {
                bytes_above += above[end];
                bytes += files[end].meta.bytes;
                end += 1;
            }
            if bytes_above < excess {
                break;
            }
            let cost = bytes as f64 / bytes_above as f64;
            let cheaper = best.as_ref().is_none_or(|(least, _)| cost < *least);
            if cheaper && bytes <= bytes_max && files[start..end].iter().all(idle) {
                best = Some((cost, start..end));
            }
            bytes_above -= above[start];
            bytes -= files[start].meta.bytes;
        }
        best.map(|(_, run)| run)
    }
}

/// The keys whose entries a job writes one level deeper than the others.
#[derive(Debug, Clone)]
pub(crate) struct Through {
    pub(crate) range: KeyRange,
    /// The same as far as there are keys, and the level that they go to.
    pub(crate) span: Span,
}

/// Returns about how many bytes of a job's upper levels lie above the keys of each of `files`, which are sorted.
fn bytes_above(files: &[Arc<TableFile>], level0_bytes: u64, base: &[Arc<TableFile>]) -> Vec<u64> {
    let mut above = vec![0u64; files.len()];
    let mut share = |range: Range<usize>, bytes: u64| {
        let total: u64 = files[range.clone()].iter().map(|f| f.meta.bytes).sum();
        for at in range {
            above[at] += (u128::from(bytes) * u128::from(files[at].meta.bytes) / u128::from(total.max(1))) as u64;
        }
    };
    share(0..files.len(), level0_bytes);
    for table in base {
        let from = files.partition_point(|f| f.meta.ends_before(&table.meta.span.begin));
        let count = files[from..].partition_point(|f| f.meta.span.begin < table.meta.span.end);
        share(from..from + count, table.meta.bytes);
    }
    above
}
