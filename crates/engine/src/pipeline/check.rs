//! The check at commit: nothing that the transaction locked, wrote or read for update has been changed since. A
//! collection of the value log writes its handles in the same way.
//!
//! Every such row has a sequence number, `since`: what the transaction relies on is the newest version at or below it.
//! The commit goes through if no version above it exists when it gets its own sequence numbers, under the commit lock.
//! Writes outside of transactions take no row locks, so this is what keeps them from slipping in between, for
//! pessimistic transactions, too.
//!
//! 1. **Published writes**, no lock held: the newest version of each row is looked up in memtables, and in tables that
//!    were written since. Rows of a `since` that is still the newest visible number need none of it.
//! 2. **Writes on their way**, which are in the log and not yet in memtables, and those published during the check:
//!    their batches are searched for the rows, no lock held, until few are left.
//! 3. **The rest** is searched under the commit lock: [`UNDER_LOCK_MAX`] operations at most. Then the sequence numbers
//!    are given out.
//!
//! **Cost.** Nothing for writes outside of transactions but one comparison as each is published. A commit pays a
//! memtable lookup for each row if anything was written since, and a binary search for each operation of others that is
//! on its way.
//!
//! **How far back.** As far as the transaction goes. It holds snapshots at its rows' numbers, so that compactions keep
//! the entries that show a change. A newer version is merged away only by a still newer one. A tombstone is merged away
//! only if the row did not exist at `since` either. (That row is as it was, and counts as unchanged.)
//!
//! **Bounded.** Requests that were published during checks are kept up to a megabyte; a check that finds older ones
//! forgotten looks into memtables again. With many rows that can take so long that as much is published meanwhile. So a
//! commit to which it happens twice takes its turn in the waiting room, where no other write overtakes it
//! (`situ-pipeline`).

use crate::base::sync::lock;
use crate::base::value::Key;
use crate::pipeline::{Commit, Memory, Obstacle, Request};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::snapshot::ReadPoint;
use crate::versions::version::TableFile;
use crate::versions::view::View;
use crate::{Error, Result};
use situ_pipeline::{Condition, Unchecked};
use situ_storage::Error as StorageError;
use situ_table::range_del::TombstoneIndex;
use situ_table::{KeyKind, Reach, ReadOptions as TableReadOptions, hash_key};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Operations of others that are searched under the commit lock: some ten microseconds.
const UNDER_LOCK_MAX: usize = 256;

/// A row to be checked.
#[derive(Debug, Clone)]
pub(crate) struct CheckedRow {
    pub(crate) keyspace: u32,
    pub(crate) key: Arc<[u8]>,
    pub(crate) since: u64,
}

/// The rows that remain to be checked before a commit may begin.
pub(crate) struct UncheckedRows {
    commitment: Arc<Commitment>,
    /// Requests behind those checked; none if memtables are to be looked at again.
    requests: Option<Vec<Arc<Request>>>,
    to: u64,
}

/// The data that a transaction's batch takes into the write path: the rows to check before it begins, and the holdings
/// to give back when it ends.
pub(crate) struct Commitment {
    memory: Arc<Memory>,
    /// By keyspace, then key.
    rows: Vec<CheckedRow>,
    keyspaces: Vec<Arc<KeyspaceCore>>,
    /// The sequence number up to which no row has changed. Written by the thread that has the batch in hands.
    checked_to: AtomicU64,
    is_registered: AtomicBool,
    held: Mutex<Option<Held>>,
}

/// The row locks of a transaction.
pub(crate) type Locks = Box<dyn Any + Send>;

/// The holdings that a transaction gives back when its commit is visible, or has failed.
struct Held {
    _locks: Locks,
    _snapshots: Vec<ReadPoint>,
    _lately: VecDeque<Arc<Request>>,
}

impl Commitment {
    /// `rows` ascend. `keyspaces` are theirs.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        rows: Vec<CheckedRow>,
        keyspaces: Vec<Arc<KeyspaceCore>>,
        locks: Locks,
        snapshots: Vec<ReadPoint>,
    ) -> Arc<Commitment> {
        debug_assert!(rows.is_sorted_by(|a, b| (a.keyspace, &a.key) < (b.keyspace, &b.key)));
        lock(&memory.commit).checks.begin(memory.versions.snapshots.visible());
        let held = Held { _locks: locks, _snapshots: snapshots, _lately: VecDeque::new() };
        Arc::new(Commitment {
            memory: Arc::clone(memory),
            rows,
            keyspaces,
            checked_to: AtomicU64::new(0),
            is_registered: AtomicBool::new(true),
            held: Mutex::new(Some(held)),
        })
    }

    fn conflict(&self, row: &CheckedRow) -> Error {
        self.memory.health.stats.counters.transaction_conflicts.add(1);
        let keyspace = self.memory.versions.keyspace_name(row.keyspace);
        Error::Conflict { keyspace, key: Key::copied(&row.key) }
    }

    fn rows_of(&self, keyspace: u32) -> &[CheckedRow] {
        let from = self.rows.partition_point(|row| row.keyspace < keyspace);
        let count = self.rows[from..].partition_point(|row| row.keyspace == keyspace);
        &self.rows[from..from + count]
    }

    fn row_changed_by(&self, request: &Request) -> Option<&CheckedRow> {
        request.batch().iter().find_map(|operation| {
            let before = |row: &CheckedRow| (row.keyspace, &row.key[..]) < (operation.keyspace, operation.key);
            let first = self.rows.get(self.rows.partition_point(before))?;
            let is_changed = match operation.kind {
                KeyKind::RangeDelete => &first.key[..] < operation.value,
                _ => &first.key[..] == operation.key,
            };
            (first.keyspace == operation.keyspace && is_changed).then_some(first)
        })
    }

    /// Step 1: looks at everything that is visible now, with no lock held. Returns false if tables would have to be
    /// read, and are not to be.
    pub(crate) fn check_published(&self, read_tables: bool) -> Result<bool> {
        // Under the lock nothing is published: all up to this number, and nothing above, has left the queue.
        let visible = {
            let _commit = lock(&self.memory.commit);
            self.memory.versions.snapshots.visible()
        };
        let checked_to = self.checked_to();
        for keyspace in &self.keyspaces {
            let view = keyspace.view.load();
            for row in self.rows_of(keyspace.id) {
                let since = row.since.max(checked_to);
                if since >= visible {
                    continue;
                }
                let changed = changed(&view, &row.key, since, visible, read_tables);
                match changed.inspect_err(|error| self.memory.versions.source.damaged.note(error))? {
                    Some(false) => {}
                    Some(true) => return Err(self.conflict(row)),
                    None => return Ok(false),
                }
            }
        }
        self.checked_to.store(visible, Ordering::Relaxed);
        // Here others may come in between; a simulator lets them.
        self.memory.env.executor.yield_point();
        Ok(true)
    }

    /// Returns the sequence number up to which nothing has changed a row.
    pub(crate) fn checked_to(&self) -> u64 {
        self.checked_to.load(Ordering::Relaxed)
    }
}

