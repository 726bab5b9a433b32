//! One run of a task, in one sub-range, as a source of a merge: the pieces that the reader has read.
//!
//! The cursor of a linear run reads on until it meets a key behind the range. A lane ends where the index says. So the
//! source checks that the index is right: a block inside the lane that reaches over the range, or a table that begins
//! before the range, is corruption. Otherwise entries of a block that the index describes wrongly could be lost between
//! two sub-ranges.

use super::control::Control;
use super::read::{Part, ReadAhead};
use super::write::WriteQueue;
use crate::error::TaskError;
use crate::merge::Source;
use crate::span::KeyRange;
use crate::task::{Run, TableInput};
use situ_storage::{Error, Excerpt, Result};
use situ_table::{KeyRef, Piece, PieceCursor, Trailer, WarmBytes};

/// The pieces of all runs and sub-ranges.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'a> {
    pub(super) control: &'a Control,
    /// Merge threads that wait encode its chunks.
    pub(super) queue: &'a WriteQueue,
    pub(super) pieces: &'a ReadAhead,
    pub(super) inputs: &'a [Run],
    pub(super) sub_ranges: &'a [KeyRange],
}

/// See the module.
pub(super) struct LaneSource<'a> {
    lanes: Lanes<'a>,
    sub_range: usize,
    run: usize,
    cursor: Option<PieceCursor>,
    /// The cursor stands on an entry of the lane.
    is_valid: bool,
    /// The upper bound, if the current table reaches over it.
    upper: Option<&'a [u8]>,
    /// No other piece of the current table follows.
    is_last: bool,
}

impl<'a> LaneSource<'a> {
    /// Stands on the first entry of the lane, for which it waits.
    pub(super) fn new(lanes: Lanes<'a>, sub_range: usize, run: usize) -> Result<LaneSource<'a>> {
        let mut source =
            LaneSource { lanes, sub_range, run, cursor: None, is_valid: false, upper: None, is_last: true };
        source.next_piece()?;
        Ok(source)
    }

    fn range(&self) -> &'a KeyRange {
        &self.lanes.sub_ranges[self.sub_range]
    }

    /// To the first entry of the next piece that has one in range.
    fn next_piece(&mut self) -> Result<()> {
        self.is_valid = false;
        while let Some((piece, part)) = self.take()? {
            self.enter(piece, part)?;
            if self.stands_in_range() {
                self.is_valid = true;
                return Ok(());
            }
            self.check_end()?;
        }
        Ok(())
    }

    /// Behind the last entry of the current piece, or of the range, to the next one.
    #[cold]
    fn leave_piece(&mut self) -> Result<()> {
        self.check_end()?;
        self.next_piece()
    }

    fn take(&mut self) -> Result<Option<(Piece, Part)>> {
        self.count();
        let taken = self.lanes.pieces.take(self.lanes.control, self.lanes.queue, [self.sub_range, self.run]);
        taken.map_err(|error| match error {
            TaskError::Storage(error) => error,
            // The run has ended, and knows why.
            other => Error::Invalid(other.to_string()),
        })
    }

    fn count(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            self.lanes.control.meters.merge.add_bytes(cursor.take_plain_bytes());
        }
    }

    fn enter(&mut self, piece: Piece, part: Part) -> Result<()> {
        let input = &self.lanes.inputs[self.run][part.input];
        let range = self.range();
        let lower = range.lower.as_deref().filter(|lower| *lower > input.span.begin.as_slice());
        self.upper = range.upper.as_deref().filter(|upper| *upper < input.span.end.as_slice());
        assert_eq!(part.is_first, self.is_last, "a table's pieces follow each other: {part:?}");
        self.is_last = part.is_last;
        let cursor = match &mut self.cursor {
            Some(cursor) => {
                let memory = cursor.replace(piece);
                self.lanes.pieces.give_back(memory);
                cursor
            }
            none => none.insert(PieceCursor::new(piece)),
        };
        match lower.filter(|_| part.is_first) {
            Some(lower) => cursor.first_from(lower)?,
            None => cursor.first()?,
        }
        if part.is_first { check_first(cursor, input, lower) } else { Ok(()) }
    }

    #[inline]
    fn stands_in_range(&self) -> bool {
        let Some(cursor) = &self.cursor else { return false };
        cursor.valid() && self.upper.is_none_or(|upper| cursor.key().user < upper)
    }

    /// The cursor has left the piece, or the range. If it has left the range, the index must have known.
    fn check_end(&self) -> Result<()> {
        let Some(cursor) = self.cursor.as_ref().filter(|cursor| cursor.valid()) else { return Ok(()) };
        if self.is_last && cursor.is_in_last_block() {
            return Ok(());
        }
        let upper = self.upper.unwrap_or_default();
        let expected = format!("keys before {} up to the last block of the range", Excerpt(upper));
        Err(Error::corruption(cursor.table().path(), 0, "index", expected, format!("{:?}", cursor.key())))
    }
}

fn check_first(cursor: &PieceCursor, input: &TableInput, lower: Option<&[u8]>) -> Result<()> {
    let least = lower.unwrap_or(&input.span.begin);
    if !cursor.valid() || least <= cursor.key().user {
        return Ok(());
    }
    let expected = format!("keys in {:?}, from {} on", input.span, Excerpt(least));
    Err(Error::corruption(cursor.table().path(), 0, "first data block", expected, format!("{:?}", cursor.key())))
}

impl Source for LaneSource<'_> {
    #[inline]
    fn valid(&self) -> bool {
        self.is_valid
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        match &self.cursor {
            Some(cursor) => cursor.key(),
            None => KeyRef::new(&[], Trailer::OLDEST),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match &self.cursor {
            Some(cursor) => cursor.value(),
            None => &[],
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.advance()?;
        if self.stands_in_range() { Ok(()) } else { self.leave_piece() }
    }

    fn file(&self) -> String {
        self.cursor.as_ref().map_or(String::new(), |cursor| cursor.table().path().to_owned())
    }

    fn warm_read(&self) -> WarmBytes {
        self.cursor.as_ref().map(PieceCursor::warm_read).unwrap_or_default()
    }
}

impl Drop for LaneSource<'_> {
    fn drop(&mut self) {
        self.count();
        if let Some(cursor) = self.cursor.take() {
            self.lanes.pieces.give_back(cursor.into_bytes());
        }
    }
}
