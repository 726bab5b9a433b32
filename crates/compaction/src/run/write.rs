//! The write stage: blocks into files.
//!
//! 1. The builder gives out *chunks*: some blocks of a table one behind the other, and the end of the table.
//! 2. With one merge thread, the builder has encoded the blocks. With several, any merge thread that waits encodes the
//!    chunk that was given out first, and says how long its blocks are in the file.
//! 3. A writer has the *turn* for one table. It takes encoded chunks in order, creates the file, appends, and gives
//!    used memory back to the builder. Behind the end of the table it gives the turn to another writer, and finishes
//!    the file. So the run does not wait for a file to become durable, on its disk or behind a network.
//!
//! **Invariants**: blocks in chunks have at most [`Sizes::write_bytes`] bytes, uncompressed, with the ends of tables;
//! or there is one chunk. Spare memory has the same bound. Chunks, and their lengths, keep their order, whichever
//! thread encodes.
//!
//! **Threads**: one builder, [`WRITERS`] writers, any number that encode. The lock is held for moving values only.
//! **Failure**: an error ends the run; a file that was begun is the caller's to remove.

use super::control::{Control, Wait};
use crate::error::Result;
use crate::meters::add;
use crate::output::{BlockOutput, begin_table};
use crate::task::{MergeRules, TablePlace};
use situ_base::lock;
use situ_table::{BlockEncoder, Compression, EncodedBlock, RawBlock, TableAppender, TableEnd, TableSummary};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

#[cfg(doc)]
use super::control::Sizes;

/// One writes, the others finish what they have written.
pub(super) const WRITERS: usize = 3;

enum Step {
    Raw(RawBlock),
    Encoded(EncodedBlock),
    End(Box<TableEnd>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Raw,
    BeingEncoded,
    Encoded,
}

/// The unit of work for the writer.
struct Chunk {
    steps: Vec<Step>,
    bytes: u64,
    progress: Progress,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// The number of chunks that the writer has taken.
    taken: u64,
    /// Of chunks that were given out raw: how long their blocks are in the file, once that is known.
    lengths: VecDeque<Option<Vec<u64>>>,
    /// The chunk that the first of `lengths` belongs to.
    lengths_from: u64,
    /// Of all chunks that are not written.
    bytes: u64,
    peak: u64,
    spares: Vec<RawBlock>,
    spare_bytes: u64,
    /// The builder has given out all.
    is_closed: bool,
    /// A writer has the turn.
    is_writing: bool,
    /// Tables that have begun.
    begun: u64,
    /// Finished tables, by when they began.
    written: BTreeMap<u64, (TablePlace, TableSummary)>,
}

impl State {
    /// The writer with the turn finds nothing more to write.
    fn is_at_end(&self) -> bool {
        self.is_closed && self.chunks.is_empty()
    }

    fn is_all_written(&self) -> bool {
        self.is_at_end() && !self.is_writing && self.written.len() as u64 == self.begun
    }
}

/// Chunks between the builder, those that encode, and the writer.
pub(super) struct WriteQueue {
    state: Mutex<State>,
    compression: Compression,
    /// Encoders that are not in use.
    encoders: Mutex<Vec<BlockEncoder>>,
}

impl WriteQueue {
    pub(super) fn new(compression: Compression) -> WriteQueue {
        WriteQueue { state: Mutex::default(), compression, encoders: Mutex::default() }
    }

    pub(super) fn peak(&self) -> u64 {
        lock(&self.state).peak
    }

    /// Gives out a chunk when there is space. The result is memory of written blocks.
    fn push(&self, control: &Control, chunk: Chunk, spares: &mut Vec<RawBlock>) -> Result<()> {
        let (bytes, is_encoded) = (chunk.bytes, chunk.progress == Progress::Encoded);
        let mut chunk = Some(chunk);
        self.wait_in_merge(control, Wait::Blocked, || {
            let mut state = lock(&self.state);
            if state.bytes > 0 && state.bytes + bytes > control.sizes.write_bytes {
                return None;
            }
            state.bytes += bytes;
            state.peak = state.peak.max(state.bytes);
            state.chunks.push_back(chunk.take()?);
            if !is_encoded {
                state.lengths.push_back(None);
            }
            spares.append(&mut state.spares);
            state.spare_bytes = 0;
            Some(())
        })?;
        if is_encoded {
            control.to_writer.notify()
        } else {
            control.to_merge.notify()
        }
        Ok(())
    }

    /// Waits in a merge thread until `ready` has something. Meanwhile, the thread encodes what is to be encoded.
    pub(super) fn wait_in_merge<T>(&self, control: &Control, why: Wait, ready: impl FnMut() -> Option<T>) -> Result<T> {
        control.wait_in_merge(why, || self.encode_one(control), ready)
    }

