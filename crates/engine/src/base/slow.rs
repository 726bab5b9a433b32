//! Slow operations: those of callers that took longer than [`Options::slow_operation`](crate::Options::slow_operation).
//!
//! 1. [`Health::watch`](crate::base::health::Health::watch) runs an operation with a record of its thread
//!    ([`spent`]). Reads of disks, waits and decompression measure themselves there.
//! 2. An operation with an empty record has waited for nothing, and is not looked at. So a read that finds its block in
//!    the cache costs two accesses to a variable of the thread.
//! 3. An operation whose laps together span the limit is slow. So is one of the sample that is measured from its
//!    beginning to its end, one in sixteen of reads and blocking writes.
//! 4. A slow operation is counted. The last [`KEPT_MAX`] are kept, and the listener gets each.
//!
//! **The time** of an operation of the sample is exact. That of another begins with its first lap: a search of the
//! memtables before the first read of a block is not in it. An operation that waits for nothing but the processor, such
//! as one whose thread gets no core, is found only in the sample.
//!
//! **Threads.** Any thread may note an operation. The lock of the list is held for a moment, and only by slow ones.

use crate::base::sync::lock;
use situ_base::Clock;
use situ_base::spent::{Part, Spent};
use situ_storage::Excerpt;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of slow operations that a store keeps.
const KEPT_MAX: usize = 100;
/// The part of a key that is kept.
const KEY_BYTES_KEPT: usize = 64;

/// The kind of a slow operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlowKind {
    /// A read of one key.
    Get,
    /// A read of several keys. The key is the first one of the call.
    MultiGet,
    /// A movement of a cursor or an iterator. The key is the one that it came to.
    Move,
    /// A page of a scan. The key is its first one.
    ScanPage,
    /// A write. The key is that of its first change.
    Write,
    /// A commit of a transaction. The key is that of its first change.
    Commit,
    /// A wait of a transaction for the lock of a key.
    Lock,
}

impl SlowKind {
    /// Returns the name, as in `multi_get`.
    pub fn name(self) -> &'static str {
        match self {
            SlowKind::Get => "get",
            SlowKind::MultiGet => "multi_get",
            SlowKind::Move => "move",
            SlowKind::ScanPage => "scan_page",
            SlowKind::Write => "write",
            SlowKind::Commit => "commit",
            SlowKind::Lock => "lock",
        }
    }
}

/// A part of the time of a slow operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowPart {
    /// The name: `block_read`, `decode` (checksums and decompression of blocks), `table_open`, `value_read` (the value
    /// log), `log` (writes of the log, waits for it and for earlier writes), `room` (waits for room in memory, level 0
    /// or the log), `lock`, `thread` (waits for a thread of the store), or `rest`: everything that is not measured,
    /// such as memtables, filters, indexes and searches in blocks.
    pub name: &'static str,
    /// The number of times that it took place; 1 for the rest.
    pub count: u32,
    /// The time of all of them together.
    pub time: Duration,
}

fn name_of(part: Part) -> &'static str {
    match part {
        Part::BlockRead => "block_read",
        Part::Decode => "decode",
        Part::TableOpen => "table_open",
        Part::ValueRead => "value_read",
        Part::Log => "log",
        Part::Room => "room",
        Part::Lock => "lock",
        Part::Thread => "thread",
    }
}

/// An operation that took longer than [`Options::slow_operation`](crate::Options::slow_operation).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowOperation {
    /// Its kind.
    pub kind: SlowKind,
    /// The keyspace's name.
    pub keyspace: String,
    /// The key, cut to 64 bytes.
    pub key: Vec<u8>,
    /// The length of the whole key.
    pub key_bytes: usize,
    /// Bytes of the values that were read, or of the changes that were written.
    pub bytes: u64,
    /// The time of its end, since 1970.
    pub ended_unix: Duration,
    /// The time that it took.
    pub took: Duration,
    /// The parts of this time that are not zero, the rest last.
    pub parts: Vec<SlowPart>,
}

impl fmt::Debug for SlowOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowOperation({self})")
    }
}

/// Writes a line for people, as in `items: slow get of "user:7" took 153.2ms: 3 block_read 150.1ms, rest 3.1ms; 4096
/// bytes`.
impl fmt::Display for SlowOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlowOperation { kind, keyspace, key, key_bytes, bytes, took, parts, .. } = self;
        let more = if *key_bytes > key.len() { format!("... ({key_bytes} bytes)") } else { String::new() };
        write!(f, "{keyspace}: slow {} of \"{}{more}\" took {took:.1?}: ", kind.name(), Excerpt(key))?;
        for (at, SlowPart { name, count, time }) in parts.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match count {
                1 => write!(f, "{comma}{name} {time:.1?}")?,
                count => write!(f, "{comma}{count} {name} {time:.1?}")?,
            }
        }
        write!(f, "; {bytes} bytes")
    }
}

