//! The way of blocks from the merge into files.
//!
//! The merge fills blocks and decides where files end. What then happens to the blocks is a [`BlockOutput`]'s business:
//! [`OnThisThread`] encodes and appends each block at once. Another one may hand blocks to other threads.
//!
//! **Invariants**: blocks and ends come in the order of the files' bytes; so do stored lengths and summaries. A stored
//! length is asked for once for each block, as late as [`LaggedSize`](super::size::LaggedSize) allows.

use crate::error::Result;
use crate::meters::Meters;
use crate::task::{MergeRules, TablePlace, TaskHost};
use situ_table::{BlockEncoder, BuiltBlock, RawBlock, TableAppender, TableEnd, TableSummary};
use std::collections::VecDeque;

/// Takes the blocks of tables, one table after the other.
pub(crate) trait BlockOutput {
    /// A table begins.
    fn begin(&mut self) -> Result<()>;

    /// The next block of the table. The result is memory for a block to come, if there is any at hand.
    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>>;

    /// Returns the length, in the file, of the next block that this was not yet asked for. May wait for it.
    fn stored_bytes(&mut self) -> Result<u64>;

    /// The table has no more blocks.
    fn end(&mut self, end: TableEnd) -> Result<()>;

    /// Returns the places and the summaries of the tables, in their order, once all are durable and closed.
    fn finish(self) -> Result<Vec<(TablePlace, TableSummary)>>;
}

/// Begins the file of the next table.
pub(crate) fn begin_table(host: &dyn TaskHost, rules: &MergeRules) -> Result<(TablePlace, TableAppender)> {
    let (place, file) = host.new_table(rules.output_level)?;
    let mut appender = TableAppender::new(file, &rules.output.table)?;
    if let Some(warming) = host.warming() {
        appender.set_warming(warming, place.number);
    }
    Ok((place, appender))
}

/// Does everything where it stands.
pub(crate) struct OnThisThread<'a> {
    host: &'a dyn TaskHost,
    rules: &'a MergeRules,
    /// Counts the time that files take; `None` if the run is not measured.
    meters: Option<&'a Meters>,
    encoder: Option<BlockEncoder>,
    table: Option<(TablePlace, TableAppender)>,
    stored_bytes: VecDeque<u64>,
    written: Vec<(TablePlace, TableSummary)>,
}

impl<'a> OnThisThread<'a> {
    pub(crate) fn new(host: &'a dyn TaskHost, rules: &'a MergeRules, meters: Option<&'a Meters>) -> OnThisThread<'a> {
        let (stored_bytes, written) = (VecDeque::new(), Vec::new());
        OnThisThread { host, rules, meters, encoder: None, table: None, stored_bytes, written }
    }

    /// Does something with a file, and counts the time.
    fn write<T>(meters: Option<&Meters>, write: impl FnOnce() -> T) -> T {
        match meters {
            Some(meters) => meters.time(&meters.write.busy, write),
            None => write(),
        }
    }

    /// Appends the bytes of a block that was built elsewhere. [`block`](BlockOutput::block) gets the block later.
    pub(crate) fn built(&mut self, block: &BuiltBlock<'_>) -> Result<()> {
        let (_, table) = self.table.as_mut().expect("a block belongs to a table that has begun");
        Ok(OnThisThread::write(self.meters, || table.append_built(block))?)
    }
}

impl BlockOutput for OnThisThread<'_> {
    fn begin(&mut self) -> Result<()> {
        assert!(self.table.is_none(), "a table begins before the one before it has ended");
        let OnThisThread { host, rules, meters, .. } = *self;
        self.table = Some(OnThisThread::write(meters, || begin_table(host, rules))?);
        if self.encoder.is_none() {
            self.encoder = Some(BlockEncoder::new(rules.output.table.compression)?);
        }
        Ok(())
    }

    fn block(&mut self, block: RawBlock) -> Result<Option<RawBlock>> {
        let (_, table) = self.table.as_mut().expect("a block belongs to a table that has begun");
        let encoder = self.encoder.as_mut().expect("a table that has begun has an encoder");
        let encoded = encoder.encode(block)?;
        self.stored_bytes.push_back(encoded.stored_bytes());
        let memory = OnThisThread::write(self.meters, || table.append(encoded))?;
        Ok(Some(memory))
    }

    fn stored_bytes(&mut self) -> Result<u64> {
        Ok(self.stored_bytes.pop_front().expect("each block is asked for once"))
    }

    fn end(&mut self, end: TableEnd) -> Result<()> {
        let (place, table) = self.table.take().expect("only a table that has begun ends");
        let summary = OnThisThread::write(self.meters, || table.finish(end))?;
        self.written.push((place, summary));
        Ok(())
    }

    fn finish(self) -> Result<Vec<(TablePlace, TableSummary)>> {
        assert!(self.table.is_none(), "the last table has not ended");
        Ok(self.written)
    }
}
