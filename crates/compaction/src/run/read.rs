//! The read stage: stored blocks of all inputs into memory, ahead of the merge.
//!
//! There is a *lane* for each run of each sub-range. It holds pieces in key order, and belongs to one merge thread.
//!
//! 1. The index of a table says which blocks a lane needs. Blocks that follow each other make a piece. The first piece
//!    of a lane is short.
//! 2. The index also says when a piece will be needed: when the merge has passed the last key of the piece before. So
//!    the reader reads, of all lanes, the piece first that will be needed first.
//! 3. Several reads are in flight, through a [`ReadQueue`]. They may be answered in any order; a lane hands out its
//!    pieces in order.
//! 4. The merge gives used memory back, for further pieces.
//!
//! **Invariants**: a lane that has nothing always gets a read, whatever the others have. So a merge never waits for a
//! lane while others keep the memory. Beyond that, what is in flight or waits in lanes is at most
//! [`ReadAhead::ahead_bytes`]. A merge holds one piece of each of its lanes. The reader works for sub-ranges in the
//! window only, as the merge threads do.
//!
//! **Threads**: one reader; a merge thread for each lane. The lock is held for moving values only. **Failure**: an
//! error of a read, or damage in an index, ends the run.

use super::control::{Control, Sizes, Wait};
use super::write::WriteQueue;
use crate::error::Result;
use crate::meters::add;
use crate::span::KeyRange;
use crate::task::Run;
use situ_base::lock;
use situ_device::memory::resize;
use situ_storage::{Error as StorageError, FinishedRead, ReadQueue};
use situ_table::{BlockBoundaries, BlockBoundary, Piece, Table};
use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::sync::{Arc, Mutex};

/// Reads in flight of one run.
const READS_IN_FLIGHT: usize = 16;
/// The maximum number of pieces that are read ahead, in addition to one for each lane.
const PIECES_AHEAD: u64 = 8;
/// The maximum size of the first piece of a lane; each later piece may have twice as many bytes as the one before it.
/// The merge begins when all lanes have one.
const FIRST_PIECE_BYTES: u64 = 64 << 10;
/// With many lanes, pieces are smaller: down to one in this many.
const SMALLEST_PIECE_PART: u64 = 8;

/// The role of a piece in its lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The table, by its number in the run.
    pub(super) input: usize,
    /// No piece of the table comes before it in the lane.
    pub(super) is_first: bool,
    /// No piece of the table comes after it in the lane.
    pub(super) is_last: bool,
}

#[derive(Default)]
struct Lane {
    /// Pieces in key order; `None` while one is being read.
    slots: VecDeque<Option<(Piece, Part)>>,
    /// The number of slots that have been taken.
    taken: u64,
    /// No more slots come.
    is_ended: bool,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    /// Memory of used pieces.
    spares: Vec<Vec<u8>>,
    /// The bytes in flight or waiting in lanes.
    ahead_bytes: u64,
    /// That, and what merges hold.
    bytes: u64,
    peak: u64,
}

impl State {
    /// Takes what is no more in lanes, or no more in merges, off the sums.
    fn subtract(&mut self, ahead_bytes: u64, bytes: u64) {
        let State { ahead_bytes: ahead, bytes: all, .. } = *self;
        assert!(ahead_bytes <= ahead && bytes <= all, "{ahead_bytes} of {ahead} ahead, {bytes} of {all} in all");
        (self.ahead_bytes, self.bytes) = (ahead - ahead_bytes, all - bytes);
        assert!(self.ahead_bytes <= self.bytes, "{} bytes are ahead, of {}", self.ahead_bytes, self.bytes);
    }
}

/// The pieces between the reader and the merge.
pub(super) struct ReadAhead {
    state: Mutex<State>,
    runs: usize,
    window: usize,
    piece_bytes: u64,
    ahead_bytes: u64,
}

impl ReadAhead {
    pub(super) fn new(sub_ranges: usize, window: usize, runs: usize, sizes: &Sizes) -> ReadAhead {
        let mut state = State::default();
        state.lanes.resize_with(sub_ranges * runs, Lane::default);
        // In each lane a merge holds one piece and another one waits.
        let pieces = 2 * (window.min(sub_ranges) * runs) as u64 + PIECES_AHEAD;
        let smallest = sizes.piece_bytes / SMALLEST_PIECE_PART;
        let piece_bytes = (sizes.read_bytes / pieces).clamp(smallest, sizes.piece_bytes);
        let ahead_bytes = PIECES_AHEAD * piece_bytes;
        ReadAhead { state: Mutex::new(state), runs, window, piece_bytes, ahead_bytes }
    }

