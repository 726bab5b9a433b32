//! The value log in a repair.
//!
//! * With a manifest, segments that are missing leave it. Entries whose values are lost are left out of their tables,
//!   which are rewritten (`tables.rs`). An older version of such a key may be back, and the report names the key.
//! * With a manifest, a segment that is damaged is *emptied*: tables get its sound values, and the segment is set
//!   aside. A segment stays that the store's log leads to, as the log may have values that no table has. The report
//!   says so, and the next repair empties it.
//! * Without a manifest, handles name their segments. Each segment that is there and that a handle of a keyspace leads
//!   to belongs to this keyspace from then on. A segment that no handle leads to is set aside. An entry whose segment
//!   is missing, or whose value is damaged, stays as it is, and the report names its key. A read of the key is an error
//!   that names the segment, until a caller writes or deletes the key. The loss is not silent, as the right older
//!   version of the key cannot be known.
//!
//! Nothing is written to the value log: the records of the log become tables with whole values.

use super::Repair;
use super::report::{LossKind, LostRange};
use crate::base::batch::Record;
use crate::base::value::Value;
use crate::check::values::{Beside, for_each_lost_value};
use crate::opening::state::{KeyspaceState, StoreState};
use crate::versions::segments::{Pointer, Segments};
use crate::versions::version::TableFile;
use crate::{Error, Result};
use situ_compaction::KeySpan;
use situ_log::{RecoveryMode, recover};
use situ_storage::{Error as StorageError, FileName, Volume};
use situ_table::{KeyKind, KeyRef, MAX_SEQUENCE, Reach, ReadOptions, Table, hash_key};
use situ_values::Written;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// The size of the pieces in which tables are read.
pub(super) const READ_BYTES: usize = 64 << 10;

/// The treatment of a keyspace's entries whose values lie in the value log.
#[derive(Default)]
pub(super) struct ValueRescue {
    /// Entries whose values are lost: keys, and the bytes that tables have for the values.
    lost: BTreeMap<Vec<u8>, HashSet<Vec<u8>>>,
    /// Segments that are given up. Tables get the values of them that are sound.
    emptied: BTreeSet<u64>,
    /// All segments of the keyspace.
    segments: Segments,
}

impl ValueRescue {
    pub(super) fn is_lost(&self, key: &[u8], pointer: &[u8]) -> bool {
        self.lost.get(key).is_some_and(|pointers| pointers.contains(pointer))
    }

    /// Returns the keys whose lost entries are in a table.
    pub(super) fn lost_keys_in(&self, file: &TableFile, table: &Table) -> situ_storage::Result<Vec<Vec<u8>>> {
        let span = &file.meta.span;
        let mut keys = Vec::new();
        for (key, pointers) in self.lost.range(span.begin.clone()..span.end.clone()) {
            let found = table.get(key, MAX_SEQUENCE, hash_key(key), &ReadOptions::default())?;
            if found.is_some_and(|found| pointers.contains(&found.value[..])) {
                keys.push(key.clone());
            }
        }
        Ok(keys)
    }

    pub(super) fn emptied(&self) -> impl Iterator<Item = u64> {
        self.emptied.iter().copied()
    }

    /// Returns the bytes of the records in emptied segments to which handles of a table lead. Returns those of all
    /// these segments, if the table is damaged.
    pub(super) fn bytes_for(&self, file: &TableFile) -> u64 {
        if self.emptied.is_empty() {
            return 0;
        }
        let mut sums = BTreeMap::new();
        let is_emptied = |sum: &&Written| self.emptied.contains(&sum.segment);
        match file.table().and_then(|table| count_handles(&table, &mut sums)) {
            Ok(()) => sums.values().filter(is_emptied).map(|sum| sum.record_bytes).sum(),
            Err(_) => {
                self.emptied().filter_map(|number| Some(self.segments.find(number)?.written().record_bytes)).sum()
            }
        }
    }

    /// Returns the value that a table gets for an entry, if its segment is emptied.
    pub(super) fn rescued(&self, key: KeyRef<'_>, pointer: &[u8]) -> Result<Option<Value>> {
        let is_handle = key.trailer.kind() == Some(KeyKind::ValueHandle);
        match Pointer::decode(pointer).filter(|pointer| is_handle && self.emptied.contains(&pointer.handle.segment)) {
            Some(_) => self.segments.read(key.user, pointer, Reach::Disk).map(Some),
            None => Ok(None),
        }
    }
}

