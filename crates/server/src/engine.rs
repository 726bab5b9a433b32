//! What the server needs from a storage engine, and nothing more.
//!
//! Writes complete through a callback, so that any number can be outstanding without a thread each. An engine with
//! buffered durability mostly calls it before [`Engine::write`] returns; one that waits for the disk calls it later from its
//! own thread. Both are first-class: the server holds the connection's place in its output until the callback comes.
//!
//! A read that needs the disk completes through a callback, too ([`Get::Later`]). One event loop serves thousands of
//! connections, so a read that waited on the loop's thread would stop all of them. What can be had at once is returned
//! at once: a hit needs no callback.
//!
//! An engine that cannot keep up does not hold up its caller: it lets a batch wait ([`Admission::Waiting`]), and the
//! event loop that gave it goes on reading for everybody, but gives no other batch before this one is taken.

pub mod compactions;
pub(crate) mod durable;
pub(crate) mod item;

use crate::engine::compactions::Compactions;
use crate::engine::item::Header;
use situ::base::StoreClock;
use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest [`ServerOptions::max_value_bytes`](crate::ServerOptions::max_value_bytes): 1 GiB, less what an engine needs around a value and what may share its batch.
pub const MAX_VALUE_BYTES_LIMIT: usize = (1 << 30) - (2 << 20);
const _: () = assert!(MAX_VALUE_BYTES_LIMIT + item::HEADER_BYTES_MAX <= situ::VALUE_BYTES_MAX);

/// Shorter values are copied on their way to the client.
pub(crate) const COPY_BYTES_MAX: usize = 16 << 10;

/// Why the engine could not do what it was asked. The message is sent to clients after `SERVER_ERROR `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError {
    message: String,
}

impl EngineError {
    /// An error with a reason in prose; control characters become spaces, as it travels in a line of text.
    pub fn new(message: impl fmt::Display) -> EngineError {
        let mut message = message.to_string().replace(|c: char| c.is_control(), " ");
        // A reply line must stay a line that clients accept.
        if let Some((end, _)) = message.char_indices().nth(400) {
            message.truncate(end);
        }
        EngineError { message }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EngineError {}

/// Called exactly once with the fate of a write. Dropping it uncalled counts as a failure.
pub type Done = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// What an engine knows of a key at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Get<V> {
    /// The value.
    Hit(V),
    /// The key does not exist.
    Miss,
    /// The answer needs the disk; an [`OnRead`] is told later.
    Later,
}

/// Called exactly once with the value of a key, or `None`, from any thread. Dropping it uncalled counts as a failure. It
/// does not wait for anything.
pub type OnRead<V> = Box<dyn FnOnce(Result<Option<V>, EngineError>) + Send>;

/// What an engine did with a batch that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The batch is on its way, or done.
    Taken,
    /// The batch waits until the engine can take it; [`OnTaken`] is called then.
    Waiting,
}

/// Called when an engine takes a batch that it made wait, or gives up on it: once for each. It does not wait for anything.
/// It may come from another thread than the batch's [`Done`] and so, now and then, after it; then it changes nothing.
pub type OnTaken = Arc<dyn Fn() + Send + Sync>;

/// One change in a [`WriteBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Store `value` under `key`.
    Put {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// At most the server's `max_value_bytes` and a header.
        value: &'a [u8],
    },
    /// Remove `key`.
    Delete {
        /// 1 to 250 bytes.
        key: &'a [u8],
    },
}

/// One change, whose value is not in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeInParts<'a> {
    /// Store the concatenation of `parts` under `key`.
    Put {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// A header, and the data in two parts.
        parts: [&'a [u8]; 3],
    },
    /// Remove `key`.
    Delete {
        /// 1 to 250 bytes.
        key: &'a [u8],
    },
}

/// Changes to apply together, in order. One buffer holds all keys and values, so a batch costs two allocations.
#[derive(Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    changes: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    key: Range<usize>,
    /// `None` deletes.
    value: Option<Range<usize>>,
}

