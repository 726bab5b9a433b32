//! The rules for paying debts: pure functions of the store's debts.
//!
//! [`due`] checks payments in order of priority. The log's limit comes first, and does not wait for an idle store. All
//! other payments wait until the store is idle or its disk is full, and are made one by one. A memtable with tombstones
//! is sealed first, because its debts show only in a table.

use std::time::Duration;

/// Time without writes after which a store is idle.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5);
/// Minimum interval between seals of a keyspace's memtable for its debts. Without it, a writer that pauses often would
/// fill level 0 with small tables.
pub(crate) const SEAL_EVERY: Duration = Duration::from_secs(30);
/// Time before a debt that a snapshot protects, or that could not be paid, is checked again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Slack of the log at rest, beyond twice the size of memtables and the current file.
pub(crate) const LOG_BYTES_AT_REST: u64 = 8 << 20;
/// On a full disk it takes no more than this, whatever memtables hold.
pub(crate) const LOG_BYTES_IF_SHORT: u64 = 64 << 10;

/// The debts of a store, beyond the work that full memtables and full levels cause.
#[derive(Debug, Clone, Default)]
pub(crate) struct Debts {
    /// Time since the last write.
    pub(crate) idle_for: Duration,
    /// True while puts are refused for want of space.
    pub(crate) is_short: bool,
    /// The debt of the log; `None` if the store is open read-only.
    pub(crate) log: Option<LogDebt>,
    pub(crate) memtables: Vec<MemtableDebt>,
    pub(crate) tables: TableDebt,
    /// True if the segments of the value log that flushes append to are mostly dead.
    pub(crate) open_segments_are_dead: bool,
    /// True if obsolete files could not be deleted. The flusher retries in each turn.
    pub(crate) has_undeleted: bool,
    /// True for a while after a payment has failed or changed nothing.
    pub(crate) rests: bool,
}

impl Debts {
    /// Returns true if the store has time for its debts, or no space to put them off.
    pub(crate) fn may_be_paid(&self) -> bool {
        self.idle_for >= IDLE_AFTER || self.is_short
    }

    /// Returns the time between two seals of a keyspace's memtable for its debts.
    fn seal_every(&self) -> Duration {
        if self.is_short { IDLE_AFTER } else { SEAL_EVERY }
    }
}

/// Log files that memtables hold back.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogDebt {
    /// True if the log exceeds its limit.
    pub(crate) is_over: bool,
    /// The oldest file to keep. Without the files before it, the log would be well within its limit.
    pub(crate) oldest_kept: u64,
    /// The current file, which takes records.
    pub(crate) current: u64,
    /// Bytes that were written and not released.
    pub(crate) held_bytes: u64,
    /// Bytes of all files, including released ones.
    pub(crate) file_bytes: u64,
}

/// A memtable that takes writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemtableDebt {
    pub(crate) keyspace: u32,
    pub(crate) bytes: u64,
    /// The oldest log file with a record of it; `None` if it is empty.
    pub(crate) first_log: Option<u64>,
    /// True if it would free space elsewhere as a table: it has tombstones, or values that hide others in the value
    /// log.
    pub(crate) frees_space: bool,
    /// True if older memtables of the keyspace wait for their flush, which itself frees log files.
    pub(crate) flush_is_due: bool,
    /// Time since the keyspace was last sealed for its debts; `None` if it never was.
    pub(crate) sealed_ago: Option<Duration>,
}

/// Tables with entries that could be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TableDebt {
    #[default]
    None,
    /// A compaction is worth its cost now.
    Due,
    /// A compaction will be worth its cost after this time.
    DueIn(Duration),
}

/// The payment of a debt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Payment {
    /// Seal the memtables of these keyspaces for the log's limit, without waiting for level 0.
    SealForLog(Vec<u32>),
    /// Seal the memtables of these keyspaces.
    Seal(Vec<u32>),
    /// Run one compaction.
    Compact,
    /// Seal the segments that flushes append to.
    EndSegments,
    /// Continue in a short log file.
    ShortenLog,
}

fn keyspaces<'a>(memtables: impl Iterator<Item = &'a MemtableDebt>) -> Option<Vec<u32>> {
    let ids: Vec<u32> = memtables.map(|memtable| memtable.keyspace).collect();
    (!ids.is_empty()).then_some(ids)
}

/// Returns the payment that is due now.
pub(crate) fn due(debts: &Debts) -> Option<Payment> {
    let before = |limit: u64| move |memtable: &&MemtableDebt| memtable.first_log.is_some_and(|log| log < limit);
    if let Some(log) = debts.log.as_ref().filter(|log| log.is_over)
        && let holders = debts.memtables.iter().filter(|memtable| !memtable.flush_is_due)
        && let Some(ids) = keyspaces(holders.filter(before(log.oldest_kept.min(log.current))))
    {
        return Some(Payment::SealForLog(ids));
    }
    if !debts.may_be_paid() || debts.rests {
        return None;
    }
    let may_be_sealed = |memtable: &&MemtableDebt| {
        memtable.first_log.is_some()
            && memtable.frees_space
            && memtable.sealed_ago.is_none_or(|ago| ago >= debts.seal_every())
    };
    if let Some(ids) = keyspaces(debts.memtables.iter().filter(may_be_sealed)) {
        return Some(Payment::Seal(ids));
    }
    if debts.tables == TableDebt::Due {
        return Some(Payment::Compact);
    }
    if debts.open_segments_are_dead {
        return Some(Payment::EndSegments);
    }
    let log = debts.log.as_ref()?;
    let memory: u64 = debts.memtables.iter().map(|memtable| memtable.bytes).sum();
    let at_rest = if debts.is_short { LOG_BYTES_IF_SHORT } else { LOG_BYTES_AT_REST };
    let held_at_rest = if debts.is_short { at_rest } else { memory.saturating_mul(2).saturating_add(at_rest) };
    if log.held_bytes > held_at_rest
        && let Some(ids) = keyspaces(debts.memtables.iter().filter(before(log.current)))
    {
        return Some(Payment::Seal(ids));
    }
    let is_flushed = debts.memtables.iter().all(|memtable| memtable.first_log.is_none());
    (is_flushed && log.file_bytes > at_rest).then_some(Payment::ShortenLog)
}

/// Returns the time until a debt may become due, if nothing is written; `None` if none will.
pub(crate) fn next_look_in(debts: &Debts) -> Option<Duration> {
    if !debts.may_be_paid() {
        return Some(IDLE_AFTER - debts.idle_for);
    }
    let rest = (debts.rests || debts.has_undeleted).then_some(LOOK_AGAIN);
    let sealable = |memtable: &MemtableDebt| {
        let ago = memtable.sealed_ago.filter(|_| memtable.frees_space && memtable.first_log.is_some())?;
        Some(debts.seal_every().saturating_sub(ago))
    };
    let tables = match debts.tables {
        TableDebt::DueIn(wait) => Some(wait),
        TableDebt::None | TableDebt::Due => None,
    };
    rest.into_iter().chain(debts.memtables.iter().filter_map(sealable)).chain(tables).min()
}

#[cfg(test)]
mod tests;
