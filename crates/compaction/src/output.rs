//! Cutting the merged stream into tables.
//!
//! A table ends only between two user keys. Before the first version of a user key K, the open table is closed if
//!
//! 1. it has reached the target size, or
//! 2. K lies in another grandparent than the key before, and with it the table would overlap more than the allowed
//!    bytes of grandparents (a single one that is larger than allowed cannot be helped by cutting), or
//! 3. K is the first key behind a grandparent's border and the table is large enough already: half the target, and
//!    more after each border that was passed. A table that ends where a grandparent ends drags one file less into its
//!    own compaction later. (RocksDB measured some 10 % less write amplification; the shares are its own.)
//!
//! Range tombstones are written as their fragments are passed, clipped to the table's own stretch of keys: from the cut
//! that began it to the cut that ends it. So tables never overlap, whatever tombstones they hold, and none reaches over
//! the task's range. A long stretch of tombstones without entries is cut by size as well.
//!
//! The size of a table is an estimate that lags behind the encoder: [`size`]. So a cut never waits for the block before
//! it, and blocks may be encoded and appended elsewhere: [`blocks`].
//!
//! **Invariants**: spans of finished tables ascend and are disjoint; no table is empty; every fragment of the retained
//! tombstones is written exactly once, in one piece or in several that touch.

use crate::dropped::{DropReason, DroppedEntry, DroppedSums, ValueHandles};
use crate::error::{Result, TaskError};
use crate::filter::CompactionFilter;
use crate::merge::WarmReader;
use crate::meters::Meters;
use crate::span::KeySpan;
use crate::stream::{About, Sink};
use crate::task::{Grandparent, MergeRules, OutputTable, TablePlace, TaskHost, TaskOutput, TaskStats};
use situ_storage::Excerpt;
use situ_table::range_del::FragmentedTombstones;
use situ_table::{KeyKind, KeyRef, Lifetime, RawBlock, SequenceNumber, TableBuilder, TableSummary, Trailer, WarmBytes};
use std::sync::Arc;

mod blocks;
mod built;
mod size;

pub(crate) use blocks::{BlockOutput, OnThisThread, begin_table};
pub(crate) use built::{NeverWarm, Walked};
use size::LaggedSize;

/// The output is reported to the host in pieces of about this size.
const PACE_BYTES: u64 = 256 << 10;

/// The sink of a merge: tables. See the module's page.
pub(crate) struct Outputs<'a, B> {
    host: &'a dyn TaskHost,
    rules: &'a MergeRules,
    tombstones: &'a FragmentedTombstones,
    /// The first fragment that is not, or not wholly, written.
    next_fragment: usize,
    /// The beginning of the open table, or of the next one; fragments are clipped to it. Empty before the first cut.
    cut: Vec<u8>,
    /// The last entry's user key, while there are tombstones that must not be cut at or before it.
    last_key: Option<Vec<u8>>,
    grandparents: GrandparentWalk<'a>,
    open: Option<OpenTable>,
    /// Of the open table's blocks.
    size: LaggedSize,
    blocks: B,
    /// The bytes of warm blocks that the inputs had read when the last block ended; `None` if there is no cache to
    /// warm.
    warm_read: Option<WarmBytes>,
    /// Of what the merge drops, if the store has a value log.
    dropped: Option<DroppedSums>,
    /// Values of this length and longer ones are given to the host, which may put them elsewhere.
    separate_from: usize,
    /// The source of the lifetimes that tables count.
    lifetimes: Option<LifetimesBy>,
    /// The host's handle of the last value that was given to it.
    handle: Vec<u8>,
    /// Spans of tables whose blocks have all been given out.
    ended: Vec<KeySpan>,
    /// Counts the time for which the host holds the run back; `None` if the run is not measured.
    meters: Option<&'a Meters>,
}

/// A filter that returns the lifetimes of entries.
struct LifetimesBy {
    filter: Arc<dyn CompactionFilter>,
    handles: Option<Arc<dyn ValueHandles>>,
}

impl LifetimesBy {
    /// Takes the filter of a task if it has one, otherwise that of a flush.
    fn of(rules: &MergeRules, host: &dyn TaskHost) -> Option<LifetimesBy> {
        let of_task = rules.filter.as_ref().map(|filter| Arc::clone(&filter.code));
        Some(LifetimesBy { filter: of_task.or_else(|| host.lifetimes_by())?, handles: host.value_handles() })
    }

