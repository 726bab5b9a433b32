//! Collection of the value log: what is alive of a segment moves, and the segment goes.
//!
//! 1. The value log names a victim, when dead values take too much (`situ-values`). Nothing of it may belong to a flush
//!    under way.
//! 2. It walks over the victim's values. A value is alive if the newest version of its key is the handle of this very
//!    value.
//! 3. Live values are appended to a segment of the collector and synced. An edit adds that segment. Then one write puts
//!    the new handles in the place of the old ones. The write has a condition (`pipeline/check.rs`): no key has a newer
//!    version than the one that was looked at. If one has, the write is tried again without what is not alive any more.
//! 4. The victim waits until no reader can ask for its values. Then an edit removes it, and its last holder deletes it.
//!
//! **When a victim goes.** Three things hold it. A snapshot from before step 3 has ended may see an old handle. A view
//! from before the edit of step 4 holds the segment itself. And a crash must not bring old handles back. The values
//! that were newest in step 2, and the handles of step 3, have to be in tables first. If nothing else is left to do,
//! the collector seals the memtable for that.
//!
//! **Invariants.** The newest version of a key in the tables never leads to a segment that is gone. So a store that has
//! lost its log has lost no more than the writes in it. A segment that has handles in a memtable or in the log is in
//! the manifest.
//!
//! **Threads.** One, `situ-values`, in stores that have a value log. It is paced as compactions are.
//!
//! **Failure.** The victim stays, and the values that have moved are dead in it. Copies that no handle leads to are
//! counted as dead. The next collection goes on in the same segment. A crash does the same, but for the segment. A
//! value that is alive and damaged keeps its segment, and so does a table that cannot say whether a value is alive, and
//! a segment that the disk does not give. Such a segment is set aside until the store is opened again. It is reported
//! as damage, and the other segments go on.
//!
//! **Rejected**: moving values when a compaction meets their handles, as RocksDB does. The files of a task would depend
//! on who runs the task and when. A segment would wait until compactions have met all of its handles.

use crate::base::batch::WriteBatch;
use crate::base::options::Durability;
use crate::base::sync::{OnDrop, lock};
use crate::pipeline::check::{CheckedRow, Commitment};
use crate::pipeline::no_room::{Level0, NoRoom};
use crate::pipeline::space::Promise;
use crate::pipeline::write::write_numbered;
use crate::pipeline::{Memory, Pipeline};
use crate::read::get::{Found, Lookup};
use crate::versions::edit::Edit;
use crate::versions::editor::Change;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::segments::Pointer;
use crate::versions::snapshot::ReadPoint;
use crate::versions::view::{MemtableSlot, View};
use crate::work::pacer::Pacer;
use crate::work::separate::bounds;
use crate::work::turn::Turn;
use crate::{Error, Result};
use situ_compaction::DroppedValues;
use situ_pipeline::{Condition, SpaceUse, Write};
use situ_storage::{Error as StorageError, FileName, Result as StorageResult};
use situ_table::{KeyKind, ReadOptions as TableReadOptions};
use situ_values::{Handle, Moved, Owner, Phase, SegmentInfo, ValueLog, ValueWriter, Walked, Written};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The time between the collector's looks for snapshots that still hold a collected segment.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The maximum number of parts trimmed before a collection: a part has some thousand sectors to look at.
const TIDY_PARTS_MAX: usize = 256;

/// The collections of a store. See the module's documentation.
pub(crate) struct Collections {
    memory: Arc<Memory>,
    pipeline: Arc<Pipeline>,
    pacer: Arc<Pacer>,
    state: Mutex<State>,
    /// The collector is at a segment. Between two looks at what there is to do, it may be seen neither here nor there.
    is_running: AtomicBool,
}

/// The collector's state from one turn to the next.
#[derive(Default)]
struct State {
    waiting: Vec<Collected>,
    /// Memtables that the collector has tried to seal, and when.
    tried: Vec<(Weak<MemtableSlot>, Duration)>,
}