/// A watched operation, in the words of its caller.
pub(crate) struct Operation {
    kind: SlowKind,
    keyspace: String,
    key: CutKey,
    bytes: usize,
}

impl Operation {
    pub(crate) fn new(kind: SlowKind, keyspace: String, key: impl Into<CutKey>, bytes: usize) -> Operation {
        Operation { kind, keyspace, key: key.into(), bytes }
    }
}

/// The beginning of a key, and its length. It takes no memory elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct CutKey {
    kept: [u8; KEY_BYTES_KEPT],
    bytes: usize,
}

impl From<&[u8]> for CutKey {
    #[inline]
    fn from(key: &[u8]) -> CutKey {
        let mut kept = [0; KEY_BYTES_KEPT];
        let length = key.len().min(KEY_BYTES_KEPT);
        kept[..length].copy_from_slice(&key[..length]);
        CutKey { kept, bytes: key.len() }
    }
}

/// See the module's documentation.
pub(crate) struct SlowOperations {
    /// `Duration::MAX` if no operation is watched.
    limit: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    last: Mutex<VecDeque<SlowOperation>>,
}

impl SlowOperations {
    pub(crate) fn new(limit: Option<Duration>, clock: &Arc<dyn Clock>) -> SlowOperations {
        let limit = limit.unwrap_or(Duration::MAX);
        SlowOperations { limit, clock: Arc::clone(clock), last: Mutex::default() }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.limit != Duration::MAX
    }

    /// Returns the time now, if operations are watched: for one that goes on elsewhere.
    pub(crate) fn begun(&self) -> Option<Duration> {
        self.is_on().then(|| self.clock.now())
    }

    /// Returns the operation if it is slow. `took` is its time if that is known; otherwise, it is that of its laps.
    pub(crate) fn look(
        &self,
        spent: Option<Spent>,
        took: Option<Duration>,
        operation: impl FnOnce() -> Operation,
    ) -> Option<SlowOperation> {
        let spanned = spent.as_ref().map_or(Duration::ZERO, Spent::span);
        if took.unwrap_or(spanned).max(spanned) < self.limit {
            return None;
        }
        let took = took.or_else(|| spent.as_ref().map(Spent::span_until_now)).unwrap_or_default().max(spanned);
        let measured = spent.iter().flat_map(Spent::parts).filter(|(_, _, time)| !time.is_zero());
        let mut parts: Vec<_> =
            measured.map(|(part, count, time)| SlowPart { name: name_of(part), count, time }).collect();
        let rest = took.saturating_sub(parts.iter().map(|part| part.time).sum());
        if !rest.is_zero() {
            parts.push(SlowPart { name: "rest", count: 1, time: rest });
        }
        let Operation { kind, keyspace, key, bytes } = operation();
        let slow = SlowOperation {
            kind,
            keyspace,
            key: key.kept[..key.bytes.min(KEY_BYTES_KEPT)].to_vec(),
            key_bytes: key.bytes,
            bytes: bytes as u64,
            ended_unix: self.clock.unix(),
            took,
            parts,
        };
        let mut last = lock(&self.last);
        if last.len() == KEPT_MAX {
            last.pop_front();
        }
        last.push_back(slow.clone());
        Some(slow)
    }

    pub(crate) fn last(&self) -> Vec<SlowOperation> {
        lock(&self.last).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::SystemClock;

    #[test]
    fn an_operation_is_slow_from_the_limit_on_and_the_last_hundred_are_kept() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let slow = SlowOperations::new(Some(Duration::from_millis(10)), &clock);
        let key = [b'k'; 80];
        let look = |ms, bytes| {
            let operation = || Operation::new(SlowKind::Get, "items".to_owned(), &key[..], bytes);
            slow.look(None, Some(Duration::from_millis(ms)), operation)
        };
        assert_eq!(look(9, 1), None);
        assert!(slow.last().is_empty());
        for at in 0..KEPT_MAX + 2 {
            assert!(look(10, at).is_some());
        }
        let last: Vec<u64> = slow.last().iter().map(|operation| operation.bytes).collect();
        assert_eq!(last, (2..KEPT_MAX as u64 + 2).collect::<Vec<_>>());
        let shown = look(1500, 7).unwrap().to_string();
        let expected = format!("items: slow get of \"{}... (80 bytes)\" took 1.5s: rest 1.5s; 7 bytes", "k".repeat(64));
        assert_eq!(shown, expected);
    }
}
