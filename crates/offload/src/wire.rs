//! Tasks and their outputs as bytes, for units in another process or on another machine: `docs/formats/task.md`.
//!
//! A task is plain values but for two things, which the reader of the bytes finds in its own world ([`Surroundings`]):
//! an input table, by its place, and a compaction filter, by its name.
//!
//! **Invariants.** What was encoded is decoded to the same values. What is decoded keeps the rules that a run relies
//! on: snapshots ascend, spans and ranges are not empty, options are in bounds, sizes and counts have sums.
//! **Failure.** Bytes that break a rule are an error that names the field; nothing is allocated for a length that the
//! bytes do not have.

mod mode;

use crc32c::crc32c;
use situ_compaction::{
    CompactionFilter, DroppedValues, Encoder, FrozenFilter, Grandparent, InputTable, KeyRange, KeySpan, MergeRules,
    OutputRules, OutputTable, Run, TableInput, TablePlace, Task, TaskOutput, TaskStats,
};
use situ_storage::{Error, Result};
use situ_table::format::MAX_BLOCK_BYTES;
use situ_table::{Compression, MAX_SEQUENCE, Properties, TableOptions, TableSummary};
use std::sync::Arc;
use std::time::Duration;

const TASK_MAGIC: &[u8; 8] = b"situtask";
const OUTPUT_MAGIC: &[u8; 8] = b"situdone";
const VERSION: u32 = 1;
/// Magic and version before the fields, the checksum behind them.
const FRAME_BYTES: usize = 16;

/// The program around the reader of a task.
pub trait Surroundings {
    /// Returns the table in a place, to be opened when the run gets there.
    fn table(&self, place: TablePlace) -> Arc<dyn InputTable>;

    /// Returns the filter of this name, if it is known here.
    fn filter(&self, name: &str) -> Option<Arc<dyn CompactionFilter>>;
}

/// Encodes a task as bytes.
pub fn encode_task(task: &Task) -> Vec<u8> {
    let mut out = Out::begin(TASK_MAGIC);
    out.u64(task.id);
    out.u32(task.keyspace);
    out.u32(task.level);
    out.list(&task.inputs, |out, run| out.list(run, Out::input));
    out.rules(&task.rules);
    out.seal()
}

/// Decodes the task in `bytes`.
///
/// # Errors
/// [`Corruption`](Error::Corruption): the bytes are not a task. [`Invalid`](Error::Invalid): the task's filter is not
/// known here.
pub fn decode_task(bytes: &[u8], surroundings: &dyn Surroundings) -> Result<Task> {
    let mut fields = In::open(bytes, TASK_MAGIC, "task")?;
    let (id, keyspace, level) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let inputs = fields.list("runs", 4, |fields| fields.run(surroundings))?;
    let rules = fields.rules(surroundings)?;
    fields.end()?;
    let task = Task { id, keyspace, level, inputs, rules };
    fields.require(has_sums(&task), "sizes and counts whose sums fit into 64 bits", "larger ones")?;
    Ok(task)
}

/// Returns true if the numbers of a task can be added up, as units and runs do.
fn has_sums(task: &Task) -> bool {
    let of_tables: [fn(&TableInput) -> u64; 4] =
        [|input| input.bytes, |input| input.bytes_in_range, |input| input.entries, |input| input.range_deletions];
    of_tables.into_iter().all(|number| has_sum(task.tables().map(number)))
        && has_sum(task.rules.grandparents.iter().map(|grandparent| grandparent.bytes))
}

fn has_sum(mut numbers: impl Iterator<Item = u64>) -> bool {
    numbers.try_fold(0, u64::checked_add).is_some()
}

/// Encodes the output of a task as bytes.
pub fn encode_output(output: &TaskOutput) -> Vec<u8> {
    let mut out = Out::begin(OUTPUT_MAGIC);
    out.list(&output.tables, |out, table| {
        out.u32(table.volume);
        out.u64(table.number);
        out.span(&table.span);
        out.u64(table.summary.bytes);
        out.bytes(&table.summary.properties.to_bytes());
    });
    numbers_of(&output.stats).iter().for_each(|number| out.u64(*number));
    out.list(&output.dropped_values, |out, dropped| {
        [dropped.segment, dropped.handles, dropped.bytes].into_iter().for_each(|number| out.u64(number));
    });
    out.seal()
}

