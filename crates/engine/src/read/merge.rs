//! Many sorted sources as one: the cursor under every iterator.
//!
//! [`LevelCursor`] walks over the disjoint tables of a level as if they were one. [`MergeCursor`] keeps a binary heap
//! of its sources, ordered by their present keys, and can turn around. On a change of direction every source but the
//! present one is moved to the other side of the present key.
//!
//! **Invariants.** Sources are ranked newest first. While moving forward every valid source stands behind the last
//! returned key (backward: before it); the heap's root is the one to return next.
//!
//! **Failure.** An error of one source makes the whole cursor stand nowhere; it can be positioned again.

use crate::memtable::MemtableCursor;
use crate::versions::version::TableFile;
use situ_storage::Result;
use situ_table::{Cursor, KeyRef, ReadOptions as TableReadOptions, TableCursor, Trailer};
use std::cmp::Ordering;
use std::sync::Arc;

/// The kinds of sources, without a virtual call for each step.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Table(Box<TableCursor>),
    Level(Box<LevelCursor>),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $body:expr) => {
        match $self {
            Source::Memtable($cursor) => $body,
            Source::Table($cursor) => $body,
            Source::Level($cursor) => $body,
        }
    };
}

impl Cursor for Source {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> KeyRef<'_> {
        each!(self, c => c.key())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, c => c.value())
    }
    fn first(&mut self) -> Result<()> {
        each!(self, c => c.first())
    }
    fn last(&mut self) -> Result<()> {
        each!(self, c => c.last())
    }
    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        each!(self, c => c.seek(target))
    }
    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        each!(self, c => c.seek_before(target))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, c => c.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, c => c.prev())
    }
}

/// The tables of one sorted level in a row. Opens a table when it gets there.
pub(crate) struct LevelCursor {
    files: Vec<Arc<TableFile>>,
    options: TableReadOptions,
    /// The index of the file that `cursor` is in.
    at: usize,
    cursor: Option<TableCursor>,
}

impl LevelCursor {
    pub(crate) fn new(files: Vec<Arc<TableFile>>, options: TableReadOptions) -> LevelCursor {
        LevelCursor { files, options, at: usize::MAX, cursor: None }
    }

    /// Returns the cursor of file `at`, opened if it is not the present one.
    fn enter(&mut self, at: usize) -> Result<Option<&mut TableCursor>> {
        if self.at != at || self.cursor.is_none() {
            self.cursor = None;
            let Some(file) = self.files.get(at) else { return Ok(None) };
            self.cursor = Some(file.table_for(&self.options)?.cursor(self.options));
            self.at = at;
        }
        Ok(self.cursor.as_mut())
    }

