//! Tasks and what comes of them: plain values.
//!
//! A task says everything that its output depends on, the time included, and nothing else: no paths, no locks, no way
//! back to the engine. So it can be queued, sent elsewhere, given up and run again, and it always gives the same bytes.
//! What a run needs from the outside world while it runs, it asks of a [`TaskHost`].

use crate::dropped::{DroppedValues, ValueHandles, ValueLocation};
use crate::filter::{CompactionFilter, FrozenFilter};
use crate::span::{KeyRange, KeySpan};
use situ_storage::{Error, Reader, Writer};
use situ_table::format::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use situ_table::{SequenceNumber, Table, TableOptions, TableSummary, Warming};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A table that a run opens when it gets there, and lets go of when it has passed it.
pub trait InputTable: Send + Sync {
    /// Opens the table.
    ///
    /// # Errors
    /// It cannot be opened, or is damaged.
    fn open(self: Arc<Self>) -> situ_storage::Result<Arc<Table>>;
}

impl InputTable for Table {
    fn open(self: Arc<Self>) -> situ_storage::Result<Arc<Table>> {
        Ok(self)
    }
}

/// One input table.
#[derive(Clone)]
pub struct TableInput {
    /// The table, open or not.
    pub table: Arc<dyn InputTable>,
    /// The volume that it lies on, as its store numbers volumes; for units that open it themselves.
    pub volume: u32,
    /// Its file number, for errors and for units that open it themselves.
    pub number: u64,
    /// The user keys it spans, its range tombstones included.
    pub span: KeySpan,
    /// The file's length.
    pub bytes: u64,
    /// Of that, what lies in the task's range, about: [`Task::clipped`] sees to it.
    pub bytes_in_range: u64,
    /// Entries in it, tombstones included.
    pub entries: u64,
    /// Range tombstones in it.
    pub range_deletions: u64,
    /// The newest sequence number in it.
    pub largest_sequence: u64,
}

impl TableInput {
    /// Makes the input of an open table of volume 0, which spans these user keys.
    pub fn of(table: Arc<Table>, number: u64, span: KeySpan) -> TableInput {
        let properties = table.properties();
        TableInput {
            volume: 0,
            number,
            span,
            bytes: table.bytes(),
            bytes_in_range: table.bytes(),
            entries: properties.entries,
            range_deletions: properties.range_deletions,
            largest_sequence: properties.largest_sequence,
            table,
        }
    }

    /// Returns the table. Opens the table if it is not open.
    ///
    /// # Errors
    /// It cannot be opened, or is damaged.
    pub fn open(&self) -> situ_storage::Result<Arc<Table>> {
        Arc::clone(&self.table).open()
    }

    /// Returns the lengths of its longest user key and of its longest value, in bytes. For a table of an older program,
    /// which does not record them, returns the longest that there can be. Opens the table.
    ///
    /// # Errors
    /// It cannot be opened, or is damaged.
    pub fn longest(&self) -> situ_storage::Result<(u32, u32)> {
        let table = self.open()?;
        let properties = table.properties();
        let known = |longest: Option<u32>, or: usize| longest.unwrap_or(u32::try_from(or).unwrap_or(u32::MAX));
        Ok((known(properties.longest_key_bytes, MAX_KEY_BYTES), known(properties.longest_value_bytes, MAX_VALUE_BYTES)))
    }

    /// As an input of a task that works on `range`; `None` if none of it lies there. A table that reaches over the
    /// range is opened, and its index asked; no data is read.
    fn clipped(&self, range: &KeyRange) -> Option<situ_storage::Result<TableInput>> {
        let share = || {
            if range.encloses(&self.span) {
                return Ok(self.bytes);
            }
            let table = self.open()?;
            let offset = |key: &Option<Vec<u8>>, or: u64| match key {
                Some(key) => table.approximate_offset(key),
                None => Ok(or),
            };
            Ok(offset(&range.upper, self.bytes)?.saturating_sub(offset(&range.lower, 0)?))
        };
        let clipped = |bytes_in_range| TableInput { bytes_in_range, ..self.clone() };
        range.overlaps(&self.span).then(|| share().map(clipped))
    }
}