impl WriteBatch {
    /// Appends a put whose value is the concatenation of `parts`.
    pub fn put(&mut self, key: &[u8], parts: &[&[u8]]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.changes.push(Span { key: start..middle, value: Some(middle..self.bytes.len()) });
    }

    /// Appends a delete.
    pub fn delete(&mut self, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.changes.push(Span { key: start..self.bytes.len(), value: None });
    }

    /// The changes in order.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        self.changes.iter().map(|span| {
            let key = &self.bytes[span.key.clone()];
            match &span.value {
                Some(value) => Change::Put { key, value: &self.bytes[value.clone()] },
                None => Change::Delete { key },
            }
        })
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// True if there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of keys and values held.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The type of a metric, as Prometheus knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only goes up.
    Counter,
    /// Goes both ways.
    Gauge,
}

/// One sample that an engine reports.
#[derive(Debug, Clone, Copy)]
pub struct Metric<'a> {
    /// Full name with unit, for example `situ_memtable_bytes`. Samples of one name must be reported in a row.
    pub name: &'a str,
    /// One sentence.
    pub help: &'a str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Label names and values; values are escaped by the server.
    pub labels: &'a [(&'a str, &'a str)],
    /// The value now.
    pub value: f64,
}

/// Whether the engine can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes work.
    Ready,
    /// Writes are refused, or the engine has failed; the reason in prose.
    Degraded(String),
}

/// What an engine needs beside itself, and what the server shows with it: a node that has the store's files, for example.
pub trait Beside: Send + Sync {
    /// Why the engine cannot do all that it should, if that is so; asked by `/healthz`.
    fn trouble(&self) -> Option<String>;

    /// Reports metrics.
    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>));
}

/// What an engine that evicts holds, and what it has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheState {
    /// The limit of memory, in bytes.
    pub memory_bytes_max: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Items that went because they had expired.
    pub reclaimed: u64,
    /// What it holds on flash, and has done there; `None` without flash.
    pub flash: Option<FlashState>,
}

/// What an engine that evicts holds on flash, and what it has done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlashState {
    /// False after the device has failed.
    pub works: bool,
    /// Bytes that items may take.
    pub bytes_max: u64,
    /// Bytes that items take.
    pub bytes: u64,
    /// Items that came from memory.
    pub demoted: u64,
    /// Bytes of these items.
    pub demoted_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Reads that found their item.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Items that went back to memory.
    pub promoted: u64,
    /// Items that were written again when their room was needed.
    pub reinserted: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Operations of the device that failed.
    pub errors: u64,
}

/// An item that a survey shows.
#[derive(Debug, Clone, Copy)]
pub struct SurveyedItem<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) header: Header,
    pub(crate) value_bytes: usize,
}