    /// Goes on to the next file while the present one has nothing more (tables of range tombstones only are empty).
    fn settle_forward(&mut self) -> Result<()> {
        while !self.valid() {
            let next = self.at.wrapping_add(1);
            match self.enter(next)? {
                Some(cursor) => cursor.first()?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn settle_backward(&mut self) -> Result<()> {
        while !self.valid() {
            let Some(previous) = self.at.checked_sub(1) else {
                self.cursor = None;
                return Ok(());
            };
            match self.enter(previous)? {
                Some(cursor) => cursor.last()?,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(|c| c.valid())
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        self.cursor.as_ref().expect("stands on an entry").key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.as_ref().expect("stands on an entry").value()
    }

    fn first(&mut self) -> Result<()> {
        if let Some(cursor) = self.enter(0)? {
            cursor.first()?;
            self.settle_forward()?;
        }
        Ok(())
    }

    fn last(&mut self) -> Result<()> {
        let Some(last) = self.files.len().checked_sub(1) else { return Ok(()) };
        if let Some(cursor) = self.enter(last)? {
            cursor.last()?;
            self.settle_backward()?;
        }
        Ok(())
    }

    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        let at = self.files.partition_point(|f| f.meta.ends_before(target.user));
        if let Some(cursor) = self.enter(at)? {
            cursor.seek(target)?;
            self.settle_forward()?;
        }
        Ok(())
    }

    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        let behind = self.files.partition_point(|f| &f.meta.span.begin[..] <= target.user);
        let Some(at) = behind.checked_sub(1) else {
            self.cursor = None;
            return Ok(());
        };
        if let Some(cursor) = self.enter(at)? {
            cursor.seek_before(target)?;
            self.settle_backward()?;
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.as_mut().expect("stands on an entry").next()?;
        if self.valid() { Ok(()) } else { self.settle_forward() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.as_mut().expect("stands on an entry").prev()?;
        if self.valid() { Ok(()) } else { self.settle_backward() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Sources in one order. A source's rank is its place in the list given to [`MergeCursor::new`].
pub(crate) struct MergeCursor<C> {
    sources: Vec<C>,
    /// Ranks of valid sources; the root is the present entry's.
    heap: Vec<u32>,
    direction: Direction,
}

impl<C: Cursor> MergeCursor<C> {
    pub(crate) fn new(sources: Vec<C>) -> MergeCursor<C> {
        MergeCursor { sources, heap: Vec::new(), direction: Direction::Forward }
    }

    /// Returns the rank of the source that the present entry comes from.
    pub(crate) fn rank(&self) -> usize {
        self.heap[0] as usize
    }

    fn before(&self, a: u32, b: u32) -> bool {
        let (x, y) = (&self.sources[a as usize], &self.sources[b as usize]);
        let order = match self.direction {
            Direction::Forward => x.key().cmp(&y.key()),
            Direction::Backward => y.key().cmp(&x.key()),
        };
        // Equal internal keys exist only if a crash left a flushed memtable's log behind; the newer source decides.
        order == Ordering::Less || order == Ordering::Equal && a < b
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        let valid = (0..self.sources.len()).filter(|i| self.sources[*i].valid());
        self.heap.extend(valid.map(|i| i as u32));
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at);
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let mut child = left;
            if right < self.heap.len() && self.before(self.heap[right], self.heap[left]) {
                child = right;
            }
            if !self.before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Restores the heap after the root has moved or ended.
    fn settle_root(&mut self) {
        let root = self.heap[0] as usize;
        if !self.sources[root].valid() {
            self.heap.swap_remove(0);
        }
        if self.heap.len() > 1 {
            self.sink(0);
        }
    }

    fn position(&mut self, direction: Direction, mut each: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.direction = direction;
        self.heap.clear();
        for source in &mut self.sources {
            each(source)?;
        }
        self.rebuild();
        Ok(())
    }

    /// Moves each source of a rank behind `rank` to `key`, if it stands before `key`. Only while moving forward.
    pub(crate) fn skip_to(&mut self, rank: usize, key: &[u8]) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward);
        self.heap.clear();
        for source in self.sources.iter_mut().skip(rank + 1) {
            if source.valid() && source.key().user < key {
                source.seek(KeyRef::new(key, Trailer::NEWEST))?;
            }
        }
        self.rebuild();
        Ok(())
    }

    /// Moves each source of a rank above `rank` before `key`, if it stands at or behind `key`. Only while moving
    /// backward.
    pub(crate) fn skip_back_to(&mut self, rank: usize, key: &[u8]) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Backward);
        self.heap.clear();
        for source in self.sources.iter_mut().skip(rank + 1) {
            if source.valid() && source.key().user >= key {
                source.seek_before(KeyRef::new(key, Trailer::NEWEST))?;
            }
        }
        self.rebuild();
        Ok(())
    }

    /// Clears the position.
    pub(crate) fn leave(&mut self) {
        self.heap.clear();
    }

    fn turn(&mut self, direction: Direction) -> Result<()> {
        let present = self.heap[0] as usize;
        let key = self.sources[present].key().to_vec();
        let key = KeyRef::decode(&key).expect("just encoded");
        self.direction = direction;
        self.heap.clear();
        for (rank, source) in self.sources.iter_mut().enumerate() {
            if rank == present {
                continue;
            }
            // Behind the key going forward, before it going backward; a source that stands on the very key (see
            // `before`) is moved past it.
            match direction {
                Direction::Forward => {
                    source.seek(key)?;
                    if source.valid() && source.key() == key {
                        source.next()?;
                    }
                }
                Direction::Backward => {
                    source.seek_before(key)?;
                    if source.valid() && source.key() == key {
                        source.prev()?;
                    }
                }
            }
        }
        self.rebuild();
        // The present source is put at the root by hand: its entry is the one to step from.
        let at = self.heap.iter().position(|r| *r as usize == present).unwrap_or(0);
        self.heap.swap(0, at);
        Ok(())
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        self.sources[self.heap[0] as usize].key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.heap[0] as usize].value()
    }

    fn first(&mut self) -> Result<()> {
        self.position(Direction::Forward, Cursor::first)
    }

    fn last(&mut self) -> Result<()> {
        self.position(Direction::Backward, Cursor::last)
    }

    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.position(Direction::Forward, |source| source.seek(target))
    }

    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        self.position(Direction::Backward, |source| source.seek_before(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.direction != Direction::Forward {
            self.turn(Direction::Forward)?;
            let root = self.heap[0] as usize;
            let moved = self.sources[root].next();
            return self.after_turn(moved);
        }
        let root = self.heap[0] as usize;
        if let Err(error) = self.sources[root].next() {
            self.heap.clear();
            return Err(error);
        }
        self.settle_root();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.direction != Direction::Backward {
            self.turn(Direction::Backward)?;
            let root = self.heap[0] as usize;
            let moved = self.sources[root].prev();
            return self.after_turn(moved);
        }
        let root = self.heap[0] as usize;
        if let Err(error) = self.sources[root].prev() {
            self.heap.clear();
            return Err(error);
        }
        self.settle_root();
        Ok(())
    }
}

impl<C: Cursor> MergeCursor<C> {
    /// Rebuilds the heap: after a turn it is not in order around the root.
    fn after_turn(&mut self, moved: Result<()>) -> Result<()> {
        self.heap.clear();
        moved?;
        self.rebuild();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