/// Decodes the output in `bytes`. Whether it is the answer to the task is another question, which
/// [`check_output`](situ_compaction::check_output) answers.
///
/// # Errors
/// [`Corruption`](Error::Corruption): the bytes are not an output.
pub fn decode_output(bytes: &[u8]) -> Result<TaskOutput> {
    let mut fields = In::open(bytes, OUTPUT_MAGIC, "task output")?;
    let tables = fields.list("tables", 32, |fields| {
        let (volume, number) = (fields.u32()?, fields.u64()?);
        let span = fields.span()?;
        let bytes = fields.u64()?;
        let properties = Properties::from_bytes(fields.bytes("properties")?, fields.what)?;
        Ok(OutputTable { volume, number, span, summary: TableSummary { bytes, properties } })
    })?;
    let mut numbers = [0; 12];
    for number in &mut numbers {
        *number = fields.u64()?;
    }
    let dropped_values = fields.list("segments", 24, |fields| {
        Ok(DroppedValues { segment: fields.u64()?, handles: fields.u64()?, bytes: fields.u64()? })
    })?;
    fields.end()?;
    Ok(TaskOutput { tables, stats: stats_of(numbers), dropped_values, dropped_places: Vec::new() })
}

/// In the order of the page.
fn numbers_of(stats: &TaskStats) -> [u64; 12] {
    [
        stats.bytes_read,
        stats.bytes_written,
        stats.entries_in,
        stats.entries_out,
        stats.dropped_hidden,
        stats.dropped_range_deleted,
        stats.dropped_tombstones,
        stats.dropped_by_filter,
        stats.changed_by_filter,
        stats.sequences_zeroed,
        stats.range_tombstones_in,
        stats.range_tombstones_out,
    ]
}

fn stats_of(numbers: [u64; 12]) -> TaskStats {
    let [bytes_read, bytes_written, entries_in, entries_out, rest @ ..] = numbers;
    let [dropped_hidden, dropped_range_deleted, dropped_tombstones, dropped_by_filter, rest @ ..] = rest;
    let [changed_by_filter, sequences_zeroed, range_tombstones_in, range_tombstones_out] = rest;
    TaskStats {
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
    }
}

/// Fields that are written.
struct Out(Vec<u8>);

impl Out {
    fn begin(magic: &[u8; 8]) -> Out {
        let mut out = Out(magic.to_vec());
        out.u32(VERSION);
        out
    }

    /// The bytes, with their checksum behind them.
    fn seal(self) -> Vec<u8> {
        let checksum = crc32c(&self.0);
        [self.0, checksum.to_le_bytes().to_vec()].concat()
    }

    fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Out, &T)) {
        self.u32(items.len() as u32);
        items.iter().for_each(|item| each(self, item));
    }

    fn span(&mut self, span: &KeySpan) {
        self.bytes(&span.begin);
        self.bytes(&span.end);
    }

    fn input(&mut self, input: &TableInput) {
        self.u32(input.volume);
        self.u64(input.number);
        self.span(&input.span);
        let numbers = [input.bytes, input.bytes_in_range, input.entries, input.range_deletions, input.largest_sequence];
        numbers.into_iter().for_each(|number| self.u64(number));
    }

    fn bound(&mut self, bound: Option<&[u8]>) {
        self.u8(u8::from(bound.is_some()));
        bound.into_iter().for_each(|bound| self.bytes(bound));
    }

    fn rules(&mut self, rules: &MergeRules) {
        self.bound(rules.range.lower.as_deref());
        self.bound(rules.range.upper.as_deref());
        self.list(&rules.snapshots, |out, snapshot| out.u64(*snapshot));
        self.list(&rules.below, |out, spans| out.list(spans, Out::span));
        self.list(&rules.grandparents, |out, grandparent| {
            out.span(&grandparent.span);
            out.u64(grandparent.bytes);
        });
        self.u32(rules.output_level);
        self.output(&rules.output);
        self.u8(u8::from(rules.filter.is_some()));
        if let Some(filter) = &rules.filter {
            self.bytes(filter.code.name().as_bytes());
            self.bytes(&filter.parameters);
        }
        self.u64(rules.now_unix.as_secs());
        self.u32(rules.now_unix.subsec_nanos());
    }

    fn output(&mut self, output: &OutputRules) {
        let TableOptions {
            block_bytes,
            restart_interval,
            compression,
            filter_bits_per_key,
            index_block_bytes,
            keyspace_id,
            keyspace_name,
        } = &output.table;
        self.u64(*block_bytes as u64);
        self.u64(*restart_interval as u64);
        let (kind, level) = match compression {
            Compression::Zstd { level } => (2, *level),
            Compression::Lz4 => (1, 0),
            _ => (0, 0),
        };
        self.u8(kind);
        self.u32(level as u32);
        self.u32(*filter_bits_per_key);
        self.u64(*index_block_bytes as u64);
        self.u32(*keyspace_id);
        self.bytes(keyspace_name.as_bytes());
        self.bytes(output.encoder.name().as_bytes());
        self.u64(output.target_file_bytes);
        self.u64(output.max_grandparent_bytes);
        self.u64(output.created_unix_s);
    }
}