impl<'a> SurveyedItem<'a> {
    /// An item as an engine stores it: a header and the data. `None` if the value is none of a server's.
    pub fn of(key: &'a [u8], value: &[u8]) -> Option<SurveyedItem<'a>> {
        let header = Header::decode(value)?;
        Some(SurveyedItem { key, header, value_bytes: value.len() - header.byte_len() })
    }
}

/// A walk over the items of an engine, on a thread that may wait.
pub trait Survey: Send {
    /// Shows some more items, dead ones included, to `each`, which is quick. `now_seconds` is Unix time. False at the end.
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

/// An item that an engine has dropped to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictedItem<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// Expiration time, Unix seconds; 0 means never.
    pub expires: u64,
    /// Length of the data.
    pub value_bytes: usize,
    /// Whether it was read lately.
    pub was_read: bool,
}

/// Is told of items that an engine drops to make room. It is quick and does not call the engine.
pub type OnEvicted = Box<dyn Fn(EvictedItem<'_>) + Send + Sync>;

/// Memory that counts towards a bound of the engine's until this is dropped.
#[derive(Debug, Default)]
pub struct Reserved {
    /// The sum that it is a part of.
    sum: Option<Arc<AtomicU64>>,
    bytes: u64,
}

impl Reserved {
    /// Counts so many bytes more in `sum`; false, and nothing is counted, if that would be more than `bytes_max` and others have something in it.
    pub(crate) fn grow(&mut self, sum: &Arc<AtomicU64>, bytes: u64, bytes_max: u64) -> bool {
        let before = sum.fetch_add(bytes, Ordering::Relaxed);
        if before > self.bytes && before + bytes > bytes_max {
            sum.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        self.sum.get_or_insert_with(|| Arc::clone(sum));
        true
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(sum) = &self.sum {
            sum.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Is told what has gone wrong with the flash, in a sentence.
pub type OnTrouble = Box<dyn Fn(&str) + Send + Sync>;

/// An item that an engine shows where it lies.
#[derive(Debug, Clone, Copy)]
pub struct ShownItem<'a> {
    pub(crate) header: Header,
    pub(crate) data: &'a [u8],
}

/// What came of [`Engine::show`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<V> {
    /// The item was shown.
    Item,
    /// The item is long, and was not shown: its value.
    Value(V),
    /// The key does not exist.
    Miss,
    /// The engine cannot show it now: [`Engine::get`] is to be asked.
    Ask,
}

/// Reads of an engine that one event loop gets on with itself.
pub trait LoopReader<V>: Send {
    /// Begins a read of `key`, which sees every write that was done before this call. `done` is called while the reader
    /// [advances](LoopReader::advance), or from another thread.
    fn begin(&mut self, key: &[u8], done: OnRead<V>);

    /// Hands to the disk what has begun, and tells what has ended. True if there is more to do at once. Waits for nothing.
    fn advance(&mut self) -> bool;

    /// Whether something was begun here and has not been told. The loop advances every 100 ms then, whatever the descriptor says.
    fn is_busy(&self) -> bool;

    /// Becomes readable when there may be something to tell. The loop watches its edges.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// A key-value engine that can serve memcached.
///
/// **Threads.** Called from every event loop at once. `get`, `write` and `put_meta` must not wait, neither for the disk
/// nor for back-pressure: all connections of the loop would wait with them.
///
/// **Order.** Writes become visible, and durable after a crash, in the order they were given, metadata included:
/// a crash keeps a prefix. The flush barrier relies on it.
pub trait Engine: Send + Sync + 'static {
    /// A value read: pinned in the engine's cache, or owned. Held until it has been sent to the client.
    type Value: Deref<Target = [u8]> + Send + 'static;

    /// The value of `key`, if it can be had without waiting for a disk.
    ///
    /// If not, the engine asks `later` for a callback, begins the read, and answers [`Get::Later`]. The read sees every
    /// write that was done before this call. The engine may call the callback before it returns. `later` gives `None` if too
    /// many reads are under way; then the engine begins none and answers [`Get::Later`], too. An engine that has called
    /// `later` gives no other answer.
    ///
    /// # Errors
    /// The engine cannot answer; its reason goes to the client.
    fn get(
        &self,
        key: &[u8],
        later: &mut dyn FnMut() -> Option<OnRead<Self::Value>>,
    ) -> Result<Get<Self::Value>, EngineError>;

    /// Reads that need the disk, for the thread of one event loop, which gets on with them itself. The server calls this once for each loop. Then a
    /// loop asks its reader for what [`get`](Engine::get) has no answer for. `None`: the engine reads by other threads.
    fn loop_reader(&self) -> Option<Box<dyn LoopReader<Self::Value>>> {
        None
    }

    /// Shows the item of `key` where it lies, if it is in memory, and short or not to be copied: `copies` says whether `show` copies its data. A copy of a short
    /// item costs as much as finding it. `show` is quick and does not call the engine.
    ///
    /// # Errors
    /// As [`get`](Engine::get).
    fn show(
        &self,
        key: &[u8],
        copies: bool,
        show: impl FnOnce(ShownItem<'_>),
    ) -> Result<Shown<Self::Value>, EngineError> {
        let _ = (key, copies, show);
        Ok(Shown::Ask)
    }

    /// Applies `batch` atomically, then calls `done`: inline or later, from any thread, exactly once.
    ///
    /// Once `done(Ok)` is called, every `get` sees the batch. Batches that wait are taken in the order they were given.
    fn write(&self, batch: WriteBatch, on_taken: &OnTaken, done: Done) -> Admission;

    /// Whether [`write_at_once`](Engine::write_at_once) makes changes.
    const CHANGES_AT_ONCE: bool = false;

    /// Applies one change and returns, if the engine never waits for anything; otherwise `None`, and the change is to be
    /// [written](Engine::write). The value is the concatenation of the parts. Every later `get` sees the change.
    fn write_at_once(&self, change: ChangeInParts<'_>) -> Option<Result<(), EngineError>> {
        let _ = change;
        None
    }

    /// Counts memory of a value that arrives: so many bytes more. False if there is no room for it; then the server refuses the value. An engine
    /// with a limit of memory includes these bytes in it.
    fn reserve(&self, reserved: &mut Reserved, bytes: usize) -> bool {
        let _ = (reserved, bytes);
        true
    }

    /// A walk over all items, for `lru_crawler metadump`. `None` if the engine cannot list its items. Called on a thread that may wait.
    ///
    /// # Errors
    /// The engine cannot begin.
    fn survey(&self) -> Result<Option<Box<dyn Survey>>, EngineError> {
        Ok(None)
    }

    /// From now on `tell` is told of items that go to make room. The server calls this once.
    fn on_evicted(&self, tell: OnEvicted) {
        let _ = tell;
    }

    /// Removes the item of `key` at once, whatever it is, without reading it. Whether there was one, dead ones included. `None`: the engine
    /// cannot; a delete is to be [written](Engine::write).
    fn delete_unread(&self, key: &[u8]) -> Option<bool> {
        let _ = key;
        None
    }

    /// The clock by which the engine's items expire. The engine takes and returns expiration times of this clock.
    fn clock(&self) -> &Arc<StoreClock>;

    /// A server's own record, kept apart from the items. `None` if it was never put.
    ///
    /// # Errors
    /// The engine cannot answer.
    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;

    /// Stores a server's own record durably (as the strongest durability the engine has), then calls `done`.
    fn put_meta(&self, key: &[u8], value: &[u8], done: Done);

    /// About how many items are stored.
    fn approximate_items(&self) -> u64;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// True while the engine delays writes.
    fn write_stalled(&self) -> bool;

    /// Whether the engine can serve now; asked by `/healthz`.
    fn health(&self) -> Health;

    /// Reports the engine's own metrics.
    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>));

    /// What the engine holds and has evicted; `None` if it keeps items until they are deleted, expire or are flushed.
    fn cache(&self) -> Option<CacheState> {
        None
    }

    /// What compactions do, and did since this attempt; `None` if the engine has none, or tells nothing of them.
    fn compactions(&self, since: u64) -> Option<Compactions> {
        let _ = since;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_in() {
        let mut batch = WriteBatch::default();
        batch.put(b"a", &[b"1", b"", b"23"]);
        batch.delete(b"b");
        let changes: Vec<_> = batch.changes().collect();
        assert_eq!(changes, [Change::Put { key: b"a", value: b"123" }, Change::Delete { key: b"b" }]);
    }

    #[test]
    fn a_reason_cannot_break_the_protocol() {
        let error = EngineError::new(format!("disk\r\nSTORED {}", "x".repeat(1000)));
        assert!(error.to_string().starts_with("disk  STORED"));
        assert_eq!(error.to_string().len(), 400);
    }
}
