//! Walking over the entries of one block.

use super::{Block, Malformed};
use crate::key::{KeyRef, Trailer};
use std::sync::Arc;

/// Long keys that share most of their bytes take little room in a block and much in a trail: it keeps the last ones.
const TRAIL_KEYS_BYTES_MAX: usize = 64 << 10;

/// A position in a block. Movements say whether they ended on an entry.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Arc<Block>,
    /// The entry's first byte; `entries_end` or beyond when it stands nowhere.
    at: usize,
    next: usize,
    value_start: usize,
    key: Vec<u8>,
    trailer: Trailer,
    /// Entries that the last walk from a restart to a predecessor passed, so that going on backward need not walk
    /// again.
    trail: Vec<Step>,
    /// Their keys, one behind the other.
    trail_keys: Vec<u8>,
}

/// An entry that a walk passed.
#[derive(Debug)]
struct Step {
    at: usize,
    next: usize,
    value_start: usize,
    /// The start of its key in `trail_keys`; the key ends where the following one starts.
    key_start: usize,
    trailer: Trailer,
}

impl BlockCursor {
    /// Creates a cursor that stands nowhere.
    pub(crate) fn new(block: Arc<Block>) -> BlockCursor {
        BlockCursor {
            block,
            at: usize::MAX,
            next: 0,
            value_start: 0,
            key: Vec::new(),
            trailer: Trailer::OLDEST,
            trail: Vec::new(),
            trail_keys: Vec::new(),
        }
    }

    /// Stands nowhere from now on.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.at = usize::MAX;
    }

    /// Puts another block in place, keeping the key's memory; stands nowhere.
    #[inline]
    pub(crate) fn set_block(&mut self, block: Arc<Block>) {
        self.block = block;
        self.trail.clear();
        self.leave();
    }

    /// Returns the block, to be refilled if it has no other holder. The cursor then stands nowhere.
    #[inline]
    pub(crate) fn block_mut(&mut self) -> &mut Arc<Block> {
        self.trail.clear();
        self.leave();
        &mut self.block
    }

    #[inline]
    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.at != usize::MAX
    }

    #[inline]
    pub(crate) fn key(&self) -> KeyRef<'_> {
        KeyRef::new(&self.key, self.trailer)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.block.slice(self.value_start, self.next)
    }

    /// Returns the value's place in the block.
    pub(crate) fn value_range(&self) -> (usize, usize) {
        (self.value_start, self.next)
    }

    /// Returns the entry's first byte in the block.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to the entry at byte `at`, whose predecessor's key is in `self.key`.
    #[inline]
    fn load(&mut self, at: usize) -> Result<bool, Malformed> {
        if at >= self.block.entries_end() {
            self.leave();
            return Ok(false);
        }
        let found = self.block.entry(at).and_then(|entry| {
            // Sharing more than the predecessor has: not a block that a writer made.
            if entry.shared > self.key.len() {
                return Err(Malformed(at));
            }
            self.key.truncate(entry.shared);
            self.key.extend_from_slice(entry.suffix);
            self.trailer = entry.trailer;
            self.value_start = entry.value_start;
            Ok(entry.next)
        });
        match found {
            Ok(next) => {
                (self.at, self.next) = (at, next);
                Ok(true)
            }
            Err(malformed) => {
                self.leave();
                Err(malformed)
            }
        }
    }

    pub(crate) fn first(&mut self) -> Result<bool, Malformed> {
        self.key.clear();
        self.load(0)
    }

    /// Moves to the restart `i`, one of them.
    fn enter_restart(&mut self, i: usize) -> Result<bool, Malformed> {
        self.key.clear();
        self.load(self.block.restart(i))
    }

    pub(crate) fn last(&mut self) -> Result<bool, Malformed> {
        let Some(restart) = self.block.restart_count().checked_sub(1) else {
            self.leave();
            return Ok(false);
        };
        self.enter_restart(restart)?;
        while self.valid() && self.next < self.block.entries_end() {
            self.load(self.next)?;
        }
        Ok(self.valid())
    }

    /// Moves one entry forward from an entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, Malformed> {
        self.load(self.next)
    }

    /// Moves one entry backward from an entry: along the trail of the last walk if it ends here, else by another walk.
    #[inline]
    pub(crate) fn prev(&mut self) -> Result<bool, Malformed> {
        match self.trail.pop() {
            Some(step) if step.next == self.at => {
                self.key.clear();
                self.key.extend_from_slice(self.trail_keys.get(step.key_start..).unwrap_or_default());
                self.trail_keys.truncate(step.key_start);
                (self.at, self.next, self.value_start) = (step.at, step.next, step.value_start);
                self.trailer = step.trailer;
                Ok(true)
            }
            _ => self.walk_to_prev(),
        }
    }

    /// Walks from the restart before the current entry forward to its predecessor, leaving a trail.
    fn walk_to_prev(&mut self) -> Result<bool, Malformed> {
        self.trail.clear();
        self.trail_keys.clear();
        let here = self.at;
        if here == 0 {
            self.leave();
            return Ok(false);
        }
        let (mut low, mut high) = (0, self.block.restart_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.restart(middle) < here { low = middle + 1 } else { high = middle }
        }
        let Some(restart) = low.checked_sub(1) else {
            self.leave();
            return Err(Malformed(here));
        };
        self.enter_restart(restart)?;
        while self.valid() && self.next < here {
            if self.trail_keys.len() > TRAIL_KEYS_BYTES_MAX {
                self.trail.clear();
                self.trail_keys.clear();
            }
            self.trail.push(Step {
                at: self.at,
                next: self.next,
                value_start: self.value_start,
                key_start: self.trail_keys.len(),
                trailer: self.trailer,
            });
            self.trail_keys.extend_from_slice(&self.key);
            self.load(self.next)?;
        }
        // A restart that points into the middle of an entry, or behind all of them.
        if !self.valid() || self.next != here {
            self.leave();
            return Err(Malformed(here));
        }
        Ok(true)
    }

    /// Moves to the first entry at or behind `target`.
    pub(crate) fn seek(&mut self, target: KeyRef<'_>) -> Result<bool, Malformed> {
        self.leave();
        let BlockCursor { block, key, .. } = self;
        let Some((at, entry)) = block.seek(target)? else { return Ok(false) };
        // Where the walk stops, the bytes shared with the predecessor are the target's own.
        let prefix = target.user.get(..entry.shared).ok_or(Malformed(at))?;
        key.clear();
        key.extend_from_slice(prefix);
        key.extend_from_slice(entry.suffix);
        (self.trailer, self.value_start, self.next) = (entry.trailer, entry.value_start, entry.next);
        self.at = at;
        Ok(true)
    }
}