/// A segment in which nothing is alive.
struct Collected {
    keyspace: Arc<KeyspaceCore>,
    number: u64,
    /// The moment from which readers ask for nothing in it.
    since: u64,
    /// Memtables with versions that hide its values.
    slots: Vec<Weak<MemtableSlot>>,
}

impl Collected {
    fn is_in_tables(&self) -> bool {
        !self.keyspace.view.load().slots().any(|slot| is_one_of(slot, &self.slots))
    }

    /// Returns true if no snapshot asks for its values.
    fn is_unseen(&self, oldest: Option<u64>) -> bool {
        oldest.is_none_or(|oldest| oldest >= self.since)
    }
}

fn is_one_of(slot: &Arc<MemtableSlot>, slots: &[Weak<MemtableSlot>]) -> bool {
    slots.iter().any(|other| Weak::as_ptr(other) == Arc::as_ptr(slot))
}

impl Collections {
    pub(crate) fn new(memory: &Arc<Memory>, pipeline: &Arc<Pipeline>, pacer: &Arc<Pacer>) -> Collections {
        let (memory, pipeline, pacer) = (Arc::clone(memory), Arc::clone(pipeline), Arc::clone(pacer));
        Collections { memory, pipeline, pacer, state: Mutex::default(), is_running: AtomicBool::new(false) }
    }

    /// Removes what can go, collects a segment, or does a part of what the value log has put off.
    pub(crate) fn turn(&self) -> Result<Turn> {
        let Some(log) = self.memory.versions.source.values.log_if_open().cloned() else { return Ok(Turn::Idle) };
        self.is_running.store(true, Ordering::Release);
        let _ended = OnDrop(|| self.is_running.store(false, Ordering::Release));
        // First: trimming takes no space, and a collection may take much of it. Nor need what is trimmed be collected.
        let tidied = self.tidy_much(&log);
        let collected = self.remove_or_collect(&log);
        if collected.is_err() {
            self.tidy_after_failure(&log, tidied);
        } else if tidied? {
            return Ok(Turn::Done);
        }
        if collected? {
            return Ok(Turn::Done);
        }
        self.seal_for_collections()?;
        Ok(Turn::Idle)
    }