    fn lifetime(&self, kind: Option<KeyKind>, value: &[u8]) -> Option<Lifetime> {
        match kind {
            Some(KeyKind::Put) => self.filter.lifetime(value),
            Some(KeyKind::ValueHandle) => {
                let prefix = self.handles.as_ref()?.prefix(value, self.filter.value_prefix_bytes()?)?;
                self.filter.lifetime(prefix)
            }
            _ => None,
        }
    }
}

struct OpenTable {
    builder: TableBuilder,
    paced_bytes: u64,
    /// The span of the range tombstones.
    tombstones: Option<KeySpan>,
}

impl<'a, B: BlockOutput> Outputs<'a, B> {
    /// Nothing is created before there is something to write. `tombstones` are those to be kept.
    pub(crate) fn new(
        host: &'a dyn TaskHost,
        rules: &'a MergeRules,
        tombstones: &'a FragmentedTombstones,
        blocks: B,
        meters: Option<&'a Meters>,
    ) -> Outputs<'a, B> {
        Outputs {
            host,
            rules,
            tombstones,
            next_fragment: 0,
            cut: Vec::new(),
            last_key: None,
            grandparents: GrandparentWalk::new(&rules.grandparents),
            open: None,
            size: LaggedSize::new(rules.output.target_file_bytes),
            blocks,
            warm_read: host.warming().map(|_| WarmBytes::default()),
            dropped: host.value_handles().map(DroppedSums::new),
            separate_from: host.separates_from(),
            lifetimes: LifetimesBy::of(rules, host),
            handle: Vec::new(),
            ended: Vec::new(),
            meters,
        }
    }

    /// Adds values that other parts of the task have dropped on the way to these tables.
    pub(crate) fn add_dropped(&mut self, more: Option<DroppedSums>) {
        if let (Some(sums), Some(more)) = (&mut self.dropped, more) {
            sums.add_all(more);
        }
    }

    /// Writes what is left and closes the last table.
    pub(crate) fn finish(mut self, inputs: &dyn WarmReader, mut stats: TaskStats) -> Result<TaskOutput> {
        self.write_fragments(None, inputs)?;
        self.close(inputs)?;
        let written = self.blocks.finish()?;
        assert_eq!(written.len(), self.ended.len(), "each table that has ended has a summary");
        let table = |((place, summary), span): ((TablePlace, TableSummary), KeySpan)| OutputTable {
            volume: place.volume,
            number: place.number,
            summary,
            span,
        };
        let tables: Vec<_> = written.into_iter().zip(self.ended).map(table).collect();
        let mut entries = 0;
        for table in &tables {
            entries += table.summary.properties.entries;
            stats.bytes_written += table.summary.bytes;
            stats.range_tombstones_out += table.summary.properties.range_deletions;
        }
        // Nothing else looks before the log of a flush is given up.
        assert_eq!(entries, stats.entries_out, "the tables have the entries that were kept");
        let (dropped_values, dropped_places) = self.dropped.map_or_else(Default::default, DroppedSums::finish);
        Ok(TaskOutput { tables, stats, dropped_values, dropped_places })
    }

    fn open(&mut self) -> Result<&mut OpenTable> {
        if self.open.is_none() {
            let output = &self.rules.output;
            let builder = TableBuilder::new(&output.table, output.created_unix_s)?;
            self.blocks.begin()?;
            self.size.begin_table();
            self.open = Some(OpenTable { builder, paced_bytes: 0, tombstones: None });
        }
        match &mut self.open {
            Some(open) => Ok(open),
            None => unreachable!("it was opened above"),
        }
    }

    /// The open table has filled this block.
    fn give_out(&mut self, mut block: RawBlock, inputs: &dyn WarmReader) -> Result<()> {
        if let Some(before) = &mut self.warm_read {
            let read = inputs.warm_read();
            block.mark_warm(read - *before);
            *before = read;
        }
        self.size.add(block.plain_bytes());
        let memory = self.blocks.block(block)?;
        if let (Some(memory), Some(open)) = (memory, &mut self.open) {
            open.builder.recycle(memory);
        }
        while self.size.is_due() {
            let stored_bytes = self.blocks.stored_bytes()?;
            self.size.count(stored_bytes);
        }
        Ok(())
    }

    /// Adds an entry to the open table.
    #[inline]
    fn add(&mut self, key: KeyRef<'_>, value: &[u8]) -> Result<Option<RawBlock>> {
        let lifetime = self.lifetimes.as_ref().and_then(|by| by.lifetime(key.trailer.kind(), value));
        let builder = &mut self.open()?.builder;
        let block = builder.add(key, value)?;
        lifetime.iter().for_each(|lifetime| builder.note_lifetime(lifetime));
        Ok(block)
    }

    /// Adds an entry whose value the host puts elsewhere.
    #[cold]
    fn separated(&mut self, key: KeyRef<'_>, value: &[u8], about: About<'_>) -> Result<()> {
        let mut handle = std::mem::take(&mut self.handle);
        handle.clear();
        self.host.separate(key.user, value, &mut handle)?;
        let key = KeyRef::new(key.user, Trailer::new(key.trailer.sequence(), KeyKind::ValueHandle));
        let block = self.add(key, &handle)?;
        self.handle = handle;
        block.map_or(Ok(()), |block| self.give_out(block, about.inputs))
    }

    /// Takes the length of the open table, about, as `bytes`. Reports the growth to the host if it is `least` bytes or
    /// more; the host may block.
    #[inline]
    fn pace(&mut self, bytes: u64, least: u64) {
        let Some(open) = &mut self.open else { return };
        // An estimate may shrink when a block turns out to compress well.
        let new = bytes.saturating_sub(open.paced_bytes);
        if new >= least {
            open.paced_bytes = bytes;
            self.hold_back(new);
        }
    }

    #[cold]
    fn hold_back(&self, bytes: u64) {
        match self.meters {
            Some(meters) => meters.time(&meters.merge.blocked, || self.host.pace(bytes)),
            None => self.host.pace(bytes),
        }
    }

    fn is_full(&self) -> bool {
        let bytes = self.open.as_ref().map(|open| open.builder.estimated_bytes(self.size.blocks_bytes()));
        bytes.is_some_and(|bytes| bytes >= self.rules.output.target_file_bytes)
    }

    fn before_user_key(&mut self, key: &[u8], inputs: &dyn WarmReader) -> Result<()> {
        if self.next_fragment < self.tombstones.len() {
            self.write_fragments(Some(key), inputs)?;
        }
        let border = self.grandparents.move_to(key);
        let Some(open) = &self.open else {
            self.grandparents.begin_table(key);
            return Ok(());
        };
        let bytes = open.builder.estimated_bytes(self.size.blocks_bytes());
        self.pace(bytes, PACE_BYTES);
        let target = self.rules.output.target_file_bytes;
        let large_enough = || bytes.saturating_mul(100) >= target.saturating_mul(self.grandparents.border_percent());
        if bytes >= target
            || (border && (self.grandparents.overlap_bytes > self.rules.output.max_grandparent_bytes || large_enough()))
        {
            self.cut_at(key, inputs)?;
            self.grandparents.begin_table(key);
        }
        Ok(())
    }

    /// Writes all fragments that end at or before `limit`; all there are, without a limit.
    fn write_fragments(&mut self, limit: Option<&[u8]>, inputs: &dyn WarmReader) -> Result<()> {
        let tombstones = self.tombstones;
        while let Some(fragment) = tombstones.get(self.next_fragment)
            && limit.is_none_or(|limit| fragment.end <= limit)
        {
            let may_cut = self.last_key.as_deref().is_none_or(|last| last < fragment.begin);
            if may_cut && fragment.begin >= self.cut.as_slice() && self.is_full() {
                self.cut_at(fragment.begin, inputs)?;
                self.grandparents.begin_table(fragment.begin);
            }
            let begin = fragment.begin.max(&self.cut).to_vec();
            self.write_tombstones(&begin, fragment.end, fragment.sequences)?;
            self.next_fragment += 1;
        }
        Ok(())
    }

    fn write_tombstones(&mut self, begin: &[u8], end: &[u8], sequences: &[SequenceNumber]) -> Result<()> {
        assert!(begin < end, "a piece of a fragment from {} to {}", Excerpt(begin), Excerpt(end));
        let open = self.open()?;
        for sequence in sequences {
            open.builder.add_range_tombstone(begin, *sequence, end)?;
        }
        let span = KeySpan { begin: begin.to_vec(), end: end.to_vec() };
        open.tombstones = Some(match open.tombstones.take() {
            Some(before) => before.union(span),
            None => span,
        });
        let blocks_bytes = self.size.blocks_bytes();
        let bytes = self.open()?.builder.estimated_bytes(blocks_bytes);
        self.pace(bytes, PACE_BYTES);
        self.tick()
    }

    /// Ends the open table before `key`. All fragments that end at or before `key` have been written.
    fn cut_at(&mut self, key: &[u8], inputs: &dyn WarmReader) -> Result<()> {
        assert!(self.cut.as_slice() < key, "a cut at {} behind one at {}", Excerpt(key), Excerpt(&self.cut));
        let tombstones = self.tombstones;
        if let Some(across) = tombstones.get(self.next_fragment).filter(|fragment| fragment.begin < key) {
            let begin = across.begin.max(&self.cut).to_vec();
            self.write_tombstones(&begin, key, across.sequences)?;
        }
        self.close(inputs)?;
        self.cut.clear();
        self.cut.extend_from_slice(key);
        Ok(())
    }

    fn close(&mut self, inputs: &dyn WarmReader) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        self.pace(open.builder.estimated_bytes(self.size.blocks_bytes()), 1);
        let Some(open) = self.open.take() else { return Ok(()) };
        let (last, end) = open.builder.finish()?;
        if let Some(block) = last {
            self.give_out(block, inputs)?;
        }
        let entries = end.key_bounds().map(|(first, last)| KeySpan::including(first.user, last.user));
        let span = entries.into_iter().chain(open.tombstones).reduce(KeySpan::union);
        // A table is opened only in order to write to it.
        let span = span.expect("a table has an entry or a range tombstone");
        let ascends = self.ended.last().is_none_or(|before| before.end <= span.begin);
        assert!(ascends, "table {span:?} overlaps the one before it, {:?}", self.ended.last());
        self.blocks.end(end)?;
        self.ended.push(span);
        Ok(())
    }
}