impl fmt::Debug for TableInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} ({:?}, {} bytes)", self.number, self.span, self.bytes)
    }
}

/// Tables in key order whose spans do not overlap: the part of a level that takes part, or one table of level 0.
pub type Run = Vec<TableInput>;

/// A table two levels down, as far as the cutting of outputs is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grandparent {
    /// The user keys it spans.
    pub span: KeySpan,
    /// The file's length.
    pub bytes: u64,
}

/// The encoder of the compressed bytes. Two encoders of one format may give different bytes for the same block, and
/// both can be read; so a promise of equal bytes has to name the encoder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Encoder(Cow<'static, str>);

impl Encoder {
    /// Makes an encoder by its name, which is to change with the bytes that it writes.
    pub fn named(name: impl Into<Cow<'static, str>>) -> Encoder {
        Encoder(name.into())
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The codecs of this program: LZ4 by lz4_flex, Zstandard by libzstd.
impl Default for Encoder {
    fn default() -> Encoder {
        Encoder(Cow::Borrowed("situ"))
    }
}

/// The format and the sizes of output files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRules {
    /// The format of the tables.
    pub table: TableOptions,
    /// The encoder of their compressed bytes. The scheduler puts the encoder of the unit here that gets the task.
    pub encoder: Encoder,
    /// Size at which a file is closed. Files are a little larger, or smaller where another rule cuts first.
    pub target_file_bytes: u64,
    /// A file is closed before it overlaps more than this many bytes of the level below its own: that is what it would
    /// cost to compact it further.
    pub max_grandparent_bytes: u64,
    /// The creation time written into the files, in seconds since 1970.
    pub created_unix_s: u64,
}

/// The rules for entries and cuts, whatever the inputs are.
#[derive(Clone)]
pub struct MergeRules {
    /// Only user keys in this range are read, and written.
    pub range: KeyRange,
    /// Sequence numbers of all live snapshots, ascending.
    pub snapshots: Vec<SequenceNumber>,
    /// The places of data *older than all inputs* that is not itself an input. For each level below the output level,
    /// they are the spans of its files, sorted. For an output in level 0, each older table of level 0 counts as such a
    /// level, too. Tombstones are kept for these keys. **Empty means bottommost**: nothing older exists, anywhere, for
    /// any key of the range. Listing too much costs space; listing too little brings deleted data back.
    pub below: Vec<Vec<KeySpan>>,
    /// The files of the level below the output level that outputs may overlap, sorted.
    pub grandparents: Vec<Grandparent>,
    /// The level that the outputs go to.
    pub output_level: u32,
    /// The format and the sizes of output files.
    pub output: OutputRules,
    /// The application's word, if it has one, with what it decides by.
    pub filter: Option<FrozenFilter>,
    /// The time at which the task was made, since 1970 UTC. For the filter.
    pub now_unix: Duration,
}

/// The order to a unit to merge `inputs`, within the rules' range, into new tables.
#[derive(Clone)]
pub struct Task {
    /// Names the task in logs; unique within a store's life.
    pub id: u64,
    /// The keyspace that the tables belong to.
    pub keyspace: u32,
    /// The upper of the input levels.
    pub level: u32,
    /// The inputs, newest run first. A version of a key in an earlier run is newer than any in a later one.
    pub inputs: Vec<Run>,
    /// The rules of what to keep and where to cut.
    pub rules: MergeRules,
}

impl Task {
    /// Returns all input tables, newest run first.
    pub fn tables(&self) -> impl Iterator<Item = &TableInput> {
        self.inputs.iter().flatten()
    }