    /// The next piece of a run in a sub-range; `None` behind the last one.
    pub(super) fn take(
        &self,
        control: &Control,
        queue: &WriteQueue,
        [sub_range, run]: [usize; 2],
    ) -> Result<Option<(Piece, Part)>> {
        let taken = queue.wait_in_merge(control, Wait::Starved, || self.try_take(sub_range * self.runs + run))?;
        control.to_reader.notify();
        Ok(taken)
    }

    fn try_take(&self, lane: usize) -> Option<Option<(Piece, Part)>> {
        let mut state = lock(&self.state);
        let lane = &mut state.lanes[lane];
        let Some(first) = lane.slots.front_mut() else { return lane.is_ended.then_some(None) };
        let taken = first.take()?;
        lane.slots.pop_front();
        lane.taken += 1;
        state.subtract(taken.0.stored_bytes(), 0);
        Some(Some(taken))
    }

    /// Takes the memory of a used piece, for another one.
    pub(super) fn give_back(&self, memory: Vec<u8>) {
        let mut state = lock(&self.state);
        state.subtract(0, memory.len() as u64);
        // The memory of a block that was larger than all others is not kept.
        if memory.capacity() as u64 <= 2 * self.piece_bytes {
            state.spares.push(memory);
        }
    }

    pub(super) fn peak(&self) -> u64 {
        lock(&self.state).peak
    }

    /// Puts a finished read into its lane.
    fn land(&self, at: Slot, piece: Piece, part: Part) {
        let mut state = lock(&self.state);
        let lane = &mut state.lanes[at.lane];
        let slot = at.number.checked_sub(lane.taken).and_then(|slot| lane.slots.get_mut(slot as usize));
        let slot = slot.expect("a read has its slot until it lands");
        assert!(slot.is_none(), "piece {} of lane {} was read twice", at.number, at.lane);
        *slot = Some((piece, part));
    }

    /// Makes a slot in a lane for a read, if there is space, and finds memory.
    ///
    /// # Errors
    /// The system has no memory for it.
    fn begin(&self, lane: usize, bytes: u64) -> Result<Option<(Slot, Vec<u8>)>> {
        let mut state = lock(&self.state);
        let is_empty = state.lanes[lane].slots.is_empty();
        if !is_empty && state.ahead_bytes + bytes > self.ahead_bytes {
            return Ok(None);
        }
        state.ahead_bytes += bytes;
        state.bytes += bytes;
        state.peak = state.peak.max(state.bytes);
        let mut memory = state.spares.pop().unwrap_or_default();
        let lane_state = &mut state.lanes[lane];
        assert!(!lane_state.is_ended, "a piece behind the end of lane {lane} would be lost");
        let number = lane_state.taken + lane_state.slots.len() as u64;
        lane_state.slots.push_back(None);
        drop(state);
        if !resize(&mut memory, bytes as usize) {
            return Err(StorageError::out_of_memory(bytes as usize, "blocks that a compaction reads").into());
        }
        Ok(Some((Slot { lane, number }, memory)))
    }

    fn is_empty(&self, lane: usize) -> bool {
        lock(&self.state).lanes[lane].slots.is_empty()
    }

    fn end(&self, lane: usize) {
        lock(&self.state).lanes[lane].is_ended = true;
    }
}

/// The place of a piece in a lane.
#[derive(Clone, Copy)]
struct Slot {
    lane: usize,
    /// The number of pieces that came before it.
    number: u64,
}

/// The work of the reader.
pub(super) struct ToRead<'a> {
    pub(super) control: &'a Control,
    pub(super) pieces: &'a ReadAhead,
    pub(super) inputs: &'a [Run],
    pub(super) sub_ranges: &'a [KeyRange],
    /// Returns the number of sub-ranges that have been built.
    pub(super) built: &'a dyn Fn() -> usize,
}