impl<B: BlockOutput> Sink for Outputs<'_, B> {
    #[inline]
    fn entry(&mut self, key: KeyRef<'_>, value: &[u8], about: About<'_>) -> Result<()> {
        if about.new_user_key {
            self.before_user_key(key.user, about.inputs)?;
            if self.next_fragment < self.tombstones.len() {
                let last = self.last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key.user);
            }
        }
        if value.len() >= self.separate_from && key.trailer.kind() == Some(KeyKind::Put) {
            return self.separated(key, value, about);
        }
        match self.add(key, value)? {
            None => Ok(()),
            Some(block) => self.give_out(block, about.inputs),
        }
    }

    #[inline]
    fn dropped(&mut self, entry: &DroppedEntry<'_>, _why: DropReason) -> Result<()> {
        match &mut self.dropped {
            None => Ok(()),
            Some(sums) => sums.add(entry),
        }
    }

    fn tick(&mut self) -> Result<()> {
        if self.host.cancelled() { Err(TaskError::Cancelled) } else { Ok(()) }
    }
}

/// Follows the grandparents as keys ascend, for the open table.
struct GrandparentWalk<'a> {
    files: &'a [Grandparent],
    /// The first file that ends behind the last key.
    at: usize,
    /// The last key lies in file `at`.
    inside: bool,
    /// Files before this one have been counted, for this table or for one before it.
    counted: usize,
    /// Bytes of the files that the open table overlaps, from its first key to the last key moved to.
    overlap_bytes: u64,
    /// Borders passed since the table began.
    borders: u64,
}

