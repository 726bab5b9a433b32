//! The interface of the server to a storage engine, and nothing more.
//!
//! Writes complete through a callback, so that any number can be outstanding without a thread each. An engine with
//! buffered durability mostly calls it before [`Engine::write`] returns; one that waits for the disk calls it later
//! from its own thread. Both are first-class: the server holds the connection's place in its output until the callback
//! comes.
//!
//! A read that needs the disk completes through a callback, too ([`Get::Later`]). One event loop serves thousands of
//! connections, so a read that waited on the loop's thread would stop all of them. A value that is available at once is
//! returned at once: a hit needs no callback.
//!
//! An engine that cannot keep up does not hold up its caller: it lets a batch wait ([`Admission::Waiting`]). The event
//! loop of the batch goes on reading for all clients, but gives no other batch before this one is taken.

pub(crate) mod batch;
pub(crate) mod cache;
pub mod compactions;
pub(crate) mod durable;
pub(crate) mod error;
pub(crate) mod item;
pub(crate) mod read;
pub mod slow;

pub use batch::{Change, ChangeInParts, WriteBatch};
pub use error::EngineError;
pub use read::{Get, OnRead, StoredValue};

use crate::engine::cache::CacheExtras;
use crate::engine::compactions::Compactions;
use crate::engine::item::Header;
use crate::engine::slow::SlowFigures;
use situ_base::StoreClock;
use std::sync::Arc;

/// The largest [`ServerOptions::max_value_bytes`](crate::ServerOptions::max_value_bytes): 1 GiB, less what an engine
/// needs around a value and what may share its batch.
pub const MAX_VALUE_BYTES_LIMIT: usize = (1 << 30) - (2 << 20);
const _: () = assert!(MAX_VALUE_BYTES_LIMIT + item::HEADER_BYTES_MAX <= situ::VALUE_BYTES_MAX);

/// Shorter values are copied on their way to the client.
pub(crate) const COPY_BYTES_MAX: usize = 16 << 10;

/// A callback, called exactly once with the fate of a write. A drop without a call counts as a failure.
pub type Done = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// The answer of an engine to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The batch is on its way, or done.
    Taken,
    /// The batch waits until the engine can take it; [`OnTaken`] is called then.
    Waiting,
}

/// A callback, called once for each batch that an engine made wait, when the engine takes the batch or gives up on it.
/// The callback waits for nothing. Its call may come from another thread than the batch's [`Done`] and so, now and
/// then, after it; then the call changes nothing.
pub type OnTaken = Arc<dyn Fn() + Send + Sync>;

/// The type of a metric, as Prometheus knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only goes up.
    Counter,
    /// A value that goes both ways.
    Gauge,
}

/// One sample that an engine reports.
#[derive(Debug, Clone, Copy)]
pub struct Metric<'a> {
    /// Full name with unit, for example `situ_memtable_bytes`. Samples of one name must be reported in a row.
    pub name: &'a str,
    /// The meaning of the metric, in one sentence.
    pub help: &'a str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Label names and values; values are escaped by the server.
    pub labels: &'a [(&'a str, &'a str)],
    /// The present value.
    pub value: f64,
}

/// The state of the engine, as `/healthz` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// Writes are refused, or the engine has failed; the reason in prose.
    Degraded(String),
}

/// A dependency of an engine, shown by the server with the engine: a node that has the store's files, for example.
pub trait Beside: Send + Sync {
    /// Returns the reason why the engine cannot do all that it should, if there is one; called by `/healthz`.
    fn trouble(&self) -> Option<String>;

    /// Reports metrics.
    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>));
}

/// An item that a survey shows.
#[derive(Debug, Clone, Copy)]
pub struct SurveyedItem<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) header: Header,
    pub(crate) value_bytes: usize,
}

