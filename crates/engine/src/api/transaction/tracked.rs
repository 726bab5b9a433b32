//! The rows that a transaction relies on, and the proof at commit that they have not changed.
//!
//! The proof is the newest version of each row (`check.rs`), which compactions keep as long as a snapshot is held at
//! the row's `since`. Under snapshot isolation there is one, the transaction's. Under read committed, `since` is the
//! newest visible number when the row is tracked, and a snapshot is held at each of these numbers. When there are many,
//! the transaction checks that all rows are unchanged, and moves them to the present. Their `since` is the same number
//! then, and one snapshot is enough.

use crate::Result;
use crate::api::keyspace::Keyspace;
use crate::core::Core;
use crate::pipeline::check::{CheckedRow, changed};
use crate::rows::locks::LockMode;
use crate::rows::locks::Row;
use crate::versions::snapshot::ReadPoint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of snapshots that are held before rows are moved, in addition to one for every second row. So each row is
/// moved a few times at most, whatever the number of rows.
const SNAPSHOTS_MIN: usize = 64;

/// The memory of a row in addition to its key: places in maps, here and among the locks, and its part of a snapshot.
const ROW_BYTES: usize = 240;

/// Returns the memory that counts for a row.
pub(crate) fn bytes_of(key_bytes: usize) -> u64 {
    (ROW_BYTES + key_bytes) as u64
}

struct TrackedRow {
    mode: LockMode,
    since: u64,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Tracked {
    rows: BTreeMap<u32, BTreeMap<Arc<[u8]>, TrackedRow>>,
    count: usize,
    bytes: u64,
    /// At every `since` of a row, under read committed; ascending.
    snapshots: Vec<ReadPoint>,
    /// The number of snapshots above which rows are moved, if an earlier move was not possible.
    snapshots_max: usize,
    /// Rows added since there is a savepoint.
    recent: Vec<Row>,
}

impl Tracked {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the mode in which a row is tracked, if it is.
    pub(crate) fn mode(&self, keyspace: u32, key: &[u8]) -> Option<LockMode> {
        Some(self.rows.get(&keyspace)?.get(key)?.mode)
    }

    pub(crate) fn set_mode(&mut self, row: &Row, mode: LockMode) {
        if let Some(tracked) = self.rows.get_mut(&row.keyspace).and_then(|rows| rows.get_mut(&row.key)) {
            tracked.mode = tracked.mode.max(mode);
        }
    }

    /// Adds a row. `remembers`: a rollback to a savepoint may take it back.
    pub(crate) fn add(&mut self, row: Row, mode: LockMode, since: u64, remembers: bool) {
        self.bytes += bytes_of(row.key.len());
        self.count += 1;
        self.rows.entry(row.keyspace).or_default().insert(Arc::clone(&row.key), TrackedRow { mode, since });
        if remembers {
            self.recent.push(row);
        }
    }

    pub(crate) fn recent(&self) -> usize {
        self.recent.len()
    }

    /// Forgets the rows behind the first `count` of those that may be taken back.
    pub(crate) fn take_back(&mut self, count: usize) {
        for row in self.recent.split_off(count) {
            let removed = self.rows.get_mut(&row.keyspace).and_then(|rows| rows.remove(&row.key));
            if removed.is_some() {
                self.bytes -= bytes_of(row.key.len());
                self.count -= 1;
            }
        }
    }

    pub(crate) fn forget_past(&mut self) {
        self.recent = Vec::new();
    }

    /// Returns the newest visible sequence number, with a snapshot at it; or a row that has changed, if all had to be
    /// looked at. Reads no tables.
    pub(crate) fn present(
        &mut self,
        core: &Arc<Core>,
        keyspaces: &BTreeMap<u32, Keyspace>,
    ) -> Result<Result<u64, Row>> {
        let visible = core.versions.snapshots.visible();
        if let Some(newest) = self.snapshots.last().map(ReadPoint::sequence)
            && newest >= visible
        {
            return Ok(Ok(newest));
        }
        if self.snapshots.len() >= self.snapshots_max.max(SNAPSHOTS_MIN + self.count / 2)
            && let Some(changed) = self.move_to_present(core, keyspaces)?
        {
            return Ok(Err(changed));
        }
        let snapshot = ReadPoint::take(&core.versions.snapshots);
        let since = snapshot.sequence();
        self.snapshots.push(snapshot);
        Ok(Ok(since))
    }

    /// Finds all rows unchanged, and needs one snapshot for them from then on. If it would have to read tables for that
    /// it leaves all as it is.
    fn move_to_present(&mut self, core: &Arc<Core>, keyspaces: &BTreeMap<u32, Keyspace>) -> Result<Option<Row>> {
        let snapshot = ReadPoint::take(&core.versions.snapshots);
        let to = snapshot.sequence();
        for (id, rows) in &self.rows {
            let Some(keyspace) = keyspaces.get(id) else { continue };
            let view = keyspace.inner.view.load();
            for (key, row) in rows {
                match changed(&view, key, row.since, to, false)? {
                    Some(false) => {}
                    Some(true) => return Ok(Some(Row { keyspace: *id, key: Arc::clone(key) })),
                    None => {
                        self.snapshots_max = 2 * self.snapshots.len();
                        return Ok(None);
                    }
                }
            }
        }
        self.rows.values_mut().flat_map(BTreeMap::values_mut).for_each(|row| row.since = to);
        self.snapshots = vec![snapshot];
        self.snapshots_max = 0;
        Ok(None)
    }

    /// Returns all rows in order, and the snapshots that have to be held until they are checked.
    pub(crate) fn into_rows(self) -> (Vec<CheckedRow>, Vec<ReadPoint>) {
        let rows = self.rows.into_iter().flat_map(|(keyspace, rows)| {
            rows.into_iter().map(move |(key, row)| CheckedRow { keyspace, key, since: row.since })
        });
        (rows.collect(), self.snapshots)
    }
}