impl Repair {
    /// Takes segments that are not there out of a state that is known.
    ///
    /// The keyspaces that have segments, or had some, come back.
    pub(super) fn drop_missing_segments(&mut self, state: &mut StoreState) -> Result<BTreeSet<u32>> {
        let there = self.segments_found();
        let mut with_values = BTreeSet::new();
        for (id, keyspace) in &mut state.keyspaces {
            with_values.extend(Some(*id).filter(|_| !keyspace.version.segments.is_empty()));
            let segments = keyspace.version.segments.files().iter().map(|segment| segment.number);
            let missing: Vec<u64> = segments.filter(|number| !there.contains(number)).collect();
            let version = keyspace.version.clone().with_segments(&[], &missing, &self.salvager.source);
            keyspace.version = version.map_err(|text| unfit(keyspace, text))?;
        }
        Ok(with_values)
    }

    /// Returns the segments in which the value log has found damage. Each is reported as a damage.
    pub(super) fn damaged_segments(&mut self) -> Result<BTreeSet<u64>> {
        let damaged = self.salvager.source.values.log_if_open().map(|log| log.damaged()).unwrap_or_default();
        let numbers = damaged.iter().map(|(number, _)| *number).collect();
        for (number, error) in damaged {
            self.damage(FileName::Values(number), error)?;
        }
        Ok(numbers)
    }

    /// Returns the segments that handles of the store's log lead to.
    pub(super) fn logged_segments(&self, logs: &[u64]) -> Result<BTreeSet<u64>> {
        let mut sums = BTreeMap::new();
        add_logged_segments(&self.volume, logs, &mut sums)?;
        Ok(sums.into_values().flat_map(BTreeMap::into_keys).collect())
    }

    /// Returns the entries of a keyspace whose values are lost; each is reported as a damage. `damaged` segments are
    /// emptied, and those that have lost values, but for those that are `logged`.
    pub(super) fn value_rescue(
        &mut self,
        keyspace: &KeyspaceState,
        unsound: &HashSet<u64>,
        damaged: &BTreeSet<u64>,
        logged: &BTreeSet<u64>,
    ) -> Result<ValueRescue> {
        let segments = keyspace.version.segments.clone();
        let mut rescue = ValueRescue { segments, ..ValueRescue::default() };
        let mut errors = Vec::new();
        for_each_lost_value(&keyspace.version, unsound, Beside::Repair, &mut |value| {
            rescue.lost.entry(value.key.to_vec()).or_default().insert(value.pointer.to_vec());
            errors.push((Pointer::decode(value.pointer).map_or(0, |pointer| pointer.handle.segment), value.error));
        })?;
        let suspects: BTreeSet<u64> =
            errors.iter().map(|(segment, _)| *segment).chain(damaged.iter().copied()).collect();
        for segment in suspects.into_iter().filter(|number| rescue.segments.find(*number).is_some()) {
            if !logged.contains(&segment) {
                rescue.emptied.insert(segment);
                continue;
            }
            let name = FileName::Values(segment);
            let text =
                format!("{name} is damaged, and stays, as the store's log leads to it. Repair the store once more");
            self.report.notes.push(text);
        }
        for (segment, error) in errors {
            self.damage(FileName::Values(segment), error)?;
        }
        Ok(rescue)
    }

    /// Tells which keys of a state that was made from tables lead to values that are lost.
    ///
    /// `with_handles` are the keyspaces that have handles.
    pub(super) fn tell_lost_values(&mut self, state: &StoreState, with_handles: &BTreeSet<u32>) -> Result<()> {
        for (_, keyspace) in state.keyspaces.iter().filter(|(id, _)| with_handles.contains(id)) {
            for (_, file) in keyspace.version.files() {
                // It may have a temporary name yet.
                let table = self.salvager.open(file.meta.clone())?;
                for (key, segment, error) in lost_values(&table, &keyspace.version.segments)? {
                    self.damage(FileName::Values(segment), error)?;
                    let span = KeySpan { end: [&key[..], &[0]].concat(), begin: key };
                    let lost = LostRange::of(&keyspace.name, file.meta.number, LossKind::Entries, Some(&span));
                    self.report.lost_ranges.push(lost);
                }
            }
        }
        Ok(())
    }

