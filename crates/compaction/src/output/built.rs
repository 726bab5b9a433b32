//! Blocks that were built elsewhere, on their way into tables.
//!
//! A block goes into the open table as it is, if no table can end within it. Its report bounds the estimate that cuts
//! look at. Where the bound reaches the target, or a grandparent's border lies among its keys, its entries are given
//! one by one, and are encoded again. So cuts are exactly those of the reference merge.

use super::{GrandparentWalk, OnThisThread, Outputs};
use crate::error::{Result, TaskError};
use crate::merge::WarmReader;
use situ_table::{BuiltBlock, LoneBlock, WarmBytes};

/// The inputs of a unit that does not say what it has read of warm blocks.
pub(crate) struct NeverWarm;

impl WarmReader for NeverWarm {
    fn warm_read(&self) -> WarmBytes {
        WarmBytes::default()
    }
}

/// The end of a walk over the entries of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walked {
    /// All entries were taken; the number.
    All(u64),
    /// A table has ended before the entry of this number, which was not taken.
    EndedBefore(u64),
}

impl Outputs<'_, OnThisThread<'_>> {
    /// Takes a block, if no table ends within it. Otherwise the caller gives its entries to
    /// [`walk`](Outputs::walk). A table may have ended before the block in either case.
    pub(crate) fn block(&mut self, block: &BuiltBlock<'_>) -> Result<bool> {
        let first = block.first;
        let begins_user_key = match &self.open {
            Some(open) => open.builder.begins_user_key(first)?,
            None if first.user >= self.cut.as_slice() => true,
            None => return Err(TaskError::Wrong(format!("{first:?} lies before the table that it would begin"))),
        };
        if begins_user_key {
            self.before_user_key(first.user, &NeverWarm)?;
        }
        if let Some(before) = self.open()?.builder.end_block(first)? {
            self.give_out(before, &NeverWarm)?;
        }
        let (blocks_bytes, target) = (self.size.blocks_bytes(), self.rules.output.target_file_bytes);
        let has_border = self.grandparents.has_border_up_to(block.last.user);
        let builder = &mut self.open()?.builder;
        if has_border || builder.most_bytes_with(block, blocks_bytes) >= target {
            return Ok(false);
        }
        builder.add_built(block)?;
        self.blocks.built(block)?;
        Ok(true)
    }

    /// Takes the entries of a block that [`block`](Outputs::block) has not taken, up to one before which a table ends.
    pub(crate) fn walk(&mut self, entries: &mut LoneBlock) -> Result<Walked> {
        let mut taken = 0;
        while entries.valid() {
            let key = entries.key();
            // `block` has asked for the first key already.
            if taken > 0 && self.open()?.builder.begins_user_key(key)? {
                self.before_user_key(key.user, &NeverWarm)?;
                if self.open.is_none() {
                    return Ok(Walked::EndedBefore(taken));
                }
            }
            if let Some(block) = self.add(key, entries.value())? {
                self.give_out(block, &NeverWarm)?;
            }
            taken += 1;
            entries.advance()?;
        }
        Ok(Walked::All(taken))
    }
}

impl GrandparentWalk<'_> {
    /// Returns true if a border lies between the key moved to last and `key`, which is not before it.
    fn has_border_up_to(&self, key: &[u8]) -> bool {
        let border = self.files.get(self.at).map(|file| if self.inside { &file.span.end } else { &file.span.begin });
        border.is_some_and(|border| border.as_slice() <= key)
    }
}
