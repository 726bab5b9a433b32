//! The log read back into memtables.
//!
//! The contents of the log stay in memory, in memtables that end where log files end, as they did when they were
//! written. So a memtable that the flusher flushes later frees whole log files. No record comes twice if the store is
//! opened again before all memtables are flushed. The last one takes new writes if there may not be another. If it is
//! little, it goes on in the new log instead (`carry.rs`).
//!
//! If the limits in the options are lower now, memtables may exceed them, for one keyspace or for all together. Then
//! everything is written to tables before the store is open. A repair does the same, and leaves no log.
//!
//! **Invariants.** Of one keyspace, no log file has entries in two memtables that stay in memory. The log files that
//! are kept have all sequence numbers from the first to the last: a gap shows that records have rotted in a place that
//! gives no other sign of it.

use crate::Error;
use crate::Result;
use crate::base::batch::{Operation, Record};
use crate::core::Core;
use crate::opening::carry::Carried;
use crate::opening::state::StoreState;
use crate::pipeline::total::WORTH_A_FLUSH_BYTES;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::{TableFile, Version};
use crate::versions::view::{MemtableSlot, View};
use situ_log::{RecordPosition, RecoveryMode, RecoveryReport, Tail, recover};
use situ_storage::{Error as StorageError, FileName, PAGE_BYTES, Volume};
use situ_table::range_del::RangeTombstone;
use situ_table::{BlockCache, KeyKind, MAX_SEQUENCE, ReadOptions, Table, hash_key};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The destination of replayed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All of it stays in memory, in one memtable for each keyspace.
    All,
    /// It stays in memory as long as it is no more than memtables may take.
    AsManyAsMayBe,
    /// All of it becomes tables.
    Nothing,
}

/// A keyspace, and the records replayed for it so far.
struct Target {
    keyspace: Arc<KeyspaceCore>,
    /// Log files before this one are not needed for it.
    log_number: u64,
    active: Arc<MemtableSlot>,
    /// Newest first.
    sealed: Vec<Arc<MemtableSlot>>,
}

impl Target {
    fn new(keyspace: Arc<KeyspaceCore>) -> Target {
        let active = Arc::clone(&keyspace.view.load().active);
        let log_number = keyspace.log_number.load(Ordering::Relaxed);
        Target { keyspace, log_number, active, sealed: Vec::new() }
    }

    fn fresh(&self) -> Arc<MemtableSlot> {
        self.keyspace.new_slot(self.active.memtable.entries() as u64)
    }

    fn seal(&mut self) {
        let fresh = self.fresh();
        self.sealed.insert(0, std::mem::replace(&mut self.active, fresh));
    }

    /// Returns true if the keyspace may have one more memtable.
    fn has_memtable(&self) -> bool {
        self.sealed.len() + 1 < self.keyspace.options.memtables_max
    }
}

/// A replay under way.
pub(crate) struct Replay<'a> {
    core: &'a Arc<Core>,
    targets: BTreeMap<u32, Target>,
    keep: Keep,
    /// The log file that records come from.
    file: u64,
    /// The oldest write that the log's first record stands for.
    since: Option<u64>,
    /// The last sequence number of the log.
    last: u64,
    makes_tables: bool,
    /// Total size above which memtables are written out. It rises beyond the limit if small memtables alone exceed the
    /// limit.
    over_limit_at: u64,
    /// In a repair only.
    found: Option<FoundTables>,
}

/// Tables with temporary names that a replay keeps open.
const UNNAMED_OPEN_MAX: usize = 64;

/// The tables that a repair found. They may hold records of the log, which the replay then leaves out.
struct FoundTables {
    volume: Arc<dyn Volume>,
    /// Tables that this repair has written. They have temporary names yet. The other tables are opened as those of an
    /// open store are, and no more of them than may be.
    unnamed: BTreeMap<u64, Arc<Table>>,
}

