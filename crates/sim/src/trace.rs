//! The record of a run: the last operations for people, a hash over all of them for determinism tests.

use crate::fault::Operation;
use situ_base::lock;
use situ_storage::FileName;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The number of entries that are kept.
const ENTRIES_MAX: usize = 64;

/// A bounded record of operations. Clones share the record.
///
/// The hash covers every entry since the start, also those that have left the ring, and the bytes that were written.
/// Two runs of one seed have equal hashes, or something outside the seed had an influence.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Ring>>);

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    count: u64,
    hash: u64,
}

/// One operation on a simulated volume.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) thread: Arc<str>,
    pub(crate) operation: Operation,
    pub(crate) file: Option<FileName>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// A hash of the bytes written.
    pub(crate) content: u64,
    /// The reason why it failed.
    pub(crate) failure: Option<String>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6}s  {:<16} {:<12}", self.at.as_secs_f64(), self.thread, self.operation.verb())?;
        if let Some(file) = self.file {
            write!(f, " {file}")?;
        }
        if self.bytes > 0 {
            write!(f, " {}+{}", self.offset, self.bytes)?;
        }
        match &self.failure {
            None => Ok(()),
            Some(why) => write!(f, "  FAILED: {why}"),
        }
    }
}

/// Folds a word into a hash; not cryptographic, but every bit of both counts.
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// Returns a hash of bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = mix(0, bytes.len() as u64);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
}

impl Trace {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.0)
    }

    /// Returns the number of operations recorded since the start.
    pub fn count(&self) -> u64 {
        self.ring().count
    }

    /// Returns a hash over all operations since the start, and, for a [`SimExecutor`](crate::SimExecutor)'s trace, over
    /// every choice of its scheduler.
    pub fn hash(&self) -> u64 {
        self.ring().hash
    }

    pub(crate) fn fold(&self, word: u64) {
        let mut ring = self.ring();
        ring.hash = mix(ring.hash, word);
    }

    pub(crate) fn record(&self, entry: Entry) {
        let mut ring = self.ring();
        let named = entry.file.map_or(0, |name| hash_bytes(name.to_string().as_bytes()));
        let failed = entry.failure.as_ref().map_or(0, |why| hash_bytes(why.as_bytes()));
        let thread = hash_bytes(entry.thread.as_bytes());
        for word in [entry.operation as u64, named, entry.offset, entry.bytes, entry.content, failed, thread] {
            ring.hash = mix(ring.hash, word);
        }
        ring.count += 1;
        if ring.entries.len() == ENTRIES_MAX {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
    }
}

/// The last operations, one per line, oldest first.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring();
        writeln!(f, "the last {} of {} operations:", ring.entries.len(), ring.count)?;
        ring.entries.iter().try_for_each(|entry| writeln!(f, "  {entry}"))
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} operations, hash {:016x})", self.count(), self.hash())
    }
}