    /// Returns the bytes of input that lie in the task's range, about. A sum that is too large for the type is the
    /// largest number.
    pub fn input_bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes_in_range).fold(0, u64::saturating_add)
    }

    /// Returns the same task without what lies outside its range: input tables, runs that have none left, spans of what
    /// lies below, grandparents. What is left of a table that reaches over the range is known by its index. So units
    /// see how large the task is, and not how large the job is that it was cut from. The output is the same.
    ///
    /// # Errors
    /// A table cannot be opened, or an index block is damaged.
    pub fn clipped(mut self) -> situ_storage::Result<Task> {
        let range = &self.rules.range;
        let clip =
            |run: Run| run.iter().filter_map(|input| input.clipped(range)).collect::<situ_storage::Result<Run>>();
        let runs =
            std::mem::take(&mut self.inputs).into_iter().map(clip).collect::<situ_storage::Result<Vec<Run>>>()?;
        self.inputs = runs.into_iter().filter(|run| !run.is_empty()).collect();
        self.rules.below.iter_mut().for_each(|spans| spans.retain(|span| range.overlaps(span)));
        self.rules.below.retain(|spans| !spans.is_empty());
        self.rules.grandparents.retain(|grandparent| range.overlaps(&grandparent.span));
        Ok(self)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "task {}: keyspace {}, level {} to {}, keys {:?}, {} runs, {} tables, {} bytes",
            self.id,
            self.keyspace,
            self.level,
            self.rules.output_level,
            self.rules.range,
            self.inputs.len(),
            self.tables().count(),
            self.input_bytes()
        )
    }
}

/// The place of a table, existing or planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TablePlace {
    /// The volume, as the store numbers volumes.
    pub volume: u32,
    /// The file's number, which no other file of the store has or will have.
    pub number: u64,
}

/// The services that a run needs from the program around it.
pub trait TaskHost: Send + Sync {
    /// Chooses a volume and a number for an output table of `level`. Nothing is made: a unit elsewhere makes the file
    /// itself. The caller clears every place that is not in the task's output, because the task failed or was given to
    /// another unit.
    ///
    /// # Errors
    /// There are no more places: the task was given up.
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace>;

    /// Begins the file of a table of `level` in a place that was reserved. If the volume refuses, the host may choose
    /// another place; the place where the file is comes back.
    ///
    /// # Errors
    /// The volume's.
    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)>;

    /// Opens the file of an output table for reading, to compare it with that of another unit. The default opens none.
    ///
    /// # Errors
    /// The volume's, or this host opens no files.
    fn open(&self, place: TablePlace) -> situ_storage::Result<Arc<dyn Reader>> {
        Err(Error::Invalid(format!("table {}: the host opens no files", place.number)))
    }

    /// Reserves a place and begins the file there.
    ///
    /// # Errors
    /// As [`reserve`](TaskHost::reserve) and [`create`](TaskHost::create).
    fn new_table(&self, level: u32) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.create(level, self.reserve(level)?)
    }

    /// Returns the warming of the cache through which the output will be read, under the numbers of their
    /// [places](TaskHost::reserve). Blocks that hold what was read of late are put into it as they are written. Without
    /// it, readers fill their cache themselves.
    fn warming(&self) -> Option<Arc<Warming>> {
        None
    }

    /// Returns the reader of value handles, for a store with a value log. With it, the output says what was dropped of
    /// the log, see [`TaskOutput::dropped_values`].
    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        None
    }

    /// Returns the filter of the keyspace, for a flush. Its table counts the lifetimes of entries, and the filter
    /// removes none. A task has its filter in its rules.
    fn lifetimes_by(&self) -> Option<Arc<dyn CompactionFilter>> {
        None
    }

    /// Returns the length from which on values are [separated](TaskHost::separate). Only a flush has such a host: the
    /// files of a task must not depend on the unit that runs it. The default separates none.
    fn separates_from(&self) -> usize {
        usize::MAX
    }

    /// Puts a value elsewhere and appends the bytes to `handle` that stand for the value in the table.
    ///
    /// # Errors
    /// What the other place says; this host separates nothing.
    fn separate(&self, key: &[u8], value: &[u8], handle: &mut Vec<u8>) -> situ_storage::Result<()> {
        let _ = (key, value, handle);
        Err(Error::Invalid("the host separates no values".to_owned()))
    }

    /// Checks that a table of an output is in the place that a unit names, and has the summary that the unit gives. The
    /// scheduler asks before it believes a unit elsewhere: the inputs are deleted when the output is installed. The
    /// default believes the unit.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn find(&self, table: &OutputTable) -> Result<(), String> {
        let _ = table;
        Ok(())
    }

    /// Gets the number of new bytes as output grows. May block in order to hold the run back.
    fn pace(&self, bytes: u64);

    /// Returns true if the run should end without result. Asked every thousand entries or so.
    fn cancelled(&self) -> bool;
}

