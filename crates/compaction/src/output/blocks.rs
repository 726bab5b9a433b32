//! The way of blocks from the merge into files.
//!
//! The merge fills blocks and decides where files end. What then happens to the blocks is a [`BlockOutput`]'s business:
//! [`OnThisThread`] encodes and appends each block at once. Another one may hand blocks to other threads.
//!
//! **Invariants**: blocks and ends come in the order of the files' bytes; so do stored lengths and summaries. A stored length
//! is asked for once for each block, as late as [`LaggedSize`](super::size::LaggedSize) allows.

use crate::error::Result;
use situ_table::{RawBlock, TableAppender, TableEnd, TableSummary};
use std::collections::VecDeque;

/// Takes the blocks of tables, one table after the other.
pub(crate) trait BlockOutput {
    /// A table begins.
    fn begin(&mut self, table: TableAppender) -> Result<()>;

    /// The next block of the table. The result is memory for a block to come, if there is any at hand.
    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>>;

    /// How long the next block is in the file, of those that this was not yet asked for. May wait for it.
    fn stored_bytes(&mut self) -> Result<u64>;

    /// The table has no more blocks.
    fn end(&mut self, end: TableEnd) -> Result<()>;

    /// What the tables say of themselves, in their order, once all are durable and closed.
    fn finish(self) -> Result<Vec<TableSummary>>;
}

/// Does everything where it stands.
#[derive(Default)]
pub(crate) struct OnThisThread {
    table: Option<TableAppender>,
    stored_bytes: VecDeque<u64>,
    summaries: Vec<TableSummary>,
}

impl BlockOutput for OnThisThread {
    fn begin(&mut self, table: TableAppender) -> Result<()> {
        self.table = Some(table);
        Ok(())
    }

    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>> {
        let table = self.table.as_mut().expect("a block belongs to a table that has begun");
        let before = table.data_bytes();
        let memory = table.encode_and_append(block)?;
        self.stored_bytes.push_back(table.data_bytes() - before);
        Ok(Some(memory))
    }

    fn stored_bytes(&mut self) -> Result<u64> {
        Ok(self.stored_bytes.pop_front().expect("each block is asked for once"))
    }

    fn end(&mut self, end: TableEnd) -> Result<()> {
        let table = self.table.take().expect("only a table that has begun ends");
        self.summaries.push(table.finish(end)?);
        Ok(())
    }

    fn finish(self) -> Result<Vec<TableSummary>> {
        Ok(self.summaries)
    }
}