    /// Finds the segments of a state that was made from tables, and sets the others aside. The keyspaces that have
    /// handles come back.
    pub(super) fn adopt_segments(&mut self, state: &mut StoreState, logs: &[u64]) -> Result<BTreeSet<u32>> {
        let there = self.segments_found();
        let mut with_handles = BTreeSet::new();
        let mut adopted = BTreeSet::new();
        let mut logged = BTreeMap::new();
        add_logged_segments(&self.volume, logs, &mut logged)?;
        for (id, keyspace) in &mut state.keyspaces {
            let mut sums = logged.remove(id).unwrap_or_default();
            for (_, file) in keyspace.version.files() {
                count_handles(&self.salvager.open(file.meta.clone())?, &mut sums)?;
            }
            with_handles.extend((!sums.is_empty()).then_some(*id));
            // A segment has one keyspace. Two may lead there if a table does not say which keyspace it is of.
            let is_free = |sum: &Written| there.contains(&sum.segment) && !adopted.contains(&sum.segment);
            let written: Vec<Written> = sums.into_values().filter(is_free).collect();
            adopted.extend(written.iter().map(|sum| sum.segment));
            let version = keyspace.version.clone().with_segments(&written, &[], &self.salvager.source);
            keyspace.version = version.map_err(|text| unfit(keyspace, text))?;
            keyspace.version.segments.note(&written, &[]);
        }
        if !adopted.is_empty() {
            let text = "the value log is used as the tables name it. Keys whose values are lost are named, and a read of such \
                        a key is an error. Write or delete these keys";
            self.report.notes.push(text.to_owned());
        }
        self.aside.extend(there.into_iter().filter(|number| !adopted.contains(number)).map(FileName::Values));
        Ok(with_handles)
    }

    fn segments_found(&self) -> BTreeSet<u64> {
        let number = |name| if let FileName::Values(number) = name { Some(number) } else { None };
        self.numbers(number).into_iter().collect()
    }
}

fn unfit(keyspace: &KeyspaceState, text: String) -> StorageError {
    StorageError::corruption(&keyspace.name, 0, "segments of a repaired version", "some that fit", text)
}

/// Returns the keys of a table that overlaps no other one whose newest version leads to a lost value; with the segment
/// and why.
fn lost_values(table: &Arc<Table>, segments: &Segments) -> Result<Vec<(Vec<u8>, u64, StorageError)>> {
    let mut cursor = table.sequential_cursor(READ_BYTES);
    let mut lost = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    cursor.first()?;
    while cursor.valid() {
        let KeyRef { user, trailer } = cursor.key();
        let is_newest = last.as_deref() != Some(user);
        let cover = table.tombstone_index().covering(user, MAX_SEQUENCE);
        if is_newest
            && trailer.kind() == Some(KeyKind::ValueHandle)
            && cover.is_none_or(|cover| cover.sequence <= trailer.sequence())
            && let Err(error) = segments.read(user, cursor.value(), Reach::Disk)
        {
            let segment = Pointer::decode(cursor.value()).map_or(0, |pointer| pointer.handle.segment);
            match error {
                Error::Storage(error) => lost.push((user.to_vec(), segment, error)),
                error => return Err(error),
            }
        }
        if is_newest {
            last = Some(user.to_vec());
        }
        cursor.next()?;
    }
    Ok(lost)
}

/// Adds the handles of a table, by segment.
fn count_handles(table: &Arc<Table>, sums: &mut BTreeMap<u64, Written>) -> situ_storage::Result<()> {
    let mut cursor = table.sequential_cursor(READ_BYTES);
    cursor.first()?;
    while cursor.valid() {
        if cursor.key().trailer.kind() == Some(KeyKind::ValueHandle) {
            count_handle(cursor.value(), sums);
        }
        cursor.next()?;
    }
    Ok(())
}

fn count_handle(pointer: &[u8], sums: &mut BTreeMap<u64, Written>) {
    let Some(Pointer { handle, .. }) = Pointer::decode(pointer) else { return };
    let segment = handle.segment;
    let sum = sums.entry(segment).or_insert(Written { segment, records: 0, record_bytes: 0 });
    (sum.records, sum.record_bytes) = (sum.records + 1, sum.record_bytes + handle.footprint());
}

/// Adds the segments that handles of the log lead to, by keyspace. The handles do not count: tables may have them, too.
/// Damaged records are left out.
fn add_logged_segments(
    volume: &Arc<dyn Volume>,
    logs: &[u64],
    sums: &mut BTreeMap<u32, BTreeMap<u64, Written>>,
) -> Result<()> {
    recover(volume, logs, RecoveryMode::Repair, &mut |_, bytes| {
        let record = Record::decode(bytes).ok();
        let operations = record.iter().flat_map(|record| record.operations());
        for operation in operations.filter(|operation| operation.kind == KeyKind::ValueHandle) {
            let Some(Pointer { handle, .. }) = Pointer::decode(operation.value) else { continue };
            let segment = handle.segment;
            let sums = sums.entry(operation.keyspace).or_default();
            sums.entry(segment).or_insert(Written { segment, records: 0, record_bytes: 0 });
        }
        Ok(())
    })?;
    Ok(())
}