impl Condition<Memory> for Commitment {
    fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| (size_of::<CheckedRow>() + row.key.len()) as u64).sum()
    }

    /// Step 3.
    fn check_rest(self: Arc<Self>, commit: &mut Commit) -> Result<(), Obstacle> {
        let checked_to = self.checked_to.load(Ordering::Relaxed);
        let to = commit.last_sequence();
        let unchecked =
            |requests| Obstacle::Unchecked(Box::new(UncheckedRows { commitment: Arc::clone(&self), requests, to }));
        if checked_to < commit.checks.forgotten_to() {
            return Err(unchecked(None));
        }
        let newer = || commit.requests_behind(checked_to);
        let operations = newer().map(|request| request.batch().len()).sum::<usize>();
        if operations > UNDER_LOCK_MAX {
            return Err(unchecked(Some(newer().cloned().collect())));
        }
        if let Some(row) = newer().find_map(|request| self.row_changed_by(request)) {
            return Err(Obstacle::refused(self.conflict(row)));
        }
        self.checked_to.store(to, Ordering::Relaxed);
        Ok(())
    }

    fn begun(&self, commit: &mut Commit) {
        if self.is_registered.swap(false, Ordering::Relaxed) {
            let lately = commit.checks.end();
            if let Some(held) = &mut *lock(&self.held) {
                held._lately = lately;
            }
        }
    }

    /// Gives back the locks and snapshots.
    fn release(&self) {
        let held = lock(&self.held).take();
        drop(held);
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        if self.is_registered.swap(false, Ordering::Relaxed) {
            let lately = lock(&self.memory.commit).checks.end();
            drop(lately);
        }
    }
}

impl Unchecked<Memory> for UncheckedRows {
    fn may_read(&self) -> bool {
        self.requests.is_none()
    }

    /// Step 2: looks at what has come in between.
    fn look(self: Box<Self>) -> Result<()> {
        let commitment = &self.commitment;
        let Some(requests) = &self.requests else { return commitment.check_published(true).map(drop) };
        if let Some(row) = requests.iter().find_map(|request| commitment.row_changed_by(request)) {
            return Err(commitment.conflict(row));
        }
        commitment.checked_to.store(self.to, Ordering::Relaxed);
        commitment.memory.env.executor.yield_point();
        Ok(())
    }
}

/// Returns true if there is a version of `key` above `since`, and at or below `to`. Returns `None` if a table would
/// have to be read for the answer, and is not to be.
pub(crate) fn changed(view: &View, key: &[u8], since: u64, to: u64, read_tables: bool) -> Result<Option<bool>> {
    let hash = hash_key(key);
    for slot in view.slots().take_while(|slot| slot.last_sequence() > since) {
        let memtable = &slot.memtable;
        let covered = memtable.has_range_tombstones() && is_covered(&memtable.range_tombstones(), key, since, to);
        if covered || memtable.get(key, hash, to).is_some_and(|(trailer, _)| trailer.sequence() > since) {
            return Ok(Some(true));
        }
    }
    let reach = if read_tables { Reach::Disk } else { Reach::Cache };
    let options = TableReadOptions { reach, ..TableReadOptions::default() };
    let (level0, deeper) = view.version.levels.split_at(1);
    let level0 = level0[0].files.iter().filter(|file| file.meta.span.contains(key));
    let files = level0.chain(deeper.iter().filter_map(|level| level.find(key)));
    for file in files.filter(|file| file.meta.largest_sequence > since) {
        match changed_in_table(file, key, hash, since, to, &options) {
            Ok(false) => {}
            Ok(true) => return Ok(Some(true)),
            Err(StorageError::NotInMemory) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(false))
}

fn changed_in_table(
    file: &TableFile,
    key: &[u8],
    hash: u64,
    since: u64,
    to: u64,
    options: &TableReadOptions,
) -> Result<bool, StorageError> {
    let table = file.table_for(options)?;
    if file.meta.range_deletions > 0 && is_covered(table.tombstone_index(), key, since, to) {
        return Ok(true);
    }
    Ok(table.get(key, to, hash, options)?.is_some_and(|entry| entry.trailer.sequence() > since))
}

fn is_covered(tombstones: &TombstoneIndex, key: &[u8], since: u64, to: u64) -> bool {
    tombstones.covering(key, to).is_some_and(|tombstone| tombstone.sequence > since)
}
