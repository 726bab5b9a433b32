//! Walking over the entries of one block.

use super::{Block, Malformed};
use crate::key::{KeyRef, Trailer};
use std::sync::Arc;

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
}

impl BlockCursor {
    /// Standing nowhere.
    pub(crate) fn new(block: Arc<Block>) -> BlockCursor {
        BlockCursor { block, at: usize::MAX, next: 0, value_start: 0, key: Vec::new(), trailer: Trailer::OLDEST }
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
        self.leave();
    }

    /// The block, to be refilled if nobody else holds it; stands nowhere.
    #[inline]
    pub(crate) fn block_mut(&mut self) -> &mut Arc<Block> {
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

    /// The value's place in the block.
    pub(crate) fn value_range(&self) -> (usize, usize) {
        (self.value_start, self.next)
    }

    /// The entry's first byte in the block.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// To the entry at byte `at`, whose predecessor's key is in `self.key`.
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

    /// To the restart `i`, one of them.
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

    /// One entry forward from an entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<bool, Malformed> {
        self.load(self.next)
    }

    /// One entry backward from an entry: from the restart before it, forward again.
    pub(crate) fn prev(&mut self) -> Result<bool, Malformed> {
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
            self.load(self.next)?;
        }
        // A restart that points into the middle of an entry, or behind all of them.
        if !self.valid() || self.next != here {
            self.leave();
            return Err(Malformed(here));
        }
        Ok(true)
    }

    /// To the first entry at or behind `target`.
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