    /// Encodes the first chunk that no thread has begun to encode; false if there is none.
    fn encode_one(&self, control: &Control) -> Result<bool> {
        let Some((number, mut steps)) = self.take_raw() else { return Ok(false) };
        let encoder = lock(&self.encoders).pop();
        let mut encoder = encoder.map_or_else(|| BlockEncoder::new(self.compression), Ok)?;
        let mut lengths = Vec::new();
        for step in &mut steps {
            if let Step::Raw(raw) = step {
                let encoded = encoder.encode(std::mem::take(raw))?;
                lengths.push(encoded.stored().len() as u64);
                *step = Step::Encoded(encoded);
            }
        }
        lock(&self.encoders).push(encoder);
        let is_first = self.put_encoded(number, steps, lengths);
        if is_first {
            control.to_writer.notify();
        }
        control.to_merge.notify();
        Ok(true)
    }

    fn take_raw(&self) -> Option<(u64, Vec<Step>)> {
        let mut state = lock(&self.state);
        let at = state.chunks.iter().position(|chunk| chunk.progress == Progress::Raw)?;
        let number = state.taken + at as u64;
        let chunk = &mut state.chunks[at];
        chunk.progress = Progress::BeingEncoded;
        Some((number, std::mem::take(&mut chunk.steps)))
    }

    /// Puts an encoded chunk in its place. Returns true if the writer waits for this chunk.
    fn put_encoded(&self, number: u64, steps: Vec<Step>, lengths: Vec<u64>) -> bool {
        let mut state = lock(&self.state);
        let (at, lengths_at) = (number - state.taken, number - state.lengths_from);
        let chunk = &mut state.chunks[at as usize];
        assert!(chunk.progress == Progress::BeingEncoded, "chunk {number} is encoded twice");
        (chunk.steps, chunk.progress) = (steps, Progress::Encoded);
        let before = state.lengths[lengths_at as usize].replace(lengths);
        assert!(before.is_none(), "the lengths of chunk {number} are known: {before:?}");
        at == 0
    }

    /// The lengths of the blocks of the next chunk, for which it waits.
    fn take_lengths(&self, control: &Control) -> Result<Vec<u64>> {
        self.wait_in_merge(control, Wait::Blocked, || {
            let mut state = lock(&self.state);
            let lengths = state.lengths.front_mut()?.take()?;
            state.lengths.pop_front();
            state.lengths_from += 1;
            Some(lengths)
        })
    }

    /// Returns true if a chunk was given out whose lengths the builder has not.
    fn has_lengths_to_come(&self) -> bool {
        !lock(&self.state).lengths.is_empty()
    }

    /// Says that nothing more comes, and waits until all is written.
    fn finish(&self, control: &Control) -> Result<Vec<(TablePlace, TableSummary)>> {
        lock(&self.state).is_closed = true;
        control.to_writer.notify();
        self.wait_in_merge(control, Wait::Blocked, || {
            let mut state = lock(&self.state);
            state.is_all_written().then(|| std::mem::take(&mut state.written).into_values().collect())
        })
    }

    /// Waits for the turn to write a table; its number, or `None` when there are no more. Waiting writers starve only
    /// if none has the turn.
    fn take_turn(&self, control: &Control, waited: &mut Duration) -> Result<Option<u64>> {
        loop {
            let seen = control.to_writer.generation();
            control.check()?;
            let mut state = lock(&self.state);
            let is_mine = !state.is_writing;
            if is_mine && state.is_at_end() {
                return Ok(None);
            }
            if is_mine && !state.chunks.is_empty() {
                state.is_writing = true;
                state.begun += 1;
                return Ok(Some(state.begun - 1));
            }
            drop(state);
            let began = control.meters.now();
            control.to_writer.wait(seen, None);
            *waited += control.meters.now().saturating_sub(began);
        }
    }

    /// The next chunk for the writer that has the turn.
    fn take(&self, control: &Control, waited: &mut Duration) -> Result<Chunk> {
        loop {
            let seen = control.to_writer.generation();
            control.check()?;
            {
                let mut state = lock(&self.state);
                let is_encoded = state.chunks.front().is_some_and(|chunk| chunk.progress == Progress::Encoded);
                if is_encoded && let Some(chunk) = state.chunks.pop_front() {
                    state.taken += 1;
                    return Ok(chunk);
                }
            }
            let began = control.meters.now();
            control.to_writer.wait(seen, None);
            let time = control.meters.now().saturating_sub(began);
            add(&control.meters.write.starved, time);
            *waited += time;
        }
    }

    /// The table of the writer with the turn has all its blocks.
    fn end_turn(&self, control: &Control) {
        let had_turn = std::mem::replace(&mut lock(&self.state).is_writing, false);
        assert!(had_turn, "a writer without the turn has written a table");
        control.to_writer.notify();
    }

    fn put_written(&self, control: &Control, number: u64, table: (TablePlace, TableSummary)) {
        let mut state = lock(&self.state);
        let is_new = number < state.begun && state.written.insert(number, table).is_none();
        assert!(is_new, "table {number} of {} was written twice", state.begun);
        drop(state);
        control.to_merge.notify();
    }

