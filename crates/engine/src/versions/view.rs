//! The view of a keyspace's reader: memtables and a version, as one immutable value behind one atomic pointer.

use crate::base::batch::Operation;
use crate::memtable::{Memtable, Meter};
use crate::versions::gaps::Gaps;
use crate::versions::version::Version;
use situ_table::{KeyKind, Trailer};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// "No log file yet": the memtable has never been written to.
const NO_LOG: u64 = u64::MAX;

/// A memtable and what the write path knows about it.
pub(crate) struct MemtableSlot {
    pub(crate) memtable: Arc<Memtable>,
    /// The gaps of the memtable's keyspace.
    pub(crate) gaps: Arc<Gaps>,
    /// The log file with the first record that went into the memtable.
    first_log: AtomicU64,
    /// Bytes that requests have announced, whether inserted yet or not.
    reserved_bytes: AtomicU64,
    /// The last sequence number handed out when the memtable was sealed; nothing above it is inside.
    last_sequence: AtomicU64,
}

impl MemtableSlot {
    /// Creates an empty memtable that will grow to `memtable_bytes`. `meter` counts its memory, and `gaps` are those of
    /// its keyspace.
    pub(crate) fn new(seed: u64, memtable_bytes: u64, meter: &Arc<Meter>, gaps: &Arc<Gaps>) -> Arc<MemtableSlot> {
        Arc::new(MemtableSlot {
            memtable: Memtable::new(seed, seed, memtable_bytes, meter),
            gaps: Arc::clone(gaps),
            first_log: AtomicU64::new(NO_LOG),
            reserved_bytes: AtomicU64::new(0),
            last_sequence: AtomicU64::new(u64::MAX),
        })
    }

    /// Announces bytes that will be inserted from a record in log file `log`. Called under the commit lock.
    pub(crate) fn reserve(&self, bytes: u64, log: u64) {
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.first_log.load(Ordering::Relaxed) == NO_LOG {
            self.first_log.store(log, Ordering::Relaxed);
        }
    }

    /// Puts one change into the memtable, whose room was announced.
    pub(crate) fn insert(&self, operation: &Operation<'_>, sequence: u64) {
        let Operation { kind, key, value, .. } = *operation;
        let last = self.last_sequence();
        assert!(sequence <= last, "write {sequence} goes into a memtable that was sealed at {last}");
        match kind {
            KeyKind::RangeDelete => self.memtable.insert_range_tombstone(key, value, sequence),
            kind => self.memtable.insert(key, Trailer::new(sequence, kind), value),
        }
    }

    /// Returns the fill of the memtable: the bytes that are inside or on their way.
    pub(crate) fn bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Relaxed).max(self.memtable.used_bytes() as u64)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first_log.load(Ordering::Relaxed) == NO_LOG
    }

    /// Returns the oldest log file that holds records of this memtable.
    pub(crate) fn first_log(&self) -> Option<u64> {
        Some(self.first_log.load(Ordering::Relaxed)).filter(|log| *log != NO_LOG)
    }

    /// Seals the memtable: nothing above `last_sequence` goes into it from now on.
    pub(crate) fn seal(&self, last_sequence: u64) {
        let before = self.last_sequence.swap(last_sequence, Ordering::AcqRel);
        // The exchange of a view may be tried several times.
        assert!(before == u64::MAX || before == last_sequence, "a memtable was sealed at {before} and {last_sequence}");
        self.memtable.seal();
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::Acquire)
    }
}

impl fmt::Debug for MemtableSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemtableSlot({} bytes)", self.bytes())
    }
}

/// All that a read needs. A reader holds it as long as it reads, so nothing it needs goes away.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Takes new writes.
    pub(crate) active: Arc<MemtableSlot>,
    /// Full, waiting to be flushed; newest first.
    pub(crate) sealed: Vec<Arc<MemtableSlot>>,
    pub(crate) version: Arc<Version>,
}

impl View {
    /// Returns all memtables, newest first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<MemtableSlot>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// Returns the oldest log file still needed for what is only in memory.
    pub(crate) fn first_log(&self) -> Option<u64> {
        self.slots().filter_map(|slot| slot.first_log()).min()
    }

    /// Returns the bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.slots().map(|slot| slot.memtable.allocated_bytes() as u64).sum()
    }
}