impl<'a> GrandparentWalk<'a> {
    fn new(files: &'a [Grandparent]) -> GrandparentWalk<'a> {
        GrandparentWalk { files, at: 0, inside: false, counted: 0, overlap_bytes: 0, borders: 0 }
    }

    /// Takes `key` into the open table's stretch; returns whether a border lies between it and the key before.
    #[inline]
    fn move_to(&mut self, key: &[u8]) -> bool {
        if self.at >= self.files.len() {
            return false;
        }
        let before = (self.at, self.inside);
        while self.files.get(self.at).is_some_and(|file| file.span.end.as_slice() <= key) {
            self.at += 1;
        }
        self.inside = self.files.get(self.at).is_some_and(|file| file.span.begin.as_slice() <= key);
        let reached = self.at + usize::from(self.inside);
        while self.counted < reached {
            self.overlap_bytes = self.overlap_bytes.saturating_add(self.files[self.counted].bytes);
            self.counted += 1;
        }
        let border = before != (self.at, self.inside);
        self.borders += u64::from(border);
        border
    }

    /// The open table begins at the key just moved to.
    fn begin_table(&mut self, key: &[u8]) {
        self.move_to(key);
        self.overlap_bytes = if self.inside { self.files[self.at].bytes } else { 0 };
        self.borders = 0;
    }

    /// The share of the target at which a border is a good place to cut: 50 %, and 5 % more for each border that was
    /// let pass, up to 90 %.
    fn border_percent(&self) -> u64 {
        50 + self.borders.saturating_sub(1).saturating_mul(5).min(40)
    }
}

#[cfg(test)]
mod tests;