/// Does the work of the reader.
pub(super) fn read_ahead(work: &ToRead<'_>) -> Result<()> {
    let meters = &work.control.meters;
    let began = meters.now();
    let result = Reading::new(work).read_all();
    let blocked = meters.read.waited();
    meters.read.add_thread(meters.now().saturating_sub(began), blocked);
    result
}

/// The reader's state.
struct Reading<'a> {
    work: &'a ToRead<'a>,
    queue: ReadQueue,
    /// Lanes that need more, by key within a sub-range and by sub-range.
    lanes: Vec<LaneReader<'a>>,
    /// Sub-ranges before this one have lanes.
    sub_range: usize,
    in_flight: BTreeMap<u64, (Slot, Piece, Part)>,
    next_tag: u64,
}

impl<'a> Reading<'a> {
    fn new(work: &'a ToRead<'a>) -> Reading<'a> {
        let queue = ReadQueue::new(Arc::clone(&work.control.to_reader), READS_IN_FLIGHT);
        Reading { work, queue, lanes: Vec::new(), sub_range: 0, in_flight: BTreeMap::new(), next_tag: 0 }
    }

    fn read_all(&mut self) -> Result<()> {
        let ToRead { control, sub_ranges, .. } = *self.work;
        let mut finished = Vec::new();
        loop {
            let seen = control.to_reader.generation();
            control.check()?;
            self.begin_sub_ranges()?;
            let collected = self.collect(&mut finished)?;
            if self.submit_one()? || collected {
                continue;
            }
            let ranges_left = self.sub_range < sub_ranges.len();
            if !ranges_left && self.lanes.is_empty() && self.in_flight.is_empty() {
                return Ok(());
            }
            let began = control.meters.now();
            control.to_reader.wait(seen, None);
            if self.in_flight.is_empty() {
                add(&control.meters.read.blocked, control.meters.now().saturating_sub(began));
            }
        }
    }

    /// Opens the lanes of sub-ranges that have come into the window.
    fn begin_sub_ranges(&mut self) -> Result<()> {
        let ToRead { control, pieces, inputs, sub_ranges, built } = *self.work;
        let end = (built() + pieces.window).min(sub_ranges.len());
        while self.sub_range < end {
            let range = &sub_ranges[self.sub_range];
            for (run, tables) in inputs.iter().enumerate() {
                let lane = self.sub_range * pieces.runs + run;
                let mut reader = LaneReader::new(lane, tables, range);
                if reader.plan(pieces.piece_bytes)? {
                    self.lanes.push(reader);
                } else {
                    pieces.end(lane);
                }
            }
            self.sub_range += 1;
            control.to_merge.notify();
        }
        Ok(())
    }

    /// Puts finished reads into their lanes; whether there were any.
    fn collect(&mut self, finished: &mut Vec<FinishedRead>) -> Result<bool> {
        if self.queue.poll(finished) == 0 {
            return Ok(false);
        }
        for FinishedRead { tag, buffer, result, .. } in finished.drain(..) {
            result?;
            let (slot, mut piece, part) = self.in_flight.remove(&tag).expect("each read finishes once");
            self.work.control.meters.read.add_bytes(buffer.len() as u64);
            piece.fill(buffer);
            self.work.pieces.land(slot, piece, part);
        }
        self.work.control.to_merge.notify();
        Ok(true)
    }

    /// Submits the read that will be needed first, if there is space; whether there was one.
    fn submit_one(&mut self) -> Result<bool> {
        if self.queue.in_flight() == READS_IN_FLIGHT {
            return Ok(false);
        }
        let Some(at) = self.most_urgent() else { return Ok(false) };
        let reader = &mut self.lanes[at];
        let pieces = &self.work.pieces;
        let (piece, part) = reader.next.take().expect("a lane that is listed has a piece to read");
        let Some((slot, buffer)) = pieces.begin(reader.lane, piece.stored_bytes())? else {
            reader.next = Some((piece, part));
            return Ok(false);
        };
        let file = Arc::clone(piece.table().reader());
        let offset = piece.offset();
        if !reader.plan(pieces.piece_bytes)? {
            pieces.end(reader.lane);
            self.lanes.swap_remove(at);
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.in_flight.insert(tag, (slot, piece, part));
        self.queue.submit(&*file, tag, offset, buffer).expect("the queue has a place, and no other thread uses it");
        Ok(true)
    }

    /// The lane whose next piece is needed first; lanes that have nothing come before all others.
    fn most_urgent(&self) -> Option<usize> {
        let pieces = &self.work.pieces;
        let urgency = |reader: &LaneReader<'a>| (!pieces.is_empty(reader.lane), reader.lane / pieces.runs);
        let of = |at: &usize| (urgency(&self.lanes[*at]), self.lanes[*at].needed_at.as_slice());
        (0..self.lanes.len()).min_by(|a, b| of(a).cmp(&of(b)))
    }
}

