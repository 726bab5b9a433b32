//! A store's blocking writes, measured; and the writes that are slow, blocking or not.

use crate::Result;
use crate::base::batch::WriteBatch;
use crate::base::options::Durability;
use crate::base::slow::{CutKey, Operation, SlowKind};
use crate::base::stats::sampled;
use crate::pipeline::{Memory, Pipeline};
use situ_base::spent::{self, Part, Spent};
use situ_pipeline::Write;
use std::sync::Arc;
use std::time::Duration;

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
    let (written, ended) = if health.slow.is_on() {
        let described = Described::of(&write);
        let describe = |_: &_| described.operation(pipeline.environment());
        health.watch(started, || pipeline.write(write, durability.into()), describe)
    } else {
        let written = pipeline.write(write, durability.into());
        (written, started.map(|_| env.clock.now()))
    };
    if let (Some(started), Some(ended)) = (started, ended) {
        health.stats.write.record(ended.saturating_sub(started));
    }
    written
}

/// A write as the list of slow operations shows it.
struct Described {
    kind: SlowKind,
    keyspace: u32,
    first_key: CutKey,
    bytes: usize,
}

impl Described {
    fn of(write: &Write<Memory>) -> Described {
        let kind = if write.has_condition() { SlowKind::Commit } else { SlowKind::Write };
        let (keyspace, first_key) = match write.batch().iter().next() {
            Some(change) => (change.keyspace, change.key.into()),
            None => (0, CutKey::from(&[][..])),
        };
        Described { kind, keyspace, first_key, bytes: write.batch().bytes() }
    }

    fn operation(&self, memory: &Memory) -> Operation {
        Operation::new(self.kind, memory.versions.keyspace_name(self.keyspace), self.first_key, self.bytes)
    }
}

/// An asynchronous write that was not done when its call returned, in a store that watches operations.
pub(crate) struct WatchedWrite {
    memory: Arc<Memory>,
    described: Described,
    began: Duration,
    spent: Option<Spent>,
    waits_since: Duration,
    waits_for: Part,
}

/// Begins an asynchronous write. Returns a watched write as well if the write is to be watched further.
pub(crate) fn begin(
    pipeline: &Pipeline,
    write: Write<Memory>,
    durability: Durability,
) -> Result<(situ_pipeline::WriteFuture<Memory>, Option<Box<WatchedWrite>>)> {
    let memory = pipeline.environment();
    let begin = |write| situ_pipeline::WriteFuture::begin(pipeline, write, durability.into());
    if !memory.health.slow.is_on() {
        return Ok((begin(write)?, None));
    }
    let described = Described::of(&write);
    let watched = spent::begin();
    let begun = begin(write);
    let spent = if watched { spent::end() } else { None };
    let begun = begun?;
    if begun.is_done() {
        if spent.is_some() {
            memory.health.note_if_slow(spent, None, || described.operation(memory));
        }
        return Ok((begun, None));
    }
    let now = memory.env.clock.now();
    let watched = WatchedWrite {
        memory: Arc::clone(memory),
        described,
        began: now.saturating_sub(spent.as_ref().map_or(Duration::ZERO, Spent::span_until_now)),
        spent,
        waits_since: now,
        waits_for: if begun.has_begun() { Part::Log } else { Part::Room },
    };
    Ok((begun, Some(Box::new(watched))))
}

impl WatchedWrite {
    /// Notes the end of the write.
    pub(crate) fn end(&self) {
        let WatchedWrite { memory, described, began, spent, waits_since, waits_for } = self;
        let now = memory.env.clock.now();
        let spent = Spent::and_then(*spent, *waits_for, now.saturating_sub(*waits_since));
        let took = now.saturating_sub(*began);
        memory.health.note_if_slow(Some(spent), Some(took), || described.operation(memory));
    }
}