/// A finished table of a task's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputTable {
    /// The volume that it lies on.
    pub volume: u32,
    /// The number that the host gave it.
    pub number: u64,
    /// The table's own summary.
    pub summary: TableSummary,
    /// The user keys it spans, its range tombstones included.
    pub span: KeySpan,
}

impl OutputTable {
    /// Returns the table's place.
    pub fn place(&self) -> TablePlace {
        TablePlace { volume: self.volume, number: self.number }
    }
}

/// The result of a task: tables in key order with disjoint spans, durable and closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutput {
    /// The tables. None if nothing is left.
    pub tables: Vec<OutputTable>,
    /// The counts of the task's work.
    pub stats: TaskStats,
    /// The values of a value log that no reader can ask for any more, by segment ascending. Empty without
    /// [`TaskHost::value_handles`].
    pub dropped_values: Vec<DroppedValues>,
    /// The same values one by one, by segment and offset ascending, as far as the unit lists them: it may list fewer or
    /// none. They do not go over the wire.
    pub dropped_places: Vec<ValueLocation>,
}

/// The counts of a task's work.
///
/// Every entry read is accounted for:
/// `entries_in = entries_out + dropped_hidden + dropped_range_deleted + dropped_tombstones + dropped_by_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskStats {
    /// Bytes of the inputs, about: where a task reads a part of a table, the part's share. [`Task::input_bytes`].
    pub bytes_read: u64,
    /// Bytes of the output files.
    pub bytes_written: u64,
    /// Point entries read, tombstones among them.
    pub entries_in: u64,
    /// Point entries written.
    pub entries_out: u64,
    /// Dropped because a newer version in the same stripe hides them.
    pub dropped_hidden: u64,
    /// Dropped because a range tombstone covers them.
    pub dropped_range_deleted: u64,
    /// Tombstones dropped because they hide nothing.
    pub dropped_tombstones: u64,
    /// Dropped by the filter, leaving no tombstone.
    pub dropped_by_filter: u64,
    /// Given another value by the filter.
    pub changed_by_filter: u64,
    /// Written with sequence number 0 instead of their own.
    pub sequences_zeroed: u64,
    /// Range tombstones read that reach into the task's range.
    pub range_tombstones_in: u64,
    /// Range tombstones written; those that lie across a cut are counted on both sides.
    pub range_tombstones_out: u64,
}

impl TaskStats {
    /// Adds another task's numbers.
    pub fn add(&mut self, other: &TaskStats) {
        let TaskStats {
            bytes_read,
            bytes_written,
            entries_in,
            entries_out,
            dropped_hidden,
            dropped_range_deleted,
            dropped_tombstones,
            dropped_by_filter,
            changed_by_filter,
            sequences_zeroed,
            range_tombstones_in,
            range_tombstones_out,
        } = other;
        let add = |sum: &mut u64, more: &u64| *sum = sum.saturating_add(*more);
        add(&mut self.bytes_read, bytes_read);
        add(&mut self.bytes_written, bytes_written);
        add(&mut self.entries_in, entries_in);
        add(&mut self.entries_out, entries_out);
        add(&mut self.dropped_hidden, dropped_hidden);
        add(&mut self.dropped_range_deleted, dropped_range_deleted);
        add(&mut self.dropped_tombstones, dropped_tombstones);
        add(&mut self.dropped_by_filter, dropped_by_filter);
        add(&mut self.changed_by_filter, changed_by_filter);
        add(&mut self.sequences_zeroed, sequences_zeroed);
        add(&mut self.range_tombstones_in, range_tombstones_in);
        add(&mut self.range_tombstones_out, range_tombstones_out);
    }

    /// Returns the number of entries that were dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        let parts = [self.dropped_hidden, self.dropped_range_deleted, self.dropped_tombstones, self.dropped_by_filter];
        // A unit elsewhere may say anything.
        parts.into_iter().fold(0, u64::saturating_add)
    }
}