impl FoundTables {
    /// Returns true if a table holds the version that `operation` made, or a newer one of its key. Above it, the older
    /// version would be a damage.
    fn have(&mut self, version: &Version, operation: &Operation<'_>, sequence: u64) -> Result<bool> {
        if operation.kind == KeyKind::RangeDelete {
            return Ok(false);
        }
        let hash = hash_key(operation.key);
        for (_, file) in version.files().filter(|(_, file)| file.meta.span.contains(operation.key)) {
            let table = self.open(file)?;
            let newest = table.get(operation.key, MAX_SEQUENCE, hash, &ReadOptions::default())?;
            let covers = |t: &Arc<RangeTombstone>| {
                t.begin.as_slice() <= operation.key && operation.key < t.end.as_slice() && t.sequence >= sequence
            };
            if newest.is_some_and(|newest| newest.trailer.sequence() >= sequence)
                || table.range_tombstones().iter().any(covers)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open(&mut self, file: &TableFile) -> Result<Arc<Table>> {
        let number = file.meta.number;
        if let Some(table) = self.unnamed.get(&number) {
            return Ok(Arc::clone(table));
        }
        match file.table() {
            Ok(table) => Ok(Arc::clone(&*table)),
            Err(StorageError::NotFound { .. }) => self.open_unnamed(number),
            Err(error) => Err(error.into()),
        }
    }

    fn open_unnamed(&mut self, number: u64) -> Result<Arc<Table>> {
        let reader = self.volume.open(FileName::Temporary(number))?;
        let table = Table::open(reader, number, BlockCache::new(0))?;
        if self.unnamed.len() >= UNNAMED_OPEN_MAX {
            self.unnamed.clear();
        }
        self.unnamed.insert(number, Arc::clone(&table));
        Ok(table)
    }
}

/// The result of a replay.
pub(crate) struct Replayed {
    /// The last sequence number of the store.
    pub(crate) last_sequence: u64,
    /// Log files behind the end in which nothing was ever written.
    pub(crate) unused: Vec<u64>,
    /// The replayed records, if they are to go on in the next log; memtables are empty then.
    pub(crate) carried: Option<Carried>,
}

impl<'a> Replay<'a> {
    /// Puts the records of the log files into the keyspaces of `core`, which no other thread uses yet.
    pub(crate) fn run(
        core: &'a Arc<Core>,
        logs: &[u64],
        state: &StoreState,
        mode: RecoveryMode,
        keep: Keep,
    ) -> Result<Replayed> {
        let targets = core.versions.keyspaces().into_iter().map(|k| (k.id, Target::new(k))).collect();
        let repairs = mode == RecoveryMode::Repair;
        let found = || FoundTables { volume: Arc::clone(&core.versions.volume), unnamed: BTreeMap::new() };
        let found = repairs.then(found);
        let (makes_tables, over_limit_at) = (false, core.memory.budget.meter.bytes_max());
        let mut replay =
            Replay { core, targets, keep, file: 0, since: None, last: 0, makes_tables, over_limit_at, found };
        let mut failure: Option<Error> = None;
        let mut first = None;
        let outcome = recover(&core.versions.volume, logs, mode, &mut |position, bytes| {
            let decoded = Record::decode(bytes).map_err(|found| record_error(position, "a write batch", found));
            // Records ascend, so that no entry comes twice.
            let record = match decoded.and_then(|record| follows(replay.last, record, position)) {
                Ok(record) => record,
                Err(_) if repairs => return Ok(()),
                Err(error) => return Err(error),
            };
            first.get_or_insert(position.file);
            if !repairs {
                adjoins(replay.last, &record, position, replay.file)?;
            }
            replay.take(&record, position.file).map_err(|error| {
                failure = Some(error);
                StorageError::Invalid("recovery stopped".to_owned())
            })
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let report = outcome?;
        if !repairs {
            check_head(&report, logs, first)?;
            check_in_use(&report, state).map_or(Ok(()), |(_, error)| Err(error))?;
            state.closed.map_or(Ok(()), |closed| check_closed(&report, closed))?;
        }
        if replay.keep == Keep::AsManyAsMayBe && replay.last < state.last_sequence {
            // A power failure took buffered writes that had been seen. The numbers go on behind them, and a log that is
            // kept must have no gap.
            replay.give_up_keeping()?;
        }
        let last_sequence = state.last_sequence.max(replay.last);
        let carried = replay.carry_over(last_sequence)?;
        replay.finish(last_sequence)?;
        Ok(Replayed { last_sequence, unused: report.unused, carried })
    }

    fn take(&mut self, record: &Record<'_>, file: u64) -> Result<()> {
        if self.file != file {
            self.file = file;
            self.end_memtables()?;
        }
        self.since.get_or_insert(record.since);
        let mut sequence = record.first;
        let mut target: Option<(u32, &Target)> = None;
        let mut grown = 0;
        for operation in record.operations() {
            if target.is_none_or(|(id, _)| id != operation.keyspace) {
                target = self.targets.get(&operation.keyspace).map(|found| (operation.keyspace, found));
            }
            if let Some((_, target)) = target
                && file >= target.log_number
                && !match &mut self.found {
                    Some(found) => found.have(&target.keyspace.view.load().version, &operation, sequence)?,
                    None => false,
                }
            {
                let slot = &target.active;
                slot.reserve((operation.key.len() + operation.value.len()) as u64, file);
                let (key, value) = (operation.key.len(), operation.value.len());
                if !slot.memtable.ensure(key, value) {
                    return Err(StorageError::out_of_memory(key + value, "an entry of the log").into());
                }
                slot.insert(&operation, sequence);
                grown = grown.max(slot.bytes() / target.keyspace.options.memtable_bytes);
            }
            sequence += 1;
        }
        self.last = sequence.saturating_sub(1).max(record.first.saturating_sub(1));
        match self.keep {
            // A memtable takes the contents of one log file in addition to its own, so it may pass its size, but not by
            // much.
            Keep::AsManyAsMayBe if grown >= 2 || self.is_over_limit() => self.give_up_keeping(),
            Keep::Nothing if grown >= 1 => {
                self.write_out(|target| target.active.bytes() >= target.keyspace.options.memtable_bytes)
            }
            Keep::Nothing if self.is_over_limit() => {
                self.write_out(|target| target.active.memtable.allocated_bytes() as u64 >= WORTH_A_FLUSH_BYTES)?;
                self.over_limit_at =
                    self.core.memory.budget.meter.bytes_max().max(2 * self.core.memory.budget.meter.bytes());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends memtables at the end of a log file: those that are full, or would hardly have room for the records of the
    /// next one.
    fn end_memtables(&mut self) -> Result<()> {
        if self.keep != Keep::AsManyAsMayBe {
            return Ok(());
        }
        for target in self.targets.values_mut() {
            if target.active.bytes() < target.keyspace.options.memtable_bytes / 2 {
                continue;
            }
            if !target.has_memtable() {
                return self.give_up_keeping();
            }
            target.seal();
        }
        Ok(())
    }

    /// Returns true if memtables together exceed their limit.
    fn is_over_limit(&self) -> bool {
        self.core.memory.budget.meter.bytes() > self.over_limit_at
    }

    /// Stops keeping records in memory: from now on, everything becomes tables.
    fn give_up_keeping(&mut self) -> Result<()> {
        self.keep = Keep::Nothing;
        self.write_out(|_| true)
    }

    /// Writes all that is sealed, and the active memtables that are `chosen`, as tables of level 0.
    fn write_out(&mut self, chosen: impl Fn(&Target) -> bool) -> Result<()> {
        for target in self.targets.values_mut() {
            if !target.active.is_empty() && chosen(target) {
                target.seal();
            }
            while let Some(slot) = target.sealed.pop() {
                self.makes_tables = true;
                target.keyspace.owes_level0.store(true, Ordering::Relaxed);
                self.core.work.flushes.write_replayed(&target.keyspace, &slot)?;
            }
        }
        Ok(())
    }

    /// Takes the replayed records out of the memtables, if they are few enough to go on in the next log.
    fn carry_over(&mut self, last: u64) -> Result<Option<Carried>> {
        let all_in_memory = self.keep == Keep::AsManyAsMayBe && !self.makes_tables;
        if !all_in_memory || self.targets.values().any(|target| !target.sealed.is_empty()) {
            return Ok(None);
        }
        let sizes = self.targets.values().map(|target| target.keyspace.options.memtable_bytes);
        let slots = self.targets.iter().map(|(id, target)| (*id, &target.active));
        let since = self.since.unwrap_or(last);
        let carried = Carried::of(slots, sizes.min().unwrap_or(0), since, last)?;
        if carried.is_some() {
            self.targets.values_mut().for_each(|target| target.active = target.fresh());
        }
        Ok(carried)
    }

    /// Shows the memtables that stay in memory. `last` is the last sequence number of the store.
    fn finish(mut self, last: u64) -> Result<()> {
        if self.keep == Keep::Nothing {
            self.write_out(|_| true)?;
        }
        for target in self.targets.values_mut() {
            // The flusher is to take all of it, so that a store which is hardly written to does not keep its old log.
            if self.keep == Keep::AsManyAsMayBe && !target.active.is_empty() && target.has_memtable() {
                target.seal();
            }
            if !target.sealed.is_empty() {
                target.keyspace.owes_level0.store(true, Ordering::Relaxed);
            }
            let ascend = |newer: &Arc<MemtableSlot>, older: &Arc<MemtableSlot>| newer.first_log() > older.first_log();
            let sealed = &target.sealed;
            assert!(sealed.is_sorted_by(ascend), "a log file has entries in two memtables: {sealed:?}");
            sealed.iter().for_each(|slot| slot.seal(last));
            target.keyspace.view.rcu(|view| View {
                active: Arc::clone(&target.active),
                sealed: target.sealed.clone(),
                version: Arc::clone(&view.version),
            });
        }
        Ok(())
    }
}

/// Returns an error about a record, with its place in the log.
pub(crate) fn record_error(position: RecordPosition, expected: &str, found: impl std::fmt::Display) -> StorageError {
    let offset = u64::from(position.page) * PAGE_BYTES as u64;
    StorageError::corruption(FileName::Log(position.file), offset, "record", expected, found)
}

/// Lets a record pass that is newer than all before it.
pub(crate) fn follows(last: u64, record: Record<'_>, position: RecordPosition) -> situ_storage::Result<Record<'_>> {
    if record.first <= last {
        let expected = format!("a sequence number above {last}");
        return Err(record_error(position, &expected, record.first));
    }
    Ok(record)
}

/// Checks the first record of a log file: it comes right behind the last record of the one before, which is `file`.
/// Logs that are read one after the other have no gap between them. A gap shows that an end that was not known to be
/// durable has rotted since the next log was begun behind it.
pub(crate) fn adjoins(last: u64, record: &Record<'_>, position: RecordPosition, file: u64) -> situ_storage::Result<()> {
    if last == 0 || position.file == file || record.first == last + 1 {
        return Ok(());
    }
    let expected = format!("the sequence number behind {last}, which is the last of log file {file}");
    Err(record_error(position, &expected, record.first))
}

/// Checks that the oldest of the log files has records, if there are any behind a log that was begun later. The opening
/// that began the later log has kept the oldest file for the records in it. `first` is the file of the first record
/// that was found.
pub(crate) fn check_head(report: &RecoveryReport, logs: &[u64], first: Option<u64>) -> situ_storage::Result<()> {
    let (Some(oldest), Some(first)) = (logs.first(), first) else { return Ok(()) };
    match report.begun.iter().find(|begun| *oldest < **begun && **begun <= first) {
        None => Ok(()),
        Some(begun) => {
            let expected = format!("records, for which it was kept when log file {begun} was begun");
            Err(StorageError::corruption(FileName::Log(*oldest), 0, "records", expected, "none"))
        }
    }
}

/// Returns a log file, with an error, that a keyspace needs by the manifest and whose first page has no sound header.
/// The file was in use when the manifest got its number, so the page is no torn tail. The records behind it are lost.
pub(crate) fn check_in_use(report: &RecoveryReport, state: &StoreState) -> Option<(u64, StorageError)> {
    let is_needed = |number: &u64| state.keyspaces.values().any(|keyspace| keyspace.log_number == *number);
    report.headless.iter().find(|(number, _)| is_needed(number)).cloned()
}

/// Checks that the log of a store that was closed in order is whole. `closed` is its last file.
pub(crate) fn check_closed(report: &RecoveryReport, closed: u64) -> situ_storage::Result<()> {
    let (offset, found) = match &report.tail {
        Tail::Closed => return Ok(()),
        Tail::Empty => (0, "no page".to_owned()),
        Tail::Open { file, page, reason } => {
            (u64::from(*page) * PAGE_BYTES as u64, format!("an end in page {page} of log file {file} ({reason})"))
        }
    };
    let file = match &report.tail {
        Tail::Open { file, .. } => *file,
        _ => closed,
    };
    let expected = format!("a closing mark in log file {closed}, as the store was closed in order");
    Err(StorageError::corruption(FileName::Log(file), offset, "end of the log", expected, found))
}