impl<'a> SurveyedItem<'a> {
    /// Reads an item as an engine stores it: a header and the data. Returns `None` if the value is none of a server's.
    pub fn of(key: &'a [u8], value: &[u8]) -> Option<SurveyedItem<'a>> {
        let header = Header::decode(value)?;
        Some(SurveyedItem { key, header, value_bytes: value.len() - header.byte_len() })
    }
}

/// A walk over the items of an engine, on a thread that may wait.
pub trait Survey: Send {
    /// Shows some more items, dead ones included, to `each`, which is quick. `now_seconds` is Unix time. Returns false
    /// at the end.
    ///
    /// # Errors
    /// The engine cannot read on.
    fn next(&mut self, now_seconds: u64, each: &mut dyn FnMut(SurveyedItem<'_>)) -> Result<bool, EngineError>;
}

/// A [`Survey`] of keys and values.
pub(crate) struct Pairs<I>(pub(crate) I);

/// Pairs in a step of a survey.
const PAIRS: usize = 256;

impl<I, K, V> Survey for Pairs<I>
where
    I: Iterator<Item = Result<(K, V), EngineError>> + Send,
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fn next(&mut self, _: u64, each: &mut dyn FnMut(SurveyedItem<'_>)) -> Result<bool, EngineError> {
        for _ in 0..PAIRS {
            let Some(pair) = self.0.next() else { return Ok(false) };
            let (key, value) = pair?;
            SurveyedItem::of(key.as_ref(), value.as_ref()).into_iter().for_each(&mut *each);
        }
        Ok(true)
    }
}

/// A key-value engine that can serve memcached.
///
/// **Threads.** Every event loop calls the engine at the same time. `get`, `write` and `put_meta` must not wait,
/// neither for the disk nor for back-pressure: all connections of the loop would wait with them.
///
/// **Order.** Writes become visible, and durable after a crash, in the order they were given, metadata included:
/// a crash keeps a prefix. The flush barrier relies on it.
pub trait Engine: Send + Sync + 'static {
    /// A value that was read: pinned in the engine's cache, or owned. The server holds the value until it has sent it
    /// to the client.
    type Value: StoredValue + Send + 'static;

    /// The extras of a cache. [`NoCache`](crate::NoCache) for an engine that keeps items until they are deleted, expire
    /// or are flushed.
    type Cache: CacheExtras<Self::Value>;

    /// Returns the value of `key`, if it can be had without waiting for a disk.
    ///
    /// If not, the engine asks `later` for a callback, begins the read, and answers [`Get::Later`]. The read sees every
    /// write that was done before this call. The engine may call the callback before it returns. `later` returns `None`
    /// if too many reads are under way; then the engine begins none and answers [`Get::Later`], too. An engine that has
    /// called `later` gives no other answer.
    ///
    /// # Errors
    /// The engine cannot answer; its reason goes to the client.
    fn get(
        &self,
        key: &[u8],
        later: &mut dyn FnMut() -> Option<OnRead<Self::Value>>,
    ) -> Result<Get<Self::Value>, EngineError>;

    /// Applies `batch` atomically, then calls `done`: inline or later, from any thread, exactly once.
    ///
    /// Once `done(Ok)` is called, every `get` sees the batch. Batches that wait are taken in the order they were given.
    fn write(&self, batch: WriteBatch, on_taken: &OnTaken, done: Done) -> Admission;

    /// Returns a walk over all items, for `lru_crawler metadump`. `None` if the engine cannot list its items. Called on
    /// a thread that may wait.
    ///
    /// # Errors
    /// The engine cannot begin.
    fn survey(&self) -> Result<Option<Box<dyn Survey>>, EngineError> {
        Ok(None)
    }

    /// Returns the clock by which the engine's items expire. The engine takes and returns expiration times of this
    /// clock.
    fn clock(&self) -> &Arc<StoreClock>;

    /// Returns a server's own record, kept apart from the items. `None` if it was never put.
    ///
    /// # Errors
    /// The engine cannot answer.
    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Stores a server's own record durably (as the strongest durability the engine has), then calls `done`.
    fn put_meta(&self, key: &[u8], value: &[u8], done: Done);

    /// Returns the approximate number of stored items.
    fn approximate_items(&self) -> u64;

    /// Returns the bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// Returns true while the engine delays writes.
    fn write_stalled(&self) -> bool;

    /// Returns the state of the engine; called by `/healthz`.
    fn health(&self) -> Health;

    /// Reports the engine's own metrics.
    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>));

    /// Returns the extras of a cache, if the engine is one.
    fn cache(&self) -> Option<&Self::Cache> {
        None
    }

    /// Returns the running compactions and those that ended after the attempt `since`; `None` if the engine has none,
    /// or reports none.
    fn compactions(&self, since: u64) -> Option<Compactions> {
        let _ = since;
        None
    }

    /// Returns the last slow operations, oldest first; `None` if the engine does not look for them.
    fn slow_operations(&self) -> Option<Vec<SlowFigures>> {
        None
    }
}