/// A table whose blocks are being planned.
struct OpenTable {
    table: Arc<Table>,
    blocks: Peekable<BlockBoundaries<Arc<Table>>>,
    /// A piece of it was planned.
    is_begun: bool,
}

/// Plans the pieces of one lane.
struct LaneReader<'a> {
    lane: usize,
    tables: &'a Run,
    range: &'a KeyRange,
    /// The next table to begin.
    next_table: usize,
    /// The table before it, until all of its blocks are planned.
    open: Option<OpenTable>,
    next: Option<(Piece, Part)>,
    /// The maximum size of the next piece, in bytes.
    grown_bytes: u64,
    /// The merge needs `next` when it has passed this key, or before.
    needed_at: Vec<u8>,
    /// The end of the last block of `next`.
    ends_at: Vec<u8>,
}

impl<'a> LaneReader<'a> {
    fn new(lane: usize, tables: &'a Run, range: &'a KeyRange) -> LaneReader<'a> {
        let (needed_at, ends_at) = (Vec::new(), Vec::new());
        let grown_bytes = FIRST_PIECE_BYTES;
        LaneReader { lane, tables, range, next_table: 0, open: None, next: None, grown_bytes, needed_at, ends_at }
    }

    /// Plans the next piece; false if there is none.
    fn plan(&mut self, piece_bytes: u64) -> Result<bool> {
        loop {
            if self.open.is_none() && !self.begin_table()? {
                return Ok(false);
            }
            std::mem::swap(&mut self.needed_at, &mut self.ends_at);
            if let Some(next) = self.gather(piece_bytes.min(self.grown_bytes))? {
                self.next = Some(next);
                self.grown_bytes = self.grown_bytes.saturating_mul(2);
                return Ok(true);
            }
            self.open = None;
        }
    }

    /// To the next table that reaches into the range.
    fn begin_table(&mut self) -> Result<bool> {
        while let Some(input) = self.tables.get(self.next_table) {
            self.next_table += 1;
            if self.range.overlaps(&input.span) {
                let table = input.open()?;
                let lower = self.range.lower.as_deref().filter(|lower| *lower > input.span.begin.as_slice());
                let blocks = table.blocks_from(lower.unwrap_or_default())?.peekable();
                self.ends_at = lower.unwrap_or(&input.span.begin).to_vec();
                self.open = Some(OpenTable { table, blocks, is_begun: false });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next blocks of the open table; `None` if none of them reaches into the range.
    fn gather(&mut self, piece_bytes: u64) -> Result<Option<(Piece, Part)>> {
        let Some(OpenTable { table, blocks, is_begun }) = &mut self.open else { return Ok(None) };
        let mut piece = Piece::new(Arc::clone(table));
        let (mut bytes, mut is_last) = (0, true);
        while let Some(boundary) = blocks.peek() {
            let BlockBoundary { block, user_key, .. } = match boundary {
                Ok(boundary) => boundary,
                Err(error) => return Err(error.clone().into()),
            };
            let fits = bytes == 0 || bytes + block.stored_bytes() <= piece_bytes;
            if !fits || !piece.push(*block) {
                is_last = false;
                break;
            }
            bytes += block.stored_bytes();
            self.ends_at.clone_from(user_key);
            let ends = self.range.upper.as_ref().is_some_and(|upper| upper <= user_key);
            blocks.next();
            if ends {
                break;
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        let part = Part { input: self.next_table - 1, is_first: !std::mem::replace(is_begun, true), is_last };
        if is_last {
            self.open = None;
        }
        Ok(Some((piece, part)))
    }
}
