//! A store's blocking writes, measured.

use crate::Result;
use crate::base::batch::WriteBatch;
use crate::base::options::Durability;
use crate::base::stats::sampled;
use crate::pipeline::{Memory, Pipeline};
use situ_pipeline::Write;

/// Makes a blocking write of a batch.
pub(crate) fn write(pipeline: &Pipeline, batch: WriteBatch, durability: Durability) -> Result<()> {
    if batch.is_empty() {
        return pipeline.check_writable();
    }
    write_numbered(pipeline, Write::new(batch, None), durability).map(drop)
}

/// Makes a blocking write; returns its last sequence number.
pub(crate) fn write_numbered(pipeline: &Pipeline, write: Write<Memory>, durability: Durability) -> Result<u64> {
    let Memory { env, health, .. } = &**pipeline.environment();
    let started = sampled().then(|| env.clock.now());
    let written = pipeline.write(write, durability.into());
    if let Some(started) = started {
        health.stats.write.record(env.clock.now().saturating_sub(started));
    }
    written
}