    /// A chunk is written: there is space, and memory to use again.
    fn give_back(&self, control: &Control, bytes: u64, blocks: &mut Vec<RawBlock>) {
        let mut state = lock(&self.state);
        assert!(bytes <= state.bytes, "{bytes} bytes are written of {} that were given out", state.bytes);
        state.bytes -= bytes;
        for block in blocks.drain(..) {
            let memory = block.memory_bytes();
            if state.spare_bytes + memory <= control.sizes.write_bytes {
                state.spare_bytes += memory;
                state.spares.push(block);
            }
        }
        drop(state);
        control.to_merge.notify();
    }
}

/// Does the work of a writer.
pub(super) fn write(control: &Control, queue: &WriteQueue, rules: &MergeRules) -> Result<()> {
    let meters = &control.meters;
    let began = meters.now();
    let mut writing = Writing { control, queue, rules, used: Vec::new(), waited: Duration::ZERO };
    let result = writing.write_all();
    meters.write.add_thread(meters.now().saturating_sub(began), writing.waited);
    result
}

struct Writing<'a> {
    control: &'a Control,
    queue: &'a WriteQueue,
    rules: &'a MergeRules,
    /// Memory of blocks of the current chunk that are in the file.
    used: Vec<RawBlock>,
    waited: Duration,
}

impl Writing<'_> {
    fn write_all(&mut self) -> Result<()> {
        let Writing { control, queue, .. } = *self;
        while let Some(number) = queue.take_turn(control, &mut self.waited)? {
            let (place, table, end) = self.write_table()?;
            queue.end_turn(control);
            let summary = table.finish(end)?;
            control.meters.write.add_bytes(summary.bytes);
            queue.put_written(control, number, (place, summary));
        }
        Ok(())
    }

    /// Writes the chunks of one table. The last one ends with the table's end.
    fn write_table(&mut self) -> Result<(TablePlace, TableAppender, TableEnd)> {
        let Writing { control, queue, .. } = *self;
        let (place, mut table) = begin_table(&*control.host, self.rules)?;
        loop {
            let chunk = queue.take(control, &mut self.waited)?;
            let mut ended = None;
            for step in chunk.steps {
                assert!(ended.is_none(), "a block behind the end of its table is in the same chunk");
                match step {
                    Step::Encoded(block) => self.used.push(table.append(block)?),
                    Step::Raw(_) => unreachable!("the writer takes encoded chunks only"),
                    Step::End(end) => ended = Some(*end),
                }
            }
            queue.give_back(control, chunk.bytes, &mut self.used);
            if let Some(end) = ended {
                return Ok((place, table, end));
            }
        }
    }
}

/// The builder's end of the queue.
pub(super) struct ToWriter<'a> {
    control: &'a Control,
    queue: &'a WriteQueue,
    /// Of a builder that encodes; otherwise others do.
    encoder: Option<BlockEncoder>,
    /// The open chunk.
    steps: Vec<Step>,
    bytes: u64,
    /// Lengths of blocks that were not yet asked for.
    lengths: VecDeque<u64>,
    spares: Vec<RawBlock>,
}

impl<'a> ToWriter<'a> {
    /// Makes it for a builder that encodes, or for one whose blocks others encode.
    pub(super) fn new(control: &'a Control, queue: &'a WriteQueue, encodes: bool) -> Result<ToWriter<'a>> {
        let encoder = encodes.then(|| BlockEncoder::new(queue.compression)).transpose()?;
        let (steps, lengths, spares) = (Vec::new(), VecDeque::new(), Vec::new());
        Ok(ToWriter { control, queue, encoder, steps, bytes: 0, lengths, spares })
    }

    fn flush(&mut self) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let progress = if self.encoder.is_some() { Progress::Encoded } else { Progress::Raw };
        let chunk = Chunk { steps: std::mem::take(&mut self.steps), bytes: std::mem::take(&mut self.bytes), progress };
        self.queue.push(self.control, chunk, &mut self.spares)
    }
}

impl BlockOutput for ToWriter<'_> {
    /// A writer that takes the first chunk behind a table's end begins the next one.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>> {
        self.bytes += block.plain_bytes();
        self.steps.push(match &mut self.encoder {
            None => Step::Raw(block),
            Some(encoder) => {
                let encoded = encoder.encode(block)?;
                self.lengths.push_back(encoded.stored().len() as u64);
                Step::Encoded(encoded)
            }
        });
        if self.bytes >= self.control.sizes.chunk_bytes {
            self.flush()?;
        }
        Ok(self.spares.pop())
    }

    fn stored_bytes(&mut self) -> Result<u64> {
        loop {
            if let Some(length) = self.lengths.pop_front() {
                return Ok(length);
            }
            if !self.queue.has_lengths_to_come() {
                self.flush()?;
            }
            self.lengths.extend(self.queue.take_lengths(self.control)?);
        }
    }

    fn end(&mut self, end: TableEnd) -> Result<()> {
        self.bytes += end.memory_bytes();
        self.steps.push(Step::End(Box::new(end)));
        self.flush()
    }

    fn finish(mut self) -> Result<Vec<(TablePlace, TableSummary)>> {
        self.flush()?;
        self.queue.finish(self.control)
    }
}