    /// Tidies the value log for a while. Returns true if there may be more to do now.
    fn tidy_much(&self, log: &ValueLog) -> Result<bool> {
        for _ in 0..TIDY_PARTS_MAX {
            if self.memory.health.is_closing() || !tidy(log)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn remove_or_collect(&self, log: &Arc<ValueLog>) -> Result<bool> {
        Ok(self.remove_collected()? || self.collect_one(log)?)
    }

    /// Tidies after a collection that has failed, as a full disk may be the cause. The thread rests now, so all that
    /// gives space back is done first.
    fn tidy_after_failure(&self, log: &ValueLog, before: Result<bool>) {
        let mut tidied = before;
        while !self.memory.health.is_closing() && matches!(tidied, Ok(true)) {
            tidied = tidy(log);
        }
        if let Err(error) = tidied {
            self.memory.health.note_job_failure("trim values", error);
        }
    }

    /// Returns how long the collector may sleep.
    pub(crate) fn next_look_in(&self) -> Option<Duration> {
        (!lock(&self.state).waiting.is_empty()).then_some(LOOK_AGAIN)
    }

    /// Returns true if a segment is to be trimmed or collected, or could be removed but for data in memory.
    pub(crate) fn has_work(&self) -> bool {
        let Some(log) = self.memory.versions.source.values.log_if_open() else { return false };
        // First: what runs shows itself in one of the two when it has ended.
        if self.is_running.load(Ordering::Acquire) {
            return true;
        }
        let oldest = self.memory.versions.snapshots.oldest();
        let state = lock(&self.state);
        let is_waiting = state.waiting.iter().any(|collected| collected.is_unseen(oldest));
        drop(state);
        is_waiting
            || log.has_trims()
            || log.victim_among(&|number| self.may_collect(number).is_some()).is_some()
            || self.is_running.load(Ordering::Acquire)
    }

    /// Returns the keyspace of a segment; `None` if the segment is not to be collected now.
    fn may_collect(&self, number: u64) -> Option<Arc<KeyspaceCore>> {
        if self.memory.versions.source.values.is_being_written(number) {
            return None;
        }
        let keyspaces = self.memory.versions.keyspaces().into_iter();
        keyspaces.filter(|keyspace| keyspace.view.load().version.segments.find(number).is_some()).last()
    }

    fn collect_one(&self, log: &Arc<ValueLog>) -> Result<bool> {
        let Some(victim) = log.victim_among(&|number| self.may_collect(number).is_some()) else { return Ok(false) };
        let Some(keyspace) = self.may_collect(victim.number) else { return Ok(true) };
        match self.collect(log, &keyspace, &victim) {
            // Its keyspace was dropped meanwhile. If not, its readers tell what is missing.
            Err(Error::Storage(StorageError::NotFound { .. })) => log.set_aside(victim.number),
            Err(error) if will_stay(&error, victim.number) => {
                log.set_aside(victim.number);
                self.memory.health.note_job_failure("collect values", error);
            }
            collected => collected?,
        }
        Ok(true)
    }

    fn collect(&self, log: &Arc<ValueLog>, keyspace: &Arc<KeyspaceCore>, victim: &SegmentInfo) -> Result<()> {
        let number = victim.number;
        let _promise = self.room_to_collect(keyspace, victim.live_bytes())?;
        let kept = lock(&keyspace.collected_values).take();
        let mut writer = kept.unwrap_or_else(|| log.collecting_writer());
        let mut mover = Mover::new(self, keyspace);
        let first_new = self.memory.versions.next_file.load(Ordering::Relaxed);
        let collected = log.collect(number, &mut writer, &mut mover);
        let Mover { listed, unused, failure, .. } = mover;
        self.keep_writer(keyspace, writer);
        let noted = self.note_unused(keyspace, unused);
        if let Err(error) = collected {
            self.give_up_unlisted(log, first_new, &listed);
            // The error that the caller of a failed write gets says more. If the sums could not be noted, the store has
            // failed, too.
            return Err(failure.unwrap_or_else(|| error.into()));
        }
        noted?;
        // The view comes after the number: what was newest up to the number is in its memtables, or in tables.
        let since = self.memory.versions.snapshots.visible();
        let view = keyspace.view.load();
        let slots = view.slots().filter(|slot| !slot.is_empty()).map(Arc::downgrade).collect();
        let collected = Collected { keyspace: Arc::clone(keyspace), number, since, slots };
        let mut state = lock(&self.state);
        assert!(state.waiting.iter().all(|other| other.number != number), "segment {number} is collected twice");
        state.waiting.push(collected);
        Ok(())
    }

    /// Asks for what a collection needs before it copies anything: the handles go to a memtable, the copies to the
    /// drive.
    ///
    /// # Errors
    /// There is no room, and the time when there will be is unknown.
    fn room_to_collect(&self, keyspace: &Arc<KeyspaceCore>, live_bytes: u64) -> Result<Option<Promise>> {
        if live_bytes == 0 {
            return Ok(None);
        }
        let view = keyspace.view.load_full();
        if view.active.bytes() >= keyspace.options.memtable_bytes / 4 * 3 {
            if !keyspace.has_memtable(&view, self.memory.switch.memtables_max(keyspace)) {
                self.memory.remove_obstacle(NoRoom::MemtablesFull { keyspace: Arc::clone(keyspace) })?;
            } else if !keyspace.has_level0(&view) {
                self.memory.remove_obstacle(NoRoom::Level0Full { keyspace: Arc::clone(keyspace) })?;
            }
        }
        match self.memory.space.takes(live_bytes, || SpaceUse::Deletion) {
            Some(true) => {}
            Some(false) => self.memory.space.make_way(live_bytes, SpaceUse::Deletion).map_err(Error::from)?,
            None => return Err(self.memory.space.shortage(live_bytes).into()),
        }
        Ok(Some(self.memory.space.promise(live_bytes, live_bytes).map_err(Error::from)?))
    }

    /// Keeps the writer, so that the next collection goes on in its segment, also after one that has failed. A writer
    /// that has failed itself is given up, and so is one whose segment is in no version.
    fn keep_writer(&self, keyspace: &KeyspaceCore, writer: ValueWriter) {
        let is_listed = |number| keyspace.view.load().version.segments.find(number).is_some();
        if !writer.has_failed() && writer.segment().is_none_or(is_listed) {
            *lock(&keyspace.collected_values) = Some(writer);
        }
        // The thread that has dropped the keyspace has taken the writer before it was put back.
        if keyspace.dropped.load(Ordering::Acquire) {
            keyspace.give_up_value_writers();
        }
    }

    /// Notes the values that were moved, and died before a table or a memtable had their new handles.
    fn note_unused(&self, keyspace: &Arc<KeyspaceCore>, unused: BTreeMap<u64, DroppedValues>) -> Result<()> {
        if unused.is_empty() {
            return Ok(());
        }
        let mut editor = self.memory.versions.edit()?;
        let version = Arc::clone(&keyspace.view.load().version);
        let dead = version.segments.counted(&unused.into_values().collect::<Vec<_>>());
        if dead.is_empty() {
            return Ok(());
        }
        let values_dead = dead.iter().map(|dead| (keyspace.id, *dead)).collect();
        editor.apply(Edit { values_dead, ..Edit::default() }, || version.segments.note(&[], &dead))
    }

    /// Removes the collected segments for which no reader can ask. Returns false if there is none.
    fn remove_collected(&self) -> Result<bool> {
        let oldest = self.memory.versions.snapshots.oldest();
        let may_go = |collected: &Collected| collected.is_unseen(oldest) && collected.is_in_tables();
        let mut going: BTreeMap<u32, (Arc<KeyspaceCore>, Vec<u64>)> = BTreeMap::new();
        for collected in lock(&self.state).waiting.iter().filter(|collected| may_go(collected)) {
            let entry = going.entry(collected.keyspace.id);
            entry.or_insert_with(|| (Arc::clone(&collected.keyspace), Vec::new())).1.push(collected.number);
        }
        let has_some = !going.is_empty();
        going.into_values().try_for_each(|(keyspace, numbers)| self.remove_segments(&keyspace, &numbers))?;
        Ok(has_some)
    }

    fn remove_segments(&self, keyspace: &Arc<KeyspaceCore>, numbers: &[u64]) -> Result<()> {
        let mut editor = self.memory.versions.edit()?;
        let before = Arc::clone(&keyspace.view.load().version);
        let in_force: BTreeSet<u64> =
            numbers.iter().copied().filter(|number| before.segments.find(*number).is_some()).collect();
        let in_force: Vec<u64> = in_force.into_iter().collect();
        // They went with their keyspace, otherwise.
        if !keyspace.dropped.load(Ordering::Acquire) && !in_force.is_empty() {
            editor.change(keyspace, Change { segments_removed: in_force, ..Change::default() })?;
        }
        drop((editor, before));
        lock(&self.state).waiting.retain(|collected| !numbers.contains(&collected.number));
        self.memory.work.notify();
        Ok(())
    }

    /// Seals the memtables that keep collected segments, so that their data goes to tables. Called when nothing else is
    /// to be done.
    fn seal_for_collections(&self) -> Result<()> {
        let oldest = self.memory.versions.snapshots.oldest();
        let keyspaces: Vec<_> = {
            let mut state = lock(&self.state);
            let State { waiting, tried, .. } = &mut *state;
            // An attempt wakes this thread, so it has to wait for the next one. Level 0 may have had no room.
            let now = self.memory.env.clock.now();
            tried.retain(|(slot, at)| slot.strong_count() > 0 && now < *at + LOOK_AGAIN);
            let in_the_way = |collected: &&Collected| {
                let active = Arc::clone(&collected.keyspace.view.load().active);
                let is_due = collected.is_unseen(oldest) && is_one_of(&active, &collected.slots);
                let is_new = is_due && !tried.iter().any(|(slot, _)| Weak::as_ptr(slot) == Arc::as_ptr(&active));
                tried.extend(is_new.then(|| (Arc::downgrade(&active), now)));
                is_new
            };
            waiting.iter().filter(in_the_way).map(|collected| Arc::clone(&collected.keyspace)).collect()
        };
        for keyspace in keyspaces {
            match self.memory.try_seal(&keyspace, Level0::Heeded) {
                Ok(_) | Err(Error::KeyspaceDropped { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes the segments that a failed collection has begun, and that no version has got. They have numbers from
    /// `first_new` on. A segment that a version has had is its holders' to delete.
    fn give_up_unlisted(&self, log: &ValueLog, first_new: u64, listed: &BTreeSet<u64>) {
        let values = &self.memory.versions.source.values;
        // In this order: a flush has its segments in the version before it says that it has ended.
        let ended = log.segments().into_iter().filter(|segment| segment.phase != Phase::Open);
        let is_own =
            |number: &u64| *number >= first_new && !listed.contains(number) && !values.is_being_written(*number);
        let ended: Vec<u64> = ended.map(|segment| segment.number).filter(is_own).collect();
        let views: Vec<_> = self.memory.versions.keyspaces().iter().map(|keyspace| keyspace.view.load_full()).collect();
        let is_listed = |number: &u64| views.iter().any(|view| view.version.segments.find(*number).is_some());
        ended.iter().filter(|number| !is_listed(number)).for_each(|number| values.add(*number));
    }
}

/// Returns true if another collection of the segment would fail in the same way, until the operator has looked at the
/// disk.
fn will_stay(error: &Error, number: u64) -> bool {
    match error {
        Error::Storage(error @ StorageError::Io { op: "read", path, .. }) => {
            !error.is_unreachable() && path.contains(&FileName::Values(number).to_string())
        }
        error => error.is_corruption(),
    }
}

/// Does a part of what the value log has put off. The flusher may delete a segment meanwhile: then there is nothing to
/// do for it.
fn tidy(log: &ValueLog) -> Result<bool> {
    match log.tidy() {
        Err(StorageError::NotFound { .. }) => Ok(true),
        tidied => Ok(tidied?),
    }
}

/// A moment at which liveness is judged.
struct Moment {
    snapshot: ReadPoint,
    view: Arc<View>,
}

/// The engine, as the value log asks it.
struct Mover<'a> {
    of: &'a Collections,
    keyspace: &'a Arc<KeyspaceCore>,
    prefix_bytes: usize,
    moment: Option<Moment>,
    /// The first bytes of the values that were found alive and have not been handed over.
    prefixes: VecDeque<Vec<u8>>,
    /// Segments that were added to the version.
    listed: BTreeSet<u64>,
    /// Moved values that nothing leads to, by segment.
    unused: BTreeMap<u64, DroppedValues>,
    /// The error with which the owner has ended the collection.
    failure: Option<Error>,
}

/// A value's present handle, and its new one.
struct Replacement {
    key: Vec<u8>,
    from: Handle,
    to: Handle,
    prefix: Vec<u8>,
}

impl<'a> Mover<'a> {
    fn new(of: &'a Collections, keyspace: &'a Arc<KeyspaceCore>) -> Mover<'a> {
        let prefix_bytes = bounds(&keyspace.options).map_or(0, |(_, prefix_bytes)| prefix_bytes);
        let (prefixes, unused) = (VecDeque::new(), BTreeMap::new());
        let (moment, listed, failure) = (None, BTreeSet::new(), None);
        Mover { of, keyspace, prefix_bytes, moment, prefixes, listed, unused, failure }
    }

    fn check_wanted(&self) -> Result<()> {
        match self.of.memory.health.failure() {
            Some(error) => Err(error),
            None if self.of.memory.health.is_closing() => Err(Error::Closed),
            None if self.keyspace.dropped.load(Ordering::Acquire) => {
                Err(Error::KeyspaceDropped { name: self.keyspace.name.clone() })
            }
            None => Ok(()),
        }
    }

    /// Returns true if the entry of a key is this handle.
    fn found(&mut self, key: &[u8], handle: &Handle) -> Result<bool> {
        let (versions, keyspace) = (&self.of.memory.versions, self.keyspace);
        // A view that comes after the snapshot has all that the snapshot sees.
        let moment = self.moment.get_or_insert_with(|| {
            let snapshot = ReadPoint::take(&versions.snapshots);
            Moment { snapshot, view: keyspace.view.load_full() }
        });
        let options = TableReadOptions { fill_cache: false, ..TableReadOptions::default() };
        let found = Lookup::new(key, moment.snapshot.sequence(), options).pointer(&moment.view)?;
        let leads_to = |found: &Found| Pointer::decode(&found.pointer).is_some_and(|found| found.handle == *handle);
        Ok(found.as_ref().is_some_and(leads_to))
    }

    /// Notes the failure of the engine, and ends the collection.
    fn ended<T>(&mut self, result: Result<T>) -> StorageResult<T> {
        result.map_err(|error| {
            let told = StorageError::Invalid(format!("the collection was ended: {error}"));
            self.failure = Some(error);
            told
        })
    }

    fn hand_over(&mut self, moved: &[Moved]) -> Result<()> {
        if let Err(error) = self.check_wanted().and_then(|()| self.add_segments(moved)) {
            // No edit counts them.
            let log = self.of.memory.versions.source.values.log_if_open();
            let moved = log.into_iter().flat_map(|log| moved.iter().map(move |moved| (log, &moved.to)));
            moved.for_each(|(log, to)| log.add_dead(to.segment, to.footprint()));
            return Err(error);
        }
        assert!(moved.iter().all(|m| m.from.segment != m.to.segment), "values move within their segment: {moved:?}");
        self.listed.extend(moved.iter().map(|moved| moved.to.segment));
        let mut replacements = Vec::with_capacity(moved.len());
        for Moved { key, from, to, .. } in moved {
            let prefix = self.prefixes.pop_front().expect("each value that was found alive has a prefix");
            replacements.push(Replacement { key: key.clone(), from: *from, to: *to, prefix });
        }
        self.of.pacer.pace(moved.iter().map(|moved| moved.to.footprint()).sum());
        self.replace(replacements)
    }

    /// Makes the segments part of the version that values have moved to.
    fn add_segments(&self, moved: &[Moved]) -> Result<()> {
        let mut sums: BTreeMap<u64, Written> = BTreeMap::new();
        for Handle { segment, .. } in moved.iter().map(|moved| moved.to) {
            sums.entry(segment).or_insert(Written { segment, records: 0, record_bytes: 0 }).records += 1;
        }
        for to in moved.iter().map(|moved| moved.to) {
            sums.entry(to.segment).and_modify(|sum| sum.record_bytes += to.footprint());
        }
        let written: Vec<Written> = sums.into_values().collect();
        let mut editor = self.of.memory.versions.edit()?;
        self.check_wanted()?;
        editor.change(self.keyspace, Change { written, ..Change::default() }).map(drop)
    }

    /// Writes the new handles of what is still alive. Where another writer has written meanwhile, the rest is tried in
    /// halves. Each part is written under the condition that nothing has changed since the moment at which this part
    /// was judged.
    fn replace(&mut self, all: Vec<Replacement>) -> Result<()> {
        let Some(judged_at) = self.moment.take().map(|moment| moment.snapshot) else { return Ok(()) };
        let mut left = vec![(all, judged_at)];
        while let Some((mut some, judged_at)) = left.pop() {
            let has_conflict = match self.write(&some, &judged_at) {
                Err(Error::Conflict { .. }) => self.retain_live(&mut some).map(|()| true),
                written => written.map(|()| false),
            };
            match has_conflict {
                Ok(false) => {}
                Ok(true) => {
                    let Some(judged_at) = self.moment.take().map(|moment| moment.snapshot) else { continue };
                    let half = some.split_off(some.len() / 2);
                    let parts = [some, half].into_iter().filter(|some| !some.is_empty());
                    left.extend(parts.map(|some| (some, judged_at.clone())));
                }
                Err(error) => {
                    left.push((some, judged_at));
                    left.iter().flat_map(|(some, _)| some).for_each(|replacement| self.leave_unused(&replacement.to));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Counts a copy that nothing leads to.
    fn leave_unused(&mut self, to: &Handle) {
        let segment = to.segment;
        let sum = self.unused.entry(segment).or_insert(DroppedValues { segment, handles: 0, bytes: 0 });
        (sum.handles, sum.bytes) = (sum.handles + 1, sum.bytes + to.footprint());
    }

    /// Leaves out what is dead by now. After an error all of them are still there.
    fn retain_live(&mut self, some: &mut Vec<Replacement>) -> Result<()> {
        self.check_wanted()?;
        self.moment = None;
        let found = some.iter().map(|replacement| self.found(&replacement.key, &replacement.from));
        let found = found.collect::<Result<Vec<bool>>>()?;
        for (replacement, is_live) in std::mem::take(some).into_iter().zip(found) {
            match is_live {
                true => some.push(replacement),
                false => self.leave_unused(&replacement.to),
            }
        }
        Ok(())
    }

    fn write(&self, some: &[Replacement], judged_at: &ReadPoint) -> Result<()> {
        let (of, id, since) = (self.of, self.keyspace.id, judged_at.sequence());
        let mut batch = WriteBatch::new();
        let mut pointer = Vec::new();
        for Replacement { key, to, prefix, .. } in some {
            pointer.clear();
            Pointer::append(to, prefix, &mut pointer);
            batch.push(KeyKind::ValueHandle, id, key, Some(&pointer))?;
        }
        let row = |replacement: &Replacement| CheckedRow { keyspace: id, key: replacement.key[..].into(), since };
        let mut rows: Vec<CheckedRow> = some.iter().map(row).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        let (keyspaces, snapshots) = (vec![Arc::clone(self.keyspace)], vec![judged_at.clone()]);
        let commitment = Commitment::new(&of.memory, rows, keyspaces, Box::new(()), snapshots);
        commitment.check_published(true)?;
        let write = Write::new(batch, Some(commitment as Arc<dyn Condition<_>>));
        write_numbered(&of.pipeline, write, Durability::Buffered).map(drop)
    }
}

impl Owner for Mover<'_> {
    fn is_live(&mut self, record: &Walked<'_>) -> StorageResult<bool> {
        let wanted = self.check_wanted();
        self.ended(wanted)?;
        if record.tag != u64::from(self.keyspace.id) {
            return Ok(false);
        }
        let found = self.found(record.key, &record.handle);
        if !self.ended(found)? {
            return Ok(false);
        }
        let value = record.value()?;
        self.prefixes.push_back(value[..self.prefix_bytes.min(value.len())].to_vec());
        Ok(true)
    }

    fn moved(&mut self, moved: &[Moved]) -> StorageResult<()> {
        let handed_over = self.hand_over(moved);
        self.ended(handed_over)
    }
}