/// Fields that are read.
struct In<'a> {
    what: &'static str,
    whole: usize,
    rest: &'a [u8],
}

impl<'a> In<'a> {
    fn open(bytes: &'a [u8], magic: &[u8; 8], what: &'static str) -> Result<In<'a>> {
        let fail =
            |field: &str, expected: String, found: String| Err(Error::corruption(what, 0, field, expected, found));
        let Some((covered, checksum)) = bytes.split_last_chunk::<4>().filter(|_| bytes.len() >= FRAME_BYTES) else {
            return fail("length", format!("{FRAME_BYTES} bytes or more"), bytes.len().to_string());
        };
        if !covered.starts_with(magic) {
            return fail("magic", magic.escape_ascii().to_string(), covered[..8].escape_ascii().to_string());
        }
        let mut fields = In { what, whole: covered.len(), rest: &covered[8..] };
        let version = fields.u32()?;
        if version != VERSION {
            return fail("version", VERSION.to_string(), version.to_string());
        }
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c(covered));
        if expected != found {
            return fail("checksum", format!("{expected:08x}"), format!("{found:08x}"));
        }
        Ok(fields)
    }

    fn broken(&self, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
        Error::corruption(self.what, (self.whole - self.rest.len()) as u64, "fields", expected, found)
    }

    fn require(&self, is_so: bool, expected: &str, found: impl std::fmt::Display) -> Result<()> {
        if is_so { Ok(()) } else { Err(self.broken(expected, found)) }
    }

    fn end(&self) -> Result<()> {
        self.require(self.rest.is_empty(), "the end", format!("{} bytes more", self.rest.len()))
    }

    fn take(&mut self, bytes: usize, what: &str) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(bytes) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.broken(format!("{what} of {bytes} bytes"), format!("{} bytes", self.rest.len()))),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N, "a number")?.try_into().unwrap_or([0; N]))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn size(&mut self, what: &str, at_most: usize) -> Result<usize> {
        let number = self.u64()?;
        let size = usize::try_from(number).ok().filter(|size| *size <= at_most);
        size.ok_or_else(|| self.broken(format!("{what} of at most {at_most}"), number))
    }

    fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            flag @ (0 | 1) => Ok(flag == 1),
            other => Err(self.broken("0 or 1", other)),
        }
    }

    fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length, what)
    }

    fn text(&mut self, what: &str) -> Result<&'a str> {
        let bytes = self.bytes(what)?;
        str::from_utf8(bytes).map_err(|_| self.broken(format!("{what} in UTF-8"), bytes.escape_ascii()))
    }

    /// A list whose items have at least `item_bytes` bytes each.
    fn list<T>(
        &mut self,
        what: &str,
        item_bytes: usize,
        mut each: impl FnMut(&mut In<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let count = self.u32()? as usize;
        let fits = count <= self.rest.len() / item_bytes;
        self.require(fits, &format!("{what} that fit into {} bytes", self.rest.len()), count)?;
        (0..count).map(|_| each(self)).collect()
    }

    fn span(&mut self) -> Result<KeySpan> {
        let span = KeySpan { begin: self.bytes("key")?.to_vec(), end: self.bytes("key")?.to_vec() };
        self.require(span.begin < span.end, "a span that is not empty", format!("{span:?}"))?;
        Ok(span)
    }

    fn run(&mut self, surroundings: &dyn Surroundings) -> Result<Run> {
        let run = self.list("tables", 60, |fields| fields.input(surroundings))?;
        let ascends = run.windows(2).all(|pair| pair[0].span.end <= pair[1].span.begin);
        self.require(ascends, "tables of a run in key order", format!("{run:?}"))?;
        Ok(run)
    }

    fn input(&mut self, surroundings: &dyn Surroundings) -> Result<TableInput> {
        let (volume, number) = (self.u32()?, self.u64()?);
        Ok(TableInput {
            table: surroundings.table(TablePlace { volume, number }),
            volume,
            number,
            span: self.span()?,
            bytes: self.u64()?,
            bytes_in_range: self.u64()?,
            entries: self.u64()?,
            range_deletions: self.u64()?,
            largest_sequence: self.u64()?,
        })
    }

    fn bound(&mut self) -> Result<Option<Vec<u8>>> {
        if self.flag()? { Ok(Some(self.bytes("key")?.to_vec())) } else { Ok(None) }
    }

    fn rules(&mut self, surroundings: &dyn Surroundings) -> Result<MergeRules> {
        let range = self.range()?;
        let snapshots = self.list("snapshots", 8, In::u64)?;
        let ascend = snapshots.is_sorted() && snapshots.last().is_none_or(|last| *last <= MAX_SEQUENCE);
        self.require(ascend, "snapshots that ascend", format!("{snapshots:?}"))?;
        let below = self.list("levels below", 4, |fields| {
            let spans = fields.list("spans", 8, In::span)?;
            let ascend = spans.windows(2).all(|pair| pair[0].end <= pair[1].begin);
            fields.require(ascend, "spans that ascend", format!("{spans:?}"))?;
            Ok(spans)
        })?;
        let grandparents =
            self.list("grandparents", 16, |fields| Ok(Grandparent { span: fields.span()?, bytes: fields.u64()? }))?;
        let ascend = grandparents.windows(2).all(|pair| pair[0].span.end <= pair[1].span.begin);
        self.require(ascend, "grandparents that ascend", format!("{grandparents:?}"))?;
        let (output_level, output) = (self.u32()?, self.output()?);
        let filter = if self.flag()? { Some(self.filter(surroundings)?) } else { None };
        let (seconds, nanoseconds) = (self.u64()?, self.u32()?);
        self.require(nanoseconds < 1_000_000_000, "less than a second of nanoseconds", nanoseconds)?;
        let now_unix = Duration::new(seconds, nanoseconds);
        Ok(MergeRules { range, snapshots, below, grandparents, output_level, output, filter, now_unix })
    }

    fn range(&mut self) -> Result<KeyRange> {
        let range = KeyRange { lower: self.bound()?, upper: self.bound()? };
        let is_empty = matches!((&range.lower, &range.upper), (Some(lower), Some(upper)) if lower >= upper);
        self.require(!is_empty, "a range that is not empty", format!("{range:?}"))?;
        Ok(range)
    }

    fn filter(&mut self, surroundings: &dyn Surroundings) -> Result<FrozenFilter> {
        let (name, parameters) = (self.text("filter name")?, self.bytes("parameters")?);
        let code = surroundings.filter(name);
        let code = code.ok_or_else(|| Error::Invalid(format!("the compaction filter {name} is not known here")))?;
        Ok(FrozenFilter { code, parameters: parameters.into() })
    }

    fn output(&mut self) -> Result<OutputRules> {
        let (block_bytes, restart_interval) = (self.size("blocks", MAX_BLOCK_BYTES)?, self.size("restarts", 1 << 20)?);
        self.require(restart_interval > 0, "a restart interval above 0", restart_interval)?;
        let (kind, level) = (self.u8()?, self.u32()? as i32);
        self.require(kind == 2 || level == 0, "level 0 without Zstandard", level)?;
        let compression = match kind {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd { level },
            other => return Err(self.broken("a compression from 0 to 2", other)),
        };
        let filter_bits_per_key = self.u32()?;
        self.require(filter_bits_per_key <= 1000, "filter bits of at most 1000", filter_bits_per_key)?;
        let table = TableOptions {
            block_bytes,
            restart_interval,
            compression,
            filter_bits_per_key,
            index_block_bytes: self.size("index blocks", MAX_BLOCK_BYTES)?,
            keyspace_id: self.u32()?,
            keyspace_name: self.text("keyspace name")?.to_owned(),
        };
        Ok(OutputRules {
            table,
            encoder: Encoder::named(self.text("encoder")?.to_owned()),
            target_file_bytes: self.u64()?,
            max_grandparent_bytes: self.u64()?,
            created_unix_s: self.u64()?,
        })
    }
}

#[cfg(test)]
mod tests;
